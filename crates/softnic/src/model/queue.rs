//! What receive and transmit rings have in common: registers, doorbells, enabling and disabling (datasheet 7.1.4, 7.2.1, 8.2.3.8, 8.2.3.9).

use super::map::{self, RegisterFile};
use super::{DeviceId, Event, Model, general, vf};
use crate::doorbells::DoorbellWords;
use crate::violation::{Ring, Violation};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};

/// Receive and transmit queues the device has.
pub(crate) const QUEUES: u16 = 128;
/// Bytes of a descriptor.
pub(super) const DESCRIPTOR: u64 = 16;
/// RXDCTL.EN and TXDCTL.EN.
const ENABLE: u32 = 1 << 25;
const FLUSH: u32 = 1 << 26;
/// Bits of SRRCTL that may change while the queue is enabled: DROP_EN, RDMTS (8.2.3.8.7).
const ANY_TIME: u32 = 1 << 28 | 7 << 22;
/// Ticks until EN reads back 1.
const LATCH_TICKS: u64 = 2;
/// Ticks until EN reads back 0.
const QUIESCE_TICKS: u64 = 3;

/// The tail registers, which a driver may write from any thread without a lock: one cache line each.
/// Receive queues first, then transmit queues.
#[derive(Debug)]
pub(crate) struct Doorbells(DoorbellWords);

/// Which doorbell an offset is.
pub(crate) type Doorbell = Ring;

impl Default for Doorbells {
    fn default() -> Self {
        Self(DoorbellWords::own())
    }
}

impl Doorbells {
    /// The doorbell at `offset`, if it is one.
    #[inline(always)]
    pub(crate) fn at(offset: u32) -> Option<Doorbell> {
        if offset & 0x3F != tail::FIELD {
            return None;
        }
        match decode(offset) {
            Some((ring, field)) if field == tail::FIELD => Some(ring),
            _ => None,
        }
    }

    /// Doorbells in memory that another process can map.
    pub(crate) fn shared() -> std::io::Result<Self> {
        DoorbellWords::shared().map(Self)
    }

    /// That memory. [`Self::layout`] says what is where.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.fd()
    }

    /// Where doorbells are in shared memory: first register, how many, and where in the memory. Both strides are 64.
    pub(crate) fn layout(id: DeviceId) -> Vec<(u32, u32, u32)> {
        let queues = u32::from(QUEUES);
        if id.is_virtual() {
            let [receive, transmit] = vf::RINGS_AT.map(|rings| rings + tail::FIELD);
            return vec![(receive, vf::RINGS, 0), (transmit, vf::RINGS, queues * 64)];
        }
        vec![
            (map::RX_LOW + tail::FIELD, 64, 0),
            (map::RX_HIGH + tail::FIELD, 64, 64 * 64),
            (map::TX + tail::FIELD, queues, queues * 64),
        ]
    }

    #[inline(always)]
    fn bell(&self, ring: Ring) -> &AtomicU32 {
        let (base, queue) = match ring {
            Ring::Rx(queue) => (0, queue),
            Ring::Tx(queue) => (QUEUES, queue),
        };
        self.0.at(usize::from(base + (queue & (QUEUES - 1))))
    }

    /// Rings one: everything this thread stored before is visible to the device first.
    #[inline(always)]
    pub(crate) fn ring(&self, ring: Ring, tail: u32) {
        self.bell(ring).store(tail & 0xFFFF, Ordering::Release);
    }

    #[inline(always)]
    pub(crate) fn get(&self, ring: Ring) -> u32 {
        self.bell(ring).load(Ordering::Acquire) & 0xFFFF
    }

    pub(super) fn clear(&self) {
        (0..crate::doorbells::DOORBELLS).for_each(|doorbell| self.0.at(doorbell).store(0, Ordering::Relaxed));
    }
}

/// Offsets of the fields of a ring's registers within its 0x40 bytes.
pub(super) mod field {
    pub(crate) const BASE_LOW: u32 = 0x00;
    pub(crate) const BASE_HIGH: u32 = 0x04;
    pub(crate) const LENGTH: u32 = 0x08;
    pub(crate) const DCA: u32 = 0x0C;
    pub(crate) const HEAD: u32 = 0x10;
    /// SRRCTL; nothing on transmit rings.
    pub(crate) const SPLIT: u32 = 0x14;
    pub(crate) const CONTROL: u32 = 0x28;
    /// RSCCTL; nothing on transmit rings.
    pub(crate) const RSC: u32 = 0x2C;
    /// TDWBAL; nothing on receive rings.
    pub(crate) const HEAD_WRITE_BACK_LOW: u32 = 0x38;
    pub(crate) const HEAD_WRITE_BACK_HIGH: u32 = 0x3C;
}

mod tail {
    pub(super) const FIELD: u32 = 0x18;
}

/// The ring and the field that an offset belongs to.
#[inline(always)]
pub(super) fn decode(offset: u32) -> Option<(Ring, u32)> {
    let number = |from: u32| u16::try_from((offset - from) / 0x40).unwrap_or(0);
    match offset {
        0x1000..=0x1FFF => Some((Ring::Rx(number(map::RX_LOW)), offset & 0x3F)),
        0xD000..=0xDFFF => Some((Ring::Rx(64 + number(map::RX_HIGH)), offset & 0x3F)),
        0x6000..=0x7FFF => Some((Ring::Tx(number(map::TX)), offset & 0x3F)),
        _ => None,
    }
}

/// Offset of a field of a ring.
pub(super) fn offset(ring: Ring, field: u32) -> u32 {
    let base = match ring {
        Ring::Rx(queue @ 0..=63) => map::RX_LOW + 0x40 * u32::from(queue),
        Ring::Rx(queue) => map::RX_HIGH + 0x40 * (u32::from(queue) - 64),
        Ring::Tx(queue) => map::TX + 0x40 * u32::from(queue),
    };
    base + field
}

/// Whether a receive ring has a register at `offset` of its 0x40 bytes.
pub(super) fn is_receive_field(offset: u32) -> bool {
    matches!(offset, 0x00..=0x10 | field::SPLIT | tail::FIELD | field::CONTROL | field::RSC)
}

/// Likewise a transmit ring.
pub(super) fn is_transmit_field(offset: u32) -> bool {
    matches!(
        offset,
        0x00..=0x10 | tail::FIELD | field::CONTROL | field::HEAD_WRITE_BACK_LOW | field::HEAD_WRITE_BACK_HIGH
    )
}

/// Whether a queue works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    #[default]
    Disabled,
    /// EN was written, and does not read back yet.
    Enabling,
    Enabled,
    /// EN was cleared, and still reads back.
    Disabling,
    /// A DMA access failed: nothing more until it is disabled.
    Faulted,
}

/// A descriptor ring as it was latched when its queue was enabled.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RingState {
    pub(super) state: State,
    pub(super) base: u64,
    pub(super) descriptors: u32,
    /// Next descriptor the device works on.
    pub(super) head: u32,
    /// Next descriptor that strict mode has not looked at.
    pub(super) fetched: u32,
}

impl RingState {
    /// Descriptors between head and a tail; none if the tail is beyond the ring.
    #[inline(always)]
    pub(super) fn available(&self, tail: u32) -> u32 {
        if tail >= self.descriptors {
            0
        } else if tail >= self.head {
            tail - self.head
        } else {
            tail + self.descriptors - self.head
        }
    }

    #[inline(always)]
    pub(super) fn address(&self, index: u32) -> u64 {
        self.base.wrapping_add(u64::from(index) * DESCRIPTOR)
    }

    /// The index `n` (at most one round) after `index`.
    #[inline(always)]
    pub(super) fn after(&self, index: u32, n: u32) -> u32 {
        let next = index + n;
        if next >= self.descriptors { next - self.descriptors } else { next }
    }

    fn latch(regs: &RegisterFile, ring: Ring) -> Self {
        let get = |field| regs.get(offset(ring, field));
        let base = u64::from(get(field::BASE_HIGH)) << 32 | u64::from(get(field::BASE_LOW));
        let descriptors = get(field::LENGTH) / 16;
        Self { state: State::Enabled, base, descriptors, head: 0, fetched: 0 }
    }
}

impl Model {
    pub(super) fn read_ring(&mut self, ring: Ring, which: u32, offset: u32) -> u32 {
        let stored = self.regs.get(offset);
        let state = *self.ring(ring);
        match which {
            field::HEAD if state.state != State::Disabled => state.head,
            tail::FIELD => self.doorbells.get(ring),
            field::CONTROL => match state.state {
                State::Disabled | State::Enabling => stored & !ENABLE,
                State::Enabled | State::Disabling | State::Faulted => stored | ENABLE,
            },
            _ => stored,
        }
    }

    pub(super) fn write_ring(&mut self, ring: Ring, which: u32, offset: u32, value: u32, name: &'static str) {
        let state = self.ring(ring).state;
        match which {
            tail::FIELD => {
                self.doorbells.ring(ring, value);
                // DPDK waits for TXDCTL.EN on an 82599 alone before it writes 0.
                let early = state == State::Enabling && (value != 0 || !self.id.has_phy());
                if state == State::Disabled && value != 0 || early {
                    self.checks.report(Violation::TailWhileDisabled { ring, tail: value });
                }
                self.check_tail(ring);
                self.look_ahead();
                return;
            }
            field::CONTROL => self.write_control(ring, offset, value, state),
            field::BASE_LOW | field::BASE_HIGH | field::LENGTH | field::HEAD | field::SPLIT => {
                let now = if which == field::HEAD { self.ring(ring).head } else { self.regs.get(offset) };
                let changed = (value ^ now) & if which == field::SPLIT { !ANY_TIME } else { !0 };
                if state != State::Disabled && changed != 0 {
                    self.checks.report(Violation::RingChangedWhileEnabled { ring, name });
                }
                self.regs.set(offset, value);
                if let (Ring::Rx(queue), field::LENGTH) = (ring, which) {
                    self.unsettled |= 1u128.wrapping_shl(queue.into());
                }
            }
            _ => self.regs.set(offset, value),
        }
        match ring {
            Ring::Rx(_) => self.rx.reconfigure(offset),
            Ring::Tx(_) => self.tx.reconfigure(),
        }
    }

    /// RXDCTL and TXDCTL: the queue follows EN a little later.
    fn write_control(&mut self, ring: Ring, offset: u32, value: u32, state: State) {
        let before = self.regs.get(offset);
        self.regs.set(offset, value & !FLUSH);
        // A write that also disables the queue changes nothing that will be used.
        let goes_on = state != State::Disabled && value & ENABLE != 0;
        if matches!(ring, Ring::Tx(_)) && (before ^ value) & 0x007F_7F7F != 0 && goes_on {
            self.checks.report(Violation::RingChangedWhileEnabled { ring, name: "TXDCTL thresholds" });
        }
        if matches!(ring, Ring::Tx(_)) && (value & 0x7F) + (value >> 16 & 0x7F) > 40 {
            self.checks.report(Violation::BadRing { ring, cause: "TXDCTL.PTHRESH + WTHRESH above 40" });
        }
        let enable = value & ENABLE != 0;
        match (state, enable) {
            (State::Disabled, true) => {
                self.check_ring(ring);
                self.check_settled(ring);
                if matches!(ring, Ring::Tx(_)) && !general::transmit_enabled(&self.regs) {
                    self.checks.report(Violation::Order("TXDCTL.EN set before DMATXCTL.TE"));
                } else {
                    self.ring_mut(ring).state = State::Enabling;
                    self.after(LATCH_TICKS, Event::Latch(ring));
                }
            }
            (State::Enabling, false) => self.ring_mut(ring).state = State::Disabled,
            (State::Enabled | State::Faulted, false) => {
                self.ring_mut(ring).state = State::Disabling;
                self.after(QUIESCE_TICKS, Event::Quiesce(ring));
            }
            (State::Disabling, true) => {
                self.checks.report(Violation::Order("a queue was enabled again before EN read back 0"));
            }
            _ => {}
        }
    }

    /// EN takes effect: base and length are latched, the head is 0.
    pub(super) fn latch(&mut self, ring: Ring) {
        if self.ring(ring).state == State::Enabling {
            let latched = RingState::latch(&self.regs, ring);
            *self.ring_mut(ring) = latched;
            self.rx.reconfigure(0);
            self.tx.reconfigure();
        }
    }

    /// The last DMA of a disabled queue is over.
    pub(super) fn quiesce(&mut self, ring: Ring) {
        let head = {
            let state = self.ring_mut(ring);
            state.state = State::Disabled;
            state.head
        };
        self.regs.set(offset(ring, field::HEAD), head);
        self.posted.forget(ring);
        match ring {
            Ring::Rx(queue) => self.rx.disabled(queue),
            Ring::Tx(queue) => {
                // A cable that is out keeps frames on their ring. Now they leave it, and go nowhere.
                if !self.wire.carrier() {
                    let frames = self.tx.waiting(queue, self.doorbells.get(ring), &self.memory);
                    self.counters.lost += frames;
                    self.wire.strand(frames);
                }
                self.tx.disabled(queue);
            }
        }
        self.rx.reconfigure(0);
        self.tx.reconfigure();
    }

    /// A ring that is about to be enabled (7.1.9, 7.2.3.4).
    fn check_ring(&mut self, ring: Ring) {
        let get = |field| self.regs.get(offset(ring, field));
        let cause = if get(field::LENGTH) == 0 {
            "length 0"
        } else if get(field::BASE_LOW) == 0 && get(field::BASE_HIGH) == 0 {
            "base address 0"
        } else if matches!(ring, Ring::Rx(_)) && get(field::SPLIT) & 0x1F == 0 {
            "SRRCTL.BSIZEPACKET 0"
        } else if matches!(ring, Ring::Rx(_)) && get(field::SPLIT) >> 25 & 7 > 1 {
            "a SRRCTL.DESCTYPE that is not modelled (only 0 and 1 are)"
        } else {
            let dca = matches!(ring, Ring::Rx(_)) && get(field::DCA) & 1 << 12 != 0;
            let lax = [(dca, "DCA_RXCTRL bit 12 still set"), (self.doorbells.get(ring) != 0, "a tail that is not 0")];
            for (_, cause) in lax.into_iter().filter(|(wrong, _)| *wrong) {
                self.checks.report_lax(Violation::BadRing { ring, cause });
            }
            return;
        };
        self.checks.report(Violation::BadRing { ring, cause });
    }

    /// Malicious-driver detection looks at the ring's length when the queue is enabled, which a write that nothing has been read behind
    /// may not have reached.
    fn check_settled(&mut self, ring: Ring) {
        if let Ring::Rx(queue) = ring
            && self.id.detects_malice()
            && self.unsettled & 1u128.wrapping_shl(queue.into()) != 0
        {
            self.checks
                .report(Violation::BadRing { ring, cause: "RDLEN still on its way: nothing was read behind it" });
        }
    }

    /// Reports a tail beyond the ring.
    pub(super) fn check_tail(&mut self, ring: Ring) {
        let (tail, state) = (self.doorbells.get(ring), self.ring(ring));
        if state.state == State::Enabled && tail >= state.descriptors {
            let descriptors = state.descriptors;
            self.checks.report(Violation::TailBeyondRing { ring, tail, descriptors });
        }
    }

    fn ring(&self, ring: Ring) -> &RingState {
        match ring {
            Ring::Rx(queue) => self.rx.ring(queue),
            Ring::Tx(queue) => self.tx.ring(queue),
        }
    }

    fn ring_mut(&mut self, ring: Ring) -> &mut RingState {
        match ring {
            Ring::Rx(queue) => self.rx.ring_mut(queue),
            Ring::Tx(queue) => self.tx.ring_mut(queue),
        }
    }
}
