//! Devices under test that are not ours, between two ports of `pktgen rfc2544`: Linux with a token bucket (`tbf`) and with a rule of
//! nftables that drops (`numgen`), in a namespace of its own, and the FIFO of DPDK's testpmd (`noisy`). What each does is by its own
//! clock and its own counts. Skipped without root, or where they are not installed (`tests/setup`).
#![expect(clippy::unwrap_used, reason = "tests")]

use serde_json::Value;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tests::{Namespace, Process, command, eventually, first_core, namespaces_possible, pktgen};
use trial::simulate::{Device, Truth};
use trial::{Line, Profile, Setup};

/// One device at a time: each wants its time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A trial that counts, by its line.
struct Counted {
    rate: f64,
    sent: u64,
    received: u64,
}

/// What a run has left.
struct Run {
    report: Value,
    lines: String,
}

impl Run {
    /// Measures one way, with frames of 64 bytes, in place of `pktgen` where `start` puts it.
    fn of(start: impl Fn(&[&str]) -> Command, folder: [&str; 2], ports: &str, options: &[&str]) -> Self {
        let program = pktgen().to_str().unwrap();
        let fixed = ["--one-way", "--sizes", "64", "--json", "--quiet"];
        let words = [&[program, "rfc2544", "--ports", ports][..], &folder, &fixed, options].concat();
        let mut output = start(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap();
        // A device that is not scheduled for seconds answers nothing; what is known already can be gone on with.
        for _ in 0..3 {
            if folder[0] == "--resume" && !output.status.success() {
                output = start(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap();
            }
        }
        let said = String::from_utf8_lossy(&output.stderr);
        // The report of a run of which no trial counted, or none of the tests asked for, is there all the same.
        assert!(output.status.success() || said.trim_end().ends_with("say why"), "{words:?}: {said}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let lines = std::fs::read_to_string(Path::new(folder[1]).join("trials.jsonl")).unwrap();
        Self { report: report["runs"][0].clone(), lines }
    }

    /// The row of a test that begins so.
    fn row(&self, test: &str) -> &Value {
        let rows = self.report["rows"].as_array().unwrap();
        let row = rows.iter().find(|row| row["test"].as_str().unwrap().starts_with(test));
        row.unwrap_or_else(|| panic!("no {test}: {:#}", self.report))
    }

    /// Whether this machine was too slow, so that what was asked for could not be measured.
    fn is_limited(&self) -> bool {
        !self.report["limits"].as_array().unwrap().is_empty()
    }

    /// Trials that count of the loss test.
    fn losses(&self) -> Vec<Counted> {
        let rows = self.report["rows"].as_array().unwrap().iter();
        let rates: Vec<String> = rows
            .filter(|row| !row["value"].is_null())
            .filter_map(|row| row["test"].as_str()?.strip_prefix("loss at ").map(str::to_owned))
            .collect();
        let (_, lines) = self.lines.split_once("frame_loss").unwrap();
        let trial = |line: &str| {
            let line: Value = serde_json::from_str(line).ok()?;
            let (trial, outcome) = (&line["trial"]["trial"], &line["trial"]["outcome"]);
            let rate = trial["traffic"]["steady"]["rate"].as_f64()?;
            Some(Counted { rate, sent: outcome["sent"].as_u64()?, received: outcome["received"].as_u64()? })
        };
        // Of those at one rate the last counts.
        let mut all: Vec<Counted> = Vec::new();
        for trial in lines.lines().filter_map(trial) {
            all.retain(|one| one.rate.to_bits() != trial.rate.to_bits());
            all.push(trial);
        }
        assert!(all.len() >= rates.len(), "{} {rates:?}", all.len());
        all
    }
}

/// Two TAP interfaces in a namespace, and a bridge from one to the other.
fn bridge(programs: &[&str]) -> Option<Namespace> {
    if let Err(reason) = namespaces_possible(programs) {
        skip::test!("{reason}");
        return None;
    }
    let namespace = Namespace::new();
    // The host must not send of its own accord.
    namespace.output(&["sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6 || true"]);
    namespace.output(&["ip", "link", "add", "rwbridge", "type", "bridge", "mcast_snooping", "0"]);
    for tap in ["rwa", "rwb"] {
        namespace.output(&["ip", "tuntap", "add", tap, "mode", "tap"]);
        namespace.output(&["ip", "link", "set", tap, "master", "rwbridge", "up"]);
    }
    namespace.output(&["ip", "link", "set", "rwbridge", "up"]);
    Some(namespace)
}

/// Ports at the two interfaces.
const TAPS: &str = "soft:a?wire=tap:rwa,soft:b?wire=tap:rwb";

/// A bridge sends what is for an address that it does not know to all of its ports.
#[test]
fn a_bridge_knows_the_port_that_only_receives() {
    let _alone = alone();
    let Some(namespace) = bridge(&[]) else { return };
    for words in ["add rwthird type veth peer name rwend", "set rwthird master rwbridge up", "set rwend up"] {
        namespace.output(&[&["ip", "link"][..], &words.split(' ').collect::<Vec<_>>()].concat());
    }
    // Bytes and frames that an interface has received, after its name.
    let arrived = || {
        let all = namespace.output(&["cat", "/proc/net/dev"]);
        let counts = all.lines().find_map(|line| line.trim().strip_prefix("rwend:")).unwrap();
        counts.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    let folder = tempfile::tempdir().unwrap();
    let times =
        ["--trial-time", "300ms", "--repetitions", "1", "--catch-up", "100ms", "--tests", "loss", "--max", "2k"];
    let run = Run::of(|words| namespace.command(words), ["--out", folder.path().to_str().unwrap()], TAPS, &times);
    let counted: u64 = run.lines.matches("\"outcome\"").count() as u64;
    assert!(run.report["about"]["program"].is_string() && counted >= 3, "{:#}", run.report);
    // Probes that came before the first learning frame, if any: no frame that counts.
    let at_third = arrived();
    assert!(at_third <= 10, "{at_third} frames of {counted} trials at a port that none is for");
}

#[test]
fn the_rate_of_a_token_bucket_is_found() {
    const RATE: f64 = 1_000.0;
    /// Frames that it lets pass at once, and those that wait.
    const BURST: f64 = 30.0;
    const LIMIT: f64 = 40.0;
    const SECONDS: f64 = 2.0;
    let _alone = alone();
    let Some(namespace) = bridge(&["tc"]) else { return };
    // It counts the 60 bytes that a frame has without its check sequence.
    let [rate, burst, limit] = [RATE * 480.0, BURST * 60.0, LIMIT * 60.0].map(|number| number.to_string());
    let tbf = ["tbf", "rate", &rate, "burst", &burst, "limit", &limit];
    if !namespace.succeeds(&[&["tc", "qdisc", "add", "dev", "rwb", "root"], &tbf[..]].concat()) {
        skip::test!("this kernel has no tbf");
        return;
    }
    // In the time of a trial so many frames pass, and not one more.
    let most = RATE + (BURST + LIMIT) / SECONDS;
    let (mut found, mut is_busy) = (Vec::new(), false);
    // A machine that stops makes it forward less, so it is measured again.
    while found.len() < 3 && found.last().is_none_or(|rate: &f64| *rate < most * 0.99) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        let times = ["--trial-time", "2s", "--repetitions", "1", "--catch-up", "20ms"];
        let bounds = ["--tests", "throughput", "--min", "900", "--max", "1200"];
        let run = Run::of(|words| namespace.command(words), ["--out", path], TAPS, &[&times[..], &bounds].concat());
        let row = run.row("throughput, loss <= 0 %");
        println!("tbf: {} of {most}: {}", row["figure"], row["note"]);
        let throughput = row["value"].as_f64().unwrap_or(0.0);
        assert!(throughput <= most * 1.01, "{:#}", run.report);
        found.push(throughput);
        // Where trials were void, the machine was too slow for this, and the report said so.
        is_busy |= row["note"].as_str().unwrap().contains("void");
    }
    let is_found = found.last().is_some_and(|rate| *rate >= most * 0.99);
    if is_busy && !is_found {
        skip::test!("this machine was too slow for trials of 2 s three times: {found:?} of {most}");
        return;
    }
    assert!(is_found, "{found:?} of {most}");
}

#[test]
fn the_loss_of_a_rule_is_found_exactly() {
    let _alone = alone();
    let Some(namespace) = bridge(&["nft"]) else { return };
    let chain = "add table netdev rw; add chain netdev rw in { type filter hook ingress device rwa priority 0; }";
    if !namespace.succeeds(&["nft", chain])
        || !namespace.succeeds(&["nft", "add rule netdev rw in ether type ip numgen inc mod 50 == 0 counter drop"])
    {
        skip::test!("this kernel has no netdev chains of nftables, or no numgen");
        return;
    }
    let times = ["--trial-time", "300ms", "--repetitions", "1", "--catch-up", "100ms"];
    let options = [&times[..], &["--tests", "loss", "--max", "2k"]].concat();
    // A machine that stops makes trials void, so all is measured again.
    for _ in 0..3 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        let run = Run::of(|words| namespace.command(words), ["--out", path], TAPS, &options);
        let losses = run.losses();
        for Counted { rate, sent, received } in &losses {
            println!("at {rate} pps: {received} of {sent}");
            // Of frames in a row each 50th is lost, whichever is the first.
            assert!((sent / 50..=sent.div_ceil(50)).contains(&(sent - received)), "{rate}: {sent} {received}");
        }
        // It loses at every load, so the test runs out of loads.
        if losses.len() == 10 {
            return;
        }
        assert!(run.is_limited(), "{:#}", run.report);
    }
    skip::test!("this machine was too slow for trials of 300 ms three times");
}

/// A folder of a run whose device forwards 1,000 frames a second, and has not been measured further.
fn known(profile: &Profile) -> tempfile::TempDir {
    let mut device = Device::new(Truth { capacity: 1e9, generator: 1e5, ..Truth::default() }, 1);
    let mut lines = format!("{}\n", Line::run(profile.clone()));
    let goals = profile.throughput.goals.clone();
    for setup in [Setup::Frmol { rate: 1e12, max: None }, Setup::Throughput { goals, low: 500.0, high: 1_000.0 }] {
        device.test((profile, 64), setup, &mut lines).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("trials.jsonl"), lines).unwrap();
    folder
}

/// Frames that testpmd takes before it lets one go, of which the last is the one that pushes.
const FIFO: f64 = 128.0;
/// How late a frame may be sent. What is late is pushed late; what is missed would not push at all.
const CATCH_UP: &str = "100ms";

/// A testpmd that holds frames back, from one port to another.
struct Noisy {
    testpmd: Process,
    sockets: tempfile::TempDir,
}

impl Noisy {
    fn start() -> Self {
        let fifo = [format!("--noisy-tx-sw-buffer-size={FIFO}"), "--noisy-tx-sw-buffer-flushtime=800".to_owned()];
        Self::with("noisy", 1, &fifo)
    }

    /// One that does this with frames, of ports with so many queue pairs.
    fn with(mode: &str, pairs: u16, options: &[String]) -> Self {
        let sockets = tempfile::tempdir().unwrap();
        let socket = |port: usize| sockets.path().join(format!("{port}.sock"));
        let log = sockets.path().join("log");
        let devices = [0, 1].map(|port| format!("net_vhost{port},iface={},queues={pairs}", socket(port).display()));
        let core = first_core();
        let mut testpmd = command(&["setpriv", "--pdeathsig", "KILL", "dpdk-testpmd"]);
        testpmd
            // Where it has its run-time files.
            .env("RUNTIME_DIRECTORY", sockets.path())
            .args(["--lcores", &format!("0@{core},1@{core}"), "--no-pci", "--no-telemetry", "--no-huge", "-m", "256"])
            .args(["--no-shconf", "--vdev", &devices[0], "--vdev", &devices[1]])
            .args(["--", "--total-num-mbufs=8192", "--nb-cores=1", "--no-flush-rx"])
            .args([format!("--forward-mode={mode}"), format!("--rxq={pairs}"), format!("--txq={pairs}")])
            .args(options)
            // It ends when there is nothing more to read.
            .stdin(Stdio::piped())
            .stdout(File::create(&log).unwrap())
            .stderr(File::options().append(true).open(&log).unwrap());
        let mut testpmd = Process(testpmd.spawn().unwrap());
        eventually("testpmd listens", || {
            let ended = testpmd.0.try_wait().unwrap();
            assert!(ended.is_none(), "testpmd ended: {}", std::fs::read_to_string(&log).unwrap());
            [0, 1].iter().all(|port| UnixStream::connect(socket(*port)).is_ok())
        });
        Self { testpmd, sockets }
    }

    fn ports(&self) -> [String; 2] {
        [0, 1].map(|port| format!("vhost-user:{}", self.sockets.path().join(format!("{port}.sock")).display()))
    }
}

/// What `pktgen` makes of the options below.
fn short(name: String) -> Profile {
    let mut profile = Profile { name, ..Profile::default() };
    for goal in &mut profile.throughput.goals {
        (goal.final_seconds, goal.duration_sum) = (2.0, 2.0);
    }
    (profile.latency.seconds, profile.frmol.seconds, profile.loss.seconds) = (2, 2, 2.0);
    (profile.latency.repetitions, profile.frmol.repetitions) = (1, 1);
    (profile.bursts.repetitions, profile.recovery.repetitions) = (1, 1);
    profile
}

fn has_testpmd() -> bool {
    let found = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join("dpdk-testpmd").is_file()));
    if !found {
        skip::test!("no dpdk-testpmd in PATH; tests/setup installs it");
    }
    found
}

/// Each queue of the one port leads to that of the other of the same number.
#[test]
fn two_queue_pairs_of_vhost_ports_lose_nothing() {
    if !has_testpmd() {
        return;
    }
    let _alone = alone();
    let switch = Noisy::with("io", 2, &[]);
    let [a, b] = switch.ports();
    let run = [pktgen().to_str().unwrap(), "run", &a, &b, "--queues", "2"];
    let options = ["--rate", "4k", "--count", "12001", "--catch-up", "1s", "--warm-up", "10ms", "--json", "--quiet"];
    // A ring holds what a queue gets in two seconds, so that none is lost where somebody stands still for one.
    let options = [&options[..], &["--ring-size", "4096"]].concat();
    let output = command(&[&run[..], &options].concat()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    for (port, direction) in report["directions"].as_array().unwrap().iter().enumerate() {
        for (field, count) in [("sent", 12_001), ("received", 12_001), ("lost", 0), ("duplicate", 0), ("reordered", 0)]
        {
            assert_eq!(direction[field], count, "{field}: {direction}");
        }
        for side in ["rx_queues", "tx_queues"] {
            let queues = report["ports"][port][side].as_array().unwrap();
            assert!(
                queues.len() == 2 && queues.iter().all(|queue| queue["packets"].as_u64() >= Some(6000)),
                "{report}"
            );
        }
    }
}

/// A run whose device is killed ends when its time is over, keeps what it has, and says what is missing.
#[test]
fn a_killed_device_ends_no_run() {
    if !has_testpmd() {
        return;
    }
    let _alone = alone();
    let mut device = Noisy::with("io", 1, &[]);
    let [a, b] = device.ports();
    let socket = device.sockets.path().join("control");
    let options = ["--rate", "1k", "--duration", "6s", "--warm-up", "10ms", "--catch-up", "1s", "--json", "--quiet"];
    let run = ["timeout", "60", pktgen().to_str().unwrap(), "run", &a, &b, "--control", socket.to_str().unwrap()];
    let mut run = command(&[&run[..], &options].concat());
    let run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut client = None;
    eventually("the run listens", || {
        client = UnixStream::connect(&socket).ok();
        client.is_some()
    });
    let mut client = BufReader::new(client.unwrap());
    eventually("frames pass", || {
        client.get_mut().write_all(b"{\"do\":\"get\"}\n").unwrap();
        let mut line = String::new();
        client.read_line(&mut line).unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap();
        let directions = answer["figures"]["directions"].as_array().unwrap();
        directions.iter().all(|direction| direction["received"].as_u64() > Some(20))
    });
    device.testpmd.0.kill().unwrap();
    let output = run.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let last = said.lines().last().unwrap();
    assert!(last.starts_with("pktgen: ") && last.contains("its link went down"), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let warnings = report["warnings"].to_string();
    for (direction, port) in report["directions"].as_array().unwrap().iter().zip([&a, &b]) {
        let [sent, received, lost, missed] =
            ["sent", "received", "lost", "missed"].map(|field| direction[field].as_u64().unwrap());
        assert_eq!((received + lost, sent + missed), (sent, 6000), "{direction}");
        assert!(received > 20 && missed > 0, "{direction}");
        assert!(warnings.contains(&format!("{port}: its link went down once")), "{warnings}");
    }
    assert_eq!(warnings.matches("frames missed, as its link went down").count(), 2, "{warnings}");
}

/// Who sends alone and who receives alone end by their time too, and say what is missing.
#[test]
fn a_killed_device_is_told_of_at_either_end() {
    if !has_testpmd() {
        return;
    }
    let _alone = alone();
    let mut device = Noisy::with("io", 1, &[]);
    let [a, b] = device.ports();
    let start = |mode: &str, port: &str, options: &[&str]| {
        let words = ["timeout", "60", pktgen().to_str().unwrap(), mode, port, "--duration", "6", "--json"];
        let mut command = command(&[&words[..], options].concat());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut rx = start("rx", &b, &[]);
    let tx = start("tx", &a, &["--rate", "1k", "--catch-up", "1s", "--quiet"]);
    // Its live table goes to standard error.
    let mut table = BufReader::new(rx.stderr.take().unwrap());
    let mut line = String::new();
    eventually("frames arrive", || {
        line.clear();
        table.read_line(&mut line).unwrap();
        line.split_once(": rx ").is_some_and(|(_, rate)| !rate.starts_with("0 "))
    });
    device.testpmd.0.kill().unwrap();
    for (mode, output) in [("tx", tx.wait_with_output().unwrap()), ("rx", rx.wait_with_output().unwrap())] {
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(1), "{mode}: {report}");
        assert!(report["error"].as_str().unwrap().contains("its link is down at the end"), "{mode}: {report}");
        assert!(report["warnings"].to_string().contains("its link went down once"), "{mode}: {report}");
        let count = report["sent"].as_u64().or(report["numbered"]["received"].as_u64()).unwrap();
        assert!(count > 0, "{mode}: {report}");
    }
}

#[test]
fn a_fifo_is_found_by_the_latency() {
    if !has_testpmd() {
        return;
    }
    let _alone = alone();
    let noisy = Noisy::start();
    let [a, b] = noisy.ports();
    let profile = short(format!("short: {a} and {b}, one way, IPv4, 1 flow, catching up {CATCH_UP}"));
    let times = ["--trial-time", "2s", "--repetitions", "1", "--catch-up", CATCH_UP];
    let options = [&times[..], &["--tests", "latency", "--max", "1k"]].concat();
    // 2 % are 2.6 of these frames, and a burst of four, which testpmd takes at once after a time without a core, may leave the FIFO short by
    // three (see below). benches/pktgen/run, where nothing else runs, asks for 2 %.
    let is_near = |frames: f64| (frames - FIFO).abs() <= FIFO * 0.05;
    let mut tries: Vec<Option<f64>> = Vec::new();
    // A machine that stops testpmd makes frames wait for longer, or trials void, so it is measured again.
    while tries.len() < 3 {
        let folder = known(&profile);
        let path = folder.path().to_str().unwrap();
        let run = Run::of(command, ["--resume", path], &format!("{a},{b}"), &options);
        let latency = |rate: &str| Some(run.row(&format!("typical latency at {rate} pps"))["value"].as_f64()? / 1e6);
        let (Some(fast), Some(slow)) = (latency("1,000"), latency("500")) else {
            println!("noisy: {}", run.report["limits"]);
            assert!(run.is_limited(), "{:#}", run.report);
            tries.push(None);
            continue;
        };
        // A frame leaves when so many others have come, of which the next at 500 a second takes 1 ms longer. What the machine takes
        // besides does not depend on the rate.
        let frames = (slow - fast) * 1_000.0 + 1.0;
        println!("noisy: {fast} s and {slow} s: {frames} frames of {FIFO}");
        // testpmd sends as many frames as a burst brings if not all of it fits. Where the bursts that fill the FIFO are larger than one
        // frame it stays short of full, by a burst less one at most, and so frames wait for fewer others: here few.
        let least = FIFO * 0.95;
        assert!(fast >= least / 1_000.0 && slow >= least / 500.0, "{:#}", run.report);
        if is_near(frames) {
            return;
        }
        tries.push(Some(frames));
    }
    if tries.iter().any(Option::is_none) {
        skip::test!("this machine was too slow for trials of 2 s three times: {tries:?} of {FIFO} frames");
        return;
    }
    panic!("{tries:?} of {FIFO}");
}
