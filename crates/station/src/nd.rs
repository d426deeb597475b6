//! Neighbour discovery (RFC 4861), and duplicate addresses (RFC 4862, 5.4).

use crate::address::{group_mac, solicited_node};
use crate::frame::{ethernet, icmpv6};
use crate::own::Say;
use crate::station::{ALL_NODES, Announce, Event, Probe, Send, Station, all_nodes_mac, is_station};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;
use wire::ether_type;

/// Types of messages.
pub(crate) const SOLICITATION: u8 = 135;
pub(crate) const ADVERTISEMENT: u8 = 136;
/// Types of options: the MAC address of the sender, and of the target.
const SOURCE: u8 = 1;
const TARGET: u8 = 2;
/// Flags of an advertisement: it answers a question, and what it says counts more than what was known.
const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;
/// Bytes before the options.
const HEADER: usize = 24;
const HOPS: u8 = 255;

/// A solicitation or an advertisement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    flags: u8,
    target: Ipv6Addr,
    source_mac: Option<[u8; 6]>,
    target_mac: Option<[u8; 6]>,
}

impl Message {
    /// Parses one with its options; `None` if it is cut off, an option has no length, or an address is of a group.
    pub(crate) fn parse(message: &[u8]) -> Option<Self> {
        let (header, mut rest) = message.split_first_chunk::<HEADER>()?;
        let target = Ipv6Addr::from(*header.last_chunk::<16>()?);
        let mut found = Self { flags: header[4], target, source_mac: None, target_mac: None };
        while let Some(&[kind, units]) = rest.first_chunk::<2>() {
            if units == 0 {
                return None;
            }
            let (option, next) = rest.split_at_checked(usize::from(units) * 8)?;
            // A link layer with longer addresses is none of ours.
            let mac = option.get(2..).and_then(|mac| mac.first_chunk::<6>()).copied().filter(|_| units == 1);
            match kind {
                SOURCE => found.source_mac = mac.or(found.source_mac),
                TARGET => found.target_mac = mac.or(found.target_mac),
                _ => {}
            }
            rest = next;
        }
        let macs = [found.source_mac, found.target_mac];
        let is_right = rest.is_empty() && !target.is_multicast() && macs.into_iter().flatten().all(is_station);
        is_right.then_some(found)
    }
}

impl Station {
    pub(crate) fn saw_solicitation(
        &mut self,
        now: Duration,
        from_mac: [u8; 6],
        [from, to]: [Ipv6Addr; 2],
        message: Message,
        send: &mut Send<'_>,
    ) -> Event<'static> {
        let target = message.target;
        let is_probe = from.is_unspecified();
        // RFC 4861, 7.1.1.
        let is_odd_probe = is_probe && (to != solicited_node(target) || message.source_mac.is_some());
        if is_odd_probe || !is_station(from_mac) {
            return self.malformed();
        }
        let asks = message.source_mac.unwrap_or(from_mac);
        if asks == self.mac {
            return Event::Other;
        }
        if self.own_mut(from.into()).is_some() {
            return self.contested(from.into(), asks);
        }
        if let (false, Some(mac)) = (is_probe, message.source_mac) {
            let moved = self.neighbours.learn(now, from.into(), Some(mac), true);
            self.counters.moved += u64::from(moved);
        }
        if is_probe && self.own_mut(target.into()).is_some_and(|own| own.is_probing()) {
            return self.contested(target.into(), from_mac);
        }
        if !self.answers_for(target.into()) {
            return Event::Handled;
        }
        if !self.questions.take(now) {
            return self.limited();
        }
        self.counters.nd_answered += 1;
        match is_probe {
            true => self.advertise(target, ALL_NODES, all_nodes_mac(), OVERRIDE, send),
            false => self.advertise(target, from, asks, SOLICITED | OVERRIDE, send),
        }
        Event::Handled
    }

    pub(crate) fn saw_advertisement(
        &mut self,
        now: Duration,
        from_mac: [u8; 6],
        to: Ipv6Addr,
        message: Message,
    ) -> Event<'static> {
        let Message { flags, target, target_mac, .. } = message;
        // RFC 4861, 7.1.2.
        if (to.is_multicast() && flags & SOLICITED != 0) || !is_station(from_mac) {
            return self.malformed();
        }
        if self.own_mut(target.into()).is_some() {
            return self.contested(target.into(), target_mac.unwrap_or(from_mac));
        }
        let moved = self.neighbours.learn(now, target.into(), target_mac, flags & OVERRIDE != 0);
        self.counters.moved += u64::from(moved);
        Event::Handled
    }

    /// Asks where an address is: its group, or the one that had it.
    pub(crate) fn ask_nd(&mut self, source: Ipv6Addr, ip: Ipv6Addr, mac: Option<[u8; 6]>, send: &mut Send<'_>) {
        let (to, to_mac) = match mac {
            Some(mac) => (ip, mac),
            None => (solicited_node(ip), group_mac(solicited_node(ip))),
        };
        self.send(send, |frame, ours| {
            let option = option(SOURCE, ours);
            write(frame, ours, to_mac, [source, to], [&header(SOLICITATION, 0, ip), &option])
        });
    }

    /// Asks whether somebody has an address of its own, or says that it has it.
    pub(crate) fn say_nd(&mut self, say: Say, ip: Ipv6Addr, send: &mut Send<'_>) {
        match say {
            Probe => {
                let group = solicited_node(ip);
                let ends = [Ipv6Addr::UNSPECIFIED, group];
                self.send(send, |frame, ours| {
                    write(frame, ours, group_mac(group), ends, [&header(SOLICITATION, 0, ip), &[]])
                });
            }
            Announce => self.advertise(ip, ALL_NODES, all_nodes_mac(), OVERRIDE, send),
        }
    }

    fn advertise(&mut self, ip: Ipv6Addr, to: Ipv6Addr, to_mac: [u8; 6], flags: u8, send: &mut Send<'_>) {
        debug_assert!(self.answers_for(IpAddr::V6(ip)), "an address that is not its own");
        self.send(send, |frame, ours| {
            let option = option(TARGET, ours);
            write(frame, ours, to_mac, [ip, to], [&header(ADVERTISEMENT, flags, ip), &option])
        });
    }
}

fn header(kind: u8, flags: u8, target: Ipv6Addr) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    (header[0], header[4]) = (kind, flags);
    header[8..].copy_from_slice(&target.octets());
    header
}

fn option(kind: u8, mac: [u8; 6]) -> [u8; 8] {
    let [a, b, c, d, e, f] = mac;
    [kind, 1, a, b, c, d, e, f]
}

fn write(frame: &mut Vec<u8>, ours: [u8; 6], to_mac: [u8; 6], ends: [Ipv6Addr; 2], message: [&[u8]; 2]) -> bool {
    ethernet(frame, to_mac, ours, ether_type::IPV6);
    icmpv6(frame, ends[0], ends[1], HOPS, message)
}
