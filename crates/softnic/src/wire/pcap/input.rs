//! The capture that is replayed: pcap or pcapng, one frame ahead.

use super::claim::{self, Claim, Role};
use super::{ETHERNET, SNAP_LENGTH};
use crate::{Error, WireError};
use pcap_parser::{Block, PcapBlockOwned, PcapError, create_reader, traits::PcapReaderIterator};
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

/// A capture being read, one frame ahead.
pub(super) struct Source {
    path: String,
    reader: Box<dyn PcapReaderIterator + Send>,
    frame: Option<Vec<u8>>,
    spare: Vec<u8>,
    /// What the file begins with says pcapng.
    blocks: bool,
    /// Of each interface of this section, the bytes of FCS at the end of its frames; a pcap file has one.
    interfaces: Vec<usize>,
    ended: bool,
    /// Why it ended before its end.
    damage: Option<String>,
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
            interfaces: Vec::new(),
            ended: false,
            damage: None,
            _claim: claim,
        };
        // The link type comes before the first frame: what cannot be read is found out at once.
        source.advance().map_err(bad)?;
        Ok(source)
    }

    /// The next frame.
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
        Some(WireError::Damaged { path: self.path.clone(), cause: cause.clone() })
    }

    /// Reads on to the next frame or the end.
    fn advance(&mut self) -> Result<(), String> {
        while !self.ended && self.frame.is_none() {
            if self.blocks && is_too_short(self.reader.data()) {
                return Err("it has a block shorter than any".to_owned());
            }
            match self.reader.next() {
                Ok((consumed, block)) => {
                    if let Some((data, fcs)) = record(&block, &mut self.interfaces)? {
                        keep(&mut self.frame, &mut self.spare, data, fcs);
                    }
                    self.reader.consume(consumed);
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
}

/// Whether a pcapng block says that it is shorter than an empty one, in whichever order its bytes are: the parser subtracts
/// without a look. (What is so short only if it is read the wrong way round is longer than the reader's window.)
fn is_too_short(block: &[u8]) -> bool {
    let Some(length) = block.get(4..).and_then(<[u8]>::first_chunk::<4>) else { return false };
    u32::from_le_bytes(*length) < EMPTY_BLOCK || u32::from_be_bytes(*length) < EMPTY_BLOCK
}

/// The packet that a block holds, if any, and the bytes of FCS at its end; what describes interfaces goes to `interfaces`.
fn record<'a>(block: &'a PcapBlockOwned, interfaces: &mut Vec<usize>) -> Result<Option<(&'a [u8], usize)>, String> {
    let (data, length, interface) = match block {
        PcapBlockOwned::LegacyHeader(header) => {
            interfaces.push(fcs_bytes(header.network.0.cast_unsigned())?);
            return Ok(None);
        }
        PcapBlockOwned::NG(Block::SectionHeader(_)) => {
            interfaces.clear();
            return Ok(None);
        }
        PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
            interfaces.push(fcs_bytes(interface.linktype.0.cast_unsigned())?);
            return Ok(None);
        }
        PcapBlockOwned::Legacy(record) => (record.data, record.caplen, 0),
        PcapBlockOwned::NG(Block::EnhancedPacket(record)) => (record.data, record.caplen, record.if_id),
        PcapBlockOwned::NG(Block::SimplePacket(record)) => (record.data, record.origlen, 0),
        PcapBlockOwned::NG(_) => return Ok(None),
    };
    let Some(fcs) = interfaces.get(interface as usize) else {
        return Err(format!("it has a packet of interface {interface}, which it does not describe"));
    };
    Ok(Some((data.get(..length as usize).unwrap_or(data), *fcs)))
}

/// Keeps a copy of a record without its FCS, reusing the last one's memory.
fn keep(frame: &mut Option<Vec<u8>>, spare: &mut Vec<u8>, data: &[u8], fcs: usize) {
    let mut copy = std::mem::take(spare);
    copy.clear();
    copy.extend_from_slice(&data[..data.len().saturating_sub(fcs)]);
    *frame = Some(copy);
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
        PcapError::BufferTooSmall => format!("it has a record longer than {SNAP_LENGTH} bytes"),
        PcapError::UnexpectedEof | PcapError::Incomplete(_) => "it is cut short".to_owned(),
        PcapError::ReadError => "reading the file failed".to_owned(),
        // Never with the bytes of the record, which may be a quarter of a megabyte.
        PcapError::NomError(_, kind) | PcapError::OwnedNomError(_, kind) => {
            format!("it has a damaged record ({kind:?})")
        }
    }
}
