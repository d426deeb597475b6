//! The routes of the writer's trie in prefix order.

use alloc::collections::btree_map::Range;
use alloc::vec::Vec;

use super::lists::{Item, Kind};
use super::{HopId, NodeId, Rib};
use crate::prefix::Key;

/// Routes in prefix order.
#[derive(Debug)]
pub(crate) struct RibIter<'a> {
    rib: &'a Rib,
    short: Range<'a, Key, HopId>,
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

impl<'a> RibIter<'a> {
    /// From the first one at or after `key`.
    pub(super) fn new(rib: &'a Rib, key: Key) -> Self {
        Self { rib, short: rib.short.range(key..), stack: Vec::new(), root: rib.root_slot(key), from: key }
    }

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
