//! Host routes for the neighbours of on-link routes.

use crate::Plane;
use crate::routes::{Failed, ends, host, in_turn};
use hashbrown::HashMap;
use kernel::Prefix;
use lpm::NextHop;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// The neighbours that have host routes.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    hosts: HashMap<IpAddr, Host>,
    /// Those for which the table had no room: the kernel has their packets.
    waiting: BTreeSet<IpAddr>,
    /// Where trying them again goes on.
    next: Option<IpAddr>,
}

#[derive(Debug)]
struct Host {
    interface: u32,
    /// The next hop of the kernel's route to this very address, if there is one.
    under: Option<NextHop>,
}

impl Hosts {
    /// What stands under a neighbour's host route, if the prefix is that of one.
    #[inline]
    pub(crate) fn under(&mut self, prefix: Prefix) -> Option<&mut Option<NextHop>> {
        if prefix != host(prefix.address) {
            return None;
        }
        self.hosts.get_mut(&prefix.address).map(|host| &mut host.under)
    }

    /// What stands under the host route of a neighbour, if there is one.
    pub(crate) fn get(&self, address: IpAddr) -> Option<Option<NextHop>> {
        self.hosts.get(&address).map(|host| host.under)
    }

    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// How many have found no room; and routes that are none of the kernel's, of IPv4 and IPv6.
    pub(crate) fn counts(&self) -> (usize, [usize; 2]) {
        let own = self.hosts.iter().filter(|(_, host)| host.under.is_none());
        let mut counts = [0; 2];
        own.for_each(|(address, _)| counts[usize::from(address.is_ipv6())] += 1);
        (self.waiting.len(), counts)
    }
}

impl Plane {
    /// All routes were replaced, and with them those of neighbours.
    pub(crate) fn forget_hosts(&mut self) {
        self.hosts.waiting.clear();
        for (address, host) in std::mem::take(&mut self.hosts.hosts) {
            self.release_leg((host.interface, Some(address)));
        }
    }

    /// A route has changed: the neighbours within may have host routes now, or no longer.
    #[inline]
    pub(crate) fn set_hosts_within(&mut self, prefix: Prefix) {
        let (first, last) = ends(prefix);
        // Those of a longer prefix go on as they did.
        let affected = self.neighbours.within(first, last).filter(|(_, len)| len.is_none_or(|len| len <= prefix.len));
        let affected: Vec<IpAddr> = affected.map(|(address, _)| address).collect();
        affected.into_iter().for_each(|address| self.set_host(address));
    }

    /// The routes by some interfaces are on-link now, or no longer.
    pub(crate) fn set_hosts_of(&mut self, interfaces: impl Iterator<Item = u32>) {
        for interface in interfaces {
            self.neighbours.of(interface).into_iter().for_each(|address| self.set_host(address));
        }
    }

    /// Gives a neighbour its host route, or takes it away. It has one from when it has answered until the kernel forgets it, if the
    /// longest route that holds its address is on-link at its interface.
    pub(crate) fn set_host(&mut self, address: IpAddr) {
        let route = self.kernel_route(address);
        let is_neighbour = self.neighbours.note(address, route.map(|(len, _)| len));
        let has = self.hosts.hosts.get(&address).map(|host| host.interface);
        let on_link = route.filter(|_| is_neighbour).and_then(|(_, hop)| self.numbers.on_link(hop));
        let wanted = on_link.filter(|interface| match has {
            Some(by) if by == *interface => self.neighbours.has(by, address),
            _ => self.neighbours.mac(*interface, address).is_some(),
        });
        self.hosts.waiting.remove(&address);
        if wanted == has {
            return;
        }
        if let Some(interface) = has
            && !self.remove_host(interface, address)
        {
            return;
        }
        if let Some(interface) = wanted
            && self.add_host(interface, address).is_err()
        {
            self.hosts.waiting.insert(address);
        }
    }

    fn add_host(&mut self, interface: u32, address: IpAddr) -> Result<(), router::Error> {
        let way = (interface, Some(address));
        let hop = self.hold_leg(way)?;
        let under = self.write_route(host(address), Some(hop)).inspect_err(|_| self.release_leg(way))?;
        self.hosts.hosts.insert(address, Host { interface, under });
        Ok(())
    }

    /// Returns whether there was memory for it.
    fn remove_host(&mut self, interface: u32, address: IpAddr) -> bool {
        let Some(under) = self.hosts.get(address) else { return true };
        if self.write_route(host(address), under).is_err() {
            self.fail(host(address), Failed::Host);
            return false;
        }
        self.hosts.hosts.remove(&address);
        self.release_leg((interface, Some(address)));
        true
    }

    /// Tries some of those again for which there was no room.
    pub(crate) fn retry_hosts(&mut self) {
        let Hosts { waiting, next, .. } = &mut self.hosts;
        in_turn(waiting.iter(), waiting.len(), next).into_iter().for_each(|address| self.set_host(address));
    }
}
