//! What the tests across crates share: a driver on a strict soft NIC, frames that can be told apart, a reader of capture
//! files, the programs as child processes, and network namespaces.

#![forbid(unsafe_code)]

mod captures;
mod kernel_router;
mod namespace;
mod program;
mod rig;
mod routed;
mod routing;
mod tcpdump;
mod traffic;

pub use captures::{Capture, capture_files, real_table};
pub use kernel_router::{KernelRouter, Link, received, set};
pub use namespace::{Namespace, Process, command, eventually, namespaces_possible};
pub use program::{Fwd, cores, first_core, fwd, pktgen, softnic};
pub use rig::{Rig, pool};
pub use routed::{HOPS, MACS, ROUTES, Random, routed, with_checksum, words};
pub use routing::{Daemons, Speaker, Suite};
pub use tcpdump::Tcpdump;
pub use traffic::{frame, number, padded};
