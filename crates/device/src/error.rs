//! What can go wrong when opening or using a device.

use std::io;

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of device access: the operation, the object, the cause and the next step.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An operation of the system on a named object failed.
    #[error("cannot {operation} {object}: {source}{}{hint}", if hint.is_empty() { "" } else { "; " })]
    System {
        /// What was tried ("open", "map").
        operation: &'static str,
        /// On what (a path, an address).
        object: String,
        /// What the system said.
        source: io::Error,
        /// What to do next; may be empty.
        hint: String,
    },
    /// Something is not as the device, the host or the caller must have it.
    #[error("{object}: {cause}{}{hint}", if hint.is_empty() { "" } else { "; " })]
    Unusable {
        /// Which device, file or argument.
        object: String,
        /// What is wrong.
        cause: String,
        /// What to do next; may be empty.
        hint: String,
    },
}

impl Error {
    /// An [`Error::System`] from its parts.
    pub fn system(
        operation: &'static str,
        object: impl Into<String>,
        source: impl Into<io::Error>,
        hint: impl Into<String>,
    ) -> Self {
        Self::System { operation, object: object.into(), source: source.into(), hint: hint.into() }
    }

    /// An [`Error::Unusable`] from its parts.
    pub fn unusable(object: impl Into<String>, cause: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Unusable { object: object.into(), cause: cause.into(), hint: hint.into() }
    }
}
