//! Routes from a file.

use super::Opening;
use super::reload::Reloader;
use crate::args::{L3Args, MissChoice};
use crate::summary::{self, Tables};
use anyhow::ensure;
use cli::exit::Failure;
use cli::ports;
use cli::stop::Stop;
use router::{Fib, Miss};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

/// Routes by a file, which SIGHUP reads again.
pub(super) fn run(args: &L3Args, routes: &Path) -> Result<(), Failure> {
    let L3Args { forward, miss, promiscuous, .. } = args;
    refuse_routes_as_output(routes, &forward.ports)?;
    ports::check(&forward.ports)?;
    let stop = Stop::on_signals()?;
    let reloader = Reloader::on_hangup(routes, forward.ports.len())?;
    let routes = reloader.read(&stop)?;
    let mut opening = Opening::open(forward, stop, 0)?;
    let fib = Fib::new(&routes, &opening.interfaces(*promiscuous))?;
    drop(routes);
    let miss = match miss {
        MissChoice::Drop => Miss::Refuse,
        MissChoice::Return => Miss::Return,
    };
    let forwarders: Vec<_> = opening.plan.workers.iter().map(|_| fib.forwarder(miss)).collect();
    let reloading = reloader.start(fib)?;
    opening.screen.say(&reloading.note());
    let (run, workers) = opening.workers(forwarders);
    let members = workers.into_iter().map(|(lcore, worker)| (lcore, move || worker.run())).collect();
    let outcome = run.supervise(members, || vec![reloading.note()])?;
    summary::print("l3", &outcome, &forward.run, &Tables { routes: Some(reloading.end()), kernel: None })?;
    outcome.result
}

/// Opening a port empties the capture that it writes, so none may be the routes file, however either is named.
fn refuse_routes_as_output(routes: &Path, ports: &[nic::Address]) -> anyhow::Result<()> {
    // What does not exist cannot be the same, and the way to a file is told by who opens it.
    let identity = |path: &Path| {
        let found = path.metadata().ok()?;
        // Any number may share a device node such as /dev/null.
        (!found.file_type().is_char_device()).then(|| (found.dev(), found.ino()))
    };
    let Some(file) = identity(routes) else { return Ok(()) };
    for (port, output) in ports.iter().flat_map(|port| capture_outputs(port).map(move |output| (port, output))) {
        ensure!(
            identity(Path::new(output)) != Some(file),
            "{}: cannot use {output} as a capture or trace: it is the routes file {}, which is being read; name a file of its own for \
             each output",
            port.name(),
            routes.display()
        );
    }
    Ok(())
}

/// The captures and traces that a port's address says it writes: `OUT` of `wire=pcap:IN,OUT`, and `FILE` of `trace=FILE`.
fn capture_outputs(port: &nic::Address) -> impl Iterator<Item = &str> {
    let settings = match port {
        nic::Address::Soft(spec) => spec.split_once('?').map_or("", |(_, settings)| settings),
        _ => "",
    };
    settings.split('&').filter_map(|setting| match setting.split_once('=')? {
        ("trace", file) => Some(file),
        ("wire", wire) => Some(wire.strip_prefix("pcap:")?.split_once(',')?.1),
        _ => None,
    })
}
