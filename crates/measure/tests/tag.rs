//! Tags come back as written, and checksums stay as right as they were, by sums taken a byte at a time.

use measure::{Coverage, End, Error, Kind, Tag, TagWriter};
use proptest::prelude::*;

/// The sum of 16-bit words modulo 65535, of bytes that begin at a word.
fn residue(bytes: &[u8]) -> u64 {
    let shifted = |(n, byte): (usize, &u8)| u64::from(*byte) << if n.is_multiple_of(2) { 8 } else { 0 };
    bytes.iter().enumerate().map(shifted).sum::<u64>() % 0xffff
}

/// A frame of UDP behind VLAN tags, whose IP packet ends where the frame does.
fn tagged(vlans: usize, is_v4: bool, size: usize) -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend([0x81, 0, 0, 7].repeat(vlans));
    let ip = size - frame.len() - 2;
    let [.., high, low] = if is_v4 { ip } else { ip - 40 }.to_be_bytes();
    frame.extend(if is_v4 { vec![0x08, 0, 0x45, 0, high, low] } else { vec![0x86, 0xdd, 0x60, 0, 0, 0, high, low] });
    frame.resize(size, 0);
    frame
}

proptest! {
    /// Tags of VLANs are taken off the shortest frames, and what is left is padded, with anything but a whole tag.
    #[test]
    fn a_tag_is_found_in_front_of_padding(
        off in 0..3_usize, more in 0..2_usize, size in 60..64_usize, short: bool, stream in prop_oneof![Just(0x5246), Just(0x5253), any::<u16>()],
        number in prop_oneof![Just(0x5246_0007), Just(0x5253_0007), Just(0x5246_5246), any::<u32>()],
        due in prop_oneof![Just(0x5246_0000_0000), Just(0x5253_0007), Just(0x5246_5253_0007), 0..1_u64 << 48], fill: u8,
    ) {
        let kind = if short { Kind::Short } else { Kind::Full };
        let writer = TagWriter::new(kind, stream, 60, 42, None).unwrap();
        let padded = |mut frame: Vec<u8>| {
            frame.drain(12..12 + 4 * off);
            frame.resize(frame.len().max(60), fill);
            frame
        };
        let [mut frame, mut end] = [(); 2].map(|()| tagged(off + more, true, size));
        writer.write(&mut frame, number, due);
        writer.write_end(&mut end, 1000);
        let (frame, end) = (padded(frame), padded(end));
        let tag = Tag { stream, number, due: (!short).then_some(due) };
        prop_assert_eq!(Tag::find(&frame), Some(tag));
        let sent = End { stream, sent: 1000, bits: if short { 32 } else { 48 } };
        prop_assert_eq!((Tag::find(&end), End::find(&end)), (None, Some(sent)));
        // What is cut off has none, wherever, but by chance.
        for length in 0..size - 4 * off {
            let cut = &frame[..length];
            prop_assert_eq!((Tag::find(cut), End::find(cut)), (Tag::parse(cut), End::parse(cut)));
        }
    }

    /// Tags behind the packets, as those of captures are.
    #[test]
    fn a_tag_behind_a_packet_is_found(short: bool, number: u32, due in 0..1_u64 << 48, room in 14..18_usize, fill: u8) {
        let kind = if short { Kind::Short } else { Kind::Full };
        let mut frame = tagged(0, true, 60 - room);
        frame.resize(60, fill);
        TagWriter::new(kind, 7, 60, 42, None).unwrap().write(&mut frame, number, due);
        prop_assert_eq!(Tag::find(&frame), Some(Tag { stream: 7, number, due: (!short).then_some(due) }));
    }

    /// Marks of all kinds in front of a tag, wherever and however many, and in each of its fields.
    #[test]
    fn nothing_in_front_of_a_tag_is_a_part_of_it(
        front in prop::collection::vec(prop_oneof![Just(*b"RF"), Just(*b"RS"), Just(*b"RE"), Just(*b"Re"), any::<[u8; 2]>()], 30),
        fields in prop::collection::vec(prop_oneof![Just(*b"RF"), Just(*b"RS"), Just(*b"RE"), Just(*b"Re"), any::<[u8; 2]>()], 6),
        odd in 0..2_usize, short: bool,
    ) {
        let word = |at: usize| u64::from(u16::from_be_bytes(fields[at]));
        let (stream, number) = (u16::from_be_bytes(fields[0]), u32::try_from(word(1) << 16 | word(2)).unwrap());
        let due = word(3) << 32 | word(4) << 16 | word(5);
        let kind = if short { Kind::Short } else { Kind::Full };
        let writer = TagWriter::new(kind, stream, 60, 42, None).unwrap();
        let (mut frame, mut end) = (front.concat()[odd..].to_vec(), front.concat()[odd..].to_vec());
        writer.write(&mut frame, number, due);
        writer.write_end(&mut end, due);
        let tag = Tag { stream, number, due: (!short).then_some(due) };
        prop_assert_eq!((Tag::parse(&frame), End::parse(&frame)), (Some(tag), None));
        let bits = if short { 32 } else { 48 };
        let sent = End { stream, sent: due % (1 << bits), bits };
        prop_assert_eq!((Tag::parse(&end), End::parse(&end)), (None, Some(sent)));
    }

    #[test]
    fn what_is_written_is_read(stream: u16, number: u32, due in 0..1_u64 << 60, len in 0..80_usize, short: bool, fill: u8) {
        let kind = if short { Kind::Short } else { Kind::Full };
        let mut frame = vec![fill; len];
        let before = frame.clone();
        TagWriter::new(kind, stream, 60, 42, None).unwrap().write(&mut frame, number, due);
        let Some(at) = len.checked_sub(kind.bytes()) else {
            prop_assert_eq!(frame, before);
            return Ok(());
        };
        prop_assert_eq!(&frame[..at], &before[..at]);
        let due = (!short).then_some(due % (1 << 48));
        prop_assert_eq!(Tag::parse(&frame), Some(Tag { stream, number, due }));
        prop_assert_eq!(Tag::parse(&frame[..len - 1]), None);
        // By hand.
        let due = due.map_or(Vec::new(), |due| due.to_be_bytes()[2..].to_vec());
        let mark = if short { b"RS" } else { b"RF" };
        prop_assert_eq!(&frame[at..], &[&due[..], &number.to_be_bytes(), mark, &stream.to_be_bytes()].concat()[..]);
    }

    #[test]
    fn an_end_is_no_tag_and_says_how_many(stream: u16, sent in 0..1_u64 << 48, len in 0..80_usize, short: bool, near in 0..1_u64 << 31) {
        let kind = if short { Kind::Short } else { Kind::Full };
        let mut frame = vec![0x52; len];
        TagWriter::new(kind, stream, 60, 42, None).unwrap().write_end(&mut frame, sent);
        prop_assert_eq!(Tag::parse(&frame), None);
        if len < kind.bytes() {
            prop_assert_eq!(End::parse(&frame), None);
            return Ok(());
        }
        let end = End::parse(&frame).unwrap();
        let bits = if short { 32 } else { 48 };
        prop_assert_eq!(end, End { stream, sent: sent % (1 << bits), bits });
        prop_assert_eq!(end.sent(sent.saturating_sub(near)), sent);
        if !short {
            // What is not written as an end is none.
            frame[len - 5] ^= 1;
            prop_assert_eq!(End::parse(&frame), None);
        }
    }

    #[test]
    fn many_are_written_as_one_by_one(short: bool, first: u32, due in prop::collection::vec(any::<u64>(), 0..40), frames in 0..40_usize) {
        let kind = if short { Kind::Short } else { Kind::Full };
        let writer = TagWriter::new(kind, 0xffff, 60, 42, None).unwrap();
        for first in [first, u32::MAX - 5] {
            let (mut one, mut many) = (vec![[0; 60]; frames], vec![[0; 60]; frames]);
            for ((frame, due), number) in one.iter_mut().zip(&due).zip(0..) {
                writer.write(frame, first.wrapping_add(number), *due);
            }
            writer.write_all(many.iter_mut().map(|frame| &mut frame[..]), first, &due);
            prop_assert_eq!(one, many);
        }
    }

    /// Frames of all lengths with zeros under their tags, and frames that keep what they had.
    #[test]
    fn over_zeros_many_are_written_as_one_by_one(
        short: bool, first: u32, due in prop::collection::vec(any::<u64>(), 0..40), len in 0..90_usize, from in 20..36_usize,
        checksum in prop_oneof![4 => any::<u16>(), 1 => Just(0), 1 => Just(0xffff)], zero_is_none: bool, zero_as_ones: bool, fill: u8,
    ) {
        let kind = if short { Kind::Short } else { Kind::Full };
        let coverage = Coverage { checksum_at: from + 6, from, zero_is_none, zero_as_ones };
        let writer = TagWriter::new(kind, 0x1234, 60, 42, Some(coverage)).unwrap();
        let frame = |n: usize| {
            let mut frame = vec![fill; len + n % 2];
            let at = frame.len().saturating_sub(kind.bytes());
            frame[at..].fill(0);
            if let Some(place) = frame.get_mut(from + 6..from + 8) {
                place.copy_from_slice(&checksum.to_be_bytes());
            }
            frame
        };
        let frames: Vec<_> = (0..due.len()).map(frame).collect();
        // What the checksum lies in or behind is no frame.
        prop_assume!(len.saturating_sub(kind.bytes()) >= from + 8 || len < kind.bytes());
        let (mut one, mut many) = (frames.clone(), frames.clone());
        for ((frame, due), number) in one.iter_mut().zip(&due).zip(0..) {
            writer.write(frame, first.wrapping_add(number), *due);
        }
        writer.write_all_over_zeros(many.iter_mut().map(|frame| &mut frame[..]), first, &due, None);
        prop_assert_eq!(&one, &many);
        if !zero_is_none {
            // Once more over tags of others.
            let numbers: Vec<_> = due.iter().map(|due| due.wrapping_mul(3)).collect();
            writer.write_all_over_zeros(many.iter_mut().map(|frame| &mut frame[..]), first ^ 0x55, &numbers, Some(checksum));
            writer.write_all_over_zeros(many.iter_mut().map(|frame| &mut frame[..]), first, &due, Some(checksum));
            prop_assert_eq!(one, many);
        }
    }

    #[test]
    fn a_right_checksum_stays_right(
        mut frame in prop::collection::vec(any::<u8>(), 70..100), number: u32, due in 0..1_u64 << 48, short: bool,
        from in 30..36_usize, twice: bool,
    ) {
        let checksum_at = from + 6;
        frame[checksum_at..checksum_at + 2].fill(0);
        let sum = residue(&frame[from..]);
        let checksum = u16::try_from(0xffff - sum).unwrap();
        frame[checksum_at..checksum_at + 2].copy_from_slice(&checksum.to_be_bytes());
        prop_assert_eq!(residue(&frame[from..]), 0);
        let coverage = Coverage { checksum_at, from, zero_is_none: true, zero_as_ones: true };
        let kind = if short { Kind::Short } else { Kind::Full };
        let writer = TagWriter::new(kind, 9, frame.len(), from + 8, Some(coverage)).unwrap();
        for number in (number..).take(1 + usize::from(twice)) {
            writer.write(&mut frame, number, due);
            prop_assert_eq!(residue(&frame[from..]), 0);
            prop_assert!(frame[checksum_at..checksum_at + 2] != [0, 0], "0 would say that there is none");
        }
    }
}

/// A tag for each of 65,535 sums, each beside the checksum computed anew.
#[test]
fn a_sum_of_zero_is_written_as_its_protocol_has_it() {
    for (zero_as_ones, over_zeros, kind) in
        [(false, false, Kind::Short), (false, true, Kind::Full), (true, false, Kind::Full), (true, true, Kind::Short)]
    {
        let coverage = Coverage { checksum_at: 50, from: 34, zero_is_none: false, zero_as_ones };
        let writer = TagWriter::new(kind, 1, 80, 54, Some(coverage)).unwrap();
        let mut clean = [0x11; 80];
        clean[80 - kind.bytes()..].fill(0);
        clean[50..52].fill(0);
        let checksum = u16::try_from(0xffff - residue(&clean[34..])).unwrap();
        clean[50..52].copy_from_slice(&checksum.to_be_bytes());
        let mut zeros = 0;
        for number in 0..65_535 {
            let mut frame = clean;
            if over_zeros {
                writer.write_all_over_zeros([&mut frame[..]].into_iter(), number, &[7], None);
            } else {
                writer.write(&mut frame, number, 7);
            }
            let written = u16::from_be_bytes([frame[50], frame[51]]);
            frame[50..52].fill(0);
            let sum = 0xffff - residue(&frame[34..]);
            let is_zero = sum == 0xffff;
            let expected = if is_zero && !zero_as_ones { 0 } else { sum };
            assert_eq!(u64::from(written), expected, "{kind:?}, number {number}");
            zeros += u32::from(is_zero);
        }
        assert_eq!(zeros, 1, "each sum once");
    }
}

#[test]
fn no_checksum_stays_none() {
    let coverage = Coverage { checksum_at: 40, from: 34, zero_is_none: true, zero_as_ones: true };
    let mut frame = [0; 60];
    TagWriter::new(Kind::Full, 1, 60, 42, Some(coverage)).unwrap().write(&mut frame, 7, 8);
    assert_eq!(frame[40..42], [0, 0]);
    assert_eq!(Tag::parse(&frame).unwrap().number, 7);
    // Not in the frame: left alone.
    let coverage = Coverage { checksum_at: 59, from: 34, zero_is_none: false, zero_as_ones: false };
    TagWriter::new(Kind::Full, 1, 60, 42, Some(coverage)).unwrap().write(&mut frame, 8, 8);
    assert_eq!(Tag::parse(&frame).unwrap().number, 8);
}

#[test]
fn the_least_size_is_named() {
    for (kind, least) in [(Kind::Short, 50), (Kind::Full, 56)] {
        assert!(TagWriter::new(kind, 0, least, 42, None).is_ok());
        let error = TagWriter::new(kind, 0, least - 1, 42, None).unwrap_err();
        assert!(matches!(error, Error::TooSmall { .. }));
        assert!(error.to_string().ends_with(&format!("take {least} or more")), "{error}");
    }
    // A 60-byte UDP frame with a VLAN tag has room for the full one.
    assert!(TagWriter::new(Kind::Full, 0, 60, 46, None).is_ok());
}

#[test]
fn times_wrap() {
    let tag = Tag { stream: 0, number: 0, due: Some((1 << 48) - 10) };
    assert_eq!(tag.age((5 << 48) + 7), Some(17));
    assert_eq!(Tag { due: None, ..tag }.age(7), None);
}

#[test]
fn places_outside_of_the_frame_are_left_alone() {
    for checksum_at in [59, 60, usize::MAX - 1, usize::MAX] {
        let coverage = Coverage { checksum_at, from: usize::MAX, zero_is_none: false, zero_as_ones: false };
        let mut frame = [0; 60];
        TagWriter::new(Kind::Full, 0, 60, 42, Some(coverage)).unwrap().write(&mut frame, 1, 2);
        assert_eq!(frame[..46], [0; 46]);
    }
    assert!(TagWriter::new(Kind::Full, 0, 60, usize::MAX, None).unwrap_err().to_string().contains("take "));
}
