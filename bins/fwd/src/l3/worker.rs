//! What one lcore does each round: receive a burst, route it, send full bursts port by port; what is left leaves when nothing
//! comes in, or by the drain timer.
//!
//! It allocates nothing, takes no lock (but when routes are replaced), logs nothing and makes no system call per burst.
//! [`lcore::Loop`] goes round.

use super::host::Routes;
use crate::output::Output;
use cli::counters::{Counters, Reason};
use cli::lane::{Ended, Tally};
use device::tsc;
use lcore::{Clock, Function, Loop, PacedRx, Stop};
use mempool::{Batch, Pool, PoolCache, frames};
use nic::{AnyRxQueue, AnyTxQueue, RxQueue, TxQueue as _};
use router::{Egress, Refusal};
use std::time::Duration;

/// One lcore's work.
#[derive(Debug)]
pub(crate) struct Worker<R> {
    pub(crate) inputs: Vec<Input>,
    /// One for each port, in order.
    pub(crate) senders: Vec<Sender>,
    pub(crate) routes: R,
    /// Those that its inputs receive into: one, unless it polls ports of several NUMA nodes.
    pub(crate) pools: Vec<Pool>,
    /// Packets received and sent at a time.
    pub(crate) batch: usize,
    pub(crate) stop: Stop,
    /// Software NICs run on the same cores: let them, when there is nothing to do.
    pub(crate) yields: bool,
    pub(crate) poll_loop: Loop,
}

/// A receive queue, and what became of its frames until they were handed to an output.
#[derive(Debug)]
pub(crate) struct Input {
    pub(super) rx: PacedRx<AnyRxQueue>,
    /// Number of its port.
    port: usize,
    /// Which of the worker's pools its frames lie in.
    cache: usize,
    tally: Tally,
}

/// A transmit queue, and what became of the frames handed to it.
#[derive(Debug)]
pub(crate) struct Sender {
    tx: Output,
    tally: Tally,
}

/// Frames wait for company for a second divided by this, at most.
const DRAINS_A_SECOND: u64 = 10_000;

/// The worker at work.
struct Routing<R> {
    inputs: Vec<Input>,
    senders: Senders,
    routes: R,
    /// One for each pool.
    caches: Vec<PoolCache>,
    batch: Batch,
    egress: Egress,
    /// Cycles that frames wait for company, at most.
    drain: u64,
    next_drain: u64,
}

/// The outputs of a worker, and how it waits for them.
pub(super) struct Senders {
    senders: Vec<Sender>,
    stop: Stop,
    yields: bool,
}

impl<R: Routes> Worker<R> {
    /// Works until told to stop, and that what has arrived is worked off; then returns the queues, with final counters.
    pub(crate) fn run(self) -> Vec<Ended> {
        let Self { inputs, senders, routes, pools, batch, stop, yields, poll_loop } = self;
        // Less than a burst waits at each port when another comes.
        let egress = Egress::new(senders.len(), 2 * batch);
        let drain = tsc::frequency_hz() / DRAINS_A_SECOND;
        let Routing { inputs, senders, .. } = poll_loop.run(Routing {
            inputs,
            senders: Senders { senders, stop, yields },
            routes,
            caches: pools.iter().map(Pool::cache).collect(),
            batch: Batch::with_capacity(batch),
            egress,
            drain,
            next_drain: tsc::now() + drain,
        });
        let inputs = inputs.into_iter().map(Into::into);
        inputs.chain(senders.senders.into_iter().map(Into::into)).collect()
    }
}

impl<R: Routes> Function for Routing<R> {
    #[inline(always)]
    fn poll(&mut self, clock: &mut Clock) -> bool {
        let Self { inputs, senders, routes, caches, batch, egress, drain, next_drain } = self;
        let mut moved = false;
        for input in inputs {
            let waited = input.poll(clock, routes, senders, &mut caches[input.cache], batch, egress);
            let cycles = clock.lap();
            if let Some(waited) = waited {
                input.tally.counters.cycles += cycles.saturating_sub(waited);
                moved = true;
                if waited > 0 && senders.stop.is_requested() {
                    clock.publish_soon();
                }
            }
        }
        moved |= routes.send_of_host(senders, &mut caches[0]);
        // So nothing waits in `egress` when the lcore sleeps.
        if !moved || clock.now() >= *next_drain {
            senders.send(1, &mut caches[0], egress);
            *next_drain = clock.now() + *drain;
        }
        moved
    }

    fn publish(&mut self) {
        self.routes.rest();
        self.inputs.iter_mut().for_each(Input::publish);
        self.senders.senders.iter_mut().for_each(Sender::publish);
    }

    fn queues(&mut self) -> Vec<&mut dyn RxQueue> {
        let inputs = self.inputs.iter_mut().map(|input| &mut input.rx.queue as _);
        inputs.chain(self.routes.queues()).collect()
    }

    fn finish(&mut self) {
        self.senders.send(1, &mut self.caches[0], &mut self.egress);
    }
}

impl Senders {
    /// Sends the bursts of at least so many packets. Returns the cycles waited for rings.
    #[inline(always)]
    fn send(&mut self, least: usize, cache: &mut PoolCache, egress: &mut Egress) -> u64 {
        let mut waited = 0;
        for (sender, burst) in self.senders.iter_mut().zip(egress.outputs()) {
            if burst.len() >= least {
                let Sender { tx, tally } = sender;
                waited += tx.send(cache, burst, &mut tally.counters, &self.stop, self.yields);
            }
        }
        waited
    }

    /// Sends frames of the host by a port. Returns the number of those that the ring did not take in time.
    pub(super) fn send_of_host(&mut self, port: usize, cache: &mut PoolCache, batch: &mut Batch) -> u64 {
        let Some(Sender { tx, tally }) = self.senders.get_mut(port) else {
            let frames = frames(batch).count() as u64;
            cache.free_batch(batch);
            return frames;
        };
        // They are no frames that came in, so they are not among the drops of those.
        let (frames, mut lost) = (frames(batch).count() as u64, Counters::default());
        tx.send(cache, batch, &mut lost, &self.stop, self.yields);
        let lost = lost.dropped(Reason::TxFull);
        tally.counters.from_host += frames - lost;
        lost
    }

    /// The number of ports.
    pub(super) fn ports(&self) -> usize {
        self.senders.len()
    }
}

impl Input {
    pub(crate) fn new(rx: AnyRxQueue, port: usize, cache: usize, tally: Tally) -> Self {
        Self { rx: PacedRx::new(rx), port, cache, tally }
    }

    /// Routes one burst. Returns the cycles waited for output rings; `None` when there was no packet.
    #[inline(always)]
    fn poll(
        &mut self,
        clock: &Clock,
        routes: &mut impl Routes,
        senders: &mut Senders,
        cache: &mut PoolCache,
        batch: &mut Batch,
        egress: &mut Egress,
    ) -> Option<u64> {
        if self.rx.recv(clock, cache, batch).is_empty() {
            return None;
        }
        let port = self.port;
        routes.route(port, batch, egress);
        for (packet, refusal) in egress.drain_refused() {
            let Some(packet) = routes.offer(port, packet, refusal, clock.now()) else { continue };
            if !packet.continues() {
                self.tally.counters.drop_frames(reason(refusal), 1);
            }
            cache.free(packet);
        }
        let handed = routes.hand_over(port, cache);
        self.tally.counters.to_host += handed.frames;
        self.tally.counters.drop_frames(Reason::HostFull, handed.dropped);
        Some(senders.send(batch.capacity(), cache, egress))
    }

    /// Makes the counters visible to the main thread.
    fn publish(&mut self) {
        self.tally.counters.set_rx(self.rx.queue.counters());
        self.tally.publish();
    }
}

impl Sender {
    /// `patience` is how long to wait for a full ring before frames are dropped.
    pub(crate) fn new(tx: AnyTxQueue, patience: Duration, tally: Tally) -> Self {
        Self { tx: Output::new(tx, patience), tally }
    }

    /// Makes the counters visible to the main thread.
    fn publish(&mut self) {
        self.tally.counters.set_tx(self.tx.tx.counters());
        self.tally.publish();
    }
}

impl From<Input> for Ended {
    fn from(Input { rx, tally, .. }: Input) -> Self {
        tally.end(Some(rx.queue), None)
    }
}

impl From<Sender> for Ended {
    fn from(Sender { tx, tally }: Sender) -> Self {
        tally.end(None, Some(tx.tx))
    }
}

/// What a refusal is counted as.
#[inline]
fn reason(refusal: Refusal) -> Reason {
    match refusal {
        Refusal::Vlan => Reason::Vlan,
        Refusal::NotIp => Reason::NotIp,
        Refusal::LinkMulticast => Reason::LinkMulticast,
        Refusal::OtherStation => Reason::OtherStation,
        Refusal::Version => Reason::IpVersion,
        Refusal::HeaderLength => Reason::IpHeaderLength,
        Refusal::TotalLength => Reason::IpTotalLength,
        Refusal::Checksum => Reason::IpChecksum,
        Refusal::MartianSource => Reason::MartianSource,
        Refusal::MartianDestination => Reason::MartianDestination,
        Refusal::Ttl => Reason::TtlExpired,
        Refusal::Options => Reason::IpOptions,
        Refusal::NoRoute => Reason::NoRoute,
        Refusal::TooBig => Reason::TooBig,
        Refusal::Unresolved => Reason::Unresolved,
        Refusal::ForHost => Reason::ForHost,
        Refusal::Blackhole => Reason::Blackhole,
        Refusal::Unreachable => Reason::Unreachable,
        Refusal::Prohibited => Reason::Prohibited,
        Refusal::LeftToHost => Reason::LeftToHost,
        Refusal::Probe => Reason::Probe,
    }
}
