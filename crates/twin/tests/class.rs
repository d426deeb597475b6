//! What a refused frame is to the host: frames written by etherparse, and any bytes at all.

#![expect(clippy::unwrap_used, reason = "tests")]

use etherparse::{IpNumber, PacketBuilder, PacketBuilderStep};
use proptest::prelude::*;
use router::{Destination, Refusal};
use twin::Class;

const DESTINATIONS: [Destination; 3] = [Destination::Host, Destination::Elsewhere, Destination::Unknown];
const SOURCE: [u8; 6] = [2, 0, 0, 0, 0, 1];
const DESTINATION: [u8; 6] = [2, 0, 0, 0, 0, 2];

fn ethernet() -> PacketBuilderStep<etherparse::Ethernet2Header> {
    PacketBuilder::ethernet2(SOURCE, DESTINATION)
}

fn v4(to: [u8; 4]) -> PacketBuilderStep<etherparse::IpHeaders> {
    ethernet().ipv4([192, 0, 2, 1], to, 255)
}

fn v6(to: u16) -> PacketBuilderStep<etherparse::IpHeaders> {
    let [high, low] = to.to_be_bytes();
    ethernet().ipv6(
        [0xFE, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
        [high, low, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5],
        255,
    )
}

fn ip(step: PacketBuilderStep<etherparse::IpHeaders>, number: u8) -> Vec<u8> {
    let mut frame = Vec::new();
    step.write(&mut frame, IpNumber(number), &[0; 20]).unwrap();
    frame
}

fn udp(step: PacketBuilderStep<etherparse::IpHeaders>, port: u16) -> Vec<u8> {
    let mut frame = Vec::new();
    step.udp(49_152, port).write(&mut frame, &[0; 24]).unwrap();
    frame
}

fn tcp(step: PacketBuilderStep<etherparse::IpHeaders>, source: u16, destination: u16) -> Vec<u8> {
    let mut frame = Vec::new();
    step.tcp(source, destination, 0, 1000).write(&mut frame, &[]).unwrap();
    frame
}

fn discovery(kind: u8) -> Vec<u8> {
    let mut frame = Vec::new();
    v6(0xFF02).icmpv6_raw(kind, 0, [0; 4]).write(&mut frame, &[0; 16]).unwrap();
    frame
}

fn other(ether_type: u16, payload: &[u8]) -> Vec<u8> {
    [&DESTINATION[..], &SOURCE, &ether_type.to_be_bytes(), payload].concat()
}

/// The same frame to another station or group.
fn to(destination: [u8; 6], mut frame: Vec<u8>) -> Vec<u8> {
    frame[..6].copy_from_slice(&destination);
    frame
}

/// The same packet of IPv6 with another next header.
fn with_next_header(number: u8, mut frame: Vec<u8>) -> Vec<u8> {
    frame[20] = number;
    frame
}

/// The same frame behind a VLAN tag.
fn tagged(mut frame: Vec<u8>, kind: u16) -> Vec<u8> {
    let [a, b] = kind.to_be_bytes();
    frame.splice(12..12, [a, b, 0, 7]);
    frame
}

#[test]
fn frames_for_the_host_are_told_apart_by_what_they_carry() {
    let host = [10, 0, 0, 1];
    for (frame, class) in [
        (other(0x0806, &[0; 28]), Class::Link),
        (other(0x88CC, &[0; 46]), Class::Link),
        (other(0x8809, &[1; 46]), Class::Link),
        (to([1, 0x80, 0xC2, 0, 0, 0], other(0x0004, &[0x42, 0x42, 3, 0])), Class::Link),
        (to([1, 0x80, 0xC2, 0, 0, 3], other(0x888E, &[1; 46])), Class::Link),
        (to([1, 0x80, 0xC2, 0, 0, 16], other(0x888E, &[1; 46])), Class::Other),
        (to([1, 0x80, 0xC2, 0, 0, 0x14], other(0x0020, &[0xFE, 0xFE, 3, 0x83])), Class::IsIs),
        (other(0x0020, &[0xFE, 0xFE, 3, 0x83]), Class::IsIs),
        (other(0x0004, &[0x42, 0x42, 3, 0]), Class::Other),
        (other(0x8847, &[0; 46]), Class::Other),
        (to([0xFF; 6], other(0x8863, &[0; 46])), Class::Other),
        (other(0x0800, &[]), Class::Own),
        (to([0xFF; 6], other(0x0800, &[])), Class::Groups),
        (Vec::new(), Class::Other),
        (discovery(133), Class::Link),
        (discovery(135), Class::Link),
        (discovery(137), Class::Link),
        (discovery(128), Class::Own),
        (discovery(143), Class::Own),
        (ip(v4([224, 0, 0, 5]), 89), Class::Ospf),
        (ip(v6(0xFF02), 89), Class::Ospf),
        (ip(v4([224, 0, 0, 18]), 112), Class::Vrrp),
        (ip(v4([224, 0, 0, 22]), 2), Class::Own),
        (to([1, 0, 0x5E, 0, 0, 251], udp(v4([224, 0, 0, 251]), 5353)), Class::Own),
        (to([1, 0, 0x5E, 1, 2, 3], udp(v4([239, 1, 2, 3]), 5000)), Class::Groups),
        (to([1, 0, 0x5E, 1, 2, 3], ip(v4([239, 1, 2, 3]), 2)), Class::Own),
        (udp(v4([239, 1, 2, 3]), 5000), Class::Groups),
        (to([0xFF; 6], udp(v4([255; 4]), 67)), Class::Groups),
        (to([0xFF; 6], udp(v4([10, 0, 0, 255]), 9)), Class::Groups),
        (to([0xFF; 6], udp(v4(host), 9)), Class::Groups),
        (udp(v6(0xFF02), 5353), Class::Own),
        (udp(v6(0xFF0E), 5000), Class::Groups),
        (to([0x33, 0x33, 0, 0, 0, 5], udp(v6(0xFF35), 5000)), Class::Groups),
        (to([0x33, 0x33, 0, 0, 0, 5], udp(v6(0x2001), 5000)), Class::Groups),
        // A hop-by-hop header, as a report of MLD has.
        (with_next_header(0, udp(v6(0xFF0E), 5000)), Class::Own),
        (ip(v4(host), 1), Class::Own),
        (tcp(v4(host), 40_000, 179), Class::Bgp),
        (tcp(v4(host), 179, 40_000), Class::Bgp),
        (tcp(v6(0x2001), 179, 40_000), Class::Bgp),
        (tcp(v4(host), 40_000, 22), Class::Own),
        (udp(v4(host), 3784), Class::Bfd),
        (udp(v4(host), 4784), Class::BfdMultihop),
        (udp(v6(0x2001), 4784), Class::BfdMultihop),
        (udp(v6(0x2001), 3784), Class::Bfd),
        (udp(v6(0x2001), 6784), Class::Bfd),
        (udp(v4(host), 179), Class::Own),
        (tcp(v4(host), 40_000, 3784), Class::Own),
    ] {
        for refusal in [Refusal::ForHost, Refusal::LinkMulticast, Refusal::NotIp, Refusal::Vlan] {
            assert_eq!(Class::of(refusal, Destination::Unknown, &frame), Some(class), "{frame:02x?}");
            if frame.len() > 14 {
                let once = tagged(frame.clone(), 0x8100);
                assert_eq!(Class::of(refusal, Destination::Unknown, &once), Some(class), "tagged: {frame:02x?}");
                assert_eq!(
                    Class::of(refusal, Destination::Unknown, &tagged(once, 0x88A8)),
                    Some(class),
                    "twice: {frame:02x?}"
                );
            }
        }
        // What the host's routing decides may be for the host too.
        let left = if class == Class::Own { Class::Left } else { class };
        assert_eq!(Class::of(Refusal::LeftToHost, Destination::Unknown, &frame), Some(left), "{frame:02x?}");
    }
}

#[test]
fn a_fragment_has_no_ports() {
    let mut frame = tcp(v4([10, 0, 0, 1]), 179, 179);
    assert_eq!(Class::of(Refusal::ForHost, Destination::Host, &frame), Some(Class::Bgp));
    frame[21] = 1;
    assert_eq!(Class::of(Refusal::ForHost, Destination::Host, &frame), Some(Class::Own));
    frame[23] = 89;
    assert_eq!(Class::of(Refusal::ForHost, Destination::Host, &frame), Some(Class::Ospf), "by its number");
}

#[test]
fn what_passes_by_is_of_no_protocol_whatever_it_carries() {
    let to = [198, 51, 100, 1];
    let starts: [&dyn Fn() -> PacketBuilderStep<etherparse::IpHeaders>; 3] =
        [&|| v4(to), &|| v6(0x2001), &|| ethernet().ipv4([169, 254, 0, 1], to, 255)];
    for start in starts {
        for frame in [ip(start(), 89), ip(start(), 112), tcp(start(), 9, 179), udp(start(), 3784), udp(start(), 4784)] {
            for (refusal, class) in [
                (Refusal::LeftToHost, Class::Left),
                (Refusal::MartianSource, Class::Left),
                (Refusal::MartianDestination, Class::Left),
                (Refusal::Ttl, Class::Error),
            ] {
                assert_eq!(
                    Class::of(refusal, Destination::Elsewhere, &frame),
                    Some(class),
                    "{refusal:?}: {frame:02x?}"
                );
                for destination in [Destination::Host, Destination::Unknown] {
                    let class = Class::of(refusal, destination, &frame);
                    assert!(class.is_some_and(Class::is_routing), "{refusal:?}, {destination:?}: {frame:02x?}");
                }
            }
        }
    }
    let solicitation = discovery(135);
    assert_eq!(Class::of(Refusal::LeftToHost, Destination::Elsewhere, &solicitation), Some(Class::Left));
    // And other packets are what they are by the refusal, if nobody knows.
    let ping = ip(v4(to), 1);
    for (destination, classes) in
        [(Destination::Host, [Class::Own; 2]), (Destination::Unknown, [Class::Left, Class::Error])]
    {
        let of = |refusal| Class::of(refusal, destination, &ping);
        assert_eq!([Refusal::LeftToHost, Refusal::Ttl].map(of), classes.map(Some));
    }
}

/// Whoever is not on the link cannot send with 255, and shares nothing with who is.
#[test]
fn from_beyond_the_link_nothing_is_bfd_of_one_hop_or_vrrp_or_discovery() {
    let host = [10, 0, 0, 1];
    for ttl in [0, 1, 64, 254] {
        let v4 = || ethernet().ipv4([192, 0, 2, 1], host, ttl);
        for kind in 133..=137 {
            let mut frame = discovery(kind);
            frame[21] = ttl;
            assert_eq!(Class::of(Refusal::ForHost, Destination::Host, &frame), Some(Class::Own), "{kind}, {ttl}");
        }
        let v6 = || ethernet().ipv6([0x20; 16], [0x21; 16], ttl);
        for (frame, class) in [
            (udp(v4(), 3784), Class::Own),
            (udp(v4(), 6784), Class::Own),
            (udp(v6(), 3784), Class::Own),
            (ip(v4(), 112), Class::Own),
            (ip(v6(), 112), Class::Own),
            (udp(v4(), 4784), Class::BfdMultihop),
            (udp(v6(), 4784), Class::BfdMultihop),
            (ip(v4(), 89), Class::Ospf),
            (tcp(v4(), 40_000, 179), Class::Bgp),
        ] {
            assert_eq!(Class::of(Refusal::ForHost, Destination::Host, &frame), Some(class), "{frame:02x?}");
            let left = if class == Class::Own { Class::Left } else { class };
            assert_eq!(Class::of(Refusal::LeftToHost, Destination::Unknown, &frame), Some(left), "{frame:02x?}");
        }
    }
}

#[test]
fn what_the_host_answers_is_an_error_whatever_it_carries() {
    let to = [198, 51, 100, 1];
    for refusal in
        [Refusal::Ttl, Refusal::TooBig, Refusal::NoRoute, Refusal::Options, Refusal::Unreachable, Refusal::Prohibited]
    {
        for transit in [udp(v4(to), 53), udp(v4(to), 3784), udp(v4(to), 4784), ip(v4(to), 89), tcp(v4(to), 179, 5)] {
            assert_eq!(Class::of(refusal, Destination::Elsewhere, &transit), Some(Class::Error), "{refusal:?}");
        }
    }
    let bgp = tcp(v4(to), 179, 5);
    assert_eq!(Class::of(Refusal::Unresolved, Destination::Host, &bgp), Some(Class::Unresolved));
    assert_eq!(Class::of(Refusal::Probe, Destination::Host, &bgp), Some(Class::Probe));
}

#[test]
fn what_no_host_has_is_dropped_and_link_local_is_not() {
    let between = |from: [u8; 4], to: [u8; 4]| ip(ethernet().ipv4(from, to, 64), 1);
    let host = [10, 0, 0, 1];
    for refusal in [Refusal::MartianSource, Refusal::MartianDestination] {
        for (from, to, class) in [
            ([169, 254, 0, 1], host, Some(Class::Own)),
            (host, [169, 254, 0, 1], Some(Class::Own)),
            (host, [224, 0, 0, 5], Some(Class::Own)),
            (host, [255; 4], Some(Class::Groups)),
            ([0; 4], host, None),
            ([127, 0, 0, 1], host, None),
            (host, [127, 0, 0, 1], None),
            ([240, 0, 0, 1], host, None),
            (host, [240, 0, 0, 1], None),
            ([224, 0, 0, 1], host, None),
            ([255; 4], host, None),
            // The first odd address is not all there is to look at.
            ([169, 254, 0, 1], [127, 0, 0, 1], None),
        ] {
            assert_eq!(Class::of(refusal, Destination::Host, &between(from, to)), class, "{from:?} to {to:?}");
        }
        let bgp_unnumbered = tcp(v6(0xFE80), 40_000, 179);
        assert_eq!(Class::of(refusal, Destination::Host, &bgp_unnumbered), Some(Class::Bgp));
        let between = |from: [u8; 16], to: [u8; 16]| ip(ethernet().ipv6(from, to, 64), 58);
        let (good, mut mapped) = ([0x20; 16], [0; 16]);
        mapped[10..12].fill(0xFF);
        let loopback = 1_u128.to_be_bytes();
        for (from, to) in
            [([0; 16], good), (good, [0; 16]), (loopback, good), (good, loopback), (mapped, good), ([0xFF; 16], good)]
        {
            assert_eq!(Class::of(refusal, Destination::Host, &between(from, to)), None, "{from:?} to {to:?}");
        }
        assert_eq!(Class::of(refusal, Destination::Host, &[]), None);
    }
}

#[test]
fn false_headers_blackholes_and_other_stations_are_nothing_to_the_host() {
    let frame = tcp(v4([10, 0, 0, 1]), 179, 179);
    for refusal in [
        Refusal::OtherStation,
        Refusal::Version,
        Refusal::HeaderLength,
        Refusal::TotalLength,
        Refusal::Checksum,
        Refusal::Blackhole,
    ] {
        assert_eq!(Class::of(refusal, Destination::Unknown, &frame), None, "{refusal:?}");
    }
}

proptest! {
    #[test]
    fn any_bytes_have_a_class_or_none(frame in proptest::collection::vec(any::<u8>(), 0..80), kind in 0..5_usize) {
        let kinds: [&[u8]; 5] = [&[8, 0], &[0x86, 0xDD], &[0x81, 0], &[0, 9], &[]];
        let mut frame = frame;
        if let Some(place) = frame.get_mut(12..12 + kinds[kind].len()) {
            place.copy_from_slice(kinds[kind]);
        }
        for refusal in Refusal::ALL {
            for destination in DESTINATIONS {
                let _ = Class::of(refusal, destination, &frame);
            }
        }
    }
}

#[test]
fn every_routing_protocol_has_a_class_and_a_name_of_its_own() {
    let names: std::collections::BTreeSet<&str> = Class::ALL.into_iter().map(Class::name).collect();
    assert_eq!(names.len(), Class::ALL.len());
    let routing: Vec<&str> = Class::ALL.into_iter().filter(|class| class.is_routing()).map(Class::name).collect();
    assert_eq!(routing, ["ospf", "isis", "vrrp", "bgp", "bfd", "bfd_multihop"]);
}
