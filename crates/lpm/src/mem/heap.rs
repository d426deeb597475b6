//! Blocks of whole words, one behind the other: those of IPv6. A table that is built has the blocks of a subtree side by
//! side, in few cache lines, whatever their kinds and sizes.
//!
//! Hence the rule that is not [`Slab`](super::Slab)'s: memory is used again for blocks of any kind. A reader that is late may
//! take any word for any other, so all of them are read as words, and where one says to go next is cut to the region.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use super::{CHUNK, EntryRef, Leaf, NodeRef, PageRef, Region, Roots, Store, UNIT, View};
use crate::Result;

/// Entries of a page.
const PAGE: u32 = 256;
/// Words per chunk.
const CHUNK_WORDS: usize = CHUNK / UNIT;

/// What was handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    start: u32,
    words: u32,
}

/// Hands out the words of one region, and takes them back, next to others that are free in one piece. Every method that
/// makes a block answers `None` when the region is full.
pub(crate) struct Heap {
    /// Where free extents start, by their length; the last list is for all that are longer than a page. Some are no
    /// longer there: see `tags`.
    free: Vec<Vec<u32>>,
    /// Which lists are not empty.
    filled: [u64; Self::LISTS.div_ceil(64)],
    /// Of the first word of a free extent its length and [`Self::START`], of the last word its length; of others 0.
    tags: Vec<u16>,
    /// Never used yet, or given back at the end.
    fresh: Range<u32>,
    /// How many of these are kept.
    reserve: u32,
    /// Words handed out.
    live: usize,
    /// Of a leaf.
    leaf_bytes: usize,
}

impl Heap {
    /// Lists, from that of length 0 on.
    const LISTS: usize = PAGE as usize + 2;
    /// The number of the last one.
    const LONG: usize = Self::LISTS - 1;
    const START: u16 = 1 << 15;
    /// Of an extent, in words.
    const LONGEST: u32 = Self::START as u32 - 1;
    /// Words that are kept: what a removal may take before it gives back.
    const RESERVE: u32 = 1 << 13;
    /// Words of a region, at most. References have 32 bits for the place of a word and the kernels count on from there in 64; a
    /// region has a power of two of words, and the next one would be all that 32 bits tell apart.
    const MOST_WORDS: usize = 1 << 31;

    /// A node with an entry for every slot whose bit in `children` is set, and leaves for the others: a run of equal ones starts
    /// with the first of those, and at every slot whose bit in `starts` is set.
    pub(crate) fn node<R: Roots<Block = PageRef>, L: Leaf>(
        &mut self,
        region: &Region<R>,
        (children, entries): (u16, impl ExactSizeIterator<Item = NodeRef>),
        (starts, leaves): (u16, &[L]),
    ) -> Option<NodeRef> {
        assert_eq!(children.count_ones() as usize, entries.len(), "one entry per child");
        let runs = starts.count_ones() as usize + usize::from(children != u16::MAX);
        assert!(children & starts == 0 && starts & 1 == 0 && runs == leaves.len(), "one leaf per run");
        assert_eq!(self.leaf_bytes, size_of::<L>(), "leaves of a region have one width");
        if children == 0
            && let Some(node) = NodeRef::in_place(starts, leaves)
        {
            return Some(node);
        }
        let start = self.take(entries.len() + self.words_of(leaves.len()))?;
        let mut place = start;
        for entry in entries {
            region.write(place, entry.0);
            place += 1;
        }
        for leaves in leaves.chunks(UNIT / size_of::<L>()) {
            region.write(place, leaves_in_word(leaves));
            place += 1;
        }
        // The first words of a region are nobody's block.
        Some(NodeRef::new(start - 1, children, starts))
    }

    /// A page of 256 entries.
    pub(crate) fn page<R: Roots<Block = PageRef>>(
        &mut self,
        region: &Region<R>,
        entries: &[NodeRef; PAGE as usize],
    ) -> Option<PageRef> {
        let start = self.take(PAGE as usize)?;
        for (place, entry) in (start..).zip(entries) {
            region.write(place, entry.0);
        }
        Some(PageRef(start))
    }

    /// The block of a node, if it has one.
    pub(crate) fn node_extent(&self, node: NodeRef) -> Option<Extent> {
        #[expect(clippy::cast_possible_truncation, reason = "a node has 16 leaves at most")]
        let words = node.children().count_ones() + self.words_of(node.runs()) as u32;
        (!node.is_in_place()).then(|| Extent { start: node.before() + 1, words })
    }

    /// That of a page.
    pub(crate) fn page_extent(page: PageRef) -> Extent {
        Extent { start: page.0, words: PAGE }
    }

    fn words_of(&self, leaves: usize) -> usize {
        (leaves * self.leaf_bytes).div_ceil(UNIT)
    }

    /// Where `words`, at least one and at most a page, are free now.
    fn take(&mut self, words: usize) -> Option<u32> {
        #[expect(clippy::cast_possible_truncation, reason = "a page at most")]
        let len = words as u32;
        // What a removal left free is not for others, wherever it lies.
        if self.reserve > 0 && self.live + words > self.tags.len() - Self::RESERVE as usize {
            return None;
        }
        let start = self.fit(len).or_else(|| {
            let start = self.fresh.start;
            let left = self.fresh.end - start;
            (left >= len && left - len >= self.reserve).then(|| {
                self.fresh.start += len;
                start
            })
        })?;
        self.live += words;
        Some(start)
    }

    /// Words of the least free extent that has as many.
    fn fit(&mut self, len: u32) -> Option<u32> {
        let mut list = len as usize;
        loop {
            list = self.next_filled(list)?;
            while let Some(start) = self.free[list].pop() {
                let found = self.tags[start as usize];
                let (is_start, found) = (found & Self::START != 0, u32::from(found & !Self::START));
                if is_start && Self::list(found) == list {
                    self.unmark(start, found);
                    if found > len {
                        self.mark(start + len, found - len);
                    }
                    return Some(start);
                }
            }
            self.filled[list / 64] &= !(1 << (list % 64));
        }
    }

    /// The first list from `list` on that is not empty.
    fn next_filled(&self, list: usize) -> Option<usize> {
        let mut word = list / 64;
        let mut bits = self.filled.get(word)? & (u64::MAX << (list % 64));
        while bits == 0 {
            word += 1;
            bits = *self.filled.get(word)?;
        }
        Some(word * 64 + bits.trailing_zeros() as usize)
    }

    /// The list for extents of that length.
    fn list(len: u32) -> usize {
        (len as usize).min(Self::LONG)
    }

    /// Says that an extent is free.
    fn mark(&mut self, start: u32, len: u32) {
        #[expect(clippy::cast_possible_truncation, reason = "LONGEST fits")]
        let tag = len as u16;
        self.tags[(start + len - 1) as usize] = tag;
        self.tags[start as usize] = Self::START | tag;
        let index = Self::list(len);
        let (list, tags) = (&mut self.free[index], &self.tags);
        if list.len() == list.capacity() {
            list.retain(|start| {
                let tag = tags[*start as usize];
                tag & Self::START != 0 && Self::list((tag & !Self::START).into()) == index
            });
            // Room for as many again, so that looking through them is rare.
            list.reserve(list.len());
        }
        list.push(start);
        self.filled[index / 64] |= 1 << (index % 64);
    }

    /// Says that it is not any more.
    fn unmark(&mut self, start: u32, len: u32) {
        self.tags[start as usize] = 0;
        self.tags[(start + len - 1) as usize] = 0;
    }

    fn give_back(&mut self, mut start: u32, mut len: u32) {
        // Words in use have no tags: one of the word before is that of an extent's end, if it has one word also its start.
        let before = u32::from(self.tags[start as usize - 1] & !Self::START);
        if before > 0 && before + len <= Self::LONGEST {
            self.unmark(start - before, before);
            start -= before;
            len += before;
        }
        if start + len < self.fresh.start {
            let after = u32::from(self.tags[(start + len) as usize] & !Self::START);
            if after > 0 && after + len <= Self::LONGEST {
                self.unmark(start + len, after);
                len += after;
            }
        }
        if start + len == self.fresh.start {
            self.fresh.start = start;
        } else {
            self.mark(start, len);
        }
    }
}

impl Store for Heap {
    type Block = Extent;

    const GRAIN: usize = UNIT;
    const MOST: usize = (Self::MOST_WORDS - Self::RESERVE as usize).saturating_mul(UNIT);

    fn with_region<R: Roots>(bytes: usize, whole: bool, leaf_bytes: usize) -> Result<(Region<R>, Self)> {
        let reserve = Self::RESERVE as usize;
        let words = bytes.min(Self::MOST).div_ceil(UNIT).max(CHUNK_WORDS) + reserve;
        // One chunk more: gathers read beyond the last word.
        let chunks = words.next_power_of_two() / CHUNK_WORDS + 1;
        let region = Region::new(chunks, whole)?;
        #[expect(clippy::cast_possible_truncation, reason = "MOST_WORDS fits")]
        let end = words as u32;
        let heap = Self {
            free: (0..Self::LISTS).map(|_| Vec::new()).collect(),
            filled: [0; Self::LISTS.div_ceil(64)],
            tags: vec![0; words],
            // Zeroes that nobody writes: a page whose entries all say "no route".
            fresh: PAGE..end,
            reserve: 0,
            live: PAGE as usize,
            leaf_bytes,
        };
        Ok((region, heap))
    }

    fn capacity(&self) -> usize {
        self.tags.len().saturating_sub(Self::RESERVE as usize) * UNIT
    }

    fn keep_reserve(&mut self, keep: bool) {
        self.reserve = if keep { Self::RESERVE } else { 0 };
    }

    fn live(&self) -> usize {
        self.live * UNIT
    }

    fn free(&mut self, block: Extent) {
        self.live -= block.words as usize;
        self.give_back(block.start, block.words);
    }

    fn bytes(&self, block: Extent) -> usize {
        block.words as usize * UNIT
    }
}

impl<R: Roots<Block = PageRef>> Region<R> {
    /// Publishes another node in an entry.
    pub(crate) fn set_node(&self, entry: EntryRef, node: NodeRef) {
        self.view().word(entry.0).store(node.0, Ordering::Release);
    }

    fn write(&self, place: u32, word: u64) {
        self.view().word(place).store(word, Ordering::Relaxed);
    }
}

impl<'a, R: Roots<Block = PageRef>> View<'a, R> {
    /// What places are cut to: all its bits are set.
    #[inline(always)]
    pub(crate) fn mask(self) -> usize {
        (self.chunks() - 1) * CHUNK_WORDS - 1
    }

    #[inline(always)]
    fn word(self, place: u32) -> &'a AtomicU64 {
        // The region has a power of two of words, and a chunk.
        self.at(0, (place as usize & self.mask()) * UNIT)
    }

    /// The word at a place, which is cut to the region.
    #[inline(always)]
    pub(crate) fn word_at(self, place: u32) -> u64 {
        self.word(place).load(Ordering::Relaxed)
    }

    /// The node of an entry, to be followed after [`super::arrive`].
    #[inline(always)]
    pub(crate) fn node(self, entry: EntryRef) -> NodeRef {
        NodeRef(self.word(entry.0).load(Ordering::Relaxed))
    }

    /// The leaf of the slot so many before the last, which has no child, and maybe bits above, after [`super::arrive`]. A leaf has
    /// `1 << log` bytes.
    #[inline(always)]
    pub(crate) fn leaf(self, node: NodeRef, from_last: u32, log: u32) -> u32 {
        let byte = node.rank(from_last) << log;
        // Read in any case, as a branch would be guessed wrong.
        let elsewhere = u32::from(node.is_in_place()).wrapping_sub(1);
        let read = self.word(node.leaf_place(byte) & elsewhere).load(Ordering::Relaxed);
        let word = if node.is_in_place() { node.before().into() } else { read };
        #[expect(clippy::cast_possible_truncation, reason = "a leaf has 32 bits at most")]
        let bits = (word >> (8 * (byte % 8))) as u32;
        bits
    }
}

/// A word of leaves, the first in the lowest bits.
pub(super) fn leaves_in_word<L: Leaf>(leaves: &[L]) -> u64 {
    leaves.iter().rev().fold(0, |word, leaf| word << (8 * size_of::<L>()) | u64::from(leaf.word()))
}

#[cfg(all(test, not(any(loom, miri))))]
impl Heap {
    /// Leaves only the last `words` of the region to be handed out.
    pub(crate) fn skip_to_last(&mut self, words: u32) {
        self.fresh.start = self.fresh.end - words;
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::v6::V6;

    /// Which words are handed out.
    struct Naive(Vec<bool>);

    impl Naive {
        fn set(&mut self, extent: Extent, to: bool) {
            for word in extent.start..extent.start + extent.words {
                assert_ne!(core::mem::replace(&mut self.0[word as usize], to), to, "word {word}");
            }
        }
    }

    #[test]
    fn no_word_is_handed_out_twice_and_what_comes_back_is_one_piece_again() {
        let (_, mut heap): (Region<V6>, Heap) = Heap::with_region(1 << 17, true, 1).unwrap();
        let mut rng = fastrand::Rng::with_seed(3);
        let mut naive = Naive(vec![false; heap.tags.len()]);
        let mut held: Vec<Extent> = Vec::new();
        let rounds = if cfg!(miri) { 300 } else { 300_000 };
        for round in 0..rounds {
            // More is taken than given back, then less.
            let takes = rng.u32(..8) < if round % 20_000 < 10_000 { 5 } else { 3 };
            if takes {
                let words = if rng.u8(..16) == 0 { 256 } else { rng.u32(1..=33) };
                if let Some(start) = heap.take(words as usize) {
                    let extent = Extent { start, words };
                    naive.set(extent, true);
                    held.push(extent);
                }
            } else if !held.is_empty() {
                let extent = held.swap_remove(rng.usize(..held.len()));
                naive.set(extent, false);
                heap.free(extent);
            }
            let live = PAGE as usize + held.iter().map(|extent| extent.words as usize).sum::<usize>();
            assert_eq!(heap.live, live);
        }
        for extent in held {
            heap.free(extent);
        }
        let all = PAGE..u32::try_from(heap.tags.len()).unwrap();
        assert_eq!(heap.fresh, all, "all in one piece");
        assert!(heap.tags.iter().all(|tag| *tag == 0));
    }
}
