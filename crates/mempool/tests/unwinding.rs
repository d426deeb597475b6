//! Panics in code that the pool calls, and threads that end in one: no slot is ever in two places, and none is lost that
//! can be known to be free.
#![expect(unsafe_code, reason = "plays the ring")]

mod common;

use common::{Ledger, small_pool};
use mempool::{Batch, Packet, Pool, Slot};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

/// Every slot that the pool still gives out, each once; `lost` of them are not among these.
fn check(pool: &Pool, lost: usize) {
    let ledger = Ledger::default();
    let mut all: Vec<Packet> = std::iter::from_fn(|| pool.alloc()).collect();
    all.iter_mut().for_each(|packet| ledger.takes(packet));
    assert_eq!(all.len() + lost, pool.slots());
    all.iter().for_each(|packet| ledger.gives(packet));
    assert_eq!(ledger.len(), 0);
}

#[test]
fn a_panic_while_packets_are_distributed_loses_none() {
    for panic_at in 0..6 {
        let pool = small_pool(8);
        let mut batch = Batch::with_capacity(6);
        pool.cache().alloc_batch(&mut batch, 6, 1);
        for (packet, number) in batch.iter_mut().zip(0..) {
            packet.data_mut().fill(number);
        }
        let mut outputs = [Batch::with_capacity(1), Batch::with_capacity(4)];
        let mut seen = 0;
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            batch.distribute(&mut outputs, |packet| {
                assert_eq!(packet.data()[0], seen);
                if seen == panic_at {
                    resume_unwind(Box::new(()));
                }
                seen += 1;
                usize::from(seen) % 3
            });
        }));
        assert!(outcome.is_err());
        let mut numbers: Vec<u8> = batch
            .iter()
            .chain(outputs.iter().flat_map(|output| output.iter()))
            .map(|packet| packet.data()[0])
            .collect();
        assert!(batch.iter().is_sorted_by_key(|packet| packet.data()[0]), "those that stay are in order");
        numbers.sort_unstable();
        assert_eq!(numbers, [0, 1, 2, 3, 4, 5]);
        drop((batch, outputs));
        check(&pool, 0);
    }
}

/// P3: a ring's loop that panics with slots in its hands may have used any of them.
#[test]
fn p3_slots_shown_to_a_ring_that_panics_are_not_given_out_again() {
    let pool = small_pool(64);
    let mut cache = pool.cache();
    assert_eq!(cache.reserve(10), 10);
    let mut ring: Vec<Slot> = Vec::new();
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let lent = cache.lend(10);
        assert_eq!(lent.len(), 10);
        ring.extend_from_slice(&lent[7..]);
        resume_unwind(Box::new(()));
    }));
    assert!(outcome.is_err());
    assert_eq!(pool.away(), cache.len() + 10);
    drop(cache);
    check(&pool, 10);
    // SAFETY: the ring has these three, and gives them up.
    unsafe { pool.put(&ring) };
    check(&pool, 7);
}

#[test]
fn slots_that_a_ring_gives_while_it_panics_are_in_no_two_places() {
    let pool = small_pool(64);
    let packets: Vec<Packet> = std::iter::from_fn(|| pool.alloc()).take(5).collect();
    let mut slots: Vec<Slot> = packets.into_iter().map(Packet::into_slot).collect();
    let mut cache = pool.cache();
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        cache.room(5)[0].write(slots.remove(0));
        resume_unwind(Box::new(()));
    }));
    assert!(outcome.is_err());
    // SAFETY: the ring still has these.
    unsafe { cache.put(&slots) };
    drop(cache);
    check(&pool, 1);
}

#[test]
fn a_thread_that_panics_brings_home_what_it_had() {
    let pool = small_pool(300);
    let memory = Arc::downgrade(pool.memory());
    let thread = {
        let pool = pool.clone();
        std::thread::spawn(move || {
            let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(48));
            cache.alloc_batch(&mut batch, 48, 10);
            let _lone = (cache.alloc(), pool.alloc());
            let mut sending = batch.sending();
            let _sent = sending.next();
            resume_unwind(Box::new(()));
        })
    };
    assert!(thread.join().is_err());
    assert_eq!(pool.away(), 0);
    check(&pool, 0);
    drop(pool);
    assert_eq!(memory.strong_count(), 0);
}

#[test]
fn forgotten_values_keep_the_memory_and_give_nothing_out_twice() {
    let pool = small_pool(200);
    let mut cache = pool.cache();
    let mut batch = Batch::with_capacity(8);
    cache.alloc_batch(&mut batch, 8, 1);
    let held = cache.len();
    std::mem::forget(batch.drain());
    assert!(batch.is_empty());
    std::mem::forget(cache);
    check(&pool, held + 8);
    let memory = Arc::downgrade(pool.memory());
    drop(pool);
    assert_eq!(memory.strong_count(), 1, "slots are out, so the memory stays");
}
