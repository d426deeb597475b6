//! Route tables: readers of writers that are gone, forgotten, moved between threads. Runs under Miri too, but for IPv4 tables,
//! which take it minutes to make.

#![forbid(unsafe_code)]

use lpm::{Config, Ipv6Table, NextHop};

fn hop(number: u32) -> NextHop {
    NextHop::new(number).expect("not zero")
}

#[test]
fn readers_outlive_their_writers() {
    let mut table = Ipv6Table::new().expect("a table");
    table.insert("2001:db8::/32".parse().expect("a prefix"), hop(1)).expect("room");
    // Fewer under Miri, which takes seconds for each.
    let count = if cfg!(miri) { 3 } else { 8 };
    let mut readers: Vec<_> = (0..count).map(|_| table.reader()).collect();
    let forgotten = table.reader();
    std::mem::forget(forgotten);
    drop(table);
    readers.swap(0, count - 1);
    let (first, rest) = readers.split_first_mut().expect("some");
    std::thread::scope(|scope| {
        for reader in rest {
            scope.spawn(|| assert_eq!(reader.lookup("2001:db8::1".parse().expect("an address")), Some(hop(1))));
        }
    });
    assert_eq!(first.lookup("::1".parse().expect("an address")), None);
    let mut out = [Some(hop(9)); 3];
    let addresses: [std::net::Ipv6Addr; 2] = ["2001:db8::1".parse().expect("one"), "::1".parse().expect("one")];
    // Outputs of another length than inputs.
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| first.lookup_batch(&addresses, &mut out)));
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| first.lookup_batch(&addresses, &mut out[..1])));
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| first.lookup_batch(&addresses, &mut [])));
}

#[test]
#[cfg(not(miri))]
fn a_writer_changes_everything_while_readers_come_and_go() {
    use lpm::Ipv4Table;
    use std::net::Ipv4Addr;
    use std::sync::atomic::{AtomicBool, Ordering};
    for accelerator in [false, true] {
        let mut table = Ipv4Table::with_config(Config { accelerator, memory_limit: 1 << 20, ..Config::default() }).expect("a table");
        let stop = AtomicBool::new(false);
        let mut readers: Vec<_> = (0..2).map(|_| table.reader()).collect();
        std::thread::scope(|scope| {
            for reader in &mut readers {
                scope.spawn(|| {
                    let addresses: Vec<_> = (0..=255).map(|last| Ipv4Addr::new(10, 0, 0, last)).collect();
                    let mut out = vec![None; 256];
                    while !stop.load(Ordering::Relaxed) {
                        reader.lookup_batch(&addresses, &mut out);
                        for found in &out {
                            // All next hops are even: a half-written one would show.
                            assert!(found.is_none_or(|found| found.get() % 2 == 0));
                        }
                    }
                });
            }
            for round in 0..3000_u32 {
                let prefix = format!("10.0.0.{}/{}", round % 256 & !3, 30);
                let _ = table.insert(prefix.parse().expect("a prefix"), hop(2 + 2 * (round % 40_000)));
                if round % 3 == 0 {
                    let _ = table.remove(prefix.parse().expect("a prefix"));
                }
                if round % 100 == 0 {
                    std::mem::forget(table.reader());
                    drop(table.reader());
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        drop(table);
        assert!(readers[0].lookup(Ipv4Addr::new(9, 0, 0, 1)).is_none());
    }
}

#[test]
fn limits_of_any_size_are_a_table_or_an_error() {
    let limits: &[usize] = if cfg!(miri) { &[7, usize::MAX] } else { &[0, 1, 7, 1000, 4097, usize::MAX] };
    for &memory_limit in limits {
        let Ok(mut table) = Ipv6Table::with_config(Config { accelerator: false, memory_limit, ..Config::default() }) else { continue };
        let mut reader = table.reader();
        for number in 1..if cfg!(miri) { 20 } else { 2000_u32 } {
            let _ = table.insert(format!("2001:db8:{number:x}::/48").parse().expect("a prefix"), hop(number));
        }
        for (prefix, next) in table.iter() {
            assert_eq!(reader.lookup(prefix.address()), Some(next), "limit {memory_limit}");
        }
    }
}
