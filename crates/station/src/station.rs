//! What a station is, and which protocol a frame is of.

use crate::address::{InterfaceAddress, group_mac, is_unicast, solicited_node};
use crate::echo::{Echo, Trouble};
use crate::error::Error;
use crate::limit::Limit;
use crate::neighbours::Neighbours;
use crate::own::{Own, Say};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;
use wire::{Ipv4, Ipv6, ether_type, protocol};

/// Answers a second of each kind, and how many of them at once.
const ANSWERS_A_SECOND: u32 = 10_000;
const BURST: u32 = 1_000;

/// Takes frames to be sent.
pub(crate) type Send<'s> = dyn FnMut(&[u8]) + 's;

/// A host on a link. Times are those since any moment, and do not go backwards.
#[derive(Debug)]
pub struct Station {
    pub(crate) mac: [u8; 6],
    pub(crate) own: Vec<Own>,
    gateways: Vec<IpAddr>,
    pub(crate) neighbours: Neighbours,
    pub(crate) questions: Limit,
    pub(crate) pings: Limit,
    pub(crate) counters: Counters,
    /// Room for a frame to be sent.
    frame: Vec<u8>,
}

/// What a station has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// ARP requests answered.
    pub arp_answered: u64,
    /// Neighbour solicitations answered.
    pub nd_answered: u64,
    /// Echo requests answered.
    pub echo_answered: u64,
    /// Questions that were not answered, as there were too many.
    pub limited: u64,
    /// Frames that contradict themselves or their protocol.
    pub malformed: u64,
    /// Frames with a wrong checksum.
    pub bad_checksum: u64,
    /// Fragments, which are not put together.
    pub fragments: u64,
    /// Frames of another station that claims an address of this one.
    pub conflicts: u64,
    /// Next hops that changed their MAC address.
    pub moved: u64,
}

/// What a frame was to a station.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'f> {
    /// None of its business.
    Other,
    /// A question, which was answered, or what others on the link ask and say of where they are, of which note was taken.
    Handled,
    /// Something for the station that is not answered: [`Counters`] say why.
    Dropped,
    /// The reply to an echo request.
    Reply(Echo<'f>),
    /// Why there is no reply to an echo request.
    Trouble(Trouble),
}

impl Station {
    /// Creates a host with a MAC address, addresses, and at most one gateway of each family that counts (the first). With an IPv6
    /// address it has the link-local one of its MAC address too. Gateways are on the link, whatever their addresses.
    ///
    /// # Errors
    ///
    /// [`Error::Mac`], [`Error::NotUnicast`] and [`Error::Own`] if an address cannot be what it is given for.
    pub fn new(mac: [u8; 6], addresses: &[InterfaceAddress], gateways: &[IpAddr]) -> Result<Self, Error> {
        if mac[0] & 1 != 0 || mac == [0; 6] {
            return Err(Error::Mac);
        }
        let mut own: Vec<Own> = Vec::new();
        let link_local = InterfaceAddress::link_local(mac);
        let more = addresses.iter().any(|address| address.ip().is_ipv6()).then_some(link_local);
        for address in addresses.iter().copied().chain(more) {
            if !own.iter().any(|own| own.address.ip() == address.ip()) {
                own.push(Own::new(address));
            }
        }
        for gateway in gateways {
            if !is_unicast(*gateway) {
                return Err(Error::NotUnicast(*gateway));
            }
            if own.iter().any(|own| own.address.ip() == *gateway) {
                return Err(Error::Own(*gateway));
            }
        }
        Ok(Self {
            mac,
            own,
            gateways: gateways.to_vec(),
            neighbours: Neighbours::default(),
            questions: Limit::new(ANSWERS_A_SECOND, BURST),
            pings: Limit::new(ANSWERS_A_SECOND, BURST),
            counters: Counters::default(),
            frame: Vec::new(),
        })
    }

    /// Returns what it has done so far.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns an error for the first address that turned out to be another station's; it is not answered for.
    ///
    /// # Errors
    ///
    /// [`Error::Duplicate`].
    pub fn check(&self) -> Result<(), Error> {
        let duplicate = |own: &Own| Some(Error::Duplicate { address: own.address.ip(), mac: own.duplicate()? });
        self.own.iter().find_map(duplicate).map_or(Ok(()), Err)
    }

    /// Takes a frame, without check sequence; what is to be sent goes to `send`, one frame at most.
    pub fn receive<'f>(&mut self, now: Duration, frame: &'f [u8], send: &mut Send<'_>) -> Event<'f> {
        let Some((&header, payload)) = frame.split_first_chunk::<14>() else { return self.malformed() };
        let [a, b, c, d, e, f, g, h, i, j, k, l, high, low] = header;
        let (to, from) = ([a, b, c, d, e, f], [g, h, i, j, k, l]);
        let is_group = a & 1 != 0;
        // A wire that is a loop brings back what was sent.
        if (to != self.mac && !is_group) || from == self.mac {
            return Event::Other;
        }
        match u16::from_be_bytes([high, low]) {
            ether_type::ARP => self.saw_arp(now, payload, send),
            ether_type::IPV4 => match Ipv4::parse(payload) {
                Some(ip) => self.saw_ipv4(now, [to, from], ip, send),
                None => self.malformed(),
            },
            ether_type::IPV6 => match Ipv6::parse(payload) {
                Some(ip) => self.saw_ipv6(now, [to, from], ip, send),
                None => self.malformed(),
            },
            _ => Event::Other,
        }
    }

    /// Sends what is due: questions for next hops, and about its own addresses. To be called often, every 100 ms or so.
    pub fn poll(&mut self, now: Duration, send: &mut Send<'_>) {
        for index in 0..self.own.len() {
            let say = self.own[index].due(now);
            match (say, self.own[index].address.ip()) {
                (Some(say), IpAddr::V4(ip)) => self.say_arp(say, ip, send),
                (Some(say), IpAddr::V6(ip)) => self.say_nd(say, ip, send),
                (None, _) => {}
            }
        }
        let mut neighbours = std::mem::take(&mut self.neighbours);
        for (address, mac) in neighbours.due(now) {
            match (address, self.source(address)) {
                (IpAddr::V4(address), Ok(IpAddr::V4(source))) => self.ask_arp(source, address, mac, send),
                (IpAddr::V6(address), Ok(IpAddr::V6(source))) => self.ask_nd(source, address, mac, send),
                // Nobody to ask from: the question is not sent, and gets no answer.
                _ => {}
            }
        }
        self.neighbours = neighbours;
    }

    /// Returns the MAC address to send frames for `destination` to: its own, or that of a gateway. `None` while that is asked for:
    /// call [`Self::poll`], give it what comes in, and ask again.
    ///
    /// # Errors
    ///
    /// [`Error::NoAnswer`], three seconds after the first call, and for a second from then on; [`Error::NotUnicast`], [`Error::Own`],
    /// [`Error::NoAddress`], [`Error::NoRoute`], [`Error::Duplicate`] and [`Error::Busy`] at once.
    pub fn resolve(&mut self, now: Duration, destination: IpAddr) -> Result<Option<[u8; 6]>, Error> {
        let is_network = |own: &Own| own.address.is_network_or_broadcast(destination);
        if !is_unicast(destination) || self.own.iter().any(is_network) {
            return Err(Error::NotUnicast(destination));
        }
        if self.own_mut(destination).is_some() {
            return Err(Error::Own(destination));
        }
        self.source(destination)?;
        let next_hop = self.next_hop(destination)?;
        self.neighbours.find(now, next_hop)
    }

    /// Returns the address to send from: one with the prefix of the destination, or else any of its family, those that are not
    /// link-local first.
    ///
    /// # Errors
    ///
    /// [`Error::NoAddress`] if there is none, and [`Error::Duplicate`] if all belong to others.
    pub fn source(&self, destination: IpAddr) -> Result<IpAddr, Error> {
        let all = || self.own.iter().filter(|own| own.address.ip().is_ipv4() == destination.is_ipv4());
        let usable = || all().filter(|own| own.duplicate().is_none()).map(|own| own.address);
        let on_link = usable().find(|address| address.is_on_link(destination));
        let global = || usable().find(|address| !is_link_local(address.ip()));
        match on_link.or_else(global).or_else(|| usable().next()) {
            Some(address) => Ok(address.ip()),
            None => self.check().and(Err(Error::NoAddress(destination))),
        }
    }

    fn next_hop(&self, destination: IpAddr) -> Result<IpAddr, Error> {
        let is_on_link = self.own.iter().any(|own| own.address.is_on_link(destination));
        if is_on_link || is_link_local(destination) || self.gateways.contains(&destination) {
            return Ok(destination);
        }
        let gateway = self.gateways.iter().find(|gateway| gateway.is_ipv4() == destination.is_ipv4());
        gateway.copied().ok_or(Error::NoRoute(destination))
    }

    fn saw_ipv4<'f>(&mut self, now: Duration, macs: [[u8; 6]; 2], ip: Ipv4<'f>, send: &mut Send<'_>) -> Event<'f> {
        let header = ip.header();
        if !self.answers_for(header.destination().into()) || header.protocol() != protocol::ICMP {
            return Event::Other;
        }
        if !ip.is_checksum_right() {
            self.counters.bad_checksum += 1;
            return Event::Dropped;
        }
        if header.is_fragment() {
            self.counters.fragments += 1;
            return Event::Dropped;
        }
        self.saw_icmp(now, macs, ip, send)
    }

    fn saw_ipv6<'f>(&mut self, now: Duration, macs: [[u8; 6]; 2], ip: Ipv6<'f>, send: &mut Send<'_>) -> Event<'f> {
        let to = ip.header().destination();
        let is_ours = self.answers_for(to.into()) || self.is_member(to);
        if !is_ours || ip.header().next_header() != protocol::ICMPV6 {
            return Event::Other;
        }
        self.saw_icmpv6(now, macs, ip, send)
    }

    /// Whether it has an address, and nobody else does.
    pub(crate) fn answers_for(&self, ip: IpAddr) -> bool {
        self.own.iter().any(|own| own.address.ip() == ip && own.duplicate().is_none())
    }

    pub(crate) fn own_mut(&mut self, ip: IpAddr) -> Option<&mut Own> {
        self.own.iter_mut().find(|own| own.address.ip() == ip)
    }

    /// Returns the MAC addresses of the multicast groups that it is in, for a port that is not given the frames of all groups.
    #[must_use]
    pub fn groups(&self) -> Vec<[u8; 6]> {
        let of = |own: &Own| if let IpAddr::V6(ip) = own.address.ip() { Some(solicited_node(ip)) } else { None };
        let own: Vec<_> = self.own.iter().filter_map(of).collect();
        let all = own.first().map(|_| ALL_NODES);
        all.into_iter().chain(own).map(group_mac).collect()
    }

    /// Whether it is in a multicast group: that of all nodes, or of one of its addresses.
    fn is_member(&self, group: Ipv6Addr) -> bool {
        let of = |own: &Own| matches!(own.address.ip(), IpAddr::V6(ip) if solicited_node(ip) == group);
        self.own.iter().any(|own| own.address.ip().is_ipv6()) && (group == ALL_NODES || self.own.iter().any(of))
    }

    /// Another station claims one of its addresses.
    pub(crate) fn contested(&mut self, ip: IpAddr, mac: [u8; 6]) -> Event<'static> {
        self.counters.conflicts += 1;
        if let Some(own) = self.own_mut(ip) {
            own.contested(mac);
        }
        Event::Dropped
    }

    pub(crate) fn malformed(&mut self) -> Event<'static> {
        self.counters.malformed += 1;
        Event::Dropped
    }

    pub(crate) fn limited(&mut self) -> Event<'static> {
        self.counters.limited += 1;
        Event::Dropped
    }

    /// Sends what `write` writes; nothing if it returns false.
    pub(crate) fn send(&mut self, send: &mut Send<'_>, write: impl FnOnce(&mut Vec<u8>, [u8; 6]) -> bool) -> bool {
        let is_written = write(&mut self.frame, self.mac);
        if is_written {
            send(&self.frame);
        }
        is_written
    }
}

/// The multicast group of all hosts (RFC 4291, 2.7.1).
pub(crate) const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// The MAC address of all hosts.
pub(crate) fn all_nodes_mac() -> [u8; 6] {
    group_mac(ALL_NODES)
}

fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

/// Whether a MAC address is that of one station.
pub(crate) fn is_station(mac: [u8; 6]) -> bool {
    mac[0] & 1 == 0 && mac != [0; 6]
}

pub(crate) use Say::{Announce, Probe};
