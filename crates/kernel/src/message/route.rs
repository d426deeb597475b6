//! Routes (`linux/rtnetlink.h`).

use super::Family;
use super::attribute::{Attributes, DIGEST, address, aligned, digest, fixed, u16_at, u32_at, u32_of, via};
use crate::Fault;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What happens to packets of a route (RTN_*).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RouteKind {
    /// They are forwarded.
    Unicast,
    /// They are for the host: its own addresses, broadcasts, groups, anycast.
    Local,
    /// They are dropped in silence.
    Blackhole,
    /// They are answered: host unreachable.
    Unreachable,
    /// They are answered: prohibited.
    Prohibit,
    /// The lookup goes on in another table, or a kind that is not known.
    Other,
}

/// RTM_NEWROUTE, RTM_DELROUTE.
#[derive(Clone, Debug)]
pub struct Route<'a> {
    /// The family.
    pub family: Family,
    /// The destination's first address.
    pub address: IpAddr,
    /// Bits of the destination's prefix.
    pub len: u8,
    /// Whether it is for some sources only.
    pub from_source: bool,
    /// TOS that a packet must have, or 0.
    pub tos: u8,
    /// Its table: RTA_TABLE, as the byte in the header does not hold them all.
    pub table: u32,
    /// What happens to packets.
    pub kind: RouteKind,
    /// Whether it is a copy in a cache, not a route.
    pub cloned: bool,
    /// Its metric: of a prefix's routes the lowest is taken.
    pub priority: u32,
    /// The number of its next hop object or group.
    pub next_hop: Option<u32>,
    /// Whether packets are encapsulated or get a label.
    pub encapsulated: bool,
    /// Whether it ends by itself, in silence, as what a router advertises does.
    pub expires: bool,
    /// MTU of this route, in bytes.
    pub mtu: Option<u32>,
    /// Tells routes apart that differ in protocol, scope, addresses of sources or metrics only.
    pub identity: u64,
    /// Tells encapsulations of the only leg apart.
    encapsulation: u64,
    single: Leg,
    single_flags: LegFlags,
    multipath: &'a [u8],
}

/// A way that packets of a route can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Leg {
    /// The interface by which they leave.
    pub interface: u32,
    /// The gateway; without one, the destination itself is the neighbour.
    pub gateway: Option<IpAddr>,
    /// Its share against that of other legs: 1 to 65,536.
    pub weight: u32,
}

/// In few words, as each message is looked up by it.
impl Hash for Leg {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(u64::from(self.interface) << 32 | u64::from(self.weight));
        match self.gateway {
            None => {}
            Some(IpAddr::V4(gateway)) => state.write_u32(gateway.to_bits()),
            Some(IpAddr::V6(gateway)) => state.write_u128(gateway.to_bits()),
        }
    }
}

impl Leg {
    /// Whether it is the same way, whatever its share.
    pub(crate) fn same_way(&self, other: &Self) -> bool {
        self.interface == other.interface && self.gateway == other.gateway
    }
}

/// What else is said of a leg.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LegFlags {
    /// It is not used.
    pub dead: bool,
    /// Its interface has no carrier.
    pub linkdown: bool,
    /// Packets are encapsulated or get a label.
    pub encapsulated: bool,
}

impl LegFlags {
    fn from_bits(bits: u8) -> Self {
        Self { dead: bits & RTNH_F_DEAD != 0, linkdown: bits & RTNH_F_LINKDOWN != 0, encapsulated: false }
    }
}

impl<'a> Route<'a> {
    pub(super) fn decode(payload: &'a [u8]) -> Result<Option<Self>, Fault> {
        let (head, attributes) = fixed::<12>(payload)?;
        let Some(family) = Family::from_number(head[0]) else { return Ok(None) };
        let flags = u32_at(head, 8);
        let mut route = Self {
            family,
            address: match family {
                Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
                Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
            },
            len: head[1],
            from_source: head[2] != 0,
            tos: head[3],
            table: head[4].into(),
            kind: kind(head[7]),
            cloned: flags & RTM_F_CLONED != 0,
            priority: 0,
            next_hop: None,
            encapsulated: false,
            // Its end may be set after it was told.
            expires: head[5] == RTPROT_RA,
            mtu: None,
            identity: digest(DIGEST, &[head[2], head[5], head[6], u8::from(flags & RTNH_F_ONLINK != 0)]),
            encapsulation: DIGEST,
            single: Leg { interface: 0, gateway: None, weight: 1 },
            single_flags: LegFlags::from_bits(head[8]),
            multipath: &[],
        };
        if cfg!(target_endian = "big") {
            route.single_flags = LegFlags::from_bits(head[11]);
        }
        if route.len > family.bits() {
            return Err(Fault::Value);
        }
        for attribute in attributes {
            let (kind, value) = attribute?;
            route.attribute(kind, value)?;
        }
        if Legs::new(route.multipath).any(|leg| leg.is_err()) {
            return Err(Fault::Attribute);
        }
        Ok(Some(route))
    }

    fn attribute(&mut self, kind: u16, value: &'a [u8]) -> Result<(), Fault> {
        match kind {
            RTA_DST => {
                self.address = address(value)?;
                if self.address.is_ipv4() != (self.family == Family::V4) {
                    return Err(Fault::Value);
                }
            }
            RTA_OIF => self.single.interface = u32_of(value)?,
            RTA_GATEWAY => self.single.gateway = Some(address(value)?),
            RTA_VIA => self.single.gateway = Some(via(value)?),
            RTA_PRIORITY => self.priority = u32_of(value)?,
            RTA_TABLE => self.table = u32_of(value)?,
            // `struct rta_cacheinfo`: rta_expires, and below 0 what is over.
            RTA_CACHEINFO => {
                self.expires |= value.get(8..).is_some_and(|rest| u32_of(rest).is_ok_and(|ticks| ticks != 0))
            }
            RTA_NH_ID => self.next_hop = Some(u32_of(value)?).filter(|id| *id != 0),
            RTA_MULTIPATH => self.multipath = value,
            RTA_ENCAP_TYPE | RTA_ENCAP | RTA_NEWDST => {
                self.encapsulated = true;
                self.encapsulation = encapsulation(self.encapsulation, kind, value);
            }
            RTA_SRC => {
                self.from_source = true;
                self.identity = digest(self.identity, value);
            }
            RTA_PREFSRC | RTA_FLOW => self.identity = digest(self.identity, value),
            RTA_METRICS => {
                self.identity = digest(self.identity, value);
                for metric in Attributes::new(value) {
                    if let (RTAX_MTU, value) = metric? {
                        self.mtu = Some(u32_of(value)?).filter(|mtu| *mtu != 0);
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The route's leg, if it has but one, as most do.
    #[inline]
    pub(crate) fn only_leg(&self) -> Option<Leg> {
        (self.multipath.is_empty() && self.single.interface != 0).then_some(self.single)
    }

    /// Whether packets of any leg are encapsulated or get a label.
    #[inline]
    pub(crate) fn is_encapsulated(&self) -> bool {
        self.encapsulated || (!self.multipath.is_empty() && self.legs().any(|(_, flags)| flags.encapsulated))
    }

    /// The route's legs: none, one, or those of RTA_MULTIPATH.
    pub fn legs(&self) -> impl Iterator<Item = (Leg, LegFlags)> + 'a {
        let single = (self.single, LegFlags { encapsulated: self.encapsulated, ..self.single_flags });
        let single = Some(single).filter(|(leg, _)| self.multipath.is_empty() && leg.interface != 0);
        single.into_iter().chain(Legs::new(self.multipath).flatten())
    }

    /// Tells routes apart that differ in their legs only, with encapsulations and shares, or in their next hop object.
    pub(crate) fn ways(&self) -> u64 {
        if let Some(id) = self.next_hop {
            return digest(DIGEST, &id.to_ne_bytes());
        }
        let mut sum = self.encapsulation;
        for (leg, _) in self.legs() {
            sum = digest(digest(sum, &leg.interface.to_ne_bytes()), &leg.weight.to_ne_bytes());
            sum = match leg.gateway {
                None => sum,
                Some(IpAddr::V4(address)) => digest(sum, &address.octets()),
                Some(IpAddr::V6(address)) => digest(sum, &address.octets()),
            };
        }
        Legs::new(self.multipath).encapsulations(sum)
    }
}

/// The legs of RTA_MULTIPATH (`struct rtnexthop`). One that is malformed is an error, and the last.
#[derive(Clone, Debug)]
pub struct Legs<'a> {
    rest: &'a [u8],
}

impl<'a> Legs<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Tells their encapsulations apart.
    fn encapsulations(mut self, seed: u64) -> u64 {
        let mut sum = seed;
        while let Some((_, Some(attributes))) = self.split() {
            let said = Attributes::new(attributes).flatten();
            sum = said.fold(sum, |sum, (kind, value)| match kind {
                RTA_ENCAP_TYPE | RTA_ENCAP | RTA_NEWDST => encapsulation(sum, kind, value),
                _ => sum,
            });
        }
        sum
    }

    /// The next leg: its head, and its attributes unless its length is wrong.
    fn split(&mut self) -> Option<(&'a [u8; 8], Option<&'a [u8]>)> {
        let bytes = std::mem::take(&mut self.rest);
        let (head, _) = bytes.split_first_chunk::<8>()?;
        let len = usize::from(u16_at(head, 0));
        let attributes = bytes.get(8..len);
        if attributes.is_some() {
            self.rest = bytes.get(aligned(len)..).unwrap_or_default();
        }
        Some((head, attributes))
    }
}

impl Iterator for Legs<'_> {
    type Item = Result<(Leg, LegFlags), Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        let (head, attributes) = self.split()?;
        let Some(attributes) = attributes else { return Some(Err(Fault::Attribute)) };
        let mut leg = Leg { interface: u32_at(head, 4), gateway: None, weight: u32::from(head[3]) + 1 };
        let mut flags = LegFlags::from_bits(head[2]);
        for attribute in Attributes::new(attributes) {
            let gateway = match attribute {
                Ok((RTA_GATEWAY, value)) => address(value),
                Ok((RTA_VIA, value)) => via(value),
                Ok((kind, _)) => {
                    flags.encapsulated |= matches!(kind, RTA_ENCAP_TYPE | RTA_ENCAP | RTA_NEWDST);
                    continue;
                }
                Err(fault) => Err(fault),
            };
            match gateway {
                Ok(gateway) => leg.gateway = Some(gateway),
                Err(fault) => {
                    self.rest = &[];
                    return Some(Err(fault));
                }
            }
        }
        Some(Ok((leg, flags)))
    }
}

/// Tells an encapsulation from others, but for the counters of seg6local (SEG6_LOCAL_COUNTERS), which change.
fn encapsulation(seed: u64, kind: u16, value: &[u8]) -> u64 {
    if kind != RTA_ENCAP {
        return digest(seed, value);
    }
    let said = Attributes::new(value).flatten().filter(|(kind, _)| *kind != SEG6_LOCAL_COUNTERS);
    said.fold(seed, |sum, (kind, value)| digest(digest(sum, &kind.to_ne_bytes()), value))
}

fn kind(number: u8) -> RouteKind {
    match number {
        1 => RouteKind::Unicast,
        // Local, broadcast, anycast, multicast.
        2..=5 => RouteKind::Local,
        6 => RouteKind::Blackhole,
        7 => RouteKind::Unreachable,
        8 => RouteKind::Prohibit,
        _ => RouteKind::Other,
    }
}

const RTM_F_CLONED: u32 = 0x200;
const RTPROT_RA: u8 = 9;
const RTNH_F_DEAD: u8 = 1;
const RTNH_F_ONLINK: u32 = 4;
const RTNH_F_LINKDOWN: u8 = 16;
const RTA_DST: u16 = 1;
const RTA_SRC: u16 = 2;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_PREFSRC: u16 = 7;
const RTA_METRICS: u16 = 8;
const RTA_MULTIPATH: u16 = 9;
const RTA_FLOW: u16 = 11;
const RTA_CACHEINFO: u16 = 12;
const RTA_TABLE: u16 = 15;
const RTA_VIA: u16 = 18;
const RTA_NEWDST: u16 = 19;
const RTA_ENCAP_TYPE: u16 = 21;
const RTA_ENCAP: u16 = 22;
const RTA_NH_ID: u16 = 30;
const RTAX_MTU: u16 = 2;
const SEG6_LOCAL_COUNTERS: u16 = 10;
