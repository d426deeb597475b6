//! Whole runs on software NICs: what is forwarded, what is reported, and how a run ends.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
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
        assert!(["soft:", "null:"].iter().any(|kind| port["name"].as_str().unwrap().starts_with(kind)));
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
fn ports_without_a_device_show_what_the_program_costs() {
    let report = report(&["l2", "null:a", "null:b", "--duration", "1"]);
    assert!(
        number(&report["received"]) > 0
            && report["drops"].as_object().unwrap().values().all(|drops| number(drops) == 0)
    );
    assert!(report["cycles_per_packet"].is_f64(), "{report}");
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
    let ports = ["l2", "soft:a?wire=gen", "soft:b?fault=tx-frozen", "--json"];
    let mut run = Run::start(&ports, Stream::Stderr);
    run.wait_for("tx_full");
    run.signal(Signal::INT);
    let (code, out, _) = run.end();
    assert_eq!(code, Some(0));
    let report: Value = serde_json::from_str(&out).unwrap();
    check(&report);
    assert_eq!(number(&report["forwarded"]), 0);
    assert!(number(&report["drops"]["tx_full"]) > 0);
    assert_eq!(number(&report["ports"][1]["tx_dropped"]), number(&report["received"]));
}

/// All that RSS of an X550 reaches, one more than have interrupts.
#[test]
fn an_x550_spreads_flows_over_64_queues() {
    let source = "soft:a?id=x550&wire=gen&count=20000&flows=4096";
    let report = report(&["rxonly", source, "--queues", "64", "--exit-when-idle"]);
    let queues = report["ports"][0]["rx_queues"].as_array().unwrap();
    let packets: Vec<_> = queues.iter().map(|queue| number(&queue["packets"])).collect();
    assert_eq!((packets.len(), packets.iter().sum::<u64>()), (64, 20_000));
    assert!(packets.iter().all(|packets| *packets > 0), "{packets:?}");
}

/// More than the 16 queues that RSS of an 82599 reaches: both ways, by every queue of both ports, without a loss.
#[test]
fn x550s_forward_by_17_32_and_64_queues() {
    for queues in ["17", "32", "64"] {
        let ports = ["soft:a", "soft:b"].map(|port| format!("{port}?id=x550&wire=gen&count=8192&flows=4096"));
        let report = report(&["l2", &ports[0], &ports[1], "--queues", queues, "--ring-size", "64", "--exit-when-idle"]);
        assert_eq!(number(&report["forwarded"]), 2 * 8192, "{queues}: {report}");
        for port in report["ports"].as_array().unwrap() {
            for way in ["rx", "tx"] {
                let of_queues = port[format!("{way}_queues")].as_array().unwrap();
                assert_eq!(of_queues.len().to_string(), queues);
                assert!(of_queues.iter().all(|queue| number(&queue["packets"]) > 0), "{queues}, {way}: {port}");
            }
        }
    }
}

#[test]
fn counts_of_queues_add_up_to_those_of_their_ports() {
    let source = "soft:a?wire=gen&count=20000&flows=64";
    let report = report(&["l2", source, "soft:b", "--queues", "4", "--exit-when-idle"]);
    for (port, way) in [(0, "rx"), (1, "tx")] {
        let port = &report["ports"][port];
        let queues = port[format!("{way}_queues")].as_array().unwrap();
        assert_eq!(queues.iter().map(|queue| number(&queue["queue"])).collect::<Vec<_>>(), [0, 1, 2, 3]);
        for field in ["packets", "bytes"] {
            let sum: u64 = queues.iter().map(|queue| number(&queue[field])).sum();
            assert_eq!(sum, number(&port[format!("{way}_{field}")]), "{port}");
        }
        assert!(queues.iter().all(|queue| number(&queue["packets"]) > 0), "64 flows on 4 queues: {port}");
        assert!(queues.iter().all(|queue| number(&queue["dropped"]) == 0), "{port}");
    }
    let folder = tempfile::tempdir().unwrap();
    let routes = folder.path().join("routes");
    std::fs::write(&routes, "0.0.0.0/0 via 02:00:00:00:00:02 port 1\n").unwrap();
    let routed = self::report(&[
        "l3",
        source,
        "soft:b",
        "--promiscuous",
        "--queues",
        "2",
        "--routes",
        routes.to_str().unwrap(),
        "--exit-when-idle",
    ]);
    let rx: u64 = routed["ports"][0]["rx_queues"].as_array().unwrap().iter().map(|q| number(&q["packets"])).sum();
    let tx: u64 = routed["ports"][1]["tx_queues"].as_array().unwrap().iter().map(|q| number(&q["packets"])).sum();
    assert_eq!((rx, tx), (20_000, number(&routed["forwarded"])));
}

#[test]
fn a_capture_that_cannot_be_written_is_an_error_after_the_summary() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let output = format!("soft:b?wire=pcap:,{}", pipe.display());
    // More than a pipe holds, and a reader that takes no more than the header of the capture.
    let ports = ["l2", "soft:a?wire=gen&count=5000", &output, "--exit-when-idle", "--tx-wait", "10000000"];
    let run = |arguments: &[&str]| {
        let child = command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        std::fs::File::open(&pipe).unwrap().read_exact(&mut [0; 24]).unwrap();
        let output = child.wait_with_output().unwrap();
        let (out, error) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert_eq!(output.status.code(), Some(1), "{error}");
        let last = error.lines().last().unwrap().to_owned();
        assert!(
            last.starts_with("fwd: soft:b: cannot write ") && last.contains("sent frames are not in it"),
            "{error}"
        );
        (out, last)
    };
    let (out, _) = run(&ports);
    assert!(out.contains("received 5,000 = "), "{out}");
    let (out, error) = run(&[&ports[..], &["--json"]].concat());
    let report: Value = serde_json::from_str(&out).unwrap();
    check(&report);
    assert_eq!(error.strip_prefix("fwd: "), report["error"].as_str());
}

#[test]
fn a_capture_is_not_written_over_itself() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.pcap");
    write_capture(&path, &[vec![7; 60]]);
    let port = format!("soft:a?wire=pcap:{0},{0}", path.display());
    let output = command(&["macswap", &port, "--exit-when-idle"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("as a capture") && error.contains("in.pcap"), "{error}");
    assert_eq!(read_capture(&path), [vec![7; 60]], "the input was overwritten");
}

#[test]
fn a_summary_that_cannot_be_written_is_an_error() {
    for json in [&[][..], &["--json"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let arguments = [&["rxonly", "soft:a?wire=gen&count=10", "--exit-when-idle", "--quiet"], json].concat();
        let output = command(&arguments).stdout(full).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.starts_with("fwd: standard output: cannot write") && error.lines().count() == 1, "{error}");
    }
}

#[test]
fn a_nic_that_vanishes_ends_the_run_with_a_summary_and_an_error() {
    // After so many register reads; the table reads some each second. Opening must leave a few, also where it waits for long.
    let run = |reads: u32| {
        let fault = format!("soft:b?fault=removal:{reads}");
        command(&["l2", "soft:a?wire=gen", &fault, "--duration", "60"]).output().unwrap()
    };
    let mut outputs = [400, 800, 1600].into_iter().map(run);
    let has_begun = |output: &Output| String::from_utf8_lossy(&output.stdout).contains("forwarded");
    let output = outputs.find(has_begun).expect("opening takes 1600 register reads");
    let (out, error) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(out.contains("received"), "{out}");
    let last = error.lines().last().unwrap();
    assert!(last.starts_with("fwd: soft:b: gone"), "{error}");
}

#[test]
fn the_demo_runs_without_arguments_and_says_what_it_does() {
    let output = command(&["--duration", "1.2"]).output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    for words in ["software 82599", "pps", " packets in ", "cycles per packet", "dropped", "fwd devices", "fwd bind"] {
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
fn a_reader_that_goes_away_stops_no_data_plane() {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("out.pcap");
    let output = format!("soft:b?wire=pcap:,{}", capture.display());
    // Long enough that a table is due after the reader has gone.
    let ports = ["l2", "soft:a?wire=gen&count=3000&rate=1000", &output, "--exit-when-idle"];
    let mut child = command(&ports).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    lines.next().unwrap().unwrap();
    drop(lines);
    let output = child.wait_with_output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{error}");
    assert_eq!(read_capture(&capture).len(), 3000);
    assert!(error.contains("standard output") && error.lines().count() == 1, "{error}");
}

#[test]
fn signals_end_it_with_a_summary_and_a_hang_up_does_not() {
    for signal in [Signal::INT, Signal::TERM] {
        let mut run = Run::start(&["l2", "soft:a?wire=gen", "soft:b?wire=gen"], Stream::Stdout);
        run.wait_for("pps");
        run.signal(Signal::HUP);
        // Of one tick, and of a later one.
        run.wait_for("cycles per packet");
        run.wait_for("cycles per packet");
        run.signal(signal);
        let (code, out, error) = run.end();
        assert_eq!(code, Some(0), "{error}");
        assert!(out.contains("forwarded") && out.contains("received"), "{out}");
    }
}

#[test]
fn a_signal_ends_opening_a_device_whose_server_is_silent() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("silent.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let mut run = Run::start(&["rxonly", &format!("vfio-user:{}", socket.display())], Stream::Stderr);
    run.wait_for("no answer yet");
    run.signal(Signal::INT);
    let (code, _, error) = run.end();
    assert_eq!(code, Some(1));
    assert!(error.contains("silent.sock") && error.contains("interrupted"), "{error}");
}

/// One end of a connection that has no room for more, and the other, which nobody reads.
fn full() -> (std::os::unix::net::UnixStream, std::os::unix::net::UnixStream) {
    let (mut full, unread) = std::os::unix::net::UnixStream::pair().unwrap();
    full.set_nonblocking(true).unwrap();
    while full.write(&[b'\n'; 4096]).is_ok() {}
    while full.write(b"\n").is_ok() {}
    full.set_nonblocking(false).unwrap();
    (full, unread)
}

/// The start's words and the live table go to standard error here, and so does the log.
#[test]
fn a_reader_who_has_stopped_reading_holds_no_run_up() {
    let (full, _unread) = full();
    let ports = ["l2", "soft:a?wire=gen", "soft:b", "--duration", "0.2", "--json"];
    let output = command(&ports).stderr(std::os::fd::OwnedFd::from(full)).output().unwrap();
    assert!(output.status.success());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    check(&report);
    assert!(number(&report["forwarded"]) > 0);
}

/// Its summary cannot be written, as nobody reads the standard output, which is full; so the first signal does not end it.
#[test]
fn a_second_signal_ends_it_at_once() {
    let (full, _unread) = full();
    let ports = ["l2", "soft:a?wire=gen", "soft:b", "--json"];
    let stdout = std::os::fd::OwnedFd::from(full);
    let mut child = command(&ports).stdout(stdout).stderr(Stdio::piped()).spawn().unwrap();
    let watched = Box::new(BufReader::new(child.stderr.take().unwrap()));
    let mut run = Run { child, watched, stream: Stream::Stderr };
    run.wait_for("pps");
    run.signal(Signal::INT);
    // Two of a kind that wait to be delivered are one.
    let status = format!("/proc/{}/status", run.child.id());
    let is_pending =
        |line: &str| line.strip_prefix("ShdPnd:").is_some_and(|set| u64::from_str_radix(set.trim(), 16).unwrap() != 0);
    while std::fs::read_to_string(&status).unwrap().lines().any(is_pending) {
        std::thread::yield_now();
    }
    assert!(run.child.try_wait().unwrap().is_none(), "the first ended it, so nothing was in its way");
    run.signal(Signal::INT);
    let begun = Instant::now();
    while run.child.try_wait().unwrap().is_none() {
        if begun.elapsed() > Duration::from_secs(60) {
            run.child.kill().unwrap();
            panic!("the second did not end it");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let (code, _, error) = run.end();
    assert_eq!(code, Some(1), "{error}");
}

/// The output of a run that is watched.
#[derive(PartialEq)]
enum Stream {
    Stdout,
    Stderr,
}

/// A run that goes on until it is told to end.
struct Run {
    child: Child,
    watched: Box<dyn BufRead>,
    stream: Stream,
}

impl Run {
    fn start(arguments: &[&str], stream: Stream) -> Self {
        let mut child = command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let watched: Box<dyn BufRead> = match stream {
            Stream::Stdout => Box::new(BufReader::new(child.stdout.take().unwrap())),
            Stream::Stderr => Box::new(BufReader::new(child.stderr.take().unwrap())),
        };
        Self { child, watched, stream }
    }

    #[track_caller]
    fn wait_for(&mut self, words: &str) {
        let mut line = String::new();
        while !line.contains(words) {
            line.clear();
            assert!(self.watched.read_line(&mut line).unwrap() > 0, "ended before it said {words}");
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Exit code, and the rest of standard output and standard error.
    fn end(mut self) -> (Option<i32>, String, String) {
        let mut rest = String::new();
        self.watched.read_to_string(&mut rest).unwrap();
        drop(self.watched);
        let output = self.child.wait_with_output().unwrap();
        let [out, error] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        let code = output.status.code();
        if self.stream == Stream::Stdout { (code, rest, error) } else { (code, out, rest) }
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
