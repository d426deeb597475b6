//! What a user chooses about a port.

use crate::{Error, MacType, Result, Rss};
use device::{Interrupts, TimeLimit};

/// Settings of a port. Take the default and change fields; opening a port validates them.
///
/// ```
/// use ixgbe::{Config, MacType};
///
/// let mut config = Config::default();
/// config.rx_queues = 4;
/// config.tx_queues = 4;
/// config.mtu = 9000;
/// config.validate(MacType::Mac82599)?;
/// assert_eq!(config.max_frame(), 9022);
///
/// config.rx_ring = 1000;
/// let error = config.validate(MacType::Mac82599).unwrap_err();
/// assert_eq!(error.to_string(), "rx_ring: 1000 descriptors: must be a power of two from 64 to 4096");
/// # Ok::<(), ixgbe::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// Receive queues, 1 to 64; default 1. RSS reaches 16 of them, on X550 64.
    pub rx_queues: u16,
    /// Transmit queues, 1 to 64; default 1.
    pub tx_queues: u16,
    /// Descriptors of a receive ring: a power of two from 64 to 4096; default 512.
    pub rx_ring: u16,
    /// Descriptors of a transmit ring: a power of two from 64 to 4096; default 512.
    pub tx_ring: u16,
    /// How flows are spread over receive queues.
    pub rss: Rss,
    /// Largest IP packet in bytes, 68 to 9216; default 1500.
    pub mtu: u16,
    /// Receive frames for any unicast address; default true, as a forwarder needs.
    pub promiscuous: bool,
    /// Receive frames for any multicast address; default true, as a forwarder needs.
    pub all_multicast: bool,
    /// When the device fetches and writes back transmit descriptors.
    pub thresholds: Thresholds,
    /// Drop packets for a queue without free descriptors instead of holding up all queues; default true.
    pub drop_en: bool,
    /// Whether receive queues and the port can be waited for; default off. With interrupts there can be 63 receive queues.
    pub interrupts: Interrupts,
    /// Least time between two interrupts of a queue at 10 Gbit/s, in microseconds: 0 (no limit) to 1046; default 20.
    /// Rounded down to steps of 2.048, and ten times as long at 1 Gbit/s. A waiting receive wakes later by up to as much.
    pub interrupt_interval: u16,
    /// How long opening may take as a whole (unless the device was opened within a deadline that still runs: then that
    /// holds), and closing; default 5 s. Closing takes a second more at most, and does not look at the cancel flag.
    pub time_limit: TimeLimit,
}

impl Config {
    /// The largest frame in bytes: MTU, Ethernet header, one VLAN tag and CRC.
    #[must_use]
    pub fn max_frame(&self) -> usize {
        usize::from(self.mtu) + ETHERNET_HEADER + VLAN_TAG + CRC
    }

    /// Checks every setting against its range, for a MAC of type `mac`.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] names the first setting that is wrong and what it may be.
    pub fn validate(&self, mac: MacType) -> Result<()> {
        in_range("rx_queues", self.rx_queues, 1, 64, "queues")?;
        in_range("tx_queues", self.tx_queues, 1, 64, "queues")?;
        for (setting, size) in [("rx_ring", self.rx_ring), ("tx_ring", self.tx_ring)] {
            if !size.is_power_of_two() || !(64..=4096).contains(&size) {
                return Err(Error::config(
                    setting,
                    format!("{size} descriptors: must be a power of two from 64 to 4096"),
                ));
            }
        }
        in_range("mtu", self.mtu, 68, 9216, "bytes")?;
        self.thresholds.validate()?;
        if self.interrupts != Interrupts::Off {
            in_range("rx_queues", self.rx_queues, 1, 63, "queues with interrupts")?;
        }
        in_range("interrupt_interval", self.interrupt_interval, 0, 1046, "microseconds")?;
        crate::rss::validate(&self.rss, self.rx_queues, mac)
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            rx_queues: 1,
            tx_queues: 1,
            rx_ring: 512,
            tx_ring: 512,
            rss: Rss::default(),
            mtu: 1500,
            promiscuous: true,
            all_multicast: true,
            thresholds: Thresholds::default(),
            drop_en: true,
            interrupts: Interrupts::Off,
            interrupt_interval: 20,
            time_limit: TimeLimit::default(),
        }
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
    /// PTHRESH: fetch when the device holds fewer than this; with `write_back` at most 40.
    pub prefetch: u8,
    /// HTHRESH: and at least this many wait in the ring; 1 to 127 unless `prefetch` is 0.
    pub host: u8,
    /// WTHRESH: write back in groups of this many; 0 writes each back at once.
    pub write_back: u8,
}

impl Thresholds {
    fn validate(self) -> Result<()> {
        let Self { prefetch, host, write_back } = self;
        if u32::from(prefetch) + u32::from(write_back) > 40 {
            return Err(Error::config(
                "thresholds",
                format!("prefetch {prefetch} + write_back {write_back}: the device holds 40 descriptors, lower one"),
            ));
        }
        if host > 127 || (prefetch > 0 && host == 0) {
            return Err(Error::config("thresholds", format!("host {host}: must be 1 to 127, or 0 with prefetch 0")));
        }
        Ok(())
    }
}

impl Default for Thresholds {
    fn default() -> Self {
        Self { prefetch: 36, host: 8, write_back: 0 }
    }
}

fn in_range(setting: &'static str, value: u16, least: u16, most: u16, unit: &str) -> Result<()> {
    if (least..=most).contains(&value) {
        Ok(())
    } else {
        Err(Error::config(setting, format!("{value} {unit}: must be {least} to {most}")))
    }
}

const ETHERNET_HEADER: usize = 14;
const VLAN_TAG: usize = 4;
const CRC: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reta;

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
        assert_eq!(
            refusal(|c| (c.rx_queues, c.tx_queues, c.rx_ring, c.tx_ring, c.mtu) = (16, 64, 64, 4096, 9216)),
            None
        );
        assert_eq!(refusal(|c| c.mtu = 68), None);
        assert_eq!(refusal(|c| c.thresholds = Thresholds { prefetch: 0, host: 0, write_back: 40 }), None);
    }

    #[test]
    fn each_setting_is_refused_outside_its_range() {
        assert_eq!(refusal(|c| c.rx_queues = 0).unwrap(), "rx_queues: 0 queues: must be 1 to 64");
        assert_eq!(refusal(|c| c.tx_queues = 65).unwrap(), "tx_queues: 65 queues: must be 1 to 64");
        assert_eq!(refusal(|c| c.mtu = 67).unwrap(), "mtu: 67 bytes: must be 68 to 9216");
        assert_eq!(refusal(|c| c.mtu = 9217).unwrap(), "mtu: 9217 bytes: must be 68 to 9216");
        assert_eq!(
            refusal(|c| c.interrupt_interval = 1047).unwrap(),
            "interrupt_interval: 1047 microseconds: must be 0 to 1046"
        );
        for interrupts in [Interrupts::IfAvailable, Interrupts::Required] {
            let table = Reta::Table(vec![0]);
            let most =
                |queues| refusal(|c| (c.rx_queues, c.interrupts, c.rss.reta) = (queues, interrupts, table.clone()));
            assert_eq!(most(63), None);
            assert_eq!(most(64).unwrap(), "rx_queues: 64 queues with interrupts: must be 1 to 63");
        }
        for size in [0, 32, 100, 8192] {
            assert!(refusal(|c| c.rx_ring = size).unwrap().starts_with("rx_ring"));
            assert!(refusal(|c| c.tx_ring = size).unwrap().starts_with("tx_ring"));
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
        assert!(refusal(|c| c.rx_queues = 17).unwrap().contains("RSS of the 82599 reaches 16"));
        let config = Config { rx_queues: 64, ..Config::default() };
        config.validate(MacType::X550).unwrap();
        assert_eq!(refusal(|c| (c.rx_queues, c.rss.reta) = (64, Reta::Table(vec![15]))), None);
        assert!(refusal(|c| (c.rx_queues, c.rss.reta) = (64, Reta::Table(vec![16]))).unwrap().contains("queue 16"));
        assert!(refusal(|c| c.rss.reta = Reta::Table(vec![1])).unwrap().contains("queue 1"));
        assert!(refusal(|c| c.rss.reta = Reta::Table(vec![])).unwrap().contains("0 entries"));
        assert!(refusal(|c| c.rss.reta = Reta::Table(vec![0; 129])).unwrap().contains("129 entries"));
    }
}
