//! DMA_MAP and DMA_UNMAP: the memory of a client that the device may reach, by descriptors of its files.

use crate::dma::{Dma, Region};
use device::vfio_user::message::Fields;
use memmap2::MmapOptions;
use rustix::fs::{FileType, SealFlags};
use rustix::io::Errno;
use std::any::Any;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most mappings of a client. A process can have some 65,000, and several devices may share it.
pub(super) const MOST_MAPPINGS: usize = 16 << 10;
/// What addresses and sizes must be multiples of.
pub(super) const PAGE: u64 = 4096;

const READ: u32 = 1;
const WRITE: u32 = 2;
const UNMAP_ALL: u32 = 2;

/// The address space that a client has built.
#[derive(Debug, Default)]
pub(super) struct ClientMemory {
    generation: AtomicU64,
    mappings: Mutex<BTreeMap<u64, Mapping>>,
}

#[derive(Debug)]
struct Mapping {
    len: u64,
    /// `None` for memory that came without a descriptor: the device cannot reach it.
    region: Option<Region>,
}

impl ClientMemory {
    /// Carries out a DMA_MAP: argsz, flags (32 bits each), offset in the file, address, size (64 bits each).
    pub(super) fn map(&self, body: &[u8], fds: Vec<OwnedFd>) -> Result<(), Errno> {
        let mut fields = Fields::new(body);
        let (_argsz, flags) = (fields.u32().ok_or(Errno::INVAL)?, fields.u32().ok_or(Errno::INVAL)?);
        let (offset, iova) = (fields.u64().ok_or(Errno::INVAL)?, fields.u64().ok_or(Errno::INVAL)?);
        let len = fields.u64().ok_or(Errno::INVAL)?;
        let aligned = [offset, iova, len].iter().all(|number| number % PAGE == 0);
        let known = flags & (READ | WRITE) != 0 && flags & !(READ | WRITE) == 0;
        if !aligned || !known || len == 0 || fds.len() > 1 {
            return Err(Errno::INVAL);
        }
        let last = iova.checked_add(len - 1).ok_or(Errno::INVAL)?;
        let mut mappings = self.mappings();
        if mappings.len() >= MOST_MAPPINGS {
            return Err(Errno::NOSPC);
        }
        let below = mappings.range(..=last).next_back();
        if below.is_some_and(|(start, below)| start + (below.len - 1) >= iova) {
            return Err(Errno::EXIST);
        }
        let region = fds.first().map(|fd| map_file(fd, flags, (offset, iova, len))).transpose()?;
        mappings.insert(iova, Mapping { len, region });
        self.generation.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Carries out a DMA_UNMAP: argsz, flags (32 bits each), address, size (64 bits each), which must cover one mapping or
    /// more, and none in part (an IOMMU in a guest unmaps in larger pieces than it maps); or all mappings, with both 0. The
    /// device may work on what it has begun: wait until it has seen it.
    pub(super) fn unmap(&self, body: &[u8]) -> Result<(), Errno> {
        let mut fields = Fields::new(body);
        let (_argsz, flags) = (fields.u32().ok_or(Errno::INVAL)?, fields.u32().ok_or(Errno::INVAL)?);
        let (iova, len) = (fields.u64().ok_or(Errno::INVAL)?, fields.u64().ok_or(Errno::INVAL)?);
        match (flags, iova, len) {
            (UNMAP_ALL, 0, 0) => self.clear(),
            (0, ..) => {
                let last = len.checked_sub(1).and_then(|rest| iova.checked_add(rest)).ok_or(Errno::INVAL)?;
                let mut mappings = self.mappings();
                let covered: Vec<u64> = mappings.range(iova..=last).map(|(start, _)| *start).collect();
                let reaches =
                    |start: &u64, end: u64| mappings.get(start).is_some_and(|known| start + (known.len - 1) > end);
                let before = mappings.range(..iova).next_back().map(|(start, _)| *start);
                if before.is_some_and(|start| reaches(&start, iova - 1))
                    || covered.last().is_some_and(|start| reaches(start, last))
                {
                    return Err(Errno::INVAL);
                }
                if covered.is_empty() {
                    return Err(Errno::NOENT);
                }
                for start in covered {
                    mappings.remove(&start);
                }
                self.generation.fetch_add(1, Ordering::Release);
            }
            _ => return Err(Errno::INVAL),
        }
        Ok(())
    }

    /// Forgets everything.
    pub(super) fn clear(&self) {
        self.mappings().clear();
        self.generation.fetch_add(1, Ordering::Release);
    }

    fn mappings(&self) -> MutexGuard<'_, BTreeMap<u64, Mapping>> {
        self.mappings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Dma for Arc<ClientMemory> {
    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    fn regions(&self) -> Vec<Region> {
        self.mappings().values().filter_map(|mapping| mapping.region.clone()).collect()
    }
}

/// Maps `len` bytes of a client's file from `offset` on.
///
/// The file must not get shorter: an access beyond its end would end this process. So it has to be one that can be sealed
/// against that (a memfd), and is sealed here if the client has not done it.
fn map_file(fd: &OwnedFd, flags: u32, (offset, iova, len): (u64, u64, u64)) -> Result<Region, Errno> {
    let refuse = |why: &str, errno| {
        tracing::warn!("memory of a client is refused: {why}; use a memfd (QEMU: memory-backend-memfd,share=on)");
        errno
    };
    let stat = rustix::fs::fstat(fd)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(refuse("it is not in a file", Errno::INVAL));
    }
    let sealed = |errno| refuse("its file cannot be sealed against shrinking", errno);
    if !rustix::fs::fcntl_get_seals(fd).map_err(sealed)?.contains(SealFlags::SHRINK) {
        rustix::fs::fcntl_add_seals(fd, SealFlags::SHRINK).map_err(sealed)?;
    }
    // Only now is the size what it will be at least.
    let size = u64::try_from(rustix::fs::fstat(fd)?.st_size).unwrap_or(0);
    if offset.checked_add(len).is_none_or(|end| end > size) {
        return Err(refuse("it lies beyond the end of its file", Errno::INVAL));
    }
    let (writable, bytes) = (flags & WRITE != 0, usize::try_from(len).map_err(|_| Errno::INVAL)?);
    let mut options = MmapOptions::new();
    options.offset(offset).len(bytes);
    let map = if writable { options.map_raw(fd) } else { options.map_raw_read_only(fd) };
    let map = map.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::NOMEM))?;
    let base = NonNull::new(map.as_mut_ptr()).ok_or(Errno::NOMEM)?;
    let owner: Arc<dyn Any + Send + Sync> = Arc::new(map);
    // SAFETY: a shared mapping of `bytes` bytes that lives in `owner`, writable if asked for, of a file that cannot shrink;
    // no Rust reference to its bytes is ever made.
    let region = unsafe { Region::new(iova, base, len, writable, owner) };
    Ok(if flags & READ == 0 { region.write_only() } else { region })
}
