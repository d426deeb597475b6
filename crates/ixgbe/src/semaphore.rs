//! The semaphores that guard EEPROM, PHY and MAC registers against firmware and the other port (82599 datasheet
//! 10.5.4; X540 and X550 guard the synchronisation register by a bit of its own).

use crate::regs::{Registers, SW_FW_SYNC, SWSM, sw_fw_sync, swsm};
use crate::wait::{Timed, modify, read, wait, wait_retrying};
use crate::{Error, MacType, Result};
use device::{Bits, Device};
use std::time::{Duration, Instant};

/// Runs `work` while this driver owns `resource`, a software bit of SW_FW_SYNC. A holder that does not let go for a
/// second is taken for dead: its bits are cleared, and the log says so. It is given back even if time is up meanwhile, which
/// takes another 0.3 s at most.
///
/// # Errors
///
/// [`Error::Timeout`] when the semaphore registers are stuck, [`Error::Expired`], [`Error::Gone`], and what `work` returns.
pub(crate) fn holding<D: Device, T>(
    regs: &Timed<D>,
    mac: MacType,
    resource: Bits,
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    acquire(regs, mac, resource)?;
    let outcome = work();
    if matches!(outcome, Err(Error::Gone { .. })) {
        return outcome;
    }
    // Others wait for it, so it is given back even if time is up.
    let released = under_lock(&regs.afterwards(RELEASE_LIMIT), mac, |sync| Some(sync & !resource.mask()));
    outcome.and_then(|value| released.map(|_| value))
}

fn acquire<D: Device>(regs: &Timed<D>, mac: MacType, resource: Bits) -> Result<()> {
    let software = resource.mask();
    let taken = software | (software << FIRMWARE_SHIFT);
    let start = Instant::now();
    loop {
        if under_lock(regs, mac, |sync| (sync & taken == 0).then_some(sync | software))? {
            return Ok(());
        }
        if start.elapsed() >= HOLDER_LIMIT {
            tracing::warn!(
                "{}: took a semaphore (SW_FW_SYNC bits {taken:#x}) from a holder that did not let go",
                regs.device().name()
            );
            under_lock(regs, mac, |sync| Some((sync & !taken) | software))?;
            return Ok(());
        }
        regs.sleep(Duration::from_millis(5), "another holder to release a semaphore (SW_FW_SYNC)")?;
    }
}

/// Offers the value of SW_FW_SYNC to `change` under the lock of that register, and writes what it returns, if anything.
/// Returns whether it was written.
fn under_lock<D: Device>(regs: &Timed<D>, mac: MacType, change: impl FnOnce(u32) -> Option<u32>) -> Result<bool> {
    lock(regs, mac)?;
    let sync = read(regs, SW_FW_SYNC)?;
    let changed = change(sync);
    if let Some(value) = changed {
        regs.write(SW_FW_SYNC, value);
    }
    unlock(regs, mac)?;
    Ok(changed.is_some())
}

fn lock<D: Device>(regs: &Timed<D>, mac: MacType) -> Result<()> {
    let free = |value| !swsm::SMBI.is_set(value);
    match wait(regs, SWSM, free, LOCK_LIMIT, "the software semaphore (SWSM.SMBI)") {
        Ok(_) => {}
        Err(Error::Timeout { .. }) => {
            // Vendor procedure: whoever held it died with it. Release it once and take it.
            tracing::warn!("{}: SWSM.SMBI was left set, released it", regs.device().name());
            release_swsm(regs)?;
            wait(regs, SWSM, free, LOCK_LIMIT, "the software semaphore (SWSM.SMBI), which was released by force")?;
        }
        Err(error) => return Err(error),
    }
    let locked = match mac {
        MacType::Mac82599 => wait_retrying(
            regs,
            SWSM,
            || regs.write(SWSM, swsm::SMBI.mask() | swsm::SWESMBI.mask()),
            |value| swsm::SWESMBI.is_set(value),
            LOCK_LIMIT,
            "the firmware to release the semaphore (SWSM.SWESMBI)",
        ),
        MacType::X540 | MacType::X550 => {
            let free = |value| !sw_fw_sync::REGSMP.is_set(value);
            match wait(regs, SW_FW_SYNC, free, LOCK_LIMIT, "the register semaphore (SW_FW_SYNC.REGSMP)") {
                Err(Error::Timeout { .. }) => {
                    tracing::warn!("{}: SW_FW_SYNC.REGSMP was left set, released it", regs.device().name());
                    modify(regs, SW_FW_SYNC, |value| sw_fw_sync::REGSMP.set(value, 0))?;
                    wait(regs, SW_FW_SYNC, free, LOCK_LIMIT, "the register semaphore, which was released by force")
                }
                outcome => outcome,
            }
        }
    };
    match locked {
        Ok(_) => Ok(()),
        Err(error @ Error::Gone { .. }) => Err(error),
        Err(error) => {
            release_swsm(regs)?;
            Err(error)
        }
    }
}

fn unlock<D: Device>(regs: &Registers<D>, mac: MacType) -> Result<()> {
    if mac != MacType::Mac82599 {
        modify(regs, SW_FW_SYNC, |value| sw_fw_sync::REGSMP.set(value, 0))?;
    }
    release_swsm(regs)
}

fn release_swsm<D: Device>(regs: &Registers<D>) -> Result<()> {
    modify(regs, SWSM, |value| value & !(swsm::SMBI.mask() | swsm::SWESMBI.mask()))
}

/// Firmware's bit for a resource is this much higher than software's.
const FIRMWARE_SHIFT: u32 = 5;
/// How long SWSM and REGSMP may be held by others.
const LOCK_LIMIT: Duration = Duration::from_millis(100);
/// How long giving back may take.
const RELEASE_LIMIT: Duration = Duration::from_millis(300);
/// How long a resource may be held by others.
const HOLDER_LIMIT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;
    use MacType::{Mac82599, X540};
    use ethdev::ConfigError;

    const MAC_CSR: u32 = 1 << 3;

    #[test]
    fn owns_the_resource_only_while_working() {
        for (device, mac) in [(0x10FB, Mac82599), (0x1528, X540)] {
            let fake = Fake::new(device);
            let regs = fake.regs();
            holding(&regs, mac, sw_fw_sync::MAC_CSR, || {
                assert_eq!(fake.get(SW_FW_SYNC), MAC_CSR, "held, and its lock released");
                assert_eq!(fake.get(SWSM), 0);
                Ok(())
            })
            .unwrap();
            assert_eq!((fake.get(SW_FW_SYNC), fake.get(SWSM)), (0, 0));
        }
    }

    #[test]
    fn is_released_when_the_work_fails() {
        let fake = Fake::new(0x10FB);
        let failed: Result<()> =
            holding(&fake.regs(), Mac82599, sw_fw_sync::EEP, || Err(ConfigError::new("test", "fails").into()));
        assert!(matches!(failed, Err(Error::Config(_))));
        assert_eq!((fake.get(SW_FW_SYNC), fake.get(SWSM)), (0, 0));
    }

    #[test]
    fn waits_for_firmware_to_let_go() {
        let fake = Fake::new(0x10FB);
        let mut held = 3;
        fake.on_read(SW_FW_SYNC, move |storage| {
            held -= i32::from(held > 0);
            let ours = storage.get(&SW_FW_SYNC.offset()).copied().unwrap_or(0);
            if held > 0 { ours | MAC_CSR << 5 } else { ours }
        });
        holding(&fake.regs(), Mac82599, sw_fw_sync::MAC_CSR, || Ok(())).unwrap();
        let sync: Vec<_> = fake.writes().iter().filter(|(o, _)| *o == SW_FW_SYNC.offset()).map(|w| w.1).collect();
        assert_eq!(sync, [MAC_CSR, 0], "not taken while firmware held it");
    }

    #[test]
    fn a_dead_holder_is_overruled_after_its_limit() {
        for (device, mac) in [(0x10FB, Mac82599), (0x1528, X540)] {
            let fake = Fake::new(device);
            fake.set(SW_FW_SYNC, MAC_CSR | MAC_CSR << 5 | 1 << 1);
            holding(&fake.regs(), mac, sw_fw_sync::MAC_CSR, || Ok(())).unwrap();
            assert_eq!(fake.get(SW_FW_SYNC), 1 << 1, "others keep theirs");
        }
    }

    #[test]
    fn a_left_over_smbi_is_released_by_force() {
        let fake = Fake::new(0x10FB);
        fake.set(SWSM, 1);
        holding(&fake.regs(), Mac82599, sw_fw_sync::MAC_CSR, || Ok(())).unwrap();
        assert_eq!(fake.get(SWSM), 0);
    }

    #[test]
    fn a_left_over_regsmp_is_released_by_force() {
        let fake = Fake::new(0x1528);
        fake.set(SW_FW_SYNC, 1 << 31);
        holding(&fake.regs(), X540, sw_fw_sync::MAC_CSR, || Ok(())).unwrap();
        assert_eq!(fake.get(SW_FW_SYNC), 0);
    }

    #[test]
    fn timeouts_are_named() {
        let fake = Fake::new(0x10FB);
        fake.on_read(SWSM, |_| 1);
        let error = holding(&fake.regs(), Mac82599, sw_fw_sync::EEP, || Ok(())).unwrap_err();
        assert!(error.to_string().contains("SWSM.SMBI"), "{error}");

        let fake = Fake::new(0x10FB);
        fake.on_read(SWSM, |_| 0);
        let error = holding(&fake.regs(), Mac82599, sw_fw_sync::EEP, || Ok(())).unwrap_err();
        assert!(error.to_string().contains("SWSM.SWESMBI"), "{error}");
    }
}
