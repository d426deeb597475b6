//! Routes of the kernel in the forwarding table.

use crate::Plane;
use kernel::{Mirror, Prefix, Target};
use lpm::{Ipv4Prefix, Ipv6Prefix, NextHop};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// What is known of routes besides the table.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    /// Those whose number has found no room for a next hop, so that the kernel has their packets.
    orphans: BTreeMap<Prefix, u32>,
    /// Those that the table had no memory for.
    failed: BTreeMap<Prefix, Failed>,
    /// Of them, by family.
    failures: [usize; 2],
    /// Where trying again goes on.
    next: Option<Prefix>,
}

/// What the table had no memory for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Failed {
    /// A change of a route of the kernel.
    Route(Option<Target>),
    /// The end of a neighbour's host route.
    Host,
}

impl Routes {
    pub(crate) fn is_waiting(&self) -> bool {
        !self.orphans.is_empty() || !self.failed.is_empty()
    }

    /// Whether the table lacks routes of a family, 0 or 1, so that all of its packets are the kernel's.
    pub(crate) fn has_failed(&self, family: usize) -> bool {
        self.failures[family] > 0
    }

    /// Routes without a next hop of their own, and routes that are missing.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.orphans.len(), self.failed.len())
    }
}

impl Plane {
    /// Packets of a prefix go there now.
    pub(crate) fn set_route(&mut self, prefix: Prefix, to: Option<Target>) {
        let Some(prefix) = whole(prefix) else { return };
        if !self.routes.orphans.is_empty() {
            self.routes.orphans.remove(&prefix);
        }
        if !self.routes.failed.is_empty() {
            self.forgive(prefix);
        }
        let hop = to.map(|target| self.hop(prefix, target));
        match self.hosts.under(prefix) {
            // A neighbour's host route stands in its place.
            Some(under) => *under = hop,
            None => {
                if self.write_route(prefix, hop).is_err() {
                    self.fail(prefix, Failed::Route(to));
                }
            }
        }
        self.set_hosts_within(prefix);
    }

    /// Puts the routes of a mirror in the place of all others. Its next hops are known.
    pub(crate) fn load_routes(&mut self, mirror: &Mirror) {
        let (count_v4, count_v6) = mirror.prefix_counts();
        let (mut v4, mut v6) = (Vec::with_capacity(count_v4), Vec::with_capacity(count_v6));
        let mut orphans = BTreeMap::new();
        for (prefix, target) in mirror.routes() {
            let hop = self.fixed_hop(target).or_else(|number| self.numbers.hop(number).ok_or(number));
            let hop = hop.unwrap_or_else(|number| {
                orphans.insert(prefix, number);
                self.fixed.left_to_host
            });
            match prefix.address {
                IpAddr::V4(address) => v4.extend(Ipv4Prefix::truncate(address, prefix.len).map(|prefix| (prefix, hop))),
                IpAddr::V6(address) => v6.extend(Ipv6Prefix::truncate(address, prefix.len).map(|prefix| (prefix, hop))),
            }
        }
        if self.fib.replace_routes(v4, v6).is_err() {
            // As far as there is memory.
            return mirror.routes().for_each(|(prefix, to)| self.set_route(prefix, Some(to)));
        }
        self.routes = Routes { orphans, ..Routes::default() };
        self.forget_hosts();
    }

    /// The next hop of a target; for next hops of the mirror, their number.
    fn fixed_hop(&self, target: Target) -> Result<NextHop, u32> {
        match target {
            Target::NextHops(number) => Err(number),
            Target::Local => Ok(self.fixed.for_host),
            Target::Blackhole => Ok(self.fixed.blackhole),
            Target::Unreachable => Ok(self.fixed.unreachable),
            Target::Prohibit => Ok(self.fixed.prohibited),
            Target::Kernel(_) => Ok(self.fixed.left_to_host),
        }
    }

    fn hop(&mut self, prefix: Prefix, target: Target) -> NextHop {
        let hop = self.fixed_hop(target).or_else(|number| self.number_hop(number).ok_or(number));
        hop.unwrap_or_else(|number| {
            self.routes.orphans.insert(prefix, number);
            self.fixed.left_to_host
        })
    }

    /// Writes a route, or removes it. Returns the next hop that it had.
    pub(crate) fn write_route(&mut self, prefix: Prefix, hop: Option<NextHop>) -> router::Result<Option<NextHop>> {
        let written = match (prefix.address, hop) {
            (IpAddr::V4(address), Some(hop)) => self.fib.insert_ipv4(Ipv4Prefix::new(address, prefix.len)?, hop),
            (IpAddr::V4(address), None) => self.fib.remove_ipv4(Ipv4Prefix::new(address, prefix.len)?).map(Some),
            (IpAddr::V6(address), Some(hop)) => self.fib.insert_ipv6(Ipv6Prefix::new(address, prefix.len)?, hop),
            (IpAddr::V6(address), None) => self.fib.remove_ipv6(Ipv6Prefix::new(address, prefix.len)?).map(Some),
        };
        match written {
            // It is not there, as it should be.
            Err(router::Error::Table(lpm::Error::NoSuchRoute { .. })) => Ok(None),
            written => written,
        }
    }

    /// The longest route of the kernel's that holds an address: its bits, and its next hop.
    pub(crate) fn kernel_route(&self, address: IpAddr) -> Option<(u8, NextHop)> {
        let host = host(address);
        // What stands under a neighbour's host route, or any shorter one.
        let (under, longest) = match self.hosts.get(address) {
            Some(under) => (under, host.len - 1),
            None => (None, host.len),
        };
        let covering = || match address {
            IpAddr::V4(address) => {
                let mut covering = self.fib.covering_ipv4(Ipv4Prefix::truncate(address, longest).ok()?);
                covering.next_back().map(|(prefix, hop)| (prefix.len(), hop))
            }
            IpAddr::V6(address) => {
                let mut covering = self.fib.covering_ipv6(Ipv6Prefix::truncate(address, longest).ok()?);
                covering.next_back().map(|(prefix, hop)| (prefix.len(), hop))
            }
        };
        under.map(|hop| (host.len, hop)).or_else(covering)
    }

    /// The table has no memory for a change: what it lacks could be any reason to forward otherwise, so all packets of the family are
    /// the kernel's until it has.
    pub(crate) fn fail(&mut self, prefix: Prefix, failed: Failed) {
        let family = usize::from(prefix.address.is_ipv6());
        if self.routes.failed.insert(prefix, failed).is_none() {
            self.routes.failures[family] += 1;
            self.all_families();
        }
    }

    fn forgive(&mut self, prefix: Prefix) {
        let family = usize::from(prefix.address.is_ipv6());
        if self.routes.failed.remove(&prefix).is_some() {
            self.routes.failures[family] -= 1;
            if self.routes.failures[family] == 0 {
                self.all_families();
            }
        }
    }

    /// Tries again what had no room or no memory.
    pub(crate) fn retry_routes(&mut self) {
        if std::mem::take(&mut self.numbers.gained) {
            let room = self.routes.orphans.iter().filter(|(_, number)| self.numbers.hop(**number).is_some());
            let room: Vec<(Prefix, u32)> = room.map(|(prefix, number)| (*prefix, *number)).collect();
            for (prefix, number) in room {
                self.set_route(prefix, Some(Target::NextHops(number)));
            }
        }
        let Routes { failed, next, .. } = &mut self.routes;
        for prefix in in_turn(failed.keys(), failed.len(), next) {
            match self.routes.failed.get(&prefix).copied() {
                Some(Failed::Route(to)) => self.set_route(prefix, to),
                Some(Failed::Host) => {
                    self.forgive(prefix);
                    self.set_host(prefix.address);
                }
                None => {}
            }
        }
    }
}

/// Some of what waits, which are sorted: those behind `next`, then from the start. Moves `next` on.
pub(crate) fn in_turn<'a, T: Copy + Ord + 'a>(
    waiting: impl Iterator<Item = &'a T> + Clone,
    count: usize,
    next: &mut Option<T>,
) -> Vec<T> {
    let behind = waiting.clone().filter(|value| next.is_none_or(|next| **value > next));
    let some: Vec<T> = behind.chain(waiting).take(count.min(AT_ONCE)).copied().collect();
    *next = some.last().copied();
    some
}

/// What is tried again at once, at most.
const AT_ONCE: usize = 256;

/// The prefix of one address.
pub(crate) fn host(address: IpAddr) -> Prefix {
    Prefix { address, len: if address.is_ipv4() { 32 } else { 128 } }
}

/// A prefix without bits beyond its length; `None` if that is longer than an address.
fn whole(Prefix { address, len }: Prefix) -> Option<Prefix> {
    let address = match address {
        IpAddr::V4(address) => Ipv4Prefix::truncate(address, len).ok()?.address().into(),
        IpAddr::V6(address) => Ipv6Prefix::truncate(address, len).ok()?.address().into(),
    };
    Some(Prefix { address, len })
}

/// The first and the last address of a prefix.
pub(crate) fn ends(Prefix { address, len }: Prefix) -> (IpAddr, IpAddr) {
    match address {
        IpAddr::V4(first) => {
            let rest = u32::MAX.checked_shr(len.into()).unwrap_or(0);
            (address, std::net::Ipv4Addr::from_bits(first.to_bits() | rest).into())
        }
        IpAddr::V6(first) => {
            let rest = u128::MAX.checked_shr(len.into()).unwrap_or(0);
            (address, std::net::Ipv6Addr::from_bits(first.to_bits() | rest).into())
        }
    }
}
