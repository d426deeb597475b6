//! Requests to list a table, or to use a neighbour.

use super::neighbour::{NDA_DST, NTF_USE};
use super::{Family, HEADER, RTM_NEWNEIGH, flags};
use std::net::IpAddr;

/// A table that the kernel lists on request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dump {
    /// Interfaces.
    Links,
    /// Settings of interfaces.
    Netconf(Family),
    /// Addresses of interfaces, of both families.
    Addresses,
    /// Next hops and groups.
    NextHops,
    /// Neighbours of both families.
    Neighbours,
    /// Routes of all tables.
    Routes(Family),
    /// Rules.
    Rules(Family),
}

impl Dump {
    /// All tables, in the order in which they make sense.
    pub const ALL: [Self; 10] = [
        Self::Links,
        Self::Netconf(Family::V4),
        Self::Netconf(Family::V6),
        Self::Addresses,
        Self::NextHops,
        Self::Neighbours,
        Self::Rules(Family::V4),
        Self::Rules(Family::V6),
        Self::Routes(Family::V4),
        Self::Routes(Family::V6),
    ];

    /// Returns what the table holds, in words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Links => "links",
            Self::Netconf(_) => "interface settings",
            Self::Addresses => "addresses",
            Self::NextHops => "next hops",
            Self::Neighbours => "neighbours",
            Self::Routes(_) => "routes",
            Self::Rules(_) => "rules",
        }
    }

    /// Returns the bytes of a request for it, which the answers' `sequence` names.
    ///
    /// ```
    /// let request = kernel::Dump::Links.request(5);
    /// assert_eq!(request.len(), 40);
    /// ```
    #[must_use]
    pub fn request(self, sequence: u32) -> Vec<u8> {
        // The type, the length of its fixed part, and the family in that.
        let (kind, len, family) = match self {
            Self::Links => (RTM_GETLINK, 16, 0),
            Self::Netconf(family) => (RTM_GETNETCONF, 4, family.number()),
            Self::Addresses => (RTM_GETADDR, 8, 0),
            Self::NextHops => (RTM_GETNEXTHOP, 8, 0),
            Self::Neighbours => (RTM_GETNEIGH, 12, 0),
            Self::Routes(family) => (RTM_GETROUTE, 12, family.number()),
            Self::Rules(family) => (RTM_GETRULE, 12, family.number()),
        };
        let mut request = begin(kind, NLM_F_DUMP, sequence, len, family);
        if self == Self::Links {
            // Without statistics.
            request.extend([8_u16, IFLA_EXT_MASK].map(u16::to_ne_bytes).as_flattened());
            request.extend(RTEXT_FILTER_SKIP_STATS.to_ne_bytes());
        }
        end(request)
    }
}

/// A request to do with a neighbour as if a packet went there, without an answer but an error (`neigh_add` in `net/core/neighbour.c`).
/// `is_new`: only if the kernel has no entry for it, which is made then.
pub(crate) fn use_neighbour(interface: u32, address: IpAddr, is_new: bool) -> Vec<u8> {
    let (family, octets) = match address {
        IpAddr::V4(address) => (Family::V4, address.octets().to_vec()),
        IpAddr::V6(address) => (Family::V6, address.octets().to_vec()),
    };
    let flags = if is_new { flags::CREATE | flags::EXCL } else { 0 };
    let mut request = begin(RTM_NEWNEIGH, flags, 0, 12, family.number());
    request[HEADER + 4..HEADER + 8].copy_from_slice(&interface.to_ne_bytes());
    request[HEADER + 10] = NTF_USE;
    let len = if address.is_ipv4() { 8 } else { 20 };
    request.extend([len, NDA_DST].map(u16::to_ne_bytes).as_flattened());
    request.extend(octets);
    end(request)
}

/// A request's header, and its fixed part of `len` bytes, which begins with a family.
fn begin(kind: u16, flags: u16, sequence: u32, len: usize, family: u8) -> Vec<u8> {
    let mut request = vec![0; HEADER + len];
    request[4..6].copy_from_slice(&kind.to_ne_bytes());
    request[6..8].copy_from_slice(&(NLM_F_REQUEST | flags).to_ne_bytes());
    request[8..12].copy_from_slice(&sequence.to_ne_bytes());
    request[HEADER] = family;
    request
}

/// The request with its length.
fn end(mut request: Vec<u8>) -> Vec<u8> {
    let total = u32::try_from(request.len()).unwrap_or(0);
    request[..4].copy_from_slice(&total.to_ne_bytes());
    request
}

const NLM_F_REQUEST: u16 = 1;
/// NLM_F_ROOT and NLM_F_MATCH.
const NLM_F_DUMP: u16 = 0x300;
const RTM_GETLINK: u16 = 18;
const RTM_GETADDR: u16 = 22;
const RTM_GETROUTE: u16 = 26;
const RTM_GETNEIGH: u16 = 30;
const RTM_GETRULE: u16 = 34;
const RTM_GETNETCONF: u16 = 82;
const RTM_GETNEXTHOP: u16 = 106;
const IFLA_EXT_MASK: u16 = 29;
const RTEXT_FILTER_SKIP_STATS: u32 = 8;
