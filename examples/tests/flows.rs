//! The flow counter against counts of what was injected.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;
#[path = "../src/bin/flows.rs"]
#[expect(dead_code, reason = "the test has a main function of its own")]
mod flows;

use common::{SYN, TCP, UDP, frame, run};
use ethdev::{PortConfig, in_process};
use flows::{Counter, Counts, WORKERS, largest};
use mempool::{Batch, Pool, PoolConfig};
use std::collections::HashMap;
use std::net::SocketAddrV4;

#[test]
fn every_frame_is_counted_to_its_flow_and_the_largest_come_first() {
    let pool = Pool::new(&PoolConfig { slots: 8192, data_room: 512, ..PoolConfig::default() }).unwrap();
    let config = PortConfig { rx_queues: WORKERS, ..PortConfig::default() };
    let (mut opened, mut wire) = in_process::open("flows", &config, &pool).unwrap();
    let mut expected: HashMap<String, (u64, u64)> = HashMap::new();
    for n in 0..20_u8 {
        let (from, to) = (SocketAddrV4::new([10, 0, 0, n].into(), 5000), SocketAddrV4::new([192, 0, 2, 1].into(), 53));
        let (protocol, name) = if n.is_multiple_of(2) { (UDP, "udp") } else { (TCP, "tcp") };
        for size in 0..=n {
            // Some are in two buffers.
            let frame = frame([[2; 6], [4; 6]], protocol, from, to, (64, SYN), &vec![size; usize::from(size) * 40]);
            assert!(wire.inject(&frame));
            let counted = expected.entry(format!("{name} {from} -> {to}")).or_default();
            (counted.0, counted.1) = (counted.0 + 1, counted.1 + frame.len() as u64);
        }
    }
    assert!(wire.inject(&[0; 60]));
    expected.insert("all else".to_owned(), (1, 60));
    let worker = |rx| Counter { rx, cache: pool.cache(), batch: Batch::with_capacity(32), counts: Counts::new() };
    let workers: Vec<Counts> = opened.rx.drain(..).map(|rx| run(worker(rx)).counts).collect();
    assert!(workers.iter().all(|counts| counts.len() > 1), "both work");
    let found = largest(workers);
    assert!(found.is_sorted_by(|(_, a), (_, b)| a.1 >= b.1));
    let found =
        found.into_iter().map(|(flow, counts)| (flow.map_or("all else".to_owned(), |flow| flow.to_string()), counts));
    assert_eq!(found.collect::<HashMap<_, _>>(), expected);
}
