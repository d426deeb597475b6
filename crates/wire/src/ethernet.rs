//! Ethernet headers (IEEE 802.3, 3.2) and VLAN tags (IEEE 802.1Q, 9.3): destination, source, tags, EtherType.

/// EtherTypes.
pub mod ether_type {
    /// IPv4 (RFC 894).
    pub const IPV4: u16 = 0x0800;
    /// ARP (RFC 826).
    pub const ARP: u16 = 0x0806;
    /// A VLAN tag.
    pub const VLAN: u16 = 0x8100;
    /// A service VLAN tag, usually followed by another tag.
    pub const SERVICE_VLAN: u16 = 0x88a8;
    /// IPv6 (RFC 2464, section 3).
    pub const IPV6: u16 = 0x86dd;
}

const HEADER: usize = 14;
const TAG: usize = 4;
/// VLAN tags that are looked behind.
const MOST_TAGS: usize = 2;

/// A view of an Ethernet frame without its check sequence, with up to two VLAN tags.
#[derive(Clone, Copy, Debug)]
pub struct Ethernet<'a> {
    header: &'a [u8; HEADER],
    payload: &'a [u8],
    ether_type: u16,
}

impl<'a> Ethernet<'a> {
    /// Parses a frame; `None` if it ends within its header or a tag.
    #[inline]
    #[must_use]
    pub fn parse(frame: &'a [u8]) -> Option<Self> {
        let (header, rest) = frame.split_first_chunk()?;
        let (ether_type, at) = behind_tags(header, rest)?;
        Some(Self { header, payload: rest.get(at..)?, ether_type })
    }

    /// Returns the destination address.
    #[must_use]
    pub fn destination(&self) -> [u8; 6] {
        let [a, b, c, d, e, f, ..] = *self.header;
        [a, b, c, d, e, f]
    }

    /// Returns the source address.
    #[must_use]
    pub fn source(&self) -> [u8; 6] {
        let [_, _, _, _, _, _, a, b, c, d, e, f, ..] = *self.header;
        [a, b, c, d, e, f]
    }

    /// Returns the type of the payload: the EtherType behind the tags.
    #[must_use]
    pub fn ether_type(&self) -> u16 {
        self.ether_type
    }

    /// Returns the bytes behind header and tags, padding included.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// A mutable view of an Ethernet frame without its check sequence, with up to two VLAN tags.
#[derive(Debug)]
pub struct EthernetMut<'a> {
    header: &'a mut [u8; HEADER],
    payload: &'a mut [u8],
    ether_type: u16,
}

impl<'a> EthernetMut<'a> {
    /// Parses a frame like [`Ethernet::parse`].
    #[inline]
    #[must_use]
    pub fn parse(frame: &'a mut [u8]) -> Option<Self> {
        let (header, rest) = frame.split_first_chunk_mut()?;
        let (ether_type, at) = behind_tags(header, rest)?;
        Some(Self { header, payload: rest.get_mut(at..)?, ether_type })
    }

    /// Returns a read-only view of the frame.
    #[must_use]
    pub fn view(&self) -> Ethernet<'_> {
        Ethernet { header: self.header, payload: self.payload, ether_type: self.ether_type }
    }

    /// Returns the type of the payload: the EtherType behind the tags.
    #[must_use]
    pub fn ether_type(&self) -> u16 {
        self.ether_type
    }

    /// Changes both addresses.
    pub fn set_addresses(&mut self, destination: [u8; 6], source: [u8; 6]) {
        let (addresses, _) = self.header.as_chunks_mut::<6>();
        [addresses[0], addresses[1]] = [destination, source];
    }

    /// Returns the bytes behind header and tags, padding included.
    #[must_use]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        self.payload
    }
}

/// The EtherType behind the tags, and where in `rest`, which follows the header, the payload begins.
#[inline]
fn behind_tags(header: &[u8; HEADER], rest: &[u8]) -> Option<(u16, usize)> {
    let [.., high, low] = *header;
    let (mut ether_type, mut at) = (u16::from_be_bytes([high, low]), 0);
    while matches!(ether_type, ether_type::VLAN | ether_type::SERVICE_VLAN) && at < MOST_TAGS * TAG {
        let [_, _, high, low] = *rest.get(at..)?.first_chunk::<TAG>()?;
        (ether_type, at) = (u16::from_be_bytes([high, low]), at + TAG);
    }
    Some((ether_type, at))
}
