//! Handing out the blocks of IPv4: one free list per class, chunks never change class.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use super::{Block, CHUNK, Leaf, LinkRef, PACKED_SLOTS, PackedRef, Region, Roots, Store, UNIT};
use crate::Result;

/// What a chunk is cut into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Link,
    /// With so many leaves.
    Packed(usize),
    /// With a reference for each leaf.
    PackedLinks(usize),
}

/// A cache line.
const LINK_BYTES: usize = LinkRef::SLOTS * size_of::<PackedRef>();

impl Class {
    const FIRST_PACKED: usize = 1;
    const FIRST_LINKS: usize = Self::FIRST_PACKED + PACKED_SLOTS;
    const COUNT: usize = Self::FIRST_LINKS + PACKED_SLOTS;

    fn index(self) -> usize {
        match self {
            Self::Link => 0,
            Self::Packed(leaves) => Self::FIRST_PACKED + leaves - 1,
            Self::PackedLinks(leaves) => Self::FIRST_LINKS + leaves - 1,
        }
    }

    /// The bytes of a block of the class with that number, where leaves have `leaf_bytes`.
    fn bytes_of(index: usize, leaf_bytes: usize) -> usize {
        match index {
            Self::FIRST_LINKS.. => {
                let leaves = index - Self::FIRST_LINKS + 1;
                Self::head_of(index) + (leaves * leaf_bytes).next_multiple_of(size_of::<LinkRef>())
            }
            Self::FIRST_PACKED.. => (index - Self::FIRST_PACKED + 1) * leaf_bytes,
            _ => LINK_BYTES,
        }
    }

    /// The bytes before the first leaf of a packed block.
    fn head_of(index: usize) -> usize {
        (index + 1).saturating_sub(Self::FIRST_LINKS) * size_of::<LinkRef>()
    }

    /// The bytes that a reference to such a block counts in.
    fn grain_of(index: usize) -> usize {
        if index < Self::FIRST_PACKED { UNIT } else { 1 }
    }
}

/// The free blocks of one class.
#[derive(Default)]
struct FreeList {
    /// Never used yet: from `fresh` to `end`, in bytes.
    fresh: usize,
    end: usize,
    /// Counted in the grains of the class.
    freed: Vec<u32>,
}

/// Hands out the blocks of one region. Every method that makes a block answers `None` when the region is full.
pub(crate) struct Slab {
    lists: Vec<FreeList>,
    /// The class index of every chunk that is in use.
    classes: Vec<u8>,
    /// Chunks not in use.
    vacant: Range<usize>,
    /// How many of these are kept.
    reserve: usize,
    live: usize,
    /// Of a leaf of a packed block.
    leaf_bytes: usize,
}

impl Slab {
    /// Chunks that are kept: a removal may exchange a block for one of a class all of whose chunks are full.
    const RESERVE: usize = Class::COUNT;
    /// Chunks of a region, at most: AVX2 and AVX-512 gather leaves by a 32-bit number with a sign, that of the byte after the
    /// leaf. In a chunk that ends at 2 GiB the last one's would be negative, so that chunk is left out.
    const MOST_CHUNKS: usize = (1 << 31) / CHUNK - 1;

    /// A link block of these words.
    pub(crate) fn link<R: Roots>(
        &mut self,
        region: &Region<R>,
        words: &[PackedRef; LinkRef::SLOTS],
    ) -> Option<LinkRef> {
        let link = LinkRef(self.take(Class::Link)?);
        for (slot, word) in (0..).zip(words) {
            region.set_link_word(link, slot, *word);
        }
        Some(link)
    }

    /// A packed block with a leaf for every bit of `bitmap`, whose bit 0 is set; `links`, as many,
    /// are given exactly when a leaf is [`Leaf::ESCAPE`], and used for such leaves.
    pub(crate) fn packed<R: Roots, L: Leaf>(
        &mut self,
        region: &Region<R>,
        bitmap: u32,
        leaves: &[L],
        links: Option<&[LinkRef]>,
    ) -> Option<PackedRef> {
        assert!(bitmap & 1 == 1 && bitmap.count_ones() as usize == leaves.len(), "one leaf per run");
        assert_eq!(leaves.contains(&L::ESCAPE), links.is_some(), "an escape leads somewhere");
        assert_eq!(self.leaf_bytes, size_of::<L>(), "leaves of a region have one width");
        if links.is_none()
            && let Some(packed) = PackedRef::in_place(bitmap, leaves)
        {
            return Some(packed);
        }
        let first_leaf = if let Some(links) = links {
            assert_eq!(links.len(), leaves.len(), "one link per leaf");
            let start = self.take(Class::PackedLinks(leaves.len()))? as usize;
            for (index, link) in links.iter().rev().enumerate() {
                region.write_word(0, start + index * size_of::<LinkRef>(), link.0);
            }
            start + size_of_val(links)
        } else {
            self.take(Class::Packed(leaves.len()))? as usize
        };
        region.write_leaves(0, first_leaf, leaves.iter());
        #[expect(clippy::cast_possible_truncation, reason = "it lies in the block that starts there")]
        let first_leaf = first_leaf as u32;
        Some(PackedRef::new(first_leaf, bitmap))
    }

    fn class_at(&self, byte: usize) -> usize {
        usize::from(self.classes[byte / CHUNK])
    }

    /// Where a new block of that class starts, in its grains.
    fn take(&mut self, class: Class) -> Option<u32> {
        let index = class.index();
        let (bytes, grain) = (Class::bytes_of(index, self.leaf_bytes), Class::grain_of(index));
        // What a removal left free in the reserve is not for others.
        if self.reserve > 0 && self.live + bytes > self.capacity() {
            return None;
        }
        let list = &mut self.lists[index];
        let start = if let Some(start) = list.freed.pop() {
            start
        } else {
            if list.fresh + bytes > list.end {
                let chunk = self.vacant.clone().next().filter(|_| self.vacant.len() > self.reserve)?;
                self.vacant.start += 1;
                self.classes[chunk] = u8::try_from(index).ok()?;
                list.fresh = chunk * CHUNK;
                list.end = list.fresh + CHUNK;
            }
            let start = list.fresh;
            list.fresh += bytes;
            #[expect(clippy::cast_possible_truncation, reason = "the chunk lies within")]
            let start = (start / grain) as u32;
            start
        };
        self.live += bytes;
        Some(start)
    }
}

impl Store for Slab {
    type Block = Block;

    const GRAIN: usize = CHUNK;
    const MOST: usize = (Self::MOST_CHUNKS - Self::RESERVE) * CHUNK;

    fn with_region<R: Roots>(bytes: usize, whole: bool, leaf_bytes: usize) -> Result<(Region<R>, Self)> {
        let chunks = bytes.min(Self::MOST).div_ceil(CHUNK).max(Class::COUNT) + Self::RESERVE;
        let region = Region::new(chunks, whole)?;
        let mut slab = Self {
            lists: (0..Class::COUNT).map(|_| FreeList::default()).collect(),
            classes: vec![0; region.chunks()],
            vacant: 0..1,
            reserve: 0,
            live: 0,
            leaf_bytes,
        };
        // What "no route" leads to is the first block.
        let none = slab.take(Class::Link);
        debug_assert_eq!(none, Some(LinkRef::NONE.0), "a block of zeroes");
        slab.vacant = 1..region.chunks();
        Ok((region, slab))
    }

    fn capacity(&self) -> usize {
        (self.classes.len() - Self::RESERVE) * CHUNK
    }

    fn keep_reserve(&mut self, keep: bool) {
        self.reserve = if keep { Self::RESERVE } else { 0 };
    }

    fn live(&self) -> usize {
        self.live
    }

    fn free(&mut self, Block(byte): Block) {
        let class = self.class_at(byte);
        self.live -= Class::bytes_of(class, self.leaf_bytes);
        let start = byte - Class::head_of(class);
        #[expect(clippy::cast_possible_truncation, reason = "it was in a reference")]
        self.lists[class].freed.push((start / Class::grain_of(class)) as u32);
    }

    fn bytes(&self, block: Block) -> usize {
        Class::bytes_of(self.class_at(block.0), self.leaf_bytes)
    }
}

#[cfg(all(test, not(any(loom, miri))))]
impl Slab {
    /// Leaves only the last `chunks` of the region to be handed out.
    pub(crate) fn skip_to_last(&mut self, chunks: usize) {
        self.vacant.start = self.vacant.end - chunks;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_numbers_are_distinct_and_give_the_size_back() {
        for leaf_bytes in [1, 2, 4] {
            let packed = (1..=PACKED_SLOTS).flat_map(|leaves| {
                let bytes = leaves * leaf_bytes;
                [(Class::Packed(leaves), bytes), (Class::PackedLinks(leaves), 4 * leaves + bytes.next_multiple_of(4))]
            });
            let mut seen = [false; Class::COUNT];
            for (class, bytes) in core::iter::once((Class::Link, 64)).chain(packed) {
                assert!(!core::mem::replace(&mut seen[class.index()], true), "{class:?}");
                assert_eq!(Class::bytes_of(class.index(), leaf_bytes), bytes, "{class:?}");
                let head = if let Class::PackedLinks(leaves) = class { 4 * leaves } else { 0 };
                assert_eq!(Class::head_of(class.index()), head, "{class:?}");
            }
            assert!(seen.iter().all(|seen| *seen));
        }
    }
}
