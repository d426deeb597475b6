//! A burst of packets.

use crate::pool::Inner;
use crate::{CHUNK, Packet, PoolCache, Sending};
use std::fmt;
use std::ops::{Deref, DerefMut, RangeBounds};

/// A fixed-capacity burst of packets, which a receive call fills and a transmit call empties. It dereferences to a
/// slice of [`Packet`]. Dropping it returns all packets to their pools, [`CHUNK`] at a time.
///
/// A reference to a packet's data must end before the batch is given away:
///
/// ```compile_fail,E0502
/// # use mempool::{Batch, Pool, PoolConfig};
/// let pool = Pool::new(&PoolConfig::default()).unwrap();
/// let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(32));
/// cache.alloc_batch(&mut batch, 32, 60);
/// let first = batch[0].data();
/// cache.free_batch(&mut batch);
/// println!("{first:?}");
/// ```
///
/// # Invariants
///
/// The vector never holds more than the capacity it was made with, so it never grows, and it never shrinks.
pub struct Batch {
    pub(crate) packets: Vec<Packet>,
    capacity: usize,
}

impl Batch {
    /// Creates an empty batch for up to `capacity` packets; 32 to 64 gives the best throughput.
    ///
    /// # Panics
    ///
    /// If `capacity` packets, of 16 bytes each, exceed `isize::MAX` bytes.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self { packets: Vec::with_capacity(capacity), capacity }
    }

    /// Returns the number of packets the batch can hold.
    #[inline(always)]
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the number of packets that can still be added.
    #[inline(always)]
    #[must_use]
    pub fn spare(&self) -> usize {
        self.capacity - self.packets.len()
    }

    /// Appends a packet; if the batch is full, the packet is returned as the error.
    ///
    /// # Errors
    ///
    /// The packet, if there is no room.
    #[inline(always)]
    pub fn push(&mut self, packet: Packet) -> Result<(), Packet> {
        let len = self.packets.len();
        if len == self.capacity {
            return Err(packet);
        }
        // SAFETY: there are fewer packets than the vector was made for, so this is in its memory.
        let place = unsafe { self.packets.as_mut_ptr().add(len) };
        // SAFETY: no packet lives behind the last.
        unsafe { place.write(packet) };
        // SAFETY: all up to the new one hold packets.
        unsafe { self.packets.set_len(len + 1) };
        Ok(())
    }

    /// Removes and returns the last packet; `None` if the batch is empty.
    pub fn pop(&mut self) -> Option<Packet> {
        self.packets.pop()
    }

    /// Removes all packets, in order. Those not taken from the iterator when it is dropped are freed one by one.
    pub fn drain(&mut self) -> impl ExactSizeIterator<Item = Packet> + '_ {
        self.packets.drain(..)
    }

    /// Removes the packets of `range`, in order. Those not taken from the iterator when it is dropped are freed one by
    /// one.
    ///
    /// # Panics
    ///
    /// If the range is not within the batch.
    pub fn drain_range(&mut self, range: impl RangeBounds<usize>) -> impl ExactSizeIterator<Item = Packet> + '_ {
        self.packets.drain(range)
    }

    /// Keeps the packets for which `keep` returns true, in order, and frees the others through `cache`. If `keep`
    /// panics, the packets it has not been called for stay in the batch.
    ///
    /// ```
    /// # use mempool::{Batch, Pool, PoolConfig};
    /// let pool = Pool::new(&PoolConfig::default())?;
    /// let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(4));
    /// for len in [60, 0, 1500, 0] {
    ///     cache.alloc_batch(&mut batch, 1, len);
    /// }
    /// batch.retain(&mut cache, |packet| !packet.is_empty());
    /// assert_eq!(batch.iter().map(|packet| packet.len()).collect::<Vec<_>>(), [60, 1500]);
    /// # Ok::<(), mempool::Error>(())
    /// ```
    pub fn retain(&mut self, cache: &mut PoolCache, mut keep: impl FnMut(&mut Packet) -> bool) {
        self.packets.extract_if(.., |packet| !keep(packet)).for_each(|packet| cache.free(packet));
    }

    /// Moves packets from the front of `other` to the end of this batch, as many as fit. Returns the number of packets
    /// moved.
    pub fn append(&mut self, other: &mut Self) -> usize {
        let count = self.spare().min(other.len());
        // They fit, so the vector does not grow.
        self.packets.extend(other.packets.drain(..count));
        count
    }

    /// Moves the packets from index `at` to the end into a new batch of the same capacity.
    ///
    /// # Panics
    ///
    /// If `at` is greater than the number of packets.
    #[must_use]
    pub fn split_off(&mut self, at: usize) -> Self {
        let mut rest = Self::with_capacity(self.capacity);
        rest.packets.extend(self.packets.drain(at..));
        rest
    }

    /// Moves each packet to the end of the batch in `outputs` whose index `output` returns. A packet stays here, in
    /// order, if that index names no batch or a full one. If `output` panics, the packets it has not been called for
    /// stay too.
    ///
    /// ```
    /// # use mempool::{Batch, Pool, PoolConfig};
    /// let pool = Pool::new(&PoolConfig::default())?;
    /// let mut batch = Batch::with_capacity(4);
    /// pool.cache().alloc_batch(&mut batch, 4, 60);
    /// let mut outputs = [Batch::with_capacity(4), Batch::with_capacity(1)];
    /// let mut number = 0;
    /// batch.distribute(&mut outputs, |_| {
    ///     number += 1;
    ///     number % 2
    /// });
    /// assert_eq!((outputs[0].len(), outputs[1].len(), batch.len()), (2, 1, 1));
    /// # Ok::<(), mempool::Error>(())
    /// ```
    #[inline(always)]
    pub fn distribute(&mut self, outputs: &mut [Self], mut output: impl FnMut(&mut Packet) -> usize) {
        let len = self.packets.len();
        let base = self.packets.as_mut_ptr();
        // SAFETY: none is fewer; `rest` has the packets until it is dropped.
        unsafe { self.packets.set_len(0) };
        let mut rest = Rest { packets: &mut self.packets, left: 0, at: 0, len };
        for at in 0..len {
            // SAFETY: within the length there was.
            let place = unsafe { base.add(at) };
            // SAFETY: this place has not been moved out of, and nobody else refers to it.
            let number = output(unsafe { &mut *place });
            // SAFETY: as above; from here on the place counts as moved out of.
            let packet = unsafe { place.read() };
            rest.at = at + 1;
            let refused = match outputs.get_mut(number) {
                Some(batch) => batch.push(packet).err(),
                None => Some(packet),
            };
            if let Some(packet) = refused {
                // SAFETY: in front of `at`.
                let place = unsafe { base.add(rest.left) };
                // SAFETY: all places up to `at` have been moved out of, and fewer have been written again.
                unsafe { put_back(place, packet) };
                rest.left += 1;
            }
        }
    }

    /// Drops all packets, [`CHUNK`] at a time.
    pub fn clear(&mut self) {
        let Some(first) = self.packets.first() else { return };
        let mut slots = [first.slot(); CHUNK];
        let mut count = 0;
        let mut rest = self.packets.drain(..).peekable();
        while let Some(packet) = rest.next() {
            let pool = packet.pool_id();
            slots[count] = packet.into_slot();
            count += 1;
            if count == CHUNK || rest.peek().is_none_or(|next| next.pool_id() != pool) {
                // SAFETY: the slots in hand are of that pool.
                let inner = unsafe { Inner::of(pool) };
                // SAFETY: the packets that owned these slots gave them up above.
                unsafe { Inner::put_home(inner, &slots[..count]) }
                count = 0;
            }
        }
    }

    /// Returns the room behind the last packet, for a receive ring to write packets to. Follow with [`Self::received`].
    #[inline(always)]
    #[must_use]
    pub fn spare_slots(&mut self) -> &mut [std::mem::MaybeUninit<Packet>] {
        let spare = self.capacity - self.packets.len();
        // SAFETY: the vector was made for `capacity` (type invariant).
        unsafe { self.packets.spare_capacity_mut().get_unchecked_mut(..spare) }
    }

    /// Adds the `count` packets that were written through [`Self::spare_slots`].
    ///
    /// # Safety
    ///
    /// The first `count` places of the spare room hold packets.
    #[inline(always)]
    pub unsafe fn received(&mut self, count: usize) {
        let len = self.packets.len() + count;
        debug_assert!(len <= self.capacity, "a ring wrote beyond the batch");
        // SAFETY: initialised, by the caller's word, and within the capacity.
        unsafe { self.packets.set_len(len) }
    }

    /// Lends the packets to a transmit ring, which takes them from the front.
    #[inline(always)]
    pub fn sending(&mut self) -> Sending<'_> {
        Sending::new(self)
    }

    /// Empties the batch without dropping the packets, after a transmit ring has taken their slots.
    ///
    /// # Safety
    ///
    /// The caller has taken over their slots.
    #[inline(always)]
    pub unsafe fn sent_all(&mut self) {
        // SAFETY: none is fewer.
        unsafe { self.packets.set_len(0) }
    }

    /// Removes the first `count` packets without dropping them, after a transmit ring has taken their slots. Drivers
    /// should prefer [`Self::sending`], which also leaves the batch in order if the driver panics.
    ///
    /// # Safety
    ///
    /// `count` is at most the length, and the caller has taken over the slots of those packets.
    #[inline(always)]
    pub unsafe fn sent(&mut self, count: usize) {
        let rest = self.packets.len() - count;
        let base = self.packets.as_mut_ptr();
        // SAFETY: not more than there were; no packet is dropped.
        unsafe { self.packets.set_len(rest) }
        if rest > 0 {
            // SAFETY: within the old length.
            let first = unsafe { base.add(count) };
            // SAFETY: moves the rest to the front; both ranges are within the old length.
            unsafe { std::ptr::copy(first, base, rest) }
        }
    }
}

/// Writes a packet that stays in its batch: the rarer case, so the other one is the straight way through a loop.
///
/// # Safety
///
/// The place is in the memory of the batch, and holds no packet.
#[cold]
#[inline(never)]
unsafe fn put_back(place: *mut Packet, packet: Packet) {
    // SAFETY: the caller's word.
    unsafe { place.write(packet) };
}

/// What [`Batch::distribute`] has not moved away; dropping it gives that back to the batch.
///
/// # Invariants
///
/// The vector has length 0; of the `len` places in its memory the first `left` hold packets, and those from `at` on.
struct Rest<'a> {
    packets: &'a mut Vec<Packet>,
    left: usize,
    at: usize,
    len: usize,
}

impl Drop for Rest<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        let unseen = self.len - self.at;
        if unseen > 0 {
            let base = self.packets.as_mut_ptr();
            // SAFETY: within the vector's memory (type invariant).
            let from = unsafe { base.add(self.at) };
            // SAFETY: as above.
            let to = unsafe { base.add(self.left) };
            // SAFETY: both ranges are within the vector's memory.
            unsafe { std::ptr::copy(from, to, unseen) }
        }
        // SAFETY: as many packets are at the front; they belong to the vector again.
        unsafe { self.packets.set_len(self.left + unseen) }
    }
}

impl Deref for Batch {
    type Target = [Packet];

    #[inline(always)]
    fn deref(&self) -> &[Packet] {
        &self.packets
    }
}

impl DerefMut for Batch {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [Packet] {
        &mut self.packets
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.clear();
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("len", &self.len()).field("capacity", &self.capacity).finish()
    }
}
