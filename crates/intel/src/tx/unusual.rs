//! Frames in several segments, of other pools, or not to be sent at all.

use super::{SHORTEST, TxQueue, half_word, least_word};
use crate::Family;
use crate::desc::tx;
use crate::loops::Way;
use device::Device;
use mempool::{CHUNK, Packet, Pool, PoolCache, Sending, complete_checksum};
use std::time::{Duration, Instant};

/// A pool that could not be mapped, and when to try again. The handle keeps the id from being given to another pool.
pub(super) struct RefusedPool {
    pool: Pool,
    again: Instant,
}

/// Pools that a queue remembers as refused; of more than these each is tried again whenever it comes.
const MOST_REFUSED: usize = 16;
/// Least time between two tries to map a pool.
const MAP_AGAIN: Duration = Duration::from_secs(1);
/// It also waits so many times longer than a try took.
const MAP_AGAIN_FACTOR: u32 = 10;

impl<F: Family, D: Device> TxQueue<F, D> {
    /// Deals with the frame at the front that [`Self::send_run`] did not take: no room, several segments, another
    /// pool, or not to be sent at all. Returns whether it is gone from the batch; if not, the ring is full.
    #[cold]
    #[inline(never)]
    pub(super) fn send_unusual(&mut self, cache: &mut PoolCache, packets: &mut Sending<'_>) -> bool {
        let segments = packets.iter().position(|packet| !packet.continues()).map_or(packets.len(), |last| last + 1);
        let frame = &mut packets[..segments];
        let len: u64 = frame.iter().map(|packet| packet.len() as u64).sum();
        let mut failure = None;
        if !(SHORTEST.into()..=F::LONGEST.into()).contains(&len) || frame.iter().any(Packet::is_empty) {
            self.counters.bad_length += 1;
        } else if segments > F::MOST_SEGMENTS.min(self.ring.size() - CHUNK) {
            self.counters.too_many_segments += 1;
        } else if segments > self.ring.mask() - self.in_use() {
            return false;
        } else if let Err(error) = frame.iter().try_for_each(|packet| self.know(packet)) {
            self.counters.unmapped_pool += 1;
            failure = error;
        } else {
            complete_checksum(frame);
            let sent = self.send_frame(frame, len);
            // SAFETY: the ring has taken over the slots of these packets.
            unsafe { packets.take(sent) };
            return true;
        }
        for _ in 0..segments {
            if let Some(packet) = packets.next() {
                cache.free(packet);
            }
        }
        if let Some(error) = failure {
            // Logging may take its time, and may panic: nothing that was given to the device waits for it.
            if self.tail != self.announced {
                self.ring_doorbell(0);
            }
            let name = self.shared.regs.device().name();
            tracing::error!("{name}: a packet pool cannot be mapped, frames from it are dropped: {error}");
        }
        true
    }

    /// Makes sure that the packet's pool is mapped for the device. An error is told once for each try to map it.
    fn know(&mut self, packet: &Packet) -> Result<(), Option<device::Error>> {
        if self.known.has(packet) {
            return Ok(());
        }
        let id = packet.pool_id();
        let begun = Instant::now();
        if self.refused.iter().any(|refused| refused.pool.id() == id && begun < refused.again) {
            return Err(None);
        }
        self.refused.retain(|refused| begun < refused.again);
        let pool = Pool::of(packet);
        match self.shared.regs.device().dma().map(pool.memory()) {
            Ok(translation) => {
                self.known.add(pool, translation);
                if self.in_use() == 0 {
                    // Nothing is in flight: the pool in use becomes the usual one.
                    self.known.make_newest_usual();
                    self.first_known_is_usual();
                }
                Ok(())
            }
            Err(error) => {
                let failed = Instant::now();
                let again = failed + MAP_AGAIN.max((failed - begun).saturating_mul(MAP_AGAIN_FACTOR));
                if self.refused.len() < MOST_REFUSED {
                    self.refused.push(RefusedPool { pool, again });
                }
                Err(Some(error))
            }
        }
    }

    pub(super) fn first_known_is_usual(&mut self) {
        let (pool, translation) = self.known.usual();
        self.usual = pool.id();
        self.least = least_word(self.usual);
        (self.way, self.delta) = Way::of(translation);
    }

    /// Sends a frame of any number of segments from known pools; there is room for them. Returns their number: the ring
    /// has their slots, and the caller takes them out of the batch.
    fn send_frame(&mut self, frame: &[Packet], len: u64) -> usize {
        let mask = self.ring.mask();
        let usual = self.usual;
        let foreign = frame.iter().filter(|packet| packet.pool_id() != usual).count();
        if self.foreign == 0 && foreign > 0 {
            self.pools.fill(usual);
        }
        let mut tail = self.tail;
        let mut boundaries = 0;
        for (packet, left) in frame.iter().zip((0..frame.len()).rev()) {
            let at = tail & mask;
            // Never reached by the device: `know` has seen to it that the pool is known.
            let start = self.known.iova(packet).unwrap_or(u64::MAX);
            tail = tail.wrapping_add(1);
            boundaries += usize::from(tail.is_multiple_of(CHUNK));
            let mut high = tx::DATA | packet.len() as u64 | len << tx::PAYLEN_SHIFT;
            if left == 0 {
                high |= self.command | if boundaries > 0 { tx::RS } else { 0 };
            }
            self.slots[at] = Some(packet.slot());
            self.pools[at] = packet.pool_id();
            self.ring.at(at).write(start, high);
        }
        // Only the last descriptor of a frame may ask for a report: it speaks for every chunk the frame has filled.
        let last = tail.wrapping_sub(1);
        for passed in 1..=boundaries {
            let chunk = (tail / CHUNK).wrapping_sub(passed) & (mask / CHUNK);
            self.reports[chunk] = half_word(last & mask);
        }
        self.counters.bytes += len;
        self.more_segments += frame.len() as u64 - 1;
        // All or nothing: from here on the frame is in flight, and nothing panics until it has left the batch.
        self.foreign = self.foreign.wrapping_add(foreign);
        if self.foreign > 0 {
            self.least = u64::MAX << 32;
        }
        self.tail = tail;
        frame.len()
    }
}
