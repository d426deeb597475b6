//! Settings of a port.

use crate::ids::RETA_ENTRIES;
use crate::{MacType, Result};
use ethdev::{ConfigError, PortConfig, Statistics};

/// Settings of a port of this family. Start from the default and change fields; opening a port validates them.
///
/// ```
/// use ethdev::PortConfig;
/// use igb::{Config, MacType};
///
/// let config = Config::from(PortConfig { rx_queues: 16, ..PortConfig::default() });
/// config.validate(MacType::Mac82576)?;
/// let error = config.validate(MacType::I350).unwrap_err();
/// assert_eq!(error.to_string(), "rx_queues: 16 queues: must be 1 to 8");
/// # Ok::<(), igb::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// The settings that every port has. There can be 16 queues each way on an 82576, and 8 on an I350.
    pub port: PortConfig,
    /// The minimum time between two interrupts of a queue in microseconds: 0 (no limit) to 8191; default 20. A thread that
    /// waits for a frame may wake later by up to that time.
    pub interrupt_interval_us: u16,
}

impl Config {
    /// Returns the size of the largest frame in bytes: MTU, Ethernet header, two VLAN tags and CRC.
    #[must_use]
    pub fn max_frame(&self) -> usize {
        self.port.max_frame() + CRC
    }

    /// Checks that every setting is in its range for a MAC of type `mac`.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Config`] names the first setting that is wrong and the values it may have.
    pub fn validate(&self, mac: MacType) -> Result<()> {
        let PortConfig { rx_queues, tx_queues, strip_vlan, .. } = self.port;
        self.port.validate()?;
        ConfigError::unless_in("rx_queues", rx_queues, 1..=mac.queues(), "queues")?;
        ConfigError::unless_in("tx_queues", tx_queues, 1..=mac.queues(), "queues")?;
        ConfigError::unless_in("interrupt_interval_us", self.interrupt_interval_us, 0..=8191, "microseconds")?;
        if strip_vlan {
            let problem = "this driver leaves VLAN tags in their frames: leave the setting off";
            return Err(ConfigError::new("strip_vlan", problem).into());
        }
        Ok(self.port.rss.validate(rx_queues, mac.queues(), RETA_ENTRIES)?)
    }
}

impl Default for Config {
    fn default() -> Self {
        PortConfig::default().into()
    }
}

impl From<PortConfig> for Config {
    fn from(port: PortConfig) -> Self {
        Self { port, interrupt_interval_us: 20 }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "4 bytes")]
const CRC: usize = Statistics::CRC as usize;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_is_refused_outside_its_range() {
        let refusal = |change: fn(&mut Config)| {
            let mut config = Config::default();
            change(&mut config);
            config.validate(MacType::Mac82576).err().map(|error| error.to_string())
        };
        assert_eq!(refusal(|c| (c.port.rx_queues, c.port.tx_queues, c.port.mtu) = (16, 16, 9216)), None);
        assert_eq!(refusal(|c| c.port.rx_queues = 17).unwrap(), "rx_queues: 17 queues: must be 1 to 16");
        assert_eq!(refusal(|c| c.port.tx_queues = 17).unwrap(), "tx_queues: 17 queues: must be 1 to 16");
        assert!(refusal(|c| c.interrupt_interval_us = 8192).unwrap().contains("must be 0 to 8191"));
        assert!(refusal(|c| c.port.strip_vlan = true).unwrap().starts_with("strip_vlan"));
        assert!(refusal(|c| c.port.rss.reta = ethdev::Reta::Table(vec![1])).unwrap().contains("queue 1"));
    }
}
