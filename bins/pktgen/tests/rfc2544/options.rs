//! What options ask for.

use crate::figures::of_cable;
use crate::known::{folder_of, profile, simulated};
use crate::runs::{DEVICE, SHORT, assert_done, beside, notes, pktgen, report_of, rfc2544, run_of, unlocked};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use trial::simulate::Truth;
use trial::{Line, Method as _, Setup};

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
        (&["--ports", "soft:a,soft:b", "--min", "5k", "--line", "1M"], 2, "--min 5000: the line carries 1488 frames"),
        (&["--ports", "soft:a,soft:b", "--max", "9"], 2, "--max 9: fewer than 10 frames in a trial of 1 s"),
        (&["--ports", "soft:a,soft:b", "--line", "1"], 2, "--line: it carries 0.0 frames of 64 bytes a second"),
        (
            &["--ports", "soft:a,soft:b", "--line", "10k", "--trial-time", "100ms"],
            2,
            "fewer than 10 in a trial of 0.1 s",
        ),
        (&["--ports", "soft:a,soft:b", "--min", "0.5"], 2, "--min 0.5: less than a frame in a trial of 1 s"),
        (&["--ports", "soft:a,soft:b", "--tests", "latency", "--min", "5k", "--line", "1M"], 2, "carries 1488 frames"),
        (&["--ports", "soft:a,soft:b", "--sizes", "63"], 2, "64 to 9220"),
        (&["--ports", "soft:a,soft:b", "--sizes", "9220", "--batch", "4"], 2, "--batch 5"),
        (
            &["--ports", "soft:a,soft:b", "--sizes", "64,1518", "--mtu", "1400"],
            2,
            "--mtu 1400: frames of 1518 bytes with check sequence need 1500",
        ),
        (&["--ports", "soft:a,soft:b", "--sizes", "1519", "--mtu", "1500"], 2, "need 1501"),
        (&["--ports", "soft:a,soft:b", "--sizes", "64,64"], 2, "twice"),
        (&["--ports", "soft:a,soft:b", "--sizes", "64", "--ipv6"], 2, "need 80"),
        (&["--ports", "soft:a,soft:b", "--sizes", "imix", "--ipv6"], 2, "--sizes imix"),
        (&["--ports", "soft:a,soft:b", "--tests", "speed"], 2, "back-to-back"),
        (
            &["--ports", "soft:a,soft:b", "--dst-ip", "2001:2::1"],
            2,
            "--dst-ip 2001:2::1: of another family; add --ipv6",
        ),
        (&["--ports", "soft:a,soft:b", "--dst-ip", "198.18.0.1", "--ipv6"], 2, "leave --ipv6 out"),
        (&["--ports", "soft:a,soft:b", "--tests", "loss,loss"], 2, "--tests: loss is named twice"),
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
    let (notes, path) = ("notes", folder.path().join("of a person"));
    std::fs::create_dir(&path).unwrap();
    std::fs::write(path.join("trials.jsonl"), notes).unwrap();
    let path = path.to_str().unwrap();
    for (arguments, code, words) in [
        (&["rfc2544", "--ports", "soft:a,soft:b", "--out", path][..], 1, "trials.jsonl is none of pktgen rfc2544"),
        (&["rfc2544", "--ports", "soft:a,soft:b", "--out", "/dev/null/x"][..], 1, "cannot be made"),
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
    assert_eq!(std::fs::read_to_string(Path::new(path).join("trials.jsonl")).unwrap(), notes);
    assert!(!Path::new("/nowhere").exists());
}

/// Without `--out` there is a folder of a name that the manual has, in the present one.
#[test]
fn results_have_a_folder_of_their_own() {
    let _beside = beside();
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_pktgen"));
    command.args(["rfc2544", "--ports", "soft:a?wire=peer:b,soft:b", "--one-way", "--sizes", "64", "--max", "500"]);
    command.args(["--tests", "loss", "--trial-time", "100ms", "--repetitions", "1", "--catch-up", "50ms", "--quiet"]);
    let output = command.current_dir(folder.path()).output().unwrap();
    assert_done(&output, &String::from_utf8_lossy(&output.stderr));
    let report = report_of(folder.path().join("rfc2544-results").to_str().unwrap());
    assert!(report.parts().iter().any(|part| matches!(part.setup, Setup::FrameLoss { .. })), "{report}");
    let again = command.output().unwrap();
    let said = String::from_utf8(again.stderr).unwrap();
    assert!(said.starts_with("pktgen: --out rfc2544-results: has results") && said.lines().count() == 1, "{said}");
}

/// Sizes by name, each with the highest load known already, so that only losses are measured.
#[test]
fn sizes_by_name_are_those_of_the_documents() {
    let _beside = beside();
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
            let known = simulated(&profile, Truth::default(), vec![Setup::Frmol { rate: 1e12, max: None }]);
            let (_, of_test) = known.split_once('\n').unwrap();
            lines += &of_test.replacen("\"size\":64", &format!("\"size\":{size}"), 1);
        }
        let folder = folder_of(&lines);
        let path = folder.path().to_str().unwrap();
        let options = ["--one-way", "--tests", "loss", "--max", "500", "--trial-time", "100ms", "--repetitions", "1"];
        let options = [&options[..], &["--catch-up", "50ms", "--json", "--sizes"], &words].concat();
        let (output, said) = unlocked("warn", "soft:a?wire=peer:b,soft:b", ["--resume", path], &options);
        assert_done(&output, &said);
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

/// Value and percentage of the row of the highest load; none where the machine stood still in each trial, and the row says so.
fn counted(row: &Value) -> Option<[f64; 2]> {
    if row["value"].is_null() {
        assert!(row["note"].as_str().unwrap().contains("the machine stopped generator or device"), "{row}");
        return None;
    }
    Some(["value", "percent"].map(|name| row[name].as_f64().unwrap()))
}

/// Percentages are of the line that is given.
#[test]
fn percentages_are_of_the_line() {
    let folder = tempfile::tempdir().unwrap();
    let options = ["--one-way", "--sizes", "128", "--tests", "loss", "--max", "500", "--line", "10M", "--json"];
    let path = folder.path().to_str().unwrap();
    let (output, said) = rfc2544(DEVICE, ["--out", path], &[&options[..], &SHORT].concat());
    assert_done(&output, &said);
    let run = run_of(&output);
    let row = &run["rows"][0];
    let line = 10e6 / ((128.0 + 20.0) * 8.0);
    if let Some([value, percent]) = counted(row) {
        assert!((percent - value / line * 100.0).abs() < 1e-9 && value < line, "{row}");
    }
    // What may be sent is less.
    assert_eq!(report_of(path).parts()[0].setup, Setup::Frmol { rate: line, max: Some(500.0) });
    let page = String::from_utf8(pktgen(&["report", path]).stdout).unwrap();
    assert!(page.contains("of max: of the rate of the line"), "{page}");
}

/// Whoever spares a device, or what lies behind it, sends it no more than that in any trial.
#[test]
fn nothing_is_sent_faster_than_is_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let options = ["--one-way", "--sizes", "64", "--tests", "throughput,loss", "--max", "1k", "--min", "500", "--json"];
    let _beside = beside();
    let ports = "soft:a?wire=peer:b&delay=1us,soft:b";
    let (output, said) = unlocked("info", ports, ["--out", path], &[&options[..], &SHORT].concat());
    assert_done(&output, &said);
    // Trials of a second at most, the frames that open them, learning frames and probes.
    let lines = std::fs::read_to_string(folder.path().join("trials.jsonl")).unwrap();
    let trials = lines.matches("\"outcome\"").count() as u64;
    let frames = of_cable(&said, "a", "frames");
    assert!(frames > 0 && frames <= trials * (1_000 + 64 + 1_000), "{frames} in {trials} trials: {said}");
    let highest = report_of(path).parts().iter().map(|part| part.setup.clone()).next().unwrap();
    assert_eq!(highest, Setup::Frmol { rate: 1e12, max: Some(1_000.0) });
    // Percentages are of it, as there is no line.
    let run = run_of(&output);
    let row = &run["rows"][0];
    if let Some([value, percent]) = counted(row) {
        assert!((percent - value / 10.0).abs() < 1e-9 && value <= 1_001.0, "{row}");
        assert!(row["note"].as_str().unwrap().contains("as 1,000 pps are allowed at most"), "{row}");
    }
    let page = String::from_utf8(pktgen(&["report", path]).stdout).unwrap();
    assert!(page.contains("of max: of the highest rate that was allowed: the ports have no line"), "{page}");
}

/// The port that only receives asks for its router, and is asked by it, before each trial.
#[test]
fn hosts_find_their_routers_before_each_trial() {
    let folder = tempfile::tempdir().unwrap();
    let options = ["--one-way", "--sizes", "64", "--tests", "loss", "--max", "500", "--json"];
    let hosts = ["--answer", "192.0.2.1/24,192.0.2.2/24", "--gateway", "192.0.2.2,192.0.2.1"];
    let path = folder.path().to_str().unwrap();
    let ports = "soft:a?wire=peer:b,soft:b";
    let (output, said) = rfc2544(ports, ["--out", path], &[&options[..], &hosts, &SHORT].concat());
    assert_done(&output, &said);
    let lines = std::fs::read_to_string(folder.path().join("trials.jsonl")).unwrap();
    assert!(lines.matches("\"outcome\"").count() >= 2, "{lines}");
}

/// What the highest load was on a busy machine bounds nothing that the user has bounded, and no run ends by it.
#[test]
fn a_starved_highest_load_bounds_nothing_that_was_asked_for() {
    let profile = profile(0.4, 1);
    let starved = Truth { generator: 500.0, capacity: 500.0, ..Truth::default() };
    let known = simulated(&profile, starved, vec![Setup::Frmol { rate: 1e12, max: None }]);
    let options = ["--one-way", "--sizes", "64", "--trial-time", "400ms", "--repetitions", "1", "--json"];
    for (bounds, tests) in [(&["--max", "1k"][..], "loss"), (&["--min", "600"], "throughput,back-to-back")] {
        let folder = folder_of(&known);
        let path = folder.path().to_str().unwrap();
        let arguments = [&options[..], bounds, &["--tests", tests]].concat();
        let (output, said) = rfc2544("soft:a?wire=peer:b,soft:b", ["--resume", path], &arguments);
        let is_answered = tests == "loss";
        assert!(is_answered || output.status.code() == Some(1), "{said}");
        assert_done(&output, &said);
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
