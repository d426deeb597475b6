//! Which devices this driver takes, and by what name it refuses the others.

use crate::{Error, Result};
use device::PciIds;
use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use MacType::{Mac82599, X540, X550};
use Media::{Backplane, Copper, Cx4, Fibre};

/// The MAC generation. It determines buffer sizes, semaphores, EEPROM access and the size of the RSS table.
///
/// ```
/// use ixgbe::MacType;
///
/// assert_eq!((MacType::X540.rss_queues(), MacType::X550.rss_queues()), (16, 64));
/// assert_eq!((MacType::X540.reta_entries(), MacType::X550.reta_entries()), (128, 512));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MacType {
    /// 82599 (X520 boards).
    Mac82599,
    /// X540.
    X540,
    /// X550 (the discrete part).
    X550,
}

impl MacType {
    /// Returns the size of the receive packet buffer in KiB (RXPBSIZE; 82599 datasheet 8.2.3.8, X550 datasheet 8.2.2.9.12).
    #[must_use]
    pub const fn receive_buffer_kib(self) -> u32 {
        match self {
            Self::Mac82599 => 512,
            Self::X540 | Self::X550 => 384,
        }
    }

    /// Returns the time between a reset and the next access: 4.6.3.2 of the 82599's datasheet asks for 10 ms at least, and all
    /// drivers of its vendor wait for 50, which the EEPROM and an external PHY take; 100 on X540 and X550, whose PHY is on the chip.
    pub(crate) const fn settle(self) -> Duration {
        match self {
            Self::Mac82599 => Duration::from_millis(50),
            Self::X540 | Self::X550 => Duration::from_millis(100),
        }
    }

    /// Returns the number of entries of the RSS redirection table.
    #[must_use]
    pub const fn reta_entries(self) -> u16 {
        match self {
            Self::Mac82599 | Self::X540 => 128,
            Self::X550 => 512,
        }
    }

    /// Returns how many queues an entry of the redirection table can select from: it has 4 bits, on X550 6.
    #[must_use]
    pub const fn rss_queues(self) -> u16 {
        match self {
            Self::Mac82599 | Self::X540 => 16,
            Self::X550 => 64,
        }
    }
}

impl fmt::Display for MacType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mac82599 => "82599",
            Self::X540 => "X540",
            Self::X550 => "X550",
        })
    }
}

/// The medium that the MAC is connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Media {
    /// SFP+ or QSFP+ cage, by the serial interface (SFI).
    Fibre,
    /// CX4 connector.
    Cx4,
    /// KX4, KX, KR or XAUI; the EEPROM says which.
    Backplane,
    /// Twisted pair, by a PHY that negotiates by itself.
    Copper,
}

/// A device that this driver supports.
///
/// ```
/// use ixgbe::{MacType, Media, Model};
///
/// let ids = device::PciIds { vendor: 0x8086, device: 0x10FB, ..Default::default() };
/// let model = Model::identify(ids)?;
/// assert_eq!((model.mac, model.media), (MacType::Mac82599, Media::Fibre));
///
/// let vf = device::PciIds { vendor: 0x8086, device: 0x10ED, ..Default::default() };
/// assert_eq!(
///     Model::identify(vf).unwrap_err().to_string(),
///     "8086:10ed is an 82599 virtual function: use the ixgbevf driver"
/// );
/// # Ok::<(), ixgbe::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Model {
    /// MAC generation.
    pub mac: MacType,
    /// The medium it is connected to.
    pub media: Media,
    /// Whether it has an SFP+ cage whose module is read: not on QSFP+, where four functions share the bus to one module.
    pub sfp_cage: bool,
    /// Name of the chip and its medium.
    pub name: &'static str,
}

impl Model {
    /// Returns the model with these ids.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownDevice`], which names the device, for a device that is not supported.
    pub fn identify(ids: PciIds) -> Result<Self> {
        Self::of(ids).ok_or_else(|| Error::UnknownDevice { ids, what: refusal(ids) })
    }

    pub(crate) fn of(ids: PciIds) -> Option<Self> {
        let known = |known: &&(u16, MacType, Media, &str)| ids.vendor == INTEL && ids.device == known.0;
        SUPPORTED.iter().find(known).map(|&(device, mac, media, name)| {
            let sfp_cage = media == Fibre && device != QSFP;
            Self { mac, media, sfp_cage, name }
        })
    }
}

/// What a device that is not supported is.
fn refusal(ids: PciIds) -> String {
    if ids.vendor != INTEL {
        return match ids.vendor {
            0x1AF4 => "a virtio device: use the virtio driver".to_owned(),
            0x15B3 => format!("an NVIDIA (Mellanox) device: {OTHER}"),
            0x14E4 => format!("a Broadcom device: {OTHER}"),
            _ => format!("not an Intel device: {OTHER}"),
        };
    }
    match NEIGHBOURS.iter().find(|(ranges, ..)| ranges.iter().any(|range| range.contains(&ids.device))) {
        Some((_, name, reason)) => format!("{name}: {reason}"),
        None if ids.class >> 8 == 0x0200 => format!("an unknown Intel NIC: {OTHER}"),
        None => format!("an unknown Intel device: {OTHER}"),
    }
}

const INTEL: u16 = 0x8086;
const QSFP: u16 = 0x1558;

const SUPPORTED: &[(u16, MacType, Media, &str)] = &[
    (0x10F7, Mac82599, Backplane, "82599 KX4"),
    (0x10F8, Mac82599, Backplane, "82599 combined backplane"),
    (0x10F9, Mac82599, Cx4, "82599 CX4"),
    (0x10FB, Mac82599, Fibre, "82599 SFP+ (X520)"),
    (0x10FC, Mac82599, Backplane, "82599 XAUI"),
    (0x1507, Mac82599, Fibre, "82599 SFP+, embedded"),
    (0x1514, Mac82599, Backplane, "82599 KX4 mezzanine"),
    (0x1517, Mac82599, Backplane, "82599 KR"),
    (0x151C, Mac82599, Copper, "82599 10GBASE-T"),
    (0x1529, Mac82599, Fibre, "82599 SFP+ FCoE"),
    (0x152A, Mac82599, Backplane, "82599 backplane FCoE"),
    (0x154A, Mac82599, Fibre, "82599 quad SFP+ (X520-4)"),
    (0x154D, Mac82599, Fibre, "82599 SFP+ (X520-2)"),
    (0x154F, Mac82599, Fibre, "82599 SFP+, low power"),
    (0x1557, Mac82599, Fibre, "82599EN SFP+ (X520-1)"),
    (QSFP, Mac82599, Fibre, "82599 QSFP+ (X520-Q1)"),
    (0x1528, X540, Copper, "X540-T2"),
    (0x1560, X540, Copper, "X540-T1"),
    (0x1563, X550, Copper, "X550-T2"),
    (0x15D1, X550, Copper, "X550-T1"),
];

const VIRTUAL: &str = "use the ixgbevf driver";
const NOT_YET: &str = "not supported yet";
const OLDER: &str = "its registers differ, not supported";
const GIGABIT: &str = "use the igb driver";
const REFUSED: &str = "not supported";
const OTHER: &str = "not an 82599-family NIC";

/// Devices that are often found next to, or taken for, the supported ones: ranges of device ids, name, and why they are
/// refused. The first match counts.
const NEIGHBOURS: &[(&[RangeInclusive<u16>], &str, &str)] = &[
    (&[0x10ED..=0x10ED], "an 82599 virtual function", VIRTUAL),
    (&[0x152E..=0x152E], "an 82599 virtual function (Hyper-V)", REFUSED),
    (&[0x1515..=0x1515], "an X540 virtual function", VIRTUAL),
    (&[0x1530..=0x1530], "an X540 virtual function (Hyper-V)", REFUSED),
    (&[0x1564..=0x1564], "an X550 virtual function (Hyper-V)", REFUSED),
    (&[0x1565..=0x1565], "an X550 virtual function", VIRTUAL),
    (&[0x15A8..=0x15A9], "an X550EM_x virtual function", NOT_YET),
    (&[0x15B4..=0x15B4], "an X550EM_a virtual function (Hyper-V)", REFUSED),
    (&[0x15C5..=0x15C5], "an X550EM_a virtual function", NOT_YET),
    (&[0x57AD..=0x57AD], "an E610 virtual function", NOT_YET),
    (&[0x15AA..=0x15B0], "an X550EM_x (Xeon D)", NOT_YET),
    (&[0x15C2..=0x15CE, 0x15E4..=0x15E5], "an X550EM_a (Atom C3000)", NOT_YET),
    (&[0x57AE..=0x57B2], "an E610", NOT_YET),
    (
        &[
            0x10B6..=0x10B6,
            0x10C6..=0x10C8,
            0x10DB..=0x10DD,
            0x10E1..=0x10E1,
            0x10EC..=0x10EC,
            0x10F1..=0x10F4,
            0x1508..=0x1508,
            0x150B..=0x150B,
        ],
        "an 82598",
        OLDER,
    ),
    (&[0x154C..=0x154C, 0x1571..=0x1571], "an Intel 700 series virtual function (iavf)", OTHER),
    (&[0x1572..=0x1572, 0x1585..=0x1586, 0x1589..=0x1589, 0x15FF..=0x15FF], "an Intel X710 (i40e)", OTHER),
    (&[0x1580..=0x1584, 0x1587..=0x1588], "an Intel XL710 (i40e)", OTHER),
    (&[0x158A..=0x158B], "an Intel XXV710 (i40e)", OTHER),
    (&[0x37CD..=0x37CD], "an Intel X722 virtual function (iavf)", OTHER),
    (&[0x37CE..=0x37D3], "an Intel X722 (i40e)", OTHER),
    (&[0x1591..=0x159B], "an Intel E810 (ice)", OTHER),
    (&[0x1889..=0x1889], "an Intel adaptive virtual function (iavf)", OTHER),
    (&[0x10C9..=0x10C9], "an 82576", GIGABIT),
    (&[0x1521..=0x1521], "an I350", GIGABIT),
    (
        &[0x10E6..=0x10E8, 0x150A..=0x150A, 0x150D..=0x150D, 0x1518..=0x1518, 0x1526..=0x1526],
        "an 82576 that is not the one with two ports for twisted pair",
        REFUSED,
    ),
    (&[0x1522..=0x1524, 0x1546..=0x1546], "an I350 without its PHY for twisted pair", REFUSED),
    (&[0x10CA..=0x10CA, 0x152D..=0x152D], "an 82576 virtual function", REFUSED),
    (&[0x1520..=0x1520, 0x152F..=0x152F], "an I350 virtual function", REFUSED),
    (&[0x1531..=0x1531, 0x1533..=0x1538, 0x157B..=0x157C], "an I210", REFUSED),
    (&[0x1539..=0x1539], "an I211", REFUSED),
    (&[0x15F2..=0x15F3], "an Intel I225 (igc)", OTHER),
    (&[0x125B..=0x125C], "an Intel I226 (igc)", OTHER),
    (&[0x100E..=0x100F], "an Intel 82540EM or 82545EM (e1000)", OTHER),
    (&[0x10D3..=0x10D3], "an Intel 82574L (e1000e)", OTHER),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(vendor: u16, device: u16) -> PciIds {
        PciIds { vendor, device, class: 0x02_0000, revision: 1 }
    }

    #[test]
    fn takes_every_part_of_the_three_families() {
        let mac = |device| Model::identify(ids(0x8086, device)).map(|model| model.mac).ok();
        let parts_82599 = [
            0x10F7, 0x1514, 0x1517, 0x10F8, 0x154F, 0x10F9, 0x10FB, 0x152A, 0x1529, 0x1507, 0x154D, 0x154A, 0x1558,
            0x1557, 0x10FC, 0x151C,
        ];
        assert!(parts_82599.iter().all(|&device| mac(device) == Some(Mac82599)));
        assert_eq!([0x1528, 0x1560].map(mac), [Some(X540); 2]);
        assert_eq!([0x1563, 0x15D1].map(mac), [Some(X550); 2]);
    }

    #[test]
    fn refuses_the_rest_by_name() {
        let refused = [
            (0x8086, 0x1572, "8086:1572 is an Intel X710 (i40e): not an 82599-family NIC"),
            (0x8086, 0x10C6, "8086:10c6 is an 82598: its registers differ, not supported"),
            (0x8086, 0x57B1, "8086:57b1 is an E610: not supported yet"),
            (0x8086, 0x1515, "8086:1515 is an X540 virtual function: use the ixgbevf driver"),
            (0x8086, 0x1530, "8086:1530 is an X540 virtual function (Hyper-V): not supported"),
            (0x8086, 0x15C5, "8086:15c5 is an X550EM_a virtual function: not supported yet"),
            (0x8086, 0x1522, "8086:1522 is an I350 without its PHY for twisted pair: not supported"),
            (0x8086, 0x1533, "8086:1533 is an I210: not supported"),
            (0x8086, 0x10C9, "8086:10c9 is an 82576: use the igb driver"),
            (0x8086, 0xFFFF, "8086:ffff is an unknown Intel NIC: not an 82599-family NIC"),
            (0x1AF4, 0x1041, "1af4:1041 is a virtio device: use the virtio driver"),
            (0x1022, 0x10FB, "1022:10fb is not an Intel device: not an 82599-family NIC"),
        ];
        for (vendor, device, message) in refused {
            assert_eq!(Model::identify(ids(vendor, device)).unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn no_id_is_both_taken_and_refused() {
        for (device, ..) in SUPPORTED {
            let clash = NEIGHBOURS.iter().find(|(ranges, ..)| ranges.iter().any(|range| range.contains(device)));
            assert!(clash.is_none(), "{device:04x}");
        }
    }
}
