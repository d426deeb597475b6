//! `pktgen run` as a program, on software NICs.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::Value;
use std::process::{Command, Output};

fn pktgen(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pktgen")).arg("run").args(arguments).output().unwrap()
}

#[track_caller]
fn report(arguments: &[&str], code: i32) -> (Value, String) {
    let output = pktgen(&[arguments, &["--json", "--quiet", "--warm-up", "10ms"]].concat());
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {message}");
    (serde_json::from_slice(&output.stdout).unwrap(), message)
}

const PAIR: [&str; 2] = ["soft:a?wire=peer:b", "soft:b"];

#[test]
fn a_cable_loses_nothing() {
    for options in [
        &["--rate", "20k"][..],
        &["--rate", "20k", "--pattern", "bursts:7"],
        &["--rate", "20k", "--pattern", "poisson"],
        &["--no-verify"],
    ] {
        let (report, _) = report(&[&PAIR[..], &["--count", "3000", "--flows", "5"], options].concat(), 0);
        let directions = report["directions"].as_array().unwrap();
        assert_eq!(directions.len(), 2);
        for (direction, [from, to]) in directions.iter().zip([["soft:a", "soft:b"], ["soft:b", "soft:a"]]) {
            assert_eq!((&direction["from"], &direction["to"]), (&Value::from(from), &Value::from(to)));
            for (field, count) in
                [("sent", 3000), ("received", 3000), ("lost", 0), ("duplicate", 0), ("late", 0), ("reordered", 0)]
            {
                assert_eq!(direction[field], count, "{field}: {direction}");
            }
            assert_eq!((&direction["foreign"], &direction["damaged"]), (&Value::from(0), &Value::from(0)));
            assert_eq!(direction["verified"], !options.contains(&"--no-verify"));
            for latency in ["latency_from_due_ns", "latency_from_ring_ns"] {
                let figure = |name: &str| direction[latency][name].as_f64().unwrap();
                assert_eq!(direction[latency]["count"], 3000);
                let rising = ["min", "p50", "p90", "p99", "p999", "max"].map(figure);
                assert!(rising.is_sorted() && rising[0] > 0.0, "{rising:?}");
            }
        }
        assert!(report["clock"]["hz"].as_u64().unwrap() > 1_000_000 && report["error"].is_null(), "{report}");
    }
}

#[test]
fn several_queue_pairs_lose_nothing_whatever_queue_frames_come_by() {
    // Flows are spread over the queues, and each queue pair sends a third.
    for options in
        [&["--flows", "64", "--rate", "20k"][..], &["--one-way", "--flows", "64"], &["--rate", "20k", "--tag", "short"]]
    {
        let (report, _) = report(&[&PAIR[..], &["--queues", "3", "--count", "3001"], options].concat(), 0);
        assert_eq!(report["queues"], 3);
        let directions = report["directions"].as_array().unwrap();
        assert_eq!(directions.len(), if options[0] == "--one-way" { 1 } else { 2 });
        for direction in directions {
            for (field, count) in
                [("sent", 3001), ("received", 3001), ("lost", 0), ("duplicate", 0), ("late", 0), ("reordered", 0)]
            {
                assert_eq!(direction[field], count, "{options:?}, {field}: {direction}");
            }
            assert_eq!([&direction["foreign"], &direction["damaged"]], [&Value::from(0); 2]);
            let times = ["due", "ring"].map(|from| direction[format!("latency_from_{from}_ns")]["count"].as_u64());
            assert_eq!(times, [(!options.contains(&"short")).then_some(3001), Some(3001)], "{direction}");
        }
        let queues = |port: usize, side: &str| -> Vec<u64> {
            let queues = report["ports"][port][side].as_array().unwrap();
            queues.iter().map(|queue| queue["packets"].as_u64().unwrap()).collect()
        };
        let (sent, received) = (queues(0, "tx_queues"), queues(1, "rx_queues"));
        assert!(sent.len() == 3 && sent.iter().all(|frames| *frames >= 1000), "{report}");
        assert_eq!(
            received.iter().filter(|frames| **frames > 100).count(),
            if options.contains(&"64") { 3 } else { 1 }
        );
    }
}

/// RSS of an X550 reaches 64 queues; that of the others 16.
#[test]
fn an_x550_has_more_than_sixteen_queue_pairs() {
    let options = ["--queues", "33", "--flows", "600", "--rate", "20k", "--count", "3300"];
    let (report, _) = report(&[&["soft:a?id=x550&wire=peer:b", "soft:b?id=x550"], &options[..]].concat(), 0);
    for direction in report["directions"].as_array().unwrap() {
        for (field, count) in [("sent", 3300), ("received", 3300), ("lost", 0), ("duplicate", 0)] {
            assert_eq!(direction[field], count, "{field}: {direction}");
        }
    }
    let queues = report["ports"][1]["rx_queues"].as_array().unwrap();
    assert_eq!(queues.iter().filter(|queue| queue["packets"].as_u64() > Some(0)).count(), 33, "{queues:?}");
}

#[test]
fn queue_pairs_that_cannot_be_are_one_line() {
    let file = capture(2);
    for (options, words) in [
        (
            &["--queues", "2", "--pcap", file.path().to_str().unwrap()][..],
            "--queues: the frames of a capture follow each other",
        ),
        (&["--queues", "0"], "--queues"),
        (&["--queues", "65"], "--queues"),
    ] {
        let output = pktgen(&[&PAIR[..], options].concat());
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(words) && message.lines().count() == 1, "{options:?}: {message}");
    }
    // A virtual function has fewer, and RSS of an 82599 reaches fewer.
    for (id, words) in [
        ("10ed", "rx_queues: 17 queues, as the physical function grants: must be 1 to 4"),
        ("10fb", "rx_queues: 17 receive queues, but RSS of this device reaches 16"),
    ] {
        let output = pktgen(&[&format!("soft:a?id={id}&wire=peer:b"), &format!("soft:b?id={id}"), "--queues", "17"]);
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && message.lines().count() == 1, "{message}");
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn one_way_and_short_tags() {
    let (report, _) =
        report(&[&PAIR[..], &["--one-way", "--tag", "short", "--count", "500", "--expect-loss", "0"]].concat(), 0);
    assert_eq!(report["directions"].as_array().unwrap().len(), 1);
    let direction = &report["directions"][0];
    assert_eq!((&direction["received"], &direction["latency_from_due_ns"]), (&Value::from(500), &Value::Null));
    assert_eq!(direction["latency_from_ring_ns"]["count"], 500, "{direction}");
}

/// In front of a short tag stands what the frame has there, such as its checksum: as the number goes through all values, so does that, the mark
/// of a full tag among them.
#[test]
fn short_tags_are_found_whatever_stands_in_front_of_them() {
    let file = definitions("[[stream]]\nsize = 64\nframe = ['ethernet', 'ipv4', 'tcp']\n");
    let udp = ["--dst-ip", "2001:2:0:1::1", "--size", "74"];
    let tcp = ["--stream", file.path().to_str().unwrap()];
    for options in [&udp[..], &tcp, &[&udp[..], &["--queues", "2"]].concat()] {
        let count = if options.contains(&"--queues") { 2 * 65_536 } else { 65_536 };
        let common = ["--one-way", "--tag", "short", "--count", &count.to_string()];
        let (report, _) = report(&[&PAIR[..], &common, options].concat(), 0);
        let direction = &report["directions"][0];
        for (field, count) in [("sent", count), ("received", count), ("lost", 0), ("foreign", 0), ("damaged", 0)] {
            assert_eq!(direction[field], count, "{options:?}, {field}: {direction}");
        }
    }
}

/// Lengths of UDP that move, or that sizes do not follow, make checksums that are not right in each frame, whatever they are in the first.
#[test]
fn checksums_that_are_not_meant_are_no_damage() {
    for (size, udp, verified) in [
        ("60", "length = { list = [26, 20] }", false),
        ("60", "length = { list = [20, 26] }", false),
        ("[60, 100]", "length = 26", false),
        ("60", "length = 26", true),
        ("[60, 100]", "source = { random = true }", true),
    ] {
        let text = format!("[[stream]]\nsize = {size}\nframe = ['ethernet', 'ipv4', {{ udp = {{ {udp} }} }}]\n");
        let file = definitions(&text);
        let options = ["--one-way", "--count", "1000", "--stream", file.path().to_str().unwrap()];
        let (report, _) = report(&[&PAIR[..], &options].concat(), 0);
        let direction = &report["directions"][0];
        for (field, count) in [("received", 1000), ("lost", 0), ("foreign", 0), ("damaged", 0)] {
            assert_eq!(direction[field], count, "{text}, {field}: {direction}");
        }
        assert_eq!(direction["verified"], verified, "{text}");
        assert_eq!(report["warnings"].to_string().contains("checksums are left unread"), !verified, "{report}");
    }
}

#[test]
fn what_is_due_is_sent_or_missed() {
    // More than any machine sends: due are rate times time, and exit code 3 says that it was not so.
    let options = ["--one-way", "--rate", "1G", "--duration", "100ms", "--expect-rate", "--expect-latency-p99", "1ns"];
    let (report, message) = report(&[&PAIR[..], &options].concat(), 3);
    let direction = &report["directions"][0];
    let [sent, missed] = ["sent", "missed"].map(|field| direction[field].as_u64().unwrap());
    // A frame at the very end may fall on either side.
    assert!((sent + missed).abs_diff(100_000_000) <= 2, "{sent} and {missed}");
    assert_eq!(direction["intended_pps"], 1e9);
    for of in [direction, &direction["streams"][0]] {
        let of = |field: &str| of[field].as_f64().unwrap();
        // Over the same time as what was offered.
        assert!((of("missed_pps") / of("offered_pps") * of("sent") / of("missed") - 1.0).abs() < 1e-6, "{direction}");
    }
    assert!(report["warnings"][0].as_str().unwrap().contains("less than its rate"), "{report}");
    for words in ["--expect-rate allows 0.1 %", "--expect-latency-p99 allows 1ns"] {
        assert!(message.contains(words) && message.lines().count() == 1, "{message}");
    }
}

/// What one port sends follows from its own rate, and the other's, the other way too.
#[test]
fn each_port_that_sends_has_its_rate() {
    let four = ["soft:a?wire=peer:b", "soft:b", "soft:c?wire=peer:d", "soft:d"];
    for (ports, options, rates) in [
        (&PAIR[..], &[][..], &["2k", "500"][..]),
        (&PAIR, &["--queues", "2", "--flows", "8"], &["500", "2k"]),
        (&four, &["--one-way"], &["2k", "500"]),
        (&PAIR, &[], &["1k"]),
    ] {
        let limits = ["--duration", "500ms", "--catch-up", "1s", "--rate", &rates.join(",")];
        let (report, _) = report(&[ports, options, &limits].concat(), 0);
        let directions = report["directions"].as_array().unwrap();
        assert_eq!(directions.len(), 2, "{report}");
        for (direction, rate) in directions.iter().zip(rates.iter().cycle()) {
            let pps: f64 = rate.replace('k', "000").parse().unwrap();
            assert_eq!(direction["intended_pps"], pps, "{direction}");
            let due = direction["sent"].as_f64().unwrap() + direction["missed"].as_f64().unwrap();
            // Of each queue, a frame at the very end may fall on either side.
            assert!((due - pps / 2.0).abs() <= 2.0, "{rate}: {direction}");
        }
    }
    let page = ["--rate", "2k,500", "--count", "10", "--quiet", "--warm-up", "0s"];
    let page = String::from_utf8(pktgen(&[&PAIR[..], &page].concat()).stdout).unwrap();
    let line = page.lines().find(|line| line.starts_with("--rate 2000,500: ")).unwrap();
    assert!(line.contains(" by the ports that send"), "{page}");
}

/// Of a rate of 20 a second 480 ms have ten frames that are spread evenly, or a burst of twenty.
#[test]
fn ports_and_streams_have_patterns_of_their_own() {
    let due = |direction: &Value| direction["sent"].as_u64().unwrap() + direction["missed"].as_u64().unwrap();
    let limits = ["--duration", "480ms", "--catch-up", "1s"];
    for (patterns, expected) in [("bursts:20,even", [20, 10]), ("even,bursts:20", [10, 20]), ("bursts:20", [20, 20])] {
        let (report, _) = report(&[&PAIR[..], &["--rate", "20", "--pattern", patterns], &limits].concat(), 0);
        let directions = report["directions"].as_array().unwrap();
        assert_eq!([due(&directions[0]), due(&directions[1])], expected, "{patterns}");
    }

    let stream = |lines: &str| format!("[[stream]]\nframe = ['ethernet', 'ipv4', 'udp']\n{lines}\n");
    let streams = ["rate = 20", "rate = 20\npattern = 'bursts:20'", "rate = 40\npattern = 'even'", ""].map(stream);
    let file = definitions(&streams.concat());
    let options = ["--rate", "10", "--pattern", "bursts:7", "--one-way", "--stream", file.path().to_str().unwrap()];
    let arguments = [&PAIR[..], &options, &limits].concat();
    let (report, _) = report(&arguments, 0);
    let streams = report["directions"][0]["streams"].as_array().unwrap();
    assert_eq!(streams.iter().map(due).collect::<Vec<_>>(), [14, 20, 20, 7], "{report}");
    let patterns: Vec<_> = streams.iter().map(|stream| stream["pattern"].as_str().unwrap()).collect();
    assert_eq!(patterns, ["bursts:7", "bursts:20", "even", "bursts:7"]);
    let page = String::from_utf8(pktgen(&[&arguments[..], &["--quiet", "--warm-up", "0s"]].concat()).stdout).unwrap();
    assert!(page.contains(", bursts of 7, but of stream 2 bursts:20, of stream 3 even"), "{page}");
}

/// Nor does it keep others from one.
#[test]
fn without_a_way_there_is_no_measurement() {
    let ports = ["soft:c?wire=sink", "soft:d?wire=sink", PAIR[0], PAIR[1]];
    let (report, message) = report(&[&ports[..], &["--count", "500"]].concat(), 1);
    let expected = "pktgen: soft:c > soft:d: of the probes that soft:c sends none arrives at soft:d within 5 s (and 1 more way is deaf)";
    assert!(message.starts_with(expected), "{message}");
    assert!(message.ends_with("; no cable connects soft:c and soft:d: name one, as soft:c?wire=peer:d\n"), "{message}");
    let received: Vec<_> =
        report["directions"].as_array().unwrap().iter().map(|one| one["received"].as_u64()).collect();
    assert_eq!(received, [0, 0, 500, 500].map(Some));
}

#[test]
fn the_page_is_for_people() {
    let output = pktgen(&[&PAIR[..], &["--count", "100", "--rate", "100k", "--quiet", "--warm-up", "0s"]].concat());
    let page = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{page}");
    for words in
        ["frames of 60 bytes (64 with FCS), full tag", "soft:a > soft:b", "100,000 pps", "LOST", "p50 (typical)", "ppm"]
    {
        assert!(page.contains(words), "no {words} in:\n{page}");
    }
    assert!(page.lines().all(|line| line.chars().count() <= 100 || line.starts_with("WARNING")), "{page}");
}

/// What is written in a file of definitions.
fn definitions(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

#[test]
fn streams_of_a_file_arrive_as_other_frames_do() {
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/stream/examples/");
    let own = definitions(
        "[[stream]]\nweight = 3\nsize = '61,77'\nframe = ['ethernet', 'vlan', 'ipv4', 'udp']\n\
         [[stream]]\nsize = 200\nframe = ['ethernet', 'ipv6', { udp = { source = { random = true } } }]\n",
    );
    for file in [&format!("{examples}mix.toml"), &format!("{examples}tunnels.toml"), own.path().to_str().unwrap()] {
        for tag in ["short", "full"] {
            let options = ["--stream", file, "--tag", tag, "--count", "3000", "--rate", "20k", "--catch-up", "1s"];
            let (report, _) = report(&[&PAIR[..], &options].concat(), 0);
            for direction in report["directions"].as_array().unwrap() {
                for (field, count) in
                    [("sent", 3000), ("received", 3000), ("reordered", 0), ("foreign", 0), ("damaged", 0)]
                {
                    assert_eq!(direction[field], count, "{file}, {field}: {direction}");
                }
            }
        }
    }
}

#[test]
fn streams_have_rates_of_their_own_and_are_reported_apart() {
    let file = definitions(
        "[[stream]]\nname = 'voice'\nrate = '2kpps'\nsize = 200\nframe = ['ethernet', 'ipv4', 'udp']\n\
         [[stream]]\nname = 'bulk'\nrate = '5.376Mbit/s L1'\nsize = 648\nframe = ['ethernet', 'ipv6', 'udp']\n\
         [[stream]]\nweight = 3\nframe = ['ethernet', 'ipv4', 'udp']\n\
         [[stream]]\nframe = ['ethernet', 'vlan', 'ipv4', 'udp']\n",
    );
    let options = [
        "--one-way",
        "--rate",
        "4k",
        "--duration",
        "1s",
        "--catch-up",
        "1s",
        "--stream",
        file.path().to_str().unwrap(),
    ];
    let (report, _) = report(&[&PAIR[..], &options].concat(), 0);
    let direction = &report["directions"][0];
    let streams = direction["streams"].as_array().unwrap();
    let expected = [("voice", 2000_u32), ("bulk", 1000), ("3", 3000), ("4", 1000)];
    assert_eq!(streams.len(), expected.len());
    for (stream, (name, due)) in streams.iter().zip(expected) {
        let count = |field: &str| stream[field].as_u64().unwrap();
        assert_eq!((&stream["name"], &stream["intended_pps"]), (&Value::from(name), &Value::from(f64::from(due))));
        assert!((count("sent") + count("missed")).abs_diff(u64::from(due)) <= 2, "{stream}");
        assert_eq!([count("lost"), count("received")], [0, count("sent")], "{stream}");
        assert_eq!(stream["latency_from_due_ns"]["count"], stream["received"]);
    }
    for field in ["sent", "received", "missed"] {
        let sum: u64 = streams.iter().map(|stream| stream[field].as_u64().unwrap()).sum();
        assert_eq!(direction[field], sum, "{field}");
    }
    assert_eq!((&direction["intended_pps"], &direction["foreign"]), (&Value::from(7000.0), &Value::from(0)));

    let output = pktgen(&[&PAIR[..], &options, &["--quiet", "--warm-up", "0s"]].concat());
    let page = String::from_utf8(output.stdout).unwrap();
    assert!(
        ["voice", "bulk", "2,000", "reordered  extent", "streams at rates of their own: 7.000 kpps"]
            .iter()
            .all(|words| page.contains(words)),
        "{page}"
    );
}

/// A capture of `count` frames, a millisecond from one to the next, of 60 bytes and more, for station 02:00:00:00:00:77.
fn capture(count: u32) -> tempfile::NamedTempFile {
    let mut bytes = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0];
    for number in 0..count {
        let length = 60 + number % 40;
        bytes.extend([number / 1000, number % 1000 * 1000, length, length].map(u32::to_le_bytes).concat());
        bytes.extend([2, 0, 0, 0, 0, 0x77, 2, 0, 0, 0, 0, 0x66, 0x88, 0xb5]);
        bytes.extend((14..length).map(|at| u8::try_from((at + number) % 256).unwrap()));
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    file
}

#[test]
fn a_capture_is_replayed_at_its_own_pace_at_another_or_at_a_rate() {
    let file = capture(200);
    let common = ["--one-way", "--catch-up", "1s", "--pcap", file.path().to_str().unwrap()];
    for (options, sent, intended, seconds) in [
        (&["--pcap-turns", "1"][..], 200, Some(1000.0), 0.199),
        (&["--pcap-turns", "3", "--pcap-speed", "4"], 600, Some(4000.0), 0.149),
        (&["--duration", "300ms", "--pcap-speed", "2"], 600, Some(2000.0), 0.299),
        (&["--pcap-turns", "2", "--rate", "5k"], 400, Some(5000.0), 0.079),
        (&["--count", "1500", "--pcap-speed", "max"], 1500, None, 0.0),
        (&["--pcap-turns", "1", "--tag", "full"], 200, Some(1000.0), 0.199),
    ] {
        let (report, _) = report(&[&PAIR[..], &common, options].concat(), 0);
        let direction = &report["directions"][0];
        for (field, count) in [("sent", sent), ("received", sent), ("lost", 0), ("missed", 0), ("foreign", 0)] {
            assert_eq!(direction[field], count, "{options:?}, {field}: {direction}");
        }
        assert_eq!(direction["intended_pps"].as_f64(), intended, "{options:?}");
        assert!(direction["duration_s"].as_f64().unwrap() >= seconds, "{options:?}: {direction}");
        let timed = direction["latency_from_due_ns"]["count"].as_u64();
        let tagged = options.contains(&"--tag");
        assert_eq!(timed, tagged.then_some(sent), "{options:?}");
        // What is only counted is told so, and has no figures that nobody knows.
        assert_eq!(direction["duplicate"].as_u64(), tagged.then_some(0), "{options:?}");
        let warned = report["warnings"].to_string().contains("makes good one that is lost");
        assert_eq!(warned, !tagged, "{report}");
    }
}

#[test]
fn frames_of_several_buffers_are_found_wherever_their_tag_lies() {
    for (size, tag) in [("2040-2070,4096-4112,9216", "full"), ("2047-2057,60,8999", "short"), ("9216", "full")] {
        let options = ["--size", size, "--tag", tag, "--rate", "5k", "--catch-up", "1s", "--count", "400"];
        let (report, _) = report(&[&PAIR[..], &options].concat(), 0);
        for direction in report["directions"].as_array().unwrap() {
            for (field, count) in [("sent", 400), ("received", 400), ("reordered", 0), ("foreign", 0), ("damaged", 0)] {
                assert_eq!(direction[field], count, "{size}, {field}: {direction}");
            }
        }
    }
}

/// A single port hears itself over a loop, with the queue pairs that it is asked for.
#[test]
fn a_port_with_a_loop_is_measured_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("floor.json").to_str().unwrap().to_owned();
    let calibrate = ["calibrate", "soft:a?wire=loop", "--rates", "1k", "--sizes", "60", "--duration", "200ms"];
    let program =
        Command::new(env!("CARGO_BIN_EXE_pktgen")).args(calibrate).args(["--output", &file]).output().unwrap();
    assert!(program.status.success(), "{}", String::from_utf8_lossy(&program.stderr));
    let written: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let floors = written["floors"].as_array().unwrap();
    let of = |field: &str| floors.iter().map(|floor| floor[field].clone()).collect::<Vec<_>>();
    assert_eq!((of("from"), of("to"), of("lost")), (of("to"), vec!["soft:a".into()], vec![0.into()]), "{written}");
    for queues in ["1", "2"] {
        let options = ["soft:a?wire=loop", "--queues", queues, "--rate", "5k", "--catch-up", "1s", "--count", "400"];
        let (report, _) = report(&options, 0);
        let directions = report["directions"].as_array().unwrap();
        assert_eq!(directions.len(), 1, "{report}");
        for (field, count) in [("sent", 400), ("received", 400), ("foreign", 0), ("damaged", 0), ("duplicate", 0)] {
            assert_eq!(directions[0][field], count, "{queues}, {field}: {}", directions[0]);
        }
    }
    // Without a loop nothing comes back.
    let output = pktgen(&["soft:a", "--duration", "100ms", "--quiet"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("soft:a > soft:a: of the probes that soft:a sends none arrives") && said.contains("over a loop"),
        "{said}"
    );
}

#[test]
fn the_floor_of_the_instrument_stands_beside_its_figures() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("floor.json");
    let calibrate = |options: &[&str]| {
        let common = ["calibrate", PAIR[0], PAIR[1], "--duration", "200ms", "--warm-up", "10ms", "--output"];
        let program =
            Command::new(env!("CARGO_BIN_EXE_pktgen")).args(common).arg(&file).args(options).output().unwrap();
        assert!(program.status.success(), "{}", String::from_utf8_lossy(&program.stderr));
        String::from_utf8(program.stdout).unwrap()
    };
    let said = calibrate(&["--rates", "100,5k", "--sizes", "60,1000", "--one-way"]);
    assert!(said.contains("due p50 us") && said.contains("subtracts nothing"), "{said}");
    let written: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert!(
        written["clock"]["error_ppm"].as_f64() > Some(0.0) && written["clock"]["error_ns"].is_number(),
        "{written}"
    );
    let floors = written["floors"].as_array().unwrap();
    let sizes: Vec<_> = floors.iter().map(|floor| floor["size"].as_f64().unwrap()).collect();
    assert_eq!(sizes, [60.0, 60.0, 1000.0, 1000.0]);
    assert!(
        floors.iter().all(|floor| floor["lost"] == 0 && floor["latency_from_due_ns"]["p99"].as_f64() > Some(0.0)),
        "{written}"
    );

    let options = [
        "--floor",
        file.to_str().unwrap(),
        "--one-way",
        "--rate",
        "5k",
        "--catch-up",
        "1s",
        "--size",
        "900",
        "--count",
        "500",
    ];
    let (report, _) = report(&[&PAIR[..], &options].concat(), 0);
    assert_eq!(report["directions"][0]["floor"], floors[3]);
    assert_eq!(report["directions"][0]["latency_from_due_ns"]["count"], 500);
    let warning = report["warnings"].to_string();
    assert!(warning.contains("of 1000 bytes, and these are"), "{warning}");
    let output = pktgen(&[&PAIR[..], &options, &["--quiet"]].concat());
    assert!(String::from_utf8(output.stdout).unwrap().contains("soft:a > soft:b: floor at "));
}

/// The device never says that a frame is sent, so its ring is full for good.
#[test]
fn a_ring_that_stands_still_does_not_hold_up_the_end() {
    for end in [&["--duration", "300ms"][..], &["--count", "600"]] {
        let ports = ["soft:a?wire=peer:b&fault=no-dd", "soft:b"];
        let options = ["--one-way", "--rate", "2k", "--ring-size", "64", "--catch-up", "1s"];
        let code = i32::from(end[0] == "--count");
        let (report, message) = report(&[&ports[..], &options, end].concat(), code);
        let direction = &report["directions"][0];
        let [sent, missed] = ["sent", "missed"].map(|field| direction[field].as_u64().unwrap());
        if end[0] == "--count" {
            let words = format!("pktgen: soft:a > soft:b: {} frames of --count not sent", 600 - sent);
            assert!(message.starts_with(&words) && message.lines().count() == 1, "{message}");
        }
        assert!(
            sent < 64 && missed > 0 && report["warnings"][0].as_str().unwrap().contains("less than its rate"),
            "{report}"
        );
        assert!(end[0] == "--count" || sent + missed == 600, "{sent} and {missed}");
    }
}

/// The link goes down and comes back hundreds of times, and may be down at the end.
#[test]
fn a_link_that_was_down_for_a_while_is_told_of() {
    let ports = ["soft:a?wire=peer:b&fault=link-flap:1000", "soft:b"];
    let options = ["--one-way", "--rate", "2k", "--duration", "2s", "--ring-size", "64", "--json", "--quiet"];
    let output = pktgen(&[&ports[..], &options].concat());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let downs = [0, 1].map(|port: usize| report["ports"][port]["link_downs"].as_u64().unwrap());
    assert!(downs[0] > 0 && downs[1] == 0, "{report}");
    let warnings = report["warnings"].to_string();
    assert!(warnings.contains("soft:a: its link went down") && !warnings.contains("too slow"), "{report}");
    let error = report["error"].as_str();
    let is_down = error.is_some_and(|error| error.starts_with("soft:a: its link went down; what did not arrive"));
    assert_eq!((output.status.code(), error.is_some()), (Some(i32::from(is_down)), is_down), "{report}");
}

#[test]
fn nothing_missed_is_no_rate_missed() {
    // Of random times more or fewer than the mean are due in a second.
    for pattern in ["poisson:5", "poisson:7", "bursts:500"] {
        let options = [
            "--one-way",
            "--rate",
            "1k",
            "--duration",
            "1s",
            "--catch-up",
            "1s",
            "--expect-rate",
            "--pattern",
            pattern,
        ];
        let (report, _) = report(&[&PAIR[..], &options].concat(), 0);
        assert_eq!(
            (&report["directions"][0]["missed"], report["warnings"].as_array().unwrap().len()),
            (&Value::from(0), 0)
        );
    }
}

/// Four cables, each measured as if there were no other.
#[test]
fn eight_ports_are_measured_in_one_run_and_what_is_too_much_is_named() {
    let cables = ["soft:a?wire=peer:b", "soft:b", "soft:c?wire=peer:d", "soft:d"];
    let ports = [&cables[..], &["soft:e?wire=peer:f", "soft:f", "soft:g?wire=peer:h", "soft:h"]].concat();
    let (report, _) = report(&[&ports[..], &["--rate", "2k", "--catch-up", "1s", "--count", "300"]].concat(), 0);
    let directions = report["directions"].as_array().unwrap();
    let names: Vec<_> = directions.iter().map(|one| ["from", "to"].map(|end| one[end].as_str().unwrap())).collect();
    let expected = ["ab", "ba", "cd", "dc", "ef", "fe", "gh", "hg"].map(|ends| [&ends[..1], &ends[1..]]);
    assert_eq!(names, expected.map(|ends| ends.map(|end| format!("soft:{end}"))));
    for direction in directions {
        for (field, count) in [("sent", 300), ("received", 300), ("lost", 0), ("duplicate", 0), ("foreign", 0)] {
            assert_eq!(direction[field], count, "{field}: {direction}");
        }
        assert_eq!(direction["latency_from_due_ns"]["count"], 300, "{direction}");
    }

    let file = definitions(&"[[stream]]\nframe = ['ethernet', 'ipv4', 'udp']\n".repeat(128));
    let streams = ["--queues", "64", "--stream", file.path().to_str().unwrap()];
    for (arguments, words) in [
        (ports[..7].to_vec(), "soft:g: has no partner; name ports in pairs"),
        ([&ports[..], &["--queues", "65"]].concat(), "65 is not in 1..=64"),
        ([&ports[..], &streams].concat(), "--queues: 64 queue pairs a port are too many for so many streams and ports"),
    ] {
        let output = pktgen(&arguments);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), message.lines().count()), (Some(2), 1), "{arguments:?}: {message}");
        assert!(message.contains(words), "{arguments:?}: {message}");
    }
}

#[test]
fn an_error_in_a_definition_shows_what_it_is_about() {
    for (text, message) in [
        (
            "[[stream]]\nframe = ['ethernet', { ipv4 = { sorce = '1.2.3.4' } }]\n",
            ":2:33: unknown key \"sorce\"; did you mean \"source\"?: frame = ['ethernet', { ipv4 = { sorce = '1.2.3.4' } }]\n",
        ),
        (
            "[[stream]]\nname = 'x'\nframe = ['ethernet']\nrate = '5G'\n[[stream]]\nframe = ['ethernet']\nrate = '5 G'\n",
            ":7:8: rate \"5 G\" of stream 2: \"5 G\" is no rate",
        ),
        (
            "[[stream]]\nframe = ['ethernet']\nrate = '60%'\n[[stream]]\nframe = ['ethernet']\nrate = '6Gbit/s L1'\n",
            "all streams together are 12.000 Gbit/s with preamble and gap, above the line of 10 Gbit/s",
        ),
        ("[[stream]]\nframe = ['\u{202e}x\u{1b}']\n", ": frame = ['?x?']\n"),
        (
            "[[stream]]\nframe = ['ethernet']\nrate = '16M'\n",
            ":3:8: rate \"16M\" of stream 1: 16000000 frames a second are above the line",
        ),
    ] {
        let file = definitions(text);
        let output = pktgen(&[&PAIR[..], &["--line", "10G", "--stream", file.path().to_str().unwrap()]].concat());
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(message) && said.lines().count() == 1, "{said}");
    }
}

#[test]
fn a_definition_that_is_no_text_is_refused_by_its_line() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), b"[[stream]]\nframe = ['ethernet']\nname = '\xff'\n").unwrap();
    let output = pktgen(&[&PAIR[..], &["--stream", file.path().to_str().unwrap()]].concat());
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains(":3: this is no UTF-8; name a file") && said.lines().count() == 1, "{said}");
}

#[test]
fn bad_input_is_one_line() {
    let patterned = definitions("[[stream]]\nframe = ['ethernet']\nrate = 1000\npattern = 'even'\n");
    for (arguments, code, words) in [
        (&[][..], 2, "PORT"),
        (&["soft:a", "soft:a"], 2, "named twice"),
        (&["soft:a", "soft:b", "soft:c"], 2, "soft:c: has no partner"),
        (&["soft:a", "soft:b", "--rate", "0"], 2, "a rate of nothing"),
        (&["soft:a", "soft:b", "--rate", "x"], 2, "no rate"),
        (&["soft:a", "soft:b", "--rate", "1k,2k,3k"], 2, "3 rates for 2 ports that send; give one for all"),
        (&["soft:a", "soft:b", "--rate", "1k,2k", "--one-way"], 2, "2 rates for 1 port that sends"),
        (&["soft:a", "soft:b", "--rate", "1k,"], 2, "no rate"),
        (&["soft:a", "soft:b", "--pattern", "even,even,even"], 2, "3 patterns for 2 ports that send; give one for all"),
        (&["soft:a", "soft:b", "--pattern", "even,odd"], 2, "write even, bursts:N"),
        (
            &["soft:a", "soft:b", "--pattern", "poisson", "--stream", patterned.path().to_str().unwrap()],
            2,
            "all streams of the file have patterns of their own; leave it out",
        ),
        (&["soft:a", "soft:b", "--rate", "1k", "--rate", "2k"], 2, "cannot be used multiple times"),
        (&["soft:a", "soft:b", "--rate", "1k,15M", "--line", "10G"], 2, "carry 14880952 frames of 60 bytes"),
        (&["soft:a", "soft:b", "--rate", "50%"], 2, "--line"),
        (&["soft:a", "soft:b", "--rate", "15M", "--line", "10G"], 2, "carry 14880952 frames of 60 bytes"),
        (&["soft:a", "soft:b", "--rate", "1M", "--line", "10"], 2, "above the line"),
        (&["soft:a", "soft:b", "--size", "59"], 2, "60 to 9216"),
        (&["soft:a", "soft:b", "--size", "60-9216", "--batch", "4"], 2, "--batch 5"),
        (&["soft:a", "soft:b", "--pcap", "/nowhere.pcap"], 1, "--pcap /nowhere.pcap: cannot be opened"),
        (&["soft:a", "soft:b", "--pcap", "/dev/null"], 2, "it is empty"),
        (&["soft:a", "soft:b", "--pcap", "/dev/zero"], 2, "begins like no capture"),
        (&["soft:a", "soft:b", "--pcap", "x.pcap", "--size", "60"], 2, "--size"),
        (&["soft:a", "soft:b", "--pcap-speed", "2"], 2, "--pcap"),
        (&["soft:a", "soft:b", "--pcap", "x.pcap", "--pcap-speed", "nan"], 2, "or max"),
        (&["soft:a", "soft:b", "--pcap", "x.pcap", "--expect-latency-p99", "1us"], 2, "--tag full"),
        (&["soft:a", "soft:b", "--pcap", "x.pcap", "--expect-loss", "0"], 2, "makes good one that is lost; use --tag"),
        (&["soft:a", "soft:b", "--size", "60*18446744073709551615,61*2"], 2, "weights sum up to"),
        (&["soft:a", "soft:b", "--stream", "/dev/zero"], 2, "longer than 1 MiB"),
        (&["soft:a?wire=peer:b", "soft:b", "--dst-ip", "2001:2::1"], 2, "the 14 bytes of the tag need 76"),
        (&["soft:a", "soft:b", "--flows", "1048577"], 2, "1048576"),
        (&["soft:a", "soft:b", "--stream", "/nowhere.toml"], 1, "--stream /nowhere.toml: cannot be read"),
        (&["soft:a", "soft:b", "--stream", "/dev/null"], 2, "/dev/null:1:1: there is no stream"),
        (&["soft:a", "soft:b", "--stream", "x.toml", "--size", "60"], 2, "--size"),
        (&["soft:a", "soft:b", "--pattern", "bursts"], 2, "bursts:N"),
        (&["soft:a", "soft:b", "--catch-up", "0"], 2, "at most a second"),
        (&["soft:a", "soft:b", "--duration", "0s"], 2, "at most a day"),
        (&["soft:a", "soft:b", "--count", "0"], 2, "--count"),
        (&["soft:a", "soft:b", "--tag", "long"], 2, "short or full"),
        (&["soft:a", "soft:b", "--expect-loss", "101"], 2, "percentage"),
        (&["soft:a", "soft:b", "--floor", "/nowhere"], 1, "--floor /nowhere: cannot be read"),
        (&["soft:a", "soft:b", "--floor", "/dev/null"], 2, "name a file of pktgen calibrate"),
        (&["soft:a", "soft:b", "--expect-rate"], 2, "no rate to compare with"),
        (&["soft:a", "soft:b", "--tag", "short", "--expect-latency-p99", "1us"], 2, "--tag full"),
        (&["soft:a?wire=peer:c", "soft:b"], 2, "c is none of the ports"),
        (&["soft:a", "fffe:ff:1f.7"], 1, "no PCI device"),
    ] {
        let output = pktgen(arguments);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {message}");
        assert!(message.starts_with("pktgen: ") && message.lines().count() == 1, "{message}");
        assert!(message.contains(words), "{arguments:?}: {message}");
    }
}

/// What the cables say in the log that they have done, by the port that sends.
fn cable(log: &str, from: &str, field: &str) -> u64 {
    let line = log.lines().find(|line| line.contains(&format!("cable {from} > "))).unwrap_or_else(|| panic!("{log}"));
    let value = line.split_whitespace().find_map(|word| word.strip_prefix(field)?.strip_prefix('='));
    value.unwrap().parse().unwrap()
}

/// Runs over cables with knobs; the report, and what the cables say.
fn over_cables(ports: [&str; 2], options: &[&str]) -> (Value, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_pktgen"))
        .args([&["run"], &ports[..], options, &["--warm-up", "0s", "--json", "--quiet"]].concat())
        .env("RUST_LOG", "softnic=info")
        .output()
        .unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    (serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{log}")), log)
}

#[test]
fn what_a_cable_with_knobs_did_is_what_the_report_says() {
    // The first frames pass untouched, the probes among them, so that all that happens does so to frames that count.
    let a = "soft:a?wire=peer:b&after=1000&loss=1%&loss-burst=0.1%:5&duplicate=0.5%&reorder=2%&seed=4";
    let b = "soft:b?wire=peer:a&after=1000&duplicate=1%&reorder=1%";
    let (report, log) = over_cables([a, b], &["--count", "20000"]);
    for (direction, from) in report["directions"].as_array().unwrap().iter().zip(["a", "b"]) {
        let did = |field| cable(&log, from, field);
        let lost = did("lost") + did("lost_in_bursts");
        assert_eq!(lost > 100, from == "a", "{log}");
        for (field, count) in [
            ("sent", 20_000),
            ("received", 20_000 - lost),
            ("lost", lost),
            ("duplicate", did("duplicated")),
            ("reordered", did("reordered")),
            ("late", 0),
        ] {
            assert_eq!(direction[field], count, "{from}, {field}: {log}\n{direction}");
        }
        assert_eq!((did("overflowed"), did("held")), (0, 0), "{log}");
    }
}

#[test]
fn what_a_cable_did_to_frames_of_several_queue_pairs_is_what_the_report_says() {
    let a = "soft:a?wire=peer:b&after=1000&loss=1%&duplicate=1%&seed=4";
    let b = "soft:b?wire=peer:a&after=1000&loss-burst=0.1%:5&duplicate=0.5%";
    let (report, log) = over_cables([a, b], &["--queues", "2", "--flows", "50", "--count", "20000"]);
    for (direction, from) in report["directions"].as_array().unwrap().iter().zip(["a", "b"]) {
        let did = |field| cable(&log, from, field);
        let (lost, duplicate) = (did("lost") + did("lost_in_bursts"), did("duplicated"));
        assert!(lost > 50 && duplicate > 50, "{log}");
        for (field, count) in [
            ("sent", 20_000),
            ("received", 20_000 - lost),
            ("lost", lost),
            ("duplicate", duplicate),
            ("reordered", 0),
            ("late", 0),
        ] {
            assert_eq!(direction[field], count, "{from}, {field}: {log}\n{direction}");
        }
    }
}

#[test]
fn what_a_buffer_has_no_room_for_is_lost_and_a_delay_is_seen() {
    let ports = ["soft:a?wire=peer:b&after=1000&rate=50k&buffer=64&delay=2ms", "soft:b"];
    let (report, log) = over_cables(ports, &["--count", "5000", "--one-way"]);
    let (direction, overflowed) = (&report["directions"][0], cable(&log, "a", "overflowed"));
    assert_eq!((&direction["sent"], &direction["lost"]), (&Value::from(5000), &Value::from(overflowed)), "{log}");
    assert_eq!((&direction["reordered"], &direction["duplicate"]), (&Value::from(0), &Value::from(0)));
    // Frames that wait behind others in the buffer take longer than the delay.
    assert!(direction["latency_from_ring_ns"]["max"].as_f64().unwrap() >= 2e6, "{direction}");
}
