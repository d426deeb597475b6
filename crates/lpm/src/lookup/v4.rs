//! IPv4: a root word and a leaf, for all addresses of a chunk at once; see [`crate::v4`] for what lies where.

use core::sync::atomic::Ordering;

use super::lanes::{Lanes, MOST, Vector};
use crate::NextHop;
use crate::mem::{Leaf, arrive};
use crate::tables::Tables;
use crate::v4::{V4, walk, word_of};

/// The longest match of one address.
#[inline(always)]
pub(super) fn one(tables: &Tables<V4>, addr: u32) -> Option<NextHop> {
    if let Some(bytes) = &tables.bytes {
        let byte = bytes.get(addr);
        arrive();
        if byte != u8::ESCAPE {
            return NextHop::from_raw(word_of(&tables.palette, byte));
        }
    }
    NextHop::from_raw(walk(tables, addr))
}

/// Whether addresses that bytes do not answer are so few that they are looked up one by one, not together with the others.
#[cold]
#[inline(never)]
pub(super) fn are_few(deep: u64, all: usize) -> bool {
    deep.count_ones() as usize * 8 <= all
}

/// Sees to what leads deeper, and to numbers that are no next hops yet.
#[inline(always)]
pub(super) fn turn<A: Copy + Into<u32>>(
    tables: &Tables<V4>,
    addrs: &[A],
    out: &mut [Option<NextHop>],
    deep: u64,
    numbers: bool,
) {
    arrive();
    if numbers && !tables.direct.load(Ordering::Relaxed) {
        number_to_word(tables, out);
    }
    if deep != 0 {
        finish(tables, addrs, out, deep);
    }
}

/// Puts next hops in the place of their numbers.
#[cold]
#[inline(never)]
fn number_to_word(tables: &Tables<V4>, out: &mut [Option<NextHop>]) {
    for out in out {
        #[expect(clippy::cast_possible_truncation, reason = "numbers have a byte")]
        let number = out.map_or(0, NextHop::raw) as u8;
        *out = NextHop::from_raw(word_of(&tables.palette, number));
    }
}

/// Reads the bytes of all addresses, numbers of next hops. Answers which are to be looked up.
#[inline(always)]
pub(super) fn by_byte<K: Lanes, A: Copy + Into<u32>, const N: usize>(
    k: K,
    tables: &Tables<V4>,
    addrs: &[A; N],
    out: &mut [Option<NextHop>; N],
) -> u64 {
    let Some(bytes) = &tables.bytes else { return 0 };
    let mut deep = 0;
    for_each!(group in N / K::WORDS, {
        let at = group * K::WORDS;
        let byte = k.bytes(bytes, k.words(&addrs[at..]));
        k.put_words(byte, &mut out[at..]);
        deep |= K::Words::bits(K::Words::equal(byte, k.word(u8::ESCAPE.into()))) << at;
    });
    deep
}

/// Reads root words for all addresses, then leaves for all. Puts numbers of next hops into `out` where leaves are bytes, else next
/// hops; answers which lead deeper.
#[inline(always)]
pub(super) fn packed<K: Lanes, A: Copy + Into<u32>, L: Leaf, const N: usize>(
    k: K,
    tables: &Tables<V4>,
    addrs: &[A; N],
    out: &mut [Option<NextHop>; N],
) -> u64 {
    let region = &tables.region;
    let zero = k.word(0);
    let mut roots = [[zero; 3]; MOST];
    for_each!(group in N / K::WORDS, {
        roots[group] = k.roots(region, k.words(&addrs[group * K::WORDS..]));
    });
    // Where leaves end, those in the root word, and whether there is a block.
    let (mut places, mut in_word, mut elsewhere) = ([zero; MOST], [zero; MOST], [K::Words::signs(zero); MOST]);
    for_each!(group in N / K::WORDS, {
        let [bitmap, upper, addr] = roots[group];
        // Shifted left to end with the slot: by 31 less bits 8 to 12 of the address.
        let count = K::Words::count_ones(bitmap << (!(addr >> 8) & k.word(31)));
        places[group] = upper + (count << L::LOG);
        in_word[group] = upper >> (count << (3 + L::LOG));
        elsewhere[group] = K::Words::signs(bitmap << 31);
    });
    arrive();
    let mut deep = 0;
    for_each!(group in N / K::WORDS, {
        let at = group * K::WORDS;
        // SAFETY: the root word says so.
        let read = unsafe { k.leaves::<L>(region, places[group], elsewhere[group], in_word[group]) };
        let mut leaf = k.in_order(read & k.word(L::ESCAPE.word()));
        deep |= K::Words::bits(K::Words::equal(leaf, k.word(L::ESCAPE.word()))) << at;
        if let (1, Some(palette)) = (L::LOG, &tables.wide_palette) {
            leaf = k.entries(palette, leaf);
        }
        k.put_words(leaf, &mut out[at..]);
    });
    deep
}

/// Answers the given lanes, which lead beyond the /24.
#[cold]
#[inline(never)]
fn finish<A: Copy + Into<u32>>(tables: &Tables<V4>, addrs: &[A], out: &mut [Option<NextHop>], mut deep: u64) {
    while deep != 0 {
        let lane = deep.trailing_zeros() as usize;
        deep &= deep - 1;
        let (Some(addr), Some(out)) = (addrs.get(lane), out.get_mut(lane)) else { return };
        *out = super::v4_one(tables, (*addr).into());
    }
}
