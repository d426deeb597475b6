//! The live screen of `pktgen run`, on a terminal that a parser of its control sequences plays.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, setrlimit};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::num::NonZero;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);
const ROWS: u16 = 30;
const COLUMNS: u16 = 120;

/// A run, which does not outlive a test that fails.
struct Run(Child);

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A run on a terminal.
struct Terminal {
    run: Run,
    /// Both ends: ours, and that of the run.
    ours: File,
    theirs: File,
    screen: Arc<Mutex<vt100::Parser>>,
    reader: Option<JoinHandle<()>>,
    /// Nothing more is to be read.
    ends: Arc<AtomicBool>,
}

impl Terminal {
    fn run(options: &[&str]) -> Self {
        Self::run_on("soft:a?wire=peer:b", options)
    }

    fn run_on(port: &str, options: &[&str]) -> Self {
        Self::run_by(&[], port, options)
    }

    /// The same, by a shell that is given the command.
    fn run_by(shell: &[&str], port: &str, options: &[&str]) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let size = Winsize { ws_row: ROWS, ws_col: COLUMNS, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&master, size).unwrap();
        let theirs = OpenOptions::new().read(true).write(true).open(name).unwrap();
        // With a session of its own, so that this is its terminal whatever the test's is.
        let mut command = Command::new("setsid");
        command.arg("--ctty").args(shell).arg(env!("CARGO_BIN_EXE_pktgen")).args([
            "run",
            port,
            "soft:b",
            "--warm-up",
            "0s",
        ]);
        command.args(["--live", "--one-way", "--rate", "1k"]).args(options).env("TERM", "xterm-256color");
        let [input, output, errors] = [(); 3].map(|()| theirs.try_clone().unwrap());
        let run = Run(command.stdin(input).stdout(output).stderr(errors).spawn().unwrap());
        let ours = File::from(master);
        let [rows, columns] = [ROWS, COLUMNS].map(|count| NonZero::new(count).unwrap());
        let screen = Arc::new(Mutex::new(vt100::Parser::new(rows, columns, 0)));
        let ends = Arc::new(AtomicBool::new(false));
        let (mut bytes, shown, is_over) = (ours.try_clone().unwrap(), Arc::clone(&screen), Arc::clone(&ends));
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // An error once nobody has the other end.
            while let Ok(count @ 1..) = bytes.read(&mut buffer) {
                shown.lock().unwrap().process(&buffer[..count]);
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        Self { run, ours, theirs, screen, reader: Some(reader), ends }
    }

    /// Waits until the screen is as it should be, and returns its text.
    #[track_caller]
    fn wait(&mut self, is_so: impl Fn(&vt100::Screen) -> bool) -> String {
        let begun = Instant::now();
        loop {
            let parser = self.screen.lock().unwrap();
            let text = parser.screen().contents();
            if is_so(parser.screen()) {
                return text;
            }
            drop(parser);
            assert!(begun.elapsed() < LIMIT, "{text}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[track_caller]
    fn shows(&mut self, words: &str) -> String {
        self.wait(|screen| screen.contents().contains(words))
    }

    fn press(&mut self, key: &str) {
        self.ours.write_all(key.as_bytes()).unwrap();
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.run.0), signal).unwrap();
    }

    /// The run, where a shell was given the command.
    fn job(&self) -> Pid {
        let id = self.run.0.id();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        Pid::from_raw(children.trim().parse().unwrap()).unwrap()
    }

    /// Goes away in mid-run. Returns the run.
    fn go_away(self) -> Run {
        self.ends.store(true, Ordering::Relaxed);
        let Self { run, ours, theirs, reader, .. } = self;
        drop(theirs);
        // It reads once more, as there is more to be drawn, or an error as the run has ended.
        reader.unwrap().join().unwrap();
        drop(ours);
        run
    }

    /// Whether lines are edited and shown by the terminal, as before and after.
    fn is_as_before(&self) -> bool {
        tcgetattr(&self.theirs).unwrap().local_modes.contains(LocalModes::ICANON | LocalModes::ECHO)
    }

    /// Waits for the end. Returns what the terminal then shows.
    fn end(mut self) -> (ExitStatus, String) {
        let status = self.run.0.wait().unwrap();
        assert!(self.is_as_before(), "{status}");
        // What is still to be read ends with what follows.
        self.theirs.write_all(b"\r\n(the end)\r\n").unwrap();
        let text = self.shows("(the end)");
        assert!(
            !self.screen.lock().unwrap().screen().alternate_screen()
                && !self.screen.lock().unwrap().screen().hide_cursor()
        );
        let Self { ours, theirs, reader, .. } = self;
        drop((ours, theirs));
        reader.unwrap().join().unwrap();
        (status, text)
    }
}

#[test]
fn keys_steer_a_run_that_is_shown_live() {
    let mut terminal = Terminal::run(&[]);
    // What is drawn last.
    let text = terminal.shows("s start/stop");
    assert!(text.contains("asked pps") && text.contains("soft:a > soft:b"), "{text}");
    assert!(terminal.screen.lock().unwrap().screen().alternate_screen() && !terminal.is_as_before());
    terminal.shows("counted");
    // Names of the links are known after a second.
    terminal.shows("bit/s");
    terminal.press("+");
    terminal.shows("1,100");
    terminal.press("\x1b[B");
    terminal.shows("990");
    terminal.press("s");
    terminal.shows("pktgen run   stopped");
    terminal.press("c");
    terminal.shows("counters begin anew");
    terminal.press("s");
    terminal.shows("pktgen run   counted");
    terminal.press("q");
    let (status, text) = terminal.end();
    assert!(status.success() && text.contains("LOST") && !text.contains("s start/stop"), "{text}");
}

#[test]
fn any_signal_gives_the_terminal_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.sock");
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }).unwrap();
    for (signals, killed_by, code) in [
        (&[Signal::TERM][..], None, Some(0)),
        (&[Signal::QUIT], Some(Signal::QUIT), None),
        (&[Signal::ABORT], Some(Signal::ABORT), None),
        (&[Signal::USR1], Some(Signal::USR1), None),
        (&[Signal::ALARM], Some(Signal::ALARM), None),
        (&[Signal::IO], None, Some(1)),
        (&[Signal::POWER], None, Some(1)),
        // Together, before the run can end by the first.
        (&[Signal::TERM, Signal::INT], None, Some(1)),
    ] {
        // It loses frames, so that it waits for them at its end.
        let options = ["--control", path.to_str().unwrap()];
        let mut terminal = Terminal::run_on("soft:a?wire=peer:b&after=50&loss=10%", &options);
        terminal.shows("counted");
        assert!(path.exists() && !terminal.is_as_before());
        terminal.signal(Signal::STOP);
        signals.iter().for_each(|signal| terminal.signal(*signal));
        terminal.signal(Signal::CONT);
        let (status, text) = terminal.end();
        assert_eq!((status.signal(), status.code()), (killed_by.map(Signal::as_raw), code), "{signals:?}: {text}");
        assert!(code != Some(0) || text.contains("a signal ended the run early"), "{text}");
        assert!(!path.exists(), "{signals:?}");
    }
}

/// It neither draws on what is another's nor is stopped as it changes that (SIGTTOU).
#[test]
fn a_run_in_the_background_goes_on_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.sock");
    let options = ["--control", path.to_str().unwrap()];
    let shell = ["bash", "-c", "set -m; \"$@\"; bg; wait $(jobs -p)", "bash"];
    let mut terminal = Terminal::run_by(&shell, "soft:a?wire=peer:b", &options);
    terminal.shows("counted");
    assert!(!terminal.is_as_before());
    kill_process(terminal.job(), Signal::STOP).unwrap();
    // The shell lets it go on in the background.
    terminal.wait(|screen| !screen.alternate_screen() && !screen.hide_cursor());
    until(&path, |line| line.contains("\"phase\":\"counted\""));
    UnixStream::connect(&path).unwrap().write_all(b"{\"do\":\"quit\"}\n").unwrap();
    wait_for(|| terminal.run.0.try_wait().unwrap().is_some());
    assert!(terminal.run.0.wait().unwrap().success());
    // The end of the report; what is above may have left the screen.
    terminal.shows("ring: from its hand-over");

    let shell = ["bash", "-c", "set -m; \"$@\" & wait $!", "bash"];
    let mut terminal = Terminal::run_by(&shell, "soft:a?wire=peer:b", &options);
    terminal.shows("--live: this process is in the background");
    wait_for(|| terminal.run.0.try_wait().unwrap().is_some());
    assert_eq!(terminal.run.0.wait().unwrap().code(), Some(2));
}

/// The shell has its lines edited again and writes what it likes while the run is stopped.
#[test]
fn a_run_that_was_stopped_takes_the_terminal_again() {
    let shell = ["bash", "-c", "set -m; \"$@\"; stty sane; echo between; read; fg; wait", "bash"];
    let mut terminal = Terminal::run_by(&shell, "soft:a?wire=peer:b", &[]);
    terminal.shows("counted");
    let run = terminal.job();
    kill_process(run, Signal::STOP).unwrap();
    terminal.shows("between");
    assert!(terminal.is_as_before());
    terminal.press("\n");
    terminal.wait(|screen| {
        let text = screen.contents();
        screen.alternate_screen() && screen.hide_cursor() && text.contains("counted") && !text.contains("between")
    });
    wait_for(|| !terminal.is_as_before());
    terminal.press("q");
    wait_for(|| terminal.run.0.try_wait().unwrap().is_some());
    assert!(terminal.is_as_before() && terminal.run.0.wait().unwrap().success());
}

/// Asks for the figures until they are as they should be.
#[track_caller]
fn until(path: &Path, is_so: impl Fn(&str) -> bool) {
    let mut stream = UnixStream::connect(path).unwrap();
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let begun = Instant::now();
    loop {
        stream.write_all(b"{\"do\":\"get\"}\n").unwrap();
        let line = lines.next().unwrap().unwrap();
        if is_so(&line) {
            return;
        }
        assert!(begun.elapsed() < LIMIT, "{line}");
    }
}

#[test]
fn any_size_is_drawn_and_many_keys_at_once_do_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.sock");
    let mut terminal = Terminal::run(&["--control", path.to_str().unwrap()]);
    terminal.shows("counted");
    for size in [u16::MAX, 1, 0, ROWS] {
        let size = Winsize { ws_row: size, ws_col: size.saturating_mul(4), ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&terminal.ours, size).unwrap();
        // It draws between two keys.
        for running in [false, true] {
            terminal.press("s");
            until(&path, |line| line.contains(&format!("\"running\":{running}")));
        }
    }
    terminal.press(&"+-cs".repeat(500));
    terminal.press("q");
    let (status, text) = terminal.end();
    assert!(status.success() && text.contains("soft:a"), "{text}");
}

/// Whether the process has a thread of that name.
fn has_thread(child: &Child, name: &str) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{}/task", child.id())).unwrap();
    let names = threads.filter_map(|thread| std::fs::read_to_string(thread.unwrap().path().join("comm")).ok());
    names.map(|name| name.trim().to_owned()).any(|one| one == name)
}

#[track_caller]
fn wait_for(mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LIMIT);
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_run_whose_terminal_goes_away_goes_on_if_it_has_another_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.sock");
    let mut terminal = Terminal::run(&["--control", path.to_str().unwrap()]);
    terminal.shows("counted");
    let mut run = terminal.go_away();
    wait_for(|| !has_thread(&run.0, "live"));
    until(&path, |line| line.contains("\"phase\":\"counted\""));
    UnixStream::connect(&path).unwrap().write_all(b"{\"do\":\"quit\"}\n").unwrap();
    assert!(run.0.wait().unwrap().success());

    for options in [&["--duration", "5s"][..], &[]] {
        let mut terminal = Terminal::run(options);
        terminal.shows("counted");
        let mut run = terminal.go_away();
        wait_for(|| run.0.try_wait().unwrap().is_some());
        assert!(run.0.wait().unwrap().success(), "{options:?}");
    }
}
