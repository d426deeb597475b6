//! Driver for the Intel 82599 family: 82599 (X520), X540 and X550.
//!
//! [`open`] takes a [`device::Device`] and gives a [`Port`], which controls it, and its queues, which go to threads:
//!
//! ```no_run
//! use ixgbe::{Config, Opened};
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
//! A queue is polled, or waited for: with [`Config::interrupts`] on, [`RxQueue::wait`] sleeps until a frame is there, and
//! [`RxQueue::arm`] and [`RxQueue::eventfd`] serve event loops that wait for other things too.
//!
//! Frames longer than a buffer are received into several, chained as a run of packets.

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[expect(unsafe_code, reason = "descriptors shared with the card")]
#[path = "rx_tx_avx2.rs"]
mod avx2;
mod config;
mod desc;
mod eeprom;
mod error;
#[cfg(any(test, feature = "fake"))]
#[expect(unsafe_code, reason = "a card plays with memory that it was told of")]
pub mod fake;
mod filter;
mod ids;
mod init;
mod interrupts;
mod link;
mod port;
#[expect(unsafe_code, reason = "registers through which a card learns of memory")]
pub mod regs;
#[expect(unsafe_code, reason = "memory shared with the card")]
mod ring;
mod rss;
#[expect(unsafe_code, reason = "buffers shared with the card")]
mod rx;
mod semaphore;
mod stats;
#[expect(unsafe_code, reason = "buffers shared with the card")]
mod tx;
mod wait;

pub use config::{Config, Thresholds};
pub use error::{Error, Result};
pub use filter::Filters;
pub use ids::{MacType, Media, Model};
pub use interrupts::Events;
pub use link::LinkStatus;
pub use port::{Opened, Port, open};
pub use rss::{HashTypes, Reta, Rss, hash_ipv4, hash_ipv6, toeplitz};
pub use rx::{RxCounters, RxQueue};
pub use stats::{PauseFrames, QueueStatistics, ReceiveErrors, Statistics};
pub use tx::{TxCounters, TxQueue};
