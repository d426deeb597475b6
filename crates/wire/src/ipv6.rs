//! IPv6 headers (RFC 8200, section 3).

use std::net::Ipv6Addr;

const HEADER: usize = 40;

/// A view of an IPv6 header, as it is: nothing in it is checked.
#[derive(Clone, Copy, Debug)]
pub struct Ipv6Header<'a>(pub &'a [u8; HEADER]);

impl<'a> Ipv6Header<'a> {
    /// Returns the header at the start of `packet`; `None` if that has fewer than 40 bytes.
    #[inline(always)]
    #[must_use]
    pub fn first(packet: &'a [u8]) -> Option<Self> {
        packet.first_chunk().map(Self)
    }

    /// Returns the version, which should be 6.
    #[inline(always)]
    #[must_use]
    pub fn version(self) -> u8 {
        self.0[0] >> 4
    }

    /// Returns the number of bytes of the packet behind this header.
    #[inline(always)]
    #[must_use]
    pub fn payload_len(self) -> usize {
        u16::from_be_bytes([self.0[4], self.0[5]]).into()
    }

    /// Returns the protocol of what follows the header: see [`crate::protocol`]; it may be an extension header.
    #[inline(always)]
    #[must_use]
    pub fn next_header(self) -> u8 {
        self.0[6]
    }

    /// Returns the hop limit.
    #[inline(always)]
    #[must_use]
    pub fn hop_limit(self) -> u8 {
        self.0[7]
    }

    /// Returns the source address.
    #[inline(always)]
    #[must_use]
    pub fn source(self) -> Ipv6Addr {
        self.address(0)
    }

    /// Returns the destination address.
    #[inline(always)]
    #[must_use]
    pub fn destination(self) -> Ipv6Addr {
        self.address(1)
    }

    #[inline(always)]
    fn address(self, number: usize) -> Ipv6Addr {
        let [_, _, _, _, _, _, _, _, addresses @ ..] = self.0;
        Ipv6Addr::from(addresses.as_chunks::<16>().0[number])
    }
}

/// A view of an IPv6 packet.
#[derive(Clone, Copy, Debug)]
pub struct Ipv6<'a> {
    header: &'a [u8; HEADER],
    payload: &'a [u8],
}

impl<'a> Ipv6<'a> {
    /// Parses a packet; `None` if it is cut off or has another version. Bytes behind the packet are left out.
    #[inline]
    #[must_use]
    pub fn parse(packet: &'a [u8]) -> Option<Self> {
        let (header, rest) = packet.split_first_chunk()?;
        let fields = Ipv6Header(header);
        let payload = rest.get(..fields.payload_len()).filter(|_| fields.version() == 6)?;
        Some(Self { header, payload })
    }

    /// Returns the header.
    #[inline(always)]
    #[must_use]
    pub fn header(&self) -> Ipv6Header<'a> {
        Ipv6Header(self.header)
    }

    /// Returns the bytes behind the header, extension headers included.
    #[inline(always)]
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}
