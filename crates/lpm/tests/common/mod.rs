//! A naive table to compare with, and the real tables.
#![allow(dead_code, reason = "each test uses its part")]
#![allow(clippy::unwrap_used, reason = "only tests use this")]
#![allow(clippy::cast_possible_truncation, reason = "addresses are cut to their family")]

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::Read;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::str::FromStr;

use lpm::kernels::{self, Choice};
use lpm::{Ipv4Prefix, Ipv6Prefix, NextHop};

/// Routes by length and address: a lookup tries every length, longest first.
#[derive(Debug, Default, Clone)]
pub(crate) struct Naive {
    /// Keyed by address (left-aligned in 128 bits) and length.
    pub(crate) routes: BTreeMap<(u128, u8), u32>,
}

impl Naive {
    pub(crate) fn lookup(&self, addr: u128) -> Option<u32> {
        (0..=128).rev().find_map(|len| self.routes.get(&(addr & mask(len), len)).copied())
    }
}

pub(crate) fn mask(len: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0)
}

pub(crate) fn hop(id: u32) -> NextHop {
    NextHop::new(id).unwrap()
}

/// The two families behind one face, so that every test runs for both.
pub(crate) trait Net: Copy + Ord + Debug + FromStr<Err = lpm::Error> {
    const BITS: u8;
    type Bits: Copy;
    type Addr: Copy + Into<Self::Bits>;
    /// From the leading bits of 128.
    fn prefix(bits: u128, len: u8) -> Self;
    fn addr(bits: u128) -> Self::Addr;
    fn bits(self) -> (u128, u8);
}

impl Net for Ipv4Prefix {
    const BITS: u8 = 32;
    type Bits = u32;
    type Addr = Ipv4Addr;
    fn prefix(bits: u128, len: u8) -> Self {
        Self::truncate(Self::addr(bits), len).unwrap()
    }
    fn addr(bits: u128) -> Ipv4Addr {
        Ipv4Addr::from((bits >> 96) as u32)
    }
    fn bits(self) -> (u128, u8) {
        (u128::from(u32::from(self.address())) << 96, self.len())
    }
}

impl Net for Ipv6Prefix {
    const BITS: u8 = 128;
    type Bits = u128;
    type Addr = Ipv6Addr;
    fn prefix(bits: u128, len: u8) -> Self {
        Self::truncate(Self::addr(bits), len).unwrap()
    }
    fn addr(bits: u128) -> Ipv6Addr {
        Ipv6Addr::from(bits)
    }
    fn bits(self) -> (u128, u8) {
        (u128::from(self.address()), self.len())
    }
}

/// Runs `test` once with each build of the lookup loops that this CPU can run, and says which it cannot.
pub(crate) fn each_kernel(mut test: impl FnMut()) {
    each_kernel_or_best(|_| test());
}

/// The same; `test` is told which of them is the best, the one that programs use.
pub(crate) fn each_kernel_or_best(mut test: impl FnMut(bool)) {
    let count = kernel_count();
    for (index, kernel) in Choice::ALL.into_iter().enumerate() {
        match kernels::choose(kernel) {
            Ok(()) => test(index + 1 == count),
            Err(missing) => skip::test!("kernel {} (this CPU has no {missing})", kernel.name()),
        }
    }
    kernels::choose_best();
}

/// How many builds of the lookup loops this CPU can run.
pub(crate) fn kernel_count() -> usize {
    let count = Choice::ALL.into_iter().filter(|kernel| kernels::choose(*kernel).is_ok()).count();
    kernels::choose_best();
    count
}

/// Seconds that each long test takes: `RINGWAY_LPM_SECONDS`, or 3.
pub(crate) fn seconds() -> f64 {
    std::env::var("RINGWAY_LPM_SECONDS").map_or(3.0, |text| text.parse().expect("RINGWAY_LPM_SECONDS is a number"))
}

/// A real table, `PREFIX ORIGIN-AS` per line: the full one beside the workspace, or else the sample that the repository carries,
/// which is said.
pub(crate) fn real_table<P: Net>(name: &str) -> Vec<(P, u32)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let file = std::fs::File::open(root.join("../shared/data/bgp").join(name)).or_else(|_| {
        skip::test!("the full table {name} (not in ../shared/data/bgp; the sample in tests/data/bgp stands in)");
        std::fs::File::open(root.join("tests/data/bgp").join(name))
    });
    let file = file.expect("the repository has a sample");
    let mut text = String::new();
    lzma_rust2::XzReader::new(std::io::BufReader::new(file), true).read_to_string(&mut text).unwrap();
    let route = |line: &str| {
        let (prefix, origin) = line.split_once(' ').unwrap();
        (prefix.parse().unwrap(), origin.parse().unwrap())
    };
    text.lines().map(route).collect()
}
