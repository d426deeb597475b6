//! The writer's routes: a multibit trie whose nodes mirror the blocks readers walk.
//!
//! Routes of at most `root_bits` bits lie in an ordered map and are painted over the root array; longer ones lie
//! in the node whose stride their length falls into. A node exists as long as there is a route in or below it.

mod lists;

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

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

/// A step of a path: a node, and the slot in it that leads on.
pub(crate) type Step = (NodeId, u8);

/// Nodes from the root array down.
#[derive(Debug)]
pub(crate) struct Path {
    steps: [Step; Shape::MAX_LEVELS],
    len: usize,
}

impl core::ops::Deref for Path {
    type Target = [Step];

    fn deref(&self) -> &[Step] {
        &self.steps[..self.len]
    }
}

/// Where a route was put: the nodes from the root array down to its own. The next one is often near.
#[derive(Debug)]
pub(crate) struct Finger {
    /// The bits of its key.
    bits: u128,
    nodes: [NodeId; Shape::MAX_LEVELS],
    /// How many of these there are. No route may be removed before the next is put near this one.
    depth: usize,
}

impl Finger {
    pub(crate) const fn new() -> Self {
        Self { bits: 0, nodes: [NO_NODE; Shape::MAX_LEVELS], depth: 0 }
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
        let list = self.nodes[self.descend(key, level)? as usize].list;
        self.route(list, self.local(key, level))
    }

    /// Adds or replaces a route; answers the hop it had. Routes of the root array are not painted, see `paint`.
    pub(crate) fn insert(&mut self, key: Key, hop: HopId) -> Option<HopId> {
        self.insert_near(&mut Finger::new(), key, hop)
    }

    /// The same, near the route before.
    pub(crate) fn insert_near(&mut self, finger: &mut Finger, key: Key, hop: HopId) -> Option<HopId> {
        let Some(level) = self.shape.level(key.len) else {
            let old = self.short.insert(key, hop);
            self.len += usize::from(old.is_none());
            return old;
        };
        let from = self.shared(finger, key, level).unwrap_or_else(|| {
            finger.nodes[0] = self.top(key);
            0
        });
        for level in from..level {
            finger.nodes[level + 1] = self.child(finger.nodes[level], self.slot(key, level));
        }
        (finger.bits, finger.depth) = (key.bits, level + 1);
        let (slot, len) = self.local(key, level);
        let list = &mut self.nodes[finger.nodes[level] as usize].list;
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
        Some(shared.min(level).min(finger.depth.checked_sub(1)?))
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

    /// Removes a route; answers its hop, and whether its node is empty now. Such nodes stay until `prune`.
    pub(crate) fn remove(&mut self, key: Key) -> Option<(HopId, bool)> {
        let removed = match self.shape.level(key.len) {
            None => (self.short.remove(&key)?, false),
            Some(level) => {
                let id = self.descend(key, level)?;
                let (slot, len) = self.local(key, level);
                let list = &mut self.nodes[id as usize].list;
                let index = self.lists.find(*list, slot, len).ok()?;
                (self.lists.remove(list, index).value, list.is_empty())
            }
        };
        self.len -= 1;
        Some(removed)
    }

    /// The nodes from the root array to the one that holds `key`, as far as they exist, each with the slot that
    /// leads on towards `key`.
    pub(crate) fn path(&self, key: Key) -> Path {
        let mut path = Path { steps: [(NO_NODE, 0); Shape::MAX_LEVELS], len: 0 };
        let Some(level) = self.shape.level(key.len) else { return path };
        let mut id = self.roots[self.root_slot(key)];
        for level in 0..=level {
            if id == NO_NODE {
                break;
            }
            let slot = self.slot(key, level);
            path.steps[path.len] = (id, slot);
            path.len += 1;
            id = self.below(id, slot).unwrap_or(NO_NODE);
        }
        path
    }

    /// Takes the empty nodes at the end of `path` out of the trie.
    pub(crate) fn prune(&mut self, key: Key, path: &[Step]) -> Vec<(NodeId, Node)> {
        let mut pruned = Vec::new();
        for (index, (id, _)) in path.iter().enumerate().rev() {
            if !self.nodes[*id as usize].list.is_empty() {
                break;
            }
            match index.checked_sub(1) {
                None => {
                    let root = self.root_slot(key);
                    self.roots[root] = NO_NODE;
                }
                Some(above) => {
                    let (parent, slot) = path[above];
                    let list = &mut self.nodes[parent as usize].list;
                    if let Ok(index) = self.lists.find(*list, slot, Item::BELOW) {
                        self.lists.remove(list, index);
                    }
                }
            }
            pruned.push((*id, core::mem::replace(&mut self.nodes[*id as usize], Node::NEW)));
        }
        pruned
    }

    /// Puts back what `prune` took out, with the same key and path.
    pub(crate) fn unprune(&mut self, key: Key, path: &[Step], pruned: Vec<(NodeId, Node)>) {
        for (id, node) in pruned.into_iter().rev() {
            self.nodes[id as usize] = node;
            match path.iter().position(|step| step.0 == id).and_then(|index| index.checked_sub(1)) {
                None => {
                    let root = self.root_slot(key);
                    self.roots[root] = id;
                }
                Some(above) => {
                    let (parent, slot) = path[above];
                    let list = &mut self.nodes[parent as usize].list;
                    if let Err(index) = self.lists.find(*list, slot, Item::BELOW) {
                        self.lists.insert(list, index, Item::below(slot, id));
                    }
                }
            }
        }
    }

    /// Lets the ids of pruned nodes be used again.
    pub(crate) fn forget(&mut self, pruned: impl IntoIterator<Item = NodeId>) {
        self.vacant.extend(pruned);
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
        RibIter { rib: self, short: self.short.range(key..), stack: Vec::new(), root: self.root_slot(key), from: key }
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

    fn descend(&self, key: Key, level: usize) -> Option<NodeId> {
        let mut id = self.root_node(self.root_slot(key))?;
        for level in 0..level {
            id = self.below(id, self.slot(key, level))?;
        }
        Some(id)
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
    fn slot(&self, key: Key, level: usize) -> u8 {
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

/// Routes in prefix order.
#[derive(Debug)]
pub(crate) struct RibIter<'a> {
    rib: &'a Rib,
    short: alloc::collections::btree_map::Range<'a, Key, HopId>,
    stack: Vec<Frame<'a>>,
    /// The next root slot to enter.
    root: usize,
    from: Key,
}

/// A node being walked: what is left of its items, and where it lies.
#[derive(Debug)]
struct Frame<'a> {
    items: &'a [Item],
    level: usize,
    at: Key,
}

impl Iterator for RibIter<'_> {
    type Item = (Key, HopId);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let Some(frame) = self.stack.last_mut() else {
                if let Some(route) = self.next_root() {
                    return Some(route);
                }
                if self.stack.is_empty() {
                    return None;
                }
                continue;
            };
            let (at, level) = (frame.at, frame.level);
            let stride = self.rib.shape.strides[level];
            let below = |slot: u8, len: u8| Key {
                bits: at.bits | (u128::from(slot) << (128 - u32::from(at.len) - u32::from(stride))),
                len: at.len + len,
            };
            let Some((item, rest)) = frame.items.split_first() else {
                self.stack.pop();
                continue;
            };
            frame.items = rest;
            match item.kind() {
                Kind::Route(hop) => {
                    let key = below(item.slot, item.len);
                    if key >= self.from {
                        return Some((key, hop));
                    }
                }
                Kind::Below(id) => {
                    let at = below(item.slot, stride);
                    // Nothing at or after `from` lies below a node that ends before it.
                    if at >= self.from.shortened(at.len.min(self.from.len)) {
                        self.enter(id, level + 1, at);
                    }
                }
            }
        }
    }
}

impl RibIter<'_> {
    /// The next route of the root array, unless nodes come first: then those are entered.
    fn next_root(&mut self) -> Option<(Key, HopId)> {
        let bits = self.rib.shape.root_bits;
        let next_short = self.short.clone().next();
        let limit = next_short.map_or(self.rib.roots.len(), |(key, _)| self.rib.root_slot(*key));
        while self.root < limit {
            let slot = self.root;
            self.root += 1;
            if let Some(id) = self.rib.root_node(slot) {
                self.enter(id, 0, Key { bits: (slot as u128) << (128 - u32::from(bits)), len: bits });
                return None;
            }
        }
        self.short.next().map(|(key, hop)| (*key, *hop))
    }

    fn enter(&mut self, id: NodeId, level: usize, at: Key) {
        self.stack.push(Frame { items: self.rib.lists.of(self.rib.nodes[id as usize].list), level, at });
    }
}
