//! The memory that rings are cut from.

use crate::Result;
use crate::transport::QueueSetup;
use device::{DmaDomain, DmaMemory, MemoryRequest, Translation};
use std::fmt;
use std::ops::Range;
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

/// Memory of all rings of a session, mapped for the device. No part crosses a boundary of huge pages, since without an IOMMU
/// only a page's own bytes follow each other.
pub(crate) struct RingMemory {
    /// The region.
    pub(crate) memory: Arc<DmaMemory>,
    /// A page of zeros, for headers that ask for nothing.
    pub(crate) zeros: Area,
    /// A page for commands.
    pub(crate) commands: Area,
    /// One for each layout, in order.
    pub(crate) rings: Vec<Area>,
}

impl RingMemory {
    /// Zeroed memory for a ring of each of these layouts.
    pub(crate) fn allocate(dma: &DmaDomain, rings: &[Layout], numa_node: Option<u32>) -> Result<Self> {
        let sizes = [PAGE, PAGE].into_iter().chain(rings.iter().map(|layout| layout.end()));
        // The same places say how much memory there is, and where its parts are.
        let places = place_all(sizes);
        let bytes = places.last().map_or(0, |place| place.end);
        let memory = DmaMemory::allocate(&MemoryRequest { bytes, numa_node, ..MemoryRequest::default() })?;
        let translation = dma.map(&memory)?;
        let mut areas = places.into_iter().map(|place| Area::of(&memory, &translation, place));
        let (Some(zeros), Some(commands)) = (areas.next(), areas.next()) else {
            let problem = "has no pages for headers and commands";
            return Err(device::Error::unusable("ring memory", problem, "this is a mistake of the driver").into());
        };
        let rings = areas.collect();
        Ok(Self { memory, zeros, commands, rings })
    }
}

/// Where parts of these sizes lie that follow each other: each on pages of its own, within a huge page.
fn place_all(sizes: impl Iterator<Item = usize>) -> Vec<Range<usize>> {
    let mut used = 0;
    let place = |bytes| {
        let place = place(used, bytes);
        used = place.end;
        place
    };
    sizes.map(place).collect()
}

/// The place of the next `bytes` behind those that are used: within a huge page, and up to a page's end.
fn place(used: usize, bytes: usize) -> Range<usize> {
    let bytes = bytes.next_multiple_of(PAGE);
    debug_assert!(bytes <= HUGE_PAGE, "the largest ring takes less");
    let start = if used % HUGE_PAGE + bytes > HUGE_PAGE { used.next_multiple_of(HUGE_PAGE) } else { used };
    start..start + bytes
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
    /// # Panics
    ///
    /// When the region does not have that place: a mistake of the driver.
    fn of(memory: &Arc<DmaMemory>, translation: &Translation, place: Range<usize>) -> Self {
        assert!(place.end <= memory.len(), "ring memory was sized for less");
        // SAFETY: within the region, by the assertion.
        let base = unsafe { memory.base().add(place.start) };
        let iova = translation.iova(base.as_ptr());
        Self { base, len: place.len(), iova, _memory: Arc::clone(memory) }
    }

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
        assert_eq!(place(0, 1), 0..PAGE);
        assert_eq!(place(PAGE, largest), PAGE..PAGE + largest.next_multiple_of(PAGE));
        assert_eq!(place(HUGE_PAGE - PAGE, PAGE), HUGE_PAGE - PAGE..HUGE_PAGE);
        assert_eq!(place(HUGE_PAGE - PAGE, PAGE + 1), HUGE_PAGE..HUGE_PAGE + 2 * PAGE);
    }

    #[test]
    fn p10_places_of_any_number_of_rings_are_apart_and_whole() {
        for packed in [false, true] {
            for size in (3..=15).map(|power| 1 << power).filter(|size| !packed || *size <= 1 << 14) {
                for rings in 0..130 {
                    let layouts = std::iter::repeat_n(Layout { size, packed }.end(), rings);
                    let places = place_all([PAGE, PAGE].into_iter().chain(layouts));
                    assert!(places.windows(2).all(|pair| pair[0].end <= pair[1].start));
                    for place in places {
                        assert_eq!(place.start / HUGE_PAGE, (place.end - 1) / HUGE_PAGE, "{rings} rings of {size}");
                    }
                }
            }
        }
    }
}
