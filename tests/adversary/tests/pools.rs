//! Pools, caches, batches and packets, misused in every way that compiles. Runs under Miri too.

#![forbid(unsafe_code)]

use adversary::every_slot_once;
use device::PageSize;
use mempool::{Batch, Packet, Pool, PoolConfig};
use std::panic::{AssertUnwindSafe, catch_unwind};

fn pool(slots: usize) -> Pool {
    let config = PoolConfig { slots, data_room: 256, headroom: 64, pages: PageSize::Ordinary, numa_node: None };
    Pool::new(&config).expect("a pool")
}

#[test]
fn forgotten_packets_batches_and_caches_leave_the_rest_sound() {
    let pool = pool(128);
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(8));
    cache.alloc_batch(&mut batch, 8, 60);
    std::mem::forget(batch.pop());
    std::mem::forget(batch.drain());
    std::mem::forget(batch);
    std::mem::forget(cache);
    let mut cache = pool.cache();
    let mut rest: Vec<Packet> = std::iter::from_fn(|| cache.alloc()).collect();
    for (number, packet) in rest.iter_mut().enumerate() {
        packet.append(8).expect("room").copy_from_slice(&(number as u64).to_le_bytes());
    }
    for (number, packet) in rest.iter().enumerate() {
        assert_eq!(packet.data(), (number as u64).to_le_bytes(), "two packets share a slot");
    }
}

#[test]
fn packets_outlive_their_pool_and_go_home_by_the_cache_of_another() {
    let (first, second) = (pool(64), pool(64));
    let (mut packets, mut cache) = (Batch::with_capacity(16), second.cache());
    first.cache().alloc_batch(&mut packets, 8, 100);
    cache.alloc_batch(&mut packets, 8, 100);
    let mut mixed = Batch::with_capacity(16);
    let mut drained: Vec<_> = packets.drain().collect();
    while let Some(packet) = drained.pop() {
        mixed.push(packet).expect("room");
        drained.reverse();
    }
    drop(first);
    mixed.iter_mut().for_each(|packet| packet.data_mut().fill(7));
    cache.free_batch(&mut mixed);
    assert!(mixed.is_empty());
    drop(cache);
    every_slot_once(&second);
}

#[test]
fn panics_of_closures_leave_no_slot_in_two_places() {
    let pool = pool(64);
    let mut cache = pool.cache();
    for at in 0..8 {
        let mut batch = Batch::with_capacity(8);
        let mut outputs = [Batch::with_capacity(2), Batch::with_capacity(2)];
        cache.alloc_batch(&mut batch, 8, 60);
        let mut seen = 0;
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            batch.distribute(&mut outputs, |packet| {
                packet.truncate(10);
                assert_ne!(seen, at, "the closure breaks");
                seen += 1;
                seen % 3
            });
        }));
        assert!(unwound.is_err());
        let mut rest: Vec<_> = batch.drain().collect();
        outputs.iter_mut().for_each(|output| rest.extend(output.drain()));
        let mut places: Vec<_> = rest.iter().map(|packet| packet.slot().as_ptr()).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), rest.len(), "a packet is in two batches");
    }
}

#[test]
fn swapping_what_the_closure_is_lent_is_sound() {
    let (pool, other) = (pool(64), pool(64));
    let (mut cache, mut foreign) = (pool.cache(), other.cache());
    let (mut batch, mut outputs) = (Batch::with_capacity(8), [Batch::with_capacity(3)]);
    cache.alloc_batch(&mut batch, 8, 60);
    let mut hand = foreign.alloc().expect("a packet");
    batch.distribute(&mut outputs, |packet| {
        std::mem::swap(packet, &mut hand);
        usize::from(packet.is_empty())
    });
    batch.swap(0, 1);
    batch.reverse();
    std::mem::swap(&mut batch, &mut outputs[0]);
    // Room of a batch may be written to in vain.
    for room in batch.spare_slots().iter_mut().take(1) {
        room.write(cache.alloc().expect("a packet"));
    }
    drop((batch, outputs, hand, foreign));
    drop(cache);
    every_slot_once(&other);
}

#[test]
fn lengths_and_rooms_at_their_limits() {
    let pool = pool(64);
    let mut cache = pool.cache();
    let mut packet = cache.alloc().expect("a packet");
    for count in [0, 1, 63, 64, 65, 255, 256, 320, 321, 65_535, 65_536, usize::MAX] {
        packet.truncate(0);
        let room = packet.tailroom();
        assert_eq!(packet.append(count).is_some(), count <= room);
        assert_eq!(packet.trim_front(count), count <= room && count <= 320);
        let head = packet.headroom();
        assert_eq!(packet.prepend(count).is_some(), count <= head);
        packet.data_mut().fill(1);
        assert!(packet.headroom() + packet.len() + packet.tailroom() <= 320);
    }
    let mut batch = Batch::with_capacity(0);
    assert_eq!(cache.alloc_batch(&mut batch, usize::MAX, 60), 0);
    let mut batch = Batch::with_capacity(4);
    assert_eq!(cache.alloc_batch(&mut batch, usize::MAX, usize::MAX), 0);
    assert_eq!(cache.alloc_batch(&mut batch, usize::MAX, 256), 4);
    assert!(catch_unwind(|| Batch::with_capacity(usize::MAX)).is_err());
    for (slots, data_room, headroom) in [(0, 0, 0), (1, u16::MAX, u16::MAX), (usize::MAX, 2048, 128), (1, 0, u16::MAX)]
    {
        let config = PoolConfig { slots, data_room, headroom, pages: PageSize::Ordinary, numa_node: None };
        if let Ok(pool) = Pool::new(&config) {
            if let Some(mut packet) = pool.alloc() {
                let room = packet.tailroom();
                packet.append(room).expect("room").fill(1);
                let head = packet.headroom();
                packet.prepend(head).expect("room").fill(1);
            }
        }
    }
}

#[test]
fn threads_pass_packets_and_drop_the_pool_meanwhile() {
    let pool = pool(256);
    let rounds = if cfg!(miri) { 20 } else { 20_000 };
    let (give, take) = std::sync::mpsc::sync_channel::<Packet>(16);
    std::thread::scope(|scope| {
        let (ours, theirs) = (pool.clone(), pool.clone());
        scope.spawn(move || {
            let mut cache = ours.cache();
            for round in 0..rounds {
                if let Some(mut packet) = cache.alloc() {
                    packet.append(8).expect("room").copy_from_slice(&u64::to_le_bytes(round));
                    if give.send(packet).is_err() {
                        return;
                    }
                }
            }
        });
        scope.spawn(move || {
            let mut cache = theirs.cache();
            let mut last = None;
            while let Ok(packet) = take.recv() {
                let number = u64::from_le_bytes(packet.data().try_into().expect("8 bytes"));
                assert!(last < Some(number), "packets arrive once and in order");
                last = Some(number);
                if number % 3 == 0 { drop(packet) } else { cache.free(packet) }
            }
        });
    });
    every_slot_once(&pool);
}
