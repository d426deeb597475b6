//! The SFP+ module in the cage: a two-wire slave behind I2CCTL (datasheet 3.5, 8.2.3.1.5), with the memory of its kind
//! (`cage.rs`) or of a file (`pages.rs`), and the analog part that drives it.

use super::cage::ModuleKind;
use super::pages::Pages;

const CLK_IN: u32 = 1;
const CLK_OUT: u32 = 1 << 1;
const DATA_IN: u32 = 1 << 2;
const DATA_OUT: u32 = 1 << 3;

/// I2CCTL as it comes out of reset: both wires are let go of.
pub(super) const RELEASED: u32 = CLK_OUT | DATA_OUT;

/// Device addresses of the pages of a module; the least significant bit of the byte on the bus says whether one is read.
const IDENTITY: u8 = 0xA0;
const DIAGNOSTICS: u8 = 0xA2;

/// The module and its end of the bus.
#[derive(Debug)]
pub(super) struct Module {
    kind: ModuleKind,
    pages: Pages,
    /// The page that was called last.
    called: [u8; 256],
    /// Words written to CORECTL since the link was last reset, the last [`ANALOG`] of them.
    analog: Vec<u16>,
    /// Next byte to be read or written.
    pointer: u8,
    clock: bool,
    data: bool,
    phase: Phase,
    /// Bits of the current byte that have been clocked; the ninth is the acknowledgement.
    bits: u8,
    shift: u8,
    /// Whether the module pulls the data wire down.
    pulls: bool,
}

/// More words than the EEPROM has for a module.
const ANALOG: usize = 16;

/// What the byte on the bus is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Not for this module.
    Idle,
    Address,
    /// The first byte written: where to read or write.
    Pointer,
    /// Bytes written after that, which this module does not keep.
    Write,
    /// Bytes to the host, as long as it acknowledges them.
    Read,
}

impl Module {
    /// A module with these pages, or those of its kind and a serial number made from the port's address.
    pub(super) fn new(kind: ModuleKind, pages: Option<Pages>, mac: [u8; 6]) -> Self {
        let pages = pages.unwrap_or_else(|| kind.pages(mac));
        let (called, phase, analog) = (pages.identity, Phase::Idle, Vec::new());
        Self {
            kind,
            pages,
            called,
            analog,
            pointer: 0,
            clock: true,
            data: true,
            phase,
            bits: 0,
            shift: 0,
            pulls: false,
        }
    }

    /// Something else is in the cage from now on.
    pub(super) fn replace(&mut self, kind: ModuleKind, mac: [u8; 6]) {
        (self.kind, self.pages) = (kind, kind.pages(mac));
        self.begin(Phase::Idle);
    }

    /// Whether there is something in the cage (SDP2).
    pub(super) fn is_there(&self) -> bool {
        self.kind != ModuleKind::Empty
    }

    /// The link is reset, and the analog part with it.
    pub(super) fn reset_link(&mut self) {
        self.analog.clear();
    }

    /// A word for the analog part (CORECTL).
    pub(super) fn set_analog(&mut self, word: u32) {
        if self.analog.len() >= ANALOG {
            self.analog.remove(0);
        }
        self.analog.push(u16::try_from(word & 0xFFFF).unwrap_or(0));
    }

    /// Whether it can have a link at this rate, with SDP5 as it is driven.
    pub(super) fn fits(&self, gigabit: bool, rate_select: Option<bool>) -> bool {
        self.kind.fits(gigabit, rate_select, &self.analog)
    }

    /// Whether it sends light, with this level of TX disable (SDP3).
    pub(super) fn sends(&self, disabled: bool) -> bool {
        !(disabled && self.kind.has_laser())
    }

    /// I2CCTL as read: what the wires are at.
    pub(super) fn read(&self) -> u32 {
        let bit = |on: bool, bit: u32| if on { bit } else { 0 };
        let held = self.kind == ModuleKind::Stuck && self.phase != Phase::Idle;
        bit(self.clock && !held, CLK_IN)
            | bit(self.clock, CLK_OUT)
            | bit(self.data && !self.pulls && self.kind != ModuleKind::StuckData, DATA_IN)
            | bit(self.data, DATA_OUT)
    }

    /// I2CCTL as written: a wire is low if either end pulls it down.
    pub(super) fn write(&mut self, value: u32) {
        let (clock, data) = (value & CLK_OUT != 0, value & DATA_OUT != 0);
        let before = (std::mem::replace(&mut self.clock, clock), std::mem::replace(&mut self.data, data));
        match (before, (clock, data)) {
            ((true, true), (true, false)) => self.begin(Phase::Address),
            ((true, false), (true, true)) => self.begin(Phase::Idle),
            ((false, _), (true, _)) => self.rise(data),
            ((true, _), (false, _)) => self.fall(),
            _ => {}
        }
    }

    /// Start and stop conditions, and the beginning of each byte.
    fn begin(&mut self, phase: Phase) {
        self.phase = phase;
        self.bits = 0;
        self.pulls = false;
    }

    /// The clock rises: a bit is valid.
    fn rise(&mut self, data: bool) {
        match (self.phase, self.bits) {
            (Phase::Idle, _) => return,
            (Phase::Read, 8) if data => {
                self.pointer = self.pointer.wrapping_add(1);
                self.phase = Phase::Idle;
            }
            (Phase::Read, _) | (_, 8..) => {}
            _ => self.shift = self.shift << 1 | u8::from(data),
        }
        self.bits += 1;
    }

    /// The clock falls: the next bit may be put on the wire.
    fn fall(&mut self) {
        match (self.phase, self.bits) {
            (Phase::Idle, _) => self.pulls = false,
            (Phase::Read, 8) => self.pulls = false,
            (_, 8) => self.pulls = self.phase != Phase::Address || self.page().is_some(),
            (_, 9) => self.next(),
            _ => {}
        }
        if self.phase == Phase::Read && self.bits < 8 {
            self.pulls = self.called[usize::from(self.pointer)] << self.bits & 0x80 == 0;
        }
    }

    /// The page that the byte on the bus calls, if there is one.
    fn page(&self) -> Option<[u8; 256]> {
        match self.shift & !1 {
            IDENTITY if self.is_there() => Some(self.pages.identity),
            DIAGNOSTICS => self.pages.diagnostics,
            _ => None,
        }
    }

    /// A byte is over.
    fn next(&mut self) {
        let phase = match self.phase {
            Phase::Address => match self.page() {
                None => Phase::Idle,
                Some(page) => {
                    self.called = page;
                    if self.shift & 1 != 0 { Phase::Read } else { Phase::Pointer }
                }
            },
            Phase::Pointer => {
                self.pointer = self.shift;
                Phase::Write
            }
            Phase::Read | Phase::Write => {
                self.pointer = self.pointer.wrapping_add(1);
                self.phase
            }
            Phase::Idle => Phase::Idle,
        };
        self.begin(phase);
    }
}
