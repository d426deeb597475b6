//! What a frame that a router does not forward is to its host.

use router::{Destination, Refusal};
use std::net::{Ipv4Addr, Ipv6Addr};
use wire::{Ipv4Header, Ipv6Header, ether_type, protocol};

/// What a frame is to the host. Each class of each port has a rate of its own, so that no flood of one keeps the others out. Those of
/// routing protocols are for what is sent to the host, to a group or by the host's own routing, not for what passes by.
///
/// ```
/// use router::{Destination, Refusal};
/// use twin::Class;
///
/// let arp = [&[0xFF; 12][..], &[0x08, 0x06], &[0; 28]].concat();
/// assert_eq!(Class::of(Refusal::NotIp, Destination::Unknown, &arp), Some(Class::Link));
/// assert_eq!(Class::of(Refusal::Checksum, Destination::Unknown, &arp), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Control of the link: ARP, neighbour and router discovery with its hop limit of 255 (RFC 4861, 6.1 and 7.1), LLDP, slow protocols such
    /// as LACP, and other frames to the addresses that no bridge forwards (IEEE 802.1Q, table 8-1).
    Link,
    /// OSPF, by its number. Each routing protocol has a class, so that a flood of one starves no other.
    Ospf,
    /// IS-IS.
    IsIs,
    /// VRRP, by its number, and with its TTL of 255 (RFC 5798, 5.1.1.3).
    Vrrp,
    /// BGP, by its port.
    Bgp,
    /// BFD over one hop, by its ports, and with the TTL of 255 that nobody from beyond the link can send (RFC 5881, 5).
    Bfd,
    /// BFD over several hops, by its port.
    BfdMultihop,
    /// Other packets for the host: its own and link-local addresses, groups of the link, and what says who listens to other groups.
    Own,
    /// Broadcasts, and to groups beyond the link.
    Groups,
    /// Whatever else is not IP.
    Other,
    /// What the host answers with an error, or finishes: TTL used up, too long, options, no route, unreachable, prohibited.
    Error,
    /// To a station that the host has to find first.
    Unresolved,
    /// One packet now and then to a station, so that the host sees whether it is still there, or by the port that it came by, so that the
    /// host sends a redirect.
    Probe,
    /// What the host's own routing decides.
    Left,
}

/// IP protocol numbers (IANA).
const OSPF: u8 = 89;
const VRRP: u8 = 112;
/// TCP port of BGP (RFC 4271), UDP ports of BFD over one hop (RFC 5881, 7130) and over several (RFC 5883).
const BGP: u16 = 179;
const BFD: [u16; 2] = [3784, 6784];
const BFD_MULTIHOP: u16 = 4784;
/// The TTL of what comes from a station of the link (RFC 5082; RFC 4861, 7.1).
const FROM_THE_LINK: u8 = 255;
/// ICMPv6 types of neighbour discovery (RFC 4861): router solicitation to redirect.
const DISCOVERY: std::ops::RangeInclusive<u8> = 133..=137;
/// `EtherTypes` of slow protocols (IEEE 802.3, 57A) and LLDP (IEEE 802.1AB).
const SLOW_PROTOCOLS: u16 = 0x8809;
const LLDP: u16 = 0x88CC;
/// What the addresses begin with that no bridge forwards (IEEE 802.1Q, table 8-1): 01:80:C2:00:00:00 to 0F.
const OF_THE_LINK: [u8; 5] = [0x01, 0x80, 0xC2, 0, 0];
/// IP protocol number of IGMP, and the header that MLD begins with: reports of older versions go to the group that they are about.
const IGMP: u8 = 2;
const HOP_BY_HOP: u8 = 0;
/// LLC header of IS-IS (ISO/IEC 10589, 8.4; ISO 9577): both service access points 0xFE, unnumbered information, protocol 0x83.
const ISIS: [u8; 4] = [0xFE, 0xFE, 0x03, 0x83];
/// Bytes of the Ethernet header.
const ETHERNET: usize = 14;
/// And of an IPv4 header without options, and ports.
const PLAIN: usize = ETHERNET + 20 + 4;
/// Where the destination of IPv4 stands.
const TO: usize = ETHERNET + 16;
/// Tags that are looked behind.
const TAGS: usize = 2;

impl Class {
    /// All classes.
    pub const ALL: [Self; 14] = [
        Self::Link,
        Self::Ospf,
        Self::IsIs,
        Self::Vrrp,
        Self::Bgp,
        Self::Bfd,
        Self::BfdMultihop,
        Self::Own,
        Self::Groups,
        Self::Other,
        Self::Error,
        Self::Unresolved,
        Self::Probe,
        Self::Left,
    ];

    /// Returns the name in tables and JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Link => "link",
            Self::Ospf => "ospf",
            Self::IsIs => "isis",
            Self::Vrrp => "vrrp",
            Self::Bgp => "bgp",
            Self::Bfd => "bfd",
            Self::BfdMultihop => "bfd_multihop",
            Self::Own => "own",
            Self::Groups => "groups",
            Self::Other => "other",
            Self::Error => "error",
            Self::Unresolved => "unresolved",
            Self::Probe => "probe",
            Self::Left => "left",
        }
    }

    /// Returns whether it is a routing protocol's.
    #[must_use]
    pub fn is_routing(self) -> bool {
        matches!(self, Self::Ospf | Self::IsIs | Self::Vrrp | Self::Bgp | Self::Bfd | Self::BfdMultihop)
    }

    /// Returns the class of a frame, of which `start` holds the headers, and which a router has refused for `refusal` and says that it is
    /// for `destination` ([`router::LiveForwarder::destination`]); `None` if it is nothing to the host, and is dropped: other stations'
    /// frames, false headers, what a blackhole takes, and addresses that
    /// no host has (0/8, 127/8, 240/4 but for the broadcast, `::`, `::1`, IPv4-mapped, groups as source) in a frame to a single station.
    #[inline]
    #[must_use]
    pub fn of(refusal: Refusal, destination: Destination, start: &[u8]) -> Option<Self> {
        let passes_by = destination == Destination::Elsewhere;
        match refusal {
            Refusal::OtherStation
            | Refusal::Version
            | Refusal::HeaderLength
            | Refusal::TotalLength
            | Refusal::Checksum
            | Refusal::Blackhole => None,
            Refusal::Vlan | Refusal::NotIp | Refusal::LinkMulticast | Refusal::ForHost => Some(Self::for_host(start)),
            Refusal::MartianSource | Refusal::MartianDestination => {
                let class = || if passes_by { Self::Left } else { Self::for_host(start) };
                packet(start).is_some_and(|(_, ip)| is_of_this_link(ip)).then(class)
            }
            Refusal::Unresolved => Some(Self::Unresolved),
            Refusal::Probe => Some(Self::Probe),
            Refusal::LeftToHost => Some(Self::by(destination, Self::Left, start)),
            // Neighbours by BGP and OSPF send with 1.
            Refusal::Ttl => Some(Self::by(destination, Self::Error, start)),
            Refusal::Options | Refusal::NoRoute | Refusal::TooBig | Refusal::Unreachable | Refusal::Prohibited => {
                Some(Self::Error)
            }
        }
    }

    /// The class of a frame that is `otherwise` if it passes by. Where nobody knows it is so, too, unless it is such as routing protocols
    /// send: they matter more.
    #[inline]
    fn by(destination: Destination, otherwise: Self, start: &[u8]) -> Self {
        match destination {
            Destination::Host => Self::for_host(start),
            Destination::Elsewhere => otherwise,
            Destination::Unknown => match Self::for_host(start) {
                Self::Own => otherwise,
                class => class,
            },
        }
    }

    /// The class of a frame that the host is to have, by what is in it.
    #[inline]
    fn for_host(start: &[u8]) -> Self {
        if let Some(class) = start.first_chunk().and_then(plain) {
            return class;
        }
        let Some((ether_type, payload)) = packet(start) else { return Self::Other };
        let is_group = start.first().is_some_and(|first| first & 1 == 1);
        match ether_type {
            ether_type::IPV4 => match Ipv4Header::first(payload) {
                Some(header) if header.version() == 4 => {
                    // Behind a fragment's header there may be anything.
                    let behind = payload.get(header.header_len()..).filter(|_| !header.is_fragment());
                    let class = routing(header.protocol(), header.ttl(), behind.unwrap_or_default());
                    class.unwrap_or_else(|| Self::of_ipv4(is_group, header.protocol(), header.destination()))
                }
                _ => Self::of_reach(is_group),
            },
            ether_type::IPV6 => match Ipv6Header::first(payload) {
                Some(header) if header.version() == 6 => {
                    let behind = payload.get(header.0.len()..).unwrap_or_default();
                    let discovers = behind.first().is_some_and(|kind| DISCOVERY.contains(kind));
                    if header.next_header() == protocol::ICMPV6 && discovers && header.hop_limit() == FROM_THE_LINK {
                        return Self::Link;
                    }
                    let class = routing(header.next_header(), header.hop_limit(), behind);
                    class.unwrap_or_else(|| Self::of_ipv6(is_group, header.next_header(), header.destination()))
                }
                _ => Self::of_reach(is_group),
            },
            ether_type::ARP | SLOW_PROTOCOLS | LLDP => Self::Link,
            // A length, and an LLC header behind it.
            length if length < 0x600 && payload.starts_with(&ISIS) => Self::IsIs,
            _ if start.starts_with(&OF_THE_LINK) && start.get(OF_THE_LINK.len()).is_some_and(|last| *last < 16) => {
                Self::Link
            }
            _ => Self::Other,
        }
    }

    /// The class of a packet of IPv4 for the host that is of no other. `is_group`: its frame is to a group or to all.
    #[inline]
    fn of_ipv4(is_group: bool, number: u8, to: Ipv4Addr) -> Self {
        let is_of_link = number == IGMP || to.octets().starts_with(&[224, 0, 0]);
        Self::of_reach((is_group || to.is_multicast() || to.is_broadcast()) && !is_of_link)
    }

    /// As [`Self::of_ipv4`], of IPv6.
    #[inline]
    fn of_ipv6(is_group: bool, next_header: u8, to: Ipv6Addr) -> Self {
        // Scopes of an interface and of a link (RFC 4291, 2.7).
        let is_of_link = next_header == HOP_BY_HOP || to.is_multicast() && to.octets()[1] & 0xF <= 2;
        Self::of_reach((is_group || to.is_multicast()) && !is_of_link)
    }

    fn of_reach(is_for_many: bool) -> Self {
        if is_for_many { Self::Groups } else { Self::Own }
    }
}

/// The short cut for most: the class of a frame of IPv4 without tags, options and fragments.
#[inline]
fn plain(start: &[u8; PLAIN]) -> Option<Class> {
    let [.., high, low, 0x45, _, _, _, _, _, fragment, offset, ttl, number, _, _, _, _, _, _, _, _, _, _, a, b, c, d] =
        start
    else {
        return None;
    };
    let is_plain = u16::from_be_bytes([*high, *low]) == ether_type::IPV4 && fragment & 0x3F | offset == 0;
    is_plain.then(|| {
        let class = routing(*number, *ttl, &[*a, *b, *c, *d]);
        let to: [u8; 4] = std::array::from_fn(|at| start[TO + at]);
        class.unwrap_or_else(|| Class::of_ipv4(start[0] & 1 == 1, *number, to.into()))
    })
}

/// The `EtherType` of a frame, and what follows it, behind at most two VLAN tags.
fn packet(start: &[u8]) -> Option<(u16, &[u8])> {
    let mut at = ETHERNET - 2;
    for _ in 0..=TAGS {
        let kind = u16::from_be_bytes(*start.get(at..)?.first_chunk()?);
        at += 2;
        if kind != ether_type::VLAN && kind != ether_type::SERVICE_VLAN {
            return Some((kind, start.get(at..)?));
        }
        at += 2;
    }
    None
}

/// The class of an IP packet of a routing protocol, by its number and its time to live. `behind` begins behind the IP header.
fn routing(number: u8, ttl: u8, behind: &[u8]) -> Option<Class> {
    let of_the_link = |class| (ttl == FROM_THE_LINK).then_some(class);
    let ports = behind.first_chunk().map(|[a, b, c, d]| [[*a, *b], [*c, *d]].map(u16::from_be_bytes));
    match (number, ports) {
        (OSPF, _) => Some(Class::Ospf),
        (VRRP, _) => of_the_link(Class::Vrrp),
        (protocol::TCP, Some(ports)) => ports.contains(&BGP).then_some(Class::Bgp),
        (protocol::UDP, Some([_, BFD_MULTIHOP])) => Some(Class::BfdMultihop),
        (protocol::UDP, Some([_, destination])) if BFD.contains(&destination) => of_the_link(Class::Bfd),
        _ => None,
    }
}

/// Whether both addresses of an IP packet are such as stations of a link have or send to.
fn is_of_this_link(ip: &[u8]) -> bool {
    match ip.first().map(|first| first >> 4) {
        Some(4) => Ipv4Header::first(ip).is_some_and(|header| {
            let [source, destination] = [header.source(), header.destination()];
            let is_odd = |first: u8| first == 0 || first == 127 || first >= 240;
            !is_odd(source.octets()[0])
                && !source.is_multicast()
                && (destination.is_broadcast() || !is_odd(destination.octets()[0]))
        }),
        Some(6) => Ipv6Header::first(ip).is_some_and(|header| {
            let [source, destination] = [header.source(), header.destination()];
            let is_odd = |address: std::net::Ipv6Addr| {
                address.is_unspecified() || address.is_loopback() || address.to_ipv4_mapped().is_some()
            };
            !is_odd(source) && !source.is_multicast() && !is_odd(destination)
        }),
        _ => false,
    }
}
