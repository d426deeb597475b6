//! What an interface carries, as tcpdump sees it.

use crate::{Capture, Namespace, Process, eventually};
use rustix::process::Signal;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, Stdio};
use std::time::Duration;

/// A running tcpdump.
#[derive(Debug)]
pub struct Tcpdump {
    process: Process,
    stderr: BufReader<ChildStderr>,
    file: PathBuf,
}

impl Tcpdump {
    /// Starts it for one direction, `in` or `out`, and waits until it listens.
    ///
    /// # Panics
    ///
    /// When it does not.
    #[must_use]
    pub fn start(on: &Namespace, interface: &str, direction: &str, file: &Path) -> Self {
        let name = file.to_str().expect("a path in UTF-8");
        let words = [
            "tcpdump",
            "-i",
            interface,
            "-Q",
            direction,
            // The kernel keeps a place of this size for each frame, and libpcap asks for 256 KiB unless told.
            "-s",
            "15000",
            "-B",
            "65536",
            "-Z",
            "root",
            "-U",
            "-w",
            name,
            "--immediate-mode",
        ];
        let mut process = Process(on.command(&words).stderr(Stdio::piped()).spawn().expect("tcpdump starts"));
        let mut stderr = BufReader::new(process.0.stderr.take().expect("piped"));
        let mut said = String::new();
        while !said.contains("listening on") {
            assert_ne!(stderr.read_line(&mut said).expect("text"), 0, "tcpdump ended: {said}");
        }
        Self { process, stderr, file: file.to_owned() }
    }

    /// Waits until it has seen `count` frames of a kind, stops it, and returns all it has seen.
    ///
    /// # Panics
    ///
    /// When that was in vain, or tcpdump has missed frames.
    #[must_use]
    pub fn stop(self, count: usize, kind: impl Fn(&[u8]) -> bool) -> Capture {
        self.stop_when(|seen| seen == count, kind)
    }

    /// As [`Self::stop`], where there may be more than `count` of the kind.
    ///
    /// # Panics
    ///
    /// As there.
    #[must_use]
    pub fn stop_at_least(self, count: usize, kind: impl Fn(&[u8]) -> bool) -> Capture {
        self.stop_when(|seen| seen >= count, kind)
    }

    fn stop_when(mut self, is_enough: impl Fn(usize) -> bool, kind: impl Fn(&[u8]) -> bool) -> Capture {
        let seen = |file| Capture::read(file).frames.iter().filter(|frame| kind(frame)).count();
        eventually("tcpdump writes the frames waited for", || is_enough(seen(&self.file)));
        self.process.signal(Signal::INT);
        let mut said = String::new();
        self.stderr.read_to_string(&mut said).expect("text");
        self.process.wait(Duration::from_secs(20)).expect("tcpdump ends after SIGINT");
        assert!(said.contains("0 packets dropped by kernel"), "tcpdump was too slow: {said}");
        Capture::read(&self.file)
    }
}
