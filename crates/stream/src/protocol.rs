//! The headers: their fields, what they hold unless told otherwise, and what may follow what.

use crate::values::Kind;

/// A protocol, or bytes of the definition's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// Ethernet II.
    Ethernet,
    /// IEEE 802.1Q tag.
    Vlan,
    /// RFC 3032.
    Mpls,
    /// RFC 791, without options.
    Ipv4,
    /// RFC 8200, without extension headers.
    Ipv6,
    /// RFC 768.
    Udp,
    /// RFC 9293, without options.
    Tcp,
    /// RFC 792, with identifier and sequence number.
    Icmp,
    /// RFC 4443, with identifier and sequence number.
    Icmpv6,
    /// RFC 826, of IPv4 over Ethernet.
    Arp,
    /// RFC 2784, with key and sequence number of RFC 2890.
    Gre,
    /// RFC 7348.
    Vxlan,
    Raw,
}

/// Which value a field has if it is not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Default {
    Value(u64),
    /// 128 bits, of which these are the upper and lower half.
    Wide(u64, u64),
    /// The number of the protocol that follows.
    Next,
    /// Bytes from so far behind the header's start to the end of the frame.
    Length(usize),
    Checksum,
}

/// A field of a header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    /// The first bit, counted from the header's start.
    pub(crate) bit: usize,
    pub(crate) bits: usize,
    pub(crate) kind: Kind,
    pub(crate) default: Default,
}

const fn number(name: &'static str, bit: usize, bits: usize, value: u64) -> Field {
    Field { name, bit, bits, kind: Kind::Number, default: Default::Value(value) }
}

const fn derived(name: &'static str, byte: usize, bits: usize, default: Default) -> Field {
    Field { name, bit: 8 * byte, bits, kind: Kind::Number, default }
}

const fn mac(name: &'static str, byte: usize, value: u64) -> Field {
    Field { name, bit: 8 * byte, bits: 48, kind: Kind::Mac, default: Default::Value(value) }
}

const fn ipv4(name: &'static str, byte: usize, value: u64) -> Field {
    Field { name, bit: 8 * byte, bits: 32, kind: Kind::Ipv4, default: Default::Value(value) }
}

const fn ipv6(name: &'static str, byte: usize, low: u64) -> Field {
    // 2001:2::/48 (RFC 5180).
    Field { name, bit: 8 * byte, bits: 128, kind: Kind::Ipv6, default: Default::Wide(0x2001_0002_0000_0000, low) }
}

const SOURCE_MAC: u64 = 0x0200_0000_0001;
const DESTINATION_MAC: u64 = 0x0200_0000_0002;
/// 198.18.0.1 and 198.19.0.1 (RFC 2544, appendix C).
const SOURCE_IPV4: u64 = 0xC612_0001;
const DESTINATION_IPV4: u64 = 0xC613_0001;
/// The first ephemeral port, and discard (RFC 863).
const SOURCE_PORT: u64 = 49_152;
const DESTINATION_PORT: u64 = 9;
/// The port of VXLAN.
const VXLAN_PORT: u64 = 4789;
/// Ethernet type and IP protocol for experiments (IEEE 802; RFC 3692).
const EXPERIMENT: u64 = 0x88B5;
const EXPERIMENTAL_PROTOCOL: u64 = 253;

const ETHERNET: &[Field] =
    &[mac("destination", 0, DESTINATION_MAC), mac("source", 6, SOURCE_MAC), derived("type", 12, 16, Default::Next)];
const VLAN: &[Field] = &[
    number("priority", 0, 3, 0),
    number("drop_eligible", 3, 1, 0),
    number("id", 4, 12, 1),
    derived("type", 2, 16, Default::Next),
];
const MPLS: &[Field] = &[
    number("label", 0, 20, 16),
    number("class", 20, 3, 0),
    Field { name: "bottom", bit: 23, bits: 1, kind: Kind::Number, default: Default::Next },
    number("ttl", 24, 8, 64),
];
const IPV4: &[Field] = &[
    number("dscp", 8, 6, 0),
    number("ecn", 14, 2, 0),
    derived("length", 2, 16, Default::Length(0)),
    number("id", 32, 16, 0),
    number("dont_fragment", 49, 1, 1),
    number("more_fragments", 50, 1, 0),
    number("fragment_offset", 51, 13, 0),
    number("ttl", 64, 8, 64),
    derived("protocol", 9, 8, Default::Next),
    derived("checksum", 10, 16, Default::Checksum),
    ipv4("source", 12, SOURCE_IPV4),
    ipv4("destination", 16, DESTINATION_IPV4),
];
const IPV6: &[Field] = &[
    number("dscp", 4, 6, 0),
    number("ecn", 10, 2, 0),
    number("flow_label", 12, 20, 0),
    derived("length", 4, 16, Default::Length(40)),
    derived("next_header", 6, 8, Default::Next),
    number("hop_limit", 56, 8, 64),
    ipv6("source", 8, 1),
    ipv6("destination", 24, 0x0001_0000_0000_0001),
];
const UDP: &[Field] = &[
    number("source", 0, 16, SOURCE_PORT),
    derived("destination", 2, 16, Default::Next),
    derived("length", 4, 16, Default::Length(0)),
    derived("checksum", 6, 16, Default::Checksum),
];
const TCP: &[Field] = &[
    number("source", 0, 16, SOURCE_PORT),
    number("destination", 16, 16, DESTINATION_PORT),
    number("sequence", 32, 32, 0),
    number("acknowledgement", 64, 32, 0),
    number("flags", 104, 8, 0x10),
    number("window", 112, 16, 65_535),
    derived("checksum", 16, 16, Default::Checksum),
    number("urgent", 144, 16, 0),
];
const ICMP: &[Field] = &[
    number("type", 0, 8, 8),
    number("code", 8, 8, 0),
    derived("checksum", 2, 16, Default::Checksum),
    number("id", 32, 16, 1),
    number("sequence", 48, 16, 0),
];
const ICMPV6: &[Field] = &[
    number("type", 0, 8, 128),
    number("code", 8, 8, 0),
    derived("checksum", 2, 16, Default::Checksum),
    number("id", 32, 16, 1),
    number("sequence", 48, 16, 0),
];
const ARP: &[Field] = &[
    number("operation", 48, 16, 1),
    mac("sender_mac", 8, SOURCE_MAC),
    ipv4("sender_ip", 14, SOURCE_IPV4),
    mac("target_mac", 18, 0),
    ipv4("target_ip", 24, DESTINATION_IPV4),
];
const GRE: &[Field] = &[derived("type", 2, 16, Default::Next)];
const VXLAN: &[Field] = &[number("vni", 32, 24, 1)];

/// The optional fields of GRE, in their order: bits of the flags, and the field at the start of its word.
pub(crate) const GRE_OPTIONS: [(u8, Field); 3] = [
    (0x80, derived("checksum", 0, 16, Default::Checksum)),
    (0x20, number("key", 0, 32, 0)),
    (0x10, number("sequence", 0, 32, 0)),
];

/// All protocols, by the names that they have in a definition.
pub(crate) const PROTOCOLS: [(&str, Protocol); 13] = [
    ("ethernet", Protocol::Ethernet),
    ("vlan", Protocol::Vlan),
    ("mpls", Protocol::Mpls),
    ("ipv4", Protocol::Ipv4),
    ("ipv6", Protocol::Ipv6),
    ("udp", Protocol::Udp),
    ("tcp", Protocol::Tcp),
    ("icmp", Protocol::Icmp),
    ("icmpv6", Protocol::Icmpv6),
    ("arp", Protocol::Arp),
    ("gre", Protocol::Gre),
    ("vxlan", Protocol::Vxlan),
    ("raw", Protocol::Raw),
];

impl Protocol {
    pub(crate) fn name(self) -> &'static str {
        PROTOCOLS.iter().find(|(_, protocol)| *protocol == self).map_or("", |(name, _)| name)
    }

    pub(crate) fn fields(self) -> &'static [Field] {
        match self {
            Self::Ethernet => ETHERNET,
            Self::Vlan => VLAN,
            Self::Mpls => MPLS,
            Self::Ipv4 => IPV4,
            Self::Ipv6 => IPV6,
            Self::Udp => UDP,
            Self::Tcp => TCP,
            Self::Icmp => ICMP,
            Self::Icmpv6 => ICMPV6,
            Self::Arp => ARP,
            Self::Gre => GRE,
            Self::Vxlan => VXLAN,
            Self::Raw => &[],
        }
    }

    /// The header with all fields 0: of GRE without its optional words.
    pub(crate) fn header(self) -> &'static [u8] {
        match self {
            Self::Ethernet => &[0; 14],
            Self::Vlan | Self::Mpls | Self::Gre => &[0; 4],
            Self::Ipv4 => &[0x45, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            Self::Ipv6 => const { &first::<40>(0x60) },
            Self::Udp | Self::Icmp | Self::Icmpv6 => &[0; 8],
            Self::Tcp => &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0, 0, 0, 0, 0, 0, 0],
            // Ethernet, IPv4, and the lengths of their addresses.
            Self::Arp => &[0, 1, 8, 0, 6, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            // The network identifier is valid.
            Self::Vxlan => &[8, 0, 0, 0, 0, 0, 0, 0],
            Self::Raw => &[],
        }
    }

    /// Whether its checksum covers a pseudo-header of the IP header before it.
    pub(crate) fn has_pseudo_header(self) -> bool {
        matches!(self, Self::Udp | Self::Tcp | Self::Icmpv6)
    }

    /// The protocol's number in an IP header.
    pub(crate) fn ip_number(self) -> Option<u8> {
        Some(match self {
            Self::Icmp => 1,
            Self::Ipv4 => 4,
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Ipv6 => 41,
            Self::Gre => 47,
            Self::Icmpv6 => 58,
            _ => return None,
        })
    }

    /// What a header's field of [`Default::Next`] holds before `next`, or before the payload; `None` if that may not follow.
    pub(crate) fn link(self, next: Option<Self>) -> Option<u64> {
        let Some(next) = next.filter(|next| *next != Self::Raw) else { return Some(self.link_to_payload()) };
        match self {
            Self::Ethernet | Self::Vlan => match next {
                Self::Vlan => Some(0x8100),
                Self::Mpls => Some(0x8847),
                Self::Ipv4 => Some(0x0800),
                Self::Ipv6 => Some(0x86DD),
                Self::Arp => Some(0x0806),
                _ => None,
            },
            Self::Mpls => match next {
                Self::Mpls => Some(0),
                Self::Ipv4 | Self::Ipv6 | Self::Ethernet => Some(1),
                _ => None,
            },
            Self::Ipv4 => next.ip_number().filter(|_| next != Self::Icmpv6).map(u64::from),
            Self::Ipv6 => next.ip_number().filter(|_| next != Self::Icmp).map(u64::from),
            Self::Udp => (next == Self::Vxlan).then_some(VXLAN_PORT),
            Self::Gre => match next {
                Self::Mpls => Some(0x8847),
                Self::Ipv4 => Some(0x0800),
                Self::Ipv6 => Some(0x86DD),
                // Transparent Ethernet bridging.
                Self::Ethernet => Some(0x6558),
                _ => None,
            },
            Self::Vxlan => (next == Self::Ethernet).then_some(0),
            Self::Tcp | Self::Icmp | Self::Icmpv6 | Self::Arp | Self::Raw => None,
        }
    }

    fn link_to_payload(self) -> u64 {
        match self {
            Self::Ethernet | Self::Vlan | Self::Gre => EXPERIMENT,
            Self::Mpls => 1,
            Self::Ipv4 | Self::Ipv6 => EXPERIMENTAL_PROTOCOL,
            Self::Udp => DESTINATION_PORT,
            _ => 0,
        }
    }

    /// Names of what may follow.
    pub(crate) fn followers(self) -> Vec<&'static str> {
        if self == Self::Raw {
            return Vec::new();
        }
        PROTOCOLS.iter().filter(|(_, next)| self.link(Some(*next)).is_some()).map(|(name, _)| *name).collect()
    }
}

const fn first<const N: usize>(byte: u8) -> [u8; N] {
    let mut bytes = [0; N];
    bytes[0] = byte;
    bytes
}
