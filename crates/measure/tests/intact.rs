//! Frames of all kinds that the crate `wire` has summed up by itself, and one bit of them changed.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use measure::is_intact;
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

/// A frame of UDP with tags, payload, and padding behind it; and where its datagram begins and ends.
fn frame(v4: bool, tags: usize, payload: &[u8], padding: usize) -> (Vec<u8>, [usize; 2]) {
    let length = u16::try_from(8 + payload.len()).unwrap();
    let mut frame = vec![2; 12];
    (0..tags)
        .for_each(|tag| frame.extend([if tag == 0 && tags == 2 { [0x88, 0xa8] } else { [0x81, 0] }, [0, 5]].concat()));
    let addresses: Vec<u8> = (1..=if v4 { 8 } else { 32 }).collect();
    if v4 {
        frame.extend([8, 0, 0x45, 0]);
        frame.extend((20 + length).to_be_bytes());
        frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    } else {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        frame.extend(length.to_be_bytes());
        frame.extend([17, 64]);
    }
    frame.extend(&addresses);
    let begin = frame.len();
    let mut datagram = [&[0xc0, 0, 0, 9][..], &length.to_be_bytes(), &[0, 0], payload].concat();
    let pseudo = [&addresses[..], &[0, 17], &length.to_be_bytes(), &datagram].concat();
    datagram[6..8].copy_from_slice(&checksum(&pseudo).to_be_bytes());
    frame.extend(&datagram);
    let end = frame.len();
    frame.resize(end + padding, 0x77);
    (frame, [begin, end])
}

proptest! {
    #[test]
    fn one_bit_makes_the_difference(
        v4: bool, tags in 0..3_usize, payload in prop::collection::vec(any::<u8>(), 0..120), padding in 0..20_usize, bit: u16, cut in any::<[u16; 2]>(),
    ) {
        let (whole, [begin, end]) = frame(v4, tags, &payload, padding);
        let in_pieces = |frame: &[u8]| {
            // All headers are in the first.
            let mut cuts = cut.map(|cut| begin + 8 + usize::from(cut) % (frame.len() - begin - 7));
            cuts.sort_unstable();
            is_intact(&frame[..cuts[0]], [&frame[cuts[0]..cuts[1]], &frame[cuts[1]..]])
        };
        prop_assert!(is_intact(&whole, []) && in_pieces(&whole));
        let mut changed = whole.clone();
        let at = begin + usize::from(bit / 8) % (end - begin);
        changed[at] ^= 1 << (bit % 8);
        // A checksum of 0 says that there is none, and another length may be one that cannot be checked.
        let (checksum_at, length_at) = (begin + 6, begin + 4);
        if changed[checksum_at..checksum_at + 2] != [0, 0] && !(length_at..checksum_at).contains(&at) {
            prop_assert!(!is_intact(&changed, []) && !in_pieces(&changed));
        }
        let mut behind = whole.clone();
        behind[end..].iter_mut().for_each(|byte| *byte ^= 0x55);
        prop_assert!(is_intact(&behind, []));
        behind[checksum_at..checksum_at + 2].fill(0);
        prop_assert!(is_intact(&behind, []), "there is no checksum");
        prop_assert!((length_at..checksum_at).contains(&at) || is_intact(&changed[..end - 1], []), "what is cut off cannot be checked");
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
    fn what_is_no_whole_datagram_of_udp_is_not_checked(payload in prop::collection::vec(any::<u8>(), 20..60)) {
        let (whole, [begin, _]) = frame(true, 0, &payload, 0);
        for (at, byte) in [(14, 0x46), (20, 0x20), (21, 1), (23, 6), (12, 9)] {
            let mut other = whole.clone();
            other[at] = byte;
            other[begin + 9] ^= 0xff;
            prop_assert!(is_intact(&other, []), "byte {}", at);
        }
    }
}
