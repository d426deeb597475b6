//! Commands to the firmware of an X550: a block of memory (FLEX_MNG), which HICR hands over (X550 datasheet 11.8.2).
//! It reads the EEPROM, for which the host has no other way, and turns the receiver off in order.

use crate::regs::{FLEX_MNG, FWSTS, HICR, STATUS, fwsts, hicr, status, sw_fw_sync};
use crate::semaphore::holding;
use crate::wait::{Timed, modify, read, wait};
use crate::{Error, MacType, Result};
use device::Device;
use std::ops::Range;
use std::time::Duration;

/// Reads words of the EEPROM, [`MOST_WORDS`] at a time.
///
/// # Errors
///
/// [`Error::Eeprom`] when the firmware takes no commands or does not carry this one out, [`Error::Timeout`] when it does not answer or
/// others keep a semaphore, [`Error::Expired`], [`Error::Gone`].
pub(crate) fn read_words<D: Device>(
    regs: &Timed<D>,
    addresses: Range<u16>,
    mut each: impl FnMut(u16, u16),
) -> Result<()> {
    for first in addresses.clone().step_by(MOST_WORDS.into()) {
        let count = MOST_WORDS.min(addresses.end - first);
        // Both in bytes, the most significant first.
        let (address, length) = (2 * u32::from(first), 2 * count);
        let command = [header(READ, [0, 6]), address.swap_bytes(), u32::from(length.swap_bytes()), 0];
        holding(regs, MAC, sw_fw_sync::EEP, || {
            under_semaphore(regs, &command, || {
                for at in 0..count {
                    let pair = read(regs, FLEX_MNG.at(DATA + u32::from(at / 2)))?;
                    let word = if at % 2 == 0 { pair & 0xFFFF } else { pair >> 16 };
                    each(first + at, u16::try_from(word).unwrap_or(u16::MAX));
                }
                Ok(())
            })
        })?;
    }
    Ok(())
}

/// Has the receiver turned off.
///
/// # Errors
///
/// As [`read_words`].
pub(crate) fn disable_receiver<D: Device>(regs: &Timed<D>) -> Result<()> {
    let port = status::LAN_ID.get(read(regs, STATUS)?);
    under_semaphore(regs, &[header(DISABLE_RECEIVER, [1, 0]), port], || Ok(()))
}

/// The first word of a command. What would be its checksum says that there is none.
fn header(command: u8, [second, third]: [u8; 2]) -> u32 {
    u32::from_le_bytes([command, second, third, NO_CHECKSUM])
}

/// Gives a command, and has `take` read the answer before anybody else gives another.
fn under_semaphore<D: Device>(regs: &Timed<D>, command: &[u32], take: impl FnOnce() -> Result<()>) -> Result<()> {
    holding(regs, MAC, sw_fw_sync::SW_MNG, || {
        // Takes note of an earlier reset of the firmware, as its vendor's drivers do.
        modify(regs, FWSTS, |value| value | fwsts::FWRI.mask())?;
        if !hicr::EN.is_set(read(regs, HICR)?) {
            return Err(refused(regs, "takes no commands (HICR.EN)"));
        }
        for (at, word) in (0..).zip(command) {
            regs.write(FLEX_MNG.at(at), *word);
        }
        regs.write(HICR, hicr::EN.mask() | hicr::C.mask());
        let answered =
            wait(regs, HICR, |value| !hicr::C.is_set(value), ANSWER_LIMIT, "the firmware to answer (HICR.C)")?;
        let [name, _, state, _] = read(regs, FLEX_MNG.at(0))?.to_le_bytes();
        if !hicr::SV.is_set(answered) || name != command[0].to_le_bytes()[0] || state & STATE != SUCCESS {
            return Err(refused(regs, "does not carry out a command"));
        }
        take()
    })
}

fn refused<D: Device>(regs: &Timed<D>, what: &str) -> Error {
    let problem = format!("the firmware that reads it {what}: power-cycle the host");
    Error::Eeprom { device: regs.device().name().to_owned(), problem }
}

/// Only this one has such firmware.
const MAC: MacType = MacType::X550;
const READ: u8 = 0x31;
const DISABLE_RECEIVER: u8 = 0xDE;
const NO_CHECKSUM: u8 = 0xFF;
/// Bits of an answer's third byte that say what became of the command, and that it was carried out.
const STATE: u8 = 0x1F;
const SUCCESS: u8 = 1;
/// Words that one command reads at most: more would hold up firmware and the other port.
const MOST_WORDS: u16 = 64;
/// The word of the block at which those of the EEPROM begin.
const DATA: u32 = 3;
/// How long Intel's drivers wait for the answer to a command (X550 datasheet 11.8.2), looking every millisecond.
const ANSWER_LIMIT: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;
    use crate::regs::{RXCTRL, SW_FW_SYNC};

    fn words(fake: &Fake, addresses: Range<u16>) -> Result<Vec<(u16, u16)>> {
        let mut words = Vec::new();
        read_words(&fake.regs(), addresses, |address, word| words.push((address, word))).map(|()| words)
    }

    #[test]
    fn words_come_in_order_whatever_their_number() {
        let fake = Fake::new(0x1563);
        fake.set_eeprom((0..300).map(|word| word * 7).collect());
        for range in [0..1, 5..6, 3..70, 0..129, 40..40] {
            let wanted: Vec<_> = range.clone().map(|address| (address, address * 7)).collect();
            assert_eq!(words(&fake, range).unwrap(), wanted);
        }
        assert_eq!(fake.get(SW_FW_SYNC), 0, "given back");
    }

    #[test]
    fn firmware_that_does_not_do_its_part_is_one_clear_error() {
        let fake = Fake::new(0x1563);
        fake.on_read(HICR, |_| 0);
        assert!(words(&fake, 0..1).unwrap_err().to_string().contains("takes no commands"));
        let fake = Fake::new(0x1563);
        fake.on_read(HICR, |_| 1 << 1 | 1);
        assert!(matches!(words(&fake, 0..1), Err(Error::Timeout { register: "HICR", .. })));
        // Unfinished, of another command, and refused.
        for (hicr, answer) in [(1, 0xFF01_0031), (5, 0xFF01_0033), (5, 0xFF03_0031)] {
            let fake = Fake::new(0x1563);
            fake.on_read(HICR, move |_| hicr);
            fake.on_read(FLEX_MNG.at(0), move |_| answer);
            assert!(words(&fake, 0..1).unwrap_err().to_string().contains("does not carry out"), "{answer:#x}");
            assert_eq!(fake.get(SW_FW_SYNC), 0, "given back");
        }
    }

    #[test]
    fn the_receiver_that_is_turned_off_is_that_of_this_port() {
        for lan in [0, 1] {
            let fake = Fake::new(0x1563);
            fake.set(STATUS, status::LAN_ID.set(0, lan));
            disable_receiver(&fake.regs()).unwrap();
            assert_eq!(fake.get(FLEX_MNG.at(1)), lan);
        }
    }

    #[test]
    fn the_receiver_is_turned_off_by_either() {
        for answers in [true, false] {
            let fake = Fake::new(0x1563);
            fake.set(RXCTRL, 1);
            if !answers {
                fake.on_read(HICR, |_| 0);
            }
            crate::init::stop_receiving(&fake.regs(), MAC).unwrap();
            let commands = fake.writes().iter().filter(|write| write.0 == HICR.offset()).count();
            assert_eq!((fake.get(RXCTRL), commands), (0, usize::from(answers)));
        }
    }
}
