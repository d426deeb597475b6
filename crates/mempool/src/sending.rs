//! A batch on its way into a transmit ring.

use crate::{Batch, Packet};
use std::ops::{Deref, DerefMut};

/// The packets of a [`Batch`] that a transmit ring has not taken yet, from [`Batch::sending`]. It dereferences to a
/// slice of them, which shrinks from the front as the ring takes them.
///
/// Packets taken by the ring are recorded here at once, and the batch is updated when this value is dropped: it then
/// holds only the packets not taken, in order. The same happens if the driver panics in between, so no packet is both
/// in the ring and in the batch. If this value is forgotten ([`std::mem::forget`]), the batch is empty, and the slots
/// of the packets not taken never return to their pools.
///
/// ```
/// use mempool::{Batch, Pool, PoolConfig};
///
/// let pool = Pool::new(&PoolConfig::default())?;
/// let mut batch = Batch::with_capacity(4);
/// pool.cache().alloc_batch(&mut batch, 4, 60);
/// let mut sending = batch.sending();
/// assert_eq!(sending.len(), 4);
/// let first = sending.next(); // to be dropped: no device can send it
/// assert_eq!((sending.len(), sending.taken()), (3, 1));
/// drop(sending);
/// assert_eq!(batch.len(), 3);
/// # Ok::<(), mempool::Error>(())
/// ```
///
/// # Invariants
///
/// While it lives, the batch's vector has length 0, and elements `taken..len` of its memory are packets that belong to
/// this value; those before are not.
#[derive(Debug)]
pub struct Sending<'a> {
    batch: &'a mut Batch,
    taken: usize,
    len: usize,
}

impl<'a> Sending<'a> {
    #[inline(always)]
    pub(crate) fn new(batch: &'a mut Batch) -> Self {
        let len = batch.packets.len();
        // SAFETY: none is fewer; this value has the packets from here on.
        unsafe { batch.packets.set_len(0) };
        Self { batch, taken: 0, len }
    }

    /// Returns the number of packets taken so far.
    #[inline(always)]
    #[must_use]
    pub fn taken(&self) -> usize {
        self.taken
    }

    /// Records that a ring has taken over the slots of the first `count` packets.
    ///
    /// Between writing a slot down in the ring and this call, nothing may panic.
    ///
    /// # Safety
    ///
    /// `count` is at most the length of the slice, and the caller has taken over the slots of those packets.
    #[inline(always)]
    pub unsafe fn take(&mut self, count: usize) {
        debug_assert!(count <= self.len - self.taken, "a ring took more than there was");
        self.taken += count;
    }

    /// Takes the first packet out; `None` if there is none left.
    #[expect(clippy::should_implement_trait, reason = "an iterator would hide that it is a slice")]
    pub fn next(&mut self) -> Option<Packet> {
        if self.taken == self.len {
            return None;
        }
        // SAFETY: within the vector's memory (type invariant).
        let first = unsafe { self.batch.packets.as_ptr().add(self.taken) };
        self.taken += 1;
        // SAFETY: a packet of this value, which counts as taken now.
        Some(unsafe { first.read() })
    }
}

impl Deref for Sending<'_> {
    type Target = [Packet];

    #[inline(always)]
    fn deref(&self) -> &[Packet] {
        // SAFETY: within the vector's memory (type invariant).
        let first = unsafe { self.batch.packets.as_ptr().add(self.taken) };
        // SAFETY: `taken..len` are packets of this value (type invariant).
        unsafe { std::slice::from_raw_parts(first, self.len - self.taken) }
    }
}

impl DerefMut for Sending<'_> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [Packet] {
        // SAFETY: within the vector's memory (type invariant).
        let first = unsafe { self.batch.packets.as_mut_ptr().add(self.taken) };
        // SAFETY: `taken..len` are packets of this value (type invariant), which is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(first, self.len - self.taken) }
    }
}

impl Drop for Sending<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        let rest = self.len - self.taken;
        if rest > 0 && self.taken > 0 {
            let base = self.batch.packets.as_mut_ptr();
            // SAFETY: within the vector's memory (type invariant).
            let first = unsafe { base.add(self.taken) };
            // SAFETY: moves the rest to the front; both ranges are within the vector's memory.
            unsafe { std::ptr::copy(first, base, rest) }
        }
        // SAFETY: as many packets are at the front; they belong to the vector again.
        unsafe { self.batch.packets.set_len(rest) }
    }
}
