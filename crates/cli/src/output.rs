//! Output that a program was asked for: either all of it is on standard output, or the program fails. Other output is
//! written only as far as it is read.

use crate::exit::Failure;
use anyhow::anyhow;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use serde::Serialize;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::fd::AsFd;
use std::time::Duration;

/// Prints text for people and a newline. If the reader has closed the pipe (`| head -1`), or the terminal, it does not want the
/// rest; that is not a failure.
///
/// # Errors
///
/// If standard output cannot take the text, as a full disk.
pub fn print(text: &str) -> Result<(), Failure> {
    match write(text) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe || has_hung_up() => Ok(()),
        result => result.map_err(lost),
    }
}

/// Prints an object as one line of JSON. A program that asks for it wants all of it, so a closed pipe is a failure too.
///
/// # Errors
///
/// If not all of it could be written.
pub fn print_json(object: &impl Serialize) -> Result<(), Failure> {
    write(&serde_json::to_string(object)?).map_err(lost)
}

/// Does something without lines of the log from this thread, as its result says what they would; unless RUST_LOG asks for them.
pub fn without_log<T>(work: impl FnOnce() -> T) -> T {
    if std::env::var_os("RUST_LOG").is_some() {
        return work();
    }
    tracing::subscriber::with_default(tracing::subscriber::NoSubscriber::new(), work)
}

/// Writes `text` as far as its reader has room for it, so that a reader who has stopped reading (a pager, a terminal
/// after Ctrl-S) does not stop this program: it waits for room up to `patience` for each part, and then leaves out the
/// rest. Returns whether all was written.
///
/// # Errors
///
/// Those of `write(2)`.
pub fn offer(out: impl AsFd, text: &str, patience: Duration) -> io::Result<bool> {
    // A pipe that says it has room takes a page without waiting, a terminal what it is sure to have room for.
    let part = if out.as_fd().is_terminal() { 256 } else { 4096 };
    let (patience, mut rest) = (Timespec::try_from(patience).ok(), text.as_bytes());
    while !rest.is_empty() {
        match poll(&mut [PollFd::new(&out, PollFlags::OUT)], patience.as_ref()) {
            Ok(0) => return Ok(false),
            Ok(_) => rest = &rest[retry_on_intr(|| rustix::io::write(&out, &rest[..rest.len().min(part)]))?..],
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(true)
}

/// Standard error for lines of the log, which [`offer`] them.
#[derive(Debug)]
pub(crate) struct Log;

impl io::Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        offer(io::stderr(), &String::from_utf8_lossy(line), Duration::ZERO)?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whether the terminal that standard output was is gone.
fn has_hung_up() -> bool {
    let out = io::stdout();
    let mut fds = [PollFd::new(&out, PollFlags::empty())];
    poll(&mut fds, Some(&Timespec::default())).is_ok() && fds[0].revents().contains(PollFlags::HUP)
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush())
}

pub(crate) fn lost(error: io::Error) -> Failure {
    anyhow!("standard output: cannot write what was asked for: {error}; direct it where there is room and a reader")
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[test]
    fn a_reader_who_has_stopped_reading_is_not_waited_for() {
        let (mut reader, writer) = io::pipe().unwrap();
        let line = "a line of sixteen\n".repeat(1000);
        let mut whole = 0;
        while offer(&writer, &line, Duration::ZERO).unwrap() {
            whole += 1;
        }
        assert!(whole > 0, "a pipe holds more");
        let mut text = vec![0; whole * line.len()];
        reader.read_exact(&mut text).unwrap();
        assert_eq!(text, line.repeat(whole).as_bytes());
        assert!(offer(&writer, "there is room again", Duration::ZERO).unwrap());
        drop(reader);
        assert_eq!(offer(&writer, "gone", Duration::ZERO).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
