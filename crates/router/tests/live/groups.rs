//! Groups of next hops: what makes a flow, how flows are shared out, and what stays when members change.

use super::*;

/// As a route is replaced, or a group by another one.
#[test]
fn a_group_in_the_place_of_another_moves_only_flows_of_whom_it_lacks() {
    let (pool, mut fib) = (pool(), table());
    let mut asked = Asked::new(&fib, &pool);
    let hops: Vec<NextHop> = (0..5).map(|last| fib.add_next_hop(station(1, last)).unwrap()).collect();
    let flows: Vec<Vec<u8>> = (0..400).map(|flow| udp4(v4(flow), v4(60_000), (7, 8))).collect();
    let mut by = |fib: &mut LiveFib, members: &[usize]| {
        let group = fib.add_group(&members.iter().map(|at| (hops[*at], 1)).collect::<Vec<_>>()).unwrap();
        let hop = fib.add_next_hop(Target::Group(group)).unwrap();
        fib.insert_ipv4("10.0.0.0/8".parse().unwrap(), hop).unwrap();
        spread(&mut asked, &flows)
    };
    by(&mut fib, &[3, 4]);
    let before = by(&mut fib, &[0, 1, 2, 3]);
    let after = by(&mut fib, &[0, 1, 3]);
    assert!(before.contains(&2) && !after.contains(&2));
    assert!(before.iter().zip(&after).all(|(before, after)| before == after || *before == 2));
    // And one that comes takes from all.
    let with = by(&mut fib, &[0, 1, 3, 4]);
    assert!(after.iter().zip(&with).all(|(after, with)| after == with || *with == 4));
}

#[test]
fn a_group_shares_by_weight_and_whoever_leaves_moves_only_its_own() {
    let (pool, mut fib) = (pool(), table());
    let mut asked = Asked::new(&fib, &pool);
    let hops: Vec<NextHop> = (0..4).map(|last| fib.add_next_hop(station(1, last)).unwrap()).collect();
    let weighted: Vec<(NextHop, u16)> = hops.iter().copied().zip([1, 1, 2, 4]).collect();
    let group = fib.add_group(&weighted).unwrap();
    let by_group = fib.add_next_hop(Target::Group(group)).unwrap();
    fib.insert_ipv4("10.0.0.0/8".parse().unwrap(), by_group).unwrap();
    let count = if cfg!(miri) { 40 } else { 8000 };
    let flows: Vec<Vec<u8>> = (0..count).map(|flow| udp4(v4(flow), v4(60_000), (7, 8))).collect();
    let before = spread(&mut asked, &flows);
    let shares = |to: &[u8]| [0, 1, 2, 3].map(|hop| to.iter().filter(|last| **last == hop).count());
    if !cfg!(miri) {
        for (share, eighths) in shares(&before).into_iter().zip([1, 1, 2, 4]) {
            assert!((eighths * 900..eighths * 1100).contains(&share), "{:?}", shares(&before));
        }
    }
    fib.set_group(group, &[weighted[0], weighted[1], weighted[3]]).unwrap();
    let after = spread(&mut asked, &flows);
    assert!(before.iter().zip(&after).all(|(before, after)| before == after || *before == 2), "flows of others moved");
    // A member that is not resolved keeps its flows.
    fib.set_next_hop(hops[3], Target::Refused(Refusal::Unresolved)).unwrap();
    for (flow, to) in flows.iter().zip(&after) {
        assert_eq!(asked.one(flow).is_err(), *to == 3);
    }
    fib.set_group(group, &[]).unwrap();
    assert_eq!(asked.one(&flows[0]), Err(Refusal::Unresolved));
}

#[test]
fn what_makes_a_flow() {
    let (pool, mut fib) = (pool(), table());
    let mut asked = Asked::new(&fib, &pool);
    let hops: Vec<(NextHop, u16)> = (0..60).map(|last| (fib.add_next_hop(station(1, last)).unwrap(), 1)).collect();
    let group = fib.add_group(&hops).unwrap();
    let by_group = fib.add_next_hop(Target::Group(group)).unwrap();
    fib.insert_ipv4("10.0.0.0/8".parse().unwrap(), by_group).unwrap();
    fib.insert_ipv6("2001:db8::/32".parse().unwrap(), by_group).unwrap();
    let six = |last: u16| Ipv6Addr::from(0x2001_0DB8 << 96 | u128::from(last));
    let different = |asked: &mut Asked, frames: &[Vec<u8>]| {
        let mut ends = spread(asked, frames);
        ends.sort_unstable();
        ends.dedup();
        ends.len()
    };
    let ports: Vec<Vec<u8>> = (0..40).map(|port| udp4(v4(1), v4(2), (port, 53))).collect();
    let labels: Vec<Vec<u8>> = (0..40)
        .map(|label| ethernet([0x86, 0xDD], &ipv6(six(1), six(2), [0, label], 17, &[0, 7, 0, 53, 0, 8, 0, 0])))
        .collect();
    assert_eq!(different(&mut asked, &ports), 1, "addresses alone count");
    assert!(different(&mut asked, &labels) > 10, "and the label of IPv6");
    fib.set_policies([Policy::Ports; 2]);
    assert!(different(&mut asked, &ports) > 10);
    assert_eq!(different(&mut asked, &labels), 1);
    // Each family has its own.
    fib.set_policies([Policy::Ports, Policy::Addresses]);
    assert!(different(&mut asked, &ports) > 10 && different(&mut asked, &labels) > 10);
    fib.set_policies([Policy::Addresses, Policy::Ports]);
    assert_eq!([&ports, &labels].map(|frames| different(&mut asked, frames)), [1, 1]);

    for policy in [Policy::Addresses, Policy::Ports] {
        fib.set_policies([policy; 2]);
        for flow in 0..20 {
            let udp = [0, 7, 0, 53, 0, 8, 0, 0];
            let there = ipv4(v4(flow), v4(99), 17, 0, &udp);
            let back = ipv4(v4(99), v4(flow), 17, 0, &[0, 53, 0, 7, 0, 8, 0, 0]);
            // Port unreachable, from a router on the way.
            let error = ipv4(v4(500), v4(flow), 1, 0, &[&[3, 3, 0, 0, 0, 0, 0, 0][..], &there].concat());
            let frames = [there, back, error].map(|packet| ethernet([8, 0], &packet));
            assert_eq!(different(&mut asked, &frames), 1, "flow {flow}");
            let there = ipv6(six(flow), six(99), [0, 0], 17, &udp);
            let back = ipv6(six(99), six(flow), [0, 0], 17, &[0, 53, 0, 7, 0, 8, 0, 0]);
            let error = ipv6(six(500), six(flow), [0, 0], 58, &[&[1, 4, 0, 0, 0, 0, 0, 0][..], &there].concat());
            let frames = [there, back, error].map(|packet| ethernet([0x86, 0xDD], &packet));
            assert_eq!(different(&mut asked, &frames), 1, "flow {flow} of IPv6");
            // Fragments, whatever their bytes would be as ports.
            let fragments = [0x2000, 0x0001, 0x2002].map(|fragment| {
                let payload = u64::from(fragment ^ flow).to_be_bytes();
                ethernet([8, 0], &ipv4(v4(flow), v4(99), 17, fragment, &payload))
            });
            assert_eq!(different(&mut asked, &fragments), 1, "fragments of {flow}");
        }
    }
    // Errors whose quotation is cut off, or of which there is none, go somewhere.
    for quoted in 0..20 {
        let quoted = &ipv4(v4(1), v4(2), 17, 0, &[])[..quoted];
        let error = ipv4(v4(500), v4(1), 1, 0, &[&[11, 0, 0, 0, 0, 0, 0, 0][..], quoted].concat());
        assert!(asked.one(&ethernet([8, 0], &error)).is_ok());
    }
    for len in 0..8 {
        let error = ipv4(v4(500), v4(1), 1, 0, &[3; 8][..len]);
        assert!(asked.one(&ethernet([8, 0], &error)).is_ok());
    }
}

#[test]
fn packets_by_a_group_take_marks_off_and_leave_if_they_are_to() {
    let (pool, mut fib) = (pool(), table());
    let mut asked = Asked::new(&fib, &pool);
    let hops = [1, 2].map(|last| fib.add_next_hop(station(1, last)).unwrap());
    let group = fib.add_group(&hops.map(|hop| (hop, 1))).unwrap();
    let by_group = fib.add_next_hop(Target::Group(group)).unwrap();
    fib.insert_ipv4("10.0.0.0/8".parse().unwrap(), hops[0]).unwrap();
    fib.insert_ipv4("10.1.9.0/24".parse().unwrap(), by_group).unwrap();
    let flows: Vec<Vec<u8>> = (0..40).map(|flow| udp4(v4(flow), Ipv4Addr::new(10, 1, 9, 1), (7, 8))).collect();
    let before = spread(&mut asked, &flows);
    let flow_of = |last| &flows[before.iter().position(|station| *station == last).unwrap()];
    assert!(!fib.is_marked(hops[0]) && !fib.is_marked(by_group));

    fib.set_members_pass(true);
    fib.probe(hops[0]).unwrap();
    assert!(asked.one(flow_of(2)).is_ok() && fib.is_marked(hops[0]), "by the other member");
    assert!(asked.one(flow_of(1)).is_ok() && !fib.is_marked(hops[0]));
    assert_eq!(spread(&mut asked, &flows), before);
    // Not by the group, or if they are not to.
    fib.probe(hops[0]).unwrap();
    assert_eq!(asked.one(&udp4(v4(1), v4(2), (1, 2))), Err(Refusal::Probe));
    assert!(!fib.is_marked(hops[0]));
    fib.set_members_pass(false);
    fib.probe(hops[0]).unwrap();
    assert_eq!(asked.one(flow_of(1)), Err(Refusal::Probe));

    // One that is not resolved, by a group or not; no other refusal has a mark.
    fib.set_next_hop(hops[0], Target::Refused(Refusal::Unresolved)).unwrap();
    for frame in [flow_of(1), &udp4(v4(1), v4(2), (1, 2))] {
        fib.probe(hops[0]).unwrap();
        assert!(fib.is_marked(hops[0]));
        assert_eq!(asked.one(frame), Err(Refusal::Unresolved));
        assert!(!fib.is_marked(hops[0]));
        assert_eq!(asked.one(frame), Err(Refusal::Unresolved));
    }
    fib.set_next_hop(hops[0], Target::Refused(Refusal::LeftToHost)).unwrap();
    fib.probe(hops[0]).unwrap();
    assert!(!fib.is_marked(hops[0]));
    assert_eq!(asked.one(flow_of(1)), Err(Refusal::LeftToHost));
}
