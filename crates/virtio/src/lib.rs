//! Driver for virtio-net devices (Virtio 1.2, chapters 2 and 5.1): split and packed virtqueues over any [`Transport`].
//!
//! [`open`] takes a transport and returns a [`Port`], which controls the device, and its queues, which can be moved to
//! threads:
//!
//! ```no_run
//! use ethdev::{Opened, RxQueue as _, TxQueue as _};
//! use mempool::{Batch, Pool, PoolConfig};
//! use virtio::Config;
//!
//! # fn forward(transport: impl virtio::Transport) -> Result<(), Box<dyn std::error::Error>> {
//! let pool = Pool::new(&PoolConfig::default())?;
//! let Opened { port, mut rx, mut tx } = virtio::open(transport, &Config::default(), &pool)?;
//! let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(32));
//! loop {
//!     rx[0].recv(&mut cache, &mut batch);
//!     tx[0].send(&mut cache, &mut batch);
//!     batch.clear(); // what the ring had no room for
//! }
//! # }
//! ```
//!
//! [`Pci`] is the transport to a device on PCI, [`VhostUser`] to one that another process implements. The queues
//! implement [`ethdev::RxQueue`] and [`ethdev::TxQueue`], the port [`ethdev::Port`].
//!
//! The device is not trusted. The driver keeps its knowledge of a ring (free descriptors, chains in flight, their
//! buffers) in memory that the device cannot reach. From the ring itself it reads only what the device reports, once,
//! and checks it. A device that violates the specification is reset and brought up again.

//!
//! # Requirements of the specification
#![doc = include_str!("requirements.md")]
#![deny(unsafe_code)]

mod config;
mod control;
mod error;
#[cfg(feature = "fake")]
#[expect(unsafe_code, reason = "a device accesses memory at addresses that it was told")]
pub mod fake;
mod features;
mod ids;
mod negotiate;
mod net;
#[expect(unsafe_code, reason = "registers through which a device learns of memory")]
mod pci;
mod pools;
mod port;
#[expect(unsafe_code, reason = "memory shared with the device")]
mod ring;
mod rss;
#[expect(unsafe_code, reason = "buffers shared with the device")]
mod rx;
#[expect(unsafe_code, reason = "buffers shared with the device")]
mod rx_header;
mod session;
#[expect(unsafe_code, reason = "the trait that memory safety is built on")]
pub mod transport;
#[expect(unsafe_code, reason = "buffers shared with the device")]
mod tx;
#[expect(unsafe_code, reason = "buffers shared with the device")]
mod tx_header;
#[expect(unsafe_code, reason = "the promises of a transport")]
mod vhost_user;
mod watcher;

pub use config::Config;
pub use error::{Error, Result};
pub use features::Features;
pub use ids::{Kind, identify};
pub use pci::{Doorbell, Pci};
pub use port::{Opened, Port, open};
pub use ring::Fault;
pub use rx::RxQueue;
pub use transport::Transport;
pub use tx::TxQueue;
pub use vhost_user::{Kick, VhostUser};

/// The program of the README is tested with the examples.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
