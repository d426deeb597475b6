//! The live screen: how a run goes, and keys that steer it.

mod draw;

use super::desk::Desk;
use super::figures::Figures;
use ::control::Request;
use anyhow::Context as _;
use cli::exit::Failure;
use draw::{View, draw};
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{self, EnterAlternateScreen};
use ratatui::layout::Rect;
use ratatui::{DefaultTerminal, TerminalOptions, Viewport};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// How often it is drawn, and how soon a signal is seen.
const PAUSE: Duration = Duration::from_millis(100);
/// Over which rates are.
const RATES: Duration = Duration::from_millis(500);
/// How long a terminal may take for the last words.
const PATIENCE: Duration = Duration::from_secs(2);
/// Columns and rows that are drawn at most, whatever a terminal says that it has.
const LARGEST: u16 = 1000;
/// Bytes of keys that are looked at before it is drawn again: what a terminal holds.
const MOST_KEYS: usize = 4096;

/// The terminal that keys come from. It is read here: crossterm reads for ever from one that is gone, and leaves the rest of many keys that
/// come together until there is another.
#[derive(Debug)]
pub(super) struct Keyboard {
    terminal: File,
    /// There is a screen on it.
    shown: Arc<AtomicBool>,
}

impl Keyboard {
    /// Finds it; `None` where there can be no screen, as there is no terminal to draw on.
    pub(super) fn find() -> Result<Option<Self>, Failure> {
        if !io::stdout().is_terminal() || std::env::var_os("TERM").is_some_and(|name| name == "dumb") {
            return Ok(None);
        }
        let terminal = match io::stdin() {
            input if input.is_terminal() => input.as_fd().try_clone_to_owned().map(File::from),
            _ => File::open("/dev/tty"),
        };
        let terminal = terminal.context("--live: no terminal to read keys from; run it on one, or leave --live out")?;
        Ok(Some(Self { terminal, shown: Arc::default() }))
    }

    /// Returns what gives the terminal back, also in the midst of a run.
    pub(super) fn give_back(&self) -> impl FnOnce() + Send + 'static {
        let shown = Arc::clone(&self.shown);
        move || {
            if shown.swap(false, Ordering::Relaxed) {
                let _ = terminal::disable_raw_mode();
                let (done, waits) = channel();
                // A terminal that takes nothing is not waited for.
                std::thread::spawn(move || {
                    let _ = ratatui::try_restore();
                    let _ = execute!(io::stdout(), Show);
                    let _ = done.send(());
                });
                let _ = waits.recv_timeout(PATIENCE);
            }
        }
    }

    /// Waits for keys. An error if there is no terminal any more.
    fn keys(&self) -> io::Result<Vec<char>> {
        let mut fds = [PollFd::new(&self.terminal, PollFlags::IN)];
        let limit = Timespec::try_from(PAUSE).ok();
        // An interrupted wait is a short one.
        if !poll(&mut fds, limit.as_ref()).is_ok_and(|count| count > 0) {
            return Ok(Vec::new());
        }
        let mut bytes = [0; MOST_KEYS];
        match (&self.terminal).read(&mut bytes) {
            Ok(0) => Err(io::Error::other("the terminal is gone")),
            Ok(count) => Ok(merged(&bytes[..count])),
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {
                Ok(Vec::new())
            }
            Err(error) => Err(error),
        }
    }
}

/// The thread that draws.
#[derive(Debug)]
pub(super) struct Live(Receiver<()>);

/// A terminal that shows the screen, and is as it was before once this is dropped.
struct Opened {
    terminal: DefaultTerminal,
    keyboard: Keyboard,
    /// A thread has panicked: its message is on the terminal, which is as before.
    panicked: Arc<AtomicBool>,
}

impl Live {
    /// Opens the screen. It closes when the run is over, or at a signal, which sets `interrupted`.
    pub(super) fn open(desk: Arc<Desk>, keyboard: Keyboard, interrupted: Arc<AtomicBool>) -> Result<Self, Failure> {
        let opened = Opened::open(keyboard).context("--live: cannot draw on this terminal; leave --live out")?;
        let (closed, closes) = channel();
        let show = move || {
            // Both are dropped in this order at any end.
            let (_closed, mut opened) = (closed, opened);
            if let Err(error) = show(&desk, &interrupted, &mut opened) {
                // Nobody else may be there to end it.
                let _ = desk.perform(&Request::Quit {});
                tracing::warn!("the live screen: {error}; the run ends");
            }
        };
        std::thread::Builder::new().name("live".to_owned()).spawn(show)?;
        Ok(Self(closes))
    }

    /// Waits until the terminal is as before. One that takes nothing is not waited for.
    pub(super) fn close(self) {
        let _ = self.0.recv_timeout(PATIENCE);
    }
}

impl Opened {
    fn open(keyboard: Keyboard) -> io::Result<Self> {
        keyboard.shown.store(true, Ordering::Relaxed);
        let opened = ratatui::try_init_with_options(TerminalOptions { viewport: Viewport::Fixed(area()) })
            .and_then(|terminal| execute!(io::stdout(), EnterAlternateScreen).map(|()| terminal));
        let terminal = opened.inspect_err(|_| {
            keyboard.shown.store(false, Ordering::Relaxed);
            let _ = ratatui::try_restore();
        })?;
        let panicked = Arc::new(AtomicBool::new(false));
        let (flag, restores) = (Arc::clone(&panicked), std::panic::take_hook());
        std::panic::set_hook(Box::new(move |panic| {
            flag.store(true, Ordering::Relaxed);
            restores(panic);
        }));
        Ok(Self { terminal, keyboard, panicked })
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _ = ratatui::try_restore();
        self.keyboard.shown.store(false, Ordering::Relaxed);
    }
}

/// What there is to draw on.
fn area() -> Rect {
    let (columns, rows) = terminal::size().unwrap_or((80, 24));
    Rect::new(0, 0, columns.min(LARGEST), rows.min(LARGEST))
}

fn show(desk: &Desk, interrupted: &AtomicBool, opened: &mut Opened) -> io::Result<()> {
    let mut view = View::default();
    let mut base: Option<(Instant, Figures)> = None;
    let is_over = |opened: &Opened| {
        let is_given_back = !opened.keyboard.shown.load(Ordering::Relaxed) || opened.panicked.load(Ordering::Relaxed);
        is_given_back || interrupted.load(Ordering::Relaxed) || desk.is_closed()
    };
    while !is_over(opened) {
        match desk.figures() {
            Ok(mut figures) => {
                figures.since(base.as_ref().map(|(_, figures)| figures));
                if base.as_ref().is_none_or(|(at, _)| at.elapsed() >= RATES) {
                    base = Some((Instant::now(), figures.clone()));
                    view.figures = Some(figures);
                } else if let Some(shown) = &mut view.figures {
                    // Counts are new, rates those of the last half second.
                    figures.keep_rates(shown);
                    *shown = figures;
                }
            }
            Err(why) => view.message = why,
        }
        let area = area();
        if opened.terminal.get_frame().area() != area {
            opened.terminal.resize(area)?;
        }
        opened.terminal.draw(|frame| draw(frame, &view))?;
        for key in opened.keyboard.keys()? {
            view.message = press(desk, key, view.figures.as_ref());
        }
    }
    Ok(())
}

/// The keys that came together: each once, and nothing else where `q` or Ctrl-C is one. Arrows are `+` and `-`.
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

/// Does what a key stands for. Returns what is to be said of it.
fn press(desk: &Desk, key: char, figures: Option<&Figures>) -> String {
    let ask = |request: Request| desk.perform(&request).map(|_| ());
    let runs = figures.is_none_or(|figures| figures.running);
    let (done, words) = match key {
        'q' => (ask(Request::Quit {}), "ends"),
        's' if runs => (ask(Request::Stop {}), "stopped"),
        's' => (ask(Request::Start {}), "started"),
        'c' => (ask(Request::Clear {}), "counters begin anew"),
        '+' => (desk.scale([11, 10]), "rates are 10 % higher"),
        '-' => (desk.scale([9, 10]), "rates are 10 % lower"),
        _ => return String::new(),
    };
    done.err().unwrap_or_else(|| words.to_owned())
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
