//! Back-to-back frames (RFC 2544, 26.4, as RFC 9004 changes it).

use crate::error::within;
use crate::method::{Desk, Plan};
use crate::trial::{real, whole};
use crate::{Bound, BurstPlan, Error, Limit, Outcome, Profile, Reason, Summary, Traffic};
use serde::{Deserialize, Serialize};

/// The share of a burst's frames by which it may be too long, as it was late and the device made room meanwhile.
const LATE_SHARE: f64 = 0.01;

/// Frames of the first burst.
const FIRST: u64 = 64;

/// Searches, each by itself, for the longest burst that loses nothing: binary search with loss verification (ETSI GS NFV-TST 009,
/// 12.3.3, which RFC 9004, 6.2 demands).
///
/// A burst that is late is void if the device makes so much room in that time, by its throughput, that it may be more than 1 % too long. Where a length was void
/// three times, the search goes on below it, and what it finds is at least so much.
///
/// Only for frame sizes whose throughput is below the highest rate: others have no longest burst (RFC 9004, 6.1).
///
/// ```
/// use trial::{BackToBack, Method, Outcome};
///
/// // A device with room for 512 frames, which forwards 1 million a second of the 2 million that come.
/// let mut test = BackToBack::new(2e6, 1e6, &Default::default())?;
/// while let Some(trial) = test.next() {
///     let sent = trial.traffic.frames();
///     test.tell(&Outcome::new(sent, sent.min(512 + sent / 2)))?;
/// }
/// let bursts = test.result().unwrap();
/// assert_eq!(bursts.frames.mean, 1024.0);
/// assert_eq!(bursts.corrected_seconds(1e6), 512.0 / 2e6);
/// # Ok::<(), trial::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct BackToBack {
    desk: Desk,
    plan: BurstPlan,
    rate: f64,
    throughput: f64,
    longest: u64,
    /// The longest burst so far that lost nothing, and the shortest that lost frames each time.
    good: u64,
    bad: Option<u64>,
    /// Whether it is open who lost them.
    is_open: bool,
    /// How often the burst at hand has lost frames.
    lost: u32,
    found: Vec<f64>,
    endless: u64,
    open: u64,
    /// By how much the burst at hand that lost nothing was late, and the most of those that were found.
    late: f64,
    latest: f64,
    /// How many frames it lacked, and the most that one of those did.
    short: u64,
    shortest: u64,
}

/// The longest bursts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Bursts {
    /// Frames in the longest burst: the mean is the benchmark.
    pub frames: Summary,
    /// Frames a second within a burst.
    pub rate: f64,
    /// Searches in which the longest burst that was allowed lost nothing. Then the result is likely invalid (RFC 9004, 6.2).
    pub endless: u64,
    /// Searches in which longer bursts were void: the device may take more.
    #[serde(default)]
    pub open: u64,
    /// The most, in seconds, by which a burst that was found took longer to send, or to reach the device, than its rate has it.
    #[serde(default)]
    pub late: f64,
    /// The most frames that the generator's ports lost of a burst that was found, before the device or behind it.
    #[serde(default)]
    pub short: u64,
}

/// How long what a device has room for takes to arrive, without what leaves meanwhile: the corrected buffer time (RFC 9004, 6.4).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct BufferTime {
    /// Seconds.
    pub seconds: f64,
    /// The least and the most that it may be, in seconds; `None` if it is a lower bound.
    pub interval: Option<[f64; 2]>,
}

/// Delays say how many frames wait within a quarter.
const UNLIKE: f64 = 1.25;

/// A time is known if the ends of its interval differ by less than this factor.
const KNOWN: f64 = 1.04;

impl BufferTime {
    /// Returns the interval if its ends differ by more than 4 %: then the time is not known, only between which two it lies.
    #[must_use]
    pub fn open(&self) -> Option<[f64; 2]> {
        self.interval.filter(|[low, high]| *high > *low * KNOWN)
    }
}

impl Bursts {
    /// Returns the corrected buffer time of a device that forwards so many frames a second, and the least and the most of them. Where longer
    /// bursts may lose nothing either, it is a lower bound: the least that it may be.
    #[must_use]
    pub fn buffer_time(&self, throughput: f64, [least, most]: [f64; 2]) -> BufferTime {
        let [least, most] = [least, most].map(|rate| rate.min(self.rate));
        let certain = (self.frames.mean - self.too_long_by(most)).max(0.0) / self.rate * (1.0 - most / self.rate);
        if self.endless + self.open > 0 {
            return BufferTime { seconds: certain, interval: None };
        }
        let seconds = self.corrected_seconds(throughput.min(self.rate));
        BufferTime { seconds, interval: Some([certain, self.corrected_seconds(least)]) }
    }

    /// Whether so many frames cannot wait in the buffer that the longest burst filled: each search that found its end had fewer. Then they
    /// wait elsewhere, or delays vary by themselves.
    #[must_use]
    pub fn are_fewer_than(&self, waiting: f64) -> bool {
        self.endless + self.open < self.frames.count && waiting > self.frames.max * UNLIKE + 2.0
    }

    /// Returns the implied buffer time of the device, in seconds (RFC 9004, 6.4).
    #[must_use]
    pub fn implied_seconds(&self) -> f64 {
        self.frames.mean / self.rate
    }

    /// Returns the longest burst, in frames, of a device that forwards so many a second. Where longer ones may lose nothing either, it is a
    /// lower bound: what is certain of it, if it may be too long.
    #[must_use]
    pub fn longest(&self, throughput: f64) -> (f64, Option<Bound>) {
        match self.endless + self.open {
            0 => (self.frames.mean, None),
            _ => ((self.frames.mean - self.too_long_by(throughput)).max(0.0), Some(Bound::AtLeast)),
        }
    }

    /// Returns by how many frames the longest burst may be too long, as the generator paused in it, or its ports lost some of it, and the
    /// device made room: it forwards so many frames a second. At most all of them.
    #[must_use]
    pub fn too_long_by(&self, throughput: f64) -> f64 {
        let kept = 1.0 - throughput / self.rate;
        // Frames that the device forwarded meanwhile, or had no need to hold.
        let spared = self.late * throughput + real(self.short);
        let frames = if spared > 0.0 { spared / kept.max(0.0) } else { 0.0 };
        frames.min(self.frames.mean)
    }

    /// Returns the corrected buffer time, in seconds (RFC 9004, 6.4): without the frames that leave while the burst arrives, of which there are
    /// so many a second. That is the throughput of trials so long that a buffer counts for nothing in them; of short ones, what
    /// they say is forwarded for longer, as [`crate::GoalResult::sustained`].
    #[must_use]
    pub fn corrected_seconds(&self, throughput: f64) -> f64 {
        self.implied_seconds() * (1.0 - throughput / self.rate)
    }
}

impl BackToBack {
    /// Begins, with the highest rate of the line and the throughput of the device, in frames a second.
    ///
    /// # Errors
    ///
    /// If one of these is no rate, or a number of the profile is not one to measure with.
    pub fn new(rate: f64, throughput: f64, profile: &Profile) -> Result<Self, Error> {
        within("the rate", rate, rate > 0.0 && rate <= 1e12, "positive, in frames/s")?;
        within("the throughput", throughput, (0.0..=1e12).contains(&throughput), "0 or more, in frames/s")?;
        let plan = profile.bursts;
        let desk = Desk::new(profile)?;
        let longest = whole(rate * plan.longest_seconds).max(1);
        let found = Vec::new();
        Ok(Self {
            desk,
            plan,
            rate,
            throughput,
            longest,
            good: 0,
            bad: None,
            is_open: false,
            lost: 0,
            found,
            endless: 0,
            open: 0,
            late: 0.0,
            latest: 0.0,
            short: 0,
            shortest: 0,
        })
    }

    /// Returns the figures so far; `None` before the first search has ended.
    #[must_use]
    pub fn result(&self) -> Option<Bursts> {
        Summary::of(&self.found).map(|frames| Bursts {
            frames,
            rate: self.rate,
            endless: self.endless,
            open: self.open,
            late: self.latest,
            short: self.shortest,
        })
    }

    /// Frames of the next burst: doubled until frames are lost, then halving what is open.
    fn frames(&self) -> u64 {
        match self.bad {
            Some(bad) => self.good + (bad - self.good) / 2,
            // The search before has a hint, though each is independent of its bounds.
            None if self.good == 0 => {
                self.found.last().map_or(FIRST, |found| whole(found / 2.0).max(1)).min(self.longest)
            }
            None => self.good.saturating_mul(2).min(self.longest),
        }
    }

    fn settle(&mut self) {
        let done = match self.bad {
            Some(bad) => bad - self.good <= self.plan.step_frames,
            None => self.good >= self.longest,
        };
        if done {
            self.endless += u64::from(self.bad.is_none());
            self.open += u64::from(self.is_open);
            self.found.push(real(self.good));
            (self.latest, self.shortest) = (self.latest.max(self.late), self.shortest.max(self.short));
            (self.good, self.bad, self.is_open, self.late, self.short) = (0, None, false, 0.0, 0);
        }
    }
}

impl Plan for BackToBack {
    fn desk(&self) -> &Desk {
        &self.desk
    }

    fn desk_mut(&mut self) -> &mut Desk {
        &mut self.desk
    }

    fn plan(&self) -> Option<(Traffic, bool)> {
        let more = self.found.len() < self.plan.repetitions as usize;
        more.then(|| (Traffic::Burst { rate: self.rate, frames: self.frames() }, false))
    }

    fn late_seconds(&self, traffic: &Traffic) -> f64 {
        let kept = (1.0 - self.throughput / self.rate).max(0.0);
        real(traffic.frames()) * LATE_SHARE * kept / self.throughput
    }

    fn count(&mut self, traffic: Traffic, outcome: &Outcome) {
        let frames = traffic.frames();
        if outcome.received < outcome.sent {
            self.lost += 1;
            if self.lost <= self.plan.verifications {
                return;
            }
            (self.bad, self.is_open) = (Some(frames), false);
        } else {
            self.good = frames;
            self.late = outcome.late.filter(|late| *late > 0.0).unwrap_or(0.0);
            // Of two ways both may lack some.
            self.short = frames.saturating_sub(outcome.sent).max(outcome.own);
        }
        self.lost = 0;
        self.settle();
    }

    fn unreachable(&mut self, limit: &Limit) -> bool {
        let is_late = matches!(limit.reason, Reason::Bursts | Reason::Rate);
        if !is_late || (self.good == 0 && self.frames() <= FIRST) {
            return false;
        }
        (self.bad, self.is_open, self.lost) = (Some(self.frames()), true, 0);
        self.settle();
        true
    }
}
