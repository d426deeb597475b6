//! IPv4 headers (RFC 791).

use crate::checksum::{Sum, update_u16, update_u32};
use std::net::Ipv4Addr;

/// Bytes of a header without options.
const SHORTEST: usize = 20;

/// A view of the fixed part of an IPv4 header, as it is: nothing in it is checked.
#[derive(Clone, Copy, Debug)]
pub struct Ipv4Header<'a>(pub &'a [u8; SHORTEST]);

impl<'a> Ipv4Header<'a> {
    /// Returns the header at the start of `packet`; `None` if that has fewer than 20 bytes.
    #[inline(always)]
    #[must_use]
    pub fn first(packet: &'a [u8]) -> Option<Self> {
        packet.first_chunk().map(Self)
    }

    /// Returns the version, which should be 4.
    #[inline(always)]
    #[must_use]
    pub fn version(self) -> u8 {
        self.0[0] >> 4
    }

    /// Returns the length of the header with its options, in bytes.
    #[inline(always)]
    #[must_use]
    pub fn header_len(self) -> usize {
        usize::from(self.0[0] & 0xf) * 4
    }

    /// Returns the length of the packet in bytes.
    #[inline(always)]
    #[must_use]
    pub fn total_len(self) -> usize {
        u16::from_be_bytes([self.0[2], self.0[3]]).into()
    }

    /// Returns whether the packet is a fragment: not the first, or not the last.
    #[inline(always)]
    #[must_use]
    pub fn is_fragment(self) -> bool {
        u16::from_be_bytes([self.0[6], self.0[7]]) & 0x3fff != 0
    }

    /// Returns the time to live.
    #[inline(always)]
    #[must_use]
    pub fn ttl(self) -> u8 {
        self.0[8]
    }

    /// Returns the protocol of the payload: see [`crate::protocol`].
    #[inline(always)]
    #[must_use]
    pub fn protocol(self) -> u8 {
        self.0[9]
    }

    /// Returns the source address.
    #[inline(always)]
    #[must_use]
    pub fn source(self) -> Ipv4Addr {
        let [_, _, _, _, _, _, _, _, _, _, _, _, a, b, c, d, ..] = *self.0;
        Ipv4Addr::new(a, b, c, d)
    }

    /// Returns the destination address.
    #[inline(always)]
    #[must_use]
    pub fn destination(self) -> Ipv4Addr {
        let [.., a, b, c, d] = *self.0;
        Ipv4Addr::new(a, b, c, d)
    }

    /// Where options end and where the packet ends, if both are within `len` bytes.
    #[inline]
    fn ends(self, len: usize) -> Option<(usize, usize)> {
        let (header, total) = (self.header_len(), self.total_len());
        (self.version() == 4 && (SHORTEST..=total).contains(&header) && total <= len).then_some((header, total))
    }
}

/// A view of an IPv4 packet.
#[derive(Clone, Copy, Debug)]
pub struct Ipv4<'a> {
    header: &'a [u8; SHORTEST],
    options: &'a [u8],
    payload: &'a [u8],
}

impl<'a> Ipv4<'a> {
    /// Parses a packet; `None` if it is cut off, has another version, or its lengths contradict each other. Bytes
    /// behind the packet, such as padding, are left out. The checksum is not verified: see [`Self::is_checksum_right`].
    #[inline]
    #[must_use]
    pub fn parse(packet: &'a [u8]) -> Option<Self> {
        let (header, total) = Ipv4Header::first(packet)?.ends(packet.len())?;
        let (header, rest) = packet.get(..total)?.split_at_checked(header)?;
        let (header, options) = header.split_first_chunk()?;
        Some(Self { header, options, payload: rest })
    }

    /// Returns the fixed part of the header.
    #[inline(always)]
    #[must_use]
    pub fn header(&self) -> Ipv4Header<'a> {
        Ipv4Header(self.header)
    }

    /// Returns the bytes behind header and options, to the end of the packet.
    #[inline(always)]
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Returns whether the header checksum is correct.
    #[inline]
    #[must_use]
    pub fn is_checksum_right(&self) -> bool {
        Sum::of(self.header).and(self.options).is_right()
    }
}

/// A mutable view of an IPv4 packet.
#[derive(Debug)]
pub struct Ipv4Mut<'a> {
    pub(crate) header: &'a mut [u8; SHORTEST],
    options: &'a mut [u8],
    pub(crate) payload: &'a mut [u8],
}

impl<'a> Ipv4Mut<'a> {
    /// Parses a packet like [`Ipv4::parse`].
    #[inline]
    #[must_use]
    pub fn parse(packet: &'a mut [u8]) -> Option<Self> {
        let (header, total) = Ipv4Header::first(packet)?.ends(packet.len())?;
        let (header, payload) = packet.get_mut(..total)?.split_at_mut_checked(header)?;
        let (header, options) = header.split_first_chunk_mut()?;
        Some(Self { header, options, payload })
    }

    /// Returns a read-only view of the packet.
    #[inline(always)]
    #[must_use]
    pub fn view(&self) -> Ipv4<'_> {
        Ipv4 { header: self.header, options: self.options, payload: self.payload }
    }

    /// Changes the source address, and updates the header checksum.
    #[inline]
    pub fn set_source(&mut self, source: Ipv4Addr) {
        set_address(self.header, 12, source);
    }

    /// Changes the destination address, and updates the header checksum.
    #[inline]
    pub fn set_destination(&mut self, destination: Ipv4Addr) {
        set_address(self.header, 16, destination);
    }

    /// Decrements the time to live, and updates the header checksum, as a router does. Returns false, and changes
    /// nothing, if the packet may not be forwarded, because its time to live is 1 or 0.
    #[inline]
    pub fn hop(&mut self) -> bool {
        let lives = self.view().header().ttl() > 1;
        if lives {
            hop(self.header);
        }
        lives
    }

    /// Changes the time to live, and updates the header checksum.
    pub fn set_ttl(&mut self, ttl: u8) {
        let [_, _, _, _, _, _, _, _, old, protocol, high, low, ..] = &mut *self.header;
        let word = |ttl: u8| u16::from_be_bytes([ttl, *protocol]);
        let checksum = update_u16(u16::from_be_bytes([*high, *low]), word(*old), word(ttl));
        [*high, *low] = checksum.to_be_bytes();
        *old = ttl;
    }

    /// Computes the header checksum and writes it.
    pub fn fill_checksum(&mut self) {
        self.header[CHECKSUM..CHECKSUM + 2].fill(0);
        let checksum = Sum::of(self.header).and(self.options).checksum();
        self.header[CHECKSUM..CHECKSUM + 2].copy_from_slice(&checksum.to_be_bytes());
    }

    /// Returns the bytes behind header and options, to the end of the packet.
    #[inline(always)]
    #[must_use]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        self.payload
    }
}

/// Where the checksum is.
const CHECKSUM: usize = 10;

/// Changes the address at byte `at`, and the header checksum with it.
#[inline(always)]
pub(crate) fn set_address(header: &mut [u8; SHORTEST], at: usize, address: Ipv4Addr) {
    let old = u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let checksum = u16::from_be_bytes([header[CHECKSUM], header[CHECKSUM + 1]]);
    let checksum = update_u32(checksum, old, address.to_bits());
    header[CHECKSUM..CHECKSUM + 2].copy_from_slice(&checksum.to_be_bytes());
    header[at..at + 4].copy_from_slice(&address.octets());
}

/// Decrements the time to live of a header, and updates the checksum (RFC 1624, equation 3: the word of time to live
/// and protocol falls by 0x100, so the checksum rises by as much). Only for a packet that may be forwarded: a time to
/// live of 0 becomes 255, with a wrong checksum.
#[inline(always)]
pub fn hop(header: &mut [u8; SHORTEST]) {
    let [_, _, _, _, _, _, _, _, ttl, _, high, low, ..] = header;
    *ttl = ttl.wrapping_sub(1);
    let risen = u32::from(u16::from_ne_bytes([*high, *low])) + u32::from(u16::from_ne_bytes([1, 0]));
    // In ones' complement 0xffff is 0, and what is carried out at the top comes in at the bottom. That holds for words
    // read in either byte order (RFC 1071, section 2).
    let risen = if risen >= 0xffff { risen + 1 } else { risen };
    #[expect(clippy::cast_possible_truncation, reason = "the carry was added")]
    let risen = risen as u16;
    [*high, *low] = risen.to_ne_bytes();
}
