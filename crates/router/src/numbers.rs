//! Numbers that are given out, counted while they are in use, and given out again when no forwarder can still hold them.

use crate::{Error, Result};
use std::collections::VecDeque;

/// Numbers below a limit, each with what it stands for.
#[derive(Debug)]
pub(crate) struct Numbers<T> {
    /// Of what, in the plural.
    what: &'static str,
    limit: usize,
    entries: Vec<Option<Entry<T>>>,
    /// Those that may be given out, highest first.
    free: Vec<u32>,
    /// Those given up, and the generation that a forwarder must have seen to hold them no more.
    given_up: VecDeque<(u64, u32)>,
}

#[derive(Debug)]
struct Entry<T> {
    value: T,
    uses: u64,
}

impl<T> Numbers<T> {
    pub(crate) fn new(what: &'static str, limit: usize) -> Self {
        Self { what, limit, entries: Vec::new(), free: Vec::new(), given_up: VecDeque::new() }
    }

    /// Gives out the lowest number that nobody holds. `seen` returns the generation that all forwarders have seen.
    pub(crate) fn add(&mut self, value: T, seen: impl FnOnce() -> u64) -> Result<u32> {
        if self.free.is_empty() && !self.given_up.is_empty() {
            self.take_back(seen());
        }
        let entry = Some(Entry { value, uses: 0 });
        if let Some(number) = self.free.pop() {
            self.entries[number as usize] = entry;
            return Ok(number);
        }
        match u32::try_from(self.entries.len()) {
            Ok(number) if self.entries.len() < self.limit => {
                self.entries.push(entry);
                Ok(number)
            }
            _ => Err(Error::Full { what: self.what, limit: self.limit, waiting: self.given_up.len() }),
        }
    }

    fn take_back(&mut self, seen: u64) {
        let ready = self.given_up.partition_point(|(generation, _)| *generation <= seen);
        self.free.extend(self.given_up.drain(..ready).map(|(_, number)| number));
        self.free.sort_unstable_by(|a, b| b.cmp(a));
    }

    /// Gives up a number that is in no use. `generation` begins one and returns its number. Returns what it stood for.
    pub(crate) fn remove(&mut self, number: u32, generation: impl FnOnce() -> u64) -> Result<T> {
        let (what, unknown) = (self.what, self.unknown(number));
        let entry = self.entries.get_mut(number as usize).ok_or_else(|| unknown.clone())?;
        match entry {
            Some(Entry { uses: 1.., .. }) => Err(Error::InUse { what, number }),
            None => Err(unknown),
            Some(_) => {
                self.given_up.push_back((generation(), number));
                entry.take().map(|entry| entry.value).ok_or(unknown)
            }
        }
    }

    pub(crate) fn get(&self, number: u32) -> Result<&T> {
        let entry = self.entries.get(number as usize).and_then(Option::as_ref);
        entry.map(|entry| &entry.value).ok_or_else(|| self.unknown(number))
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Result<&mut T> {
        let unknown = self.unknown(number);
        let entry = self.entries.get_mut(number as usize).and_then(Option::as_mut);
        entry.map(|entry| &mut entry.value).ok_or(unknown)
    }

    /// Counts uses of a number, or `times` fewer if that is below 0.
    pub(crate) fn used(&mut self, number: u32, times: i64) {
        if let Some(Some(entry)) = self.entries.get_mut(number as usize) {
            entry.uses = entry.uses.saturating_add_signed(times);
        }
    }

    /// The numbers in use, and what they stand for.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..).zip(&self.entries).filter_map(|(number, entry)| Some((number, &entry.as_ref()?.value)))
    }

    fn unknown(&self, number: u32) -> Error {
        Error::Unknown { what: self.what, number }
    }
}
