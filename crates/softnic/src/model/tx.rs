//! The transmit path: descriptors, frames, completion (datasheet 7.2).

use super::filters::{Cast, destination};
use super::interrupts::queue_vector;
use super::map::{self, RegisterFile};
use super::posted::{self, Watch};
use super::queue::{self, Doorbells, QUEUES, RingState, State, field};
use super::{Io, packet_bytes};
use crate::dma::{Hint, Unmapped};
use crate::fault::TxFaults;
use crate::violation::{Ring, TransmitFault, Violation};
use crate::wire::{Sent, Wire};

/// Most frames one step sends from one queue.
const BUDGET: u32 = 128;
/// Longest frame the MAC sends, without CRC.
const LONGEST: usize = 15_872;
const TXPADEN: u32 = 1 << 10;
const TXCRCEN: u32 = 1;
const RING_END: u32 = u32::MAX;

/// DD of a transmit descriptor, in quadword 1.
pub(super) const DD: u64 = 1 << 32;
const EOP: u64 = 1 << 24;
const IFCS: u64 = 1 << 25;
const LEGACY_IC: u64 = 1 << 26;
const RS: u64 = 1 << 27;
const DEXT: u64 = 1 << 29;
const VLE: u64 = 1 << 30;
const TSE: u64 = 1 << 31;
const CC: u64 = 1 << 39;
const POPTS: u64 = 0x3F << 40;

/// Whether quadword 1 is that of a context descriptor.
pub(super) fn is_context(high: u64) -> bool {
    high & DEXT != 0 && high >> 20 & 0xF == 2
}

/// The transmit side.
#[derive(Debug)]
pub(super) struct Transmit {
    queues: Vec<TxQueue>,
    active: Vec<u16>,
    pad: bool,
    insert_crc: bool,
    dirty: bool,
    frame: Vec<u8>,
    segments: Vec<Segment>,
}

/// One transmit queue.
#[derive(Clone, Debug, Default)]
struct TxQueue {
    ring: RingState,
    contexts: [bool; 2],
    wthresh: u32,
    /// Descriptors done since the last group was written back, and those of them that asked for it (RS).
    done: u32,
    unreported: Vec<Segment>,
    held: Option<Segment>,
    /// Address of head write-back, if enabled.
    head_write_back: Option<u64>,
    /// Whether EITR lets time pass write back an incomplete group.
    timed: bool,
    slot: usize,
    vectors: u64,
    bad_tail: u32,
    complained: bool,
    ring_hint: Hint,
    buffer_hint: Hint,
}

/// One descriptor of a frame.
#[derive(Clone, Copy, Debug)]
struct Segment {
    index: u32,
    address: u64,
    high: u64,
}

/// Why a queue stopped before its budget.
enum Stop {
    /// Nothing (complete) to do, or the wire takes no more.
    Waits,
    Unmapped(&'static str, Unmapped),
}

impl Default for Transmit {
    fn default() -> Self {
        Self {
            queues: vec![TxQueue::default(); usize::from(QUEUES)],
            active: Vec::new(),
            pad: false,
            insert_crc: false,
            dirty: true,
            frame: vec![0; LONGEST + 4],
            segments: Vec::new(),
        }
    }
}

impl Transmit {
    pub(super) fn reset(&mut self) {
        let (frame, segments) = (std::mem::take(&mut self.frame), std::mem::take(&mut self.segments));
        *self = Self { frame, segments, ..Self::default() };
    }

    pub(super) fn reconfigure(&mut self) {
        self.dirty = true;
    }

    pub(super) fn disabled(&mut self, queue: u16) {
        let queue = &mut self.queues[usize::from(queue % QUEUES)];
        *queue = TxQueue { ring: queue.ring, ..TxQueue::default() };
    }

    pub(super) fn ring(&self, queue: u16) -> &RingState {
        &self.queues[usize::from(queue % QUEUES)].ring
    }

    pub(super) fn ring_mut(&mut self, queue: u16) -> &mut RingState {
        &mut self.queues[usize::from(queue % QUEUES)].ring
    }

    pub(super) fn any_enabled(&self) -> bool {
        self.queues.iter().any(|queue| queue.ring.state == State::Enabled)
    }

    /// Whether every enabled ring is empty.
    pub(super) fn idle(&self, doorbells: &queue::Doorbells) -> bool {
        (0..QUEUES).zip(&self.queues).all(|(number, queue)| {
            queue.ring.state != State::Enabled || queue.ring.available(doorbells.get(Ring::Tx(number))) == 0
        })
    }

    /// Sends from every queue in turn; returns how many frames.
    pub(super) fn burst(&mut self, io: &mut Io<'_>, wire: &mut dyn Wire, faults: &TxFaults, link: bool) -> u32 {
        self.gather(io.regs);
        let mut sent = 0;
        for at in 0..self.active.len() {
            let number = self.active[at];
            let tail = io.doorbells.get(Ring::Tx(number));
            let queue = &mut self.queues[usize::from(number)];
            if tail >= queue.ring.descriptors && queue.bad_tail != tail {
                queue.bad_tail = tail;
                let descriptors = queue.ring.descriptors;
                io.checks.report(Violation::TailBeyondRing { ring: Ring::Tx(number), tail, descriptors });
            }
            // Without a link, descriptors stay where they are until it is back or the device is reset.
            if link {
                sent += self.queue_burst(io, wire, faults, number, tail);
            }
        }
        sent
    }

    fn queue_burst(&mut self, io: &mut Io<'_>, wire: &mut dyn Wire, faults: &TxFaults, number: u16, tail: u32) -> u32 {
        let mut frames = 0;
        while frames < BUDGET {
            match self.frame(io, wire, faults, number, tail) {
                Ok(sent) => frames += sent,
                Err(Stop::Waits) => break,
                Err(Stop::Unmapped(what, Unmapped(iova))) => {
                    io.checks.report(Violation::UnmappedDma { ring: Ring::Tx(number), what, iova });
                    self.queues[usize::from(number)].ring.state = State::Faulted;
                    self.dirty = true;
                    return frames;
                }
            }
        }
        let queue = &mut self.queues[usize::from(number)];
        if queue.timed && queue.done != 0 && queue.ring.available(tail) == 0 {
            queue.report_group(io, faults);
        }
        frames
    }

    /// Works on the descriptors of one frame, or one context descriptor; returns the frames done (0 or 1).
    #[inline]
    fn frame(
        &mut self,
        io: &mut Io<'_>,
        wire: &mut dyn Wire,
        faults: &TxFaults,
        number: u16,
        tail: u32,
    ) -> Result<u32, Stop> {
        let queue = &mut self.queues[usize::from(number)];
        let available = queue.ring.available(tail);
        if available == 0 {
            return Err(Stop::Waits);
        }
        self.segments.clear();
        loop {
            let index = queue.ring.after(queue.ring.head, u32::try_from(self.segments.len()).unwrap_or(RING_END));
            let at = queue.ring.address(index);
            let descriptor =
                io.memory.descriptor(&mut queue.ring_hint, at).map_err(|at| Stop::Unmapped("descriptor", at))?;
            let segment = Segment { index, address: descriptor.low(), high: descriptor.high() };
            if self.segments.is_empty() && is_context(segment.high) {
                queue.contexts[(segment.high >> 36 & 1) as usize] = true;
                queue.complete(io, faults, &[segment]);
                return Ok(0);
            }
            self.segments.push(segment);
            if segment.high & EOP != 0 {
                break;
            }
            if self.segments.len() >= available as usize {
                return Err(Stop::Waits);
            }
        }
        match check(&self.segments, queue.contexts, self.insert_crc) {
            Ok(bytes) => {
                let unchanged = self.insert_crc && self.segments[0].high & IFCS != 0;
                let sent = if unchanged && !wire.needs_bytes() {
                    glance(io, queue, &self.segments, &mut self.frame, bytes).map(|()| (Sent::Yes, bytes))
                } else {
                    let pad = self.pad && !wire.host();
                    fetch(io, queue, &self.segments, &mut self.frame).map(|()| {
                        let Some(len) = finish(&mut self.frame, bytes, unchanged, pad) else {
                            return (Sent::Bad, bytes);
                        };
                        (wire.transmit(&self.frame[..len]), len)
                    })
                };
                let (sent, len) = sent.map_err(|at| Stop::Unmapped("transmit buffer", at))?;
                match sent {
                    Sent::Full => return Err(Stop::Waits),
                    Sent::Yes => {
                        io.counters.sent += 1;
                        io.counters.sent_bytes += len as u64;
                    }
                    Sent::Lost => io.counters.lost += 1,
                    Sent::Bad => {
                        io.counters.discarded += 1;
                        let index = self.segments[0].index;
                        let cause = TransmitFault::BadFcs;
                        io.checks.report(Violation::TransmitDescriptor { queue: number, index, cause });
                    }
                }
                if !matches!(sent, Sent::Bad) {
                    let cast = Cast::of(destination(&self.frame[..len.min(8)]));
                    io.stats.transmitted(queue.slot, cast, packet_bytes(len, self.pad));
                }
            }
            Err((index, cause)) => {
                io.counters.discarded += 1;
                io.checks.report(Violation::TransmitDescriptor { queue: number, index, cause });
            }
        }
        if io.checks.strict() {
            for segment in &self.segments {
                io.posted.transmit_done(segment.address, number, segment.index);
            }
        }
        queue.complete(io, faults, &self.segments);
        Ok(1)
    }

    /// Strict mode: every descriptor that is new.
    pub(super) fn look_ahead(&mut self, bells: &Doorbells, (memory, checks, posted): Watch<'_>) {
        for number in &self.active {
            let queue = &mut self.queues[usize::from(*number)];
            let tail = bells.get(Ring::Tx(*number));
            posted::transmit(*number, &mut queue.ring, tail, (memory, &mut *checks, &mut *posted));
        }
    }

    /// Work that is waiting while the device is not bus master is a violation, once for each queue.
    pub(super) fn complain_without_bus_master(&mut self, io: &mut Io<'_>) {
        self.gather(io.regs);
        for at in 0..self.active.len() {
            let number = self.active[at];
            let queue = &mut self.queues[usize::from(number)];
            if queue.ring.available(io.doorbells.get(Ring::Tx(number))) != 0 && !queue.complained {
                queue.complained = true;
                io.checks.report(Violation::NotBusMaster { ring: Ring::Tx(number) });
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
        self.pad = regs.get(map::HLREG0) & TXPADEN != 0;
        self.insert_crc = regs.get(map::HLREG0) & TXCRCEN != 0;
        self.active.clear();
        for (number, queue) in (0..QUEUES).zip(&mut self.queues) {
            if queue.ring.state != State::Enabled {
                continue;
            }
            self.active.push(number);
            let get = |which| regs.get(queue::offset(Ring::Tx(number), which));
            queue.wthresh = get(field::CONTROL) >> 16 & 0x7F;
            let low = get(field::HEAD_WRITE_BACK_LOW);
            let address = u64::from(get(field::HEAD_WRITE_BACK_HIGH)) << 32 | u64::from(low & !3);
            queue.head_write_back = (low & 1 != 0).then_some(address);
            queue.slot = (regs.get(map::TQSM + u32::from(number / 4) * 4) >> (8 * (number % 4)) & 0xF) as usize;
            queue.vectors = queue_vector(regs, number, 1);
            queue.timed = queue.vectors != 0 && {
                let vector = queue.vectors.trailing_zeros();
                let eitr = if vector < 24 { 0x820 + 4 * vector } else { 0x1_2300 + 4 * (vector - 24) };
                regs.get(eitr) & 0xFF8 != 0
            };
        }
    }
}

impl TxQueue {
    /// The head moves past a frame's descriptors, and those with RS are reported (7.2.3.5).
    #[inline]
    fn complete(&mut self, io: &mut Io<'_>, faults: &TxFaults, segments: &[Segment]) {
        let count = u32::try_from(segments.len()).unwrap_or(0);
        self.ring.head = self.ring.after(self.ring.head, count);
        self.done += count;
        let mut reported = false;
        for segment in segments.iter().filter(|segment| segment.high & RS != 0) {
            reported = true;
            if self.wthresh == 0 {
                self.report(io, faults, *segment);
            } else {
                self.unreported.push(*segment);
            }
        }
        if self.wthresh != 0 && self.done >= self.wthresh {
            self.report_group(io, faults);
        }
        if reported {
            io.irq.queue_event(self.vectors);
        }
    }

    fn report_group(&mut self, io: &mut Io<'_>, faults: &TxFaults) {
        self.done = 0;
        let mut group = std::mem::take(&mut self.unreported);
        for segment in group.drain(..) {
            self.report(io, faults, segment);
        }
        self.unreported = group;
    }

    /// Sets DD in one descriptor, or writes the head to memory instead.
    #[inline]
    fn report(&mut self, io: &mut Io<'_>, faults: &TxFaults, segment: Segment) {
        if faults.no_dd {
            return;
        }
        if faults.out_of_order {
            let Some(earlier) = self.held.replace(segment) else { return };
            self.held = None;
            self.write_back(io, segment);
            self.write_back(io, earlier);
        } else {
            self.write_back(io, segment);
        }
    }

    #[inline]
    fn write_back(&mut self, io: &mut Io<'_>, segment: Segment) {
        let done = if let Some(address) = self.head_write_back {
            io.memory.store32(&mut self.buffer_hint, address, self.ring.head)
        } else {
            let at = self.ring.address(segment.index);
            io.memory.descriptor(&mut self.ring_hint, at).map(|descriptor| {
                let legacy = segment.high & DEXT == 0;
                // An advanced write-back leaves nothing but the status.
                descriptor.write_back_high(if legacy { segment.high | DD } else { DD });
            })
        };
        if done.is_err() {
            self.ring.state = State::Faulted;
        }
    }
}

/// Checks a frame's descriptors; its bytes, or the index and the mistake.
#[inline]
fn check(segments: &[Segment], contexts: [bool; 2], insert_crc: bool) -> Result<usize, (u32, TransmitFault)> {
    let first = segments[0];
    let extended = first.high & DEXT;
    let mut total = 0;
    for segment in segments {
        let fail = |cause| Err((segment.index, cause));
        let kind = segment.high >> 20 & 0xF;
        if segment.high & DEXT != extended || (extended != 0 && kind == 2) {
            return fail(TransmitFault::Mixed);
        }
        if extended != 0 && kind != 3 {
            return fail(TransmitFault::UnknownType(u8::try_from(kind).unwrap_or(0)));
        }
        let length = (segment.high & 0xFFFF) as usize;
        if length == 0 {
            return fail(TransmitFault::ZeroLength);
        }
        total += length;
    }
    let fail = |cause| Err((first.index, cause));
    if extended == 0 {
        if first.high & (LEGACY_IC | VLE) != 0 {
            return fail(TransmitFault::Offload);
        }
    } else {
        let slot = (first.high >> 36 & 7) as usize;
        if first.high & CC != 0 && !contexts.get(slot).is_some_and(|set| *set) {
            return fail(TransmitFault::MissingContext(u8::try_from(slot).unwrap_or(0)));
        }
        if first.high & (TSE | VLE | POPTS) != 0 {
            return fail(TransmitFault::Offload);
        }
        let paylen = u32::try_from(first.high >> 46).unwrap_or(0);
        if paylen as usize != total {
            let dtalen = u32::try_from(total).unwrap_or(u32::MAX);
            return fail(TransmitFault::PayloadLength { dtalen, paylen });
        }
    }
    if total > LONGEST {
        return fail(TransmitFault::TooLong);
    }
    if total <= 4 && !(insert_crc && first.high & IFCS != 0) {
        return fail(TransmitFault::BadFcs);
    }
    Ok(total)
}

/// Reads a whole frame.
fn fetch(io: &Io<'_>, queue: &mut TxQueue, segments: &[Segment], frame: &mut [u8]) -> Result<(), Unmapped> {
    let mut rest = frame;
    for segment in segments {
        let (part, after) = rest.split_at_mut(((segment.high & 0xFFFF) as usize).min(rest.len()));
        io.memory.read(&mut queue.buffer_hint, segment.address, part)?;
        rest = after;
    }
    Ok(())
}

/// Reads no more of a frame than its destination address: enough for a wire that only counts.
#[inline]
fn glance(
    io: &Io<'_>,
    queue: &mut TxQueue,
    segments: &[Segment],
    frame: &mut [u8],
    bytes: usize,
) -> Result<(), Unmapped> {
    let first = (segments[0].high & 0xFFFF) as usize;
    if first < 8 && first < bytes {
        return fetch(io, queue, segments, frame);
    }
    io.memory.read(&mut queue.buffer_hint, segments[0].address, &mut frame[..first.min(8)])
}

/// Makes a fetched frame what goes on the wire: without its own CRC, and padded. `None` if its own CRC is wrong.
fn finish(frame: &mut [u8], bytes: usize, insert_crc: bool, pad: bool) -> Option<usize> {
    let mut len = bytes;
    if !insert_crc {
        len = bytes.checked_sub(4)?;
        if frame[len..bytes] != crc32fast::hash(&frame[..len]).to_le_bytes() {
            return None;
        }
    }
    if pad && len < 60 {
        frame[len..60].fill(0);
        len = 60;
    }
    Some(len)
}
