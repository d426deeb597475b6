//! Settings of a port.

use crate::{Capabilities, ConfigError, Rss};
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
    /// Number of receive queues, 1 to 64; default 1. Flows are spread over them by [`Self::rss`], which reaches 16
    /// queues of an 82599, X540 or 82576, 64 of an X550 and 8 of an I350. A virtio device without RSS spreads them by rules
    /// of its own.
    pub rx_queues: u16,
    /// Number of transmit queues, 1 to 64; default 1. On a virtio device there can be no more of them than receive
    /// queues, as its queues come in pairs.
    pub tx_queues: u16,
    /// Number of descriptors of a receive ring: a power of two from 64 to 4096; default 512. If a virtio device allows
    /// fewer, its rings have fewer.
    pub rx_ring: u16,
    /// Number of descriptors of a transmit ring; range and default are those of [`Self::rx_ring`].
    pub tx_ring: u16,
    /// Largest IP packet in bytes, 68 to 9216; default 1500.
    pub mtu: u16,
    /// Whether frames for any address, unicast and multicast, are received; default true, as a forwarder needs.
    pub promiscuous: bool,
    /// Whether frames for any multicast address are received; default true. A promiscuous port receives them in any
    /// case.
    pub all_multicast: bool,
    /// How flows are spread over receive queues. A virtio device with several queues that does not offer RSS accepts only
    /// the default.
    pub rss: Rss,
    /// Whether the device is to report the RSS hash and the packet type of each received frame ([`crate::RxInfo`]);
    /// default false. An 82599 does in any case. A virtio device can, if it offers VIRTIO_NET_F_HASH_REPORT; then each
    /// frame sent takes a descriptor more.
    pub report_hash: bool,
    /// Whether to use the device's checksum offload where it has one (virtio); default false. If true, frames may
    /// arrive with a partial checksum ([`mempool::Packet::checksum`]), and frames that have one are sent with it. Any
    /// frame about which the device reports something takes a slower path. This pays off between ports whose peers do
    /// without checksums, such as virtual machines of one host.
    pub checksum_offload: bool,
    /// Whether the device takes the VLAN tag (EtherType 0x8100) out of each received frame that has one; default false.
    /// The tag is then found only in [`crate::RxInfo::vlan_tag`]. An 82599 can do it
    /// ([`crate::Capabilities::strip_vlan`]).
    pub strip_vlan: bool,
    /// Whether the receive queues and the port have interrupts to wait for; default off. Through sysfs there are no
    /// interrupts.
    pub interrupts: Interrupts,
    /// Allows PCI devices that no IOMMU guards to be opened, through sysfs (needs root and huge pages); default `None`,
    /// which does not. Such a device can overwrite any memory of the host, so somebody has to vouch for it. Devices
    /// with an IOMMU group are opened through VFIO in any case. This setting is for code that opens devices by address,
    /// not for drivers.
    pub no_iommu: Option<NoIommu>,
    /// Allows devices that another process emulates to be opened; default `None`: addresses of such devices are
    /// refused. The process shares packet memory, so somebody has to vouch for it. This setting is for code that opens
    /// devices by address, not for drivers.
    pub trusted_peer: Option<TrustedPeer>,
    /// Time limit of each operation as a whole (open, close, a command, a reconnect), and a flag that ends it earlier;
    /// default 5 s without a flag. If the device was opened within a deadline that still runs, opening the port keeps
    /// to that deadline. Closing ignores the flag, and may take a second more.
    pub time_limit: TimeLimit,
}

impl PortConfig {
    /// Returns the size of the largest frame in bytes: MTU, Ethernet header and two VLAN tags (IEEE 802.1ad), without frame
    /// check sequence.
    #[must_use]
    pub fn max_frame(&self) -> usize {
        usize::from(self.mtu) + ETHERNET_HEADER + 2 * VLAN_TAG
    }

    /// Checks each setting against the range that holds for every device. See [`Self::validate_for`] for the
    /// limits of a device.
    ///
    /// # Errors
    ///
    /// If a setting is out of range; the error names the first such setting and its range.
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

    /// Checks each setting as [`Self::validate`] does, and against what a device can do: the number of its queues, its MTU, RSS,
    /// VLAN tags and interrupts. For drivers that know it before they open the device.
    ///
    /// # Errors
    ///
    /// If a setting is out of range, or asks for what the device cannot do; the error names the first such setting.
    pub fn validate_for(&self, can: &Capabilities) -> Result<(), ConfigError> {
        self.validate()?;
        ConfigError::unless_in("rx_queues", self.rx_queues, 1..=can.rx_queues, "queues")?;
        ConfigError::unless_in("tx_queues", self.tx_queues, 1..=can.tx_queues, "queues")?;
        ConfigError::unless_in("mtu", self.mtu, 68..=can.mtu, "bytes")?;
        let (reach, entries) = can.rss.map_or((can.rx_queues, 0), |rss| (rss.queues, rss.table));
        self.rss.validate(self.rx_queues, reach, entries)?;
        if self.strip_vlan && !can.strip_vlan {
            let problem = "this device leaves VLAN tags in frames; leave it false, and read tags from the frames";
            return Err(ConfigError::new("strip_vlan", problem));
        }
        if self.interrupts == Interrupts::Required && !can.interrupts {
            return Err(ConfigError::new("interrupts", "this device has none; poll it"));
        }
        Ok(())
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
            report_hash: false,
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
    use crate::{HashTypes, Reta, RssCapabilities};

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

    #[test]
    fn what_a_device_cannot_do_is_refused() {
        type Change = fn(&mut PortConfig);
        let refusal = |can: &Capabilities, change: Change| {
            let mut config = PortConfig::default();
            change(&mut config);
            config.validate_for(can).err().map(|error| error.to_string())
        };
        let mut can = Capabilities::new();
        assert_eq!(refusal(&can, |_| ()), None);
        assert_eq!(refusal(&can, |c| c.interrupts = Interrupts::IfAvailable), None);
        assert_eq!(refusal(&can, |c| c.rx_queues = 2).unwrap(), "rx_queues: 2 queues: must be 1 to 1");
        assert_eq!(refusal(&can, |c| c.tx_queues = 2).unwrap(), "tx_queues: 2 queues: must be 1 to 1");
        assert_eq!(refusal(&can, |c| c.mtu = 1501).unwrap(), "mtu: 1501 bytes: must be 68 to 1500");
        let changes: [(&str, Change); 3] = [
            ("rss.reta: this device has no table", |c| c.rss.reta = Reta::Table(vec![0])),
            ("strip_vlan: this device leaves", |c| c.strip_vlan = true),
            ("interrupts: this device has none", |c| c.interrupts = Interrupts::Required),
        ];
        for (words, change) in changes {
            assert!(refusal(&can, change).unwrap().starts_with(words));
        }
        (can.strip_vlan, can.interrupts) = (true, true);
        can.rss = Some(RssCapabilities::new(1, 128, HashTypes::default()));
        for (_, change) in changes {
            assert_eq!(refusal(&can, change), None);
        }
    }
}
