//! The receive path: filters, queue selection, descriptors (datasheet 7.1).

use super::filters::{Cast, Filters, destination};
use super::flow_control::Pause;
use super::interrupts::{self, queue_vector};
use super::map::{self, RegisterFile};
use super::posted::{self, Watch};
use super::queue::{self, Doorbells, QUEUES, RingState, State, field};
use super::rss::{Flow, Toeplitz};
use super::rx_write::{Annotation, RxQueue};
use super::steering::Steering;
use super::{DeviceId, Io, WORK, copying, packet_bytes, rx_sums};
use crate::dma::Unmapped;
use crate::fault::RxFaults;
use crate::violation::{Ring, Violation};
use crate::wire::Wire;

/// Most frames one step receives.
const BUDGET: u32 = 128;
const MRQC_RSS: u32 = 1;
const RXCSUM_PCSD: u32 = 1 << 13;
const RXCSUM_IPPCSE: u32 = 1 << 12;
const RXCRCSTRP: u32 = 1 << 1;
const VME: u32 = 1 << 30;
const DROP_EN: u32 = 1 << 28;

/// The receive side: its queues, and its settings gathered from the registers.
#[derive(Debug)]
pub(super) struct Receive {
    queues: Vec<RxQueue>,
    active: Vec<u16>,
    filters: Filters,
    toeplitz: Option<Toeplitz>,
    /// Filters before RSS; `None` until they are gathered from the registers.
    steering: Option<Steering>,
    reta: Box<[u8]>,
    mrqc: u32,
    hash_in_descriptor: bool,
    fragment_sums: bool,
    strip_crc: bool,
    dirty: bool,
    scratch: Vec<u8>,
    /// What a PAUSE frame has asked for since the last look.
    pause: Option<u16>,
    id: DeviceId,
}

/// What is known of the frames of a wire.
#[derive(Clone, Copy)]
struct Source {
    host: bool,
    may_drop: bool,
    sums_known: bool,
}

/// What became of the frame at the head of the wire.
enum Outcome {
    Delivered,
    Dropped,
    /// There is no room; it stays.
    Waits,
}

impl Receive {
    pub(super) fn new(id: DeviceId) -> Self {
        Self {
            queues: vec![RxQueue::default(); usize::from(QUEUES)],
            active: Vec::new(),
            filters: Filters::default(),
            toeplitz: None,
            steering: None,
            reta: vec![0; id.table().0].into(),
            mrqc: 0,
            hash_in_descriptor: false,
            fragment_sums: false,
            strip_crc: false,
            dirty: true,
            scratch: Vec::new(),
            pause: None,
            id,
        }
    }

    /// Takes what the last PAUSE frame asked for that is obeyed: so many times 512 bits.
    pub(super) fn take_pause(&mut self) -> Option<u16> {
        self.pause.take()
    }

    pub(super) fn reset(&mut self) {
        *self = Self { scratch: std::mem::take(&mut self.scratch), ..Self::new(self.id) };
    }

    /// A register was written: settings are gathered anew at the next burst.
    pub(super) fn reconfigure(&mut self, offset: u32) {
        self.dirty = true;
        if (map::RSSRK..map::RSSRK + 40).contains(&offset) {
            self.toeplitz = None;
        }
        if Steering::owns(offset) {
            self.steering = None;
        }
    }

    pub(super) fn disabled(&mut self, queue: u16) {
        let queue = &mut self.queues[usize::from(queue % QUEUES)];
        let ring = queue.ring;
        *queue = RxQueue::default();
        queue.ring = ring;
    }

    pub(super) fn ring(&self, queue: u16) -> &RingState {
        &self.queues[usize::from(queue % QUEUES)].ring
    }

    pub(super) fn ring_mut(&mut self, queue: u16) -> &mut RingState {
        &mut self.queues[usize::from(queue % QUEUES)].ring
    }

    /// Takes frames from the wire until it is empty, there is no room, or the budget is used up; returns how many.
    pub(super) fn burst(&mut self, io: &mut Io<'_>, wire: &mut dyn Wire, faults: &mut RxFaults) -> u32 {
        self.gather(io.regs);
        let missed = wire.missed();
        if missed != 0 {
            io.stats.missed(missed);
            io.counters.missed += missed;
            io.irq.raise(interrupts::RX_MISS);
        }
        self.look_at_doorbells(io);
        let source = Source { host: wire.host(), may_drop: wire.may_drop(), sums_known: wire.sums_known() };
        let (mut taken, mut left) = (0, WORK);
        while taken < BUDGET && left != 0 {
            let Some(frame) = wire.front() else { break };
            let work = 1 + copying(frame.len());
            let bytes = frame.len() as u64;
            match self.frame(io, frame, source, faults) {
                Outcome::Waits => break,
                Outcome::Dropped => io.counters.dropped += 1,
                Outcome::Delivered => {
                    io.counters.delivered += 1;
                    io.counters.delivered_bytes += bytes;
                }
            }
            io.counters.offered += 1;
            io.counters.offered_bytes += bytes;
            wire.pop();
            taken += 1;
            left = left.saturating_sub(work);
        }
        self.write_back(io, faults);
        taken
    }

    /// Receives one frame (without CRC).
    #[inline]
    fn frame(&mut self, io: &mut Io<'_>, frame: &[u8], source: Source, faults: &mut RxFaults) -> Outcome {
        let on_wire = packet_bytes(frame.len(), source.host);
        if frame.len() < 14 || on_wire < 64 {
            io.stats.undersize(on_wire);
            return Outcome::Dropped;
        }
        let mut ethertype = u16::from_be_bytes([frame[12], frame[13]]);
        let tag = match frame.get(14..18) {
            Some(tag) if u32::from(ethertype) == self.filters.vlan_type() => {
                ethertype = u16::from_be_bytes([tag[2], tag[3]]);
                Some(u16::from_be_bytes([tag[0], tag[1]]))
            }
            _ => None,
        };
        if on_wire > self.filters.max_frame(tag.is_some()) as u64 {
            io.stats.oversize(on_wire);
            return Outcome::Dropped;
        }
        let destination = destination(frame);
        let kept = ethertype == Pause::ETHERTYPE && tag.is_none() && self.keeps_pause(io, frame, destination);
        if kept || !self.filters.address_passes(io.regs, destination) || !self.filters.vlan_passes(io.regs, tag) {
            io.stats.arrived(on_wire);
            return Outcome::Dropped;
        }
        let flow = Flow::parse(frame, ethertype, if tag.is_some() { 18 } else { 14 });
        let led = self.steering.as_ref().and_then(|filters| filters.queue(frame, ethertype, &flow));
        let (kind, hash, number) = self.steer(frame, &flow, faults.queue);
        let number = led.unwrap_or(number);
        let Some(queue) = self.queues.get_mut(usize::from(number)) else { return Outcome::Dropped };
        let strip_tag = tag.filter(|_| queue.vlan_strip);
        let bytes = contents(&mut self.scratch, frame, strip_tag.is_some(), self.strip_crc);
        let working = queue.ring.state == State::Enabled;
        let needed = queue.descriptors_for(bytes.len());
        if !working || !queue.has_room(io, needed) {
            let never = working && needed >= queue.ring.descriptors;
            if never || (source.may_drop && (queue.drop_en || !working)) {
                io.stats.received(Cast::of(destination), on_wire);
                io.stats.queue_dropped(queue.slot);
                return Outcome::Dropped;
            }
            return Outcome::Waits;
        }
        let (kind, hash) = match (self.hash_in_descriptor, self.fragment_sums) {
            (true, _) => (kind, hash),
            (false, true) => (0, rx_sums::fragment(frame, &flow)),
            (false, false) => (0, 0),
        };
        let known = source.sums_known && flow.packet_type == rx_sums::GENERATED;
        let sums = if known { rx_sums::GENERATED_RIGHT } else { rx_sums::check(frame, &flow) };
        let annotation = Annotation { low: flow.packet_type | kind, hash, sums, vlan: tag.is_some(), tag: strip_tag };
        let delivered = queue.deliver(io, bytes, annotation, faults);
        io.stats.received(Cast::of(destination), on_wire);
        if delivered {
            io.stats.queue_received(queue.slot, bytes.len() as u64);
            io.irq.queue_event(queue.vectors);
            Outcome::Delivered
        } else {
            io.stats.queue_dropped(queue.slot);
            Outcome::Dropped
        }
    }

    /// Counts a MAC control frame that is a PAUSE frame; whether it ends here.
    #[cold]
    fn keeps_pause(&mut self, io: &mut Io<'_>, frame: &[u8], destination: u64) -> bool {
        let Some(pause) = self.filters.pause(frame, destination) else { return false };
        io.stats.paused(pause);
        self.pause = self.filters.obeyed(pause).or(self.pause);
        self.filters.discards_pause()
    }

    /// Reports what this burst has filled.
    fn write_back(&mut self, io: &mut Io<'_>, faults: &RxFaults) {
        for number in &self.active {
            let queue = &mut self.queues[usize::from(*number)];
            if let Err((what, Unmapped(iova))) = queue.write_back(io, faults) {
                queue.fault(io, what, iova);
            }
        }
    }

    /// RSS type, hash and queue (7.1.2); the entry of the redirection table may be `stuck`.
    #[inline]
    fn steer(&self, frame: &[u8], flow: &Flow, stuck: Option<u8>) -> (u32, u32, u16) {
        match &self.toeplitz {
            Some(toeplitz) if self.mrqc & 0xF == MRQC_RSS => {
                let (kind, hash) = flow.hash(frame, self.mrqc, toeplitz);
                let entry = || stuck.unwrap_or_else(|| self.reta[hash as usize % self.reta.len()]);
                let queue = if kind == 0 { 0 } else { entry() };
                (kind, hash, u16::from(queue))
            }
            _ => (0, 0, 0),
        }
    }

    /// A tail beyond its ring (once for each value).
    fn look_at_doorbells(&mut self, io: &mut Io<'_>) {
        for number in &self.active {
            let ring = Ring::Rx(*number);
            let tail = io.doorbells.get(ring);
            let queue = &mut self.queues[usize::from(*number)];
            if tail >= queue.ring.descriptors && queue.bad_tail != tail {
                queue.bad_tail = tail;
                let descriptors = queue.ring.descriptors;
                io.checks.report(Violation::TailBeyondRing { ring, tail, descriptors });
            }
        }
    }

    /// Strict mode: every descriptor that is new.
    pub(super) fn look_ahead(&mut self, doorbells: &Doorbells, (memory, checks, posted): Watch<'_>) {
        for number in &self.active {
            let queue = &mut self.queues[usize::from(*number)];
            let tail = doorbells.get(Ring::Rx(*number));
            let (buffer, legacy) = (queue.buffer.into(), queue.legacy);
            posted::receive(*number, &mut queue.ring, buffer, legacy, tail, (memory, &mut *checks, &mut *posted));
        }
    }

    /// Work that is waiting while the device is not bus master is a violation, once for each queue.
    pub(super) fn complain_without_bus_master(&mut self, io: &mut Io<'_>) {
        self.gather(io.regs);
        for at in 0..self.active.len() {
            let number = self.active[at];
            let queue = &mut self.queues[usize::from(number)];
            if queue.ring.available(io.doorbells.get(Ring::Rx(number))) != 0 && !queue.complained {
                queue.complained = true;
                io.checks.report(Violation::NotBusMaster { ring: Ring::Rx(number) });
            }
        }
    }

    /// Gathers settings from the registers, if any was written.
    #[inline]
    pub(super) fn gather(&mut self, regs: &RegisterFile) {
        if self.dirty {
            self.gather_now(regs);
        }
    }

    #[cold]
    fn gather_now(&mut self, regs: &RegisterFile) {
        self.dirty = false;
        self.filters = Filters::gather(regs);
        self.mrqc = regs.get(map::MRQC);
        self.hash_in_descriptor = regs.get(map::RXCSUM) & RXCSUM_PCSD != 0;
        self.fragment_sums = regs.get(map::RXCSUM) & RXCSUM_IPPCSE != 0;
        self.strip_crc = regs.get(map::HLREG0) & RXCRCSTRP != 0;
        if self.toeplitz.is_none() && self.mrqc & 0xF == MRQC_RSS {
            self.toeplitz = Some(Toeplitz::from_registers(regs));
        }
        if self.steering.is_none() {
            self.steering = Some(Steering::gather(regs));
        }
        let mask = (1 << self.id.table().1) - 1;
        let words = (map::RETA..map::RETA + 128).step_by(4).chain((map::ERETA..).step_by(4));
        for (at, entries) in words.zip(self.reta.chunks_exact_mut(4)) {
            entries.copy_from_slice(&regs.get(at).to_le_bytes().map(|entry| entry & mask));
        }
        self.active.clear();
        for (number, queue) in (0..QUEUES).zip(&mut self.queues) {
            queue.number = number;
            if queue.ring.state != State::Disabled {
                let get = |which| regs.get(queue::offset(Ring::Rx(number), which));
                let split = get(field::SPLIT);
                queue.buffer = (split & 0x1F) * 1024;
                queue.legacy = split >> 25 & 7 == 0;
                queue.drop_en = split & DROP_EN != 0;
                queue.vlan_strip = get(field::CONTROL) & VME != 0;
                queue.slot = (regs.get(map::RQSMR + u32::from(number / 4) * 4) >> (8 * (number % 4)) & 0xF) as usize;
                queue.vectors = queue_vector(regs, number, 0);
            }
            if queue.ring.state == State::Enabled {
                self.active.push(number);
            }
        }
    }
}

/// The bytes that go to memory: without a stripped tag, with the CRC if it is not stripped.
#[inline]
fn contents<'b>(scratch: &'b mut Vec<u8>, frame: &'b [u8], strip_tag: bool, strip_crc: bool) -> &'b [u8] {
    if !strip_tag && strip_crc {
        return frame;
    }
    scratch.clear();
    if strip_tag && frame.len() >= 16 {
        scratch.extend_from_slice(&frame[..12]);
        scratch.extend_from_slice(&frame[16..]);
    } else {
        scratch.extend_from_slice(frame);
    }
    if !strip_crc {
        let crc = crc32fast::hash(frame);
        scratch.extend_from_slice(&crc.to_le_bytes());
    }
    scratch
}
