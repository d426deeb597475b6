//! `wire=pcap:IN,OUT`: the frames of a capture arrive in order, and what is sent is written to another.

use super::{Sent, Wire};
use crate::Error;
use pcap_parser::{Block, PcapBlockOwned, PcapError, create_reader, traits::PcapReaderIterator};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::time::{SystemTime, UNIX_EPOCH};

/// LINKTYPE_ETHERNET. Bit 26 of the word in a pcap header says that frames end in an FCS, bits 31:28 how many 16-bit units.
const ETHERNET: u32 = 1;
/// Longest record accepted: that of the largest snap length in use.
const SNAP_LENGTH: u32 = 262_144;
/// Bytes of the reader's window: the longest record and its header fit.
const WINDOW: usize = 1 << 19;

/// A source and a destination file, either of which may be missing.
pub(crate) struct PcapWire {
    source: Option<Source>,
    output: Option<Output>,
}

impl PcapWire {
    /// Opens the files; an empty path is no file.
    pub(crate) fn open(input: &str, output: &str) -> Result<Self, Error> {
        let source = if input.is_empty() { None } else { Some(Source::open(input)?) };
        let output = if output.is_empty() { None } else { Some(Output::create(output)?) };
        Ok(Self { source, output })
    }
}

impl std::fmt::Debug for PcapWire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PcapWire").finish_non_exhaustive()
    }
}

impl Wire for PcapWire {
    fn poll(&mut self, _receiving: bool, _room: usize) {}

    fn front(&mut self) -> Option<&[u8]> {
        self.source.as_mut()?.front()
    }

    fn pop(&mut self) {
        if let Some(source) = &mut self.source {
            source.spare = source.frame.take().unwrap_or_default();
        }
    }

    fn transmit(&mut self, frame: &[u8]) -> Sent {
        match &mut self.output {
            Some(output) => output.write(frame),
            None => Sent::Yes,
        }
    }

    fn needs_bytes(&self) -> bool {
        self.output.is_some()
    }

    fn host(&self) -> bool {
        true
    }

    fn finished(&mut self) -> bool {
        self.front().is_none()
    }

    fn flush(&mut self) {
        if let Some(output) = &mut self.output {
            output.flush();
        }
    }
}

/// A capture being read, one frame ahead.
struct Source {
    path: String,
    reader: Box<dyn PcapReaderIterator + Send>,
    frame: Option<Vec<u8>>,
    spare: Vec<u8>,
    /// Bytes of FCS at the end of each frame.
    fcs: usize,
    ended: bool,
}

impl Source {
    fn open(path: &str) -> Result<Self, Error> {
        let file = File::open(path).map_err(|source| Error::System {
            operation: "open",
            object: path.to_owned(),
            source,
            hint: "name a pcap or pcapng file",
        })?;
        let bad = |cause: String| Error::Capture { path: path.to_owned(), cause };
        let reader = create_reader(WINDOW, file).map_err(|error| bad(describe(&error)))?;
        let (path, spare) = (path.to_owned(), Vec::new());
        let mut source = Self { path, reader, frame: None, spare, fcs: 0, ended: false };
        // The link type comes before the first frame: what cannot be read is found out at once.
        source.advance().map_err(bad)?;
        Ok(source)
    }

    fn front(&mut self) -> Option<&[u8]> {
        if self.frame.is_none()
            && let Err(cause) = self.advance()
        {
            self.ended = true;
            tracing::warn!("capture {} ends early: {cause}", self.path);
        }
        self.frame.as_deref()
    }

    /// Reads on to the next frame or the end.
    fn advance(&mut self) -> Result<(), String> {
        while !self.ended && self.frame.is_none() {
            match self.reader.next() {
                Ok((consumed, block)) => {
                    let link = match block {
                        PcapBlockOwned::LegacyHeader(header) => Some(header.network.0.cast_unsigned()),
                        PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
                            Some(interface.linktype.0.cast_unsigned())
                        }
                        PcapBlockOwned::Legacy(record) => {
                            keep(&mut self.frame, &mut self.spare, record.data, self.fcs);
                            None
                        }
                        PcapBlockOwned::NG(Block::EnhancedPacket(record)) => {
                            let data = record.data.get(..record.caplen as usize).unwrap_or(record.data);
                            keep(&mut self.frame, &mut self.spare, data, self.fcs);
                            None
                        }
                        PcapBlockOwned::NG(Block::SimplePacket(record)) => {
                            let data = record.data.get(..record.origlen as usize).unwrap_or(record.data);
                            keep(&mut self.frame, &mut self.spare, data, self.fcs);
                            None
                        }
                        PcapBlockOwned::NG(_) => None,
                    };
                    self.reader.consume(consumed);
                    if let Some(link) = link {
                        self.fcs = fcs_bytes(link)?;
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
        other => format!("damaged record ({other:?})"),
    }
}

/// A capture being written: classic format, little endian, microseconds.
struct Output {
    path: String,
    file: BufWriter<File>,
    failed: bool,
}

impl Output {
    fn create(path: &str) -> Result<Self, Error> {
        let fail = |operation, source| Error::System {
            operation,
            object: path.to_owned(),
            source,
            hint: "name a file that this user may write",
        };
        let mut file = BufWriter::with_capacity(1 << 16, File::create(path).map_err(|error| fail("create", error))?);
        let mut header = Vec::with_capacity(24);
        for word in [0xA1B2_C3D4, 4 << 16 | 2, 0, 0, SNAP_LENGTH, ETHERNET] {
            header.extend_from_slice(&u32::to_le_bytes(word));
        }
        file.write_all(&header).map_err(|error| fail("write", error))?;
        Ok(Self { path: path.to_owned(), file, failed: false })
    }

    fn write(&mut self, frame: &[u8]) -> Sent {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = u32::try_from(now.as_secs()).unwrap_or(u32::MAX);
        let len = u32::try_from(frame.len()).unwrap_or(0);
        let mut header = [0; 16];
        for (slot, word) in header.chunks_exact_mut(4).zip([seconds, now.subsec_micros(), len, len]) {
            slot.copy_from_slice(&word.to_le_bytes());
        }
        let written = self.file.write_all(&header).and_then(|()| self.file.write_all(frame));
        self.check(written);
        if self.failed { Sent::Lost } else { Sent::Yes }
    }

    fn flush(&mut self) {
        let flushed = self.file.flush();
        self.check(flushed);
    }

    fn check(&mut self, result: std::io::Result<()>) {
        if let Err(error) = result
            && !std::mem::replace(&mut self.failed, true)
        {
            tracing::error!("cannot write {}: {error}; its frames are lost from here on", self.path);
        }
    }
}
