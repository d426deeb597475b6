//! Echo requests and replies, and why a reply does not come (RFC 792; RFC 4443; RFC 1122, 3.2.2).

use crate::address::is_unicast;
use crate::error::Error;
use crate::frame::{ethernet, icmp, icmpv6};
use crate::nd;
use crate::station::{Event, Send, Station};
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;
use wire::{Icmp, Ipv4, Ipv4Header, Ipv6, Ipv6Header, Sum, ether_type, icmp_type, protocol};

/// ICMPv6's types of them (RFC 4443, 4.1 and 4.2).
const ECHO_REQUEST: u8 = 128;
const ECHO_REPLY: u8 = 129;
/// Bytes before the data.
const HEADER: usize = 8;
/// The hop limit of what is sent, and of neighbour discovery, which no router has passed on (RFC 4861, 7.1.1).
const HOPS: u8 = 64;
const UNTOUCHED: u8 = 255;

/// An echo request, or the reply to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo<'a> {
    /// Who sends it.
    pub from: IpAddr,
    /// Whom it is for.
    pub to: IpAddr,
    /// Which program asks.
    pub identifier: u16,
    /// Which of its questions.
    pub sequence: u16,
    /// What is to be sent back.
    pub payload: &'a [u8],
}

/// Why there is no reply to an echo request, as somebody on the way says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Who says so.
    pub from: IpAddr,
    /// Whom the request was for.
    pub to: IpAddr,
    /// Type and code of the message (RFC 792, RFC 4443).
    pub kind: (u8, u8),
    /// [`Echo::identifier`] of the request.
    pub identifier: u16,
    /// [`Echo::sequence`] of the request.
    pub sequence: u16,
}

impl Echo<'_> {
    /// Writes the frame of an echo request, for the MAC address `next_hop`.
    ///
    /// # Errors
    ///
    /// [`Error::Echo`] if it is too long for an IP packet, or the addresses are of two families. Then `frame` holds nothing of use.
    pub fn write(&self, frame: &mut Vec<u8>, mac: [u8; 6], next_hop: [u8; 6]) -> Result<(), Error> {
        let Self { from, to, payload, .. } = *self;
        let is_written = match (from, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                ethernet(frame, next_hop, mac, ether_type::IPV4);
                icmp(frame, from, to, 0, [&self.header(icmp_type::ECHO_REQUEST), payload])
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                ethernet(frame, next_hop, mac, ether_type::IPV6);
                icmpv6(frame, from, to, HOPS, [&self.header(ECHO_REQUEST), payload])
            }
            _ => false,
        };
        if is_written { Ok(()) } else { Err(Error::Echo { from, to, payload: payload.len() }) }
    }

    fn header(&self, kind: u8) -> [u8; HEADER] {
        let ([a, b], [c, d]) = (self.identifier.to_be_bytes(), self.sequence.to_be_bytes());
        [kind, 0, 0, 0, a, b, c, d]
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, code) = self.kind;
        let words = match (self.from, kind, code) {
            (IpAddr::V4(_), 3, 0) | (IpAddr::V6(_), 1, 0) => "no route to the network",
            (IpAddr::V4(_), 3, 1) | (IpAddr::V6(_), 1, 3) => "the host does not answer on its link",
            (IpAddr::V4(_), 3, 4) | (IpAddr::V6(_), 2, 0) => "the packet is too long for a link on the way",
            (IpAddr::V4(_), 3, 9 | 10 | 13) | (IpAddr::V6(_), 1, 1) => "prohibited",
            (IpAddr::V4(_), 3, _) | (IpAddr::V6(_), 1, _) => "unreachable",
            (IpAddr::V4(_), 11, _) | (IpAddr::V6(_), 3, _) => "no hop is left",
            _ => "a problem",
        };
        write!(f, "{} says of {}: {words} (type {kind}, code {code})", self.from, self.to)
    }
}

impl Station {
    /// An ICMP message for it, of which the IPv4 header has been checked.
    pub(crate) fn saw_icmp<'f>(
        &mut self,
        now: Duration,
        [to_mac, from_mac]: [[u8; 6]; 2],
        ip: Ipv4<'f>,
        send: &mut Send<'_>,
    ) -> Event<'f> {
        let (from, to, message) = (ip.header().source(), ip.header().destination(), ip.payload());
        let Some(icmp_message) = Icmp::parse(message) else { return self.malformed() };
        if !icmp_message.is_checksum_right() {
            self.counters.bad_checksum += 1;
            return Event::Dropped;
        }
        if !self.is_peer(from.into()) || (to_mac[0] | from_mac[0]) & 1 != 0 {
            return self.malformed();
        }
        match icmp_message.kind() {
            (icmp_type::ECHO_REQUEST, 0) => {
                if !self.pings.take(now) {
                    return self.limited();
                }
                let Some(([_, _, _, _, a, b, c, d], data)) = message.split_first_chunk::<HEADER>() else {
                    return self.malformed();
                };
                let header = [icmp_type::ECHO_REPLY, 0, 0, 0, *a, *b, *c, *d];
                // The type of service comes back (RFC 1349, 5.1), options do not.
                let service = ip.header().0[1];
                let sent = self.send(send, |frame, mac| {
                    ethernet(frame, from_mac, mac, ether_type::IPV4);
                    icmp(frame, to, from, service, [&header, data])
                });
                self.counters.echo_answered += u64::from(sent);
                Event::Handled
            }
            (icmp_type::ECHO_REPLY, 0) => reply(from.into(), to.into(), message),
            kind @ (3 | 11 | 12, _) => quoted_v4(message).map_or(Event::Other, |(target, identifier, sequence)| {
                Event::Trouble(Trouble { from: from.into(), to: target, kind, identifier, sequence })
            }),
            _ => Event::Other,
        }
    }

    /// An ICMPv6 message for it, or for a group that it is in.
    pub(crate) fn saw_icmpv6<'f>(
        &mut self,
        now: Duration,
        [to_mac, from_mac]: [[u8; 6]; 2],
        ip: Ipv6<'f>,
        send: &mut Send<'_>,
    ) -> Event<'f> {
        let (from, to, message) = (ip.header().source(), ip.header().destination(), ip.payload());
        let Some(&[kind, code, ..]) = message.first_chunk::<HEADER>() else { return self.malformed() };
        let pseudo = u32::try_from(message.len()).map(|len| Sum::pseudo_ipv6(from, to, protocol::ICMPV6, len));
        if !pseudo.is_ok_and(|pseudo| pseudo.and(message).is_right()) {
            self.counters.bad_checksum += 1;
            return Event::Dropped;
        }
        if matches!(kind, nd::SOLICITATION | nd::ADVERTISEMENT) {
            let untouched = ip.header().hop_limit() == UNTOUCHED && code == 0 && !from.is_multicast();
            return match untouched.then(|| nd::Message::parse(message)).flatten() {
                Some(found) if kind == nd::SOLICITATION => {
                    self.saw_solicitation(now, from_mac, [from, to], found, send)
                }
                Some(found) => self.saw_advertisement(now, from_mac, to, found),
                None => self.malformed(),
            };
        }
        let is_echo = matches!((kind, code), (ECHO_REQUEST | ECHO_REPLY, 0));
        // Echo requests to groups are not answered, which RFC 4443 leaves to the host.
        if to.is_multicast() || (!is_echo && !matches!(kind, 1..=4)) {
            return Event::Other;
        }
        if !self.is_peer(from.into()) || (to_mac[0] | from_mac[0]) & 1 != 0 {
            return self.malformed();
        }
        match kind {
            ECHO_REQUEST => {
                if !self.pings.take(now) {
                    return self.limited();
                }
                let Some(([_, _, _, _, a, b, c, d], data)) = message.split_first_chunk::<HEADER>() else {
                    return self.malformed();
                };
                let header = [ECHO_REPLY, 0, 0, 0, *a, *b, *c, *d];
                let sent = self.send(send, |frame, mac| {
                    ethernet(frame, from_mac, mac, ether_type::IPV6);
                    icmpv6(frame, to, from, HOPS, [&header, data])
                });
                self.counters.echo_answered += u64::from(sent);
                Event::Handled
            }
            ECHO_REPLY => reply(from.into(), to.into(), message),
            _ => quoted_v6(message).map_or(Event::Other, |(target, identifier, sequence)| {
                Event::Trouble(Trouble { from: from.into(), to: target, kind: (kind, code), identifier, sequence })
            }),
        }
    }

    /// Whether a packet may come from an address: that of one other host (RFC 1122, 3.2.1.3).
    fn is_peer(&self, ip: IpAddr) -> bool {
        let is_ours = |own: &crate::own::Own| own.address.ip() == ip || own.address.is_network_or_broadcast(ip);
        is_unicast(ip) && !self.own.iter().any(is_ours)
    }
}

fn reply(from: IpAddr, to: IpAddr, message: &[u8]) -> Event<'_> {
    let Some(([_, _, _, _, a, b, c, d], payload)) = message.split_first_chunk::<HEADER>() else { return Event::Other };
    let (identifier, sequence) = (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]));
    Event::Reply(Echo { from, to, identifier, sequence, payload })
}

/// The echo request that an error message quotes: its destination, identifier and sequence number. What is quoted may end behind the
/// header of the request, whatever its lengths say (RFC 792).
fn quoted_v4(message: &[u8]) -> Option<(IpAddr, u16, u16)> {
    let quoted = message.get(HEADER..)?;
    let header = Ipv4Header::first(quoted)?;
    let is_icmp = header.version() == 4 && header.protocol() == protocol::ICMP;
    let request = quoted.get(header.header_len().max(20)..).filter(|_| is_icmp)?;
    let (identifier, sequence) = request_of(request, icmp_type::ECHO_REQUEST)?;
    Some((header.destination().into(), identifier, sequence))
}

fn quoted_v6(message: &[u8]) -> Option<(IpAddr, u16, u16)> {
    let quoted = message.get(HEADER..)?;
    let header = Ipv6Header::first(quoted)?;
    let is_icmp = header.version() == 6 && header.next_header() == protocol::ICMPV6;
    let (identifier, sequence) = request_of(quoted.get(40..).filter(|_| is_icmp)?, ECHO_REQUEST)?;
    Some((header.destination().into(), identifier, sequence))
}

fn request_of(message: &[u8], kind: u8) -> Option<(u16, u16)> {
    let [found, 0, _, _, a, b, c, d] = *message.first_chunk::<HEADER>()? else { return None };
    (found == kind).then(|| (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
}
