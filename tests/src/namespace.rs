//! Network namespaces without names, which live as long as the process that holds them, and processes that do not outlive
//! the test.

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A process that does not outlive this value.
#[derive(Debug)]
pub struct Process(pub Child);

impl Process {
    /// Sends it a signal.
    ///
    /// # Panics
    ///
    /// When it is gone.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("the process is there");
    }

    /// Holds it to its running.
    ///
    /// # Panics
    ///
    /// When it has ended; with what it wrote to standard error, if that is piped.
    pub fn still_runs(&mut self) {
        let Some(status) = self.0.try_wait().expect("a child can be waited for") else { return };
        let mut said = String::new();
        if let Some(mut stderr) = self.0.stderr.take() {
            stderr.read_to_string(&mut said).expect("text");
        }
        panic!("the process has ended: {status}: {said}");
    }

    /// Waits for its end, at most for `limit`.
    ///
    /// # Panics
    ///
    /// When it cannot be waited for.
    pub fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        let start = Instant::now();
        while start.elapsed() < limit {
            if let Some(status) = self.0.try_wait().expect("a child can be waited for") {
                return Some(status);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        None
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already, which is as well.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A network namespace, held by a sleeping process.
#[derive(Debug)]
pub struct Namespace(Process);

impl Namespace {
    /// A new one, with nothing in it but a loopback interface that is down.
    ///
    /// # Panics
    ///
    /// When there can be none: see [`namespaces_possible`].
    #[must_use]
    pub fn new() -> Self {
        let holder = command(&["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "sleep", "1800"]).spawn();
        let holder = Process(holder.expect("setpriv starts"));
        let namespace = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/net")).ok();
        let (ours, id) = (namespace("self"), holder.0.id().to_string());
        eventually("a network namespace of its own", || namespace(&id).is_some_and(|theirs| Some(theirs) != ours));
        Self(holder)
    }

    /// The process that holds it.
    #[must_use]
    pub fn holder(&self) -> u32 {
        self.0.0.id()
    }

    /// Does `work` on a thread in this namespace, and returns what it returns.
    ///
    /// # Panics
    ///
    /// When `work` does, or the namespace cannot be entered.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let holder = self.holder();
        // A thread of its own, as it stays there.
        let outcome = std::thread::scope(|scope| scope.spawn(move || entered(holder, work)).join());
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// As [`Self::within`], on a thread that goes on beside this one.
    pub fn spawn<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        let holder = self.holder();
        std::thread::spawn(move || entered(holder, work))
    }

    /// A command to be run in this namespace, which is killed when this thread ends.
    #[must_use]
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = command(&["setpriv", "--pdeathsig", "KILL", "nsenter", "--net", "--target"]);
        command.arg(self.holder().to_string()).args(words);
        command
    }

    /// Runs a command to its end and returns what it printed.
    ///
    /// # Panics
    ///
    /// When it fails.
    pub fn output(&self, words: &[&str]) -> String {
        let output = self.command(words).output().expect("nsenter starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {text}{errors}");
        text
    }

    /// Runs a command to its end and returns whether it succeeded.
    #[must_use]
    pub fn succeeds(&self, words: &[&str]) -> bool {
        self.command(words).stderr(Stdio::null()).stdout(Stdio::null()).status().is_ok_and(|status| status.success())
    }

    /// Sends a frame, without check sequence, by an interface of this namespace; its MTU has to have room for all behind the first 14 bytes.
    ///
    /// # Panics
    ///
    /// When it is not sent, or there is no Python.
    pub fn send(&self, interface: &str, frame: &[u8]) {
        let program = "import socket, sys\n\
            wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)\n\
            wire.bind((sys.argv[1], 0))\n\
            wire.send(bytes.fromhex(sys.argv[2]))";
        let hex = frame.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
        self.output(&["python3", "-c", program, interface, &hex]);
    }

    /// Pings an address, once unless the options say otherwise. Returns whether each was answered: of several, `ping` calls it a success
    /// if one was.
    ///
    /// # Panics
    ///
    /// When it cannot be started.
    #[must_use]
    pub fn pings(&self, to: &str, options: &[&str]) -> bool {
        let words = [&["ping", "-q", "-i", "0.005", "-W", "1", "-c", "1", to][..], options].concat();
        let output = self.command(&words).output().expect("nsenter starts");
        let said = String::from_utf8_lossy(&output.stdout);
        let count =
            |behind: &str| -> Option<u64> { said.split(behind).next()?.split_whitespace().last()?.parse().ok() };
        let sent = count(" packets transmitted").filter(|sent| *sent > 0);
        sent.is_some() && sent == count(" received")
    }
}

impl Default for Namespace {
    fn default() -> Self {
        Self::new()
    }
}

/// Has this thread enter the namespace of a process, and do `work` there.
fn entered<T>(holder: u32, work: impl FnOnce() -> T) -> T {
    let namespace = File::open(format!("/proc/{holder}/ns/net")).expect("the holder lives");
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).expect("root may");
    work()
}

/// Waits until `done`, for two minutes at most: long enough for a busy machine.
///
/// # Panics
///
/// When that was in vain.
pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(120), "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether this host has namespaces with IPv6, whose settings may be written, and TAP interfaces for us, and these programs too.
///
/// # Errors
///
/// The reason why not.
pub fn namespaces_possible(programs: &[&str]) -> Result<(), String> {
    for program in ["setpriv", "unshare", "nsenter", "ip"].iter().chain(programs) {
        if !command(&["sh", "-c", &format!("command -v {program}")]).output().is_ok_and(|found| found.status.success())
        {
            return Err(format!("{program} is not installed; tests/setup installs it"));
        }
    }
    let unshare = command(&["unshare", "--net", "true"]).output().map_err(|error| error.to_string())?;
    if !unshare.status.success() {
        let why = String::from_utf8_lossy(&unshare.stderr);
        return Err(format!("no network namespaces for this user ({}); run it as root", why.trim()));
    }
    let setting = "/proc/sys/net/ipv6/conf/all/forwarding";
    let write = command(&["unshare", "--net", "sh", "-c", &format!("echo 1 > {setting}")]).output();
    let write = write.map_err(|error| error.to_string())?;
    if !write.status.success() {
        let why = String::from_utf8_lossy(&write.stderr);
        return Err(format!("{setting} cannot be written in a network namespace ({})", why.trim()));
    }
    if let Err(error) = File::options().read(true).write(true).open("/dev/net/tun") {
        return Err(format!("no TAP interfaces (/dev/net/tun: {error})"));
    }
    Ok(())
}

/// A command that also finds what is installed in the administrator's folders.
#[must_use]
pub fn command(words: &[&str]) -> Command {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).env("PATH", format!("{path}:/usr/sbin:/sbin")).env("LC_ALL", "C").stdin(Stdio::null());
    command
}
