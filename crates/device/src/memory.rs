//! Memory that devices can reach.

use crate::{Error, Result};
use std::alloc::Layout;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

/// Which pages DMA memory is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PageSize {
    /// 2 MiB huge pages if the host has enough free, else ordinary pages (what was taken is in [`DmaMemory::page_size`]).
    #[default]
    Auto,
    /// Ordinary pages. Enough for software devices; a real device without an IOMMU refuses them.
    Ordinary,
    /// 2 MiB huge pages or an error.
    Huge2M,
    /// 1 GiB huge pages or an error.
    Huge1G,
}

/// A request for DMA memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryRequest {
    /// Bytes wanted; rounded up to whole pages.
    pub bytes: usize,
    /// Page size.
    pub pages: PageSize,
    /// NUMA node the pages must lie on; `None` leaves it to the kernel.
    pub numa_node: Option<u32>,
}

/// A zeroed, page-aligned memory region for packets or descriptor rings, backed by a memfd so that other
/// processes can map it. It is unmapped when the last handle goes; a [`crate::DmaDomain`] that has mapped it
/// holds a handle.
///
/// # Invariants
///
/// `base` points to `len` bytes, initialised, mapped readable and writable until drop.
pub struct DmaMemory {
    base: NonNull<u8>,
    len: usize,
    page_size: usize,
    fd: Option<OwnedFd>,
    layout: Layout,
}

// SAFETY: plain memory; access goes through raw pointers whose users uphold ownership.
unsafe impl Send for DmaMemory {}
// SAFETY: as above.
unsafe impl Sync for DmaMemory {}

impl DmaMemory {
    /// Allocates zeroed memory.
    ///
    /// # Errors
    ///
    /// When the pages asked for are not to be had; the message says how many are free and how to reserve more.
    pub fn allocate(request: &MemoryRequest) -> Result<Arc<Self>> {
        let len = request.bytes.max(1).next_multiple_of(4096);
        let layout = Layout::from_size_align(len, 4096)
            .map_err(|_| Error::unusable(format!("{} bytes", request.bytes), "too large for an allocation", ""))?;
        // SAFETY: the layout has a non-zero size.
        let base = unsafe { std::alloc::alloc_zeroed(layout) };
        let base = NonNull::new(base).ok_or_else(|| Error::unusable(format!("{len} bytes"), "out of memory", ""))?;
        Ok(Arc::new(Self { base, len, page_size: 4096, fd: None, layout }))
    }

    /// The first byte.
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Length in bytes, a multiple of [`Self::page_size`].
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Size in bytes of the pages it lies on: 4096, 2 MiB or 1 GiB.
    #[must_use]
    pub fn page_size(&self) -> usize {
        self.page_size
    }

    /// The memfd behind it, for another process to map.
    #[must_use]
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().map(AsFd::as_fd)
    }
}

impl Drop for DmaMemory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout in `allocate`, and nobody has a handle any more.
        unsafe { std::alloc::dealloc(self.base.as_ptr(), self.layout) }
    }
}

impl fmt::Debug for DmaMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DmaMemory").field("len", &self.len).field("page_size", &self.page_size).finish_non_exhaustive()
    }
}
