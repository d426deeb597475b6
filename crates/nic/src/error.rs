//! Why a device cannot be opened or used.

use crate::DriverError;
use ethdev::{Cause, PortError, Unsupported};

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error: the object, the cause and the next step, in one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is not the address of a device.
    #[error(
        "\"{text}\": {cause}; write a PCI address (0000:03:00.0 or 03:00.0), soft:NAME?key=value&... for a software NIC, \
         vfio-user:PATH for a device behind a socket, vhost-user:PATH (with ?server to listen) for a virtual switch's port, or null:NAME \
         for none"
    )]
    Address {
        /// The text.
        text: String,
        /// What is wrong with it.
        cause: &'static str,
    },
    /// There is no driver for the device.
    #[error("{address}: {what}; choose a device for which fwd devices names a driver")]
    NoDriver {
        /// The address.
        address: String,
        /// What the device is, and why it is refused.
        what: String,
    },
    /// This build has no software NICs.
    #[error("{address}: built without software NICs; build with the feature \"soft\"")]
    NoSoft {
        /// The address.
        address: String,
    },
    /// The process behind the socket would share packet memory, and [`crate::PortConfig::trusted_peer`] does not vouch
    /// for it.
    #[error(
        "{address}: the process behind this socket would share packet memory, and nobody has vouched for it; set \
         PortConfig::trusted_peer to TrustedPeer::vouched_for() if it is one you trust"
    )]
    UntrustedPeer {
        /// The address.
        address: String,
    },
    /// The time for opening the device has run out, or the operation was cancelled ([`crate::TimeLimit`]).
    #[error("cannot open {address}: {expired}; try again, or allow more time (PortConfig::time_limit)")]
    Expired {
        /// The address.
        address: String,
        /// Which of the two it was.
        expired: device::Expired,
    },
    /// Access to the device failed.
    #[error(transparent)]
    Device(#[from] device::Error),
    /// The driver refused a setting.
    #[error("{address}: {source}")]
    Open {
        /// The address.
        address: String,
        /// The error of the driver.
        source: DriverError,
    },
    /// The device does not support the operation.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The device does not work, or the driver refuses it.
    #[error(transparent)]
    Driver(DriverError),
    /// The kernel has requested the device back and waits until it is closed.
    #[error("{device}: the kernel asked for it back, to unbind or remove it, and waits until it is closed")]
    Released {
        /// The device.
        device: String,
    },
    /// The device reported an error after which it can no longer be trusted.
    #[error("{device}: {what}; close it, look at what the kernel says (dmesg), and open it again")]
    Broken {
        /// The device.
        device: String,
        /// What it reported.
        what: &'static str,
    },
    /// The process that serves the device has ended, or no longer answers.
    #[error(
        "{device}: gone: the process that serves this socket has ended or no longer answers; start it again, then open the device again"
    )]
    PeerGone {
        /// The device.
        device: String,
    },
    /// The wire of a software NIC has lost frames: sent frames are missing in their capture, a capture is damaged, or a
    /// TAP interface was down or deleted.
    #[cfg(feature = "soft")]
    #[error("{device}: {source}")]
    Lost {
        /// The device.
        device: String,
        /// Names the file or the interface, the cause and the number of frames.
        source: softnic::WireError,
    },
    /// The software NIC reported an error.
    #[cfg(feature = "soft")]
    #[error(transparent)]
    Soft(#[from] softnic::Error),
}

impl Error {
    /// Returns whether the error is in what was requested, not in this host or the device.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Address { .. } | Self::NoSoft { .. } => true,
            Self::Open { source, .. } => source.is_usage(),
            #[cfg(feature = "soft")]
            Self::Soft(error) => matches!(
                error,
                softnic::Error::UnknownKey { .. } | softnic::Error::BadValue { .. } | softnic::Error::BadSpec { .. }
            ),
            _ => false,
        }
    }

    /// Returns why the operation has failed, if a program can make something of it.
    #[must_use]
    pub fn known_cause(&self) -> Option<Cause> {
        match self {
            Self::Open { source, .. } | Self::Driver(source) => source.known_cause(),
            Self::PeerGone { .. } => Some(Cause::Gone),
            _ => None,
        }
    }
}

impl PortError for Error {
    fn is_usage(&self) -> bool {
        Self::is_usage(self)
    }

    fn known_cause(&self) -> Option<Cause> {
        Self::known_cause(self)
    }
}
