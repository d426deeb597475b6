//! Next hops by the mirror's numbers.

use crate::Plane;
use crate::routes::in_turn;
use crate::ways::Key;
use hashbrown::HashMap;
use kernel::{Leg, NextHops};
use lpm::NextHop;
use router::{Group, Refusal, Target};
use std::collections::{BTreeMap, BTreeSet};

/// The numbers, and what they lead to.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    numbers: HashMap<u32, Number>,
    /// The numbers of next hops of the table.
    owners: HashMap<NextHop, u32>,
    /// Those for which the table had no room, and what they should be.
    waiting: BTreeMap<u32, Wanted>,
    /// Those that are free, though routes lead there.
    free: BTreeSet<u32>,
    /// Where trying again goes on.
    next: Option<u32>,
    /// One that had no next hop has one now.
    pub(crate) gained: bool,
    /// There was one with more ways than a group takes.
    pub(crate) too_wide: bool,
}

#[derive(Debug)]
struct Number {
    /// `None` if the table had no room.
    hop: Option<NextHop>,
    group: Option<Group>,
    state: State,
}

impl Default for Number {
    fn default() -> Self {
        Self { hop: None, group: None, state: State::Refused(Refusal::LeftToHost) }
    }
}

/// What a number leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Way(Key),
    Group(Vec<Key>),
    Refused(Refusal),
}

/// What a number is to lead to: ways, each once and with its weight, or a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Wanted {
    Ways(Vec<(Key, u16)>),
    Refused(Refusal),
}

impl Wanted {
    fn ways(legs: &[Leg]) -> Self {
        let mut ways: Vec<(Key, u16)> = Vec::with_capacity(legs.len());
        for leg in legs {
            let key = (leg.interface, leg.gateway);
            let weight = u16::try_from(leg.weight).unwrap_or(u16::MAX).max(1);
            match ways.iter_mut().find(|(other, _)| *other == key) {
                Some((_, sum)) => *sum = sum.saturating_add(weight),
                None => ways.push((key, weight)),
            }
        }
        if ways.is_empty() { Self::Refused(Refusal::LeftToHost) } else { Self::Ways(ways) }
    }
}

impl Numbers {
    pub(crate) fn hop(&self, number: u32) -> Option<NextHop> {
        self.numbers.get(&number)?.hop
    }

    /// The numbers that are not among these.
    pub(crate) fn beyond(&self, numbers: &BTreeSet<u32>) -> Vec<u32> {
        self.numbers.keys().copied().filter(|number| !numbers.contains(number)).collect()
    }

    /// The interface whose stations are the destinations themselves of routes that lead to a next hop of the table.
    pub(crate) fn on_link(&self, hop: NextHop) -> Option<u32> {
        self.on_link_of(*self.owners.get(&hop)?)
    }

    fn on_link_of(&self, number: u32) -> Option<u32> {
        match self.numbers.get(&number)?.state {
            State::Way((interface, None)) => Some(interface),
            _ => None,
        }
    }

    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty() || !self.free.is_empty()
    }

    /// How many have found no room, and how many there are.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.waiting.len(), self.numbers.len())
    }
}

impl Plane {
    /// The next hops of a number are these now.
    pub(crate) fn set_number(&mut self, number: u32, now: NextHops<'_>) {
        let wanted = match now {
            NextHops::Forward(legs) => Wanted::ways(legs),
            NextHops::Blackhole => Wanted::Refused(Refusal::Blackhole),
            NextHops::Kernel(_) | NextHops::Dead => Wanted::Refused(Refusal::LeftToHost),
            NextHops::Free => return self.free_number(number),
        };
        self.numbers.free.remove(&number);
        self.put_number(number, wanted);
    }

    /// The next hop of a number, for a route. One that is not known is made, and refuses; `None` if there is no room.
    pub(crate) fn number_hop(&mut self, number: u32) -> Option<NextHop> {
        if let Some(hop) = self.numbers.hop(number) {
            return Some(hop);
        }
        if !self.numbers.numbers.contains_key(&number) {
            self.put_number(number, Wanted::Refused(Refusal::LeftToHost));
        }
        self.numbers.hop(number)
    }

    fn put_number(&mut self, number: u32, wanted: Wanted) {
        let link = self.numbers.on_link_of(number);
        self.numbers.waiting.remove(&number);
        let (Number { hop, group, state: before }, is_new) = match self.numbers.numbers.remove(&number) {
            Some(known) => (known, false),
            None => (Number::default(), true),
        };
        let (state, target) = match &wanted {
            Wanted::Refused(refusal) => (State::Refused(*refusal), Target::Refused(*refusal)),
            Wanted::Ways(ways) => match &ways[..] {
                [(key, _)] => (State::Way(*key), self.join_way(*key, number)),
                ways => self.make_group(group, ways),
            },
        };
        let refused = matches!(state, State::Refused(_)) && matches!(&wanted, Wanted::Ways(ways) if !too_wide(ways));
        let (had, shown) = (hop, self.shown(&state, target));
        let hop = self.write_word(hop, shown);
        if hop.is_none() || refused {
            self.numbers.waiting.insert(number, wanted);
        }
        self.numbers.gained |= had.is_none() && hop.is_some() && !is_new;
        let group = self.leave(number, before, group, target);
        self.numbers.owners.extend(hop.map(|hop| (hop, number)));
        self.numbers.numbers.insert(number, Number { hop, group, state });
        let now = self.numbers.on_link_of(number);
        if link != now && !is_new {
            self.set_hosts_of(link.into_iter().chain(now));
        }
    }

    /// A group of several ways, in place of one that there is. Without room for it, the kernel decides.
    fn make_group(&mut self, group: Option<Group>, ways: &[(Key, u16)]) -> (State, Target) {
        let refused = (State::Refused(Refusal::LeftToHost), Target::Refused(Refusal::LeftToHost));
        if too_wide(ways) {
            self.numbers.too_wide = true;
            return refused;
        }
        let mut members = Vec::with_capacity(ways.len());
        let mut failed = None;
        for (key, weight) in ways {
            match self.hold_leg(*key) {
                Ok(hop) => members.push((hop, *weight)),
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        let made = match (failed, group) {
            (Some(error), _) => Err(error),
            (None, Some(group)) => self.fib.set_group(group, &members).map(|()| group),
            (None, None) => self.fib.add_group(&members),
        };
        match made {
            Ok(group) => (State::Group(ways.iter().map(|(key, _)| *key).collect()), Target::Group(group)),
            Err(_) => {
                ways.iter().take(members.len()).for_each(|(key, _)| self.release_leg(*key));
                refused
            }
        }
    }

    /// Where the word of a number leads. All flows of a group are the kernel's if those of one way are: it chooses among all ways anew.
    fn shown(&self, state: &State, target: Target) -> Target {
        match state {
            State::Group(keys) if keys.iter().any(|(interface, _)| self.ports.number(*interface).is_none()) => {
                Target::Refused(Refusal::LeftToHost)
            }
            _ => target,
        }
    }

    /// Writes the words anew of groups with a way by an interface, which has become a port or is no longer.
    pub(crate) fn update_groups_by(&mut self, interface: u32) {
        let is_by = |keys: &[Key]| keys.iter().any(|(by, _)| *by == interface);
        let by = |number: &&Number| matches!(&number.state, State::Group(keys) if is_by(keys));
        let target = |number: &Number| Some((number.hop?, self.shown(&number.state, Target::Group(number.group?))));
        let targets: Vec<_> = self.numbers.numbers.values().filter(by).filter_map(target).collect();
        for (hop, target) in targets {
            self.write_word(Some(hop), target);
        }
    }

    /// Writes the word of a number, whose next hop this is if it has one. Returns its next hop.
    fn write_word(&mut self, hop: Option<NextHop>, target: Target) -> Option<NextHop> {
        let Some(hop) = hop else { return self.fib.add_next_hop(target).ok() };
        let written = self.fib.set_next_hop(hop, target);
        debug_assert!(written.is_ok(), "{written:?}");
        Some(hop)
    }

    /// Gives up what a number led to before. Returns its group, if it still leads to it.
    fn leave(&mut self, number: u32, before: State, group: Option<Group>, target: Target) -> Option<Group> {
        let now = if let Target::Group(group) = target { Some(group) } else { None };
        if let Some(group) = group.filter(|group| now != Some(*group)) {
            let removed = self.fib.remove_group(group);
            debug_assert!(removed.is_ok(), "{removed:?}");
        }
        match before {
            State::Way(key) => self.leave_way(key, number),
            State::Group(keys) => keys.into_iter().for_each(|key| self.release_leg(key)),
            State::Refused(_) => {}
        }
        now
    }

    /// Nothing goes to a number any more; if something does, the kernel decides until it no longer does.
    fn free_number(&mut self, number: u32) {
        if !self.numbers.numbers.contains_key(&number) {
            return;
        }
        self.put_number(number, Wanted::Refused(Refusal::LeftToHost));
        self.numbers.waiting.remove(&number);
        let hop = self.numbers.hop(number);
        match hop.map(|hop| self.fib.remove_next_hop(hop)) {
            Some(Err(router::Error::InUse { .. })) => {
                self.numbers.free.insert(number);
            }
            _ => {
                hop.map(|hop| self.numbers.owners.remove(&hop));
                self.numbers.free.remove(&number);
                self.numbers.numbers.remove(&number);
            }
        }
    }

    /// Tries some of what had no room again.
    pub(crate) fn retry_numbers(&mut self) {
        for number in std::mem::take(&mut self.numbers.free) {
            self.free_number(number);
        }
        let Numbers { waiting, next, .. } = &mut self.numbers;
        for number in in_turn(waiting.keys(), waiting.len(), next) {
            if let Some(wanted) = self.numbers.waiting.get(&number).cloned() {
                self.put_number(number, wanted);
            }
        }
    }
}

/// Whether there are more ways than a group has buckets.
fn too_wide(ways: &[(Key, u16)]) -> bool {
    ways.len() > 256
}
