//! How a run is steered while it runs: over a socket, by a script, or by keys of the live screen. All of them ask at one desk
//! (`desk.rs`), which tells the workers (`orders.rs`).

mod desk;
mod figures;
mod live;
mod orders;
mod script;
mod server;

pub(crate) use desk::{Desk, Facts};
pub(crate) use orders::{DirectionState, Orders, Pace, PairState, StreamState, Wanted, lock};
pub(crate) use script::Script;
pub(crate) use server::Listener;

use crate::args::ControlArgs;
use crate::clock::ClockReport;
use crate::trial::Phase;
use cli::exit::Failure;
use cli::report::Totals;
use live::{Live, Terminal};
use script::Playing;
use server::Server;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What steers a run, before there is a run.
#[derive(Debug, Default)]
pub(crate) struct Controls {
    listener: Option<Listener>,
    script: Option<Script>,
    /// Nothing that counts is sent before a start.
    stopped: bool,
    /// What a live screen is to be shown on.
    live: Option<Arc<Terminal>>,
}

/// What steers a run while there is one.
#[derive(Debug)]
pub(crate) struct Steering {
    desk: Arc<Desk>,
    server: Option<Server>,
    playing: Option<Playing>,
    live: Option<Live>,
}

impl Controls {
    /// Reads the script and opens the socket, as far as there are any.
    pub(crate) fn open(args: &ControlArgs) -> Result<Self, Failure> {
        let script = args.script.as_deref().map(Script::read).transpose()?;
        // Where there is no terminal there are lines.
        let live = if args.live { Terminal::find()? } else { None };
        if args.stopped && script.is_none() && args.control.is_none() && live.is_none() {
            return Err(Failure::usage(
                "--stopped: nobody could start it; add --control, --script, or --live on a terminal",
            ));
        }
        let listener = args.control.as_ref().map(Listener::open).transpose()?;
        Ok(Self { listener, script, stopped: args.stopped, live })
    }

    /// Whether somebody ends the run, so that it needs no end of its own.
    pub(crate) fn are_any(&self) -> bool {
        self.listener.is_some() || self.script.is_some() || self.live.is_some()
    }

    /// Whether there is a live screen, so that nothing else is to be shown.
    pub(crate) fn are_live(&self) -> bool {
        self.live.is_some()
    }

    /// Whether nothing that counts is sent before a start.
    pub(crate) fn begin_stopped(&self) -> bool {
        self.stopped
    }

    /// Returns what is to be done before a process ends in mid-run: the terminal is given back, and the socket's file removed.
    pub(crate) fn clean_up(&self) -> impl FnOnce() + Send + 'static {
        let path = self.listener.as_ref().and_then(Listener::path).map(Path::to_owned);
        let terminal = self.live.clone();
        move || {
            terminal.into_iter().for_each(|terminal| terminal.give_back());
            // What is gone needs no more.
            path.into_iter().for_each(|path| _ = std::fs::remove_file(path));
        }
    }

    /// Returns where the socket listens.
    pub(crate) fn address(&self) -> Option<String> {
        self.listener.as_ref().map(Listener::to_string)
    }

    /// Begins to steer. A signal sets `interrupted`.
    pub(crate) fn begin(
        self,
        orders: Arc<Orders>,
        facts: Facts,
        interrupted: Arc<AtomicBool>,
    ) -> Result<Steering, Failure> {
        let has_end = facts.has_end || self.listener.is_some() || self.script.is_some();
        let facts = Facts { has_end, ..facts };
        let desk = Arc::new(Desk::new(orders, facts));
        let mut steering = Steering { desk, server: None, playing: None, live: None };
        match steering.begin(self, interrupted) {
            Ok(()) => Ok(steering),
            Err(failure) => {
                // What has begun is ended: the socket's file goes, and the terminal is as before.
                let _ = steering.end();
                Err(failure)
            }
        }
    }
}

impl Steering {
    fn begin(&mut self, controls: Controls, interrupted: Arc<AtomicBool>) -> Result<(), Failure> {
        let desk = || Arc::clone(&self.desk);
        self.server = controls.listener.map(|listener| Server::start(listener, desk())).transpose()?;
        self.live = controls.live.map(|terminal| Live::open(desk(), terminal, interrupted)).transpose()?;
        self.playing = controls.script.map(|script| script.play(desk())).transpose()?;
        Ok(())
    }

    /// Notes how ports are, and how exact times.
    pub(crate) fn note(&self, totals: &Totals, clock: ClockReport) {
        self.desk.note(totals, clock);
    }

    /// Ends it when the run is over: who listens is told. Returns how the script ended.
    pub(crate) fn end(self) -> Result<(), Failure> {
        self.desk.close();
        drop(self.live);
        let played = self.playing.map_or(Ok(()), Playing::end);
        if let Some(server) = self.server {
            server.end();
        }
        played
    }
}

/// A phase, in a word.
fn phase_word(phase: Phase) -> &'static str {
    match phase {
        Phase::Probe => "probe",
        Phase::WarmUp => "warm-up",
        Phase::Counted => "counted",
        Phase::Flush | Phase::Drain => "drain",
        Phase::Done => "done",
    }
}
