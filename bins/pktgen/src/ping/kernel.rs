//! Pings by the kernel: by a ping socket where this user may have one, else by a raw socket.

use super::account::Account;
use anyhow::{Context as _, anyhow};
use cli::exit::Failure;
use cli::stop::Stop;
use device::tsc;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io::{self, Read as _};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use wire::{Ipv4, Sum};

/// A signal is seen this soon.
const LONGEST_WAIT: Duration = Duration::from_millis(100);
const HEADER: usize = 8;

/// How it pings, with times in ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) count: u64,
    pub(crate) interval: u64,
    pub(crate) settle: u64,
    pub(crate) hz: u64,
}

/// A socket that is connected to who is pinged.
#[derive(Debug)]
pub(crate) struct Kernel {
    socket: Socket,
    is_raw: bool,
    is_v4: bool,
    buffer: Box<[u8]>,
}

/// Bytes of the largest packet.
const LARGEST: usize = 65_536;

impl Kernel {
    pub(crate) fn open(to: IpAddr, interface: Option<&str>) -> Result<Self, Failure> {
        let is_v4 = to.is_ipv4();
        let (domain, protocol) =
            if is_v4 { (Domain::IPV4, Protocol::ICMPV4) } else { (Domain::IPV6, Protocol::ICMPV6) };
        let (socket, is_raw) = match Socket::new(domain, Type::DGRAM, Some(protocol)) {
            Ok(socket) => (socket, false),
            Err(_) => match Socket::new(domain, Type::RAW, Some(protocol)) {
                Ok(socket) => (socket, true),
                Err(error) => return Err(anyhow!("--kernel: {error}; {}", RIGHTS).into()),
            },
        };
        if let Some(name) = interface {
            let bound = socket.bind_device(Some(name.as_bytes()));
            bound.with_context(|| format!("--kernel-interface {name}: cannot be used; name one that ip link shows"))?;
        }
        let address = SockAddr::from(SocketAddr::new(to, 0));
        socket.connect(&address).with_context(|| format!("--kernel: the kernel has no way to {to}; see ip route"))?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, is_raw, is_v4, buffer: vec![0; LARGEST].into() })
    }

    /// Pings until all have come back, or will not any more.
    pub(crate) fn run(&mut self, plan: Plan, account: &mut Account, stop: &Stop) -> Result<(), Failure> {
        let mut next = tsc::now();
        loop {
            let now = tsc::now();
            let is_over = account.sent >= plan.count || stop.is_signalled();
            if is_over && (account.sent == 0 || account.is_settled(now, plan.settle)) {
                return Ok(());
            }
            if !is_over && now >= next {
                let sent = self.send(account)?;
                next = super::following(next, plan.interval, sent);
            }
            let now = tsc::now();
            let until = if is_over { u64::MAX } else { next.saturating_sub(now) };
            self.receive(account, wait(until, plan.hz))?;
        }
    }

    /// Sends one. That the kernel refuses it is an answer too.
    fn send(&self, account: &mut Account) -> Result<u64, Failure> {
        let (identifier, sequence, payload) = account.next();
        let ([a, b], [c, d]) = (identifier.to_be_bytes(), sequence.to_be_bytes());
        let kind = if self.is_v4 { 8 } else { 128 };
        let mut message = [&[kind, 0, 0, 0, a, b, c, d][..], payload].concat();
        if self.is_v4 {
            // The kernel knows the pseudo-header of IPv6, and completes those.
            let sum = Sum::of(&message).checksum();
            message[2..4].copy_from_slice(&sum.to_be_bytes());
        }
        let at = tsc::now();
        let result = self.socket.send(&message);
        account.sent(at);
        match result {
            Ok(_) => Ok(at),
            Err(error) if error.raw_os_error().is_some() && error.kind() != io::ErrorKind::PermissionDenied => {
                account.refused(&format!("the kernel says: {error}"));
                Ok(at)
            }
            Err(error) => Err(anyhow!("--kernel: {error}; see firewall and routes").into()),
        }
    }

    /// Takes all that has come within a time.
    fn receive(&mut self, account: &mut Account, limit: Timespec) -> Result<(), Failure> {
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        // A signal ends the wait, and the caller comes round again.
        let _ = poll(&mut fds, Some(&limit));
        loop {
            match self.socket.read(&mut self.buffer) {
                Ok(len) => {
                    let at = tsc::now();
                    let bytes = self.buffer.get(..len).unwrap_or_default();
                    if let Some((sequence, payload)) = self.reply(bytes, account.identifier()) {
                        account.replied(sequence, payload, at);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // What others on the way said of an earlier ping.
                Err(error) if error.raw_os_error().is_some_and(is_of_the_way) => {
                    account.refused(&format!("the kernel says: {error}"));
                }
                Err(error) => return Err(anyhow!("--kernel: {error}").into()),
            }
        }
    }

    /// Sequence number and data of a reply to this program.
    fn reply<'b>(&self, bytes: &'b [u8], identifier: u16) -> Option<(u16, &'b [u8])> {
        let message = if self.is_raw && self.is_v4 { Ipv4::parse(bytes)?.payload() } else { bytes };
        let ([kind, 0, _, _, a, b, c, d], payload) = message.split_first_chunk::<HEADER>()? else { return None };
        let is_reply = *kind == if self.is_v4 { 0 } else { 129 };
        // A ping socket has an identifier of its own, and receives no other.
        let is_ours = !self.is_raw || u16::from_be_bytes([*a, *b]) == identifier;
        (is_reply && is_ours).then(|| (u16::from_be_bytes([*c, *d]), payload))
    }

    /// The address that it sends from, if the kernel says it.
    pub(crate) fn source(&self) -> Option<IpAddr> {
        self.socket.local_addr().ok()?.as_socket().map(|address| address.ip())
    }

    /// What kind of socket it is.
    pub(crate) fn words(&self) -> &'static str {
        if self.is_raw { "raw socket" } else { "ping socket" }
    }
}

const RIGHTS: &str =
    "run it as root, or let this user have ping sockets: sysctl net.ipv4.ping_group_range='0 2147483647'";

fn is_of_the_way(errno: i32) -> bool {
    use rustix::io::Errno;
    [Errno::HOSTUNREACH, Errno::NETUNREACH, Errno::CONNREFUSED, Errno::PROTO, Errno::MSGSIZE, Errno::ACCESS]
        .iter()
        .any(|known| known.raw_os_error() == errno)
}

/// Ticks as the time of a wait, not beyond the longest.
fn wait(ticks: u64, hz: u64) -> Timespec {
    let nanoseconds = u128::from(ticks) * 1_000_000_000 / u128::from(hz.max(1));
    let time = Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX)).min(LONGEST_WAIT);
    Timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() }
}
