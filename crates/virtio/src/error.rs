//! Errors of this driver and its device.

use device::Expired;
use ethdev::{ConfigError, PortError, Unsupported};
use std::time::Duration;

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the driver: the object, the cause and the next step, in one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting is outside its range, or settings contradict each other.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The device or this driver does not support the operation.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The device lacks something that this driver needs, or rejects what was negotiated.
    #[error("{device}: {problem}")]
    Negotiation {
        /// The device's address.
        device: String,
        /// What is missing and where to turn it on.
        problem: String,
    },
    /// A queue of the device cannot be used.
    #[error("{device}: virtqueue {queue}: {problem}")]
    Queue {
        /// The device's address.
        device: String,
        /// The queue's index.
        queue: u16,
        /// What is wrong.
        problem: String,
    },
    /// The packet pool does not suit the receive rings.
    #[error("{device}: the packet pool has {slots} slots of {data_room} bytes: {problem}")]
    Pool {
        /// The device's address.
        device: String,
        /// Number of slots in the pool.
        slots: usize,
        /// Bytes for data in a slot.
        data_room: u16,
        /// What is needed.
        problem: String,
    },
    /// The peer of a vhost-user socket cannot be reached, or communication with it failed.
    #[error("{device}: {step}: {cause}")]
    Peer {
        /// The device's address.
        device: String,
        /// The step that failed.
        step: &'static str,
        /// Why it failed and what to do about it.
        cause: String,
    },
    /// No back end has connected to this socket yet. This is not a failure: the port starts as soon as one connects.
    #[error("{device}: no vhost-user back end has connected yet; start it, as the client of this socket")]
    NoPeer {
        /// The device's address.
        device: String,
    },
    /// The device did not reach the expected state in time.
    #[error("{device}: gave up waiting for {waiting_for} after {waited:?}; open the device again to reset it")]
    Timeout {
        /// The device's address.
        device: String,
        /// What the driver waited for.
        waiting_for: &'static str,
        /// How long the driver waited.
        waited: Duration,
    },
    /// The operation was cancelled by [`device::TimeLimit::cancel`].
    #[error("{device}: interrupted while waiting for {waiting_for}")]
    Interrupted {
        /// The device's address.
        device: String,
        /// What the driver waited for.
        waiting_for: &'static str,
    },
    /// The thread that watches the device has panicked, so a device that goes away is not brought up again.
    #[error("{device}: the thread that watches it has panicked, as standard error says; close it and open it again")]
    Unwatched {
        /// The device's address.
        device: String,
    },
    /// The device refused a command of the control queue (Virtio 1.2, section 5.1.6.5).
    #[error("{device}: the device refused to {command}")]
    Refused {
        /// The device's address.
        device: String,
        /// What the command was to do.
        command: &'static str,
    },
    /// The device no longer answers.
    #[error("{device}: gone: {symptom}")]
    Gone {
        /// The device's address.
        device: String,
        /// What showed that it is gone.
        symptom: &'static str,
    },
    /// Access to the device failed.
    #[error(transparent)]
    Device(#[from] device::Error),
}

impl Error {
    /// Returns the error for a device that lacks what is needed, or does not keep to the specification.
    pub(crate) fn negotiation(device: &str, problem: impl Into<String>) -> Self {
        Self::Negotiation { device: device.to_owned(), problem: problem.into() }
    }

    /// Returns the error for a wait that has ended.
    pub(crate) fn expired(device: &str, waiting_for: &'static str, expired: Expired) -> Self {
        let device = device.to_owned();
        match expired {
            Expired::TimedOut { total } => Self::Timeout { device, waiting_for, waited: total },
            Expired::Cancelled => Self::Interrupted { device, waiting_for },
        }
    }
}

impl PortError for Error {
    fn is_usage(&self) -> bool {
        matches!(self, Self::Config(_))
    }
}
