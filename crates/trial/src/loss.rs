//! Frame loss rate (RFC 2544, 26.3).

use crate::error::within;
use crate::method::{Desk, Plan};
use crate::trial::{GROWS, real};
use crate::{Error, Limit, LossPlan, Outcome, Profile, Traffic};
use serde::{Deserialize, Serialize};

/// Trials from the highest rate downwards, until two in a row lose nothing.
///
/// ```
/// use trial::{FrameLoss, Method, Outcome};
///
/// let mut test = FrameLoss::new(1e6, &Default::default())?;
/// while let Some(trial) = test.next() {
///     let sent = trial.traffic.frames();
///     test.tell(&Outcome::new(sent, sent.min(850_000)))?;
/// }
/// let percent: Vec<_> = test.points().iter().map(|point| point.loss_percent().round()).collect();
/// assert_eq!(percent, [15.0, 6.0, 0.0, 0.0]);
/// # Ok::<(), trial::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct FrameLoss {
    desk: Desk,
    plan: LossPlan,
    highest: f64,
    /// Steps below the highest rate.
    step: u32,
    /// The rates up to the last that lost nothing, one after the other.
    lossless: u32,
    points: Vec<LossPoint>,
    /// The trials at the rate at hand that are void, as bursts of the generator may be why they lost frames.
    open: Option<LossPoint>,
}

/// The loss at a rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LossPoint {
    /// Frames a second.
    pub rate: f64,
    /// Frames sent.
    pub sent: u64,
    /// Frames that came back.
    pub received: u64,
    /// Of those that were lost, how many may be lost for bursts of the generator.
    #[serde(default)]
    pub doubtful: u64,
    /// The share of the trial by which delays grew in it, as they do while a buffer fills: for longer the device loses more. `None` if they did
    /// not.
    #[serde(default)]
    pub filling: Option<f64>,
    /// Whether the machine stopped generator or device meanwhile, for which delays grow, too.
    #[serde(default)]
    pub stopped: bool,
    /// In how many runs, one or several in a row, the lost frames were; `None` if that is not known.
    #[serde(default)]
    pub runs: Option<u64>,
    /// Frames sent, frames lost, and in how many runs, in trials that were void before this one, as bursts of the generator may be why they
    /// lost some: the interval has them.
    #[serde(default)]
    pub void: [u64; 3],
}

impl LossPoint {
    fn of(traffic: &Traffic, outcome: &Outcome) -> Self {
        let Outcome { sent, received, doubtful, runs, .. } = *outcome;
        let doubtful = doubtful.min(sent.saturating_sub(received));
        let share = outcome.filling(traffic.seconds()).filter(|share| share.most > GROWS);
        let (filling, stopped) = (share.map(|share| share.most), share.is_some_and(|share| share.is_open(GROWS)));
        Self { rate: traffic.rate(), sent, received, doubtful, filling, stopped, runs, void: [0; 3] }
    }

    /// Both trials as one. A buffer fills in each that is long enough.
    fn and(self, other: Option<Self>) -> Self {
        let Some(other) = other else { return self };
        let filling = self.filling.zip(other.filling).map(|(one, other)| one.min(other));
        Self {
            rate: self.rate,
            sent: self.sent.saturating_add(other.sent),
            received: self.received.saturating_add(other.received),
            doubtful: self.doubtful.saturating_add(other.doubtful),
            filling,
            stopped: filling.is_some() && (self.stopped || other.stopped),
            runs: Some(self.runs_at_most().saturating_add(other.runs_at_most())),
            void: [0; 3],
        }
    }

    fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.received)
    }

    /// The runs of what was lost, one for each frame if that is not known.
    fn runs_at_most(&self) -> u64 {
        self.runs.filter(|runs| *runs > 0).unwrap_or(self.lost())
    }

    /// Returns the share of the frames that were lost, in percent.
    #[must_use]
    pub fn loss_percent(&self) -> f64 {
        if self.sent == 0 { 0.0 } else { real(self.lost()) * 100.0 / real(self.sent) }
    }

    /// Returns the same without the frames that may be lost for bursts of the generator: the least that the device loses.
    #[must_use]
    pub fn least_percent(&self) -> f64 {
        Self { received: self.received.saturating_add(self.doubtful).min(self.sent), ..*self }.loss_percent()
    }

    /// Returns the interval in which the loss lies with 95 % if runs of frames are lost by chance, each for itself, and end by chance, in percent
    /// (Wilson's score interval). Where some may be lost for bursts of the generator, it is from the least without them to the most with
    /// them. Trials that were void for these are in it, as a later one may have lost fewer by chance.
    #[must_use]
    pub fn interval_percent(&self) -> [f64; 2] {
        let interval = |point: &Self| {
            // Runs that end by chance differ in length, which counts twice.
            let chances = real(point.sent) / (2.0 * point.together() - 1.0);
            let [least, most] = [point.least_percent(), point.loss_percent()].map(|percent| wilson(percent, chances));
            [least[0], most[1]]
        };
        let [sent, lost, runs] = self.void;
        let received = sent.saturating_sub(lost);
        let void = Self { sent, received, doubtful: lost, runs: Some(runs), void: [0; 3], ..*self };
        let ([low, high], [with_void, to]) = (interval(self), interval(&self.and(Some(void))));
        [low.min(with_void), high.max(to)]
    }

    /// Returns how many frames are lost together, in the mean: how many times longer runs are than by chance, if each frame is lost for itself.
    /// At least 1.
    #[must_use]
    pub fn together(&self) -> f64 {
        let lost = real(self.lost());
        // A run by chance goes on with the chance of the loss.
        let together = lost / real(self.runs_at_most()) * (1.0 - lost / real(self.sent));
        if together > 1.0 { together } else { 1.0 }
    }
}

/// Wilson's score interval of 95 % around so many percent of so many chances.
fn wilson(percent: f64, chances: f64) -> [f64; 2] {
    const DEVIATIONS: f64 = 1.96;
    let (share, square) = (percent / 100.0, DEVIATIONS * DEVIATIONS / chances.max(1.0));
    let middle = share + square / 2.0;
    let half = (square * share * (1.0 - share) + square * square / 4.0).sqrt();
    let end = |end: f64| (end / (1.0 + square) * 100.0).clamp(0.0, 100.0);
    // None and all are ends themselves, whatever is rounded.
    [end(middle - half).min(percent), end(middle + half).max(percent)]
}

impl FrameLoss {
    /// Begins at the highest rate, in frames a second: that of the line, or the most that the generator reaches.
    ///
    /// # Errors
    ///
    /// If the rate is none, or a number of the profile is not one to measure with.
    pub fn new(highest: f64, profile: &Profile) -> Result<Self, Error> {
        within("the highest rate", highest, highest > 0.0 && highest <= 1e12, "positive, in frames/s")?;
        Ok(Self {
            desk: Desk::new(profile)?,
            plan: profile.loss,
            highest,
            step: 0,
            lossless: 0,
            points: Vec::new(),
            open: None,
        })
    }

    /// Returns the points so far, from the highest rate downwards. Rates that the generator does not reach are left out. Of one of
    /// which bursts of the generator may be why each trial lost frames, the point is that of all of them.
    #[must_use]
    pub fn points(&self) -> &[LossPoint] {
        &self.points
    }

    /// Returns whether the last two rates lost nothing, with which the test ends; it may also run out of rates.
    #[must_use]
    pub fn is_lossless_below(&self) -> bool {
        self.lossless >= 2
    }
}

impl Plan for FrameLoss {
    fn desk(&self) -> &Desk {
        &self.desk
    }

    fn desk_mut(&mut self) -> &mut Desk {
        &mut self.desk
    }

    fn plan(&self) -> Option<(Traffic, bool)> {
        let share = 1.0 - self.plan.step * f64::from(self.step);
        let more = !self.is_lossless_below() && share > 1e-9;
        more.then_some((Traffic::Steady { rate: self.highest * share, seconds: self.plan.seconds }, false))
    }

    fn count(&mut self, traffic: Traffic, outcome: &Outcome) {
        let open = self.open.take();
        let void = open.map_or([0; 3], |open| [open.sent, open.lost(), open.runs_at_most()]);
        self.points.push(LossPoint { void, ..LossPoint::of(&traffic, outcome) });
        self.lossless = if outcome.received >= outcome.sent { self.lossless + 1 } else { 0 };
        self.step += 1;
    }

    fn leave_open(&mut self, traffic: &Traffic, outcome: &Outcome) -> Option<u32> {
        self.open = Some(LossPoint::of(traffic, outcome).and(self.open));
        None
    }

    fn unreachable(&mut self, _limit: &Limit) -> bool {
        // Without a trial at this rate nobody knows what is lost.
        self.points.extend(self.open.take());
        (self.step, self.lossless) = (self.step + 1, 0);
        true
    }
}
