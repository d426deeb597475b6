//! The work of an lcore.

use crate::Clock;
use ethdev::RxQueue;

/// The work of an lcore in each round of its [`Loop`](crate::Loop).
///
/// A closure `FnMut(&mut Clock) -> bool` is a function that only polls, and so never sleeps. A type that implements
/// this trait can sleep, and can make its counters visible to other threads:
///
/// ```
/// use ethdev::{PortConfig, RxQueue, in_process};
/// use lcore::{Clock, Function, Loop, Stop};
/// use mempool::{Batch, Pool, PoolCache, PoolConfig};
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// /// Receives `limit` frames.
/// #[derive(Debug)]
/// struct Count<'a, Q> {
///     rx: Q,
///     cache: PoolCache,
///     batch: Batch,
///     limit: u64,
///     received: &'a AtomicU64,
/// }
///
/// impl<Q: RxQueue> Function for Count<'_, Q> {
///     #[inline(always)]
///     fn poll(&mut self, _: &mut Clock) -> bool {
///         let moved = !self.rx.recv(&mut self.cache, &mut self.batch).is_empty();
///         self.cache.free_batch(&mut self.batch);
///         moved
///     }
///
///     fn publish(&mut self) {
///         self.received.store(self.rx.counters().packets, Ordering::Relaxed);
///     }
///
///     fn queues(&mut self) -> Vec<&mut dyn RxQueue> {
///         vec![&mut self.rx]
///     }
///
///     fn is_done(&self) -> bool {
///         self.rx.counters().packets >= self.limit
///     }
/// }
///
/// let pool = Pool::new(&PoolConfig::default())?;
/// let (mut opened, mut wire) = in_process::open("a", &PortConfig::default(), &pool)?;
/// (0..3).for_each(|_| assert!(wire.inject(&[0; 60])));
/// let (received, rx) = (AtomicU64::new(0), opened.rx.remove(0));
/// let (cache, batch) = (pool.cache(), Batch::with_capacity(32));
/// Loop::new(&Stop::new()?).run(Count { rx, cache, batch, limit: 3, received: &received });
/// assert_eq!(received.into_inner(), 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Function {
    /// Polls each queue once, those of any driver through [`PacedRx`](crate::PacedRx). Returns whether packets moved.
    ///
    /// If it counts cycles, it should take a lap of `clock` for each queue; if it takes none, the loop takes one for
    /// the round. Mark it `#[inline(always)]`, as it is called from one place.
    fn poll(&mut self, clock: &mut Clock) -> bool;

    /// Makes counters visible to other threads. Called every 2 ms, before each sleep, and after the last round.
    fn publish(&mut self) {}

    /// Returns the receive queues whose interrupts wake the lcore. If there are none (the default), or if one of them
    /// has no interrupts, the lcore never sleeps. Called at the start and before each sleep, not each round.
    fn queues(&mut self) -> Vec<&mut dyn RxQueue> {
        Vec::new()
    }

    /// Returns whether the work is done even if no stop was requested; by default false. Called before each
    /// publication; if it returns true, the loop ends with that publication.
    fn is_done(&self) -> bool {
        false
    }

    /// Sends what is still held back. Called before the last publication.
    fn finish(&mut self) {}
}

impl<F: FnMut(&mut Clock) -> bool> Function for F {
    #[inline(always)]
    fn poll(&mut self, clock: &mut Clock) -> bool {
        self(clock)
    }
}
