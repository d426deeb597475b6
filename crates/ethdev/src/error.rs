//! What every driver's errors have in common.

use std::ops::RangeInclusive;

/// An error of a driver, in one line: the object, the cause and the next step.
pub trait PortError: std::error::Error + Send + Sync + 'static {
    /// Whether it is about what was asked for, and not about this host or the device.
    fn is_usage(&self) -> bool {
        false
    }

    /// Whether the device no longer answers, and will not again until it is opened anew.
    fn is_gone(&self) -> bool {
        false
    }
}

/// A setting is outside its range, or settings contradict each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting}: {problem}")]
#[non_exhaustive]
pub struct ConfigError {
    /// The setting's name in [`crate::PortConfig`] or the driver's own settings, or the argument of an operation.
    pub setting: &'static str,
    /// What is wrong and what would be right.
    pub problem: String,
}

impl ConfigError {
    /// `setting` is refused because of `problem`.
    #[must_use]
    pub fn new(setting: &'static str, problem: impl Into<String>) -> Self {
        Self { setting, problem: problem.into() }
    }

    /// Refuses a value outside `range`, which counts in `unit`.
    ///
    /// # Errors
    ///
    /// If it is.
    pub fn unless_in(setting: &'static str, value: u16, range: RangeInclusive<u16>, unit: &str) -> Result<(), Self> {
        if range.contains(&value) {
            return Ok(());
        }
        Err(Self::new(setting, format!("{value} {unit}: must be {} to {}", range.start(), range.end())))
    }
}

impl PortError for ConfigError {
    fn is_usage(&self) -> bool {
        true
    }
}

/// An operation that the device, or its driver, does not know: [`crate::Capabilities`] says so beforehand.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{device}: cannot {operation}: this device does not know how; do without, or choose another device")]
#[non_exhaustive]
pub struct Unsupported {
    /// The device's address.
    pub device: String,
    /// What was asked for.
    pub operation: &'static str,
}

impl Unsupported {
    /// `device` cannot `operation`.
    #[must_use]
    pub fn new(device: &str, operation: &'static str) -> Self {
        Self { device: device.to_owned(), operation }
    }
}

/// Enough of an error for a port of one's own that nothing else can go wrong with.
impl PortError for Unsupported {}
