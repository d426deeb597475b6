//! `pktgen bench`.

use super::pace::bits;
use super::run::{Expectations, seconds};
use super::{Around, Hosting, RunArgs, TrafficArgs};
use crate::bench::NAMES;
use cli::args::PortOptions;
use measure::Load;
use nic::Address;
use std::path::PathBuf;
use std::time::Duration;
use stream::Sizes;

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct BenchArgs {
    /// Experiments [default: all]
    #[arg(value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(NAMES))]
    pub(crate) names: Vec<String>,

    /// Two ports, with a device between them or a cable: frames go from A to B
    #[arg(long, value_name = "A,B", value_delimiter = ',', num_args = 1, default_value = "soft:a?wire=peer:b,soft:b")]
    pub(crate) ports: Vec<Address>,

    /// Folder for results, a file for each experiment, which is replaced once all of it is measured; until then, or if it is cut, what was
    /// measured is in NAME.cut.json
    #[arg(long, value_name = "DIR", required_unless_present = "show", conflicts_with = "show")]
    pub(crate) out: Option<PathBuf>,

    /// Measure nothing; show what is in a folder of an earlier run
    #[arg(long, value_name = "DIR")]
    pub(crate) show: Option<PathBuf>,

    /// Write a page with drawings into a file, in place of what is printed; a file that is there is replaced only if it is a page
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,

    /// Time in which frames are sent and counted, at each point
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = seconds)]
    duration: Duration,

    /// How often each point is measured
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    repetitions: u32,

    /// The first and the last point of each experiment, once and for a tenth of a second: to see that all works
    #[arg(long)]
    pub(crate) quick: bool,

    /// Speed of the line in bit/s, where ports do not have one
    #[arg(long, value_name = "BPS", value_parser = bits)]
    line: Option<u64>,
}

impl BenchArgs {
    /// How often each point is measured.
    pub(crate) fn repetitions(&self) -> u32 {
        if self.quick { 1 } else { self.repetitions }
    }

    /// A trial of frames of so many bytes without check sequence, as fast as the port takes them.
    pub(crate) fn trial(&self, size: u16, flows: u64, port_options: PortOptions) -> Result<RunArgs, String> {
        let sizes = Sizes::constant(size).map_err(|error| error.to_string())?;
        let mut traffic = TrafficArgs::constant(sizes, Load::Frames(1_000_000), self.line);
        (traffic.pace.rate, traffic.flows) = (Vec::new(), flows);
        let duration = if self.quick { Duration::from_millis(100) } else { self.duration };
        Ok(RunArgs {
            ports: self.ports.clone(),
            one_way: true,
            traffic,
            hosting: Hosting::default(),
            warm_up: duration / 4,
            duration: Some(duration),
            count: None,
            no_verify: false,
            floor: None,
            expect: Expectations::default(),
            json: true,
            quiet: true,
            port_options,
            queues: 1,
            around: Around { silence: Some(Duration::from_millis(200)), ..Around::default() },
        })
    }
}
