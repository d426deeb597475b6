//! Next hop objects and their groups (`linux/nexthop.h`).

use super::attribute::{address, fixed, u16_of, u32_of};
use super::{Family, Leg};
use crate::Fault;
use std::net::IpAddr;

/// RTM_NEWNEXTHOP, RTM_DELNEXTHOP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextHop<'a> {
    /// Its number.
    pub id: u32,
    /// Its family; `None` of a group.
    pub family: Option<Family>,
    /// The interface, 0 of a group.
    pub interface: u32,
    /// The gateway; without one, the destination itself is the neighbour.
    pub gateway: Option<IpAddr>,
    /// Whether packets are dropped.
    pub blackhole: bool,
    /// Whether it is more than a gateway: an encapsulation, a bridge's entry, a resilient group.
    pub special: bool,
    members: &'a [u8],
}

impl<'a> NextHop<'a> {
    pub(super) fn decode(payload: &'a [u8]) -> Result<Self, Fault> {
        let (head, attributes) = fixed::<8>(payload)?;
        let mut found = Self {
            id: 0,
            family: Family::from_number(head[0]),
            interface: 0,
            gateway: None,
            blackhole: false,
            special: false,
            members: &[],
        };
        for attribute in attributes {
            let (kind, value) = attribute?;
            match kind {
                NHA_ID => found.id = u32_of(value)?,
                NHA_GROUP if value.len() % MEMBER == 0 => found.members = value,
                NHA_GROUP => return Err(Fault::Value),
                NHA_GROUP_TYPE => found.special |= u16_of(value)? != 0,
                NHA_BLACKHOLE => found.blackhole = true,
                NHA_OIF => found.interface = u32_of(value)?,
                NHA_GATEWAY => found.gateway = Some(address(value)?),
                NHA_ENCAP_TYPE | NHA_ENCAP | NHA_FDB => found.special = true,
                _ => {}
            }
        }
        if found.id == 0 { Err(Fault::Value) } else { Ok(found) }
    }

    /// Returns whether it is a group.
    #[must_use]
    pub fn is_group(&self) -> bool {
        !self.members.is_empty()
    }

    /// The members of a group: number and weight, 1 to 65,536.
    pub fn members(&self) -> impl Iterator<Item = (u32, u32)> + 'a {
        self.members.chunks_exact(MEMBER).map(|member| {
            let id = u32_of(member).unwrap_or(0);
            // The high byte came with Linux 6.12; before, it was zero.
            (id, 1 + (u32::from(member[4]) | u32::from(member[5]) << 8))
        })
    }

    /// The leg of what is no group.
    #[must_use]
    pub fn leg(&self) -> Leg {
        Leg { interface: self.interface, gateway: self.gateway, weight: 1 }
    }
}

/// `sizeof(struct nexthop_grp)`.
const MEMBER: usize = 8;
const NHA_ID: u16 = 1;
const NHA_GROUP: u16 = 2;
const NHA_GROUP_TYPE: u16 = 3;
const NHA_BLACKHOLE: u16 = 4;
const NHA_OIF: u16 = 5;
const NHA_GATEWAY: u16 = 6;
const NHA_ENCAP_TYPE: u16 = 7;
const NHA_ENCAP: u16 = 8;
const NHA_FDB: u16 = 11;
