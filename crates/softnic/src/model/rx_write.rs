//! Writing a received frame to its buffers and its descriptors back (datasheet 7.1.5, 7.1.6).

use super::Io;
use super::queue::{RingState, State};
use crate::dma::{Hint, Unmapped};
use crate::fault::RxFaults;
use crate::violation::{Ring, Violation};

const DD: u64 = 1;
const EOP: u64 = 2;
const VP: u64 = 8;

/// One receive queue.
#[derive(Clone, Debug, Default)]
pub(super) struct RxQueue {
    pub(super) ring: RingState,
    /// Bytes of a buffer.
    pub(super) buffer: u32,
    pub(super) legacy: bool,
    pub(super) drop_en: bool,
    pub(super) vlan_strip: bool,
    /// Statistics slot (RQSMR).
    pub(super) slot: usize,
    /// Interrupt vector as a bit.
    pub(super) vectors: u64,
    /// Tail beyond the ring that was reported last.
    pub(super) bad_tail: u32,
    pub(super) complained: bool,
    ring_hint: Hint,
    buffer_hint: Hint,
    /// A write-back held back by a fault.
    held: Option<(u32, u64, u64)>,
}

/// What the descriptor tells about a frame besides its length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Annotation {
    /// Dword 0 of the write-back: packet type and RSS type.
    pub(super) low: u32,
    /// Dword 1: the RSS hash.
    pub(super) hash: u32,
    /// The stripped VLAN tag.
    pub(super) tag: Option<u16>,
}

impl RxQueue {
    /// Descriptors that a frame of so many bytes takes.
    #[inline(always)]
    pub(super) fn descriptors_for(&self, bytes: usize) -> u32 {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        if bytes <= self.buffer { 1 } else { bytes.div_ceil(self.buffer.max(1)) }
    }

    /// Writes a frame to the buffers at the head, which must be available. False if memory was not mapped.
    #[inline]
    pub(super) fn deliver(
        &mut self,
        io: &mut Io<'_>,
        number: u16,
        bytes: &[u8],
        annotation: Annotation,
        faults: &mut RxFaults,
    ) -> bool {
        let mut rest = bytes;
        loop {
            let (part, after) = rest.split_at(rest.len().min(self.buffer as usize));
            rest = after;
            if let Err((what, Unmapped(iova))) = self.one(io, part, annotation, rest.is_empty(), faults) {
                io.checks.report(Violation::UnmappedDma { ring: Ring::Rx(number), what, iova });
                self.ring.state = State::Faulted;
                return false;
            }
            if rest.is_empty() {
                return true;
            }
        }
    }

    /// Fills one buffer and writes its descriptor back.
    #[inline]
    fn one(
        &mut self,
        io: &mut Io<'_>,
        part: &[u8],
        annotation: Annotation,
        last: bool,
        faults: &mut RxFaults,
    ) -> Result<(), (&'static str, Unmapped)> {
        let index = self.ring.head;
        let at = self.ring.address(index);
        let descriptor = io.memory.descriptor(&mut self.ring_hint, at).map_err(|at| ("descriptor", at))?;
        let address = descriptor.low();
        let buffer = if self.legacy { address } else { address & !1 };
        io.memory.write(&mut self.buffer_hint, buffer, part).map_err(|at| ("receive buffer", at))?;
        if io.checks.strict() {
            io.posted.receive_done(buffer);
        }
        let status = DD | if last { EOP } else { 0 } | if annotation.tag.is_some() { VP } else { 0 };
        let (length, tag) = (part.len() as u64 & 0xFFFF, u64::from(annotation.tag.unwrap_or(0)));
        let mut high = tag << 48 | length << 32 | status;
        if faults.any {
            high = faults.spoil(high, last);
        }
        let low = u64::from(annotation.hash) << 32 | u64::from(annotation.low);
        let (low, high) = if self.legacy { (address, legacy(high)) } else { (low, high) };
        self.ring.head = self.ring.after(index, 1);
        if faults.out_of_order {
            return self.swap_pairs(io, (index, low, high));
        }
        descriptor.write_back(low, high);
        Ok(())
    }

    /// Fault: holds every other write-back until the next one is done.
    fn swap_pairs(&mut self, io: &mut Io<'_>, now: (u32, u64, u64)) -> Result<(), (&'static str, Unmapped)> {
        let Some(earlier) = self.held.take() else {
            self.held = Some(now);
            return Ok(());
        };
        for (index, low, high) in [now, earlier] {
            let at = self.ring.address(index);
            let descriptor = io.memory.descriptor(&mut self.ring_hint, at).map_err(|at| ("descriptor", at))?;
            descriptor.write_back(low, high);
        }
        Ok(())
    }
}

/// Quadword 1 in the legacy layout (7.1.5): length, checksum, status, errors, VLAN tag.
fn legacy(high: u64) -> u64 {
    let errors = high >> 29 & 1;
    (high >> 32 & 0xFFFF) | (high & 0xFF) << 32 | errors << 40 | (high >> 48) << 48
}
