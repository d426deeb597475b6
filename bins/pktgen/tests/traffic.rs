//! What `pktgen` sends, and what it says of it: streams with rates of their own, patterns, addresses, checksums and captures.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::NamedTempFile;

fn pktgen(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pktgen")).args(arguments).arg("--quiet").output().unwrap()
}

#[track_caller]
fn report(arguments: &[&str]) -> Value {
    let output = pktgen(&[arguments, &["--json"]].concat());
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[track_caller]
fn page(arguments: &[&str]) -> String {
    let output = pktgen(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The line that refuses a command line.
#[track_caller]
fn refused(arguments: &[&str]) -> String {
    let output = pktgen(arguments);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), message.lines().count()), (Some(2), 1), "{arguments:?}: {message}");
    message
}

const RUN: [&str; 6] = ["run", "soft:a?wire=peer:b", "soft:b", "--one-way", "--warm-up", "10ms"];

fn file(bytes: impl AsRef<[u8]>) -> NamedTempFile {
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    file
}

fn path(file: &NamedTempFile) -> &str {
    file.path().to_str().unwrap()
}

/// Frames of 60 bytes, at these seconds and microseconds.
fn capture(times: impl IntoIterator<Item = [u32; 2]>) -> NamedTempFile {
    let mut bytes = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0];
    for [seconds, micros] in times {
        bytes.extend([seconds, micros, 60, 60].map(u32::to_le_bytes).concat());
        bytes.extend([2, 0, 0, 0, 0, 0x77, 2, 0, 0, 0, 0, 0x66, 0x88, 0xb5]);
        bytes.extend([7; 46]);
    }
    file(bytes)
}

/// Frames of 200 bytes at twice the rate of those of 648.
#[test]
fn sizes_of_streams_with_rates_are_weighed_by_these() {
    let own = "[[stream]]\nrate = '2kpps'\nsize = 200\nframe = ['ethernet', 'ipv4', 'udp']\n\
               [[stream]]\nrate = '1kpps'\nsize = 648\nframe = ['ethernet', 'ipv4', 'udp']\n";
    let (own, with_another) = (file(own), file(format!("{own}[[stream]]\nframe = ['ethernet', 'ipv4', 'udp']\n")));
    let times = json!({"min": 1.0, "p50": 1.0, "p99": 1.0, "p999": 1.0, "max": 1.0});
    let floor = |size: u32| {
        let (due, ring) = (&times, &times);
        json!({"from": "a", "to": "b", "size": size, "offered_pps": 3000, "sent": 1, "lost": 0,
               "latency_from_due_ns": due, "latency_from_ring_ns": ring})
    };
    let floors = file(json!({ "floors": [floor(349), floor(424)] }).to_string());
    let common = ["--catch-up", "1s", "--duration", "300ms", "--floor", path(&floors), "--stream"];
    let all = report(&[&RUN[..], &common, &[path(&own)]].concat());
    assert!((all["mean_size"].as_f64().unwrap() - 1048.0 / 3.0).abs() < 0.1, "{all}");
    assert_eq!(all["directions"][0]["floor"]["size"], 349.0);
    assert!(!all["warnings"].to_string().contains("floor"), "{all}");
    // Beside one that is sent as fast as can be, nobody knows.
    let all = report(&[&RUN[..], &common, &[path(&with_another)]].concat());
    assert_eq!([&all["mean_size"], &all["directions"][0]["floor"]], [&Value::Null; 2]);
    assert!(all["warnings"].to_string().contains("the mean size of frames is not known, and no floor"), "{all}");
    // With a rate for it, too: three of 200, 648 and 60 bytes.
    let all = report(&[&RUN[..], &common, &[path(&with_another), "--rate", "3k"]].concat());
    assert!((all["mean_size"].as_f64().unwrap() - 1228.0 / 6.0).abs() < 0.1, "{all}");
}

#[test]
fn a_pattern_that_spreads_nothing_is_refused() {
    let own = file("[[stream]]\nframe = ['ethernet']\nrate = 9\npattern = 'even'\n[[stream]]\nframe = ['ethernet']\n");
    let times = capture([[0, 0], [0, 1000]]);
    let pattern = ["--pattern", "bursts:7"];
    for (options, words) in [
        (&["--pcap", path(&times)][..], "bursts:7: the capture keeps its own times; leave it out, or give --rate"),
        (&["--pcap", path(&times), "--pcap-speed", "2"], "the capture keeps its own times"),
        (&["--pcap", path(&times), "--pcap-speed", "max"], "there is no rate at which it could spread frames"),
        (&[], "bursts:7: there is no rate at which it could spread frames; give --rate, or leave it out"),
        (&["--stream", path(&own)], "there is no rate at which it could spread frames"),
    ] {
        for program in [&RUN[..], &["tx", "null:a"]] {
            let said = refused(&[program, &pattern, options].concat());
            assert!(said.contains(words), "{options:?}: {said}");
        }
    }
    // At another rate a capture is spread, and who steers may give one.
    let script = file("{\"do\": \"set\", \"rate\": \"1k\"}\n{\"sleep\": 0.1}\n");
    for options in [&["--pcap", path(&times), "--rate", "1k", "--count", "20"][..], &["--script", path(&script)]] {
        report(&[&RUN[..], &pattern, options].concat());
    }
}

#[test]
fn a_capture_at_its_own_times_has_no_pattern() {
    let times = capture((0..20).map(|number| [0, number * 1000]));
    let common = [&RUN[..], &["--pcap", path(&times), "--pcap-turns", "1", "--catch-up", "1s"]].concat();
    let said = page(&common);
    let head = said.lines().find(|line| line.starts_with("as captured, 1 times as fast")).unwrap();
    assert!(head.ends_with("pps each way"), "{said}");
    assert!(page(&[&common[..], &["--rate", "1k"]].concat()).contains("pps each way, even\n"));
}

/// Of TCP, of a checksum that is not there, and of a length that moves nothing is read; it is of the others, beside them too.
#[test]
fn streams_whose_checksums_are_not_read_are_named() {
    let frames = [
        ("'udp'", true),
        ("'tcp'", true),
        ("'icmp'", true),
        ("{ tcp = { checksum = 7 } }", false),
        ("{ udp = { checksum = 0 } }", false),
        ("{ udp = { length = { list = [26, 20] } } }", false),
    ];
    let text = |frames: &[(&str, bool)]| {
        let stream = |(name, (transport, _)): (char, &(&str, bool))| {
            format!("[[stream]]\nname = 's{name}'\nsize = 80\nframe = ['ethernet', 'ipv4', {transport}]\n")
        };
        file(('a'..).zip(frames).map(stream).collect::<String>())
    };
    // Whichever is first sends the probes.
    let reversed: Vec<_> = frames.iter().copied().rev().collect();
    for frames in [&frames[..], &reversed] {
        for options in [&[][..], &["--queues", "2"]] {
            let definitions = text(frames);
            let options = [&["--count", "2000", "--stream", path(&definitions)], options].concat();
            let all = report(&[&RUN[..], &options].concat());
            let direction = &all["directions"][0];
            for (field, count) in [("received", 2000), ("lost", 0), ("foreign", 0), ("damaged", 0)] {
                assert_eq!(direction[field], count, "{options:?}, {field}: {direction}");
            }
            assert_eq!(direction["verified"], false);
            let verified: Vec<_> =
                direction["streams"].as_array().unwrap().iter().map(|stream| stream["verified"] == true).collect();
            assert!(verified.iter().eq(frames.iter().map(|(_, verified)| verified)), "{direction}");
            let unread = ('a'..).zip(frames).filter(|(_, (_, verified))| !verified);
            let unread: Vec<_> = unread.map(|(name, _)| format!("s{name}")).collect();
            let words = format!("checksums are left unread of streams {}: damage in their", unread.join(", "));
            assert!(all["warnings"][0].as_str().unwrap().starts_with(&words), "{all}");
        }
    }
    for (frame, verified) in frames {
        let definitions = text(&[(frame, verified)]);
        let all = report(&[&RUN[..], &["--count", "100", "--stream", path(&definitions)]].concat());
        assert_eq!(all["directions"][0]["verified"], verified, "{frame}");
        let warned = all["warnings"].to_string().contains("checksums are left unread: damage in a frame is not seen");
        assert_eq!(warned, !verified, "{all}");
    }
}

/// The cable passes 2,000 frames a second, so nearly all of the first second's are sent before those of the last two come.
#[test]
fn frames_behind_which_many_were_sent_have_latencies() {
    let ports = ["run", "soft:a?wire=peer:b&rate=2k&buffer=65536&after=100", "soft:b", "--one-way", "--warm-up", "0s"];
    for tag in ["short", "full"] {
        let all = report(&[&ports[..], &["--count", "120000", "--tag", tag]].concat());
        let direction = &all["directions"][0];
        let [due, ring] = ["due", "ring"].map(|from| &direction[format!("latency_from_{from}_ns")]);
        let received = direction["received"].as_u64();
        assert_eq!((due["count"].as_u64(), ring["count"].as_u64()), (received.filter(|_| tag == "full"), received));
        // The last came two seconds after all were sent.
        assert!(ring["max"].as_f64() > Some(1.5e9), "{direction}");
        assert!(due["max"].as_f64().is_none_or(|due| Some(due) >= ring["max"].as_f64()), "{direction}");
    }
}

/// A cable of 2.5 s: of the last half second nothing comes within the time that is waited.
#[test]
fn what_may_be_under_way_is_told_of() {
    let ports = ["run", "soft:a?wire=peer:b&delay=2500ms", "soft:b", "--one-way", "--warm-up", "0s"];
    let all = report(&[&ports[..], &["--rate", "1k", "--count", "1500", "--catch-up", "1s"]].concat());
    let direction = &all["directions"][0];
    assert!(direction["lost"].as_u64() > Some(0) && direction["received"].as_u64() > Some(0), "{direction}");
    let words =
        "soft:a > soft:b: frames took longer than the 2 s that the end is waited for, so some of what is lost may";
    assert!(all["warnings"].to_string().contains(words), "{all}");
}

/// The frames of a capture.
fn frames(path: &Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(path).unwrap();
    let (mut rest, mut frames) = (&bytes[24..], Vec::new());
    while !rest.is_empty() {
        let length = u32::from_le_bytes(rest[8..12].try_into().unwrap()) as usize;
        frames.push(rest[16..16 + length].to_vec());
        rest = &rest[16 + length..];
    }
    frames
}

/// Of one it is that of all ports, of two those of each pair, of more there is one for each.
#[test]
fn each_port_sends_to_its_addresses() {
    let folder = tempfile::tempdir().unwrap();
    let files: Vec<PathBuf> = (0..4).map(|port| folder.path().join(format!("{port}.pcap"))).collect();
    let port = |(number, file): (usize, &PathBuf)| format!("soft:{number}?wire=pcap:,{}", file.display());
    let ports: Vec<String> = files.iter().enumerate().map(port).collect();
    for (addresses, expected) in [(&[1][..], [1; 4]), (&[1, 2], [1, 2, 1, 2]), (&[1, 2, 3, 4], [1, 2, 3, 4])] {
        let list = |prefix: &str| addresses.iter().map(|last| format!("{prefix}{last}")).collect::<Vec<_>>().join(",");
        let (macs, ips) = (list("02:00:5e:00:00:0"), list("192.0.2."));
        let options = ["--dst-mac", &macs, "--dst-ip", &ips, "--count", "3", "--ends", "0"];
        let ports: Vec<_> = ports.iter().map(String::as_str).collect();
        report(&[&["tx"], &ports[..], &options].concat());
        for (file, last) in files.iter().zip(expected) {
            let sent = frames(file);
            assert_eq!(sent.len(), 3);
            assert!(sent.iter().all(|frame| [frame[5], frame[33]] == [last; 2]), "{addresses:?}: {sent:02x?}");
        }
    }
    let three = "192.0.2.1,192.0.2.2,192.0.2.3";
    for (ports, words) in [
        (&["tx", "null:a", "null:b"][..], "--dst-ip: there are 3 of them, and 2 ports; leave some out"),
        (
            &["run", "soft:a", "soft:b", "soft:c", "soft:d"],
            "--dst-ip: there are 3 of them for 4 ports; give one for all",
        ),
    ] {
        let said = refused(&[ports, &["--dst-ip", three]].concat());
        assert!(said.contains(words), "{said}");
    }
}

/// Times that no clock has time for.
#[test]
fn a_capture_may_last_for_centuries() {
    let times = capture([[0, 0], [u32::MAX, 0]]);
    let options = ["--pcap", path(&times), "--pcap-speed", "0.000001", "--duration", "100ms", "--catch-up", "1s"];
    assert_eq!(report(&[&["tx", "null:a"][..], &options].concat())["sent"], 1);
}

/// What is missed at its time is missed, and not what the other end has not taken.
#[test]
fn frames_of_a_capture_that_are_missed_are_no_fault_of_the_other_end() {
    let times = capture((0..2000).map(|number| [0, number]));
    let options = ["--pcap", path(&times), "--pcap-turns", "1", "--count", "2000", "--catch-up", "1ns"];
    let all = report(&[&["tx", "null:a"][..], &options].concat());
    let [sent, missed] = ["sent", "missed"].map(|field| all[field].as_u64().unwrap());
    assert!(sent + missed == 2000 && missed > 0, "{all}");
    assert!(all["error"].is_null() && all["missed_pps"].as_f64() > Some(0.0), "{all}");
    assert!(all["warnings"][0].as_str().unwrap().contains("less than its rate"), "{all}");
}

/// The device never sends a frame, so its ring of 64 is full for good.
#[test]
fn frames_of_a_capture_that_are_not_taken_are_an_error() {
    let times = capture((0..200).map(|number| [0, number]));
    let options = ["--pcap", path(&times), "--pcap-turns", "1", "--pcap-speed", "max", "--ring-size", "64"];
    let output = pktgen(&[&["tx", "soft:a?fault=tx-frozen"][..], &options].concat());
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.starts_with("pktgen: 200 frames of --pcap-turns not sent a second after the last"), "{said}");
}

/// Captures of the repository, and odd ones beside it if they are there.
fn captures() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let beside = std::env::var_os("RINGWAY_CAPTURES").map_or(root.join("../shared/data/pcap"), PathBuf::from);
    let own = root.join("tests/data/pcap");
    let mut files = Vec::new();
    for folder in [own.clone(), beside.clone(), beside.join("odd")] {
        files.extend(std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()));
    }
    files.retain(|file| file.extension().is_some_and(|extension| extension == "pcap"));
    if files.iter().all(|file| file.starts_with(&own)) {
        skip::test!("all captures (none in ../shared/data/pcap; those of tests/data/pcap stand in)");
    }
    assert!(!files.is_empty());
    files
}

#[test]
fn any_capture_is_sent_or_refused_in_one_line() {
    let files = captures();
    // Each takes a tenth of a second, most of which it waits.
    let sent: Vec<_> = std::thread::scope(|scope| {
        let some = |files| scope.spawn(move || <[PathBuf]>::iter(files).map(|file| is_sent(file)).collect::<Vec<_>>());
        let all: Vec<_> = files.chunks(files.len().div_ceil(8)).map(some).collect();
        all.into_iter().flat_map(|one| one.join().unwrap()).collect()
    });
    let count = sent.iter().filter(|sent| **sent).count();
    println!("{count} of {} sent", files.len());
    assert!(count > 0 && count < files.len());
}

/// Whether a capture is sent; else it is refused, in one line.
fn is_sent(file: &Path) -> bool {
    let name = file.to_str().unwrap();
    let options = ["--pcap", name, "--pcap-turns", "1", "--pcap-speed", "max", "--batch", "64", "--json"];
    let output = pktgen(&[&["tx", "null:a"][..], &options].concat());
    let said = String::from_utf8(output.stderr).unwrap();
    if output.status.success() {
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(report["sent"].as_u64() > Some(0) && said.is_empty(), "{name}: {said}{report}");
        return true;
    }
    let is_clear = said.starts_with("pktgen: --pcap") && said.contains(name) && said.lines().count() == 1;
    assert!(output.status.code() == Some(2) && is_clear, "{name}: {said}");
    false
}
