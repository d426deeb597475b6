//! The time-stamp counter against the kernel's clock, which is CLOCK_MONOTONIC: it keeps the seconds that other programs see.

use cli::report::rounded;
use device::tsc;
use measure::{Bracket, Clock};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// A [`Clock`], and what it is read by.
#[derive(Debug)]
pub(crate) struct Calibrated {
    zero: Instant,
    first: Bracket,
}

/// Readings of which the narrowest counts.
const READINGS: usize = 50;
/// The least time between two of them.
const APART: Duration = Duration::from_millis(20);

impl Calibrated {
    /// Takes the first reading.
    pub(crate) fn begin() -> Self {
        let zero = Instant::now();
        Self { zero, first: read(zero) }
    }

    /// Takes the second, 20 ms after the first or later.
    pub(crate) fn clock(&self) -> Result<Clock, measure::Error> {
        std::thread::sleep(APART.saturating_sub(self.zero.elapsed()));
        Clock::new(self.first, read(self.zero))
    }

    /// Takes another.
    pub(crate) fn refine(&self, clock: &mut Clock) -> Result<(), measure::Error> {
        clock.refine(read(self.zero))
    }
}

/// How exact times are, for reports.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(crate) struct ClockReport {
    hz: u64,
    error_ppm: f64,
    error_ns: f64,
    /// The CPU promises a constant rate.
    invariant: bool,
}

impl ClockReport {
    pub(crate) fn of(clock: &Clock) -> Self {
        let [error_ppm, error_ns] = [clock.error_ppm(), clock.error_ns()].map(rounded);
        Self { hz: clock.hz(), error_ppm, error_ns, invariant: tsc::is_invariant() }
    }

    /// Of two the one that is wrong by more.
    pub(crate) fn or_worse(self, other: Self) -> Self {
        if other.error_ppm > self.error_ppm { other } else { self }
    }

    /// A line for people.
    pub(crate) fn words(&self) -> String {
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let mhz = self.hz as f64 / 1e6;
        format!("clock: {mhz:.3} MHz, {} against CLOCK_MONOTONIC", self.error())
    }

    /// How wrong it may be, for people.
    pub(crate) fn error(&self) -> String {
        let Self { error_ppm, error_ns, .. } = self;
        format!("wrong by at most {error_ppm:.3} ppm and {error_ns:.0} ns")
    }

    /// What a reader has to know of it.
    pub(crate) fn warning(&self) -> Option<String> {
        let why = "this CPU does not say that its time-stamp counter has a constant rate (CPUID 8000_0007, EDX bit 8)";
        (!self.invariant).then(|| format!("{why}: times are right only as long as it has"))
    }
}

/// A time in ticks.
pub(crate) fn ticks(clock: &Clock, time: Duration) -> u64 {
    u64::try_from(time.as_nanos() * u128::from(clock.hz()) / 1_000_000_000).unwrap_or(u64::MAX)
}

fn read(zero: Instant) -> Bracket {
    let reading = || {
        let before = tsc::now();
        let kernel = zero.elapsed();
        Bracket { before, kernel_ns: u64::try_from(kernel.as_nanos()).unwrap_or(u64::MAX), after: tsc::now() }
    };
    let first = reading();
    Bracket::narrowest((1..READINGS).map(|_| reading())).unwrap_or(first)
}
