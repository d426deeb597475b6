//! Totals of 64 bits of a card's counters, which are narrower, and may be cleared by whoever reads them.

use crate::{Family, Result, read};
use device::{Deadline, Device, Readable, Reg, Regs};
use std::fmt;

/// Reads one counter, and adds what it has counted to the totals `T`.
pub type Counter<F, D, T> = Box<dyn FnMut(&Regs<F, D>, &mut T) -> Result<()> + Send + Sync>;

/// Returns a counter of one register, and what is done with what it reads.
pub fn counter<F: Family, D: Device, T, A: Readable + Send + Sync + 'static>(
    register: Reg<F, A>,
    mut take: impl FnMut(&mut T, u64) + Send + Sync + 'static,
) -> Counter<F, D, T> {
    Box::new(move |regs, totals| {
        take(totals, read(regs, register)?.into());
        Ok(())
    })
}

/// Returns a counter of two registers, of which the high one is read last, as that clears both.
pub fn counter_pair<F: Family, D: Device, T, A: Readable + Send + Sync + 'static>(
    low: Reg<F, A>,
    high: Reg<F, A>,
    mut take: impl FnMut(&mut T, u64) + Send + Sync + 'static,
) -> Counter<F, D, T> {
    Box::new(move |regs, totals| {
        let (low, high) = (read(regs, low)?, read(regs, high)?);
        take(totals, u64::from(high) << 32 | u64::from(low));
        Ok(())
    })
}

/// Adds to a total, which does not wrap.
pub fn add(total: &mut u64, count: u64) {
    *total = total.saturating_add(count);
}

/// The reader of a card's counters. They are read in turns, since there may not be time for all of them at once.
pub struct Counters<F: Family, D: Device, T> {
    regs: Regs<F, D>,
    totals: T,
    counters: Vec<Counter<F, D, T>>,
    /// The counter that the next poll begins with.
    next: usize,
}

impl<F: Family, D: Device, T: Default> Counters<F, D, T> {
    /// Reads all counters once, since what was counted before belongs to nobody.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Gone`].
    pub fn new(regs: &Regs<F, D>, counters: Vec<Counter<F, D, T>>) -> Result<Self> {
        let mut counters = Self { regs: regs.clone(), totals: T::default(), counters, next: 0 };
        counters.poll(None)?;
        counters.totals = T::default();
        Ok(counters)
    }

    /// Returns the totals as of the last poll.
    pub fn totals(&self) -> &T {
        &self.totals
    }

    /// The same, to change them.
    pub fn totals_mut(&mut self) -> &mut T {
        &mut self.totals
    }

    /// Returns the registers that it reads.
    pub fn registers(&self) -> &Regs<F, D> {
        &self.regs
    }

    /// Returns the number of counters.
    pub fn count(&self) -> usize {
        self.counters.len()
    }

    /// Reads each counter once, from the first that the last poll has not read on, and adds it up. The `deadline` is looked at before each.
    /// Returns how many there was no time for.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Gone`]; what was read before counts.
    pub fn poll(&mut self, deadline: Option<&Deadline>) -> Result<usize> {
        let mut left = self.counters.len();
        while left > 0 && deadline.is_none_or(|deadline| deadline.check().is_ok()) {
            let Some(counter) = self.counters.get_mut(self.next) else { break };
            counter(&self.regs, &mut self.totals)?;
            self.next = (self.next + 1) % self.counters.len();
            left -= 1;
        }
        Ok(left)
    }
}

impl<F: Family, D: Device, T: fmt::Debug> fmt::Debug for Counters<F, D, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counters").field("totals", &self.totals).field("next", &self.next).finish_non_exhaustive()
    }
}
