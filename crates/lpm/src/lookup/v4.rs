//! IPv4: a root word and a leaf, for all addresses of a chunk at once; see [`crate::v4`] for what lies where.

use super::lanes::{Lanes, MOST, Vector};
use super::{Addr, Chunk, Hop, Lookup};
use crate::NextHop;
use crate::mem::{Leaf, arrive};
use crate::tables::{Tables, Width};
use crate::v4::{V4, walk, word_of};

impl Lookup for V4 {
    #[inline(always)]
    fn one(tables: &Tables<V4>, addr: u32) -> Hop {
        if let Some(bytes) = &tables.bytes {
            let byte = bytes.get(addr);
            arrive();
            if byte != u8::ESCAPE {
                return NextHop::from_raw(word_of(&tables.palette, byte));
            }
        }
        NextHop::from_raw(walk(tables, addr))
    }

    #[inline(always)]
    fn accelerated<K: Lanes, A: Addr<V4>, const N: usize>(
        k: K,
        tables: &Tables<V4>,
        Chunk { addrs, out }: &mut Chunk<'_, A, N>,
    ) -> Option<u64> {
        let bytes = tables.bytes.as_ref()?;
        let mut deep = 0;
        for_each!(group in N / K::WORDS, {
            let at = group * K::WORDS;
            let byte = k.bytes(bytes, k.words(&addrs[at..]));
            K::Words::put(byte, &mut out[at..]);
            deep |= K::Words::bits(K::Words::equal(byte, k.word(u8::ESCAPE.into()))) << at;
        });
        // Few are looked up one by one, not together with the others.
        (deep.count_ones() as usize * 8 <= N).then_some(deep)
    }

    #[inline(always)]
    fn chunk<K: Lanes, A: Addr<V4>, const N: usize>(k: K, tables: &Tables<V4>, chunk: &mut Chunk<'_, A, N>) -> u64 {
        match tables.width {
            Width::Byte => packed::<_, A, u8, N>(k, tables, chunk),
            Width::Short => packed::<_, A, u16, N>(k, tables, chunk),
            Width::Word => packed::<_, A, u32, N>(k, tables, chunk),
        }
    }

    #[inline(always)]
    fn gives_numbers(tables: &Tables<V4>) -> bool {
        tables.width == Width::Byte
    }
}

/// Reads root words for all addresses, then leaves for all: numbers of next hops where leaves are bytes, else next hops.
#[inline(always)]
fn packed<K: Lanes, A: Addr<V4>, L: Leaf, const N: usize>(
    k: K,
    tables: &Tables<V4>,
    Chunk { addrs, out }: &mut Chunk<'_, A, N>,
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
        K::Words::put(leaf, &mut out[at..]);
    });
    deep
}
