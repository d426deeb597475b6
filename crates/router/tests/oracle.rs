//! Bursts of frames, good and bad, whole and in several buffers, against the router of the RFCs.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Naive, Route, Sent, checksum, frames, push, text};
use mempool::{Batch, Packet, Pool, PoolConfig};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use router::{Egress, Fib, Interface, Miss, Refusal, Routes};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const PORTS: usize = 3;
const BURST: usize = 64;
/// Every header that a router reads ends before this.
const HEADERS: usize = 14 + 60;

/// Prefixes that lie in each other, and addresses in and around them.
const PREFIXES: [(&str, u32); 9] = [
    ("10.0.0.0", 8),
    ("10.1.0.0", 16),
    ("10.1.2.0", 24),
    ("10.1.2.128", 25),
    ("10.1.2.3", 32),
    ("224.0.0.0", 3),
    ("2001:db8::", 32),
    ("2001:db8:1::", 48),
    ("2001:db8:1::1", 128),
];
const V4: [[u8; 4]; 17] = [
    [10, 0, 0, 1],
    [10, 1, 0, 1],
    [10, 1, 2, 1],
    [10, 1, 2, 3],
    [10, 1, 2, 200],
    [11, 0, 0, 1],
    [192, 0, 2, 1],
    [0, 0, 0, 0],
    [0, 1, 2, 3],
    [127, 0, 0, 1],
    [169, 254, 0, 1],
    [169, 253, 0, 1],
    [224, 0, 0, 1],
    [239, 255, 255, 255],
    [240, 0, 0, 1],
    [255, 255, 255, 255],
    [126, 255, 255, 255],
];
const V6: [&str; 15] = [
    "2001:db8::1",
    "2001:db8:1::1",
    "2001:db8:1::2",
    "2001:db9::1",
    "::",
    "::1",
    "::2",
    "::ffff:10.0.0.1",
    "::fffe:10.0.0.1",
    "fe80::1",
    "febf::1",
    "fec0::1",
    "ff02::1",
    "fdff::1",
    "64:ff9b::10.0.0.1",
];

fn mac(port: usize) -> [u8; 6] {
    [2, 0, 0, 0, 1, u8::try_from(port).unwrap()]
}

fn link() -> impl Strategy<Value = Vec<u8>> {
    let station =
        select(vec![mac(0), mac(0), mac(0), mac(0), mac(0), mac(0), mac(1), [1, 0, 0x5E, 0, 0, 1], [0xFF; 6]]);
    (station, select(vec![[2, 9, 9, 9, 9, 9], [3, 9, 9, 9, 9, 9]])).prop_map(|(to, from)| [to, from].concat())
}

prop_compose! {
    /// Right in most ways, and wrong in some.
    fn ipv4_frame()(
        link in link(),
        (from, to) in (select(V4.to_vec()), select(V4.to_vec())),
        options in select(vec![0_u8, 0, 0, 0, 1, 10]),
        payload in prop::collection::vec(any::<u8>(), 0..120),
        padding in 0..40_usize,
        ttl in select(vec![64, 64, 64, 2, 1, 0, 255_u8]),
        protocol in any::<u8>(),
        id in any::<u16>(),
        wrong in 0..40_u8,
        noise in any::<Index>(),
    ) -> Vec<u8> {
        let header = 20 + usize::from(options) * 4;
        let total = u16::try_from(header + payload.len()).unwrap();
        let total = match wrong {
            0 => u16::try_from(header - 1).unwrap(),
            1 => total + 1 + u16::try_from(padding).unwrap(),
            _ => total,
        };
        let mut ip = vec![0x45 + options, 0];
        ip.extend(total.to_be_bytes());
        ip.extend(id.to_be_bytes());
        ip.extend([0, 0, ttl, protocol, 0, 0]);
        ip.extend([from, to].concat());
        ip.resize(header, 1);
        match wrong {
            2 => ip[0] = 0x55,
            3 => ip[0] = 0x44,
            4 => ip[0] = 0x4F,
            _ => {}
        }
        let sum = checksum(&ip);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        if wrong == 5 {
            let at = noise.index(ip.len());
            ip[at] ^= 0x10;
        }
        let mut frame = [&link[..], &[8, 0], &ip, &payload].concat();
        frame.resize(frame.len() + padding, 0xEE);
        if wrong == 6 {
            frame.truncate(noise.index(frame.len()) + 1);
        }
        frame
    }
}

prop_compose! {
    fn ipv6_frame()(
        link in link(),
        (from, to) in (select(V6.to_vec()), select(V6.to_vec())),
        payload in prop::collection::vec(any::<u8>(), 0..120),
        padding in 0..40_usize,
        hop_limit in select(vec![64, 64, 64, 2, 1, 0, 255_u8]),
        wrong in 0..40_u8,
        noise in any::<Index>(),
    ) -> Vec<u8> {
        let extra = if wrong == 0 { padding + 1 } else { 0 };
        let length = u16::try_from(payload.len() + extra).unwrap();
        let mut ip = vec![if wrong == 1 { 0x40 } else { 0x60 }, 0, 0, 0];
        ip.extend(length.to_be_bytes());
        ip.extend([17, hop_limit]);
        for address in [from, to] {
            ip.extend(address.parse::<Ipv6Addr>().unwrap().octets());
        }
        let mut frame = [&link[..], &[0x86, 0xDD], &ip, &payload].concat();
        frame.resize(frame.len() + padding, 0xEE);
        if wrong == 2 {
            frame.truncate(noise.index(frame.len()) + 1);
        }
        frame
    }
}

fn sent() -> impl Strategy<Value = Sent> {
    let tagged = (link(), prop::collection::vec(any::<u8>(), 0..60)).prop_map(|(link, rest)| {
        // A VLAN tag, and whatever comes behind it.
        [&link[..], &[0x81, 0, 0, 7], &rest].concat()
    });
    let noise = prop::collection::vec(any::<u8>(), 1..100);
    let bytes = prop_oneof![8 => ipv4_frame(), 4 => ipv6_frame(), 1 => tagged, 1 => noise];
    (bytes, prop::collection::vec(any::<Index>(), 0..3), 0..3_u8).prop_map(|(bytes, cuts, chained)| {
        let room = bytes.len().saturating_sub(HEADERS + 1);
        let mut cuts: Vec<usize> = match chained {
            0 if room > 0 => cuts.iter().map(|cut| HEADERS + 1 + cut.index(room)).collect(),
            _ => Vec::new(),
        };
        cuts.sort_unstable();
        cuts.dedup();
        Sent { bytes, cuts }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 500 }))]

    #[test]
    fn what_leaves_is_what_the_rfcs_say(
        sent in prop::collection::vec(sent(), 1..=BURST / 4),
        prefixes in prop::sample::subsequence(PREFIXES.to_vec(), 0..=PREFIXES.len()),
        promiscuous in any::<bool>(),
        returns in any::<bool>(),
        mtus in prop::collection::vec(prop_oneof![68..200_u16, Just(1500), Just(u16::MAX)], PORTS),
    ) {
        let routes = prefixes.iter().enumerate().map(|(index, (address, len))| Route {
            address: address.parse::<IpAddr>().unwrap(),
            len: *len,
            mac: [2, 0, 0, 0, 2, u8::try_from(index).unwrap()],
            port: index % PORTS,
        });
        let macs = (0..PORTS).map(mac).collect();
        let naive = Naive { routes: routes.collect(), macs, promiscuous, returns, mtus };
        let interface = |port: usize| Interface { mac: mac(port), promiscuous, mtu: naive.mtus[port] };
        let interfaces: Vec<Interface> = (0..PORTS).map(interface).collect();
        let fib = Fib::new(&Routes::parse(text(&naive.routes).as_bytes(), PORTS).unwrap(), &interfaces).unwrap();
        let mut forwarder = fib.forwarder(if returns { Miss::Return } else { Miss::Refuse });
        let mut egress = Egress::new(PORTS, BURST);

        let pool = Pool::new(&PoolConfig { slots: 256, ..PoolConfig::default() }).unwrap();
        let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(BURST));
        sent.iter().for_each(|sent| push(&mut cache, &mut batch, sent));
        let packets = batch.len();
        prop_assert_eq!(forwarder.route(0, &mut batch, &mut egress), packets);
        prop_assert!(batch.is_empty());

        let mut outputs = vec![Vec::new(); PORTS];
        let mut refusals = Vec::new();
        for sent in &sent {
            match naive.route(0, &sent.bytes) {
                Ok((port, bytes)) => outputs[port].push(bytes),
                Err(refusal) => refusals.push((refusal, sent.bytes.clone())),
            }
        }
        for (port, (batch, expected)) in egress.outputs().iter().zip(outputs).enumerate() {
            prop_assert_eq!(frames(batch), expected, "port {}", port);
        }
        let (left, refused): (Vec<Packet>, Vec<Refusal>) = egress.drain_refused().unzip();
        let refused = left.iter().zip(refused).filter(|(packet, _)| !packet.continues()).map(|(_, refusal)| refusal);
        prop_assert_eq!(refused.zip(frames(&left)).collect::<Vec<_>>(), refusals);
        drop(left);
        drop((egress, cache, batch));
        prop_assert_eq!(pool.away(), 0, "a packet is lost");
    }
}

#[test]
fn every_ipv4_source_and_destination_by_its_first_bytes() {
    let naive = Naive {
        routes: vec![Route { address: Ipv4Addr::UNSPECIFIED.into(), len: 0, mac: [2, 0, 0, 0, 2, 0], port: 0 }],
        macs: vec![mac(0)],
        promiscuous: false,
        returns: false,
        mtus: vec![1500],
    };
    let routes = Routes::parse(text(&naive.routes).as_bytes(), 1).unwrap();
    let fib = Fib::new(&routes, &[Interface { mac: mac(0), promiscuous: false, mtu: 1500 }]).unwrap();
    let (mut forwarder, mut egress) = (fib.forwarder(Miss::Refuse), Egress::new(1, 1));
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(1));
    let step = if cfg!(miri) { 51 } else { 1 };
    for (top, next) in (0..=255).step_by(step).flat_map(|top| [0, 1, 253, 254, 255].map(|next| (top, next))) {
        for (from, to) in [([top, next, 0, 1], [10, 0, 0, 1]), ([10, 0, 0, 1], [top, next, 0, 1])] {
            let mut ip = [&[0x45, 0, 0, 20, 0, 0, 0, 0, 9, 17, 0, 0], &from[..], &to].concat();
            let sum = checksum(&ip);
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
            let bytes = [&mac(0)[..], &[2; 6], &[8, 0], &ip].concat();
            push(&mut cache, &mut batch, &Sent { bytes: bytes.clone(), cuts: Vec::new() });
            forwarder.route(0, &mut batch, &mut egress);
            let refused: Vec<Refusal> = egress.drain_refused().map(|(_, refusal)| refusal).collect();
            let sent = frames(&egress.outputs()[0]);
            cache.free_batch(&mut egress.outputs()[0]);
            match naive.route(0, &bytes) {
                Ok((_, expected)) => assert_eq!((sent, refused), (vec![expected], vec![]), "{from:?} to {to:?}"),
                Err(refusal) => assert_eq!((sent, refused), (vec![], vec![refusal]), "{from:?} to {to:?}"),
            }
        }
    }
}

/// A packet of each family around each port's MTU, alone in its burst, in one buffer and in two.
#[test]
fn each_port_has_an_mtu_to_the_byte() {
    const MTUS: [u16; PORTS] = [100, 101, 300];
    let route = |port: usize, v6: bool| Route {
        address: if v6 { Ipv6Addr::from((0x2001_0db8 << 96) + port as u128).into() } else { v4(port) },
        len: if v6 { 128 } else { 32 },
        mac: [2, 0, 0, 0, 2, 0],
        port,
    };
    let routes = (0..PORTS).flat_map(|port| [false, true].map(|v6| route(port, v6))).collect();
    let macs = (0..PORTS).map(mac).collect();
    let naive = Naive { routes, macs, promiscuous: false, returns: false, mtus: MTUS.into() };
    let interface = |port: usize| Interface { mac: mac(port), promiscuous: false, mtu: MTUS[port] };
    let interfaces: Vec<Interface> = (0..PORTS).map(interface).collect();
    let fib = Fib::new(&Routes::parse(text(&naive.routes).as_bytes(), PORTS).unwrap(), &interfaces).unwrap();
    let (mut forwarder, mut egress) = (fib.forwarder(Miss::Refuse), Egress::new(PORTS, 2));
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(2));
    let mut refused = 0;
    for route in &naive.routes {
        for total in MTUS.iter().flat_map(|mtu| [mtu - 1, *mtu, mtu + 1]) {
            for cuts in [vec![], vec![HEADERS]] {
                let bytes = [&mac(0)[..], &[2; 6], &packet(route.address, total)].concat();
                push(&mut cache, &mut batch, &Sent { bytes: bytes.clone(), cuts });
                forwarder.route(0, &mut batch, &mut egress);
                let expected = naive.route(0, &bytes);
                let last = egress.drain_refused().map(|(_, refusal)| refusal).last();
                assert_eq!(last, expected.as_ref().err().copied(), "{total} bytes to {}", route.address);
                refused += usize::from(last == Some(Refusal::TooBig));
                for (port, batch) in egress.outputs().iter_mut().enumerate() {
                    let sent = expected.iter().filter(|(to, _)| *to == port).map(|(_, bytes)| bytes.clone());
                    assert_eq!(frames(batch), sent.collect::<Vec<_>>(), "{total} bytes to {}", route.address);
                    cache.free_batch(batch);
                }
            }
        }
    }
    // Of 9 lengths, 6, 4 and 1 are more than the port's MTU; of both families, whole and cut.
    assert_eq!(refused, (6 + 4 + 1) * 2 * 2);
}

fn v4(port: usize) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, u8::try_from(port).unwrap() + 1).into()
}

/// EtherType and a packet of `total` bytes.
fn packet(to: IpAddr, total: u16) -> Vec<u8> {
    let (header, ether_type) = match to {
        IpAddr::V4(to) => {
            let [high, low] = total.to_be_bytes();
            let mut ip = [&[0x45, 0, high, low, 0, 0, 0, 0, 9, 17, 0, 0, 10, 9, 9, 9][..], &to.octets()].concat();
            let sum = checksum(&ip);
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
            (ip, [8, 0])
        }
        IpAddr::V6(to) => {
            let [high, low] = (total - 40).to_be_bytes();
            let from = Ipv6Addr::from((0x2001_0db8 << 96) + 9_u128).octets();
            ([&[0x60, 0, 0, 0, high, low, 17, 9][..], &from, &to.octets()].concat(), [0x86, 0xDD])
        }
    };
    let mut packet = [&ether_type[..], &header].concat();
    packet.resize(2 + usize::from(total), 7);
    packet
}
