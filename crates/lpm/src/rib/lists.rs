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

/// Where the items of a node lie: in a piece of room of their own, or nowhere while there are none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct List {
    start: u32,
    len: u16,
    /// Items the piece has room for: a power of two, less than four times as many as there are.
    room: u16,
}

impl List {
    pub(crate) const EMPTY: Self = Self { start: 0, len: 0, room: 0 };

    pub(crate) fn len(self) -> usize {
        self.len.into()
    }

    pub(crate) fn is_empty(self) -> bool {
        self.len == 0
    }
}

/// All lists. Pieces of room are taken and given back whole, and one that is free serves the next list of its size: what there
/// is for a size is what lists of that size have needed at once.
#[derive(Debug)]
pub(crate) struct Lists {
    items: Vec<Item>,
    /// Where pieces start that are free, by the logarithm of their room.
    free: [Vec<u32>; Self::SIZES],
    /// Room in these, in items.
    spare: usize,
}

impl Lists {
    /// A list has at most an item for each of 256 slots and for each of the 510 prefixes of 1 to 8 bits.
    const SIZES: usize = 11;

    pub(super) fn new() -> Self {
        Self::with_room(0)
    }

    /// The same, with memory for so many items.
    fn with_room(items: usize) -> Self {
        Self { items: Vec::with_capacity(items), free: [const { Vec::new() }; Self::SIZES], spare: 0 }
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
        if list.len == list.room {
            self.grow(list);
        }
        let (start, end) = (list.start as usize + index, list.start as usize + list.len());
        for at in (start..end).rev() {
            self.items[at + 1] = self.items[at];
        }
        self.items[start] = item;
        list.len += 1;
    }

    pub(super) fn remove(&mut self, list: &mut List, index: usize) -> Item {
        let (start, end) = (list.start as usize + index, list.start as usize + list.len());
        let item = self.items[start];
        for at in start + 1..end {
            self.items[at - 1] = self.items[at];
        }
        list.len -= 1;
        if list.is_empty() {
            self.give_back(*list);
            *list = List::EMPTY;
        } else if 4 * list.len <= list.room {
            // Not as soon as half is enough: one item that comes and goes moves nothing.
            self.relocate(list, list.room / 2);
        }
        item
    }

    /// Makes room for twice as many items.
    fn grow(&mut self, list: &mut List) {
        if list.is_empty() {
            (list.start, list.room) = (self.take(1), 1);
            return;
        }
        let (end, room) = (list.start as usize + list.len(), 2 * list.room);
        if end == self.items.len() && self.free_of(room).is_empty() {
            // As of the node that routes in prefix order go to.
            self.items.resize(end + list.len(), Item::NONE);
            list.room = room;
        } else {
            self.relocate(list, room);
        }
    }

    /// Gives a list another piece of room.
    fn relocate(&mut self, list: &mut List, room: u16) {
        let (from, start) = (list.start as usize, self.take(room));
        self.items.copy_within(from..from + list.len(), start as usize);
        self.give_back(*list);
        (list.start, list.room) = (start, room);
    }

    /// Whether so much room is free that moving all lists, which takes as long as going through `nodes` (30 ms for a million of them), is due.
    /// Nothing but removals brings that about, as many as there are nodes and items, by order: a list that grows leaves less than it takes.
    #[inline]
    pub(super) fn are_sparse(&self, nodes: usize) -> bool {
        self.spare > nodes + self.taken()
    }

    /// Moves lists side by side, with no more room than they need.
    pub(super) fn pack<'a>(&mut self, lists: impl Iterator<Item = &'a mut List>) {
        let mut packed = Self::with_room(self.taken());
        for list in lists.filter(|list| !list.is_empty()) {
            let room = list.len.next_power_of_two();
            let start = packed.take(room);
            packed.items[start as usize..][..list.len()].copy_from_slice(self.of(*list));
            (list.start, list.room) = (start, room);
        }
        *self = packed;
    }

    /// Room of the pieces that are in use, in items.
    fn taken(&self) -> usize {
        self.items.len() - self.spare
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        let free: usize = self.free.iter().map(Vec::capacity).sum();
        self.items.capacity() * size_of::<Item>() + free * size_of::<u32>()
    }

    /// A piece with room for so many items, a power of two.
    fn take(&mut self, room: u16) -> u32 {
        if let Some(start) = self.free_of(room).pop() {
            self.spare -= usize::from(room);
            return start;
        }
        let start = self.items.len();
        self.items.resize(start + usize::from(room), Item::NONE);
        u32::try_from(start).expect("2^32 items need more memory than there is")
    }

    /// Free pieces with room for so many items.
    #[inline]
    fn free_of(&mut self, room: u16) -> &mut Vec<u32> {
        &mut self.free[room.trailing_zeros() as usize]
    }

    /// Lets another list have the piece of one.
    fn give_back(&mut self, list: List) {
        if list.room > 0 {
            self.free_of(list.room).push(list.start);
            self.spare += usize::from(list.room);
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
impl Lists {
    /// Items there is room for.
    pub(super) fn room(&self) -> usize {
        self.items.len()
    }

    /// Room that is free.
    pub(super) fn spare(&self) -> usize {
        self.spare
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    /// Lists and what each must hold.
    struct Beside {
        lists: Lists,
        held: Vec<(List, Vec<u32>)>,
    }

    impl Beside {
        fn new(count: usize) -> Self {
            Self { lists: Lists::new(), held: (0..count).map(|_| (List::EMPTY, Vec::new())).collect() }
        }

        fn insert(&mut self, list: usize, index: usize, value: u32) {
            let (list, naive) = &mut self.held[list];
            naive.insert(index, value);
            self.lists.insert(list, index, Item::route(0, 1, value));
        }

        fn remove(&mut self, list: usize, index: usize) {
            let (list, naive) = &mut self.held[list];
            assert_eq!(self.lists.remove(list, index).value, naive.remove(index));
        }

        /// Lists hold what they must, and each item of memory is in one piece.
        fn check(&self) {
            let mut pieces = Vec::new();
            for (list, naive) in &self.held {
                assert!(self.lists.of(*list).iter().map(|item| item.value).eq(naive.iter().copied()));
                assert!(list.len <= list.room && (list.room < 4 * list.len || list.room == 0), "{list:?}");
                if list.room > 0 {
                    pieces.push((list.start, u32::from(list.room)));
                }
            }
            let taken: u32 = pieces.iter().map(|piece| piece.1).sum();
            assert_eq!(self.lists.taken(), taken as usize);
            for (size, starts) in self.lists.free.iter().enumerate() {
                pieces.extend(starts.iter().map(|start| (*start, 1 << size)));
            }
            pieces.sort_unstable();
            let end = pieces.iter().fold(0, |end, (start, room)| {
                assert_eq!(*start, end, "no gap, and nothing twice");
                start + room
            });
            assert_eq!(end as usize, self.lists.items.len());
        }
    }

    #[test]
    fn an_item_that_comes_and_goes_takes_no_memory() {
        for others in [0, 1, 2, 3, 4, 7, 8, 15, 16, 255, 256] {
            let mut beside = Beside::new(2);
            (0..others).for_each(|value| beside.insert(0, 0, value));
            beside.insert(1, 0, 0);
            let mut flap = || {
                beside.insert(0, 0, others);
                beside.remove(0, 0);
                beside.lists.items.len()
            };
            let once = flap();
            assert!((0..1000).all(|_| flap() == once), "beside {others}");
            beside.check();
        }
    }

    #[test]
    fn a_list_that_fills_and_empties_finds_its_room_again() {
        let mut beside = Beside::new(1);
        let mut turn = || {
            for value in 0..766 {
                beside.insert(0, value as usize, value);
            }
            beside.check();
            for _ in 0..766 {
                beside.remove(0, 0);
            }
            beside.check();
            beside.lists.items.len()
        };
        // The room of the first item became that of all.
        let twice = (turn(), turn()).1;
        assert!((0..10).all(|_| turn() == twice) && twice < 2048, "{twice}");
    }

    #[test]
    fn lists_grow_and_shrink_beside_each_other() {
        let (mut beside, mut rng) = (Beside::new(40), fastrand::Rng::with_seed(4));
        let rounds = if cfg!(miri) { 2000 } else { 200_000 };
        for round in 0..rounds {
            let list = rng.usize(..beside.held.len());
            let len = beside.held[list].1.len();
            // Most grow for a while, then most shrink.
            let grows = rng.u32(..8) < if round % 40_000 < 20_000 { 5 } else { 3 };
            if grows && len < 766 {
                beside.insert(list, rng.usize(..=len), round);
            } else if len > 0 {
                beside.remove(list, rng.usize(..len));
            }
            if round % 16 == 0 {
                beside.check();
            }
            if round % 9000 == 8999 {
                beside.lists.pack(beside.held.iter_mut().map(|held| &mut held.0));
                beside.check();
                assert_eq!(beside.lists.spare, 0);
            }
        }
        for list in 0..beside.held.len() {
            while !beside.held[list].0.is_empty() {
                beside.remove(list, 0);
            }
        }
        beside.check();
        assert_eq!(beside.lists.taken(), 0);
    }
}
