//! Opens any network device by its address, and drives it through one API.
//!
//! [`open`] takes an [`Address`] such as `0000:03:00.0`, `soft:a?wire=loop` or `vhost-user:/run/a.sock`, chooses the
//! driver, and returns an [`AnyPort`] (statistics, link, MAC) and its [`AnyRxQueue`]s and [`AnyTxQueue`]s, which can be
//! moved to threads. They implement the traits of all ports and queues, [`Port`], [`RxQueue`] and [`TxQueue`], so code
//! written for these works with any driver. Receiving or sending a burst costs one `match` over the drivers.
//!
//! ```
//! use mempool::{Batch, Pool, PoolConfig};
//! use nic::{PortConfig, RxQueue as _, TxQueue as _, open};
//!
//! let pool = Pool::new(&PoolConfig { slots: 2048, ..PoolConfig::default() })?;
//! let mut nic = open(&"soft:example?wire=gen".parse()?, &PortConfig::default(), &pool)?;
//! let (rx, tx) = (&mut nic.rx[0], &mut nic.tx[0]);
//! let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(32));
//! while tx.counters().packets < 1000 {
//!     rx.recv(&mut cache, &mut batch);
//!     tx.send(&mut cache, &mut batch);
//! }
//! nic.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod address;
mod drivers;
mod error;
mod identify;
mod kernel_events;
mod port;
mod selftest;

pub use address::Address;
pub use device::RegisterValue;
pub use drivers::{AnyRxQueue, AnyTxQueue, DriverError};
pub use error::{Error, Result};
pub use ethdev::{
    Capabilities, Cause, Check, Events, Expired, Interrupts, LinkStatus, MacAddress, NoInterrupts, NoIommu, Port,
    PortConfig, Reta, Rss, RxCounters, RxErrors, RxInfo, RxInfos, RxQueue, Statistics, TimeLimit, TrustedPeer,
    TxCounters, TxQueue, Verdict, wait_any,
};
pub use identify::identify;
pub use port::{AnyPort, Opened, check, open};
pub use selftest::{SelfTest, registers, selftest};

/// Returns for how long in all the thread that the software NICs of this process work on had no core, of times longer than a millisecond.
/// What came meanwhile they have transmitted, lost and delivered in bursts. Zero without the feature `soft`.
#[must_use]
pub fn soft_paused() -> std::time::Duration {
    #[cfg(feature = "soft")]
    return softnic::paused();
    #[cfg(not(feature = "soft"))]
    return std::time::Duration::ZERO;
}

/// The program of the README is tested with the examples.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
