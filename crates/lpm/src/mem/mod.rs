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
//! * Of the two bitmaps of a packed block the first has bit 0 set. A rank there is the sum of two numbers, which a late reader
//!   may have from two blocks. Where leaves are read by assembly, it may read past its slot: the mapping is [`GUARD`]
//!   bytes longer than its blocks. Elsewhere the rank is held to the leaves that the class has room for, which
//!   never changes.
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
/// Bytes past the last block that may be read: what the leaves of a whole packed block take.
const GUARD: usize = PACKED_SLOTS * size_of::<u32>();
/// Slots of a packed block: in each half, as many as a bitmap has bits.
pub(crate) const PACKED_SLOTS: usize = 128;

/// What distinguishes the regions of the two families.
pub(crate) trait Roots {
    /// Leading address bits that index the root array, 16 or 17.
    const ROOT_BITS: u32;
    /// What a root word refers to.
    type Block: Reference;
}

/// A reference that can be kept in a word of a region. Implemented in this module only.
pub(crate) trait Reference: Copy + Send + Sync + core::fmt::Debug + 'static {
    fn from_word(word: u32) -> Self;
    fn word(self) -> u32;
    /// Where the block lies.
    fn unit(self) -> u32;
}

macro_rules! reference {
    ($(#[$doc:meta])* $name:ident >> $shift:literal) => {
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
            #[inline(always)]
            fn unit(self) -> u32 {
                self.0 >> $shift
            }
        }
    };
}

reference! {
    /// A link block `[bitmap: u64 | one LinkRef per run]` over 64 slots, or a tail block `[bitmap: u64 | LinkRef, for leaves
    /// that are Leaf::ESCAPE | one leaf per run]`. Bit `i` says that a run starts at slot `i + 1`, and the last run comes
    /// first: a shift by the slot leaves as many bits as entries to skip. A tail block of one run that leads back to itself is
    /// a leaf block, `[0 | itself | leaf]`: for any slot both a link to itself and a leaf.
    LinkRef >> 0
}
reference! {
    /// A packed block `[bitmap of run starts: 2 * u64 | one leaf per run | 2 * LinkRef, if a leaf is Leaf::ESCAPE]` over 128
    /// slots. The lowest 7 bits say how many runs start in the lower half, 1 to 64.
    PackedRef >> 7
}
reference! {
    /// A block of 256 LinkRefs, one per slot.
    PageRef >> 0
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

    /// Any block, only to be given back.
    pub(crate) fn to_free(block: impl Reference) -> Self {
        Self(block.unit())
    }
}

impl PackedRef {
    const LOW_BITS: u32 = 7;
    /// Blocks can be referred to below this unit.
    const END: usize = 1 << (u32::BITS - Self::LOW_BITS);

    /// The half of the block that `slot` (modulo 128) lies in, and where the leaves of its runs are.
    #[inline(always)]
    pub(crate) fn half<L: Leaf>(self, slot: u32) -> (HalfRef, LeavesRef) {
        const { assert!(PACKED_SLOTS == 2 * 64 && UNIT == 8) };
        let half = slot >> 6 & 1;
        let unit = self.0 >> Self::LOW_BITS;
        let runs = self.0 & ((1 << Self::LOW_BITS) - 1) & half.wrapping_neg();
        (HalfRef(unit + half), LeavesRef((unit << 3) + (runs << size_of::<L>().trailing_zeros())))
    }
}

/// The bitmap of half a packed block.
#[derive(Clone, Copy, Default)]
pub(crate) struct HalfRef(u32);

/// The byte 16 before the leaf of the first run that starts in half a packed block.
#[derive(Clone, Copy, Default)]
pub(crate) struct LeavesRef(u32);

/// The leaf of a packed or tail block: an index into the palette of next hops, or (32 bits) the next hop itself.
pub(crate) trait Leaf: Copy + Eq {
    /// Says that the answer lies deeper.
    const ESCAPE: Self;
    /// The atomic type of this width.
    type Atomic;
    fn load(atomic: &Self::Atomic) -> Self;
    /// A relaxed load, of what others may write in other widths.
    ///
    /// # Safety
    /// `pointer` may be read.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    unsafe fn read(pointer: *const u8) -> Self;
    fn store(atomic: &Self::Atomic, value: Self);
    fn from_word(word: u32) -> Self;
}

macro_rules! leaf {
    ($($int:ty, $atomic:ty, $load:literal;)*) => {$(
        impl Leaf for $int {
            const ESCAPE: Self = <$int>::MAX;
            type Atomic = $atomic;
            #[inline(always)]
            fn load(atomic: &$atomic) -> Self {
                atomic.load(core::sync::atomic::Ordering::Relaxed)
            }
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            #[inline(always)]
            unsafe fn read(pointer: *const u8) -> Self {
                let leaf: u32;
                // SAFETY: the caller vouches for the pointer. Assembly, as the compiler knows no loads that race with writes
                // of other widths; a CPU does.
                unsafe {
                    core::arch::asm!(
                        $load,
                        leaf = out(reg) leaf,
                        pointer = in(reg) pointer,
                        options(nostack, readonly, preserves_flags),
                    );
                }
                Self::from_word(leaf)
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
    u8, core::sync::atomic::AtomicU8, "movzx {leaf:e}, byte ptr [{pointer}]";
    u16, core::sync::atomic::AtomicU16, "movzx {leaf:e}, word ptr [{pointer}]";
    u32, core::sync::atomic::AtomicU32, "mov {leaf:e}, dword ptr [{pointer}]";
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
