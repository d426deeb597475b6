//! Batches against vectors of numbers, and frames of several packets.
#![expect(clippy::unwrap_used, reason = "tests")]

use mempool::{Batch, Checksum, Packet, Pool, PoolConfig, frame_len, frames, frames_mut};
use proptest::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};

fn pool(slots: usize) -> Pool {
    Pool::new(&PoolConfig { slots, ..PoolConfig::default() }).unwrap()
}

fn numbers(packets: &[Packet]) -> Vec<u8> {
    packets.iter().map(|packet| packet.data()[0]).collect()
}

fn filled(pool: &Pool, numbers: &[u8], capacity: usize) -> Batch {
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(capacity));
    numbers.iter().for_each(|number| batch.push(cache.alloc_from(&[*number]).unwrap()).unwrap());
    batch
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 256 }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn batches_do_as_vectors_do(
        mut model in prop::collection::vec(any::<u8>(), 0..40),
        mut others in prop::collection::vec(any::<u8>(), 0..40),
        (keep, from, to, at) in (any::<u8>(), 0..40_usize, 0..40_usize, 0..40_usize),
    ) {
        let pool = pool(128);
        let mut cache = pool.cache();
        let (mut batch, mut other) = (filled(&pool, &model, 40), filled(&pool, &others, 40));
        batch.retain(&mut cache, |packet| packet.data()[0] > keep);
        model.retain(|number| *number > keep);
        prop_assert_eq!(numbers(&batch), &model[..]);

        let moved = batch.append(&mut other);
        prop_assert_eq!(moved, others.len().min(40 - model.len()));
        model.extend(others.drain(..moved));
        prop_assert_eq!((numbers(&batch), numbers(&other)), (model.clone(), others));

        let (from, to) = (from.min(to).min(model.len()), from.max(to).min(model.len()));
        let drained: Vec<Packet> = batch.drain_range(from..to).collect();
        prop_assert_eq!(numbers(&drained), model.drain(from..to).collect::<Vec<_>>());

        let at = at.min(model.len());
        let rest = batch.split_off(at);
        prop_assert_eq!((numbers(&batch), numbers(&rest), rest.capacity()), (model[..at].to_vec(), model[at..].to_vec(), 40));
        drop((cache, batch, other, rest, drained));
        prop_assert_eq!(pool.away(), 0);
    }
}

#[test]
fn a_filter_that_panics_loses_nothing() {
    let pool = pool(64);
    let (mut cache, mut batch) = (pool.cache(), filled(&pool, &[0, 1, 2, 3, 4, 5], 6));
    let filter = |packet: &mut Packet| {
        assert_ne!(packet.data()[0], 3, "on purpose");
        packet.data()[0].is_multiple_of(2)
    };
    assert!(catch_unwind(AssertUnwindSafe(|| batch.retain(&mut cache, filter))).is_err());
    assert_eq!(numbers(&batch), [0, 2, 3, 4, 5]);
    drop((cache, batch));
    assert_eq!(pool.away(), 0);
}

#[test]
fn frames_are_runs_and_become_one_packet() {
    let pool = pool(64);
    let mut cache = pool.cache();
    let mut batch = filled(&pool, &[1, 2, 3, 4, 5, 6], 6);
    for at in [1, 2, 5] {
        batch[at].set_continues(true);
    }
    let runs: Vec<Vec<u8>> = frames(&batch).map(numbers).collect();
    assert_eq!(runs, [vec![1], vec![2, 3, 4], vec![5], vec![6]], "the last goes on nowhere");
    assert_eq!(frames_mut(&mut batch).map(|frame| frame_len(frame)).collect::<Vec<_>>(), [1, 3, 1, 1]);
    assert_eq!(cache.linearise(&batch[1..4]).unwrap().data(), [2, 3, 4]);
    assert!(cache.linearise(&[]).is_none());

    let mut long = vec![cache.alloc_from(&[7; 2000]).unwrap(), cache.alloc_from(&[8; 2000]).unwrap()];
    long[0].set_continues(true);
    assert!(cache.linearise(&long).is_none(), "4000 bytes do not fit into a slot of 2 KiB");
    assert!(cache.alloc_from(&[0; 4000]).is_none());

    let mut first = cache.alloc_from(&[0; 60]).unwrap();
    assert!(first.set_checksum(Checksum::Partial { start: 34, offset: 16 }));
    first.set_continues(true);
    let frame = [first, cache.alloc_from(&[9]).unwrap()];
    let whole = cache.linearise(&frame).unwrap();
    assert_eq!((whole.checksum(), whole.len(), whole.continues()), (frame[0].checksum(), 61, false));
    drop((cache, batch, long, frame, whole));
    assert_eq!(pool.away(), 0);
}
