//! What goes wrong in the mailbox.

use device::Expired;
use std::time::Duration;

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of an exchange with the physical function: the device, the cause and the next step.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The physical function was reset, or its driver has lost track of this one.
    #[error("{device}: the physical function was reset; reset this one")]
    Lost {
        /// The device's address.
        device: String,
    },
    /// It did not do its part of an exchange in time. Later exchanges fail too, until a reset.
    #[error(
        "{device}: the physical function does not answer ({waiting_for}, after {waited:?}); \
         look whether its interface is up on the host, and reset this one"
    )]
    Silent {
        /// The device's address.
        device: String,
        /// What was waited for.
        waiting_for: &'static str,
        /// How long.
        waited: Duration,
    },
    /// It does not grant what was asked for.
    #[error(
        "{device}: the physical function refuses to {what}; ask the host's administrator (ip link set … vf N trust on, and its MTU)"
    )]
    Refused {
        /// The device's address.
        device: String,
        /// What was asked for.
        what: &'static str,
    },
    /// What it answers has no meaning. Later exchanges fail too, until a reset.
    #[error(
        "{device}: the physical function was asked to {what}, and its answer means nothing: {word:#010x}; reset this one"
    )]
    Nonsense {
        /// The device's address.
        device: String,
        /// What was asked for.
        what: &'static str,
        /// A word of the answer.
        word: u32,
    },
    /// The operation took longer in all than its limit, or was cancelled. Later exchanges fail too, until a reset.
    #[error("{device}: gave up waiting for {waiting_for}: {expired}; try again, or allow more time")]
    Expired {
        /// The device's address.
        device: String,
        /// What was waited for.
        waiting_for: &'static str,
        /// Which of the two it was.
        expired: Expired,
    },
    /// The device no longer answers: every register reads all ones.
    #[error(
        "{device}: gone: its registers read all ones; its physical function has taken it away, or the card is gone"
    )]
    Gone {
        /// The device's address.
        device: String,
    },
}
