//! A VFIO group in a container of its own: one IOMMU address space. Devices of one group share it, as the IOMMU cannot
//! tell them apart.

use super::hint::Operation;
use super::info::IommuInfo;
use super::ioctl;
use crate::remedy;
use crate::{DmaMapper, DmaMemory, Error, Host, IovaAllocator, Result, Translation};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// An open group, attached to its container with the IOMMU on.
#[derive(Debug)]
pub(super) struct Group {
    // The group leaves its container before the container is closed: fields drop in this order.
    group: File,
    container: File,
    path: PathBuf,
    page_size: u64,
    iovas: Mutex<IovaAllocator>,
}

impl Group {
    /// Opens group `number`, or finds it open: the kernel opens a group once only.
    pub(super) fn open(host: &Host, number: u32) -> Result<Arc<Self>> {
        static OPEN: Mutex<BTreeMap<PathBuf, Weak<Group>>> = Mutex::new(BTreeMap::new());
        let path = host.dev(format!("vfio/{number}"));
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(group) = open.get(&path).and_then(Weak::upgrade) {
            return Ok(group);
        }
        let group = Arc::new(Self::open_new(host, path.clone())?);
        open.insert(path, Arc::downgrade(&group));
        Ok(group)
    }

    /// Opens a device of the group by its PCI address. The kernel resets it and clears bus mastering.
    pub(super) fn device(&self, address: &str) -> Result<File> {
        let name = CString::new(address).map_err(|_| Error::unusable(address, "not a PCI address", ""))?;
        let device: OwnedFd =
            ioctl::device_fd(&self.group, &name).map_err(|source| Operation::GetDevice.failed(address, source))?;
        Ok(File::from(device))
    }

    /// The sequence of Linux `Documentation/driver-api/vfio.rst`, "VFIO Usage Example".
    fn open_new(host: &Host, path: PathBuf) -> Result<Self> {
        let container_path = host.dev("vfio/vfio");
        let container = open_node(Operation::OpenContainer, &container_path)?;
        let name = container_path.display().to_string();
        let version =
            ioctl::api_version(&container).map_err(|source| Operation::OpenContainer.failed(&name, source))?;
        if version != ioctl::API_VERSION {
            let cause = format!("it speaks version {version} of the VFIO interface, Ringway speaks 0");
            return Err(Error::unusable(name, cause, "run a kernel of the mainline"));
        }
        let type1 = ioctl::has_extension(&container, ioctl::TYPE1V2)
            .map_err(|source| Operation::OpenContainer.failed(&name, source))?;
        if !type1 {
            let cause = "the kernel offers no type 1 IOMMU (version 2)";
            return Err(Error::unusable(name, cause, remedy::load_vfio()));
        }

        let group = open_node(Operation::OpenGroup, &path)?;
        let name = path.display().to_string();
        let flags = ioctl::group_status(&group).map_err(|source| Operation::AskGroup.failed(&name, source))?;
        if flags & ioctl::GROUP_VIABLE == 0 {
            let hint = "bind every device of the group to vfio-pci, or leave it without a driver";
            return Err(Error::unusable(name, "another device of this IOMMU group is with a kernel driver", hint));
        }
        ioctl::set_container(&group, &container).map_err(|source| Operation::SetContainer.failed(&name, source))?;
        ioctl::set_iommu(&container, ioctl::TYPE1V2).map_err(|source| Operation::SetIommu.failed(&name, source))?;
        let answer = ioctl::iommu_info(&container).map_err(|source| Operation::AskIommu.failed(&name, source))?;
        let info = IommuInfo::parse(&answer).ok_or_else(|| {
            Error::unusable(&name, "the kernel's answer about the IOMMU does not hold together", "please report this")
        })?;
        tracing::debug!(
            "{name}: pages of {} bytes, IOVAs {:x?}, {:?} mappings left",
            info.page_size,
            info.ranges,
            info.mappings_left
        );
        let iovas = IovaAllocator::new(usable(&info));
        Ok(Self { group, container, path, page_size: info.page_size, iovas: Mutex::new(iovas) })
    }
}

/// The IOMMU of a group, for one device's [`crate::DmaDomain`].
#[derive(Debug)]
pub(super) struct VfioMapper {
    group: Arc<Group>,
    /// The lowest IOVA to hand out, while there is room there.
    floor: AtomicU64,
}

impl VfioMapper {
    pub(super) fn new(group: Arc<Group>) -> Self {
        Self { group, floor: AtomicU64::new(0) }
    }
}

// SAFETY: `map` has the IOMMU map exactly the region, at the address it returns; `unmap` returns `Ok` only when the
// kernel says that all of it was unmapped, which includes the flush of the IOMMU's cache. Another device of the group may
// have mapped the same memory at another address, in a domain of its own that keeps it allocated (see the trait).
unsafe impl DmaMapper for VfioMapper {
    fn map(&self, memory: &Arc<DmaMemory>) -> Result<Translation> {
        let group = &self.group;
        let (base, len) = (memory.base().as_ptr() as u64, memory.len() as u64);
        // A page that stays unmapped behind each region stops a device that runs past the end.
        let align = group.page_size.max(memory.page_size() as u64);
        let floor = self.floor.load(Ordering::Relaxed);
        let mut iovas = group.iovas();
        let high = iovas.allocate_from(floor, len + group.page_size, align);
        let iova = high.or_else(|| iovas.allocate(len + group.page_size, align));
        drop(iovas);
        let iova = iova.ok_or_else(|| {
            let cause = format!("no room for {} in the addresses its IOMMU translates", memory.describe());
            Error::unusable(group.name(), cause, "use less DMA memory")
        })?;
        // SAFETY: the region stays mapped as long as `memory` lives, which the domain keeps until after `unmap`; its
        // bytes are only reached through raw pointers by those who own them.
        match unsafe { ioctl::map_dma(&group.container, base, iova, len) } {
            Ok(()) => Ok(Translation::Linear { delta: iova.wrapping_sub(base) }),
            Err(source) => {
                group.iovas().free(iova);
                Err(Operation::MapDma.failed(format!("{}{}", memory.describe(), limit(&source)), source))
            }
        }
    }

    fn unmap(&self, memory: &Arc<DmaMemory>, translation: &Translation) -> Result<()> {
        let group = &self.group;
        let iova = translation.iova(memory.base().as_ptr());
        let len = memory.len() as u64;
        let unmapped = ioctl::unmap_dma(&group.container, iova, len)
            .map_err(|source| Operation::UnmapDma.failed(format!("{len} bytes at IOVA {iova:#x}"), source))?;
        if unmapped != len {
            let cause = format!("{unmapped} of {len} bytes at IOVA {iova:#x} were unmapped");
            return Err(Error::unusable(group.name(), cause, "please report this"));
        }
        group.iovas().free(iova);
        Ok(())
    }

    fn set_floor(&self, floor: u64) {
        self.floor.store(floor, Ordering::Relaxed);
    }
}

impl Group {
    fn iovas(&self) -> std::sync::MutexGuard<'_, IovaAllocator> {
        self.iovas.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }
}

fn open_node(operation: Operation, path: &PathBuf) -> Result<File> {
    let opened = File::options().read(true).write(true).open(path);
    opened.map_err(|source| operation.failed(path.display().to_string(), source))
}

/// The IOVAs to hand out. Address 0 is left out, since many devices take it for "none".
fn usable(info: &IommuInfo) -> Vec<RangeInclusive<u64>> {
    // What every x86 IOMMU translates, without the interrupt window (Intel VT-d 3.14; AMD IOMMU 2.1.4.1).
    let guess = || vec![0..=0xFEDF_FFFF, 0xFEF0_0000..=0x7F_FFFF_FFFF];
    let ranges = info.ranges.clone().unwrap_or_else(guess);
    ranges.into_iter().map(|range| *range.start().max(&info.page_size)..=*range.end()).collect()
}

/// The limit that a refused mapping ran into, if it is one.
fn limit(source: &io::Error) -> String {
    if source.raw_os_error() != Some(libc::ENOMEM) {
        return String::new();
    }
    match rustix::process::getrlimit(rustix::process::Resource::Memlock).current {
        Some(bytes) => format!(" (this process may lock {} KiB)", bytes >> 10),
        None => " (this process may lock any amount)".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(ranges: Option<Vec<RangeInclusive<u64>>>) -> IommuInfo {
        IommuInfo { page_size: 4096, ranges, mappings_left: None }
    }

    #[test]
    fn address_zero_and_the_interrupt_window_are_never_handed_out() {
        for ranges in [None, Some(vec![0..=0xFEDF_FFFF, 0xFEF0_0000..=0xFFFF_FFFF])] {
            let mut iovas = IovaAllocator::new(usable(&info(ranges)));
            assert_eq!(iovas.allocate(4096, 4096), Some(4096));
            let large = iovas.allocate(0xFE00_0000, 1 << 21).unwrap();
            assert_eq!(large, 1 << 21);
            let next = iovas.allocate(1 << 20, 1 << 20).unwrap();
            assert!(next + (1 << 20) <= 0xFEE0_0000 || next >= 0xFEF0_0000, "{next:#x}");
        }
        assert!(usable(&info(Some(vec![0..=0xFFF]))).iter().all(RangeInclusive::is_empty));
    }

    #[test]
    fn a_missing_container_and_a_node_that_is_not_vfio_are_named() {
        let root = tempfile::tempdir().unwrap();
        let host = Host::at(root.path());
        let text = Group::open(&host, 12).unwrap_err().to_string();
        assert!(text.contains("dev/vfio/vfio: No such file") && text.contains("modprobe -a vfio-pci"), "{text}");
        std::fs::create_dir_all(root.path().join("dev/vfio")).unwrap();
        std::fs::write(root.path().join("dev/vfio/vfio"), "").unwrap();
        let text = Group::open(&host, 12).unwrap_err().to_string();
        assert!(text.contains("this is not a VFIO node"), "{text}");
    }
}
