//! Counts flows, on two workers, and prints the largest: `flows [ADDRESS [SECONDS]]`.

use ethdev::{PortConfig, RxQueue};
use lcore::{Clock, Function, Team};
use mempool::{Batch, Pool, PoolCache, PoolConfig, frame_len, frames};
use std::collections::HashMap;
use std::time::Duration;
use wire::Flow;

/// Workers, flows that each counts at most, and flows printed.
pub(crate) const WORKERS: u16 = 2;
pub(crate) const MOST: usize = 1 << 20;
const PRINTED: usize = 10;

/// Packets and bytes of a flow; `None` has what is no IP packet, and flows beyond [`MOST`].
pub(crate) type Counts = HashMap<Option<Flow>, (u64, u64)>;

/// One worker. RSS leads each flow to one.
#[derive(Debug)]
pub(crate) struct Counter<R> {
    pub(crate) rx: R,
    pub(crate) cache: PoolCache,
    pub(crate) batch: Batch,
    pub(crate) counts: Counts,
}

impl<R: RxQueue> Function for Counter<R> {
    fn poll(&mut self, _: &mut Clock) -> bool {
        let Self { rx, cache, batch, counts } = self;
        for frame in frames(rx.recv(cache, batch)) {
            let flow =
                Flow::of(frame[0].data()).filter(|flow| counts.len() < MOST || counts.contains_key(&Some(*flow)));
            let (packets, bytes) = counts.entry(flow).or_default();
            (*packets, *bytes) = (*packets + 1, *bytes + frame_len(frame) as u64);
        }
        let moved = !batch.is_empty();
        cache.free_batch(batch);
        moved
    }
}

/// The flows of all workers, the largest first.
pub(crate) fn largest(workers: impl IntoIterator<Item = Counts>) -> Vec<(Option<Flow>, (u64, u64))> {
    let mut all = Counts::new();
    for (flow, (packets, bytes)) in workers.into_iter().flatten() {
        let sum = all.entry(flow).or_default();
        (sum.0, sum.1) = (sum.0 + packets, sum.1 + bytes);
    }
    let mut all: Vec<_> = all.into_iter().collect();
    all.sort_by_key(|(flow, (packets, bytes))| (std::cmp::Reverse((*bytes, *packets)), *flow));
    all
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let argument = |number, default: &str| std::env::args().nth(number).unwrap_or(default.to_owned());
    let pool = Pool::new(&PoolConfig { slots: 8192, ..PoolConfig::default() })?;
    let config = PortConfig { rx_queues: WORKERS, tx_queues: WORKERS, ..PortConfig::default() };
    let mut port = nic::open(&argument(1, "soft:a?wire=gen&flows=64").parse()?, &config, &pool)?;
    let worker = |rx| Counter { rx, cache: pool.cache(), batch: Batch::with_capacity(32), counts: Counts::new() };
    let workers: Vec<_> = port.rx.drain(..).map(worker).collect();
    let workers = Team::run_for(workers, Duration::from_secs(argument(2, "10").parse()?))?;
    let totals = port.close()?;
    let flows = largest(workers.into_iter().map(|worker| worker.counts));
    println!("{} flows in {} frames; {} frames were missed", flows.len(), totals.rx_packets, totals.rx_missed);
    println!("{:>12} {:>15}  flow", "packets", "bytes");
    for (flow, (packets, bytes)) in flows.iter().take(PRINTED) {
        println!("{packets:>12} {bytes:>15}  {}", flow.map_or("all else".to_owned(), |flow| flow.to_string()));
    }
    Ok(())
}
