//! The driver on a strict soft NIC.

use device::PageSize;
use ixgbe::{Config, Opened, Port, RxQueue, TxQueue};
use mempool::{Pool, PoolConfig};
use softnic::{StrictBuilder, StrictControl, StrictNic};

/// An opened strict soft NIC, and a handle of it for the test. Violations panic unless the builder says otherwise.
#[derive(Debug)]
pub struct Rig {
    /// The device.
    pub nic: StrictControl,
    /// Control of it.
    pub port: Port<StrictNic>,
    /// Its receive queues.
    pub rx: Vec<RxQueue<StrictNic>>,
    /// Its transmit queues.
    pub tx: Vec<TxQueue<StrictNic>>,
}

impl Rig {
    /// Opens the device that `builder` describes.
    ///
    /// # Errors
    ///
    /// As [`ixgbe::open`].
    pub fn open(builder: StrictBuilder, config: &Config, pool: &Pool) -> ixgbe::Result<Self> {
        let device = builder.build();
        let nic = device.control();
        let Opened { port, rx, tx } = ixgbe::open(device, config, pool)?;
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
