//! The terminal that shows the live screen: after the end of a run, a panic or a signal that [`cli::stop`] catches it is as before.

use crate::control::orders::lock;
use anyhow::Context as _;
use cli::exit::Failure;
use cli::output::offer;
use ratatui::layout::Rect;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::getpgrp;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetpgrp, tcgetwinsize, tcsetattr};
use signal_hook::consts::SIGCONT;
use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _, Write};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

/// To the other screen, without cursor, and back (xterm's DECSET 1049 and 25).
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[2J";
const LEAVE: &str = "\x1b[0m\x1b[?1049l\x1b[?25h";
/// How long a terminal may take for a part of a screen; for the last words; and how often it is tried to say them.
const PATIENCE: Duration = Duration::from_millis(100);
const LAST_PATIENCE: Duration = Duration::from_secs(2);
const AGAIN: Duration = Duration::from_millis(2);
/// Columns and rows that are drawn at most, whatever a terminal says that it has; and of one that says nothing.
const LARGEST: [u16; 2] = [500, 300];
const USUAL: [u16; 2] = [80, 24];
/// Bytes of keys that are read at once: what a terminal holds.
const MOST_KEYS: usize = 4096;

/// A terminal: keys come from it, and it shows the screen for a time.
#[derive(Debug)]
pub(crate) struct Terminal {
    /// Where keys come from, which crossterm reads for ever once that is gone.
    keys: File,
    /// How it was before anything was changed.
    before: Termios,
    /// This process was stopped and goes on: meanwhile the terminal was another's, who may have left it as it likes.
    goes_on: Arc<AtomicBool>,
    /// Whoever writes or changes it holds this, so that nothing is drawn after it was given back.
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Before,
    Shows,
    /// This process is in the background: the terminal is another's, and whoever changes it then is stopped (SIGTTOU).
    Away,
    GivenBack,
}

impl Terminal {
    /// Finds it; `None` where there can be no screen, as standard output is none.
    pub(crate) fn find() -> Result<Option<Arc<Self>>, Failure> {
        if !io::stdout().is_terminal() || std::env::var_os("TERM").is_some_and(|name| name == "dumb") {
            return Ok(None);
        }
        let input = io::stdin();
        let keys = match input.is_terminal() {
            true => input.as_fd().try_clone_to_owned().map(File::from),
            false => File::open("/dev/tty"),
        };
        let found = keys.and_then(|keys| Ok((tcgetattr(&keys)?, keys)));
        let (before, keys) =
            found.context("--live: there is no terminal to read keys from; run it on one, or leave --live out")?;
        if !is_in_foreground(&keys) {
            let why = "--live: this process is in the background; run it in the foreground, or leave --live out";
            return Err(Failure::usage(why));
        }
        let goes_on = Arc::default();
        signal_hook::flag::register(SIGCONT, Arc::clone(&goes_on)).context("--live: cannot see when it goes on")?;
        Ok(Some(Arc::new(Self { keys, before, goes_on, state: Mutex::new(State::Before) })))
    }

    /// Shows the screen, which is empty, and takes keys without waiting for whole lines.
    pub(super) fn enter(&self) -> io::Result<()> {
        let mut state = lock(&self.state);
        if *state != State::Before {
            return Err(io::Error::other("it was given back already"));
        }
        *state = State::Away;
        self.look(&mut state).map(drop)
    }

    /// Notes whether the terminal is this process's: if it is so again, or was another's meanwhile, shows the screen, which is empty. Returns
    /// whether what was drawn is still there.
    fn look(&self, state: &mut State) -> io::Result<bool> {
        match (*state, is_in_foreground(&self.keys)) {
            (State::Shows, true) if !self.goes_on.swap(false, Ordering::Relaxed) && self.is_raw()? => Ok(true),
            (State::Shows | State::Away, true) => {
                let mut raw = self.before.clone();
                raw.make_raw();
                tcsetattr(&self.keys, OptionalActions::Now, &raw)?;
                *state = State::Shows;
                offer(io::stdout(), ENTER, PATIENCE).map(|_| false)
            }
            (State::Shows, false) => {
                *state = State::Away;
                self.leave().map(|()| false)
            }
            _ => Ok(*state != State::Away),
        }
    }

    /// Whether keys come without waiting for whole lines.
    fn is_raw(&self) -> io::Result<bool> {
        Ok(!tcgetattr(&self.keys)?.local_modes.intersects(LocalModes::ICANON | LocalModes::ECHO))
    }

    /// Goes back to the other screen, unless that stops this process.
    fn leave(&self) -> io::Result<()> {
        let stops = tcgetattr(&self.keys)?.local_modes.contains(LocalModes::TOSTOP);
        if stops && !is_in_foreground(&self.keys) {
            Ok(())
        } else {
            offer(io::stdout(), LEAVE, LAST_PATIENCE).map(drop)
        }
    }

    /// Whether it shows the screen, or will when this process is in the foreground again.
    pub(super) fn shows(&self) -> bool {
        matches!(*lock(&self.state), State::Shows | State::Away)
    }

    /// Makes it as it was before, from any thread and as often as one likes; nothing is drawn from then on. One that takes nothing is not
    /// waited for: then only the screen stays.
    pub(crate) fn give_back(&self) {
        let mut state = self.state_soon();
        let was = state.as_deref_mut().map(|state| std::mem::replace(state, State::GivenBack));
        if was.is_none_or(|was| was == State::Shows) {
            // What is gone needs nothing, and what is another's is as that one wants it.
            if is_in_foreground(&self.keys) {
                let _ = tcsetattr(&self.keys, OptionalActions::Now, &self.before);
            }
            let _ = self.leave();
        }
    }

    /// The state, once nobody draws; `None` if that takes too long.
    fn state_soon(&self) -> Option<MutexGuard<'_, State>> {
        let begun = Instant::now();
        loop {
            match self.state.try_lock() {
                Ok(state) => return Some(state),
                Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) if begun.elapsed() >= LAST_PATIENCE => return None,
                Err(TryLockError::WouldBlock) => std::thread::sleep(AGAIN),
            }
        }
    }

    /// What there is to draw on.
    pub(super) fn area(&self) -> Rect {
        let size = tcgetwinsize(io::stdout()).map_or([0; 2], |size| [size.ws_col, size.ws_row]);
        let [columns, rows] = [0, 1].map(|at| if size[at] == 0 { USUAL[at] } else { size[at].min(LARGEST[at]) });
        Rect::new(0, 0, columns, rows)
    }

    /// Waits for keys, so long at most, and returns those that have come together. An error if the terminal is gone.
    pub(super) fn keys(&self, limit: Duration) -> io::Result<Vec<char>> {
        if !is_in_foreground(&self.keys) {
            // They are another's.
            std::thread::sleep(limit);
            return Ok(Vec::new());
        }
        let limit = Timespec::try_from(limit).ok();
        // An interrupted wait is a short one.
        if !poll(&mut [PollFd::new(&self.keys, PollFlags::IN)], limit.as_ref()).is_ok_and(|count| count > 0) {
            return Ok(Vec::new());
        }
        let mut bytes = [0; MOST_KEYS];
        match (&self.keys).read(&mut bytes) {
            Ok(0) => Err(io::Error::other("the terminal is gone")),
            Ok(count) => Ok(merged(&bytes[..count])),
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {
                Ok(Vec::new())
            }
            Err(error) => Err(error),
        }
    }
}

/// Whether a terminal is this process's; also if it is nobody's.
fn is_in_foreground(terminal: &File) -> bool {
    tcgetpgrp(terminal).map_or(true, |group| group == getpgrp())
}

/// What is drawn, until it is written in one go.
#[derive(Debug)]
pub(super) struct Drawing {
    terminal: Arc<Terminal>,
    text: Vec<u8>,
}

impl Drawing {
    pub(super) fn on(terminal: &Arc<Terminal>) -> Self {
        Self { terminal: Arc::clone(terminal), text: Vec::new() }
    }
}

impl Write for Drawing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    /// An error of the kind [`io::ErrorKind::TimedOut`] if the terminal has not taken all of it.
    fn flush(&mut self) -> io::Result<()> {
        let text = std::mem::take(&mut self.text);
        let mut state = lock(&self.terminal.state);
        if !self.terminal.look(&mut state)? {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match *state == State::Shows && !offer(io::stdout(), &String::from_utf8_lossy(&text), PATIENCE)? {
            true => Err(io::ErrorKind::TimedOut.into()),
            false => Ok(()),
        }
    }
}

/// Keys that came together: each once, and nothing else where `q` or Ctrl-C is one. Arrows are `+` and `-`.
fn merged(mut bytes: &[u8]) -> Vec<char> {
    let mut keys = Vec::new();
    while let [first, rest @ ..] = bytes {
        bytes = rest;
        let key = match (first, rest) {
            (0x1b, [b'[' | b'O', sequence @ ..]) => {
                let end = sequence.iter().position(|byte| (0x40..=0x7e).contains(byte)).unwrap_or(sequence.len());
                bytes = sequence.get(end + 1..).unwrap_or_default();
                match sequence {
                    [b'A', ..] => '+',
                    [b'B', ..] => '-',
                    _ => continue,
                }
            }
            (0x03 | b'q', _) => return vec!['q'],
            (b' ', _) => 's',
            (byte, _) => char::from(*byte),
        };
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_come_together_are_done_once_and_an_end_first() {
        let keys = |text: &str| merged(text.as_bytes()).into_iter().collect::<String>();
        assert_eq!(keys(&"+-+s ".repeat(1000)), "+-s");
        assert_eq!(keys("++c+q+q"), "q");
        assert_eq!(keys("s\x03c"), "q");
        assert_eq!(keys("\x1b[A\x1bOB\x1b[1;5q\x1b[A"), "+-");
        for nothing in ["", "\x1b[", "\x1bO", "\x1b[12;"] {
            assert_eq!(keys(nothing), "");
        }
    }
}
