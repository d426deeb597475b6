//! Register reads that notice a vanished device, and the one bounded wait. Whatever reads a register may return
//! [`Error::Gone`].

use crate::{Error, Family, Result};
use device::{Deadline, Device, Readable, Reg, Regs, TimeLimit, Writable};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The registers of a device while one operation with it is under way, and the end of that operation: all of its waits
/// together take no longer.
pub struct Timed<F: Family, D: Device> {
    regs: Regs<F, D>,
    deadline: Deadline,
}

impl<F: Family, D: Device> Timed<F, D> {
    /// The registers of `regs` until `deadline`.
    #[must_use]
    pub fn new(regs: &Regs<F, D>, deadline: Deadline) -> Self {
        Self { regs: regs.clone(), deadline }
    }

    /// Returns the same registers with a deadline of at most `limit` from now.
    #[must_use]
    pub fn at_most(&self, limit: Duration) -> Self {
        Self::new(&self.regs, self.deadline.at_most(limit))
    }

    /// Returns the same registers with a deadline of `total` from now, for what has to be put in order when time is up.
    #[must_use]
    pub fn afterwards(&self, total: Duration) -> Self {
        Self::new(&self.regs, TimeLimit { total, cancel: None }.begin())
    }

    /// Returns the end of the operation.
    #[must_use]
    pub fn deadline(&self) -> &Deadline {
        &self.deadline
    }

    /// Checks that time is left.
    ///
    /// # Errors
    ///
    /// [`Error::Expired`] if the operation has to end.
    pub fn check(&self, waiting_for: &'static str) -> Result<()> {
        self.deadline.check().map_err(|expired| self.expired(expired, waiting_for))
    }

    /// Sleeps.
    ///
    /// # Errors
    ///
    /// [`Error::Expired`] as soon as the operation has to end.
    pub fn sleep(&self, time: Duration, waiting_for: &'static str) -> Result<()> {
        self.deadline.sleep(time).map_err(|expired| self.expired(expired, waiting_for))
    }

    fn expired(&self, expired: device::Expired, waiting_for: &'static str) -> Error {
        Error::Expired { device: self.regs.device().name().to_owned(), waiting_for, expired }
    }
}

impl<F: Family, D: Device> Deref for Timed<F, D> {
    type Target = Regs<F, D>;

    fn deref(&self) -> &Regs<F, D> {
        &self.regs
    }
}

/// A command of a few registers. Until the value is dropped, a device whose registers are messages to another process has the
/// time limit for all its answers, and is gone after that; two seconds if the cancel flag is set already, as all is to end. The flag
/// does not break off an answer that is under way: a connection that is broken in the middle cannot be closed in order.
pub struct Command<D: Device>(Arc<D>);

impl<D: Device> Command<D> {
    /// Begins a command that has the time `limit`.
    #[must_use]
    pub fn begin<F: Family>(regs: &Regs<F, D>, limit: &TimeLimit) -> Self {
        let total = if is_cancelled(limit) { limit.total.min(LAST_ANSWERS) } else { limit.total };
        regs.device().set_deadline(Some(TimeLimit { total, cancel: None }.begin()));
        Self(Arc::clone(regs.device()))
    }
}

impl<F: Family, D: Device> fmt::Debug for Timed<F, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Timed").field(&self.regs).finish()
    }
}

impl<D: Device> fmt::Debug for Command<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Command").field(&self.0.name()).finish()
    }
}

impl<D: Device> Drop for Command<D> {
    fn drop(&mut self) {
        self.0.set_deadline(None);
    }
}

/// Twice what reading the counters has when all is to end, so that the answer that is due at the end of that is not the last.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// Returns whether the cancel flag of a time limit is set.
#[must_use]
pub fn is_cancelled(limit: &TimeLimit) -> bool {
    limit.cancel.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed))
}

/// Reads a register.
///
/// # Errors
///
/// [`Error::Gone`] when it and STATUS read all ones.
pub fn read<F: Family, D: Device, A: Readable>(regs: &Regs<F, D>, register: Reg<F, A>) -> Result<u32> {
    let value = regs.read(register);
    if value == u32::MAX && is_gone(regs) {
        return Err(Error::Gone { device: regs.device().name().to_owned(), register: register.name() });
    }
    Ok(value)
}

/// Waits, for a tenth of a second at most, until requests on PCI Express that are under way have their answers, as far as the access path
/// shows it (82599 datasheet 5.2.5.3.2, 82576 datasheet 5.2): longer than a request may take by default (50 ms).
///
/// # Errors
///
/// [`Error::Expired`].
pub fn end_transactions<F: Family, D: Device>(regs: &Timed<F, D>) -> Result<()> {
    for _ in 0..TRANSACTION_LOOKS {
        if regs.device().transactions_pending() != Some(true) {
            return Ok(());
        }
        regs.sleep(TRANSACTION_PAUSE, "transactions on PCI Express to end")?;
    }
    tracing::warn!("{}: transactions on PCI Express do not end", regs.device().name());
    Ok(())
}

const TRANSACTION_LOOKS: u32 = 100;
const TRANSACTION_PAUSE: Duration = Duration::from_millis(1);

/// Reads, changes and writes back a register. Nothing is written when the device is gone.
///
/// # Errors
///
/// [`Error::Gone`] as [`read`].
pub fn modify<F: Family, D: Device, A: Readable + Writable>(
    regs: &Regs<F, D>,
    register: Reg<F, A>,
    change: impl FnOnce(u32) -> u32,
) -> Result<()> {
    let value = read(regs, register)?;
    regs.write(register, change(value));
    Ok(())
}

/// Reads `register` until `done` accepts its value, and returns that value. Reads it once even if time is up.
///
/// # Errors
///
/// [`Error::Timeout`] after `limit`, [`Error::Expired`] when the operation has to end, [`Error::Gone`] as [`read`].
pub fn wait<F: Family, D: Device, A: Readable>(
    regs: &Timed<F, D>,
    register: Reg<F, A>,
    done: impl Fn(u32) -> bool,
    limit: Duration,
    waiting_for: &'static str,
) -> Result<u32> {
    wait_retrying(regs, register, || {}, done, limit, waiting_for)
}

/// As [`wait`], but does `attempt` before each read, for bits that only stick once another side lets go.
///
/// # Errors
///
/// As [`wait`].
pub fn wait_retrying<F: Family, D: Device, A: Readable>(
    regs: &Timed<F, D>,
    register: Reg<F, A>,
    mut attempt: impl FnMut(),
    done: impl Fn(u32) -> bool,
    limit: Duration,
    waiting_for: &'static str,
) -> Result<u32> {
    let start = Instant::now();
    let mut pace = Pace::new(limit);
    loop {
        attempt();
        let last = read(regs, register)?;
        if done(last) {
            return Ok(last);
        }
        regs.check(waiting_for)?;
        let waited = start.elapsed();
        if pace.is_over(waited) {
            let (device, register) = (regs.device().name().to_owned(), register.name());
            return Err(Error::Timeout { device, register, waited, last, waiting_for });
        }
        pace.pause();
    }
}

/// Whether STATUS, which has bits that are always clear, reads all ones. Asks a few times: a device in reset may
/// miss a request.
fn is_gone<F: Family, D: Device>(regs: &Regs<F, D>) -> bool {
    (0..3).all(|attempt| {
        if attempt > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        regs.read(F::STATUS) == u32::MAX
    })
}

/// Spins a little, then sleeps in steps that grow to half a millisecond. Bounded by time, and by a number of reads
/// in case the clock does not advance.
struct Pace {
    limit: Duration,
    reads: u128,
    most_reads: u128,
    step: Duration,
}

/// Reads before the first sleep.
const SPINS: u128 = 64;
/// A wait makes at least this many reads, so that a thread that was not scheduled does not give up unasked.
const FEWEST_READS: u128 = 16;

impl Pace {
    fn new(limit: Duration) -> Self {
        // A sleeping read takes longer than 10 us, so that time runs out first.
        Self {
            limit,
            reads: 0,
            most_reads: SPINS + FEWEST_READS + limit.as_micros() / 10,
            step: Duration::from_micros(10),
        }
    }

    /// Counts a read, `waited` after the start, that did not end the wait. Returns whether to give up.
    fn is_over(&mut self, waited: Duration) -> bool {
        self.reads += 1;
        (waited >= self.limit && self.reads >= FEWEST_READS) || self.reads >= self.most_reads
    }

    fn pause(&mut self) {
        if self.reads < SPINS {
            std::hint::spin_loop();
        } else {
            std::thread::sleep(self.step);
            self.step = (self.step * 2).min(Duration::from_micros(500));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_bound_a_wait_when_the_clock_stands_still() {
        let mut pace = Pace::new(Duration::from_millis(10));
        let reads = (0..).take_while(|_| !pace.is_over(Duration::ZERO)).count();
        assert!((1000..2000).contains(&reads), "{reads}");
    }
}
