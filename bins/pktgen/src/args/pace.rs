//! Rate and pattern of what is sent.

use cli::exit::Failure;
use measure::{Load, Pattern};
use nic::{Address, AnyTxQueue, Opened, Port as _};
use std::str::FromStr;
use std::time::Duration;

/// How fast frames are sent.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Pace {
    /// Rate of each port that sends: frames a second (1500, 1.5Mpps), bit/s with or without preamble and gap (5G:L1, 5G:L2), or a
    /// share of the line (50%); without it as many as the port takes. Several (1k,2k) are those of the ports that send, in their order
    #[arg(long, value_name = "RATE,RATE", value_delimiter = ',', action = clap::ArgAction::Set)]
    pub(crate) rate: Vec<Load>,

    /// How frames are spread: even (what is not said is), bursts:N, poisson or poisson:SEED; several are those of the ports that send,
    /// in their order
    #[arg(long, value_name = "HOW,HOW", value_delimiter = ',', action = clap::ArgAction::Set)]
    pub(crate) pattern: Vec<Spread>,

    /// How late a frame may be sent (100us, 1ms); what is later by then is missed, and counted
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = time)]
    pub(crate) catch_up: Duration,

    /// Speed of the lines in bit/s, where ports do not have one, such as software NICs
    #[arg(long, value_name = "BPS", value_parser = bits)]
    pub(crate) line: Option<u64>,
}

impl Default for Pace {
    fn default() -> Self {
        Self { rate: Vec::new(), pattern: Vec::new(), catch_up: Duration::from_millis(1), line: None }
    }
}

impl Pace {
    /// An error if the rates or the patterns are neither one nor as many as ports send.
    pub(crate) fn check(&self, senders: usize) -> Result<(), Failure> {
        let refused = |option: String, count: usize, what: &str| {
            let ports = if senders == 1 { "port that sends" } else { "ports that send" };
            let problem = format!("{count} {what} for {senders} {ports}");
            Err(Failure::usage(format!("{option}: {problem}; give one for all, or one for each")))
        };
        if self.rate.len() > 1 && self.rate.len() != senders {
            return refused(format!("--rate {}", self.rates()), self.rate.len(), "rates");
        }
        if self.pattern.len() > 1 && self.pattern.len() != senders {
            return refused(format!("--pattern {}", self.patterns()), self.pattern.len(), "patterns");
        }
        Ok(())
    }

    /// The rates, as they are given.
    pub(crate) fn rates(&self) -> String {
        self.rate.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }

    /// The patterns, as they are given.
    pub(crate) fn patterns(&self) -> String {
        self.pattern.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }

    /// Returns the speed of the line of each port in bit/s, where one is known.
    pub(crate) fn lines(&self, addresses: &[Address], opened: &[Opened]) -> Result<Vec<Option<u64>>, Failure> {
        let line = |(opened, address): (&Opened, &Address)| {
            let is_a_program = address.is_soft() || matches!(address, Address::Null(_));
            // A virtio device has no line, though its driver calls it 10 Gbit/s.
            let is_virtio = matches!(opened.tx.first(), Some(AnyTxQueue::VirtioVfio(_) | AnyTxQueue::VirtioSysfs(_)));
            let speed = if is_a_program || is_virtio { 0 } else { opened.port.link()?.speed_mbps };
            Ok(self.line.or((speed > 0).then(|| u64::from(speed) * 1_000_000)))
        };
        opened.iter().zip(addresses).map(line).collect()
    }
}

/// What the seeds of a port are apart from those of the next: 2^64 divided by the golden ratio, as in SplitMix64.
const APART: u64 = 0x9E37_79B9_7F4A_7C15;

/// The choices of `--pattern`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread(pub(crate) Pattern);

impl Spread {
    /// Returns the pattern of the streams of a port that are paced together: each has random times of its own.
    pub(crate) fn of(self, port: usize, group: usize) -> Pattern {
        match self.0 {
            Pattern::Poisson(seed) => {
                // Seeds of users are small numbers, one beside the other, and must not meet those of other ports.
                let seed = seed.wrapping_add((port as u64).wrapping_mul(APART));
                Pattern::Poisson(seed.wrapping_add((group as u64) << 32))
            }
            other => other,
        }
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Pattern::Even => write!(f, "even"),
            Pattern::Bursts(frames) => write!(f, "bursts:{frames}"),
            Pattern::Poisson(seed) => write!(f, "poisson:{seed}"),
        }
    }
}

impl FromStr for Spread {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "write even, bursts:N (1 to 65535 frames), poisson or poisson:SEED".to_owned();
        let (name, number) = text.split_once(':').map_or((text, None), |(name, number)| (name, Some(number)));
        Ok(Self(match (name, number) {
            ("even", None) => Pattern::Even,
            ("poisson", None) => Pattern::Poisson(1),
            ("poisson", Some(seed)) => Pattern::Poisson(seed.parse().map_err(|_| wrong())?),
            ("bursts", Some(frames)) => match frames.parse::<u16>() {
                Ok(frames) if frames > 0 => Pattern::Bursts(frames.into()),
                _ => return Err(wrong()),
            },
            _ => return Err(wrong()),
        }))
    }
}

pub(super) fn bits(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(Load::Frames(millionths)) if millionths >= 1_000_000 => Ok(millionths / 1_000_000),
        _ => Err("write bits a second, such as 10G or 2.5G".to_owned()),
    }
}

/// A time of at most a second, more than 0.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    match cli::args::time(text) {
        Some(time) if !time.is_zero() && time <= Duration::from_secs(1) => Ok(time),
        _ => Err("write a time of at most a second, such as 100us or 1.5ms".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_have_names_and_numbers() {
        let pattern = |text: &str| text.parse::<Spread>().ok().map(|spread| spread.0);
        assert_eq!(pattern("even"), Some(Pattern::Even));
        assert_eq!(pattern("bursts:16"), Some(Pattern::Bursts(16)));
        assert_eq!(pattern("poisson:9"), Some(Pattern::Poisson(9)));
        for text in ["", "bursts", "bursts:0", "bursts:70000", "even:1", "poisson:x"] {
            assert_eq!(pattern(text), None, "{text}");
        }
    }
}
