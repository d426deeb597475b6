//! Latency by the kernel and past it, in network namespaces of their own.

use super::results::{Measured, Results};
use super::signalled;
use anyhow::{Context as _, anyhow};
use cli::exit::Failure;
use cli::stop::Stop;
use serde_json::Value;
use std::process::{Command, Stdio};

/// Makes the namespaces, and pings.
const SCRIPT: &str = include_str!("pings.sh");

/// The path and the figure of each point.
const POINTS: [[&str; 2]; 6] = [
    ["kernel", "mean"],
    ["bypass", "mean"],
    ["kernel", "p99"],
    ["bypass", "p99"],
    ["kernel", "max"],
    ["bypass", "max"],
];

/// Makes interfaces of the kinds that it needs, and sees whether there is what it calls.
const PROBE: &str = "
    set -e
    for tool in ip nsenter; do
        command -v $tool >/dev/null || { echo \"there is no $tool\" >&2; exit 1; }
    done
    ip tuntap add rwport mode tap
    ip link add rwkernel type veth peer name rwpeer
    unshare --net true
";

/// Why it cannot be measured here.
pub(super) fn cannot() -> Option<String> {
    match command(PROBE).output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr);
            let why = why.lines().next().unwrap_or("no reason given");
            let remedy = if rustix::process::geteuid().is_root() { "" } else { "; run it as root" };
            Some(format!("it needs network namespaces, TAP and veth interfaces, ip and nsenter ({why}){remedy}"))
        }
        Err(error) => Some(format!("it needs setpriv and unshare ({error})")),
    }
}

/// A script in a namespace of its own, which is told to end when this thread does.
fn command(script: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM", "unshare", "--net", "sh", "-c", script, "sh"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command
}

/// The points, before any is measured.
pub(super) fn points() -> Vec<Measured> {
    (1..).zip(POINTS).map(|(point, _)| Measured::new(point)).collect()
}

/// Pings so often for all points, and has them kept each time. A signal ends it after the repetition at hand.
pub(super) fn measure(
    repetitions: u32,
    stop: &Stop,
    results: &mut Results,
    keep: impl Fn(&Results) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let program = std::env::current_exe().context("this program has no path")?;
    for _ in 0..repetitions {
        let output = command(SCRIPT).arg(&program).output().context("setpriv cannot be started")?;
        if stop.is_signalled() {
            return Err(signalled());
        }
        let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or("no reason given").to_owned();
            results.points.iter_mut().for_each(|point| point.failed = Some(why.clone()));
        } else {
            for (point, figure) in results.points.iter_mut().zip(POINTS) {
                let [path, name] = figure;
                let us = of(&said, figure).ok_or_else(|| anyhow!("pktgen ping --json: no {name} of {path}"))?;
                point.took(us);
            }
        }
        results.made(POINTS.len());
        keep(results)?;
    }
    Ok(())
}

/// A figure of a path, in microseconds.
fn of(said: &Value, [path, figure]: [&str; 2]) -> Option<f64> {
    let paths = said["paths"].as_array()?;
    let path = paths.iter().find(|one| one["path"] == path)?;
    path["latency_ns"][figure].as_f64().map(|nanoseconds| nanoseconds / 1e3)
}
