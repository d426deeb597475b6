//! Captures: what they hold and when, judged by a reader of the test's own; and damage, which is one clear error or the frames before it.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use stream::{Error, Replay, Timing};

/// A classic capture of frames, each with its time in fractions of a second.
fn classic(magic: u32, link: u32, frames: &[(u32, u32, &[u8])]) -> Vec<u8> {
    let mut bytes: Vec<u8> = [magic, 0x0004_0002, 0, 0, 65_535, link].into_iter().flat_map(u32::to_le_bytes).collect();
    for (seconds, fraction, data) in frames {
        let len = u32::try_from(data.len()).unwrap();
        bytes.extend([*seconds, *fraction, len, len].into_iter().flat_map(u32::to_le_bytes));
        bytes.extend(*data);
    }
    bytes
}

/// A block of pcapng.
fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let padding = &[0; 3][..body.len().next_multiple_of(4) - body.len()];
    let len = u32::try_from(12 + body.len() + padding.len()).unwrap().to_le_bytes();
    [&kind.to_le_bytes()[..], &len, body, padding, &len].concat()
}

/// A pcapng capture whose interface counts time in units of 2^-`exponent` seconds.
fn blocks(exponent: u8, frames: &[(u64, &[u8])]) -> Vec<u8> {
    let header = block(0x0A0D_0D0A, &[&[0x4D, 0x3C, 0x2B, 0x1A, 1, 0, 0, 0][..], &[0xFF; 8]].concat());
    let interface = block(1, &[1, 0, 0, 0, 0, 0, 4, 0, 9, 0, 1, 0, 0x80 | exponent, 0, 0, 0, 0, 0, 0, 0]);
    let mut bytes = [header, interface].concat();
    for (time, data) in frames {
        let len = u32::try_from(data.len()).unwrap();
        let (high, low) = (u32::try_from(time >> 32).unwrap(), u32::try_from(time & 0xFFFF_FFFF).unwrap());
        let head: Vec<u8> = [0, high, low, len, len].into_iter().flat_map(u32::to_le_bytes).collect();
        bytes.extend(block(6, &[&head[..], data].concat()));
    }
    bytes
}

fn read(bytes: &[u8], timing: Timing) -> Result<Replay, Error> {
    Replay::read("c.pcap", Cursor::new(bytes.to_vec()), timing)
}

fn due(replay: &Replay) -> Vec<u64> {
    replay.frames().map(|frame| frame.due_ns).collect()
}

#[test]
fn times_are_those_of_the_capture_or_scaled_or_none() {
    let frame = [7; 60];
    let frames =
        [(5, 999_999, &frame[..]), (6, 0, &frame), (6, 500_000, &frame), (6, 400_000, &frame), (10, 0, &frame)];
    let micro = classic(0xA1B2_C3D4, 1, &frames);
    let original = [0, 1_000, 500_001_000, 500_001_000, 4_000_001_000];
    assert_eq!(due(&read(&micro, Timing::Original).unwrap()), original);
    assert_eq!(due(&read(&micro, Timing::Faster(10.0)).unwrap()), original.map(|ns| ns / 10));
    assert_eq!(due(&read(&micro, Timing::Faster(0.5)).unwrap()), original.map(|ns| ns * 2));
    assert_eq!(due(&read(&micro, Timing::None).unwrap()), [0; 5]);
    let nano = classic(0xA1B2_3C4D, 1, &frames[..2]);
    assert_eq!(due(&read(&nano, Timing::Original).unwrap()), [0, 999_000_001]);
    let binary = blocks(10, &[(1 << 40, &frame), ((1 << 40) + 1024, &frame), ((1 << 40) + 1025, &frame)]);
    assert_eq!(due(&read(&binary, Timing::Original).unwrap()), [0, 1_000_000_000, 1_000_976_562]);
    for factor in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let error = read(&micro, Timing::Faster(factor)).unwrap_err().to_string();
        assert!(error.contains("give a number above 0") && error.lines().count() == 1, "{error}");
    }
}

#[test]
fn frames_are_padded_and_what_cannot_be_sent_is_counted() {
    let (short, good, long, most) = ([1; 13], [2; 14], [3; 9217], [4; 9216]);
    let bytes = classic(0xA1B2_C3D4, 1, &[(0, 0, &short), (1, 0, &good), (2, 0, &long), (3, 0, &most)]);
    let replay = read(&bytes, Timing::Original).unwrap();
    let frames: Vec<(usize, u64)> = replay.frames().map(|frame| (frame.bytes.len(), frame.due_ns)).collect();
    assert_eq!((frames, replay.left_out()), (vec![(60, 0), (9216, 2_000_000_000)], 2));
    assert_eq!(replay.frame(0).unwrap().bytes, [&[2; 14][..], &[0; 46]].concat());
    assert_eq!(replay.frame(2), None);
    let none = classic(0xA1B2_C3D4, 1, &[(0, 0, &short)]);
    let said = "capture c.pcap: it has no frame to send (1 are shorter than 14 or longer than 9216 bytes)";
    assert_eq!(read(&none, Timing::None).unwrap_err().to_string(), said);
}

/// Words of a capture in either order of bytes.
fn words(big: bool, words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| if big { word.to_be_bytes() } else { word.to_le_bytes() }).collect()
}

/// A pcapng capture with an interface whose frames have so many bits of FCS if it says so, and one frame, which may have flags.
fn with_fcs(big: bool, bits: Option<u8>, flags: Option<u32>, frame: &[u8], original: u32) -> Vec<u8> {
    let pair = |first: u16, second: u16| {
        let pair = [first, second].map(|half| if big { half.to_be_bytes() } else { half.to_le_bytes() });
        u32::from_ne_bytes(pair.concat().try_into().unwrap())
    };
    let raw = |words: &[u32]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
    let block = |kind: u32, body: &[u8]| {
        let length = words(big, &[u32::try_from(12 + body.len()).unwrap()]);
        [&words(big, &[kind]), &length[..], body, &length].concat()
    };
    let section = [words(big, &[0x1A2B_3C4D]), raw(&[pair(1, 0)]), vec![0xFF; 8]].concat();
    let mut interface = [raw(&[pair(1, 0)]), words(big, &[0])].concat();
    if let Some(bits) = bits {
        interface.extend([raw(&[pair(13, 1)]), vec![bits, 0, 0, 0], vec![0; 4]].concat());
    }
    let mut packet = words(big, &[0, 0, 0, u32::try_from(frame.len()).unwrap(), original]);
    packet.extend([frame, &[0; 3][..frame.len().next_multiple_of(4) - frame.len()]].concat());
    if let Some(flags) = flags {
        packet.extend([raw(&[pair(2, 4)]), words(big, &[flags]), vec![0; 4]].concat());
    }
    [block(0x0A0D_0D0A, &section), block(1, &interface), block(6, &packet)].concat()
}

/// 32 bits of an interface are four bytes, and a frame's own word goes before that; what was not captured of it is not taken off again.
#[test]
fn check_sequences_that_blocks_tell_of_are_left_out() {
    let frame: Vec<u8> = (0..99).collect();
    for big in [false, true] {
        for (bits, flags, original, length) in [
            (None, None, 99, 99),
            (Some(32), None, 99, 95),
            (Some(16), None, 99, 97),
            (Some(0), None, 99, 99),
            // Two bytes, and what else the flags say; none that they know of.
            (Some(32), Some(0b10 << 5 | 0b1_1101), 99, 97),
            (None, Some(4 << 5), 99, 95),
            (Some(32), Some(1), 99, 95),
            (Some(32), None, 101, 97),
            (Some(32), None, 103, 99),
        ] {
            let replay = read(&with_fcs(big, bits, flags, &frame, original), Timing::None).unwrap();
            assert_eq!(replay.frame(0).unwrap().bytes, &frame[..length], "{big}, {bits:?}, {flags:?}, {original}");
            assert_eq!((replay.len(), replay.cut()), (1, 0));
        }
    }
}

#[test]
fn a_capture_cut_anywhere_gives_the_frames_that_are_whole() {
    let (a, b) = ([1; 60], [2; 64]);
    let whole = [classic(0xA1B2_C3D4, 1, &[(0, 0, &a), (0, 1, &b)]), blocks(20, &[(0, &a), (1, &b)])];
    let (header, records) = (24, [16 + 60, 16 + 64]);
    let ends = [
        vec![header, header + records[0], header + records[0] + records[1]],
        vec![60, 60 + 32 + 60, 60 + 32 + 60 + 32 + 64],
    ];
    for (bytes, ends) in whole.iter().zip(ends) {
        assert_eq!(bytes.len(), ends[2]);
        for len in 0..=bytes.len() {
            let expected = ends[1..].iter().filter(|end| **end <= len).count();
            match read(&bytes[..len], Timing::None) {
                Ok(replay) => {
                    assert_eq!(replay.len(), expected, "{len} bytes");
                    assert_eq!(replay.damage().is_none(), ends.contains(&len), "{len} bytes: {:?}", replay.damage());
                }
                Err(error) => {
                    assert_eq!(expected, 0, "{len} bytes");
                    assert_eq!(error.to_string().lines().count(), 1);
                }
            }
        }
    }
}

#[test]
fn what_is_no_capture_of_ethernet_says_so() {
    let said = |bytes: &[u8]| read(bytes, Timing::None).unwrap_err().to_string();
    assert_eq!(said(b""), "capture c.pcap: it is empty");
    assert!(said(&[7; 100]).contains("it begins like no capture file"));
    assert!(said(&classic(0xA1B2_C3D4, 113, &[])).contains("its link type is 113, not Ethernet (1)"));
}

/// Captures to read: those beside the workspace, or else those of the repository.
fn files() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let beside = std::env::var_os("RINGWAY_CAPTURES").map_or(root.join("../shared/data/pcap"), PathBuf::from);
    let mut files = Vec::new();
    for folder in [beside.clone(), beside.join("odd")] {
        files.extend(fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()));
    }
    if files.is_empty() {
        skip::test!("all captures (none in ../shared/data/pcap; those of tests/data/pcap stand in)");
        files.extend(fs::read_dir(root.join("tests/data/pcap")).unwrap().map(|entry| entry.unwrap().path()));
    }
    files.retain(|file| file.extension().is_some_and(|extension| extension == "pcap"));
    files
}

/// What a classic capture of Ethernet holds that can be sent; `None` if it is not one.
fn expected(bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let little = matches!(*bytes.first_chunk::<4>()?, [0xD4, 0xC3, 0xB2, 0xA1] | [0x4D, 0x3C, 0xB2, 0xA1]);
    let word = |at: usize| {
        let word = *bytes.get(at..)?.first_chunk()?;
        Some(if little { u32::from_le_bytes(word) } else { u32::from_be_bytes(word) } as usize)
    };
    // The upper half tells of an FCS, which none of these has.
    (word(0)? >> 16 == 0xA1B2 && word(20)? & 0xFFFF == 1).then_some(())?;
    let (mut at, mut frames) = (24, Vec::new());
    while let Some(data) = word(at + 8).and_then(|len| bytes.get(at + 16..)?.get(..len)) {
        if (14..=9216).contains(&data.len()) {
            let mut frame = data.to_vec();
            frame.resize(frame.len().max(60), 0);
            frames.push(frame);
        }
        at += 16 + data.len();
    }
    Some(frames)
}

#[test]
fn odd_captures_give_their_frames_or_one_line() {
    let (mut read, mut refused) = (0, 0);
    for file in files() {
        let bytes = fs::read(&file).unwrap();
        let frames = expected(&bytes).unwrap_or_default();
        let name = file.display().to_string();
        match Replay::read(&name, Cursor::new(bytes), Timing::Original) {
            Ok(replay) => {
                assert!(replay.frames().map(|frame| frame.bytes).eq(frames.iter().map(|frame| &frame[..])), "{name}");
                assert!(due(&replay).is_sorted(), "{name}");
                read += 1;
            }
            Err(error) => {
                assert!(frames.is_empty(), "{error}");
                assert!(
                    error.to_string().starts_with(&format!("capture {name}: "))
                        && error.to_string().lines().count() == 1
                );
                refused += 1;
            }
        }
    }
    println!("{read} read, {refused} refused");
    assert!(read > 0);
}
