//! A record of what a driver does to a device's registers: a line of text for each access, in the order in which they are made.

use crate::wire::{Claim, output_file};
use crate::{DeviceId, Error, WireError};
use std::fs::File;
use std::io::{self, LineWriter, Write as _};
use std::time::Instant;

/// Where accesses are written to, and which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TraceSpec {
    pub(crate) path: String,
    /// Reads too.
    pub(crate) reads: bool,
}

/// A record being written. Each line is in the file at once: that of a write before it takes effect.
pub(crate) struct Trace {
    spec: TraceSpec,
    file: LineWriter<File>,
    begun: Instant,
    failure: Option<String>,
    _claim: Claim,
}

/// One line.
pub(crate) enum Entry<'n> {
    /// An access, with the register's offset, value and name.
    Read(u32, u32, &'n str),
    Write(u32, u32, &'n str),
    /// Bus mastering is turned on or off.
    BusMaster(bool),
    /// A function level reset.
    FunctionReset,
}

impl Trace {
    /// Empties or makes the file. One that is a pipe has a reader, which must keep up.
    pub(crate) fn create(spec: &TraceSpec, name: &str, id: DeviceId) -> Result<Self, Error> {
        let (file, claim) = output_file(&spec.path)?;
        let (file, begun) = (LineWriter::new(file), Instant::now());
        let mut trace = Self { spec: spec.clone(), file, begun, failure: None, _claim: claim };
        let began = writeln!(
            trace.file,
            "# register trace 1: {name} 8086:{:04x}\n# microseconds, access, offset, value, register",
            id.pci()
        );
        began.map_err(|source| Error::System {
            operation: "write",
            object: spec.path.clone(),
            source,
            hint: "name another file",
        })?;
        Ok(trace)
    }

    /// Whether reads are recorded.
    pub(crate) fn wants_reads(&self) -> bool {
        self.spec.reads
    }

    /// Writes a line. After the first that cannot be written there are no more.
    pub(crate) fn add(&mut self, entry: &Entry<'_>) {
        if self.failure.is_some() {
            return;
        }
        if let Err(error) = self.line(entry) {
            tracing::error!("cannot write {}: {error}; the trace ends there", self.spec.path);
            self.failure = Some(error.to_string());
        }
    }

    fn line(&mut self, entry: &Entry<'_>) -> io::Result<()> {
        let time = self.begun.elapsed().as_micros();
        let file = &mut self.file;
        match entry {
            Entry::Read(offset, value, name) => writeln!(file, "{time:>10} read  {offset:#07x} {value:#010x} {name}"),
            Entry::Write(offset, value, name) => writeln!(file, "{time:>10} write {offset:#07x} {value:#010x} {name}"),
            Entry::BusMaster(on) => writeln!(file, "{time:>10} bus-master-{}", if *on { "on" } else { "off" }),
            Entry::FunctionReset => writeln!(file, "{time:>10} function-reset"),
        }
    }

    /// Why the record is not whole, if so.
    pub(crate) fn error(&self) -> Option<WireError> {
        let cause = self.failure.clone()?;
        Some(WireError::Untraced { path: self.spec.path.clone(), cause })
    }
}
