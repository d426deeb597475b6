//! The live screen: how a run goes, and keys that steer it.

mod draw;
mod terminal;

pub(super) use terminal::Terminal;

use super::desk::Desk;
use super::figures::Figures;
use ::control::Request;
use anyhow::Context as _;
use cli::exit::Failure;
use draw::{View, draw};
use ratatui::backend::CrosstermBackend;
use ratatui::{TerminalOptions, Viewport};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use terminal::Drawing;

/// How often it is drawn, and how soon a signal is seen.
const PAUSE: Duration = Duration::from_millis(100);
/// Over which rates are.
const RATES: Duration = Duration::from_millis(500);

/// A screen that is shown. Once this is dropped the terminal is as before.
#[derive(Debug)]
pub(super) struct Live(Arc<Terminal>);

/// What the thread that draws does so on.
struct Canvas {
    terminal: Arc<Terminal>,
    drawn: ratatui::Terminal<CrosstermBackend<Drawing>>,
    /// The terminal has not taken all that was drawn.
    is_stale: bool,
}

impl Live {
    /// Opens the screen. It closes when the run is over, or at a signal, which sets `interrupted`. A terminal that is gone ends the run
    /// if nothing else does.
    pub(super) fn open(
        desk: Arc<Desk>,
        terminal: Arc<Terminal>,
        interrupted: Arc<AtomicBool>,
    ) -> Result<Self, Failure> {
        let options = TerminalOptions { viewport: Viewport::Fixed(terminal.area()) };
        let drawn = ratatui::Terminal::with_options(CrosstermBackend::new(Drawing::on(&terminal)), options)?;
        let live = Self(Arc::clone(&terminal));
        terminal.enter().context("--live: cannot draw on this terminal; leave --live out")?;
        give_back_at_a_panic(&terminal);
        let show = move || {
            let mut canvas = Canvas { terminal, drawn, is_stale: false };
            let shown = show(&desk, &interrupted, &mut canvas);
            canvas.terminal.give_back();
            let Err(error) = shown else { return };
            if desk.ends_without_keys() {
                tracing::warn!("the live screen: {error}; the run goes on without it");
            } else {
                tracing::warn!("the live screen: {error}; the run ends, as nothing else would end it");
                // A run that does not answer is at its end.
                let _ = desk.perform(&Request::Quit {});
            }
        };
        std::thread::Builder::new().name("live".to_owned()).spawn(show)?;
        Ok(live)
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

/// So that its message can be read.
fn give_back_at_a_panic(terminal: &Arc<Terminal>) {
    let (terminal, tell) = (Arc::clone(terminal), std::panic::take_hook());
    std::panic::set_hook(Box::new(move |panic| {
        terminal.give_back();
        tell(panic);
    }));
}

impl Canvas {
    fn draw(&mut self, view: &View) -> io::Result<()> {
        let area = self.terminal.area();
        let drawn = match self.is_stale || self.drawn.get_frame().area() != area {
            // Which draws all of it anew.
            true => self.drawn.resize(area),
            false => Ok(()),
        };
        let drawn = drawn.and_then(|()| self.drawn.draw(|frame| draw(frame, view)).map(drop));
        self.is_stale = drawn.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::TimedOut);
        if self.is_stale { Ok(()) } else { drawn }
    }
}

fn show(desk: &Desk, interrupted: &AtomicBool, canvas: &mut Canvas) -> io::Result<()> {
    let mut view = View::default();
    let mut base: Option<(Instant, Figures)> = None;
    while !desk.is_closed() && !interrupted.load(Ordering::Relaxed) && canvas.terminal.shows() {
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
        canvas.draw(&view)?;
        for key in canvas.terminal.keys(PAUSE)? {
            view.message = press(desk, key, view.figures.as_ref());
        }
    }
    Ok(())
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
