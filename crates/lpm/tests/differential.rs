//! Random changes of every kind against an independent crate, with each build of the lookup loops that the CPU can run:
//! insertions, replacements, removals, all routes replaced, tables at their limit, next hops by the hundred thousand. Each test takes three
//! seconds, or as many as `RINGWAY_LPM_SECONDS` says. Not under Miri: too slow.
#![cfg(not(miri))]
#![allow(clippy::unwrap_used, reason = "test helpers are tests")]

mod common;

use std::time::{Duration, Instant};

use common::{Net, each_kernel, hop, kernel_count, mask, seconds};
use lpm::{Config, Error, Family, Ipv4Prefix, Ipv6Prefix, NextHop, Reader, Table, V4, V6};
use prefix_trie::PrefixMap;

/// Addresses looked up at a time.
const BURST: usize = 300;

/// One table, its oracle, and what was done.
struct Pair<F: Family, B>
where
    (B, u8): prefix_trie::Prefix,
{
    table: Table<F>,
    reader: Reader<F>,
    oracle: PrefixMap<(B, u8), u32>,
    /// Prefixes that are or were in the table.
    known: Vec<(u128, u8)>,
    config: Config,
    rng: fastrand::Rng,
    updates: u64,
    refused: u64,
    lookups: u64,
}

impl<F, P, B> Pair<F, B>
where
    F: Family<Prefix = P, Addr = P::Addr, Bits = P::Bits>,
    P: Net,
    B: TryFrom<u128> + Copy + Into<F::Bits> + std::fmt::Debug,
    (B, u8): prefix_trie::Prefix,
{
    fn new(config: Config, seed: u64) -> Self {
        let table = Table::with_config(config).unwrap();
        let (reader, rng) = (table.reader(), fastrand::Rng::with_seed(seed));
        let (oracle, known) = (PrefixMap::new(), Vec::new());
        Self { table, reader, oracle, known, config, rng, updates: 0, refused: 0, lookups: 0 }
    }

    fn narrow(bits: u128) -> B {
        B::try_from(bits >> (128 - P::BITS)).ok().unwrap()
    }

    /// A prefix among a few neighbours, so that they nest and touch, or one known before.
    fn prefix(&mut self) -> (u128, u8) {
        if !self.known.is_empty() && self.rng.u8(..3) == 0 {
            return *self.rng.choice(&self.known).unwrap();
        }
        let dense = u128::from(self.rng.u8(..4)) << 124 | self.rng.u128(..) >> self.rng.u32(5..20);
        let usual = if P::BITS == 32 { 12..=32 } else { 16..=64 };
        let len = if self.rng.u8(..20) == 0 { self.rng.u8(..=P::BITS) } else { self.rng.u8(usual) };
        let key = (dense & mask(len), len);
        if self.known.len() < 200_000 {
            self.known.push(key);
        }
        key
    }

    fn update(&mut self, hops: u32, removals: u8) {
        let (addr, len) = self.prefix();
        let (prefix, key) = (P::prefix(addr, len), (Self::narrow(addr), len));
        self.updates += 1;
        if self.rng.u8(..10) < removals {
            match self.table.remove(prefix) {
                Ok(old) => assert_eq!(Some(old.get()), self.oracle.remove(&key)),
                Err(Error::NoSuchRoute { .. }) => assert_eq!(self.oracle.get(&key), None),
                Err(_) => self.refused += 1,
            }
            return;
        }
        let new = self.rng.u32(..hops);
        match self.table.insert(prefix, hop(new)) {
            Ok(old) => assert_eq!(old.map(NextHop::get), self.oracle.insert(key, new)),
            Err(error) => {
                assert_eq!(error, Error::TableFull { limit: self.config.memory_limit });
                self.refused += 1;
            }
        }
        assert_eq!(self.table.get(prefix).map(NextHop::get), self.oracle.get(&key).copied());
    }

    /// Bursts of every length, half of the addresses inside known prefixes and at their edges.
    fn compare(&mut self) {
        let count = self.rng.usize(1..=BURST);
        let addrs: Vec<B> = (0..count)
            .map(|_| {
                let (addr, len) = self.rng.choice(&self.known).copied().unwrap_or((0, 0));
                let inside = match self.rng.u8(..4) {
                    0 => addr,
                    1 => addr | !mask(len),
                    2 => addr | self.rng.u128(..) & !mask(len),
                    _ => self.rng.u128(..) >> 2,
                };
                Self::narrow(inside & mask(P::BITS))
            })
            .collect();
        let mut answers = vec![None; count];
        assert_eq!(self.reader.lookup_batch(&addrs, &mut answers), count);
        for (addr, answer) in addrs.iter().zip(&answers) {
            let want = self.oracle.get_lpm(&(*addr, P::BITS)).map(|(_, id)| *id);
            assert_eq!(answer.map(NextHop::get), want, "{addr:?}");
        }
        self.lookups += count as u64;
    }

    /// All routes replaced at once by some of them, with other next hops; readers follow.
    fn replace(&mut self, hops: u32) {
        let mut routes: Vec<(P, NextHop)> = self.table.iter().filter(|_| self.rng.bool()).collect();
        for (_, next) in &mut routes {
            if self.rng.u8(..4) == 0 {
                *next = hop(self.rng.u32(..hops));
            }
        }
        match self.table.replace(routes.iter().copied()) {
            Ok(()) => {
                self.oracle = PrefixMap::new();
                for (prefix, next) in routes {
                    let (addr, len) = prefix.bits();
                    self.oracle.insert((Self::narrow(addr), len), next.get());
                }
            }
            Err(error) => assert_eq!(error, Error::TableFull { limit: self.config.memory_limit }),
        }
        self.compare();
    }

    /// All routes replaced by those of a table built at once; the reader follows nothing here, so it is a new one.
    fn rebuild(&mut self) {
        let routes: Vec<(P, NextHop)> = self.table.iter().collect();
        assert_eq!(routes.len(), self.oracle.len());
        match Table::from_routes(self.config, routes) {
            Ok(table) => {
                self.reader = table.reader();
                self.table = table;
            }
            Err(error) => assert_eq!(error, Error::TableFull { limit: self.config.memory_limit }),
        }
    }
}

fn differ<F, P, B>(config: Config, seed: u64, time: Duration)
where
    F: Family<Prefix = P, Addr = P::Addr, Bits = P::Bits>,
    P: Net,
    B: TryFrom<u128> + Copy + Into<F::Bits> + std::fmt::Debug,
    (B, u8): prefix_trie::Prefix,
{
    let start = Instant::now();
    let mut pair = Pair::<F, B>::new(config, seed);
    // A reader that looks up now and then, after thousands of changes.
    let mut idle = pair.table.reader();
    let mut round = 0;
    while round < 4 || start.elapsed() < time {
        // It grows, shrinks, and its next hops take more bytes.
        let (hops, removals) = [(200, 2), (200, 7), (60_000, 3), (200_000, 4), (200_000, 8)][round % 5];
        for step in 0..2000 {
            pair.update(hops, removals);
            if step % 16 == 0 {
                pair.compare();
            }
        }
        if round % 7 == 6 {
            pair.rebuild();
            idle = pair.table.reader();
        }
        if round % 4 == 3 {
            pair.replace(hops);
        }
        if round % 3 == 2 {
            std::mem::swap(&mut idle, &mut pair.reader);
        }
        round += 1;
    }
    let Pair { updates, refused, lookups, .. } = pair;
    println!(
        "IPv{}, {config:?}: {updates} updates, {refused} refused, {lookups} lookups",
        if P::BITS == 32 { 4 } else { 6 }
    );
}

/// What each of some configurations may take.
fn share(configs: usize) -> Duration {
    Duration::from_secs_f64(seconds() / (configs * kernel_count()) as f64)
}

#[test]
fn ipv4_answers_as_the_oracle_does() {
    let full = Config { memory_limit: (1 << 20) + 1000, ..Config::default() };
    let configs = [Config::default(), Config { accelerator: true, ..Config::default() }, full];
    each_kernel(|| {
        for (seed, config) in (1..).zip(configs) {
            differ::<V4, Ipv4Prefix, u32>(config, seed, share(configs.len()));
        }
    });
}

#[test]
fn ipv6_answers_as_the_oracle_does() {
    let configs = [Config::default(), Config { memory_limit: (1 << 20) + 1001, ..Config::default() }];
    each_kernel(|| {
        for (seed, config) in (1..).zip(configs) {
            differ::<V6, Ipv6Prefix, u128>(config, seed, share(configs.len()));
        }
    });
}
