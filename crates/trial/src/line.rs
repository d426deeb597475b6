//! A run as lines of JSON: its numbers, then each test and its trials, written when a trial ends.

use crate::{Outcome, Profile, Setup, Trial};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The version of the lines, and of the tests that ask for their trials: one more with each change of which trial comes next, as a report
/// does the tests again (`tests/lines.rs` fails otherwise).
pub(crate) const VERSION: u32 = 9;

/// A line. The results of a run are in its lines and nowhere else: [`crate::Report`] does each test again with the outcomes that
/// they hold.
///
/// ```
/// use trial::{Frmol, Line, Method, Outcome};
///
/// let test = Frmol::new(1e6, &Default::default())?;
/// let line = Line::trial(test.next().unwrap(), Outcome::new(1_000_000, 900_000));
/// let text = line.to_string();
/// assert!(text.starts_with(r#"{"trial":{"trial":{"number":0,"#) && !text.contains('\n'));
/// assert_eq!(text.parse::<Line>(), Ok(line));
/// # Ok::<(), trial::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Line {
    /// The first line of a run.
    Run {
        /// The version of the lines.
        version: u32,
        /// The numbers of its tests.
        profile: Profile,
        /// What it was measured with, by name: of the machine, its ports, the program. Results do not depend on it.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        about: BTreeMap<String, String>,
    },
    /// The first line of a test, of which a size has each once.
    Test {
        /// The frame size, in bytes with check sequence.
        size: u32,
        /// Its parameters.
        setup: Setup,
    },
    /// A test that was asked for and cannot be done.
    LeftOut {
        /// The frame size, in bytes with check sequence.
        size: u32,
        /// The name of the test.
        test: String,
        /// Why.
        reason: String,
    },
    /// A trial of the test before it.
    Trial {
        /// What was to be sent.
        trial: Trial,
        /// What came of it.
        outcome: Outcome,
    },
}

impl Line {
    /// Makes the first line of a run.
    #[must_use]
    pub fn run(profile: Profile) -> Self {
        Self::run_about(profile, BTreeMap::new())
    }

    /// Makes the first line of a run that says what it is measured with.
    #[must_use]
    pub fn run_about(profile: Profile, about: BTreeMap<String, String>) -> Self {
        Self::Run { version: VERSION, profile, about }
    }

    /// Makes the first line of a test with frames of so many bytes, check sequence included.
    #[must_use]
    pub fn test(size: u32, setup: Setup) -> Self {
        Self::Test { size, setup }
    }

    /// Makes the line of a test that cannot be done, by name, and says why.
    #[must_use]
    pub fn left_out(size: u32, test: &str, reason: &str) -> Self {
        Self::LeftOut { size, test: test.to_owned(), reason: reason.to_owned() }
    }

    /// Makes the line of a trial. JSON has no word for what is not a number, so that is put into others that say the same.
    #[must_use]
    pub fn trial(trial: Trial, mut outcome: Outcome) -> Self {
        if outcome.seconds.is_some_and(|seconds| !seconds.is_finite()) {
            (outcome.seconds, outcome.clock_jumped) = (None, true);
        }
        outcome.last_lost = outcome.last_lost.map(|last| if last.is_finite() { last } else { f64::MAX });
        outcome.away = outcome.away.filter(|away| away.is_finite());
        outcome.late = outcome.late.filter(|late| late.is_finite());
        let is_finite = |delays: &crate::Delays| {
            [delays.min, delays.mean, delays.median, delays.p999, delays.max].iter().all(|delay| delay.is_finite())
        };
        (outcome.delays, outcome.other_delays) =
            (outcome.delays.filter(is_finite), outcome.other_delays.filter(is_finite));
        let finite = |growth: Option<f64>| growth.filter(|growth| growth.is_finite());
        (outcome.growth, outcome.lesser_growth) = (finite(outcome.growth), finite(outcome.lesser_growth));
        Self::Trial { trial, outcome }
    }
}

impl fmt::Display for Line {
    /// Writes it, without a line feed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

impl std::str::FromStr for Line {
    type Err = NoLine;

    fn from_str(text: &str) -> Result<Self, NoLine> {
        serde_json::from_str(text).map_err(|_| NoLine)
    }
}

/// Text is no line of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no line of a run")]
pub struct NoLine;
