//! Reports from lines: they say what the tests themselves say, and no text breaks them.
#![allow(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;
use trial::simulate::{Device, Truth};
use trial::{AnyTest, Error, Goal, Line, Method, Profile, Report, Setup};

const HIGH: f64 = 14_880_952.0;

fn setups() -> Vec<Setup> {
    vec![
        Setup::Frmol { rate: HIGH, max: None },
        Setup::Throughput { goals: vec![Goal::NDR, Goal::PDR], low: 9_001.0, high: HIGH },
        Setup::BinarySearch { goal: Goal::RFC2544, low: 9_001.0, high: HIGH },
        Setup::Latency { rates: vec![1e5, 9e5] },
        Setup::FrameLoss { highest: 1.7e6 },
        Setup::BackToBack { rate: 2e6, throughput: 1e6, range: None, filling: None },
        Setup::Recovery { throughput: 1e6, highest: HIGH },
    ]
}

/// Does all tests with a device, and writes them down.
fn run(truth: Truth, seed: u64) -> (String, Vec<AnyTest>) {
    let profile = Profile::default();
    let mut device = Device::new(truth, seed);
    let mut text = format!("{}\n", Line::run(profile.clone()));
    let mut tests = Vec::new();
    for setup in setups() {
        let mut test = setup.start(&profile).unwrap();
        text += &format!("{}\n", Line::test(64, setup));
        while let Some(trial) = test.next() {
            let outcome = device.run(&trial);
            text += &format!("{}\n", Line::trial(trial, outcome));
            test.tell(&outcome).unwrap();
        }
        tests.push(test);
    }
    (text, tests)
}

fn noisy() -> Truth {
    Truth {
        capacity_varies: 0.02,
        buffer: 300,
        link_falls: 0.02,
        generator_stalls: 0.05,
        recovery: 0.1,
        ..Truth::default()
    }
}

#[test]
fn a_report_says_what_the_tests_say() {
    for seed in 0..5 {
        let (text, tests) = run(noisy(), seed);
        let report = Report::read(&text).unwrap();
        assert_eq!(report.parts().len(), tests.len());
        for (part, test) in report.parts().iter().zip(&tests) {
            assert_eq!((part.test.spent(), part.test.limits()), (test.spent(), test.limits()));
            assert_eq!(format!("{:?}", part.test), format!("{test:?}"), "the very same state");
        }
        let json: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
        assert_eq!(json["rows"].as_array().unwrap().len(), report.rows().len());
        assert_eq!(json["profile"]["name"], "short");
        let table = report.to_string();
        for words in ["throughput, loss <= 0 %", "corrected buffer time", "departs from RFC 2544, 24", "recovery"] {
            assert!(table.contains(words), "{words}: {table}");
        }
        assert!(table.lines().all(|line| line.chars().count() < 140), "{table}");
    }
}

#[test]
fn figures_are_those_of_the_device() {
    let (text, _) = run(Truth { buffer: 512, ..Truth::default() }, 1);
    let rows = Report::read(&text).unwrap().rows();
    let value = |test: &str| {
        rows.iter().find(|row| row.test == test).unwrap_or_else(|| panic!("{test}: {rows:?}")).value.unwrap()
    };
    assert!((0.995e6..=1.001e6).contains(&value("throughput, loss <= 0 %")));
    assert!((0.995e6..=1.001e6).contains(&value("throughput, RFC 2544")));
    assert!((value("corrected buffer time") - 0.256).abs() < 0.001);
    assert!((value("typical latency at 100,000 pps") - 10.0).abs() < 1e-6);
    assert!((value("loss at 1,700,000 pps") - 41.15).abs() < 0.03);
    assert!((value("forwarded at maximum load") - 1_000_512.0).abs() < 1.0);
    assert!(value("recovery").abs() < f64::EPSILON);
}

#[test]
fn a_run_goes_on_from_its_lines() {
    let (text, tests) = run(noisy(), 2);
    let lines: Vec<_> = text.lines().collect();
    // Cut anywhere, the test at hand asks for the trial of the next line.
    for end in 2..lines.len() {
        let text = format!("{}\n", lines[..end].join("\n"));
        let report = Report::read(&text).unwrap();
        let next = report.parts().last().unwrap().test.next();
        match lines[end].parse().unwrap() {
            Line::Trial { trial, .. } => assert_eq!(next, Some(trial)),
            _ => assert_eq!(next, None),
        }
    }
    assert_eq!(tests.len(), setups().len());
}

#[test]
fn frames_after_a_drain_mark_the_trial_that_lost_them() {
    let setup = Setup::FrameLoss { highest: 1e6 };
    let mut test = setup.start(&Profile::default()).unwrap();
    let mut text = format!("{}\n{}\n", Line::run(Profile::default()), Line::test(64, setup));
    // Of the first nothing can have come before; of the second 100 frames are missing, of the third none.
    for (lost, late) in [(100, 7), (100, 30), (0, 5_000), (100, 9)] {
        let trial = test.next().unwrap();
        let sent = trial.traffic.frames();
        let mut outcome = trial::Outcome::new(sent, sent - lost);
        outcome.from_earlier = late;
        text += &format!("{}\n", Line::trial(trial, outcome));
        test.tell(&outcome).unwrap();
    }
    let report = Report::read(&text).unwrap();
    assert_eq!(report.parts()[0].late, 30 + 100);
    assert!(report.rows()[0].note.contains("130 frames came after the drain"), "{report}");
    // Older lines say nothing of them.
    let old = Report::read(&text.replace("\"from_earlier\":", "\"other\":")).unwrap();
    assert_eq!(old.parts()[0].late, 0);
}

#[test]
fn each_missing_figure_has_its_reason() {
    let profile = Profile::default();
    let run = |truth: Truth, setup: &Setup, most: usize| {
        let (mut device, mut test) = (Device::new(truth, 1), setup.start(&profile).unwrap());
        let mut text = format!("{}\n{}\n", Line::run(profile.clone()), Line::test(64, setup.clone()));
        for trial in std::iter::from_fn(|| {
            let trial = test.next()?;
            let outcome = device.run(&trial);
            test.tell(&outcome).unwrap();
            Some(Line::trial(trial, outcome))
        })
        .take(most)
        {
            text += &format!("{trial}\n");
        }
        Report::read(&text).unwrap().rows()
    };
    let (dead, lost) = (Truth { link_falls: 1.0, ..Truth::default() }, Truth { loss: 1.0, ..Truth::default() });
    let slow = Truth { generator: 100.0, ..Truth::default() };
    for setup in setups() {
        for (truth, most, words) in [
            (dead, usize::MAX, "a link fell 3 times"),
            (slow, usize::MAX, "the generator missed its rate 3 times"),
            (Truth::default(), 0, "not finished"),
            (lost, usize::MAX, ""),
        ] {
            let rows = run(truth, &setup, most);
            assert!(!rows.is_empty(), "{setup:?}");
            for row in rows.iter().filter(|row| row.value.is_none()) {
                assert!(!row.note.is_empty() && row.note.contains(words) && row.figure == "-", "{setup:?}: {row:?}");
            }
            let any = matches!(setup, Setup::Frmol { .. });
            assert!(words.is_empty() || any || rows.iter().any(|row| row.value.is_none()), "{setup:?} {rows:?}");
        }
    }
}

/// Where the rate is no whole number a frame more is sent in the time of a trial than passes in it: the last begins in it, and ends after it.
#[test]
fn the_highest_load_is_no_more_than_the_line() {
    let (line, profile) = (8_445.9, Profile::default());
    let mut test = trial::Frmol::new(line, &profile).unwrap();
    while test.next().is_some() {
        let mut outcome = trial::Outcome::new(8_446, 8_446);
        outcome.seconds = Some(8_445.0 / line);
        test.tell(&outcome).unwrap();
    }
    let result = test.result().unwrap();
    assert!((result.offered / line - 1.0).abs() < 1e-9 && result.forwarded <= result.offered, "{result:?}");
    // One that took longer is a lower load.
    let mut test = trial::Frmol::new(line, &profile).unwrap();
    let mut outcome = trial::Outcome::new(8_000, 8_000);
    outcome.seconds = Some(2.0);
    test.tell(&outcome).unwrap();
    assert!((test.result().unwrap().offered - 4_000.0).abs() < 1.0);
}

/// A highest rate that is allowed bounds the highest load; lines of before have none.
#[test]
fn the_highest_load_is_no_more_than_is_allowed() {
    let profile = Profile::default();
    let rate = |setup: &Setup| setup.start(&profile).unwrap().next().unwrap().traffic.rate();
    let bounded = Setup::Frmol { rate: 1e6, max: Some(1e3) };
    assert_eq!([rate(&bounded), rate(&Setup::Frmol { rate: 1e6, max: Some(1e7) })], [1e3, 1e6]);
    let line = Line::test(64, bounded);
    assert_eq!(line.to_string().parse(), Ok(line));
    let before = r#"{"test":{"size":64,"setup":{"frmol":{"rate":1000000.0}}}}"#;
    assert_eq!(before.parse(), Ok(Line::test(64, Setup::Frmol { rate: 1e6, max: None })));
    assert_eq!(Line::test(64, Setup::Frmol { rate: 1e6, max: None }).to_string(), before);
    let note = rows(Truth::default(), &Setup::Frmol { rate: 1e6, max: Some(1e3) }, &profile)[0].note.clone();
    assert_eq!(note, "1,000 pps were offered, as 1,000 pps are allowed at most");
}

/// The rows of a test with a device.
fn rows(truth: Truth, setup: &Setup, profile: &Profile) -> Vec<trial::Row> {
    let mut text = format!("{}\n", Line::run(profile.clone()));
    Device::new(truth, 1).test((profile, 64), setup.clone(), &mut text).unwrap();
    Report::read(&text).unwrap().rows()
}

#[test]
fn rows_say_what_the_machine_may_have_done() {
    let away = Truth { generator_away: 1.0, generator_away_seconds: 4e-3, ..Truth::default() };
    let profile = Profile::default();
    let note = |setup| rows(away, &setup, &profile)[0].note.clone();
    let latency = note(Setup::Latency { rates: vec![1e5] });
    assert!(
        latency.contains("too long by at most 4 ms, for which the machine stopped receiver or device"),
        "{latency}"
    );
    assert!(latency.contains(&format!("{} trials, ", profile.latency.repetitions)), "{latency}");
    let highest = note(Setup::Frmol { rate: 2e6, max: None });
    assert!(highest.contains("more or less: the machine stopped generator or device for up to 4 ms"), "{highest}");
    let loss = &rows(away, &Setup::FrameLoss { highest: 2e6 }, &profile)[0];
    let words =
        "at least 50 %: 8,000 frames may be lost for bursts of the generator; by chance 49.93 % to 50.47 % (95 %)";
    assert!(loss.note.contains(words), "{loss:?}");
    let ([low, high], value) = (loss.interval.unwrap(), loss.value.unwrap());
    assert!((49.9..50.0).contains(&low) && (50.4..50.5).contains(&high) && value < high, "{loss:?}");
    // Of a machine that does nothing of the kind they say nothing, and neither do older lines.
    let quiet = |setup| rows(Truth::default(), &setup, &profile)[0].note.clone();
    assert_eq!(quiet(Setup::FrameLoss { highest: 2e6 }), "by chance 49.93 % to 50.07 % (95 %)");
    assert_eq!(quiet(Setup::Frmol { rate: 2e6, max: None }), "2,000,000 pps were offered");
    // Without a loss there is one by chance all the same, which is smaller the more frames there were.
    let lossless = rows(Truth::default(), &Setup::FrameLoss { highest: 2e4 }, &profile);
    let said: Vec<_> = lossless.iter().map(|row| (&*row.figure, &*row.note)).collect();
    assert_eq!(said, [("0 %", "by chance 0 % to 0.0192 % (95 %)"), ("0 %", "by chance 0 % to 0.0213 % (95 %)")]);
}

#[test]
fn highest_loads_that_differ_and_own_losses_are_named() {
    let (profile, setup) = (Profile::default(), Setup::Frmol { rate: 1e6, max: None });
    let mut profile = profile;
    profile.frmol.repetitions = 2;
    let mut test = setup.start(&profile).unwrap();
    let mut text = format!("{}\n{}\n", Line::run(profile), Line::test(64, setup));
    for sent in [1_000_000, 200_000] {
        let trial = test.next().unwrap();
        let mut outcome = trial::Outcome::new(sent, sent / 2);
        outcome.own = 3;
        text += &format!("{}\n", Line::trial(trial, outcome));
        test.tell(&outcome).unwrap();
    }
    let note = &Report::read(&text).unwrap().rows()[0].note;
    assert!(note.contains("pps were offered, ") && note.contains("the generator's ports lost 6 frames more"), "{note}");
}

#[test]
fn a_limit_at_another_load_is_no_reason() {
    let truth = Truth { generator: 1e6, loss: 0.1, ..Truth::default() };
    let [low, high] = [9_001.0, HIGH];
    for setup in [
        Setup::Throughput { goals: vec![Goal::NDR], low, high },
        Setup::BinarySearch { goal: Goal { initial_seconds: 60.0, ..Goal::RFC2544 }, low, high },
    ] {
        let row = &rows(truth, &setup, &Profile::default())[0];
        let is_lost = row.note.contains("the lowest load loses more") || row.note.contains("loses frames");
        assert!(row.value.is_none() && is_lost && !row.note.contains("missed its rate"), "{setup:?}: {row:?}");
    }
}

#[test]
fn delays_that_vary_are_no_proof_of_a_buffer() {
    // Whether they vary by themselves or as a buffer fills: what is said is true of both.
    let full = Truth { capacity: 2_000.0, buffer: 160, ..Truth::default() };
    let varying = Truth { capacity: 2_000.0, jitter: 0.05, ..Truth::default() };
    let goal = Goal { initial_seconds: 0.4, final_seconds: 0.4, duration_sum: 0.4, ..Goal::RFC2544 };
    for truth in [full, varying] {
        for setup in [
            Setup::Throughput { goals: vec![goal], low: 100.0, high: 1e4 },
            Setup::BinarySearch { goal, low: 100.0, high: 1e4 },
        ] {
            let row = &rows(truth, &setup, &Profile::default())[0];
            let words = [" ms in trials of 0.4 s: if a buffer was filling, for longer about ", "delays varied by "];
            assert!(words.iter().all(|words| row.note.contains(words)), "{setup:?}: {row:?}");
        }
    }
}

#[test]
fn a_machine_that_stops_may_hide_how_a_buffer_fills_and_not_that_it_does() {
    let full = Truth { capacity: 2_000.0, buffer: 160, generator_away: 1.0, ..Truth::default() };
    let goal = Goal { initial_seconds: 0.4, final_seconds: 0.4, duration_sum: 0.4, ..Goal::RFC2544 };
    for (milliseconds, words) in [(1, ": if"), (10, " and the machine stopped"), (40, " or more"), (70, " or more")] {
        let truth = Truth { generator_away_seconds: f64::from(milliseconds) / 1e3, ..full };
        for setup in [
            Setup::Throughput { goals: vec![goal], low: 100.0, high: 1e4 },
            Setup::BinarySearch { goal, low: 100.0, high: 1e4 },
            Setup::FrameLoss { highest: 2_300.0 },
        ] {
            let row = &rows(
                truth,
                &setup,
                &Profile { loss: trial::LossPlan { seconds: 0.4, ..Profile::default().loss }, ..Profile::default() },
            )[0];
            // Bursts after longer stops leave the strict search without a figure.
            if row.value.is_none() && milliseconds >= 40 {
                continue;
            }
            assert!(row.note.contains("if a buffer was filling, "), "{milliseconds} ms, {setup:?}: {row:?}");
            let is_loss = matches!(setup, Setup::FrameLoss { .. });
            assert!(is_loss || row.note.contains(words), "{milliseconds} ms, {setup:?}: {row:?}");
        }
    }
}

/// From an overload of which no frame was lost there is nothing to recover.
#[test]
fn an_overload_that_cost_nothing_has_no_recovery() {
    let profile = Profile::default();
    let overload = Setup::Recovery { throughput: 1e5, highest: 1e6 };
    let row = &rows(Truth { capacity: 1e6, ..Truth::default() }, &overload, &profile)[0];
    assert_eq!((row.value, row.interval), (None, None), "{row:?}");
    assert_eq!(row.note, "after 110,000 pps; no frame was lost: no overload, or a buffer had room for it");
    // One that lost frames in the overload alone has recovered at once.
    let row = &rows(Truth { capacity: 1e5, ..Truth::default() }, &overload, &profile)[0];
    assert_eq!(row.value, Some(0.0), "{row:?}");
    assert!(row.note.starts_with("after 110,000 pps (>= ") && !row.note.contains("no frame"), "{row:?}");
}

/// Where a repetition ended before the device had recovered, it takes longer than the mean of the others.
#[test]
fn a_recovery_that_did_not_end_makes_the_mean_a_lower_bound() {
    let setup = Setup::Recovery { throughput: 1e5, highest: 1e6 };
    let mut profile = Profile::default();
    profile.recovery.repetitions = 2;
    for (last, bound) in [(0.2, None), (100.0, Some(trial::Bound::AtLeast))] {
        let mut test = setup.start(&profile).unwrap();
        let mut text = format!("{}\n{}\n", Line::run(profile.clone()), Line::test(64, setup.clone()));
        for last in [0.2, last] {
            let trial = test.next().unwrap();
            let sent = trial.traffic.frames();
            let mut outcome = trial::Outcome::new(sent, sent - 5);
            outcome.last_lost = Some(last);
            text += &format!("{}\n", Line::trial(trial, outcome));
            test.tell(&outcome).unwrap();
        }
        let row = &Report::read(&text).unwrap().rows()[0];
        assert_eq!((row.value, row.bound), (Some(0.2), bound), "{row:?}");
    }
}

/// Some took longer than that, and some may have taken less: the mean of them bounds nothing.
#[test]
fn recoveries_longer_and_shorter_have_no_mean() {
    let setup = Setup::Recovery { throughput: 1e5, highest: 1e6 };
    let mut profile = Profile::default();
    profile.recovery.repetitions = 2;
    let mut test = setup.start(&profile).unwrap();
    let mut text = format!("{}\n{}\n", Line::run(profile), Line::test(64, setup));
    for (last, doubtful) in [(0.2, 5), (0.3, 5), (0.2, 5), (100.0, 0)] {
        let trial = test.next().unwrap();
        let sent = trial.traffic.frames();
        let mut outcome = trial::Outcome::new(sent, sent - 5);
        (outcome.last_lost, outcome.doubtful) = (Some(last), doubtful);
        text += &format!("{}\n", Line::trial(trial, outcome));
        test.tell(&outcome).unwrap();
    }
    let row = &Report::read(&text).unwrap().rows()[0];
    assert_eq!((row.value, row.bound, row.interval), (None, None, None), "{row:?}");
    for words in ["not in time 1 times", "less 1 times: bursts of the generator"] {
        assert!(row.note.contains(words), "{row:?}");
    }
}

/// Where longer bursts were void, what is certain of one that may be too long is the least that it is.
#[test]
fn an_open_burst_is_at_least_what_is_certain_of_it() {
    let setup = Setup::BackToBack { rate: 3e3, throughput: 2e3, range: Some([1.9e3, 2.1e3]), filling: None };
    let mut profile = Profile::default();
    profile.bursts.repetitions = 1;
    let mut test = setup.start(&profile).unwrap();
    let mut text = format!("{}\n{}\n", Line::run(profile), Line::test(64, setup));
    // Each burst above 900 frames takes longer by too much, and those below it by a little.
    while let Some(trial) = test.next() {
        let sent = trial.traffic.frames();
        let mut outcome = trial::Outcome::new(sent, sent);
        outcome.late = Some(0.001);
        outcome.seconds = (sent > 900).then(|| trial.traffic.seconds() + 0.1);
        text += &format!("{}\n", Line::trial(trial, outcome));
        test.tell(&outcome).unwrap();
    }
    let rows = Report::read(&text).unwrap().rows();
    let [frames, time] = &rows[..] else { panic!("{rows:?}") };
    // A millisecond at 2,100 of 3,000 frames a second makes room for seven.
    let AnyTest::BackToBack(test) = &test else { unreachable!() };
    let certain = test.result().unwrap().frames.mean - 7.0;
    assert!((frames.value.unwrap() - certain).abs() < 1e-6, "{frames:?}");
    assert!((time.value.unwrap() - certain / 3.0 * 0.3).abs() < 1e-6, "{time:?}");
    for row in [frames, time] {
        assert_eq!((row.bound, row.interval), (Some(trial::Bound::AtLeast), None), "{row:?}");
    }
}

/// What the generator's ports lost is why a burst may be too long, not a machine that stopped.
#[test]
fn frames_that_the_ports_lost_are_why_a_burst_is_too_long() {
    let setup = Setup::BackToBack { rate: 1e6, throughput: 5e5, range: None, filling: None };
    let mut test = setup.start(&Profile::default()).unwrap();
    let mut text = format!("{}\n{}\n", Line::run(Profile::default()), Line::test(64, setup));
    while let Some(trial) = test.next() {
        let frames = trial.traffic.frames();
        let mut outcome = trial::Outcome::new(frames - 1, (frames - 1).min(frames / 2 + 512));
        outcome.own = 1;
        text += &format!("{}\n", Line::trial(trial, outcome));
        test.tell(&outcome).unwrap();
    }
    let rows = Report::read(&text).unwrap().rows();
    let [frames, time] = &rows[..] else { panic!("{rows:?}") };
    for row in [frames, time] {
        assert!(
            row.note.ends_with("too long by at most 2 frames: the generator's ports lost 1 frame in a burst"),
            "{row:?}"
        );
    }
    // The end of what it may be is the same with it and without.
    let [low, high] = time.interval.unwrap();
    assert!(low < high && (low..=high).contains(&0.512), "{time:?}");
}

/// RFC 2544, 10 wants frames that came twice or out of order in the results; and the worse of two ways counts in each figure of latency.
#[test]
fn what_came_otherwise_is_told_and_latency_is_that_of_the_worse_way() {
    let setup = Setup::Latency { rates: vec![1e5] };
    let mut profile = Profile::default();
    profile.latency.repetitions = 2;
    let mut test = setup.start(&profile).unwrap();
    let mut text = format!("{}\n{}\n", Line::run(profile), Line::test(64, setup));
    for (duplicate, reordered) in [(1_000, 1), (2_000, 0)] {
        let trial = test.next().unwrap();
        let mut outcome = trial::Outcome::new(trial.traffic.frames(), trial.traffic.frames());
        (outcome.duplicate, outcome.reordered) = (duplicate, reordered);
        outcome.delays = Some(trial::Delays::new(1e3, 20e3, 10e3, 500e3, 500e3));
        outcome.other_delays = Some(trial::Delays::new(290e3, 310e3, 300e3, 400e3, 410e3));
        text += &format!("{}\n", Line::trial(trial, outcome));
        test.tell(&outcome).unwrap();
    }
    let rows = Report::read(&text).unwrap().rows();
    let values: Vec<_> = rows.iter().map(|row| row.value).collect();
    assert_eq!(values, [Some(310.0), Some(300.0), Some(500.0)], "mean, typical, worst-case");
    for row in rows {
        assert!(row.note.ends_with("; 3,000 frames came twice in all; 1 frame came out of order in all"), "{row:?}");
    }
}

/// Rates of which trials were void are no neighbours that lost nothing, and repetitions without a loss no recoveries.
#[test]
fn what_is_not_known_ends_no_loss_test_and_is_no_recovery() {
    let mut test = trial::FrameLoss::new(1e6, &Profile::default()).unwrap();
    let mut rates = Vec::new();
    while let Some(trial) = test.next() {
        let (rate, sent) = (trial.traffic.rate(), trial.traffic.frames());
        rates.dedup();
        rates.push((rate / 1e5).round());
        let mut outcome = trial::Outcome::new(sent, if rate > 9.5e5 { sent / 2 } else { sent });
        // The generator does not keep to 800,000.
        outcome.sent = if (rate - 8e5).abs() < 1.0 { sent / 2 } else { sent };
        outcome.received = outcome.received.min(outcome.sent);
        test.tell(&outcome).unwrap();
    }
    rates.dedup();
    assert_eq!(rates, [10.0, 9.0, 8.0, 7.0, 6.0]);

    let mut profile = Profile::default();
    profile.recovery.repetitions = 3;
    let mut test = trial::Recovery::new(1e5, 1e6, &profile).unwrap();
    for lost in [0, 5, 0] {
        let sent = test.next().unwrap().traffic.frames();
        let mut outcome = trial::Outcome::new(sent, sent - lost);
        outcome.last_lost = (lost > 0).then_some(0.2);
        test.tell(&outcome).unwrap();
    }
    let result = test.result().unwrap();
    assert_eq!(
        (result.seconds.map(|seconds| seconds.mean), result.lossless, result.lost, test.next()),
        (Some(0.2), 2, 5, None)
    );
}

/// A stall of the device after the overload is no recovery: trials that differ have no interval, and say what may be the reason.
#[test]
fn recoveries_that_differ_have_no_interval() {
    let row = |times: &[f64]| {
        let mut profile = Profile::default();
        profile.recovery.repetitions = u32::try_from(times.len()).unwrap();
        let setup = Setup::Recovery { throughput: 1e5, highest: 1e6 };
        let mut test = setup.start(&profile).unwrap();
        let mut text = format!("{}\n{}\n", Line::run(profile), Line::test(64, setup));
        for last in times {
            let trial = test.next().unwrap();
            let sent = trial.traffic.frames();
            let mut outcome = trial::Outcome::new(sent, sent - 100);
            outcome.last_lost = Some(*last).filter(|last| *last > 0.0);
            text += &format!("{}\n", Line::trial(trial, outcome));
            test.tell(&outcome).unwrap();
        }
        Report::read(&text).unwrap().rows().remove(0)
    };
    let others = "frames that are lost otherwise count, too";
    // The gap is 1 / 55,000 s.
    for (times, differ, single) in [
        (&[0.2, 0.2 + 1.0 / 55_000.0, 0.2][..], false, false),
        (&[0.0, 0.9, 0.0], true, false),
        (&[0.2], false, true),
        (&[0.0], false, false),
    ] {
        let row = row(times);
        assert_eq!(row.interval.is_none(), differ, "{row:?}");
        assert_eq!(row.note.contains(others), differ || single, "{row:?}");
        assert_eq!(row.note.contains("a single trial"), single, "{row:?}");
        assert!(row.value.is_some() && row.bound.is_none(), "{row:?}");
    }
}

/// One trial decides about each rate of a binary search, as the row says.
#[test]
fn a_strict_throughput_is_by_single_trials() {
    let setup = Setup::BinarySearch { goal: trial::Goal::RFC2544, low: 1e3, high: 1e7 };
    let says = |truth| {
        let rows = rows(truth, &setup, &Profile::rfc2544());
        (rows[0].value.is_some(), rows[0].note.contains("a single trial decided about each rate"))
    };
    assert_eq!(says(Truth::default()), (true, true));
    assert_eq!(says(Truth { loss: 0.1, ..Truth::default() }), (false, false));
}

/// A run has each test of a size once.
#[test]
fn a_test_that_is_there_twice_is_an_error() {
    let test = |size, highest| Line::test(size, Setup::FrameLoss { highest });
    let begin = format!("{}\n{}\n", Line::run(Profile::default()), test(64, 1e6));
    assert!(Report::read(&format!("{begin}{}\n", test(128, 1e6))).is_ok());
    for highest in [1e6, 2e6] {
        let error = Report::read(&format!("{begin}{}\n", test(64, highest))).unwrap_err();
        assert!(matches!(error, trial::Error::Unexpected { number: 3 }), "{error}");
    }
}

/// Where it is not known whether the machine or a buffer delayed frames, neither is how long a buffer takes to empty.
#[test]
fn a_buffer_time_of_a_rate_that_is_not_known_is_an_interval() {
    let setup = Setup::BackToBack { rate: 3e3, throughput: 2e3, range: Some([2e3, 2.4e3]), filling: None };
    let rows = rows(Truth { capacity: 2e3, buffer: 400, ..Truth::default() }, &setup, &Profile::default());
    let time = &rows[1];
    let [low, high] = time.interval.unwrap();
    assert!((high - 400.0 / 3.0).abs() < 1.0 && time.value.is_none(), "{time:?}");
    assert!((low / high - 0.6).abs() < 1e-9, "{time:?}");
    assert!(time.note.contains("2,000 pps to 2,400 pps forwarded"), "{time:?}");
    assert!(time.figure.contains(" to ") && time.figure.ends_with(" ms"), "{time:?}");
}

/// More frames than the longest burst has do not wait in the buffer that it filled.
#[test]
fn delays_that_no_buffer_makes_leave_no_buffer_time() {
    for (filling, is_known) in [(395.0, true), (1_600.0, false)] {
        let setup =
            Setup::BackToBack { rate: 3e3, throughput: 2e3, range: Some([2e3, 2.001e3]), filling: Some(filling) };
        let rows = rows(Truth { capacity: 2e3, buffer: 400, ..Truth::default() }, &setup, &Profile::default());
        let [burst, time] = &rows[..] else { panic!("{rows:?}") };
        assert!((burst.value.unwrap() - 1_200.0).abs() < 10.0, "{burst:?}");
        assert_eq!((time.value.is_some(), time.interval.is_some()), (is_known, is_known), "{time:?}");
        let words =
            if is_known { "forwarded if a buffer was filling in trials" } else { "or delays vary by themselves" };
        assert!(time.note.contains(words), "{time:?}");
    }
}

#[test]
fn three_reasons_are_not_one_three_times() {
    let setup = Setup::FrameLoss { highest: 1e6 };
    let mut test = setup.start(&Profile::default()).unwrap();
    let mut text = format!("{}\n{}\n", Line::run(Profile::default()), Line::test(64, setup));
    for fault in 0..3 {
        let trial = test.next().unwrap();
        let mut outcome = trial::Outcome::new(if fault == 0 { 1 } else { trial.traffic.frames() }, 1);
        (outcome.clock_jumped, outcome.link_fell) = (fault == 1, fault == 2);
        text += &format!("{}\n", Line::trial(trial, outcome));
        test.tell(&outcome).unwrap();
    }
    let report = Report::read(&text).unwrap();
    let words = "void 3 times, at last because a link fell";
    assert_eq!(report.rows()[0].note, format!("{words}; 3 void trials"));
    assert!(report.to_string().contains(&format!("{words}: 1000000 frames/s were sent\n")), "{report}");
}

#[test]
fn what_was_left_out_has_a_row_where_it_was_left_out() {
    let [first, second] = [Setup::Frmol { rate: 1e6, max: None }, Setup::FrameLoss { highest: 1e6 }];
    let left_out = Line::left_out(64, "back-to-back", "it has none");
    let lines =
        [Line::run(Profile::default()), Line::test(64, first), left_out.clone(), Line::test(64, second), left_out];
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let report = Report::read(&text).unwrap();
    let rows = report.rows();
    let names: Vec<_> = rows.iter().map(|row| &*row.test).collect();
    assert_eq!(names, ["forwarded at maximum load", "back-to-back", "loss"]);
    assert_eq!((rows[1].size, &*rows[1].note, report.left_out().len()), (64, "it has none", 1));
}

#[test]
fn rows_of_a_size_stand_together_however_a_run_went_on() {
    let setups = [(1518, Setup::Frmol { rate: 1e6, max: None }), (64, Setup::Frmol { rate: 1e6, max: None })];
    let more = [(1518, Setup::FrameLoss { highest: 1e6 }), (64, Setup::FrameLoss { highest: 1e6 })];
    let lines = setups.into_iter().chain(more).map(|(size, setup)| format!("{}\n", Line::test(size, setup)));
    let text = format!("{}\n{}", Line::run(Profile::default()), lines.collect::<String>());
    let rows = Report::read(&text).unwrap().rows();
    let names: Vec<_> = rows.iter().map(|row| (row.size, row.test.split(' ').next().unwrap())).collect();
    assert_eq!(names, [(1518, "forwarded"), (1518, "loss"), (64, "forwarded"), (64, "loss")]);
}

#[test]
fn what_was_left_out_steers_no_terminal() {
    let named = Profile { name: "short\x1b[2J".to_owned(), ..Profile::default() };
    let text = format!("{}\n{}\n", Line::run(named), Line::left_out(64, "a\x1b[2J", "b\u{9b}\u{7}\n"));
    let report = Report::read(&text).unwrap();
    let row = &report.rows()[0];
    assert_eq!((&*row.test, &*row.note), ("a?[2J", "b???"));
    assert!(report.to_string().chars().all(|character| character == '\n' || !character.is_control()), "{report}");
}

#[test]
fn a_report_departs_by_what_was_measured_alone() {
    let profile = Profile::default();
    let mut lines = format!("{}\n", Line::run(profile.clone()));
    Device::new(Truth::default(), 1).test((&profile, 64), Setup::FrameLoss { highest: 1.2e6 }, &mut lines).unwrap();
    let report = Report::read(&lines).unwrap();
    let what: Vec<&str> = report.departures().iter().map(|departure| departure.what).collect();
    assert!(
        what.contains(&"seconds of a loss trial") && what.contains(&"seconds for the device to settle"),
        "{what:?}"
    );
    assert!(what.iter().all(|what| !what.contains("latency") && !what.contains("burst")), "{what:?}");
    assert!(profile.departures().len() > what.len());
}

#[test]
fn what_is_no_run_is_one_line() {
    let (text, _) = run(Truth::default(), 1);
    let lines: Vec<_> = text.lines().collect();
    let error = |text: String| Report::read(&text).map(|_| ()).unwrap_err();
    assert_eq!(error(String::new()), Error::NoRun);
    assert_eq!(error("not json".into()), Error::NoRun, "no line was written to its end");
    assert_eq!(error("not json\n".into()), Error::Damaged { number: 1 });
    let of = |version, program: Option<&str>| Error::Version { version, program: program.map(str::to_owned), known: 9 };
    assert_eq!(error(text.replacen("\"version\":9", "\"version\":10", 1)), of(10, None));
    // A later version may have other numbers.
    let other = error("{\"run\":{\"version\":1,\"numbers\":[],\"about\":{\"program\":\"pktgen 0\\u001b\"}}}\n".into());
    assert_eq!(other, of(1, Some("pktgen 0?")));
    assert!(other.to_string().ends_with("that wrote them, pktgen 0?"), "{other}");
    assert_eq!(error("{\"run\":{\"version\":9,\"numbers\":[]}}\n".into()), Error::Damaged { number: 1 });
    assert_eq!(error(format!("{}\n", lines[1])), Error::Unexpected { number: 1 });
    assert_eq!(error(format!("{}\n{}\n", lines[0], lines[2])), Error::Unexpected { number: 2 });
    // A trial twice, and one that was left out.
    assert_eq!(error(format!("{}\n", [&lines[..4], &[lines[3]]].concat().join("\n"))), Error::Unexpected { number: 5 });
    assert_eq!(error(format!("{}\n", [&lines[..2], &lines[3..]].concat().join("\n"))), Error::Unexpected { number: 3 });
    let cut = &text[..text.len() - 5];
    let report = Report::read(cut).unwrap();
    assert!(report.is_cut() && report.to_string().contains("not finished"));
    assert!(!Report::read(&text).unwrap().is_cut());
}

#[test]
fn a_thousand_trials_make_a_small_report() {
    let mut text = format!("{}\n", Line::run(Profile::default()));
    let mut device = Device::new(noisy(), 1);
    for size in 0..20 {
        let setup = Setup::Throughput { goals: vec![Goal::NDR, Goal::PDR], low: 9_001.0, high: HIGH };
        let mut test = setup.start(&Profile::default()).unwrap();
        text += &format!("{}\n", Line::test(64 + size, setup));
        while let Some(trial) = test.next() {
            let outcome = device.run(&trial);
            text += &format!("{}\n", Line::trial(trial, outcome));
            test.tell(&outcome).unwrap();
        }
    }
    assert!(text.lines().count() > 1000);
    let report = Report::read(&text).unwrap();
    assert!(report.json().len() < 1 << 20 && report.to_string().len() < 1 << 20);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_panics(change in any::<(prop::sample::Index, u8)>(), cut in any::<prop::sample::Index>()) {
        let profile = Profile::default();
        let setup = Setup::FrameLoss { highest: 1e6 };
        let trial = setup.start(&profile).unwrap().next().unwrap();
        let line = Line::trial(trial, Device::new(Truth::default(), 1).run(&trial));
        let mut bytes = format!("{}\n{}\n{line}\n", Line::run(profile), Line::test(64, setup)).into_bytes();
        let at = change.0.index(bytes.len());
        bytes[at] = change.1;
        bytes.truncate(cut.index(bytes.len()) + 1);
        if let Ok(report) = Report::read(&String::from_utf8_lossy(&bytes)) {
            let _ = (report.to_string(), report.json());
        }
    }
}

/// A report does the tests again, so that results of a program whose tests ask for other trials cannot be read: they are of another version.
#[test]
fn trials_of_this_version_are_these() {
    let mut sum = 0_u64;
    let truths = [
        Truth { buffer: 512, ..Truth::default() },
        Truth { loss: 1e-5, ..Truth::default() },
        Truth { stall: 0.3, stall_frames: 10_000, buffer: 100, ..Truth::default() },
        Truth { capacity_varies: 0.02, ..Truth::default() },
        Truth { loss: 1e-5, generator_away: 0.5, generator_away_seconds: 0.01, buffer: 1 << 40, ..Truth::default() },
    ];
    for (seed, truth) in (1..).zip(truths) {
        let profile = Profile::default();
        let goals = profile.throughput.goals.clone();
        for setup in [
            Setup::Throughput { goals, low: 1e3, high: 1e7 },
            Setup::BinarySearch { goal: Goal::RFC2544, low: 1e3, high: 1e7 },
            Setup::FrameLoss { highest: 2e6 },
            Setup::BackToBack { rate: 2e6, throughput: 1e6, range: None, filling: None },
            Setup::Recovery { throughput: 1e6, highest: 2e6 },
        ] {
            let (mut test, mut device) = (setup.start(&profile).unwrap(), Device::new(truth, seed));
            while let Some(trial) = test.next() {
                let rate: u64 = format!("{:.0}", trial.traffic.rate().floor()).parse().unwrap();
                let frames = trial.traffic.frames();
                sum = [rate, frames].iter().fold(sum, |sum, number| sum.wrapping_mul(31).wrapping_add(number / 10));
                test.tell(&device.run(&trial)).unwrap();
            }
        }
    }
    let line = Line::run(Profile::default()).to_string();
    let version = if line.starts_with(r#"{"run":{"version":9,"#) { 9 } else { 0 };
    assert_eq!(
        (version, sum),
        (9, 13_290_590_064_613_019_812),
        "the tests ask for other trials: give the lines another version, and this test its sum"
    );
}
