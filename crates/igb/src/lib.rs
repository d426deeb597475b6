//! Driver for Intel's gigabit NICs 82576 and I350, and for QEMU's model of the 82576 (`-device igb`).
//!
//! [`open`] takes a [`device::Device`] and returns a [`Port`], which controls it, and its queues, which can be moved to
//! threads:
//!
//! ```no_run
//! use ethdev::{Opened, RxQueue as _, TxQueue as _};
//! use igb::Config;
//! use mempool::{Batch, Pool, PoolConfig};
//!
//! # fn forward(device: impl device::Device) -> Result<(), Box<dyn std::error::Error>> {
//! let pool = Pool::new(&PoolConfig::default())?;
//! let Opened { port, mut rx, mut tx } = igb::open(device, &Config::default(), &pool)?;
//! let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(32));
//! loop {
//!     rx[0].recv(&mut cache, &mut batch);
//!     tx[0].send(&mut cache, &mut batch);
//!     batch.clear(); // what the ring had no room for
//! }
//! # }
//! ```
//!
//! The queues implement [`ethdev::RxQueue`] and [`ethdev::TxQueue`], the port [`ethdev::Port`]. With
//! [`ethdev::PortConfig::interrupts`] on, a program can wait for a receive queue. Frames longer than a buffer are received
//! into several buffers, as a run of packets.
//!
//! Chapters are those of the 82576 datasheet; the I350's registers that are used here differ where it is said.

mod config;
mod eeprom;
#[cfg(test)]
#[expect(unsafe_code, reason = "a device made of memory")]
mod fake;
mod filter;
#[cfg(test)]
mod hostile_tests;
mod ids;
mod init;
mod interrupts;
mod phy;
mod port;
#[expect(unsafe_code, reason = "a word for the registers of queues")]
mod queues;
#[expect(unsafe_code, reason = "registers through which a card learns of memory")]
mod regs;
mod rss;
mod selftest;
mod stats;
mod wait;

pub use config::Config;
pub use ids::{MacType, Model};
pub use intel::{Error, Result};
pub use port::{Card, Opened, Port, open};
pub use queues::{RxQueue, TxQueue};
pub use selftest::{registers, selftest};
pub use stats::HardwareStatistics;

/// The program of the README is tested with the examples.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
