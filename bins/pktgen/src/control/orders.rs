//! What workers are told, and what they answer: the one seam between those who steer and the generator. A worker looks at one number a
//! round, never waits, and answers in pieces of a stream a round.

use crate::trial::Phase;
use measure::{Latency, Pattern, Rate, Verdict};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long workers may take to answer, unless it is said.
const PATIENCE: Duration = Duration::from_secs(10);

/// What all pairs of a run are told, and what each has answered.
#[derive(Debug)]
pub(crate) struct Orders {
    /// Counts the orders.
    number: AtomicU64,
    wanted: Mutex<Wanted>,
    answers: Mutex<Vec<PairState>>,
    answered: Condvar,
    /// How long they may take to answer.
    pub(super) patience: Duration,
}

/// How it is to be.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// Of the last order.
    number: u64,
    pub(crate) runs: bool,
    pub(crate) ends: bool,
    /// How often counters were to begin anew.
    pub(crate) clears: u64,
    /// Rates that were changed, by port and source of it, each with the number of its order.
    pub(crate) rates: Vec<Vec<Option<(u64, Pace)>>>,
}

/// A rate, and what else a pacer has to know, with times in ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) rate: Rate,
    pub(crate) pattern: Pattern,
    pub(crate) hz: u64,
    pub(crate) catch_up: u64,
    /// Which queue pair has it, and of how many: they take turns.
    pub(crate) turn: [u16; 2],
}

impl Pace {
    /// What one of several queue pairs has of it: an equal part, whose random times are its own.
    pub(crate) fn part(self, [queue, queues]: [usize; 2]) -> Self {
        let pattern = match self.pattern {
            Pattern::Poisson(seed) => Pattern::Poisson(seed.wrapping_add((queue as u64) << 16)),
            pattern => pattern,
        };
        let turn = [queue, queues].map(|number| u16::try_from(number).unwrap_or(u16::MAX));
        Self { rate: self.rate.part(turn[1]), pattern, turn, ..self }
    }
}

/// How a pair is, at some moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct PairState {
    /// The order that it has seen last.
    pub(crate) number: u64,
    /// It obeys no more.
    pub(crate) ended: bool,
    pub(crate) phase: Phase,
    pub(crate) runs: bool,
    /// Times in ticks: of this state, and since when it is counted.
    pub(crate) now: u64,
    pub(crate) since: u64,
    pub(crate) directions: Vec<DirectionState>,
}

/// How a direction is.
#[derive(Clone, Debug, Default)]
pub(crate) struct DirectionState {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) foreign: u64,
    pub(crate) damaged: u64,
    pub(crate) unread: u64,
    pub(crate) streams: Vec<StreamState>,
}

/// How a stream is.
#[derive(Clone, Debug, Default)]
pub(crate) struct StreamState {
    /// Frames a tick now, if there is a limit.
    pub(crate) asked: Option<f64>,
    pub(crate) sent: u64,
    pub(crate) missed: u64,
    /// Of as many frames as the highest number that has arrived says; without tags of as many as came.
    pub(crate) verdict: Verdict,
    /// Frames whose number or time cannot be.
    pub(crate) impossible: u64,
    pub(crate) from_due: Latency,
    pub(crate) from_ring: Latency,
}

impl PairState {
    /// How two ports are that have several queue pairs, of which these are the states.
    pub(crate) fn joined(states: &[Self]) -> Self {
        let Some((first, others)) = states.split_first() else { return Self::default() };
        let mut all = first.clone();
        for state in others {
            all.number = all.number.min(state.number);
            all.ended &= state.ended;
            all.phase = all.phase.min(state.phase);
            all.runs &= state.runs;
            (all.now, all.since) = (all.now.max(state.now), all.since.max(state.since));
            for (all, one) in all.directions.iter_mut().zip(&state.directions) {
                all.foreign += one.foreign;
                all.damaged += one.damaged;
                all.unread += one.unread;
                all.streams.iter_mut().zip(&one.streams).for_each(|(all, one)| all.add(one));
            }
        }
        all
    }
}

impl StreamState {
    /// Adds what another queue pair has of the stream.
    fn add(&mut self, other: &Self) {
        self.asked = self.asked.zip(other.asked).map(|(all, one)| all + one);
        self.sent += other.sent;
        self.missed += other.missed;
        self.verdict += other.verdict;
        self.impossible += other.impossible;
        self.from_due.add(&other.from_due);
        self.from_ring.add(&other.from_ring);
    }
}

impl Default for Orders {
    fn default() -> Self {
        Self::new(0, true)
    }
}

impl Orders {
    /// Creates them for so many pairs, which run, or wait for a start.
    pub(crate) fn new(pairs: usize, runs: bool) -> Self {
        let number = u64::from(!runs);
        let wanted = Wanted { number, runs, ends: false, clears: 0, rates: Vec::new() };
        let answers = Mutex::new(vec![PairState::default(); pairs]);
        let (number, wanted, answered) = (AtomicU64::new(number), Mutex::new(wanted), Condvar::new());
        Self { number, wanted, answers, answered, patience: PATIENCE }
    }

    /// The number of the last order.
    #[inline(always)]
    pub(crate) fn number(&self) -> u64 {
        // What it is about is read under the lock.
        self.number.load(Ordering::Relaxed)
    }

    /// Shows a worker how it is to be; `None` if somebody writes that just now, so it is to look again.
    pub(crate) fn look<T>(&self, see: impl FnOnce(u64, &Wanted) -> T) -> Option<T> {
        let wanted = self.wanted.try_lock().ok()?;
        Some(see(wanted.number, &wanted))
    }

    /// Takes the answer of a pair to an order.
    pub(crate) fn answer(&self, pair: usize, number: u64, state: PairState) {
        if let Some(answer) = lock(&self.answers).get_mut(pair) {
            let ended = answer.ended;
            *answer = PairState { number, ended, ..state };
        }
        self.answered.notify_all();
    }

    /// A pair obeys no more; its last answer stays.
    pub(crate) fn leave(&self, pair: usize) {
        if let Some(answer) = lock(&self.answers).get_mut(pair) {
            answer.ended = true;
        }
        self.answered.notify_all();
    }

    /// Changes how it is to be, waits until all pairs have seen that, and returns how they are. `change` is given the order's number.
    /// `None` if one does not answer within its patience.
    pub(crate) fn order(&self, change: impl FnOnce(u64, &mut Wanted)) -> Option<Vec<PairState>> {
        let mut wanted = lock(&self.wanted);
        wanted.number += 1;
        let number = wanted.number;
        change(number, &mut wanted);
        self.number.store(number, Ordering::Relaxed);
        drop(wanted);
        let begun = Instant::now();
        let mut answers = lock(&self.answers);
        while !answers.iter().all(|answer| answer.ended || answer.number >= number) {
            let left = self.patience.checked_sub(begun.elapsed())?;
            answers = self.answered.wait_timeout(answers, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        Some(answers.clone())
    }
}

/// What a thread that panicked has left is whole: each change is one assignment.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_times_of_queue_pairs_are_their_own() {
        let rate = "1000".parse::<measure::Load>().unwrap().rate(60, None).unwrap();
        let seed = |pattern, queue| Pace { rate, pattern, hz: 1, catch_up: 0, turn: [0, 1] }.part([queue, 4]).pattern;
        let seeds: Vec<_> = (0..4).map(|queue| seed(Pattern::Poisson(u64::MAX), queue)).collect();
        assert!((0..4).all(|at| !seeds[..at].contains(&seeds[at])), "{seeds:?}");
        assert_eq!(seeds[0], Pattern::Poisson(u64::MAX));
        assert_eq!(seed(Pattern::Bursts(3), 2), Pattern::Bursts(3));
    }
}
