//! The driver on a strict soft NIC.

use device::PageSize;
use ixgbe::{Config, Opened, Port, RxQueue, TxQueue};
use mempool::{Pool, PoolConfig};
use softnic::{StrictBuilder, StrictNic};
use std::sync::Arc;

/// A handle of a strict soft NIC; the driver has another.
pub type Nic = Arc<StrictNic>;

/// An opened strict soft NIC, and a handle of it for the test. Violations panic unless the builder says otherwise.
#[derive(Debug)]
pub struct Rig {
    /// The device.
    pub nic: Nic,
    /// Control of it.
    pub port: Port<Nic>,
    /// Its receive queues.
    pub rx: Vec<RxQueue<Nic>>,
    /// Its transmit queues.
    pub tx: Vec<TxQueue<Nic>>,
}

impl Rig {
    /// Opens the device that `builder` describes.
    ///
    /// # Errors
    ///
    /// As [`ixgbe::open`].
    pub fn open(builder: StrictBuilder, config: &Config, pool: &Pool) -> ixgbe::Result<Self> {
        let nic = builder.build();
        let Opened { port, rx, tx } = ixgbe::open(Nic::clone(&nic), config, pool)?;
        Ok(Self { nic, port, rx, tx })
    }
}

/// A pool of `slots` slots for `data_room` bytes of data on ordinary pages, which every host has.
///
/// # Panics
///
/// When there is no memory.
#[must_use]
pub fn pool(slots: usize, data_room: u16) -> Pool {
    let config = PoolConfig { slots, data_room, pages: PageSize::Ordinary, ..PoolConfig::default() };
    Pool::new(&config).expect("a pool on ordinary pages")
}
