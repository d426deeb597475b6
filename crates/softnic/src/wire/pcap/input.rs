//! The capture that is replayed: pcap or pcapng, one frame ahead.

use super::claim::{self, Claim, Role};
use super::{ETHERNET, SNAP_LENGTH};
use crate::{Error, WireError};
use pcap_parser::{
    Block, OptionCode, PcapBlockOwned, PcapError, PcapNGOption, create_reader, traits::PcapReaderIterator,
};
use rustix::fs::OFlags;
use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt as _;

/// Bytes of the reader's window: the longest record and its header fit.
const WINDOW: usize = 1 << 19;

/// What a pcapng file begins with, in either order of bytes.
const SECTION_HEADER: [u8; 4] = [0x0A, 0x0D, 0x0D, 0x0A];

/// Bytes of a pcapng block without a body: its type, its length, and its length once more.
const EMPTY_BLOCK: u32 = 12;

/// Bytes that a block without a packet stays below to be skipped: any longer one may be short in the other order of bytes.
const LONGEST_SKIPPED: u32 = 1 << 24;

/// Bytes without a frame that one call reads at most, as a device waits for it, and those that a capture may have in a row.
const BARREN_CALL: usize = 1 << 20;
const BARREN: usize = 1 << 26;

/// A capture being read, one frame ahead.
pub(super) struct Source {
    path: String,
    reader: Box<dyn PcapReaderIterator + Send>,
    frame: Option<Vec<u8>>,
    spare: Vec<u8>,
    /// What the file begins with says pcapng.
    blocks: bool,
    section: Section,
    /// Bytes since the last frame.
    barren: usize,
    ended: bool,
    /// Why it ended before its end.
    damage: Option<String>,
    /// A frame of which less was captured than there was has been met, and told.
    told_of_cuts: bool,
    _claim: Option<Claim>,
}

impl Source {
    pub(super) fn open(path: &str) -> Result<Self, Error> {
        let fail = |operation, source| Error::System {
            operation,
            object: path.to_owned(),
            source,
            hint: "name a pcap or pcapng file",
        };
        // Who opens a pipe waits for its writer, and the thread that reads is one that all devices share.
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
        let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
        let file = opened.map_err(|error| fail("open", error))?;
        let kind = file.metadata().map_err(|error| fail("look at", error))?.file_type();
        if !kind.is_file() {
            let what = if kind.is_dir() { "a directory" } else { "a pipe or a device" };
            let cause = format!("it is {what}, not a file");
            return Err(Error::Capture { path: path.to_owned(), cause });
        }
        let claim = claim::claim(&file, path, Role::Input)?;
        Self::over(file, path, Some(claim))
    }

    /// A capture that comes from anywhere; `path` is what errors call it.
    pub(super) fn over(bytes: impl Read + Send + 'static, path: &str, claim: Option<Claim>) -> Result<Self, Error> {
        let bad = |cause: String| Error::Capture { path: path.to_owned(), cause };
        let reader = create_reader(WINDOW, bytes).map_err(|error| bad(describe(&error)))?;
        let blocks = reader.data().starts_with(&SECTION_HEADER);
        let mut source = Self {
            path: path.to_owned(),
            reader,
            frame: None,
            spare: Vec::new(),
            blocks,
            section: Section::default(),
            barren: 0,
            ended: false,
            damage: None,
            told_of_cuts: false,
            _claim: claim,
        };
        // The link type comes before the first frame: what cannot be read is found out at once.
        while !source.ended && source.frame.is_none() {
            source.advance().map_err(bad)?;
        }
        Ok(source)
    }

    /// Whether there is no frame any more.
    pub(super) fn is_finished(&mut self) -> bool {
        self.front().is_none() && self.ended
    }

    /// The next frame; `None` also while it is looked for behind much else.
    pub(super) fn front(&mut self) -> Option<&[u8]> {
        if self.frame.is_none()
            && let Err(cause) = self.advance()
        {
            self.ended = true;
            tracing::warn!("capture {} ends early: {cause}", self.path);
            self.damage = Some(cause);
        }
        self.frame.as_deref()
    }

    /// Done with the frame at the front.
    pub(super) fn pop(&mut self) {
        self.spare = self.frame.take().unwrap_or_default();
    }

    /// Why it ended early, if it did.
    pub(super) fn error(&self) -> Option<WireError> {
        let cause = self.damage.as_ref()?;
        let cause = format!("{cause}; what comes before that was replayed, for the rest name an undamaged copy");
        Some(WireError::Damaged { path: self.path.clone(), cause })
    }

    /// Reads on towards the next frame or the end.
    fn advance(&mut self) -> Result<(), String> {
        let before = self.barren;
        while !self.ended && self.frame.is_none() && self.barren - before < BARREN_CALL {
            if self.barren > BARREN {
                return Err(format!("it has more than {} MiB without a frame", BARREN >> 20));
            }
            if self.blocks && is_too_short(self.reader.data()) {
                return Err("it has a block shorter than any".to_owned());
            }
            if self.blocks
                && let Some(length) = self.section.skippable(self.reader.data())
            {
                self.skip(length)?;
                continue;
            }
            match self.reader.next() {
                Ok((consumed, block)) => {
                    let mut cut = None;
                    if let Some(Record { frame, original }) = self.section.record(&block)? {
                        keep(&mut self.frame, &mut self.spare, frame);
                        cut = (frame.len() < original).then_some((frame.len(), original));
                    }
                    self.barren = if self.frame.is_some() { 0 } else { self.barren + consumed };
                    self.reader.consume(consumed);
                    if let Some(lengths) = cut
                        && !self.told_of_cuts
                    {
                        self.tell_of_cuts(lengths);
                    }
                }
                Err(PcapError::Eof) => self.ended = true,
                Err(PcapError::Incomplete(_)) => {
                    if self.reader.reader_exhausted() {
                        return Err("the last record is cut short".to_owned());
                    }
                    self.reader.refill().map_err(|error| describe(&error))?;
                }
                Err(error) => return Err(describe(&error)),
            }
        }
        Ok(())
    }

    /// Once for each file.
    #[cold]
    fn tell_of_cuts(&mut self, (captured, original): (usize, usize)) {
        self.told_of_cuts = true;
        tracing::warn!(
            "capture {} has frames that were cut when they were captured, the first to {captured} of {original} bytes; they are sent \
             as they are there (capture with a snap length of {SNAP_LENGTH} for whole ones)",
            self.path
        );
    }

    /// Reads past a block that is longer than the window.
    fn skip(&mut self, mut left: usize) -> Result<(), String> {
        self.barren += left;
        loop {
            let here = self.reader.data().len().min(left);
            self.reader.consume(here);
            left -= here;
            if left == 0 {
                return Ok(());
            }
            if self.reader.reader_exhausted() {
                return Err("the last block is cut short".to_owned());
            }
            self.reader.refill().map_err(|error| describe(&error))?;
        }
    }
}

/// Whether a pcapng block says that it is shorter than an empty one, in whichever order its bytes are: the parser subtracts
/// without a look. (What is so short only if it is read the wrong way round is longer than the reader's window.)
fn is_too_short(block: &[u8]) -> bool {
    let Some(length) = block.get(4..).and_then(<[u8]>::first_chunk::<4>) else { return false };
    u32::from_le_bytes(*length) < EMPTY_BLOCK || u32::from_be_bytes(*length) < EMPTY_BLOCK
}

/// A packet of a capture, without its FCS.
struct Record<'a> {
    frame: &'a [u8],
    /// The length that it had before it was captured.
    original: usize,
}

/// A section of a pcapng file (draft-ietf-opsawg-pcapng), or a pcap file, which has one interface.
#[derive(Debug, Default)]
struct Section {
    big_endian: bool,
    interfaces: Vec<Interface>,
}

/// What is known of all frames of an interface.
#[derive(Debug)]
struct Interface {
    /// Bytes of FCS at their ends.
    fcs: usize,
    /// Bytes that are kept of each; `u32::MAX` without a limit.
    snap: u32,
}

/// Codes of options: bytes of FCS of an interface, and flags of an enhanced packet.
const IF_FCSLEN: OptionCode = OptionCode(13);
const EPB_FLAGS: OptionCode = OptionCode(2);
/// The block of packets that came before the enhanced one.
const OBSOLETE_PACKET: u32 = 2;
/// Blocks that are looked at, beside the section header: interface, packets of three kinds.
const NEEDED: [u32; 4] = [1, OBSOLETE_PACKET, 3, 6];

impl Section {
    /// The length of a block that is longer than the reader's window and holds nothing of interest, such as a custom one.
    fn skippable(&self, block: &[u8]) -> Option<usize> {
        let (kind, rest) = block.split_first_chunk::<4>()?;
        let length = rest.first_chunk::<4>()?;
        let number =
            |bytes: [u8; 4]| if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) };
        let (kind_number, length) = (number(*kind), number(*length));
        let needed = *kind == SECTION_HEADER || NEEDED.contains(&kind_number);
        let fits = (length as usize) < WINDOW;
        (!needed && !fits && length < LONGEST_SKIPPED && length.is_multiple_of(4)).then_some(length as usize)
    }

    /// The packet that a block holds, if any.
    fn record<'a>(&mut self, block: &'a PcapBlockOwned) -> Result<Option<Record<'a>>, String> {
        let (data, length, original, index) = match block {
            PcapBlockOwned::LegacyHeader(header) => {
                let fcs = fcs_bytes(header.network.0.cast_unsigned())?;
                self.interfaces.push(Interface { fcs, snap: u32::MAX });
                return Ok(None);
            }
            PcapBlockOwned::NG(Block::SectionHeader(header)) => {
                *self = Self { big_endian: header.big_endian(), interfaces: Vec::new() };
                return Ok(None);
            }
            PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
                let fcs = fcs_bytes(interface.linktype.0.cast_unsigned())?;
                let fcs = option(&interface.options, IF_FCSLEN).map_or(fcs, |bytes: [u8; 1]| bytes[0].into());
                let snap = if interface.snaplen == 0 { u32::MAX } else { interface.snaplen };
                self.interfaces.push(Interface { fcs, snap });
                return Ok(None);
            }
            PcapBlockOwned::NG(Block::Unknown(unknown)) if unknown.block_type == OBSOLETE_PACKET => {
                return Err("it has packet blocks of the obsolete kind (2), which editcap converts".to_owned());
            }
            PcapBlockOwned::Legacy(record) => (record.data, record.caplen, record.origlen, 0),
            PcapBlockOwned::NG(Block::EnhancedPacket(record)) => {
                (record.data, record.caplen, record.origlen, record.if_id)
            }
            // It has no length of its own but that of the whole packet.
            PcapBlockOwned::NG(Block::SimplePacket(record)) => {
                let snap = self.interfaces.first().map_or(u32::MAX, |interface| interface.snap);
                (record.data, record.origlen.min(snap), record.origlen, 0)
            }
            PcapBlockOwned::NG(_) => return Ok(None),
        };
        let Some(interface) = self.interfaces.get(index as usize) else {
            return Err(format!("it has a packet of interface {index}, which it does not describe"));
        };
        let fcs = match block {
            PcapBlockOwned::NG(Block::EnhancedPacket(record)) => self.flagged(&record.options),
            _ => None,
        };
        let fcs = fcs.unwrap_or(interface.fcs);
        let captured = data.get(..length as usize).unwrap_or(data);
        // Of what was cut the FCS is the first to go.
        let (original, cut) = (original as usize, (original as usize).saturating_sub(captured.len()));
        let frame = &captured[..captured.len().saturating_sub(fcs.saturating_sub(cut))];
        Ok(Some(Record { frame, original: original.saturating_sub(fcs) }))
    }

    /// Bytes of FCS by the flags of an enhanced packet, if they say something of it.
    fn flagged(&self, options: &[PcapNGOption<'_>]) -> Option<usize> {
        let bytes = option(options, EPB_FLAGS)?;
        let flags = if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) };
        Some((flags >> 5 & 0xF) as usize).filter(|fcs| *fcs != 0)
    }
}

/// The value of an option of `N` bytes.
fn option<const N: usize>(options: &[PcapNGOption<'_>], code: OptionCode) -> Option<[u8; N]> {
    options.iter().find(|option| option.code == code)?.as_bytes().ok()?.try_into().ok()
}

/// Keeps a copy of a frame, reusing the last one's memory.
fn keep(kept: &mut Option<Vec<u8>>, spare: &mut Vec<u8>, frame: &[u8]) {
    let mut copy = std::mem::take(spare);
    copy.clear();
    copy.extend_from_slice(frame);
    *kept = Some(copy);
}

/// Checks that a link type word means Ethernet; the bytes of FCS at the end of each frame.
fn fcs_bytes(link: u32) -> Result<usize, String> {
    if link & 0xFFFF != ETHERNET {
        return Err(format!("its link type is {}, not Ethernet (1)", link & 0xFFFF));
    }
    let present = link & 1 << 26 != 0;
    Ok(if present { 2 * (link >> 28) as usize } else { 0 })
}

fn describe<I: std::fmt::Debug>(error: &PcapError<I>) -> String {
    match error {
        PcapError::Eof => "the file is empty".to_owned(),
        PcapError::HeaderNotRecognized => "it begins like no capture file".to_owned(),
        PcapError::BufferTooSmall => format!("it has a record longer than {WINDOW} bytes"),
        PcapError::UnexpectedEof | PcapError::Incomplete(_) => "it is cut short".to_owned(),
        PcapError::ReadError => "reading the file failed".to_owned(),
        // Never with the bytes of the record, which may be a quarter of a megabyte.
        PcapError::NomError(_, kind) | PcapError::OwnedNomError(_, kind) => {
            format!("it has a damaged record ({kind:?})")
        }
    }
}
