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
    pub(super) number: u16,
    pub(super) ring: RingState,
    /// The tail, as it was last looked at.
    pub(super) tail: u32,
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
    /// Quadword 0 of descriptors fetched ahead: those from `head` on, `fetched[next..]`.
    fetched: Vec<u64>,
    next: usize,
    /// Write-backs of the descriptors from `report` on, not done yet.
    staged: Vec<(u64, u64)>,
    report: u32,
}

/// Most descriptors fetched, and written back, at once. The driver polls the descriptors from another core: going over
/// them in one sweep moves each cache line once.
const SWEEP: usize = 32;

/// What the descriptor tells about a frame besides its length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Annotation {
    /// Dword 0 of the write-back: packet type and RSS type.
    pub(super) low: u32,
    /// Dword 1: the RSS hash, or sum and identification of a fragment.
    pub(super) hash: u32,
    /// Checksum status and errors, in quadword 1 of the last descriptor.
    pub(super) sums: u64,
    /// Whether the frame has a VLAN tag, stripped or not.
    pub(super) vlan: bool,
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

    /// Whether there are descriptors for so many bytes up to the tail, which is looked at if need be. What lies in memory that
    /// was mapped after this step began has to wait for the next one.
    #[inline]
    pub(super) fn has_room(&mut self, io: &Io<'_>, needed: u32) -> bool {
        if self.ring.available(self.tail) >= needed {
            return true;
        }
        let tail = io.doorbells.get(Ring::Rx(self.number));
        if !io.memory.is_stale() {
            self.tail = tail;
        }
        self.ring.available(self.tail) >= needed
    }

    /// Writes a frame to the buffers at the head, which must be available. False if memory was not mapped.
    #[inline]
    pub(super) fn deliver(
        &mut self,
        io: &mut Io<'_>,
        bytes: &[u8],
        annotation: Annotation,
        faults: &mut RxFaults,
    ) -> bool {
        let mut rest = bytes;
        loop {
            let (part, after) = rest.split_at(rest.len().min(self.buffer as usize));
            rest = after;
            if let Err((what, Unmapped(iova))) = self.one(io, part, annotation, rest.is_empty(), faults) {
                self.fault(io, what, iova);
                return false;
            }
            if rest.is_empty() {
                return true;
            }
        }
    }

    /// A DMA access failed: the queue stops.
    pub(super) fn fault(&mut self, io: &mut Io<'_>, what: &'static str, iova: u64) {
        self.ring.state = State::Faulted;
        io.checks.report(Violation::UnmappedDma { ring: Ring::Rx(self.number), what, iova });
    }

    /// Fills one buffer and stages its write-back.
    #[inline]
    fn one(
        &mut self,
        io: &mut Io<'_>,
        part: &[u8],
        annotation: Annotation,
        last: bool,
        faults: &mut RxFaults,
    ) -> Result<(), (&'static str, Unmapped)> {
        if self.next == self.fetched.len() {
            self.fetch(io).map_err(|at| ("descriptor", at))?;
        }
        let address = self.fetched.get(self.next).copied().unwrap_or(0);
        let buffer = if self.legacy { address } else { address & !1 };
        io.memory.write(&mut self.buffer_hint, buffer, part).map_err(|at| ("receive buffer", at))?;
        if io.checks.strict() {
            io.posted.receive_done(buffer);
        }
        let status = DD | if last { EOP | annotation.sums } else { 0 } | if annotation.vlan { VP } else { 0 };
        let (length, tag) = (part.len() as u64 & 0xFFFF, u64::from(annotation.tag.unwrap_or(0)));
        let mut high = tag << 48 | length << 32 | status;
        if faults.any {
            high = faults.spoil(high, last);
        }
        let low = u64::from(annotation.hash) << 32 | u64::from(annotation.low);
        self.staged.push(if self.legacy { (address, legacy(low, high)) } else { (low, high) });
        self.next += 1;
        self.ring.head = self.ring.after(self.ring.head, 1);
        if self.staged.len() >= SWEEP {
            self.write_back(io, faults)?;
        }
        Ok(())
    }

    /// Fetches descriptors from the head on.
    fn fetch(&mut self, io: &Io<'_>) -> Result<(), Unmapped> {
        self.fetched.clear();
        self.next = 0;
        let mut index = self.ring.head;
        while self.fetched.len() < SWEEP && index != self.tail {
            let descriptor = io.memory.descriptor(&mut self.ring_hint, self.ring.address(index))?;
            self.fetched.push(descriptor.low());
            index = self.ring.after(index, 1);
        }
        Ok(())
    }

    /// Writes back what is staged.
    #[inline]
    pub(super) fn write_back(&mut self, io: &Io<'_>, faults: &RxFaults) -> Result<(), (&'static str, Unmapped)> {
        if faults.out_of_order {
            // Pairs, the second first; an odd one stays until it has a partner.
            self.staged.chunks_exact_mut(2).for_each(|pair| pair.swap(0, 1));
        }
        let odd = faults.out_of_order && self.staged.len() % 2 == 1;
        let count = self.staged.len() - usize::from(odd);
        let from = self.report;
        for at in 0..count {
            let n = u32::try_from(if faults.out_of_order { at ^ 1 } else { at }).unwrap_or(0);
            let (low, high) = self.staged[at];
            let address = self.ring.address(self.ring.after(from, n));
            let descriptor = io.memory.descriptor(&mut self.ring_hint, address).map_err(|at| ("descriptor", at))?;
            descriptor.write_back(low, high);
        }
        self.staged.drain(..count);
        self.report = self.ring.after(from, u32::try_from(count).unwrap_or(0));
        Ok(())
    }
}

/// Quadword 1 in the legacy layout (7.1.5): length, fragment checksum, status, errors (RXE 0, TCPE 6, IPE 7), VLAN tag.
fn legacy(low: u64, high: u64) -> u64 {
    let errors = high >> 29 & 1 | (high >> 30 & 3) << 6;
    high >> 32 & 0xFFFF | low >> 48 << 16 | (high & 0xFF) << 32 | errors << 40 | (high >> 48) << 48
}
