//! What changes for a data path.

use crate::Leg;
use std::fmt;
use std::net::IpAddr;

/// A destination: an address and how many of its bits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    /// The first address.
    pub address: IpAddr,
    /// Bits that count: 0 to 32, or 0 to 128.
    pub len: u8,
}

impl Prefix {
    /// Whether its addresses are those of groups, or of one link: no router forwards to them.
    pub(super) fn is_never_routed(&self) -> bool {
        match self.address {
            IpAddr::V4(address) => self.len >= 4 && address.is_multicast(),
            IpAddr::V6(address) => {
                self.len >= 8 && address.is_multicast() || self.len >= 10 && address.is_unicast_link_local()
            }
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.len)
    }
}

/// Where packets of a prefix go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// By the next hops of this number; [`Event::NextHops`] says what they are.
    NextHops(u32),
    /// To the host.
    Local,
    /// Nowhere: they are dropped and counted.
    Blackhole,
    /// The kernel answers them: host unreachable.
    Unreachable,
    /// The kernel answers them: prohibited.
    Prohibit,
    /// The kernel decides, as the route is more than a data path knows.
    Kernel(Reason),
}

/// What next hops of a number are now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextHops<'a> {
    /// One of these legs, by their weights. There is one at least.
    Forward(&'a [Leg]),
    /// Packets are dropped and counted.
    Blackhole,
    /// The kernel decides.
    Kernel(Reason),
    /// None of them can be used. No prefix goes there, but for those whose [`Event::Route`] follows; until then, the kernel
    /// decides.
    Dead,
    /// Nothing goes there any more. The number may come back for others.
    Free,
}

/// A neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Its hardware address, if it is known.
    pub mac: Option<[u8; 6]>,
    /// NUD_*: 0x02 reachable, 0x04 stale, 0x08 delay, 0x10 probe, 0x20 failed, 0x40 without ARP, 0x80 permanent.
    pub state: u16,
}

impl Neighbour {
    /// Returns the address to send to, if the kernel would send there now.
    #[must_use]
    pub fn usable(&self) -> Option<[u8; 6]> {
        // NUD_VALID: permanent, without ARP, reachable, probe, stale, delay.
        self.mac.filter(|_| self.state & 0xDE != 0)
    }
}

/// An interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its hardware address, if that has 6 bytes.
    pub mac: Option<[u8; 6]>,
    /// Its MTU in bytes.
    pub mtu: u32,
    /// Whether it is set up.
    pub up: bool,
    /// Whether it has a carrier.
    pub carrier: bool,
    /// The interface below, and the VLAN's number, of a sub-interface with tags of type 0x8100.
    pub vlan: Option<(u32, u16)>,
    /// The interface below, of a macvlan: frames to its address come in there.
    pub macvlan: Option<u32>,
    /// Whether that is a macvtap, whose frames go to whoever has it open.
    pub is_macvtap: bool,
    /// Whether a macvlan takes or leaves frames by more than their destination: in mode `source` by where they come from, in mode `passthru`
    /// all. What comes in by the interface below is then the kernel's.
    pub takes_by_more: bool,
    /// Why the data path does not send by it; `None` if it does.
    pub kernel: Option<Reason>,
    /// What `ip_forward` and its IPv6 likeness say of packets that come in by it; of IPv6 no, if it has no address of that.
    pub forwarding: [bool; 2],
    /// Whether routes by it count while it has no carrier: IPv4, IPv6.
    pub ignore_linkdown: [bool; 2],
}

/// Why something is left to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// A route or next hop with an encapsulation or a label.
    Encapsulation,
    /// A route for some sources only.
    Source,
    /// A route for some TOS only.
    Tos,
    /// A route with an MTU of its own.
    Mtu,
    /// A route that ends by itself, as what an IPv6 router advertises does.
    Expires,
    /// A route of a kind that leads elsewhere, such as `throw`.
    Kind,
    /// Several IPv6 routes, or IPv4 default routes, of the same prefix and metric that are no multipath route.
    Ambiguous,
    /// A route of `main` within a prefix of `local`.
    Covered,
    /// A resilient group, or a next hop that is none of IP.
    NextHop,
    /// A next hop that the kernel has not told of.
    UnknownNextHop,
    /// An interface that the kernel has not told of.
    UnknownInterface,
    /// An interface that is no port of the data path.
    OtherInterface,
    /// An interface that is part of a bridge, a bond or a VRF.
    Enslaved,
    /// A leg, one of several, by an interface that lost its last address.
    NoAddress,
    /// Rules other than those of every system.
    Rules,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Encapsulation => "routes with an encapsulation or a label",
            Self::Source => "routes for some sources only",
            Self::Tos => "routes for some TOS only",
            Self::Expires => "routes that end by themselves",
            Self::Mtu => "routes with an MTU of their own",
            Self::Kind => "routes that lead to another table",
            Self::Ambiguous => "several IPv6 or default routes of one prefix and metric",
            Self::Covered => "routes within a prefix of the host's own",
            Self::NextHop => "resilient groups, and next hops that are none of IP",
            Self::UnknownNextHop => "next hops that the kernel has not told of",
            Self::UnknownInterface => "interfaces that the kernel has not told of",
            Self::OtherInterface => "routes by interfaces that are no ports",
            Self::Enslaved => "routes by interfaces that are part of a bridge, a bond or a VRF",
            Self::NoAddress => "routes by an interface that lost its last address",
            Self::Rules => "rules other than those of every system",
        })
    }
}

/// A change of the data path, in an order in which it can be applied: next hops are told before the first prefix that goes there,
/// and are free after the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// Packets of a prefix now go there; with `None` there is no such prefix, and a shorter one decides.
    Route {
        /// The prefix.
        prefix: Prefix,
        /// Where they go.
        to: Option<Target>,
    },
    /// The next hops of a number, for all prefixes that go there.
    NextHops {
        /// The number: small, and dense.
        number: u32,
        /// What they are now.
        now: NextHops<'a>,
    },
    /// A neighbour.
    Neighbour {
        /// The interface.
        interface: u32,
        /// Its address.
        address: IpAddr,
        /// What is known; `None` if it is forgotten.
        now: Option<Neighbour>,
    },
    /// An interface.
    Interface {
        /// Its index.
        index: u32,
        /// What it is now; `None` if it is gone.
        now: Option<&'a Interface>,
    },
    /// Whether all packets of a family go to the kernel, whatever their prefix.
    Bypass {
        /// The family.
        family: crate::Family,
        /// Why they do.
        reason: Option<Reason>,
    },
    /// Something is left to the kernel for a reason that was not told before. What no router forwards to is none: link-local and
    /// multicast prefixes.
    Unsupported(Reason),
}
