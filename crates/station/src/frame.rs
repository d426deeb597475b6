//! Headers of frames that a station sends.

use std::net::{Ipv4Addr, Ipv6Addr};
use wire::{Ipv4Mut, Sum, protocol};

/// Bytes of the shortest frame, without check sequence (IEEE 802.3, 3.2.8).
const SHORTEST: usize = 60;
const ETHERNET: usize = 14;
const IPV4: usize = 20;
const IPV6: usize = 40;
/// Where the checksum of an ICMP message is.
const CHECKSUM: usize = 2;

/// Begins a frame.
pub(crate) fn ethernet(frame: &mut Vec<u8>, to: [u8; 6], from: [u8; 6], ether_type: u16) {
    frame.clear();
    frame.extend(to);
    frame.extend(from);
    frame.extend(ether_type.to_be_bytes());
}

/// Pads a frame.
pub(crate) fn pad(frame: &mut Vec<u8>) {
    frame.resize(frame.len().max(SHORTEST), 0);
}

/// Appends an ICMP message behind an IPv4 header without options; false if it is too long.
pub(crate) fn icmp(frame: &mut Vec<u8>, from: Ipv4Addr, to: Ipv4Addr, service: u8, message: [&[u8]; 2]) -> bool {
    let len = IPV4 + message[0].len() + message[1].len();
    let Ok(total) = u16::try_from(len) else { return false };
    let [high, low] = total.to_be_bytes();
    // Never a fragment, so the identification means nothing (RFC 6864, 4.1); time to live 64 (RFC 1700).
    frame.extend([0x45, service, high, low, 0, 0, 0x40, 0, 64, protocol::ICMP, 0, 0]);
    frame.extend(from.octets());
    frame.extend(to.octets());
    frame.extend(message[0]);
    frame.extend(message[1]);
    if let Some(mut ip) = frame.get_mut(ETHERNET..).and_then(Ipv4Mut::parse) {
        ip.fill_checksum();
    }
    fill_checksum(frame, ETHERNET + IPV4, Sum::default());
    pad(frame);
    true
}

/// Appends an ICMPv6 message behind an IPv6 header; false if it is too long.
pub(crate) fn icmpv6(frame: &mut Vec<u8>, from: Ipv6Addr, to: Ipv6Addr, hop_limit: u8, message: [&[u8]; 2]) -> bool {
    let Ok(len) = u16::try_from(message[0].len() + message[1].len()) else { return false };
    let [high, low] = len.to_be_bytes();
    frame.extend([0x60, 0, 0, 0, high, low, protocol::ICMPV6, hop_limit]);
    frame.extend(from.octets());
    frame.extend(to.octets());
    frame.extend(message[0]);
    frame.extend(message[1]);
    fill_checksum(frame, ETHERNET + IPV6, Sum::pseudo_ipv6(from, to, protocol::ICMPV6, len.into()));
    pad(frame);
    true
}

/// Writes the checksum of the message from byte `at` on, before padding.
fn fill_checksum(frame: &mut [u8], at: usize, pseudo: Sum) {
    let Some(message) = frame.get_mut(at..).filter(|message| message.len() >= CHECKSUM + 2) else { return };
    message[CHECKSUM..CHECKSUM + 2].fill(0);
    let sum = pseudo.and(message).checksum();
    message[CHECKSUM..CHECKSUM + 2].copy_from_slice(&sum.to_be_bytes());
}
