//! The semaphores that guard EEPROM, PHY and MAC registers against firmware and the other port (82599 datasheet
//! 10.5.4; X540 and X550 guard the synchronisation register by a bit of its own).

use crate::regs::{SW_FW_SYNC, SWSM, sw_fw_sync};
use crate::wait::Timed;
use crate::{MacType, Result};
use device::{Bits, Device};
use intel::Semaphores;

/// [`Semaphores::holding`] for a MAC of type `mac`.
pub(crate) fn holding<D: Device, T>(
    regs: &Timed<D>,
    mac: MacType,
    resource: Bits,
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let regsmp = match mac {
        MacType::Mac82599 => None,
        MacType::X540 | MacType::X550 => Some(sw_fw_sync::REGSMP),
    };
    Semaphores { swsm: SWSM, sw_fw_sync: SW_FW_SYNC, firmware_shift: 5, regsmp }.holding(regs, resource, work)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
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
