//! Network ports as every driver, program and test sees them: one set of traits and types for all.
//!
//! A driver implements [`Port`], [`RxQueue`] and [`TxQueue`]; a program is written against these traits and runs on any
//! driver. [`PortConfig`], the counters, [`LinkStatus`], [`MacAddress`] and [`Rss`] are common to all of them.
//! [`in_process`] is a port whose wire is the program itself, for tests and examples:
//!
//! ```
//! use ethdev::{Opened, Port as _, PortConfig, RxQueue as _, TxQueue as _, in_process};
//! use mempool::{Batch, Pool, PoolConfig, frames_mut};
//!
//! // A program that sends every frame back to where it came from.
//! let pool = Pool::new(&PoolConfig::default())?;
//! let (Opened { port, mut rx, mut tx }, mut wire) = in_process::open("echo", &PortConfig::default(), &pool)?;
//! let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(32));
//! let frame: Vec<u8> = (0..60).collect();
//! wire.inject(&frame);
//! // A frame may lie in several packets; the addresses are in the first.
//! for frame in frames_mut(rx[0].recv(&mut cache, &mut batch)) {
//!     if let Some(addresses) = frame[0].data_mut().first_chunk_mut::<12>() {
//!         addresses.rotate_left(6);
//!     }
//! }
//! tx[0].send(&mut cache, &mut batch);
//! let echo = wire.collect().ok_or("nothing came back")?;
//! assert_eq!((&echo[..6], &echo[6..12], &echo[12..]), (&frame[6..12], &frame[..6], &frame[12..]));
//! port.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod capabilities;
mod check;
mod config;
mod counters;
mod error;
pub mod in_process;
mod link;
mod mac_address;
mod port;
mod rss;
mod rx_info;
mod wait;

pub use capabilities::{Capabilities, RssCapabilities};
pub use check::{Check, Verdict};
pub use config::PortConfig;
pub use counters::{QueueTotals, RxCounters, RxErrors, Statistics, TxCounters};
pub use device::{Expired, Interrupts, NoIommu, TimeLimit, TrustedPeer};
pub use error::{Cause, ConfigError, PortError, Unsupported};
pub use link::{Events, LinkStatus};
pub use mac_address::{MacAddress, ParseMacAddressError};
pub use port::{Opened, Port, RxQueue, TxQueue};
pub use rss::{HashTypes, Reta, Rss, hash_frame, hash_ipv4, hash_ipv6, toeplitz};
pub use rx_info::{ChecksumVerdict, PacketType, RxInfo, RxInfos};
pub use wait::{NoInterrupts, wait_any};

/// The program of the README is tested with the examples.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
