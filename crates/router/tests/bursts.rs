//! Bursts one after another, most of whose frames leave, against the router of the RFCs, which takes one frame at a
//! time: frames to one port leave in the order in which they came, whatever comes between them.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Naive, Route, Sent, checksum, frames, push, text};
use mempool::{Batch, Pool, PoolConfig};
use proptest::prelude::*;
use router::{Egress, Fib, Interface, Miss, Refusal, Routes};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const PORTS: usize = 3;
const BURST: usize = 64;
/// Bytes of Ethernet header and IPv4 header.
const HEADERS: usize = 14 + 20;
const MAC: [u8; 6] = [2, 0, 0, 0, 1, 0];

/// What a frame is; the number is its destination.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Plain(u8),
    /// Shorter than an Ethernet frame may be, so that there are bytes behind the packet.
    Padded(u8),
    Options(u8),
    Ipv6(u8),
    LastHop(u8),
    LastHopIpv6(u8),
    WrongSum(u8),
    OtherStation(u8),
    /// Longer than some ports send.
    Long(u8),
    LongIpv6(u8),
    /// In two buffers, and in two of which the second holds nothing of the packet.
    Cut(u8),
    CutPadding(u8),
    /// Ends after so many bytes.
    Truncated(u8),
    Arp,
}

fn kind() -> impl Strategy<Value = Kind> {
    // Destination 3 has no route.
    let to = || prop_oneof![8 => 0..3_u8, 1 => Just(3)];
    prop_oneof![
        20 => to().prop_map(Kind::Plain),
        4 => to().prop_map(Kind::Padded),
        4 => to().prop_map(Kind::Ipv6),
        1 => prop_oneof![to().prop_map(Kind::Options), Just(Kind::Arp), (0..54_u8).prop_map(Kind::Truncated)],
        1 => prop_oneof![to().prop_map(Kind::LastHop), to().prop_map(Kind::LastHopIpv6)],
        1 => prop_oneof![to().prop_map(Kind::WrongSum), to().prop_map(Kind::OtherStation)],
    ]
}

/// Kinds for which the router leaves its usual path.
fn unusual() -> impl Strategy<Value = Kind> {
    let to = || 0..4_u8;
    prop_oneof![
        to().prop_map(Kind::Cut),
        to().prop_map(Kind::CutPadding),
        to().prop_map(Kind::Long),
        to().prop_map(Kind::LongIpv6),
    ]
}

/// Some of the bursts have some of those, and some are of one or two frames.
fn burst() -> impl Strategy<Value = Vec<Kind>> {
    let some = || prop_oneof![20 => kind(), 1 => unusual()];
    let lens = |most| prop::collection::vec(some(), 1..=most);
    prop_oneof![prop::collection::vec(kind(), 1..=BURST), lens(BURST / 2), lens(2)]
}

/// The bytes of a frame; `number` tells it from all others.
fn sent(kind: Kind, number: u16) -> Sent {
    let v4 = |to, payload, hops, options| ipv4(to, number, payload, hops, options);
    let mut bytes = match kind {
        Kind::Plain(to) | Kind::WrongSum(to) | Kind::OtherStation(to) | Kind::Cut(to) => v4(to, 26, 64, 0),
        Kind::Padded(to) | Kind::CutPadding(to) => v4(to, 6, 2, 0),
        Kind::Options(to) => v4(to, 26, 64, 2),
        Kind::LastHop(to) => v4(to, 26, 1, 0),
        Kind::Long(to) => v4(to, 300, 64, 0),
        Kind::Ipv6(to) => ipv6(to, number, 26, 64),
        Kind::LastHopIpv6(to) => ipv6(to, number, 26, 1),
        Kind::LongIpv6(to) => ipv6(to, number, 300, 64),
        Kind::Truncated(len) => ipv6(0, number, 0, 64)[..=usize::from(len)].into(),
        Kind::Arp => [&[0xFF; 6][..], &[2, 9, 9, 9, 9, 9, 8, 6], &number.to_be_bytes()].concat(),
    };
    let mut cuts = Vec::new();
    match kind {
        Kind::Padded(_) => bytes.resize(60, 0),
        Kind::Cut(_) => cuts.push(HEADERS + 10),
        Kind::CutPadding(_) => {
            cuts.push(bytes.len());
            bytes.resize(60, 0);
        }
        Kind::WrongSum(_) => bytes[24] ^= 1,
        Kind::OtherStation(_) => bytes[5] ^= 0x80,
        _ => {}
    }
    Sent { bytes, cuts }
}

fn ipv4(to: u8, number: u16, payload: u16, hops: u8, options: u8) -> Vec<u8> {
    let header = 20 + usize::from(options) * 4;
    let total = u16::try_from(header).unwrap() + payload;
    let mut ip = vec![0x45 + options, 0];
    ip.extend(total.to_be_bytes());
    ip.extend(number.to_be_bytes());
    ip.extend([0, 0, hops, 17, 0, 0, 10, 9, 9, 9, 10, 0, 0, to]);
    ip.resize(header, 1);
    let sum = checksum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    ip.resize(total.into(), 7);
    [&MAC[..], &[2, 9, 9, 9, 9, 9, 8, 0], &ip].concat()
}

fn ipv6(to: u8, number: u16, payload: u16, hops: u8) -> Vec<u8> {
    let address = |last: u8| Ipv6Addr::from((0x2001_0db8_u128 << 96) + u128::from(last)).octets();
    let [flow, low] = number.to_be_bytes();
    let mut ip = vec![0x60, 0, flow, low];
    ip.extend(payload.to_be_bytes());
    ip.extend([17, hops]);
    ip.extend([address(9), address(to)].concat());
    ip.resize(40 + usize::from(payload), 7);
    [&MAC[..], &[2, 9, 9, 9, 9, 9, 0x86, 0xDD], &ip].concat()
}

/// A route of each family to each of destinations 0 to 2.
fn routes() -> Vec<Route> {
    let mac = |to: u8| [2, 0, 0, 0, 2, to];
    let v4 = |to| Route { address: IpAddr::V4(Ipv4Addr::new(10, 0, 0, to)), len: 32, mac: mac(to), port: to.into() };
    let v6 =
        |to: u8| Route { address: Ipv6Addr::from((0x2001_0db8 << 96) + u128::from(to)).into(), len: 128, ..v4(to) };
    (0..3).flat_map(|to| [v4(to), v6(to)]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 500 }))]

    #[test]
    fn frames_to_one_port_keep_their_order(
        bursts in prop::collection::vec(burst(), 1..5),
        returns in any::<bool>(),
        mtus in prop::sample::select(vec![[1500, 1500, 1500], [1500, 200, 1500]]),
    ) {
        let naive = Naive { routes: routes(), macs: vec![MAC; PORTS], promiscuous: false, returns, mtus: mtus.into() };
        let interfaces = mtus.map(|mtu| Interface { mac: MAC, promiscuous: false, mtu });
        let fib = Fib::new(&Routes::parse(text(&naive.routes).as_bytes(), PORTS).unwrap(), &interfaces).unwrap();
        let mut forwarder = fib.forwarder(if returns { Miss::Return } else { Miss::Refuse });
        // What leaves stays here until all bursts have been routed.
        let mut egress = Egress::new(PORTS, bursts.len() * BURST);
        let pool = Pool::new(&PoolConfig { slots: 512, ..PoolConfig::default() }).unwrap();
        let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(BURST));

        let (mut outputs, mut refusals, mut number) = (vec![Vec::new(); PORTS], Vec::new(), 0);
        for burst in bursts {
            for kind in burst {
                let sent = sent(kind, number);
                number += 1;
                push(&mut cache, &mut batch, &sent);
                match naive.route(0, &sent.bytes) {
                    Ok((port, bytes)) => outputs[port].push(bytes),
                    Err(refusal) => refusals.push(refusal),
                }
            }
            let packets = batch.len();
            prop_assert_eq!(forwarder.route(0, &mut batch, &mut egress), packets);
            prop_assert!(batch.is_empty());
        }
        for (port, (batch, expected)) in egress.outputs().iter().zip(outputs).enumerate() {
            prop_assert_eq!(frames(batch), expected, "port {}", port);
        }
        let refused: Vec<Refusal> =
            egress.drain_refused().filter(|(packet, _)| !packet.continues()).map(|(_, refusal)| refusal).collect();
        prop_assert_eq!(refused, refusals);
        drop((egress, cache, batch));
        prop_assert_eq!(pool.away(), 0, "a packet is lost");
    }
}
