//! The routes of one family: each prefix of `main` and of `local`, with all its routes in the kernel's order.

use super::attrs::{Action, Attrs, Place};
use super::event::{Prefix, Reason, Target};
use super::hops::Sets;
use crate::Family;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use std::net::IpAddr;

/// A route: the number of its attributes, and whether the latest dump has shown it.
pub(super) type Word = u32;
/// The dump of odd number has shown it last, or that of even number.
pub(super) const PARITY: Word = 1 << 31;
/// Not a route but the number of a list of them; only in the map.
const LIST: Word = 1 << 30;
/// The number of the attributes.
pub(super) const NUMBER: Word = LIST - 1;

/// An address as a number.
pub(super) trait Bits: Copy + Eq + Hash + std::fmt::Debug {
    const FAMILY: Family;
    fn from_ip(address: IpAddr) -> Option<Self>;
    fn to_ip(self) -> IpAddr;
    /// The first `len` bits.
    fn truncate(self, len: u8) -> Self;
}

impl Bits for u32 {
    const FAMILY: Family = Family::V4;

    #[inline]
    fn from_ip(address: IpAddr) -> Option<Self> {
        match address {
            IpAddr::V4(address) => Some(address.to_bits()),
            IpAddr::V6(_) => None,
        }
    }

    fn to_ip(self) -> IpAddr {
        std::net::Ipv4Addr::from_bits(self).into()
    }

    fn truncate(self, len: u8) -> Self {
        self & Self::MAX.checked_shl(32 - u32::from(len.min(32))).unwrap_or(0)
    }
}

/// An IPv6 address aligned to 4, so that a key has 20 bytes and not 32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Wide([u32; 4]);

impl Wide {
    fn bits(self) -> u128 {
        self.0.iter().fold(0, |bits, word| bits << 32 | u128::from(*word))
    }

    #[expect(clippy::cast_possible_truncation, reason = "takes 32 bits after the other")]
    fn from_bits(bits: u128) -> Self {
        Self([96, 64, 32, 0].map(|shift| (bits >> shift) as u32))
    }
}

impl Bits for Wide {
    const FAMILY: Family = Family::V6;

    fn from_ip(address: IpAddr) -> Option<Self> {
        match address {
            IpAddr::V6(address) => Some(Self::from_bits(address.to_bits())),
            IpAddr::V4(_) => None,
        }
    }

    fn to_ip(self) -> IpAddr {
        std::net::Ipv6Addr::from_bits(self.bits()).into()
    }

    fn truncate(self, len: u8) -> Self {
        Self::from_bits(self.bits() & u128::MAX.checked_shl(128 - u32::from(len.min(128))).unwrap_or(0))
    }
}

/// A prefix as a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key<A> {
    pub(super) address: A,
    pub(super) len: u8,
}

impl<A: Bits> Hash for Key<A> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.address.hash(state);
        state.write_u8(self.len);
    }
}

impl<A: Bits> Key<A> {
    /// Whether the other lies in it, and is longer.
    fn covers(&self, other: &Self) -> bool {
        self.len < other.len && other.address.truncate(self.len) == self.address
    }

    pub(super) fn prefix(&self) -> Prefix {
        Prefix { address: self.address.to_ip(), len: self.len }
    }
}

/// What became of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offered {
    /// It is the only one of its prefix now.
    First,
    /// It was there, alone.
    Known,
    /// There are others, and nothing has changed.
    Beside,
}

/// The prefixes of a table of the kernel.
#[derive(Debug)]
pub(super) struct Level<A> {
    words: HashMap<Key<A>, Word>,
    lists: Vec<Vec<Word>>,
    spare: Vec<Word>,
}

impl<A: Bits> Level<A> {
    fn new() -> Self {
        Self { words: HashMap::new(), lists: Vec::new(), spare: Vec::new() }
    }

    fn list<'a>(&'a self, word: &'a Word) -> &'a [Word] {
        if word & LIST == 0 { std::slice::from_ref(word) } else { &self.lists[(word & NUMBER) as usize] }
    }

    /// The routes of a prefix.
    #[inline]
    pub(super) fn routes(&self, key: &Key<A>) -> &[Word] {
        self.words.get(key).map_or(&[], |word| self.list(word))
    }

    /// Gives a prefix its first route, or tells that it has it already; that, and no more, is what most changes and dumps ask for.
    #[inline]
    pub(super) fn offer(&mut self, key: Key<A>, word: Word) -> Offered {
        match self.words.entry(key) {
            Entry::Vacant(place) => {
                place.insert(word);
                Offered::First
            }
            Entry::Occupied(mut place) if place.get() & (LIST | NUMBER) == word & NUMBER => {
                *place.get_mut() = word;
                Offered::Known
            }
            Entry::Occupied(_) => Offered::Beside,
        }
    }

    /// Takes the only route of a prefix, if it has that number.
    #[inline]
    pub(super) fn take_only(&mut self, key: Key<A>, number: Word) -> bool {
        match self.words.entry(key) {
            Entry::Occupied(place) if place.get() & (LIST | NUMBER) == number => {
                place.remove();
                true
            }
            _ => false,
        }
    }

    /// Replaces the routes of a prefix.
    #[inline]
    pub(super) fn store(&mut self, key: Key<A>, routes: &[Word]) {
        let old = match routes {
            [] => self.words.remove(&key),
            [one] => self.words.insert(key, *one),
            several => {
                if let Some(word) = self.words.get(&key).filter(|word| **word & LIST != 0) {
                    several.clone_into(&mut self.lists[(word & NUMBER) as usize]);
                    return;
                }
                let number = self.spare.pop().unwrap_or_else(|| {
                    self.lists.push(Vec::new());
                    u32::try_from(self.lists.len() - 1).unwrap_or(u32::MAX)
                });
                several.clone_into(&mut self.lists[number as usize]);
                self.words.insert(key, LIST | number)
            }
        };
        if let Some(word) = old.filter(|word| word & LIST != 0) {
            self.lists[(word & NUMBER) as usize] = Vec::new();
            self.spare.push(word & NUMBER);
        }
    }

    /// Every prefix and its routes.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Key<A>, &[Word])> {
        self.words.iter().map(|(key, word)| (key, self.list(word)))
    }

    fn set_parity(&mut self, parity: Word) {
        let words = self.words.values_mut().filter(|word| **word & LIST == 0);
        for word in words.chain(self.lists.iter_mut().flatten()) {
            *word = *word & NUMBER | parity;
        }
    }
}

/// The routes of a family.
#[derive(Debug)]
pub(super) struct Table<A> {
    pub(super) main: Level<A>,
    pub(super) local: Level<A>,
    /// Lengths of prefixes of `local` that are no single address, and how many there are of each.
    covers: Vec<(u8, u32)>,
    /// What a route has that the present dump, or an event since its begin, has shown.
    pub(super) parity: Word,
    /// A dump ended before its time, so that routes may have either parity.
    mixed: bool,
}

impl<A: Bits> Table<A> {
    pub(super) fn new() -> Self {
        Self { main: Level::new(), local: Level::new(), covers: Vec::new(), parity: 0, mixed: false }
    }

    pub(super) fn level(&self, is_local: bool) -> &Level<A> {
        if is_local { &self.local } else { &self.main }
    }

    /// Replaces the routes of a prefix. Returns whether it now covers, or no longer covers, prefixes of `main`.
    #[inline]
    pub(super) fn store(&mut self, is_local: bool, key: Key<A>, routes: &[Word]) -> bool {
        if !is_local {
            self.main.store(key, routes);
            return false;
        }
        let (before, now) = (!self.local.routes(&key).is_empty(), !routes.is_empty());
        self.local.store(key, routes);
        if before == now || key.len == A::FAMILY.bits() {
            return false;
        }
        let at = self.covers.iter().position(|(len, _)| *len == key.len).unwrap_or_else(|| {
            self.covers.push((key.len, 0));
            self.covers.len() - 1
        });
        let count = &mut self.covers[at].1;
        *count = if now { *count + 1 } else { count.saturating_sub(1) };
        self.covers.retain(|(_, count)| *count > 0);
        true
    }

    /// Where packets of a prefix go, and what `local` says of that prefix.
    #[inline]
    pub(super) fn target(&self, key: &Key<A>, attrs: &Attrs, sets: &Sets, before: bool) -> Option<Target> {
        self.with_main(key, self.main.routes(key), attrs, sets, before)
    }

    /// As [`Table::target`], with these routes as those of `main`.
    #[inline]
    pub(super) fn with_main(
        &self,
        key: &Key<A>,
        main: &[Word],
        attrs: &Attrs,
        sets: &Sets,
        before: bool,
    ) -> Option<Target> {
        if let Some(target) = choose(self.local_routes(key), has_ties(key), attrs, sets, before) {
            return Some(target);
        }
        let target = choose(main, has_ties(key), attrs, sets, before)?;
        Some(if self.is_covered(key) { Target::Kernel(Reason::Covered) } else { target })
    }

    /// Where packets of a prefix go, and where with these routes as those of `main`. What both have in common is looked up once.
    pub(super) fn targets_of(&self, key: &Key<A>, main: &[Word], attrs: &Attrs, sets: &Sets) -> [Option<Target>; 2] {
        let local = choose(self.local_routes(key), has_ties(key), attrs, sets, false);
        if local.is_some() {
            return [local; 2];
        }
        let targets = [self.main.routes(key), main].map(|main| choose(main, has_ties(key), attrs, sets, false));
        if targets[0] == targets[1] || !self.is_covered(key) {
            return targets;
        }
        targets.map(|target| target.map(|_| Target::Kernel(Reason::Covered)))
    }

    /// Where packets of a prefix go if this is its only route in `main`; `None` if that changes nothing.
    #[inline]
    pub(super) fn alone(&self, key: &Key<A>, word: Word, attrs: &Attrs, sets: &Sets) -> Option<Target> {
        let target = choose(&[word], false, attrs, sets, false)?;
        let by_local = choose(self.local_routes(key), has_ties(key), attrs, sets, false).is_some();
        let target = if self.is_covered(key) { Target::Kernel(Reason::Covered) } else { target };
        (!by_local).then_some(target)
    }

    /// The routes of a prefix in `local`, which has few that are no single addresses.
    #[inline]
    fn local_routes(&self, key: &Key<A>) -> &[Word] {
        let may_have = key.len == A::FAMILY.bits() || self.covers.iter().any(|(len, _)| *len == key.len);
        if may_have { self.local.routes(key) } else { &[] }
    }

    /// Whether `local` has a shorter prefix around it. Whether `local` is asked first, or both at once, depends on what rules the namespace
    /// has had (IPv4).
    #[inline]
    fn is_covered(&self, key: &Key<A>) -> bool {
        self.covers.iter().any(|(len, _)| {
            *len < key.len && !self.local.routes(&Key { address: key.address.truncate(*len), len: *len }).is_empty()
        })
    }

    /// The prefixes of `main` within a prefix, and where their packets go.
    pub(super) fn within(&self, cover: &Key<A>, attrs: &Attrs, sets: &Sets) -> Vec<(Key<A>, Option<Target>)> {
        let within = self.main.words.keys().filter(|key| cover.covers(key));
        within.map(|key| (*key, self.target(key, attrs, sets, false))).collect()
    }

    /// A dump begins: nothing has been shown yet.
    pub(super) fn begin(&mut self) {
        if self.mixed {
            self.main.set_parity(self.parity);
            self.local.set_parity(self.parity);
        }
        self.parity ^= PARITY;
        self.mixed = true;
    }

    /// A dump is complete. Returns the prefixes with routes that it has not shown; `true`: of `local`.
    pub(super) fn unseen(&mut self) -> Vec<(bool, Key<A>)> {
        self.mixed = false;
        let parity = self.parity;
        let of = |is_local: bool, level: &Level<A>| -> Vec<_> {
            let unseen = level.iter().filter(|(_, routes)| routes.iter().any(|word| word & PARITY != parity));
            unseen.map(|(key, _)| (is_local, *key)).collect()
        };
        [of(false, &self.main), of(true, &self.local)].concat()
    }

    /// The prefixes with a route whose attributes are such; `true`: of `local`.
    pub(super) fn having(&self, such: &[bool]) -> Vec<(bool, Key<A>)> {
        let of = |is_local: bool, level: &Level<A>| -> Vec<_> {
            level.iter().filter(|(_, routes)| has(routes, such)).map(|(key, _)| (is_local, *key)).collect()
        };
        [of(false, &self.main), of(true, &self.local)].concat()
    }

    /// Those of [`Self::having`] that are among these.
    pub(super) fn having_at(&self, places: &BTreeSet<Place>, such: &[bool]) -> Vec<(bool, Key<A>)> {
        let keys = places.iter().filter_map(|(is_local, prefix)| {
            Some((*is_local, Key { address: A::from_ip(prefix.address)?, len: prefix.len }))
        });
        keys.filter(|(is_local, key)| has(self.level(*is_local).routes(key), such)).collect()
    }

    /// Every prefix, and where its packets go.
    pub(super) fn targets<'a>(
        &'a self,
        attrs: &'a Attrs,
        sets: &'a Sets,
    ) -> impl Iterator<Item = (Prefix, Target)> + 'a {
        let only_local = self.local.words.keys().filter(|key| !self.main.words.contains_key(*key));
        let keys = self.main.words.keys().chain(only_local);
        keys.filter_map(|key| Some((key.prefix(), self.target(key, attrs, sets, false)?)))
    }

    /// How many prefixes `main` has.
    pub(super) fn len(&self) -> usize {
        self.main.words.len()
    }
}

/// Whether one of these routes has such attributes.
fn has(routes: &[Word], such: &[bool]) -> bool {
    routes.iter().any(|word| such.get((word & NUMBER) as usize).is_some_and(|is| *is))
}

/// Whether the kernel looks at more than the order of routes with the same metric: for IPv6, and for the IPv4 default route, of which
/// it prefers one whose gateway answers (`fib_select_default`).
fn has_ties<A: Bits>(key: &Key<A>) -> bool {
    A::FAMILY == Family::V6 || key.len == 0
}

/// Where packets go that match a prefix with these routes: by the first whose next hops are not dead.
#[inline]
fn choose(routes: &[Word], ties: bool, attrs: &Attrs, sets: &Sets, before: bool) -> Option<Target> {
    let target = |word: &Word| match attrs.get(word & NUMBER).action {
        Action::NextHops(number) => Some(Target::NextHops(number)).filter(|_| !sets.is_dead(number, before)),
        Action::Fixed(target) => Some(target),
        Action::Special(reason) => Some(Target::Kernel(reason)),
    };
    if let [one] = routes {
        return target(one);
    }
    let special = routes.iter().find(|word| matches!(attrs.get(**word & NUMBER).action, Action::Special(_)));
    if let Some(special) = special {
        return target(special);
    }
    let (at, found) = routes.iter().enumerate().find_map(|(at, word)| Some((at, target(word)?)))?;
    if ties {
        let priority = attrs.get(routes[at] & NUMBER).priority;
        let mut equals = routes[at + 1..].iter().take_while(|word| attrs.get(**word & NUMBER).priority == priority);
        if equals.any(|word| target(word).is_some_and(|other| other != found)) {
            return Some(Target::Kernel(Reason::Ambiguous));
        }
    }
    Some(found)
}
