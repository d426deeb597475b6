//! Next hops by number: legs of routes, and the kernel's next hop objects.

use super::event::{Event, Interface, NextHops, Reason};
use crate::{Family, Leg, NextHop};
use hashbrown::HashMap;
use std::collections::{BTreeMap, VecDeque};

/// Interfaces by index.
pub(super) type Interfaces = BTreeMap<u32, super::Known<Port>>;

/// An interface, and what only the mirror needs of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Port {
    pub(super) shown: Interface,
    /// It lost its last address of a family, with which the kernel may have left off using legs by it: IPv4, IPv6.
    pub(super) lost_address: [bool; 2],
    pub(super) loopback: bool,
}

/// Whose next hops a number has.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Source {
    /// Legs that a route of this family names.
    Legs(Family, Box<[Leg]>),
    /// A next hop object.
    Object(u32),
}

/// What they are now, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    Forward(Box<[Leg]>),
    Blackhole,
    Kernel(Reason),
    Dead,
}

impl State {
    pub(super) fn as_event(&self) -> NextHops<'_> {
        match self {
            Self::Forward(legs) => NextHops::Forward(legs),
            Self::Blackhole => NextHops::Blackhole,
            Self::Kernel(reason) => NextHops::Kernel(*reason),
            Self::Dead => NextHops::Dead,
        }
    }
}

/// A next hop object of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Object {
    Single { leg: Leg, family: Option<Family> },
    Blackhole,
    Special,
    Group { members: Vec<(u32, u32)>, special: bool },
}

impl Object {
    pub(super) fn from_message(message: &NextHop<'_>) -> Self {
        if message.is_group() {
            return Self::Group { members: message.members().collect(), special: message.special };
        }
        match message {
            message if message.special => Self::Special,
            message if message.blackhole => Self::Blackhole,
            message => Self::Single { leg: message.leg(), family: message.family },
        }
    }
}

#[derive(Debug)]
struct Set {
    source: Source,
    users: u32,
    state: State,
    /// Whether it was dead before the change at hand.
    was_dead: bool,
}

/// The numbers, and what they stand for.
#[derive(Debug, Default)]
pub(super) struct Sets {
    sets: Vec<Option<Set>>,
    numbers: HashMap<Source, u32>,
    /// Legs by family, found without owning them.
    by_legs: [HashMap<Box<[Leg]>, u32>; 2],
    /// The number of the legs that were found last, which are mostly those that are looked for next.
    found: u32,
    spare: VecDeque<u32>,
    objects: BTreeMap<u32, super::Known<Object>>,
    /// The groups that an object is a member of.
    groups: HashMap<u32, Vec<u32>>,
}

impl Sets {
    pub(super) fn object(&self, id: u32) -> Option<&Object> {
        self.objects.get(&id).map(|known| &known.value)
    }

    pub(super) fn objects(&self) -> impl Iterator<Item = (u32, &super::Known<Object>)> {
        self.objects.iter().map(|(id, known)| (*id, known))
    }

    /// Keeps an object, and returns whether it differs from what was kept.
    pub(super) fn put_object(&mut self, id: u32, value: Object, seen: u32) -> bool {
        let old = self.objects.insert(id, super::Known { value: value.clone(), seen }).map(|known| known.value);
        if old.as_ref() == Some(&value) {
            return false;
        }
        self.leave_groups(id, old.as_ref());
        if let Object::Group { members, .. } = value {
            for (member, _) in members {
                let groups = self.groups.entry(member).or_default();
                if !groups.contains(&id) {
                    groups.push(id);
                }
            }
        }
        true
    }

    fn leave_groups(&mut self, id: u32, object: Option<&Object>) {
        let Some(Object::Group { members, .. }) = object else { return };
        for (member, _) in members {
            if let Some(groups) = self.groups.get_mut(member) {
                groups.retain(|group| *group != id);
                if groups.is_empty() {
                    self.groups.remove(member);
                }
            }
        }
    }

    /// Forgets an object, in its groups too, and groups that have no member left. Returns the objects that are gone.
    pub(super) fn remove_object(&mut self, id: u32) -> Vec<u32> {
        let Some(old) = self.objects.remove(&id) else { return Vec::new() };
        self.leave_groups(id, Some(&old.value));
        let mut gone = vec![id];
        for group in self.groups.remove(&id).unwrap_or_default() {
            let Some(Object::Group { members, .. }) = self.objects.get_mut(&group).map(|known| &mut known.value) else {
                continue;
            };
            members.retain(|(member, _)| *member != id);
            if members.is_empty() {
                self.objects.remove(&group);
                gone.push(group);
            }
        }
        gone
    }

    /// The numbers of an object, and of the groups that it is in.
    pub(super) fn numbers_of(&self, id: u32) -> Vec<u32> {
        let groups = self.groups.get(&id).into_iter().flatten();
        groups.chain([&id]).filter_map(|id| self.find_object(*id)).collect()
    }

    /// The number of these legs, if they have one.
    #[inline]
    pub(super) fn find_legs(&mut self, family: Family, legs: &[Leg]) -> Option<u32> {
        let is_it = |set: &Set| matches!(&set.source, Source::Legs(of, has) if *of == family && has[..] == *legs);
        if !self.sets.get(self.found as usize).and_then(Option::as_ref).is_some_and(is_it) {
            self.found = *self.by_legs[family as usize].get(legs)?;
        }
        Some(self.found)
    }

    pub(super) fn find_object(&self, id: u32) -> Option<u32> {
        self.numbers.get(&Source::Object(id)).copied()
    }

    /// Gives them a number. Nobody uses it yet.
    pub(super) fn add(&mut self, source: Source, interfaces: &Interfaces) -> u32 {
        let state = self.compute(&source, interfaces);
        let set = Set { was_dead: state == State::Dead, state, users: 0, source: source.clone() };
        // A number rests while 64 others are spare: who still holds it finds nothing new there for a while.
        let number = if self.spare.len() > RESTING { self.spare.pop_front() } else { None };
        let number = number.unwrap_or_else(|| {
            self.sets.push(None);
            u32::try_from(self.sets.len() - 1).unwrap_or(u32::MAX)
        });
        self.sets[number as usize] = Some(set);
        match source {
            Source::Legs(family, legs) => self.by_legs[family as usize].insert(legs, number),
            source @ Source::Object(_) => self.numbers.insert(source, number),
        };
        number
    }

    pub(super) fn hold(&mut self, number: u32) {
        if let Some(set) = &mut self.sets[number as usize] {
            set.users += 1;
        }
    }

    /// Gives up a use, and returns whether it was the last.
    pub(super) fn release(&mut self, number: u32) -> bool {
        let Some(set) = &mut self.sets[number as usize] else { return false };
        set.users = set.users.saturating_sub(1);
        if set.users > 0 {
            return false;
        }
        match &set.source {
            Source::Legs(family, legs) => self.by_legs[*family as usize].remove(legs),
            source @ Source::Object(_) => self.numbers.remove(source),
        };
        self.sets[number as usize] = None;
        self.spare.push_back(number);
        true
    }

    pub(super) fn legs(&self, number: u32) -> &[Leg] {
        match self.sets.get(number as usize).and_then(Option::as_ref).map(|set| &set.source) {
            Some(Source::Legs(_, legs)) => legs,
            _ => &[],
        }
    }

    pub(super) fn source(&self, number: u32) -> Option<&Source> {
        self.sets.get(number as usize)?.as_ref().map(|set| &set.source)
    }

    #[inline]
    pub(super) fn is_dead(&self, number: u32, before: bool) -> bool {
        match self.sets.get(number as usize) {
            Some(Some(set)) if before => set.was_dead,
            Some(Some(set)) => set.state == State::Dead,
            _ => true,
        }
    }

    /// The numbers in use, and what they are.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &State)> {
        (0..).zip(&self.sets).filter_map(|(number, set)| set.as_ref().map(|set| (number, &set.state)))
    }

    pub(super) fn state(&self, number: u32) -> Option<&State> {
        self.sets.get(number as usize)?.as_ref().map(|set| &set.state)
    }

    /// The numbers whose next hops are such.
    pub(super) fn select(&self, such: impl Fn(&Source) -> bool) -> Vec<u32> {
        let sets = (0..).zip(&self.sets);
        sets.filter_map(|(number, set)| set.as_ref().is_some_and(|set| such(&set.source)).then_some(number)).collect()
    }

    /// Finds out anew what these are, tells of those that changed, and returns those that died or revived, which are to be
    /// settled.
    pub(super) fn refresh(
        &mut self,
        numbers: &[u32],
        interfaces: &Interfaces,
        sink: &mut dyn FnMut(Event<'_>),
    ) -> Vec<u32> {
        let mut turned = Vec::new();
        for number in numbers.iter().copied() {
            let Some(source) = self.source(number) else { continue };
            let state = self.compute(source, interfaces);
            let Some(Some(set)) = self.sets.get_mut(number as usize) else { continue };
            if set.state == state {
                continue;
            }
            if (set.state == State::Dead) != (state == State::Dead) {
                turned.push(number);
            }
            set.state = state;
            sink(Event::NextHops { number, now: set.state.as_event() });
        }
        turned
    }

    /// The change at hand is over.
    pub(super) fn settle(&mut self, numbers: &[u32]) {
        for number in numbers {
            if let Some(set) = &mut self.sets[*number as usize] {
                set.was_dead = set.state == State::Dead;
            }
        }
    }

    /// Whether legs or an object go by an interface.
    pub(super) fn uses(&self, source: &Source, interface: u32) -> bool {
        let by = |object: &Object| matches!(object, Object::Single { leg, .. } if leg.interface == interface);
        match source {
            Source::Legs(_, legs) => legs.iter().any(|leg| leg.interface == interface),
            Source::Object(id) => match self.objects.get(id).map(|known| &known.value) {
                Some(Object::Group { members, .. }) => {
                    members.iter().any(|(id, _)| self.objects.get(id).is_some_and(|known| by(&known.value)))
                }
                Some(object) => by(object),
                None => false,
            },
        }
    }

    fn compute(&self, source: &Source, interfaces: &Interfaces) -> State {
        match source {
            Source::Legs(family, legs) => {
                let several = legs.len() > 1;
                forward(legs.iter().map(|leg| (*leg, Some(*family), several.then_some(*family))), interfaces)
            }
            Source::Object(id) => match self.objects.get(id).map(|known| &known.value) {
                None => State::Kernel(Reason::UnknownNextHop),
                Some(Object::Special) => State::Kernel(Reason::NextHop),
                Some(Object::Blackhole) => State::Blackhole,
                Some(Object::Single { leg, family }) => forward([(*leg, *family, None)].into_iter(), interfaces),
                Some(Object::Group { members, special }) => self.group(members, *special, interfaces),
            },
        }
    }

    fn group(&self, members: &[(u32, u32)], special: bool, interfaces: &Interfaces) -> State {
        if special {
            return State::Kernel(Reason::NextHop);
        }
        let mut legs = Vec::with_capacity(members.len());
        for (id, weight) in members {
            match self.objects.get(id).map(|known| &known.value) {
                Some(Object::Single { leg, family }) => legs.push((Leg { weight: *weight, ..*leg }, *family, None)),
                Some(Object::Blackhole) if members.len() == 1 => return State::Blackhole,
                Some(_) => return State::Kernel(Reason::NextHop),
                None => return State::Kernel(Reason::UnknownNextHop),
            }
        }
        forward(legs.into_iter(), interfaces)
    }
}

/// The legs that can be used. Each comes with its family, and that whose addresses it may be dead without.
fn forward(legs: impl Iterator<Item = (Leg, Option<Family>, Option<Family>)>, interfaces: &Interfaces) -> State {
    let mut alive = Vec::new();
    for (leg, family, needs_address) in legs {
        let Some(port) = interfaces.get(&leg.interface).map(|known| &known.value) else {
            return State::Kernel(Reason::UnknownInterface);
        };
        let interface = &port.shown;
        let ignored = family.is_none_or(|family| interface.ignore_linkdown[family as usize]);
        if !interface.up || (!interface.carrier && ignored) {
            continue;
        }
        if let Some(reason) = interface.kernel {
            return State::Kernel(reason);
        }
        if needs_address.is_some_and(|family| port.lost_address[family as usize]) {
            return State::Kernel(Reason::NoAddress);
        }
        alive.push(leg);
    }
    if alive.is_empty() { State::Dead } else { State::Forward(alive.into()) }
}

/// Numbers that are spare before one is used again.
const RESTING: usize = 64;
