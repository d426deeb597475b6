//! The VM rig. Scenarios boot a Linux guest in QEMU whose NICs are soft 82599s in this process, served over vfio-user:
//! drivers that nobody here wrote judge the model, and the model judges ours behind a kernel's VFIO and an IOMMU. QEMU's own
//! virtio NICs judge our driver for those.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a program that reports on the terminal")]

mod checks;
mod complaints;
mod frames;
mod guest;
mod machine;
mod scenarios;
mod several;
mod wires;

use anyhow::{Context as _, Result, bail};
use checks::Checks;
use machine::Rig;
use scenarios::Scenario;
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
    let chosen = choose(names)?;
    if let [scenario] = chosen[..] {
        return one(scenario);
    }
    several::run(&chosen)
}

/// Runs a scenario in this process. Says whether it passed.
fn one(scenario: &Scenario) -> Result<bool> {
    let rig = Rig::find(scenario.kernel).context("cannot find the rig's machine; start scenarios with tests/vm/run")?;
    println!("== {}: {}", scenario.name, scenario.about);
    let (begin, mut checks) = (Instant::now(), Checks::default());
    if is_over() {
        checks.skip("the time of this run of .ci/run is over");
    } else if !rig.has_kernel() {
        checks.skip("its kernel was not to be had when the rig's machine was built (tests/vm/build)");
    } else if let Err(error) = (scenario.run)(&rig, &mut checks) {
        checks.broken(&error);
    }
    for complaints in rig.complaints() {
        checks.equal("what the guest's kernel complained of, from boot to end", complaints.join("\n"), String::new());
    }
    println!("   {} s, {} MB of memory beside the guest's", begin.elapsed().as_secs(), memory()?);
    for reason in checks.skipped() {
        println!("skipped: {}: {reason}", scenario.name);
    }
    println!("{}", checks.summary());
    Ok(checks.all_passed())
}

/// Whether the time is over at which `.ci/run` wants nothing more to begin, in seconds since the machine began.
fn is_over() -> bool {
    let seconds = |text: &str| text.split('.').next().and_then(|seconds| seconds.parse::<u64>().ok());
    let until = std::env::var("RINGWAY_UNTIL").ok().and_then(|until| seconds(&until));
    let now = std::fs::read_to_string("/proc/uptime").ok().and_then(|text| seconds(&text));
    until.zip(now).is_some_and(|(until, now)| now > until)
}

/// The scenarios named: exactly, by a beginning with a `*` behind it, or `all`.
fn choose(names: &[String]) -> Result<Vec<&'static Scenario>> {
    let mut chosen = Vec::new();
    for name in names {
        let is_meant = |scenario: &&Scenario| match name.strip_suffix('*') {
            Some(beginning) => scenario.name.starts_with(beginning),
            None => name == "all" || scenario.name == name,
        };
        let before = chosen.len();
        chosen.extend(scenarios::ALL.iter().filter(is_meant));
        if chosen.len() == before {
            bail!("there is no scenario {name}; tests/vm/run lists them, and NAME* means all that begin with NAME");
        }
    }
    Ok(chosen)
}

/// Memory of this process, and so of the soft NICs in it, in MB. Guest memory is shared memory and not counted.
fn memory() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0)
    };
    Ok((field("RssAnon:") + field("RssFile:")) / 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_exact_or_end_in_a_star() {
        let names = |name: &str| -> Vec<_> {
            choose(&[name.to_owned()]).into_iter().flatten().map(|scenario| scenario.name).collect()
        };
        assert_eq!(names("virtio-vhost"), ["virtio-vhost"]);
        assert!(names("virtio-vhost*").len() > 1);
        assert_eq!(names("all").len(), scenarios::ALL.len());
        assert!(names("virtio-vho").is_empty());
    }
}
