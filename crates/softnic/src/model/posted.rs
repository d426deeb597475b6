//! Strict mode only: which memory the driver has given to the device and not got back yet.

use super::Model;
use super::queue::{RingState, State};
use crate::dma::Memory;
use crate::violation::{Ring, TransmitFault, Violation, Violations};
use std::collections::BTreeMap;

/// Buffers in the device's hands, by address.
#[derive(Debug, Default)]
pub(super) struct Posted {
    rx: BTreeMap<u64, (u64, Ring)>,
    tx: BTreeMap<(u64, u16, u32), u64>,
}

/// The longest a single transmit descriptor can be: how far back an overlap may begin.
const LONGEST: u64 = 0x1_0000;

impl Posted {
    pub(super) fn clear(&mut self) {
        self.rx.clear();
        self.tx.clear();
    }

    /// A queue was disabled: its buffers are the driver's again.
    pub(super) fn forget(&mut self, ring: Ring) {
        match ring {
            Ring::Rx(_) => self.rx.retain(|_, (_, owner)| *owner != ring),
            Ring::Tx(number) => self.tx.retain(|(_, queue, _), _| *queue != number),
        }
    }

    pub(super) fn receive_done(&mut self, iova: u64) {
        self.rx.remove(&iova);
    }

    pub(super) fn transmit_done(&mut self, iova: u64, queue: u16, index: u32) {
        self.tx.remove(&(iova, queue, index));
    }

    fn post_receive(&mut self, checks: &mut Violations, ring: Ring, iova: u64, len: u64) {
        if let Some(other) = self.receiving_into(iova, len).or_else(|| self.transmitting_from(iova, len)) {
            checks.report(Violation::BufferPostedTwice { ring, other, iova });
        }
        self.rx.insert(iova, (len, ring));
    }

    fn post_transmit(&mut self, checks: &mut Violations, queue: u16, index: u32, iova: u64, len: u64) {
        if let Some(other) = self.receiving_into(iova, len) {
            checks.report(Violation::BufferPostedTwice { ring: Ring::Tx(queue), other, iova });
        }
        self.tx.insert((iova, queue, index), len);
    }

    fn receiving_into(&self, iova: u64, len: u64) -> Option<Ring> {
        let (start, (size, ring)) = self.rx.range(..iova.saturating_add(len)).next_back()?;
        (start.saturating_add(*size) > iova).then_some(*ring)
    }

    fn transmitting_from(&self, iova: u64, len: u64) -> Option<Ring> {
        let from = (iova.saturating_sub(LONGEST), 0, 0);
        self.tx
            .range(from..(iova.saturating_add(len), 0, 0))
            .find(|((start, _, _), size)| start.saturating_add(**size) > iova)
            .map(|((_, queue, _), _)| Ring::Tx(*queue))
    }
}

impl Model {
    /// Strict mode: looks at the descriptors that doorbells have handed over, before the device works on them.
    pub(super) fn look_ahead(&mut self) {
        if !self.checks.strict() || !self.bus_master || !self.general.dma_allowed(&self.regs) {
            return;
        }
        let (doorbells, memory) = (&*self.doorbells, &self.memory);
        if self.general.receiving(&self.regs) {
            self.rx.gather(&self.regs);
            self.rx.look_ahead(doorbells, (memory, &mut self.checks, &mut self.posted));
        }
        self.tx.gather(&self.regs);
        self.tx.look_ahead(doorbells, (memory, &mut self.checks, &mut self.posted));
    }
}

/// What looking ahead takes.
pub(super) type Watch<'w> = (&'w Memory, &'w mut Violations, &'w mut Posted);

/// Looks at receive descriptors up to `tail`: not re-armed, or a buffer the device has already.
pub(super) fn receive(
    number: u16,
    ring: &mut RingState,
    buffer: u64,
    legacy: bool,
    tail: u32,
    (memory, checks, posted): Watch<'_>,
) {
    let mut hint = 0;
    while ring.state == State::Enabled && tail < ring.descriptors && ring.fetched != tail {
        let (index, at) = (ring.fetched, Ring::Rx(number));
        let Ok(descriptor) = memory.descriptor(&mut hint, ring.address(index)) else {
            checks.report(Violation::UnmappedDma { ring: at, what: "descriptor", iova: ring.address(index) });
            return;
        };
        let (low, high) = (descriptor.low(), descriptor.high());
        if high & if legacy { 1 << 32 } else { 1 } != 0 {
            checks.report(Violation::ReceiveDescriptorDone { queue: number, index });
        }
        let iova = if legacy { low } else { low & !1 };
        posted.post_receive(checks, at, iova, buffer);
        ring.fetched = ring.after(index, 1);
    }
}

/// Looks at transmit descriptors up to `tail`: DD set, no length, or a buffer that is being received into.
pub(super) fn transmit(number: u16, ring: &mut RingState, tail: u32, (memory, checks, posted): Watch<'_>) {
    let mut hint = 0;
    while ring.state == State::Enabled && tail < ring.descriptors && ring.fetched != tail {
        let index = ring.fetched;
        let Ok(descriptor) = memory.descriptor(&mut hint, ring.address(index)) else {
            let iova = ring.address(index);
            checks.report(Violation::UnmappedDma { ring: Ring::Tx(number), what: "descriptor", iova });
            return;
        };
        let (low, high) = (descriptor.low(), descriptor.high());
        if !super::tx_frame::is_context(high) {
            if high & super::tx_frame::DD != 0 {
                let cause = TransmitFault::Done;
                checks.report(Violation::TransmitDescriptor { queue: number, index, cause });
            }
            if high & 0xFFFF != 0 {
                posted.post_transmit(checks, number, index, low, high & 0xFFFF);
            }
        }
        ring.fetched = ring.after(index, 1);
    }
}
