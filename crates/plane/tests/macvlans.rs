//! Macvlans on ports and VLANs, and the MTU of IPv6.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Asked, Fate, packet};
use kernel::{Event, Family, Interface, Leg, Neighbour, NextHops, Prefix, Reason, Target};
use plane::{Plane, Port};
use router::{LiveConfig, LiveFib, Refusal};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const MAC: [u8; 6] = [2, 0, 0, 0, 1, 0];
const VRRP: [u8; 6] = [0, 0, 0x5E, 0, 1, 7];
const NEXT: [u8; 6] = [2, 0, 0, 0, 9, 9];
const V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xDB8, 0, 0, 0, 0, 0, 1));

fn interface(name: &str, mac: [u8; 6]) -> Interface {
    let name = name.to_owned();
    Interface {
        name,
        mac: Some(mac),
        mtu: 1500,
        up: true,
        carrier: true,
        forwarding: [true; 2],
        ..Interface::default()
    }
}

fn macvlan(below: u32) -> Interface {
    Interface { macvlan: Some(below), ..interface("m", VRRP) }
}

/// A port with routes of both families to a gateway by it, and a VLAN on it.
fn made() -> (Plane, Asked) {
    let own = router::Interface { mac: MAC, promiscuous: false, mtu: 1500 };
    let fib = LiveFib::new(&LiveConfig { next_hops: 16, groups: 1, ..LiveConfig::default() }, &[own]).unwrap();
    let asked = Asked::new(&fib, 1);
    let mut plane = Plane::new(fib, &[Port { name: "p0".to_owned(), index: None, mtu: 1500 }]).unwrap();
    set(&mut plane, 1, Some(&interface("p0", MAC)));
    set(&mut plane, 2, Some(&Interface { vlan: Some((1, 5)), ..interface("p0.5", MAC) }));
    for (number, address) in [(0, V4), (1, V6)] {
        let now = Some(Neighbour { mac: Some(NEXT), state: 2 });
        plane.apply(Event::Neighbour { interface: 1, address, now });
        let legs = [Leg { interface: 1, gateway: Some(address), weight: 1 }];
        plane.apply(Event::NextHops { number, now: NextHops::Forward(&legs) });
        plane.apply(Event::Route { prefix: Prefix { address, len: 8 }, to: Some(Target::NextHops(number)) });
    }
    (plane, asked)
}

fn set(plane: &mut Plane, index: u32, now: Option<&Interface>) {
    plane.apply(Event::Interface { index, now });
}

/// What becomes of packets of both families to the address of VRRP.
fn fates(asked: &mut Asked, vlan: Option<u16>) -> [Fate; 2] {
    [V4, V6].map(|to| asked.fate(VRRP, vlan, &packet(to, 3, 100)))
}

const OUT: Fate = Ok(((0, None), NEXT, MAC));
const OTHERS: [Fate; 2] = [Err(Refusal::OtherStation); 2];
const LEFT: Fate = Err(Refusal::LeftToHost);

#[test]
fn frames_to_a_macvlan_on_a_port_or_a_vlan_come_in() {
    let (mut plane, mut asked) = made();
    assert_eq!(fates(&mut asked, None), OTHERS);
    set(&mut plane, 3, Some(&macvlan(1)));
    assert_eq!(fates(&mut asked, None), [OUT; 2]);
    assert_eq!(fates(&mut asked, Some(5)), OTHERS);
    set(&mut plane, 3, Some(&macvlan(2)));
    assert_eq!(fates(&mut asked, None), OTHERS);
    assert_eq!(fates(&mut asked, Some(5)), [OUT; 2]);
    // Down, on an interface that is no port, gone.
    for gone in [Some(Interface { up: false, ..macvlan(2) }), Some(macvlan(9)), None] {
        set(&mut plane, 3, Some(&macvlan(2)));
        assert_eq!(fates(&mut asked, Some(5)), [OUT; 2]);
        set(&mut plane, 3, gone.as_ref());
        assert_eq!(fates(&mut asked, Some(5)), OTHERS, "{gone:?}");
    }
    // It goes with what is below, and comes back with that.
    set(&mut plane, 3, Some(&macvlan(2)));
    set(&mut plane, 2, None);
    assert_eq!(fates(&mut asked, Some(5)), OTHERS, "nothing takes the tag, and the address is not the port's");
    set(&mut plane, 2, Some(&Interface { vlan: Some((1, 6)), ..interface("p0.6", MAC) }));
    assert_eq!(fates(&mut asked, Some(6)), [OUT; 2]);
}

#[test]
fn what_a_macvlan_does_not_forward_is_left_to_the_kernel() {
    let (mut plane, mut asked) = made();
    let enslaved = Interface { kernel: Some(Reason::Enslaved), ..macvlan(1) };
    for (now, expected) in [
        (Interface { forwarding: [true, false], ..macvlan(1) }, [OUT, LEFT]),
        (Interface { forwarding: [false, true], ..macvlan(1) }, [LEFT, OUT]),
        (Interface { is_macvtap: true, ..macvlan(1) }, [LEFT; 2]),
        (enslaved, [LEFT; 2]),
        (macvlan(1), [OUT; 2]),
    ] {
        set(&mut plane, 3, Some(&now));
        assert_eq!(fates(&mut asked, None), expected, "{now:?}");
    }
    plane.apply(Event::Bypass { family: Family::V4, reason: Some(Reason::Rules) });
    assert_eq!(fates(&mut asked, None), [LEFT, OUT]);
    plane.set_ipsec(true);
    assert_eq!(fates(&mut asked, None), [LEFT; 2]);
    plane.set_ipsec(false);
    plane.apply(Event::Bypass { family: Family::V4, reason: None });
    assert_eq!(fates(&mut asked, None), [OUT; 2]);
}

#[test]
fn of_macvlans_with_one_address_what_either_leaves_to_the_kernel_is_left() {
    let (mut plane, mut asked) = made();
    for (index, forwarding) in [(3, [true, false]), (4, [false, true])] {
        set(&mut plane, index, Some(&Interface { forwarding, ..macvlan(1) }));
    }
    assert_eq!(fates(&mut asked, None), [LEFT; 2]);
    set(&mut plane, 4, None);
    assert_eq!(fates(&mut asked, None), [OUT, LEFT]);
}

/// Modes `source` and `passthru`: the kernel decides about frames to its address, and to that of the interface below.
#[test]
fn what_a_macvlan_takes_by_more_than_its_address_is_left_to_the_kernel() {
    for below in [1, 2] {
        let (mut plane, mut asked) = made();
        let vlan = (below == 2).then_some(5);
        let mut fate = |to, mac| asked.fate(mac, vlan, &packet(to, 3, 100));
        let claims = Interface { takes_by_more: true, ..macvlan(below) };
        let says = |plane: &Plane| plane.report().lines.iter().any(|line| line.contains("of mode source or passthru"));
        for now in [claims.clone(), Interface { mac: Some(MAC), forwarding: [false; 2], ..claims.clone() }] {
            set(&mut plane, 3, Some(&now));
            assert_eq!([fate(V4, MAC), fate(V6, MAC), fate(V4, VRRP), fate(V6, NEXT)], [LEFT; 4], "{now:?}");
            assert!(says(&plane));
        }
        // The interface below is told anew, and so is all.
        let now =
            if below == 1 { interface("p0", MAC) } else { Interface { vlan: Some((1, 5)), ..interface("p0.5", MAC) } };
        set(&mut plane, below, Some(&now));
        plane.set_ipsec(true);
        plane.set_ipsec(false);
        assert_eq!([fate(V4, MAC), fate(V6, MAC)], [LEFT; 2]);
        // In another mode, on something else, and gone.
        for now in [Some(macvlan(below)), Some(Interface { macvlan: Some(9), ..claims.clone() }), None] {
            set(&mut plane, 3, Some(&claims));
            assert_eq!(fate(V4, MAC), LEFT);
            set(&mut plane, 3, now.as_ref());
            assert_eq!([fate(V4, MAC), fate(V6, MAC)], [OUT; 2], "{now:?}");
            assert_eq!(fate(V4, NEXT), OTHERS[0]);
            assert!(!says(&plane));
        }
    }
}

#[test]
fn more_macvlans_than_there_is_room_for_are_named() {
    let (mut plane, mut asked) = made();
    for index in 0..258_u32 {
        let [_, _, high, low] = index.to_be_bytes();
        set(&mut plane, 10 + index, Some(&Interface { mac: Some([4, 0, 0, 0, high, low]), ..macvlan(1) }));
    }
    let says = |plane: &Plane| plane.report().lines.iter().any(|line| line.starts_with("2 macvlans"));
    assert!(says(&plane), "{:?}", plane.report().lines);
    let to = packet(V4, 3, 100);
    let taken = (0..258_u16).filter(|at| {
        let [high, low] = at.to_be_bytes();
        asked.fate([4, 0, 0, 0, high, low], None, &to) == OUT
    });
    assert_eq!(taken.count(), 256);
    set(&mut plane, 10, None);
    set(&mut plane, 11, None);
    assert!(!says(&plane));
}

#[test]
fn the_mtu_of_ipv6_is_that_of_the_setting_and_stays_when_the_interface_changes() {
    let (mut plane, mut asked) = made();
    let mut fate = |to, len| asked.fate(MAC, None, &packet(to, 3, len)).map(drop);
    assert_eq!(plane.some_interfaces(), [(1, "p0".to_owned()), (2, "p0.5".to_owned())]);
    plane.set_ipv6_mtu(1, Some(1280));
    assert_eq!([fate(V6, 1280), fate(V6, 1281), fate(V4, 1500)], [Ok(()), Err(Refusal::TooBig), Ok(())]);
    let mtu = 1400;
    set(&mut plane, 1, Some(&Interface { mtu, ..interface("p0", MAC) }));
    assert_eq!([fate(V6, 1280), fate(V6, 1281), fate(V4, 1401)], [Ok(()), Err(Refusal::TooBig), Err(Refusal::TooBig)]);
    plane.set_ipv6_mtu(1, Some(70_000));
    assert_eq!([fate(V6, 1400), fate(V6, 1401)], [Ok(()), Err(Refusal::TooBig)]);
    plane.set_ipv6_mtu(1, Some(1280));
    plane.set_ipv6_mtu(1, None);
    assert_eq!(fate(V6, 1400), Ok(()));
    // One that is not known is not looked at.
    plane.set_ipv6_mtu(77, Some(1280));
    // A new interface of the same number has its own.
    plane.set_ipv6_mtu(1, Some(1280));
    set(&mut plane, 1, None);
    set(&mut plane, 1, Some(&interface("p0", MAC)));
    assert_eq!(fate(V6, 1500), Ok(()));
}

#[test]
fn sub_interfaces_are_looked_at_in_turn() {
    let (mut plane, _) = made();
    let index = |vlan: u16| 100 + u32::from(vlan);
    for vlan in 100..250 {
        let name = format!("p0.{vlan}");
        set(&mut plane, index(vlan), Some(&Interface { vlan: Some((1, vlan)), ..interface(&name, MAC) }));
    }
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..3 {
        let some = plane.some_interfaces();
        assert_eq!((some.len(), some[0].0), (65, 1), "the port, and 64 in turn");
        seen.extend(some);
    }
    assert_eq!(seen.len(), 152);
}
