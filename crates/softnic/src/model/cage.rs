//! What can be in the cage of an SFP+ port: the first page of its memory (SFF-8472), and what it takes for a link.

use super::pages::Pages;

/// Lists of the EEPROM that initialise the analog part (CORECTL), by type of module: direct attach cables, and all others.
pub(super) const CABLE_LIST: [u16; 3] = [0x1D04, 0x2A11, 0x3307];
pub(super) const OPTICS_LIST: [u16; 3] = [0x1D0A, 0x2A03, 0x3302];

/// A module in the cage of an SFP+ port. In a device specification it is written `module=KIND`; `module=FILE` is one whose memory is
/// in a file.
///
/// ```
/// use softnic::{DeviceId, ModuleKind, StrictNic};
///
/// let nic = StrictNic::builder().id(DeviceId::SfpPlus).module(ModuleKind::ShortRange).build();
/// assert_eq!("sr".parse::<ModuleKind>()?, ModuleKind::ShortRange);
/// # drop(nic);
/// # Ok::<(), softnic::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModuleKind {
    /// `dac`: a passive direct attach cable of one metre.
    #[default]
    Cable,
    /// `long-dac`: one of seven metres, which has a link only with the analog settings for cables.
    LongCable,
    /// `active-dac`: an active (limiting) direct attach cable.
    ActiveCable,
    /// `sr`: 10GBASE-SR.
    ShortRange,
    /// `lr`: 10GBASE-LR.
    LongRange,
    /// `dual-sr`: 10GBASE-SR and 1000BASE-SX, as SDP5 selects.
    DualRate,
    /// `dual-sr-1g`: the same, with a partner of 1 Gbit/s at the other end of the fibre.
    DualRateSlow,
    /// `1g-sx`: 1000BASE-SX.
    ShortRange1G,
    /// `1g-lx`: 1000BASE-LX.
    LongRange1G,
    /// `1g-t`: 1000BASE-T.
    Copper1G,
    /// `liar`: its page has a wrong checksum.
    Liar,
    /// `stuck`: holds the clock of the bus down from the first bit on.
    Stuck,
    /// `stuck-data`: holds the data wire of the bus down for ever.
    StuckData,
    /// `none`: the cage is empty.
    Empty,
}

/// By name.
pub(crate) const KINDS: &[(&str, ModuleKind)] = &[
    ("dac", ModuleKind::Cable),
    ("long-dac", ModuleKind::LongCable),
    ("active-dac", ModuleKind::ActiveCable),
    ("sr", ModuleKind::ShortRange),
    ("lr", ModuleKind::LongRange),
    ("dual-sr", ModuleKind::DualRate),
    ("dual-sr-1g", ModuleKind::DualRateSlow),
    ("1g-sx", ModuleKind::ShortRange1G),
    ("1g-lx", ModuleKind::LongRange1G),
    ("1g-t", ModuleKind::Copper1G),
    ("liar", ModuleKind::Liar),
    ("stuck", ModuleKind::Stuck),
    ("stuck-data", ModuleKind::StuckData),
    ("none", ModuleKind::Empty),
];

impl std::str::FromStr for ModuleKind {
    type Err = crate::Error;

    fn from_str(text: &str) -> Result<Self, crate::Error> {
        crate::spec::one_of("module", Some(text), KINDS, Self::default())
    }
}

/// What a page says of a module.
struct Description {
    connector: u8,
    /// Bytes 3 (10 Gbit/s), 6 (1 Gbit/s) and 8 (cables) of the compliance codes.
    codes: [u8; 3],
    /// Units of 100 MBd.
    rate: u8,
    metres: u8,
    /// Byte 60, which complies with what for cables.
    cable: u8,
    part: &'static str,
}

impl ModuleKind {
    /// Whether it can have a link at this rate with these analog settings.
    pub(super) fn fits(self, gigabit: bool, rate_select: Option<bool>, analog: &[u16]) -> bool {
        match self {
            Self::Cable | Self::ActiveCable | Self::Stuck | Self::StuckData => true,
            Self::LongCable => analog.ends_with(&CABLE_LIST),
            Self::ShortRange | Self::LongRange | Self::Liar => !gigabit,
            Self::ShortRange1G | Self::LongRange1G | Self::Copper1G => gigabit,
            // Until the pin is driven, a receiver that is made for both hears neither well.
            Self::DualRate => rate_select == Some(!gigabit),
            Self::DualRateSlow => gigabit && rate_select == Some(false),
            Self::Empty => false,
        }
    }

    /// Whether it has a laser, which SDP3 turns off. Cables and 1000BASE-T leave that pin alone.
    pub(super) fn has_laser(self) -> bool {
        match self {
            Self::Cable | Self::LongCable | Self::ActiveCable | Self::Copper1G => false,
            Self::Stuck | Self::StuckData | Self::Empty => false,
            Self::ShortRange | Self::LongRange | Self::Liar | Self::DualRate | Self::DualRateSlow => true,
            Self::ShortRange1G | Self::LongRange1G => true,
        }
    }

    fn description(self) -> Description {
        let optics = |codes, rate, part| Description { connector: 0x07, codes, rate, metres: 0, cable: 0, part };
        let cable = |metres, part| Description {
            connector: 0x21,
            codes: [0, 0, 0x04],
            rate: 103,
            metres,
            // SFF-8431, appendix E.
            cable: 0x01,
            part,
        };
        match self {
            Self::Cable | Self::Stuck | Self::StuckData | Self::Empty => cable(1, "SOFT-DAC-1M"),
            Self::LongCable => cable(7, "SOFT-DAC-7M"),
            // SFF-8431, limiting.
            Self::ActiveCable => {
                Description { codes: [0, 0, 0x08], cable: 0x04, part: "SOFT-AOC-10M", ..cable(10, "") }
            }
            Self::ShortRange | Self::Liar => optics([0x10, 0, 0], 103, "SOFT-10G-SR"),
            Self::LongRange => optics([0x20, 0, 0], 103, "SOFT-10G-LR"),
            Self::DualRate | Self::DualRateSlow => optics([0x10, 0x01, 0], 103, "SOFT-DUAL-SR"),
            Self::ShortRange1G => optics([0, 0x01, 0], 13, "SOFT-1G-SX"),
            Self::LongRange1G => optics([0, 0x02, 0], 13, "SOFT-1G-LX"),
            Self::Copper1G => Description { connector: 0x22, ..optics([0, 0x08, 0], 13, "SOFT-1G-T") },
        }
    }

    /// Page A0h (SFF-8472, table 4-1), without diagnostics (page A2h). The serial number is made from the port's address.
    pub(super) fn pages(self, mac: [u8; 6]) -> Pages {
        let about = self.description();
        let mut page = [0; 256];
        // SFP by its two-wire interface.
        page[0..3].copy_from_slice(&[0x03, 0x04, about.connector]);
        [page[3], page[6], page[8]] = about.codes;
        page[12] = about.rate;
        page[18] = about.metres;
        let mut text = |at: usize, len: usize, text: &str| {
            page[at..at + len].fill(b' ');
            page[at..at + text.len()].copy_from_slice(text.as_bytes());
        };
        text(20, 16, "RINGWAY");
        text(40, 16, about.part);
        text(56, 4, "A");
        let [a, b, c, d, e, f] = mac;
        text(68, 16, &format!("{a:02X}{b:02X}{c:02X}{d:02X}{e:02X}{f:02X}"));
        text(84, 8, "260101");
        page[60] = about.cable;
        let lie = u8::from(self == Self::Liar);
        page[63] = page[..63].iter().fold(lie, |sum: u8, byte| sum.wrapping_add(*byte));
        page[95] = page[64..95].iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte));
        Pages { identity: page, diagnostics: None }
    }
}
