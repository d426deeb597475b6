//! Internet tables against the answers of an independent crate, on ten million addresses: full ones, or the samples that the
//! repository carries. Not under Miri: too slow.
#![cfg(not(miri))]
#![allow(clippy::unwrap_used, reason = "test helpers are tests")]

mod common;

use common::{Net, each_kernel, hop, kernel_count, mask, real_table};
use lpm::{Config, Family, Ipv4Prefix, Ipv6Prefix, NextHop, Table, V4, V6};
use prefix_trie::PrefixMap;

const ADDRESSES: usize = 10_000_000;

/// Half of the addresses lie inside routes, half are uniform over where routes are. Then a tenth of the routes
/// changes, and a million addresses more are compared.
fn agree<F, P, B>(name: &str, config: Config, hops: u32, addresses: usize)
where
    F: Family<Prefix = P, Addr = P::Addr, Bits = P::Bits>,
    P: Net,
    B: TryFrom<u128> + Copy + Into<F::Bits> + std::fmt::Debug,
    (B, u8): prefix_trie::Prefix,
{
    let routes = real_table::<P>(name);
    let share = addresses / kernel_count();
    each_kernel(|| agree_on::<F, P, B>(&routes, config, hops, share));
    println!("{name}: {} routes, {addresses} addresses, {hops} next hops", routes.len());
}

fn agree_on<F, P, B>(routes: &[(P, u32)], config: Config, hops: u32, addresses: usize)
where
    F: Family<Prefix = P, Addr = P::Addr, Bits = P::Bits>,
    P: Net,
    B: TryFrom<u128> + Copy + Into<F::Bits> + std::fmt::Debug,
    (B, u8): prefix_trie::Prefix,
{
    let narrow = |bits: u128| B::try_from(bits >> (128 - P::BITS)).ok().unwrap();
    let id = |origin: u32| origin.wrapping_mul(0x9e37_79b1) % hops;
    let mut table =
        Table::<F>::from_routes(config, routes.iter().map(|(prefix, origin)| (*prefix, hop(id(*origin))))).unwrap();
    let mut map = PrefixMap::<(B, u8), u32>::new();
    for (prefix, origin) in routes {
        let (bits, len) = prefix.bits();
        map.insert((narrow(bits), len), id(*origin));
    }
    assert_eq!(table.len(), map.len());
    let mut rng = fastrand::Rng::with_seed(8);
    let compare = |table: &Table<F>, map: &PrefixMap<(B, u8), u32>, count: usize, rng: &mut fastrand::Rng| {
        let mut reader = table.reader();
        let mut answers = [None; 250];
        for _ in 0..count / answers.len() {
            let addrs: [B; 250] = std::array::from_fn(|_| {
                let (bits, len) = routes[rng.usize(..routes.len())].0.bits();
                let keep = if rng.bool() { len } else { rng.u8(..=len) };
                narrow(bits & mask(keep) | rng.u128(..) & !mask(keep))
            });
            reader.lookup_batch(&addrs, &mut answers);
            for (addr, answer) in addrs.iter().zip(&answers) {
                let want = map.get_lpm(&(*addr, P::BITS)).map(|(_, id)| *id);
                assert_eq!(answer.map(NextHop::get), want, "{addr:?}");
            }
        }
    };
    compare(&table, &map, addresses, &mut rng);
    for _ in 0..routes.len() / 10 {
        let prefix = routes[rng.usize(..routes.len())].0;
        let (bits, len) = prefix.bits();
        let key = (narrow(bits), len);
        if rng.bool() {
            assert_eq!(table.remove(prefix).ok().map(NextHop::get), map.remove(&key));
        } else {
            let new = rng.u32(..hops);
            assert_eq!(table.insert(prefix, hop(new)).unwrap().map(NextHop::get), map.insert(key, new));
        }
    }
    compare(&table, &map, addresses / 10, &mut rng);
    assert_eq!(table.iter().count(), map.len());
}

#[test]
fn ipv4() {
    agree::<V4, Ipv4Prefix, u32>("v4.txt.xz", Config::default(), 64, ADDRESSES);
}

#[test]
fn ipv4_accelerated() {
    agree::<V4, Ipv4Prefix, u32>("v4.txt.xz", Config { accelerator: true, ..Config::default() }, 200, ADDRESSES / 4);
}

/// More next hops than bytes, and than 16 bits, can number.
#[test]
fn ipv4_with_many_next_hops() {
    agree::<V4, Ipv4Prefix, u32>("v4.txt.xz", Config { accelerator: true, ..Config::default() }, 5000, ADDRESSES / 10);
    agree::<V4, Ipv4Prefix, u32>("v4.txt.xz", Config::default(), 1 << 24, ADDRESSES / 10);
}

#[test]
fn ipv6() {
    agree::<V6, Ipv6Prefix, u128>("v6.txt.xz", Config::default(), 64, ADDRESSES);
    agree::<V6, Ipv6Prefix, u128>("v6.txt.xz", Config::default(), 1 << 24, ADDRESSES / 10);
}
