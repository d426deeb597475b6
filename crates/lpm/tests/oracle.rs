//! Every operation, in every order, against a naive table.

mod common;

use common::{Naive, Net, each_kernel, hop, kernel_count, mask};
use lpm::{Config, Error, Ipv4Prefix, Ipv4Table, Ipv6Prefix, Ipv6Table};
use proptest::prelude::*;

#[derive(Debug, Clone, Copy)]
enum Op {
    Insert(u128, u8, u32),
    Remove(u128, u8),
    Replace(prop::sample::Index, u32),
    RemoveOne(prop::sample::Index),
}

/// Prefixes that collide, nest and touch: few address bits vary, at the places where levels meet.
fn prefix(bits: u8) -> impl Strategy<Value = (u128, u8)> {
    let seeds = prop_oneof![Just(0_u128), Just(u128::MAX), Just(0x0a00_0000_u128 << 96), Just(0x2001_0db8_u128 << 96)];
    let flips = prop::collection::vec(0..bits, 0..4);
    let len = prop_oneof![
        3 => 0..=bits,
        1 => Just(0),
        1 => Just(bits),
        2 => prop::sample::select(vec![15, 16, 17, 18, 19, 23, 24, 25, 29, 30, 31, 32]),
    ];
    (seeds, flips, len).prop_map(move |(mut addr, flips, len)| {
        for flip in flips {
            addr ^= 1 << (127 - flip);
        }
        (addr & mask(len), len)
    })
}

fn ops(bits: u8, hops: u32) -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        4 => (prefix(bits), 0..hops).prop_map(|((addr, len), hop)| Op::Insert(addr, len, hop)),
        1 => prefix(bits).prop_map(|(addr, len)| Op::Remove(addr, len)),
        1 => (any::<prop::sample::Index>(), 0..hops).prop_map(|(index, hop)| Op::Replace(index, hop)),
        2 => any::<prop::sample::Index>().prop_map(Op::RemoveOne),
    ];
    prop::collection::vec(op, 1..if cfg!(miri) { 12 } else { 80 })
}

macro_rules! model {
    ($name:ident, $table:ty, $prefix:ty, $config:expr, $hops:expr) => {
        #[test]
        fn $name() {
            let cases = if cfg!(miri) { 3 } else { 60 / u32::try_from(kernel_count()).unwrap_or(1) };
            let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
            each_kernel(|| proptest!(config.clone(), |(ops in ops(<$prefix>::BITS, $hops))| {
                let mut naive = Naive::default();
                let mut table = <$table>::with_config($config).unwrap();
                let mut reader = table.reader();
                for op in ops {
                    let pick = |index: prop::sample::Index| naive.routes.keys().nth(index.index(naive.routes.len())).copied();
                    let (key, new) = match op {
                        Op::Insert(addr, len, hop) => (Some((addr, len)), Some(hop)),
                        Op::Remove(addr, len) => (Some((addr, len)), None),
                        _ if naive.routes.is_empty() => (None, None),
                        Op::Replace(index, hop) => (pick(index), Some(hop)),
                        Op::RemoveOne(index) => (pick(index), None),
                    };
                    let Some((addr, len)) = key else { continue };
                    let prefix = <$prefix>::prefix(addr, len);
                    match new {
                        Some(new) => {
                            let old = naive.routes.insert((addr, len), new);
                            prop_assert_eq!(table.insert(prefix, hop(new)).unwrap(), old.map(hop));
                        }
                        None => match naive.routes.remove(&(addr, len)) {
                            Some(old) => prop_assert_eq!(table.remove(prefix).unwrap(), hop(old)),
                            None => prop_assert_eq!(
                                table.remove(prefix),
                                Err(Error::NoSuchRoute { prefix: prefix.to_string() })
                            ),
                        },
                    }
                    // The edges of every route, and just outside them.
                    let mut addrs = vec![0, u128::MAX];
                    for (addr, len) in naive.routes.keys().chain([&(addr, len)]) {
                        let last = addr | !mask(*len);
                        let one = 1 << (128 - <$prefix>::BITS);
                        addrs.extend([*addr, last, addr.wrapping_sub(one), last.wrapping_add(one), addr | (last & 0x5555 << 64)]);
                    }
                    let want: Vec<_> =
                        addrs.iter().map(|addr| naive.lookup(addr & mask(<$prefix>::BITS)).map(hop)).collect();
                    let addrs: Vec<_> = addrs.into_iter().map(<$prefix>::addr).collect();
                    let mut got = vec![None; addrs.len()];
                    prop_assert_eq!(reader.lookup_batch(&addrs, &mut got), addrs.len());
                    prop_assert_eq!(&got, &want);
                    for (addr, want) in addrs.into_iter().zip(want) {
                        prop_assert_eq!(reader.lookup(addr), want);
                        prop_assert_eq!(table.lookup(addr), want);
                    }
                }
                prop_assert_eq!(table.len(), naive.routes.len());
                let routes: Vec<_> = table.iter().map(|(prefix, hop)| (prefix.bits(), hop.get())).collect();
                let want: Vec<_> = naive.routes.iter().map(|(key, hop)| (*key, *hop)).collect();
                prop_assert_eq!(&routes, &want);
                for (addr, len) in naive.routes.keys().copied().chain([(0, 0), (0x0a00_0000 << 96, 14)]) {
                    let prefix = <$prefix>::prefix(addr, len);
                    prop_assert_eq!(table.get(prefix), naive.routes.get(&(addr, len)).copied().map(hop));
                    let covered: Vec<_> = table.covered(prefix).map(|(prefix, _)| prefix.bits()).collect();
                    let covering: Vec<_> = table.covering(prefix).map(|(prefix, _)| prefix.bits()).collect();
                    let keys = naive.routes.keys().copied();
                    prop_assert_eq!(covered, keys.clone().filter(|key| key.1 >= len && key.0 & mask(len) == addr).collect::<Vec<_>>());
                    prop_assert_eq!(covering, keys.filter(|key| key.1 <= len && addr & mask(key.1) == key.0).collect::<Vec<_>>());
                }
                // A table built at once answers alike.
                let bulk = <$table>::from_routes($config, table.iter()).unwrap();
                prop_assert!(bulk.iter().eq(table.iter()));
                for (addr, len) in naive.routes.keys() {
                    for addr in [*addr, addr | !mask(*len)] {
                        prop_assert_eq!(bulk.lookup(<$prefix>::addr(addr)), table.lookup(<$prefix>::addr(addr)));
                    }
                }
            }));
        }
    };
}

model!(ipv4, Ipv4Table, Ipv4Prefix, Config::default(), 5);
model!(ipv4_accelerated, Ipv4Table, Ipv4Prefix, Config { accelerator: true, ..Config::default() }, 5);
model!(ipv6, Ipv6Table, Ipv6Prefix, Config::default(), 5);
