//! Open vSwitch with DPDK between two vhost-user ports.

use anyhow::{Context as _, anyhow};
use cli::exit::Failure;
use nic::Address;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use tempfile::TempDir;

/// Starts it, and tells it its flows.
const SCRIPT: &str = include_str!("switch.sh");
/// Where Debian's package puts the build with DPDK.
const PROGRAM: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";

/// The flows of each point, and its frame size without check sequence.
const POINTS: [(&str, u16); 4] = [
    ("actions=NORMAL", 60),
    ("in_port=1,actions=output:2 in_port=2,actions=output:1", 60),
    ("actions=NORMAL", 1496),
    ("in_port=1,actions=output:2 in_port=2,actions=output:1", 1496),
];

/// Why it cannot be measured here.
pub(super) fn cannot() -> Option<String> {
    if !Path::new(PROGRAM).exists() {
        return Some(format!("it needs Open vSwitch with DPDK ({PROGRAM}; tests/setup installs it)"));
    }
    let namespace = command("true").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let possible = namespace.is_ok_and(|status| status.success());
    (!possible).then(|| "it needs a network namespace for the switch; run it as root".to_owned())
}

fn command(script: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM", "unshare", "--net", "sh", "-c", script, "sh"]);
    command.stdin(Stdio::null());
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command
}

/// The mask of one lcore, as DPDK's programs read it.
fn mask(lcore: usize) -> String {
    format!("0x{:x}{}", 1 << (lcore % 4), "0".repeat(lcore / 4))
}

/// A switch, which ends with this value.
#[derive(Debug)]
pub(super) struct Switch {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    folder: TempDir,
}

impl Switch {
    /// Starts it, with its poller on an lcore.
    pub(super) fn start(lcore: usize) -> Result<Self, Failure> {
        let folder = tempfile::tempdir().context("no temporary folder for Open vSwitch")?;
        let mut command = command(SCRIPT);
        command
            .arg(folder.path())
            .arg(PROGRAM)
            .arg(mask(lcore))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().context("setpriv cannot be started")?;
        let output = child.stdout.take().map(BufReader::new);
        let (input, output) = (child.stdin.take(), output.ok_or_else(|| anyhow!("Open vSwitch has no output"))?);
        let mut switch = Self { child, input, output, folder };
        switch.wait()?;
        Ok(switch)
    }

    /// Tells it what a point says. Returns the frame size.
    pub(super) fn set(&mut self, point: u32) -> Result<u16, Failure> {
        let at = usize::try_from(point.saturating_sub(1)).unwrap_or(usize::MAX);
        let (flows, size) = POINTS.get(at).ok_or_else(|| anyhow!("there is no point {point}"))?;
        if let Some(input) = &mut self.input {
            writeln!(input, "{flows}").context("Open vSwitch has ended")?;
        }
        self.wait()?;
        Ok(*size)
    }

    /// Waits until it is ready.
    fn wait(&mut self) -> Result<(), Failure> {
        let mut line = String::new();
        self.output.read_line(&mut line).context("Open vSwitch says nothing")?;
        if line.trim() == "ready" {
            return Ok(());
        }
        let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        let last = log.lines().last().unwrap_or("no reason given").to_owned();
        Err(anyhow!("Open vSwitch does not start: {last}").into())
    }

    /// The ports at its two ends.
    pub(super) fn ports(&self) -> Result<Vec<Address>, Failure> {
        let port = |name: &str| {
            let text = format!("vhost-user:{}?server", self.folder.path().join(name).display());
            text.parse().map_err(|error| anyhow!("{text}: {error}").into())
        };
        ["a.sock", "b.sock"].into_iter().map(port).collect()
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        // The end of its input is its end.
        self.input = None;
        let _ = self.child.wait();
    }
}
