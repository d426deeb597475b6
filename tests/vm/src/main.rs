//! The VM rig. Scenarios boot a Linux guest in QEMU whose NICs are soft 82599s in this process, served over vfio-user:
//! drivers that nobody here wrote judge the model, and the model judges ours behind a kernel's VFIO and an IOMMU. QEMU's own
//! virtio NICs judge our driver for those.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a program that reports on the terminal")]

mod checks;
mod frames;
mod guest;
mod machine;
mod scenarios;
mod wires;

use anyhow::{Context as _, Result, bail};
use checks::Checks;
use machine::Rig;
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    match run(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("vm: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Runs the scenarios named; none named lists them. Says whether all passed.
fn run(names: &[String]) -> Result<bool> {
    if names.is_empty() {
        for scenario in scenarios::ALL {
            println!("{:24} {}", scenario.name, scenario.about);
        }
        return Ok(true);
    }
    let mut chosen = Vec::new();
    for name in names {
        let before = chosen.len();
        chosen.extend(scenarios::ALL.iter().filter(|scenario| name == "all" || scenario.name.starts_with(&**name)));
        if chosen.len() == before {
            bail!("there is no scenario {name}; tests/vm/run lists them");
        }
    }
    let rig = Rig::find().context("cannot find the rig's machine; start scenarios with tests/vm/run")?;
    let (start, mut total) = (Instant::now(), Checks::default());
    let mut broken = Vec::new();
    for scenario in chosen {
        println!("== {}: {}", scenario.name, scenario.about);
        let (begin, mut checks) = (Instant::now(), Checks::default());
        if let Err(error) = (scenario.run)(&rig, &mut checks) {
            checks.broken(&error);
        }
        println!("   {} ({} s)", checks.summary(), begin.elapsed().as_secs());
        if !checks.all_passed() {
            broken.push(scenario.name);
        }
        total.add(&checks);
    }
    println!(
        "{} in {} s, at most {} MB of memory beside the guests'",
        total.summary(),
        start.elapsed().as_secs(),
        peak()?
    );
    if !broken.is_empty() {
        println!("failed: {}", broken.join(" "));
    }
    Ok(total.all_passed())
}

/// Memory of this process, and so of the soft NICs in it, in MB. Guest memory is shared memory and not counted.
fn peak() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0)
    };
    Ok((field("RssAnon:") + field("RssFile:")) / 1024)
}
