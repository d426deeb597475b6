//! How many answers a second.

use std::time::Duration;

/// Lets so many events a second pass, and some more at once (the algorithm of ITU-T I.371, known as GCRA).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    interval: Duration,
    tolerance: Duration,
    /// When the next is due if they came evenly.
    due: Duration,
}

impl Limit {
    pub(crate) fn new(per_second: u32, burst: u32) -> Self {
        let interval = Duration::from_secs(1) / per_second.max(1);
        Self { interval, tolerance: interval.saturating_mul(burst.max(1) - 1), due: Duration::ZERO }
    }

    /// Whether one may pass now.
    pub(crate) fn take(&mut self, now: Duration) -> bool {
        let latest = now.saturating_add(self.tolerance);
        // A time that goes backwards does not close it.
        let due = if self.due > latest.saturating_add(self.interval) { now } else { self.due.max(now) };
        let passes = due <= latest;
        self.due = if passes { due.saturating_add(self.interval) } else { due };
        passes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_and_then_the_rate() {
        let mut limit = Limit::new(100, 5);
        let passed = |limit: &mut Limit, at: u64| (0..1000).filter(|_| limit.take(Duration::from_millis(at))).count();
        assert_eq!([0, 1, 10, 11, 30, 10_000].map(|at| passed(&mut limit, at)), [5, 0, 1, 0, 2, 5]);
        assert_eq!(passed(&mut limit, 20), 5, "the clock went back");
        assert!(Limit::new(0, 0).take(Duration::MAX));
    }
}
