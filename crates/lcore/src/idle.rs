//! What an lcore does while its queues are empty: poll on, yield, or sleep until an interrupt.

use crate::{Clock, Function, Stop};
use device::tsc;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How often and how long an lcore has slept, for other threads to read ([`Loop::sleeps`](crate::Loop::sleeps)). It has
/// a cache line of its own.
///
/// ```
/// use lcore::{Loop, Stop};
///
/// let stop = Stop::new()?;
/// let poll_loop = Loop::new(&stop);
/// let sleeps = poll_loop.sleeps();
/// stop.request();
/// poll_loop.run(|_: &mut lcore::Clock| false);
/// assert!(sleeps.wakeups() == 0 && sleeps.asleep().is_zero(), "no queues, no sleep");
/// # Ok::<(), lcore::Error>(())
/// ```
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Sleeps {
    wakeups: AtomicU64,
    nanoseconds: AtomicU64,
}

impl Sleeps {
    /// Returns how many times the lcore slept and woke up.
    #[must_use]
    pub fn wakeups(&self) -> u64 {
        self.wakeups.load(Ordering::Relaxed)
    }

    /// Returns the total time asleep, without a sleep that is still under way.
    #[must_use]
    pub fn asleep(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed))
    }

    fn add(&self, cycles: u64) {
        let nanoseconds = u128::from(cycles) * 1_000_000_000 / u128::from(tsc::frequency_hz().max(1));
        self.nanoseconds.fetch_add(u64::try_from(nanoseconds).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.wakeups.fetch_add(1, Ordering::Relaxed);
    }
}

/// How to idle.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Time without a packet before a sleep; `None` for no sleep.
    pub(crate) grace: Option<Duration>,
    /// Rounds without a packet before the lcore is offered to others; `None` for never.
    pub(crate) yield_after: Option<u32>,
    pub(crate) longest_sleep: Duration,
    pub(crate) sleeps: Arc<Sleeps>,
}

/// The idle side of one lcore's loop.
#[derive(Debug)]
pub(crate) struct Idle {
    /// Cycles without a packet before it sleeps; `None` if it never does.
    grace: Option<u64>,
    yield_after: Option<u32>,
    longest: Duration,
    sleeps: Arc<Sleeps>,
    rounds: u32,
    since: u64,
}

impl Idle {
    /// For an lcore that runs `function`.
    pub(crate) fn new(settings: Settings, function: &mut impl Function) -> Self {
        let Settings { grace, yield_after, longest_sleep, sleeps } = settings;
        let queues = function.queues();
        let wakes = !queues.is_empty() && queues.iter().all(|queue| queue.eventfd().is_some());
        let cycles = |grace: Duration| {
            u64::try_from(grace.as_micros()).unwrap_or(u64::MAX).saturating_mul(tsc::frequency_hz() / 1_000_000)
        };
        let grace = grace.filter(|_| wakes).map(cycles);
        Self { grace, yield_after, longest: longest_sleep, sleeps, rounds: 0, since: 0 }
    }

    /// After a round that moved packets.
    #[inline(always)]
    pub(crate) fn busy(&mut self) {
        self.rounds = 0;
    }

    /// After a round that moved none (the clock is moved on by what time is given to others). True says that it is time to
    /// [`Self::sleep`].
    #[inline(always)]
    pub(crate) fn rest(&mut self, clock: &mut Clock) -> bool {
        self.rounds = self.rounds.saturating_add(1);
        std::hint::spin_loop();
        if self.rounds == 1 {
            self.since = clock.now();
        }
        if self.grace.is_some_and(|grace| clock.now().saturating_sub(self.since) >= grace) {
            return true;
        }
        if self.yield_after.is_some_and(|rounds| self.rounds >= rounds) {
            std::thread::yield_now();
            clock.set(tsc::now());
        }
        false
    }

    /// Sleeps until a packet comes to one of the queues of `function`, a stop is requested, or the longest sleep is over.
    #[cold]
    #[inline(never)]
    pub(crate) fn sleep(&mut self, stop: &Stop, function: &mut impl Function) {
        self.rounds = 0;
        let mut queues = function.queues();
        if !queues.iter_mut().all(|queue| queue.arm()) {
            return;
        }
        let mut fds = vec![PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN)];
        let events = queues.iter().filter_map(|queue| queue.eventfd());
        fds.extend(events.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let begun = tsc::now();
        // A failure is a short sleep: the caller comes round again.
        let _ = poll(&mut fds, Timespec::try_from(self.longest).ok().as_ref());
        self.sleeps.add(tsc::now().saturating_sub(begun));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ethdev::in_process::{self, InProcessRx};
    use ethdev::{Interrupts, Opened, PortConfig, RxQueue};
    use mempool::{Pool, PoolConfig};

    struct Queues(Vec<InProcessRx>);

    impl Function for Queues {
        fn poll(&mut self, _: &mut Clock) -> bool {
            false
        }

        fn queues(&mut self) -> Vec<&mut dyn RxQueue> {
            self.0.iter_mut().map(|queue| queue as _).collect()
        }
    }

    fn idle(grace: Option<Duration>, queues: &mut Queues) -> Idle {
        let longest_sleep = Duration::from_secs(60);
        Idle::new(Settings { grace, yield_after: None, longest_sleep, sleeps: Arc::default() }, queues)
    }

    #[test]
    fn without_queues_that_wake_an_lcore_polls_on() {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let open = |interrupts| {
            let config = PortConfig { interrupts, ..PortConfig::default() };
            let (Opened { port, rx, .. }, wire) = in_process::open("a", &config, &pool).unwrap();
            (port, wire, Queues(rx))
        };
        let stop = Stop::new().unwrap();
        let (_port, _wire, mut queues) = open(Interrupts::Required);
        let mut clock = Clock::start();
        clock.set(1000);
        let mut poll = idle(None, &mut queues);
        let mut sleep = idle(Some(Duration::ZERO), &mut queues);
        let mut hybrid = idle(Some(Duration::from_millis(1)), &mut queues);
        assert!(!poll.rest(&mut clock) && sleep.rest(&mut clock) && !hybrid.rest(&mut clock));
        clock.set(1000 + tsc::frequency_hz());
        assert!(!poll.rest(&mut clock) && hybrid.rest(&mut clock));
        hybrid.busy();
        assert!(!hybrid.rest(&mut clock), "a packet begins a new grace");
        stop.request();
        sleep.sleep(&stop, &mut queues);
        assert_eq!(sleep.sleeps.wakeups(), 1);

        let (_port, _wire, mut silent) = open(Interrupts::Off);
        assert!(!idle(Some(Duration::ZERO), &mut silent).rest(&mut clock), "no interrupts");
        silent.0.extend(queues.0);
        assert!(!idle(Some(Duration::ZERO), &mut silent).rest(&mut clock), "none of one of them");
        assert!(!idle(Some(Duration::ZERO), &mut Queues(Vec::new())).rest(&mut clock), "no queues");
    }

    #[test]
    fn yielding_moves_the_clock_on() {
        let settings =
            |yield_after| Settings { grace: None, yield_after, longest_sleep: Duration::ZERO, sleeps: Arc::default() };
        let mut function = |_: &mut Clock| false;
        let mut clock = Clock::start();
        let begun = clock.now();
        let mut idle = Idle::new(settings(Some(2)), &mut function);
        assert!(!idle.rest(&mut clock));
        assert_eq!(clock.now(), begun);
        assert!(!idle.rest(&mut clock));
        assert!(clock.now() > begun);
    }
}
