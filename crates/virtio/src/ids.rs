//! Identification of virtio-net devices on PCI.

use device::PciIds;

/// How a virtio-net device presents itself on PCI (Virtio 1.2, section 4.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Device id 0x1000: supports the legacy interface, and usually also the modern one.
    Transitional,
    /// Device id 0x1041: supports the modern interface only.
    Modern,
}

/// Returns the kind of virtio-net device with these ids; `None` for any other device.
///
/// ```
/// use device::PciIds;
/// use virtio::{Kind, identify};
///
/// let ids = PciIds { vendor: 0x1af4, device: 0x1041, ..PciIds::default() };
/// assert_eq!(identify(ids), Some(Kind::Modern));
/// ```
#[must_use]
pub fn identify(ids: PciIds) -> Option<Kind> {
    match (ids.vendor, ids.device) {
        (0x1af4, 0x1000) => Some(Kind::Transitional),
        (0x1af4, 0x1041) => Some(Kind::Modern),
        _ => None,
    }
}

impl Kind {
    /// Returns its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Transitional => "transitional virtio-net",
            Self::Modern => "modern virtio-net",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_network_devices_are_identified() {
        let ids = |vendor, device| PciIds { vendor, device, ..PciIds::default() };
        for revision in [0, 1, 0xff] {
            let ids = |device| PciIds { revision, ..ids(0x1af4, device) };
            assert_eq!(identify(ids(0x1000)), Some(Kind::Transitional));
            assert_eq!(identify(ids(0x1041)), Some(Kind::Modern));
        }
        for other in [ids(0x1af4, 0x1001), ids(0x1af4, 0x1042), ids(0x8086, 0x1000), ids(0x8086, 0x10fb)] {
            assert_eq!(identify(other), None, "{other}");
        }
    }
}
