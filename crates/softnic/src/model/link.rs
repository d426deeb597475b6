//! The link: AUTOC, LINKS, training, the cable (datasheet 3.7, 8.2.3.22).

use super::DeviceId;
use super::map::{self, RegisterFile};

/// AUTOC.Restart_AN, self-clearing.
pub(super) const AN_RESTART: u32 = 1 << 12;
/// Ticks from a restart until the link is up, if the cable is in.
pub(super) const TRAINING_TICKS: u64 = 10;

/// AUTOC.FLU and MACC.FLU: the link is forced up.
pub(super) const FLU: u32 = 1;
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
    /// AUTOC.LMS as the pipeline took it over, and when.
    mode: u32,
    mode_since: u64,
}

impl Link {
    pub(super) fn new(id: DeviceId, plugged: bool) -> Self {
        let autoc = match id {
            DeviceId::Cx4 | DeviceId::Vf82599 | DeviceId::VfX540 | DeviceId::VfX550 => 0x0000_2100,
            DeviceId::SfpPlus => 0xC09C_6000,
            DeviceId::X540 | DeviceId::X550 => 0x0000_2000,
        };
        let mode = lms(autoc);
        Self { autoc, plugged, trained: false, up: false, up_since_read: false, mode, mode_since: 0 }
    }

    /// The link is reset (CTRL.LRST): AUTOC as the EEPROM sets it. Returns that.
    pub(super) fn reset(&mut self) -> u32 {
        self.mode = lms(self.autoc);
        self.mode_since = 0;
        self.autoc
    }

    /// AUTOC was written with Restart_AN. A mode reaches the whole pipeline only if bit 2 of LMS changes with it, and, if it does
    /// twice, only if auto-negotiation has left its idle state in between: so Intel's drivers toggle the bit and watch ANLP1.
    pub(super) fn take_mode(&mut self, autoc: u32, now: u64) {
        if (self.mode ^ lms(autoc)) & 4 != 0 && self.negotiating(now) {
            self.mode = lms(autoc);
            self.mode_since = now;
        }
    }

    fn negotiating(&self, now: u64) -> bool {
        self.mode_since == 0 || now >= self.mode_since + NEGOTIATING_TICKS
    }

    /// Whether the MAC runs at 1 Gbit/s.
    pub(super) fn gigabit(&self) -> bool {
        matches!(self.mode, 0 | 2 | 5)
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

    /// Works out whether the link is up; true if that changed. `fits`: module or PHY can have one as things are set.
    pub(super) fn update(&mut self, regs: &RegisterFile, carrier: bool, fits: bool) -> bool {
        let forced = regs.get(map::AUTOC) & FLU != 0;
        let disabled = regs.get(map::AUTOC2) & LINK_DISABLE != 0;
        let up = forced || (self.trained && self.plugged && carrier && fits && !disabled);
        if !up {
            self.up_since_read = false;
        }
        std::mem::replace(&mut self.up, up) != up
    }

    pub(super) fn read(&mut self, regs: &RegisterFile, offset: u32, now: u64) -> u32 {
        match offset {
            map::LINKS => {
                // Bit 7 latches a loss: the first read after the link came back still shows it.
                let latched = if self.up && self.up_since_read { LINKS_UP_SINCE_READ } else { 0 };
                self.up_since_read = self.up;
                if self.up { LINKS_UP | self.speed() << 28 | latched } else { 0 }
            }
            map::LINKS2 => u32::from(self.up) << 6,
            map::ANLP1 => u32::from(self.negotiating(now)) << 18,
            _ => regs.get(offset),
        }
    }

    /// LINKS.LINK_SPEED: 3 is 10 Gb/s, 2 is 1 Gb/s.
    fn speed(&self) -> u32 {
        if self.gigabit() { 2 } else { 3 }
    }
}

/// AUTOC.LMS.
fn lms(autoc: u32) -> u32 {
    autoc >> 13 & 7
}

/// Ticks until auto-negotiation has left its idle state (ANLP1).
const NEGOTIATING_TICKS: u64 = 3;
