//! Settings of a port.

use crate::{Features, Result};
use ethdev::{ConfigError, PortConfig};
use std::collections::BTreeSet;

/// Settings of a virtio port. Start from the default and change fields; opening a port validates them.
///
/// ```
/// use ethdev::PortConfig;
/// use virtio::Config;
///
/// let config = Config::from(PortConfig { rx_queues: 1, tx_queues: 2, ..PortConfig::default() });
/// assert!(config.validate().unwrap_err().to_string().starts_with("rx_queues: 1 of them, and 2 transmit queues"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// The settings that every port has. With several receive queues the device chooses one for each frame: by RSS where
    /// it offers that (`VIRTIO_NET_F_RSS`), and by rules of its own otherwise (section 5.1.6.5.6); then [`PortConfig::rss`]
    /// must be the default. A frame for a queue that is not polled would be lost, so there must be at least
    /// as many receive queues as transmit queues. Receiving frames longer than a buffer needs a device that can use
    /// several buffers for a frame.
    pub port: PortConfig,
    /// Features that are not used even if the device offers them; default none.
    pub refuse: Features,
    /// The station address that the device is to have; `None` for its own.
    pub(crate) mac: Option<[u8; 6]>,
    /// VLANs whose frames it is to receive.
    pub(crate) vlans: BTreeSet<u16>,
    /// Groups whose frames it is to receive.
    pub(crate) groups: Vec<[u8; 6]>,
}

impl Config {
    /// Returns the number of queue pairs that the device must have: virtio queues come in pairs (section 5.1.2).
    #[must_use]
    pub fn pairs(&self) -> u16 {
        self.port.rx_queues
    }

    /// Checks that every setting is in its range.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Config`] names the first setting that is wrong and the values it may have.
    pub fn validate(&self) -> Result<()> {
        let PortConfig { rx_queues, tx_queues, strip_vlan, .. } = &self.port;
        self.port.validate()?;
        if rx_queues < tx_queues {
            let problem = format!(
                "{rx_queues} of them, and {tx_queues} transmit queues: a virtio device spreads frames over all its pairs of \
                 queues; poll as many receive queues as there are transmit queues"
            );
            return Err(ConfigError::new("rx_queues", problem).into());
        }
        if *strip_vlan {
            let problem = "a virtio device leaves VLAN tags in frames; leave it false, and read tags from the frames";
            return Err(ConfigError::new("strip_vlan", problem).into());
        }
        Ok(())
    }
}

impl From<PortConfig> for Config {
    fn from(port: PortConfig) -> Self {
        Self { port, ..Self::default() }
    }
}

pub(crate) const ETHERNET_HEADER: u16 = 14;
pub(crate) const VLAN_TAG: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(change: impl FnOnce(&mut PortConfig)) -> Option<String> {
        let mut config = Config::default();
        change(&mut config.port);
        config.validate().err().map(|error| error.to_string())
    }

    #[test]
    fn queues_come_in_pairs_that_the_device_spreads_flows_over() {
        assert_eq!(refusal(|c| (c.rx_queues, c.tx_queues) = (64, 64)), None);
        assert_eq!(refusal(|c| (c.rx_queues, c.tx_queues) = (4, 2)), None);
        assert!(refusal(|c| c.tx_queues = 2).unwrap().contains("poll as many receive queues"));
        assert!(refusal(|c| c.mtu = 67).unwrap().starts_with("mtu: 67 bytes"));
    }

    #[test]
    fn vlan_tags_stay_where_they_are() {
        assert!(refusal(|c| c.strip_vlan = true).unwrap().starts_with("strip_vlan: a virtio device leaves VLAN tags"));
        assert_eq!(refusal(|c| c.strip_vlan = false), None);
    }
}
