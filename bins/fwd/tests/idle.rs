//! Lcores without frames: they sleep as they are told, wake for every frame and for the end, and the report says so.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fwd"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs `fwd` with `--json` and returns the object.
#[track_caller]
fn report(arguments: &[&str]) -> Value {
    let output = command(arguments).args(["--json", "--quiet"]).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn wakeups(report: &Value) -> u64 {
    report["workers"].as_array().unwrap().iter().map(|worker| worker["wakeups"].as_u64().unwrap()).sum()
}

#[test]
fn every_mode_forwards_everything() {
    // At a rate that leaves pauses, long and short, and as fast as it goes.
    for source in ["soft:a?wire=gen&count=300&rate=400", "soft:a?wire=gen&count=20000&flows=64"] {
        for idle in [&[][..], &["--idle", "poll"], &["--idle", "hybrid"], &["--idle", "sleep"]] {
            let ports = ["l2", source, "soft:b?wire=gen&count=300&rate=2000", "--queues", "2", "--exit-when-idle"];
            let report = report(&[&ports, idle].concat());
            let sent = if source.contains("20000") { 20_300 } else { 600 };
            assert_eq!(report["forwarded"], sent, "{source} {idle:?}: {report}");
            assert_eq!(wakeups(&report) == 0, idle.contains(&"poll"), "{source} {idle:?}: {report}");
        }
    }
}

#[test]
fn an_lcore_without_frames_sleeps_until_the_end() {
    let mut child = command(&["rxonly", "soft:a", "soft:b", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut shown = BufReader::new(child.stderr.take().unwrap()).lines();
    // So long, whatever the machine does meanwhile.
    assert!(shown.any(|line| line.unwrap().contains("asleep ")), "ended before it told of sleep");
    assert!(shown.any(|line| line.unwrap().contains("asleep ")), "ended before it told of sleep");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    shown.for_each(drop);
    let report: Value = serde_json::from_slice(&child.wait_with_output().unwrap().stdout).unwrap();
    for worker in report["workers"].as_array().unwrap() {
        let (asleep, wakeups) = (worker["asleep_s"].as_f64().unwrap(), worker["wakeups"].as_f64().unwrap());
        // Once a second it comes round; a device that was just opened may wake it a few times more. One that does not
        // sleep at all wakes up within microseconds.
        assert!(wakeups > 0.0 && asleep / wakeups > 0.01, "{report}");
    }
}

#[test]
fn a_signal_ends_a_sleeping_run() {
    let arguments = ["l2", "soft:a", "soft:b", "--idle", "sleep"];
    let mut child = command(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("asleep") {
        line.clear();
        assert!(out.read_line(&mut line).unwrap() > 0, "ended before it told of sleep");
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(rest.contains("l2: forwarded 0 packets"), "{rest}");
}

#[test]
fn the_report_says_where_everything_lies() {
    let report = report(&["l2", "soft:a?wire=gen&count=100", "soft:b", "--exit-when-idle"]);
    assert_eq!(report["ports"][0]["numa_node"], Value::Null, "a software NIC is on no node");
    let memory = &report["packet_memory"];
    let bytes = memory["bytes"].as_u64().unwrap();
    assert!(bytes > 0 && bytes.is_multiple_of(memory["page_size"].as_u64().unwrap()));
    match memory["numa_nodes"].as_object() {
        Some(nodes) => assert_eq!(nodes.values().map(|bytes| bytes.as_u64().unwrap()).sum::<u64>(), bytes),
        None => skip::test!("this kernel does not say where pages lie"),
    }
    for worker in report["workers"].as_array().unwrap() {
        let Some(lcore) = worker["lcore"].as_u64() else { continue };
        let node = (0..64_u64)
            .find(|node| std::path::Path::new(&format!("/sys/devices/system/cpu/cpu{lcore}/node{node}")).exists());
        assert_eq!(worker["numa_node"].as_u64(), node);
    }
}
