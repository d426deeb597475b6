//! The port of one's own: what is sent comes back, in order, whole, and no buffer is lost.

#[path = "../src/bin/own_port.rs"]
#[expect(dead_code, reason = "the test has a main function of its own")]
mod own_port;

use ethdev::{Opened, Port as _, RxQueue as _, TxQueue as _};
use mempool::{Batch, Pool, PoolConfig};
use std::collections::VecDeque;

#[test]
fn what_is_sent_comes_back_in_order() {
    let pool = Pool::new(&PoolConfig { slots: 512, ..PoolConfig::default() }).unwrap();
    let (mut cache, mut out, mut back) = (pool.cache(), Batch::with_capacity(48), Batch::with_capacity(20));
    let Opened { port, mut rx, mut tx } = own_port::open(64);
    let (mut rx, mut tx) = (rx.remove(0), tx.remove(0));
    let (mut number, mut expected, mut sent) = (0_u32, VecDeque::new(), 0);
    for round in 0..1000 {
        for _ in 0..round % 40 {
            let Some(packet) = cache.alloc_from(&number.to_be_bytes()) else { break };
            if out.push(packet).is_err() {
                break;
            }
            expected.push_back(number);
            number += 1;
        }
        sent += tx.send(&mut cache, &mut out) as u64;
        assert!(tx.in_flight() <= 64 && (out.is_empty() || tx.in_flight() == 64));
        assert_eq!(rx.is_ready(), tx.in_flight() > 0);
        for packet in rx.recv(&mut cache, &mut back) {
            let next = expected.pop_front().unwrap();
            assert_eq!(packet.data(), next.to_be_bytes());
        }
        cache.free_batch(&mut back);
    }
    assert!(sent > 10_000 && tx.counters().packets == sent && tx.counters().bytes == 4 * sent);
    assert_eq!(rx.counters().packets, sent - tx.in_flight() as u64);
    assert!(port.link().unwrap().up && port.name() == "joined");
    Opened { port, rx: vec![rx], tx: vec![tx] }.close().unwrap();
    drop((cache, out, back));
    assert_eq!(pool.away(), 0);
}

#[test]
fn a_frame_in_several_buffers_is_dropped_and_counted() {
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(8));
    let Opened { port: _port, mut rx, mut tx } = own_port::open(64);
    cache.alloc_batch(&mut batch, 4, 100);
    batch[1].set_continues(true);
    assert_eq!(tx[0].send(&mut cache, &mut batch), 4);
    assert_eq!((tx[0].counters().packets, tx[0].counters().too_many_segments), (2, 1));
    assert_eq!(rx[0].recv(&mut cache, &mut batch).len(), 2);
}
