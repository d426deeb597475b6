//! The requests of the tun driver and of interfaces (netdevice(7), linux/if_tun.h). All but one are about a struct ifreq.

use crate::LONGEST_NAME;
use rustix::io::{Errno, Result};
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, Setter, ioctl};
use std::ffi::{c_int, c_void};
use std::os::fd::BorrowedFd;

const TUNSETIFF: Opcode = 0x4004_54CA;
const TUNSETCARRIER: Opcode = 0x4004_54E2;
const SIOCGIFMTU: Opcode = 0x8921;
const SIOCSIFMTU: Opcode = 0x8922;
const SIOCSIFHWADDR: Opcode = 0x8924;
const SIOCGIFHWADDR: Opcode = 0x8927;
const SIOCGIFINDEX: Opcode = 0x8933;

const IFF_TAP: u16 = 0x0002;
const IFF_NO_CARRIER: u16 = 0x0040;
const IFF_NO_PI: u16 = 0x1000;
const ARPHRD_ETHER: u16 = 1;

/// What an interface is asked: struct ifreq, with a name, and a union in which flags, an MTU or a hardware address stand.
#[repr(C, align(8))]
struct InterfaceRequest<const OPCODE: Opcode> {
    name: [u8; LONGEST_NAME + 1],
    value: [u8; 24],
}

const _: () = assert!(size_of::<InterfaceRequest<0>>() == 40, "that of struct ifreq on 64 bits");

impl<const OPCODE: Opcode> InterfaceRequest<OPCODE> {
    fn new(name: &str, start: &[u8]) -> Result<Self> {
        let mut request = Self { name: [0; LONGEST_NAME + 1], value: [0; 24] };
        // The last byte stays zero.
        let room = request.name[..LONGEST_NAME].get_mut(..name.len());
        room.ok_or(Errno::NAMETOOLONG)?.copy_from_slice(name.as_bytes());
        request.value.get_mut(..start.len()).ok_or(Errno::INVAL)?.copy_from_slice(start);
        Ok(request)
    }

    /// Makes the request. Returns what then stands in the union.
    fn make(self, fd: BorrowedFd<'_>) -> Result<[u8; 24]> {
        // SAFETY: the codes that requests are made with below read and write one struct ifreq, and nothing else of this process; a
        // descriptor that does not know a code answers with an error.
        unsafe { ioctl(fd, self) }
    }
}

// SAFETY: the codes that this is made with below read and write one struct ifreq, 40 bytes, which is what the pointer leads to.
unsafe impl<const OPCODE: Opcode> Ioctl for InterfaceRequest<OPCODE> {
    type Output = [u8; 24];
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        OPCODE
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::from_mut(self).cast()
    }

    unsafe fn output_from_ptr(_: IoctlOutput, request: *mut c_void) -> Result<[u8; 24]> {
        // SAFETY: the pointer that `as_ptr` has given.
        let request = unsafe { &*request.cast::<Self>() };
        Ok(request.value)
    }
}

/// Makes a file of the tun driver that of a TAP interface, which then has a carrier or not. Before Linux 6.1 it always has.
pub(crate) fn attach(tun: BorrowedFd<'_>, name: &str, carrier: bool) -> Result<()> {
    // The driver passes over flags that it does not know.
    let flags = IFF_TAP | IFF_NO_PI | if carrier { 0 } else { IFF_NO_CARRIER };
    InterfaceRequest::<TUNSETIFF>::new(name, &flags.to_ne_bytes())?.make(tun).map(drop)
}

/// The kind of an interface of a socket's network namespace (ARPHRD_*).
pub(crate) fn kind(socket: BorrowedFd<'_>, name: &str) -> Result<u16> {
    let [low, high, ..] = InterfaceRequest::<SIOCGIFHWADDR>::new(name, &[])?.make(socket)?;
    Ok(u16::from_ne_bytes([low, high]))
}

/// The address of the interface that a file of the tun driver is attached to. The driver does not look at the name.
pub(crate) fn mac(tap: BorrowedFd<'_>, name: &str) -> Result<[u8; 6]> {
    let [_, _, a, b, c, d, e, f, ..] = InterfaceRequest::<SIOCGIFHWADDR>::new(name, &[])?.make(tap)?;
    Ok([a, b, c, d, e, f])
}

/// Sets the address of the interface that a file of the tun driver is attached to.
pub(crate) fn set_mac(tap: BorrowedFd<'_>, name: &str, mac: [u8; 6]) -> Result<()> {
    let [low, high] = ARPHRD_ETHER.to_ne_bytes();
    let [a, b, c, d, e, f] = mac;
    InterfaceRequest::<SIOCSIFHWADDR>::new(name, &[low, high, a, b, c, d, e, f])?.make(tap).map(drop)
}

/// The index of an interface of a socket's network namespace.
pub(crate) fn index(socket: BorrowedFd<'_>, name: &str) -> Result<u32> {
    let [a, b, c, d, ..] = InterfaceRequest::<SIOCGIFINDEX>::new(name, &[])?.make(socket)?;
    Ok(u32::from_ne_bytes([a, b, c, d]))
}

/// The MTU of an interface of a socket's network namespace.
pub(crate) fn mtu(socket: BorrowedFd<'_>, name: &str) -> Result<i32> {
    let [a, b, c, d, ..] = InterfaceRequest::<SIOCGIFMTU>::new(name, &[])?.make(socket)?;
    Ok(i32::from_ne_bytes([a, b, c, d]))
}

/// Sets it.
pub(crate) fn set_mtu(socket: BorrowedFd<'_>, name: &str, mtu: u16) -> Result<()> {
    InterfaceRequest::<SIOCSIFMTU>::new(name, &i32::from(mtu).to_ne_bytes())?.make(socket).map(drop)
}

/// Sets whether the interface that a file of the tun driver is attached to has a carrier.
pub(crate) fn set_carrier(tap: BorrowedFd<'_>, carrier: bool) -> Result<()> {
    // SAFETY: TUNSETCARRIER reads one int.
    let request = unsafe { Setter::<TUNSETCARRIER, c_int>::new(carrier.into()) };
    // SAFETY: as above; a descriptor that does not know the code answers with an error.
    unsafe { ioctl(tap, request) }
}
