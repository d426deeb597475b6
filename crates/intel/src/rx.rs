//! Receive queues (82599 datasheet 7.1, 82576 datasheet 7.1).

mod run;
mod start;
mod unusual;

pub(crate) use run::{Exchange, Infos};

use crate::Family;
#[cfg(all(target_arch = "x86_64", not(miri)))]
use crate::loops::Avx2;
use crate::loops::{Done, Loops, OneByOne, Paged, STEP, Way};
use crate::ring::{Ring, Shared, low_half};
use device::{Bar as _, Device, Translation};
use ethdev::{RxCounters, RxInfo, RxInfos};
use mempool::{Batch, LentOne, Meta, Packet, Pool, PoolCache, Slot};
use run::NoInfos;
use std::fmt;
use std::marker::PhantomData;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;

/// Descriptors handed back to the device at a time: one doorbell for so many.
const DOORBELL: usize = 32;
/// Buffers of the largest frame that a port can be set to (9242 bytes in buffers of 1 KiB), and some to spare.
const MOST_SEGMENTS: usize = 16;

/// A receive queue: belongs to one thread at a time, and can be moved to another.
///
/// A frame longer than a buffer arrives as a run of packets with [`Packet::continues`] set on all but the last.
///
/// Two threads cannot share a queue:
///
/// ```compile_fail,E0499
/// use ethdev::RxQueue as _;
///
/// fn both<F: intel::Family, D: device::Device>(queue: &mut intel::RxQueue<F, D>, pool: &mempool::Pool) {
///     std::thread::scope(|s| {
///         s.spawn(|| queue.recv(&mut pool.cache(), &mut mempool::Batch::with_capacity(32)));
///         s.spawn(|| queue.recv(&mut pool.cache(), &mut mempool::Batch::with_capacity(32)));
///     });
/// }
/// ```
///
/// # Invariants
///
/// Every descriptor has a buffer: `slots[i]` is a slot of `pool`, owned by the ring, at descriptor `i`.
pub struct RxQueue<F: Family, D: Device> {
    ring: Ring,
    slots: Box<[Slot]>,
    /// Descriptors received from so far, free-running: the next one, modulo the size.
    next: usize,
    /// As many of them were handed back to the device.
    announced: usize,
    translation: Arc<Translation>,
    way: Way,
    /// IOVA of a buffer's data = address of its slot + this, unless the way is `Paged`.
    delta: u64,
    /// The word of a received packet of length 0.
    meta: Meta,
    /// Bytes that the device may write into a buffer.
    buffer: u16,
    /// Buffers of the largest frame.
    most_segments: usize,
    /// The frame that the next descriptors belong to has been given up.
    skipping: bool,
    /// Bytes of the longest frame that the straight path and the loops take: `buffer`, but 0 while `skipping`.
    usual_limit: u16,
    /// Bits of a write-back's words that mean what [`RxInfo`] says of them: not VP where no tags are stripped (82599 datasheet 7.1.6.2).
    meant: [u64; 2],
    index: u32,
    /// All but the number of packets: that is `next`, less the other descriptors.
    counters: RxCounters,
    /// Descriptors that were no frame's first, or whose frame was dropped.
    no_packets: u64,
    pool: Pool,
    /// Used when a caller's cache is of another pool than the ring.
    own_cache: Option<PoolCache>,
    shared: Arc<Shared<F, D>>,
}

impl<F: Family, D: Device> RxQueue<F, D> {
    /// Returns the number of the queue.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Whether the device has handed over the descriptor that is so many behind the next.
    #[inline(always)]
    fn is_done(&self, behind: usize) -> bool {
        self.ring.at(self.next + behind).received().is_done()
    }

    /// Receives with a cache of the queue's own.
    #[cold]
    fn recv_own(&mut self, batch: &mut Batch, infos: impl Infos) {
        let mut own = self.own_cache.take().unwrap_or_else(|| self.pool.cache());
        self.recv_many(&mut own, batch, infos);
        self.own_cache = Some(own);
    }

    /// Receives what fits into `batch`. A frame that came alone takes the straight way here.
    #[inline(never)]
    fn recv_from<I: Infos>(&mut self, cache: &mut PoolCache, batch: &mut Batch, mut infos: I) {
        let room = batch.spare();
        if room == 0 {
            return infos.clear();
        }
        // The first alone tells an empty poll: the device is about to write those behind it, which may lie in another cache line.
        let descriptor = self.ring.at(self.next);
        let received = descriptor.received();
        if !received.is_done() {
            return infos.clear();
        }
        if room >= STEP && self.is_done(STEP - 1) {
            return self.recv_many(cache, batch, infos);
        }
        if room > 1 && self.is_done(1) {
            return self.recv_few(cache, batch, infos, 0);
        }
        if !infos.have_room(1) {
            return self.recv_rest(cache, batch, infos, 0);
        }
        // Before the frame is known to be usual: the words are at hand.
        if let [place, ..] = infos.places(0, 1) {
            *place = received.info::<F>(descriptor.first_word(), self.meant);
        }
        let Some(len) = received.single::<F>(self.usual_limit) else {
            return self.recv_rest(cache, batch, infos, 0);
        };
        if self.way == Way::Paged || cache.is_empty() {
            return self.recv_rest(cache, batch, infos, 0);
        }
        let Some(fresh) = cache.lend_one() else { return infos.clear() };
        let iova = |queue: &Self, slot: Slot| (slot.as_ptr() as u64).wrapping_add(queue.delta);
        // SAFETY: there is room in the batch, and the device has written so many bytes.
        unsafe { self.exchange(fresh, iova, Meta(self.meta.0 | u64::from(len) << 16), batch) };
        self.end_burst(infos, 1);
    }

    /// Ends a burst of `taken` packets. Rings the doorbell when it is time to.
    #[inline(always)]
    fn end_burst(&mut self, infos: impl Infos, taken: usize) {
        infos.filled(taken);
        if self.next.wrapping_sub(self.announced) >= DOORBELL {
            self.ring_doorbell();
        }
    }

    /// Receives what fits into `batch`, with the loops that this processor has.
    #[inline(always)]
    fn recv_many(&mut self, cache: &mut PoolCache, batch: &mut Batch, infos: impl Infos) {
        match self.way {
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            // SAFETY: the processor has AVX2.
            Way::Avx2 => unsafe { self.recv_fours(cache, batch, infos) },
            _ => self.recv_few(cache, batch, infos, 0),
        }
    }

    /// Receives frames as the loop for AVX2 takes them, in whole fours. Where there is more to do it goes on elsewhere, as its last
    /// act: calls in between would have it save registers for every burst.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[inline(never)]
    #[target_feature(enable = "avx2")]
    fn recv_fours<I: Infos>(&mut self, cache: &mut PoolCache, batch: &mut Batch, mut infos: I) {
        let room = batch.spare();
        if cache.len() < room || !infos.have_room(room) {
            return self.recv_rest(cache, batch, infos, 0);
        }
        // SAFETY: the processor has AVX2.
        let loops = unsafe { Avx2::new(self.delta) };
        let taken = self.recv_run::<I>(cache, batch, loops.fours(), infos.places(0, room));
        if taken < room && self.is_done(0) {
            return self.recv_few(cache, batch, infos, taken);
        }
        self.end_burst(infos, taken);
    }

    /// Goes on behind a run of `taken` frames, as [`Self::recv_fours`] does but one by one, for which less is made ready.
    #[inline(never)]
    fn recv_few<I: Infos>(&mut self, cache: &mut PoolCache, batch: &mut Batch, mut infos: I, taken: usize) {
        let room = batch.spare();
        if cache.len() < room || self.way == Way::Paged || !infos.have_room(taken + room) {
            return self.recv_rest(cache, batch, infos, taken);
        }
        let places = infos.places(taken, room);
        let more = self.recv_run::<I>(cache, batch, OneByOne { delta: self.delta }, places);
        if more < room && self.is_done(0) {
            return self.recv_rest(cache, batch, infos, taken + more);
        }
        self.end_burst(infos, taken + more);
    }

    /// Goes on behind a run of `taken` frames.
    #[inline(never)]
    fn recv_rest<I: Infos>(&mut self, cache: &mut PoolCache, batch: &mut Batch, mut infos: I, taken: usize) {
        infos.make_room(taken + batch.spare());
        match self.way {
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            // SAFETY: the processor has AVX2.
            Way::Avx2 => unsafe { self.recv_rest_avx2(cache, batch, infos, taken) },
            Way::Paged => {
                let translation = &*Arc::clone(&self.translation);
                self.recv_runs(cache, batch, Paged { translation, offset: self.meta.offset() }, infos, taken)
            }
            _ => self.recv_runs(cache, batch, OneByOne { delta: self.delta }, infos, taken),
        }
    }

    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[target_feature(enable = "avx2")]
    fn recv_rest_avx2<I: Infos>(&mut self, cache: &mut PoolCache, batch: &mut Batch, infos: I, taken: usize) {
        // SAFETY: the processor has AVX2.
        self.recv_runs(cache, batch, unsafe { Avx2::new(self.delta) }, infos, taken)
    }

    /// [`Self::recv_rest`]: run by run, and what is unusual in between.
    #[inline(always)]
    fn recv_runs<I: Infos>(
        &mut self,
        cache: &mut PoolCache,
        batch: &mut Batch,
        loops: impl Loops,
        mut infos: I,
        taken: usize,
    ) {
        let before = batch.len() - taken;
        let mut dropped = 0;
        while batch.spare() > 0 && self.is_done(0) {
            let places = infos.places(batch.len() - before, batch.spare());
            if self.recv_run::<I>(cache, batch, loops, places) == 0
                && !self.recv_unusual(cache, batch, &mut dropped, places)
            {
                break;
            }
        }
        self.end_burst(infos, batch.len() - before);
    }

    /// Receives frames of one buffer each, as many as there are room and fresh buffers for up to the end of the ring; stops before
    /// the first that is not there, not good, or longer. Returns how many. There is room for an info for each, if infos are wanted.
    #[inline(always)]
    fn recv_run<I: Infos>(
        &mut self,
        cache: &mut PoolCache,
        batch: &mut Batch,
        loops: impl Loops,
        infos: &mut [RxInfo],
    ) -> usize {
        let first = self.next & self.ring.mask();
        let fresh = cache.lend_some(batch.spare());
        let mut count = fresh.len().min(self.ring.size() - first);
        if I::WANTED {
            count = count.min(infos.len());
        }
        let exchange = Exchange::<F, I> {
            descriptors: self.ring.pointer(first),
            // SAFETY: there are as many slots as descriptors.
            posted: unsafe { self.slots.as_mut_ptr().add(first) },
            packets: batch.spare_slots().as_mut_ptr(),
            infos: infos.as_mut_ptr(),
            kind: PhantomData,
            meant: self.meant,
            count,
            limit: self.usual_limit,
            meta: self.meta,
        };
        // SAFETY: `fresh` holds as many slots at least, and those used are taken off the cache.
        let Done { count: taken, bytes } = unsafe { loops.exchange(exchange, fresh.as_ptr_range().end) };
        // SAFETY: these are the ring's now.
        unsafe { fresh.used(taken) };
        // SAFETY: as many packets were written.
        unsafe { batch.received(taken) };
        self.next = self.next.wrapping_add(taken);
        self.counters.bytes += bytes;
        taken
    }

    /// Puts the buffer of the next descriptor into `batch`, as the packet that `meta` describes, and `fresh` in its place, whose
    /// data begins at `iova`.
    ///
    /// # Safety
    ///
    /// There is room in the batch, the device has done with the descriptor, and the length of `meta` is within the buffer.
    #[inline(always)]
    unsafe fn exchange(
        &mut self,
        fresh: LentOne<'_>,
        iova: impl FnOnce(&Self, Slot) -> u64,
        meta: Meta,
        batch: &mut Batch,
    ) {
        let at = self.next & self.ring.mask();
        // SAFETY: it is in the ring from here on.
        let fresh = unsafe { fresh.used() };
        // SAFETY: below the size of the ring, and there are as many slots.
        let posted = unsafe { self.slots.get_unchecked_mut(at) };
        let slot = std::mem::replace(posted, fresh);
        self.ring.at(at).write(iova(self, fresh), 0);
        // SAFETY: the device has done with the slot, which the ring gives up; the length is within it.
        let packet = unsafe { Packet::from_slot(slot, meta) };
        // SAFETY: there is room, by the caller's word.
        unsafe { batch.spare_slots().get_unchecked_mut(0) }.write(packet);
        // SAFETY: written just now.
        unsafe { batch.received(1) };
        self.counters.bytes += u64::from(meta.len());
        self.next = self.next.wrapping_add(1);
    }

    /// Gives descriptor `index` the buffer `slots[index]`.
    fn post(&mut self, index: usize) {
        self.ring.at(index).write(start_iova(&self.translation, self.slots[index], self.meta.offset()), 0);
    }

    /// Hands the refilled descriptors to the device, if it still runs.
    #[inline(never)]
    fn ring_doorbell(&mut self) {
        if self.shared.is_quiet() {
            return;
        }
        self.announced = self.next;
        let tail = low_half((self.next.wrapping_sub(1) & self.ring.mask()) as u64);
        // SAFETY: every descriptor has a buffer that belongs to the ring.
        unsafe { self.shared.regs.device().bar().write32(F::RX.doorbell(self.index), tail) }
    }

    /// See [`ethdev::RxQueue`].
    #[inline(always)]
    fn recv_by<'b>(&mut self, cache: &mut PoolCache, batch: &'b mut Batch, infos: impl Infos) -> &'b mut [Packet] {
        let before = batch.len();
        if cache.pool_id() == self.meta.pool() {
            self.recv_from(cache, batch, infos);
        } else {
            self.recv_own(batch, infos);
        }
        batch.get_mut(before..).unwrap_or_default()
    }
}

impl<F: Family, D: Device> ethdev::RxQueue for RxQueue<F, D> {
    #[inline]
    fn recv<'b>(&mut self, cache: &mut PoolCache, batch: &'b mut Batch) -> &'b mut [Packet] {
        self.recv_by(cache, batch, NoInfos)
    }

    /// The values are those that the device wrote back: hash, packet type, VLAN tag if tags are stripped, and checksum verdicts.
    #[inline]
    fn recv_with<'b>(&mut self, cache: &mut PoolCache, batch: &'b mut Batch, infos: &mut RxInfos) -> &'b mut [Packet] {
        self.recv_by(cache, batch, infos)
    }

    fn counters(&self) -> RxCounters {
        RxCounters { packets: (self.next as u64).wrapping_sub(self.no_packets), ..self.counters }
    }

    fn is_ready(&mut self) -> bool {
        self.is_done(0)
    }

    fn arm(&mut self) -> bool {
        let Some(vector) = self.shared.queue_vector(self.index) else { return false };
        // No wake-up is lost. The vector has been masked since it last fired, or has not fired since it was armed.
        // A frame of before that message was in the ring before the eventfd was signalled. If the signal is cleared
        // here, the look at the ring below comes later and finds the frame; if it comes later, it ends the wait.
        // A frame since then is a cause that the device keeps and that nobody clears, and arming fires for it at once.
        vector.clear();
        F::arm(&self.shared.regs, self.index);
        !self.is_done(0) && !self.shared.is_closed()
    }

    fn eventfd(&self) -> Option<BorrowedFd<'_>> {
        self.shared.queue_vector(self.index).map(|vector| vector.as_fd())
    }
}

#[inline(always)]
fn start_iova(translation: &Translation, slot: Slot, headroom: u16) -> u64 {
    translation.iova(slot.as_ptr()).wrapping_add(headroom.into())
}

impl<F: Family, D: Device> Drop for RxQueue<F, D> {
    fn drop(&mut self) {
        let mut parked = self.shared.parking(&self.ring, self.slots.len());
        for slot in &self.slots {
            // SAFETY: the ring gives its slots up; they wait with the ring until the device is quiet.
            parked.push(unsafe { Packet::from_slot(*slot, self.meta) });
        }
        self.shared.park(parked);
    }
}

impl<F: Family, D: Device> fmt::Debug for RxQueue<F, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RxQueue").field("index", &self.index).field("ring", &self.ring.size()).finish_non_exhaustive()
    }
}
