//! Identification of PCI functions.

use crate::drivers::Driver;
use device::PciIds;

/// Returns the name of a device that there is a driver for.
///
/// # Errors
///
/// For any other device, a short description of what it is, as far as known.
///
/// ```
/// let ids = device::PciIds { vendor: 0x8086, device: 0x10fb, ..Default::default() };
/// assert!(nic::identify(ids).is_ok());
/// let ids = device::PciIds { vendor: 0x1af4, device: 0x1041, ..Default::default() };
/// assert_eq!(nic::identify(ids).unwrap(), "modern virtio-net");
/// ```
pub fn identify(ids: PciIds) -> Result<&'static str, String> {
    Driver::of(ids).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn what(vendor: u16, device: u16) -> Result<&'static str, String> {
        identify(PciIds { vendor, device, ..PciIds::default() })
    }

    #[test]
    fn network_devices_that_there_is_a_driver_for() {
        assert_eq!(what(0x1af4, 0x1000).unwrap(), "transitional virtio-net");
        assert_eq!(what(0x1af4, 0x1041).unwrap(), "modern virtio-net");
        assert!(what(0x8086, 0x10fb).unwrap().contains("82599"));
        assert_eq!(
            [0x10c9, 0x1521].map(|device| what(0x8086, device).unwrap()),
            ["82576 1000BASE-T", "I350 1000BASE-T"]
        );
        assert_eq!(
            [0x10ed, 0x1515, 0x1565].map(|device| what(0x8086, device).unwrap()),
            ["82599 virtual function", "X540 virtual function", "X550 virtual function"]
        );
    }

    #[test]
    fn others_are_refused_in_one_line() {
        for (device, name) in [(0x1001, "1af4:1001"), (0x1042, "1af4:1042"), (0x1009, "1af4:1009")] {
            let text = what(0x1af4, device).unwrap_err();
            assert_eq!(text, format!("{name} is a virtio device, but not a network device"));
        }
        assert_eq!(
            what(0x8086, 0x1522).unwrap_err(),
            "8086:1522 is an I350 without its PHY for twisted pair: not supported"
        );
        assert_eq!(what(0x8086, 0x10ca).unwrap_err(), "8086:10ca is an 82576 virtual function: not supported");
        assert!(what(0x8086, 0x1572).unwrap_err().contains("not an 82599-family NIC"));
    }
}
