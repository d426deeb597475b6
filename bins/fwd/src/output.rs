//! A transmit queue, and how long to wait for it.

use cli::counters::{Counters, Reason};
use device::tsc;
use lcore::Stop;
use mempool::{Batch, PoolCache};
use nic::{AnyTxQueue, TxQueue as _};
use std::time::Duration;

/// A transmit queue that a worker has for itself.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) tx: AnyTxQueue,
    /// How long to wait for room in a full ring.
    patience_cycles: u64,
    fewest_turns: u32,
    /// The ring took nothing for that long: until it moves again it is not waited for.
    stuck: bool,
}

/// Turns of a waiting loop before the lcore is offered to others.
const SPINS: u32 = 100;
/// Turns that a long wait has at least: where this thread was away for all of it, so may the device's have been.
const FEWEST_TURNS: u32 = 200;
/// What counts as long.
const LONG: Duration = Duration::from_millis(1);

impl Output {
    /// `patience` is how long to wait for a full ring before frames are dropped.
    pub(crate) fn new(tx: AnyTxQueue, patience: Duration) -> Self {
        let nanoseconds = u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX);
        let patience_cycles = nanoseconds.saturating_mul(tsc::frequency_hz() / 1_000_000) / 1000;
        let fewest_turns = if patience < LONG { 0 } else { FEWEST_TURNS };
        Self { tx, patience_cycles, fewest_turns, stuck: false }
    }

    /// Sends all of `batch`; what the ring does not take in time is dropped and counted. Returns the cycles waited.
    #[inline(always)]
    pub(crate) fn send(
        &mut self,
        cache: &mut PoolCache,
        batch: &mut Batch,
        counters: &mut Counters,
        stop: &Stop,
        yields: bool,
    ) -> u64 {
        let sent = self.tx.send(cache, batch);
        if batch.is_empty() {
            self.stuck = false;
            return 0;
        }
        self.stuck &= sent == 0;
        self.wait_for_room(cache, batch, counters, stop, yields)
    }

    /// The ring is full: tries again until it has taken all, or patience ends (after 20 ms at most when the run is to
    /// end, but not before some tries) and the rest is dropped. Returns the cycles that took.
    #[cold]
    #[inline(never)]
    fn wait_for_room(
        &mut self,
        cache: &mut PoolCache,
        batch: &mut Batch,
        counters: &mut Counters,
        stop: &Stop,
        yields: bool,
    ) -> u64 {
        let begun = tsc::now();
        let last_patience = self.patience_cycles.min(tsc::frequency_hz() / 50);
        let mut turns = 0;
        while !self.stuck && !batch.is_empty() {
            turns += 1;
            std::hint::spin_loop();
            if yields && turns > SPINS {
                std::thread::yield_now();
            }
            self.tx.send(cache, batch);
            let waited = tsc::now() - begun;
            let is_over = waited > self.patience_cycles || (waited > last_patience && stop.is_requested());
            self.stuck = is_over && turns >= self.fewest_turns;
        }
        if batch.is_empty() {
            self.stuck = false;
        } else {
            let frames = batch.iter().filter(|packet| !packet.continues()).count();
            counters.drop_frames(Reason::TxFull, frames as u64);
            cache.free_batch(batch);
        }
        tsc::now() - begun
    }
}
