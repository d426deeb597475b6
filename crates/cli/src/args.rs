//! Command-line options that both programs have.

use clap::{Args, ValueEnum};
use device::PageSize;
use std::time::Duration;

/// How long to run, and what to print.
#[derive(Args, Clone, Debug, Default)]
pub struct RunOptions {
    /// Stop after so long: seconds (10, 0.5), or a time with its unit (500ms)
    #[arg(long, value_name = "TIME", value_parser = duration, allow_negative_numbers = true)]
    pub duration: Option<Duration>,

    /// Print one JSON object at the end, on standard output; the live table goes to standard error
    #[arg(long)]
    pub json: bool,

    /// No live table
    #[arg(long, short)]
    pub quiet: bool,

    /// Stop once every finite source (a pcap wire, a gen wire with a count) is played and all rings are empty
    #[arg(long)]
    pub exit_when_idle: bool,
}

/// How ports are opened.
#[derive(Args, Clone, Debug)]
pub struct PortOptions {
    /// Packets moved at a time
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub batch: u16,

    /// Descriptors of each ring: a power of two from 64 to 4096
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = ring_size)]
    pub ring_size: u16,

    /// Largest IP packet in bytes. NICs leave room for a VLAN tag in each frame, and drop what is longer; l3 allows no byte more
    /// [default: 1500, or what the frames that pktgen sends need]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(68..=9216))]
    pub mtu: Option<u16>,

    /// Pages for packet memory; auto takes 2 MiB pages where the host has enough of them
    #[arg(long, value_name = "SIZE", default_value = "auto")]
    pub pages: Pages,

    /// Use checksum offload where devices have it: for programs that pass frames on.
    #[arg(skip)]
    pub checksum_offload: bool,

    /// Open PCI devices that have no IOMMU, through sysfs. You vouch for them: such a device can overwrite any memory
    /// of this host
    #[arg(long)]
    pub unsafe_no_iommu: bool,
}

impl PortOptions {
    /// The largest IP packet in bytes.
    #[must_use]
    pub fn mtu(&self) -> u16 {
        self.mtu.unwrap_or(1500)
    }
}

impl Default for PortOptions {
    fn default() -> Self {
        Self {
            batch: 32,
            ring_size: 512,
            mtu: None,
            pages: Pages::Auto,
            checksum_offload: false,
            unsafe_no_iommu: false,
        }
    }
}

/// The choices of `--pages`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Pages {
    /// 2 MiB pages, else ordinary ones.
    Auto,
    /// Ordinary pages.
    Ordinary,
    /// 2 MiB pages.
    #[value(name = "2M")]
    Huge2M,
    /// 1 GiB pages.
    #[value(name = "1G")]
    Huge1G,
}

impl From<Pages> for PageSize {
    fn from(pages: Pages) -> Self {
        match pages {
            Pages::Auto => Self::Auto,
            Pages::Ordinary => Self::Ordinary,
            Pages::Huge2M => Self::Huge2M,
            Pages::Huge1G => Self::Huge1G,
        }
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    match time(text).ok_or("write seconds, such as 10 or 0.5, or a time with its unit, such as 500ms")? {
        duration if !duration.is_zero() && duration <= Duration::from_secs(1_000_000_000) => Ok(duration),
        _ => Err("must be more than 0 and at most 1,000,000,000 seconds".to_owned()),
    }
}

/// Reads a number with ns, us, ms or s; without unit it is in seconds. `None` if it is none, or more than any [`Duration`].
///
/// ```
/// use std::time::Duration;
///
/// assert_eq!(cli::args::time("1.5ms"), Some(Duration::from_micros(1500)));
/// assert_eq!(cli::args::time("0.5"), Some(Duration::from_millis(500)));
/// assert_eq!(cli::args::time("1 s"), None);
/// ```
#[must_use]
pub fn time(text: &str) -> Option<Duration> {
    let unit = text.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
    let factor = match unit {
        "ns" => 1e-9,
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" | "" => 1.0,
        _ => return None,
    };
    let number: f64 = text[..text.len() - unit.len()].parse().ok()?;
    Duration::try_from_secs_f64(number * factor).ok()
}

fn ring_size(text: &str) -> Result<u16, String> {
    match text.parse::<u16>() {
        Ok(size) if size.is_power_of_two() && (64..=4096).contains(&size) => Ok(size),
        _ => Err("must be a power of two from 64 to 4096".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_positive_numbers_of_seconds() {
        assert_eq!(duration("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        for text in ["", "x", "0", "-1", "nan", "inf", "1e300", "1e-30"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rings_are_powers_of_two() {
        assert_eq!(ring_size("64"), Ok(64));
        assert_eq!(ring_size("4096"), Ok(4096));
        for text in ["", "0", "63", "100", "8192", "-64", "65600", "1k"] {
            assert!(ring_size(text).is_err(), "{text}");
        }
    }
}
