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
//! * The bitmap of a packed block has bit 0 set and no more bits than the slot of its class has entries; that of a link or
//!   tail block has fewer bits than that. So what is counted in it is an entry of the slot, written or still zero. Zero is a
//!   good [`LinkRef`] anywhere: the leaf block "no route", the first block of every region.
//! * A word that makes a block reachable is stored with Release after the block was written. Readers load it
//!   relaxed, for all the addresses of a burst, and call [`arrive`] once before they follow any.
//! * The leaf of a run that is no escape may be replaced by another; its reader calls [`arrive`] before it asks the palette.

mod mapping;
mod region;
mod slab;

pub(crate) use region::{Bytes, Region, View};
pub(crate) use slab::Slab;

/// Bytes per unit in which blocks are addressed.
const UNIT: usize = 8;
/// Units per chunk.
const CHUNK: usize = 512;

/// What distinguishes the regions of the two families.
pub(crate) trait Roots {
    /// Leading address bits that index the root array, 16 to 18.
    const ROOT_BITS: u32;
    /// What a root word refers to.
    type Block: Reference;
}

/// A reference that can be kept in a word of a region. Implemented in this module only.
pub(crate) trait Reference: Copy + Send + Sync + core::fmt::Debug + 'static {
    fn from_word(word: u32) -> Self;
    fn word(self) -> u32;
}

macro_rules! reference {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        #[repr(transparent)]
        pub(crate) struct $name(u32);

        impl Reference for $name {
            #[inline(always)]
            fn from_word(word: u32) -> Self {
                Self(word)
            }
            #[inline(always)]
            fn word(self) -> u32 {
                self.0
            }
        }
    };
}

reference! {
    /// A link block `[bitmap: u64 | one LinkRef per run]` over 64 slots, or a tail block `[bitmap: u64 | LinkRef, for leaves
    /// that are Leaf::ESCAPE | one leaf per run]`. Bit `i` says that a run starts at slot `i + 1`, and the last run comes
    /// first: a shift by the slot leaves as many bits as entries to skip. A tail block of one run that leads back to itself is
    /// a leaf block, `[0 | itself | leaf]`: for any slot both a link to itself and a leaf.
    LinkRef
}
reference! {
    /// A packed block `[bitmap of run starts: u64 | one leaf per run | LinkRef, if a leaf is Leaf::ESCAPE]`.
    PackedRef
}
reference! {
    /// A block of 256 LinkRefs, one per slot.
    PageRef
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
                atomic.load(core::sync::atomic::Ordering::Relaxed)
            }
            #[inline(always)]
            fn store(atomic: &$atomic, value: Self) {
                atomic.store(value, core::sync::atomic::Ordering::Relaxed);
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
    u8, core::sync::atomic::AtomicU8;
    u16, core::sync::atomic::AtomicU16;
    u32, core::sync::atomic::AtomicU32;
}

/// Makes the blocks behind all references loaded so far visible.
#[inline(always)]
pub(crate) fn arrive() {
    core::sync::atomic::fence(core::sync::atomic::Ordering::Acquire);
}

/// The number of runs after the one of `slot` (taken modulo 64), by the bitmap of a link or tail block.
#[inline(always)]
pub(crate) fn runs_after(bitmap: u64, slot: u32) -> usize {
    bitmap.wrapping_shr(slot).count_ones() as usize
}

/// The number of runs that start at or before `slot` (taken modulo 64): a rank counted from one, by the bitmap of a packed
/// block.
#[inline(always)]
pub(crate) fn rank(bitmap: u64, slot: u32) -> usize {
    bitmap.wrapping_shl(!slot).count_ones() as usize
}
