//! What the self-tests of drivers have in common: checks of a device whose queues are off.

use crate::wait::{Timed, read};
use crate::{Error, Family, Result, Semaphores};
use device::{Bits, Device, ReadWrite, Reg};
use ethdev::{Check, Verdict};
use std::time::{Duration, Instant};

/// A check of a device of model `M`.
pub type Test<F, D, M> = fn(&Timed<F, D>, M) -> Result<Check>;

/// Runs checks in order. One that fails does not end the test, unless it is the first, which is the reset, the device is gone, or the
/// time for all of them is over, after which none begins; a check may have less. If the last one did not fail, `stop` follows, in a time of its own, and the log says if it fails.
pub fn run<F: Family, D: Device, M: Copy>(
    regs: &Timed<F, D>,
    model: M,
    tests: &[(&'static str, Test<F, D, M>)],
    stop: fn(&Timed<F, D>, M) -> Result<()>,
) -> Vec<Check> {
    let mut checks = Vec::new();
    for (number, (name, test)) in tests.iter().enumerate() {
        let outcome = regs.check("the next check").and_then(|()| test(regs, model));
        let is_end = outcome.as_ref().is_err_and(|error| match error {
            Error::Gone { .. } | Error::Device(_) => true,
            Error::Expired { .. } => number == 0 || regs.check("the next check").is_err(),
            _ => number == 0,
        });
        checks.push(outcome.unwrap_or_else(|error| Check::ended_by(name, &error)));
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
/// them. What is read of `addresses` is not told: a station address may be in them, and a report may be for everybody.
///
/// # Errors
///
/// [`Error::Expired`], [`Error::Gone`].
pub fn patterns<F: Family, D: Device>(
    regs: &Timed<F, D>,
    name: &'static str,
    others: &[(Reg<F, ReadWrite>, u32)],
    addresses: &[(Reg<F, ReadWrite>, u32)],
) -> Result<Check> {
    let mut wrong = Vec::new();
    for (index, &(register, bits)) in others.iter().chain(addresses).enumerate() {
        regs.check("patterns in all registers")?;
        let before = read(regs, register)?;
        for pattern in PATTERNS {
            regs.write(register, pattern & bits);
            let kept = read(regs, register)? & bits;
            if kept != pattern & bits {
                let kept = if index < others.len() { format!("{kept:#010x}") } else { "not all".to_owned() };
                wrong.push(format!("{register:?} keeps {kept} of {:#010x}", pattern & bits));
                break;
            }
        }
        regs.write(register, before);
    }
    let count = others.len() + addresses.len();
    Ok(match wrong.first() {
        None => Check::ok(name, format!("{count} keep what is written")),
        Some(first) => Check::failed(name, format!("{} of {count} do not keep what is written: {first}", wrong.len())),
    })
}

/// Takes and gives back each of `resources`, with what they guard.
///
/// # Errors
///
/// [`Error::Timeout`] when the semaphore registers are stuck, [`Error::Expired`], [`Error::Gone`].
pub fn semaphores<F: Family, D: Device>(
    regs: &Timed<F, D>,
    name: &'static str,
    semaphores: &Semaphores<F>,
    resources: &[(Bits, &str)],
) -> Result<Check> {
    for &(resource, of) in resources {
        // With REGSMP, reading the register takes a semaphore.
        let is_held = || match semaphores.regsmp {
            None => read(regs, semaphores.sw_fw_sync).map(|value| Some(resource.is_set(value))),
            Some(_) => Ok(None),
        };
        let begun = Instant::now();
        let held = match semaphores.holding(&regs.at_most(held_limit::<F>()), resource, is_held) {
            // Somebody who is not overruled so soon; whether the test is out of time is another matter.
            Err(error @ Error::Expired { .. }) => {
                regs.check("a semaphore (SW_FW_SYNC)").map_err(|_| error).map(|()| None)?
            }
            outcome => outcome?,
        };
        let waited = begun.elapsed();
        let problem = if waited >= Semaphores::<F>::HOLDER_LIMIT {
            "was held for a second, by firmware, the other port or a driver that died"
        } else if held == Some(false) {
            "is not kept when it is taken"
        } else if is_held()? == Some(true) {
            "stays taken when it is given back"
        } else {
            continue;
        };
        return Ok(Check::failed(name, format!("that of {of} {problem} (SW_FW_SYNC)")));
    }
    let guarded: Vec<_> = resources.iter().map(|resource| resource.1).collect();
    Ok(Check::ok(name, format!("those of {} can be taken and are given back", guarded.join(", "))))
}

/// How long a semaphore is waited for: long enough to overrule a holder who is dead, but for an X550's.
fn held_limit<F: Family>() -> Duration {
    Semaphores::<F>::HOLDER_LIMIT + Duration::from_millis(200)
}

/// What is written to registers, one after the other.
pub const PATTERNS: [u32; 4] = [0x5A5A_5A5A, 0xA5A5_A5A5, 0, u32::MAX];
/// For the device to be left as it should be.
const END_LIMIT: Duration = Duration::from_secs(1);
