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
    #[expect(clippy::cast_possible_truncation, reason = "there are at most 2^19 root words")]
    pub(crate) fn last_root(&self) -> u32 {
        self.last as u32
    }

    /// The first block: what references count from.
    #[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
    pub(crate) fn blocks_base(&self) -> *const u8 {
        self.view().blocks_base()
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

    /// The leaf at byte `place` of the blocks.
    ///
    /// # Safety
    /// Such a leaf lies there: a root word says so, or it is the first byte.
    #[inline(always)]
    pub(crate) unsafe fn leaf_at<L: Leaf>(&self, place: u32) -> L {
        L::load(self.at(0, place as usize))
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
    /// See [`Region::blocks_base`].
    #[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
    #[inline(always)]
    pub(crate) fn blocks_base(self) -> *const u8 {
        self.blocks.as_ptr()
    }

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
}

/// One byte per /24 of the IPv4 space: an index into the first 256 palette entries, or [`Leaf::ESCAPE`].
pub(crate) struct Bytes(Mapping);

impl Bytes {
    const COUNT: usize = 1 << 24;

    pub(crate) fn new() -> Result<Self> {
        // Gathers of four bytes may start with the last one.
        Mapping::new(Self::COUNT + 3).map(Self)
    }

    /// The first byte; `COUNT + 3` bytes may be read from there on.
    #[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
    pub(crate) fn base(&self) -> *const u8 {
        self.0.base().as_ptr()
    }

    #[inline(always)]
    fn byte(&self, addr: u32) -> &AtomicU8 {
        // SAFETY: the index has 24 bits and the mapping more than COUNT bytes.
        let pointer = unsafe { self.0.base().add((addr >> 8) as usize) };
        // SAFETY: whoever shares the table accesses it as AtomicU8 (the gathers read it); `fill`, which does not, has it alone.
        unsafe { pointer.cast::<AtomicU8>().as_ref() }
    }

    /// The byte for the /24 of `addr`, to be followed after [`super::arrive`].
    #[inline(always)]
    pub(crate) fn get(&self, addr: u32) -> u8 {
        self.byte(addr).load(Ordering::Relaxed)
    }

    /// Publishes the bytes of /24s from the one of `addr` on.
    pub(crate) fn set(&self, addr: u32, bytes: &[u8]) {
        self.change(addr, bytes, |byte| byte);
    }

    /// Has those of the bytes that are to be others say nothing.
    pub(crate) fn hide(&self, addr: u32, bytes: &[u8]) {
        self.change(addr, bytes, |_| u8::ESCAPE);
    }

    #[inline(always)]
    fn change(&self, addr: u32, bytes: &[u8], to: impl Fn(u8) -> u8) {
        for (slot, new) in (0..).zip(bytes) {
            let byte = self.byte(addr + (slot << 8));
            if byte.load(Ordering::Relaxed) != *new {
                byte.store(to(*new), Ordering::Release);
            }
        }
    }

    /// Writes the bytes for the /24s of a packed block, the first that of `addr`, while nobody else has the table.
    pub(crate) fn fill(&mut self, addr: u32, bytes: &[u8; PACKED_SLOTS]) {
        // SAFETY: the offset is a multiple of PACKED_SLOTS below COUNT.
        let pointer = unsafe { self.0.base().add((addr >> 8) as usize / PACKED_SLOTS * PACKED_SLOTS) };
        // SAFETY: there are as many bytes at least, and as `self` is exclusive no reference to them is in use.
        unsafe { pointer.cast::<[u8; PACKED_SLOTS]>().write(*bytes) };
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.bytes()
    }
}
