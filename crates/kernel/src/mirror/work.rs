//! Changes of routes, and what they mean for prefixes.

use super::attrs::{Action, Attr, Attrs, Place};
use super::event::{Event, Reason, Target};
use super::hops::{Interfaces, Sets, Source, State};
use super::table::{Bits, Key, NUMBER, Offered, PARITY, Table, Word};
use crate::message::{digest, flags};
use crate::{Family, Leg, LegFlags, Route, RouteKind};

/// What all routes share, and room to work in.
#[derive(Debug, Default)]
pub(super) struct Paths {
    pub(super) attrs: Attrs,
    pub(super) sets: Sets,
    legs: Vec<Leg>,
    routes: Vec<Word>,
    dropped: Vec<u32>,
    told: u32,
}

/// A change in progress.
pub(super) struct Work<'a> {
    pub(super) paths: &'a mut Paths,
    pub(super) interfaces: &'a Interfaces,
    /// Whether the tables have been read once, so that changes are told.
    pub(super) loaded: bool,
    /// The tables may differ from the kernel's.
    pub(super) doubt: &'a mut bool,
    pub(super) sink: &'a mut dyn FnMut(Event<'_>),
}

/// How a route came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    /// NLM_F_*.
    pub(super) flags: u16,
    /// Whether it is part of a dump.
    pub(super) dumped: bool,
}

impl Work<'_> {
    pub(super) fn emit(&mut self, event: Event<'_>) {
        if self.loaded {
            (self.sink)(event);
        }
    }

    /// Tells a reason once.
    pub(super) fn tell(&mut self, reason: Reason) {
        if self.loaded && self.paths.told & 1 << reason as u32 == 0 {
            self.paths.told |= 1 << reason as u32;
            (self.sink)(Event::Unsupported(reason));
        }
    }

    fn tell_target<A: Bits>(&mut self, key: &Key<A>, to: Option<Target>) {
        self.emit(Event::Route { prefix: key.prefix(), to });
        if let Some(Target::Kernel(reason)) = to
            && !key.prefix().is_never_routed()
        {
            self.tell(reason);
        }
    }

    /// A route is there.
    pub(super) fn add<A: Bits>(&mut self, table: &mut Table<A>, route: &Route<'_>, arrival: Arrival) {
        let Some((key, is_local)) = place(route) else { return };
        let Some(attr) = self.describe(route, Some(arrival)) else { return };
        let number = self.paths.attrs.add(attr, &mut self.paths.sets);
        let word = number | table.parity;
        if !is_local {
            match table.main.offer(key, word) {
                Offered::Known => return,
                Offered::First => return self.added_alone(table, &key, word, arrival),
                Offered::Beside => {}
            }
        }
        let old = table.level(is_local).routes(&key);
        if let [one] = old
            && one & NUMBER == number
        {
            // As it was.
            if *one != word {
                table.store(is_local, key, &[word]);
            }
            return;
        }
        let mut routes = std::mem::take(&mut self.paths.routes);
        old.clone_into(&mut routes);
        let is_new = !routes.iter().any(|word| word & NUMBER == number);
        let dropped = &mut self.paths.dropped;
        if A::FAMILY == Family::V4 {
            *self.doubt |= insert_v4(&mut routes, &self.paths.attrs, word, arrival, dropped);
        } else {
            *self.doubt |= insert_v6(&mut routes, &self.paths.attrs, &self.paths.sets, word, arrival, dropped);
        }
        if is_new {
            self.paths.attrs.hold(number, || (is_local, key.prefix()));
            // A dump that knows more than the events told is not the last one.
            *self.doubt |= arrival.dumped && self.loaded;
        }
        self.replace(table, is_local, key, &routes, false);
        self.paths.routes = routes;
        self.drop_attrs();
    }

    /// A prefix of `main` has got its first route.
    fn added_alone<A: Bits>(&mut self, table: &Table<A>, key: &Key<A>, word: Word, arrival: Arrival) {
        let has = |flag| arrival.flags & flag != 0;
        self.paths.attrs.hold(word & NUMBER, || (false, key.prefix()));
        // A dump that knows more than the events told is not the last one; nor is there anything to take the place of.
        *self.doubt |= if arrival.dumped {
            self.loaded
        } else {
            has(flags::REPLACE) && !(A::FAMILY == Family::V4 && has(flags::APPEND))
        };
        if self.loaded
            && let Some(target) = table.alone(key, word, &self.paths.attrs, &self.paths.sets)
        {
            self.tell_target(key, Some(target));
        }
    }

    /// A prefix of `main` has lost its last route.
    fn removed_alone<A: Bits>(&mut self, table: &Table<A>, key: &Key<A>, number: u32) {
        if self.loaded && table.alone(key, number, &self.paths.attrs, &self.paths.sets).is_some() {
            self.tell_target(key, None);
        }
        self.paths.dropped.push(number);
        self.drop_attrs();
    }

    /// A route, or a leg of one, is gone.
    pub(super) fn remove<A: Bits>(&mut self, table: &mut Table<A>, route: &Route<'_>) {
        let Some((key, is_local)) = place(route) else { return };
        let attr = self.describe(route, None);
        let number = attr.and_then(|attr| self.paths.attrs.find(&attr));
        if let Some(number) = number.filter(|_| !is_local)
            && table.main.take_only(key, number)
        {
            return self.removed_alone(table, &key, number);
        }
        let old = table.level(is_local).routes(&key);
        if old.is_empty() {
            return;
        }
        let mut routes = std::mem::take(&mut self.paths.routes);
        old.clone_into(&mut routes);
        let exact = number.and_then(|number| routes.iter().position(|word| word & NUMBER == number));
        if let Some(at) = exact {
            self.paths.dropped.push(routes.remove(at) & NUMBER);
        } else if A::FAMILY == Family::V6 {
            self.remove_legs((is_local, key.prefix()), &mut routes, route, table.parity);
        } else {
            // The kernel names a route in full, so others of its place were not heard of rightly.
            let place = |word: &Word| self.paths.attrs.get(word & NUMBER).priority == route.priority;
            *self.doubt |= routes.iter().any(place);
        }
        if A::FAMILY == Family::V6 && matches!(fixed(route), Some(Action::Special(_))) {
            // Legs that are left may be told by another route of the class.
            let place = |word: &Word| self.paths.attrs.get(word & NUMBER).priority == route.priority;
            *self.doubt |= routes.iter().any(place);
        }
        if routes != table.level(is_local).routes(&key) {
            self.replace(table, is_local, key, &routes, false);
        }
        self.paths.routes = routes;
        self.drop_attrs();
    }

    /// An IPv6 route loses the legs that a message names.
    fn remove_legs(&mut self, place: Place, routes: &mut Vec<Word>, route: &Route<'_>, parity: Word) {
        let gone: Vec<Leg> = route.legs().map(|(leg, _)| leg).collect();
        let class = |attr: &Attr| attr.priority == route.priority;
        for at in 0..routes.len() {
            let attr = *self.paths.attrs.get(routes[at] & NUMBER);
            if !class(&attr) {
                continue;
            }
            let mut left: Vec<Leg> = match attr.action {
                Action::NextHops(number) if route.next_hop.is_none() && route.kind == RouteKind::Unicast => {
                    let legs = self.paths.sets.legs(number);
                    if gone.is_empty() || !gone.iter().all(|leg| legs.iter().any(|other| other.same_way(leg))) {
                        continue;
                    }
                    legs.iter().filter(|leg| !gone.iter().any(|other| other.same_way(leg))).copied().collect()
                }
                action if fixed(route).is_some_and(|expected| expected == action) => Vec::new(),
                _ => continue,
            };
            if let [one] = &mut left[..] {
                // The kernel writes one leg without a weight.
                one.weight = 1;
            }
            let old = if left.is_empty() {
                routes.remove(at)
            } else {
                let hops = self.number(Family::V6, &left);
                let action = Action::NextHops(hops);
                let number = self.paths.attrs.add(Attr { action, ..attr }, &mut self.paths.sets);
                self.paths.attrs.hold(number, || place);
                std::mem::replace(&mut routes[at], number | parity)
            };
            self.paths.dropped.push(old & NUMBER);
            return;
        }
        // One that is not understood may have lost the leg.
        *self.doubt |= routes.iter().any(|word| class(self.paths.attrs.get(word & NUMBER)));
    }

    /// Gives a prefix these routes, and tells where its packets go if that changes. `past`: next hops that have just died or
    /// revived count as they were.
    fn replace<A: Bits>(&mut self, table: &mut Table<A>, is_local: bool, key: Key<A>, routes: &[Word], past: bool) {
        if !self.loaded {
            table.store(is_local, key, routes);
            return;
        }
        let Paths { attrs, sets, .. } = &*self.paths;
        if !is_local && !past {
            let targets = table.targets_of(&key, routes, attrs, sets);
            table.store(false, key, routes);
            if targets[0] != targets[1] {
                self.tell_target(&key, targets[1]);
            }
            return;
        }
        let was = table.target(&key, attrs, sets, past);
        let covers =
            is_local && key.len < A::FAMILY.bits() && table.level(true).routes(&key).is_empty() != routes.is_empty();
        let within = if covers { table.within(&key, attrs, sets) } else { Vec::new() };
        table.store(is_local, key, routes);
        let now = table.target(&key, attrs, sets, false);
        if was != now {
            self.tell_target(&key, now);
        }
        for (key, was) in within {
            let now = table.target(&key, &self.paths.attrs, &self.paths.sets, false);
            if was != now {
                self.tell_target(&key, now);
            }
        }
    }

    fn drop_attrs(&mut self) {
        while let Some(number) = self.paths.dropped.pop() {
            if let Some(hops) = self.paths.attrs.release(number, &mut self.paths.sets) {
                self.emit(Event::NextHops { number: hops, now: super::event::NextHops::Free });
            }
        }
    }

    /// Takes away routes: of each of these prefixes those that `keep` does not keep; the others count as shown or not, as before.
    pub(super) fn purge<A: Bits>(
        &mut self,
        table: &mut Table<A>,
        keys: &[(bool, Key<A>)],
        keep: impl Fn(Word) -> bool,
    ) -> bool {
        let mut any = false;
        for (is_local, key) in keys {
            let mut routes = std::mem::take(&mut self.paths.routes);
            table.level(*is_local).routes(key).clone_into(&mut routes);
            let dropped = &mut self.paths.dropped;
            routes.retain(|word| {
                let kept = keep(*word);
                if !kept {
                    dropped.push(word & NUMBER);
                }
                kept
            });
            any |= !self.paths.dropped.is_empty();
            // What `main` has of the same prefix came first, and told it.
            let told = *is_local && keys.contains(&(false, *key));
            self.replace(table, *is_local, *key, &routes, !told);
            self.paths.routes = routes;
            self.drop_attrs();
        }
        any
    }

    /// The next hops of these numbers died or revived, and routes with such attributes are gone.
    pub(super) fn turn<A: Bits>(
        &mut self,
        table: &mut Table<A>,
        turned: &[u32],
        gone: &dyn Fn(&Sets, &Attr) -> bool,
    ) -> bool {
        let Paths { attrs, sets, .. } = &*self.paths;
        let gone = attrs.select(|attr| gone(sets, attr));
        let touched = attrs.select(|attr| matches!(attr.action, Action::NextHops(number) if turned.contains(&number)));
        let either: Vec<bool> = gone.iter().zip(&touched).map(|(gone, touched)| *gone || *touched).collect();
        if !either.contains(&true) {
            return false;
        }
        let keys = match attrs.places(&either) {
            Some(places) => table.having_at(&places, &either),
            None => table.having(&either),
        };
        self.purge(table, &keys, |word| !gone.get((word & NUMBER) as usize).is_some_and(|gone| *gone))
    }

    /// What a route says; `None` if it is one that the kernel is about to remove. Without an arrival nothing is numbered that is
    /// not known.
    fn describe(&mut self, route: &Route<'_>, arrival: Option<Arrival>) -> Option<Attr> {
        let attr = |action| Some(Attr { action, priority: route.priority, tos: route.tos, identity: route.identity });
        if let Some(action) = fixed(route) {
            // Such routes of one prefix differ in what does not matter, and go one by one.
            let identity = digest(route.identity, &route.ways().to_ne_bytes());
            return attr(action).map(|attr| Attr { identity, ..attr });
        }
        if let Some(id) = route.next_hop {
            let known = self.paths.sets.object(id).is_some();
            // Its next hop was removed while the dump went on.
            if arrival.is_some_and(|arrival| arrival.dumped && !known) {
                return None;
            }
            let number = self.paths.sets.find_object(id);
            let number =
                if arrival.is_some() { number.unwrap_or_else(|| self.give(Source::Object(id))) } else { number? };
            return attr(Action::NextHops(number));
        }
        if let Some(leg) = route.only_leg() {
            return attr(Action::NextHops(self.by_leg(route.family, leg, arrival)?));
        }
        let mut legs = std::mem::take(&mut self.paths.legs);
        legs.clear();
        legs.extend(route.legs().map(|(leg, _)| leg));
        let nowhere = legs.is_empty();
        // A leg that is dead, though its link is up, is one whose interface lost its addresses.
        let dead = |(leg, flags): (Leg, LegFlags)| {
            let port = self.interfaces.get(&leg.interface).map(|port| &port.value.shown);
            flags.dead
                && port.is_some_and(|port| port.up && (port.carrier || !port.ignore_linkdown[route.family as usize]))
        };
        if arrival.is_some() && legs.len() > 1 && route.legs().any(dead) {
            self.paths.legs = legs;
            return attr(Action::Special(Reason::NoAddress));
        }
        let number = if arrival.is_some() && !legs.is_empty() {
            let down = |leg: &Leg| self.interfaces.get(&leg.interface).is_some_and(|port| !port.value.shown.up);
            let leaving =
                arrival.is_some_and(|arrival| arrival.dumped) && route.family == Family::V4 && legs.iter().all(down);
            if leaving { None } else { Some(self.number(route.family, &legs)) }
        } else {
            self.paths.sets.find_legs(route.family, &legs)
        };
        self.paths.legs = legs;
        if nowhere { attr(Action::Special(Reason::Kind)) } else { attr(Action::NextHops(number?)) }
    }

    /// The number of a route's only leg.
    fn by_leg(&mut self, family: Family, leg: Leg, arrival: Option<Arrival>) -> Option<u32> {
        let Some(arrival) = arrival else { return self.paths.sets.find_legs(family, &[leg]) };
        let down = || self.interfaces.get(&leg.interface).is_some_and(|port| !port.value.shown.up);
        // The kernel is about to remove it.
        let leaving = arrival.dumped && family == Family::V4 && down();
        (!leaving).then(|| self.number(family, &[leg]))
    }

    fn number(&mut self, family: Family, legs: &[Leg]) -> u32 {
        match self.paths.sets.find_legs(family, legs) {
            Some(number) => number,
            None => self.give(Source::Legs(family, legs.into())),
        }
    }

    /// Gives next hops a number, and tells what they are.
    fn give(&mut self, source: Source) -> u32 {
        let number = self.paths.sets.add(source, self.interfaces);
        if self.loaded {
            let mut reason = None;
            if let Some(state) = self.paths.sets.state(number) {
                (self.sink)(Event::NextHops { number, now: state.as_event() });
                reason = if let State::Kernel(reason) = state { Some(*reason) } else { None };
            }
            reason.into_iter().for_each(|reason| self.tell(reason));
        }
        number
    }
}

/// The prefix of a route, and whether its table is `local`; `None` of tables and routes that are not kept.
fn place<A: Bits>(route: &Route<'_>) -> Option<(Key<A>, bool)> {
    let is_local = match route.table {
        RT_TABLE_LOCAL => true,
        RT_TABLE_MAIN => false,
        _ => return None,
    };
    let address = A::from_ip(route.address).filter(|_| !route.cloned)?;
    Some((Key { address: address.truncate(route.len), len: route.len }, is_local))
}

/// What a route does whose legs do not matter.
fn fixed(route: &Route<'_>) -> Option<Action> {
    let special = Action::Special;
    Some(match route.kind {
        _ if route.from_source => special(Reason::Source),
        _ if route.tos != 0 => special(Reason::Tos),
        _ if route.expires => special(Reason::Expires),
        // By an object that is a blackhole, it goes when that does.
        RouteKind::Blackhole if route.next_hop.is_some() => return None,
        RouteKind::Local => Action::Fixed(Target::Local),
        RouteKind::Blackhole => Action::Fixed(Target::Blackhole),
        RouteKind::Unreachable => Action::Fixed(Target::Unreachable),
        RouteKind::Prohibit => Action::Fixed(Target::Prohibit),
        RouteKind::Other => special(Reason::Kind),
        RouteKind::Unicast if route.mtu.is_some() => special(Reason::Mtu),
        RouteKind::Unicast if route.is_encapsulated() => special(Reason::Encapsulation),
        RouteKind::Unicast => return None,
    })
}

/// Where a route of this class begins, and where the next one would stand.
fn class(routes: &[Word], attrs: &Attrs, attr: &Attr) -> (usize, usize) {
    let start = routes.iter().position(|word| attrs.get(word & NUMBER).same_class(attr));
    let end = routes.iter().rposition(|word| attrs.get(word & NUMBER).same_class(attr));
    match (start, end) {
        (Some(start), Some(end)) => (start, end + 1),
        _ => {
            let at = routes.iter().position(|word| attrs.get(word & NUMBER).priority > attr.priority);
            (at.unwrap_or(routes.len()), at.unwrap_or(routes.len()))
        }
    }
}

/// Puts an IPv4 route where the kernel has it (`fib_table_insert`). Returns whether something must have been missed.
fn insert_v4(routes: &mut Vec<Word>, attrs: &Attrs, word: Word, arrival: Arrival, dropped: &mut Vec<u32>) -> bool {
    let attr = attrs.get(word & NUMBER);
    let known = routes.iter().position(|other| other & NUMBER == word & NUMBER);
    if arrival.dumped {
        // A dump shows them in order: this one stands behind those that it has shown.
        known.map(|at| routes.remove(at));
        let (start, end) = class(routes, attrs, attr);
        let shown = routes[start..end].iter().rposition(|other| other & PARITY == word & PARITY);
        routes.insert(start + shown.map_or(0, |at| at + 1), word);
        return false;
    }
    if let Some(at) = known {
        routes[at] = word;
        return false;
    }
    let (start, end) = class(routes, attrs, attr);
    let has = |flag| arrival.flags & flag != 0;
    if has(flags::APPEND) {
        routes.insert(end, word);
    } else if has(flags::REPLACE) {
        if start == end {
            routes.insert(end, word);
            return true;
        }
        dropped.push(std::mem::replace(&mut routes[start], word) & NUMBER);
    } else {
        if has(flags::EXCL) {
            dropped.extend(routes.drain(start..end).map(|word| word & NUMBER));
        }
        routes.insert(start, word);
    }
    false
}

/// Puts an IPv6 route where the kernel has it (`fib6_add_rt2node`). Returns whether something may have been missed.
fn insert_v6(
    routes: &mut Vec<Word>,
    attrs: &Attrs,
    sets: &Sets,
    word: Word,
    arrival: Arrival,
    dropped: &mut Vec<u32>,
) -> bool {
    let attr = attrs.get(word & NUMBER);
    if let Some(at) = routes.iter().position(|other| other & NUMBER == word & NUMBER) {
        routes[at] = word;
        return false;
    }
    let (start, end) = class(routes, attrs, attr);
    if !arrival.dumped && arrival.flags & flags::REPLACE != 0 {
        let others = end - start;
        // Of several, which one it was is found out by a dump; until then those that the kernel decides stay.
        let stays = |word: &Word| others > 1 && matches!(attrs.get(word & NUMBER).action, Action::Special(_));
        dropped.extend(routes.extract_if(start..end, |word| !stays(word)).map(|word| word & NUMBER));
        routes.insert(start, word);
        return others != 1;
    }
    // A route that got another leg comes with all of its legs.
    if let Action::NextHops(number) = attr.action {
        let legs = sets.legs(number);
        let grown = routes[start..end].iter().position(|word| match attrs.get(word & NUMBER).action {
            Action::NextHops(number) => {
                let old = sets.legs(number);
                !old.is_empty() && old.iter().all(|leg| legs.iter().any(|other| other.same_way(leg)))
            }
            _ => false,
        });
        if let Some(at) = grown {
            dropped.push(std::mem::replace(&mut routes[start + at], word) & NUMBER);
            return false;
        }
    }
    routes.insert(end, word);
    false
}

const RT_TABLE_MAIN: u32 = 254;
const RT_TABLE_LOCAL: u32 = 255;
/// The bits of a word are its number and its parity.
const _: () = assert!(PARITY & NUMBER == 0);
