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

/// A full table, `PREFIX ORIGIN-AS` per line, or `None` with the reason printed.
pub(crate) fn real_table<P: Net>(name: &str) -> Option<Vec<(P, u32)>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/bgp").join(name);
    let file = match std::fs::File::open(&path) {
        Ok(file) => file,
        Err(error) => {
            println!("skipped: no full table at {}: {error}", path.display());
            return None;
        }
    };
    let mut text = String::new();
    lzma_rust2::XzReader::new(std::io::BufReader::new(file), true).read_to_string(&mut text).unwrap();
    let route = |line: &str| {
        let (prefix, origin) = line.split_once(' ').unwrap();
        (prefix.parse().unwrap(), origin.parse().unwrap())
    };
    Some(text.lines().map(route).collect())
}
