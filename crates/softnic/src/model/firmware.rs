//! The firmware of an X550 as the host reaches it: commands and answers lie in a block of memory (FLEX_MNG), which HICR hands over
//! (X550 datasheet 11.8.2, 11.8.3). It reads the EEPROM, for which there is no other way, and turns the receiver off.

use super::map;
use super::{DeviceId, Event, Model};
use crate::violation::Violation;

/// HICR: the interface is there, a command has been handed over, and its answer is there.
const ENABLED: u32 = 1;
const COMMAND: u32 = 1 << 1;
const ANSWERED: u32 = 1 << 2;
/// SW_FW_SYNC.SW_MNG, which the host holds meanwhile.
const SW_MNG: u32 = 1 << 10;
/// Ticks until it has answered.
const TICKS: u64 = 4;

/// Commands: read words of the EEPROM, tell the driver's version, turn the receiver off.
const READ: u8 = 0x31;
const DRIVER_INFO: u8 = 0xDD;
const DISABLE_RECEIVER: u8 = 0xDE;
/// Of an answer: the command was understood.
const SUCCESS: u8 = 1;
/// Words of the EEPROM that one command reads at most.
const MOST_WORDS: u32 = 512;
/// Where they are in the block, in bytes.
const DATA: u32 = 12;
const RXEN: u32 = 1;

impl Model {
    pub(super) fn read_hicr(&self) -> u32 {
        if self.id == DeviceId::X550 { self.regs.get(map::HICR) | ENABLED } else { 0 }
    }

    pub(super) fn write_hicr(&mut self, value: u32) {
        if self.id != DeviceId::X550 || value & COMMAND == 0 {
            return;
        }
        if self.regs.get(map::SW_FW_SYNC) & SW_MNG == 0 {
            self.checks.report(Violation::Order("HICR.C was set without the semaphore for it (SW_FW_SYNC.SW_MNG)"));
        }
        self.regs.set(map::HICR, COMMAND);
        self.events.retain(|(_, event)| *event != Event::Firmware);
        if !self.faults.firmware_silent {
            self.after(TICKS, Event::Firmware);
        }
    }

    /// The command in the block is carried out.
    pub(super) fn firmware_answers(&mut self) {
        let [command, ..] = self.regs.get(map::FLEX_MNG).to_le_bytes();
        let (length, status) = match command {
            READ => (self.read_for_host(), SUCCESS),
            DRIVER_INFO => (0, SUCCESS),
            DISABLE_RECEIVER => {
                self.regs.set(map::RXCTRL, self.regs.get(map::RXCTRL) & !RXEN);
                self.rx.reconfigure(map::RXCTRL);
                (0, SUCCESS)
            }
            _ => (0, 0),
        };
        let [low, high] = length.to_le_bytes();
        self.regs.set(map::FLEX_MNG, u32::from_le_bytes([command, low, high << 5 | status, 0xFF]));
        self.regs.set(map::HICR, ANSWERED);
    }

    /// Copies words of the EEPROM into the block. Address and length of the command are in bytes, most significant byte first. Returns the length
    /// in bytes.
    fn read_for_host(&mut self) -> u16 {
        let first = self.regs.get(map::FLEX_MNG + 4).swap_bytes() / 2;
        let [high, low, ..] = self.regs.get(map::FLEX_MNG + 8).to_le_bytes();
        let words = (u32::from(u16::from_be_bytes([high, low])) / 2).min(MOST_WORDS);
        for at in (0..words).step_by(2) {
            let word = |n| if n < words { u32::from(self.eeprom.word(first.saturating_add(n))) } else { 0 };
            self.regs.set(map::FLEX_MNG + DATA + 2 * at, word(at) | word(at + 1) << 16);
        }
        u16::try_from(2 * words).unwrap_or(0)
    }
}
