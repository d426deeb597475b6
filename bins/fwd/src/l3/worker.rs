//! The loop of one lcore: receive a burst, route it, send full bursts port by port; what is left leaves when nothing
//! comes in, or by the drain timer. Without work it may sleep until an interrupt.
//!
//! It allocates nothing, takes no lock (but when routes are replaced), logs nothing and makes no system call per burst.

use crate::output::Output;
use crate::run::Ended;
use cli::counters::{Counters, Published, Reason};
use cli::idle::Idle;
use cli::team::LastRounds;
use device::tsc;
use mempool::{Batch, Pool, PoolCache};
use nic::{RxQueue, TxQueue};
use router::{Egress, Forwarder, Refusal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// One lcore's work.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) inputs: Vec<Input>,
    /// One for each port, in order.
    pub(crate) senders: Vec<Sender>,
    pub(crate) forwarder: Forwarder,
    pub(crate) pool: Pool,
    /// Packets received and sent at a time.
    pub(crate) batch: usize,
    pub(crate) stop: Arc<AtomicBool>,
    /// Software NICs run on the same cores: let them, when there is nothing to do.
    pub(crate) yields: bool,
    pub(crate) idle: Idle,
}

/// A receive queue, and what became of its frames until they were handed to an output.
#[derive(Debug)]
pub(crate) struct Input {
    pub(super) rx: RxQueue,
    /// Port and queue number.
    input: (usize, usize),
    counters: Counters,
    published: Arc<Published>,
    /// Packets received at the last publication.
    seen: u64,
}

/// A transmit queue, and what became of the frames handed to it.
#[derive(Debug)]
pub(crate) struct Sender {
    tx: Output,
    /// Port and queue number.
    output: (usize, usize),
    counters: Counters,
    published: Arc<Published>,
    /// Packets sent at the last publication.
    seen: u64,
}

/// Frames wait for company for a second divided by this, at most.
const DRAINS_A_SECOND: u64 = 10_000;

impl Worker {
    /// Works until told to stop, and that what has arrived is worked off; then returns the queues, with final counters.
    pub(crate) fn run(mut self) -> Vec<Ended> {
        let mut cache = self.pool.cache();
        let mut batch = Batch::with_capacity(self.batch);
        // Less than a burst waits at each port when another comes.
        let mut egress = Egress::new(self.senders.len(), 2 * self.batch);
        let (publication, drain) = (tsc::frequency_hz() / 500, tsc::frequency_hz() / DRAINS_A_SECOND);
        let mut last = tsc::now();
        let (mut next_publication, mut next_drain) = (last + publication, last + drain);
        let mut last_rounds = LastRounds::default();
        loop {
            let mut moved = false;
            for at in 0..self.inputs.len() {
                let waited = self.poll(at, &mut cache, &mut batch, &mut egress);
                let now = tsc::now();
                if let Some(waited) = waited {
                    self.inputs[at].counters.cycles += (now - last).saturating_sub(waited);
                    moved = true;
                    if waited > 0 && self.stop.load(Ordering::Relaxed) {
                        next_publication = now;
                    }
                }
                last = now;
            }
            if !moved || last >= next_drain {
                self.send(1, &mut cache, &mut egress);
                next_drain = last + drain;
            }
            if moved {
                self.idle.busy();
            } else if self.idle.rest(&mut last) {
                // Nothing waits in `egress`: this round has sent all of it.
                self.publish();
                self.idle.sleep(self.inputs.iter_mut().map(|input| &mut input.rx));
                last = tsc::now();
                next_publication = last;
            }
            if last >= next_publication {
                next_publication = last + publication;
                let stops = self.stop.load(Ordering::Acquire);
                let ends = stops && last_rounds.is_over(moved);
                if stops && !ends {
                    next_publication = last;
                }
                if ends {
                    self.send(1, &mut cache, &mut egress);
                }
                self.publish();
                if ends {
                    let inputs = self.inputs.into_iter().map(Into::into);
                    return inputs.chain(self.senders.into_iter().map(Into::into)).collect();
                }
            }
        }
    }

    /// Makes all counters visible to the main thread.
    fn publish(&mut self) {
        self.inputs.iter_mut().for_each(Input::publish);
        self.senders.iter_mut().for_each(Sender::publish);
    }

    /// Routes one burst of an input. Returns the cycles waited for output rings; `None` when there was no packet.
    #[inline(always)]
    fn poll(&mut self, at: usize, cache: &mut PoolCache, batch: &mut Batch, egress: &mut Egress) -> Option<u64> {
        let input = &mut self.inputs[at];
        if input.rx.recv(cache, batch) == 0 {
            return None;
        }
        self.forwarder.route(input.input.0, batch, egress);
        for (packet, refusal) in egress.drain_refused() {
            if !packet.continues() {
                input.counters.drop_frames(reason(refusal), 1);
            }
            cache.free(packet);
        }
        Some(self.send(self.batch, cache, egress))
    }

    /// Sends the bursts of at least so many packets. Returns the cycles waited for rings.
    #[inline(always)]
    fn send(&mut self, least: usize, cache: &mut PoolCache, egress: &mut Egress) -> u64 {
        let mut waited = 0;
        for (sender, burst) in self.senders.iter_mut().zip(egress.outputs()) {
            if burst.len() >= least {
                let Sender { tx, counters, .. } = sender;
                waited += tx.send(cache, burst, counters, &self.stop, self.yields);
            }
        }
        waited
    }
}

impl Input {
    pub(crate) fn new(rx: RxQueue, input: (usize, usize), published: Arc<Published>) -> Self {
        Self { rx, input, counters: Counters::default(), published, seen: 0 }
    }

    /// Makes the counters visible to the main thread.
    fn publish(&mut self) {
        self.counters.set_rx(self.rx.counters());
        let seen = self.counters.rx_packets + self.counters.dropped_in();
        self.published.publish(self.counters, seen == self.seen);
        self.seen = seen;
    }
}

impl Sender {
    /// `patience` is how long to wait for a full ring before frames are dropped.
    pub(crate) fn new(tx: TxQueue, output: (usize, usize), patience: Duration, published: Arc<Published>) -> Self {
        let tx = Output::new(tx, patience);
        Self { tx, output, counters: Counters::default(), published, seen: 0 }
    }

    /// Makes the counters visible to the main thread.
    fn publish(&mut self) {
        self.counters.set_tx(self.tx.tx.counters());
        let seen = self.counters.tx_packets + self.counters.dropped_out();
        self.published.publish(self.counters, seen == self.seen);
        self.seen = seen;
    }
}

impl From<Input> for Ended {
    fn from(Input { rx, input, counters, .. }: Input) -> Self {
        Self { rx: Some(rx), tx: None, input: Some(input), output: None, counters }
    }
}

impl From<Sender> for Ended {
    fn from(Sender { tx, output, counters, .. }: Sender) -> Self {
        Self { rx: None, tx: Some(tx.tx), input: None, output: Some(output), counters }
    }
}

/// What a refusal is counted as.
#[inline]
fn reason(refusal: Refusal) -> Reason {
    match refusal {
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
        Refusal::NoRoute => Reason::NoRoute,
        Refusal::TooBig => Reason::TooBig,
    }
}
