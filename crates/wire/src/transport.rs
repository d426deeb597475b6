//! TCP (RFC 9293, 3.1) and UDP (RFC 768).

use crate::checksum::{update_u16, update_u32};
use crate::ipv4::{Ipv4Header, Ipv4Mut, hop, set_address};
use std::net::{Ipv4Addr, SocketAddrV4};

/// Protocols in IP packets (the IP protocol numbers of IANA).
pub mod protocol {
    /// ICMP.
    pub const ICMP: u8 = 1;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// ICMPv6.
    pub const ICMPV6: u8 = 58;
}

/// Bits of [`Tcp::flags`].
pub mod tcp_flags {
    /// The sender has no more data.
    pub const FIN: u8 = 1;
    /// Opens a connection.
    pub const SYN: u8 = 2;
    /// Resets the connection.
    pub const RST: u8 = 4;
    /// The acknowledgement number is valid.
    pub const ACK: u8 = 16;
}

/// A view of a TCP segment.
#[derive(Clone, Copy, Debug)]
pub struct Tcp<'a> {
    header: &'a [u8; 20],
    payload: &'a [u8],
}

impl<'a> Tcp<'a> {
    /// Parses the payload of an IP packet; `None` if the segment is cut off, or its header claims to have fewer than 20
    /// bytes.
    #[must_use]
    pub fn parse(segment: &'a [u8]) -> Option<Self> {
        let header = segment.first_chunk::<20>()?;
        let payload = usize::from(header[12] >> 4) * 4;
        Some(Self { header, payload: segment.get(payload..).filter(|_| payload >= header.len())? })
    }

    /// Returns source and destination port.
    #[must_use]
    pub fn ports(&self) -> (u16, u16) {
        ports(self.header)
    }

    /// Returns the low 8 flags: see [`tcp_flags`].
    #[must_use]
    pub fn flags(&self) -> u8 {
        self.header[13]
    }

    /// Returns the bytes behind header and options.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// A view of a UDP datagram.
#[derive(Clone, Copy, Debug)]
pub struct Udp<'a> {
    header: &'a [u8; 8],
    payload: &'a [u8],
}

impl<'a> Udp<'a> {
    /// Parses the payload of an IP packet; `None` if the datagram is cut off, or claims to be shorter than its header.
    /// Bytes behind it are left out.
    #[must_use]
    pub fn parse(datagram: &'a [u8]) -> Option<Self> {
        let header = datagram.first_chunk::<8>()?;
        let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
        Some(Self { header, payload: datagram.get(header.len()..len)? })
    }

    /// Returns source and destination port.
    #[must_use]
    pub fn ports(&self) -> (u16, u16) {
        ports(self.header)
    }

    /// Returns the bytes behind the header.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// A mutable view of the addresses and ports of a TCP segment or UDP datagram in an unfragmented IPv4 packet. All
/// checksums are updated with each change (RFC 1624); one that was wrong stays wrong.
///
/// ```
/// # let mut packet = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 198, 51, 100, 1, 0xc0, 0, 0, 53, 0, 8, 0, 0];
/// let mut transport = wire::TransportMut::parse(&mut packet).ok_or("neither TCP nor UDP")?;
/// assert_eq!(transport.source().to_string(), "192.0.2.1:49152");
/// transport.set_source("203.0.113.1:1024".parse().map_err(|_| "an address")?);
/// assert_eq!((&packet[12..16], &packet[20..22]), (&[203, 0, 113, 1][..], &[4, 0][..]));
/// # Ok::<(), &str>(())
/// ```
#[derive(Debug)]
pub struct TransportMut<'a> {
    header: &'a mut [u8; 20],
    ports: &'a mut [u8; 4],
    checksum: &'a mut [u8; 2],
    /// 0 for a segment of TCP.
    flags: u8,
}

impl<'a> TransportMut<'a> {
    /// Parses an IPv4 packet; `None` if it is not [whole](crate::Ipv4::parse), is a fragment, or is neither TCP nor
    /// UDP.
    #[inline]
    #[must_use]
    pub fn parse(packet: &'a mut [u8]) -> Option<Self> {
        let Ipv4Mut { header, payload, .. } = Ipv4Mut::parse(packet)?;
        let fields = Ipv4Header(header);
        if fields.is_fragment() {
            return None;
        }
        let is_tcp = fields.protocol() == protocol::TCP;
        let flags = if is_tcp { payload.get(13).copied()? } else { 0 };
        let at = match fields.protocol() {
            protocol::TCP => TCP_CHECKSUM - PORTS,
            protocol::UDP => UDP_CHECKSUM - PORTS,
            _ => return None,
        };
        let (ports, rest) = payload.split_first_chunk_mut()?;
        Some(Self { header, ports, checksum: rest.get_mut(at..)?.first_chunk_mut()?, flags })
    }

    /// Returns [`protocol::TCP`] or [`protocol::UDP`].
    #[inline]
    #[must_use]
    pub fn protocol(&self) -> u8 {
        Ipv4Header(self.header).protocol()
    }

    /// Returns source address and port.
    #[inline]
    #[must_use]
    pub fn source(&self) -> SocketAddrV4 {
        SocketAddrV4::new(Ipv4Header(self.header).source(), ports(self.ports).0)
    }

    /// Returns destination address and port.
    #[inline]
    #[must_use]
    pub fn destination(&self) -> SocketAddrV4 {
        SocketAddrV4::new(Ipv4Header(self.header).destination(), ports(self.ports).1)
    }

    /// Returns the flags of a TCP segment: see [`tcp_flags`]; 0 for UDP.
    #[must_use]
    pub fn flags(&self) -> u8 {
        self.flags
    }

    /// Changes source address and port.
    #[inline]
    pub fn set_source(&mut self, source: SocketAddrV4) {
        let [a, b, ..] = self.ports;
        let old = SocketAddrV4::new(Ipv4Header(self.header).source(), u16::from_be_bytes([*a, *b]));
        [*a, *b] = source.port().to_be_bytes();
        set_address(self.header, 12, *source.ip());
        self.follow(old, source);
    }

    /// Changes destination address and port.
    #[inline]
    pub fn set_destination(&mut self, destination: SocketAddrV4) {
        let [.., a, b] = self.ports;
        let old = SocketAddrV4::new(Ipv4Header(self.header).destination(), u16::from_be_bytes([*a, *b]));
        [*a, *b] = destination.port().to_be_bytes();
        set_address(self.header, 16, *destination.ip());
        self.follow(old, destination);
    }

    /// Decrements the time to live like [`Ipv4Mut::hop`].
    #[inline]
    pub fn hop(&mut self) -> bool {
        let lives = Ipv4Header(self.header).ttl() > 1;
        if lives {
            hop(self.header);
        }
        lives
    }

    /// Lets the checksum, which includes the addresses by the pseudo-header, follow a change.
    #[inline]
    fn follow(&mut self, old: SocketAddrV4, new: SocketAddrV4) {
        let checksum = u16::from_be_bytes(*self.checksum);
        let is_udp = self.protocol() == protocol::UDP;
        if is_udp && checksum == 0 {
            // None was computed (RFC 768).
            return;
        }
        let bits = Ipv4Addr::to_bits;
        let changed = update_u16(update_u32(checksum, bits(*old.ip()), bits(*new.ip())), old.port(), new.port());
        let changed = if is_udp && changed == 0 { 0xffff } else { changed };
        *self.checksum = changed.to_be_bytes();
    }
}

/// Bytes of both ports, and where the checksums are.
const PORTS: usize = 4;
const TCP_CHECKSUM: usize = 16;
const UDP_CHECKSUM: usize = 6;

/// Source and destination port, where TCP and UDP have them.
#[inline]
fn ports<const N: usize>(header: &[u8; N]) -> (u16, u16) {
    let mut fields = header.as_chunks::<2>().0.iter().map(|field| u16::from_be_bytes(*field));
    (fields.next().unwrap_or(0), fields.next().unwrap_or(0))
}
