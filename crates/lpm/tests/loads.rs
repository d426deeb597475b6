//! Tables built at once, of routes in every order, against a naive table and one that got them one by one.

#![allow(clippy::unwrap_used, reason = "test helpers are tests")]

mod common;

use common::{Naive, Net, hop, mask};
use lpm::{Config, Family, Ipv4Prefix, Ipv6Prefix, Table, V4, V6};

/// Routes in the order of a load: address, length, next hop.
type Routes = Vec<(u128, u8, u32)>;

/// Prefixes of every length at and around a few addresses that part at every bit, and many of the usual lengths.
fn routes<P: Net>(rng: &mut fastrand::Rng) -> Routes {
    let some = if cfg!(miri) { 2 } else { 40 };
    let mut keys = Vec::new();
    for _ in 0..some {
        let addr = 0x2001_0db8 << 96 | rng.u128(..) >> rng.u32(4..40);
        keys.extend((0..=P::BITS).map(|len| (addr, len)));
        keys.extend((1..=P::BITS).map(|len| (addr ^ 1 << (128 - u32::from(len)), len)));
    }
    for _ in 0..some * 100 {
        let near = rng.choice(&keys).unwrap().0;
        let len = if P::BITS == 32 { rng.u8(16..=24) } else { rng.u8(28..=48) };
        keys.push((near ^ rng.u128(..) >> rng.u32(16..48), len));
    }
    let mut keys: Vec<_> = keys.into_iter().map(|(addr, len)| (addr & mask(len), len)).collect();
    keys.sort_unstable();
    keys.dedup();
    keys.into_iter().map(|(addr, len)| (addr, len, rng.u32(..300))).collect()
}

/// One of each of two families of prefixes in turn: those at either end of the table.
fn interleaved(routes: &Routes) -> Routes {
    let (low, high) = routes.split_at(routes.len() / 2);
    low.iter().zip(high).flat_map(|(low, high)| [*low, *high]).collect()
}

fn load<F: Family<Prefix = P, Addr = P::Addr, Bits = P::Bits>, P: Net>(name: &str, routes: &Routes, config: Config) {
    let with_hops = || routes.iter().map(|(addr, len, id)| (P::prefix(*addr, *len), hop(*id)));
    let mut naive = Naive::default();
    let mut slow = Table::<F>::with_config(config).unwrap();
    for (addr, len, id) in routes {
        let before = naive.routes.insert((*addr, *len), *id);
        assert_eq!(slow.insert(P::prefix(*addr, *len), hop(*id)).unwrap(), before.map(hop));
    }
    let mut table = Table::<F>::from_routes(config, with_hops()).unwrap();
    let mut replaced = Table::<F>::from_routes(config, with_hops().step_by(3)).unwrap();
    replaced.replace(with_hops()).unwrap();
    let addrs: Vec<u128> = naive.routes.keys().flat_map(|(addr, len)| [*addr, addr | !mask(*len)]).collect();
    let agree = |table: &Table<F>, naive: &Naive| {
        let all: Vec<_> = table.iter().map(|(prefix, hop)| (prefix.bits(), hop.get())).collect();
        assert!(all.iter().copied().eq(naive.routes.iter().map(|(key, id)| (*key, *id))), "{name}");
        assert_eq!(table.len(), naive.routes.len(), "{name}");
        for addr in addrs.iter().map(|addr| addr & mask(P::BITS)) {
            assert_eq!(table.lookup(P::addr(addr)), naive.lookup(addr).map(hop), "{name}: {addr:#x}");
        }
    };
    agree(&slow, &naive);
    agree(&table, &naive);
    agree(&replaced, &naive);
    // What a load made can be changed like any other.
    for (addr, len, id) in routes.iter().step_by(2) {
        let key = (*addr, *len);
        match naive.routes.remove(&key) {
            Some(old) => assert_eq!(table.remove(P::prefix(*addr, *len)).unwrap(), hop(old), "{name}"),
            None => {
                naive.routes.insert(key, id + 1);
                assert_eq!(table.insert(P::prefix(*addr, *len), hop(id + 1)).unwrap(), None, "{name}");
            }
        }
    }
    agree(&table, &naive);
}

fn every_order<F: Family<Prefix = P, Addr = P::Addr, Bits = P::Bits>, P: Net>(config: Config, seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let sorted = routes::<P>(&mut rng);
    load::<F, P>("sorted", &sorted, config);
    let mut routes = sorted.clone();
    routes.reverse();
    load::<F, P>("reversed", &routes, config);
    load::<F, P>("interleaved", &interleaved(&sorted), config);
    load::<F, P>("interleaved, reversed", &interleaved(&routes), config);
    routes.sort_by_key(|(addr, len, _)| (*len, *addr));
    load::<F, P>("by length", &routes, config);
    rng.shuffle(&mut routes);
    load::<F, P>("unsorted", &routes, config);
    // The later of two stands.
    let again: Routes = routes.iter().step_by(3).map(|(addr, len, id)| (*addr, *len, id + 7)).collect();
    routes.extend(again);
    load::<F, P>("some twice", &routes, config);
    rng.shuffle(&mut routes);
    load::<F, P>("some twice, anywhere", &routes, config);
    routes.sort_by_key(|(addr, len, _)| (*addr, *len));
    load::<F, P>("one twice after the other", &routes, config);
}

#[test]
fn ipv4_loads_in_every_order() {
    every_order::<V4, Ipv4Prefix>(Config::default(), 1);
    every_order::<V4, Ipv4Prefix>(Config { accelerator: true, ..Config::default() }, 2);
}

#[test]
fn ipv6_loads_in_every_order() {
    every_order::<V6, Ipv6Prefix>(Config::default(), 3);
}
