//! The transmit path: descriptors, frames, completion (datasheet 7.2).

use super::filters::{Cast, destination, stations};
use super::interrupts::{interval, queue_vector};
use super::map::{self, RegisterFile};
use super::offload::{Context, Request, Settings};
use super::posted::{self, Watch};
use super::queue::{self, Doorbells, QUEUES, RingState, State, field};
use super::tx_frame::{
    DD, DEXT, EOP, IFCS, LONGEST, MOST_DESCRIPTORS, RS, Segment, check, fetch, finish, glance, is_context, slot,
};
use super::{Io, WORK, copying, packet_bytes};
use crate::dma::{Hint, Memory, Unmapped};
use crate::fault::TxFaults;
use crate::violation::{Ring, TransmitFault, Violation};
use crate::wire::{Sent, Wire};

/// Most frames one step sends from one queue.
const BUDGET: u32 = 128;
const TXPADEN: u32 = 1 << 10;
const TXCRCEN: u32 = 1;
const RING_END: u32 = u32::MAX;

/// The transmit side.
#[derive(Debug)]
pub(super) struct Transmit {
    queues: Vec<TxQueue>,
    active: Vec<u16>,
    pad: bool,
    insert_crc: bool,
    /// Addresses that frames may come from, if that is looked at (PFVFSPOOF.MACAS).
    sources: Option<Vec<u64>>,
    offload: Settings,
    dirty: bool,
    frame: Vec<u8>,
    /// A frame with offloads as the driver gave it, and what is made of it.
    whole: Vec<u8>,
    made: Vec<u8>,
    segments: Vec<Segment>,
    /// Work that is left of this step ([`WORK`]).
    left: u32,
    /// The queue that the next step begins with.
    first: u16,
}

/// One transmit queue.
#[derive(Clone, Debug, Default)]
struct TxQueue {
    ring: RingState,
    contexts: [Option<Context>; 2],
    /// Segments of the frame at the head that have been sent already.
    progress: usize,
    wthresh: u32,
    /// Descriptors done since the last group was written back, and those of them that asked for it (RS).
    done: u32,
    unreported: Vec<Segment>,
    held: Option<Segment>,
    /// Address of head write-back, if enabled.
    head_write_back: Option<u64>,
    /// Whether EITR lets time pass write back an incomplete group.
    timed: bool,
    /// The tail up to which there is no whole frame: nothing is looked at again until it moves.
    incomplete: Option<u32>,
    slot: usize,
    vectors: u64,
    bad_tail: u32,
    complained: bool,
    ring_hint: Hint,
    buffer_hint: Hint,
}

/// How far the sending of a frame with offloads has come.
struct Sending {
    frames: u32,
    done: bool,
}

/// Why a queue stopped before its budget.
enum Stop {
    /// Nothing (complete) to do, or the wire takes no more.
    Waits,
    Unmapped(&'static str, Unmapped),
    /// The frame that begins at this descriptor has too many.
    Endless(u32),
}

impl Default for Transmit {
    fn default() -> Self {
        Self {
            queues: vec![TxQueue::default(); usize::from(QUEUES)],
            active: Vec::new(),
            pad: false,
            insert_crc: false,
            sources: None,
            offload: Settings::default(),
            dirty: true,
            frame: vec![0; LONGEST + 4],
            whole: Vec::new(),
            made: Vec::new(),
            segments: Vec::new(),
            left: 0,
            first: 0,
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

    /// Frames on a queue's ring that are still to be sent.
    pub(super) fn waiting(&mut self, queue: u16, tail: u32, memory: &Memory) -> u64 {
        let queue = &mut self.queues[usize::from(queue % QUEUES)];
        let mut frames = 0;
        for n in 0..queue.ring.available(tail) {
            let at = queue.ring.address(queue.ring.after(queue.ring.head, n));
            let high = memory.descriptor(&mut queue.ring_hint, at).map_or(0, |descriptor| descriptor.high());
            frames += u64::from(high & EOP != 0 && !is_context(high));
        }
        frames
    }

    /// Whether every enabled ring is empty.
    pub(super) fn idle(&self, doorbells: &queue::Doorbells) -> bool {
        (0..QUEUES).zip(&self.queues).all(|(number, queue)| {
            queue.ring.state != State::Enabled || queue.ring.available(doorbells.get(Ring::Tx(number))) == 0
        })
    }

    /// Sends from every queue in turn, as far as the work of a step goes; returns how many frames, and whether descriptors were
    /// done.
    pub(super) fn burst(&mut self, io: &mut Io<'_>, wire: &mut dyn Wire, faults: &TxFaults, link: bool) -> (u32, bool) {
        self.gather(io.regs);
        let (mut sent, mut moved) = (0, false);
        self.left = WORK;
        let queues = self.active.len();
        let first = self.active.partition_point(|number| *number < self.first);
        for turn in 0..queues {
            let at = first + turn;
            let number = self.active[if at < queues { at } else { at - queues }];
            let tail = io.doorbells.get(Ring::Tx(number));
            let queue = &mut self.queues[usize::from(number)];
            if tail >= queue.ring.descriptors && queue.bad_tail != tail {
                queue.bad_tail = tail;
                let descriptors = queue.ring.descriptors;
                io.checks.report(Violation::TailBeyondRing { ring: Ring::Tx(number), tail, descriptors });
            }
            // Without a link, descriptors stay where they are until it is back or the device is reset. What lies in memory
            // that was mapped after this step began has to wait for the next one.
            if link && queue.incomplete != Some(tail) && !io.memory.is_stale() {
                let head = queue.ring.head;
                let frames = self.queue_burst(io, wire, faults, number, tail);
                sent += frames;
                moved |= self.queues[usize::from(number)].ring.head != head;
                if self.left == 0 {
                    // A queue that was cut short is the next to begin, unless it began and had all.
                    self.first = if turn == 0 || frames >= BUDGET { number + 1 } else { number };
                    break;
                }
            }
        }
        (sent, moved)
    }

    fn queue_burst(&mut self, io: &mut Io<'_>, wire: &mut dyn Wire, faults: &TxFaults, number: u16, tail: u32) -> u32 {
        let mut frames = 0;
        self.queues[usize::from(number)].incomplete = None;
        while frames < BUDGET && self.left != 0 {
            let outcome = self.frame(io, wire, faults, number, tail);
            // A context descriptor is in no frame.
            let looked = self.segments.len().max(outcome.is_ok().into());
            self.left = self.left.saturating_sub(u32::try_from(looked).unwrap_or(u32::MAX));
            let violation = match outcome {
                Ok(sent) => {
                    frames += sent;
                    continue;
                }
                Err(Stop::Waits) => break,
                Err(Stop::Unmapped(what, Unmapped(iova))) => {
                    Violation::UnmappedDma { ring: Ring::Tx(number), what, iova }
                }
                Err(Stop::Endless(index)) => {
                    let cause = TransmitFault::TooManyDescriptors;
                    Violation::TransmitDescriptor { queue: number, index, cause }
                }
            };
            io.checks.report(violation);
            self.queues[usize::from(number)].ring.state = State::Faulted;
            self.dirty = true;
            return frames;
        }
        let queue = &mut self.queues[usize::from(number)];
        if queue.timed && queue.done != 0 && queue.ring.available(tail) == 0 {
            queue.report_group(io, faults);
        }
        frames
    }

    /// Works on the descriptors of one frame, or one context descriptor; returns the frames done, of which segmentation
    /// makes many.
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
        self.segments.clear();
        let available = queue.ring.available(tail);
        if available == 0 {
            return Err(Stop::Waits);
        }
        loop {
            let index = queue.ring.after(queue.ring.head, u32::try_from(self.segments.len()).unwrap_or(RING_END));
            let at = queue.ring.address(index);
            let descriptor =
                io.memory.descriptor(&mut queue.ring_hint, at).map_err(|at| Stop::Unmapped("descriptor", at))?;
            let segment = Segment { index, address: descriptor.low(), high: descriptor.high() };
            if self.segments.is_empty() && is_context(segment.high) {
                queue.set_context(io, number, segment);
                queue.complete(io, faults, &[segment]);
                return Ok(0);
            }
            self.segments.push(segment);
            if segment.high & EOP != 0 {
                break;
            }
            if self.segments.len() >= MOST_DESCRIPTORS {
                return Err(Stop::Endless(self.segments[0].index));
            }
            if self.segments.len() >= available as usize {
                queue.incomplete = Some(tail);
                return Err(Stop::Waits);
            }
        }
        let mut frames = 1;
        match check(&self.segments, &queue.contexts, self.insert_crc) {
            Ok(_) if self.sources.is_some() && self.is_spoofed(io, number)? => io.counters.discarded += 1,
            Ok((bytes, None)) => self.send_plain(io, wire, number, bytes)?,
            Ok((bytes, Some(request))) => {
                let whole = self.send_offloaded(io, wire, number, bytes, &request)?;
                frames = whole.frames;
                if !whole.done {
                    return Ok(frames);
                }
            }
            Err((index, cause)) => self.discard(io, number, index, cause),
        }
        if io.checks.strict() {
            for segment in &self.segments {
                io.posted.transmit_done(segment.address, number, segment.index);
            }
        }
        self.queues[usize::from(number)].complete(io, faults, &self.segments);
        Ok(frames)
    }

    /// Whether the frame in `segments` comes from another address than those that it may.
    #[cold]
    fn is_spoofed(&mut self, io: &Io<'_>, number: u16) -> Result<bool, Stop> {
        let hint = &mut self.queues[usize::from(number)].buffer_hint;
        let (mut header, mut at) = ([0; 12], 0);
        for segment in &self.segments {
            let len = ((segment.high & 0xFFFF) as usize).min(header.len() - at);
            io.memory
                .read(hint, segment.address, &mut header[at..at + len])
                .map_err(|at| Stop::Unmapped("transmit buffer", at))?;
            at += len;
        }
        let source = destination(&header[6..]);
        Ok(self.sources.as_ref().is_some_and(|sources| !sources.contains(&source)))
    }

    /// Sends the frame in `segments` as it is.
    #[inline]
    fn send_plain(&mut self, io: &mut Io<'_>, wire: &mut dyn Wire, number: u16, bytes: usize) -> Result<(), Stop> {
        let queue = &mut self.queues[usize::from(number)];
        let unchanged = self.insert_crc && self.segments[0].high & IFCS != 0;
        let sent = if unchanged && !wire.needs_bytes() {
            glance(io, &mut queue.buffer_hint, &self.segments, &mut self.frame, bytes).map(|()| (Sent::Yes, bytes))
        } else {
            let pad = self.pad && !wire.host();
            self.left = self.left.saturating_sub(copying(bytes));
            fetch(io, &mut queue.buffer_hint, &self.segments, &mut self.frame).map(|()| {
                let Some(len) = finish(&mut self.frame, bytes, unchanged, pad) else {
                    return (Sent::Bad, bytes);
                };
                (wire.transmit(&self.frame[..len]), len)
            })
        };
        let (sent, len) = sent.map_err(|at| Stop::Unmapped("transmit buffer", at))?;
        match sent {
            Sent::Full => return Err(Stop::Waits),
            Sent::Bad => self.discard(io, number, self.segments[0].index, TransmitFault::BadFcs),
            Sent::Yes | Sent::Lost => count(io, &self.frame[..len], sent, Some(queue.slot), self.pad),
        }
        Ok(())
    }

    /// Sends what the frame in `segments` becomes under offloads, as far as the wire takes it and the budget goes.
    #[cold]
    fn send_offloaded(
        &mut self,
        io: &mut Io<'_>,
        wire: &mut dyn Wire,
        number: u16,
        bytes: usize,
        request: &Request,
    ) -> Result<Sending, Stop> {
        let queue = &mut self.queues[usize::from(number)];
        self.left = self.left.saturating_sub(copying(bytes));
        self.whole.clear();
        self.whole.resize(bytes, 0);
        fetch(io, &mut queue.buffer_hint, &self.segments, &mut self.whole)
            .map_err(|at| Stop::Unmapped("transmit buffer", at))?;
        let total = request.frames(&self.whole);
        let pad = self.pad && !wire.host();
        let mut sending = Sending { frames: 0, done: false };
        while queue.progress < total && sending.frames < BUDGET && (self.left != 0 || sending.frames == 0) {
            request.make(&self.whole, queue.progress, &self.offload, &mut self.made);
            if pad && self.made.len() < 60 {
                self.made.resize(60, 0);
            }
            let sent = wire.transmit(&self.made);
            if matches!(sent, Sent::Full) {
                break;
            }
            count(io, &self.made, sent, Some(queue.slot), self.pad);
            self.left = self.left.saturating_sub(1 + copying(self.made.len()));
            queue.progress += 1;
            sending.frames += 1;
        }
        sending.done = queue.progress >= total;
        if sending.done {
            queue.progress = 0;
        } else if sending.frames == 0 {
            return Err(Stop::Waits);
        }
        Ok(sending)
    }

    /// Drops the frame in `segments`.
    #[cold]
    fn discard(&mut self, io: &mut Io<'_>, queue: u16, index: u32, cause: TransmitFault) {
        io.counters.discarded += 1;
        io.checks.report(Violation::TransmitDescriptor { queue, index, cause });
    }

    /// Strict mode: every descriptor that is new.
    pub(super) fn look_ahead(&mut self, doorbells: &Doorbells, (memory, checks, posted): Watch<'_>) {
        for number in &self.active {
            let queue = &mut self.queues[usize::from(*number)];
            let tail = doorbells.get(Ring::Tx(*number));
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
        self.offload = Settings::gather(regs);
        self.sources = (regs.get(map::PFVFSPOOF) & 1 != 0).then(|| stations(regs));
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
            queue.timed = queue.vectors != 0 && interval(regs, queue.vectors.trailing_zeros()) != 0;
        }
    }
}

/// Counts a frame that went out, of a queue that is counted in `slot` or of the MAC itself.
#[inline]
pub(super) fn count(io: &mut Io<'_>, frame: &[u8], sent: Sent, slot: Option<usize>, pad: bool) {
    if matches!(sent, Sent::Lost) {
        io.counters.lost += 1;
    } else {
        io.counters.sent += 1;
        io.counters.sent_bytes += frame.len() as u64;
    }
    let cast = Cast::of(destination(&frame[..frame.len().min(8)]));
    io.stats.transmitted(slot, cast, packet_bytes(frame.len(), pad));
}

impl TxQueue {
    /// A context descriptor: what the frames behind it refer to.
    fn set_context(&mut self, io: &mut Io<'_>, number: u16, descriptor: Segment) {
        let index = slot(descriptor.high);
        if let Some(context) = self.contexts.get_mut(usize::from(index)) {
            *context = Some(Context::parse(descriptor.address, descriptor.high));
        } else {
            let cause = TransmitFault::ContextIndex(index);
            io.checks.report(Violation::TransmitDescriptor { queue: number, index: descriptor.index, cause });
        }
    }

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
