//! PCI devices that no IOMMU guards: the one place of this crate with unsafe code.
#![allow(unsafe_code, reason = "the user's word is taken here")]

use crate::Result;
use device::{Host, PciAddress, SysfsDevice};

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
