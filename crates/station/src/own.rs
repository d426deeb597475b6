//! The addresses of a station, and whether they are its own (RFC 4862, 5.4; RFC 5227).

use crate::InterfaceAddress;
use std::time::Duration;

/// How long others have to object (`RETRANS_TIMER` of RFC 4861, section 10).
const PROBE: Duration = Duration::from_secs(1);

/// An address, and what is known of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own {
    pub(crate) address: InterfaceAddress,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Nobody was asked yet.
    New,
    /// Others may object until then. It is used already (RFC 4429).
    Probing(Duration),
    Ours,
    /// Of another station.
    Duplicate([u8; 6]),
}

/// What is to be said of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Say {
    /// Whether somebody else has it.
    Probe,
    /// That it is here.
    Announce,
}

impl Own {
    pub(crate) fn new(address: InterfaceAddress) -> Self {
        Self { address, state: State::New }
    }

    /// What is to be said now, if anything.
    pub(crate) fn due(&mut self, now: Duration) -> Option<Say> {
        match self.state {
            State::New => {
                self.state = State::Probing(now.saturating_add(PROBE));
                Some(Say::Probe)
            }
            State::Probing(until) if now >= until => {
                self.state = State::Ours;
                Some(Say::Announce)
            }
            _ => None,
        }
    }

    /// Another station has the address. Later than in the first second that changes nothing: whoever sends such a frame would have it.
    pub(crate) fn contested(&mut self, mac: [u8; 6]) {
        if matches!(self.state, State::New | State::Probing(_)) {
            self.state = State::Duplicate(mac);
        }
    }

    pub(crate) fn is_probing(&self) -> bool {
        matches!(self.state, State::Probing(_))
    }

    pub(crate) fn duplicate(&self) -> Option<[u8; 6]> {
        match self.state {
            State::Duplicate(mac) => Some(mac),
            _ => None,
        }
    }
}
