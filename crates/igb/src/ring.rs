//! Descriptor rings: where they lie, and what becomes of them when their queue is dropped.

use crate::Result;
use crate::desc::{DESCRIPTOR_BYTES, Descriptor};
use crate::regs::Registers;
use device::{Device, DmaDomain, DmaMemory, EventFd, MemoryRequest, Translation};
use mempool::Packet;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The memory that all rings of a port are cut from.
pub(crate) struct RingMemory {
    memory: Arc<DmaMemory>,
    translation: Arc<Translation>,
    used: usize,
}

impl RingMemory {
    /// Room for one ring of each of these numbers of descriptors.
    pub(crate) fn allocate(dma: &DmaDomain, rings: &[usize], numa_node: Option<u32>) -> Result<Self> {
        // Each ring is aligned to its own size, so that none crosses a page that is larger.
        let bytes = rings.iter().map(|descriptors| descriptors * DESCRIPTOR_BYTES * 2).sum();
        let memory = DmaMemory::allocate(&MemoryRequest { bytes, numa_node, ..MemoryRequest::default() })?;
        let translation = dma.map(&memory)?;
        Ok(Self { memory, translation, used: 0 })
    }

    /// Cuts off a ring of `descriptors`, a power of two, all zero.
    ///
    /// # Panics
    ///
    /// When more is taken than was allocated: a mistake of the driver.
    pub(crate) fn cut(&mut self, descriptors: usize) -> Ring {
        let bytes = descriptors * DESCRIPTOR_BYTES;
        let start = self.used.next_multiple_of(bytes);
        assert!(descriptors.is_power_of_two() && start + bytes <= self.memory.len(), "ring memory was sized for less");
        self.used = start + bytes;
        // SAFETY: within the region, by the assertion.
        let base = unsafe { self.memory.base().add(start) };
        let iova = self.translation.iova(base.as_ptr());
        Ring { base: base.cast(), mask: descriptors - 1, iova, memory: Arc::clone(&self.memory) }
    }
}

/// A ring of descriptors, shared with the device.
///
/// # Invariants
///
/// `base` points to `mask + 1` (a power of two) descriptors, 16-aligned, in memory that `memory` keeps mapped; nothing
/// but [`Descriptor`]'s atomics accesses them on this side.
pub(crate) struct Ring {
    base: NonNull<Descriptor>,
    mask: usize,
    iova: u64,
    memory: Arc<DmaMemory>,
}

// SAFETY: descriptors are atomics, and the memory is owned through `memory`.
unsafe impl Send for Ring {}
// SAFETY: as above.
unsafe impl Sync for Ring {}

impl Ring {
    /// Number of descriptors.
    #[inline(always)]
    pub(crate) fn size(&self) -> usize {
        self.mask + 1
    }

    /// What leaves of any number the index of a descriptor: the size, less one.
    #[inline(always)]
    pub(crate) fn mask(&self) -> usize {
        self.mask
    }

    /// The address at which the device sees the ring.
    pub(crate) fn iova(&self) -> u64 {
        self.iova
    }

    /// Descriptor `index` modulo the size.
    #[inline(always)]
    pub(crate) fn at(&self, index: usize) -> &Descriptor {
        // SAFETY: masked, so within the ring.
        let descriptor = unsafe { self.base.add(index & self.mask) };
        // SAFETY: valid and accessed only as atomics (type invariant).
        unsafe { descriptor.as_ref() }
    }

    /// The descriptors from `index` modulo the size to the end of the ring.
    #[inline(always)]
    pub(crate) fn from(&self, index: usize) -> &[Descriptor] {
        let first = index & self.mask;
        // SAFETY: masked, so within the ring.
        let start = unsafe { self.base.add(first) };
        // SAFETY: as many are left, valid and accessed only as atomics (type invariant).
        unsafe { std::slice::from_raw_parts(start.as_ptr(), self.size() - first) }
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("size", &self.size()).finish_non_exhaustive()
    }
}

/// The memory of a ring whose queue is gone, with the packets that were in it. Dropping it frees nothing, so that whatever
/// goes wrong on the way, nothing is freed that the device may still reach.
pub(crate) struct Parked {
    kept: ManuallyDrop<(Arc<DmaMemory>, Vec<Packet>)>,
}

impl Parked {
    pub(crate) fn push(&mut self, packet: Packet) {
        self.kept.1.push(packet);
    }

    /// Frees both: the device is quiet.
    fn free(self) {
        drop(ManuallyDrop::into_inner(self.kept));
    }
}

/// What a port and its queues share: the device, whether it is quiet, and rings that wait for that.
///
/// When the last of them is dropped and the device was never seen to be quiet, the device, its mappings and the parked
/// rings stay for ever (rule leak-if-unsure).
pub(crate) struct Shared<D: Device> {
    pub(crate) regs: Registers<D>,
    /// Of each receive queue, and the last of all other causes; none if interrupts are off.
    vectors: Vec<EventFd>,
    closed: AtomicBool,
    quiet: AtomicBool,
    parked: Mutex<Vec<Parked>>,
}

impl<D: Device> Shared<D> {
    /// For a device that has bus mastering off.
    pub(crate) fn new(regs: Registers<D>, vectors: Vec<EventFd>) -> Self {
        let (closed, quiet) = (AtomicBool::new(false), AtomicBool::new(true));
        Self { regs, vectors, closed, quiet, parked: Mutex::default() }
    }

    /// The vector of a receive queue.
    pub(crate) fn queue_vector(&self, queue: u32) -> Option<&EventFd> {
        let (_, queues) = self.vectors.split_last()?;
        queues.get(queue as usize)
    }

    /// The vector of all other causes.
    pub(crate) fn other_vector(&self) -> Option<&EventFd> {
        self.vectors.last()
    }

    /// Wakes everybody who waits: nothing will come any more.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.vectors.iter().for_each(EventFd::signal);
    }

    /// Whether the port is closed, if not quiet.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Lets the device access memory.
    pub(crate) fn begin_dma(&self) -> Result<()> {
        self.quiet.store(false, Ordering::Release);
        Ok(self.regs.device().set_bus_master(true)?)
    }

    /// Takes memory access from the device, for good, and frees the rings that waited for it.
    pub(crate) fn end_dma(&self) -> Result<()> {
        let device = self.regs.device();
        // Either is the device's word that it accesses memory no more (see the trait).
        device.set_bus_master(false).or_else(|_| device.reset())?;
        self.quiet.store(true, Ordering::Release);
        let parked = std::mem::take(&mut *self.parked.lock().unwrap_or_else(PoisonError::into_inner));
        parked.into_iter().for_each(Parked::free);
        Ok(())
    }

    /// Whether the device accesses memory no more: its port is closed.
    #[inline(always)]
    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet.load(Ordering::Relaxed)
    }

    /// What a queue that is dropped puts its ring and up to `packets` packets into.
    pub(crate) fn parking(&self, ring: &Ring, packets: usize) -> Parked {
        Parked { kept: ManuallyDrop::new((Arc::clone(&ring.memory), Vec::with_capacity(packets))) }
    }

    /// Takes over what a dropped queue had, and frees it as soon as the device is quiet.
    pub(crate) fn park(&self, queue: Parked) {
        let mut parked = self.parked.lock().unwrap_or_else(PoisonError::into_inner);
        if self.quiet.load(Ordering::Acquire) {
            drop(parked);
            queue.free();
        } else {
            parked.push(queue);
        }
    }
}

impl<D: Device> Drop for Shared<D> {
    fn drop(&mut self) {
        if !*self.quiet.get_mut() {
            // First of all, as the log may panic: parked rings are kept by being dropped.
            std::mem::forget(Arc::clone(self.regs.device()));
            let rings = self.parked.get_mut().unwrap_or_else(PoisonError::into_inner).len();
            let name = self.regs.device().name();
            tracing::error!("{name}: not known to be quiet; the device and {rings} rings are kept for ever");
        }
    }
}

impl<D: Device> fmt::Debug for Shared<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shared({})", self.regs.device().name())
    }
}
