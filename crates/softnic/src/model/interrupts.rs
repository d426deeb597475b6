//! Interrupt causes, masks and delivery (datasheet 7.3, 8.2.3.5). Intervals (EITR) are stored but not waited for:
//! a vector fires at most once a step.

use super::map::{self, RegisterFile};

/// EICR.LSC: link status change.
pub(super) const LSC: u32 = 1 << 20;
/// EICR.RX_MISS: a frame was missed.
pub(super) const RX_MISS: u32 = 1 << 17;

const QUEUES: u32 = 0xFFFF;
const OCD_KEEPS: u32 = 0xC000_FFFF;
const GPIE_MSIX: u32 = 1 << 4;
const GPIE_OCD: u32 = 1 << 5;
const GPIE_EIAME: u32 = 1 << 30;

/// Where a model's interrupts go.
pub(crate) trait InterruptSink: Send {
    /// Fires MSI-X vector `vector` once.
    fn fire(&mut self, vector: u16);
}

/// Causes and masks.
#[derive(Default)]
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
    sink: Option<Box<dyn InterruptSink>>,
}

impl Interrupts {
    pub(super) fn connect(&mut self, sink: Box<dyn InterruptSink>) {
        self.sink = Some(sink);
    }

    pub(super) fn disconnect(&mut self) {
        self.sink = None;
    }

    pub(super) fn reset(&mut self) {
        *self = Self { sink: self.sink.take(), ..Self::default() };
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

    /// Fires what is pending and not masked.
    #[inline]
    pub(super) fn deliver(&mut self, regs: &RegisterFile) {
        if self.pending & self.vector_mask != 0 || self.other_pending & self.other_mask != 0 {
            self.fire(regs);
        }
    }

    fn fire(&mut self, regs: &RegisterFile) {
        let gpie = regs.get(map::GPIE);
        let other = self.other_pending & self.other_mask;
        let mut vectors = self.pending & self.vector_mask;
        self.pending &= !vectors;
        self.other_pending &= !other;
        if gpie & GPIE_MSIX == 0 {
            self.send(1);
            return;
        }
        if other != 0 {
            vectors |= vector_bit(regs.get(map::IVAR_MISC) >> 8);
        }
        self.send(vectors);
        self.eicr &= !(self.eiac & (low(vectors) & QUEUES | other));
        if gpie & GPIE_EIAME != 0 {
            self.vector_mask &= !(self.vector_auto_mask & vectors);
            self.other_mask &= !(self.other_auto_mask & other);
        }
    }

    fn send(&mut self, mut vectors: u64) {
        let Some(sink) = &mut self.sink else { return };
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
            map::EIMS_EX => self.vector_mask |= wide,
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

fn low(bits: u64) -> u32 {
    u32::try_from(bits & 0xFFFF_FFFF).unwrap_or(0)
}

fn high(bits: u64) -> u32 {
    low(bits >> 32)
}
