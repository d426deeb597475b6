//! Protocol headers, read and changed in place as they are on the wire, and the Internet checksum.
//!
//! A view borrows the bytes; nothing is copied. Lengths are checked once, when a view is made, so its getters cannot
//! panic: `parse` returns `None` for bytes that are cut off or contradict themselves. Integers are in host byte order.
//!
//! ```
//! use wire::{Ethernet, Flow, Ipv4, Udp, ether_type, protocol};
//!
//! let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00];
//! frame.extend([0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 198, 51, 100, 1]);
//! frame.extend([0xc0, 0, 0, 53, 0, 12, 0, 0, 1, 2, 3, 4]);
//!
//! let ethernet = Ethernet::parse(&frame).ok_or("no Ethernet header")?;
//! assert_eq!((ethernet.source(), ethernet.ether_type()), ([2, 0, 0, 0, 0, 1], ether_type::IPV4));
//! let ip = Ipv4::parse(ethernet.payload()).ok_or("no IPv4 packet")?;
//! assert_eq!((ip.header().ttl(), ip.header().protocol()), (64, protocol::UDP));
//! let udp = Udp::parse(ip.payload()).ok_or("no UDP datagram")?;
//! assert_eq!((udp.ports(), udp.payload()), ((0xc000, 53), &[1, 2, 3, 4][..]));
//! assert_eq!(Flow::of(&frame).ok_or("no flow")?.to_string(), "udp 192.0.2.1:49152 -> 198.51.100.1:53");
//! # Ok::<(), &str>(())
//! ```
#![forbid(unsafe_code)]

mod arp;
pub mod checksum;
mod ethernet;
mod flow;
mod icmp;
mod ipv4;
mod ipv6;
mod transport;

pub use arp::{Arp, ArpMut, answer_arp};
pub use checksum::Sum;
pub use ethernet::{Ethernet, EthernetMut, ether_type};
pub use flow::Flow;
pub use icmp::{Icmp, IcmpMut, answer_ping, icmp_type};
pub use ipv4::{Ipv4, Ipv4Header, Ipv4Mut, hop};
pub use ipv6::{Ipv6, Ipv6Header};
pub use transport::{Tcp, TransportMut, Udp, protocol, tcp_flags};

/// The program of the README is tested with the examples.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
