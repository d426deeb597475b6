//! Driver for the Intel 82599 family: 82599 (X520), X540 and X550.
//!
//! [`open`] takes a [`device::Device`] and returns a [`Port`], which controls it, and its queues, which can be moved to
//! threads:
//!
//! ```no_run
//! use ethdev::{Opened, RxQueue as _, TxQueue as _};
//! use ixgbe::Config;
//! use mempool::{Batch, Pool, PoolConfig};
//!
//! # fn forward(device: impl device::Device) -> Result<(), Box<dyn std::error::Error>> {
//! let pool = Pool::new(&PoolConfig::default())?;
//! let Opened { port, mut rx, mut tx } = ixgbe::open(device, &Config::default(), &pool)?;
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
//! [`ethdev::PortConfig::interrupts`] on, a program can wait for a receive queue.
//!
//! Frames longer than a buffer are received into several buffers, as a run of packets.

mod config;
mod eeprom;
#[cfg(any(test, feature = "fake"))]
#[expect(unsafe_code, reason = "a card plays with memory that it was told of")]
pub mod fake;
mod filter;
mod firmware;
mod i2c;
mod ids;
mod init;
mod interrupts;
mod link;
mod module;
mod parts;
mod phy;
mod port;
#[expect(unsafe_code, reason = "a word for the registers of queues")]
mod queues;
#[expect(unsafe_code, reason = "registers through which a card learns of memory")]
pub mod regs;
mod rss;
mod selftest;
mod semaphore;
mod stats;
mod wait;

pub use config::{Config, Thresholds};
pub use filter::Filters;
pub use ids::{MacType, Media, Model};
pub use intel::{Error, Result};
pub use module::{Cage, SfpKind, SfpModule};
pub use port::{Card, Opened, Port, open};
pub use queues::{RxQueue, TxQueue};
pub use selftest::{registers, selftest};
pub use stats::{HardwareStatistics, PauseFrames, QueueStatistics, ReceiveErrors};

/// The program of the README is tested with the examples.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
