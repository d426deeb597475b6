//! How transmit queues end.

use super::TxQueue;
use crate::ring::disable;
use crate::wait::{Timed, read, wait};
use crate::{Error, Family, Result};
use device::Device;
use std::time::{Duration, Instant};

impl<F: Family, D: Device> TxQueue<F, D> {
    /// Whether the device has sent all that it was given by queue `index`: TDH equals TDT (82599 datasheet 4.6.8.2, 82576 datasheet 4.5).
    ///
    /// # Errors
    ///
    /// [`Error::Expired`] before either register when time is up, [`Error::Gone`].
    pub fn is_empty(regs: &Timed<F, D>, index: u32) -> Result<bool> {
        const WAITING_FOR: &str = "the transmit queues to be looked at";
        regs.check(WAITING_FOR)?;
        let head = read(regs, F::TX.head.at(index))?;
        regs.check(WAITING_FOR)?;
        Ok(head == read(regs, F::TX.tail.at(index))?)
    }

    /// Waits until queue `index` is empty, for as long as it gets on. Gives up, and says so in the log, when it does not: the
    /// other end may hold it up with pause frames.
    ///
    /// # Errors
    ///
    /// [`Error::Expired`] when time is up, [`Error::Gone`].
    pub fn drain(regs: &Timed<F, D>, index: u32) -> Result<()> {
        let begun = Instant::now();
        let tail = read(regs, F::TX.tail.at(index))?;
        let mut head = read(regs, F::TX.head.at(index))?;
        while head != tail {
            match wait(regs, F::TX.head.at(index), |now| now != head, STALL, "the transmit queue to empty (TDH)") {
                Ok(now) if begun.elapsed() < DRAIN_LIMIT => head = now,
                Ok(_) | Err(Error::Timeout { .. }) => {
                    let name = regs.device().name();
                    tracing::info!(
                        "{name}: transmit queue {index} is stopped at {head} with frames up to {tail} unsent"
                    );
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Disables transmit queue `index` and waits until the device has left it (82599 datasheet 4.6.8.2, 82576 datasheet 4.5).
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`] when it does not leave it, [`Error::Expired`], [`Error::Gone`].
    pub fn disable(regs: &Timed<F, D>, index: u32) -> Result<()> {
        disable(regs, &F::TX, index, "the transmit queue to stop")
    }
}

/// How long a queue may stand still before it is given up: three times the longest pause at 10 Gbit/s; at
/// 10 Mbit/s the longest frame takes 8 ms.
const STALL: Duration = Duration::from_millis(10);
/// How long it may take in all.
const DRAIN_LIMIT: Duration = Duration::from_millis(100);
