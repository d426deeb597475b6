//! Capabilities of an open device.

use crate::HashTypes;

/// The capabilities of a device as it was opened. An operation of [`crate::Port`] that they do not include fails with
/// [`crate::Unsupported`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Largest number of receive queues.
    pub rx_queues: u16,
    /// Largest number of transmit queues.
    pub tx_queues: u16,
    /// Largest MTU in bytes.
    pub mtu: u16,
    /// How the device spreads flows over receive queues; `None` if the driver has no say in that.
    pub rss: Option<RssCapabilities>,
    /// Whether the station address can be changed.
    pub set_mac: bool,
    /// Whether reception of frames for other stations can be switched on and off.
    pub set_promiscuous: bool,
    /// Whether the device can be told to receive no more frames ([`crate::Port::stop_receiving`]).
    pub stop_receiving: bool,
    /// Whether the device completes partial checksums of frames that are sent. On every other device they are completed
    /// in software.
    pub checksum_offload: bool,
    /// Whether the device takes VLAN tags out of received frames ([`crate::PortConfig::strip_vlan`]).
    pub strip_vlan: bool,
    /// Whether the device reports the RSS hash of received frames ([`crate::PortConfig::report_hash`]).
    pub report_hash: bool,
    /// Whether receive queues have interrupts to wait for.
    pub interrupts: bool,
    /// Whether the device can loop frames back inside itself ([`crate::Port::set_loopback`]).
    pub loopback: bool,
}

/// What a device supports of receive side scaling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RssCapabilities {
    /// Number of receive queues that RSS reaches: queues with this number or a higher one receive nothing.
    pub queues: u16,
    /// Number of entries of the redirection table.
    pub table: u16,
    /// Packet types that the device can hash.
    pub hash: HashTypes,
}

impl Capabilities {
    /// Creates the smallest set, for drivers to change fields of: one queue each way and an MTU of 1500.
    #[must_use]
    pub fn new() -> Self {
        Self { rx_queues: 1, tx_queues: 1, mtu: 1500, ..Self::default() }
    }
}

impl RssCapabilities {
    /// Creates the capabilities of a device that reaches `queues` queues by a table of `table` entries, for packets of
    /// the types `hash`.
    #[must_use]
    pub fn new(queues: u16, table: u16, hash: HashTypes) -> Self {
        Self { queues, table, hash }
    }
}
