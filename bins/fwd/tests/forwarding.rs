//! Whole runs on software NICs: what is forwarded, what is reported, and how a run ends.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fwd"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs `fwd` with `--json` and returns the object; checks what holds for every run.
#[track_caller]
fn report(arguments: &[&str]) -> Value {
    let output = command(arguments).args(["--json", "--quiet"]).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    check(&report);
    report
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is not a count"))
}

fn sum(report: &Value, field: &str) -> u64 {
    report["ports"].as_array().unwrap().iter().map(|port| number(&port[field])).sum()
}

/// The shape of a report, and that no frame is unaccounted for.
#[track_caller]
fn check(report: &Value) {
    for field in ["duration_s", "mpps"] {
        assert!(report[field].is_f64(), "{field}: {report}");
    }
    assert!(report["cycles_per_packet"].is_f64() || report["cycles_per_packet"].is_null());
    for port in report["ports"].as_array().unwrap() {
        assert!(port["name"].as_str().unwrap().starts_with("soft:"));
        for field in ["rx_packets", "rx_bytes", "tx_packets", "tx_bytes", "rx_missed", "rx_errors", "tx_dropped"] {
            number(&port[field]);
        }
    }
    let drops: u64 = report["drops"].as_object().unwrap().values().map(number).sum();
    let consumed = report.get("consumed").map_or(0, number);
    assert_eq!(number(&report["received"]), number(&report["forwarded"]) + consumed + drops, "{report}");
    let arrived = sum(report, "rx_packets") + sum(report, "rx_missed") + sum(report, "rx_errors");
    assert_eq!(number(&report["received"]), arrived, "{report}");
    assert_eq!(number(&report["forwarded"]), sum(report, "tx_packets"), "{report}");
}

#[test]
fn a_counted_source_is_forwarded_to_the_last_frame() {
    let report = report(&["l2", "soft:a?wire=gen&count=50000&size=60", "soft:b?wire=sink", "--exit-when-idle"]);
    assert_eq!(report["mode"], "l2");
    assert_eq!(number(&report["forwarded"]), 50_000);
    assert_eq!(report["drops"], serde_json::json!({}));
    assert_eq!(number(&report["ports"][0]["rx_bytes"]), 50_000 * 60);
    assert_eq!(number(&report["ports"][1]["tx_packets"]), 50_000);
    assert_eq!(report["ports"][1]["name"], "soft:b");
    assert!(report["cycles_per_packet"].as_f64().unwrap() > 0.0);
}

#[test]
fn both_directions_several_queues_and_triples_work() {
    let [a, b] = ["soft:a?wire=gen&count=20000&flows=64", "soft:b?wire=gen&count=30000&flows=64"];
    let first = lcores().first().copied().unwrap();
    let triples = format!("(0,0,{first}),(1,0,{first}),(0,1,{first}),(1,1,{first})");
    for options in [&["--queues", "4"][..], &["--lcores", &triples], &["--batch", "1", "--ring-size", "64"]] {
        let report = report(&[&["l2", a, b, "--exit-when-idle"], options].concat());
        assert_eq!(number(&report["forwarded"]), 50_000, "{options:?}");
        assert_eq!(number(&report["ports"][0]["tx_packets"]), 30_000, "{options:?}");
    }
}

#[test]
fn macswap_and_rxonly_count_what_they_do() {
    let swapped = report(&["macswap", "soft:a?wire=gen&count=10000", "soft:b?wire=gen&count=5", "--exit-when-idle"]);
    assert_eq!(number(&swapped["forwarded"]), 10_005);
    assert_eq!(number(&swapped["ports"][1]["tx_packets"]), 5);
    let counted = report(&["rxonly", "soft:a?wire=gen&count=10000", "--exit-when-idle"]);
    assert_eq!((number(&counted["consumed"]), number(&counted["forwarded"])), (10_000, 0));
    assert_eq!(counted["drops"], serde_json::json!({}));
}

#[test]
fn captures_come_out_as_the_mode_makes_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    // Of every length, in an order that shows.
    let frames: Vec<Vec<u8>> =
        (17..=1514_u16).map(|len| (0..len).map(|at| u8::try_from((at * 7 + len) % 251).unwrap()).collect()).collect();
    write_capture(Path::new(&path("in.pcap")), &frames);

    let l2 = format!("soft:a?wire=pcap:{},", path("in.pcap"));
    let out = format!("soft:b?wire=pcap:,{}", path("l2.pcap"));
    let forwarded = report(&["l2", &l2, &out, "--exit-when-idle"]);
    assert_eq!(number(&forwarded["forwarded"]), frames.len() as u64);
    assert!(read_capture(Path::new(&path("l2.pcap"))) == frames, "frames differ");

    let both = format!("soft:a?wire=pcap:{},{}", path("in.pcap"), path("macswap.pcap"));
    report(&["macswap", &both, "--exit-when-idle"]);
    let swapped: Vec<Vec<u8>> =
        frames.iter().map(|frame| [&frame[6..12], &frame[..6], &frame[12..]].concat()).collect();
    assert!(read_capture(Path::new(&path("macswap.pcap"))) == swapped, "frames differ");
}

#[test]
fn jumbo_frames_pass_in_several_buffers() {
    let source = "soft:a?wire=gen&size=9000&count=2000";
    let passed = report(&["l2", source, "soft:b", "--mtu", "9216", "--exit-when-idle"]);
    assert_eq!(number(&passed["forwarded"]), 2000);
    assert_eq!(number(&passed["ports"][1]["tx_bytes"]), 2000 * 9000);
    let refused = report(&["l2", source, "soft:b", "--exit-when-idle"]);
    assert_eq!(number(&refused["drops"]["rx_oversize"]), 2000);
    assert_eq!(number(&refused["forwarded"]), 0);
}

#[test]
fn an_output_that_stands_still_is_counted() {
    let report = report(&["l2", "soft:a?wire=gen", "soft:b?fault=tx-frozen", "--duration", "0.5"]);
    assert_eq!(number(&report["forwarded"]), 0);
    assert!(number(&report["drops"]["tx_full"]) > 0);
    assert_eq!(number(&report["ports"][1]["tx_dropped"]), number(&report["received"]));
}

#[test]
fn a_nic_that_vanishes_ends_the_run_with_a_summary_and_an_error() {
    // After so many register reads; the table reads some each second. Opening must leave a few.
    let run = |reads: u32| {
        let fault = format!("soft:b?fault=removal:{reads}");
        command(&["l2", "soft:a?wire=gen", &fault, "--duration", "60"]).output().unwrap()
    };
    let mut outputs = [400, 800, 1600].into_iter().map(run);
    let output = outputs.find(|output| !output.stdout.is_empty()).expect("opening takes 1600 register reads");
    let (out, error) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(out.contains("forwarded") && out.contains("received"), "{out}");
    let last = error.lines().last().unwrap();
    assert!(last.starts_with("fwd: soft:b: gone"), "{error}");
}

#[test]
fn the_demo_runs_without_arguments_and_says_what_it_does() {
    let output = command(&["--duration", "1.2"]).output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    for words in ["software 82599", "Mpps", "packets in 1.2", "cycles per packet", "dropped", "fwd devices", "fwd bind"]
    {
        assert!(text.contains(words), "no \"{words}\" in:\n{text}");
    }
    assert!(!text.contains("UNACCOUNTED"), "{text}");
    assert!(!text.contains('\x1b'), "escape sequences where there is no terminal: {text}");

    check(&report_of_demo());
}

fn report_of_demo() -> Value {
    let output = command(&["--duration", "0.2", "--json"]).output().unwrap();
    assert!(!output.stderr.is_empty(), "with --json the live view goes to standard error");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let mut child = command(&["--duration", "60"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    lines.next().unwrap().unwrap();
    drop(lines);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn signals_end_it_at_once_with_a_summary() {
    for signal in [Signal::INT, Signal::TERM] {
        let ports = ["l2", "soft:a?wire=gen", "soft:b?wire=gen"];
        let mut child = command(&ports).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains("Mpps") {
            line.clear();
            assert!(out.read_line(&mut line).unwrap() > 0, "ended before the first line of rates");
        }
        let sent = Instant::now();
        kill_process(Pid::from_child(&child), signal).unwrap();
        let mut rest = String::new();
        out.read_to_string(&mut rest).unwrap();
        let status = child.wait().unwrap();
        let took = sent.elapsed();
        println!("{signal:?}: ended after {took:?}");
        assert_eq!(status.code(), Some(0));
        assert!(rest.contains("forwarded") && rest.contains("received"), "{rest}");
        assert!(took < Duration::from_secs(2), "{took:?}");
    }
}

/// The lcores this test may run on, from `/proc/self/status`.
fn lcores() -> Vec<usize> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    let bounds = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        first.parse().unwrap()..=last.parse().unwrap()
    };
    list.trim().split(',').flat_map(bounds).collect()
}

/// Classic pcap, little-endian, microseconds, Ethernet.
fn write_capture(path: &Path, frames: &[Vec<u8>]) {
    let mut bytes = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 262_144, 1] {
        bytes.extend(word.to_le_bytes());
    }
    for frame in frames {
        let len = u32::try_from(frame.len()).unwrap();
        for word in [0, 0, len, len] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(frame);
    }
    std::fs::write(path, bytes).unwrap();
}

/// The frames of a classic little-endian pcap.
fn read_capture(path: &Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(path).unwrap();
    assert_eq!(bytes[..4], 0xa1b2_c3d4_u32.to_le_bytes());
    let mut frames = Vec::new();
    let mut rest = &bytes[24..];
    while !rest.is_empty() {
        let len = u32::from_le_bytes(rest[8..12].try_into().unwrap()) as usize;
        frames.push(rest[16..16 + len].to_vec());
        rest = &rest[16 + len..];
    }
    frames
}
