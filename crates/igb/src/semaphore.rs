//! The semaphores that guard the PHY against firmware and the other ports (82576 datasheet 4.7).

use crate::regs::{Registers, SW_FW_SYNC, SWSM, swsm};
use crate::wait::{Timed, modify, read, wait, wait_retrying};
use crate::{Error, Result};
use device::{Bits, Device};
use std::time::{Duration, Instant};

/// Runs `work` while this driver owns `resource`, a software bit of SW_FW_SYNC. A holder that does not let go for a
/// second is taken for dead: its bits are cleared, and the log says so. It is given back even if time is up meanwhile, which
/// takes another 0.3 s at most.
///
/// # Errors
///
/// [`Error::Timeout`] when the semaphore registers are stuck, [`Error::Expired`], [`Error::Gone`], and what `work` returns.
pub(crate) fn holding<D: Device, T>(regs: &Timed<D>, resource: Bits, work: impl FnOnce() -> Result<T>) -> Result<T> {
    acquire(regs, resource)?;
    let outcome = work();
    if matches!(outcome, Err(Error::Gone { .. })) {
        return outcome;
    }
    let released = under_lock(&regs.afterwards(RELEASE_LIMIT), |sync| Some(sync & !resource.mask()));
    outcome.and_then(|value| released.map(|_| value))
}

fn acquire<D: Device>(regs: &Timed<D>, resource: Bits) -> Result<()> {
    let software = resource.mask();
    let taken = software | (software << FIRMWARE_SHIFT);
    let start = Instant::now();
    loop {
        if under_lock(regs, |sync| (sync & taken == 0).then_some(sync | software))? {
            return Ok(());
        }
        if start.elapsed() >= HOLDER_LIMIT {
            let name = regs.device().name();
            tracing::warn!("{name}: took the PHY (SW_FW_SYNC bits {taken:#x}) from a holder that did not let go");
            under_lock(regs, |sync| Some((sync & !taken) | software))?;
            return Ok(());
        }
        regs.sleep(Duration::from_millis(5), "another holder to release the PHY (SW_FW_SYNC)")?;
    }
}

/// Offers the value of SW_FW_SYNC to `change` under the lock of that register, and writes what it returns, if anything.
/// Returns whether it was written.
fn under_lock<D: Device>(regs: &Timed<D>, change: impl FnOnce(u32) -> Option<u32>) -> Result<bool> {
    lock(regs)?;
    let sync = read(regs, SW_FW_SYNC)?;
    let changed = change(sync);
    if let Some(value) = changed {
        regs.write(SW_FW_SYNC, value);
    }
    release(regs)?;
    Ok(changed.is_some())
}

fn lock<D: Device>(regs: &Timed<D>) -> Result<()> {
    let free = |value| !swsm::SMBI.is_set(value);
    match wait(regs, SWSM, free, LOCK_LIMIT, "the software semaphore (SWSM.SMBI)") {
        Ok(_) => {}
        Err(Error::Timeout { .. }) => {
            // Whoever held it died with it. Release it once and take it.
            tracing::warn!("{}: SWSM.SMBI was left set, released it", regs.device().name());
            release(regs)?;
            wait(regs, SWSM, free, LOCK_LIMIT, "the software semaphore (SWSM.SMBI), which was released by force")?;
        }
        Err(error) => return Err(error),
    }
    let locked = wait_retrying(
        regs,
        SWSM,
        || regs.write(SWSM, swsm::SMBI.mask() | swsm::SWESMBI.mask()),
        |value| swsm::SWESMBI.is_set(value),
        LOCK_LIMIT,
        "the firmware to release the semaphore (SWSM.SWESMBI)",
    );
    match locked {
        Ok(_) => Ok(()),
        Err(error @ Error::Gone { .. }) => Err(error),
        Err(error) => release(regs).and(Err(error)),
    }
}

fn release<D: Device>(regs: &Registers<D>) -> Result<()> {
    modify(regs, SWSM, |value| value & !(swsm::SMBI.mask() | swsm::SWESMBI.mask()))
}

/// Firmware's bit for a resource is this much higher than software's.
const FIRMWARE_SHIFT: u32 = 16;
/// How long SWSM may be held by others.
const LOCK_LIMIT: Duration = Duration::from_millis(100);
/// How long giving back may take.
const RELEASE_LIMIT: Duration = Duration::from_millis(300);
/// How long a resource may be held by others.
const HOLDER_LIMIT: Duration = Duration::from_secs(1);
