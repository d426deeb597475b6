//! The flow that a frame belongs to.

use crate::ethernet::{Ethernet, ether_type};
use crate::ipv4::Ipv4Header;
use crate::ipv6::Ipv6Header;
use crate::transport::protocol;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// Protocol, addresses and ports of an IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Flow {
    /// The protocol of the payload: see [`protocol`]. For IPv6 it is the next header, which may be an extension header.
    pub protocol: u8,
    /// The source address.
    pub source: IpAddr,
    /// The destination address.
    pub destination: IpAddr,
    /// Source and destination port of TCP and UDP; `None` for fragments, or if they are cut off.
    pub ports: Option<(u16, u16)>,
}

impl Flow {
    /// Returns the flow of an Ethernet frame, with or without VLAN tags; `None` if it is not an IP packet, or is cut
    /// off within the fixed header. IPv6 extension headers are not parsed.
    #[must_use]
    pub fn of(frame: &[u8]) -> Option<Self> {
        let ethernet = Ethernet::parse(frame)?;
        match ethernet.ether_type() {
            ether_type::IPV4 => Self::of_ipv4(ethernet.payload()),
            ether_type::IPV6 => Self::of_ipv6(ethernet.payload()),
            _ => None,
        }
    }

    /// Returns the flow of an IPv4 packet, as by [`Self::of`].
    #[must_use]
    pub fn of_ipv4(packet: &[u8]) -> Option<Self> {
        let header = Ipv4Header::first(packet).filter(|header| header.version() == 4)?;
        let ends = (!header.is_fragment() && header.header_len() >= header.0.len()).then(|| header.header_len());
        // What lies behind the packet's end is padding.
        let packet = packet.get(..header.total_len()).unwrap_or(packet);
        let payload = ends.and_then(|end| packet.get(end..)).unwrap_or_default();
        Some(Self::new(header.protocol(), header.source().into(), header.destination().into(), payload))
    }

    /// Returns the flow of an IPv6 packet, as by [`Self::of`].
    #[must_use]
    pub fn of_ipv6(packet: &[u8]) -> Option<Self> {
        let header = Ipv6Header::first(packet).filter(|header| header.version() == 6)?;
        let payload = packet.get(header.0.len()..).unwrap_or_default();
        let payload = payload.get(..header.payload_len()).unwrap_or(payload);
        Some(Self::new(header.next_header(), header.source().into(), header.destination().into(), payload))
    }

    fn new(protocol: u8, source: IpAddr, destination: IpAddr, payload: &[u8]) -> Self {
        let has_ports = matches!(protocol, protocol::TCP | protocol::UDP);
        let ports = payload.first_chunk::<4>().filter(|_| has_ports).map(|ports| {
            let [a, b, c, d] = *ports;
            (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))
        });
        Self { protocol, source, destination, ports }
    }
}

/// Formats the flow, for example as `tcp 192.0.2.1:49152 -> 198.51.100.1:80`.
impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.protocol {
            protocol::ICMP => f.write_str("icmp ")?,
            protocol::TCP => f.write_str("tcp ")?,
            protocol::UDP => f.write_str("udp ")?,
            other => write!(f, "{other} ")?,
        }
        match self.ports {
            Some((from, to)) => {
                write!(f, "{} -> {}", SocketAddr::new(self.source, from), SocketAddr::new(self.destination, to))
            }
            None => write!(f, "{} -> {}", self.source, self.destination),
        }
    }
}
