//! Interrupt causes, masks, intervals and delivery (datasheet 7.3, 8.2.3.5). A vector fires at most once a step, and at most
//! once in the interval that its EITR sets.

use super::map::{self, RegisterFile};
use crate::violation::OnViolation;
use std::time::Instant;

/// EICR.LSC: link status change.
pub(super) const LSC: u32 = 1 << 20;
/// EICR.RX_MISS: a frame was missed.
pub(super) const RX_MISS: u32 = 1 << 17;

const QUEUES: u32 = 0xFFFF;
const OCD_KEEPS: u32 = 0xC000_FFFF;
const GPIE_MSIX: u32 = 1 << 4;
const GPIE_OCD: u32 = 1 << 5;
const GPIE_EIAME: u32 = 1 << 30;
/// EITR.CNT_WDIS: the counter stays as it is.
const CNT_WDIS: u32 = 1 << 31;
/// Nanoseconds of one unit of EITR.ITR_INTERVAL; the counter is read and written in units of four.
const INTERVAL_UNIT: u64 = 2048;
/// Nanoseconds of a tick, for devices that have no other time.
const TICK: u64 = 1000;

/// Where a model's interrupts go.
pub(crate) trait InterruptSink: Send {
    /// Fires MSI-X vector `vector` once.
    fn fire(&mut self, vector: u16);
}

/// Causes and masks.
pub(super) struct Interrupts {
    eicr: u32,
    /// EIMS bits 31:16.
    other_mask: u32,
    /// EIMS_EX, one bit a vector; bits 15:0 are EIMS bits 15:0 too.
    vector_mask: u64,
    eiac: u32,
    other_auto_mask: u32,
    vector_auto_mask: u64,
    /// Vectors with an event that has not been delivered.
    pending: u64,
    /// Causes 31:16 that have not been delivered.
    other_pending: u32,
    /// When each vector may fire again, in nanoseconds.
    ready: [u64; 64],
    /// Vectors that never fire, and those that fire without a cause, by faults.
    lost: u64,
    storming: u64,
    /// Where real time begins; `None` if ticks are all the time there is.
    clock: Option<Instant>,
    sink: Option<Box<dyn InterruptSink>>,
}

impl Interrupts {
    /// Tests that move the device by hand have its ticks for time.
    pub(super) fn new(mode: OnViolation) -> Self {
        let clock = (mode == OnViolation::Count).then(Instant::now);
        Self {
            eicr: 0,
            other_mask: 0,
            vector_mask: 0,
            eiac: 0,
            other_auto_mask: 0,
            vector_auto_mask: 0,
            pending: 0,
            other_pending: 0,
            ready: [0; 64],
            lost: 0,
            storming: 0,
            clock,
            sink: None,
        }
    }

    pub(super) fn connect(&mut self, sink: Box<dyn InterruptSink>) {
        self.sink = Some(sink);
    }

    pub(super) fn disconnect(&mut self) {
        self.sink = None;
    }

    pub(super) fn reset(&mut self) {
        *self = Self {
            sink: self.sink.take(),
            clock: self.clock,
            lost: self.lost,
            storming: self.storming,
            ..Self::new(OnViolation::Record)
        };
    }

    /// A queue whose IVAR entry leads to the vectors in `vectors` (one bit, or none) has completed something.
    #[inline(always)]
    pub(super) fn queue_event(&mut self, vectors: u64) {
        self.pending |= vectors;
        self.eicr |= low(vectors) & QUEUES;
    }

    /// One of the causes 31:16 has occurred.
    pub(super) fn raise(&mut self, cause: u32) {
        self.eicr |= cause;
        self.other_pending |= cause & !QUEUES;
    }

    /// Fires what is pending, not masked, and due.
    #[inline]
    pub(super) fn deliver(&mut self, regs: &RegisterFile, ticks: u64) {
        self.pending |= self.storming;
        if self.pending & self.vector_mask != 0 || self.other_pending & self.other_mask != 0 {
            self.fire(regs, ticks);
        }
    }

    fn fire(&mut self, regs: &RegisterFile, ticks: u64) {
        let gpie = regs.get(map::GPIE);
        let mut other = self.other_pending & self.other_mask;
        let mut vectors = self.pending & self.vector_mask;
        if gpie & GPIE_MSIX == 0 {
            if self.due(regs, 1, ticks) != 0 {
                self.pending &= !vectors;
                self.other_pending &= !other;
                self.send(1);
            }
            return;
        }
        let other_vector = vector_bit(regs.get(map::IVAR_MISC) >> 8);
        let due = self.due(regs, vectors | if other != 0 { other_vector } else { 0 }, ticks);
        vectors &= due;
        // Causes that lead to no vector are nobody's.
        if other_vector != 0 && other_vector & due == 0 {
            other = 0;
        }
        self.pending &= !vectors;
        self.other_pending &= !other;
        self.send(due);
        self.eicr &= !(self.eiac & (low(due) & QUEUES | other));
        if gpie & GPIE_EIAME != 0 {
            self.vector_mask &= !(self.vector_auto_mask & due);
            self.other_mask &= !(self.other_auto_mask & other);
        }
    }

    /// Those of `vectors` whose interval is over; it begins anew for them (7.3.2.1).
    fn due(&mut self, regs: &RegisterFile, mut vectors: u64, ticks: u64) -> u64 {
        let mut due = 0;
        let now = self.now(ticks);
        while vectors != 0 {
            let vector = vectors.trailing_zeros();
            vectors &= vectors - 1;
            let ready = &mut self.ready[vector as usize % 64];
            if now >= *ready {
                *ready = now + u64::from(interval(regs, vector) >> 3) * INTERVAL_UNIT;
                due |= 1 << vector;
            }
        }
        due
    }

    fn now(&self, ticks: u64) -> u64 {
        match self.clock {
            Some(start) => u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX),
            None => ticks * TICK,
        }
    }

    /// EITR was written: its counter follows, unless CNT_WDIS says otherwise.
    pub(super) fn write_interval(&mut self, offset: u32, value: u32, ticks: u64) {
        let vector =
            if offset < map::EITR_HIGH { (offset - map::EITR) / 4 } else { (offset - map::EITR_HIGH) / 4 + 24 };
        let ready = self.now(ticks) + u64::from(value >> 21 & 0x7F) * 4 * INTERVAL_UNIT;
        if value & CNT_WDIS == 0
            && let Some(slot) = self.ready.get_mut(vector as usize)
        {
            *slot = ready;
        }
    }

    /// Without MSI-X: fires vector 0 if a cause is there that is not masked.
    pub(super) fn reassert(&mut self, regs: &RegisterFile) {
        let mask = self.other_mask | low(self.vector_mask) & QUEUES;
        if regs.get(map::GPIE) & GPIE_MSIX == 0 && self.eicr & mask != 0 {
            self.send(1);
        }
    }

    /// This vector never fires from now on.
    pub(super) fn lose(&mut self, vector: u8) {
        self.lost |= 1 << (vector % 64);
    }

    /// This vector fires without a cause from now on.
    pub(super) fn storm(&mut self, vector: u8) {
        self.storming |= 1 << (vector % 64);
    }

    /// All vectors do what they should from now on.
    pub(super) fn clear_faults(&mut self) {
        (self.lost, self.storming) = (0, 0);
    }

    fn send(&mut self, mut vectors: u64) {
        let Some(sink) = &mut self.sink else { return };
        vectors &= !self.lost;
        while vectors != 0 {
            let vector = vectors.trailing_zeros();
            sink.fire(u16::try_from(vector).unwrap_or(0));
            vectors &= vectors - 1;
        }
    }

    pub(super) fn read(&mut self, regs: &RegisterFile, offset: u32) -> u32 {
        match offset {
            map::EICR => {
                let value = self.eicr;
                let keeps = if regs.get(map::GPIE) & GPIE_OCD != 0 { OCD_KEEPS } else { 0 };
                self.clear(!keeps);
                if regs.get(map::GPIE) & GPIE_MSIX == 0 {
                    self.vector_mask &= !(self.vector_auto_mask & u64::from(QUEUES));
                    self.other_mask &= !self.other_auto_mask;
                }
                value
            }
            map::EICS => self.eicr,
            map::EIAC => self.eiac,
            map::EIMS | map::EIMC => self.other_mask | (low(self.vector_mask) & QUEUES),
            map::EIAM => self.other_auto_mask | (low(self.vector_auto_mask) & QUEUES),
            map::EIMS_EX | map::EIMC_EX => low(self.vector_mask),
            0xAA4 | 0xAB4 => high(self.vector_mask),
            map::EIAM_EX => low(self.vector_auto_mask),
            0xAD4 => high(self.vector_auto_mask),
            map::EICS_EX => low(self.pending),
            0xA94 => high(self.pending),
            _ => 0,
        }
    }

    pub(super) fn write(&mut self, offset: u32, value: u32) {
        let queues = u64::from(value & QUEUES);
        let (wide, wide_high) = (u64::from(value), u64::from(value) << 32);
        match offset {
            map::EICR => self.clear(value),
            map::EICS => {
                self.raise(value & !QUEUES);
                self.queue_event(queues);
            }
            map::EIAC => self.eiac = value,
            map::EIMS => {
                let new = value & !QUEUES & !self.other_mask;
                self.other_mask |= value & !QUEUES;
                self.vector_mask |= queues;
                self.other_pending |= self.eicr & new;
                self.pending |= u64::from(self.eicr & value & QUEUES);
            }
            map::EIMC => {
                self.other_mask &= !value;
                self.vector_mask &= !queues;
            }
            map::EIAM => {
                self.other_auto_mask = value & !QUEUES;
                self.vector_auto_mask = self.vector_auto_mask & !u64::from(QUEUES) | queues;
            }
            map::EICS_EX => self.queue_event(wide),
            0xA94 => self.queue_event(wide_high),
            map::EIMS_EX => {
                self.vector_mask |= wide;
                self.pending |= u64::from(self.eicr & value & QUEUES);
            }
            0xAA4 => self.vector_mask |= wide_high,
            map::EIMC_EX => self.vector_mask &= !wide,
            0xAB4 => self.vector_mask &= !wide_high,
            map::EIAM_EX => self.vector_auto_mask = self.vector_auto_mask >> 32 << 32 | wide,
            0xAD4 => self.vector_auto_mask = u64::from(low(self.vector_auto_mask)) | wide_high,
            _ => {}
        }
    }

    fn clear(&mut self, causes: u32) {
        self.eicr &= !causes;
        self.other_pending &= !causes;
        self.pending &= !u64::from(causes & QUEUES);
    }
}

impl std::fmt::Debug for Interrupts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Interrupts").field("eicr", &self.eicr).finish_non_exhaustive()
    }
}

/// The vector of one byte of an IVAR register as a bit; none if the entry is not valid (8.2.3.5.12).
pub(super) fn vector_bit(entry: u32) -> u64 {
    if entry & 0x80 != 0 { 1 << (entry & 0x3F) } else { 0 }
}

/// The vector of a queue as a bit; `direction` 0 is receive, 1 transmit.
pub(super) fn queue_vector(regs: &RegisterFile, queue: u16, direction: u32) -> u64 {
    let queue = u32::from(queue);
    let entry = regs.get(map::IVAR + 4 * (queue >> 1)) >> (16 * (queue & 1) + 8 * direction);
    vector_bit(entry)
}

/// EITR.ITR_INTERVAL of a vector, in place.
pub(super) fn interval(regs: &RegisterFile, vector: u32) -> u32 {
    let offset = if vector < 24 { map::EITR + 4 * vector } else { map::EITR_HIGH + 4 * (vector - 24) };
    regs.get(offset) & 0xFF8
}

fn low(bits: u64) -> u32 {
    u32::try_from(bits & 0xFFFF_FFFF).unwrap_or(0)
}

fn high(bits: u64) -> u32 {
    low(bits >> 32)
}
