//! Packets that leave by the port they came by: one is given to the host where it is asked for.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use etherparse::PacketBuilder;
use mempool::{Batch, Pool, PoolConfig};
use router::{Egress, Interface, LiveConfig, LiveFib, LiveForwarder, MacAddress, Neighbour, Refusal, Target};

const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 1, 0], [2, 0, 0, 0, 1, 1]];

/// Routes to 10.N.0.0/16 and 2001:db8:N::/48 by port N, and by both in a group to 10.9.0.0/16 of which port 0 has all.
fn table() -> LiveFib {
    let ports = MACS.map(|mac| Interface { mac, promiscuous: false, mtu: 1500 });
    let mut fib = LiveFib::new(&LiveConfig { next_hops: 8, groups: 1, ..LiveConfig::default() }, &ports).unwrap();
    for port in 0..2 {
        let mac = MacAddress([2, 0, 0, 0, 9, u8::try_from(port).unwrap()]);
        let hop = fib.add_next_hop(Target::Neighbour(Neighbour { port, mac })).unwrap();
        fib.insert_ipv4(format!("10.{port}.0.0/16").parse().unwrap(), hop).unwrap();
        fib.insert_ipv6(format!("2001:db8:{port}::/48").parse().unwrap(), hop).unwrap();
        if port == 0 {
            let group = fib.add_group(&[(hop, 1)]).unwrap();
            let hop = fib.add_next_hop(Target::Group(group)).unwrap();
            fib.insert_ipv4("10.9.0.0/16".parse().unwrap(), hop).unwrap();
        }
    }
    fib
}

/// UDP to 10.N.0.1, or to 2001:db8:N::1, by port 0.
fn udp(net: u8, v6: bool, ttl: u8) -> Vec<u8> {
    let link = PacketBuilder::ethernet2([2, 7, 7, 7, 7, 7], MACS[0]);
    let mut frame = Vec::new();
    if v6 {
        let [mut from, mut to] = [[0; 16]; 2];
        from[..4].copy_from_slice(&[0x20, 1, 0xD, 0xB8]);
        to[..6].copy_from_slice(&[0x20, 1, 0xD, 0xB8, 0, net]);
        (from[15], to[15]) = (9, 1);
        link.ipv6(from, to, ttl).udp(7, 9).write(&mut frame, &[0; 20]).unwrap();
    } else {
        link.ipv4([10, 8, 0, 9], [10, net, 0, 1], ttl).udp(7, 9).write(&mut frame, &[0; 20]).unwrap();
    }
    frame
}

/// Routes a burst that came in by port 0. Returns how many left by each port, and what was refused.
fn route(forwarder: &mut LiveForwarder, pool: &Pool, frames: &[Vec<u8>]) -> Routed {
    route_from(0, forwarder, pool, frames)
}

type Routed = ([usize; 2], Vec<(Refusal, Vec<u8>)>);

fn route_from(port: usize, forwarder: &mut LiveForwarder, pool: &Pool, frames: &[Vec<u8>]) -> Routed {
    let (mut cache, mut egress, mut batch) = (pool.cache(), Egress::new(2, 32), Batch::with_capacity(32));
    frames.iter().for_each(|frame| batch.push(cache.alloc_from(frame).unwrap()).unwrap());
    assert_eq!(forwarder.route(port, &mut batch, &mut egress), frames.len());
    assert!(batch.is_empty());
    let refused = egress.drain_refused().map(|(packet, refusal)| (refusal, packet.data().to_vec())).collect();
    ([0, 1].map(|port| egress.outputs()[port].len()), refused)
}

#[test]
fn the_first_of_a_burst_that_turns_back_is_refused_unchanged() {
    let (pool, fib) = (Pool::new(&PoolConfig { slots: 256, ..PoolConfig::default() }).unwrap(), table());
    let mut forwarder = fib.forwarder();
    let away = udp(1, false, 64);
    for back in [udp(0, false, 64), udp(0, true, 64), udp(9, false, 64)] {
        let burst = [away.clone(), back.clone(), back.clone(), away.clone()];
        assert_eq!(route(&mut forwarder, &pool, &burst), ([2, 2], Vec::new()), "nobody has asked for it");
        forwarder.seek_turned_back();
        assert_eq!(route(&mut forwarder, &pool, &burst), ([1, 2], vec![(Refusal::Probe, back.clone())]));
        assert_eq!(route(&mut forwarder, &pool, &burst), ([2, 2], Vec::new()), "once");
        forwarder.seek_turned_back();
        assert_eq!(route(&mut forwarder, &pool, std::slice::from_ref(&back)), ([0, 0], vec![(Refusal::Probe, back)]));
    }
}

/// Among bursts of others, and whatever comes by another port, which has a look of its own.
#[test]
fn a_port_is_looked_at_until_one_is_found_and_not_for_ever() {
    let (pool, fib) = (Pool::new(&PoolConfig { slots: 256, ..PoolConfig::default() }).unwrap(), table());
    let mut forwarder = fib.forwarder();
    let [away, back] = [1, 0].map(|net| vec![udp(net, false, 64)]);
    let probed = |frames: &Vec<Vec<u8>>| ([0, 0], vec![(Refusal::Probe, frames[0].clone())]);
    let by_port_1 = || {
        let mut frame = udp(1, false, 64);
        frame[..6].copy_from_slice(&MACS[1]);
        vec![frame]
    };
    forwarder.seek_turned_back();
    for _ in 0..10 {
        assert_eq!(route(&mut forwarder, &pool, &away), ([0, 1], Vec::new()));
    }
    assert_eq!(route_from(1, &mut forwarder, &pool, &by_port_1()), probed(&by_port_1()));
    assert_eq!(route(&mut forwarder, &pool, &back), probed(&back));
    for frames in [by_port_1(), by_port_1()] {
        assert_eq!(route_from(1, &mut forwarder, &pool, &frames), ([0, 1], Vec::new()), "once");
    }
    forwarder.seek_turned_back();
    for _ in 0..64 {
        assert_eq!(route(&mut forwarder, &pool, &away), ([0, 1], Vec::new()));
    }
    assert_eq!(route(&mut forwarder, &pool, &back), ([1, 0], Vec::new()));
}

#[test]
fn what_would_not_leave_is_refused_for_its_own_reason() {
    let (pool, fib) = (Pool::new(&PoolConfig { slots: 256, ..PoolConfig::default() }).unwrap(), table());
    let mut forwarder = fib.forwarder();
    let mut spoilt = udp(0, false, 64);
    spoilt[24] ^= 1;
    let mut arp = udp(0, false, 64);
    arp[12..14].copy_from_slice(&[8, 6]);
    for (frame, reason) in [
        (udp(0, false, 1), Refusal::Ttl),
        (udp(0, true, 1), Refusal::Ttl),
        (udp(5, false, 64), Refusal::NoRoute),
        (spoilt, Refusal::Checksum),
        (arp, Refusal::NotIp),
        (vec![0; 60], Refusal::OtherStation),
    ] {
        forwarder.seek_turned_back();
        assert_eq!(route(&mut forwarder, &pool, std::slice::from_ref(&frame)), ([0, 0], vec![(reason, frame)]));
    }
    forwarder.seek_turned_back();
    assert_eq!(route(&mut forwarder, &pool, &[udp(1, false, 64), udp(1, true, 64)]), ([0, 2], Vec::new()));
}
