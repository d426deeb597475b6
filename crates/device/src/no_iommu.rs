//! A promise about a device that no IOMMU guards.

use crate::{Host, PciAddress, Result, SysfsDevice};

/// The caller's promise that a device may be used although nothing stops it from overwriting any memory of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoIommu(());

impl NoIommu {
    /// Makes that promise for the devices opened with it.
    ///
    /// # Safety
    ///
    /// That of [`SysfsDevice::open_without_iommu`]: these devices work as their datasheet says, and the host does not
    /// move huge pages while they are open.
    #[must_use]
    pub const unsafe fn accepted() -> Self {
        Self(())
    }

    /// Opens the function at `address` like [`SysfsDevice::open_without_iommu`].
    ///
    /// # Errors
    ///
    /// Those of [`SysfsDevice::open_without_iommu`].
    pub fn open(self, host: &Host, address: PciAddress) -> Result<SysfsDevice> {
        // SAFETY: promised by whoever made `self`.
        unsafe { SysfsDevice::open_without_iommu(host, address) }
    }
}
