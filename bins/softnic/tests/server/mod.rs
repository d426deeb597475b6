//! A `softnic` process, and others beside it.
#![allow(dead_code, reason = "not every test file uses all of it")]
#![expect(unsafe_code, reason = "the word for a server of its own")]

use device::PageSize;
use mempool::{Pool, PoolConfig};
use nic::{Opened, Port as _, PortConfig};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead as _, BufReader, Lines, Read as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// No test takes longer, however slow the machine is.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// A process of which the test reads the output, and which does not outlive it.
pub(crate) struct Process {
    pub(crate) child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// Reads output up to a line with this word.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, word: &str) {
        let found = self.lines.by_ref().any(|line| line.unwrap().contains(word));
        assert!(found, "it ended before it said {word}");
    }

    /// Reads output up to a line that begins so; returns it.
    #[track_caller]
    pub(crate) fn line(&mut self, begin: &str) -> String {
        let found = self.lines.by_ref().map(Result::unwrap).find(|line| line.starts_with(begin));
        found.unwrap_or_else(|| panic!("it ended before it said {begin}"))
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Stops it, and waits until none of its threads runs.
    #[track_caller]
    pub(crate) fn stop(&self) {
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
    pub(crate) fn end(&mut self) -> (Option<i32>, String) {
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
pub(crate) struct Servers {
    pub(crate) process: Process,
    pub(crate) folder: TempDir,
}

impl Servers {
    /// Serves each device at a socket with its name.
    pub(crate) fn start(folder: TempDir, specs: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_softnic"));
        for spec in specs {
            let name = spec.split('?').next().unwrap();
            command.arg(folder.path().join(name)).arg(spec);
        }
        let mut process = Process::start(&mut command);
        process.wait_for("ready");
        Self { process, folder }
    }

    pub(crate) fn socket(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn address(&self, name: &str) -> String {
        format!("vfio-user:{}", self.socket(name).display())
    }

    pub(crate) fn open(&self, name: &str, pool: &Pool) -> Opened {
        open(&self.address(name), pool)
    }

    /// Ends it as a user would.
    pub(crate) fn stop(mut self) -> TempDir {
        self.process.signal(Signal::TERM);
        let (code, stderr) = self.process.end();
        assert_eq!(code, Some(0), "{stderr}");
        self.folder
    }

    /// The same, and what it says of the device `name` at its end.
    pub(crate) fn stop_and_tell(mut self, name: &str) -> String {
        self.process.signal(Signal::TERM);
        let line = self.process.line(&format!("{}: ", self.socket(name).display()));
        let (code, stderr) = self.process.end();
        assert_eq!(code, Some(0), "{stderr}");
        line
    }
}

pub(crate) fn pool() -> Pool {
    Pool::new(&PoolConfig { slots: 4096, pages: PageSize::Ordinary, ..PoolConfig::default() }).unwrap()
}

/// Repeats `work` until it is true.
#[track_caller]
pub(crate) fn until(what: &str, mut work: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !work() {
        assert!(begun.elapsed() < LIMIT, "{what}: not yet");
    }
}

/// Opens a port and waits for its link.
pub(crate) fn open(address: &str, pool: &Pool) -> Opened {
    // SAFETY: the servers of these tests are the project's own, which write where descriptors say.
    let trusted_peer = Some(unsafe { nic::TrustedPeer::vouched_for() });
    let config = PortConfig { trusted_peer, ..PortConfig::default() };
    let opened = nic::open(&address.parse().unwrap(), &config, pool).unwrap();
    assert!(opened.port.wait_link(LIMIT).unwrap().up);
    opened
}
