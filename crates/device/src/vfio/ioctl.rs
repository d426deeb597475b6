//! The ioctls of VFIO (Linux `include/uapi/linux/vfio.h`), each as one function that returns every error.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};

/// `VFIO_API_VERSION`.
pub(super) const API_VERSION: i32 = 0;
/// `VFIO_TYPE1v2_IOMMU`.
pub(super) const TYPE1V2: usize = 3;
/// `VFIO_GROUP_FLAGS_VIABLE`.
pub(super) const GROUP_VIABLE: u32 = 1;
/// `VFIO_DEVICE_FLAGS_RESET`.
pub(super) const DEVICE_RESET: u32 = 1;
/// `VFIO_DEVICE_FLAGS_PCI`.
pub(super) const DEVICE_PCI: u32 = 2;
/// `VFIO_IRQ_INFO_EVENTFD`.
pub(super) const IRQ_EVENTFD: u32 = 1;

/// `struct vfio_device_info`, up to `num_irqs`, which every kernel accepts.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DeviceInfo {
    argsz: u32,
    pub(super) flags: u32,
    pub(super) num_regions: u32,
    pub(super) num_irqs: u32,
}

/// `struct vfio_irq_info`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct IrqInfo {
    argsz: u32,
    pub(super) flags: u32,
    index: u32,
    pub(super) count: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct GroupStatus {
    argsz: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct DmaMap {
    argsz: u32,
    flags: u32,
    vaddr: u64,
    iova: u64,
    size: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct DmaUnmap {
    argsz: u32,
    flags: u32,
    iova: u64,
    size: u64,
}

pub(super) fn api_version(container: &File) -> io::Result<i32> {
    with_number(container.as_raw_fd(), GET_API_VERSION, 0)
}

pub(super) fn has_extension(container: &File, extension: usize) -> io::Result<bool> {
    Ok(with_number(container.as_raw_fd(), CHECK_EXTENSION, extension)? > 0)
}

pub(super) fn set_iommu(container: &File, kind: usize) -> io::Result<()> {
    with_number(container.as_raw_fd(), SET_IOMMU, kind).map(drop)
}

/// `struct vfio_iommu_type1_info` and its capabilities, as bytes.
pub(super) fn iommu_info(container: &File) -> io::Result<Vec<u8>> {
    query(container.as_raw_fd(), IOMMU_GET_INFO, 0)
}

/// # Safety
///
/// The device reads and writes the `size` bytes at `vaddr` from now on until they are unmapped: they must stay mapped
/// in this process so long, and no Rust reference to what the device may write may exist meanwhile.
pub(super) unsafe fn map_dma(container: &File, vaddr: u64, iova: u64, size: u64) -> io::Result<()> {
    const READ_AND_WRITE: u32 = 1 | 2;
    let mut map = DmaMap { argsz: argsz::<DmaMap>(), flags: READ_AND_WRITE, vaddr, iova, size };
    // SAFETY: DmaMap is what this ioctl takes; what the device then does is the caller's promise.
    unsafe { with_struct(container.as_raw_fd(), IOMMU_MAP_DMA, &mut map) }.map(drop)
}

/// Returns how many bytes were unmapped.
pub(super) fn unmap_dma(container: &File, iova: u64, size: u64) -> io::Result<u64> {
    let mut unmap = DmaUnmap { argsz: argsz::<DmaUnmap>(), flags: 0, iova, size };
    // SAFETY: DmaUnmap is what this ioctl takes.
    unsafe { with_struct(container.as_raw_fd(), IOMMU_UNMAP_DMA, &mut unmap) }?;
    Ok(unmap.size)
}

/// The flags of a group.
pub(super) fn group_status(group: &File) -> io::Result<u32> {
    let mut status = GroupStatus { argsz: argsz::<GroupStatus>(), flags: 0 };
    // SAFETY: GroupStatus is what this ioctl takes.
    unsafe { with_struct(group.as_raw_fd(), GROUP_GET_STATUS, &mut status) }?;
    Ok(status.flags)
}

pub(super) fn set_container(group: &File, container: &File) -> io::Result<()> {
    let mut fd: RawFd = container.as_raw_fd();
    // SAFETY: this ioctl takes a pointer to a descriptor.
    unsafe { with_struct(group.as_raw_fd(), GROUP_SET_CONTAINER, &mut fd) }.map(drop)
}

pub(super) fn device_fd(group: &File, address: &CStr) -> io::Result<OwnedFd> {
    // SAFETY: this ioctl takes a NUL-terminated string, which it only reads.
    let fd = check(unsafe { libc::ioctl(group.as_raw_fd(), GROUP_GET_DEVICE_FD, address.as_ptr()) })?;
    // SAFETY: the kernel has just opened this descriptor for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

pub(super) fn device_info(device: &File) -> io::Result<DeviceInfo> {
    let mut info = DeviceInfo { argsz: argsz::<DeviceInfo>(), ..DeviceInfo::default() };
    // SAFETY: DeviceInfo is the start of what this ioctl takes, and argsz says how much of it.
    unsafe { with_struct(device.as_raw_fd(), DEVICE_GET_INFO, &mut info) }?;
    Ok(info)
}

/// `struct vfio_region_info` and its capabilities, as bytes.
pub(super) fn region_info(device: &File, index: u32) -> io::Result<Vec<u8>> {
    query(device.as_raw_fd(), DEVICE_GET_REGION_INFO, index)
}

pub(super) fn irq_info(device: &File, index: u32) -> io::Result<IrqInfo> {
    let mut info = IrqInfo { argsz: argsz::<IrqInfo>(), index, ..IrqInfo::default() };
    // SAFETY: IrqInfo is what this ioctl takes.
    unsafe { with_struct(device.as_raw_fd(), DEVICE_GET_IRQ_INFO, &mut info) }?;
    Ok(info)
}

/// Has interrupts 0 to `eventfds.len() - 1` of `index` signal these; none switches the index off. A positive answer is the
/// number of vectors there would be.
pub(super) fn set_irqs(device: &File, index: u32, eventfds: &[RawFd]) -> io::Result<i32> {
    let mut words = irq_set(index, eventfds)?;
    // SAFETY: the words are a vfio_irq_set with its eventfds, and its argsz is their length; the kernel only reads them.
    check(unsafe { libc::ioctl(device.as_raw_fd(), DEVICE_SET_IRQS, words.as_mut_ptr()) })
}

pub(super) fn reset(device: &File) -> io::Result<()> {
    with_number(device.as_raw_fd(), DEVICE_RESET_NOW, 0).map(drop)
}

const fn request(number: libc::Ioctl) -> libc::Ioctl {
    // _IO(';', 100 + number).
    0x3B64 + number
}
const GET_API_VERSION: libc::Ioctl = request(0);
const CHECK_EXTENSION: libc::Ioctl = request(1);
const SET_IOMMU: libc::Ioctl = request(2);
const GROUP_GET_STATUS: libc::Ioctl = request(3);
const GROUP_SET_CONTAINER: libc::Ioctl = request(4);
const GROUP_GET_DEVICE_FD: libc::Ioctl = request(6);
const DEVICE_GET_INFO: libc::Ioctl = request(7);
const DEVICE_GET_REGION_INFO: libc::Ioctl = request(8);
const DEVICE_GET_IRQ_INFO: libc::Ioctl = request(9);
const DEVICE_SET_IRQS: libc::Ioctl = request(10);
const DEVICE_RESET_NOW: libc::Ioctl = request(11);
const IOMMU_GET_INFO: libc::Ioctl = request(12);
const IOMMU_MAP_DMA: libc::Ioctl = request(13);
const IOMMU_UNMAP_DMA: libc::Ioctl = request(14);

/// `struct vfio_irq_set` and its data: argsz, flags, index, start, count, eventfds.
fn irq_set(index: u32, eventfds: &[RawFd]) -> io::Result<Vec<u32>> {
    const NONE: u32 = 1;
    const EVENTFD: u32 = 4;
    const TRIGGER: u32 = 32;
    let count = u32::try_from(eventfds.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let argsz = count.checked_mul(4).and_then(|bytes| bytes.checked_add(20)).ok_or(io::ErrorKind::InvalidInput)?;
    let data = if eventfds.is_empty() { NONE } else { EVENTFD };
    let mut words = vec![argsz, data | TRIGGER, index, 0, count];
    words.extend(eventfds.iter().map(|fd| fd.cast_unsigned()));
    Ok(words)
}

/// A call whose structure may be followed by capabilities: asked again with as much room as the kernel wants.
/// `index` is the third word.
fn query(fd: RawFd, request: libc::Ioctl, index: u32) -> io::Result<Vec<u8>> {
    const MOST: u32 = 64 << 10;
    let mut bytes: u32 = 256;
    loop {
        let mut words = vec![0_u32; bytes as usize / 4];
        (words[0], words[2]) = (bytes, index);
        // SAFETY: the first word tells the kernel how many bytes it may fill, and the buffer has that many.
        check(unsafe { libc::ioctl(fd, request, words.as_mut_ptr()) })?;
        if words[0] <= bytes {
            return Ok(words.into_iter().flat_map(u32::to_ne_bytes).collect());
        }
        bytes =
            words[0].checked_next_multiple_of(4).filter(|bytes| *bytes <= MOST).ok_or(io::ErrorKind::InvalidData)?;
    }
}

fn with_number(fd: RawFd, request: libc::Ioctl, number: usize) -> io::Result<i32> {
    // SAFETY: the ioctls that come here take a number, no pointer.
    check(unsafe { libc::ioctl(fd, request, number) })
}

/// # Safety
///
/// `request` must take a pointer to `T`, or to a structure that begins with `T` and whose argsz is `T`'s size.
unsafe fn with_struct<T>(fd: RawFd, request: libc::Ioctl, argument: &mut T) -> io::Result<i32> {
    // SAFETY: promised by the caller; the reference outlives the call.
    check(unsafe { libc::ioctl(fd, request, std::ptr::from_mut(argument)) })
}

fn check(answer: i32) -> io::Result<i32> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

#[expect(clippy::cast_possible_truncation, reason = "the structures are a few words")]
const fn argsz<T>() -> u32 {
    size_of::<T>() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;
    use vfio_bindings::bindings::vfio as uapi;

    #[test]
    fn structures_are_the_kernels() {
        assert_eq!(size_of::<DmaMap>(), size_of::<uapi::vfio_iommu_type1_dma_map>());
        assert_eq!(size_of::<DmaUnmap>(), size_of::<uapi::vfio_iommu_type1_dma_unmap>());
        assert_eq!(size_of::<GroupStatus>(), size_of::<uapi::vfio_group_status>());
        assert_eq!(size_of::<IrqInfo>(), size_of::<uapi::vfio_irq_info>());
        assert_eq!(size_of::<DeviceInfo>(), offset_of!(uapi::vfio_device_info, cap_offset));
        assert_eq!(offset_of!(DmaMap, iova), offset_of!(uapi::vfio_iommu_type1_dma_map, iova));
        assert_eq!(offset_of!(DmaMap, vaddr), offset_of!(uapi::vfio_iommu_type1_dma_map, vaddr));
        assert_eq!(offset_of!(IrqInfo, count), offset_of!(uapi::vfio_irq_info, count));
        assert_eq!(offset_of!(DeviceInfo, num_irqs), offset_of!(uapi::vfio_device_info, num_irqs));
        assert_eq!(offset_of!(uapi::vfio_region_info, index), 8, "where `query` puts the index");
        assert_eq!((size_of::<DmaMap>(), size_of::<DmaUnmap>(), size_of::<IrqInfo>()), (32, 24, 16));
    }

    /// Every vector gets its own eventfd, whole: descriptors do not fit a byte, and vector n is the n-th of the data.
    #[test]
    fn ixyrs_interrupt_setup_truncates_the_descriptor_and_takes_the_wrong_vector() {
        let eventfds: Vec<_> = (0..64).map(|vector| 0x1_2300 + vector).collect();
        let set = irq_set(2, &eventfds).unwrap();
        let (start, count, data) = (set[3], set[4], &set[5..]);
        assert_eq!((start, count), (0, 64));
        for (vector, eventfd) in eventfds.iter().enumerate() {
            assert_eq!(data[vector], u32::try_from(*eventfd).unwrap());
        }
    }

    #[test]
    fn an_irq_set_is_a_header_and_its_eventfds() {
        assert_eq!(irq_set(2, &[7, -1]).unwrap(), [28, 4 | 32, 2, 0, 2, 7, u32::MAX]);
        assert_eq!(irq_set(2, &[]).unwrap(), [20, 1 | 32, 2, 0, 0], "off");
        assert_eq!(size_of::<uapi::vfio_irq_set>(), 20);
    }

    #[test]
    fn a_file_that_is_not_vfio_is_an_error_of_every_call() {
        let file = tempfile::tempfile().unwrap();
        let errors = [
            api_version(&file).err(),
            has_extension(&file, TYPE1V2).err(),
            set_iommu(&file, TYPE1V2).err(),
            iommu_info(&file).err(),
            unmap_dma(&file, 0, 4096).err(),
            group_status(&file).err(),
            set_container(&file, &file).err(),
            device_fd(&file, c"0000:03:00.0").err(),
            device_info(&file).err(),
            region_info(&file, 0).err(),
            irq_info(&file, 2).err(),
            set_irqs(&file, 2, &[]).err(),
            reset(&file).err(),
        ];
        for error in errors {
            assert_eq!(error.unwrap().raw_os_error(), Some(libc::ENOTTY));
        }
    }
}
