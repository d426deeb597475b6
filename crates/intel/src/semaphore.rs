//! Semaphores that guard what a port shares with firmware and the other ports (82599 datasheet 10.5.4, 82576 datasheet 8.7).

use crate::wait::{Timed, modify, read, wait, wait_retrying};
use crate::{Error, Family, Result};
use device::{Bits, Device, ReadWrite, Reg, Regs};
use std::fmt;
use std::time::{Duration, Instant};

/// Where a family has its semaphores.
pub struct Semaphores<F> {
    /// The lock of `sw_fw_sync`: software semaphores SMBI and SWESMBI in bits 0 and 1.
    pub swsm: Reg<F, ReadWrite>,
    /// Who owns what: a bit of software and one of firmware for each resource.
    pub sw_fw_sync: Reg<F, ReadWrite>,
    /// Returns the bits of `sw_fw_sync` that keep software from a resource, its software bit, although they are not software's: those
    /// of firmware and of the device itself.
    pub others: fn(u32) -> u32,
    /// The bit of `sw_fw_sync` that takes SWESMBI's part, if one does: REGSMP. Where it does, the bits of firmware and device are theirs to
    /// clear.
    pub regsmp: Option<Bits>,
    /// How long others may hold a resource before they are taken for dead; a program that holds it alone, [`Self::HOLDER_LIMIT`].
    pub holder_limit: Duration,
}

impl<F: Family> Semaphores<F> {
    /// What Intel's drivers wait for a holder, but for those of the X550: 200 looks, 5 ms apart. The X550's datasheet gives a program as
    /// long (11.8.4.1).
    pub const HOLDER_LIMIT: Duration = Duration::from_secs(1);

    /// Runs `work` while this driver owns `resource`, a software bit of SW_FW_SYNC. A holder that does not let go within
    /// its limit is taken for dead: software takes the resource all the same, and the log says so. It is given back even if
    /// time is up meanwhile, which takes another 0.3 s at most.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`] when the semaphore registers are stuck, [`Error::Expired`], [`Error::Gone`], and what `work` returns.
    pub fn holding<D: Device, T>(
        &self,
        regs: &Timed<F, D>,
        resource: Bits,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        self.acquire(regs, resource)?;
        let outcome = work();
        if matches!(outcome, Err(Error::Gone { .. })) {
            return outcome;
        }
        // Others wait for it, so it is given back even if time is up.
        let released = self.under_lock(&regs.afterwards(RELEASE_LIMIT), |sync| Some(sync & !resource.mask()));
        outcome.and_then(|value| released.map(|_| value))
    }

    fn acquire<D: Device>(&self, regs: &Timed<F, D>, resource: Bits) -> Result<()> {
        let software = resource.mask();
        let taken = software | (self.others)(software);
        // With REGSMP, software takes what firmware keeps without touching firmware's bit.
        let cleared = if self.regsmp.is_some() { 0 } else { taken };
        let start = Instant::now();
        // Since when a program has been the only holder.
        let mut alone = start;
        loop {
            let mut seen = 0;
            let take = |sync| {
                seen = sync & taken;
                (seen == 0).then_some(sync | software)
            };
            if self.under_lock(regs, take)? {
                return Ok(());
            }
            if seen != software {
                alone = Instant::now();
            }
            if start.elapsed() >= self.holder_limit || alone.elapsed() >= Self::HOLDER_LIMIT {
                // Only who has waited for so long may, and not one who was to be done by now.
                regs.check("another holder to release a semaphore (SW_FW_SYNC)")?;
                let name = regs.device().name();
                tracing::warn!(
                    "{name}: took a semaphore (SW_FW_SYNC bits {taken:#x}) from a holder that did not let go"
                );
                self.under_lock(regs, |sync| Some((sync & !cleared) | software))?;
                return Ok(());
            }
            regs.sleep(Duration::from_millis(5), "another holder to release a semaphore (SW_FW_SYNC)")?;
        }
    }

    /// Gives back what programs that died have left: the lock of SW_FW_SYNC, and of `resources`, software's bits in it, those that stay
    /// set for [`Self::HOLDER_LIMIT`]; the log says so. Returns these bits.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`] when the semaphore registers are stuck, [`Error::Expired`], [`Error::Gone`].
    pub fn recover<D: Device>(&self, regs: &Timed<F, D>, resources: u32) -> Result<u32> {
        let start = Instant::now();
        let mut left = resources;
        loop {
            let is_over = start.elapsed() >= Self::HOLDER_LIMIT;
            let cleared = self.under_lock(regs, |sync| {
                left &= sync;
                (is_over && left != 0).then_some(sync & !left)
            })?;
            if cleared {
                let name = regs.device().name();
                tracing::warn!(
                    "{name}: gave back semaphores (SW_FW_SYNC bits {left:#x}) that a program has left taken"
                );
            }
            if is_over || left == 0 {
                return Ok(left);
            }
            regs.sleep(Duration::from_millis(5), "a program to release a semaphore (SW_FW_SYNC)")?;
        }
    }

    /// Offers the value of SW_FW_SYNC to `change` under the lock of that register, and writes what it returns, if anything.
    /// Returns whether it was written.
    fn under_lock<D: Device>(&self, regs: &Timed<F, D>, change: impl FnOnce(u32) -> Option<u32>) -> Result<bool> {
        self.lock(regs)?;
        let sync = read(regs, self.sw_fw_sync)?;
        let changed = change(sync);
        if let Some(value) = changed {
            regs.write(self.sw_fw_sync, value);
        }
        self.unlock(regs)?;
        Ok(changed.is_some())
    }

    fn lock<D: Device>(&self, regs: &Timed<F, D>) -> Result<()> {
        let free = |value| !SMBI.is_set(value);
        match wait(regs, self.swsm, free, LOCK_LIMIT, "the software semaphore (SWSM.SMBI)") {
            Ok(_) => {}
            Err(Error::Timeout { .. }) => {
                // Vendor procedure: whoever held it died with it. Release it once and take it.
                tracing::warn!("{}: SWSM.SMBI was left set, released it", regs.device().name());
                self.release_swsm(regs)?;
                let waiting_for = "the software semaphore (SWSM.SMBI), which was released by force";
                wait(regs, self.swsm, free, LOCK_LIMIT, waiting_for)?;
            }
            Err(error) => return Err(error),
        }
        match self.regsmp.map_or_else(|| self.lock_swesmbi(regs), |regsmp| self.lock_regsmp(regs, regsmp)) {
            Ok(_) => Ok(()),
            Err(error @ Error::Gone { .. }) => Err(error),
            Err(error) => self.release_swsm(regs).and(Err(error)),
        }
    }

    fn lock_swesmbi<D: Device>(&self, regs: &Timed<F, D>) -> Result<u32> {
        wait_retrying(
            regs,
            self.swsm,
            || regs.write(self.swsm, SMBI.mask() | SWESMBI.mask()),
            |value| SWESMBI.is_set(value),
            LOCK_LIMIT,
            "the firmware to release the semaphore (SWSM.SWESMBI)",
        )
    }

    fn lock_regsmp<D: Device>(&self, regs: &Timed<F, D>, regsmp: Bits) -> Result<u32> {
        let free = |value| !regsmp.is_set(value);
        match wait(regs, self.sw_fw_sync, free, LOCK_LIMIT, "the register semaphore (SW_FW_SYNC.REGSMP)") {
            Err(Error::Timeout { .. }) => {
                tracing::warn!("{}: SW_FW_SYNC.REGSMP was left set, released it", regs.device().name());
                modify(regs, self.sw_fw_sync, |value| regsmp.set(value, 0))?;
                let waiting_for = "the register semaphore, which was released by force";
                wait(regs, self.sw_fw_sync, free, LOCK_LIMIT, waiting_for)
            }
            outcome => outcome,
        }
    }

    fn unlock<D: Device>(&self, regs: &Regs<F, D>) -> Result<()> {
        if let Some(regsmp) = self.regsmp {
            modify(regs, self.sw_fw_sync, |value| regsmp.set(value, 0))?;
        }
        self.release_swsm(regs)
    }

    fn release_swsm<D: Device>(&self, regs: &Regs<F, D>) -> Result<()> {
        modify(regs, self.swsm, |value| value & !(SMBI.mask() | SWESMBI.mask()))
    }
}

impl<F> fmt::Debug for Semaphores<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphores").field("swsm", &self.swsm).finish_non_exhaustive()
    }
}

const SMBI: Bits = Bits::new(0, 0);
const SWESMBI: Bits = Bits::new(1, 1);
/// How long SWSM and REGSMP may be held by others: what Intel's drivers wait (2000 looks, 50 us apart). It covers one access to SW_FW_SYNC
/// only (82599 10.5.4).
const LOCK_LIMIT: Duration = Duration::from_millis(100);
/// How long giving back may take, for which each of three waits of the lock may come to its end: no datasheet has this, as there nobody is
/// out of time.
const RELEASE_LIMIT: Duration = Duration::from_millis(300);
