//! `wire=pcap:IN,OUT`: the frames of a capture arrive in order, and what is sent is written to another.
//!
//! A capture is replayed as fast as the driver gives descriptors; its time stamps are not looked at.

mod claim;
mod input;
mod output;

use super::{Sent, Wire};
use crate::{Error, WireError};
pub(crate) use claim::{Claim, check};
use input::Source;
use output::Output;
pub(crate) use output::output_file;

/// LINKTYPE_ETHERNET. Bit 26 of the word in a pcap header says that frames end in an FCS, bits 31:28 how many 16-bit units.
const ETHERNET: u32 = 1;
/// Longest record accepted: that of the largest snap length in use.
const SNAP_LENGTH: u32 = 262_144;

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
            source.pop();
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
        self.source.as_mut().is_none_or(Source::is_finished)
    }

    fn flush(&mut self) -> bool {
        self.output.as_mut().is_none_or(Output::flush)
    }

    fn finish(&mut self) {
        if let Some(output) = &mut self.output {
            output.finish();
        }
    }

    fn error(&self) -> Option<WireError> {
        let lost = self.output.as_ref().and_then(Output::error);
        lost.or_else(|| self.source.as_ref().and_then(Source::error))
    }
}

/// Returns the frames of a capture as `wire=pcap` replays them, and what is wrong with it, if anything; for fuzzing.
#[must_use]
pub fn replay(capture: &[u8]) -> (Vec<Vec<u8>>, Option<String>) {
    let mut frames = Vec::new();
    match Source::over(std::io::Cursor::new(capture.to_vec()), "input", None) {
        Ok(mut source) => {
            while !source.is_finished() {
                frames.extend(source.front().map(<[u8]>::to_vec));
                source.pop();
            }
            (frames, source.error().map(|error| error.to_string()))
        }
        Err(error) => (frames, Some(error.to_string())),
    }
}
