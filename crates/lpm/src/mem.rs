//! The memory readers walk: the only place, with [`lookup`](crate::lookup), where this crate is unsafe.
//!
//! A [`Region`] is one zeroed mapping: an array of root words, then blocks. Everything in it is read and
//! written with atomic operations, because a reader may still be looking at a block that was freed and
//! used again (the reader then finds out, see [`clock`](crate::clock), and throws its answer away).
//! What such a reader sees may be mixed, but must never lead it out of the region. Hence the rules:
//!
//! # Invariants
//! * A word that makes a block reachable is stored with Release after the block was written. Readers load it
//!   relaxed, for all the addresses of a burst, and call [`arrive`] once before they follow any.
//! * References stay with their region.
//!
//! Of IPv4's blocks, which [`Slab`] hands out:
//! * The region is cut into chunks of 4 KiB. A chunk belongs to one class for ever, so every byte
//!   is always accessed with the same width and always means the same.
//! * A [`LinkRef`] or [`PackedRef`] is only made by [`Slab`] for a slot of that class, or
//!   read from a word that only ever held such references.
//! * The first block of every region, a link block of zeroes, is not written again. So zero is a good [`LinkRef`] anywhere, and
//!   any reader may read a leaf of zero there.
//! * A [`PackedRef`] has its bitmap with it, in one word, with as many bits as the slot has leaves. Leaves that may be
//!   [`Leaf::ESCAPE`] lie in slots that start with as many [`LinkRef`]s, of classes of their own.
//! * The leaf of a run that is no escape may be replaced by another; its reader calls [`arrive`] before it asks the palette.
//!
//! Of IPv6's, which [`Heap`] hands out:
//! * All are read as words of 64 bits, and a reader that is late may take any word for any other: the place of one that is read is cut to the region, which has a power
//!   of two of them. Root words only ever hold the [`PageRef`]s that [`Heap`] makes.
//! * A [`NodeRef`] has its bitmaps with it, in one word. Zero is "no route", and so is the first page, of zeroes, which is
//!   never written.

mod heap;
mod mapping;
mod newest;
mod region;
mod slab;

use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

use heap::leaves_in_word;
pub(crate) use heap::{Extent, Heap};
pub(crate) use newest::{Newest, Publisher};
pub(crate) use region::{Bytes, Region, View};
pub(crate) use slab::Slab;

use crate::Result;

/// Bytes per unit in which blocks are addressed.
const UNIT: usize = 8;
/// Bytes per chunk.
const CHUNK: usize = 4096;
/// Slots of a packed block: as many as its bitmap has bits.
pub(crate) const PACKED_SLOTS: usize = 32;

/// What distinguishes the regions of the two families.
pub(crate) trait Roots {
    /// Leading address bits that index the root array, 16 or 19.
    const ROOT_BITS: u32;
    /// Root words there are at least; if that is not all, the last one stands for those beyond.
    const ROOTS: usize;
    /// What a root word says.
    type Block: Root;
}

/// Hands out the blocks of one region, to one writer.
pub(crate) trait Store: Sized + Send + Sync {
    /// A block to give back.
    type Block: Copy + Send + Sync;

    /// What room for blocks comes in, in bytes.
    const GRAIN: usize;
    /// Bytes of blocks a region has room for at most, a multiple of the grain: no lookup can address more.
    const MOST: usize;

    /// A region with room for `bytes` of blocks (rounded up to the grain, at most `MOST`, and at least what the store itself
    /// needs), with all root words or the least, and the store for it, for leaves of `leaf_bytes`.
    fn with_region<R: Roots>(bytes: usize, whole: bool, leaf_bytes: usize) -> Result<(Region<R>, Self)>;
    /// Bytes of blocks the region has room for, the reserve not counted.
    fn capacity(&self) -> usize;
    /// Whether the reserve is kept from now on, or what comes is a removal.
    fn keep_reserve(&mut self, keep: bool);
    /// Bytes of all blocks in use.
    fn live(&self) -> usize;
    /// Gives a block back. No reader may be able to reach it, or its answer must be thrown away.
    fn free(&mut self, block: Self::Block);
    /// The size of a block, in bytes.
    fn bytes(&self, block: Self::Block) -> usize;
}

/// What a root word says: where a block lies, and maybe more. Implemented in this module only.
pub(crate) trait Root: Copy + Send + Sync + core::fmt::Debug + 'static {
    /// The atomic type of a root word.
    type Atomic;
    /// A relaxed load.
    fn load(atomic: &Self::Atomic) -> Self;
    /// A store with Release.
    fn publish(self, atomic: &Self::Atomic);
    /// Whether the word is zero.
    fn is_zero(self) -> bool;
}

/// A block of IPv4 to give back: its first byte, or that of its first leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Block(usize);

/// A link block of 8 PackedRefs, for the /27s of a /24: its first unit. A cache line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(transparent)]
pub(crate) struct LinkRef(u32);

/// A block of 256 NodeRefs, one per slot: its first word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(transparent)]
pub(crate) struct PageRef(u32);

/// A packed block `[one LinkRef per run, backwards, if a leaf is Leaf::ESCAPE | one leaf per run]` over 32 slots. The lower
/// half is the bitmap of run starts, the upper half the byte of the first leaf: a shift by what is left of the slots leaves as
/// many bits as leaves to skip, and that of slot 0. Without that bit the leaves are in the upper half, the first in its lowest
/// bits; there is no block then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(transparent)]
pub(crate) struct PackedRef(u64);

/// A node over 16 slots. From the lowest bit: 32 for the leaves, or the place before those of
/// `[one NodeRef per child | one leaf per run]`, to which counts are added as it stands; one that says its leaves are in this word;
/// 15 for slots from 1 on that start another run of equal leaves, children skipped; 16 for slots that lead to a child. Of leaves,
/// in words of either kind, the first is in the lowest bits. [`lookup`](crate::lookup) knows these places.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(transparent)]
pub(crate) struct NodeRef(u64);

/// Where a NodeRef lies: the number of its word.
#[derive(Debug, Clone, Copy, Default)]
#[repr(transparent)]
pub(crate) struct EntryRef(u32);

impl NodeRef {
    /// Slots of a node.
    pub(crate) const SLOTS: usize = 16;
    /// Says that leaves are in the word.
    const IN_PLACE: u64 = 1 << Self::STARTS;
    /// The bit before those of slots that start a run.
    const STARTS: u32 = 32;
    /// The first bit of children.
    const CHILDREN: u32 = 48;
    /// The bits of children up to each slot, the last slot first.
    const UPTO: [u64; Self::SLOTS] = {
        let mut upto = [u64::MAX << Self::CHILDREN; Self::SLOTS];
        let mut at = 1;
        while at < upto.len() {
            upto[at] &= upto[at - 1] >> 1;
            at += 1;
        }
        upto
    };

    /// A node with a block after the word at `before`; see [`Heap::node`].
    fn new(before: u32, children: u16, starts: u16) -> Self {
        Self(u64::from(before) | u64::from(starts) << Self::STARTS | u64::from(children) << Self::CHILDREN)
    }

    /// A node without children, if there is room for its leaves.
    fn in_place<L: Leaf>(starts: u16, leaves: &[L]) -> Option<Self> {
        let lower = leaves_in_word(leaves);
        (size_of_val(leaves) <= 4).then(|| Self(lower | u64::from(starts) << Self::STARTS | Self::IN_PLACE))
    }

    /// A node all of whose slots have one leaf.
    pub(crate) fn of_leaf<L: Leaf>(leaf: L) -> Self {
        Self(u64::from(leaf.word()) | Self::IN_PLACE)
    }

    /// The bits of children.
    #[inline(always)]
    fn children(self) -> u64 {
        self.0 >> Self::CHILDREN
    }

    /// Runs of equal leaves.
    fn runs(self) -> usize {
        self.rank(0) as usize + usize::from(self.children() != 0xffff)
    }

    /// The place before its block.
    #[inline(always)]
    fn before(self) -> u32 {
        #[expect(clippy::cast_possible_truncation, reason = "the lower half is wanted")]
        let before = self.0 as u32;
        before
    }

    #[inline(always)]
    fn is_in_place(self) -> bool {
        self.0 & Self::IN_PLACE != 0
    }

    /// Leaves before that of the slot so many before the last.
    #[inline(always)]
    fn rank(self, from_last: u32) -> u32 {
        const BELOW: u64 = NodeRef::IN_PLACE << 1;
        (self.0 & BELOW.wrapping_neg()).wrapping_shl(16 + from_last).count_ones()
    }

    /// Where the child of the slot so many before the last lies, and whether there is one.
    #[inline(always)]
    pub(crate) fn child(self, from_last: u32) -> (EntryRef, bool) {
        // From memory: a shift of the node would keep its bits waiting.
        let upto = Self::UPTO[from_last as usize % Self::SLOTS];
        let has_child = self.0.wrapping_shl(from_last).cast_signed() < 0;
        (EntryRef(self.before().wrapping_add((self.0 & upto).count_ones())), has_child)
    }

    /// The place of a leaf with so many bytes of leaves before it, if it is not in the word.
    #[inline(always)]
    fn leaf_place(self, bytes: u32) -> u32 {
        self.before().wrapping_add(1 + self.children().count_ones() + bytes / 8)
    }
}

impl PageRef {
    /// "No route" for all slots.
    pub(crate) const NONE: Self = Self(0);

    /// The number of its first word.
    #[inline(always)]
    pub(crate) fn number(self) -> u32 {
        self.0
    }

    /// Where the entry for `slot` lies.
    #[inline(always)]
    pub(crate) fn entry(self, slot: u8) -> EntryRef {
        EntryRef(self.0 + u32::from(slot))
    }
}

impl From<LinkRef> for Block {
    fn from(link: LinkRef) -> Self {
        Self(link.0 as usize * UNIT)
    }
}

impl Root for PageRef {
    type Atomic = AtomicU32;

    #[inline(always)]
    fn load(atomic: &AtomicU32) -> Self {
        Self(atomic.load(Ordering::Relaxed))
    }

    fn publish(self, atomic: &AtomicU32) {
        atomic.store(self.0, Ordering::Release);
    }

    fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl Root for PackedRef {
    type Atomic = AtomicU64;

    #[inline(always)]
    fn load(atomic: &AtomicU64) -> Self {
        Self(atomic.load(Ordering::Relaxed))
    }

    fn publish(self, atomic: &AtomicU64) {
        atomic.store(self.0, Ordering::Release);
    }

    fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl LinkRef {
    /// Slots of a link block.
    pub(crate) const SLOTS: usize = 8;
    /// The first block, of zeroes: "no route".
    pub(crate) const NONE: Self = Self(0);
}

impl PackedRef {
    /// Bit 0 of `bitmap` is set.
    fn new(first_leaf: u32, bitmap: u32) -> Self {
        Self(u64::from(first_leaf) << 32 | u64::from(bitmap))
    }

    /// The same without a block, if there is room for its leaves.
    fn in_place<L: Leaf>(bitmap: u32, leaves: &[L]) -> Option<Self> {
        (size_of_val(leaves) <= 4).then(|| Self(leaves_in_word(leaves) << 32 | u64::from(bitmap & !1)))
    }

    /// All slots have one leaf.
    pub(crate) fn of_leaf<L: Leaf>(leaf: L) -> Self {
        Self(u64::from(leaf.word()) << 32)
    }

    #[inline(always)]
    fn is_in_place(self) -> bool {
        self.0 & 1 == 0
    }

    /// The block to give back, if there is one.
    pub(crate) fn block(self) -> Option<Block> {
        (!self.is_in_place()).then(|| Block(self.upper() as usize))
    }

    /// The bitmap of run starts; that of slot 0 may be missing.
    #[inline(always)]
    pub(crate) fn bitmap(self) -> u32 {
        #[expect(clippy::cast_possible_truncation, reason = "the lower half is wanted")]
        let bitmap = self.0 as u32;
        bitmap
    }

    /// The byte of the first leaf, or the leaves.
    #[inline(always)]
    pub(crate) fn upper(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Leaves before that of `slot` (modulo 32).
    #[inline(always)]
    fn rank(self, slot: u32) -> u32 {
        const { assert!(PACKED_SLOTS == u32::BITS as usize) };
        (self.bitmap() & !1).wrapping_shl(!slot).count_ones()
    }

    /// The byte of its link, if it is [`Leaf::ESCAPE`].
    #[inline(always)]
    fn link(self, slot: u32) -> usize {
        self.upper() as usize - (1 + self.rank(slot) as usize) * size_of::<LinkRef>()
    }
}

/// The leaf of a packed block or a node: an index into the palette of next hops, or (32 bits) the next hop itself.
pub(crate) trait Leaf: Copy + Eq {
    /// Says that the answer lies deeper.
    const ESCAPE: Self;
    /// Bytes of a leaf, and their logarithm.
    const BYTES: u32 = 1 << Self::LOG;
    const LOG: u32;
    /// The atomic type of this width.
    type Atomic;
    fn load(atomic: &Self::Atomic) -> Self;
    fn store(atomic: &Self::Atomic, value: Self);
    fn from_word(word: u32) -> Self;
    fn word(self) -> u32;
}

macro_rules! leaf {
    ($($int:ty, $atomic:ty;)*) => {$(
        impl Leaf for $int {
            const ESCAPE: Self = <$int>::MAX;
            const LOG: u32 = (<$int>::BITS / 8).ilog2();
            type Atomic = $atomic;
            #[inline(always)]
            fn load(atomic: &$atomic) -> Self {
                atomic.load(Ordering::Relaxed)
            }
            #[inline(always)]
            fn store(atomic: &$atomic, value: Self) {
                atomic.store(value, Ordering::Relaxed);
            }
            #[inline(always)]
            #[expect(clippy::allow_attributes, reason = "u32 does not need it")]
            #[allow(clippy::cast_possible_truncation, reason = "the palette of this width gives no larger index")]
            fn from_word(word: u32) -> Self {
                word as $int
            }
            fn word(self) -> u32 {
                self.into()
            }
        }
    )*};
}

leaf! {
    u8, AtomicU8;
    u16, AtomicU16;
    u32, AtomicU32;
}

/// Makes the blocks behind all references loaded so far visible.
#[inline(always)]
pub(crate) fn arrive() {
    fence(Ordering::Acquire);
}
