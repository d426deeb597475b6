//! Traffic that can be told apart: capture files of numbered frames for the wires of soft NICs, and what came out.

use anyhow::{Context as _, Result, ensure};
use std::fs::File;
use std::io::{BufReader, BufWriter, ErrorKind, Read as _, Write as _};
use std::path::Path;

/// Header of a capture file (pcap 2.4, little endian, microseconds, Ethernet).
const HEADER: [u8; 24] = *b"\xD4\xC3\xB2\xA1\x02\0\x04\0\0\0\0\0\0\0\0\0\0\0\x04\0\x01\0\0\0";
/// How a capture with nanoseconds begins: those of DPDK.
const NANOSECONDS: [u8; 4] = *b"\x4D\x3C\xB2\xA1";
/// Lengths of frames without CRC, in turn: both ends of what Ethernet allows, and around what cards treat differently.
const LENGTHS: [usize; 12] = [60, 61, 64, 65, 127, 128, 129, 60, 255, 60, 512, 60];

/// Frame `number` for `side`: UDP over IPv4 from 198.18.SIDE.0/24 with the number in address, ports and payload, so that RSS
/// spreads them and no two are equal.
pub(crate) fn frame(side: u8, number: u32) -> Vec<u8> {
    let long = if number % 1000 == 999 { 1514 } else { LENGTHS[number as usize % LENGTHS.len()] };
    let mut frame = Vec::with_capacity(long);
    frame.extend([2, 0, 0, 0, 0, 1 - side, 2, 0, 0, 0, 0, side, 8, 0]);
    let [a, b, c, d] = number.to_be_bytes();
    let [high, low] = u16::try_from(long - 14).unwrap_or(u16::MAX).to_be_bytes();
    let mut ip = [0x45, 0, high, low, c, d, 0, 0, 64, 17, 0, 0, 198, 18, side, d, 198, 19, b, c];
    let sum: u32 = ip.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let folded = (sum & 0xFFFF) + (sum >> 16);
    let [.., high, low] = (!((folded & 0xFFFF) + (folded >> 16))).to_be_bytes();
    [ip[10], ip[11]] = [high, low];
    frame.extend(ip);
    let [high, low] = u16::try_from(long - 34).unwrap_or(u16::MAX).to_be_bytes();
    // No UDP checksum.
    frame.extend([c | 0x40, d, 0, 9, high, low, 0, 0, a, b, c, d]);
    let mut state = number.wrapping_mul(2_654_435_761) | 1;
    while frame.len() < long {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        frame.push(state.to_le_bytes()[1]);
    }
    frame
}

/// Writes frames 0 to `count` of `side`.
pub(crate) fn write(path: &Path, side: u8, count: u32) -> Result<()> {
    write_all(path, (0..count).map(|number| frame(side, number)))
}

/// Writes a capture.
pub(crate) fn write_all<F: AsRef<[u8]>>(path: &Path, frames: impl IntoIterator<Item = F>) -> Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    file.write_all(&HEADER)?;
    for frame in frames {
        let frame = frame.as_ref();
        let len = u32::try_from(frame.len())?.to_le_bytes();
        file.write_all(&[0; 8])?;
        file.write_all(&len)?;
        file.write_all(&len)?;
        file.write_all(frame)?;
    }
    Ok(file.flush()?)
}

/// Reads a capture that a soft NIC or DPDK wrote, calling `each` with every frame; says how many there were.
pub(crate) fn read(path: &Path, mut each: impl FnMut(&[u8])) -> Result<u32> {
    let mut file = BufReader::new(File::open(path)?);
    let mut header = [0; 24];
    file.read_exact(&mut header)?;
    ensure!([&HEADER[..4], &NANOSECONDS].contains(&&header[..4]), "{} is no capture", path.display());
    let (mut record, mut frame, mut count) = ([0; 16], Vec::new(), 0);
    loop {
        match file.read_exact(&mut record) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(count),
            other => other?,
        }
        let len = record[8..12].try_into().map(u32::from_le_bytes)?;
        frame.resize(len as usize, 0);
        file.read_exact(&mut frame).context("a record is cut off")?;
        each(&frame);
        count += 1;
    }
}

/// How a capture differs from frames 0 to `count` of `side` in order; `None` if it does not.
pub(crate) fn difference(path: &Path, side: u8, count: u32) -> Result<Option<String>> {
    let (mut number, mut first) = (0, None);
    let found = read(path, |bytes| {
        if first.is_none() && bytes != frame(side, number) {
            first = Some(format!("the first that differs is {number}: {bytes:02x?}"));
        }
        number += 1;
    })?;
    Ok(first.or((found != count).then(|| format!("{found} frames came out, {count} went in"))))
}

/// What is missing in a capture of frames 0 to `count` of `side`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Missing {
    /// Frames, and stretches of them.
    pub(crate) frames: u32,
    pub(crate) stretches: u32,
    /// The first frame that differs, or comes late or again.
    pub(crate) wrong: Option<String>,
}

/// Compares a capture with frames 0 to `count` of `side` in order, of which some may be missing.
pub(crate) fn missing(path: &Path, side: u8, count: u32) -> Result<Missing> {
    let (mut next, mut missing) = (0, Missing::default());
    let skip = |from: u32, to: u32, missing: &mut Missing| {
        missing.frames += to - from;
        missing.stretches += u32::from(to > from);
    };
    read(path, |bytes| {
        // Where `frame` writes it.
        let number = bytes.get(42..46).and_then(|number| number.try_into().ok()).map_or(u32::MAX, u32::from_be_bytes);
        if number < next || number >= count || bytes != frame(side, number) {
            missing.wrong.get_or_insert_with(|| format!("after {next} frames: {bytes:02x?}"));
            return;
        }
        skip(next, number, &mut missing);
        next = number + 1;
    })?;
    skip(next, count, &mut missing);
    Ok(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        write(file.path(), 1, 2000).unwrap();
        assert_eq!(difference(file.path(), 1, 2000).unwrap(), None);
        assert!(difference(file.path(), 1, 2001).unwrap().is_some());
        assert!(difference(file.path(), 0, 2000).unwrap().is_some());
    }

    #[test]
    fn what_is_missing_is_counted_and_what_is_wrong_is_shown() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let keep = |number: &u32| !(10..15).contains(number) && *number < 90;
        write_all(file.path(), (0..100).filter(keep).map(|number| frame(0, number))).unwrap();
        assert_eq!(missing(file.path(), 0, 100).unwrap(), Missing { frames: 15, stretches: 2, wrong: None });
        write_all(file.path(), [5, 4].map(|number| frame(0, number))).unwrap();
        assert!(missing(file.path(), 0, 100).unwrap().wrong.is_some());
    }
}
