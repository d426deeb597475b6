//! Ethernet headers (IEEE 802.3, 3.2): destination, source, EtherType; with a VLAN tag (IEEE 802.1Q, 9.3) in front of the EtherType.

use crate::fib::low48;
use std::fmt;

/// Bytes of the header.
pub(crate) const HEADER: usize = 14;
/// Bytes of a VLAN tag.
pub(crate) const TAG: usize = 4;
/// EtherType of IPv4 (RFC 894).
pub(crate) const IPV4: [u8; 2] = wire::ether_type::IPV4.to_be_bytes();
/// EtherType of IPv6 (RFC 2464, section 3).
pub(crate) const IPV6: [u8; 2] = wire::ether_type::IPV6.to_be_bytes();

/// Type of the tag of IEEE 802.1Q.
pub(crate) const VLAN: [u8; 2] = wire::ether_type::VLAN.to_be_bytes();
/// The bits of a tag's last two bytes, as they stand there, that are the number of the VLAN.
pub(crate) const VLAN_MASK: u16 = 0xFFF_u16.to_be();

/// Returns the VLAN of a frame with one tag, 0 to 4095; 0 for one with several tags, one of 802.1ad, or one that is cut off; `None`
/// for one without.
pub(crate) fn vlan(frame: &[u8]) -> Option<u16> {
    use wire::ether_type::{SERVICE_VLAN, VLAN};
    let [high, low, rest @ ..] = frame.get(HEADER - 2..)? else { return None };
    let outer = u16::from_be_bytes([*high, *low]);
    let [tag_high, tag_low, high, low, ..] = rest else { return matches!(outer, VLAN | SERVICE_VLAN).then_some(0) };
    match (outer, u16::from_be_bytes([*high, *low])) {
        (VLAN, VLAN | SERVICE_VLAN) | (SERVICE_VLAN, _) => Some(0),
        (VLAN, _) => Some(u16::from_be_bytes([*tag_high, *tag_low]) & 0xFFF),
        _ => None,
    }
}

/// Returns the tag of a VLAN, with priority 0.
pub(crate) fn tag(vlan: u16) -> [u8; TAG] {
    let ([type_high, type_low], [high, low]) = (wire::ether_type::VLAN.to_be_bytes(), vlan.to_be_bytes());
    [type_high, type_low, high, low]
}

/// An Ethernet address.
///
/// ```
/// use router::MacAddress;
/// let mac: MacAddress = "02:00:00:00:00:0a".parse().unwrap();
/// assert_eq!(mac.0, [2, 0, 0, 0, 0, 10]);
/// assert_eq!(mac.to_string(), "02:00:00:00:00:0a");
/// assert!(!mac.is_group());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    /// Returns whether it is the address of several stations: multicast or broadcast.
    #[must_use]
    pub fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl std::str::FromStr for MacAddress {
    type Err = ();

    /// Six pairs of hexadecimal digits with colons between them.
    fn from_str(text: &str) -> Result<Self, ()> {
        let mut mac = [0; 6];
        let mut pairs = text.split(':');
        for byte in &mut mac {
            let pair = pairs.next().filter(|pair| pair.len() == 2 && !pair.starts_with('+')).ok_or(())?;
            *byte = u8::from_str_radix(pair, 16).map_err(drop)?;
        }
        if pairs.next().is_some() { Err(()) } else { Ok(Self(mac)) }
    }
}

/// A port of the router, or a VLAN on one, as seen from the network.
///
/// ```
/// let interface = router::Interface { mac: [2, 0, 0, 0, 0, 1], promiscuous: false, mtu: 1500 };
/// # let _ = interface;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its MAC address, the source address of the frames it sends.
    pub mac: [u8; 6],
    /// Whether frames for any single station are routed, as replayed captures need. A router on a shared segment must
    /// leave this false: it would send a second time what a switch floods.
    pub promiscuous: bool,
    /// Size in bytes of the longest IP packet that it sends, without any VLAN tag; values above 65,521 count as 65,521.
    pub mtu: u16,
}

/// Which destination addresses an interface takes: those whose bits under the mask are these.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Station {
    mask: u64,
    bits: u64,
}

/// Which frames an interface takes of each family.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stations {
    pub(crate) v4: Station,
    pub(crate) v6: Station,
}

impl Stations {
    /// The same of both families.
    pub(crate) const fn both(station: Station) -> Self {
        Self { v4: station, v6: station }
    }
}

impl Station {
    /// All bits of an address that is the first six of eight bytes.
    const ADDRESS: u64 = u64::from_le_bytes([0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0]);
    /// The bit that tells groups from single stations, of the first byte.
    const GROUP: u64 = 1;

    /// Takes no frame: no address has bits beyond its six bytes.
    pub(crate) const NOBODY: Self = Self { mask: Self::ADDRESS, bits: u64::MAX };

    /// Takes any frame.
    pub(crate) const ANYBODY: Self = Self { mask: 0, bits: 0 };

    pub(crate) fn new(interface: &Interface) -> Self {
        Self::of(low48(interface.mac), interface.promiscuous)
    }

    /// That of an interface whose address these lower 48 bits are, first byte lowest.
    #[inline(always)]
    pub(crate) fn of(mac: u64, promiscuous: bool) -> Self {
        if promiscuous { Self { mask: Self::GROUP, bits: 0 } } else { Self { mask: Self::ADDRESS, bits: mac } }
    }

    /// Whether a frame that begins with these bytes is for this interface alone.
    #[inline(always)]
    pub(crate) fn takes(self, start: [u8; 8]) -> bool {
        u64::from_le_bytes(start) & self.mask == self.bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_six_pairs_are_an_address() {
        for text in
            ["", "02:00:00:00:00", "02:00:00:00:00:00:00", "2:0:0:0:0:1", "02-00-00-00-00-01", "0x:00:00:00:00:01"]
        {
            assert!(text.parse::<MacAddress>().is_err(), "{text}");
        }
        assert!("+2:00:00:00:00:01".parse::<MacAddress>().is_err());
        assert_eq!("FF:ff:00:01:02:03".parse(), Ok(MacAddress([255, 255, 0, 1, 2, 3])));
    }
}
