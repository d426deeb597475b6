//! Errors that all drivers share.

use crate::MacAddress;
use std::ops::RangeInclusive;

/// An error of a driver. Its message is one line: the object, the cause and the next step.
pub trait PortError: std::error::Error + Send + Sync + 'static {
    /// Returns whether the error lies in the request, and not in this host or the device.
    fn is_usage(&self) -> bool {
        false
    }

    /// Returns why the operation has failed, if a program can make something of it.
    fn known_cause(&self) -> Option<Cause> {
        None
    }
}

/// Why an operation has failed, for programs: what they can tell apart without reading the words of a [`PortError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// The device no longer answers, and will not until it is opened again.
    Gone,
    /// The physical function behind a virtual one does not answer.
    PfSilent,
    /// The physical function behind a virtual one has begun a reset, and does not end it.
    PfAway,
    /// The physical function behind a virtual one does not grant what was asked for.
    PfRefused,
    /// The physical function behind a virtual one was reset, or has lost track of it.
    PfReset,
    /// What the physical function behind a virtual one answers has no meaning.
    PfNonsense,
}

/// The error for a setting outside its range, or for settings that contradict each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting}: {problem}")]
#[non_exhaustive]
pub struct ConfigError {
    /// The setting's name in [`crate::PortConfig`] or the driver's own settings, or the argument of an operation.
    pub setting: &'static str,
    /// What is wrong, and what would be right.
    pub problem: String,
}

impl ConfigError {
    /// Creates the error that `setting` is refused because of `problem`.
    #[must_use]
    pub fn new(setting: &'static str, problem: impl Into<String>) -> Self {
        Self { setting, problem: problem.into() }
    }

    /// Checks that `value` is within `range`, whose numbers have the unit `unit`.
    ///
    /// # Errors
    ///
    /// If it is not.
    pub fn unless_in(setting: &'static str, value: u16, range: RangeInclusive<u16>, unit: &str) -> Result<(), Self> {
        if range.contains(&value) {
            return Ok(());
        }
        Err(Self::new(setting, format!("{value} {unit}: must be {} to {}", range.start(), range.end())))
    }

    /// Checks that all of `groups` are multicast addresses.
    ///
    /// # Errors
    ///
    /// If one is not.
    pub fn unless_groups(groups: &[MacAddress]) -> Result<(), Self> {
        match groups.iter().find(|group| !group.is_multicast()) {
            Some(other) => Err(Self::new("groups", format!("{other}: not a multicast address"))),
            None => Ok(()),
        }
    }
}

impl PortError for ConfigError {
    fn is_usage(&self) -> bool {
        true
    }
}

/// The error for an operation that the device or its driver does not support; [`crate::Capabilities`] tells beforehand.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{device}: cannot {operation}: this device does not know how; do without, or choose another device")]
#[non_exhaustive]
pub struct Unsupported {
    /// The device's address.
    pub device: String,
    /// The requested operation.
    pub operation: &'static str,
}

impl Unsupported {
    /// Creates the error that `device` cannot do `operation`.
    #[must_use]
    pub fn new(device: &str, operation: &'static str) -> Self {
        Self { device: device.to_owned(), operation }
    }
}

/// Enough of an error for a port of one's own that nothing else can go wrong with.
impl PortError for Unsupported {}
