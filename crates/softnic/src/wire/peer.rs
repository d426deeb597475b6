//! `wire=peer:NAME`: two soft NICs of this process, back to back.

use super::{FrameFifo, ImpairedWire, Knobs, Sent, Wire};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Frames under way in each direction before a sender waits, or a receiver misses.
const DEPTH: usize = 1024;
/// Frames a receiver takes over at once.
const GULP: usize = 128;

/// A cable with an end for each of two devices.
#[derive(Debug)]
pub(crate) struct Cable {
    names: [String; 2],
    ends: Mutex<Ends>,
}

#[derive(Debug, Default)]
struct Ends {
    attached: [bool; 2],
    /// Whether the laser of an end is off.
    dark: [bool; 2],
    receiving: [bool; 2],
    /// Frames on the way to each end.
    arriving: [FrameFifo; 2],
    missed: [u64; 2],
    drop: bool,
}

impl Cable {
    pub(crate) fn new(names: [String; 2]) -> Arc<Self> {
        Arc::new(Self { names, ends: Mutex::default() })
    }

    /// The end that bears a name, and the name at the other end.
    pub(crate) fn end_of(&self, name: &str) -> Option<(usize, &str)> {
        let end = self.names.iter().position(|other| other == name)?;
        Some((end, &self.names[1 - end]))
    }

    fn ends(&self) -> MutexGuard<'_, Ends> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One device's end of a cable.
#[derive(Debug)]
pub(crate) struct PeerWire {
    cable: Arc<Cable>,
    end: usize,
    inbox: FrameFifo,
    drop: bool,
    missed: u64,
}

impl PeerWire {
    /// Plugs in. With `drop`, a receiver that is too slow misses frames; otherwise the sender waits.
    pub(crate) fn attach(cable: Arc<Cable>, end: usize, drop: bool) -> Self {
        let mut ends = cable.ends();
        (ends.attached[end], ends.dark[end]) = (true, false);
        ends.arriving[end].clear();
        ends.drop |= drop;
        let drop = ends.drop;
        std::mem::drop(ends);
        Self { cable, end, inbox: FrameFifo::default(), drop, missed: 0 }
    }

    /// Plugs in, with what the cable does to the frames that this end sends.
    pub(crate) fn plug(cable: Arc<Cable>, end: usize, drop: bool, knobs: Option<Knobs>) -> Box<dyn Wire> {
        let wire = Self::attach(cable, end, drop);
        match knobs {
            Some(knobs) => Box::new(ImpairedWire::new(wire, knobs)),
            None => Box::new(wire),
        }
    }

    /// Whether somebody receives at the other end.
    pub(crate) fn reaches(&self) -> bool {
        let other = 1 - self.end;
        let ends = self.cable.ends();
        ends.attached[other] && ends.receiving[other]
    }

    /// The names of this end and of the other.
    pub(crate) fn names(&self) -> [&str; 2] {
        [self.end, 1 - self.end].map(|end| self.cable.names[end].as_str())
    }
}

impl Wire for PeerWire {
    fn poll(&mut self, receiving: bool, room: usize) {
        let mut ends = self.cable.ends();
        let ends = &mut *ends;
        ends.receiving[self.end] = receiving;
        self.drop = ends.drop;
        let arriving = &mut ends.arriving[self.end];
        if !receiving {
            arriving.clear();
            self.inbox.clear();
            return;
        }
        let limit = if self.drop { usize::MAX } else { GULP };
        while self.inbox.len() < limit
            && let Some(frame) = arriving.front()
        {
            if !self.drop || self.inbox.bytes() + frame.len() <= room {
                self.inbox.push(frame);
            } else {
                self.missed += 1;
            }
            arriving.pop();
        }
        self.missed += std::mem::take(&mut ends.missed[self.end]);
    }

    fn front(&mut self) -> Option<&[u8]> {
        self.inbox.front()
    }

    fn pop(&mut self) {
        self.inbox.pop();
    }

    fn held(&self) -> usize {
        if self.drop { self.inbox.bytes() } else { 0 }
    }

    fn missed(&mut self) -> u64 {
        std::mem::take(&mut self.missed)
    }

    fn may_drop(&self) -> bool {
        self.drop
    }

    fn transmit(&mut self, frame: &[u8]) -> Sent {
        let mut ends = self.cable.ends();
        let other = 1 - self.end;
        if !ends.attached[other] || !ends.receiving[other] {
            return Sent::Lost;
        }
        if ends.arriving[other].len() >= DEPTH {
            if !ends.drop {
                return Sent::Full;
            }
            ends.missed[other] += 1;
            return Sent::Yes;
        }
        ends.arriving[other].push(frame);
        Sent::Yes
    }

    fn carrier(&self) -> bool {
        let (ends, other) = (self.cable.ends(), 1 - self.end);
        ends.attached[other] && !ends.dark[other]
    }

    fn set_light(&mut self, on: bool) {
        self.cable.ends().dark[self.end] = !on;
    }

    fn no_carrier(&self) -> Option<String> {
        let other = 1 - self.end;
        self.cable.ends().dark[other].then(|| format!("the laser of {} is off", self.cable.names[other]))
    }

    fn missing_peer(&self) -> Option<String> {
        let other = 1 - self.end;
        (!self.cable.ends().attached[other]).then(|| self.cable.names[other].clone())
    }
}

impl Drop for PeerWire {
    fn drop(&mut self) {
        let mut ends = self.cable.ends();
        (ends.attached[self.end], ends.dark[self.end]) = (false, false);
        ends.receiving[self.end] = false;
        ends.arriving[self.end].clear();
    }
}
