//! What the self-tests of drivers have in common: checks of a device whose queues are off.

use crate::wait::{Timed, read};
use crate::{Error, Family, Result};
use device::{Device, ReadWrite, Reg};
use ethdev::{Check, Verdict};
use std::time::Duration;

/// A check of a device of model `M`.
pub type Test<F, D, M> = fn(&Timed<F, D>, M) -> Result<Check>;

/// Runs checks in order. One that fails does not end the test, unless it is the first, which is the reset, the device is gone, or the
/// time for all of them is over; a check may have less. If the last one did not fail, `stop` follows, in a time of its own, and the log says if it fails.
pub fn run<F: Family, D: Device, M: Copy>(
    regs: &Timed<F, D>,
    model: M,
    tests: &[(&'static str, Test<F, D, M>)],
    stop: fn(&Timed<F, D>, M) -> Result<()>,
) -> Vec<Check> {
    let mut checks = Vec::new();
    for (number, (name, test)) in tests.iter().enumerate() {
        let outcome = test(regs, model);
        let is_end = outcome.as_ref().is_err_and(|error| match error {
            Error::Gone { .. } | Error::Device(_) => true,
            Error::Expired { .. } => number == 0 || regs.check("the next check").is_err(),
            _ => number == 0,
        });
        checks.push(outcome.unwrap_or_else(|error| Check::failed(name, error)));
        if is_end {
            break;
        }
    }
    let after = regs.afterwards(END_LIMIT);
    regs.device().set_deadline(Some(after.deadline().clone()));
    if checks.last().is_none_or(|check| check.verdict != Verdict::Failed)
        && let Err(error) = stop(&after, model)
    {
        tracing::warn!("at the end of the self-test: {error}");
    }
    checks
}

/// Writes patterns to registers that keep what is written, as far as the bits beside them say, reads them back, and puts back what was in
/// them.
///
/// # Errors
///
/// [`Error::Gone`].
pub fn patterns<F: Family, D: Device>(
    regs: &Timed<F, D>,
    name: &'static str,
    registers: &[(Reg<F, ReadWrite>, u32)],
) -> Result<Check> {
    let mut wrong = Vec::new();
    for &(register, bits) in registers {
        let before = read(regs, register)?;
        for pattern in PATTERNS {
            regs.write(register, pattern & bits);
            let kept = read(regs, register)? & bits;
            if kept != pattern & bits {
                wrong.push(format!("{register:?} keeps {kept:#010x} of {:#010x}", pattern & bits));
                break;
            }
        }
        regs.write(register, before);
    }
    let count = registers.len();
    Ok(match wrong.first() {
        None => Check::ok(name, format!("{count} keep what is written")),
        Some(first) => Check::failed(name, format!("{} of {count} do not keep what is written: {first}", wrong.len())),
    })
}

/// What is written to registers, one after the other.
pub const PATTERNS: [u32; 4] = [0x5A5A_5A5A, 0xA5A5_A5A5, 0, u32::MAX];
/// For the device to be left as it should be.
const END_LIMIT: Duration = Duration::from_secs(1);
