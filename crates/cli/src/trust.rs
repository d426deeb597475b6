//! The promises that the command line makes: the one place of this crate with unsafe code.
#![allow(unsafe_code, reason = "the user's word is taken here")]

use nic::{NoIommu, TrustedPeer};

/// What `--unsafe-no-iommu` says.
pub(crate) fn no_iommu(given: bool) -> Option<NoIommu> {
    // SAFETY: whoever starts the program with this option vouches for the devices and the host, as its help and the
    // README say.
    given.then(|| unsafe { NoIommu::accepted() })
}

/// The word for the process behind a socket that is named at the command line.
pub(crate) fn named_peer() -> TrustedPeer {
    // SAFETY: whoever names a socket at the command line names the process that serves it as the device, and with it vouches
    // that this process keeps to the rings, as the README says of `vfio-user:` and `vhost-user:`.
    unsafe { TrustedPeer::vouched_for() }
}
