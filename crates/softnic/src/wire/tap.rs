//! `wire=tap:IFNAME`: a TAP interface of the host. What the host sends is received, what is sent the host receives.

use super::{Sent, Wire};
use crate::{Error, WireError};
use ::tap::{LONGEST_FRAME, LONGEST_NAME, State, Tap, Written};
use std::io;

/// Ticks of the time-stamp counter to leave an empty interface alone: about 5 µs.
const PAUSE: u64 = 10_000;
/// Ticks between two looks at the interface's state: about 10 ms.
const LOOK: u64 = 25_000_000;

/// An open TAP interface. It is a cable that is out while the interface is down: then nothing is sent.
#[derive(Debug)]
pub(crate) struct TapWire {
    tap: Tap,
    frame: Vec<u8>,
    len: Option<usize>,
    empty_at: Option<u64>,
    state: State,
    looked_at: u64,
    /// Frames that were still to be sent when their queue was stopped, and those that the interface did not take.
    stranded: u64,
    refused: u64,
    refusal: Option<io::Error>,
}

impl TapWire {
    /// Opens an interface, creating it if there is none of that name.
    pub(crate) fn open(interface: &str) -> Result<Self, Error> {
        check_name(interface)?;
        let tap = Tap::open(interface).map_err(|error| match error {
            ::tap::Error::System { operation, object, source, next } => {
                Error::System { operation, object, source, hint: next }
            }
            other => Error::System {
                operation: "open",
                object: interface.to_owned(),
                source: io::Error::other(other),
                hint: "",
            },
        })?;
        let mut wire = Self {
            tap,
            frame: vec![0; LONGEST_FRAME],
            len: None,
            empty_at: None,
            state: State::Down,
            looked_at: 0,
            stranded: 0,
            refused: 0,
            refusal: None,
        };
        wire.look();
        Ok(wire)
    }

    /// Looks at the state of the interface.
    #[cold]
    fn look(&mut self) {
        self.looked_at = device::tsc::now();
        if self.state == State::Gone {
            return;
        }
        self.state = self.tap.state().unwrap_or(self.state);
        if self.state == State::Gone {
            tracing::error!("the interface {} was deleted; nothing comes or leaves by it any more", self.tap.name());
        }
    }

    fn next(&self) -> String {
        format!("bring it up: ip link set {} up", self.tap.name())
    }
}

/// Whether an interface can have this name.
pub(crate) fn check_name(interface: &str) -> Result<(), Error> {
    if ::tap::is_name(interface) {
        return Ok(());
    }
    Err(Error::BadValue {
        key: "wire",
        value: format!("tap:{interface}"),
        allowed: format!("tap:IFNAME with a name of 1 to {LONGEST_NAME} bytes, none of them %"),
    })
}

impl Wire for TapWire {
    fn poll(&mut self, _receiving: bool, _room: usize) {
        let now = device::tsc::now();
        if self.empty_at.is_some_and(|at| now.wrapping_sub(at) > PAUSE) {
            self.empty_at = None;
        }
        if now.wrapping_sub(self.looked_at) > LOOK {
            self.look();
        }
    }

    fn front(&mut self) -> Option<&[u8]> {
        if self.len.is_none() && self.empty_at.is_none() {
            self.len = self.tap.read(&mut self.frame);
            if self.len.is_none() {
                self.empty_at = Some(device::tsc::now());
            }
        }
        self.len.map(|len| &self.frame[..len])
    }

    fn pop(&mut self) {
        self.len = None;
    }

    fn transmit(&mut self, frame: &[u8]) -> Sent {
        match self.tap.write(frame) {
            Written::Yes => Sent::Yes,
            Written::Full => Sent::Full,
            // The frame stays where it is, as with a cable that is out.
            Written::Down => {
                self.look();
                Sent::Full
            }
            Written::Refused(error) => {
                self.refused += 1;
                self.refusal = Some(error);
                Sent::Lost
            }
        }
    }

    fn carrier(&self) -> bool {
        self.state == State::Up
    }

    fn no_carrier(&self) -> Option<String> {
        let name = self.tap.name();
        match self.state {
            State::Up => None,
            State::Down => Some(format!("the interface {name} is down; {}", self.next())),
            State::Gone => Some(format!("the interface {name} was deleted, or its network namespace; start again")),
        }
    }

    fn is_gone(&self) -> bool {
        self.state == State::Gone
    }

    fn strand(&mut self, frames: u64) {
        self.stranded += frames;
    }

    fn host(&self) -> bool {
        true
    }

    fn finish(&mut self) {
        self.look();
    }

    fn error(&self) -> Option<WireError> {
        let interface = self.tap.name().to_owned();
        let lost =
            |frames, cause: String, next| WireError::NotTaken { interface: interface.clone(), cause, next, frames };
        match &self.refusal {
            _ if self.state == State::Gone => Some(WireError::Gone { interface, frames: self.stranded + self.refused }),
            _ if self.stranded != 0 => Some(lost(self.stranded, "was down".to_owned(), self.next())),
            Some(error) => {
                let cause = format!("did not take them: {error}");
                Some(lost(self.refused, cause, "see to its settings (ip -d link show)".to_owned()))
            }
            None => None,
        }
    }
}
