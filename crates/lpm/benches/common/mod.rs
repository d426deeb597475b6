//! Tables and traces for the benches.
#![allow(dead_code, reason = "each bench uses its part")]
#![allow(clippy::cast_possible_truncation, reason = "addresses are cut to their family")]

pub(crate) mod rival;

use std::io::Read;
use std::path::Path;

use lpm::{Family, NextHop, Table, V4, V6};

/// Addresses of one trace; a whole trace is looked up in a round.
pub(crate) const TRACE: usize = 1 << 18;
/// Destinations of the Zipf trace.
const ZIPF: usize = 120_000;
/// Destinations of the hot trace.
const HOT: usize = 4096;

/// A route as the benches handle it: leading bits of 128, length.
pub(crate) type Route = (u128, u8);

/// What differs between the families.
pub(crate) trait Bench: Family {
    const BITS: u8;
    const FILE: &'static str;
    fn route(prefix: Self::Prefix) -> Route;
    fn prefix(route: Route) -> Self::Prefix;
    fn bits(bits: u128) -> Self::Bits;
    /// The bits of an address, left-aligned.
    fn wide(bits: Self::Bits) -> u128;
    /// A prefix as real tables have them, for machines without one.
    fn invent(rng: &mut fastrand::Rng) -> Route;
}

impl Bench for V4 {
    const BITS: u8 = 32;
    const FILE: &'static str = "v4.txt.xz";
    fn route(prefix: lpm::Ipv4Prefix) -> Route {
        (u128::from(u32::from(prefix.address())) << 96, prefix.len())
    }
    fn prefix((bits, len): Route) -> lpm::Ipv4Prefix {
        lpm::Ipv4Prefix::truncate(Self::bits(bits).into(), len).expect("a valid length")
    }
    fn bits(bits: u128) -> u32 {
        (bits >> 96) as u32
    }
    fn wide(bits: u32) -> u128 {
        u128::from(bits) << 96
    }
    fn invent(rng: &mut fastrand::Rng) -> Route {
        let len = rng.choice([24, 24, 24, 24, 24, 24, 22, 23, 21, 20, 19, 16]).expect("not empty");
        (u128::from(rng.u32(0x0100_0000..0xe000_0000)) << 96 & mask(len), len)
    }
}

impl Bench for V6 {
    const BITS: u8 = 128;
    const FILE: &'static str = "v6.txt.xz";
    fn route(prefix: lpm::Ipv6Prefix) -> Route {
        (u128::from(prefix.address()), prefix.len())
    }
    fn prefix((bits, len): Route) -> lpm::Ipv6Prefix {
        lpm::Ipv6Prefix::truncate(bits.into(), len).expect("a valid length")
    }
    fn bits(bits: u128) -> u128 {
        bits
    }
    fn wide(bits: u128) -> u128 {
        bits
    }
    fn invent(rng: &mut fastrand::Rng) -> Route {
        let len = rng.choice([48, 48, 48, 48, 48, 32, 32, 44, 40, 36]).expect("not empty");
        let block = 0x2001_0000 + u128::from(rng.u32(0..0x0900_0000) / 7 * 7);
        ((block << 96 | u128::from(rng.u64(..)) << 16) & mask(len), len)
    }
}

pub(crate) fn mask(len: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0)
}

/// The full table of a family, or an invented one of that size.
pub(crate) fn full_table<F: Bench>() -> Vec<Route> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/bgp").join(F::FILE);
    let mut text = String::new();
    if let Ok(file) = std::fs::File::open(path) {
        let mut reader = lzma_rust2::XzReader::new(std::io::BufReader::new(file), true);
        reader.read_to_string(&mut text).expect("the table is text");
        return text
            .lines()
            .filter_map(|line| line.split_once(' ')?.0.parse::<F::Prefix>().ok())
            .map(F::route)
            .collect();
    }
    println!("no full table here: routes are invented");
    let count = if F::BITS == 32 { 900_000 } else { 160_000 };
    let mut rng = fastrand::Rng::with_seed(1);
    let mut routes: Vec<_> = (0..count).map(|_| F::invent(&mut rng)).collect();
    routes.sort_unstable();
    routes.dedup();
    routes
}

/// Next hops drawn from `hops` for every route.
pub(crate) fn with_hops<F: Bench>(routes: &[Route], hops: u32) -> Vec<(F::Prefix, NextHop)> {
    let mut rng = fastrand::Rng::with_seed(2);
    routes.iter().map(|route| (F::prefix(*route), NextHop::new(rng.u32(..hops)).expect("small"))).collect()
}

pub(crate) fn table<F: Bench>(routes: &[Route], hops: u32, accelerator: bool) -> Table<F> {
    let config = lpm::Config { accelerator, ..lpm::Config::default() };
    Table::from_routes(config, with_hops::<F>(routes, hops)).expect("memory for the table")
}

/// The traces: uniform over all addresses (IPv6: over 2000::/3), inside the table, Zipf (s = 1), and hot.
pub(crate) fn traces<F: Bench>(routes: &[Route]) -> [(&'static str, Vec<F::Bits>); 4] {
    let mut rng = fastrand::Rng::with_seed(3);
    let mut inside = |rng: &mut fastrand::Rng| {
        let (bits, len) = routes[rng.usize(..routes.len())];
        bits | (rng.u128(..) & !mask(len))
    };
    let uniform = |rng: &mut fastrand::Rng| match F::BITS {
        32 => rng.u128(..),
        _ => 0x2 << 124 | rng.u128(..) >> 3,
    };
    let popular: Vec<_> = (0..ZIPF).map(|_| inside(&mut rng)).collect();
    let mut sum = 0.0;
    let shares: Vec<f64> = (1..=ZIPF)
        .map(|rank| {
            sum += 1.0 / rank as f64;
            sum
        })
        .collect();
    let zipf = |rng: &mut fastrand::Rng| {
        let share = rng.f64() * sum;
        popular[shares.partition_point(|upto| *upto < share).min(ZIPF - 1)]
    };
    let hot = |rng: &mut fastrand::Rng| popular[rng.usize(..HOT)];
    let mut trace = |next: &mut dyn FnMut(&mut fastrand::Rng) -> u128| {
        (0..TRACE).map(|_| F::bits(next(&mut rng))).collect::<Vec<_>>()
    };
    [
        ("uniform", trace(&mut { uniform })),
        ("in table", trace(&mut inside)),
        ("zipf", trace(&mut { zipf })),
        ("hot", trace(&mut { hot })),
    ]
}

/// A hash over answers, the same as the rival's.
pub(crate) fn hash(answers: impl Iterator<Item = Option<NextHop>>) -> u64 {
    answers.fold(0, |hash, hop| {
        u64::wrapping_add(u64::wrapping_mul(hash, 31), hop.map_or(0, |hop| u64::from(hop.get()) + 1))
    })
}
