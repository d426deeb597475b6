//! A receive queue in a loop, and when it is polled again.

use crate::Clock;
use ethdev::{RxInfos, RxQueue};
use mempool::{Batch, Packet, PoolCache};

/// A receive queue that a [`Function`](crate::Function) polls in each round, and that is left alone for as long as it asks for
/// ([`RxQueue::rest_cycles`]) when nothing has come. Meanwhile the loop goes round, and other queues are polled.
///
/// Time is that of the loop's clock, so a queue is polled in each round of a loop whose rounds take longer, and also in the first
/// round after a sleep and in the last ones before the loop ends.
///
/// ```
/// use ethdev::{PortConfig, in_process};
/// use lcore::{Clock, Loop, PacedRx, Stop};
/// use mempool::{Batch, Pool, PoolConfig};
///
/// let pool = Pool::new(&PoolConfig::default())?;
/// let (mut opened, mut wire) = in_process::open("a", &PortConfig::default(), &pool)?;
/// assert!(wire.inject(&[7; 60]));
/// let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(32));
/// let mut rx = PacedRx::new(opened.rx.remove(0));
/// let stop = Stop::new()?;
/// stop.request();
/// let mut received = 0;
/// Loop::new(&stop).run(|clock: &mut Clock| {
///     let count = rx.recv(clock, &mut cache, &mut batch).len();
///     cache.free_batch(&mut batch);
///     received += count;
///     count > 0
/// });
/// assert_eq!(received, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct PacedRx<Q> {
    /// The queue.
    pub queue: Q,
    /// When nothing had come, and when it is polled again.
    rests_since: u64,
    next: u64,
}

impl<Q: RxQueue> PacedRx<Q> {
    /// Creates one that is polled at once.
    #[must_use]
    pub fn new(queue: Q) -> Self {
        Self { queue, rests_since: 0, next: 0 }
    }

    /// Receives as [`RxQueue::recv`] does; nothing, and without a look at the queue, while that rests.
    #[inline(always)]
    pub fn recv<'b>(&mut self, clock: &Clock, cache: &mut PoolCache, batch: &'b mut Batch) -> &'b mut [Packet] {
        if self.rests(clock) {
            return &mut [];
        }
        let packets = self.queue.recv(cache, batch);
        self.found(clock, packets.len());
        packets
    }

    /// Receives as [`RxQueue::recv_with`] does; nothing, and without a look at the queue, while that rests. Then `infos` is empty.
    #[inline(always)]
    pub fn recv_with<'b>(
        &mut self,
        clock: &Clock,
        cache: &mut PoolCache,
        batch: &'b mut Batch,
        infos: &mut RxInfos,
    ) -> &'b mut [Packet] {
        if self.rests(clock) {
            infos.clear();
            return &mut [];
        }
        let packets = self.queue.recv_with(cache, batch, infos);
        self.found(clock, packets.len());
        packets
    }

    #[inline(always)]
    fn rests(&self, clock: &Clock) -> bool {
        clock.now() < self.next && !clock.has_woken_since(self.rests_since)
    }

    #[inline(always)]
    fn found(&mut self, clock: &Clock, packets: usize) {
        if packets == 0 {
            self.rests_since = clock.now();
            self.next = clock.now().saturating_add(self.queue.rest_cycles());
        }
    }
}
