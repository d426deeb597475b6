//! Receive queues (Virtio 1.2, section 5.1.6.3).

mod frame;

use crate::ring::{Buffer, Fault, Passed, Table, Virtqueue, each_layout, fours};
use crate::rx_header::{GoodFrame, LONGEST_HEADER, WITH_HASH};
use crate::session::{Header, PublishedCounters, QueueSession, Shared};
use crate::transport::{Notifier, Transport};
use crate::{Config, Error, Result};
use device::Translation;
use ethdev::{RxCounters, RxInfos};
use mempool::{Batch, CHUNK, Meta, Packet, Pool, PoolCache, Slot};
use std::fmt;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;

/// Most buffers made available at a time, in a large ring: one look at the device's wish for a notification for so many.
const DOORBELL: usize = 2 * CHUNK;

/// [`ethdev::RxQueue::rest_cycles`] of all queues.
const REST_CYCLES: u64 = 1000;

/// A receive queue: belongs to one thread at a time, and can be moved to another.
///
/// A frame longer than a buffer arrives as a run of packets with [`Packet::continues`] set on all but the last. While
/// the device is away no frames arrive, and the buffers are kept until it comes back.
///
/// ```no_run
/// use ethdev::RxQueue as _;
/// use mempool::{Batch, Pool};
///
/// fn count<T: virtio::Transport>(queue: &mut virtio::RxQueue<T>, pool: &Pool) -> u64 {
///     let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(32));
///     while queue.counters().packets < 1000 {
///         queue.recv(&mut cache, &mut batch);
///         cache.free_batch(&mut batch);
///     }
///     queue.counters().bytes
/// }
/// ```
pub struct RxQueue<T: Transport> {
    session: Option<Box<QueueSession<T::Notifier>>>,
    epoch: u32,
    buffers: RxBuffers,
    index: u16,
    /// Used when a caller's cache is of another pool than the queue's.
    own_cache: Option<PoolCache>,
    next: Next,
    shared: Arc<Shared<T>>,
}

/// What the next call begins with, going by what the last found.
#[derive(Clone, Copy)]
enum Next {
    /// Looks whether there is only one frame.
    Look,
    /// Takes several, one by one.
    Few,
    /// Takes several, four at a time: headers do not say in how many buffers a frame lies, and the processor has AVX2.
    Fours,
}

/// What is to be done after a run of frames.
#[derive(Clone, Copy)]
enum Then {
    Nothing,
    /// Fresh buffers are to be made available.
    Refill,
    /// There may be a new session, or the cache has too few fresh buffers.
    Slow,
    /// Something else than a good frame may be next, or the ring begins again.
    More,
}

/// The queue but for the ring.
///
/// # Invariants
///
/// `slots[id]` is the buffer, of `pool`, that the ring has under that id, with an entry for each descriptor of the ring, and
/// `spare` are buffers that no ring has; the queue owns them all.
struct RxBuffers {
    slots: Table<Option<Slot>>,
    spare: Vec<Slot>,
    /// Buffers that the queue was made with, and that a ring holds at most.
    most: usize,
    /// Buffers that the present ring holds.
    target: usize,
    /// Fresh ones are made available when the ring has as many free descriptors, or no frame comes.
    refill_at: usize,
    /// 1 where a buffer takes two descriptors, 0 otherwise.
    chain_shift: u32,
    pool: Pool,
    pool_id: u16,
    translation: Arc<Translation>,
    /// The processor has what [`fours`] need.
    has_fours: bool,
    /// IOVA = address + this, where the translation is linear.
    linear: Option<u64>,
    /// Where a frame's data begins in its slot; the header ends there. It lies on a cache line of its own where the head room
    /// ends with a line: hardly a device writes anew what a header says already, so that line stays with both sides.
    data_at: u16,
    /// Bytes of data that a buffer takes.
    data_room: u16,
    /// Buffers of the largest frame.
    most_segments: usize,
    /// Segments of a frame that is not complete, or did not fit into the last batch.
    frame: Vec<Packet>,
    /// Buffers that its frame still lacks.
    missing_segments: u16,
    /// Buffers to be passed over: the rest of a frame that was given up.
    skipping: u16,
    good: GoodFrame,
    /// Something may be reported of packets received since this was reset: a frame was not a good one of a buffer, so packets may have
    /// flags, or headers end with a hash.
    is_reported: bool,
    /// Headers of the present session end with a hash.
    has_hashes: bool,
    /// But for frames and bytes, which are in `published`.
    counters: RxCounters,
    published: Arc<PublishedCounters>,
}

impl<T: Transport> RxQueue<T> {
    /// A queue with buffers from `pool`, in no session yet.
    pub(crate) fn new(shared: &Arc<Shared<T>>, index: u16, config: &Config, pool: &Pool) -> Result<Self> {
        let translation = shared.transport.dma().map(pool.memory())?;
        let buffers = usize::from(config.port.rx_ring);
        let mut cache = pool.cache();
        // Without slots to spare no frame could ever be taken out of the ring.
        if cache.reserve(buffers + CHUNK) < buffers + CHUNK || pool.data_room() < SMALLEST_ROOM {
            let problem = format!(
                "a receive ring wants {buffers} free slots and {CHUNK} more, of {SMALLEST_ROOM} bytes at least"
            );
            return Err(pool_error(shared.transport.name(), pool, problem));
        }
        let mut spare = Vec::with_capacity(buffers);
        let fresh = cache.lend(buffers);
        spare.extend_from_slice(&fresh);
        // SAFETY: they are kept in the queue.
        unsafe { fresh.used(spare.len()) };
        // A multiple of 4, so that words of the header are aligned.
        let longest_header = if config.port.report_hash { WITH_HASH } else { LONGEST_HEADER };
        let data_at = (pool.headroom() & !3).max(longest_header);
        let data_room = pool.headroom() + pool.data_room() - data_at;
        let most_segments = config.port.max_frame().div_ceil(data_room.into());
        let buffers = RxBuffers {
            slots: Table::new(1, |_| None),
            spare,
            most: buffers,
            target: 0,
            refill_at: 0,
            chain_shift: 0,
            pool: pool.clone(),
            pool_id: pool.id(),
            has_fours: fours::are_here(),
            linear: match *translation {
                Translation::Linear { delta } => Some(delta),
                Translation::Paged { .. } => None,
            },
            translation,
            data_at,
            data_room,
            most_segments,
            frame: Vec::with_capacity(most_segments),
            missing_segments: 0,
            skipping: 0,
            good: GoodFrame::default(),
            is_reported: false,
            has_hashes: false,
            counters: RxCounters::default(),
            published: Arc::new(PublishedCounters::new(1)),
        };
        Ok(Self {
            session: None,
            epoch: 0,
            buffers,
            index,
            own_cache: None,
            next: Next::Look,
            shared: Arc::clone(shared),
        })
    }

    /// Returns the number of the queue.
    #[must_use]
    pub fn index(&self) -> u16 {
        self.index
    }

    pub(crate) fn published_counters(&self) -> &Arc<PublishedCounters> {
        &self.buffers.published
    }

    /// Receives with a cache of the queue's own.
    #[cold]
    fn recv_own(&mut self, batch: &mut Batch) {
        let mut own = self.own_cache.take().unwrap_or_else(|| self.buffers.pool.cache());
        self.recv_from(&mut own, batch);
        self.own_cache = Some(own);
    }

    /// Receives. A frame that came alone is received here. All calls come as the last act, so that they cost no saved registers.
    #[inline(never)]
    fn recv_from(&mut self, cache: &mut PoolCache, batch: &mut Batch) {
        let room = batch.spare();
        if self.shared.epoch() != self.epoch || cache.len() < room {
            return self.recv_slow(cache, batch);
        }
        let Some(session) = &mut self.session else { return };
        each_layout!(&mut session.ring, ring => {
            if room > 1 && ring.has_several() {
                return self.recv_several(cache, batch);
            }
            if !self.buffers.recv_one(ring, batch) {
                if self.buffers.has_nothing_to_do(ring) && !ring.has_used() {
                    return;
                }
                return self.recv_burst(cache, batch, 0);
            }
            if ring.free() >= self.buffers.refill_at {
                self.refill(cache);
            }
        });
    }

    /// Receives several frames.
    #[inline(never)]
    fn recv_several(&mut self, cache: &mut PoolCache, batch: &mut Batch) {
        let before = batch.len();
        let fresh = cache.len();
        let then = if self.buffers.has_fours() && batch.spare() >= fours::STEP {
            self.next = Next::Fours;
            // SAFETY: the processor has AVX2, and headers do not say in how many buffers a frame lies.
            unsafe { self.recv_fours(fresh, batch) }
        } else {
            self.next = Next::Few;
            self.recv_ring(fresh, batch)
        };
        self.go_on(cache, batch, before, then);
    }

    /// Receives good frames of a buffer each into the batch's room. `fresh` is what the cache holds. Returns what is to be done then.
    #[inline(never)]
    fn recv_ring(&mut self, fresh: usize, batch: &mut Batch) -> Then {
        self.recv_ring_by::<false>(fresh, batch)
    }

    /// [`Self::recv_ring`] four at a time.
    ///
    /// # Safety
    ///
    /// As [`Next::Fours`] says.
    #[inline(never)]
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
    unsafe fn recv_fours(&mut self, fresh: usize, batch: &mut Batch) -> Then {
        self.recv_ring_by::<true>(fresh, batch)
    }

    #[inline(always)]
    fn recv_ring_by<const FOURS: bool>(&mut self, fresh: usize, batch: &mut Batch) -> Then {
        let room = batch.spare();
        if self.shared.epoch() != self.epoch || fresh < room {
            return Then::Slow;
        }
        let Some(session) = &mut self.session else { return Then::Nothing };
        each_layout!(&mut session.ring, ring => {
            let Ok(run) = self.buffers.recv_run::<_, FOURS>(ring, batch, room, false) else {
                // The fault shows when the ring is looked at again.
                self.next = Next::Look;
                return Then::More;
            };
            if run.count < room {
                if run.count < if FOURS { fours::STEP } else { 2 } {
                    self.next = if run.count < 2 { Next::Look } else { Next::Few };
                }
                if ring.has_more(run) || run.count == 0 && !self.buffers.has_nothing_to_do(ring) {
                    return Then::More;
                }
            }
            if !FOURS && run.count >= fours::STEP && self.buffers.has_fours() {
                self.next = Next::Fours;
            }
            if ring.free() >= self.buffers.refill_at { Then::Refill } else { Then::Nothing }
        })
    }

    /// Does what is to be done after [`Self::recv_ring`]; `before` it, the batch had so many packets.
    #[inline(never)]
    fn go_on(&mut self, cache: &mut PoolCache, batch: &mut Batch, before: usize, then: Then) {
        match then {
            Then::Nothing => {}
            Then::Refill => self.refill(cache),
            Then::Slow => self.recv_slow(cache, batch),
            Then::More => self.recv_burst(cache, batch, batch.len() - before),
        }
    }

    /// Makes fresh buffers available at the end of a burst.
    #[inline(never)]
    fn refill(&mut self, cache: &mut PoolCache) {
        let Some(session) = &mut self.session else { return };
        let (buffers, header, notifier) = (&mut self.buffers, &session.header, &session.notifier);
        each_layout!(&mut session.ring, ring => buffers.refill(ring, header, notifier, cache));
    }

    /// Receives where there may be a new session, or too few fresh buffers in the cache.
    #[inline(never)]
    fn recv_slow(&mut self, cache: &mut PoolCache, batch: &mut Batch) {
        // One from a call with another pool's may have the last slots.
        self.own_cache = None;
        if self.shared.epoch() != self.epoch {
            self.enter_session();
        }
        self.recv_burst(cache, batch, 0);
    }

    /// Receives behind the `received` packets of this call that are in the batch.
    #[inline(never)]
    fn recv_burst(&mut self, cache: &mut PoolCache, batch: &mut Batch, received: usize) {
        let Some(session) = &mut self.session else { return };
        let (buffers, header, notifier) = (&mut self.buffers, &session.header, &session.notifier);
        if received == 0 && each_layout!(&mut session.ring, ring => !ring.has_used() && buffers.has_nothing_to_do(ring))
        {
            return;
        }
        let result =
            each_layout!(&mut session.ring, ring => buffers.recv(ring, header, notifier, cache, batch, received));
        if let Err(fault) = result {
            self.end_session(fault);
        }
    }

    /// Moves to the present session, if there is one.
    #[cold]
    #[inline(never)]
    fn enter_session(&mut self) {
        let (epoch, session) = self.shared.take_session(2 * self.index);
        self.epoch = epoch;
        self.next = Next::Look;
        self.buffers.leave_ring();
        self.session = session;
        if let Some(session) = &mut self.session {
            each_layout!(&mut session.ring, ring => {
                self.buffers.post_spare(ring, &session.header);
                if ring.unpublished() > 0 && ring.publish() {
                    session.notifier.notify();
                }
            });
        }
    }

    /// Touches the ring no more; its buffers stay with the device until it has been reset.
    #[cold]
    #[inline(never)]
    fn end_session(&mut self, fault: Fault) {
        self.session = None;
        self.shared.report_fault(self.epoch, fault);
    }
}

impl<T: Transport> ethdev::RxQueue for RxQueue<T> {
    #[inline]
    fn recv<'b>(&mut self, cache: &mut PoolCache, batch: &'b mut Batch) -> &'b mut [Packet] {
        let before = batch.len();
        // Without the cache, so that the loops have its register.
        let then = match self.next {
            _ if cache.pool_id() != self.buffers.pool_id => {
                self.recv_own(batch);
                Then::Nothing
            }
            Next::Look => {
                self.recv_from(cache, batch);
                Then::Nothing
            }
            Next::Few => self.recv_ring(cache.len(), batch),
            // SAFETY: it is set where they are right only, and no session begins with it.
            Next::Fours => unsafe { self.recv_fours(cache.len(), batch) },
        };
        if !matches!(then, Then::Nothing) {
            self.go_on(cache, batch, before, then);
        }
        batch.get_mut(before..).unwrap_or_default()
    }

    #[inline(always)]
    fn recv_with<'b>(&mut self, cache: &mut PoolCache, batch: &'b mut Batch, infos: &mut RxInfos) -> &'b mut [Packet] {
        self.buffers.is_reported = self.buffers.has_hashes;
        let packets = self.recv(cache, batch);
        if self.buffers.is_reported {
            self.buffers.describe(packets, infos);
        } else {
            infos.filled_empty(packets.len());
        }
        packets
    }

    /// 1,000: about 0.4 us, in which a device in software gets a good part of a burst done. A look at the end of what the device has
    /// done takes the cache line of the next descriptor away from the processor that is about to write it.
    fn rest_cycles(&self) -> u64 {
        REST_CYCLES
    }

    fn counters(&self) -> RxCounters {
        let [packets, bytes] = self.buffers.published.get();
        RxCounters { packets, bytes, ..self.buffers.counters }
    }

    fn is_ready(&mut self) -> bool {
        let Some(session) = &mut self.session else { return false };
        let waiting = !self.buffers.frame.is_empty() && self.buffers.missing_segments == 0;
        waiting || each_layout!(&mut session.ring, ring => ring.has_used())
    }

    /// The eventfd also becomes readable when the device has come back.
    fn arm(&mut self) -> bool {
        let shared = Arc::clone(&self.shared);
        let Some(vector) = shared.vector(self.index) else { return false };
        // Before the looks at session and ring: what is signalled from here on ends the wait, and what was signalled before
        // is seen by them.
        vector.clear();
        if shared.epoch() != self.epoch {
            self.enter_session();
        }
        if let Some(session) = &mut self.session {
            each_layout!(&mut session.ring, ring => {
                // What the device has not been given would not wake anybody. The caller's cache is not at hand.
                if self.buffers.missing(ring) > 0 || ring.unpublished() > 0 {
                    let mut cache = self.buffers.pool.cache();
                    self.buffers.refill(ring, &session.header, &session.notifier, &mut cache);
                }
                ring.arm();
            });
        }
        !self.is_ready() && !shared.is_closed()
    }

    fn eventfd(&self) -> Option<BorrowedFd<'_>> {
        self.shared.vector(self.index).map(|vector| vector.as_fd())
    }
}

impl RxBuffers {
    /// Whether [`Next::Fours`] is right for the present session.
    #[inline(always)]
    fn has_fours(&self) -> bool {
        self.has_fours && !self.good.mergeable
    }

    /// Only frames that begin are taken for good ones of a buffer each.
    fn set_good_frame(&mut self) {
        self.good.set_room(if self.is_amid_frame() { 0 } else { self.data_room });
    }

    /// Receives frames, up to the batch's end, the ring's or the pool's, and makes fresh buffers available. `before` packets of this
    /// call are in the batch already. Returns the number of packets, without those.
    #[inline(always)]
    fn recv<R: Virtqueue>(
        &mut self,
        ring: &mut R,
        header: &Header,
        notifier: &impl Notifier,
        cache: &mut PoolCache,
        batch: &mut Batch,
        before: usize,
    ) -> Result<usize, Fault> {
        let received = self.recv_rest(ring, header, cache, batch, before)?;
        self.set_good_frame();
        if before + received == 0 || ring.free() >= self.refill_at {
            self.refill(ring, header, notifier, cache);
        }
        Ok(received)
    }

    /// Receives a good frame of a buffer, if there is one next, and a place in the batch. Returns whether there was.
    #[inline(always)]
    fn recv_one<R: Virtqueue>(&mut self, ring: &mut R, batch: &mut Batch) -> bool {
        let Some(to) = batch.spare_slots().first_mut() else { return false };
        // What is wrong shows when it is looked at again.
        let Ok(Some((id, len))) = ring.next_used() else { return false };
        let slots = self.slots.start();
        // SAFETY: an id of the ring, for each of which there is an entry (type invariant).
        let place = unsafe { &mut *slots.wrapping_add(id) };
        let Some(slot) = *place else { return false };
        let mut beyond = 0;
        // SAFETY: a slot of the queue's (type invariant), which gives it up below.
        let Some(packet) = (unsafe { self.good.packet(slot, len, &mut beyond) }) else { return false };
        *place = None;
        to.write(packet);
        // SAFETY: a packet was written.
        unsafe { batch.received(1) };
        ring.take_next();
        self.published.add(1, beyond);
        true
    }

    /// Receives good frames of a buffer each, `most` at most, which have places in the batch, up to the first other one; in whatever
    /// order the device completes them, if `any`.
    #[inline(always)]
    fn recv_run<R: Virtqueue, const FOURS: bool>(
        &mut self,
        ring: &mut R,
        batch: &mut Batch,
        most: usize,
        any: bool,
    ) -> Result<Passed, Fault> {
        let packets = batch.spare_slots().as_mut_ptr();
        let (slots, mut beyond) = (self.slots.start(), 0);
        let good = if FOURS { self.good.of_one_buffer() } else { self.good };
        let mut beyond_of_fours = 0;
        let ahead = |used: &R::Reader, run| {
            if !FOURS {
                return 0;
            }
            // SAFETY: the processor has AVX2; for the rest as below.
            unsafe { fours::recv(used, run, slots, packets.cast(), &self.good, &mut beyond_of_fours) }
        };
        let each = |n, id, len| {
            // SAFETY: an id of the ring, for each of which there is an entry (type invariant).
            let place = unsafe { &mut *slots.wrapping_add(id) };
            let Some(slot) = *place else { return false };
            // SAFETY: a slot of the queue's (type invariant), which gives it up below.
            let Some(packet) = (unsafe { good.packet(slot, len, &mut beyond) }) else { return false };
            *place = None;
            // SAFETY: the run is no longer than the spare room.
            let to = unsafe { packets.add(n) };
            // SAFETY: as above.
            unsafe { to.write(MaybeUninit::new(packet)) };
            true
        };
        let run = if any { ring.reclaim_any(most, each)? } else { ring.reclaim::<true>(most, ahead, each)? };
        // SAFETY: as many packets were written.
        unsafe { batch.received(run.count) };
        self.published.add(run.count as u64, beyond + beyond_of_fours);
        Ok(run)
    }

    /// Goes on where something unusual is in the way, for as many buffers and runs as the ring has descriptors at most. `taken`
    /// buffers of this call are in the batch already, for which the cache has fresh ones. Returns the number of packets, without
    /// those.
    #[cold]
    #[inline(never)]
    fn recv_rest<R: Virtqueue>(
        &mut self,
        ring: &mut R,
        header: &Header,
        cache: &mut PoolCache,
        batch: &mut Batch,
        taken: usize,
    ) -> Result<usize, Fault> {
        let before = batch.len();
        for _ in 0..ring.size() {
            if !self.frame.is_empty() && self.missing_segments == 0 && !self.deliver_frame(batch) {
                return Ok(batch.len() - before);
            }
            let room = batch.spare();
            let taken = taken + batch.len() - before;
            // A chunk at a time: nobody knows how many frames wait, and what is fetched for none of them is missed elsewhere.
            let most = cache.reserve(taken + room.min(CHUNK)).saturating_sub(taken);
            if most == 0 {
                self.counters.no_buffers += u64::from(room > 0 && ring.has_used());
                return Ok(batch.len() - before);
            }
            self.set_good_frame();
            if !self.is_amid_frame() {
                let mut run = self.recv_run::<_, false>(ring, batch, most, false)?;
                if run.count == 0 && ring.has_more(run) {
                    run = self.recv_run::<_, false>(ring, batch, most, true)?;
                }
                if !ring.has_more(run) {
                    return Ok(batch.len() - before);
                }
                if run.count > 0 {
                    continue;
                }
            }
            let Some(used) = ring.used(|id| self.slots.at(id.into()).is_some())? else {
                return Ok(batch.len() - before);
            };
            let Some(slot) = self.slots.at_mut(used.id.into()).take() else { continue };
            self.recv_buffer(slot, used.len, header, batch.capacity(), cache);
        }
        // The frame that the last buffer ended.
        if !self.frame.is_empty() && self.missing_segments == 0 {
            self.deliver_frame(batch);
        }
        Ok(batch.len() - before)
    }

    /// Buffers that the ring is to have, and has not.
    fn missing<R: Virtqueue>(&self, ring: &R) -> usize {
        self.target.saturating_sub(ring.in_flight() >> self.chain_shift)
    }

    /// Whether there is nothing to be done for a ring in which nothing has come.
    #[inline(always)]
    fn has_nothing_to_do<R: Virtqueue>(&self, ring: &R) -> bool {
        self.missing(ring) == 0 && self.frame.is_empty()
    }

    /// Makes fresh buffers available, as many as the ring is missing, or the pool has.
    #[inline(never)]
    fn refill<R: Virtqueue>(&mut self, ring: &mut R, header: &Header, notifier: &impl Notifier, cache: &mut PoolCache) {
        let fresh = cache.lend(self.missing(ring));
        let posted = self.post(ring, header, &fresh);
        // SAFETY: those posted are the ring's now, from the last on.
        unsafe { fresh.used(posted) };
        if ring.unpublished() > 0 && ring.publish() {
            notifier.notify();
        }
    }

    /// Makes these buffers available, from the last on, as many as the ring takes. Returns how many.
    fn post<R: Virtqueue>(&mut self, ring: &mut R, header: &Header, fresh: &[Slot]) -> usize {
        if header.is_apart() {
            return self.post_apart(ring, header, fresh);
        }
        let start = u64::from(self.data_at - header.len);
        match self.linear {
            Some(delta) => {
                let delta = delta.wrapping_add(start);
                let fours = self.has_fours.then_some(delta);
                self.post_at(ring, header, fresh, fours, move |slot, _| (slot.as_ptr() as u64).wrapping_add(delta))
            }
            None => self
                .post_at(ring, header, fresh, None, move |slot, paged| paged.iova(slot.as_ptr()).wrapping_add(start)),
        }
    }

    #[inline(always)]
    fn post_at<R: Virtqueue>(
        &mut self,
        ring: &mut R,
        header: &Header,
        fresh: &[Slot],
        fours: Option<u64>,
        address: impl Fn(Slot, &Translation) -> u64 + Copy,
    ) -> usize {
        let room = u32::from(self.data_room + header.len);
        let translation = &*self.translation;
        let mut left = fresh.len();
        while left > 0 {
            let (slots, top) = (self.slots.start(), fresh.as_ptr().wrapping_add(left));
            // By value: what it refers to would be read from the stack anew for each buffer.
            let each = move |n, id| {
                // SAFETY: a run of `left` at most.
                let slot = unsafe { *top.wrapping_sub(n + 1) };
                // SAFETY: an id of the ring, for each of which there is an entry (type invariant).
                unsafe { *slots.wrapping_add(id) = Some(slot) };
                Some((address(slot, translation), 0))
            };
            let ahead = |to: &mut R::Writer, run| {
                let Some(delta) = fours else { return 0 };
                // SAFETY: the processor has AVX2; for the rest as above.
                unsafe { fours::post(to, run, slots, top, delta) }
            };
            let run = if ring.is_simple() {
                ring.post(left, true, room, ahead, each)
            } else {
                ring.post_any(left, true, room, each)
            };
            if run == 0 {
                break;
            }
            left -= run;
        }
        fresh.len() - left
    }

    /// [`Self::post`] where the header wants a descriptor of its own.
    #[cold]
    fn post_apart<R: Virtqueue>(&mut self, ring: &mut R, header: &Header, fresh: &[Slot]) -> usize {
        let count = fresh.len().min(ring.free() / 2);
        for slot in fresh.iter().rev().take(count) {
            let data = self.translation.iova(slot.as_ptr()).wrapping_add(self.data_at.into());
            let start = data.wrapping_sub(header.len.into());
            let chain = [
                Buffer { address: start, len: header.len.into(), writable: true },
                Buffer { address: data, len: self.data_room.into(), writable: true },
            ];
            ring.post_chain(&chain, |place, id| {
                if place == 0 {
                    *self.slots.at_mut(id.into()) = Some(*slot);
                }
            });
        }
        count
    }

    /// Takes all buffers back from the ring of a session that has ended.
    fn leave_ring(&mut self) {
        self.spare.extend(self.slots.iter_mut().filter_map(Option::take));
        self.frame.clear();
        (self.missing_segments, self.skipping) = (0, 0);
    }

    /// Gives the ring of a new session the buffers at hand.
    fn post_spare<R: Virtqueue>(&mut self, ring: &mut R, header: &Header) {
        if self.slots.len() != ring.size() {
            self.slots = Table::new(ring.size(), |_| None);
        }
        self.chain_shift = header.is_apart().into();
        self.target = self.most.min(ring.size() >> self.chain_shift);
        let at_once = (self.target / 8).clamp(CHUNK, DOORBELL).min(self.target / 4);
        self.refill_at = ring.size() - ((self.target - at_once) << self.chain_shift);
        self.has_hashes = header.hash;
        // A burst that is under way may go on in this session.
        self.is_reported |= header.hash;
        self.good = GoodFrame::new(header, self.pool_id, self.data_at, self.data_room);
        let count = self.spare.len().min(self.target);
        let spare = self.spare.split_off(self.spare.len() - count);
        self.post(ring, header, &spare);
    }

    /// All buffers of the queue, as packets, when it is dropped.
    fn drain_packets(&mut self) -> Vec<Packet> {
        self.leave_ring();
        let pool = self.pool_id;
        // SAFETY: the slots are of this pool and owned by the queue, which gives them up.
        self.spare.drain(..).map(|slot| unsafe { Packet::from_slot(slot, Meta::new(0, 0, pool)) }).collect()
    }
}

impl<T: Transport> Drop for RxQueue<T> {
    fn drop(&mut self) {
        let packets = self.buffers.drain_packets();
        self.shared.park(packets);
    }
}

impl<T: Transport> fmt::Debug for RxQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RxQueue").field("index", &self.index).field("session", &self.session).finish_non_exhaustive()
    }
}

/// No buffer may be smaller, or a frame would take more than there are descriptors.
const SMALLEST_ROOM: u16 = 256;

pub(crate) fn pool_error(device: &str, pool: &Pool, problem: String) -> Error {
    Error::Pool { device: device.to_owned(), slots: pool.slots(), data_room: pool.data_room(), problem }
}
