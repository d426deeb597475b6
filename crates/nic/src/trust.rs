//! Devices and peers that somebody has to vouch for: the one place of this crate with unsafe code.
#![allow(unsafe_code, reason = "the user's word is taken here")]

use crate::{Address, Error, Result};
use device::{Host, PciAddress, SysfsDevice, TrustedPeer};

/// Somebody's word that a device may be used although nothing stops it from overwriting any memory of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoIommu(());

impl NoIommu {
    /// Gives that word for the devices opened with it.
    ///
    /// # Safety
    ///
    /// As [`SysfsDevice::open_without_iommu`]: these devices work as their datasheet says, and the host does not move
    /// huge pages while they are open.
    #[must_use]
    pub unsafe fn accepted() -> Self {
        Self(())
    }

    pub(crate) fn open(self, host: &Host, address: PciAddress) -> Result<SysfsDevice> {
        // SAFETY: promised by whoever made `self`.
        Ok(unsafe { SysfsDevice::open_without_iommu(host, address) }?)
    }
}

/// The word for the process behind `address`, or an error that says how to give it.
pub(crate) fn required(peer: Option<TrustedPeer>, address: &Address) -> Result<TrustedPeer> {
    peer.ok_or_else(|| Error::UntrustedPeer { address: address.to_string() })
}
