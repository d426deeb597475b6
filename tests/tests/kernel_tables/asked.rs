//! A network namespace, commands in it, and what its kernel says of routes.

#![allow(dead_code, clippy::unwrap_used, reason = "each test uses a part, and fails where a step does")]

use kernel::{Body, Messages, RouteKind};
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};
use std::io::Write as _;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::process::Stdio;
use tests::{Namespace, namespaces_possible};

/// Asks the kernel for routes.
pub(crate) struct Oracle(OwnedFd);

/// What the kernel says: a route's kind and its legs that can be used, or an error.
pub(crate) type Said = Result<(RouteKind, Vec<(u32, Option<IpAddr>, u32)>), i32>;

impl Oracle {
    pub(crate) fn new() -> Self {
        Self(socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None).unwrap())
    }

    /// The route by which a packet to an address leaves (RTM_GETROUTE with RTM_F_FIB_MATCH).
    pub(crate) fn route(&self, address: IpAddr) -> Said {
        let (family, octets) = match address {
            IpAddr::V4(address) => (2, address.octets().to_vec()),
            IpAddr::V6(address) => (10, address.octets().to_vec()),
        };
        let bits = u8::try_from(octets.len() * 8).unwrap();
        let mut request = [&[0; 4][..], &26_u16.to_ne_bytes(), &1_u16.to_ne_bytes(), &[0; 8]].concat();
        request.extend([family, bits, 0, 0, 0, 0, 0, 0]);
        request.extend(0x2000_u32.to_ne_bytes());
        request.extend(u16::try_from(4 + octets.len()).unwrap().to_ne_bytes());
        request.extend(1_u16.to_ne_bytes());
        request.extend(octets);
        let len = u32::try_from(request.len()).unwrap();
        request[..4].copy_from_slice(&len.to_ne_bytes());
        sendto(&self.0, &request, SendFlags::empty(), &SocketAddrNetlink::new(0, 0)).unwrap();
        let mut buffer = [0; 32 << 10];
        let (_, len) = recv(&self.0, &mut buffer[..], RecvFlags::empty()).unwrap();
        match Messages::new(&buffer[..len]).next().unwrap().unwrap().body {
            Body::Error(code) => Err(-code),
            Body::NewRoute(route) => {
                let alive = route.legs().filter(|(_, flags)| !flags.dead);
                Ok((route.kind, alive.map(|(leg, _)| (leg.interface, leg.gateway, leg.weight)).collect()))
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Runs lines of `ip -batch`, where some may fail.
pub(crate) fn batch(namespace: &Namespace, lines: &str) {
    let mut command = namespace.command(&["ip", "-force", "-batch", "-"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    child.wait().unwrap();
}

/// Runs a closure in a thread within a new network namespace; `None` says why not.
pub(crate) fn within<T: Send>(run: impl FnOnce(&Namespace) -> T + Send) -> Option<T> {
    if let Err(why) = namespaces_possible(&[]) {
        skip::test!("{why}");
        return None;
    }
    let namespace = Namespace::new();
    Some(namespace.within(|| run(&namespace)))
}

pub(crate) fn set(namespace: &Namespace, settings: &str) {
    let script = settings.split(' ').map(|setting| {
        let (name, value) = setting.split_once('=').unwrap();
        format!("echo {value} >/proc/sys/net/{name}; ")
    });
    namespace.output(&["sh", "-c", &script.collect::<String>()]);
}

pub(crate) const EACCES: i32 = 13;
pub(crate) const EINVAL: i32 = 22;
pub(crate) const ENETUNREACH: i32 = 101;
pub(crate) const EHOSTUNREACH: i32 = 113;
