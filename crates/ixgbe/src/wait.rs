//! Register reads that notice a vanished device, and the one bounded wait. Whatever reads a register may return
//! [`Error::Gone`].

use crate::regs::{Ixgbe, Registers, STATUS};
use crate::{Error, Result};
use device::{Deadline, Device, Readable, Reg, TimeLimit, Writable};
use std::ops::Deref;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The registers of a device while one operation with it is under way, and the end of that operation: all of its waits
/// together take no longer.
pub(crate) struct Timed<D: Device> {
    regs: Registers<D>,
    deadline: Deadline,
}

impl<D: Device> Timed<D> {
    pub(crate) fn new(regs: &Registers<D>, deadline: Deadline) -> Self {
        Self { regs: regs.clone(), deadline }
    }

    /// Returns the same registers with a deadline of at most `limit` from now.
    pub(crate) fn at_most(&self, limit: Duration) -> Self {
        Self::new(&self.regs, self.deadline.at_most(limit))
    }

    /// Returns the same registers with a deadline of `total` from now, for what has to be put in order when time is up.
    pub(crate) fn afterwards(&self, total: Duration) -> Self {
        Self::new(&self.regs, TimeLimit { total, cancel: None }.begin())
    }

    pub(crate) fn deadline(&self) -> &Deadline {
        &self.deadline
    }

    /// Returns [`Error::Expired`] if the operation has to end.
    pub(crate) fn check(&self, waiting_for: &'static str) -> Result<()> {
        self.deadline.check().map_err(|expired| self.expired(expired, waiting_for))
    }

    /// Sleeps. Returns [`Error::Expired`] as soon as the operation has to end.
    pub(crate) fn sleep(&self, time: Duration, waiting_for: &'static str) -> Result<()> {
        self.deadline.sleep(time).map_err(|expired| self.expired(expired, waiting_for))
    }

    fn expired(&self, expired: device::Expired, waiting_for: &'static str) -> Error {
        Error::Expired { device: self.regs.device().name().to_owned(), waiting_for, expired }
    }
}

impl<D: Device> Deref for Timed<D> {
    type Target = Registers<D>;

    fn deref(&self) -> &Registers<D> {
        &self.regs
    }
}

/// A command of a few registers. Until the value is dropped, a device whose registers are messages to another process has the
/// time limit for all its answers, and is gone after that; two seconds if the cancel flag is set already, as all is to end. The flag
/// does not break off an answer that is under way: a connection that is broken in the middle cannot be closed in order.
pub(crate) struct Command<D: Device>(Registers<D>);

impl<D: Device> Command<D> {
    pub(crate) fn begin(regs: &Registers<D>, limit: &TimeLimit) -> Self {
        let total = if is_cancelled(limit) { limit.total.min(LAST_ANSWERS) } else { limit.total };
        regs.device().set_deadline(Some(TimeLimit { total, cancel: None }.begin()));
        Self(regs.clone())
    }
}

impl<D: Device> Drop for Command<D> {
    fn drop(&mut self) {
        self.0.device().set_deadline(None);
    }
}

/// Twice what reading the counters has when all is to end, so that the answer that is due at the end of that is not the last.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// Returns whether the cancel flag of a time limit is set.
pub(crate) fn is_cancelled(limit: &TimeLimit) -> bool {
    limit.cancel.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed))
}

/// Reads a register. Returns [`Error::Gone`] when it and STATUS read all ones.
pub(crate) fn read<D: Device, A: Readable>(regs: &Registers<D>, register: Reg<Ixgbe, A>) -> Result<u32> {
    let value = regs.read(register);
    if value == u32::MAX && is_gone(regs) {
        return Err(Error::Gone { device: regs.device().name().to_owned(), register: register.name() });
    }
    Ok(value)
}

/// Reads, changes and writes back a register. Nothing is written when the device is gone.
pub(crate) fn modify<D: Device, A: Readable + Writable>(
    regs: &Registers<D>,
    register: Reg<Ixgbe, A>,
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
pub(crate) fn wait<D: Device, A: Readable>(
    regs: &Timed<D>,
    register: Reg<Ixgbe, A>,
    done: impl Fn(u32) -> bool,
    limit: Duration,
    waiting_for: &'static str,
) -> Result<u32> {
    wait_retrying(regs, register, || {}, done, limit, waiting_for)
}

/// As [`wait`], but does `attempt` before each read, for bits that only stick once another side lets go.
pub(crate) fn wait_retrying<D: Device, A: Readable>(
    regs: &Timed<D>,
    register: Reg<Ixgbe, A>,
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
fn is_gone<D: Device>(regs: &Registers<D>) -> bool {
    (0..3).all(|attempt| {
        if attempt > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        regs.read(STATUS) == u32::MAX
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
    use crate::fake::Fake;
    use crate::regs::{EEC, EICR};

    #[test]
    fn returns_the_value_that_did() {
        let fake = Fake::new(0x10FB);
        let mut reads = 0;
        fake.on_read(EEC, move |_| {
            reads += 1;
            reads / 100
        });
        assert_eq!(wait(&fake.regs(), EEC, |v| v == 3, Duration::from_secs(60), "three").unwrap(), 3);
    }

    #[test]
    fn the_end_of_the_operation_ends_a_wait() {
        let fake = Fake::new(0x10FB);
        let cancel = std::sync::Arc::default();
        let limit = TimeLimit { total: Duration::from_secs(3600), cancel: Some(std::sync::Arc::clone(&cancel)) };
        let regs = Timed::new(&fake.regs(), limit.begin());
        let mut reads = 0;
        fake.on_read(EEC, move |_| {
            reads += 1;
            cancel.store(reads == 200, std::sync::atomic::Ordering::Relaxed);
            0
        });
        let error = wait(&regs, EEC, |_| false, Duration::from_secs(3600), "pigs to fly").unwrap_err();
        assert!(matches!(error, Error::Expired { expired: device::Expired::Cancelled, .. }), "{error}");
        let over = regs.at_most(Duration::ZERO);
        fake.set(EICR, 7);
        assert_eq!(wait(&over, EICR, |v| v == 7, Duration::from_secs(1), "seven").unwrap(), 7, "it is there already");
        let error = wait(&over, EICR, |v| v == 8, Duration::from_secs(3600), "eight").unwrap_err();
        assert!(matches!(error, Error::Expired { waiting_for: "eight", .. }), "{error}");
    }

    #[test]
    fn a_timeout_names_register_value_and_purpose() {
        let fake = Fake::new(0x10FB);
        fake.set(EEC, 0x123);
        let error = wait(&fake.regs(), EEC, |_| false, Duration::from_millis(5), "pigs to fly").unwrap_err();
        let Error::Timeout { register: "EEC", waited, last: 0x123, waiting_for: "pigs to fly", .. } = error else {
            panic!("{error}")
        };
        assert!(waited >= Duration::from_millis(5));
    }

    #[test]
    fn reads_bound_a_wait_when_the_clock_stands_still() {
        let mut pace = Pace::new(Duration::from_millis(10));
        let reads = (0..).take_while(|_| !pace.is_over(Duration::ZERO)).count();
        assert!((1000..2000).contains(&reads), "{reads}");
    }

    #[test]
    fn all_ones_is_a_value_while_status_answers() {
        let fake = Fake::new(0x10FB);
        fake.set(EICR, u32::MAX);
        assert_eq!(read(&fake.regs(), EICR).unwrap(), u32::MAX);
        fake.vanish_at_read(0);
        assert!(matches!(read(&fake.regs(), EICR), Err(Error::Gone { register: "EICR", .. })));
    }
}
