//! Bad input and full tables: typed errors, table unchanged.

#![allow(clippy::unwrap_used, reason = "test helpers are tests")]

mod common;

use common::{Naive, Net, each_kernel, hop, mask};
use lpm::{Config, Error, Family, Ipv4Prefix, Ipv4Table, Ipv6Prefix, NextHop, Table, V4, V6};

#[test]
fn next_hops_have_a_range() {
    assert_eq!(NextHop::new(1 << 31), Err(Error::NextHopRange { id: 1 << 31 }));
    assert_eq!(NextHop::new(u32::MAX), Err(Error::NextHopRange { id: u32::MAX }));
    for id in [0, 254, 255, 65_535, 1 << 24, NextHop::MAX] {
        let mut table = Ipv4Table::new().unwrap();
        table.insert("10.0.0.0/8".parse().unwrap(), hop(id)).unwrap();
        assert_eq!(table.lookup("10.1.1.1".parse().unwrap()), Some(hop(id)));
    }
}

#[test]
fn removing_what_is_not_there_says_so() {
    let mut table = Ipv4Table::new().unwrap();
    table.insert("10.0.0.0/8".parse().unwrap(), hop(1)).unwrap();
    let error = table.remove("10.0.0.0/9".parse().unwrap()).unwrap_err();
    assert_eq!(error.to_string(), "cannot remove 10.0.0.0/9: no such route in the table; look it up with get() first");
    assert_eq!(table.len(), 1);
}

#[test]
fn a_limit_below_the_least_is_refused() {
    let config = Config { memory_limit: 1000, ..Config::default() };
    assert_eq!(Ipv4Table::with_config(config).unwrap_err(), Error::TableFull { limit: 1000 });
}

/// Random changes of a table that is full all the time: those that fail change nothing.
fn full<F: Family<Prefix = P, Addr = P::Addr, Bits = P::Bits>, P: Net>(
    limit: usize,
    lens: std::ops::RangeInclusive<u8>,
    seed: u64,
) {
    let config = Config { memory_limit: limit, ..Config::default() };
    let mut table = Table::<F>::with_config(config).unwrap();
    let mut reader = table.reader();
    let mut naive = Naive::default();
    let mut rng = fastrand::Rng::with_seed(seed);
    let (mut failed, mut recent) = (0, Vec::new());
    while failed < 300 {
        let len = rng.u8(lens.clone());
        let addr = (0x20 << 120 | rng.u128(..) >> 8) & mask(len);
        let remove = failed > 0 && rng.u8(..3) == 0;
        let (addr, len) = match naive.routes.keys().next() {
            Some(first) if remove => *naive.routes.range((addr, 0)..).next().map_or(first, |(key, _)| key),
            _ => (addr, len),
        };
        let prefix = P::prefix(addr, len);
        let id = rng.u32(..400);
        let result = if remove {
            table.remove(prefix).map(|old| {
                assert_eq!(naive.routes.remove(&(addr, len)), Some(old.get()));
            })
        } else {
            table.insert(prefix, hop(id)).map(|old| {
                assert_eq!(naive.routes.insert((addr, len), id), old.map(NextHop::get));
            })
        };
        if let Err(error) = result {
            assert_eq!(error, Error::TableFull { limit });
            assert_eq!(table.get(prefix).map(NextHop::get), naive.routes.get(&(addr, len)).copied());
            failed += 1;
        }
        recent.extend([addr, addr | (!mask(len) & mask(P::BITS))]);
        if recent.len() > 200 {
            for addr in recent.drain(..) {
                assert_eq!(reader.lookup(P::addr(addr)), naive.lookup(addr).map(hop));
            }
        }
    }
    let routes: Vec<_> = table.iter().map(|(prefix, hop)| (prefix.bits(), hop.get())).collect();
    assert_eq!(routes, naive.routes.iter().map(|(key, hop)| (*key, *hop)).collect::<Vec<_>>());
    for (addr, len) in naive.routes.keys() {
        for addr in [*addr, addr | (!mask(*len) & mask(P::BITS))] {
            assert_eq!(reader.lookup(P::addr(addr)), naive.lookup(addr).map(hop));
        }
    }
    // With room again, everything works again.
    for (addr, len) in naive.routes.keys().step_by(2) {
        table.remove(P::prefix(*addr, *len)).unwrap();
    }
    table.insert(P::prefix(0x20 << 120, 30), hop(1)).unwrap();
}

#[test]
#[cfg(not(miri))]
fn a_full_ipv4_table_stays_as_it_is() {
    // With 20 a table of half the routes had no room.
    each_kernel(|| {
        for seed in [7, 20, 21] {
            full::<V4, Ipv4Prefix>(1 << 20, 10..=32, seed);
        }
    });
}

#[test]
#[cfg(not(miri))]
fn a_full_ipv6_table_stays_as_it_is() {
    // The second is no whole number of words.
    each_kernel(|| {
        full::<V6, Ipv6Prefix>(1 << 20, 14..=128, 7);
        full::<V6, Ipv6Prefix>((1 << 20) + 13, 14..=128, 8);
    });
}

/// What a table at its limit held does not decide what fits later.
#[test]
#[cfg(not(miri))]
fn a_table_that_was_full_holds_other_routes() {
    let config = Config { memory_limit: 1 << 20, ..Config::default() };
    let fill = |table: &mut Ipv4Table, routes: &mut dyn Iterator<Item = Ipv4Prefix>| -> Vec<Ipv4Prefix> {
        let taken =
            routes.zip((1..=200).cycle()).map_while(|(prefix, id)| table.insert(prefix, hop(id)).ok().map(|_| prefix));
        taken.collect()
    };
    let hosts = || (0..1 << 20).map(|nth| Ipv4Prefix::truncate((0x0a00_0080 + (nth << 8)).into(), 32).unwrap());
    let fresh = fill(&mut Ipv4Table::with_config(config).unwrap(), &mut hosts()).len();
    let mut table = Ipv4Table::with_config(config).unwrap();
    let networks = fill(&mut table, &mut (0..1 << 24).map(|nth| Ipv4Prefix::truncate((nth << 8).into(), 24).unwrap()));
    for prefix in networks {
        table.remove(prefix).unwrap();
    }
    let later = fill(&mut table, &mut hosts()).len();
    assert!(later > fresh / 2, "{later} of {fresh}");
}

/// More than lookups can address is a limit like any other.
#[test]
fn the_highest_limit_is_taken() {
    let config = Config { memory_limit: usize::MAX, ..Config::default() };
    let mut table = Ipv4Table::with_config(config).unwrap();
    table.insert("10.0.0.0/8".parse().unwrap(), hop(1)).unwrap();
    assert_eq!(table.lookup("10.1.1.1".parse().unwrap()), Some(hop(1)));
    let mut table = Table::<V6>::with_config(config).unwrap();
    table.insert("2001:db8::/32".parse().unwrap(), hop(1)).unwrap();
    assert_eq!(table.lookup("2001:db8::1".parse().unwrap()), Some(hop(1)));
}

/// Tables have room for routes to multicast and reserved addresses once there is one.
#[test]
fn routes_to_multicast_come_later() {
    each_kernel(multicast_later);
}

fn multicast_later() {
    for accelerator in [false, true] {
        let mut table = Ipv4Table::with_config(Config { accelerator, ..Config::default() }).unwrap();
        let mut reader = table.reader();
        let mut naive = Naive::default();
        let addrs: Vec<u32> =
            [0xdfff_ffff, 0xe000_0000, 0xe000_1fff, 0xe000_2000, 0xef01_0203, 0xefff_ffff, 0xf000_0001]
                .into_iter()
                .chain((0..57).map(|nth| 0xc000_0000 | (nth * 0x0111_1111)))
                .collect();
        let changes = [
            ("0.0.0.0/0", Some(1)),
            ("192.0.0.0/2", Some(2)),
            ("224.0.0.0/3", Some(3)),
            ("224.0.0.0/3", None),
            // The first that tells them apart.
            ("239.1.0.0/16", Some(4)),
            ("224.0.0.0/19", Some(5)),
            ("224.0.0.0/4", Some(6)),
            ("240.0.0.1/32", Some(7)),
            ("239.1.0.0/16", None),
            ("0.0.0.0/0", None),
            ("240.0.0.1/32", None),
        ];
        for (text, id) in changes {
            let prefix: Ipv4Prefix = text.parse().unwrap();
            let key = prefix.bits();
            match id {
                Some(id) => {
                    table.insert(prefix, hop(id)).unwrap();
                    naive.routes.insert(key, id);
                }
                None => {
                    table.remove(prefix).unwrap();
                    naive.routes.remove(&key);
                }
            }
            let mut answers = vec![None; addrs.len()];
            reader.lookup_batch(&addrs, &mut answers);
            for (addr, answer) in addrs.iter().zip(answers) {
                let wide = u128::from(*addr) << 96;
                assert_eq!(answer, naive.lookup(wide).map(hop), "{addr:#x} after {text}");
                assert_eq!(reader.lookup((*addr).into()), answer);
            }
        }
    }
}

/// Where the address space ends, so does what tables keep for it.
#[test]
fn the_last_addresses_change() {
    each_kernel(last_addresses);
}

fn last_addresses() {
    let mut table = Ipv4Table::with_config(Config { accelerator: true, ..Config::default() }).unwrap();
    let mut reader = table.reader();
    for prefix in ["255.255.255.0/24", "255.255.255.255/32", "255.255.0.0/16"] {
        let prefix = prefix.parse().unwrap();
        let mut answers = [None; 40];
        table.insert(prefix, hop(3)).unwrap();
        reader.lookup_batch(&[u32::MAX; 40], &mut answers);
        assert_eq!(answers, [Some(hop(3)); 40]);
        table.remove(prefix).unwrap();
        reader.lookup_batch(&[u32::MAX; 40], &mut answers);
        assert_eq!(answers, [None; 40]);
    }
}

/// Tables without the accelerator get it when they have grown, whether by one route or all at once.
#[test]
fn an_accelerator_is_there_from_a_number_of_routes_on() {
    const BYTES: usize = 16 << 20;
    let config = Config { accelerator: true, accelerated_from: 100, ..Config::default() };
    let route = |net: u32| (Ipv4Prefix::truncate((net << 8).into(), 24).unwrap(), hop(net % 7));
    let mut table = Ipv4Table::with_config(config).unwrap();
    let mut reader = table.reader();
    let is_accelerated = |table: &Ipv4Table| table.memory_use().held >= BYTES;
    for net in 0..300 {
        let (prefix, hop) = route(net);
        table.insert(prefix, hop).unwrap();
        assert_eq!(is_accelerated(&table), net >= 99, "{net}");
        assert_eq!(reader.lookup((net << 8).into()), Some(hop));
    }
    table.replace((0..99).map(route)).unwrap();
    assert!(!is_accelerated(&table));
    table.replace((0..101).map(route)).unwrap();
    assert!(is_accelerated(&table));
    // With many next hops it is left out, and looked at again when there are twice as many routes.
    let many = |net: u32| (route(net).0, hop(net));
    let mut table = Ipv4Table::from_routes(config, (0..1000).map(many)).unwrap();
    assert!(!is_accelerated(&table));
    for net in 1000..40_000 {
        table.insert(many(net).0, hop(1)).unwrap();
    }
    assert!(is_accelerated(&table));
    // 300 next hops that came first, and are hardly used, do not keep it away.
    let config = Config { accelerated_from: 10_000, ..config };
    let late = |net: u32| (route(net).0, hop(if net < 300 { net } else { 1000 }));
    let mut table = Ipv4Table::with_config(config).unwrap();
    let mut reader = table.reader();
    for net in 0..12_000 {
        table.insert(late(net).0, late(net).1).unwrap();
        assert_eq!(is_accelerated(&table), net >= 9999, "{net}");
    }
    assert!((0..12_000).all(|net| reader.lookup((net << 8).into()) == Some(late(net).1)));
    // Tables that grow in between, for a next hop that came late, do not put off the next look, at twice as many.
    let longer = |net: u32| Ipv4Prefix::truncate((net << 8 | 16).into(), 28).unwrap();
    let mut table = Ipv4Table::with_config(config).unwrap();
    for net in 0..10_000 {
        table.insert(longer(net), hop(net % 1000)).unwrap();
    }
    let before = table.memory_use().held;
    for net in 0..19_999 {
        table.insert(longer(net), hop(5000)).unwrap();
    }
    assert!(!is_accelerated(&table) && table.memory_use().held > before, "{:?}", table.memory_use());
    table.insert(longer(19_999), hop(5000)).unwrap();
    assert!(is_accelerated(&table));
    // A table that shrank, and was built anew for as many next hops, gets it again.
    let mut table = Ipv4Table::from_routes(config, (0..12_000).map(route)).unwrap();
    for net in 100..12_000 {
        table.remove(route(net).0).unwrap();
    }
    assert!(is_accelerated(&table));
    for net in 0..300 {
        table.insert(late(net).0, late(net).1).unwrap();
    }
    assert!(!is_accelerated(&table));
    for net in 300..10_000 {
        table.insert(late(net).0, late(net).1).unwrap();
    }
    assert!(is_accelerated(&table));
}
