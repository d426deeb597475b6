//! Errors of these drivers and their devices.

use device::PciIds;
use ethdev::{Cause, ConfigError, PortError, Unsupported};
use std::time::Duration;

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of a driver: the object, the cause and the next step.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The driver does not support the device.
    #[error("{ids} is {what}")]
    UnknownDevice {
        /// The device's ids.
        ids: PciIds,
        /// What it is and why it is refused.
        what: String,
    },
    /// A setting is outside its range, or settings contradict each other.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The device does not support the operation.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The device did not reach the expected state in time.
    #[error(
        "{device}: gave up waiting for {waiting_for}: {register} reads {last:#010x} after {waited:?}; \
         reset the device (open it again), and if that does not help power-cycle the host"
    )]
    Timeout {
        /// The device's address.
        device: String,
        /// The register that was polled.
        register: &'static str,
        /// How long the driver waited.
        waited: Duration,
        /// Its last value.
        last: u32,
        /// What the driver waited for.
        waiting_for: &'static str,
    },
    /// The operation took longer in all than its limit ([`ethdev::PortConfig::time_limit`]), or was cancelled.
    #[error(
        "{device}: gave up waiting for {waiting_for}: {expired}; try again, or allow more time (PortConfig::time_limit)"
    )]
    Expired {
        /// The device's address.
        device: String,
        /// What the driver waited for.
        waiting_for: &'static str,
        /// Which of the two it was.
        expired: device::Expired,
    },
    /// The device no longer answers: every register reads all ones.
    #[error(
        "{device}: gone: {register} and STATUS read all ones; the card was removed, lost power or fell off the bus: \
         see the kernel log, re-seat it or rescan the bus"
    )]
    Gone {
        /// The device's address.
        device: String,
        /// The register whose read revealed it.
        register: &'static str,
    },
    /// The content of the EEPROM, or what it should have loaded into the device, is unusable.
    #[error("{device}: EEPROM: {problem}")]
    Eeprom {
        /// The device's address.
        device: String,
        /// What is wrong and what to do about it.
        problem: String,
    },
    /// The PHY of a copper card does not answer, or does not do what it is asked.
    #[error("{device}: PHY: {problem}")]
    Phy {
        /// The device's address.
        device: String,
        /// What is wrong and what to do about it.
        problem: String,
    },
    /// The physical function behind a virtual one was reset, or its driver has lost track of this one.
    #[error("{device}: the physical function was reset, or has lost track of this one; open it again")]
    Lost {
        /// The device's address.
        device: String,
    },
    /// The physical function did not do its part of an exchange in time. Later exchanges fail too, until a reset.
    #[error(
        "{device}: the physical function does not answer ({waiting_for}, after {waited:?}); \
         look whether its interface is up on the host, and open this one again"
    )]
    Silent {
        /// The device's address.
        device: String,
        /// What was waited for.
        waiting_for: &'static str,
        /// How long.
        waited: Duration,
    },
    /// The physical function has begun a reset and has not ended it, as if its driver had gone. Later exchanges fail too, until it has and
    /// this function is reset.
    #[error(
        "{device}: the physical function resets, and has not come back after {waited:?}; \
         look whether its driver runs on the host, and open this one again"
    )]
    Away {
        /// The device's address.
        device: String,
        /// How long its end was waited for.
        waited: Duration,
    },
    /// The physical function does not grant what was asked for.
    #[error(
        "{device}: the physical function refuses to {what}; ask the host's administrator (ip link set … vf N trust on, and its MTU)"
    )]
    Refused {
        /// The device's address.
        device: String,
        /// What was asked for.
        what: &'static str,
    },
    /// What the physical function answers has no meaning. Later exchanges fail too, until a reset.
    #[error(
        "{device}: the physical function was asked to {what}, and its answer means nothing: {word:#010x}; open this one again"
    )]
    Nonsense {
        /// The device's address.
        device: String,
        /// What was asked for.
        what: &'static str,
        /// A word of the answer.
        word: u32,
    },
    /// The packet pool does not suit the receive rings.
    #[error(
        "{device}: the packet pool has {slots} slots of {data_room} bytes, and a receive ring wants {ring} free slots \
         of 1024 bytes or more: make the pool larger or the ring smaller"
    )]
    Pool {
        /// The device's address.
        device: String,
        /// Number of slots in the pool.
        slots: usize,
        /// Number of slots that a receive ring needs: its descriptors and a burst.
        ring: usize,
        /// Bytes for data in a slot.
        data_room: u16,
    },
    /// Access to the device failed.
    #[error(transparent)]
    Device(#[from] device::Error),
}

impl PortError for Error {
    fn is_usage(&self) -> bool {
        matches!(self, Self::Config(_))
    }

    fn known_cause(&self) -> Option<Cause> {
        match self {
            Self::Gone { .. } => Some(Cause::Gone),
            Self::Silent { .. } => Some(Cause::PfSilent),
            Self::Away { .. } => Some(Cause::PfAway),
            Self::Refused { .. } => Some(Cause::PfRefused),
            Self::Lost { .. } => Some(Cause::PfReset),
            Self::Nonsense { .. } => Some(Cause::PfNonsense),
            _ => None,
        }
    }
}
