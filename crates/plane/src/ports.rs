//! Which interfaces of the kernel are ports, and their settings.

use crate::Plane;
use hashbrown::HashMap;
use kernel::{Interface, Reason};
use std::collections::BTreeSet;

/// A port of the forwarding table, and its twin among the kernel's interfaces.
///
/// ```
/// let port = plane::Port { name: "rw0".to_owned(), mtu: 1500 };
/// # let _ = port;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The name of the interface. Once it is found, it may be renamed.
    pub name: String,
    /// The size in bytes of the longest IP packet that the port can send. A larger MTU of the interface counts as this.
    pub mtu: u16,
}

/// The ports, and all interfaces.
#[derive(Debug)]
pub(crate) struct Ports {
    ports: Vec<Bound>,
    /// By index.
    interfaces: HashMap<u32, Interface>,
    /// The ports of interfaces.
    bound: HashMap<u32, u16>,
}

#[derive(Debug)]
struct Bound {
    port: Port,
    index: Option<u32>,
}

impl Ports {
    pub(crate) fn new(ports: &[Port]) -> Self {
        let ports = ports.iter().map(|port| Bound { port: port.clone(), index: None }).collect();
        Self { ports, interfaces: HashMap::new(), bound: HashMap::new() }
    }

    /// The port that packets leave by if their route says this interface.
    pub(crate) fn port(&self, interface: u32) -> Option<u16> {
        let port = self.bound.get(&interface).copied()?;
        self.interfaces.get(&interface).filter(|interface| interface.kernel.is_none()).map(|_| port)
    }

    /// The interfaces that are not among these.
    pub(crate) fn beyond(&self, indices: &BTreeSet<u32>) -> Vec<u32> {
        self.interfaces.keys().copied().filter(|index| !indices.contains(index)).collect()
    }

    fn numbers(&self) -> impl Iterator<Item = u16> + use<> {
        0..u16::try_from(self.ports.len()).unwrap_or(u16::MAX)
    }

    fn interface(&self, port: u16) -> Option<&Interface> {
        self.interfaces.get(&self.ports.get(usize::from(port))?.index?)
    }

    /// Has each port that has lost its interface look for one of its name. Returns the ports that have another one now.
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
                let mut named = self.interfaces.iter().filter(|(_, interface)| interface.name == bound.port.name);
                bound.index = named.find(|(index, _)| free(index)).map(|(index, _)| *index);
                bound.index.map(|index| self.bound.insert(index, number));
            }
            if bound.index != before {
                changed.push(number);
            }
        }
        changed
    }

    /// What differs from what a person may expect of the ports.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> + '_ {
        self.ports.iter().filter_map(|Bound { port, index }| {
            let interface = index.and_then(|index| self.interfaces.get(&index));
            match interface {
                None => Some(format!("there is no interface {}: nothing comes in or leaves by its port", port.name)),
                Some(interface) if interface.mtu > port.mtu.into() => Some(format!(
                    "{} has an MTU of {} bytes, and its port {}: longer packets are the kernel's; set {} there",
                    interface.name, interface.mtu, port.mtu, port.mtu
                )),
                Some(_) => None,
            }
        })
    }
}

impl Plane {
    /// An interface is so now, or gone.
    pub(crate) fn set_interface(&mut self, index: u32, now: Option<&Interface>) {
        let before = self.ports.port(index);
        match now {
            Some(now) => drop(self.ports.interfaces.insert(index, now.clone())),
            None => drop(self.ports.interfaces.remove(&index)),
        }
        let mut changed = self.ports.bind();
        changed.extend(self.ports.bound.get(&index));
        for port in changed {
            self.set_port(port);
            if let Some(index) = self.ports.ports.get(usize::from(port)).and_then(|bound| bound.index) {
                self.update_ways_by(index);
            }
        }
        if before != self.ports.port(index) {
            self.update_ways_by(index);
        }
    }

    /// Gives a port the settings of its interface.
    fn set_port(&mut self, port: u16) {
        let limit = self.ports.ports.get(usize::from(port)).map_or(0, |bound| bound.port.mtu);
        let settings = self.ports.interface(port).filter(|interface| interface.up).and_then(|interface| {
            let mtu = u16::try_from(interface.mtu).unwrap_or(u16::MAX).min(limit);
            // What a bridge is given is for any station.
            let promiscuous = interface.kernel == Some(Reason::Enslaved);
            Some(router::Interface { mac: interface.mac?, promiscuous, mtu })
        });
        // There is such a port, or `new` had failed.
        let _ = self.fib.set_port(port, settings.as_ref());
        let _ = self.switch_port(port);
    }

    /// Looks up at each port the families that the kernel forwards there by routes that are understood.
    pub(crate) fn switch_families(&mut self) -> Result<(), router::Error> {
        self.ports.numbers().try_for_each(|port| self.switch_port(port))
    }

    /// As [`Self::switch_families`], of ports that are known to be there.
    pub(crate) fn all_families(&mut self) {
        let _ = self.switch_families();
    }

    fn switch_port(&mut self, port: u16) -> Result<(), router::Error> {
        let interface = self.ports.interface(port).filter(|interface| interface.kernel.is_none());
        let on = [0, 1].map(|family| {
            let all = self.bypass[family].is_none() && !self.routes.has_failed(family);
            all && interface.is_some_and(|interface| interface.forwarding[family])
        });
        self.fib.set_families(port, on)
    }
}
