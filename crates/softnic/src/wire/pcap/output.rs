//! The capture that is written: classic format, little endian, microseconds. What could not be written is counted.

use super::claim::{self, Claim, Role};
use super::{ETHERNET, SNAP_LENGTH};
use crate::wire::Sent;
use crate::{Error, WireError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use std::collections::VecDeque;
use std::fs::{File, OpenOptions, metadata};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Bytes that are collected before they are written.
const BUFFER: usize = 1 << 16;
/// How long the end waits for the reader of a pipe, or the readers of several that end one after another.
const PATIENCE: Duration = Duration::from_secs(1);
/// When the last end that had to wait began to.
static WAITED_SINCE: Mutex<Option<Instant>> = Mutex::new(None);

/// Until when an end that begins to wait now may wait.
fn patience() -> Instant {
    let mut since = WAITED_SINCE.lock().unwrap_or_else(PoisonError::into_inner);
    let first = since.filter(|first| first.elapsed() < 2 * PATIENCE).unwrap_or_else(Instant::now);
    *since = Some(first);
    first + PATIENCE
}

/// Opens a file to be written by nobody else, and empties it.
pub(crate) fn output_file(path: &str) -> Result<(File, Claim), Error> {
    // A pipe whose reader is slow must hold up the device that writes, not the thread that all devices share. The file
    // is emptied only once it is known to be nobody's now; [`claim::check`] knows what will be somebody's.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
    let opened = OpenOptions::new().write(true).create(true).truncate(false).custom_flags(flags).open(path);
    let file = opened.map_err(|error| failed("create", path, error))?;
    let claim = claim::claim(&file, path, Role::Output)?;
    if file.metadata().is_ok_and(|found| found.is_file()) {
        file.set_len(0).map_err(|error| failed("empty", path, error))?;
    }
    Ok((file, claim))
}

fn failed(operation: &'static str, path: &str, source: io::Error) -> Error {
    // A pipe without a reader, a socket, or a device that is not there.
    let nobody = source.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error());
    let hint = if nobody && metadata(path).is_ok_and(|found| found.file_type().is_fifo()) {
        "start the reader of the pipe first"
    } else if nobody {
        "name a file or a pipe"
    } else if source.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error()) {
        "raise the limit of open files: ulimit -n"
    } else {
        "name a file that this user may write"
    };
    Error::System { operation, object: path.to_owned(), source, hint }
}

/// A capture being written.
pub(super) struct Output {
    path: String,
    file: File,
    buffer: Vec<u8>,
    /// Bytes that have left the buffer for the file.
    written: u64,
    /// Where each record that is not whole in the file will end in it.
    ends: VecDeque<u64>,
    /// Where the last whole record ends.
    whole: u64,
    /// Frames taken.
    records: u64,
    failure: Option<Failure>,
    _claim: Claim,
}

/// Why nothing more is written, and how many frames were sent for nothing.
struct Failure {
    cause: String,
    frames: u64,
}

impl Output {
    pub(super) fn create(path: &str) -> Result<Self, Error> {
        let (mut file, claim) = output_file(path)?;
        let mut header = Vec::with_capacity(24);
        for word in [0xA1B2_C3D4, 4 << 16 | 2, 0, 0, SNAP_LENGTH, ETHERNET] {
            header.extend_from_slice(&u32::to_le_bytes(word));
        }
        file.write_all(&header).map_err(|error| failed("write", path, error))?;
        let written = header.len() as u64;
        Ok(Self {
            path: path.to_owned(),
            file,
            buffer: Vec::with_capacity(BUFFER),
            written,
            ends: VecDeque::new(),
            whole: written,
            records: 0,
            failure: None,
            _claim: claim,
        })
    }

    /// Takes a frame; `Full` while a pipe is. Frames that the file lacks count as sent like those that were buffered when
    /// it failed: [`Self::error`] says how many of all sent they are.
    pub(super) fn write(&mut self, frame: &[u8]) -> Sent {
        let fits = |buffer: &Vec<u8>| buffer.is_empty() || buffer.len() + 16 + frame.len() <= BUFFER;
        if !fits(&self.buffer) {
            self.drain();
        }
        if let Some(failure) = &mut self.failure {
            failure.frames += 1;
            return Sent::Yes;
        }
        if !fits(&self.buffer) {
            return Sent::Full;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = u32::try_from(now.as_secs()).unwrap_or(u32::MAX);
        let len = u32::try_from(frame.len()).unwrap_or(0);
        for word in [seconds, now.subsec_micros(), len, len] {
            self.buffer.extend_from_slice(&word.to_le_bytes());
        }
        self.buffer.extend_from_slice(frame);
        self.records += 1;
        self.ends.push_back(self.written + self.buffer.len() as u64);
        Sent::Yes
    }

    /// Writes what is buffered; whether nothing is left to write.
    pub(super) fn flush(&mut self) -> bool {
        self.drain();
        self.buffer.is_empty()
    }

    /// Writes what is buffered, and gives a slow reader a moment for it. What is left then is lost.
    pub(super) fn finish(&mut self) {
        let mut until = None;
        while !self.flush() {
            let left = until.get_or_insert_with(patience).saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.fail(&io::Error::new(io::ErrorKind::TimedOut, "its reader takes nothing"));
                return;
            }
            // Nobody interrupts this thread, and if so the loop looks again.
            let _ = poll(&mut [PollFd::new(&self.file, PollFlags::OUT)], Timespec::try_from(left).ok().as_ref());
        }
        self.look_for_others();
    }

    /// Fails if somebody has deleted the file, or has changed its length: a file that is written here only is as long as
    /// what was written. One that was cut may be longer by now, in places that nobody knows.
    fn look_for_others(&mut self) {
        let Ok(found) = self.file.metadata() else { return };
        let cause = match (found.nlink(), found.len()) {
            _ if !found.is_file() || self.failure.is_some() => return,
            (0, _) => "it was deleted meanwhile".to_owned(),
            (_, len) if len != self.written => {
                format!("somebody changed it meanwhile: it has {len} bytes, and {} were written", self.written)
            }
            _ => return,
        };
        tracing::error!("{}: {cause}; its frames are lost", self.path);
        self.failure = Some(Failure { cause, frames: self.records });
        self.buffer.clear();
        self.ends.clear();
    }

    /// What was lost, if anything.
    pub(super) fn error(&self) -> Option<WireError> {
        let failure = self.failure.as_ref()?;
        Some(WireError::Lost { path: self.path.clone(), cause: failure.cause.clone(), frames: failure.frames })
    }

    /// Writes as much as goes without waiting.
    fn drain(&mut self) {
        self.look_for_others();
        let mut done = 0;
        let mut broken = None;
        while done < self.buffer.len() {
            match self.file.write(&self.buffer[done..]) {
                Ok(0) => broken = Some(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    done += n;
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => broken = Some(error),
            }
            break;
        }
        self.buffer.drain(..done);
        self.written += done as u64;
        while let Some(end) = self.ends.front().copied()
            && end <= self.written
        {
            self.ends.pop_front();
            self.whole = end;
        }
        if let Some(error) = broken {
            self.fail(&error);
        }
    }

    fn fail(&mut self, error: &io::Error) {
        tracing::error!("cannot write {}: {error}; its frames are lost from here on", self.path);
        self.failure = Some(Failure { cause: error.to_string(), frames: self.ends.len() as u64 });
        self.buffer.clear();
        self.ends.clear();
        // What is there stays a capture that can be read. A pipe has no length, and a file that cannot even be cut ends in a
        // piece of a record.
        let _ = self.file.set_len(self.whole);
    }
}
