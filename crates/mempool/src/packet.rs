//! One packet, or one segment of a long one: the owner of a slot.

use crate::pool::Inner;
use crate::{Pool, PoolCache};
use std::fmt;
use std::ptr::NonNull;

/// The address of a slot. It is plain data: the bytes belong to the owner of the matching [`Packet`], ring entry or
/// cache entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Slot(pub(crate) NonNull<u8>);

// SAFETY: an address; access needs unsafe and follows ownership.
unsafe impl Send for Slot {}
// SAFETY: as above.
unsafe impl Sync for Slot {}

impl Slot {
    /// Returns a pointer to the slot's first byte, where the head room begins.
    #[inline(always)]
    #[must_use]
    pub fn as_ptr(self) -> *mut u8 {
        self.0.as_ptr()
    }
}

/// An owned packet buffer. The value takes 16 bytes: slot, offset of the data, length, pool and flags. Dropping it
/// returns the slot to its pool in the slow way; busy code gives it to [`PoolCache::free`] or a transmit queue.
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
///
/// A reference to its bytes cannot outlive the move:
///
/// ```compile_fail,E0505
/// # use mempool::{Batch, Pool, PoolConfig};
/// let pool = Pool::new(&PoolConfig::default()).unwrap();
/// let packet = pool.alloc().unwrap();
/// let header = packet.data();
/// let mut batch = Batch::with_capacity(32);
/// batch.push(packet).unwrap();
/// println!("{header:?}");
/// ```
///
/// It cannot be duplicated:
///
/// ```compile_fail,E0599
/// # use mempool::{Pool, PoolConfig};
/// let pool = Pool::new(&PoolConfig::default()).unwrap();
/// let packet = pool.alloc().unwrap();
/// let twin = packet.clone();
/// ```
#[repr(C)]
pub struct Packet {
    slot: Slot,
    meta: Meta,
}

/// A packet's offset of the data (bits 15:0), its length (31:16), pool id (47:32) and flags (63:48) in one word, so
/// that a ring reads and writes them at once. The flags are [`Self::CONTINUES`] and what is known about the checksum
/// (63:49; 0 is nothing).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Meta(pub u64);

impl Meta {
    /// Flag: the frame continues in the next packet of the batch.
    pub const CONTINUES: u64 = 1 << 48;
    /// All flags. Without any, the packet is a whole frame about whose checksum nothing is known.
    pub const FLAGS: u64 = u64::MAX << 48;

    /// Makes a word from its parts, without flags.
    #[inline(always)]
    #[must_use]
    pub const fn new(offset: u16, len: u16, pool: u16) -> Self {
        Self(offset as u64 | (len as u64) << 16 | (pool as u64) << 32)
    }

    /// Returns the number of bytes between the start of the slot and the data.
    #[inline(always)]
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "the field is the low half word")]
    pub const fn offset(self) -> u16 {
        self.0 as u16
    }

    /// Returns the length of the data in bytes.
    #[inline(always)]
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "the field is a half word")]
    pub const fn len(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// Returns whether there is no data.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Returns the id of the pool.
    #[inline(always)]
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "the field is a half word")]
    pub const fn pool(self) -> u16 {
        (self.0 >> 32) as u16
    }

    const fn with_data(self, offset: u16, len: u16) -> Self {
        Self(self.0 & !0xffff_ffff | offset as u64 | (len as u64) << 16)
    }
}

const _: () = assert!(size_of::<Packet>() == 16 && size_of::<Option<Packet>>() == 16);

impl Packet {
    /// Makes the packet that owns `slot`.
    ///
    /// # Safety
    ///
    /// The caller owns the slot, of the pool that `meta` names, and gives it up; offset plus length are within it.
    #[inline(always)]
    #[must_use]
    pub unsafe fn from_slot(slot: Slot, meta: Meta) -> Self {
        Self { slot, meta }
    }

    /// Returns offset, length, pool and flags in one word.
    #[inline(always)]
    #[must_use]
    pub fn meta(&self) -> Meta {
        self.meta
    }

    /// Changes flags: the caller leaves offset, length and pool as they are.
    pub(crate) fn set_meta(&mut self, meta: Meta) {
        debug_assert_eq!(meta.0 << 16, self.meta.0 << 16, "only flags differ");
        self.meta = meta;
    }

    /// Takes the slot out of the packet; the caller now owns it.
    #[inline(always)]
    #[must_use]
    pub fn into_slot(self) -> Slot {
        let slot = self.slot;
        std::mem::forget(self);
        slot
    }

    /// Returns the slot, which the packet still owns.
    #[inline(always)]
    #[must_use]
    pub fn slot(&self) -> Slot {
        self.slot
    }

    /// Returns the id of the pool that the packet came from.
    #[inline(always)]
    #[must_use]
    pub fn pool_id(&self) -> u16 {
        self.meta.pool()
    }

    /// Returns the number of bytes between the start of the slot and the data.
    #[inline(always)]
    #[must_use]
    pub fn offset(&self) -> u16 {
        self.meta.offset()
    }

    /// Returns whether the frame continues in the next packet of the batch.
    #[inline(always)]
    #[must_use]
    pub fn continues(&self) -> bool {
        self.meta.0 & Meta::CONTINUES != 0
    }

    /// Sets or clears the flag that [`Self::continues`] returns.
    pub fn set_continues(&mut self, continues: bool) {
        let others = self.meta.0 & !Meta::CONTINUES;
        self.meta = Meta(if continues { others | Meta::CONTINUES } else { others });
    }

    fn inner(&self) -> &Inner {
        // SAFETY: the packet holds a slot of that pool.
        let inner = unsafe { Inner::of(self.pool_id()) };
        // SAFETY: the slot keeps the pool alive for as long as the packet is borrowed.
        unsafe { inner.as_ref() }
    }

    /// Returns the length of the data in bytes.
    #[inline(always)]
    #[must_use]
    pub fn len(&self) -> usize {
        self.part(1).into()
    }

    /// Half word `n` of `meta`, 0 to 3, from the lowest. It is loaded alone, so that nobody has to take the word apart.
    #[inline(always)]
    fn part(&self, n: usize) -> u16 {
        let parts = (&raw const self.meta).cast::<[u16; 4]>();
        // SAFETY: a word is four half words, aligned as such.
        let parts = unsafe { &*parts };
        parts[if cfg!(target_endian = "little") { n } else { 3 - n }]
    }

    /// Returns whether there is no data.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.meta.is_empty()
    }

    /// Returns the data.
    #[inline(always)]
    #[must_use]
    pub fn data(&self) -> &[u8] {
        // SAFETY: within the slot (type invariant).
        let start = unsafe { self.slot.0.add(self.part(0).into()) };
        // SAFETY: initialised memory within the slot, owned by this packet alone.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), self.len()) }
    }

    /// Returns the data, with mutable access.
    #[inline(always)]
    #[must_use]
    pub fn data_mut(&mut self) -> &mut [u8] {
        // SAFETY: within the slot (type invariant).
        let start = unsafe { self.slot.0.add(self.part(0).into()) };
        // SAFETY: initialised memory within the slot, owned by this packet alone and borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), self.len()) }
    }

    /// Returns the number of free bytes before the data.
    #[must_use]
    pub fn headroom(&self) -> usize {
        self.meta.offset().into()
    }

    /// Returns the number of free bytes behind the data.
    #[must_use]
    pub fn tailroom(&self) -> usize {
        usize::from(self.inner().slot_bytes - self.meta.offset() - self.meta.len())
    }

    /// Grows the data by `count` bytes at the front and returns these bytes, which hold whatever was left there.
    /// Returns `None`, and changes nothing, if the head room is smaller than that.
    #[inline]
    pub fn prepend(&mut self, count: usize) -> Option<&mut [u8]> {
        let more = u16::try_from(count).ok().filter(|more| *more <= self.meta.offset())?;
        self.meta = self.meta.with_data(self.meta.offset() - more, self.meta.len() + more);
        self.data_mut().get_mut(..count)
    }

    /// Grows the data by `count` bytes at the end and returns these bytes, which hold whatever was left there. Returns
    /// `None`, and changes nothing, if the room behind the data is smaller than that.
    pub fn append(&mut self, count: usize) -> Option<&mut [u8]> {
        let more = u16::try_from(count).ok().filter(|_| count <= self.tailroom())?;
        let old = self.len();
        self.meta = self.meta.with_data(self.meta.offset(), self.meta.len() + more);
        self.data_mut().get_mut(old..)
    }

    /// Removes `count` bytes from the front. Returns false, and changes nothing, if there is less data than that.
    #[inline]
    pub fn trim_front(&mut self, count: usize) -> bool {
        let Some(less) = u16::try_from(count).ok().filter(|less| *less <= self.meta.len()) else { return false };
        self.meta = self.meta.with_data(self.meta.offset() + less, self.meta.len() - less);
        true
    }

    /// Shortens the data to `len` bytes. Does nothing if it is not longer than that.
    pub fn truncate(&mut self, len: usize) {
        let old = self.meta.len();
        self.meta = self.meta.with_data(self.meta.offset(), u16::try_from(len).map_or(old, |len| len.min(old)));
    }

    /// Copies the packet into a new one from `cache`. Returns `None` if that pool is empty, its slots are too small, or
    /// its head room is too large for a partial checksum.
    #[must_use]
    pub fn try_copy(&self, cache: &mut PoolCache) -> Option<Self> {
        let mut copy = cache.alloc()?;
        copy.append(self.len())?.copy_from_slice(self.data());
        copy.set_continues(self.continues());
        copy.set_checksum(self.checksum()).then_some(copy)
    }
}

impl Drop for Packet {
    #[cold]
    fn drop(&mut self) {
        // SAFETY: the packet holds a slot of that pool.
        let inner = unsafe { Inner::of(self.pool_id()) };
        // SAFETY: the packet owned the slot, and is gone.
        unsafe { Inner::put_home(inner, &[self.slot]) }
    }
}

impl fmt::Debug for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packet")
            .field("pool", &self.pool_id())
            .field("offset", &self.offset())
            .field("len", &self.len())
            .field("continues", &self.continues())
            .field("checksum", &self.checksum())
            .finish()
    }
}

impl AsRef<[u8]> for Packet {
    fn as_ref(&self) -> &[u8] {
        self.data()
    }
}

/// A handle of the pool that the packet came from.
impl From<&Packet> for Pool {
    fn from(packet: &Packet) -> Self {
        Self::of(packet)
    }
}
