//! Routes that come and go, again and again, take no memory for it.

#![allow(clippy::unwrap_used, reason = "test helpers are tests")]

mod common;

use common::{Net, hop, mask};
use lpm::{Config, Family, Ipv4Prefix, Ipv6Prefix, Table, V4, V6};

const FLAPS: usize = if cfg!(miri) { 30 } else { 10_000 };

/// Prefixes near each other, so that lists of many lengths lie beside each other.
fn routes<P: Net>(rng: &mut fastrand::Rng) -> Vec<(u128, u8)> {
    let count = if cfg!(miri) { 20 } else { 3000 };
    let mut routes: Vec<_> = (0..count)
        .map(|_| {
            let len = if P::BITS == 32 { rng.u8(18..=32) } else { rng.u8(20..=64) };
            ((0x2001_0db8 << 96 ^ rng.u128(..) >> rng.u32(10..40)) & mask(len), len)
        })
        .collect();
    routes.sort_unstable();
    routes.dedup();
    routes
}

fn flap<F: Family<Prefix = P, Addr = P::Addr, Bits = P::Bits>, P: Net>(table: &mut Table<F>, (addr, len): (u128, u8)) {
    let prefix = P::prefix(addr, len);
    let old = table.remove(prefix).unwrap();
    assert_eq!(table.insert(prefix, old).unwrap(), None);
}

fn flaps<F: Family<Prefix = P, Addr = P::Addr, Bits = P::Bits>, P: Net>(seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let routes = routes::<P>(&mut rng);
    let with_hops = || routes.iter().map(|(addr, len)| (P::prefix(*addr, *len), hop(u32::from(*len))));
    let mut alone = Table::<F>::from_routes(Config::default(), with_hops().take(1)).unwrap();
    let mut table = Table::<F>::from_routes(Config::default(), with_hops()).unwrap();
    flap::<F, P>(&mut alone, routes[0]);
    // The first time, room may be found that is less.
    routes.iter().for_each(|route| flap::<F, P>(&mut table, *route));
    let (of_one, of_many) = (alone.memory_use().routes, table.memory_use().routes);
    for _ in 0..FLAPS {
        flap::<F, P>(&mut alone, routes[0]);
        assert_eq!(alone.memory_use().routes, of_one);
    }
    let one = routes[rng.usize(..routes.len())];
    for route in (0..FLAPS).map(|round| if round % 2 == 0 { one } else { routes[rng.usize(..routes.len())] }) {
        flap::<F, P>(&mut table, route);
        assert_eq!(table.memory_use().routes, of_many);
    }
    assert!(table.iter().map(|(prefix, _)| prefix.bits()).eq(routes.iter().copied()));
}

#[test]
fn ipv4_routes_that_flap_take_no_memory() {
    flaps::<V4, Ipv4Prefix>(1);
}

#[test]
fn ipv6_routes_that_flap_take_no_memory() {
    flaps::<V6, Ipv6Prefix>(2);
}
