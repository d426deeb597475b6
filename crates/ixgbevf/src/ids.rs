//! Which virtual functions this driver takes.

use crate::{Error, Result};
use device::PciIds;

/// The MAC generation of the card. It determines who hashes, and how the link is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MacType {
    /// 82599: one hash key and table for all functions.
    Mac82599,
    /// X540: as the 82599.
    X540,
    /// X550: a hash key and a table for each function.
    X550,
}

/// A virtual function that this driver supports.
///
/// ```
/// use ixgbevf::{MacType, Model};
///
/// let ids = device::PciIds { vendor: 0x8086, device: 0x1515, ..Default::default() };
/// assert_eq!(Model::identify(ids)?.mac, MacType::X540);
///
/// let pf = device::PciIds { vendor: 0x8086, device: 0x1528, ..Default::default() };
/// assert!(Model::identify(pf).is_err());
/// # Ok::<(), ixgbevf::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Model {
    /// MAC generation.
    pub mac: MacType,
    /// Name of the chip.
    pub name: &'static str,
}

impl Model {
    /// Returns the model with these ids.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownDevice`] for a device that is not supported.
    pub fn identify(ids: PciIds) -> Result<Self> {
        let what = "no virtual function of an 82599, X540 or X550";
        Self::of(ids).ok_or_else(|| Error::UnknownDevice { ids, what: what.into() })
    }

    pub(crate) fn of(ids: PciIds) -> Option<Self> {
        let (mac, name) = match (ids.vendor, ids.device) {
            (INTEL, 0x10ED) => (MacType::Mac82599, "82599 virtual function"),
            (INTEL, 0x1515) => (MacType::X540, "X540 virtual function"),
            (INTEL, 0x1565) => (MacType::X550, "X550 virtual function"),
            _ => return None,
        };
        Some(Self { mac, name })
    }
}

const INTEL: u16 = 0x8086;
