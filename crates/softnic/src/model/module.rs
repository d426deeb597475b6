//! The SFP+ module in the cage: a two-wire slave behind I2CCTL (datasheet 3.5, 8.2.3.1.7), with the memory of a passive direct
//! attach cable (SFF-8472).

const CLK_IN: u32 = 1;
const CLK_OUT: u32 = 1 << 1;
const DATA_IN: u32 = 1 << 2;
const DATA_OUT: u32 = 1 << 3;

/// I2CCTL as it comes out of reset: both wires are let go of.
pub(super) const RELEASED: u32 = CLK_OUT | DATA_OUT;

/// Device address of the page of a module; the least significant bit of the byte on the bus says whether it is read.
const ADDRESS: u8 = 0xA0;

/// The module and its end of the bus.
#[derive(Debug)]
pub(super) struct Module {
    page: [u8; 256],
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
    /// A module with a serial number made from the port's address.
    pub(super) fn new(mac: [u8; 6]) -> Self {
        let (page, phase) = (page(mac), Phase::Idle);
        Self { page, pointer: 0, clock: true, data: true, phase, bits: 0, shift: 0, pulls: false }
    }

    /// I2CCTL as read: what the wires are at.
    pub(super) fn read(&self) -> u32 {
        let bit = |on: bool, bit: u32| if on { bit } else { 0 };
        bit(self.clock, CLK_IN | CLK_OUT) | bit(self.data && !self.pulls, DATA_IN) | bit(self.data, DATA_OUT)
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
            (_, 8) => self.pulls = self.phase != Phase::Address || self.shift & !1 == ADDRESS,
            (_, 9) => self.next(),
            _ => {}
        }
        if self.phase == Phase::Read && self.bits < 8 {
            self.pulls = self.page[usize::from(self.pointer)] << self.bits & 0x80 == 0;
        }
    }

    /// A byte is over.
    fn next(&mut self) {
        let phase = match self.phase {
            Phase::Address if self.shift & !1 != ADDRESS => Phase::Idle,
            Phase::Address if self.shift & 1 != 0 => Phase::Read,
            Phase::Address => Phase::Pointer,
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

/// Page A0h (SFF-8472, table 4-1): a passive direct attach cable of one metre, without diagnostics (page A2h).
fn page(mac: [u8; 6]) -> [u8; 256] {
    let mut page = [0; 256];
    // SFP by its two-wire interface; copper pigtail.
    page[0..3].copy_from_slice(&[0x03, 0x04, 0x21]);
    // Passive cable; 10.3 Gb/s in units of 100 MBd; one metre of copper.
    page[8] = 0x04;
    page[12] = 103;
    page[18] = 1;
    let mut text = |at: usize, len: usize, text: &str| {
        page[at..at + len].fill(b' ');
        page[at..at + text.len()].copy_from_slice(text.as_bytes());
    };
    text(20, 16, "RINGWAY");
    text(40, 16, "SOFT-DAC-1M");
    text(56, 4, "A");
    let [a, b, c, d, e, f] = mac;
    text(68, 16, &format!("{a:02X}{b:02X}{c:02X}{d:02X}{e:02X}{f:02X}"));
    text(84, 8, "260101");
    // The cable complies with SFF-8431, appendix E.
    page[60] = 0x01;
    page[63] = page[..63].iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte));
    page[95] = page[64..95].iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte));
    page
}
