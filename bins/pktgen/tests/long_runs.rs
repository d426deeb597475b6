//! Runs of many trials: how long a report of them takes, and the memory of those who read them. The only test of this program, as it
//! takes the processor's time of all that it starts.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Child, Command, Stdio};
use std::time::Duration;
use trial::simulate::{Device, Truth};
use trial::{AnyTest, Line, Profile, Setup};

/// Frames a second of the line that the trials are of, so few that any machine sends them.
const HIGHEST: f64 = 20_000.0;

/// The lines of so many trials or a few more, as a run between two software NICs writes them, and the sizes that they are of.
fn lines(count: usize) -> (String, Vec<String>) {
    let profile = Profile { name: "short: soft:a and soft:b, one way, IPv4, 1 flow".to_owned(), ..Profile::default() };
    let (mut lines, mut sizes, mut trials) = (format!("{}\n", Line::run(profile.clone())), Vec::new(), 0);
    for size in 64..9216_u32 {
        if trials >= count {
            break;
        }
        sizes.push(size.to_string());
        let truth = Truth { capacity: 10_000.0, buffer: 16, link_falls: 0.03, generator: HIGHEST, ..Truth::default() };
        let mut device = Device::new(truth, size.into());
        let before = lines.len();
        let mut test = |setup| device.test((&profile, size), setup, &mut lines).unwrap();
        test(Setup::Frmol { rate: 1e12, max: None });
        let goals = profile.throughput.goals.clone();
        let AnyTest::Throughput(found) = test(Setup::Throughput { goals, low: 100.0, high: HIGHEST }) else { panic!() };
        let rate = found.results()[0].lower.unwrap_or(5_000.0);
        test(Setup::Latency { rates: vec![rate, rate / 2.0] });
        test(Setup::BackToBack { rate: HIGHEST, throughput: rate, range: None, filling: None });
        test(Setup::FrameLoss { highest: HIGHEST });
        trials += lines[before..].matches("\"outcome\"").count();
    }
    (lines, sizes)
}

/// Waits for a program. Returns what it said, and the most memory that it had, in MiB, as last seen.
fn most_memory(mut child: Child) -> (String, f64) {
    let status = format!("/proc/{}/status", child.id());
    let mut most: f64 = 0.0;
    while child.try_wait().unwrap().is_none() {
        let status = std::fs::read_to_string(&status).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.strip_suffix("kB"));
        most = line.map_or(most, |line| line.trim().parse::<f64>().unwrap() / 1024.0);
        std::thread::sleep(Duration::from_millis(2));
    }
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    (said, most)
}

/// Seconds of the processor that programs took which this one has waited for.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    // proc_pid_stat(5): 16 and 17 are cutime and cstime, in ticks of 10 ms on Linux; the name, which is the second, may have spaces.
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let ticks: f64 = fields.split_whitespace().skip(13).take(2).map(|ticks| ticks.parse::<f64>().unwrap()).sum();
    ticks / 100.0
}

fn pktgen(arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pktgen"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn a_report_of_a_thousand_trials_is_small_and_a_run_of_ten_thousand_too() {
    let folder = tempfile::tempdir().unwrap();
    let (path, page) = (folder.path().to_str().unwrap(), folder.path().join("page.html"));
    let file = folder.path().join("trials.jsonl");
    std::fs::write(&file, lines(1_000).0).unwrap();
    let before = processor_seconds();
    most_memory(pktgen(&["report", path, "--html", page.to_str().unwrap()]));
    let (seconds, bytes) = (processor_seconds() - before, std::fs::metadata(&page).unwrap().len());
    println!("a page of 1,000 trials: {bytes} bytes, {seconds} s of the processor");
    // A second is what is promised of a release on a quiet machine; tests of others go on beside this one.
    assert!(bytes < 1_000_000 && seconds < 10.0, "{bytes} bytes, {seconds} s");

    let (lines, sizes) = lines(10_000);
    let trials = lines.lines().filter(|line| line.starts_with("{\"trial\"")).count();
    assert!(trials >= 10_000);
    // The last trial is still to be done.
    let whole = lines.trim_end().rfind('\n').unwrap() + 1;
    std::fs::write(&file, &lines[..whole]).unwrap();
    let (_, reading) = most_memory(pktgen(&["report", path, "--html", page.to_str().unwrap()]));
    let ends = ["--one-way", "--max", "20k", "--quiet", "--catch-up", "1ms"];
    let run = [
        &["rfc2544", "--ports", "soft:a?wire=peer:b,soft:b", "--resume", path, "--sizes", &sizes.join(",")],
        &ends[..],
    ];
    let (said, running) = most_memory(pktgen(&run.concat()));
    println!("{trials} trials: a page with {reading:.1} MiB, a run that goes on with {running:.1} MiB");
    assert!(std::fs::read_to_string(&file).unwrap().lines().count() > lines.lines().count() - 1, "{said}");
    assert!(reading < 95.0 && running < 95.0, "{reading} MiB, {running} MiB");
}
