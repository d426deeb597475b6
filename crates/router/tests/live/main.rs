//! A table that changes in place: beside the router of the RFCs, under forwarders at work, and in groups of next hops.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../common/mod.rs"]
mod common;
mod groups;

use common::{Naive, Route, Sent, checksum, frames, push};
use lpm::NextHop;
use mempool::{Batch, Pool, PoolCache, PoolConfig};
use proptest::prelude::*;
use router::{
    Destination, Egress, Error, Interface, LiveConfig, LiveFib, LiveForwarder, MacAddress, Neighbour, Policy, Refusal,
    Target,
};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};

const PORTS: usize = 3;

fn mac(port: usize) -> [u8; 6] {
    [2, 0, 0, 0, 1, u8::try_from(port).unwrap()]
}

fn interface(port: usize, mtu: u16) -> Interface {
    Interface { mac: mac(port), promiscuous: false, mtu }
}

fn table() -> LiveFib {
    let ports: Vec<Interface> = (0..PORTS).map(|port| interface(port, 1500)).collect();
    LiveFib::new(&LiveConfig { next_hops: 64, groups: 4, ..LiveConfig::default() }, &ports).unwrap()
}

fn station(port: u16, last: u8) -> Target {
    Target::Neighbour(Neighbour { port, mac: MacAddress([2, 0, 0, 0, 9, last]) })
}

fn pool() -> Pool {
    Pool::new(&PoolConfig { slots: 512, ..PoolConfig::default() }).unwrap()
}

/// A forwarder with what it takes to ask it for one frame.
struct Asked {
    forwarder: LiveForwarder,
    cache: PoolCache,
    batch: Batch,
    egress: Egress,
}

impl Asked {
    fn new(fib: &LiveFib, pool: &Pool) -> Self {
        let egress = Egress::new(PORTS, 64);
        Self { forwarder: fib.forwarder(), cache: pool.cache(), batch: Batch::with_capacity(64), egress }
    }

    /// What becomes of frames in one burst, each in the buffers that it is cut into.
    fn route(&mut self, sent: &[Sent]) -> (Vec<Vec<Vec<u8>>>, Vec<Refusal>) {
        sent.iter().for_each(|sent| push(&mut self.cache, &mut self.batch, sent));
        let packets = self.batch.len();
        assert_eq!(self.forwarder.route(0, &mut self.batch, &mut self.egress), packets);
        let refused = self.egress.drain_refused().filter(|(packet, _)| !packet.continues());
        let refused = refused.map(|(_, refusal)| refusal).collect();
        let outputs = self.egress.outputs().iter_mut().map(|batch| {
            let sent = frames(batch);
            self.cache.free_batch(batch);
            sent
        });
        (outputs.collect(), refused)
    }

    fn one(&mut self, frame: &[u8]) -> Result<(usize, Vec<u8>), Refusal> {
        let (outputs, refused) = self.route(&[Sent { bytes: frame.to_vec(), cuts: Vec::new() }]);
        let sent = outputs.into_iter().enumerate().find_map(|(port, sent)| Some((port, sent.into_iter().next()?)));
        sent.ok_or_else(|| refused[0])
    }
}

/// A frame to port 0, with this EtherType.
fn ethernet(ether_type: [u8; 2], packet: &[u8]) -> Vec<u8> {
    [&mac(0)[..], &[2, 7, 7, 7, 7, 7], &ether_type, packet].concat()
}

fn ipv4(from: Ipv4Addr, to: Ipv4Addr, protocol: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(20 + payload.len()).unwrap().to_be_bytes();
    let [more, offset] = fragment.to_be_bytes();
    let mut ip =
        [&[0x45, 0, high, low, 0, 7, more, offset, 64, protocol, 0, 0][..], &from.octets(), &to.octets()].concat();
    let sum = checksum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    ip.extend(payload);
    ip
}

fn ipv6(from: Ipv6Addr, to: Ipv6Addr, label: [u8; 2], protocol: u8, payload: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(payload.len()).unwrap().to_be_bytes();
    let start = [0x60, 0, label[0], label[1], high, low, protocol, 64];
    [&start[..], &from.octets(), &to.octets(), payload].concat()
}

fn udp4(from: Ipv4Addr, to: Ipv4Addr, ports: (u16, u16)) -> Vec<u8> {
    let udp = [&ports.0.to_be_bytes()[..], &ports.1.to_be_bytes(), &[0, 8, 0, 0]].concat();
    ethernet([8, 0], &ipv4(from, to, 17, 0, &udp))
}

fn v4(last: u16) -> Ipv4Addr {
    let [high, low] = last.to_be_bytes();
    Ipv4Addr::new(10, 1, high, low)
}

/// Where each of some flows goes.
fn spread(asked: &mut Asked, frames: &[Vec<u8>]) -> Vec<u8> {
    frames.iter().map(|frame| asked.one(frame).unwrap().1[5]).collect()
}

#[test]
fn every_reason_is_the_one_that_was_given() {
    let (pool, mut fib) = (pool(), table());
    let mut asked = Asked::new(&fib, &pool);
    let hop = fib.add_next_hop(station(1, 1)).unwrap();
    fib.insert_ipv4("10.0.0.0/8".parse().unwrap(), hop).unwrap();
    fib.insert_ipv6("2001:db8::/32".parse().unwrap(), hop).unwrap();
    let udp = udp4(v4(1), v4(2), (1, 2));
    let (from, to) = ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
    let six = ethernet([0x86, 0xDD], &ipv6(from, to, [0, 0], 17, &[0; 8]));
    for refusal in Refusal::ALL {
        fib.set_next_hop(hop, Target::Refused(refusal)).unwrap();
        assert_eq!(fib.next_hop(hop), Ok(Target::Refused(refusal)));
        let whole = |bytes: &Vec<u8>| Sent { bytes: bytes.clone(), cuts: Vec::new() };
        let cut = |bytes: &Vec<u8>, at| Sent { bytes: bytes.clone(), cuts: vec![at] };
        assert_eq!(asked.one(&udp), Err(refusal));
        assert_eq!(asked.one(&six), Err(refusal));
        for sent in [[whole(&udp), whole(&six)], [cut(&udp, 38), whole(&six)], [cut(&six, 58), cut(&udp, 38)]] {
            assert_eq!(asked.route(&sent), (vec![vec![]; PORTS], vec![refusal; 2]));
        }
    }
    fib.set_next_hop(hop, station(2, 7)).unwrap();
    let (port, sent) = asked.one(&udp).unwrap();
    assert_eq!((port, &sent[..12]), (2, &[2, 0, 0, 0, 9, 7, 2, 0, 0, 0, 1, 2][..]));
    // Options are somebody else's to read, whatever the route.
    let mut options = ipv4(v4(1), v4(2), 17, 0, &[1, 1, 1, 0]);
    options[0] = 0x46;
    options[10..12].fill(0);
    let sum = checksum(&options);
    options[10..12].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(asked.one(&ethernet([8, 0], &options)), Err(Refusal::Options));
    // So are hop-by-hop options of IPv6, of a frame in one buffer or two; those for the destination are not.
    let padded = [&[17, 0, 1, 4, 0, 0, 0, 0][..], &[0; 8]].concat();
    let hop_by_hop = ethernet([0x86, 0xDD], &ipv6(from, to, [0, 0], 0, &padded));
    assert_eq!(asked.one(&hop_by_hop), Err(Refusal::Options));
    let parts = Sent { bytes: hop_by_hop, cuts: vec![58] };
    assert_eq!(asked.route(&[parts]), (vec![vec![]; PORTS], vec![Refusal::Options]));
    assert!(asked.one(&ethernet([0x86, 0xDD], &ipv6(from, to, [0, 0], 60, &padded))).is_ok());
}

#[test]
fn ports_change_their_address_and_mtu_and_go_down() {
    let (pool, mut fib) = (pool(), table());
    let mut asked = Asked::new(&fib, &pool);
    let hop = fib.add_next_hop(station(1, 1)).unwrap();
    fib.insert_ipv4("10.0.0.0/8".parse().unwrap(), hop).unwrap();
    let long = ethernet([8, 0], &ipv4(v4(1), v4(2), 17, 0, &[0; 580]));
    for (mtu, passes) in [(600, true), (599, false), (601, true)] {
        let new = Interface { mac: [2, 0, 0, 0, 5, 5], promiscuous: false, mtu };
        fib.set_interface(1, Some(&new)).unwrap();
        match asked.one(&long) {
            Ok((1, sent)) => assert!(passes && sent[6..12] == [2, 0, 0, 0, 5, 5]),
            other => assert_eq!((passes, other), (false, Err(Refusal::TooBig))),
        }
    }
    fib.set_interface(1, None).unwrap();
    assert_eq!(asked.one(&long), Err(Refusal::Unresolved));
    fib.set_interface(1, Some(&interface(1, 1500))).unwrap();
    assert!(asked.one(&long).is_ok());
    fib.set_interface(0, None).unwrap();
    assert_eq!(asked.one(&long), Err(Refusal::OtherStation), "it came in by a port that is down");
    fib.set_interface(0, Some(&Interface { mac: [2, 0, 0, 0, 6, 6], promiscuous: false, mtu: 1500 })).unwrap();
    assert_eq!(asked.one(&long), Err(Refusal::OtherStation), "to the address before");
    fib.set_interface(0, Some(&Interface { mac: [2, 0, 0, 0, 6, 6], promiscuous: true, mtu: 1500 })).unwrap();
    assert!(asked.one(&long).is_ok());
    assert_eq!(fib.set_interface(3, None), Err(Error::Unknown { what: "interfaces", number: 3 }));
}

#[test]
fn a_family_that_is_off_at_a_port_is_left_to_the_host() {
    let (pool, mut fib) = (pool(), table());
    let mut asked = Asked::new(&fib, &pool);
    let hop = fib.add_next_hop(station(1, 1)).unwrap();
    fib.insert_ipv4("10.0.0.0/8".parse().unwrap(), hop).unwrap();
    fib.insert_ipv6("2001:db8::/32".parse().unwrap(), hop).unwrap();
    let (from, to) = ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
    let four = udp4(v4(1), v4(2), (1, 2));
    let six = ethernet([0x86, 0xDD], &ipv6(from, to, [0, 0], 17, &[0; 8]));
    let no_route = udp4(v4(1), Ipv4Addr::new(9, 9, 9, 9), (1, 2));
    let mut wrong = four.clone();
    wrong[24] ^= 1;
    for families in [[false, true], [true, false], [false, false], [true, true]] {
        fib.set_families(0, families).unwrap();
        fib.set_families(2, [false, false]).unwrap();
        let says = |asked: &mut Asked, frame: &[u8]| asked.one(frame).map(|(port, _)| port);
        let expected = |on: bool, otherwise| if on { otherwise } else { Err(Refusal::LeftToHost) };
        // Settings of a port do not touch it.
        fib.set_interface(0, Some(&interface(0, 1500))).unwrap();
        assert_eq!(says(&mut asked, &four), expected(families[0], Ok(1)));
        assert_eq!(says(&mut asked, &no_route), expected(families[0], Err(Refusal::NoRoute)));
        assert_eq!(says(&mut asked, &wrong), Err(Refusal::Checksum));
        assert_eq!(says(&mut asked, &six), expected(families[1], Ok(1)));
        let whole = |bytes: &Vec<u8>| Sent { bytes: bytes.clone(), cuts: Vec::new() };
        let cut = |bytes: &Vec<u8>, at| Sent { bytes: bytes.clone(), cuts: vec![at] };
        for sent in [[whole(&four), whole(&six)], [cut(&four, 38), whole(&six)]] {
            let (outputs, refused) = asked.route(&sent);
            let on = families.iter().filter(|on| **on).count();
            assert_eq!((outputs[1].len(), refused), (on, vec![Refusal::LeftToHost; 2 - on]));
        }
    }
    assert_eq!(fib.set_families(3, [true; 2]), Err(Error::Unknown { what: "interfaces", number: 3 }));
}

/// Bursts of nothing else take a short cut, which is none for what is wrong otherwise too.
#[test]
fn a_burst_of_packets_whose_ttl_is_used_up_is_refused_as_one_by_one() {
    let fib = table();
    let pool = pool();
    let mut asked = Asked::new(&fib, &pool);
    let used_up = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut packet = [&[0x45, 0, 0, 40, 0, 0, 0, 0, 1, 17, 0, 0, 10, 0, 0, 9, 10, 0, 0, 1][..], &[0; 20]].concat();
        change(&mut packet);
        let header = usize::from(packet[0] & 0xF) * 4;
        let sum = checksum(&packet[..header]).to_be_bytes();
        packet[10..12].copy_from_slice(&sum);
        ethernet([8, 0], &packet)
    };
    let mut wrong_sum = used_up(&|_| ());
    wrong_sum[24] ^= 1;
    let mut elsewhere = used_up(&|_| ());
    elsewhere[5] = 77;
    let cases = [
        (used_up(&|_| ()), Refusal::Ttl),
        (used_up(&|packet| packet[8] = 0), Refusal::Ttl),
        (used_up(&|packet| packet.resize(46, 0xEE)), Refusal::Ttl),
        (used_up(&|packet| packet[0] = 0x46), Refusal::Ttl),
        (used_up(&|packet| packet[3] = 41), Refusal::TotalLength),
        (used_up(&|packet| packet[3] = 19), Refusal::TotalLength),
        (used_up(&|packet| packet[12] = 127), Refusal::MartianSource),
        (used_up(&|packet| packet[16] = 224), Refusal::MartianDestination),
        (used_up(&|packet| packet[0] = 0x55), Refusal::Version),
        (wrong_sum, Refusal::Checksum),
        (elsewhere, Refusal::OtherStation),
        (ethernet([8, 6], &[0; 28]), Refusal::NotIp),
        ([&[2, 3, 3, 3, 3, 3][..], &ethernet([8, 6], &[0; 28])[6..]].concat(), Refusal::OtherStation),
    ];
    for (frame, refusal) in &cases {
        assert_eq!(asked.one(frame), Err(*refusal));
    }
    let (frames, refusals): (Vec<Vec<u8>>, Vec<Refusal>) = cases.into_iter().unzip();
    let mut sent: Vec<Sent> = frames.into_iter().map(|bytes| Sent { bytes, cuts: Vec::new() }).collect();
    assert_eq!(asked.route(&sent), (vec![Vec::new(); PORTS], refusals.clone()));
    // One that goes on to the lookup among them.
    sent.push(Sent { bytes: used_up(&|packet| packet[8] = 2), cuts: Vec::new() });
    let expected: Vec<Refusal> = refusals.into_iter().chain([Refusal::NoRoute]).collect();
    assert_eq!(asked.route(&sent).1, expected);
}

/// Neighbours by routing protocols send with 1, and are told apart from who passes by.
#[test]
fn whom_a_refused_packet_is_for_is_looked_up_afterwards() {
    let (pool, mut fib) = (pool(), table());
    let mut asked = Asked::new(&fib, &pool);
    let own = fib.add_next_hop(Target::Refused(Refusal::ForHost)).unwrap();
    let beyond = fib.add_next_hop(Target::Refused(Refusal::Blackhole)).unwrap();
    let near = fib.add_next_hop(station(1, 1)).unwrap();
    fib.insert_ipv4("10.0.0.1/32".parse().unwrap(), own).unwrap();
    fib.insert_ipv4("10.0.0.2/32".parse().unwrap(), beyond).unwrap();
    fib.insert_ipv4("10.1.0.0/16".parse().unwrap(), near).unwrap();
    fib.insert_ipv6("2001:db8::1/128".parse().unwrap(), own).unwrap();
    fib.insert_ipv6("2001:db8::/32".parse().unwrap(), near).unwrap();
    let vlan = fib.add_interface(0, 5, &interface(0, 1500)).unwrap();
    let left = fib.add_next_hop(Target::Refused(Refusal::LeftToHost)).unwrap();
    fib.insert_ipv4("10.2.0.0/16".parse().unwrap(), left).unwrap();
    fib.insert_ipv6("2001:db8:2::/48".parse().unwrap(), left).unwrap();
    let from_v4 = |from: [u8; 4], to: [u8; 4], ttl: u8, first: u8| {
        let header = usize::from(first & 0xF) * 4;
        let total = u8::try_from(header + 20).unwrap();
        let mut packet = vec![1; header + 20];
        packet[..20].copy_from_slice(&[&[first, 0, 0, total, 0, 0, 0, 0, ttl, 17, 0, 0][..], &from, &to].concat());
        let sum = checksum(&packet[..header]).to_be_bytes();
        packet[10..12].copy_from_slice(&sum);
        ethernet([8, 0], &packet)
    };
    let v4 = |to: [u8; 4], ttl: u8, first: u8| from_v4([10, 0, 0, 9], to, ttl, first);
    let from_v6 = |from: &str, to: &str, hops: u8| {
        let [from, to] = [from, to].map(|address| address.parse::<Ipv6Addr>().unwrap());
        let mut packet = ipv6(from, to, [0, 0], 17, &[0; 8]);
        packet[7] = hops;
        ethernet([0x86, 0xDD], &packet)
    };
    let v6 = |last: u8, hops: u8| from_v6("2001:db8::9", &format!("2001:db8::{last}"), hops);
    let tagged = |mut frame: Vec<u8>| {
        frame.splice(12..12, [0x81, 0, 0, 5]);
        frame
    };
    let (host, elsewhere) = (Destination::Host, Destination::Elsewhere);
    let odd = [169, 254, 0, 9];
    let mut cases = vec![
        (v4([10, 0, 0, 1], 1, 0x46), Refusal::Ttl, host),
        (v4([10, 0, 0, 3], 1, 0x46), Refusal::Ttl, elsewhere),
        (v4([10, 2, 0, 1], 64, 0x45), Refusal::LeftToHost, elsewhere),
        (from_v6("2001:db8::9", "2001:db8:2::1", 64), Refusal::LeftToHost, elsewhere),
        (from_v4(odd, [10, 0, 0, 1], 64, 0x45), Refusal::MartianSource, host),
        (from_v4(odd, [10, 1, 0, 1], 64, 0x45), Refusal::MartianSource, elsewhere),
        (from_v4(odd, [10, 9, 0, 1], 64, 0x45), Refusal::MartianSource, elsewhere),
        (from_v4(odd, [169, 254, 0, 1], 64, 0x45), Refusal::MartianSource, host),
        (from_v4(odd, [224, 0, 0, 5], 1, 0x45), Refusal::MartianSource, host),
        (v4([169, 254, 0, 1], 64, 0x45), Refusal::MartianDestination, host),
        (v4([224, 0, 0, 5], 1, 0x45), Refusal::MartianDestination, host),
        (from_v6("fe80::9", "2001:db8::1", 64), Refusal::MartianSource, host),
        (from_v6("fe80::9", "2001:db8::2", 64), Refusal::MartianSource, elsewhere),
        (from_v6("fe80::9", "fe80::1", 64), Refusal::MartianSource, host),
        (from_v6("fe80::9", "ff02::5", 1), Refusal::MartianSource, host),
        (from_v6("2001:db8::9", "fe80::1", 1), Refusal::MartianDestination, host),
    ];
    for ttl in [0, 1] {
        cases.extend([
            (v4([10, 0, 0, 1], ttl, 0x45), Refusal::Ttl, host),
            (v4([10, 0, 0, 2], ttl, 0x45), Refusal::Ttl, elsewhere),
            (v4([10, 0, 0, 3], ttl, 0x45), Refusal::Ttl, elsewhere),
            (v4([10, 1, 0, 1], ttl, 0x45), Refusal::Ttl, elsewhere),
            (v6(1, ttl), Refusal::Ttl, host),
            (v6(2, ttl), Refusal::Ttl, elsewhere),
        ]);
    }
    let all: Vec<_> = cases.iter().map(|(frame, refusal, to)| (tagged(frame.clone()), *refusal, *to)).collect();
    cases.extend(all);
    for (frame, refusal, to) in &cases {
        assert_eq!(asked.one(frame), Err(*refusal), "{frame:02x?}");
        assert_eq!(asked.forwarder.destination(0, *refusal, frame), *to, "{refusal:?}: {frame:02x?}");
        assert_eq!(asked.forwarder.destination(0, Refusal::TooBig, frame), Destination::Unknown, "of no other");
        // Any bytes are taken.
        for len in 0..frame.len() {
            let _ = asked.forwarder.destination(0, Refusal::Ttl, &frame[..len]);
        }
    }
    // Where the host has a table of its own for what comes in, this one says whom it knows, and of others nothing.
    for number in [0, vlan] {
        fib.set_families(number, [false; 2]).unwrap();
    }
    for (frame, refusal, to) in cases {
        let to = if to == host { host } else { Destination::Unknown };
        assert_eq!(asked.forwarder.destination(0, refusal, &frame), to, "{refusal:?}: {frame:02x?}");
    }
}

#[test]
fn a_probe_takes_one_packet_and_only_that() {
    let (pool, mut fib) = (pool(), table());
    let (mut asked, mut other) = (Asked::new(&fib, &pool), Asked::new(&fib, &pool));
    let hops = [1, 2].map(|last| fib.add_next_hop(station(1, last)).unwrap());
    let group = fib.add_group(&hops.map(|hop| (hop, 1))).unwrap();
    let by_group = fib.add_next_hop(Target::Group(group)).unwrap();
    fib.insert_ipv4("10.0.0.0/8".parse().unwrap(), hops[0]).unwrap();
    fib.insert_ipv4("10.1.9.0/24".parse().unwrap(), by_group).unwrap();
    fib.insert_ipv6("2001:db8::/32".parse().unwrap(), hops[0]).unwrap();
    let (from, to) = ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
    let six = ethernet([0x86, 0xDD], &ipv6(from, to, [0, 0], 17, &[0; 8]));
    let four = udp4(v4(1), v4(2), (1, 2));
    let station_of = |sent: Result<(usize, Vec<u8>), Refusal>| sent.map(|(_, frame)| frame[5]);
    for frame in [&four, &six] {
        assert_eq!(fib.probe(hops[0]), Ok(true));
        assert_eq!(fib.probe(hops[0]), Ok(true), "twice is once");
        assert_eq!(station_of(asked.one(frame)), Err(Refusal::Probe));
        assert_eq!(station_of(other.one(frame)), Ok(1));
        assert_eq!(station_of(asked.one(frame)), Ok(1));
        assert_eq!(fib.next_hop(hops[0]), Ok(station(1, 1)));
    }
    // One of a burst, whatever buffers its frames are in.
    for cuts in [vec![], vec![38]] {
        fib.probe(hops[0]).unwrap();
        let burst: Vec<Sent> = (0..9).map(|_| Sent { bytes: four.clone(), cuts: cuts.clone() }).collect();
        let (outputs, refused) = asked.route(&burst);
        assert_eq!((outputs[1].len(), refused), (8, vec![Refusal::Probe]));
    }
    // Of a group, whoever goes by the member.
    let flows: Vec<Vec<u8>> = (0..40).map(|flow| udp4(v4(flow), Ipv4Addr::new(10, 1, 9, 1), (7, 8))).collect();
    let before = spread(&mut asked, &flows);
    assert!(before.contains(&1) && before.contains(&2));
    fib.probe(hops[1]).unwrap();
    let probes: Vec<usize> = (0..40).filter(|flow| asked.one(&flows[*flow]) == Err(Refusal::Probe)).collect();
    assert_eq!(probes, [before.iter().position(|last| *last == 2).unwrap()]);
    assert_eq!(spread(&mut asked, &flows), before);
    // A change calls it off, and what is no neighbour has none.
    fib.probe(hops[0]).unwrap();
    fib.set_next_hop(hops[0], station(2, 7)).unwrap();
    assert_eq!(station_of(asked.one(&four)), Ok(7));
    assert_eq!(fib.probe(by_group), Ok(false));
    fib.set_next_hop(hops[0], Target::Refused(Refusal::Unresolved)).unwrap();
    assert_eq!(fib.probe(hops[0]), Ok(false));
    assert_eq!(station_of(asked.one(&four)), Err(Refusal::Unresolved));
    assert_eq!(fib.probe(NextHop::new(40).unwrap()), Err(Error::Unknown { what: "next hops", number: 40 }));
    // A port that goes down.
    fib.set_next_hop(hops[0], station(2, 7)).unwrap();
    fib.probe(hops[0]).unwrap();
    fib.set_interface(2, None).unwrap();
    assert!(asked.one(&four).is_err());
    assert_eq!(station_of(asked.one(&four)), Err(Refusal::Unresolved));
}

/// While one thread marks a neighbour and moves it, no forwarder sends to the station before, once it has seen the one after.
#[test]
fn a_mark_taken_off_never_brings_an_old_station_back() {
    let (pool, mut fib) = (pool(), table());
    let hop = fib.add_next_hop(station(1, 0)).unwrap();
    fib.insert_ipv4("10.0.0.0/8".parse().unwrap(), hop).unwrap();
    let done = AtomicBool::new(false);
    let turns = if cfg!(miri) { 20_u8 } else { 250 };
    let (marks, taken) = std::thread::scope(|scope| {
        let threads = [0, 1].map(|_| {
            let mut asked = Asked::new(&fib, &pool);
            let done = &done;
            scope.spawn(move || {
                let frame = udp4(v4(1), v4(2), (1, 2));
                let (mut newest, mut probes) = (0, 0);
                loop {
                    let last = done.load(Ordering::Acquire);
                    match asked.one(&frame) {
                        Ok((1, sent)) => {
                            assert!(sent[5] >= newest, "{} after {newest}", sent[5]);
                            newest = sent[5];
                        }
                        other => {
                            assert_eq!(other, Err(Refusal::Probe));
                            probes += 1;
                        }
                    }
                    if last {
                        return (newest, probes);
                    }
                }
            })
        });
        let mut marks = 0;
        for turn in 0..turns {
            for _ in 0..4 {
                fib.probe(hop).unwrap();
                marks += 1;
            }
            fib.set_next_hop(hop, station(1, turn)).unwrap();
            fib.probe(hop).unwrap();
            marks += 1;
        }
        done.store(true, Ordering::Release);
        let ends = threads.map(|thread| thread.join().unwrap());
        assert!(ends.iter().any(|(newest, _)| *newest == turns - 1));
        (marks, ends.iter().map(|(_, probes)| probes).sum::<i32>())
    });
    assert!(taken <= marks, "{taken} of {marks}");
}

#[test]
fn mistakes_change_nothing() {
    let mut fib = table();
    let (a, b) = (fib.add_next_hop(station(0, 1)).unwrap(), fib.add_next_hop(station(1, 2)).unwrap());
    assert_eq!((a.get(), b.get()), (0, 1));
    let group = fib.add_group(&[(a, 1), (b, 2)]).unwrap();
    let by_group = fib.add_next_hop(Target::Group(group)).unwrap();
    let unknown = NextHop::new(40).unwrap();
    let members = |problem| Err(Error::Members { problem });
    assert_eq!(fib.set_group(group, &[(a, 1), (a, 2)]), members("a member twice"));
    assert_eq!(fib.set_group(group, &[(a, 0)]), members("a weight of 0"));
    assert_eq!(fib.set_group(group, &[(a, 1); 257]), members("more than 256 members"));
    assert_eq!(fib.set_group(group, &[(by_group, 1)]), Err(Error::Nested { hop: 2 }));
    assert_eq!(fib.set_group(group, &[(unknown, 1)]), Err(Error::Unknown { what: "next hops", number: 40 }));
    assert_eq!(fib.set_next_hop(a, Target::Group(group)), Err(Error::Nested { hop: 0 }));
    assert_eq!(fib.set_next_hop(a, station(3, 1)), Err(Error::Unknown { what: "interfaces", number: 3 }));
    assert_eq!(fib.add_next_hop(station(3, 1)), Err(Error::Unknown { what: "interfaces", number: 3 }));
    assert_eq!(fib.remove_next_hop(a), Err(Error::InUse { what: "next hops", number: 0 }));
    assert_eq!(fib.remove_group(group), Err(Error::InUse { what: "groups", number: 0 }));
    assert_eq!(fib.insert_ipv4("10.0.0.0/8".parse().unwrap(), unknown).ok(), None);
    assert!(fib.remove_ipv4("10.0.0.0/8".parse().unwrap()).is_err());
    assert_eq!(fib.route_counts(), (0, 0));
    fib.insert_ipv6("::/0".parse().unwrap(), by_group).unwrap();
    assert_eq!(fib.remove_next_hop(by_group), Err(Error::InUse { what: "next hops", number: 2 }));
    assert_eq!(fib.remove_ipv6("::/0".parse().unwrap()), Ok(by_group));
    fib.remove_next_hop(by_group).unwrap();
    assert_eq!(fib.remove_next_hop(by_group), Err(Error::Unknown { what: "next hops", number: 2 }));
    fib.remove_group(group).unwrap();
    fib.remove_next_hop(a).unwrap();
    fib.remove_next_hop(b).unwrap();
    let ports = vec![interface(0, 1500); 32_257];
    let too_many = LiveFib::new(&LiveConfig::default(), &ports).map(drop);
    assert_eq!(too_many, Err(Error::PortCount { routes: 32_257, interfaces: 32_256 }));
}

#[test]
fn a_number_is_given_out_again_only_behind_every_forwarder() {
    let (pool, mut fib) = (pool(), table());
    let mut asked = Asked::new(&fib, &pool);
    let idle = fib.forwarder();
    let hops: Vec<NextHop> = (0..64).map(|last| fib.add_next_hop(station(1, last)).unwrap()).collect();
    let full = |waiting| Err(Error::Full { what: "next hops", limit: 64, waiting });
    assert_eq!(fib.add_next_hop(station(1, 0)), full(0));
    fib.remove_next_hop(hops[9]).unwrap();
    fib.remove_next_hop(hops[5]).unwrap();
    assert_eq!(fib.add_next_hop(station(1, 0)), full(2), "two forwarders may be at work with it");
    assert_eq!(asked.one(&udp4(v4(1), v4(2), (1, 2))), Err(Refusal::NoRoute));
    assert_eq!(fib.add_next_hop(station(1, 0)), full(2), "one still may");
    let mut idle = idle;
    idle.catch_up();
    assert_eq!(fib.add_next_hop(station(1, 0)), Ok(hops[5]), "the lowest first");
    fib.remove_next_hop(hops[7]).unwrap();
    drop(idle);
    assert_eq!(fib.add_next_hop(station(1, 0)), Ok(hops[9]));
    asked.forwarder.catch_up();
    assert_eq!(fib.add_next_hop(station(1, 0)), Ok(hops[7]));
}

/// While one thread lets a next hop go to and fro between two stations, each frame goes whole to one of them.
#[test]
fn a_frame_has_one_adjacency_whatever_changes() {
    let (pool, mut fib) = (pool(), table());
    let plain = fib.add_next_hop(station(1, 1)).unwrap();
    let members = [plain, fib.add_next_hop(station(2, 2)).unwrap()];
    let group = fib.add_group(&members.map(|hop| (hop, 1))).unwrap();
    let by_group = fib.add_next_hop(Target::Group(group)).unwrap();
    fib.insert_ipv4("10.0.0.0/8".parse().unwrap(), plain).unwrap();
    fib.insert_ipv6("2001:db8::/32".parse().unwrap(), by_group).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let mut asked = Asked::new(&fib, &pool);
            let done = &done;
            scope.spawn(move || {
                let (from, to) = ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
                let six = ethernet([0x86, 0xDD], &ipv6(from, to, [0, 0], 17, &[0; 8]));
                let burst = [udp4(v4(1), v4(2), (1, 2)), six].map(|bytes| Sent { bytes, cuts: Vec::new() });
                let mut counts = [0; PORTS];
                while !done.load(Ordering::Relaxed) {
                    let (outputs, refused) = asked.route(&burst);
                    for (port, sent) in outputs.iter().enumerate() {
                        let last = u8::try_from(port).unwrap();
                        for frame in sent {
                            assert_eq!(frame[..12], [2, 0, 0, 0, 9, last, 2, 0, 0, 0, 1, last]);
                        }
                        counts[port] += sent.len();
                    }
                    assert!(refused.iter().all(|refusal| *refusal == Refusal::Unresolved));
                }
                assert_eq!(counts[0], 0);
            });
        }
        for turn in 0..if cfg!(miri) { 20_u8 } else { 250 } {
            let [one, other] = [1 + turn % 2, 2 - turn % 2];
            fib.set_next_hop(plain, station(one.into(), one)).unwrap();
            fib.set_group(group, &[(members[usize::from(turn) % 2], 1)]).unwrap();
            fib.set_next_hop(members[1], station(other.into(), other)).unwrap();
            if turn.is_multiple_of(16) {
                fib.set_next_hop(members[1], Target::Refused(Refusal::Unresolved)).unwrap();
            }
        }
        done.store(true, Ordering::Relaxed);
    });
}

/// What a table is told.
#[derive(Clone, Debug)]
enum Step {
    Insert(usize, u32),
    Remove(usize),
    Change(u32, usize, u8),
    Ask(usize),
}

const PREFIXES: [(&str, u32); 8] = [
    ("10.0.0.0", 8),
    ("10.1.0.0", 16),
    ("10.1.2.0", 24),
    ("10.1.2.3", 32),
    ("2001:db8::", 32),
    ("2001:db8:1::", 48),
    ("2001:db8:1::1", 128),
    ("::", 0),
];
const HOPS: u32 = 5;

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..PREFIXES.len(), 0..HOPS).prop_map(|(prefix, hop)| Step::Insert(prefix, hop)),
        2 => (0..PREFIXES.len()).prop_map(Step::Remove),
        2 => (0..HOPS, 0..PORTS, any::<u8>()).prop_map(|(hop, port, last)| Step::Change(hop, port, last)),
        4 => (0..8_usize).prop_map(Step::Ask),
    ]
}

fn question(number: usize) -> Vec<u8> {
    let to = ["10.0.0.1", "10.1.0.1", "10.1.2.1", "10.1.2.3", "11.0.0.1"];
    if let Some(to) = to.get(number) {
        return udp4(v4(1), to.parse().unwrap(), (1, 2));
    }
    let to = ["2001:db8::9", "2001:db8:1::1", "2001:db9::1"][number - to.len()];
    ethernet([0x86, 0xDD], &ipv6("2001:db8::1".parse().unwrap(), to.parse().unwrap(), [0, 0], 17, &[0; 8]))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 300 }))]

    #[test]
    fn after_any_changes_frames_go_as_the_rfcs_say(steps in prop::collection::vec(step(), 1..60)) {
        let (pool, mut fib) = (pool(), table());
        let mut asked = Asked::new(&fib, &pool);
        let hops: Vec<NextHop> = (0..HOPS).map(|_| fib.add_next_hop(station(0, 0)).unwrap()).collect();
        let mut targets = vec![(0, 0); hops.len()];
        let mut routes: HashMap<usize, u32> = HashMap::new();
        for step in steps {
            match step {
                Step::Insert(prefix, hop) => {
                    let (text, to) = (format!("{}/{}", PREFIXES[prefix].0, PREFIXES[prefix].1), hops[hop as usize]);
                    let before = if text.contains(':') {
                        fib.insert_ipv6(text.parse().unwrap(), to)
                    } else {
                        fib.insert_ipv4(text.parse().unwrap(), to)
                    };
                    prop_assert_eq!(before.unwrap().map(NextHop::get), routes.insert(prefix, hop));
                }
                Step::Remove(prefix) => {
                    let text = format!("{}/{}", PREFIXES[prefix].0, PREFIXES[prefix].1);
                    let removed = if text.contains(':') {
                        fib.remove_ipv6(text.parse().unwrap())
                    } else {
                        fib.remove_ipv4(text.parse().unwrap())
                    };
                    prop_assert_eq!(removed.ok().map(NextHop::get), routes.remove(&prefix));
                }
                Step::Change(hop, port, last) => {
                    fib.set_next_hop(hops[hop as usize], station(u16::try_from(port).unwrap(), last)).unwrap();
                    targets[hop as usize] = (port, last);
                }
                Step::Ask(number) => {
                    let route = |(prefix, hop): (&usize, &u32)| {
                        let (port, last) = targets[*hop as usize];
                        let (address, len) = PREFIXES[*prefix];
                        let address = address.parse::<IpAddr>().unwrap();
                        Route { address, len, mac: [2, 0, 0, 0, 9, last], port }
                    };
                    let naive = Naive {
                        routes: routes.iter().map(route).collect(),
                        macs: (0..PORTS).map(mac).collect(),
                        promiscuous: false,
                        returns: false,
                        mtus: vec![1500; PORTS],
                    };
                    let frame = question(number);
                    prop_assert_eq!(asked.one(&frame), naive.route(0, &frame));
                }
            }
        }
        for hop in &hops {
            let used = routes.values().any(|number| *number == hop.get());
            prop_assert_eq!(fib.remove_next_hop(*hop).is_err(), used);
        }
        drop(asked);
        prop_assert_eq!(pool.away(), 0, "a packet is lost");
    }
}
