//! Forwarding rate at maximum offered load (RFC 2285, 3.6.2).

use crate::error::within;
use crate::method::{Desk, Plan};
use crate::trial::{GROWS, real};
use crate::{Error, Outcome, Profile, Repeated, Summary, Traffic};
use serde::{Deserialize, Serialize};

/// Trials at the highest load. A rate that the generator misses is no fault here: the maximum offered load is what it reaches (RFC
/// 2285, 3.5.3). A trial is void if generator or device were stopped for more than a tenth of it ([`Outcome::away`]).
#[derive(Clone, Debug)]
pub struct Frmol {
    desk: Desk,
    plan: Repeated,
    rate: f64,
    offered: Vec<f64>,
    forwarded: Vec<f64>,
    own: u64,
    doubtful: u64,
    away: f64,
    filling: Option<f64>,
}

/// Rates at maximum offered load, means over the repetitions, in frames a second. RFC 2285 wants both reported.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Offered {
    /// The maximum offered load.
    pub offered: f64,
    /// The forwarding rate at it.
    pub forwarded: f64,
    /// Repetitions.
    pub repetitions: u64,
    /// The maximum offered load of the repetition in which it was least, and of that in which it was most.
    #[serde(default)]
    pub range: [f64; 2],
    /// Frames that the generator's own ports lost, of all repetitions; neither rate has them.
    #[serde(default)]
    pub own: u64,
    /// Frames of all repetitions that may be lost for the generator.
    #[serde(default)]
    pub doubtful: u64,
    /// The longest time, in seconds, for which the generator neither sent nor looked for frames; 0 if that is not known.
    #[serde(default)]
    pub away: f64,
    /// The least share of a trial by which delays grew in it, as they do while a buffer fills, or while the machine stops generator or
    /// device: what is forwarded for longer is less by up to about that share. `None` if they did not.
    #[serde(default)]
    pub filling: Option<f64>,
}

/// Seconds for which an lcore may be away without a word on the highest load.
pub(crate) const AWAY: f64 = 1e-3;

impl Offered {
    /// Returns whether [`Self::forwarded`] is a lower bound: some frames may be lost for the generator.
    #[must_use]
    pub fn is_at_least(&self) -> bool {
        self.doubtful > 0 && self.away <= AWAY
    }
}

/// The share of a trial for which generator or device may be stopped: rates are wrong by about as much.
const MOST_AWAY: f64 = 0.1;

impl Frmol {
    /// Begins, with a rate in frames a second that is at least what the generator is to reach.
    ///
    /// # Errors
    ///
    /// If the rate is none, or a number of the profile is not one to measure with.
    pub fn new(rate: f64, profile: &Profile) -> Result<Self, Error> {
        within("the rate", rate, rate > 0.0 && rate <= 1e12, "positive, in frames/s")?;
        let desk = Desk::new(profile)?.any_rate();
        let (offered, forwarded) = (Vec::new(), Vec::new());
        Ok(Self { desk, plan: profile.frmol, rate, offered, forwarded, own: 0, doubtful: 0, away: 0.0, filling: None })
    }

    /// Returns the means so far; `None` before the first trial.
    #[must_use]
    pub fn result(&self) -> Option<Offered> {
        let (offered, forwarded) = (Summary::of(&self.offered)?, Summary::of(&self.forwarded)?);
        let Self { own, doubtful, away, .. } = *self;
        let filling = self.filling.filter(|share| *share > GROWS);
        let (range, repetitions) = ([offered.min, offered.max], offered.count);
        let (offered, forwarded) = (offered.mean, forwarded.mean);
        Some(Offered { offered, forwarded, repetitions, range, own, doubtful, away, filling })
    }
}

impl Plan for Frmol {
    fn desk(&self) -> &Desk {
        &self.desk
    }

    fn desk_mut(&mut self) -> &mut Desk {
        &mut self.desk
    }

    fn plan(&self) -> Option<(Traffic, bool)> {
        let more = self.offered.len() < self.plan.repetitions as usize;
        more.then(|| (Traffic::Steady { rate: self.rate, seconds: f64::from(self.plan.seconds) }, false))
    }

    /// What is forwarded is what it is; the result says what is open.
    fn is_open(&self, _range: [f64; 2], _outcome: &Outcome) -> bool {
        false
    }

    fn is_stopped(&self, traffic: &Traffic, outcome: &Outcome) -> bool {
        outcome.away.is_some_and(|away| away > traffic.seconds() * MOST_AWAY)
    }

    fn count(&mut self, traffic: Traffic, outcome: &Outcome) {
        // From the first frame to the last there is a gap less than there are frames: no more than the rate was offered.
        let seconds = traffic.seconds().max(outcome.seconds.unwrap_or(0.0)).max(real(outcome.sent) / self.rate);
        self.offered.push(real(outcome.sent) / seconds);
        self.forwarded.push(real(outcome.received) / seconds);
        self.own = self.own.saturating_add(outcome.own);
        self.doubtful = self.doubtful.saturating_add(outcome.doubtful);
        self.away = self.away.max(outcome.away.unwrap_or(0.0));
        let least = |share: f64| self.filling.map_or(share, |least| least.min(share));
        self.filling = outcome.filling(seconds).map(|filling| least(filling.most)).or(self.filling);
    }
}
