//! Errors of opening and using devices.

use std::io;

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of device access: the operation, the object, the cause and the next step.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call on a named object failed.
    #[error("cannot {operation} {object}: {source}{}{hint}", if hint.is_empty() { "" } else { "; " })]
    System {
        /// The operation ("open", "map").
        operation: &'static str,
        /// The object (a path, an address).
        object: String,
        /// The error that the system returned.
        source: io::Error,
        /// What to do next; may be empty.
        hint: String,
    },
    /// A device, the host or an argument is not as required.
    #[error("{object}: {cause}{}{hint}", if hint.is_empty() { "" } else { "; " })]
    Unusable {
        /// The device, file or argument.
        object: String,
        /// What is wrong.
        cause: String,
        /// What to do next; may be empty.
        hint: String,
    },
}

impl Error {
    /// Creates an [`Error::System`] from its parts.
    pub fn system(
        operation: &'static str,
        object: impl Into<String>,
        source: impl Into<io::Error>,
        hint: impl Into<String>,
    ) -> Self {
        Self::System { operation, object: object.into(), source: source.into(), hint: hint.into() }
    }

    /// Creates an [`Error::Unusable`] from its parts.
    pub fn unusable(object: impl Into<String>, cause: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Unusable { object: object.into(), cause: cause.into(), hint: hint.into() }
    }
}
