//! One mapping of root words and blocks, and the byte per /24.

use alloc::boxed::Box;
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

use super::mapping::Mapping;
use super::{
    CHUNK, GUARD, HalfRef, Leaf, LeavesRef, LinkRef, PACKED_SLOTS, PackedRef, PageRef, Reference, Roots, UNIT, rank,
    runs_after,
};
use crate::Result;

/// Root words, then blocks; see [`super`] for the invariants.
pub(crate) struct Region<R> {
    /// The first block; the root words lie before it.
    blocks: NonNull<u8>,
    chunks: usize,
    /// Of each chunk of packed blocks, what its blocks have room for.
    rooms: Box<[AtomicU8]>,
    mapping: Mapping,
    family: PhantomData<fn() -> R>,
}

// SAFETY: `blocks` points into the mapping, which is Send, and everything behind it is atomic.
unsafe impl<R> Send for Region<R> {}
// SAFETY: as for Send.
unsafe impl<R> Sync for Region<R> {}

impl<R: Roots> Region<R> {
    const ROOT_BYTES: usize = 4 << R::ROOT_BITS;

    /// A region of zeroes with room for `chunks` chunks of blocks.
    pub(super) fn new(chunks: usize) -> Result<Self> {
        let bytes = (CHUNK * UNIT).saturating_mul(chunks).saturating_add(Self::ROOT_BYTES + GUARD);
        let mapping = Mapping::new(bytes)?;
        // SAFETY: the mapping is at least ROOT_BYTES long.
        let blocks = unsafe { mapping.base().add(Self::ROOT_BYTES) };
        let rooms = (0..chunks).map(|_| AtomicU8::new(0)).collect();
        Ok(Self { blocks, chunks, rooms, mapping, family: PhantomData })
    }

    /// Chunks of blocks in the region.
    pub(super) fn chunks(&self) -> usize {
        self.chunks
    }

    /// Bytes of the whole mapping.
    pub(crate) fn bytes(&self) -> usize {
        self.mapping.bytes()
    }

    /// Bytes of the root array.
    pub(crate) fn root_bytes(&self) -> usize {
        Self::ROOT_BYTES
    }

    /// What loops over many blocks go by.
    #[inline(always)]
    pub(crate) fn view(&self) -> View<'_, R> {
        View { blocks: self.blocks, chunks: self.chunks, region: PhantomData }
    }

    /// The word `byte` bytes after the block at `unit`.
    #[inline(always)]
    fn at<T>(&self, unit: u32, byte: usize) -> &T {
        self.view().at(unit, byte)
    }

    /// The first root word; the others of ROOT_BITS bits follow.
    #[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
    pub(crate) fn roots_base(&self) -> *const u32 {
        self.mapping.base().as_ptr().cast()
    }

    /// The first block: what a reference counts its units from.
    #[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
    pub(crate) fn blocks_base(&self) -> *const u8 {
        self.blocks.as_ptr()
    }

    /// The root word for an address whose leading 32 bits are `top`.
    #[inline(always)]
    fn root_word(&self, top: u32) -> &AtomicU32 {
        self.view().root_word(top)
    }

    /// The block for an address whose leading 32 bits are `top`, to be followed after [`super::arrive`].
    #[inline(always)]
    pub(crate) fn root(&self, top: u32) -> R::Block {
        self.view().root(top)
    }

    /// Publishes the block for the root slot of `top`.
    pub(crate) fn set_root(&self, top: u32, block: R::Block) {
        self.root_word(top).store(block.word(), Ordering::Release);
    }

    /// Publishes the entry of `slot` in a page.
    pub(crate) fn set_page_entry(&self, page: PageRef, slot: u8, link: LinkRef) {
        self.at::<AtomicU32>(page.0, 4 * usize::from(slot)).store(link.0, Ordering::Release);
    }

    /// The bitmap of a link or tail block: bit `i` says that a run starts at slot `i + 1`.
    #[inline(always)]
    pub(crate) fn bitmap(&self, block: LinkRef) -> u64 {
        self.view().bitmap(block)
    }

    /// The entry for `slot` (modulo 64), to be followed after [`super::arrive`]; a leaf block answers itself.
    #[inline(always)]
    pub(crate) fn step(&self, link: LinkRef, slot: u32) -> LinkRef {
        self.view().step(link, slot)
    }

    /// Publishes a new entry for the run that starts at `slot`.
    pub(crate) fn set_step(&self, link: LinkRef, slot: u32, entry: LinkRef) {
        let after = runs_after(self.bitmap(link), slot);
        self.at::<AtomicU32>(link.0, UNIT + 4 * after).store(entry.0, Ordering::Release);
    }

    /// The next hop word of a leaf block with leaves of that width; anything for other blocks.
    #[inline(always)]
    pub(crate) fn leaf_word(&self, link: LinkRef) -> u32 {
        self.at::<AtomicU32>(link.0, UNIT + 4).load(Ordering::Relaxed)
    }

    /// The bitmap of a packed block.
    pub(crate) fn packed_bitmap(&self, block: PackedRef) -> u128 {
        let half = |half| self.at::<AtomicU64>(block.unit(), half * UNIT).load(Ordering::Relaxed);
        u128::from(half(0)) | u128::from(half(1)) << 64
    }

    /// The leaf of `slot` (modulo 128) in a packed block.
    #[inline(always)]
    pub(crate) fn packed_leaf<L: Leaf>(&self, block: PackedRef, slot: u32) -> L {
        let (half, leaves) = block.half::<L>(slot);
        self.half_leaf(block, half, leaves, slot)
    }

    /// The same; `half` and `leaves` are [`PackedRef::half`] of this block and slot, and width of leaves.
    #[inline(always)]
    pub(crate) fn half_leaf<L: Leaf>(&self, block: PackedRef, half: HalfRef, leaves: LeavesRef, slot: u32) -> L {
        let byte = self.leaf_byte::<L>(half, leaves, slot);
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            let _ = block;
            // SAFETY: at most 128 leaves beyond the bitmaps of a block, the mapping goes on for GUARD bytes after the last one.
            let pointer = unsafe { self.blocks.add(byte) };
            // SAFETY: as before.
            unsafe { L::read(pointer.as_ptr()) }
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        L::load(self.leaf_atomic::<L>(block, byte))
    }

    #[inline(always)]
    fn leaf_byte<L: Leaf>(&self, half: HalfRef, leaves: LeavesRef, slot: u32) -> usize {
        let bitmap = self.at::<AtomicU64>(half.0, 0).load(Ordering::Relaxed);
        leaves.0 as usize + rank(bitmap, slot) * size_of::<L>() + (2 * UNIT - size_of::<L>())
    }

    /// The leaf at `byte`, or the last one that the slot has room for if that is before it.
    #[inline(always)]
    fn leaf_atomic<L: Leaf>(&self, block: PackedRef, byte: usize) -> &L::Atomic {
        let start = block.unit() as usize * UNIT;
        let last = 2 * UNIT + self.room(block).leaf_bytes() - size_of::<L>();
        self.at::<L::Atomic>(block.unit(), (byte - start).min(last))
    }

    /// Publishes another leaf for the run that starts at `slot`; neither it nor the one before is an escape.
    pub(crate) fn set_packed_leaf<L: Leaf>(&self, block: PackedRef, slot: u32, leaf: L) {
        let (half, leaves) = block.half::<L>(slot);
        let atomic = self.leaf_atomic::<L>(block, self.leaf_byte::<L>(half, leaves, slot));
        fence(Ordering::Release);
        L::store(atomic, leaf);
    }

    /// Where the escapes among the leaves of each half lead: a block with an entry per such slot, or the leaf "no route" where
    /// there are none.
    pub(crate) fn packed_escapes(&self, block: PackedRef) -> Option<[LinkRef; 2]> {
        let room = self.room(block);
        let escape = |half| self.at::<AtomicU32>(block.unit(), room.escape(half)).load(Ordering::Relaxed);
        room.escapes().then(|| [0, 1].map(|half| LinkRef(escape(half))))
    }

    #[inline(always)]
    fn room(&self, block: PackedRef) -> Room {
        // SAFETY: a reference is to a block of one of `chunks` chunks, and there are as many rooms.
        let room = unsafe { self.rooms.get_unchecked(block.unit() as usize / CHUNK) };
        Room(room.load(Ordering::Relaxed))
    }

    /// Says what the packed blocks of a chunk have room for, before there are any.
    pub(super) fn set_room(&self, chunk: usize, room: Room) {
        self.rooms[chunk].store(room.0, Ordering::Relaxed);
    }

    pub(super) fn write_bitmap(&self, unit: u32, byte: usize, bitmap: u64) {
        self.at::<AtomicU64>(unit, byte).store(bitmap, Ordering::Relaxed);
    }

    pub(super) fn write_word(&self, unit: u32, byte: usize, word: u32) {
        self.at::<AtomicU32>(unit, byte).store(word, Ordering::Relaxed);
    }

    pub(super) fn write_leaves<'a, L: Leaf + 'a>(&self, unit: u32, byte: usize, leaves: impl Iterator<Item = &'a L>) {
        for (index, leaf) in leaves.enumerate() {
            L::store(self.at::<L::Atomic>(unit, byte + index * size_of::<L>()), *leaf);
        }
    }
}

/// The same memory, by value: a loop keeps where it starts in a register, past all the fences of [`super::arrive`].
pub(crate) struct View<'a, R> {
    /// The first block, as in [`Region`].
    blocks: NonNull<u8>,
    chunks: usize,
    region: PhantomData<&'a Region<R>>,
}

impl<R> Clone for View<'_, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for View<'_, R> {}

impl<'a, R: Roots> View<'a, R> {
    /// The word `byte` bytes after the block at `unit`.
    #[inline(always)]
    fn at<T>(self, unit: u32, byte: usize) -> &'a T {
        debug_assert!(unit as usize * UNIT + byte + size_of::<T>() <= self.chunks * CHUNK * UNIT);
        // SAFETY: callers pass a slot of the region and a byte within that slot.
        let pointer = unsafe { self.blocks.add(unit as usize * UNIT + byte) };
        // SAFETY: T is an atomic integer, aligned as its slot is, and all accesses here have its width.
        unsafe { pointer.cast::<T>().as_ref() }
    }

    /// The root word for an address whose leading 32 bits are `top`.
    #[inline(always)]
    fn root_word(self, top: u32) -> &'a AtomicU32 {
        let index = (top >> (32 - R::ROOT_BITS)) as usize;
        // SAFETY: the mapping starts with ROOT_BYTES of root words.
        let roots = unsafe { self.blocks.sub(Region::<R>::ROOT_BYTES) };
        // SAFETY: the index has ROOT_BITS bits, and there are that many words.
        let pointer = unsafe { roots.cast::<AtomicU32>().add(index) };
        // SAFETY: root words are only ever accessed as AtomicU32.
        unsafe { pointer.as_ref() }
    }

    /// See [`Region::root`].
    #[inline(always)]
    pub(crate) fn root(self, top: u32) -> R::Block {
        R::Block::from_word(self.root_word(top).load(Ordering::Relaxed))
    }

    /// The entry of `slot` (0 to 255) in a page, to be followed after [`super::arrive`].
    #[inline(always)]
    pub(crate) fn page_entry(self, page: PageRef, slot: u8) -> LinkRef {
        LinkRef(self.at::<AtomicU32>(page.0, 4 * usize::from(slot)).load(Ordering::Relaxed))
    }

    #[inline(always)]
    fn bitmap(self, block: LinkRef) -> u64 {
        self.at::<AtomicU64>(block.0, 0).load(Ordering::Relaxed)
    }

    /// See [`Region::step`].
    #[inline(always)]
    pub(crate) fn step(self, link: LinkRef, slot: u32) -> LinkRef {
        let after = runs_after(self.bitmap(link), slot);
        LinkRef(self.at::<AtomicU32>(link.0, UNIT + 4 * after).load(Ordering::Relaxed))
    }

    /// The leaf of `slot` (modulo 64) in a tail block, or of a leaf block.
    #[inline(always)]
    pub(crate) fn tail_leaf<L: Leaf>(self, link: LinkRef, slot: u32) -> L {
        let after = runs_after(self.bitmap(link), slot);
        L::load(self.at::<L::Atomic>(link.0, UNIT + 4 + after * size_of::<L>()))
    }

    /// Where a leaf `L::ESCAPE` of this tail block leads, after [`super::arrive`]: to a block with an entry per such slot. To
    /// the first block if there is none.
    #[inline(always)]
    pub(crate) fn tail_escape(self, link: LinkRef) -> LinkRef {
        LinkRef(self.at::<AtomicU32>(link.0, UNIT).load(Ordering::Relaxed))
    }

    /// Whether a link is to a leaf block: of link blocks and those, no other has one run, see `build`.
    #[inline(always)]
    pub(crate) fn is_leaf(self, link: LinkRef) -> bool {
        self.bitmap(link) == 0
    }

    /// Asks for the first line of a block, to be read later.
    #[inline(always)]
    pub(crate) fn prefetch(self, link: LinkRef) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let pointer = self.blocks.as_ptr().wrapping_add(link.0 as usize * UNIT);
            // SAFETY: every x86-64 CPU has the instruction, which reads nothing and faults nowhere.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(pointer.cast()) };
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let _ = link;
    }
}

/// What the packed blocks of a class have room for: units of leaves, and whether two references follow them.
#[derive(Clone, Copy)]
pub(super) struct Room(u8);

impl Room {
    const ESCAPES: u8 = 0x80;

    /// `units` is 1 to 64.
    pub(super) fn new(units: usize, escapes: bool) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "64 units hold the leaves of 128 slots")]
        let units = units as u8;
        Self(units | if escapes { Self::ESCAPES } else { 0 })
    }

    fn leaf_bytes(self) -> usize {
        usize::from(self.0 & !Self::ESCAPES) * UNIT
    }

    fn escapes(self) -> bool {
        self.0 & Self::ESCAPES != 0
    }

    /// Where in its block the reference for the escapes of a half lies.
    pub(super) fn escape(self, half: usize) -> usize {
        2 * UNIT + self.leaf_bytes() + 4 * half
    }
}

/// One byte per /24 of the IPv4 space: an index into the first 256 palette entries. And one per /16: the same, if all
/// its /24s have one, else [`Leaf::ESCAPE`].
pub(crate) struct Bytes(Mapping);

impl Bytes {
    const COUNT: usize = 1 << 24;
    /// Where the bytes per /16 start. Gathers of four bytes may read up to three bytes past the last one before.
    const COARSE: usize = Self::COUNT + 64;
    const COARSE_COUNT: usize = 1 << 16;

    pub(crate) fn new() -> Result<Self> {
        Mapping::new(Self::COARSE + Self::COARSE_COUNT + 4).map(Self)
    }

    /// The first byte; `COUNT + 3` bytes follow that may be read.
    #[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
    pub(crate) fn base(&self) -> *const u8 {
        self.0.base().as_ptr()
    }

    /// The first byte per /16; `COARSE_COUNT + 3` bytes follow that may be read.
    #[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
    pub(crate) fn coarse_base(&self) -> *const u8 {
        self.base().wrapping_add(Self::COARSE)
    }

    #[inline(always)]
    fn byte(&self, addr: u32) -> &AtomicU8 {
        // SAFETY: the index has 24 bits and the mapping COUNT bytes.
        let pointer = unsafe { self.0.base().add((addr >> 8) as usize) };
        // SAFETY: the table is only ever written as AtomicU8.
        unsafe { pointer.cast::<AtomicU8>().as_ref() }
    }

    fn coarse(&self, addr: u32) -> &AtomicU8 {
        // SAFETY: the index has 16 bits and the mapping COARSE_COUNT bytes from COARSE on.
        let pointer = unsafe { self.0.base().add(Self::COARSE + (addr >> 16) as usize) };
        // SAFETY: the table is only ever written as AtomicU8.
        unsafe { pointer.cast::<AtomicU8>().as_ref() }
    }

    /// The byte for the /24 of `addr`, to be followed after [`super::arrive`].
    #[inline(always)]
    pub(crate) fn get(&self, addr: u32) -> u8 {
        self.byte(addr).load(Ordering::Relaxed)
    }

    /// Publishes the bytes of /24s from the one of `addr` on, all in one /16.
    pub(crate) fn set(&self, addr: u32, bytes: &[u8]) {
        let coarse = self.coarse(addr);
        let all = coarse.load(Ordering::Relaxed);
        if all != u8::ESCAPE && bytes.iter().all(|byte| *byte == all) {
            return;
        }
        coarse.store(u8::ESCAPE, Ordering::Release);
        for (slot, index) in (0..).zip(bytes) {
            let byte = self.byte(addr + (slot << 8));
            if byte.load(Ordering::Relaxed) != *index {
                byte.store(*index, Ordering::Release);
            }
        }
        let first = self.get(addr & !0xffff);
        if (0..256).all(|slot| self.get(addr & !0xffff | slot << 8) == first) {
            coarse.store(first, Ordering::Release);
        }
    }

    /// Writes the bytes for 128 /24s from the one of `addr` on, a multiple of 2^15, while nobody else has the table.
    /// All of them are filled, in order.
    pub(crate) fn fill(&mut self, addr: u32, bytes: &[u8; PACKED_SLOTS]) {
        // SAFETY: the offset is a multiple of 128 below COUNT.
        let pointer = unsafe { self.0.base().add((addr >> 15) as usize * PACKED_SLOTS) };
        // SAFETY: there are 128 bytes at least, and `self` is exclusive.
        unsafe { pointer.cast::<[u8; PACKED_SLOTS]>().write(*bytes) };
        // One of its halves says of a /16 that it is not all the same, or that it still may be.
        let coarse = self.coarse(addr);
        let first = (addr >> 15).is_multiple_of(2);
        let all = if first { bytes[0] } else { coarse.load(Ordering::Relaxed) };
        let all = if *bytes == [all; PACKED_SLOTS] { all } else { u8::ESCAPE };
        coarse.store(all, Ordering::Relaxed);
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.bytes()
    }
}
