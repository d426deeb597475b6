//! Why a device cannot be opened or used.

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error: the object, the cause and the next step, in one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Not an address.
    #[error(
        "\"{text}\": {cause}; write a PCI address (0000:03:00.0 or 03:00.0), soft:NAME?key=value&... for a software NIC, \
         vfio-user:PATH for a device behind a socket, or vhost-user:PATH (with ?server to listen) for a virtual switch's port"
    )]
    Address {
        /// The text.
        text: String,
        /// What is wrong with it.
        cause: &'static str,
    },
    /// There is no driver for the device.
    #[error(
        "{address}: {what}; choose an 82599, X520, X540, X550 or virtio-net device (fwd devices lists what there is)"
    )]
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
    /// Access to the device failed.
    #[error(transparent)]
    Device(#[from] device::Error),
    /// The driver refused a setting.
    #[error("{address}: {source}")]
    Open {
        /// The address.
        address: String,
        /// What the driver says.
        source: DriverError,
    },
    /// The device does not work, or the driver refuses it.
    #[error(transparent)]
    Driver(DriverError),
    /// The kernel wants the device back and waits for it.
    #[error("{device}: the kernel asked for it back, to unbind or remove it, and waits until it is closed")]
    Released {
        /// The device.
        device: String,
    },
    /// The device reported an error after which nothing it does can be trusted.
    #[error("{device}: {what}; close it, look at what the kernel says (dmesg), and open it again")]
    Broken {
        /// The device.
        device: String,
        /// What it reported.
        what: &'static str,
    },
    /// The software NIC refused.
    #[cfg(feature = "soft")]
    #[error(transparent)]
    Soft(#[from] softnic::Error),
}

impl Error {
    /// Whether it is about what was asked for, and not about this host or the device.
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
}

/// What a driver says.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
#[non_exhaustive]
pub enum DriverError {
    /// The driver of the 82599 family.
    Ixgbe(#[from] ixgbe::Error),
    /// The driver of virtio-net devices.
    Virtio(#[from] virtio::Error),
}

impl DriverError {
    fn is_usage(&self) -> bool {
        matches!(self, Self::Ixgbe(ixgbe::Error::Config { .. }) | Self::Virtio(virtio::Error::Config { .. }))
    }
}
