//! Lookups, loads and updates under criterion: full and small tables, single, batched and dependent lookups, with and
//! without a writer.

mod common;

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{Bench, Route, full_table, table, traces, with_hops};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use lpm::{Config, NextHop, Table, V4, V6};

/// Addresses per iteration.
const SLICE: usize = 1 << 14;

fn lookups<F: Bench>(criterion: &mut Criterion, name: &str, routes: &[Route], hops: u32, accelerator: bool)
where
    F::Addr: From<F::Bits>,
    F::Bits: std::ops::BitXor<Output = F::Bits> + From<u32>,
{
    let table = table::<F>(routes, hops, accelerator);
    let mut group = criterion.benchmark_group(name);
    group.throughput(Throughput::Elements(SLICE as u64));
    for (trace, addrs) in traces::<F>(routes) {
        let mut parts = addrs.chunks_exact(SLICE).cycle();
        let mut next = || parts.next().unwrap_or_default();
        let mut reader = table.reader();
        group.bench_function(BenchmarkId::new("single", trace), |bencher| {
            bencher.iter(|| next().iter().filter(|addr| reader.lookup((**addr).into()).is_some()).count());
        });
        // Each address depends on the answer before: latency, not throughput.
        group.bench_function(BenchmarkId::new("dependent", trace), |bencher| {
            bencher.iter(|| {
                next().iter().fold(0, |last, addr| {
                    // Zero, though the compiler cannot know.
                    let same = F::Bits::from(last & black_box(0));
                    reader.lookup((*addr ^ same).into()).map_or(0, NextHop::get)
                })
            });
        });
        for burst in [32, 64, 256] {
            group.bench_function(BenchmarkId::new(format!("burst {burst}"), trace), |bencher| {
                let mut out = [None; 256];
                bencher.iter(|| {
                    for addrs in next().chunks(burst) {
                        black_box(reader.lookup_batch(addrs, &mut out));
                    }
                });
            });
        }
    }
    group.finish();
}

/// Bursts of 64 while another thread makes 10,000 changes a second. Wants a CPU for each.
fn with_writer<F: Bench>(criterion: &mut Criterion, name: &str, routes: &[Route]) {
    let mut table = table::<F>(routes, 64, false);
    let mut reader = table.reader();
    let (_, addrs) = &traces::<F>(routes)[1];
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut rng = fastrand::Rng::with_seed(9);
            let mut due = Instant::now();
            while !over.load(Ordering::Relaxed) {
                due += Duration::from_micros(100);
                while Instant::now() < due && !over.load(Ordering::Relaxed) {
                    thread::yield_now();
                }
                let prefix = F::prefix(routes[rng.usize(..routes.len())]);
                let hop = NextHop::new(rng.u32(..64)).expect("small");
                table.insert(prefix, hop).expect("room");
            }
        });
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Elements(addrs.len() as u64));
        let mut out = [None; 64];
        group.bench_function("burst 64, 10,000 updates a second", |bencher| {
            bencher.iter(|| {
                for addrs in addrs.chunks(64) {
                    black_box(reader.lookup_batch(addrs, &mut out));
                }
            });
        });
        group.finish();
        over.store(true, Ordering::Relaxed);
    });
}

fn changes<F: Bench>(criterion: &mut Criterion, name: &str, routes: &[Route]) {
    let with_hops = with_hops::<F>(routes, 64);
    let mut group = criterion.benchmark_group(name);
    group.sample_size(10).throughput(Throughput::Elements(routes.len() as u64));
    group.bench_function("load", |bencher| {
        bencher.iter(|| Table::<F>::from_routes(Config::default(), with_hops.iter().copied()).expect("memory"));
    });
    group.finish();
    let mut table = table::<F>(routes, 64, false);
    let mut rng = fastrand::Rng::with_seed(10);
    let mut group = criterion.benchmark_group(name);
    group.throughput(Throughput::Elements(2));
    group.bench_function("remove and insert", |bencher| {
        bencher.iter(|| {
            let prefix = F::prefix(routes[rng.usize(..routes.len())]);
            let hop = table.remove(prefix).expect("present");
            table.insert(prefix, hop).expect("room")
        });
    });
    group.finish();
}

fn ipv4(criterion: &mut Criterion) {
    let full = full_table::<V4>();
    let small: Vec<_> = full.iter().copied().step_by(full.len() / 1000).collect();
    lookups::<V4>(criterion, "ipv4, 1 thousand routes", &small, 64, false);
    lookups::<V4>(criterion, "ipv4", &full, 64, false);
    lookups::<V4>(criterion, "ipv4, accelerated", &full, 64, true);
    lookups::<V4>(criterion, "ipv4, 1 thousand next hops", &full, 1000, false);
    with_writer::<V4>(criterion, "ipv4", &full);
    changes::<V4>(criterion, "ipv4", &full);
}

fn ipv6(criterion: &mut Criterion) {
    let full = full_table::<V6>();
    let small: Vec<_> = full.iter().copied().step_by(full.len() / 1000).collect();
    lookups::<V6>(criterion, "ipv6, 1 thousand routes", &small, 64, false);
    lookups::<V6>(criterion, "ipv6", &full, 64, false);
    with_writer::<V6>(criterion, "ipv6", &full);
    changes::<V6>(criterion, "ipv6", &full);
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_millis(200)).measurement_time(Duration::from_millis(800)).sample_size(20);
    targets = ipv4, ipv6
}
criterion_main!(benches);
