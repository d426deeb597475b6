//! A batch that a transmit ring takes packets from holds exactly the others afterwards, however the taking ended.
#![expect(unsafe_code, reason = "plays the ring")]

mod common;

use common::{runs, small_pool};
use mempool::{Batch, Packet, Pool, Slot};
use proptest::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// `count` packets that say which they are.
fn numbered(pool: &Pool, count: u8) -> Batch {
    let mut batch = Batch::with_capacity(usize::from(count));
    for number in 0..count {
        let mut packet = pool.alloc().expect("a slot");
        packet.append(1).expect("room").fill(number);
        batch.push(packet).expect("room");
    }
    batch
}

fn numbers(packets: &[Packet]) -> Vec<u8> {
    packets.iter().map(|packet| packet.data()[0]).collect()
}

/// What becomes of a batch between two looks at it.
#[derive(Clone, Debug)]
enum Step {
    /// The ring takes so many.
    Ring(usize),
    /// One is dropped.
    Drop,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![(0..40_usize).prop_map(Step::Ring), Just(Step::Drop)]
}

proptest! {
    #![proptest_config(runs(300, 4))]

    /// P3: at each point at which a driver may panic, a packet is in the ring, in the batch, or freed, and only once.
    #[test]
    fn p3_a_panic_leaves_no_packet_in_two_places(
        count in 0..70_u8,
        steps in prop::collection::vec(step(), 0..8),
        panics in any::<bool>(),
    ) {
        let pool = small_pool(70);
        let mut batch = numbered(&pool, count);
        let mut ring: Vec<Slot> = Vec::new();
        let mut taken = 0;
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let mut sending = batch.sending();
            for step in &steps {
                assert_eq!(sending.taken(), taken);
                match step {
                    Step::Ring(some) => {
                        let some = (*some).min(sending.len());
                        ring.extend(sending[..some].iter().map(Packet::slot));
                        // SAFETY: the ring has taken these over just now.
                        unsafe { sending.take(some) };
                        taken += some;
                    }
                    Step::Drop => taken += usize::from(sending.next().is_some()),
                }
            }
            sending.iter_mut().for_each(|packet| assert_eq!(packet.len(), 1));
            if panics {
                // Without the message that a panic prints.
                std::panic::resume_unwind(Box::new(()));
            }
        }));
        prop_assert_eq!(outcome.is_err(), panics);
        let expected: Vec<u8> = (0..count).skip(taken).collect();
        prop_assert_eq!(numbers(&batch), expected);
        prop_assert_eq!(pool.away(), ring.len() + batch.len());
        // SAFETY: the ring gives up its slots.
        unsafe { pool.put(&ring) };
        drop(batch);
        prop_assert_eq!(pool.away(), 0);
    }
}

#[test]
fn what_is_forgotten_on_its_way_is_lost_but_in_no_two_places() {
    let pool = small_pool(8);
    let mut batch = numbered(&pool, 5);
    let mut sending = batch.sending();
    drop(sending.next());
    std::mem::forget(sending);
    assert!(batch.is_empty());
    drop(batch);
    assert_eq!(pool.away(), 4, "lost: never given out again");
    let all: Vec<_> = std::iter::from_fn(|| pool.alloc()).collect();
    assert_eq!(all.len(), 4);
    // So that nothing is left behind, which Miri would report.
    let memory = pool.memory().clone();
    drop((all, pool));
    assert!(std::sync::Arc::strong_count(&memory) > 1, "the memory stays for those that may still be in use");
}
