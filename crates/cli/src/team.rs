//! Worker threads, and the main thread that watches them.

use crate::args::RunOptions;
use crate::counters::Published;
use crate::exit::Failure;
use crate::lcore;
use crate::report::Totals;
use crate::screen::Screen;
use crate::stop::{Stop, Waker};
use anyhow::anyhow;
use nic::Port;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Threads at work; each returns a `T` when it is done.
#[derive(Debug)]
pub struct Team<T> {
    threads: Vec<JoinHandle<T>>,
    finished: Arc<AtomicUsize>,
    begun: Instant,
}

impl<T: Send + 'static> Team<T> {
    /// Starts a thread for each member, pinned to its lcore if it has one.
    ///
    /// # Errors
    ///
    /// When a thread cannot be made or pinned.
    pub fn start<F>(members: Vec<(Option<usize>, F)>, stop: &Stop) -> Result<Self, Failure>
    where
        F: FnOnce() -> T + Send + 'static,
    {
        let (pinned, results) = mpsc::channel();
        let mut threads = Vec::with_capacity(members.len());
        let finished = Arc::<AtomicUsize>::default();
        for (lcore, work) in members {
            let (pinned, ending) = (pinned.clone(), Ending { finished: Arc::clone(&finished), waker: stop.waker()? });
            let name = lcore.map_or("worker".to_owned(), |lcore| format!("lcore-{lcore}"));
            let body = move || {
                let _ending = ending;
                let result = lcore.map_or(Ok(()), lcore::pin);
                // The receiver waits for one result of each thread.
                let _ = pinned.send(result.map_err(|error| (lcore, error)));
                work()
            };
            let spawned = std::thread::Builder::new().name(name.clone()).spawn(body);
            threads.push(spawned.map_err(|error| {
                stop.request();
                anyhow!("cannot start thread {name}: {error}; allow more threads (`ulimit -u`) or memory (`ulimit -v`)")
            })?);
        }
        drop(pinned);
        for result in results.iter().take(threads.len()) {
            if let Err((lcore, error)) = result {
                stop.request();
                let lcore = lcore.unwrap_or_default();
                return Err(
                    anyhow!("lcore {lcore}: cannot pin a thread to it: {error}; choose another with --lcores").into()
                );
            }
        }
        Ok(Self { threads, finished, begun: Instant::now() })
    }

    /// Whether a thread has done its work, or failed.
    #[must_use]
    pub fn any_finished(&self) -> bool {
        self.finished.load(Ordering::Acquire) > 0
    }

    /// Whether all threads have.
    #[must_use]
    pub fn all_finished(&self) -> bool {
        self.finished.load(Ordering::Acquire) == self.threads.len()
    }

    /// When they began.
    #[must_use]
    pub fn begun(&self) -> Instant {
        self.begun
    }

    /// Waits for all threads.
    ///
    /// # Errors
    ///
    /// When one of them panicked.
    pub fn join(self) -> Result<Vec<T>, Failure> {
        let results: Vec<_> = self.threads.into_iter().map(JoinHandle::join).collect();
        let all: Result<Vec<T>, _> = results.into_iter().collect();
        all.map_err(|_| anyhow!("worker: stopped by a fault in this program; please report the message above").into())
    }
}

/// Tells the main thread of the end of a worker, whether it comes by return or by panic.
#[derive(Debug)]
struct Ending {
    finished: Arc<AtomicUsize>,
    waker: Waker,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.finished.fetch_add(1, Ordering::Release);
        self.waker.wake();
    }
}

/// Watches a run until a signal, `--duration`, `finished`, or (with `--exit-when-idle`) until `idle`. Shows `totals` once
/// a second, and asks for `events` as soon as one of `event_fds` is readable. Returns how long it ran. The workers go on: see
/// [`crate::ports::stop_receiving`].
///
/// # Errors
///
/// What `totals` or `events` fail with.
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

/// The rounds that a worker still makes when it has seen the stop flag: one at least, as the round in which it sees the flag may have
/// looked at a ring before the last frames came; then as long as frames come, but no more than the largest ring has descriptors,
/// for a device that goes on taking them from the wire.
#[derive(Debug, Default)]
pub struct LastRounds(u32);

impl LastRounds {
    /// After each round with the flag set: whether it was the last. `moved` says that frames came in it.
    #[must_use]
    pub fn is_over(&mut self, moved: bool) -> bool {
        self.0 += 1;
        (self.0 > 1 && !moved) || self.0 > 4096
    }
}

/// How often the live table is renewed.
const TICK: Duration = Duration::from_secs(1);
/// How often to look whether all is idle.
const IDLE_CHECK: Duration = Duration::from_millis(5);

/// Tells when nothing is left to do: every source has played, every frame has been sent (or never will be, as the wire is gone), and
/// all workers have looked at all their queues since then and found nothing.
#[derive(Debug)]
pub struct IdleWatch {
    published: Vec<Arc<Published>>,
    /// Publications when sources and transmit rings were first found done.
    since: Option<Vec<u64>>,
}

impl IdleWatch {
    /// For workers that publish to `published`.
    #[must_use]
    pub fn new(published: Vec<Arc<Published>>) -> Self {
        Self { published, since: None }
    }

    /// Whether all is idle; to be asked again and again.
    pub fn is_idle<'a>(&mut self, mut ports: impl Iterator<Item = &'a Port>) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_looks_once_more_and_ends_for_all_that() {
        let mut quiet = LastRounds::default();
        assert!(!quiet.is_over(false), "what it saw may be of before the flag");
        assert!(quiet.is_over(false));
        let mut busy = LastRounds::default();
        assert_eq!((0..10_000).position(|_| busy.is_over(true)), Some(4096));
    }
}
