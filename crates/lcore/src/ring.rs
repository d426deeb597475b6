//! Rings between lcores: one lcore receives packets, another works on them.

use mempool::{Batch, Packet};
use rtrb::{Consumer, Producer, RingBuffer};
use std::fmt;

/// Makes a ring for `capacity` packets (at least 1) from one lcore to another; each end may be moved to its thread. A
/// pipeline consists of lcores with rings between them. An lcore that spreads its packets over several others has a
/// ring to each ([`Batch::distribute`] sorts the packets).
///
/// A complete program: the first lcore receives, the second changes addresses and transmits.
///
/// ```
/// use ethdev::{Opened, PortConfig, RxQueue as _, TxQueue as _, in_process};
/// use lcore::{Clock, Loop, Stop, Team};
/// use mempool::{Batch, Pool, PoolConfig, frames_mut};
///
/// let pool = Pool::new(&PoolConfig::default())?;
/// let (opened, mut wire) = in_process::open("port", &PortConfig::default(), &pool)?;
/// let Opened { port: _port, mut rx, mut tx } = opened;
/// let (mut sender, mut receiver) = lcore::ring(1024);
///
/// let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(32));
/// let receive = move |_: &mut Clock| {
///     // What the ring had no room for is still in the batch; what comes next goes behind it.
///     rx[0].recv(&mut cache, &mut batch);
///     sender.send(&mut batch) > 0
/// };
/// let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(32));
/// let transmit = move |_: &mut Clock| {
///     for frame in frames_mut(receiver.recv(&mut batch)) {
///         if let Some(addresses) = frame[0].data_mut().get_mut(..12) {
///             addresses.rotate_left(6);
///         }
///     }
///     tx[0].send(&mut cache, &mut batch) > 0
/// };
///
/// let stop = Stop::new()?;
/// let (first, second) = (Loop::new(&stop), Loop::new(&stop));
/// let stages: [Box<dyn FnOnce() + Send>; 2] =
///     [Box::new(move || drop(first.run(receive))), Box::new(move || drop(second.run(transmit)))];
/// // The last two lcores, if there are two.
/// let lcores: Vec<_> = lcore::available()?.iter().rev().map(|lcore| lcore.number).collect();
/// let lcore = |stage: usize| lcores.get(stage).copied().filter(|_| lcores.len() > 1);
/// let team = Team::start(stages.into_iter().enumerate().map(|(at, stage)| (lcore(at), stage)).collect(), &stop)?;
///
/// assert!(wire.inject(&[[1; 6], [2; 6], [3; 6]].concat()));
/// let sent = std::iter::repeat_with(|| wire.collect()).flatten().next();
/// assert_eq!(sent, Some([[2; 6], [1; 6], [3; 6]].concat()));
/// stop.request();
/// team.join()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
///
/// If `capacity` packets, of 16 bytes each, exceed `isize::MAX` bytes.
#[must_use]
pub fn ring(capacity: usize) -> (PacketSender, PacketReceiver) {
    let (producer, consumer) = RingBuffer::new(capacity.max(1));
    (PacketSender { ring: producer, too_long: 0 }, PacketReceiver { ring: consumer, batch_too_small: 0 })
}

/// The sending end of a [`ring()`]: belongs to one thread at a time.
///
/// After it is dropped, the packets it has sent can still be received.
///
/// ```
/// use mempool::{Batch, Pool, PoolConfig};
///
/// let pool = Pool::new(&PoolConfig::default())?;
/// let (mut sender, mut receiver) = lcore::ring(3);
/// let mut batch = Batch::with_capacity(4);
/// pool.cache().alloc_batch(&mut batch, 4, 60);
/// assert_eq!((sender.send(&mut batch), batch.len()), (3, 1));
/// assert_eq!(sender.spare(), 0);
/// drop(receiver);
/// assert!(sender.is_disconnected());
/// # Ok::<(), mempool::Error>(())
/// ```
pub struct PacketSender {
    /// Holds whole frames only: what goes in at once ends with one.
    ring: Producer<Packet>,
    too_long: u64,
}

impl PacketSender {
    /// Moves packets from the front of `batch` into the ring, as many as there is room for; the rest stay in the batch.
    /// Once the receiver is gone, all of them stay. Returns the number of packets that left the batch.
    ///
    /// Frames are sent whole; a run of packets whose last one [continues](Packet::continues) counts as whole. A frame
    /// of more packets than the ring's capacity is dropped and counted.
    #[inline]
    pub fn send(&mut self, batch: &mut Batch) -> usize {
        let len = batch.len();
        if len == 0 || self.is_disconnected() {
            return 0;
        }
        if self.ring.cached_slots() >= len || self.ring.slots() >= len {
            if let Some(last) = batch.last_mut().filter(|last| last.continues()) {
                last.set_continues(false);
            }
            self.put(batch, len);
        } else {
            self.send_some(batch);
        }
        len - batch.len()
    }

    /// Sends the whole frames that there is room for, which are not all.
    fn send_some(&mut self, batch: &mut Batch) {
        let spare = self.ring.slots();
        while batch.len() > spare {
            let (whole, first) = (whole_frames(spare, |at| batch.get(at)), first_frame(|at| batch.get(at)));
            if whole > 0 || first <= self.capacity() {
                return self.put(batch, whole);
            }
            batch.drain_range(..first).for_each(drop);
            self.too_long += 1;
        }
        self.send(batch);
    }

    /// Puts the first `count` packets in; there is room for them.
    #[inline(always)]
    fn put(&mut self, batch: &mut Batch, count: usize) {
        if let Ok(chunk) = self.ring.write_chunk_uninit(count) {
            chunk.fill_from_iter(batch.drain_range(..count));
        }
    }

    /// Returns the number of packets there is room for at this moment; it grows as the receiver takes some.
    #[must_use]
    pub fn spare(&self) -> usize {
        self.ring.slots()
    }

    /// Returns the largest number of packets the ring can hold.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.ring.buffer().capacity()
    }

    /// Returns the number of frames dropped because they had more packets than the ring can hold.
    #[must_use]
    pub fn too_long(&self) -> u64 {
        self.too_long
    }

    /// Returns whether the receiver is gone, so that nothing can be sent any more.
    #[inline]
    #[must_use]
    pub fn is_disconnected(&self) -> bool {
        self.ring.is_abandoned()
    }
}

/// The receiving end of a [`ring()`]: belongs to one thread at a time.
///
/// It has no interrupts and must be polled, so a [`Function`](crate::Function) that waits for packets from a ring must
/// not sleep: it returns no [`queues`](crate::Function::queues). When the receiver is dropped, the packets in the ring
/// return to their pools.
///
/// ```
/// use mempool::{Batch, Pool, PoolConfig};
///
/// let pool = Pool::new(&PoolConfig::default())?;
/// let (mut sender, mut receiver) = lcore::ring(64);
/// let mut batch = Batch::with_capacity(32);
/// pool.cache().alloc_batch(&mut batch, 2, 60);
/// sender.send(&mut batch);
/// drop(sender);
/// // In this order: what was sent before the sender went away has then been received.
/// while !(receiver.is_disconnected() && receiver.recv(&mut batch).is_empty()) {}
/// assert_eq!(batch.len(), 2);
/// # Ok::<(), mempool::Error>(())
/// ```
pub struct PacketReceiver {
    /// Holds whole frames only, and what is seen of it at any time is whole frames too.
    ring: Consumer<Packet>,
    batch_too_small: u64,
}

impl PacketReceiver {
    /// Appends packets from the ring to `batch`, as many as fit. Returns the packets received: the last ones of
    /// `batch`, without those that were in it before.
    ///
    /// Frames are received whole. A frame of more packets than an empty batch can hold is dropped and counted.
    #[inline]
    pub fn recv<'b>(&mut self, batch: &'b mut Batch) -> &'b mut [Packet] {
        let (before, spare) = (batch.len(), batch.spare());
        let seen = self.ring.cached_slots();
        let waiting = if seen >= spare { seen } else { self.ring.slots() };
        let count = if waiting <= spare { waiting } else { self.cut(waiting, spare, before == 0) };
        if let Ok(chunk) = self.ring.read_chunk(count) {
            chunk.into_iter().for_each(|packet| {
                // There is room for all of them.
                let _ = batch.push(packet);
            });
        }
        batch.get_mut(before..).unwrap_or_default()
    }

    /// Of `waiting` packets, those of the first frames that fit into a batch with room for `spare`, which are fewer. If the batch
    /// is empty, frames that do not fit are dropped.
    fn cut(&mut self, mut waiting: usize, spare: usize, empty: bool) -> usize {
        while waiting > spare {
            let Ok(chunk) = self.ring.read_chunk(waiting) else { return 0 };
            let (front, back) = chunk.as_slices();
            let packet = |at: usize| front.get(at).or_else(|| back.get(at - front.len()));
            let whole = whole_frames(spare, packet);
            if whole > 0 || !empty || spare == 0 {
                return whole;
            }
            let first = first_frame(packet);
            chunk.commit(first);
            self.batch_too_small += 1;
            waiting -= first;
        }
        waiting
    }

    /// Returns the number of packets waiting in the ring at this moment; it grows as the sender sends some.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ring.slots()
    }

    /// Returns whether no packet is waiting.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// Returns the number of frames dropped because they had more packets than the batch can hold.
    #[must_use]
    pub fn batch_too_small(&self) -> u64 {
        self.batch_too_small
    }

    /// Returns whether the sender is gone. If so, and [`Self::recv`] then finds nothing, no more packets will come.
    #[inline]
    #[must_use]
    pub fn is_disconnected(&self) -> bool {
        self.ring.is_abandoned()
    }
}

/// Returns the packets in the ring to their pools, with any that a sender sends at the same moment.
impl Drop for PacketReceiver {
    fn drop(&mut self) {
        if let Ok(chunk) = self.ring.read_chunk(self.ring.slots()) {
            chunk.commit_all();
        }
    }
}

impl fmt::Debug for PacketSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacketSender").field("capacity", &self.capacity()).field("spare", &self.spare()).finish()
    }
}

impl fmt::Debug for PacketReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacketReceiver").field("len", &self.len()).finish()
    }
}

/// Number of packets up to the end of the last frame that ends among the first `count`; `packet` gives each by its number.
fn whole_frames<'p>(count: usize, packet: impl Fn(usize) -> Option<&'p Packet>) -> usize {
    let ends = |end: &usize| packet(end - 1).is_some_and(|packet| !packet.continues());
    (1..=count).rev().find(ends).unwrap_or(0)
}

/// Number of packets of the first frame; there is one.
fn first_frame<'p>(packet: impl Fn(usize) -> Option<&'p Packet>) -> usize {
    (1..).find(|end| packet(*end).is_none() || packet(end - 1).is_none_or(|packet| !packet.continues())).unwrap_or(1)
}
