//! The time as read by a loop.

use device::tsc;

/// The time-stamp counter, as a loop last read it. All times are in its cycles, of which there are
/// [`tsc::frequency_hz`] a second.
///
/// A function that counts cycles takes a lap after each queue it polls. The time after its last lap is part of the
/// first lap of the next round.
///
/// ```
/// use lcore::{Loop, Stop};
///
/// let stop = Stop::new()?;
/// let mut cycles = 0;
/// Loop::new(&stop).run(|clock: &mut lcore::Clock| {
///     cycles += clock.lap();
///     stop.request();
///     false
/// });
/// assert!(cycles > 0);
/// # Ok::<(), lcore::Error>(())
/// ```
#[derive(Debug)]
pub struct Clock {
    now: u64,
    next_publication: u64,
    interval: u64,
    /// When the lcore woke up.
    woken: u64,
}

/// Publications a second, while the loop goes round.
const PUBLICATIONS: u64 = 500;

impl Clock {
    /// One that starts now.
    pub(crate) fn start() -> Self {
        let interval = tsc::frequency_hz() / PUBLICATIONS;
        let now = tsc::now();
        Self { now, next_publication: now + interval, interval, woken: 0 }
    }

    /// Reads the counter. Returns the cycles since the last lap.
    #[inline(always)]
    pub fn lap(&mut self) -> u64 {
        let now = tsc::now();
        let cycles = now.saturating_sub(self.now);
        self.now = now;
        cycles
    }

    /// Returns the counter as last read.
    #[inline(always)]
    #[must_use]
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Ends the current round with a publication and a check of the stop flag; for a round that took unusually long.
    #[inline(always)]
    pub fn publish_soon(&mut self) {
        self.next_publication = self.now;
    }

    /// Moves the time on to what it has become while the lcore was given to others.
    #[inline(always)]
    pub(crate) fn set(&mut self, now: u64) {
        self.now = now;
    }

    /// The lcore has slept: whatever was looked at before has changed.
    #[inline(always)]
    pub(crate) fn woke(&mut self) {
        self.woken = self.now;
    }

    /// The loop ends: from here on each look counts.
    #[inline(always)]
    pub(crate) fn is_ending(&mut self) {
        self.woken = u64::MAX;
    }

    /// Whether what was looked at then is to be looked at again, however soon.
    #[inline(always)]
    pub(crate) fn has_woken_since(&self, then: u64) -> bool {
        then < self.woken
    }

    /// Whether it is time to publish. If so, the next time is an interval away.
    #[inline(always)]
    pub(crate) fn is_publication_due(&mut self) -> bool {
        let due = self.now >= self.next_publication;
        if due {
            self.next_publication = self.now + self.interval;
        }
        due
    }
}
