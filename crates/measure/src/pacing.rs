//! When frames are due.

use crate::Rate;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};

/// How frames are spread over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// At equal intervals.
    Even,
    /// So many at once, then as many intervals later again; 0 is as 1.
    Bursts(u32),
    /// At exponential intervals, a Poisson process; the same seed gives the same times, until more than 65,536 are missed at once.
    Poisson(u64),
}

/// Due times, from the rate and a start. They are absolute: what is late does not shift what follows. Whatever was due
/// longer ago than the limit of catching up, when it could at last have been sent, is missed.
///
/// ```
/// use measure::{Load, Pacer, Pattern};
///
/// // A frame every 1,000 ticks; what is late by more than 2,000 is missed.
/// let mut pacer = Pacer::new("1000".parse::<Load>()?.rate(60, None)?, Pattern::Even, 1_000_000, 2_000);
/// pacer.start(0, Some(20_000));
/// let mut due = [0; 8];
/// assert_eq!(pacer.take(0, &mut due), 1);
/// // Then nothing until 10,500.
/// assert_eq!(pacer.take(10_500, &mut due), 2);
/// assert_eq!((due[0], due[1]), (9_000, 10_000));
/// assert_eq!((pacer.missed(), pacer.intended()), (8, 11));
/// # Ok::<(), measure::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Pacer {
    /// Mean interval, and when the next frame is due after the start: ticks, in fixed point of 64 and 64 bits.
    interval: u128,
    next: u128,
    pattern: Pattern,
    /// Which it is of several that take turns, and of how many.
    turn: [u16; 2],
    /// Frames of a burst that are still to come.
    in_burst: u32,
    random: Xoshiro256PlusPlus,
    catch_up: u64,
    start: u64,
    /// Frames are due before this, in ticks after the start.
    end: u64,
    taken: u64,
    missed: u64,
}

/// Random intervals that are drawn of what is missed at once.
const MOST_DRAWN: u32 = 65_536;

impl Pacer {
    /// Creates one for a counter of `hz` ticks a second. `catch_up` is how late a frame may be sent, in ticks.
    #[must_use]
    pub fn new(rate: Rate, pattern: Pattern, hz: u64, catch_up: u64) -> Self {
        let seed = if let Pattern::Poisson(seed) = pattern { seed } else { 0 };
        let random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let interval = rate.interval(hz.max(1));
        let (next, turn, in_burst, start, end, taken, missed) = (0, [0, 1], 0, 0, 0, 0, 0);
        let mut pacer = Self { interval, next, pattern, turn, in_burst, random, catch_up, start, end, taken, missed };
        pacer.start(0, None);
        pacer
    }

    /// Makes it one of several that take turns, from the next start on, each at its [`Rate::part`] of a rate: those that start together are
    /// due when a single one at the whole rate is. Random times stay as they are.
    ///
    /// ```
    /// use measure::{Load, Pacer, Pattern};
    ///
    /// let rate = "1000".parse::<Load>()?.rate(60, None)?;
    /// let mut second = Pacer::new(rate.part(2), Pattern::Even, 1_000_000, 0).in_turn(1, 2);
    /// second.start(0, None);
    /// let mut due = [0; 2];
    /// assert_eq!((second.take(999, &mut due), second.take(1_000, &mut due)), (0, 1));
    /// # Ok::<(), measure::Error>(())
    /// ```
    #[must_use]
    pub fn in_turn(mut self, turn: u16, of: u16) -> Self {
        self.turn = [turn % of.max(1), of.max(1)];
        self
    }

    /// When the first frame is due after the start, rounded up as intervals are.
    fn first(&self) -> u128 {
        let [turn, of] = self.turn.map(u128::from);
        let between = self.interval.saturating_mul(self.burst().into());
        between / of * turn + (between % of * turn).div_ceil(of)
    }

    /// Starts at a time, with nothing taken and nothing missed: from `start` on, for so many ticks, or for ever.
    pub fn start(&mut self, start: u64, ticks: Option<u64>) {
        (self.start, self.end, self.taken, self.missed) = (start, ticks.unwrap_or(u64::MAX), 0, 0);
        self.next = self.first();
        self.in_burst = self.burst();
        if matches!(self.pattern, Pattern::Poisson(_)) {
            self.next = self.gap();
        }
    }

    /// Returns how many frames were due and are to be sent now, and sets the due times of these in `due`, in ascending
    /// order; no more than have room there.
    #[inline(always)]
    pub fn take(&mut self, now: u64, due: &mut [u64]) -> usize {
        let now = now.saturating_sub(self.start);
        if now.saturating_sub(ticks(self.next)) > self.catch_up {
            self.skip(now - self.catch_up);
        }
        // Neither what is still to come, nor what comes after the end.
        let last = now.min(self.end.saturating_sub(1));
        let mut count = 0;
        if ticks(self.next) > last || self.is_off() {
            return 0;
        }
        if self.pattern == Pattern::Even {
            // From the counter's zero on, which saves an addition for each frame.
            let start = u128::from(self.start) << 64;
            let (interval, mut next) = (self.interval, self.next.wrapping_add(start));
            // If the last of them is due, all are, and none is compared.
            let others = interval.checked_mul(due.len().saturating_sub(1) as u128);
            let all = others.and_then(|others| others.checked_add(self.next)).is_some_and(|at| ticks(at) <= last);
            if all {
                count = due.len();
                for place in due {
                    *place = ticks(next);
                    next = next.wrapping_add(interval);
                }
            } else {
                let last = self.start.wrapping_add(last);
                for place in due {
                    if ticks(next) > last {
                        break;
                    }
                    *place = ticks(next);
                    next = next.wrapping_add(interval);
                    count += 1;
                }
            }
            self.next = next.wrapping_sub(start);
        } else {
            for place in due {
                if ticks(self.next) > last {
                    break;
                }
                *place = self.start.wrapping_add(ticks(self.next));
                self.advance();
                count += 1;
            }
        }
        self.taken += count as u64;
        count
    }

    /// Misses what was due by `now` and was not taken, also what is not late yet.
    pub fn miss(&mut self, now: u64) {
        if let Some(now) = now.checked_sub(self.start) {
            self.skip(now.saturating_add(1));
        }
    }

    /// Misses what was due before `limit`, in ticks after the start. Of more than [`MOST_DRAWN`] random times the rest is what the rate makes:
    /// to draw them all would take longer than they do.
    #[cold]
    #[inline(never)]
    fn skip(&mut self, limit: u64) {
        let limit = limit.min(self.end);
        if let Pattern::Poisson(_) = self.pattern {
            for _ in 0..MOST_DRAWN {
                if ticks(self.next) >= limit {
                    return;
                }
                self.advance();
                self.missed += 1;
            }
        }
        let limit = u128::from(limit) << 64;
        if self.next >= limit {
            return;
        }
        if let Pattern::Poisson(_) = self.pattern {
            let rest = u64::try_from((limit - self.next) / self.interval).unwrap_or(u64::MAX);
            self.missed = self.missed.saturating_add(rest).saturating_add(1);
            // Such a process has no memory: from there on it is as from the start on.
            self.next = limit.saturating_add(self.gap());
            return;
        }
        // A burst is due at once, so all of what is left of it, then whole bursts.
        let of_burst = u128::from(self.burst());
        let step = self.interval.saturating_mul(of_burst);
        let steps = (limit - self.next).div_ceil(step);
        let missed = (steps - 1) * of_burst + u128::from(self.in_burst);
        self.missed += u64::try_from(missed).unwrap_or(u64::MAX);
        self.next = self.next.saturating_add(steps.saturating_mul(step));
        self.in_burst = self.burst();
    }

    #[inline(always)]
    fn advance(&mut self) {
        match self.pattern {
            Pattern::Even => self.next = self.next.saturating_add(self.interval),
            Pattern::Bursts(_) => {
                self.in_burst -= 1;
                if self.in_burst == 0 {
                    self.in_burst = self.burst();
                    self.next = self.next.saturating_add(self.interval.saturating_mul(self.in_burst.into()));
                }
            }
            Pattern::Poisson(_) => self.next = self.next.saturating_add(self.gap()),
        }
    }

    fn burst(&self) -> u32 {
        if let Pattern::Bursts(frames) = self.pattern { frames.max(1) } else { 1 }
    }

    /// A random interval: by inversion, of a number below 1 with 53 bits.
    fn gap(&mut self) -> u128 {
        #[expect(clippy::cast_precision_loss, reason = "53 bits are what it holds")]
        let uniform = (self.random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        // With 32 bits of fraction, it is below 40 * 2^32.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, and below 2^38")]
        let times = (-(-uniform).ln_1p() * 4_294_967_296.0) as u64;
        let (high, low) = (self.interval >> 32, self.interval & 0xffff_ffff);
        high * u128::from(times) + ((low * u128::from(times)) >> 32)
    }

    /// Goes on at another rate from `now` on, for a counter of `hz` ticks a second. What was due by then and was not taken is missed;
    /// the part of an interval that has passed counts, so that as many frames become due as both rates together make.
    ///
    /// ```
    /// use measure::{Load, Pacer, Pattern};
    ///
    /// let rate = |text: &str| text.parse::<Load>()?.rate(60, None);
    /// let mut pacer = Pacer::new(rate("1000")?, Pattern::Even, 1_000_000, 2_000);
    /// pacer.start(0, None);
    /// let mut due = [0; 8];
    /// assert_eq!(pacer.take(0, &mut due), 1);
    /// // Half of an interval is left: half of the new one.
    /// pacer.set_rate(500, rate("100")?, 1_000_000);
    /// assert_eq!((pacer.take(5_499, &mut due), pacer.take(5_500, &mut due)), (0, 1));
    /// # Ok::<(), measure::Error>(())
    /// ```
    #[cold]
    pub fn set_rate(&mut self, now: u64, rate: Rate, hz: u64) {
        self.miss(now);
        let elapsed = u128::from(now.saturating_sub(self.start)) << 64;
        let interval = rate.interval(hz.max(1));
        #[expect(clippy::cast_precision_loss, reason = "a share, of 53 bits")]
        let left = self.next.saturating_sub(elapsed) as f64 / self.interval as f64;
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "saturates"
        )]
        let left = (left * interval as f64) as u128;
        (self.next, self.interval) = (elapsed.saturating_add(left), interval);
    }

    /// Puts off all that is still to come by so many ticks, but not the end. For a pause: [`Self::miss`] at its begin, this at its end.
    #[cold]
    pub fn put_off(&mut self, ticks: u64) {
        self.start = self.start.saturating_add(ticks);
        if self.end < u64::MAX {
            self.end = self.end.saturating_sub(ticks);
        }
    }

    /// Returns how many frames a tick the rate is.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    pub fn frames_per_tick(&self) -> f64 {
        (1_u128 << 64) as f64 / self.interval as f64
    }

    /// Returns how many frames were taken.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Returns how many frames are missed.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// Returns how many frames were due so far as [`Self::take`] has looked: those taken and those missed.
    #[must_use]
    pub fn intended(&self) -> u64 {
        self.taken + self.missed
    }

    /// Returns whether it was started for no time at all.
    #[inline(always)]
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.end == 0
    }

    /// Returns whether no more frames are to come.
    #[must_use]
    pub fn is_over(&self) -> bool {
        ticks(self.next) >= self.end
    }
}

/// The whole ticks of a time in fixed point.
#[inline(always)]
fn ticks(fixed: u128) -> u64 {
    (fixed >> 64) as u64
}
