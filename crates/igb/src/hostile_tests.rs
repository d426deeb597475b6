//! A device that does what it should not, at any moment: packets keep to their slots, every slot is in one place, and a call
//! does a bounded amount of work.

use crate::fake::Fake;
use crate::regs::{CTRL, RCTL, RDBAL, RDT, RXDCTL, TDT};
use crate::{Config, Opened};
use ethdev::{Port as _, PortConfig, RxQueue as _, TxQueue as _};
use mempool::{Batch, Packet, Pool, PoolConfig};
use std::sync::atomic::{AtomicBool, Ordering};

const DD: u64 = 1;
const EOP: u64 = 2;
const RXE: u64 = 1 << 31;
const TX_DD: u64 = 1 << 32;
/// RCTL.RXEN and RXDCTL.ENABLE.
const RXEN: u32 = 1 << 1;
const ENABLE: u32 = 1 << 25;

fn pool(slots: usize) -> Pool {
    Pool::new(&PoolConfig { slots, ..PoolConfig::default() }).unwrap()
}

fn open(pool: &Pool) -> (Fake, Opened<Fake>) {
    let fake = Fake::new(0x10C9);
    let port = PortConfig { rx_ring: 64, tx_ring: 64, mtu: 9000, ..PortConfig::default() };
    let opened = crate::open(fake.clone(), &Config::from(port), pool).unwrap();
    (fake, opened)
}

/// Closes the port, and sees every slot home.
fn close(opened: Opened<Fake>, pools: &[&Pool]) {
    opened.close().unwrap();
    assert!(pools.iter().all(|pool| pool.away() == 0), "every slot is home");
}

fn fill(batch: &mut Batch, pool: &Pool, count: usize) {
    for _ in 0..count {
        let mut packet = pool.alloc().unwrap();
        packet.append(60).unwrap().fill(0xEE);
        batch.push(packet).unwrap();
    }
}

/// What an earlier process left running reaches no memory that is mapped now, and rings are told only to a reset device.
#[test]
fn memory_is_given_after_a_reset_and_taken_before_it_is_freed() {
    let pool = pool(512);
    let (fake, opened) = open(&pool);
    let (on, since) = fake.since_bus_master();
    assert!(on);
    let written = |writes: &[(u32, u32)], register: u32| writes.iter().any(|write| write.0 == register);
    assert!(written(&since, RDBAL.at(0).offset()) && written(&since, RXDCTL.at(0).offset()));
    assert!(!written(&since, CTRL.offset()), "the reset came before");
    assert!(fake.written(RCTL)[..3].iter().all(|value| value & 2 == 0) && fake.get(RCTL) & 2 != 0);
    assert_eq!((fake.get(RDT.at(0)), fake.get(TDT.at(0))), (63, 0));
    let Opened { port, rx, tx } = opened;
    let ring = fake.rx();
    drop((rx, tx));
    assert_eq!(pool.away(), 64, "they wait for the device");
    ring.report(0, DD | EOP | 60 << 32);
    port.close().unwrap();
    assert_eq!((fake.since_bus_master(), pool.away()), ((false, Vec::new()), 0));
}

/// RXDCTL of two queues as 8.10.10 of the 82576's datasheet has it, where ENABLE follows RCTL.RXEN, or as 4.5.9 has it.
fn two_queues(follows: bool) -> Fake {
    let fake = Fake::new(0x10C9);
    for control in [0, 1].map(|queue| RXDCTL.at(queue)).into_iter().filter(|_| follows) {
        fake.on_read(control, move |storage| {
            let value = |at: u32| storage.get(&at).copied().unwrap_or(0);
            if value(RCTL.offset()) & RXEN == 0 { value(control.offset()) & !ENABLE } else { value(control.offset()) }
        });
    }
    fake
}

/// Both ways a queue starts, and has no descriptor before it is known to be enabled, nor before all have their rings.
#[test]
fn queues_start_whether_or_not_their_enable_waits_for_the_receiver() {
    for follows in [false, true] {
        let pool = pool(512);
        let fake = two_queues(follows);
        let port = PortConfig { rx_ring: 64, rx_queues: 2, ..PortConfig::default() };
        let opened = crate::open(fake.clone(), &Config::from(port), &pool).unwrap();
        let (_, writes) = fake.since_bus_master();
        let at = |register: u32, is: fn(u32) -> bool| {
            let found = writes.iter().position(|write| write.0 == register && is(write.1));
            found.unwrap_or_else(|| panic!("{register:#x}: {writes:x?}"))
        };
        let receiving = at(RCTL.offset(), |value| value & RXEN != 0);
        for queue in [0, 1] {
            let control = RXDCTL.at(queue).offset();
            let (off, on) = (at(control, |value| value & ENABLE == 0), at(control, |value| value & ENABLE != 0));
            let place = at(RDBAL.at(queue).offset(), |_| true);
            assert!(off < place && place < on && on < receiving, "off while it gets its ring");
            assert!(at(RDT.at(queue).offset(), |value| value != 0) > receiving);
            assert_eq!(fake.get(RDT.at(queue)), 63);
        }
        close(opened, &[&pool]);
    }
}

#[test]
fn a_queue_that_does_not_start_is_told_and_gives_its_buffers_back() {
    let pool = pool(512);
    let fake = two_queues(true);
    fake.on_read(RXDCTL.at(1), |_| 0);
    let port = PortConfig { rx_ring: 64, rx_queues: 2, ..PortConfig::default() };
    let error = crate::open(fake.clone(), &Config::from(port), &pool).unwrap_err();
    assert!(error.to_string().contains("the receive queue to start"), "{error}");
    assert_eq!((fake.get(RDT.at(1)), pool.away()), (0, 0));
}

#[test]
fn long_frames_are_runs_of_packets() {
    let pool = pool(512);
    let (fake, mut opened) = open(&pool);
    let (ring, mut batch) = (fake.rx(), Batch::with_capacity(8));
    ring.report(0, DD | 2048 << 32);
    ring.report(1, DD | 2048 << 32);
    assert_eq!(opened.rx[0].recv(&mut pool.cache(), &mut batch).len(), 0, "its end is on its way");
    ring.report(2, DD | EOP | 100 << 32);
    ring.report(3, DD | EOP | 60 << 32);
    opened.rx[0].recv(&mut pool.cache(), &mut batch);
    let seen: Vec<_> = batch.iter().map(|packet| (packet.len(), packet.continues())).collect();
    assert_eq!(seen, [(2048, true), (2048, true), (100, false), (60, false)]);
    assert_eq!(opened.rx[0].counters().packets, 2);
    batch.clear();
    close(opened, &[&pool]);
}

/// A device that changes the lengths of all descriptors all the time, in frames of several buffers: what was checked is what
/// is used.
#[test]
fn a_length_that_changes_between_reads_never_leaves_the_slot() {
    let pool = pool(512);
    let (fake, mut opened) = open(&pool);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let ring = fake.rx();
            while !done.load(Ordering::Relaxed) {
                for len in [2048_u64, 65_535] {
                    for index in 0..ring.size {
                        ring.report(index, len << 32 | DD | if index % 2 == 1 { EOP } else { 0 });
                    }
                }
            }
        });
        let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(32));
        let (mut frames, mut fault) = (0, None);
        while frames < if cfg!(miri) { 10 } else { 2000 } && fault.is_none() {
            opened.rx[0].recv(&mut cache, &mut batch);
            frames += batch.iter().filter(|packet| packet.continues()).count();
            fault = batch.iter().map(Packet::len).find(|len| !(1..=2048).contains(len));
            cache.free_batch(&mut batch);
        }
        done.store(true, Ordering::Relaxed);
        assert_eq!(fault, None, "bytes in a slot of 2048");
    });
    close(opened, &[&pool]);
}

/// A device that never stops handing over bad frames: a call drops those of one turn of the ring and returns.
#[test]
fn a_stream_of_bad_frames_ends_a_call() {
    for bad in [DD | EOP | RXE | 60 << 32, DD | EOP, DD | EOP | 9999 << 32, DD | 60 << 32] {
        let pool = pool(512);
        let (fake, mut opened) = open(&pool);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let ring = fake.rx();
                while !done.load(Ordering::Relaxed) {
                    (0..ring.size).for_each(|index| ring.report(index, bad));
                }
            });
            let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(32));
            let (mut calls, mut most) = (0, 0);
            let (calls_wanted, drops_wanted) = if cfg!(miri) { (10, 50) } else { (200, 300) };
            // A frame that never ends is counted once only, and each call has to end.
            while calls < calls_wanted || (bad & EOP != 0 && opened.rx[0].counters().dropped() < drops_wanted) {
                let before = opened.rx[0].counters().dropped();
                assert_eq!(opened.rx[0].recv(&mut cache, &mut batch).len(), 0);
                let dropped = opened.rx[0].counters().dropped() - before;
                most = most.max(dropped);
                if dropped == 0 {
                    std::thread::yield_now();
                }
                calls += 1;
            }
            done.store(true, Ordering::Relaxed);
            assert!(most <= 64, "{most} frames in one call, on a ring of 64");
        });
        close(opened, &[&pool]);
    }
}

/// A device that reports transmit descriptors done that it never had: slots come back once each.
#[test]
fn reports_at_any_time_bring_each_slot_home_once() {
    let (pool, other) = (pool(512), pool(256));
    let (fake, mut opened) = open(&pool);
    let (ring, mut cache, mut batch) = (fake.tx(), pool.cache(), Batch::with_capacity(40));
    for round in 0..if cfg!(miri) { 6 } else { 200 } {
        fill(&mut batch, if round % 3 == 0 { &other } else { &pool }, 20);
        opened.tx[0].send(&mut cache, &mut batch);
        batch.clear();
        for index in (round..64).step_by(1 + round % 5) {
            ring.report(index, u64::from_le(ring.word(index, 1).load(Ordering::Acquire)) | TX_DD);
        }
    }
    drop(cache);
    close(opened, &[&pool, &other]);
}

#[test]
fn a_device_that_cannot_be_stopped_keeps_its_memory() {
    let pool = pool(256);
    let (fake, opened) = open(&pool);
    fake.stick();
    assert!(opened.close().is_err());
    assert_eq!(pool.away(), 64, "the buffers of the receive ring stay away");
    // The device may write into its ring.
    fake.rx().report(5, DD);
}
