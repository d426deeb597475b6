//! Somebody's word for a device that no IOMMU guards.

use crate::{Host, PciAddress, Result, SysfsDevice};

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
    pub const unsafe fn accepted() -> Self {
        Self(())
    }

    /// Opens the function at `address`, as [`SysfsDevice::open_without_iommu`] does.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn open(self, host: &Host, address: PciAddress) -> Result<SysfsDevice> {
        // SAFETY: promised by whoever made `self`.
        unsafe { SysfsDevice::open_without_iommu(host, address) }
    }
}
