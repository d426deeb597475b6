//! Faults to inject: ways in which hardware deviates from its datasheet.

use crate::{DeviceId, Error};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// One fault. In a device specification it is written `fault=NAME` or `fault=NAME:N`.
///
/// ```
/// use softnic::{Fault, SoftDevice};
///
/// assert_eq!("rx-length-over:4000".parse::<Fault>()?, Fault::RxLengthOver { length: 4000 });
/// let nic = SoftDevice::open("shaky?wire=gen&fault=link-flap:500,rx-no-eop")?;
/// nic.inject_fault(Fault::TxFrozen);
/// # Ok::<(), softnic::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// `stuck-reset`: CTRL.RST and CTRL.LRST never clear.
    StuckReset,
    /// `stuck-gio`: STATUS.GIO never drops after CTRL.GIO_DIS.
    StuckGio,
    /// `slow-reset:N`: for N milliseconds (default 40) after CTRL.RST or CTRL.LRST the device takes no writes, which 4.6.3.2 of the
    /// datasheet lets it do for 10; one that comes too early is a violation.
    SlowReset {
        /// The time in milliseconds, at least 1.
        settle_ms: u32,
    },
    /// `an-stuck`: auto-negotiation does not leave its idle state (ANLP1) after a restart in another mode.
    AnStuck,
    /// `firmware-holds:eep`, `firmware-holds:phy` or `firmware-holds:mac` (the default): firmware keeps that semaphore (SW_FW_SYNC) for ever.
    FirmwareHolds {
        /// What the semaphore is of.
        part: SharedPart,
    },
    /// `semaphore-left`: a program has died while it held the semaphores of an X540 or X550 (SW_FW_SYNC), which stay taken until somebody gives them
    /// back. So at the beginning, and again whenever it is injected.
    SemaphoreLeft,
    /// `firmware-veto`: firmware forbids changes of the link (MMNGC).
    FirmwareVeto,
    /// `firmware-silent`: the firmware of an X550 answers no command (HICR).
    FirmwareSilent,
    /// `phy-asleep`: the PHY of an X540 or X550 is in low power when the device is made, as an earlier driver may leave it.
    PhyAsleep,
    /// `phy-silent`: no PHY answers on MDIO.
    PhySilent,
    /// `phy-stuck`: commands on MDIO never complete.
    PhyStuck,
    /// `removal:N`: after N register reads, every read returns all ones, also in configuration space, and there is no
    /// DMA any more; with 0, the default, at once.
    Removal {
        /// Number of register reads that still succeed.
        after_reads: u64,
    },
    /// `rx-length-zero:N`: one received frame in N (default 1) is written back with length 0.
    RxLengthZero {
        /// One frame in this many is affected.
        every: u32,
    },
    /// `rx-length-over:N`: frames are written back with length N (default 65535), whatever the size of the buffer.
    RxLengthOver {
        /// The length written back.
        length: u16,
    },
    /// `rx-no-eop`: EOP is never set.
    RxNoEop,
    /// `rx-out-of-order`: descriptors are completed in pairs, the second first.
    RxOutOfOrder,
    /// `rx-error-bits:N`: one received frame in N (default 1) has error bit 29 (RXE) set.
    RxErrorBits {
        /// One frame in this many is affected.
        every: u32,
    },
    /// `tx-frozen`: TDH stops, and nothing is sent or written back.
    TxFrozen,
    /// `tx-out-of-order`: descriptors are written back in pairs, the second first.
    TxOutOfOrder,
    /// `no-dd`: transmitted descriptors are never written back.
    TxNoDd,
    /// `reta-stuck:N`: frames that have a hash go to queue N (default 0), whatever the redirection table says, which reads as it was
    /// written.
    RetaStuck {
        /// Number of the queue, below 128.
        queue: u8,
    },
    /// `interrupt-lost:N`: MSI-X vector N (default 0) never fires.
    InterruptLost {
        /// Number of the vector, below 64.
        vector: u8,
    },
    /// `interrupt-storm:N`: MSI-X vector N (default 0) fires again and again while it is not masked, without a cause.
    InterruptStorm {
        /// Number of the vector, below 64.
        vector: u8,
    },
    /// `counter-stuck:gprc`, `gptc`, `gorc` or `gotc` (default `gprc`): that counter stays 0.
    CounterStuck {
        /// The counter.
        counter: Counter,
    },
    /// `eeprom-flip:N`: the lowest bit of word N of the EEPROM (default 63, the checksum) is another than it was. So at the beginning,
    /// and again whenever it is injected.
    EepromFlip {
        /// Address of the word, below 1024.
        word: u16,
    },
    /// `analog-endless`: the EEPROM's settings for modules in an SFP+ cage go on for 200 words where they should end.
    AnalogEndless,
    /// `pf-silent:N`: the physical function behind a virtual one answers N messages (default 0) and then no more.
    PfSilent {
        /// Number of messages that it still answers.
        after: u32,
    },
    /// `pf-refuses`: it refuses whatever it is asked.
    PfRefuses,
    /// `pf-reset:N`: it takes the N-th message from now, and resets rather than answer it; with 0, the default, at once. `pf-reset:N:sent` and
    /// `pf-reset:N:answered` are before and after that.
    PfReset {
        /// Number of the message.
        at: u32,
        /// How far it has got with that message.
        phase: MailboxPhase,
    },
    /// `pf-gone`: it resets, and does not come back.
    PfGone,
    /// `pf-flood:N`: it says every N steps (default 100) that something has changed, whatever is in the mailbox.
    PfFlood {
        /// Number of steps between two messages, at least 1.
        period: u32,
    },
    /// `pf-garbage`: its answers mean nothing.
    PfGarbage,
    /// `link-flap:N`: the link changes its state every N steps (default 1000).
    LinkFlap {
        /// Number of steps between two changes, at least 1.
        period: u32,
    },
}

/// How far the physical function has got with a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MailboxPhase {
    /// `sent`: it has not acknowledged the message, and never does (PFACK).
    Sent,
    /// `taken`: it has acknowledged it, and does not answer.
    #[default]
    Taken,
    /// `answered`: its answer lies in the mailbox (PFSTS), and stays there.
    Answered,
}

impl MailboxPhase {
    /// All of them, in order.
    pub const ALL: [Self; 3] = [Self::Sent, Self::Taken, Self::Answered];

    fn name(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Taken => "taken",
            Self::Answered => "answered",
        }
    }
}

/// What drivers share with firmware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SharedPart {
    /// The EEPROM.
    Eeprom,
    /// The PHY, or the two-wire bus to a module.
    Phy,
    /// The registers of the MAC.
    Mac,
}

impl SharedPart {
    const NAMES: [(&str, Self); 3] = [("eep", Self::Eeprom), ("phy", Self::Phy), ("mac", Self::Mac)];

    /// Firmware's bit of SW_FW_SYNC (10.5.4), on the first port.
    pub(crate) fn bit(self) -> u32 {
        match self {
            Self::Eeprom => 1 << 5,
            Self::Phy => 1 << 6,
            Self::Mac => 1 << 8,
        }
    }
}

/// A counter of the MAC (8.2.3.23).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Counter {
    /// GPRC: good packets received.
    PacketsReceived,
    /// GPTC: good packets transmitted.
    PacketsSent,
    /// GORCL and GORCH: bytes of good packets received.
    BytesReceived,
    /// GOTCL and GOTCH: bytes of good packets transmitted.
    BytesSent,
}

impl Counter {
    const NAMES: [(&str, Self); 4] = [
        ("gprc", Self::PacketsReceived),
        ("gptc", Self::PacketsSent),
        ("gorc", Self::BytesReceived),
        ("gotc", Self::BytesSent),
    ];

    /// Offset of its register, or of its low half.
    pub(crate) fn offset(self) -> u32 {
        match self {
            Self::PacketsReceived => 0x4074,
            Self::PacketsSent => 0x4080,
            Self::BytesReceived => 0x4088,
            Self::BytesSent => 0x4090,
        }
    }

    /// How many bytes its registers take.
    pub(crate) fn len(self) -> u32 {
        if matches!(self, Self::BytesReceived | Self::BytesSent) { 8 } else { 4 }
    }
}

/// What has this name.
fn named<T: Copy>(names: &[(&str, T)], wanted: &str) -> Option<T> {
    names.iter().find(|(name, _)| *name == wanted).map(|(_, what)| *what)
}

/// The name of what is named.
fn name_of<T: PartialEq>(names: &[(&'static str, T)], what: &T) -> &'static str {
    names.iter().find(|(_, known)| known == what).map_or("?", |(name, _)| name)
}

/// The names of [`Fault`]s, for messages.
const NAMES: &str = "stuck-reset, stuck-gio, slow-reset[:ms], an-stuck, firmware-holds[:eep|phy|mac], semaphore-left, firmware-veto, firmware-silent, phy-asleep, phy-silent, phy-stuck, removal[:reads], rx-length-zero[:one-in], rx-length-over[:length], \
                     rx-no-eop, rx-out-of-order, rx-error-bits[:one-in], tx-frozen, tx-out-of-order, no-dd, \
                     reta-stuck[:queue], interrupt-lost[:vector], interrupt-storm[:vector], \
                     counter-stuck[:gprc|gptc|gorc|gotc], eeprom-flip[:word], analog-endless, \
                     pf-silent[:messages], pf-refuses, pf-reset[:message[:sent|taken|answered]], pf-gone, pf-flood[:steps], pf-garbage, link-flap[:steps]";

impl Fault {
    /// Whether a device has the part that it is a fault of; if not, who has it.
    pub(crate) fn check(self, id: DeviceId) -> Result<(), &'static str> {
        match self {
            Self::PhyAsleep | Self::PhySilent | Self::PhyStuck if !id.has_phy() => {
                Err("faults of the PHY belong to id=x540 and x550")
            }
            Self::SemaphoreLeft if !id.has_phy() => {
                Err("semaphore-left belongs to id=x540 and x550: others lose theirs in a reset")
            }
            Self::FirmwareHolds { .. } if id.is_virtual() => {
                Err("firmware-holds belongs to cards, not to virtual functions")
            }
            Self::FirmwareVeto if id.is_virtual() => Err("firmware-veto belongs to cards, not to virtual functions"),
            Self::FirmwareSilent if id != DeviceId::X550 => Err("firmware-silent belongs to id=x550"),
            Self::AnStuck if !matches!(id, DeviceId::Cx4 | DeviceId::SfpPlus) => {
                Err("an-stuck belongs to id=10f9 and 10fb")
            }
            Self::CounterStuck { .. } | Self::EepromFlip { .. } if id.is_virtual() => {
                Err("counter-stuck and eeprom-flip belong to cards, not to virtual functions")
            }
            Self::AnalogEndless if id != DeviceId::SfpPlus => Err("analog-endless belongs to id=10fb"),
            _ if self.is_of_pf() && !id.is_virtual() => {
                Err("faults of the physical function belong to virtual functions: id=10ed, 1515 or 1565")
            }
            _ => Ok(()),
        }
    }

    fn is_of_pf(self) -> bool {
        self.to_string().starts_with("pf-")
    }
}

impl FromStr for Fault {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let bad = || Error::BadValue { key: "fault", value: text.to_owned(), allowed: NAMES.to_owned() };
        let (name, number) = match text.split_once(':') {
            Some((name, number)) => (name, Some(number)),
            None => (text, None),
        };
        let or = |default: u32| number.map_or(Ok(default), |n| n.parse().map_err(|_| bad()));
        let at_least_1 = |default: u32| or(default).and_then(|n| if n == 0 { Err(bad()) } else { Ok(n) });
        let below = |default: u32, end: u8| match u8::try_from(or(default)?) {
            Ok(number) if number < end => Ok(number),
            _ => Err(bad()),
        };
        let fault = match name {
            "removal" => Self::Removal { after_reads: or(0)?.into() },
            "rx-length-zero" => Self::RxLengthZero { every: at_least_1(1)? },
            "rx-length-over" => Self::RxLengthOver { length: or(65535)?.try_into().map_err(|_| bad())? },
            "rx-error-bits" => Self::RxErrorBits { every: at_least_1(1)? },
            "slow-reset" => Self::SlowReset { settle_ms: at_least_1(40)? },
            "pf-silent" => Self::PfSilent { after: or(0)? },
            "pf-reset" => pf_reset(number.unwrap_or("0")).ok_or_else(bad)?,
            "pf-flood" => Self::PfFlood { period: at_least_1(100)? },
            "link-flap" => Self::LinkFlap { period: at_least_1(1000)? },
            "firmware-holds" => {
                Self::FirmwareHolds { part: named(&SharedPart::NAMES, number.unwrap_or("mac")).ok_or_else(bad)? }
            }
            "counter-stuck" => {
                Self::CounterStuck { counter: named(&Counter::NAMES, number.unwrap_or("gprc")).ok_or_else(bad)? }
            }
            "reta-stuck" => Self::RetaStuck { queue: below(0, 128)? },
            "interrupt-lost" => Self::InterruptLost { vector: below(0, 64)? },
            "interrupt-storm" => Self::InterruptStorm { vector: below(0, 64)? },
            "eeprom-flip" => {
                let word = or(63)?.try_into().map_err(|_| bad())?;
                if word >= 1024 {
                    return Err(bad());
                }
                Self::EepromFlip { word }
            }
            _ if number.is_some() => return Err(bad()),
            "stuck-reset" => Self::StuckReset,
            "stuck-gio" => Self::StuckGio,
            "an-stuck" => Self::AnStuck,
            "semaphore-left" => Self::SemaphoreLeft,
            "firmware-veto" => Self::FirmwareVeto,
            "firmware-silent" => Self::FirmwareSilent,
            "phy-asleep" => Self::PhyAsleep,
            "phy-silent" => Self::PhySilent,
            "phy-stuck" => Self::PhyStuck,
            "rx-no-eop" => Self::RxNoEop,
            "rx-out-of-order" => Self::RxOutOfOrder,
            "tx-frozen" => Self::TxFrozen,
            "tx-out-of-order" => Self::TxOutOfOrder,
            "no-dd" => Self::TxNoDd,
            "analog-endless" => Self::AnalogEndless,
            "pf-refuses" => Self::PfRefuses,
            "pf-gone" => Self::PfGone,
            "pf-garbage" => Self::PfGarbage,
            _ => return Err(bad()),
        };
        Ok(fault)
    }
}

/// What stands behind `pf-reset:`.
fn pf_reset(text: &str) -> Option<Fault> {
    let Some((at, wanted)) = text.split_once(':') else {
        return Some(Fault::PfReset { at: text.parse().ok()?, phase: MailboxPhase::default() });
    };
    let at = at.parse().ok().filter(|at| *at > 0)?;
    let phase = MailboxPhase::ALL.into_iter().find(|phase| phase.name() == wanted)?;
    Some(Fault::PfReset { at, phase })
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StuckReset => f.write_str("stuck-reset"),
            Self::StuckGio => f.write_str("stuck-gio"),
            Self::Removal { after_reads } => write!(f, "removal:{after_reads}"),
            Self::RxLengthZero { every } => write!(f, "rx-length-zero:{every}"),
            Self::RxLengthOver { length } => write!(f, "rx-length-over:{length}"),
            Self::AnStuck => f.write_str("an-stuck"),
            Self::FirmwareHolds { part } => write!(f, "firmware-holds:{}", name_of(&SharedPart::NAMES, part)),
            Self::SemaphoreLeft => f.write_str("semaphore-left"),
            Self::FirmwareVeto => f.write_str("firmware-veto"),
            Self::FirmwareSilent => f.write_str("firmware-silent"),
            Self::PhyAsleep => f.write_str("phy-asleep"),
            Self::PhySilent => f.write_str("phy-silent"),
            Self::PhyStuck => f.write_str("phy-stuck"),
            Self::RxNoEop => f.write_str("rx-no-eop"),
            Self::RxOutOfOrder => f.write_str("rx-out-of-order"),
            Self::RxErrorBits { every } => write!(f, "rx-error-bits:{every}"),
            Self::TxFrozen => f.write_str("tx-frozen"),
            Self::TxOutOfOrder => f.write_str("tx-out-of-order"),
            Self::TxNoDd => f.write_str("no-dd"),
            Self::RetaStuck { queue } => write!(f, "reta-stuck:{queue}"),
            Self::InterruptLost { vector } => write!(f, "interrupt-lost:{vector}"),
            Self::InterruptStorm { vector } => write!(f, "interrupt-storm:{vector}"),
            Self::CounterStuck { counter } => write!(f, "counter-stuck:{}", name_of(&Counter::NAMES, counter)),
            Self::AnalogEndless => f.write_str("analog-endless"),
            Self::EepromFlip { word } => write!(f, "eeprom-flip:{word}"),
            Self::SlowReset { settle_ms } => write!(f, "slow-reset:{settle_ms}"),
            Self::PfSilent { after } => write!(f, "pf-silent:{after}"),
            Self::PfRefuses => f.write_str("pf-refuses"),
            Self::PfReset { at, phase: MailboxPhase::Taken } => write!(f, "pf-reset:{at}"),
            Self::PfReset { at, phase } => write!(f, "pf-reset:{at}:{}", phase.name()),
            Self::PfGone => f.write_str("pf-gone"),
            Self::PfFlood { period } => write!(f, "pf-flood:{period}"),
            Self::PfGarbage => f.write_str("pf-garbage"),
            Self::LinkFlap { period } => write!(f, "link-flap:{period}"),
        }
    }
}

/// The faults in force.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fault of its own")]
pub(crate) struct Faults {
    pub(crate) stuck_reset: bool,
    pub(crate) stuck_gio: bool,
    pub(crate) an_stuck: bool,
    /// Bits of SW_FW_SYNC that firmware keeps.
    pub(crate) firmware_holds: u32,
    pub(crate) firmware_veto: bool,
    pub(crate) firmware_silent: bool,
    pub(crate) phy_asleep: bool,
    pub(crate) phy_silent: bool,
    pub(crate) phy_stuck: bool,
    pub(crate) removal: Option<u64>,
    pub(crate) link_flap: Option<u32>,
    pub(crate) settle: Option<Duration>,
    pub(crate) counter_stuck: Option<Counter>,
    pub(crate) rx: RxFaults,
    pub(crate) tx: TxFaults,
    pub(crate) pf: PfFaults,
}

/// Faults of the physical function behind a virtual one.
#[derive(Debug, Default)]
pub(crate) struct PfFaults {
    silent: Option<u32>,
    reset: Option<(u32, MailboxPhase)>,
    pub(crate) refuses: bool,
    pub(crate) gone: bool,
    pub(crate) flood: Option<u32>,
    pub(crate) garbage: bool,
}

impl PfFaults {
    /// Whether it leaves the next message alone, after so many.
    pub(crate) fn is_silent(&self, messages: u32) -> bool {
        self.silent.is_some_and(|after| messages >= after)
    }

    /// Whether it resets in this phase of message `number`; with 0, at once. It does so once.
    pub(crate) fn resets_at(&mut self, number: u32, phase: MailboxPhase) -> bool {
        self.reset.take_if(|(at, when)| *at == number && (number == 0 || *when == phase)).is_some()
    }
}

/// Faults of receive write-back.
#[derive(Debug, Default)]
pub(crate) struct RxFaults {
    /// Whether any is in force.
    pub(crate) any: bool,
    length_zero: Option<u32>,
    length_over: Option<u16>,
    no_eop: bool,
    pub(crate) out_of_order: bool,
    error_bits: Option<u32>,
    frames: u32,
    /// The queue of all frames that have a hash.
    pub(crate) queue: Option<u8>,
}

/// Faults of transmission.
#[derive(Debug, Default)]
pub(crate) struct TxFaults {
    pub(crate) frozen: bool,
    pub(crate) out_of_order: bool,
    pub(crate) no_dd: bool,
}

impl Faults {
    pub(crate) fn set(&mut self, fault: Fault) {
        match fault {
            Fault::StuckReset => self.stuck_reset = true,
            Fault::StuckGio => self.stuck_gio = true,
            Fault::AnStuck => self.an_stuck = true,
            Fault::FirmwareHolds { part } => self.firmware_holds |= part.bit(),
            // They have happened.
            Fault::SemaphoreLeft | Fault::EepromFlip { .. } | Fault::AnalogEndless => {}
            // The part of interrupts keeps them.
            Fault::InterruptLost { .. } | Fault::InterruptStorm { .. } => {}
            Fault::RetaStuck { queue } => self.rx.queue = Some(queue),
            Fault::CounterStuck { counter } => self.counter_stuck = Some(counter),
            Fault::FirmwareVeto => self.firmware_veto = true,
            Fault::FirmwareSilent => self.firmware_silent = true,
            Fault::PhyAsleep => self.phy_asleep = true,
            Fault::PhySilent => self.phy_silent = true,
            Fault::PhyStuck => self.phy_stuck = true,
            Fault::Removal { after_reads } => self.removal = Some(after_reads),
            Fault::SlowReset { settle_ms } => self.settle = Some(Duration::from_millis(settle_ms.max(1).into())),
            Fault::PfSilent { after } => self.pf.silent = Some(after),
            Fault::PfReset { at, phase } => self.pf.reset = Some((at, phase)),
            Fault::PfRefuses => self.pf.refuses = true,
            Fault::PfGone => self.pf.gone = true,
            Fault::PfFlood { period } => self.pf.flood = Some(period.max(1)),
            Fault::PfGarbage => self.pf.garbage = true,
            Fault::LinkFlap { period } => self.link_flap = Some(period.max(1)),
            Fault::RxLengthZero { every } => self.rx.length_zero = Some(every.max(1)),
            Fault::RxLengthOver { length } => self.rx.length_over = Some(length),
            Fault::RxErrorBits { every } => self.rx.error_bits = Some(every.max(1)),
            Fault::RxNoEop => self.rx.no_eop = true,
            Fault::RxOutOfOrder => self.rx.out_of_order = true,
            Fault::TxFrozen => self.tx.frozen = true,
            Fault::TxOutOfOrder => self.tx.out_of_order = true,
            Fault::TxNoDd => self.tx.no_dd = true,
        }
        self.rx.any |= self.rx.no_eop
            || self.rx.out_of_order
            || self.rx.length_zero.is_some()
            || self.rx.length_over.is_some()
            || self.rx.error_bits.is_some();
    }
}

impl RxFaults {
    /// Spoils quadword 1 of an advanced write-back (status and errors 31:0, length 47:32) of one descriptor.
    pub(crate) fn spoil(&mut self, mut high: u64, eop: bool) -> u64 {
        const LENGTH: u64 = 0xFFFF << 32;
        self.frames = self.frames.wrapping_add(u32::from(eop));
        let due = |every: Option<u32>| every.is_some_and(|n| self.frames.is_multiple_of(n));
        if due(self.length_zero) {
            high &= !LENGTH;
        }
        if let Some(length) = self.length_over {
            high = (high & !LENGTH) | (u64::from(length) << 32);
        }
        if self.no_eop {
            high &= !2;
        }
        if due(self.error_bits) {
            high |= 1 << 29;
        }
        high
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_read_back_as_written() {
        for text in [
            "stuck-reset",
            "stuck-gio",
            "slow-reset:9",
            "an-stuck",
            "firmware-holds:eep",
            "firmware-holds:phy",
            "firmware-holds:mac",
            "semaphore-left",
            "firmware-veto",
            "firmware-silent",
            "phy-asleep",
            "phy-silent",
            "phy-stuck",
            "removal:7",
            "rx-length-zero:3",
            "rx-length-over:4000",
            "rx-no-eop",
        ]
        .into_iter()
        .chain(["rx-out-of-order", "rx-error-bits:2", "tx-frozen", "tx-out-of-order", "no-dd", "link-flap:5"])
        .chain(["reta-stuck:3", "interrupt-lost:7", "interrupt-storm:63", "eeprom-flip:18", "analog-endless"])
        .chain(["counter-stuck:gprc", "counter-stuck:gptc", "counter-stuck:gorc", "counter-stuck:gotc"])
        .chain(["pf-silent:2", "pf-refuses", "pf-reset:3", "pf-gone", "pf-flood:9", "pf-garbage"])
        .chain(["pf-reset:1:sent", "pf-reset:2:answered"])
        {
            assert_eq!(text.parse::<Fault>().unwrap().to_string(), text);
        }
        assert_eq!("rx-length-over".parse::<Fault>().unwrap(), Fault::RxLengthOver { length: 65535 });
        let taken = |at| Fault::PfReset { at, phase: MailboxPhase::Taken };
        assert_eq!(["pf-reset", "pf-reset:2:taken"].map(|text| text.parse::<Fault>().unwrap()), [taken(0), taken(2)]);
        assert_eq!("firmware-holds".parse::<Fault>().unwrap(), Fault::FirmwareHolds { part: SharedPart::Mac });
        for text in [
            "",
            "gremlins",
            "firmware-holds:all",
            "tx-frozen:3",
            "link-flap:0",
            "slow-reset:0",
            "rx-length-over:65536",
            "removal:-1",
            "reta-stuck:128",
            "interrupt-lost:64",
            "interrupt-storm:256",
            "eeprom-flip:1024",
            "counter-stuck:mpc",
            "pf-reset:sent",
            "pf-reset:0:sent",
            "pf-reset:1:read",
        ] {
            let message = text.parse::<Fault>().unwrap_err().to_string();
            assert!(message.contains("link-flap[:steps]"), "{message}");
        }
    }
}
