//! virtio-user against Open vSwitch with DPDK: `pktgen` -> switch -> `fwd rxonly`, and all of them count the same frames.
//! The switch runs in a temporary folder and a network namespace of its own. Skipped without root, or where Open vSwitch
//! with DPDK is not installed (`tests/setup`).
#![expect(clippy::unwrap_used, reason = "tests")]

use rustix::process::Signal;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tests::{Fwd, Namespace, Process, command, fwd, namespaces_possible, pktgen};

/// Where Debian's package puts the build with DPDK.
const SWITCH: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// Long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Fewer than descriptors of the receiving ring: nothing is lost, however long the receiver is not scheduled.
const FRAMES: u64 = 4000;
const SIZE: u64 = 60;

/// One switch at a time: each polls, and wants a core.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A bridge of user-space data path with two ports, which connect to `gen.sock` and `count.sock` of the folder.
struct Switch {
    _processes: [Process; 2],
    namespace: Namespace,
    folder: PathBuf,
}

impl Switch {
    fn start(folder: &Path) -> Self {
        let namespace = Namespace::new();
        let at = |name: &str| folder.join(name).display().to_string();
        let run = |words: &[&str]| {
            let mut command = environment(namespace.command(words), folder);
            let output = command.output().unwrap();
            assert!(output.status.success(), "{words:?}: {}{}", String::from_utf8_lossy(&output.stderr), log(folder));
        };
        let spawn = |words: &[&str], name: &str| {
            let log = File::create(folder.join(name)).unwrap();
            let mut command = environment(namespace.command(words), folder);
            Process(command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap())
        };
        run(&["ovsdb-tool", "create", &at("conf.db"), SCHEMA]);
        let remote = format!("--remote=punix:{}", at("db.sock"));
        let control = format!("--unixctl={}", at("db.ctl"));
        let database = spawn(&["ovsdb-server", &at("conf.db"), &remote, &control], "db.log");
        wait(folder, "the database", || folder.join("db.sock").exists());

        let socket = format!("unix:{}", at("db.sock"));
        let control_database = format!("--db={socket}");
        let vsctl = ["ovs-vsctl", &control_database, "--timeout=120"];
        // The switch would add --in-memory, which does not go with ordinary pages, were it not for --legacy-mem.
        let extra = "other_config:dpdk-extra=\"--no-pci --no-huge --legacy-mem --no-shconf --no-telemetry\"";
        let memory = ["other_config:dpdk-alloc-mem=512", "other_config:per-port-memory=true"];
        // A poller with nothing to do leaves its core to others.
        let settings = ["other_config:dpdk-init=true", "other_config:pmd-maxsleep=500", extra];
        run(&[&vsctl[..], &["--no-wait", "init", "--", "set", "Open_vSwitch", "."], &memory, &settings].concat());
        let control = format!("--unixctl={}", at("switch.ctl"));
        let switch = spawn(&[SWITCH, &socket, &control], "switch.log");
        run(&[&vsctl[..], &["add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev"]].concat());
        for (number, name) in ["gen", "count"].into_iter().enumerate() {
            let path = format!("options:vhost-server-path={}", at(&format!("{name}.sock")));
            let number = format!("ofport_request={}", number + 1);
            let interface = ["--", "set", "interface", name, "type=dpdkvhostuserclient", &path, &number];
            run(&[&vsctl[..], &["add-port", "br0", name], &interface].concat());
        }
        let bridge = format!("unix:{}", at("br0.mgmt"));
        run(&["ovs-ofctl", "del-flows", &bridge]);
        run(&["ovs-ofctl", "add-flow", &bridge, "in_port=1,actions=output:2"]);
        Self { _processes: [switch, database], namespace, folder: folder.to_owned() }
    }

    fn ask(&self, words: &[&str]) -> String {
        let output = environment(self.namespace.command(words), &self.folder).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// A counter of a connected port, as the switch has last written it to its database (every 5 s).
    fn port(&self, counter: &str) -> Option<u64> {
        let database = format!("--db=unix:{}", self.folder.join("db.sock").display());
        let column = format!("statistics:{counter}");
        let words = ["ovs-vsctl", &database, "--timeout=120", "--if-exists", "get", "interface", "count", &column];
        self.ask(&words).trim().parse().ok()
    }

    /// Frames that the switch has received from all ports.
    fn received(&self) -> u64 {
        let control = format!("--target={}", self.folder.join("switch.ctl").display());
        let said = self.ask(&["ovs-appctl", "--timeout=120", &control, "dpif-netdev/pmd-stats-show"]);
        said.lines().filter_map(|line| line.trim().strip_prefix("packets received: ")?.parse::<u64>().ok()).sum()
    }

    /// Packets and bytes of the flow.
    fn flow(&self) -> (u64, u64) {
        let bridge = format!("unix:{}", self.folder.join("br0.mgmt").display());
        let flows = self.ask(&["ovs-ofctl", "dump-flows", &bridge]);
        let field = |name: &str| {
            let (_, rest) = flows.split_once(&format!("{name}=")).unwrap();
            rest.split(',').next().unwrap().parse().unwrap()
        };
        (field("n_packets"), field("n_bytes"))
    }
}

fn environment(mut command: Command, folder: &Path) -> Command {
    for name in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR", "RUNTIME_DIRECTORY"] {
        command.env(name, folder);
    }
    command
}

fn log(folder: &Path) -> String {
    std::fs::read_to_string(folder.join("switch.log")).unwrap_or_default()
}

fn wait(folder: &Path, what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain for {what}; the switch says: {}", log(folder));
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Why this cannot be tested here.
fn obstacle() -> Option<String> {
    for file in [SWITCH, SCHEMA] {
        if !Path::new(file).exists() {
            return Some(format!("there is no {file}; tests/setup installs Open vSwitch with DPDK"));
        }
    }
    namespaces_possible(&["ovsdb-tool", "ovsdb-server", "ovs-vsctl", "ovs-ofctl", "ovs-appctl"]).err()
}

#[test]
fn what_a_generator_sends_through_open_vswitch_all_arrives() {
    if let Some(reason) = obstacle() {
        skip::test!("{reason}");
        return;
    }
    let _alone = alone();
    // Built before the switch polls.
    let (fwd, pktgen) = (fwd().to_str().unwrap(), pktgen());
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let switch = Switch::start(folder);

    let address = |name: &str| format!("vhost-user:{}?server", folder.join(name).display());
    let options = ["--json", "--quiet", "--duration", "600"];
    let mut counter =
        command(&["setpriv", "--pdeathsig", "KILL", fwd, "rxonly", &address("count.sock"), "--ring-size", "4096"]);
    let counter = counter.args(options).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut counter = Process(counter);
    // Until it has counters the switch drops what is for this port.
    wait(folder, "the switch to use the port", || {
        assert!(counter.0.try_wait().unwrap().is_none(), "fwd ended before it was told to");
        switch.port("tx_packets") == Some(0)
    });

    let (frames, size) = (FRAMES.to_string(), SIZE.to_string());
    // A short ring: the generator cannot end before the switch has begun to take frames.
    let words = ["tx", &address("gen.sock"), "--ring-size", "64", "--count", &frames, "--ends", "0", "--size", &size];
    let sent = Fwd::of(&Command::new(pktgen).args(words).args(options).output().unwrap());
    assert_eq!(sent.code, Some(0), "{}", sent.stderr);
    assert_eq!(sent.count("/sent"), FRAMES);

    wait(folder, "the switch to count them at its port", || switch.port("tx_packets") >= Some(FRAMES));
    wait(folder, "the switch to count them at its flow", || switch.flow().0 >= FRAMES);
    assert_eq!(switch.flow(), (FRAMES, FRAMES * SIZE));
    assert_eq!(switch.received(), FRAMES);
    assert_eq!(switch.port("tx_packets"), Some(FRAMES));
    assert_eq!(switch.port("tx_bytes"), Some(FRAMES * SIZE));
    assert_eq!(switch.port("tx_dropped"), Some(0));

    counter.signal(Signal::INT);
    let ended = counter.wait(PATIENCE).expect("fwd ends");
    let read = |stream: &mut dyn std::io::Read| {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        bytes
    };
    let (stdout, stderr) = (read(counter.0.stdout.as_mut().unwrap()), read(counter.0.stderr.as_mut().unwrap()));
    let received = Fwd::of(&std::process::Output { status: ended, stdout, stderr });
    assert_eq!(received.code, Some(0), "{}", received.stderr);
    assert_eq!(received.count("/received"), FRAMES, "{}", received.json);
    assert_eq!(received.count("/ports/0/rx_bytes"), FRAMES * SIZE);
    assert_eq!(received.drops(), 0);
}

/// Frames a second that a policer lets pass, and those that pass at once.
const RATE: u64 = 2_000;
const AT_ONCE: u64 = 40;
/// How exactly a search is to find it, and how long its trials are.
const WIDTH: f64 = 0.02;
const TRIAL: &str = "2s";

#[test]
fn a_search_finds_what_runs_at_given_rates_find() {
    if let Some(reason) = obstacle() {
        skip::test!("{reason}");
        return;
    }
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let policed = Policed::start(folder.path());
    let mut tries = Vec::new();
    // A machine that stops makes trials void, or the bucket overflow at what it lets pass, so all is measured again.
    while tries.len() < 3 {
        let out = folder.path().join(format!("run{}", tries.len()));
        let tried = policed.search(&out).map(|found| (found, policed.is_confirmed(found)));
        if tried.is_some_and(|(_, is_confirmed)| is_confirmed) {
            return;
        }
        tries.push(tried);
    }
    if tries.iter().any(Option::is_none) {
        skip::test!("this machine was too slow for trials of {TRIAL} three times: {tries:?}");
        return;
    }
    panic!("runs at given rates do not find what the searches found: {tries:?}");
}

/// A switch whose receiving port has a policer.
struct Policed {
    switch: Switch,
    ports: [String; 2],
}

impl Policed {
    fn start(folder: &Path) -> Self {
        let switch = Switch::start(folder);
        // How fast the switch is itself would depend on the machine. A policer counts bytes behind the Ethernet header, by the switch's
        // clock.
        let bytes = SIZE - 14;
        let [rate, burst] =
            [("cir", RATE * bytes), ("cbs", AT_ONCE * bytes)].map(|(key, of)| format!("other-config:{key}={of}"));
        let database = format!("--db=unix:{}", folder.join("db.sock").display());
        let policer = ["--", "--id=@qos", "create", "qos", "type=egress-policer", &rate, &burst];
        let port = ["ovs-vsctl", &database, "--timeout=120", "set", "port", "count", "qos=@qos"];
        switch.ask(&[&port[..], &policer].concat());
        let ports =
            ["gen", "count"].map(|name| format!("vhost-user:{}?server", folder.join(format!("{name}.sock")).display()));
        Self { switch, ports }
    }

    fn pktgen(&self, words: &[&str]) -> Fwd {
        let fixed = ["--one-way", "--json", "--quiet", "--catch-up", "10ms"];
        let run = Fwd::of(&Command::new(pktgen()).args(words).args(fixed).output().unwrap());
        // The report of a search of which no trial counted is there all the same.
        let is_void = run.stderr.trim_end().ends_with("say why");
        assert!(run.code == Some(0) || is_void, "{words:?}: {}{}", run.stderr, log(&self.switch.folder));
        run
    }

    /// Frames a second that a search finds; `None` where trials were void.
    fn search(&self, out: &Path) -> Option<f64> {
        let (ports, out, width) = (self.ports.join(","), out.to_str().unwrap(), (WIDTH * 100.0).to_string());
        let words = ["rfc2544", "--ports", &ports, "--out", out, "--sizes", "64", "--tests", "throughput"];
        let bounds = ["--min", "1k", "--max", "4k", "--width", &width, "--trial-time", TRIAL, "--repetitions", "1"];
        let found = self.pktgen(&[&words[..], &bounds].concat());
        let run = found.json.pointer("/runs/0").unwrap();
        let rows = run["rows"].as_array().unwrap();
        let row = rows.iter().find(|row| row["test"].as_str() == Some("throughput, loss <= 0 %")).unwrap();
        println!("rfc2544: {row}");
        if !run["limits"].as_array().unwrap().is_empty() {
            return None;
        }
        if row["value"].is_null() {
            println!("none, as where the switch stood still at every load: {:#}", found.json);
        }
        Some(row["value"].as_f64().unwrap_or(0.0))
    }

    /// Whether halving by hand, with a run at each rate, ends within the width of what was found.
    fn is_confirmed(&self, found: f64) -> bool {
        let [mut lower, mut upper] = [0.9, 1.1].map(|factor| found * factor);
        if found <= 0.0 || self.lost(lower) > 0 || self.lost(upper) == 0 {
            return false;
        }
        while upper - lower > WIDTH * upper {
            let middle = f64::midpoint(lower, upper);
            *(if self.lost(middle) > 0 { &mut upper } else { &mut lower }) = middle;
        }
        println!("by hand: between {lower} and {upper}");
        (found / lower - 1.0).abs() <= WIDTH
    }

    fn lost(&self, rate: f64) -> u64 {
        let (size, pace) = (SIZE.to_string(), rate.to_string());
        let [from, to] = &self.ports;
        let words = ["run", from, to, "--size", &size, "--rate", &pace, "--duration", TRIAL, "--warm-up", "200ms"];
        let lost = self.pktgen(&words).count("/directions/0/lost");
        println!("run: at {rate} pps {lost} are lost");
        lost
    }
}
