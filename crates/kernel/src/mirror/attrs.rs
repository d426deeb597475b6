//! What routes say beside their prefix, each kept once: a full table has a million routes and a few hundred of these.

use super::event::{Prefix, Reason, Target};
use super::hops::Sets;
use hashbrown::HashMap;
use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};

/// What a route does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Action {
    /// A number of [`Sets`].
    NextHops(u32),
    /// Always the same.
    Fixed(Target),
    /// Not understood: whatever else the prefix has, the kernel decides.
    Special(Reason),
}

/// What a route says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attr {
    pub(super) action: Action,
    pub(super) priority: u32,
    pub(super) tos: u8,
    pub(super) identity: u64,
}

/// In few words, as each message is looked up by it. TOS is mostly 0.
impl Hash for Attr {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.identity);
        let action = match self.action {
            Action::NextHops(number) => u64::from(number),
            Action::Fixed(target) => return (target, self.priority).hash(state),
            Action::Special(reason) => reason as u64,
        };
        state.write_u64(action | u64::from(self.priority) << 32);
    }
}

impl Attr {
    /// Whether the kernel counts both for one place in a prefix's list.
    pub(super) fn same_class(&self, other: &Self) -> bool {
        self.priority == other.priority && self.tos == other.tos
    }
}

/// Whether a route is one of `local`, and its prefix.
pub(super) type Place = (bool, Prefix);

#[derive(Debug)]
struct Slot {
    attr: Attr,
    users: u32,
    /// Where routes with it are, and some where none is any more; of more than [`FEW`] these are not all.
    places: Vec<Place>,
}

/// The attributes by number. A number fits into [`super::table::Word`].
#[derive(Debug, Default)]
pub(super) struct Attrs {
    slots: Vec<Slot>,
    spare: Vec<u32>,
    numbers: HashMap<Attr, u32>,
    /// The number that was found last, which is mostly the one that is looked for next.
    found: u32,
}

impl Attrs {
    #[inline]
    pub(super) fn get(&self, number: u32) -> &Attr {
        &self.slots[number as usize].attr
    }

    #[inline]
    pub(super) fn find(&mut self, attr: &Attr) -> Option<u32> {
        let is_it = |slot: &Slot| slot.users > 0 && slot.attr == *attr;
        if !self.slots.get(self.found as usize).is_some_and(is_it) {
            self.found = *self.numbers.get(attr)?;
        }
        Some(self.found)
    }

    /// The number of an attribute, which nobody need use yet.
    #[inline]
    pub(super) fn add(&mut self, attr: Attr, sets: &mut Sets) -> u32 {
        if let Some(number) = self.find(&attr) {
            return number;
        }
        if let Action::NextHops(hops) = attr.action {
            sets.hold(hops);
        }
        let number = if let Some(number) = self.spare.pop() {
            self.slots[number as usize] = Slot { attr, users: 0, places: Vec::new() };
            number
        } else {
            self.slots.push(Slot { attr, users: 0, places: Vec::new() });
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        };
        self.numbers.insert(attr, number);
        number
    }

    /// A route with it is at a place.
    #[inline]
    pub(super) fn hold(&mut self, number: u32, place: impl FnOnce() -> Place) {
        let slot = &mut self.slots[number as usize];
        slot.users += 1;
        if slot.places.len() <= FEW {
            slot.places.push(place());
        }
    }

    /// Gives up a use; returns the next hops that nothing uses any more.
    #[inline]
    pub(super) fn release(&mut self, number: u32, sets: &mut Sets) -> Option<u32> {
        let slot = &mut self.slots[number as usize];
        slot.users = slot.users.saturating_sub(1);
        if slot.users > 0 {
            return None;
        }
        let attr = slot.attr;
        self.numbers.remove(&attr);
        self.spare.push(number);
        match attr.action {
            Action::NextHops(hops) => sets.release(hops).then_some(hops),
            _ => None,
        }
    }

    /// For each number, whether it is such a one.
    pub(super) fn select(&self, such: impl Fn(&Attr) -> bool) -> Vec<bool> {
        self.slots.iter().map(|slot| slot.users > 0 && such(&slot.attr)).collect()
    }

    /// Where routes with such attributes are, and some where none is, those of `main` first; `None` if there may be many.
    pub(super) fn places(&self, such: &[bool]) -> Option<BTreeSet<Place>> {
        let slots = self.slots.iter().zip(such).filter(|(_, such)| **such);
        let mut places = BTreeSet::new();
        for (slot, _) in slots {
            if slot.places.len() > FEW {
                return None;
            }
            places.extend(slot.places.iter().copied());
        }
        Some(places)
    }
}

/// Places of an attribute that are remembered, as those of a link have that only its own networks lead to: when it goes down, not all
/// prefixes are looked through for them.
const FEW: usize = 8;
