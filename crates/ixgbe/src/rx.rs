//! Receive queues (82599 datasheet 7.1).

use crate::desc::{DESCRIPTOR_BYTES, Descriptor};
use crate::regs::{
    DCA_RXCTRL, PSRTYPE, RDBAH, RDBAL, RDH, RDLEN, RDT, RSCCTL, RXDCTL, SRRCTL, dca_rxctrl, rxdctl, srrctl,
};
use crate::ring::{Ring, RingMemory, Shared};
use crate::wait::{Timed, wait};
use crate::{Config, Error, Result};
use device::{Bar as _, Device, Translation};
use mempool::{Batch, CHUNK, Meta, Packet, Pool, PoolCache, Slot};
use std::fmt;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::time::Duration;

/// Descriptors handed back to the device at a time: one doorbell for so many.
const DOORBELL: usize = 32;
/// Buffers of the largest frame that a port can be set to (9238 bytes in buffers of 1 KiB), and some to spare.
const MOST_SEGMENTS: usize = 16;

/// What a receive queue has counted since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RxCounters {
    /// Frames handed to the application.
    pub packets: u64,
    /// Their bytes, without frame check sequence.
    pub bytes: u64,
    /// Frames dropped because the device marked them bad.
    pub frame_errors: u64,
    /// Frames dropped because the device reported a length of 0, or more than the buffer holds.
    pub bad_length: u64,
    /// Frames dropped because they came in more buffers than the largest frame needs.
    pub too_long: u64,
    /// Frames dropped because a batch is too small for their segments.
    pub batch_too_small: u64,
    /// Times that frames were waiting and the pool had no buffer to replace theirs.
    pub no_buffers: u64,
}

impl RxCounters {
    /// Frames that arrived in a descriptor and did not reach the application.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.frame_errors + self.bad_length + self.too_long + self.batch_too_small
    }
}

/// A receive queue: belongs to one thread at a time, and may be sent to another.
///
/// A frame longer than a buffer arrives as a run of packets with [`Packet::continues`] set on all but the last.
///
/// # Invariants
///
/// Every descriptor has a buffer: `slots[i]` is a slot of `pool`, owned by the ring, at descriptor `i`.
///
/// Two threads cannot share it:
///
/// ```compile_fail,E0499
/// fn both<D: device::Device>(
///     queue: &mut ixgbe::RxQueue<D>,
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
    /// The descriptor to be filled next.
    next: usize,
    /// Descriptors refilled since the last doorbell.
    unannounced: usize,
    translation: Arc<Translation>,
    /// IOVA of a buffer's data = address of its slot + this, where the translation is linear.
    linear: Option<u64>,
    /// The word of a received packet of length 0.
    meta: Meta,
    /// Bytes that the device may write into a buffer.
    buffer: u16,
    /// Buffers of the largest frame.
    most_segments: usize,
    /// Descriptors of frames that this call has dropped.
    dropped: usize,
    /// The frame that the next descriptors belong to has been given up.
    skipping: bool,
    index: u32,
    counters: RxCounters,
    pool: Pool,
    /// Used when a caller's cache is of another pool than the ring.
    own_cache: Option<PoolCache>,
    pub(crate) shared: Arc<Shared<D>>,
}

impl<D: Device> RxQueue<D> {
    /// Fills a ring with buffers, programs it and enables the queue (4.6.7.1).
    pub(crate) fn start(
        shared: &Arc<Shared<D>>,
        memory: &mut RingMemory,
        index: u32,
        config: &Config,
        pool: &Pool,
        regs: &Timed<D>,
    ) -> Result<Self> {
        let ring = memory.cut(config.rx_ring.into());
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
        let keep = |taken: &[Slot]| {
            slots.extend_from_slice(taken);
            taken.len()
        };
        // SAFETY: all these slots are reserved; they are kept in the ring.
        unsafe { cache.take(ring.size(), keep) };
        let buffer = kib * 1024;
        let linear = match *translation {
            Translation::Linear { delta } => Some(delta.wrapping_add(pool.headroom().into())),
            Translation::Paged { .. } => None,
        };
        let mut queue = Self {
            ring,
            slots: slots.into_boxed_slice(),
            next: 0,
            unannounced: 0,
            translation,
            linear,
            meta: Meta::new(pool.headroom(), 0, pool.id()),
            buffer,
            most_segments: config.max_frame().div_ceil(buffer.into()).min(MOST_SEGMENTS - 1),
            dropped: 0,
            skipping: false,
            index,
            counters: RxCounters::default(),
            pool: pool.clone(),
            own_cache: None,
            shared: Arc::clone(shared),
        };
        for index in 0..queue.ring.size() {
            queue.post(index);
        }
        queue.program(config, regs)?;
        Ok(queue)
    }

    fn program(&self, config: &Config, regs: &Timed<D>) -> Result<()> {
        let n = self.index;
        let bytes = (self.ring.size() * DESCRIPTOR_BYTES) as u64;
        let [low, high, len] = [self.ring.iova(), self.ring.iova() >> 32, bytes].map(low_half);
        let kib = u32::from(self.buffer / 1024);
        let mut buffers = srrctl::BSIZEPACKET.set(0, kib);
        buffers = srrctl::BSIZEHEADER.set(buffers, 4);
        buffers = srrctl::DESCTYPE.set(buffers, 1);
        buffers = srrctl::DROP_EN.set(buffers, config.drop_en.into());
        let dca = dca_rxctrl::RESERVED_12.set(regs.read(DCA_RXCTRL.at(n)), 0);
        let enable = rxdctl::EN.set(rxdctl::SWFLSH.set(regs.read(RXDCTL.at(n)), 0), 1);
        let steps = [
            (RDBAL.at(n), low),
            (RDBAH.at(n), high),
            (RDLEN.at(n), len),
            (RDH.at(n), 0),
            (RDT.at(n), 0),
            (SRRCTL.at(n), buffers),
            (RSCCTL.at(n), 0),
            (PSRTYPE.at(n), 0),
            (DCA_RXCTRL.at(n), dca),
            (RXDCTL.at(n), enable),
        ];
        for (register, value) in steps {
            // SAFETY: the ring and the buffers in it belong to the device from here until it is known to be quiet;
            // buffers hold `kib` KiB each.
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
        let tail = low_half((self.ring.size() - 1) as u64);
        // SAFETY: every descriptor has a buffer.
        unsafe { regs.write_dma(RDT.at(n), tail) };
        Ok(())
    }

    /// The queue's number.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// What it has counted.
    #[must_use]
    pub fn counters(&self) -> RxCounters {
        self.counters
    }

    /// Whether the device has handed over the next descriptor.
    pub(crate) fn is_ready(&self) -> bool {
        self.ring.at(self.next).received().is_done()
    }

    /// Puts waiting frames at the end of `batch`, as many as fit, and gives the device fresh buffers from `cache` for
    /// theirs. Returns the number of packets (segments); whole frames only. Once the port is closed no more come than had
    /// arrived.
    ///
    /// It waits for nothing but, where a doorbell is a message to another process, the answer to one, 5 s at most. What it does is
    /// bounded, whatever the device writes: it takes as many packets as the batch has room for, and drops bad frames of no
    /// more descriptors than the ring has; the next call goes on from there.
    ///
    /// A `cache` of another pool than the queue's works but is not used.
    #[inline]
    pub fn recv(&mut self, cache: &mut PoolCache, batch: &mut Batch) -> usize {
        if cache.pool_id() == self.meta.pool() { self.recv_from(cache, batch) } else { self.recv_own(batch) }
    }

    /// Receives with a cache of the queue's own.
    #[cold]
    fn recv_own(&mut self, batch: &mut Batch) -> usize {
        let mut own = self.own_cache.take().unwrap_or_else(|| self.pool.cache());
        let received = self.recv_from(&mut own, batch);
        self.own_cache = Some(own);
        received
    }

    fn recv_from(&mut self, cache: &mut PoolCache, batch: &mut Batch) -> usize {
        let before = batch.len();
        self.dropped = 0;
        loop {
            let room = batch.spare();
            let run = cache.reserve(room).min(self.ring.size() - self.next);
            let taken = self.recv_run(cache, batch, run);
            if taken == room {
                break;
            }
            if taken == run && run > 0 {
                // The end of the ring, or of the buffers at hand.
                continue;
            }
            if !self.is_ready() {
                break;
            }
            if run == 0 {
                self.counters.no_buffers += 1;
                break;
            }
            if !self.recv_unusual(cache, batch) {
                break;
            }
        }
        if self.unannounced >= DOORBELL && !self.shared.is_quiet() {
            self.ring_doorbell();
        }
        batch.len() - before
    }

    /// Receives up to `run` frames of one buffer each; stops before the first that is not there, not good, or longer.
    #[inline(always)]
    fn recv_run(&mut self, cache: &mut PoolCache, batch: &mut Batch, run: usize) -> usize {
        let first = self.next;
        debug_assert!(first + run <= self.ring.size() && run <= batch.spare(), "a run fits ring and batch");
        let mut bytes = 0;
        let exchange = Exchange {
            descriptors: self.ring.pointer(first),
            // SAFETY: there are as many slots as descriptors.
            posted: unsafe { self.slots.as_mut_ptr().add(first) },
            packets: batch.spare_slots().as_mut_ptr(),
            count: run,
            limit: self.buffer,
            meta: self.meta,
        };
        let exchange_with = |fresh: &[Slot]| {
            let top = fresh.as_ptr_range().end;
            let done = match self.linear {
                // SAFETY: `fresh` holds `run` slots, and those used are taken off the cache.
                Some(delta) => unsafe { exchange.run(top, delta) },
                None => {
                    let iova = |slot| start_iova(&self.translation, slot, self.meta.offset());
                    // SAFETY: as above.
                    unsafe { exchange.scalar(top, Done::default(), iova) }
                }
            };
            bytes = done.bytes;
            done.count
        };
        // SAFETY: `run` slots are reserved; those used are now the ring's.
        let taken = unsafe { cache.take(run, exchange_with) };
        // SAFETY: as many packets were written.
        unsafe { batch.received(taken) };
        self.next = (first + taken) & (self.ring.size() - 1);
        self.unannounced += taken;
        self.counters.packets += taken as u64;
        self.counters.bytes += bytes;
        taken
    }

    /// Deals with a frame in several buffers, a bad one, or nonsense, at the next descriptor, which is done. Returns whether
    /// to go on: not if the rest of it, room in the batch or buffers are missing, nor after a ring full of bad ones.
    #[cold]
    #[inline(never)]
    fn recv_unusual(&mut self, cache: &mut PoolCache, batch: &mut Batch) -> bool {
        let mut lens = [0; MOST_SEGMENTS];
        let mut segments = 0;
        let mut bad_length = false;
        let last = loop {
            let received = self.ring.at(self.next + segments).received();
            if !received.is_done() {
                // The rest of the frame is on its way.
                return false;
            }
            match (received.len(self.buffer), lens.get_mut(segments)) {
                (Some(len), Some(place)) => *place = len,
                _ => bad_length = true,
            }
            segments += 1;
            if received.is_last() || segments > self.most_segments || self.skipping {
                break received;
            }
        };
        let whole = last.is_last();
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
            return self.recv_frame(cache, batch, lens.get(..segments).unwrap_or_default());
        };
        if let Some(reason) = reason {
            *reason += 1;
        }
        for _ in 0..segments {
            self.post(self.next);
            self.next = (self.next + 1) & (self.ring.size() - 1);
        }
        self.unannounced += segments;
        self.dropped += segments;
        self.dropped < self.ring.size()
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
            // SAFETY: a slot is reserved; it goes into the ring below.
            unsafe { cache.take(1, |fresh| self.exchange(fresh, len, left > 0, batch)) };
        }
        self.counters.packets += 1;
        true
    }

    /// Puts the buffer of the next descriptor into `batch` and `fresh` in its place.
    fn exchange(&mut self, fresh: &[Slot], len: u16, continues: bool, batch: &mut Batch) -> usize {
        let slot = std::mem::replace(&mut self.slots[self.next], fresh[0]);
        self.post(self.next);
        // SAFETY: the device has done with the slot, which the ring gives up; the caller checked `len`.
        let mut packet = unsafe { Packet::from_slot(slot, Meta::new(self.meta.offset(), len, self.meta.pool())) };
        packet.set_continues(continues);
        let pushed = batch.push(packet);
        debug_assert!(pushed.is_ok(), "the caller checked the room");
        self.counters.bytes += u64::from(len);
        self.next = (self.next + 1) & (self.ring.size() - 1);
        self.unannounced += 1;
        1
    }

    /// Gives descriptor `index` the buffer `slots[index]`.
    fn post(&mut self, index: usize) {
        self.ring.at(index).write(start_iova(&self.translation, self.slots[index], self.meta.offset()), 0);
    }

    #[inline]
    fn ring_doorbell(&mut self) {
        self.unannounced = 0;
        let tail = low_half((self.next.wrapping_sub(1) & (self.ring.size() - 1)) as u64);
        // SAFETY: every descriptor has a buffer that belongs to the ring.
        unsafe { self.shared.regs.device().bar().write32(RDT.at(0).offset() + 0x40 * self.index, tail) }
    }
}

/// A run of `count` descriptors whose buffers are exchanged for fresh ones.
///
/// # Invariants
///
/// `descriptors`, `posted` (the buffers they have) and `packets` (where the packets go) point to `count` elements each.
/// As long as DD is set, a descriptor belongs to the driver.
#[derive(Clone, Copy)]
pub(crate) struct Exchange {
    pub(crate) descriptors: *const Descriptor,
    pub(crate) posted: *mut Slot,
    pub(crate) packets: *mut MaybeUninit<Packet>,
    pub(crate) count: usize,
    /// Bytes that fit into a buffer.
    pub(crate) limit: u16,
    /// A received packet's word, but for the length.
    pub(crate) meta: Meta,
}

/// How far a run has come.
#[derive(Clone, Copy, Default)]
pub(crate) struct Done {
    /// Descriptors.
    pub(crate) count: usize,
    /// Bytes in their buffers.
    pub(crate) bytes: u64,
}

impl Exchange {
    /// Exchanges as many buffers as there are good frames of one buffer at the front, for those before `top` (the top
    /// of a cache's stack), from there down. IOVA = pointer + `delta`. Returns how many.
    ///
    /// # Safety
    ///
    /// There are `count` slots before `top`; those used are given up by the cache.
    #[inline(always)]
    unsafe fn run(self, top: *const Slot, delta: u64) -> Done {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        let done = if self.count >= crate::avx2::STEP && crate::avx2::available() {
            // SAFETY: the processor has AVX2; the caller's word for the slots.
            unsafe { self.avx2(top, delta) }
        } else {
            Done::default()
        };
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let done = Done::default();
        // SAFETY: the caller's word.
        unsafe { self.scalar(top, done, |slot| (slot.as_ptr() as u64).wrapping_add(delta)) }
    }

    /// As [`Self::run`], one by one after those of `from`.
    ///
    /// # Safety
    ///
    /// As [`Self::run`].
    #[inline(always)]
    unsafe fn scalar(self, top: *const Slot, from: Done, iova: impl Fn(Slot) -> u64) -> Done {
        let Done { count: mut done, mut bytes } = from;
        while done < self.count {
            // SAFETY: `done < count` elements (type invariant).
            let descriptor = unsafe { self.descriptors.add(done) };
            // SAFETY: as above; both sides use atomics.
            let descriptor = unsafe { &*descriptor };
            let Some(len) = descriptor.received().single(self.limit) else { break };
            // SAFETY: `done < count` slots before the top.
            let fresh = unsafe { top.sub(done + 1) };
            // SAFETY: as above.
            let fresh = unsafe { fresh.read() };
            descriptor.write(iova(fresh), 0);
            // SAFETY: `done < count` elements (type invariant).
            let posted = unsafe { self.posted.add(done) };
            // SAFETY: as above; the ring owns the fresh slot from here.
            let slot = unsafe { posted.replace(fresh) };
            // SAFETY: the device has done with the slot, which the ring gives up; `len` is within the buffer.
            let packet = unsafe { Packet::from_slot(slot, Meta(self.meta.0 | u64::from(len) << 16)) };
            // SAFETY: `done < count` elements (type invariant).
            let place = unsafe { self.packets.add(done) };
            // SAFETY: as above.
            unsafe { place.write(MaybeUninit::new(packet)) };
            bytes += u64::from(len);
            done += 1;
        }
        Done { count: done, bytes }
    }
}

/// Disables receive queue `index` and waits until the device has left it (4.6.7.1.2).
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
