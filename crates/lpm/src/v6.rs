//! IPv6: 16 bits of root array, pages of 8 bits (down to the /24), then link blocks of 6 bits, of 4 where
//! the upper and the lower half of the address end.

use core::net::Ipv6Addr;
use core::ops::Range;

use crate::NextHop;
use crate::build::Blocks;
use crate::kernel::{self, Habit};
use crate::mem::{LinkRef, PageRef, Roots, arrive};
use crate::prefix::{Ipv6Prefix, Key};
use crate::rib::{Built, HopId, Shape};
use crate::tables::{Addresses, Family, Layout, Tables};

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

    fn attached(_: &Tables<Self>, _: Built) -> [Option<LinkRef>; 2] {
        [None; 2]
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

/// The leaf a lookup starting at `link`, reached after `pos` bits, ends at.
#[inline(always)]
pub(crate) fn walk_from(tables: &Tables<V6>, mut link: LinkRef, addr: u128, level: usize) -> u32 {
    let mut pos = V6::ROOT_BITS + V6::SHAPE.strides[..level].iter().map(|stride| u32::from(*stride)).sum::<u32>();
    for stride in &V6::SHAPE.strides[level..] {
        arrive();
        if tables.region.is_leaf(link) {
            break;
        }
        pos += u32::from(*stride);
        #[expect(clippy::cast_possible_truncation, reason = "a stride has at most 6 bits")]
        let slot = (addr >> (128 - pos)) as u32 & ((1 << stride) - 1);
        link = tables.region.step(link, slot);
    }
    arrive();
    tables.region.leaf_word(link)
}
