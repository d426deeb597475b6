//! Random events in any order: what a forwarder does with a frame is what a naive model of the kernel's tables says.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Asked, Fate, packet};
use kernel::{Event, Family, Interface, Leg, Neighbour, NextHops, Prefix, Reason, Target};
use plane::{Plane, Port};
use proptest::prelude::*;
use proptest::sample::select;
use router::{LiveConfig, LiveFib, Refusal};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

/// What a number is told to be.
#[derive(Clone, Debug)]
enum Hops {
    Forward(Vec<Leg>),
    Blackhole,
    Kernel,
    Dead,
    Free,
}

#[derive(Clone, Debug)]
enum Step {
    Route(Prefix, Option<Target>),
    NextHops(u32, Hops),
    Neighbour(u32, IpAddr, Option<Neighbour>),
    Interface(u32, Option<Interface>),
    Bypass(Family, bool),
    Tick,
}

const PORTS: [&str; 2] = ["p0", "p1"];
const CAP: u16 = 1200;
const MAC: [u8; 6] = [2, 0, 0, 0, 1, 0];
const ADDRESSES: [&str; 14] = [
    "10.0.0.1",
    "10.0.0.2",
    "10.0.1.1",
    "10.0.1.2",
    "10.1.0.1",
    "10.1.0.9",
    "20.0.0.1",
    "fd00::1",
    "fd00::2",
    "fd00:1::1",
    "fd00:1::9",
    "fd20::1",
    "fe80::1",
    "fe80::2",
];
const PREFIXES: [(&str, u8); 16] = [
    ("0.0.0.0", 0),
    ("10.0.0.0", 8),
    ("10.0.0.0", 24),
    ("10.0.0.0", 31),
    ("10.0.0.1", 32),
    ("10.0.1.0", 24),
    ("10.0.1.2", 32),
    ("10.1.0.0", 16),
    ("20.0.0.0", 8),
    ("::", 0),
    ("fd00::", 16),
    ("fd00::", 64),
    ("fd00::1", 128),
    ("fd00:1::", 64),
    ("fd00:1::9", 128),
    ("fd20::", 32),
];
const NUMBERS: u32 = 6;

/// The tables as they are told.
#[derive(Clone, Debug, Default)]
struct Model {
    routes: BTreeMap<(IpAddr, u8), Target>,
    numbers: BTreeMap<u32, Hops>,
    neighbours: BTreeMap<(u32, IpAddr), Neighbour>,
    interfaces: BTreeMap<u32, Interface>,
    /// The interfaces that were found for the ports.
    found: [Option<u32>; 2],
    ever_found: [bool; 2],
    bypass: [bool; 2],
}

fn holds((first, len): &(IpAddr, u8), address: IpAddr) -> bool {
    match (*first, address) {
        (IpAddr::V4(one), IpAddr::V4(other)) => (one.to_bits() ^ other.to_bits()).leading_zeros() >= u32::from(*len),
        (IpAddr::V6(one), IpAddr::V6(other)) => (one.to_bits() ^ other.to_bits()).leading_zeros() >= u32::from(*len),
        _ => false,
    }
}

impl Model {
    fn follow(&mut self, step: &Step) {
        match step.clone() {
            Step::Route(prefix, Some(to)) => drop(self.routes.insert((prefix.address, prefix.len), to)),
            Step::Route(prefix, None) => drop(self.routes.remove(&(prefix.address, prefix.len))),
            Step::NextHops(number, hops) => drop(self.numbers.insert(number, hops)),
            Step::Neighbour(interface, address, Some(now)) => {
                self.neighbours.insert((interface, address), now);
            }
            Step::Neighbour(interface, address, None) => drop(self.neighbours.remove(&(interface, address))),
            Step::Interface(index, now) => {
                match now {
                    Some(now) => drop(self.interfaces.insert(index, now)),
                    None => drop(self.interfaces.remove(&index)),
                }
                let ports = PORTS.iter().zip(&mut self.found).zip(&mut self.ever_found);
                for ((name, found), ever_found) in ports {
                    *found = found.filter(|index| self.interfaces.contains_key(index));
                    // No two interfaces have one name.
                    let named = self.interfaces.iter().find(|(_, interface)| interface.name == *name);
                    *found = found.or(named.map(|(index, _)| *index));
                    *ever_found |= found.is_some();
                }
            }
            Step::Bypass(family, on) => self.bypass[family as usize] = on,
            Step::Tick => {}
        }
    }

    /// The port of an interface, and its VLAN if it stands for one.
    fn place(&self, index: u32) -> Option<(usize, Option<u16>)> {
        let port = |index: u32| (0..2).find(|port| self.found[*port] == Some(index));
        match self.interfaces.get(&index)?.vlan {
            _ if port(index).is_some() => Some((port(index)?, None)),
            Some((parent, vlan)) if (1..=4094).contains(&vlan) => Some((port(parent)?, Some(vlan))),
            _ => None,
        }
    }

    /// Whether frames come in and leave by an interface.
    fn is_up(&self, index: u32) -> bool {
        let up = |index: u32| self.interfaces.get(&index).is_some_and(|known| known.up && known.mac.is_some());
        up(index) && self.place(index).is_some_and(|(port, _)| self.found[port].is_some_and(up))
    }

    /// What may become of a packet by a leg.
    fn by(&self, leg: &Leg, neighbour: Option<IpAddr>, len: u16) -> Fate {
        let interface = self.interfaces.get(&leg.interface).filter(|interface| interface.kernel.is_none());
        let (interface, place) = interface.zip(self.place(leg.interface)).ok_or(Refusal::LeftToHost)?;
        let known = neighbour.and_then(|neighbour| self.neighbours.get(&(leg.interface, neighbour)));
        let mac = known.and_then(Neighbour::usable).filter(|mac| mac[0] & 1 == 0).ok_or(Refusal::Unresolved)?;
        match interface.mac.filter(|_| self.is_up(leg.interface)) {
            None => Err(Refusal::Unresolved),
            Some(_) if u32::from(len) > interface.mtu.min(CAP.into()) => Err(Refusal::TooBig),
            Some(own) => Ok((place, mac, own)),
        }
    }

    /// What may become of a packet that comes in by port 0 and a VLAN.
    fn fates(&self, vlan: Option<u16>, to: IpAddr, len: u16) -> Vec<Fate> {
        let refused = |refusal| vec![Err(refusal)];
        let by = self.interfaces.keys().copied().find(|index| self.place(*index) == Some((0, vlan)));
        let port = self.interfaces.keys().copied().find(|index| self.place(*index) == Some((0, None)));
        let is_for_port = match port.map(|index| (index, &self.interfaces[&index])) {
            Some((index, port)) => self.is_up(index) && (port.mac == Some(MAC) || port.kernel.is_some()),
            None => !self.ever_found[0],
        };
        let nobody = if vlan.is_some() && is_for_port { Refusal::Vlan } else { Refusal::OtherStation };
        match by {
            Some(index) if !self.is_up(index) => return refused(nobody),
            None if vlan.is_some() || self.ever_found[0] => return refused(nobody),
            _ => {}
        }
        let interface = by.map(|index| &self.interfaces[&index]);
        if interface.is_some_and(|interface| interface.mac != Some(MAC) && interface.kernel.is_none()) {
            return refused(Refusal::OtherStation);
        }
        let family = usize::from(to.is_ipv6());
        let on = interface.is_some_and(|interface| interface.kernel.is_none() && interface.forwarding[family]);
        if matches!(to, IpAddr::V6(to) if to.is_unicast_link_local()) {
            return refused(Refusal::MartianDestination);
        }
        if !on || self.bypass[family] {
            return refused(Refusal::LeftToHost);
        }
        let longest = self.routes.iter().filter(|(prefix, _)| holds(prefix, to)).max_by_key(|((_, len), _)| *len);
        let legs = match longest.map(|(_, target)| target) {
            None => return refused(Refusal::NoRoute),
            Some(Target::Local) => return refused(Refusal::ForHost),
            Some(Target::Blackhole) => return refused(Refusal::Blackhole),
            Some(Target::Unreachable) => return refused(Refusal::Unreachable),
            Some(Target::Prohibit) => return refused(Refusal::Prohibited),
            Some(Target::Kernel(_)) => return refused(Refusal::LeftToHost),
            Some(Target::NextHops(number)) => match self.numbers.get(number) {
                Some(Hops::Blackhole) => return refused(Refusal::Blackhole),
                Some(Hops::Forward(legs)) => legs,
                _ => return refused(Refusal::LeftToHost),
            },
        };
        let ways: BTreeMap<_, _> = legs.iter().map(|leg| ((leg.interface, leg.gateway), leg)).collect();
        let alone = ways.len() == 1;
        let fate = |leg: &&Leg| self.by(leg, leg.gateway.or(Some(to).filter(|_| alone)), len);
        // Among several the kernel would choose anew.
        if ways.values().any(|leg| fate(leg) == Err(Refusal::LeftToHost)) {
            return refused(Refusal::LeftToHost);
        }
        ways.values().map(fate).collect()
    }
}

fn tell(plane: &mut Plane, step: &Step, ticks: &mut u64) {
    match step {
        Step::Route(prefix, to) => plane.apply(Event::Route { prefix: *prefix, to: *to }),
        Step::NextHops(number, hops) => {
            let now = match hops {
                Hops::Forward(legs) => NextHops::Forward(legs),
                Hops::Blackhole => NextHops::Blackhole,
                Hops::Kernel => NextHops::Kernel(Reason::Encapsulation),
                Hops::Dead => NextHops::Dead,
                Hops::Free => NextHops::Free,
            };
            plane.apply(Event::NextHops { number: *number, now });
        }
        Step::Neighbour(interface, address, now) => {
            plane.apply(Event::Neighbour { interface: *interface, address: *address, now: *now });
        }
        Step::Interface(index, now) => plane.apply(Event::Interface { index: *index, now: now.as_ref() }),
        Step::Bypass(family, on) => {
            plane.apply(Event::Bypass { family: *family, reason: on.then_some(Reason::Rules) });
        }
        Step::Tick => {
            *ticks += 1;
            plane.tick(Duration::from_millis(300 * *ticks));
        }
    }
}

fn address() -> impl Strategy<Value = IpAddr> {
    select(&ADDRESSES[..]).prop_map(|address| address.parse().unwrap())
}

/// An interface, mostly one of the ports.
fn by() -> impl Strategy<Value = u32> {
    prop_oneof![3 => 1..=2_u32, 1 => 1..=5_u32]
}

fn leg() -> impl Strategy<Value = Leg> {
    let gateway = prop_oneof![1 => address().prop_map(Some), 1 => Just(None)];
    (by(), gateway, 1..=3_u32).prop_map(|(interface, gateway, weight)| Leg { interface, gateway, weight })
}

fn hops() -> impl Strategy<Value = Hops> {
    prop_oneof![
        6 => leg().prop_map(|leg| Hops::Forward(vec![leg])),
        4 => prop::collection::vec(leg(), 1..5).prop_map(Hops::Forward),
        1 => Just(Hops::Blackhole),
        1 => Just(Hops::Kernel),
        1 => Just(Hops::Dead),
        2 => Just(Hops::Free),
    ]
}

fn interface() -> impl Strategy<Value = (u32, Option<Interface>)> {
    let kernel = prop_oneof![8 => Just(None), 1 => Just(Some(Reason::Enslaved))];
    let forwarding = [prop::bool::weighted(0.9), prop::bool::weighted(0.9)];
    let mtu = select(vec![100, 1500]);
    (1..=5_u32, prop::bool::weighted(0.9), prop::bool::weighted(0.9), mtu, kernel, forwarding, 0..4_u8).prop_map(
        |(index, there, up, mtu, kernel, forwarding, last)| {
            let name = ["", "p0", "p1", "other", "p0.5", "more"][index as usize].to_owned();
            // Port 0 keeps its address, and mostly so does a VLAN on it, so that frames reach it.
            let mac = if index == 1 || (index == 4 && mtu == 100) { MAC } else { [2, 0, 0, 0, 2, last] };
            // A VLAN that moves from port to port, and changes its number.
            let vlan = (index == 4 && last < 3).then_some((1 + u32::from(last / 2), 5 + u16::from(last % 2)));
            let interface = Interface {
                name,
                mac: Some(mac),
                mtu,
                up,
                carrier: up,
                vlan,
                kernel,
                forwarding,
                ..Interface::default()
            };
            (index, there.then_some(interface))
        },
    )
}

fn neighbour() -> impl Strategy<Value = Option<Neighbour>> {
    let states = select(vec![0x02, 0x02, 0x04, 0x08, 0x80, 0x01, 0x20]);
    let mac = prop_oneof![8 => (0..4_u8).prop_map(|last| Some([2, 0, 0, 0, 9, last])), 1 => Just(Some([3; 6])), 1 => Just(None)];
    prop_oneof![5 => (mac, states).prop_map(|(mac, state)| Some(Neighbour { mac, state })), 1 => Just(None)]
}

fn step() -> impl Strategy<Value = Step> {
    let prefix = select(&PREFIXES[..]).prop_map(|(first, len)| Prefix { address: first.parse().unwrap(), len });
    let target = prop_oneof![
        8 => (0..NUMBERS).prop_map(Target::NextHops),
        1 => select(vec![
            Target::Local, Target::Blackhole, Target::Unreachable, Target::Prohibit, Target::Kernel(Reason::Source),
        ]),
    ];
    let to = prop_oneof![4 => target.prop_map(Some), 1 => Just(None)];
    prop_oneof![
        6 => (prefix, to).prop_map(|(prefix, to)| Step::Route(prefix, to)),
        5 => (0..NUMBERS, hops()).prop_map(|(number, hops)| Step::NextHops(number, hops)),
        6 => (by(), address(), neighbour()).prop_map(|(by, address, now)| Step::Neighbour(by, address, now)),
        2 => interface().prop_map(|(index, now)| Step::Interface(index, now)),
        1 => (select(vec![Family::V4, Family::V6]), prop::bool::weighted(0.2)).prop_map(|(family, on)| Step::Bypass(family, on)),
        1 => Just(Step::Tick),
    ]
}

/// Some steps, after the ports have come up.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..120).prop_map(|more| {
        let up = |(index, name): (u32, &str)| {
            let (name, mac) = (name.to_owned(), Some(if index == 1 { MAC } else { [2, 0, 0, 0, 2, 0] }));
            let (up, forwarding) = (true, [true; 2]);
            Step::Interface(index, Some(Interface { name, mac, mtu: 1500, up, forwarding, ..Interface::default() }))
        };
        (1..).zip(PORTS).map(up).chain(more).collect()
    })
}

fn fresh(next_hops: u32, groups: u32) -> (Plane, Asked) {
    let interfaces = [MAC, [2, 0, 0, 0, 1, 1]].map(|mac| router::Interface { mac, promiscuous: false, mtu: 1500 });
    let fib = LiveFib::new(&LiveConfig { next_hops, groups, ..LiveConfig::default() }, &interfaces).unwrap();
    let asked = Asked::new(&fib, PORTS.len());
    let ports = PORTS.map(|name| Port { name: name.to_owned(), index: None, mtu: CAP });
    (Plane::new(fib, &ports).unwrap(), asked)
}

/// What a forwarder does with a packet; a mark to be probed is taken off.
fn ask(asked: &mut Asked, vlan: Option<u16>, to: IpAddr, source: u8, len: u16) -> Fate {
    let mut fate = Err(Refusal::Probe);
    for _ in 0..2 {
        if fate == Err(Refusal::Probe) {
            fate = asked.fate(MAC, vlan, &packet(to, source, len));
        }
    }
    fate
}

/// Asks for every address, and panics unless `allowed` says yes to what becomes of it.
fn compare(asked: &mut Asked, model: &Model, allowed: impl Fn(&[Fate], &Fate) -> bool) {
    for (source, text) in (0..).zip(ADDRESSES) {
        let to: IpAddr = text.parse().unwrap();
        for (vlan, len) in [(None, 80), (None, 300), (Some(5), 80), (Some(6), 80)] {
            let fates = model.fates(vlan, to, len);
            let fate = ask(asked, vlan, to, source, len);
            assert!(allowed(&fates, &fate), "VLAN {vlan:?}, {to}, {len} bytes: {fate:?}, not {fates:?}\n{model:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn whatever_the_order_frames_go_as_the_tables_say(steps in steps()) {
        let ((mut plane, mut asked), mut model, mut ticks) = (fresh(200, 20), Model::default(), 0);
        for (at, step) in steps.iter().enumerate() {
            model.follow(step);
            tell(&mut plane, step, &mut ticks);
            if at % 8 == 7 || at + 1 == steps.len() {
                asked.forwarder.catch_up();
                plane.tick(Duration::from_millis(300 * ticks));
                compare(&mut asked, &model, |fates, fate| fates.contains(fate));
            }
        }
        let places = model.interfaces.keys().filter_map(|index| model.place(*index));
        let vlans: BTreeSet<_> = places.filter_map(|(port, vlan)| Some((port, vlan?))).collect();
        prop_assert_eq!(plane.report().vlans, vlans.into_iter().collect::<Vec<_>>());
        prop_assert_eq!(plane.report().waiting, 0, "{:?}", plane.report());
        prop_assert_eq!(plane.report().routes.iter().sum::<usize>(), model.routes.len());
        prop_assert_eq!(plane.report().neighbours, model.neighbours.len());
    }

    /// With numbers that run out, and forwarders that do not let go of them, packets go to the kernel and nowhere else; and as the tables
    /// say once there is room.
    #[test]
    fn without_room_the_kernel_has_the_packets(steps in steps(), room in 5..16_u32) {
        let ((mut plane, mut asked), mut model, mut ticks) = (fresh(room, 1), Model::default(), 0);
        for (at, step) in steps.iter().enumerate() {
            model.follow(step);
            tell(&mut plane, step, &mut ticks);
            if at % 16 == 15 || at + 1 == steps.len() {
                let left = |fate: &Fate| matches!(fate, Err(Refusal::LeftToHost | Refusal::Unresolved));
                compare(&mut asked, &model, |fates, fate| fates.contains(fate) || left(fate));
            }
        }
        // Everything goes, all but what needs little room.
        for (first, len) in PREFIXES {
            let step = Step::Route(Prefix { address: first.parse().unwrap(), len }, None);
            model.follow(&step);
            tell(&mut plane, &step, &mut ticks);
        }
        for number in 0..NUMBERS {
            model.follow(&Step::NextHops(number, Hops::Free));
            tell(&mut plane, &Step::NextHops(number, Hops::Free), &mut ticks);
        }
        for _ in 0..8 {
            asked.forwarder.catch_up();
            tell(&mut plane, &Step::Tick, &mut ticks);
        }
        prop_assert!(!plane.is_waiting(), "{:?}", plane.report());
        // Of the room, all but what every plane takes is free again.
        for number in NUMBERS..NUMBERS + room - 5 {
            let leg = Leg { interface: 1, gateway: None, weight: 1 };
            let step = Step::NextHops(number, Hops::Forward(vec![leg]));
            tell(&mut plane, &step, &mut ticks);
        }
        prop_assert!(!plane.is_waiting(), "{:?}", plane.report());
        compare(&mut asked, &model, |fates, fate| fates.contains(fate));
    }
}

#[test]
fn a_neighbour_that_had_the_address_of_a_group_is_sent_to() {
    let ((mut plane, mut asked), mut model) = (fresh(200, 20), Model::default());
    let port = Interface { name: PORTS[0].to_owned(), mac: Some(MAC), mtu: 1500, up: true, ..Interface::default() };
    let port = Interface { forwarding: [true; 2], ..port };
    let known = |mac| Some(Neighbour { mac: Some(mac), state: 2 });
    let (to, leg) = (ADDRESSES[5].parse().unwrap(), Leg { interface: 1, gateway: None, weight: 1 });
    for step in [
        Step::Interface(1, Some(port)),
        Step::Route(Prefix { address: "0.0.0.0".parse().unwrap(), len: 0 }, Some(Target::NextHops(3))),
        Step::NextHops(3, Hops::Forward(vec![leg])),
        Step::Neighbour(1, to, known([3; 6])),
        Step::Neighbour(1, to, known([2, 0, 0, 0, 9, 0])),
    ] {
        model.follow(&step);
        tell(&mut plane, &step, &mut 0);
        compare(&mut asked, &model, |fates, fate| fates.contains(fate));
    }
}
