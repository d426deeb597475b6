//! The data path of an IP router: bursts of Ethernet frames go in; frames to be sent, grouped by output port, and
//! refused frames, each with its reason, come out. It does no I/O: a program calls it between receive and transmit.
//!
//! A [`Fib`] is made from [`Routes`] and provides a [`Forwarder`] for each thread. [`Forwarder::route`] takes a burst
//! and fills an [`Egress`]:
//!
//! 1. parse and check each frame (RFC 1812, 5.2.2 and 5.3; RFC 8200; RFC 4291),
//! 2. look up the destinations of the whole burst,
//! 3. rewrite both MAC addresses, time to live or hop limit, and checksum,
//! 4. append each frame to the burst of its output port.
//!
//! Routes that change one by one, as a routing protocol changes them, are the business of [`LiveFib`], with a [`LiveForwarder`] for each
//! thread: next hops change in place, and a route may lead to several of them.
//!
//! Refused frames come out unchanged. A program that wants to answer them (ICMP errors, ARP, a host's own stack) finds them in the [`Egress`] with their [`Refusal`], outside the
//! path that forwarded frames take.
//!
//! ```
//! use mempool::{Batch, Pool, PoolConfig};
//! use router::{Egress, Fib, Interface, Miss, Refusal, Routes};
//!
//! let routes = Routes::parse(b"198.51.100.0/24 via 02:00:00:00:00:02 port 1", 2)?;
//! let interfaces = [[2, 0, 0, 0, 1, 0], [2, 0, 0, 0, 1, 1]].map(|mac| Interface { mac, promiscuous: false, mtu: 1500 });
//! let fib = Fib::new(&routes, &interfaces)?;
//! let (mut forwarder, mut egress) = (fib.forwarder(Miss::Refuse), Egress::new(2, 64));
//!
//! let pool = Pool::new(&PoolConfig::default()).unwrap();
//! let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(32));
//! let mut arp = cache.alloc().unwrap();
//! arp.append(60).unwrap().fill(0);
//! arp.data_mut()[12..14].copy_from_slice(&[0x08, 0x06]);
//! batch.push(arp).unwrap();
//!
//! assert_eq!(forwarder.route(0, &mut batch, &mut egress), 1);
//! assert!(egress.outputs().iter().all(|burst| burst.is_empty()));
//! let refused: Vec<Refusal> = egress.drain_refused().map(|(_, refusal)| refusal).collect();
//! assert_eq!(refused, [Refusal::NotIp]);
//! # Ok::<(), router::Error>(())
//! ```
#![forbid(unsafe_code)]

mod check;
mod egress;
mod error;
mod ethernet;
mod fib;
mod forwarder;
mod further;
mod groups;
mod hash;
mod hops;
mod interfaces;
mod ipv4;
mod ipv6;
mod judge;
mod live;
mod numbers;
mod rewrite;
mod routes;
mod turned;

pub use check::Refusal;
pub use egress::Egress;
pub use error::{At, Error, Result};
pub use ethernet::{Interface, MacAddress};
pub use fib::Fib;
pub use forwarder::{Destination, Forwarder, LiveForwarder, Miss};
pub use further::FurtherMac;
pub use hash::Policy;
pub use hops::{Group, Target};
pub use live::{LiveConfig, LiveFib};
pub use routes::{Neighbour, Routes};

/// The program of the README is tested with the examples.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
