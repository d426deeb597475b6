//! Lines of the log that clients can cause at will: one a second, with the number of those left out.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_secs(1);

/// Limits one kind of line.
#[derive(Debug, Default)]
pub(super) struct Seldom(Mutex<(Option<Instant>, u64)>);

/// How many lines were left out before this one; nothing if none was.
#[derive(Clone, Copy, Debug)]
pub(super) struct Omitted(u64);

impl fmt::Display for Omitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 { Ok(()) } else { write!(f, " (and {} times before)", self.0) }
    }
}

impl Seldom {
    /// Calls `write`, unless it was called less than a second ago.
    pub(super) fn say(&self, write: impl FnOnce(Omitted)) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.0.is_some_and(|last| last.elapsed() < INTERVAL) {
            state.1 += 1;
            return;
        }
        let omitted = Omitted(std::mem::take(&mut state.1));
        state.0 = Some(Instant::now());
        drop(state);
        write(omitted);
    }
}
