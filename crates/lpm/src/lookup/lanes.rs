//! What lookups are made of: registers of several numbers, and loads of several places at once.
//!
//! All here is `inline(always)`: code for a CPU becomes code of the function that is compiled for it.

use core::fmt::Debug;
use core::hint::select_unpredictable;
use core::ops::{Add, BitAnd, BitOr, Not, Shl, Shr};
use core::sync::atomic::{AtomicU32, Ordering};

use super::{Addr, Hop};
use crate::NextHop;
use crate::mem::{Bytes, Leaf, Region, View};
use crate::v4::V4;
use crate::v6::{self, V6};

/// Numbers of 32 or 64 bits side by side. There is a value only where the CPU has the instructions.
///
/// Shifts are by less than the numbers have bits, or the result means nothing.
pub(crate) trait Vector:
    Copy
    + Add<Output = Self>
    + BitAnd<Output = Self>
    + BitOr<Output = Self>
    + Not<Output = Self>
    + Shl<Output = Self>
    + Shr<Output = Self>
    + Shl<u32, Output = Self>
    + Shr<u32, Output = Self>
{
    /// A truth for each number.
    type Mask: Copy;

    /// How many bits of each number are set.
    fn count_ones(a: Self) -> Self;
    /// Whether the highest bit of each number is set.
    fn signs(a: Self) -> Self::Mask;
    /// Whether pairs are equal.
    fn equal(a: Self, b: Self) -> Self::Mask;
    /// A bit for each truth, that of the first number lowest.
    fn bits(mask: Self::Mask) -> u64;
    /// Of each pair the number of `yes` where the mask says so, else that of `no`.
    fn select(mask: Self::Mask, yes: Self, no: Self) -> Self;
    /// Writes the numbers, or their lower halves, as next hops.
    fn put(a: Self, out: &mut [Hop]);
}

/// What a CPU looks several addresses up with. A value is proof that it was asked.
pub(crate) trait Lanes: Copy + Debug {
    type Words: Vector;
    type Longs: Vector;
    /// Numbers in `Words`.
    const WORDS: usize;
    /// Numbers in `Longs`.
    const LONGS: usize;

    /// The same number everywhere.
    fn word(self, word: u32) -> Self::Words;
    /// The same number everywhere.
    fn long(self, long: u64) -> Self::Longs;
    /// The first addresses.
    fn words<A: Addr<V4>>(self, addrs: &[A]) -> Self::Words;
    /// The upper halves of the first addresses.
    fn highs<A: Addr<V6>>(self, addrs: &[A]) -> Self::Longs;

    /// The lower and upper halves of the root words of addresses, in an order of their own, and the addresses in that order.
    fn roots(self, region: &Region<V4>, addrs: Self::Words) -> [Self::Words; 3];
    /// Undoes the order.
    fn in_order(self, words: Self::Words) -> Self::Words;
    /// Where the mask says so the leaves that end before `places`, in bytes, and maybe bits above; else `others`.
    ///
    /// # Safety
    /// A place comes with a root word of `region`, which says that a leaf of this type ends there.
    unsafe fn leaves<L: Leaf>(
        self,
        region: &Region<V4>,
        places: Self::Words,
        mask: Mask<Self::Words>,
        others: Self::Words,
    ) -> Self::Words;
    /// The bytes of the /24s of addresses.
    fn bytes(self, bytes: &Bytes, addrs: Self::Words) -> Self::Words;
    /// The entries of indices that are cut to 16 bits.
    fn entries(self, palette: &[AtomicU32; 65536], indices: Self::Words) -> Self::Words;

    /// The root words of addresses with these upper halves.
    fn pages(self, region: &Region<V6>, highs: Self::Longs) -> Self::Longs;
    /// Where the mask says so the words at `places`, cut to the region; else `others`. All may be read.
    fn nodes(
        self,
        region: View<'_, V6>,
        places: Self::Longs,
        mask: Mask<Self::Longs>,
        others: Self::Longs,
    ) -> Self::Longs;
}

/// Registers that the addresses of a chunk take at most.
pub(super) const MOST: usize = 8;

/// Runs a block for each number below a constant, up to [`MOST`]. Written out, as the compiler keeps arrays of registers in memory
/// if it unrolls a loop over them late.
macro_rules! for_each {
    ($group:ident in $count:expr, $body:block) => {
        for_each!(@ $group $count, $body, 0 1 2 3 4 5 6 7)
    };
    (@ $group:ident $count:expr, $body:block, $($number:literal)*) => {
        const { assert!($count <= $crate::lookup::lanes::MOST) };
        if K::WORDS == 1 {
            let mut next = 0;
            while next < $count {
                let $group: usize = next;
                next += 1;
                $body
            }
        } else {
            $(if $number < $count {
                let $group: usize = $number;
                $body
            })*
        }
    };
}

pub(crate) type Mask<V> = <V as Vector>::Mask;

/// Intrinsics of a value that there is only where the CPU has the instructions.
#[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
macro_rules! asked {
    ($body:expr) => {
        // SAFETY: a kernel or a register is at hand, and there are such only where the CPU was asked.
        unsafe { $body }
    };
}

/// What any CPU can do.
macro_rules! anyway {
    ($body:expr) => {
        $body
    };
}

/// Implements [`Vector`] by an expression for each operation, each inside of `$may` or what stands before it.
macro_rules! vector {
    ($vector:ty, $mask:ty, $may:ident;
        not($x:ident) $not:expr;
        $(impl $trait:ident<$other:ty> $op:ident($a:ident, $b:ident) $binary:expr;)*
        $(fn $how:ident::$name:ident($($arg:ident: $of:ty),*) -> $ret:ty = $body:expr;)*) => {
        $(impl core::ops::$trait<$other> for $vector {
            type Output = Self;
            #[inline(always)]
            fn $op(self, $b: $other) -> Self {
                let $a = self;
                $may!($binary)
            }
        })*
        impl core::ops::Not for $vector {
            type Output = Self;
            #[inline(always)]
            fn not(self) -> Self {
                let $x = self;
                $may!($not)
            }
        }
        impl $crate::lookup::lanes::Vector for $vector {
            type Mask = $mask;
            $(
                #[inline(always)]
                fn $name($($arg: $of),*) -> $ret {
                    $how!($body)
                }
            )*
        }
    };
}

/// Implements [`Lanes`] by functions of the module that are compiled for the CPU, of registers that are filled by `$set_words` and
/// `$set_longs` from the first addresses in order.
#[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
macro_rules! lanes {
    ($lanes:ty; $words:literal $set_words:ident $($word:literal)*; $longs:literal $set_longs:ident $($long:literal)*;
        word($a_word:ident) $repeat_word:expr; long($a_long:ident) $repeat_long:expr; in_order($ordered:ident) $in_order:expr;) => {
        impl Lanes for $lanes {
            type Words = Words;
            type Longs = Longs;
            const WORDS: usize = $words;
            const LONGS: usize = $longs;

            #[inline(always)]
            fn word(self, $a_word: u32) -> Words {
                Words(asked!($repeat_word))
            }

            #[inline(always)]
            fn long(self, $a_long: u64) -> Longs {
                Longs(asked!($repeat_long))
            }

            #[inline(always)]
            fn words<A: Addr<V4>>(self, addrs: &[A]) -> Words {
                let addrs: &[A; $words] = addrs.first_chunk().expect("registers are filled");
                Words(asked!($set_words($(addrs[$word].into().cast_signed()),*)))
            }

            #[inline(always)]
            fn highs<A: Addr<V6>>(self, addrs: &[A]) -> Longs {
                let addrs: &[A; $longs] = addrs.first_chunk().expect("registers are filled");
                Longs(asked!($set_longs($(crate::v6::high(addrs[$long].into()).cast_signed()),*)))
            }

            #[inline(always)]
            fn roots(self, region: &Region<V4>, addrs: Words) -> [Words; 3] {
                let [lower, upper, addrs] = asked!(roots(region, addrs.0));
                [Words(lower), Words(upper), Words(addrs)]
            }

            #[inline(always)]
            fn in_order(self, Words($ordered): Words) -> Words {
                Words($in_order)
            }

            #[inline(always)]
            unsafe fn leaves<L: Leaf>(self, region: &Region<V4>, places: Words, mask: Mask<Words>, others: Words) -> Words {
                let base = region.blocks_base().wrapping_sub(L::BYTES as usize);
                // SAFETY: the CPU was asked. Four bytes are read from a leaf on, so at most three past the last block, and the
                // mapping goes on for three bytes. The instruction takes a place, that of the byte after the leaf, for a number
                // with a sign: it is below 2^31, as blocks end a chunk before 2 GiB (`Slab::MOST_CHUNKS`).
                Words(unsafe { words_by_bytes(base, places.0, mask, others.0) })
            }

            #[inline(always)]
            fn bytes(self, bytes: &Bytes, addrs: Words) -> Words {
                let all = Words::signs(self.word(u32::MAX));
                // SAFETY: the CPU was asked. An offset has 24 bits, and `Bytes` has 2^24 bytes and more than three behind them.
                Words(unsafe { words_by_bytes(bytes.base(), (addrs >> 8).0, all, self.word(0).0) }) & self.word(0xff)
            }

            #[inline(always)]
            fn entries(self, palette: &[AtomicU32; 65536], indices: Words) -> Words {
                let (all, index) = (Words::signs(self.word(u32::MAX)), indices & self.word(0xffff));
                // SAFETY: the CPU was asked; there are as many entries, of four bytes, as numbers of 16 bits.
                Words(unsafe { words_by_bytes(palette.as_ptr().cast(), (index << 2).0, all, self.word(0).0) })
            }

            #[inline(always)]
            fn pages(self, region: &Region<V6>, highs: Longs) -> Longs {
                Longs(asked!(pages(region, highs.0)))
            }

            #[inline(always)]
            fn nodes(self, region: View<'_, V6>, places: Longs, mask: Mask<Longs>, others: Longs) -> Longs {
                let places = places & self.long(region.mask() as u64);
                // SAFETY: the CPU was asked; the region has as many words.
                Longs(unsafe { longs_by_longs(region.blocks_base(), places.0, mask, others.0) })
            }
        }
    };
}

/// One address at a time, for any CPU.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plain;

/// A single number.
#[derive(Clone, Copy)]
pub(crate) struct One<T>(T);

macro_rules! one {
    ($($int:ty)*) => {$(
        vector! {
            One<$int>, bool, anyway;
            not(a) One(!a.0);
            impl Shl<u32> shl(a, n) One(a.0 << n);
            impl Shr<u32> shr(a, n) One(a.0 >> n);
            impl Add<Self> add(a, b) One(a.0.wrapping_add(b.0));
            impl BitAnd<Self> bitand(a, b) One(a.0 & b.0);
            impl BitOr<Self> bitor(a, b) One(a.0 | b.0);
            impl Shl<Self> shl(a, b) One(a.0.wrapping_shl(u64::from(b.0).to_le_bytes()[0].into()));
            impl Shr<Self> shr(a, b) One(a.0.wrapping_shr(u64::from(b.0).to_le_bytes()[0].into()));
            fn anyway::count_ones(a: Self) -> Self = One(a.0.count_ones().into());
            fn anyway::signs(a: Self) -> bool = a.0.cast_signed() < 0;
            fn anyway::equal(a: Self, b: Self) -> bool = a.0 == b.0;
            fn anyway::bits(mask: bool) -> u64 = mask.into();
            fn anyway::select(mask: bool, yes: Self, no: Self) -> Self = select_unpredictable(mask, yes, no);
            fn anyway::put(a: Self, out: &mut [Hop]) -> () = out[0] = NextHop::from_raw((u64::from(a.0) & 0xffff_ffff) as u32);
        }
    )*};
}
one!(u32 u64);

impl Lanes for Plain {
    type Words = One<u32>;
    type Longs = One<u64>;
    const WORDS: usize = 1;
    const LONGS: usize = 1;

    #[inline(always)]
    fn word(self, word: u32) -> One<u32> {
        One(word)
    }

    #[inline(always)]
    fn long(self, long: u64) -> One<u64> {
        One(long)
    }

    #[inline(always)]
    fn words<A: Addr<V4>>(self, addrs: &[A]) -> One<u32> {
        One(addrs[0].into())
    }

    #[inline(always)]
    fn highs<A: Addr<V6>>(self, addrs: &[A]) -> One<u64> {
        One(v6::high(addrs[0].into()))
    }

    #[inline(always)]
    fn roots(self, region: &Region<V4>, addrs: One<u32>) -> [One<u32>; 3] {
        let root = region.root(addrs.0);
        [One(root.bitmap()), One(root.upper()), addrs]
    }

    #[inline(always)]
    fn in_order(self, words: One<u32>) -> One<u32> {
        words
    }

    #[inline(always)]
    unsafe fn leaves<L: Leaf>(self, region: &Region<V4>, places: One<u32>, mask: bool, others: One<u32>) -> One<u32> {
        // Read in any case, as a branch would be guessed wrong; zero is a place that anyone may read.
        let place = select_unpredictable(mask, places.0.wrapping_sub(L::BYTES), 0);
        // SAFETY: the caller has it that such a leaf lies there, or it is the first.
        let leaf = unsafe { region.leaf_at::<L>(place) };
        select_unpredictable(mask, One(leaf.word()), others)
    }

    #[inline(always)]
    fn bytes(self, bytes: &Bytes, addrs: One<u32>) -> One<u32> {
        One(bytes.get(addrs.0).into())
    }

    #[inline(always)]
    fn entries(self, palette: &[AtomicU32; 65536], indices: One<u32>) -> One<u32> {
        One(palette[indices.0 as usize & 0xffff].load(Ordering::Relaxed))
    }

    #[inline(always)]
    fn pages(self, region: &Region<V6>, highs: One<u64>) -> One<u64> {
        One(region.root((highs.0 >> 32) as u32).number().into())
    }

    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "it is cut in any case")]
    fn nodes(self, region: View<'_, V6>, places: One<u64>, mask: bool, others: One<u64>) -> One<u64> {
        // Read in any case, as a branch would be guessed wrong.
        select_unpredictable(mask, One(region.word_at(places.0 as u32)), others)
    }
}
