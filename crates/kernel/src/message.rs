//! Messages of NETLINK_ROUTE, decoded in place (rtnetlink(7); `linux/netlink.h`, `linux/rtnetlink.h`).
//!
//! Whatever the bytes are, a message is decoded, refused with an [`Error`], or [`Body::Other`]. Integers are in the byte order of
//! the host, addresses in that of the network.

mod attribute;
mod link;
mod neighbour;
mod next_hop;
mod request;
mod route;
mod rule;

pub use link::{Address, Link, Netconf, NetconfScope};
pub use neighbour::NeighbourMessage;
pub use next_hop::NextHop;
pub use request::Dump;
pub(crate) use request::use_neighbour;
pub use route::{Leg, LegFlags, Legs, Route, RouteKind};
pub use rule::Rule;

use crate::{Error, Fault};
pub(crate) use attribute::{Attributes, digest};
use attribute::{aligned, u16_at, u32_at};

/// An address family that has routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// AF_INET.
    V4,
    /// AF_INET6.
    V6,
}

impl Family {
    pub(crate) fn from_number(number: u8) -> Option<Self> {
        match number {
            AF_INET => Some(Self::V4),
            AF_INET6 => Some(Self::V6),
            _ => None,
        }
    }

    pub(crate) fn number(self) -> u8 {
        match self {
            Self::V4 => AF_INET,
            Self::V6 => AF_INET6,
        }
    }

    /// Returns the bits of an address: 32 or 128.
    #[must_use]
    pub fn bits(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }
}

/// A message: its header (`struct nlmsghdr`), and what it says.
#[derive(Clone, Debug)]
pub struct Message<'a> {
    /// Its type.
    pub kind: u16,
    /// NLM_F_*.
    pub flags: u16,
    /// The number of the request that it answers or that caused it.
    pub sequence: u32,
    /// The port of the socket that asked.
    pub port: u32,
    /// What it says.
    pub body: Body<'a>,
}

/// What a message says.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Body<'a> {
    /// A link as it is now.
    NewLink(Link<'a>),
    /// A link that is gone.
    DelLink(Link<'a>),
    /// An address of an interface.
    NewAddress(Address),
    /// An address that is gone.
    DelAddress(Address),
    /// A neighbour as it is now.
    NewNeighbour(NeighbourMessage),
    /// A neighbour that is gone.
    DelNeighbour(NeighbourMessage),
    /// A next hop or a group as it is now.
    NewNextHop(NextHop<'a>),
    /// A next hop or a group that is gone.
    DelNextHop(NextHop<'a>),
    /// A route.
    NewRoute(Route<'a>),
    /// A route that is gone; for IPv6, the legs of one that are.
    DelRoute(Route<'a>),
    /// A rule.
    NewRule(Rule),
    /// A rule that is gone.
    DelRule(Rule),
    /// Settings of an interface.
    NewNetconf(Netconf),
    /// The end of a dump, and 0 or a negative error.
    Done(i32),
    /// The answer to a request: 0 or a negative error.
    Error(i32),
    /// Messages were lost.
    Overrun,
    /// A message that is not about routing, or of a family without routes.
    Other,
}

/// The messages of a datagram. One that is malformed is an error, and the next one follows; one whose length is wrong ends them.
///
/// ```
/// use kernel::{Body, Messages};
///
/// let mut done = vec![20, 0, 0, 0, 3, 0, 2, 0, 7, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0];
/// if cfg!(target_endian = "little") {
///     let message = Messages::new(&done).next().unwrap().unwrap();
///     assert!(matches!(message.body, Body::Done(0)));
///     assert_eq!((message.sequence, message.port), (7, 9));
///     done[0] = 21;
///     assert!(Messages::new(&done).all(|message| message.is_err()));
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Messages<'a> {
    rest: &'a [u8],
}

impl<'a> Messages<'a> {
    /// The messages of these bytes.
    #[must_use]
    pub fn new(datagram: &'a [u8]) -> Self {
        Self { rest: datagram }
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Result<Message<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let bytes = std::mem::take(&mut self.rest);
        let Some((header, _)) = bytes.split_first_chunk::<HEADER>() else {
            return Some(Err(Error::Malformed { kind: 0, fault: Fault::Cut }));
        };
        let (len, kind) = (u32_at(header, 0), u16_at(header, 4));
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let Some(payload) = bytes.get(HEADER..len) else {
            return Some(Err(Error::Malformed { kind, fault: Fault::Length }));
        };
        self.rest = bytes.get(aligned(len)..).unwrap_or_default();
        let decoded = decode(kind, payload).map_err(|fault| Error::Malformed { kind, fault });
        Some(decoded.map(|body| Message {
            kind,
            flags: u16_at(header, 6),
            sequence: u32_at(header, 8),
            port: u32_at(header, 12),
            body,
        }))
    }
}

fn decode(kind: u16, payload: &[u8]) -> Result<Body<'_>, Fault> {
    let code = || payload.first_chunk::<4>().map(|code| i32::from_ne_bytes(*code));
    Ok(match kind {
        NLMSG_ERROR => Body::Error(code().ok_or(Fault::Cut)?),
        // Some kernels' dumps end without a code.
        NLMSG_DONE => Body::Done(code().unwrap_or(0)),
        NLMSG_OVERRUN => Body::Overrun,
        RTM_NEWLINK => Link::decode(payload, true)?.map_or(Body::Other, Body::NewLink),
        RTM_DELLINK => Link::decode(payload, false)?.map_or(Body::Other, Body::DelLink),
        RTM_NEWADDR => Address::decode(payload)?.map_or(Body::Other, Body::NewAddress),
        RTM_DELADDR => Address::decode(payload)?.map_or(Body::Other, Body::DelAddress),
        RTM_NEWNEIGH => NeighbourMessage::decode(payload)?.map_or(Body::Other, Body::NewNeighbour),
        RTM_DELNEIGH => NeighbourMessage::decode(payload)?.map_or(Body::Other, Body::DelNeighbour),
        RTM_NEWNEXTHOP => Body::NewNextHop(NextHop::decode(payload)?),
        RTM_DELNEXTHOP => Body::DelNextHop(NextHop::decode(payload)?),
        RTM_NEWROUTE => Route::decode(payload)?.map_or(Body::Other, Body::NewRoute),
        RTM_DELROUTE => Route::decode(payload)?.map_or(Body::Other, Body::DelRoute),
        RTM_NEWRULE => Rule::decode(payload)?.map_or(Body::Other, Body::NewRule),
        RTM_DELRULE => Rule::decode(payload)?.map_or(Body::Other, Body::DelRule),
        RTM_NEWNETCONF => Netconf::decode(payload)?.map_or(Body::Other, Body::NewNetconf),
        _ => Body::Other,
    })
}

/// Flags of a message (`linux/netlink.h`).
pub mod flags {
    /// Part of a dump.
    pub const MULTI: u16 = 0x2;
    /// The table changed while it was dumped, so parts may be missing.
    pub const DUMP_INTR: u16 = 0x10;
    /// The route took the place of another.
    pub const REPLACE: u16 = 0x100;
    /// There was no such route.
    pub const EXCL: u16 = 0x200;
    /// The route is new.
    pub const CREATE: u16 = 0x400;
    /// It stands behind others of its kind.
    pub const APPEND: u16 = 0x800;
}

/// `sizeof(struct nlmsghdr)`.
pub(crate) const HEADER: usize = 16;
pub(crate) const AF_INET: u8 = 2;
pub(crate) const AF_INET6: u8 = 10;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLMSG_OVERRUN: u16 = 4;
const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
const RTM_NEWNEIGH: u16 = 28;
const RTM_DELNEIGH: u16 = 29;
const RTM_NEWRULE: u16 = 32;
const RTM_DELRULE: u16 = 33;
const RTM_NEWNETCONF: u16 = 80;
const RTM_NEWNEXTHOP: u16 = 104;
const RTM_DELNEXTHOP: u16 = 105;
