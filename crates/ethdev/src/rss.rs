//! Receive side scaling: which queue a flow goes to (Microsoft's RSS specification; 82599 datasheet 7.1.2.8).
//!
//! The device hashes addresses and ports of a packet with a 40-byte key (Toeplitz), looks the low bits of the hash
//! up in the redirection table, and delivers to the queue found there. [`hash_ipv4`], [`hash_ipv6`] and [`hash_frame`] compute the
//! same hash in software.

use crate::ConfigError;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::BitOr;
use wire::Flow;

/// How flows are spread over receive queues.
///
/// ```
/// use ethdev::{HashTypes, PortConfig, Reta, Rss};
///
/// let mut config = PortConfig::default();
/// config.rx_queues = 4;
/// config.rss.key = Rss::SYMMETRIC_KEY; // both directions of a connection to the same queue
/// config.rss.hash = HashTypes::IPV4 | HashTypes::TCP_IPV4;
/// config.rss.reta = Reta::Table(vec![0, 1, 2, 2]); // queue 2 gets half, queue 3 nothing
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rss {
    /// The hash key. Anyone who knows it can aim all flows at one queue.
    pub key: [u8; 40],
    /// The redirection table, from hash to queue.
    pub reta: Reta,
    /// Which packets are hashed over which fields; a packet whose type is not in the set has hash 0.
    pub hash: HashTypes,
}

impl Rss {
    /// The verification key of the Microsoft RSS specification, the default.
    pub const DEFAULT_KEY: [u8; 40] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca,
        0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b,
        0xbe, 0xac, 0x01, 0xfa,
    ];

    /// A key of period 16 bits, under which a flow and its reverse have the same hash.
    pub const SYMMETRIC_KEY: [u8; 40] = {
        let mut key = [0x6d; 40];
        let mut i = 1;
        while i < key.len() {
            key[i] = 0x5a;
            i += 2;
        }
        key
    };
}

impl Default for Rss {
    fn default() -> Self {
        Self { key: Self::DEFAULT_KEY, reta: Reta::Even, hash: HashTypes::default() }
    }
}

impl Rss {
    /// Returns these settings with the table `reta` instead.
    #[must_use]
    pub fn with_table(&self, reta: &Reta) -> Self {
        Self { reta: reta.clone(), ..self.clone() }
    }

    /// Returns the receive queue, out of `queues`, that a hash leads to by a table of 128 entries.
    #[must_use]
    pub fn queue(&self, hash: u32, queues: u16) -> u8 {
        self.reta.queue(hash % 128, queues)
    }

    /// Checks these settings for `queues` receive queues on a device that reaches `reach` of them by a table of
    /// `entries`.
    ///
    /// # Errors
    ///
    /// If the device does not support them; the error says what it supports.
    pub fn validate(&self, queues: u16, reach: u16, entries: u16) -> Result<(), ConfigError> {
        match &self.reta {
            Reta::Even if queues > reach => Err(ConfigError::new(
                "rx_queues",
                format!(
                    "{queues} receive queues, but RSS of this device reaches {reach}: ask for no more, or give a table"
                ),
            )),
            Reta::Even => Ok(()),
            Reta::Table(_) if entries == 0 => {
                Err(ConfigError::new("rss.reta", "this device has no table; leave it even"))
            }
            Reta::Table(table) if table.is_empty() || table.len() > entries.into() => Err(ConfigError::new(
                "rss.reta",
                format!("{} entries: the table of this device takes 1 to {entries}", table.len()),
            )),
            Reta::Table(table) => match table.iter().find(|&&queue| u16::from(queue) >= queues.min(reach)) {
                Some(queue) => Err(ConfigError::new(
                    "rss.reta",
                    format!(
                        "names queue {queue}: with {queues} receive queues here, 0 to {} can be",
                        queues.min(reach) - 1
                    ),
                )),
                None => Ok(()),
            },
        }
    }
}

/// The redirection table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Reta {
    /// All receive queues in turn.
    #[default]
    Even,
    /// These queues in turn, repeated to fill the device's table (128 entries; X550: 512); from 1 queue to as many as
    /// the table has entries.
    Table(Vec<u8>),
}

impl Reta {
    /// Returns entry `index` of the table, with `queues` receive queues.
    #[must_use]
    pub fn queue(&self, index: u32, queues: u16) -> u8 {
        match self {
            Self::Table(table) if !table.is_empty() => table[index as usize % table.len()],
            _ => u8::try_from(index % u32::from(queues.max(1))).unwrap_or(0),
        }
    }
}

/// A set of packet types to hash; combine with `|`.
///
/// The default is all but the two types with IPv6 extension headers ("ex"). With UDP ports in the hash, a datagram's
/// fragments, which are hashed over addresses only, may overtake whole datagrams of the same flow: leave out the UDP
/// types where that matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashTypes(u16);

impl HashTypes {
    /// All packet types.
    pub const ALL: Self = Self((1 << 9) - 1);
    /// No packet types: every packet goes to the queue in entry 0 of the table.
    pub const NONE: Self = Self(0);
    /// TCP over IPv4: addresses and ports.
    pub const TCP_IPV4: Self = Self(1 << 0);
    /// IPv4: addresses.
    pub const IPV4: Self = Self(1 << 1);
    /// TCP over IPv6 with extension headers: the home address and the routing header are taken into account.
    pub const TCP_IPV6_EX: Self = Self(1 << 2);
    /// IPv6 with extension headers: the home address and the routing header are taken into account.
    pub const IPV6_EX: Self = Self(1 << 3);
    /// IPv6: addresses.
    pub const IPV6: Self = Self(1 << 4);
    /// TCP over IPv6: addresses and ports.
    pub const TCP_IPV6: Self = Self(1 << 5);
    /// UDP over IPv4: addresses and ports.
    pub const UDP_IPV4: Self = Self(1 << 6);
    /// UDP over IPv6: addresses and ports.
    pub const UDP_IPV6: Self = Self(1 << 7);
    /// UDP over IPv6 with extension headers: the home address and the routing header are taken into account.
    pub const UDP_IPV6_EX: Self = Self(1 << 8);

    /// Returns whether all of `types` are in the set.
    #[must_use]
    pub const fn contains(self, types: Self) -> bool {
        self.0 & types.0 == types.0
    }

    /// Returns the set as bits, one for each type, from bit 0 in the order of the constants above.
    #[must_use]
    pub const fn bits(self) -> u16 {
        self.0
    }
}

impl BitOr for HashTypes {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl Default for HashTypes {
    fn default() -> Self {
        Self::IPV4 | Self::TCP_IPV4 | Self::UDP_IPV4 | Self::IPV6 | Self::TCP_IPV6 | Self::UDP_IPV6
    }
}

/// Returns the hash of an IPv4 packet: over the addresses, and over the ports (source, destination) if given.
///
/// ```
/// use ethdev::{Rss, hash_ipv4};
///
/// let (source, destination) = ([66, 9, 149, 187].into(), [161, 142, 100, 80].into());
/// assert_eq!(hash_ipv4(&Rss::DEFAULT_KEY, source, destination, Some((2794, 1766))), 0x51cc_c178);
/// ```
#[must_use]
pub fn hash_ipv4(key: &[u8; 40], source: Ipv4Addr, destination: Ipv4Addr, ports: Option<(u16, u16)>) -> u32 {
    hash(key, &source.octets(), &destination.octets(), ports)
}

/// Returns the hash of an IPv6 packet: over the addresses, and over the ports (source, destination) if given.
///
/// ```
/// use ethdev::{Rss, hash_ipv6};
///
/// let (source, destination) = ("2001:db8::1".parse()?, "2001:db8::2".parse()?);
/// let (there, back) = (Some((1000, 80)), Some((80, 1000)));
/// assert_eq!(
///     hash_ipv6(&Rss::SYMMETRIC_KEY, source, destination, there),
///     hash_ipv6(&Rss::SYMMETRIC_KEY, destination, source, back),
/// );
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[must_use]
pub fn hash_ipv6(key: &[u8; 40], source: Ipv6Addr, destination: Ipv6Addr, ports: Option<(u16, u16)>) -> u32 {
    hash(key, &source.octets(), &destination.octets(), ports)
}

fn hash(key: &[u8; 40], source: &[u8], destination: &[u8], ports: Option<(u16, u16)>) -> u32 {
    let ports = ports.map(|(from, to)| [from.to_be_bytes(), to.to_be_bytes()]);
    let ports = ports.as_ref().map_or(&[][..], |ports| ports.as_flattened());
    toeplitz_of(key, source.iter().chain(destination).chain(ports))
}

/// Returns the Toeplitz hash of `input` (7.1.2.8.1). A key of 40 bytes is enough for 36 bytes of input; further input
/// is hashed as if the key continued with zeros.
#[must_use]
pub fn toeplitz(key: &[u8; 40], input: &[u8]) -> u32 {
    toeplitz_of(key, input.iter())
}

fn toeplitz_of<'a>(key: &[u8; 40], input: impl Iterator<Item = &'a u8>) -> u32 {
    let mut window = u32::from_be_bytes([key[0], key[1], key[2], key[3]]);
    let mut hash = 0;
    for (i, byte) in input.enumerate() {
        let next = key.get(i + 4).copied().unwrap_or(0);
        for bit in (0..8).rev() {
            if byte >> bit & 1 == 1 {
                hash ^= window;
            }
            window = window << 1 | u32::from(next >> bit & 1);
        }
    }
    hash
}

/// Returns the hash of an Ethernet frame, over the fields that `rss` selects for its type: addresses and ports of TCP
/// and UDP in IPv4 and IPv6, also behind VLAN tags; only addresses for fragments and other packets; 0 for a frame that
/// is not an IP packet, is cut off, or is of a type not selected. What follows IPv6 extension headers is not examined.
///
/// ```
/// use ethdev::{Rss, hash_frame};
///
/// assert_eq!(hash_frame(&Rss::default(), &[0; 60]), 0);
/// ```
#[must_use]
pub fn hash_frame(rss: &Rss, frame: &[u8]) -> u32 {
    hash_if_chosen(rss, frame).unwrap_or(0)
}

/// Returns that of [`hash_frame`]; `None` where that is 0 as nothing was hashed.
pub(crate) fn hash_if_chosen(rss: &Rss, frame: &[u8]) -> Option<u32> {
    let Flow { protocol, source, destination, ports } = Flow::of(frame)?;
    let [tcp, udp, other] = match source {
        IpAddr::V4(_) => [HashTypes::TCP_IPV4, HashTypes::UDP_IPV4, HashTypes::IPV4],
        IpAddr::V6(_) => [HashTypes::TCP_IPV6, HashTypes::UDP_IPV6, HashTypes::IPV6],
    };
    let of_protocol = if protocol == wire::protocol::TCP { tcp } else { udp };
    // Only TCP and UDP have any.
    let ports = ports.filter(|_| rss.hash.contains(of_protocol));
    if ports.is_none() && !rss.hash.contains(other) {
        return None;
    }
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => Some(hash_ipv4(&rss.key, source, destination, ports)),
        (IpAddr::V6(source), IpAddr::V6(destination)) => Some(hash_ipv6(&rss.key, source, destination, ports)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Verification suite of the Microsoft RSS specification.
    #[test]
    fn toeplitz_vectors_ipv4() {
        let vectors = [
            ("66.9.149.187", 2794, "161.142.100.80", 1766, 0x323e_8fc2, 0x51cc_c178),
            ("199.92.111.2", 14230, "65.69.140.83", 4739, 0xd718_262a, 0xc626_b0ea),
            ("24.19.198.95", 12898, "12.22.207.184", 38024, 0xd2d0_a5de, 0x5c2b_394a),
        ];
        for (source, from, destination, to, addresses, ports) in vectors {
            let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
            assert_eq!(hash_ipv4(&Rss::DEFAULT_KEY, source, destination, None), addresses);
            assert_eq!(hash_ipv4(&Rss::DEFAULT_KEY, source, destination, Some((from, to))), ports);
        }
    }

    #[test]
    fn toeplitz_vectors_ipv6() {
        let (source, destination) = ("3ffe:2501:200:1fff::7".parse().unwrap(), "3ffe:2501:200:3::1".parse().unwrap());
        assert_eq!(hash_ipv6(&Rss::DEFAULT_KEY, source, destination, None), 0x2cc1_8cd5);
        assert_eq!(hash_ipv6(&Rss::DEFAULT_KEY, source, destination, Some((2794, 1766))), 0x4020_7d3d);
    }

    fn udp(source: [u8; 4], destination: [u8; 4], ports: [u16; 2], fragment: u16, tagged: bool) -> Vec<u8> {
        let mut frame = vec![0; 12];
        if tagged {
            frame.extend([0x81, 0, 0, 7]);
        }
        frame.extend([8, 0, 0x45, 0, 0, 28, 0, 0]);
        frame.extend(fragment.to_be_bytes());
        frame.extend([64, 17, 0, 0]);
        frame.extend([source, destination].concat());
        frame.extend(ports.map(u16::to_be_bytes).concat());
        frame.extend([0, 8, 0, 0]);
        frame
    }

    #[test]
    fn frames_hash_as_their_fields() {
        let (source, destination) = (Ipv4Addr::new(66, 9, 149, 187), Ipv4Addr::new(161, 142, 100, 80));
        let rss = Rss::default();
        let frame = |fragment, tagged| udp(source.octets(), destination.octets(), [2794, 1766], fragment, tagged);
        let hashed = |ports| hash_ipv4(&rss.key, source, destination, ports);
        assert_eq!(hash_frame(&rss, &frame(0, false)), hashed(Some((2794, 1766))));
        assert_eq!(hash_frame(&rss, &frame(0, true)), hashed(Some((2794, 1766))));
        assert_eq!(hash_frame(&rss, &frame(0x4000, false)), hashed(Some((2794, 1766))), "don't fragment");
        assert_eq!(hash_frame(&rss, &frame(0x2000, false)), hashed(None), "more fragments");
        assert_eq!(hash_frame(&rss, &frame(3, false)), hashed(None), "not the first");
        let none = Rss { hash: HashTypes::NONE, ..Rss::default() };
        assert_eq!(hash_frame(&none, &frame(0, false)), 0);
        let whole = frame(0, true);
        for len in 0..whole.len() {
            let _ = hash_frame(&rss, &whole[..len]);
        }
    }

    #[test]
    fn a_symmetric_key_sends_both_directions_to_one_queue() {
        let rss = Rss { key: Rss::SYMMETRIC_KEY, ..Rss::default() };
        for n in 0..=255 {
            let (a, b) = ([10, 0, 0, n], [192, 0, 2, 255 - n]);
            let ports = [1000 + u16::from(n), 80];
            let there = hash_frame(&rss, &udp(a, b, ports, 0, false));
            let back = hash_frame(&rss, &udp(b, a, [ports[1], ports[0]], 0, false));
            assert_eq!(rss.queue(there, 4), rss.queue(back, 4));
        }
    }
}
