//! Driver for virtual functions of Intel's 82599, X540 and X550.
//!
//! [`open`] takes a [`device::Device`] and returns a [`Port`], which controls it, and its queues, which can be moved to
//! threads:
//!
//! ```no_run
//! use ethdev::{Opened, RxQueue as _, TxQueue as _};
//! use ixgbevf::Config;
//! use mempool::{Batch, Pool, PoolConfig};
//!
//! # fn forward(device: impl device::Device) -> Result<(), Box<dyn std::error::Error>> {
//! let pool = Pool::new(&PoolConfig::default())?;
//! let Opened { port, mut rx, mut tx } = ixgbevf::open(device, &Config::default(), &pool)?;
//! let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(32));
//! loop {
//!     rx[0].recv(&mut cache, &mut batch);
//!     tx[0].send(&mut cache, &mut batch);
//!     batch.clear(); // what the ring had no room for
//! }
//! # }
//! ```
//!
//! What concerns other functions too is asked of the physical one, through the mailbox between the two ([`Mailbox`]). The other side is
//! another driver, of another system, that may be slow, gone, new, or hostile: each exchange is bounded in time and in messages, and what
//! comes back is read once and judged.

mod config;
mod grant;
mod ids;
mod interrupts;
mod link;
mod mailbox;
mod modes;
mod port;
#[expect(unsafe_code, reason = "a word for the registers of queues")]
mod queues;
mod registers;
#[expect(unsafe_code, reason = "registers through which a card learns of memory")]
mod regs;
mod requests;
mod rss;
mod stats;

pub use config::Config;
pub use ids::{MacType, Model};
pub use intel::{Error, Result};
pub use mailbox::{Mailbox, News};
pub use port::{Card, Opened, Port, open};
pub use queues::{RxQueue, TxQueue};
pub use registers::registers;
pub use regs::{Ixgbevf, Registers};
pub use requests::{Api, Hashing, Mode, Queues};
pub use stats::HardwareStatistics;

/// The program of the README is tested with the examples.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
