//! What one lcore does each round: receive a burst, rewrite it, send it; run to completion, queue after queue.
//!
//! It allocates nothing, takes no lock, logs nothing and makes no system call per burst. [`lcore::Loop`] goes round.

use crate::output::Output;
use cli::lane::Tally;
use lcore::{Clock, Function, Loop, PacedRx, Stop};
use mempool::{Batch, Pool, PoolCache};
use nic::{AnyRxQueue, RxQueue, TxQueue as _};

/// What is done with a burst.
pub(crate) trait Mode: Default + Send + 'static {
    /// The name of the command.
    const NAME: &'static str;
    /// Ports must come in pairs.
    const PAIRS: bool = false;

    /// Returns the port by which frames of `port` leave; `None` if they are not sent.
    fn output(port: usize) -> Option<usize>;

    /// Changes the frames of a burst, all of which are whole; the default leaves them as they are.
    #[inline(always)]
    fn rewrite(&mut self, batch: &mut Batch) {
        let _ = batch;
    }
}

/// A receive queue, the transmit queue its frames leave by, and what happened between them.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) rx: PacedRx<AnyRxQueue>,
    pub(crate) tx: Option<Output>,
    /// Which of the worker's pools its frames lie in.
    cache: usize,
    pub(crate) tally: Tally,
}

/// One lcore's work.
#[derive(Debug)]
pub(crate) struct Worker<M> {
    pub(crate) lanes: Vec<Lane>,
    /// Those that its lanes receive into: one, unless it polls ports of several NUMA nodes.
    pub(crate) pools: Vec<Pool>,
    /// Packets received at a time.
    pub(crate) batch: usize,
    pub(crate) mode: M,
    pub(crate) stop: Stop,
    /// Software NICs run on the same cores: let them, when there is nothing to do.
    pub(crate) yields: bool,
    pub(crate) poll_loop: Loop,
}

/// The worker at work.
struct Forwarding<M> {
    lanes: Vec<Lane>,
    /// One for each pool.
    caches: Vec<PoolCache>,
    batch: Batch,
    mode: M,
    stop: Stop,
    yields: bool,
}

impl<M: Mode> Worker<M> {
    /// Works until told to stop and all frames that have arrived are handled. Returns the queues, with final counters.
    pub(crate) fn run(self) -> Vec<Lane> {
        let Self { lanes, pools, batch, mode, stop, yields, poll_loop } = self;
        let (caches, batch) = (pools.iter().map(Pool::cache).collect(), Batch::with_capacity(batch));
        poll_loop.run(Forwarding { lanes, caches, batch, mode, stop, yields }).lanes
    }
}

impl<M: Mode> Function for Forwarding<M> {
    #[inline(always)]
    fn poll(&mut self, clock: &mut Clock) -> bool {
        let Self { lanes, caches, batch, mode, stop, yields } = self;
        let mut moved = false;
        for lane in lanes {
            let waited = lane.poll(clock, mode, &mut caches[lane.cache], batch, stop, *yields);
            let cycles = clock.lap();
            if let Some(waited) = waited {
                lane.tally.counters.cycles += cycles.saturating_sub(waited);
                moved = true;
                if waited > 0 && stop.is_requested() {
                    clock.publish_soon();
                }
            }
        }
        moved
    }

    fn publish(&mut self) {
        self.lanes.iter_mut().for_each(Lane::publish);
    }

    fn queues(&mut self) -> Vec<&mut dyn RxQueue> {
        self.lanes.iter_mut().map(|lane| &mut lane.rx.queue as _).collect()
    }
}

impl Lane {
    pub(crate) fn new(rx: AnyRxQueue, cache: usize, tx: Option<Output>, tally: Tally) -> Self {
        Self { rx: PacedRx::new(rx), tx, cache, tally }
    }

    /// Moves one burst. Returns the cycles waited for the output ring; `None` when there was no packet.
    #[inline(always)]
    fn poll(
        &mut self,
        clock: &Clock,
        mode: &mut impl Mode,
        cache: &mut PoolCache,
        batch: &mut Batch,
        stop: &Stop,
        yields: bool,
    ) -> Option<u64> {
        if self.rx.recv(clock, cache, batch).is_empty() {
            return None;
        }
        mode.rewrite(batch);
        let Some(tx) = &mut self.tx else {
            cache.free_batch(batch);
            return Some(0);
        };
        Some(tx.send(cache, batch, &mut self.tally.counters, stop, yields))
    }

    /// Makes the counters visible to the main thread.
    fn publish(&mut self) {
        self.tally.counters.set_rx(self.rx.queue.counters());
        if let Some(output) = &self.tx {
            self.tally.counters.set_tx(output.tx.counters());
        }
        self.tally.publish();
    }
}
