//! Traits of an opened device, as drivers use them.

use crate::{Bar, ConfigSpace, Deadline, DmaDomain, Result};
use std::fmt;
use std::os::fd::OwnedFd;

/// The identity of a PCI function (configuration space offsets 0x00, 0x08 and 0x2C).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PciIds {
    /// Vendor id; 0x8086 is Intel.
    pub vendor: u16,
    /// Device id.
    pub device: u16,
    /// Class code, 24 bits: 0x020000 is an Ethernet controller.
    pub class: u32,
    /// Revision id.
    pub revision: u8,
}

impl fmt::Display for PciIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:04x}", self.vendor, self.device)
    }
}

/// One opened device. As long as the value exists, nothing else in this process can open the device.
///
/// # Safety
///
/// The memory safety of drivers depends on these promises of an implementation:
/// * `bar` is the register region of a device with the identity that `ids` returns;
/// * while a successful `set_bus_master(false)` is in force, and after a successful `reset` until bus mastering is
///   set again, the device makes no memory access;
/// * `dma` is the address space of this device: memory that is not mapped there it cannot reach (with an IOMMU), or has
///   not been told about (without one).
pub unsafe trait Device: Send + Sync + 'static {
    /// The register window, usually [`crate::MappedBar`].
    type Bar: Bar;

    /// Returns the address by which the user named the device, for messages.
    fn name(&self) -> &str;

    /// Returns vendor, device, class and revision.
    fn ids(&self) -> PciIds;

    /// Returns region 0, the registers.
    fn bar(&self) -> &Self::Bar;

    /// Returns the device's DMA address space.
    fn dma(&self) -> &DmaDomain;

    /// Sets or clears bus mastering (PCI command register, bit 2). A driver that has unmapped memory resets the device
    /// before it sets bus mastering again: if no IOMMU guards memory, a device that still knew the addresses would use
    /// them.
    ///
    /// # Errors
    ///
    /// If configuration space cannot be written, or does not read back as written.
    fn set_bus_master(&self, on: bool) -> Result<()>;

    /// Resets the function (FLR or what the platform offers). Leaves bus mastering off.
    ///
    /// # Errors
    ///
    /// If the device has no reset method or is gone.
    fn reset(&self) -> Result<()>;

    /// Sets the deadline of the operation under way: until it is set again, everything that this device is asked to do
    /// ends by then, if necessary with an error. With `None`, each call has the access path's own limit. By default it
    /// does nothing, for access paths that cannot stall.
    fn set_deadline(&self, deadline: Option<Deadline>) {
        let _ = deadline;
    }

    /// Returns the deadline that was set last; by default `None`. A device that was opened within a deadline returns
    /// that one, so that a driver continues with it.
    fn deadline(&self) -> Option<Deadline> {
        None
    }

    /// Returns whether requests of the device to memory or the host are under way without an answer (transactions pending, PCI Express
    /// base specification 7.5.3.5). `None`, the default, if the access path does not show it.
    fn transactions_pending(&self) -> Option<bool> {
        None
    }

    /// Returns the NUMA node that the device is attached to; `None`, the default, if it is not known.
    fn numa_node(&self) -> Option<u32> {
        None
    }

    /// Enables `vectors` MSI-X vectors and returns a non-blocking eventfd for each, in order. Usually called through
    /// [`crate::Interrupts::enable`].
    ///
    /// # Errors
    ///
    /// If the device has fewer vectors, or the access path has no interrupts.
    fn enable_msix(&self, vectors: u16) -> Result<Vec<OwnedFd>>;
}

/// A device whose driver reads configuration space and uses regions other than the first, such as a virtio-pci device.
///
/// # Safety
///
/// That of [`Device`], and: configuration space and regions are those of the device with these ids.
pub unsafe trait PciFunction: Device {
    /// Returns the configuration space.
    fn config(&self) -> &ConfigSpace;

    /// Returns base address region `index`, 0 to 5. I/O ports, and parts that cannot be mapped, are accessed by system
    /// calls.
    ///
    /// # Errors
    ///
    /// If the device has no such region, or it cannot be accessed.
    fn region(&self, index: u8) -> Result<Self::Bar>;

    /// Returns whether an IOMMU translates the addresses that the device uses.
    fn has_iommu(&self) -> bool;
}
