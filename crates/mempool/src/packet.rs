//! One packet, or one segment of a long one: the owner of a slot.

use crate::pool::Inner;
use crate::{Pool, PoolCache};
use std::fmt;
use std::ptr::NonNull;

/// The address of a slot. Plain data: whoever holds the matching [`Packet`], ring entry or cache entry owns the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Slot(pub(crate) NonNull<u8>);

// SAFETY: an address; access needs unsafe and follows ownership.
unsafe impl Send for Slot {}
// SAFETY: as above.
unsafe impl Sync for Slot {}

impl Slot {
    /// The slot's first byte, where the head room begins.
    #[inline(always)]
    #[must_use]
    pub fn as_ptr(self) -> *mut u8 {
        self.0.as_ptr()
    }
}

/// An owned packet buffer of 16 bytes: slot, offset of the data, length, pool and flags. Dropping it takes the slot
/// home by the slow way; busy code gives it to [`PoolCache::free`] or a transmit queue.
///
/// A frame longer than a slot is a run of packets, each but the last with [`Packet::continues`] set.
///
/// # Invariants
///
/// `offset + len` is at most the slot's size, and the slot belongs to this packet alone.
///
/// Sending moves it, so it cannot be used afterwards:
///
/// ```compile_fail,E0382
/// # use mempool::{Pool, PoolConfig};
/// let pool = Pool::new(&PoolConfig::default()).unwrap();
/// let packet = pool.alloc().unwrap();
/// pool.cache().free(packet);
/// packet.data();
/// ```
#[repr(C)]
pub struct Packet {
    slot: Slot,
    offset: u16,
    len: u16,
    pool: u16,
    flags: u16,
}

const _: () = assert!(size_of::<Packet>() == 16 && size_of::<Option<Packet>>() == 16);

impl Packet {
    /// The frame goes on in the next packet of the batch.
    pub const CONTINUES: u16 = 1;

    /// Makes the packet that owns `slot`.
    ///
    /// # Safety
    ///
    /// The caller owns the slot, of the pool with id `pool`, and gives it up; `offset + len` is within the slot.
    #[inline(always)]
    #[must_use]
    pub unsafe fn from_slot(slot: Slot, pool: u16, offset: u16, len: u16, flags: u16) -> Self {
        Self { slot, offset, len, pool, flags }
    }

    /// Takes the slot out of the packet; the caller now owns it.
    #[inline(always)]
    #[must_use]
    pub fn into_slot(self) -> Slot {
        let slot = self.slot;
        std::mem::forget(self);
        slot
    }

    /// The slot, which stays owned by the packet.
    #[inline(always)]
    #[must_use]
    pub fn slot(&self) -> Slot {
        self.slot
    }

    /// The id of the pool it came from.
    #[inline(always)]
    #[must_use]
    pub fn pool_id(&self) -> u16 {
        self.pool
    }

    /// Bytes between the slot's start and the data.
    #[inline(always)]
    #[must_use]
    pub fn offset(&self) -> u16 {
        self.offset
    }

    /// Whether the frame goes on in the next packet of the batch.
    #[inline(always)]
    #[must_use]
    pub fn continues(&self) -> bool {
        self.flags & Self::CONTINUES != 0
    }

    /// Sets or clears [`Self::continues`].
    pub fn set_continues(&mut self, continues: bool) {
        self.flags = if continues { self.flags | Self::CONTINUES } else { self.flags & !Self::CONTINUES };
    }

    fn inner(&self) -> &Inner {
        // SAFETY: the packet holds a slot of that pool.
        let inner = unsafe { Inner::of(self.pool) };
        // SAFETY: the slot keeps the pool alive for as long as the packet is borrowed.
        unsafe { inner.as_ref() }
    }

    /// Length of the data in bytes.
    #[inline(always)]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len.into()
    }

    /// Whether there is no data.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The data.
    #[inline(always)]
    #[must_use]
    pub fn data(&self) -> &[u8] {
        // SAFETY: within the slot (type invariant).
        let start = unsafe { self.slot.0.add(self.offset.into()) };
        // SAFETY: initialised memory within the slot, owned by this packet alone.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), self.len.into()) }
    }

    /// The data, to be changed.
    #[inline(always)]
    #[must_use]
    pub fn data_mut(&mut self) -> &mut [u8] {
        // SAFETY: within the slot (type invariant).
        let start = unsafe { self.slot.0.add(self.offset.into()) };
        // SAFETY: initialised memory within the slot, owned by this packet alone and borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), self.len.into()) }
    }

    /// Free bytes before the data.
    #[must_use]
    pub fn headroom(&self) -> usize {
        self.offset.into()
    }

    /// Free bytes behind the data.
    #[must_use]
    pub fn tailroom(&self) -> usize {
        usize::from(self.inner().slot_bytes - self.offset - self.len)
    }

    /// Grows the data by `count` bytes at the front and returns them; what they hold is left from earlier use.
    /// `None`, and no change, when the head room is smaller.
    pub fn prepend(&mut self, count: usize) -> Option<&mut [u8]> {
        let more = u16::try_from(count).ok().filter(|more| *more <= self.offset)?;
        self.offset -= more;
        self.len += more;
        self.data_mut().get_mut(..count)
    }

    /// Grows the data by `count` bytes at the end and returns them; what they hold is left from earlier use.
    /// `None`, and no change, when the room behind is smaller.
    pub fn append(&mut self, count: usize) -> Option<&mut [u8]> {
        let more = u16::try_from(count).ok().filter(|_| count <= self.tailroom())?;
        let old = self.len();
        self.len += more;
        self.data_mut().get_mut(old..)
    }

    /// Cuts `count` bytes off the front. Returns whether there were as many; if not, nothing changes.
    pub fn trim_front(&mut self, count: usize) -> bool {
        let Some(less) = u16::try_from(count).ok().filter(|less| *less <= self.len) else { return false };
        self.offset += less;
        self.len -= less;
        true
    }

    /// Shortens the data to `len` bytes; longer than it is changes nothing.
    pub fn truncate(&mut self, len: usize) {
        self.len = u16::try_from(len).map_or(self.len, |len| len.min(self.len));
    }

    /// A new packet with the same data, from `cache`; `None` when that pool is empty or its slots are too small.
    #[must_use]
    pub fn try_copy(&self, cache: &mut PoolCache) -> Option<Self> {
        let mut copy = cache.alloc()?;
        copy.append(self.len())?.copy_from_slice(self.data());
        copy.flags = self.flags;
        Some(copy)
    }
}

impl Drop for Packet {
    #[cold]
    fn drop(&mut self) {
        // SAFETY: the packet holds a slot of that pool.
        let inner = unsafe { Inner::of(self.pool) };
        // SAFETY: the packet owned the slot, and is gone.
        unsafe { Inner::put_home(inner, &[self.slot]) }
    }
}

impl fmt::Debug for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packet")
            .field("pool", &self.pool)
            .field("offset", &self.offset)
            .field("len", &self.len)
            .field("continues", &self.continues())
            .finish()
    }
}

impl AsRef<[u8]> for Packet {
    fn as_ref(&self) -> &[u8] {
        self.data()
    }
}

/// A handle of the pool it came from.
impl From<&Packet> for Pool {
    fn from(packet: &Packet) -> Self {
        Self::of(packet)
    }
}
