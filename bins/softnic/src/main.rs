//! `softnic`: serves software 82599s to drivers in other processes, and to QEMU, on Unix sockets.

#![forbid(unsafe_code)]

use clap::Parser;
use cli::exit::{self, Failure};
use cli::human::grouped;
use cli::output;
use cli::stop::Stop;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use softnic::{Error, SoftControl, VfioUserServer};
use std::io;
use std::path::{self, Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Serves software 82599 NICs over vfio-user, each on a Unix socket of its own, until SIGINT or SIGTERM.
///
/// Clients come and go; a device is reset in between, and serves one at a time: a second one is refused. Open one with fwd l2 vfio-user:/tmp/a.sock vfio-user:/tmp/b.sock, or
/// in QEMU with -device '{"driver":"vfio-user-pci","socket":{"type":"unix","path":"/tmp/a.sock"}}', the guest's memory being
/// a memory-backend-memfd with share=on.
///
/// Exit codes: 0 after SIGINT or SIGTERM, 1 when a device could not be served, a capture not be written or read to its end, or
/// frames not be given to a TAP interface, 2 for a wrong command line; for the latter two with one line that says why. SIGHUP and
/// a closed standard output end nothing.
#[derive(Parser, Debug)]
#[command(name = "softnic", version, max_term_width = 110)]
struct Args {
    /// Pairs of a socket and the device behind it, such as /tmp/a.sock 'a?wire=gen' /tmp/b.sock 'b?wire=sink'.
    ///
    /// A device is NAME?key=value&...; keys: wire (gen, sink, loop, peer:NAME, tap:IFNAME, pcap:IN,OUT), size, flows, count,
    /// rate, mode, id (10f9, 10fb, x540, x550; virtual functions: 10ed, 1515, 1565), module (dac, long-dac, active-dac, sr, lr, dual-sr, dual-sr-1g, 1g-sx, 1g-lx, 1g-t, liar, stuck, stuck-data, none, or a file such as ./sfp.bin that ethtool -m DEV raw on has written), queues, trust and api (of virtual functions: 1, 2 or 4; on or off; 1.0 to 1.7), mac, link, fault, trace (a file: what the driver writes to registers, a line each) and trace-reads (on: what it reads too); for peer loss, loss-burst, duplicate, reorder, delay, jitter, buffer, recovery, seed, after. A capture IN is replayed as fast as the driver takes it; OUT may be a pipe.
    #[arg(required = true, value_name = "SOCKET NAME?wire=...")]
    devices: Vec<String>,

    /// Write down what the driver writes to the registers of the device, a line each: trace=FILE in its address
    ///
    /// With several devices, give each that is to be traced the key in its address.
    #[arg(long, value_name = "FILE")]
    trace: Option<String>,

    /// Write down what the driver reads, too: trace-reads=on in its address
    #[arg(long, requires = "trace")]
    trace_reads: bool,

    /// Print nothing but errors
    #[arg(short, long)]
    quiet: bool,
}

fn main() -> ExitCode {
    exit::run("softnic", || {
        let mut args: Args = exit::parse("softnic")?;
        set_trace(&mut args)?;
        let (pairs, rest) = args.devices.as_chunks::<2>();
        if let [socket] = rest {
            return Err(Failure::usage(format!(
                "{socket}: no device for this socket; name pairs: SOCKET 'NAME?wire=...'"
            )));
        }
        if pairs.iter().any(|[socket, _]| socket.is_empty()) {
            return Err(Failure::usage("\"\": no path of a socket; name pairs: SOCKET 'NAME?wire=...'"));
        }
        for (index, [socket, _]) in pairs.iter().enumerate() {
            let same = |[other, _]: &[String; 2]| place(other) == place(socket);
            if pairs[..index].iter().any(same) {
                return Err(Failure::usage(format!("{socket}: named for two devices; name a socket for each")));
            }
        }
        let stop = Stop::on_signals()?;
        raise_descriptor_limit();
        softnic::check(&pairs.iter().map(|[_, spec]| &**spec).collect::<Vec<_>>()).map_err(failure)?;
        let mut servers = Vec::new();
        for [socket, spec] in pairs {
            servers.push(VfioUserServer::start(spec, Path::new(socket)).map_err(failure)?);
        }
        for (server, [_, spec]) in servers.iter().zip(pairs) {
            if let Some(peer) = server.control().missing_peer() {
                return Err(Failure::usage(format!("{spec}: {peer} is none of the devices; serve {peer} here too")));
            }
        }
        for [socket, spec] in pairs {
            say(&args, format_args!("{spec} serves at {socket}"));
        }
        for (server, [_, spec]) in servers.iter().zip(pairs) {
            if let Some(cause) = server.control().no_carrier() {
                say(&args, format_args!("{spec}: no link yet: {cause}"));
            }
        }
        say(&args, format_args!("ready"));
        while !stop.is_requested() {
            stop.wait(Duration::from_secs(3600), []);
        }
        let controls: Vec<_> = servers.iter().map(VfioUserServer::control).collect();
        // At once, as a client may make each wait for a second. After this all is written that the wires were given.
        std::thread::scope(|scope| {
            for server in servers {
                // Where there is no thread to be had, it is dropped here.
                let _ = std::thread::Builder::new().spawn_scoped(scope, move || drop(server));
            }
        });
        for (control, [socket, _]) in controls.iter().zip(pairs) {
            let wire = control.wire_counters();
            let counts = [wire.offered, wire.delivered, wire.sent, wire.lost];
            let [offered, delivered, sent, lost] = counts.map(grouped);
            say(
                &args,
                format_args!("{socket}: {offered} frames offered, {delivered} delivered, {sent} sent, {lost} lost"),
            );
            let (count, last) = control.violations();
            if count != 0 {
                say(&args, format_args!("{socket}: {} mistakes of the driver, the last of them:", grouped(count)));
            }
            for violation in last {
                say(&args, format_args!("  {violation}"));
            }
        }
        match controls.iter().find_map(SoftControl::wire_error) {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    })
}

/// Adds the keys that `--trace` stands for.
fn set_trace(args: &mut Args) -> Result<(), Failure> {
    let Some(file) = args.trace.as_ref().filter(|_| args.devices.len() > 1) else { return Ok(()) };
    let [_, spec] = &mut args.devices[..] else {
        return Err(Failure::usage("--trace is of one device; of several, write trace=FILE into the address of each"));
    };
    if file.contains('&') {
        return Err(Failure::usage(format!("--trace {file}: an address ends a value at &; choose another name")));
    }
    *spec += &format!("{}trace={file}", if spec.contains('?') { '&' } else { '?' });
    if args.trace_reads {
        *spec += "&trace-reads=on";
    }
    Ok(())
}

/// Where a socket is, by whichever way its folder is named.
fn place(socket: &str) -> Option<PathBuf> {
    let path = path::absolute(socket).ok()?;
    let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
    match (folder, path.file_name()) {
        (Some(folder), Some(name)) => Some(folder.join(name)),
        // No socket can be made there.
        _ => Some(path),
    }
}

/// Lets the process have as many descriptors as it may: a client may bring 66 eventfds for each device.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    // With fewer it serves fewer clients that want interrupts.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Mistakes in a specification are the command line's, and so are devices that do not go together: this process has no others.
fn failure(error: Error) -> Failure {
    match error {
        Error::UnknownKey { .. } | Error::BadValue { .. } | Error::BadSpec { .. } => Failure::usage(error),
        Error::Busy { .. } | Error::Peer { .. } => Failure::usage(error),
        _ => error.into(),
    }
}

/// Prints a line. A standard output that is closed or full does not end the service, and one that nobody reads does not hold it up.
fn say(args: &Args, line: std::fmt::Arguments<'_>) {
    if !args.quiet {
        let _ = output::offer(io::stdout(), &format!("{line}\n"), Duration::from_millis(100));
    }
}
