//! What all tests share: they ask for trials, and tell those that count from those that are void.

use crate::trial::real;
use crate::{Error, Outcome, Phases, Profile, Traffic, Trial};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Times that a trial may be void before that is taken for a limit of the generator.
pub const TRIES: u32 = 3;
/// Limits of the generator after which a search for a rate is given up: it misses any.
const MOST_LIMITS: usize = 20;

/// The share of a rate by which the next is lower, if bursts of the generator leave open what its loss says; twice as much each further time.
const STEP_DOWN: f64 = 0.01;
/// How often it is doubled at most.
const DOUBLINGS: usize = 4;

/// A test: asked for the next trial, told what came of it.
///
/// ```
/// use trial::{Frmol, Method, Outcome};
///
/// let mut test = Frmol::new(1e6, &Default::default())?;
/// while let Some(trial) = test.next() {
///     let sent = trial.traffic.frames();
///     test.tell(&Outcome::new(sent, sent * 9 / 10))?;
/// }
/// assert_eq!(test.result().map(|result| result.forwarded), Some(900_000.0));
/// # Ok::<(), trial::Error>(())
/// ```
pub trait Method {
    /// Returns the next trial, the same one until its outcome is told; `None` when the test has ended.
    fn next(&self) -> Option<Trial>;

    /// Takes the outcome of that trial.
    ///
    /// # Errors
    ///
    /// If the test has ended.
    fn tell(&mut self, outcome: &Outcome) -> Result<Verdict, Error>;

    /// Returns the limits of the generator that the test has run into, each once.
    fn limits(&self) -> &[Limit];

    /// Returns the number of trials so far, void ones among them, and the seconds for which they sent.
    fn spent(&self) -> (u64, f64);

    /// Returns whether a limit of the generator has ended the test before its time.
    fn is_given_up(&self) -> bool;
}

/// What becomes of an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It counts.
    Counted,
    /// It says nothing about the device; the trial is asked for again.
    Void(Reason),
    /// It was void for the third time in a row, or too many of its load were: a [`Limit`].
    Limit(Reason),
}

/// Why a trial is void.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reason {
    /// The generator missed its rate.
    Rate,
    /// A link fell.
    Link,
    /// The clock jumped, or the duration is no number.
    Clock,
    /// More frames are said to have come than were sent.
    Counts,
    /// Frames were lost, and what that says of the device is open, as the generator has sent frames in bursts of its own.
    Bursts,
    /// Generator or device did not run for too much of the trial.
    Stopped,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rate => "the generator missed its rate",
            Self::Link => "a link fell",
            Self::Clock => "the clock jumped",
            Self::Counts => "more frames came than were sent",
            Self::Bursts => "the generator sent bursts that may be why frames were lost",
            Self::Stopped => "the machine stopped generator or device for too long",
        })
    }
}

/// A limit of the generator, never of the device: a trial that was void three times, or a load of which so many trials are open that it is
/// not known whether it meets a goal.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Limit {
    /// Why the last one was void.
    pub reason: Reason,
    /// How often.
    pub times: u32,
    /// Whether another was void for another reason.
    #[serde(default)]
    pub mixed: bool,
    /// Frames a second that were asked for.
    pub asked: f64,
    /// The highest rate of the last that was kept to, in frames a second. Where bursts of the generator were in doubt, 1 % less than was
    /// asked for, and up to 16 % if that was so before, as it is not known how much less would have none.
    pub reached: f64,
}

impl Limit {
    /// What happened, and how often.
    pub(crate) fn why(&self) -> String {
        let Self { reason, times, .. } = self;
        match self.mixed {
            false => format!("{reason} {times} times"),
            true => format!("void {times} times, at last because {reason}"),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { asked, reached, .. } = self;
        match self.reason {
            Reason::Rate | Reason::Bursts => {
                write!(f, "{}: {asked:.0} frames/s were asked for, {reached:.0} were kept to", self.why())
            }
            // What stopped it has nothing to do with the rate.
            _ => write!(f, "{}: {reached:.0} frames/s were sent", self.why()),
        }
    }
}

/// Numbers trials, repeats void ones, and keeps count.
#[derive(Clone, Debug, Default)]
pub struct Desk {
    phases: Phases,
    tolerance: f64,
    /// Whether a rate that is missed is a finding instead.
    any_rate: bool,
    trials: u64,
    seconds: f64,
    void: u32,
    /// Why the last was void, and whether one of those in a row before it was so for another reason.
    last: Option<Reason>,
    mixed: bool,
    reached: f64,
    limits: Vec<Limit>,
    over: bool,
}

/// What a test adds to the desk. The trait is not named outside of the crate.
pub trait Plan {
    /// The desk.
    fn desk(&self) -> &Desk;
    /// The same, to write to.
    fn desk_mut(&mut self) -> &mut Desk;
    /// What to send next, and whether it is a warm-up.
    fn plan(&self) -> Option<(Traffic, bool)>;
    /// Takes an outcome that counts.
    fn count(&mut self, traffic: Traffic, outcome: &Outcome);
    /// Whether it is open what the loss says, if that of the device may be anything between a least and a most.
    fn is_open(&self, [least, most]: [f64; 2], _outcome: &Outcome) -> bool {
        least <= 0.0 && most > 0.0
    }
    /// Takes an outcome that is open. Returns how many of its load are, once no trials up to the duration sum can decide about it.
    fn leave_open(&mut self, _traffic: &Traffic, _outcome: &Outcome) -> Option<u32> {
        None
    }
    /// Whether generator or device were stopped for so long that the outcome says nothing.
    fn is_stopped(&self, _traffic: &Traffic, _outcome: &Outcome) -> bool {
        false
    }
    /// Seconds by which traffic may be late in any case.
    fn late_seconds(&self, _traffic: &Traffic) -> f64 {
        0.0
    }
    /// Takes a rate that the generator does not reach; whether the test can go on without.
    fn unreachable(&mut self, _limit: &Limit) -> bool {
        false
    }
}

impl Desk {
    pub(crate) fn new(profile: &Profile) -> Result<Self, Error> {
        profile.check()?;
        Ok(Self { phases: profile.phases, tolerance: profile.rate_tolerance, ..Self::default() })
    }

    /// A desk to which no rate is too low.
    pub(crate) fn any_rate(mut self) -> Self {
        self.any_rate = true;
        self
    }

    /// Whether the test was given up.
    pub(crate) fn is_over(&self) -> bool {
        self.over
    }

    /// Whether the generator has missed few enough rates that a lower one is worth a trial.
    pub(crate) fn may_lower(&self) -> bool {
        self.limits.len() < MOST_LIMITS
    }

    /// By how much a rate may be missed.
    pub(crate) fn tolerance(&self) -> f64 {
        self.tolerance
    }

    /// Seconds of all trials so far.
    pub(crate) fn seconds(&self) -> f64 {
        self.seconds
    }

    /// Forgets void trials, as the next is another.
    fn begin_anew(&mut self) {
        (self.void, self.last, self.mixed, self.reached) = (0, None, false, 0.0);
    }

    /// Why an outcome is void, if it is: of traffic that may be late by so many seconds in any case.
    fn fault(&self, traffic: &Traffic, late: f64, outcome: &Outcome) -> Option<Reason> {
        if outcome.link_fell {
            return Some(Reason::Link);
        }
        let seconds = outcome.seconds.unwrap_or(1.0);
        if outcome.clock_jumped || !(seconds.is_finite() && seconds > 0.0) {
            return Some(Reason::Clock);
        }
        if outcome.received > outcome.sent {
            return Some(Reason::Counts);
        }
        let other = outcome.seconds.is_some_and(|seconds| {
            // From the first frame to the last there is a gap less than there are frames.
            let gap = 1.0 / traffic.rate();
            let share = traffic.seconds() * self.tolerance;
            seconds > traffic.seconds() + share.max(late) + gap || seconds < traffic.seconds() - share - 2.0 * gap
        });
        let missed = traffic.is_missed(outcome.sent, self.tolerance) || other || outcome.sent == 0;
        (missed && !self.any_rate).then_some(Reason::Rate)
    }
}

/// Frames a second that were sent; of several rates the highest, as far as all were kept to.
fn rate_of(traffic: &Traffic, outcome: &Outcome) -> f64 {
    let seconds = traffic.seconds().max(outcome.seconds.filter(|seconds| seconds.is_finite()).unwrap_or(0.0));
    if seconds <= 0.0 {
        return 0.0;
    }
    match traffic {
        Traffic::Overload { rate, seconds: overload, then, then_seconds } => {
            let mean = (rate * overload + then * then_seconds) / traffic.seconds();
            real(outcome.sent) / seconds * traffic.rate() / mean
        }
        _ => real(outcome.sent) / seconds,
    }
}

impl<P: Plan> Method for P {
    fn next(&self) -> Option<Trial> {
        let desk = self.desk();
        if desk.over {
            return None;
        }
        let (traffic, warm_up) = self.plan()?;
        Some(Trial { number: desk.trials, traffic, phases: desk.phases, warm_up })
    }

    fn tell(&mut self, outcome: &Outcome) -> Result<Verdict, Error> {
        let Trial { traffic, warm_up, .. } = self.next().ok_or(Error::NotAsked)?;
        let late = self.late_seconds(&traffic);
        let desk = self.desk_mut();
        desk.trials += 1;
        desk.seconds += traffic.seconds();
        // Nothing is taken from a warm-up, so nothing can be wrong with it.
        let fault = if warm_up { None } else { desk.fault(&traffic, late, outcome) };
        let is_open = || outcome.doubtful > 0 && self.is_open(outcome.loss_range(), outcome);
        let fault = fault.or_else(|| (!warm_up && is_open()).then_some(Reason::Bursts));
        let is_stopped = || !warm_up && self.is_stopped(&traffic, outcome);
        let fault = fault.or_else(|| is_stopped().then_some(Reason::Stopped));
        let many = if fault == Some(Reason::Bursts) { self.leave_open(&traffic, outcome) } else { None };
        let desk = self.desk_mut();
        let Some(reason) = fault else {
            desk.begin_anew();
            if !warm_up {
                self.count(traffic, outcome);
            }
            return Ok(Verdict::Counted);
        };
        desk.void += 1;
        desk.mixed |= desk.last.replace(reason).is_some_and(|last| last != reason);
        let is_bursts = |limit: &&Limit| limit.reason == Reason::Bursts;
        let before = desk.limits.iter().filter(is_bursts).count().min(DOUBLINGS);
        let kept = if reason == Reason::Bursts { 1.0 - STEP_DOWN * f64::from(1 << before) } else { 1.0 };
        desk.reached = desk.reached.max(rate_of(&traffic, outcome) * kept);
        if desk.void < TRIES && many.is_none() {
            return Ok(Verdict::Void(reason));
        }
        let times = many.unwrap_or(TRIES).max(desk.void);
        let limit = Limit { reason, times, mixed: desk.mixed, asked: traffic.rate(), reached: desk.reached };
        desk.begin_anew();
        if !desk.limits.iter().any(|one| (one.reason, one.asked.to_bits()) == (reason, limit.asked.to_bits())) {
            desk.limits.push(limit);
        }
        let goes_on = matches!(reason, Reason::Rate | Reason::Bursts) && self.unreachable(&limit);
        self.desk_mut().over |= !goes_on;
        Ok(Verdict::Limit(reason))
    }

    fn limits(&self) -> &[Limit] {
        &self.desk().limits
    }

    fn spent(&self) -> (u64, f64) {
        (self.desk().trials, self.desk().seconds)
    }

    fn is_given_up(&self) -> bool {
        self.desk().over
    }
}
