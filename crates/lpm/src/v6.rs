//! IPv6: 16 bits of root array, pages of 8 bits (down to the /24), then nodes of 4 bits each.
//!
//! A lookup takes one load for the root word, the page and each node, which says in one word what its slots lead to. Few leaves
//! are part of that word; others take one load more. Routes beyond the /48 are few, and addresses inside of them looked
//! up one by one.

use core::net::Ipv6Addr;
use core::ops::Range;

use crate::build::{Blocks, Slots};
use crate::mem::{EntryRef, Extent, Heap, Leaf, NodeRef, PageRef, Roots, View, arrive};
use crate::prefix::{Ipv6Prefix, Key};
use crate::rib::{Built, HopId, Shape};
use crate::tables::{Addresses, Family, Layout, Tables, Width};

/// The level of nodes that end with the /48.
pub(crate) const LAST: usize = 6;

/// Of a page, and of nodes down to the /128.
const STRIDES: [u8; 27] = {
    let mut strides = [4; 27];
    strides[0] = 8;
    strides
};

/// IPv6, 128-bit addresses.
#[derive(Debug, Clone, Copy)]
pub enum V6 {}

impl Addresses for V6 {
    type Bits = u128;
    type Addr = Ipv6Addr;
    type Prefix = Ipv6Prefix;
}

impl Family for V6 {}

impl Roots for V6 {
    const ROOT_BITS: u32 = 16;
    const ROOTS: usize = 1 << 16;
    type Block = PageRef;
}

impl Layout for V6 {
    const SHAPE: &'static Shape = &Shape::new(16, &STRIDES);
    const HAS_BYTES: bool = false;
    type Store = Heap;
    type Entry = NodeRef;

    fn key(prefix: Ipv6Prefix) -> Key {
        prefix.key()
    }

    fn prefix(key: Key) -> Ipv6Prefix {
        Ipv6Prefix::from_key(key)
    }

    fn lies_beyond(_: Key) -> bool {
        false
    }

    fn build_top(blocks: &mut Blocks<'_, Self>, slots: Slots<'_>) -> Option<Built> {
        let mut entries = [NodeRef::default(); 256];
        for (entry, built) in entries.iter_mut().zip(slots.all::<256>()) {
            *entry = Self::entry(blocks, built)?;
        }
        blocks.store.page(&blocks.tables.region, &entries).map(Built::Page)
    }

    fn build_inner(blocks: &mut Blocks<'_, Self>, _: usize, slots: Slots<'_>) -> Option<Built> {
        let node = match blocks.tables.width {
            Width::Byte => build_node::<u8>(blocks, slots),
            Width::Short => build_node::<u16>(blocks, slots),
            Width::Word => build_node::<u32>(blocks, slots),
        };
        node.map(Built::Node)
    }

    fn build_uniform(blocks: &mut Blocks<'_, Self>, hop: HopId) -> Option<PageRef> {
        if hop == 0 {
            return Some(PageRef::NONE);
        }
        let leaf = Self::entry(blocks, Built::Hop(hop))?;
        blocks.store.page(&blocks.tables.region, &[leaf; 256])
    }

    fn root_block(built: Built) -> Option<PageRef> {
        match built {
            Built::Page(page) => Some(page),
            _ => None,
        }
    }

    fn entry(blocks: &Blocks<'_, Self>, built: Built) -> Option<NodeRef> {
        match (built, blocks.tables.width) {
            (Built::Node(node), _) => Some(node),
            (Built::Hop(_), Width::Byte) => Some(NodeRef::of_leaf(blocks.leaf_to::<u8>(built))),
            (Built::Hop(_), Width::Short) => Some(NodeRef::of_leaf(blocks.leaf_to::<u16>(built))),
            (Built::Hop(_), Width::Word) => Some(NodeRef::of_leaf(blocks.leaf_to::<u32>(built))),
            _ => None,
        }
    }

    fn block_of(store: &Heap, built: Built) -> Option<Extent> {
        match built {
            Built::Page(page) => Some(Heap::page_extent(page)),
            Built::Node(node) => store.node_extent(node),
            _ => None,
        }
    }

    fn block_of_uniform(root: PageRef) -> Option<Extent> {
        (root != PageRef::NONE).then(|| Heap::page_extent(root))
    }

    fn can_patch(_: &Tables<Self>, parent: Built, slot: u8, new: Built) -> bool {
        match (parent, new) {
            (Built::Page(_), _) => true,
            (Built::Node(node), Built::Node(_)) => node.child(from_last(slot)).1,
            _ => false,
        }
    }

    fn patch(tables: &Tables<Self>, parent: Built, slot: u8, new: NodeRef) {
        match parent {
            Built::Page(page) => tables.region.set_node(page.entry(slot), new),
            Built::Node(node) => tables.region.set_node(node.child(from_last(slot)).0, new),
            _ => {}
        }
    }

    fn can_store_leaf(_: &Tables<Self>, _: Built, _: &Range<usize>) -> bool {
        false
    }

    fn store_leaf(_: &Tables<Self>, _: Built, _: &Range<usize>, _: HopId, _: u32) {}
}

/// A node over 16 slots.
fn build_node<L: Leaf>(blocks: &mut Blocks<'_, V6>, Slots { hops, starts, below }: Slots<'_>) -> Option<NodeRef> {
    let hops = hops.first_chunk::<{ NodeRef::SLOTS }>()?;
    let mut children = 0_u32;
    for (slot, built) in below {
        let Built::Node(_) = built else { return None };
        children |= 1 << slot;
    }
    // The first leaf starts a run, whatever is before it.
    let first = !children & children.wrapping_add(1) & 0xffff;
    let starts = starts & !children | first;
    let mut leaves = [L::ESCAPE; NodeRef::SLOTS];
    let (mut left, mut count) = (starts, 0);
    while left != 0 {
        leaves[count] = blocks.leaf_to(Built::Hop(hops[left.trailing_zeros() as usize]));
        count += 1;
        left &= left - 1;
    }
    let entries = below.iter().map(|(_, built)| if let Built::Node(node) = built { *node } else { NodeRef::default() });
    #[expect(clippy::cast_possible_truncation, reason = "a node has 16 slots")]
    let (children, starts) = (children as u16, (starts & !first) as u16);
    blocks.store.node(&blocks.tables.region, (children, entries), (starts, &leaves[..count]))
}

/// How many slots of a node are behind one.
fn from_last(slot: u8) -> u32 {
    15 - u32::from(slot)
}

/// The answer for one address.
#[inline(always)]
pub(crate) fn walk(tables: &Tables<V6>, addr: u128) -> u32 {
    let region = tables.region.view();
    let mut node = region.node(page_entry(region, high(addr)));
    let arrived = |node: &mut NodeRef, from_last| {
        arrive();
        let (child, has_child) = node.child(from_last);
        if !has_child {
            let leaf = region.leaf(*node, from_last, tables.width.log()) & tables.width.ones();
            arrive();
            return Some(if tables.width == Width::Word { leaf } else { tables.word(leaf) });
        }
        *node = region.node(child);
        None
    };
    let inverted = !high(addr);
    for level in 1..=LAST {
        if let Some(answer) = arrived(&mut node, slot_of(inverted, level)) {
            return answer;
        }
    }
    for level in LAST + 1..V6::SHAPE.strides.len() {
        #[expect(clippy::cast_possible_truncation, reason = "a slot has 4 bits")]
        if let Some(answer) = arrived(&mut node, (!addr >> (104 - 4 * level)) as u32 & 15) {
            return answer;
        }
    }
    // Only a reader that is late comes here, and its answer is thrown away.
    0
}

/// The upper half of an address.
#[inline(always)]
pub(crate) fn high(addr: u128) -> u64 {
    (addr >> 64) as u64
}

/// Where the entry of an address lies in its page.
#[inline(always)]
pub(crate) fn page_entry(region: View<'_, V6>, high: u64) -> EntryRef {
    #[expect(clippy::cast_possible_truncation, reason = "bits are cut out")]
    let (top, slot) = ((high >> 32) as u32, (high >> 40) as u8);
    let page = region.root(top);
    arrive();
    page.entry(slot)
}

/// The slot in a node of `level`, up to [`LAST`], by the upper half of an address.
#[inline(always)]
pub(crate) fn slot_of(high: u64, level: usize) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "a slot has 4 bits")]
    let slot = (high >> (40 - 4 * level)) as u32 & 15;
    slot
}

/// A table takes Miri minutes to make; this is the shared memory alone, small enough to be raced under it.
#[cfg(test)]
#[cfg(not(loom))]
#[expect(clippy::cast_possible_truncation, reason = "slots and lanes are few")]
mod tests {
    use core::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::vec::Vec;

    use super::*;
    use crate::hops::Hops;
    use crate::lookup::{Kernel, burst};
    use crate::mem::{PACKED_SLOTS, Store};

    const TOP: u32 = 0x2001_0000;
    const ROUNDS: u32 = if cfg!(miri) { 10 } else { 20_000 };
    const FIRST: u32 = 101;

    /// Blocks of every level, with other children and leaves each time, so that their memory is used again for others.
    fn build(blocks: &mut Blocks<'_, V6>, ids: &[HopId; 6], round: u32, made: &mut Vec<Built>) -> Built {
        let mut below = None;
        for level in (0..=LAST + 1).rev() {
            let runs = 1 + (round as usize + level) % 15;
            let mut slots: [Built; 256] = core::array::from_fn(|slot| Built::Hop(ids[slot % runs % 5]));
            slots[1] = Built::Hop(ids[5]);
            if let Some(below) = below {
                slots[(round as usize + 3 * level) % 16] = below;
                slots[(round as usize + 5 * level) % 16] = below;
            }
            let built = match level {
                0 => Slots::with(&slots, |slots| V6::build_top(blocks, slots)),
                _ => Slots::with(slots.first_chunk::<16>().unwrap(), |slots| V6::build_inner(blocks, level, slots)),
            };
            made.extend(built);
            below = built;
        }
        below.unwrap()
    }

    fn race(width: Width) {
        let (tables, mut store) = Tables::<V6>::new(1, true, width, false, Kernel::detect()).unwrap();
        let mut hops = Hops::new();
        let ids: [HopId; 6] = core::array::from_fn(|index| {
            let word = FIRST + index as u32;
            let id = hops.acquire(word);
            tables.set_palette(id, word);
            id
        });
        let over = AtomicBool::new(false);
        let mut change = |round: u32, garbage: &mut [Vec<Extent>; 2], last: &mut Vec<Built>| {
            let mut blocks = Blocks {
                tables: &tables,
                store: &mut store,
                hops: &mut hops,
                keeps_bytes: false,
                bytes: [0; PACKED_SLOTS],
                below: &mut Vec::new(),
            };
            let mut made = Vec::new();
            let built = build(&mut blocks, &ids, round, &mut made);
            tables.region.set_root(TOP, V6::root_block(built).unwrap());
            for built in core::mem::replace(last, made) {
                garbage[0].extend(V6::block_of(blocks.store, built));
            }
            // Little fits beside what waits for a reader, and one that has pinned the clock may be held up for long.
            let mut ended = round.is_multiple_of(4) && tables.clock.advance();
            while !ended && garbage[0].len() > 48 {
                thread::yield_now();
                ended = tables.clock.advance();
            }
            if ended {
                let free = core::mem::take(&mut garbage[0]);
                core::mem::replace(&mut garbage[1], free).into_iter().for_each(|block| store.free(block));
            }
        };
        let (mut garbage, mut last) = ([Vec::new(), Vec::new()], Vec::new());
        change(0, &mut garbage, &mut last);
        thread::scope(|scope| {
            scope.spawn(|| {
                // The slots of each level take many values.
                let below = |lane: usize| ((lane as u128 * 0x0123_4567_89ab_cdef) << 48) & ((1 << 112) - 1);
                let addrs: [u128; 109] = core::array::from_fn(|lane| u128::from(TOP) << 96 | below(lane));
                let mut answers = [None; 109];
                let mut rounds = 0;
                while !over.load(Ordering::Relaxed) || rounds == 0 {
                    let start = tables.clock.start();
                    burst(&tables, &addrs, &mut answers);
                    if !tables.clock.stands(start) {
                        let _pin = tables.clock.pin();
                        burst(&tables, &addrs, &mut answers);
                    }
                    for (addr, answer) in addrs.iter().zip(answers) {
                        assert!((FIRST - 1..FIRST + 5).contains(&answer.unwrap().get()), "{addr:x}: {answer:?}");
                    }
                    rounds += 1;
                }
            });
            for round in 1..ROUNDS {
                change(round, &mut garbage, &mut last);
            }
            over.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn readers_race_a_writer() {
        race(Width::Byte);
        race(Width::Word);
        #[cfg(not(miri))]
        race(Width::Short);
    }
}
