//! What the nodes of the writer's trie hold: a list each, of routes and of nodes below, all lists in one piece of memory.
//!
//! Most lists are short, and a table has as many as nodes: an allocation for each would take longer than filling it.

use alloc::vec::Vec;

use super::{HopId, NodeId};

/// A route of a node, or a node below it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Item {
    /// The slot that leads to the node below, or the first of the 2^(stride - `len`) that the route covers.
    pub(crate) slot: u8,
    /// Bits of the stride that the route spells out, 1 to the stride; [`Self::BELOW`] is a node below.
    pub(crate) len: u8,
    /// The next hop or the node.
    pub(super) value: u32,
}

/// Which of the two an item is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Route(HopId),
    Below(NodeId),
}

impl Item {
    /// Behind every length, as routes of a slot come before what lies below it.
    pub(crate) const BELOW: u8 = u8::MAX;

    const NONE: Self = Self { slot: 0, len: 0, value: 0 };

    pub(super) fn route(slot: u8, len: u8, hop: HopId) -> Self {
        Self { slot, len, value: hop }
    }

    pub(super) fn below(slot: u8, node: NodeId) -> Self {
        Self { slot, len: Self::BELOW, value: node }
    }

    #[inline]
    pub(crate) fn kind(self) -> Kind {
        if self.len == Self::BELOW { Kind::Below(self.value) } else { Kind::Route(self.value) }
    }

    pub(super) fn hop_mut(&mut self) -> Option<&mut HopId> {
        (self.len != Self::BELOW).then_some(&mut self.value)
    }

    /// What items of a list are ordered by.
    fn place(self) -> u16 {
        u16::from_be_bytes([self.slot, self.len])
    }
}

/// Where the items of a node lie. They have room for a power of two of them, the least that is enough.
#[derive(Debug, Clone, Copy)]
pub(crate) struct List {
    start: u32,
    len: u16,
}

impl List {
    pub(crate) const EMPTY: Self = Self { start: 0, len: 0 };

    pub(crate) fn len(self) -> usize {
        self.len.into()
    }

    pub(crate) fn is_empty(self) -> bool {
        self.len == 0
    }
}

/// All lists.
#[derive(Debug)]
pub(crate) struct Lists {
    items: Vec<Item>,
    /// Where there is room for lists, by the logarithm of how much.
    free: [Vec<u32>; Self::SIZES],
    /// A bit for each of these that is not empty.
    filled: u16,
}

impl Lists {
    /// A list has at most an item for each of 256 slots and for each of the 510 prefixes of 1 to 8 bits.
    const SIZES: usize = 11;

    pub(super) fn new() -> Self {
        Self { items: Vec::new(), free: [const { Vec::new() }; Self::SIZES], filled: 0 }
    }

    /// The items of a list in prefix order.
    #[inline]
    pub(crate) fn of(&self, list: List) -> &[Item] {
        &self.items[list.start as usize..][..list.len()]
    }

    pub(super) fn of_mut(&mut self, list: List) -> &mut [Item] {
        &mut self.items[list.start as usize..][..list.len()]
    }

    /// The number of the item of `slot` and `len`, or the one it would have.
    #[inline]
    pub(super) fn find(&self, list: List, slot: u8, len: u8) -> Result<usize, usize> {
        let items = self.of(list);
        let place = u16::from_be_bytes([slot, len]);
        // As of routes that come in prefix order.
        if items.last().is_none_or(|last| last.place() < place) {
            return Err(items.len());
        }
        items.binary_search_by_key(&place, |item| item.place())
    }

    pub(super) fn insert(&mut self, list: &mut List, index: usize, item: Item) {
        let len = list.len();
        if len == 0 || len.is_power_of_two() {
            self.grow(list);
        }
        let start = list.start as usize;
        if index < len {
            self.items.copy_within(start + index..start + len, start + index + 1);
        }
        self.items[start + index] = item;
        list.len += 1;
    }

    /// Makes room for twice as many items.
    fn grow(&mut self, list: &mut List) {
        let (start, len) = (list.start as usize, list.len());
        if len == 0 {
            list.start = self.take(1);
        } else if start + len == self.items.len() {
            // As of the node that routes in prefix order go to.
            self.items.resize(start + 2 * len, Item::NONE);
        } else {
            let from = list.start;
            list.start = self.take(2 * len);
            self.items.copy_within(start..start + len, list.start as usize);
            self.give_back(from, len);
        }
    }

    pub(super) fn remove(&mut self, list: &mut List, index: usize) -> Item {
        let start = list.start as usize;
        let item = self.items[start + index];
        self.items.copy_within(start + index + 1..start + list.len(), start + index);
        list.len -= 1;
        let len = list.len();
        // Half of the room is too much now, or all of it.
        if len == 0 || len.is_power_of_two() {
            self.give_back(list.start + u32::from(list.len), len.max(1));
        }
        item
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        let free: usize = self.free.iter().map(Vec::capacity).sum();
        self.items.capacity() * size_of::<Item>() + free * size_of::<u32>()
    }

    /// Room for so many items, a power of two: of the least piece there is, cut in halves, or at the end.
    fn take(&mut self, room: usize) -> u32 {
        let size = room.trailing_zeros() as usize;
        let found = size + (self.filled >> size).trailing_zeros() as usize;
        let Some(start) = self.free.get_mut(found).and_then(Vec::pop) else {
            let start = self.items.len();
            self.items.resize(start + room, Item::NONE);
            return u32::try_from(start).expect("2^32 items need more memory than there is");
        };
        if self.free[found].is_empty() {
            self.filled &= !(1 << found);
        }
        for half in size..found {
            self.give_back(start + (1 << half), 1 << half);
        }
        start
    }

    fn give_back(&mut self, start: u32, room: usize) {
        let size = room.trailing_zeros();
        self.free[size as usize].push(start);
        self.filled |= 1 << size;
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn lists_grow_and_shrink_beside_each_other() {
        let (mut lists, mut rng) = (Lists::new(), fastrand::Rng::with_seed(4));
        let mut held: Vec<(List, Vec<u32>)> = (0..40).map(|_| (List::EMPTY, Vec::new())).collect();
        let rounds = if cfg!(miri) { 2000 } else { 200_000 };
        for round in 0..rounds {
            let (list, naive) = rng.choice(held.iter_mut()).unwrap();
            // Most grow for a while, then most shrink.
            let grows = rng.u32(..8) < if round % 40_000 < 20_000 { 5 } else { 3 };
            if grows && naive.len() < 766 {
                let index = rng.usize(..=naive.len());
                naive.insert(index, round);
                lists.insert(list, index, Item::route(0, 1, round));
            } else if !naive.is_empty() {
                let index = rng.usize(..naive.len());
                assert_eq!(lists.remove(list, index).value, naive.remove(index));
            }
            if round % 16 == 0 {
                for (list, naive) in &held {
                    assert!(lists.of(*list).iter().map(|item| item.value).eq(naive.iter().copied()));
                }
            }
        }
        for (list, naive) in &mut held {
            for _ in 0..naive.len() {
                lists.remove(list, 0);
            }
            assert!(list.is_empty());
        }
        let mut free: Vec<(u32, u32)> = (0..)
            .zip(&lists.free)
            .flat_map(|(size, starts)| starts.iter().map(move |start| (*start, 1 << size)))
            .collect();
        free.sort_unstable();
        let end = free.iter().fold(0, |end, (start, room)| {
            assert_eq!(*start, end, "no gap, and nothing twice");
            start + room
        });
        assert_eq!(end as usize, lists.items.len());
    }
}
