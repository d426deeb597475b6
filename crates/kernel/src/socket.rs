//! A netlink socket that hears of changes and asks for tables (netlink(7)).

use crate::{Dump, Error};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_recv_buffer_size_force, socket_recv_buffer_size};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::net::{bind, getsockname, recvfrom, sendto, socket_with};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Bytes that wait for a reader at most, where the user may ask for so many: two seconds of the kernel's fastest changes.
pub const RECEIVE_BUFFER: usize = 64 << 20;

/// What is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received<'a> {
    /// A datagram.
    Datagram(&'a [u8]),
    /// Messages were lost, as the buffer was full or one was longer than any may be.
    Overflow,
    /// Nothing more.
    Nothing,
}

/// A socket of NETLINK_ROUTE in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    port: u32,
    buffer: Vec<u8>,
    /// Bytes of the receive buffer, asked for and got.
    asked: usize,
    got: usize,
}

impl Socket {
    /// Opens one and subscribes to links, addresses, neighbours, routes, rules, settings and next hops. `receive_buffer` is in
    /// bytes; without CAP_NET_ADMIN the kernel cuts it to `net.core.rmem_max`.
    ///
    /// ```
    /// let socket = kernel::Socket::open(kernel::RECEIVE_BUFFER)?;
    /// assert_ne!(socket.port(), 0);
    /// # Ok::<(), kernel::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Socket`].
    pub fn open(receive_buffer: usize) -> Result<Self, Error> {
        let failed = |operation| move |source| Error::Socket { operation, source };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // NETLINK_ROUTE is protocol 0.
        let fd = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None).map_err(failed("open"))?;
        set_socket_recv_buffer_size_force(&fd, receive_buffer)
            .or_else(|_| set_socket_recv_buffer_size(&fd, receive_buffer))
            .map_err(failed("set the buffer of"))?;
        bind(&fd, &SocketAddrNetlink::new(0, groups())).map_err(failed("bind"))?;
        let address = getsockname(&fd).and_then(SocketAddrNetlink::try_from).map_err(failed("name"))?;
        // The kernel says twice what was asked for, for its own account.
        let got = socket_recv_buffer_size(&fd).map_err(failed("read the buffer of"))? / 2;
        Ok(Self { fd, port: address.pid(), buffer: vec![0; LONGEST], asked: receive_buffer, got })
    }

    /// Returns the bytes of its receive buffer, if they are fewer than were asked for.
    #[must_use]
    pub fn cut_buffer(&self) -> Option<usize> {
        (self.got < self.asked).then_some(self.got)
    }

    /// Returns the number that the kernel gave it.
    #[must_use]
    pub fn port(&self) -> u32 {
        self.port
    }

    /// Asks for a table.
    ///
    /// # Errors
    ///
    /// [`Error::Socket`].
    pub fn ask(&self, dump: Dump, sequence: u32) -> Result<(), Error> {
        self.send(&dump.request(sequence))
    }

    /// Sends requests to the kernel.
    pub(crate) fn send(&self, requests: &[u8]) -> Result<(), Error> {
        sendto(&self.fd, requests, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))
            .map(drop)
            .map_err(|source| Error::Socket { operation: "ask", source })
    }

    /// Reads a datagram, and does not wait for one. What did not come from the kernel is passed over, 16 at most.
    ///
    /// # Errors
    ///
    /// [`Error::Socket`].
    pub fn receive(&mut self) -> Result<Received<'_>, Error> {
        for _ in 0..16 {
            // With TRUNC the kernel says how long a datagram was that had no room.
            let (_, len, sender) = match recvfrom(&self.fd, &mut self.buffer[..], RecvFlags::TRUNC) {
                Ok(received) => received,
                Err(Errno::AGAIN) => return Ok(Received::Nothing),
                Err(Errno::NOBUFS) => return Ok(Received::Overflow),
                Err(Errno::INTR) => continue,
                Err(source) => return Err(Error::Socket { operation: "read", source }),
            };
            if sender.and_then(|sender| SocketAddrNetlink::try_from(sender).ok()).is_none_or(|from| from.pid() != 0) {
                continue;
            }
            return Ok(self.buffer.get(..len).map_or(Received::Overflow, Received::Datagram));
        }
        Ok(Received::Nothing)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The mask of the groups (RTNLGRP_*): group N is bit N - 1.
fn groups() -> u32 {
    const LINK: u32 = 1;
    const NEIGH: u32 = 3;
    const IPV4_IFADDR: u32 = 5;
    const IPV4_ROUTE: u32 = 7;
    const IPV4_RULE: u32 = 8;
    const IPV6_IFADDR: u32 = 9;
    const IPV6_ROUTE: u32 = 11;
    const IPV6_RULE: u32 = 19;
    const IPV4_NETCONF: u32 = 24;
    const IPV6_NETCONF: u32 = 25;
    const NEXTHOP: u32 = 32;
    [
        LINK,
        NEIGH,
        IPV4_IFADDR,
        IPV4_ROUTE,
        IPV4_RULE,
        IPV6_IFADDR,
        IPV6_ROUTE,
        IPV6_RULE,
        IPV4_NETCONF,
        IPV6_NETCONF,
        NEXTHOP,
    ]
    .iter()
    .fold(0, |mask, group| mask | 1 << (group - 1))
}

/// The kernel makes parts of a dump 32 KiB long at most, and an event as long as it takes: a group of 256 members, 8 KiB.
const LONGEST: usize = 256 << 10;
