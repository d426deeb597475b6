//! Devices through sysfs, without an IOMMU (Linux `Documentation/PCI/sysfs-pci.rst`): `resource0`, `config`, `enable`,
//! `reset`. The device reaches any memory of the host, by physical address, so opening one is an unsafe function.

use crate::claim::Claim;
use crate::region_file::RegionFile;
use crate::{ConfigSpace, Device, DmaDomain, DmaMapper, DmaMemory, Error, Host, MappedBar};
use crate::{PciAddress, PciDevice, PciFunction, PciIds, Result, Translation};
use memmap2::{Advice, MmapOptions};
use rustix::fs::FlockOperation;
use std::any::Any;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A PCI function opened through sysfs, without an IOMMU in front of it.
///
/// Dropping it switches bus mastering off; where that cannot be confirmed, the DMA memory it knows is kept for ever.
#[derive(Debug)]
pub struct SysfsDevice {
    name: String,
    pci: PciDevice,
    host: Host,
    config: ConfigSpace,
    quiet: Arc<AtomicBool>,
    bar: MappedBar,
    // From here on the order of the fields matters: forget the memory, then let others have the device.
    dma: DmaDomain,
    _enabled: Enabled,
    _lock: Arc<File>,
    _claim: Claim,
}

impl SysfsDevice {
    /// Opens the function at `address`. Registers can be reached at once; bus mastering is off. Needs root.
    ///
    /// A function with an IOMMU group is refused: behind a translating IOMMU physical addresses lead nowhere, and in
    /// pass-through mode VFIO does the same work with protection.
    ///
    /// # Errors
    ///
    /// When the function has an IOMMU group or a driver, another process has it open through sysfs, or this process
    /// may not do it.
    ///
    /// # Safety
    ///
    /// Nothing stops this device from reading and writing any memory of the host. The caller vouches for it and for its
    /// driver, and for a host that does not move huge pages (no memory hot-unplug, no migration of this process's pages
    /// between NUMA nodes) while the device is open.
    pub unsafe fn open_without_iommu(host: &Host, address: PciAddress) -> Result<Self> {
        let claim = Claim::new(address)?;
        let pci = host.pci_device(address)?;
        refuse(&pci)?;
        let name = address.to_string();
        let lock = Arc::new(open(&pci, "config")?);
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|errno| {
            let hint = "another program has the device open through sysfs; end it";
            Error::system("lock", format!("{}/config", pci.path().display()), errno, hint)
        })?;
        let enabled = Enabled::new(host, &pci)?;
        let config = ConfigSpace::new(Arc::clone(&lock), 0, config_len(&lock)?, &name);
        config.set_bus_master(false)?;
        config.set_memory(true)?;
        // Nobody here answers an interrupt, and a line may be shared with a device whose driver would lose it then.
        if let Err(error) = config.disable_intx() {
            tracing::debug!("interrupts by line stay on: {error}");
        }
        // Some devices have their registers in other regions: see `region`.
        let bar = if pci.region(0).is_some() { open_region(&pci, 0)? } else { MappedBar::empty() };
        let quiet = Arc::new(AtomicBool::new(true));
        let dma = DmaDomain::new(Box::new(PhysicalMapper { quiet: Arc::clone(&quiet) }));
        tracing::warn!("{name}: {} opened without an IOMMU; it can reach all memory of this host", pci.ids);
        Ok(Self {
            name,
            pci,
            host: host.clone(),
            config,
            quiet,
            bar,
            dma,
            _enabled: enabled,
            _lock: lock,
            _claim: claim,
        })
    }
}

// SAFETY: `bar` is region 0 of the function whose ids sysfs gave: both are files of one folder. Bus mastering is read
// back after every change (the read waits for what the device wrote before), and `reset` switches it off first and leaves
// it off. `dma` hands out the addresses of exactly the memory that was mapped there, and nobody tells the device others.
unsafe impl Device for SysfsDevice {
    type Bar = MappedBar;

    fn name(&self) -> &str {
        &self.name
    }

    fn ids(&self) -> PciIds {
        self.pci.ids
    }

    fn bar(&self) -> &MappedBar {
        &self.bar
    }

    fn dma(&self) -> &DmaDomain {
        &self.dma
    }

    fn set_bus_master(&self, on: bool) -> Result<()> {
        // Counts as loud from before it may be, and as quiet once that is confirmed.
        self.quiet.store(false, Ordering::SeqCst);
        self.config.set_bus_master(on)?;
        self.quiet.store(!on, Ordering::SeqCst);
        Ok(())
    }

    fn reset(&self) -> Result<()> {
        self.set_bus_master(false)?;
        let file = self.pci.path().join("reset");
        if !file.exists() {
            let cause = "the kernel knows no way to reset it alone";
            return Err(Error::unusable(&self.name, cause, "reset it through its own registers"));
        }
        self.host.write(&file, "1")?;
        self.set_bus_master(false)?;
        self.config.set_memory(true)
    }

    fn numa_node(&self) -> Option<u32> {
        self.pci.numa_node
    }

    fn enable_msix(&self, _vectors: u16) -> Result<Vec<OwnedFd>> {
        let cause = "there are no interrupts on the path through sysfs";
        Err(Error::unusable(&self.name, cause, "poll, or use VFIO with an IOMMU"))
    }
}

// SAFETY: both are files of the same folder as region 0.
unsafe impl PciFunction for SysfsDevice {
    fn config(&self) -> &ConfigSpace {
        &self.config
    }

    fn region(&self, index: u8) -> Result<MappedBar> {
        let bar = open_region(&self.pci, index)?;
        if self.pci.region(index).is_some_and(|region| region.io) {
            self.config.set_io(true)?;
        }
        Ok(bar)
    }

    fn has_iommu(&self) -> bool {
        false
    }
}

impl Drop for SysfsDevice {
    fn drop(&mut self) {
        if let Err(error) = self.set_bus_master(false) {
            tracing::error!("{} may still write to memory: {error}", self.name);
        }
    }
}

/// The device is switched on: the kernel counts who wants it so.
#[derive(Debug)]
struct Enabled {
    host: Host,
    file: PathBuf,
}

impl Enabled {
    fn new(host: &Host, pci: &PciDevice) -> Result<Self> {
        let file = pci.path().join("enable");
        host.write(&file, "1")?;
        Ok(Self { host: host.clone(), file })
    }
}

impl Drop for Enabled {
    fn drop(&mut self) {
        if let Err(error) = self.host.write(&self.file, "0") {
            tracing::debug!("{error}");
        }
    }
}

/// Physical addresses of huge pages in place of a mapping.
struct PhysicalMapper {
    quiet: Arc<AtomicBool>,
}

// SAFETY: `map` returns the addresses of the region's own pages, which stay where they are (huge pages, and the promise
// of `open_without_iommu`); `unmap` says `Ok` only once bus mastering is confirmed off.
unsafe impl DmaMapper for PhysicalMapper {
    fn map(&self, memory: &Arc<DmaMemory>) -> Result<Translation> {
        Ok(Translation::Paged {
            base: memory.base().as_ptr() as u64,
            shift: memory.page_size().trailing_zeros(),
            pages: memory.physical_pages()?.into(),
        })
    }

    fn unmap(&self, memory: &Arc<DmaMemory>, _translation: &Translation) -> Result<()> {
        if self.quiet.load(Ordering::SeqCst) {
            return Ok(());
        }
        let cause = "the device may still write to it, and no IOMMU stops it";
        Err(Error::unusable(memory.describe(), cause, "reboot the host to be safe"))
    }
}

fn refuse(pci: &PciDevice) -> Result<()> {
    let name = pci.address.to_string();
    if let Some(group) = pci.iommu_group {
        let cause = format!("it is in IOMMU group {group}, where physical addresses are not for devices to use");
        return Err(Error::unusable(&name, cause, format!("open it through VFIO: fwd bind {name}")));
    }
    if let Some(driver) = &pci.driver {
        let cause = format!("driver {driver} has it, and two drivers on one device corrupt memory");
        let hint = format!("take it from its driver: echo {name} | sudo tee /sys/bus/pci/devices/{name}/driver/unbind");
        return Err(Error::unusable(name, cause, hint));
    }
    Ok(())
}

/// Region `index`: mapped, or through its file if it is I/O ports.
fn open_region(pci: &PciDevice, index: u8) -> Result<MappedBar> {
    let region = pci.region(index).ok_or_else(|| {
        let cause = format!("it has no base address region {index}");
        Error::unusable(pci.address.to_string(), cause, "is this the right device?")
    })?;
    let file = open(pci, &format!("resource{index}"))?;
    let object = format!("{}/resource{index}", pci.path().display());
    let failed = |source: io::Error| {
        let hint = "needs root, and a kernel that is not locked down (Secure Boot, see /sys/kernel/security/lockdown)";
        Error::system("map", &object, source, hint)
    };
    let size = file.metadata().map_err(failed)?.len();
    let len = usize::try_from(region.len).ok().filter(|len| *len > 0 && region.len <= size);
    let unfit = || Error::unusable(&object, format!("it has {size} bytes where its region has {}", region.len), "");
    let len = len.ok_or_else(unfit)?;
    if region.io {
        return Ok(MappedBar::empty().with_rest(Box::new(RegionFile { file: Arc::new(file), offset: 0, size: len })));
    }
    let map = MmapOptions::new().len(len).map_raw(&file).map_err(failed)?;
    map.advise(Advice::DontFork).map_err(failed)?;
    let base = NonNull::new(map.as_mut_ptr().cast::<u32>()).ok_or_else(|| failed(io::ErrorKind::OutOfMemory.into()))?;
    let owner: Arc<dyn Any + Send + Sync> = Arc::new((map, file));
    // SAFETY: `base` is the start of a shared, page-aligned mapping of `len` bytes, which lives in `owner`.
    Ok(unsafe { MappedBar::new(base, len, owner) })
}

fn open(pci: &PciDevice, name: &str) -> Result<File> {
    let path = pci.path().join(name);
    File::options().read(true).write(true).open(&path).map_err(|source| {
        let hint = "run as root; a locked-down kernel (Secure Boot) forbids it altogether";
        Error::system("open", path.display().to_string(), source, hint)
    })
}

/// sysfs gives the file the size of the device's configuration space: 256 or 4096 bytes.
fn config_len(file: &File) -> Result<u64> {
    let metadata = file.metadata().map_err(|source| Error::system("read", "configuration space", source, ""))?;
    Ok(metadata.len())
}
