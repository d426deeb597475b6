//! Neighbours, and that they stay true.

use crate::Plane;
use hashbrown::HashMap;
use kernel::Neighbour;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::Bound::{Excluded, Unbounded};
use std::time::Duration;

/// The kernel's neighbour tables.
#[derive(Debug, Default)]
pub(crate) struct Neighbours {
    by_key: HashMap<(u32, IpAddr), Neighbour>,
    /// Those that may have host routes: how many interfaces have each, and the bits of the longest prefix of the kernel's that holds it.
    addresses: BTreeMap<IpAddr, Address>,
    stale: BTreeSet<(u32, IpAddr)>,
    /// The one that was probed last.
    probed: Option<(u32, IpAddr)>,
    ticked: Option<Duration>,
    /// Parts of probes that are due, in milliseconds of a second.
    due: u128,
    ticks: usize,
    /// `gc_thresh3` of IPv4 and IPv6.
    limits: [Option<usize>; 2],
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Address {
    interfaces: u32,
    pub(crate) len: Option<u8>,
}

impl Neighbours {
    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(crate) fn has_stale(&self) -> bool {
        !self.stale.is_empty()
    }

    /// Where frames to a neighbour go; `None` while the kernel would ask.
    pub(crate) fn mac(&self, interface: u32, address: IpAddr) -> Option<[u8; 6]> {
        self.by_key.get(&(interface, address)).and_then(station)
    }

    pub(crate) fn has(&self, interface: u32, address: IpAddr) -> bool {
        self.by_key.contains_key(&(interface, address))
    }

    /// Those that are not among these.
    pub(crate) fn beyond(&self, keys: &BTreeSet<(u32, IpAddr)>) -> Vec<(u32, IpAddr)> {
        self.by_key.keys().copied().filter(|key| !keys.contains(key)).collect()
    }

    /// Those that may have host routes, from one to another.
    pub(crate) fn within(&self, first: IpAddr, last: IpAddr) -> impl Iterator<Item = (IpAddr, Option<u8>)> + '_ {
        self.addresses.range(first..=last).map(|(address, known)| (*address, known.len))
    }

    /// Those that may have host routes, of one interface.
    pub(crate) fn of(&self, interface: u32) -> Vec<IpAddr> {
        let keys = self.by_key.keys().filter(|(by, address)| *by == interface && may_be_host(*address));
        keys.map(|(_, address)| *address).collect()
    }

    /// Notes the bits of the longest prefix that holds an address. Returns whether it may have a host route.
    pub(crate) fn note(&mut self, address: IpAddr, len: Option<u8>) -> bool {
        self.addresses.get_mut(&address).map(|known| known.len = len).is_some()
    }

    fn count(&mut self, address: IpAddr, appeared: bool) {
        if appeared {
            self.addresses.entry(address).or_default().interfaces += 1;
        } else if let Some(known) = self.addresses.get_mut(&address) {
            known.interfaces -= 1;
            if known.interfaces == 0 {
                self.addresses.remove(&address);
            }
        }
    }

    /// How many STALE neighbours are due to be probed: each once a second, of thousands less often.
    fn due(&mut self, now: Duration) -> usize {
        let second = Duration::from_secs(1);
        let elapsed = self.ticked.map_or(second, |ticked| now.saturating_sub(ticked).min(second));
        self.ticked = Some(now);
        self.due += elapsed.as_millis() * self.stale.len() as u128;
        let count = usize::try_from(self.due / 1000).unwrap_or(usize::MAX).min(self.stale.len()).min(AT_ONCE);
        self.due %= 1000;
        count
    }

    /// The next ones to be probed.
    fn next(&mut self, count: usize) -> Vec<(u32, IpAddr)> {
        let after = match self.probed {
            Some(probed) => self.stale.range((Excluded(probed), Unbounded)),
            None => self.stale.range(..),
        };
        let next: Vec<_> = after.chain(&self.stale).take(count).copied().collect();
        self.probed = next.last().copied().or(self.probed);
        next
    }

    /// Tables that are nearly as full as the kernel lets them be.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> + '_ {
        let counts = [false, true].map(|v6| self.by_key.keys().filter(|(_, address)| address.is_ipv6() == v6).count());
        ["ipv4", "ipv6"].into_iter().zip(counts).zip(self.limits).filter_map(|((family, count), limit)| {
            let limit = limit?;
            (count >= limit - limit / 10).then(|| {
                format!(
                    "{count} neighbours of at most {limit}; raise net.{family}.neigh.default.gc_thresh3, or some are not found"
                )
            })
        })
    }
}

/// The address to send to, if the kernel would send there now; that of a group is the kernel's business.
fn station(neighbour: &Neighbour) -> Option<[u8; 6]> {
    neighbour.usable().filter(|mac| mac[0] & 1 == 0)
}

impl Plane {
    /// Sets how many neighbours the kernel keeps at most, of IPv4 and IPv6 (`net.ipv4.neigh.default.gc_thresh3`), for the report.
    pub fn set_neighbour_limits(&mut self, limits: [Option<usize>; 2]) {
        self.neighbours.limits = limits;
    }

    /// A neighbour is so now, or forgotten.
    pub(crate) fn set_neighbour(&mut self, interface: u32, address: IpAddr, now: Option<Neighbour>) {
        let (key, neighbours) = ((interface, address), &mut self.neighbours);
        let usable = |neighbour: Option<Neighbour>| neighbour.map(|neighbour| station(&neighbour).is_some());
        let before = match now {
            Some(now) => neighbours.by_key.insert(key, now),
            None => neighbours.by_key.remove(&key),
        };
        let was_stale = if now.is_some_and(|now| now.state & STALE != 0) {
            neighbours.stale.insert(key);
            false
        } else {
            neighbours.stale.remove(&key)
        };
        if before.is_some() != now.is_some() && may_be_host(address) {
            neighbours.count(address, now.is_some());
        }
        self.update_way((interface, Some(address)));
        if was_stale {
            // It is not probed any more.
            self.write_way((interface, Some(address)));
        }
        // One that has not answered is asked for anew, by a broadcast, as the kernel does for its next packet.
        if usable(before) == Some(true) && now.is_some_and(|now| now.state & FAILED != 0) {
            self.ask((interface, Some(address)));
        }
        if usable(before) != usable(now) && may_be_host(address) {
            self.set_host(address);
        }
    }

    /// Has the next packet to each STALE neighbour that is due go by the kernel.
    pub(crate) fn probe(&mut self, now: Duration) {
        let count = self.neighbours.due(now);
        self.neighbours.ticks = self.neighbours.ticks.wrapping_add(count);
        for (interface, address) in self.neighbours.next(count) {
            self.probe_way((interface, Some(address)), self.neighbours.ticks);
        }
    }
}

/// Whether an address may be a neighbour for which there is a host route: link-local ones are those of one link only.
pub(crate) fn may_be_host(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !(address.is_multicast() || address.is_broadcast() || address.is_unspecified()),
        IpAddr::V6(address) => !(address.is_multicast() || address.is_unspecified() || address.is_unicast_link_local()),
    }
}

/// Neighbours that are probed with a tick: with one each 50 ms 4,000 a second, fewer than the host lets pass. What it does not is lost.
pub(crate) const AT_ONCE: usize = 200;
/// NUD_STALE.
const STALE: u16 = 0x04;
/// NUD_FAILED.
const FAILED: u16 = 0x20;
