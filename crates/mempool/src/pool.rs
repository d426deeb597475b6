//! The pool: its memory, and the queue through which threads exchange slots.

use crate::uses::{ONE_HANDLE, ONE_SLOT, Registry, Uses};
use crate::{CHUNK, Meta, Packet, PoolCache, Slot};
use crossbeam_queue::ArrayQueue;
use device::{DmaMemory, MemoryRequest, PageSize};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

/// The largest number of pools that can exist at once in a process.
pub const MAX_POOLS: usize = 4096;

const CACHE_LINE: usize = 64;

/// The sizes of a pool and where its memory is.
#[derive(Clone, Copy, Debug)]
pub struct PoolConfig {
    /// Number of slots, 1 to 16,777,216; default 4096. A receive ring holds as many slots as it has descriptors, and
    /// each [`PoolCache`] keeps up to an eighth of the pool (at least 32, at most 512) out of reach of other threads,
    /// so plan for the sum of the rings and the caches.
    pub slots: usize,
    /// Bytes for packet data in a slot, 64 at least; default 2048, enough for a standard frame with a VLAN tag. Larger
    /// frames arrive in several packets.
    pub data_room: u16,
    /// Bytes before the data of a received or new packet, for headers to be put in front; default 128.
    pub headroom: u16,
    /// The page size of its memory; default [`PageSize::Auto`].
    pub pages: PageSize,
    /// The NUMA node of its memory; the node of the receiving NIC is best. Default `None`.
    pub numa_node: Option<u32>,
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self { slots: 4096, data_room: 2048, headroom: 128, pages: PageSize::Auto, numa_node: None }
    }
}

/// Why a pool cannot be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A size is out of range.
    #[error("packet pool: {what} is {value}; it must be {range}")]
    Config {
        /// The parameter.
        what: &'static str,
        /// Its value.
        value: usize,
        /// The values it may have.
        range: &'static str,
    },
    /// Too many pools exist at once.
    #[error(
        "packet pool: {MAX_POOLS} pools exist already; drop one that is not needed, and the transmit queues that have sent from it"
    )]
    TooMany,
    /// The memory cannot be allocated.
    #[error("packet pool: {0}")]
    Memory(#[from] device::Error),
}

/// Up to [`CHUNK`] slots on their way between threads.
#[derive(Clone, Copy)]
pub(crate) struct Chunk {
    len: usize,
    slots: [Option<Slot>; CHUNK],
}

impl Chunk {
    /// A chunk of the first [`CHUNK`] of `slots`.
    pub(crate) fn of(slots: &[Slot]) -> Self {
        let mut chunk = Self { len: 0, slots: [None; CHUNK] };
        for (place, slot) in chunk.slots.iter_mut().zip(slots) {
            *place = Some(*slot);
            chunk.len += 1;
        }
        chunk
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Slot> + '_ {
        self.slots.iter().take(self.len).filter_map(|slot| *slot)
    }
}

/// The shared part of a pool.
///
/// # Invariants
///
/// * Every slot of the region is in exactly one place: `chunks`, `singles`, a cache, or a [`Packet`] or ring.
/// * `uses` counts handles and slots that are not in `chunks` or `singles`. Whoever gives up the last frees the pool; so a
///   holder of a handle or of a slot may dereference it.
/// * `POOLS` leads from `id` to here for the pool's whole life.
pub(crate) struct Inner {
    pub(crate) id: u16,
    pub(crate) headroom: u16,
    /// Head room and data room.
    pub(crate) slot_bytes: u16,
    slots: usize,
    memory: Arc<DmaMemory>,
    chunks: ArrayQueue<Chunk>,
    singles: ArrayQueue<Slot>,
    uses: Uses,
}

/// Where a packet finds its pool.
#[cfg(not(loom))]
static POOLS: Registry<Inner, MAX_POOLS> = Registry::new();
#[cfg(loom)]
loom::lazy_static! {
    static ref POOLS: Registry<Inner, MAX_POOLS> = Registry::new();
}

impl Inner {
    /// Puts slots home and gives up the uses that went with them.
    ///
    /// # Safety
    ///
    /// The caller owned these slots of this pool, and gives them up; `inner` is dangling afterwards unless the
    /// caller has another use.
    pub(crate) unsafe fn put_home(inner: NonNull<Self>, slots: &[Slot]) {
        // SAFETY: the slots are uses, so the pool lives until `release` below.
        let this = unsafe { inner.as_ref() };
        for some in slots.chunks(CHUNK) {
            if some.len() > 1 && this.chunks.push(Chunk::of(some)).is_ok() {
                continue;
            }
            for slot in some {
                // The queue has a place for every slot of the pool.
                let pushed = this.singles.push(*slot);
                debug_assert!(pushed.is_ok(), "a slot came home twice");
            }
        }
        // SAFETY: the caller's slots are the uses given up here.
        unsafe { Self::release(inner, ONE_SLOT * slots.len() as u64) }
    }

    /// Gives up uses, and frees the pool if they were the last.
    ///
    /// # Safety
    ///
    /// The caller owned `uses` and gives them up.
    unsafe fn release(inner: NonNull<Self>, uses: u64) {
        // SAFETY: the caller's uses keep the pool alive up to this subtraction.
        let counter = unsafe { &inner.as_ref().uses };
        if counter.give_up(uses) {
            // SAFETY: that was the last use, and the pointer came from `Box::into_raw`.
            let inner = unsafe { Box::from_raw(inner.as_ptr()) };
            POOLS.clear(inner.id);
        }
    }

    /// Takes up to [`CHUNK`] slots out of the shared queue. The caller must hold a handle or a slot.
    pub(crate) fn take_chunk(&self) -> Option<Chunk> {
        let chunk = self.chunks.pop().or_else(|| {
            let mut slots = [None; CHUNK];
            let mut len = 0;
            while len < CHUNK {
                let Some(slot) = self.singles.pop() else { break };
                slots[len] = Some(slot);
                len += 1;
            }
            (len > 0).then_some(Chunk { len, slots })
        })?;
        self.uses.add(ONE_SLOT * chunk.len as u64);
        Some(chunk)
    }

    /// The pool with this id.
    ///
    /// # Safety
    ///
    /// The caller holds a slot of that pool.
    #[inline]
    pub(crate) unsafe fn of(id: u16) -> NonNull<Self> {
        let inner = POOLS.get(id);
        // SAFETY: the caller's slot keeps the pool alive, so its entry is set.
        unsafe { NonNull::new_unchecked(inner) }
    }
}

/// A handle of a pool of packet buffers, cheap to clone. The memory is freed once the last handle is dropped and the
/// last slot is back. A transmit queue keeps a handle of each pool that it has sent from, until it is dropped.
pub struct Pool {
    inner: NonNull<Inner>,
}

// SAFETY: all shared state is in lock-free queues and atomics.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

impl Pool {
    /// Allocates a pool.
    ///
    /// # Errors
    ///
    /// If a size is out of range (a slot is at most 65,535 bytes), or memory of the requested kind is not available.
    pub fn new(config: &PoolConfig) -> Result<Self, Error> {
        let PoolConfig { slots, data_room, headroom, pages, numa_node } = *config;
        if slots == 0 || slots > 1 << 24 {
            return Err(Error::Config {
                what: "the number of slots",
                value: slots,
                range: "1 to 16,777,216 (of a program: fewer ports, queues or descriptors)",
            });
        }
        if data_room < 64 {
            return Err(Error::Config { what: "the data room", value: data_room.into(), range: "64 bytes or more" });
        }
        let Some(slot_bytes) = headroom.checked_add(data_room) else {
            let value = usize::from(headroom) + usize::from(data_room);
            return Err(Error::Config { what: "head room plus data room", value, range: "at most 65,535 bytes" });
        };
        // An odd number of cache lines spreads the packets' first lines over all cache sets.
        let stride = (usize::from(slot_bytes).div_ceil(CACHE_LINE) | 1) * CACHE_LINE;
        let bytes = bytes_for(slots, stride, 2 << 20);
        let memory = DmaMemory::allocate(&MemoryRequest { bytes, pages, numa_node })?;
        let per_page = slots_per_page(stride, 2 << 20);

        let chunks = ArrayQueue::new(slots.div_ceil(CHUNK) * 2);
        let singles = ArrayQueue::new(slots);
        let mut chunk = Vec::with_capacity(CHUNK);
        for index in 0..slots {
            let offset = (index / per_page) * (2 << 20) + (index % per_page) * stride;
            // SAFETY: `bytes_for` made the region large enough for every slot.
            chunk.push(Slot(unsafe { memory.base().add(offset) }));
            if chunk.len() == CHUNK || index + 1 == slots {
                let pushed = chunks.push(Chunk::of(&chunk));
                debug_assert!(pushed.is_ok(), "room for twice as many");
                chunk.clear();
            }
        }
        let inner = Box::into_raw(Box::new(Inner {
            id: 0,
            headroom,
            slot_bytes,
            slots,
            memory,
            chunks,
            singles,
            uses: Uses::one_handle(),
        }));
        // SAFETY: nobody else knows the pool before its place is taken.
        if POOLS.claim(inner, |id| unsafe { (*inner).id = id }) {
            // SAFETY: `Box::into_raw` is never null.
            return Ok(Self { inner: unsafe { NonNull::new_unchecked(inner) } });
        }
        // SAFETY: the pool was not published.
        drop(unsafe { Box::from_raw(inner) });
        Err(Error::TooMany)
    }

    pub(crate) fn inner(&self) -> &Inner {
        // SAFETY: a handle is a use.
        unsafe { self.inner.as_ref() }
    }

    pub(crate) fn as_non_null(&self) -> NonNull<Inner> {
        self.inner
    }

    /// Creates a cache of this pool's slots for one thread.
    #[must_use]
    pub fn cache(&self) -> PoolCache {
        PoolCache::new(self.clone())
    }

    /// Allocates a single packet of length 0 from the shared queue. This is slow: on a busy thread use a [`PoolCache`].
    ///
    /// Returns `None` if the queue is empty: all slots are in packets, rings and caches (up to [`CHUNK`] of them may be
    /// held by another thread that is allocating at this moment).
    #[must_use]
    pub fn alloc(&self) -> Option<Packet> {
        let slot = self.take_one()?;
        // SAFETY: taken from the queue just now; the head room is within it.
        Some(unsafe { Packet::from_slot(slot, Meta::new(self.headroom(), 0, self.id())) })
    }

    /// Takes one slot out of the shared queue, breaking up a chunk if there is no single slot.
    fn take_one(&self) -> Option<Slot> {
        let inner = self.inner();
        if let Some(slot) = inner.singles.pop() {
            inner.uses.add(ONE_SLOT);
            return Some(slot);
        }
        let chunk = inner.take_chunk()?;
        let mut slots = chunk.iter();
        let first = slots.next();
        for slot in slots {
            // SAFETY: the chunk's slots were taken just now; this handle keeps the pool alive.
            unsafe { Inner::put_home(self.inner, &[slot]) }
        }
        first
    }

    /// Returns the pool that a packet came from.
    #[must_use]
    pub fn of(packet: &Packet) -> Self {
        // SAFETY: the packet holds a slot of that pool.
        let inner = unsafe { Inner::of(packet.pool_id()) };
        // SAFETY: as above; the packet outlives this borrow.
        unsafe { inner.as_ref() }.uses.add(ONE_HANDLE);
        Self { inner }
    }

    /// Returns slots to the pool; for rings whose thread has no [`PoolCache`] of this pool.
    ///
    /// # Safety
    ///
    /// The caller owns the slots, all of this pool, and gives them up.
    pub unsafe fn put(&self, slots: &[Slot]) {
        // SAFETY: the caller's slots; this handle keeps the pool alive.
        unsafe { Inner::put_home(self.inner, slots) }
    }

    /// Returns the id of the pool, unique among the pools that exist; each packet carries the id of its pool.
    #[must_use]
    pub fn id(&self) -> u16 {
        self.inner().id
    }

    /// Returns the memory of the pool, to be mapped into a device's address space.
    #[must_use]
    pub fn memory(&self) -> &Arc<DmaMemory> {
        &self.inner().memory
    }

    /// Returns the number of slots.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.inner().slots
    }

    /// Returns the number of slots that are not in the shared queue but in packets, rings and caches. A slot that
    /// another thread is returning counts until that is complete, so the number may be too high for a moment, but is
    /// never more than [`Self::slots`].
    #[must_use]
    pub fn away(&self) -> usize {
        let inner = self.inner();
        // One that was taken again before the thread that brought it home has counted is there twice.
        usize::try_from(inner.uses.slots()).unwrap_or(usize::MAX).min(inner.slots)
    }

    /// Returns whether fewer than `count` slots are in the shared queue, going by [`Self::away`].
    #[inline]
    #[must_use]
    pub fn is_low(&self, count: usize) -> bool {
        let inner = self.inner();
        inner.uses.slots().saturating_add(count as u64) > inner.slots as u64
    }

    /// Returns the number of bytes before the data of a new packet.
    #[must_use]
    pub fn headroom(&self) -> u16 {
        self.inner().headroom
    }

    /// Returns the number of bytes for data in a new packet.
    #[must_use]
    pub fn data_room(&self) -> u16 {
        self.inner().slot_bytes - self.inner().headroom
    }
}

fn slots_per_page(stride: usize, page: usize) -> usize {
    (page / stride).max(1)
}

/// Bytes for `slots` slots of which none crosses a boundary of `page` bytes (so that each is physically contiguous).
fn bytes_for(slots: usize, stride: usize, page: usize) -> usize {
    let per_page = slots_per_page(stride, page);
    let (pages, rest) = (slots / per_page, slots % per_page);
    pages * page + rest * stride
}

impl Clone for Pool {
    fn clone(&self) -> Self {
        self.inner().uses.add(ONE_HANDLE);
        Self { inner: self.inner }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: the handle's own use.
        unsafe { Inner::release(self.inner, ONE_HANDLE) }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("id", &self.id())
            .field("slots", &self.slots())
            .field("away", &self.away())
            .finish()
    }
}
