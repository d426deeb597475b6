//! A router as the RFCs tell it, without any of the library's code: one frame at a time, linear search.
#![allow(dead_code, reason = "each test uses its part")]

use mempool::{Batch, Packet, PoolCache};
use router::Refusal;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A route, by address and length of its prefix.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) address: IpAddr,
    pub(crate) len: u32,
    pub(crate) mac: [u8; 6],
    pub(crate) port: usize,
}

impl Route {
    fn covers(&self, destination: IpAddr) -> bool {
        match (self.address, destination) {
            (IpAddr::V4(a), IpAddr::V4(b)) => self.len == 0 || (a.to_bits() ^ b.to_bits()) >> (32 - self.len) == 0,
            (IpAddr::V6(a), IpAddr::V6(b)) => self.len == 0 || (a.to_bits() ^ b.to_bits()) >> (128 - self.len) == 0,
            _ => false,
        }
    }
}

/// What the router knows.
#[derive(Clone, Debug)]
pub(crate) struct Naive {
    pub(crate) routes: Vec<Route>,
    pub(crate) macs: Vec<[u8; 6]>,
    pub(crate) promiscuous: bool,
    pub(crate) returns: bool,
    /// Of each port.
    pub(crate) mtus: Vec<u16>,
}

/// The checksum of RFC 1071 over big-endian words; 0 over a header that bears its own.
pub(crate) fn checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = bytes.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap()
}

impl Naive {
    /// The port and bytes a frame leaves by and with, or why not.
    pub(crate) fn route(&self, ingress: usize, frame: &[u8]) -> Result<(usize, Vec<u8>), Refusal> {
        if frame.len() < 14 {
            return Err(Refusal::NotIp);
        }
        let (ethernet, ip) = frame.split_at(14);
        let v6 = match ethernet[12..] {
            [0x08, 0x00] => false,
            [0x86, 0xDD] => true,
            _ => return Err(Refusal::NotIp),
        };
        if !ethernet[0].is_multiple_of(2) {
            return Err(Refusal::LinkMulticast);
        }
        if !self.promiscuous && ethernet[..6] != self.macs[ingress] {
            return Err(Refusal::OtherStation);
        }
        let (destination, mut out) = if v6 { ipv6(ip)? } else { ipv4(ip)? };
        let best = self.routes.iter().filter(|route| route.covers(destination)).max_by_key(|route| route.len);
        let (port, mac) = match best {
            Some(route) => (route.port, route.mac),
            None if self.returns && ethernet[6].is_multiple_of(2) => (ingress, ethernet[6..12].try_into().unwrap()),
            None => return Err(Refusal::NoRoute),
        };
        if out.len() > usize::from(self.mtus[port]) {
            return Err(Refusal::TooBig);
        }
        if v6 {
            out[7] -= 1;
        } else {
            let header = usize::from(out[0] % 16) * 4;
            out[8] -= 1;
            out[10..12].fill(0);
            let sum = checksum(&out[..header]);
            out[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        Ok((port, [&mac[..], &self.macs[port], &ethernet[12..], &out].concat()))
    }
}

/// A router with VLANs on its ports: what comes by an interface, and what leaves by one, is [`Naive`]'s, without tags.
#[derive(Clone, Debug)]
pub(crate) struct Tagged {
    /// Of interfaces, where it says ports.
    pub(crate) naive: Naive,
    /// Port and VLAN of each; the first interfaces are the ports.
    pub(crate) places: Vec<(usize, Option<u16>)>,
    pub(crate) up: Vec<bool>,
    pub(crate) promiscuous: Vec<bool>,
}

impl Tagged {
    /// As [`Naive::route`], of ports; IPv4 options and hop-by-hop options of IPv6 are refused. What is for another station is so whatever is in it;
    /// if no interface takes its tag, for another than the port.
    pub(crate) fn route(&self, ingress: usize, frame: &[u8]) -> Result<(usize, Vec<u8>), Refusal> {
        let is_tag = |at: usize| frame.len() > at + 1 && matches!(frame[at..at + 2], [0x81, 0] | [0x88, 0xA8]);
        let (mut interface, mut inner) = (ingress, frame.to_vec());
        let mut known = Some(ingress);
        if is_tag(12) {
            let odd = frame[12] == 0x88 || frame.len() < 18 || is_tag(16);
            let vlan = (!odd).then(|| u16::from(frame[14]) % 16 * 256 + u16::from(frame[15]));
            known = self.places.iter().position(|place| place.1.is_some() && *place == (ingress, vlan));
            known = known.filter(|known| self.is_up(*known));
        }
        let by = known.unwrap_or(ingress);
        let takes = self.is_up(by) && (self.promiscuous[by] || frame.get(..6) == Some(&self.naive.macs[by]));
        if frame.len() >= 8 && frame[0].is_multiple_of(2) && !takes {
            return Err(Refusal::OtherStation);
        }
        if is_tag(12) {
            interface = known.ok_or(Refusal::Vlan)?;
            inner.drain(12..16);
        }
        let mut naive = Naive { promiscuous: self.promiscuous[interface], ..self.naive.clone() };
        if !self.is_up(interface) {
            // Nobody's.
            (naive.macs[interface], naive.promiscuous) = ([1; 6], false);
        }
        for down in (0..self.places.len()).filter(|number| !self.is_up(*number)) {
            naive.mtus[down] = u16::MAX;
        }
        let routed = naive.route(interface, &inner);
        let passes = matches!(routed, Ok(_) | Err(Refusal::NoRoute | Refusal::TooBig));
        if passes && if inner[12] == 8 { inner[14] != 0x45 } else { inner[20] == 0 } {
            return Err(Refusal::Options);
        }
        let (interface, mut out) = routed?;
        if !self.is_up(interface) {
            return Err(Refusal::Unresolved);
        }
        let (port, vlan) = self.places[interface];
        if let Some(vlan) = vlan {
            let [high, low] = vlan.to_be_bytes();
            out.splice(12..12, [0x81, 0, high, low]);
        }
        Ok((port, out))
    }

    fn is_up(&self, interface: usize) -> bool {
        self.up[interface] && self.up[self.places[interface].0]
    }
}

/// Destination, and the packet without what is behind it.
fn ipv4(ip: &[u8]) -> Result<(IpAddr, Vec<u8>), Refusal> {
    if ip.is_empty() {
        return Err(Refusal::HeaderLength);
    }
    if ip[0] / 16 != 4 {
        return Err(Refusal::Version);
    }
    let header = usize::from(ip[0] % 16) * 4;
    if header < 20 || ip.len() < header {
        return Err(Refusal::HeaderLength);
    }
    let total = usize::from(ip[2]) * 256 + usize::from(ip[3]);
    if total < header || ip.len() < total {
        return Err(Refusal::TotalLength);
    }
    if checksum(&ip[..header]) != 0 {
        return Err(Refusal::Checksum);
    }
    let address = |at: usize| Ipv4Addr::new(ip[at], ip[at + 1], ip[at + 2], ip[at + 3]);
    let martian = |a: Ipv4Addr| {
        let this_network = a < Ipv4Addr::new(1, 0, 0, 0);
        let class_e = a >= Ipv4Addr::new(240, 0, 0, 0);
        this_network || class_e || a.is_loopback() || a.is_multicast() || a.is_broadcast() || a.is_link_local()
    };
    if martian(address(12)) {
        return Err(Refusal::MartianSource);
    }
    if martian(address(16)) {
        return Err(Refusal::MartianDestination);
    }
    if ip[8] < 2 {
        return Err(Refusal::Ttl);
    }
    Ok((address(16).into(), ip[..total].to_vec()))
}

fn ipv6(ip: &[u8]) -> Result<(IpAddr, Vec<u8>), Refusal> {
    if ip.is_empty() {
        return Err(Refusal::HeaderLength);
    }
    if ip[0] / 16 != 6 {
        return Err(Refusal::Version);
    }
    if ip.len() < 40 {
        return Err(Refusal::HeaderLength);
    }
    let total = 40 + usize::from(ip[4]) * 256 + usize::from(ip[5]);
    if ip.len() < total {
        return Err(Refusal::TotalLength);
    }
    let address = |at: usize| Ipv6Addr::from(<[u8; 16]>::try_from(&ip[at..at + 16]).unwrap());
    let martian = |a: Ipv6Addr| {
        let mapped = a.to_ipv4_mapped().is_some();
        a.is_unspecified() || a.is_loopback() || a.is_multicast() || a.is_unicast_link_local() || mapped
    };
    if martian(address(8)) {
        return Err(Refusal::MartianSource);
    }
    if martian(address(24)) {
        return Err(Refusal::MartianDestination);
    }
    if ip[7] < 2 {
        return Err(Refusal::Ttl);
    }
    Ok((address(24).into(), ip[..total].to_vec()))
}

/// A frame, and where it is cut into buffers.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) bytes: Vec<u8>,
    pub(crate) cuts: Vec<usize>,
}

/// Puts a frame into a batch, cut as it wants.
pub(crate) fn push(cache: &mut PoolCache, batch: &mut Batch, sent: &Sent) {
    let mut from = 0;
    for to in sent.cuts.iter().copied().chain([sent.bytes.len()]) {
        let mut packet = cache.alloc().unwrap();
        packet.append(to - from).unwrap().copy_from_slice(&sent.bytes[from..to]);
        packet.set_continues(to < sent.bytes.len());
        batch.push(packet).unwrap();
        from = to;
    }
}

/// The frames of a run of packets, none of which is empty.
pub(crate) fn frames(packets: &[Packet]) -> Vec<Vec<u8>> {
    let (mut frames, mut frame) = (Vec::new(), Vec::new());
    for packet in packets {
        assert!(!packet.is_empty());
        frame.extend_from_slice(packet.data());
        if !packet.continues() {
            frames.push(std::mem::take(&mut frame));
        }
    }
    assert!(frame.is_empty(), "a frame without an end");
    frames
}

pub(crate) fn text(routes: &[Route]) -> String {
    let mut text = String::new();
    for Route { address, len, mac: [a, b, c, d, e, f], port } in routes {
        writeln!(text, "{address}/{len} via {a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x} port {port}").unwrap();
    }
    text
}
