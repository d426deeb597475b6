//! What a pair does when somebody steers it, between two rounds.

use super::direction::Direction;
use super::pair::{Pair, Phase};
use crate::control::{PairState, Wanted};
use nic::{RxQueue, TxQueue};

/// Rounds of sending at a change, for what was due before it.
const ROUNDS: usize = 8;

/// What a pair has done of what it was told.
#[derive(Debug)]
pub(super) struct Obeyed {
    /// The order that it has answered last.
    pub(super) number: u64,
    /// The order that it has done last.
    done: u64,
    runs: bool,
    clears: u64,
    /// Nothing more is to be sent.
    pub(super) is_cut: bool,
    /// Since when frames count.
    pub(super) counts_since: u64,
    /// The answer, as far as it is written.
    answer: Option<PairState>,
}

impl Default for Obeyed {
    fn default() -> Self {
        Self { number: 0, done: 0, runs: true, clears: 0, is_cut: false, counts_since: 0, answer: None }
    }
}

impl<R: RxQueue, T: TxQueue> Pair<R, T> {
    /// Which pair of the run it is: of each two ports as many as they have queue pairs.
    pub(super) fn number(&self) -> usize {
        self.directions.first().map_or(0, |direction| {
            let [queue, queues] = direction.queue();
            direction.lane.port / 2 * queues + queue
        })
    }

    /// Does what it is told, and then answers, a stream a round.
    #[cold]
    #[inline(never)]
    pub(super) fn obey(&mut self, now: u64) {
        if self.obeyed.answer.is_none() {
            let orders = std::sync::Arc::clone(&self.plan.orders);
            let Some(number) = orders.look(|number, wanted| {
                self.follow(now, wanted);
                number
            }) else {
                return;
            };
            self.obeyed.done = number;
            self.directions.iter_mut().for_each(Direction::look_at_clears);
            let directions = self.directions.iter().map(Direction::state).collect();
            let (phase, runs, since) = (self.phase, self.obeyed.runs, self.obeyed.counts_since);
            self.obeyed.answer = Some(PairState { phase, runs, now, since, directions, ..PairState::default() });
        }
        let Some(answer) = &mut self.obeyed.answer else { return };
        for (state, direction) in answer.directions.iter_mut().zip(&self.directions) {
            if let Some(stream) = direction.state_of(state.streams.len()) {
                state.streams.push(stream);
                return;
            }
        }
        let (number, pair) = (self.obeyed.done, self.number());
        self.obeyed.number = number;
        if let Some(answer) = self.obeyed.answer.take() {
            self.plan.orders.answer(pair, number, answer);
        }
    }

    fn follow(&mut self, now: u64, wanted: &Wanted) {
        // What is due by now is sent at the old rate.
        for direction in &mut self.directions {
            for _ in 0..ROUNDS {
                if direction.send(now, self.phase) == 0 {
                    break;
                }
            }
        }
        let done = self.obeyed.done;
        for direction in &mut self.directions {
            let queue = direction.queue();
            let lane = &mut direction.lane;
            let rates = wanted.rates.get(lane.port).into_iter().flatten().enumerate();
            for (source, (number, pace)) in rates.filter_map(|(source, rate)| Some((source, rate.as_ref()?))) {
                if *number > done {
                    lane.set_pace(now, source, &pace.part(queue));
                }
            }
            lane.set_running(now, wanted.runs);
        }
        self.obeyed.runs = wanted.runs;
        if wanted.clears != self.obeyed.clears {
            self.obeyed.clears = wanted.clears;
            // Of several queue pairs all do so, wherever each is.
            if self.phase == Phase::Counted || self.directions.iter().any(|direction| direction.spread.is_some()) {
                self.obeyed.counts_since = now;
                let has_begun = self.phase >= Phase::Counted;
                self.directions.iter_mut().for_each(|direction| direction.clear(now, wanted.clears, has_begun));
            }
        }
        if wanted.ends {
            self.cut();
        }
    }
}
