//! Messages decoded: made by hand from the kernel's structures, judged by netlink-packet-route, cut, and changed at random.

#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "common/build.rs"]
mod build;

use build::{Route, attr, group, ip, link, message, netconf, next_hop, rule, word};
use kernel::{Body, Error, Family, Fault, Leg, Message, Messages, NetconfScope, RouteKind};
use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::AddressAttribute;
use netlink_packet_route::link::LinkAttribute;
use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteNextHop, RouteVia};
use proptest::prelude::*;
use std::net::IpAddr;

fn one(bytes: &[u8]) -> Message<'_> {
    let mut messages = Messages::new(bytes);
    let message = messages.next().unwrap().unwrap();
    assert!(messages.next().is_none());
    message
}

/// What the judge reads; `None` if it cannot.
fn judged(bytes: &[u8]) -> Option<RouteNetlinkMessage> {
    match NetlinkMessage::<RouteNetlinkMessage>::deserialize(bytes).ok()?.payload {
        NetlinkPayload::InnerMessage(message) => Some(message),
        _ => None,
    }
}

fn ip_of(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

fn gateway_of(attributes: &[RouteAttribute]) -> Option<IpAddr> {
    attributes.iter().rev().find_map(|attribute| match attribute {
        RouteAttribute::Gateway(address) => ip_of(address),
        RouteAttribute::Via(RouteVia::Inet(address)) => Some((*address).into()),
        RouteAttribute::Via(RouteVia::Inet6(address)) => Some((*address).into()),
        _ => None,
    })
}

fn same_route(ours: &kernel::Route<'_>, theirs: &RouteMessage) {
    let head = &theirs.header;
    assert_eq!(
        (ours.len, ours.tos, u8::from(head.kind)),
        (head.destination_prefix_length, head.tos, kind_of(ours.kind, head.kind.into()))
    );
    let (mut table, mut priority, mut next_hop, mut destination, mut legs) =
        (head.table.into(), 0, None, None, Vec::new());
    let mut interface = 0;
    for attribute in &theirs.attributes {
        match attribute {
            RouteAttribute::Table(value) => table = *value,
            RouteAttribute::Priority(value) => priority = *value,
            RouteAttribute::NhId(value) => next_hop = Some(*value),
            RouteAttribute::Destination(address) => destination = ip_of(address),
            RouteAttribute::Oif(index) => interface = *index,
            RouteAttribute::MultiPath(several) => legs = several.iter().map(leg_of).collect(),
            _ => {}
        }
    }
    if legs.is_empty() && interface != 0 {
        legs.push(Leg { interface, gateway: gateway_of(&theirs.attributes), weight: 1 });
    }
    assert_eq!((ours.table, ours.priority, ours.next_hop), (table, priority, next_hop));
    assert!(destination.is_none_or(|destination| destination == ours.address));
    assert_eq!(ours.legs().map(|(leg, _)| leg).collect::<Vec<_>>(), legs);
}

fn leg_of(hop: &RouteNextHop) -> Leg {
    Leg { interface: hop.interface_index, gateway: gateway_of(&hop.attributes), weight: u32::from(hop.hops) + 1 }
}

/// The judge's number, if it belongs to our kind.
fn kind_of(kind: RouteKind, number: u8) -> u8 {
    let fits = match kind {
        RouteKind::Unicast => number == 1,
        RouteKind::Local => (2..=5).contains(&number),
        RouteKind::Blackhole => number == 6,
        RouteKind::Unreachable => number == 7,
        RouteKind::Prohibit => number == 8,
        RouteKind::Other => number == 0 || number > 8,
    };
    if fits { number } else { !number }
}

/// Compares what both read, and returns whether both could.
fn compare(bytes: &[u8]) -> bool {
    let Some(Ok(ours)) = Messages::new(bytes).next() else { return false };
    match (&ours.body, judged(bytes)) {
        (Body::NewRoute(ours), Some(RouteNetlinkMessage::NewRoute(theirs)))
        | (Body::DelRoute(ours), Some(RouteNetlinkMessage::DelRoute(theirs))) => same_route(ours, &theirs),
        (Body::NewNeighbour(ours), Some(RouteNetlinkMessage::NewNeighbour(theirs))) => {
            assert_eq!((ours.interface, ours.state), (theirs.header.ifindex, theirs.header.state.into()));
            for attribute in &theirs.attributes {
                match attribute {
                    NeighbourAttribute::Destination(NeighbourAddress::Inet(address)) => {
                        assert_eq!(ours.address, *address)
                    }
                    NeighbourAttribute::Destination(NeighbourAddress::Inet6(address)) => {
                        assert_eq!(ours.address, *address)
                    }
                    NeighbourAttribute::LinkLayerAddress(mac) if mac.len() == 6 => {
                        assert_eq!(ours.mac.unwrap()[..], mac[..])
                    }
                    _ => {}
                }
            }
        }
        (Body::NewLink(ours), Some(RouteNetlinkMessage::NewLink(theirs))) => {
            assert_eq!((ours.index, ours.is_up()), (theirs.header.index, theirs.header.flags.bits() & 1 != 0));
            for attribute in &theirs.attributes {
                match attribute {
                    LinkAttribute::IfName(name) => assert_eq!(ours.name, name),
                    LinkAttribute::Mtu(mtu) => assert_eq!(ours.mtu, *mtu),
                    LinkAttribute::Carrier(carrier) => assert_eq!(ours.carrier, *carrier != 0),
                    _ => {}
                }
            }
        }
        (Body::NewAddress(ours), Some(RouteNetlinkMessage::NewAddress(theirs))) => {
            assert_eq!((ours.interface, ours.len), (theirs.header.index, theirs.header.prefix_len));
            for attribute in &theirs.attributes {
                if let AddressAttribute::Local(address) = attribute {
                    assert_eq!(ours.address, *address);
                }
            }
        }
        (Body::NewRule(_), Some(RouteNetlinkMessage::NewRule(_))) => {}
        _ => return false,
    }
    true
}

#[test]
fn a_route_made_by_hand_is_read() {
    // struct rtmsg: family, lengths, TOS, table, protocol, scope, type, flags; then RTA_TABLE, RTA_DST, RTA_PRIORITY, RTA_GATEWAY, RTA_OIF.
    let bytes = message(
        24,
        0x600,
        &[2, 24, 0, 0, 252, 186, 0, 1, 0, 0, 0, 0],
        &[word(15, 1000), attr(1, &[192, 0, 2, 0]), word(6, 20), attr(5, &[10, 0, 0, 2]), word(4, 7)],
    );
    let message = one(&bytes);
    assert_eq!((message.kind, message.flags), (24, 0x600));
    let Body::NewRoute(route) = message.body else { panic!("{message:?}") };
    assert_eq!((route.family, route.address.to_string(), route.len), (Family::V4, "192.0.2.0".to_owned(), 24));
    assert_eq!((route.table, route.priority, route.kind), (1000, 20, RouteKind::Unicast));
    let legs: Vec<_> = route.legs().map(|(leg, _)| leg).collect();
    assert_eq!(legs, [Leg { interface: 7, gateway: Some([10, 0, 0, 2].into()), weight: 1 }]);
}

#[test]
fn legs_by_the_other_family_and_encapsulations_are_told() {
    let route = Route::to("192.0.2.0", 24).via(3, "fe80::1").via(4, "10.0.0.9");
    let bytes = route.bytes(true, 0);
    let Body::NewRoute(read) = one(&bytes).body else { panic!() };
    let legs: Vec<_> =
        read.legs().map(|(leg, flags)| (leg.interface, leg.gateway.unwrap(), flags.encapsulated)).collect();
    assert_eq!(legs, [(3, "fe80::1".parse().unwrap(), false), (4, [10, 0, 0, 9].into(), false)]);
    let labelled = Route {
        more: vec![attr(21, &1_u16.to_ne_bytes()), attr(22, &[0; 8])],
        ..Route::to("192.0.2.0", 24).via(3, "10.0.0.9")
    };
    let bytes = labelled.bytes(true, 0);
    let Body::NewRoute(read) = one(&bytes).body else { panic!() };
    assert!(read.encapsulated && read.legs().all(|(_, flags)| flags.encapsulated));
}

#[test]
fn groups_have_weights_of_two_bytes() {
    let bytes = group(true, 9, &[(1, 1), (2, 300)]);
    let Body::NewNextHop(hop) = one(&bytes).body else { panic!() };
    assert_eq!(hop.members().collect::<Vec<_>>(), [(1, 1), (2, 300)]);
    // A member that is cut in the middle.
    let bytes = message(104, 0, &[0; 8], &[word(1, 9), attr(2, &[0; 12])]);
    assert_eq!(Messages::new(&bytes).next().unwrap().unwrap_err(), Error::Malformed { kind: 104, fault: Fault::Value });
}

#[test]
fn settings_are_of_all_of_those_to_come_or_of_one() {
    for (index, scope) in
        [(u32::MAX, NetconfScope::All), (u32::MAX - 1, NetconfScope::Default), (5, NetconfScope::Interface(5))]
    {
        let bytes = netconf(2, index, 1, 0);
        let Body::NewNetconf(read) = one(&bytes).body else { panic!() };
        assert_eq!((read.scope, read.forwarding, read.ignore_linkdown), (scope, Some(true), Some(false)));
    }
}

#[test]
fn rules_of_every_system_are_plain_and_others_are_not() {
    let plain = |bytes: &[u8]| matches!(one(bytes).body, Body::NewRule(rule) if rule.plain);
    assert!(plain(&rule(true, 2, 0, 255, &[])) && plain(&rule(true, 10, 32_766, 254, &[attr(21, &[2])])));
    // From a mark (FRA_FWMARK), to a prefix (FRA_DST), with prefixes suppressed.
    assert!(!plain(&rule(true, 2, 9, 254, &[word(10, 1)])) && !plain(&rule(true, 2, 9, 254, &[word(14, 0)])));
    let vrf = rule(true, 2, 1000, 0, &[attr(19, &[1])]);
    assert!(matches!(one(&vrf).body, Body::NewRule(rule) if rule.l3mdev && !rule.plain));
}

#[test]
fn what_tells_some_of_a_link_is_no_link() {
    let head = [&[0, 0, 1, 0][..], &7_u32.to_ne_bytes(), &[0; 8]].concat();
    let (name, mtu, wireless) = (attr(3, b"wlan0\0"), word(4, 1500), attr(11, &[0; 8]));
    let whole = [name.clone(), mtu.clone(), wireless.clone()];
    assert!(
        matches!(one(&message(16, 0, &head, &whole)).body, Body::NewLink(link) if (link.name, link.mtu) == ("wlan0", 1500))
    );
    for part in [vec![name, wireless.clone()], vec![mtu, wireless], vec![]] {
        assert!(matches!(one(&message(16, 0, &head, &part)).body, Body::Other));
        assert!(matches!(one(&message(17, 0, &head, &part)).body, Body::DelLink(link) if link.index == 7));
    }
}

#[test]
fn what_bridges_say_is_none_of_links_or_neighbours() {
    let mut bytes = link(3, "p0", true, true, &[]);
    bytes[16] = 7;
    assert!(matches!(one(&bytes).body, Body::Other));
    let mut bytes = build::neighbour(true, 3, [10, 0, 0, 1].into(), 2, [2; 6]);
    bytes[16] = 7;
    assert!(matches!(one(&bytes).body, Body::Other));
}

#[test]
fn a_sub_interface_has_its_tag_and_the_interface_below() {
    let data = [attr(1, &7_u16.to_ne_bytes()), attr(5, &0x8100_u16.to_be_bytes())].concat();
    let info = attr(18, &[attr(1, b"vlan\0"), attr(2, &data)].concat());
    let bytes = link(9, "p0.7", true, true, &[word(5, 3), info.clone()]);
    let Body::NewLink(read) = one(&bytes).body else { panic!() };
    assert_eq!((read.vlan, read.parent, read.kind), (Some((7, 0x8100)), Some(3), "vlan"));
    let bytes = link(9, "p0.7", true, true, &[word(5, 3), word(37, 0), info]);
    assert!(matches!(one(&bytes).body, Body::NewLink(read) if read.parent.is_none()), "below is another namespace's");
}

#[test]
fn prefixes_and_addresses_of_the_wrong_length_are_refused() {
    let fault = |bytes: &[u8]| Messages::new(bytes).next().unwrap().unwrap_err();
    let mut long = Route::to("10.0.0.0", 8).bytes(true, 0);
    long[17] = 33;
    assert_eq!(fault(&long), Error::Malformed { kind: 24, fault: Fault::Value });
    let short = Route { more: vec![attr(5, &[1, 2, 3])], ..Route::to("10.0.0.0", 8) };
    assert_eq!(fault(&short.bytes(true, 0)), Error::Malformed { kind: 24, fault: Fault::Value });
    let other = Route { more: vec![ip(1, "fd00::".parse().unwrap())], ..Route::to("10.0.0.0", 8) };
    assert_eq!(fault(&other.bytes(true, 0)), Error::Malformed { kind: 24, fault: Fault::Value });
    let mut lying = Route::to("10.0.0.0", 8).bytes(true, 0);
    lying[28..30].copy_from_slice(&u16::MAX.to_ne_bytes());
    assert_eq!(fault(&lying), Error::Malformed { kind: 24, fault: Fault::Attribute });
}

#[test]
fn a_lying_length_ends_a_datagram_and_a_malformed_message_does_not() {
    let (good, mut bad) = (Route::to("10.0.0.0", 8).via(2, "10.0.0.1").bytes(true, 0), link(3, "p0", true, true, &[]));
    bad[32] = 3;
    let bytes = [bad, good.clone()].concat();
    let read: Vec<_> = Messages::new(&bytes).map(|message| message.is_ok()).collect();
    assert_eq!(read, [false, true]);
    for len in [0, 15, u32::MAX] {
        let mut bytes = [good.clone(), good.clone()].concat();
        bytes[..4].copy_from_slice(&len.to_ne_bytes());
        assert_eq!(Messages::new(&bytes).map(|message| message.is_ok()).collect::<Vec<_>>(), [false]);
    }
}

/// Messages of every kind.
fn samples() -> Vec<Vec<u8>> {
    let v6: IpAddr = "fe80::1".parse().unwrap();
    vec![
        link(3, "p0", true, false, &[word(10, 4)]),
        build::address(true, 3, [10, 0, 0, 1].into(), 24),
        build::neighbour(true, 3, v6, 4, [2, 0, 0, 0, 0, 9]),
        rule(true, 2, 32_766, 254, &[]),
        Route::to("192.0.2.0", 24).via(3, "10.0.0.1").via(4, "10.1.0.1").bytes(true, 0x600),
        Route::to("fd00::", 16).via(3, "fe80::2").metric(7).bytes(false, 0),
        Route::to("192.0.2.0", 24).by(77).bytes(true, 0x100),
        next_hop(true, 7, 3, v6),
        group(true, 8, &[(7, 1), (6, 2)]),
        netconf(10, 3, 1, 1),
    ]
}

#[test]
fn every_cut_of_every_message_is_an_error_or_a_shorter_message() {
    for whole in samples() {
        for end in 0..whole.len() {
            let mut cut = whole[..end].to_vec();
            assert!(Messages::new(&cut).all(|message| message.is_err()), "{end} bytes of {whole:?}");
            // The same with a length that fits.
            if end >= 16 {
                cut[..4].copy_from_slice(&u32::try_from(end).unwrap().to_ne_bytes());
                assert_eq!(Messages::new(&cut).count(), 1);
            }
        }
    }
}

#[test]
fn the_judge_reads_the_same() {
    let compared = samples().iter().filter(|sample| compare(sample)).count();
    // It knows no next hops, and settings as a message of its own.
    assert_eq!(compared, 7);
}

/// A route of any content.
fn route() -> impl Strategy<Value = Vec<u8>> {
    let gateway = prop_oneof![Just(None), any::<[u8; 4]>().prop_map(|address| Some(IpAddr::from(address)))];
    let leg = (1..9_u32, gateway, 1..=255_u8);
    let v6 = any::<[u8; 16]>().prop_map(IpAddr::from);
    let prefix = prop_oneof![any::<[u8; 4]>().prop_map(IpAddr::from), v6];
    let more = prop::collection::vec((0..40_u16, prop::collection::vec(any::<u8>(), 0..20)), 0..3);
    (
        prefix,
        0..=32_u8,
        any::<u32>(),
        0..12_u8,
        any::<u32>(),
        any::<u8>(),
        prop::collection::vec(leg, 0..4),
        prop::option::of(1..99_u32),
        more,
    )
        .prop_map(|(prefix, len, table, kind, priority, tos, legs, next_hop, more)| {
            let legs = if prefix.is_ipv4() {
                legs
            } else {
                legs.into_iter().map(|(index, _, weight)| (index, None, weight)).collect()
            };
            let more = more
                .into_iter()
                .filter(|(kind, _)| !matches!(kind, 1 | 4..=6 | 9 | 15 | 18 | 30))
                .map(|(kind, value)| attr(kind, &value));
            Route { prefix, len, table, kind, priority, tos, protocol: 2, legs, next_hop, more: more.collect() }
                .bytes(true, 0)
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn routes_of_any_content_are_read_as_the_judge_reads_them(bytes in route()) {
        compare(&bytes);
    }

    #[test]
    fn changed_messages_never_panic(
        sample in prop::sample::select(samples()),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = sample;
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        for message in Messages::new(&bytes).flatten() {
            if let Body::NewRoute(route) | Body::DelRoute(route) = message.body {
                prop_assert!(route.len <= route.family.bits());
                prop_assert_eq!(route.address.is_ipv4(), route.family == Family::V4);
                route.legs().for_each(drop);
            }
        }
    }
}
