//! What is asked for, a line each.

use crate::Error;
use serde::{Deserialize, Deserializer};
use std::time::Duration;

/// A request to a run.
///
/// ```
/// use control::Request;
///
/// let Request::Set(set) = Request::parse(r#"{"do": "set", "stream": "voice", "rate": 1500}"#)? else { unreachable!() };
/// assert_eq!((set.stream.as_deref(), set.rate.as_str()), (Some("voice"), "1500"));
/// let Request::Subscribe { interval } = Request::parse(r#"{"do": "subscribe"}"#)? else { unreachable!() };
/// assert_eq!(interval, 1.0);
/// # Ok::<(), control::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    /// Send from now on.
    Start {},
    /// Send nothing until a start; ports stay up.
    Stop {},
    /// Change a rate.
    Set(Set),
    /// Tell the figures.
    Get {},
    /// Begin all counters anew.
    Clear {},
    /// Tell the figures again and again.
    Subscribe {
        /// Seconds from one line to the next, from 0.01 to 3600; 0 for no more.
        #[serde(default = "one")]
        interval: f64,
    },
    /// End the run, with its report.
    Quit {},
}

/// A rate that changes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Set {
    /// The rate, in the words of the command line; a number is of frames a second.
    #[serde(deserialize_with = "words")]
    pub rate: String,
    /// The stream that has it, if it has a rate of its own; else it is that of all streams without.
    #[serde(default)]
    pub stream: Option<String>,
    /// The port that sends; without it all that do.
    #[serde(default)]
    pub port: Option<String>,
}

/// A line of a script.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// What could also be asked for over a socket.
    Request(Request),
    /// Wait so long.
    Sleep(Duration),
    /// Compare figures.
    Expect(Expect),
}

/// What has to hold in each direction, since counters began.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// The most that is lost, in percent of the frames sent.
    pub loss: Option<f64>,
    /// By how many percent of the rates asked for less may be offered.
    pub rate: Option<f64>,
    /// The longest 99th percentile of the latency from the due time, in the words of the command line.
    pub latency_p99: Option<String>,
}

const SHORTEST_INTERVAL: f64 = 0.01;
const LONGEST_INTERVAL: f64 = 3600.0;
const LONGEST_SLEEP: f64 = 86_400.0;

impl Request {
    /// Parses a line.
    ///
    /// # Errors
    ///
    /// [`Error::Empty`], [`Error::Syntax`], [`Error::Range`] or [`Error::Http`].
    pub fn parse(line: &str) -> Result<Self, Error> {
        if line.trim_end().ends_with("HTTP/1.1") || line.trim_end().ends_with("HTTP/1.0") {
            return Err(Error::Http);
        }
        let request = object(line)?;
        if let Self::Subscribe { interval } = request {
            // Also what is no number at all.
            if interval != 0.0 && !(SHORTEST_INTERVAL..=LONGEST_INTERVAL).contains(&interval) {
                return Err(range("interval", interval, SHORTEST_INTERVAL, LONGEST_INTERVAL));
            }
        }
        Ok(request)
    }
}

impl Step {
    /// Parses a line of a script.
    ///
    /// ```
    /// use control::{Expect, Step};
    ///
    /// let step = Step::parse(r#"{"expect": {"loss": 0, "latency_p99": "50us"}}"#)?;
    /// let latency_p99 = Some("50us".to_owned());
    /// assert_eq!(step, Step::Expect(Expect { loss: Some(0.0), rate: None, latency_p99 }));
    /// # Ok::<(), control::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Request::parse`].
    pub fn parse(line: &str) -> Result<Self, Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Sleep {
            sleep: f64,
        }
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Expecting {
            expect: Expect,
        }
        // Whose first word it is decides whose errors are told.
        let has = |key: &str| {
            serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(line)
                .is_ok_and(|map| map.contains_key(key))
        };
        if has("sleep") {
            let Sleep { sleep } = object(line)?;
            if !(0.0..=LONGEST_SLEEP).contains(&sleep) {
                return Err(range("sleep", sleep, 0.0, LONGEST_SLEEP));
            }
            return Ok(Self::Sleep(Duration::from_secs_f64(sleep)));
        }
        if has("expect") {
            let Expecting { expect } = object(line)?;
            for (field, percent) in [("loss", expect.loss), ("rate", expect.rate)] {
                if let Some(percent) = percent.filter(|percent| !(0.0..=100.0).contains(percent)) {
                    return Err(range(field, percent, 0.0, 100.0));
                }
            }
            if expect == Expect::default() {
                let message = "expect: nothing is expected; name loss, rate or latency_p99".to_owned();
                return Err(Error::Syntax { message });
            }
            return Ok(Self::Expect(expect));
        }
        Request::parse(line).map(Self::Request)
    }

    /// Parses a script: a step a line, with its number. Empty lines and those that begin with `#` are left out.
    ///
    /// # Errors
    ///
    /// [`Error::Script`] with the first line that is wrong; a subscription is, as nobody would read it.
    pub fn script(text: &str) -> Result<Vec<(usize, Self)>, Error> {
        let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
        let is_step = |(_, line): &(usize, &str)| !line.is_empty() && !line.starts_with('#');
        let step = |(number, line): (usize, &str)| match Self::parse(line) {
            Ok(Self::Request(Request::Subscribe { .. })) => {
                let message = "a script has nobody to tell; subscribe over a socket".to_owned();
                Err(Error::Script { line: number, error: Box::new(Error::Syntax { message }) })
            }
            Ok(step) => Ok((number, step)),
            Err(error) => Err(Error::Script { line: number, error: Box::new(error) }),
        };
        lines.filter(is_step).map(step).collect()
    }
}

fn object<T: for<'de> Deserialize<'de>>(line: &str) -> Result<T, Error> {
    if line.trim().is_empty() {
        return Err(Error::Empty);
    }
    if !line.trim_start().starts_with('{') {
        return Err(Error::Syntax { message: "no object".to_owned() });
    }
    serde_json::from_str(line).map_err(|error| Error::syntax(&error))
}

fn range(field: &'static str, given: f64, least: f64, most: f64) -> Error {
    Error::Range { field, given: given.to_string(), least, most }
}

fn one() -> f64 {
    1.0
}

/// Words, or a number.
fn words<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "rate: neither text nor a number")]
    enum Words {
        Text(String),
        Whole(u64),
        Number(f64),
    }
    Ok(match Words::deserialize(deserializer)? {
        Words::Text(text) => text,
        Words::Whole(number) => number.to_string(),
        Words::Number(number) => number.to_string(),
    })
}
