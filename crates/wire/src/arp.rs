//! ARP for IPv4 over Ethernet (RFC 826).

use crate::ethernet::{EthernetMut, ether_type};
use std::net::Ipv4Addr;

const LEN: usize = 28;
/// Ethernet, IPv4, and how long their addresses are.
const KIND: [u8; 6] = [0, 1, 8, 0, 6, 4];
const REQUEST: [u8; 2] = [0, 1];
const REPLY: [u8; 2] = [0, 2];

/// An ARP packet.
#[derive(Clone, Copy, Debug)]
pub struct Arp<'a>(&'a [u8; LEN]);

impl<'a> Arp<'a> {
    /// Parses an ARP packet; `None` if it is cut off, or for anything but IPv4 over Ethernet.
    #[must_use]
    pub fn parse(packet: &'a [u8]) -> Option<Self> {
        packet.first_chunk().filter(|packet| packet.starts_with(&KIND)).map(Self)
    }

    /// Returns whether it is a request: whether it asks for the Ethernet address of a host.
    #[must_use]
    pub fn is_request(&self) -> bool {
        self.0[6..8] == REQUEST
    }

    /// Returns whether it is a reply: whether its sender says where it is.
    #[must_use]
    pub fn is_reply(&self) -> bool {
        self.0[6..8] == REPLY
    }

    /// Returns the target IPv4 address: the one that a request asks for, or that a reply is sent to.
    #[must_use]
    pub fn target(&self) -> Ipv4Addr {
        let [.., a, b, c, d] = *self.0;
        Ipv4Addr::new(a, b, c, d)
    }

    /// Returns the Ethernet and IPv4 address of the sender.
    #[must_use]
    pub fn sender(&self) -> ([u8; 6], Ipv4Addr) {
        let [_, _, _, _, _, _, _, _, a, b, c, d, e, f, w, x, y, z, ..] = *self.0;
        ([a, b, c, d, e, f], Ipv4Addr::new(w, x, y, z))
    }
}

/// A mutable view of an ARP packet.
#[derive(Debug)]
pub struct ArpMut<'a>(&'a mut [u8; LEN]);

impl<'a> ArpMut<'a> {
    /// Parses an ARP packet like [`Arp::parse`].
    #[must_use]
    pub fn parse(packet: &'a mut [u8]) -> Option<Self> {
        packet.first_chunk_mut().filter(|packet| packet.starts_with(&KIND)).map(Self)
    }

    /// Returns a read-only view of the packet.
    #[must_use]
    pub fn view(&self) -> Arp<'_> {
        Arp(self.0)
    }

    /// Turns a request into the reply to it, which says that the requested address is at station `mac`.
    pub fn answer(&mut self, mac: [u8; 6]) {
        let packet = &mut *self.0;
        packet[6..8].copy_from_slice(&REPLY);
        let (sender, target) = packet[8..].split_at_mut(10);
        sender.swap_with_slice(target);
        sender[..6].copy_from_slice(&mac);
    }
}

/// Turns an Ethernet frame with an ARP request for `address` into the reply to it, from station `mac`. Returns false,
/// and changes nothing, for other frames, and if the sender's Ethernet address is a group address.
pub fn answer_arp(frame: &mut [u8], address: Ipv4Addr, mac: [u8; 6]) -> bool {
    let Some(mut ethernet) = EthernetMut::parse(frame) else { return false };
    if ethernet.view().ether_type() != ether_type::ARP {
        return false;
    }
    let Some(mut arp) = ArpMut::parse(ethernet.payload_mut()) else { return false };
    if !arp.view().is_request() || arp.view().target() != address {
        return false;
    }
    let (asks, _) = arp.view().sender();
    if asks[0] & 1 != 0 {
        return false;
    }
    arp.answer(mac);
    ethernet.set_addresses(asks, mac);
    true
}
