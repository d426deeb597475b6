//! Longest prefix match for IPv4 and IPv6: one writer, any number of wait-free readers.
//!
//! A router is its lookup. [`Ipv4Table`] and [`Ipv6Table`] hold routes (prefix and [`NextHop`], a small integer) and
//! change in about a microsecond; a full Internet table of 900 thousand IPv4 prefixes takes 4.6 MB of
//! the memory that lookups touch. [`Reader`]s look up single addresses or bursts on other threads
//! and never see a table in between: each answer is the one before or after a change.
//!
//! ```
//! use lpm::{Config, Ipv4Prefix, Ipv4Table, NextHop};
//!
//! let routes = [("0.0.0.0/0", 1), ("192.0.2.0/24", 2), ("192.0.2.128/25", 3)];
//! let routes = routes.map(|(prefix, hop)| (prefix.parse::<Ipv4Prefix>().unwrap(), NextHop::new(hop).unwrap()));
//! let mut table = Ipv4Table::from_routes(Config::default(), routes)?;
//! let mut reader = table.reader();
//!
//! let addrs = [0xc000_0201_u32, 0xc000_0281, 0x0a00_0001];
//! let mut hops = [None; 3];
//! assert_eq!(reader.lookup_batch(&addrs, &mut hops), 3);
//! assert_eq!(hops.map(|hop| hop.map(NextHop::get)), [Some(2), Some(3), Some(1)]);
//!
//! table.remove("192.0.2.128/25".parse()?)?;
//! assert_eq!(reader.lookup([192, 0, 2, 129].into()).map(NextHop::get), Some(2));
//! # Ok::<(), lpm::Error>(())
//! ```
//!
//! # Features
//! * `std` (default): asks the CPU what it can do. Without it the crate is `no_std` with `alloc`, and lookups use
//!   the instructions the whole program is compiled for.
//! * `kernels`: a module that chooses the lookup loops by name, for tests.
//! * `huge-pages` (default): advises Linux to back tables with huge pages.
//!
//! # Unsafe code
//! Only in `mem`, which holds the memory readers walk, and `lookup`, the lookup loops.
#![no_std]
#![deny(unsafe_code)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod build;
mod clock;
mod error;
mod hops;
#[cfg(feature = "kernels")]
pub mod kernels;
#[expect(unsafe_code, reason = "lookup loops for CPU features found at run time, and loads of several places at once")]
mod lookup;
#[expect(unsafe_code, reason = "memory shared by the writer and wait-free readers")]
mod mem;
mod next_hop;
mod prefix;
mod rib;
mod table;
mod tables;
mod v4;
mod v6;
mod writer;

pub use error::{Error, Result};
pub use next_hop::NextHop;
pub use prefix::{Ipv4Prefix, Ipv6Prefix};
pub use table::{Config, Ipv4Reader, Ipv4Table, Ipv6Reader, Ipv6Table, Iter, MemoryUse, Reader, Table};
pub use tables::{Addresses, Family};
pub use v4::V4;
pub use v6::V6;

/// The program of the README is tested with the examples.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
