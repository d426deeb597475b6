//! The live screen: how a run goes, and keys that steer it.

mod draw;

use super::desk::Desk;
use super::figures::Figures;
use ::control::Request;
use cli::exit::Failure;
use draw::{View, draw};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::io::{self, IsTerminal as _};
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

/// Whether there can be one.
pub(super) fn is_possible() -> bool {
    io::stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|name| name != "dumb")
}

/// The thread that draws.
#[derive(Debug)]
pub(super) struct Live(Receiver<()>);

/// A terminal that shows the screen, and is as it was before once this is dropped.
struct Opened {
    terminal: DefaultTerminal,
    /// A thread has panicked: its message is on the terminal, which is as before.
    panicked: Arc<AtomicBool>,
}

impl Live {
    /// Opens the screen. It closes when the run is over, or at a signal, which sets `interrupted`.
    pub(super) fn open(desk: Arc<Desk>, interrupted: Arc<AtomicBool>) -> Result<Self, Failure> {
        let opened = Opened::open()?;
        let (closed, closes) = channel();
        let show = move || {
            // Both are dropped in this order at any end.
            let (_closed, mut opened) = (closed, opened);
            if let Err(error) = show(&desk, &interrupted, &mut opened) {
                tracing::warn!("the live screen: {error}; the run goes on without it");
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
    fn open() -> io::Result<Self> {
        let terminal = ratatui::try_init()?;
        let panicked = Arc::new(AtomicBool::new(false));
        let (flag, restores) = (Arc::clone(&panicked), std::panic::take_hook());
        std::panic::set_hook(Box::new(move |panic| {
            flag.store(true, Ordering::Relaxed);
            restores(panic);
        }));
        Ok(Self { terminal, panicked })
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _ = ratatui::try_restore();
    }
}

fn show(desk: &Desk, interrupted: &AtomicBool, opened: &mut Opened) -> io::Result<()> {
    let mut view = View::default();
    let mut base: Option<(Instant, Figures)> = None;
    while !desk.wait(Duration::ZERO) && !interrupted.load(Ordering::Relaxed) && !opened.panicked.load(Ordering::Relaxed)
    {
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
        opened.terminal.draw(|frame| draw(frame, &view))?;
        let Ok(is_pressed) = event::poll(PAUSE) else {
            // Nobody can press keys; there is the rest.
            desk.wait(PAUSE);
            continue;
        };
        if !is_pressed {
            continue;
        }
        if let Ok(Event::Key(key)) = event::read() {
            view.message = press(desk, key, view.figures.as_ref());
        }
    }
    Ok(())
}

/// Does what a key stands for. Returns what is to be said of it.
fn press(desk: &Desk, key: KeyEvent, figures: Option<&Figures>) -> String {
    if key.kind == KeyEventKind::Release {
        return String::new();
    }
    let ask = |request: Request| desk.perform(&request).map(|_| ());
    let runs = figures.is_none_or(|figures| figures.running);
    let (done, words) = match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => (ask(Request::Quit {}), "ends"),
        KeyCode::Char('q') => (ask(Request::Quit {}), "ends"),
        KeyCode::Char('s' | ' ') if runs => (ask(Request::Stop {}), "stopped"),
        KeyCode::Char('s' | ' ') => (ask(Request::Start {}), "started"),
        KeyCode::Char('c') => (ask(Request::Clear {}), "counters begin anew"),
        KeyCode::Char('+') | KeyCode::Up => (desk.scale([11, 10]), "rates are 10 % higher"),
        KeyCode::Char('-') | KeyCode::Down => (desk.scale([9, 10]), "rates are 10 % lower"),
        _ => return String::new(),
    };
    done.err().unwrap_or_else(|| words.to_owned())
}
