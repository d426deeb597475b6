//! The routes file, read at the start and again at each SIGHUP, by a thread of its own: a million routes take a
//! moment.

use crate::json::RoutesReport;
use anyhow::anyhow;
use cli::human::{counted, grouped};
use cli::output;
use router::{Fib, Routes};
use signal_hook::consts::SIGHUP;
use signal_hook::iterator::{Handle, Signals};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Reads the routes file.
#[derive(Debug)]
pub(crate) struct Reloader {
    file: RoutesFile,
    signals: Signals,
}

#[derive(Debug)]
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

    /// Reads the file.
    ///
    /// # Errors
    ///
    /// When it cannot be read, or is no routes file: one line with the place and the next step.
    pub(crate) fn read(&self) -> anyhow::Result<Routes> {
        self.file.read()
    }

    /// Replaces the routes of `fib` at each SIGHUP from here on.
    ///
    /// # Errors
    ///
    /// When no thread can be made.
    pub(crate) fn start(self, mut fib: Fib) -> anyhow::Result<Reloading> {
        let Self { file, mut signals } = self;
        let (ipv4, ipv6) = fib.route_counts();
        let state = Arc::new(Mutex::new(RoutesReport { ipv4, ipv6, ..RoutesReport::default() }));
        let (handle, shared) = (signals.handle(), Arc::clone(&state));
        let body = move || signals.forever().for_each(|_| file.reload(&mut fib, &shared));
        let thread = std::thread::Builder::new().name("routes".to_owned()).spawn(body).map_err(|error| {
            anyhow!("cannot start the thread that reloads routes: {error}; allow more threads (`ulimit -u`) or memory (`ulimit -v`)")
        })?;
        Ok(Reloading { state, handle, thread })
    }
}

impl RoutesFile {
    fn read(&self) -> anyhow::Result<Routes> {
        let name = self.path.display();
        Routes::read(&self.path, self.ports).map_err(|error| anyhow!("routes {name}: {error}"))
    }

    fn reload(&self, fib: &mut Fib, state: &Mutex<RoutesReport>) {
        let name = self.path.display();
        let replaced =
            self.read().and_then(|routes| fib.replace(&routes).map_err(|error| anyhow!("routes {name}: {error}")));
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        let line = match replaced {
            Ok(()) => {
                (state.ipv4, state.ipv6) = fib.route_counts();
                state.reloads += 1;
                format!("routes {name}: reloaded, {}", words(&state))
            }
            Err(error) => {
                state.failed_reloads += 1;
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

/// The thread that reloads.
#[derive(Debug)]
pub(crate) struct Reloading {
    state: Arc<Mutex<RoutesReport>>,
    handle: Handle,
    thread: JoinHandle<()>,
}

impl Reloading {
    /// What is in force, in words.
    pub(crate) fn note(&self) -> String {
        let state = self.state();
        let reloads = match (state.reloads, state.failed_reloads) {
            (0, 0) => String::new(),
            (reloads, 0) => format!(", reloaded {}", counted(reloads, "time")),
            (reloads, failed) => format!(", reloaded {}, failed {}", counted(reloads, "time"), counted(failed, "time")),
        };
        format!("routes: {}{reloads}", words(&state))
    }

    /// Ends the thread.
    pub(crate) fn end(self) -> RoutesReport {
        self.handle.close();
        let state = self.state();
        // It has nothing to say; a panic of it was printed.
        let _ = self.thread.join();
        state
    }

    fn state(&self) -> RoutesReport {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn words(state: &RoutesReport) -> String {
    format!("{} IPv4, {} IPv6", grouped(state.ipv4 as u64), grouped(state.ipv6 as u64))
}
