//! Links, their addresses and settings (`linux/if_link.h`, `linux/if_addr.h`, `linux/netconf.h`).

use super::Family;
use super::attribute::{Attributes, address, fixed, text, u16_of, u32_at, u32_of};
use crate::Fault;
use std::net::IpAddr;

/// RTM_NEWLINK, RTM_DELLINK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link<'a> {
    /// Its index.
    pub index: u32,
    /// IFF_*.
    pub flags: u32,
    /// Its name.
    pub name: &'a str,
    /// Its hardware address, if that has 6 bytes.
    pub mac: Option<[u8; 6]>,
    /// Its MTU in bytes.
    pub mtu: u32,
    /// Whether it has a carrier.
    pub carrier: bool,
    /// The link below it, in this namespace.
    pub parent: Option<u32>,
    /// What it is a part of: a bridge, a bond, a VRF.
    pub master: Option<u32>,
    /// What it is ("vlan", "tun"); empty for hardware.
    pub kind: &'a str,
    /// What it is a part of ("vrf", "bridge"), empty if of nothing.
    pub slave_kind: &'a str,
    /// A VLAN's number and the type of its tag (0x8100, 0x88A8).
    pub vlan: Option<(u16, u16)>,
    /// The mode of a macvlan or macvtap (`MACVLAN_MODE_*`), if it says.
    pub macvlan_mode: Option<u32>,
}

impl<'a> Link<'a> {
    /// `None` of what a bridge says about its ports, which comes in the same messages, and if all is to be told, of those that tell some of
    /// it: events of wireless cards have no MTU.
    pub(super) fn decode(payload: &'a [u8], whole: bool) -> Result<Option<Self>, Fault> {
        let (head, attributes) = fixed::<16>(payload)?;
        if head[0] != 0 {
            return Ok(None);
        }
        let flags = u32_at(head, 8);
        let mut link = Self {
            index: u32_at(head, 4),
            flags,
            name: "",
            mac: None,
            mtu: 0,
            carrier: flags & Self::LOWER_UP != 0,
            parent: None,
            master: None,
            kind: "",
            slave_kind: "",
            vlan: None,
            macvlan_mode: None,
        };
        let (mut elsewhere, mut name, mut mtu) = (false, None, None);
        for attribute in attributes {
            let (kind, value) = attribute?;
            match kind {
                IFLA_ADDRESS => link.mac = value.try_into().ok(),
                IFLA_IFNAME => name = Some(text(value)),
                IFLA_MTU => mtu = Some(u32_of(value)?),
                IFLA_LINK => link.parent = Some(u32_of(value)?),
                IFLA_MASTER => link.master = Some(u32_of(value)?),
                IFLA_LINKINFO => link.info(value)?,
                IFLA_CARRIER => link.carrier = *value.first().ok_or(Fault::Value)? != 0,
                IFLA_LINK_NETNSID => elsewhere = true,
                _ => {}
            }
        }
        link.parent = link.parent.filter(|_| !elsewhere);
        let has_all = name.is_some() && mtu.is_some();
        (link.name, link.mtu) = (name.unwrap_or_default(), mtu.unwrap_or_default());
        Ok(Some(link).filter(|_| has_all || !whole))
    }

    fn info(&mut self, value: &'a [u8]) -> Result<(), Fault> {
        let mut data = None;
        for attribute in Attributes::new(value) {
            match attribute? {
                (IFLA_INFO_KIND, value) => self.kind = text(value),
                (IFLA_INFO_SLAVE_KIND, value) => self.slave_kind = text(value),
                (IFLA_INFO_DATA, value) => data = Some(value),
                _ => {}
            }
        }
        match (self.kind, data) {
            ("vlan", Some(data)) => self.vlan = Some(Self::vlan(data)?),
            ("macvlan" | "macvtap", Some(data)) => {
                for attribute in Attributes::new(data) {
                    if let (IFLA_MACVLAN_MODE, value) = attribute? {
                        self.macvlan_mode = Some(u32_of(value)?);
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Number and type of tag of a VLAN.
    fn vlan(data: &[u8]) -> Result<(u16, u16), Fault> {
        let (mut id, mut protocol) = (0, 0x8100);
        for attribute in Attributes::new(data) {
            match attribute? {
                (IFLA_VLAN_ID, value) => id = u16_of(value)?,
                (IFLA_VLAN_PROTOCOL, value) => protocol = u16::from_be(u16_of(value)?),
                _ => {}
            }
        }
        Ok((id, protocol))
    }

    /// Returns whether it is set up (`ip link set up`).
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.flags & Self::UP != 0
    }

    const UP: u32 = 1;
    const LOWER_UP: u32 = 0x1_0000;
}

/// RTM_NEWADDR, RTM_DELADDR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// The interface.
    pub interface: u32,
    /// The host's own address.
    pub address: IpAddr,
    /// Bits of its prefix.
    pub len: u8,
    /// The other end of a point-to-point link, or the own address; for IPv6 always that, as no two differ in the other end only.
    pub peer: IpAddr,
}

impl Address {
    pub(super) fn decode(payload: &[u8]) -> Result<Option<Self>, Fault> {
        let (head, attributes) = fixed::<8>(payload)?;
        let Some(family) = Family::from_number(head[0]) else { return Ok(None) };
        let (mut own, mut peer) = (None, None);
        for attribute in attributes {
            match attribute? {
                (IFA_ADDRESS, value) => peer = Some(address(value)?),
                (IFA_LOCAL, value) => own = Some(address(value)?),
                _ => {}
            }
        }
        let found = own.or(peer).ok_or(Fault::Value)?;
        if found.is_ipv4() != (family == Family::V4) || head[1] > family.bits() {
            return Err(Fault::Value);
        }
        let peer = peer.filter(|_| family == Family::V4).unwrap_or(found);
        Ok(Some(Self { interface: u32_at(head, 4), address: found, len: head[1], peer }))
    }
}

/// Which interfaces settings are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NetconfScope {
    /// The value `all`.
    All,
    /// The value of interfaces to come.
    Default,
    /// One interface.
    Interface(u32),
}

/// RTM_NEWNETCONF. What is `None` was not said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Netconf {
    /// The family.
    pub family: Family,
    /// Of which interfaces.
    pub scope: NetconfScope,
    /// Whether packets that come in by it are forwarded.
    pub forwarding: Option<bool>,
    /// Whether routes by it count while it has no carrier: `ignore_routes_with_linkdown`.
    pub ignore_linkdown: Option<bool>,
}

impl Netconf {
    pub(super) fn decode(payload: &[u8]) -> Result<Option<Self>, Fault> {
        // One byte, aligned to four.
        let (head, attributes) = fixed::<4>(payload)?;
        let Some(family) = Family::from_number(head[0]) else { return Ok(None) };
        let mut scope = None;
        let (mut forwarding, mut ignore_linkdown) = (None, None);
        for attribute in attributes {
            let (kind, value) = attribute?;
            match kind {
                NETCONFA_IFINDEX => {
                    scope = Some(match u32_of(value)? {
                        u32::MAX => NetconfScope::All,
                        0xFFFF_FFFE => NetconfScope::Default,
                        index => NetconfScope::Interface(index),
                    });
                }
                NETCONFA_FORWARDING => forwarding = Some(u32_of(value)? != 0),
                NETCONFA_IGNORE_ROUTES_WITH_LINKDOWN => ignore_linkdown = Some(u32_of(value)? != 0),
                _ => {}
            }
        }
        Ok(scope.map(|scope| Self { family, scope, forwarding, ignore_linkdown }))
    }
}

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_CARRIER: u16 = 33;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_INFO_SLAVE_KIND: u16 = 4;
const IFLA_VLAN_ID: u16 = 1;
const IFLA_VLAN_PROTOCOL: u16 = 5;
const IFLA_MACVLAN_MODE: u16 = 1;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const NETCONFA_IFINDEX: u16 = 1;
const NETCONFA_FORWARDING: u16 = 2;
const NETCONFA_IGNORE_ROUTES_WITH_LINKDOWN: u16 = 6;
