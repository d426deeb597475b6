//! The interfaces of a [`LiveFib`], and what its forwarders see of them: ports, and VLANs on them, which have the numbers behind those of
//! the ports.

use crate::ethernet::{self, HEADER, Interface, Station, Stations, TAG};
use crate::fib::low48;
use crate::further::Further;
use crate::hops::Word;
use crate::{Error, LiveFib, Result};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

impl LiveFib {
    /// Adds the interface of a VLAN on a port, up. Returns its number, the lowest that is free.
    ///
    /// ```
    /// # use router::{Interface, LiveConfig, LiveFib, MacAddress, Neighbour, Target};
    /// let port = Interface { mac: [2, 0, 0, 0, 1, 0], promiscuous: false, mtu: 1500 };
    /// let mut fib = LiveFib::new(&LiveConfig::default(), &[port])?;
    /// let vlan_5 = fib.add_interface(0, 5, &Interface { mtu: 1400, ..port })?;
    /// assert_eq!(vlan_5, 1);
    /// // What goes there leaves by port 0, with the tag of VLAN 5.
    /// fib.add_next_hop(Target::Neighbour(Neighbour { port: vlan_5, mac: MacAddress([2, 0, 0, 0, 2, 0]) }))?;
    /// # Ok::<(), router::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Unknown`] if there is no such port; [`Error::Vlan`] unless `vlan` is 1 to 4094 and the port has no such interface yet;
    /// [`Error::Full`] as for [`Self::add_next_hop`]; [`Error::OutOfMemory`].
    pub fn add_interface(&mut self, port: u16, vlan: u16, interface: &Interface) -> Result<u16> {
        let ports = self.shared.interfaces().ports();
        if usize::from(port) >= ports {
            return Err(Error::Unknown { what: "ports", number: port.into() });
        }
        if !(1..=4094).contains(&vlan) {
            return Err(Error::Vlan { port, vlan, problem: "VLANs are 1 to 4094" });
        }
        if self.subs.iter().any(|(_, place)| *place == (port, vlan)) {
            return Err(Error::Vlan { port, vlan, problem: "it has one; change that, or remove it first" });
        }
        self.shared.interfaces().prepare(port)?;
        let index = self.subs.add((port, vlan), || self.shared.seen_by_all())?;
        let number = ports + index as usize;
        self.shared.interfaces().set_families(number, [true; 2]);
        self.shared.interfaces().set_ipv6_mtu(number, None);
        self.shared.interfaces().set(number, Some(interface));
        self.shared.interfaces().place(index, port, vlan);
        // Not above `Word::INTERFACES`.
        Ok(u16::try_from(number).unwrap_or(u16::MAX))
    }

    /// Sets the address and MTU of an interface, or takes it down (`None`): then it takes no frames, and those that would leave by it are
    /// refused as [`Refusal::Unresolved`](crate::Refusal::Unresolved). Sub-interfaces of a port that is down are down.
    ///
    /// # Errors
    ///
    /// [`Error::Unknown`] if there is no such interface.
    pub fn set_interface(&mut self, number: u16, interface: Option<&Interface>) -> Result<()> {
        self.sub_interface(number)?;
        self.shared.interfaces().set(number.into(), interface);
        Ok(())
    }

    /// Removes the interface of a VLAN. Its number is given to another only when every forwarder has begun a further burst.
    ///
    /// # Errors
    ///
    /// [`Error::Unknown`] if there is no such interface; [`Error::InUse`] while next hops lead to it, and of ports.
    pub fn remove_interface(&mut self, number: u16) -> Result<()> {
        let Some(index) = self.sub_interface(number)? else {
            return Err(Error::InUse { what: "ports", number: number.into() });
        };
        let (port, vlan) = *self.subs.get(index)?;
        let displaced = || {
            self.shared.interfaces().set(number.into(), None);
            self.shared.interfaces().displace(port, vlan);
            self.shared.begin_generation()
        };
        self.subs.remove(index, displaced).map(drop)
    }

    /// Sets whether IPv4 and IPv6 packets that come in by an interface are looked up, as they are at first. Those that are not are
    /// refused as [`Refusal::LeftToHost`](crate::Refusal::LeftToHost), after all checks of their headers.
    ///
    /// # Errors
    ///
    /// [`Error::Unknown`] if there is no such interface.
    pub fn set_families(&mut self, number: u16, looked_up: [bool; 2]) -> Result<()> {
        self.sub_interface(number)?;
        self.shared.interfaces().set_families(number.into(), looked_up);
        Ok(())
    }

    /// Sets the size in bytes of the longest IPv6 packet that an interface sends, if that is less than its MTU; `None` at first.
    ///
    /// # Errors
    ///
    /// [`Error::Unknown`] if there is no such interface.
    pub fn set_ipv6_mtu(&mut self, number: u16, mtu: Option<u16>) -> Result<()> {
        self.sub_interface(number)?;
        self.shared.interfaces().set_ipv6_mtu(number.into(), mtu);
        Ok(())
    }

    /// The index of a sub-interface; `None` of a port.
    pub(crate) fn sub_interface(&self, number: u16) -> Result<Option<u32>> {
        let ports = self.shared.interfaces().ports();
        let Some(index) = usize::from(number).checked_sub(ports) else { return Ok(None) };
        let index = u32::try_from(index).ok().filter(|index| self.subs.get(*index).is_ok());
        index.map(Some).ok_or(Error::Unknown { what: "interfaces", number: number.into() })
    }
}

/// An interface in a word: its MAC address in the lower 48 bits, the first byte lowest, and the bytes of the longest frame above, 0 while
/// it is down.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link(pub(crate) u64);

impl Link {
    const DOWN: u64 = 0;

    fn new(interface: &Interface) -> Self {
        let longest = u16::try_from(usize::from(interface.mtu) + HEADER).unwrap_or(u16::MAX);
        Self(low48(interface.mac) | u64::from(longest) << 48)
    }

    /// The address.
    #[inline(always)]
    pub(crate) fn mac(self) -> u64 {
        self.0 & 0xFFFF_FFFF_FFFF
    }

    /// Bytes of the longest frame, without a tag.
    #[inline(always)]
    pub(crate) fn longest(self) -> u16 {
        (self.0 >> 48) as u16
    }

    fn is_down(self) -> bool {
        self.longest() == 0
    }
}

/// A VLAN on a port.
#[derive(Debug)]
struct SubInterface {
    link: AtomicU64,
    /// The port in the upper 16 bits, the VLAN in the lower.
    place: AtomicU32,
}

/// How frames come in by an interface.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entrance {
    pub(crate) station: Station,
    /// Whether packets of IPv4 and IPv6 are looked up.
    pub(crate) families: [bool; 2],
}

impl Entrance {
    /// By which nothing comes.
    pub(crate) const CLOSED: Self = Self { station: Station::NOBODY, families: [true; 2] };
}

/// How frames leave by an interface.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exit {
    pub(crate) link: Link,
    pub(crate) port: u16,
    pub(crate) tag: Option<[u8; TAG]>,
}

/// All interfaces.
#[derive(Debug)]
pub(crate) struct Interfaces {
    /// A [`Link`] for each port.
    ports: Box<[AtomicU64]>,
    subs: Box<[SubInterface]>,
    /// For each interface [`PROMISCUOUS`], [`NO_IPV4`] and [`NO_IPV6`].
    flags: Box<[AtomicU8]>,
    /// For each interface the bytes of the longest frame of IPv6 without a tag, if that is less than those of [`Link::longest`].
    longest_v6: Box<[AtomicU16]>,
    pub(crate) further: Further,
    /// For each port, once it has had a sub-interface: the index of that of each VLAN, or [`NONE`].
    by_vlan: Box<[OnceLock<Box<[AtomicU16]>>]>,
}

/// The interface takes frames for any station.
const PROMISCUOUS: u8 = 1;
/// IPv4 packets that come in by the interface are refused as [`Refusal::LeftToHost`](crate::Refusal::LeftToHost).
const NO_IPV4: u8 = 2;
/// And those of IPv6.
const NO_IPV6: u8 = 4;
/// No sub-interface. There are fewer.
const NONE: u16 = u16::MAX;
/// VLANs of a port, 0 and 4095 among them, which have no sub-interface.
const VLANS: usize = 4096;

impl Interfaces {
    /// These ports, and room for so many sub-interfaces, or for as many as there are numbers.
    ///
    /// # Errors
    ///
    /// [`crate::Error::OutOfMemory`].
    pub(crate) fn new(ports: &[Interface], subs: usize) -> Result<Self> {
        let subs = subs.min(usize::from(Word::INTERFACES).saturating_sub(ports.len()));
        let mut promiscuous = ports.iter().map(|port| port.promiscuous);
        let flags = || AtomicU8::new(if promiscuous.next() == Some(true) { PROMISCUOUS } else { 0 });
        let sub = || SubInterface { link: AtomicU64::new(Link::DOWN), place: AtomicU32::new(0) };
        Ok(Self {
            ports: ports.iter().map(|port| AtomicU64::new(Link::new(port).0)).collect(),
            subs: filled(subs, sub)?,
            flags: filled(ports.len() + subs, flags)?,
            longest_v6: filled(ports.len() + subs, || AtomicU16::new(u16::MAX))?,
            further: Further::new()?,
            by_vlan: filled(ports.len(), OnceLock::new)?,
        })
    }

    /// The number of ports.
    #[inline(always)]
    pub(crate) fn ports(&self) -> usize {
        self.ports.len()
    }

    /// A [`Link`] for each port.
    #[inline(always)]
    pub(crate) fn links(&self) -> &[AtomicU64] {
        &self.ports
    }

    /// The most sub-interfaces.
    pub(crate) fn most_subs(&self) -> usize {
        self.subs.len()
    }

    /// Makes room for the VLANs of a port.
    ///
    /// # Errors
    ///
    /// [`crate::Error::OutOfMemory`].
    pub(crate) fn prepare(&self, port: u16) -> Result<()> {
        let by_vlan = self.by_vlan.get(usize::from(port)).filter(|by_vlan| by_vlan.get().is_none());
        if let Some(by_vlan) = by_vlan {
            // Nobody else sets it.
            let _ = by_vlan.set(filled(VLANS, || AtomicU16::new(NONE))?);
        }
        Ok(())
    }

    /// Gives a VLAN of a port that is [prepared](Self::prepare) to the sub-interface `index`, which no forwarder knows.
    pub(crate) fn place(&self, index: u32, port: u16, vlan: u16) {
        if let Some(sub) = self.subs.get(index as usize) {
            sub.place.store(u32::from(port) << 16 | u32::from(vlan), Ordering::Relaxed);
            self.give(port, vlan, u16::try_from(index).unwrap_or(NONE));
        }
    }

    /// Takes a VLAN of a port from its sub-interface.
    pub(crate) fn displace(&self, port: u16, vlan: u16) {
        self.give(port, vlan, NONE);
    }

    fn give(&self, port: u16, vlan: u16, index: u16) {
        let by_vlan = self.by_vlan.get(usize::from(port)).and_then(OnceLock::get);
        if let Some(place) = by_vlan.and_then(|by_vlan| by_vlan.get(usize::from(vlan))) {
            place.store(index, Ordering::Release);
        }
    }

    /// The settings of an interface; `None` while it is down.
    pub(crate) fn set(&self, number: usize, interface: Option<&Interface>) {
        let (Some(link), Some(flags)) = (self.word(number), self.flags.get(number)) else { return };
        let promiscuous = if interface.is_some_and(|interface| interface.promiscuous) { PROMISCUOUS } else { 0 };
        flags.store(flags.load(Ordering::Relaxed) & !PROMISCUOUS | promiscuous, Ordering::Relaxed);
        link.store(interface.map_or(Link::DOWN, |interface| Link::new(interface).0), Ordering::Release);
    }

    /// Whether packets of IPv4 and IPv6 that come in by an interface are looked up.
    pub(crate) fn set_families(&self, number: usize, [v4, v6]: [bool; 2]) {
        let Some(flags) = self.flags.get(number) else { return };
        let off = if v4 { 0 } else { NO_IPV4 } | if v6 { 0 } else { NO_IPV6 };
        flags.store(flags.load(Ordering::Relaxed) & PROMISCUOUS | off, Ordering::Release);
    }

    pub(crate) fn set_ipv6_mtu(&self, number: usize, mtu: Option<u16>) {
        let longest = mtu.and_then(|mtu| u16::try_from(usize::from(mtu) + HEADER).ok()).unwrap_or(u16::MAX);
        if let Some(place) = self.longest_v6.get(number) {
            place.store(longest, Ordering::Relaxed);
        }
    }

    /// Bytes of the longest frame of IPv6, without a tag, that leaves by an interface.
    pub(crate) fn longest_v6(&self, number: u16, link: Link) -> u16 {
        self.longest_v6
            .get(usize::from(number))
            .map_or(0, |longest| longest.load(Ordering::Relaxed))
            .min(link.longest())
    }

    fn word(&self, number: usize) -> Option<&AtomicU64> {
        let sub = || self.subs.get(number - self.ports()).map(|sub| &sub.link);
        self.ports.get(number).or_else(sub)
    }

    /// Which frames without a tag a port takes of which nothing need be known but the header: none while it is down or if there is no
    /// such port, and none of a family that it leaves to the host.
    #[inline(always)]
    pub(crate) fn stations(&self, port: usize) -> Stations {
        match (self.port(port), self.flags.get(port)) {
            (Some(link), Some(flags)) if !link.is_down() => {
                let flags = flags.load(Ordering::Relaxed);
                let station = Station::of(link.mac(), flags & PROMISCUOUS != 0);
                let unless = |off: u8| if flags & off == 0 { station } else { Station::NOBODY };
                Stations { v4: unless(NO_IPV4), v6: unless(NO_IPV6) }
            }
            _ => Stations::both(Station::NOBODY),
        }
    }

    /// How frames of a VLAN, or without a tag, come in by a port; `None` if they come by nothing that is up. With their first bytes, they
    /// may come in by a further address.
    pub(crate) fn entrance(&self, port: usize, vlan: Option<u16>, start: Option<[u8; 8]>) -> Option<Entrance> {
        let (mut number, mut link) = (port, self.port(port)?);
        if let Some(vlan) = vlan.filter(|_| !link.is_down()) {
            let index: usize = self.by_vlan.get(port)?.get()?.get(usize::from(vlan))?.load(Ordering::Acquire).into();
            (number, link) = (self.ports() + index, Link(self.subs.get(index)?.link.load(Ordering::Acquire)));
        }
        self.entrance_by(number, link, start)
    }

    /// As [`Self::entrance`], of a frame without a tag.
    #[inline(always)]
    pub(crate) fn untagged_entrance(&self, port: usize, start: [u8; 8]) -> Option<Entrance> {
        self.entrance_by(port, self.port(port)?, Some(start))
    }

    /// By the interface of this number.
    #[inline(always)]
    fn entrance_by(&self, number: usize, link: Link, start: Option<[u8; 8]>) -> Option<Entrance> {
        let flags = self.flags.get(number)?.load(Ordering::Relaxed);
        let station = Station::of(link.mac(), flags & PROMISCUOUS != 0);
        let further = start.filter(|start| !station.takes(*start)).and_then(|start| self.further.find(number, start));
        let own = Entrance { station, families: [flags & NO_IPV4 == 0, flags & NO_IPV6 == 0] };
        (!link.is_down()).then_some(further.unwrap_or(own))
    }

    /// A port, whether it is up or not.
    #[inline(always)]
    fn port(&self, port: usize) -> Option<Link> {
        self.ports.get(port).map(|link| Link(link.load(Ordering::Acquire)))
    }

    /// How frames leave by the interface of this number; `Some(None)` while it is down, `None` if there is none.
    pub(crate) fn exit(&self, number: u16) -> Option<Option<Exit>> {
        let exit = if let Some(link) = self.port(number.into()) {
            Exit { link, port: number, tag: None }
        } else {
            let sub = self.subs.get(usize::from(number).checked_sub(self.ports())?)?;
            let (link, place) = (Link(sub.link.load(Ordering::Acquire)), sub.place.load(Ordering::Relaxed));
            let [port, vlan] = [place >> 16, place & 0xFFFF].map(|half| u16::try_from(half).unwrap_or_default());
            if self.port(port.into())?.is_down() {
                return Some(None);
            }
            Exit { link, port, tag: Some(ethernet::tag(vlan)) }
        };
        Some((!exit.link.is_down()).then_some(exit))
    }
}

/// So many of something, if there is memory for them.
pub(crate) fn filled<T>(count: usize, value: impl FnMut() -> T) -> Result<Box<[T]>> {
    let mut places = Vec::new();
    places.try_reserve_exact(count)?;
    places.resize_with(count, value);
    Ok(places.into_boxed_slice())
}
