//! The end of a run: by SIGINT, SIGTERM or the program itself, but not by SIGHUP; and a main thread that wakes at once.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{
    SIGABRT, SIGALRM, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGQUIT, SIGSYS, SIGTERM, SIGTRAP, SIGUSR1, SIGUSR2, SIGVTALRM,
    SIGXCPU, SIGXFSZ,
};
use signal_hook::iterator::Signals;
use signal_hook::low_level::{self, pipe};
use signal_hook::{SigId, flag};
use std::io::{self, Read as _, Write as _};
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The flag that ends workers ([`lcore::Stop`]), and a way to wait for a signal. A signal does not set the flag: the
/// waiting thread does ([`Self::request`]), after it has made sure that no more frames come in.
#[derive(Debug)]
pub struct Stop {
    flag: lcore::Stop,
    signalled: Arc<AtomicBool>,
    cancel: Arc<AtomicBool>,
    wakes: UnixStream,
    waker: UnixStream,
    /// What ends the process at a second signal.
    seconds: Vec<SigId>,
}

/// Wakes the thread that waits on a [`Stop`].
#[derive(Debug)]
pub struct Waker(UnixStream);

impl Stop {
    /// Creates one that only [`Self::request`] ends.
    ///
    /// # Errors
    ///
    /// If the process has no file descriptors left.
    pub fn new() -> io::Result<Self> {
        let (wakes, waker) = UnixStream::pair()?;
        wakes.set_nonblocking(true)?;
        waker.set_nonblocking(true)?;
        let flag = lcore::Stop::new().map_err(io::Error::other)?;
        Ok(Self { flag, signalled: Arc::default(), cancel: Arc::default(), wakes, waker, seconds: Vec::new() })
    }

    /// Creates one that also catches SIGINT and SIGTERM from now on: the first signal wakes the waiting thread, the
    /// second ends the process at once with code 1. SIGHUP does not end the run: it is ignored, unless something else
    /// catches it too.
    ///
    /// # Errors
    ///
    /// If the process has no file descriptors left.
    pub fn on_signals() -> io::Result<Self> {
        let mut stop = Self::new()?;
        flag::register(SIGHUP, Arc::default())?;
        for signal in [SIGINT, SIGTERM] {
            stop.seconds.push(flag::register_conditional_shutdown(signal, 1, Arc::clone(&stop.signalled))?);
            flag::register(signal, Arc::clone(&stop.signalled))?;
            flag::register(signal, stop.cancel())?;
            pipe::register(signal, stop.waker.try_clone()?)?;
        }
        Ok(stop)
    }

    /// Has a thread `clean_up` before a second SIGINT or SIGTERM ends the process, or the first of any other signal from outside that ends
    /// one and can be caught; one more meanwhile ends it at once. SIGIO, SIGSTKFLT, SIGPWR and real-time signals end it with code 1, the
    /// others as they do by default.
    ///
    /// # Errors
    ///
    /// If the process has no file descriptors left, or can start no thread.
    pub fn clean_up_with(&mut self, clean_up: impl FnOnce() + Send + 'static) -> io::Result<()> {
        const TWICE: [i32; 2] = [SIGINT, SIGTERM];
        const ONCE: [i32; 11] =
            [SIGQUIT, SIGABRT, SIGALRM, SIGVTALRM, SIGPROF, SIGUSR1, SIGUSR2, SIGXCPU, SIGXFSZ, SIGTRAP, SIGSYS];
        // SIGSTKFLT and SIGPWR of Linux on x86-64, and from SIGRTMIN to SIGRTMAX (signal(7)).
        let others = [SIGIO, 16, 30].into_iter().chain(34..=64);
        let all: Vec<i32> = TWICE.into_iter().chain(ONCE).chain(others).collect();
        let mut is_ending = self.is_signalled();
        let cleans = Arc::new(AtomicBool::new(false));
        // What a signal does it does in this order: the one that wakes the thread has looked at what the thread sets.
        for signal in &all {
            flag::register_conditional_shutdown(*signal, 1, Arc::clone(&cleans))?;
        }
        let mut signals = Signals::new(all)?;
        let watch = move || {
            let is_default = |signal: &i32| ONCE.contains(signal);
            let ends = |signal: &i32| !TWICE.contains(signal) || std::mem::replace(&mut is_ending, true);
            let Some(signal) = signals.forever().find(ends) else { return };
            cleans.store(true, Ordering::Relaxed);
            clean_up();
            if is_default(&signal) {
                // If it returns, the end is another one.
                let _ = low_level::emulate_default_handler(signal);
            }
            low_level::exit(1);
        };
        std::thread::Builder::new().name("signals".to_owned()).spawn(watch)?;
        for id in self.seconds.drain(..) {
            low_level::unregister(id);
        }
        Ok(())
    }

    /// Returns the flag, for workers.
    #[must_use]
    pub fn flag(&self) -> lcore::Stop {
        self.flag.clone()
    }

    /// Returns whether a stop was requested, by the program or by a signal.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.flag.is_requested() || self.is_signalled()
    }

    /// Returns whether a signal requested a stop; then a user is waiting for the end.
    #[must_use]
    pub fn is_signalled(&self) -> bool {
        self.signalled.load(Ordering::Relaxed)
    }

    /// Returns the flag that ends operations with devices and peers ([`nic::TimeLimit::cancel`]). A signal sets it.
    #[must_use]
    pub fn cancel(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.cancel)
    }

    /// Clears the flag of [`Self::cancel`], when the run is over and ports are being closed: the signal that ended the
    /// run does not end the closing too. A later signal does.
    pub fn closing(&self) {
        self.cancel.store(false, Ordering::Relaxed);
    }

    /// Requests a stop, and wakes workers that sleep.
    pub fn request(&self) {
        self.flag.request();
    }

    /// Takes back what was requested, for another run once the workers of the last have ended. A signal stays.
    ///
    /// # Errors
    ///
    /// If the process has no file descriptors left.
    pub fn renew(&mut self) -> io::Result<()> {
        self.flag = lcore::Stop::new().map_err(io::Error::other)?;
        Ok(())
    }

    /// Returns a handle with which another thread can wake the waiting one.
    ///
    /// # Errors
    ///
    /// If the process has no file descriptors left.
    pub fn waker(&self) -> io::Result<Waker> {
        Ok(Waker(self.waker.try_clone()?))
    }

    /// Waits until a signal arrives, a [`Waker`] wakes it or one of `others` is readable, for `limit` at most.
    pub fn wait<'f>(&self, limit: Duration, others: impl IntoIterator<Item = BorrowedFd<'f>>) {
        let limit = Timespec::try_from(limit).ok();
        let mut fds = vec![PollFd::new(&self.wakes, PollFlags::IN)];
        fds.extend(others.into_iter().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        // An interrupted wait is a short one; a failed one cannot be helped and the caller comes round again.
        let _ = poll(&mut fds, limit.as_ref());
        let mut bytes = [0; 64];
        while (&self.wakes).read(&mut bytes).is_ok_and(|count| count > 0) {}
    }
}

impl Waker {
    /// Wakes the waiting thread.
    pub fn wake(&self) {
        // A full pipe wakes it too.
        let _ = (&self.0).write(&[0]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renewed_one_ends_no_run_that_came_before() {
        let mut stop = Stop::new().unwrap();
        let before = stop.flag();
        stop.request();
        stop.renew().unwrap();
        assert!(before.is_requested() && !stop.is_requested() && !stop.flag().is_requested());
        stop.request();
        assert!(stop.is_requested());
    }
    use device::EventFd;
    use std::os::fd::AsFd as _;
    use std::time::Instant;

    #[test]
    fn a_signal_and_a_waker_end_the_wait() {
        let stop = Stop::on_signals().unwrap();
        let waker = stop.waker().unwrap();
        let begun = Instant::now();
        let other = std::thread::spawn(move || waker.wake());
        stop.wait(Duration::from_secs(60), []);
        other.join().unwrap();
        assert!(!stop.is_requested());
        let event = EventFd::new().unwrap();
        event.signal();
        stop.wait(Duration::from_secs(60), [event.as_fd()]);

        signal_hook::low_level::raise(SIGHUP).unwrap();
        assert!(!stop.is_requested());
        signal_hook::low_level::raise(SIGTERM).unwrap();
        stop.wait(Duration::from_secs(60), []);
        assert!(stop.is_requested() && stop.is_signalled());
        assert!(!stop.flag().is_requested(), "workers go on");
        assert!(stop.cancel().load(Ordering::Relaxed));
        stop.closing();
        assert!(!stop.cancel().load(Ordering::Relaxed) && stop.is_requested());
        assert!(!stop.flag().wait(Duration::ZERO));
        stop.request();
        assert!(stop.flag().is_requested() && stop.flag().wait(Duration::ZERO));
        assert!(begun.elapsed() < Duration::from_secs(60));
    }
}
