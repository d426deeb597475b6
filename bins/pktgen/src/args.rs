//! The command line.

mod pace;
mod run;
mod traffic;

pub(crate) use pace::Pace;
pub(crate) use run::RunArgs;
pub(crate) use traffic::TrafficArgs;

use crate::frame::{LONGEST, SHORTEST};
use clap::{Parser, Subcommand};
use cli::args::{PortOptions, RunOptions};
use cli::idle::IdleMode;
use nic::{Address, MacAddress};
use std::net::Ipv4Addr;

/// Sends numbered UDP/IPv4 frames through user-space drivers, and measures what arrives.
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
    /// Receive frames; find those that were lost, came late or came twice (up to 1,024 numbers late, and between the lowest and the highest that came)
    Rx(RxArgs),
    /// Send and receive on pairs of ports, and report rates, loss, reordering and latency of each direction
    Run(Box<RunArgs>),
}

#[derive(clap::Args, Debug)]
pub(crate) struct TxArgs {
    /// Ports
    #[arg(required = true, value_name = "PORT")]
    pub(crate) ports: Vec<Address>,

    #[command(flatten)]
    pub(crate) pace: Pace,

    /// Bytes of a frame, without the 4 of its check sequence
    #[arg(long, value_name = "BYTES", default_value_t = 60,
          value_parser = clap::value_parser!(u16).range(SHORTEST as i64..=LONGEST as i64))]
    pub(crate) size: u16,

    /// MAC address that frames are for: that of the next hop, such as a port of a router
    #[arg(long, value_name = "MAC", default_value = "02:00:00:00:00:02", value_parser = mac)]
    pub(crate) dst_mac: [u8; 6],

    /// IPv4 address that frames are for
    #[arg(long, value_name = "ADDRESS", default_value = "198.19.0.1")]
    pub(crate) dst_ip: Ipv4Addr,

    /// Flows to send in turn; they differ in the source address, from 198.18.0.1 upwards
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=65_534))]
    pub(crate) flows: u16,

    /// Stop after so many frames on each port. What a port has not sent a second after that is not sent, and the exit code
    /// is 1
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
