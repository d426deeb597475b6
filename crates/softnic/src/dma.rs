//! Memory as the model sees it: regions of an address space, every access translated, bounds and permission checked.
//!
//! Descriptors are 64-bit atomics (the driver polls them from another thread), packet bytes are raw copies; no Rust
//! reference to either is ever made. All `unsafe` of the crate that concerns memory is here.

use device::{DmaMapper, DmaMemory, Translation};
use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A stretch of an address space that a device can reach.
///
/// # Invariants
///
/// `base` points to `len` bytes that stay readable (and writable, if `writable`) while `owner` lives, and that nobody
/// accesses through Rust references while the device may.
#[derive(Clone)]
pub(crate) struct Region {
    iova: u64,
    len: u64,
    base: NonNull<u8>,
    readable: bool,
    writable: bool,
    _owner: Arc<dyn Any + Send + Sync>,
}

// SAFETY: plain memory behind a pointer; it is only accessed by atomics and raw copies.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// A region of `len` bytes at device address `iova`, kept alive by `owner`.
    ///
    /// # Safety
    ///
    /// `base` must point to `len` bytes that stay readable (and writable, if `writable`) while `owner` lives, and that
    /// are not accessed through Rust references while a device that has the region may access them.
    pub(crate) unsafe fn new(
        iova: u64,
        base: NonNull<u8>,
        len: u64,
        writable: bool,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        Self { iova, len, base, readable: true, writable, _owner: owner }
    }

    /// The same region, which the device may not read.
    pub(crate) fn write_only(self) -> Self {
        Self { readable: false, ..self }
    }

    /// Bytes from `iova` to the end of the region, if it lies inside.
    #[inline(always)]
    fn offset(&self, iova: u64) -> Option<u64> {
        let offset = iova.wrapping_sub(self.iova);
        (offset < self.len).then_some(offset)
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("iova", &format_args!("{:#x}", self.iova))
            .field("len", &self.len)
            .field("writable", &self.writable)
            .finish_non_exhaustive()
    }
}

/// The IOMMU behind a model: which regions its device can reach at present.
///
/// The model asks for the regions again when `generation` has changed, at the beginning of each register write and
/// (unless [`Dma::is_pushed`]) each step; whoever removes a region must afterwards wait until a step in progress has ended.
pub(crate) trait Dma: Send {
    /// Changes whenever the regions do.
    fn generation(&self) -> u64;

    /// The regions, lowest first, which must not overlap.
    fn regions(&self) -> Vec<Region>;

    /// Whether the thread that changes the regions has the model take them at once (`Model::refresh_memory`). Then no step does:
    /// a client may have thousands of regions, change them as fast as it likes, and all devices wait for a step.
    fn is_pushed(&self) -> bool {
        false
    }
}

/// The address space of an in-process device. Addresses come from a range of their own, with a gap after each region,
/// are never used twice, and never equal the pointer.
#[derive(Debug)]
pub(crate) struct AddressSpace {
    generation: AtomicU64,
    inner: Mutex<Regions>,
}

#[derive(Debug)]
struct Regions {
    next: u64,
    list: Vec<Region>,
}

/// First address handed out: above 32 bits, so that a driver that forgets the high halves is found out.
const FIRST_IOVA: u64 = 0x10_0000_0000;
/// Distance between the ranges of different devices, so that one's address means nothing to another.
const DEVICE_STRIDE: u64 = 0x4_0000_0000;
/// Alignment of each region: a huge page.
const ALIGN: u64 = 0x20_0000;

impl Default for AddressSpace {
    fn default() -> Self {
        static DEVICES: AtomicU64 = AtomicU64::new(0);
        let device = DEVICES.fetch_add(1, Ordering::Relaxed) % 64;
        let next = FIRST_IOVA + device * DEVICE_STRIDE;
        Self { generation: AtomicU64::new(1), inner: Mutex::new(Regions { next, list: Vec::new() }) }
    }
}

impl AddressSpace {
    /// Maps a region and returns its first device address.
    pub(crate) fn map(&self, memory: &Arc<DmaMemory>) -> u64 {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let len = memory.len() as u64;
        if inner.next == memory.base().as_ptr() as u64 {
            inner.next += ALIGN;
        }
        let iova = inner.next;
        inner.next = (iova + len).next_multiple_of(ALIGN) + ALIGN;
        let owner: Arc<dyn Any + Send + Sync> = Arc::clone(memory) as _;
        // SAFETY: a DmaMemory stays mapped readable and writable while a handle lives; only pointers lead into it.
        let region = unsafe { Region::new(iova, memory.base(), len, true, owner) };
        inner.list.push(region);
        self.generation.fetch_add(1, Ordering::Release);
        iova
    }

    /// Removes the region that begins at `iova`; false if there is none.
    pub(crate) fn unmap(&self, iova: u64) -> bool {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let before = inner.list.len();
        inner.list.retain(|region| region.iova != iova);
        self.generation.fetch_add(1, Ordering::Release);
        inner.list.len() != before
    }
}

impl Dma for Arc<AddressSpace> {
    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    fn regions(&self) -> Vec<Region> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).list.clone()
    }
}

/// The mapper of an in-process device: `settle` returns once the model has seen that the regions changed.
pub(crate) struct SoftMapper {
    space: Arc<AddressSpace>,
    settle: Box<dyn Fn() + Send + Sync>,
}

impl SoftMapper {
    pub(crate) fn new(space: Arc<AddressSpace>, settle: impl Fn() + Send + Sync + 'static) -> Self {
        Self { space, settle: Box::new(settle) }
    }
}

// SAFETY: the model reaches only what its address space lists; `settle` waits until a step in progress has ended and
// the model has taken the new list, so after `unmap` the region is not reached any more.
unsafe impl DmaMapper for SoftMapper {
    fn map(&self, memory: &Arc<DmaMemory>) -> device::Result<Translation> {
        let iova = self.space.map(memory);
        Ok(Translation::Linear { delta: iova.wrapping_sub(memory.base().as_ptr() as u64) })
    }

    fn unmap(&self, memory: &Arc<DmaMemory>, translation: &Translation) -> device::Result<()> {
        let iova = translation.iova(memory.base().as_ptr());
        let known = self.space.unmap(iova);
        (self.settle)();
        if known {
            Ok(())
        } else {
            Err(device::Error::unusable(
                format!("DMA address {iova:#x}"),
                "the soft NIC has no mapping that begins there",
                "unmap with the translation that map returned",
            ))
        }
    }
}

/// A model's view of its address space: the regions, cached.
pub(crate) struct Memory {
    dma: Box<dyn Dma>,
    generation: u64,
    regions: Vec<Region>,
    accesses: Cell<u64>,
}

/// Which region an access hit last: a hint for the next one.
pub(crate) type Hint = usize;

/// An address the device has no mapping for (or none for writing).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unmapped(pub(crate) u64);

impl Memory {
    pub(crate) fn new(dma: Box<dyn Dma>) -> Self {
        Self { dma, generation: 0, regions: Vec::new(), accesses: Cell::new(0) }
    }

    /// Takes the regions anew if they have changed.
    #[inline]
    pub(crate) fn refresh(&mut self) {
        let generation = self.dma.generation();
        if generation != self.generation {
            self.regions = self.dma.regions();
            self.generation = generation;
        }
    }

    /// At the beginning of a step: takes the regions anew if they have changed, or says that another thread is about to.
    #[inline]
    pub(crate) fn is_ready(&mut self) -> bool {
        if self.dma.is_pushed() {
            return !self.is_stale();
        }
        self.refresh();
        true
    }

    /// Whether the regions have changed since they were taken. One who reads a tail and then finds that they have not knows
    /// all memory that the driver had mapped before it wrote that tail.
    #[inline]
    pub(crate) fn is_stale(&self) -> bool {
        self.dma.generation() != self.generation
    }

    /// How many regions there are.
    pub(crate) fn regions(&self) -> usize {
        self.regions.len()
    }

    /// Accesses to memory since [`Self::forget_accesses`].
    pub(crate) fn accesses(&self) -> u64 {
        self.accesses.get()
    }

    pub(crate) fn forget_accesses(&mut self) {
        self.accesses.set(0);
    }

    /// The 16-byte descriptor at `iova`, for reading and writing.
    #[inline(always)]
    pub(crate) fn descriptor(&self, hint: &mut Hint, iova: u64) -> Result<Descriptor<'_>, Unmapped> {
        let (region, offset) = self.find(hint, iova)?;
        // SAFETY: offset lies inside the region (find), so the sum stays inside it.
        let at = unsafe { region.base.add(to_usize(offset)) };
        if region.len - offset < 16 || !region.readable || !region.writable || at.addr().get() & 15 != 0 {
            return Err(Unmapped(iova));
        }
        Ok(Descriptor { at, _memory: std::marker::PhantomData })
    }

    /// Copies `bytes` to `iova`, which may span adjoining regions.
    #[inline(always)]
    pub(crate) fn write(&self, hint: &mut Hint, iova: u64, bytes: &[u8]) -> Result<(), Unmapped> {
        let mut rest = bytes;
        let mut iova = iova;
        while !rest.is_empty() {
            let (region, offset) = self.find(hint, iova)?;
            if !region.writable {
                return Err(Unmapped(iova));
            }
            let n = rest.len().min(to_usize(region.len - offset));
            // SAFETY: offset lies inside the region (find).
            let to = unsafe { region.base.add(to_usize(offset)) };
            // SAFETY: n bytes fit into the region from offset on and come from a live slice; the driver has given the
            // bytes to the device, so they are private memory to neither, and the two cannot overlap.
            unsafe { std::ptr::copy_nonoverlapping(rest.as_ptr(), to.as_ptr(), n) };
            rest = &rest[n..];
            iova = iova.wrapping_add(n as u64);
        }
        Ok(())
    }

    /// Copies from `iova` into `bytes`.
    #[inline(always)]
    pub(crate) fn read(&self, hint: &mut Hint, iova: u64, bytes: &mut [u8]) -> Result<(), Unmapped> {
        let mut done = 0;
        while done < bytes.len() {
            let at = iova.wrapping_add(done as u64);
            let (region, offset) = self.find(hint, at)?;
            if !region.readable {
                return Err(Unmapped(at));
            }
            let n = (bytes.len() - done).min(to_usize(region.len - offset));
            // SAFETY: offset lies inside the region (find).
            let from = unsafe { region.base.add(to_usize(offset)) };
            let to = bytes[done..done + n].as_mut_ptr();
            // SAFETY: n bytes lie in the region from offset on, and n bytes fit into `bytes` from `done` on.
            unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, n) };
            done += n;
        }
        Ok(())
    }

    /// Stores a 32-bit word (head write-back).
    pub(crate) fn store32(&self, hint: &mut Hint, iova: u64, value: u32) -> Result<(), Unmapped> {
        let (region, offset) = self.find(hint, iova)?;
        // SAFETY: offset lies inside the region (find).
        let at = unsafe { region.base.add(to_usize(offset)) };
        if region.len - offset < 4 || !region.writable || at.addr().get() & 3 != 0 {
            return Err(Unmapped(iova));
        }
        // SAFETY: 4 bytes, aligned, inside a live region that is only accessed by atomics and raw copies.
        let word = unsafe { AtomicU32::from_ptr(at.as_ptr().cast()) };
        word.store(value.to_le(), Ordering::Release);
        Ok(())
    }

    #[inline(always)]
    fn find(&self, hint: &mut Hint, iova: u64) -> Result<(&Region, u64), Unmapped> {
        if let Some(region) = self.regions.get(*hint)
            && let Some(offset) = region.offset(iova)
        {
            self.accesses.set(self.accesses.get().wrapping_add(1));
            return Ok((region, offset));
        }
        self.search(hint, iova)
    }

    #[cold]
    fn search(&self, hint: &mut Hint, iova: u64) -> Result<(&Region, u64), Unmapped> {
        let index = self.regions.partition_point(|region| region.iova <= iova).checked_sub(1).ok_or(Unmapped(iova))?;
        let region = self.regions.get(index).ok_or(Unmapped(iova))?;
        let offset = region.offset(iova).ok_or(Unmapped(iova))?;
        *hint = index;
        self.accesses.set(self.accesses.get().wrapping_add(1));
        Ok((region, offset))
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("regions", &self.regions).finish_non_exhaustive()
    }
}

/// One descriptor in shared memory: two little-endian quadwords.
///
/// # Invariants
///
/// `at` is 16-aligned and points to 16 writable bytes of a live region.
#[derive(Clone, Copy)]
pub(crate) struct Descriptor<'m> {
    at: NonNull<u8>,
    _memory: std::marker::PhantomData<&'m Memory>,
}

impl Descriptor<'_> {
    /// Quadword 0.
    #[inline(always)]
    pub(crate) fn low(self) -> u64 {
        u64::from_le(self.word(0).load(Ordering::Relaxed))
    }

    /// Quadword 1.
    #[inline(always)]
    pub(crate) fn high(self) -> u64 {
        u64::from_le(self.word(1).load(Ordering::Relaxed))
    }

    /// Writes back both; quadword 1, which holds DD and length, becomes visible last.
    #[inline(always)]
    pub(crate) fn write_back(self, low: u64, high: u64) {
        self.word(0).store(low.to_le(), Ordering::Relaxed);
        self.write_back_high(high);
    }

    /// Writes back quadword 1 only, after everything stored before.
    #[inline(always)]
    pub(crate) fn write_back_high(self, high: u64) {
        self.word(1).store(high.to_le(), Ordering::Release);
    }

    #[inline(always)]
    fn word(&self, index: usize) -> &AtomicU64 {
        // SAFETY: index is 0 or 1, so the word lies inside the descriptor (type invariant).
        let at = unsafe { self.at.cast::<u64>().add(index & 1) };
        // SAFETY: aligned and live (type invariant), and only accessed by atomics.
        unsafe { AtomicU64::from_ptr(at.as_ptr()) }
    }
}

/// Lengths of mapped regions fit the address space of this process.
#[inline(always)]
fn to_usize(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use device::MemoryRequest;

    fn memory(bytes: usize) -> Arc<DmaMemory> {
        DmaMemory::allocate(&MemoryRequest { bytes, pages: device::PageSize::Ordinary, numa_node: None }).unwrap()
    }

    /// Regions that another thread has the model take; it counts how often they were taken.
    struct Pushed(Arc<AtomicU64>, AtomicU64);

    impl Dma for Pushed {
        fn generation(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }

        fn regions(&self) -> Vec<Region> {
            assert_eq!(self.1.fetch_add(1, Ordering::Relaxed), 0, "once, by refresh");
            Vec::new()
        }

        fn is_pushed(&self) -> bool {
            true
        }
    }

    #[test]
    fn a_step_does_not_take_regions_that_are_pushed() {
        let generation = Arc::<AtomicU64>::default();
        let mut view = Memory::new(Box::new(Pushed(Arc::clone(&generation), AtomicU64::new(0))));
        assert!(view.is_ready());
        generation.store(1, Ordering::Relaxed);
        assert!(!view.is_ready() && !view.is_ready());
        view.refresh();
        assert!(view.is_ready());
        let mut own = Memory::new(Box::new(Arc::new(AddressSpace::default())));
        assert!(own.is_stale() && own.is_ready() && !own.is_stale());
    }

    #[test]
    fn strict_addresses_are_not_pointers_and_have_gaps() {
        let space = Arc::new(AddressSpace::default());
        let (a, b) = (memory(4096), memory(8192));
        let (at_a, at_b) = (space.map(&a), space.map(&b));
        assert_ne!(at_a, a.base().as_ptr() as u64);
        assert!(at_b >= at_a + 4096 + ALIGN);
        let mut view = Memory::new(Box::new(Arc::clone(&space)));
        view.refresh();
        let (mut hint, mut byte) = (0, [0]);
        assert_eq!(view.read(&mut hint, at_a + 4096, &mut byte), Err(Unmapped(at_a + 4096)));
        assert_eq!(view.write(&mut hint, at_b + 8190, &[1, 2, 3]), Err(Unmapped(at_b + 8192)));
        view.write(&mut hint, at_a + 4095, &[7]).unwrap();
        view.read(&mut hint, at_a + 4095, &mut byte).unwrap();
        assert_eq!(byte, [7]);
        assert!(view.descriptor(&mut hint, at_a + 4096 - 8).is_err());
        assert!(view.descriptor(&mut hint, at_a + 8).is_err());
        assert!(space.unmap(at_a));
        view.refresh();
        assert!(view.read(&mut hint, at_a, &mut byte).is_err());
        assert!(!space.unmap(at_a));
    }
}
