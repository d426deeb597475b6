//! DMA_MAP and DMA_UNMAP: the memory of a client that the device may reach, by descriptors of its files.

use super::fault::{self, Watched};
use super::seldom::Seldom;
use crate::dma::{Dma, Region};
use device::vfio_user::message::Fields;
use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::SealFlags;
use rustix::io::Errno;
use std::any::Any;
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most mappings of a client, and most bytes of all its mappings that the device can reach.
const MOST_MAPPINGS: usize = 16 << 10;
const MOST_BYTES: u64 = 64 << 30;
/// Most mappings of all clients of a process: three quarters of what Linux allows it (`vm.max_map_count`, 65,530 unless set).
const MOST_TOGETHER: usize = 48 << 10;
/// Devices that share them.
static SERVED: AtomicUsize = AtomicUsize::new(0);

/// How many mappings a client may have, so that no client can take them from another: 16,384, or with more than three devices
/// in the process an equal share of 49,152.
pub(super) fn most_mappings() -> usize {
    MOST_MAPPINGS.min(MOST_TOGETHER / SERVED.load(Ordering::Relaxed).max(1))
}

/// As [`most_mappings`], of huge pages: 1,024, or an equal share.
fn most_huge_mappings() -> usize {
    fault::MOST / SERVED.load(Ordering::Relaxed).max(1)
}

/// One of the devices that share the mappings.
#[derive(Debug)]
pub(super) struct Share(());

impl Share {
    pub(super) fn take() -> Self {
        SERVED.fetch_add(1, Ordering::Relaxed);
        Self(())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        SERVED.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What addresses and sizes must be multiples of.
pub(super) const PAGE: u64 = 4096;

const READ: u32 = 1;
const WRITE: u32 = 2;
const UNMAP_ALL: u32 = 2;
/// Type of the file system that huge pages of a memfd are in (linux/magic.h).
const HUGETLBFS: i64 = 0x9584_58F6;

/// The address space that a client has built. One thread changes it, the one that serves the client.
#[derive(Debug, Default)]
pub(super) struct ClientMemory {
    generation: AtomicU64,
    /// Nothing that a client can make slow is done under it: its files are mapped before, and unmapped after.
    mappings: Mutex<Mappings>,
    /// As many references as there are mappings of huge pages, and this one.
    huge: Arc<()>,
    complaints: Seldom,
}

/// By first address.
#[derive(Debug, Default)]
struct Mappings {
    list: BTreeMap<u64, Mapping>,
    /// Bytes of those that the device can reach.
    bytes: u64,
}

impl Mappings {
    fn insert(&mut self, iova: u64, mapping: Mapping) {
        self.bytes += mapping.reached();
        self.list.insert(iova, mapping);
    }

    fn remove(&mut self, iova: u64) -> Option<Region> {
        let mapping = self.list.remove(&iova)?;
        self.bytes -= mapping.reached();
        mapping.region
    }
}

#[derive(Debug)]
struct Mapping {
    len: u64,
    /// `None` for memory that came without a descriptor: the device cannot reach it.
    region: Option<Region>,
}

impl Mapping {
    fn reached(&self) -> u64 {
        if self.region.is_some() { self.len } else { 0 }
    }
}

impl ClientMemory {
    /// Carries out a DMA_MAP: argsz, flags (32 bits each), offset in the file, address, size (64 bits each).
    /// The device must be told (`Model::refresh_memory`) at once. `socket` is the client's, which is shut down if its pages are taken away. Takes the descriptor out of `fds` once it is
    /// known for a memfd, which is closed at once.
    pub(super) fn map(&self, body: &[u8], fds: &mut Vec<OwnedFd>, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        let mut fields = Fields::new(body);
        let (_argsz, flags) = (fields.u32().ok_or(Errno::INVAL)?, fields.u32().ok_or(Errno::INVAL)?);
        let (offset, iova) = (fields.u64().ok_or(Errno::INVAL)?, fields.u64().ok_or(Errno::INVAL)?);
        let len = fields.u64().ok_or(Errno::INVAL)?;
        let aligned = [offset, iova, len].iter().all(|number| number % PAGE == 0);
        let known = flags & (READ | WRITE) != 0 && flags & !(READ | WRITE) == 0;
        if !aligned || !known || len == 0 || fds.len() > 1 {
            return Err(Errno::INVAL);
        }
        self.check_room(iova, len, !fds.is_empty())?;
        let region = fds.first().map(|fd| self.map_file(fd, flags, (offset, iova, len), socket)).transpose()?;
        self.mappings().insert(iova, Mapping { len, region });
        fds.clear();
        self.generation.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Whether a client may have one more mapping, at this place.
    fn check_room(&self, iova: u64, len: u64, with_file: bool) -> Result<(), Errno> {
        let last = iova.checked_add(len - 1).ok_or(Errno::INVAL)?;
        let mappings = self.mappings();
        let most = most_mappings();
        if mappings.list.len() >= most {
            self.complaints.say(|more| {
                tracing::warn!(
                    "memory of a client is refused: it has {most} mappings already, as many as it may{more}"
                );
            });
            return Err(Errno::NOSPC);
        }
        let held = mappings.bytes;
        if with_file && held.checked_add(len).is_none_or(|sum| sum > MOST_BYTES) {
            self.complaints.say(|more| {
                let limit = MOST_BYTES >> 30;
                tracing::warn!(
                    "memory of a client is refused: it asks for {len} bytes, has {held}, and may have {limit} GiB together{more}"
                );
            });
            return Err(Errno::NOSPC);
        }
        let below = mappings.list.range(..=last).next_back();
        if below.is_some_and(|(start, below)| start + (below.len - 1) >= iova) {
            return Err(Errno::EXIST);
        }
        Ok(())
    }

    /// Carries out a DMA_UNMAP: argsz, flags (32 bits each), address, size (64 bits each), which must cover one mapping or
    /// more, and none in part (an IOMMU in a guest unmaps in larger pieces than it maps); or all mappings, with both 0. The
    /// device may work on what it has begun: wait until it has seen it, and then drop what is returned, which unmaps the files.
    pub(super) fn unmap(&self, body: &[u8]) -> Result<Vec<Region>, Errno> {
        let mut fields = Fields::new(body);
        let (_argsz, flags) = (fields.u32().ok_or(Errno::INVAL)?, fields.u32().ok_or(Errno::INVAL)?);
        let (iova, len) = (fields.u64().ok_or(Errno::INVAL)?, fields.u64().ok_or(Errno::INVAL)?);
        match (flags, iova, len) {
            (UNMAP_ALL, 0, 0) => Ok(self.clear()),
            (0, ..) => {
                let last = len.checked_sub(1).and_then(|rest| iova.checked_add(rest)).ok_or(Errno::INVAL)?;
                let mut mappings = self.mappings();
                let covered: Vec<u64> = mappings.list.range(iova..=last).map(|(start, _)| *start).collect();
                let reaches =
                    |start: &u64, end: u64| mappings.list.get(start).is_some_and(|known| start + (known.len - 1) > end);
                let before = mappings.list.range(..iova).next_back().map(|(start, _)| *start);
                if before.is_some_and(|start| reaches(&start, iova - 1))
                    || covered.last().is_some_and(|start| reaches(start, last))
                {
                    return Err(Errno::INVAL);
                }
                if covered.is_empty() {
                    return Err(Errno::NOENT);
                }
                let unmapped = covered.into_iter().filter_map(|start| mappings.remove(start)).collect();
                self.generation.fetch_add(1, Ordering::Release);
                Ok(unmapped)
            }
            _ => Err(Errno::INVAL),
        }
    }

    /// Forgets everything. What is returned is dropped as that of [`Self::unmap`].
    #[must_use]
    pub(super) fn clear(&self) -> Vec<Region> {
        let all = std::mem::take(&mut *self.mappings());
        self.generation.fetch_add(1, Ordering::Release);
        all.list.into_values().filter_map(|mapping| mapping.region).collect()
    }

    /// Maps `len` bytes of a client's file from `offset` on.
    ///
    /// The file must not get shorter: an access beyond its end would end this process. So it has to be one that is sealed
    /// against that (a memfd). It is not sealed here: that waits for a write(2) to the file, which may last as long as the
    /// client likes.
    fn map_file(
        &self,
        fd: &OwnedFd,
        flags: u32,
        (offset, iova, len): (u64, u64, u64),
        socket: BorrowedFd<'_>,
    ) -> Result<Region, Errno> {
        let refuse = |why: &str, errno| {
            let hint = "use a memfd with F_SEAL_SHRINK (QEMU: memory-backend-memfd,share=on)";
            self.complaints.say(|more| tracing::warn!("memory of a client is refused: {why}; {hint}{more}"));
            errno
        };
        // First of all: only a memfd has seals. Any other file may be in a file system of the client's own, which never answers.
        let seals = rustix::fs::fcntl_get_seals(fd).unwrap_or(SealFlags::empty());
        if !seals.contains(SealFlags::SHRINK) {
            return Err(refuse("its file is not sealed against shrinking", Errno::PERM));
        }
        // Only now is the size what it will be at least.
        let stat = rustix::fs::fstat(fd)?;
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        if offset.checked_add(len).is_none_or(|end| end > size) {
            return Err(refuse("it lies beyond the end of its file", Errno::INVAL));
        }
        let (writable, bytes) = (flags & WRITE != 0, usize::try_from(len).map_err(|_| Errno::INVAL)?);
        let mut options = MmapOptions::new();
        options.offset(offset).len(bytes);
        // A huge page is mapped whole or not at all.
        let huge = rustix::fs::fstatfs(fd)?.f_type == HUGETLBFS;
        if huge && !len.is_multiple_of(u64::try_from(stat.st_blksize).unwrap_or(0)) {
            return Err(Errno::INVAL);
        }
        let map = if writable { options.map_raw(fd) } else { options.map_raw_read_only(fd) };
        let map = map.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::NOMEM))?;
        let base = NonNull::new(map.as_mut_ptr()).ok_or(Errno::NOMEM)?;
        let owner: Arc<dyn Any + Send + Sync> = if huge {
            if Arc::strong_count(&self.huge) > most_huge_mappings() {
                return Err(refuse("it has as many mappings of huge pages as it may", Errno::NOSPC));
            }
            // SAFETY: the whole mapping, which lives beside the value and is only accessed through raw pointers; the client's
            // connection is open until its mappings are gone (Function::leave).
            let watched = unsafe { Watched::new(base.as_ptr().addr(), bytes, socket.as_raw_fd()) }?;
            Arc::new(HugeMap { watched, _map: map, _counted: Arc::clone(&self.huge) })
        } else {
            Arc::new(map)
        };
        // SAFETY: a shared mapping of `bytes` bytes that lives in `owner`, writable if asked for, of a file that cannot shrink;
        // no Rust reference to its bytes is ever made.
        let region = unsafe { Region::new(iova, base, len, writable, owner) };
        Ok(if flags & READ == 0 { region.write_only() } else { region })
    }

    fn mappings(&self) -> MutexGuard<'_, Mappings> {
        self.mappings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Dma for Arc<ClientMemory> {
    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    fn regions(&self) -> Vec<Region> {
        self.mappings().list.values().filter_map(|mapping| mapping.region.clone()).collect()
    }

    fn is_pushed(&self) -> bool {
        true
    }
}

/// A mapping of huge pages. The list of what may fault is left before the mapping goes.
#[derive(Debug)]
struct HugeMap {
    watched: Watched,
    _map: MmapRaw,
    _counted: Arc<()>,
}

impl Drop for HugeMap {
    fn drop(&mut self) {
        if self.watched.is_hit() {
            tracing::error!("a client took huge pages away that its device used; its connection was ended");
        }
    }
}
