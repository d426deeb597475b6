//! Latency of forwarding between two virtio ports, one core at work and a probe on another: `latency [MILLISECONDS] [ROUNDS]`. The probe
//! plays both devices: it hands over frames at a rate, each with the time, and looks for those that leave. README.md in
//! `benches/latency` says what is measured.

use benches::{BackEnd, MemoryVirtio, VirtioPort};
use device::tsc;
use ethdev::{RxCounters, RxQueue, TxQueue as _};
use lcore::{Clock, Function, Loop, PacedRx, Stop};
use mempool::{Batch, Packet, Pool, PoolCache, PoolConfig};
use router::{Egress, Fib, Forwarder, Interface, Miss, Routes};
use std::error::Error;
use std::sync::Barrier;
use virtio::{RxQueue as VirtioRx, TxQueue};

const RATES: [u64; 4] = [1_000, 10_000, 100_000, 1_000_000];
const RING: u16 = 512;
const BURST: usize = 32;
/// Shares of frames that are no later, in thousandths: p50, p99, p99.9, and all.
const QUANTILES: [usize; 4] = [500, 990, 999, 1000];
/// Cycles that `fwd l3` lets frames wait for company, as a share of a second.
const DRAINS_A_SECOND: u64 = 10_000;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = std::env::args().skip(1).map(|text| text.parse::<u32>()).collect::<Result<Vec<_>, _>>();
    let arguments = arguments.map_err(|error| format!("usage: latency [MILLISECONDS] [ROUNDS]: {error}"))?;
    let milliseconds = arguments.first().map_or(1000, |milliseconds| (*milliseconds).clamp(1, 60_000).into());
    let rounds = arguments.get(1).copied().unwrap_or(3).max(1);
    let lcores = lcore::available()?;
    let (Some(first), Some(last)) = (lcores.first(), lcores.last()) else { return Err("no core to run on".into()) };
    if first.number == last.number {
        println!("latency: skipped: forwarder and probe both poll, and this process may use one core only");
        return Ok(());
    }
    println!(
        "Probe on core {}, forwarder on core {}; rings of {RING}, bursts of {BURST} at most.",
        first.number, last.number
    );
    println!(
        "us from hand-over to departure, medians of {rounds} interleaved rounds of {milliseconds} ms; gap: the probe's own longest"
    );
    println!("{:<37}{:>9}{:>9}{:>9}{:>10}{:>10}{:>6}", "", "p50", "p99", "p99.9", "max", "gap", "lost");
    for route in [false, true] {
        for packed in [false, true] {
            for rate in RATES {
                let subjects = [("look always", Some(0)), ("rest", None)];
                let mut results = subjects.map(|_| Vec::new());
                for _ in 0..rounds {
                    for ((_, rest), results) in subjects.iter().zip(&mut results) {
                        let setting = Setting { route, packed, rest: *rest, rate, milliseconds };
                        results.push(setting.measure(first.number, last.number)?);
                    }
                }
                for ((name, _), results) in subjects.iter().zip(&mut results) {
                    print(route, packed, rate, name, results);
                }
            }
        }
    }
    Ok(())
}

/// Of all rounds, the middle of each figure.
fn print(route: bool, packed: bool, rate: u64, name: &str, results: &mut [Figures]) {
    let mut middle = |of: &dyn Fn(&Figures) -> f64| {
        results.sort_by(|a, b| of(a).total_cmp(&of(b)));
        of(&results[results.len() / 2])
    };
    let [p50, p99, p999, most] = [0, 1, 2, 3].map(|at| middle(&|figures| figures.microseconds[at]));
    let mode = if route { "l3" } else { "l2" };
    let rings = if packed { "packed" } else { "split" };
    let gap = middle(&|figures| figures.longest_gap);
    let lost: u64 = results.iter().map(|figures| figures.lost).sum();
    println!("{mode} {rings:<7}{name:<13}{rate:>12}/s{p50:>9.2}{p99:>9.2}{p999:>9.2}{most:>10.1}{gap:>10.1}{lost:>6}");
}

/// What is measured.
#[derive(Clone, Copy, Debug)]
struct Setting {
    route: bool,
    packed: bool,
    /// How long queues rest, in cycles; as long as they ask for if `None`.
    rest: Option<u64>,
    rate: u64,
    milliseconds: u64,
}

#[derive(Debug)]
struct Figures {
    microseconds: [f64; QUANTILES.len()],
    /// The longest time that the probe did not look: what is longer than others may be its own.
    longest_gap: f64,
    /// Frames handed over that did not leave.
    lost: u64,
}

impl Setting {
    /// Runs a forwarder on one core and a probe on another.
    fn measure(self, probe_core: usize, core: usize) -> Result<Figures, Box<dyn Error>> {
        let pool = Pool::new(&PoolConfig { slots: 4 * usize::from(RING) + 2048, ..PoolConfig::default() })?;
        let (mut left, mut right) =
            (VirtioPort::open(self.packed, RING, &pool), VirtioPort::open(self.packed, RING, &pool));
        let ((left_rx, left_tx, input), (right_rx, right_tx, output)) = (left.parts(), right.parts());
        let stop = Stop::new()?;
        let routes = Routes::parse(b"198.51.100.0/24 via 02:00:00:00:00:09 port 1", 2)?;
        let interfaces = [0, 1].map(|last| Interface { mac: [2, 0, 0, 0, 0, last], promiscuous: false, mtu: 1500 });
        let fib = Fib::new(&routes, &interfaces)?;
        let drain = tsc::frequency_hz() / DRAINS_A_SECOND;

        let rest = self.rest.unwrap_or_else(|| left_rx.rest_cycles());
        let paced = |queue| PacedRx::new(Borrowed { queue, rest });
        let forwarding = Forwarding {
            rx: [paced(left_rx), paced(right_rx)],
            tx: [left_tx, right_tx],
            router: self.route.then(|| (fib.forwarder(Miss::Refuse), Egress::new(2, 2 * BURST))),
            cache: pool.cache(),
            batch: Batch::with_capacity(BURST),
            drain,
            next_drain: 0,
        };
        let works = Barrier::new(2);
        std::thread::scope(|scope| {
            let poll_loop = Loop::new(&stop).grace(None);
            let works = &works;
            let worker = scope.spawn(move || {
                let pinned = lcore::pin(core);
                works.wait();
                pinned.map(|()| drop(poll_loop.run(forwarding)))
            });
            works.wait();
            let probed = lcore::pin(probe_core).map(|()| self.probe(input, output));
            stop.request();
            worker.join().map_err(|_| "the forwarder panicked")??;
            Ok(probed?)
        })
    }

    /// Hands over frames when they are due, and takes those that leave.
    fn probe(self, mut input: BackEnd<'_>, mut output: BackEnd<'_>) -> Figures {
        let count = self.rate * self.milliseconds / 1000;
        let hz = tsc::frequency_hz();
        let mut latencies = Vec::with_capacity(usize::try_from(count).unwrap_or(0));
        let begun = tsc::now() + hz / 100;
        // What is under way at the end has as long to leave.
        let end = begun + hz * self.milliseconds / 1000 + hz / 10;
        let (mut handed_over, mut due) = (0, begun);
        let (mut before, mut longest_gap) = (begun, 0);
        while tsc::now() < end && (handed_over < count || (latencies.len() as u64) < count) {
            let now = tsc::now();
            longest_gap = longest_gap.max(now.saturating_sub(before));
            before = now;
            if now >= due && handed_over < count && input.deliver(now) {
                handed_over += 1;
                due = begun
                    + u64::try_from(u128::from(hz) * u128::from(handed_over) / u128::from(self.rate)).unwrap_or(0);
            }
            while let Some(stamp) = output.collect() {
                latencies.push(tsc::now().saturating_sub(stamp));
            }
        }
        latencies.sort_unstable();
        let at = |share: usize| latencies.get((latencies.len() * share / 1000).min(latencies.len().max(1) - 1));
        let microseconds = |cycles: u64| cycles as f64 * 1e6 / hz as f64;
        let longest_gap = microseconds(longest_gap);
        let microseconds = QUANTILES.map(|share| at(share).map_or(f64::NAN, |cycles| microseconds(*cycles)));
        Figures { microseconds, longest_gap, lost: handed_over - latencies.len() as u64 }
    }
}

/// A queue that rests for so long.
#[derive(Debug)]
struct Borrowed<'q> {
    queue: &'q mut VirtioRx<MemoryVirtio>,
    rest: u64,
}

impl RxQueue for Borrowed<'_> {
    #[inline]
    fn recv<'b>(&mut self, cache: &mut PoolCache, batch: &'b mut Batch) -> &'b mut [Packet] {
        self.queue.recv(cache, batch)
    }

    fn rest_cycles(&self) -> u64 {
        self.rest
    }

    fn counters(&self) -> RxCounters {
        self.queue.counters()
    }

    fn is_ready(&mut self) -> bool {
        self.queue.is_ready()
    }
}

/// What `fwd l2` or `fwd l3` does each round.
struct Forwarding<'q> {
    rx: [PacedRx<Borrowed<'q>>; 2],
    tx: [&'q mut TxQueue<MemoryVirtio>; 2],
    router: Option<(Forwarder, Egress)>,
    cache: PoolCache,
    batch: Batch,
    drain: u64,
    next_drain: u64,
}

impl Function for Forwarding<'_> {
    #[inline(always)]
    fn poll(&mut self, clock: &mut Clock) -> bool {
        let Self { rx, tx, router, cache, batch, drain, next_drain } = self;
        let mut moved = false;
        for (number, queue) in rx.iter_mut().enumerate() {
            if !queue.recv(clock, cache, batch).is_empty() {
                moved = true;
                if let Some((forwarder, egress)) = router {
                    forwarder.route(number, batch, egress);
                    egress.drain_refused().for_each(|(packet, _)| cache.free(packet));
                    send(tx, BURST, cache, egress);
                } else {
                    tx[1 - number].send(cache, batch);
                    cache.free_batch(batch);
                }
            }
            clock.lap();
        }
        if let Some((_, egress)) = router
            && (!moved || clock.now() >= *next_drain)
        {
            send(tx, 1, cache, egress);
            *next_drain = clock.now() + *drain;
        }
        moved
    }
}

/// Sends bursts of at least so many packets; those that there is no room for are dropped.
#[inline(always)]
fn send(tx: &mut [&mut TxQueue<MemoryVirtio>; 2], least: usize, cache: &mut PoolCache, egress: &mut Egress) {
    for (tx, burst) in tx.iter_mut().zip(egress.outputs()) {
        if burst.len() >= least {
            tx.send(cache, burst);
            cache.free_batch(burst);
        }
    }
}
