//! Handing out blocks: one free list per class, chunks never change class.

use alloc::vec::Vec;

use super::{CHUNK, Depth, Leaf, LinkRef, PackedRef, PageRef, Region, Roots, UNIT};
use crate::Result;

/// What a chunk is cut into. The number is the block size in units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Leaf,
    Link(Depth, usize),
    Packed(usize),
    PackedEscape(usize),
    Tail(usize),
    Page,
}

impl Class {
    const COUNT: usize = 227;

    fn units(self) -> usize {
        match self {
            Self::Leaf => 2,
            Self::Link(_, units) | Self::Packed(units) | Self::PackedEscape(units) | Self::Tail(units) => units,
            Self::Page => 256 * 4 / UNIT,
        }
    }

    /// Blocks have at most 64 entries of 4 bytes beside their bitmap: 2 to 33 units, one more with an escape.
    fn index(self) -> usize {
        match self {
            Self::Leaf => 0,
            Self::Link(depth, units) => 32 * depth as usize + units - 1,
            Self::Packed(units) => 127 + units,
            Self::PackedEscape(units) => 158 + units,
            Self::Tail(units) => 191 + units,
            Self::Page => 226,
        }
    }

    fn units_of(index: usize) -> usize {
        match index {
            0 => 2,
            1..=128 => (index - 1) % 32 + 2,
            129..=160 => index - 127,
            161..=192 => index - 158,
            193..=225 => index - 191,
            _ => 128,
        }
    }
}

/// The free blocks of one class.
#[derive(Default)]
struct FreeList {
    /// Never used yet: from `fresh` to `end`, in units.
    fresh: usize,
    end: usize,
    freed: Vec<u32>,
}

/// Hands out the blocks of one region. Every method that makes a block answers `None` when the region is full.
pub(crate) struct Slab {
    lists: Vec<FreeList>,
    /// The class index of every chunk in use.
    classes: Vec<u8>,
    chunks: usize,
    live_units: usize,
}

impl Slab {
    /// A region of about `bytes` of blocks and the slab for it. The leaf "no route" is its first block.
    pub(crate) fn with_region<R: Roots>(bytes: usize) -> Result<(Region<R>, Self)> {
        let region = Region::new(bytes.div_ceil(CHUNK * UNIT).max(Class::COUNT))?;
        let mut slab = Self {
            lists: (0..Class::COUNT).map(|_| FreeList::default()).collect(),
            classes: Vec::new(),
            chunks: region.chunks(),
            live_units: 0,
        };
        let none = slab.take(Class::Leaf);
        debug_assert_eq!(none, Some(LinkRef::NONE.0), "a block of zeroes");
        Ok((region, slab))
    }

    /// Bytes of blocks the region has room for.
    pub(crate) fn capacity(&self) -> usize {
        self.chunks * CHUNK * UNIT
    }

    /// Units of all blocks in use, of 8 bytes each.
    pub(crate) fn live_units(&self) -> usize {
        self.live_units
    }

    /// A leaf block.
    pub(crate) fn leaf<R: Roots, L: Leaf>(&mut self, region: &Region<R>, leaf: L) -> Option<LinkRef> {
        let unit = self.take(Class::Leaf)?;
        region.write_bitmap(unit, 0);
        region.write_word(unit, UNIT, unit);
        region.write_leaves(unit, UNIT + 4, [leaf].iter());
        Some(LinkRef(unit))
    }

    /// A block with a run from every slot whose bit in `bitmap` is set, as that of slot 0 is; `runs` has as many entries, which
    /// lead to what `depth` says.
    pub(crate) fn link<R: Roots>(
        &mut self,
        region: &Region<R>,
        depth: Depth,
        bitmap: u64,
        runs: &[LinkRef],
    ) -> Option<LinkRef> {
        assert!(bitmap & 1 == 1 && bitmap.count_ones() as usize == runs.len(), "one entry per run");
        let unit = self.take(Class::Link(depth, 1 + runs.len().div_ceil(2)))?;
        region.write_bitmap(unit, bitmap >> 1);
        for (index, run) in runs.iter().rev().enumerate() {
            region.write_word(unit, 8 + 4 * index, run.0);
        }
        Some(LinkRef(unit))
    }

    /// A packed block with a leaf for every bit of `bitmap`, whose bit 0 is set; `escape` is given exactly
    /// when a leaf is [`Leaf::ESCAPE`].
    pub(crate) fn packed<R: Roots, L: Leaf>(
        &mut self,
        region: &Region<R>,
        bitmap: u64,
        leaves: &[L],
        escape: Option<LinkRef>,
    ) -> Option<PackedRef> {
        assert!(bitmap & 1 == 1 && bitmap.count_ones() as usize == leaves.len(), "one leaf per run");
        assert_eq!(leaves.contains(&L::ESCAPE), escape.is_some(), "an escape leads somewhere");
        let units = 1 + size_of_val(leaves).div_ceil(UNIT);
        let unit = match escape {
            None => self.take(Class::Packed(units))?,
            Some(escape) => {
                let unit = self.take(Class::PackedEscape(units + 1))?;
                region.write_word(unit, units * UNIT, escape.0);
                unit
            }
        };
        region.write_bitmap(unit, bitmap);
        region.write_leaves(unit, UNIT, leaves.iter());
        Some(PackedRef(unit))
    }

    /// A tail block, likewise; `escape`, of [`Depth::Below`], is given exactly when a leaf is [`Leaf::ESCAPE`].
    pub(crate) fn tail<R: Roots, L: Leaf>(
        &mut self,
        region: &Region<R>,
        bitmap: u64,
        leaves: &[L],
        escape: Option<LinkRef>,
    ) -> Option<LinkRef> {
        assert!(bitmap & 1 == 1 && bitmap.count_ones() as usize == leaves.len(), "one leaf per run");
        assert_eq!(leaves.contains(&L::ESCAPE), escape.is_some(), "an escape leads somewhere");
        let unit = self.take(Class::Tail((UNIT + 4 + size_of_val(leaves)).div_ceil(UNIT)))?;
        region.write_bitmap(unit, bitmap >> 1);
        region.write_word(unit, UNIT, escape.unwrap_or_default().0);
        region.write_leaves(unit, UNIT + 4, leaves.iter().rev());
        Some(LinkRef(unit))
    }

    /// A page of 256 entries.
    pub(crate) fn page<R: Roots>(&mut self, region: &Region<R>, entries: &[LinkRef]) -> Option<PageRef> {
        assert_eq!(entries.len(), 256, "one entry per slot");
        let unit = self.take(Class::Page)?;
        for (index, entry) in entries.iter().enumerate() {
            region.write_word(unit, 4 * index, entry.0);
        }
        Some(PageRef(unit))
    }

    /// Gives a block back. No reader may be able to reach it, or its answer must be thrown away.
    pub(crate) fn free(&mut self, block: impl super::Reference) {
        let unit = block.word();
        let class = usize::from(self.classes[unit as usize / CHUNK]);
        self.live_units -= Class::units_of(class);
        self.lists[class].freed.push(unit);
    }

    /// The size of a block, in units.
    pub(crate) fn units(&self, block: impl super::Reference) -> usize {
        Class::units_of(usize::from(self.classes[block.word() as usize / CHUNK]))
    }

    fn take(&mut self, class: Class) -> Option<u32> {
        let (units, index) = (class.units(), class.index());
        let list = &mut self.lists[index];
        let unit = if let Some(unit) = list.freed.pop() {
            unit
        } else {
            if list.fresh + units > list.end {
                let chunk = self.classes.len();
                if chunk == self.chunks {
                    return None;
                }
                self.classes.push(u8::try_from(index).ok()?);
                list.fresh = chunk * CHUNK;
                list.end = list.fresh + CHUNK;
            }
            let unit = list.fresh;
            list.fresh += units;
            u32::try_from(unit).ok()?
        };
        self.live_units += units;
        Some(unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_numbers_are_distinct_and_give_the_size_back() {
        let depths = [Depth::First, Depth::Second, Depth::Third, Depth::Below];
        let links = depths.into_iter().flat_map(|depth| (2..=33).map(move |units| Class::Link(depth, units)));
        let packed = (2..=33).flat_map(|units| [Class::Packed(units), Class::PackedEscape(units + 1)]);
        let classes =
            [Class::Leaf, Class::Page].into_iter().chain(links).chain(packed).chain((2..=34).map(Class::Tail));
        let mut seen = [false; Class::COUNT];
        for class in classes {
            assert!(!core::mem::replace(&mut seen[class.index()], true), "{class:?}");
            assert_eq!(Class::units_of(class.index()), class.units(), "{class:?}");
        }
        assert!(seen.iter().all(|seen| *seen));
    }
}
