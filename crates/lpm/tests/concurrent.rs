//! Readers during churn see the answer before a change or after it, nothing else, and hold no memory back. With each build of
//! the lookup loops that the CPU can run. Tests that go on by the clock take 3 seconds each, or as many as
//! `RINGWAY_LPM_SECONDS` says.

#![allow(clippy::unwrap_used, reason = "test helpers are tests")]

mod common;

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{Net, each_kernel, hop, kernel_count, mask, seconds};
use lpm::{Config, Family, Ipv4Prefix, Ipv6Prefix, Table, V4, V6};

/// The changes one prefix has seen: those begun, and those done. It is in the table after an even number.
#[derive(Default)]
struct Spot {
    begun: AtomicU32,
    done: AtomicU32,
}

/// The next hop under every spot.
const COVER: u32 = 1;

/// What each of a test's cases may take with one build of the loops: all of them together take the test's seconds.
fn share(cases: usize) -> Duration {
    Duration::from_secs_f64(seconds() / (cases * kernel_count()) as f64)
}

/// Cases of each test that calls [`before_or_after`].
const CASES: usize = 3;

/// One thread changes prefixes that lie side by side, and plenty of others to keep memory moving;
/// others look the prefixes up. Next hops count the changes, so an answer tells when it was true.
fn before_or_after<F: Family<Prefix = P, Addr = P::Addr, Bits = P::Bits>, P: Net>(config: Config, base: u128, len: u8) {
    if cfg!(miri) && len != 31 && len != 64 {
        skip::test!("spots of /{len} (under Miri a table takes a minute to make)");
        return;
    }
    each_kernel(|| before_or_after_with::<F, P>(config, base, len));
}

fn before_or_after_with<F: Family<Prefix = P, Addr = P::Addr, Bits = P::Bits>, P: Net>(
    config: Config,
    base: u128,
    len: u8,
) {
    let (least, readers) = if cfg!(miri) { (30, 1) } else { (2_000, 2) };
    let time = if cfg!(miri) { Duration::ZERO } else { share(CASES) };
    let spots: Vec<(u128, u8, Spot)> =
        (0..16).map(|index| (base | index << (128 - len), len, Spot::default())).collect();
    let last = |(addr, len): (u128, u8)| addr | (!mask(len) & mask(P::BITS));
    let mut table = Table::<F>::with_config(config).unwrap();
    table.insert(P::prefix(base, 8), hop(COVER)).unwrap();
    for (addr, len, spot) in &spots {
        table.insert(P::prefix(*addr, *len), hop(2)).unwrap();
        spot.begun.store(2, Ordering::Relaxed);
        spot.done.store(2, Ordering::Relaxed);
    }
    let (ready, over) = (AtomicU32::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for _ in 0..readers {
            let mut reader = table.reader();
            let (spots, ready, over) = (&spots, &ready, &over);
            threads.push(scope.spawn(move || {
                // Each three times: bursts of 32 and more have loops of their own.
                let spots: Vec<_> = spots.iter().cycle().take(3 * spots.len()).collect();
                let asked: Vec<_> = spots.iter().map(|(addr, len, _)| P::addr(last((*addr, *len)))).collect();
                let mut answers = vec![None; asked.len()];
                let mut rounds = 0_u64;
                while !over.load(Ordering::Relaxed) || rounds == 0 {
                    let done: Vec<u32> = spots.iter().map(|spot| spot.2.done.load(Ordering::SeqCst)).collect();
                    reader.lookup_batch(&asked, &mut answers);
                    for ((spot, answer), done) in spots.iter().zip(&answers).zip(done) {
                        let begun = spot.2.begun.load(Ordering::SeqCst);
                        let answer = answer.expect("the cover is never removed").get();
                        let absent_meanwhile = done % 2 == 1 || begun > done;
                        assert!(
                            if answer == COVER {
                                absent_meanwhile
                            } else {
                                answer % 2 == 0 && (done..=begun).contains(&answer)
                            },
                            "{:?}/{}: answer {answer}, changes done before {done}, begun after {begun}",
                            spot.0,
                            spot.1
                        );
                    }
                    if rounds == 0 {
                        ready.fetch_add(1, Ordering::SeqCst);
                    }
                    rounds += 1;
                }
            }));
        }
        while ready.load(Ordering::SeqCst) < readers {
            if threads.iter().any(thread::ScopedJoinHandle::is_finished) {
                over.store(true, Ordering::Relaxed);
                return;
            }
            thread::yield_now();
        }
        let mut rng = fastrand::Rng::with_seed(5);
        let (start, mut changes) = (Instant::now(), 0_u64);
        // A reader that has failed is done.
        while (changes < least || start.elapsed() < time) && !threads.iter().any(thread::ScopedJoinHandle::is_finished)
        {
            changes += 1;
            let (addr, len, spot) = &spots[rng.usize(..spots.len())];
            let prefix = P::prefix(*addr, *len);
            let next = spot.begun.load(Ordering::Relaxed) + 1;
            spot.begun.store(next, Ordering::SeqCst);
            if next % 2 == 0 {
                table.insert(prefix, hop(next)).unwrap();
            } else {
                table.remove(prefix).unwrap();
            }
            spot.done.store(next, Ordering::SeqCst);
            // Others, far from the spots.
            let other = P::prefix(!base & mask(8) | rng.u128(..) >> 8 & mask(24), 24 + rng.u8(0..8));
            if rng.bool() {
                table.insert(other, hop(COVER + rng.u32(..4))).unwrap();
            } else {
                let _ = table.remove(other);
            }
        }
        over.store(true, Ordering::Relaxed);
        println!("/{} of {}: {} changes", len, P::BITS, 2 * changes);
    });
}

/// Spots of one length beside each other: each is alone at its addresses.
#[test]
fn ipv4() {
    before_or_after::<V4, Ipv4Prefix>(Config::default(), 0x0a00_0000 << 96, 24);
    before_or_after::<V4, Ipv4Prefix>(Config::default(), 0x0a00_0000 << 96, 31);
    before_or_after::<V4, Ipv4Prefix>(Config::default(), 0x0a00_0000 << 96, 12);
}

#[test]
fn ipv4_accelerated() {
    let config = Config { accelerator: true, ..Config::default() };
    before_or_after::<V4, Ipv4Prefix>(config, 0x0a00_0000 << 96, 24);
    before_or_after::<V4, Ipv4Prefix>(config, 0x0a00_0000 << 96, 28);
    before_or_after::<V4, Ipv4Prefix>(config, 0x0a00_0000 << 96, 16);
}

#[test]
fn ipv6() {
    before_or_after::<V6, Ipv6Prefix>(Config::default(), 0x2001_0db8 << 96, 48);
    before_or_after::<V6, Ipv6Prefix>(Config::default(), 0x2001_0db8 << 96, 64);
    before_or_after::<V6, Ipv6Prefix>(Config::default(), 0x2001_0db8 << 96, 20);
}

/// Tables move to more memory and wider leaves, again and again, while the next hop of one route only ever rises: an answer is
/// not older than one that any reader has had before. Some readers stay idle over several moves.
#[cfg(not(miri))]
fn no_answer_is_older_than_one_before<F: Family<Prefix = P, Addr = P::Addr, Bits = P::Bits>, P: Net>() {
    let time = share(1);
    let (start, mut moves, mut changes) = (Instant::now(), 0_u64, 0_u32);
    while moves == 0 || start.elapsed() < time {
        let mut table = Table::<F>::new().unwrap();
        let spot = P::prefix(0x2a << 120, 24);
        table.insert(spot, hop(0)).unwrap();
        let (newest, over) = (AtomicU32::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            for pause in [1, 1, 400] {
                let mut reader = table.reader();
                let (newest, over) = (&newest, &over);
                scope.spawn(move || {
                    let asked = [P::addr(0x2a << 120); 32];
                    let mut rounds = 0;
                    while !over.load(Ordering::Relaxed) {
                        rounds += 1;
                        if rounds % pause != 0 {
                            thread::yield_now();
                            continue;
                        }
                        let before = newest.load(Ordering::SeqCst);
                        let mut answers = [None; 32];
                        reader.lookup_batch(&asked, &mut answers);
                        for answer in answers {
                            let answer = answer.unwrap().get();
                            assert!(answer >= before, "{answer} after {before}");
                            newest.fetch_max(answer, Ordering::SeqCst);
                        }
                        let before = newest.load(Ordering::SeqCst);
                        assert!(reader.lookup(asked[0]).unwrap().get() >= before);
                    }
                });
            }
            let mut held = table.memory_use().held;
            for nth in 0..70_000_u32 {
                // Its next hop, a new one with each change: numbers run out of bytes, and of two bytes.
                table.insert(spot, hop(nth)).unwrap();
                table.insert(P::prefix(0x30 << 120 | u128::from(nth) << 100, 28), hop(nth)).unwrap();
                moves += u64::from(table.memory_use().held != held);
                held = table.memory_use().held;
                changes += 2;
                if nth % 1024 == 0 && start.elapsed() > 4 * time {
                    break;
                }
            }
            over.store(true, Ordering::Relaxed);
        });
    }
    println!("IPv{}: {changes} changes, at least {moves} moves", if P::BITS == 32 { 4 } else { 6 });
}

/// What is asked for beside an address, and how, changes nothing of that: bursts of one address among many that the accelerator has no
/// answer to are looked up otherwise than it alone.
#[test]
#[cfg(not(miri))]
fn no_accelerated_answer_is_older_than_one_before() {
    each_kernel(|| {
        let time = share(1);
        let mut table = Table::<V4>::with_config(Config { accelerator: true, ..Config::default() }).unwrap();
        let cover = Ipv4Prefix::new(Ipv4Addr::new(10, 0, 0, 0), 8).unwrap();
        let deep = Ipv4Prefix::new(Ipv4Addr::new(10, 0, 0, 128), 25).unwrap();
        table.insert(cover, hop(0)).unwrap();
        table.insert(deep, hop(1_000_000)).unwrap();
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let (mut reader, over) = (table.reader(), &over);
            scope.spawn(move || {
                let asked = Ipv4Addr::new(10, 255, 255, 1);
                let mut burst = [Ipv4Addr::new(10, 0, 0, 129); 32];
                burst[5] = asked;
                let mut newest = 0;
                while !over.load(Ordering::Relaxed) {
                    let mut answers = [None; 32];
                    reader.lookup_batch(&burst, &mut answers);
                    let among_others = answers[5];
                    reader.lookup_batch(&[asked; 32], &mut answers);
                    for answer in [among_others, answers[0], reader.lookup(asked)] {
                        let answer = answer.unwrap().get();
                        assert!(answer >= newest, "{answer} after {newest}");
                        newest = answer;
                    }
                }
            });
            let (start, mut changes) = (Instant::now(), 0);
            while start.elapsed() < time {
                changes += 1;
                table.insert(cover, hop(changes)).unwrap();
            }
            over.store(true, Ordering::Relaxed);
            println!("{changes} changes of a route for 65,536 bytes");
        });
    });
}

#[test]
#[cfg(not(miri))]
fn no_ipv4_answer_is_older_than_one_before() {
    each_kernel(no_answer_is_older_than_one_before::<V4, Ipv4Prefix>);
}

#[test]
#[cfg(not(miri))]
fn no_ipv6_answer_is_older_than_one_before() {
    each_kernel(no_answer_is_older_than_one_before::<V6, Ipv6Prefix>);
}

/// Readers follow the table to larger memory, and wider leaves, in the middle of it all.
#[test]
#[cfg(not(miri))]
fn readers_follow_a_growing_table() {
    let mut table = Table::<V4>::new().unwrap();
    let always: Ipv4Prefix = "192.0.2.0/24".parse().unwrap();
    table.insert(always, hop(7)).unwrap();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let mut reader = table.reader();
        let over = &over;
        scope.spawn(move || {
            let mut rounds = 0;
            while !over.load(Ordering::Relaxed) || rounds == 0 {
                assert_eq!(reader.lookup("192.0.2.1".parse().unwrap()), Some(hop(7)));
                rounds += 1;
            }
        });
        let count = 70_000;
        for id in 0..count {
            table.insert(Ipv4Prefix::prefix(u128::from(id << 8) << 96, 24), hop(id + 8)).unwrap();
        }
        over.store(true, Ordering::Relaxed);
        let mut reader = table.reader();
        for id in 0..count {
            assert_eq!(reader.lookup((id << 8).into()), Some(hop(id + 8)));
        }
    });
}

/// Memory does not grow with the number of changes, of routes of all these lengths, even with a reader that never comes back.
#[cfg(not(miri))]
fn an_idle_reader_holds_nothing_up<F: Family<Prefix = P, Addr = P::Addr, Bits = P::Bits>, P: Net>(
    lens: std::ops::RangeInclusive<u8>,
) {
    let mut table = Table::<F>::new().unwrap();
    let idle = table.reader();
    let mut rng = fastrand::Rng::with_seed(6);
    let mut churn = |table: &mut Table<F>, count: u32| {
        for _ in 0..count {
            let prefix = P::prefix(0x2a << 120 | rng.u128(..) >> 8, rng.u8(lens.clone()));
            match table.get(prefix) {
                Some(_) => drop(table.remove(prefix)),
                None if table.len() < 2000 => drop(table.insert(prefix, hop(rng.u32(..300)))),
                None => {
                    let (first, _) = table.iter().next().unwrap();
                    table.remove(first).unwrap();
                }
            }
        }
    };
    let (warm, long) = (30_000, 300_000);
    churn(&mut table, warm);
    let held = table.memory_use().held;
    churn(&mut table, long);
    assert_eq!(table.memory_use().held, held);
    drop(idle);
}

#[test]
#[cfg(not(miri))]
fn an_idle_reader_holds_no_ipv4_table_up() {
    an_idle_reader_holds_nothing_up::<V4, Ipv4Prefix>(16..=32);
}

#[test]
#[cfg(not(miri))]
fn an_idle_reader_holds_no_ipv6_table_up() {
    an_idle_reader_holds_nothing_up::<V6, Ipv6Prefix>(18..=70);
}
