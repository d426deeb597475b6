//! Lookups, loads and updates of full tables beside the tables of other crates, all in one run.
//!
//! `cargo bench -p lpm --bench compare -- [ROUNDS] [NAME…]`: subjects whose name contains a NAME. Each round measures every subject once, in random order;
//! the figure is the tenth percentile over the rounds. Pin it to one CPU.

mod common;

use std::hint::black_box;
use std::time::Instant;

use common::{Bench, Route, TRACE, full_table, table, traces, with_hops};
use lpm::{NextHop, Table, V4, V6};

fn main() {
    let rounds = std::env::args().filter_map(|arg| arg.parse().ok()).next().unwrap_or(15);
    ipv4(rounds);
    ipv6(rounds);
}

/// A name, and how to look a trace up: answers a sum that depends on every answer.
type Subject<'a, B> = (String, Box<dyn FnMut(&[B]) -> u64 + 'a>);

macro_rules! family {
    ($name:ident, $family:ty, $bits:ty, $tree_addr:ty) => {
        fn $name(rounds: usize) {
            let routes = full_table::<$family>();
            println!("\n{}: {} routes, ns per lookup", stringify!($family), routes.len());
            let traces = traces::<$family>(&routes);
            let mut map = prefix_trie::PrefixMap::<($bits, u8), u32>::new();
            let mut tree = ip_network_table_deps_treebitmap::IpLookupTable::<$tree_addr, u32>::new();
            for (prefix, hop) in with_hops::<$family>(&routes, 64) {
                map.insert((prefix.address().into(), prefix.len()), hop.get());
                tree.insert(prefix.address(), prefix.len().into(), hop.get());
            }
            let mut tables = Vec::new();
            for (hops, accelerator) in [(64, false), (64, true), (1000, false), (1000, true), (70_000, false)] {
                if accelerator && <$family>::BITS == 128 {
                    continue;
                }
                let table = table::<$family>(&routes, hops, accelerator);
                let name = format!("lpm, {hops} hops{}", if accelerator { ", accelerated" } else { "" });
                println!("{name}: {:?}", table.memory_use());
                tables.push((name, table));
            }
            let mut subjects: Vec<Subject<'_, $bits>> = Vec::new();
            for (name, table) in &tables {
                let mut single = table.reader();
                subjects.push((
                    format!("{name}, single"),
                    Box::new(move |trace| trace.iter().map(|addr| value(single.lookup((*addr).into()))).sum()),
                ));
                for burst in if name.contains("64") { &[32, 64, 256][..] } else { &[64] } {
                    let mut reader = table.reader();
                    subjects.push((
                        format!("{name}, burst {burst}"),
                        Box::new(move |trace| {
                            let mut out = [None; 256];
                            let mut sum = 0;
                            for addrs in trace.chunks(*burst) {
                                let count = reader.lookup_batch(addrs, &mut out);
                                sum += value(out[count - 1]);
                            }
                            sum
                        }),
                    ));
                }
            }
            subjects.push((
                "prefix-trie".into(),
                Box::new(|trace| {
                    trace
                        .iter()
                        .filter_map(|addr| map.get_lpm(&(*addr, <$family>::BITS)))
                        .map(|hit| u64::from(*hit.1))
                        .sum()
                }),
            ));
            subjects.push((
                "treebitmap".into(),
                Box::new(|trace| {
                    trace
                        .iter()
                        .filter_map(|addr| tree.longest_match((*addr).into()))
                        .map(|hit| u64::from(*hit.2))
                        .sum()
                }),
            ));
            measure(rounds, &traces, &mut subjects);
            drop(subjects);
            updates(&routes, &mut tables[0].1);
            load::<$family>(&routes);
        }
    };
}

family!(ipv4, V4, u32, std::net::Ipv4Addr);
family!(ipv6, V6, u128, std::net::Ipv6Addr);

fn value(hop: Option<NextHop>) -> u64 {
    hop.map_or(0, |hop| u64::from(hop.get()))
}

fn measure<B>(rounds: usize, traces: &[(&str, Vec<B>)], subjects: &mut Vec<Subject<'_, B>>) {
    let names: Vec<_> =
        std::env::args().skip(1).filter(|arg| arg.parse::<usize>().is_err() && arg != "--bench").collect();
    subjects.retain(|(subject, _)| names.is_empty() || names.iter().any(|name| subject.contains(name)));
    let mut times = vec![vec![Vec::new(); traces.len()]; subjects.len()];
    let mut order: Vec<usize> = (0..subjects.len()).collect();
    for _ in 0..rounds {
        fastrand::shuffle(&mut order);
        for subject in &order {
            for (index, (_, trace)) in traces.iter().enumerate() {
                let run = &mut subjects[*subject].1;
                black_box(run(&trace[..TRACE / 4]));
                let start = Instant::now();
                black_box(run(trace));
                times[*subject][index].push(start.elapsed().as_nanos() as f64 / TRACE as f64);
            }
        }
    }
    print!("{:38}", "");
    traces.iter().for_each(|(name, _)| print!("{name:>10}"));
    println!();
    for ((name, _), times) in subjects.iter().zip(&mut times) {
        print!("{name:38}");
        for times in times {
            print!("{:10.2}", percentile(times, 10));
        }
        println!();
    }
}

fn percentile(times: &mut [f64], percent: usize) -> f64 {
    times.sort_by(f64::total_cmp);
    times[(times.len() * percent / 100).min(times.len() - 1)]
}

/// Changes of the full table: a random route gets another next hop, goes, and comes back.
fn updates<F: Bench>(routes: &[Route], table: &mut Table<F>) {
    let mut rng = fastrand::Rng::with_seed(4);
    let mut times = Vec::new();
    for _ in 0..30_000 {
        let prefix = F::prefix(routes[rng.usize(..routes.len())]);
        let hops = [NextHop::new(rng.u32(..64)).expect("small"), NextHop::new(rng.u32(..64)).expect("small")];
        let mut time = |change: &mut dyn FnMut() -> Option<NextHop>| {
            let start = Instant::now();
            black_box(change());
            times.push(start.elapsed().as_nanos() as f64);
        };
        time(&mut || table.insert(prefix, hops[0]).expect("room"));
        time(&mut || table.remove(prefix).ok());
        time(&mut || table.insert(prefix, hops[1]).expect("room"));
    }
    let mean = times.iter().sum::<f64>() / times.len() as f64;
    println!(
        "updates, ns: mean {mean:.0}, median {:.0}, p99 {:.0}",
        percentile(&mut times, 50),
        percentile(&mut times, 99)
    );
}

fn load<F: Bench>(routes: &[Route]) {
    let routes = with_hops::<F>(routes, 64);
    for accelerator in [false, F::BITS == 32] {
        let mut times: Vec<_> = (0..5)
            .map(|_| {
                let config = lpm::Config { accelerator, ..lpm::Config::default() };
                let start = Instant::now();
                black_box(Table::<F>::from_routes(config, routes.iter().copied()).expect("memory for the table"));
                start.elapsed().as_nanos() as f64
            })
            .collect();
        let time = percentile(&mut times, 50);
        println!(
            "load{}: {:.1} ms, {:.1} ns per route",
            if accelerator { ", accelerated" } else { "" },
            time / 1e6,
            time / routes.len() as f64
        );
    }
}
