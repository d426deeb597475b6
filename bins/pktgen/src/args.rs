//! The command line.

mod bench;
mod calibrate;
mod control;
mod hosting;
mod pace;
mod ping;
mod rfc2544;
mod run;
mod traffic;

pub(crate) use bench::BenchArgs;
pub(crate) use calibrate::CalibrateArgs;
pub(crate) use control::{ControlAddress, ControlArgs, SteeredArgs};
pub(crate) use hosting::{Answering, Hosting};
pub(crate) use pace::{Pace, Spread, time as short_time};
pub(crate) use ping::PingArgs;
pub(crate) use rfc2544::{ReportArgs, Rfc2544Args, Size, Test};
use run::percent;
pub(crate) use run::{Around, RunArgs};
pub(crate) use traffic::TrafficArgs;

use clap::{Parser, Subcommand};
use cli::args::{PortOptions, RunOptions};
use cli::idle::IdleMode;
use nic::{Address, MacAddress};

/// Sends numbered frames through user-space drivers, and measures what arrives.
///
/// A PORT is a PCI address such as 0000:03:00.0 or 03:00.0, soft:NAME?wire=... for a software 82599 (wires: sink, loop,
/// peer:NAME, tap:IFNAME, pcap:IN,OUT, gen), vhost-user:/path for a port of a virtual switch (with ?server if the switch
/// is to connect), or null:NAME for no device, only a drain (and frames of others).
#[derive(Parser, Debug)]
#[command(name = "pktgen", version, max_term_width = 110, arg_required_else_help = false)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Send frames, as fast as the ports take them or at a rate
    Tx(Box<TxArgs>),
    /// Receive frames; find those that were lost, came late or came twice. The frames that end what a sender has sent say how many there were
    Rx(RxArgs),
    /// Send and receive on pairs of ports, or on one with a loop, and report rates, loss, reordering and latency of each direction
    Run(Box<SteeredArgs>),
    /// Measure the instrument against itself, over a cable or a loop, and write what that is for later reports
    Calibrate(Box<CalibrateArgs>),
    /// Ping a host by a port, and by the kernel beside it: how long round trips take, and how many get lost
    Ping(Box<PingArgs>),
    /// Benchmark a device between two ports by RFC 2544 and its successors: throughput, latency, frame loss, back-to-back frames
    Rfc2544(Box<Rfc2544Args>),
    /// Show what rfc2544 has measured, from the folders that it has written
    Report(ReportArgs),
    /// Do experiments again that ixy, the white paper, the thesis and the notes on Open vSwitch have, beside their figures
    Bench(Box<BenchArgs>),
}

#[derive(clap::Args, Debug)]
pub(crate) struct TxArgs {
    /// Ports
    #[arg(required = true, value_name = "PORT")]
    pub(crate) ports: Vec<Address>,

    #[command(flatten)]
    pub(crate) traffic: TrafficArgs,

    #[command(flatten)]
    pub(crate) hosting: Hosting,

    /// Stop after so many frames on each port. What a port has not sent a second after that is not sent, and the exit code
    /// is 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    pub(crate) count: Option<u64>,

    /// Exit with 3 if less of --rate is offered, by so many percent of it [default: 0.1]
    #[arg(long, value_name = "PERCENT", value_parser = percent, num_args = 0..=1, default_missing_value = "0.1")]
    pub(crate) expect_rate: Option<f64>,

    /// How often to say at the end how many frames there were, in a frame of each stream every 10 ms; 0 for never
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub(crate) ends: u32,

    /// What steers a run, and the next: refused with the reason
    #[arg(long, alias = "script", hide = true, overrides_with = "control")]
    pub(crate) control: Option<String>,

    #[arg(long, alias = "stopped", hide = true, overrides_with = "live")]
    pub(crate) live: bool,

    #[command(flatten)]
    pub(crate) port_options: PortOptions,

    #[command(flatten)]
    pub(crate) run: RunOptions,
}

#[derive(clap::Args, Debug)]
pub(crate) struct RxArgs {
    /// Ports
    #[arg(required = true, value_name = "PORT")]
    pub(crate) ports: Vec<Address>,

    /// What lcores do while there are no frames [default: hybrid where all ports of an lcore have interrupts, else poll]
    #[arg(long, value_name = "HOW")]
    pub(crate) idle: Option<IdleMode>,

    /// Leave the checksums of frames that arrive unread, for streams in which they are wrong, and for less work at the highest rates;
    /// then damage in a frame is not seen
    #[arg(long)]
    pub(crate) no_verify: bool,

    /// Exit with 3 if more is lost of all streams together, in percent of the frames sent (0, 0.5); if nothing came, or the end of a stream
    /// did not, that is not known, and the exit code is 3 too
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub(crate) expect_loss: Option<f64>,

    #[command(flatten)]
    pub(crate) answering: Answering,

    #[command(flatten)]
    pub(crate) port_options: PortOptions,

    #[command(flatten)]
    pub(crate) run: RunOptions,
}

fn mac(text: &str) -> Result<[u8; 6], String> {
    let address = text.parse::<MacAddress>().map_err(|_| "write six hexadecimal bytes, such as 02:00:00:00:00:02")?;
    Ok(address.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_six_bytes() {
        assert_eq!(mac("02:00:5e:00:00:fF"), Ok([2, 0, 0x5e, 0, 0, 0xff]));
        for text in [
            "",
            "02",
            "2:0:0:0:0:2",
            "02:00:00:00:00",
            "02:00:00:00:00:00:00",
            "02-00-00-00-00-02",
            "+2:00:00:00:00:02",
        ] {
            assert!(mac(text).is_err(), "{text}");
        }
    }
    use clap::CommandFactory as _;

    #[test]
    fn the_definition_is_consistent() {
        Args::command().debug_assert();
    }
}
