//! Frames that are not a good one of a buffer: in several buffers, with a checksum to be completed, or wrong; and what is reported of
//! frames.

use super::RxBuffers;
use crate::rss::with_report;
use crate::rx_header::{HASH, RxHeader};
use crate::session::Header;
use ethdev::RxInfos;
use mempool::{Batch, Meta, Packet, PoolCache, Slot};

impl RxBuffers {
    pub(super) fn is_amid_frame(&self) -> bool {
        self.frame.len() | usize::from(self.skipping) != 0
    }

    /// Deals with a buffer that did not look like a good frame of its own. The device may have made its header one since: what
    /// is read here is what counts.
    #[cold]
    #[inline(never)]
    pub(super) fn recv_buffer(&mut self, slot: Slot, used: u32, header: &Header, batch: usize, cache: &mut PoolCache) {
        let room = u32::from(self.data_room + header.len);
        // The device filled the buffer, says the ring.
        let len = if used == u32::MAX { room } else { used };
        let first = self.missing_segments == 0;
        let start = self.data_at - header.len;
        let reason = if self.skipping > 0 {
            self.skipping -= 1;
            None
        } else if first {
            if len <= header.len.into() || len > room {
                Some(&mut self.counters.bad_length)
            } else {
                // SAFETY: a buffer of the queue's has room for the header in front of the data, which begins at an even place.
                let fields = unsafe { RxHeader::read_once(slot, start.into(), header.mergeable) };
                let buffers = fields.buffers;
                self.skipping = buffers.saturating_sub(1);
                let meta = self.meta(self.data_at, len - u32::from(header.len));
                // SAFETY: as above.
                let checksum = unsafe { fields.checksum(slot, start.into(), header) };
                match checksum.and_then(|checksum| meta.with_checksum(checksum)) {
                    None => Some(&mut self.counters.frame_errors),
                    Some(_) if buffers == 0 => Some(&mut self.counters.frame_errors),
                    Some(_) if usize::from(buffers) > self.most_segments => Some(&mut self.counters.too_long),
                    Some(_) if usize::from(buffers) > batch => Some(&mut self.counters.batch_too_small),
                    Some(meta) => {
                        self.skipping = 0;
                        self.missing_segments = buffers;
                        return self.add_segment(slot, meta);
                    }
                }
            }
        } else if len == 0 || len > room {
            self.skipping = self.missing_segments - 1;
            self.missing_segments = 0;
            for packet in self.frame.drain(..) {
                cache.free(packet);
            }
            Some(&mut self.counters.bad_length)
        } else {
            return self.add_segment(slot, self.meta(start, len));
        };
        if let Some(reason) = reason {
            *reason += 1;
        }
        // SAFETY: the device has done with the slot, which is of this pool and owned here.
        cache.free(unsafe { Packet::from_slot(slot, Meta::new(0, 0, self.pool_id)) });
    }

    /// Of a segment of `len` bytes in a buffer, which the caller has checked.
    fn meta(&self, offset: u16, len: u32) -> Meta {
        Meta::new(offset, u16::try_from(len).unwrap_or(0), self.pool_id)
    }

    /// Adds a segment, of [`Self::meta`], to the frame.
    fn add_segment(&mut self, slot: Slot, meta: Meta) {
        self.missing_segments -= 1;
        // SAFETY: the device has done with the slot, which is of this pool and owned here; offset and length are within it.
        let mut packet = unsafe { Packet::from_slot(slot, meta) };
        packet.set_continues(self.missing_segments > 0);
        self.frame.push(packet);
    }

    /// Says what is reported of packets that were received.
    #[inline(never)]
    pub(super) fn describe(&self, packets: &mut [Packet], infos: &mut RxInfos) {
        infos.describe(packets);
        if self.has_hashes {
            add_hashes(packets, infos);
        }
    }

    /// Moves a complete frame into the batch; whether it had the room.
    #[cold]
    pub(super) fn deliver_frame(&mut self, batch: &mut Batch) -> bool {
        if self.frame.len() > batch.capacity() {
            self.counters.batch_too_small += 1;
            self.frame.clear();
            return true;
        }
        if self.frame.len() > batch.spare() {
            return false;
        }
        self.is_reported = true;
        self.published.add_frame(self.frame.iter().map(Packet::len).sum());
        for packet in self.frame.drain(..) {
            let pushed = batch.push(packet);
            debug_assert!(pushed.is_ok(), "the room was checked");
        }
        true
    }
}

/// Adds what headers say of hashes: that of a frame's first packet, for all of them.
#[inline(never)]
fn add_hashes(packets: &mut [Packet], infos: &mut RxInfos) {
    let count = packets.len();
    let (mut is_first, mut hash, mut report) = (true, 0, 0);
    for (packet, info) in packets.iter_mut().zip(infos.room(count)) {
        if is_first {
            // In front of the data, where the header ended.
            if let Some(&mut [h0, h1, h2, h3, r0, r1, ..]) = packet.prepend(HASH) {
                (hash, report) = (u32::from_le_bytes([h0, h1, h2, h3]), u16::from_le_bytes([r0, r1]));
            }
            packet.trim_front(HASH);
        }
        is_first = !packet.continues();
        *info = with_report(*info, hash, report);
    }
    infos.filled(count);
}
