//! Next hops in use: numbered from 1, counted by the routes that name them.

use alloc::vec;
use alloc::vec::Vec;

use hashbrown::HashMap;

use crate::mem::LinkRef;
use crate::rib::HopId;

/// One next hop and the blocks that stand for it in the current tables.
#[derive(Debug, Clone)]
pub(crate) struct Hop<B> {
    /// The word readers get; 0 for "no route".
    pub(crate) word: u32,
    /// Routes that name it.
    pub(crate) refs: u32,
    /// Its leaf block, once one is needed.
    pub(crate) leaf: Option<LinkRef>,
    /// The root block all of whose slots have this next hop, once one is needed.
    pub(crate) uniform: Option<B>,
}

#[derive(Debug)]
pub(crate) struct Hops<B> {
    entries: Vec<Hop<B>>,
    numbers: HashMap<u32, HopId>,
    vacant: Vec<HopId>,
}

impl<B: Copy> Hops<B> {
    pub(crate) fn new() -> Self {
        let none = Hop { word: 0, refs: 1, leaf: None, uniform: None };
        Self { entries: vec![none], numbers: HashMap::new(), vacant: Vec::new() }
    }

    /// The number of a next hop in use.
    pub(crate) fn find(&self, word: u32) -> Option<HopId> {
        self.numbers.get(&word).copied()
    }

    /// The number the next new next hop gets.
    pub(crate) fn next_id(&self) -> HopId {
        #[expect(clippy::cast_possible_truncation, reason = "there are at most 2^31 next hops")]
        let fresh = self.entries.len() as HopId;
        self.vacant.last().copied().unwrap_or(fresh)
    }

    /// The highest number ever given out.
    pub(crate) fn max_id(&self) -> HopId {
        #[expect(clippy::cast_possible_truncation, reason = "there are at most 2^31 next hops")]
        let count = self.entries.len() as HopId;
        count - 1
    }

    /// Counts a use of a next hop; numbers it if it is new.
    pub(crate) fn acquire(&mut self, word: u32) -> HopId {
        let next = self.next_id();
        let id = *self.numbers.entry(word).or_insert(next);
        if id == next {
            let hop = Hop { word, refs: 0, leaf: None, uniform: None };
            if self.vacant.pop().is_some() {
                self.entries[id as usize] = hop;
            } else {
                self.entries.push(hop);
            }
        }
        self.entries[id as usize].refs += 1;
        id
    }

    /// Ends a use of a next hop. Answers the entry if that was the last; its number stays taken until `vacate`.
    pub(crate) fn release(&mut self, id: HopId) -> Option<Hop<B>> {
        let entry = &mut self.entries[id as usize];
        entry.refs -= 1;
        if entry.refs > 0 {
            return None;
        }
        let gone = Hop { word: entry.word, refs: 0, leaf: entry.leaf.take(), uniform: entry.uniform.take() };
        self.numbers.remove(&gone.word);
        Some(gone)
    }

    /// Lets the number of a released next hop be given out again.
    pub(crate) fn vacate(&mut self, id: HopId) {
        self.vacant.push(id);
    }

    pub(crate) fn get(&self, id: HopId) -> &Hop<B> {
        &self.entries[id as usize]
    }

    pub(crate) fn get_mut(&mut self, id: HopId) -> &mut Hop<B> {
        &mut self.entries[id as usize]
    }

    /// The share of routes, in percent, whose next hop has a number below `id`; 100 without routes.
    pub(crate) fn share_below(&self, id: usize) -> usize {
        let routes = |hops: &[Hop<B>]| hops.iter().map(|hop| hop.refs as usize).sum::<usize>();
        let all = routes(&self.entries[1..]);
        (routes(&self.entries[1..id.min(self.entries.len())]) * 100).checked_div(all).unwrap_or(100)
    }

    /// Every number with its word, those that are free included.
    pub(crate) fn words(&self) -> impl Iterator<Item = (HopId, u32)> {
        (0..).zip(self.entries.iter().map(|entry| entry.word))
    }

    /// Forgets which blocks stand for the next hops; answers what was forgotten.
    pub(crate) fn take_blocks(&mut self) -> Vec<(Option<LinkRef>, Option<B>)> {
        self.entries.iter_mut().map(|entry| (entry.leaf.take(), entry.uniform.take())).collect()
    }

    /// Undoes `take_blocks`.
    pub(crate) fn put_blocks(&mut self, blocks: Vec<(Option<LinkRef>, Option<B>)>) {
        for (entry, (leaf, uniform)) in self.entries.iter_mut().zip(blocks) {
            entry.leaf = leaf;
            entry.uniform = uniform;
        }
    }

    /// Numbers the next hops by how many routes name them, most used first. Answers the new number of each old one.
    pub(crate) fn sort_by_use(&mut self) -> Vec<HopId> {
        let mut order: Vec<usize> = (1..self.entries.len()).collect();
        order.sort_by_key(|id| core::cmp::Reverse(self.entries[*id].refs));
        let mut numbers = vec![0; self.entries.len()];
        for (new, old) in (1..).zip(&order) {
            numbers[*old] = new;
        }
        let mut entries = self.entries.clone();
        for (old, entry) in self.entries.drain(..).enumerate() {
            entries[numbers[old] as usize] = entry;
        }
        self.entries = entries;
        for id in self.numbers.values_mut().chain(&mut self.vacant) {
            *id = numbers[*id as usize];
        }
        numbers
    }
}
