//! Errors of tests.

/// Why a test cannot be done as asked.
///
/// ```
/// use trial::{Error, Goal, Throughput};
///
/// let error = Throughput::new(vec![Goal::NDR], 1_000.0..=500.0, &Default::default()).unwrap_err();
/// assert_eq!(error.to_string(), "loads from 1000 to 500 frames/s: the lower end must be positive and below the upper one");
/// ```
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The loads to search, in frames a second, are no range.
    #[error("loads from {} to {} frames/s: the lower end must be positive and below the upper one", plain(.low), plain(.high))]
    Range {
        /// The lower end.
        low: f64,
        /// The upper end.
        high: f64,
    },
    /// A number is not one that the test can work with.
    #[error("{what} is {}; it must be {allowed}", plain(.value))]
    Number {
        /// Its name.
        what: &'static str,
        /// What was given.
        value: f64,
        /// What may be given.
        allowed: &'static str,
    },
    /// A search without goals.
    #[error("no goals to search for; give one, such as NDR")]
    NoGoals,
    /// Lines of another version.
    #[error(
        "these results are of version {version}, and version {known} can be read; measure again, or read them with the program \
             that wrote them{}", by(.program)
    )]
    Version {
        /// Theirs.
        version: u32,
        /// The program that wrote them, if they say it.
        program: Option<String>,
        /// The one that can be read.
        known: u32,
    },
    /// A line is no JSON, or not of a run.
    #[error("line {number} of the results is damaged; {}", mend(.number))]
    Damaged {
        /// Its number, from 1.
        number: usize,
    },
    /// A line where none of its kind can be, or a trial that the test would not have asked for.
    #[error(
        "line {number} of the results does not follow from those before it; read them with the program that wrote them, or remove it and \
             those after it, and resume"
    )]
    Unexpected {
        /// Its number, from 1.
        number: usize,
    },
    /// No first line.
    #[error("there are no results: the first line is missing")]
    NoRun,
    /// An outcome was told when no trial was asked for: the test has ended.
    #[error("the outcome of a trial that was not asked for: the test has ended")]
    NotAsked,
}

/// A number, with an exponent if it has many digits.
fn plain(value: &f64) -> String {
    let is_short = *value == 0.0 || !value.is_finite() || (1e-6..1e15).contains(&value.abs());
    if is_short { value.to_string() } else { format!("{value:e}") }
}

/// The name of a program, if there is one.
fn by(program: &Option<String>) -> String {
    program.as_ref().map_or_else(String::new, |program| format!(", {program}"))
}

/// What to do about a damaged line.
fn mend(number: &usize) -> &'static str {
    match number {
        1 => "nothing after it can be read without it; measure again, into another folder",
        _ => "remove it and those after it, and resume",
    }
}

/// Checks that a number lies in a range, which NaN does not.
pub(crate) fn within(what: &'static str, value: f64, fits: bool, allowed: &'static str) -> Result<(), Error> {
    if fits && value.is_finite() { Ok(()) } else { Err(Error::Number { what, value, allowed }) }
}

/// Checks that a duration in seconds is one that a trial can have: 1 ms to 1,000,000 s.
pub(crate) fn duration(what: &'static str, value: f64) -> Result<(), Error> {
    within(what, value, (1e-3..=1e6).contains(&value), "0.001 to 1000000 seconds")
}

/// Checks the loads of a test, in frames a second.
pub(crate) fn range(low: f64, high: f64) -> Result<(), Error> {
    let fits = low > 0.0 && high > low && high <= 1e12 && low >= 1e-6;
    if fits { Ok(()) } else { Err(Error::Range { low, high }) }
}

/// Checks a number of repetitions: 1 to 100,000.
pub(crate) fn repetitions(value: u32) -> Result<(), Error> {
    within("the number of repetitions", f64::from(value), (1..=100_000).contains(&value), "1 to 100000")
}
