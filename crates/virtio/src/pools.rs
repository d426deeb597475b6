//! Packet pools that frames are sent from, and the address at which the device sees each.
//!
//! A queue does not map a pool itself: with vhost-user that is a conversation with the back end. It says that it has met one;
//! the watcher maps it, and remembers what came of it.

use device::Translation;
use mempool::{Packet, Pool};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What is known of a pool.
#[derive(Clone, Debug)]
pub(crate) enum Mapping {
    /// The watcher is going to map it.
    Wanted,
    /// The device sees it.
    Known(Arc<Translation>),
    /// The device does not take it.
    Refused,
}

/// The pools that queues have met. The handles keep their ids from being given to others.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    entries: Mutex<Vec<(Pool, Mapping)>>,
}

impl Pools {
    /// Locks the list, which is held for a few comparisons only.
    fn entries(&self) -> MutexGuard<'_, Vec<(Pool, Mapping)>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what is known of a packet's pool. A new pool is noted for the watcher to map.
    pub(crate) fn look_up(&self, packet: &Packet) -> (Pool, Mapping) {
        let mut entries = self.entries();
        if let Some(known) = entries.iter().find(|(pool, _)| pool.id() == packet.pool_id()) {
            return known.clone();
        }
        let new = (Pool::of(packet), Mapping::Wanted);
        entries.push(new.clone());
        new
    }

    /// Returns a pool that has to be mapped.
    pub(crate) fn next_unmapped(&self) -> Option<Pool> {
        self.entries().iter().find(|(_, mapping)| matches!(mapping, Mapping::Wanted)).map(|(pool, _)| pool.clone())
    }

    /// Records the result of mapping a pool.
    pub(crate) fn set_mapping(&self, pool: &Pool, mapping: Mapping) {
        if let Some(entry) = self.entries().iter_mut().find(|(known, _)| known.id() == pool.id()) {
            entry.1 = mapping;
        }
    }
}
