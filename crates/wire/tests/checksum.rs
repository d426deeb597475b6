//! The checksum against the examples of the RFCs, and against sums by the book.

#![expect(clippy::unwrap_used, reason = "tests")]

use proptest::collection::vec;
use proptest::prelude::*;
use wire::{Sum, checksum};

/// RFC 1071 by the book: big-endian words, an odd byte being an upper half, carries added until none is left, complemented.
fn by_the_book(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0)));
    let mut sum: u64 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap()
}

#[test]
fn rfc_1071_section_3() {
    let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
    assert_eq!(Sum::of(&bytes).folded(), 0xddf2);
    assert_eq!(Sum::of(&bytes[..3]).and(&bytes[3..4]).and(&bytes[4..]).folded(), 0xddf2, "in pieces");
}

#[test]
fn rfc_1624_section_4() {
    assert_eq!(checksum::update_u16(0xdd2f, 0x5555, 0x3285), 0x0000);
}

#[test]
fn pseudo_headers_are_those_of_the_rfcs() {
    let (source, destination) = ([192, 0, 2, 1], [198, 51, 100, 2]);
    let header = [&source[..], &destination, &[0, 17, 1, 2]].concat();
    assert_eq!(Sum::pseudo_ipv4(source.into(), destination.into(), 17, 0x0102).checksum(), by_the_book(&header));
    let (source, destination): ([u8; 16], [u8; 16]) = ([7; 16], [0xfe; 16]);
    let header = [&source[..], &destination, &[0, 1, 2, 3, 0, 0, 0, 58]].concat();
    let sum = Sum::pseudo_ipv6(source.into(), destination.into(), 58, 0x0001_0203);
    assert_eq!(sum.checksum(), by_the_book(&header));
}

#[test]
fn sums_of_the_longest_packets_carry_right() {
    for len in [65_534, 65_535] {
        let bytes = vec![0xff; len];
        assert_eq!(Sum::of(&bytes).checksum(), by_the_book(&bytes));
        assert_eq!(Sum::of(&[1]).and(&bytes).checksum(), by_the_book(&[&[1], &bytes[..]].concat()));
    }
}

proptest! {
    #[test]
    fn pieces_of_any_length_sum_as_a_whole(pieces in vec(vec(any::<u8>(), 0..70), 0..6)) {
        let sum = pieces.iter().fold(Sum::default(), |sum, piece| sum.and(piece));
        prop_assert_eq!(sum.checksum(), by_the_book(&pieces.concat()));
        prop_assert_eq!(Sum::of(&pieces.concat()).checksum(), by_the_book(&pieces.concat()));
    }

    #[test]
    fn right_is_what_sums_up_to_all_ones(mut bytes in vec(any::<u8>(), 2..80), wrong in any::<u16>()) {
        bytes[..2].fill(0);
        prop_assume!(bytes.iter().any(|byte| *byte != 0));
        let right = by_the_book(&bytes);
        bytes[..2].copy_from_slice(&right.to_be_bytes());
        prop_assert!(Sum::of(&bytes).is_right());
        bytes[..2].copy_from_slice(&wrong.to_be_bytes());
        // 0xffff is the other zero.
        prop_assert_eq!(Sum::of(&bytes).is_right(), wrong == right || wrong == 0xffff && right == 0);
    }

    /// What no sum of a header can be is left out: one of zeros alone.
    #[test]
    fn an_update_agrees_with_summing_anew(mut bytes in vec(any::<u8>(), 6..40), new in any::<u32>(), at in any::<usize>()) {
        bytes[0] = 0x45;
        let old = by_the_book(&bytes);
        let words = bytes.len() / 2 - 2;
        let at = if words == 0 { 2 } else { 2 + at % words * 2 }.min(bytes.len() / 2 * 2 - 4);
        prop_assume!(at > 0);
        let field = u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
        bytes[at..at + 4].copy_from_slice(&new.to_be_bytes());
        prop_assert_eq!(checksum::update_u32(old, field, new), by_the_book(&bytes));
        let word = u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let before = by_the_book(&bytes);
        bytes[at..at + 2].copy_from_slice(&[0xab, 0xcd]);
        prop_assert_eq!(checksum::update_u16(before, word, 0xabcd), by_the_book(&bytes));
    }
}
