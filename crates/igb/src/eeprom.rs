//! EEPROM words and their checksum (82576 datasheet 3.3, 6.2; EERD in 8.4). Of an I350 each port has a part with a checksum of its own.

use crate::regs::{EERD, Registers, STATUS, eerd, status, sw_fw_sync};
use crate::wait::{Timed, read, wait};
use crate::{MacType, Result, phy};
use device::Device;
use std::time::Duration;

/// Returns whether the words that concern this port add up to what they should: those up to the checksum word 0x3F, and of an I350 those
/// of the port's own part.
///
/// # Errors
///
/// [`crate::Error::Timeout`] when a word does not come, [`crate::Error::Expired`], [`crate::Error::Gone`].
pub(crate) fn check<D: Device>(regs: &Timed<D>, mac: MacType) -> Result<bool> {
    for first in parts(regs, mac)? {
        let sum = phy::SEMAPHORES.holding(regs, sw_fw_sync::EEP, || {
            (first..first + COVERED).try_fold(0u16, |sum, address| Ok(sum.wrapping_add(read_word(regs, address)?)))
        })?;
        if sum != CHECKSUM {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The first words of the parts that concern this port.
fn parts<D: Device>(regs: &Registers<D>, mac: MacType) -> Result<Vec<u16>> {
    let lan = if mac == MacType::I350 { status::LAN_ID.get(read(regs, STATUS)?) } else { 0 };
    // The first port's part is the common one; the others follow it at a distance of 0x40.
    let own = u16::try_from(lan).ok().filter(|lan| *lan > 0).map(|lan| COVERED + COVERED * lan);
    Ok([0].into_iter().chain(own).collect())
}

fn read_word<D: Device>(regs: &Timed<D>, address: u16) -> Result<u16> {
    regs.write(EERD, eerd::ADDR.set(eerd::START.mask(), address.into()));
    let value = wait(regs, EERD, |value| eerd::DONE.is_set(value), WORD_LIMIT, "an EEPROM word (EERD.DONE)")?;
    Ok(u16::try_from(eerd::DATA.get(value)).unwrap_or(u16::MAX))
}

/// Words that a checksum covers, itself the last.
const COVERED: u16 = 0x40;
/// What they add up to (6.2).
const CHECKSUM: u16 = 0xBABA;
/// 8.4 says of no time; a word takes some 20 us on the bus of the EEPROM. Intel's drivers wait half a second for each, by which the second
/// that nobody else may keep the semaphore (8.7) would soon be over.
const WORD_LIMIT: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use crate::fake::{Fake, eeprom};
    use crate::regs::SW_FW_SYNC;

    #[test]
    fn the_checksum_covers_the_parts_of_a_port() {
        let check = |device, mac, lan: u32, changed: usize| {
            let fake = Fake::new(device);
            fake.set(STATUS, lan << 2);
            let mut words = eeprom();
            words[changed] ^= 0x100;
            fake.set_eeprom(words);
            let is_right = check(&fake.regs(), mac).unwrap();
            assert_eq!(fake.get(SW_FW_SYNC), 0, "given back");
            is_right
        };
        for (device, mac) in [(0x10C9, MacType::Mac82576), (0x1521, MacType::I350)] {
            assert!(check(device, mac, 0, 0x50) && !check(device, mac, 0, 0x00) && !check(device, mac, 1, 0x3F));
        }
        // The second port's are words 0x80 to 0xBF, the fourth's 0x100 to 0x13F.
        assert!(check(0x10C9, MacType::Mac82576, 1, 0x80));
        assert!(!check(0x1521, MacType::I350, 1, 0x80) && !check(0x1521, MacType::I350, 1, 0xBF));
        assert!(check(0x1521, MacType::I350, 3, 0xBF) && !check(0x1521, MacType::I350, 3, 0x13F));
    }

    #[test]
    fn words_are_read_under_the_semaphore_and_a_silent_eeprom_is_named() {
        let fake = Fake::new(0x10C9);
        let held = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
        let seen = std::sync::Arc::clone(&held);
        fake.on_read(EERD, move |storage| {
            let sync = storage.get(&SW_FW_SYNC.offset()).copied().unwrap_or(0);
            seen.fetch_and(sync == 1, std::sync::atomic::Ordering::Relaxed);
            0
        });
        let error = check(&fake.regs(), MacType::Mac82576).unwrap_err();
        assert!(matches!(error, Error::Timeout { register: "EERD", .. }), "{error}");
        assert_eq!((held.load(std::sync::atomic::Ordering::Relaxed), fake.get(SW_FW_SYNC)), (true, 0));
    }
}
