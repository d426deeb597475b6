//! The device's side of a virtqueue, one descriptor at a time.

use super::memory::Memory;
use crate::Features;
use crate::transport::QueueSetup;
use std::sync::atomic::Ordering;

/// A part of a chain, as described by its descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its address, as the device sees it.
    pub address: u64,
    /// Its length in bytes.
    pub len: u32,
    /// Whether the device may write to it.
    pub writable: bool,
}

/// A chain that the driver made available.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// The id by which it is reported.
    pub id: u16,
    /// Its parts, in order.
    pub parts: Vec<Part>,
}

impl Chain {
    /// Returns the number of descriptors.
    #[must_use]
    pub fn slots(&self) -> u16 {
        u16::try_from(self.parts.len()).unwrap_or(u16::MAX)
    }
}

/// Descriptor flags (sections 2.7.5 and 2.8.13).
const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
const AVAIL: u16 = 1 << 7;
const USED: u16 = 1 << 15;

#[derive(Debug)]
pub(super) struct Queue {
    setup: QueueSetup,
    event_idx: bool,
    in_order: bool,
    wants_notifications: bool,
    pub(super) notifications: usize,
    /// Next entry of the available ring, or place in a packed ring.
    next: u16,
    next_wrap: bool,
    used: u16,
    used_wrap: bool,
    /// Ids and lengths of the chains that it has taken and not reported.
    taken: Vec<(u16, u16)>,
    /// It has reported what it had not taken. So it may have written over what the driver has made available in a packed ring, and the
    /// driver may have back what the ring still shows as available.
    astray: bool,
}

impl Queue {
    pub(super) fn new(setup: &QueueSetup, features: Features, wants_notifications: bool, memory: &Memory) -> Self {
        let queue = Self {
            setup: *setup,
            event_idx: features.contains(Features::EVENT_IDX),
            in_order: features.contains(Features::IN_ORDER),
            wants_notifications,
            notifications: 0,
            next: 0,
            next_wrap: true,
            used: 0,
            used_wrap: true,
            taken: Vec::new(),
            astray: false,
        };
        queue.ask(memory);
        queue
    }

    fn size(&self) -> u64 {
        self.setup.size.into()
    }

    pub(super) fn next(&mut self, memory: &Memory) -> Option<Chain> {
        let chain = if self.setup.packed { self.next_packed(memory) } else { self.next_split(memory) };
        self.taken.extend(chain.iter().map(|chain| (chain.id, chain.slots())));
        self.ask(memory);
        chain
    }

    /// Takes the next chain if its memory is the device's for sure, which is so until it is reported or the device is reset.
    pub(super) fn next_owned(&mut self, memory: &Memory) -> Option<Chain> {
        if self.astray { None } else { self.next(memory) }
    }

    /// Returns the vector to interrupt by, if the driver wants to be.
    pub(super) fn report(&mut self, memory: &Memory, id: u32, len: u32, slots: u16) -> Option<u16> {
        let (used, wrap) = (self.used, self.used_wrap);
        // The ids of a split ring stand for whole chains, and those of a packed one have 16 bits.
        let is_it = |chain: &(u16, u16)| match self.setup.packed {
            true => u32::from(chain.0) == id & 0xffff && chain.1 == slots,
            false => u32::from(chain.0) == id,
        };
        match self.taken.iter().position(is_it) {
            Some(place) => drop(self.taken.swap_remove(place)),
            None => self.astray = true,
        }
        if self.setup.packed {
            let id = u16::try_from(id & 0xffff).unwrap_or_default();
            let address = self.setup.descriptors + 16 * u64::from(self.used);
            let flags = if self.used_wrap { AVAIL | USED } else { 0 };
            let word = u64::from(len) | u64::from(id) << 32 | u64::from(flags) << 48;
            memory.long(address + 8).store(word.to_le(), Ordering::Release);
            for _ in 0..slots {
                (self.used, self.used_wrap) = self.after(self.used, self.used_wrap);
            }
        } else {
            let entry = self.setup.device + 4 + 8 * (u64::from(self.used) % self.size());
            memory.word(entry).store(id.to_le(), Ordering::Relaxed);
            memory.word(entry + 4).store(len.to_le(), Ordering::Relaxed);
            self.advance_used(memory, 1);
        }
        self.setup.vector.filter(|_| self.wants_interrupt(memory, used, wrap))
    }

    /// Whether the driver wants to hear of the use of what lies at `used` (sections 2.7.7 and 2.8.10).
    fn wants_interrupt(&self, memory: &Memory, used: u16, wrap: bool) -> bool {
        std::sync::atomic::fence(Ordering::SeqCst);
        if self.setup.packed {
            return match memory.load_half(self.setup.driver + 2) {
                0 => true,
                2 => self.event_idx && memory.load_half(self.setup.driver) == used | u16::from(wrap) << 15,
                _ => false,
            };
        }
        if self.event_idx {
            return memory.load_half(self.setup.driver + 4 + 2 * self.size()) == used;
        }
        memory.load_half(self.setup.driver) & 1 == 0
    }

    pub(super) fn skip_used(&mut self, memory: &Memory, by: u16) {
        if !self.setup.packed {
            self.astray = true;
            self.advance_used(memory, by);
        }
    }

    fn advance_used(&mut self, memory: &Memory, by: u16) {
        self.used = self.used.wrapping_add(by);
        memory.half(self.setup.device + 2).store(self.used.to_le(), Ordering::Release);
    }

    pub(super) fn scribble(&mut self, memory: &Memory) {
        for at in 0..self.size() {
            let address = self.setup.descriptors + 16 * at;
            memory.long(address).store(u64::MAX, Ordering::Relaxed);
            memory.word(address + 8).store(u32::MAX, Ordering::Relaxed);
            if !self.setup.packed {
                memory.word(address + 12).store(u32::MAX, Ordering::Relaxed);
            }
        }
    }

    fn next_split(&mut self, memory: &Memory) -> Option<Chain> {
        if memory.load_half(self.setup.driver + 2) == self.next {
            return None;
        }
        let id = memory.load_half(self.setup.driver + 4 + 2 * (u64::from(self.next) % self.size()));
        self.next = self.next.wrapping_add(1);
        let mut parts = Vec::new();
        let mut at = id;
        loop {
            assert!(u64::from(at) < self.size() && parts.len() < self.setup.size.into(), "a chain that leads astray");
            let (part, flags, next) = descriptor(memory, self.setup.descriptors + 16 * u64::from(at));
            parts.push(part);
            if flags & NEXT == 0 {
                return Some(Chain { id, parts });
            }
            // Section 2.7.5.2.
            let in_line = u64::from(next) == (u64::from(at) + 1) % self.size();
            assert!(in_line || !self.in_order, "a chain from {at} to {next}, where order was agreed on");
            at = next;
        }
    }

    fn next_packed(&mut self, memory: &Memory) -> Option<Chain> {
        let mut parts = Vec::new();
        let (mut at, mut wrap) = (self.next, self.next_wrap);
        loop {
            let address = self.setup.descriptors + 16 * u64::from(at);
            let flags = memory.load_half(address + 14);
            let available = (flags & AVAIL != 0) == wrap && (flags & USED != 0) != wrap;
            if !available {
                assert!(parts.is_empty() || self.astray, "a chain that is available in part");
                return None;
            }
            // In a packed ring the id stands where a split ring has the flags, and the flags behind it.
            let (part, id, flags) = packed_descriptor(memory, address);
            parts.push(part);
            (at, wrap) = self.after(at, wrap);
            if flags & NEXT == 0 {
                (self.next, self.next_wrap) = (at, wrap);
                return Some(Chain { id, parts });
            }
        }
    }

    fn after(&self, at: u16, wrap: bool) -> (u16, bool) {
        if at + 1 == self.setup.size { (0, !wrap) } else { (at + 1, wrap) }
    }

    /// Says which notifications are wanted: of the next chain, or none.
    fn ask(&self, memory: &Memory) {
        if self.setup.packed {
            let (off, flags) = match (self.wants_notifications, self.event_idx) {
                (false, _) => (0, 1),
                (true, false) => (0, 0),
                (true, true) => (self.next | u16::from(self.next_wrap) << 15, 2),
            };
            memory.word(self.setup.device).store((u32::from(off) | flags << 16).to_le(), Ordering::SeqCst);
        } else if self.event_idx {
            let event = if self.wants_notifications { self.next } else { self.next.wrapping_sub(1) };
            memory.half(self.setup.device + 4 + 8 * self.size()).store(event.to_le(), Ordering::SeqCst);
        } else {
            memory.half(self.setup.device).store(u16::from(!self.wants_notifications).to_le(), Ordering::SeqCst);
        }
    }
}

fn descriptor(memory: &Memory, address: u64) -> (Part, u16, u16) {
    let flags = memory.load_half(address + 12);
    assert!(flags & !(NEXT | WRITE) == 0, "flags that were not agreed on: {flags:#x}");
    (part(memory, address, flags), flags, memory.load_half(address + 14))
}

fn packed_descriptor(memory: &Memory, address: u64) -> (Part, u16, u16) {
    let flags = memory.load_half(address + 14);
    assert!(flags & INDIRECT == 0, "indirect descriptors were not agreed on");
    (part(memory, address, flags), memory.load_half(address + 12), flags)
}

fn part(memory: &Memory, address: u64, flags: u16) -> Part {
    Part {
        address: u64::from_le(memory.long(address).load(Ordering::Relaxed)),
        len: u32::from_le(memory.word(address + 8).load(Ordering::Relaxed)),
        writable: flags & WRITE != 0,
    }
}
