//! `softnic`: serves software 82599s to drivers in other processes, and to QEMU, on Unix sockets.

#![forbid(unsafe_code)]

use clap::Parser;
use cli::exit::{self, Failure};
use cli::human::grouped;
use cli::stop::Stop;
use softnic::{Error, VfioUserServer};
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// Serves software 82599 NICs over vfio-user, each on a Unix socket of its own, until SIGINT or SIGTERM.
///
/// Clients come and go; a device is reset in between. Open one with fwd l2 vfio-user:/tmp/a.sock vfio-user:/tmp/b.sock, or
/// in QEMU with -device '{"driver":"vfio-user-pci","socket":{"type":"unix","path":"/tmp/a.sock"}}', the guest's memory being
/// a memory-backend-memfd with share=on.
#[derive(Parser, Debug)]
#[command(name = "softnic", version, max_term_width = 110)]
struct Args {
    /// Pairs of a socket and the device behind it, such as /tmp/a.sock 'a?wire=gen' /tmp/b.sock 'b?wire=sink'.
    ///
    /// A device is NAME?key=value&...; keys: wire (gen, sink, loop, peer:NAME, tap:IFNAME, pcap:IN,OUT), size, flows, count,
    /// rate, mode, id (10f9, 10fb), mac, link, fault.
    #[arg(required = true, value_name = "SOCKET NAME?wire=...")]
    devices: Vec<String>,

    /// Print nothing but errors
    #[arg(short, long)]
    quiet: bool,
}

fn main() -> ExitCode {
    exit::run("softnic", || {
        let args: Args = exit::parse("softnic")?;
        let (pairs, rest) = args.devices.as_chunks::<2>();
        if let [socket] = rest {
            return Err(Failure::usage(format!(
                "{socket}: no device for this socket; name pairs: SOCKET 'NAME?wire=...'"
            )));
        }
        let stop = Stop::on_signals()?;
        let mut servers = Vec::new();
        for [socket, spec] in pairs {
            let server = VfioUserServer::start(spec, Path::new(socket)).map_err(failure)?;
            say(&args, format_args!("{spec} serves at {socket}"))?;
            servers.push(server);
        }
        say(&args, format_args!("ready"))?;
        while !stop.is_requested() {
            stop.wait(Duration::from_secs(3600), []);
        }
        for (server, [socket, _]) in servers.iter().zip(pairs) {
            let wire = server.control().wire_counters();
            let (offered, delivered, sent) = (grouped(wire.offered), grouped(wire.delivered), grouped(wire.sent));
            say(&args, format_args!("{socket}: {offered} frames offered, {delivered} delivered, {sent} sent"))?;
            let (count, last) = server.control().violations();
            if count != 0 {
                say(&args, format_args!("{socket}: {} mistakes of the driver, the last of them:", grouped(count)))?;
            }
            for violation in last {
                say(&args, format_args!("  {violation}"))?;
            }
        }
        Ok(())
    })
}

/// Mistakes in a specification are the command line's.
fn failure(error: Error) -> Failure {
    match error {
        Error::UnknownKey { .. } | Error::BadValue { .. } | Error::BadSpec { .. } => Failure::usage(error),
        _ => error.into(),
    }
}

fn say(args: &Args, line: std::fmt::Arguments<'_>) -> io::Result<()> {
    if args.quiet { Ok(()) } else { writeln!(io::stdout(), "{line}") }
}
