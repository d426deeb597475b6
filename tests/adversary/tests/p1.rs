//! P1: a device that changes the length of a receive descriptor between two reads of it. No packet may be longer than its
//! buffer.

#![forbid(unsafe_code)]

use adversary::{Lie, Proxy, all_huge_pages, pool};
use mempool::Batch;
use nic::PortConfig;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use vouch::prelude::*;

const RING: u64 = 64;
/// Bytes of data room, and so the longest good length.
const ROOM: usize = 2048;

#[test]
fn p1_a_length_that_changes_while_it_is_read_makes_no_long_packet() {
    let _taken = all_huge_pages();
    let (proxy, pool) = (Proxy::start("liar?wire=sink", Lie::None), pool(1024));
    let config = vouch::vouched(PortConfig { rx_ring: 64, tx_ring: 64, ..PortConfig::default() });
    let mut nic = nic::open(&proxy.address(), &config, &pool).expect("an honest start");
    let (ring, at) = proxy.receive_ring().expect("a receive ring");
    let stop = AtomicBool::new(false);
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(32));
    let (mut packets, mut worst) = (0_u64, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Frames of two descriptors, so that they are not received by the usual path: done, and end of packet.
            let word = |index: u64, len: u64| 1 | (index & 1) << 1 | len << 32;
            while !stop.load(Ordering::Relaxed) {
                for index in 0..RING {
                    ring.write(at + 16 * index + 8, word(index, 100));
                    ring.write(at + 16 * index + 8, word(index, 0xffff));
                    ring.write(at + 16 * index + 8, word(index, 100));
                }
            }
        });
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(5) && worst <= ROOM {
            nic.rx[0].recv(&mut cache, &mut batch);
            for packet in batch.drain() {
                packets += 1;
                worst = worst.max(packet.len());
                if packet.len() > ROOM {
                    // Not to be touched, nor dropped.
                    std::mem::forget(packet);
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    println!("{packets} packets, the longest of {worst} bytes");
    assert!(packets > 0, "the device had its way at least once");
    assert!(worst <= ROOM, "a packet of {worst} bytes in a buffer of {ROOM}");
}
