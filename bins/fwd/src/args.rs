//! The command line.

use clap::{Parser, Subcommand, ValueEnum};
use cli::args::{PortOptions, RunOptions};
use cli::idle::IdleMode;
use cli::lcore::Bindings;
use device::PciAddress;
use nic::Address;
use std::path::PathBuf;

/// Forwards packets between network ports on user-space drivers.
///
/// A PORT is a PCI address such as 0000:03:00.0 or 03:00.0, soft:NAME?wire=... for a software 82599 (wires: gen, sink,
/// loop, peer:NAME, tap:IFNAME, pcap:IN,OUT), vfio-user:/path for a device that another process serves, vhost-user:/path
/// for a port of a virtual switch (with ?server if the switch is to connect), or null:NAME for no device, only frames.
/// Without a command, fwd shows ten seconds of forwarding between two software NICs.
#[derive(Parser, Debug)]
#[command(name = "fwd", version, args_conflicts_with_subcommands = true, max_term_width = 110)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    #[command(flatten)]
    pub(crate) demo: RunOptions,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Forward frames unchanged between pairs of ports: first and second, third and fourth, ...
    L2(ForwardArgs),
    /// Route IPv4 and IPv6 between ports
    L3(L3Args),
    /// Send frames back out of the port they came from, source and destination MAC address exchanged
    Macswap(ForwardArgs),
    /// Receive and count frames
    Rxonly(ForwardArgs),
    /// Say whether this host is ready for its NICs: what breaks a run, what makes it slow, and the commands that mend it
    ///
    /// Changes nothing and needs no root. Exit code 0 if nothing breaks a run, 1 if something does.
    Doctor(DoctorArgs),
    /// List the NICs of this host, whether they can be used, and if not, what to do
    Devices(DevicesArgs),
    /// Test a NIC that no program uses: registers, EEPROM, PHY and module, frames that go round inside it, RSS, interrupts, counters
    ///
    /// Takes up to ten seconds. No frame leaves by the wire; the NIC is reset several times, and its link goes down meanwhile. Exit code
    /// 0 if all is well, 1 if a check failed.
    Selftest(SelftestArgs),
    /// Print the registers of a NIC that no program uses, by name, offset and value; those that reading would change, without value
    ///
    /// Writes none. Opening a NIC through VFIO resets it, so its registers are then as a reset leaves them.
    Registers(AccessArgs),
    /// Give NICs to user space: bind them to vfio-pci. Other devices are refused
    Bind {
        /// PCI addresses
        #[arg(required = true, value_name = "ADDRESS")]
        addresses: Vec<PciAddress>,
        /// Kernel driver to bind to
        #[arg(long, default_value = "vfio-pci")]
        driver: String,
        /// Take a NIC that the kernel uses. A remote session over it ends
        #[arg(long)]
        force: bool,
    },
    /// Give NICs back to the kernel's own driver
    Unbind {
        /// PCI addresses
        #[arg(required = true, value_name = "ADDRESS")]
        addresses: Vec<PciAddress>,
        /// Take a NIC that the kernel uses. A remote session over it ends
        #[arg(long)]
        force: bool,
    },
}

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct DevicesArgs {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,

    /// Open each NIC that is free, which resets it, and print its module, PHY, firmware, PAUSE, RSS, queues and rings
    #[arg(short, long)]
    pub(crate) verbose: bool,

    /// Only these NICs; with --verbose, also those that are not on PCI, such as soft:a?id=10fb
    #[arg(value_name = "ADDRESS")]
    pub(crate) addresses: Vec<Address>,

    #[command(flatten)]
    pub(crate) access: Access,
}

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct SelftestArgs {
    #[command(flatten)]
    pub(crate) device: AccessArgs,

    /// Also write what was found to a file that can be attached to a bug report: it has no addresses and paths of this host, and of
    /// the MAC address only the vendor's part
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
}

/// A device, and how to get at it.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct AccessArgs {
    /// The NIC: an address as those of ports
    #[arg(value_name = "ADDRESS")]
    pub(crate) address: Address,

    #[command(flatten)]
    pub(crate) access: Access,
}

/// How to get at a device.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct Access {
    /// Open PCI devices that have no IOMMU, through sysfs. You vouch for them: such a device can overwrite any memory
    /// of this host
    #[arg(long)]
    pub(crate) unsafe_no_iommu: bool,
}

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct DoctorArgs {
    /// PCI addresses of the NICs to examine; without any, all that there is a driver for
    #[arg(value_name = "ADDRESS")]
    pub(crate) addresses: Vec<PciAddress>,

    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct ForwardArgs {
    /// Ports
    #[arg(required = true, value_name = "PORT")]
    pub(crate) ports: Vec<Address>,

    /// Receive queues of each port, flows being spread over them: up to 16 on 82599, X540 and 82576, 64 on the X550 (63 with
    /// interrupts), 8 on the I350; on a virtual function as many as it is granted, on a virtio device as many as it offers
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) queues: Option<u16>,

    /// Which lcore polls which queue: triples (port,queue,lcore), such as "(0,0,0),(1,0,1)"; ports count from 0
    #[arg(long, value_name = "TRIPLES")]
    pub(crate) lcores: Option<Bindings>,

    /// What lcores do while there are no frames [default: hybrid where all ports of an lcore have interrupts, else poll]
    #[arg(long, value_name = "HOW")]
    pub(crate) idle: Option<IdleMode>,

    /// How long to wait for room in a full transmit ring before frames are dropped, in microseconds; much where no frame
    /// may be lost and the sender can wait [default: 10, and 200000 on software NICs]
    #[arg(long, value_name = "US", value_parser = clap::value_parser!(u32).range(..=10_000_000))]
    pub(crate) tx_wait: Option<u32>,

    /// Let frames pass between virtio ports whose TCP and UDP checksums their senders have left to the device. For virtual
    /// machines of one host; other ports complete the checksums
    #[arg(long)]
    pub(crate) checksum_offload: bool,

    #[command(flatten)]
    pub(crate) port_options: PortOptions,

    #[command(flatten)]
    pub(crate) run: RunOptions,
}

impl ForwardArgs {
    /// How its ports are opened.
    pub(crate) fn port_options(&self) -> PortOptions {
        PortOptions { checksum_offload: self.checksum_offload, ..self.port_options.clone() }
    }
}

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct L3Args {
    /// Routes, one a line: PREFIX via MAC port NUMBER, such as "192.0.2.0/24 via 02:00:00:00:00:02 port 1"; ports count
    /// from 0. SIGHUP reads the file again
    #[arg(long, value_name = "FILE", conflicts_with = "kernel")]
    pub(crate) routes: Option<PathBuf>,

    /// Route by Linux's own tables (`ip route`, FRR, BIRD). Each port has a twin, a TAP interface that Linux sees in its place and answers
    /// by; what the port does not forward goes to it. NAME,... are the twins' names, in the order of ports [default: rw0,rw1,...]
    #[arg(long, value_name = "NAME,...", num_args = 0..=1, require_equals = true, value_delimiter = ',')]
    pub(crate) kernel: Option<Vec<String>>,

    /// What becomes of packets without a route: drop, or return them to the station they came from
    #[arg(long, value_name = "WHAT", default_value = "drop", conflicts_with = "kernel")]
    pub(crate) miss: MissChoice,

    /// Route frames for any station, such as those of a capture, and not only those for the port's own MAC address
    #[arg(long, conflicts_with = "kernel")]
    pub(crate) promiscuous: bool,

    #[command(flatten)]
    pub(crate) forward: ForwardArgs,
}

/// The choices of `--miss`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MissChoice {
    /// Dropped and counted.
    Drop,
    /// Sent back.
    Return,
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
