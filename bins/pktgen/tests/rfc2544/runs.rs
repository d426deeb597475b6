//! Runs of the program, one at a time where figures are judged, and what they report.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

pub(crate) fn pktgen(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pktgen")).args(arguments).output().unwrap()
}

/// A run whose figures are not judged: others that are not may go on beside it.
pub(crate) fn rfc2544(ports: &str, folder: [&str; 2], options: &[&str]) -> (Output, String) {
    let _beside = beside();
    unlocked("warn", ports, folder, options)
}

/// A run with lines of the log; at `info` cables say at their end what they did.
pub(crate) fn logged(log: &str, ports: &str, folder: [&str; 2], options: &[&str]) -> (Output, String) {
    logged_alone(&alone(), log, ports, folder, options)
}

/// The same, for one that has the machine alone already.
pub(crate) fn logged_alone(_: &Alone, log: &str, ports: &str, folder: [&str; 2], options: &[&str]) -> (Output, String) {
    unlocked(log, ports, folder, options)
}

pub(crate) fn unlocked(log: &str, ports: &str, folder: [&str; 2], options: &[&str]) -> (Output, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pktgen"));
    command.env("RUST_LOG", log).args(["rfc2544", "--ports", ports, "--quiet"]).args(folder).args(options);
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    (output, said)
}

/// That a run came to its end: with figures, or on a machine so slow that no trial of a test that was asked for counts.
pub(crate) fn assert_done(output: &Output, said: &str) {
    let is_void = output.status.code() == Some(1) && said.lines().last().is_some_and(|line| line.ends_with("say why"));
    assert!(output.status.success() || is_void, "{said}");
}

/// The only run of a report in JSON.
pub(crate) fn run_of(output: &Output) -> Value {
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    report["runs"][0].clone()
}

/// The value of a row whose test begins so.
pub(crate) fn value(run: &Value, test: &str) -> Option<f64> {
    values(run, test).first().copied().flatten()
}

/// The values of all such rows, in their order.
pub(crate) fn values(run: &Value, test: &str) -> Vec<Option<f64>> {
    let rows = run["rows"].as_array().unwrap();
    rows.iter().filter(|row| row["test"].as_str().unwrap().starts_with(test)).map(|row| row["value"].as_f64()).collect()
}

/// The notes of a report, joined.
pub(crate) fn notes(run: &Value) -> String {
    let rows = run["rows"].as_array().unwrap();
    rows.iter().map(|row| row["note"].as_str().unwrap()).collect::<Vec<_>>().join("; ")
}

/// That a figure is missing for a reason, which the report says: this machine was too slow, so that trials are void, or a cable was stopped,
/// so that it lost frames at each load, or after an overload. Where a test was left out, its row has the last word of those of its figures
/// (`latency` for `typical latency`). That figures are right does not depend on a machine where devices have their own time
/// (`trial/tests.rs`).
pub(crate) fn assert_reason(run: &Value, path: &str, test: &str) {
    let rows = run["rows"].as_array().unwrap().iter().filter(|row| row["value"].is_null());
    let is_of = |name: &str| name.starts_with(test) || test.ends_with(name);
    let mut rows = rows.filter(|row| is_of(row["test"].as_str().unwrap()));
    let note = rows.next().unwrap_or_else(|| panic!("no {test}: {run:#}"))["note"].as_str().unwrap();
    let is_limited = run["limits"].as_array().is_some_and(|limits| !limits.is_empty());
    let is_lost = notes(run).contains("the lowest load loses more") || note.contains("; not in time ");
    // A throughput that was found too low, or delays that vary.
    let is_lost = is_lost || note.contains("; no frame was lost") || note.contains("a buffer may have filled");
    assert!(!note.is_empty() && (is_limited || is_lost), "{run:#}");
    let page = String::from_utf8(pktgen(&["report", path]).stdout).unwrap();
    assert!(page.contains(note) && page.contains("limit of the generator") == is_limited, "{page}");
}

pub(crate) fn report_of(path: &str) -> trial::Report {
    trial::Report::read(&std::fs::read_to_string(Path::new(path).join("trials.jsonl")).unwrap()).unwrap()
}

/// A run whose figures are judged has it alone, so that none takes the time of another.
static MACHINE: RwLock<()> = RwLock::new(());

/// That no run is going on that has to be alone.
pub(crate) fn beside() -> RwLockReadGuard<'static, ()> {
    MACHINE.read().unwrap_or_else(PoisonError::into_inner)
}

/// That no other run is going on.
pub(crate) type Alone = RwLockWriteGuard<'static, ()>;

pub(crate) fn alone() -> Alone {
    MACHINE.write().unwrap_or_else(PoisonError::into_inner)
}

// What is late comes in bursts of 20 frames at most, for which the device has room.
pub(crate) const SHORT: [&str; 6] = ["--trial-time", "400ms", "--repetitions", "1", "--catch-up", "10ms"];

/// A device that lets 2,000 frames a second pass, has room for 64, and takes 2 ms.
pub(crate) const DEVICE: &str = "soft:a?wire=peer:b&rate=2k&buffer=64&delay=2ms,soft:b";
