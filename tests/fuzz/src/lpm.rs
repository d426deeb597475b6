//! Changes and lookups of route tables beside a naive one, with each build of the lookup loops that the CPU can run: insertions,
//! removals, all routes at once, single lookups and bursts, tables at their limit, and moves that an idle reader sleeps through.

#![allow(clippy::unwrap_used, reason = "a fuzz target fails by panicking")]

use lpm::kernels::{self, Choice};
use lpm::{Config, Error, Family, Ipv4Prefix, Ipv6Prefix, NextHop, Table, V4, V6};
use std::collections::{BTreeMap, BTreeSet};

/// A prefix of either family, by the leading bits of 128.
trait Net: Copy {
    const BITS: u8;
    type Addr: Copy;
    fn prefix(bits: u128, len: u8) -> Self;
    fn addr(bits: u128) -> Self::Addr;
}

impl Net for Ipv4Prefix {
    const BITS: u8 = 32;
    type Addr = std::net::Ipv4Addr;
    fn prefix(bits: u128, len: u8) -> Self {
        Self::truncate(Self::addr(bits), len).unwrap()
    }
    fn addr(bits: u128) -> Self::Addr {
        u32::try_from(bits >> 96).unwrap().into()
    }
}

impl Net for Ipv6Prefix {
    const BITS: u8 = 128;
    type Addr = std::net::Ipv6Addr;
    fn prefix(bits: u128, len: u8) -> Self {
        Self::truncate(bits.into(), len).unwrap()
    }
    fn addr(bits: u128) -> Self::Addr {
        bits.into()
    }
}

/// Runs one input: a byte for family and configuration, then steps of six bytes.
pub fn run(input: &[u8]) {
    let Some((first, steps)) = input.split_first() else { return };
    let memory_limit = if first & 4 == 0 { 1 << 30 } else { (1 << 20) + usize::from(first >> 4) };
    // In some the accelerator comes with the routes.
    let accelerated_from = usize::from(first >> 6) * 4;
    let config = Config { accelerator: first & 2 != 0, accelerated_from, memory_limit };
    for kernel in Choice::ALL {
        if kernels::choose(kernel).is_err() {
            continue;
        }
        match first & 1 {
            0 => drive::<V4, Ipv4Prefix>(config, first & 8 != 0, steps),
            _ => drive::<V6, Ipv6Prefix>(config, first & 8 != 0, steps),
        }
    }
    kernels::choose_best();
}

fn mask(len: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0)
}

/// Few bases, and few bits of them flipped: prefixes collide, nest and touch where levels of the tables meet.
fn place<P: Net>(step: &[u8]) -> (u128, u8) {
    const BASES: [u128; 4] = [0, u128::MAX, 0x0a00_0000 << 96, 0x2001_0db8 << 96];
    let flips = u128::from(step[1] >> 2) << 122 >> (step[2] % 120);
    let len = step[3] % (P::BITS + 1);
    ((BASES[usize::from(step[1] & 3)] ^ flips) & mask(len), len)
}

fn drive<F, P>(config: Config, wide: bool, steps: &[u8])
where
    F: Family<Prefix = P, Addr = P::Addr>,
    P: Net,
    P::Addr: Into<F::Bits>,
{
    let mut table = Table::<F>::with_config(config).unwrap();
    let (mut reader, mut idle) = (table.reader(), table.reader());
    let mut naive = BTreeMap::<(u128, u8), u32>::new();
    let mut runs = 0;
    // Some steps cost milliseconds.
    for step in steps.chunks_exact(6).take(60) {
        let (addr, len) = place::<P>(step);
        let scale = if wide { 70_001 } else { 1 };
        let id = u32::from(step[4]) * scale;
        match step[0] % 12 {
            0..=3 => insert(&mut table, &mut naive, (addr, len), id, config),
            4 => remove(&mut table, &mut naive, (addr, len), config),
            5 | 6 => {
                let nth = usize::from(step[1]) % naive.len().max(1);
                if let Some(key) = naive.keys().nth(nth).copied() {
                    remove(&mut table, &mut naive, key, config);
                }
            }
            // All routes at once, in a table of their own.
            7 => {
                let routes: Vec<_> = table.iter().collect();
                if let Ok(anew) = Table::from_routes(config, routes) {
                    table = anew;
                    (reader, idle) = (table.reader(), table.reader());
                }
            }
            // Next hops until leaves grow wider, at least twice: the tables move.
            8 if runs < 2 => {
                runs += 1;
                for nth in 0..300_u32 {
                    let key = (addr & mask(12) | u128::from(nth) << 100, 28);
                    insert(&mut table, &mut naive, key, nth * scale, config);
                }
            }
            9 => std::mem::swap(&mut reader, &mut idle),
            10 => drop(std::mem::replace(&mut reader, idle.clone())),
            _ => {}
        }
        // Mostly bursts about as long as a chunk of the loops; the oracle is slow.
        let burst = if step[5] < 0xF0 { step[5] % 40 } else { step[5] };
        compare(&mut reader, &naive, (addr, len), burst.into());
        let one = P::addr((addr | !mask(len)) & mask(P::BITS));
        let want = find(&naive, (addr | !mask(len)) & mask(P::BITS));
        assert_eq!(reader.lookup(one).map(NextHop::get), want);
        assert_eq!(table.lookup(one).map(NextHop::get), want);
    }
    assert_eq!(table.len(), naive.len());
    compare(&mut idle, &naive, (0, 0), 255);
    // Readers go on when the table is gone.
    drop(table);
    compare(&mut reader, &naive, (0, 0), 64);
}

fn insert<F, P>(table: &mut Table<F>, naive: &mut BTreeMap<(u128, u8), u32>, key: (u128, u8), id: u32, config: Config)
where
    F: Family<Prefix = P>,
    P: Net,
{
    match table.insert(P::prefix(key.0, key.1), NextHop::new(id).unwrap()) {
        Ok(old) => assert_eq!(old.map(NextHop::get), naive.insert(key, id)),
        Err(error) => {
            assert_eq!(error, Error::TableFull { limit: config.memory_limit });
            assert_eq!(table.get(P::prefix(key.0, key.1)).map(NextHop::get), naive.get(&key).copied());
        }
    }
}

fn remove<F, P>(table: &mut Table<F>, naive: &mut BTreeMap<(u128, u8), u32>, key: (u128, u8), config: Config)
where
    F: Family<Prefix = P>,
    P: Net,
{
    match table.remove(P::prefix(key.0, key.1)) {
        Ok(old) => assert_eq!(naive.remove(&key), Some(old.get())),
        Err(Error::NoSuchRoute { .. }) => assert!(!naive.contains_key(&key)),
        Err(error) => assert_eq!(error, Error::TableFull { limit: config.memory_limit }),
    }
}

fn find(naive: &BTreeMap<(u128, u8), u32>, addr: u128) -> Option<u32> {
    find_among(naive, 0..=128, addr)
}

/// The same, where all routes have one of these lengths, shortest first.
fn find_among(naive: &BTreeMap<(u128, u8), u32>, lens: impl DoubleEndedIterator<Item = u8>, addr: u128) -> Option<u32> {
    lens.rev().find_map(|len| naive.get(&(addr & mask(len), len)).copied())
}

/// A burst of so many addresses, at the edges of routes and just outside of them, from a place on.
fn compare<F, P>(reader: &mut lpm::Reader<F>, naive: &BTreeMap<(u128, u8), u32>, from: (u128, u8), count: usize)
where
    F: Family<Prefix = P, Addr = P::Addr>,
    P: Net,
    P::Addr: Into<F::Bits>,
{
    let one = 1_u128 << (128 - P::BITS);
    let keys = naive.range(from..).chain(naive.range(..from)).map(|(key, _)| *key).chain([from]);
    let edges = keys.flat_map(|(addr, len)| {
        let last = addr | !mask(len);
        [addr, last, addr.wrapping_sub(one), last.wrapping_add(one), addr | (last & 0x5555 << 64)]
    });
    let addrs: Vec<u128> = edges.map(|addr| addr & mask(P::BITS)).take(count).collect();
    let asked: Vec<P::Addr> = addrs.iter().map(|addr| P::addr(*addr)).collect();
    let mut answers = vec![None; addrs.len()];
    assert_eq!(reader.lookup_batch(&asked, &mut answers), addrs.len());
    let lens: BTreeSet<u8> = naive.keys().map(|(_, len)| *len).collect();
    for (addr, answer) in addrs.iter().zip(answers) {
        assert_eq!(answer.map(NextHop::get), find_among(naive, lens.iter().copied(), *addr), "{addr:#x}");
    }
}
