//! The work of an lcore in a run: both directions of a pair of ports, from the probes to the end of the drain.

use crate::lane::{Lane, Part, Sent};
use cli::counters::{Counters, Published};
use lcore::{Clock, Function, Loop, PacedRx};
use measure::{HandOvers, Stream, Tag};
use mempool::{Batch, Packet, Pool, PoolCache};
use nic::{AnyRxQueue, AnyTxQueue, RxQueue, TxQueue};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What is common to the directions of a run, with times in ticks.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) warm_up: u64,
    pub(crate) duration: Option<u64>,
    pub(crate) count: Option<u64>,
    pub(crate) paced: bool,
    pub(crate) probe_interval: u64,
    pub(crate) probe_limit: u64,
    /// The drain ends when all has come and nothing follows for so long, and at the latest after `drain`.
    pub(crate) settle: u64,
    pub(crate) drain: u64,
    /// What the ring has not taken by then is not sent.
    pub(crate) flush: u64,
    /// A user wants the end.
    pub(crate) cut: Arc<AtomicBool>,
}

/// Streams of a direction.
const PROBE: u16 = 0;
const WARM_UP: u16 = 1;
const COUNTED: u16 = 2;
/// Numbers of streams that a direction takes.
pub(crate) const STREAMS: u16 = 4;

/// One port sends, another receives.
#[derive(Debug)]
pub(crate) struct Direction<R = AnyRxQueue, T = AnyTxQueue> {
    pub(crate) lane: Lane<T>,
    pub(crate) to: usize,
    pub(crate) rx: PacedRx<R>,
    /// Buffers go home to the pool of the port that receives.
    cache: PoolCache,
    /// Number of the first of its streams.
    base: u16,
    hand_overs: HandOvers,
    pub(crate) stream: Stream,
    pub(crate) answered: bool,
    /// Frames that are none of this direction's.
    pub(crate) foreign: u64,
    pub(crate) sent: Option<Sent>,
    pub(crate) missed: u64,
    pub(crate) published: Arc<Published>,
    pub(crate) progress: Arc<Progress>,
    seen: u64,
}

/// How far a direction is, for the live view.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Progress([AtomicU64; 4]);

/// The parts of a run, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Probe,
    WarmUp,
    Counted,
    /// Nothing more is due; the ring may still hold frames back.
    Flush,
    Drain,
    Done,
}

/// The directions of a pair.
#[derive(Debug)]
pub(crate) struct Pair<R = AnyRxQueue, T = AnyTxQueue> {
    pub(crate) directions: Vec<Direction<R, T>>,
    plan: Plan,
    batch: Batch,
    phase: Phase,
    since: u64,
    next_probe: u64,
    /// When a frame was last counted.
    last_arrival: u64,
}

impl<R: RxQueue, T: TxQueue> Direction<R, T> {
    pub(crate) fn new(lane: Lane<T>, to: usize, rx: R, pool: &Pool, base: u16) -> Self {
        Self {
            lane,
            to,
            rx: PacedRx::new(rx),
            cache: pool.cache(),
            base,
            hand_overs: HandOvers::new(),
            stream: Stream::new(base.wrapping_add(COUNTED), 0),
            answered: false,
            foreign: 0,
            sent: None,
            missed: 0,
            published: Arc::default(),
            progress: Arc::default(),
            seen: 0,
        }
    }

    /// Receives a burst. Returns how many frames of the counted stream were in it.
    #[inline(always)]
    fn receive(&mut self, clock: &mut Clock, batch: &mut Batch) -> usize {
        let received = self.rx.recv(clock, &mut self.cache, batch).len();
        if received == 0 {
            return 0;
        }
        let cycles = clock.lap();
        let counted = self.look(batch, clock.now());
        self.cache.free_batch(batch);
        self.lane.counters.cycles += cycles + clock.lap();
        counted
    }

    #[inline(always)]
    fn look(&mut self, batch: &Batch, now: u64) -> usize {
        let frames = batch.iter().map(Packet::data);
        let others = self.stream.saw(frames, now, self.lane.handed(), Some(&self.hand_overs));
        if others > 0 {
            self.look_at_others(batch);
        }
        batch.len() - others
    }

    /// A frame's tag is in its last packet; so those before are of no frame that counts.
    #[cold]
    #[inline(never)]
    fn look_at_others(&mut self, batch: &Batch) {
        let counted = self.base.wrapping_add(COUNTED);
        for packet in batch.iter().filter(|packet| !packet.continues()) {
            match Tag::parse(packet.data()) {
                Some(tag) if tag.stream == counted => {}
                other => self.saw_other(other),
            }
        }
    }

    fn saw_other(&mut self, tag: Option<Tag>) {
        match tag.map(|tag| tag.stream.wrapping_sub(self.base)) {
            Some(PROBE) => self.answered = true,
            Some(WARM_UP) => {}
            _ => self.foreign += 1,
        }
    }

    fn publish(&mut self, phase: Phase) {
        let counters = &mut self.lane.counters;
        counters.set_rx(self.rx.queue.counters());
        counters.set_tx(self.lane.tx.counters());
        let seen = counters.rx_packets + counters.tx_packets + counters.dropped_in();
        self.published.publish(*counters, seen == self.seen);
        self.seen = seen;
        let values = [phase as u64, self.lane.handed(), self.stream.received(), self.lane.missed()];
        self.progress.0.iter().zip(values).for_each(|(shared, value)| shared.store(value, Ordering::Relaxed));
    }

    /// What it has counted, for the totals of the ports.
    pub(crate) fn counters(&self) -> Counters {
        self.lane.counters
    }
}

impl Progress {
    /// Phase, frames sent and received in it, and frames missed.
    pub(crate) fn read(&self) -> [u64; 4] {
        [0, 1, 2, 3].map(|index| self.0[index].load(Ordering::Relaxed))
    }
}

impl<R: RxQueue, T: TxQueue> Pair<R, T> {
    pub(crate) fn new(directions: Vec<Direction<R, T>>, plan: Plan, batch: usize) -> Self {
        let batch = Batch::with_capacity(batch);
        Self { directions, plan, batch, phase: Phase::Probe, since: 0, next_probe: 0, last_arrival: 0 }
    }

    /// Runs until all directions have drained, or no probe came back. Returns them.
    pub(crate) fn run(self, poll_loop: Loop) -> Vec<Direction<R, T>> {
        poll_loop.run(self).directions
    }

    fn enter(&mut self, phase: Phase, now: u64) {
        (self.phase, self.since, self.last_arrival) = (phase, now, now);
        let Plan { warm_up, duration, count, paced, .. } = self.plan;
        for direction in &mut self.directions {
            let base = direction.base;
            let part = match phase {
                Phase::WarmUp => Part { stream: base.wrapping_add(WARM_UP), paced, limit: None, ticks: Some(warm_up) },
                Phase::Counted => Part { stream: base.wrapping_add(COUNTED), paced, limit: count, ticks: duration },
                _ => continue,
            };
            direction.lane.begin(now, part);
            if phase == Phase::Counted {
                direction.stream = Stream::new(base.wrapping_add(COUNTED), now);
                (direction.hand_overs, direction.foreign) = (HandOvers::new(), 0);
            }
        }
    }

    /// Goes on to the next phase when the present one is over.
    #[inline(always)]
    fn steer(&mut self, now: u64) {
        let elapsed = now.saturating_sub(self.since);
        match self.phase {
            Phase::Counted => {
                // A ring that stands still ends it too: what is tagged has its time in the next phase.
                let patience = self.plan.flush;
                let over = |lane: &Lane<T>| lane.is_past_end(now, patience) || lane.is_done(now);
                if self.directions.iter().all(|direction| over(&direction.lane)) {
                    self.enter(Phase::Flush, now);
                }
            }
            _ => self.steer_slowly(now, elapsed),
        }
    }

    #[inline(never)]
    fn steer_slowly(&mut self, now: u64, elapsed: u64) {
        match self.phase {
            Phase::Probe => self.probe(now),
            Phase::WarmUp if elapsed >= self.plan.warm_up => self.enter(Phase::Counted, now),
            Phase::Flush => {
                let is_flushed = self.directions.iter().all(|direction| direction.lane.is_done(now));
                if is_flushed || elapsed >= self.plan.flush {
                    self.note_sent(now);
                    self.enter(Phase::Drain, now);
                }
            }
            Phase::Drain => {
                let all =
                    self.directions.iter().all(|one| one.sent.is_some_and(|sent| one.stream.received() == sent.handed));
                // Doubles may follow the last.
                let is_settled = now.saturating_sub(self.last_arrival) >= self.plan.settle;
                if (all && is_settled) || elapsed >= self.plan.drain {
                    self.phase = Phase::Done;
                }
            }
            _ => {}
        }
    }

    fn probe(&mut self, now: u64) {
        if self.since == 0 {
            self.since = now;
            for direction in &mut self.directions {
                let stream = direction.base.wrapping_add(PROBE);
                direction.lane.begin(now, Part { stream, paced: false, limit: Some(0), ticks: None });
            }
        }
        if self.directions.iter().all(|direction| direction.answered) {
            return self.enter(if self.plan.warm_up > 0 { Phase::WarmUp } else { Phase::Counted }, now);
        }
        if now.saturating_sub(self.since) >= self.plan.probe_limit {
            self.phase = Phase::Done;
        } else if now >= self.next_probe {
            self.next_probe = now + self.plan.probe_interval;
            self.directions.iter_mut().for_each(|direction| direction.lane.one_more());
        }
    }

    /// Nothing more is sent of what counts.
    fn note_sent(&mut self, now: u64) {
        for Direction { lane, sent, missed, .. } in &mut self.directions {
            lane.give_up(now);
            (*sent, *missed) = (Some(lane.sent()), lane.missed());
        }
    }

    /// The user has had enough.
    fn cut(&mut self) {
        match self.phase {
            Phase::Probe | Phase::WarmUp => self.phase = Phase::Done,
            Phase::Counted => self.directions.iter_mut().for_each(|direction| direction.lane.cut()),
            _ => {}
        }
    }
}

impl<R: RxQueue, T: TxQueue> Function for Pair<R, T> {
    #[inline(always)]
    fn poll(&mut self, clock: &mut Clock) -> bool {
        let Self { directions, batch, phase, last_arrival, .. } = self;
        let mut moved = false;
        for direction in directions {
            if direction.receive(clock, batch) > 0 {
                *last_arrival = clock.now();
                moved = true;
            }
            let hand_overs = (*phase == Phase::Counted || *phase == Phase::Flush).then_some(&mut direction.hand_overs);
            let sent = direction.lane.poll(clock.now(), hand_overs);
            let cycles = clock.lap();
            if sent > 0 {
                direction.lane.counters.cycles += cycles;
                moved = true;
            }
        }
        self.steer(clock.now());
        moved
    }

    fn publish(&mut self) {
        if self.plan.cut.load(Ordering::Relaxed) {
            self.cut();
        }
        let phase = self.phase;
        self.directions.iter_mut().for_each(|direction| direction.publish(phase));
    }

    fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }

    /// At an end that nobody planned, as when a device is gone, what was counted so far is kept.
    fn finish(&mut self) {
        if matches!(self.phase, Phase::Counted | Phase::Flush) {
            self.note_sent(device::tsc::now());
        }
    }
}

#[cfg(test)]
mod tests;
