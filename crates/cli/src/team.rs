//! Worker threads, and the main thread that watches them.

use crate::args::RunOptions;
use crate::counters::Published;
use crate::exit::Failure;
use crate::report::Totals;
use crate::screen::Screen;
use crate::stop::Stop;
use ::lcore::Error;
pub use ::lcore::Team;
use anyhow::anyhow;
use nic::{AnyPort, Port as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Starts a thread for each member, pinned to its lcore if it has one. The end of each thread wakes the thread that
/// waits on `stop`.
///
/// # Errors
///
/// If a thread cannot be started or pinned.
pub fn start<T, F>(members: Vec<(Option<usize>, F)>, stop: &Stop) -> Result<Team<T>, Failure>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    let waker = stop.waker()?;
    Team::start_with(members, &stop.flag(), move || waker.wake()).map_err(failure)
}

/// Waits for all threads.
///
/// # Errors
///
/// If one of them panicked.
pub fn join<T: Send + 'static>(team: Team<T>) -> Result<Vec<T>, Failure> {
    team.join().map_err(failure)
}

/// The error in the words of the command line.
fn failure(error: Error) -> Failure {
    match error {
        Error::Pin { lcore, error } => {
            anyhow!("lcore {lcore}: cannot pin a thread to it: {error}; choose another with --lcores").into()
        }
        Error::Panicked { .. } => {
            anyhow!("worker: stopped by a fault in this program; please report the message above").into()
        }
        other => anyhow::Error::from(other).into(),
    }
}

/// Watches a run until a signal, until `--duration` is over, until `finished` or (with `--exit-when-idle`) `idle`
/// returns true. Shows `totals` once a second, and calls `events` as soon as one of `event_fds` is readable. Returns
/// how long the run took. The workers continue: see [`crate::ports::stop_receiving`].
///
/// # Errors
///
/// Those of `totals` and `events`.
#[expect(clippy::too_many_arguments, reason = "what to watch, and what to ask of it")]
pub fn watch(
    stop: &Stop,
    options: &RunOptions,
    begun: Instant,
    screen: &mut Screen,
    event_fds: &[OwnedFd],
    mut events: impl FnMut() -> Result<(), Failure>,
    mut totals: impl FnMut(Duration) -> Result<Totals, Failure>,
    mut finished: impl FnMut() -> bool,
    mut idle: impl FnMut() -> bool,
) -> Result<Duration, Failure> {
    let end = options.duration.and_then(|duration| begun.checked_add(duration));
    let mut tick = begun + TICK;
    let mut shown = Ok(());
    while !stop.is_requested() && !finished() && shown.is_ok() {
        let now = Instant::now();
        if end.is_some_and(|end| now >= end) || (options.exit_when_idle && idle()) {
            break;
        }
        if now >= tick {
            shown = totals(begun.elapsed()).map(|totals| screen.update(totals));
            // Of seconds that this process was stopped for, or its output stalled, one is shown.
            while tick <= now {
                tick += TICK;
            }
        }
        let mut until = end.map_or(tick, |end| end.min(tick));
        if options.exit_when_idle {
            until = until.min(now + IDLE_CHECK);
        }
        stop.wait(until.saturating_duration_since(Instant::now()), event_fds.iter().map(OwnedFd::as_fd));
        if shown.is_ok() {
            shown = events();
        }
    }
    shown.map(|()| begun.elapsed())
}

/// How often the live table is renewed.
const TICK: Duration = Duration::from_secs(1);
/// How often to look whether all is idle.
const IDLE_CHECK: Duration = Duration::from_millis(5);

/// Determines when nothing is left to do: every source has played, every frame has been sent (or never will be, as the
/// wire is gone), and all workers have polled all their queues since then and found nothing.
#[derive(Debug)]
pub struct IdleWatch {
    published: Vec<Arc<Published>>,
    /// Publications when sources and transmit rings were first found done.
    since: Option<Vec<u64>>,
}

impl IdleWatch {
    /// Creates it for workers that publish to `published`.
    #[must_use]
    pub fn new(published: Vec<Arc<Published>>) -> Self {
        Self { published, since: None }
    }

    /// Returns whether all is idle; to be called repeatedly.
    pub fn is_idle<'a>(&mut self, mut ports: impl Iterator<Item = &'a AnyPort>) -> bool {
        if !ports.all(|port| port.source_finished() && (port.transmit_idle() || port.wire_gone())) {
            self.since = None;
            return false;
        }
        let Some(since) = &self.since else {
            self.since = Some(self.published.iter().map(|published| published.publications()).collect());
            return false;
        };
        // The first publication may cover a time before; the second covers a time after, all of it.
        let mut all = true;
        for (published, since) in self.published.iter().zip(since) {
            let passed = published.publications() - since;
            if published.idle() < passed {
                // Something moved: once more.
                self.since = None;
                return false;
            }
            all &= passed >= 2;
        }
        all
    }
}
