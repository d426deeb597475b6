//! Which flow a frame belongs to, for the choice among several next hops. Both directions of a flow have the same number, unless flow
//! labels of IPv6 count and differ.

use crate::ethernet::{self, HEADER};
use std::net::IpAddr;
use wire::{Flow, Ipv4Header, protocol};

/// What tells flows apart, by the numbers of Linux's `fib_multipath_hash_policy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Policy {
    /// Source and destination address, and the flow label of IPv6.
    #[default]
    Addresses = 0,
    /// Addresses, protocol, and the ports of TCP and UDP; of fragments, and behind extension headers of IPv6, no ports.
    Ports = 1,
}

/// The policies of IPv4 and IPv6, in the two lowest bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policies(pub(crate) u32);

const _: () = assert!(Policy::Addresses as u32 == 0 && Policy::Ports as u32 == 1, "a bit each");

impl Policies {
    pub(crate) fn new([v4, v6]: [Policy; 2]) -> Self {
        Self(v4 as u32 | (v6 as u32) << 1)
    }

    fn of(self, is_v6: bool) -> Policy {
        if self.0 >> u32::from(is_v6) & 1 == Policy::Ports as u32 { Policy::Ports } else { Policy::Addresses }
    }
}

/// Returns the number of the flow of an Ethernet frame of IP. An ICMP error belongs to the flow of the packet that it quotes, so
/// that it reaches the station that sent that.
pub(crate) fn flow(frame: &[u8], policies: Policies, seed: u64) -> u64 {
    let packet = frame.get(HEADER..).unwrap_or_default();
    let is_v6 = frame.get(HEADER - 2..HEADER) == Some(&ethernet::IPV6);
    let read = if is_v6 { Flow::of_ipv6 } else { Flow::of_ipv4 };
    let quoted = if is_v6 { quoted_by_icmpv6(packet) } else { quoted_by_icmp(packet) };
    let quoted = quoted.and_then(|quoted| Some((quoted, read(quoted)?)));
    let Some((packet, flow)) = quoted.or_else(|| Some((packet, read(packet)?))) else { return seed };
    let policy = policies.of(is_v6);
    let (from, to) = match policy {
        Policy::Addresses => (0, 0),
        Policy::Ports => flow.ports.unwrap_or_default(),
    };
    let rest = match policy {
        Policy::Ports => flow.protocol.into(),
        Policy::Addresses if is_v6 => label(packet),
        Policy::Addresses => 0,
    };
    let ends = [(bits(flow.source), from), (bits(flow.destination), to)];
    let [low, high] = if ends[0] <= ends[1] { ends } else { [ends[1], ends[0]] };
    let ports = u64::from(low.1) << 48 | u64::from(high.1) << 32 | u64::from(rest);
    [low.0, high.0].into_iter().flat_map(halves).chain([ports]).fold(seed, mix)
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// The flow label of an IPv6 packet.
fn label(packet: &[u8]) -> u32 {
    packet.first_chunk().map_or(0, |word| u32::from_be_bytes(*word) & 0xF_FFFF)
}

/// The packet that an ICMP error quotes (RFC 792).
fn quoted_by_icmp(packet: &[u8]) -> Option<&[u8]> {
    let header = Ipv4Header::first(packet)?;
    if header.protocol() != protocol::ICMP || header.is_fragment() {
        return None;
    }
    let (icmp, quoted) = packet.get(header.header_len()..)?.split_first_chunk::<ICMP_HEADER>()?;
    ICMP_ERRORS.contains(&icmp[0]).then_some(quoted)
}

/// The packet that an ICMPv6 error quotes: one whose type has the uppermost bit clear (RFC 4443, 2.1).
fn quoted_by_icmpv6(packet: &[u8]) -> Option<&[u8]> {
    let (header, payload) = packet.split_first_chunk::<IPV6_HEADER>()?;
    let (icmp, quoted) = payload.split_first_chunk::<ICMP_HEADER>()?;
    (header[6] == protocol::ICMPV6 && icmp[0] & 0x80 == 0).then_some(quoted)
}

/// The lower half first.
#[expect(clippy::cast_possible_truncation, reason = "it is half of it")]
fn halves(address: u128) -> [u64; 2] {
    [address as u64, (address >> 64) as u64]
}

/// A product carries upwards only, so its halves are joined.
fn mix(state: u64, word: u64) -> u64 {
    /// 2^64 over the golden ratio, made odd.
    const FACTOR: u128 = 0x9E37_79B9_7F4A_7C15;
    let [low, high] = halves(u128::from(state ^ word ^ 0xD6E8_FEB8_6659_FD93) * FACTOR);
    low ^ high.rotate_left(32)
}

/// Types of ICMP messages that quote a packet: unreachable, source quench, redirect, time exceeded, parameter problem.
const ICMP_ERRORS: [u8; 5] = [3, 4, 5, 11, 12];
/// Bytes of an error before the packet that it quotes, of either family.
const ICMP_HEADER: usize = 8;
const IPV6_HEADER: usize = 40;
