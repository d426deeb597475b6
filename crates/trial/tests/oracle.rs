//! The throughput search beside MLRsearch 1.2.1, over devices of the same seeds.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use trial::simulate::{Device, Truth};
use trial::{Ended, Frmol, Goal, GoalResult, Method as _, Profile, Throughput, Traffic, Trial};

const LOW: f64 = 9_001.0;
const HIGH: f64 = 14_880_952.0;
const SEEDS: u64 = 20;

/// A Python process that searches.
struct Oracle {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    any: Trial,
}

impl Oracle {
    /// Starts it; `None` where there is no MLRsearch.
    fn start() -> Option<Self> {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let installed = folder.join("../../target/python");
        let mut child = Command::new("python3")
            .arg(folder.join("tests/mlrsearch.py"))
            .env("PYTHONPATH", installed)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let (input, output) = (child.stdin.take()?, BufReader::new(child.stdout.take()?));
        // Trials are made by tests only.
        let any = Frmol::new(1.0, &Profile::default()).ok()?.next()?;
        let mut oracle = Self { child, input, output, any };
        oracle.search(&mut Device::new(Truth::default(), 0), &[Goal::NDR]).map(|_| oracle)
    }

    /// Searches; seconds of its trials, and throughput, lower and upper bound of each goal.
    fn search(&mut self, device: &mut Device, goals: &[Goal]) -> Option<(f64, Vec<[f64; 3]>)> {
        let numbers = |goal: &Goal| {
            let Goal { loss_ratio, exceed_ratio, initial_seconds, final_seconds, duration_sum, .. } = goal;
            format!("{loss_ratio} {exceed_ratio} {initial_seconds} {final_seconds} {duration_sum}")
        };
        writeln!(self.input, "{LOW} {HIGH} {}", goals.iter().map(numbers).collect::<Vec<_>>().join(" ")).ok()?;
        let mut spent = 0.0;
        loop {
            let mut line = String::new();
            self.output.read_line(&mut line).ok()?;
            let words: Vec<_> = line.split_whitespace().collect();
            let number = |word: &&str| word.parse::<f64>().ok();
            if let Some(("result", found)) = words.split_first().map(|(first, rest)| (*first, rest)) {
                let found: Option<Vec<f64>> = found.iter().map(number).collect();
                return Some((spent, found?.chunks(3).map(|goal| [goal[0], goal[1], goal[2]]).collect()));
            }
            let [rate, seconds] = words.iter().map(number).collect::<Option<Vec<_>>>()?[..] else { return None };
            spent += seconds;
            self.any.traffic = Traffic::Steady { rate, seconds };
            let outcome = device.run(&self.any);
            writeln!(self.input, "{} {}", outcome.sent, outcome.received).ok()?;
        }
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn search(device: &mut Device, goals: &[Goal]) -> (f64, Vec<GoalResult>) {
    let mut search = Throughput::new(goals.to_vec(), LOW..=HIGH, &Profile::default()).unwrap();
    while let Some(trial) = search.next() {
        search.tell(&device.run(&trial)).unwrap();
    }
    (search.spent().1, search.results())
}

fn median(values: &[f64]) -> f64 {
    trial::Summary::of(values).unwrap().median
}

/// Devices that forward a million frames a second.
fn devices() -> [(&'static str, Truth); 4] {
    let plain = Truth::default();
    [
        ("a hard limit", plain),
        ("and 200 frames lost in 5 % of seconds", Truth { stall: 0.05, stall_frames: 200, ..plain }),
        ("a limit that varies by 2 %", Truth { capacity_varies: 0.02, ..plain }),
        ("a small buffer and chance", Truth { buffer: 512, loss: 1e-7, ..plain }),
    ]
}

#[test]
fn a_search_takes_no_longer_than_that_of_mlrsearch() {
    let Some(mut oracle) = Oracle::start() else {
        skip::test!("MLRsearch 1.2.1 (no such Python package; tests/setup installs it)");
        return;
    };
    for goals in [&[Goal::NDR][..], &[Goal::NDR, Goal::PDR]] {
        for (name, truth) in devices() {
            let (mut ours, mut theirs, mut shares) = (Vec::new(), Vec::new(), Vec::new());
            for seed in 0..SEEDS {
                let [mut device, mut same] = [(); 2].map(|()| Device::new(truth, seed));
                let (seconds, results) = search(&mut device, goals);
                let (their_seconds, found) = oracle.search(&mut same, goals).expect("MLRsearch gave up");
                ours.push(seconds);
                theirs.push(their_seconds);
                for (result, [throughput, ..]) in results.iter().zip(found) {
                    assert_eq!(result.ended, Ended::Found);
                    shares.push(result.throughput.unwrap() / throughput);
                }
            }
            let (ours, theirs) = (median(&ours), median(&theirs));
            let shares = trial::Summary::of(&shares).unwrap();
            println!(
                "{name}, {} goals: {ours} s, MLRsearch {theirs} s; throughput over that of MLRsearch: {shares:?}",
                goals.len()
            );
            assert!(ours <= 1.1 * theirs, "{name}: {ours} s and {theirs} s");
            // Each finds it to the width, and a capacity that varies by 2 % to both sides is met within it.
            assert!((shares.median - 1.0).abs() <= 0.005, "{name}: {shares:?}");
            assert!(shares.min >= 0.96 && shares.max <= 1.04, "{name}: {shares:?}");
        }
    }
}

#[test]
fn a_buffer_costs_no_more_than_with_mlrsearch() {
    let Some(mut oracle) = Oracle::start() else {
        skip::test!("MLRsearch 1.2.1 (no such Python package; tests/setup installs it)");
        return;
    };
    for buffer in [0, 10_000, 100_000, 1_000_000] {
        let truth = Truth { buffer, ..Truth::default() };
        let [mut device, mut same] = [(); 2].map(|()| Device::new(truth, 1));
        let (ours, results) = search(&mut device, &[Goal::RFC2544]);
        let (theirs, found) = oracle.search(&mut same, &[Goal::RFC2544]).expect("MLRsearch gave up");
        let share = results[0].throughput.unwrap() / found[0][0];
        println!(
            "a buffer of {buffer} frames: {ours} s, MLRsearch {theirs} s; throughput over that of MLRsearch: {share}"
        );
        assert_eq!(results[0].ended, Ended::Found);
        assert!(ours <= 1.1 * theirs, "{buffer}: {ours} s and {theirs} s");
        assert!((share - 1.0).abs() <= 0.005, "{buffer}: {share}");
    }
}
