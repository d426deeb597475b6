//! The mirror against a kernel of few lines: random changes, what Linux removes in silence, and messages that are lost.

#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "common/build.rs"]
mod build;
#[path = "common/mod.rs"]
mod common;
#[path = "common/naive.rs"]
mod naive;

use build::Route;
use common::{Answer, Path};
use kernel::{Dump, Event, Family, Messages, Mirror, NextHops, Ports, Reason, Target};
use naive::{Naive, Object, Op, Verb, leg};
use proptest::prelude::*;
use std::net::IpAddr;

/// A mirror, and the data path that follows it.
struct Followed {
    mirror: Mirror,
    path: Path,
    reasons: Vec<Reason>,
}

impl Followed {
    fn new(kernel: &Naive) -> Self {
        let mirror = Mirror::new(Ports::All);
        let mut followed = Self { path: Path::list(&mirror), mirror, reasons: Vec::new() };
        followed.dump(kernel);
        let reasons = &mut followed.reasons;
        followed.mirror.load(&mut |event| reasons.extend(reason(&event)));
        followed.path = Path::list(&followed.mirror);
        followed
    }

    fn dump(&mut self, kernel: &Naive) {
        let [links, settings, objects, rules, v4, v6] = kernel.dump();
        for dump in Dump::ALL {
            self.mirror.begin(dump);
            let messages = match dump {
                Dump::Links => &links,
                Dump::Netconf(Family::V4) => &settings,
                Dump::NextHops => &objects,
                Dump::Rules(Family::V4) => &rules[..3].to_vec(),
                Dump::Rules(Family::V6) => &rules[3..].to_vec(),
                Dump::Routes(Family::V4) => &v4,
                Dump::Routes(Family::V6) => &v6,
                _ => continue,
            };
            self.hear(messages, true);
            let (path, reasons) = (&mut self.path, &mut self.reasons);
            self.mirror.finish(dump, &mut |event| {
                path.follow(event);
                reasons.extend(reason(&event));
            });
        }
    }

    fn hear(&mut self, messages: &[Vec<u8>], dumped: bool) {
        let (path, reasons) = (&mut self.path, &mut self.reasons);
        for bytes in messages {
            for message in Messages::new(bytes) {
                self.mirror.apply(&message.unwrap(), dumped, &mut |event| {
                    path.follow(event);
                    reasons.extend(reason(&event));
                });
            }
        }
    }

    /// Has tables compared until there is no doubt, as a caller does.
    fn compare(&mut self, kernel: &Naive) {
        for _ in 0..3 {
            self.mirror.take_doubt();
            self.dump(kernel);
        }
        assert!(!self.mirror.is_in_doubt());
    }
}

fn reason(event: &Event<'_>) -> Option<Reason> {
    if let Event::Unsupported(reason) = event { Some(*reason) } else { None }
}

fn prefixes() -> impl Strategy<Value = Route> {
    prop_oneof![
        prop::sample::select(vec![("0.0.0.0", 0), ("20.0.0.0", 8), ("20.1.0.0", 16), ("20.1.1.0", 24)]),
        prop::sample::select(vec![("::", 0), ("fd20::", 16), ("fd20:1::", 32), ("fd20:1:1::", 48)]),
    ]
    .prop_map(|(prefix, len)| Route::to(prefix, len))
}

fn route() -> impl Strategy<Value = Route> {
    let what = prop_oneof![
        4 => prop::collection::vec((1..4_u32, 2..4_u8, 1..3_u8), 1..4).prop_map(|legs| (1, legs, None)),
        1 => prop::sample::select(vec![6, 7, 8]).prop_map(|kind| (kind, Vec::new(), None)),
        2 => (0..7_u32).prop_map(|id| (1, Vec::new(), Some(id))),
    ];
    (prefixes(), what, 0..2_u32, 2..4_u8).prop_map(|(route, (kind, mut legs, id), metric, protocol)| {
        legs.sort();
        legs.dedup_by_key(|leg| leg.0);
        if let [one] = &mut legs[..] {
            one.2 = 1;
        }
        let v4 = route.prefix.is_ipv4();
        let legs = legs.into_iter().map(|(index, last, weight)| {
            leg(index, &if v4 { format!("10.0.{index}.{last}") } else { format!("fd00:{index}::{last}") }, weight)
        });
        // IPv6 numbers begin at 20.
        let next_hop = id.map(|id| if v4 { 10 + id } else { 20 + id });
        Route { kind, legs: legs.collect(), next_hop, priority: route.priority + metric, protocol, ..route }
    })
}

fn op() -> impl Strategy<Value = Op> {
    let verb =
        prop::sample::select(vec![Verb::Add, Verb::Append, Verb::Prepend, Verb::Replace, Verb::Replace, Verb::Del]);
    let single = (any::<bool>(), 0..4_u32, 1..4_u32, 2..4_u8).prop_map(|(v4, id, index, last)| {
        let gateway: IpAddr =
            if v4 { format!("10.0.{index}.{last}") } else { format!("fd00:{index}::{last}") }.parse().unwrap();
        Op::Object(if v4 { 10 } else { 20 } + id, Object::Single(index, gateway))
    });
    let group = (any::<bool>(), 4..7_u32, prop::collection::btree_map(0..4_u32, 1..400_u16, 1..4)).prop_map(
        |(v4, id, members)| {
            let base = if v4 { 10 } else { 20 };
            Op::Object(base + id, Object::Group(members.into_iter().map(|(id, weight)| (base + id, weight)).collect()))
        },
    );
    let local = any::<bool>().prop_map(|add| {
        let route = Route { legs: vec![(1, None, 1)], ..Route::to("20.1.0.0", 16).kind(2).table(255) };
        Op::Route(if add { Verb::Add } else { Verb::Del }, route)
    });
    prop_oneof![
        12 => (verb, route()).prop_map(|(verb, route)| Op::Route(verb, route)),
        2 => route().prop_filter("IPv6", |route| !route.prefix.is_ipv4()).prop_map(Op::DelLeg),
        1 => (1..4_u32, any::<bool>()).prop_map(|(index, up)| Op::Up(index, up)),
        1 => (1..4_u32, any::<bool>()).prop_map(|(index, carrier)| Op::Carrier(index, carrier)),
        1 => (1..4_u32, prop::sample::select(vec![2, 10]), any::<bool>()).prop_map(|(index, family, ignore)| Op::Ignore(index, family, ignore)),
        4 => single,
        2 => group,
        1 => (10..27_u32).prop_map(Op::DelObject),
        1 => local,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, max_shrink_iters: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_mirror_that_hears_everything_does_as_the_kernel_does(ops in prop::collection::vec(op(), 1..60)) {
        let mut kernel = Naive::new(3);
        let mut followed = Followed::new(&kernel);
        for op in &ops {
            followed.hear(&kernel.run(op), false);
            prop_assert_eq!(followed.path.all(), kernel.all(), "{:?}", op);
        }
        let events = followed.path.events;
        followed.compare(&kernel);
        prop_assert_eq!(followed.path.events, events, "a dump of what is known changes nothing");
        prop_assert_eq!(Followed::new(&kernel).path.all(), kernel.all());
        // Numbers that nothing uses are free.
        let used: Vec<u32> = followed.mirror.routes().filter_map(|(_, target)| if let Target::NextHops(number) = target { Some(number) } else { None }).collect();
        let numbers = followed.mirror.next_hops().count();
        prop_assert!(numbers <= kernel.routes.len() && used.iter().all(|number| followed.mirror.next_hops().any(|(other, _)| other == *number)));
    }

    #[test]
    fn after_losses_a_compared_dump_mends_everything(ops in prop::collection::vec((op(), prop::bool::weighted(0.3)), 1..60)) {
        let mut kernel = Naive::new(3);
        let mut followed = Followed::new(&kernel);
        for (op, lost) in &ops {
            let messages = kernel.run(op);
            if !lost {
                followed.hear(&messages, false);
            }
        }
        // A dump that is interrupted counts for nothing.
        followed.mirror.begin(Dump::Routes(Family::V4));
        followed.mirror.begin(Dump::Routes(Family::V6));
        followed.compare(&kernel);
        prop_assert_eq!(followed.path.all(), kernel.all());
    }

    #[test]
    fn events_told_twice_are_harmless(ops in prop::collection::vec(op(), 1..40)) {
        let mut kernel = Naive::new(3);
        let mut followed = Followed::new(&kernel);
        for op in &ops {
            let messages = kernel.run(op);
            followed.hear(&messages, false);
            followed.hear(&messages, false);
            prop_assert_eq!(followed.path.all(), kernel.all(), "{:?}", op);
        }
    }
}

fn told(followed: &mut Followed, bytes: &[u8]) -> Vec<String> {
    let mut events = Vec::new();
    for message in Messages::new(bytes) {
        followed.mirror.apply(&message.unwrap(), false, &mut |event| events.push(format!("{event:?}")));
    }
    events
}

#[test]
fn a_next_hop_of_many_routes_changes_with_one_event() {
    let mut kernel = Naive::new(2);
    kernel.run(&Op::Object(10, Object::Single(1, [10, 0, 1, 2].into())));
    for net in 0..100 {
        kernel.run(&Op::Route(Verb::Add, Route::to(&format!("20.{net}.0.0"), 16).by(10)));
    }
    let mut followed = Followed::new(&kernel);
    let events = told(&mut followed, &kernel.run(&Op::Object(10, Object::Single(2, [10, 0, 2, 2].into()))).concat());
    assert_eq!(events.len(), 1, "{events:?}");
    // With nexthop_compat_mode=1 the kernel tells all routes again, with what the object leads to.
    let again = Route::to("20.7.0.0", 16).by(10).via(2, "10.0.2.2").bytes(true, 0x100);
    assert_eq!(told(&mut followed, &again), [""; 0]);
    // A loss of carrier takes the object away, and the routes with it.
    let events = told(&mut followed, &kernel.run(&Op::Carrier(2, false)).concat());
    assert_eq!(events.iter().filter(|event| event.contains("to: None")).count(), 100);
    assert!(followed.mirror.is_in_doubt() && followed.mirror.next_hops().count() == 0);
}

/// Of few it is known where they are, and for many all prefixes are looked through.
#[test]
fn routes_by_a_link_go_with_it_be_they_few_or_many() {
    for (count, others) in [(1, 0), (1, 3), (7, 1), (8, 0), (9, 0), (10, 3), (100, 10)] {
        let mut followed = Followed::new(&Naive::new(2));
        let route = |net: u8, index: u32| {
            let legs = [Route::to(&format!("20.{net}.0.0"), 16), Route::to(&format!("fd20:{net}::"), 32)];
            let gateways = [format!("10.0.{index}.2"), format!("fd00:{index}::2")];
            let metric = [20, 1024].map(|metric| metric + index);
            let routes = legs.into_iter().zip(gateways).zip(metric);
            routes.map(|((route, gateway), metric)| route.via(index, &gateway).metric(metric)).collect::<Vec<_>>()
        };
        let bytes = |routes: Vec<Route>, new| routes.iter().map(|route| route.bytes(new, 0x600)).collect::<Vec<_>>();
        // Routes that have come and gone are nowhere.
        for net in 200..200 + others {
            followed.hear(&bytes(route(net, 1), true), false);
            followed.hear(&bytes(route(net, 1), false), false);
        }
        for net in 0..count {
            followed.hear(&[bytes(route(net, 1), true), bytes(route(net, 2), true)].concat(), false);
        }
        for (up, by) in [(true, 1), (false, 2)] {
            followed.hear(&[build::link(1, "p1", up, up, &[])], false);
            for net in 0..count {
                for address in [[20, net, 0, 1].into(), format!("fd20:{net}::1").parse().unwrap()] {
                    let Answer::Forward(legs) = followed.path.lookup(address) else { panic!("{address} of {count}") };
                    assert_eq!(legs.iter().map(|leg| leg.interface).collect::<Vec<_>>(), [by], "{address} of {count}");
                }
            }
            let v4 = followed.mirror.prefix_counts().0;
            assert_eq!(v4, usize::from(count), "{others} others");
        }
        followed.hear(&[build::link(2, "p2", false, false, &[])], false);
        assert_eq!(followed.mirror.prefix_counts(), (0, usize::from(count)), "Linux tells of those of IPv6");
    }
}

/// `struct rta_cacheinfo` of a route that ends after so many ticks.
fn lifetime(ticks: i32) -> Vec<u8> {
    [&[0; 8][..], &ticks.to_ne_bytes(), &[0; 20]].concat()
}

#[test]
fn what_is_not_understood_goes_to_the_kernel_and_is_told_once() {
    let mut kernel = Naive::new(2);
    let route = Route::to("20.0.0.0", 8).via(1, "10.0.1.2");
    kernel.run(&Op::Route(Verb::Add, route.clone()));
    let mut followed = Followed::new(&kernel);
    let odd = [
        (Reason::Tos, Route { tos: 16, ..route.clone() }),
        (Reason::Encapsulation, Route { more: vec![build::attr(21, &[1, 0])], ..route.clone() }),
        (Reason::Mtu, Route { more: vec![build::attr(8, &build::word(2, 1300))], ..route.clone() }),
        (Reason::Kind, route.clone().kind(9)),
        // A tick left, and a tick ago.
        (Reason::Expires, Route { more: vec![build::attr(12, &lifetime(1))], ..route.clone() }),
        (Reason::Expires, Route { more: vec![build::attr(12, &lifetime(-1))], ..route.clone() }),
        (Reason::Expires, Route { protocol: 9, ..route.clone() }),
    ];
    for (reason, odd) in odd {
        for metric in [7, 8] {
            followed.hear(&[odd.clone().metric(metric).bytes(true, 0x600)], false);
        }
        assert_eq!(followed.path.lookup([20, 1, 1, 1].into()), Answer::Kernel("not understood"), "{reason:?}");
        for metric in [7, 8] {
            followed.hear(&[odd.clone().metric(metric).bytes(false, 0)], false);
        }
        assert!(matches!(followed.path.lookup([20, 1, 1, 1].into()), Answer::Forward(_)), "{reason:?}");
        assert_eq!(followed.reasons.iter().filter(|told| **told == reason).count(), 1, "{reason:?}");
    }
}

/// Every link has a route for `fe80::/64` of its own.
#[test]
fn prefixes_that_no_router_forwards_to_are_no_reason() {
    let gateways = [(1, "fd00:1::2"), (2, "fd00:2::2")];
    for (prefix, len, told) in [("fe80::", 64, false), ("ff00::", 8, false), ("fc00::", 7, true), ("fd20::", 16, true)]
    {
        let mut followed = Followed::new(&Naive::new(2));
        let routes = gateways.map(|(index, gateway)| Route::to(prefix, len).via(index, gateway).metric(256));
        for (route, protocol) in routes.into_iter().zip([2, 3]) {
            followed.hear(&[Route { protocol, ..route }.bytes(true, 0x400)], false);
        }
        assert_eq!(followed.reasons.contains(&Reason::Ambiguous), told, "{prefix}/{len}: {:?}", followed.path.all());
    }
}

#[test]
fn routes_by_what_is_no_port_go_to_the_kernel() {
    let kernel = Naive::new(3);
    let vlan = |parent: u32| {
        let data = build::attr(1, &7_u16.to_ne_bytes());
        let info = build::attr(18, &[build::attr(1, b"vlan\0"), build::attr(2, &data)].concat());
        build::link(4, "p.7", true, true, &[build::word(5, parent), info])
    };
    let way = |link: &[u8], index: u32| {
        let mut followed = Followed::new(&kernel);
        followed.mirror.set_ports(Ports::Only([1].into()), &mut |_| {});
        followed.hear(&[link.to_vec(), Route::to("20.0.0.0", 8).via(index, "10.0.9.2").bytes(true, 0x600)], false);
        followed.path.lookup([20, 1, 1, 1].into())
    };
    assert!(matches!(way(&[], 1), Answer::Forward(_)));
    assert_eq!(way(&[], 2), Answer::Kernel("not understood"));
    assert!(matches!(way(&vlan(1), 4), Answer::Forward(_)));
    assert_eq!(way(&vlan(2), 4), Answer::Kernel("not understood"));
    // A port that joins a VRF, and an interface that nobody has told of.
    assert_eq!(way(&build::link(1, "p1", true, true, &[build::word(10, 3)]), 1), Answer::Kernel("not understood"));
    assert_eq!(way(&[], 99), Answer::Kernel("not understood"));
}

#[test]
fn a_macvlan_names_what_it_is_on() {
    let mut followed = Followed::new(&Naive::new(1));
    for (kind, macvlan, is_macvtap) in
        [("macvlan", Some(1), false), ("macvtap", Some(1), true), ("vlan", None, false), ("ipvlan", None, false)]
    {
        let info = build::attr(18, &build::attr(1, &[kind.as_bytes(), &[0]].concat()));
        followed.hear(&[build::link(9, "m", true, true, &[build::word(5, 1), info.clone()])], false);
        let shown = |mirror: &Mirror| {
            let (_, shown) = mirror.interfaces().find(|(index, _)| *index == 9).unwrap();
            (shown.macvlan, shown.is_macvtap)
        };
        assert_eq!(shown(&followed.mirror), (macvlan, is_macvtap), "{kind}");
        // What it is on is in another namespace.
        let elsewhere = build::word(37, 0);
        followed.hear(&[build::link(9, "m", true, true, &[build::word(5, 1), elsewhere, info])], false);
        assert_eq!(shown(&followed.mirror), (None, is_macvtap), "{kind}");
    }
}

#[test]
fn a_macvlan_takes_frames_by_more_than_their_destination_in_some_modes() {
    let mut followed = Followed::new(&Naive::new(1));
    // Private, VEPA, bridge, passthru, source; what is not said or new may be anything.
    let modes = [(1, false), (2, false), (4, false), (8, true), (16, true), (32, true)];
    let modes = modes.map(|(mode, expected)| (build::attr(2, &build::word(1, mode)), expected));
    for (data, expected) in modes.into_iter().chain([(Vec::new(), true)]) {
        for kind in ["macvlan", "macvtap"] {
            let info = build::attr(18, &[build::attr(1, &[kind.as_bytes(), &[0]].concat()), data.clone()].concat());
            followed.hear(&[build::link(9, "m", true, true, &[build::word(5, 1), info])], false);
            let (_, shown) = followed.mirror.interfaces().find(|(index, _)| *index == 9).unwrap();
            assert_eq!((shown.macvlan, shown.takes_by_more), (Some(1), expected), "{kind} {data:?}");
        }
    }
}

#[test]
fn other_rules_send_a_family_to_the_kernel() {
    let mut followed = Followed::new(&Naive::new(1));
    assert_eq!([Family::V4, Family::V6].map(|family| followed.mirror.bypass(family)), [None; 2]);
    let mark = |new| build::rule(new, 2, 100, 254, &[build::word(10, 1)]);
    assert_eq!(told(&mut followed, &mark(true)).len(), 1);
    assert_eq!(followed.mirror.bypass(Family::V4), Some(Reason::Rules));
    assert_eq!(followed.mirror.bypass(Family::V6), None);
    // What leads packets of a VRF elsewhere concerns no others.
    assert_eq!(
        told(&mut followed, &[mark(false), build::rule(true, 2, 1000, 0, &[build::attr(19, &[1])])].concat()).len(),
        1
    );
    assert_eq!(followed.mirror.bypass(Family::V4), None);
    told(&mut followed, &build::rule(false, 10, 32_766, 254, &[]));
    assert_eq!(followed.mirror.bypass(Family::V6), Some(Reason::Rules));
}

#[test]
fn local_may_stand_anywhere_before_main() {
    let mut followed = Followed::new(&Naive::new(1));
    // As scripts for VRFs move it behind their rule.
    for family in [2, 10] {
        let moved = [build::rule(true, family, 32_765, 255, &[]), build::rule(false, family, 0, 255, &[])];
        assert!(told(&mut followed, &moved.concat()).is_empty());
    }
    assert_eq!([Family::V4, Family::V6].map(|family| followed.mirror.bypass(family)), [None; 2]);
    let behind = [build::rule(true, 2, 32_767, 255, &[]), build::rule(false, 2, 32_765, 255, &[])];
    told(&mut followed, &behind.concat());
    assert_eq!(followed.mirror.bypass(Family::V4), Some(Reason::Rules));
}

#[test]
fn an_encapsulation_is_told_from_others_but_for_its_counters() {
    let mut followed = Followed::new(&Naive::new(1));
    // RTA_ENCAP, RTA_ENCAP_TYPE; SEG6_LOCAL_ACTION, SEG6_LOCAL_COUNTERS.
    let by = |action: u32, packets: u32| {
        let said = [build::word(1, action), build::word(10, packets)].concat();
        let more = vec![build::attr(22, &said), build::attr(21, &[7, 0])];
        Route { more, ..Route::to("20.0.0.0", 8).via(1, "10.0.1.2") }
    };
    followed.hear(&[by(1, 0).bytes(true, 0x600), by(2, 0).bytes(true, 0xC00), by(1, 9).bytes(false, 0)], false);
    assert_eq!(followed.path.lookup([20, 1, 1, 1].into()), Answer::Kernel("not understood"));
    followed.hear(&[by(2, 9).bytes(false, 0)], false);
    assert_eq!(followed.path.lookup([20, 1, 1, 1].into()), Answer::Kernel("no route"));
    assert!(!followed.mirror.is_in_doubt());
}

#[test]
fn rules_that_are_there_twice_go_one_by_one() {
    let mut followed = Followed::new(&Naive::new(1));
    let rule = |new| build::rule(new, 2, 100, 100, &[]);
    followed.hear(&[rule(true), rule(true), rule(false)], false);
    assert_eq!(followed.mirror.bypass(Family::V4), Some(Reason::Rules));
    followed.hear(&[rule(false)], false);
    assert_eq!(followed.mirror.bypass(Family::V4), None);
    // A dump counts them, too.
    for shown in [2, 2, 1] {
        followed.mirror.begin(Dump::Rules(Family::V4));
        let usual = [(0, 255), (32_766, 254)].map(|(priority, table)| build::rule(true, 2, priority, table, &[]));
        followed.hear(&[&usual[..], &vec![rule(true); shown]].concat(), true);
        followed.mirror.finish(Dump::Rules(Family::V4), &mut |_| {});
    }
    followed.mirror.take_doubt();
    followed.hear(&[rule(false)], false);
    assert_eq!(followed.mirror.bypass(Family::V4), None);
    assert!(!followed.mirror.is_in_doubt());
    // Whether a dump that goes on shows what events tell is not known, nor what one that is unknown was.
    followed.mirror.begin(Dump::Rules(Family::V4));
    followed.hear(&[rule(true)], false);
    assert!(followed.mirror.take_doubt());
    followed.mirror.finish(Dump::Rules(Family::V4), &mut |_| {});
    followed.hear(&[build::rule(false, 2, 200, 100, &[])], false);
    assert!(followed.mirror.take_doubt());
}

#[test]
fn addresses_that_differ_in_their_peer_are_two() {
    let mut followed = Followed::new(&Naive::new(1));
    let own = |new, last| build::peered(new, 1, [10, 7, 0, 1].into(), [10, 7, 0, last].into(), 32);
    followed.hear(&[own(true, 8), own(true, 9)], false);
    followed.hear(&[Route::to("20.0.0.0", 8).via(1, "10.7.0.9").bytes(true, 0x600), own(false, 8)], false);
    assert!(matches!(followed.path.lookup([20, 1, 1, 1].into()), Answer::Forward(_)));
    followed.hear(&[own(false, 9)], false);
    assert_eq!(followed.path.lookup([20, 1, 1, 1].into()), Answer::Kernel("no route"));
}

#[test]
fn the_last_address_takes_ipv4_routes_with_it() {
    let kernel = Naive::new(2);
    let mut followed = Followed::new(&kernel);
    let own: [IpAddr; 2] = [[10, 0, 1, 1].into(), [10, 0, 1, 9].into()];
    followed.hear(&own.map(|address| build::address(true, 1, address, 24)), false);
    followed.hear(
        &[
            Route::to("20.0.0.0", 8).via(1, "10.0.1.2").bytes(true, 0x600),
            Route::to("21.0.0.0", 8).via(1, "10.0.1.2").via(2, "10.0.2.2").bytes(true, 0x600),
        ],
        false,
    );
    followed.hear(&[build::address(false, 1, own[0], 24)], false);
    assert!(matches!(followed.path.lookup([20, 1, 1, 1].into()), Answer::Forward(_)));
    followed.hear(&[build::address(false, 1, own[1], 24)], false);
    assert_eq!(followed.path.lookup([20, 1, 1, 1].into()), Answer::Kernel("no route"));
    assert_eq!(followed.path.lookup([21, 1, 1, 1].into()), Answer::Kernel("not understood"));
    assert!(followed.mirror.is_in_doubt());
}

#[test]
fn the_last_ipv6_address_leaves_legs_to_the_kernel_until_a_dump() {
    let mut kernel = Naive::new(2);
    kernel.run(&Op::Route(Verb::Add, Route::to("fd20::", 16).via(1, "fd00:1::2").via(2, "fd00:2::2")));
    kernel.run(&Op::Route(Verb::Add, Route::to("fd21::", 16).via(1, "fd00:1::2")));
    let mut followed = Followed::new(&kernel);
    let way = |followed: &Followed, last| followed.path.lookup(IpAddr::from([last, 0, 0, 0, 0, 0, 0, 1_u16]));
    let own = |new| build::address(new, 1, "fe80::1".parse().unwrap(), 64);
    followed.hear(&[own(true)], false);
    assert!(followed.mirror.take_doubt(), "legs may be back");
    followed.hear(&[own(false)], false);
    assert!(followed.mirror.take_doubt());
    assert_eq!(way(&followed, 0xFD20), Answer::Kernel("not understood"));
    assert!(matches!(way(&followed, 0xFD21), Answer::Forward(_)), "the kernel tells if it goes");
    followed.compare(&kernel);
    assert!(matches!(way(&followed, 0xFD20), Answer::Forward(_)));
}

/// Whatever addresses interfaces of the next number, and the interface of the other family, have.
#[test]
fn ipv6_is_forwarded_from_interfaces_with_an_address_of_it() {
    let mut followed = Followed::new(&Naive::new(3));
    followed.hear(&[build::netconf(10, u32::MAX, 1, 0)], false);
    let addresses: Vec<(u32, IpAddr)> =
        (1..=3).flat_map(|index| ["255.0.0.1", "::1"].map(|address| (index, address.parse().unwrap()))).collect();
    let mut there = 0_usize;
    // All combinations, each by one change of the one before.
    for turn in 1..=64_usize {
        let at = turn.trailing_zeros() as usize % addresses.len();
        there ^= 1 << at;
        let (index, address) = addresses[at];
        followed.hear(&[build::address(there >> at & 1 == 1, index, address, 24)], false);
        let forwards: std::collections::BTreeMap<u32, bool> =
            followed.mirror.interfaces().map(|(index, interface)| (index, interface.forwarding[1])).collect();
        let expected = [1, 2, 3].map(|index| (index, there >> (2 * index - 1) & 1 == 1));
        assert_eq!(forwards, expected.into(), "{there:b}");
    }
}

#[test]
fn neighbours_and_interfaces_are_told_when_they_change() {
    let mut followed = Followed::new(&Naive::new(2));
    let address: IpAddr = "fe80::2".parse().unwrap();
    let stale = build::neighbour(true, 1, address, 4, [2, 0, 0, 0, 0, 9]);
    assert_eq!(told(&mut followed, &stale).len(), 1);
    assert_eq!(told(&mut followed, &stale).len(), 0);
    assert_eq!(followed.mirror.neighbours().next().unwrap().2.usable(), Some([2, 0, 0, 0, 0, 9]));
    assert_eq!(told(&mut followed, &build::neighbour(true, 1, address, 0x20, [2, 0, 0, 0, 0, 9])).len(), 1);
    assert_eq!(followed.mirror.neighbours().next().unwrap().2.usable(), None);
    // One that gets the MAC address of a group is the kernel's, until it has another.
    for (mac, known, events) in [([3, 0, 0, 0, 0, 9], 0, 1), ([3, 0, 0, 0, 0, 9], 0, 0), ([2, 0, 0, 0, 0, 8], 1, 1)] {
        let said = told(&mut followed, &build::neighbour(true, 1, address, 0x80, mac));
        assert_eq!((said.len(), followed.mirror.neighbours().count()), (events, known), "{said:?}");
    }
    assert_eq!(told(&mut followed, &build::netconf(2, 2, 1, 0)).len(), 0, "as it was");
    assert_eq!(told(&mut followed, &build::netconf(2, 2, 0, 0)).len(), 1);
    // An interface that goes takes its neighbours along.
    let events = told(&mut followed, &build::del_link(1));
    assert_eq!(
        events.iter().filter(|event| event.starts_with("Neighbour") || event.starts_with("Interface")).count(),
        2,
        "{events:?}"
    );
}

#[test]
fn legs_without_carrier_count_unless_they_are_to_be_ignored() {
    let mut kernel = Naive::new(2);
    kernel.run(&Op::Route(Verb::Add, Route::to("20.0.0.0", 8).via(1, "10.0.1.2").via(2, "10.0.2.2")));
    let mut followed = Followed::new(&kernel);
    let legs = |followed: &Followed| {
        followed
            .mirror
            .next_hops()
            .find_map(|(_, hops)| if let NextHops::Forward(legs) = hops { Some(legs.len()) } else { None })
    };
    followed.hear(&kernel.run(&Op::Carrier(1, false)), false);
    assert_eq!(legs(&followed), Some(2));
    let ignore = |index, ignore| build::netconf(2, index, 1, ignore);
    // That of all counts beside the interface's own.
    for (index, value, left) in [(1, 1, 1), (u32::MAX, 1, 1), (1, 0, 1), (u32::MAX, 0, 2), (u32::MAX, 1, 1)] {
        followed.hear(&[ignore(index, value)], false);
        assert_eq!(legs(&followed), Some(left), "{index} {value}");
    }
    // Who gets the default's value is not told.
    followed.mirror.take_doubt();
    followed.hear(&[ignore(u32::MAX - 1, 0)], false);
    assert!(!followed.mirror.is_in_doubt());
    followed.hear(&[ignore(u32::MAX - 1, 1)], false);
    assert!(followed.mirror.is_in_doubt());
    // Nor does a link that is told anew forget it.
    followed.hear(&kernel.run(&Op::Carrier(2, false)), false);
    assert_eq!(legs(&followed), None);
}
