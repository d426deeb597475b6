//! What the pool tests share.
#![allow(dead_code, reason = "each test file uses a part")]

use device::PageSize;
use mempool::{Packet, Pool, PoolConfig};
use proptest::test_runner::Config;
use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

/// A pool of `slots` small slots on ordinary pages: no privileges, no huge pages, and quick under Miri.
pub(crate) fn small_pool(slots: usize) -> Pool {
    let config = PoolConfig { slots, data_room: 64, headroom: 32, pages: PageSize::Ordinary, numa_node: None };
    Pool::new(&config).expect("a small pool on ordinary pages")
}

/// `cases` runs of a property, or `under_miri`, which is a thousand times slower. Failures are printed, not stored.
pub(crate) fn runs(cases: u32, under_miri: u32) -> Config {
    Config { cases: if cfg!(miri) { under_miri } else { cases }, failure_persistence: None, ..Config::default() }
}

/// Which slots are in whose hands: the independent record that the pool is held against.
#[derive(Default)]
pub(crate) struct Ledger {
    held: Mutex<HashSet<usize>>,
}

impl Ledger {
    /// Records a packet fresh from the pool, and writes its slot's address into its first 8 bytes.
    pub(crate) fn takes(&self, packet: &mut Packet) {
        let address = packet.slot().as_ptr().addr();
        assert!(self.held.lock().unwrap_or_else(PoisonError::into_inner).insert(address), "a slot was given out twice");
        assert!(packet.is_empty(), "a new packet has no data");
        packet.append(8).expect("room for 8 bytes").copy_from_slice(&(address as u64).to_le_bytes());
    }

    /// Records that a packet is about to go home, with the bytes that its owner wrote.
    pub(crate) fn gives(&self, packet: &Packet) {
        let address = packet.slot().as_ptr().addr();
        assert_eq!(packet.data(), (address as u64).to_le_bytes(), "somebody else wrote into the packet");
        assert!(self.held.lock().unwrap_or_else(PoisonError::into_inner).remove(&address), "a slot came home twice");
    }

    /// Packets held.
    pub(crate) fn len(&self) -> usize {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}
