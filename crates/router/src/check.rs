//! Whether a frame may be forwarded: the checks in full, in order. [`crate::judge`] has short cuts for most.

use crate::ethernet::{self, Station};
use crate::{ipv4, ipv6};

/// The reason why a frame is not forwarded. If several hold, it is the first in this order.
///
/// ```
/// use router::Refusal;
/// assert_eq!(Refusal::ALL[Refusal::Ttl as usize], Refusal::Ttl);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Refusal {
    /// A VLAN tag that no sub-interface of the port takes (VLAN 0 among them, and one that is down), more than one tag, or no room
    /// in front of the frame for the tag that it would leave with; only of a [`LiveFib`](crate::LiveFib).
    Vlan,
    /// Neither IPv4 nor IPv6 directly after the Ethernet header, or after the tag of a sub-interface.
    NotIp,
    /// Sent to a group of stations (RFC 1812, 5.3.4).
    LinkMulticast,
    /// Sent to a station other than the interface, or than the port if no interface takes its tag. Of a [`LiveFib`](crate::LiveFib) that
    /// comes before all other reasons.
    OtherStation,
    /// The IP version is not that of the EtherType (RFC 1812, 5.2.2 (3)).
    Version,
    /// The frame ends within the header, or the IPv4 header says it has less than 20 bytes (RFC 1812, 5.2.2 (1), (4)).
    HeaderLength,
    /// The packet is shorter than its header, or longer than the frame (RFC 1812, 5.2.2 (5)).
    TotalLength,
    /// The IPv4 header checksum is wrong (RFC 1812, 5.2.2 (2)).
    Checksum,
    /// The source is an address that no packet may come from (RFC 1812, 5.3.7; RFC 3927, 7; RFC 4291, 2.5 and 2.7).
    MartianSource,
    /// The destination is an address that no router sends to, such as multicast (the sections of
    /// [`Self::MartianSource`]).
    MartianDestination,
    /// The time to live or hop limit is used up (RFC 1812, 5.3.1; RFC 8200, section 3), whatever the destination is: see
    /// [`LiveForwarder::destination`](crate::LiveForwarder::destination).
    Ttl,
    /// There are options of IPv4 or hop-by-hop options of IPv6, which only a [`LiveForwarder`](crate::LiveForwarder) leaves to others
    /// (RFC 1812, 5.2.6; RFC 8200, 4.3).
    Options,
    /// There is no route to the destination (RFC 1812, 5.2.4.3).
    NoRoute,
    /// Longer than the MTU of the output port (RFC 8200, section 5). IPv4 packets are not fragmented, with or without
    /// DF, although RFC 1812, 4.2.2.7, requires it.
    TooBig,
    /// The station that the route leads to is not known yet, or its port is down; only of a
    /// [`LiveFib`](crate::LiveFib), like all that follow.
    Unresolved,
    /// The destination is an address of this host.
    ForHost,
    /// The route says to drop packets in silence.
    Blackhole,
    /// The route says to answer that the destination is unreachable.
    Unreachable,
    /// The route says to answer that the destination is forbidden.
    Prohibited,
    /// The host's own routing decides: the route is more than the table knows, or the interface leaves the family to it, see
    /// [`LiveFib::set_families`](crate::LiveFib::set_families).
    LeftToHost,
    /// It would leave, but the host is to send it, so that it sees whether the station is still there, see
    /// [`LiveFib::probe`](crate::LiveFib::probe); or its sender a redirect:
    /// [`LiveForwarder::seek_turned_back`](crate::LiveForwarder::seek_turned_back).
    Probe,
}

impl Refusal {
    /// All reasons.
    pub const ALL: [Self; 21] = [
        Self::Vlan,
        Self::NotIp,
        Self::LinkMulticast,
        Self::OtherStation,
        Self::Version,
        Self::HeaderLength,
        Self::TotalLength,
        Self::Checksum,
        Self::MartianSource,
        Self::MartianDestination,
        Self::Ttl,
        Self::Options,
        Self::NoRoute,
        Self::TooBig,
        Self::Unresolved,
        Self::ForHost,
        Self::Blackhole,
        Self::Unreachable,
        Self::Prohibited,
        Self::LeftToHost,
        Self::Probe,
    ];
}

/// Where a frame that may be forwarded wants to go, and where in it the IP packet ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passed {
    Ipv4 { destination: u32, end: usize },
    Ipv6 { destination: u128, end: usize },
}

/// All checks. `start` begins with a header of `header` bytes, EtherType last; the frame may go on elsewhere and has `len` bytes.
pub(crate) fn check(start: &[u8], header: usize, len: usize, station: Station) -> Result<Passed, Refusal> {
    let Some((ethernet, packet)) = start.split_at_checked(header) else { return Err(Refusal::NotIp) };
    let (Some(addresses), Some(ether_type)) = (ethernet.first_chunk(), ethernet.last_chunk()) else {
        return Err(Refusal::NotIp);
    };
    if *ether_type != ethernet::IPV4 && *ether_type != ethernet::IPV6 {
        return Err(Refusal::NotIp);
    }
    if addresses[0] & 1 != 0 {
        return Err(Refusal::LinkMulticast);
    }
    if !station.takes(*addresses) {
        return Err(Refusal::OtherStation);
    }
    let len = len - header;
    if *ether_type == ethernet::IPV4 {
        let (destination, total) = ipv4::check(packet, len)?;
        Ok(Passed::Ipv4 { destination, end: header + total })
    } else {
        let (destination, total) = ipv6::check(packet, len)?;
        Ok(Passed::Ipv6 { destination, end: header + total })
    }
}
