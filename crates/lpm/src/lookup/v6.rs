//! IPv6: a root word, the entry of a page, and nodes, each for all addresses of a chunk at once; see [`crate::v6`] for what lies
//! where.

use super::lanes::{Lanes, MOST, Vector};
use super::{Addr, Chunk, Hop, Lookup};
use crate::NextHop;
use crate::mem::{NodeRef, Roots, View, arrive};
use crate::tables::{Layout, Tables, Width};
use crate::v6::{LAST, V6, walk};

impl Lookup for V6 {
    #[inline(always)]
    fn one(tables: &Tables<V6>, addr: u128) -> Hop {
        NextHop::from_raw(walk(tables, addr))
    }

    /// Takes all addresses from the root through one node after the other, down to the /48.
    #[inline(always)]
    fn chunk<K: Lanes, A: Addr<V6>, const N: usize>(k: K, tables: &Tables<V6>, chunk: &mut Chunk<'_, A, N>) -> u64 {
        let (region, view) = (&tables.region, tables.region.view());
        let zero = k.long(0);
        let all = K::Longs::signs(k.long(u64::MAX));
        // The slots to come, inverted and from the highest bit on, and the nodes they are in.
        let (mut slots, mut nodes) = ([zero; MOST], [zero; MOST]);
        for_each!(group in N / K::LONGS, {
            let high = k.highs(&chunk.addrs[group * K::LONGS..]);
            nodes[group] = k.pages(region, high) + (high >> 40 & k.long(0xff));
            slots[group] = !high << 24;
        });
        arrive();
        for_each!(group in N / K::LONGS, {
            let place = nodes[group];
            nodes[group] = k.nodes(view, place, all, zero);
        });
        for _ in 1..LAST {
            arrive();
            let mut any = zero;
            for_each!(group in N / K::LONGS, {
                let (node, slot) = (nodes[group], slots[group]);
                let children = children_to(k, node, slot);
                any = any | children;
                let goes_on = K::Longs::signs(children);
                let place = node + K::Longs::count_ones(children);
                nodes[group] = k.nodes(view, place, goes_on, node);
                slots[group] = K::Longs::select(goes_on, slot << 4, slot);
            });
            if K::Longs::bits(K::Longs::signs(any)) == 0 {
                break;
            }
        }
        arrive();
        leaves(k, tables, view, &nodes, &slots, chunk.out)
    }

    #[inline(always)]
    fn gives_numbers(tables: &Tables<V6>) -> bool {
        tables.width != Width::Word
    }
}

/// The bits of children in a node.
const CHILDREN: u64 = 0xffff << 48;

/// What this is written for.
const _: () = {
    assert!(V6::ROOT_BITS == 16 && LAST == 6 && NodeRef::SLOTS == 16);
    assert!(matches!(V6::SHAPE.strides.first_chunk(), Some([8, 4, 4, 4, 4, 4, 4])));
};

/// The bits of children up to that of the slot, which is the highest.
#[inline(always)]
fn children_to<K: Lanes>(k: K, node: K::Longs, slots: K::Longs) -> K::Longs {
    (node & k.long(CHILDREN)) << (slots >> 60)
}

/// The leaves of nodes and slots.
#[inline(always)]
fn leaves<K: Lanes, const N: usize>(
    k: K,
    tables: &Tables<V6>,
    view: View<'_, V6>,
    nodes: &[K::Longs; MOST],
    slots: &[K::Longs; MOST],
    out: &mut [Hop; N],
) -> u64 {
    let mut deep = 0;
    let (log, ones) = (k.long(tables.width.log().into()), k.long(tables.width.ones().into()));
    for_each!(group in N / K::LONGS, {
        let (node, slots) = (nodes[group], slots[group]);
        let children = K::Longs::count_ones(node & k.long(CHILDREN));
        // The bytes of leaves before that of the slot.
        let before = K::Longs::count_ones(node >> 33 << 49 << (slots >> 60)) << log;
        let place = node + k.long(1) + children + (before >> 3);
        // The bit says that leaves are in the word.
        let elsewhere = K::Longs::signs(!(node << 31));
        let word = k.nodes(view, place, elsewhere, node);
        let leaf = word >> ((before & k.long(7)) << 3) & ones;
        K::Longs::put(leaf, &mut out[group * K::LONGS..]);
        deep |= K::Longs::bits(K::Longs::signs(children_to(k, node, slots))) << (group * K::LONGS);
    });
    deep
}
