//! The module in the cage of an SFP+ port: who it is (SFF-8472), and how the analog part is set up for it (EEPROM, CORECTL).

use crate::i2c::{Failure, read_bytes};
use crate::regs::{CORECTL, STATUS, status, sw_fw_sync};
use crate::semaphore::holding;
use crate::wait::{Timed, read};
use crate::{MacType, Result, eeprom};
use device::Device;
use std::fmt;

/// What is in the cage.
///
/// ```
/// use ethdev::Opened;
/// use ixgbe::{Cage, Config};
/// use mempool::{Pool, PoolConfig};
/// use softnic::{DeviceId, StrictNic};
///
/// let pool = Pool::new(&PoolConfig::default())?;
/// let device = StrictNic::builder().id(DeviceId::SfpPlus).build();
/// let Opened { port, .. } = ixgbe::open(device, &Config::default(), &pool)?;
/// let Some(Cage::Module(module)) = port.cage() else { panic!("an SFP+ port with a module") };
/// assert_eq!(module.to_string(), "passive cable of 1 m, RINGWAY SOFT-DAC-1M");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cage {
    /// Nobody answers.
    Empty,
    /// A module that says what it is.
    Module(SfpModule),
    /// A module that cannot be read, and why.
    Unreadable(String),
}

impl Cage {
    /// Whether the MAC has to run at 1 Gbit/s. What cannot be read is taken for a module of 10 Gbit/s.
    pub(crate) fn is_gigabit(&self) -> bool {
        matches!(self, Self::Module(module) if module.kind.is_gigabit())
    }

    /// Whether the module runs at either rate, as a pin selects.
    pub(crate) fn is_dual_rate(&self) -> bool {
        matches!(self, Self::Module(SfpModule { dual_rate: true, .. }))
    }
}

/// A module, as its page A0h describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SfpModule {
    /// Its kind.
    pub kind: SfpKind,
    /// Whether it runs at 1 Gbit/s too. The driver tries 10 first.
    pub dual_rate: bool,
    /// Whether the checksum of its page is right. If not, what it says was read twice the same, and is believed.
    pub checksum_is_right: bool,
    /// The vendor's name; characters that are not printable ASCII are shown as `?`.
    pub vendor: String,
    /// The vendor's part number, in the same way.
    pub part: String,
    /// Length of a copper cable in metres, if it says.
    pub cable_metres: Option<u8>,
}

/// Kinds of modules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SfpKind {
    /// A passive direct attach cable.
    PassiveCable,
    /// An active direct attach cable.
    ActiveCable,
    /// 10GBASE-SR.
    ShortRange,
    /// 10GBASE-LR.
    LongRange,
    /// 1000BASE-SX.
    ShortRange1G,
    /// 1000BASE-LX.
    LongRange1G,
    /// 1000BASE-T.
    Copper1G,
    /// None of these: set up as optics of 10 Gbit/s.
    Unknown,
}

impl SfpKind {
    fn is_gigabit(self) -> bool {
        matches!(self, Self::ShortRange1G | Self::LongRange1G | Self::Copper1G)
    }

    /// Type in the EEPROM's list, to which the number of the core is added: cables have one, all else is set up as optics.
    fn list_type(self) -> u16 {
        if self == Self::PassiveCable { CABLES } else { OPTICS }
    }
}

impl fmt::Display for SfpKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PassiveCable => "passive cable",
            Self::ActiveCable => "active cable",
            Self::ShortRange => "10GBASE-SR",
            Self::LongRange => "10GBASE-LR",
            Self::ShortRange1G => "1000BASE-SX",
            Self::LongRange1G => "1000BASE-LX",
            Self::Copper1G => "1000BASE-T",
            Self::Unknown => "module of an unknown kind",
        })
    }
}

impl fmt::Display for SfpModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        if let Some(metres) = self.cable_metres {
            write!(f, " of {metres} m")?;
        }
        if self.dual_rate {
            f.write_str(", two rates")?;
        }
        write!(f, ", {} {}", self.vendor, self.part)?;
        if self.checksum_is_right { Ok(()) } else { f.write_str("; the checksum of its page is wrong") }
    }
}

/// Reads what is in the cage, and tells it in the log.
///
/// # Errors
///
/// As [`look`].
pub(crate) fn identify<D: Device>(regs: &Timed<D>, mac: MacType) -> Result<Cage> {
    let cage = look(regs, mac)?;
    tell(regs, &cage);
    Ok(cage)
}

/// Reads what is in the cage, under the semaphore that firmware takes for the same.
///
/// # Errors
///
/// [`crate::Error::Timeout`] when another holder keeps the semaphore, [`crate::Error::Expired`], [`crate::Error::Gone`].
pub(crate) fn look<D: Device>(regs: &Timed<D>, mac: MacType) -> Result<Cage> {
    judge(|| read_page(regs, mac))
}

/// Reads a page twice if need be, as a module that has just been plugged in may miss the first try. One with a wrong checksum may have been
/// read wrongly: it is believed if it reads the same once more.
fn judge(mut read: impl FnMut() -> Result<Result<[u8; PAGE], Failure>>) -> Result<Cage> {
    let is_right = |page: &Result<_, Failure>| page.as_ref().is_ok_and(checksum_is_right);
    let (mut before, mut page) = (Err(Failure::NoAnswer), read()?);
    if !is_right(&page) {
        (before, page) = (page, read()?);
    }
    if before.is_err() && page.is_ok() && !is_right(&page) {
        (before, page) = (page, read()?);
    }
    Ok(match page {
        Ok(page) if !checksum_is_right(&page) && before.is_ok_and(|before| before != page) => {
            Cage::Unreadable("the checksum of its page is wrong, and it reads differently each time".to_owned())
        }
        Ok(page) => parse(&page),
        Err(Failure::Stuck(wire)) => Cage::Unreadable(format!(
            "the {wire} wire of its two-wire bus is held down: take it out and put it in again"
        )),
        Err(_) => Cage::Empty,
    })
}

fn read_page<D: Device>(regs: &Timed<D>, mac: MacType) -> Result<Result<[u8; PAGE], Failure>> {
    regs.check("the SFP+ module to be read")?;
    let mut page = [0; PAGE];
    let outcome = holding(regs, mac, phy_semaphore(regs)?, || match read_bytes(regs, ADDRESS, 0, &mut page) {
        Err(Failure::Device(error)) => Err(error),
        other => Ok(other),
    })?;
    Ok(outcome.map(|()| page))
}

/// Whether the bytes up to the last one add up to it.
fn checksum_is_right(page: &[u8; PAGE]) -> bool {
    page[..PAGE - 1].iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte)) == page[PAGE - 1]
}

/// Tells in the log what is in the cage.
pub(crate) fn tell<D: Device>(regs: &Timed<D>, cage: &Cage) {
    let name = regs.device().name();
    match cage {
        Cage::Module(module) if module.checksum_is_right => tracing::info!("{name}: SFP+ module: {module}"),
        Cage::Module(module) => tracing::warn!("{name}: SFP+ module: {module}; what it says is believed"),
        Cage::Empty => tracing::info!("{name}: no SFP+ module answers"),
        Cage::Unreadable(problem) => tracing::warn!("{name}: SFP+ module: {problem}"),
    }
}

/// The software bit of SW_FW_SYNC for PHY or module of this port (10.5.4).
pub(crate) fn phy_semaphore<D: Device>(regs: &Timed<D>) -> Result<device::Bits> {
    Ok(if core(regs)? == 1 { sw_fw_sync::PHY1 } else { sw_fw_sync::PHY0 })
}

/// Whether the EEPROM's settings for each type of module on this port can be read.
///
/// # Errors
///
/// As [`initialise`].
pub(crate) fn check_settings<D: Device>(regs: &Timed<D>, mac: MacType) -> Result<()> {
    let core = core(regs)?;
    eeprom::analog_words(regs, mac, &[CABLES + core, OPTICS + core]).map(drop)
}

/// Which of the two ports of its chip it is.
fn core<D: Device>(regs: &Timed<D>) -> Result<u16> {
    read(regs, STATUS).map(|value| u16::from(status::LAN_ID.get(value) & 1 != 0))
}

/// Writes the EEPROM's settings for a module to the analog part.
///
/// # Errors
///
/// [`crate::Error::Timeout`] when a semaphore is kept by others or the EEPROM does not answer, [`crate::Error::Eeprom`], [`crate::Error::Expired`],
/// [`crate::Error::Gone`].
pub(crate) fn initialise<D: Device>(regs: &Timed<D>, mac: MacType, module: &SfpModule) -> Result<()> {
    let words = eeprom::analog_words(regs, mac, &[module.kind.list_type() + core(regs)?])?.concat();
    if words.is_empty() {
        tracing::warn!("{}: the EEPROM has no settings for this kind of SFP+ module", regs.device().name());
        return Ok(());
    }
    holding(regs, mac, sw_fw_sync::MAC_CSR, || {
        for word in words {
            regs.write(CORECTL, word.into());
            // A write is on its way until something is read.
            read(regs, STATUS)?;
        }
        Ok(())
    })
}

/// What the first part of page A0h says.
fn parse(page: &[u8; PAGE]) -> Cage {
    if page[0] != IDENTIFIER_SFP {
        return Cage::Unreadable(format!("it says that it is none (identifier {:#04x})", page[0]));
    }
    let (ten, one, cable) = (page[3], page[6], page[8]);
    let kind = match () {
        () if cable & PASSIVE != 0 => SfpKind::PassiveCable,
        () if cable & ACTIVE != 0 => SfpKind::ActiveCable,
        () if ten & SR != 0 => SfpKind::ShortRange,
        () if ten & LR != 0 => SfpKind::LongRange,
        () if one & BASE_T != 0 => SfpKind::Copper1G,
        () if one & SX != 0 => SfpKind::ShortRange1G,
        () if one & LX != 0 => SfpKind::LongRange1G,
        () => SfpKind::Unknown,
    };
    let dual_rate = (ten & SR != 0 && one & SX != 0) || (ten & LR != 0 && one & LX != 0);
    let is_cable = cable & (PASSIVE | ACTIVE) != 0;
    Cage::Module(SfpModule {
        kind,
        dual_rate: dual_rate && !is_cable,
        checksum_is_right: checksum_is_right(page),
        vendor: text(&page[20..36]),
        part: text(&page[40..56]),
        cable_metres: Some(page[18]).filter(|metres| is_cable && *metres != 0),
    })
}

fn text(bytes: &[u8]) -> String {
    let text: String =
        bytes.iter().map(|&byte| if byte == b' ' || byte.is_ascii_graphic() { byte.into() } else { '?' }).collect();
    text.trim_end().to_owned()
}

/// Types of modules in the EEPROM's list, on the first port.
const CABLES: u16 = 3;
const OPTICS: u16 = 5;
/// Address of page A0h on the bus.
const ADDRESS: u8 = 0xA0;
/// Bytes of the page that are read: those that the first checksum covers, and it.
const PAGE: usize = 64;
/// Byte 0.
const IDENTIFIER_SFP: u8 = 0x03;
/// Byte 3.
const SR: u8 = 0x10;
const LR: u8 = 0x20;
/// Byte 6.
const SX: u8 = 0x01;
const LX: u8 = 0x02;
const BASE_T: u8 = 0x08;
/// Byte 8.
const PASSIVE: u8 = 0x04;
const ACTIVE: u8 = 0x08;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    fn page(bytes: &[(usize, u8)]) -> [u8; PAGE] {
        let mut page = [0; PAGE];
        page[0] = 3;
        page[20..36].copy_from_slice(b"ACME \x1b[31m\0     ");
        page[40..56].copy_from_slice(b"P/N 1           ");
        bytes.iter().for_each(|&(at, byte)| page[at] = byte);
        page[63] = page[..63].iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte));
        page
    }

    #[test]
    fn kinds() {
        let kind = |bytes: &[(usize, u8)]| match parse(&page(bytes)) {
            Cage::Module(module) => (module.kind, module.dual_rate, module.cable_metres),
            other => panic!("{other:?}"),
        };
        assert_eq!(kind(&[(8, 4), (18, 3)]), (SfpKind::PassiveCable, false, Some(3)));
        assert_eq!(kind(&[(8, 8), (3, 0x10), (6, 1)]), (SfpKind::ActiveCable, false, None), "a cable first of all");
        assert_eq!(kind(&[(3, 0x10), (18, 9)]), (SfpKind::ShortRange, false, None));
        assert_eq!(kind(&[(3, 0x10), (6, 1)]), (SfpKind::ShortRange, true, None));
        assert_eq!(kind(&[(3, 0x20), (6, 2)]), (SfpKind::LongRange, true, None));
        assert_eq!(kind(&[(3, 0x20), (6, 1)]), (SfpKind::LongRange, false, None));
        assert_eq!(
            [1, 2, 8].map(|code| kind(&[(6, code)]).0.to_string()),
            ["1000BASE-SX", "1000BASE-LX", "1000BASE-T"]
        );
        assert_eq!(kind(&[(3, 0x80)]).0, SfpKind::Unknown);
    }

    #[test]
    fn what_a_module_says_cannot_steer_a_terminal() {
        let Cage::Module(module) = parse(&page(&[(8, 4), (18, 1)])) else { panic!() };
        assert_eq!(module.to_string(), "passive cable of 1 m, ACME ?[31m? P/N 1");
    }

    #[test]
    fn a_page_with_a_wrong_checksum_is_believed_if_it_reads_the_same_twice() {
        let (good, mut damaged, mut other) = (page(&[(3, 0x10)]), page(&[(3, 0x10)]), page(&[(3, 0x20)]));
        (damaged[63], other[63]) = (damaged[63] ^ 1, other[63] ^ 1);
        let judged = |pages: &[Option<[u8; PAGE]>]| {
            let mut readings = pages.iter().map(|page| Ok(page.ok_or(Failure::NoAnswer)));
            let cage = judge(|| readings.next().expect("no more readings than these")).expect("no error of the device");
            assert!(readings.next().is_none(), "all of {} readings", pages.len());
            cage
        };
        let is_module = |cage: &Cage| matches!(cage, Cage::Module(_));
        assert!(is_module(&judged(&[Some(good)])));
        assert!(is_module(&judged(&[None, Some(good)])));
        assert!(is_module(&judged(&[Some(damaged), Some(good)])));
        assert!(is_module(&judged(&[Some(damaged); 2])));
        assert!(is_module(&judged(&[None, Some(damaged), Some(damaged)])));
        assert!(matches!(judged(&[None, Some(damaged), Some(other)]), Cage::Unreadable(_)));
        assert!(matches!(judged(&[Some(damaged), Some(other)]), Cage::Unreadable(_)));
        assert_eq!(judged(&[None; 2]), Cage::Empty);
    }

    /// Settings of its own type in the EEPROM's list, the semaphore of its own PHY or module (82599 datasheet 10.5.4).
    #[test]
    fn each_port_of_a_chip_has_settings_and_a_semaphore_of_its_own() {
        for (lan, semaphore, optics, cables) in [(0, sw_fw_sync::PHY0, 50, 30), (1, sw_fw_sync::PHY1, 60, 40)] {
            let fake = Fake::new(0x10FB);
            fake.set(STATUS, status::LAN_ID.set(0, lan));
            let mut words = vec![0_u16; 0x300];
            words[0x2B] = 0x200;
            words[0x201..0x20A].copy_from_slice(&[3, 0x210, 4, 0x220, 5, 0x230, 6, 0x240, 0xFFFF]);
            for (at, word) in [(0x210, 30), (0x220, 40), (0x230, 50), (0x240, 60)] {
                words[at + 1..at + 3].copy_from_slice(&[word, 0xFFFF]);
            }
            fake.set_eeprom(words);
            let regs = fake.regs();
            assert_eq!(phy_semaphore(&regs).unwrap().mask(), semaphore.mask());
            for (bytes, word) in [((3, 0x10), optics), ((8, 4), cables)] {
                let Cage::Module(module) = parse(&page(&[bytes])) else { panic!() };
                initialise(&regs, MacType::Mac82599, &module).unwrap();
                let mut written = fake.writes().into_iter().filter(|write| write.0 == CORECTL.offset());
                assert_eq!(written.next_back().map(|write| write.1), Some(word), "port {lan}");
            }
        }
    }

    #[test]
    fn other_devices_are_not_believed_and_wrong_sums_are_told() {
        let problem = |page: &[u8; PAGE]| match parse(page) {
            Cage::Unreadable(problem) => problem,
            other => panic!("{other:?}"),
        };
        assert!(problem(&page(&[(0, 0x0D)])).contains("identifier 0x0d"));
        let mut damaged = page(&[(3, 0x10)]);
        damaged[63] ^= 1;
        let Cage::Module(module) = parse(&damaged) else { panic!() };
        assert_eq!((module.kind, module.checksum_is_right), (SfpKind::ShortRange, false));
        assert!(module.to_string().ends_with("; the checksum of its page is wrong"), "{module}");
        assert!(problem(&[0xFF; PAGE]).contains("identifier 0xff"));
    }
}
