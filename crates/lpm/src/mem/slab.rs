//! Handing out blocks: one free list per class, chunks never change class.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use super::region::Room;
use super::{CHUNK, Depth, Leaf, LinkRef, PACKED_SLOTS, PackedRef, PageRef, Region, Roots, UNIT};
use crate::Result;

/// Sizes of blocks, in units. The most that is asked for: two bitmaps, 128 leaves of 4 bytes and two references.
const SIZES: [usize; 28] =
    [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 18, 20, 22, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60, 64, 68];

/// What a chunk is cut into. The number is the least size of a block, in units.
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
    const COUNT: usize = Self::FIRST_SIZED + 7 * SIZES.len();
    const FIRST_SIZED: usize = 2;

    fn units(self) -> usize {
        Self::units_of(self.index())
    }

    fn index(self) -> usize {
        let (kind, units) = match self {
            Self::Leaf => return 0,
            Self::Page => return 1,
            Self::Link(depth, units) => (depth as usize, units),
            Self::Tail(units) => (4, units),
            Self::Packed(units) => (5, units),
            Self::PackedEscape(units) => (6, units),
        };
        Self::FIRST_SIZED + kind * SIZES.len() + SIZES.partition_point(|size| *size < units)
    }

    fn units_of(index: usize) -> usize {
        match index {
            0 => 2,
            1 => 256 * 4 / UNIT,
            _ => SIZES[(index - Self::FIRST_SIZED) % SIZES.len()],
        }
    }

    fn room(self) -> Option<Room> {
        match self {
            Self::Packed(_) => Some(Room::new(self.units() - 2, false)),
            Self::PackedEscape(_) => Some(Room::new(self.units() - 3, true)),
            _ => None,
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
    /// The class index of every chunk that is in use.
    classes: Vec<u8>,
    /// Chunks not in use. Packed blocks get the first of them, as references to them do not reach far; others the last.
    vacant: Range<usize>,
    live_units: usize,
}

impl Slab {
    /// A region of about `bytes` of blocks and the slab for it. The leaf "no route" is its first block.
    pub(crate) fn with_region<R: Roots>(bytes: usize) -> Result<(Region<R>, Self)> {
        let region = Region::new(bytes.div_ceil(CHUNK * UNIT).max(Class::COUNT))?;
        let mut slab = Self {
            lists: (0..Class::COUNT).map(|_| FreeList::default()).collect(),
            classes: vec![0; region.chunks()],
            vacant: 0..1,
            live_units: 0,
        };
        let none = slab.take(&region, Class::Leaf);
        debug_assert_eq!(none, Some(LinkRef::NONE.0), "a block of zeroes");
        slab.vacant = 1..region.chunks();
        Ok((region, slab))
    }

    /// Bytes of blocks the region has room for.
    pub(crate) fn capacity(&self) -> usize {
        self.classes.len() * CHUNK * UNIT
    }

    /// Units of all blocks in use, of 8 bytes each.
    pub(crate) fn live_units(&self) -> usize {
        self.live_units
    }

    /// A leaf block.
    pub(crate) fn leaf<R: Roots, L: Leaf>(&mut self, region: &Region<R>, leaf: L) -> Option<LinkRef> {
        let unit = self.take(region, Class::Leaf)?;
        region.write_bitmap(unit, 0, 0);
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
        let unit = self.take(region, Class::Link(depth, 1 + runs.len().div_ceil(2)))?;
        region.write_bitmap(unit, 0, bitmap >> 1);
        for (index, run) in runs.iter().rev().enumerate() {
            region.write_word(unit, 8 + 4 * index, run.0);
        }
        Some(LinkRef(unit))
    }

    /// A packed block with a leaf for every bit of `bitmap`, whose bit 0 is set; `escapes`, one for each half, are given
    /// exactly when a leaf is [`Leaf::ESCAPE`].
    pub(crate) fn packed<R: Roots, L: Leaf>(
        &mut self,
        region: &Region<R>,
        bitmap: u128,
        leaves: &[L],
        escapes: Option<[LinkRef; 2]>,
    ) -> Option<PackedRef> {
        assert!(bitmap & 1 == 1 && bitmap.count_ones() as usize == leaves.len(), "one leaf per run");
        assert_eq!(leaves.contains(&L::ESCAPE), escapes.is_some(), "an escape leads somewhere");
        const { assert!(PACKED_SLOTS == u128::BITS as usize) };
        let units = 2 + size_of_val(leaves).div_ceil(UNIT);
        let class = if escapes.is_some() { Class::PackedEscape(units + 1) } else { Class::Packed(units) };
        let unit = self.take(region, class)?;
        #[expect(clippy::cast_possible_truncation, reason = "halves are wanted")]
        let halves = [bitmap as u64, (bitmap >> 64) as u64];
        for (half, bitmap) in halves.into_iter().enumerate() {
            region.write_bitmap(unit, half * UNIT, bitmap);
        }
        region.write_leaves(unit, 2 * UNIT, leaves.iter());
        if let (Some(room), Some(escapes)) = (class.room(), escapes) {
            for (half, escape) in escapes.into_iter().enumerate() {
                region.write_word(unit, room.escape(half), escape.0);
            }
        }
        Some(PackedRef(unit << PackedRef::LOW_BITS | halves[0].count_ones()))
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
        let unit = self.take(region, Class::Tail((UNIT + 4 + size_of_val(leaves)).div_ceil(UNIT)))?;
        region.write_bitmap(unit, 0, bitmap >> 1);
        region.write_word(unit, UNIT, escape.unwrap_or_default().0);
        region.write_leaves(unit, UNIT + 4, leaves.iter().rev());
        Some(LinkRef(unit))
    }

    /// A page of 256 entries.
    pub(crate) fn page<R: Roots>(&mut self, region: &Region<R>, entries: &[LinkRef]) -> Option<PageRef> {
        assert_eq!(entries.len(), 256, "one entry per slot");
        let unit = self.take(region, Class::Page)?;
        for (index, entry) in entries.iter().enumerate() {
            region.write_word(unit, 4 * index, entry.0);
        }
        Some(PageRef(unit))
    }

    /// Gives a block back. No reader may be able to reach it, or its answer must be thrown away.
    pub(crate) fn free(&mut self, block: impl super::Reference) {
        let unit = block.unit();
        let class = usize::from(self.classes[unit as usize / CHUNK]);
        self.live_units -= Class::units_of(class);
        self.lists[class].freed.push(unit);
    }

    /// The size of a block, in units.
    pub(crate) fn units(&self, block: impl super::Reference) -> usize {
        Class::units_of(usize::from(self.classes[block.unit() as usize / CHUNK]))
    }

    fn take<R: Roots>(&mut self, region: &Region<R>, class: Class) -> Option<u32> {
        let (units, index) = (class.units(), class.index());
        let list = &mut self.lists[index];
        let unit = if let Some(unit) = list.freed.pop() {
            unit
        } else {
            if list.fresh + units > list.end {
                let chunk = match class.room() {
                    None => self.vacant.next_back()?,
                    Some(room) => {
                        let within = |chunk: &usize| (chunk + 1) * CHUNK <= PackedRef::END;
                        let chunk = self.vacant.clone().next().filter(within)?;
                        self.vacant.start += 1;
                        region.set_room(chunk, room);
                        chunk
                    }
                };
                self.classes[chunk] = u8::try_from(index).ok()?;
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
        let sized = SIZES.iter().flat_map(|size| {
            let links = depths.map(|depth| Class::Link(depth, *size));
            links.into_iter().chain([Class::Packed(*size), Class::PackedEscape(*size), Class::Tail(*size)])
        });
        let mut seen = [false; Class::COUNT];
        for class in [Class::Leaf, Class::Page].into_iter().chain(sized) {
            assert!(!core::mem::replace(&mut seen[class.index()], true), "{class:?}");
        }
        assert!(seen.iter().all(|seen| *seen));
        for units in 2..=68 {
            let given = Class::Tail(units).units();
            assert!(units <= given && given < units + 4 && given <= units * 5 / 4, "{units}: {given}");
        }
    }
}
