//! The routes file, read at the start and again at each SIGHUP, by a thread of its own: a million routes take a
//! moment.

use crate::json::RoutesReport;
use anyhow::anyhow;
use cli::exit::Failure;
use cli::human::{counted, grouped};
use cli::output;
use cli::stop::{Stop, Waker};
use router::{Fib, Routes};
use signal_hook::consts::SIGHUP;
use signal_hook::iterator::{Handle, Signals};
use std::convert::Infallible;
use std::io;
use std::mem;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Reads the routes file.
#[derive(Debug)]
pub(crate) struct Reloader {
    file: RoutesFile,
    signals: Signals,
}

#[derive(Clone, Debug)]
struct RoutesFile {
    path: PathBuf,
    ports: usize,
}

impl Reloader {
    /// For a file of routes between so many ports. Catches SIGHUP from here on.
    ///
    /// # Errors
    ///
    /// When the process has no file descriptors left.
    pub(crate) fn on_hangup(path: &Path, ports: usize) -> io::Result<Self> {
        Ok(Self { file: RoutesFile { path: path.to_owned(), ports }, signals: Signals::new([SIGHUP])? })
    }

    /// Reads the file. A signal that `stop` catches ends the wait for it at once.
    ///
    /// # Errors
    ///
    /// When it cannot be read, or is no routes file: one line with the place and the next step. After a signal, and when no
    /// thread can be made.
    pub(crate) fn read(&self, stop: &Stop) -> Result<Routes, Failure> {
        let file = self.file.clone();
        match unless_signalled(stop, move || file.read())? {
            Some(read) => Ok(read?),
            None => {
                let name = self.file.path.display();
                Err(anyhow!("{name}: interrupted by a signal while routes were read").into())
            }
        }
    }

    /// Replaces the routes of `fib` at each SIGHUP from here on.
    ///
    /// # Errors
    ///
    /// When no thread can be made.
    pub(crate) fn start(self, mut fib: Fib) -> anyhow::Result<Reloading> {
        let Self { file, mut signals } = self;
        let (ipv4, ipv6) = fib.route_counts();
        let report = RoutesReport { ipv4, ipv6, ..RoutesReport::default() };
        let state = Arc::new(Mutex::new(State { report, under_way: false }));
        let (handle, shared) = (signals.handle(), Arc::clone(&state));
        let (ended, has_ended) = mpsc::channel();
        let body = move || {
            signals.forever().for_each(|_| file.reload(&mut fib, &shared));
            drop(ended);
        };
        let thread = spawn(body)?;
        Ok(Reloading { state, handle, thread, has_ended })
    }
}

/// Starts the thread that reads routes.
fn spawn<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> anyhow::Result<JoinHandle<T>> {
    std::thread::Builder::new().name("routes".to_owned()).spawn(body).map_err(|error| {
        anyhow!("cannot start the thread that reads routes: {error}; allow more threads (`ulimit -u`) or memory (`ulimit -v`)")
    })
}

/// What `work` returns, or `None` after a signal: then the thread that does it is left, and ends with the process. A panic of it
/// goes on here.
fn unless_signalled<T: Send + 'static>(
    stop: &Stop,
    work: impl FnOnce() -> T + Send + 'static,
) -> anyhow::Result<Option<T>> {
    let waker = WakesAtItsEnd(stop.waker()?);
    let (ended, has_ended) = mpsc::channel::<Infallible>();
    let thread = spawn(move || {
        // Dropped in the opposite order, also by a panic: who is woken finds that the thread has ended.
        let _waker = waker;
        let _ended = ended;
        work()
    })?;
    loop {
        if has_ended.try_recv() == Err(TryRecvError::Disconnected) {
            return thread.join().map(Some).or_else(|panic| resume_unwind(panic));
        }
        if stop.is_signalled() {
            return Ok(None);
        }
        stop.wait(Duration::from_secs(3600), []);
    }
}

struct WakesAtItsEnd(Waker);

impl Drop for WakesAtItsEnd {
    fn drop(&mut self) {
        self.0.wake();
    }
}

impl RoutesFile {
    fn read(&self) -> anyhow::Result<Routes> {
        let name = self.path.display();
        Routes::read(&self.path, self.ports).map_err(|error| anyhow!("routes {name}: {error}"))
    }

    fn reload(&self, fib: &mut Fib, state: &Mutex<State>) {
        let name = self.path.display();
        locked(state).under_way = true;
        let replaced =
            self.read().and_then(|routes| fib.replace(&routes).map_err(|error| anyhow!("routes {name}: {error}")));
        let mut state = locked(state);
        if !mem::take(&mut state.under_way) {
            return;
        }
        let report = &mut state.report;
        let line = match replaced {
            Ok(()) => {
                (report.ipv4, report.ipv6) = fib.route_counts();
                report.reloads += 1;
                format!("routes {name}: reloaded, {}", words(report))
            }
            Err(error) => {
                report.failed_reloads += 1;
                format!("{error}; the routes before stay in force")
            }
        };
        drop(state);
        // Nobody is left to tell if this fails.
        let _ = output::offer(io::stderr(), &format!("fwd: {line}\n"), Duration::ZERO);
        for _ in 0..RECLAIMS {
            fib.reclaim();
            if fib.retired() == 0 {
                break;
            }
            std::thread::sleep(RECLAIM);
        }
    }
}

/// Workers leave the old routes with their next burst. One that gets none keeps them until the next time.
const RECLAIMS: u32 = 100;
const RECLAIM: Duration = Duration::from_millis(5);

/// What is in force, and whether other routes are about to be. Whoever takes that mark away counts the reload.
#[derive(Debug, Default)]
struct State {
    report: RoutesReport,
    under_way: bool,
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread that reloads.
#[derive(Debug)]
pub(crate) struct Reloading {
    state: Arc<Mutex<State>>,
    handle: Handle,
    thread: JoinHandle<()>,
    /// Cut off when the thread ends.
    has_ended: Receiver<Infallible>,
}

/// How long the end waits for a reload under way. A file of millions of routes takes many seconds.
const PATIENCE: Duration = Duration::from_millis(500);

impl Reloading {
    /// What is in force, in words.
    pub(crate) fn note(&self) -> String {
        let report = locked(&self.state).report;
        let reloads = match (report.reloads, report.failed_reloads) {
            (0, 0) => String::new(),
            (reloads, 0) => format!(", reloaded {}", counted(reloads, "time")),
            (reloads, failed) => format!(", reloaded {}, failed {}", counted(reloads, "time"), counted(failed, "time")),
        };
        format!("routes: {}{reloads}", words(&report))
    }

    /// Ends the thread, or gives up the reload that keeps it from ending: that ends with the process, and counts as failed.
    pub(crate) fn end(self) -> RoutesReport {
        self.handle.close();
        let has_ended = self.has_ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Disconnected);
        let mut state = locked(&self.state);
        let given_up = mem::take(&mut state.under_way);
        state.report.failed_reloads += u64::from(given_up);
        let report = state.report;
        drop(state);
        if has_ended {
            // It has nothing to say; a panic of it was printed.
            let _ = self.thread.join();
        } else if given_up {
            let _ = output::offer(
                io::stderr(),
                "fwd: a reload of the routes was under way and is given up\n",
                Duration::ZERO,
            );
        }
        report
    }
}

fn words(state: &RoutesReport) -> String {
    format!("{} IPv4, {} IPv6", grouped(state.ipv4 as u64), grouped(state.ipv6 as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use signal_hook::consts::SIGINT;

    #[test]
    fn a_signal_does_not_wait_for_the_reading_and_a_panic_is_not_lost() {
        let stop = Stop::on_signals().unwrap();
        assert_eq!(unless_signalled(&stop, || 7).unwrap(), Some(7));
        let panics = || unless_signalled(&stop, || panic!("of the test"));
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics));
        assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&"of the test"));
        let (go_on, wait) = mpsc::channel::<Infallible>();
        let reading = move || {
            signal_hook::low_level::raise(SIGINT).unwrap();
            let _ = wait.recv();
        };
        assert_eq!(unless_signalled(&stop, reading).unwrap(), None);
        drop(go_on);
    }

    #[test]
    fn a_reload_under_way_does_not_hold_up_the_end_and_counts_as_failed() {
        let (go_on, wait) = mpsc::channel::<Infallible>();
        let (ended, has_ended) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let _ = wait.recv();
            drop(ended);
        });
        let handle = Signals::new([SIGHUP]).unwrap().handle();
        let report = RoutesReport { ipv4: 7, reloads: 2, failed_reloads: 1, ..RoutesReport::default() };
        let state = Arc::new(Mutex::new(State { report, under_way: true }));
        let report = Reloading { state, handle, thread, has_ended }.end();
        assert_eq!((report.ipv4, report.reloads, report.failed_reloads), (7, 2, 2));
        drop(go_on);
    }
}
