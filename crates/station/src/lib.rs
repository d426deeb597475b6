//! A host on an Ethernet link, without I/O and without a clock: what it answers, and what it asks.
//!
//! A [`Station`] has a MAC address, IPv4 and IPv6 addresses, and gateways. It is given frames and the time, and gives back frames to be
//! sent:
//!
//! - It answers ARP requests (RFC 826, RFC 5227), neighbour solicitations (RFC 4861) and echo requests (RFC 792, RFC 4443), at most
//!   10,000 of each kind a second (bursts of 1,000).
//! - It finds the MAC address of a next hop: it asks up to three times, a second apart, and then says why it gave up. It keeps up to
//!   256 of them, those that it was asked for, and asks again after 30 s.
//! - It makes sure that its addresses are its own, in the first second, in which it uses them already (RFC 4429).
//!
//! What is malformed is dropped and counted, and nothing that was not asked for is kept. Whoever is on the link can claim any address, as
//! neither protocol knows better. It has no VLANs, no reassembly, joins no multicast groups (RFC 2710, RFC 3810), and learns no gateways.
//!
//! ```
//! use station::{Event, Station};
//! use std::time::Duration;
//!
//! let mut alice = Station::new([2, 0, 0, 0, 0, 1], &["192.0.2.1/24".parse()?], &[])?;
//! let mut bob = Station::new([2, 0, 0, 0, 0, 2], &["192.0.2.2/24".parse()?], &[])?;
//! let (mut now, bobs) = (Duration::ZERO, "192.0.2.2".parse()?);
//! let mac = loop {
//!     if let Some(mac) = alice.resolve(now, bobs)? {
//!         break mac;
//!     }
//!     let mut wire = Vec::new();
//!     alice.poll(now, &mut |frame| wire.push(frame.to_vec()));
//!     for frame in std::mem::take(&mut wire) {
//!         bob.receive(now, &frame, &mut |answer| wire.push(answer.to_vec()));
//!     }
//!     for frame in wire {
//!         assert!(matches!(alice.receive(now, &frame, &mut |_| ()), Event::Handled));
//!     }
//!     now += Duration::from_millis(100);
//! };
//! assert_eq!((mac, bob.counters().arp_answered), ([2, 0, 0, 0, 0, 2], 1));
//! # Ok::<(), station::Error>(())
//! ```
#![forbid(unsafe_code)]

mod address;
mod arp;
mod echo;
mod error;
mod frame;
mod limit;
mod nd;
mod neighbours;
mod own;
mod station;

pub use address::{InterfaceAddress, is_unicast};
pub use echo::{Echo, Trouble};
pub use error::Error;
pub use neighbours::MAX_NEIGHBOURS;
pub use station::{Counters, Event, Station};

/// The program of the README is tested with the examples.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
