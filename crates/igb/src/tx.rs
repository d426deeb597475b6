//! Transmit queues (82576 datasheet 7.2).

use crate::desc::{DESCRIPTOR_BYTES, tx};
use crate::regs::{TDBAH, TDBAL, TDH, TDLEN, TDT, TDWBAH, TDWBAL, TXCTL, TXDCTL, txctl, txdctl};
use crate::ring::{Ring, RingMemory, Shared};
use crate::rx::low_half;
use crate::wait::{Timed, read, wait};
use crate::{Config, Error, Result};
use device::{Bar as _, Device, Translation};
use ethdev::TxCounters;
use mempool::{Batch, CHUNK, Meta, Packet, Pool, PoolCache, Sending, Slot, complete_checksum};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Shortest frame the device takes, in bytes without frame check sequence (7.2.2.3); it pads to 60.
const SHORTEST: u16 = 17;
/// Longest frame the device takes, in bytes without frame check sequence (7.2.1: 9.5 KiB).
const LONGEST: u16 = 9724;

/// Most descriptors of a frame. The smallest ring has room for them beside an unfinished chunk, or they would wait for ever.
const MOST_SEGMENTS: usize = 32;

/// TXDCTL's thresholds in descriptors (8.12): fetch when fewer than so many are held, and so many wait; write back each.
const PREFETCH: u32 = 16;
const HOST: u32 = 8;

/// A pool whose packets this queue has sent. The handle keeps the id from being given to another pool.
struct KnownPool {
    pool: Pool,
    translation: Arc<Translation>,
}

/// A pool that could not be mapped, and when to try again. The handle keeps the id from being given to another pool.
struct RefusedPool {
    pool: Pool,
    again: Instant,
}

/// Pools that a queue remembers as refused; of more than these each is tried again whenever it comes.
const MOST_REFUSED: usize = 16;
/// Least time between two tries to map a pool.
const MAP_AGAIN: Duration = Duration::from_secs(1);
/// It also waits so many times longer than a try took.
const MAP_AGAIN_FACTOR: u32 = 10;

/// A transmit queue: belongs to one thread at a time, and can be moved to another.
///
/// Buffers are taken back lazily, [`CHUNK`] at a time, when the device has reported a whole chunk of descriptors done;
/// up to 31 remain in the ring until more is sent or the port is closed.
///
/// Packets of any pool can be sent. The first packet of a pool waits until that is mapped for the device, which is a
/// system call, or a message to a vfio-user server. The queue keeps the pool until it is dropped, so a program should
/// have a few long-lived pools. If a pool cannot be mapped, the reason is logged, and mapping it is tried again from
/// time to time: once a second, or less often if it takes long to fail. Frames can have 17 to 9,724 bytes in up to 32
/// segments.
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
///
/// A packet cannot be used after it was sent:
///
/// ```compile_fail,E0382
/// use ethdev::TxQueue as _;
///
/// fn use_after_send<D: device::Device>(
///     queue: &mut igb::TxQueue<D>,
///     cache: &mut mempool::PoolCache,
///     batch: &mut mempool::Batch,
///     packet: mempool::Packet,
/// ) {
///     let _ = batch.push(packet);
///     queue.send(cache, batch);
///     packet.data();
/// }
/// ```
pub struct TxQueue<D: Device> {
    ring: Ring,
    head: usize,
    tail: usize,
    announced: usize,
    slots: Box<[Option<Slot>]>,
    pools: Box<[u16]>,
    reports: Box<[u16]>,
    foreign: usize,
    known: Vec<KnownPool>,
    refused: Vec<RefusedPool>,
    /// Id of the first known pool.
    usual: u16,
    /// The least word of a packet that is sent the usual way: [`least_word`] of that pool. Above any packet's while `foreign` is
    /// not 0.
    least: u64,
    index: u32,
    /// All but the number of packets: that is `tail`, less the descriptors of frames beyond their first.
    counters: TxCounters,
    more_segments: u64,
    shared: Arc<Shared<D>>,
}

impl<D: Device> TxQueue<D> {
    /// Programs a ring and enables the queue (4.5).
    pub(crate) fn start(
        shared: &Arc<Shared<D>>,
        memory: &mut RingMemory,
        index: u32,
        config: &Config,
        pool: &Pool,
        regs: &Timed<D>,
    ) -> Result<Self> {
        let ring = memory.cut(config.port.tx_ring.into());
        let translation = shared.regs.device().dma().map(pool.memory())?;
        let size = ring.size();
        let mut queue = Self {
            ring,
            head: 0,
            tail: 0,
            announced: 0,
            slots: vec![None; size].into_boxed_slice(),
            pools: vec![0; size].into_boxed_slice(),
            reports: vec![0; size / CHUNK].into_boxed_slice(),
            foreign: 0,
            known: vec![KnownPool { pool: pool.clone(), translation }],
            refused: Vec::new(),
            usual: 0,
            least: 0,
            index,
            counters: TxCounters::default(),
            more_segments: 0,
            shared: Arc::clone(shared),
        };
        queue.first_known_is_usual();
        queue.program(regs)?;
        Ok(queue)
    }

    fn program(&self, regs: &Timed<D>) -> Result<()> {
        let n = self.index;
        let bytes = (self.ring.size() * DESCRIPTOR_BYTES) as u64;
        let [low, high, len] = [self.ring.iova(), self.ring.iova() >> 32, bytes].map(low_half);
        let enable = txdctl::HTHRESH.set(txdctl::PTHRESH.set(txdctl::EN.mask(), PREFETCH), HOST);
        let dca = txctl::WB_RO.set(regs.read(TXCTL.at(n)), 0);
        let steps = [
            // Queue 0 is enabled after a reset.
            (TXDCTL.at(n), 0),
            (TDBAL.at(n), low),
            (TDBAH.at(n), high),
            (TDLEN.at(n), len),
            (TDH.at(n), 0),
            (TDT.at(n), 0),
            (TDWBAL.at(n), 0),
            (TDWBAH.at(n), 0),
            (TXCTL.at(n), dca),
            (TXDCTL.at(n), enable),
        ];
        for (register, value) in steps {
            // SAFETY: the ring belongs to the device from here until it is known to be quiet, and is empty.
            unsafe { regs.write_dma(register, value) }
        }
        wait(
            regs,
            TXDCTL.at(n),
            |value| txdctl::EN.is_set(value),
            Duration::from_millis(50),
            "the transmit queue to start",
        )?;
        Ok(())
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

    /// Sends what the ring takes. Returns the number of packets that have left the batch.
    #[inline(never)]
    fn send_all(&mut self, cache: &mut PoolCache, batch: &mut Batch) -> usize {
        if self.shared.is_quiet() {
            return 0;
        }
        if self.in_use() >= CHUNK {
            self.reclaim(cache);
        }
        let sent = self.send_run(batch);
        if sent < batch.len() {
            return self.send_rest(cache, batch, sent);
        }
        // SAFETY: the ring has taken over the slots of all packets.
        unsafe { batch.sent_all() };
        if self.tail != self.announced {
            self.ring_doorbell();
        }
        sent
    }

    /// Goes on behind the first `sent` packets, which the ring has: behind the end of a chunk, at an unusual frame, or where the
    /// ring is full. Returns the number of packets that have left the batch then.
    #[inline(never)]
    fn send_rest(&mut self, cache: &mut PoolCache, batch: &mut Batch, sent: usize) -> usize {
        let mut packets = batch.sending();
        // SAFETY: the ring has taken over the slots of these packets.
        unsafe { packets.take(sent) };
        while !packets.is_empty() {
            let sent = self.send_run(&packets);
            // SAFETY: the ring has taken over the slots of these packets.
            unsafe { packets.take(sent) };
            if sent == 0 && !self.send_unusual(cache, &mut packets) {
                break;
            }
        }
        let sent = packets.taken();
        if self.tail != self.announced {
            self.ring_doorbell();
        }
        sent
    }

    /// [`Self::post_run`] for what the usual pool is now (an unusual frame before may have made its own pool that), and has the
    /// device report a chunk that is full then.
    #[inline(always)]
    fn send_run(&mut self, packets: &[Packet]) -> usize {
        // The first known pool is the usual one.
        let sent = if let Translation::Linear { delta } = *self.known[0].translation {
            self.post_run(packets, |slot| (slot.as_ptr() as u64).wrapping_add(delta))
        } else {
            let translation = &*Arc::clone(&self.known[0].translation);
            self.post_run(packets, |slot| translation.iova(slot.as_ptr()))
        };
        if sent > 0 && self.tail.is_multiple_of(CHUNK) {
            self.end_chunk();
        }
        sent
    }

    /// Posts frames of one segment from the usual pool, as many as there is room for within one chunk, up to the first that is
    /// not such. Returns how many; the ring has their slots, and the caller takes them out of the batch.
    #[inline(always)]
    fn post_run(&mut self, packets: &[Packet], iova: impl Fn(Slot) -> u64) -> usize {
        // A chunk ends at the ring's end at the latest.
        let most = packets.len().min(CHUNK - self.tail % CHUNK).min(self.ring.mask() - self.in_use());
        let first = self.tail & self.ring.mask();
        let places = self.ring.from(first)[..most].iter().zip(&mut self.slots[first..][..most]);
        let (mut sent, mut bytes) = (0, 0);
        for (packet, (descriptor, kept)) in packets[..most].iter().zip(places) {
            let Some(high) = usual_word(packet.meta(), self.least) else { break };
            let slot = packet.slot();
            *kept = Some(slot);
            descriptor.write(iova(slot).wrapping_add(packet.offset().into()), high);
            bytes += packet.len() as u64;
            sent += 1;
        }
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

    /// Deals with the frame at the front that [`Self::send_run`] did not take: no room, several segments, another
    /// pool, or not to be sent at all. Returns whether it is gone from the batch; if not, the ring is full.
    #[cold]
    #[inline(never)]
    fn send_unusual(&mut self, cache: &mut PoolCache, packets: &mut Sending<'_>) -> bool {
        let segments = packets.iter().position(|packet| !packet.continues()).map_or(packets.len(), |last| last + 1);
        let frame = &mut packets[..segments];
        let len: u64 = frame.iter().map(|packet| packet.len() as u64).sum();
        let mut failure = None;
        if !(SHORTEST.into()..=LONGEST.into()).contains(&len) || frame.iter().any(Packet::is_empty) {
            self.counters.bad_length += 1;
        } else if segments > MOST_SEGMENTS {
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
                self.ring_doorbell();
            }
            let name = self.shared.regs.device().name();
            tracing::error!("{name}: a packet pool cannot be mapped, frames from it are dropped: {error}");
        }
        true
    }

    /// Makes sure that the packet's pool is mapped for the device. An error is told once for each try to map it.
    fn know(&mut self, packet: &Packet) -> Result<(), Option<device::Error>> {
        let id = packet.pool_id();
        if self.known.iter().any(|known| known.pool.id() == id) {
            return Ok(());
        }
        let begun = Instant::now();
        if self.refused.iter().any(|refused| refused.pool.id() == id && begun < refused.again) {
            return Err(None);
        }
        self.refused.retain(|refused| begun < refused.again);
        let pool = Pool::of(packet);
        match self.shared.regs.device().dma().map(pool.memory()) {
            Ok(translation) => {
                self.known.push(KnownPool { pool, translation });
                if self.in_use() == 0 {
                    // Nothing is in flight: the pool in use becomes the usual one.
                    let newest = self.known.len() - 1;
                    self.known.swap(0, newest);
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

    fn first_known_is_usual(&mut self) {
        self.usual = self.known[0].pool.id();
        self.least = least_word(self.usual);
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
            let known = self.known.iter().find(|known| known.pool.id() == packet.pool_id());
            // Never reached by the device: `know` has seen to it that the pool is known.
            let start = known.map_or(u64::MAX, |known| known.translation.iova(packet.slot().as_ptr()));
            tail = tail.wrapping_add(1);
            boundaries += usize::from(tail.is_multiple_of(CHUNK));
            let mut high = tx::DATA | packet.len() as u64 | len << tx::PAYLEN_SHIFT;
            if left == 0 {
                high |= LAST | if boundaries > 0 { tx::RS } else { 0 };
            }
            self.slots[at] = Some(packet.slot());
            self.pools[at] = packet.pool_id();
            self.ring.at(at).write(start.wrapping_add(packet.offset().into()), high);
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

    /// Takes back the buffers of all chunks that the device has reported done. They are out of the ring before they are
    /// anywhere else.
    #[inline(never)]
    fn reclaim(&mut self, cache: &mut PoolCache) {
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

    /// Shows the device what was posted.
    fn ring_doorbell(&mut self) {
        self.announced = self.tail;
        let tail = low_half((self.tail & self.ring.mask()) as u64);
        // SAFETY: all descriptors up to the tail name buffers that belong to the ring.
        unsafe { self.shared.regs.device().bar().write32(TDT.at(self.index).offset(), tail) }
    }
}

impl<D: Device> ethdev::TxQueue for TxQueue<D> {
    #[inline]
    fn send(&mut self, cache: &mut PoolCache, batch: &mut Batch) -> usize {
        self.send_all(cache, batch)
    }

    fn counters(&self) -> TxCounters {
        TxCounters { packets: (self.tail as u64).wrapping_sub(self.more_segments), ..self.counters }
    }

    fn in_flight(&self) -> usize {
        self.in_use()
    }
}

/// The high word of the descriptor of a frame that is one packet of the usual pool without flags, and neither too short nor too
/// long; `None` for others.
#[inline(always)]
fn usual_word(meta: Meta, least: u64) -> Option<u64> {
    if meta.0.wrapping_sub(least) >= USUAL_WORDS {
        return None;
    }
    let len = u64::from(meta.len());
    Some(LAST | len | len << tx::PAYLEN_SHIFT)
}

/// The least word of a packet of this pool that has no flags and is not too short.
fn least_word(pool: u16) -> u64 {
    Meta::new(0, SHORTEST, pool).0
}

/// So many words from that on are those of such packets that are not too long either, whatever their offset: it is the lowest half
/// word, and the length the next.
const USUAL_WORDS: u64 = ((LONGEST - SHORTEST + 1) as u64) << 16;

/// Command bits of a frame's last descriptor.
const LAST: u64 = tx::DATA | tx::EOP;

/// Whether the device has sent all that it was given by queue `index`: TDH equals TDT (4.5).
///
/// # Errors
///
/// [`crate::Error::Expired`] before either register when time is up, [`crate::Error::Gone`].
pub(crate) fn is_empty<D: Device>(regs: &Timed<D>, index: u32) -> Result<bool> {
    const WAITING_FOR: &str = "the transmit queues to be looked at";
    regs.check(WAITING_FOR)?;
    let head = read(regs, TDH.at(index))?;
    regs.check(WAITING_FOR)?;
    Ok(head == read(regs, TDT.at(index))?)
}

/// Waits until queue `index` is empty, for as long as it gets on. Gives up, and says so in the log, when it does not: the
/// other end may hold it up with pause frames.
pub(crate) fn drain<D: Device>(regs: &Timed<D>, index: u32) -> Result<()> {
    let begun = Instant::now();
    let tail = read(regs, TDT.at(index))?;
    let mut head = read(regs, TDH.at(index))?;
    while head != tail {
        match wait(regs, TDH.at(index), |now| now != head, STALL, "the transmit queue to empty (TDH)") {
            Ok(now) if begun.elapsed() < DRAIN_LIMIT => head = now,
            Ok(_) | Err(Error::Timeout { .. }) => {
                let name = regs.device().name();
                tracing::info!("{name}: transmit queue {index} is stopped at {head} with frames up to {tail} unsent");
                return Ok(());
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// How long a queue may stand still before it is given up: the longest frame takes 8 ms at 10 Mbit/s.
const STALL: Duration = Duration::from_millis(10);
/// How long it may take in all.
const DRAIN_LIMIT: Duration = Duration::from_millis(100);

/// Disables transmit queue `index` and waits until the device has left it (4.5).
pub(crate) fn disable<D: Device>(regs: &Timed<D>, index: u32) -> Result<()> {
    let value = regs.read(TXDCTL.at(index));
    // SAFETY: disabling takes memory away from the device.
    unsafe { regs.write_dma(TXDCTL.at(index), txdctl::EN.set(value, 0)) };
    wait(
        regs,
        TXDCTL.at(index),
        |value| !txdctl::EN.is_set(value),
        Duration::from_millis(100),
        "the transmit queue to stop",
    )?;
    Ok(())
}

#[expect(clippy::cast_possible_truncation, reason = "rings have at most 4096 descriptors")]
const fn half_word(index: usize) -> u16 {
    index as u16
}

impl<D: Device> Drop for TxQueue<D> {
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

impl<D: Device> fmt::Debug for TxQueue<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TxQueue").field("index", &self.index).field("in_flight", &self.in_use()).finish_non_exhaustive()
    }
}
