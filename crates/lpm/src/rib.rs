//! The writer's routes: a multibit trie whose nodes mirror the blocks readers walk.
//!
//! Routes of at most `root_bits` bits lie in an ordered map and are painted over the root array; longer ones lie
//! in the node whose stride their length falls into. A node exists as long as there is a route in or below it.

mod iter;
mod lists;

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

pub(crate) use iter::RibIter;
use lists::{Item, Lists};
pub(crate) use lists::{Kind, List};

use crate::mem::{LinkRef, NodeRef, PackedRef, PageRef};
use crate::prefix::Key;

/// A next hop as the writer counts it; 0 is "no route".
pub(crate) type HopId = u32;

/// The index of a node.
pub(crate) type NodeId = u32;

/// The first node is never in use. Zero, as memory that was never written is: an empty table has not much else.
const NO_NODE: NodeId = 0;

/// The strides of a family, in bits: the root array, then each level.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) root_bits: u8,
    pub(crate) strides: &'static [u8],
    /// The bits before each level.
    starts: [u8; Self::MAX_LEVELS],
    /// The level whose stride a length ends in; [`Self::ROOT`] for the root array.
    levels: [u8; 129],
}

impl Shape {
    /// Levels below the root array that a family has at most.
    pub(crate) const MAX_LEVELS: usize = 27;
    const ROOT: u8 = u8::MAX;

    pub(crate) const fn new(root_bits: u8, strides: &'static [u8]) -> Self {
        let (mut starts, mut levels) = ([0; Self::MAX_LEVELS], [Self::ROOT; 129]);
        let (mut level, mut len) = (0, root_bits);
        while level < strides.len() {
            starts[level] = len;
            let end = len + strides[level];
            while len < end {
                len += 1;
                #[expect(clippy::cast_possible_truncation, reason = "there are 27 levels at most")]
                let number = level as u8;
                levels[len as usize] = number;
            }
            level += 1;
        }
        Self { root_bits, strides, starts, levels }
    }

    /// The level whose stride `len` ends in; `None` for the root array.
    #[inline]
    fn level(&self, len: u8) -> Option<usize> {
        let level = self.levels[usize::from(len)];
        (level != Self::ROOT).then_some(level.into())
    }
}

/// What a node, or a root slot without one, currently looks like to readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Built {
    /// Not yet built.
    Nothing,
    /// All one next hop: no block of its own.
    Hop(HopId),
    Packed(PackedRef),
    Link(LinkRef),
    Node(NodeRef),
    Page(PageRef),
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) list: List,
    /// The hop of addresses that no route in or below the node covers, as of the last build.
    pub(crate) inherited: HopId,
    pub(crate) built: Built,
}

impl Node {
    const NEW: Self = Self { list: List::EMPTY, inherited: 0, built: Built::Nothing };
}

/// The longest route of at most `root_bits` bits over a root slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Base {
    /// Its length; 0 also without a route.
    pub(crate) len: u8,
    pub(crate) hop: HopId,
}

/// The nodes from the root array down to that of a key.
#[derive(Debug)]
pub(crate) struct Path {
    nodes: [NodeId; Shape::MAX_LEVELS],
    /// How many of these are in the trie.
    len: usize,
    /// How many were before it was pruned.
    all: usize,
}

impl Path {
    const NONE: Self = Self { nodes: [NO_NODE; Shape::MAX_LEVELS], len: 0, all: 0 };

    /// Those at the end that were empty: they are no longer in the trie.
    pub(crate) fn pruned(&self) -> &[NodeId] {
        &self.nodes[self.len..self.all]
    }
}

impl core::ops::Deref for Path {
    type Target = [NodeId];

    fn deref(&self) -> &[NodeId] {
        &self.nodes[..self.len]
    }
}

/// Where a route was put. The next one is often near.
#[derive(Debug)]
pub(crate) struct Finger {
    /// The bits of its key.
    bits: u128,
    /// No route may be removed before the next is put near this one.
    pub(crate) path: Path,
}

impl Finger {
    pub(crate) const fn new() -> Self {
        Self { bits: 0, path: Path::NONE }
    }
}

#[derive(Debug)]
pub(crate) struct Rib {
    pub(crate) shape: &'static Shape,
    short: BTreeMap<Key, HopId>,
    /// Of each root slot: the length and next hop of its [`Base`].
    base_lens: Vec<u8>,
    base_hops: Vec<HopId>,
    roots: Vec<NodeId>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) lists: Lists,
    vacant: Vec<NodeId>,
    len: usize,
}

impl Rib {
    pub(crate) fn new(shape: &'static Shape) -> Self {
        let slots = 1 << shape.root_bits;
        Self {
            shape,
            short: BTreeMap::new(),
            base_lens: vec![0; slots],
            base_hops: vec![0; slots],
            roots: vec![NO_NODE; slots],
            nodes: vec![Node::NEW],
            lists: Lists::new(),
            vacant: Vec::new(),
            len: 0,
        }
    }

    /// Routes in the table.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get(&self, key: Key) -> Option<HopId> {
        let Some(level) = self.shape.level(key.len) else { return self.short.get(&key).copied() };
        let mut id = self.root_node(self.root_slot(key))?;
        for level in 0..level {
            id = self.below(id, self.slot(key, level))?;
        }
        self.route(self.nodes[id as usize].list, self.local(key, level))
    }

    /// Adds or replaces a route near the one before; answers the hop it had. Routes of the root array are not painted, see
    /// `set_base`.
    pub(crate) fn insert_near(&mut self, finger: &mut Finger, key: Key, hop: HopId) -> Option<HopId> {
        let Some(level) = self.shape.level(key.len) else {
            let old = self.short.insert(key, hop);
            self.len += usize::from(old.is_none());
            return old;
        };
        let from = self.shared(finger, key, level).unwrap_or_else(|| {
            finger.path.nodes[0] = self.top(key);
            0
        });
        for level in from..level {
            finger.path.nodes[level + 1] = self.child(finger.path.nodes[level], self.slot(key, level));
        }
        finger.bits = key.bits;
        (finger.path.len, finger.path.all) = (level + 1, level + 1);
        let (slot, len) = self.local(key, level);
        let list = &mut self.nodes[finger.path.nodes[level] as usize].list;
        match self.lists.find(*list, slot, len) {
            Ok(index) => Some(core::mem::replace(&mut self.lists.of_mut(*list)[index].value, hop)),
            Err(index) => {
                self.lists.insert(list, index, Item::route(slot, len, hop));
                self.len += 1;
                None
            }
        }
    }

    /// The deepest level, `level` at most, whose node on the way to the route before is on the way to `key` too.
    fn shared(&self, finger: &Finger, key: Key, level: usize) -> Option<usize> {
        #[expect(clippy::cast_possible_truncation, reason = "at most 128")]
        let bits = (key.bits ^ finger.bits).leading_zeros() as u8;
        // That of the node in whose stride the first other bit lies.
        let shared = self.shape.level((bits + 1).min(128))?;
        Some(shared.min(level).min(finger.path.len.checked_sub(1)?))
    }

    /// The node below the root slot of `key`, made if there is none.
    fn top(&mut self, key: Key) -> NodeId {
        let root = self.root_slot(key);
        if self.roots[root] == NO_NODE {
            self.roots[root] = self.new_node();
        }
        self.roots[root]
    }

    /// The node below a slot of another, made if there is none.
    fn child(&mut self, id: NodeId, slot: u8) -> NodeId {
        let list = self.nodes[id as usize].list;
        match self.lists.find(list, slot, Item::BELOW) {
            Ok(index) => self.lists.of(list)[index].value,
            Err(index) => {
                let child = self.new_node();
                self.lists.insert(&mut self.nodes[id as usize].list, index, Item::below(slot, child));
                child
            }
        }
    }

    /// Removes a route, and takes the nodes that are empty then out of the trie: they stay as they are until `forget`. Answers
    /// its hop and the nodes on the way there.
    pub(crate) fn remove(&mut self, key: Key) -> Option<(HopId, Path)> {
        let removed = match self.shape.level(key.len) {
            None => (self.short.remove(&key)?, Path::NONE),
            Some(level) => {
                let mut path = self.path(key, level)?;
                let (slot, len) = self.local(key, level);
                let list = &mut self.nodes[path[level] as usize].list;
                let index = self.lists.find(*list, slot, len).ok()?;
                let hop = self.lists.remove(list, index).value;
                self.prune(key, &mut path);
                if self.lists.are_sparse(self.nodes.len()) {
                    self.lists.pack(self.nodes.iter_mut().map(|node| &mut node.list));
                }
                (hop, path)
            }
        };
        self.len -= 1;
        Some(removed)
    }

    /// Undoes `remove`, whose path this is.
    pub(crate) fn restore(&mut self, key: Key, hop: HopId, mut path: Path) {
        for level in path.len..path.all {
            self.link(key, level, path.nodes[level], path.nodes[..level].last().copied());
        }
        path.len = path.all;
        self.insert_near(&mut Finger { bits: key.bits, path }, key, hop);
    }

    /// The nodes from the root array to the one of `level`, if there is one.
    fn path(&self, key: Key, level: usize) -> Option<Path> {
        let mut path = Path { len: level + 1, all: level + 1, ..Path::NONE };
        path.nodes[0] = self.root_node(self.root_slot(key))?;
        for level in 0..level {
            path.nodes[level + 1] = self.below(path.nodes[level], self.slot(key, level))?;
        }
        Some(path)
    }

    /// Takes the empty nodes at the end of a path out of the trie.
    fn prune(&mut self, key: Key, path: &mut Path) {
        while let [above @ .., id] = &**path
            && self.nodes[*id as usize].list.is_empty()
        {
            match above.last() {
                None => {
                    let root = self.root_slot(key);
                    self.roots[root] = NO_NODE;
                }
                Some(parent) => {
                    let slot = self.slot(key, above.len() - 1);
                    let list = &mut self.nodes[*parent as usize].list;
                    if let Ok(index) = self.lists.find(*list, slot, Item::BELOW) {
                        self.lists.remove(list, index);
                    }
                }
            }
            path.len -= 1;
        }
    }

    /// Puts a node of `level` into the trie again, below `parent` or the root array.
    fn link(&mut self, key: Key, level: usize, id: NodeId, parent: Option<NodeId>) {
        let Some(parent) = parent else {
            let root = self.root_slot(key);
            self.roots[root] = id;
            return;
        };
        let slot = self.slot(key, level - 1);
        let list = &mut self.nodes[parent as usize].list;
        if let Err(index) = self.lists.find(*list, slot, Item::BELOW) {
            self.lists.insert(list, index, Item::below(slot, id));
        }
    }

    /// Lets a node that was pruned be used again.
    pub(crate) fn forget(&mut self, id: NodeId) {
        self.nodes[id as usize] = Node::NEW;
        self.vacant.push(id);
    }

    /// The index of `key` in the root array.
    pub(crate) fn root_slot(&self, key: Key) -> usize {
        key.slice(0, self.shape.root_bits)
    }

    /// The node below a root slot.
    pub(crate) fn root_node(&self, slot: usize) -> Option<NodeId> {
        Some(self.roots[slot]).filter(|id| *id != NO_NODE)
    }

    /// The root slots a route of the root array covers; `None` for longer routes.
    pub(crate) fn root_range(&self, key: Key) -> Option<Range<usize>> {
        let free = self.shape.root_bits.checked_sub(key.len)?;
        let start = self.root_slot(key);
        Some(start..start + (1 << free))
    }

    /// The slots of its top-level node that a route below the root array, or what lies deeper, is about.
    pub(crate) fn top_slots(&self, key: Key) -> Range<usize> {
        let stride = self.shape.strides[0];
        let start = key.slice(self.shape.root_bits, stride);
        start..start + (1 << (self.shape.root_bits + stride).saturating_sub(key.len))
    }

    /// The next hop of all addresses of `key`, if its top-level node says that they have one: no route and no node lies
    /// below it. `None` also if there is no such node.
    pub(crate) fn sole_hop(&self, key: Key) -> Option<HopId> {
        let 0 = self.shape.level(key.len)? else { return None };
        let node = &self.nodes[self.root_node(self.root_slot(key))? as usize];
        let (start, len) = self.local(key, 0);
        let slots = self.top_slots(key);
        let items = self.lists.of(node.list);
        let inside = items[items.partition_point(|item| item.slot < start)..].iter();
        if inside.take_while(|item| slots.contains(&usize::from(item.slot))).any(|item| item.len > len) {
            return None;
        }
        let stride = self.shape.strides[0];
        let around =
            (1..=len).rev().find_map(|len| self.route(node.list, (start >> (stride - len) << (stride - len), len)));
        Some(around.unwrap_or(node.inherited))
    }

    /// Root slots there are.
    pub(crate) fn root_slots(&self) -> usize {
        self.roots.len()
    }

    /// What addresses of a root slot get that no longer route covers.
    pub(crate) fn base(&self, slot: usize) -> Base {
        Base { len: self.base_lens[slot], hop: self.base_hops[slot] }
    }

    pub(crate) fn set_base(&mut self, slot: usize, base: Base) {
        self.base_lens[slot] = base.len;
        self.base_hops[slot] = base.hop;
    }

    /// The longest route of at most `len` bits around `key`, among those of the root array.
    pub(crate) fn base_of(&self, key: Key, len: u8) -> Base {
        (0..=len)
            .rev()
            .find_map(|len| self.short.get(&key.shortened(len)).map(|hop| Base { len, hop: *hop }))
            .unwrap_or(Base { len: 0, hop: 0 })
    }

    /// The routes that cover `key` (itself included), shortest first.
    pub(crate) fn covering(&self, key: Key) -> Vec<(Key, HopId)> {
        (0..=key.len).map(|len| key.shortened(len)).filter_map(|key| self.get(key).map(|hop| (key, hop))).collect()
    }

    /// The routes in prefix order, from the first one at or after `key`.
    pub(crate) fn iter_from(&self, key: Key) -> RibIter<'_> {
        RibIter::new(self, key)
    }

    /// Gives every hop a new number.
    pub(crate) fn renumber(&mut self, numbers: &[HopId]) {
        let new = |hop: &mut HopId| *hop = numbers[*hop as usize];
        self.short.values_mut().for_each(new);
        self.base_hops.iter_mut().for_each(new);
        for node in &self.nodes {
            self.lists.of_mut(node.list).iter_mut().filter_map(Item::hop_mut).for_each(new);
        }
    }

    /// Bytes of the writer's own structures, roughly.
    pub(crate) fn bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>()
            + self.lists.bytes()
            + self.base_lens.capacity()
            + self.base_hops.capacity() * size_of::<HopId>()
            + self.roots.capacity() * size_of::<NodeId>()
            + self.short.len() * 3 * size_of::<(Key, HopId)>() / 2
    }

    /// The hop of a route by its slot and length in the node.
    fn route(&self, list: List, (slot, len): (u8, u8)) -> Option<HopId> {
        self.lists.find(list, slot, len).ok().map(|index| self.lists.of(list)[index].value)
    }

    /// The node below a slot of another.
    fn below(&self, id: NodeId, slot: u8) -> Option<NodeId> {
        self.route(self.nodes[id as usize].list, (slot, Item::BELOW))
    }

    /// Where a route lies in a node of the level that its length ends in: its first slot, and how many bits of the stride it has.
    fn local(&self, key: Key, level: usize) -> (u8, u8) {
        (self.slot(key, level), key.len - self.shape.starts[level])
    }

    /// The slot in a node of `level` that leads on towards `key`.
    pub(crate) fn slot(&self, key: Key, level: usize) -> u8 {
        #[expect(clippy::cast_possible_truncation, reason = "strides below the root have at most 8 bits")]
        let slot = key.slice(self.shape.starts[level], self.shape.strides[level]) as u8;
        slot
    }

    fn new_node(&mut self) -> NodeId {
        self.vacant.pop().unwrap_or_else(|| {
            self.nodes.push(Node::NEW);
            #[expect(clippy::cast_possible_truncation, reason = "2^32 nodes need more memory than there is")]
            let id = (self.nodes.len() - 1) as NodeId;
            id
        })
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests;
