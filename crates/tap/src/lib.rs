//! Linux's TAP interfaces (Documentation/networking/tuntap.rst): what the kernel sends by one is read, and what is written the kernel
//! receives. The interface is non-blocking, has one queue, and no header stands before a frame.
//!
//! ```no_run
//! use tap::{Tap, Written};
//!
//! let tap = Tap::open("rw0")?;
//! tap.set_carrier(true)?;
//! let mut frame = vec![0; tap::LONGEST_FRAME];
//! if let Some(len) = tap.read(&mut frame) {
//!     assert!(matches!(tap.write(&frame[..len]), Written::Yes));
//! }
//! # Ok::<(), tap::Error>(())
//! ```

mod error;
#[expect(unsafe_code, reason = "ioctls of the kernel")]
mod request;

pub use error::Error;

use error::{way_to_attach, way_to_change, way_to_tun};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Longest interface name in bytes (IFNAMSIZ without the terminating zero).
pub const LONGEST_NAME: usize = 15;
/// Longest frame in bytes that an interface can have with any MTU, with a VLAN tag.
pub const LONGEST_FRAME: usize = 65_536 + 18;

/// What has become of an interface.
///
/// ```
/// assert_ne!(tap::State::Down, tap::State::Gone);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is up, and takes frames.
    Up,
    /// It is down.
    Down,
    /// Deleted, by itself or with its network namespace. It does not come back: one of the same name is another.
    Gone,
}

/// What has become of a frame that was to be written.
///
/// ```
/// assert!(!matches!(tap::Written::Full, tap::Written::Yes));
/// ```
#[derive(Debug)]
pub enum Written {
    /// The kernel has received it.
    Yes,
    /// There is no room or no memory now; try again.
    Full,
    /// The interface is down or gone: see [`Tap::state`].
    Down,
    /// The kernel does not take such a frame.
    Refused(io::Error),
}

/// Returns the MTU in bytes of the interface of this name in this thread's network namespace.
///
/// ```
/// assert!(tap::mtu("lo").is_ok_and(|mtu| mtu >= 68));
/// assert!(tap::mtu("no-such-one").is_err());
/// ```
///
/// # Errors
///
/// [`Error::System`] if there is none.
pub fn mtu(name: &str) -> Result<u32, Error> {
    let ask = || request::mtu(any_socket()?.as_fd(), name);
    let mtu = ask()
        .map_err(|errno| Error::system("read the MTU of", &format!("interface {name}"), errno, way_to_change(errno)))?;
    Ok(mtu.unsigned_abs())
}

/// Returns whether an interface can be opened by this name: 1 to 15 bytes, none of them `%`, with which the kernel would make
/// `tap0` of `tap%d`. The kernel refuses some others too.
///
/// ```
/// assert!(tap::is_name("rw0") && !tap::is_name("rw%d") && !tap::is_name("much-too-long-a-name"));
/// ```
#[must_use]
pub fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= LONGEST_NAME && !name.contains('%')
}

/// An open TAP interface. It may be in another network namespace by now than it was when it was opened.
///
/// Dropping it takes the interface away, with addresses and routes, unless it was there before (`ip tuntap add`).
#[derive(Debug)]
pub struct Tap {
    name: String,
    fd: OwnedFd,
    was_there: bool,
}

impl Tap {
    /// Opens an interface of this thread's network namespace, creating it if there is none of that name. It has a carrier.
    ///
    /// # Errors
    ///
    /// [`Error::Name`]; [`Error::System`] without the driver, without permission, or if the name belongs to an interface that is
    /// in use or is no TAP.
    pub fn open(name: &str) -> Result<Self, Error> {
        Self::attach(name, true)
    }

    /// As [`Self::open`], but the interface has no carrier until it is given one: [`Self::set_carrier`]. Before Linux 6.1 one that is up
    /// has one for a moment.
    ///
    /// # Errors
    ///
    /// Those of [`Self::open`] and [`Self::set_carrier`].
    pub fn open_without_carrier(name: &str) -> Result<Self, Error> {
        let tap = Self::attach(name, false)?;
        tap.set_carrier(false)?;
        Ok(tap)
    }

    fn attach(name: &str, carrier: bool) -> Result<Self, Error> {
        if !is_name(name) {
            return Err(Error::Name { name: name.to_owned() });
        }
        let was_there = any_socket().and_then(|socket| request::index(socket.as_fd(), name)).is_ok();
        let path = "/dev/net/tun";
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = rustix::fs::open(path, flags, Mode::empty());
        let fd = opened.map_err(|errno| Error::system("open", path, errno, way_to_tun(errno)))?;
        request::attach(fd.as_fd(), name, carrier).map_err(|errno| {
            Error::system("attach to TAP interface", name, errno, way_to_attach(errno, || kind(name)))
        })?;
        Ok(Self { name: name.to_owned(), fd, was_there })
    }

    /// Returns whether the interface was there before it was opened, such as by `ip tuntap add`.
    #[must_use]
    pub fn was_there(&self) -> bool {
        self.was_there
    }

    /// Returns the index of the interface that has the name in this thread's network namespace. A new name does not change it, but another
    /// network namespace may.
    ///
    /// # Errors
    ///
    /// [`Error::System`] if there is none: it has another name, or was moved to another network namespace, already.
    pub fn index(&self) -> Result<u32, Error> {
        let index = any_socket().and_then(|socket| request::index(socket.as_fd(), &self.name));
        index.map_err(|errno| self.fail("find the index of", errno))
    }

    /// Returns the name by which it was opened. It may have another by now.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the state of the interface, in whatever network namespace it is by now; `None` if the kernel has no memory to say.
    #[must_use]
    pub fn state(&self) -> Option<State> {
        let mut polled = [PollFd::new(&self.fd, PollFlags::OUT)];
        poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).ok()?;
        // To poll(2) it can be written to when it is up, and is an error when it is gone.
        let events = polled[0].revents();
        Some(if events.contains(PollFlags::ERR) {
            State::Gone
        } else if events.contains(PollFlags::OUT) {
            State::Up
        } else {
            State::Down
        })
    }

    /// Reads the next frame that the kernel sends, without check sequence. Returns its length; `None` if there is none now. What
    /// does not fit into `frame` is cut off: [`LONGEST_FRAME`] bytes are always enough.
    pub fn read(&self, frame: &mut [u8]) -> Option<usize> {
        rustix::io::read(&self.fd, frame).ok().filter(|len| *len > 0)
    }

    /// Has the kernel receive a frame, without check sequence.
    pub fn write(&self, frame: &[u8]) -> Written {
        written(rustix::io::write(&self.fd, frame))
    }

    /// As [`Self::write`], of a frame in several parts; 16 are always taken.
    pub fn write_parts(&self, parts: &[IoSlice<'_>]) -> Written {
        written(rustix::io::writev(&self.fd, parts))
    }

    /// Sets the MAC address, also while the interface is up, and without any capability. Linux forgets the neighbours of an interface
    /// that gets another one, so the present one is left alone.
    ///
    /// # Errors
    ///
    /// [`Error::System`] if the kernel does not want this address, such as one of a group.
    pub fn set_mac(&self, mac: [u8; 6]) -> Result<(), Error> {
        if request::mac(self.fd.as_fd(), &self.name) == Ok(mac) {
            return Ok(());
        }
        request::set_mac(self.fd.as_fd(), &self.name, mac).map_err(|errno| self.fail("set the MAC address of", errno))
    }

    /// Sets the MTU in bytes, 68 to 65,521 for Ethernet, of the interface that has the name in this thread's network namespace. Needs
    /// `CAP_NET_ADMIN`, unless it is the present one.
    ///
    /// # Errors
    ///
    /// [`Error::System`].
    pub fn set_mtu(&self, mtu: u16) -> Result<(), Error> {
        let set = || {
            let socket = any_socket()?;
            if request::mtu(socket.as_fd(), &self.name)? == i32::from(mtu) {
                return Ok(());
            }
            request::set_mtu(socket.as_fd(), &self.name, mtu)
        };
        set().map_err(|errno| self.fail("set the MTU of", errno))
    }

    /// Sets whether the interface has a carrier, without any capability.
    ///
    /// # Errors
    ///
    /// [`Error::System`] if the interface is gone, and before Linux 5.0.
    pub fn set_carrier(&self, carrier: bool) -> Result<(), Error> {
        request::set_carrier(self.fd.as_fd(), carrier).map_err(|errno| self.fail("set the carrier of", errno))
    }

    fn fail(&self, operation: &'static str, errno: Errno) -> Error {
        Error::system(operation, &format!("TAP interface {}", self.name), errno, way_to_change(errno))
    }
}

/// Readable when [`Tap::read`] has something to read; [`PollFlags::ERR`] when the interface is gone.
impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn written(result: rustix::io::Result<usize>) -> Written {
    match result {
        Ok(_) => Written::Yes,
        Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM | Errno::INTR) => Written::Full,
        Err(Errno::IO | Errno::BADFD) => Written::Down,
        Err(errno) => Written::Refused(errno.into()),
    }
}

/// The kind of an interface of this network namespace (ARPHRD_*).
fn kind(name: &str) -> Result<u16, Errno> {
    request::kind(any_socket()?.as_fd(), name)
}

/// A socket of the kind that every system has, to ask about interfaces.
fn any_socket() -> Result<OwnedFd, Errno> {
    socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
}

/// The program of the README is tested with the examples.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
