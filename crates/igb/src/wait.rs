//! Register reads that notice a vanished device, and the one bounded wait. Whatever reads a register may return
//! [`Error::Gone`].

use crate::regs::{Igb, Registers, STATUS};
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
pub(crate) fn read<D: Device, A: Readable>(regs: &Registers<D>, register: Reg<Igb, A>) -> Result<u32> {
    let value = regs.read(register);
    if value == u32::MAX && is_gone(regs) {
        return Err(Error::Gone { device: regs.device().name().to_owned(), register: register.name() });
    }
    Ok(value)
}

/// Reads, changes and writes back a register. Nothing is written when the device is gone.
pub(crate) fn modify<D: Device, A: Readable + Writable>(
    regs: &Registers<D>,
    register: Reg<Igb, A>,
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
    register: Reg<Igb, A>,
    done: impl Fn(u32) -> bool,
    limit: Duration,
    waiting_for: &'static str,
) -> Result<u32> {
    wait_retrying(regs, register, || {}, done, limit, waiting_for)
}

/// As [`wait`], but does `attempt` before each read, for bits that only stick once another side lets go.
pub(crate) fn wait_retrying<D: Device, A: Readable>(
    regs: &Timed<D>,
    register: Reg<Igb, A>,
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
