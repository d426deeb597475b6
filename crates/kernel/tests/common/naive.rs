//! A kernel of few lines: lists of routes, what `ip` does to them, and the messages that Linux sends or does not send.

#![allow(dead_code, clippy::unwrap_used, reason = "each test uses a part, and fails where a step does")]

use super::build::{self, Leg, Route};
use super::common::Answer;
use std::collections::BTreeMap;
use std::net::IpAddr;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Object {
    Single(u32, IpAddr),
    Group(Vec<(u32, u16)>),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub(crate) up: bool,
    pub(crate) carrier: bool,
    pub(crate) ignore: [bool; 2],
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Verb {
    Add,
    Append,
    Prepend,
    Replace,
    Del,
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Route(Verb, Route),
    /// IPv6: one leg of the route with this prefix and metric.
    DelLeg(Route),
    Up(u32, bool),
    Carrier(u32, bool),
    Ignore(u32, u8, bool),
    Object(u32, Object),
    DelObject(u32),
}

#[derive(Clone, Debug)]
pub(crate) struct Naive {
    pub(crate) links: BTreeMap<u32, Link>,
    pub(crate) objects: BTreeMap<u32, Object>,
    /// Those of a prefix and table in the order in which they were put there.
    pub(crate) routes: Vec<Route>,
}

impl Naive {
    pub(crate) fn new(links: u32) -> Self {
        let link = Link { up: true, carrier: true, ignore: [false; 2] };
        Self { links: (1..=links).map(|index| (index, link)).collect(), objects: BTreeMap::new(), routes: Vec::new() }
    }

    /// Does as Linux does, and returns its messages.
    pub(crate) fn run(&mut self, op: &Op) -> Vec<Vec<u8>> {
        match op {
            Op::Route(Verb::Del, route) => self.del(route),
            Op::Route(verb, route) if route.prefix.is_ipv4() => self.put_v4(*verb, route),
            Op::Route(verb, route) => self.put_v6(*verb, route),
            Op::DelLeg(route) => self.del_leg(route),
            Op::Up(index, up) => self.up(*index, *up),
            Op::Carrier(index, carrier) => {
                let link = self.links.get_mut(index).unwrap();
                if !link.up || link.carrier == *carrier {
                    return Vec::new();
                }
                link.carrier = *carrier;
                if !carrier {
                    self.flush_objects(*index);
                }
                vec![self.link(*index)]
            }
            Op::Ignore(index, family, ignore) => {
                let link = self.links.get_mut(index).unwrap();
                link.ignore[usize::from(*family == 10)] = *ignore;
                vec![build::netconf(*family, *index, 1, u32::from(*ignore))]
            }
            Op::Object(id, object) => self.put_object(*id, object),
            Op::DelObject(id) => {
                if self.objects.remove(id).is_none() {
                    return Vec::new();
                }
                self.forget(*id);
                vec![build::message(105, 0, &[0; 8], &[build::word(1, *id)])]
            }
        }
    }

    fn link(&self, index: u32) -> Vec<u8> {
        let link = self.links[&index];
        build::link(index, &format!("p{index}"), link.up, link.carrier, &[])
    }

    fn is_possible(&self, route: &Route) -> bool {
        let ups = route.legs.iter().all(|(index, ..)| self.links[index].up);
        let nexthop = route.next_hop.is_none_or(|id| match self.objects.get(&id) {
            Some(Object::Single(..) | Object::Group(_)) => self.is_v4(id) == route.prefix.is_ipv4(),
            None => false,
        });
        ups && nexthop && (route.kind != 1 || !route.legs.is_empty() || route.next_hop.is_some())
    }

    fn is_v4(&self, id: u32) -> bool {
        match &self.objects[&id] {
            Object::Single(_, gateway) => gateway.is_ipv4(),
            Object::Group(members) => self.is_v4(members[0].0),
        }
    }

    fn class(&self, route: &Route) -> Vec<usize> {
        let same = |other: &Route| place(other) == place(route) && other.priority == route.priority;
        (0..self.routes.len()).filter(|at| same(&self.routes[*at])).collect()
    }

    fn put_v4(&mut self, verb: Verb, route: &Route) -> Vec<Vec<u8>> {
        if !self.is_possible(route) {
            return Vec::new();
        }
        let class = self.class(route);
        let twin = class.iter().any(|at| same(&self.routes[*at], route));
        let flags = match verb {
            _ if class.is_empty() => {
                self.routes.push(route.clone());
                0x600
            }
            Verb::Add => return Vec::new(),
            _ if twin => return Vec::new(),
            Verb::Replace => {
                self.routes[class[0]] = route.clone();
                0x100
            }
            Verb::Append => {
                self.routes.insert(class[class.len() - 1] + 1, route.clone());
                0xC00
            }
            Verb::Prepend | Verb::Del => {
                self.routes.insert(class[0], route.clone());
                0x400
            }
        };
        vec![route.bytes(true, flags)]
    }

    fn put_v6(&mut self, verb: Verb, route: &Route) -> Vec<Vec<u8>> {
        if !self.is_possible(route) {
            return Vec::new();
        }
        let class = self.class(route);
        if class.is_empty() {
            self.routes.push(route.clone());
            return vec![route.bytes(true, 0x600)];
        }
        // Legs with gateways join; of others there is one in this model.
        let at = class[0];
        let old = self.routes[at].clone();
        match verb {
            Verb::Replace if !same(&old, route) => {
                self.routes[at] = route.clone();
                vec![route.bytes(true, 0x100)]
            }
            Verb::Append | Verb::Prepend if !old.legs.is_empty() && !route.legs.is_empty() => {
                if route.legs.iter().any(|leg| old.legs.iter().any(|other| (other.0, other.1) == (leg.0, leg.1))) {
                    return Vec::new();
                }
                self.routes[at].legs.extend(route.legs.iter().copied());
                vec![self.routes[at].bytes(true, 0xC00)]
            }
            _ => Vec::new(),
        }
    }

    fn del(&mut self, route: &Route) -> Vec<Vec<u8>> {
        let Some(at) = self.class(route).first().copied() else { return Vec::new() };
        let route = self.routes.remove(at);
        vec![route.bytes(false, 0)]
    }

    fn del_leg(&mut self, route: &Route) -> Vec<Vec<u8>> {
        let Some(at) = self.class(route).first().copied().filter(|at| self.routes[*at].legs.len() > 1) else {
            return self.del(route);
        };
        let leg = self.routes[at].legs.remove(0);
        if let [one] = &mut self.routes[at].legs[..] {
            // A route of one leg is written without a weight.
            one.2 = 1;
        }
        vec![Route { legs: vec![leg], ..self.routes[at].clone() }.bytes(false, 0)]
    }

    fn up(&mut self, index: u32, up: bool) -> Vec<Vec<u8>> {
        self.links.get_mut(&index).unwrap().up = up;
        let mut messages = vec![self.link(index)];
        if up {
            return messages;
        }
        self.flush_objects(index);
        let links = &self.links;
        let dead = |route: &Route| {
            route.kind == 1 && !route.legs.is_empty() && route.legs.iter().all(|(index, ..)| !links[index].up)
        };
        // IPv6 tells, IPv4 does not.
        messages.extend(
            self.routes
                .iter()
                .filter(|route| dead(route) && !route.prefix.is_ipv4())
                .map(|route| route.bytes(false, 0)),
        );
        self.routes.retain(|route| !dead(route));
        messages
    }

    fn put_object(&mut self, id: u32, object: &Object) -> Vec<Vec<u8>> {
        let possible = match object {
            Object::Single(index, gateway) => {
                let old = self.objects.get(&id);
                let link = self.links[index];
                link.up
                    && link.carrier
                    && !matches!(old, Some(Object::Group(_)))
                    && old.is_none_or(|_| self.is_v4(id) == gateway.is_ipv4())
            }
            Object::Group(members) => {
                members.iter().all(|(id, _)| matches!(self.objects.get(id), Some(Object::Single(..))))
                    && !matches!(self.objects.get(&id), Some(Object::Single(..)))
                    && members.iter().all(|(id, _)| self.is_v4(*id) == self.is_v4(members[0].0))
                    && (!self.objects.contains_key(&id) || self.is_v4(id) == self.is_v4(members[0].0))
            }
        };
        if !possible {
            return Vec::new();
        }
        self.objects.insert(id, object.clone());
        vec![object_bytes(id, object)]
    }

    fn flush_objects(&mut self, index: u32) {
        let by = |object: &Object| matches!(object, Object::Single(by, _) if *by == index);
        let gone: Vec<u32> = self.objects.iter().filter(|(_, object)| by(object)).map(|(id, _)| *id).collect();
        for id in gone {
            self.objects.remove(&id);
            self.forget(id);
        }
    }

    /// An object is gone: groups lose it, and routes by it go.
    fn forget(&mut self, id: u32) {
        let mut gone = vec![id];
        for (group, object) in &mut self.objects {
            if let Object::Group(members) = object {
                members.retain(|(member, _)| *member != id);
                if members.is_empty() {
                    gone.push(*group);
                }
            }
        }
        self.objects.retain(|_, object| *object != Object::Group(Vec::new()));
        self.routes.retain(|route| route.next_hop.is_none_or(|id| !gone.contains(&id)));
    }

    /// The messages of a dump: links, settings, next hops, rules, IPv4 routes, IPv6 routes.
    pub(crate) fn dump(&self) -> [Vec<Vec<u8>>; 6] {
        let settings = |(index, link): (&u32, &Link)| {
            [2, 10].map(|family| build::netconf(family, *index, 1, link.ignore[usize::from(family == 10)].into()))
        };
        let rules = [(2, 0, 255), (2, 32_766, 254), (2, 32_767, 253), (10, 0, 255), (10, 32_766, 254)];
        let routes = |v4: bool| {
            let mut routes: Vec<_> = self.routes.iter().filter(|route| route.prefix.is_ipv4() == v4).collect();
            routes.sort_by_key(|route| route.priority);
            routes.into_iter().map(|route| route.bytes(true, 2)).collect()
        };
        [
            self.links.keys().map(|index| self.link(*index)).collect(),
            self.links.iter().flat_map(settings).collect(),
            self.objects.iter().map(|(id, object)| object_bytes(*id, object)).collect(),
            rules.map(|(family, priority, table)| build::rule(true, family, priority, table, &[])).to_vec(),
            routes(true),
            routes(false),
        ]
    }

    /// Every prefix, and what happens to its packets.
    pub(crate) fn all(&self) -> Vec<(String, Answer)> {
        let mut prefixes: Vec<_> = self.routes.iter().map(|route| (route.prefix, route.len)).collect();
        prefixes.sort();
        prefixes.dedup();
        let mut all: Vec<_> = prefixes
            .into_iter()
            .filter_map(|(prefix, len)| {
                let answer = self.answer(prefix, len, 255).or_else(|| {
                    let covers = |route: &&Route| route.table == 255 && route.len < len && lies_in(prefix, route);
                    let answer = self.answer(prefix, len, 254)?;
                    Some(if self.routes.iter().any(|route| covers(&route)) {
                        Answer::Kernel("not understood")
                    } else {
                        answer
                    })
                });
                Some((format!("{prefix}/{len}"), answer?))
            })
            .collect();
        all.sort_by(|one, other| one.0.cmp(&other.0));
        all
    }

    fn answer(&self, prefix: IpAddr, len: u8, table: u32) -> Option<Answer> {
        let mut routes: Vec<_> =
            self.routes.iter().filter(|route| (route.prefix, route.len, route.table) == (prefix, len, table)).collect();
        routes.sort_by_key(|route| route.priority);
        let answer = |route: &Route| match route.kind {
            2 => Some(Answer::Kernel("local")),
            6 => Some(Answer::Blackhole),
            7 => Some(Answer::Kernel("unreachable")),
            8 => Some(Answer::Kernel("prohibited")),
            _ => self.forward(route).map(Answer::Forward),
        };
        let first = routes.iter().find(|route| answer(route).is_some())?;
        // Of IPv4 default routes of one metric Linux takes one whose gateway answers.
        let mut others =
            routes.iter().filter(|route| len == 0 && route.priority == first.priority && answer(route).is_some());
        let way = |route: &Route| (route.kind, route.legs.clone(), route.next_hop);
        let differ = others.any(|other| way(other) != way(first));
        if differ { Some(Answer::Kernel("not understood")) } else { answer(first) }
    }

    fn forward(&self, route: &Route) -> Option<Vec<kernel::Leg>> {
        let family = usize::from(!route.prefix.is_ipv4());
        let legs: Vec<(u32, Option<IpAddr>, u32)> = match route.next_hop.map(|id| &self.objects[&id]) {
            None => route.legs.iter().map(|(index, gateway, weight)| (*index, *gateway, u32::from(*weight))).collect(),
            Some(Object::Single(index, gateway)) => vec![(*index, Some(*gateway), 1)],
            Some(Object::Group(members)) => members
                .iter()
                .map(|(id, weight)| match &self.objects[id] {
                    Object::Single(index, gateway) => (*index, Some(*gateway), u32::from(*weight)),
                    Object::Group(_) => unreachable!("no groups in groups"),
                })
                .collect(),
        };
        let alive = legs.into_iter().filter(|(index, ..)| {
            let link = self.links[index];
            link.up && (link.carrier || !link.ignore[family])
        });
        let alive: Vec<_> =
            alive.map(|(interface, gateway, weight)| kernel::Leg { interface, gateway, weight }).collect();
        Some(alive).filter(|alive| !alive.is_empty())
    }
}

fn object_bytes(id: u32, object: &Object) -> Vec<u8> {
    match object {
        Object::Single(index, gateway) => build::next_hop(true, id, *index, *gateway),
        Object::Group(members) => build::group(true, id, members),
    }
}

fn place(route: &Route) -> (IpAddr, u8, u32) {
    (route.prefix, route.len, route.table)
}

fn same(one: &Route, other: &Route) -> bool {
    (one.kind, &one.legs, one.next_hop, one.protocol) == (other.kind, &other.legs, other.next_hop, other.protocol)
}

fn lies_in(address: IpAddr, route: &Route) -> bool {
    match (address, route.prefix) {
        (IpAddr::V4(address), IpAddr::V4(prefix)) => {
            (address.to_bits() ^ prefix.to_bits()).leading_zeros() >= route.len.into()
        }
        (IpAddr::V6(address), IpAddr::V6(prefix)) => {
            (address.to_bits() ^ prefix.to_bits()).leading_zeros() >= route.len.into()
        }
        _ => false,
    }
}

/// A leg of a route, for those that build routes.
pub(crate) fn leg(index: u32, gateway: &str, weight: u8) -> Leg {
    (index, Some(gateway.parse().unwrap()), weight)
}
