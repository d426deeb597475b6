//! Routes replaced while forwarders work: every burst goes by the old ones or by the new ones, and the memory of the old
//! ones comes back.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use mempool::{Batch, Checksum, Pool, PoolCache, PoolConfig};
use router::{Egress, Error, Fib, Forwarder, Interface, Miss, Routes};
use std::sync::atomic::{AtomicBool, Ordering};

const BURST: usize = 32;

/// Routes to `port`, by which a next hop ends in `port` as well.
fn routes(port: usize) -> Routes {
    let lines = ["10.0.0.0/8", "10.1.0.0/16", "2001:db8::/32"];
    let lines = lines.map(|prefix| format!("{prefix} via 02:00:00:00:00:0{port} port {port}\n"));
    Routes::parse(lines.concat().as_bytes(), 2).unwrap()
}

fn interfaces() -> [Interface; 2] {
    [10, 11].map(|last| Interface { mac: [2, 0, 0, 0, 0, last], promiscuous: false, mtu: 1500 })
}

/// A burst of frames of both families to the routes.
fn fill(cache: &mut PoolCache, batch: &mut Batch) {
    let link = [2, 0, 0, 0, 0, 10, 2, 0, 0, 0, 9, 9];
    // 192.0.2.1 to 10.1.0.1 with its checksum.
    let v4 = [0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0xAE, 0xD6, 192, 0, 2, 1, 10, 1, 0, 1];
    let mut v6 = [0; 40];
    (v6[0], v6[7]) = (0x60, 64);
    for at in [8, 24] {
        v6[at..at + 4].copy_from_slice(&[0x20, 1, 0xD, 0xB8]);
    }
    while batch.len() < BURST {
        let frame = if batch.len().is_multiple_of(3) {
            [&link[..], &[0x86, 0xDD], &v6].concat()
        } else {
            [&link[..], &[8, 0], &v4].concat()
        };
        let mut packet = cache.alloc().unwrap();
        packet.append(frame.len()).unwrap().copy_from_slice(&frame);
        batch.push(packet).unwrap();
    }
}

/// Routes a burst and tells the one port by which all of it went.
fn port_of_burst(forwarder: &mut Forwarder, cache: &mut PoolCache, batch: &mut Batch, egress: &mut Egress) -> usize {
    fill(cache, batch);
    assert_eq!(forwarder.route(0, batch, egress), BURST);
    assert_eq!(egress.drain_refused().count(), 0);
    let outputs = egress.outputs();
    let port = usize::from(!outputs[1].is_empty());
    assert_eq!(outputs[port].len(), BURST, "a burst went both ways");
    assert!(outputs[port].iter().all(|packet| usize::from(packet.data()[5]) == port), "port and next hop differ");
    cache.free_batch(&mut outputs[port]);
    port
}

#[test]
fn no_burst_sees_two_tables() {
    let pool = Pool::new(&PoolConfig { slots: 1024, ..PoolConfig::default() }).unwrap();
    let mut fib = Fib::new(&routes(0), &interfaces()).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let mut forwarder = fib.forwarder(Miss::Refuse);
            let (pool, done) = (&pool, &done);
            scope.spawn(move || {
                let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(BURST));
                let mut egress = Egress::new(2, BURST);
                while !done.load(Ordering::Relaxed) {
                    port_of_burst(&mut forwarder, &mut cache, &mut batch, &mut egress);
                }
            });
        }
        for turn in 0..if cfg!(miri) { 2 } else { 50 } {
            fib.replace(&routes((turn + 1) % 2)).unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    fib.reclaim();
    assert_eq!(fib.retired(), 0, "nobody reads the old tables any more");
}

#[test]
fn a_forwarder_follows_with_its_next_burst_and_lets_go() {
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    let (mut cache, mut batch, mut egress) = (pool.cache(), Batch::with_capacity(BURST), Egress::new(2, BURST));
    let mut fib = Fib::new(&routes(0), &interfaces()).unwrap();
    let mut forwarder = fib.forwarder(Miss::Refuse);
    assert_eq!(port_of_burst(&mut forwarder, &mut cache, &mut batch, &mut egress), 0);
    fib.replace(&routes(1)).unwrap();
    assert_eq!(fib.retired(), 1, "the forwarder has not moved yet");
    assert_eq!(port_of_burst(&mut forwarder, &mut cache, &mut batch, &mut egress), 1);
    fib.reclaim();
    assert_eq!((fib.retired(), fib.route_counts()), (0, (2, 1)));
}

#[test]
fn routes_for_more_ports_are_refused_and_nothing_changes() {
    let mut fib = Fib::new(&routes(0), &interfaces()).unwrap();
    let more = Routes::parse(b"10.0.0.0/8 via 02:00:00:00:00:02 port 2", 3).unwrap();
    assert_eq!(fib.replace(&more).unwrap_err(), Error::PortCount { routes: 3, interfaces: 2 });
    assert_eq!((fib.retired(), fib.route_counts()), (0, (2, 1)));
}

#[test]
fn a_full_egress_takes_nothing() {
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(BURST));
    let fib = Fib::new(&routes(0), &interfaces()).unwrap();
    let mut forwarder = fib.forwarder(Miss::Refuse);
    fill(&mut cache, &mut batch);
    let mut egress = Egress::new(2, BURST - 1);
    assert_eq!((forwarder.route(0, &mut batch, &mut egress), batch.len()), (0, BURST));
    let mut egress = Egress::new(2, BURST);
    assert_eq!((forwarder.route(7, &mut batch, &mut egress), batch.len()), (0, BURST), "there is no port 7");
    assert_eq!((forwarder.route(0, &mut batch, &mut egress), batch.len()), (BURST, 0));
}

#[test]
fn what_is_known_of_a_checksum_is_known_behind_the_router() {
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(BURST));
    let fib = Fib::new(&routes(1), &interfaces()).unwrap();
    let (mut forwarder, mut egress) = (fib.forwarder(Miss::Refuse), Egress::new(2, BURST));
    fill(&mut cache, &mut batch);
    let partial = Checksum::Partial { start: 14, offset: 16 };
    for packet in batch.iter_mut() {
        assert!(packet.set_checksum(partial));
        // Padding, which does not go on.
        packet.append(60 - packet.len().min(60)).unwrap().fill(0);
    }
    assert_eq!(forwarder.route(0, &mut batch, &mut egress), BURST);
    assert!(egress.outputs()[1].iter().all(|packet| packet.checksum() == partial));
    assert_eq!(egress.outputs()[1].len(), BURST);
}
