//! What can go wrong between this driver and its device.

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
    /// An operation that the device, or this driver, does not know.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The device lacks something that this driver cannot do without, or does not accept what was negotiated.
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
        /// Slots of the pool.
        slots: usize,
        /// Bytes for data in a slot.
        data_room: u16,
        /// What is wanted.
        problem: String,
    },
    /// The peer of a vhost-user socket cannot be reached, or the conversation with it failed.
    #[error("{device}: {step}: {cause}")]
    Peer {
        /// The device's address.
        device: String,
        /// What was being done.
        step: &'static str,
        /// Why it failed and what to do.
        cause: String,
    },
    /// Nobody has connected to this socket yet. Not a failure: the port starts as soon as somebody does.
    #[error("{device}: no vhost-user back end has connected yet; start it, as the client of this socket")]
    NoPeer {
        /// The device's address.
        device: String,
    },
    /// The device did not do what was waited for.
    #[error("{device}: gave up waiting for {waiting_for} after {waited:?}; open the device again to reset it")]
    Timeout {
        /// The device's address.
        device: String,
        /// What was expected of it.
        waiting_for: &'static str,
        /// How long.
        waited: Duration,
    },
    /// The operation was ended by [`device::TimeLimit::cancel`].
    #[error("{device}: interrupted while waiting for {waiting_for}")]
    Interrupted {
        /// The device's address.
        device: String,
        /// What was expected of it.
        waiting_for: &'static str,
    },
    /// The thread that watches the device has panicked: a device that goes away does not come back any more.
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
        /// What was asked of it.
        command: &'static str,
    },
    /// The device no longer answers.
    #[error("{device}: gone: {symptom}")]
    Gone {
        /// The device's address.
        device: String,
        /// How it was noticed.
        symptom: &'static str,
    },
    /// Device access failed.
    #[error(transparent)]
    Device(#[from] device::Error),
}

impl Error {
    /// The end of a wait.
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
