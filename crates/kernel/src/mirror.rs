//! The kernel's tables as its messages tell them, and what changes for a data path.
//!
//! A [`Mirror`] is a function of the messages that it is given: it reads no socket and no clock. What the kernel does without a
//! message (`fib_sync_down_dev`, `nexthop_flush_dev`), it does too, and is in doubt afterwards until a dump has shown everything.

mod attrs;
mod event;
mod hops;
mod links;
mod objects;
mod table;
mod work;

pub use event::{Event, Interface, Neighbour, NextHops, Prefix, Reason, Target};

use crate::message::{Address, Body, Dump, Family, Message, NeighbourMessage, Rule, flags};
use hashbrown::HashMap;
use hops::{Interfaces, Object};
use links::Settings;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use table::{PARITY, Table, Wide};
use work::{Arrival, Paths, Work};

/// Which interfaces are ports of the data path. What goes by others is left to the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ports {
    /// All but loopback.
    All,
    /// Those of these indices, and sub-interfaces on them with VLAN tags of type 0x8100.
    Only(BTreeSet<u32>),
}

/// A value, and the dump or event that has shown it last.
#[derive(Clone, Debug)]
struct Known<T> {
    value: T,
    seen: u32,
}

/// The kernel's tables.
///
/// ```
/// use kernel::{Dump, Mirror, Ports};
///
/// let mut mirror = Mirror::new(Ports::All);
/// for dump in Dump::ALL {
///     mirror.begin(dump);
///     // Here come the messages that the kernel answers with.
///     mirror.finish(dump, &mut |event| println!("{event:?}"));
/// }
/// mirror.load(&mut |event| println!("{event:?}"));
/// assert_eq!(mirror.routes().count(), 0);
/// ```
#[derive(Debug)]
pub struct Mirror {
    ports: Ports,
    interfaces: Interfaces,
    settings: BTreeMap<u32, [Settings; 2]>,
    /// `net.ipv6.conf.all.forwarding`, which decides for all interfaces.
    forwarding_v6: bool,
    /// `net.ipv4.conf.all.ignore_routes_with_linkdown`, which counts beside that of an interface.
    ignore_linkdown_v4: bool,
    /// That of `default`, which the kernel copies in silence to interfaces that have none of their own.
    default_linkdown_v4: bool,
    addresses: BTreeMap<Address, u32>,
    neighbours: HashMap<(u32, IpAddr), Known<Neighbour>>,
    rules: Vec<Known<Rule>>,
    /// Whether a dump of rules goes on.
    dumps_rules: bool,
    bypass: [Option<Reason>; 2],
    paths: Paths,
    v4: Table<u32>,
    v6: Table<Wide>,
    /// The dump that goes on, or went on last, of each table but routes.
    generation: u32,
    loaded: bool,
    doubt: bool,
}

impl Mirror {
    /// An empty one.
    #[must_use]
    pub fn new(ports: Ports) -> Self {
        Self {
            ports,
            interfaces: Interfaces::new(),
            settings: BTreeMap::new(),
            forwarding_v6: false,
            ignore_linkdown_v4: false,
            default_linkdown_v4: false,
            addresses: BTreeMap::new(),
            neighbours: HashMap::new(),
            rules: Vec::new(),
            dumps_rules: false,
            bypass: [None; 2],
            paths: Paths::default(),
            v4: Table::new(),
            v6: Table::new(),
            generation: 0,
            loaded: false,
            doubt: false,
        }
    }

    /// Follows a message. `dumped`: it is part of a dump that has begun. Until the tables are loaded, nothing is told.
    pub fn apply(&mut self, message: &Message<'_>, dumped: bool, sink: &mut dyn FnMut(Event<'_>)) {
        let arrival = Arrival { flags: message.flags & !flags::MULTI, dumped };
        match &message.body {
            Body::NewRoute(route) => {
                let (mut work, v4, v6) = self.work(sink);
                match route.family {
                    Family::V4 => work.add(v4, route, arrival),
                    Family::V6 => work.add(v6, route, arrival),
                }
            }
            Body::DelRoute(route) => {
                let (mut work, v4, v6) = self.work(sink);
                match route.family {
                    Family::V4 => work.remove(v4, route),
                    Family::V6 => work.remove(v6, route),
                }
            }
            Body::NewNeighbour(neighbour) => self.new_neighbour(neighbour, sink),
            Body::DelNeighbour(neighbour) => self.forget_neighbour((neighbour.interface, neighbour.address), sink),
            Body::NewNextHop(hop) => self.new_object(hop.id, Object::from_message(hop), dumped, sink),
            Body::DelNextHop(hop) => self.remove_objects(&[hop.id], sink),
            Body::NewLink(link) => self.new_link(link, sink),
            Body::DelLink(link) => self.remove_link(link.index, sink),
            Body::NewAddress(address) => self.new_address(*address, sink),
            Body::DelAddress(address) => self.remove_address(address, sink),
            Body::NewNetconf(netconf) => self.configure(netconf, sink),
            Body::NewRule(rule) => self.new_rule(*rule, dumped, sink),
            Body::DelRule(rule) => self.remove_rule(rule, sink),
            Body::Overrun => self.doubt = true,
            Body::Done(_) | Body::Error(_) | Body::Other => {}
        }
    }

    /// A dump begins. One dump at a time goes on; one that is not finished counts for nothing.
    pub fn begin(&mut self, dump: Dump) {
        self.dumps_rules = matches!(dump, Dump::Rules(_));
        match dump {
            Dump::Routes(Family::V4) => self.v4.begin(),
            Dump::Routes(Family::V6) => self.v6.begin(),
            _ => self.generation = self.generation.wrapping_add(1),
        }
    }

    /// A dump is complete: what it has not shown, and no event since its begin, is gone. If there is such, a doubt stays: the kernel may have
    /// passed over what was behind entries that went away meanwhile.
    pub fn finish(&mut self, dump: Dump, sink: &mut dyn FnMut(Event<'_>)) {
        self.dumps_rules = false;
        let generation = self.generation;
        match dump {
            Dump::Links => {
                let gone = self.interfaces.iter().filter(|(_, known)| known.seen != generation);
                let gone: Vec<u32> = gone.map(|(index, _)| *index).collect();
                gone.into_iter().for_each(|index| self.remove_link(index, sink));
            }
            Dump::Netconf(_) => {}
            Dump::Addresses => {
                let gone = self.addresses.iter().filter(|(_, seen)| **seen != generation);
                let gone: Vec<Address> = gone.map(|(address, _)| *address).collect();
                self.doubt |= self.loaded && !gone.is_empty();
                gone.iter().for_each(|address| self.remove_address(address, sink));
            }
            Dump::NextHops => {
                let gone = self.paths.sets.objects().filter(|(_, known)| known.seen != generation);
                let gone: Vec<u32> = gone.map(|(id, _)| id).collect();
                self.doubt |= self.loaded && !gone.is_empty();
                self.remove_objects(&gone, sink);
            }
            Dump::Neighbours => {
                let gone = self.neighbours.iter().filter(|(_, known)| known.seen != generation);
                let gone: Vec<_> = gone.map(|(key, _)| *key).collect();
                self.doubt |= self.loaded && !gone.is_empty();
                gone.into_iter().for_each(|key| self.forget_neighbour(key, sink));
            }
            Dump::Rules(family) => {
                let count = self.rules.len();
                self.rules.retain(|known| known.value.family != family || known.seen == generation);
                self.doubt |= self.loaded && self.rules.len() < count;
                self.judge_rules(sink);
            }
            Dump::Routes(family) => {
                self.sweep(family, sink);
                self.find_addresses(family, sink);
            }
        }
    }

    fn sweep(&mut self, family: Family, sink: &mut dyn FnMut(Event<'_>)) {
        let (mut work, v4, v6) = self.work(sink);
        let any = match family {
            Family::V4 => {
                let (keys, parity) = (v4.unseen(), v4.parity);
                work.purge(v4, &keys, |word| word & PARITY == parity)
            }
            Family::V6 => {
                let (keys, parity) = (v6.unseen(), v6.parity);
                work.purge(v6, &keys, |word| word & PARITY == parity)
            }
        };
        *work.doubt |= any && work.loaded;
    }

    /// All tables have been read once. From now on changes are told; what there is already, [`Mirror::routes`],
    /// [`Mirror::next_hops`], [`Mirror::neighbours`] and [`Mirror::interfaces`] return. Only [`Event::Unsupported`] and
    /// [`Event::Bypass`] are told here.
    pub fn load(&mut self, sink: &mut dyn FnMut(Event<'_>)) {
        if std::mem::replace(&mut self.loaded, true) {
            return;
        }
        self.doubt = false;
        let mut reasons: BTreeSet<Reason> = BTreeSet::new();
        let kernel = |target| if let Target::Kernel(reason) = target { Some(reason) } else { None };
        let routed = self.routes().filter(|(prefix, _)| !prefix.is_never_routed());
        reasons.extend(routed.filter_map(|(_, target)| kernel(target)));
        reasons.extend(self.next_hops().filter_map(|(_, hops)| match hops {
            NextHops::Kernel(reason) => Some(reason),
            _ => None,
        }));
        let (mut work, ..) = self.work(sink);
        reasons.into_iter().for_each(|reason| work.tell(reason));
        self.bypass = [None; 2];
        self.judge_rules(sink);
    }

    /// Returns whether all tables have been read once.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.loaded
    }

    /// Returns whether the tables may differ from the kernel's, and forgets that: who asks has them dumped anew, all of
    /// [`Dump::ALL`]. A dump that shows what was not known leaves a doubt too.
    pub fn take_doubt(&mut self) -> bool {
        std::mem::take(&mut self.doubt)
    }

    /// Something was missed: messages were lost, or cannot be read.
    pub fn cast_doubt(&mut self) {
        self.doubt = true;
    }

    /// Returns whether the tables may differ from the kernel's.
    #[must_use]
    pub fn is_in_doubt(&self) -> bool {
        self.doubt
    }

    /// Every prefix, and where its packets go.
    pub fn routes(&self) -> impl Iterator<Item = (Prefix, Target)> + '_ {
        let Paths { attrs, sets, .. } = &self.paths;
        self.v4.targets(attrs, sets).chain(self.v6.targets(attrs, sets))
    }

    /// Every number in use, and what its next hops are.
    pub fn next_hops(&self) -> impl Iterator<Item = (u32, NextHops<'_>)> + '_ {
        self.paths.sets.iter().map(|(number, state)| (number, state.as_event()))
    }

    /// Every neighbour: its interface, its address and what is known.
    pub fn neighbours(&self) -> impl Iterator<Item = (u32, IpAddr, Neighbour)> + '_ {
        self.neighbours.iter().map(|((interface, address), known)| (*interface, *address, known.value))
    }

    /// What is known of a neighbour.
    pub(crate) fn neighbour(&self, interface: u32, address: IpAddr) -> Option<Neighbour> {
        self.neighbours.get(&(interface, address)).map(|known| known.value)
    }

    /// Every interface by index.
    pub fn interfaces(&self) -> impl Iterator<Item = (u32, &Interface)> + '_ {
        self.interfaces.iter().map(|(index, known)| (*index, &known.value.shown))
    }

    /// Why all packets of a family go to the kernel, if they do.
    #[must_use]
    pub fn bypass(&self, family: Family) -> Option<Reason> {
        self.bypass[family as usize]
    }

    /// Prefixes of table `main`: IPv4, IPv6.
    #[must_use]
    pub fn prefix_counts(&self) -> (usize, usize) {
        (self.v4.len(), self.v6.len())
    }

    fn work<'a>(
        &'a mut self,
        sink: &'a mut dyn FnMut(Event<'_>),
    ) -> (Work<'a>, &'a mut Table<u32>, &'a mut Table<Wide>) {
        let Self { paths, interfaces, loaded, doubt, v4, v6, .. } = self;
        (Work { paths, interfaces, loaded: *loaded, doubt, sink }, v4, v6)
    }

    fn new_neighbour(&mut self, message: &NeighbourMessage, sink: &mut dyn FnMut(Event<'_>)) {
        let NeighbourMessage { interface, address, mac, state } = *message;
        // Of groups and broadcasts the kernel makes entries without a word, and the data path sends to none.
        if address.is_multicast() || mac.is_some_and(|mac| mac[0] & 1 != 0) {
            return self.forget_neighbour((interface, address), sink);
        }
        let now = Neighbour { mac, state };
        let known = Known { value: now, seen: self.generation };
        let old = self.neighbours.insert((interface, address), known);
        if self.loaded && old.is_none_or(|old| old.value != now) {
            sink(Event::Neighbour { interface, address, now: Some(now) });
        }
    }

    fn forget_neighbour(&mut self, key: (u32, IpAddr), sink: &mut dyn FnMut(Event<'_>)) {
        if self.neighbours.remove(&key).is_some() && self.loaded {
            sink(Event::Neighbour { interface: key.0, address: key.1, now: None });
        }
    }

    /// A rule may be there several times: an event tells of one more, a dump shows each.
    fn new_rule(&mut self, rule: Rule, dumped: bool, sink: &mut dyn FnMut(Event<'_>)) {
        let seen = self.generation;
        match self.rules.iter_mut().find(|known| dumped && known.value == rule && known.seen != seen) {
            Some(known) => known.seen = seen,
            None => {
                // A dump that goes on may show, too, what an event tells.
                self.doubt |= if dumped { self.loaded } else { self.dumps_rules };
                self.rules.push(Known { value: rule, seen });
            }
        }
        self.judge_rules(sink);
    }

    fn remove_rule(&mut self, rule: &Rule, sink: &mut dyn FnMut(Event<'_>)) {
        match self.rules.iter().position(|known| known.value == *rule) {
            Some(at) => drop(self.rules.remove(at)),
            None => self.doubt = true,
        }
        self.doubt |= self.dumps_rules;
        self.judge_rules(sink);
    }

    /// A family goes to the kernel unless its rules are those of every system: `local` first, then `main`, then for IPv4 a table
    /// that nothing is in. Where there are VRFs, `local` has another place than 0.
    fn judge_rules(&mut self, sink: &mut dyn FnMut(Event<'_>)) {
        if !self.loaded {
            return;
        }
        for family in [Family::V4, Family::V6] {
            let rules =
                self.rules.iter().map(|known| &known.value).filter(|rule| rule.family == family && !rule.l3mdev);
            let first = |table| rules.clone().filter(|rule| rule.table == table).map(|rule| rule.priority).min();
            let [local, main, last] = [255, 254, 253].map(first);
            let odd = rules.clone().any(|rule| !rule.plain || !matches!(rule.table, 253..=255));
            let usual = local.is_some() && main.is_some() && local < main && last.is_none_or(|last| Some(last) > main);
            let reason = (odd || !usual).then_some(Reason::Rules);
            if std::mem::replace(&mut self.bypass[family as usize], reason) != reason {
                sink(Event::Bypass { family, reason });
            }
        }
    }
}
