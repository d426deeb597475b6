//! What a user chooses about a port.

use crate::{ConfigError, Rss};
use device::{Interrupts, NoIommu, TimeLimit, TrustedPeer};

/// Settings of a port. Take the default and change fields; opening a port validates them.
///
/// ```
/// use ethdev::PortConfig;
///
/// let config = PortConfig { rx_queues: 4, tx_queues: 4, mtu: 9000, ..PortConfig::default() };
/// config.validate()?;
/// let error = PortConfig { rx_ring: 1000, ..config }.validate().unwrap_err();
/// assert_eq!(error.to_string(), "rx_ring: 1000 descriptors: must be a power of two from 64 to 4096");
/// # Ok::<(), ethdev::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// Receive queues, 1 to 64; default 1. Flows are spread over them by [`Self::rss`], which reaches 16 queues of an 82599 or
    /// X540 and 64 of an X550; a virtio device spreads them itself, over as many as it offers.
    pub rx_queues: u16,
    /// Transmit queues, 1 to 64; default 1. On a virtio device no more than receive queues, as it has them in pairs.
    pub tx_queues: u16,
    /// Descriptors of a receive ring: a power of two from 64 to 4096; default 512. A virtio device that allows fewer gets fewer.
    pub rx_ring: u16,
    /// Descriptors of a transmit ring, likewise.
    pub tx_ring: u16,
    /// Largest IP packet in bytes, 68 to 9216; default 1500.
    pub mtu: u16,
    /// Receive frames for any address, unicast and multicast; default true, as a forwarder needs.
    pub promiscuous: bool,
    /// Receive frames for any multicast address; default true. A promiscuous port receives them all the same.
    pub all_multicast: bool,
    /// How flows are spread over receive queues. A virtio device with several queues takes the default only.
    pub rss: Rss,
    /// Use the device's checksum offload where it has one (virtio); default false. Frames may then arrive with a partial
    /// checksum ([`mempool::Packet::checksum`]), and those that have one leave with it. Any frame of which the device says
    /// something takes a slower path. Worth it between ports whose peers do without checksums, such as virtual machines of
    /// one host.
    pub checksum_offload: bool,
    /// Have the device take the VLAN tag (EtherType 0x8100) out of each received frame that has one; default false. Only
    /// [`crate::RxInfo::vlan_tag`] has the tag then. An 82599 can do it ([`crate::Capabilities::strip_vlan`]).
    pub strip_vlan: bool,
    /// Whether receive queues and the port can be waited for; default off. There are no interrupts through sysfs.
    pub interrupts: Interrupts,
    /// Open PCI devices that no IOMMU guards, through sysfs (needs root and huge pages). Such a device can overwrite any
    /// memory of the host, so somebody has to vouch for it. Devices with an IOMMU group are opened through VFIO all the
    /// same. For who opens devices by address, not for drivers.
    pub no_iommu: Option<NoIommu>,
    /// Open devices that another process plays. It shares packet memory, so somebody has to vouch for it; without this such an
    /// address is refused. For who opens devices by address, not for drivers.
    pub trusted_peer: Option<TrustedPeer>,
    /// Limit of each operation as a whole (open, close, a command, a reconnect), and a flag that ends it earlier; 5 s by
    /// default. If the device was opened within a deadline that still runs, opening keeps to that. Closing does not
    /// look at the flag, and may take a second more.
    pub time_limit: TimeLimit,
}

impl PortConfig {
    /// The largest frame in bytes: MTU, Ethernet header and one VLAN tag, without frame check sequence.
    #[must_use]
    pub fn max_frame(&self) -> usize {
        usize::from(self.mtu) + ETHERNET_HEADER + VLAN_TAG
    }

    /// Checks each setting against the range that holds for every device; drivers check what else theirs lacks.
    ///
    /// # Errors
    ///
    /// Names the first setting that is wrong and what it may be.
    pub fn validate(&self) -> Result<(), ConfigError> {
        ConfigError::unless_in("rx_queues", self.rx_queues, 1..=64, "queues")?;
        ConfigError::unless_in("tx_queues", self.tx_queues, 1..=64, "queues")?;
        for (setting, size) in [("rx_ring", self.rx_ring), ("tx_ring", self.tx_ring)] {
            if !size.is_power_of_two() || !(64..=4096).contains(&size) {
                let problem = format!("{size} descriptors: must be a power of two from 64 to 4096");
                return Err(ConfigError::new(setting, problem));
            }
        }
        ConfigError::unless_in("mtu", self.mtu, 68..=9216, "bytes")
    }
}

impl Default for PortConfig {
    fn default() -> Self {
        Self {
            rx_queues: 1,
            tx_queues: 1,
            rx_ring: 512,
            tx_ring: 512,
            mtu: 1500,
            promiscuous: true,
            all_multicast: true,
            rss: Rss::default(),
            checksum_offload: false,
            strip_vlan: false,
            interrupts: Interrupts::Off,
            no_iommu: None,
            trusted_peer: None,
            time_limit: TimeLimit::default(),
        }
    }
}

const ETHERNET_HEADER: usize = 14;
const VLAN_TAG: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(change: impl FnOnce(&mut PortConfig)) -> Option<String> {
        let mut config = PortConfig::default();
        change(&mut config);
        config.validate().err().map(|error| error.to_string())
    }

    #[test]
    fn limits_are_inclusive() {
        assert_eq!(refusal(|_| ()), None);
        assert_eq!(refusal(|c| (c.rx_queues, c.tx_queues, c.rx_ring, c.tx_ring) = (64, 64, 64, 4096)), None);
        assert_eq!(refusal(|c| c.mtu = 68), None);
        assert_eq!(refusal(|c| c.mtu = 9216), None);
    }

    #[test]
    fn each_setting_is_refused_outside_its_range() {
        assert_eq!(refusal(|c| c.rx_queues = 0).unwrap(), "rx_queues: 0 queues: must be 1 to 64");
        assert_eq!(refusal(|c| c.tx_queues = 65).unwrap(), "tx_queues: 65 queues: must be 1 to 64");
        assert_eq!(refusal(|c| c.mtu = 67).unwrap(), "mtu: 67 bytes: must be 68 to 9216");
        assert_eq!(refusal(|c| c.mtu = 9217).unwrap(), "mtu: 9217 bytes: must be 68 to 9216");
        for size in [0, 32, 100, 8192] {
            assert!(refusal(|c| c.rx_ring = size).unwrap().starts_with("rx_ring"));
            assert!(refusal(|c| c.tx_ring = size).unwrap().starts_with("tx_ring"));
        }
    }
}
