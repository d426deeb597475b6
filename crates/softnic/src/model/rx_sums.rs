//! What the receive path finds out about a frame's checksums (datasheet 7.1.11), as status and error bits of quadword 1.

use super::checksum::{self, Transport};
use super::rss::{Flow, packet_type};

/// UDPCS: a UDP checksum was worked out.
const UDPCS: u64 = 1 << 4;
/// L4CS: the checksum of TCP, UDP or SCTP was checked.
const L4CS: u64 = 1 << 5;
/// IPCS: the checksum of the IPv4 header was checked.
const IPCS: u64 = 1 << 6;
/// UDPV: the first fragment of a UDP datagram that has a checksum.
const UDPV: u64 = 1 << 10;
const L4E: u64 = 1 << 30;
const IPE: u64 = 1 << 31;

/// The protocol number of the transport that a packet type names.
fn transport(packet_type: u32) -> Option<(Transport, u8)> {
    match packet_type & (packet_type::TCP | packet_type::UDP | packet_type::SCTP) {
        packet_type::TCP => Some((Transport::Tcp, 6)),
        packet_type::UDP => Some((Transport::Udp, 17)),
        packet_type::SCTP => Some((Transport::Sctp, 132)),
        _ => None,
    }
}

/// UDP over IPv4, as generators make it, and the bits of such a frame that is right.
pub(super) const GENERATED: u32 = packet_type::IPV4 | packet_type::UDP;
pub(super) const GENERATED_RIGHT: u64 = IPCS | L4CS | UDPCS;

/// The bits of any frame.
pub(super) fn check(frame: &[u8], flow: &Flow) -> u64 {
    let mut bits = 0;
    if flow.packet_type & packet_type::IPV4 != 0 {
        bits |= IPCS;
        if checksum::sum(&frame[flow.network()..flow.transport()]) != 0xFFFF {
            bits |= IPE;
        }
        if flow.fragment {
            return bits | udp_fragment(frame, flow);
        }
    }
    if let Some((kind, protocol)) = transport(flow.packet_type)
        && let Some(packet) = payload(frame, flow).filter(|packet| packet.len() >= kind.header())
        && let Some(right) = transport_right(frame, packet, flow, kind, protocol)
    {
        bits |= L4CS | if kind == Transport::Udp { UDPCS } else { 0 } | if right { 0 } else { L4E };
    }
    bits
}

/// What the IP header says is its payload, if the frame has all of it: padding does not count.
fn payload<'f>(frame: &'f [u8], flow: &Flow) -> Option<&'f [u8]> {
    let word = |at: usize| frame.get(at..at + 2).map(|word| usize::from(u16::from_be_bytes([word[0], word[1]])));
    let end = if flow.packet_type & packet_type::IPV4 != 0 {
        flow.network() + word(flow.network() + 2)?
    } else {
        flow.network() + 40 + word(flow.network() + 4)?
    };
    frame.get(flow.transport()..end)
}

/// Whether the checksum of a transport packet is right; `None` if it has none, or one that cannot be checked.
fn transport_right(frame: &[u8], packet: &[u8], flow: &Flow, kind: Transport, protocol: u8) -> Option<bool> {
    let at = kind.checksum_at();
    if kind == Transport::Sctp {
        return Some(packet[at..at + 4] == checksum::crc32c(packet));
    }
    if kind == Transport::Udp && packet[at..at + 2] == [0, 0] || flow.routed {
        return None;
    }
    let sum =
        checksum::add(checksum::sum(packet), checksum::pseudo_header(flow.addresses(frame), protocol, packet.len()));
    Some(sum == 0xFFFF)
}

/// Fragments of UDP over IPv4: the first tells whether the datagram has a checksum.
fn udp_fragment(frame: &[u8], flow: &Flow) -> u64 {
    if frame[flow.network() + 9] != 17 {
        return 0;
    }
    let offset = u16::from_be_bytes([frame[flow.network() + 6], frame[flow.network() + 7]]) & 0x1FFF;
    let at = flow.transport() + Transport::Udp.checksum_at();
    let summed = offset == 0 && frame.get(at..at + 2).is_some_and(|field| field != [0, 0]);
    UDPCS | if summed { UDPV } else { 0 }
}

/// Dword 1 without RSS (RXCSUM.PCSD 0, IPPCSE 1): for fragments of UDP over IPv4 the sum of the payload and the
/// identification.
pub(super) fn fragment(frame: &[u8], flow: &Flow) -> u32 {
    if !flow.fragment || flow.packet_type & packet_type::IPV4 == 0 || frame[flow.network() + 9] != 17 {
        return 0;
    }
    let identification = u16::from_be_bytes([frame[flow.network() + 4], frame[flow.network() + 5]]);
    let sum = payload(frame, flow).map_or(0, checksum::sum);
    u32::from(sum) << 16 | u32::from(identification)
}
