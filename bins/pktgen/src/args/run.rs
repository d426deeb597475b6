//! `pktgen run`.

use super::pace::time;
use super::{Hosting, TrafficArgs};
use cli::args::PortOptions;
use measure::Load;
use nic::Address;
use std::path::PathBuf;
use std::time::Duration;

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct RunArgs {
    /// Ports in pairs: A B, or A B C D. What one of a pair sends is expected at the other; of a single port at itself, over a loop
    #[arg(required = true, num_args = 1.., value_name = "PORT")]
    pub(crate) ports: Vec<Address>,

    /// Only from the first of each pair to the second
    #[arg(long)]
    pub(crate) one_way: bool,

    /// Queue pairs of each port, each on an lcore of its own as long as there are enough: each sends its part of --rate and --count, and
    /// frames may arrive by any, flows being spread over them; as many as the ports have, up to 64
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) queues: u16,

    #[command(flatten)]
    pub(crate) traffic: TrafficArgs,

    #[command(flatten)]
    pub(crate) hosting: Hosting,

    /// Time before the frames that count, in which as many are sent and none is counted (500ms, 1s; 0s for none)
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time_or_none)]
    pub(crate) warm_up: Duration,

    /// Time in which frames are sent and counted (10s) [default: 10s, or until --count]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub(crate) duration: Option<Duration>,

    /// Frames that are sent and counted each way. Without --duration it is an error if a port takes no more for a second before that
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    pub(crate) count: Option<u64>,

    /// Leave the checksums of frames that arrive unread, which costs less at the highest rates; then damage in a frame is not seen
    #[arg(long)]
    pub(crate) no_verify: bool,

    /// Show what the instrument has measured of itself beside the latencies: a file of pktgen calibrate. Nothing is subtracted
    #[arg(long, value_name = "FILE")]
    pub(crate) floor: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) expect: Expectations,

    /// Print one JSON object at the end, on standard output, after a line of JSON for each get of a --script; the live table goes to standard
    /// error
    #[arg(long)]
    pub(crate) json: bool,

    /// No live table
    #[arg(long, short)]
    pub(crate) quiet: bool,

    #[command(flatten)]
    pub(crate) port_options: PortOptions,

    #[arg(skip)]
    pub(crate) around: Around,
}

/// Times around the frames that count, other than those of `pktgen run`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Around {
    /// Learning frames of each port once probes have come back, besides those that a port which only receives sends with them.
    pub(crate) learning_frames: u32,
    /// From the probes that came back to the first frame after them.
    pub(crate) learning: Duration,
    /// For how long nothing comes at the end before what is missing counts as lost; more than two seconds are not waited for if this
    /// is less.
    pub(crate) silence: Option<Duration>,
    /// The rate of the warm-up, if it is another.
    pub(crate) overload: Option<Load>,
}

/// What has to hold in each direction, or the exit code is 3.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub(crate) struct Expectations {
    /// Exit with 3 if more is lost, in percent of the frames sent (0, 0.5)
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub(crate) expect_loss: Option<f64>,

    /// Exit with 3 if less of --rate is offered, by so many percent of it [default: 0.1]
    #[arg(long, value_name = "PERCENT", value_parser = percent, num_args = 0..=1, default_missing_value = "0.1")]
    pub(crate) expect_rate: Option<f64>,

    /// Exit with 3 if the 99th percentile of the latency from the due time is longer (50us, 1.5ms)
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) expect_latency_p99: Option<Duration>,
}

pub(super) fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
        _ => Err("write a percentage from 0 to 100, such as 0.5".to_owned()),
    }
}

pub(super) fn time_or_none(text: &str) -> Result<Duration, String> {
    cli::args::time(text)
        .filter(|time| *time <= DAY)
        .ok_or_else(|| "write a time in s, ms, us or ns, at most a day, such as 0s or 1.5s".to_owned())
}

pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    match time_or_none(text) {
        Ok(time) if time >= Duration::from_micros(1) => Ok(time),
        _ => Err("write a time in s, ms, us or ns, at most a day, such as 10s or 0.5s".to_owned()),
    }
}

const DAY: Duration = Duration::from_secs(86_400);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        for (text, nanoseconds) in
            [("100us", 100_000), ("1.5ms", 1_500_000), ("0.25", 250_000_000), ("1s", 1_000_000_000)]
        {
            assert_eq!(time(text), Ok(Duration::from_nanos(nanoseconds)), "{text}");
        }
        for text in ["", "us", "-1ms", "1 ms", "1m", "0us", "2s", "nan", "1e3us", "1..5ms"] {
            assert!(time(text).is_err(), "{text}");
        }
        assert_eq!(time_or_none("0s"), Ok(Duration::ZERO));
        assert!(seconds("0s").is_err() && seconds("2d").is_err() && seconds("90000s").is_err());
    }
}
