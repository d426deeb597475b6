//! Linux's routing tables, for a data path that follows them.
//!
//! - [`Messages`], [`Message`]: netlink messages, decoded in place.
//! - [`Socket`]: a netlink socket that hears of changes and asks for tables.
//! - [`Mirror`]: links, addresses, neighbours, next hops, rules, and the routes of tables `main` and `local`, as the messages tell
//!   them; it numbers next hops, and names what changes for a data path as an [`Event`].
//! - [`Follower`]: both together: subscribes, reads all tables, follows them, and compares them anew when something was missed.
//!
//! Whatever is not understood goes to the kernel ([`Target::Kernel`], [`NextHops::Kernel`], [`Event::Bypass`]), with a [`Reason`].
//!
//! ```
//! use kernel::{Follower, Ports, Progress};
//!
//! let mut follower = Follower::open(Ports::All)?;
//! while follower.read(64, &mut |_| {})? != Progress::Loaded {}
//! let (v4, v6) = follower.mirror().prefix_counts();
//! println!("{v4} prefixes of IPv4, {v6} of IPv6");
//! # Ok::<(), kernel::Error>(())
//! ```
#![forbid(unsafe_code)]

mod error;
mod filters;
mod follow;
mod groups;
mod ipsec;
mod message;
mod mirror;
mod socket;

pub use error::{Error, Fault};
pub use filters::{has_nft_rules, has_tc_filters, has_xdp, index_of, queues};
pub use follow::{Counts, Follower, Progress};
pub use groups::groups_of;
pub use ipsec::Ipsec;
pub use message::{
    Address, Body, Dump, Family, Leg, LegFlags, Legs, Link, Message, Messages, NeighbourMessage, Netconf, NetconfScope,
    NextHop, Route, RouteKind, Rule, flags,
};
pub use mirror::{Event, Interface, Mirror, Neighbour, NextHops, Ports, Prefix, Reason, Target};
pub use socket::{RECEIVE_BUFFER, Received, Socket};

/// The program of the README is tested with the examples.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
