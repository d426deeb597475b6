//! One thread's own slots.

use crate::pool::Inner;
use crate::{Batch, CHUNK, Meta, Packet, Pool, Slot};
use std::fmt;
use std::mem::MaybeUninit;
use std::ops::Deref;

/// Slots a cache of a large pool keeps at most.
const CAPACITY: usize = 512;

/// A stack of free slots for one thread. It allocates and frees without atomics, the slot freed last first, as that is
/// still in the processor's cache. It exchanges slots with the pool in chunks of [`CHUNK`]. So that an idle thread does
/// not starve others, it keeps at most an eighth of the pool (32 slots for a small pool, 512 for a large one), or the last batch that
/// was freed if that is more.
///
/// Two threads cannot use one cache at the same time; each makes its own:
///
/// ```compile_fail,E0499
/// # use mempool::{Pool, PoolConfig};
/// let pool = Pool::new(&PoolConfig::default()).unwrap();
/// let mut cache = pool.cache();
/// std::thread::scope(|scope| {
///     scope.spawn(|| cache.alloc());
///     scope.spawn(|| cache.alloc());
/// });
/// ```
///
/// # Invariants
///
/// The cache owns the slots on its stack; all are of its pool.
pub struct PoolCache {
    slots: Vec<Slot>,
    pool_id: u16,
    headroom: u16,
    /// When the stack would grow beyond this, half of it goes to the shared queue.
    limit: usize,
    pool: Pool,
}

impl PoolCache {
    pub(crate) fn new(pool: Pool) -> Self {
        let (pool_id, headroom) = (pool.id(), pool.headroom());
        let limit = (pool.slots() / 8).clamp(CHUNK, CAPACITY);
        Self { slots: Vec::with_capacity(limit + CHUNK), pool_id, headroom, limit, pool }
    }

    /// Returns the pool of this cache.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Returns the id of the pool.
    #[inline(always)]
    #[must_use]
    pub fn pool_id(&self) -> u16 {
        self.pool_id
    }

    /// Returns the offset of a new packet's data in its slot, in bytes.
    #[inline(always)]
    #[must_use]
    pub fn headroom(&self) -> u16 {
        self.headroom
    }

    /// Returns the number of slots on the stack.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns whether the stack is empty; the pool may still have slots.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Allocates a packet of length 0; `None` if the pool is empty.
    pub fn alloc(&mut self) -> Option<Packet> {
        if self.reserve(1) == 0 {
            return None;
        }
        let slot = self.slots.pop()?;
        // SAFETY: the cache owned the slot; the head room is within it.
        Some(unsafe { Packet::from_slot(slot, Meta::new(self.headroom, 0, self.pool_id)) })
    }

    /// Allocates a packet that holds `bytes`; `None` if the pool is empty or its slots are too small.
    ///
    /// ```
    /// # use mempool::{Pool, PoolConfig};
    /// let pool = Pool::new(&PoolConfig::default())?;
    /// let packet = pool.cache().alloc_from(b"a frame").unwrap();
    /// assert_eq!(packet.data(), b"a frame");
    /// # Ok::<(), mempool::Error>(())
    /// ```
    pub fn alloc_from(&mut self, bytes: &[u8]) -> Option<Packet> {
        if bytes.len() > self.pool.data_room().into() {
            return None;
        }
        let mut packet = self.alloc()?;
        packet.append(bytes.len())?.copy_from_slice(bytes);
        Some(packet)
    }

    /// Allocates up to `count` packets of `len` bytes, whose content is unspecified, at the end of `batch`: as many as
    /// the pool has and the batch can hold. Returns the number of packets allocated; 0 if `len` is more than the data
    /// room.
    pub fn alloc_batch(&mut self, batch: &mut Batch, count: usize, len: usize) -> usize {
        let Some(len) = u16::try_from(len).ok().filter(|len| *len <= self.pool.data_room()) else { return 0 };
        let count = self.reserve(count.min(batch.spare()));
        let meta = Meta::new(self.headroom, len, self.pool_id);
        let left = self.slots.len().wrapping_sub(count);
        // SAFETY: `count` are reserved.
        let top = unsafe { self.slots.get_unchecked(left..) };
        for (place, slot) in batch.spare_slots().iter_mut().zip(top) {
            // SAFETY: the cache gives the slot up below; head room plus `len` is within it.
            place.write(unsafe { Packet::from_slot(*slot, meta) });
        }
        // SAFETY: shorter than it was, and slots are plain data.
        unsafe { self.slots.set_len(left) }
        // SAFETY: `count` packets were written; the batch had room for as many.
        unsafe { batch.received(count) }
        count
    }

    /// Returns a packet to its pool; if that is the pool of this cache, without an atomic operation.
    #[inline]
    pub fn free(&mut self, packet: Packet) {
        if packet.pool_id() == self.pool_id {
            let slot = packet.into_slot();
            // SAFETY: the packet's slot, of this pool, given up just now.
            unsafe { self.put(&[slot]) }
        }
    }

    /// Returns all packets of `batch` to their pools and leaves the batch empty.
    pub fn free_batch(&mut self, batch: &mut Batch) {
        let count = batch.len();
        self.make_room(count);
        self.slots.reserve(count);
        let (pool_id, mut all_ours) = (self.pool_id, true);
        for (place, packet) in self.slots.spare_capacity_mut().iter_mut().zip(batch.iter()) {
            all_ours &= packet.pool_id() == pool_id;
            place.write(packet.slot());
        }
        if all_ours {
            let held = self.slots.len();
            // SAFETY: the stack takes over the slots of these packets, below.
            unsafe { batch.sent_all() }
            // SAFETY: `count` slots, all of this pool, were written behind those held.
            unsafe { self.slots.set_len(held + count) }
        } else {
            batch.drain().for_each(|packet| self.free(packet));
        }
    }

    /// Makes sure that up to `count` slots are on the stack, fetching from the pool if necessary. Returns how many of
    /// the `count` are there.
    #[inline(always)]
    pub fn reserve(&mut self, count: usize) -> usize {
        if self.slots.len() < count { self.refill(count) } else { count }
    }

    /// [`Self::reserve`] where slots are missing.
    #[cold]
    fn refill(&mut self, count: usize) -> usize {
        // Half a cache, so that neither a run of allocations nor one of frees goes to the pool each time.
        let target = count.max(self.limit / 2);
        while self.slots.len() < target {
            let Some(chunk) = self.pool.inner().take_chunk() else { break };
            self.slots.extend(chunk.iter());
        }
        self.slots.len().min(count)
    }

    /// Lends up to `count` slots from the top of the stack to a ring: see [`Lent`].
    #[inline(always)]
    pub fn lend(&mut self, count: usize) -> Lent<'_> {
        let count = self.reserve(count);
        let left = self.slots.len().wrapping_sub(count);
        Lent { stack: &mut self.slots, left }
    }

    /// Like [`Self::lend`], for up to `count` frames when it is not yet known how many there are. If fewer slots are on
    /// the stack, it fetches no more than the cache keeps, so that a thread with a large batch does not starve others.
    #[inline(always)]
    pub fn lend_some(&mut self, count: usize) -> Lent<'_> {
        let count = if self.slots.len() < count { self.refill_some(count) } else { count };
        let left = self.slots.len().wrapping_sub(count);
        Lent { stack: &mut self.slots, left }
    }

    /// [`Self::lend_some`] where slots are missing.
    #[cold]
    fn refill_some(&mut self, count: usize) -> usize {
        let most = self.limit.max(self.slots.len());
        self.refill(count.min(most))
    }

    /// Lends the slot on top of the stack to a ring; `None` if the pool is empty. The ring takes it with
    /// [`LentOne::used`]; if it drops the [`LentOne`] instead, the slot stays on the stack.
    #[inline(always)]
    pub fn lend_one(&mut self) -> Option<LentOne<'_>> {
        if self.reserve(1) == 0 { None } else { Some(LentOne { stack: &mut self.slots }) }
    }

    /// Pushes slots of a ring onto the stack.
    ///
    /// # Safety
    ///
    /// The caller owns the slots, all of this pool, and gives them up.
    #[inline(always)]
    pub unsafe fn put(&mut self, slots: &[Slot]) {
        self.make_room(slots.len());
        self.slots.extend_from_slice(slots);
    }

    /// Returns room for `count` slots on top of the stack, for a ring to fill from the front. Follow with
    /// [`Self::filled`].
    #[inline(always)]
    pub fn room(&mut self, count: usize) -> &mut [MaybeUninit<Slot>] {
        self.make_room(count);
        self.slots.reserve(count);
        // SAFETY: reserved just now.
        unsafe { self.slots.spare_capacity_mut().get_unchecked_mut(..count) }
    }

    /// Pushes the first `count` slots that a ring wrote into [`Self::room`].
    ///
    /// # Safety
    ///
    /// The first `count` slots of the room were written; the caller owned them, all of this pool, and gives them up.
    #[inline(always)]
    pub unsafe fn filled(&mut self, count: usize) {
        let held = self.slots.len() + count;
        debug_assert!(held <= self.slots.capacity(), "more slots than there is room for");
        // SAFETY: so many slots were written behind those held, by the caller's word.
        unsafe { self.slots.set_len(held) }
    }

    /// Sends slots from the bottom of the stack home, half a cache at least, unless `count` more fit.
    #[inline(always)]
    fn make_room(&mut self, count: usize) {
        if self.slots.len() + count > self.limit {
            self.send_home(count);
        }
    }

    #[cold]
    fn send_home(&mut self, count: usize) {
        let surplus = (self.slots.len() + count).saturating_sub(self.limit / 2).min(self.slots.len());
        // From here on they are off the stack, whatever happens.
        let surplus = self.slots.drain(..surplus);
        // SAFETY: the cache owned these slots and has given them up; its pool handle keeps the pool alive.
        unsafe { Inner::put_home(self.pool.as_non_null(), surplus.as_slice()) }
    }
}

/// Slots that a [`PoolCache`] lends to a ring. It dereferences to a slice of them, the top of the stack last. The ring
/// uses them from the top down and reports the number with [`Self::used`]; the others stay on the stack.
///
/// If it is dropped without that call, as when a driver panics in between, all of them are removed from the stack and
/// never return to the pool, since the ring may hold some of them.
///
/// # Invariants
///
/// `left` is at most the length of the stack; the slots above are lent.
#[derive(Debug)]
pub struct Lent<'a> {
    stack: &'a mut Vec<Slot>,
    left: usize,
}

impl Lent<'_> {
    /// Takes the last `count` slots off the stack and leaves the others there.
    ///
    /// # Safety
    ///
    /// `count` is at most the length of the slice. The caller owns those slots from here on, and must make each into a
    /// packet, put it back or keep it in a ring, exactly once; it has kept none of the others.
    #[inline(always)]
    pub unsafe fn used(mut self, count: usize) {
        debug_assert!(count <= self.len(), "more slots used than lent");
        self.left = self.stack.len().wrapping_sub(count);
    }
}

/// The slot on top of the stack of a [`PoolCache`], lent to a ring; see [`PoolCache::lend_one`].
///
/// # Invariants
///
/// The stack is not empty.
#[derive(Debug)]
pub struct LentOne<'a> {
    stack: &'a mut Vec<Slot>,
}

impl Deref for LentOne<'_> {
    type Target = Slot;

    #[inline(always)]
    fn deref(&self) -> &Slot {
        // SAFETY: it is not empty (type invariant).
        unsafe { self.stack.get_unchecked(self.stack.len().wrapping_sub(1)) }
    }
}

impl LentOne<'_> {
    /// Takes the slot off the stack.
    ///
    /// # Safety
    ///
    /// The caller owns it from here on, and must make it into a packet, put it back or keep it in a ring, exactly once.
    #[inline(always)]
    #[must_use]
    pub unsafe fn used(self) -> Slot {
        let left = self.stack.len().wrapping_sub(1);
        // SAFETY: fewer than there are (type invariant), and slots are plain data.
        unsafe { self.stack.set_len(left) };
        // SAFETY: the place of the slot that was the uppermost.
        let top = unsafe { self.stack.as_ptr().add(left) };
        // SAFETY: as above; nothing has written there since.
        unsafe { top.read() }
    }
}

impl Deref for Lent<'_> {
    type Target = [Slot];

    #[inline(always)]
    fn deref(&self) -> &[Slot] {
        // SAFETY: at most the length (type invariant).
        unsafe { self.stack.get_unchecked(self.left..) }
    }
}

impl Drop for Lent<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: shorter than it was (type invariant), and slots are plain data.
        unsafe { self.stack.set_len(self.left) }
    }
}

impl Drop for PoolCache {
    fn drop(&mut self) {
        // SAFETY: the cache owned these slots, and is gone; its pool handle keeps the pool alive.
        unsafe { Inner::put_home(self.pool.as_non_null(), &self.slots) }
    }
}

impl fmt::Debug for PoolCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolCache").field("pool", &self.pool_id).field("slots", &self.slots.len()).finish()
    }
}
