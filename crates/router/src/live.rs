//! A forwarding table that changes in place, as a routing protocol or a kernel's tables change.

use crate::ethernet::Interface;
use crate::fib::ACCELERATED;
use crate::groups;
use crate::hash::Policy;
use crate::hops::{BUCKETS, Group, Shared, Target, Word};
use crate::interfaces::Interfaces;
use crate::numbers::Numbers;
use crate::{Error, LiveForwarder, Neighbour, Refusal, Result};
use lpm::{Config, Ipv4Prefix, Ipv4Table, Ipv6Prefix, Ipv6Table, NextHop};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How large a [`LiveFib`] may become, and what its groups go by.
///
/// ```
/// let config = router::LiveConfig { next_hops: 1000, ..router::LiveConfig::default() };
/// # let _ = config;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveConfig {
    /// The most next hops, 8 bytes each.
    pub next_hops: u32,
    /// The most groups, 1 KiB each.
    pub groups: u32,
    /// The most VLAN sub-interfaces, 17 bytes each, and 8 KiB for each port that has one; with the ports 32,256 interfaces at most.
    pub sub_interfaces: u16,
    /// Whether IPv4 routes get the accelerator of [`lpm::Config`], which takes 16 MiB, once there are 100,000 of them, as in a table of
    /// [`Fib`](crate::Fib).
    pub accelerator: bool,
    /// Any number. Routers in a row need different ones: a flow's bucket in one would else say much about its bucket in the next.
    pub seed: u64,
}

impl Default for LiveConfig {
    /// 65,534 next hops, 1,024 groups, 4,094 sub-interfaces, an accelerator.
    fn default() -> Self {
        Self { next_hops: 65_534, groups: 1024, sub_interfaces: 4094, accelerator: true, seed: 0 }
    }
}

/// The forwarding table of a router whose routes, next hops and interfaces change one by one, while [`LiveForwarder`]s use it. It belongs to
/// one thread.
///
/// A route leads to the number of a next hop, and that to its [`Target`]: a neighbour, a group of next hops, or a reason to refuse.
/// A neighbour that changes its MAC address is one store, however many routes lead to it. A forwarder sees each change at once, whole,
/// and in the order of the calls as far as one packet goes; a burst may see a change in its middle.
///
/// Interfaces have numbers. Those of the ports begin with 0, and stand for frames without a VLAN tag; [`Self::add_interface`] gives
/// others to VLANs on ports.
///
/// ```
/// use router::{Interface, LiveConfig, LiveFib, MacAddress, Neighbour, Refusal, Target};
///
/// let ports = [0, 1].map(|last| Interface { mac: [2, 0, 0, 0, 1, last], promiscuous: false, mtu: 1500 });
/// let mut fib = LiveFib::new(&LiveConfig::default(), &ports)?;
/// let gateway = fib.add_next_hop(Target::Refused(Refusal::Unresolved))?;
/// fib.insert_ipv4("198.51.100.0/24".parse()?, gateway)?;
/// let forwarder = fib.forwarder();
/// // The gateway has answered.
/// let mac = MacAddress([2, 0, 0, 0, 2, 0]);
/// fib.set_next_hop(gateway, Target::Neighbour(Neighbour { port: 1, mac }))?;
/// # drop(forwarder);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct LiveFib {
    v4: Ipv4Table,
    v6: Ipv6Table,
    pub(crate) shared: Arc<Shared>,
    /// Uses are routes and memberships.
    hops: Numbers<Target>,
    /// Uses are next hops.
    groups: Numbers<Vec<(u32, u16)>>,
    /// Port and VLAN of each sub-interface, whose number is that of the ports more; uses are next hops.
    pub(crate) subs: Numbers<(u16, u16)>,
}

impl LiveFib {
    /// Creates a table without routes, for a router with these ports, all up.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`] or [`Error::Table`] if memory is short, [`Error::PortCount`] beyond 32,256 ports.
    pub fn new(config: &LiveConfig, ports: &[Interface]) -> Result<Self> {
        let most = usize::from(Word::INTERFACES);
        if ports.len() > most {
            return Err(Error::PortCount { routes: ports.len(), interfaces: most });
        }
        let LiveConfig { next_hops, groups, sub_interfaces, accelerator, seed } = *config;
        let interfaces = Interfaces::new(ports, sub_interfaces.into())?;
        let shared = Shared::new(next_hops.min(NextHop::MAX) as usize, groups as usize, interfaces, seed)?;
        Ok(Self {
            v4: Ipv4Table::with_config(Config { accelerator, ..ACCELERATED })?,
            v6: Ipv6Table::new()?,
            hops: Numbers::new("next hops", shared.next_hops()),
            groups: Numbers::new("groups", shared.groups()),
            subs: Numbers::new("sub-interfaces", shared.interfaces().most_subs()),
            shared: Arc::new(shared),
        })
    }

    /// Creates a handle for one thread.
    #[must_use]
    pub fn forwarder(&self) -> LiveForwarder {
        LiveForwarder::new(&self.shared, self.v4.reader(), self.v6.reader())
    }

    /// Returns the numbers of IPv4 and IPv6 routes.
    #[must_use]
    pub fn route_counts(&self) -> (usize, usize) {
        (self.v4.len(), self.v6.len())
    }

    /// Has the next packet to a neighbour refused as [`Refusal::Probe`], one packet, whoever forwards it: that packet takes a mark off, as
    /// does the next one that is refused as [`Refusal::Unresolved`] there. A change of the next hop calls it off. Returns whether the next
    /// hop leads to a neighbour; if not, and it is not unresolved, nothing happens.
    ///
    /// # Errors
    ///
    /// [`Error::Unknown`] if there is no such next hop.
    pub fn probe(&mut self, hop: NextHop) -> Result<bool> {
        let target = self.next_hop(hop)?;
        self.shared.probe(hop.get(), target);
        Ok(matches!(target, Target::Neighbour(_)))
    }

    /// Returns whether no packet has taken off the mark of [`Self::probe`] yet; `false` if there was none.
    #[must_use]
    pub fn is_marked(&self, hop: NextHop) -> bool {
        self.shared.is_marked(hop.get())
    }

    /// Has packets by a group leave, too, that take off the mark of [`Self::probe`], or refuses them. Who refuses them leaves them to
    /// somebody who may choose another member; who lets them leave probes members whose mark is taken off by other means.
    pub fn set_members_pass(&mut self, pass: bool) {
        self.shared.set_members_pass(pass);
    }

    /// Sets what tells the flows apart that groups spread, of IPv4 and of IPv6.
    pub fn set_policies(&mut self, policies: [Policy; 2]) {
        self.shared.set_policies(policies);
    }

    /// Adds a next hop. Returns its number, the lowest that is free.
    ///
    /// # Errors
    ///
    /// [`Error::Full`] if there are as many as may be, or if those given up last may still be in use by a forwarder: see
    /// [`LiveForwarder::catch_up`]. Those of [`Self::set_next_hop`].
    pub fn add_next_hop(&mut self, target: Target) -> Result<NextHop> {
        self.check(target)?;
        let number = self.hops.add(target, || self.shared.seen_by_all())?;
        let hop = NextHop::new(number)?;
        self.use_target(target, 1);
        self.shared.set_hop(number, target);
        Ok(hop)
    }

    /// Changes where a next hop leads: one store, which forwarders see with their next packet.
    ///
    /// # Errors
    ///
    /// [`Error::Unknown`] if there is no such next hop, group or port; [`Error::Nested`] if a member of a group would lead to a group.
    pub fn set_next_hop(&mut self, hop: NextHop, target: Target) -> Result<()> {
        let number = hop.get();
        let before = *self.hops.get(number)?;
        self.check(target)?;
        let is_member = || self.groups.iter().any(|(_, members)| members.iter().any(|(member, _)| *member == number));
        if matches!(target, Target::Group(_)) && is_member() {
            return Err(Error::Nested { hop: number });
        }
        self.use_target(target, 1);
        self.use_target(before, -1);
        *self.hops.get_mut(number)? = target;
        self.shared.set_hop(number, target);
        Ok(())
    }

    /// Returns where a next hop leads.
    ///
    /// # Errors
    ///
    /// [`Error::Unknown`].
    pub fn next_hop(&self, hop: NextHop) -> Result<Target> {
        self.hops.get(hop.get()).copied()
    }

    /// Removes a next hop. Its number is given to another only when every forwarder has begun a further burst.
    ///
    /// # Errors
    ///
    /// [`Error::Unknown`]; [`Error::InUse`] while routes or groups lead to it.
    pub fn remove_next_hop(&mut self, hop: NextHop) -> Result<()> {
        let target = self.hops.remove(hop.get(), || self.shared.begin_generation())?;
        self.use_target(target, -1);
        self.shared.set_hop(hop.get(), Target::Refused(Refusal::Unresolved));
        Ok(())
    }

    /// Adds a group of next hops, each with a weight. Flows of members go as by the group that has most of them, as far as weights allow:
    /// it may be about to take that one's place.
    ///
    /// # Errors
    ///
    /// As for [`Self::set_group`]; [`Error::Full`] as for [`Self::add_next_hop`].
    pub fn add_group(&mut self, members: &[(NextHop, u16)]) -> Result<Group> {
        self.check_members(members)?;
        let like = self.most_like(members);
        let group = Group(self.groups.add(Vec::new(), || self.shared.seen_by_all())?);
        let others = like.map(|like| self.shared.buckets(like)).unwrap_or_default();
        for (at, bucket) in self.shared.buckets(group).iter().enumerate() {
            let owner = others.get(at).map_or(u32::MAX, |other| other.load(Ordering::Relaxed));
            bucket.store(owner, Ordering::Release);
        }
        self.set_group(group, members)?;
        Ok(group)
    }

    /// The group that has most of these members; of several, one that has the fewest others.
    fn most_like(&self, members: &[(NextHop, u16)]) -> Option<Group> {
        let wanted: BTreeSet<u32> = members.iter().map(|(hop, _)| hop.get()).collect();
        let likeness = |(number, others): (u32, &Vec<(u32, u16)>)| {
            let common = others.iter().filter(|(other, _)| wanted.contains(other)).count();
            (common > 0).then_some((common, Reverse(others.len()), number))
        };
        self.groups.iter().filter_map(likeness).max().map(|(.., number)| Group(number))
    }

    /// Changes the members of a group. Flows of members that stay do so as far as weights allow: 256 buckets of flows are shared out,
    /// and as few as may be change hands. Without members all packets are refused as [`Refusal::Unresolved`].
    ///
    /// # Errors
    ///
    /// [`Error::Unknown`] if there is no such group or next hop; [`Error::Members`] if there are more than 256, one is there twice, or a
    /// weight is 0; [`Error::Nested`] if a member leads to a group.
    pub fn set_group(&mut self, group: Group, members: &[(NextHop, u16)]) -> Result<()> {
        self.groups.get(group.0)?;
        self.check_members(members)?;
        let members: Vec<(u32, u16)> = members.iter().map(|(hop, weight)| (hop.get(), *weight)).collect();
        let places = self.shared.buckets(group);
        let mut buckets: Vec<u32> = places.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect();
        groups::assign(&mut buckets, &members);
        for (place, bucket) in places.iter().zip(buckets) {
            place.store(bucket, Ordering::Release);
        }
        members.iter().for_each(|(hop, _)| self.hops.used(*hop, 1));
        let before = std::mem::replace(self.groups.get_mut(group.0)?, members);
        before.iter().for_each(|(hop, _)| self.hops.used(*hop, -1));
        Ok(())
    }

    /// Removes a group. Its memory is given to another only when every forwarder has begun a further burst.
    ///
    /// # Errors
    ///
    /// [`Error::Unknown`]; [`Error::InUse`] while next hops lead to it.
    pub fn remove_group(&mut self, group: Group) -> Result<()> {
        let members = self.groups.remove(group.0, || self.shared.begin_generation())?;
        members.iter().for_each(|(hop, _)| self.hops.used(*hop, -1));
        Ok(())
    }

    /// Adds a route, or changes the next hop of one. Returns the next hop that it had.
    ///
    /// # Errors
    ///
    /// [`Error::Unknown`] if there is no such next hop, [`Error::Table`] if memory is short; then nothing has changed.
    pub fn insert_ipv4(&mut self, prefix: Ipv4Prefix, hop: NextHop) -> Result<Option<NextHop>> {
        self.hops.get(hop.get())?;
        let before = self.v4.insert(prefix, hop)?;
        self.moved(Some(hop), before);
        Ok(before)
    }

    /// As [`Self::insert_ipv4`].
    ///
    /// # Errors
    ///
    /// As for [`Self::insert_ipv4`].
    pub fn insert_ipv6(&mut self, prefix: Ipv6Prefix, hop: NextHop) -> Result<Option<NextHop>> {
        self.hops.get(hop.get())?;
        let before = self.v6.insert(prefix, hop)?;
        self.moved(Some(hop), before);
        Ok(before)
    }

    /// Removes a route. Returns its next hop.
    ///
    /// # Errors
    ///
    /// [`Error::Table`] if there is none, or memory is short; then nothing has changed.
    pub fn remove_ipv4(&mut self, prefix: Ipv4Prefix) -> Result<NextHop> {
        let before = self.v4.remove(prefix)?;
        self.moved(None, Some(before));
        Ok(before)
    }

    /// As [`Self::remove_ipv4`].
    ///
    /// # Errors
    ///
    /// As for [`Self::remove_ipv4`].
    pub fn remove_ipv6(&mut self, prefix: Ipv6Prefix) -> Result<NextHop> {
        let before = self.v6.remove(prefix)?;
        self.moved(None, Some(before));
        Ok(before)
    }

    /// Puts these routes in the place of all others, much faster than one by one; they may come in any order, and the later of two for one
    /// prefix stands. Forwarders see either the ones or the others, of each family for itself.
    ///
    /// # Errors
    ///
    /// [`Error::Unknown`] if there is no such next hop, [`Error::Table`] if memory is short; then nothing has changed, or IPv4 alone.
    pub fn replace_routes(
        &mut self,
        v4: impl IntoIterator<Item = (Ipv4Prefix, NextHop)>,
        v6: impl IntoIterator<Item = (Ipv6Prefix, NextHop)>,
    ) -> Result<()> {
        let Self { v4: ipv4, v6: ipv6, hops, .. } = self;
        replace(ipv4, hops, v4)?;
        replace(ipv6, hops, v6)
    }

    /// The routes whose prefixes cover `prefix`, itself included, shortest first.
    pub fn covering_ipv4(&self, prefix: Ipv4Prefix) -> impl DoubleEndedIterator<Item = (Ipv4Prefix, NextHop)> + '_ {
        self.v4.covering(prefix)
    }

    /// As [`Self::covering_ipv4`].
    pub fn covering_ipv6(&self, prefix: Ipv6Prefix) -> impl DoubleEndedIterator<Item = (Ipv6Prefix, NextHop)> + '_ {
        self.v6.covering(prefix)
    }

    /// A route leads to `to` now, and led to `from`.
    fn moved(&mut self, to: Option<NextHop>, from: Option<NextHop>) {
        if let Some(hop) = to {
            self.hops.used(hop.get(), 1);
        }
        if let Some(hop) = from {
            self.hops.used(hop.get(), -1);
        }
    }

    /// Counts uses of what a target names.
    fn use_target(&mut self, target: Target, times: i64) {
        match target {
            Target::Group(group) => self.groups.used(group.0, times),
            Target::Neighbour(Neighbour { port, .. }) => {
                if let Ok(Some(index)) = self.sub_interface(port) {
                    self.subs.used(index, times);
                }
            }
            Target::Refused(_) => {}
        }
    }

    /// Whether there is what a target names.
    fn check(&self, target: Target) -> Result<()> {
        match target {
            Target::Neighbour(neighbour) => self.sub_interface(neighbour.port).map(drop),
            Target::Group(group) => self.groups.get(group.0).map(drop),
            Target::Refused(_) => Ok(()),
        }
    }

    fn check_members(&self, members: &[(NextHop, u16)]) -> Result<()> {
        if members.len() > BUCKETS {
            return Err(Error::Members { problem: "more than 256 members" });
        }
        let mut numbers: Vec<u32> = members.iter().map(|(hop, _)| hop.get()).collect();
        numbers.sort_unstable();
        if numbers.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(Error::Members { problem: "a member twice" });
        }
        for (hop, weight) in members {
            if matches!(self.hops.get(hop.get())?, Target::Group(_)) {
                return Err(Error::Nested { hop: hop.get() });
            }
            if *weight == 0 {
                return Err(Error::Members { problem: "a weight of 0" });
            }
        }
        Ok(())
    }
}

/// Puts routes in the place of all others of a family.
fn replace<F: lpm::Family>(
    table: &mut lpm::Table<F>,
    hops: &mut Numbers<Target>,
    routes: impl IntoIterator<Item = (F::Prefix, NextHop)>,
) -> Result<()> {
    let before = uses(table);
    let mut unknown = None;
    let known = routes.into_iter().take_while(|(_, hop)| {
        unknown = hops.get(hop.get()).err();
        unknown.is_none()
    });
    let mut routes: Vec<(F::Prefix, NextHop)> = known.collect();
    if let Some(unknown) = unknown {
        return Err(unknown);
    }
    // A table is built fastest in this order.
    routes.sort_by_key(|(prefix, _)| *prefix);
    table.replace(routes)?;
    uses(table).into_iter().for_each(|(hop, count)| hops.used(hop, count));
    before.into_iter().for_each(|(hop, count)| hops.used(hop, -count));
    Ok(())
}

/// How many routes lead to each next hop.
fn uses<F: lpm::Family>(table: &lpm::Table<F>) -> Vec<(u32, i64)> {
    let mut counts = Vec::new();
    for (_, hop) in table.iter() {
        let hop = hop.get() as usize;
        if counts.len() <= hop {
            counts.resize(hop + 1, 0);
        }
        counts[hop] += 1;
    }
    (0..).zip(counts).filter(|(_, count)| *count > 0).collect()
}
