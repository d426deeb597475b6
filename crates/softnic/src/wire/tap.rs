//! `wire=tap:IFNAME`: a TAP interface of the host. What the host sends is received, what is sent the host receives.

use super::{Sent, Wire};
use crate::Error;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode};
use std::ffi::c_void;
use std::io;
use std::os::fd::OwnedFd;

const TUNSETIFF: Opcode = 0x4004_54CA;
const IFF_TAP: u16 = 0x0002;
const IFF_NO_PI: u16 = 0x1000;
/// Longest interface name, without the terminating zero.
const NAME_LEN: usize = 15;
/// Longest frame the interface can have with any MTU.
const FRAME: usize = 65_536 + 18;
/// Ticks of the time-stamp counter to leave an empty interface alone: about 5 µs.
const PAUSE: u64 = 10_000;

/// An open TAP interface.
#[derive(Debug)]
pub(crate) struct TapWire {
    fd: OwnedFd,
    frame: Vec<u8>,
    len: Option<usize>,
    empty_at: Option<u64>,
}

/// The request of TUNSETIFF: struct ifreq with a name and flags.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; NAME_LEN + 1],
    flags: u16,
    rest: [u8; 22],
}

// SAFETY: TUNSETIFF reads and writes one struct ifreq, 40 bytes, which is what the pointer leads to.
unsafe impl Ioctl for InterfaceRequest {
    type Output = ();
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        TUNSETIFF
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::from_mut(self).cast()
    }

    unsafe fn output_from_ptr(_: IoctlOutput, _: *mut c_void) -> rustix::io::Result<()> {
        Ok(())
    }
}

impl TapWire {
    /// Opens an interface, creating it if there is none of that name.
    pub(crate) fn open(interface: &str) -> Result<Self, Error> {
        let mut name = [0; NAME_LEN + 1];
        if interface.is_empty() || interface.len() > NAME_LEN {
            return Err(Error::BadValue {
                key: "wire",
                value: format!("tap:{interface}"),
                allowed: format!("tap:IFNAME with a name of 1 to {NAME_LEN} bytes"),
            });
        }
        name[..interface.len()].copy_from_slice(interface.as_bytes());
        let fail = |operation, object: &str, errno: Errno| Error::System {
            operation,
            object: object.to_owned(),
            source: io::Error::from(errno),
            hint: match errno {
                Errno::PERM | Errno::ACCESS => {
                    "run as root, or have root create it for you: ip tuntap add IFNAME mode tap user USER"
                }
                Errno::BUSY => "another process has it open",
                Errno::NOENT => "load the tun module",
                _ => "",
            },
        };
        let path = "/dev/net/tun";
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| fail("open", path, errno))?;
        let request = InterfaceRequest { name, flags: IFF_TAP | IFF_NO_PI, rest: [0; 22] };
        // SAFETY: the descriptor is that of the tun driver, whose request this is.
        let attached = unsafe { rustix::ioctl::ioctl(&fd, request) };
        attached.map_err(|errno| fail("attach to TAP interface", interface, errno))?;
        Ok(Self { fd, frame: vec![0; FRAME], len: None, empty_at: None })
    }
}

impl Wire for TapWire {
    fn poll(&mut self, _receiving: bool, _room: usize) {
        if self.empty_at.is_some_and(|at| device::tsc::now().wrapping_sub(at) > PAUSE) {
            self.empty_at = None;
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
            Err(Errno::AGAIN | Errno::NOBUFS | Errno::INTR) => Sent::Full,
            // The interface is down, or does not take such a frame.
            Err(_) => Sent::Lost,
        }
    }

    fn host(&self) -> bool {
        true
    }
}
