//! What a user chooses about a port.

use crate::{Error, Features, Result};
use device::{Interrupts, TimeLimit};

/// Settings of a port. Take the default and change fields; opening a port validates them.
///
/// ```
/// use virtio::Config;
///
/// let mut config = Config::default();
/// config.rx_ring = 1000;
/// let error = config.validate().unwrap_err();
/// assert_eq!(error.to_string(), "rx_ring: 1000 descriptors: must be a power of two from 64 to 4096");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// Receive queues, 1 to 64, and no fewer than transmit queues; default 1. The device decides which frame goes to which,
    /// and does so over as many as it has pairs (section 5.1.6.5.6): a frame for a queue that nobody polls would be lost.
    pub rx_queues: u16,
    /// Transmit queues, 1 to 64; default 1.
    pub tx_queues: u16,
    /// Descriptors of a receive queue: a power of two from 64 to 4096; default 512. A device that allows fewer gets fewer.
    pub rx_ring: u16,
    /// Descriptors of a transmit queue, likewise.
    pub tx_ring: u16,
    /// Largest IP packet in bytes, 68 to 9216; default 1500. Frames longer than a buffer need a device that can use several.
    pub mtu: u16,
    /// Receive frames for any address, where the device can be told so; default true, as a forwarder needs.
    pub promiscuous: bool,
    /// Use the device's checksum offload where it has one; default false. Frames may then arrive with a partial checksum
    /// ([`mempool::Packet::checksum`]), and those that have one leave with it. Any frame of which the device says something
    /// takes a slower path. Worth it between ports whose peers do without checksums, such as virtual machines of one host.
    pub checksum_offload: bool,
    /// Whether receive queues can be waited for; default off. There are no interrupts through sysfs.
    pub interrupts: Interrupts,
    /// Features not to use even if the device offers them; default none.
    pub refuse: Features,
    /// Limit of each operation as a whole (open, close, a command, a reconnect), and what ends it earlier; 5 s by default.
    pub time_limit: TimeLimit,
}

impl Config {
    /// The largest frame in bytes: MTU, Ethernet header and one VLAN tag.
    #[must_use]
    pub fn max_frame(&self) -> usize {
        usize::from(self.mtu) + usize::from(ETHERNET_HEADER) + VLAN_TAG
    }

    /// Queue pairs that the device must have: virtio has queues in pairs (section 5.1.2).
    #[must_use]
    pub fn pairs(&self) -> u16 {
        self.rx_queues
    }

    /// Checks every setting against its range.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] names the first setting that is wrong and what it may be.
    pub fn validate(&self) -> Result<()> {
        in_range("rx_queues", self.rx_queues, 1, 64, "queues")?;
        in_range("tx_queues", self.tx_queues, 1, 64, "queues")?;
        if self.rx_queues < self.tx_queues {
            let problem = format!(
                "{} of them, and {} transmit queues: a virtio device spreads frames over all its pairs of queues; \
                 poll as many receive queues as there are transmit queues",
                self.rx_queues, self.tx_queues
            );
            return Err(Error::config("rx_queues", problem));
        }
        for (setting, size) in [("rx_ring", self.rx_ring), ("tx_ring", self.tx_ring)] {
            if !size.is_power_of_two() || !(64..=4096).contains(&size) {
                let problem = format!("{size} descriptors: must be a power of two from 64 to 4096");
                return Err(Error::config(setting, problem));
            }
        }
        in_range("mtu", self.mtu, 68, 9216, "bytes")
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            rx_queues: 1,
            tx_queues: 1,
            rx_ring: 512,
            tx_ring: 512,
            mtu: 1500,
            promiscuous: true,
            checksum_offload: false,
            interrupts: Interrupts::Off,
            refuse: Features::default(),
            time_limit: TimeLimit::default(),
        }
    }
}

fn in_range(setting: &'static str, value: u16, least: u16, most: u16, unit: &str) -> Result<()> {
    if (least..=most).contains(&value) {
        Ok(())
    } else {
        Err(Error::config(setting, format!("{value} {unit}: must be {least} to {most}")))
    }
}

pub(crate) const ETHERNET_HEADER: u16 = 14;
pub(crate) const VLAN_TAG: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(change: impl FnOnce(&mut Config)) -> Option<String> {
        let mut config = Config::default();
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
        assert_eq!(refusal(|c| (c.rx_queues, c.tx_queues) = (4, 2)), None);
        assert!(refusal(|c| c.tx_queues = 2).unwrap().contains("poll as many receive queues"));
        assert_eq!(refusal(|c| c.mtu = 67).unwrap(), "mtu: 67 bytes: must be 68 to 9216");
        for size in [0, 32, 100, 8192] {
            assert!(refusal(|c| c.rx_ring = size).unwrap().starts_with("rx_ring"));
            assert!(refusal(|c| c.tx_ring = size).unwrap().starts_with("tx_ring"));
        }
    }
}
