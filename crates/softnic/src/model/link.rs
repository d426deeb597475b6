//! The link: AUTOC, LINKS, training, the cable (datasheet 3.7, 8.2.3.22).

use super::DeviceId;
use super::map::{self, RegisterFile};

/// AUTOC.Restart_AN, self-clearing.
pub(super) const AN_RESTART: u32 = 1 << 12;
/// Ticks from a restart until the link is up, if the cable is in.
pub(super) const TRAINING_TICKS: u64 = 10;

const FLU: u32 = 1;
const LINK_DISABLE: u32 = 0x7000_0000;
const LINKS_UP: u32 = 1 << 30;
const LINKS_UP_SINCE_READ: u32 = 1 << 7;

/// State of the link.
#[derive(Debug)]
pub(super) struct Link {
    autoc: u32,
    plugged: bool,
    trained: bool,
    up: bool,
    up_since_read: bool,
}

impl Link {
    pub(super) fn new(id: DeviceId, plugged: bool) -> Self {
        let autoc = match id {
            DeviceId::Cx4 => 0x0000_2100,
            DeviceId::SfpPlus => 0xC09C_6000,
        };
        Self { autoc, plugged, trained: false, up: false, up_since_read: false }
    }

    /// AUTOC as the EEPROM sets it.
    pub(super) fn default_autoc(&self) -> u32 {
        self.autoc
    }

    pub(super) fn plug(&mut self, plugged: bool) {
        self.plugged = plugged;
    }

    pub(super) fn plugged(&self) -> bool {
        self.plugged
    }

    pub(super) fn restart(&mut self) {
        self.trained = false;
    }

    pub(super) fn trained(&mut self) {
        self.trained = true;
    }

    pub(super) fn is_up(&self) -> bool {
        self.up
    }

    /// Works out whether the link is up; true if that changed.
    pub(super) fn update(&mut self, regs: &RegisterFile, carrier: bool) -> bool {
        let forced = regs.get(map::AUTOC) & FLU != 0;
        let disabled = regs.get(map::AUTOC2) & LINK_DISABLE != 0;
        let up = forced || (self.trained && self.plugged && carrier && !disabled);
        if !up {
            self.up_since_read = false;
        }
        std::mem::replace(&mut self.up, up) != up
    }

    pub(super) fn read(&mut self, regs: &RegisterFile, offset: u32) -> u32 {
        match offset {
            map::LINKS => {
                // Bit 7 latches a loss: the first read after the link came back still shows it.
                let latched = if self.up && self.up_since_read { LINKS_UP_SINCE_READ } else { 0 };
                self.up_since_read = self.up;
                if self.up { LINKS_UP | self.speed(regs) << 28 | latched } else { 0 }
            }
            map::LINKS2 => u32::from(self.up) << 6,
            map::ANLP1 => 0x0004_0000,
            _ => regs.get(offset),
        }
    }

    /// LINKS.LINK_SPEED: 3 is 10 Gb/s, 2 is 1 Gb/s.
    fn speed(&self, regs: &RegisterFile) -> u32 {
        match regs.get(map::AUTOC) >> 13 & 7 {
            0 | 2 | 5 => 2,
            _ => 3,
        }
    }
}
