//! Neighbours (`linux/neighbour.h`).

use super::Family;
use super::attribute::{address, fixed, u16_at, u32_at};
use crate::Fault;
use std::net::IpAddr;

/// RTM_NEWNEIGH, RTM_DELNEIGH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighbourMessage {
    /// The interface.
    pub interface: u32,
    /// Its address.
    pub address: IpAddr,
    /// Its hardware address, if it is known and has 6 bytes.
    pub mac: Option<[u8; 6]>,
    /// NUD_*.
    pub state: u16,
}

impl NeighbourMessage {
    /// `None` of entries of a bridge, of proxies, and of what has no address.
    pub(super) fn decode(payload: &[u8]) -> Result<Option<Self>, Fault> {
        let (head, attributes) = fixed::<12>(payload)?;
        let Some(family) = Family::from_number(head[0]) else { return Ok(None) };
        let (mut found, mut mac) = (None, None);
        for attribute in attributes {
            match attribute? {
                (NDA_DST, value) => found = Some(address(value)?),
                (NDA_LLADDR, value) => mac = value.try_into().ok(),
                _ => {}
            }
        }
        let Some(address) = found.filter(|_| head[10] & NTF_PROXY == 0) else { return Ok(None) };
        if address.is_ipv4() != (family == Family::V4) {
            return Err(Fault::Value);
        }
        Ok(Some(Self { interface: u32_at(head, 4), address, mac, state: u16_at(head, 8) }))
    }
}

pub(super) const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
/// The kernel is to use the neighbour (`ip neigh ... use`).
pub(super) const NTF_USE: u8 = 1;
const NTF_PROXY: u8 = 8;
