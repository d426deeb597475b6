//! The live screen of `pktgen run`, on a terminal that a parser of its control sequences plays.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::num::NonZero;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);
const ROWS: u16 = 30;
const COLUMNS: u16 = 120;

/// A run on a terminal.
struct Terminal {
    child: Child,
    /// Both ends: ours, and that of the run.
    ours: File,
    theirs: File,
    screen: Arc<Mutex<vt100::Parser>>,
    reader: Option<JoinHandle<()>>,
}

impl Terminal {
    fn run(options: &[&str]) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let size = Winsize { ws_row: ROWS, ws_col: COLUMNS, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&master, size).unwrap();
        let theirs = OpenOptions::new().read(true).write(true).open(name).unwrap();
        // With a session of its own, so that this is its terminal whatever the test's is.
        let mut command = Command::new("setsid");
        command.arg("--ctty").arg(env!("CARGO_BIN_EXE_pktgen")).args([
            "run",
            "soft:a?wire=peer:b",
            "soft:b",
            "--warm-up",
            "0s",
        ]);
        command.args(["--live", "--one-way", "--rate", "1k"]).args(options).env("TERM", "xterm-256color");
        let [input, output, errors] = [(); 3].map(|()| theirs.try_clone().unwrap());
        let child = command.stdin(input).stdout(output).stderr(errors).spawn().unwrap();
        let ours = File::from(master);
        let [rows, columns] = [ROWS, COLUMNS].map(|count| NonZero::new(count).unwrap());
        let screen = Arc::new(Mutex::new(vt100::Parser::new(rows, columns, 0)));
        let (mut bytes, shown) = (ours.try_clone().unwrap(), Arc::clone(&screen));
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // An error once nobody has the other end.
            while let Ok(count @ 1..) = bytes.read(&mut buffer) {
                shown.lock().unwrap().process(&buffer[..count]);
            }
        });
        Self { child, ours, theirs, screen, reader: Some(reader) }
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

    /// Whether lines are edited and shown by the terminal, as before and after.
    fn is_as_before(&self) -> bool {
        tcgetattr(&self.theirs).unwrap().local_modes.contains(LocalModes::ICANON | LocalModes::ECHO)
    }

    /// Waits for the end. Returns what the terminal then shows.
    fn end(mut self) -> (ExitStatus, String) {
        let status = self.child.wait().unwrap();
        assert!(self.is_as_before());
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
    let text = terminal.shows("soft:a > soft:b");
    assert!(text.contains("asked pps") && text.contains("s start/stop"), "{text}");
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
fn a_signal_gives_the_terminal_back() {
    let mut terminal = Terminal::run(&[]);
    terminal.shows("counted");
    let id = rustix::process::Pid::from_child(&terminal.child);
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    let (status, text) = terminal.end();
    assert!(status.success() && text.contains("a signal ended the run early"), "{text}");
}
