//! Next hops in use: numbered from 1, counted by the routes that name them.
//!
//! A next hop whose word is below 255 has that number if it is to be had: lookups need no palette where all do.

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

use hashbrown::HashMap;

use crate::rib::HopId;

/// One next hop and the root block that stands for it in the current tables.
#[derive(Debug, Clone)]
pub(crate) struct Hop<B> {
    /// The word readers get; 0 for "no route".
    pub(crate) word: u32,
    /// Routes that name it.
    pub(crate) refs: u32,
    /// Times it was released and not vacated since.
    waits: u32,
    /// The root block all of whose slots have this next hop, once one is needed.
    pub(crate) uniform: Option<B>,
}

#[derive(Debug)]
pub(crate) struct Hops<B> {
    entries: Vec<Hop<B>>,
    numbers: HashMap<u32, HopId>,
    vacant: BTreeSet<HopId>,
    /// The number that was held last, which is mostly the next one, too.
    held: HopId,
}

/// Numbers below this one fit a byte.
const NARROW: HopId = 255;

impl<B: Copy> Hops<B> {
    pub(crate) fn new() -> Self {
        let none = Hop { word: 0, refs: 0, waits: 0, uniform: None };
        let mut entries = vec![none; NARROW as usize];
        entries[0].refs = 1;
        Self { entries, numbers: HashMap::new(), vacant: (1..NARROW).collect(), held: 0 }
    }

    /// Counts a use of a next hop that is in use, and returns its number.
    pub(crate) fn hold(&mut self, word: u32) -> Option<HopId> {
        let is_it = |hop: &Hop<B>| hop.word == word && hop.refs > 0;
        if !self.entries.get(self.held as usize).is_some_and(is_it) {
            self.held = *self.numbers.get(&word)?;
        }
        self.entries[self.held as usize].refs += 1;
        Some(self.held)
    }

    /// The number a next hop that is not in use would get.
    pub(crate) fn next_id(&self, word: u32) -> HopId {
        #[expect(clippy::cast_possible_truncation, reason = "there are at most 2^31 next hops")]
        let fresh = self.entries.len() as HopId;
        if word < NARROW && (self.vacant.contains(&word) || self.entries[word as usize].word == word) {
            return word;
        }
        self.vacant.range(..NARROW).next_back().or_else(|| self.vacant.first()).copied().unwrap_or(fresh)
    }

    /// The highest number ever given out, or the highest that fits a byte.
    pub(crate) fn max_id(&self) -> HopId {
        #[expect(clippy::cast_possible_truncation, reason = "there are at most 2^31 next hops")]
        let count = self.entries.len() as HopId;
        count - 1
    }

    /// Counts a use of a next hop; numbers it if it is new.
    pub(crate) fn acquire(&mut self, word: u32) -> HopId {
        if let Some(id) = self.hold(word) {
            return id;
        }
        let id = self.next_id(word);
        self.numbers.insert(word, id);
        self.vacant.remove(&id);
        if let Some(hop) = self.entries.get_mut(id as usize) {
            hop.word = word;
            hop.refs = 1;
        } else {
            self.entries.push(Hop { word, refs: 1, waits: 0, uniform: None });
        }
        id
    }

    /// Ends a use of a next hop. Answers the entry if that was the last; its number stays taken until `vacate`.
    pub(crate) fn release(&mut self, id: HopId) -> Option<Hop<B>> {
        let entry = &mut self.entries[id as usize];
        entry.refs -= 1;
        if entry.refs > 0 {
            return None;
        }
        entry.waits += 1;
        self.numbers.remove(&entry.word);
        Some(Hop { uniform: entry.uniform.take(), ..*entry })
    }

    /// Says that no reader looks at what a release left. Lets the number be given out again, unless it is back in use
    /// or was released once more.
    pub(crate) fn vacate(&mut self, id: HopId) {
        let entry = &mut self.entries[id as usize];
        entry.waits -= 1;
        if entry.refs == 0 && entry.waits == 0 {
            entry.word = 0;
            self.vacant.insert(id);
        }
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

    /// The share of routes, in percent, that the `count` most used next hops have; 100 without routes.
    pub(crate) fn share_of_most_used(&self, count: usize) -> usize {
        let mut uses: Vec<usize> = self.entries[1..].iter().map(|hop| hop.refs as usize).collect();
        uses.sort_unstable_by_key(|uses| core::cmp::Reverse(*uses));
        let most: usize = uses.iter().take(count).sum();
        (most * 100).checked_div(uses.iter().sum()).unwrap_or(100)
    }

    /// Every number with its word, those that are free included.
    pub(crate) fn words(&self) -> impl Iterator<Item = (HopId, u32)> {
        (0..).zip(self.entries.iter().map(|entry| entry.word))
    }

    /// Forgets which blocks stand for the next hops; answers what was forgotten.
    pub(crate) fn take_blocks(&mut self) -> Vec<Option<B>> {
        self.entries.iter_mut().map(|entry| entry.uniform.take()).collect()
    }

    /// Undoes `take_blocks`.
    pub(crate) fn put_blocks(&mut self, blocks: Vec<Option<B>>) {
        for (entry, uniform) in self.entries.iter_mut().zip(blocks) {
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
        let new = |id: HopId| numbers[id as usize];
        self.numbers.values_mut().for_each(|id| *id = new(*id));
        self.vacant = self.vacant.iter().map(|id| new(*id)).collect();
        numbers
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn small_words_are_their_own_numbers_and_come_back_to_them() {
        let mut hops = Hops::<()>::new();
        assert_eq!((hops.acquire(7), hops.acquire(1000), hops.acquire(254)), (7, 254, 253));
        assert!(hops.release(7).is_some());
        // A reader may still look at the number: it is given out for the same word only.
        assert_eq!(hops.acquire(7), 7);
        assert!(hops.release(7).is_some());
        hops.vacate(7);
        assert!((0..251).all(|word| hops.acquire(2000 + word) != 7), "released again, and not vacated since");
        assert_eq!(hops.acquire(3000), 255);
        hops.vacate(7);
        assert_eq!(hops.acquire(3001), 7);
        assert_eq!(hops.acquire(7), 256);
    }
}
