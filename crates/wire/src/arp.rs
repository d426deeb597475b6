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
    /// `None` if it is cut off, or about anything but IPv4 over Ethernet.
    #[must_use]
    pub fn parse(packet: &'a [u8]) -> Option<Self> {
        packet.first_chunk().filter(|packet| packet.starts_with(&KIND)).map(Self)
    }

    /// Whether it asks for a station's address.
    #[must_use]
    pub fn is_request(&self) -> bool {
        self.0[6..8] == REQUEST
    }

    /// The IPv4 address that is asked for, or that a reply is for.
    #[must_use]
    pub fn target(&self) -> Ipv4Addr {
        let [.., a, b, c, d] = *self.0;
        Ipv4Addr::new(a, b, c, d)
    }

    /// Whose packet it is: Ethernet and IPv4 address.
    #[must_use]
    pub fn sender(&self) -> ([u8; 6], Ipv4Addr) {
        let [_, _, _, _, _, _, _, _, a, b, c, d, e, f, w, x, y, z, ..] = *self.0;
        ([a, b, c, d, e, f], Ipv4Addr::new(w, x, y, z))
    }
}

/// The same, to be changed.
#[derive(Debug)]
pub struct ArpMut<'a>(&'a mut [u8; LEN]);

impl<'a> ArpMut<'a> {
    /// As [`Arp::parse`].
    #[must_use]
    pub fn parse(packet: &'a mut [u8]) -> Option<Self> {
        packet.first_chunk_mut().filter(|packet| packet.starts_with(&KIND)).map(Self)
    }

    /// The view that reads.
    #[must_use]
    pub fn view(&self) -> Arp<'_> {
        Arp(self.0)
    }

    /// Makes a request the reply to it: the address that was asked for is at station `mac`.
    pub fn answer(&mut self, mac: [u8; 6]) {
        let packet = &mut *self.0;
        packet[6..8].copy_from_slice(&REPLY);
        let (sender, target) = packet[8..].split_at_mut(10);
        sender.swap_with_slice(target);
        sender[..6].copy_from_slice(&mac);
    }
}

/// Makes an Ethernet frame that asks for the station of `address` the reply to it, from station `mac`. Returns false, and changes
/// nothing, for other frames, and where the station that asks is a group.
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
