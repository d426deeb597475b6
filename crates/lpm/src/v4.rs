//! IPv4: 19 bits of root array, 5 bits of packed block (down to the /24), then 3 bits of link block and 5 of packed block.
//!
//! Most addresses need two dependent loads: the root word, with a bitmap of 32 slots in it, and a leaf. Up to four leaves of a byte
//! are in the word itself. Multicast and what is reserved beyond it have one root word, as long as no route asks for more.
//! With the accelerator, a byte per /24 answers first and the blocks take what it cannot.
//!
//! A leaf or byte is the number of a next hop, and for small next hops the next hop itself: bursts look at the palette only
//! if one in use is not.

use core::net::Ipv4Addr;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::build::{Blocks, Slots};
use crate::mem::{Block, Leaf, LinkRef, PACKED_SLOTS, PackedRef, Roots, Slab, arrive};
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

/// What stands in the place of a slot: in a packed block, or in a link block.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Entry {
    Link(LinkRef),
    Word(PackedRef),
}

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
    const SHAPE: &'static Shape = &Shape::new(19, &[5, 3, 5]);
    const HAS_BYTES: bool = true;
    type Store = Slab;
    type Entry = Entry;

    fn key(prefix: Ipv4Prefix) -> Key {
        prefix.key()
    }

    fn prefix(key: Key) -> Ipv4Prefix {
        Ipv4Prefix::from_key(key)
    }

    fn lies_beyond(key: Key) -> bool {
        key.len > BEYOND_LEN && key.bits >= BEYOND
    }

    fn build_top(blocks: &mut Blocks<'_, Self>, slots: Slots<'_>) -> Option<Built> {
        if blocks.keeps_bytes {
            for (byte, hop) in blocks.bytes.iter_mut().zip(slots.hops) {
                *byte = u8::try_from(*hop).unwrap_or(u8::MAX);
            }
            for (slot, _) in slots.below {
                blocks.bytes[usize::from(*slot)] = u8::MAX;
            }
        }
        build_packed_of(blocks, &slots)
    }

    fn build_inner(blocks: &mut Blocks<'_, Self>, level: usize, slots: Slots<'_>) -> Option<Built> {
        if level == 1 { build_link(blocks, &slots.all()).map(Built::Link) } else { build_packed_of(blocks, &slots) }
    }

    fn build_uniform(blocks: &mut Blocks<'_, Self>, hop: HopId) -> Option<PackedRef> {
        word_for(blocks, Built::Hop(hop))
    }

    fn root_block(built: Built) -> Option<PackedRef> {
        match built {
            Built::Packed(block) => Some(block),
            _ => None,
        }
    }

    fn entry(blocks: &Blocks<'_, Self>, built: Built) -> Option<Entry> {
        if let Built::Link(link) = built { Some(Entry::Link(link)) } else { word_for(blocks, built).map(Entry::Word) }
    }

    fn block_of(_: &Slab, built: Built) -> Option<Block> {
        match built {
            Built::Packed(block) => block.block(),
            Built::Link(link) => Some(link.into()),
            _ => None,
        }
    }

    fn block_of_uniform(root: PackedRef) -> Option<Block> {
        root.block()
    }

    fn can_patch(tables: &Tables<Self>, parent: Built, slot: u8, new: Built) -> bool {
        match (parent, new) {
            (Built::Packed(block), Built::Link(_)) => is_escape(tables, block, slot.into()),
            (Built::Link(_), _) => true,
            _ => false,
        }
    }

    fn patch(tables: &Tables<Self>, parent: Built, slot: u8, new: Entry) {
        match (parent, new) {
            (Built::Packed(block), Entry::Link(link)) => tables.region.set_packed_link(block, slot.into(), link),
            (Built::Link(link), Entry::Word(word)) => tables.region.set_link_word(link, slot.into(), word),
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
            && block.block().is_some()
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

/// The root word, or that of a link block, for a built slot.
fn word_for(blocks: &Blocks<'_, V4>, built: Built) -> Option<PackedRef> {
    match (built, blocks.tables.width) {
        (Built::Packed(block), _) => Some(block),
        (Built::Hop(_), Width::Byte) => Some(PackedRef::of_leaf(blocks.leaf_to::<u8>(built))),
        (Built::Hop(_), Width::Short) => Some(PackedRef::of_leaf(blocks.leaf_to::<u16>(built))),
        (Built::Hop(_), Width::Word) => Some(PackedRef::of_leaf(blocks.leaf_to::<u32>(built))),
        _ => None,
    }
}

fn build_packed_of(blocks: &mut Blocks<'_, V4>, slots: &Slots<'_>) -> Option<Built> {
    match (blocks.tables.width, slots.below) {
        (Width::Byte, []) => build_runs::<u8>(blocks, slots),
        (Width::Short, []) => build_runs::<u16>(blocks, slots),
        (Width::Word, []) => build_runs::<u32>(blocks, slots),
        (Width::Byte, _) => build_packed::<u8>(blocks, &slots.all()),
        (Width::Short, _) => build_packed::<u16>(blocks, &slots.all()),
        (Width::Word, _) => build_packed::<u32>(blocks, &slots.all()),
    }
}

fn build_packed<L: Leaf>(blocks: &mut Blocks<'_, V4>, slots: &[Built; PACKED_SLOTS]) -> Option<Built> {
    let mut leaves = [L::ESCAPE; PACKED_SLOTS];
    let mut links = [LinkRef::NONE; PACKED_SLOTS];
    let (mut bitmap, mut count, mut last) = (0, 0, Built::Nothing);
    for (index, built) in slots.iter().enumerate() {
        if index == 0 || *built != last {
            last = *built;
            bitmap |= 1 << index;
            leaves[count] = blocks.leaf_to(last);
            if let Built::Link(link) = last {
                links[count] = link;
            }
            count += 1;
        }
    }
    let leaves = &leaves[..count];
    let links = leaves.contains(&L::ESCAPE).then_some(&links[..count]);
    blocks.store.packed(&blocks.tables.region, bitmap, leaves, links).map(Built::Packed)
}

/// As [`build_packed`], of slots that are all next hops.
fn build_runs<L: Leaf>(blocks: &mut Blocks<'_, V4>, slots: &Slots<'_>) -> Option<Built> {
    let hops = slots.hops.first_chunk::<PACKED_SLOTS>()?;
    let mut leaves = [L::ESCAPE; PACKED_SLOTS];
    let bitmap = slots.starts | 1;
    let (mut starts, mut count) = (bitmap, 0);
    while starts != 0 {
        leaves[count] = blocks.leaf_to(Built::Hop(hops[starts.trailing_zeros() as usize]));
        count += 1;
        starts &= starts - 1;
    }
    blocks.store.packed(&blocks.tables.region, bitmap, &leaves[..count], None).map(Built::Packed)
}

fn build_link(blocks: &mut Blocks<'_, V4>, slots: &[Built; LinkRef::SLOTS]) -> Option<LinkRef> {
    let mut words = [PackedRef::default(); LinkRef::SLOTS];
    for (word, built) in words.iter_mut().zip(slots) {
        *word = word_for(blocks, *built)?;
    }
    blocks.store.link(&blocks.tables.region, &words)
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
    if leaf != L::ESCAPE {
        return word(leaf);
    }
    let link = region.packed_link(block, addr >> 8);
    arrive();
    let block = region.link_word(link, addr >> 5);
    arrive();
    let leaf = region.packed_leaf::<L>(block, addr);
    arrive();
    word(leaf)
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
    use crate::lookup::{Kernel, burst};
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
        let mut change = |round: u32, garbage: &mut [Vec<Block>; 2], last: &mut [Built; 3]| {
            let mut blocks = Blocks {
                tables: &tables,
                store: &mut store,
                hops: &mut hops,
                keeps_bytes: true,
                bytes: [0; PACKED_SLOTS],
                below: &mut Vec::new(),
            };
            let runs = 1 + round as usize % 31;
            let mut slots: [Built; PACKED_SLOTS] = core::array::from_fn(|slot| Built::Hop(ids[slot % runs % 6]));
            let deep = Slots::with(&slots, |slots| build_packed_of(&mut blocks, &slots)).unwrap();
            let mut words = [slots[0]; LinkRef::SLOTS];
            words[round as usize % LinkRef::SLOTS] = deep;
            let link = Built::Link(build_link(&mut blocks, &words).unwrap());
            slots[round as usize % PACKED_SLOTS] = link;
            let built = Slots::with(&slots, |slots| V4::build_top(&mut blocks, slots)).unwrap();
            tables.region.set_root(TOP, V4::root_block(built).unwrap());
            if let Some(bytes) = &tables.bytes {
                bytes.set(TOP, &blocks.bytes);
            }
            garbage[0].extend(last.iter().filter_map(|built| V4::block_of(blocks.store, *built)));
            *last = [built, link, deep];
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
        let (mut garbage, mut last) = ([Vec::new(), Vec::new()], [Built::Nothing; 3]);
        change(0, &mut garbage, &mut last);
        thread::scope(|scope| {
            scope.spawn(|| {
                let addrs: [u32; 45] = core::array::from_fn(|lane| TOP | (lane as u32 * 181));
                let mut answers = [None; 45];
                let mut rounds = 0;
                while !over.load(Ordering::Relaxed) || rounds == 0 {
                    let start = tables.clock.start();
                    burst(&tables, &addrs, &mut answers);
                    if !tables.clock.stands(start) {
                        let _pin = tables.clock.pin();
                        burst(&tables, &addrs, &mut answers);
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
