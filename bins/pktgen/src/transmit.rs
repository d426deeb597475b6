//! The sending loop of one lcore: take buffers that hold the frame already, number them, send them.

use crate::frame;
use cli::counters::{Counters, Published};
use lcore::{Clock, Function, Loop, Stop};
use measure::Pacer;
use mempool::{Batch, Pool, PoolCache};
use nic::{AnyTxQueue, TxQueue as _};
use std::sync::Arc;

/// One transmit queue and what it sends.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) port: usize,
    pub(crate) tx: AnyTxQueue,
    pub(crate) pool: Pool,
    pub(crate) size: u16,
    /// When frames are due, and which are missed; `None` for as many as the port takes.
    pub(crate) pacer: Option<Pacer>,
    /// Frames in all.
    pub(crate) count: Option<u64>,
    /// Flows in turn, 1 at least.
    pub(crate) flows: u16,
    /// IPv4 header checksum of flow 0.
    pub(crate) checksum: u16,
    pub(crate) counters: Counters,
    pub(crate) published: Arc<Published>,
}

/// One lcore's work.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) sources: Vec<Source>,
    pub(crate) batch: usize,
    pub(crate) stop: Stop,
    pub(crate) yields: bool,
}

/// Writes the frame into every free buffer of the pool. They keep it: sending only reads them.
pub(crate) fn prefill(pool: &Pool, template: &[u8]) {
    let mut cache = pool.cache();
    let mut filled = Vec::new();
    while let Some(mut packet) = cache.alloc() {
        if let Some(data) = packet.append(template.len()) {
            data.copy_from_slice(template);
        }
        filled.push(packet);
    }
    filled.into_iter().for_each(|packet| cache.free(packet));
}

/// A source at work.
struct Running {
    source: Source,
    cache: PoolCache,
    /// Numbered frames that the ring had no room for.
    batch: Batch,
    numbered: u64,
    /// Room for when each of a burst is due.
    due: Box<[u64]>,
    /// Of the next frame.
    flow: u16,
    seen: u64,
}

/// All sources of an lcore at work.
struct Sending {
    running: Vec<Running>,
    /// Whether pacers have been started: by the first round, not by what comes before it.
    has_begun: bool,
    stop: Stop,
}

impl Sender {
    /// Sends until told to stop or all counts are reached; then returns the queues, with final counters.
    pub(crate) fn run(self) -> Vec<Source> {
        let Self { sources, batch, stop, yields } = self;
        let running = |source: Source| Running {
            cache: source.pool.cache(),
            batch: Batch::with_capacity(batch),
            source,
            numbered: 0,
            due: vec![0; batch].into(),
            flow: 0,
            seen: 0,
        };
        // A software NIC has the core at once when its ring is full.
        let poll_loop = Loop::new(&stop).yield_after(yields.then_some(1));
        let sending = Sending { running: sources.into_iter().map(running).collect(), has_begun: false, stop };
        poll_loop.run(sending).running.into_iter().map(|running| running.source).collect()
    }
}

impl Function for Sending {
    #[inline(always)]
    fn poll(&mut self, clock: &mut Clock) -> bool {
        if !self.has_begun {
            self.has_begun = true;
            let pacers = self.running.iter_mut().filter_map(|running| running.source.pacer.as_mut());
            pacers.for_each(|pacer| pacer.start(clock.now(), None));
        }
        let mut moved = false;
        for source in &mut self.running {
            let sent = source.poll(clock.now());
            let cycles = clock.lap();
            if sent > 0 {
                source.source.counters.cycles += cycles;
                moved = true;
            }
        }
        moved
    }

    fn publish(&mut self) {
        self.running.iter_mut().for_each(Running::publish);
    }

    /// Returns true at a stop too: no last rounds are needed, as there is always more to send.
    fn is_done(&self) -> bool {
        self.stop.is_requested() || self.running.iter().all(Running::is_done)
    }
}

impl Running {
    /// Numbers and sends what is due now. Returns how many frames left.
    #[inline(always)]
    fn poll(&mut self, now: u64) -> usize {
        let Self { source, cache, batch, numbered, due: times, flow, .. } = self;
        if batch.is_empty() {
            let mut due = batch.capacity();
            if let Some(count) = source.count {
                due = due.min(usize::try_from(count - *numbered).unwrap_or(usize::MAX));
            }
            if let Some(pacer) = source.pacer.as_mut().filter(|_| due > 0) {
                due = pacer.take(now, &mut times[..due]);
            }
            cache.alloc_batch(batch, due, source.size.into());
            for packet in batch.iter_mut() {
                frame::set_number(packet.data_mut(), *numbered);
                *numbered += 1;
            }
            if source.flows > 1 {
                for packet in batch.iter_mut() {
                    frame::set_flow(packet.data_mut(), source.checksum, *flow);
                    *flow = if *flow + 1 == source.flows { 0 } else { *flow + 1 };
                }
            }
        }
        // With an empty batch too: buffers come back by it.
        source.tx.send(cache, batch)
    }

    fn is_done(&self) -> bool {
        self.batch.is_empty() && self.source.count == Some(self.numbered)
    }

    fn publish(&mut self) {
        let counters = &mut self.source.counters;
        counters.set_tx(self.source.tx.counters());
        self.source.published.publish(*counters, counters.tx_packets == self.seen);
        self.seen = counters.tx_packets;
    }
}
