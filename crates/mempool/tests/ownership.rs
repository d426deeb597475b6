//! The pool against a model of it: every slot is in exactly one place, comes home by every way there is, and the
//! memory lives exactly as long as somebody holds a handle or a slot.

mod common;

use common::{Ledger, runs, small_pool};
use mempool::{Batch, Packet, Pool, PoolCache};
use proptest::prelude::*;
use std::sync::{Arc, Weak, mpsc};

/// One thing a program can do with pools; numbers choose among what is there, modulo its count.
#[derive(Clone, Debug)]
enum Step {
    Alloc { pool: usize },
    CacheAlloc { cache: usize },
    CacheAllocBatch { cache: usize, count: usize, len: usize },
    DropPacket { packet: usize },
    CacheFree { cache: usize, packet: usize },
    DropBatch { count: usize },
    CacheFreeBatch { cache: usize, count: usize },
    DrainBatch { count: usize, taken: usize },
    CloneHandle { pool: usize },
    HandleOfPacket { packet: usize },
    DropHandle { pool: usize },
    NewCache { pool: usize },
    DropCache { cache: usize },
    Copy { packet: usize, cache: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let some = 0..64_usize;
    let burst = 0..90_usize;
    prop_oneof![
        some.clone().prop_map(|pool| Step::Alloc { pool }),
        some.clone().prop_map(|cache| Step::CacheAlloc { cache }),
        (some.clone(), burst.clone(), 0..80_usize).prop_map(|(cache, count, len)| Step::CacheAllocBatch {
            cache,
            count,
            len
        }),
        some.clone().prop_map(|packet| Step::DropPacket { packet }),
        (some.clone(), some.clone()).prop_map(|(cache, packet)| Step::CacheFree { cache, packet }),
        burst.clone().prop_map(|count| Step::DropBatch { count }),
        (some.clone(), burst.clone()).prop_map(|(cache, count)| Step::CacheFreeBatch { cache, count }),
        (burst.clone(), burst).prop_map(|(count, taken)| Step::DrainBatch { count, taken }),
        some.clone().prop_map(|pool| Step::CloneHandle { pool }),
        some.clone().prop_map(|packet| Step::HandleOfPacket { packet }),
        some.clone().prop_map(|pool| Step::DropHandle { pool }),
        some.clone().prop_map(|pool| Step::NewCache { pool }),
        some.clone().prop_map(|cache| Step::DropCache { cache }),
        (some.clone(), some).prop_map(|(packet, cache)| Step::Copy { packet, cache }),
    ]
}

/// Everything a program holds, and what it believes about it.
struct World {
    handles: Vec<Pool>,
    caches: Vec<PoolCache>,
    packets: Vec<Packet>,
    memories: Vec<(u16, Weak<device::DmaMemory>)>,
    ledger: Ledger,
}

impl World {
    fn new(sizes: &[usize]) -> Self {
        let handles: Vec<_> = sizes.iter().map(|slots| small_pool(*slots)).collect();
        let memories = handles.iter().map(|pool| (pool.id(), Arc::downgrade(pool.memory()))).collect();
        Self { handles, caches: Vec::new(), packets: Vec::new(), memories, ledger: Ledger::default() }
    }

    fn take(&mut self, mut packet: Packet) {
        self.ledger.takes(&mut packet);
        self.packets.push(packet);
    }

    /// The last `count` packets, as a batch on its way home.
    fn batch(&mut self, count: usize) -> Batch {
        let count = count.min(self.packets.len());
        let mut batch = Batch::with_capacity(count);
        for packet in self.packets.split_off(self.packets.len() - count) {
            self.ledger.gives(&packet);
            batch.push(packet).expect("room for all");
        }
        batch
    }

    fn remove(&mut self, packet: usize) -> Option<Packet> {
        if self.packets.is_empty() {
            return None;
        }
        let packet = self.packets.swap_remove(packet % self.packets.len());
        self.ledger.gives(&packet);
        Some(packet)
    }

    fn play(&mut self, step: &Step) {
        match *step {
            Step::Alloc { pool } => {
                if let Some(packet) = chosen(&mut self.handles, pool).and_then(|pool| pool.alloc()) {
                    self.take(packet);
                }
            }
            Step::CacheAlloc { cache } => {
                if let Some(packet) = chosen(&mut self.caches, cache).and_then(PoolCache::alloc) {
                    self.take(packet);
                }
            }
            Step::CacheAllocBatch { cache, count, len } => {
                let mut batch = Batch::with_capacity(64);
                let Some(cache) = chosen(&mut self.caches, cache) else { return };
                let got = cache.alloc_batch(&mut batch, count, len);
                assert_eq!(got, batch.len());
                assert!(got <= count.min(64) && (len <= 64 || got == 0));
                assert!(batch.iter().all(|packet| packet.len() == len));
                for mut packet in batch.drain().collect::<Vec<_>>() {
                    packet.truncate(0);
                    self.take(packet);
                }
            }
            Step::DropPacket { packet } => drop(self.remove(packet)),
            Step::CacheFree { cache, packet } => {
                let packet = self.remove(packet);
                if let (Some(cache), Some(packet)) = (chosen(&mut self.caches, cache), packet) {
                    cache.free(packet);
                }
            }
            Step::DropBatch { count } => drop(self.batch(count)),
            Step::CacheFreeBatch { cache, count } => {
                let mut batch = self.batch(count);
                if let Some(cache) = chosen(&mut self.caches, cache) {
                    cache.free_batch(&mut batch);
                    assert!(batch.is_empty());
                }
            }
            Step::DrainBatch { count, taken } => {
                self.batch(count).drain().take(taken).for_each(drop);
            }
            Step::CloneHandle { pool } => {
                if let Some(pool) = chosen(&mut self.handles, pool).cloned() {
                    self.handles.push(pool);
                }
            }
            Step::HandleOfPacket { packet } => {
                if let Some(pool) = chosen(&mut self.packets, packet).map(|packet| Pool::of(packet)) {
                    self.handles.push(pool);
                }
            }
            Step::DropHandle { pool } => {
                if !self.handles.is_empty() {
                    self.handles.swap_remove(pool % self.handles.len());
                }
            }
            Step::NewCache { pool } => {
                if let Some(cache) = chosen(&mut self.handles, pool).map(|pool| pool.cache()) {
                    self.caches.push(cache);
                }
            }
            Step::DropCache { cache } => {
                if !self.caches.is_empty() {
                    self.caches.swap_remove(cache % self.caches.len());
                }
            }
            Step::Copy { packet, cache } => {
                let Some(cache) = chosen(&mut self.caches, cache) else { return };
                let Some(copy) = chosen(&mut self.packets, packet).map(|packet| packet.try_copy(cache)) else { return };
                if let Some(mut copy) = copy {
                    copy.truncate(0);
                    self.take(copy);
                }
            }
        }
    }

    fn check(&self) {
        assert_eq!(self.ledger.len(), self.packets.len());
        for (id, memory) in &self.memories {
            let packets = self.packets.iter().filter(|packet| packet.pool_id() == *id).count();
            let cached: usize = self.caches.iter().filter(|cache| cache.pool_id() == *id).map(PoolCache::len).sum();
            let caches = self.caches.iter().filter(|cache| cache.pool_id() == *id).count();
            let handles = self.handles.iter().filter(|pool| pool.id() == *id).count();
            let used = packets + caches + handles > 0;
            assert_eq!(memory.strong_count(), usize::from(used), "the memory lives while it is used, and no longer");
            for pool in self.handles.iter().filter(|pool| pool.id() == *id) {
                assert_eq!(pool.away(), packets + cached, "slots away are in packets and caches");
            }
        }
    }
}

fn chosen<T>(among: &mut [T], number: usize) -> Option<&mut T> {
    let count = among.len();
    among.get_mut(number.checked_rem(count)?)
}

proptest! {
    #![proptest_config(runs(400, 3))]

    #[test]
    fn every_slot_is_in_one_place_and_the_memory_lives_as_long_as_its_users(
        sizes in prop::collection::vec(1..200_usize, 1..3),
        steps in prop::collection::vec(step(), if cfg!(miri) { 0..40 } else { 0..300 }),
    ) {
        let mut world = World::new(&sizes);
        for step in &steps {
            world.play(step);
            world.check();
        }
        // What is left goes in an order that the last step decides.
        let World { handles, caches, packets, memories, .. } = world;
        match steps.len() % 6 {
            0 => { drop(packets); drop(caches); drop(handles); }
            1 => { drop(packets); drop(handles); drop(caches); }
            2 => { drop(caches); drop(packets); drop(handles); }
            3 => { drop(caches); drop(handles); drop(packets); }
            4 => { drop(handles); drop(packets); drop(caches); }
            _ => { drop(handles); drop(caches); drop(packets); }
        }
        prop_assert!(memories.iter().all(|(_, memory)| memory.strong_count() == 0), "all home, all freed");
    }

    #[test]
    fn a_pool_gives_out_each_slot_once_and_then_none(slots in 1..if cfg!(miri) { 80 } else { 2000_usize }) {
        let pool = small_pool(slots);
        let ledger = Ledger::default();
        let mut cache = pool.cache();
        let mut packets: Vec<Packet> = std::iter::from_fn(|| cache.alloc()).collect();
        packets.iter_mut().for_each(|packet| ledger.takes(packet));
        prop_assert_eq!(packets.len(), slots);
        prop_assert_eq!(pool.away(), slots);
        prop_assert!(pool.alloc().is_none());
        packets.iter().for_each(|packet| ledger.gives(packet));
        packets.truncate(slots - 1);
        prop_assert!(pool.alloc().is_some(), "a slot that came home is given out again");
    }

    #[test]
    fn threads_exchange_packets_and_every_slot_comes_home(
        slots in 1..if cfg!(miri) { 60 } else { 600_usize },
        scripts in prop::collection::vec(prop::collection::vec(0..12_u8, 1..if cfg!(miri) { 12 } else { 400 }), 2..4),
    ) {
        let pool = small_pool(slots);
        let memory = Arc::downgrade(pool.memory());
        let ledger = Ledger::default();
        let (mut inboxes, mut outboxes) = (Vec::new(), Vec::new());
        for _ in &scripts {
            let (outbox, inbox) = mpsc::channel();
            outboxes.push(outbox);
            inboxes.push(inbox);
        }
        // Each thread sends to the next, the last to the first.
        outboxes.rotate_left(1);
        std::thread::scope(|scope| {
            for ((script, inbox), outbox) in scripts.iter().zip(&mut inboxes).zip(outboxes) {
                let (pool, ledger) = (pool.clone(), &ledger);
                scope.spawn(move || run_script(script, &pool, ledger, inbox, &outbox));
            }
        });
        inboxes.iter().flat_map(mpsc::Receiver::try_iter).for_each(|packet| ledger.gives(&packet));
        prop_assert_eq!(ledger.len(), 0);
        prop_assert_eq!(pool.away(), 0, "every slot is home");
        let all: Vec<_> = std::iter::from_fn(|| pool.alloc()).collect();
        prop_assert_eq!(all.len(), slots, "and can be given out");
        drop(pool);
        prop_assert_eq!(memory.strong_count(), 1, "the packets keep the memory");
        drop(all);
        prop_assert_eq!(memory.strong_count(), 0);
    }
}

/// Allocates, sends on, and frees what arrives in every way.
fn run_script(
    script: &[u8],
    pool: &Pool,
    ledger: &Ledger,
    inbox: &mut mpsc::Receiver<Packet>,
    outbox: &mpsc::Sender<Packet>,
) {
    let mut cache = pool.cache();
    let mut batch = Batch::with_capacity(48);
    for step in script {
        match step {
            0..=2 => {
                for mut packet in std::iter::from_fn(|| cache.alloc()).take(usize::from(*step) * 10 + 1) {
                    ledger.takes(&mut packet);
                    outbox.send(packet).expect("the inboxes outlive the threads");
                }
            }
            3 => {
                if let Some(mut packet) = pool.alloc() {
                    ledger.takes(&mut packet);
                    ledger.gives(&packet);
                }
            }
            4..=8 => {
                for packet in inbox.try_iter().take(batch.spare()) {
                    ledger.gives(&packet);
                    batch.push(packet).expect("no more were taken than fit");
                }
                match step {
                    4 | 5 => cache.free_batch(&mut batch),
                    6 | 7 => batch.clear(),
                    _ => batch.drain().for_each(|packet| cache.free(packet)),
                }
            }
            9 => inbox.try_iter().take(5).for_each(|packet| ledger.gives(&packet)),
            10 => cache = pool.cache(),
            _ => drop(pool.clone()),
        }
    }
}

#[test]
fn a_pool_is_freed_by_whichever_thread_brings_the_last_slot_home() {
    let pool = small_pool(64);
    let memory = Arc::downgrade(pool.memory());
    let packets: Vec<Packet> = std::iter::from_fn(|| pool.alloc()).collect();
    assert_eq!(packets.len(), 64);
    let cache = pool.cache();
    drop(pool);
    let threads: Vec<_> = packets
        .into_iter()
        .map(|packet| {
            let memory = memory.clone();
            std::thread::spawn(move || {
                assert_eq!(memory.strong_count(), 1, "a slot is away, so the memory is there");
                drop(packet);
            })
        })
        .collect();
    drop(cache);
    threads.into_iter().for_each(|thread| thread.join().expect("no thread fails"));
    assert_eq!(memory.strong_count(), 0);
}

#[test]
fn an_id_is_not_used_again_while_a_packet_of_the_old_pool_is_out() {
    let old = small_pool(2);
    let id = old.id();
    let packet = old.alloc().expect("a new pool has packets");
    drop(old);
    let others: Vec<_> = (0..16).map(|_| small_pool(1)).collect();
    assert!(others.iter().all(|pool| pool.id() != id));
    assert_eq!(Pool::of(&packet).slots(), 2, "the packet still finds its own pool");
}

#[test]
fn pools_made_and_dropped_for_ever_do_not_run_out() {
    for _ in 0..if cfg!(miri) { 20 } else { 3 * mempool::MAX_POOLS } {
        assert!(small_pool(1).alloc().is_some());
    }
}

/// One thread's idle cache must not keep another thread from a small pool for ever.
#[test]
fn an_idle_cache_leaves_slots_for_other_threads() {
    for slots in [64, 512, 1024, 4096] {
        let pool = small_pool(slots);
        let mut idle = pool.cache();
        let packet = idle.alloc().expect("the pool is full");
        let mut busy = pool.cache();
        assert!(busy.alloc().is_some(), "{slots} slots, one in use, {} in a cache", idle.len());
        idle.free(packet);
    }
}

#[test]
fn a_single_allocation_takes_no_more_than_it_gives() {
    let pool = small_pool(300);
    let packet = pool.alloc().expect("the pool is full");
    assert_eq!(pool.away(), 1);
    drop(packet);
    assert_eq!(pool.away(), 0);
}
