//! Devices through sysfs, without an IOMMU (Linux `Documentation/PCI/sysfs-pci.rst`): `resource0`, `config`, `enable`,
//! `reset`. The device reaches any memory of the host, by physical address, so the function that opens one is unsafe.

use crate::claim::Claim;
use crate::region_file::RegionFile;
use crate::{ConfigSpace, Device, DmaDomain, DmaMapper, DmaMemory, Error, Host, MappedBar};
use crate::{PciAddress, PciDevice, PciFunction, PciIds, Result, Translation};
use memmap2::{Advice, MmapOptions};
use rustix::fs::{FlockOperation, Mode, OFlags};
use std::any::Any;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A PCI function opened through sysfs, without an IOMMU in front of it.
///
/// Dropping it switches bus mastering off; if that cannot be confirmed, the DMA memory that the device knows is kept
/// for ever.
///
/// If a process is killed (SIGKILL, the kernel's out-of-memory killer), nothing is dropped: its memory goes to other
/// processes while the card still writes received frames into it. Only a reset of the card or a reboot of the host
/// stops that.
#[derive(Debug)]
pub struct SysfsDevice {
    name: String,
    ids: PciIds,
    pci: PciDevice,
    folder: Folder,
    host: Host,
    config: ConfigSpace,
    quiet: Quiet,
    bar: MappedBar,
    // From here on the order of the fields matters: forget the memory, then let others have the device.
    dma: DmaDomain,
    _enabled: Enabled,
    _lock: Arc<File>,
    _claim: Claim,
}

impl SysfsDevice {
    /// Opens the function at `address`. Its registers can be accessed at once; bus mastering is off. Needs root.
    ///
    /// A function with an IOMMU group is refused: behind a translating IOMMU physical addresses lead nowhere, and if
    /// the IOMMU passes addresses through, VFIO does the same work with protection.
    ///
    /// # Errors
    ///
    /// If the function has an IOMMU group or a driver, another process has it open through sysfs, or this process lacks
    /// the permission.
    ///
    /// # Safety
    ///
    /// Nothing stops this device from reading and writing any memory of the host. The caller vouches for it and for its
    /// driver (which, where it unmaps memory, resets the device before it sets bus mastering again: the device may still
    /// have the old addresses); for a host that does not move huge pages (no memory hot-unplug, no migration of this
    /// process's pages between NUMA nodes) while the device is open; and that the process is not killed meanwhile, or the
    /// device is reset before the host goes on.
    pub unsafe fn open_without_iommu(host: &Host, address: PciAddress) -> Result<Self> {
        let claim = Claim::new(address)?;
        let pci = host.pci_device(address)?;
        refuse(&pci)?;
        let name = address.to_string();
        let folder = Folder::open(&pci)?;
        let lock = Arc::new(folder.file("config")?);
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
        let bar = if pci.region(0).is_some() { open_region(&folder, &pci, 0)? } else { MappedBar::empty() };
        let ids = config.ids()?;
        let quiet = Quiet(Arc::new(Mutex::new(true)));
        let dma = DmaDomain::new(Box::new(PhysicalMapper { quiet: quiet.clone() }));
        tracing::warn!(
            "{name}: {ids} opened without an IOMMU: it can reach all memory of this host, and if this process is killed \
             (SIGKILL, out of memory) it goes on writing into memory that is no longer ours; end it by SIGINT or SIGTERM"
        );
        Ok(Self {
            name,
            ids,
            folder,
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

// SAFETY: `bar` is region 0 of the function whose configuration space `ids` was read from: both are files of one folder that
// was opened once. Bus mastering is read back after every change (the read waits for what the device wrote before), and
// `reset` switches it off first and leaves it off. `dma` hands out the addresses of exactly the memory that was mapped there, and nobody tells the device others.
unsafe impl Device for SysfsDevice {
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
        // One lock over both: a mapping is not given up between the two. Counts as loud from before it may be, and as quiet
        // once that is confirmed.
        let mut quiet = self.quiet.lock();
        *quiet = false;
        self.config.set_bus_master(on)?;
        *quiet = !on;
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

    fn transactions_pending(&self) -> Option<bool> {
        self.config.transactions_pending()
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
        let bar = open_region(&self.folder, &self.pci, index)?;
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

/// Whether bus mastering is known to be off. Held while it changes.
#[derive(Clone, Debug)]
struct Quiet(Arc<Mutex<bool>>);

impl Quiet {
    fn lock(&self) -> MutexGuard<'_, bool> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Physical addresses of huge pages in place of a mapping.
struct PhysicalMapper {
    quiet: Quiet,
}

// SAFETY: `map` returns the addresses of the region's own pages, which stay where they are (huge pages, and the promise
// of `open_without_iommu`); `unmap` says `Ok` only while bus mastering is confirmed off. When it is set again, the driver
// has reset the device, which then knows none of the old addresses (the same promise).
unsafe impl DmaMapper for PhysicalMapper {
    fn map(&self, memory: &Arc<DmaMemory>) -> Result<Translation> {
        Ok(Translation::Paged {
            base: memory.base().as_ptr() as u64,
            shift: memory.page_size().trailing_zeros(),
            pages: memory.physical_pages()?.into(),
        })
    }

    fn unmap(&self, memory: &Arc<DmaMemory>, _translation: &Translation) -> Result<()> {
        if *self.quiet.lock() {
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
fn open_region(folder: &Folder, pci: &PciDevice, index: u8) -> Result<MappedBar> {
    let region = pci.region(index).ok_or_else(|| {
        let cause = format!("it has no base address region {index}");
        Error::unusable(pci.address.to_string(), cause, "is this the right device?")
    })?;
    let file = folder.file(&format!("resource{index}"))?;
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

/// The function's folder in sysfs, opened once, so that all files are of one function whatever happens to the path.
#[derive(Debug)]
struct Folder {
    fd: OwnedFd,
    path: PathBuf,
}

impl Folder {
    fn open(pci: &PciDevice) -> Result<Self> {
        let (path, flags) = (pci.path().to_owned(), OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC);
        match rustix::fs::open(&path, flags, Mode::empty()) {
            Ok(fd) => Ok(Self { fd, path }),
            Err(errno) => Err(Error::system("open", path.display().to_string(), errno, "it may have been removed")),
        }
    }

    fn file(&self, name: &str) -> Result<File> {
        let opened = rustix::fs::openat(&self.fd, name, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
        opened.map(File::from).map_err(|errno| {
            let hint = "run as root; a locked-down kernel (Secure Boot) forbids it altogether";
            Error::system("open", self.path.join(name).display().to_string(), errno, hint)
        })
    }
}

/// sysfs gives the file the size of the device's configuration space: 256 or 4096 bytes.
fn config_len(file: &File) -> Result<u64> {
    let metadata = file.metadata().map_err(|source| Error::system("read", "configuration space", source, ""))?;
    Ok(metadata.len())
}
