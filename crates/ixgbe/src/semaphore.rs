//! The semaphores that guard EEPROM, PHY and MAC registers against firmware and the other port (82599 datasheet
//! 10.5.4; X550 datasheet 11.8.4, where a bit of its own guards the synchronisation register, as on an X540).

use crate::regs::{Ixgbe, SW_FW_SYNC, SWSM, sw_fw_sync};
use crate::wait::Timed;
use crate::{MacType, Result};
use device::{Bits, Device};
use intel::Semaphores;
use std::time::Duration;

/// [`Semaphores::holding`] for a MAC of type `mac`.
pub(crate) fn holding<D: Device, T>(
    regs: &Timed<D>,
    mac: MacType,
    resource: Bits,
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    of(mac).holding(regs, resource, work)
}

/// Gives back what a program that died has left of an X540's or X550's semaphores, as Intel's drivers do when they begin: a reset of these
/// does not ("the software semaphores are not reset", X550 datasheet 11.8.4.1, which gives their owner a second). Waits for a second at
/// most, and only if there are such. Returns their bits.
///
/// # Errors
///
/// As [`Semaphores::recover`].
pub(crate) fn recover<D: Device>(regs: &Timed<D>, mac: MacType) -> Result<u32> {
    if mac == MacType::Mac82599 {
        return Ok(0);
    }
    of(mac).recover(regs, SOFTWARE)
}

/// The semaphores of a MAC of type `mac`.
pub(crate) fn of(mac: MacType) -> Semaphores<Ixgbe> {
    let (others, regsmp): (fn(u32) -> u32, _) = match mac {
        MacType::Mac82599 => (|software| software << FIRMWARE_SHIFT, None),
        MacType::X540 | MacType::X550 => (others_after_82599, Some(sw_fw_sync::REGSMP)),
    };
    Semaphores { swsm: SWSM, sw_fw_sync: SW_FW_SYNC, others, regsmp, holder_limit: holder_limit(mac) }
}

/// How long firmware may hold a resource: what Intel's drivers wait, looking every 5 ms (200 times, and 1,000 times on an X550). It is the
/// default time limit of an operation on an X550, so there the operation ends with an error before firmware is overruled.
pub(crate) const fn holder_limit(mac: MacType) -> Duration {
    match mac {
        MacType::Mac82599 | MacType::X540 => Semaphores::<Ixgbe>::HOLDER_LIMIT,
        MacType::X550 => Duration::from_secs(5),
    }
}

/// Only four resources are firmware's too, and while the device writes its flash nobody reads the EEPROM.
const fn others_after_82599(software: u32) -> u32 {
    let flash = if software == sw_fw_sync::EEP.mask() { sw_fw_sync::FLASH.mask() } else { 0 };
    (software & WITH_FIRMWARE) << FIRMWARE_SHIFT | flash
}

/// Firmware's bit for a resource is this much higher than software's.
const FIRMWARE_SHIFT: u32 = 5;
/// EEP, PHY0, PHY1 and MAC_CSR.
const WITH_FIRMWARE: u32 = 0xF;

/// All of software's bits, the other port's among them.
const SOFTWARE: u32 = sw_fw_sync::EEP.mask()
    | sw_fw_sync::PHY0.mask()
    | sw_fw_sync::PHY1.mask()
    | sw_fw_sync::MAC_CSR.mask()
    | sw_fw_sync::SW_MNG.mask()
    | sw_fw_sync::I2C.mask();

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use crate::fake::Fake;
    use MacType::{Mac82599, X540, X550};
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
        for (device, mac, left) in [(0x10FB, Mac82599, 0), (0x1528, X540, MAC_CSR << 5)] {
            let fake = Fake::new(device);
            fake.set(SW_FW_SYNC, MAC_CSR | MAC_CSR << 5 | 1 << 1);
            holding(&fake.regs(), mac, sw_fw_sync::MAC_CSR, || Ok(())).unwrap();
            assert_eq!(fake.get(SW_FW_SYNC), 1 << 1 | left, "others keep theirs, and since the X540 firmware does");
        }
    }

    /// Firmware of an X550 has as long as the whole operation, and keeps what it holds.
    #[test]
    fn firmware_of_an_x550_is_not_overruled_after_a_second() {
        let fake = Fake::new(0x1563);
        fake.set(SW_FW_SYNC, MAC_CSR << 5);
        let regs = fake.regs().at_most(Duration::from_millis(1500));
        let outcome = holding(&regs, X550, sw_fw_sync::MAC_CSR, || Ok(()));
        assert!(matches!(outcome, Err(Error::Expired { .. })), "{outcome:?}");
        assert_eq!(fake.get(SW_FW_SYNC) & 0x7FFF_FFFF, MAC_CSR << 5);
    }

    #[test]
    fn a_dead_program_is_overruled_after_a_second_on_an_x550_too() {
        let fake = Fake::new(0x1563);
        fake.set(SW_FW_SYNC, 1 << 1);
        holding(&fake.regs().at_most(Duration::from_secs(4)), X550, sw_fw_sync::PHY0, || Ok(())).unwrap();
        assert_eq!(fake.get(SW_FW_SYNC), 0);
    }

    /// Bits that stay are given back, those of firmware are not, nor are bits that a living program takes meanwhile.
    #[test]
    fn what_programs_have_left_is_given_back() {
        let fake = Fake::new(0x1528);
        assert_eq!(recover(&fake.regs(), X540).unwrap(), 0);
        fake.set(SW_FW_SYNC, 1 | 1 << 2 | 1 << 10 | 1 << 6 | 1 << 8);
        let mut reads = 0;
        fake.on_read(SW_FW_SYNC, move |storage| {
            reads += 1;
            let before = storage.get(&SW_FW_SYNC.offset()).copied().unwrap_or(0);
            storage.insert(SW_FW_SYNC.offset(), before | 1 << 31);
            before | u32::from(reads % 16 < 8) << 3
        });
        fake.on_write(SW_FW_SYNC, |storage, value| {
            storage.insert(SW_FW_SYNC.offset(), value & !(1 << 3));
        });
        assert_eq!(recover(&fake.regs(), X540).unwrap(), 1 | 1 << 2 | 1 << 10);
        assert_eq!(fake.get(SW_FW_SYNC), 1 << 6 | 1 << 8);
        assert_eq!(fake.get(SWSM) & 3, 0);
    }

    #[test]
    fn opening_gives_back_what_was_left() {
        let pool = mempool::Pool::new(&mempool::PoolConfig::default()).unwrap();
        let fake = Fake::new(0x1528);
        // Two that nothing takes at opening, and the EEPROM's.
        fake.set(SW_FW_SYNC, 1 | 1 << 10 | 1 << 11);
        let opened = crate::open(fake.clone(), &crate::Config::default(), &pool).unwrap();
        assert_eq!(fake.get(SW_FW_SYNC) & 0x7FFF_FFFF, 0);
        opened.close().unwrap();
    }

    #[test]
    fn an_82599s_semaphores_are_left_to_its_reset() {
        let fake = Fake::new(0x10FB);
        fake.set(SW_FW_SYNC, 1 << 1);
        assert_eq!((recover(&fake.regs(), Mac82599).unwrap(), fake.get(SW_FW_SYNC)), (0, 1 << 1));
        assert!(fake.writes().is_empty());
    }

    /// Bit 15 would be firmware's half of SW_MNG, and is not; bit 4 is set while the flash is written.
    #[test]
    fn which_bits_keep_a_resource_from_being_taken() {
        let takes = |resource, sync: u32| {
            let fake = Fake::new(0x1563);
            let cancel = std::sync::Arc::default();
            let limit = device::TimeLimit { cancel: Some(std::sync::Arc::clone(&cancel)), ..Default::default() };
            // More than to take it at once, and fewer than to wait for it.
            let mut reads = 0;
            fake.on_read(SW_FW_SYNC, move |storage| {
                reads += 1;
                cancel.store(reads > 3, std::sync::atomic::Ordering::Relaxed);
                storage.get(&SW_FW_SYNC.offset()).copied().unwrap_or(0) | sync
            });
            holding(&Timed::new(&fake.regs(), limit.begin()), X550, resource, || Ok(())).is_ok()
        };
        assert!(takes(sw_fw_sync::SW_MNG, 1 << 15) && !takes(sw_fw_sync::SW_MNG, 1 << 10));
        assert!(takes(sw_fw_sync::MAC_CSR, 1 << 4) && !takes(sw_fw_sync::EEP, 1 << 4));
        assert!(!takes(sw_fw_sync::EEP, 1 << 5) && !takes(sw_fw_sync::PHY1, 1 << 7));
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
