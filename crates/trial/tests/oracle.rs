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

/// Devices that forward a million frames a second, or as many as they say, and by how many times a search may take longer than that of
/// MLRsearch.
fn devices() -> Vec<(&'static str, Truth, f64)> {
    let plain = Truth::default();
    let stalls = |stall, stall_frames| Truth { stall, stall_frames, ..plain };
    vec![
        ("a hard limit", plain, 1.1),
        ("one of 20,000", Truth { capacity: 2e4, ..plain }, 1.1),
        ("one of 14.5 million", Truth { capacity: 14.5e6, ..plain }, 1.1),
        ("and 200 frames lost in 5 % of seconds", stalls(0.05, 200), 1.1),
        ("and in 30 %", stalls(0.3, 200), 1.1),
        ("and 10,000 lost in 30 %", stalls(0.3, 10_000), 1.1),
        ("and 100,000 lost in 40 %", stalls(0.4, 100_000), 1.1),
        ("a limit that varies by 2 %", Truth { capacity_varies: 0.02, ..plain }, 1.1),
        ("by 5 %", Truth { capacity_varies: 0.05, ..plain }, 1.1),
        ("by 10 %", Truth { capacity_varies: 0.1, ..plain }, 1.1),
        ("a small buffer and chance", Truth { buffer: 512, loss: 1e-7, ..plain }, 1.1),
        ("bursts of 10,000 lost by chance", Truth { loss_burst: 1e-7, loss_burst_frames: 10_000, ..plain }, 1.1),
    ]
}

/// Devices that lose frames, or bursts of them, by chance: half of all trials of a second lose none at 0.69 over the chance.
fn by_chance() -> Vec<(f64, Truth)> {
    let free = Truth { capacity: 1e9, ..Truth::default() };
    let mut devices: Vec<_> = [1e-6, 1e-5, 3e-5, 7e-5, 1e-4].map(|loss| (loss, Truth { loss, ..free })).into();
    devices.push((2e-6, Truth { loss_burst: 2e-6, loss_burst_frames: 20, ..free }));
    devices
}

#[test]
fn a_search_takes_no_longer_than_that_of_mlrsearch() {
    let Some(mut oracle) = Oracle::start() else {
        skip::test!("MLRsearch 1.2.1 (no such Python package; tests/setup installs it)");
        return;
    };
    for goals in [&[Goal::NDR][..], &[Goal::NDR, Goal::PDR]] {
        for (name, truth, most) in devices() {
            let (mut ours, mut theirs, mut shares) = (Vec::new(), Vec::new(), Vec::new());
            for seed in 0..SEEDS {
                let [mut device, mut same] = [(); 2].map(|()| Device::new(truth, seed));
                let (seconds, results) = search(&mut device, goals);
                let (their_seconds, found) = oracle.search(&mut same, goals).expect("MLRsearch gave up");
                ours.push(seconds);
                theirs.push(their_seconds);
                for (result, [throughput, ..]) in results.iter().zip(found) {
                    assert!(result.ended == Ended::Found || truth.stall >= 0.4, "{name}: {result:?}");
                    shares.push(result.throughput.unwrap() / throughput);
                }
            }
            let (ours, theirs) = (median(&ours), median(&theirs));
            let shares = trial::Summary::of(&shares).unwrap();
            println!(
                "{name}, {} goals: {ours} s, MLRsearch {theirs} s; throughput over that of MLRsearch: {shares:?}",
                goals.len()
            );
            assert!(ours <= most * theirs, "{name}: {ours} s and {theirs} s");
            // Each finds it to the width, and a capacity that varies to both sides of it; stalls in nearly half of the seconds spread both.
            let is_wild = truth.stall >= 0.4;
            let [middle, ends] = [0.005, 0.02].map(|width: f64| width + truth.capacity_varies / 5.0);
            assert!((shares.median - 1.0).abs() <= if is_wild { 0.05 } else { middle }, "{name}: {shares:?}");
            let ends = ends + truth.capacity_varies;
            assert!(is_wild || shares.min >= 1.0 - ends && shares.max <= 1.0 + ends, "{name}: {shares:?}");
        }
    }
}

#[test]
fn chance_costs_no_more_than_with_mlrsearch() {
    let Some(mut oracle) = Oracle::start() else {
        skip::test!("MLRsearch 1.2.1 (no such Python package; tests/setup installs it)");
        return;
    };
    for goals in [&[Goal::NDR][..], &[Goal::NDR, Goal::PDR]] {
        for (chance, truth) in by_chance() {
            let (mut ours, mut theirs, mut shares) = (Vec::new(), Vec::new(), Vec::new());
            for seed in 0..SEEDS {
                let [mut device, mut same] = [(); 2].map(|()| Device::new(truth, seed));
                let (seconds, results) = search(&mut device, goals);
                ours.push(seconds);
                theirs.push(oracle.search(&mut same, goals).expect("MLRsearch gave up").0);
                assert!(results.iter().all(|result| result.ended != Ended::Void), "{results:?}");
                shares.extend(results[0].throughput.map(|rate| rate * chance / std::f64::consts::LN_2));
            }
            let (ours, theirs) = (median(&ours), median(&theirs));
            println!(
                "{chance}, {} goals: {ours} s, MLRsearch {theirs} s; {:?}",
                goals.len(),
                trial::Summary::of(&shares)
            );
            assert!(ours <= 1.1 * theirs, "{chance}: {ours} s and {theirs} s");
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
