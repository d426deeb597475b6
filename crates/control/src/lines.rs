//! Lines out of bytes as they come.

use crate::Error;

/// Bytes of the longest line that is read, without its end.
pub const LONGEST_LINE: usize = 65_536;

/// Splits bytes into lines, and holds no more than one line that is not complete. Empty lines are left out.
///
/// ```
/// use control::{Error, Lines};
///
/// let mut lines = Lines::new();
/// let mut found = Vec::new();
/// lines.split(b"one\ntw", |line| found.push(line));
/// lines.split(b"o\r\n\n\xff\nend", |line| found.push(line));
/// lines.end(|line| found.push(line));
/// assert_eq!(found, [Ok("one".to_owned()), Ok("two".to_owned()), Err(Error::NotUtf8), Ok("end".to_owned())]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Lines {
    /// Of a line whose end has not come.
    begun: Vec<u8>,
    /// The line is too long, which was told: the rest of it is left out.
    skips: bool,
}

impl Lines {
    /// Creates one that has seen nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Calls `found` with each line that ends in `bytes`, and once for each that is too long.
    pub fn split(&mut self, bytes: &[u8], mut found: impl FnMut(Result<String, Error>)) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, ends) = part.strip_suffix(b"\n").map_or((part, false), |text| (text, true));
            if !self.skips && self.begun.len() + text.len() > LONGEST_LINE {
                self.begun = Vec::new();
                self.skips = true;
                found(Err(Error::TooLong));
            }
            if !self.skips {
                self.begun.extend_from_slice(text);
            }
            if ends {
                self.end(&mut found);
            }
        }
    }

    /// Ends the line that has begun, if one has: nothing more comes of it.
    pub fn end(&mut self, mut found: impl FnMut(Result<String, Error>)) {
        let (line, skipped) = (std::mem::take(&mut self.begun), std::mem::take(&mut self.skips));
        if skipped {
            return;
        }
        match String::from_utf8(line) {
            Ok(line) if line.trim().is_empty() => {}
            Ok(line) => found(Ok(line.trim_end_matches('\r').to_owned())),
            Err(_) => found(Err(Error::NotUtf8)),
        }
    }
}
