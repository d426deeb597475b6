//! Which interfaces of the kernel are ports, and VLANs on them, and their settings.

use crate::Plane;
use hashbrown::HashMap;
use kernel::{Interface, Reason};
use router::{FurtherMac, MacAddress};
use std::collections::{BTreeMap, BTreeSet};

/// A port of the forwarding table, and its twin among the kernel's interfaces.
///
/// ```
/// let port = plane::Port { name: "rw0".to_owned(), index: None, mtu: 1500 };
/// # let _ = port;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The name of the interface. Once it is found, it may be renamed.
    pub name: String,
    /// The index of the interface, if it is to be this one and no other of the name. Once it is gone, the port is closed until there is
    /// one of this index and the last name again.
    pub index: Option<u32>,
    /// The size in bytes of the longest IP packet that the port can send. A larger MTU of the interface counts as this.
    pub mtu: u16,
}

/// The ports, their sub-interfaces, and all interfaces.
#[derive(Debug)]
pub(crate) struct Ports {
    ports: Vec<Bound>,
    /// Port and VLAN of each sub-interface of the table, by its number there.
    subs: BTreeMap<u16, (u16, u16)>,
    /// By index.
    interfaces: HashMap<u32, Interface>,
    /// The numbers that interfaces have in the table.
    bound: HashMap<u32, u16>,
    /// Sub-interfaces for which the table had no room.
    waiting: BTreeSet<u32>,
    /// Numbers of the table that could not be given up.
    leaving: Vec<u16>,
    /// What `net.ipv6.conf.X.mtu` says of interfaces.
    ipv6_mtus: HashMap<u32, u16>,
    /// The sub-interface whose setting was looked at last.
    looked_at: u16,
    /// Those of the interfaces that are macvlans.
    macvlans: BTreeSet<u32>,
    /// What the table was told of them.
    further: Vec<FurtherMac>,
    /// How often a port has got or lost its interface.
    pub(crate) rebound: u64,
}

#[derive(Debug)]
struct Bound {
    port: Port,
    index: Option<u32>,
    /// The last name of the interface that it had.
    last_name: Option<String>,
}

impl Ports {
    pub(crate) fn new(ports: &[Port]) -> Self {
        let ports = ports.iter().map(|port| Bound { port: port.clone(), index: None, last_name: None }).collect();
        Self {
            ports,
            subs: BTreeMap::new(),
            interfaces: HashMap::new(),
            bound: HashMap::new(),
            waiting: BTreeSet::new(),
            leaving: Vec::new(),
            ipv6_mtus: HashMap::new(),
            looked_at: 0,
            macvlans: BTreeSet::new(),
            further: Vec::new(),
            rebound: 0,
        }
    }

    /// The number in the table of the interface that packets leave by if their route says this one.
    pub(crate) fn number(&self, interface: u32) -> Option<u16> {
        let number = self.bound.get(&interface).copied()?;
        self.interfaces.get(&interface).filter(|interface| interface.kernel.is_none()).map(|_| number)
    }

    /// The names of those that are no ports of the data path, nor are to be.
    pub(crate) fn others<'a>(&'a self, interfaces: &'a BTreeSet<u32>) -> impl Iterator<Item = &'a str> {
        let others =
            interfaces.iter().filter(|index| !self.bound.contains_key(*index) && !self.waiting.contains(index));
        let others = others.filter_map(|index| self.interfaces.get(index)).filter(|other| other.kernel.is_none());
        others.map(|interface| interface.name.as_str())
    }

    /// The interfaces that are not among these.
    pub(crate) fn beyond(&self, indices: &BTreeSet<u32>) -> Vec<u32> {
        self.interfaces.keys().copied().filter(|index| !indices.contains(index)).collect()
    }

    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty() || !self.leaving.is_empty()
    }

    /// Has each port that has lost its interface look for it, or for another of its name if that is enough. Returns the ports that have another one now.
    fn bind(&mut self) -> Vec<u16> {
        let mut changed = Vec::new();
        for (number, bound) in (0..).zip(&mut self.ports) {
            let before = bound.index;
            if let Some(index) = before.filter(|index| !self.interfaces.contains_key(index)) {
                self.bound.remove(&index);
                bound.index = None;
            }
            if bound.index.is_none() {
                let free = |index: &u32| !self.bound.contains_key(index);
                let name = |index: &u32| self.interfaces.get(index).map(|interface| &interface.name);
                bound.index = match &bound.port.index {
                    Some(index) => {
                        let is_it = |name| bound.last_name.as_ref().is_none_or(|last| last == name);
                        Some(*index).filter(|index| free(index) && name(index).is_some_and(is_it))
                    }
                    None => {
                        let mut indices = self.interfaces.keys().copied();
                        indices.find(|index| free(index) && name(index) == Some(&bound.port.name))
                    }
                };
                bound.index.map(|index| self.bound.insert(index, number));
            }
            if let Some(interface) = bound.index.and_then(|index| self.interfaces.get(&index))
                && bound.last_name.as_ref() != Some(&interface.name)
            {
                bound.last_name = Some(interface.name.clone());
            }
            if bound.index != before {
                changed.push(number);
            }
        }
        self.rebound += changed.len() as u64;
        changed
    }

    /// The port and the VLAN that an interface stands for.
    fn vlan(&self, index: u32) -> Option<(u16, u16)> {
        let (parent, vlan) = self.interfaces.get(&index)?.vlan?;
        let port = *self.bound.get(&parent).filter(|number| usize::from(**number) < self.ports.len())?;
        (1..=4094).contains(&vlan).then_some((port, vlan))
    }

    /// The sub-interfaces, of ports or not.
    fn vlans(&self) -> Vec<u32> {
        self.interfaces.iter().filter(|(_, interface)| interface.vlan.is_some()).map(|(index, _)| *index).collect()
    }

    /// Number of the port and id of each VLAN on a port, in order.
    pub(crate) fn vlans_of_ports(&self) -> Vec<(usize, u16)> {
        let vlans = self.interfaces.keys().filter_map(|index| self.vlan(*index));
        let vlans: BTreeSet<_> = vlans.map(|(port, id)| (usize::from(port), id)).collect();
        vlans.into_iter().collect()
    }

    /// The longest packet that may leave by a number of the table.
    fn limit(&self, number: u16) -> u16 {
        let port = self.subs.get(&number).map_or(number, |(port, _)| *port);
        self.ports.get(usize::from(port)).map_or(0, |bound| bound.port.mtu)
    }

    /// What the table is told of an interface; `None` if it is down.
    fn settings(&self, number: u16, index: u32) -> Option<router::Interface> {
        let interface = self.interfaces.get(&index).filter(|interface| interface.up)?;
        let mtu = u16::try_from(interface.mtu).unwrap_or(u16::MAX).min(self.limit(number));
        // What a bridge is given is for any station, and so may be what a macvlan takes.
        let promiscuous = interface.kernel == Some(Reason::Enslaved) || self.is_claimed(index);
        Some(router::Interface { mac: interface.mac?, promiscuous, mtu })
    }

    /// The ports' interfaces, and some of their sub-interfaces in turn.
    pub(crate) fn some(&mut self) -> Vec<(u32, String)> {
        let by_number: BTreeMap<u16, u32> = self.bound.iter().map(|(index, number)| (*number, *index)).collect();
        let first_sub = u16::try_from(self.ports.len()).unwrap_or(u16::MAX);
        let behind = self.looked_at.saturating_add(1).max(first_sub);
        let subs = by_number.range(behind..).chain(by_number.range(first_sub..behind)).take(LOOKED_AT);
        self.looked_at = subs.clone().last().map_or(0, |(number, _)| *number);
        let indices = by_number.range(..first_sub).chain(subs).map(|(_, index)| *index);
        indices.filter_map(|index| Some((index, self.interfaces.get(&index)?.name.clone()))).collect()
    }

    /// Whether a macvlan takes what comes in by an interface for other reasons than its destination.
    fn is_claimed(&self, index: u32) -> bool {
        let claims = |interface: &Interface| interface.takes_by_more && interface.macvlan == Some(index);
        self.macvlans.iter().filter_map(|macvlan| self.interfaces.get(macvlan)).any(claims)
    }

    /// The addresses of macvlans on interfaces of the table.
    fn further_macs(&self) -> Vec<FurtherMac> {
        let on = |interface: &Interface| {
            let number = self.bound.get(&interface.macvlan?).copied()?;
            let is_kernels = interface.kernel.is_some() || interface.is_macvtap || interface.takes_by_more;
            let looked_up = interface.forwarding.map(|on| on && !is_kernels);
            Some(FurtherMac { interface: number, mac: MacAddress(interface.mac?), looked_up })
        };
        let interfaces = self.macvlans.iter().filter_map(|macvlan| self.interfaces.get(macvlan));
        let mut macs: Vec<FurtherMac> = interfaces.filter(|interface| interface.up).filter_map(on).collect();
        // Of two with one address, what either leaves to the kernel is left to it, which decides between them.
        macs.sort_by_key(|further| (further.interface, further.mac.0));
        macs.dedup_by(|next, kept| {
            let is_same = (next.interface, next.mac) == (kept.interface, kept.mac);
            if is_same {
                kept.looked_up = [0, 1].map(|family| kept.looked_up[family] && next.looked_up[family]);
            }
            is_same
        });
        macs
    }

    /// The ports that have no interface.
    pub(crate) fn closed(&self) -> Vec<usize> {
        let ports = self.ports.iter().enumerate();
        ports.filter(|(_, bound)| bound.index.is_none()).map(|(number, _)| number).collect()
    }

    /// Which interfaces leave a family to the kernel that they do not forward.
    fn not_forwarding<'a>(&'a self, bound: &'a BTreeMap<u16, u32>) -> impl Iterator<Item = String> + 'a {
        let why = ["forwarding is off there", "forwarding is off there, or there is no address of it"];
        ["IPv4", "IPv6"].into_iter().zip(why).enumerate().filter_map(|(family, (name, why))| {
            let is_off =
                |interface: &&Interface| interface.up && interface.kernel.is_none() && !interface.forwarding[family];
            let off = bound.values().filter_map(|index| self.interfaces.get(index)).filter(is_off);
            let off: Vec<&str> = off.map(|interface| interface.name.as_str()).collect();
            (!off.is_empty()).then(|| format!("{name} that comes in by {} is the kernel's: {why}", off.join(", ")))
        })
    }

    /// What differs from what a person may expect of the ports.
    pub(crate) fn lines(&self) -> Vec<String> {
        let lost = self.ports.iter().filter(|bound| bound.index.is_none());
        let lost = lost.map(|Bound { port: Port { name, index, .. }, last_name, .. }| {
            let name = last_name.as_ref().filter(|_| index.is_some()).unwrap_or(name);
            let next = if index.is_some() { ", and by no other of its name; start again" } else { "" };
            format!("there is no interface {name}: nothing comes in or leaves by its port{next}")
        });
        let bound: BTreeMap<u16, u32> = self.bound.iter().map(|(index, number)| (*number, *index)).collect();
        let claimed = bound.values().filter(|index| self.is_claimed(**index)).filter_map(|index| {
            let name = &self.interfaces.get(index)?.name;
            Some(format!("{name} has a macvlan of mode source or passthru: all that comes in there is the kernel's"))
        });
        let enslaved = bound.values().filter_map(|index| self.interfaces.get(index));
        let enslaved = enslaved.filter(|interface| interface.kernel == Some(Reason::Enslaved)).map(|interface| {
            format!("{} is part of a bridge, a bond or a VRF: all that comes in there is the kernel's", interface.name)
        });
        let long = bound.iter().filter_map(|(number, index)| {
            let (interface, limit) = (self.interfaces.get(index)?, self.limit(*number));
            (interface.mtu > limit.into()).then(|| {
                let Interface { name, mtu, .. } = interface;
                format!("{name} has an MTU of {mtu} bytes, and its port {limit}: longer packets are dropped; set {limit} there")
            })
        });
        let full = match self.waiting.len() {
            0 => None,
            count => Some(format!("{count} VLAN interfaces: the table has no room for them; make it larger")),
        };
        let beyond = self.further.len().saturating_sub(MACVLANS);
        let macs =
            (beyond > 0).then(|| format!("{beyond} macvlans: frames to their addresses are dropped; remove some"));
        lost.chain(claimed)
            .chain(enslaved)
            .chain(self.not_forwarding(&bound))
            .chain(long)
            .chain(full)
            .chain(macs)
            .collect()
    }
}

impl Plane {
    /// An interface is so now, or gone.
    pub(crate) fn set_interface(&mut self, index: u32, now: Option<&Interface>) {
        let before = self.ports.number(index);
        let old = match now {
            Some(now) => self.ports.interfaces.insert(index, now.clone()),
            None => {
                self.ports.ipv6_mtus.remove(&index);
                self.ports.interfaces.remove(&index)
            }
        };
        match now.and_then(|now| now.macvlan) {
            Some(_) => self.ports.macvlans.insert(index),
            None => self.ports.macvlans.remove(&index),
        };
        let changed = self.ports.bind();
        for port in changed.iter().copied() {
            let bound = self.ports.ports.get(usize::from(port)).and_then(|bound| bound.index);
            self.configure(port, bound);
            bound.into_iter().for_each(|index| self.update_ways_by(index));
        }
        if !changed.is_empty() {
            self.ports.vlans().into_iter().for_each(|index| self.bind_vlan(index));
        }
        self.bind_vlan(index);
        if let Some(number) = self.ports.bound.get(&index) {
            self.configure(*number, Some(index));
        }
        if before != self.ports.number(index) {
            self.update_ways_by(index);
        }
        let claimed = [old.as_ref(), now].map(|macvlan| macvlan.filter(|macvlan| macvlan.takes_by_more)?.macvlan);
        for below in claimed.into_iter().flatten() {
            if let Some(number) = self.ports.bound.get(&below) {
                self.configure(*number, Some(below));
            }
        }
        self.all_macvlans();
    }

    /// Has the table take frames to the addresses of macvlans.
    fn all_macvlans(&mut self) {
        let [v4, v6] = [0, 1].map(|family| self.looks_up(family));
        let mut macs = self.ports.further_macs();
        macs.iter_mut()
            .for_each(|further| further.looked_up = [further.looked_up[0] && v4, further.looked_up[1] && v6]);
        if macs != self.ports.further {
            // Those that have no room are other stations'.
            let _ = self.fib.set_further_macs(&macs[..macs.len().min(MACVLANS)]);
            self.ports.further = macs;
        }
    }

    /// Whether a family's packets are looked up at all.
    fn looks_up(&self, family: usize) -> bool {
        self.bypass[family].is_none() && !self.ipsec && !self.routes.has_failed(family)
    }

    /// What `net.ipv6.conf.X.mtu` says of an interface, if it is known. Packets that are longer are left to the kernel.
    pub fn set_ipv6_mtu(&mut self, interface: u32, mtu: Option<u32>) {
        let mtu = mtu.and_then(|mtu| u16::try_from(mtu).ok());
        let before = match mtu {
            Some(mtu) => self.ports.ipv6_mtus.insert(interface, mtu),
            None => self.ports.ipv6_mtus.remove(&interface),
        };
        if let Some(number) = self.ports.bound.get(&interface).copied().filter(|_| before != mtu) {
            // There is such a number.
            let _ = self.fib.set_ipv6_mtu(number, mtu);
        }
    }

    /// Interfaces of the table by index and name: the ports, and some sub-interfaces in turn. Who follows the kernel looks at their settings
    /// that it does not tell of: [`Self::set_ipv6_mtu`].
    pub fn some_interfaces(&mut self) -> Vec<(u32, String)> {
        self.ports.some()
    }

    /// Gives an interface that is a VLAN on a port a number in the table, or takes that away.
    fn bind_vlan(&mut self, index: u32) {
        self.ports.waiting.remove(&index);
        let (has, wanted) = (self.ports.bound.get(&index).copied(), self.ports.vlan(index));
        let is_sub = has.filter(|number| self.ports.subs.contains_key(number));
        if has.is_some() && is_sub.is_none()
            || is_sub.and_then(|number| self.ports.subs.get(&number).copied()) == wanted
        {
            return;
        }
        if let Some(number) = is_sub {
            self.ports.bound.remove(&index);
            self.update_ways_by(index);
            self.ports.subs.remove(&number);
            self.ports.leaving.push(number);
            self.leave_vlans();
        }
        let Some((port, vlan)) = wanted else { return };
        // As it is when it is down, until it is configured.
        let nobody = router::Interface { mac: [0; 6], promiscuous: false, mtu: 0 };
        match self.fib.add_interface(port, vlan, &nobody) {
            Ok(number) => {
                self.ports.subs.insert(number, (port, vlan));
                self.ports.bound.insert(index, number);
                self.configure(number, Some(index));
                self.update_ways_by(index);
            }
            Err(_) => drop(self.ports.waiting.insert(index)),
        }
    }

    /// Gives up numbers to which nothing leads any more.
    fn leave_vlans(&mut self) {
        let Self { ports, fib, .. } = self;
        ports.leaving.retain(|number| matches!(fib.remove_interface(*number), Err(router::Error::InUse { .. })));
    }

    /// Tries again what had no room.
    pub(crate) fn retry_ports(&mut self) {
        self.leave_vlans();
        let waiting = std::mem::take(&mut self.ports.waiting);
        if !waiting.is_empty() {
            waiting.into_iter().for_each(|index| self.bind_vlan(index));
            self.all_macvlans();
        }
    }

    /// Gives a number of the table the settings of its interface.
    fn configure(&mut self, number: u16, index: Option<u32>) {
        let settings = index.and_then(|index| self.ports.settings(number, index));
        // There is such a number, or `new` had failed.
        let _ = self.fib.set_interface(number, settings.as_ref());
        let mtu = index.and_then(|index| self.ports.ipv6_mtus.get(&index)).copied();
        let _ = self.fib.set_ipv6_mtu(number, mtu);
        let _ = self.switch(number, index);
    }

    /// Looks up at each interface the families that the kernel forwards there by routes that are understood.
    pub(crate) fn switch_families(&mut self) -> Result<(), router::Error> {
        let ports = (0..).zip(&self.ports.ports).map(|(number, bound)| (number, bound.index));
        let subs = self.ports.bound.iter().filter(|(_, number)| self.ports.subs.contains_key(*number));
        let all: Vec<_> = ports.chain(subs.map(|(index, number)| (*number, Some(*index)))).collect();
        all.into_iter().try_for_each(|(number, index)| self.switch(number, index))
    }

    /// As [`Self::switch_families`], of numbers that are known to be there.
    pub(crate) fn all_families(&mut self) {
        let _ = self.switch_families();
        self.all_macvlans();
    }

    fn switch(&mut self, number: u16, index: Option<u32>) -> Result<(), router::Error> {
        let interface = index.and_then(|index| self.ports.interfaces.get(&index));
        let is_kernels = index.is_some_and(|index| self.ports.is_claimed(index));
        let interface = interface.filter(|interface| interface.kernel.is_none() && !is_kernels);
        let forwards = |family: usize| interface.is_some_and(|interface| interface.forwarding[family]);
        let on = [0, 1].map(|family| self.looks_up(family) && forwards(family));
        self.fib.set_families(number, on)
    }
}

/// Sub-interfaces whose settings are looked at at once.
const LOOKED_AT: usize = 64;
/// Macvlans that the table has room for.
const MACVLANS: usize = 256;
