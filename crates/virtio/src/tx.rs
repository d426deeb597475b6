//! Transmit queues (Virtio 1.2, section 5.1.6.2).

use crate::Result;
use crate::pools::Mapping;
use crate::ring::{Buffer, Fault, Passed, Table, Virtqueue, each_layout, fours};
use crate::rx_header::LONGEST_HEADER;
use crate::session::{Header, PublishedCounters, QueueSession, Shared};
use crate::transport::{Notifier, Transport};
use crate::tx_header::{SHORTEST, UsualFrame, ask_for_checksum, clear_header, has_room, is_cleared, make_clear};
use device::Translation;
use ethdev::TxCounters;
use mempool::{Batch, CHUNK, Checksum, KnownPools, Meta, Packet, Pool, PoolCache, Sending, Slot, complete_checksum};
use std::fmt;
use std::mem::MaybeUninit;
use std::sync::Arc;

/// Most segments of a frame.
const MOST_SEGMENTS: usize = 40;

/// A transmit queue: belongs to one thread at a time, and can be moved to another.
///
/// Buffers are taken back lazily: when seven eighths of the ring are in flight, or a quarter of their pool, or that
/// pool has few left. While the device is away no packets are taken.
///
/// Packets of any pool can be sent. The first packets of a pool that is new to the port stay in the batch until another
/// thread has mapped that pool (about 50 ms; with vhost-user, as long as the back end takes to answer). A frame must
/// have at least 14 bytes. If the device has an MTU (Virtio 1.2, section 5.1.4.2), the frame can have at most that, an
/// Ethernet header and two VLAN tags. It can have up to 40 segments.
///
/// A packet cannot be used after it was sent:
///
/// ```compile_fail,E0382
/// use ethdev::TxQueue as _;
///
/// fn use_after_send<T: virtio::Transport>(
///     queue: &mut virtio::TxQueue<T>,
///     cache: &mut mempool::PoolCache,
///     batch: &mut mempool::Batch,
///     packet: mempool::Packet,
/// ) {
///     let _ = batch.push(packet);
///     queue.send(cache, batch);
///     packet.data();
/// }
/// ```
pub struct TxQueue<T: Transport> {
    session: Option<Box<QueueSession<T::Notifier>>>,
    epoch: u32,
    buffers: TxBuffers<T>,
    index: u16,
}

/// The queue but for the ring.
///
/// # Invariants
///
/// What the ring has under an id is in one of two tables: a frame's slot in `slots[id]`, if the frame is a slot of the usual
/// pool, any other packet in `packets[id]`. Both have an entry for each of its descriptors. The usual pool changes while both
/// are empty.
struct TxBuffers<T: Transport> {
    slots: Table<Option<Slot>>,
    packets: Table<Option<Packet>>,
    known: KnownPools,
    /// Pools that the device does not take.
    refused: Vec<Pool>,
    /// The first known pool, and its id.
    pool: Pool,
    usual: u16,
    usual_frame: UsualFrame,
    /// Each frame's length and header are to be looked at: the device has an MTU, or the last header looked at was clear.
    looks: bool,
    /// The processor has what [`fours`] need.
    has_fours: bool,
    /// Descriptors of the ring.
    ring: usize,
    /// Of the present session.
    header: Option<Header>,
    /// With fewer free descriptors buffers are taken back; until then they are left in the ring, although the device may have done
    /// with them.
    keep_free: usize,
    /// But for frames and bytes, which are in `published`.
    counters: TxCounters,
    published: Arc<PublishedCounters>,
    shared: Arc<Shared<T>>,
}

/// What [`TxQueue::send_ring`] returns where it has done nothing: more than any batch has.
const SLOW: usize = usize::MAX;

/// What became of the frame at the front of a batch.
enum Unusual {
    /// It left the batch.
    Taken,
    /// There is no room for it.
    Full,
    /// The packet at this place is of a pool that the queue does not know.
    UnknownPool(usize),
}

impl<T: Transport> TxQueue<T> {
    /// A queue in no session yet.
    pub(crate) fn new(shared: &Arc<Shared<T>>, index: u16, pool: &Pool) -> Result<Self> {
        let translation = shared.transport.dma().map(pool.memory())?;
        let mut buffers = TxBuffers {
            slots: Table::new(1, |_| None),
            packets: Table::new(1, |_| None),
            known: KnownPools::new(pool.clone(), translation),
            refused: Vec::new(),
            pool: pool.clone(),
            usual: 0,
            usual_frame: UsualFrame::default(),
            looks: true,
            has_fours: fours::are_here(),
            header: None,
            ring: 0,
            keep_free: 0,
            counters: TxCounters::default(),
            published: Arc::new(PublishedCounters::new(SHORTEST)),
            shared: Arc::clone(shared),
        };
        buffers.first_known_is_usual();
        Ok(Self { session: None, epoch: 0, buffers, index })
    }

    /// Returns the number of the queue.
    #[must_use]
    pub fn index(&self) -> u16 {
        self.index
    }

    pub(crate) fn published_counters(&self) -> &Arc<PublishedCounters> {
        &self.buffers.published
    }

    /// Whether a call is one for [`Self::send_slow`], whatever it sends.
    #[inline(always)]
    fn is_slow(&self) -> bool {
        self.buffers.shared.epoch() != self.epoch || self.buffers.is_pool_low()
    }

    /// Sends an ordinary frame that goes alone, or nothing. All calls come as the last act, so that they cost no saved registers.
    #[inline(never)]
    fn send_lone(&mut self, cache: &mut PoolCache, batch: &mut Batch) -> usize {
        if batch.is_empty() || self.is_slow() {
            return self.send_slow(cache, batch);
        }
        let Some(session) = &mut self.session else { return 0 };
        each_layout!(&mut session.ring, ring => {
            if ring.free() < self.buffers.keep_free + 1 {
                return self.send_slow(cache, batch);
            }
            if !batch.first().is_some_and(|packet| self.buffers.send_one(ring, packet)) {
                return self.send_rest(cache, batch, 0);
            }
            // SAFETY: the ring has taken over the slot.
            unsafe { batch.sent_all() };
            if ring.publish() { self.notify(1) } else { 1 }
        })
    }

    /// Sends the packets of a batch, from the front. Returns how many, which may still be in the batch;
    /// [`SLOW`] for a call that is one for [`Self::send_slow`], unless `READY` says that buffers were taken back for it.
    #[inline(never)]
    fn send_ring<const READY: bool>(&mut self, batch: &mut Batch) -> usize {
        if self.buffers.looks {
            return self.send_looking::<READY>(batch);
        }
        if self.buffers.has_fours && batch.len() >= fours::STEP {
            // SAFETY: the processor has AVX2.
            return unsafe { self.send_fours::<READY>(batch) };
        }
        self.send_with::<READY, false, false>(batch)
    }

    /// [`Self::send_ring`] four at a time.
    ///
    /// # Safety
    ///
    /// The processor has AVX2.
    #[inline(never)]
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
    unsafe fn send_fours<const READY: bool>(&mut self, batch: &mut Batch) -> usize {
        self.send_with::<READY, false, true>(batch)
    }

    /// [`Self::send_ring`] with a look at each frame's length or header.
    #[inline(never)]
    fn send_looking<const READY: bool>(&mut self, batch: &mut Batch) -> usize {
        self.send_with::<READY, true, false>(batch)
    }

    #[inline(always)]
    fn send_with<const READY: bool, const LOOKS: bool, const FOURS: bool>(&mut self, batch: &mut Batch) -> usize {
        let count = batch.len();
        if !READY && self.is_slow() {
            return SLOW;
        }
        let Some(session) = &mut self.session else { return 0 };
        let (sent, wants) = each_layout!(&mut session.ring, ring => {
            if !READY && ring.free() < self.buffers.keep_free + count {
                return SLOW;
            }
            let buffers = &mut self.buffers;
            let sent = if LOOKS { buffers.send_run(ring, batch) } else { buffers.send_run_clearing::<_, FOURS>(ring, batch) };
            if sent < count {
                return sent;
            }
            // SAFETY: the ring has taken over the slots of all of them.
            unsafe { batch.sent_all() };
            (sent, ring.publish())
        });
        if wants { self.notify(sent) } else { sent }
    }

    /// Goes on after [`Self::send_ring`] that has not sent all.
    #[inline(never)]
    fn send_on(&mut self, cache: &mut PoolCache, batch: &mut Batch, sent: usize) -> usize {
        if sent == SLOW { self.send_slow(cache, batch) } else { self.send_rest(cache, batch, sent) }
    }

    /// Sends where there may be a new session, or buffers to be taken back.
    #[inline(never)]
    fn send_slow(&mut self, cache: &mut PoolCache, batch: &mut Batch) -> usize {
        if self.buffers.shared.epoch() != self.epoch {
            self.enter_session();
        }
        self.buffers.look_at_header(batch);
        let Some(session) = &mut self.session else { return 0 };
        let buffers = &mut self.buffers;
        match each_layout!(&mut session.ring, ring => buffers.make_free(ring, cache, batch.len())) {
            Ok(()) if batch.is_empty() => {
                let in_flight = each_layout!(&session.ring, ring => ring.in_flight());
                self.buffers.published.set_busy(in_flight > 0);
                0
            }
            Ok(()) => {
                let count = batch.len();
                let sent = self.send_ring::<true>(batch);
                if sent == count { sent } else { self.send_rest(cache, batch, sent) }
            }
            Err(fault) => {
                self.end_session(fault);
                0
            }
        }
    }

    /// Sends what is behind the first `sent` packets of a batch, which the ring has taken over.
    #[inline(never)]
    fn send_rest(&mut self, cache: &mut PoolCache, batch: &mut Batch, sent: usize) -> usize {
        let Some(session) = &mut self.session else { return 0 };
        let (buffers, header) = (&mut self.buffers, &session.header);
        let (done, wants) = each_layout!(&mut session.ring, ring => {
            let done = buffers.send(ring, header, cache, batch, sent);
            buffers.published.set_busy(ring.in_flight() > 0);
            (done, ring.unpublished() > 0 && ring.publish())
        });
        if wants { self.notify(done) } else { done }
    }

    #[inline(never)]
    fn notify(&self, done: usize) -> usize {
        if let Some(session) = &self.session {
            session.notifier.notify();
        }
        done
    }

    /// Moves to the present session, if there is one.
    #[cold]
    #[inline(never)]
    fn enter_session(&mut self) {
        let (epoch, session) = self.buffers.shared.take_session(2 * self.index + 1);
        self.epoch = epoch;
        self.buffers.leave_ring();
        self.buffers.published.set_busy(false);
        self.session = session;
        let size = self.session.as_ref().map_or(0, |session| each_layout!(&session.ring, ring => ring.size()));
        if self.buffers.packets.len() < size {
            self.buffers.slots = Table::new(size, |_| None);
            self.buffers.packets = Table::new(size, |_| None);
        }
        self.buffers.header = self.session.as_ref().map(|session| session.header);
        self.buffers.ring = size;
        self.buffers.first_known_is_usual();
    }

    /// Touches the ring no more; its packets stay with the device until it has been reset.
    #[cold]
    #[inline(never)]
    fn end_session(&mut self, fault: Fault) {
        self.session = None;
        self.buffers.shared.report_fault(self.epoch, fault);
    }
}

impl<T: Transport> ethdev::TxQueue for TxQueue<T> {
    /// Does nothing while the device is away.
    #[inline]
    fn send(&mut self, cache: &mut PoolCache, batch: &mut Batch) -> usize {
        let count = batch.len();
        if count <= 1 {
            return self.send_lone(cache, batch);
        }
        // Without the cache, so that the loop has its register.
        let sent = self.send_ring::<false>(batch);
        if sent == count { sent } else { self.send_on(cache, batch, sent) }
    }

    fn counters(&self) -> TxCounters {
        let [packets, bytes] = self.buffers.published.get();
        TxCounters { packets, bytes, ..self.buffers.counters }
    }

    fn in_flight(&self) -> usize {
        self.session.as_ref().map_or(0, |session| each_layout!(&session.ring, ring => ring.in_flight()))
    }
}

impl<T: Transport> TxBuffers<T> {
    /// Takes back the buffers of `most` frames that the device has done with, if there are as many.
    #[inline(never)]
    fn reclaim<R: Virtqueue>(&mut self, ring: &mut R, cache: &mut PoolCache, mut most: usize) -> Result<(), Fault> {
        if cache.pool_id() != self.usual {
            return self.reclaim_rest(ring, cache);
        }
        while most > 0 {
            let mut run = self.reclaim_run(ring, cache, most, false)?;
            if run.count == 0 && ring.has_more(run) {
                run = self.reclaim_run(ring, cache, most, true)?;
                if run.count == 0 {
                    return self.reclaim_rest(ring, cache);
                }
            }
            if !ring.has_more(run) {
                return Ok(());
            }
            most -= run.count;
        }
        Ok(())
    }

    /// Takes back buffers of the usual pool, [`CHUNK`] at most; in whatever order the device completes them, if `any`.
    #[inline(always)]
    fn reclaim_run<R: Virtqueue>(
        &mut self,
        ring: &mut R,
        cache: &mut PoolCache,
        most: usize,
        any: bool,
    ) -> Result<Passed, Fault> {
        let places = cache.room(CHUNK.min(most));
        let (count, places) = (places.len(), places.as_mut_ptr());
        let sent = self.slots.start();
        // By value: what it refers to would be read from the stack anew for each buffer.
        let each = move |n, id, _| {
            // SAFETY: an id of the ring, for each of which there is an entry (type invariant).
            let Some(slot) = unsafe { &mut *sent.wrapping_add(id) }.take() else { return false };
            // SAFETY: a run is as long as there are places, at most.
            let place = unsafe { places.add(n) };
            // SAFETY: as above.
            unsafe { place.write(MaybeUninit::new(slot)) };
            true
        };
        let ahead = |used: &R::Reader, run| {
            if !self.has_fours {
                return 0;
            }
            // SAFETY: the processor has AVX2; for the rest as above.
            unsafe { fours::reclaim(used, run, sent, places.cast()) }
        };
        let run = if any { ring.reclaim_any(count, each)? } else { ring.reclaim::<false>(count, ahead, each)? };
        // SAFETY: a slot of this pool was written for each that was reclaimed, and the queue has given it up.
        unsafe { cache.filled(run.count) };
        Ok(run)
    }

    /// Goes on where something unusual is in the way.
    #[cold]
    #[inline(never)]
    fn reclaim_rest<R: Virtqueue>(&mut self, ring: &mut R, cache: &mut PoolCache) -> Result<(), Fault> {
        while let Some(used) = ring.used(|id| self.has(id))? {
            let mut id = used.id;
            for part in 1..=used.count {
                if let Some(packet) = self.take(id.into()) {
                    cache.free(packet);
                }
                if part < used.count {
                    id = ring.next_in_chain(id);
                }
            }
        }
        Ok(())
    }

    /// Whether the ring has something under this id.
    fn has(&self, id: u16) -> bool {
        self.slots.at(id.into()).is_some() || self.packets.at(id.into()).is_some()
    }

    /// What the ring had under this id.
    fn take(&mut self, id: usize) -> Option<Packet> {
        let slot = self.slots.at_mut(id).take();
        // SAFETY: the slot is of the usual pool, and the queue gives it up.
        let packet = slot.map(|slot| unsafe { Packet::from_slot(slot, Meta::new(0, 0, self.usual)) });
        packet.or_else(|| self.packets.at_mut(id).take())
    }

    /// Takes back buffers, if fewer descriptors would be free behind `count` packets than are kept free.
    #[inline(always)]
    fn make_free<R: Virtqueue>(&mut self, ring: &mut R, cache: &mut PoolCache, count: usize) -> Result<(), Fault> {
        let keep_free = if count == 0 || self.is_pool_low() { ring.size() } else { self.keep_free };
        let most = (keep_free + count).saturating_sub(ring.free());
        // Many at a time.
        let at_once = (ring.size() / 8).clamp(CHUNK, 2 * CHUNK);
        if most > 0 { self.reclaim(ring, cache, most.max(at_once)) } else { Ok(()) }
    }

    /// Sends a frame of one segment from the usual pool, with room in front for the header. Returns whether it was such, and the
    /// ring had room; the caller takes it out of the batch then, and nothing panics until it has.
    #[inline(always)]
    fn send_one<R: Virtqueue>(&mut self, ring: &mut R, packet: &Packet) -> bool {
        let Some(id) = ring.next_free() else { return false };
        let (slot, usual) = (packet.slot(), &self.usual_frame);
        let Some((head, more)) = usual.head::<true>(slot, packet.meta()) else { return false };
        // SAFETY: the room for a header of a usual frame, which belongs to the packet.
        unsafe { make_clear(head) };
        let (address, total) = ((head as u64).wrapping_add(usual.delta), usual.shortest + more);
        let slots = self.slots.start();
        // The packet leaves the batch without being dropped there.
        // SAFETY: an id of the ring, for each of which there is an entry (type invariant).
        unsafe { *slots.wrapping_add(id) = Some(slot) };
        ring.post_next(id, address, total);
        self.published.add(1, more.into());
        self.published.set_busy(true);
        true
    }

    /// Sends frames behind the first `sent` packets, which the ring has taken over, up to the first that there is no room for or that
    /// has to wait for its pool to be mapped. Returns the number of packets that left the batch.
    fn send<R: Virtqueue>(
        &mut self,
        ring: &mut R,
        header: &Header,
        cache: &mut PoolCache,
        batch: &mut Batch,
        sent: usize,
    ) -> usize {
        let (mut done, mut unknown) = self.send_known(ring, header, cache, batch, sent);
        // Each pool is asked for once.
        while let Some(packet) = unknown.and_then(|place| batch.get(place))
            && self.add_pool(packet, ring.in_flight() == 0)
        {
            let more;
            (more, unknown) = self.send_known(ring, header, cache, batch, 0);
            done += more;
        }
        done
    }

    /// Sends frames of known pools, up to the first that there is no room for or that has a packet of another pool. The ring has
    /// taken over the first `sent` packets. Returns the number of packets that left the batch, and the place of that packet.
    fn send_known<R: Virtqueue>(
        &mut self,
        ring: &mut R,
        header: &Header,
        cache: &mut PoolCache,
        batch: &mut Batch,
        sent: usize,
    ) -> (usize, Option<usize>) {
        let mut sending = batch.sending();
        // SAFETY: by the caller's word, and `Self::send`'s, of which nothing panicked since.
        unsafe { sending.take(sent) };
        let mut unknown = None;
        while !sending.is_empty() {
            let mut run = self.send_run(ring, &sending);
            if run == 0 {
                run = self.send_run_any(ring, header, &sending);
            }
            // SAFETY: a run has no more packets than there were, and the ring has taken over their slots.
            unsafe { sending.take(run) };
            if run > 0 {
                continue;
            }
            match self.send_unusual(ring, header, cache, &mut sending) {
                Unusual::Taken => {}
                Unusual::Full => break,
                Unusual::UnknownPool(place) => {
                    unknown = Some(place);
                    break;
                }
            }
        }
        (sending.taken(), unknown)
    }

    /// Looks whether the next burst's headers are clear: where the first says something, as after a receive, a look at the others
    /// would be for nothing.
    fn look_at_header(&mut self, packets: &[Packet]) {
        if let Some(packet) = packets.first()
            && packet.offset() >= LONGEST_HEADER
        {
            let head = packet.slot().as_ptr().wrapping_add((packet.offset() - LONGEST_HEADER).into());
            // SAFETY: there is room for a header in front of the data, and it belongs to the packet.
            self.looks = self.usual_frame.limit != UsualFrame::NO_LIMIT || unsafe { is_cleared(head) };
        }
    }

    /// Sends frames as [`Self::send_one`] does, up to the first that is not such, or the end of the ring. Returns their number.
    #[inline(never)]
    fn send_run<R: Virtqueue>(&mut self, ring: &mut R, packets: &[Packet]) -> usize {
        // SAFETY: the room for a header of a usual frame, which belongs to the packet.
        let clear = |head| unsafe { make_clear(head) };
        if self.usual_frame.limit == UsualFrame::NO_LIMIT {
            return self.send_run_with::<_, false, false>(ring, packets, clear);
        }
        self.send_run_with::<_, true, false>(ring, packets, clear)
    }

    /// [`Self::send_run`] for a device without an MTU, where most headers are not clear.
    #[inline(always)]
    fn send_run_clearing<R: Virtqueue, const FOURS: bool>(&mut self, ring: &mut R, packets: &[Packet]) -> usize {
        // SAFETY: the room for a header of a usual frame, which belongs to the packet.
        self.send_run_with::<_, false, FOURS>(ring, packets, |head| unsafe { clear_header(head) })
    }

    /// `clear` clears the room for a header, which belongs to the packet. Frames are `LIMITED`
    /// by the device's MTU.
    #[inline(always)]
    fn send_run_with<R: Virtqueue, const LIMITED: bool, const FOURS: bool>(
        &mut self,
        ring: &mut R,
        packets: &[Packet],
        clear: impl Fn(*mut u8),
    ) -> usize {
        let (slots, usual, mut beyond) = (self.slots.start(), &self.usual_frame, 0);
        let mut beyond_of_fours = 0;
        let ahead = |to: &mut R::Writer, run| {
            if !FOURS {
                return 0;
            }
            // SAFETY: the processor has AVX2; for the rest as below.
            unsafe { fours::send(to, run, slots, packets.as_ptr(), usual, &mut beyond_of_fours) }
        };
        let sent = ring.post(packets.len(), false, usual.shortest, ahead, |n, id| {
            // SAFETY: a run of as many at most.
            let packet = unsafe { packets.get_unchecked(n) };
            let slot = packet.slot();
            let (head, more) = usual.head::<LIMITED>(slot, packet.meta())?;
            clear(head);
            beyond += u64::from(more);
            // SAFETY: an id of the ring, for each of which there is an entry (type invariant).
            unsafe { *slots.wrapping_add(id) = Some(slot) };
            Some(((head as u64).wrapping_add(usual.delta), more))
        });
        self.published.add(sent as u64, beyond + beyond_of_fours);
        self.published.set_busy(true);
        sent
    }

    /// [`Self::send_run`] with any translation and ids.
    fn send_run_any<R: Virtqueue>(&mut self, ring: &mut R, header: &Header, packets: &[Packet]) -> usize {
        let translation = Arc::clone(self.known.usual().1);
        let usual = self.usual_frame.below(UsualFrame::limit_of(header));
        let (slots, mut beyond) = (self.slots.start(), 0);
        let sent = ring.post_any(packets.len(), false, usual.shortest, |n, id| {
            let packet = packets.get(n)?;
            let (head, more) = usual.head::<true>(packet.slot(), packet.meta())?;
            // SAFETY: the room for a header of a usual frame, which belongs to the packet.
            unsafe { make_clear(head) };
            beyond += u64::from(more);
            // SAFETY: an id of the ring, for each of which there is an entry (type invariant).
            unsafe { *slots.wrapping_add(id) = Some(packet.slot()) };
            let data = translation.iova(head).wrapping_add(LONGEST_HEADER.into());
            Some((data.wrapping_sub(header.len.into()), more))
        });
        self.published.add(sent as u64, beyond);
        sent
    }

    /// Deals with the next frame, which [`Self::send_run`] did not take: no room, several segments, another pool, no room for
    /// the header, or not to be sent at all.
    #[cold]
    #[inline(never)]
    fn send_unusual<R: Virtqueue>(
        &mut self,
        ring: &mut R,
        header: &Header,
        cache: &mut PoolCache,
        sending: &mut Sending<'_>,
    ) -> Unusual {
        let packets = &mut **sending;
        let segments = packets.iter().position(|packet| !packet.continues()).map_or(packets.len(), |last| last + 1);
        let frame = &mut packets[..segments];
        let len: usize = frame.iter().map(Packet::len).sum();
        let unknown = |packet: &Packet| !self.known.has(packet);
        let is_refused = |packet: &Packet| self.refused.iter().any(|pool| pool.id() == packet.pool_id());
        let reason = if len < SHORTEST.into() || frame.iter().any(Packet::is_empty) {
            &mut self.counters.bad_length
        } else if !header.allows(len, &frame[0]) {
            &mut self.counters.too_long
        } else if segments > MOST_SEGMENTS.min(ring.size() - 1) {
            &mut self.counters.too_many_segments
        } else if segments + 1 > ring.free() {
            return Unusual::Full;
        } else if frame.iter().any(is_refused) {
            &mut self.counters.unmapped_pool
        } else if let Some(place) = frame.iter().position(unknown) {
            return Unusual::UnknownPool(place);
        } else {
            if !header.device_checksum || !has_room(header, &frame[0]) {
                complete_checksum(frame);
            }
            self.send_frame(ring, header, frame);
            self.published.add_frame(len);
            // SAFETY: the ring has taken over these packets.
            unsafe { sending.take(segments) };
            return Unusual::Taken;
        };
        *reason += 1;
        for _ in 0..segments {
            if let Some(packet) = sending.next() {
                cache.free(packet);
            }
        }
        Unusual::Taken
    }

    /// Asks for the mapping of a pool that is new to this queue. Returns whether it is known now, or refused; if not, its
    /// frames wait. Nothing is unsettled meanwhile, so this may allocate.
    #[cold]
    #[inline(never)]
    fn add_pool(&mut self, packet: &Packet, idle: bool) -> bool {
        let (pool, mapping) = self.shared.pools.look_up(packet);
        match mapping {
            Mapping::Wanted => return false,
            Mapping::Refused => self.refused.push(pool),
            Mapping::Known(translation) => {
                self.known.add(pool, translation);
                if idle {
                    // Nothing is in flight: the pool in use becomes the usual one.
                    self.known.make_newest_usual();
                    self.first_known_is_usual();
                }
            }
        }
        true
    }

    fn first_known_is_usual(&mut self) {
        let (pool, translation) = self.known.usual();
        self.usual = pool.id();
        self.pool = pool.clone();
        self.usual_frame = UsualFrame::of_pool(self.usual);
        if let Some(header) = self.header {
            self.usual_frame.shortest = u32::from(header.len) + u32::from(SHORTEST);
            if let Translation::Linear { delta } = **translation {
                self.usual_frame.limit = UsualFrame::limit_of(&header);
                self.usual_frame.delta = delta.wrapping_add(LONGEST_HEADER.into()).wrapping_sub(header.len.into());
            }
        }
        self.looks = true;
        self.set_keep_free();
    }

    /// Most of the ring is left to the device, so that this side seldom touches a cache line which that side is about to
    /// write; but no more than a quarter of the pool.
    fn set_keep_free(&mut self) {
        self.keep_free = self.ring - (self.ring - self.ring / 8).min(self.known.usual().0.slots() / 4);
    }

    /// Whether the usual pool may soon have nothing for a receive queue.
    #[inline(always)]
    fn is_pool_low(&self) -> bool {
        self.pool.is_low(2 * CHUNK)
    }

    /// Sends a frame of any number of segments from known pools; there is room for them and the header.
    fn send_frame<R: Virtqueue>(&mut self, ring: &mut R, header: &Header, frame: &[Packet]) {
        let nothing = Buffer { address: 0, len: 0, writable: false };
        let mut chain = [nothing; MOST_SEGMENTS + 1];
        chain[0] = Buffer { address: header.zeros, len: header.len.into(), writable: false };
        for (place, packet) in chain[1..].iter_mut().zip(frame) {
            let Some(address) = self.known.iova(packet) else { continue };
            place.address = address;
            place.len = u32::from(packet.meta().len());
        }
        let mut parts = &chain[..=frame.len()];
        if has_room(header, &frame[0]) {
            // SAFETY: the offset is within the slot.
            let data = unsafe { frame[0].slot().as_ptr().add(frame[0].offset().into()) };
            // SAFETY: as many bytes of the slot are in front of the data, and belong to the packet.
            unsafe { clear_header(data.wrapping_sub(LONGEST_HEADER.into())) };
            if let Checksum::Partial { start, offset } = frame[0].checksum() {
                // SAFETY: as above.
                unsafe { ask_for_checksum(data, header, start, offset) };
            }
            chain[1].address -= u64::from(header.len);
            chain[1].len += u32::from(header.len);
            parts = &chain[1..=frame.len()];
        }
        let ahead = parts.len() - frame.len();
        let packets = &mut self.packets;
        ring.post_chain(parts, |place, id| {
            let Some(packet) = place.checked_sub(ahead).map(|place| &frame[place]) else { return };
            // SAFETY: the packet leaves the batch without being dropped there; it moves here.
            *packets.at_mut(id.into()) = Some(unsafe { std::ptr::read(packet) });
        });
    }

    /// All that the ring has or had.
    fn take_all(&mut self) -> Vec<Packet> {
        (0..self.slots.len()).filter_map(|id| self.take(id)).collect()
    }

    /// Frees what was in flight in a session that has ended.
    fn leave_ring(&mut self) {
        self.counters.lost += self.take_all().iter().filter(|packet| !packet.continues()).count() as u64;
    }
}

impl<T: Transport> Drop for TxQueue<T> {
    fn drop(&mut self) {
        let packets = self.buffers.take_all();
        self.buffers.shared.park(packets);
    }
}

impl<T: Transport> fmt::Debug for TxQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TxQueue").field("index", &self.index).field("session", &self.session).finish_non_exhaustive()
    }
}
