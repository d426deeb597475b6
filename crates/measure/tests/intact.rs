//! Frames of all kinds that the crate `wire` has summed up by itself, and one bit of them changed.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use measure::{Checked, check, is_intact};
use proptest::prelude::*;

/// The complement of the sum of RFC 1071, a byte at a time.
fn checksum(bytes: &[u8]) -> u16 {
    let shifted = |(n, byte): (usize, &u8)| u64::from(*byte) << if n.is_multiple_of(2) { 8 } else { 0 };
    let residue = bytes.iter().enumerate().map(shifted).sum::<u64>() % 0xffff;
    match u16::try_from(0xffff - residue).unwrap() {
        0 => 0xffff,
        sum => sum,
    }
}

const UDP: u8 = 17;
const TCP: u8 = 6;
/// Over IPv6 it stands for ICMPv6.
const ICMP: u8 = 1;

/// Bytes of a protocol's header, and where in it its checksum is.
fn header(protocol: u8) -> (usize, usize) {
    match protocol {
        UDP => (8, 6),
        TCP => (20, 16),
        _ => (8, 2),
    }
}

/// Writes the checksum of a header of IPv4 that begins here.
fn sum_up(packet: &mut [u8]) {
    packet[10..12].fill(0);
    let sum = checksum(&packet[..usize::from(packet[0] & 15) * 4]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// A frame of a protocol with tags, payload, and padding behind it; and where its datagram begins and ends.
fn frame(v4: bool, protocol: u8, tags: usize, payload: &[u8], padding: usize) -> (Vec<u8>, [usize; 2]) {
    let (header, checksum_at) = header(protocol);
    let protocol = if protocol == ICMP && !v4 { 58 } else { protocol };
    let length = u16::try_from(header + payload.len()).unwrap();
    let mut frame = vec![2; 12];
    (0..tags)
        .for_each(|tag| frame.extend([if tag == 0 && tags == 2 { [0x88, 0xa8] } else { [0x81, 0] }, [0, 5]].concat()));
    let addresses: Vec<u8> = (1..=if v4 { 8 } else { 32 }).collect();
    if v4 {
        frame.extend([8, 0, 0x45, 0]);
        frame.extend((20 + length).to_be_bytes());
        frame.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
        frame.extend(&addresses);
        let header = frame.len() - 20;
        sum_up(&mut frame[header..]);
    } else {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        frame.extend(length.to_be_bytes());
        frame.extend([protocol, 64]);
        frame.extend(&addresses);
    }
    let begin = frame.len();
    let mut datagram: Vec<u8> = (0xc0..).take(header).chain(payload.iter().copied()).collect();
    if protocol == UDP {
        datagram[4..6].copy_from_slice(&length.to_be_bytes());
    }
    datagram[checksum_at..checksum_at + 2].fill(0);
    let pseudo = [&addresses[..], &[0, protocol], &length.to_be_bytes()].concat();
    let pseudo = if protocol == ICMP { Vec::new() } else { pseudo };
    let sum = checksum(&[&pseudo[..], &datagram].concat());
    datagram[checksum_at..checksum_at + 2].copy_from_slice(&sum.to_be_bytes());
    frame.extend(&datagram);
    let end = frame.len();
    frame.resize(end + padding, 0x77);
    (frame, [begin, end])
}

proptest! {
    #[test]
    fn one_bit_makes_the_difference(
        v4: bool, protocol in prop_oneof![Just(UDP), Just(TCP), Just(ICMP)], tags in 0..3_usize, payload in prop::collection::vec(any::<u8>(), 0..120), padding in 0..20_usize, bit: u16, cut in any::<[u16; 2]>(),
    ) {
        let (whole, [begin, end]) = frame(v4, protocol, tags, &payload, padding);
        let (header, checksum_at) = header(protocol);
        let in_pieces = |frame: &[u8]| {
            // All headers are in the first.
            let mut cuts = cut.map(|cut| begin + header + usize::from(cut) % (frame.len() - begin - header + 1));
            cuts.sort_unstable();
            is_intact(&frame[..cuts[0]], [&frame[cuts[0]..cuts[1]], &frame[cuts[1]..]])
        };
        prop_assert!(is_intact(&whole, []) && in_pieces(&whole));
        prop_assert_eq!(check(&whole, []), Checked::Right);
        let mut changed = whole.clone();
        let at = begin + usize::from(bit / 8) % (end - begin);
        changed[at] ^= 1 << (bit % 8);
        // A checksum of 0 in UDP says that there is none, and another length may be one that cannot be checked.
        let checksum_at = begin + checksum_at;
        let is_length = protocol == UDP && (begin + 4..checksum_at).contains(&at);
        if (protocol != UDP || changed[checksum_at..checksum_at + 2] != [0, 0]) && !is_length {
            prop_assert!(!is_intact(&changed, []) && !in_pieces(&changed));
        }
        let mut behind = whole.clone();
        behind[end..].iter_mut().for_each(|byte| *byte ^= 0x55);
        prop_assert!(is_intact(&behind, []));
        // 0xffff says the same as 0 in a sum.
        prop_assume!(behind[checksum_at..checksum_at + 2] != [0xff; 2]);
        behind[checksum_at..checksum_at + 2].fill(0);
        prop_assert_eq!(is_intact(&behind, []), protocol == UDP, "there is no checksum");
        prop_assert!(is_length || is_intact(&changed[..end - 1], []), "what is cut off cannot be checked");
    }

    #[test]
    fn a_bit_of_a_header_makes_the_difference(protocol in prop_oneof![Just(UDP), Just(TCP), Just(ICMP), any::<u8>()], tags in 0..3_usize, payload in prop::collection::vec(any::<u8>(), 0..60), bit in 8..160_usize) {
        let (whole, [begin, _]) = frame(true, protocol, tags, &payload, 0);
        let expected = if [UDP, TCP, ICMP].contains(&protocol) { Checked::Right } else { Checked::Unread };
        prop_assert_eq!(check(&whole, []), expected);
        let mut changed = whole;
        let (at, bit) = (begin - 20 + bit / 8, 1 << (bit % 8));
        changed[at] ^= bit;
        prop_assert_eq!(check(&changed, []), Checked::Wrong);
        // Nor does another fault in the datagram make up for it.
        let other = begin + header(protocol).0 + usize::from(!at.is_multiple_of(2) ^ !(begin + header(protocol).0).is_multiple_of(2));
        if let Some(byte) = changed.get_mut(other) {
            *byte ^= bit;
            prop_assert_eq!(check(&changed, []), Checked::Wrong);
        }
    }

    #[test]
    fn anything_is_looked_at(first in prop::collection::vec(any::<u8>(), 0..90), more in prop::collection::vec(any::<u8>(), 0..90), kind in 0..4_usize) {
        let mut first = first;
        if first.len() > 24 {
            first[12..14].copy_from_slice([&[8, 0], &[0x86, 0xdd], &[0x81, 0], &[0, 0]][kind]);
            first[14] = 0x45;
            (first[20], first[23]) = (17, 17);
        }
        let _ = is_intact(&first, [&more[..]]);
    }

    #[test]
    fn what_is_no_whole_datagram_is_not_checked(payload in prop::collection::vec(any::<u8>(), 20..60), protocol in prop_oneof![Just(UDP), Just(TCP), Just(ICMP)]) {
        let (whole, [begin, _]) = frame(true, protocol, 0, &payload, 0);
        // SCTP, and ICMPv6 over IPv4.
        for (at, byte) in [(14, 0x46), (20, 0x20), (21, 1), (23, 132), (23, 58), (12, 9)] {
            let mut other = whole.clone();
            other[at] = byte;
            sum_up(&mut other[14..]);
            other[begin + 9] ^= 0xff;
            prop_assert!(is_intact(&other, []), "byte {}", at);
            prop_assert_eq!(check(&other, []), Checked::Unread, "byte {}", at);
        }
    }
}
