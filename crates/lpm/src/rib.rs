//! The writer's routes: a multibit trie whose nodes mirror the blocks readers walk.
//!
//! Routes of at most `root_bits` bits lie in an ordered map and are painted over the root array; longer ones lie
//! in the node whose stride their length falls into. A node exists as long as there is a route in or below it.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

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
}

impl Shape {
    /// Levels below the root array that a family has at most.
    pub(crate) const MAX_LEVELS: usize = 27;

    /// The level whose stride `len` ends in, and the bits before that level; `None` for the root array.
    fn level(&self, len: u8) -> Option<(usize, u8)> {
        let mut pos = self.root_bits;
        if len <= pos {
            return None;
        }
        for (level, stride) in self.strides.iter().enumerate() {
            if len <= pos + stride {
                return Some((level, pos));
            }
            pos += stride;
        }
        None
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

/// A route inside a node: it covers the slots from `start` on, 2^(stride - len) of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Local {
    pub(crate) start: u8,
    /// Bits of this level's stride it spells out, 1 to the stride.
    pub(crate) len: u8,
    pub(crate) hop: HopId,
}

#[derive(Debug)]
pub(crate) struct Node {
    /// Ordered by start, then length.
    pub(crate) routes: Vec<Local>,
    /// Ordered by slot.
    pub(crate) children: Vec<(u8, NodeId)>,
    /// The hop of addresses that no route in or below the node covers, as of the last build.
    pub(crate) inherited: HopId,
    pub(crate) built: Built,
}

impl Node {
    fn new() -> Self {
        Self { routes: Vec::new(), children: Vec::new(), inherited: 0, built: Built::Nothing }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.routes.is_empty() && self.children.is_empty()
    }

    fn find(&self, start: u8, len: u8) -> Result<usize, usize> {
        if self.routes.last().is_none_or(|last| (last.start, last.len) < (start, len)) {
            return Err(self.routes.len());
        }
        self.routes.binary_search_by_key(&(start, len), |route| (route.start, route.len))
    }

    fn child(&self, slot: u8) -> Option<NodeId> {
        let index = self.children.binary_search_by_key(&slot, |child| child.0).ok()?;
        Some(self.children[index].1)
    }
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

#[derive(Debug)]
pub(crate) struct Rib {
    pub(crate) shape: &'static Shape,
    short: BTreeMap<Key, HopId>,
    /// Of each root slot: the length and next hop of its [`Base`].
    base_lens: Vec<u8>,
    base_hops: Vec<HopId>,
    roots: Vec<NodeId>,
    pub(crate) nodes: Vec<Node>,
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
            nodes: vec![Node::new()],
            vacant: Vec::new(),
            len: 0,
        }
    }

    /// Routes in the table.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get(&self, key: Key) -> Option<HopId> {
        let Some((level, pos)) = self.shape.level(key.len) else { return self.short.get(&key).copied() };
        let node = self.descend(key, level)?;
        let (start, len) = self.local(key, level, pos);
        let node = &self.nodes[node as usize];
        node.find(start, len).ok().map(|index| node.routes[index].hop)
    }

    /// Adds or replaces a route; answers the hop it had. Routes of the root array are not painted, see `paint`.
    pub(crate) fn insert(&mut self, key: Key, hop: HopId) -> Option<HopId> {
        let Some((level, pos)) = self.shape.level(key.len) else {
            let old = self.short.insert(key, hop);
            self.len += usize::from(old.is_none());
            return old;
        };
        let root = self.root_slot(key);
        let mut id = self.roots[root];
        if id == NO_NODE {
            id = self.new_node();
            self.roots[root] = id;
        }
        let mut at = self.shape.root_bits;
        for stride in &self.shape.strides[..level] {
            let slot = slot(key, at, *stride);
            id = match self.nodes[id as usize].children.binary_search_by_key(&slot, |child| child.0) {
                Ok(index) => self.nodes[id as usize].children[index].1,
                Err(index) => {
                    let child = self.new_node();
                    self.nodes[id as usize].children.insert(index, (slot, child));
                    child
                }
            };
            at += stride;
        }
        let (start, len) = self.local(key, level, pos);
        let node = &mut self.nodes[id as usize];
        match node.find(start, len) {
            Ok(index) => Some(core::mem::replace(&mut node.routes[index].hop, hop)),
            Err(index) => {
                if node.routes.is_empty() {
                    // About what a node of a full table has: growing there by steps costs a tenth of a load.
                    node.routes.reserve_exact(8);
                }
                node.routes.insert(index, Local { start, len, hop });
                self.len += 1;
                None
            }
        }
    }

    /// Removes a route; answers its hop, and whether its node is empty now. Such nodes stay until `prune`.
    pub(crate) fn remove(&mut self, key: Key) -> Option<(HopId, bool)> {
        let removed = match self.shape.level(key.len) {
            None => (self.short.remove(&key)?, false),
            Some((level, pos)) => {
                let id = self.descend(key, level)?;
                let (start, len) = self.local(key, level, pos);
                let node = &mut self.nodes[id as usize];
                let index = node.find(start, len).ok()?;
                (node.routes.remove(index).hop, node.is_empty())
            }
        };
        self.len -= 1;
        Some(removed)
    }

    /// The nodes from the root array to the one that holds `key`, as far as they exist, each with the slot that
    /// leads on towards `key`.
    pub(crate) fn path(&self, key: Key) -> Path {
        let mut path = Path { steps: [(NO_NODE, 0); Shape::MAX_LEVELS], len: 0 };
        let Some((level, _)) = self.shape.level(key.len) else { return path };
        let mut id = self.roots[self.root_slot(key)];
        let mut pos = self.shape.root_bits;
        for stride in &self.shape.strides[..=level] {
            if id == NO_NODE {
                break;
            }
            let slot = slot(key, pos, *stride);
            path.steps[path.len] = (id, slot);
            path.len += 1;
            id = self.nodes[id as usize].child(slot).unwrap_or(NO_NODE);
            pos += stride;
        }
        path
    }

    /// Takes the empty nodes at the end of `path` out of the trie.
    pub(crate) fn prune(&mut self, key: Key, path: &[Step]) -> Vec<(NodeId, Node)> {
        let mut pruned = Vec::new();
        for (index, (id, _)) in path.iter().enumerate().rev() {
            if !self.nodes[*id as usize].is_empty() {
                break;
            }
            match index.checked_sub(1) {
                None => {
                    let root = self.root_slot(key);
                    self.roots[root] = NO_NODE;
                }
                Some(above) => {
                    let (parent, slot) = path[above];
                    self.nodes[parent as usize].children.retain(|child| child.0 != slot);
                }
            }
            pruned.push((*id, core::mem::replace(&mut self.nodes[*id as usize], Node::new())));
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
                    let children = &mut self.nodes[parent as usize].children;
                    let index = children.partition_point(|child| child.0 < slot);
                    children.insert(index, (slot, id));
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
        let (0, pos) = self.shape.level(key.len)? else { return None };
        let node = &self.nodes[self.root_node(self.root_slot(key))? as usize];
        let (start, len) = self.local(key, 0, pos);
        let slots = self.top_slots(key);
        let inside = |slot: u8| slots.contains(&usize::from(slot));
        let below = |route: &Local| route.len > len;
        let from = node.routes.partition_point(|route| route.start < start);
        let child = node.children.get(node.children.partition_point(|child| child.0 < start));
        if child.is_some_and(|child| inside(child.0))
            || node.routes[from..].iter().take_while(|route| inside(route.start)).any(below)
        {
            return None;
        }
        let stride = self.shape.strides[0];
        let around = (1..=len).rev().find_map(|len| node.find(start >> (stride - len) << (stride - len), len).ok());
        Some(around.map_or(node.inherited, |index| node.routes[index].hop))
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
        for node in &mut self.nodes {
            node.routes.iter_mut().for_each(|route| new(&mut route.hop));
        }
    }

    /// Bytes of the writer's own structures, roughly.
    pub(crate) fn bytes(&self) -> usize {
        let nodes = self.nodes.iter().map(|node| {
            node.routes.capacity() * size_of::<Local>() + node.children.capacity() * size_of::<(u8, NodeId)>()
        });
        self.nodes.capacity() * size_of::<Node>()
            + nodes.sum::<usize>()
            + self.base_lens.capacity()
            + self.base_hops.capacity() * size_of::<HopId>()
            + self.roots.capacity() * size_of::<NodeId>()
            + self.short.len() * 3 * size_of::<(Key, HopId)>() / 2
    }

    fn descend(&self, key: Key, level: usize) -> Option<NodeId> {
        let mut id = self.root_node(self.root_slot(key))?;
        let mut pos = self.shape.root_bits;
        for stride in &self.shape.strides[..level] {
            id = self.nodes[id as usize].child(slot(key, pos, *stride))?;
            pos += stride;
        }
        Some(id)
    }

    fn local(&self, key: Key, level: usize, pos: u8) -> (u8, u8) {
        (slot(key, pos, self.shape.strides[level]), key.len - pos)
    }

    fn new_node(&mut self) -> NodeId {
        self.vacant.pop().unwrap_or_else(|| {
            self.nodes.push(Node::new());
            #[expect(clippy::cast_possible_truncation, reason = "2^32 nodes need more memory than there is")]
            let id = (self.nodes.len() - 1) as NodeId;
            id
        })
    }
}

fn slot(key: Key, pos: u8, stride: u8) -> u8 {
    #[expect(clippy::cast_possible_truncation, reason = "strides below the root have at most 8 bits")]
    let slot = key.slice(pos, stride) as u8;
    slot
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

/// A node being walked: what is left of its routes and children, and where it lies.
#[derive(Debug)]
struct Frame<'a> {
    routes: &'a [Local],
    children: &'a [(u8, NodeId)],
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
            match (frame.routes.split_first(), frame.children.split_first()) {
                (Some((route, rest)), child) if child.is_none_or(|(child, _)| route.start <= child.0) => {
                    frame.routes = rest;
                    let key = below(route.start, route.len);
                    if key >= self.from {
                        return Some((key, route.hop));
                    }
                }
                (_, Some((child, rest))) => {
                    frame.children = rest;
                    let at = below(child.0, stride);
                    // Nothing at or after `from` lies below a child that ends before it.
                    if at >= self.from.shortened(at.len.min(self.from.len)) {
                        self.enter(child.1, level + 1, at);
                    }
                }
                (_, None) => {
                    self.stack.pop();
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
        let node = &self.rib.nodes[id as usize];
        self.stack.push(Frame { routes: &node.routes, children: &node.children, level, at });
    }
}
