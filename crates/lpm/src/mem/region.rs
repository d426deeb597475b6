//! One mapping of root words and blocks, and the byte per /24.

use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

use super::mapping::Mapping;
use super::{CHUNK, Leaf, LinkRef, PACKED_SLOTS, PackedRef, Root, Roots, UNIT};
use crate::Result;

/// Root words, then blocks; see [`super`] for the invariants.
pub(crate) struct Region<R> {
    /// The first block; the root words lie before it.
    blocks: NonNull<u8>,
    /// Of the last root word.
    last: usize,
    chunks: usize,
    mapping: Mapping,
    family: PhantomData<fn() -> R>,
}

// SAFETY: `blocks` points into the mapping, which is Send, and everything behind it is atomic.
unsafe impl<R> Send for Region<R> {}
// SAFETY: as for Send.
unsafe impl<R> Sync for Region<R> {}

/// A root word.
type RootWord<R> = <<R as Roots>::Block as Root>::Atomic;

impl<R: Roots> Region<R> {
    const ALL_ROOTS: usize = 1 << R::ROOT_BITS;

    /// A region of zeroes with room for `chunks` chunks of blocks, with all root words or [`Roots::ROOTS`].
    pub(super) fn new(chunks: usize, whole: bool) -> Result<Self> {
        let roots = if whole { Self::ALL_ROOTS } else { R::ROOTS };
        let root_bytes = (roots * size_of::<RootWord<R>>()).next_multiple_of(CHUNK);
        // Gathers of four bytes may start with the last one.
        let mapping = Mapping::new(CHUNK.saturating_mul(chunks).saturating_add(root_bytes + 3))?;
        // SAFETY: the mapping is at least `root_bytes` long.
        let blocks = unsafe { mapping.base().add(root_bytes) };
        Ok(Self { blocks, last: roots - 1, chunks, mapping, family: PhantomData })
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
        (self.last + 1) * size_of::<RootWord<R>>()
    }

    /// What loops over many blocks go by.
    #[inline(always)]
    pub(crate) fn view(&self) -> View<'_, R> {
        View {
            roots: self.mapping.base(),
            blocks: self.blocks,
            last: self.last,
            chunks: self.chunks,
            region: PhantomData,
        }
    }

    /// The word `byte` bytes after the block at `unit`.
    #[inline(always)]
    fn at<T>(&self, unit: u32, byte: usize) -> &T {
        self.view().at(unit, byte)
    }

    /// The first root word.
    #[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
    pub(crate) fn roots_base(&self) -> *const u8 {
        self.mapping.base().as_ptr()
    }

    /// The number of the last root word, which stands for those beyond.
    #[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
    pub(crate) fn last_root(&self) -> usize {
        self.last
    }

    /// The first block: what references count from.
    #[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
    pub(crate) fn blocks_base(&self) -> *const u8 {
        self.blocks.as_ptr()
    }

    /// What the root word for an address whose leading 32 bits are `top` says, to be followed after [`super::arrive`].
    #[inline(always)]
    pub(crate) fn root(&self, top: u32) -> R::Block {
        self.view().root(top)
    }

    /// Publishes the block for the root slot of `top`. Those that share a root word are set alike.
    pub(crate) fn set_root(&self, top: u32, block: R::Block) {
        block.publish(self.view().root_word(top));
    }

    /// What the word of `slot` (modulo 8) in a link block says, to be followed after [`super::arrive`].
    #[inline(always)]
    pub(crate) fn link_word(&self, link: LinkRef, slot: u32) -> PackedRef {
        PackedRef::load(self.link_atomic(link, slot))
    }

    /// Publishes another word in a link block.
    pub(crate) fn set_link_word(&self, link: LinkRef, slot: u32, word: PackedRef) {
        word.publish(self.link_atomic(link, slot));
    }

    #[inline(always)]
    fn link_atomic(&self, link: LinkRef, slot: u32) -> &AtomicU64 {
        self.at(link.0, slot as usize % LinkRef::SLOTS * size_of::<PackedRef>())
    }

    /// The leaf of `slot` (modulo 32) in a packed block.
    #[inline(always)]
    pub(crate) fn packed_leaf<L: Leaf>(&self, block: PackedRef, slot: u32) -> L {
        let bytes = block.rank(slot) * L::BYTES;
        // Read in any case, as a branch would be guessed wrong.
        let elsewhere = u32::from(block.is_in_place()).wrapping_sub(1);
        let read = L::load(self.at(0, (block.upper().wrapping_add(bytes) & elsewhere) as usize));
        if block.is_in_place() { L::from_word(block.upper().wrapping_shr(8 * bytes)) } else { read }
    }

    /// Publishes another leaf for the run that `slot` lies in; neither it nor the one before is an escape, and there is a block.
    pub(crate) fn set_packed_leaf<L: Leaf>(&self, block: PackedRef, slot: u32, leaf: L) {
        assert!(!block.is_in_place(), "a leaf in the word is another word");
        fence(Ordering::Release);
        L::store(self.at(0, (block.upper() + block.rank(slot) * L::BYTES) as usize), leaf);
    }

    /// Where the leaf of `slot` (modulo 32) leads, which is [`Leaf::ESCAPE`]. To be followed after [`super::arrive`].
    #[inline(always)]
    pub(crate) fn packed_link(&self, block: PackedRef, slot: u32) -> LinkRef {
        LinkRef(self.at::<AtomicU32>(0, block.link(slot)).load(Ordering::Relaxed))
    }

    /// Publishes another link for such a leaf.
    pub(crate) fn set_packed_link(&self, block: PackedRef, slot: u32, link: LinkRef) {
        self.at::<AtomicU32>(0, block.link(slot)).store(link.0, Ordering::Release);
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
    /// The first root word.
    roots: NonNull<u8>,
    /// The first block, as in [`Region`].
    blocks: NonNull<u8>,
    last: usize,
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
    /// Chunks of blocks in the region.
    #[inline(always)]
    pub(super) fn chunks(self) -> usize {
        self.chunks
    }

    /// The word `byte` bytes after the block at `unit`.
    #[inline(always)]
    pub(super) fn at<T>(self, unit: u32, byte: usize) -> &'a T {
        debug_assert!(unit as usize * UNIT + byte + size_of::<T>() <= self.chunks * CHUNK);
        // SAFETY: only this module's types call this, with a place inside the region: a block that its `Slab` handed out, or a
        // word of it that `word` cut to the region.
        let pointer = unsafe { self.blocks.add(unit as usize * UNIT + byte) };
        // SAFETY: T is the atomic integer as which words of that chunk (IPv4) or of the region (IPv6) are always accessed, and the
        // place is a multiple of its size from the first block, which is aligned to more.
        unsafe { pointer.cast::<T>().as_ref() }
    }

    /// The root word for an address whose leading 32 bits are `top`.
    #[inline(always)]
    fn root_word(self, top: u32) -> &'a RootWord<R> {
        let index = (top >> (32 - R::ROOT_BITS)) as usize;
        let index = if R::ROOTS == Region::<R>::ALL_ROOTS { index } else { index.min(self.last) };
        // SAFETY: an index has ROOT_BITS bits; either there is a word for each such number, or the index was cut to the last one.
        let pointer = unsafe { self.roots.cast::<RootWord<R>>().add(index) };
        // SAFETY: root words are only ever accessed as this type.
        unsafe { pointer.as_ref() }
    }

    /// See [`Region::root`].
    #[inline(always)]
    pub(crate) fn root(self, top: u32) -> R::Block {
        R::Block::load(self.root_word(top))
    }

    /// Asks for the line that byte of the blocks lies in; there may be no such byte.
    #[inline(always)]
    pub(super) fn prefetch_byte(self, byte: usize) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let pointer = self.blocks.as_ptr().wrapping_add(byte);
            // SAFETY: every x86-64 CPU has the instruction, which reads nothing and faults nowhere.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(pointer.cast()) };
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let _ = byte;
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
        // SAFETY: the index has 24 bits and the mapping more than COUNT bytes.
        let pointer = unsafe { self.0.base().add((addr >> 8) as usize) };
        // SAFETY: whoever shares the table accesses it as AtomicU8 (the assembly reads it); `fill`, which does not, has it alone.
        unsafe { pointer.cast::<AtomicU8>().as_ref() }
    }

    fn coarse(&self, addr: u32) -> &AtomicU8 {
        // SAFETY: the index has 16 bits and the mapping more than COARSE_COUNT bytes from COARSE on.
        let pointer = unsafe { self.0.base().add(Self::COARSE + (addr >> 16) as usize) };
        // SAFETY: it is only ever accessed as AtomicU8 (the assembly reads it).
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
        let is_first = |slot: u32| self.get(addr & !0xffff | slot << 8) == first;
        // The last one first: while many /24s are changed in order, it is the last to be the same.
        if bytes[0] == first && (0..256).rev().all(is_first) {
            coarse.store(first, Ordering::Release);
        }
    }

    /// Writes the bytes for the /24s of a packed block, the first that of `addr`, while nobody else has the table.
    /// All of them are filled, in order.
    pub(crate) fn fill(&mut self, addr: u32, bytes: &[u8; PACKED_SLOTS]) {
        // SAFETY: the offset is a multiple of PACKED_SLOTS below COUNT.
        let pointer = unsafe { self.0.base().add((addr >> 8) as usize / PACKED_SLOTS * PACKED_SLOTS) };
        // SAFETY: there are as many bytes at least, and as `self` is exclusive no reference to them is in use.
        unsafe { pointer.cast::<[u8; PACKED_SLOTS]>().write(*bytes) };
        // The first says of a /16 that it still may be all the same, and each that it is not.
        let coarse = self.coarse(addr);
        let all = if addr.trailing_zeros() >= 16 { bytes[0] } else { coarse.load(Ordering::Relaxed) };
        let all = if *bytes == [all; PACKED_SLOTS] { all } else { u8::ESCAPE };
        coarse.store(all, Ordering::Relaxed);
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.bytes()
    }
}
