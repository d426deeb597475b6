//! The receiving loop of one lcore: look at each frame's tag, and let it go.

mod arrivals;

use crate::host::Host;
use crate::tail::{Tail, checked};
use cli::lane::Tally;
use lcore::{Clock, Function, Loop, PacedRx};
use measure::{Checked, End, Tag, Verdict};
use mempool::{Batch, Packet, Pool, PoolCache, frames};
use nic::{AnyRxQueue, AnyTxQueue, RxQueue, TxQueue as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) use arrivals::Arrivals;

/// Streams told apart on one queue; frames of others count as foreign.
const MOST_STREAMS: usize = 1024;

/// One receive queue and what arrived by it.
#[derive(Debug)]
pub(crate) struct Sink {
    pub(crate) port: usize,
    pub(crate) rx: PacedRx<AnyRxQueue>,
    pub(crate) pool: Pool,
    pub(crate) streams: Vec<Arrivals>,
    /// Where each stream is among these, from 1 on; 0 for those that have not been seen.
    known: Box<[u16]>,
    /// Frames that have no tag, or one of too many streams.
    pub(crate) foreign: u64,
    /// Frames that say how many there were.
    pub(crate) ends: u64,
    /// Checksums of UDP are verified, and frames in which they are wrong.
    verifies: bool,
    pub(crate) damaged: u64,
    /// Frames of streams without a checksum that is read.
    pub(crate) unread: u64,
    pub(crate) tally: Tally,
    pub(crate) verdict: Arc<PublishedVerdict>,
    /// What answers for the port's addresses, and by which queue.
    pub(crate) host: Option<Box<(Host, AnyTxQueue)>>,
}

/// One lcore's work.
#[derive(Debug)]
pub(crate) struct Receiver {
    pub(crate) sinks: Vec<Sink>,
    pub(crate) batch: usize,
    pub(crate) poll_loop: Loop,
}

/// [`Verdict`] of all streams, and other frames, for the live view.
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
                sink.tally.counters.cycles += cycles;
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
    pub(crate) fn new(port: usize, rx: AnyRxQueue, pool: Pool, verifies: bool) -> Self {
        Self {
            port,
            rx: PacedRx::new(rx),
            pool,
            streams: Vec::new(),
            known: vec![0; 1 << 16].into(),
            foreign: 0,
            ends: 0,
            verifies,
            damaged: 0,
            unread: 0,
            tally: Tally::new(Some((port, 0)), None),
            verdict: Arc::default(),
            host: None,
        }
    }

    /// Has a host answer for the port's addresses.
    pub(crate) fn set_host(&mut self, host: (Host, AnyTxQueue)) {
        self.tally = Tally::new(Some((self.port, 0)), Some((self.port, 0)));
        self.host = Some(Box::new(host));
    }

    #[inline(always)]
    fn look(&mut self, batch: &Batch) {
        let mut tail = Tail::default();
        for frame in frames(batch) {
            let checked = if self.verifies { checked(frame) } else { Checked::Right };
            if checked == Checked::Wrong {
                self.damaged += 1;
                continue;
            }
            let end = tail.of(frame);
            match Tag::find(end) {
                Some(tag) => {
                    self.unread += u64::from(checked == Checked::Unread);
                    if let Some(stream) = self.stream(tag.stream) {
                        stream.saw(tag.number);
                    }
                }
                None => self.saw_other(frame, end),
            }
        }
    }

    #[inline(never)]
    fn saw_other(&mut self, frame: &[Packet], end: &[u8]) {
        match End::find(end) {
            Some(end) => {
                if let Some(stream) = self.stream(end.stream) {
                    stream.end(end);
                    self.ends += 1;
                }
            }
            None => self.saw_foreign(frame),
        }
    }

    /// A question to the host that the port is, or a frame of others.
    fn saw_foreign(&mut self, frame: &[Packet]) {
        let is_ours = self.host.as_deref_mut().is_some_and(|(host, tx)| {
            let is_ours = host.takes(device::tsc::now(), frame);
            host.send(tx);
            is_ours
        });
        self.foreign += u64::from(!is_ours);
    }

    /// What arrives of a stream. With too many of them the frame is foreign.
    #[inline(always)]
    fn stream(&mut self, number: u16) -> Option<&mut Arrivals> {
        let known = &mut self.known[usize::from(number)];
        if *known == 0 {
            if self.streams.len() >= MOST_STREAMS {
                self.foreign += 1;
                return None;
            }
            self.streams.push(Arrivals::new(number));
            *known = u16::try_from(self.streams.len()).unwrap_or(u16::MAX);
        }
        self.streams.get_mut(usize::from(*known) - 1)
    }

    fn publish(&mut self) {
        if let Some((host, tx)) = self.host.as_deref_mut() {
            host.ask(device::tsc::now());
            host.send(tx);
            self.tally.counters.set_tx(tx.counters());
        }
        self.tally.counters.set_rx(self.rx.queue.counters());
        let mut verdict = Verdict::default();
        self.streams.iter().for_each(|stream| verdict += stream.verdict());
        self.verdict.publish(verdict, self.damaged, self.foreign);
        self.tally.publish();
    }
}

impl PublishedVerdict {
    fn publish(&self, verdict: Verdict, damaged: u64, foreign: u64) {
        let Verdict { lost, reordered, duplicate, impossible, .. } = verdict;
        let values = [lost, reordered, duplicate, damaged + impossible, foreign];
        self.0.iter().zip(values).for_each(|(shared, value)| shared.store(value, Ordering::Relaxed));
    }

    /// Returns frames lost, reordered, doubled, damaged and foreign.
    pub(crate) fn read(&self) -> [u64; 5] {
        [0, 1, 2, 3, 4].map(|index| self.0[index].load(Ordering::Relaxed))
    }
}
