//! IPv4: 19 bits of root array, 5 bits of packed block (down to the /24), then 6 and 2 bits of link blocks.
//!
//! Most addresses need two dependent loads: the root word, with a bitmap of 32 slots in it, and a leaf. Multicast and what is
//! reserved beyond it have one root word, as long as no route asks for more. With the accelerator, a byte per /24
//! answers first and the blocks take what it cannot; for traffic from all over, a byte per /16 goes before that.
//!
//! A leaf or byte is the number of a next hop, and for small next hops the next hop itself: bursts look at the palette only
//! if one in use is not.

use core::net::Ipv4Addr;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::build::{Blocks, find_runs};
use crate::kernel::{self, Habit};
use crate::mem::{Block, Leaf, LinkRef, PACKED_SLOTS, PackedRef, Region, Roots, Slab, arrive};
use crate::prefix::{Ipv4Prefix, Key};
use crate::rib::{Built, HopId, Shape};
use crate::tables::{Addresses, Family, Layout, Tables, Width};
use crate::{NextHop, tables};

/// The prefix of multicast and reserved addresses, 224.0.0.0/3, left-aligned in 128 bits.
const BEYOND: u128 = 0b111 << 125;
const BEYOND_LEN: u8 = 3;

/// IPv4, 32-bit addresses.
#[derive(Debug, Clone, Copy)]
pub enum V4 {}

impl Addresses for V4 {
    type Bits = u32;
    type Addr = Ipv4Addr;
    type Prefix = Ipv4Prefix;
}

impl Family for V4 {}

impl Roots for V4 {
    const ROOT_BITS: u32 = 19;
    const ROOTS: usize = (BEYOND >> (128 - Self::ROOT_BITS)) as usize + 1;
    type Block = PackedRef;
}

impl Layout for V4 {
    const SHAPE: &'static Shape = &Shape { root_bits: 19, strides: &[5, 6, 2] };
    const HAS_BYTES: bool = true;
    type Store = Slab;
    type Entry = LinkRef;

    fn key(prefix: Ipv4Prefix) -> Key {
        prefix.key()
    }

    fn prefix(key: Key) -> Ipv4Prefix {
        Ipv4Prefix::from_key(key)
    }

    fn lies_beyond(key: Key) -> bool {
        key.len > BEYOND_LEN && key.bits >= BEYOND
    }

    #[inline]
    fn one(tables: &Tables<Self>, addr: u32) -> Option<NextHop> {
        kernel::v4_one(tables, addr)
    }

    #[inline]
    fn burst<A: Copy + Into<u32>>(tables: &Tables<Self>, addrs: &[A], out: &mut [Option<NextHop>], habit: &mut Habit) {
        kernel::v4_burst(tables, addrs, out, habit);
    }

    fn build_top(blocks: &mut Blocks<'_, Self>, slots: &[Built]) -> Option<Built> {
        match blocks.tables.width {
            Width::Byte => build_packed::<u8>(blocks, slots),
            Width::Short => build_packed::<u16>(blocks, slots),
            Width::Word => build_packed::<u32>(blocks, slots),
        }
    }

    fn build_inner(blocks: &mut Blocks<'_, Self>, _: usize, slots: &[Built]) -> Option<Built> {
        build_link(blocks, slots).map(Built::Link)
    }

    fn build_leaf(blocks: &mut Blocks<'_, Self>, hop: HopId) -> Option<LinkRef> {
        blocks.store.leaf(&blocks.tables.region, blocks.hops.get(hop).word)
    }

    fn build_uniform(blocks: &mut Blocks<'_, Self>, hop: HopId) -> Option<PackedRef> {
        if hop == 0 {
            return Some(PackedRef::NONE);
        }
        let region = &blocks.tables.region;
        match blocks.tables.width {
            Width::Byte => blocks.store.packed(region, 1, &[u8::from_word(hop)], None),
            Width::Short => blocks.store.packed(region, 1, &[u16::from_word(hop)], None),
            Width::Word => blocks.store.packed(region, 1, &[blocks.hops.get(hop).word], None),
        }
    }

    fn root_block(built: Built) -> Option<PackedRef> {
        match built {
            Built::Packed(block) => Some(block),
            _ => None,
        }
    }

    fn entry(built: Built) -> Option<LinkRef> {
        match built {
            Built::Link(link) => Some(link),
            _ => None,
        }
    }

    fn block_of(_: &Slab, built: Built) -> Option<Block> {
        match built {
            Built::Packed(block) => Some(block.into()),
            Built::Link(link) => Some(link.into()),
            _ => None,
        }
    }

    fn block_of_leaf(leaf: LinkRef) -> Option<Block> {
        Some(leaf.into())
    }

    fn block_of_uniform(root: PackedRef) -> Option<Block> {
        (root != PackedRef::NONE).then(|| root.into())
    }

    fn can_patch(tables: &Tables<Self>, parent: Built, slot: u8, stride: u8, new: Built) -> bool {
        match (parent, new) {
            (Built::Packed(block), Built::Link(_)) => is_escape(tables, block, slot.into()),
            (Built::Link(link), _) => stands_alone(tables, link, slot, stride),
            _ => false,
        }
    }

    fn patch(tables: &Tables<Self>, parent: Built, slot: u8, new: LinkRef) {
        match parent {
            Built::Packed(block) => tables.region.set_packed_link(block, slot.into(), new),
            Built::Link(link) => tables.region.set_step(link, slot.into(), new),
            _ => {}
        }
    }

    /// Where they are a run of a packed block. Not with leaves of 16 bits: their readers do not wait between the leaf and
    /// its entry in the palette.
    fn can_store_leaf(tables: &Tables<Self>, top: Built, slots: &Range<usize>) -> bool {
        let Built::Packed(block) = top else { return false };
        let bitmap = block.bitmap();
        let starts = |slot: usize| slot == 0 || slot == PACKED_SLOTS || (bitmap >> slot) & 1 == 1;
        let within = (slots.start + 1..slots.end).any(starts);
        tables.width != Width::Short
            && starts(slots.start)
            && starts(slots.end)
            && !within
            && !is_escape(tables, block, slot_of(slots))
    }

    fn store_leaf(tables: &Tables<Self>, top: Built, slots: &Range<usize>, hop: HopId, word: u32) {
        let Built::Packed(block) = top else { return };
        match tables.width {
            Width::Byte => tables.region.set_packed_leaf(block, slot_of(slots), u8::from_word(hop)),
            Width::Short => {}
            Width::Word => tables.region.set_packed_leaf(block, slot_of(slots), word),
        }
    }
}

/// The first of some slots.
fn slot_of(slots: &Range<usize>) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "a block has 32 slots")]
    let slot = slots.start as u32;
    slot
}

/// Whether the leaf of `slot` (0 to 31) leads deeper.
fn is_escape(tables: &Tables<V4>, block: PackedRef, slot: u32) -> bool {
    match tables.width {
        Width::Byte => tables.region.packed_leaf::<u8>(block, slot) == u8::ESCAPE,
        Width::Short => tables.region.packed_leaf::<u16>(block, slot) == u16::ESCAPE,
        Width::Word => tables.region.packed_leaf::<u32>(block, slot) == u32::ESCAPE,
    }
}

fn build_packed<L: Leaf>(blocks: &mut Blocks<'_, V4>, slots: &[Built]) -> Option<Built> {
    let mut leaves = [L::ESCAPE; PACKED_SLOTS];
    let mut links = [LinkRef::NONE; PACKED_SLOTS];
    let (bitmap, count) = find_runs(slots, |index, built| {
        leaves[index] = blocks.leaf_to(built);
        if let Built::Link(link) = built {
            links[index] = link;
        }
        Some(())
    })?;
    if blocks.keeps_bytes {
        for (byte, built) in blocks.bytes.iter_mut().zip(slots) {
            *byte = match built {
                Built::Hop(hop) => u8::try_from(*hop).unwrap_or(u8::MAX),
                _ => u8::MAX,
            };
        }
    }
    let leaves = &leaves[..count];
    let links = leaves.contains(&L::ESCAPE).then_some(&links[..count]);
    #[expect(clippy::cast_possible_truncation, reason = "there are 32 slots")]
    let bitmap = bitmap as u32;
    blocks.store.packed(&blocks.tables.region, bitmap, leaves, links).map(Built::Packed)
}

/// A link block over `slots`, of which there are 64 or fewer.
fn build_link(blocks: &mut Blocks<'_, V4>, slots: &[Built]) -> Option<LinkRef> {
    let mut runs = [LinkRef::default(); 64];
    let (bitmap, count) = find_runs(slots, |index, built| {
        runs[index] = blocks.entry(built)?;
        Some(())
    })?;
    blocks.store.link(&blocks.tables.region, bitmap, &runs[..count])
}

/// Whether the entry of `slot` in a link block over `stride` bits can be replaced without moving any other slot.
fn stands_alone(tables: &Tables<V4>, link: LinkRef, slot: u8, stride: u8) -> bool {
    let bitmap = (tables.region.bitmap(link) << 1) | 1;
    let last = usize::from(slot) + 1 == 1 << stride;
    (bitmap >> slot) & 1 == 1 && (last || (bitmap >> (slot + 1)) & 1 == 1)
}

/// The answer for one address, past the accelerator.
#[inline(always)]
pub(crate) fn walk(tables: &Tables<V4>, addr: u32) -> u32 {
    match (tables.width, &tables.wide_palette) {
        (Width::Byte, _) => walk_wide(tables, addr, |leaf: u8| word_of(&tables.palette, leaf)),
        (Width::Short, Some(palette)) => walk_wide(tables, addr, |leaf: u16| word_of(palette, leaf)),
        (Width::Short, None) => 0,
        (Width::Word, _) => walk_wide(tables, addr, |leaf: u32| leaf),
    }
}

#[inline(always)]
fn walk_wide<L: Leaf>(tables: &Tables<V4>, addr: u32, word: impl Fn(L) -> u32) -> u32 {
    let region = &tables.region;
    let block = region.root(addr);
    arrive();
    let leaf = region.packed_leaf::<L>(block, addr >> 8);
    arrive();
    if leaf == L::ESCAPE { walk_escape(region, block, addr) } else { word(leaf) }
}

#[inline(always)]
fn walk_escape(region: &Region<V4>, block: PackedRef, addr: u32) -> u32 {
    let link = region.packed_link(block, addr >> 8);
    arrive();
    let link = region.step(link, (addr >> 2) & 63);
    arrive();
    let link = region.step(link, addr & 3);
    arrive();
    region.leaf_word(link)
}

/// The next hop word of an index into a palette that has a word for each.
#[inline(always)]
pub(crate) fn word_of<const N: usize>(palette: &[AtomicU32; N], index: impl Into<usize>) -> u32 {
    palette[index.into()].load(Ordering::Relaxed)
}

const _: () = assert!(tables::ESCAPE_WORD == u32::MAX && NextHop::MAX < u32::MAX - 1);

/// A table takes Miri minutes to make; this is the shared memory alone, small enough to be raced under it.
#[cfg(test)]
#[cfg(not(loom))]
#[expect(clippy::cast_possible_truncation, reason = "slots and lanes are few")]
mod tests {
    use core::sync::atomic::AtomicBool;
    use std::thread;
    use std::vec::Vec;

    use super::*;
    use crate::hops::Hops;
    use crate::kernel::Kernel;
    use crate::mem::Store;

    const TOP: u32 = 0x0a00_0000;
    const ROUNDS: u32 = if cfg!(miri) { 10 } else { 20_000 };

    /// With next hops that are their own numbers, or not.
    fn race(width: Width, accelerate: bool, direct: bool) {
        let (tables, mut store) = Tables::<V4>::new(1, false, width, accelerate, Kernel::detect()).unwrap();
        let mut hops = Hops::new();
        let first = if direct { 101 } else { 1001 };
        let ids: [HopId; 6] = core::array::from_fn(|index| {
            let word = first + index as u32;
            let id = hops.acquire(word);
            tables.set_palette(id, word);
            id
        });
        assert_eq!(tables.direct.load(Ordering::Relaxed), direct);
        let over = AtomicBool::new(false);
        let mut change = |round: u32, garbage: &mut [Vec<Block>; 2], last: &mut Built| {
            let mut blocks = Blocks {
                tables: &tables,
                store: &mut store,
                hops: &mut hops,
                keeps_bytes: true,
                bytes: [0; PACKED_SLOTS],
            };
            let runs = 1 + round as usize % 31;
            let mut slots: [Built; PACKED_SLOTS] = core::array::from_fn(|slot| Built::Hop(ids[slot % runs % 5]));
            let deep = build_link(&mut blocks, &[Built::Hop(ids[5]), slots[0]]).unwrap();
            slots[round as usize % PACKED_SLOTS] = Built::Link(deep);
            let built = V4::build_top(&mut blocks, &slots).unwrap();
            tables.region.set_root(TOP, V4::root_block(built).unwrap());
            if let Some(bytes) = &tables.bytes {
                bytes.set(TOP, &blocks.bytes);
            }
            garbage[0].extend(V4::block_of(blocks.store, *last));
            *last = built;
            // And one leaf in place.
            let alone =
                (0..PACKED_SLOTS).map(|slot| slot..slot + 1).find(|slots| V4::can_store_leaf(&tables, built, slots));
            if let Some(slots) = alone {
                let id = ids[round as usize % 5];
                V4::store_leaf(&tables, built, &slots, id, hops.get(id).word);
            }
            // Little fits beside what waits for a reader, and one that has pinned the clock may be held up for long.
            let mut ended = round.is_multiple_of(4) && tables.clock.advance();
            while !ended && garbage[0].len() > 32 {
                thread::yield_now();
                ended = tables.clock.advance();
            }
            if ended {
                let free = core::mem::take(&mut garbage[0]);
                core::mem::replace(&mut garbage[1], free).into_iter().for_each(|block| store.free(block));
            }
        };
        let (mut garbage, mut last) = ([Vec::new(), Vec::new()], Built::Nothing);
        change(0, &mut garbage, &mut last);
        thread::scope(|scope| {
            scope.spawn(|| {
                let addrs: [u32; 45] = core::array::from_fn(|lane| TOP | (lane as u32 * 181));
                let mut answers = [None; 45];
                let mut habit = Habit::default();
                let mut rounds = 0;
                while !over.load(Ordering::Relaxed) || rounds == 0 {
                    let start = tables.clock.start();
                    V4::burst(&tables, &addrs, &mut answers, &mut habit);
                    if !tables.clock.stands(start) {
                        let _pin = tables.clock.pin();
                        V4::burst(&tables, &addrs, &mut answers, &mut habit);
                    }
                    for answer in answers {
                        assert!((first - 1..first + 5).contains(&answer.unwrap().get()), "{answer:?}");
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
        race(Width::Byte, false, true);
        race(Width::Byte, true, false);
        race(Width::Word, false, false);
        #[cfg(not(miri))]
        race(Width::Short, false, false);
    }
}
