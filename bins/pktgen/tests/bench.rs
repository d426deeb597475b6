//! `pktgen bench` as a program: what it stores is what it shows, and what it cannot run it says.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use roxmltree::{Document, ParsingOptions};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn pktgen(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pktgen")).args(arguments).output().unwrap()
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

#[test]
fn what_is_stored_is_shown_beside_the_documents() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let output = pktgen(&["bench", "rings", "numa", "--quick", "--out", path]);
    let said = text(output.stderr);
    assert!(output.status.success(), "{said}");
    let shown = text(output.stdout);
    let stored = std::fs::read_to_string(folder.path().join("rings.json")).unwrap();
    let stored: Value = serde_json::from_str(&stored).unwrap();
    let points = stored["points"].as_array().unwrap();
    assert_eq!(points.iter().map(|point| point["point"].as_u64().unwrap()).collect::<Vec<_>>(), [64, 4096]);
    // Where any trial came to its end.
    if points.iter().any(|point| point["forwarded"][0].is_number()) {
        let clock = stored["about"]["clock"].as_str().unwrap();
        assert!(clock.contains(" ppm and ") && clock.contains(" ns against CLOCK_MONOTONIC"), "{clock}");
    }
    assert!(!folder.path().join("numa.json").exists());
    assert_eq!(text(pktgen(&["bench", "rings", "numa", "--show", path]).stdout), shown);
    assert!(shown.contains("cannot run here: it needs a card on each of two NUMA nodes"), "{shown}");
    assert!(shown.contains("document: core on the other socket: 65.152 % of line (white paper, table 5-15"), "{shown}");

    let page = folder.path().join("page");
    let output = pktgen(&["bench", "--show", path, "--html", page.to_str().unwrap()]);
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    let page = std::fs::read_to_string(page).unwrap();
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    let document = Document::parse_with_options(&page, options).unwrap();
    let cells: Vec<&str> = document
        .descendants()
        .filter(|node| node.tag_name().name() == "td")
        .filter_map(|node| node.text())
        .map(str::trim)
        .collect();
    for point in points {
        if let Some(forwarded) = point["forwarded"][0].as_f64() {
            let digits = format!("{forwarded:.0}");
            assert!(shown.replace(',', "").contains(&digits), "{digits}: {shown}");
            assert!(cells.iter().any(|cell| cell.replace(',', "") == digits), "{digits}: {cells:?}");
        }
    }
    for published in ["6,284,600 pps", "16,353,825 pps", "74.138 % of line", "0.14 ms", "300 cycles a packet"] {
        assert!(cells.contains(&published), "{published}: {cells:?}");
    }
    // Each of them is drawn, also one that is the only one of its unit.
    let drawn: Vec<&str> = document
        .descendants()
        .filter(|node| node.tag_name().name() == "svg")
        .flat_map(|chart| chart.descendants())
        .filter(|node| node.tag_name().name() == "text")
        .filter_map(|node| node.text())
        .collect();
    for published in ["300", "5.5", "14,493,152", "74.138", "65.152", "14,600,020", "16,353,825", "0.14"] {
        assert!(drawn.contains(&published), "{published}: {drawn:?}");
    }
}

#[test]
fn what_brings_its_own_ports_is_measured_or_says_why_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    for (name, points) in [("lcores", &[1, 2][..]), ("latency", &[1, 2, 3, 4, 5, 6]), ("ovs", &[1, 4])] {
        let output = pktgen(&["bench", name, "--quick", "--out", path]);
        let (shown, said) = (text(output.stdout), text(output.stderr));
        assert!(output.status.success(), "{name}: {said}");
        let Ok(stored) = std::fs::read_to_string(folder.path().join(format!("{name}.json"))) else {
            assert!(shown.contains("It cannot run here: it needs "), "{name}: {shown}");
            continue;
        };
        let stored: Value = serde_json::from_str(&stored).unwrap();
        let measured = stored["points"].as_array().unwrap();
        assert_eq!(measured.iter().map(|point| point["point"].as_u64().unwrap()).collect::<Vec<_>>(), points);
        for point in measured.iter().filter(|point| point["failed"].is_null()) {
            let figure = if name == "latency" { &point["latency"] } else { &point["forwarded"] };
            // In 100 ms of a busy machine another program's switch may forward nothing: tests/tests/ovs.rs judges what it does.
            let least = if name == "ovs" { 0.0 } else { f64::MIN_POSITIVE };
            assert!(figure[0].as_f64().unwrap() >= least, "{name}: {point}");
        }
        assert!(shown.contains("document: ") && shown.contains("measured once"), "{name}: {shown}");
        let says_more = ["differs from itself", "differ from themselves"].iter().any(|words| shown.contains(words));
        assert!(!says_more, "{name}: {shown}");
    }
}

/// What `benches/experiments` shows is made of the results that are stored there, and of nothing else.
#[test]
fn the_page_of_stored_results_is_made_of_them() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches/experiments");
    let read = |name: &str| std::fs::read_to_string(format!("{folder}/{name}")).unwrap();
    let new = tempfile::tempdir().unwrap();
    let page = new.path().join("page");
    let output = pktgen(&["bench", "--show", folder, "--html", page.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    let anew = "measure or show anew, as benches/experiments/README.md says";
    assert!(std::fs::read_to_string(&page).unwrap() == read("index.html"), "index.html: {anew}");
    let shown = text(pktgen(&["bench", "--show", folder]).stdout);
    assert!(shown == read("results.txt"), "results.txt: {anew}");
    // What is compared is what differs in one thing: the flow of the switch with frames of a size, and the path of a figure.
    for (name, figure, pairs) in [
        ("ovs", "forwarded", &[["64, NORMAL", "64, port flow"], ["1500, NORMAL", "1500, port flow"]][..]),
        (
            "latency",
            "latency",
            &[["kernel, mean", "bypass, mean"], ["kernel, p99", "bypass, p99"], ["kernel, most", "bypass, most"]],
        ),
    ] {
        let stored: Value = serde_json::from_str(&read(&format!("{name}.json"))).unwrap();
        let medians = stored["points"].as_array().unwrap().iter().map(|point| {
            let mut figures: Vec<f64> =
                point[figure].as_array().unwrap().iter().map(|one| one.as_f64().unwrap()).collect();
            figures.sort_by(f64::total_cmp);
            let middle = figures.len() / 2;
            if figures.len() % 2 == 1 { figures[middle] } else { f64::midpoint(figures[middle - 1], figures[middle]) }
        });
        let medians: Vec<f64> = medians.collect();
        let of_this = shown.split("\n\n").find(|one| one.starts_with(&format!("{name}: "))).unwrap();
        for ([from, to], medians) in pairs.iter().zip(medians.chunks(2)) {
            let at = of_this.rfind(&format!("{from}: ")).unwrap();
            let (sentence, _) = of_this[at..].split_once(" than these points differ from themselves").unwrap();
            let factor = format!("x: {}", if sentence.ends_with("no more") { "no more" } else { "more" });
            assert!(sentence.contains(&format!("; {to}: ")), "{sentence}");
            assert!(
                sentence.ends_with(&format!(", {:.2}{factor}", medians[1] / medians[0])),
                "{sentence}: {medians:?}"
            );
        }
        assert!(!of_this.contains("Medians reach from"), "{of_this}");
    }
}

/// What begins as results do.
const GOOD: &str = r#"{"version":"good"#;

#[test]
fn the_page_may_be_one_of_the_folder_that_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let new = folder.path().join("target/experiments");
    let page = new.join("index.html");
    let output = pktgen(&["bench", "numa", "--out", new.to_str().unwrap(), "--html", page.to_str().unwrap()]);
    assert!(output.status.success() && page.exists(), "{output:?}");
}

#[test]
fn what_fails_replaces_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (path, stored) = (folder.path().to_str().unwrap(), folder.path().join("rings.json"));
    std::fs::write(&stored, GOOD).unwrap();
    for (ports, code, words) in [
        ("soft:a,soft:a", 2, "named twice"),
        ("soft:a?wire=peer:b,soft:b?wire=peer:a&loss=100%", 1, "soft:b > soft:a: of the probes"),
    ] {
        // Frames go from the first to the second: in the second case none arrives.
        let ports = ports.split(',').rev().collect::<Vec<_>>().join(",");
        let output = pktgen(&["bench", "rings", "--quick", "--out", path, "--ports", &ports]);
        let said = text(output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(words) && said.lines().count() == 1, "{said}");
        assert_eq!(std::fs::read_to_string(&stored).unwrap(), GOOD);
    }
}

#[test]
fn a_signal_ends_pings_and_keeps_what_is_stored() {
    let folder = tempfile::tempdir().unwrap();
    let stored = folder.path().join("latency.json");
    std::fs::write(&stored, GOOD).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_pktgen"));
    command.args(["bench", "latency", "--out", folder.path().to_str().unwrap()]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let begun = Instant::now();
    // What it starts it starts once it catches signals.
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    while std::fs::read_to_string(&children).unwrap().is_empty() && child.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(5));
    }
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = text(output.stderr);
    assert_eq!(std::fs::read_to_string(&stored).unwrap(), GOOD, "{said}");
    if said.contains("damaged") {
        return skip::test!("latency cannot be measured on this host");
    }
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said, "pktgen: interrupted by a signal\n");
}

/// What an experiment had measured when a signal came is kept, beside what was stored before, and shown as cut.
#[test]
fn what_was_measured_before_a_signal_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    assert!(pktgen(&["bench", "rings", "--quick", "--out", path]).status.success());
    let [whole, cut] = ["rings.json", "rings.cut.json"].map(|name| folder.path().join(name));
    let before = std::fs::read_to_string(&whole).unwrap();
    assert!(!cut.exists());
    for signal in [Signal::INT, Signal::KILL] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pktgen"));
        command.args(["bench", "rings", "flows", "--duration", "20ms", "--repetitions", "100", "--out", path]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let begun = Instant::now();
        while !cut.exists() {
            assert!(begun.elapsed() < Duration::from_secs(60) && child.try_wait().unwrap().is_none());
            std::thread::sleep(Duration::from_millis(5));
        }
        kill_process(Pid::from_child(&child), signal).unwrap();
        let output = child.wait_with_output().unwrap();
        let (shown, said) = (text(output.stdout), text(output.stderr));
        let kept: Value = serde_json::from_str(&std::fs::read_to_string(&cut).unwrap()).unwrap();
        let points = kept["points"].as_array().unwrap();
        let made: usize = points.iter().map(|point| point["forwarded"].as_array().unwrap().len()).sum();
        let missing = kept["missing"].as_u64().unwrap();
        // One that fails on a machine that stands still counts as none.
        assert!(points.len() == 7 && made > 0 && made as u64 <= 700 - missing && missing > 0, "{kept}");
        assert_eq!(std::fs::read_to_string(&whole).unwrap(), before);
        let words = format!("It was cut: of its measurements {missing} were not made.");
        let again = text(pktgen(&["bench", "rings", "--show", path]).stdout);
        assert!(again.matches("rings: Ring sizes").count() == 2 && again.contains(&words), "{again}");
        if signal == Signal::INT {
            assert_eq!(output.status.code(), Some(1), "{said}");
            assert_eq!(said, "pktgen: interrupted by a signal\n");
            assert!(shown.starts_with(again.trim_end()) && shown.contains("It has not been run."), "{shown}");
        }
        let page = folder.path().join("page");
        assert!(pktgen(&["bench", "rings", "--show", path, "--html", page.to_str().unwrap()]).status.success());
        assert!(std::fs::read_to_string(&page).unwrap().contains(&words));
        assert!(!again[again.find("It was cut").unwrap()..].contains("Medians reach from"), "{again}");
        // What is damaged of it hides nothing of the run that was whole.
        std::fs::write(&cut, "{").unwrap();
        let output = pktgen(&["bench", "rings", "--show", path]);
        assert!(output.status.success() && text(output.stderr).contains("left out"));
        std::fs::remove_file(&cut).unwrap();
    }
    // Once all of it is measured it is in the place of both.
    std::fs::write(&cut, before).unwrap();
    assert!(pktgen(&["bench", "rings", "--quick", "--out", path]).status.success());
    assert!(!cut.exists());
}

#[test]
fn bad_input_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("batch.json"), "{").unwrap();
    std::fs::write(folder.path().join("sizes.cut.json"), "notes of a person").unwrap();
    let results = r#"{"version":1,"experiment":"flows","about":{},"points":[{"point":1,"forwarded":[-1e300],"latency":[],"failed":null}]}"#;
    std::fs::write(folder.path().join("flows.json"), results).unwrap();
    let pipe = folder.path().join("rings.json");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let path = folder.path().to_str().unwrap();
    for (arguments, code, words) in [
        (&["bench", "speed", "--out", path][..], 2, "speed"),
        (&["bench", "batch"], 2, "--out"),
        (&["bench", "batch", "--out", path, "--show", path], 2, "cannot be used with"),
        (&["bench", "batch", "--ports", "soft:a", "--out", path], 2, "1 named"),
        (&["bench", "batch", "--show", "/nowhere"], 1, "cannot be read"),
        (&["bench", "batch", "--show", path], 1, "damaged"),
        (&["bench", "flows", "--show", path], 1, "flows.json: has the figure -1e300"),
        (&["bench", "rings", "--show", path], 1, "rings.json: cannot be read"),
        (&["bench", "rings", "--out", path], 1, "rings.json: cannot be read"),
        (&["bench", "sizes", "--out", path], 1, "sizes.cut.json: is there and holds no results; name another folder"),
        (&["bench", "numa", "--out", "/dev/null/x"], 1, "cannot be made"),
        (&["bench", "numa", "--out", path, "--html", "/nowhere/x"], 1, "cannot be written"),
        (&["bench", "--out", path, "--html", "/proc/self/status"], 1, "--html"),
    ] {
        let output = pktgen(arguments);
        let said = text(output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(words) && said.lines().count() == 1, "{arguments:?}: {said}");
    }
    // What was refused leaves no folder behind.
    let new = folder.path().join("new");
    let arguments = ["bench", "batch", "--ports", "soft:a,soft:a", "--out", new.to_str().unwrap()];
    assert!(!pktgen(&arguments).status.success() && !new.exists());
}
