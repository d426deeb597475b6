//! The work of an lcore in a run: pairs of ports, each from its probes to the end of its drain.

use super::direction::{Direction, Echoes};
use super::obey::Obeyed;
use super::spread::Spread;
use crate::control::Orders;
use crate::lane::{Lane, Part};
use lcore::{Clock, Function, Loop};
use mempool::Batch;
use nic::{AnyRxQueue, AnyTxQueue, RxQueue, TxQueue};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What is common to the directions of a run, with times in ticks.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) warm_up: u64,
    pub(crate) duration: Option<u64>,
    pub(crate) count: Option<u64>,
    pub(crate) probe_interval: u64,
    pub(crate) probe_limit: u64,
    /// From the probes that came back to the next phase.
    pub(crate) learning: u64,
    /// Learning frames of each port before that.
    pub(crate) learning_frames: u32,
    /// How often a port that only receives sends one more.
    pub(crate) forgets: u64,
    /// The drain ends when all has come and nothing follows for `settle`, or when something is missing and nothing comes for `silence`,
    /// or [`ROUND_TRIPS`] of the probes if that is longer; at the latest after `drain`.
    pub(crate) settle: u64,
    pub(crate) silence: u64,
    pub(crate) drain: u64,
    /// If something is missing after that silence, a frame sent then has to come through, as what is missing may be held up and not lost: for
    /// so long at most. 0 to ask for none.
    pub(crate) echo: u64,
    /// What the ring has not taken by then is not sent.
    pub(crate) flush: u64,
    /// A user wants the end.
    pub(crate) cut: Arc<AtomicBool>,
    /// How long what was sent is waited for then, if nothing more was to be sent.
    pub(crate) patience: u64,
    /// What else users want.
    pub(crate) orders: Arc<Orders>,
}

/// Times that a probe took, for which nothing comes before what is missing counts as lost.
const ROUND_TRIPS: u64 = 4;

/// Streams of a direction, from its base on: this, that, and those that count.
pub(super) const PROBE: u16 = 0;
pub(super) const WARM_UP: u16 = 1;
pub(super) const ECHO: u16 = 2;
pub(super) const LEARNING: u16 = 3;
pub(super) const COUNTED: u16 = 4;

/// The parts of a run, in their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    #[default]
    Probe,
    WarmUp,
    Counted,
    /// Nothing more is due; the ring may still hold frames back.
    Flush,
    Drain,
    Done,
}

/// The directions of a pair of ports.
#[derive(Debug)]
pub(crate) struct Pair<R = AnyRxQueue, T = AnyTxQueue> {
    pub(crate) directions: Vec<Direction<R, T>>,
    pub(super) plan: Plan,
    pub(super) phase: Phase,
    since: u64,
    next_probe: u64,
    /// When ports that only receive send the next learning frame.
    pub(super) next_lesson: u64,
    /// When all probes had come back.
    answered: Option<u64>,
    /// From the first probe until then.
    round_trip: u64,
    /// When a frame was last counted.
    last_arrival: u64,
    /// When the drain was last looked at, since when it asks for echoes, and when each direction had one.
    looked: u64,
    /// When its ports were last polled, and the longest time between two polls since the probes, up to the last frame.
    polled: u64,
    away: u64,
    asked: Option<u64>,
    heard: Option<u64>,
    /// When a user wanted the end, if all was sent by then.
    cut_since: Option<u64>,
    pub(super) obeyed: Obeyed,
}

/// The pairs of an lcore. Each goes its own way: one whose probes are lost holds up no other.
#[derive(Debug)]
pub(crate) struct Pairs<R = AnyRxQueue, T = AnyTxQueue> {
    pub(crate) pairs: Vec<Pair<R, T>>,
    batch: Batch,
}

impl<R: RxQueue, T: TxQueue> Pair<R, T> {
    pub(crate) fn new(directions: Vec<Direction<R, T>>, plan: Plan) -> Self {
        Self {
            directions,
            plan,
            phase: Phase::Probe,
            since: 0,
            next_probe: 0,
            next_lesson: 0,
            answered: None,
            round_trip: 0,
            last_arrival: 0,
            looked: 0,
            polled: 0,
            away: 0,
            asked: None,
            heard: None,
            cut_since: None,
            obeyed: Obeyed::default(),
        }
    }

    fn enter(&mut self, phase: Phase, now: u64) {
        (self.phase, self.since, self.last_arrival, self.looked) = (phase, now, now, now);
        let Plan { warm_up, duration, count, .. } = self.plan;
        for direction in &mut self.directions {
            if matches!(phase, Phase::WarmUp | Phase::Counted) {
                direction.change_pace(now, phase);
            }
            let (base, [queue, queues]) = (direction.base, direction.queue().map(|count| count as u64));
            // Each queue pair sends its part.
            let count = count.map(|count| count / queues + u64::from(queue < count % queues));
            let part = Part { stream: base, apart: false, paced: true, limit: None, ticks: None };
            let part = match phase {
                Phase::WarmUp => Part { stream: base.wrapping_add(WARM_UP), ticks: Some(warm_up), ..part },
                Phase::Counted => {
                    Part { stream: base.wrapping_add(COUNTED), apart: true, limit: count, ticks: duration, ..part }
                }
                _ => continue,
            };
            direction.lane.begin(now, part);
            if phase == Phase::Counted {
                direction.begin_counting(now);
                self.obeyed.counts_since = now;
            }
        }
    }

    #[inline(always)]
    fn poll(&mut self, clock: &mut Clock, batch: &mut Batch) -> bool {
        let Self { directions, phase, last_arrival, .. } = self;
        let mut moved = false;
        for direction in directions {
            if direction.receive(clock, batch) > 0 {
                *last_arrival = clock.now();
                moved = true;
            }
            let sent = direction.send(clock.now(), *phase);
            let cycles = clock.lap();
            if sent > 0 {
                direction.tally.counters.cycles += cycles;
                moved = true;
            }
        }
        self.steer(clock.now());
        if self.plan.orders.number() != self.obeyed.number {
            self.obey(clock.now());
        }
        moved
    }

    /// Goes on to the next phase when the present one is over.
    #[inline(always)]
    fn steer(&mut self, now: u64) {
        let elapsed = now.saturating_sub(self.since);
        // After the last frame it may look away.
        if self.phase > Phase::Probe && (self.phase < Phase::Drain || self.last_arrival > self.polled) {
            let away = now.saturating_sub(self.polled);
            if away > self.away {
                self.note_away(away);
            }
        }
        self.polled = now;
        match self.phase {
            Phase::Counted => {
                // A ring that stands still ends it too: what is tagged has its time in the next phase.
                let patience = self.plan.flush;
                let over = |lane: &Lane<T>| lane.is_past_end(now, patience) || lane.is_done(now);
                if self.directions.iter().all(|direction| over(&direction.lane)) {
                    let is_cut = self.obeyed.is_cut;
                    self.directions.iter_mut().for_each(|direction| direction.lane.note_over(now, is_cut));
                    self.enter(Phase::Flush, now);
                }
            }
            _ => self.steer_slowly(now, elapsed),
        }
    }

    #[cold]
    #[inline(never)]
    fn note_away(&mut self, away: u64) {
        self.away = away;
        self.directions.iter_mut().for_each(|direction| direction.away = away);
    }

    #[inline(never)]
    fn steer_slowly(&mut self, now: u64, elapsed: u64) {
        if self.cut_since.is_some_and(|since| now.saturating_sub(since) >= self.plan.patience) {
            self.finish();
            self.phase = Phase::Done;
        }
        match self.phase {
            Phase::Probe => self.probe(now),
            Phase::WarmUp if elapsed >= self.plan.warm_up => {
                // What is to be known from the end of an overload on begins there, however late that is seen.
                let is_overload = self.directions.iter().any(|direction| direction.lane.has_other_paces());
                let end = self.since.saturating_add(self.plan.warm_up);
                self.enter(Phase::Counted, if is_overload { end } else { now });
            }
            Phase::Flush => {
                let is_flushed = self.directions.iter().all(|direction| direction.lane.is_done(now));
                if is_flushed || elapsed >= self.plan.flush {
                    self.directions.iter_mut().for_each(|direction| direction.note_sent(now));
                    self.enter(Phase::Drain, now);
                }
            }
            Phase::Drain => self.drain(now),
            _ => {}
        }
    }

    fn drain(&mut self, now: u64) {
        if self.is_drained(now) {
            self.spreads().for_each(Spread::note_drained);
            // What others have sent may still come by these queues.
            if self.spreads().all(Spread::all_drained) {
                self.phase = Phase::Done;
            }
        }
    }

    /// Whether nothing more is waited for.
    fn is_drained(&mut self, now: u64) -> bool {
        let Plan { settle, silence, drain, echo, probe_interval, .. } = self.plan;
        self.last_arrival = self.spreads().map(Spread::last_arrival).fold(self.last_arrival, u64::max);
        // While this lcore did not run it has not seen what came.
        let stopped = now.saturating_sub(self.looked).saturating_sub(probe_interval);
        for time in [Some(&mut self.since), Some(&mut self.last_arrival), self.asked.as_mut()].into_iter().flatten() {
            *time = time.saturating_add(stopped).min(now);
        }
        self.looked = now;
        let all = self.directions.iter().all(Direction::is_complete);
        // Doubles may follow the last, and what a device holds comes later than the last before it.
        let silence = silence.max(self.round_trip.saturating_mul(ROUND_TRIPS));
        let quiet = if all { settle } else { settle.max(silence) };
        if now.saturating_sub(self.last_arrival) >= quiet {
            return all || self.is_echoed(now);
        }
        // What was held up has the time for it too.
        now.saturating_sub(self.since) >= if self.asked.is_some() { drain.saturating_add(echo) } else { drain }
    }

    /// Asks each direction that misses something for an echo. Returns whether all have it, or it is no use to wait for one.
    fn is_echoed(&mut self, now: u64) -> bool {
        let Plan { echo, probe_interval, settle, .. } = self.plan;
        let asked = *self.asked.get_or_insert(now);
        if now.saturating_sub(asked) >= echo {
            return true;
        }
        let mut missing = self.directions.iter().filter(|direction| !direction.is_complete());
        if missing.all(|direction| direction.echoes.came > 0) {
            // The others are on their way too, and would come in the next run.
            let heard = *self.heard.get_or_insert(now);
            let has_all = |Echoes { sent, came }: Echoes| came >= sent;
            return now.saturating_sub(heard) >= settle || self.directions.iter().all(|one| has_all(one.echoes));
        }
        if now >= self.next_probe || asked == now {
            self.next_probe = now + probe_interval;
            self.directions
                .iter_mut()
                .filter(|one| one.echoes.came == 0 && !one.is_complete())
                .for_each(Direction::ask);
        }
        false
    }

    /// What directions have to do with other queue pairs.
    fn spreads(&self) -> impl Iterator<Item = &Spread> {
        self.directions.iter().filter_map(|direction| direction.spread.as_deref())
    }

    fn probe(&mut self, now: u64) {
        if self.since == 0 {
            self.since = now;
            for direction in &mut self.directions {
                let stream = direction.base.wrapping_add(PROBE);
                let part = Part { stream, apart: false, paced: false, limit: Some(0), ticks: None };
                direction.lane.begin(now, part);
            }
        }
        if self.directions.iter().all(Direction::hears) {
            if self.answered.is_none() {
                self.teach_all(now);
            }
            let answered = *self.answered.get_or_insert(now);
            self.round_trip = answered.saturating_sub(self.since);
            if now.saturating_sub(answered) < self.plan.learning {
                return;
            }
            return self.enter(if self.plan.warm_up > 0 { Phase::WarmUp } else { Phase::Counted }, now);
        }
        if now.saturating_sub(self.since) >= self.plan.probe_limit {
            self.spreads().for_each(Spread::note_drained);
            self.phase = Phase::Done;
        } else if now >= self.next_probe {
            self.next_probe = now + self.plan.probe_interval;
            self.teach(now);
            self.directions.iter_mut().for_each(|direction| direction.lane.one_more());
        }
    }

    /// The user has had enough.
    pub(super) fn cut(&mut self) {
        match self.phase {
            // Another queue pair may have frames under way that count.
            Phase::Probe | Phase::WarmUp if self.spreads().next().is_some() => {
                self.directions.iter_mut().for_each(|direction| direction.lane.cut());
                self.enter(Phase::Drain, device::tsc::now());
            }
            Phase::Probe | Phase::WarmUp => self.phase = Phase::Done,
            Phase::Counted if !self.obeyed.is_cut => {
                self.obeyed.is_cut = true;
                self.directions.iter_mut().for_each(|direction| direction.lane.cut());
            }
            // All is sent: what was measured is kept.
            Phase::Flush | Phase::Drain if !self.obeyed.is_cut && self.cut_since.is_none() => {
                self.cut_since = Some(device::tsc::now());
            }
            _ => {}
        }
    }

    fn publish(&mut self) {
        if self.plan.cut.load(Ordering::Relaxed) {
            self.cut();
        }
        self.speak();
        let (phase, now) = (self.phase, device::tsc::now());
        if phase == Phase::Counted && now >= self.next_lesson {
            self.teach(now);
        }
        self.directions.iter_mut().for_each(|direction| direction.publish(phase));
    }

    /// At an end that nobody planned, as when a device is gone, what was counted so far is kept.
    fn finish(&mut self) {
        self.spreads().for_each(Spread::note_drained);
        if self.phase != Phase::Done {
            self.directions.iter_mut().for_each(|direction| direction.is_broken_off = true);
        }
        if matches!(self.phase, Phase::Counted | Phase::Flush) {
            let now = device::tsc::now();
            for direction in &mut self.directions {
                if self.phase == Phase::Counted {
                    direction.lane.note_over(now, true);
                }
                direction.note_sent(now);
            }
        }
    }
}

impl<R: RxQueue, T: TxQueue> Pairs<R, T> {
    /// Creates it for bursts of `batch` packets.
    pub(crate) fn new(pairs: Vec<Pair<R, T>>, batch: usize) -> Self {
        Self { pairs, batch: Batch::with_capacity(batch) }
    }

    /// Runs until all directions have drained, or no probe came back. Returns them.
    pub(crate) fn run(self, poll_loop: Loop) -> Vec<Direction<R, T>> {
        let directions = |pair: Pair<R, T>| {
            pair.plan.orders.leave(pair.number());
            pair.directions
        };
        poll_loop.run(self).pairs.into_iter().flat_map(directions).collect()
    }
}

impl<R: RxQueue, T: TxQueue> Function for Pairs<R, T> {
    #[inline(always)]
    fn poll(&mut self, clock: &mut Clock) -> bool {
        let Self { pairs, batch } = self;
        pairs.iter_mut().fold(false, |moved, pair| pair.poll(clock, batch) | moved)
    }

    fn publish(&mut self) {
        self.pairs.iter_mut().for_each(Pair::publish);
    }

    fn is_done(&self) -> bool {
        self.pairs.iter().all(|pair| pair.phase == Phase::Done)
    }

    fn finish(&mut self) {
        self.pairs.iter_mut().for_each(Pair::finish);
    }
}

#[cfg(test)]
mod tests;
