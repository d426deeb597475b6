//! How far a run says it is: a line for each test where nobody looks at a terminal, and one more on a terminal for the trial at hand.

use crate::runs::{DEVICE, SHORT, assert_done, beside};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::num::NonZero;
use std::process::{Command, Stdio};

/// A run of two tests, without what it prints at its end.
fn command(path: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pktgen"));
    command.args(["rfc2544", "--ports", DEVICE, "--out", path, "--one-way", "--sizes", "64", "--tests", "loss"]);
    command.args(["--max", "1k"]).args(SHORT).env("RUST_LOG", "error").env("TERM", "xterm-256color");
    command.stdout(Stdio::null());
    command
}

/// Lines of the tests that a text has, with how long the run still takes.
fn tests(text: &str) -> Vec<(&str, &str)> {
    fn of_test(line: &str) -> Option<(&str, &str)> {
        let (test, rest) = line.strip_prefix("64 bytes, ")?.split_once(": ")?;
        let (trials, left) = rest.split_once("; about ")?;
        assert!(trials.contains(" trial") && trials.contains(" in "), "{line}");
        Some((test, left.strip_suffix(" left")?))
    }
    text.lines().filter_map(of_test).collect()
}

#[test]
fn a_pipe_has_a_line_for_each_test() {
    let _beside = beside();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let output = command(path).output().unwrap();
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    assert_done(&output, &said);
    let lines = tests(&said);
    assert_eq!(lines.iter().map(|(test, _)| *test).collect::<Vec<_>>(), ["highest load", "loss"], "{said}");
    // The first is followed by ten rates at most, and nothing by the last.
    assert!(lines[0].1 != "0 s" && lines[1].1 == "0 s", "{said}");
    assert!(!said.contains(['\r', '\u{1b}']) && !said.contains("trial 1 at"), "{said}");
    // Whoever wants none gets none.
    let other = tempfile::tempdir().unwrap();
    let quiet = command(other.path().to_str().unwrap()).arg("--quiet").output().unwrap();
    let said = String::from_utf8(quiet.stderr.clone()).unwrap();
    assert_done(&quiet, &said);
    assert!(tests(&said).is_empty() && said.lines().count() <= 1, "{said}");
}

/// What is written to a terminal of so many columns.
fn on_terminal(columns: u16) -> String {
    let folder = tempfile::tempdir().unwrap();
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&master, size).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
    let theirs = OpenOptions::new().read(true).write(true).open(name).unwrap();
    let mut command = command(folder.path().to_str().unwrap());
    let mut child = command.stderr(theirs).spawn().unwrap();
    // The command holds the terminal, too, which ends with the last who does.
    drop(command);
    let (mut ours, mut bytes, mut part) = (File::from(master), Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = ours.read(&mut part) {
        bytes.extend(&part[..count]);
    }
    let status = child.wait().unwrap();
    let said = String::from_utf8(bytes).unwrap();
    assert!(matches!(status.code(), Some(0 | 1)), "{said}");
    said
}

/// What a terminal of so many columns shows in the end.
fn shown(said: &str, columns: u16) -> String {
    let [rows, columns] = [24, columns].map(|count| NonZero::new(count).unwrap());
    let mut screen = vt100::Parser::new(rows, columns, 0);
    screen.process(said.as_bytes());
    screen.screen().contents()
}

#[test]
fn a_terminal_shows_the_trial_at_hand_as_well() {
    let _beside = beside();
    let said = on_terminal(160);
    let drawn: Vec<&str> = said.split("\r\u{1b}[K").collect();
    for (test, words) in [("highest load", "trial 1 at 1,000 pps"), ("loss", "trial 1 at 1,000 pps")] {
        let line = drawn.iter().find(|line| line.ends_with(&format!(" left: 64 bytes, {test}: {words}")));
        let left = line.unwrap_or_else(|| panic!("{test}: {said:?}")).split_once(" left: ").unwrap().0;
        assert!(left.starts_with(|digit: char| digit.is_ascii_digit()) && left != "0 s", "{left}: {said:?}");
    }
    let ended = drawn.iter().filter(|line| line.contains(": lost ") || line.contains(": void, ")).count();
    assert!(ended >= 2, "each trial says what came of it: {said:?}");
    // What stays is what a pipe has: the line of the trial at hand is taken away.
    let shown = shown(&said, 160);
    let lines = tests(&shown);
    assert_eq!(lines.iter().map(|(test, _)| *test).collect::<Vec<_>>(), ["highest load", "loss"], "{shown}");
    assert!(lines[1].1 == "0 s" && !shown.contains("trial 1 at"), "{shown}");
}

#[test]
fn a_narrow_terminal_keeps_nothing_of_the_trial_at_hand() {
    let _beside = beside();
    for columns in [10, 40] {
        let said = on_terminal(columns);
        let drawn = said.split("\r\u{1b}[K").filter(|text| !text.contains('\n'));
        assert_eq!(drawn.map(|text| text.chars().count()).max(), Some(usize::from(columns) - 1), "{said:?}");
        // Lines of tests are whole, on as many lines as they need, and none is left of a trial.
        let shown = shown(&said, columns).replace('\n', "");
        assert!(shown.contains("64 bytes, loss: ") && !shown.contains("left: 64"), "{shown:?}");
    }
}
