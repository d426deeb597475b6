//! The throughput of RFC 2544, 26.1, by binary search: no loss at all, in one trial.

use crate::error::{range, within};
use crate::method::{Desk, Plan};
use crate::throughput::{sustained, sustained_by_lesser};
use crate::trial::Filling;
use crate::{Error, Goal, Limit, Outcome, Profile, Traffic};
use std::ops::RangeInclusive;

/// A binary search for the highest rate without loss.
///
/// Trials of [`Goal::initial_seconds`] find the region, "but the final determination SHOULD be made with full length trials"
/// (RFC 2544, 24), of [`Goal::final_seconds`]. Loss ratio and width are those of the goal; a goal that lets seconds exceed the loss
/// ratio is for [`crate::Throughput`].
///
/// ```
/// use trial::{BinarySearch, Goal, Method, Outcome, Profile};
///
/// let mut search = BinarySearch::new(Goal::RFC2544, 1.0..=2e6, &Profile::rfc2544())?;
/// while let Some(trial) = search.next() {
///     let sent = trial.traffic.frames();
///     search.tell(&Outcome::new(sent, sent.min((1e6 * trial.traffic.seconds()) as u64)))?;
/// }
/// let throughput = search.result().throughput.unwrap();
/// assert!((0.995e6..=1e6).contains(&throughput));
/// # Ok::<(), trial::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct BinarySearch {
    desk: Desk,
    goal: Goal,
    low: f64,
    /// The highest rate that the generator reaches.
    top: f64,
    limited: bool,
    /// The highest rate that was forwarded in a trial of the present length, and the lowest that was not in any.
    good: Option<f64>,
    bad: Option<f64>,
    /// Whether trials have their full length.
    full: bool,
    /// What short trials have found, to be confirmed.
    hint: Option<f64>,
    /// Full-length trials from there downwards that lost frames.
    failed: u32,
    done: bool,
    /// By how much delays varied in the trial at the highest rate that was forwarded, as a share of its seconds.
    filling: Option<Filling>,
    /// Of two ways, the same of the one whose delays varied less.
    lesser: Option<Filling>,
}

/// What a binary search has found. Rates are in frames a second.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Strict {
    /// The highest rate forwarded without loss in a trial of full length; `None` if there was none so far.
    pub throughput: Option<f64>,
    /// The lowest rate above it that lost frames; `None` if none did.
    pub upper: Option<f64>,
    /// What the device forwards for longer than the trial, if a buffer was filling in it; as [`crate::GoalResult::sustained`].
    pub sustained: Option<f64>,
    /// The least of that, as [`crate::GoalResult::sustained_least`].
    pub sustained_least: Option<f64>,
    /// Of two ways, as [`crate::GoalResult::sustained_most`].
    pub sustained_most: Option<f64>,
    /// Whether the search has ended with a result: bounds within the width, or the highest rate forwarded.
    pub found: bool,
    /// Whether [`Self::throughput`] is the most that the generator reaches.
    pub at_generator: bool,
}

impl Strict {
    /// Returns whether [`Self::throughput`] is a lower bound: the search has not found a rate close above that loses frames.
    #[must_use]
    pub fn is_at_least(&self) -> bool {
        self.throughput.is_some() && !(self.found && self.upper.is_some())
    }
}

impl BinarySearch {
    /// Begins a search between two rates, in frames a second.
    ///
    /// # Errors
    ///
    /// If the goal lets seconds exceed the loss ratio, or numbers are not ones to search with.
    pub fn new(goal: Goal, rates: RangeInclusive<f64>, profile: &Profile) -> Result<Self, Error> {
        let (low, high) = (*rates.start(), *rates.end());
        range(low, high)?;
        goal.check()?;
        within("the exceed ratio", goal.exceed_ratio, goal.exceed_ratio == 0.0, "0 in a binary search")?;
        let full = goal.initial_seconds >= goal.final_seconds;
        Ok(Self {
            desk: Desk::new(profile)?,
            goal,
            low,
            top: high,
            limited: false,
            good: None,
            bad: None,
            full,
            hint: None,
            failed: 0,
            done: false,
            filling: None,
            lesser: None,
        })
    }

    /// Returns what is known so far.
    #[must_use]
    pub fn result(&self) -> Strict {
        let throughput = self.good.filter(|_| self.full);
        let [sustained, sustained_least] = sustained(throughput, self.filling, &self.goal);
        let lesser = sustained_least.and(self.lesser);
        Strict {
            throughput,
            upper: self.bad,
            sustained,
            sustained_least,
            sustained_most: lesser.and_then(|lesser| sustained_by_lesser(throughput, self.bad, lesser, &self.goal)),
            found: self.done && self.full && self.good.is_some(),
            at_generator: self.limited && self.done && self.bad.is_none(),
        }
    }

    fn narrow(&self, good: f64, bad: f64) -> bool {
        bad - good <= bad * self.goal.width
    }

    /// Goes over to full length, or ends, when trials of the present length can tell no more.
    fn settle(&mut self) {
        let settled = match (self.good, self.bad) {
            (Some(good), Some(bad)) => self.narrow(good, bad),
            (Some(good), None) => good >= self.top,
            (None, Some(bad)) => bad <= self.low,
            (None, None) => false,
        };
        if settled && self.full {
            self.done = true;
        } else if settled {
            self.full = true;
            self.hint = self.good.take();
            // A rate that loses frames at the lowest is no better for longer.
            self.done = self.hint.is_none();
        }
    }

    /// The rate of the next trial.
    fn rate(&self) -> f64 {
        match (self.hint, self.good, self.bad) {
            (Some(hint), ..) => hint,
            (None, Some(good), Some(bad)) => f64::midpoint(good, bad),
            (None, _, None) => self.top,
            (None, None, Some(bad)) if self.failed > 0 => {
                let step = self.goal.width * f64::from(1u32 << (self.failed - 1).min(20));
                (bad * (1.0 - step.min(0.5))).max(self.low)
            }
            (None, None, Some(bad)) if self.narrow(self.low, bad) => self.low,
            (None, None, Some(bad)) => f64::midpoint(self.low, bad),
        }
    }
}

impl Plan for BinarySearch {
    fn desk(&self) -> &Desk {
        &self.desk
    }

    fn desk_mut(&mut self) -> &mut Desk {
        &mut self.desk
    }

    fn plan(&self) -> Option<(Traffic, bool)> {
        let seconds = if self.full { self.goal.final_seconds } else { self.goal.initial_seconds };
        (!self.done).then(|| (Traffic::Steady { rate: self.rate(), seconds }, false))
    }

    fn count(&mut self, traffic: Traffic, outcome: &Outcome) {
        let rate = traffic.rate();
        let confirming = self.hint.take().is_some() || self.failed > 0;
        if outcome.loss_ratio() > self.goal.loss_ratio {
            self.bad = Some(rate);
            self.failed += u32::from(confirming);
        } else {
            self.good = Some(rate);
            self.filling = outcome.filling(traffic.seconds());
            self.lesser = outcome.lesser_filling(traffic.seconds());
            self.failed = 0;
        }
        self.settle();
    }

    fn is_open(&self, range: [f64; 2], _outcome: &Outcome) -> bool {
        self.goal.is_open(range)
    }

    fn unreachable(&mut self, limit: &Limit) -> bool {
        let reached =
            (limit.reached * (1.0 - 2.0 * self.desk.tolerance())).min(limit.asked * (1.0 - self.goal.width / 2.0));
        // If it has sent more before, this is no limit that one could keep to.
        if self.bad.is_some() || reached < self.low || !self.desk.may_lower() {
            return false;
        }
        (self.top, self.limited) = (reached, true);
        self.hint = self.hint.map(|hint| hint.min(reached));
        true
    }
}
