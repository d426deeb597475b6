//! Traffic for a packet generator: definitions in TOML, frames whose fields change from one to the next with lengths and checksums
//! kept right, and captures to replay. No I/O: text and captures come from the caller, and frames go into the caller's buffers.
//!
//! # A definition
//!
//! A file has one or more streams. All sizes and offsets are in bytes, without the frame check sequence.
//!
//! ```
//! use stream::{Definition, Stream};
//!
//! let text = r#"
//! [[stream]]
//! name = "tunnels"
//! size = "128*7, 566*4, 1514"
//! frame = [
//!     { ethernet = { source = "02:00:00:00:00:01", destination = "02:00:00:00:00:02" } },
//!     { vlan = { id = { from = 100, to = 163 } } },           # counted: 100 to 163, then again
//!     "ipv4",                                                 # with all fields as they are by default
//!     { udp = { source = { random = true } } },               # from 0 to 65535
//!     { vxlan = { vni = 5000 } },
//!     "ethernet",
//!     { ipv6 = { source = { from = "2001:2::1", to = "2001:2::ffff", flow = true } } },
//!     { udp = { destination = { list = [53, 443], flow = true } } },
//! ]
//! flows = 1000                                                # frame n is of flow n modulo 1000
//! payload = "increment"
//! "#;
//! let definitions = Definition::parse("tunnels.toml", text)?;
//! let mut stream = Stream::new(&definitions[0], 8, 1)?;       // 8 bytes at the end are the caller's, 1 is the seed
//! let mut frames: Vec<Vec<u8>> = stream.sizes().take(32).map(|size| vec![0; size.into()]).collect();
//! stream.fill(frames.iter_mut().map(|frame| &mut frame[..]));
//! assert_eq!(frames[3][14..16], [0, 103]); // VLAN 103
//! # Ok::<(), stream::Error>(())
//! ```
//!
//! | key of a stream | what | unless given |
//! |---|---|---|
//! | `frame` | its headers, from the outermost: names, or tables of one name with settings | must be given |
//! | `size` | a number, a list, `{ from = 60, to = 1514, step = 2 }`, or text as [`Sizes`] reads it | 60 |
//! | `payload` | behind the headers: `"zero"`, `"increment"`, `"random"` (the same in all frames), `{ bytes = "de ad" }` over and over | `"zero"` |
//! | `flows` | number of flows, 1 to 1,048,576; frame n is of flow n modulo this | 1 |
//! | `field` | fields in raw bytes or payload: `[{ at = 50, bytes = 2, value = { random = true } }]`, 1 to 8 bytes each | none |
//! | `name` | its name in reports, which no other has | its number in the file |
//! | `weight`, or `rate` and `pattern` | its share, or its rate and how that is spread, which the caller reads | 1, none, none |
//!
//! A field is a constant (number, or text for an address), `{ from = 1, to = 9, step = 2 }` (counted), `{ list = [1, 5] }` (in turn) or
//! `{ random = true, from = 1, to = 9 }` (uniform; both bounds may be left out, but not of addresses of IPv6, which are of one /64). With `flow = true` too, its value is that of the frame's
//! flow: such fields move together. `flows` without such a field moves the source address of the outermost IP header by one a flow,
//! up to 65,534, and above that the source port of UDP or TCP behind it too.
//!
//! | header | fields | may be followed by |
//! |---|---|---|
//! | `ethernet` | `destination`, `source`, `type` | `vlan`, `mpls`, `ipv4`, `ipv6`, `arp`, `raw` |
//! | `vlan` | `id` (1), `priority`, `drop_eligible`, `tpid` (0x8100; constant), `type` | as `ethernet` |
//! | `mpls` | `label` (16), `class`, `bottom`, `ttl` (64) | `mpls`, `ipv4`, `ipv6`, `ethernet`, `raw` |
//! | `ipv4` | `source`, `destination`, `ttl` (64), `dscp`, `ecn`, `id`, `dont_fragment` (1), `more_fragments`, `fragment_offset`, `protocol`, `length`, `checksum` | `udp`, `tcp`, `icmp`, `gre`, `ipv4`, `ipv6`, `raw` |
//! | `ipv6` | `source`, `destination`, `hop_limit` (64), `dscp`, `ecn`, `flow_label`, `next_header`, `length` | `udp`, `tcp`, `icmpv6`, `gre`, `ipv4`, `ipv6`, `raw` |
//! | `udp` | `source` (49152), `destination` (9), `length`, `checksum` | `vxlan`, `raw` |
//! | `tcp` | `source` (49152), `destination` (9), `sequence`, `acknowledgement`, `flags` (0x10), `window`, `urgent`, `checksum` | `raw` |
//! | `icmp`, `icmpv6` | `type` (echo request), `code`, `id` (1), `sequence`, `checksum` | `raw` |
//! | `arp` | `operation` (1), `sender_mac`, `sender_ip`, `target_mac`, `target_ip` | `raw` |
//! | `gre` | `type`, and only if they are given `checksum` (`true`), `key`, `sequence` | `ipv4`, `ipv6`, `ethernet`, `mpls`, `raw` |
//! | `vxlan` | `vni` (1) | `ethernet` |
//! | `raw` | its bytes in hexadecimal: `{ raw = "de ad be ef" }` | nothing |
//!
//! Lengths, checksums and the protocol that follows are filled in, unless they are given: a wrong one may be wanted, and
//! `checksum = 0` leaves that of UDP out. Checksums cover what lies behind them up to the frame's end, whatever a length that is given says. Addresses are those of RFC 2544 and RFC 5180 unless given. IPv6 addresses that are counted or
//! random differ in their lower 64 bits.
#![forbid(unsafe_code)]

mod build;
mod definition;
mod error;
mod flows;
mod layout;
mod program;
mod protocol;
mod random;
mod replay;
mod rows;
mod sizes;
mod source;
mod stream;
mod values;

pub use definition::Definition;
pub use error::{Error, Result};
pub use flows::Flows;
pub use replay::{Due, Replay, Timing};
pub use sizes::{LARGEST, SMALLEST, Sizes};
pub use stream::Stream;

/// The program of the README is tested with the examples.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
