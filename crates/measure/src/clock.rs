//! A counter's ticks in nanoseconds of the kernel's clock.

use crate::Error;

/// A reading of the kernel's clock between two of the counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bracket {
    /// The counter before.
    pub before: u64,
    /// The clock, in nanoseconds since any time.
    pub kernel_ns: u64,
    /// The counter after.
    pub after: u64,
}

impl Bracket {
    /// Returns the narrowest of some readings: the clock was read somewhere between the two of the counter, so that
    /// width is what the reading can be wrong by. Those in which the counter went backwards do not count.
    #[must_use]
    pub fn narrowest(readings: impl IntoIterator<Item = Self>) -> Option<Self> {
        readings
            .into_iter()
            .filter(|reading| reading.after >= reading.before)
            .min_by_key(|reading| reading.after - reading.before)
    }

    /// The counter when the clock was read, times 2: within [`Self::width`] of that.
    fn twice_ticks(&self) -> u128 {
        u128::from(self.before) + u128::from(self.after)
    }

    fn width(&self) -> u64 {
        self.after - self.before
    }
}

/// The rate of a counter against the kernel's clock, from the first reading and the last.
///
/// ```
/// use measure::{Bracket, Clock};
///
/// let first = Bracket { before: 0, kernel_ns: 0, after: 100 };
/// let second = Bracket { before: 2_000_000, kernel_ns: 1_000_000, after: 2_000_100 };
/// let clock = Clock::new(first, second)?;
/// assert_eq!(clock.hz(), 2_000_000_000);
/// assert_eq!((clock.nanoseconds(4_000), clock.error_ppm(), clock.error_ns()), (2_000.0, 50.0, 25.0));
/// # Ok::<(), measure::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    first: Bracket,
    last: Bracket,
}

/// Changes of rate below this are no jump: a kernel's clock is slewed by up to 500 ppm.
const SLEW_PPM: f64 = 500.0;

impl Clock {
    /// Creates one from two readings.
    ///
    /// # Errors
    ///
    /// [`Error::Backwards`] if counter and clock have not both moved on between them.
    pub fn new(first: Bracket, last: Bracket) -> Result<Self, Error> {
        let moved = last.before > first.after && last.kernel_ns > first.kernel_ns;
        if moved && first.after >= first.before && last.after >= last.before {
            Ok(Self { first, last })
        } else {
            Err(Error::Backwards)
        }
    }

    /// Takes a later reading in place of the last, which makes the error smaller.
    ///
    /// # Errors
    ///
    /// [`Error::Backwards`] if it is not later; [`Error::Jumped`] if since the last reading the counter had another rate,
    /// beyond what the readings can be wrong by and the kernel's clock is slewed by. Then the clock stays as it was.
    pub fn refine(&mut self, reading: Bracket) -> Result<(), Error> {
        let since = Self::new(self.last, reading)?;
        let ppm = (since.per_ns() / self.per_ns() - 1.0).abs() * 1e6;
        if ppm > self.error_ppm() + since.error_ppm() + SLEW_PPM {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, and saturates")]
            return Err(Error::Jumped { ppm: ppm as u64 });
        }
        self.last = reading;
        Ok(())
    }

    /// Returns the ticks a second.
    #[must_use]
    pub fn hz(&self) -> u64 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, and saturates")]
        let hz = (self.per_ns() * 1e9).round() as u64;
        hz.max(1)
    }

    /// Returns ticks in nanoseconds.
    #[must_use]
    pub fn nanoseconds(&self, ticks: u64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let ticks = ticks as f64;
        ticks / self.per_ns()
    }

    /// Returns what the rate can be wrong by, in millionths.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    pub fn error_ppm(&self) -> f64 {
        let width = self.first.width() as f64 + self.last.width() as f64;
        width / (self.last.twice_ticks() - self.first.twice_ticks()) as f64 * 1e6
    }

    /// Returns what the last reading can be wrong by, in nanoseconds: half its width.
    #[must_use]
    pub fn error_ns(&self) -> f64 {
        self.nanoseconds(self.last.width()) / 2.0
    }

    #[expect(clippy::cast_precision_loss, reason = "53 bits are enough")]
    fn per_ns(&self) -> f64 {
        let ticks = (self.last.twice_ticks() - self.first.twice_ticks()) as f64 / 2.0;
        ticks / (self.last.kernel_ns - self.first.kernel_ns) as f64
    }
}
