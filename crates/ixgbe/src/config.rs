//! Settings of a port.

use crate::{MacType, Result};
use device::Interrupts;
use ethdev::{ConfigError, PortConfig, Statistics};

/// Settings of a port of this family. Start from the default and change fields; opening a port validates them.
///
/// ```
/// use ethdev::PortConfig;
/// use ixgbe::{Config, MacType};
///
/// let mut config = Config::from(PortConfig { rx_queues: 4, tx_queues: 4, ..PortConfig::default() });
/// config.interrupt_interval_us = 100;
/// config.validate(MacType::Mac82599)?;
///
/// config.interrupt_interval_us = 2000;
/// let error = config.validate(MacType::Mac82599).unwrap_err();
/// assert_eq!(error.to_string(), "interrupt_interval_us: 2000 microseconds: must be 0 to 1046");
/// # Ok::<(), ixgbe::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// The settings that every port has. RSS can use 16 receive queues, on X550 64; interrupts go with 63 at most, and more have none where
    /// they are not required.
    pub port: PortConfig,
    /// When the device fetches and writes back transmit descriptors.
    pub thresholds: Thresholds,
    /// Drop packets for a queue without free descriptors instead of holding up all queues; default true.
    pub drop_en: bool,
    /// Stop sending while the other end of the link asks for it by PAUSE frames (IEEE 802.3x), which are then discarded; default
    /// true. Without it they are frames like any other, which a promiscuous port delivers and a forwarder passes on, though no bridge may
    /// (82599 datasheet 3.7.7.3.2; IEEE 802.1D, 7.12.6).
    pub receive_pause: bool,
    /// The minimum time between two interrupts of a queue at 10 Gbit/s, in microseconds: 0 (no limit) to 1046; default
    /// 20. It is rounded down to a multiple of 2.048 microseconds, and is ten times as long at 1 Gbit/s. A thread that
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
        self.port.validate()?;
        self.thresholds.validate()?;
        // What the card can do at all comes first.
        self.port.rss.validate(self.port.rx_queues, mac.rss_queues(), mac.reta_entries())?;
        if self.port.interrupts == Interrupts::Required {
            ConfigError::unless_in(
                "rx_queues",
                self.port.rx_queues,
                1..=MOST_WITH_INTERRUPTS,
                "queues with interrupts",
            )?;
        }
        ConfigError::unless_in("interrupt_interval_us", self.interrupt_interval_us, 0..=1046, "microseconds")?;
        Ok(())
    }

    /// Returns which interrupts there are to be with so many queues.
    pub(crate) fn interrupts(&self) -> Interrupts {
        if self.port.rx_queues > MOST_WITH_INTERRUPTS { Interrupts::Off } else { self.port.interrupts }
    }
}

impl Default for Config {
    fn default() -> Self {
        PortConfig::default().into()
    }
}

impl From<PortConfig> for Config {
    fn from(port: PortConfig) -> Self {
        Self { port, thresholds: Thresholds::default(), drop_en: true, receive_pause: true, interrupt_interval_us: 20 }
    }
}

/// Thresholds of a transmit queue, in descriptors (82599 datasheet 7.2.3.4, TXDCTL in 8.2.3.9).
///
/// ```
/// use ixgbe::{Config, MacType, Thresholds};
///
/// let mut config = Config::default();
/// config.thresholds = Thresholds { prefetch: 36, host: 8, write_back: 8 };
/// assert!(config.validate(MacType::X540).is_err(), "36 + 8 is more than 40");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// PTHRESH: the device fetches descriptors when it holds fewer than this; with `write_back` at most 40.
    pub prefetch: u8,
    /// HTHRESH: the device fetches only if at least this many wait in the ring; 1 to 127 unless `prefetch` is 0.
    pub host: u8,
    /// WTHRESH: the device writes back in groups of this many; 0 writes each back at once.
    pub write_back: u8,
}

impl Thresholds {
    fn validate(self) -> Result<(), ConfigError> {
        let Self { prefetch, host, write_back } = self;
        if u32::from(prefetch) + u32::from(write_back) > 40 {
            let problem =
                format!("prefetch {prefetch} + write_back {write_back}: the device holds 40 descriptors, lower one");
            return Err(ConfigError::new("thresholds", problem));
        }
        if host > 127 || (prefetch > 0 && host == 0) {
            return Err(ConfigError::new("thresholds", format!("host {host}: must be 1 to 127, or 0 with prefetch 0")));
        }
        Ok(())
    }
}

impl Default for Thresholds {
    fn default() -> Self {
        Self { prefetch: 36, host: 8, write_back: 0 }
    }
}

/// Receive queues that have a vector each, besides the one for all else: the MSI-X table has 64 (82599 datasheet 7.3).
const MOST_WITH_INTERRUPTS: u16 = 63;
#[expect(clippy::cast_possible_truncation, reason = "4 bytes")]
const CRC: usize = Statistics::CRC as usize;

#[cfg(test)]
mod tests {
    use super::*;
    use ethdev::Reta;

    fn refusal(change: impl FnOnce(&mut Config)) -> Option<String> {
        let mut config = Config::default();
        change(&mut config);
        config.validate(MacType::Mac82599).err().map(|error| error.to_string())
    }

    #[test]
    fn limits_are_inclusive() {
        for mac in [MacType::Mac82599, MacType::X540, MacType::X550] {
            Config::default().validate(mac).unwrap();
        }
        assert_eq!(refusal(|c| (c.port.rx_queues, c.port.tx_queues) = (16, 64)), None);
        assert_eq!(refusal(|c| c.thresholds = Thresholds { prefetch: 0, host: 0, write_back: 40 }), None);
        assert_eq!(refusal(|c| c.interrupt_interval_us = 1046), None);
    }

    #[test]
    fn each_setting_is_refused_outside_its_range() {
        assert_eq!(refusal(|c| c.port.mtu = 67).unwrap(), "mtu: 67 bytes: must be 68 to 9216");
        assert_eq!(
            refusal(|c| c.interrupt_interval_us = 1047).unwrap(),
            "interrupt_interval_us: 1047 microseconds: must be 0 to 1046"
        );
        for interrupts in [Interrupts::IfAvailable, Interrupts::Required] {
            let table = Reta::Table(vec![0]);
            let most = |queues| {
                refusal(|c| {
                    (c.port.rx_queues, c.port.interrupts, c.port.rss.reta) = (queues, interrupts, table.clone())
                })
            };
            assert_eq!(most(63), None);
            let refused = "rx_queues: 64 queues with interrupts: must be 1 to 63".to_owned();
            assert_eq!(most(64), (interrupts == Interrupts::Required).then_some(refused));
        }
        for (prefetch, host, write_back) in [(36, 8, 5), (41, 8, 0), (1, 0, 0), (0, 128, 0)] {
            assert!(
                refusal(|c| c.thresholds = Thresholds { prefetch, host, write_back })
                    .unwrap()
                    .starts_with("thresholds")
            );
        }
    }

    #[test]
    fn queues_that_rss_cannot_reach_want_a_table() {
        for interrupts in [Interrupts::Off, Interrupts::IfAvailable] {
            for queues in [17, 63, 64] {
                let problem = refusal(|c| (c.port.rx_queues, c.port.interrupts) = (queues, interrupts)).unwrap();
                assert!(problem.contains("RSS of this device reaches 16"), "{problem}");
            }
        }
        let config = Config::from(PortConfig { rx_queues: 64, ..PortConfig::default() });
        config.validate(MacType::X550).unwrap();
        let with = |queues, table| refusal(|c| (c.port.rx_queues, c.port.rss.reta) = (queues, Reta::Table(table)));
        assert_eq!(with(64, vec![15]), None);
        assert!(with(64, vec![16]).unwrap().contains("queue 16"));
        assert!(with(1, vec![1]).unwrap().contains("queue 1"));
        assert!(with(1, vec![]).unwrap().contains("0 entries"));
        assert!(with(1, vec![0; 129]).unwrap().contains("129 entries"));
    }
}
