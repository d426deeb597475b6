//! What a program was asked to print: all of it is on standard output, or the program fails.

use crate::exit::Failure;
use anyhow::anyhow;
use serde::Serialize;
use std::io::{self, Write as _};

/// Prints text for people and a newline. A reader who has gone away (`| head -1`) does not want the rest, which is no
/// failure.
///
/// # Errors
///
/// When standard output takes no more: a full disk, a closed terminal.
pub fn print(text: &str) -> Result<(), Failure> {
    match write(text) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.map_err(lost),
    }
}

/// Prints an object as one line of JSON. Whoever asks for that reads it, so a reader who has gone away is a failure too.
///
/// # Errors
///
/// When not all of it could be written.
pub fn print_json(object: &impl Serialize) -> Result<(), Failure> {
    write(&serde_json::to_string(object)?).map_err(lost)
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush())
}

pub(crate) fn lost(error: io::Error) -> Failure {
    anyhow!("standard output: cannot write what was asked for: {error}; direct it where there is room and a reader")
        .into()
}
