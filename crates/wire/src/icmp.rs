//! ICMP messages (RFC 792).

use crate::checksum::{Sum, update_u16};
use crate::ethernet::{EthernetMut, ether_type};
use crate::ipv4::Ipv4Mut;
use crate::transport::protocol;
use std::net::Ipv4Addr;

/// Types of ICMP messages.
pub mod icmp_type {
    /// The answer to a ping.
    pub const ECHO_REPLY: u8 = 0;
    /// A ping.
    pub const ECHO_REQUEST: u8 = 8;
}

const HEADER: usize = 8;

/// A view of an ICMP message.
#[derive(Clone, Copy, Debug)]
pub struct Icmp<'a> {
    header: &'a [u8; HEADER],
    payload: &'a [u8],
}

impl<'a> Icmp<'a> {
    /// Parses the payload of an IPv4 packet; `None` if the message is cut off.
    #[must_use]
    pub fn parse(message: &'a [u8]) -> Option<Self> {
        message.split_first_chunk().map(|(header, payload)| Self { header, payload })
    }

    /// Returns type and code.
    #[must_use]
    pub fn kind(&self) -> (u8, u8) {
        (self.header[0], self.header[1])
    }

    /// Returns whether the checksum is correct.
    #[must_use]
    pub fn is_checksum_right(&self) -> bool {
        Sum::of(self.header).and(self.payload).is_right()
    }
}

/// A mutable view of an ICMP message.
#[derive(Debug)]
pub struct IcmpMut<'a> {
    header: &'a mut [u8; HEADER],
    payload: &'a mut [u8],
}

impl<'a> IcmpMut<'a> {
    /// Parses a message like [`Icmp::parse`].
    #[must_use]
    pub fn parse(message: &'a mut [u8]) -> Option<Self> {
        message.split_first_chunk_mut().map(|(header, payload)| Self { header, payload })
    }

    /// Returns a read-only view of the message.
    #[must_use]
    pub fn view(&self) -> Icmp<'_> {
        Icmp { header: self.header, payload: self.payload }
    }

    /// Turns an echo request into the reply to it, and updates the checksum; a wrong checksum stays wrong. Returns
    /// false, and changes nothing, for other messages.
    pub fn answer_echo(&mut self) -> bool {
        let [kind, code, high, low, ..] = self.header;
        if (*kind, *code) != (icmp_type::ECHO_REQUEST, 0) {
            return false;
        }
        *kind = icmp_type::ECHO_REPLY;
        let checksum = u16::from_be_bytes([*high, *low]);
        let word = |kind: u8| u16::from_be_bytes([kind, 0]);
        let answer = update_u16(checksum, word(icmp_type::ECHO_REQUEST), word(icmp_type::ECHO_REPLY));
        [*high, *low] = answer.to_be_bytes();
        true
    }
}

/// Turns an Ethernet frame with an echo request for `address` into the reply to it, with a time to live of 64. Returns
/// false, and changes nothing, for other frames, for fragments, and for frames from or to a group of stations or hosts,
/// or from `address` itself (RFC 1122, 3.2.1.3 and 3.2.2.6). Wrong checksums stay wrong.
pub fn answer_ping(frame: &mut [u8], address: Ipv4Addr) -> bool {
    let Some(mut ethernet) = EthernetMut::parse(frame) else { return false };
    let (to, from) = (ethernet.view().destination(), ethernet.view().source());
    let is_group = (to[0] | from[0]) & 1 != 0;
    if is_group || ethernet.view().ether_type() != ether_type::IPV4 {
        return false;
    }
    let Some(mut ip) = Ipv4Mut::parse(ethernet.payload_mut()) else { return false };
    let header = ip.view();
    let (header, asks) = (header.header(), header.header().source());
    if header.protocol() != protocol::ICMP || header.is_fragment() || header.destination() != address {
        return false;
    }
    if asks == address || asks.is_multicast() || asks.is_broadcast() || asks.is_unspecified() {
        return false;
    }
    if !IcmpMut::parse(ip.payload_mut()).is_some_and(|mut message| message.answer_echo()) {
        return false;
    }
    ip.set_ttl(64);
    ip.set_source(address);
    ip.set_destination(asks);
    ethernet.set_addresses(from, to);
    true
}
