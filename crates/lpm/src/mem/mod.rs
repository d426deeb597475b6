//! The memory readers walk: the only place, with [`kernel`](crate::kernel), where this crate is unsafe.
//!
//! A [`Region`] is one zeroed mapping: an array of root words, then blocks. Everything in it is read and
//! written with atomic operations, because a reader may still be looking at a block that was freed and
//! used again (the reader then finds out, see [`clock`](crate::clock), and throws its answer away).
//! What such a reader sees may be mixed, but must never lead it out of the region. Hence the rules:
//!
//! # Invariants
//! * The region is cut into chunks of 4 KiB. A chunk belongs to one [`Class`] for ever, so every byte
//!   is always accessed with the same width and always means the same.
//! * A [`LinkRef`], [`PackedRef`] or [`PageRef`] is only made by [`Slab`] for a slot of that class, or
//!   read from a word that only ever held such references. References stay with their region. What a [`LinkRef`] refers to
//!   follows from the [`Depth`] of the block it was read from, and blocks of a depth have classes of their own.
//! * The bitmap of a link or tail block has fewer bits than the slot of its class has entries. So what is counted in it is an
//!   entry of the slot, written or still zero. Zero is a good [`LinkRef`] anywhere: the leaf block "no route", the first
//!   block of every region.
//! * A [`PackedRef`] has its bitmap with it, in one word, with fewer bits than the slot has leaves. Leaves that may be
//!   [`Leaf::ESCAPE`] lie in slots that start with as many [`LinkRef`]s, of classes of their own. Zero is a good [`PackedRef`]
//!   too: its leaf is in the first block, of nothing but zeroes, which is not written again.
//! * A word that makes a block reachable is stored with Release after the block was written. Readers load it
//!   relaxed, for all the addresses of a burst, and call [`arrive`] once before they follow any.
//! * The leaf of a run that is no escape may be replaced by another; its reader calls [`arrive`] before it asks the palette.

mod mapping;
mod region;
mod slab;

use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

pub(crate) use region::{Bytes, Region, View};
pub(crate) use slab::Slab;

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

/// What a root word says: where a block lies, and maybe more. Implemented in this module only.
pub(crate) trait Root: Copy + Into<Block> + Send + Sync + core::fmt::Debug + 'static {
    /// The atomic type of a root word.
    type Atomic;
    /// A relaxed load.
    fn load(atomic: &Self::Atomic) -> Self;
    /// A store with Release.
    fn publish(self, atomic: &Self::Atomic);
    /// Whether the word is zero.
    fn is_zero(self) -> bool;
}

/// A block to give back: its first byte, or that of its first leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Block(usize);

/// A link block `[bitmap: u64 | one LinkRef per run]` over 64 slots, or a tail block `[bitmap: u64 | LinkRef, for leaves
/// that are Leaf::ESCAPE | one leaf per run]`. Bit `i` says that a run starts at slot `i + 1`, and the last run comes
/// first: a shift by the slot leaves as many bits as entries to skip. A tail block of one run that leads back to itself is
/// a leaf block, `[0 | itself | leaf]`: for any slot both a link to itself and a leaf. This is its first unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(transparent)]
pub(crate) struct LinkRef(u32);

/// A block of 256 LinkRefs, one per slot: its first unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(transparent)]
pub(crate) struct PageRef(u32);

/// A packed block `[one LinkRef per run, backwards, if a leaf is Leaf::ESCAPE | one leaf per run]` over 32 slots. The lower
/// half is the bitmap of run starts without that of slot 0, the upper half the byte of the first leaf: a shift by what
/// is left of the slots leaves as many bits as leaves to skip.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(transparent)]
pub(crate) struct PackedRef(u64);

impl From<LinkRef> for Block {
    fn from(link: LinkRef) -> Self {
        Self(link.0 as usize * UNIT)
    }
}

impl From<PageRef> for Block {
    fn from(page: PageRef) -> Self {
        Self(page.0 as usize * UNIT)
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

/// Link blocks whose entries lead to other kinds of blocks are of different depths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    /// To link blocks `Second`, or leaf blocks.
    First,
    /// To link blocks `Third`, or leaf blocks.
    Second,
    /// To tail blocks, leaf blocks among them.
    Third,
    /// To others like it, or leaf blocks.
    Below,
}

impl LinkRef {
    /// The leaf block "no route".
    pub(crate) const NONE: Self = Self(0);
}

impl From<PackedRef> for Block {
    fn from(packed: PackedRef) -> Self {
        Self(packed.first_leaf())
    }
}

impl PackedRef {
    /// "No route" for all slots: what leads to the zeroes that every region starts with, which no one ever writes again.
    pub(crate) const NONE: Self = Self(0);

    /// `bitmap` without slot 0.
    fn new(first_leaf: u32, bitmap: u32) -> Self {
        Self(u64::from(first_leaf) << 32 | u64::from(bitmap))
    }

    /// The bitmap of run starts, slot 0 not among them.
    #[inline(always)]
    pub(crate) fn bitmap(self) -> u32 {
        #[expect(clippy::cast_possible_truncation, reason = "the lower half is wanted")]
        let bitmap = self.0 as u32;
        bitmap
    }

    /// The byte of the first leaf.
    #[inline(always)]
    fn first_leaf(self) -> usize {
        (self.0 >> 32) as usize
    }

    /// Leaves before that of `slot` (modulo 32).
    #[inline(always)]
    fn rank(self, slot: u32) -> usize {
        const { assert!(PACKED_SLOTS == u32::BITS as usize) };
        self.bitmap().wrapping_shl(!slot).count_ones() as usize
    }

    /// The byte of that leaf.
    #[inline(always)]
    fn leaf<L: Leaf>(self, slot: u32) -> usize {
        self.first_leaf() + self.rank(slot) * size_of::<L>()
    }

    /// The byte of its link, if it is [`Leaf::ESCAPE`].
    #[inline(always)]
    fn link(self, slot: u32) -> usize {
        self.first_leaf() - (1 + self.rank(slot)) * size_of::<LinkRef>()
    }
}

/// The leaf of a packed or tail block: an index into the palette of next hops, or (32 bits) the next hop itself.
pub(crate) trait Leaf: Copy + Eq {
    /// Says that the answer lies deeper.
    const ESCAPE: Self;
    /// The atomic type of this width.
    type Atomic;
    fn load(atomic: &Self::Atomic) -> Self;
    fn store(atomic: &Self::Atomic, value: Self);
    fn from_word(word: u32) -> Self;
}

macro_rules! leaf {
    ($($int:ty, $atomic:ty;)*) => {$(
        impl Leaf for $int {
            const ESCAPE: Self = <$int>::MAX;
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

/// The number of runs after the one of `slot` (taken modulo 64), by the bitmap of a link or tail block.
#[inline(always)]
pub(crate) fn runs_after(bitmap: u64, slot: u32) -> usize {
    bitmap.wrapping_shr(slot).count_ones() as usize
}
