//! Frames by hand, checksums by the book, and functions run for as long as frames move.
#![allow(dead_code, reason = "each test uses some")]

use ethdev::in_process::Wire;
use lcore::{Function, Loop, Stop};
use std::net::SocketAddrV4;

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const SYN: u8 = 2;
pub(crate) const ACK: u8 = 16;

/// Runs a function until nothing moves.
pub(crate) fn run<F: Function>(function: F) -> F {
    let stop = Stop::new().unwrap();
    stop.request();
    Loop::new(&stop).run(function)
}

/// All frames that a port has sent.
pub(crate) fn collected(wire: &mut Wire) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| wire.collect()).collect()
}

/// RFC 1071 by the book.
pub(crate) fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap()
}

/// A frame with a TCP segment or UDP datagram in IPv4, all checksums right.
pub(crate) fn frame(
    macs: [[u8; 6]; 2],
    protocol: u8,
    from: SocketAddrV4,
    to: SocketAddrV4,
    (ttl, flags): (u8, u8),
    data: &[u8],
) -> Vec<u8> {
    let ports = [from.port().to_be_bytes(), to.port().to_be_bytes()].concat();
    let mut transport = ports;
    if protocol == TCP {
        transport.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, flags, 16, 0, 0, 0, 0, 0]);
    } else {
        transport.extend(u16::try_from(8 + data.len()).unwrap().to_be_bytes());
        transport.extend([0, 0]);
    }
    transport.extend(data);
    let mut frame = macs.concat();
    frame.extend([8, 0, 0x45, 0]);
    frame.extend(u16::try_from(20 + transport.len()).unwrap().to_be_bytes());
    frame.extend([0, 0, 0, 0, ttl, protocol, 0, 0]);
    frame.extend([from.ip().octets(), to.ip().octets()].concat());
    let sum = checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame.extend(transport);
    let sum = match transport_sum(&frame) {
        0 if protocol == UDP => 0xffff,
        sum => sum,
    };
    let at = if protocol == TCP { 50 } else { 40 };
    frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    frame
}

fn transport_sum(frame: &[u8]) -> u16 {
    let len = u16::try_from(frame.len() - 34).unwrap().to_be_bytes();
    checksum(&[&frame[26..34], &[0, frame[23]], &len, &frame[34..]].concat())
}

/// Whether both checksums of such a frame are right.
pub(crate) fn is_right(frame: &[u8]) -> bool {
    checksum(&frame[14..34]) == 0 && transport_sum(frame) == 0
}

/// Both ends of such a frame.
pub(crate) fn ends(frame: &[u8]) -> (SocketAddrV4, SocketAddrV4) {
    let end = |ip: usize, port: usize| {
        let ip = <[u8; 4]>::try_from(&frame[ip..ip + 4]).unwrap();
        SocketAddrV4::new(ip.into(), u16::from_be_bytes([frame[port], frame[port + 1]]))
    };
    (end(26, 34), end(30, 36))
}

/// An ARP request of `asks` for `address`.
pub(crate) fn arp_request(asks: ([u8; 6], [u8; 4]), address: [u8; 4]) -> Vec<u8> {
    [&[0xff; 6][..], &asks.0, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &asks.0, &asks.1, &[0; 6], &address].concat()
}

/// The reply to it of `mac`.
pub(crate) fn arp_reply(asks: ([u8; 6], [u8; 4]), address: [u8; 4], mac: [u8; 6]) -> Vec<u8> {
    [&asks.0[..], &mac, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 2], &mac, &address, &asks.0, &asks.1].concat()
}
