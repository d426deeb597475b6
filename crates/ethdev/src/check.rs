//! What a self-test finds.

use crate::{Cause, PortError};
use std::fmt::Display;

/// A check of a self-test: what was looked at, whether it is in order, and what was seen.
///
/// ```
/// use ethdev::{Check, Verdict};
///
/// let check = Check::ok("EEPROM", "its checksum is right");
/// assert_eq!((check.name, check.verdict), ("EEPROM", Verdict::Ok));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Check {
    /// What was looked at, in a word or two.
    pub name: &'static str,
    /// Whether it is in order.
    pub verdict: Verdict,
    /// What was seen, or why it does not apply: one line.
    pub seen: String,
    /// Why, if an error has ended the check and programs can make something of it.
    pub cause: Option<Cause>,
    /// Whether an error has ended the check: then what was seen ends in what to do about it, behind a semicolon.
    pub is_error: bool,
}

/// The outcome of a [`Check`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// Not as it should be.
    Failed,
    /// This device has no such part, or it cannot be looked at here.
    NotApplicable,
}

impl Check {
    /// Creates a check of something that is in order.
    #[must_use]
    pub fn ok(name: &'static str, seen: impl Into<String>) -> Self {
        Self::new(name, Verdict::Ok, seen.into())
    }

    /// Creates a check of something that is not in order.
    #[must_use]
    pub fn failed(name: &'static str, seen: impl Display) -> Self {
        Self::new(name, Verdict::Failed, seen.to_string())
    }

    /// Creates a check that `error` has ended.
    #[must_use]
    pub fn ended_by(name: &'static str, error: &impl PortError) -> Self {
        Self { cause: error.known_cause(), is_error: true, ..Self::failed(name, error) }
    }

    /// Creates a check that could not be made, because of `why`.
    #[must_use]
    pub fn not_applicable(name: &'static str, why: impl Into<String>) -> Self {
        Self::new(name, Verdict::NotApplicable, why.into())
    }

    fn new(name: &'static str, verdict: Verdict, seen: String) -> Self {
        Self { name, verdict, seen, cause: None, is_error: false }
    }
}
