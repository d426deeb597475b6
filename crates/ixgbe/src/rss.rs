//! Receive side scaling: which queue a flow goes to (82599 datasheet 7.1.2.8).
//!
//! The device hashes addresses and ports of a packet with a 40-byte key (Toeplitz), looks the low bits of the hash
//! up in the redirection table, and delivers to the queue found there. [`hash_ipv4`] and [`hash_ipv6`] compute the
//! same hash in software.

use crate::regs::{ERETA, MRQC, RETA, RSSRK, Registers, mrqc};
use crate::{Config, Error, MacType, Result};
use device::Device;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::BitOr;

/// How flows are spread over receive queues.
///
/// ```
/// use ixgbe::{Config, HashTypes, Reta, Rss};
///
/// let mut config = Config::default();
/// config.rx_queues = 4;
/// config.rss.key = Rss::SYMMETRIC_KEY; // both directions of a connection to the same queue
/// config.rss.hash = HashTypes::IPV4 | HashTypes::TCP_IPV4;
/// config.rss.reta = Reta::Table(vec![0, 1, 2, 2]); // queue 2 gets half, queue 3 nothing
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rss {
    /// The hash key. Who knows it can aim all flows at one queue.
    pub key: [u8; 40],
    /// From hash to queue.
    pub reta: Reta,
    /// Which packets are hashed over what; a packet of no chosen type has hash 0.
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

/// The redirection table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Reta {
    /// All receive queues in turn.
    #[default]
    Even,
    /// These queues in turn, repeated to fill the table of 128 entries (X550: 512); at least 1, at most that many.
    Table(Vec<u8>),
}

impl Reta {
    /// Entry `index` of the table, with `queues` receive queues.
    fn queue(&self, index: u32, queues: u16) -> u8 {
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
pub struct HashTypes(u32);

impl HashTypes {
    /// Nothing: every packet goes to the queue in entry 0 of the table.
    pub const NONE: Self = Self(0);
    /// TCP over IPv4: addresses and ports.
    pub const TCP_IPV4: Self = Self(1 << 16);
    /// IPv4: addresses.
    pub const IPV4: Self = Self(1 << 17);
    /// TCP over IPv6, home address and routing header looked at.
    pub const TCP_IPV6_EX: Self = Self(1 << 18);
    /// IPv6, home address and routing header looked at.
    pub const IPV6_EX: Self = Self(1 << 19);
    /// IPv6: addresses.
    pub const IPV6: Self = Self(1 << 20);
    /// TCP over IPv6: addresses and ports.
    pub const TCP_IPV6: Self = Self(1 << 21);
    /// UDP over IPv4: addresses and ports.
    pub const UDP_IPV4: Self = Self(1 << 22);
    /// UDP over IPv6: addresses and ports.
    pub const UDP_IPV6: Self = Self(1 << 23);
    /// UDP over IPv6, home address and routing header looked at.
    pub const UDP_IPV6_EX: Self = Self(1 << 24);

    /// Whether all of `types` are in the set.
    #[must_use]
    pub const fn contains(self, types: Self) -> bool {
        self.0 & types.0 == types.0
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

/// The hash of an IPv4 packet: over addresses, and over ports (source, destination) where given.
///
/// ```
/// use ixgbe::{Rss, hash_ipv4};
///
/// let (source, destination) = ([66, 9, 149, 187].into(), [161, 142, 100, 80].into());
/// assert_eq!(hash_ipv4(&Rss::DEFAULT_KEY, source, destination, Some((2794, 1766))), 0x51cc_c178);
/// ```
#[must_use]
pub fn hash_ipv4(key: &[u8; 40], source: Ipv4Addr, destination: Ipv4Addr, ports: Option<(u16, u16)>) -> u32 {
    hash(key, &source.octets(), &destination.octets(), ports)
}

/// The hash of an IPv6 packet: over addresses, and over ports (source, destination) where given.
///
/// ```
/// use ixgbe::{Rss, hash_ipv6};
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
    let ports = ports.map_or_else(Vec::new, |(from, to)| [from.to_be_bytes(), to.to_be_bytes()].concat());
    toeplitz(key, &[source, destination, &ports].concat())
}

/// The Toeplitz hash of `input` (7.1.2.8.1). A key of 40 bytes serves 36 bytes of input; further input hashes as
/// if the key went on with zeros.
#[must_use]
pub fn toeplitz(key: &[u8; 40], input: &[u8]) -> u32 {
    let mut window = u32::from_be_bytes([key[0], key[1], key[2], key[3]]);
    let mut hash = 0;
    for (i, byte) in input.iter().enumerate() {
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

/// Checks a setting for `queues` receive queues.
pub(crate) fn validate(rss: &Rss, queues: u16, mac: MacType) -> Result<()> {
    let reach = mac.rss_queues();
    match &rss.reta {
        Reta::Even if queues > reach => Err(Error::config(
            "rx_queues",
            format!("{queues} receive queues, but RSS of the {mac} reaches {reach}: ask for no more, or give a table"),
        )),
        Reta::Even => Ok(()),
        Reta::Table(table) if table.is_empty() || table.len() > mac.reta_entries() as usize => Err(Error::config(
            "rss.reta",
            format!("{} entries: the table of the {mac} takes 1 to {}", table.len(), mac.reta_entries()),
        )),
        Reta::Table(table) => match table.iter().find(|&&queue| u16::from(queue) >= queues.min(reach)) {
            Some(queue) => Err(Error::config(
                "rss.reta",
                format!(
                    "names queue {queue}: with {queues} receive queues on the {mac}, 0 to {} can be",
                    queues.min(reach) - 1
                ),
            )),
            None => Ok(()),
        },
    }
}

/// Programs key, table and types, and switches RSS on (4.6.10.1, 8.2.3.7).
pub(crate) fn program<D: Device>(regs: &Registers<D>, config: &Config, mac: MacType) {
    for (i, bytes) in (0..).zip(config.rss.key.as_chunks::<4>().0) {
        regs.write(RSSRK.at(i), u32::from_le_bytes(*bytes));
    }
    for dword in 0..mac.reta_entries() / 4 {
        let entries = [0, 1, 2, 3].map(|i| config.rss.reta.queue(dword * 4 + i, config.rx_queues));
        let register = if dword < RETA.count() { RETA.at(dword) } else { ERETA.at(dword - RETA.count()) };
        regs.write(register, u32::from_le_bytes(entries));
    }
    regs.write(MRQC, mrqc::MODE.set(config.rss.hash.0, MODE_RSS));
}

/// MRQC mode: RSS, no virtualisation, no traffic classes.
const MODE_RSS: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

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

    #[test]
    fn key_byte_0_is_the_lowest_byte() {
        let fake = Fake::new(0x10FB);
        program(&fake.regs(), &Config::default(), MacType::Mac82599);
        assert_eq!((fake.get(RSSRK.at(0)), fake.get(RSSRK.at(9))), (0xda56_5a6d, 0xfa01_acbe));
    }

    #[test]
    fn types_and_mode_share_a_register() {
        let fake = Fake::new(0x10FB);
        let mut config = Config::default();
        config.rss.hash = HashTypes::TCP_IPV4 | HashTypes::UDP_IPV6_EX;
        program(&fake.regs(), &config, MacType::Mac82599);
        assert_eq!(fake.get(MRQC), 0x0101_0001);
    }

    #[test]
    fn even_spread_takes_queues_in_turn() {
        let fake = Fake::new(0x10FB);
        let config = Config { rx_queues: 3, ..Config::default() };
        program(&fake.regs(), &config, MacType::Mac82599);
        assert_eq!([RETA.at(0), RETA.at(1), RETA.at(31)].map(|r| fake.get(r)), [0x0002_0100, 0x0100_0201, 0x0100_0201]);
        assert!(fake.writes().iter().all(|(offset, _)| !(0xEE80..0xF000).contains(offset)), "no ERETA on the 82599");
    }

    #[test]
    fn x550_has_512_entries() {
        let fake = Fake::new(0x1563);
        let config = Config { rx_queues: 64, ..Config::default() };
        program(&fake.regs(), &config, MacType::X550);
        assert_eq!(
            (fake.get(RETA.at(15)), fake.get(ERETA.at(0)), fake.get(ERETA.at(95))),
            (0x3f3e_3d3c, 0x0302_0100, 0x3f3e_3d3c)
        );
    }

    #[test]
    fn a_table_is_repeated() {
        let fake = Fake::new(0x10FB);
        let mut config = Config { rx_queues: 4, ..Config::default() };
        config.rss.reta = Reta::Table(vec![3, 1]);
        program(&fake.regs(), &config, MacType::Mac82599);
        assert!((0..32).all(|i| fake.get(RETA.at(i)) == 0x0103_0103));
    }
}
