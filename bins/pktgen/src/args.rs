//! The command line.

use crate::frame::{LONGEST, SHORTEST};
use clap::{Parser, Subcommand};
use cli::args::{PortOptions, RunOptions};
use cli::idle::IdleMode;
use nic::Address;

/// Sends numbered UDP/IPv4 frames through user-space drivers, and counts them where they arrive.
///
/// A PORT is a PCI address such as 0000:03:00.0 or 03:00.0, soft:NAME?wire=... for a software 82599 (wires: sink, loop,
/// peer:NAME, tap:IFNAME, pcap:IN,OUT, gen), or vhost-user:/path for a port of a virtual switch (with ?server if the switch
/// is to connect).
#[derive(Parser, Debug)]
#[command(name = "pktgen", version, max_term_width = 110, arg_required_else_help = false)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Send frames, as fast as the ports take them or at a rate
    Tx(TxArgs),
    /// Receive frames; find those that were lost, came late or came twice
    Rx(RxArgs),
}

#[derive(clap::Args, Debug)]
pub(crate) struct TxArgs {
    /// Ports
    #[arg(required = true, value_name = "PORT")]
    pub(crate) ports: Vec<Address>,

    /// Frames a second on each port; without it as many as it takes
    #[arg(long, value_name = "PPS", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub(crate) rate: Option<u64>,

    /// Bytes of a frame, without the 4 of its check sequence
    #[arg(long, value_name = "BYTES", default_value_t = 60,
          value_parser = clap::value_parser!(u16).range(SHORTEST as i64..=LONGEST as i64))]
    pub(crate) size: u16,

    /// Stop after so many frames on each port
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,

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

    #[command(flatten)]
    pub(crate) port_options: PortOptions,

    #[command(flatten)]
    pub(crate) run: RunOptions,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_definition_is_consistent() {
        Args::command().debug_assert();
    }
}
