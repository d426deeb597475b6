//! Lookups, loads and updates of full and small tables beside those of other crates and of DPDK, all in one run.
//!
//! `benches/lpm/run` builds DPDK's part and runs this; `cargo bench -p ringway-lpm --bench compare -- [ROUNDS] [NAME…]`
//! runs it without: those whose name contains a NAME, of the subjects and of "updates", "load" and "writer". Each round
//! measures every subject on every trace once, in random order, pinned to one CPU; the figure is the tenth percentile over
//! the rounds.

mod common;

use std::hint::black_box;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::rival::{Rival, RivalSubject};
use common::{Bench, Route, TRACE, full_table, hash, table, traces, with_hops};
use lpm::kernels::{self, Choice};
use lpm::{NextHop, Reader, Table, V4, V6};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

const TRACES: usize = 4;
const BURSTS: [usize; 3] = [8, 32, 256];
/// Passes over a trace before one that is timed.
const WARM_UPS: usize = 2;
/// Routes of the small table.
const SMALL: usize = 1000;

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let rounds = arguments.iter().find_map(|arg| arg.parse().ok()).unwrap_or(15);
    let names: Vec<_> = arguments.into_iter().filter(|arg| arg.parse::<usize>().is_err()).collect();
    pin(Cpu::Last);
    if let Ok(name) = std::env::var("LPM_KERNEL") {
        let Some(choice) = Choice::ALL.into_iter().find(|choice| choice.name() == name) else {
            eprintln!("LPM_KERNEL is one of {}", Choice::ALL.map(Choice::name).join(", "));
            std::process::exit(1);
        };
        if let Err(missing) = kernels::choose(choice) {
            eprintln!("LPM_KERNEL={name}: this CPU has no {missing}");
            std::process::exit(1);
        }
    }
    println!("kernel {}", kernels::current().name());
    if std::env::var_os("LPM_RIVAL").is_none() {
        println!("without DPDK: benches/lpm/run has it beside");
    }
    ipv4(rounds, &names);
    ipv6(rounds, &names);
}

/// What a row of the table is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// This crate's tables, without and with the accelerator.
    Plain,
    Accelerated,
    /// DPDK's as it chooses itself, and its AVX-512 functions, which have to be asked for.
    Dpdk,
    DpdkWide,
    /// Not compared: dependent lookups, other crates, other numbers of next hops.
    Other,
}

struct Subject<'a> {
    name: String,
    kind: Kind,
    time: Box<Time<'a>>,
}

/// ns for a trace, by number; the rival is there for those that need it.
type Time<'a> = dyn FnMut(Option<&mut Rival>, usize) -> f64 + 'a;

/// The least ratios to the best of DPDK, unasked, that the project has set itself for bursts of 32 and more without AVX-512.
struct Limits {
    plain: [f64; TRACES],
    accelerated: [f64; TRACES],
}

macro_rules! family {
    ($name:ident, $family:ty, $bits:ty, $tree_addr:ty, $limits:expr) => {
        fn $name(rounds: usize, names: &[String]) {
            let full = full_table::<$family>();
            let small: Vec<_> = full.iter().copied().step_by(full.len() / SMALL).collect();
            for routes in [&full, &small] {
                println!("\n{}: {} routes, ns per lookup", stringify!($family), routes.len());
                let traces = traces::<$family>(routes);
                let with_hops = with_hops::<$family>(routes, 64);
                let mut map = prefix_trie::PrefixMap::<($bits, u8), u32>::new();
                let mut tree = ip_network_table_deps_treebitmap::IpLookupTable::<$tree_addr, u32>::new();
                for (prefix, hop) in &with_hops {
                    map.insert((prefix.address().into(), prefix.len()), hop.get());
                    tree.insert(prefix.address(), prefix.len().into(), hop.get());
                }
                let tables = our_tables::<$family>(routes);
                let mut subjects = Vec::new();
                for (name, kind, table) in &tables {
                    ours::<$family>(&mut subjects, name, *kind, table, &traces);
                }
                let chained = |last: u32, addr: $bits| addr ^ <$bits>::from(last & black_box(0));
                for (name, _, table) in tables.iter().filter(|table| table.1 != Kind::Other) {
                    let mut reader = table.reader();
                    let look = move |last, addr| value(reader.lookup(chained(last, addr).into()));
                    subjects.push(one_by_one(format!("{name} chain"), Kind::Other, &traces, look));
                }
                let value = |hop: Option<&u32>| hop.copied().unwrap_or(0);
                let look = |_: u32, addr: $bits| value(map.get_lpm(&(addr, <$family>::BITS)).map(|hit| hit.1));
                subjects.push(one_by_one("prefix-trie single".into(), Kind::Other, &traces, look));
                let look = |_: u32, addr: $bits| value(tree.longest_match(addr.into()).map(|hit| hit.2));
                subjects.push(one_by_one("treebitmap single".into(), Kind::Other, &traces, look));
                let mut rival = Rival::start::<$family>(&with_hops, &traces);
                let wanted = |name: &str| names.is_empty() || names.iter().any(|part| name.contains(part.as_str()));
                if let Some(rival) = &mut rival {
                    rivals::<$family>(&mut subjects, rival, &tables[0].2, &traces, &wanted);
                }
                subjects.retain(|subject| wanted(&subject.name));
                measure(rounds, rival.as_mut(), &traces.each_ref().map(|trace| trace.0), &mut subjects, &$limits);
                drop(subjects);
                let compared = tables.into_iter().filter(|table| table.1 != Kind::Other);
                for (name, kind, mut table) in compared {
                    if wanted("updates") {
                        updates::<$family>(&name, routes, &mut table);
                    }
                    if wanted("load") {
                        load::<$family>(&name, routes, kind == Kind::Accelerated);
                    }
                    if wanted("writer") && routes.len() > 2 * SMALL {
                        with_writer::<$family>(&name, routes, &mut table, &traces);
                    }
                }
            }
        }
    };
}

family!(ipv4, V4, u32, std::net::Ipv4Addr, Limits { plain: [2.0, 1.2, 0.75, 0.5], accelerated: [1.4, 1.5, 1.4, 1.2] });
family!(ipv6, V6, u128, std::net::Ipv6Addr, Limits { plain: [1.5, 3.0, 2.5, 1.8], accelerated: [0.0; TRACES] });

/// Tables of this crate with few and many next hops, and with the accelerator, which few get.
fn our_tables<F: Bench>(routes: &[Route]) -> Vec<(String, Kind, Table<F>)> {
    let mut tables = Vec::new();
    for (hops, kind) in [(64, Kind::Plain), (64, Kind::Accelerated), (1000, Kind::Other), (70_000, Kind::Other)] {
        if (kind == Kind::Accelerated && F::BITS == 128) || (kind == Kind::Other && routes.len() < 2 * SMALL) {
            continue;
        }
        let table = table::<F>(routes, hops, kind == Kind::Accelerated);
        let name = match kind {
            Kind::Plain => "lpm".to_owned(),
            Kind::Accelerated => "lpm accelerated".to_owned(),
            _ => format!("lpm {hops} next hops"),
        };
        let memory = table.memory_use();
        println!("{name}: {:.2} MB touched by readers", memory.read as f64 / 1e6);
        tables.push((name, kind, table));
    }
    tables
}

/// Single and batched lookups.
fn ours<'a, F: Bench>(
    subjects: &mut Vec<Subject<'a>>,
    name: &str,
    kind: Kind,
    table: &Table<F>,
    traces: &'a [(&'static str, Vec<F::Bits>); TRACES],
) where
    F::Addr: From<F::Bits>,
{
    let mut reader = table.reader();
    let look = move |_: u32, addr: F::Bits| value(reader.lookup(addr.into()));
    subjects.push(one_by_one(format!("{name} single"), kind, traces, look));
    for burst in BURSTS {
        let mut reader = table.reader();
        subjects.push(Subject {
            name: format!("{name} burst {burst}"),
            kind,
            time: Box::new(move |_, trace| {
                let addrs = &traces[trace].1;
                for _ in 0..WARM_UPS {
                    black_box(bursts::<F>(&mut reader, addrs, burst));
                }
                let start = Instant::now();
                black_box(bursts::<F>(&mut reader, addrs, burst));
                nanos(start)
            }),
        });
    }
}

#[inline(never)]
fn bursts<F: Bench>(reader: &mut Reader<F>, addrs: &[F::Bits], burst: usize) -> u32 {
    let mut out = [None; 256];
    addrs.chunks(burst).fold(0, |sum: u32, addrs| {
        let count = reader.lookup_batch(addrs, &mut out);
        sum.wrapping_add(value(out[count - 1]))
    })
}

/// One address after the other; `look` gets the answer before too, to depend on it or not.
fn one_by_one<'a, B: Copy>(
    name: String,
    kind: Kind,
    traces: &'a [(&'static str, Vec<B>); TRACES],
    mut look: impl FnMut(u32, B) -> u32 + 'a,
) -> Subject<'a> {
    let time = Box::new(move |_: Option<&mut Rival>, trace: usize| {
        let addrs = &traces[trace].1;
        let mut all = |addrs: &[B]| addrs.iter().fold(0, |last, addr| look(last, *addr));
        for _ in 0..WARM_UPS {
            black_box(all(addrs));
        }
        let start = Instant::now();
        black_box(all(addrs));
        nanos(start)
    });
    Subject { name, kind, time }
}

/// DPDK's subjects whose tables hold these routes and give the right answers.
fn rivals<F: Bench>(
    subjects: &mut Vec<Subject<'_>>,
    rival: &mut Rival,
    table: &Table<F>,
    traces: &[(&'static str, Vec<F::Bits>); TRACES],
    wanted: &dyn Fn(&str) -> bool,
) {
    let mut reader = table.reader();
    let right = traces.each_ref().map(|(_, addrs)| {
        let mut out = vec![None; addrs.len()];
        reader.lookup_batch(addrs, &mut out);
        hash(out.into_iter())
    });
    let mut last = None;
    for subject in rival.subjects() {
        if !wanted(&subject.name) {
            continue;
        }
        match rival.load(&subject) {
            Err(reason) => println!("{}: left out: {reason}", subject.name),
            Ok(loaded) => {
                for (trace, right) in right.iter().enumerate() {
                    assert_eq!(rival.check(&subject, trace), *right, "{} answers otherwise", subject.name);
                }
                if last != Some(loaded) {
                    last = Some(loaded);
                    said_of_rival(rival, &subject, loaded, table.len());
                }
                let kind = match &subject.name {
                    name if name.ends_with("chain") => Kind::Other,
                    name if name.contains("AVX-512") => Kind::DpdkWide,
                    _ => Kind::Dpdk,
                };
                let name = subject.name.clone();
                let time =
                    move |rival: Option<&mut Rival>, trace| rival.map_or(0.0, |rival| rival.time(&subject, trace));
                subjects.push(Subject { name, kind, time: Box::new(time) });
            }
        }
    }
}

fn said_of_rival(rival: &mut Rival, subject: &RivalSubject, (time, bytes): (f64, usize), routes: usize) {
    println!(
        "{} and those below: loaded in {:.0} ms, {:.0} ns per route; an update takes {:.0} ns; {:.1} MB held",
        subject.name,
        time / 1e6,
        time / routes as f64,
        rival.update(subject),
        bytes as f64 / 1e6
    );
}

fn measure(
    rounds: usize,
    mut rival: Option<&mut Rival>,
    traces: &[&str; TRACES],
    subjects: &mut [Subject<'_>],
    limits: &Limits,
) {
    let mut times = vec![[const { Vec::new() }; TRACES]; subjects.len()];
    let mut order: Vec<(usize, usize)> =
        (0..subjects.len()).flat_map(|subject| (0..TRACES).map(move |trace| (subject, trace))).collect();
    for _ in 0..rounds {
        fastrand::shuffle(&mut order);
        for (subject, trace) in &order {
            let time = (subjects[*subject].time)(rival.as_deref_mut(), *trace);
            times[*subject][*trace].push(time / TRACE as f64);
        }
    }
    let row = |name: &str, cells: [String; TRACES]| {
        print!("{name:43}");
        cells.iter().for_each(|cell| print!("{cell:>10}"));
        println!();
    };
    row("", traces.map(str::to_owned));
    let figures: Vec<[f64; TRACES]> =
        times.iter_mut().map(|times| times.each_mut().map(|times| percentile(times, 10))).collect();
    for (subject, figures) in subjects.iter().zip(&figures) {
        row(&subject.name, figures.map(|figure| format!("{figure:.2}")));
    }
    let of = |kind| subjects.iter().zip(&figures).filter(move |(subject, _)| subject.kind == kind);
    for (rival, name) in [(Kind::Dpdk, "best of DPDK"), (Kind::DpdkWide, "best of DPDK's AVX-512")] {
        if of(rival).next().is_none() {
            continue;
        }
        let best: [f64; TRACES] =
            std::array::from_fn(|trace| of(rival).map(|(_, figures)| figures[trace]).fold(f64::MAX, f64::min));
        row(name, best.map(|figure| format!("{figure:.2}")));
        for (kind, least) in [(Kind::Plain, limits.plain), (Kind::Accelerated, limits.accelerated)] {
            for (subject, figures) in of(kind).filter(|(subject, _)| subject.name.contains("burst")) {
                row(
                    &format!("  {}: times faster", subject.name),
                    std::array::from_fn(|trace| format!("{:.2}", best[trace] / figures[trace])),
                );
            }
            if of(kind).next().is_some() && rival == Kind::Dpdk {
                row("    wanted at least", least.map(|least| format!("{least:.2}")));
            }
        }
    }
}

/// Changes of the table: a random route gets another next hop, goes, and comes back. The means are of the CPU's time
/// for this thread, in blocks of a thousand; the percentiles are the clock's, other programs included.
fn updates<F: Bench>(name: &str, routes: &[Route], table: &mut Table<F>) {
    let mut rng = fastrand::Rng::with_seed(4);
    let mut times = Vec::new();
    let mut changes = |times: &mut Vec<f64>, count: usize| {
        for _ in 0..count {
            let prefix = F::prefix(routes[rng.usize(..routes.len())]);
            let hops = [NextHop::new(rng.u32(..64)).expect("small"), NextHop::new(rng.u32(..64)).expect("small")];
            let mut last = Instant::now();
            let mut done = |_: Option<NextHop>| {
                let now = Instant::now();
                times.push((now - last).as_nanos() as f64);
                last = now;
            };
            done(table.insert(prefix, hops[0]).expect("room"));
            done(table.remove(prefix).ok());
            done(table.insert(prefix, hops[1]).expect("room"));
        }
    };
    changes(&mut times, 10_000);
    times.clear();
    let mut blocks: Vec<f64> = (0..100)
        .map(|_| {
            let before = cpu_time();
            changes(&mut times, 1000);
            (cpu_time() - before) as f64 / 3000.0
        })
        .collect();
    let mean = blocks.iter().sum::<f64>() / blocks.len() as f64;
    let (quiet, p50, p99) = (percentile(&mut blocks, 10), percentile(&mut times, 50), percentile(&mut times, 99));
    println!("{name}: updates, ns: mean {mean:.0} (quietest tenth {quiet:.0}), median {p50:.0}, p99 {p99:.0}");
}

fn load<F: Bench>(name: &str, routes: &[Route], accelerator: bool) {
    let routes = with_hops::<F>(routes, 64);
    let mut times: Vec<_> = (0..9)
        .map(|_| {
            let config = lpm::Config { accelerator, ..lpm::Config::default() };
            let start = Instant::now();
            black_box(Table::<F>::from_routes(config, routes.iter().copied()).expect("memory for the table"));
            nanos(start)
        })
        .collect();
    let (low, middle) = (percentile(&mut times, 10), percentile(&mut times, 50));
    let each = |time: f64| time / routes.len() as f64;
    println!("{name}: load {:.1} ms, {:.1} ns per route (median {:.1})", low / 1e6, each(low), each(middle));
}

/// Lookups in bursts of 256 while another thread, on another CPU, makes 10,000 changes a second, and while it pauses.
fn with_writer<F: Bench>(
    name: &str,
    routes: &[Route],
    table: &mut Table<F>,
    traces: &[(&'static str, Vec<F::Bits>); TRACES],
) {
    const EVERY: Duration = Duration::from_micros(100);
    let mut reader = table.reader();
    let (over, busy) = (&AtomicBool::new(false), &AtomicBool::new(false));
    let addrs = &traces[1].1;
    let mut times = [const { Vec::new() }; 2];
    let mut made = 0_u64;
    let mut active = Duration::ZERO;
    thread::scope(|scope| {
        let made = &mut made;
        scope.spawn(move || {
            pin(Cpu::First);
            let mut rng = fastrand::Rng::with_seed(9);
            let mut due = Instant::now();
            while !over.load(Ordering::Relaxed) {
                if !busy.load(Ordering::Relaxed) {
                    due = Instant::now();
                } else if Instant::now() >= due {
                    let prefix = F::prefix(routes[rng.usize(..routes.len())]);
                    table.insert(prefix, NextHop::new(rng.u32(..64)).expect("small")).expect("room");
                    due += EVERY;
                    *made += 1;
                    continue;
                }
                std::hint::spin_loop();
            }
        });
        for round in 0..120 {
            let writing = round % 2 == 1;
            busy.store(writing, Ordering::Relaxed);
            black_box(bursts::<F>(&mut reader, &addrs[..TRACE / 4], 256));
            let start = Instant::now();
            for _ in 0..4 {
                black_box(bursts::<F>(&mut reader, addrs, 256));
            }
            times[usize::from(writing)].push(nanos(start) / (4 * TRACE) as f64);
            if writing {
                active += start.elapsed();
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    let [without, with] = times.each_mut().map(|times| [10, 50].map(|percent| percentile(times, percent)));
    println!(
        "{name}, with a writer: {:.2} ns per lookup in the table instead of {:.2}: {:.1} % lost (medians {:.2}, {:.2}: {:.1} %); {:.0} updates/s",
        with[0],
        without[0],
        100.0 * (1.0 - without[0] / with[0]),
        with[1],
        without[1],
        100.0 * (1.0 - without[1] / with[1]),
        made as f64 / active.as_secs_f64()
    );
}

fn percentile(times: &mut [f64], percent: usize) -> f64 {
    times.sort_by(f64::total_cmp);
    times[(times.len() * percent / 100).min(times.len() - 1)]
}

fn nanos(start: Instant) -> f64 {
    start.elapsed().as_nanos() as f64
}

fn value(hop: Option<NextHop>) -> u32 {
    hop.map_or(0, NextHop::get)
}

/// CPU time of this thread, in ns.
fn cpu_time() -> i64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// The first or last CPU of those this process may use.
enum Cpu {
    First,
    Last,
}

/// Keeps this thread on one CPU. If that cannot be, figures are noisier.
fn pin(cpu: Cpu) {
    static CPUS: OnceLock<Vec<usize>> = OnceLock::new();
    let cpus = CPUS.get_or_init(|| {
        let allowed = sched_getaffinity(None).unwrap_or_default();
        (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect()
    });
    let cpu = match cpu {
        Cpu::First => cpus.first(),
        Cpu::Last => cpus.last(),
    };
    let mut set = CpuSet::new();
    cpu.into_iter().for_each(|cpu| set.set(*cpu));
    let _ = sched_setaffinity(None, &set);
}
