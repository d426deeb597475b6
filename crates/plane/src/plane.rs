//! A forwarding table, and what the kernel's tables mean there.

use crate::hosts::Hosts;
use crate::neighbours::{Neighbours, may_be_host};
use crate::numbers::Numbers;
use crate::ports::Ports;
use crate::routes::Routes;
use crate::ways::Ways;
use crate::{Error, Port, Report};
use kernel::{Event, Family, Mirror, NextHops, Reason};
use lpm::NextHop;
use router::{LiveFib, Policy, Refusal, Target};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

/// A [`LiveFib`] that follows the kernel's tables. It has no thread, no socket and no clock: it is given events, and the time.
///
/// Each number of next hops ([`kernel::Target::NextHops`]) has a next hop of the table, whose word is that of its only neighbour, or a
/// group's: what changes touches one word for each number, not the routes that go there. An on-link route leads to the kernel, which
/// asks for its neighbours; each that has answered gets a host route.
///
/// Events may come in any order; until what one refers to is known, its packets are the kernel's.
///
/// See the crate's documentation for an example.
#[derive(Debug)]
pub struct Plane {
    pub(crate) fib: LiveFib,
    pub(crate) fixed: Fixed,
    pub(crate) ports: Ports,
    pub(crate) neighbours: Neighbours,
    pub(crate) ways: Ways,
    pub(crate) numbers: Numbers,
    pub(crate) hosts: Hosts,
    pub(crate) routes: Routes,
    pub(crate) reasons: BTreeSet<Reason>,
    /// Why all packets of a family go to the kernel.
    pub(crate) bypass: [Option<Reason>; 2],
    /// There are IPsec policies, so all packets go to the kernel.
    pub(crate) ipsec: bool,
    /// What flows of IPv4 and IPv6 are to be told apart by.
    pub(crate) hash_policies: [Option<u32>; 2],
}

/// The next hops that refuse, by what for.
#[derive(Debug)]
pub(crate) struct Fixed {
    pub(crate) for_host: NextHop,
    pub(crate) blackhole: NextHop,
    pub(crate) unreachable: NextHop,
    pub(crate) prohibited: NextHop,
    pub(crate) left_to_host: NextHop,
}

impl Fixed {
    fn add(fib: &mut LiveFib) -> Result<Self, router::Error> {
        let mut add = |refusal| fib.add_next_hop(Target::Refused(refusal));
        Ok(Self {
            for_host: add(Refusal::ForHost)?,
            blackhole: add(Refusal::Blackhole)?,
            unreachable: add(Refusal::Unreachable)?,
            prohibited: add(Refusal::Prohibited)?,
            left_to_host: add(Refusal::LeftToHost)?,
        })
    }
}

impl Plane {
    /// Creates one of a table without routes, whose ports are these, in this order. Until the interface of a port is known, what comes
    /// in there is left to the kernel.
    ///
    /// # Errors
    ///
    /// [`Error::Router`] if the table has fewer ports, or room for less than five next hops.
    pub fn new(mut fib: LiveFib, ports: &[Port]) -> Result<Self, Error> {
        let fixed = Fixed::add(&mut fib)?;
        let mut plane = Self {
            fib,
            fixed,
            ports: Ports::new(ports),
            neighbours: Neighbours::default(),
            ways: Ways::default(),
            numbers: Numbers::default(),
            hosts: Hosts::default(),
            routes: Routes::default(),
            reasons: BTreeSet::new(),
            bypass: [None; 2],
            ipsec: false,
            hash_policies: [None; 2],
        };
        plane.switch_families()?;
        Ok(plane)
    }

    /// Takes over all that a mirror holds, once it is loaded, in the place of all that the plane was told; afterwards, [`Self::apply`] what
    /// the mirror tells. Much faster than route by route.
    pub fn load(&mut self, mirror: &Mirror) {
        for family in [Family::V4, Family::V6] {
            self.bypass[family as usize] = mirror.bypass(family);
        }
        let indices: BTreeSet<u32> = mirror.interfaces().map(|(index, _)| index).collect();
        self.ports.beyond(&indices).into_iter().for_each(|index| self.set_interface(index, None));
        mirror.interfaces().for_each(|(index, now)| self.set_interface(index, Some(now)));
        let keys: BTreeSet<(u32, IpAddr)> = mirror.neighbours().map(|(index, address, _)| (index, address)).collect();
        for (interface, address) in self.neighbours.beyond(&keys) {
            self.set_neighbour(interface, address, None);
        }
        for (interface, address, now) in mirror.neighbours() {
            self.set_neighbour(interface, address, Some(now));
        }
        mirror.next_hops().for_each(|(number, now)| self.set_number(number, now));
        self.load_routes(mirror);
        let numbers: BTreeSet<u32> = mirror.next_hops().map(|(number, _)| number).collect();
        self.numbers.beyond(&numbers).into_iter().for_each(|number| self.set_number(number, NextHops::Free));
        keys.into_iter().filter(|(_, address)| may_be_host(*address)).for_each(|(_, address)| self.set_host(address));
        self.all_families();
    }

    /// Follows a change.
    pub fn apply(&mut self, event: Event<'_>) {
        match event {
            Event::Route { prefix, to } => self.set_route(prefix, to),
            Event::NextHops { number, now } => self.set_number(number, now),
            Event::Neighbour { interface, address, now } => self.set_neighbour(interface, address, now),
            Event::Interface { index, now } => self.set_interface(index, now),
            Event::Bypass { family, reason } => {
                self.bypass[family as usize] = reason;
                self.all_families();
            }
            Event::Unsupported(reason) => drop(self.reasons.insert(reason)),
            _ => {}
        }
    }

    /// Does what is due at a time, counted from any start: tries again what has found no room, and has one packet a second for each STALE
    /// neighbour go by the kernel, which then asks whether it is still there; of at most 200 with a call, in turn. Neighbours in groups
    /// [`Self::take_asked`] may name instead. Call it once a second, or after [`Self::next_tick`]: then the packets for many neighbours
    /// are spread over the second.
    pub fn tick(&mut self, now: Duration) {
        self.retry_ports();
        self.retry_numbers();
        self.retry_routes();
        self.retry_hosts();
        self.probe(now);
        self.mark_unresolved(now);
    }

    /// Leaves all packets to the kernel while there are IPsec policies: what they are to be held to, encrypted or dropped by is not looked at
    /// here.
    pub fn set_ipsec(&mut self, policies: bool) {
        if policies != self.ipsec {
            self.ipsec = policies;
            self.all_families();
        }
    }

    /// As [`Self::set_ipsec`], when nobody follows the kernel any more.
    pub(crate) fn leave_all(&mut self) {
        self.ipsec = true;
        self.all_families();
    }

    /// Tells flows apart as the kernel's settings `net.ipv4.fib_multipath_hash_policy` and that of IPv6 say, where they are known: by 0 or 1,
    /// and by 0 in the place of others. The report says so then.
    pub fn set_hash_policies(&mut self, policies: [Option<u32>; 2]) {
        if policies == self.hash_policies {
            return;
        }
        self.hash_policies = policies;
        self.fib.set_policies(policies.map(|policy| if policy == Some(1) { Policy::Ports } else { Policy::Addresses }));
    }

    /// When [`Self::tick`] has something to do next.
    #[must_use]
    pub fn next_tick(&self) -> Duration {
        if self.is_waiting() || self.neighbours.has_stale() {
            Duration::from_millis(50)
        } else {
            Duration::from_secs(1)
        }
    }

    /// Returns whether something has found no room, and waits for it.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.ports.is_waiting() || self.numbers.is_waiting() || self.routes.is_waiting() || self.hosts.is_waiting()
    }

    /// Returns what the table holds and what it leaves to the kernel.
    #[must_use]
    pub fn report(&self) -> Report {
        self.make_report()
    }
}
