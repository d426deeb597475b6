//! Settings of a port.

use crate::{MacType, Queues, Result};
use ethdev::{ConfigError, PortConfig, Rss};

/// Settings of a port of a virtual function. Start from the default and change fields; opening a port validates them.
///
/// Receive modes are wishes: where the physical function grants less, the log says so and [`ethdev::Capabilities`] tell.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// The settings that every port has. There can be as many queues each way as the physical function grants. On an 82599 and an X540,
    /// whose hash key and table are the physical function's, several receive queues are 2, 4 or 8, with the default [`Rss`].
    pub port: PortConfig,
    /// The minimum time between two interrupts of a queue in microseconds: 0 (no limit) to 1000; default 20.
    pub interrupt_interval_us: u16,
}

impl Config {
    /// Checks that every setting is in its range for a function of a MAC of type `mac` that was granted `queues`.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Config`] names the first setting that is wrong and the values it may have.
    pub fn validate(&self, mac: MacType, queues: Queues) -> Result<()> {
        let PortConfig { rx_queues, tx_queues, ref rss, .. } = self.port;
        self.port.validate()?;
        let granted = "queues, as the physical function grants";
        ConfigError::unless_in("rx_queues", rx_queues, 1..=queues.receive, granted)?;
        ConfigError::unless_in("tx_queues", tx_queues, 1..=queues.transmit, granted)?;
        ConfigError::unless_in("interrupt_interval_us", self.interrupt_interval_us, 0..=1000, "microseconds")?;
        if mac == MacType::X550 {
            return Ok(rss.validate(rx_queues, queues.receive, RETA_ENTRIES)?);
        }
        if !rx_queues.is_power_of_two() {
            let problem = format!("{rx_queues} queues: RSS of this function reaches 1, 2, 4 or 8");
            return Err(ConfigError::new("rx_queues", problem).into());
        }
        if rx_queues > 1 && *rss != Rss::default() {
            let problem = "hash key, table and types of this function are the physical one's: leave the setting alone";
            return Err(ConfigError::new("rss", problem).into());
        }
        Ok(())
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

/// Entries of an X550 function's own redirection table.
pub(crate) const RETA_ENTRIES: u16 = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use ethdev::Reta;

    fn refusal(mac: MacType, change: fn(&mut PortConfig)) -> Option<String> {
        let mut config = Config::default();
        change(&mut config.port);
        let queues = Queues { transmit: 4, receive: 4 };
        config.validate(mac, queues).err().map(|error| error.to_string())
    }

    #[test]
    fn each_setting_is_refused_outside_its_range() {
        use MacType::{X540, X550};
        assert_eq!(refusal(X540, |c| (c.rx_queues, c.tx_queues, c.mtu) = (4, 3, 9216)), None);
        assert!(
            refusal(X540, |c| c.rx_queues = 5)
                .unwrap()
                .contains("5 queues, as the physical function grants: must be 1 to 4")
        );
        assert!(refusal(X550, |c| c.tx_queues = 5).unwrap().starts_with("tx_queues"));
        assert!(refusal(X540, |c| c.rx_queues = 3).unwrap().contains("reaches 1, 2, 4 or 8"));
        assert_eq!(refusal(X550, |c| c.rx_queues = 3), None);
        let symmetric: fn(&mut PortConfig) = |c| (c.rx_queues, c.rss.key) = (2, Rss::SYMMETRIC_KEY);
        assert!(refusal(X540, symmetric).unwrap().starts_with("rss: "));
        assert_eq!(refusal(X550, symmetric), None);
        assert!(refusal(X550, |c| c.rss.reta = Reta::Table(vec![1])).unwrap().contains("queue 1"));
        assert!(refusal(X540, |c| c.mtu = 67).unwrap().starts_with("mtu"));
    }
}
