//! P3: a log that panics inside `send`, at a pool that the device's address space does not take. No slot may be in two
//! places afterwards.

#![forbid(unsafe_code)]

use adversary::{Lie, Proxy, every_slot_once, panic_at, panics, pool};
use mempool::Batch;
use nic::PortConfig;
use std::time::{Duration, Instant};
use vouch::prelude::*;

#[test]
fn p3_unwinding_out_of_send_leaves_no_slot_in_two_places() {
    let (proxy, ours, other) = (Proxy::start("liar?wire=sink", Lie::None), pool(1024), pool(64));
    let config = vouch::vouched(PortConfig { rx_ring: 64, tx_ring: 64, ..PortConfig::default() });
    let mut nic = nic::open(&proxy.address(), &config, &ours).expect("an honest start");
    let (mut cache, mut foreign, mut batch) = (ours.cache(), other.cache(), Batch::with_capacity(8));
    proxy.lie(Lie::RefusesMap);
    cache.alloc_batch(&mut batch, 3, 60);
    foreign.alloc_batch(&mut batch, 1, 60);
    cache.alloc_batch(&mut batch, 3, 60);
    let before = panics();
    let unwound = panic_at("cannot be mapped", || nic.tx[0].send(&mut cache, &mut batch)).is_err();
    println!("send {}, {} events panicked", if unwound { "unwound" } else { "returned" }, panics() - before);
    batch.clear();
    // Whatever is on the ring is sent now, and comes home.
    let begun = Instant::now();
    while nic.tx[0].counters().packets > 0 && !nic.port.transmit_idle() && begun.elapsed() < Duration::from_secs(10) {
        nic.tx[0].send(&mut cache, &mut batch);
    }
    proxy.lie(Lie::None);
    nic.close().expect("an honest end");
    drop((cache, foreign, batch));
    every_slot_once(&ours);
    every_slot_once(&other);
}
