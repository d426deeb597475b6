//! What an open device can do.

use crate::HashTypes;

/// What a device can do, as it was opened. A call of [`crate::Port`] that is not among it fails with
/// [`crate::Unsupported`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Receive queues that the device has, at most.
    pub rx_queues: u16,
    /// Transmit queues that the device has, at most.
    pub tx_queues: u16,
    /// Largest MTU in bytes.
    pub mtu: u16,
    /// How it spreads flows over receive queues; `None` if that is not for this side to say.
    pub rss: Option<RssCapabilities>,
    /// The station address can be changed.
    pub set_mac: bool,
    /// Frames for other stations can be kept out, and let in.
    pub set_promiscuous: bool,
    /// It can be told to take no more frames ([`crate::Port::stop_receiving`]).
    pub stop_receiving: bool,
    /// It completes partial checksums of frames that are sent. On every other device they are completed in software.
    pub checksum_offload: bool,
    /// It takes VLAN tags out of received frames ([`crate::PortConfig::strip_vlan`]).
    pub strip_vlan: bool,
    /// Receive queues can be waited for.
    pub interrupts: bool,
}

/// What a device knows of receive side scaling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RssCapabilities {
    /// Receive queues that it reaches: those from this number on get nothing.
    pub queues: u16,
    /// Entries of the redirection table.
    pub table: u16,
    /// Packet types that it can hash.
    pub hash: HashTypes,
}

impl Capabilities {
    /// Nothing but one queue each way, for drivers to change fields of.
    #[must_use]
    pub fn new() -> Self {
        Self { rx_queues: 1, tx_queues: 1, mtu: 1500, ..Self::default() }
    }
}

impl RssCapabilities {
    /// Reaches `queues` queues by a table of `table` entries, for packets of the types `hash`.
    #[must_use]
    pub fn new(queues: u16, table: u16, hash: HashTypes) -> Self {
        Self { queues, table, hash }
    }
}
