//! A lane whose rates change while it sends, which pauses, and whose counters begin anew.

use super::{Lane, Source};
use crate::control::Pace;
use crate::pacing::Pacing;
use measure::Pacer;
use nic::TxQueue;

/// How many frames were asked for: a rate that changes, over time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asked {
    frames: f64,
    /// Up to this time, in ticks.
    until: u64,
    /// For some time there was no limit.
    unlimited: bool,
}

impl Asked {
    /// Nothing, before this time.
    pub(super) fn since(now: u64) -> Self {
        Self { until: now, ..Self::default() }
    }
}

impl Source {
    /// Counts what was asked for up to now.
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    fn ask(&mut self, now: u64, runs: bool) {
        let ticks = now.saturating_sub(self.asked.until);
        self.asked.until = self.asked.until.max(now);
        match &self.pacing {
            Some(pacing) if runs => self.asked.frames += pacing.frames_per_tick() * ticks as f64,
            None if runs && ticks > 0 => self.asked.unlimited = true,
            _ => {}
        }
    }

    /// Goes on at another rate from `now` on, for so many ticks.
    fn set_pace(&mut self, now: u64, pace: &Pace, ticks: Option<u64>) {
        match &mut self.pacing {
            Some(Pacing::Rate(pacer)) => pacer.set_rate(now, pace.rate, pace.hz),
            // A capture keeps its times.
            Some(Pacing::Capture(_)) => {}
            None => {
                let [turn, of] = pace.turn;
                let mut pacer = Pacer::new(pace.rate, pace.pattern, pace.hz, pace.catch_up).in_turn(turn, of);
                pacer.start(now, ticks);
                self.pacing = Some(Pacing::Rate(pacer));
            }
        }
    }

    /// Shares of the streams that take turns, and their indices: they add up to 1.
    #[expect(clippy::cast_precision_loss, reason = "weights, for a share")]
    fn shares(&self) -> impl Iterator<Item = (usize, f64)> {
        let all = self.traffic.weights().map(|(_, weight)| weight).sum::<u64>().max(1);
        self.traffic.weights().map(move |(index, weight)| (index, weight as f64 / all as f64))
    }
}

impl<T: TxQueue> Lane<T> {
    /// Sends what is due, or nothing until it is told to go on; what was due by `now` and is not sent is missed.
    pub(crate) fn set_running(&mut self, now: u64, runs: bool) {
        if runs == self.stopped.is_none() || self.over.is_some() {
            return;
        }
        self.sources.iter_mut().for_each(|source| source.ask(now, !runs));
        let paced = self.sources.iter_mut().filter_map(|source| source.pacing.as_mut());
        match self.stopped.take() {
            Some(since) => paced.for_each(|pacing| pacing.put_off(now.saturating_sub(since))),
            None => {
                if self.paced && self.tagged < self.limit {
                    paced.for_each(|pacing| pacing.miss(now));
                }
                self.stopped = Some(now);
            }
        }
        self.steered = true;
    }

    /// Changes the rate of a source from `now` on: what was due by then and is not sent is missed.
    pub(crate) fn set_pace(&mut self, now: u64, number: usize, pace: &Pace) {
        let Some(source) = self.sources.iter_mut().find(|source| source.number == number) else { return };
        if self.over.is_some() {
            return;
        }
        self.steered = true;
        if self.tagged >= self.limit && self.paced {
            return;
        }
        source.ask(now, self.stopped.is_none());
        // A schedule that stands still is at where it stopped.
        let at = self.stopped.unwrap_or(now);
        let ticks = if self.paced { (self.end < u64::MAX).then(|| self.end.saturating_sub(at)) } else { Some(0) };
        source.set_pace(at, pace, ticks);
        self.sort();
    }

    /// Begins counters anew. Frames that were handed over count for nothing any more.
    pub(crate) fn clear(&mut self, now: u64) {
        self.missed_before = self.sent_ever().iter().map(|sent| sent.missed).collect();
        (self.handed_before, self.begun, self.steered) = (self.handed, now, true);
        for source in &mut self.sources {
            source.asked = Asked::since(now);
        }
    }

    /// Nothing more is due from `now` on.
    pub(crate) fn note_over(&mut self, now: u64, is_cut: bool) {
        let over = if self.tagged >= self.limit && !is_cut { self.last } else { now.min(self.end) };
        self.sources.iter_mut().for_each(|source| source.ask(over, self.stopped.is_none()));
        (self.over, self.is_cut) = (Some(over), is_cut);
    }

    /// Whether it was over before its time.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Whether it was told something while it ran.
    pub(crate) fn is_steered(&self) -> bool {
        self.steered
    }

    /// Ticks that it has counted, and how many frames were asked for of each stream, unless there was no limit.
    pub(crate) fn asked_for(&self) -> (u64, Vec<Option<f64>>) {
        let mut all = vec![None; self.streams.len()];
        for source in &self.sources {
            let asked = (!source.asked.unlimited).then_some(source.asked.frames);
            source.shares().for_each(|(index, share)| all[index] = asked.map(|asked| asked * share));
        }
        (self.over.unwrap_or(self.last).saturating_sub(self.begun), all)
    }

    /// Frames a tick of each stream now, if there is a limit.
    pub(crate) fn asked(&self) -> Vec<Option<f64>> {
        let mut all = vec![None; self.streams.len()];
        for source in &self.sources {
            let rate = match &source.pacing {
                _ if self.stopped.is_some() => Some(0.0),
                pacing => pacing.as_ref().map(Pacing::frames_per_tick),
            };
            source.shares().for_each(|(index, share)| all[index] = rate.map(|rate| rate * share));
        }
        all
    }
}
