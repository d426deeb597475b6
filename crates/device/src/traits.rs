//! The surface a driver sees of an opened device.

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

/// One opened device. Holding the value is holding the device: nobody else in this process can open it meanwhile.
///
/// # Safety
///
/// Drivers build memory safety on an implementation's word:
/// * `bar` is the register region of a device with the identity that `ids` returns;
/// * while a successful `set_bus_master(false)` is in force, and after a successful `reset` until bus mastering is
///   set again, the device makes no memory access;
/// * `dma` is the address space of this device: what is not mapped there it cannot reach (with an IOMMU), or has
///   not been told of (without one).
pub unsafe trait Device: Send + Sync + 'static {
    /// The register window, usually [`crate::MappedBar`].
    type Bar: Bar;

    /// The address by which the user named it, for messages.
    fn name(&self) -> &str;

    /// Vendor, device, class and revision.
    fn ids(&self) -> PciIds;

    /// Region 0, the registers.
    fn bar(&self) -> &Self::Bar;

    /// The device's DMA address space.
    fn dma(&self) -> &DmaDomain;

    /// Sets or clears bus mastering (PCI command register, bit 2). A driver that has unmapped memory resets the device before
    /// it sets bus mastering again: where no IOMMU guards memory, a device that still knew the addresses would use them.
    ///
    /// # Errors
    ///
    /// When configuration space cannot be written, or does not read back as written.
    fn set_bus_master(&self, on: bool) -> Result<()>;

    /// Resets the function (FLR or what the platform offers). Leaves bus mastering off.
    ///
    /// # Errors
    ///
    /// When the device has no reset method or is gone.
    fn reset(&self) -> Result<()>;

    /// Sets the end of the operation that is under way: until it is set anew, everything that this device is asked to do
    /// ends by then, or with an error. With `None` each call has the access path's own limit. A path that cannot stall has
    /// nothing to do here.
    fn set_deadline(&self, deadline: Option<Deadline>) {
        let _ = deadline;
    }

    /// The deadline that was set last. A device that was opened within one returns it, so that a driver goes on with it.
    fn deadline(&self) -> Option<Deadline> {
        None
    }

    /// The NUMA node it is attached to, if known.
    fn numa_node(&self) -> Option<u32> {
        None
    }

    /// Enables `vectors` MSI-X vectors and returns a non-blocking eventfd for each, in order. Usually called through
    /// [`crate::Interrupts::enable`].
    ///
    /// # Errors
    ///
    /// When the device has fewer vectors or the access path has no interrupts.
    fn enable_msix(&self, vectors: u16) -> Result<Vec<OwnedFd>>;
}

/// A device of which a driver reads configuration space and uses other regions than the first, as virtio-pci's.
///
/// # Safety
///
/// As of [`Device`]: configuration space and regions are those of the device with these ids.
pub unsafe trait PciFunction: Device {
    /// Configuration space.
    fn config(&self) -> &ConfigSpace;

    /// Base address region `index`, 0 to 5. I/O ports, and parts that cannot be mapped, are reached by system calls.
    ///
    /// # Errors
    ///
    /// When the device has no such region, or it cannot be reached.
    fn region(&self, index: u8) -> Result<Self::Bar>;

    /// Whether an IOMMU translates the addresses that the device uses.
    fn has_iommu(&self) -> bool;
}
