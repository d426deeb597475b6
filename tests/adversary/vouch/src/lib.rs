//! Somebody's word for the hostile server of the adversary. That server lies and fails in every way but one: it does not
//! change packets that were handed back, which is all that the word says.
//!
//! And what has other names in checkouts of before.

/// Settings that let a port be opened whose device is another process.
#[must_use]
pub fn vouched(config: nic::PortConfig) -> nic::PortConfig {
    #[cfg(trusted_peer)]
    // SAFETY: the adversary's server writes to descriptors only, and to packets only as a device that was lent them.
    let config = nic::PortConfig { trusted_peer: Some(unsafe { nic::TrustedPeer::vouched_for() }), ..config };
    config
}

/// The traits of ports and queues.
#[allow(unused_imports, reason = "they were types once")]
pub mod prelude {
    pub use nic::{Port as _, RxQueue as _, TxQueue as _};
}

/// Settings of a virtio port with `pairs` queues each way, of `ring` descriptors.
#[must_use]
pub fn virtio_config(pairs: u16, ring: u16) -> virtio::Config {
    let mut config = virtio::Config::default();
    #[cfg(ethdev)]
    let port = &mut config.port;
    #[cfg(not(ethdev))]
    let port = &mut config;
    (port.rx_queues, port.tx_queues, port.rx_ring, port.tx_ring) = (pairs, pairs, ring, ring);
    config
}

/// Settings of a port of the 82599 family with rings of `ring` descriptors.
#[must_use]
pub fn ixgbe_config(ring: u16) -> ixgbe::Config {
    let mut config = ixgbe::Config::default();
    #[cfg(ethdev)]
    let port = &mut config.port;
    #[cfg(not(ethdev))]
    let port = &mut config;
    (port.rx_ring, port.tx_ring) = (ring, ring);
    config
}
