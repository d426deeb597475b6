//! ARP (RFC 826), and its use to find and defend addresses (RFC 5227).

use crate::address::is_unicast;
use crate::frame::{ethernet, pad};
use crate::own::Say;
use crate::station::{Announce, Event, Probe, Send, Station, is_station};
use std::net::Ipv4Addr;
use std::time::Duration;
use wire::{Arp, ether_type};

const REQUEST: u8 = 1;
const REPLY: u8 = 2;
const BROADCAST: [u8; 6] = [0xff; 6];

impl Station {
    pub(crate) fn saw_arp(&mut self, now: Duration, packet: &[u8], send: &mut Send<'_>) -> Event<'static> {
        let Some(arp) = Arp::parse(packet) else { return self.malformed() };
        let ((mac, ip), target) = (arp.sender(), arp.target());
        let is_known = arp.is_request() || arp.is_reply();
        // A probe has no address yet.
        if !is_known || !is_station(mac) || !(ip.is_unspecified() || is_unicast(ip.into())) {
            return self.malformed();
        }
        if mac == self.mac {
            return Event::Other;
        }
        if self.own_mut(ip.into()).is_some() {
            return self.contested(ip.into(), mac);
        }
        let moved = self.neighbours.learn(now, ip.into(), Some(mac), true);
        self.counters.moved += u64::from(moved);
        if arp.is_reply() || !self.answers_for(target.into()) {
            return Event::Handled;
        }
        if !self.questions.take(now) {
            return self.limited();
        }
        self.counters.arp_answered += 1;
        self.send(send, |frame, ours| write(frame, mac, REPLY, (ours, target), (mac, ip)));
        Event::Handled
    }

    /// Asks who has an address: all, or the one that had it.
    pub(crate) fn ask_arp(&mut self, source: Ipv4Addr, ip: Ipv4Addr, mac: Option<[u8; 6]>, send: &mut Send<'_>) {
        let to = mac.unwrap_or(BROADCAST);
        self.send(send, |frame, ours| write(frame, to, REQUEST, (ours, source), ([0; 6], ip)));
    }

    /// Asks whether somebody has an address of its own, or says that it has it (RFC 5227, 2.1.1 and 2.3).
    pub(crate) fn say_arp(&mut self, say: Say, ip: Ipv4Addr, send: &mut Send<'_>) {
        let sender = match say {
            Probe => Ipv4Addr::UNSPECIFIED,
            Announce => ip,
        };
        self.send(send, |frame, ours| write(frame, BROADCAST, REQUEST, (ours, sender), ([0; 6], ip)));
    }
}

type Host = ([u8; 6], Ipv4Addr);

fn write(frame: &mut Vec<u8>, to: [u8; 6], operation: u8, sender: Host, target: Host) -> bool {
    ethernet(frame, to, sender.0, ether_type::ARP);
    // Ethernet, IPv4, and how long their addresses are.
    frame.extend([0, 1, 8, 0, 6, 4, 0, operation]);
    for (mac, ip) in [sender, target] {
        frame.extend(mac);
        frame.extend(ip.octets());
    }
    pad(frame);
    true
}
