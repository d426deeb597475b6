//! The memory holes of ixy.rs that safe code can reach there, each shown closed here. Named after what happens there.

mod common;

use common::small_pool;
use device::{DmaMemory, MemoryRequest, PageSize};
use mempool::{Batch, Error, Packet, Pool, PoolConfig};
use std::sync::Arc;

/// There, head room is handed out by a length that nothing checks.
#[test]
fn ixyrs_headroom_write_overwrites_the_neighbour() {
    let pool = small_pool(8);
    let mut packets: Vec<Packet> = std::iter::from_fn(|| pool.alloc()).collect();
    for (number, packet) in (1_u8..).zip(&mut packets) {
        packet.append(64).expect("the data room").fill(number);
    }
    for packet in &mut packets {
        assert!(packet.prepend(33).is_none(), "one byte more than the head room");
        assert!(packet.append(1).is_none(), "one byte more than the data room");
        packet.prepend(32).expect("the whole head room").fill(0xff);
    }
    for (number, packet) in (1_u8..).zip(&packets) {
        assert!(packet.data()[32..].iter().all(|byte| *byte == number), "packet {number} was overwritten");
    }
}

/// There, slots of a few bytes are made, and packets of any length are cut from them.
#[test]
fn ixyrs_tiny_entry_size() {
    for data_room in [0, 1, 63] {
        let error = Pool::new(&PoolConfig { data_room, ..PoolConfig::default() }).expect_err("too small for a frame");
        assert!(matches!(error, Error::Config { what: "the data room", .. }), "{error}");
    }
    let pool = small_pool(4);
    let mut batch = Batch::with_capacity(4);
    assert_eq!(pool.cache().alloc_batch(&mut batch, 4, 65), 0, "packets longer than the data room");
    assert_eq!(pool.cache().alloc_batch(&mut batch, 4, 64), 4);
}

/// There, a number of entries whose product with their size wraps gives less memory than packets.
#[test]
fn ixyrs_huge_allocation_request() {
    for slots in [0, (1 << 24) + 1, usize::MAX / 2048, usize::MAX] {
        let error = Pool::new(&PoolConfig { slots, ..PoolConfig::default() }).expect_err("out of range");
        assert!(matches!(error, Error::Config { what: "the number of slots", .. }), "{error}");
        assert!(error.to_string().contains("16,777,216"), "the message says what would do: {error}");
    }
    let headroom = PoolConfig { headroom: 65_535, ..PoolConfig::default() };
    assert!(matches!(Pool::new(&headroom), Err(Error::Config { what: "head room plus data room", .. })));
    for bytes in [usize::MAX, usize::MAX - 4096, isize::MAX as usize] {
        let request = MemoryRequest { bytes, pages: PageSize::Ordinary, numa_node: None };
        assert!(DmaMemory::allocate(&request).is_err(), "{bytes} bytes");
    }
    let mut batch = Batch::with_capacity(4);
    let pool = small_pool(4);
    for len in [65, 65_535, 65_536, 65_536 + 64, usize::MAX] {
        assert_eq!(pool.cache().alloc_batch(&mut batch, 1, len), 0);
    }
    assert_eq!(pool.cache().alloc_batch(&mut batch, usize::MAX, 60), 4, "as many as there are");
}

/// There, every packet counts a reference to the pool. Here a forgotten packet costs its slot, which `away` shows; and,
/// since a device might still be writing into that slot, the region stays mapped. All else works on.
#[test]
fn ixyrs_forgotten_packet_leaks_the_pool_for_ever() {
    let pool = small_pool(8);
    let memory = Arc::downgrade(pool.memory());
    std::mem::forget(pool.alloc().expect("a packet"));
    assert_eq!(pool.away(), 1, "the lost slot is visible");
    for _ in 0..3 {
        let rest: Vec<Packet> = std::iter::from_fn(|| pool.alloc()).collect();
        assert_eq!(rest.len(), 7, "the other slots come and go");
    }
    assert_eq!(pool.away(), 1);
    let id = pool.id();
    drop(pool);
    assert_eq!(memory.strong_count(), 1, "memory with a slot away is never given back");
    let next = small_pool(8);
    assert_ne!(next.id(), id, "nor is its id");
    let all: Vec<Packet> = std::iter::from_fn(|| next.alloc()).collect();
    assert_eq!(all.len(), 8, "other pools do not notice");
}

/// There, `clone` allocates and unwraps. Here a packet cannot be cloned, and a copy that finds no slot says so.
#[test]
fn ixyrs_clone_panics_on_empty_pool() {
    let pool = small_pool(1);
    let packet = pool.alloc().expect("the only packet");
    let mut cache = pool.cache();
    assert!(packet.try_copy(&mut cache).is_none());
    drop(packet);
    assert_eq!(pool.away(), 0);
}

/// There, a batch allocation from an empty pool leaves the caller with fewer packets than it was told.
#[test]
fn ixyrs_batch_allocation_from_an_empty_pool() {
    let pool = small_pool(5);
    let mut cache = pool.cache();
    let mut batch = Batch::with_capacity(32);
    assert_eq!(cache.alloc_batch(&mut batch, 32, 60), 5);
    assert_eq!(batch.len(), 5);
    assert_eq!(cache.alloc_batch(&mut batch, 32, 60), 0);
    assert_eq!(batch.len(), 5);
}

/// There, a pool belongs to one thread (`Rc`), and so do the packets.
#[test]
fn ixyrs_pool_belongs_to_one_thread() {
    fn can_move<T: Send>() {}
    fn can_share<T: Sync>() {}
    can_move::<Packet>();
    can_move::<Batch>();
    can_move::<mempool::PoolCache>();
    can_move::<Pool>();
    can_share::<Pool>();
    let pool = small_pool(4);
    let packet = pool.alloc().expect("a packet");
    std::thread::spawn(move || drop(packet)).join().expect("freed on another thread");
    assert_eq!(pool.away(), 0);
}

/// There, DMA memory is never given back.
#[test]
fn ixyrs_dma_memory_is_never_freed() {
    let pool = small_pool(16);
    let memory = Arc::downgrade(pool.memory());
    drop((pool.cache(), pool.alloc(), pool));
    assert_eq!(memory.strong_count(), 0);
}
