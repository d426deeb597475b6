//! Linux's tables in a forwarding table that changes in place: what `ip route`, FRR or BIRD tell the kernel, forwarders do.
//!
//! - [`Plane`]: a [`router::LiveFib`], and what changes of the kernel's tables ([`kernel::Event`]) mean there.
//! - [`Runner`]: a [`kernel::Follower`] with a plane, for a thread of its own; [`Handle`] is for other threads.
//!
//! When in doubt, the kernel gets the packet: what is not resolved, not understood or has found no room is refused
//! ([`router::Refusal`]), and whoever holds the forwarder gives it to the kernel, which does what is right by the same tables.
//!
//! ```
//! use kernel::{Event, Leg, NextHops, Prefix, Target};
//! use plane::{Plane, Port};
//! use router::{Interface, LiveConfig, LiveFib};
//!
//! let fib = LiveFib::new(&LiveConfig::default(), &[Interface { mac: [2, 0, 0, 0, 1, 0], promiscuous: false, mtu: 1500 }])?;
//! let forwarder = fib.forwarder();
//! let mut plane = Plane::new(fib, &[Port { name: "rw0".to_owned(), index: None, mtu: 1500 }])?;
//! let leg = Leg { interface: 7, gateway: Some([192, 0, 2, 1].into()), weight: 1 };
//! plane.apply(Event::NextHops { number: 0, now: NextHops::Forward(&[leg]) });
//! let prefix = Prefix { address: [198, 51, 100, 0].into(), len: 24 };
//! plane.apply(Event::Route { prefix, to: Some(Target::NextHops(0)) });
//! assert_eq!(plane.report().routes, [1, 0]);
//! # drop(forwarder);
//! # Ok::<(), plane::Error>(())
//! ```
#![forbid(unsafe_code)]

mod error;
mod hosts;
mod neighbours;
mod numbers;
mod plane;
mod ports;
mod report;
mod routes;
mod runner;
mod ways;

pub use error::Error;
// What packets of the data path do not meet, and which frames the kernel wants.
pub use kernel::{groups_of, has_nft_rules, has_tc_filters, has_xdp, index_of, queues};
pub use plane::Plane;
pub use ports::Port;
pub use report::Report;
pub use runner::{BETWEEN_READS, Handle, Runner};

/// The program of the README is tested with the examples.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
