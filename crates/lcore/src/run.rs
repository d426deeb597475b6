//! The loop of an lcore.

use crate::idle::{Idle, Settings};
use crate::{Clock, Function, Sleeps, Stop};
use std::sync::Arc;
use std::time::Duration;

/// The loop of one lcore: polls a [`Function`], idles when there is nothing to do, publishes every 2 ms, and ends when
/// a [`Stop`] is requested.
///
/// A round allocates nothing, takes no lock and makes no system call, except to idle: to yield or to sleep. What is
/// done with packets is up to the function. The loop checks the stop flag when it publishes, and then makes some more
/// rounds: at least one, as the round in which it sees the flag may have looked at a ring before the last frames came;
/// then as long as packets move, 4096 at most.
///
/// ```
/// use lcore::{Clock, Loop, Stop};
///
/// let stop = Stop::new()?;
/// let mut rounds = 0;
/// Loop::new(&stop).grace(None).run(|_: &mut Clock| {
///     rounds += 1;
///     stop.request();
///     false
/// });
/// assert!(rounds > 1);
/// # Ok::<(), lcore::Error>(())
/// ```
#[derive(Debug)]
pub struct Loop {
    stop: Stop,
    idle: Settings,
}

/// Time without a packet before a sleep, unless set.
const GRACE: Duration = Duration::from_millis(1);
/// The longest sleep, unless set.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

impl Loop {
    /// Creates a loop that `stop` ends. It sleeps after a millisecond without a packet, if the function has queues that
    /// can wake it, and does not yield.
    #[must_use]
    pub fn new(stop: &Stop) -> Self {
        let sleeps = Arc::default();
        let idle = Settings { grace: Some(GRACE), yield_after: None, longest_sleep: LONGEST_SLEEP, sleeps };
        Self { stop: stop.clone(), idle }
    }

    /// Sets the time without a packet after which the loop sleeps, rounded down to microseconds; default 1 ms, `None`
    /// for a loop that never sleeps.
    #[must_use]
    pub fn grace(mut self, grace: Option<Duration>) -> Self {
        self.idle.grace = grace;
        self
    }

    /// Sets the number of rounds without a packet after which the loop yields, and yields again after each further one;
    /// for an lcore that other threads need too, such as those of software NICs. Default `None`, for a loop that never
    /// yields.
    #[must_use]
    pub fn yield_after(mut self, rounds: Option<u32>) -> Self {
        self.idle.yield_after = rounds;
        self
    }

    /// Sets the longest sleep, after which the loop makes a round in any case; default 1 s.
    #[must_use]
    pub fn longest_sleep(mut self, longest: Duration) -> Self {
        self.idle.longest_sleep = longest;
        self
    }

    /// Returns how often and how long the loop has slept, to be read by another thread.
    #[must_use]
    pub fn sleeps(&self) -> Arc<Sleeps> {
        Arc::clone(&self.idle.sleeps)
    }

    /// Runs `function` on this thread until it is done, or until a stop is requested and the frames that have arrived
    /// are processed. Returns the function.
    #[inline]
    pub fn run<F: Function>(self, mut function: F) -> F {
        let Self { stop, idle } = self;
        let mut idle = Idle::new(idle, &mut function);
        let mut last_rounds = LastRounds::default();
        let mut clock = Clock::start();
        loop {
            let before = clock.now();
            let moved = function.poll(&mut clock);
            if clock.now() == before {
                clock.lap();
            }
            if moved {
                idle.busy();
            } else if idle.rest(&mut clock) {
                function.publish();
                idle.sleep(&stop, &mut function);
                clock.lap();
                clock.woke();
                clock.publish_soon();
            }
            if clock.is_publication_due() {
                let stops = stop.is_requested();
                let ends = function.is_done() || (stops && last_rounds.is_over(moved));
                if ends {
                    function.finish();
                }
                function.publish();
                if ends {
                    return function;
                }
                if stops {
                    clock.is_ending();
                    clock.publish_soon();
                }
            }
        }
    }
}

/// The rounds that a loop still makes when it has seen the stop flag: one at least, as the round in which it sees the flag may have
/// looked at a ring before the last frames came; then as long as packets move, but no more than the largest ring has descriptors,
/// for a device that goes on taking them from the wire.
#[derive(Debug, Default)]
struct LastRounds(u32);

impl LastRounds {
    /// After each round with the flag set: whether it was the last. `moved` says that packets moved in it.
    fn is_over(&mut self, moved: bool) -> bool {
        self.0 += 1;
        (self.0 > 1 && !moved) || self.0 > 4096
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

    /// Requests the stop in its first round, and moves packets in so many.
    struct Scripted {
        stop: Stop,
        busy: u32,
        polls: u32,
        seen: Vec<(&'static str, u32)>,
        done_after: u32,
    }

    impl Scripted {
        fn run(busy: u32, done_after: u32) -> Self {
            let stop = Stop::new().unwrap();
            let loop_ = Loop::new(&stop);
            let function = Self { stop, busy, polls: 0, seen: Vec::new(), done_after };
            loop_.run(function)
        }
    }

    impl Function for Scripted {
        fn poll(&mut self, clock: &mut Clock) -> bool {
            self.polls += 1;
            if self.done_after == 0 && self.polls == 1 {
                self.stop.request();
            }
            clock.publish_soon();
            self.polls <= self.busy
        }

        fn publish(&mut self) {
            self.seen.push(("published", self.polls));
        }

        fn finish(&mut self) {
            self.seen.push(("finished", self.polls));
        }

        fn is_done(&self) -> bool {
            self.done_after > 0 && self.polls >= self.done_after
        }
    }

    #[test]
    fn it_ends_after_the_last_packets() {
        for (busy, polls) in [(0, 2), (1, 2), (10, 11), (u32::MAX, 4097)] {
            let function = Scripted::run(busy, 0);
            assert_eq!(function.polls, polls, "{busy} busy rounds");
            let last = function.seen.last_chunk::<2>().unwrap();
            assert_eq!(last, &[("finished", polls), ("published", polls)]);
            assert_eq!(function.seen.iter().filter(|(what, _)| *what == "finished").count(), 1);
        }
    }

    #[test]
    fn a_function_that_is_done_ends_it() {
        let function = Scripted::run(u32::MAX, 3);
        assert_eq!(function.polls, 3);
        assert_eq!(function.seen, [("published", 1), ("published", 2), ("finished", 3), ("published", 3)]);
    }
}
