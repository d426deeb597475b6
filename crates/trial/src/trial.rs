//! A trial: what is to be sent, and what came of it.

use crate::Phases;
use serde::{Deserialize, Serialize};

/// What a trial sends. Rates are frames a second of one direction, durations seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Traffic {
    /// A constant rate.
    Steady {
        /// Frames a second.
        rate: f64,
        /// For so long.
        seconds: f64,
    },
    /// So many frames at the highest rate, with the smallest gaps (RFC 9004, 6.2).
    Burst {
        /// Frames a second.
        rate: f64,
        /// Frames.
        frames: u64,
    },
    /// More than the device can forward, and then less, without a pause (RFC 2544, 26.5).
    Overload {
        /// Frames a second at first.
        rate: f64,
        /// For so long.
        seconds: f64,
        /// Frames a second from then on.
        then: f64,
        /// For so long.
        then_seconds: f64,
    },
}

impl Traffic {
    /// Returns the number of frames that are to be sent, rounded down.
    #[must_use]
    pub fn frames(&self) -> u64 {
        match *self {
            Self::Steady { rate, seconds } => whole(rate * seconds),
            Self::Burst { frames, .. } => frames,
            Self::Overload { rate, seconds, then, then_seconds } => whole(rate * seconds + then * then_seconds),
        }
    }

    /// Returns the seconds for which frames are sent.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        match *self {
            Self::Steady { seconds, .. } => seconds,
            Self::Burst { rate, frames } => real(frames) / rate,
            Self::Overload { seconds, then_seconds, .. } => seconds + then_seconds,
        }
    }

    /// Returns whether a generator that sent so many frames missed the rate by more than this share of it, and by more than a frame.
    #[must_use]
    pub fn is_missed(&self, sent: u64, tolerance: f64) -> bool {
        let asked = real(self.frames());
        (real(sent) - asked).abs() > asked * tolerance + 1.0
    }

    /// Returns the highest rate, in frames a second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        match *self {
            Self::Steady { rate, .. } | Self::Burst { rate, .. } => rate,
            Self::Overload { rate, then, .. } => rate.max(then),
        }
    }
}

/// A trial that a test asks for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Trial {
    /// Its number in the test, from 0; one that is repeated has a number of its own.
    pub number: u64,
    /// What to send.
    pub traffic: Traffic,
    /// What to do before and after.
    pub phases: Phases,
    /// Whether its outcome only warms the device up: it is told, and not used.
    pub warm_up: bool,
}

/// What came of a trial.
///
/// ```
/// let mut outcome = trial::Outcome::new(1_000, 990);
/// outcome.link_fell = true;
/// assert_eq!(outcome.loss_ratio(), 0.01);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Outcome {
    /// Frames sent.
    pub sent: u64,
    /// Frames that came back, each counted once.
    pub received: u64,
    /// Seconds from the first frame sent to the last, if they are known to less than the tolerance of the profile: a generator may
    /// send the right number in too long a time.
    pub seconds: Option<f64>,
    /// Of a burst, by how many seconds more than its rate has it took to send, and the time for which a device that is part of the program
    /// did not run, if that is known: meanwhile a device makes room.
    pub late: Option<f64>,
    /// In how many runs, one or several in a row, the lost frames were; `None` if that is not known.
    pub runs: Option<u64>,
    /// Whether a link was down at any time.
    pub link_fell: bool,
    /// Whether the clock jumped.
    pub clock_jumped: bool,
    /// Frames that came again.
    pub duplicate: u64,
    /// Frames that came after one with a higher number.
    pub reordered: u64,
    /// Frames that came damaged, which are not among those that came back.
    pub damaged: u64,
    /// Frames of trials before it that came only now, after the waits for frames under way.
    pub from_earlier: u64,
    /// Frames that the generator's own ports lost. They are in neither count: it is as if they had not been sent.
    pub own: u64,
    /// Frames that the generator sent late, in bursts of its own, or behind these: a device with less room than for these loses up to as
    /// many, however little it forwards at an even rate. Others of which it may be the cause that they were lost count, too.
    pub doubtful: u64,
    /// The longest time, in seconds, for which the generator neither sent nor looked for frames, and the time for which a device that is part
    /// of its program did not run, if that is known: so much longer than they took may frames seem to have taken.
    pub away: Option<f64>,
    /// How long frames took, if that was measured.
    pub delays: Option<Delays>,
    /// Of two ways, how long frames of the other took.
    pub other_delays: Option<Delays>,
    /// [`Delays::growth`]: of two ways, the larger.
    pub growth: Option<f64>,
    /// Of two ways, the smaller: the buffer that fills may be that of the other way than the one that loses frames.
    pub lesser_growth: Option<f64>,
    /// For [`Traffic::Overload`]: seconds from the change of the rate to the moment at which the last lost frame was due;
    /// `None` if none was lost after it.
    pub last_lost: Option<f64>,
}

/// How long frames took, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Delays {
    /// The shortest.
    pub min: f64,
    /// The mean.
    pub mean: f64,
    /// The median: the typical latency of RFC 8219, 7.2.
    pub median: f64,
    /// The 99.9th percentile: the worst-case latency of RFC 8219, 7.2.
    pub p999: f64,
    /// The longest.
    pub max: f64,
}

impl Delays {
    /// Makes them from shortest, mean, median, 99.9th percentile and longest, in nanoseconds.
    #[must_use]
    pub fn new(min: f64, mean: f64, median: f64, p999: f64, max: f64) -> Self {
        Self { min, mean, median, p999, max }
    }

    /// Returns the delay variation of RFC 8219, 7.3.1: the 99.9th percentile less the shortest.
    #[must_use]
    pub fn variation(&self) -> f64 {
        self.p999 - self.min
    }

    /// Returns by how many nanoseconds longer the last frame of a trial waited than the first, if a buffer filled evenly meanwhile: twice
    /// what the median is above the shortest, and not more than the longest is above it.
    #[must_use]
    pub fn growth(&self) -> f64 {
        ((self.median - self.min) * 2.0).min(self.max - self.min).max(0.0)
    }
}

impl Outcome {
    /// Makes the outcome of a trial without incidents.
    #[must_use]
    pub fn new(sent: u64, received: u64) -> Self {
        Self { sent, received, ..Self::default() }
    }

    /// Returns the share of the frames sent that were lost, 0 to 1; 0 if none was sent.
    #[must_use]
    pub fn loss_ratio(&self) -> f64 {
        if self.sent == 0 { 0.0 } else { real(self.sent.saturating_sub(self.received)) / real(self.sent) }
    }

    /// Returns the least and the most of its loss ratio that may be the device's: without the frames that may be lost for the generator,
    /// and with them.
    #[must_use]
    pub fn loss_range(&self) -> [f64; 2] {
        let least = Self { received: self.received.saturating_add(self.doubtful).min(self.sent), ..*self };
        [least.loss_ratio(), self.loss_ratio()]
    }

    /// By how much of the seconds of a trial frames came to wait longer, if a buffer filled. `None` if delays were not measured.
    pub(crate) fn filling(&self, seconds: f64) -> Option<Filling> {
        self.filling_by(self.growth.or(self.delays.map(|delays| delays.growth()))?, seconds)
    }

    /// The same of the way of which frames came to wait less longer; `None` of one way.
    pub(crate) fn lesser_filling(&self, seconds: f64) -> Option<Filling> {
        self.filling_by(self.lesser_growth?, seconds)
    }

    fn filling_by(&self, growth: f64, seconds: f64) -> Option<Filling> {
        let (away, growth) = (2.0 * self.away.unwrap_or(0.0), growth / 1e9);
        // From the first frame to the last there is a gap less.
        let seconds = seconds * (1.0 - 1.0 / real(self.sent));
        let [least, most] = [(growth - away).max(0.0), growth].map(|time| time / seconds);
        (least.is_finite() && most.is_finite()).then_some(Filling { least, most })
    }
}

/// The share of a trial by which frames came to wait longer: if a buffer filled, what the device forwards is less than the load by that.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Filling {
    /// Without twice the time for which the machine stopped generator or device: by as much delays vary without a buffer.
    pub(crate) least: f64,
    /// With it.
    pub(crate) most: f64,
}

impl Filling {
    /// Returns whether the machine is the reason of more than a share of it.
    pub(crate) fn is_open(self, share: f64) -> bool {
        self.most - self.least > share
    }

    /// Returns the less of each.
    pub(crate) fn min(self, other: Self) -> Self {
        Self { least: self.least.min(other.least), most: self.most.min(other.most) }
    }
}

/// The share of a trial by which delays may grow in it before a figure says so.
pub(crate) const GROWS: f64 = 0.005;

/// A count as a real number.
#[expect(clippy::cast_precision_loss, reason = "counts of a test are far below 2^53")]
pub(crate) fn real(count: u64) -> f64 {
    count as f64
}

/// A real number, rounded down; 0 for those below it and for NaN.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
pub(crate) fn whole(number: f64) -> u64 {
    // 0.1 * 30 is a little less than 3.
    (number * (1.0 + 1e-12)).floor() as u64
}
