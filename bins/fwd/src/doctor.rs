//! `fwd doctor`: whether this host is ready, and the commands that make it so.

use crate::args::DoctorArgs;
use cli::args::PortOptions;
use cli::exit::Failure;
use cli::human::{self, counted};
use cli::output;
use cli::pools::{self, Demand, Placement};
use cli::ports::Queues;
use device::{Error, Finding, Host, Needs, PciDevice, Verdict};
use rustix::process::geteuid;
use serde::Serialize;
use std::io::{self, IsTerminal as _};

/// Examines the host and prints what it finds. A failure (exit code 1) if something breaks a run.
pub(crate) fn run(args: &DoctorArgs) -> Result<(), Failure> {
    let host = Host::system();
    let (devices, others) = devices(&host, args)?;
    let (needs, shortage) = needs(devices);
    let mut rows: Vec<Row> = host.examine(&needs).into_iter().map(Row::from).collect();
    rows.extend(shortage);
    rows.extend(others);
    let report = Report::new(rows);
    if args.json {
        output::print_json(&report)?;
    } else {
        output::print(&page(&report, io::stdout().is_terminal()))?;
    }
    if report.ready {
        return Ok(());
    }
    let cause = format!("{} would break a run", counted(report.breaks as u64, "finding"));
    Err(Error::unusable("this host", cause, "do what fwd doctor says on standard output").into())
}

/// One finding, as it is printed. With `--json` an object; `device` is `null` for the host.
#[derive(Debug, Serialize)]
struct Row {
    check: &'static str,
    device: Option<String>,
    /// `fine`, `unknown`, `costs` or `breaks`.
    verdict: &'static str,
    what: String,
    /// What it costs or breaks.
    effect: String,
    /// What to do, in words.
    remedy: String,
    /// And in commands for a shell.
    commands: Vec<String>,
}

impl Row {
    /// Creates a finding about the host that breaks a run.
    fn breaks(check: &'static str, what: String, effect: &str) -> Self {
        let (remedy, commands) = Default::default();
        Self { check, device: None, verdict: BREAKS, what, effect: effect.to_owned(), remedy, commands }
    }
}

impl From<Finding> for Row {
    fn from(finding: Finding) -> Self {
        let verdict = match finding.verdict {
            Verdict::Fine => FINE,
            Verdict::Unknown => UNKNOWN,
            Verdict::Costs => COSTS,
            Verdict::Breaks => BREAKS,
        };
        Self {
            check: finding.check,
            device: finding.device.map(|address| address.to_string()),
            verdict,
            what: finding.what,
            effect: finding.effect,
            remedy: finding.remedy.how,
            commands: finding.remedy.commands.iter().map(|command| as_typed(command)).collect(),
        }
    }
}

const FINE: &str = "fine";
const UNKNOWN: &str = "unknown";
const COSTS: &str = "costs";
const BREAKS: &str = "breaks";

/// All findings.
#[derive(Debug, Serialize)]
struct Report {
    /// Nothing breaks a run.
    ready: bool,
    breaks: usize,
    costs: usize,
    unknown: usize,
    findings: Vec<Row>,
}

impl Report {
    fn new(findings: Vec<Row>) -> Self {
        let count = |verdict| findings.iter().filter(|row| row.verdict == verdict).count();
        let (breaks, costs, unknown) = (count(BREAKS), count(COSTS), count(UNKNOWN));
        Self { ready: breaks == 0, breaks, costs, unknown, findings }
    }
}

/// Returns the devices to examine: those named, or else all that there is a driver for; and a row for each one named that
/// has no driver.
fn devices(host: &Host, args: &DoctorArgs) -> Result<(Vec<PciDevice>, Vec<Row>), Failure> {
    let named = !args.addresses.is_empty();
    let mut found = if named {
        args.addresses.iter().map(|address| host.pci_device(*address)).collect::<Result<Vec<_>, _>>()?
    } else {
        // A host without a PCI bus has no cards; what else it lacks is worth knowing.
        host.network_controllers().unwrap_or_default()
    };
    found.sort_by_key(|device| device.address);
    found.dedup_by_key(|device| device.address);
    let mut others = Vec::new();
    let mut devices = Vec::new();
    for device in found {
        match nic::identify(device.ids) {
            Ok(_) => devices.push(device),
            Err(what) if named => others.push(Row {
                device: Some(device.address.to_string()),
                remedy: "choose a device with a driver from the list of".to_owned(),
                commands: vec![as_typed("fwd devices")],
                ..Row::breaks("driver", what, "Ringway cannot drive it")
            }),
            Err(_) => {}
        }
    }
    Ok((devices, others))
}

/// Returns what a run on these devices needs: the packet memory that `fwd l2` would allocate for them (for two if there are
/// fewer), tried out and given back, with one queue each and one worker. And a row if there is not even that.
fn needs(devices: Vec<PciDevice>) -> (Needs, Option<Row>) {
    const DESCRIPTOR: usize = 16;
    const PAGE: usize = 2 << 20;
    let queues = vec![Queues { rx: 1, tx: 1 }; devices.len().max(2)];
    let nodes: Vec<_> = devices.iter().map(|device| device.numa_node).collect();
    let workers = [(0..queues.len()).collect()];
    let demand =
        Demand { nodes: &nodes, queues: &queues, workers: &workers, options: &PortOptions::default(), spare: 0 };
    // Each of the two rings lies in a region of its own.
    let rings = 2 * (usize::from(demand.options.ring_size) * DESCRIPTOR).next_multiple_of(PAGE);
    match pools::allocate(&demand) {
        Ok(pools) => {
            let Placement { bytes, page_size, .. } = Placement::of(&pools);
            (Needs { devices, pool: bytes, rings, tried_page: Some(page_size) }, None)
        }
        Err(error) => {
            let row = Row::breaks("packet memory", error.to_string(), "no packet can be received");
            (Needs { devices, rings, ..Needs::default() }, Some(row))
        }
    }
}

/// Returns a command as this user has to type it: root needs no sudo, and this program goes by the name it was started with.
fn as_typed(command: &str) -> String {
    let command = if geteuid().is_root() { command.replace("sudo ", "") } else { command.to_owned() };
    let program = std::env::args().next().filter(|name| name.contains('/') && !name.contains(' '));
    match program {
        Some(program) => format!(" {command}").replace(" fwd ", &format!(" {program} ")).trim_start().to_owned(),
        None => command,
    }
}

/// Returns the findings as text: host first, then each device, and a line that sums up.
fn page(report: &Report, colour: bool) -> String {
    const COLUMNS: usize = 90;
    const INDENT: usize = 9;
    // Commands do not go through it, as their blanks must stay.
    let wrapped = |words: &str| human::wrapped(words.split_whitespace(), COLUMNS, INDENT, INDENT);
    let mut text = String::new();
    let mut device = None;
    for row in &report.findings {
        if row.device.as_deref() != device {
            device = row.device.as_deref();
            text += &device.map_or("\nthis host\n".to_owned(), |device| format!("\n{device}\n"));
        }
        let (code, label) = match row.verdict {
            BREAKS => ("31;1", "BREAKS"),
            COSTS => ("33", "costs"),
            UNKNOWN => ("2", "?"),
            _ => ("32", "fine"),
        };
        let label = if colour { format!("\x1b[{code}m{label:<7}\x1b[0m") } else { format!("{label:<7}") };
        text += &format!("{label}  {}\n", wrapped(&format!("{}: {}", row.check, row.what)));
        for (mark, words) in [("=> ", &row.effect), ("", &row.remedy)] {
            if !words.is_empty() {
                let colon = if mark.is_empty() && !row.commands.is_empty() { ":" } else { "" };
                let words = wrapped(&format!("{mark}{words}{colon}"));
                text += &format!("{:INDENT$}{words}\n", "");
            }
        }
        for command in &row.commands {
            text += &format!("{:INDENT$}  {command}\n", "");
        }
    }
    let Report { breaks, costs, unknown, findings, .. } = report;
    let verdict = if report.ready { "ready" } else { "not ready" };
    text += &format!(
        "\n{verdict}: of {} findings {breaks} break a run, {costs} cost something, {unknown} could not be made",
        findings.len()
    );
    text.trim_start().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(verdict: &'static str, device: Option<&str>) -> Row {
        Row {
            check: "huge pages",
            device: device.map(str::to_owned),
            verdict,
            what: "word ".repeat(40),
            effect: "slower".to_owned(),
            remedy: "reserve with".to_owned(),
            commands: vec!["sudo sysctl vm.nr_hugepages=64".to_owned()],
        }
    }

    #[test]
    fn a_page_fits_a_terminal_and_has_its_commands_whole() {
        let report = Report::new(vec![row(COSTS, None), row(BREAKS, Some("0000:03:00.0")), row(UNKNOWN, None)]);
        let text = page(&report, false);
        assert!(text.lines().all(|line| line.len() <= 90 && line.trim_end() == line), "{text}");
        assert_eq!(text.matches("\n           sudo sysctl vm.nr_hugepages=64\n").count(), 3, "{text}");
        assert!(text.contains("\n0000:03:00.0\nBREAKS   huge pages: word"), "{text}");
        assert!(
            text.contains("not ready: of 3 findings 1 break a run, 1 cost something, 1 could not be made"),
            "{text}"
        );
        assert!(!text.contains('\x1b') && page(&report, true).contains("\x1b[31;1mBREAKS"));
        assert!(page(&Report::new(vec![row(COSTS, None)]), false).contains("\nready: "));
    }
}
