//! What comes back from a ring.

use super::{TxQueue, least_word};
use crate::Family;
use device::Device;
use mempool::{CHUNK, Meta, Packet, PoolCache, Slot};

impl<F: Family, D: Device> TxQueue<F, D> {
    /// Takes back the buffers of all chunks that the device has reported done. They are out of the ring before they are
    /// anywhere else.
    #[inline(never)]
    pub(super) fn reclaim(&mut self, cache: &mut PoolCache) {
        while self.in_use() >= CHUNK {
            let first = self.head & self.ring.mask();
            let report = usize::from(self.reports[first / CHUNK]);
            if !self.ring.at(report).is_sent() {
                break;
            }
            self.head = self.head.wrapping_add(CHUNK);
            if self.foreign == 0 && self.usual == cache.pool_id() {
                let slots = &self.slots[first..first + CHUNK];
                // SAFETY: an `Option<Slot>` that is `Some` is a `Slot`, and all in flight are.
                let slots = unsafe { std::slice::from_raw_parts(slots.as_ptr().cast::<Slot>(), CHUNK) };
                // SAFETY: of the cache's pool, done with by the device; the ring has given them up.
                unsafe { cache.put(slots) };
            } else {
                self.reclaim_foreign(cache, first);
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn reclaim_foreign(&mut self, cache: &mut PoolCache, first: usize) {
        let usual = self.usual;
        let pools = if self.foreign == 0 { None } else { self.pools.get(first..first + CHUNK) };
        let foreign = pools.map_or(0, |pools| pools.iter().filter(|id| **id != usual).count());
        for at in first..first + CHUNK {
            let id = if pools.is_none() { usual } else { self.pools[at] };
            let Some(slot) = self.slots[at].take() else { continue };
            // SAFETY: done with by the device; the ring has given it up.
            cache.free(unsafe { Packet::from_slot(slot, Meta::new(0, 0, id)) });
        }
        self.foreign -= foreign;
        if self.foreign == 0 {
            self.least = least_word(self.usual);
        }
    }
}

impl<F: Family, D: Device> Drop for TxQueue<F, D> {
    fn drop(&mut self) {
        let mut parked = self.shared.parking(&self.ring, self.in_use());
        while self.head != self.tail {
            let at = self.head & self.ring.mask();
            let id = if self.foreign == 0 { self.usual } else { self.pools[at] };
            self.head = self.head.wrapping_add(1);
            if let Some(slot) = self.slots[at] {
                // SAFETY: the ring gives its slots up; they wait with the ring until the device is quiet.
                parked.push(unsafe { Packet::from_slot(slot, Meta::new(0, 0, id)) });
            }
        }
        self.shared.park(parked);
    }
}
