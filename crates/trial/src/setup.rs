//! Any of the tests, from its parameters.

use crate::{
    BackToBack, BinarySearch, Error, FrameLoss, Frmol, Goal, Latency, Limit, Method, Outcome, Profile, Recovery,
    Throughput, Trial, Verdict,
};
use serde::{Deserialize, Serialize};

/// The parameters of a test beside those of a [`Profile`]. Rates are in frames a second.
///
/// ```
/// use trial::{Method, Profile, Setup};
///
/// let test = Setup::FrameLoss { highest: 1e6 }.start(&Profile::default())?;
/// assert_eq!(test.next().map(|trial| trial.traffic.rate()), Some(1e6));
/// # Ok::<(), trial::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Setup {
    /// [`Throughput`].
    Throughput {
        /// What to search for.
        goals: Vec<Goal>,
        /// The lowest load.
        low: f64,
        /// The highest.
        high: f64,
    },
    /// [`BinarySearch`].
    BinarySearch {
        /// What to search for.
        goal: Goal,
        /// The lowest rate.
        low: f64,
        /// The highest.
        high: f64,
    },
    /// [`Latency`].
    Latency {
        /// The rates.
        rates: Vec<f64>,
    },
    /// [`FrameLoss`].
    FrameLoss {
        /// The highest rate.
        highest: f64,
    },
    /// [`BackToBack`].
    BackToBack {
        /// The rate within a burst.
        rate: f64,
        /// What the device forwards without end, for the corrected buffer time.
        throughput: f64,
        /// The least and the most that it may be; `None` if it is known exactly.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        range: Option<[f64; 2]>,
        /// How many frames delays say were in a buffer of the device at the end of a trial, if that is why trials forwarded more.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        filling: Option<f64>,
    },
    /// [`Recovery`].
    Recovery {
        /// The throughput.
        throughput: f64,
        /// The highest rate.
        highest: f64,
    },
    /// [`Frmol`].
    Frmol {
        /// A rate that the generator does not exceed: that of the line.
        rate: f64,
        /// The highest rate that may be sent, if that is less.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max: Option<f64>,
    },
}

/// Any of the tests.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum AnyTest {
    /// Several goals in one search.
    Throughput(Throughput),
    /// Binary search.
    BinarySearch(BinarySearch),
    /// Latency.
    Latency(Latency),
    /// Frame loss rate.
    FrameLoss(FrameLoss),
    /// Back-to-back frames.
    BackToBack(BackToBack),
    /// System recovery.
    Recovery(Recovery),
    /// Forwarding rate at maximum offered load.
    Frmol(Frmol),
}

impl Setup {
    /// Begins the test.
    ///
    /// # Errors
    ///
    /// Those of the test.
    pub fn start(&self, profile: &Profile) -> Result<AnyTest, Error> {
        Ok(match self {
            Self::Throughput { goals, low, high } => {
                AnyTest::Throughput(Throughput::new(goals.clone(), *low..=*high, profile)?)
            }
            Self::BinarySearch { goal, low, high } => {
                AnyTest::BinarySearch(BinarySearch::new(*goal, *low..=*high, profile)?)
            }
            Self::Latency { rates } => AnyTest::Latency(Latency::new(rates.clone(), profile)?),
            Self::FrameLoss { highest } => AnyTest::FrameLoss(FrameLoss::new(*highest, profile)?),
            Self::BackToBack { rate, throughput, .. } => {
                AnyTest::BackToBack(BackToBack::new(*rate, *throughput, profile)?)
            }
            Self::Recovery { throughput, highest } => AnyTest::Recovery(Recovery::new(*throughput, *highest, profile)?),
            Self::Frmol { rate, max } => AnyTest::Frmol(Frmol::new(max.map_or(*rate, |max| rate.min(max)), profile)?),
        })
    }
}

/// Calls a method of the test at hand.
macro_rules! each {
    ($self:ident, $test:ident => $call:expr) => {
        match $self {
            AnyTest::Throughput($test) => $call,
            AnyTest::BinarySearch($test) => $call,
            AnyTest::Latency($test) => $call,
            AnyTest::FrameLoss($test) => $call,
            AnyTest::BackToBack($test) => $call,
            AnyTest::Recovery($test) => $call,
            AnyTest::Frmol($test) => $call,
        }
    };
}

impl Method for AnyTest {
    fn next(&self) -> Option<Trial> {
        each!(self, test => test.next())
    }

    fn tell(&mut self, outcome: &Outcome) -> Result<Verdict, Error> {
        each!(self, test => test.tell(outcome))
    }

    fn limits(&self) -> &[Limit] {
        each!(self, test => test.limits())
    }

    fn spent(&self) -> (u64, f64) {
        each!(self, test => test.spent())
    }

    fn is_given_up(&self) -> bool {
        each!(self, test => test.is_given_up())
    }
}
