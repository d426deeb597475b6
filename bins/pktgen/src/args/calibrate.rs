//! `pktgen calibrate`.

use super::run::{Expectations, seconds, time_or_none};
use super::{Around, Hosting, RunArgs, TrafficArgs};
use cli::args::PortOptions;
use measure::Load;
use nic::Address;
use std::path::PathBuf;
use std::time::Duration;
use stream::Sizes;

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct CalibrateArgs {
    /// Two ports with nothing between them but a cable, or one port with a loop
    #[arg(required = true, num_args = 1..=2, value_name = "PORT")]
    pub(crate) ports: Vec<Address>,

    /// Rates, as --rate of run has them
    #[arg(long, value_name = "RATES", value_delimiter = ',', default_value = "1k,10k,100k")]
    pub(crate) rates: Vec<Load>,

    /// Sizes in bytes, each without the 4 of its check sequence
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_value = "60,1514",
          value_parser = clap::value_parser!(u16).range(i64::from(stream::SMALLEST)..=i64::from(stream::LARGEST)))]
    pub(crate) sizes: Vec<u16>,

    /// Speed of the lines in bit/s, where ports do not have one, such as software NICs
    #[arg(long, value_name = "BPS", value_parser = super::pace::bits)]
    pub(crate) line: Option<u64>,

    /// Only from the first port to the second
    #[arg(long)]
    pub(crate) one_way: bool,

    /// Time before the frames that count, at each rate and size
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = time_or_none)]
    pub(crate) warm_up: Duration,

    /// Time in which frames are sent and counted, at each rate and size
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = seconds)]
    pub(crate) duration: Duration,

    /// File to write: JSON, for --floor of run
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: PathBuf,

    /// Print what is written on standard output too
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) port_options: PortOptions,
}

impl CalibrateArgs {
    /// A trial for each size and rate.
    pub(crate) fn trials(&self) -> Vec<RunArgs> {
        let sizes = self.sizes.iter().filter_map(|size| Sizes::constant(*size).ok());
        let rates = |size: Sizes| self.rates.iter().map(move |rate| (size.clone(), *rate));
        let trial = |(size, rate)| RunArgs {
            ports: self.ports.clone(),
            one_way: self.one_way,
            traffic: TrafficArgs::constant(size, rate, self.line),
            hosting: Hosting::default(),
            warm_up: self.warm_up,
            duration: Some(self.duration),
            count: None,
            no_verify: false,
            floor: None,
            expect: Expectations::default(),
            json: self.json,
            quiet: true,
            port_options: self.port_options.clone(),
            queues: 1,
            around: Around::default(),
        };
        sizes.flat_map(rates).map(trial).collect()
    }
}
