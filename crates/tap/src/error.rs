//! Errors, and what to do about them.

use rustix::io::Errno;
use std::io;

/// An error of opening or changing a TAP interface: the operation, the object, the cause and the next step.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No interface has such a name.
    #[error("{name:?} is no name of an interface; choose one of 1 to 15 bytes, none of them %")]
    Name {
        /// The name.
        name: String,
    },
    /// The kernel has refused something.
    #[error("cannot {operation} {object}: {source}; {next}")]
    System {
        /// The operation.
        operation: &'static str,
        /// The object.
        object: String,
        /// The error that the kernel returned.
        source: io::Error,
        /// What to do next.
        next: &'static str,
    },
}

impl Error {
    pub(crate) fn system(operation: &'static str, object: &str, errno: Errno, next: &'static str) -> Self {
        Self::System { operation, object: object.to_owned(), source: errno.into(), next }
    }
}

/// Kinds of interfaces (linux/if_arp.h): without link-layer headers, as TUN devices are, and loopback.
const ARPHRD_NONE: u16 = 0xFFFE;
const ARPHRD_LOOPBACK: u16 = 772;

/// What to do when the driver of TAP interfaces cannot be opened.
pub(crate) fn way_to_tun(errno: Errno) -> &'static str {
    match errno {
        Errno::NOENT => "give the container the device (docker run --device /dev/net/tun), or on a host: modprobe tun",
        Errno::NODEV | Errno::NXIO => "the kernel's tun driver is not loaded; on the host: modprobe tun",
        Errno::PERM => "this container may not use it; start it with the device (docker run --device /dev/net/tun)",
        Errno::ACCESS => "this user may not use it; run as root, or: chmod 666 /dev/net/tun",
        Errno::MFILE | Errno::NFILE => "raise the limit of open files (`ulimit -n`)",
        _ => "see to it that /dev/net/tun is the kernel's tun driver (character device 10:200)",
    }
}

/// What to do when a TAP interface cannot be made or attached to. `kind` finds out what the interface of that name is.
pub(crate) fn way_to_attach(errno: Errno, kind: impl FnOnce() -> Result<u16, Errno>) -> &'static str {
    match errno {
        Errno::PERM | Errno::ACCESS => {
            "run as root (in a container with --cap-add NET_ADMIN), or have root create it for you: ip tuntap add IFNAME mode \
             tap user USER"
        }
        Errno::BUSY => "a process has it open already; end that one, or choose another name",
        Errno::INVAL => match kind() {
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

/// What to do when a TAP interface does not let itself be changed.
pub(crate) fn way_to_change(errno: Errno) -> &'static str {
    match errno {
        Errno::PERM | Errno::ACCESS => {
            "run as root (in a container with --cap-add NET_ADMIN), or have root set it beforehand"
        }
        Errno::NODEV | Errno::BADFD => "it was deleted, renamed or moved to another network namespace; start again",
        Errno::ADDRNOTAVAIL | Errno::INVAL => "the kernel does not take this value; choose another",
        Errno::MFILE | Errno::NFILE => "raise the limit of open files (`ulimit -n`)",
        _ => "see to its settings: ip -d link show",
    }
}
