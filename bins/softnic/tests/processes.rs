//! Device and driver in different processes: traffic, and the death of either.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use device::PageSize;
use mempool::{Batch, Pool, PoolConfig};
use nic::{Opened, PortConfig};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead as _, BufReader, Lines, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tests::{Capture, Fwd, frame, number};

/// No test takes longer, however slow the machine is.
const LIMIT: Duration = Duration::from_secs(120);

/// A process of which the test reads the output, and which does not outlive it.
struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// Reads output up to a line with this word.
    #[track_caller]
    fn wait_for(&mut self, word: &str) {
        let found = self.lines.by_ref().any(|line| line.unwrap().contains(word));
        assert!(found, "it ended before it said {word}");
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Stops it, and waits until none of its threads runs.
    #[track_caller]
    fn stop(&self) {
        self.signal(Signal::STOP);
        let begun = Instant::now();
        let is_stopped = |task: &std::path::Path| {
            let stat = std::fs::read_to_string(task.join("stat")).unwrap_or_default();
            stat.rsplit(')').next().is_none_or(|rest| rest.trim_start().starts_with('T'))
        };
        while !std::fs::read_dir(format!("/proc/{}/task", self.child.id()))
            .unwrap()
            .all(|task| is_stopped(&task.unwrap().path()))
        {
            assert!(begun.elapsed() < LIMIT, "it does not stop");
            std::thread::yield_now();
        }
    }

    /// Waits for its end; returns the exit code, and what it wrote to standard error.
    #[track_caller]
    fn end(&mut self) -> (Option<i32>, String) {
        let begun = Instant::now();
        // It may have more to say than a pipe holds.
        let rest = self.lines.by_ref().map_while(Result::ok).count();
        while self.child.try_wait().unwrap().is_none() {
            assert!(begun.elapsed() < LIMIT, "it does not end, after {rest} more lines");
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut text = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        (self.child.wait().unwrap().code(), text)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A `softnic` process and its sockets.
struct Servers {
    process: Process,
    folder: TempDir,
}

impl Servers {
    /// Serves each device at a socket with its name.
    fn start(folder: TempDir, specs: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_softnic"));
        for spec in specs {
            let name = spec.split('?').next().unwrap();
            command.arg(folder.path().join(name)).arg(spec);
        }
        let mut process = Process::start(&mut command);
        process.wait_for("ready");
        Self { process, folder }
    }

    fn socket(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn address(&self, name: &str) -> String {
        format!("vfio-user:{}", self.socket(name).display())
    }

    fn open(&self, name: &str, pool: &Pool) -> Opened {
        let opened = nic::open(&self.address(name).parse().unwrap(), &PortConfig::default(), pool).unwrap();
        assert!(opened.port.wait_link(LIMIT).unwrap().up);
        opened
    }

    /// Ends it as a user would.
    fn stop(mut self) -> TempDir {
        self.process.signal(Signal::TERM);
        let (code, stderr) = self.process.end();
        assert_eq!(code, Some(0), "{stderr}");
        self.folder
    }
}

fn pool() -> Pool {
    Pool::new(&PoolConfig { slots: 4096, pages: PageSize::Ordinary, ..PoolConfig::default() }).unwrap()
}

/// Repeats `work` until it is true.
#[track_caller]
fn until(what: &str, mut work: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !work() {
        assert!(begun.elapsed() < LIMIT, "{what}: not yet");
    }
}

/// A classic capture file, written from the format's description.
fn write_capture(path: &Path, frames: &[Vec<u8>]) {
    let header: [u32; 6] = [0xA1B2_C3D4, 0x0004_0002, 0, 0, 65535, 1];
    let mut bytes: Vec<u8> = header.iter().flat_map(|word| word.to_le_bytes()).collect();
    for frame in frames {
        let len = u32::try_from(frame.len()).unwrap();
        [0, 0, len, len].iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
        bytes.extend_from_slice(frame);
    }
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn every_byte_crosses_two_devices_of_another_process() {
    let folder = tempfile::tempdir().unwrap();
    let frames: Vec<Vec<u8>> = (0..20_000).map(|n| frame(n, 60 + n as usize * 7 % 1455)).collect();
    write_capture(&folder.path().join("in.pcap"), &frames);
    let wires = [("in", "in.pcap", ""), ("out", "", "out.pcap")].map(|(name, input, output)| {
        let file =
            |name: &str| if name.is_empty() { String::new() } else { folder.path().join(name).display().to_string() };
        format!("{name}?wire=pcap:{},{}", file(input), file(output))
    });
    let servers = Servers::start(folder, &[&wires[0], &wires[1]]);
    let pool = pool();
    let (mut input, mut output) = (servers.open("in", &pool), servers.open("out", &pool));
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(64));
    until("all frames are forwarded", || {
        input.rx[0].recv(&mut cache, &mut batch);
        while !batch.is_empty() {
            output.tx[0].send(&mut cache, &mut batch);
        }
        output.tx[0].counters().packets == 20_000
    });
    until("the device has sent them", || output.port.statistics().unwrap().tx_packets == 20_000);
    assert_eq!(input.port.statistics().unwrap().rx_packets, 20_000);
    input.close().unwrap();
    output.close().unwrap();
    drop((cache, batch));
    assert_eq!(pool.away(), 0, "every buffer is home");
    let folder = servers.stop();
    assert_eq!(Capture::read(&folder.path().join("out.pcap")).frames, frames);
    assert!(!folder.path().join("in").exists(), "sockets are removed");
}

#[test]
fn two_devices_of_one_process_are_wired_back_to_back() {
    let servers = Servers::start(tempfile::tempdir().unwrap(), &["left?wire=peer:right", "right"]);
    let pool = pool();
    let (mut left, mut right) = (servers.open("left", &pool), servers.open("right", &pool));
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(64));
    let mut send = |number: u32| {
        let mut packet = cache.alloc().unwrap();
        packet.append(60).unwrap().copy_from_slice(&frame(number, 60));
        batch.push(packet).unwrap();
        let sent = left.tx[0].send(&mut cache, &mut batch) == 1;
        cache.free_batch(&mut batch);
        sent
    };
    let (mut right_cache, mut arrived) = (pool.cache(), Batch::with_capacity(64));
    let mut receive = || {
        right.rx[0].recv(&mut right_cache, &mut arrived);
        let numbers: Vec<u32> = arrived.iter().map(|packet| number(packet.data())).collect();
        right_cache.free_batch(&mut arrived);
        numbers
    };
    // Frames are lost while the other end is not ready, as on any cable.
    until("the first frame has crossed", || {
        send(u32::MAX);
        !receive().is_empty()
    });
    let (mut sent, mut received) = (0, Vec::new());
    until("a thousand frames have crossed", || {
        if sent < 1000 && send(sent) {
            sent += 1;
        }
        received.extend(receive().into_iter().filter(|number| *number != u32::MAX));
        received.len() == 1000
    });
    assert!(received.iter().copied().eq(0..1000));
    left.close().unwrap();
    right.close().unwrap();
    servers.stop();
}

#[test]
fn a_server_killed_in_mid_traffic_is_a_typed_error_and_the_forwarder_ends() {
    let servers = Servers::start(tempfile::tempdir().unwrap(), &["a?wire=gen", "b?wire=gen"]);
    let mut fwd = Process::start(Command::new(tests::fwd()).args(["l2", &servers.address("a"), &servers.address("b")]));
    fwd.wait_for("Mpps");
    servers.process.signal(Signal::KILL);
    let (code, stderr) = fwd.end();
    assert_eq!(code, Some(1), "{stderr}");
    let last = stderr.lines().last().unwrap();
    assert!(last.starts_with("fwd: vfio-user:/") && last.contains("gone"), "{stderr}");
    assert!(!stderr.contains("kept for ever"), "a process that has ended reaches no memory: {stderr}");
}

#[test]
fn a_driver_of_a_killed_server_says_gone_and_gets_its_memory_back() {
    let mut servers = Servers::start(tempfile::tempdir().unwrap(), &["a?wire=gen"]);
    let pool = pool();
    let mut nic = servers.open("a", &pool);
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(64));
    until("frames arrive", || nic.rx[0].recv(&mut cache, &mut batch) > 0);
    cache.free_batch(&mut batch);
    servers.process.signal(Signal::KILL);
    servers.process.end();
    let error = nic.port.statistics().unwrap_err();
    assert!(error.to_string().contains("gone"), "{error}");
    assert!(nic.close().is_err());
    drop((cache, batch));
    assert_eq!(pool.away(), 0, "the rings' buffers too");
}

#[test]
fn a_driver_of_a_server_that_hangs_does_not_hang() {
    let servers = Servers::start(tempfile::tempdir().unwrap(), &["a?wire=gen"]);
    let pool = pool();
    let mut nic = servers.open("a", &pool);
    servers.process.stop();
    let begun = Instant::now();
    let error = nic.port.statistics().unwrap_err();
    assert!(error.to_string().contains("gone") && begun.elapsed() < LIMIT, "{error}");
    // It may come to again, and then it would still reach the memory, which is therefore kept.
    assert!(nic.close().is_err());
    servers.process.signal(Signal::CONT);
    assert!(pool.away() > 0);
}

#[test]
fn a_client_killed_in_mid_traffic_leaves_devices_for_the_next() {
    let servers = Servers::start(tempfile::tempdir().unwrap(), &["a?wire=gen", "b?wire=gen"]);
    let addresses = [servers.address("a"), servers.address("b")];
    for _ in 0..3 {
        let mut fwd = Process::start(Command::new(tests::fwd()).arg("l2").args(&addresses));
        fwd.wait_for("Mpps");
        fwd.signal(Signal::KILL);
        fwd.end();
    }
    let run =
        Fwd::run([&["l2".to_owned()], &addresses[..], &["--json", "--duration", "0.5"].map(String::from)].concat());
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!(run.count("/received") > 0);
    assert_eq!(run.count("/received"), run.count("/forwarded") + run.drops());
    servers.stop();
}

#[test]
fn mistakes_are_one_line_that_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (socket, nowhere, long) = (path("x.sock"), path("no/such/folder"), "x".repeat(200));
    let (socket, nowhere, long) = (socket.as_str(), nowhere.as_str(), long.as_str());
    for (arguments, code, words) in [
        (&[][..], 2, &["SOCKET", "--help"][..]),
        (&[socket], 2, &["x.sock", "no device"]),
        (&[socket, "a?wire=string"], 2, &["string", "gen"]),
        (&[socket, "a", socket, "b"], 1, &["x.sock", "another path"]),
        (&[socket, "a", "b.sock", "a"], 1, &["busy"]),
        (&[nowhere, "a"], 1, &["no/such/folder", "folder that you may write to"]),
        (&[long, "a"], 1, &["xxx", "107 bytes"]),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_softnic"));
        let Output { status, stderr, .. } = command.args(arguments).current_dir(&folder).output().unwrap();
        let message = String::from_utf8(stderr).unwrap();
        assert_eq!(status.code(), Some(code), "{arguments:?}: {message}");
        assert!(message.starts_with("softnic: ") && message.lines().count() == 1, "{message}");
        for word in words {
            assert!(message.contains(word), "{arguments:?}: no \"{word}\" in {message}");
        }
    }
    assert!(folder.path().read_dir().unwrap().next().is_none(), "no socket is left");
}
