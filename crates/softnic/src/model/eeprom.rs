//! Identity: the EEPROM, its two access paths (EERD and the serial bus behind EEC), semaphores (datasheet 3.4, 6, 8.2.3.2).

use super::cage::{CABLE_LIST, OPTICS_LIST};
use super::{DeviceId, map};

const EEC_SK: u32 = 1;
const EEC_CS: u32 = 1 << 1;
const EEC_DI: u32 = 1 << 2;
const EEC_DO: u32 = 1 << 3;
const EEC_REQ: u32 = 1 << 6;
const EEC_GNT: u32 = 1 << 7;
const EEC_PRES: u32 = 1 << 8;
const EEC_ARD: u32 = 1 << 9;
/// EEC.EE_SIZE: 1 << (4 + 6) words.
const EEC_SIZE: u32 = 4 << 11;
const WORDS: usize = 1024;
const SMBI: u32 = 1;
const SWESMBI: u32 = 2;

/// The EEPROM and what guards it.
#[derive(Debug)]
pub(super) struct Eeprom {
    words: Box<[u16]>,
    mac: [u8; 6],
    auto_read: bool,
    eec: u32,
    eerd: u32,
    swsm: u32,
    serial: Serial,
}

/// The serial slave: bits shifted in since chip select, the byte address that is read, if any, and the answer being shifted out.
#[derive(Debug, Default)]
struct Serial {
    bits: u32,
    command: u32,
    address: Option<u32>,
    answer: u32,
    output: bool,
}

impl Eeprom {
    pub(super) fn new(id: DeviceId, mac: [u8; 6]) -> Self {
        let words = image(id);
        Self { words, mac, auto_read: false, eec: 0, eerd: 0, swsm: 0, serial: Serial::default() }
    }

    pub(super) fn reset(&mut self) {
        self.auto_read = false;
        self.eec = 0;
        self.eerd = 0;
        self.swsm = 0;
    }

    /// A word, all ones beyond the end.
    pub(super) fn word(&self, address: u32) -> u16 {
        usize::try_from(address).ok().and_then(|address| self.words.get(address)).copied().unwrap_or(0xFFFF)
    }

    /// The lowest bit of a word becomes another.
    pub(super) fn flip(&mut self, address: u16) {
        if let Some(word) = self.words.get_mut(usize::from(address)) {
            *word ^= 1;
        }
    }

    /// The settings for modules go on where they should end, up to the sections.
    pub(super) fn lose_ends(&mut self) {
        self.words[CABLE_LIST_AT..SECTIONS[0].1]
            .iter_mut()
            .filter(|word| **word == 0xFFFF)
            .for_each(|word| *word = 0x1D04);
    }

    pub(super) fn auto_read_done(&mut self) {
        self.auto_read = true;
    }

    /// The station address.
    pub(super) fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// RAL0 and RAH0 as loaded from the EEPROM, with AV.
    pub(super) fn station_address(&self) -> (u32, u32) {
        let [a, b, c, d, e, f] = self.mac;
        (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, 0, 0x80]))
    }

    pub(super) fn read(&mut self, offset: u32) -> u32 {
        match offset {
            map::EEC => {
                let granted = if self.eec & EEC_REQ != 0 { EEC_GNT } else { 0 };
                let data = if self.serial.output { EEC_DO } else { 0 };
                let ard = if self.auto_read { EEC_ARD } else { 0 };
                self.eec | EEC_PRES | EEC_SIZE | granted | data | ard
            }
            map::EERD => self.eerd,
            _ => {
                let value = self.swsm;
                self.swsm |= SMBI;
                value
            }
        }
    }

    pub(super) fn write(&mut self, offset: u32, value: u32) {
        match offset {
            map::EEC => {
                let before = self.eec;
                self.eec = value & (EEC_SK | EEC_CS | EEC_DI | EEC_REQ | 0x30);
                if self.eec & EEC_CS != 0 {
                    self.serial = Serial::default();
                } else if self.eec & EEC_SK != 0 && before & EEC_SK == 0 {
                    self.serial.clock(self.eec & EEC_DI != 0, &self.words);
                }
            }
            map::EERD => {
                let address = value >> 2 & 0x3FFF;
                let word = self.word(address);
                self.eerd = if value & 1 != 0 { u32::from(word) << 16 | address << 2 | 2 } else { value };
            }
            _ => self.swsm = value & (SMBI | SWESMBI),
        }
    }
}

impl Serial {
    /// A rising clock edge: a bit in, and a bit of the answer out.
    fn clock(&mut self, bit: bool, words: &[u16]) {
        const READ: u32 = 3;
        const STATUS: u32 = 5;
        self.command = self.command << 1 | u32::from(bit);
        self.bits = self.bits.saturating_add(1);
        match (self.bits, self.address) {
            (8, _) if self.command & 0xFF == STATUS => {
                self.bits = 100;
                self.answer = 0;
            }
            (24, _) if self.command >> 16 & 0xFF == READ => self.load(self.command, words),
            (25..=99, Some(address)) => {
                self.output = self.answer & 0x8000 != 0;
                self.answer <<= 1;
                if self.bits == 40 {
                    self.bits = 24;
                    self.load(address + 2, words);
                }
            }
            (100.., _) => self.output = false,
            _ => {}
        }
    }

    /// The word at a byte address of 16 bits, low byte first. Behind the last comes the first.
    fn load(&mut self, address: u32, words: &[u16]) {
        let address = address & 0xFFFF;
        let word = words.get((address >> 1) as usize).copied().unwrap_or(0xFFFF);
        self.answer = u32::from(word.swap_bytes());
        self.address = Some(address);
    }
}

/// Where the first settings for modules begin; the last are behind them.
const CABLE_LIST_AT: usize = 0x221;

/// Sections: the word that points to one, where it is, and how many words it has, of which the first is the number of those that follow; but on
/// an X550 words 6 to 8 point to sections that have no such word. The PHY's (word 4) is not covered by the checksum of X540 and X550.
const SECTIONS: [(usize, usize, u16); 4] = [(0x03, 0x300, 5), (0x04, 0x310, 3), (0x06, 0x320, 0x24), (0x07, 0x350, 8)];
const PHY_SECTION: usize = 0x04;
const FIXED_SECTIONS: std::ops::RangeInclusive<usize> = 0x06..=0x08;

/// Writes the sections. Returns what the words of them that the checksum covers add up to.
fn put_sections(id: DeviceId, words: &mut [u16]) -> u16 {
    let mut sum = 0u16;
    for (pointer, at, count) in SECTIONS {
        words[pointer] = u16::try_from(at).unwrap_or(0);
        for (word, n) in words[at..].iter_mut().zip(0..count) {
            *word = if n == 0 { count - 1 } else { n.wrapping_mul(0x1111) };
        }
        let first = usize::from(!(id == DeviceId::X550 && FIXED_SECTIONS.contains(&pointer)));
        if !(id.has_phy() && pointer == PHY_SECTION) {
            sum = words[at..at + usize::from(count)].iter().skip(first).fold(sum, |sum, word| sum.wrapping_add(*word));
        }
    }
    sum
}

/// A valid image: some sections, capabilities, checksum 0xBABA over words 0 to 0x3F, on an X550 to 0x41, and over the sections.
fn image(id: DeviceId) -> Box<[u16]> {
    let mut words = vec![0xFFFFu16; WORDS];
    words[..0x40].fill(0);
    words[0x15] = 0xFFFF;
    words[0x16] = 0xFFFF;
    // Device capabilities: no Fibre Channel over Ethernet.
    words[0x2C] = 0x02;
    if id == DeviceId::SfpPlus {
        // Firmware section with a version above 5, and an initialisation list for direct attach cables.
        for (at, word) in [
            (0x0F, 0x100),
            (0x102, 0xFFFF),
            (0x104, 0x110),
            (0x117, 6),
            (0x2B, 0x200),
            // Modules by type and core: cables (3, 4), and what is set up as optics (5, 6).
            (0x201, 3),
            (0x202, 0x220),
            (0x203, 4),
            (0x204, 0x220),
            (0x205, 5),
            (0x206, 0x230),
            (0x207, 6),
            (0x208, 0x230),
            (0x209, 0xFFFF),
            // Modules of any vendor, and no work-around for crosstalk, as well.
            (0x2C, 0x83),
        ] {
            words[at] = word;
        }
        for (at, list) in [(CABLE_LIST_AT, CABLE_LIST), (0x231, OPTICS_LIST)] {
            words[at..at + list.len()].copy_from_slice(&list);
        }
    }
    let sections = put_sections(id, &mut words);
    let covered = if id == DeviceId::X550 { 0x42 } else { 0x40 };
    words[0x3F] = 0;
    let sum = words[..covered].iter().fold(sections, |sum, word| sum.wrapping_add(*word));
    words[0x3F] = 0xBABAu16.wrapping_sub(sum);
    words.into_boxed_slice()
}
