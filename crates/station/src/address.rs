//! Addresses of an interface.

use crate::Error;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// An address of an interface, and the length of its prefix: which other addresses are on the same link.
///
/// ```
/// use station::InterfaceAddress;
///
/// let address: InterfaceAddress = "192.0.2.1/24".parse()?;
/// assert!(address.is_on_link("192.0.2.200".parse()?) && !address.is_on_link("192.0.3.1".parse()?));
/// # Ok::<(), station::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    ip: IpAddr,
    prefix_len: u8,
}

impl InterfaceAddress {
    /// Creates one.
    ///
    /// # Errors
    ///
    /// [`Error::Address`] if the prefix is longer than the address, or if no host can have the address.
    pub fn new(ip: IpAddr, prefix_len: u8) -> Result<Self, Error> {
        let address = Self { ip, prefix_len };
        let most = if ip.is_ipv4() { 32 } else { 128 };
        if prefix_len > most {
            return Err(wrong(format!("{ip}/{prefix_len}"), "a prefix has at most 32 bits, of IPv6 128"));
        }
        if !is_unicast(ip) || address.is_network_or_broadcast(ip) {
            return Err(wrong(address, "no host can have this address"));
        }
        Ok(address)
    }

    /// Returns the link-local IPv6 address of a MAC address (RFC 4291, appendix A; RFC 2464, section 5).
    #[must_use]
    pub fn link_local(mac: [u8; 6]) -> Self {
        let [a, b, c, d, e, f] = mac;
        let ip = Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f]);
        Self { ip: ip.into(), prefix_len: 64 }
    }

    /// Returns the address.
    #[must_use]
    pub fn ip(&self) -> IpAddr {
        self.ip
    }

    /// Returns the bits of the prefix.
    #[must_use]
    pub fn prefix_len(&self) -> u8 {
        self.prefix_len
    }

    /// Returns whether an address has the same prefix.
    #[must_use]
    pub fn is_on_link(&self, other: IpAddr) -> bool {
        match (self.ip, other) {
            (IpAddr::V4(ours), IpAddr::V4(other)) => (ours.to_bits() ^ other.to_bits()) & self.mask_v4() == 0,
            (IpAddr::V6(ours), IpAddr::V6(other)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix_len)).unwrap_or(0);
                (ours.to_bits() ^ other.to_bits()) & mask == 0
            }
            _ => false,
        }
    }

    /// Returns whether an address on the link is that of the network, or of all its hosts (RFC 1122, 3.2.1.3); prefixes of more than 30
    /// bits have none (RFC 3021).
    #[must_use]
    pub fn is_network_or_broadcast(&self, other: IpAddr) -> bool {
        let IpAddr::V4(address) = other else { return false };
        let host = address.to_bits() & !self.mask_v4();
        self.is_on_link(other) && self.prefix_len <= 30 && (host == 0 || host == !self.mask_v4())
    }

    fn mask_v4(&self) -> u32 {
        u32::MAX.checked_shl(32 - u32::from(self.prefix_len).min(32)).unwrap_or(0)
    }
}

impl fmt::Display for InterfaceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.prefix_len)
    }
}

impl FromStr for InterfaceAddress {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let hint = "write an address and the length of its prefix, such as 192.0.2.1/24";
        let (ip, len) = text.split_once('/').ok_or_else(|| wrong(text, hint))?;
        let is_number = !len.is_empty() && len.bytes().all(|digit| digit.is_ascii_digit());
        let len = len.parse().ok().filter(|_| is_number);
        match (ip.parse(), len) {
            (Ok(ip), Some(len)) => Self::new(ip, len),
            _ => Err(wrong(text, hint)),
        }
    }
}

fn wrong(address: impl fmt::Display, problem: &'static str) -> Error {
    Error::Address { address: address.to_string(), problem }
}

/// Returns whether one host can have an address, and others can send to it: not a group, not all hosts, not none, not a loopback
/// (RFC 1122, 3.2.1.3; RFC 4291, 2.5).
#[must_use]
pub fn is_unicast(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            !(ip.is_multicast() || ip.is_broadcast() || ip.is_loopback() || ip.octets()[0] == 0 || is_class_e(ip))
        }
        IpAddr::V6(ip) => {
            !(ip.is_multicast() || ip.is_unspecified() || ip.is_loopback() || ip.to_ipv4_mapped().is_some())
        }
    }
}

fn is_class_e(ip: Ipv4Addr) -> bool {
    ip.octets()[0] >= 240
}

/// The multicast group that a host with an address is in (RFC 4291, 2.7.1).
pub(crate) fn solicited_node(ip: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = ip.octets();
    Ipv6Addr::from([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c])
}

/// The MAC address of a multicast group (RFC 2464, section 7).
pub(crate) fn group_mac(group: Ipv6Addr) -> [u8; 6] {
    let [.., a, b, c, d] = group.octets();
    [0x33, 0x33, a, b, c, d]
}
