//! EEPROM words and their checksum (82599 datasheet 6.2, EERD in 8.2.3.2). An X550's are read by its firmware.

use crate::regs::{EERD, Ixgbe, eerd, sw_fw_sync};
use crate::semaphore::holding;
use crate::wait::{Timed, wait};
use crate::{Error, MacType, Result, firmware};
use device::Device;
use intel::Semaphores;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Compares the checksum in word 0x3F with the words it covers. `Ok(false)` when they differ, which the log warns
/// of: the device may work nevertheless.
///
/// It reads no more words than an EEPROM can have, for two seconds at most, and gives the semaphore back after each 64, as
/// firmware and the other port want to read, too; but not once it has taken it from a holder who does not let go.
///
/// # Errors
///
/// [`Error::Eeprom`] when sections overlap, [`Error::Timeout`] when a word does not come, [`Error::Expired`],
/// [`Error::Gone`].
pub(crate) fn check<D: Device>(regs: &Timed<D>, mac: MacType) -> Result<bool> {
    Ok(examine(regs, mac)?.0)
}

/// The same, and the number of the firmware image ([`image_number`]), which is among the words that are read for it.
pub(crate) fn examine<D: Device>(regs: &Timed<D>, mac: MacType) -> Result<(bool, Option<u32>)> {
    let (sum, image) = sum(&regs.at_most(CHECK_LIMIT), mac)?;
    if sum != CHECKSUM {
        let name = regs.device().name();
        tracing::warn!(
            "{name}: EEPROM checksum: words add up to {sum:#06x}, not {CHECKSUM:#06x}; its settings may be wrong"
        );
    }
    Ok((sum == CHECKSUM, number(image)))
}

/// Returns the number of the firmware image that the EEPROM was written from (words 0x2D and 0x2E, as Intel's tools show it);
/// `None` if it has none. It waits for two seconds at most.
///
/// # Errors
///
/// [`Error::Timeout`] when a word does not come, [`Error::Expired`], [`Error::Gone`].
pub(crate) fn image_number<D: Device>(regs: &Timed<D>, mac: MacType) -> Result<Option<u32>> {
    let regs = regs.at_most(CHECK_LIMIT);
    let words = list(&mut |addresses, each| read_words(&regs, mac, addresses, each), IMAGE_NUMBER, 2)?;
    Ok(number([words[0], words[1]]))
}

/// The order of the two words is told by the top bit of the second.
fn number(words: [u16; 2]) -> Option<u32> {
    let [low, high] = words.map(u32::from);
    let number = if high & 0x8000 == 0 { low << 16 | high } else { high << 16 | low };
    Some(number).filter(|number| *number != 0 && *number != u32::MAX)
}

/// Returns the words that set up the analog part for modules of each of these types, in the order in which they are to be written; none
/// where the EEPROM has none. Word 0x2B points to a list of types and of where their words are; both end with 0xFFFF. All are read under one
/// holding of the semaphore, so that who keeps it for ever is waited for once: at 20 us a word, some 3 ms.
///
/// # Errors
///
/// [`Error::Eeprom`] when a list has no end, [`Error::Timeout`] when a word does not come, [`Error::Expired`], [`Error::Gone`].
pub(crate) fn analog_words<D: Device>(regs: &Timed<D>, mac: MacType, kinds: &[u16]) -> Result<Vec<Vec<u16>>> {
    if mac == MacType::X550 {
        return walk_analog(regs, kinds, &mut |addresses, each| read_words(regs, mac, addresses, each));
    }
    holding(regs, mac, sw_fw_sync::EEP, || {
        walk_analog(regs, kinds, &mut |addresses, each| read_block(regs, addresses, each))
    })
}

fn walk_analog<D: Device>(regs: &Timed<D>, kinds: &[u16], read: Read<'_>) -> Result<Vec<Vec<u16>>> {
    let list = list(read, ANALOG_POINTER, 1)?[0];
    let pairs = if list == 0 || list >= WORDS { Vec::new() } else { self::list(read, list + 1, 2 * MOST_TYPES)? };
    let pairs: Vec<_> = pairs.chunks_exact(2).take_while(|pair| pair[0] != LIST_END).collect();
    let mut words_of = |kind: &u16| {
        let data = pairs.iter().find(|pair| pair[0] == *kind).map_or(LIST_END, |pair| pair[1]);
        if data == 0 || data >= WORDS {
            return Ok(Vec::new());
        }
        let mut words = self::list(read, data + 1, MOST_ANALOG_WORDS)?;
        let end = words.iter().position(|word| *word == LIST_END).ok_or_else(|| {
            let problem =
                format!("the settings for SFP+ modules at word {data:#x} have no end; its settings may be wrong");
            Error::Eeprom { device: regs.device().name().to_owned(), problem }
        })?;
        words.truncate(end);
        Ok(words)
    };
    kinds.iter().map(&mut words_of).collect()
}

/// Reads up to `count` words.
fn list(read: Read<'_>, first: u16, count: u16) -> Result<Vec<u16>> {
    let mut words = Vec::new();
    read(first..first.saturating_add(count).min(WORDS), &mut |_, word| words.push(word))?;
    Ok(words)
}

/// Returns the sum of all covered words: 0 to 0x3F (X550: 0x41), and the sections that words 3 (X550: 2) to 0xE point to; and those of the
/// number of the image.
fn sum<D: Device>(regs: &Timed<D>, mac: MacType) -> Result<(u16, [u16; 2])> {
    let mut walk = Walk { mac, sum: 0, image: [0; 2], sections: Vec::new() };
    let mut in_turns = |addresses, each: &mut dyn FnMut(u16, u16)| read_words(regs, mac, addresses, each);
    let mut is_whole = false;
    if mac == MacType::X550 {
        walk.begin(&mut in_turns)?;
    } else {
        let begun = Instant::now();
        holding(regs, mac, sw_fw_sync::EEP, || {
            let mut at_once = |addresses, each: &mut dyn FnMut(u16, u16)| read_block(regs, addresses, each);
            walk.begin(&mut at_once)?;
            // A holder who was taken for dead is not waited for again before each section.
            is_whole = begun.elapsed() >= Semaphores::<Ixgbe>::HOLDER_LIMIT;
            if is_whole { walk.end(regs, &mut at_once) } else { Ok(()) }
        })?;
    }
    if !is_whole {
        walk.end(regs, &mut in_turns)?;
    }
    Ok((walk.sum, walk.image))
}

/// Reads words, and hands each over with its address.
type Read<'r> = &'r mut dyn FnMut(Range<u16>, &mut dyn FnMut(u16, u16)) -> Result<()>;

/// A walk over all words that the checksum covers.
struct Walk {
    mac: MacType,
    sum: u16,
    image: [u16; 2],
    /// Pointers to sections, and where these begin.
    sections: Vec<(u16, u16)>,
}

impl Walk {
    /// The words that stand in their place.
    fn begin(&mut self, read: Read<'_>) -> Result<()> {
        let (covered, pointers) = if self.mac == MacType::X550 { (0x42, 0x02..=0x0E) } else { (0x40, 0x03..=0x0E) };
        read(0..covered, &mut |address, word| {
            self.sum = self.sum.wrapping_add(word);
            if let Some(place) = address.checked_sub(IMAGE_NUMBER).and_then(|at| self.image.get_mut(usize::from(at))) {
                *place = word;
            }
            let is_left_out = self.mac != MacType::Mac82599 && NOT_AFTER_82599.contains(&address);
            if pointers.contains(&address) && !is_left_out && word != 0 && word < WORDS {
                self.sections.push((address, word));
            }
        })
    }

    /// The sections.
    fn end<D: Device>(&mut self, regs: &Timed<D>, read: Read<'_>) -> Result<()> {
        let mut unread = WORDS;
        for (pointer, section) in std::mem::take(&mut self.sections) {
            let is_x550 = self.mac == MacType::X550;
            let words = match FIXED_ON_X550.iter().find(|fixed| is_x550 && fixed.0 == pointer) {
                Some((_, length)) => section..section.saturating_add(*length).min(WORDS),
                None => {
                    let mut length = 0;
                    read(section..section + 1, &mut |_, word| length = word)?;
                    if length == 0 || length == 0xFFFF {
                        continue;
                    }
                    section + 1..section.saturating_add(length).saturating_add(1).min(WORDS)
                }
            };
            unread = u16::try_from(words.len()).ok().and_then(|count| unread.checked_sub(count)).ok_or_else(|| {
                let problem = "its sections overlap, so its checksum cannot be verified; its settings may be wrong";
                Error::Eeprom { device: regs.device().name().to_owned(), problem: problem.to_owned() }
            })?;
            read(words, &mut |_, word| self.sum = self.sum.wrapping_add(word))?;
        }
        Ok(())
    }
}

/// Reads words under the semaphore, [`BLOCK`] at a time.
fn read_words<D: Device>(
    regs: &Timed<D>,
    mac: MacType,
    addresses: Range<u16>,
    mut each: impl FnMut(u16, u16),
) -> Result<()> {
    if mac == MacType::X550 {
        return firmware::read_words(regs, addresses, each);
    }
    for first in addresses.clone().step_by(BLOCK.into()) {
        let block = first..first.saturating_add(BLOCK).min(addresses.end);
        holding(regs, mac, sw_fw_sync::EEP, || read_block(regs, block, &mut each))?;
    }
    Ok(())
}

/// Reads words by whoever holds the semaphore.
fn read_block<D: Device>(regs: &Timed<D>, addresses: Range<u16>, mut each: impl FnMut(u16, u16)) -> Result<()> {
    for address in addresses {
        each(address, read_word(regs, address)?);
    }
    Ok(())
}

fn read_word<D: Device>(regs: &Timed<D>, address: u16) -> Result<u16> {
    regs.write(EERD, eerd::ADDR.set(eerd::START.mask(), address.into()));
    let value = wait(regs, EERD, |value| eerd::DONE.is_set(value), WORD_LIMIT, "an EEPROM word (EERD.DONE)")?;
    Ok(u16::try_from(eerd::DATA.get(value)).unwrap_or(u16::MAX))
}

/// Time for all words, and for a holder of the semaphore who has died: at 20 us a word, as the bus of the EEPROM takes, a second is enough
/// for the largest.
const CHECK_LIMIT: Duration = Semaphores::<Ixgbe>::HOLDER_LIMIT.saturating_add(Duration::from_secs(1));
/// Words read without giving the semaphore back.
const BLOCK: u16 = 64;
/// What all covered words, the checksum word included, add up to.
const CHECKSUM: u16 = 0xBABA;
/// Words that EERD can address.
const WORDS: u16 = 0x4000;
const ANALOG_POINTER: u16 = 0x2B;
const IMAGE_NUMBER: u16 = 0x2D;
/// Types of modules in the list that it points to, and words for one of them, at most.
const MOST_TYPES: u16 = 16;
const MOST_ANALOG_WORDS: u16 = 64;
const LIST_END: u16 = 0xFFFF;
/// PHY and option ROM pointers, which the checksum of X540 and X550 leaves out.
const NOT_AFTER_82599: [u16; 2] = [0x04, 0x05];
/// Pointers to sections of an X550 (of PCI Express) that do not begin with their length, and how many words they have.
const FIXED_ON_X550: [(u16, u16); 3] = [(0x06, 0x24), (0x07, 8), (0x08, 8)];
/// A thousand times what a word takes, so that all of the check fits into its second; Intel's drivers wait half a second for each (100,000
/// looks, 5 us apart). Software polls EERD.DONE (8.2.3.2).
const WORD_LIMIT: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;
    use MacType::{Mac82599, X540, X550};

    /// 1024 words with two sections, one of them the PHY's, and the checksum that the 82599 wants.
    fn image(covers_phy: bool) -> Vec<u16> {
        let mut words = vec![0u16; 1024];
        words[0x03] = 0x100;
        words[0x04] = 0x200;
        words[0x06] = 0xFFFF;
        words[0x0F] = 0x300; // firmware: not covered
        words[0x100..0x104].copy_from_slice(&[3, 0x1111, 0x2222, 0x3333]);
        words[0x200..0x202].copy_from_slice(&[1, 0x4444]);
        words[0x300..0x302].copy_from_slice(&[1, 0x5555]);
        let mut covered: u32 = words[..0x3F].iter().map(|&word| u32::from(word)).sum();
        covered += 0x1111 + 0x2222 + 0x3333 + if covers_phy { 0x4444 } else { 0 };
        words[0x3F] = u16::try_from(0x4_BABA_u32.wrapping_sub(covered) & 0xFFFF).unwrap();
        words
    }

    fn check_of(device: u16, mac: MacType, words: Vec<u16>) -> bool {
        let fake = Fake::new(device);
        fake.set_eeprom(words);
        check(&fake.regs(), mac).unwrap()
    }

    #[test]
    fn words_are_read_under_the_semaphore() {
        let fake = Fake::new(0x10FB);
        fake.set_eeprom(image(true));
        assert!(check(&fake.regs(), Mac82599).unwrap());
        let order: Vec<_> = fake.writes().iter().map(|w| w.0).collect();
        let position = |offset| order.iter().position(|&o| o == offset).unwrap();
        assert!(position(0x10160) < position(0x10014));
    }

    #[test]
    fn a_dead_holder_of_the_semaphore_is_outlasted() {
        let fake = Fake::new(0x10FB);
        fake.set_eeprom(image(true));
        fake.set(crate::regs::SW_FW_SYNC, sw_fw_sync::EEP.mask());
        assert!(check(&fake.regs(), Mac82599).unwrap());
    }

    /// Nor for each list of what modules need.
    #[test]
    fn settings_of_modules_wait_once_for_who_does_not_let_go() {
        let fake = Fake::new(0x10FB);
        let mut words = vec![0; 0x400];
        words[0x2B] = 0x200;
        words[0x201..0x206].copy_from_slice(&[5, 0x230, 3, 0x220, 0xFFFF]);
        words[0x220..0x223].copy_from_slice(&[0, 0x1234, 0xFFFF]);
        words[0x230..0x233].copy_from_slice(&[0, 0x5678, 0xFFFF]);
        fake.set_eeprom(words);
        let sync = crate::regs::SW_FW_SYNC.offset();
        fake.on_read(crate::regs::SW_FW_SYNC, move |storage| storage.get(&sync).copied().unwrap_or(0) | 1 << 5);
        let limit = device::TimeLimit { total: CHECK_LIMIT, cancel: None };
        let regs = Timed::new(&fake.regs(), limit.begin());
        assert_eq!(analog_words(&regs, Mac82599, &[3, 5]).unwrap(), [[0x1234], [0x5678]], "within two seconds");
    }

    /// Firmware that keeps it for ever is waited for once, and not again for each section.
    #[test]
    fn a_holder_who_does_not_let_go_is_outlasted_once() {
        for (device, mac) in [(0x10FB, Mac82599), (0x1528, X540)] {
            let fake = Fake::new(device);
            fake.set_eeprom(image(mac == Mac82599));
            let sync = crate::regs::SW_FW_SYNC.offset();
            fake.on_read(crate::regs::SW_FW_SYNC, move |storage| storage.get(&sync).copied().unwrap_or(0) | 1 << 5);
            let begun = Instant::now();
            assert!(check(&fake.regs(), mac).unwrap(), "within its two seconds");
            assert!(begun.elapsed() >= Semaphores::<Ixgbe>::HOLDER_LIMIT);
        }
    }

    #[test]
    fn the_checksum_covers_sections() {
        assert!(check_of(0x10FB, Mac82599, image(true)));
        let mut flipped = image(true);
        flipped[0x103] ^= 1;
        assert!(!check_of(0x10FB, Mac82599, flipped));
        assert!(!check_of(0x10FB, Mac82599, image(false)));
        assert!(check_of(0x1528, X540, image(false)), "the X540 leaves out the PHY section");
    }

    #[test]
    fn pointers_and_lengths_out_of_range_end_the_sum() {
        for (pointer, length) in [(0x4000, 1), (0x3FFF, 0xFFFE), (0x10, 0xFFFF)] {
            let mut words = vec![0; 0x4000];
            words[3] = pointer;
            if let Some(word) = words.get_mut(usize::from(pointer)) {
                *word = length;
            }
            check_of(0x10FB, Mac82599, words);
        }
    }

    /// Twelve sections of the greatest length kept `open` for hours, with the semaphore held.
    #[test]
    fn sections_that_overlap_are_not_read_again_and_again() {
        let fake = Fake::new(0x10FB);
        let mut words = vec![0; 0x4000];
        words[0x03..=0x0E].fill(0x40);
        words[0x40] = 0x3FFE;
        fake.set_eeprom(words);
        let error = check(&fake.regs(), Mac82599).unwrap_err();
        assert!(error.to_string().contains("overlap"), "{error}");
        let reads = fake.writes().iter().filter(|(offset, _)| *offset == EERD.offset()).count();
        assert!(reads <= 0x4000 + 0x40 + 12, "{reads} words");
    }

    #[test]
    fn a_slow_eeprom_is_given_up_and_its_semaphore_is_free_every_64_words() {
        let fake = Fake::new(0x10FB);
        let mut words = vec![0; 0x4000];
        words[0x03] = 0x40;
        words[0x40] = 0x3FFE;
        fake.set_eeprom(words);
        // The clock of the operation runs out after 300 words.
        let cancel = std::sync::Arc::default();
        let limit = device::TimeLimit { cancel: Some(std::sync::Arc::clone(&cancel)), ..Default::default() };
        let mut words = 0;
        fake.on_read(EERD, move |storage| {
            words += 1;
            cancel.store(words >= 300, std::sync::atomic::Ordering::Relaxed);
            let done = if words >= 300 { 0 } else { eerd::DONE.mask() };
            storage.get(&EERD.offset()).copied().unwrap_or(0) & !eerd::DONE.mask() | done
        });
        let error = check(&Timed::new(&fake.regs(), limit.begin()), Mac82599).unwrap_err();
        assert!(matches!(error, Error::Expired { .. }), "{error}");
        let sync = crate::regs::SW_FW_SYNC;
        assert_eq!(fake.get(sync), 0, "given back");
        let writes = fake.writes();
        let held = writes.split(|(offset, value)| *offset == sync.offset() && *value == 0);
        let most = held.map(|some| some.iter().filter(|(offset, _)| *offset == EERD.offset()).count()).max();
        assert!(most <= Some(64), "{most:?} words in a row");
    }

    #[test]
    fn analog_settings_by_type() {
        let words_of = |change: fn(&mut Vec<u16>), kind| {
            let fake = Fake::new(0x10FB);
            let mut words = vec![0; 0x400];
            words[0x2B] = 0x200;
            words[0x201..0x206].copy_from_slice(&[5, 0x230, 3, 0x220, 0xFFFF]);
            words[0x220..0x224].copy_from_slice(&[0, 0x1234, 0x5678, 0xFFFF]);
            words[0x230..0x232].copy_from_slice(&[0, 0xFFFF]);
            change(&mut words);
            fake.set_eeprom(words);
            Ok::<_, Error>(analog_words(&fake.regs(), Mac82599, &[kind])?.concat())
        };
        assert_eq!(words_of(|_| {}, 3).unwrap(), [0x1234, 0x5678]);
        for kind in [4, 5] {
            assert_eq!(words_of(|_| {}, kind).unwrap(), [0u16; 0], "not in the list, or nothing behind it");
        }
        for pointer in [|words: &mut Vec<u16>| words[0x2B] = 0, |words: &mut Vec<u16>| words[0x2B] = 0xFFFF] {
            assert_eq!(words_of(pointer, 3).unwrap(), [0u16; 0]);
        }
        assert_eq!(words_of(|words| words[0x2B] = 0x3FFF, 3).unwrap(), [0u16; 0]);
        assert_eq!(words_of(|words| words[0x204] = 0xFFFF, 3).unwrap(), [0u16; 0]);
        let error = words_of(|words| words[0x223..].fill(7), 3).unwrap_err();
        assert!(error.to_string().contains("0x220 have no end"), "{error}");
    }

    #[test]
    fn a_silent_eeprom_is_a_named_timeout() {
        let error = check(&Fake::new(0x10FB).regs(), Mac82599).unwrap_err();
        assert!(matches!(error, Error::Timeout { register: "EERD", .. }), "{error}");
    }

    #[test]
    fn an_x550_has_more_words_and_sections_without_a_length() {
        let image = |change: fn(&mut Vec<u16>)| {
            let mut words = vec![0u16; 1024];
            (words[0x02], words[0x04], words[0x06], words[0x08], words[0x41]) = (0x80, 0x90, 0x100, 0x200, 5);
            words[0x80..0x83].copy_from_slice(&[2, 0x1111, 0x2222]);
            words[0x90..0x92].copy_from_slice(&[1, 0x4444]);
            words[0x100..0x124].fill(1);
            words[0x200..0x208].fill(3);
            let sections = 0x1111 + 0x2222 + 0x24 + 8 * 3;
            let sum = words[..0x42].iter().fold(sections, |sum: u16, word| sum.wrapping_add(*word));
            words[0x3F] = CHECKSUM.wrapping_sub(sum);
            change(&mut words);
            words
        };
        assert!(check_of(0x1563, X550, image(|_| {})));
        assert!(check_of(0x1563, X550, image(|words| words[0x91] ^= 1)), "the PHY's section is left out");
        let damaged: [fn(&mut Vec<u16>); 4] =
            [|words| words[0x41] ^= 1, |words| words[0x82] ^= 1, |words| words[0x123] ^= 1, |words| words[0x207] ^= 1];
        assert!(damaged.iter().all(|change| !check_of(0x1563, X550, image(*change))));
    }
}
