//! Any network device, by its address: one API over the drivers.
//!
//! [`open`] takes an [`Address`] such as `0000:03:00.0`, `soft:a?wire=loop` or `vhost-user:/run/a.sock`, chooses the driver, and returns a
//! [`Port`] (statistics, link, MAC) and its [`RxQueue`]s and [`TxQueue`]s, which go to threads of their own. Receiving and
//! sending a burst costs one `match` over the drivers. With [`PortConfig::interrupts`] a queue can also be waited for.
//!
//! ```
//! use mempool::{Batch, Pool, PoolConfig};
//! use nic::{PortConfig, open};
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

#![deny(unsafe_code)]

mod address;
mod control;
mod error;
mod events;
mod identify;
mod port;
mod queue;
mod trust;

pub use address::Address;
pub use device::{Expired, Interrupts, TimeLimit, TrustedPeer};
pub use error::{DriverError, Error, Result};
pub use events::{Events, VfioEvents};
pub use identify::identify;
pub use port::{LinkStatus, Opened, Port, PortConfig, RxErrors, Statistics, check, open};
pub use queue::{RxCounters, RxQueue, TxCounters, TxQueue};
pub use trust::NoIommu;
