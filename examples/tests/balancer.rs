//! The balancer: each flow to one server, all servers used, and what moves when one goes.
#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "../src/bin/balancer.rs"]
#[expect(dead_code, reason = "the test has a main function of its own")]
mod balancer;
mod common;

use balancer::Balancer;
use common::{ACK, SYN, TCP, UDP, arp_reply, arp_request, checksum, collected, frame, run};
use ethdev::in_process::{self, Wire};
use ethdev::{MacAddress, Port as _, PortConfig};
use lcore::Switch;
use mempool::{Pool, PoolConfig};
use std::net::SocketAddrV4;

const HOST: [u8; 6] = [2, 0, 0, 0, 0, 7];
const ADDRESS: [u8; 4] = [192, 0, 2, 80];

/// Sends frames, 256 at a time, through a balancer of these servers. `frames` is given the balancer's MAC addresses. Returns what leaves
/// to clients and to servers.
fn balanced(servers: &[MacAddress], frames: impl Fn([[u8; 6]; 2]) -> Vec<Vec<u8>>) -> [Vec<Vec<u8>>; 2] {
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    let (clients, clients_wire) = in_process::open("clients", &PortConfig::default(), &pool).unwrap();
    let (back, back_wire) = in_process::open("servers", &PortConfig::default(), &pool).unwrap();
    let mut ports = [clients, back];
    let macs = ports.each_ref().map(|port| port.port.mac());
    let mut switch = Switch::of(&mut ports, &pool, |_| Balancer::new(ADDRESS.into(), macs, servers)).remove(0);
    let mut wires: [Wire; 2] = [clients_wire, back_wire];
    let mut left = [Vec::new(), Vec::new()];
    for burst in frames(macs.map(|mac| mac.0)).chunks(256) {
        assert!(burst.iter().all(|frame| wires[0].inject(frame)));
        switch = run(switch);
        left.iter_mut().zip(&mut wires).for_each(|(left, wire)| left.extend(collected(wire)));
    }
    left
}

fn servers(count: u8) -> Vec<MacAddress> {
    (1..=count).map(|last| MacAddress([2, 0, 0, 0, 9, last])).collect()
}

/// A frame of flow `n`.
fn request(macs: [[u8; 6]; 2], n: u16, flags: u8) -> Vec<u8> {
    let [high, low] = n.to_be_bytes();
    let client = SocketAddrV4::new([198, 51, high, low].into(), 40_000 + n % 7);
    let protocol = if n.is_multiple_of(4) { UDP } else { TCP };
    frame([macs[0], HOST], protocol, client, SocketAddrV4::new(ADDRESS.into(), 443), (64, flags), b"data")
}

const FLOWS: u16 = 4000;

#[test]
fn a_flow_stays_with_its_server_and_only_the_station_changes() {
    let macs = std::cell::Cell::new([[0; 6]; 2]);
    let frames = |of: [[u8; 6]; 2]| {
        macs.set(of);
        [SYN, ACK].iter().flat_map(|flags| (0..FLOWS).map(|n| request(of, n, *flags))).collect()
    };
    let [to_clients, to_servers] = balanced(&servers(4), frames);
    assert!(to_clients.is_empty() && to_servers.len() == 2 * usize::from(FLOWS));
    let (first, second) = to_servers.split_at(FLOWS.into());
    let mut counts = [0; 4];
    for (n, (opens, follows)) in (0..FLOWS).zip(first.iter().zip(second)) {
        assert_eq!(opens[..6], follows[..6], "flow {n}");
        counts[usize::from(opens[5]) - 1] += 1;
        let sent = request(macs.get(), n, SYN);
        assert_eq!((&opens[6..12], &opens[12..]), (&macs.get()[1][..], &sent[12..]));
    }
    // A quarter each; the slots, and the flows in them, are of chance: four standard deviations of either.
    assert!(counts.iter().all(|count| (800..1200).contains(count)), "{counts:?}");
}

#[test]
fn without_a_server_only_its_flows_move() {
    let flows = |macs| (0..FLOWS).map(|n| request(macs, n, SYN)).collect();
    let [_, all] = balanced(&servers(5), flows);
    let [_, fewer] = balanced(&servers(4), flows);
    for (before, after) in all.iter().zip(&fewer) {
        assert!(before[5] == after[5] || before[5] == 5 && after[5] < 5);
    }
    assert!(all.iter().any(|frame| frame[5] == 5));
}

#[test]
fn it_answers_arp_and_ping_and_drops_the_rest() {
    let asks = (HOST, [192, 0, 2, 9]);
    let ping = |to: [u8; 6]| {
        let mut message = [8, 0, 0, 0, 0, 1, 0, 2, 3];
        let sum = checksum(&message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        let mut header = [&[0x45, 0, 0, 29, 0, 0, 0, 0, 64, 1, 0, 0][..], &asks.1, &ADDRESS].concat();
        let sum = checksum(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        [&to[..], &HOST, &[8, 0], &header, &message].concat()
    };
    let macs = std::cell::Cell::new([[0; 6]; 2]);
    let [to_clients, to_servers] = balanced(&servers(2), |of| {
        macs.set(of);
        let mut other = request(of, 1, SYN);
        other[33] += 1;
        vec![arp_request(asks, ADDRESS), arp_request(asks, [192, 0, 2, 81]), ping(of[0]), other, vec![0; 60]]
    });
    assert!(to_servers.is_empty() && to_clients.len() == 2);
    assert_eq!(to_clients[0], arp_reply(asks, ADDRESS, macs.get()[0]));
    let reply = &to_clients[1];
    assert_eq!((&reply[..6], &reply[6..12]), (&HOST[..], &macs.get()[0][..]));
    assert_eq!((&reply[26..30], &reply[30..34], reply[34]), (&ADDRESS[..], &asks.1[..], 0));
    assert!(checksum(&reply[14..34]) == 0 && checksum(&reply[34..]) == 0);
    assert_eq!(reply[38..], ping(macs.get()[0])[38..]);
    let [_, nowhere] = balanced(&[], |macs| vec![request(macs, 1, SYN)]);
    assert!(nowhere.is_empty(), "without servers");
}
