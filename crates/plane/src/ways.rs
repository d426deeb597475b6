//! Ways: an interface and a gateway, and the words that show where they lead.

use crate::Plane;
use hashbrown::HashMap;
use lpm::NextHop;
use router::{MacAddress, Neighbour, Refusal, Target};
use std::net::IpAddr;

/// An interface, and the gateway there; without one, the destination is the neighbour.
pub(crate) type Key = (u32, Option<IpAddr>);

/// Those that something leads to.
#[derive(Debug, Default)]
pub(crate) struct Ways {
    ways: HashMap<Key, Way>,
}

#[derive(Debug)]
struct Way {
    target: Target,
    /// Numbers whose only way it is.
    numbers: Vec<u32>,
    /// Its own next hop, for groups and host routes, and how many of them there are.
    leg: Option<NextHop>,
    uses: u32,
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
        let way = || Way { target, numbers: Vec::new(), leg: None, uses: 0 };
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
        let Some(way) = self.ways.ways.get(&key) else { return };
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
    }

    /// Has the next packet by a way go to the kernel: one for each of the words that show it, of which there are mostly one or two, and of
    /// many some in `turn`.
    pub(crate) fn probe_way(&mut self, key: Key, turn: usize) {
        let Some(way) = self.ways.ways.get(&key) else { return };
        let words = way.numbers.iter().filter_map(|number| self.numbers.hop(*number)).chain(way.leg);
        let words: Vec<NextHop> = words.collect();
        let start = turn.checked_rem(words.len()).unwrap_or(0);
        for hop in words.iter().cycle().skip(start).take(words.len().min(WORDS_PROBED)) {
            let marked = self.fib.probe(*hop);
            debug_assert!(marked.is_ok(), "{marked:?}");
        }
    }
}

/// The words of a neighbour that are marked at once at most.
const WORDS_PROBED: usize = 8;
