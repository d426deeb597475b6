//! `wire=tap:IFNAME`: a TAP interface of the host. What the host sends is received, what is sent the host receives.

use super::{Sent, Wire};
use crate::{Error, WireError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

const TUNSETIFF: Opcode = 0x4004_54CA;
const SIOCGIFHWADDR: Opcode = 0x8927;
const IFF_TAP: u16 = 0x0002;
const IFF_NO_PI: u16 = 0x1000;
/// Kinds of interfaces (linux/if_arp.h): without link-layer headers, as TUN devices are, and loopback.
const ARPHRD_NONE: u16 = 0xFFFE;
const ARPHRD_LOOPBACK: u16 = 772;
/// Longest interface name, without the terminating zero.
const NAME_LEN: usize = 15;
/// Longest frame the interface can have with any MTU.
const FRAME: usize = 65_536 + 18;
/// Ticks of the time-stamp counter to leave an empty interface alone: about 5 µs.
const PAUSE: u64 = 10_000;
/// Ticks between two looks at the interface's state: about 10 ms.
const LOOK: u64 = 25_000_000;

/// An open TAP interface. It is a cable that is out while the interface is down: then nothing is sent.
#[derive(Debug)]
pub(crate) struct TapWire {
    interface: String,
    fd: OwnedFd,
    frame: Vec<u8>,
    len: Option<usize>,
    empty_at: Option<u64>,
    state: State,
    looked_at: u64,
    /// Frames that were still to be sent when their queue was stopped, and those that the interface did not take.
    stranded: u64,
    refused: u64,
    refusal: Option<Errno>,
}

/// What has become of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Up,
    Down,
    /// Deleted, by itself or with its network namespace. It does not come back: one of the same name is another.
    Gone,
}

/// What an interface is asked: struct ifreq with a name, and flags or the kind of a hardware address.
#[repr(C)]
struct InterfaceRequest<const OPCODE: Opcode> {
    name: [u8; NAME_LEN + 1],
    value: u16,
    rest: [u8; 22],
}

impl<const OPCODE: Opcode> InterfaceRequest<OPCODE> {
    fn new(name: [u8; NAME_LEN + 1], value: u16) -> Self {
        Self { name, value, rest: [0; 22] }
    }
}

// SAFETY: TUNSETIFF and SIOCGIFHWADDR, the only codes that this is made with, read and write one struct ifreq, 40 bytes, which is
// what the pointer leads to.
unsafe impl<const OPCODE: Opcode> Ioctl for InterfaceRequest<OPCODE> {
    type Output = u16;
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        OPCODE
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::from_mut(self).cast()
    }

    unsafe fn output_from_ptr(_: IoctlOutput, request: *mut c_void) -> rustix::io::Result<u16> {
        // SAFETY: the pointer that `as_ptr` has given.
        let request = unsafe { &*request.cast::<Self>() };
        Ok(request.value)
    }
}

impl TapWire {
    /// Opens an interface, creating it if there is none of that name.
    pub(crate) fn open(interface: &str) -> Result<Self, Error> {
        let name = name_of(interface)?;
        let fail = |operation, object: &str, errno: Errno, hint| Error::System {
            operation,
            object: object.to_owned(),
            source: io::Error::from(errno),
            hint,
        };
        let path = "/dev/net/tun";
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = rustix::fs::open(path, flags, Mode::empty());
        let fd = opened.map_err(|errno| fail("open", path, errno, way_to_tun(errno)))?;
        let request = InterfaceRequest::<TUNSETIFF>::new(name, IFF_TAP | IFF_NO_PI);
        // SAFETY: the descriptor is that of the tun driver, whose request this is.
        let attached = unsafe { rustix::ioctl::ioctl(&fd, request) };
        attached.map_err(|errno| fail("attach to TAP interface", interface, errno, way_to_attach(errno, name)))?;
        let mut wire = Self {
            interface: interface.to_owned(),
            fd,
            frame: vec![0; FRAME],
            len: None,
            empty_at: None,
            state: State::Down,
            looked_at: 0,
            stranded: 0,
            refused: 0,
            refusal: None,
        };
        wire.look();
        Ok(wire)
    }

    /// Looks at the state of the interface, in whatever network namespace it is by now: to poll(2) it can be written to when it
    /// is up, and is an error when it is gone.
    #[cold]
    fn look(&mut self) {
        self.looked_at = device::tsc::now();
        if self.state == State::Gone {
            return;
        }
        self.state = state_of(&self.fd).unwrap_or(self.state);
        if self.state == State::Gone {
            tracing::error!("the interface {} was deleted; nothing comes or leaves by it any more", self.interface);
        }
    }

    fn next(&self) -> String {
        format!("bring it up: ip link set {} up", self.interface)
    }
}

/// The name of an interface as the kernel takes it. One with a `%` is a pattern: the kernel makes `tap0` of `tap%d`.
pub(crate) fn name_of(interface: &str) -> Result<[u8; NAME_LEN + 1], Error> {
    let mut name = [0; NAME_LEN + 1];
    if interface.is_empty() || interface.len() > NAME_LEN || interface.contains('%') {
        return Err(Error::BadValue {
            key: "wire",
            value: format!("tap:{interface}"),
            allowed: format!("tap:IFNAME with a name of 1 to {NAME_LEN} bytes, none of them %"),
        });
    }
    name[..interface.len()].copy_from_slice(interface.as_bytes());
    Ok(name)
}

fn state_of(fd: impl AsFd) -> Option<State> {
    let mut polled = [PollFd::new(&fd, PollFlags::OUT)];
    poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).ok()?;
    let events = polled[0].revents();
    Some(if events.contains(PollFlags::ERR) {
        State::Gone
    } else if events.contains(PollFlags::OUT) {
        State::Up
    } else {
        State::Down
    })
}

/// What to do when the driver of TAP interfaces cannot be opened.
fn way_to_tun(errno: Errno) -> &'static str {
    match errno {
        Errno::NOENT => "give the container the device (docker run --device /dev/net/tun), or on a host: modprobe tun",
        Errno::NODEV | Errno::NXIO => "the kernel's tun driver is not loaded; on the host: modprobe tun",
        Errno::PERM => "this container may not use it; start it with the device (docker run --device /dev/net/tun)",
        Errno::ACCESS => "this user may not use it; run as root, or: chmod 666 /dev/net/tun",
        Errno::MFILE | Errno::NFILE => "raise the limit of open files (`ulimit -n`)",
        _ => "see to it that /dev/net/tun is the kernel's tun driver (character device 10:200)",
    }
}

/// What to do when a TAP interface cannot be made or attached to.
fn way_to_attach(errno: Errno, name: [u8; NAME_LEN + 1]) -> &'static str {
    match errno {
        Errno::PERM | Errno::ACCESS => {
            "run as root (in a container with --cap-add NET_ADMIN), or have root create it for you: ip tuntap add IFNAME mode \
             tap user USER"
        }
        Errno::BUSY => "a process has it open already; end that one, or choose another name",
        Errno::INVAL => match kind_of(name) {
            Ok(ARPHRD_NONE) => {
                "it is a TUN device, which carries no Ethernet frames; choose another name, or delete it and make it anew: ip \
                 tuntap add IFNAME mode tap"
            }
            Ok(ARPHRD_LOOPBACK) => "it is the loopback interface and no TAP; choose a name that is not taken",
            Ok(_) => {
                "it is an interface of another kind, or a TAP of several queues (multi_queue), which only one that has a single \
                 queue can stand in for; choose a name that is not taken, or make it anew: ip tuntap add IFNAME mode tap"
            }
            Err(_) => "interfaces cannot have such a name; choose one of letters and digits",
        },
        Errno::NOMEM | Errno::NOBUFS => "the kernel has no memory for it; free some",
        _ => "choose another name, or make it with: ip tuntap add IFNAME mode tap",
    }
}

/// The kind of an interface of this network namespace.
fn kind_of(name: [u8; NAME_LEN + 1]) -> Result<u16, Errno> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // SAFETY: the descriptor is that of a socket, which knows this request.
    unsafe { rustix::ioctl::ioctl(&socket, InterfaceRequest::<SIOCGIFHWADDR>::new(name, 0)) }
}

impl Wire for TapWire {
    fn poll(&mut self, _receiving: bool, _room: usize) {
        let now = device::tsc::now();
        if self.empty_at.is_some_and(|at| now.wrapping_sub(at) > PAUSE) {
            self.empty_at = None;
        }
        if now.wrapping_sub(self.looked_at) > LOOK {
            self.look();
        }
    }

    fn front(&mut self) -> Option<&[u8]> {
        if self.len.is_none() && self.empty_at.is_none() {
            match rustix::io::read(&self.fd, &mut self.frame[..]) {
                Ok(len) if len > 0 => self.len = Some(len),
                _ => self.empty_at = Some(device::tsc::now()),
            }
        }
        self.len.map(|len| &self.frame[..len])
    }

    fn pop(&mut self) {
        self.len = None;
    }

    fn transmit(&mut self, frame: &[u8]) -> Sent {
        match rustix::io::write(&self.fd, frame) {
            Ok(_) => Sent::Yes,
            Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM | Errno::INTR) => Sent::Full,
            // It is down, or gone. The frame stays where it is, as with a cable that is out.
            Err(Errno::IO | Errno::BADFD) => {
                self.look();
                Sent::Full
            }
            Err(errno) => {
                self.refused += 1;
                self.refusal = Some(errno);
                Sent::Lost
            }
        }
    }

    fn carrier(&self) -> bool {
        self.state == State::Up
    }

    fn no_carrier(&self) -> Option<String> {
        let name = &self.interface;
        match self.state {
            State::Up => None,
            State::Down => Some(format!("the interface {name} is down; {}", self.next())),
            State::Gone => Some(format!("the interface {name} was deleted, or its network namespace; start again")),
        }
    }

    fn is_gone(&self) -> bool {
        self.state == State::Gone
    }

    fn strand(&mut self, frames: u64) {
        self.stranded += frames;
    }

    fn host(&self) -> bool {
        true
    }

    fn finish(&mut self) {
        self.look();
    }

    fn error(&self) -> Option<WireError> {
        let interface = self.interface.clone();
        let lost =
            |frames, cause: String, next| WireError::NotTaken { interface: interface.clone(), cause, next, frames };
        match self.refusal {
            _ if self.state == State::Gone => Some(WireError::Gone { interface, frames: self.stranded + self.refused }),
            _ if self.stranded != 0 => Some(lost(self.stranded, "was down".to_owned(), self.next())),
            Some(errno) => {
                let cause = format!("did not take them: {}", io::Error::from(errno));
                Some(lost(self.refused, cause, "see to its settings (ip -d link show)".to_owned()))
            }
            None => None,
        }
    }
}
