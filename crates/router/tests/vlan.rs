//! VLANs on the ports of a table that changes in place, beside the router of the RFCs; and that whatever is refused comes out as it came.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Naive, Route, Sent, Tagged, frames, push};
use etherparse::{PacketBuilder, SingleVlanHeader, VlanHeader, VlanId, VlanPcp, ether_type};
use lpm::NextHop;
use mempool::{Batch, Packet, Pool, PoolCache, PoolConfig};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use router::{Egress, Error, Interface, LiveConfig, LiveFib, LiveForwarder, MacAddress, Neighbour, Refusal, Target};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};

const PORTS: usize = 2;
/// The sub-interfaces: one VLAN on both ports, one on either.
const SUBS: [(usize, u16); 4] = [(0, 5), (0, 4094), (1, 5), (1, 1)];
const INTERFACES: usize = PORTS + SUBS.len();
const BURST: usize = 64;

fn mac(interface: usize) -> [u8; 6] {
    [2, 0, 0, 0, 1, u8::try_from(interface).unwrap()]
}

fn neighbour(interface: usize) -> [u8; 6] {
    [2, 0, 0, 0, 9, u8::try_from(interface).unwrap()]
}

fn small() -> LiveConfig {
    LiveConfig { next_hops: 64, groups: 4, sub_interfaces: 4, ..LiveConfig::default() }
}

/// A route of each family by each interface: 10.0.N.0/24 and 2001:db8:N::/48.
fn model(mtus: [u16; INTERFACES], up: [bool; INTERFACES], promiscuous: [bool; INTERFACES]) -> Tagged {
    let route = |port: usize, v6| {
        let address = match v6 {
            false => IpAddr::from([10, 0, u8::try_from(port).unwrap(), 0]),
            true => Ipv6Addr::from((0x2001_0db8 << 96) + ((port as u128) << 80)).into(),
        };
        Route { address, len: if v6 { 48 } else { 24 }, mac: neighbour(port), port }
    };
    let routes = (0..INTERFACES).flat_map(|interface| [false, true].map(|v6| route(interface, v6))).collect();
    let macs = (0..INTERFACES).map(mac).collect();
    let naive = Naive { routes, macs, promiscuous: false, returns: false, mtus: mtus.into() };
    let subs = SUBS.map(|(port, vlan)| (port, Some(vlan)));
    let places = (0..PORTS).map(|port| (port, None)).chain(subs).collect();
    Tagged { naive, places, up: up.into(), promiscuous: promiscuous.into() }
}

/// The table of a model.
fn table(model: &Tagged) -> LiveFib {
    let Naive { routes, macs, mtus, .. } = &model.naive;
    let interface =
        |number: usize| Interface { mac: macs[number], promiscuous: model.promiscuous[number], mtu: mtus[number] };
    let ports: Vec<Interface> = (0..PORTS).map(interface).collect();
    let mut fib = LiveFib::new(&small(), &ports).unwrap();
    for (number, (port, vlan)) in model.places.iter().enumerate() {
        if let Some(vlan) = vlan {
            let added = fib.add_interface(u16::try_from(*port).unwrap(), *vlan, &interface(number)).unwrap();
            assert_eq!(usize::from(added), number);
        }
        if !model.up[number] {
            fib.set_interface(u16::try_from(number).unwrap(), None).unwrap();
        }
    }
    for route in routes {
        let target = Neighbour { port: u16::try_from(route.port).unwrap(), mac: MacAddress(route.mac) };
        let hop = fib.add_next_hop(Target::Neighbour(target)).unwrap();
        let text = format!("{}/{}", route.address, route.len);
        match route.address {
            IpAddr::V4(_) => fib.insert_ipv4(text.parse().unwrap(), hop).unwrap(),
            IpAddr::V6(_) => fib.insert_ipv6(text.parse().unwrap(), hop).unwrap(),
        };
    }
    fib
}

fn pool() -> Pool {
    Pool::new(&PoolConfig { slots: 512, ..PoolConfig::default() }).unwrap()
}

/// Frames that leave by each port, and those that are refused.
type Routed = (Vec<Vec<Vec<u8>>>, Vec<(Refusal, Vec<u8>)>);

/// A forwarder with what it takes to ask it.
struct Asked {
    forwarder: LiveForwarder,
    cache: PoolCache,
    batch: Batch,
    egress: Egress,
}

impl Asked {
    fn new(fib: &LiveFib, pool: &Pool) -> Self {
        let egress = Egress::new(PORTS, BURST);
        Self { forwarder: fib.forwarder(), cache: pool.cache(), batch: Batch::with_capacity(BURST), egress }
    }

    /// What becomes of frames in one burst, each in the buffers that it is cut into.
    fn route(&mut self, ingress: usize, sent: &[Sent]) -> Routed {
        sent.iter().for_each(|sent| push(&mut self.cache, &mut self.batch, sent));
        let packets = self.batch.len();
        assert_eq!(self.forwarder.route(ingress, &mut self.batch, &mut self.egress), packets);
        let (mut left, mut refusals) = (Vec::<Packet>::new(), Vec::new());
        for (packet, refusal) in self.egress.drain_refused() {
            if !packet.continues() {
                refusals.push(refusal);
            }
            left.push(packet);
        }
        let outputs = self.egress.outputs().iter_mut().map(|batch| {
            let sent = frames(batch);
            self.cache.free_batch(batch);
            sent
        });
        (outputs.collect(), refusals.into_iter().zip(frames(&left)).collect())
    }

    fn one(&mut self, ingress: usize, bytes: &[u8]) -> Result<(usize, Vec<u8>), Refusal> {
        let (outputs, refused) = self.route(ingress, &[Sent { bytes: bytes.to_vec(), cuts: Vec::new() }]);
        refused.iter().for_each(|(_, left)| assert_eq!(left, bytes, "a refused frame has changed"));
        let sent = outputs.into_iter().enumerate().find_map(|(port, sent)| Some((port, sent.into_iter().next()?)));
        sent.ok_or_else(|| refused[0].0)
    }
}

/// A UDP datagram of `total` bytes of IP, tagged or not, to a host behind an interface.
fn udp(to_mac: [u8; 6], vlan: Option<u16>, to: (usize, bool), ttl: u8, total: usize) -> Vec<u8> {
    let (behind, v6) = (u8::try_from(to.0).unwrap(), to.1);
    let link = PacketBuilder::ethernet2([2, 7, 7, 7, 7, 7], to_mac);
    let from = Ipv6Addr::from((0x2001_0db8 << 96) + 0xFFFF).octets();
    let host = Ipv6Addr::from((0x2001_0db8 << 96) + (u128::from(behind) << 80) + 9).octets();
    let payload = vec![0x55; total.saturating_sub(if v6 { 48 } else { 28 })];
    let mut frame = Vec::new();
    let v4 = ([10, 9, 9, 9], [10, 0, behind, 9]);
    match (vlan, v6) {
        (None, false) => link.ipv4(v4.0, v4.1, ttl).udp(7, 9).write(&mut frame, &payload).unwrap(),
        (None, true) => link.ipv6(from, host, ttl).udp(7, 9).write(&mut frame, &payload).unwrap(),
        (Some(vlan), v6) => {
            let tag = SingleVlanHeader {
                pcp: VlanPcp::try_new(u8::try_from(vlan % 8).unwrap()).unwrap(),
                drop_eligible_indicator: vlan % 2 == 1,
                vlan_id: VlanId::try_new(vlan).unwrap(),
                ether_type: ether_type::IPV4,
            };
            let link = link.vlan(VlanHeader::Single(tag));
            if v6 {
                link.ipv6(from, host, ttl).udp(7, 9).write(&mut frame, &payload).unwrap();
            } else {
                link.ipv4(v4.0, v4.1, ttl).udp(7, 9).write(&mut frame, &payload).unwrap();
            }
        }
    }
    frame
}

/// Puts a tag in front of the EtherType.
fn with_tag(frame: &[u8], tag: [u8; 4]) -> Vec<u8> {
    [&frame[..12], &tag, &frame[12..]].concat()
}

#[test]
fn every_interface_sends_to_every_other() {
    let model = model([1500; INTERFACES], [true; INTERFACES], [false; INTERFACES]);
    let (pool, fib) = (pool(), table(&model));
    let mut asked = Asked::new(&fib, &pool);
    for (from, (ingress, vlan)) in model.places.iter().enumerate() {
        for to in (0..INTERFACES).flat_map(|to| [(to, false), (to, true)]) {
            let frame = udp(mac(from), *vlan, to, 64, 100);
            let (port, out) = asked.one(*ingress, &frame).unwrap();
            assert_eq!(Ok((port, out.clone())), model.route(*ingress, &frame), "from {from} to {to:?}");
            // Another reader than the model sees the same.
            let read = etherparse::SlicedPacket::from_ethernet(&out).unwrap();
            let link = read.link.as_ref().unwrap().to_header().unwrap().ethernet2().unwrap();
            assert_eq!((link.destination, link.source), (neighbour(to.0), mac(to.0)));
            let vlans: Vec<u16> = read.vlan_ids().iter().map(|id| id.value()).collect();
            assert_eq!((port, vlans.first().copied()), model.places[to.0], "from {from} to {to:?}");
            assert!(vlans.len() < 2);
            assert!(vlans.is_empty() || out[14] >> 4 == 0, "a priority");
        }
    }
}

#[test]
fn mtus_are_without_the_tag_to_the_byte() {
    const MTUS: [u16; INTERFACES] = [100, 101, 102, 300, 301, 1500];
    let model = model(MTUS, [true; INTERFACES], [false; INTERFACES]);
    let (pool, fib) = (pool(), table(&model));
    let mut asked = Asked::new(&fib, &pool);
    let mut refused = 0;
    for (from, (ingress, vlan)) in model.places.iter().enumerate() {
        for (to, mtu) in MTUS.into_iter().enumerate() {
            for (total, v6) in [mtu - 1, mtu, mtu + 1].into_iter().flat_map(|total| [(total, false), (total, true)]) {
                for padding in [0, 30] {
                    let mut frame = udp(mac(from), *vlan, (to, v6), 64, total.into());
                    frame.resize(frame.len() + padding, 0xEE);
                    let routed = asked.one(*ingress, &frame);
                    assert_eq!(routed, model.route(*ingress, &frame), "{total} bytes from {from} to {to}");
                    refused += usize::from(routed == Err(Refusal::TooBig));
                }
            }
        }
    }
    assert_eq!(refused, INTERFACES * INTERFACES * 2 * 2);
}

#[test]
fn tags_that_no_interface_takes_are_refused_with_them() {
    let mut model = model([1500; INTERFACES], [true; INTERFACES], [false; INTERFACES]);
    let (pool, mut fib) = (pool(), table(&model));
    let mut asked = Asked::new(&fib, &pool);
    let (frame, to_port) = (udp(mac(2), None, (1, false), 64, 60), udp(mac(0), None, (1, false), 64, 60));
    let mut to_group = to_port.clone();
    to_group[0] |= 1;
    for tag in [[0x81, 0, 0, 0], [0x81, 0, 0xE0, 0], [0x81, 0, 0, 6], [0x81, 0, 0x0F, 0xFF], [0x88, 0xA8, 0, 5]] {
        // Also behind a tag that is known.
        for tags in [&[tag][..], &[tag, [0x81, 0, 0, 5]]] {
            let tagged = |frame: &Vec<u8>| tags.iter().fold(frame.clone(), |frame, tag| with_tag(&frame, *tag));
            let fates = [&to_port, &to_group, &frame].map(|frame| asked.one(0, &tagged(frame)).unwrap_err());
            assert_eq!(fates, [Refusal::Vlan, Refusal::Vlan, Refusal::OtherStation], "{tags:x?}");
        }
    }
    let known = with_tag(&frame, [0x81, 0, 0, 5]);
    for len in 14..18 {
        assert_eq!(asked.one(0, &with_tag(&to_port, [0x81, 0, 0, 5])[..len]), Err(Refusal::Vlan));
    }
    assert!(asked.one(0, &known).is_ok());
    assert_eq!(asked.one(1, &known), Err(Refusal::OtherStation), "the VLAN of another port");
    let mut arp = known.clone();
    arp[16..18].copy_from_slice(&[8, 6]);
    assert_eq!(asked.one(0, &arp), Err(Refusal::NotIp));
    // Nor is anything else another station's affair.
    for other in [with_tag(&to_port, [0x81, 0, 0, 5]), arp] {
        for ether_type in [[8, 6], [0x88, 0x64], [0x88, 0x47], [0x89, 0x15]] {
            let mut frame = [&[2, 3, 3, 3, 3, 3], &other[6..]].concat();
            assert_eq!(asked.one(0, &frame), Err(Refusal::OtherStation));
            frame.drain(12..16);
            frame[12..14].copy_from_slice(&ether_type);
            assert_eq!(asked.one(0, &frame), Err(Refusal::OtherStation), "{ether_type:x?}");
            frame[..6].copy_from_slice(&mac(0));
            assert_eq!(asked.one(0, &frame), Err(Refusal::NotIp), "{ether_type:x?}");
        }
    }

    fib.set_families(2, [false, true]).unwrap();
    assert_eq!(asked.one(0, &known), Err(Refusal::LeftToHost));
    assert!(asked.one(0, &udp(mac(2), Some(5), (1, true), 64, 60)).is_ok());
    assert!(asked.one(0, &udp(mac(0), None, (1, false), 64, 60)).is_ok(), "the port itself");
    fib.set_families(2, [true; 2]).unwrap();
    // Down, the port or the interface, at either end.
    for down in [0, 2, 1] {
        model.up[down] = false;
        fib.set_interface(u16::try_from(down).unwrap(), None).unwrap();
        for (ingress, frame) in [(0, &known), (0, &frame), (1, &udp(mac(1), None, (2, false), 64, 60))] {
            assert_eq!(asked.one(ingress, frame), model.route(ingress, frame), "{down} is down");
        }
        model.up[down] = true;
        let up = Interface { mac: mac(down), promiscuous: false, mtu: 1500 };
        fib.set_interface(u16::try_from(down).unwrap(), Some(&up)).unwrap();
        assert!(asked.one(0, &known).is_ok());
    }
}

#[test]
fn without_head_room_a_tag_is_refused_and_nothing_else() {
    let model = model([1500; INTERFACES], [true; INTERFACES], [false; INTERFACES]);
    let fib = table(&model);
    for (headroom, fits) in [(0, false), (3, false), (4, true)] {
        let pool = Pool::new(&PoolConfig { slots: 64, headroom, ..PoolConfig::default() }).unwrap();
        let mut asked = Asked::new(&fib, &pool);
        for v6 in [false, true] {
            let pushed = udp(mac(1), None, (2, v6), 64, 60);
            let expected = if fits { model.route(1, &pushed) } else { Err(Refusal::Vlan) };
            assert_eq!(asked.one(1, &pushed), expected, "{headroom} bytes");
            for (ingress, frame) in
                [(0, udp(mac(2), Some(5), (3, v6), 64, 60)), (0, udp(mac(2), Some(5), (1, v6), 64, 60))]
            {
                assert_eq!(asked.one(ingress, &frame), model.route(ingress, &frame));
            }
        }
    }
}

#[test]
fn flows_go_the_same_way_with_and_without_tags() {
    let model = model([1500; INTERFACES], [true; INTERFACES], [false; INTERFACES]);
    let (pool, mut fib) = (pool(), table(&model));
    let mut asked = Asked::new(&fib, &pool);
    // Members untagged, and on a VLAN of either port.
    let member = |interface: usize| {
        Target::Neighbour(Neighbour { port: u16::try_from(interface).unwrap(), mac: MacAddress(neighbour(interface)) })
    };
    let members = [1, 2, 4].map(|interface| (fib.add_next_hop(member(interface)).unwrap(), 1));
    let group = fib.add_group(&members).unwrap();
    let hop = fib.add_next_hop(Target::Group(group)).unwrap();
    fib.insert_ipv4("10.0.0.0/24".parse().unwrap(), hop).unwrap();
    fib.insert_ipv6("2001:db8::/48".parse().unwrap(), hop).unwrap();
    let mut shares = [0; INTERFACES];
    for flow in 0..if cfg!(miri) { 10 } else { 120_u8 } {
        for v6 in [false, true] {
            let mut frame = udp(mac(0), None, (0, v6), 64, 80);
            if v6 {
                frame[37] = flow;
            } else {
                frame[29] = flow;
                frame[24..26].fill(0);
                let sum = common::checksum(&frame[14..34]);
                frame[24..26].copy_from_slice(&sum.to_be_bytes());
            }
            let (port, out) = asked.one(0, &frame).unwrap();
            let way = usize::from(out[5]);
            assert_eq!((port, out.get(12) == Some(&0x81)), (model.places[way].0, way != 1));
            shares[way] += 1;
            let mut tagged = with_tag(&frame, [0x81, 0, 0, 5]);
            tagged[..6].copy_from_slice(&mac(2));
            assert_eq!(asked.one(0, &tagged), Ok((port, out)));
        }
    }
    if !cfg!(miri) {
        assert_eq!(shares.map(|share| share > 30), [false, true, true, false, true, false], "{shares:?}");
    }
}

#[test]
fn mistakes_with_interfaces_change_nothing() {
    let model = model([1500; INTERFACES], [true; INTERFACES], [false; INTERFACES]);
    let mut fib = table(&model);
    let new = Interface { mac: mac(9), promiscuous: false, mtu: 1500 };
    let problem = |added: Result<u16, Error>| matches!(added, Err(Error::Vlan { .. }));
    assert!([0, 4095, u16::MAX].into_iter().all(|vlan| problem(fib.add_interface(0, vlan, &new))));
    assert!(problem(fib.add_interface(0, 5, &new)), "twice");
    assert_eq!(fib.add_interface(2, 5, &new), Err(Error::Unknown { what: "ports", number: 2 }));
    let full = |waiting| Err(Error::Full { what: "sub-interfaces", limit: 4, waiting });
    assert_eq!(fib.add_interface(0, 6, &new), full(0));
    let unknown = Err(Error::Unknown { what: "interfaces", number: 6 });
    assert_eq!(fib.set_interface(6, None), unknown);
    assert_eq!(fib.set_families(6, [true; 2]), unknown);
    assert_eq!(fib.remove_interface(6), unknown);
    assert_eq!(fib.remove_interface(1), Err(Error::InUse { what: "ports", number: 1 }));
    assert!(matches!(fib.remove_interface(3), Err(Error::InUse { .. })), "a next hop leads there");
    let hop = fib.remove_ipv4("10.0.3.0/24".parse().unwrap()).unwrap();
    fib.remove_next_hop(hop).unwrap();
    assert!(fib.remove_interface(3).is_err(), "the other family's, too");
    let hop = fib.remove_ipv6("2001:db8:3::/48".parse().unwrap()).unwrap();
    fib.set_next_hop(hop, Target::Refused(Refusal::Unresolved)).unwrap();
    let mut idle = fib.forwarder();
    fib.remove_interface(3).unwrap();
    assert!(fib.set_interface(3, None).is_err());
    assert_eq!(fib.add_interface(0, 6, &new), full(1), "a forwarder may be at work with it");
    idle.catch_up();
    assert_eq!(fib.add_interface(0, 6, &new), Ok(3));
    assert_eq!(fib.set_next_hop(hop, Target::Neighbour(Neighbour { port: 3, mac: MacAddress(mac(9)) })), Ok(()));
}

/// An interface comes and goes, always as another VLAN with another address and another neighbour, under forwarders at work: no frame
/// has something of one and something of another.
#[test]
fn an_interface_goes_away_under_running_forwarders() {
    let ports = [0, 1].map(|port| Interface { mac: mac(port), promiscuous: false, mtu: 1500 });
    let mut fib = LiveFib::new(&LiveConfig { sub_interfaces: 1, ..small() }, &ports).unwrap();
    let hop = fib.add_next_hop(Target::Refused(Refusal::Unresolved)).unwrap();
    fib.insert_ipv4("10.0.0.0/8".parse().unwrap(), hop).unwrap();
    let (pool, done) = (pool(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let (mut asked, done) = (Asked::new(&fib, &pool), &done);
            scope.spawn(move || {
                let burst: Vec<Sent> = [None, Some(100), Some(101), Some(102)]
                    .map(|vlan| udp(vlan.map_or(mac(0), |vlan| mac(usize::from(vlan))), vlan, (1, false), 64, 60))
                    .map(|bytes| Sent { bytes, cuts: Vec::new() })
                    .into();
                while !done.load(Ordering::Relaxed) {
                    let (outputs, refused) = asked.route(0, &burst);
                    assert!(outputs[1].is_empty());
                    for out in &outputs[0] {
                        let vlan = out[15];
                        let expected = [&neighbour(vlan.into())[..], &mac(vlan.into()), &[0x81, 0, 0, vlan]].concat();
                        assert_eq!(out[..16], expected);
                    }
                    for (refusal, left) in refused {
                        assert!(matches!(refusal, Refusal::Unresolved | Refusal::OtherStation), "{refusal:?}");
                        assert!(burst.iter().any(|sent| sent.bytes == left), "a refused frame has changed");
                    }
                }
            });
        }
        for turn in 0..if cfg!(miri) { 3 } else { 300 } {
            let vlan = 100 + turn % 3;
            let interface = Interface { mac: mac(vlan.into()), promiscuous: false, mtu: 1500 };
            let number = loop {
                match fib.add_interface(0, vlan, &interface) {
                    Err(Error::Full { waiting: 1, .. }) => std::thread::yield_now(),
                    added => break added.unwrap(),
                }
            };
            assert_eq!(number, 2);
            let target = Neighbour { port: number, mac: MacAddress(neighbour(vlan.into())) };
            fib.set_next_hop(hop, Target::Neighbour(target)).unwrap();
            std::thread::yield_now();
            fib.set_next_hop(hop, Target::Refused(Refusal::Unresolved)).unwrap();
            fib.remove_interface(number).unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
}

prop_compose! {
    /// Right in most ways, and wrong in some.
    fn sent()(
        to_mac in prop_oneof![8 => (0..INTERFACES).prop_map(mac), 1 => Just([1, 0, 0x5E, 0, 0, 1])],
        // To an interface, or to nowhere.
        (to, v6) in (0..=INTERFACES, any::<bool>()),
        ttl in select(vec![64, 64, 64, 2, 1]),
        total in prop_oneof![48..130_usize, 290..310_usize],
        padding in select(vec![0, 0, 0, 1, 17, 46]),
        tag in select(vec![None, None, None, Some(5), Some(5), Some(1), Some(4094), Some(0), Some(7), Some(4095)]),
        priority in 0..16_u8,
        outer in 0..24_u8,
        wrong in 0..16_u8,
        noise in any::<Index>(),
        cuts in prop::collection::vec(any::<Index>(), 0..3),
        whole in 0..3_u8,
    ) -> Sent {
        let mut frame = udp(to_mac, None, (to, v6), ttl, total);
        match wrong {
            0 if !v6 => {
                // Options: the header's length goes up by a word of the payload.
                frame[14] = 0x46;
                frame[24..26].fill(0);
                let sum = common::checksum(&frame[14..38]);
                frame[24..26].copy_from_slice(&sum.to_be_bytes());
            }
            // Hop-by-hop options.
            0 => frame[20] = 0,
            1 => {
                let at = 12 + noise.index(30);
                frame[at] ^= 1;
            }
            _ => {}
        }
        frame.resize(frame.len() + padding, 0xEE);
        if let Some(vlan) = tag {
            let [high, low] = u16::to_be_bytes(vlan);
            frame = with_tag(&frame, [0x81, 0, high | priority << 4, low]);
        }
        match outer {
            0 => frame = with_tag(&frame, [0x81, 0, 0, 5]),
            1 => frame = with_tag(&frame, [0x88, 0xA8, 0, 5]),
            _ => {}
        }
        if wrong == 2 {
            frame.truncate(noise.index(frame.len()) + 1);
        }
        // Behind all headers that a router reads.
        let room = frame.len().saturating_sub(83);
        let mut cuts: Vec<usize> = match whole {
            0 if room > 0 => cuts.iter().map(|cut| 83 + cut.index(room)).collect(),
            _ => Vec::new(),
        };
        cuts.sort_unstable();
        cuts.dedup();
        Sent { bytes: frame, cuts }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 200 }))]

    /// Bursts at a port, of frames with and without tags, whole and in several buffers.
    #[test]
    fn frames_go_as_the_rfcs_say_and_what_is_refused_is_as_it_came(
        ingress in 0..PORTS,
        bursts in prop::collection::vec(prop::collection::vec(sent(), 1..14), 1..4),
        mtus in prop::collection::vec(prop_oneof![68..130_u16, Just(300), Just(1500), Just(u16::MAX)], INTERFACES),
        up in prop::collection::vec(prop::bool::weighted(0.9), INTERFACES),
        promiscuous in prop::collection::vec(prop::bool::weighted(0.5), INTERFACES),
    ) {
        let (mtus, up, promiscuous) = (mtus.try_into().unwrap(), up.try_into().unwrap(), promiscuous.try_into().unwrap());
        let model = model(mtus, up, promiscuous);
        let (pool, fib) = (pool(), table(&model));
        let mut asked = Asked::new(&fib, &pool);
        for burst in bursts {
            let (mut outputs, mut refused) = (vec![Vec::new(); PORTS], Vec::new());
            for Sent { bytes, .. } in &burst {
                match model.route(ingress, bytes) {
                    Ok((port, out)) => outputs[port].push(out),
                    Err(refusal) => refused.push((refusal, bytes.clone())),
                }
            }
            prop_assert_eq!(asked.route(ingress, &burst), (outputs, refused));
        }
        drop(asked);
        prop_assert_eq!(pool.away(), 0, "a packet is lost");
    }
}

/// Every reason to refuse, as a route gives it, for frames with padding and tag, whole and in several buffers.
#[test]
fn whatever_the_reason_a_refused_frame_is_as_it_came() {
    let model = model([1500; INTERFACES], [true; INTERFACES], [false; INTERFACES]);
    let (pool, mut fib) = (pool(), table(&model));
    let mut asked = Asked::new(&fib, &pool);
    let hops: Vec<NextHop> = [false, true]
        .map(|v6| match v6 {
            false => fib.remove_ipv4("10.0.1.0/24".parse().unwrap()).unwrap(),
            true => fib.remove_ipv6("2001:db8:1::/48".parse().unwrap()).unwrap(),
        })
        .into();
    fib.insert_ipv4("10.0.1.0/24".parse().unwrap(), hops[0]).unwrap();
    fib.insert_ipv6("2001:db8:1::/48".parse().unwrap(), hops[1]).unwrap();
    for refusal in Refusal::ALL {
        hops.iter().for_each(|hop| fib.set_next_hop(*hop, Target::Refused(refusal)).unwrap());
        let mut burst = Vec::new();
        for (vlan, v6) in [(None, false), (None, true), (Some(5), false), (Some(5), true)] {
            for cuts in [vec![], vec![90], vec![90, 100, 130], vec![130]] {
                let mut bytes = udp(mac(if vlan.is_some() { 2 } else { 0 }), vlan, (1, v6), 64, 90);
                bytes.resize(140, 0xEE);
                burst.push(Sent { bytes, cuts });
            }
        }
        let expected: Vec<(Refusal, Vec<u8>)> = burst.iter().map(|sent| (refusal, sent.bytes.clone())).collect();
        assert_eq!(asked.route(0, &burst), (vec![vec![]; PORTS], expected.clone()), "{refusal:?}");
        for (sent, (_, bytes)) in burst.iter().zip(expected).step_by(4) {
            assert_eq!(asked.one(0, &sent.bytes), Err(refusal));
            assert_eq!(sent.bytes, bytes);
        }
    }
}
