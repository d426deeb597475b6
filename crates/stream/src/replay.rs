//! Captures to replay: pcap, and pcapng (draft-ietf-opsawg-pcapng).

use crate::error::{Error, Result};
use crate::sizes::{LARGEST, SMALLEST};
use pcap_parser::{
    Block, EPB_MAGIC, EnhancedPacketBlock, InterfaceDescriptionBlock, OptionCode, PcapBlockOwned, PcapError,
    create_reader,
};
use std::io::Read;

/// Bytes of the reader's window: the longest record of the largest snap length in use fits.
const WINDOW: usize = 1 << 19;
/// Bytes of the longest capture.
const LONGEST: usize = 1 << 30;
/// LINKTYPE_ETHERNET. Bit 26 of the word in a pcap header says that frames end in an FCS, bits 31:28 how many 16-bit units.
const ETHERNET: u32 = 1;
/// Bytes of an Ethernet header.
const HEADER: usize = 14;
/// What a pcapng file begins with, in either order of bytes.
const SECTION_HEADER: [u8; 4] = [0x0A, 0x0D, 0x0D, 0x0A];
/// Bytes of a pcapng block without a body.
const EMPTY_BLOCK: u32 = 12;
const NS_PER_SECOND: u128 = 1_000_000_000;

/// When the frames of a [`Replay`] are due.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Timing {
    /// As they were captured.
    Original,
    /// So many times faster.
    Faster(f64),
    /// All at once: as fast as can be, or as the caller paces them.
    None,
}

/// The frames of a capture, and when they are due.
///
/// A frame shorter than 60 bytes is filled up with zeros. One shorter than an Ethernet header or longer than 9,216 bytes is left out
/// and counted. A capture that is damaged or cut off ends before the damage.
///
/// ```
/// use stream::{Replay, Timing};
///
/// let mut capture = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0];
/// for us in [5, 9] {
///     capture.extend([0, 0, 0, 0, us, 0, 0, 0, 60, 0, 0, 0, 60, 0, 0, 0]);
///     capture.extend([us; 60]);
/// }
/// let replay = Replay::read("two.pcap", std::io::Cursor::new(capture), Timing::Faster(2.0))?;
/// let frames: Vec<_> = replay.frames().map(|frame| (frame.due_ns, frame.bytes[0])).collect();
/// assert_eq!(frames, [(0, 5), (2_000, 9)]);
/// # Ok::<(), stream::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Replay {
    bytes: Vec<u8>,
    /// End of each frame in `bytes`, and when it is due.
    frames: Vec<(usize, u64)>,
    left_out: u64,
    cut: u64,
    damage: Option<String>,
}

/// A frame of a [`Replay`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due<'r> {
    /// The frame without FCS.
    pub bytes: &'r [u8],
    /// Nanoseconds from the first frame to this one; never less than before.
    pub due_ns: u64,
}

impl Replay {
    /// Reads a capture; `name` is what errors call it.
    ///
    /// # Errors
    ///
    /// [`Error::Capture`] for what is no capture of Ethernet, holds no frame that can be sent, or is longer than 1 GiB, and for a
    /// factor of time that is not above 0.
    pub fn read(name: &str, capture: impl Read + Send + 'static, timing: Timing) -> Result<Self> {
        let bad = |cause: String| Error::Capture { name: name.to_owned(), cause };
        if let Timing::Faster(factor) = timing
            && !(factor.is_finite() && factor > 0.0)
        {
            return Err(bad(format!("it cannot be replayed {factor} times faster; give a number above 0")));
        }
        let mut reader = Reader { timing, ..Reader::default() };
        let damage = reader.read(capture).err();
        let mut replay = reader.replay;
        if replay.frames.is_empty() {
            let left_out = replay.left_out;
            let none = format!(
                "it has no frame to send ({left_out} are shorter than {HEADER} or longer than {LARGEST} bytes)"
            );
            return Err(bad(damage.unwrap_or(none)));
        }
        replay.damage = damage;
        Ok(replay)
    }

    /// All frames in their order.
    pub fn frames(&self) -> impl ExactSizeIterator<Item = Due<'_>> {
        (0..self.len()).map(|index| self.frame(index).unwrap_or(Due { bytes: &[], due_ns: 0 }))
    }

    /// The frame of an index, from 0.
    #[inline]
    #[must_use]
    pub fn frame(&self, index: usize) -> Option<Due<'_>> {
        let (end, due_ns) = *self.frames.get(index)?;
        let from = index.checked_sub(1).and_then(|before| self.frames.get(before)).map_or(0, |(end, _)| *end);
        Some(Due { bytes: self.bytes.get(from..end)?, due_ns })
    }

    /// Returns how many frames there are, 1 at least.
    #[must_use]
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Returns whether there is none, which is so only of the default value.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Frames of the capture that cannot be sent: shorter than 14 bytes or longer than 9,216.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Frames of which only the beginning was captured. They are sent as they are there.
    #[must_use]
    pub fn cut(&self) -> u64 {
        self.cut
    }

    /// What is wrong with the capture behind its last frame here, if it is damaged.
    #[must_use]
    pub fn damage(&self) -> Option<&str> {
        self.damage.as_deref()
    }
}

/// What is known of all frames of an interface.
#[derive(Clone, Copy, Debug)]
struct Interface {
    /// Bytes of FCS at their ends.
    fcs: usize,
    /// Bytes that are kept of each; `u32::MAX` without a limit.
    snap: u32,
    /// Units of time in a second, and seconds to be added.
    per_second: u128,
    offset: i64,
}

/// A record that holds a frame.
struct Record<'a> {
    data: &'a [u8],
    captured: u32,
    original: u32,
    interface: u32,
    /// Bytes of FCS at its end, if it says so itself.
    fcs: Option<usize>,
    /// Nanoseconds, if it has a time.
    time: Option<i128>,
}

/// A capture being read.
#[derive(Debug)]
struct Reader {
    timing: Timing,
    replay: Replay,
    interfaces: Vec<Interface>,
    nanoseconds: bool,
    /// The first frame's time, and that of the last one since.
    first: Option<i128>,
    passed: i128,
}

impl Default for Reader {
    fn default() -> Self {
        Self {
            timing: Timing::None,
            replay: Replay::default(),
            interfaces: Vec::new(),
            nanoseconds: false,
            first: None,
            passed: 0,
        }
    }
}

impl Reader {
    fn read(&mut self, capture: impl Read + Send + 'static) -> std::result::Result<(), String> {
        let mut reader = create_reader(WINDOW, capture).map_err(|error| describe(&error))?;
        let blocks = reader.data().starts_with(&SECTION_HEADER);
        let mut passed = 0;
        loop {
            if blocks && is_too_short(reader.data()) {
                return Err("it has a block shorter than any".to_owned());
            }
            match reader.next() {
                Ok((consumed, block)) => {
                    self.take(&block)?;
                    passed += consumed;
                    reader.consume(consumed);
                    if passed > LONGEST {
                        return Err(format!("it is longer than {} MiB; cut it, as with editcap", LONGEST >> 20));
                    }
                }
                Err(PcapError::Eof) => return Ok(()),
                Err(PcapError::Incomplete(_)) => {
                    if reader.reader_exhausted() {
                        return Err("its last record is cut short".to_owned());
                    }
                    reader.refill().map_err(|error| describe(&error))?;
                }
                Err(error) => return Err(describe(&error)),
            }
        }
    }

    /// Takes a block: a header, a frame, or what is of no interest.
    fn take(&mut self, block: &PcapBlockOwned<'_>) -> std::result::Result<(), String> {
        let record = match block {
            PcapBlockOwned::LegacyHeader(header) => {
                let fcs = fcs_bytes(header.network.0.cast_unsigned())?;
                self.nanoseconds = header.is_nanosecond_precision();
                self.interfaces.push(Interface { fcs, snap: u32::MAX, per_second: NS_PER_SECOND, offset: 0 });
                return Ok(());
            }
            PcapBlockOwned::NG(Block::SectionHeader(_)) => {
                self.interfaces.clear();
                return Ok(());
            }
            PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
                self.interfaces.push(described(interface)?);
                return Ok(());
            }
            PcapBlockOwned::Legacy(record) => {
                let fraction = i128::from(record.ts_usec) * if self.nanoseconds { 1 } else { 1000 };
                let time = i128::from(record.ts_sec) * NS_PER_SECOND.cast_signed() + fraction;
                let (captured, original) = (record.caplen, record.origlen);
                Record { data: record.data, captured, original, interface: 0, fcs: None, time: Some(time) }
            }
            PcapBlockOwned::NG(Block::EnhancedPacket(record)) => {
                let ticks = u128::from(record.ts_high) << 32 | u128::from(record.ts_low);
                let interface = self.interfaces.get(record.if_id as usize);
                let time = interface.map(|interface| {
                    let ns = (ticks * NS_PER_SECOND / interface.per_second).cast_signed();
                    ns + i128::from(interface.offset) * NS_PER_SECOND.cast_signed()
                });
                let (captured, original) = (record.caplen, record.origlen);
                let (interface, fcs) = (record.if_id, fcs_of_frame(record));
                Record { data: record.data, captured, original, interface, fcs, time }
            }
            // It has neither a time nor a length of its own but that of the whole frame.
            PcapBlockOwned::NG(Block::SimplePacket(record)) => {
                let snap = self.interfaces.first().map_or(u32::MAX, |interface| interface.snap);
                let (captured, original) = (record.origlen.min(snap), record.origlen);
                Record { data: record.data, captured, original, interface: 0, fcs: None, time: None }
            }
            PcapBlockOwned::NG(_) => return Ok(()),
        };
        self.keep(&record)
    }

    fn keep(&mut self, record: &Record<'_>) -> std::result::Result<(), String> {
        let Some(interface) = self.interfaces.get(record.interface as usize) else {
            return Err(format!("it has a frame of interface {}, which it does not describe", record.interface));
        };
        let captured = record.data.get(..record.captured as usize).unwrap_or(record.data);
        // Of what was cut the FCS is the first to go.
        let missing = (record.original as usize).saturating_sub(captured.len());
        let fcs = record.fcs.unwrap_or(interface.fcs);
        let frame = &captured[..captured.len().saturating_sub(fcs.saturating_sub(missing))];
        let replay = &mut self.replay;
        if !(HEADER..=LARGEST.into()).contains(&frame.len()) {
            replay.left_out += 1;
            return Ok(());
        }
        if let Some(time) = record.time {
            let first = *self.first.get_or_insert(time);
            self.passed = self.passed.max(time - first);
        }
        replay.cut += u64::from(missing > fcs);
        let from = replay.bytes.len();
        replay.bytes.extend_from_slice(frame);
        replay.bytes.resize(from + frame.len().max(SMALLEST.into()), 0);
        let passed = u64::try_from(self.passed).unwrap_or(u64::MAX);
        let due_ns = match self.timing {
            Timing::Original => passed,
            Timing::Faster(factor) => scaled(passed, factor),
            Timing::None => 0,
        };
        replay.frames.push((replay.bytes.len(), due_ns));
        Ok(())
    }
}

fn scaled(ns: u64, factor: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, reason = "a conversion from f64 saturates")]
    #[expect(clippy::cast_sign_loss, reason = "neither is negative")]
    let scaled = (ns as f64 / factor) as u64;
    scaled
}

fn described(interface: &InterfaceDescriptionBlock<'_>) -> std::result::Result<Interface, String> {
    let of_type = fcs_bytes(interface.linktype.0.cast_unsigned())?;
    // if_fcslen is in bits (draft-ietf-opsawg-pcapng, 4.2).
    let length = interface.options.iter().find(|option| option.code == IF_FCSLEN);
    let fcs = length.and_then(|option| option.value.first()).map_or(of_type, |bits| usize::from(*bits).div_ceil(8));
    // The upper bit says whether the rest is an exponent of 2 or of 10.
    let exponent = u32::from(interface.if_tsresol & 0x7F);
    let base: u128 = if interface.if_tsresol & 0x80 == 0 { 10 } else { 2 };
    let per_second = base.checked_pow(exponent).ok_or("its times have a resolution beyond any clock's")?;
    let snap = if interface.snaplen == 0 { u32::MAX } else { interface.snaplen };
    Ok(Interface { fcs, snap, per_second, offset: interface.if_tsoffset })
}

/// The option of an interface that says how long the FCS of its frames is.
const IF_FCSLEN: OptionCode = OptionCode(13);
/// The option of a frame with flags, and those of them that say so of this one, in bytes (4.3.1).
const EPB_FLAGS: OptionCode = OptionCode(2);
const FCS_SHIFT: u32 = 5;
const FCS_MASK: u32 = 0xF;

/// Bytes of FCS at the end of a frame, if it says so itself.
fn fcs_of_frame(record: &EnhancedPacketBlock<'_>) -> Option<usize> {
    let flags = record.options.iter().find(|option| option.code == EPB_FLAGS)?.value.first_chunk::<4>()?;
    // The parser reads types as if all were little-endian.
    let is_little = record.block_type == EPB_MAGIC;
    let flags = if is_little { u32::from_le_bytes(*flags) } else { u32::from_be_bytes(*flags) };
    let bytes = flags >> FCS_SHIFT & FCS_MASK;
    (bytes > 0).then_some(bytes as usize)
}

/// Whether a pcapng block says that it is shorter than an empty one, in whichever order its bytes are: the parser subtracts
/// without a look.
fn is_too_short(block: &[u8]) -> bool {
    let Some(length) = block.get(4..).and_then(<[u8]>::first_chunk::<4>) else { return false };
    u32::from_le_bytes(*length) < EMPTY_BLOCK || u32::from_be_bytes(*length) < EMPTY_BLOCK
}

/// Checks that a link type means Ethernet. Returns the bytes of FCS at the end of each frame.
fn fcs_bytes(link: u32) -> std::result::Result<usize, String> {
    if link & 0xFFFF != ETHERNET {
        return Err(format!("its link type is {}, not Ethernet (1)", link & 0xFFFF));
    }
    let present = link & 1 << 26 != 0;
    Ok(if present { 2 * (link >> 28) as usize } else { 0 })
}

fn describe<I: std::fmt::Debug>(error: &PcapError<I>) -> String {
    match error {
        PcapError::Eof => "it is empty".to_owned(),
        PcapError::HeaderNotRecognized => "it begins like no capture file; name a pcap or pcapng file".to_owned(),
        PcapError::BufferTooSmall => format!("it has a record longer than {WINDOW} bytes"),
        PcapError::UnexpectedEof | PcapError::Incomplete(_) => "it is cut short".to_owned(),
        PcapError::ReadError => "reading it failed".to_owned(),
        // Never with the bytes of the record.
        PcapError::NomError(_, kind) | PcapError::OwnedNomError(_, kind) => {
            format!("it has a damaged record ({kind:?})")
        }
    }
}
