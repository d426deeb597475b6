//! The holes of ixy.rs that concern a driver and its device, each shown closed here and named after what happens there.
//! Those that concern memory alone are in the pool's own tests.

use ethdev::{Port as _, RxQueue as _, TxQueue as _};
use ixgbe::{Config, Error};
use mempool::{Batch, Packet};
use softnic::{Fault, StrictNic};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tests::{Rig, frame, pool};

fn config() -> Config {
    let mut config = Config::default();
    (config.port.rx_ring, config.port.tx_ring) = (64, 64);
    config
}

/// There, the device's length becomes a slice past the buffer.
#[test]
fn ixyrs_receive_length_65535_becomes_a_slice_past_the_buffer() {
    let pool = pool(200, 2048);
    let mut rig = Rig::open(StrictNic::builder(), &config(), &pool).expect("a healthy device opens");
    rig.nic.inject_fault(Fault::RxLengthOver { length: 65_535 });
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(32));
    for number in 0..8 {
        rig.nic.inject(&frame(number, 60));
        rig.nic.step();
        assert_eq!(rig.rx[0].recv(&mut cache, &mut batch).len(), 0);
    }
    assert_eq!(rig.rx[0].counters().bad_length, 8);
    rig.nic.clear_faults();
    rig.nic.inject(&frame(8, 60));
    rig.nic.step();
    assert_eq!(rig.rx[0].recv(&mut cache, &mut batch).len(), 1, "the queue works on");
    assert_eq!(batch[0].data(), frame(8, 60));
}

/// There, the second pool's packets make the queue panic: any router with three ports.
#[test]
fn ixyrs_one_transmit_queue_fed_from_two_pools() {
    let pools = [pool(200, 2048), pool(70, 2048), pool(40, 2048)];
    let mut rig = Rig::open(StrictNic::builder(), &config(), &pools[0]).expect("a healthy device opens");
    let mut caches = pools.each_ref().map(|pool| pool.cache());
    let mut batch = Batch::with_capacity(64);
    let (mut expected, mut sent) = (Vec::new(), Vec::new());
    for number in 0..600 {
        // Runs of three, two and one from each, so that bursts begin and end in every pool.
        let from = [0, 0, 0, 1, 1, 2][number as usize % 6];
        if let Some(mut packet) = caches[from].alloc() {
            let bytes = frame(number, 60);
            packet.append(60).expect("room").copy_from_slice(&bytes);
            expected.push(bytes);
            batch.push(packet).expect("the batch is sent before it is full");
        }
        if number % 13 == 0 || batch.spare() == 0 {
            rig.tx[0].send(&mut caches[0], &mut batch);
            rig.nic.step_until_idle(100);
            sent.extend(rig.nic.transmitted());
        }
    }
    while !batch.is_empty() {
        rig.tx[0].send(&mut caches[0], &mut batch);
        rig.nic.step_until_idle(100);
        sent.extend(rig.nic.transmitted());
    }
    assert!(expected.len() > 500, "buffers of all pools came back: {} were to be had", expected.len());
    assert!(sent == expected, "all frames, in order");
    drop((rig, caches, batch));
    assert_eq!(pools.each_ref().map(mempool::Pool::away), [0; 3], "each slot went home to its own pool");
}

/// There, nothing happens at the end: the NIC goes on writing into memory that is somebody else's by then.
#[test]
fn ixyrs_no_drop_no_reset() {
    let pool = pool(200, 2048);
    let memory = Arc::downgrade(pool.memory());
    let rig = Rig::open(StrictNic::builder(), &config(), &pool).expect("a healthy device opens");
    let nic = rig.nic.clone();
    for number in 0..20 {
        nic.inject(&frame(number, 60));
    }
    nic.step();
    drop(rig);
    assert_eq!(pool.away(), 0);
    nic.inject(&frame(99, 60));
    assert!(nic.step().is_idle(), "the device takes nothing any more");
    drop((nic, pool));
    assert_eq!(memory.strong_count(), 0, "mappings and memory are gone");
}

/// There, the device is one value that all queues borrow.
#[test]
fn ixyrs_cannot_split_across_threads() {
    let mut config = config();
    (config.port.rx_queues, config.port.tx_queues) = (4, 4);
    let pool = pool(1000, 2048);
    let Rig { nic, mut port, rx, tx } =
        Rig::open(StrictNic::builder(), &config, &pool).expect("a healthy device opens");
    for number in 0..64 {
        nic.inject(&frame(number, 60));
    }
    nic.step_until_idle(100);
    std::thread::scope(|scope| {
        for (mut rx, mut tx) in rx.into_iter().zip(tx) {
            let pool = &pool;
            scope.spawn(move || {
                let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(64));
                rx.recv(&mut cache, &mut batch);
                tx.send(&mut cache, &mut batch);
                assert!(batch.is_empty());
            });
        }
        // Meanwhile the port is controlled from here.
        assert_eq!(port.statistics().expect("the device answers").rx_packets, 64);
        assert!(port.link().expect("the device answers").up);
    });
    nic.step_until_idle(100);
    assert_eq!(nic.transmitted().len(), 64, "queues that were dropped on their threads have sent their frames");
    port.close().expect("a healthy device closes");
    assert_eq!(pool.away(), 0);
}

/// There, a bit that never comes is waited for for ever.
#[test]
fn ixyrs_register_waits_without_timeout() {
    let pool = pool(200, 2048);
    let start = Instant::now();
    let error = Rig::open(StrictNic::builder().fault(Fault::StuckReset), &config(), &pool).expect_err("never ready");
    let Error::Timeout { register, waited, waiting_for, .. } = &error else { panic!("{error}") };
    assert_eq!(*register, "CTRL");
    assert!(!waiting_for.is_empty() && *waited > Duration::ZERO);
    let message = error.to_string();
    assert!(message.contains("soft:strict") && message.contains("CTRL") && message.contains("reset the device"));
    // A bound for tests that hang, not for speed: the driver's own limit is far below.
    assert!(start.elapsed() < Duration::from_secs(60));
}

/// There, the tail is written without a release fence: another core's view of the descriptors may lag behind it. Here
/// the device runs on another thread and sees whole descriptors only (under Miri, any missing edge is a data race).
#[test]
fn ixyrs_no_release_fence_before_the_doorbell() {
    const FRAMES: u32 = if cfg!(miri) { 64 } else { 5000 };
    let pool = pool(300, 2048);
    let Rig { nic, port, rx: _, mut tx } =
        Rig::open(StrictNic::builder(), &config(), &pool).expect("a healthy device opens");
    let sent = std::thread::scope(|scope| {
        let device = scope.spawn(|| {
            let mut sent = Vec::new();
            let mut idle = 0;
            while sent.len() < FRAMES as usize && idle < 50_000_000 {
                let stepped = nic.step();
                idle = if stepped.is_idle() { idle + 1 } else { 0 };
                sent.extend(nic.transmitted());
                std::thread::yield_now();
            }
            sent
        });
        let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(32));
        let mut next = 0;
        while (next < FRAMES || !batch.is_empty()) && !device.is_finished() {
            while next < FRAMES
                && batch.spare() > 0
                && let Some(mut packet) = cache.alloc()
            {
                packet.append(60).expect("room").copy_from_slice(&frame(next, 60));
                batch.push(packet).expect("there is room");
                next += 1;
            }
            tx[0].send(&mut cache, &mut batch);
            std::thread::yield_now();
        }
        device.join().expect("the device found nothing wrong")
    });
    assert!(sent.into_iter().eq((0..FRAMES).map(|number| frame(number, 60))), "whole frames, in order");
    port.close().expect("a healthy device closes");
}

/// There, a packet is a reference-counted view that any ring and any thread may share with the hardware.
#[test]
fn ixyrs_packet_is_shared_with_the_hardware() {
    fn has_one_owner<T: Send>(_: &T) -> bool {
        !std::mem::needs_drop::<*const T>() && std::mem::needs_drop::<T>()
    }
    let pool = pool(200, 2048);
    let mut rig = Rig::open(StrictNic::builder(), &config(), &pool).expect("a healthy device opens");
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(4));
    let mut packet: Packet = cache.alloc().expect("a packet");
    assert!(has_one_owner(&packet));
    packet.append(60).expect("room").copy_from_slice(&frame(7, 60));
    let away = pool.away();
    batch.push(packet).expect("room");
    assert_eq!(rig.tx[0].send(&mut cache, &mut batch), 1);
    assert!(batch.is_empty(), "the ring owns it now");
    assert_eq!(pool.away(), away, "and it is nowhere else");
    rig.nic.step();
    assert_eq!(rig.nic.transmitted(), [frame(7, 60)]);
}
