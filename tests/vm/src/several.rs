//! Several scenarios: a process each, as many at a time as there are cores. A scenario waits for its guest half the time, and the names
//! of software NICs belong to a process.

use crate::scenarios::Scenario;
use anyhow::{Context as _, Result};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

/// Most at a time: a guest has 1 GiB.
const MOST: usize = 8;

/// Runs the scenarios, and prints what each has said when it ends. Says whether all passed.
pub(crate) fn run(scenarios: &[&Scenario]) -> Result<bool> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let (start, next) = (Instant::now(), AtomicUsize::new(0));
    let (ended, results) = mpsc::channel();
    let work = || {
        let ended = ended.clone();
        while let Some(scenario) = scenarios.get(next.fetch_add(1, Ordering::Relaxed)) {
            let output =
                Command::new(&program).arg(scenario.name).stdin(Stdio::null()).stderr(Stdio::inherit()).output();
            if ended.send((scenario.name, output)).is_err() {
                return;
            }
        }
    };
    let (mut total, mut failed) = ([0; 3], Vec::new());
    thread::scope(|scope| {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        (0..cores.min(MOST)).for_each(|_| drop(scope.spawn(work)));
        for (name, output) in results.iter().take(scenarios.len()) {
            let (counts, passed) = report(name, output);
            total.iter_mut().zip(counts).for_each(|(total, count)| *total += count);
            if !passed {
                failed.push(name);
            }
        }
    });
    println!("{} s", start.elapsed().as_secs());
    if !failed.is_empty() {
        println!("failed: {}", failed.join(" "));
    }
    let [passed, broken, skipped] = total;
    println!("{passed} passed, {broken} failed, {skipped} skipped");
    Ok(failed.is_empty())
}

/// Prints what a scenario has said. Returns how many checks passed, failed and were skipped, and whether it passed.
fn report(name: &str, output: std::io::Result<Output>) -> ([u32; 3], bool) {
    let (text, succeeded) = match &output {
        Ok(output) => (String::from_utf8_lossy(&output.stdout), output.status.success()),
        Err(error) => (format!("== {name}: cannot be started: {error}\n").into(), false),
    };
    let (said, last) = text.trim_end().rsplit_once('\n').unwrap_or((&text, ""));
    match counts(last) {
        Some(counts) if succeeded == (counts[1] == 0) => {
            println!("{said}\n   {last}");
            (counts, succeeded)
        }
        _ => {
            println!("{text}\n   BROKEN  {name} ended without a result");
            ([0, 1, 0], false)
        }
    }
}

/// The numbers of a line `N passed, N failed, N skipped`.
fn counts(line: &str) -> Option<[u32; 3]> {
    let mut parts = line.split(", ");
    let mut count = |what| parts.next()?.strip_suffix(what)?.parse().ok();
    let counts = [count(" passed")?, count(" failed")?, count(" skipped")?];
    parts.next().is_none().then_some(counts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::ExitStatus;

    #[test]
    fn a_scenario_without_its_last_line_has_failed() {
        let ended = |text: &str, code: i32| {
            let output = Output {
                status: ExitStatus::from_raw(code << 8),
                stdout: text.as_bytes().to_vec(),
                stderr: Vec::new(),
            };
            report("of-a-test", Ok(output))
        };
        assert_eq!(ended("== a\n   ok      b\n1 passed, 0 failed, 2 skipped\n", 0), ([1, 0, 2], true));
        assert_eq!(ended("== a\n   FAILED  b\n0 passed, 1 failed, 0 skipped\n", 1), ([0, 1, 0], false));
        assert_eq!(ended("== a\n   ok      b\n", 0), ([0, 1, 0], false));
        assert_eq!(ended("1 passed, 0 failed, 0 skipped\n", 1), ([0, 1, 0], false));
        assert_eq!(ended("", 101), ([0, 1, 0], false));
        assert_eq!(report("of-a-test", Err(std::io::ErrorKind::NotFound.into())), ([0, 1, 0], false));
    }
}
