//! Ways: an interface and a gateway, and the words that show where they lead.

use crate::Plane;
use crate::neighbours::AT_ONCE;
use hashbrown::HashMap;
use lpm::NextHop;
use router::{MacAddress, Neighbour, Refusal, Target};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

/// An interface, and the gateway there; without one, the destination is the neighbour.
pub(crate) type Key = (u32, Option<IpAddr>);

/// Those that something leads to.
#[derive(Debug, Default)]
pub(crate) struct Ways {
    ways: HashMap<Key, Way>,
    /// Neighbours that the kernel is to ask for.
    asked: BTreeSet<(u32, IpAddr)>,
    /// When those are marked again that are not resolved.
    next_marks: Duration,
}

#[derive(Debug)]
struct Way {
    target: Target,
    /// Numbers whose only way it is.
    numbers: Vec<u32>,
    /// Its own next hop, for groups and host routes, and how many of them there are.
    leg: Option<NextHop>,
    uses: u32,
    /// Whether that has been marked since it was written: if it is marked no longer, a packet has gone there.
    marked: bool,
}

impl Ways {
    /// The interfaces that they are by.
    pub(crate) fn interfaces(&self) -> BTreeSet<u32> {
        self.ways.keys().map(|(interface, _)| *interface).collect()
    }
}

impl Plane {
    fn resolve(&self, (interface, gateway): Key) -> Target {
        let Some(port) = self.ports.number(interface) else { return Target::Refused(Refusal::LeftToHost) };
        let mac = gateway.and_then(|gateway| self.neighbours.mac(interface, gateway));
        mac.map_or(Target::Refused(Refusal::Unresolved), |mac| {
            Target::Neighbour(Neighbour { port, mac: MacAddress(mac) })
        })
    }

    fn way(&mut self, key: Key) -> &mut Way {
        let target = self.resolve(key);
        let way = || Way { target, numbers: Vec::new(), leg: None, uses: 0, marked: false };
        self.ways.ways.entry(key).or_insert_with(way)
    }

    fn drop_unused(&mut self, key: Key) {
        if self.ways.ways.get(&key).is_some_and(|way| way.numbers.is_empty() && way.leg.is_none()) {
            self.ways.ways.remove(&key);
        }
    }

    /// A number has this way only. Returns where it leads.
    pub(crate) fn join_way(&mut self, key: Key, number: u32) -> Target {
        let way = self.way(key);
        way.numbers.push(number);
        way.target
    }

    pub(crate) fn leave_way(&mut self, key: Key, number: u32) {
        if let Some(way) = self.ways.ways.get_mut(&key) {
            let at = way.numbers.iter().position(|other| *other == number);
            at.map(|at| way.numbers.swap_remove(at));
        }
        self.drop_unused(key);
    }

    /// The next hop of a way, once more in use.
    pub(crate) fn hold_leg(&mut self, key: Key) -> Result<NextHop, router::Error> {
        let Way { target, leg, .. } = *self.way(key);
        let added = leg.map_or_else(|| self.fib.add_next_hop(target), Ok);
        if let (Ok(leg), Some(way)) = (&added, self.ways.ways.get_mut(&key)) {
            way.leg = Some(*leg);
            way.uses += 1;
        }
        self.drop_unused(key);
        added
    }

    /// Nothing leads any more to the next hop of a way from there where it was held.
    pub(crate) fn release_leg(&mut self, key: Key) {
        let Some(way) = self.ways.ways.get_mut(&key) else { return };
        way.uses = way.uses.saturating_sub(1);
        if way.uses == 0
            && let Some(leg) = way.leg.take()
        {
            way.marked = false;
            let removed = self.fib.remove_next_hop(leg);
            debug_assert!(removed.is_ok(), "{key:?}: {removed:?}");
        }
        self.drop_unused(key);
    }

    /// Finds out anew where a way leads, and writes the words that show it if that has changed.
    pub(crate) fn update_way(&mut self, key: Key) {
        if !self.ways.ways.contains_key(&key) {
            return;
        }
        let target = self.resolve(key);
        let Some(way) = self.ways.ways.get_mut(&key).filter(|way| way.target != target) else { return };
        way.target = target;
        self.write_way(key);
    }

    /// Writes the words that show a way, without marks to be probed.
    pub(crate) fn write_way(&mut self, key: Key) {
        let Some(way) = self.ways.ways.get_mut(&key) else { return };
        way.marked = false;
        for hop in way.numbers.iter().filter_map(|number| self.numbers.hop(*number)).chain(way.leg) {
            // There is such a next hop, and the target's port is there.
            let written = self.fib.set_next_hop(hop, way.target);
            debug_assert!(written.is_ok(), "{written:?}");
        }
    }

    /// Finds out anew where the ways by an interface lead.
    pub(crate) fn update_ways_by(&mut self, interface: u32) {
        let keys: Vec<Key> = self.ways.ways.keys().filter(|(by, _)| *by == interface).copied().collect();
        keys.into_iter().for_each(|key| self.update_way(key));
        self.update_groups_by(interface);
    }

    /// Has the next packet by a way go to the kernel: one for each of the words that show it, of which there are mostly one or two, and of
    /// many some in `turn`. As to its own next hop, [`Self::mark_leg`].
    pub(crate) fn probe_way(&mut self, key: Key, turn: usize) {
        self.mark_leg(key);
        let Some(way) = self.ways.ways.get(&key) else { return };
        let words: Vec<NextHop> = way.numbers.iter().filter_map(|number| self.numbers.hop(*number)).collect();
        let start = turn.checked_rem(words.len()).unwrap_or(0);
        for hop in words.iter().cycle().skip(start).take(words.len().min(WORDS_PROBED)) {
            let marked = self.fib.probe(*hop);
            debug_assert!(marked.is_ok(), "{marked:?}");
        }
    }

    /// Marks the own next hop of a way. If a packet has taken the last mark off, the kernel is to ask for the neighbour: what goes by a
    /// group leaves to it nevertheless, and of what goes to the kernel, that may choose another member of the group.
    fn mark_leg(&mut self, key: Key) {
        let Some(way) = self.ways.ways.get_mut(&key) else { return };
        let may_be_marked = !matches!(way.target, Target::Refused(refusal) if refusal != Refusal::Unresolved);
        let Some(leg) = way.leg.filter(|leg| may_be_marked && !self.fib.is_marked(*leg)) else { return };
        if std::mem::replace(&mut way.marked, true) {
            self.ask(key);
        }
        let marked = self.fib.probe(leg);
        debug_assert!(marked.is_ok(), "{marked:?}");
    }

    /// Once a second, marks the own next hops of ways whose neighbour is not resolved.
    pub(crate) fn mark_unresolved(&mut self, now: Duration) {
        if now < self.ways.next_marks {
            return;
        }
        self.ways.next_marks = now + Duration::from_secs(1);
        let is_unresolved = |way: &Way| way.leg.is_some() && way.target == Target::Refused(Refusal::Unresolved);
        let ways = self.ways.ways.iter().filter(|(_, way)| is_unresolved(way));
        let keys: Vec<Key> = ways.map(|(key, _)| *key).collect();
        keys.into_iter().for_each(|key| self.mark_leg(key));
    }

    /// Has the kernel ask for the neighbour of a way, if the way has its own next hop.
    pub(crate) fn ask(&mut self, key: Key) {
        let has_leg = self.ways.ways.get(&key).is_some_and(|way| way.leg.is_some());
        if let (interface, Some(gateway)) = key
            && has_leg
        {
            self.ways.asked.insert((interface, gateway));
        }
    }

    /// Returns neighbours by interface and address that packets go to, by groups or as the last hop, and that are STALE or not resolved:
    /// each once a second, 200 with a call. Who calls it has the kernel ask for them; see [`Self::set_asking`].
    pub fn take_asked(&mut self) -> Vec<(u32, IpAddr)> {
        std::iter::from_fn(|| self.ways.asked.pop_first()).take(AT_ONCE).collect()
    }

    /// Says that the kernel is asked for the neighbours of [`Self::take_asked`]; at first it is not. Then no packet to a STALE member of a
    /// group goes by the kernel, which may choose another member.
    pub fn set_asking(&mut self, asking: bool) {
        self.fib.set_members_pass(asking);
    }
}

/// The words of a neighbour that are marked at once at most.
const WORDS_PROBED: usize = 8;
