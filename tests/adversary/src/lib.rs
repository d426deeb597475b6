//! What the attacks share: a server that lies and a subscriber that panics. All of it is safe code.
//!
//! Each file of `tests/` is one attack, named after the entry of the audit that found it (P1 to P10) or after what it
//! misuses; each file of `ui/` is a program that must not compile. `tests/adversary/run` tries them one by one.

#![forbid(unsafe_code)]

mod panics;
mod proxy;

pub use panics::{panic_at, panics};
pub use proxy::{Lie, Mapping, Proxy};

use device::{DmaMemory, MemoryRequest, PageSize};
use mempool::{Pool, PoolConfig};
use std::collections::HashSet;
use std::sync::Arc;

/// Takes all huge pages that are free, so that memory is on ordinary ones while this is kept: nobody can write to a file on huge pages.
#[must_use]
pub fn all_huge_pages() -> Vec<Arc<DmaMemory>> {
    const MOST: usize = 1 << 17;
    let request = MemoryRequest { bytes: 2 << 20, pages: PageSize::Huge2M, ..MemoryRequest::default() };
    std::iter::from_fn(|| DmaMemory::allocate(&request).ok()).take(MOST).collect()
}

/// A pool of `slots` slots on ordinary pages, which every host has.
#[must_use]
pub fn pool(slots: usize) -> Pool {
    Pool::new(&PoolConfig { slots, pages: PageSize::Ordinary, ..PoolConfig::default() }).expect("a pool")
}

/// Holds a pool to its promise: every slot is at home, and none is there twice.
///
/// # Panics
///
/// When one is missing or double.
pub fn every_slot_once(pool: &Pool) {
    let mut cache = pool.cache();
    let packets: Vec<_> = std::iter::from_fn(|| cache.alloc()).collect();
    let places: HashSet<_> = packets.iter().map(|packet| packet.slot().as_ptr()).collect();
    assert_eq!(places.len(), packets.len(), "a slot was given out twice");
    assert_eq!(packets.len(), pool.slots(), "slots are missing");
}

/// The regions of DMA memory that this process has mapped, by inode. A server in this process has them mapped too.
#[must_use]
pub fn dma_memory() -> HashSet<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux");
    let ours = maps.lines().filter(|line| line.contains("/memfd:ringway"));
    ours.map(|line| line.split_whitespace().nth(4).expect("an inode").to_owned()).collect()
}
