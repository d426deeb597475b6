//! What reports say beside figures, and in place of those that are missing.

use crate::known::{folder_of, profile, simulated};
use crate::runs::{DEVICE, SHORT, assert_done, pktgen, report_of, rfc2544, run_of};
use serde_json::Value;
use std::path::Path;
use trial::simulate::{Device, Truth};
use trial::{Line, Method as _, Setup};

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
    assert_done(&output, &said);
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
        ("RFC 2544, 24", "seconds of a trial at the highest load"),
        ("RFC 2544, 9.1", "no frames of 128, 256, 512, 1024, 1280, 1518 bytes"),
        ("RFC 2544, 12", "one flow only, and not again to addresses at random in 256 networks"),
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

/// Sizes that are missing, or others in their place, one flow, and rates below the line.
#[test]
fn what_was_left_out_of_an_rfc_is_a_departure() {
    let departures = |about: &[(&str, &str)], tests: &[(u32, Vec<Setup>)]| {
        let about = about.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let profile = trial::Profile::rfc2544();
        let mut lines = format!("{}\n", trial::Line::run_about(profile.clone(), about));
        let mut device = Device::new(Truth::default(), 1);
        for (size, setups) in tests {
            for setup in setups {
                device.test((&profile, *size), setup.clone(), &mut lines).unwrap();
            }
        }
        let folder = folder_of(&lines);
        let run = run_of(&pktgen(&["report", folder.path().to_str().unwrap(), "--json"]));
        let one = |one: &Value| {
            let [section, what] = ["section", "what"].map(|name| one[name].as_str().unwrap());
            (format!("{section}: {what}"), one["used"].as_f64().zip(one["wanted"].as_f64()))
        };
        run["departures"].as_array().unwrap().iter().map(one).collect::<Vec<_>>()
    };
    let of = |words: &str, numbers: Option<(f64, f64)>| (words.to_owned(), numbers);
    let all = [64, 128, 256, 512, 1024, 1280, 1518];
    let highest = |max| Setup::Frmol { rate: 1e6, max };
    let whole = |size: &u32| (*size, vec![highest(None), Setup::FrameLoss { highest: 1e6 }]);
    assert_eq!(departures(&[], &all.iter().map(whole).collect::<Vec<_>>()), []);
    // Each test that began below the line, with the least share of it.
    let low = vec![
        highest(Some(1e5)),
        Setup::BinarySearch { goal: trial::Goal::RFC2544, low: 1e3, high: 1e5 },
        Setup::FrameLoss { highest: 1e5 },
    ];
    let mut tests: Vec<_> = all.iter().map(whole).collect();
    tests[3].1 = low;
    let least = Some((10.0, 100.0));
    let sections = ["RFC 2285, 3.5.3", "RFC 2544, 26.1", "RFC 2544, 26.3"];
    let below = sections.map(|section| of(&format!("{section}: highest rate, % of the line"), least));
    assert_eq!(departures(&[], &tests), below);
    // Ports without a line have no highest rate that they miss.
    let none = all.map(|size| (size, vec![Setup::Frmol { rate: 1e12, max: Some(1e5) }]));
    assert_eq!(departures(&[], &none), []);
    let few = [(64, vec![highest(None)]), (1518, vec![highest(None)])];
    assert_eq!(departures(&[], &few), [of("RFC 2544, 9.1: no frames of 128, 256, 512, 1024, 1280 bytes", None)]);
    let larger: Vec<_> = [80, 128, 256, 512, 1024, 1280].map(|size| (size, vec![highest(None)])).into();
    let words = "bytes of the smallest frame, as a tag in IPv6 needs them";
    let (drain, flows) = (
        "RFC 2544, 23 d: the wait for frames under way ends 50 ms after the last of them if none is missing",
        "and not again to addresses at random in 256 networks",
    );
    assert_eq!(
        departures(&[("protocol", "IPv6"), ("flows", "1")], &larger),
        [
            of(drain, None),
            of(&format!("RFC 5180, 5.1.1: {words}"), Some((80.0, 64.0))),
            of("RFC 5180, 5.1.1: no frames of 1518 bytes", None),
            of(&format!("RFC 2544, 12: one flow only, {flows}"), None),
            of("RFC 2544, 11: no broadcasts, management frames, routing updates or filters beside the traffic", None),
            of("RFC 2544, 26.6: recovery from a reset is not measured", None),
        ]
    );
    let many = departures(&[("protocol", "IPv4"), ("flows", "20000")], &few);
    assert!(many.contains(&of(&format!("RFC 2544, 12: flows to one destination address, {flows}"), None)), "{many:?}");
}

#[test]
fn nothing_that_counts_is_an_error_and_each_missing_figure_has_its_reason() {
    // Links fell in each trial.
    let profile = profile(1.2, 3);
    let lines = simulated(
        &profile,
        Truth { link_falls: 1.0, ..Truth::default() },
        vec![Setup::Frmol { rate: 1e12, max: None }],
    );
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
    for form in [&shown, &csv] {
        let of_form: Vec<&str> = form.lines().filter(|line| line.contains("limit of the generator")).collect();
        assert!(
            of_form.len() == 1 && of_form[0].contains("a link fell 3 times: ") && !of_form[0].contains("asked for"),
            "{form}"
        );
    }
    assert_eq!((&first["test"], &first["value"]), (&Value::from("forwarded at maximum load"), &Value::Null));
    assert!(first["note"].as_str().unwrap().contains("a link fell 3 times"), "{first}");
    // Once more nothing is written.
    let after = std::fs::read_to_string(folder.path().join("trials.jsonl")).unwrap();
    let (output, _) = rfc2544("soft:a,soft:b", ["--resume", path], &[&options[..], &tests].concat());
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(std::fs::read_to_string(folder.path().join("trials.jsonl")).unwrap(), after);
}

/// A link that changes its state every hundred steps of its NIC falls in each trial in which that NIC ran at all, and a trial in which it
/// fell is void.
#[test]
fn a_link_that_falls_makes_trials_void() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let options = ["--one-way", "--sizes", "64", "--tests", "loss", "--max", "1k"];
    let ports = "soft:a?wire=peer:b&fault=link-flap:100,soft:b";
    let (output, said) = rfc2544(ports, ["--out", path], &[&options[..], &SHORT].concat());
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("no trial counted") && said.lines().count() == 1, "{said}");
    let run = run_of(&pktgen(&["report", path, "--json"]));
    for row in run["rows"].as_array().unwrap() {
        assert!(row["value"].is_null() && row["note"] == "a link fell 3 times; 3 void trials", "{row}");
    }
    for limit in run["limits"].as_array().unwrap() {
        assert!(limit["reason"] == "link", "{limit}");
    }
    assert_eq!(run["rows"].as_array().unwrap().len(), 2, "{run:#}");
}

/// Ports that send nothing at the highest load end no run: there is no rate to begin with, and the other sizes go on.
#[test]
fn a_highest_load_of_no_frames_has_a_reason() {
    let profile = profile(0.4, 1);
    let setup = Setup::Frmol { rate: 1e12, max: None };
    let mut test = setup.start(&profile).unwrap();
    let mut lines = format!("{}\n{}\n", trial::Line::run(profile.clone()), trial::Line::test(64, setup));
    while let Some(next) = test.next() {
        let outcome = trial::Outcome::new(0, 0);
        lines += &format!("{}\n", trial::Line::trial(next, outcome));
        test.tell(&outcome).unwrap();
    }
    let folder = folder_of(&lines);
    let options = ["--one-way", "--sizes", "64", "--trial-time", "400ms", "--repetitions", "1", "--json"];
    let options = [&options[..], &["--tests", "throughput,loss"]].concat();
    let (output, said) = rfc2544("soft:a,soft:b", ["--resume", folder.path().to_str().unwrap()], &options);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("no test that was asked for has a figure") && said.lines().count() == 1, "{said}");
    let run = run_of(&output);
    for test in ["throughput", "loss"] {
        let row = run["rows"].as_array().unwrap().iter().find(|row| row["test"] == test).unwrap();
        assert!(row["value"].is_null() && row["note"].as_str().unwrap().contains("none sent a frame"), "{row}");
    }
}

/// Of a device that loses frames by chance 110 % of the throughput is far from what it forwards, and what was lost last is chance.
#[test]
fn an_overload_that_is_none_has_no_recovery() {
    let profile = profile(1.2, 3);
    let goals = profile.throughput.goals.clone();
    let highest = vec![Setup::Frmol { rate: 1e12, max: Some(1e5) }];
    let search = vec![Setup::Throughput { goals, low: 100.0, high: 1e5 }];
    let capacity = 5e4;
    // What it forwards is seen at the highest load, or where it may lose a few; the last forwards nearly all at the highest.
    let [forwards, loses_few] =
        ["forwards as many where it may lose some", "loses no more of them than the search allows"].map(Some);
    for (loss, most, capacity, why) in [
        (0.002, 5e4, capacity, forwards),
        (0.001, 10.0, capacity, forwards),
        (0.0, 5e4, capacity, None),
        (0.0, 10.0, 9.97e4, loses_few),
    ] {
        let first = simulated(&profile, Truth { capacity: most, ..Truth::default() }, highest.clone());
        let then = simulated(&profile, Truth { loss, capacity, ..Truth::default() }, search.clone());
        let folder = folder_of(&(first + then.split_once('\n').unwrap().1));
        let path = folder.path().to_str().unwrap();
        let options = ["--one-way", "--sizes", "64", "--trial-time", "1200ms", "--repetitions", "3", "--max", "100k"];
        let stop = ["--tests", "recovery", "--json", "--min", "100"];
        let (output, said) = rfc2544("soft:a,soft:b", ["--resume", path], &[&options[..], &stop].concat());
        let run = run_of(&output);
        let row = run["rows"].as_array().unwrap().iter().find(|row| row["test"] == "recovery").unwrap();
        let is_overload = why.is_none();
        let words = format!("are no overload: the device {}", why.unwrap_or_default());
        assert_eq!(row["note"].as_str().unwrap().contains(&words), !is_overload, "{row} {said}");
        // That there is none is an answer.
        assert!(is_overload || output.status.code() == Some(0), "{said}");
        let begun = report_of(path).parts().iter().any(|part| matches!(part.setup, Setup::Recovery { .. }));
        assert_eq!(begun, is_overload, "{row} {said}");
    }
}

/// A buffer that takes all of a trial is an end that longer bursts may find, whether or not the machine stopped meanwhile.
#[test]
fn a_highest_rate_that_fills_a_buffer_is_not_forwarded_without_end() {
    let profile = profile(1.2, 3);
    let goals = profile.throughput.goals.clone();
    for generator_away_seconds in [0.0, 0.01, 0.3] {
        let setups = vec![
            Setup::Frmol { rate: 1e12, max: Some(3e3) },
            Setup::Throughput { goals: goals.clone(), low: 1e3, high: 3e3 },
        ];
        let truth =
            Truth { capacity: 2_000.0, buffer: 5_000, generator_away: 1.0, generator_away_seconds, ..Truth::default() };
        let folder = folder_of(&simulated(&profile, truth, setups));
        let path = folder.path().to_str().unwrap();
        let options = ["--one-way", "--sizes", "64", "--trial-time", "1200ms", "--repetitions", "3", "--max", "3k"];
        let tests = ["--min", "1k", "--tests", "recovery,back-to-back"];
        let (_, said) = rfc2544("soft:a,soft:b", ["--resume", path], &[&options[..], &tests].concat());
        let report = report_of(path);
        let left_out = report.left_out().iter().find(|one| one.test == "recovery").unwrap();
        assert_eq!(left_out.reason, "no rate lost frames, and a buffer may have filled: longer trials tell", "{said}");
        let Setup::BackToBack { throughput, range: Some([least, most]), .. } = report.parts().last().unwrap().setup
        else {
            panic!("{generator_away_seconds}: {report} {said}")
        };
        assert!((throughput - 2_000.0).abs() < 100.0, "{generator_away_seconds}: {throughput}");
        assert!(
            least <= throughput && most >= throughput && most <= 3e3,
            "{generator_away_seconds}: {least} to {most}"
        );
    }
}

#[test]
fn a_run_that_was_cut_between_two_tests_says_what_is_missing() {
    let profile = profile(0.4, 1);
    let setups = vec![Setup::Frmol { rate: 1e12, max: None }, Setup::FrameLoss { highest: 1e3 }];
    let lines = simulated(&profile, Truth::default(), setups);
    let about = [("tests", "loss, latency"), ("sizes", "64, 128")].map(|(name, of)| (name.to_owned(), of.to_owned()));
    let first = Line::run_about(profile, about.into());
    let folder = folder_of(&format!("{first}\n{}", lines.split_once('\n').unwrap().1));
    let (path, page) = (folder.path().to_str().unwrap(), folder.path().join("page.html"));
    assert!(pktgen(&["report", path, "--html", page.to_str().unwrap()]).status.success());
    let said = |form: &[&str]| String::from_utf8(pktgen(&[&["report", path], form].concat()).stdout).unwrap();
    for form in [said(&[]), said(&["--json"]), said(&["--csv"]), std::fs::read_to_string(page).unwrap()] {
        let words = "asked for and not begun: 64 bytes: latency; 128 bytes: loss, latency; --resume goes on";
        assert_eq!(form.matches(words).count(), 1, "{form}");
    }
    // Before the first test there is nothing that a percentage could be of.
    let folder = folder_of(&format!("{first}\n"));
    let said = String::from_utf8(pktgen(&["report", folder.path().to_str().unwrap()]).stdout).unwrap();
    assert!(said.contains("of max: nothing was measured") && said.contains("64 bytes: loss, latency; 128"), "{said}");
}

#[test]
fn what_needs_a_rate_above_the_throughput_says_why_there_is_none() {
    let profile = profile(1.2, 3);
    let goals = profile.throughput.goals.clone();
    for (generator, high, words) in [
        (2e4, 4e4, ["no trial above the throughput counted"; 2]),
        (1e9, 2e4, ["the highest rate is no overload", "the highest rate is forwarded without end"]),
    ] {
        let setups = vec![
            Setup::Frmol { rate: 1e12, max: None },
            Setup::Throughput { goals: goals.clone(), low: 1_000.0, high },
        ];
        let folder = folder_of(&simulated(&profile, Truth { generator, ..Truth::default() }, setups));
        let path = folder.path().to_str().unwrap();
        let options = ["--one-way", "--sizes", "64", "--trial-time", "1200ms", "--repetitions", "3", "--json"];
        let options = [&options[..], &["--tests", "recovery,back-to-back"]].concat();
        let (output, said) = rfc2544("soft:a,soft:b", ["--resume", path], &options);
        // That a device forwards all is an answer; that the generator is too slow is none.
        assert_eq!(output.status.code(), Some(i32::from(generator < 1e9)), "{said}");
        assert_done(&output, &said);
        let run = run_of(&output);
        let rows = run["rows"].as_array().unwrap();
        for (test, words) in ["recovery", "back-to-back"].into_iter().zip(words) {
            let row = rows.iter().find(|row| row["test"] == test).unwrap();
            assert_eq!((&row["note"], &row["value"]), (&Value::from(words), &Value::Null), "{row}");
        }
    }
}
