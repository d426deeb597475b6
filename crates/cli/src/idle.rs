//! What an lcore does while its queues are empty: poll on, or sleep until an interrupt.

use crate::stop::Stop;
use lcore::{Loop, Sleeps};
use nic::Interrupts;
use serde::Serialize;
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

/// Returns the setting of interrupts to open ports with. If the user has not chosen a mode, interrupts are used where
/// the device has them.
#[must_use]
pub fn interrupts(mode: Option<IdleMode>) -> Interrupts {
    match mode {
        None => Interrupts::IfAvailable,
        Some(IdleMode::Poll) => Interrupts::Off,
        Some(IdleMode::Hybrid | IdleMode::Sleep) => Interrupts::Required,
    }
}

/// Creates the loop of an lcore, which runs until `stop` and idles as `--idle` says. `yields` is true if a software NIC
/// needs a core too; `watched` is true if the program waits for the lcore to be idle (`--exit-when-idle`).
#[must_use]
pub fn poll_loop(mode: Option<IdleMode>, yields: bool, watched: bool, stop: &Stop) -> Loop {
    let grace = match mode {
        Some(IdleMode::Poll) => None,
        Some(IdleMode::Sleep) => Some(Duration::ZERO),
        Some(IdleMode::Hybrid) | None => Some(GRACE),
    };
    let longest = if watched { LONGEST_WATCHED } else { LONGEST };
    Loop::new(&stop.flag()).grace(grace).yield_after(yields.then_some(IDLE_ROUNDS)).longest_sleep(longest)
}

/// Rounds without a frame before the lcore is offered to others.
const IDLE_ROUNDS: u32 = 64;
/// How long [`IdleMode::Hybrid`] polls on.
const GRACE: Duration = Duration::from_millis(1);
/// The longest sleep: then it comes round whatever happens.
const LONGEST: Duration = Duration::from_secs(1);
/// The longest sleep where somebody waits to be told that nothing is left to do.
const LONGEST_WATCHED: Duration = Duration::from_millis(5);

/// How often and how long an lcore has slept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Slept {
    /// Times that it slept and woke up.
    pub wakeups: u64,
    /// Total time asleep, in seconds.
    pub asleep_s: f64,
}

impl Slept {
    /// Returns the sleep so far, without a sleep that is still under way.
    #[must_use]
    pub fn of(sleeps: &Sleeps) -> Self {
        let asleep_s = crate::report::rounded(sleeps.asleep().as_secs_f64());
        Self { wakeups: sleeps.wakeups(), asleep_s }
    }
}

/// Returns in words how often and how long all lcores have slept; empty if none did.
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
}
