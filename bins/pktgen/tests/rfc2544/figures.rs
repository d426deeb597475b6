//! Figures of cables of software NICs whose truth is known.

use crate::known::{folder_of, profile, simulated};
use crate::runs::{
    Alone, DEVICE, SHORT, alone, assert_done, assert_reason, logged, logged_alone, notes, pktgen, report_of, run_of,
    value, values,
};
use serde_json::Value;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use trial::simulate::Truth;
use trial::{AnyTest, Bursts, Ended, Reason, Setup};

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
    assert_done(&output, &said);
    let run = run_of(&output);
    // Whatever this machine did meanwhile: what trials lost the cable had no room for, and what it had no room for they lost, but for
    // frames that open the traffic of each, probes, and what came too late.
    let [lost, late, trials] = lost_in_trials(path);
    let [overflowed, unreceived] = ["overflowed", "unreceived"].map(|what| of_cable(&said, "a", what));
    println!("{lost} lost in {trials} trials, {late} of them late; the cable had no room for {overflowed}");
    assert!(lost <= overflowed + unreceived + late + 64, "{lost} lost: {said}");
    assert!(overflowed <= lost + trials * (64 + 64), "{lost} lost: {said}");
    // The buffer takes 64 frames more than pass in the time of a trial: so much more than 2,000 a second are sent without loss. A generator that is late misses these, and when it sends its last frames later, within what it catches
    // up, the cable has so much more time.
    let most = 2_000.0 + 64.0 / 0.4;
    // What is above the lower bound may be lost for a machine that stops, and makes trials void; what is below the upper one is not.
    match bounds(path) {
        Some((lower, upper, ended)) => {
            println!("throughput {lower} to {upper:?}, {ended:?}, and {most} is true");
            assert!(lower <= most * 1.01, "{run:#}");
            assert!(upper.is_none_or(|upper| upper >= most * 0.99), "{run:#}");
            // The width that was asked for is a share of the upper bound.
            let is_narrow = upper.is_some_and(|upper| lower >= upper * 0.99 - 1e-6);
            assert!(ended != Ended::Found || is_narrow, "{run:#}");
        }
        None => assert_reason(&run, path, "throughput"),
    }
    are_not_beyond_the_delay(&run, path);
    what_the_machine_did_is_said(path);
    // In the time of a burst at 3,000 a second 2 of 3 pass: the frame after 190 is the first that finds 64 before it. It finds fewer where
    // the cable was stopped at the end of the burst, for up to a millisecond without a word: then 2 frames are gone, and so 6 more pass.
    match value(&run, "back-to-back") {
        Some(burst) => {
            let (bursts, _) = bursts(path);
            let too_long = bursts.too_long_by(2_000.0);
            println!("a burst of {burst}, and 190 is true; too long by at most {too_long}");
            assert!(burst <= 190.0 + 6.0 + too_long.ceil() && (burst >= 190.0 * 0.98 || bursts.open > 0), "{run:#}");
        }
        None => assert_reason(&run, path, "back-to-back"),
    }
    // At half of the overload nothing more is lost, once the buffer has room.
    match value(&run, "recovery") {
        Some(seconds) => {
            println!("recovery {seconds} s");
            let is_bound = notes(&run).contains("; at most: bursts of the generator");
            assert!(seconds >= 0.0 && (seconds <= 0.04 || is_bound), "{run:#}");
        }
        None => assert_reason(&run, path, "recovery"),
    }
    // A report of the folder is the same, in any form.
    let again = pktgen(&["report", path, "--json"]);
    assert_eq!(run_of(&again), run);
    let csv = String::from_utf8(pktgen(&["report", path, path, "--csv"]).stdout).unwrap();
    let departures = run["departures"].as_array().unwrap().len();
    let limits = run["limits"].as_array().map_or(0, Vec::len);
    assert_eq!(csv.lines().count(), 1 + 2 * (run["rows"].as_array().unwrap().len() + departures + limits), "{csv}");
    let page = String::from_utf8(pktgen(&["report", path]).stdout).unwrap();
    assert!(page.contains("forwarded at maximum load") && page.contains("departs from RFC 2544"), "{page}");
}

/// The delays at the throughput and at half of it.
fn are_not_beyond_the_delay(run: &Value, path: &str) {
    let delays = values(run, "typical latency");
    if delays.len() != 2 || delays.contains(&None) {
        assert_reason(run, path, "typical latency");
    }
    if let Some(Some(delay)) = delays.first() {
        // While the receiver or the cable has no core frames wait: the row says for how long. Above 2,000 a second they wait in the buffer, too.
        let away = away(path);
        println!("a delay of {delay} us, and 2,000 is true; the receiver was away for up to {away} us");
        assert!(*delay >= 2_000.0, "the delay is 2 ms at least: {run:#}");
        let most = 2_000.0 + 64.0 / 2_000.0 * 1e6 + away + 500.0;
        assert!(*delay <= most, "the delay is 2 ms, a buffer, and what the row says: {run:#}");
        assert!(notes(run).contains("too long by at most"), "{run:#}");
    }
    // At half of the throughput nothing waits but for a stop of the machine.
    if let Some(Some(delay)) = delays.get(1) {
        let away = away_of(path, 1);
        println!(
            "a delay of {delay} us at half the rate, and 2,000 is true; the receiver was away for up to {away} us"
        );
        // What a software NIC adds itself, and the clock's error, which is far less.
        assert!((1_999.9..=2_000.0 + 500.0 + away).contains(delay), "{run:#}");
    }
}

/// Wherever the machine stopped generator or device, or frames went out in bursts, a trial is void or its row says how far it may be off.
fn what_the_machine_did_is_said(path: &str) {
    let report = report_of(path);
    let rows = report.rows();
    let row = |test: &str| rows.iter().find(|row| row.test.contains(test));
    for part in report.parts() {
        match &part.test {
            AnyTest::Frmol(test) => {
                let note = &row("forwarded at maximum load").unwrap().note;
                let is_said = note.contains("the machine stopped generator or device for up to");
                assert!(test.result().is_none_or(|result| is_said == (result.away > 1e-3)), "{note}");
            }
            AnyTest::Latency(test) => {
                for result in test.results().iter().filter(|result| result.typical().is_some()) {
                    let is_of = |row: &&trial::Row| row.test.starts_with("typical latency");
                    let is_said = rows.iter().filter(is_of).any(|row| row.note.contains("too long by at most"));
                    assert!(is_said || result.away.is_none_or(|away| away <= 0.0), "{report}");
                }
            }
            _ => {}
        }
        // What may be lost for bursts of the generator decides about no load by itself.
        for void in part.void.iter().filter(|void| void.reason == Reason::Bursts) {
            let [least, most] = void.outcome.loss_range();
            assert!(void.outcome.doubtful > 0 && least < most, "{void:?}");
        }
        let says_so = rows.iter().any(|row| row.size == part.size && row.note.contains("void trial"));
        assert!(part.void.is_empty() || says_so, "{report}");
    }
}

/// What the cable from a port says at its end that it did, of this kind.
pub(crate) fn of_cable(log: &str, from: &str, what: &str) -> u64 {
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

/// The bounds of the throughput without loss: the lower one, if there is one, and the upper one; and how its search has ended.
fn bounds(path: &str) -> Option<(f64, Option<f64>, Ended)> {
    let report = report_of(path);
    let AnyTest::Throughput(test) =
        &report.parts().iter().find(|part| matches!(part.test, AnyTest::Throughput(_)))?.test
    else {
        return None;
    };
    let result = test.results()[0];
    Some((result.lower.or(result.upper.map(|_| 0.0))?, result.upper, result.ended))
}

/// The longest bursts, and what the device is taken to forward for longer than a trial, in frames a second.
fn bursts(path: &str) -> (Bursts, f64) {
    let report = report_of(path);
    let bursts = report.parts().iter().find_map(|part| match (&part.test, &part.setup) {
        (AnyTest::BackToBack(test), Setup::BackToBack { throughput, .. }) => Some((test.result()?, *throughput)),
        _ => None,
    });
    bursts.unwrap()
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

/// The loss at 20,000 frames a second of 64 bytes, its row and the ends of its interval, with what the run said; `None` in place of these if it
/// has no figure, with a reason.
fn loss_at_20_000(ports: &str, more: &[&str]) -> (Option<(f64, Value, [f64; 2])>, String) {
    let options = ["--sizes", "64", "--tests", "loss", "--max", "20k", "--json"];
    let times = ["--trial-time", "200ms", "--repetitions", "1", "--catch-up", "10ms"];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let (output, said) = logged("info", ports, ["--out", path], &[&options[..], &times, more].concat());
    assert_done(&output, &said);
    let (run, name) = (run_of(&output), "loss at 20,000 pps");
    let Some(loss) = value(&run, name) else {
        assert_reason(&run, path, "loss");
        return (None, said);
    };
    let rows = run["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["test"] == name).unwrap().clone();
    let ends = [0, 1].map(|end| row["interval"][end].as_f64().unwrap());
    (Some((loss, row, ends)), said)
}

#[test]
fn loss_by_chance_is_within_its_interval_and_both_ways_count() {
    // What b sends is lost, and nothing of what a sends: the worse way counts.
    let (loss, said) = loss_at_20_000("soft:a?wire=peer:b,soft:b?wire=peer:a&loss=10%&seed=3", &[]);
    // However many frames a trial has, one in ten is lost by chance: of 10,000 in all, by what the cable says.
    let [frames, lost] = ["frames", "lost"].map(|what| of_cable(&said, "b", what));
    assert!(frames < 5_000 || (lost * 100).abs_diff(frames * 10) < frames * 3, "{said}");
    // Its interval ends 1.96 deviations above it, and begins without what bursts of the generator may have lost; three more are 1.4 %.
    if let Some((loss, row, [low, high])) = loss {
        assert!((low..=high).contains(&loss), "{row}");
        let beyond = (high - loss) / 1.96 * 3.0;
        assert!((low - beyond..=high + beyond).contains(&10.0), "{row}");
    }
}

/// What a cable loses 20 at a time says less of its loss than as many frames, and the row says why.
#[test]
fn frames_lost_together_have_a_wider_interval() {
    let (loss, _) = loss_at_20_000("soft:a?wire=peer:b&loss-burst=0.5%:20&seed=3,soft:b", &["--one-way"]);
    if let Some((loss, row, [low, high])) = loss {
        assert!(row["note"].as_str().unwrap().contains(" at a time: by chance "), "{row}");
        // Of 4,000 frames each lost for itself it would end 0.9 % above the loss, and with those of three void trials sooner.
        assert!(high - loss > 1.5, "{row}");
        // None begins within another: 20 frames of each 219 are lost.
        let beyond = (high - loss) / 1.96 * 3.0;
        assert!((low - beyond..=high + beyond).contains(&9.13), "{row}");
    }
}

#[test]
fn what_a_device_holds_for_long_is_waited_for_or_told() {
    // Longer than the trial and the silence of the profile; and a buffer that frames still come from after a wait of 2 s.
    let (holding, full) = ("soft:a?wire=peer:b&delay=600ms,soft:b", "soft:a?wire=peer:b&rate=200&buffer=700,soft:b");
    for (ports, max) in [(holding, "500"), (full, "1000")] {
        let folder = tempfile::tempdir().unwrap();
        let options = ["--one-way", "--sizes", "64", "--tests", "loss", "--max", max, "--json"];
        // No trial is repeated for a machine that is late.
        let times = ["--trial-time", "400ms", "--repetitions", "1", "--catch-up", "1s"];
        let path = folder.path().to_str().unwrap();
        let (output, said) = logged("warn", ports, ["--out", path], &[&options[..], &times].concat());
        assert_done(&output, &said);
        let run = run_of(&output);
        if ports == holding
            && let Some(loss) = value(&run, &format!("loss at {max} pps"))
        {
            assert!(loss < 10.0, "{run:#}");
        }
        // At the highest load the second keeps 700 frames, of which two seconds let 400 pass. Where it was stopped for so long at the
        // end of its wait, it has received them all.
        let lines = std::fs::read_to_string(folder.path().join("trials.jsonl")).unwrap();
        let outcome = |line: &str| Some(serde_json::from_str::<Value>(line).ok()?["trial"]["outcome"].clone());
        let first = lines.lines().filter_map(outcome).find(Value::is_object).unwrap();
        let kept = 200.0 * first["seconds"].as_f64().unwrap() + 700.0;
        let [received, away] = ["received", "away"].map(|name| first[name].as_f64().unwrap());
        let has_all = received >= kept - 10.0;
        // A cable that was stopped has kept fewer, and what comes after a void trial is no loss of a figure.
        let is_void = run["rows"][0]["note"].as_str().unwrap().contains("void trial");
        if ports == full && !has_all && (is_void || received >= kept - 10.0 - 1_000.0 * away) {
            continue;
        }
        assert_eq!(notes(&run).contains("came after the drain"), ports == full && !has_all, "{run:#}");
    }
}

/// Its search for the throughput is that of a simulated device with the same rate and buffer, which passes several times as much in trials as
/// short as these: what counts for the buffer is what it forwards for longer.
#[test]
fn a_buffer_is_as_large_as_that_of_the_cable() {
    let mut profile = profile(0.4, 1);
    profile.name += ", catching up 10ms";
    let goals = profile.throughput.goals.clone();
    let truth = Truth { capacity: 1_200.0, buffer: 2_048, generator: 2e4, ..Truth::default() };
    let setups = vec![Setup::Frmol { rate: 1e12, max: None }, Setup::Throughput { goals, low: 500.0, high: 20_000.0 }];
    let folder = folder_of(&simulated(&profile, truth, setups));
    let path = folder.path().to_str().unwrap();
    let ports = "soft:a?wire=peer:b&rate=1200&buffer=2048,soft:b";
    let options = ["--one-way", "--sizes", "64", "--max", "20k", "--tests", "back-to-back", "--json"];
    let (output, said) = logged("warn", ports, ["--resume", path], &[&options[..], &SHORT].concat());
    assert_done(&output, &said);
    let run = run_of(&output);
    let Some(_) = value(&run, "back-to-back") else { return assert_reason(&run, path, "back-to-back") };
    let milliseconds = value(&run, "corrected buffer time").unwrap_or(0.0);
    // It is empty again within the two seconds for which a trial waits. In the 0.1 s of the burst 130 frames leave it; in 18 ms more 22 do, and
    // the burst is void. While the cable is stopped it makes room, too, which the row says.
    let (bursts, forwarded) = bursts(path);
    let [frames, too_long] = [milliseconds / 1e3 * 20_000.0, bursts.too_long_by(1_200.0) * 0.94];
    println!("room for {frames} frames, too many by at most {too_long}, and 2,048 is true: {bursts:?}");
    assert!((forwarded / 1_200.0 - 1.0).abs() <= 0.01, "{run:#}");
    // Where longer bursts were void, it is at least what is known.
    let least = if bursts.open > 0 { 0.0 } else { 2_048.0 * 0.98 };
    assert!((least..=2_048.0 * 1.02 + too_long).contains(&frames), "{run:#}");
}

/// A percentile of 2,000 us is right within so many: it is the middle of a bucket of 0.8 %.
const BUCKET: f64 = 2_000.0 * 0.004;

/// The delay is within what the report says of its errors: what `pktgen calibrate` has measured over the same cable without it, the error of
/// the clock, and the time for which the machine stopped receiver or cable.
#[test]
fn a_delay_is_that_of_the_cable_within_the_errors_that_are_shown() {
    let alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let floor = folder.path().join("floor.json").to_str().unwrap().to_owned();
    let calibrate = ["calibrate", "soft:a?wire=peer:b", "soft:b", "--one-way", "--rates", "1k", "--sizes", "60"];
    let output = pktgen(&[&calibrate[..], &["--duration", "2s", "--output", &floor]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let floors: Value = serde_json::from_slice(&std::fs::read(&floor).unwrap()).unwrap();
    let times = &floors["floors"][0]["latency_from_ring_ns"];
    let [usual, longest, clock] =
        [&times["p99"], &times["max"], &floors["clock"]["error_ns"]].map(|ns| ns.as_f64().unwrap() / 1e3);
    let results = tempfile::tempdir().unwrap();
    let path = results.path().to_str().unwrap();
    let ports = "soft:a?wire=peer:b&delay=2ms,soft:b";
    let options = ["--one-way", "--sizes", "64", "--max", "1k", "--tests", "latency", "--json", "--floor", &floor];
    let (output, said) = logged_alone(&alone, "warn", ports, ["--out", path], &[&options[..], &SHORT].concat());
    assert_done(&output, &said);
    let run = run_of(&output);
    let delays = values(&run, "typical latency");
    if delays.len() != 2 || delays.contains(&None) {
        assert_reason(&run, path, "typical latency");
    }
    for (rate, delay) in delays.into_iter().enumerate() {
        let Some(delay) = delay else { continue };
        let away = away_of(path, rate);
        // Half of the frames waited for no stop of the machine if none was long: they take as long as all but one in a hundred take
        // without the delay. Else the row says by how much they may be too long, which is what they may be.
        let is_slow = away >= 1_000.0;
        let [least, most] =
            [2_000.0 - BUCKET - clock, 2_000.0 + BUCKET + clock + if is_slow { longest + away } else { usual }];
        let slow = if is_slow { ": the machine was too slow for more" } else { "" };
        println!(
            "a delay of {delay} us, and 2,000 is true, which may seem to be {least} to {most}; away for {away}{slow}"
        );
        assert!((least..=most).contains(&delay), "{run:#}");
        let said = notes(&run).contains("too long by at most");
        assert!(!is_slow || said, "{run:#}");
    }
}

#[test]
fn recovery_takes_as_long_as_the_cable_takes() {
    // What it forwards is known by trials of a simulated device, so that an overload comes at once.
    let mut profile = profile(1.2, 3);
    profile.name += ", catching up 50ms";
    let goals = profile.throughput.goals.clone();
    let truth = Truth { capacity: 2_000.0, generator: 2e4, ..Truth::default() };
    let setups = vec![Setup::Frmol { rate: 1e12, max: None }, Setup::Throughput { goals, low: 1_000.0, high: 4_000.0 }];
    let known = simulated(&profile, truth, setups);
    // It overflows at each 11th frame of the overload, the last time 5 ms before its end at most, and loses all for 800 ms then.
    let ports = "soft:a?wire=peer:b&rate=2k&buffer=128&recovery=800ms&after=100,soft:b";
    let options =
        ["--one-way", "--sizes", "64", "--trial-time", "1200ms", "--repetitions", "3", "--max", "4k", "--json"];
    let options = [&options[..], &["--tests", "recovery", "--catch-up", "50ms"]].concat();
    let folder = folder_of(&known);
    let path = folder.path().to_str().unwrap();
    let (output, said) = logged("info", ports, ["--resume", path], &options);
    assert_done(&output, &said);
    let run = run_of(&output);
    assert!(of_cable(&said, "a", "recovering") > 0, "{said}");
    let Some(seconds) = value(&run, "recovery") else { return assert_reason(&run, path, "recovery") };
    // A machine that stops the cable while it recovers makes one of them other than it is.
    let lines = std::fs::read_to_string(folder.path().join("trials.jsonl")).unwrap();
    let report = trial::Report::read(&lines).unwrap();
    let AnyTest::Recovery(test) = &report.parts().last().unwrap().test else { panic!("{run:#}") };
    let result = test.result().unwrap();
    let median = result.seconds.unwrap().median;
    println!("recovery {median} s, on average {seconds} s, {} at most", result.at_most);
    assert!(median >= 0.72 && (result.at_most > 0 || median <= 0.88), "{run:#}");
}
