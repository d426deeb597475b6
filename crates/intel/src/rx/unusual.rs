//! Frames in several buffers, bad ones, and nonsense.

use super::{MOST_SEGMENTS, RxQueue, start_iova};
use crate::Family;
use crate::desc::Received;
use device::Device;
use ethdev::RxInfo;
use mempool::{Batch, Meta, PoolCache};

impl<F: Family, D: Device> RxQueue<F, D> {
    /// Deals with a frame in several buffers, a bad one, or nonsense, at the next descriptor, which is done. Returns whether
    /// to go on: not if the rest of it, room in the batch or buffers are missing, nor after a ring full of bad ones in this burst,
    /// of which `dropped` counts the descriptors.
    #[cold]
    #[inline(never)]
    pub(super) fn recv_unusual(
        &mut self,
        cache: &mut PoolCache,
        batch: &mut Batch,
        dropped: &mut usize,
        infos: &mut [RxInfo],
    ) -> bool {
        if cache.reserve(1) == 0 {
            // A cache of our own, from a call with another pool's, may have the last.
            self.own_cache = None;
            if cache.reserve(1) == 0 {
                self.counters.no_buffers += 1;
                return false;
            }
        }
        let mut lens = [0; MOST_SEGMENTS];
        // Otherwise the rest of the frame is on its way.
        let Some((segments, bad_length, last)) = self.look_at_frame(&mut lens) else { return false };
        let whole = last.is_last();
        self.usual_limit = if whole { self.buffer } else { 0 };
        let reason = if std::mem::replace(&mut self.skipping, !whole) {
            // The rest of a frame that is counted already.
            None
        } else if !whole {
            Some(&mut self.counters.too_long)
        } else if bad_length {
            Some(&mut self.counters.bad_length)
        } else if last.is_bad::<F>() {
            Some(&mut self.counters.frame_errors)
        } else if segments > batch.capacity() {
            Some(&mut self.counters.batch_too_small)
        } else {
            let info = last.info::<F>(self.ring.at(self.next + segments - 1).first_word(), self.meant);
            let received = self.recv_frame(cache, batch, lens.get(..segments).unwrap_or_default());
            if received {
                infos.iter_mut().take(segments).for_each(|place| *place = info);
            }
            return received;
        };
        if let Some(reason) = reason {
            *reason += 1;
        }
        for _ in 0..segments {
            self.post(self.next & self.ring.mask());
            self.next = self.next.wrapping_add(1);
        }
        self.no_packets += segments as u64;
        *dropped += segments;
        *dropped < self.ring.size()
    }

    /// Reads the descriptors of the frame at the front, each once, up to its last or one more than a frame can have (only one while
    /// skipping). Returns how many, whether a length is wrong, and the last; `None` if one is not done. `lens` gets the lengths.
    fn look_at_frame(&self, lens: &mut [u16; MOST_SEGMENTS]) -> Option<(usize, bool, Received)> {
        let (mut segments, mut bad_length) = (0, false);
        loop {
            let received = self.ring.at(self.next + segments).received();
            if !received.is_done() {
                return None;
            }
            match (received.len(self.buffer), lens.get_mut(segments)) {
                (Some(len), Some(place)) => *place = len,
                _ => bad_length = true,
            }
            segments += 1;
            if received.is_last() || segments > self.most_segments || self.skipping {
                return Some((segments, bad_length, received));
            }
        }
    }

    /// Receives a frame of good buffers with so many bytes in each, as they were when they were checked; false if room or
    /// buffers are missing.
    fn recv_frame(&mut self, cache: &mut PoolCache, batch: &mut Batch, lens: &[u16]) -> bool {
        if batch.spare() < lens.len() {
            return false;
        }
        if cache.reserve(lens.len()) < lens.len() {
            self.counters.no_buffers += 1;
            return false;
        }
        for (&len, left) in lens.iter().zip((0..lens.len()).rev()) {
            let Some(fresh) = cache.lend_one() else { return false };
            let continues = if left > 0 { Meta::CONTINUES } else { 0 };
            let iova = |queue: &Self, slot| start_iova(&queue.translation, slot, queue.meta.offset());
            // SAFETY: there is room in the batch, the descriptor is done, and the caller checked its length.
            unsafe { self.exchange(fresh, iova, Meta(self.meta.0 | u64::from(len) << 16 | continues), batch) };
        }
        self.no_packets += lens.len() as u64 - 1;
        true
    }
}
