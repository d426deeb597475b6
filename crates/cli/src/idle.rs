//! What an lcore does while its queues are empty: poll on, or sleep until an interrupt.

use crate::stop::Stop;
use device::{EventFd, tsc};
use nic::{Interrupts, RxQueue};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The choices of `--idle`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum IdleMode {
    /// Poll on: lowest latency, and always the whole of an lcore
    Poll,
    /// Poll while frames come; after a millisecond without any, sleep until an interrupt
    Hybrid,
    /// Sleep until an interrupt whenever there is nothing to do
    Sleep,
}

/// The interrupts to open ports with. Without a choice of the user: what the device has.
#[must_use]
pub fn interrupts(mode: Option<IdleMode>) -> Interrupts {
    match mode {
        None => Interrupts::IfAvailable,
        Some(IdleMode::Poll) => Interrupts::Off,
        Some(IdleMode::Hybrid | IdleMode::Sleep) => Interrupts::Required,
    }
}

/// How long an lcore has slept, as it tells the main thread; on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Sleeps {
    wakeups: AtomicU64,
    nanoseconds: AtomicU64,
}

/// [`Sleeps`] at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Slept {
    /// Times that it slept and woke up.
    pub wakeups: u64,
    /// Seconds asleep, all together.
    pub asleep_s: f64,
}

impl Sleeps {
    /// The sleep so far, without one that lasts.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    pub fn read(&self) -> Slept {
        let asleep_s = crate::report::rounded(self.nanoseconds.load(Ordering::Relaxed) as f64 / 1e9);
        Slept { wakeups: self.wakeups.load(Ordering::Relaxed), asleep_s }
    }

    fn add(&self, cycles: u64) {
        let nanoseconds = u128::from(cycles) * 1_000_000_000 / u128::from(tsc::frequency_hz().max(1));
        self.nanoseconds.fetch_add(u64::try_from(nanoseconds).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.wakeups.fetch_add(1, Ordering::Relaxed);
    }
}

/// The idle side of one lcore's loop.
#[derive(Debug)]
pub struct Idle {
    /// Cycles without a frame before it sleeps; `None` if it never does.
    grace: Option<u64>,
    /// Software NICs run on the same cores: let them, when there is nothing to do.
    yields: bool,
    longest: Duration,
    ended: Arc<EventFd>,
    sleeps: Arc<Sleeps>,
    rounds: u32,
    since: u64,
}

/// Rounds without a frame before the lcore is offered to others.
const IDLE_ROUNDS: u32 = 64;
/// How long [`IdleMode::Hybrid`] polls on.
const GRACE: Duration = Duration::from_millis(1);
/// The longest sleep: then it comes round whatever happens.
const LONGEST: Duration = Duration::from_secs(1);
/// The longest sleep where somebody waits to be told that nothing is left to do.
const LONGEST_WATCHED: Duration = Duration::from_millis(5);

impl Idle {
    /// For an lcore that polls `queues`, until `stop`. Yields if a software NIC wants a core too. `watched` says that
    /// somebody waits for it to be idle (`--exit-when-idle`). An lcore with a queue that has no interrupts never sleeps.
    #[must_use]
    pub fn new<'q>(
        mode: Option<IdleMode>,
        yields: bool,
        watched: bool,
        stop: &Stop,
        mut queues: impl Iterator<Item = &'q RxQueue>,
    ) -> Self {
        let wakes = queues.all(|queue| queue.eventfd().is_some());
        let grace = if mode == Some(IdleMode::Sleep) { Duration::ZERO } else { GRACE };
        let cycles = u64::try_from(grace.as_micros()).unwrap_or(0) * (tsc::frequency_hz() / 1_000_000);
        Self {
            grace: (wakes && mode != Some(IdleMode::Poll)).then_some(cycles),
            yields,
            longest: if watched { LONGEST_WATCHED } else { LONGEST },
            ended: stop.ended(),
            sleeps: Arc::default(),
            rounds: 0,
            since: 0,
        }
    }

    /// What it tells the main thread.
    #[must_use]
    pub fn sleeps(&self) -> Arc<Sleeps> {
        Arc::clone(&self.sleeps)
    }

    /// After a round that moved frames.
    #[inline(always)]
    pub fn busy(&mut self) {
        self.rounds = 0;
    }

    /// After a round that moved none, which ended at `now` (cycles; moved on by what time is given to others). True says
    /// that it is time to [`Self::sleep`].
    #[inline(always)]
    pub fn rest(&mut self, now: &mut u64) -> bool {
        self.rounds = self.rounds.saturating_add(1);
        std::hint::spin_loop();
        if self.rounds == 1 {
            self.since = *now;
        }
        if self.grace.is_some_and(|grace| now.saturating_sub(self.since) >= grace) {
            return true;
        }
        if self.yields && self.rounds >= IDLE_ROUNDS {
            std::thread::yield_now();
            *now = tsc::now();
        }
        false
    }

    /// Sleeps until a frame comes to one of `queues`, the run ends, or the longest sleep is over.
    #[cold]
    pub fn sleep<'q>(&mut self, queues: impl Iterator<Item = &'q mut RxQueue>) {
        self.rounds = 0;
        let mut fds = vec![PollFd::new(&*self.ended, PollFlags::IN)];
        for queue in queues {
            if !queue.arm() {
                return;
            }
            let queue: &'q RxQueue = queue;
            fds.extend(queue.eventfd().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        }
        let begun = tsc::now();
        // A failure is a short sleep: the caller comes round again.
        let _ = poll(&mut fds, Timespec::try_from(self.longest).ok().as_ref());
        self.sleeps.add(tsc::now().saturating_sub(begun));
    }
}

/// How all lcores have slept in words; empty if none did.
#[must_use]
pub fn words(slept: &[Slept], seconds: f64) -> String {
    let wakeups: u64 = slept.iter().map(|slept| slept.wakeups).sum();
    if wakeups == 0 {
        return String::new();
    }
    let asleep: f64 = slept.iter().map(|slept| slept.asleep_s).sum();
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let share = (asleep / (seconds * slept.len() as f64).max(1e-9) * 100.0).min(100.0);
    format!("lcores asleep {share:.1} % of the time, {}", crate::human::counted(wakeups, "wake-up"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleep_in_words() {
        assert_eq!(words(&[Slept::default(); 2], 1.0), "");
        let slept = [Slept { wakeups: 3, asleep_s: 0.5 }, Slept { wakeups: 1, asleep_s: 1.0 }];
        assert_eq!(words(&slept, 2.0), "lcores asleep 37.5 % of the time, 4 wake-ups");
    }

    #[test]
    fn without_queues_that_wake_an_lcore_polls_on() {
        let stop = Stop::new().unwrap();
        let idle = |mode| Idle::new(mode, false, false, &stop, std::iter::empty());
        let mut poll = idle(Some(IdleMode::Poll));
        let mut sleep = idle(Some(IdleMode::Sleep));
        let mut hybrid = idle(None);
        let mut now = 1000;
        assert!(!poll.rest(&mut now) && sleep.rest(&mut now) && !hybrid.rest(&mut now));
        now += tsc::frequency_hz();
        assert!(!poll.rest(&mut now) && hybrid.rest(&mut now));
        hybrid.busy();
        assert!(!hybrid.rest(&mut now), "a frame begins a new grace");
        stop.request();
        sleep.sleep(std::iter::empty());
        assert_eq!(sleep.sleeps().read().wakeups, 1);
    }
}
