//! System recovery (RFC 2544, 26.5).

use crate::error::within;
use crate::method::{Desk, Plan};
use crate::profile::{AFTER_OVERLOAD, OVERLOAD};
use crate::trial::real;
use crate::{Bound, Error, Limit, Outcome, Profile, Reason, RecoveryPlan, Summary, Traffic};
use serde::{Deserialize, Serialize};

/// The share of the time after the overload in which the last frame may be lost of a device that has recovered.
const LATEST: f64 = 0.9;

/// Overload, and then half of it: how long is the device still losing frames?
///
/// The overload is 110 % of the throughput, or the highest rate if that is less, and the rate after it "50% of the above rate".
///
/// A repetition whose last lost frame the generator may have cost is void; after three, the longest time of these is the most that it took.
///
/// ```
/// use trial::{Method, Outcome, Recovery, Traffic};
///
/// let mut test = Recovery::new(1e6, 1.05e6, &Default::default())?;
/// while let Some(trial) = test.next() {
///     let Traffic::Overload { rate, then, .. } = trial.traffic else { unreachable!() };
///     assert_eq!((rate, then), (1.05e6, 0.525e6));
///     let mut outcome = Outcome::new(trial.traffic.frames(), trial.traffic.frames() - 1);
///     outcome.last_lost = Some(0.25);
///     test.tell(&outcome)?;
/// }
/// assert_eq!(test.result().and_then(|result| result.seconds).map(|seconds| seconds.mean), Some(0.25));
/// # Ok::<(), trial::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Recovery {
    desk: Desk,
    plan: RecoveryPlan,
    overload: f64,
    recovered: Vec<f64>,
    unrecovered: u64,
    lossless: u64,
    /// The fewest frames lost in a repetition that lost any.
    lost: Option<u64>,
    at_most: u64,
    /// The longest time of the void repetitions in a row, and the fewest frames lost in one.
    open: Option<(f64, u64)>,
}

/// How a device recovered.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Recovered {
    /// Frames a second of the overload.
    pub overload: f64,
    /// Seconds from the change of the rate to the moment at which the last lost frame was due, up to one gap between frames less than the
    /// device took, over the repetitions in which the device recovered; `None` if it never did.
    pub seconds: Option<Summary>,
    /// Repetitions in which it was still losing frames in the last tenth of the time.
    pub unrecovered: u64,
    /// Repetitions in which no frame was lost: there was no overload, or a buffer had room for it, and nothing to recover from.
    #[serde(default)]
    pub lossless: u64,
    /// The fewest frames that were lost in one of the other repetitions, during the overload and after it.
    #[serde(default)]
    pub lost: u64,
    /// Repetitions that may have taken less, as the generator may be why the last frame was lost.
    #[serde(default)]
    pub at_most: u64,
}

/// Seconds between two frames after an overload.
fn gap(overload: f64) -> f64 {
    1.0 / (overload * AFTER_OVERLOAD)
}

impl Recovered {
    /// Returns the mean of [`Self::seconds`]; `None` if there is none, or if some took longer and some may have taken less, so that it
    /// bounds nothing. Where it is an upper bound, each repetition goes up to the next frame.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        let seconds = self.seconds.filter(|_| self.unrecovered == 0 || self.at_most == 0)?;
        let up_to = if self.at_most > 0 { real(seconds.count.saturating_sub(self.at_most)) * self.gap() } else { 0.0 };
        Some(seconds.mean + up_to / real(seconds.count.max(1)))
    }

    /// Seconds from the last frame lost to the next one, before which the device may have recovered.
    pub(crate) fn gap(&self) -> f64 {
        gap(self.overload)
    }

    /// Returns whether each repetition tells how long the device took, up to a gap between frames.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.unrecovered == 0 && self.at_most == 0
    }

    /// Returns whether repetitions differ by more than the gap to the next frame: the device varies, or a frame was lost otherwise after the
    /// overload, and then the time is that up to this frame.
    #[must_use]
    pub fn varies(&self) -> bool {
        // Times are whole gaps, give or take the last bit.
        self.seconds.is_some_and(|seconds| seconds.max - seconds.min > self.gap() * 1.5)
    }

    /// Returns what [`Self::mean`] bounds; `None` if it is exact, or if there is none.
    #[must_use]
    pub fn bound(&self) -> Option<Bound> {
        self.seconds?;
        match (self.unrecovered, self.at_most) {
            (0, 1..) => Some(Bound::AtMost),
            (1.., 0) => Some(Bound::AtLeast),
            _ => None,
        }
    }
}

impl Recovery {
    /// Begins, with the throughput and the highest rate in frames a second.
    ///
    /// # Errors
    ///
    /// If a rate is none, or a number of the profile is not one to measure with.
    pub fn new(throughput: f64, highest: f64, profile: &Profile) -> Result<Self, Error> {
        let rate = |what, value: f64| within(what, value, value > 0.0 && value <= 1e12, "positive, in frames/s");
        rate("the throughput", throughput)?;
        rate("the highest rate", highest)?;
        let overload = Self::overload(throughput, highest);
        Ok(Self {
            desk: Desk::new(profile)?,
            plan: profile.recovery,
            overload,
            recovered: Vec::new(),
            unrecovered: 0,
            lossless: 0,
            lost: None,
            at_most: 0,
            open: None,
        })
    }

    /// Returns the rate of the overload, with the throughput and the highest rate.
    #[must_use]
    pub fn overload(throughput: f64, highest: f64) -> f64 {
        (throughput * OVERLOAD).min(highest)
    }

    /// Returns the result so far; `None` before the first trial.
    #[must_use]
    pub fn result(&self) -> Option<Recovered> {
        let seconds = Summary::of(&self.recovered);
        let Self { overload, unrecovered, lossless, at_most, .. } = *self;
        let (any, lost) = (seconds.is_some() || unrecovered + lossless > 0, self.lost.unwrap_or(0));
        any.then_some(Recovered { overload, seconds, unrecovered, lossless, lost, at_most })
    }
}

impl Plan for Recovery {
    fn desk(&self) -> &Desk {
        &self.desk
    }

    fn desk_mut(&mut self) -> &mut Desk {
        &mut self.desk
    }

    fn plan(&self) -> Option<(Traffic, bool)> {
        let more = (self.recovered.len() as u64) + self.unrecovered + self.lossless < u64::from(self.plan.repetitions);
        let RecoveryPlan { overload_seconds, recovery_seconds, .. } = self.plan;
        more.then(|| {
            let traffic = Traffic::Overload {
                rate: self.overload,
                seconds: overload_seconds,
                then: self.overload * AFTER_OVERLOAD,
                then_seconds: recovery_seconds,
            };
            (traffic, false)
        })
    }

    /// A frame that a burst cost is not the last that the device lost for the overload.
    fn is_open(&self, _range: [f64; 2], outcome: &Outcome) -> bool {
        outcome.last_lost.is_some()
    }

    fn leave_open(&mut self, _traffic: &Traffic, outcome: &Outcome) -> Option<u32> {
        // Frames that the generator may have cost the device need not have lost.
        let lost = outcome.sent.saturating_sub(outcome.received).saturating_sub(outcome.doubtful);
        let this = outcome.last_lost.map(|last| (last, lost));
        let both = |one: (f64, u64), other: (f64, u64)| (one.0.max(other.0), one.1.min(other.1));
        self.open = [self.open, this].into_iter().flatten().reduce(both);
        None
    }

    fn unreachable(&mut self, limit: &Limit) -> bool {
        let longest = self.open.take().filter(|(last, _)| *last <= self.plan.recovery_seconds * LATEST);
        let Some((last, lost)) = longest.filter(|_| limit.reason == Reason::Bursts) else { return false };
        // The next frame came through.
        self.recovered.push(last.max(0.0) + gap(self.overload));
        self.lost = Some(self.lost.map_or(lost, |fewest| fewest.min(lost)));
        self.at_most += 1;
        true
    }

    fn count(&mut self, _traffic: Traffic, outcome: &Outcome) {
        self.open = None;
        let lost = outcome.sent.saturating_sub(outcome.received);
        if lost == 0 {
            self.lossless += 1;
            return;
        }
        self.lost = Some(self.lost.map_or(lost, |fewest| fewest.min(lost)));
        match outcome.last_lost {
            None => self.recovered.push(0.0),
            // Not a number is not recovered either.
            Some(last) if last <= self.plan.recovery_seconds * LATEST => self.recovered.push(last.max(0.0)),
            Some(_) => self.unrecovered += 1,
        }
    }
}
