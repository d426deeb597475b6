//! What every driver's port can do, in the words of this crate.

use crate::port::{RxErrors, Statistics};
use crate::{DriverError, LinkStatus};
use device::Device;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// The control side of an open device, whichever driver it has.
pub(crate) trait Control {
    fn name(&self) -> &str;
    fn mac(&self) -> [u8; 6];
    fn link(&self) -> Result<LinkStatus, DriverError>;
    fn wait_link(&self, limit: Duration) -> Result<LinkStatus, DriverError>;
    fn set_promiscuous(&mut self, on: bool) -> Result<(), DriverError>;
    fn stop_receiving(&mut self) -> Result<(), DriverError>;
    /// Reads the device's counters.
    fn poll(&mut self) -> Result<(), DriverError>;
    /// The totals as last read.
    fn totals(&self) -> Statistics;
    /// Whether all that was handed over has left; true of a device that is gone.
    fn transmit_idle(&self) -> bool;
    fn numa_node(&self) -> Option<u32>;
    /// What becomes readable when [`Self::events`] has something to tell.
    fn eventfd(&self) -> Option<BorrowedFd<'_>>;
    fn events(&mut self) -> Result<ixgbe::Events, DriverError>;
    fn close(self) -> Result<(), DriverError>;
}

impl<D: Device> Control for ixgbe::Port<D> {
    fn name(&self) -> &str {
        self.name()
    }

    fn mac(&self) -> [u8; 6] {
        self.mac()
    }

    fn link(&self) -> Result<LinkStatus, DriverError> {
        Ok(self.link().map(|status| LinkStatus { up: status.up, speed: status.speed })?)
    }

    fn wait_link(&self, limit: Duration) -> Result<LinkStatus, DriverError> {
        Ok(self.wait_link(limit).map(|status| LinkStatus { up: status.up, speed: status.speed })?)
    }

    fn set_promiscuous(&mut self, on: bool) -> Result<(), DriverError> {
        Ok(self.filters().set_promiscuous(on)?)
    }

    fn stop_receiving(&mut self) -> Result<(), DriverError> {
        Ok(self.stop_receiving()?)
    }

    fn poll(&mut self) -> Result<(), DriverError> {
        Ok(self.statistics().map(drop)?)
    }

    fn totals(&self) -> Statistics {
        self.totals().into()
    }

    fn transmit_idle(&self) -> bool {
        self.transmit_idle().unwrap_or(true)
    }

    fn numa_node(&self) -> Option<u32> {
        self.numa_node()
    }

    fn eventfd(&self) -> Option<BorrowedFd<'_>> {
        self.eventfd()
    }

    fn events(&mut self) -> Result<ixgbe::Events, DriverError> {
        Ok(self.events()?)
    }

    fn close(self) -> Result<(), DriverError> {
        Ok(self.close().map(drop)?)
    }
}

impl<T: virtio::Transport> Control for virtio::Port<T> {
    fn name(&self) -> &str {
        self.name()
    }

    fn mac(&self) -> [u8; 6] {
        self.mac()
    }

    fn link(&self) -> Result<LinkStatus, DriverError> {
        Ok(self.link()?.into())
    }

    fn wait_link(&self, limit: Duration) -> Result<LinkStatus, DriverError> {
        Ok(self.wait_link(limit)?.into())
    }

    fn set_promiscuous(&mut self, on: bool) -> Result<(), DriverError> {
        Ok(self.set_promiscuous(on)?)
    }

    fn stop_receiving(&mut self) -> Result<(), DriverError> {
        // It knows no such command.
        Ok(())
    }

    fn poll(&mut self) -> Result<(), DriverError> {
        // Its totals are its queues' own, and always up to date.
        Ok(())
    }

    fn totals(&self) -> Statistics {
        self.totals().into()
    }

    fn transmit_idle(&self) -> bool {
        self.transmit_idle()
    }

    fn numa_node(&self) -> Option<u32> {
        self.numa_node()
    }

    fn eventfd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn events(&mut self) -> Result<ixgbe::Events, DriverError> {
        // Its interrupts are those of queues; the link is looked at.
        Ok(ixgbe::Events::default())
    }

    fn close(self) -> Result<(), DriverError> {
        Ok(self.close().map(drop)?)
    }
}

/// A virtio device has no speed of its own; Linux and DPDK call it 10 Gbit/s.
const VIRTIO_SPEED: u32 = 10_000;

impl From<virtio::LinkStatus> for LinkStatus {
    fn from(status: virtio::LinkStatus) -> Self {
        Self { up: status.up, speed: if status.up { VIRTIO_SPEED } else { 0 } }
    }
}

/// Bytes of a frame check sequence, which totals count as if it had been there.
const CRC: u64 = 4;

impl From<virtio::Statistics> for Statistics {
    fn from(s: virtio::Statistics) -> Self {
        Self {
            rx_packets: s.rx_packets,
            rx_bytes: s.rx_bytes + CRC * s.rx_packets,
            tx_packets: s.tx_packets,
            tx_bytes: s.tx_bytes + CRC * s.tx_packets,
            ..Self::default()
        }
    }
}

impl From<&ixgbe::Statistics> for Statistics {
    fn from(s: &ixgbe::Statistics) -> Self {
        let errors = &s.rx_errors;
        Self {
            rx_packets: s.rx_packets,
            rx_bytes: s.rx_bytes,
            tx_packets: s.tx_packets,
            tx_bytes: s.tx_bytes,
            rx_missed: s.rx_missed + s.rx_no_descriptor,
            rx_errors: RxErrors {
                crc: errors.crc,
                length: errors.length,
                undersize: errors.undersize + errors.fragments + errors.short,
                oversize: errors.oversize + errors.jabber,
            },
            unread: s.unread,
        }
    }
}
