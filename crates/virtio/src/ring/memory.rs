//! The memory that rings are cut from.

use crate::Result;
use crate::transport::QueueSetup;
use device::{DmaDomain, DmaMemory, MemoryRequest, Translation};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

/// Bytes and offsets of a virtqueue's three areas. The legacy interface fixes them for split rings, and they suit all
/// others too (Virtio 1.2, sections 2.7.2 and 2.8.10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) size: u16,
    pub(crate) packed: bool,
}

impl Layout {
    /// Where the driver area begins.
    pub(crate) fn driver(self) -> usize {
        usize::from(self.size) * DESCRIPTOR
    }

    /// Where the device area begins: on a page of its own, as the two sides write to one each.
    pub(crate) fn device(self) -> usize {
        let driver_bytes = if self.packed { EVENT } else { 6 + 2 * usize::from(self.size) };
        (self.driver() + driver_bytes).next_multiple_of(PAGE)
    }

    /// Where the device area ends.
    pub(crate) fn end(self) -> usize {
        self.device() + if self.packed { EVENT } else { 6 + 8 * usize::from(self.size) }
    }
}

/// Memory of all rings of a session, mapped for the device. No ring crosses a boundary of huge pages, since without an IOMMU
/// only a page's own bytes follow each other.
pub(crate) struct RingMemory {
    memory: Arc<DmaMemory>,
    translation: Arc<Translation>,
    used: usize,
}

impl RingMemory {
    /// Room for a ring of each of these layouts, and `more` bytes.
    pub(crate) fn allocate(dma: &DmaDomain, rings: &[Layout], more: usize, numa_node: Option<u32>) -> Result<Self> {
        let bytes = rings.iter().fold(0, |used, layout| place(used, layout.end()).1);
        let bytes = place(bytes, more).1;
        let memory = DmaMemory::allocate(&MemoryRequest { bytes, numa_node, ..MemoryRequest::default() })?;
        let translation = dma.map(&memory)?;
        Ok(Self { memory, translation, used: 0 })
    }

    /// The region.
    pub(crate) fn memory(&self) -> &Arc<DmaMemory> {
        &self.memory
    }

    /// Cuts off zeroed bytes, at a page boundary.
    ///
    /// # Panics
    ///
    /// When more is taken than was allocated: a mistake of the driver.
    pub(crate) fn cut(&mut self, bytes: usize) -> Area {
        let (start, end) = place(self.used, bytes);
        self.used = end;
        assert!(self.used <= self.memory.len(), "ring memory was sized for less");
        // SAFETY: within the region, by the assertion.
        let base = unsafe { self.memory.base().add(start) };
        let iova = self.translation.iova(base.as_ptr());
        Area { base, len: bytes, iova, _memory: Arc::clone(&self.memory) }
    }
}

/// First and last of the next `bytes` behind those that are used: within a huge page, and up to a page's end.
fn place(used: usize, bytes: usize) -> (usize, usize) {
    let bytes = bytes.next_multiple_of(PAGE);
    debug_assert!(bytes <= HUGE_PAGE, "the largest ring takes less");
    let start = if used % HUGE_PAGE + bytes > HUGE_PAGE { used.next_multiple_of(HUGE_PAGE) } else { used };
    (start, start + bytes)
}

/// A part of ring memory.
///
/// # Invariants
///
/// `base` points to `len` bytes, 4096-aligned, that the region keeps mapped and that nobody else was given.
pub(crate) struct Area {
    base: NonNull<u8>,
    len: usize,
    iova: u64,
    _memory: Arc<DmaMemory>,
}

// SAFETY: plain memory that is accessed through atomics only, and owned through the handle.
unsafe impl Send for Area {}

impl Area {
    /// The address at which the device sees the first byte.
    pub(crate) fn iova(&self) -> u64 {
        self.iova
    }

    /// A pointer to what lies at `offset`.
    ///
    /// # Panics
    ///
    /// When `count` of them do not fit: a mistake of the driver.
    pub(crate) fn at<T>(&self, offset: usize, count: usize) -> NonNull<T> {
        assert!(offset + count * size_of::<T>() <= self.len, "beyond the area");
        assert!(offset.is_multiple_of(align_of::<T>()), "not aligned");
        // SAFETY: within the area.
        unsafe { self.base.add(offset) }.cast()
    }

    /// What a transport has to know of a queue that lies here.
    pub(crate) fn setup(&self, layout: Layout) -> QueueSetup {
        QueueSetup {
            size: layout.size,
            descriptors: self.iova,
            driver: self.iova + layout.driver() as u64,
            device: self.iova + layout.device() as u64,
            bytes: layout.end(),
            packed: layout.packed,
            vector: None,
        }
    }
}

impl fmt::Debug for Area {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Area").field("len", &self.len).finish_non_exhaustive()
    }
}

const PAGE: usize = 4096;
const HUGE_PAGE: usize = 2 << 20;
const DESCRIPTOR: usize = 16;
/// An event suppression structure.
const EVENT: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_follow_each_other_and_cross_no_huge_page() {
        let largest = Layout { size: 32_768, packed: false }.end();
        assert!(largest <= HUGE_PAGE);
        assert_eq!(place(0, 1), (0, PAGE));
        assert_eq!(place(PAGE, largest), (PAGE, PAGE + largest.next_multiple_of(PAGE)));
        assert_eq!(place(HUGE_PAGE - PAGE, PAGE), (HUGE_PAGE - PAGE, HUGE_PAGE));
        assert_eq!(place(HUGE_PAGE - PAGE, PAGE + 1), (HUGE_PAGE, HUGE_PAGE + 2 * PAGE));
    }
}
