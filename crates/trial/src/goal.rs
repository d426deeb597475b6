//! What a throughput search looks for, and when a load meets it (RFC 9971, "Multiple Loss Ratio Search": section 4.6 and
//! the load classification of its appendix).

use crate::Error;
use crate::error::{duration, within};
use serde::{Deserialize, Serialize};

/// A search goal (RFC 9971, "Goal Terms").
///
/// ```
/// let halves = trial::Goal { loss_ratio: 0.5, ..trial::Goal::PDR };
/// assert!(halves.check().is_ok());
/// assert!(trial::Goal { width: 0.0, ..halves }.check().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Goal {
    /// A trial that loses more than this share of its frames, 0 to below 1, is a high-loss trial.
    pub loss_ratio: f64,
    /// The share of the seconds measured at a load that may be high-loss while the load still counts as forwarded, 0 to
    /// below 1.
    pub exceed_ratio: f64,
    /// Seconds of trials at a load that suffice to decide about it, unless some are open for bursts of the generator.
    pub duration_sum: f64,
    /// Seconds of a trial that decides.
    pub final_seconds: f64,
    /// Seconds of a trial that looks for the right region.
    pub initial_seconds: f64,
    /// How far apart the two loads between which the result lies may be, as a share of the upper one, 1e-6 to below 1.
    pub width: f64,
}

impl Goal {
    /// The non-drop rate as CSIT searches for it: no loss, 21 trials of 1 s of which half may fail, within 0.5 %.
    pub const NDR: Self = Self {
        loss_ratio: 0.0,
        exceed_ratio: 0.5,
        duration_sum: 21.0,
        final_seconds: 1.0,
        initial_seconds: 1.0,
        width: 0.005,
    };
    /// The partial-drop rate: as [`Self::NDR`], with 0.5 % of the frames lost.
    pub const PDR: Self = Self { loss_ratio: 0.005, ..Self::NDR };
    /// The throughput of RFC 2544 (24 and 26.1), as RFC 9971 writes it ("MLRsearch Compliant with RFC 2544"): no loss in one
    /// trial of 60 s; within 0.5 %, and sought with trials of 1 s, which RFC 2544 allows.
    pub const RFC2544: Self = Self { exceed_ratio: 0.0, duration_sum: 60.0, final_seconds: 60.0, ..Self::NDR };

    /// Checks the numbers.
    ///
    /// # Errors
    ///
    /// The first that is out of its range.
    pub fn check(&self) -> Result<(), Error> {
        let share = |value| (0.0..1.0).contains(&value);
        within("the loss ratio", self.loss_ratio, share(self.loss_ratio), "0 to below 1")?;
        within("the exceed ratio", self.exceed_ratio, share(self.exceed_ratio), "0 to below 1")?;
        within("the width", self.width, (1e-6..1.0).contains(&self.width), "0.000001 to below 1")?;
        duration("the initial trial duration", self.initial_seconds)?;
        duration("the final trial duration", self.final_seconds)?;
        duration("the duration sum", self.duration_sum)?;
        let (first, last, sum) = (self.initial_seconds, self.final_seconds, self.duration_sum);
        within("the initial trial duration", first, first <= last, "at most the final one")?;
        within("the duration sum", sum, sum >= last, "at least the final trial duration")?;
        let trials = sum / last;
        within("the duration sum", sum, trials <= 10_000.0, "at most 10000 trials of the final duration")
    }
}

impl Goal {
    /// Whether a loss ratio between a least and a most may be either low or high.
    pub(crate) fn is_open(&self, [least, most]: [f64; 2]) -> bool {
        least <= self.loss_ratio && most > self.loss_ratio
    }
}

/// What is known of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// It meets the goal, whatever the seconds that are missing bring.
    Lower,
    /// It does not, whatever they bring.
    Upper,
    /// It depends on them.
    Undecided,
}

/// Seconds of trials at one load, by what they say about one goal.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Tally {
    full_high: f64,
    full_low: f64,
    short_high: f64,
    short_low: f64,
    /// Of trials of full length that may be of high or low loss, as bursts of the generator may be why they lost frames.
    open: f64,
}

impl Tally {
    pub(crate) fn add(&mut self, goal: &Goal, seconds: f64, loss_ratio: f64) {
        let sum = match (seconds >= goal.final_seconds, loss_ratio > goal.loss_ratio) {
            (true, true) => &mut self.full_high,
            (true, false) => &mut self.full_low,
            (false, true) => &mut self.short_high,
            (false, false) => &mut self.short_low,
        };
        *sum += seconds;
    }

    /// Takes a trial whose loss may be high or low.
    pub(crate) fn leave_open(&mut self, goal: &Goal, seconds: f64) {
        if seconds >= goal.final_seconds {
            self.open += seconds;
        }
    }

    /// Whether so many seconds are open that the load stays undecided, be all that are missing of high or of low loss.
    pub(crate) fn stays_open(&self, goal: &Goal) -> bool {
        let missing = (goal.duration_sum - self.measured(goal)).max(0.0);
        let all_high = Self { full_high: self.full_high + missing, ..*self };
        let all_low = Self { full_low: self.full_low + missing, ..*self };
        self.open > 0.0 && [all_high, all_low].iter().all(|tally| tally.class(goal) == Class::Undecided)
    }

    /// Seconds of low and high loss, without those that are open; and those of high loss.
    pub(crate) fn seconds(&self) -> (f64, f64) {
        let high = self.full_high + self.short_high;
        (high + self.full_low + self.short_low, high)
    }

    /// The seconds of trials of full length, and those with high loss.
    pub(crate) fn full_seconds(&self) -> (f64, f64) {
        (self.full_high + self.full_low, self.full_high)
    }

    /// Whether short trials forward what those of full length lose.
    pub(crate) fn misleads(&self, goal: &Goal) -> bool {
        let exceeds = |high: f64, low: f64| high > (high + low) * goal.exceed_ratio;
        self.short_low > 0.0 && !exceeds(self.short_high, self.short_low) && exceeds(self.full_high, self.full_low)
    }

    /// Whether the load does not meet the goal, although trials there had low loss.
    pub(crate) fn is_refuted(&self, goal: &Goal) -> bool {
        self.short_low + self.full_low > 0.0 && self.class(goal) == Class::Upper
    }

    /// The load classification of RFC 9971, appendix A, whatever the seconds that are open are taken for.
    pub(crate) fn class(&self, goal: &Goal) -> Class {
        let high = self.high(goal);
        let measured = self.measured(goal);
        let whole = measured.max(goal.duration_sum);
        let missing = whole - measured;
        // Sums of many seconds: a share that is exactly the one allowed is allowed.
        let allowed = whole * goal.exceed_ratio + whole * 1e-9;
        if high > allowed {
            Class::Upper
        } else if high + missing + self.open <= allowed {
            Class::Lower
        } else {
            Class::Undecided
        }
    }

    /// The seconds that count as of high loss: short trials with little make good for short ones with much, and for nothing else.
    fn high(&self, goal: &Goal) -> f64 {
        let balancing = self.short_low * goal.exceed_ratio / (1.0 - goal.exceed_ratio);
        self.full_high + (self.short_high - balancing).max(0.0)
    }

    /// The seconds that count.
    fn measured(&self, goal: &Goal) -> f64 {
        self.high(goal) + self.full_low + self.open
    }
}

/// The loss ratio on which conditional throughput stands (RFC 9971, appendix B): the quantile of the full-length trials, in
/// seconds, that the exceed ratio leaves. `trials` are seconds and loss ratios.
pub(crate) fn conditional_loss(goal: &Goal, trials: impl Iterator<Item = (f64, f64)>) -> f64 {
    let mut full: Vec<_> = trials.filter(|&(seconds, _)| seconds >= goal.final_seconds).collect();
    full.sort_by(|a, b| a.1.total_cmp(&b.1));
    let measured: f64 = full.iter().map(|&(seconds, _)| seconds).sum();
    let whole = measured.max(goal.duration_sum);
    let mut remaining = whole * (1.0 - goal.exceed_ratio) - whole * 1e-9;
    for (seconds, loss) in full {
        remaining -= seconds;
        if remaining <= 0.0 {
            return loss;
        }
    }
    1.0
}

#[cfg(test)]
mod tests;
