//! Devices through VFIO: a group and a type 1 container (Linux `Documentation/driver-api/vfio.rst`).
//!
//! The IOMMU lets the device reach the memory that is mapped for it and no other. VFIO's mode without an IOMMU is
//! refused, as it gives up exactly that; see [`crate::SysfsDevice`] for a device on a host without one.

use crate::claim::Claim;
use crate::region_file::RegionFile;
use crate::{
    ConfigSpace, Device, DmaDomain, Error, Host, MappedBar, PciAddress, PciDevice, PciFunction, PciIds, Result,
    StatusKind,
};
use memmap2::{Advice, MmapOptions};
use rustix::event::EventfdFlags;
use std::any::Any;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

mod container;
mod hint;
mod info;
mod ioctl;

use container::{Group, VfioMapper};
use hint::Operation;
pub(crate) use info::RegionInfo;

/// A PCI function opened through VFIO.
///
/// ```no_run
/// use device::{Device, DmaMemory, Host, MemoryRequest, VfioDevice};
///
/// let nic = VfioDevice::open(&Host::system(), "03:00.0".parse()?)?;
/// let memory = DmaMemory::allocate(&MemoryRequest { bytes: 2 << 20, ..MemoryRequest::default() })?;
/// let translation = nic.dma().map(&memory)?;
/// println!("{} sees the memory at {:#x}", nic.name(), translation.iova(memory.base().as_ptr()));
/// # Ok::<(), device::Error>(())
/// ```
///
/// Dropping it switches interrupts and bus mastering off, then removes the DMA mappings, then closes the device, which
/// resets it.
#[derive(Debug)]
pub struct VfioDevice {
    name: String,
    ids: PciIds,
    pci: PciDevice,
    resettable: bool,
    config: ConfigSpace,
    msix: Mutex<bool>,
    bar: MappedBar,
    // From here on the order of the fields matters: unmap, close the device, close the group, give the claim back.
    dma: DmaDomain,
    file: Arc<File>,
    _group: Arc<Group>,
    _claim: Claim,
}

/// An event that VFIO can report about a device (`VFIO_PCI_ERR_IRQ_INDEX`, `VFIO_PCI_REQ_IRQ_INDEX`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum VfioEvent {
    /// The device has reported an uncorrectable error: stop using it.
    Error = 3,
    /// The kernel wants the device back (unbind, removal) and waits for it: drop it soon.
    Release = 4,
}

impl VfioDevice {
    /// Opens the function at `address`. Its registers can be accessed at once; bus mastering is off.
    ///
    /// # Errors
    ///
    /// If the function cannot be used through VFIO as it is; the message says why and what to do.
    pub fn open(host: &Host, address: PciAddress) -> Result<Self> {
        let claim = Claim::new(address)?;
        let pci = host.pci_device(address)?;
        let name = address.to_string();
        let status = host.status(&pci);
        let (StatusKind::Ready, Some(number)) = (status.kind, pci.iommu_group) else {
            return Err(Error::unusable(name, status.reason, status.next_step));
        };
        let group = Group::open(host, number)?;
        let file = Arc::new(group.device(&name)?);
        let info = ioctl::device_info(&file).map_err(|source| Operation::AskDevice.failed(&name, source))?;
        if info.flags & ioctl::DEVICE_PCI == 0 || info.num_regions <= CONFIG_REGION {
            return Err(Error::unusable(name, "VFIO does not offer it as a PCI device", "bind it to vfio-pci"));
        }
        let region = region_info(&file, &name, CONFIG_REGION)?;
        let config = ConfigSpace::new(Arc::clone(&file), region.offset, region.size, &name);
        // Registers answer only while memory decoding is on: otherwise an access to the mapping is a bus error.
        config.set_bus_master(false)?;
        config.set_memory(true)?;
        // Of the device that was opened. What sysfs says could be of another, if `host` is a made tree.
        let ids = config.ids()?;
        // Some devices have their registers in other regions: see `region`.
        let bar = if pci.region(0).is_some() { map_region(&file, &name, 0)? } else { MappedBar::empty() };
        let dma = DmaDomain::new(Box::new(VfioMapper::new(Arc::clone(&group))));
        tracing::info!("{name}: {ids} opened through VFIO group {number}");
        Ok(Self {
            name,
            ids,
            pci,
            resettable: info.flags & ioctl::DEVICE_RESET != 0,
            config,
            msix: Mutex::new(false),
            bar,
            dma,
            file,
            _group: group,
            _claim: claim,
        })
    }

    /// Returns an eventfd that fires when `event` happens. A later call for the same event replaces the earlier
    /// eventfd.
    ///
    /// # Errors
    ///
    /// If this device does not report such events.
    pub fn watch(&self, event: VfioEvent) -> Result<OwnedFd> {
        let mut eventfds = self.set_irqs(event as u32, 1)?;
        eventfds.pop().ok_or_else(|| Error::unusable(&self.name, "no eventfd was made", ""))
    }

    /// Connects the first `count` interrupts of an index to new eventfds.
    fn set_irqs(&self, index: u32, count: u16) -> Result<Vec<OwnedFd>> {
        let failed = |source| Operation::SetIrqs.failed(&self.name, source);
        let info = ioctl::irq_info(&self.file, index).map_err(failed)?;
        if info.count < u32::from(count) || info.flags & ioctl::IRQ_EVENTFD == 0 {
            let cause = format!("{count} interrupts are wanted, and it has {}", info.count);
            return Err(Error::unusable(&self.name, cause, "use fewer queues or poll"));
        }
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let eventfds: Vec<OwnedFd> =
            (0..count).map(|_| rustix::event::eventfd(0, flags)).collect::<Result<_, _>>().map_err(|errno| {
                Error::system("make an eventfd for", &self.name, errno, "raise the limit of open files: ulimit -n")
            })?;
        let raw: Vec<_> = eventfds.iter().map(AsRawFd::as_raw_fd).collect();
        match ioctl::set_irqs(&self.file, index, &raw).map_err(failed)? {
            0 => Ok(eventfds),
            available => {
                let cause = format!("{count} interrupts are wanted, and the host has {available} left");
                Err(Error::unusable(&self.name, cause, "use fewer queues or poll"))
            }
        }
    }

    fn disable_msix(&self, enabled: &mut bool) -> Result<()> {
        if *enabled {
            ioctl::set_irqs(&self.file, MSIX, &[]).map_err(|source| Operation::SetIrqs.failed(&self.name, source))?;
            *enabled = false;
        }
        Ok(())
    }
}

// SAFETY: `bar` is region 0 of the function whose configuration space `ids` was read from: both are parts of one VFIO file.
// Bus mastering is read back after every change (the read waits for what the device wrote before), and
// `reset` switches it off first and leaves it off. `dma` is the container that this function's group is attached to, and
// the IOMMU translates for it.
unsafe impl Device for VfioDevice {
    type Bar = MappedBar;

    fn name(&self) -> &str {
        &self.name
    }

    fn ids(&self) -> PciIds {
        self.ids
    }

    fn bar(&self) -> &MappedBar {
        &self.bar
    }

    fn dma(&self) -> &DmaDomain {
        &self.dma
    }

    fn set_bus_master(&self, on: bool) -> Result<()> {
        self.config.set_bus_master(on)
    }

    fn reset(&self) -> Result<()> {
        if !self.resettable {
            return Err(Operation::Reset.failed(&self.name, std::io::Error::from_raw_os_error(libc::EINVAL)));
        }
        // The kernel puts the command register back as it was, so what is off before stays off.
        self.config.set_bus_master(false)?;
        let mut tries = 1..=10;
        while let Err(source) = ioctl::reset(&self.file) {
            if source.raw_os_error() != Some(libc::EAGAIN) || tries.next().is_none() {
                return Err(Operation::Reset.failed(&self.name, source));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.config.set_bus_master(false)?;
        self.config.set_memory(true)
    }

    fn transactions_pending(&self) -> Option<bool> {
        self.config.transactions_pending()
    }

    fn numa_node(&self) -> Option<u32> {
        self.pci.numa_node
    }

    fn enable_msix(&self, vectors: u16) -> Result<Vec<OwnedFd>> {
        let mut enabled = self.msix.lock().unwrap_or_else(PoisonError::into_inner);
        // Some kernels cannot change the number of vectors while MSI-X is on.
        self.disable_msix(&mut enabled)?;
        if vectors == 0 {
            return Ok(Vec::new());
        }
        let eventfds = self.set_irqs(MSIX, vectors)?;
        *enabled = true;
        Ok(eventfds)
    }
}

// SAFETY: both are parts of the same file of VFIO as region 0.
unsafe impl PciFunction for VfioDevice {
    fn config(&self) -> &ConfigSpace {
        &self.config
    }

    fn region(&self, index: u8) -> Result<MappedBar> {
        let Some(region) = self.pci.region(index) else { return Err(no_region(&self.name, u32::from(index))) };
        if region.io {
            self.config.set_io(true)?;
        }
        map_region(&self.file, &self.name, u32::from(index))
    }

    fn has_iommu(&self) -> bool {
        true
    }
}

impl Drop for VfioDevice {
    fn drop(&mut self) {
        let mut enabled = *self.msix.get_mut().unwrap_or_else(PoisonError::into_inner);
        let quiet = self.config.set_bus_master(false);
        if let Err(error) = self.disable_msix(&mut enabled).and(quiet) {
            // Closing the device resets it, and the IOMMU stops it where the mappings end.
            tracing::warn!("{} was not left quiet: {error}", self.name);
        }
    }
}

const CONFIG_REGION: u32 = 7;
const MSIX: u32 = 2;

fn region_info(file: &File, name: &str, index: u32) -> Result<RegionInfo> {
    let answer = ioctl::region_info(file, index).map_err(|source| Operation::AskDevice.failed(name, source))?;
    RegionInfo::parse(&answer).ok_or_else(|| {
        let cause = format!("the kernel's answer about region {index} does not hold together");
        Error::unusable(name, cause, "please report this")
    })
}

fn no_region(name: &str, index: u32) -> Error {
    Error::unusable(name, format!("it has no base address region {index}"), "is this the right device?")
}

fn map_region(file: &Arc<File>, name: &str, index: u32) -> Result<MappedBar> {
    let info = region_info(file, name, index)?;
    if info.size == 0 {
        return Err(no_region(name, index));
    }
    let unfit = || Error::unusable(name, format!("region {index} is too large to map"), "");
    let size = usize::try_from(info.size).map_err(|_| unfit())?;
    let len = usize::try_from(info.mappable_from_start()).map_err(|_| unfit())?;
    let bar = if len == 0 {
        MappedBar::empty()
    } else {
        let failed = |source| Operation::MapRegion.failed(name, source);
        let map = MmapOptions::new().offset(info.offset).len(len).map_raw(&**file).map_err(failed)?;
        // A child of fork has no business with the registers.
        map.advise(Advice::DontFork).map_err(failed)?;
        let base = NonNull::new(map.as_mut_ptr().cast::<u32>()).ok_or_else(unfit)?;
        let owner: Arc<dyn Any + Send + Sync> = Arc::new((map, Arc::clone(file)));
        // SAFETY: `base` is the start of a shared, page-aligned mapping of `len` bytes, which lives in `owner`.
        unsafe { MappedBar::new(base, len, owner) }
    };
    if len >= size {
        return Ok(bar);
    }
    tracing::debug!("{name}: {len} of {size} bytes of region {index} are mapped, the rest takes system calls");
    Ok(bar.with_rest(Box::new(RegionFile { file: Arc::clone(file), offset: info.offset, size })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bar as _;
    use std::os::unix::fs::FileExt as _;

    #[test]
    fn registers_beyond_the_mapping_are_reached_through_the_file() {
        let file = Arc::new(tempfile::tempfile().unwrap());
        file.set_len(0x3000).unwrap();
        file.write_all_at(&0x1234_5678_u32.to_le_bytes(), 0x1000 + 0x1004).unwrap();
        let map = MmapOptions::new().offset(0x1000).len(0x1000).map_raw(&*file).unwrap();
        let base = NonNull::new(map.as_mut_ptr().cast::<u32>()).unwrap();
        // SAFETY: a page-aligned shared mapping of this length, alive in the owner.
        let bar = unsafe { MappedBar::new(base, 0x1000, Arc::new(map)) };
        let bar = bar.with_rest(Box::new(RegionFile { file: Arc::clone(&file), offset: 0x1000, size: 0x1800 }));

        assert_eq!(bar.size(), 0x1800);
        assert_eq!(bar.read32(0x1004), 0x1234_5678);
        // SAFETY: no device, only a file.
        unsafe { bar.write32(0x0FFC, 0xAAAA_AAAA) };
        // SAFETY: as above.
        unsafe { bar.write32(0x1000, 0xBBBB_BBBB) };
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, 0x1FFC).unwrap();
        assert_eq!(bytes, [0xAA, 0xAA, 0xAA, 0xAA, 0xBB, 0xBB, 0xBB, 0xBB]);
        assert_eq!((bar.read32(0x1800), bar.read32(0x1002), bar.read32(u32::MAX - 3)), (u32::MAX, u32::MAX, u32::MAX));
        // SAFETY: as above.
        unsafe { bar.write32(0x1800, 1) };
        file.read_exact_at(&mut bytes, 0x2800).unwrap();
        assert_eq!(bytes, [0; 8], "a write outside is lost");

        // Registers of other widths, on both sides of where the mapping ends.
        for offset in [0x0FF0, 0x1010] {
            // SAFETY: as above.
            unsafe { bar.write16(offset, 0x1234) };
            // SAFETY: as above.
            unsafe { bar.write8(offset + 3, 0x56) };
            assert_eq!((bar.read32(offset), bar.read16(offset), bar.read8(offset + 3)), (0x5600_1234, 0x1234, 0x56));
            assert_eq!(bar.read16(offset + 1), u16::MAX, "not aligned");
        }
        assert_eq!((bar.read16(0x17FE), bar.read8(0x17FF)), (0, 0), "the last of the region");
        assert_eq!((bar.read16(0x1800), bar.read8(0x1800)), (u16::MAX, u8::MAX), "beyond it");
    }

    #[test]
    fn opening_what_is_not_ready_says_why() {
        let text = VfioDevice::open(&Host::at("/nowhere"), "fffe:00:00.0".parse().unwrap()).unwrap_err().to_string();
        assert!(text.contains("no PCI device at that address"), "{text}");
    }
}
