//! The receiving loop of one lcore: look at each frame's stream and number, and let it go.

use crate::frame;
use crate::sequence::{Stream, Verdict};
use cli::counters::{Counters, Published};
use lcore::{Clock, Function, Loop, PacedRx};
use mempool::{Batch, Pool, PoolCache};
use nic::{AnyRxQueue, RxQueue};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Streams told apart on one queue; frames of others count as foreign.
const MOST_STREAMS: usize = 64;

/// One receive queue and what arrived by it.
#[derive(Debug)]
pub(crate) struct Sink {
    pub(crate) port: usize,
    pub(crate) rx: PacedRx<AnyRxQueue>,
    pub(crate) pool: Pool,
    pub(crate) streams: Vec<Stream>,
    /// Frames that are not numbered by us.
    pub(crate) foreign: u64,
    pub(crate) counters: Counters,
    pub(crate) published: Arc<Published>,
    pub(crate) verdict: Arc<PublishedVerdict>,
    /// The stream of the frame before.
    recent: usize,
    seen: u64,
}

/// One lcore's work.
#[derive(Debug)]
pub(crate) struct Receiver {
    pub(crate) sinks: Vec<Sink>,
    pub(crate) batch: usize,
    pub(crate) poll_loop: Loop,
}

/// [`Verdict`] of all streams and foreign frames, for the live view.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct PublishedVerdict([AtomicU64; 5]);

/// All queues of an lcore at work.
struct Receiving {
    sinks: Vec<(Sink, PoolCache)>,
    batch: Batch,
}

impl Receiver {
    /// Receives until told to stop and all frames that have arrived are looked at. Returns the queues, with final counters.
    pub(crate) fn run(self) -> Vec<Sink> {
        let Self { sinks, batch, poll_loop } = self;
        let with_cache = |sink: Sink| {
            let cache = sink.pool.cache();
            (sink, cache)
        };
        let sinks = sinks.into_iter().map(with_cache).collect();
        let receiving = poll_loop.run(Receiving { sinks, batch: Batch::with_capacity(batch) });
        receiving.sinks.into_iter().map(|(sink, _)| sink).collect()
    }
}

impl Function for Receiving {
    #[inline(always)]
    fn poll(&mut self, clock: &mut Clock) -> bool {
        let Self { sinks, batch } = self;
        let mut moved = false;
        for (sink, cache) in sinks {
            let received = sink.rx.recv(clock, cache, batch).len();
            if received > 0 {
                sink.look(batch);
                cache.free_batch(batch);
            }
            let cycles = clock.lap();
            if received > 0 {
                sink.counters.cycles += cycles;
                moved = true;
            }
        }
        moved
    }

    fn publish(&mut self) {
        self.sinks.iter_mut().for_each(|(sink, _)| sink.publish());
    }

    fn queues(&mut self) -> Vec<&mut dyn RxQueue> {
        self.sinks.iter_mut().map(|(sink, _)| &mut sink.rx.queue as _).collect()
    }
}

impl Sink {
    pub(crate) fn new(port: usize, rx: AnyRxQueue, pool: Pool) -> Self {
        Self {
            port,
            rx: PacedRx::new(rx),
            pool,
            streams: Vec::with_capacity(MOST_STREAMS),
            foreign: 0,
            counters: Counters::default(),
            published: Arc::default(),
            verdict: Arc::default(),
            recent: 0,
            seen: 0,
        }
    }

    #[inline(always)]
    fn look(&mut self, batch: &Batch) {
        let mut is_start = true;
        for packet in batch.iter() {
            if is_start {
                match frame::parse(packet.data()) {
                    Some((stream, number)) => self.saw(stream, number),
                    None => self.foreign += 1,
                }
            }
            is_start = !packet.continues();
        }
    }

    #[inline(always)]
    fn saw(&mut self, stream: u32, number: u64) {
        match self.streams.get_mut(self.recent) {
            Some(recent) if recent.id() == stream => recent.saw(number),
            _ => self.saw_other(stream, number),
        }
    }

    #[cold]
    fn saw_other(&mut self, stream: u32, number: u64) {
        match self.streams.iter().position(|known| known.id() == stream) {
            Some(index) => {
                self.recent = index;
                self.streams[index].saw(number);
            }
            None if self.streams.len() < MOST_STREAMS => {
                self.recent = self.streams.len();
                self.streams.push(Stream::new(stream, number));
            }
            None => self.foreign += 1,
        }
    }

    fn publish(&mut self) {
        self.counters.set_rx(self.rx.queue.counters());
        let seen = self.counters.rx_packets + self.counters.dropped_in();
        let mut verdict = Verdict::default();
        self.streams.iter().for_each(|stream| verdict += stream.verdict());
        self.verdict.publish(verdict, self.foreign);
        self.published.publish(self.counters, seen == self.seen);
        self.seen = seen;
    }
}

impl PublishedVerdict {
    fn publish(&self, verdict: Verdict, foreign: u64) {
        let values = [verdict.received, verdict.lost, verdict.reordered, verdict.duplicates, foreign];
        self.0.iter().zip(values).for_each(|(shared, value)| shared.store(value, Ordering::Relaxed));
    }

    /// Returns the verdict, and the number of foreign frames.
    pub(crate) fn read(&self) -> (Verdict, u64) {
        let [received, lost, reordered, duplicates, foreign] =
            [0, 1, 2, 3, 4].map(|index| self.0[index].load(Ordering::Relaxed));
        (Verdict { received, lost, reordered, duplicates }, foreign)
    }
}
