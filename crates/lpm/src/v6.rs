//! IPv6: 16 bits of root array, pages of 8 bits (down to the /24), three levels of link blocks of 6 bits, then tail blocks
//! of 6 bits, down to the /48. What is longer, and rare, lies in link blocks below, of 6 bits and of 4 where the upper and
//! the lower half of the address end.
//!
//! A lookup passes every level down to the tail blocks: leaf blocks above them lead back to themselves.

use core::net::Ipv6Addr;
use core::ops::Range;

use crate::NextHop;
use crate::build::{Blocks, find_runs};
use crate::kernel::{self, Habit};
use crate::mem::{Depth, Leaf, LinkRef, PageRef, Roots, View, arrive};
use crate::prefix::{Ipv6Prefix, Key};
use crate::rib::{Built, HopId, Shape};
use crate::tables::{Addresses, Family, Layout, Tables, Width};
use crate::v4::word_of;

/// The level of tail blocks, which end with the /48.
pub(crate) const TAIL: usize = 4;

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
    const SHAPE: &'static Shape =
        &Shape { root_bits: 16, strides: &[8, 6, 6, 6, 6, 6, 6, 4, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 4] };
    const HAS_BYTES: bool = false;

    fn key(prefix: Ipv6Prefix) -> Key {
        prefix.key()
    }

    fn prefix(key: Key) -> Ipv6Prefix {
        Ipv6Prefix::from_key(key)
    }

    fn lies_beyond(_: Key) -> bool {
        false
    }

    #[inline]
    fn one(tables: &Tables<Self>, addr: u128) -> Option<NextHop> {
        kernel::v6_one(tables, addr)
    }

    #[inline]
    fn burst<A: Copy + Into<u128>>(tables: &Tables<Self>, addrs: &[A], out: &mut [Option<NextHop>], _: &mut Habit) {
        kernel::v6_burst(tables, addrs, out);
    }

    fn build_top(blocks: &mut Blocks<'_, Self>, slots: &[Built]) -> Option<Built> {
        let mut entries = [LinkRef::default(); 256];
        for (entry, built) in entries.iter_mut().zip(slots) {
            *entry = blocks.link_to(*built)?;
        }
        blocks.slab.page(&blocks.tables.region, &entries).map(Built::Page)
    }

    fn build_inner(blocks: &mut Blocks<'_, Self>, level: usize, slots: &[Built]) -> Option<Built> {
        let depth = match level {
            1 => Depth::First,
            2 => Depth::Second,
            3 => Depth::Third,
            TAIL => {
                return match blocks.tables.width {
                    Width::Byte => build_tail::<u8>(blocks, slots),
                    Width::Short => build_tail::<u16>(blocks, slots),
                    Width::Word => build_tail::<u32>(blocks, slots),
                };
            }
            _ => Depth::Below,
        };
        blocks.build_link(depth, slots).map(Built::Link)
    }

    fn build_leaf(blocks: &mut Blocks<'_, Self>, hop: HopId) -> Option<LinkRef> {
        let (region, built) = (&blocks.tables.region, Built::Hop(hop));
        match blocks.tables.width {
            Width::Byte => blocks.slab.leaf(region, blocks.leaf_to::<u8>(built)),
            Width::Short => blocks.slab.leaf(region, blocks.leaf_to::<u16>(built)),
            Width::Word => blocks.slab.leaf(region, blocks.leaf_to::<u32>(built)),
        }
    }

    fn build_uniform(blocks: &mut Blocks<'_, Self>, hop: HopId) -> Option<PageRef> {
        let leaf = blocks.leaf(hop)?;
        blocks.slab.page(&blocks.tables.region, &[leaf; 256])
    }

    fn root_block(built: Built) -> Option<PageRef> {
        match built {
            Built::Page(page) => Some(page),
            _ => None,
        }
    }

    fn attached(tables: &Tables<Self>, built: Built) -> Option<LinkRef> {
        let Built::Tail(tail) = built else { return None };
        Some(tables.region.view().tail_escape(tail)).filter(|escape| *escape != LinkRef::NONE)
    }

    fn can_patch_top(_: &Tables<Self>, top: Built, _: u8, _: Built) -> bool {
        matches!(top, Built::Page(_))
    }

    fn patch_top(tables: &Tables<Self>, top: Built, slot: u8, new: LinkRef) {
        if let Built::Page(page) = top {
            tables.region.set_page_entry(page, slot, new);
        }
    }

    fn can_store_leaf(_: &Tables<Self>, _: Built, _: &Range<usize>) -> bool {
        false
    }

    fn store_leaf(_: &Tables<Self>, _: Built, _: &Range<usize>, _: HopId, _: u32) {}
}

/// The tail block of a node of level [`TAIL`].
fn build_tail<L: Leaf>(blocks: &mut Blocks<'_, V6>, slots: &[Built]) -> Option<Built> {
    let mut leaves = [L::ESCAPE; 64];
    let (bitmap, count) = find_runs(slots, |index, built| {
        leaves[index] = blocks.leaf_to(built);
        Some(())
    })?;
    let leaves = &leaves[..count];
    let escape = if leaves.contains(&L::ESCAPE) { Some(blocks.build_escape(slots)?) } else { None };
    let tail = blocks.slab.tail(&blocks.tables.region, bitmap, leaves, escape);
    if tail.is_none() {
        escape.into_iter().for_each(|escape| blocks.slab.free(escape));
    }
    tail.map(Built::Tail)
}

/// The answer for one address.
#[inline(always)]
pub(crate) fn walk(tables: &Tables<V6>, addr: u128) -> u32 {
    let region = tables.region.view();
    #[expect(clippy::cast_possible_truncation, reason = "the leading bits are wanted")]
    let (top, slot) = ((addr >> 96) as u32, (addr >> 104) as u8);
    let page = region.root(top);
    arrive();
    let mut link = region.page_entry(page, slot);
    for level in 1..TAIL {
        arrive();
        if region.is_leaf(link) {
            break;
        }
        link = region.step(link, slot_of(addr, level));
    }
    arrive();
    finish(tables, link, addr)
}

/// The answer for an address that has come to the tail block at `link`.
#[inline(always)]
pub(crate) fn finish(tables: &Tables<V6>, link: LinkRef, addr: u128) -> u32 {
    match (tables.width, &tables.wide_palette) {
        (Width::Byte, _) => finish_wide(tables, link, addr, |leaf: u8| word_of(&tables.palette, leaf)),
        (Width::Short, Some(palette)) => finish_wide(tables, link, addr, |leaf: u16| word_of(palette, leaf)),
        (Width::Short, None) => 0,
        (Width::Word, _) => finish_wide(tables, link, addr, |leaf: u32| leaf),
    }
}

#[inline(always)]
fn finish_wide<L: Leaf>(tables: &Tables<V6>, link: LinkRef, addr: u128, word: impl Fn(L) -> u32) -> u32 {
    let region = tables.region.view();
    let leaf = region.tail_leaf::<L>(link, slot_of(addr, TAIL));
    arrive();
    if leaf == L::ESCAPE { finish_escape(region, link, addr, word) } else { word(leaf) }
}

#[inline(always)]
fn finish_escape<L: Leaf>(region: View<'_, V6>, tail: LinkRef, addr: u128, word: impl Fn(L) -> u32) -> u32 {
    let mut link = region.step(region.tail_escape(tail), slot_of(addr, TAIL));
    for level in TAIL + 1..V6::SHAPE.strides.len() {
        arrive();
        if region.is_leaf(link) {
            break;
        }
        link = region.step(link, slot_of(addr, level));
    }
    arrive();
    // A reader that is late may come to none, and its answer is thrown away.
    if region.is_leaf(link) { word(region.tail_leaf(link, 0)) } else { 0 }
}

/// The slot of an address in a block of `level`.
#[inline(always)]
pub(crate) fn slot_of(addr: u128, level: usize) -> u32 {
    let strides = V6::SHAPE.strides;
    let end = V6::ROOT_BITS + strides[..=level].iter().map(|stride| u32::from(*stride)).sum::<u32>();
    #[expect(clippy::cast_possible_truncation, reason = "a stride has at most 8 bits")]
    let slot = (addr >> (128 - end)) as u32 & ((1 << strides[level]) - 1);
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
    use crate::build::blocks_of;
    use crate::hops::Hops;
    use crate::kernel::Kernel;
    use crate::mem::{Block, PACKED_SLOTS};

    const TOP: u32 = 0x2001_0000;
    const ROUNDS: u32 = if cfg!(miri) { 10 } else { 20_000 };
    const FIRST: u32 = 101;

    /// Blocks of every level, with other runs each time, so that their memory is used again by others of the same level.
    fn build(blocks: &mut Blocks<'_, V6>, ids: &[HopId; 6], round: u32, made: &mut Vec<Built>) -> Built {
        let mut below = None;
        for level in (0..=TAIL + 1).rev() {
            let runs = 1 + (round as usize + level) % 63;
            let mut slots: [Built; 256] = core::array::from_fn(|slot| Built::Hop(ids[slot % runs % 5]));
            slots[1] = Built::Hop(ids[5]);
            if let Some(below) = below {
                slots[(round as usize + 3 * level) % 64] = below;
            }
            let built = match level {
                0 => V6::build_top(blocks, &slots),
                _ => V6::build_inner(blocks, level, &slots[..64]),
            };
            made.extend(built);
            below = built;
        }
        below.unwrap()
    }

    fn race(width: Width) {
        let (tables, mut slab) = Tables::<V6>::new(1, true, width, false, Kernel::detect()).unwrap();
        let mut hops = Hops::new();
        let ids: [HopId; 6] = core::array::from_fn(|index| {
            let word = FIRST + index as u32;
            let id = hops.acquire(word);
            tables.set_palette(id, word);
            id
        });
        let over = AtomicBool::new(false);
        let mut change = |round: u32, garbage: &mut [Vec<Block>; 2], last: &mut Vec<Built>| {
            let mut blocks = Blocks {
                tables: &tables,
                slab: &mut slab,
                hops: &mut hops,
                keeps_bytes: false,
                bytes: [0; PACKED_SLOTS],
            };
            let mut made = Vec::new();
            let built = build(&mut blocks, &ids, round, &mut made);
            tables.region.set_root(TOP, V6::root_block(built).unwrap());
            for built in core::mem::replace(last, made) {
                garbage[0].extend(blocks_of(&tables, built));
            }
            // Little fits beside what waits for a reader, and one that has pinned the clock may be held up for long.
            let mut ended = round.is_multiple_of(4) && tables.clock.advance();
            while !ended && garbage[0].len() > 48 {
                thread::yield_now();
                ended = tables.clock.advance();
            }
            if ended {
                let free = core::mem::take(&mut garbage[0]);
                core::mem::replace(&mut garbage[1], free).into_iter().for_each(|block| slab.free(block));
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
                    V6::burst(&tables, &addrs, &mut answers, &mut Habit::default());
                    if !tables.clock.stands(start) {
                        let _pin = tables.clock.pin();
                        V6::burst(&tables, &addrs, &mut answers, &mut Habit::default());
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
