//! What happens with time: STALE neighbours are probed once a second; and what a report says.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Asked, packet};
use kernel::{Event, Family, Follower, Interface, Leg, Neighbour, NextHops, Ports, Prefix, Reason, Target};
use plane::{Plane, Port, Runner};
use router::{LiveConfig, LiveFib, Refusal};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

const MAC: [u8; 6] = [2, 0, 0, 0, 1, 0];
const REACHABLE: u16 = 0x02;
const STALE: u16 = 0x04;
const FAILED: u16 = 0x20;
const GATEWAYS: u8 = 10;

fn interface(name: &str, mtu: u32) -> Interface {
    let name = name.to_owned();
    Interface { name, mac: Some(MAC), mtu, up: true, carrier: true, forwarding: [true; 2], ..Interface::default() }
}

fn gateway(last: u8) -> IpAddr {
    Ipv4Addr::new(192, 0, 2, last).into()
}

/// An address that is reached by a gateway.
fn far(last: u8) -> IpAddr {
    Ipv4Addr::new(10, last, 0, 1).into()
}

fn neighbour(plane: &mut Plane, last: u8, state: u16) {
    let now = Some(Neighbour { mac: Some([2, 0, 0, 0, 9, last]), state });
    plane.apply(Event::Neighbour { interface: 1, address: gateway(last), now });
}

/// A route by each of some gateways, and the last two in a group too; the gateways are on-link.
fn made() -> (Plane, Asked) {
    let own = router::Interface { mac: MAC, promiscuous: false, mtu: 1500 };
    let fib = LiveFib::new(&LiveConfig { next_hops: 64, groups: 2, ..LiveConfig::default() }, &[own]).unwrap();
    let asked = Asked::new(&fib, 1);
    let mut plane = Plane::new(fib, &[Port { name: "p0".to_owned(), index: None, mtu: 1500 }]).unwrap();
    plane.apply(Event::Interface { index: 1, now: Some(&interface("p0", 1500)) });
    let route = |plane: &mut Plane, address: IpAddr, len, number, legs: &[Leg]| {
        plane.apply(Event::NextHops { number, now: NextHops::Forward(legs) });
        plane.apply(Event::Route { prefix: Prefix { address, len }, to: Some(Target::NextHops(number)) });
    };
    let leg = |last| Leg { interface: 1, gateway: Some(gateway(last)), weight: 1 };
    for last in 1..=GATEWAYS {
        neighbour(&mut plane, last, STALE);
        route(&mut plane, Ipv4Addr::new(10, last, 0, 0).into(), 16, last.into(), &[leg(last)]);
    }
    route(&mut plane, Ipv4Addr::new(20, 0, 0, 0).into(), 8, 98, &[leg(GATEWAYS - 1), leg(GATEWAYS)]);
    route(&mut plane, gateway(0), 24, 99, &[Leg { interface: 1, gateway: None, weight: 1 }]);
    (plane, asked)
}

/// How many of some packets are left to the kernel to probe with; the others leave.
fn probes(asked: &mut Asked, to: IpAddr) -> usize {
    let fates: Vec<_> = (0..8).map(|source| asked.fate(MAC, None, &packet(to, source, 60))).collect();
    assert!(fates.iter().all(|fate| fate.is_ok() || *fate == Err(Refusal::Probe)), "{fates:?}");
    fates.iter().filter(|fate| fate.is_err()).count()
}

#[test]
fn each_stale_neighbour_has_a_packet_a_second_however_often_it_ticks() {
    for step in [50, 100, 333, 1000] {
        let (mut plane, mut asked) = made();
        for last in 1..=GATEWAYS {
            assert_eq!(probes(&mut asked, far(last)), 0, "before the first tick");
        }
        let (mut counts, mut most, ticks) = ([0; GATEWAYS as usize + 1], 0, 5000 / step);
        for tick in 0..=ticks {
            plane.tick(Duration::from_millis(step * tick));
            let mut at_once = 0;
            for last in 1..=GATEWAYS {
                let count = probes(&mut asked, far(last));
                at_once += count;
                counts[usize::from(last)] += count;
            }
            if tick > 0 {
                most = most.max(at_once);
            }
        }
        // One with the first tick, and in five seconds five.
        for count in &counts[1..] {
            assert!((5..=6).contains(count), "{step} ms: {counts:?}");
        }
        let spread = usize::try_from(step).unwrap() * usize::from(GATEWAYS) / 1000 + 1;
        assert!(most <= spread.min(GATEWAYS.into()), "{most} at once, {step} ms");
    }
}

#[test]
fn of_many_stale_neighbours_no_more_are_probed_at_once_than_the_host_takes() {
    let own = router::Interface { mac: MAC, promiscuous: false, mtu: 1500 };
    let fib = LiveFib::new(&LiveConfig { next_hops: 1000, groups: 2, ..LiveConfig::default() }, &[own]).unwrap();
    let mut asked = Asked::new(&fib, 1);
    let mut plane = Plane::new(fib, &[Port { name: "p0".to_owned(), index: None, mtu: 1500 }]).unwrap();
    plane.apply(Event::Interface { index: 1, now: Some(&interface("p0", 1500)) });
    let leg = Leg { interface: 1, gateway: None, weight: 1 };
    plane.apply(Event::NextHops { number: 0, now: NextHops::Forward(&[leg]) });
    let prefix = Prefix { address: Ipv4Addr::new(10, 0, 0, 0).into(), len: 16 };
    plane.apply(Event::Route { prefix, to: Some(Target::NextHops(0)) });
    let all: Vec<IpAddr> = (1..=600_u16).map(|last| Ipv4Addr::from(0x0A00_0000 + u32::from(last)).into()).collect();
    for address in &all {
        let now = Some(Neighbour { mac: Some([2, 0, 0, 0, 9, 1]), state: STALE });
        plane.apply(Event::Neighbour { interface: 1, address: *address, now });
    }
    let mut probed = |plane: &mut Plane, second| {
        plane.tick(Duration::from_secs(second));
        all.iter().filter(|to| asked.fate(MAC, None, &packet(**to, 1, 60)) == Err(Refusal::Probe)).count()
    };
    assert_eq!([1, 2, 3, 4].map(|second| probed(&mut plane, second)), [200; 4]);
}

#[test]
fn a_neighbour_is_probed_wherever_packets_go_to_it_and_only_while_stale() {
    let (mut plane, mut asked) = made();
    let group: Vec<IpAddr> = (0..40).map(|last| Ipv4Addr::new(20, 0, 0, last).into()).collect();
    let of_group = |asked: &mut Asked| group.iter().map(|to| probes(asked, *to)).sum::<usize>();
    plane.tick(Duration::ZERO);
    // Alone, as member of a group, and as the destination itself.
    assert_eq!(probes(&mut asked, far(GATEWAYS)), 1);
    assert_eq!(of_group(&mut asked), 2, "each of two members");
    assert_eq!(probes(&mut asked, gateway(GATEWAYS)), 0, "that is the word of the member");
    assert_eq!(probes(&mut asked, gateway(1)), 1);
    neighbour(&mut plane, 1, REACHABLE);
    plane.tick(Duration::from_secs(1));
    assert_eq!(probes(&mut asked, far(1)), 0);
    assert_eq!(probes(&mut asked, far(2)), 1);
    // A mark that nobody has met ends with the neighbour's state.
    neighbour(&mut plane, 3, STALE);
    plane.tick(Duration::from_secs(2));
    let moved = Some(Neighbour { mac: Some([2, 0, 0, 0, 8, 8]), state: REACHABLE });
    plane.apply(Event::Neighbour { interface: 1, address: gateway(3), now: moved });
    assert_eq!(asked.fate(MAC, None, &packet(far(3), 1, 60)).unwrap().1, [2, 0, 0, 0, 8, 8]);
    plane.apply(Event::Neighbour { interface: 1, address: gateway(3), now: None });
    plane.tick(Duration::from_secs(3));
    assert_eq!(asked.fate(MAC, None, &packet(far(3), 1, 60)), Err(Refusal::Unresolved));
    // Time that stands still or goes back does not matter.
    plane.tick(Duration::from_secs(3));
    plane.tick(Duration::from_secs(1));
    assert_eq!(plane.next_tick(), Duration::from_millis(50), "there are stale ones");
    (1..=GATEWAYS).for_each(|last| neighbour(&mut plane, last, REACHABLE));
    assert_eq!(plane.next_tick(), Duration::from_secs(1));
}

#[test]
fn members_of_groups_are_asked_for_and_no_packet_to_them_goes_by_the_kernel() {
    let (mut plane, mut asked) = made();
    plane.set_asking(true);
    let key = |last| (1, gateway(last));
    let flows: Vec<IpAddr> = (0..40).map(|last| Ipv4Addr::new(20, 0, 0, last).into()).collect();
    let fates =
        |asked: &mut Asked| -> Vec<_> { flows.iter().map(|to| asked.fate(MAC, None, &packet(*to, 1, 60))).collect() };
    let tick = |plane: &mut Plane, second| {
        plane.tick(Duration::from_secs(second));
        plane.take_asked()
    };
    for last in 1..GATEWAYS - 1 {
        neighbour(&mut plane, last, REACHABLE);
    }
    assert_eq!(tick(&mut plane, 0), []);
    assert!(fates(&mut asked).iter().all(Result::is_ok), "both are STALE, and marked");
    assert_eq!(tick(&mut plane, 1), [key(GATEWAYS - 1), key(GATEWAYS)]);
    assert_eq!(tick(&mut plane, 2), [], "nothing has gone there since");
    // Packets of a host route take the mark off, too; one of them probes.
    assert_eq!(probes(&mut asked, gateway(GATEWAYS)), 1);
    assert_eq!(tick(&mut plane, 3), [key(GATEWAYS)]);
    // A new state calls it off.
    assert!(fates(&mut asked).iter().all(Result::is_ok));
    neighbour(&mut plane, GATEWAYS, REACHABLE);
    assert_eq!(tick(&mut plane, 4), [key(GATEWAYS - 1)]);
    assert!(fates(&mut asked).iter().all(Result::is_ok));
    assert_eq!(tick(&mut plane, 5), [key(GATEWAYS - 1)]);

    // One that does not answer is asked for at once, and each second while packets want it.
    neighbour(&mut plane, GATEWAYS - 1, REACHABLE);
    let failed = Some(Neighbour { mac: None, state: FAILED });
    plane.apply(Event::Neighbour { interface: 1, address: gateway(GATEWAYS), now: failed });
    assert_eq!(plane.take_asked(), [key(GATEWAYS)]);
    assert_eq!(tick(&mut plane, 6), []);
    assert_eq!(tick(&mut plane, 7), [], "no packet has wanted it");
    let unresolved = fates(&mut asked).iter().filter(|fate| **fate == Err(Refusal::Unresolved)).count();
    assert!((1..40).contains(&unresolved), "its flows, and no other: {unresolved}");
    assert_eq!(tick(&mut plane, 8), [key(GATEWAYS)]);
    plane.apply(Event::Neighbour { interface: 1, address: gateway(GATEWAYS), now: None });
    fates(&mut asked);
    assert_eq!(tick(&mut plane, 9), [key(GATEWAYS)]);
    neighbour(&mut plane, GATEWAYS, REACHABLE);
    assert!(fates(&mut asked).iter().all(Result::is_ok));
    assert_eq!(tick(&mut plane, 10), []);
    // Of an interface that is no port none is asked for.
    plane.apply(Event::Interface { index: 1, now: None });
    (GATEWAYS - 1..=GATEWAYS).for_each(|last| neighbour(&mut plane, last, STALE));
    for second in 11..14 {
        fates(&mut asked);
        assert_eq!(tick(&mut plane, second), []);
    }
}

#[test]
fn a_report_says_what_a_person_should_know() {
    let (mut plane, _asked) = made();
    let report = plane.report();
    assert_eq!((report.routes, report.neighbours, report.waiting), ([12, 0], 10, 0));
    assert!(report.lines.is_empty(), "{report:?}");
    let says = |plane: &Plane, words: &str| {
        let lines = plane.report().lines;
        assert_eq!(lines.iter().filter(|line| line.contains(words)).count(), 1, "{words}: {lines:?}");
    };
    plane.set_neighbour_limits([Some(12), Some(0)]);
    assert!(!plane.report().lines.iter().any(|line| line.contains("net.ipv4.neigh")));
    plane.set_neighbour_limits([Some(11), None]);
    says(&plane, "net.ipv4.neigh.default.gc_thresh3");
    plane.apply(Event::Interface { index: 1, now: Some(&interface("renamed", 9000)) });
    says(&plane, "renamed has an MTU of 9000 bytes, and its port 1500: longer packets are dropped");
    plane.set_neighbour_limits([None; 2]);
    let enslaved = Interface { kernel: Some(Reason::Enslaved), forwarding: [false; 2], ..interface("p0", 1500) };
    plane.apply(Event::Interface { index: 1, now: Some(&enslaved) });
    says(&plane, "p0 is part of a bridge, a bond or a VRF: all that comes in there is the kernel's");
    assert_eq!((plane.report().lines.len(), plane.report().closed), (1, vec![]));
    for (forwarding, line) in
        [([false, true], "IPv4 that comes in by p0 is"), ([true, false], "IPv6 that comes in by p0 is")]
    {
        plane.apply(Event::Interface { index: 1, now: Some(&Interface { forwarding, ..interface("p0", 1500) }) });
        says(&plane, line);
        assert_eq!(plane.report().lines.len(), 1);
    }
    let down = Interface { up: false, forwarding: [false; 2], ..interface("p0", 1500) };
    plane.apply(Event::Interface { index: 1, now: Some(&down) });
    assert!(plane.report().lines.is_empty(), "nothing comes in by it");
    plane.apply(Event::Interface { index: 1, now: None });
    says(&plane, "there is no interface p0");
    assert_eq!(plane.report().closed, [0]);
    plane.apply(Event::Bypass { family: Family::V6, reason: Some(Reason::Rules) });
    says(&plane, "all of IPv6 is the kernel's: rules");
    plane.set_ipsec(true);
    says(&plane, "IPsec policies");
    plane.set_ipsec(false);
    assert!(!plane.report().lines.iter().any(|line| line.contains("IPsec")));
    plane.apply(Event::Unsupported(Reason::Encapsulation));
    says(&plane, "encapsulation");
    // Routes by what is no port: by itself, and as one of two.
    let leg = |interface| Leg { interface, gateway: Some(gateway(1)), weight: 1 };
    for (index, name) in [(1, "p0"), (8, "eth0"), (9, "eth1")] {
        plane.apply(Event::Interface { index, now: Some(&interface(name, 1500)) });
    }
    assert!(!plane.report().lines.iter().any(|line| line.contains("eth")));
    for (number, legs, line) in [
        (6, &[leg(8)][..], "routes by eth0, where no port is: their packets are the kernel's"),
        (7, &[leg(1), leg(9)], "routes by eth0, eth1, where no port is"),
    ] {
        plane.apply(Event::NextHops { number, now: NextHops::Forward(legs) });
        says(&plane, line);
    }
    plane.apply(Event::NextHops { number: 6, now: NextHops::Free });
    says(&plane, "routes by eth1, where no port is");
    plane.apply(Event::NextHops { number: 7, now: NextHops::Forward(&[leg(1)]) });
    assert!(!plane.report().lines.iter().any(|line| line.contains("where no port is")));
    let legs: Vec<Leg> = (0..300_u16)
        .map(|last| Leg { interface: 1, gateway: Some(Ipv4Addr::from(u32::from(last)).into()), weight: 1 })
        .collect();
    plane.apply(Event::NextHops { number: 5, now: NextHops::Forward(&legs) });
    says(&plane, "more than 256 next hops");
    assert_eq!(plane.report().waiting, 0);
}

#[test]
fn without_anybody_who_follows_the_kernel_it_is_left_all_packets() {
    let (plane, mut asked) = made();
    let runner = Runner::new(Follower::open(Ports::All).unwrap(), plane).unwrap();
    let handle = runner.handle();
    assert!(asked.fate(MAC, None, &packet(far(1), 1, 60)).is_ok());
    let thread = std::thread::spawn(move || {
        let _runner = runner;
        panic!("as by a mistake");
    });
    assert!(thread.join().is_err());
    assert_eq!(asked.fate(MAC, None, &packet(far(1), 1, 60)), Err(Refusal::LeftToHost));
    assert!(!handle.wait_ready(Duration::MAX), "it waits for nobody");
}

#[test]
fn a_table_without_room_for_refusals_is_an_error() {
    let own = router::Interface { mac: MAC, promiscuous: false, mtu: 1500 };
    let ports = [Port { name: "p0".to_owned(), index: None, mtu: 1500 }];
    for next_hops in 0..6 {
        let fib = LiveFib::new(&LiveConfig { next_hops, groups: 0, ..LiveConfig::default() }, &[own]).unwrap();
        assert_eq!(Plane::new(fib, &ports).is_ok(), next_hops == 5);
    }
    let fib = LiveFib::new(&LiveConfig::default(), &[]).unwrap();
    let error = Plane::new(fib, &ports).map(drop).unwrap_err();
    assert_eq!(error.to_string(), "there is no number 0 among the interfaces; add it first");
}

#[test]
fn flows_are_told_apart_by_the_policy_of_their_family() {
    let (mut plane, mut asked) = made();
    (1..=GATEWAYS).for_each(|last| neighbour(&mut plane, last, REACHABLE));
    let v6 = Ipv6Addr::new(0x2001, 0xDB8, 20, 0, 0, 0, 0, 1).into();
    plane.apply(Event::Route { prefix: Prefix { address: v6, len: 128 }, to: Some(Target::NextHops(98)) });
    // Neighbours that packets of one pair of hosts go to, by a group of two, whatever their ports: of IPv4, and of IPv6.
    let mut used = |plane: &mut Plane, policies| {
        plane.set_hash_policies(policies);
        let hosts: [(IpAddr, usize); 2] = [(Ipv4Addr::new(20, 0, 0, 1).into(), 20), (v6, 40)];
        let neighbours = hosts.map(|(host, header)| {
            let fates = (0..=u8::MAX).map(|port| {
                let mut packet = packet(host, 1, 60);
                packet[header + 1] = port;
                asked.fate(MAC, None, &packet).unwrap().1
            });
            fates.collect::<std::collections::BTreeSet<_>>().len()
        });
        (neighbours, plane.report().lines)
    };
    for (policies, neighbours, words) in [
        ([None, None], [1, 1], &[][..]),
        ([Some(1), Some(1)], [2, 2], &[]),
        ([Some(0), Some(0)], [1, 1], &[]),
        ([Some(1), None], [2, 1], &[]),
        ([None, Some(0)], [1, 1], &[]),
        ([Some(1), Some(0)], [2, 1], &[]),
        ([Some(0), Some(1)], [1, 2], &[]),
        ([Some(1), Some(2)], [2, 1], &["net.ipv6.fib_multipath_hash_policy is 2"]),
        (
            [Some(2), Some(3)],
            [1, 1],
            &["net.ipv4.fib_multipath_hash_policy is 2", "net.ipv6.fib_multipath_hash_policy is 3"],
        ),
    ] {
        let (found, lines) = used(&mut plane, policies);
        assert_eq!((found, lines.len()), (neighbours, words.len()), "{policies:?}: {lines:?}");
        assert!(lines.iter().zip(words).all(|(line, words)| line.contains(words)), "{policies:?}: {lines:?}");
    }
}

#[test]
fn a_port_of_an_index_is_no_other_interface_of_the_name() {
    let own = router::Interface { mac: MAC, promiscuous: false, mtu: 1500 };
    let fib = LiveFib::new(&LiveConfig { next_hops: 64, groups: 2, ..LiveConfig::default() }, &[own]).unwrap();
    let mut asked = Asked::new(&fib, 1);
    let mut plane = Plane::new(fib, &[Port { name: "p0".to_owned(), index: Some(7), mtu: 1500 }]).unwrap();
    let prefix = Prefix { address: Ipv4Addr::new(10, 0, 0, 0).into(), len: 8 };
    plane.apply(Event::Route { prefix, to: Some(Target::NextHops(1)) });
    for interface in [5, 7] {
        let now = Some(Neighbour { mac: Some([2, 0, 0, 0, 9, 1]), state: REACHABLE });
        plane.apply(Event::Neighbour { interface, address: gateway(1), now });
    }
    // Whether a packet leaves by the port, if its route is by an interface.
    let mut leaves = |plane: &mut Plane, index| {
        let leg = Leg { interface: index, gateway: Some(gateway(1)), weight: 1 };
        plane.apply(Event::NextHops { number: 1, now: NextHops::Forward(&[leg]) });
        asked.fate(MAC, None, &packet(far(1), 1, 60)).is_ok()
    };
    let set = |plane: &mut Plane, index, name: Option<&str>| {
        plane.apply(Event::Interface { index, now: name.map(|name| interface(name, 1500)).as_ref() });
    };
    set(&mut plane, 5, Some("p0"));
    assert!(!leaves(&mut plane, 5), "of the name, before the port's own is known");
    set(&mut plane, 7, Some("other"));
    assert!(leaves(&mut plane, 7), "whatever its name is");
    assert!(!leaves(&mut plane, 5));
    set(&mut plane, 7, Some("renamed"));
    assert!(leaves(&mut plane, 7));
    set(&mut plane, 7, None);
    set(&mut plane, 5, Some("renamed"));
    assert!(!leaves(&mut plane, 5) && !leaves(&mut plane, 7), "it is gone");
    assert!(plane.report().lines.iter().any(|line| line.contains("no interface renamed")), "{:?}", plane.report());
    set(&mut plane, 7, Some("eth0"));
    assert!(!leaves(&mut plane, 7), "one that has got its index");
    set(&mut plane, 7, None);
    set(&mut plane, 7, Some("renamed"));
    assert!(leaves(&mut plane, 7), "it is back");
    assert!(plane.report().lines.is_empty(), "{:?}", plane.report());
}
