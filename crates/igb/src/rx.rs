//! Receive queues (82576 datasheet 7.1).

use crate::desc::{DESCRIPTOR_BYTES, Received};
use crate::regs::{RDBAH, RDBAL, RDH, RDLEN, RDT, RXCTL, RXDCTL, SRRCTL, rxctl, rxdctl, srrctl};
use crate::ring::{Ring, RingMemory, Shared};
use crate::wait::{Timed, wait};
use crate::{Config, Error, Result, interrupts};
use device::{Bar as _, Device, Translation};
use ethdev::{RxCounters, RxInfo, RxInfos};
use mempool::{Batch, CHUNK, LentOne, Meta, Packet, Pool, PoolCache, Slot};
use std::fmt;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

/// Descriptors handed back to the device at a time: one doorbell for so many.
const DOORBELL: usize = 32;
/// SRRCTL.DESCTYPE: advanced descriptors, one buffer.
const ONE_BUFFER: u32 = 1;
/// Descriptors that the device fetches ahead, of which so many at once, and writes back together (8.10).
const PREFETCH: u32 = 8;
const HOST: u32 = 8;
const WRITE_BACK: u32 = 1;
/// Buffers of the largest frame that a port can be set to (9238 bytes in buffers of 1 KiB), and some to spare.
const MOST_SEGMENTS: usize = 16;

/// A receive queue: belongs to one thread at a time, and can be moved to another.
///
/// A frame longer than a buffer arrives as a run of packets with [`Packet::continues`] set on all but the last.
///
/// # Invariants
///
/// Every descriptor has a buffer: `slots[i]` is a slot of `pool`, owned by the ring, at descriptor `i`.
///
/// Two threads cannot share a queue:
///
/// ```compile_fail,E0499
/// use ethdev::RxQueue as _;
///
/// fn both<D: device::Device>(
///     queue: &mut igb::RxQueue<D>,
///     pool: &mempool::Pool,
/// ) {
///     std::thread::scope(|s| {
///         s.spawn(|| queue.recv(&mut pool.cache(), &mut mempool::Batch::with_capacity(32)));
///         s.spawn(|| queue.recv(&mut pool.cache(), &mut mempool::Batch::with_capacity(32)));
///     });
/// }
/// ```
pub struct RxQueue<D: Device> {
    ring: Ring,
    slots: Box<[Slot]>,
    /// Descriptors received from so far, free-running: the next one, modulo the size.
    next: usize,
    /// As many of them were handed back to the device.
    announced: usize,
    translation: Arc<Translation>,
    /// The word of a received packet of length 0.
    meta: Meta,
    /// Bytes that the device may write into a buffer.
    buffer: u16,
    /// Buffers of the largest frame.
    most_segments: usize,
    /// The frame that the next descriptors belong to has been given up.
    skipping: bool,
    /// Bytes of the longest frame that the loop takes: `buffer`, but 0 while `skipping`.
    usual_limit: u16,
    index: u32,
    /// All but the number of packets: that is `next`, less the other descriptors.
    counters: RxCounters,
    /// Descriptors that were no frame's first, or whose frame was dropped.
    no_packets: u64,
    pool: Pool,
    /// Used when a caller's cache is of another pool than the ring.
    own_cache: Option<PoolCache>,
    pub(crate) shared: Arc<Shared<D>>,
}

impl<D: Device> RxQueue<D> {
    /// Fills a ring with buffers, programs it and enables the queue (4.5).
    pub(crate) fn start(
        shared: &Arc<Shared<D>>,
        memory: &mut RingMemory,
        index: u32,
        config: &Config,
        pool: &Pool,
        regs: &Timed<D>,
    ) -> Result<Self> {
        let ring = memory.cut(config.port.rx_ring.into());
        let translation = shared.regs.device().dma().map(pool.memory())?;
        // SRRCTL counts in KiB, and a buffer must hold all that the device is told it may write.
        let kib = (pool.data_room() / 1024).min(16);
        let mut cache = pool.cache();
        // Without slots to spare no frame could ever be taken out of the ring.
        let wanted = ring.size() + CHUNK;
        if kib == 0 || cache.reserve(wanted) < wanted {
            let name = shared.regs.device().name().to_owned();
            return Err(Error::Pool {
                device: name,
                slots: pool.slots(),
                ring: ring.size(),
                data_room: pool.data_room(),
            });
        }
        let mut slots = Vec::with_capacity(ring.size());
        let fresh = cache.lend(ring.size());
        slots.extend_from_slice(&fresh);
        // SAFETY: they are kept in the ring.
        unsafe { fresh.used(slots.len()) };
        let buffer = kib * 1024;
        // The lowest bit of a buffer's address is no part of it (7.1.5).
        let headroom = pool.headroom() & !1;
        let mut queue = Self {
            ring,
            slots: slots.into_boxed_slice(),
            next: 0,
            announced: 0,
            translation,
            meta: Meta::new(headroom, 0, pool.id()),
            buffer,
            most_segments: config.max_frame().div_ceil(buffer.into()).min(MOST_SEGMENTS - 1),
            skipping: false,
            usual_limit: buffer,
            index,
            counters: RxCounters::default(),
            no_packets: 0,
            pool: pool.clone(),
            own_cache: None,
            shared: Arc::clone(shared),
        };
        for index in 0..queue.ring.size() {
            queue.post(index);
        }
        queue.program(regs)?;
        Ok(queue)
    }

    fn program(&self, regs: &Timed<D>) -> Result<()> {
        let n = self.index;
        let bytes = (self.ring.size() * DESCRIPTOR_BYTES) as u64;
        let [low, high, len] = [self.ring.iova(), self.ring.iova() >> 32, bytes].map(low_half);
        // Drop frames for a queue without free descriptors instead of holding up all queues.
        let mut buffers = srrctl::BSIZEPACKET.set(srrctl::DROP_EN.mask(), u32::from(self.buffer / 1024));
        buffers = srrctl::BSIZEHEADER.set(buffers, 4);
        buffers = srrctl::DESCTYPE.set(buffers, ONE_BUFFER);
        let dca = rxctl::WB_RO.set(regs.read(RXCTL.at(n)), 0);
        let mut enable = rxdctl::PTHRESH.set(rxdctl::EN.mask(), PREFETCH);
        enable = rxdctl::HTHRESH.set(enable, HOST);
        enable = rxdctl::WTHRESH.set(enable, WRITE_BACK);
        let steps = [
            // Queue 0 is enabled after a reset.
            (RXDCTL.at(n), 0),
            (RDBAL.at(n), low),
            (RDBAH.at(n), high),
            (RDLEN.at(n), len),
            (SRRCTL.at(n), buffers),
            (RDH.at(n), 0),
            (RDT.at(n), 0),
            (RXCTL.at(n), dca),
            (RXDCTL.at(n), enable),
        ];
        for (register, value) in steps {
            // SAFETY: the ring and the buffers in it belong to the device from here until it is known to be quiet;
            // buffers hold as many KiB each.
            unsafe { regs.write_dma(register, value) }
        }
        wait(
            regs,
            RXDCTL.at(n),
            |value| rxdctl::EN.is_set(value),
            Duration::from_millis(50),
            "the receive queue to start",
        )?;
        // The device owns [head, tail): all but the last.
        let tail = low_half(self.ring.mask() as u64);
        // SAFETY: every descriptor has a buffer.
        unsafe { regs.write_dma(RDT.at(n), tail) };
        Ok(())
    }

    /// Returns the number of the queue.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Whether the device has handed over the next descriptor.
    fn has_next(&self) -> bool {
        self.ring.at(self.next).received().is_done()
    }

    /// Receives with a cache of the queue's own.
    #[cold]
    fn recv_own<const INFOS: bool>(&mut self, batch: &mut Batch, infos: &mut [RxInfo]) -> usize {
        let mut own = self.own_cache.take().unwrap_or_else(|| self.pool.cache());
        let received = self.recv_from::<INFOS>(&mut own, batch, infos);
        self.own_cache = Some(own);
        received
    }

    /// Receives what fits into `batch`, and into `infos` if these are wanted. Returns the number of packets.
    #[inline(never)]
    fn recv_from<const INFOS: bool>(
        &mut self,
        cache: &mut PoolCache,
        batch: &mut Batch,
        infos: &mut [RxInfo],
    ) -> usize {
        if batch.spare() == 0 || !self.has_next() {
            return 0;
        }
        let headroom = self.meta.offset();
        if let Translation::Linear { delta } = *self.translation {
            let delta = delta.wrapping_add(headroom.into());
            let iova = |slot: Slot| (slot.as_ptr() as u64).wrapping_add(delta);
            return self.recv_runs::<INFOS>(cache, batch, infos, iova);
        }
        let translation = &*Arc::clone(&self.translation);
        self.recv_runs::<INFOS>(cache, batch, infos, |slot| start_iova(translation, slot, headroom))
    }

    /// Descriptors refilled since the last doorbell.
    #[inline(always)]
    fn unannounced(&self) -> usize {
        self.next.wrapping_sub(self.announced)
    }

    /// Receives run by run, and what is unusual in between; `iova` is where the data of a fresh buffer begins.
    #[inline(always)]
    fn recv_runs<const INFOS: bool>(
        &mut self,
        cache: &mut PoolCache,
        batch: &mut Batch,
        infos: &mut [RxInfo],
        iova: impl Fn(Slot) -> u64 + Copy,
    ) -> usize {
        let before = batch.len();
        let mut dropped = 0;
        while batch.spare() > 0 && self.has_next() {
            let infos = infos.get_mut(batch.len() - before..).unwrap_or_default();
            if self.recv_run::<INFOS>(cache, batch, infos, iova) == 0
                && !self.recv_unusual(cache, batch, &mut dropped, infos)
            {
                break;
            }
        }
        if self.unannounced() >= DOORBELL {
            self.ring_doorbell();
        }
        batch.len() - before
    }

    /// Receives frames of one buffer each, as many as there are room and fresh buffers for up to the end of the ring; stops before
    /// the first that is not there, not good, or longer. Returns how many.
    #[inline(always)]
    fn recv_run<const INFOS: bool>(
        &mut self,
        cache: &mut PoolCache,
        batch: &mut Batch,
        infos: &mut [RxInfo],
        iova: impl Fn(Slot) -> u64,
    ) -> usize {
        let first = self.next & self.ring.mask();
        let room = if INFOS { batch.spare().min(infos.len()) } else { batch.spare() };
        let fresh = cache.lend_some(room);
        let count = fresh.len().min(self.ring.size() - first);
        let (limit, meta) = (self.usual_limit, self.meta.0);
        let descriptors = self.ring.from(first)[..count].iter().zip(&mut self.slots[first..][..count]);
        let places = batch.spare_slots()[..count].iter_mut();
        let (mut taken, mut bytes) = (0, 0);
        for ((descriptor, posted), place) in descriptors.zip(places) {
            // From the top of the cache's stack down.
            // SAFETY: fewer than `count` are taken, and `fresh` has as many at least.
            let fresh = unsafe { fresh.get_unchecked(fresh.len() - 1 - taken) };
            let received = descriptor.received();
            let Some(len) = received.single(limit) else { break };
            if INFOS && let Some(info) = infos.get_mut(taken) {
                *info = received.info(descriptor.first_word());
            }
            descriptor.write(iova(*fresh), 0);
            // The ring owns the fresh slot from here.
            let slot = std::mem::replace(posted, *fresh);
            // SAFETY: the device has done with the slot, which the ring gives up; `len` is within the buffer.
            place.write(unsafe { Packet::from_slot(slot, Meta(meta | u64::from(len) << 16)) });
            bytes += u64::from(len);
            taken += 1;
        }
        // SAFETY: these are the ring's now.
        unsafe { fresh.used(taken) };
        // SAFETY: as many packets were written.
        unsafe { batch.received(taken) };
        self.next = self.next.wrapping_add(taken);
        self.counters.bytes += bytes;
        taken
    }

    /// Deals with a frame in several buffers, a bad one, or nonsense, at the next descriptor, which is done. Returns whether
    /// to go on: not if the rest of it, room in the batch or buffers are missing, nor after a ring full of bad ones in this burst,
    /// of which `dropped` counts the descriptors.
    #[cold]
    #[inline(never)]
    fn recv_unusual(
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
        } else if last.is_bad() {
            Some(&mut self.counters.frame_errors)
        } else if segments > batch.capacity() {
            Some(&mut self.counters.batch_too_small)
        } else {
            let info = last.info(self.ring.at(self.next + segments - 1).first_word());
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
            let start = start_iova(&self.translation, *fresh, self.meta.offset());
            // SAFETY: there is room in the batch, the descriptor is done, and the caller checked its length.
            unsafe { self.exchange(fresh, start, Meta(self.meta.0 | u64::from(len) << 16 | continues), batch) };
        }
        self.no_packets += lens.len() as u64 - 1;
        true
    }

    /// Puts the buffer of the next descriptor into `batch`, as the packet that `meta` describes, and `fresh` in its place, whose data
    /// begins at IOVA `start`.
    ///
    /// # Safety
    ///
    /// There is room in the batch, the device has done with the descriptor, and the length of `meta` is within the buffer.
    #[inline(always)]
    unsafe fn exchange(&mut self, fresh: LentOne<'_>, start: u64, meta: Meta, batch: &mut Batch) {
        let at = self.next & self.ring.mask();
        self.next = self.next.wrapping_add(1);
        // SAFETY: below the size of the ring, and there are as many slots.
        let posted = unsafe { self.slots.get_unchecked_mut(at) };
        // SAFETY: it is in the ring from here on.
        let slot = std::mem::replace(posted, unsafe { fresh.used() });
        self.ring.at(at).write(start, 0);
        // SAFETY: the device has done with the slot, which the ring gives up; the length is within it.
        let packet = unsafe { Packet::from_slot(slot, meta) };
        // SAFETY: there is room, by the caller's word.
        unsafe { batch.spare_slots().get_unchecked_mut(0) }.write(packet);
        // SAFETY: written just now.
        unsafe { batch.received(1) };
        self.counters.bytes += u64::from(meta.len());
    }

    /// Gives descriptor `index` the buffer `slots[index]`.
    fn post(&mut self, index: usize) {
        self.ring.at(index).write(start_iova(&self.translation, self.slots[index], self.meta.offset()), 0);
    }

    /// Hands the refilled descriptors to the device, if it still runs.
    fn ring_doorbell(&mut self) {
        if self.shared.is_quiet() {
            return;
        }
        self.announced = self.next;
        let tail = low_half((self.next.wrapping_sub(1) & self.ring.mask()) as u64);
        // SAFETY: every descriptor has a buffer that belongs to the ring.
        unsafe { self.shared.regs.device().bar().write32(RDT.at(self.index).offset(), tail) }
    }
}

impl<D: Device> ethdev::RxQueue for RxQueue<D> {
    #[inline]
    fn recv<'b>(&mut self, cache: &mut PoolCache, batch: &'b mut Batch) -> &'b mut [Packet] {
        let before = batch.len();
        if cache.pool_id() == self.meta.pool() {
            self.recv_from::<false>(cache, batch, &mut []);
        } else {
            self.recv_own::<false>(batch, &mut []);
        }
        batch.get_mut(before..).unwrap_or_default()
    }

    /// Hash, packet type and checksum verdicts are those that the device wrote back.
    #[inline]
    fn recv_with<'b>(&mut self, cache: &mut PoolCache, batch: &'b mut Batch, infos: &mut RxInfos) -> &'b mut [Packet] {
        let before = batch.len();
        let room = infos.room(batch.spare());
        let count = if cache.pool_id() == self.meta.pool() {
            self.recv_from::<true>(cache, batch, room)
        } else {
            self.recv_own::<true>(batch, room)
        };
        infos.filled(count);
        batch.get_mut(before..).unwrap_or_default()
    }

    fn counters(&self) -> RxCounters {
        RxCounters { packets: (self.next as u64).wrapping_sub(self.no_packets), ..self.counters }
    }

    fn is_ready(&mut self) -> bool {
        self.has_next()
    }

    fn arm(&mut self) -> bool {
        let Some(vector) = self.shared.queue_vector(self.index) else { return false };
        // No wake-up is lost. The vector has been masked since it last fired, or has not fired since it was armed.
        // A frame of before that message was in the ring before the eventfd was signalled. If the signal is cleared
        // here, the look at the ring below comes later and finds the frame; if it comes later, it ends the wait.
        // A frame since then is a cause that the device keeps and that nobody clears, and arming fires for it at once.
        vector.clear();
        interrupts::arm(&self.shared.regs, self.index);
        !self.has_next() && !self.shared.is_closed()
    }

    fn eventfd(&self) -> Option<BorrowedFd<'_>> {
        self.shared.queue_vector(self.index).map(|vector| vector.as_fd())
    }
}

/// Disables receive queue `index` and waits until the device has left it (4.5).
pub(crate) fn disable<D: Device>(regs: &Timed<D>, index: u32) -> Result<()> {
    let value = regs.read(RXDCTL.at(index));
    // SAFETY: disabling takes memory away from the device.
    unsafe { regs.write_dma(RXDCTL.at(index), rxdctl::EN.set(value, 0)) };
    wait(
        regs,
        RXDCTL.at(index),
        |value| !rxdctl::EN.is_set(value),
        Duration::from_millis(100),
        "the receive queue to stop",
    )?;
    Ok(())
}

#[inline(always)]
fn start_iova(translation: &Translation, slot: Slot, headroom: u16) -> u64 {
    translation.iova(slot.as_ptr()).wrapping_add(headroom.into())
}

#[expect(clippy::cast_possible_truncation, reason = "registers take 32 bits at a time")]
pub(crate) const fn low_half(value: u64) -> u32 {
    value as u32
}

impl<D: Device> Drop for RxQueue<D> {
    fn drop(&mut self) {
        let mut parked = self.shared.parking(&self.ring, self.slots.len());
        for slot in &self.slots {
            // SAFETY: the ring gives its slots up; they wait with the ring until the device is quiet.
            parked.push(unsafe { Packet::from_slot(*slot, self.meta) });
        }
        self.shared.park(parked);
    }
}

impl<D: Device> fmt::Debug for RxQueue<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RxQueue").field("index", &self.index).field("ring", &self.ring.size()).finish_non_exhaustive()
    }
}
