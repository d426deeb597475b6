//! A connection, whatever carries its bytes.

use crate::{Error, Lines, Request};
use serde::Serialize;
use std::collections::VecDeque;
use std::time::Duration;

/// Bytes that wait for a reader; a line more does not wait, and the session is [overrun](Session::is_overrun).
pub const ROOM: usize = 65_536;
/// Lines that wait to be looked at; as long as they do, nothing more is to be read.
const MOST_LINES: usize = 64;
/// A reader that takes nothing for so long has gone.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection: bytes in, requests out of them; lines for the other side, and bytes out of those. It holds a bounded amount of both: a
/// line and what is read at a time, and [`ROOM`] bytes and a line.
#[derive(Clone, Debug, Default)]
pub struct Session {
    lines: Lines,
    requests: VecDeque<Result<String, Error>>,
    out: Vec<u8>,
    overrun: bool,
    /// Since when nothing has left, if something waits.
    waits_since: Option<Duration>,
    /// When figures are due, if they are subscribed to.
    pub subscription: Option<Subscription>,
}

/// Lines again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// From one line to the next.
    pub interval: Duration,
    /// When the next is due, from whatever the caller counts times.
    pub next: Duration,
}

impl Subscription {
    /// Whether a line is due; then the next one is due an interval later, or if that has passed too an interval from now.
    pub fn is_due(&mut self, now: Duration) -> bool {
        let is_due = now >= self.next;
        if is_due {
            self.next += self.interval;
            if self.next <= now {
                self.next = now + self.interval;
            }
        }
        is_due
    }
}

impl Session {
    /// Creates one on which nothing has come.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes bytes that have come.
    pub fn receive(&mut self, bytes: &[u8]) {
        let Self { lines, requests, .. } = self;
        lines.split(bytes, |line| requests.push_back(line));
    }

    /// Nothing more comes: a line without end is one.
    pub fn receive_end(&mut self) {
        let Self { lines, requests, .. } = self;
        lines.end(|line| requests.push_back(line));
    }

    /// Whether more is to be read: what has come before is answered, and the answers are read.
    #[must_use]
    pub fn wants_more(&self) -> bool {
        self.requests.len() < MOST_LINES && self.out.is_empty()
    }

    /// Returns the next request, or what is wrong with it; `None` if there is none. As long as answers wait to be read, there is none.
    pub fn next_request(&mut self) -> Option<Result<Request, Error>> {
        if self.out.len() > ROOM / 2 {
            return None;
        }
        Some(self.requests.pop_front()?.and_then(|line| Request::parse(&line)))
    }

    /// Whether requests wait.
    #[must_use]
    pub fn has_requests(&self) -> bool {
        !self.requests.is_empty()
    }

    /// Adds a line for the other side: an object of JSON.
    pub fn say(&mut self, object: &impl Serialize) {
        if self.out.len() > ROOM {
            self.overrun = true;
            return;
        }
        // What cannot be told is left out; there are no such objects here.
        if let Ok(mut line) = serde_json::to_vec(object) {
            line.push(b'\n');
            self.out.append(&mut line);
        }
    }

    /// Returns the bytes to be sent.
    #[must_use]
    pub fn outgoing(&self) -> &[u8] {
        &self.out
    }

    /// Notes at a time that so many of them have been sent.
    pub fn sent(&mut self, bytes: usize, now: Duration) {
        self.out.drain(..bytes.min(self.out.len()));
        if self.out.is_empty() {
            self.waits_since = None;
        } else if bytes > 0 || self.waits_since.is_none() {
            self.waits_since = Some(now);
        }
    }

    /// Whether the other side does not read: it was to be told more than there is [`ROOM`] for, or has taken nothing for 10 s.
    #[must_use]
    pub fn is_overrun(&self, now: Duration) -> bool {
        self.overrun || self.waits_since.is_some_and(|since| now.saturating_sub(since) >= PATIENCE)
    }
}

/// The answer to a request: `{"ok":true}`, or `{"ok":false,"error":"..."}` with the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Answer {
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Returns the answer to a request that was done.
#[must_use]
pub fn done() -> Answer {
    Answer { ok: true, error: None }
}

/// Returns the answer to one that was not.
#[must_use]
pub fn refused(error: &impl std::fmt::Display) -> Answer {
    Answer { ok: false, error: Some(error.to_string()) }
}
