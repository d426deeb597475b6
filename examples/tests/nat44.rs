//! The NAT against a table of who is behind which port, checksums by the book, and the queues that RSS leads to.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;
#[path = "../src/bin/nat44.rs"]
#[expect(dead_code, reason = "the test has a main function of its own")]
mod nat44;

use common::{ACK, SYN, TCP, UDP, arp_reply, arp_request, collected, ends, frame, is_right, run};
use ethdev::in_process::{self, InProcessRx, InProcessTx, Wire};
use ethdev::{MacAddress, Port as _, PortConfig, RxQueue, TxQueue as _};
use lcore::{Steer as _, Stop, Switch, Team};
use mempool::{Batch, Pool, PoolCache, PoolConfig};
use nat44::{Nat, WORKERS, config};
use std::collections::HashMap;
use std::net::SocketAddrV4;
use std::time::{Duration, Instant};

const HOST: [u8; 6] = [2, 0, 0, 0, 0, 7];
const GATEWAY: [u8; 6] = [2, 0, 0, 0, 0, 8];
const ADDRESSES: [[u8; 4]; 2] = [[10, 0, 0, 1], [192, 0, 2, 1]];

struct Rig {
    nats: Vec<Switch<InProcessRx, InProcessTx, Nat>>,
    inside: Wire,
    outside: Wire,
    macs: [[u8; 6]; 2],
    _ports: Box<dyn std::any::Any>,
}

fn rig() -> Rig {
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    let (inside, inside_wire) = in_process::open("inside", &config(), &pool).unwrap();
    let (outside, outside_wire) = in_process::open("outside", &config(), &pool).unwrap();
    let mut ports = [inside, outside];
    let macs = ports.each_ref().map(|port| port.port.mac());
    let nat = |worker| Nat::new(worker, macs, ADDRESSES.map(Into::into), MacAddress(GATEWAY));
    let nats = Switch::of(&mut ports, &pool, nat);
    assert_eq!(nats.len(), usize::from(WORKERS));
    let macs = macs.map(|mac| mac.0);
    Rig { nats, inside: inside_wire, outside: outside_wire, macs, _ports: Box::new(ports) }
}

impl Rig {
    fn run(&mut self) {
        self.nats = self.nats.drain(..).map(run).collect();
    }

    fn inside_frame(&self, protocol: u8, from: SocketAddrV4, to: SocketAddrV4, flags: u8, data: &[u8]) -> Vec<u8> {
        frame([self.macs[0], HOST], protocol, from, to, (64, flags), data)
    }

    fn outside_frame(&self, protocol: u8, from: SocketAddrV4, to: SocketAddrV4, flags: u8, data: &[u8]) -> Vec<u8> {
        frame([self.macs[1], GATEWAY], protocol, from, to, (64, flags), data)
    }

    /// Sends a frame in by one port. Returns what leaves by the other, with the queue.
    fn out(&mut self, frame: &[u8]) -> Option<(usize, Vec<u8>)> {
        assert!(self.inside.inject(frame));
        self.run();
        assert!(self.inside.collect().is_none());
        let frames: Vec<_> = (0..2).filter_map(|queue| Some((queue, self.outside.collect_from(queue)?))).collect();
        assert!(frames.len() < 2);
        frames.into_iter().next()
    }

    fn back(&mut self, frame: &[u8]) -> Option<(usize, Vec<u8>)> {
        assert!(self.outside.inject(frame));
        self.run();
        assert!(self.outside.collect().is_none());
        (0..2).find_map(|queue| Some((queue, self.inside.collect_from(queue)?)))
    }
}

fn end(ip: [u8; 4], port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(ip.into(), port)
}

#[test]
fn flows_leave_by_ports_of_their_own_and_their_return_comes_to_the_same_worker() {
    let mut rig = rig();
    let mut behind = HashMap::new();
    let mut workers = [0; 2];
    for n in 0..120_u8 {
        let (protocol, data) = (if n.is_multiple_of(3) { TCP } else { UDP }, vec![n; usize::from(n)]);
        let (inside, remote) = (end([10, 0, 1, n / 4], 5000 + u16::from(n % 4)), end([203, 0, 113, n % 5], 80));
        let sent = rig.inside_frame(protocol, inside, remote, SYN, &data);
        let (queue, left) = rig.out(&sent).unwrap();
        assert!(is_right(&left));
        let (outside, to) = ends(&left);
        assert_eq!((outside.ip().octets(), to, left[22]), (ADDRESSES[1], remote, 63));
        assert_eq!(left, frame([GATEWAY, rig.macs[1]], protocol, outside, remote, (63, SYN), &data));
        assert!(behind.insert((protocol, outside, remote), inside).is_none(), "a port for each flow");
        workers[queue] += 1;

        let reply = rig.outside_frame(protocol, remote, outside, SYN | ACK, &data);
        let (back_queue, came) = rig.back(&reply).unwrap();
        assert_eq!(back_queue, queue, "the same worker");
        assert_eq!(came, frame([HOST, rig.macs[0]], protocol, remote, inside, (63, SYN | ACK), &data));

        let more = rig.inside_frame(protocol, inside, remote, ACK, b"more");
        let (again, left) = rig.out(&more).unwrap();
        assert_eq!((again, ends(&left)), (queue, (outside, remote)), "the same port");
    }
    assert!(workers.iter().all(|flows| *flows > 30), "{workers:?}");
}

/// Software 82599s choose the queues by a hash of their own; a flow whose return comes to another worker has none.
#[test]
fn the_return_of_each_flow_comes_to_its_worker_on_82599s_too() {
    let pool = Pool::new(&PoolConfig { slots: 1 << 14, ..PoolConfig::default() }).unwrap();
    let open = |address: &str, config: &PortConfig| nic::open(&address.parse().unwrap(), config, &pool).unwrap();
    let mut ports = [open("soft:nat-in?wire=peer:client", &config()), open("soft:nat-out?wire=peer:server", &config())];
    let mut client = open("soft:client?wire=peer:nat-in", &PortConfig::default());
    let mut server = open("soft:server?wire=peer:nat-out", &PortConfig::default());
    let (macs, gateway) = (ports.each_ref().map(|port| port.port.mac()), server.port.mac());
    let nats = Switch::of(&mut ports, &pool, |worker| Nat::new(worker, macs, ADDRESSES.map(Into::into), gateway));
    let stop = Stop::new().unwrap();
    let team = Team::run(nats, &stop).unwrap();
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(32));
    for n in 0..64_u8 {
        let (inside, remote) = (end([10, 0, 2, n], 5000), end([203, 0, 113, n / 4], 53));
        let sent = frame([macs[0].0, client.port.mac().0], UDP, inside, remote, (64, 0), &[n; 20]);
        batch.push(cache.alloc_from(&sent).unwrap()).unwrap();
        while client.tx[0].send(&mut cache, &mut batch) == 0 {}
        let seen = receive(&mut server.rx[0], &mut cache);
        let (outside, to) = ends(&seen);
        assert!(is_right(&seen) && to == remote && outside.ip().octets() == ADDRESSES[1]);
        let reply = frame([macs[1].0, gateway.0], UDP, remote, outside, (64, 0), &[n; 30]);
        batch.push(cache.alloc_from(&reply).unwrap()).unwrap();
        while server.tx[0].send(&mut cache, &mut batch) == 0 {}
        let came = receive(&mut client.rx[0], &mut cache);
        assert_eq!(came, frame([client.port.mac().0, macs[0].0], UDP, remote, inside, (63, 0), &[n; 30]));
    }
    stop.request();
    assert!(team.join().unwrap().iter().all(|nat| nat.dropped() == 0));
}

/// The next frame, which is to come within a minute.
fn receive(rx: &mut impl RxQueue, cache: &mut PoolCache) -> Vec<u8> {
    let (begun, mut batch) = (Instant::now(), Batch::with_capacity(1));
    while rx.recv(cache, &mut batch).is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing comes");
        std::thread::yield_now();
    }
    batch[0].data().to_vec()
}

#[test]
fn what_has_no_business_is_dropped() {
    let mut rig = rig();
    let (inside, remote, ours) = (end([10, 0, 0, 9], 4000), end([203, 0, 113, 1], 443), end(ADDRESSES[1], 1024));
    let no_syn = rig.inside_frame(TCP, inside, remote, ACK, b"");
    assert_eq!(rig.out(&no_syn), None, "a connection that is not known");
    let unknown = rig.outside_frame(UDP, remote, ours, 0, b"");
    assert_eq!(rig.back(&unknown), None, "nobody asked");
    let mut fragment = rig.inside_frame(UDP, inside, remote, 0, b"data");
    fragment[20] = 0x20;
    assert_eq!(rig.out(&fragment), None, "a fragment");
    let old = frame([rig.macs[0], HOST], UDP, inside, remote, (1, 0), b"");
    assert_eq!(rig.out(&old), None, "its last hop");
    // RFC 1812, 5.3.4: a DHCP discovery, and mDNS.
    for (mac, ip) in [([0xff; 6], [255; 4]), ([1, 0, 0x5e, 0, 0, 251], [224, 0, 0, 251])] {
        let to_all = frame([mac, HOST], UDP, inside, end(ip, 67), (64, 0), b"data");
        assert_eq!(rig.out(&to_all), None, "it is for all of the inside");
    }
    let whole = rig.inside_frame(UDP, inside, remote, 0, b"data");
    for len in 6..whole.len() {
        assert_eq!(rig.out(&whole[..len]), None, "cut off at {len}");
    }
    let (_, left) = rig.out(&whole).unwrap();
    for other in [end([203, 0, 113, 2], 443), end([203, 0, 113, 1], 444)] {
        let stranger = rig.outside_frame(UDP, other, ends(&left).0, 0, b"");
        assert_eq!(rig.back(&stranger), None, "of another end than the flow's");
    }
    let mut damaged = whole.clone();
    damaged[45] ^= 1;
    let (_, left) = rig.out(&damaged).unwrap();
    assert!(!is_right(&left), "what is wrong stays wrong");
}

#[test]
fn it_answers_arp_on_either_side_for_its_address_there() {
    let mut rig = rig();
    let asks = (HOST, [10, 0, 0, 9]);
    for address in [ADDRESSES[0], ADDRESSES[1]] {
        assert!(rig.inside.inject(&arp_request(asks, address)) && rig.outside.inject(&arp_request(asks, address)));
        rig.run();
        let (inside, outside) = (collected(&mut rig.inside), collected(&mut rig.outside));
        let reply = |side: usize| [arp_reply(asks, ADDRESSES[side], rig.macs[side])];
        if address == ADDRESSES[0] {
            assert!(inside == reply(0) && outside.is_empty());
        } else {
            assert!(outside == reply(1) && inside.is_empty());
        }
    }
}

#[test]
fn idle_bindings_end_after_five_minutes_and_used_ones_do_not() {
    let mut rig = rig();
    let remote = end([203, 0, 113, 1], 53);
    let asks = [1, 2].map(|n| rig.inside_frame(UDP, end([10, 0, 0, n], 4000), remote, 0, b"q"));
    let outside = asks.clone().map(|frame| ends(&rig.out(&frame).unwrap().1).0);
    let minutes = |rig: &mut Rig, minutes: u64| {
        for nat in &mut rig.nats {
            nat.steer.begun -= Duration::from_secs(60 * minutes);
            nat.steer.publish();
        }
    };
    minutes(&mut rig, 4);
    rig.out(&asks[0]).unwrap();
    minutes(&mut rig, 1);
    let replies = outside.map(|own| rig.outside_frame(UDP, remote, own, 0, b"a"));
    assert!(rig.back(&replies[0]).is_some(), "used a minute ago");
    assert_eq!(rig.back(&replies[1]), None, "idle for five");
}
