//! Messages as the kernel writes them, from the structures of `linux/rtnetlink.h`, `linux/nexthop.h` and the like.

#![allow(dead_code, clippy::unwrap_used, reason = "each test uses a part, and fails where a step does")]

use std::net::IpAddr;

/// An attribute, padded to four bytes.
pub(crate) fn attr(kind: u16, value: &[u8]) -> Vec<u8> {
    let len = u16::try_from(4 + value.len()).unwrap();
    let mut bytes = [&len.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

pub(crate) fn word(kind: u16, value: u32) -> Vec<u8> {
    attr(kind, &value.to_ne_bytes())
}

pub(crate) fn ip(kind: u16, address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => attr(kind, &address.octets()),
        IpAddr::V6(address) => attr(kind, &address.octets()),
    }
}

/// A message of sequence number 0, from port 0.
pub(crate) fn message(kind: u16, flags: u16, fixed: &[u8], attributes: &[Vec<u8>]) -> Vec<u8> {
    let body = [fixed, &attributes.concat()].concat();
    let len = u32::try_from(16 + body.len()).unwrap();
    [&len.to_ne_bytes()[..], &kind.to_ne_bytes(), &flags.to_ne_bytes(), &[0; 8], &body].concat()
}

/// A link that is set up or not.
pub(crate) fn link(index: u32, name: &str, up: bool, carrier: bool, more: &[Vec<u8>]) -> Vec<u8> {
    let flags = u32::from(up) | if up && carrier { 0x1_0040 } else { 0 };
    let fixed = [&[0, 0, 1, 0][..], &index.to_ne_bytes(), &flags.to_ne_bytes(), &[0; 4]].concat();
    let mut attributes = vec![
        attr(3, &[name.as_bytes(), &[0]].concat()),
        word(4, 1500),
        attr(1, &[2, 0, 0, 0, 0, index.to_le_bytes()[0]]),
    ];
    attributes.push(attr(33, &[u8::from(carrier)]));
    attributes.extend_from_slice(more);
    message(16, 0, &fixed, &attributes)
}

pub(crate) fn del_link(index: u32) -> Vec<u8> {
    message(17, 0, &[&[0; 4][..], &index.to_ne_bytes(), &[0; 8]].concat(), &[])
}

pub(crate) fn address(new: bool, index: u32, address: IpAddr, len: u8) -> Vec<u8> {
    peered(new, index, address, address, len)
}

/// An address of a point-to-point link.
pub(crate) fn peered(new: bool, index: u32, address: IpAddr, peer: IpAddr, len: u8) -> Vec<u8> {
    let family = if address.is_ipv4() { 2 } else { 10 };
    let fixed = [&[family, len, 0, 0][..], &index.to_ne_bytes()].concat();
    message(if new { 20 } else { 21 }, 0, &fixed, &[ip(1, peer), ip(2, address)])
}

pub(crate) fn neighbour(new: bool, index: u32, address: IpAddr, state: u16, mac: [u8; 6]) -> Vec<u8> {
    let family = if address.is_ipv4() { 2 } else { 10 };
    let fixed = [&[family, 0, 0, 0][..], &index.to_ne_bytes(), &state.to_ne_bytes(), &[0, 1]].concat();
    message(if new { 28 } else { 29 }, 0, &fixed, &[ip(1, address), attr(2, &mac)])
}

pub(crate) fn rule(new: bool, family: u8, priority: u32, table: u32, more: &[Vec<u8>]) -> Vec<u8> {
    let fixed = [family, 0, 0, 0, u8::try_from(table).unwrap_or(0), 0, 0, 1, 0, 0, 0, 0];
    let mut attributes = vec![word(15, table), word(14, u32::MAX)];
    if priority > 0 {
        attributes.push(word(6, priority));
    }
    attributes.extend_from_slice(more);
    message(if new { 32 } else { 33 }, 0, &fixed, &attributes)
}

pub(crate) fn netconf(family: u8, index: u32, forwarding: u32, ignore_linkdown: u32) -> Vec<u8> {
    message(80, 0, &[family, 0, 0, 0], &[word(1, index), word(2, forwarding), word(6, ignore_linkdown)])
}

/// A next hop object that is no group.
pub(crate) fn next_hop(new: bool, id: u32, index: u32, gateway: IpAddr) -> Vec<u8> {
    let family = if gateway.is_ipv4() { 2 } else { 10 };
    message(
        if new { 104 } else { 105 },
        0,
        &[family, 0, 0, 0, 0, 0, 0, 0],
        &[word(1, id), word(5, index), ip(6, gateway)],
    )
}

pub(crate) fn group(new: bool, id: u32, members: &[(u32, u16)]) -> Vec<u8> {
    let members = members.iter().flat_map(|(id, weight)| {
        let [low, high] = (weight - 1).to_le_bytes();
        [&id.to_ne_bytes()[..], &[low, high, 0, 0]].concat()
    });
    let members: Vec<u8> = members.collect();
    message(if new { 104 } else { 105 }, 0, &[0; 8], &[word(1, id), attr(2, &members), attr(3, &0_u16.to_ne_bytes())])
}

/// A route's leg: interface, gateway, weight.
pub(crate) type Leg = (u32, Option<IpAddr>, u8);

/// Everything that a route may say.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) prefix: IpAddr,
    pub(crate) len: u8,
    pub(crate) table: u32,
    pub(crate) kind: u8,
    pub(crate) priority: u32,
    pub(crate) tos: u8,
    pub(crate) protocol: u8,
    pub(crate) legs: Vec<Leg>,
    pub(crate) next_hop: Option<u32>,
    pub(crate) more: Vec<Vec<u8>>,
}

impl Route {
    /// A unicast route of table `main` without legs.
    pub(crate) fn to(prefix: &str, len: u8) -> Self {
        let prefix: IpAddr = prefix.parse().unwrap();
        let priority = if prefix.is_ipv4() { 0 } else { 1024 };
        Self {
            prefix,
            len,
            table: 254,
            kind: 1,
            priority,
            tos: 0,
            protocol: 3,
            legs: Vec::new(),
            next_hop: None,
            more: Vec::new(),
        }
    }

    pub(crate) fn via(mut self, index: u32, gateway: &str) -> Self {
        self.legs.push((index, Some(gateway.parse().unwrap()), 1));
        self
    }

    pub(crate) fn metric(self, priority: u32) -> Self {
        Self { priority, ..self }
    }

    pub(crate) fn kind(self, kind: u8) -> Self {
        Self { kind, ..self }
    }

    pub(crate) fn table(self, table: u32) -> Self {
        Self { table, ..self }
    }

    pub(crate) fn by(self, next_hop: u32) -> Self {
        Self { next_hop: Some(next_hop), ..self }
    }

    pub(crate) fn bytes(&self, new: bool, flags: u16) -> Vec<u8> {
        let family = if self.prefix.is_ipv4() { 2 } else { 10 };
        let table = u8::try_from(self.table).unwrap_or(252);
        let fixed = [family, self.len, 0, self.tos, table, self.protocol, 0, self.kind, 0, 0, 0, 0];
        let mut attributes = vec![word(15, self.table)];
        if self.len > 0 {
            attributes.push(ip(1, self.prefix));
        }
        if self.priority > 0 {
            attributes.push(word(6, self.priority));
        }
        attributes.extend(self.next_hop.map(|id| word(30, id)));
        match &self.legs[..] {
            [] => {}
            [(index, gateway, _)] => {
                attributes.extend(gateway.map(|gateway| self.gateway(gateway)));
                attributes.push(word(4, *index));
            }
            several => {
                let legs = several.iter().flat_map(|(index, gateway, weight)| {
                    let gateway = gateway.map_or(Vec::new(), |gateway| self.gateway(gateway));
                    let len = u16::try_from(8 + gateway.len()).unwrap();
                    [&len.to_ne_bytes()[..], &[0, weight - 1], &index.to_ne_bytes(), &gateway].concat()
                });
                attributes.push(attr(9, &legs.collect::<Vec<u8>>()));
            }
        }
        attributes.extend_from_slice(&self.more);
        message(if new { 24 } else { 25 }, flags, &fixed, &attributes)
    }

    /// RTA_GATEWAY, or RTA_VIA if it is of another family than the route.
    fn gateway(&self, gateway: IpAddr) -> Vec<u8> {
        match gateway {
            IpAddr::V6(address) if self.prefix.is_ipv4() => {
                attr(18, &[&10_u16.to_ne_bytes()[..], &address.octets()].concat())
            }
            gateway => ip(5, gateway),
        }
    }
}
