//! Which devices this driver takes.

use crate::{Error, Result};
use device::PciIds;

/// The MAC generation. It determines the number of queues and where interrupts are routed.
///
/// ```
/// assert_eq!((igb::MacType::Mac82576.queues(), igb::MacType::I350.queues()), (16, 8));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MacType {
    /// 82576.
    Mac82576,
    /// I350.
    I350,
}

impl MacType {
    /// Returns the number of queues each way, all of which RSS reaches.
    #[must_use]
    pub const fn queues(self) -> u16 {
        match self {
            Self::Mac82576 => 16,
            Self::I350 => 8,
        }
    }

    /// Returns the number of receive address filters.
    pub(crate) const fn receive_addresses(self) -> u32 {
        match self {
            Self::Mac82576 => 24,
            Self::I350 => 32,
        }
    }
}

/// Number of entries of the RSS redirection table.
pub(crate) const RETA_ENTRIES: u16 = 128;

/// A device that this driver supports.
///
/// ```
/// let ids = device::PciIds { vendor: 0x8086, device: 0x10C9, ..Default::default() };
/// assert_eq!(igb::Model::identify(ids)?.mac, igb::MacType::Mac82576);
///
/// let vf = device::PciIds { vendor: 0x8086, device: 0x10CA, ..Default::default() };
/// assert_eq!(igb::Model::identify(vf).unwrap_err().to_string(), "8086:10ca is neither an 82576 nor an I350");
/// # Ok::<(), igb::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Model {
    /// MAC generation.
    pub mac: MacType,
    /// Name of the chip and its medium.
    pub name: &'static str,
}

impl Model {
    /// Returns the model with these ids.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownDevice`] for a device that is not supported.
    pub fn identify(ids: PciIds) -> Result<Self> {
        Self::of(ids).ok_or_else(|| Error::UnknownDevice { ids, what: "neither an 82576 nor an I350".into() })
    }

    pub(crate) fn of(ids: PciIds) -> Option<Self> {
        let (mac, name) = match (ids.vendor, ids.device) {
            (INTEL, 0x10C9) => (MacType::Mac82576, "82576 1000BASE-T"),
            (INTEL, 0x1521) => (MacType::I350, "I350 1000BASE-T"),
            _ => return None,
        };
        Some(Self { mac, name })
    }
}

const INTEL: u16 = 0x8086;
