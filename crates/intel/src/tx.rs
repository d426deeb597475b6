//! Transmit queues (82599 datasheet 7.2, 82576 datasheet 7.2).

mod end;
mod reclaim;
mod run;
mod unusual;

pub(crate) use run::Post;
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) use run::usual_words;

use crate::desc::tx;
#[cfg(all(target_arch = "x86_64", not(miri)))]
use crate::loops::Avx2;
use crate::loops::{Done, Loops, OneByOne, Paged, STEP, Way};
use crate::ring::{Ring, RingMemory, START_LIMIT, Shared, Side, low_half};
use crate::wait::{Timed, wait};
use crate::{Family, Result};
use device::{Bar as _, Deadline, Device};
use ethdev::TxCounters;
use mempool::{Batch, CHUNK, KnownPools, Packet, Pool, PoolCache, Slot};
use run::{least_word, usual_word};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use unusual::RefusedPool;

/// Shortest frame the device takes, in bytes without frame check sequence (82599 datasheet 7.2.3.2.4, 82576 datasheet 7.2.2.3); it
/// pads to 60.
const SHORTEST: u16 = 17;

/// A transmit queue: belongs to one thread at a time, and can be moved to another.
///
/// Buffers are taken back lazily, [`CHUNK`] at a time, when the device has reported a whole chunk of descriptors done;
/// up to 31 remain in the ring until more is sent or the port is closed.
///
/// Packets of any pool can be sent. The first packet of a pool waits until that is mapped for the device, which is a
/// system call, or a message to a vfio-user server. The queue keeps the pool until it is dropped, so a program should
/// have a few long-lived pools. If a pool cannot be mapped, the reason is logged, and mapping it is tried again from
/// time to time: once a second, or less often if it takes long to fail. Frames can have 17 to [`Family::LONGEST`] bytes, in as many
/// segments as [`Family::MOST_SEGMENTS`] and the ring's size, less a [`CHUNK`], allow.
///
/// A packet cannot be used after it was sent:
///
/// ```compile_fail,E0382
/// use ethdev::TxQueue as _;
///
/// fn use_after_send<F: intel::Family, D: device::Device>(
///     queue: &mut intel::TxQueue<F, D>,
///     cache: &mut mempool::PoolCache,
///     batch: &mut mempool::Batch,
///     packet: mempool::Packet,
/// ) {
///     let _ = batch.push(packet);
///     queue.send(cache, batch);
///     packet.data();
/// }
/// ```
///
/// # Invariants
///
/// * Descriptors `head..tail` (free-running) are in flight: `slots[i]` is owned by the ring. At most `size - 1` are. Until
///   `tail` has moved beyond it, what a slot's place or a descriptor holds means nothing; when it has moved, the packets are
///   taken out of their batch before anything else is done.
/// * The device knows of those up to `announced`.
/// * `head` is a multiple of [`CHUNK`]; `reports[c]` is the descriptor whose DD says that all of chunk c is done.
/// * If `foreign` is 0, all slots in flight are of the first known pool; else `pools[i]` says of which, and `foreign` of
///   them are of others.
pub struct TxQueue<F: Family, D: Device> {
    ring: Ring,
    head: usize,
    tail: usize,
    announced: usize,
    slots: Box<[Option<Slot>]>,
    pools: Box<[u16]>,
    reports: Box<[u16]>,
    foreign: usize,
    known: KnownPools,
    refused: Vec<RefusedPool>,
    /// Id of the first known pool.
    usual: u16,
    /// The least word of a packet that is sent the usual way: [`least_word`] of that pool. Above any packet's while `foreign` is
    /// not 0.
    least: u64,
    /// For the first known pool.
    way: Way,
    /// IOVA = address + this in that pool, unless the way is `Paged`.
    delta: u64,
    /// Command bits of a frame's last descriptor.
    command: u64,
    index: u32,
    /// All but the number of packets: that is `tail`, less the descriptors of frames beyond their first.
    counters: TxCounters,
    more_segments: u64,
    shared: Arc<Shared<F, D>>,
}

impl<F: Family, D: Device> TxQueue<F, D> {
    /// Programs a ring and enables the queue (82599 datasheet 4.6.8.1, 82576 datasheet 4.5).
    ///
    /// # Errors
    ///
    /// If a queue of this number was started before, or the pool cannot be mapped for the device; [`crate::Error::Timeout`] when the queue does not start,
    /// [`crate::Error::Expired`], [`crate::Error::Gone`].
    ///
    /// # Panics
    ///
    /// When the memory was made for other rings, or the family has no such queue: a mistake of the driver.
    pub fn start(
        memory: &mut RingMemory<F, D>,
        index: u32,
        config: &F::Config,
        pool: &Pool,
        deadline: &Deadline,
    ) -> Result<Self> {
        memory.shared.claim(Side::Transmit, index)?;
        let ring = memory.cut(F::port(config).tx_ring.into());
        let shared = &memory.shared;
        let translation = shared.regs.device().dma().map(pool.memory())?;
        let size = ring.size();
        let report_all = if F::reports_each(config) { tx::RS } else { 0 };
        let mut queue = Self {
            ring,
            head: 0,
            tail: 0,
            announced: 0,
            slots: vec![None; size].into_boxed_slice(),
            pools: vec![0; size].into_boxed_slice(),
            reports: vec![0; size / CHUNK].into_boxed_slice(),
            foreign: 0,
            known: KnownPools::new(pool.clone(), translation),
            refused: Vec::new(),
            usual: 0,
            least: 0,
            way: Way::Paged,
            delta: 0,
            command: tx::DATA | tx::EOP | report_all,
            index,
            counters: TxCounters::default(),
            more_segments: 0,
            shared: Arc::clone(shared),
        };
        queue.first_known_is_usual();
        queue.program(config, &Timed::new(&shared.regs, deadline.clone()))?;
        Ok(queue)
    }

    fn program(&self, config: &F::Config, regs: &Timed<F, D>) -> Result<()> {
        let steps = self.ring.place(regs, &F::TX, self.index);
        for (register, value) in steps.into_iter().chain(F::enable_tx(regs, self.index, config)) {
            // SAFETY: the ring belongs to the device from here until it is known to be quiet, and is empty.
            unsafe { regs.write_dma(register, value) }
        }
        let (control, started) = (F::TX.control.at(self.index), |value| F::TX.enable.is_set(value));
        wait(regs, control, started, START_LIMIT, "the transmit queue to start").map(drop)
    }

    /// Returns the number of the queue.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Descriptors in flight: sent, and not yet seen to be done.
    fn in_use(&self) -> usize {
        self.tail.wrapping_sub(self.head)
    }

    /// Sends a packet that comes alone, the straight way; unusual ones by [`Self::send_rest`]. Returns 1 if it has left the batch.
    #[inline(never)]
    fn send_one(&mut self, cache: &mut PoolCache, batch: &mut Batch) -> usize {
        let [packet] = &**batch else { return self.send_rest(cache, batch, 0) };
        if self.in_use() >= CHUNK || self.shared.is_quiet() || self.way == Way::Paged {
            return self.send_many(cache, batch);
        }
        if !self.post_one(packet) {
            return self.send_rest(cache, batch, 0);
        }
        // SAFETY: the only packet is in the ring.
        unsafe { batch.sent_all() };
        self.ring_doorbell(1)
    }

    /// Posts a packet of the usual pool, unless it is unusual or the last of a chunk. Returns whether the ring has its slot, and the
    /// caller takes it out of the batch. There is room: descriptors in flight begin with a chunk, so the one that must stay free is the
    /// last of one.
    #[inline(always)]
    fn post_one(&mut self, packet: &Packet) -> bool {
        let word = usual_word::<F>(packet.meta(), self.least, self.command);
        let (Some(high), false) = (word, (self.tail + 1).is_multiple_of(CHUNK)) else { return false };
        let (at, slot) = (self.tail & self.ring.mask(), packet.slot());
        let start = (slot.as_ptr() as u64).wrapping_add(self.delta).wrapping_add(packet.offset().into());
        self.counters.bytes = self.counters.bytes.wrapping_add(packet.len() as u64);
        // SAFETY: below the size of the ring, and there are as many slots; the ring owns the slot from here.
        *unsafe { self.slots.get_unchecked_mut(at) } = Some(slot);
        self.ring.at(at).write(start, high);
        self.tail = self.tail.wrapping_add(1);
        true
    }

    /// Sends what the ring takes, with the loops that this processor has.
    #[inline(always)]
    fn send_many(&mut self, cache: &mut PoolCache, batch: &mut Batch) -> usize {
        if self.shared.is_quiet() {
            return 0;
        }
        if self.in_use() >= CHUNK { self.send_reclaiming(cache, batch) } else { self.send_runs(cache, batch) }
    }

    /// [`Self::send_many`] after the device may have sent frames of before.
    #[inline(never)]
    fn send_reclaiming(&mut self, cache: &mut PoolCache, batch: &mut Batch) -> usize {
        self.reclaim(cache);
        self.send_runs(cache, batch)
    }

    #[inline(always)]
    fn send_runs(&mut self, cache: &mut PoolCache, batch: &mut Batch) -> usize {
        match self.way {
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            // SAFETY: the processor has AVX2.
            Way::Avx2 => unsafe { self.send_fours(cache, batch) },
            Way::OneByOne if (1..STEP).contains(&batch.len()) => self.send_few(cache, batch, 0),
            _ => self.send_rest(cache, batch, 0),
        }
    }

    /// Sends frames as the loop for AVX2 takes them, in whole fours. Where there is more to do it goes on elsewhere, as its last
    /// act: calls in between would have it save registers for every burst.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[inline(never)]
    #[target_feature(enable = "avx2")]
    fn send_fours(&mut self, cache: &mut PoolCache, batch: &mut Batch) -> usize {
        if batch.len() < STEP {
            return if batch.is_empty() { 0 } else { self.send_few(cache, batch, 0) };
        }
        // SAFETY: the processor has AVX2.
        let sent = self.post_run(batch, unsafe { Avx2::new(self.delta) }.fours());
        if self.tail.is_multiple_of(CHUNK) {
            return self.send_rest(cache, batch, sent);
        }
        if sent < batch.len() {
            return self.send_few(cache, batch, sent);
        }
        // SAFETY: all packets are in the ring.
        unsafe { batch.sent_all() };
        self.ring_doorbell(sent)
    }

    /// Goes on behind the first `sent` packets, which the ring has and which end no chunk, one by one, for which less is made ready.
    /// Returns the number of packets that have left the batch then.
    #[inline(never)]
    fn send_few(&mut self, cache: &mut PoolCache, batch: &mut Batch, mut sent: usize) -> usize {
        while let Some(packet) = batch.get(sent) {
            if !self.post_one(packet) {
                return self.send_rest(cache, batch, sent);
            }
            sent += 1;
        }
        // SAFETY: all packets are in the ring.
        unsafe { batch.sent_all() };
        self.ring_doorbell(sent)
    }

    /// Goes on behind the first `sent` packets, which the ring has: at the end of a chunk, an unusual frame, or where the ring is
    /// full. Returns the number of packets that have left the batch then.
    #[inline(never)]
    fn send_rest(&mut self, cache: &mut PoolCache, batch: &mut Batch, sent: usize) -> usize {
        let mut packets = batch.sending();
        // SAFETY: the ring has taken over the slots of these packets.
        unsafe { packets.take(sent) };
        if sent > 0 && self.tail.is_multiple_of(CHUNK) {
            self.end_chunk();
        }
        while !packets.is_empty() {
            let sent = self.send_next(&packets);
            // SAFETY: the ring has taken over the slots of these packets.
            unsafe { packets.take(sent) };
            if sent == 0 && !self.send_unusual(cache, &mut packets) {
                break;
            }
        }
        let sent = packets.taken();
        if self.tail == self.announced { sent } else { self.ring_doorbell(sent) }
    }

    /// [`Self::send_run`] with the loops for what the usual pool is now: an unusual frame before may have made its own pool that.
    fn send_next(&mut self, packets: &[Packet]) -> usize {
        match self.way {
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            // SAFETY: the processor has AVX2.
            Way::Avx2 => unsafe { self.send_run_avx2(packets) },
            Way::OneByOne => self.send_run(packets, OneByOne { delta: self.delta }),
            Way::Paged => {
                // The first known pool is the usual one.
                let translation = &*Arc::clone(self.known.usual().1);
                self.send_run(packets, Paged { translation, offset: 0 })
            }
        }
    }

    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[inline(never)]
    #[target_feature(enable = "avx2")]
    fn send_run_avx2(&mut self, packets: &[Packet]) -> usize {
        // SAFETY: the processor has AVX2.
        self.send_run(packets, unsafe { Avx2::new(self.delta) })
    }

    /// [`Self::post_run`], and has the device report a chunk that is full then.
    #[inline(always)]
    fn send_run(&mut self, packets: &[Packet], loops: impl Loops) -> usize {
        let sent = self.post_run(packets, loops);
        if sent > 0 && self.tail.is_multiple_of(CHUNK) {
            self.end_chunk();
        }
        sent
    }

    /// Sends frames of one segment from the usual pool, as many as there is room for within one chunk, up to the first that is
    /// not such; `loops` are for that pool. Returns how many; the ring has their slots, and the caller takes them out of the batch
    /// and ends the chunk that is full then.
    #[inline(always)]
    fn post_run(&mut self, packets: &[Packet], loops: impl Loops) -> usize {
        let most = packets.len().min(CHUNK - self.tail % CHUNK).min(self.ring.mask() - self.in_use());
        // SAFETY: not more than there are.
        let packets = unsafe { packets.get_unchecked(..most) };
        let first = self.tail & self.ring.mask();
        let post = Post::<F> {
            descriptors: self.ring.pointer(first),
            // SAFETY: there are as many slots as descriptors; a run ends with a chunk, so at the ring's end at the latest.
            slots: unsafe { self.slots.as_mut_ptr().add(first) },
            least: self.least,
            command: self.command,
            family: PhantomData,
        };
        // SAFETY: there are descriptors and slots for all these packets.
        let Done { count: sent, bytes } = unsafe { loops.post(post, packets) };
        self.counters.bytes = self.counters.bytes.wrapping_add(bytes);
        self.tail = self.tail.wrapping_add(sent);
        sent
    }

    /// Has the device report the chunk that ends with the descriptor before the tail.
    #[inline(never)]
    fn end_chunk(&mut self) {
        let last = self.tail.wrapping_sub(1) & self.ring.mask();
        self.ring.at(last).ask_for_report();
        if let Some(report) = self.reports.get_mut(last / CHUNK) {
            *report = half_word(last);
        }
    }

    /// Shows the device what was posted. Returns `sent`, as the last act of a burst.
    #[inline(always)]
    fn ring_doorbell(&mut self, sent: usize) -> usize {
        self.announced = self.tail;
        let tail = low_half((self.tail & self.ring.mask()) as u64);
        // SAFETY: all descriptors up to the tail name buffers that belong to the ring.
        unsafe { self.shared.regs.device().bar().write32(F::TX.doorbell(self.index), tail) }
        sent
    }
}

impl<F: Family, D: Device> ethdev::TxQueue for TxQueue<F, D> {
    #[inline]
    fn send(&mut self, cache: &mut PoolCache, batch: &mut Batch) -> usize {
        if batch.len() == 1 { self.send_one(cache, batch) } else { self.send_many(cache, batch) }
    }

    fn counters(&self) -> TxCounters {
        TxCounters { packets: (self.tail as u64).wrapping_sub(self.more_segments), ..self.counters }
    }

    fn in_flight(&self) -> usize {
        self.in_use()
    }
}

#[expect(clippy::cast_possible_truncation, reason = "rings have at most 4096 descriptors")]
const fn half_word(index: usize) -> u16 {
    index as u16
}

impl<F: Family, D: Device> fmt::Debug for TxQueue<F, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TxQueue").field("index", &self.index).field("in_flight", &self.in_use()).finish_non_exhaustive()
    }
}
