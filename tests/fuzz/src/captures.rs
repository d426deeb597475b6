//! Capture files of any content, replayed by the software 82599's wire: the frames are exactly those that a small parser of
//! our own finds, and damage is an error.

/// Link types of headers that are made here: Ethernet, Ethernet with 4 bytes of FCS, none that can be read.
const LINKS: [u32; 4] = [1, 1, 0x2400_0001, 113];

/// What is expected of a capture: its frames, and no error behind them if it is whole.
struct Expected {
    frames: Vec<Vec<u8>>,
    whole: bool,
}

/// Runs one input: a byte that chooses the shape, then bytes of a file, or of which a file is made.
pub fn run(input: &[u8]) {
    let Some((shape, rest)) = input.split_first() else { return };
    let (capture, expected) = match shape & 3 {
        0 => (rest.to_vec(), classic(rest)),
        1 => {
            let capture = make_classic(shape >> 2, rest);
            let expected = classic(&capture);
            (capture, expected)
        }
        _ => {
            let (capture, expected) = make_new(rest);
            (capture, Some(expected))
        }
    };
    let (frames, error) = softnic::replay(&capture);
    if let Some(expected) = expected {
        assert_eq!(error.is_none(), expected.whole, "{error:?}");
        assert!(frames == expected.frames, "{} frames, not {}", frames.len(), expected.frames.len());
    } else {
        assert!(frames.iter().map(Vec::len).sum::<usize>() <= capture.len());
    }
    assert!(error.is_none_or(|error| error.lines().count() == 1));
}

/// What a classic capture holds; `None` of other formats.
fn classic(bytes: &[u8]) -> Option<Expected> {
    let failed = Expected { frames: Vec::new(), whole: false };
    let magic = match bytes.first_chunk::<4>() {
        Some(magic) => u32::from_le_bytes(*magic),
        None => return Some(failed),
    };
    let big = match magic {
        0xA1B2_C3D4 | 0xA1B2_3C4D => false,
        0xD4C3_B2A1 | 0x4D3C_B2A1 => true,
        _ => return None,
    };
    let word = |at: usize| {
        let word = bytes.get(at..at + 4).and_then(|word| word.try_into().ok())?;
        Some(if big { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) })
    };
    let Some(link) = word(20).filter(|link| link & 0xFFFF == 1) else { return Some(failed) };
    let checksum = if link & 1 << 26 == 0 { 0 } else { 2 * (link >> 28) as usize };
    let (mut at, mut frames) = (24, Vec::new());
    while at < bytes.len() {
        let len = word(at + 8).map(|len| len as usize).filter(|_| at + 16 <= bytes.len());
        let Some(data) = len.and_then(|len| bytes.get(at + 16..)?.get(..len)) else {
            return Some(Expected { frames, whole: false });
        };
        // Of a frame that was longer than what was captured the FCS, at its end, is what is missing first.
        let end = (word(at + 12).unwrap_or(0) as usize).max(data.len()).saturating_sub(checksum);
        frames.push(data[..data.len().min(end)].to_vec());
        at += 16 + data.len();
    }
    Some(Expected { frames, whole: true })
}

/// A classic capture: a byte of choices, one of how much is cut off at the end, and a byte of length before each frame.
fn make_classic(choices: u8, input: &[u8]) -> Vec<u8> {
    let big = choices & 1 != 0;
    let word = |word: u32| if big { word.to_be_bytes() } else { word.to_le_bytes() };
    let magic = if choices & 2 == 0 { 0xA1B2_C3D4 } else { 0xA1B2_3C4D };
    let link = LINKS[usize::from(choices >> 2 & 3)];
    let mut capture = [magic, 0x0002_0004, 0, 0, 65_535, link].map(word).concat();
    let Some((cut, mut rest)) = input.split_first() else { return capture };
    while let Some((len, more)) = rest.split_first() {
        let data = &more[..more.len().min((*len).into())];
        // A length that lies, now and then.
        let claimed = if *len == 255 { u32::MAX } else { u32::try_from(data.len()).unwrap_or(0) };
        capture.extend([0, 0, claimed, 9000].map(word).concat());
        capture.extend_from_slice(data);
        rest = &more[data.len()..];
    }
    capture.truncate(capture.len().saturating_sub((*cut).into()));
    capture
}

/// A capture of the new format whose blocks are sound, cut off at the end or not.
fn make_new(input: &[u8]) -> (Vec<u8>, Expected) {
    let block = |kind: u32, body: &[u8]| {
        let padding = &[0; 3][..body.len().next_multiple_of(4) - body.len()];
        let len = u32::try_from(12 + body.len() + padding.len()).unwrap_or(0).to_le_bytes();
        [&kind.to_le_bytes()[..], &len, body, padding, &len].concat()
    };
    let header = block(0x0A0D_0D0A, &[&[0x4D, 0x3C, 0x2B, 0x1A, 1, 0, 0, 0][..], &[0xFF; 8]].concat());
    let interface = block(1, &[1, 0, 0, 0, 0, 0, 4, 0]);
    let mut capture = [header, interface].concat();
    let (mut ends, mut frames) = (vec![28, capture.len()], Vec::new());
    let (cut, mut rest) = input.split_first().map_or((0, input), |(cut, rest)| (*cut, rest));
    while let Some((len, more)) = rest.split_first() {
        let data = &more[..more.len().min((*len >> 1).into())];
        let size = u32::try_from(data.len()).unwrap_or(0).to_le_bytes();
        if len & 1 == 0 {
            capture.extend(block(6, &[&[0; 12][..], &size, &size, data].concat()));
            frames.push((capture.len(), data.to_vec()));
        } else {
            // A kind that nobody has defined is to be left out. The parser takes none without a body.
            capture.extend(block(0x0BAD, &[&[0; 4], data].concat()));
        }
        ends.push(capture.len());
        rest = &more[data.len()..];
    }
    capture.truncate(capture.len().saturating_sub(cut.into()));
    let whole = ends.contains(&capture.len());
    let frames = frames.into_iter().filter(|(end, _)| *end <= capture.len()).map(|(_, frame)| frame).collect();
    (capture, Expected { frames, whole })
}
