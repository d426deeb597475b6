//! Twins: TAP interfaces that stand for the ports of a router. What the router does not forward goes to the twin of its port, and so
//! to Linux, which answers ARP and neighbour discovery, sends ICMP errors, fragments, and has the host's own addresses; what Linux
//! sends by a twin leaves by the port.
//!
//! - [`Class`]: what a refused frame is to the host, or that it is nothing.
//! - [`Police`]: how many frames of each class a port may hand over in a second, and how many it has.
//! - [`Twins`]: the interfaces, and the thread that moves frames. Workers make no system call but to wake it.
//! - [`Lane`]: a worker's end of the queues.
//!
//! ```no_run
//! use mempool::{Batch, Pool, PoolConfig};
//! use twin::{Port, Rates, Settings, Twins};
//!
//! let twins = Twins::open(&["rw0".to_owned(), "rw1".to_owned()])?;
//! let pool = Pool::new(&PoolConfig::default())?;
//! let port = |last| Port { mac: [2, 0, 0, 0, 0, last], mtu: 1500, pool: pool.clone(), lane: 0 };
//! let (twins, mut lanes) = twins.start(&[port(0), port(1)], 1, &Settings::default())?;
//! twins.set_carrier(0, true)?;
//! // In a worker: what came from the host by the twin of the second port.
//! let mut batch = Batch::with_capacity(32);
//! if lanes[0].has_frames() {
//!     lanes[0].receive(1, &mut batch);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod bell;
mod class;
mod counts;
mod error;
mod lane;
mod mover;
mod police;
mod twins;

pub use class::Class;
pub use counts::{ClassCount, Counts};
pub use error::Error;
pub use lane::{HandedOver, Lane};
pub use police::{Bucket, Police, Rate, Rates};
pub use twins::{Port, Running, Settings, Twins, check_name};

/// The program of the README is tested with the examples.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
