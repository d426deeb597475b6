//! All route sets over a small address width, at every place where levels of the tables meet.

#![allow(clippy::unwrap_used, reason = "test helpers are tests")]

mod common;

use common::{Naive, Net, each_kernel_or_best, hop, mask};
use lpm::{Config, Family, Ipv4Prefix, Ipv6Prefix, Table, V4, V6};

/// Goes through all subsets of the prefixes of `pos` to `pos + width` bits below `base`, one insertion or removal at
/// a time (a Gray code), and looks every address of the window and its neighbours up in each.
fn every_subset<F: Family<Prefix = P, Addr = P::Addr, Bits = P::Bits>, P: Net>(
    config: Config,
    base: u128,
    pos: u8,
    width: u8,
    hops: u32,
) {
    let slot = |index: u128, len: u8| base | index.checked_shl(128 - u32::from(len)).unwrap_or(0);
    // Long prefixes change most often.
    let prefixes: Vec<(u128, u8)> =
        (pos..=pos + width).rev().flat_map(|len| (0..1 << (len - pos)).map(move |i| (slot(i, len), len))).collect();
    let ends = prefixes.iter().flat_map(|(addr, len)| [*addr, addr | !mask(*len)]);
    let one = 1 << (128 - P::BITS);
    let outside = [base.wrapping_sub(one), (base | !mask(pos)).wrapping_add(one)];
    let addrs: Vec<u128> = ends.chain(outside).map(|addr| addr & mask(P::BITS)).collect();
    let asked: Vec<_> = addrs.iter().map(|addr| P::addr(*addr)).collect();
    let mut table = Table::<F>::with_config(config).unwrap();
    let mut reader = table.reader();
    let mut naive = Naive::default();
    let mut answers = vec![None; addrs.len()];
    for step in 1_u32..1 << prefixes.len() {
        let index = step.trailing_zeros() as usize;
        let (addr, len) = prefixes[index];
        let prefix = P::prefix(addr, len);
        let id = u32::try_from(index).unwrap() % hops;
        if naive.routes.remove(&(addr, len)).is_some() {
            assert_eq!(table.remove(prefix).unwrap(), hop(id));
        } else {
            naive.routes.insert((addr, len), id);
            assert_eq!(table.insert(prefix, hop(id)).unwrap(), None);
        }
        reader.lookup_batch(&asked, &mut answers);
        for (addr, answer) in addrs.iter().zip(&answers) {
            assert_eq!(*answer, naive.lookup(*addr).map(hop), "{addr:#x} after step {step} at /{pos}");
        }
    }
    assert_eq!(table.len(), naive.routes.len());
}

#[test]
fn ipv4() {
    each_kernel_or_best(ipv4_subsets);
}

fn ipv4_subsets(best: bool) {
    let accelerated = Config { accelerator: true, ..Config::default() };
    let width = if cfg!(miri) { 1 } else { 2 + u8::from(best) };
    every_subset::<V4, Ipv4Prefix>(Config::default(), 0, 0, width.min(2), 2);
    for (pos, hops) in [(16, 100), (22, 2), (22, 100), (28, 2), (29, 100)] {
        every_subset::<V4, Ipv4Prefix>(Config::default(), 0x0a0b_0000 << 96, pos, width, hops);
        if pos == 22 {
            every_subset::<V4, Ipv4Prefix>(accelerated, 0x0a0b_0000 << 96, pos, width, hops);
        }
    }
    every_subset::<V4, Ipv4Prefix>(Config::default(), 0xffff_fff8 << 96, 29, width, 3);
}

#[test]
fn ipv6() {
    each_kernel_or_best(ipv6_subsets);
}

fn ipv6_subsets(best: bool) {
    let width = if cfg!(miri) { 1 } else { 2 + u8::from(best) };
    let base = 0x2001_0db8_u128 << 96;
    every_subset::<V6, Ipv6Prefix>(Config::default(), 0, 0, width.min(2), 2);
    for (pos, hops) in [(14, 100), (22, 2), (28, 100), (46, 2), (58, 100), (62, 100), (122, 2), (125, 100)] {
        every_subset::<V6, Ipv6Prefix>(Config::default(), base & mask(pos), pos, width, hops);
    }
    every_subset::<V6, Ipv6Prefix>(Config::default(), u128::MAX << 3, 125, width, 3);
}
