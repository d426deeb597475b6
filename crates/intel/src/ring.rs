//! Descriptor rings: where they lie, and what becomes of them when their queue is dropped.

use crate::desc::{DESCRIPTOR_BYTES, Descriptor};
use crate::family::{QueueRegisters, Step};
use crate::wait::{Timed, wait};
use crate::{Family, Result};
use device::{Device, DmaMemory, EventFd, MemoryRequest, Regs, Translation};
use ethdev::PortConfig;
use mempool::{CHUNK, Packet, Pool};
use std::collections::BTreeSet;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The memory that all rings of a port are cut from.
pub struct RingMemory<F: Family, D: Device> {
    pub(crate) shared: Arc<Shared<F, D>>,
    memory: Arc<DmaMemory>,
    translation: Arc<Translation>,
    used: usize,
}

impl<F: Family, D: Device> RingMemory<F, D> {
    fn allocate(shared: &Arc<Shared<F, D>>, port: &PortConfig) -> Result<Self> {
        let device = shared.regs.device();
        // Each ring is aligned to its own size, so that none crosses a page that is larger.
        let descriptors = [(port.rx_ring, port.rx_queues), (port.tx_ring, port.tx_queues)]
            .map(|(ring, queues)| usize::from(ring) * usize::from(queues));
        let bytes = descriptors.iter().sum::<usize>() * DESCRIPTOR_BYTES * 2;
        let request = MemoryRequest { bytes, numa_node: device.numa_node(), ..MemoryRequest::default() };
        let memory = DmaMemory::allocate(&request)?;
        let translation = device.dma().map(&memory)?;
        Ok(Self { shared: Arc::clone(shared), memory, translation, used: 0 })
    }

    /// Cuts off a ring of `descriptors`, all zero.
    ///
    /// # Panics
    ///
    /// When the number is no power of two from 64 to 4096, or more is taken than was allocated: a mistake of the driver.
    pub(crate) fn cut(&mut self, descriptors: usize) -> Ring {
        assert!(descriptors.is_power_of_two() && (2 * CHUNK..=MOST).contains(&descriptors), "not the size of a ring");
        let bytes = descriptors * DESCRIPTOR_BYTES;
        let start = self.used.next_multiple_of(bytes);
        assert!(start + bytes <= self.memory.len(), "ring memory was sized for less");
        self.used = start + bytes;
        // SAFETY: within the region, by the assertion.
        let base = unsafe { self.memory.base().add(start) };
        let iova = self.translation.iova(base.as_ptr());
        Ring { base: base.cast(), mask: descriptors - 1, iova, memory: Arc::clone(&self.memory) }
    }
}

impl<F: Family, D: Device> fmt::Debug for RingMemory<F, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingMemory").field("used", &self.used).finish_non_exhaustive()
    }
}

/// Most descriptors in a ring.
const MOST: usize = 4096;

/// A ring of descriptors, shared with the device.
///
/// # Invariants
///
/// `base` points to `mask + 1` (a power of two from 64 to 4096) descriptors, 16-aligned, in memory that `memory` keeps mapped; nothing
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

    /// What tells the device that the ring is that of queue `index`, and empty.
    pub(crate) fn place<F: Family, D: Device>(
        &self,
        regs: &Regs<F, D>,
        of: &QueueRegisters<F>,
        index: u32,
    ) -> Vec<Step<F>> {
        let bytes = (self.size() * DESCRIPTOR_BYTES) as u64;
        let [low, high, len] = [self.iova, self.iova >> 32, bytes].map(low_half);
        let control = regs.read(of.control.at(index));
        // Queue 0 of an 82576 is enabled after a reset, and may not read so.
        let first =
            (F::RECEIVER_FIRST || of.enable.is_set(control)).then(|| (of.control.at(index), of.enable.set(control, 0)));
        let place = [
            (of.base_low.at(index), low),
            (of.base_high.at(index), high),
            (of.length.at(index), len),
            (of.head.at(index), 0),
            (of.tail.at(index), 0),
        ];
        first.into_iter().chain(place).collect()
    }

    /// Descriptor `index` modulo the size.
    #[inline(always)]
    pub(crate) fn at(&self, index: usize) -> &Descriptor {
        // SAFETY: valid and accessed only as atomics (type invariant).
        unsafe { &*self.pointer(index) }
    }

    /// Where descriptor `index` modulo the size lies.
    #[inline(always)]
    pub(crate) fn pointer(&self, index: usize) -> *const Descriptor {
        // SAFETY: masked, so within the ring.
        unsafe { self.base.add(index & self.mask) }.as_ptr()
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("size", &self.size()).finish_non_exhaustive()
    }
}

/// How long a queue may take to start: the datasheet has software poll (82599 4.6.7, 4.6.8), and Intel's drivers do for 10 ms.
pub(crate) const START_LIMIT: Duration = Duration::from_millis(50);
/// How long it may take to stop (82599 4.6.7.1.2), with descriptors and data under way on a bus that is busy; Intel's drivers poll for 10 ms.
const STOP_LIMIT: Duration = Duration::from_millis(100);

/// Disables queue `index` and waits until the device has left it.
pub(crate) fn disable<F: Family, D: Device>(
    regs: &Timed<F, D>,
    of: &QueueRegisters<F>,
    index: u32,
    waiting_for: &'static str,
) -> Result<()> {
    let (control, enable) = (of.control.at(index), of.enable);
    let value = regs.read(control);
    // SAFETY: disabling takes memory away from the device.
    unsafe { regs.write_dma(control, enable.set(value, 0)) };
    wait(regs, control, |value| !enable.is_set(value), STOP_LIMIT, waiting_for).map(drop)
}

#[expect(clippy::cast_possible_truncation, reason = "registers take 32 bits at a time")]
pub(crate) const fn low_half(value: u64) -> u32 {
    value as u32
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
///
/// Safe code makes none, as who turned bus mastering on behind its back would give the device memory that is free:
///
/// ```compile_fail,E0133
/// fn share<F: intel::Family, D: device::Device>(regs: device::Regs<F, D>) -> intel::Shared<F, D> {
///     intel::Shared::new(regs, Vec::new())
/// }
/// ```
pub struct Shared<F: Family, D: Device> {
    pub(crate) regs: Regs<F, D>,
    /// Of each receive queue, and the last of all other causes; none if interrupts are off.
    vectors: Vec<EventFd>,
    closed: AtomicBool,
    quiet: AtomicBool,
    waiting: Mutex<Waiting>,
}

/// Rings that wait until the device is quiet.
#[derive(Default)]
struct Waiting {
    parked: Vec<Parked>,
    /// The device is to access memory no more.
    ended: bool,
    /// Numbers of the receive and of the transmit queues that were started, which they stay when they are dropped.
    started: [BTreeSet<u32>; 2],
}

/// Which way a queue goes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Side {
    Receive,
    Transmit,
}

impl<F: Family, D: Device> Shared<F, D> {
    /// For a device that has interrupts by `vectors`: one for each receive queue, and one for all other causes; or none.
    ///
    /// # Safety
    ///
    /// Bus mastering is off, and the device has been reset since it was on. From here on, nothing but this value turns it on.
    #[must_use]
    pub unsafe fn new(regs: Regs<F, D>, vectors: Vec<EventFd>) -> Self {
        let (closed, quiet) = (AtomicBool::new(false), AtomicBool::new(true));
        Self { regs, vectors, closed, quiet, waiting: Mutex::default() }
    }

    /// Returns the registers.
    #[must_use]
    pub fn regs(&self) -> &Regs<F, D> {
        &self.regs
    }

    /// Returns the vector of a receive queue.
    #[must_use]
    pub fn queue_vector(&self, queue: u32) -> Option<&EventFd> {
        let (_, queues) = self.vectors.split_last()?;
        queues.get(queue as usize)
    }

    /// Returns the vector of all other causes.
    #[must_use]
    pub fn other_vector(&self) -> Option<&EventFd> {
        self.vectors.last()
    }

    /// Wakes everybody who waits: nothing will come any more.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.vectors.iter().for_each(EventFd::signal);
    }

    /// Whether the port is closed, if not quiet.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Lets the device access memory: `pool`, and the memory that is returned, of the rings of all queues.
    ///
    /// # Errors
    ///
    /// If there is no such memory, one or the other cannot be mapped for the device, or bus mastering cannot be turned on, as after
    /// [`Self::end_dma`].
    pub fn begin_dma(self: &Arc<Self>, config: &F::Config, pool: &Pool) -> Result<RingMemory<F, D>> {
        let memory = RingMemory::allocate(self, F::port(config))?;
        self.regs.device().dma().map(pool.memory())?;
        let waiting = self.waiting();
        let device = self.regs.device();
        if waiting.ended {
            return Err(device::Error::unusable(device.name(), "it was stopped", "open it again").into());
        }
        self.quiet.store(false, Ordering::Release);
        device.set_bus_master(true)?;
        Ok(memory)
    }

    /// Takes memory access from the device, for good, and frees the rings that waited for it.
    ///
    /// # Errors
    ///
    /// If neither turning bus mastering off nor a reset succeeds.
    pub fn end_dma(&self) -> Result<()> {
        self.waiting().ended = true;
        let device = self.regs.device();
        // Either is the device's word that it accesses memory no more (see the trait).
        device.set_bus_master(false).or_else(|_| device.reset())?;
        self.quiet.store(true, Ordering::Release);
        let parked = std::mem::take(&mut self.waiting().parked);
        parked.into_iter().for_each(Parked::free);
        Ok(())
    }

    /// Notes that a queue is started. Two handles of one would share its doorbell, and show the device each other's descriptors.
    ///
    /// # Errors
    ///
    /// If it was started before.
    pub(crate) fn claim(&self, side: Side, index: u32) -> Result<()> {
        if self.waiting().started[side as usize].insert(index) {
            return Ok(());
        }
        let what = if let Side::Receive = side { "receive" } else { "transmit" };
        let cause = format!("its {what} queue {index} was started before");
        Err(device::Error::unusable(self.regs.device().name(), cause, "open it again").into())
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
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
        let mut waiting = self.waiting();
        if self.quiet.load(Ordering::Acquire) {
            drop(waiting);
            queue.free();
        } else {
            waiting.parked.push(queue);
        }
    }
}

impl<F: Family, D: Device> Drop for Shared<F, D> {
    fn drop(&mut self) {
        if !*self.quiet.get_mut() {
            // First of all, as the log may panic: parked rings are kept by being dropped.
            std::mem::forget(Arc::clone(self.regs.device()));
            let rings = self.waiting.get_mut().unwrap_or_else(PoisonError::into_inner).parked.len();
            let name = self.regs.device().name();
            tracing::error!("{name}: not known to be quiet; the device and {rings} rings are kept for ever");
        }
    }
}

impl<F: Family, D: Device> fmt::Debug for Shared<F, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shared({})", self.regs.device().name())
    }
}
