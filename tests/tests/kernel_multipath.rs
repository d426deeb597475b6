//! `fwd l3 --kernel` with routes by several gateways, all Linux in namespaces: how flows are shared out, whom they stay with, and that a
//! gateway whose MAC address changes is found again, while no packet of its flows meets another one. Needs root; says why when it is
//! skipped.

use serde_json::Value;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::ops::RangeInclusive;
use tests::{KernelRouter, Link, Namespace, eventually, namespaces_possible, set};

const LEFT: Link = Link {
    wire: "rwml",
    twin: "rwt0",
    router: ["10.87.0.1", "2001:db8:70::1"],
    station: ["10.87.0.2", "2001:db8:70::2"],
};
/// The links to the gateways.
const GATEWAYS: [Link; 3] = [
    Link {
        wire: "rwma",
        twin: "rwt1",
        router: ["10.87.1.1", "2001:db8:71::1"],
        station: ["10.87.1.2", "2001:db8:71::2"],
    },
    Link {
        wire: "rwmb",
        twin: "rwt2",
        router: ["10.87.2.1", "2001:db8:72::1"],
        station: ["10.87.2.2", "2001:db8:72::2"],
    },
    Link {
        wire: "rwmc",
        twin: "rwt3",
        router: ["10.87.3.1", "2001:db8:73::1"],
        station: ["10.87.3.2", "2001:db8:73::2"],
    },
];
/// An address that each gateway has, on no link, and a port there.
const BEYOND: &str = "203.0.113.1";
const PORT: u16 = 9000;
/// Flows differ in their source port, which counts from here.
const FIRST: u16 = 20_000;

/// Shares of 1, 3 and 4 in 8 of 400 flows: 50, 150 and 200, and six standard deviations of a binomial distribution on either side, since
/// each run spreads them by another seed.
const SHARES: [(&str, RangeInclusive<usize>); 3] = [("1", 10..=90), ("3", 91..=209), ("4", 140..=260)];

#[test]
fn flows_are_shared_out_by_weights_and_stay() {
    let Some(mut network) = Network::new(3, 400) else { return };
    let ip = |network: &Network, words: &[&str]| network.router.namespace.succeeds(&[&["ip"][..], words].concat());
    let legs = GATEWAYS
        .iter()
        .zip(&SHARES)
        .flat_map(|(link, (weight, _))| ["nexthop", "via", link.station[0], "dev", link.twin, "weight", weight]);
    let legs: Vec<&str> = legs.collect();
    assert!(ip(&network, &[&["route", "add", "203.0.113.0/24"], &legs[..]].concat()));
    let check = |network: &Network| -> Vec<usize> {
        let ways = network.ways();
        let counts = [0, 1, 2].map(|gateway| ways.iter().filter(|way| **way == gateway).count());
        println!("flows by gateway: {counts:?}");
        for (count, (weight, band)) in counts.iter().zip(&SHARES) {
            assert!(band.contains(count), "{count} flows of 400 by a weight of {weight} in 8");
        }
        (0..3).for_each(|_| assert_eq!(network.ways(), ways, "they stay"));
        ways
    };
    network.settle();
    check(&network);

    // One that has no carrier, of a route.
    let before = network.ways();
    let stays = |before: &[usize], after: &[usize], gone: usize| {
        assert!(!after.contains(&gone));
        assert!(before.iter().zip(after).all(|(before, after)| before == after || *before == gone));
    };
    set(&network.router.namespace, "ipv4/conf/all/ignore_routes_with_linkdown=1");
    network.gateways[2].output(&["ip", "link", "set", GATEWAYS[2].wire, "down"]);
    eventually("nothing goes by a link that is down", || !network.any_ways().contains(&2));
    network.settle();
    stays(&before, &network.ways(), 2);
    network.gateways[2].output(&["ip", "link", "set", GATEWAYS[2].wire, "up"]);
    eventually("it is used again", || network.any_ways().contains(&2));
    network.settle();
    check(&network);

    // One that a new route lacks.
    let before = network.ways();
    assert!(ip(&network, &[&["route", "replace", "203.0.113.0/24"], &legs[..14]].concat()));
    eventually("the new route is obeyed", || !network.any_ways().contains(&2));
    network.settle();
    stays(&before, &network.ways(), 2);

    // One that is taken out of a group.
    assert!(ip(&network, &["route", "del", "203.0.113.0/24"]));
    let ids = ["11", "12", "13"];
    let mut hops = ids.iter().zip(&GATEWAYS);
    let has_objects =
        hops.all(|(id, link)| ip(&network, &["nexthop", "add", "id", id, "via", link.station[0], "dev", link.twin]));
    if !has_objects {
        skip::test!("next hop objects: this kernel has none");
        return;
    }
    assert!(ip(&network, &["nexthop", "add", "id", "20", "group", "11,1/12,3/13,4"]));
    assert!(ip(&network, &["route", "add", "203.0.113.0/24", "nhid", "20"]));
    network.settle();
    let before = check(&network);
    assert!(ip(&network, &["nexthop", "replace", "id", "20", "group", "12,3/13,4"]));
    eventually("the group has got smaller", || !network.any_ways().contains(&0));
    network.settle();
    stays(&before, &network.ways(), 0);
    network.router.stop();
}

/// The first gateway changes its MAC address and does not say so. Linux would send these flows by the second.
#[test]
fn a_gateway_of_several_is_found_again_without_a_packet_by_another() {
    let Some(mut network) = Network::new(2, 60) else { return };
    for link in &GATEWAYS[..2] {
        for setting in ["delay_first_probe_time=1", "base_reachable_time_ms=500"] {
            set(&network.router.namespace, &format!("ipv4/neigh/{}/{setting}", link.twin));
        }
    }
    let legs = GATEWAYS[..2].iter().flat_map(|link| ["nexthop", "via", link.station[0], "dev", link.twin]);
    let legs: Vec<&str> = legs.collect();
    network.router.namespace.output(&[&["ip", "route", "add", "203.0.113.0/24"], &legs[..]].concat());
    network.settle();
    let ways = network.ways();
    let crossed: Vec<usize> = (0..ways.len()).filter(|flow| network.way_of_linux(*flow) != ways[*flow]).collect();
    let of_first = crossed.iter().copied().filter(|flow| ways[*flow] == 0).collect::<Vec<_>>();
    println!("{} flows, of which Linux would send {} by the other gateway", ways.len(), crossed.len());
    assert!(!of_first.is_empty(), "of 60 flows, one in four");
    let home = |arrived: &[(usize, usize)]| arrived.iter().all(|(flow, gateway)| ways[*flow] == *gateway);

    // While both become STALE and are probed, again and again.
    let by_linux = network.router.forwarded_by_the_host();
    let (mut states, mut rounds) = ([None, None], [0, 0]);
    eventually("both gateways are STALE, and REACHABLE again, three times", || {
        network.send(&crossed);
        assert!(home(&network.arrived()), "a flow has left its gateway");
        for ((now, before), rounds) in network.states().into_iter().zip(&mut states).zip(&mut rounds) {
            *rounds += usize::from(now == "REACHABLE" && before.as_ref().is_some_and(|before| *before != now));
            *before = Some(now);
        }
        rounds.iter().all(|rounds| *rounds >= 3)
    });
    assert_eq!(network.router.forwarded_by_the_host(), by_linux, "none of them by Linux");

    network.gateways[0].output(&["ip", "link", "set", GATEWAYS[0].wire, "address", "02:00:00:00:77:87"]);
    // What was under way.
    eventually("flows to the old address are lost", || {
        network.send(&of_first);
        network.arrived().is_empty()
    });
    let (mut sent, mut strays) = (0, 0);
    eventually("the gateway's new address is found", || {
        network.send(&of_first);
        sent += of_first.len();
        let arrived = network.arrived();
        strays += arrived.iter().filter(|(_, gateway)| *gateway != 0).count();
        arrived.iter().any(|(_, gateway)| *gateway == 0)
    });
    // While there was no address of it, packets were Linux's, and only those.
    let by_linux = network.router.forwarded_by_the_host() - by_linux;
    println!("{sent} packets until the gateway was found, {by_linux} by Linux, {strays} by the other gateway");
    assert!(strays as u64 <= by_linux, "{strays} packets by the other gateway, {by_linux} by Linux");
    network.settle();
    assert_eq!(network.ways(), ways);
    network.router.stop();
}

/// A host on the left, a router, and gateways, each of which has the address that the host sends to.
struct Network {
    router: KernelRouter,
    gateways: Vec<Namespace>,
    /// Where each gateway receives what is for that address.
    sinks: Vec<UdpSocket>,
    /// One socket of the host for each flow.
    flows: Vec<UdpSocket>,
    _left: Namespace,
}

impl Network {
    /// Starts it with so many gateways and flows, unless this host cannot; then says why.
    fn new(gateways: usize, flows: u16) -> Option<Self> {
        if let Err(reason) = namespaces_possible(&[]) {
            skip::test!("{reason}");
            return None;
        }
        let links: Vec<Link> = [LEFT].iter().chain(&GATEWAYS[..gateways]).copied().collect();
        let (left, mut router) = (Namespace::new(), KernelRouter::new(&links));
        for family in ["ipv4", "ipv6"] {
            set(&router.namespace, &format!("{family}/fib_multipath_hash_policy=1"));
        }
        let gateways: Vec<Namespace> = (0..gateways).map(|_| Namespace::new()).collect();
        router.start(&[&left].into_iter().chain(&gateways).collect::<Vec<_>>());
        left.output(&["ip", "route", "add", "default", "via", LEFT.router[0]]);
        let mut sinks = Vec::new();
        for (gateway, link) in gateways.iter().zip(&GATEWAYS) {
            gateway.output(&["ip", "link", "set", "lo", "up"]);
            gateway.output(&["ip", "address", "add", &format!("{BEYOND}/32"), "dev", "lo"]);
            gateway.output(&["ip", "route", "add", "default", "via", link.router[0]]);
            sinks.push(gateway.within(|| UdpSocket::bind((BEYOND, PORT)).expect("an address of its own")));
        }
        sinks.iter().for_each(|sink| sink.set_nonblocking(true).expect("a socket"));
        let flow = |number| {
            let flow = UdpSocket::bind((LEFT.station[0], FIRST + number)).expect("an address of the left");
            flow.connect((BEYOND, PORT)).expect("a route there");
            flow
        };
        let flows = left.within(|| (0..flows).map(flow).collect());
        Some(Self { router, gateways, sinks, flows, _left: left })
    }

    /// Sends a packet of each of these flows. Some may be lost, and of what was lost before an error may be told here.
    fn send(&self, flows: &[usize]) {
        for flow in flows {
            let _ = self.flows[*flow].send(&flow.to_be_bytes());
        }
    }

    /// The packets that have arrived: flow and gateway of each.
    fn arrived(&self) -> Vec<(usize, usize)> {
        let mut arrived = Vec::new();
        for (gateway, sink) in self.sinks.iter().enumerate() {
            let mut number = [0; 8];
            loop {
                match sink.recv(&mut number) {
                    Ok(len) => {
                        assert_eq!(len, number.len());
                        arrived.push((usize::from_be_bytes(number), gateway));
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => panic!("a sink: {error}"),
                }
            }
        }
        arrived
    }

    /// Sends packets of each flow until one has arrived of each. Returns all that has.
    fn deliver(&self) -> Vec<(usize, usize)> {
        let (mut arrived, mut missing) = (self.arrived(), (0..self.flows.len()).collect::<Vec<_>>());
        arrived.clear();
        eventually("a packet of each flow arrives", || {
            let now = self.arrived();
            missing.retain(|flow| !now.iter().any(|(other, _)| other == flow));
            arrived.extend(now);
            missing.chunks(50).next().into_iter().for_each(|some| self.send(some));
            missing.is_empty()
        });
        arrived
    }

    /// The gateway of each flow, which is one.
    fn ways(&self) -> Vec<usize> {
        let mut ways = vec![None; self.flows.len()];
        for (flow, gateway) in self.deliver() {
            let before = ways[flow].replace(gateway);
            assert!(before.is_none_or(|before| before == gateway), "flow {flow} by {before:?} and {gateway}");
        }
        ways.into_iter().map(|way| way.expect("one of each arrived")).collect()
    }

    /// The gateways of flows that may move.
    fn any_ways(&self) -> Vec<usize> {
        self.deliver().into_iter().map(|(_, gateway)| gateway).collect()
    }

    /// Waits until the ports forward all flows by themselves.
    fn settle(&self) {
        eventually("the ports forward by themselves", || {
            let before = self.router.forwarded_by_the_host();
            (0..2).for_each(|_| drop(self.deliver()));
            self.router.forwarded_by_the_host() == before
        });
    }

    /// The gateway by which Linux would send a flow.
    fn way_of_linux(&self, flow: usize) -> usize {
        let (from, to) = ((usize::from(FIRST) + flow).to_string(), PORT.to_string());
        let words = ["ip", "route", "get", BEYOND, "from", LEFT.station[0], "iif", LEFT.twin];
        let words = [&words[..], &["ipproto", "udp", "sport", &from, "dport", &to]].concat();
        let said = self.router.namespace.output(&words);
        let by = GATEWAYS.iter().position(|link| said.contains(&format!("via {} ", link.station[0])));
        by.unwrap_or_else(|| panic!("no gateway: {said}"))
    }

    /// What Linux takes the first two gateways for.
    fn states(&self) -> [String; 2] {
        let said = self.router.namespace.output(&["ip", "-json", "-4", "neighbour", "show"]);
        let neighbours: Value = serde_json::from_str(&said).expect("ip prints JSON");
        let neighbours = neighbours.as_array().expect("a list");
        [0, 1].map(|gateway| {
            let is_it = |neighbour: &&Value| neighbour["dst"] == GATEWAYS[gateway].station[0];
            let state = neighbours.iter().find(is_it).map(|neighbour| neighbour["state"][0].clone());
            state.and_then(|state| state.as_str().map(str::to_owned)).unwrap_or_default()
        })
    }
}
