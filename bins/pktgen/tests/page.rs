//! Pages of `pktgen report --html`, read by a parser that knows nothing of how they are written.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use roxmltree::{Document, Node, ParsingOptions};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};
use trial::simulate::{Device, Truth};
use trial::{AnyTest, Line, Profile, Setup};

/// The rate of a line of 10 Gbit/s.
fn line_rate(size: u32) -> f64 {
    1e10 / ((f64::from(size) + 20.0) * 8.0)
}

/// Lines of a run as `pktgen rfc2544` writes them, of a device of this capacity, with sizes of the RFC.
fn run(capacity: f64, seed: u64, sizes: &[u32]) -> String {
    let profile = Profile { name: "short: a and b".to_owned(), ..Profile::default() };
    let about = [("processor".to_owned(), "one of <these> & \"those\"".to_owned())];
    let mut lines = format!("{}\n", Line::run_about(profile.clone(), about.into()));
    for &size in sizes {
        let most = line_rate(size);
        let truth = Truth {
            capacity,
            buffer: 512,
            jitter: 20e-6,
            recovery: 0.02,
            generator: most,
            link_falls: 0.03,
            ..Truth::default()
        };
        let mut device = Device::new(truth, seed + u64::from(size));
        let mut test = |setup| device.test((&profile, size), setup, &mut lines).unwrap();
        test(Setup::Frmol { rate: most, max: None });
        let goals = profile.throughput.goals.clone();
        let found = test(Setup::Throughput { goals, low: 9_001.0, high: most });
        let AnyTest::Throughput(found) = found else { unreachable!() };
        let rate = found.results()[0].lower.unwrap();
        test(Setup::Latency { rates: vec![rate, rate / 2.0] });
        test(Setup::BackToBack { rate: most, throughput: rate, range: None, filling: None });
        test(Setup::FrameLoss { highest: most });
        test(Setup::Recovery { throughput: rate, highest: most });
    }
    lines
}

fn pktgen(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pktgen")).args(arguments).output().unwrap()
}

/// The page of folders, and their report in JSON.
fn report(folders: &[&Path]) -> (String, Value) {
    let page = tempfile::NamedTempFile::new().unwrap();
    let names: Vec<&str> = folders.iter().map(|folder| folder.to_str().unwrap()).collect();
    let html = ["report", "--html", page.path().to_str().unwrap()];
    let output = pktgen(&[&html, &names[..]].concat());
    assert!(output.status.success() && output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
    let json = pktgen(&[&["report", "--json"], &names[..]].concat());
    let page = std::fs::read_to_string(page.path()).unwrap();
    (page, serde_json::from_slice(&json.stdout).unwrap())
}

fn parse(page: &str) -> Document<'_> {
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    Document::parse_with_options(page, options).unwrap()
}

fn folder(lines: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("trials.jsonl"), lines).unwrap();
    folder
}

fn has_class(node: &Node<'_, '_>, class: &str) -> bool {
    node.attribute("class").is_some_and(|classes| classes.split(' ').any(|one| one == class))
}

fn texts(node: Node<'_, '_>) -> String {
    node.descendants().filter_map(|node| if node.is_text() { node.text() } else { None }).collect()
}

fn number(text: &str) -> f64 {
    text.trim_end_matches('%').trim().replace(',', "").parse().unwrap_or_else(|_| panic!("{text}"))
}

/// The drawing of a title.
fn drawing<'a, 'i>(page: &'a Document<'i>, title: &str) -> Node<'a, 'i> {
    let figures = page.descendants().filter(|node| node.has_tag_name("figure") || node.tag_name().name() == "figure");
    let mut of_title = figures.filter(|figure| texts(figure.first_element_child().unwrap()) == title);
    of_title.next().unwrap_or_else(|| panic!("no drawing of {title}"))
}

/// Points of a drawing: what they say, and their value by where they are between the ticks of the axis.
fn points(figure: Node<'_, '_>, is_log: bool) -> Vec<(String, f64)> {
    let ticks = figure.descendants().filter(|node| has_class(node, "tick-y"));
    let ticks: Vec<(f64, f64)> =
        ticks.map(|tick| (number(tick.attribute("y").unwrap()), number(tick.text().unwrap()))).collect();
    let scaled = |value: f64| if is_log { value.log10() } else { value };
    let ((y0, v0), (y1, v1)) = (ticks[0], *ticks.last().unwrap());
    let (v0, v1) = (scaled(v0), scaled(v1));
    // Each tick is where the first and the last say that it is.
    for (y, value) in &ticks {
        let place = y0 + (scaled(*value) - v0) / (v1 - v0) * (y1 - y0);
        assert!((place - y).abs() < 0.2, "a tick of {value} at {y} in place of {place}");
    }
    let marks = figure.descendants().filter(|node| node.children().any(|child| child.tag_name().name() == "title"));
    let point = |mark: Node<'_, '_>| {
        let place = mark.attribute("transform").unwrap();
        let y = number(place.trim_end_matches(')').split(' ').nth(1).unwrap());
        let value = v0 + (y - y0) / (y1 - y0) * (v1 - v0);
        (texts(mark.first_element_child().unwrap()), if is_log { 10_f64.powf(value) } else { value })
    };
    marks.map(point).collect()
}

/// What a point of this beginning is at.
fn at(points: &[(String, f64)], begin: &str) -> f64 {
    points.iter().find(|(title, _)| title.starts_with(begin)).unwrap_or_else(|| panic!("{begin}: {points:?}")).1
}

/// The value of a row of the report.
fn value(run: &Value, size: u32, test: &str) -> f64 {
    let rows = run["rows"].as_array().unwrap();
    let is_it = |row: &&Value| row["size"] == size && row["test"].as_str().unwrap().starts_with(test);
    rows.iter().find(is_it).unwrap_or_else(|| panic!("{size} {test}"))["value"].as_f64().unwrap()
}

#[test]
fn drawings_and_tables_are_those_of_the_lines() {
    let sizes = [64, 128, 256, 512, 1024, 1280, 1518];
    let folder = folder(&run(2.2e6, 5, &sizes));
    let (page, json) = report(&[folder.path()]);
    assert!(page.len() < 1 << 20, "{} bytes", page.len());
    let document = parse(&page);
    let run = &json["runs"][0];
    let near = |drawn: f64, value: f64, of: f64| assert!((drawn - value).abs() <= of, "{drawn} is drawn for {value}");
    let (percent, rates) = ("Throughput, share of the highest rate", "Frames a second");
    let (percent, rates) = (points(drawing(&document, percent), false), points(drawing(&document, rates), false));
    let latency = points(drawing(&document, "Latency"), true);
    let (bursts, recovery) = (drawing(&document, "Back-to-back frames"), drawing(&document, "System recovery"));
    let (bursts, recovery) = (points(bursts, false), points(recovery, false));
    let loss = points(drawing(&document, "Frame loss"), false);
    for size in sizes {
        for (goal, test) in
            [("NDR (no loss)", "throughput, loss <= 0 %"), ("PDR (loss up to 0.5 %)", "throughput, loss <= 0.5 %")]
        {
            let throughput = value(run, size, test);
            let name = format!("{goal}, {size} bytes:");
            near(at(&percent, &name), throughput / line_rate(size) * 100.0, 0.1);
            near(at(&rates, &name) * 1e6, throughput, 15e3);
        }
        near(at(&rates, &format!("highest rate, {size} bytes:")) * 1e6, line_rate(size), 15e3);
        let typical = value(run, size, "typical");
        near(at(&latency, &format!("at the throughput, {size} bytes:")), typical, typical * 0.01);
        if size < 512 {
            // Of larger frames the line carries less than the device forwards.
            near(at(&bursts, &format!("longest burst, {size} bytes:")), value(run, size, "back-to-back"), 10.0);
        }
        // From the highest rate of a line that it carries the device has nothing to recover.
        let of_size = |row: &&Value| row["size"] == size && row["test"] == "recovery";
        let row = run["rows"].as_array().unwrap().iter().find(of_size).unwrap();
        let begin = format!("recovery, {size} bytes:");
        if row["note"].as_str().unwrap().contains("no frame was lost") {
            assert!(row["value"].is_null() && !recovery.iter().any(|(title, _)| title.starts_with(&begin)), "{row}");
        } else {
            near(at(&recovery, &begin), value(run, size, "recovery") * 1e3, 0.5);
        }
        let begin = format!("{size} bytes, ");
        let of_size: Vec<&(String, f64)> = loss.iter().filter(|(title, _)| title.starts_with(&begin)).collect();
        let rows = run["rows"].as_array().unwrap().iter();
        let rows = rows.filter(|row| row["size"] == size && row["test"].as_str().unwrap().starts_with("loss at"));
        let rows: Vec<&Value> = rows.collect();
        assert_eq!(of_size.len(), rows.len());
        for ((title, drawn), row) in of_size.iter().zip(rows) {
            near(*drawn, row["value"].as_f64().unwrap(), 0.1);
            let [low, high] = [0, 1].map(|end| row["interval"][end].as_f64().unwrap());
            assert!(title.ends_with(&format!("lost, by chance {low:.4} % to {high:.4} %")), "{title}: {row}");
        }
    }
    let ranges = drawing(&document, "Frame loss").descendants().filter(|node| has_class(node, "range")).count();
    assert_eq!(ranges, loss.len(), "each loss has a line over its interval");
    assert!(!bursts.iter().any(|(title, _)| title.contains("1518 bytes")), "it has no longest burst");
    // Every figure is in the table of all, as it is for people.
    let cells: Vec<String> = document.descendants().filter(|node| node.tag_name().name() == "td").map(texts).collect();
    for row in run["rows"].as_array().unwrap() {
        for text in ["test", "figure", "note"] {
            assert!(cells.iter().any(|cell| cell == row[text].as_str().unwrap()), "{row}");
        }
    }
    for departure in run["departures"].as_array().unwrap() {
        assert!(cells.iter().any(|cell| cell == departure["what"].as_str().unwrap()), "{departure}");
    }
    let void = cells.iter().filter(|cell| *cell == "a link fell").count();
    assert!(void > 0, "links fell, and no trial is void");
    assert!(texts(document.root_element()).contains("one of <these> & \"those\""));
}

#[test]
fn a_thousand_trials_of_two_runs_make_one_small_page_that_asks_for_nothing() {
    let sizes: Vec<u32> = (0..12).map(|nth| 64 + 120 * nth).collect();
    let (one, two) = (folder(&run(1.5e6, 1, &sizes)), folder(&run(3e6, 2, &sizes)));
    let trials = [&one, &two].map(|folder| {
        let lines = std::fs::read_to_string(folder.path().join("trials.jsonl")).unwrap();
        lines.lines().filter(|line| line.starts_with("{\"trial\"")).count()
    });
    assert!(trials.iter().sum::<usize>() > 1000, "{trials:?}");
    let (page, json) = report(&[one.path(), two.path()]);
    assert!(page.len() < 1 << 20, "{} bytes", page.len());
    let document = parse(&page);
    for node in document.descendants() {
        assert!(!["script", "link", "img", "iframe", "object", "use", "image"].contains(&node.tag_name().name()));
        for attribute in node.attributes() {
            let is_free = !["href", "src", "style"].contains(&attribute.name()) && !attribute.name().starts_with("on");
            assert!(is_free, "{attribute:?}");
        }
    }
    assert!(!page.contains("url(") && !page.contains("@import"));
    let rates = points(drawing(&document, "Frames a second"), false);
    for (nth, run) in json["runs"].as_array().unwrap().iter().enumerate() {
        let name = format!("run {}: NDR (no loss), 64 bytes:", nth + 1);
        let (drawn, value) = (at(&rates, &name) * 1e6, value(run, 64, "throughput, loss <= 0 %"));
        assert!((drawn - value).abs() < 15e3, "{drawn} {value}");
    }
}

#[test]
fn what_lines_say_is_text_and_no_more() {
    let lines = run(2e6, 3, &[64]);
    let long = "<b>".repeat(350_000);
    for name in ["<script>alert(1)</script>", "</style></title>\"'&amp;", "\\u0000\\u001b[2J\\ufffe\\u202e", &long] {
        let folder = folder(&lines.replacen("short: a and b", &name.replace('"', "\\\""), 1).replacen(
            "processor",
            name.split('"').next().unwrap(),
            1,
        ));
        let (page, _) = report(&[folder.path()]);
        assert!(page.len() < 1 << 20, "{} bytes", page.len());
        let document = parse(&page);
        let names = document.descendants().filter(|node| ["script", "b"].contains(&node.tag_name().name()));
        assert_eq!(names.count(), 0, "{page}");
        assert!(!page.chars().any(|letter| letter.is_control() && letter != '\n'));
    }
    // A file that cannot be written, or has no place, is one line, and so is what is no run.
    let folder = folder(&lines);
    let path = folder.path().to_str().unwrap();
    let trials = folder.path().join("trials.jsonl");
    let before = std::fs::read_to_string(&trials).unwrap();
    for (arguments, code, words) in [
        (&["report", path, "--html", trials.to_str().unwrap()][..], 1, "is there and is no page"),
        (&["report", path, "--html", "/nowhere/page"], 1, "cannot be written"),
        (&["report", path, "--html", "x", "--json"], 2, "cannot be used with"),
        (&["report", "/nowhere", "--html", "x"], 1, "cannot be read"),
    ] {
        let output = pktgen(arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(words) && said.lines().count() == 1, "{said}");
    }
    assert_eq!(std::fs::read_to_string(&trials).unwrap(), before);
    // A run that was cut before its first trial has a page, too.
    let first: String = lines.lines().take(2).map(|line| format!("{line}\n")).collect();
    std::fs::write(folder.path().join("trials.jsonl"), first).unwrap();
    parse(&report(&[folder.path()]).0);
}

/// A page goes where nothing is, or another of pktgen's, through a link and into a pipe, and in the place of nothing else.
#[test]
fn a_page_replaces_pages_alone() {
    let (results, out) = (folder(&run(1e6, 1, &[64])), tempfile::tempdir().unwrap());
    let (results, page) = (results.path().to_str().unwrap(), out.path().join("page.html"));
    let write = |file: &Path| pktgen(&["report", results, "--html", file.to_str().unwrap()]);
    let read = |file: &Path| std::fs::read_to_string(file).unwrap();
    assert!(write(&page).status.success());
    let anew = read(&page);
    parse(&anew);
    let (older, _) = report(&[folder(&run(2e6, 2, &[64])).path()]);
    assert_ne!(older, anew);
    for before in ["", &older, &anew] {
        std::fs::write(&page, before).unwrap();
        assert!(write(&page).status.success(), "{before:.20}");
        assert!(read(&page) == anew, "{before:.20}");
    }
    let link = out.path().join("link");
    std::os::unix::fs::symlink(&page, &link).unwrap();
    std::fs::write(&page, "").unwrap();
    assert!(write(&link).status.success() && link.is_symlink() && read(&page) == anew);
    for others in
        ["notes", "<!DOCTYPE html>\n<html><head><title>notes</title></head></html>", "<!doctype html><p>notes"]
    {
        std::fs::write(&page, others).unwrap();
        for file in [&page, &link] {
            assert_eq!(write(file).status.code(), Some(1));
            assert_eq!(read(&page), others);
        }
    }
    // What can be written and not read may be anything.
    let piped = write(Path::new("/dev/stdout"));
    assert!(piped.status.success() && piped.stdout == anew.as_bytes());
}

#[test]
fn ten_thousand_trials_need_no_more_than_100_mb() {
    // The profile of a run without options, so that it can go on, with nothing left to do.
    let sizes: Vec<u32> = (0..140).map(|nth| 64 + nth).collect();
    let lines = run(1.5e6, 1, &sizes).replacen("short: a and b", "short: soft:a and soft:b, one way, IPv4, 1 flow", 1);
    // It was on no machine, as an older run does not say.
    let lines = lines.replacen("processor", "maker", 1);
    let trials = lines.lines().filter(|line| line.starts_with("{\"trial\"")).count();
    assert!(trials > 10_000, "{trials}");
    let folder = folder(&lines);
    let path = folder.path().to_str().unwrap();
    let page = folder.path().join("page");
    let of_size =
        ["rfc2544", "--ports", "soft:a,soft:b", "--one-way", "--sizes", "64,100,200", "--quiet", "--resume", path];
    for arguments in [&["report", path, "--json"][..], &["report", path, "--html", page.to_str().unwrap()], &of_size] {
        // What a process may write to: heap, and the stacks of its threads.
        let output =
            Command::new("prlimit").args(["--data=100000000", env!("CARGO_BIN_EXE_pktgen")]).args(arguments).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
