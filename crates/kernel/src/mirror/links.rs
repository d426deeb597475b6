//! Links, addresses and settings, and the routes that go with them.

use super::event::{Event, Interface, Reason};
use super::hops::{Object, Port, Sets, Source};
use super::{Known, Mirror, Ports};
use crate::message::{Address, Family, Link, Netconf, NetconfScope};
use crate::mirror::attrs::{Action, Attr};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What NEWNETCONF has told of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Settings {
    forwarding: bool,
    ignore_linkdown: bool,
}

impl Mirror {
    /// Names the ports anew, when one was added.
    pub fn set_ports(&mut self, ports: Ports, sink: &mut dyn FnMut(Event<'_>)) {
        self.ports = ports;
        let indices: Vec<u32> = self.interfaces.keys().copied().collect();
        for index in indices {
            let Some(known) = self.interfaces.get(&index) else { continue };
            let port = known.value.clone();
            // Who is part of something else, or loopback, stays so.
            let shown = match port.shown.kernel {
                None | Some(Reason::OtherInterface) if !port.loopback => {
                    Interface { kernel: self.other(index, port.shown.vlan), ..port.shown }
                }
                _ => port.shown,
            };
            self.show(index, Port { shown, ..port }, sink);
        }
    }

    fn other(&self, index: u32, vlan: Option<(u32, u16)>) -> Option<Reason> {
        let is_port = match &self.ports {
            Ports::All => true,
            Ports::Only(ports) => ports.contains(&index) || vlan.is_some_and(|(parent, _)| ports.contains(&parent)),
        };
        if is_port { None } else { Some(Reason::OtherInterface) }
    }

    pub(super) fn new_link(&mut self, link: &Link<'_>, sink: &mut dyn FnMut(Event<'_>)) {
        let tag = link.vlan.filter(|(_, protocol)| *protocol == 0x8100);
        let vlan = tag.and_then(|(id, _)| link.parent.map(|parent| (parent, id)));
        let loopback = link.flags & IFF_LOOPBACK != 0;
        let kernel = match link.master.filter(|master| *master != 0) {
            Some(_) => Some(Reason::Enslaved),
            None if loopback => Some(Reason::OtherInterface),
            None => self.other(link.index, vlan),
        };
        let [v4, v6] = self.settings.get(&link.index).copied().unwrap_or_default();
        let macvlan = link.parent.filter(|_| matches!(link.kind, "macvlan" | "macvtap"));
        let shown = Interface {
            name: link.name.to_owned(),
            mac: link.mac,
            mtu: link.mtu,
            up: link.is_up(),
            carrier: link.carrier,
            vlan,
            macvlan,
            is_macvtap: link.kind == "macvtap",
            takes_by_more: macvlan.is_some() && !link.macvlan_mode.is_some_and(|mode| BY_ADDRESS.contains(&mode)),
            kernel,
            forwarding: [v4.forwarding, self.forwards_v6(link.index)],
            ignore_linkdown: [v4.ignore_linkdown || self.ignore_linkdown_v4, v6.ignore_linkdown],
        };
        let old = self.interfaces.get(&link.index).map(|known| &known.value);
        // The kernel takes routes away after it has said that the link goes down, and revives legs when it comes up.
        let (was_up, lost_address) = old.map_or((shown.up, [false; 2]), |old| (old.shown.up, old.lost_address));
        // A link that cannot carry IPv6, or IP at all, loses its addresses, and gets them back.
        let small = |mtu: u32| (mtu < 68, mtu < 1280);
        let resized = old.is_some_and(|old| small(old.shown.mtu) != small(shown.mtu));
        self.doubt |= self.loaded && (was_up != shown.up || resized);
        // Objects can be made on a link without carrier, and stay; they go when it loses one.
        let carries = shown.up && (shown.carrier || link.flags & (IFF_RUNNING | IFF_LOWER_UP) != 0);
        let lost = !carries && old.is_some_and(|old| old.shown.up && (old.shown.carrier || !shown.up));
        self.show(link.index, Port { shown, lost_address, loopback }, sink);
        if lost {
            self.flush_objects(link.index, sink);
        }
    }

    /// Replaces what is known of an interface.
    fn show(&mut self, index: u32, port: Port, sink: &mut dyn FnMut(Event<'_>)) {
        let seen = self.generation;
        let old = self.interfaces.insert(index, Known { value: port, seen });
        let Some(port) = self.interfaces.get(&index).map(|known| &known.value) else { return };
        let same = old.as_ref().is_some_and(|old| old.value.shown == port.shown);
        if !same && self.loaded {
            sink(Event::Interface { index, now: Some(&port.shown) });
            // Legs that were dead for want of an address may now be so for another reason.
            let unused = |attr: &Attr| attr.action == Action::Special(Reason::NoAddress);
            self.doubt |= self.paths.attrs.select(unused).contains(&true);
        }
        if !same || old.is_some_and(|old| old.value.lost_address != port.lost_address) {
            let all_down = |this: &Self, sets: &Sets, attr: &Attr| {
                by_v4(sets, attr, |legs| legs.iter().all(|leg| this.is_down(leg.interface)))
                    && by_v4(sets, attr, |legs| legs.iter().any(|leg| leg.interface == index))
            };
            self.turn(index, all_down, sink);
        }
    }

    fn is_down(&self, index: u32) -> bool {
        self.interfaces.get(&index).is_none_or(|known| !known.value.shown.up)
    }

    /// Next hops by this interface may have changed, and IPv4 routes such as these are gone.
    fn turn(&mut self, index: u32, gone: impl Fn(&Self, &Sets, &Attr) -> bool, sink: &mut dyn FnMut(Event<'_>)) {
        let numbers = {
            let sets = &self.paths.sets;
            sets.select(|source| sets.uses(source, index))
        };
        let gone: Vec<u32> = {
            let sets = &self.paths.sets;
            let attr = |number| Attr { action: Action::NextHops(number), priority: 0, tos: 0, identity: 0 };
            numbers.iter().copied().filter(|number| gone(self, sets, &attr(*number))).collect()
        };
        self.refresh(&numbers, &gone, sink);
    }

    /// Finds these next hops out anew. IPv4 routes by those that are gone are too, and IPv6 routes if they are by an object.
    pub(super) fn refresh(&mut self, numbers: &[u32], gone: &[u32], sink: &mut dyn FnMut(Event<'_>)) {
        let (mut work, v4, v6) = self.work(sink);
        let loaded = work.loaded;
        let turned = {
            let sink = &mut *work.sink;
            let told = &mut |event: Event<'_>| {
                if loaded {
                    sink(event)
                }
            };
            work.paths.sets.refresh(numbers, work.interfaces, told)
        };
        for number in numbers {
            if let Some(super::hops::State::Kernel(reason)) = work.paths.sets.state(*number) {
                let reason = *reason;
                work.tell(reason);
            }
        }
        let such = |_: &Sets, attr: &Attr| matches!(attr.action, Action::NextHops(number) if gone.contains(&number));
        // Routes that are gone may have been the last by these next hops, whose numbers are then free.
        let any = work.turn(v4, &turned, &such) | work.turn(v6, &turned, &such);
        *work.doubt |= any && !gone.is_empty() && loaded;
        work.paths.sets.settle(&turned);
    }

    pub(super) fn remove_link(&mut self, index: u32, sink: &mut dyn FnMut(Event<'_>)) {
        if self.interfaces.remove(&index).is_none() {
            return;
        }
        self.settings.remove(&index);
        if self.loaded {
            sink(Event::Interface { index, now: None });
        }
        self.doubt |= self.loaded;
        self.turn(index, |_, sets, attr| by_v4(sets, attr, |legs| legs.iter().any(|leg| leg.interface == index)), sink);
        self.flush_objects(index, sink);
        self.addresses.retain(|address, _| address.interface != index);
        let gone: Vec<_> = self.neighbours.keys().filter(|(interface, _)| *interface == index).copied().collect();
        gone.into_iter().for_each(|key| self.forget_neighbour(key, sink));
    }

    /// Next hop objects by an interface that went down are gone.
    fn flush_objects(&mut self, index: u32, sink: &mut dyn FnMut(Event<'_>)) {
        let by = |object: &Object| matches!(object, Object::Single { leg, .. } if leg.interface == index);
        let gone = self.paths.sets.objects().filter(|(_, known)| by(&known.value));
        let gone: Vec<u32> = gone.map(|(id, _)| id).collect();
        if !gone.is_empty() {
            self.doubt |= self.loaded;
            self.remove_objects(&gone, sink);
        }
    }

    pub(super) fn new_address(&mut self, address: Address, sink: &mut dyn FnMut(Event<'_>)) {
        // With the first one, legs that were dead come back in silence.
        self.doubt |= self.loaded && !self.has_address(address.interface, address.address.is_ipv4());
        self.addresses.insert(address, self.generation);
        self.lose_address(address, false, sink);
        self.set_forwarding_v6(address.interface, sink);
    }

    pub(super) fn remove_address(&mut self, address: &Address, sink: &mut dyn FnMut(Event<'_>)) {
        let removed = self.addresses.remove(address).is_some();
        if removed && !self.has_address(address.interface, address.address.is_ipv4()) {
            self.lose_address(*address, true, sink);
        }
        self.set_forwarding_v6(address.interface, sink);
    }

    /// Whether IPv6 packets that come in by an interface are forwarded. Of one without an address of IPv6 the kernel knows: it drops them
    /// where IPv6 is switched off or the MTU is below 1280 bytes, and does away with the addresses when that happens.
    fn forwards_v6(&self, index: u32) -> bool {
        self.forwarding_v6 && self.has_address(index, false)
    }

    /// Whether an interface has an address of a family. It is asked for with each address and link, so not all addresses are looked at.
    fn has_address(&self, interface: u32, is_v4: bool) -> bool {
        let lowest = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let address = if is_v4 { lowest } else { Ipv6Addr::UNSPECIFIED.into() };
        let mut behind = self.addresses.range(Address { interface, address, len: 0, peer: lowest }..);
        behind.next().is_some_and(|(first, _)| first.interface == interface && first.address.is_ipv4() == is_v4)
    }

    fn set_forwarding_v6(&mut self, index: u32, sink: &mut dyn FnMut(Event<'_>)) {
        let forwards = self.forwards_v6(index);
        if self.interfaces.get(&index).is_some_and(|known| known.value.shown.forwarding[1] != forwards) {
            self.reconfigure(index, sink, |shown| shown.forwarding[1] = forwards);
        }
    }

    /// A dump has shown which legs of a family are dead for want of an address.
    pub(super) fn find_addresses(&mut self, family: Family, sink: &mut dyn FnMut(Event<'_>)) {
        let lost =
            self.interfaces.iter_mut().map(|(index, known)| (*index, &mut known.value.lost_address[family as usize]));
        let lost: Vec<u32> = lost.filter_map(|(index, lost)| std::mem::take(lost).then_some(index)).collect();
        for index in lost {
            self.turn(index, |_, _, _| false, sink);
        }
    }

    /// An interface has lost its last address of a family, or has one again. With that of IPv4 go all IPv4 routes by it
    /// (`fib_disable_ip`); that of IPv6 goes when IPv6 is switched off there, and legs are dead (`rt6_sync_down_dev`).
    fn lose_address(&mut self, address: Address, lost: bool, sink: &mut dyn FnMut(Event<'_>)) {
        let index = address.interface;
        let Some(known) = self.interfaces.get_mut(&index) else { return };
        let family = usize::from(address.address.is_ipv6());
        if std::mem::replace(&mut known.value.lost_address[family], lost) == lost {
            return;
        }
        self.doubt |= self.loaded;
        let gone = |this: &Self, sets: &Sets, attr: &Attr| {
            lost && address.address.is_ipv4()
                && by_v4(sets, attr, |legs| {
                    legs.iter().all(|leg| leg.interface == index || this.is_down(leg.interface))
                })
        };
        self.turn(index, gone, sink);
    }

    pub(super) fn configure(&mut self, netconf: &Netconf, sink: &mut dyn FnMut(Event<'_>)) {
        let family = netconf.family as usize;
        match netconf.scope {
            NetconfScope::Interface(index) => {
                let settings = &mut self.settings.entry(index).or_default()[family];
                settings.forwarding = netconf.forwarding.unwrap_or(settings.forwarding);
                settings.ignore_linkdown = netconf.ignore_linkdown.unwrap_or(settings.ignore_linkdown);
                let settings = *settings;
                let for_all = netconf.family == Family::V4 && self.ignore_linkdown_v4;
                self.reconfigure(index, sink, |shown| {
                    if netconf.family == Family::V4 {
                        shown.forwarding[0] = settings.forwarding;
                    }
                    shown.ignore_linkdown[family] = settings.ignore_linkdown || for_all;
                });
            }
            NetconfScope::All if netconf.family == Family::V6 => {
                self.forwarding_v6 = netconf.forwarding.unwrap_or(self.forwarding_v6);
                let indices: Vec<u32> = self.interfaces.keys().copied().collect();
                for index in indices {
                    self.set_forwarding_v6(index, sink);
                }
            }
            NetconfScope::All => {
                let for_all = netconf.ignore_linkdown.unwrap_or(self.ignore_linkdown_v4);
                self.ignore_linkdown_v4 = for_all;
                let indices: Vec<u32> = self.interfaces.keys().copied().collect();
                for index in indices {
                    let own = self.settings.get(&index).is_some_and(|[v4, _]| v4.ignore_linkdown);
                    self.reconfigure(index, sink, |shown| shown.ignore_linkdown[0] = own || for_all);
                }
            }
            NetconfScope::Default if netconf.family == Family::V4 => {
                let value = netconf.ignore_linkdown.unwrap_or(self.default_linkdown_v4);
                let old = std::mem::replace(&mut self.default_linkdown_v4, value);
                self.doubt |= self.loaded && old != value;
            }
            NetconfScope::Default => {}
        }
    }

    fn reconfigure(&mut self, index: u32, sink: &mut dyn FnMut(Event<'_>), change: impl FnOnce(&mut Interface)) {
        let Some(known) = self.interfaces.get(&index) else { return };
        let seen = known.seen;
        let mut port = known.value.clone();
        change(&mut port.shown);
        self.show(index, port, sink);
        // Settings do not show that a link is there.
        if let Some(known) = self.interfaces.get_mut(&index) {
            known.seen = seen;
        }
    }
}

/// Whether the next hops are legs of IPv4 routes, and such.
fn by_v4(sets: &Sets, attr: &Attr, such: impl Fn(&[crate::Leg]) -> bool) -> bool {
    let Action::NextHops(number) = attr.action else { return false };
    matches!(sets.source(number), Some(Source::Legs(Family::V4, legs)) if such(legs))
}

/// Modes of macvlans that take frames by their destination: private, vepa, bridge.
const BY_ADDRESS: [u32; 3] = [1, 2, 4];
const IFF_LOOPBACK: u32 = 8;
const IFF_RUNNING: u32 = 0x40;
const IFF_LOWER_UP: u32 = 0x1_0000;
