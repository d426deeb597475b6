//! The numbers of tests: those of RFC 2544 and its successors, and short ones.

use crate::error::{duration, repetitions, within};
use crate::{Error, Goal, Setup};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What is done before and after the traffic of a trial (RFC 2544, 23). Durations are in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Phases {
    /// After routing updates were sent, if the device is a router (phase a).
    pub routing_wait: f64,
    /// Learning frames to each port, so that bridges and neighbour tables know the addresses (phase b).
    pub learning_frames: u32,
    /// After these frames.
    pub learning_wait: f64,
    /// Frames that open the traffic and are not counted. Those that lie in the device's buffer when counting begins leave less room in it,
    /// so that they are to be few beside those that count.
    pub warm_up_frames: u32,
    /// For frames that are still under way after the traffic (phase d): the time without any before those missing count as lost. Frames that
    /// come prolong it, to at most 2 seconds in all if it is less. Where some are missing after it, one more has to come through before they
    /// count as lost, in at most 5 seconds: they may be held up.
    pub drain: f64,
    /// For the device to come to rest (phase e).
    pub settle: f64,
}

/// The numbers of all tests. Durations are in seconds.
///
/// ```
/// use trial::Profile;
///
/// let mut profile = Profile::rfc2544();
/// assert!(profile.departures().is_empty());
/// profile.latency.repetitions = 3;
/// let departures: Vec<_> = profile.departures().iter().map(ToString::to_string).collect();
/// assert_eq!(departures, ["RFC 2544, 26.2: repetitions of the latency test: 3 instead of 20"]);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// What is done around the traffic of each trial.
    pub phases: Phases,
    /// By how much the generator may miss a rate or a duration, as a share of it, before a trial is void. 0 to 0.1.
    pub rate_tolerance: f64,
    /// The throughput search.
    pub throughput: ThroughputPlan,
    /// Latency.
    pub latency: Repeated,
    /// Frame loss rate.
    pub loss: LossPlan,
    /// Back-to-back frames.
    pub bursts: BurstPlan,
    /// System recovery.
    pub recovery: RecoveryPlan,
    /// Forwarding rate at maximum offered load.
    pub frmol: Repeated,
}

/// Numbers of the throughput search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThroughputPlan {
    /// What to search for. One goal without an exceed ratio is what [`crate::BinarySearch`] takes.
    pub goals: Vec<Goal>,
    /// A trial at the highest load whose outcome is not used; 0 for none.
    pub warm_up_seconds: f64,
    /// Trial seconds after which a search ends without its result.
    pub most_seconds: f64,
}

/// A trial, again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repeated {
    /// Seconds of each.
    pub seconds: u32,
    /// How often.
    pub repetitions: u32,
}

/// Numbers of the frame loss test.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossPlan {
    /// Seconds of each trial.
    pub seconds: f64,
    /// From a rate to the next one, as a share of the highest.
    pub step: f64,
}

/// Numbers of the back-to-back test.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BurstPlan {
    /// Independent searches.
    pub repetitions: u32,
    /// The longest burst (RFC 9004, 6.2: "configurable to values as high as 30 seconds").
    pub longest_seconds: f64,
    /// The search ends when it knows the burst to so many frames.
    pub step_frames: u64,
    /// How often a burst that lost frames is sent again, to see whether it does so always (TST 009, 12.3.3).
    pub verifications: u32,
}

/// Numbers of the recovery test.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecoveryPlan {
    /// Seconds of overload.
    pub overload_seconds: f64,
    /// Seconds of the lower rate.
    pub recovery_seconds: f64,
    /// How often.
    pub repetitions: u32,
}

/// The overload of the recovery test, as a share of the throughput, and the rate after it, as a share of the overload (RFC
/// 2544, 26.5).
pub(crate) const OVERLOAD: f64 = 1.1;
pub(crate) const AFTER_OVERLOAD: f64 = 0.5;

impl Default for Profile {
    /// Short trials, for a minute or two a frame size.
    fn default() -> Self {
        Self {
            name: "short".to_owned(),
            phases: Phases {
                routing_wait: 0.0,
                learning_frames: 3,
                learning_wait: 0.05,
                warm_up_frames: 64,
                drain: 0.2,
                settle: 0.05,
            },
            rate_tolerance: 0.001,
            throughput: ThroughputPlan { goals: vec![Goal::NDR, Goal::PDR], warm_up_seconds: 1.0, most_seconds: 300.0 },
            latency: Repeated { seconds: 2, repetitions: 3 },
            loss: LossPlan { seconds: 1.0, step: 0.1 },
            bursts: BurstPlan { repetitions: 5, longest_seconds: 2.0, step_frames: 1, verifications: 1 },
            recovery: RecoveryPlan { overload_seconds: 2.0, recovery_seconds: 2.0, repetitions: 3 },
            frmol: Repeated { seconds: 1, repetitions: 3 },
        }
    }
}

impl Profile {
    /// The numbers of RFC 2544 (23, 24, 26), RFC 9004 and RFC 8219. Where an RFC says at least, it is that; RFC 2544 leaves
    /// open how often recovery is measured, and how long after the overload.
    #[must_use]
    pub fn rfc2544() -> Self {
        Self {
            name: "rfc2544".to_owned(),
            phases: Phases {
                routing_wait: 2.0,
                learning_frames: 3,
                learning_wait: 2.0,
                warm_up_frames: 0,
                drain: 2.0,
                settle: 5.0,
            },
            rate_tolerance: 0.001,
            throughput: ThroughputPlan { goals: vec![Goal::RFC2544], warm_up_seconds: 0.0, most_seconds: 36_000.0 },
            latency: Repeated { seconds: 120, repetitions: 20 },
            loss: LossPlan { seconds: 60.0, step: 0.1 },
            bursts: BurstPlan { repetitions: 50, longest_seconds: 30.0, step_frames: 1, verifications: 1 },
            recovery: RecoveryPlan { overload_seconds: 60.0, recovery_seconds: 60.0, repetitions: 5 },
            frmol: Repeated { seconds: 60, repetitions: 1 },
        }
    }

    /// Checks the numbers, those of its goals, too.
    ///
    /// # Errors
    ///
    /// The first that is out of its range.
    pub fn check(&self) -> Result<(), Error> {
        let Phases { routing_wait, learning_wait, drain, settle, .. } = self.phases;
        let wait = |what, value: f64| within(what, value, (0.0..=3600.0).contains(&value), "0 to 3600 seconds");
        wait("the wait for routing", routing_wait)?;
        wait("the wait for learning", learning_wait)?;
        wait("the wait for frames under way", drain)?;
        wait("the wait for the device to settle", settle)?;
        let tolerance = self.rate_tolerance;
        within("the tolerance of rates", tolerance, (0.0..=0.1).contains(&tolerance), "0 to 0.1")?;
        let warm_up = self.throughput.warm_up_seconds;
        within(
            "the warm-up",
            warm_up,
            warm_up == 0.0 || (1e-3..=1e6).contains(&warm_up),
            "0, or 0.001 to 1000000 seconds",
        )?;
        duration("the limit of a search", self.throughput.most_seconds)?;
        self.throughput.goals.iter().try_for_each(Goal::check)?;
        for repeated in [self.latency, self.frmol] {
            repetitions(repeated.repetitions)?;
            duration("a trial duration", f64::from(repeated.seconds))?;
        }
        duration("the duration of a loss trial", self.loss.seconds)?;
        within("the step of the loss test", self.loss.step, (0.001..=0.1).contains(&self.loss.step), "0.001 to 0.1")?;
        repetitions(self.bursts.repetitions)?;
        duration("the longest burst", self.bursts.longest_seconds)?;
        within(
            "the step of bursts",
            crate::trial::real(self.bursts.step_frames),
            self.bursts.step_frames > 0,
            "at least 1",
        )?;
        within(
            "the number of verifications",
            f64::from(self.bursts.verifications),
            self.bursts.verifications <= 100,
            "0 to 100",
        )?;
        repetitions(self.recovery.repetitions)?;
        duration("the overload", self.recovery.overload_seconds)?;
        duration("the time for recovery", self.recovery.recovery_seconds)
    }

    /// Returns where the numbers fall short of an RFC.
    #[must_use]
    pub fn departures(&self) -> Vec<Departure> {
        self.departures_of(|_| true)
    }

    /// The same of the numbers that some tests have.
    pub(crate) fn departures_of(&self, is_done: impl Fn(Kind) -> bool) -> Vec<Departure> {
        use Kind::{Any, BackToBack, Frmol, Latency, Loss, Recovery, Throughput};
        let rfc = Self::rfc2544();
        let (ours, theirs) = (&self.phases, &rfc.phases);
        let trial = |goals: &[Goal]| goals.iter().map(|goal| goal.final_seconds).fold(f64::INFINITY, f64::min);
        let exceed = self.throughput.goals.iter().map(|goal| goal.exceed_ratio).fold(0.0, f64::max);
        let loss = self.throughput.goals.iter().map(|goal| goal.loss_ratio).fold(0.0, f64::max);
        let (latency, bursts) = (&self.latency, &self.bursts);
        let (of_trial, longest) = (trial(&self.throughput.goals), bursts.longest_seconds);
        let at_least = [
            (Any, "RFC 2544, 23 a", "seconds for routing to settle", ours.routing_wait, theirs.routing_wait),
            (Any, "RFC 2544, 23 b", "seconds after learning frames", ours.learning_wait, theirs.learning_wait),
            (Any, "RFC 2544, 23 d", "seconds for frames under way", ours.drain, theirs.drain),
            (Any, "RFC 2544, 23 e", "seconds for the device to settle", ours.settle, theirs.settle),
            (Throughput, "RFC 2544, 24", "seconds of the trial that decides throughput", of_trial, 60.0),
            (Latency, "RFC 2544, 26.2", "seconds of a latency trial", f64::from(latency.seconds), 120.0),
            (Latency, "RFC 2544, 26.2", "repetitions of the latency test", f64::from(latency.repetitions), 20.0),
            (Loss, "RFC 2544, 24", "seconds of a loss trial", self.loss.seconds, 60.0),
            (BackToBack, "RFC 2544, 26.4", "repetitions of the back-to-back test", f64::from(bursts.repetitions), 50.0),
            (BackToBack, "RFC 9004, 6.2", "seconds of the longest burst", longest, rfc.bursts.longest_seconds),
            (Recovery, "RFC 2544, 26.5", "seconds of overload", self.recovery.overload_seconds, 60.0),
            (Frmol, "RFC 2544, 24", "seconds of a trial at the highest load", f64::from(self.frmol.seconds), 60.0),
        ];
        let at_most = [
            (Throughput, "RFC 2544, 26.1", "share of seconds that may lose frames", exceed, 0.0),
            (Throughput, "RFC 2544, 26.1", "share of frames that may be lost", loss, 0.0),
        ];
        let departure = |&(_, section, what, used, wanted)| Departure { section, what, used, wanted };
        let short = at_least.iter().filter(|(.., used, wanted)| used < wanted);
        let long = at_most.iter().filter(|(.., used, wanted)| used > wanted);
        short.chain(long).filter(|(kind, ..)| is_done(*kind)).map(departure).collect()
    }
}

/// The tests that have a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Any,
    Throughput,
    Latency,
    Loss,
    BackToBack,
    Recovery,
    Frmol,
}

impl Kind {
    /// Whether a test is of this kind.
    pub(crate) fn is_of(self, setup: &Setup) -> bool {
        self == Self::Any
            || self
                == match setup {
                    Setup::Throughput { .. } | Setup::BinarySearch { .. } => Self::Throughput,
                    Setup::Latency { .. } => Self::Latency,
                    Setup::FrameLoss { .. } => Self::Loss,
                    Setup::BackToBack { .. } => Self::BackToBack,
                    Setup::Recovery { .. } => Self::Recovery,
                    Setup::Frmol { .. } => Self::Frmol,
                }
    }
}

/// A number that falls short of an RFC.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Departure {
    /// The section.
    pub section: &'static str,
    /// What the number is.
    pub what: &'static str,
    /// What was used.
    pub used: f64,
    /// What the RFC wants.
    pub wanted: f64,
}

impl fmt::Display for Departure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { section, what, used, wanted } = self;
        write!(f, "{section}: {what}: {used} instead of {wanted}")
    }
}
