//! `pktgen rfc2544` and `pktgen report` as programs, over cables of software NICs whose truth is known.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock, RwLockWriteGuard};
use std::time::{Duration, Instant};
use trial::simulate::{Device, Truth};
use trial::{AnyTest, Line, Method as _, Profile, Setup};

fn pktgen(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pktgen")).args(arguments).output().unwrap()
}

/// A run whose figures are not judged: others that are not may go on beside it.
fn rfc2544(ports: &str, folder: [&str; 2], options: &[&str]) -> (Output, String) {
    let _beside = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
    unlocked("warn", ports, folder, options)
}

/// A run with lines of the log; at `info` cables say at their end what they did.
fn logged(log: &str, ports: &str, folder: [&str; 2], options: &[&str]) -> (Output, String) {
    logged_alone(&alone(), log, ports, folder, options)
}

/// The same, for one that has the machine alone already.
fn logged_alone(_: &Alone, log: &str, ports: &str, folder: [&str; 2], options: &[&str]) -> (Output, String) {
    unlocked(log, ports, folder, options)
}

fn unlocked(log: &str, ports: &str, folder: [&str; 2], options: &[&str]) -> (Output, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pktgen"));
    command.env("RUST_LOG", log).args(["rfc2544", "--ports", ports, "--quiet"]).args(folder).args(options);
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    (output, said)
}

/// The only run of a report in JSON.
fn run_of(output: &Output) -> Value {
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    report["runs"][0].clone()
}

/// The value of a row whose test begins so.
fn value(run: &Value, test: &str) -> Option<f64> {
    let rows = run["rows"].as_array().unwrap();
    rows.iter().find(|row| row["test"].as_str().unwrap().starts_with(test))?["value"].as_f64()
}

/// That a figure is missing for a reason, which the report says: this machine was too slow, so that trials are void, or a cable was stopped,
/// so that it lost frames at each load. That figures are right does not depend on a machine where devices have their own time
/// (`trial/tests.rs`).
fn assert_reason(run: &Value, path: &str, test: &str) {
    let rows = run["rows"].as_array().unwrap().iter().filter(|row| row["value"].is_null());
    let mut rows = rows.filter(|row| row["test"].as_str().unwrap().starts_with(test));
    let note = rows.next().unwrap_or_else(|| panic!("no {test}: {run:#}"))["note"].as_str().unwrap();
    let is_limited = run["limits"].as_array().is_some_and(|limits| !limits.is_empty());
    assert!(!note.is_empty() && (is_limited || note.contains("the lowest load loses more")), "{run:#}");
    let page = String::from_utf8(pktgen(&["report", path]).stdout).unwrap();
    assert!(page.contains(note) && page.contains("limit of the generator") == is_limited, "{page}");
}

/// What the cable from a port says at its end that it did, of this kind.
fn of_cable(log: &str, from: &str, what: &str) -> u64 {
    let lines: Vec<&str> = log.lines().filter(|line| line.contains(&format!("cable {from} > "))).collect();
    let words = lines.iter().flat_map(|line| line.split_whitespace());
    let counts: Vec<u64> = words.filter_map(|word| word.strip_prefix(what)?.strip_prefix('=')?.parse().ok()).collect();
    assert!(!counts.is_empty(), "{what} of {from}: {log}");
    counts.iter().sum()
}

/// Frames that trials lost, void ones too, those of them that came later, and the number of trials.
fn lost_in_trials(path: &str) -> [u64; 3] {
    let (lines, mut counts) = (std::fs::read_to_string(Path::new(path).join("trials.jsonl")).unwrap(), [0; 3]);
    for line in lines.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let outcome = &line["trial"]["outcome"];
        let count = |name: &str| outcome[name].as_u64().unwrap_or(0);
        let lost = count("sent").saturating_sub(count("received"));
        let of_trial = [lost, count("from_earlier"), u64::from(outcome.is_object())];
        counts.iter_mut().zip(of_trial).for_each(|(all, one)| *all += one);
    }
    counts
}

/// A run whose figures are judged has it alone, so that none takes the time of another.
static MACHINE: RwLock<()> = RwLock::new(());

/// That no other run is going on.
type Alone = RwLockWriteGuard<'static, ()>;

fn alone() -> Alone {
    MACHINE.write().unwrap_or_else(PoisonError::into_inner)
}

// What is late comes in bursts of 20 frames at most, for which the device has room.
const SHORT: [&str; 6] = ["--trial-time", "400ms", "--repetitions", "1", "--catch-up", "10ms"];
/// A device that lets 2,000 frames a second pass, has room for 64, and takes 2 ms.
const DEVICE: &str = "soft:a?wire=peer:b&rate=2k&buffer=64&delay=2ms,soft:b";

#[test]
fn capacity_buffer_and_delay_are_not_beyond_those_of_the_cable() {
    are_not_beyond_those_of_the_cable(&alone());
}

/// Its cores have three times as much to do as they can, while no other test measures.
#[test]
fn no_figure_is_wrong_on_a_busy_machine() {
    let alone = alone();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 * std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let done = std::panic::catch_unwind(|| are_not_beyond_those_of_the_cable(&alone));
        is_over.store(true, Ordering::Relaxed);
        done.unwrap_or_else(|failure| std::panic::resume_unwind(failure));
    });
}

/// The bounds of the throughput without loss: the lower one, if there is one, and the upper one.
fn bounds(path: &str) -> Option<(f64, Option<f64>)> {
    let report = report_of(path);
    let AnyTest::Throughput(test) =
        &report.parts().iter().find(|part| matches!(part.test, AnyTest::Throughput(_)))?.test
    else {
        return None;
    };
    let result = test.results()[0];
    Some((result.lower.or(result.upper.map(|_| 0.0))?, result.upper))
}

/// The longest time, in microseconds, for which the receiver was away in a trial of latency.
fn away(path: &str) -> f64 {
    away_of(path, 0)
}

/// The same, of the rates in turn.
fn away_of(path: &str, rate: usize) -> f64 {
    let report = report_of(path);
    let latency = report.parts().iter().find_map(|part| match &part.test {
        AnyTest::Latency(test) => test.results().get(rate).cloned(),
        _ => None,
    });
    latency.unwrap().away.unwrap() * 1e6
}

fn report_of(path: &str) -> trial::Report {
    trial::Report::read(&std::fs::read_to_string(Path::new(path).join("trials.jsonl")).unwrap()).unwrap()
}

/// Measures the device. What holds of it holds on any machine: one that is too slow makes trials void, and the report says so.
fn are_not_beyond_those_of_the_cable(alone: &Alone) {
    let folder = tempfile::tempdir().unwrap();
    let options = [
        "--one-way",
        "--sizes",
        "128",
        "--max",
        "3k",
        "--min",
        "1.5k",
        "--width",
        "1",
        "--json",
        "--tests",
        "throughput,latency,back-to-back,recovery",
    ];
    let path = folder.path().to_str().unwrap();
    let (output, said) = logged_alone(alone, "info", DEVICE, ["--out", path], &[&options[..], &SHORT].concat());
    assert!(output.status.success() || said.contains("no trial counted"), "{said}");
    let run = run_of(&output);
    // Whatever this machine did meanwhile: what trials lost the cable had no room for, and what it had no room for they lost, but for
    // the 64 frames that open the traffic of each, probes, and what came too late.
    let [lost, late, trials] = lost_in_trials(path);
    let [overflowed, unreceived] = ["overflowed", "unreceived"].map(|what| of_cable(&said, "a", what));
    println!("{lost} lost in {trials} trials, {late} of them late; the cable had no room for {overflowed}");
    assert!(lost <= overflowed + unreceived + late + 64, "{lost} lost: {said}");
    assert!(overflowed <= lost + trials * (64 + 64), "{lost} lost: {said}");
    // The buffer takes 64 frames more than pass in the time of a trial: so much more than 2,000 a second are sent without loss.
    let most = 2_000.0 + 64.0 / 0.4;
    // What is above the lower bound may be lost for a machine that stops, and makes trials void; what is below the upper one is not.
    match bounds(path) {
        Some((lower, upper)) => {
            println!("throughput {lower} to {upper:?}, and {most} is true");
            assert!(lower <= most * 1.01, "{run:#}");
            assert!(upper.is_none_or(|upper| upper >= most * 0.99), "{run:#}");
        }
        None => assert_reason(&run, path, "throughput"),
    }
    if let Some(delay) = value(&run, "typical latency") {
        // While the receiver or the cable has no core frames wait: the row says for how long. Above 2,000 a second they wait in the buffer, too.
        let away = away(path);
        println!("a delay of {delay} us, and 2,000 is true; the receiver was away for up to {away} us");
        assert!(delay >= 2_000.0, "the delay is 2 ms at least: {run:#}");
        let most = 2_000.0 + 64.0 / 2_000.0 * 1e6 + away + 500.0;
        assert!(delay <= most, "the delay is 2 ms, a buffer, and what the row says: {run:#}");
        assert!(notes(&run).contains("too long by at most"), "{run:#}");
    }
    // At half of the throughput nothing waits but for a stop of the machine.
    let rows = run["rows"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|row| row["test"].as_str().unwrap().starts_with("typical latency"));
    if let Some(delay) = rows.filter_map(|row| row["value"].as_f64()).nth(1) {
        let away = away_of(path, 1);
        println!(
            "a delay of {delay} us at half the rate, and 2,000 is true; the receiver was away for up to {away} us"
        );
        // What a software NIC adds itself, and the clock's error, which is far less.
        assert!((1_999.9..=2_000.0 + 500.0 + away).contains(&delay), "{run:#}");
    }
    // In the time of a burst at 3,000 a second 2 of 3 pass: its longest is 3 times the buffer, but for what is under way.
    if let Some(burst) = value(&run, "back-to-back") {
        println!("a burst of {burst}, and 192 is true");
        assert!((186.0..=198.0).contains(&burst), "{run:#}");
    }
    // At half of the overload nothing more is lost, once the buffer has room.
    if let Some(seconds) = value(&run, "recovery") {
        println!("recovery {seconds} s");
        assert!((0.0..=0.04).contains(&seconds), "{run:#}");
    }
    // A report of the folder is the same, in any form.
    let again = pktgen(&["report", path, "--json"]);
    assert_eq!(run_of(&again), run);
    let csv = String::from_utf8(pktgen(&["report", path, path, "--csv"]).stdout).unwrap();
    let departures = run["departures"].as_array().unwrap().len();
    assert_eq!(csv.lines().count(), 1 + 2 * (run["rows"].as_array().unwrap().len() + departures), "{csv}");
    let page = String::from_utf8(pktgen(&["report", path]).stdout).unwrap();
    assert!(page.contains("forwarded at maximum load") && page.contains("departs from RFC 2544"), "{page}");
}

#[test]
fn loss_by_chance_is_within_its_interval_and_both_ways_count() {
    // What b sends is lost, and nothing of what a sends: the worse way counts.
    let ports = "soft:a?wire=peer:b,soft:b?wire=peer:a&loss=10%&seed=3";
    let options = ["--sizes", "64", "--tests", "loss", "--max", "20k", "--json"];
    let options = [&options[..], &["--trial-time", "200ms", "--repetitions", "1", "--catch-up", "10ms"]].concat();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let (output, said) = logged("info", ports, ["--out", path], &options);
    assert!(output.status.success(), "{said}");
    let run = run_of(&output);
    // However many frames a trial has, one in ten is lost by chance: of 10,000 in all, by what the cable says.
    let [frames, lost] = ["frames", "lost"].map(|what| of_cable(&said, "b", what));
    assert!(frames < 5_000 || (lost * 100).abs_diff(frames * 10) < frames * 3, "{said}");
    match value(&run, "loss at 20,000 pps") {
        // Of 4,000 frames five deviations are 2.4 %.
        Some(loss) => assert!((7.0..=12.5).contains(&loss), "{run:#}"),
        None => assert_reason(&run, path, "loss"),
    }
}

#[test]
fn a_folder_is_of_one_run_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let options = ["--one-way", "--sizes", "64", "--tests", "loss", "--max", "1k"];
    let options = [&options[..], &SHORT].concat();
    let lines = folder.path().join("trials.jsonl");
    // As one that is at work holds it, and as a full disk has left it.
    std::fs::write(&lines, r#"{"run":{"version":2,"#).unwrap();
    let file = std::fs::File::open(&lines).unwrap();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
    for option in ["--out", "--resume"] {
        let (output, said) = rfc2544(DEVICE, [option, path], &options);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("another run writes to it") && said.lines().count() == 1, "{said}");
        assert_eq!(std::fs::read_to_string(&lines).unwrap(), r#"{"run":{"version":2,"#);
    }
    drop(file);
    let (output, said) = rfc2544(DEVICE, ["--out", path], &options);
    assert!(output.status.success(), "{said}");
    assert!(std::fs::read_to_string(&lines).unwrap().starts_with(r#"{"run":{"version":2,"profile":"#));
    assert!(pktgen(&["report", path]).status.success());
}

/// The notes of a report, joined.
fn notes(run: &Value) -> String {
    let rows = run["rows"].as_array().unwrap();
    rows.iter().map(|row| row["note"].as_str().unwrap()).collect::<Vec<_>>().join("; ")
}

#[test]
fn what_a_device_holds_for_long_is_waited_for_or_told() {
    // Longer than the trial and the silence of the profile; and a buffer that frames still come from after a wait of 2 s.
    let (holding, full) = ("soft:a?wire=peer:b&delay=600ms,soft:b", "soft:a?wire=peer:b&rate=200&buffer=700,soft:b");
    for (ports, max) in [(holding, "500"), (full, "250")] {
        let folder = tempfile::tempdir().unwrap();
        let options = ["--one-way", "--sizes", "64", "--tests", "loss", "--max", max, "--json"];
        // No trial is repeated for a machine that is late.
        let times = ["--trial-time", "400ms", "--repetitions", "1", "--catch-up", "1s"];
        let path = folder.path().to_str().unwrap();
        let (output, said) = logged("warn", ports, ["--out", path], &[&options[..], &times].concat());
        assert!(output.status.success(), "{said}");
        let run = run_of(&output);
        if let Some(loss) = value(&run, &format!("loss at {max} pps")) {
            assert!(loss < 10.0, "{run:#}");
        }
        // At the highest load the second keeps 700 frames, of which two seconds let 400 pass. Where it was stopped for so long at the
        // end of its wait, it has received them all.
        let lines = std::fs::read_to_string(folder.path().join("trials.jsonl")).unwrap();
        let outcome = |line: &str| Some(serde_json::from_str::<Value>(line).ok()?["trial"]["outcome"].clone());
        let first = lines.lines().filter_map(outcome).find(Value::is_object).unwrap();
        let kept = 200.0 * first["seconds"].as_f64().unwrap() + 700.0;
        let has_all = first["received"].as_f64().unwrap() >= kept - 10.0;
        assert_eq!(notes(&run).contains("came after the drain"), ports == full && !has_all, "{run:#}");
    }
}

#[test]
fn a_run_that_was_cut_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let options = ["--one-way", "--sizes", "64", "--tests", "loss", "--max", "1k"];
    let options = [&options[..], &SHORT].concat();
    let (output, said) = rfc2544(DEVICE, ["--out", path], &options);
    assert!(output.status.success(), "{said}");
    let lines = folder.path().join("trials.jsonl");
    let whole = std::fs::read_to_string(&lines).unwrap();
    let kept: Vec<&str> = whole.lines().collect();
    // The last trial was being written.
    std::fs::write(&lines, &whole.as_bytes()[..whole.len() - 20]).unwrap();
    let page = String::from_utf8(pktgen(&["report", path]).stdout).unwrap();
    assert!(page.contains("not written to its end"), "{page}");
    // There are results, and they are of another run than this.
    for (option, extra, words) in [
        ("--out", &[][..], "has results; go on with --resume"),
        ("--resume", &["--flows", "2"], "asked for otherwise"),
        ("--resume", &["--width", "1"], "times or repetitions differ"),
        ("--resume", &["--min", "500"], "bounds: lowest rate none given"),
        ("--resume", &["--line", "10M"], "line: none given"),
        ("--resume", &["--dst-mac", "02:00:00:00:00:09"], "addresses: MAC of the ports"),
        ("--resume", &["--ring-size", "64"], "port options: batch 32, rings of 512"),
    ] {
        let (output, said) = rfc2544(DEVICE, [option, path], &[&options[..], extra].concat());
        assert!(!output.status.success() && said.contains(words) && said.lines().count() == 1, "{said}");
    }
    let (output, said) = rfc2544(&DEVICE.replace("2ms", "9ms"), ["--resume", path], &options);
    assert!(output.status.code() == Some(2) && said.contains("its ports: ") && said.contains("9ms"), "{said}");
    let (output, said) = rfc2544(DEVICE, ["--resume", path], &options);
    assert!(output.status.success(), "{said}");
    let after = std::fs::read_to_string(&lines).unwrap();
    let again: Vec<&str> = after.lines().collect();
    assert_eq!(again[..kept.len() - 1], kept[..kept.len() - 1], "what was measured is kept");
    assert!(again.len() >= kept.len() && !String::from_utf8(output.stdout).unwrap().contains("not finished"));
    // Once more there is nothing to do, and nothing is written.
    let (output, said) = rfc2544(DEVICE, ["--resume", path], &options);
    assert!(output.status.success(), "{said}");
    assert_eq!(std::fs::read_to_string(&lines).unwrap(), after);
    // Bytes that are no UTF-8, in what the run was measured with and in a line that was cut, put nothing out of its place.
    let mut bytes = after.clone().into_bytes();
    let begun = after.find("\"begun\":\"").unwrap() + 9;
    bytes[begun..begun + 3].fill(0xff);
    let complete = bytes.len();
    bytes.extend([0xff; 40]);
    std::fs::write(&lines, &bytes).unwrap();
    let (output, said) = rfc2544(DEVICE, ["--resume", path], &options);
    assert!(output.status.success(), "{said}");
    assert_eq!(std::fs::read(&lines).unwrap(), bytes[..complete]);
    for (from, to, words) in [("\"version\":2", "\"version\":7", "version 7"), ("\"trial\"", "\"tri\"", "damaged")] {
        std::fs::write(&lines, after.replacen(from, to, 1)).unwrap();
        let said = String::from_utf8(pktgen(&["report", path]).stderr).unwrap();
        assert!(said.contains(words) && said.lines().count() == 1, "{said}");
    }
}

#[test]
fn bad_input_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let new = folder.path().join("new");
    let out = ["--out", new.to_str().unwrap()];
    for (arguments, code, words) in [
        (&["--ports", "soft:a"][..], 2, "1 named"),
        (&["--ports", "soft:a,soft:a"], 2, "named twice"),
        (&["--ports", "soft:a,soft:b,soft:c,soft:d"], 2, "4 named"),
        (&["--ports", "soft:a,soft:b", "--width", "0"], 2, "0.001 to 50"),
        (&["--ports", "soft:a,soft:b", "--min", "2k", "--max", "1k"], 2, "not below --max"),
        (&["--ports", "soft:a,soft:b", "--min", "x"], 2, "frames a second"),
        (&["--ports", "soft:a,soft:b", "--max", "15M", "--line", "10G"], 2, "carries 14880952 frames"),
        (&["--ports", "soft:a,soft:b", "--sizes", "63"], 2, "64 to 9220"),
        (&["--ports", "soft:a,soft:b", "--sizes", "9220", "--batch", "4"], 2, "--batch 5"),
        (
            &["--ports", "soft:a,soft:b", "--sizes", "64,1518", "--mtu", "1400"],
            2,
            "--mtu 1400: frames of 1514 bytes need 1500",
        ),
        (&["--ports", "soft:a,soft:b", "--sizes", "64,64"], 2, "twice"),
        (&["--ports", "soft:a,soft:b", "--sizes", "64", "--ipv6"], 2, "need 80"),
        (&["--ports", "soft:a,soft:b", "--sizes", "imix", "--ipv6"], 2, "--sizes imix"),
        (&["--ports", "soft:a,soft:b", "--tests", "speed"], 2, "back-to-back"),
        (&["--ports", "soft:a,soft:b", "--trial-time", "1ms"], 2, "10ms"),
        (&["--ports", "soft:a,soft:b", "--repetitions", "0"], 2, "1..=1000"),
        (&["--ports", "soft:a?wire=peer:c,soft:b"], 2, "c is none of the ports"),
    ] {
        let output = pktgen(&[&["rfc2544"], arguments, &out].concat());
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.starts_with("pktgen: ") && said.lines().count() == 1, "{said}");
        assert!(said.contains(words), "{arguments:?}: {said}");
        assert!(!new.exists(), "{arguments:?}");
    }
    for (arguments, code, words) in [
        (&["rfc2544", "--ports", "soft:a,soft:b"][..], 2, "--out"),
        (&["rfc2544", "--ports", "soft:a,soft:b", "--out", "/dev/null/x"], 1, "cannot be made"),
        (&["rfc2544", "--ports", "soft:a,soft:b", "--resume", "/nowhere"], 1, "trials.jsonl cannot be read"),
        (&["report"], 2, "DIR"),
        (&["report", "/nowhere"], 1, "trials.jsonl cannot be read"),
        (&["report", folder.path().to_str().unwrap()], 1, "trials.jsonl cannot be read"),
    ] {
        let output = pktgen(arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(words) && said.lines().count() == 1, "{arguments:?}: {said}");
    }
    assert!(!Path::new("/nowhere").exists());
}

/// A run of two sizes of which the first was cut is finished first, in whatever order they are asked for then.
#[test]
fn what_was_cut_is_finished_before_anything_else_begins() {
    let profile = profile(0.4, 1);
    let loss =
        simulated(&profile, Truth::default(), vec![Setup::Frmol { rate: 1e9 }, Setup::FrameLoss { highest: 1e3 }]);
    let cut = format!("{}\n", loss.trim_end().rsplit_once('\n').unwrap().0);
    let options = ["--one-way", "--trial-time", "400ms", "--repetitions", "1", "--max", "1k"];
    for (sizes, tests, words) in [
        ("128", "loss", "a test of 64 bytes is not finished; ask for that size, too"),
        ("64,128", "latency", "another test of 64 bytes is not finished"),
    ] {
        let folder = folder_of(&cut);
        let path = folder.path().to_str().unwrap();
        let arguments = [&options[..], &["--sizes", sizes, "--tests", tests]].concat();
        let (output, said) = rfc2544("soft:a?wire=peer:b,soft:b", ["--resume", path], &arguments);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(words) && said.lines().count() == 1, "{said}");
        assert_eq!(std::fs::read_to_string(folder.path().join("trials.jsonl")).unwrap(), cut);
    }
    let folder = folder_of(&cut);
    let path = folder.path().to_str().unwrap();
    let arguments = [&options[..], &["--sizes", "128,64", "--tests", "loss"]].concat();
    let (output, said) = rfc2544("soft:a?wire=peer:b,soft:b", ["--resume", path], &arguments);
    assert!(output.status.success(), "{said}");
    let report = report_of(path);
    assert!(report.parts().iter().all(|part| part.test.next().is_none()), "{report}");
    assert!(report.parts().iter().any(|part| part.size == 128), "{report}");
}

/// What the highest load was on a busy machine bounds nothing that the user has bounded, and no run ends by it.
#[test]
fn a_starved_highest_load_bounds_nothing_that_was_asked_for() {
    let profile = profile(0.4, 1);
    let starved = Truth { generator: 500.0, capacity: 500.0, ..Truth::default() };
    let known = simulated(&profile, starved, vec![Setup::Frmol { rate: 1e9 }]);
    let options = ["--one-way", "--sizes", "64", "--trial-time", "400ms", "--repetitions", "1", "--json"];
    for (bounds, tests) in [(&["--max", "1k"][..], "loss"), (&["--min", "600"], "throughput,back-to-back")] {
        let folder = folder_of(&known);
        let path = folder.path().to_str().unwrap();
        let arguments = [&options[..], bounds, &["--tests", tests]].concat();
        let (output, said) = rfc2544("soft:a?wire=peer:b,soft:b", ["--resume", path], &arguments);
        assert!(output.status.success(), "{said}");
        let (run, report) = (run_of(&output), report_of(path));
        if tests == "loss" {
            let last = &report.parts().last().unwrap().setup;
            assert_eq!(last, &Setup::FrameLoss { highest: 1_000.0 }, "{run:#}");
        } else {
            let words = "the ports sent 500 frames/s at most, and the lowest rate is 600";
            assert_eq!(notes(&run).matches(words).count(), 2, "{run:#}");
        }
    }
}

/// The clock's error and what `calibrate` has measured stand in each report; a folder of the user's stays, and a pipe is no file of results.
#[test]
fn reports_say_how_exact_times_are() {
    let folder = tempfile::tempdir().unwrap();
    let floor = folder.path().join("floor.json");
    let times = r#"{"min":1000,"p50":2000,"p99":3000,"p999":4000,"max":5000}"#;
    let one = |size: u32| {
        format!(
            r#"{{"from":"a","to":"b","size":{size},"offered_pps":1000,"sent":9,"lost":0,"latency_from_due_ns":{times},"latency_from_ring_ns":{times}}}"#
        )
    };
    std::fs::write(&floor, format!(r#"{{"floors":[{},{}]}}"#, one(60), one(1514))).unwrap();
    let path = folder.path().to_str().unwrap();
    let options = ["--one-way", "--sizes", "64", "--tests", "loss", "--max", "1k", "--floor", floor.to_str().unwrap()];
    let (output, said) = rfc2544(DEVICE, ["--out", path], &[&options[..], &SHORT].concat());
    assert!(output.status.success(), "{said}");
    let page = String::from_utf8(pktgen(&["report", path]).stdout).unwrap();
    for words in ["against CLOCK_MONOTONIC", "floor at 1000 pps of 60 bytes, us: due p50 2.00, p99 3.00, max 5.00"] {
        assert!(page.contains(words), "{words}: {page}");
    }
    departures_are_in_all_forms(path);
    assert!(!page.contains("1514 bytes"), "{page}");
    // Results of another processor are not mixed with those of this one.
    let lines = folder.path().join("trials.jsonl");
    let text =
        std::fs::read_to_string(&lines).unwrap().replacen("\"program\":\"pktgen ", "\"program\":\"pktgen 0.0.", 1);
    std::fs::write(&lines, text).unwrap();
    let options = &options[..options.len() - 2];
    let (output, said) = rfc2544(DEVICE, ["--resume", path], &[options, &SHORT].concat());
    assert!(output.status.code() == Some(2) && said.contains("its program: pktgen 0.0."), "{said}");
    std::fs::remove_file(&lines).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &lines, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let output = pktgen(&["report", path]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && said.contains("cannot be read") && said.lines().count() == 1, "{said}");
    // No trial is in this one, as the ports hear nothing; it is still there.
    let own = tempfile::tempdir().unwrap();
    let (output, said) = rfc2544("soft:a,soft:b", ["--out", own.path().to_str().unwrap()], options);
    assert!(!output.status.success(), "{said}");
    assert!(own.path().exists() && own.path().read_dir().unwrap().next().is_none());
}

/// Text, page, JSON and CSV have the same departures from the RFCs.
fn departures_are_in_all_forms(path: &str) {
    let text = String::from_utf8(pktgen(&["report", path]).stdout).unwrap();
    let csv = String::from_utf8(pktgen(&["report", path, "--csv"]).stdout).unwrap();
    let run = run_of(&pktgen(&["report", path, "--json"]));
    let file = Path::new(path).join("page.html");
    assert!(pktgen(&["report", path, "--html", file.to_str().unwrap()]).status.success());
    let page = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(file).unwrap();
    let departures = run["departures"].as_array().unwrap();
    for (section, what) in [
        ("RFC 2544, 14", "one way instead of both at once"),
        ("RFC 2544, 21", "where the load is constant, what was late by up to 10ms was sent in bursts"),
        ("RFC 2544, 23 d", "the wait for frames under way ends 50 ms after the last of them if none is missing"),
        ("RFC 9004, 6.2", "seconds of the longest burst"),
    ] {
        assert!(departures.iter().any(|one| one["section"] == section && one["what"] == what), "{section}: {run:#}");
    }
    for one in departures {
        let [section, what] = ["section", "what"].map(|name| one[name].as_str().unwrap());
        let words = format!("{section}: {what}");
        assert!(text.contains(&format!("departs from {words}")) && csv.contains(&words), "{words}: {text} {csv}");
        assert!(page.contains(what) && page.contains(section), "{words}: {page}");
    }
    assert_eq!(text.matches("departs from ").count(), departures.len(), "{text}");
}

/// Numbers as `pktgen rfc2544 --one-way` has them for trials of so many seconds, done so often.
fn profile(seconds: f64, repetitions: u32) -> Profile {
    let mut profile =
        Profile { name: "short: soft:a and soft:b, one way, IPv4, 1 flow".to_owned(), ..Profile::default() };
    for goal in &mut profile.throughput.goals {
        (goal.final_seconds, goal.initial_seconds) = (seconds, seconds.min(1.0));
        goal.duration_sum = seconds * f64::from(repetitions);
    }
    profile.throughput.warm_up_seconds = seconds.min(1.0);
    (profile.latency.seconds, profile.frmol.seconds, profile.loss.seconds) = (1, 1, seconds);
    (profile.recovery.overload_seconds, profile.recovery.recovery_seconds) = (seconds, seconds);
    (profile.latency.repetitions, profile.frmol.repetitions) = (repetitions, repetitions);
    (profile.bursts.repetitions, profile.recovery.repetitions) = (repetitions, repetitions);
    profile
}

/// Lines of tests of frames of 64 bytes on a simulated device.
fn simulated(profile: &Profile, truth: Truth, setups: Vec<Setup>) -> String {
    let (mut device, mut lines) = (Device::new(truth, 1), format!("{}\n", Line::run(profile.clone())));
    for setup in setups {
        let mut test = setup.start(profile).unwrap();
        lines += &format!("{}\n", Line::test(64, setup));
        while let Some(trial) = test.next() {
            let outcome = device.run(&trial);
            lines += &format!("{}\n", Line::trial(trial, outcome));
            test.tell(&outcome).unwrap();
        }
    }
    lines
}

/// A folder with these lines.
fn folder_of(lines: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("trials.jsonl"), lines).unwrap();
    folder
}

#[test]
fn nothing_that_counts_is_an_error_and_each_missing_figure_has_its_reason() {
    // Links fell in each trial.
    let profile = profile(1.2, 3);
    let lines = simulated(&profile, Truth { link_falls: 1.0, ..Truth::default() }, vec![Setup::Frmol { rate: 1e9 }]);
    let folder = folder_of(&lines);
    let path = folder.path().to_str().unwrap();
    let options = ["--one-way", "--sizes", "64", "--trial-time", "1200ms", "--repetitions", "3"];
    let tests = ["--tests", "throughput,latency,loss,back-to-back,recovery"];
    let (output, said) = rfc2544("soft:a,soft:b", ["--resume", path], &[&options[..], &tests].concat());
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("no trial counted") && said.lines().count() == 1, "{said}");
    let shown = String::from_utf8(output.stdout).unwrap();
    let run = run_of(&pktgen(&["report", path, "--json"]));
    let csv = String::from_utf8(pktgen(&["report", path, "--csv"]).stdout).unwrap();
    let page = folder.path().join("page");
    assert!(pktgen(&["report", path, "--html", page.to_str().unwrap()]).status.success());
    let page = std::fs::read_to_string(page).unwrap();
    for test in ["throughput", "latency", "loss", "back-to-back", "recovery"] {
        let row = run["rows"].as_array().unwrap().iter().find(|row| row["test"] == test).unwrap();
        assert!(row["value"].is_null(), "{row}");
        let note = row["note"].as_str().unwrap();
        assert!(note.contains("no trial at the highest load counted"), "{row}");
        assert!(shown.contains(note) && csv.contains(note), "{note}: {shown} {csv}");
        assert!(page.contains(&format!("no figure of {test}, 64 bytes: {note}")), "{page}");
    }
    let first = &run["rows"][0];
    assert_eq!((&first["test"], &first["value"]), (&Value::from("forwarded at maximum load"), &Value::Null));
    assert!(first["note"].as_str().unwrap().contains("a link fell 3 times"), "{first}");
    // Once more nothing is written.
    let after = std::fs::read_to_string(folder.path().join("trials.jsonl")).unwrap();
    let (output, _) = rfc2544("soft:a,soft:b", ["--resume", path], &[&options[..], &tests].concat());
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(std::fs::read_to_string(folder.path().join("trials.jsonl")).unwrap(), after);
}

#[test]
fn recovery_takes_as_long_as_the_cable_takes() {
    // What it forwards is known by trials of a simulated device, so that an overload comes at once.
    let mut profile = profile(1.2, 3);
    profile.name += ", catching up 50ms";
    let goals = profile.throughput.goals.clone();
    let truth = Truth { capacity: 2_000.0, generator: 2e4, ..Truth::default() };
    let setups = vec![Setup::Frmol { rate: 1e9 }, Setup::Throughput { goals, low: 1_000.0, high: 4_000.0 }];
    let known = simulated(&profile, truth, setups);
    // It overflows at each 11th frame of the overload, the last time 5 ms before its end at most, and loses all for 800 ms then.
    let ports = "soft:a?wire=peer:b&rate=2k&buffer=128&recovery=800ms&after=100,soft:b";
    let options =
        ["--one-way", "--sizes", "64", "--trial-time", "1200ms", "--repetitions", "3", "--max", "4k", "--json"];
    let options = [&options[..], &["--tests", "recovery", "--catch-up", "50ms"]].concat();
    let folder = folder_of(&known);
    let path = folder.path().to_str().unwrap();
    let (output, said) = logged("info", ports, ["--resume", path], &options);
    assert!(output.status.success(), "{said}");
    let run = run_of(&output);
    assert!(of_cable(&said, "a", "recovering") > 0, "{said}");
    let Some(seconds) = value(&run, "recovery") else { return assert_reason(&run, path, "recovery") };
    // A machine that stops the cable while it recovers makes one of them other than it is.
    let lines = std::fs::read_to_string(folder.path().join("trials.jsonl")).unwrap();
    let report = trial::Report::read(&lines).unwrap();
    let AnyTest::Recovery(test) = &report.parts().last().unwrap().test else { panic!("{run:#}") };
    let median = test.result().unwrap().seconds.unwrap().median;
    println!("recovery {median} s, on average {seconds} s");
    assert!((median - 0.8).abs() <= 0.08, "{run:#}");
}

#[test]
fn what_needs_a_rate_above_the_throughput_says_why_there_is_none() {
    let profile = profile(1.2, 3);
    let goals = profile.throughput.goals.clone();
    for (generator, high, words) in [
        (2e4, 4e4, ["the generator kept to no rate above the throughput"; 2]),
        (1e9, 2e4, ["the highest rate is no overload", "the highest rate is forwarded without end"]),
    ] {
        let setups = vec![Setup::Frmol { rate: 1e9 }, Setup::Throughput { goals: goals.clone(), low: 1_000.0, high }];
        let folder = folder_of(&simulated(&profile, Truth { generator, ..Truth::default() }, setups));
        let path = folder.path().to_str().unwrap();
        let options = ["--one-way", "--sizes", "64", "--trial-time", "1200ms", "--repetitions", "3", "--json"];
        let options = [&options[..], &["--tests", "recovery,back-to-back"]].concat();
        let (output, said) = rfc2544("soft:a,soft:b", ["--resume", path], &options);
        assert!(output.status.success(), "{said}");
        let run = run_of(&output);
        let rows = run["rows"].as_array().unwrap();
        for (test, words) in ["recovery", "back-to-back"].into_iter().zip(words) {
            let row = rows.iter().find(|row| row["test"] == test).unwrap();
            assert_eq!((&row["note"], &row["value"]), (&Value::from(words), &Value::Null), "{row}");
        }
    }
}

/// What ends a run, or keeps it from its begin, is one line, and what was measured is kept.
#[test]
fn whatever_ends_a_run_what_was_measured_is_kept() {
    let _beside = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let options = ["--sizes", "64", "--tests", "loss", "--max", "1k", "--quiet"];
    let start = |name: &str, ports: &str, more: &[&str]| {
        let out = folder.path().join(name);
        let mut command = Command::new(env!("CARGO_BIN_EXE_pktgen"));
        command
            .args(["rfc2544", "--ports", ports, "--out", out.to_str().unwrap()])
            .args(options)
            .args(SHORT)
            .args(more);
        (command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap(), out)
    };
    // These wait for what does not come, beside those that are ended.
    let one_way_only = start("deaf", "soft:a?wire=peer:b,soft:b?wire=peer:a&loss=100%", &[]);
    let no_link = start("down", "soft:a?wire=peer:b,soft:b?link=down", &[]);
    for signal in [Signal::INT, Signal::KILL] {
        let (mut child, out) = start(if signal == Signal::INT { "int" } else { "kill" }, DEVICE, &["--one-way"]);
        let lines = || std::fs::read_to_string(out.join("trials.jsonl")).unwrap_or_default();
        let begun = Instant::now();
        while !lines().contains("{\"trial\"") {
            assert!(begun.elapsed() < Duration::from_secs(60) && child.try_wait().unwrap().is_none(), "{}", lines());
            std::thread::sleep(Duration::from_millis(5));
        }
        kill_process(Pid::from_child(&child), signal).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        if signal == Signal::INT {
            assert!(output.status.code() == Some(1) && said.lines().count() == 1, "{said}");
            assert!(
                said.contains("interrupted by a signal; what was measured is in it: go on with --resume"),
                "{said}"
            );
        }
        let path = out.to_str().unwrap();
        let page = String::from_utf8(pktgen(&["report", path]).stdout).unwrap();
        assert!(page.contains("forwarded at maximum load"), "{page}");
        let before = lines();
        let (output, said) =
            unlocked("warn", DEVICE, ["--resume", path], &[&options[..6], &SHORT, &["--one-way"]].concat());
        assert!(output.status.success(), "{said}");
        assert!(lines().starts_with(&before[..=before.rfind('\n').unwrap()]), "what was measured is kept");
    }
    for ((child, out), words) in [
        (one_way_only, "soft:b > soft:a: of the probes that soft:b sends none arrives at soft:a within 5 s"),
        (no_link, "link"),
    ] {
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && said.lines().count() == 1 && said.contains(words), "{said}");
        assert!(!out.exists(), "{said}");
    }
}

/// A file system of 8 KiB, which only this run sees. Needs root.
#[test]
fn a_full_disk_keeps_what_was_measured() {
    let _beside = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let mounted = "mount -t tmpfs -o size=8k none \"$1\" || exit 77
        \"$2\" rfc2544 --ports 'soft:a?wire=peer:b&rate=2k&buffer=64,soft:b' --out \"$1\" --one-way --sizes 64 --max 3k \\
            --trial-time 100ms --repetitions 1 --catch-up 10ms --tests throughput,loss --quiet >/dev/null
        code=$?
        \"$2\" report \"$1\" || exit 78
        exit $code";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", mounted, "sh"]).arg(folder.path()).arg(env!("CARGO_BIN_EXE_pktgen"));
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    if said.contains("unshare: ") || output.status.code() == Some(77) {
        skip::test!("no file system can be mounted here: {}", said.trim());
        return;
    }
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot be written") && said.contains("make room") && said.lines().count() == 1, "{said}");
    let page = String::from_utf8(output.stdout).unwrap();
    assert!(page.contains("forwarded at maximum load"), "{page}");
}

/// Sizes by name, each with the highest load known already, so that only losses are measured.
#[test]
fn sizes_by_name_are_those_of_the_documents() {
    let _beside = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
    let rfc2544 = [64, 128, 256, 512, 1024, 1280, 1518];
    let jumbo = [&rfc2544[..], &[2048, 4096, 8192, 9216]].concat();
    let ipv6 = [&[80][..], &rfc2544[1..]].concat();
    let of = |words: &[&'static str], sizes: &[u32], what: &str| (words.to_vec(), sizes.to_vec(), what.to_owned());
    let runs = [
        of(&["jumbo"], &jumbo, "IPv4, 1 flow"),
        of(&["whitepaper"], &[66, 128, 256, 512, 1024], "IPv4, 20000 flows"),
        of(&["imix"], &[354], "IPv4, 1 flow, imix"),
        of(&["rfc2544", "--ipv6"], &ipv6, "IPv6, 1 flow"),
        of(&["whitepaper", "--ipv6", "--flows", "5"], &[80, 128, 256, 512, 1024], "IPv6, 5 flows"),
    ];
    let run = |(words, sizes, what): (Vec<&str>, Vec<u32>, String)| {
        let mut profile = profile(0.1, 1);
        profile.name = format!("short: soft:a and soft:b, one way, {what}, catching up 50ms");
        let mut lines = format!("{}\n", Line::run(profile.clone()));
        for size in &sizes {
            let known = simulated(&profile, Truth::default(), vec![Setup::Frmol { rate: 1e9 }]);
            let (_, of_test) = known.split_once('\n').unwrap();
            lines += &of_test.replacen("\"size\":64", &format!("\"size\":{size}"), 1);
        }
        let folder = folder_of(&lines);
        let path = folder.path().to_str().unwrap();
        let options = ["--one-way", "--tests", "loss", "--max", "500", "--trial-time", "100ms", "--repetitions", "1"];
        let options = [&options[..], &["--catch-up", "50ms", "--json", "--sizes"], &words].concat();
        let (output, said) = unlocked("warn", "soft:a?wire=peer:b,soft:b", ["--resume", path], &options);
        assert!(output.status.success(), "{words:?}: {said}");
        let report = report_of(path);
        let measured = report.parts().iter().filter(|part| matches!(part.setup, Setup::FrameLoss { .. }));
        assert_eq!(measured.map(|part| part.size).collect::<Vec<_>>(), sizes, "{words:?}");
        assert!(report.parts().iter().all(|part| part.test.next().is_none()), "{words:?}: {report}");
    };
    std::thread::scope(|scope| {
        let threads = runs.map(|one| scope.spawn(|| run(one)));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

/// Percentages are of the line that is given.
#[test]
fn percentages_are_of_the_line() {
    let folder = tempfile::tempdir().unwrap();
    let options = ["--one-way", "--sizes", "128", "--tests", "loss", "--max", "500", "--line", "10M", "--json"];
    let path = folder.path().to_str().unwrap();
    let (output, said) = rfc2544(DEVICE, ["--out", path], &[&options[..], &SHORT].concat());
    assert!(output.status.success(), "{said}");
    let run = run_of(&output);
    let row = &run["rows"][0];
    let [value, percent] = ["value", "percent"].map(|name| row[name].as_f64().unwrap());
    let line = 10e6 / ((128.0 + 20.0) * 8.0);
    assert!((percent - value / line * 100.0).abs() < 1e-9 && value < line, "{row}");
    let page = String::from_utf8(pktgen(&["report", path]).stdout).unwrap();
    assert!(page.contains("of max: of the rate of the line"), "{page}");
}
