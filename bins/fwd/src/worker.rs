//! The loop of one lcore: receive a burst, rewrite it, send it; run to completion, queue after queue.
//!
//! It allocates nothing, takes no lock, logs nothing and makes no system call per burst. What it counts it publishes
//! every few milliseconds; at those moments it looks whether to stop. Without work it may sleep until an interrupt.

use crate::output::Output;
use cli::counters::{Counters, Published};
use cli::idle::Idle;
use cli::team::LastRounds;
use device::tsc;
use mempool::{Batch, Pool, PoolCache};
use nic::RxQueue;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What is done with a burst.
pub(crate) trait Mode: Default + Send + 'static {
    /// The name of the command.
    const NAME: &'static str;
    /// Ports must come in pairs.
    const PAIRS: bool = false;

    /// The port by which frames of `port` leave; `None` if they stay.
    fn output(port: usize) -> Option<usize>;

    /// Changes the frames of a burst. All of them are whole.
    fn rewrite(&mut self, batch: &mut Batch);
}

/// A receive queue, the transmit queue its frames leave by, and what happened between them.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) rx: RxQueue,
    pub(crate) tx: Option<Output>,
    /// Port and queue number.
    pub(crate) input: (usize, usize),
    pub(crate) output: Option<(usize, usize)>,
    pub(crate) counters: Counters,
    published: Arc<Published>,
    /// Packets received and sent at the last publication.
    seen: u64,
}

/// One lcore's work.
#[derive(Debug)]
pub(crate) struct Worker<M> {
    pub(crate) lanes: Vec<Lane>,
    pub(crate) pool: Pool,
    /// Packets received at a time.
    pub(crate) batch: usize,
    pub(crate) mode: M,
    pub(crate) stop: Arc<AtomicBool>,
    /// Software NICs run on the same cores: let them, when there is nothing to do.
    pub(crate) yields: bool,
    pub(crate) idle: Idle,
}

impl<M: Mode> Worker<M> {
    /// Works until told to stop, and that what has arrived is worked off; then returns the queues, with final counters.
    pub(crate) fn run(mut self) -> Vec<Lane> {
        let mut cache = self.pool.cache();
        let mut batch = Batch::with_capacity(self.batch);
        let interval = tsc::frequency_hz() / 500;
        let mut last = tsc::now();
        let mut next_publication = last + interval;
        let mut last_rounds = LastRounds::default();
        loop {
            let mut moved = false;
            for lane in &mut self.lanes {
                let waited = lane.poll(&mut self.mode, &mut cache, &mut batch, &self.stop, self.yields);
                let now = tsc::now();
                if let Some(waited) = waited {
                    lane.counters.cycles += (now - last).saturating_sub(waited);
                    moved = true;
                    if waited > 0 && self.stop.load(Ordering::Relaxed) {
                        next_publication = now;
                    }
                }
                last = now;
            }
            if moved {
                self.idle.busy();
            } else if self.idle.rest(&mut last) {
                self.lanes.iter_mut().for_each(Lane::publish);
                self.idle.sleep(self.lanes.iter_mut().map(|lane| &mut lane.rx));
                last = tsc::now();
                next_publication = last;
            }
            if last >= next_publication {
                next_publication = last + interval;
                self.lanes.iter_mut().for_each(Lane::publish);
                if self.stop.load(Ordering::Acquire) {
                    if last_rounds.is_over(moved) {
                        return self.lanes;
                    }
                    next_publication = last;
                }
            }
        }
    }
}

impl Lane {
    pub(crate) fn new(
        (rx, input): (RxQueue, (usize, usize)),
        output: Option<(Output, (usize, usize))>,
        published: Arc<Published>,
    ) -> Self {
        let (tx, output) = output.unzip();
        Self { rx, tx, input, output, counters: Counters::default(), published, seen: 0 }
    }

    /// Moves one burst. Returns the cycles waited for the output ring; `None` when there was no packet.
    #[inline(always)]
    fn poll(
        &mut self,
        mode: &mut impl Mode,
        cache: &mut PoolCache,
        batch: &mut Batch,
        stop: &AtomicBool,
        yields: bool,
    ) -> Option<u64> {
        if self.rx.recv(cache, batch) == 0 {
            return None;
        }
        mode.rewrite(batch);
        let Some(tx) = &mut self.tx else {
            cache.free_batch(batch);
            return Some(0);
        };
        Some(tx.send(cache, batch, &mut self.counters, stop, yields))
    }

    /// Makes the counters visible to the main thread.
    fn publish(&mut self) {
        self.counters.set_rx(self.rx.counters());
        if let Some(output) = &self.tx {
            self.counters.set_tx(output.tx.counters());
        }
        let seen = self.counters.rx_packets + self.counters.dropped_in() + self.counters.tx_packets;
        self.published.publish(self.counters, seen == self.seen);
        self.seen = seen;
    }
}
