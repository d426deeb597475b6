//! What the writer does with memory, watched from inside.

use std::sync::{Arc, Weak};
use std::vec::Vec;
use std::{thread, vec};

use super::*;
use crate::{Config, Error, Family, Ipv6Prefix, Ipv6Table, NextHop, Table, V4, V6};

/// Tables without routes, which take little time to make.
fn empty_tables() -> (Tables<V6>, <V6 as Layout>::Store) {
    Tables::new(1, true, Width::Byte, false, Kernel::Portable).unwrap()
}

/// The audit's entry P8: its next lookup went through a link for each move, and dropped them one inside the other.
#[test]
fn p8_an_idle_reader_outlives_50000_moves() {
    let mut table = Ipv6Table::new().unwrap();
    let hop = NextHop::new(7).unwrap();
    table.insert("2001:db8::/32".parse().unwrap(), hop).unwrap();
    let mut idle = table.reader();
    for _ in 0..50_000 {
        let (tables, store) = empty_tables();
        table.writer.move_to(tables, store);
    }
    table.writer.relocate(Width::Byte, 0).unwrap();
    let lookup = move || {
        let answer = idle.lookup("2001:db8::1".parse().unwrap());
        (answer, idle)
    };
    let reader = thread::Builder::new().stack_size(32 << 10).spawn(lookup).unwrap();
    let (answer, idle) = reader.join().unwrap();
    assert_eq!(answer, Some(hop));
    let drops = thread::Builder::new().stack_size(32 << 10).spawn(move || drop((idle, table)));
    drops.unwrap().join().unwrap();
}

/// Idle readers keep one generation each, the one they used last, however often the tables move.
#[test]
fn p8_an_idle_reader_holds_one_generation() {
    let mut table = Ipv6Table::new().unwrap();
    let mut generations = vec![Arc::downgrade(&table.writer.tables)];
    let mut idle = vec![table.reader()];
    let held = |generations: &[Weak<Tables<V6>>]| -> usize {
        generations.iter().filter_map(Weak::upgrade).map(|tables| tables.bytes_held()).sum()
    };
    let one = held(&generations);
    for round in 1..=2000 {
        table.writer.relocate(Width::Byte, 0).unwrap();
        generations.push(Arc::downgrade(&table.writer.tables));
        if round % 500 == 0 {
            idle.push(table.reader());
        }
        if round % 100 == 99 {
            assert_eq!(held(&generations), (idle.len() + 1) * one, "after {round} moves");
        }
    }
    // Each lets go of it with its next lookup.
    for reader in &mut idle {
        assert_eq!(reader.lookup("2001:db8::1".parse().unwrap()), None);
    }
    assert_eq!(held(&generations), one);
    drop(table);
    assert_eq!(held(&generations), one, "readers look up without the writer");
    drop(idle);
    assert_eq!(held(&generations), 0);
}

/// Changes of a full table, most of which fail: few build everything anew, whatever the limit is a multiple of.
fn few_rebuilds<F: Family>(limit: usize, prefix: impl Fn(&mut fastrand::Rng) -> F::Prefix) {
    let config = Config { memory_limit: limit, ..Config::default() };
    let mut table = Table::<F>::with_config(config).unwrap();
    let mut rng = fastrand::Rng::with_seed(11);
    let mut routes: Vec<F::Prefix> = Vec::new();
    let mut full = 0;
    let mut at_full = 0;
    let mut changes = 0;
    while changes < 3000 {
        let result = if full > 0 && rng.u8(..4) == 0 && !routes.is_empty() {
            table.remove(routes.swap_remove(rng.usize(..routes.len()))).map(drop)
        } else {
            let new = prefix(&mut rng);
            let is_new = table.get(new).is_none();
            let result = table.insert(new, NextHop::new(rng.u32(..200)).unwrap());
            if result.is_ok() && is_new {
                routes.push(new);
            }
            result.map(drop)
        };
        if let Err(error) = result {
            assert_eq!(error, Error::TableFull { limit });
            full += 1;
            at_full = if full == 1 { table.writer.rebuilds } else { at_full };
        }
        changes += u32::from(full > 0);
    }
    let rebuilds = table.writer.rebuilds - at_full;
    assert!(full > 10 && rebuilds <= 3, "limit {limit}: {full} of {changes} had no room, {rebuilds} rebuilds");
}

#[test]
fn changes_at_the_limit_do_not_build_everything_anew() {
    let least = 1 << 20;
    for limit in [least, least + 1, least + 7, least + 8, least + 4095, least + 4096] {
        few_rebuilds::<V6>(limit, |rng| {
            Ipv6Prefix::truncate((0x20 << 120 | rng.u128(..) >> 8).into(), rng.u8(20..=64)).unwrap()
        });
        few_rebuilds::<V4>(limit, |rng| {
            crate::Ipv4Prefix::truncate((0x0a00_0000 | rng.u32(..1 << 26)).into(), rng.u8(20..=32)).unwrap()
        });
    }
}

/// Leaves grow wider with the 255th next hop: a table that has no room for that says so at once from then on.
#[test]
fn wider_leaves_without_room_are_not_tried_with_each_route() {
    let mut table = Ipv6Table::with_config(Config { memory_limit: 1 << 20, ..Config::default() }).unwrap();
    let mut rng = fastrand::Rng::with_seed(12);
    let mut random = |hops| {
        let prefix = Ipv6Prefix::truncate((0x20 << 120 | rng.u128(..) >> 8).into(), 48).unwrap();
        (prefix, NextHop::new(hops).unwrap())
    };
    let mut count = 0;
    while {
        let (prefix, hop) = random(count % 254);
        count += 1;
        table.insert(prefix, hop).is_ok()
    } {}
    let before = table.writer.rebuilds;
    let failed = (0..200).filter(|nth| {
        let (prefix, hop) = random(1000 + nth);
        table.insert(prefix, hop).is_err()
    });
    assert_eq!((failed.count(), table.writer.rebuilds - before), (200, 1));
}

/// Of the tables that were left, only those are kept that readers hold, and readers that come late find the newest.
#[test]
fn generations_nobody_reads_are_freed() {
    let mut table = Ipv6Table::new().unwrap();
    let hop = |id| NextHop::new(id).unwrap();
    let (mut idle, mut late) = (table.reader(), None);
    let mut generations = Vec::new();
    let addr = |id: u32| (0x2001_u128 << 112 | u128::from(id) << 84).into();
    for id in 0..1_200_000 {
        let prefix = Ipv6Prefix::truncate(addr(id), 48).unwrap();
        table.insert(prefix, hop(id % 1000)).unwrap();
        let newest = std::sync::Arc::downgrade(&table.writer.tables);
        if generations.last().is_none_or(|last: &std::sync::Weak<_>| !last.ptr_eq(&newest)) {
            generations.push(newest);
            late = (generations.len() == 2).then(|| table.reader()).or(late);
        }
    }
    let alive = |generations: &[std::sync::Weak<_>]| -> Vec<bool> {
        generations.iter().map(|generation| generation.strong_count() > 0).collect()
    };
    let count = generations.len();
    assert!(count >= 4, "{count}");
    let kept = [[true, true].as_slice(), &vec_of(false, count - 3), &[true]].concat();
    assert_eq!(alive(&generations), kept);
    assert_eq!(idle.lookup(addr(1_199_999)), Some(hop(999)));
    drop(table);
    assert_eq!(late.unwrap().lookup(addr(1_199_999)), Some(hop(999)), "of the last tables");
    drop(idle);
    assert_eq!(alive(&generations), vec_of(false, count));
}

fn vec_of(alive: bool, count: usize) -> Vec<bool> {
    core::iter::repeat_n(alive, count).collect()
}
