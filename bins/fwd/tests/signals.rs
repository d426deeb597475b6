//! Signals while a long routes file is read. How long that takes depends on the machine, and what is asserted does not.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Far shorter than the runs would be (`--duration 600`), and long enough for any machine.
const LIMIT: Duration = Duration::from_secs(120);

/// A routes file that takes long to read and holds nothing: a comment of 384 MiB, of which hardly a byte is on the disk.
fn long_routes(path: &Path) {
    let file = File::create(path).unwrap();
    file.write_all_at(b"#", 0).unwrap();
    file.write_all_at(b"\n", 384 << 20).unwrap();
}

/// `fwd l3` as a script starts it in the background: SIGINT is ignored until it is caught, as all signals are by the first
/// process of a container.
fn start(routes: &Path) -> Child {
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' INT; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_fwd")]);
    command.args(["l3", "soft:a?wire=gen&rate=1000", "soft:b", "--duration", "600", "--json", "--routes"]).arg(routes);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until the process has the file open, or has been seen to have done with it: `is_past`.
fn until_it_reads(child: &Child, routes: &Path, is_past: impl Fn() -> bool) {
    let begun = Instant::now();
    let folder = format!("/proc/{}/fd", child.id());
    let is_open = || {
        let fds = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        fds.filter_map(|fd| std::fs::read_link(fd.path()).ok()).any(|file| file == routes)
    };
    while !is_open() && !is_past() {
        assert!(begun.elapsed() < LIMIT, "it does not read the routes");
        std::thread::yield_now();
    }
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Its end, which a signal has asked for.
fn end(mut child: Child) -> Output {
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > LIMIT {
            child.kill().unwrap();
            panic!("it goes on: {:?}", child.wait_with_output());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

/// Threads of a process.
fn threads(child: &Child) -> usize {
    std::fs::read_dir(format!("/proc/{}/task", child.id())).map_or(0, Iterator::count)
}

#[test]
fn a_signal_while_routes_are_read_first_ends_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let routes = folder.path().canonicalize().unwrap().join("routes");
    long_routes(&routes);
    let child = start(&routes);
    // Should the reading be over before anybody has seen it, the run is ended, which has threads.
    until_it_reads(&child, &routes, || threads(&child) > 2);
    signal(&child, Signal::INT);
    let output = end(child);
    let (code, stderr) = (output.status.code(), String::from_utf8(output.stderr).unwrap());
    if code == Some(0) {
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap();
    } else {
        assert_eq!(code, Some(1), "{stderr}");
        let last = stderr.lines().last().unwrap();
        assert!(last.starts_with("fwd: ") && last.contains("interrupted by a signal while"), "{stderr}");
    }
}

/// One that receives is closed before the program ends: it might go on writing to memory that is no longer the program's.
#[test]
fn a_signal_while_devices_are_looked_at_closes_the_one_that_is_open() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().canonicalize().unwrap().join("trace.txt");
    // Without a link it is open for seconds.
    let soft = format!("soft:looked-at?id=10fb&module=none&trace={}", trace.display());
    let mut command = Command::new(env!("CARGO_BIN_EXE_fwd"));
    command.args(["devices", "--verbose", &soft, &soft.replace("looked-at", "not-any-more")]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let begun = Instant::now();
    let last = || {
        let text = std::fs::read_to_string(&trace).unwrap_or_default();
        let mut values = text.lines().filter(|line| line.ends_with(" RXCTRL"));
        values.next_back().and_then(|line| line.split_whitespace().nth(3).map(str::to_owned))
    };
    while last().as_deref() != Some("0x00000001") {
        assert!(begun.elapsed() < LIMIT, "it does not receive: {:?}", last());
        std::thread::yield_now();
    }
    signal(&child, Signal::INT);
    let output = end(child);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert_eq!(stderr.lines().last(), Some("fwd: interrupted by a signal while devices were looked at"));
    assert_eq!(last().as_deref(), Some("0x00000000"), "it receives no more");
}
