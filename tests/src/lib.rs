//! What the tests across crates share: a driver on a strict soft NIC, frames that can be told apart, a reader of capture
//! files, and the programs as child processes.

#![forbid(unsafe_code)]

mod captures;
mod program;
mod rig;
mod traffic;

pub use captures::{Capture, capture_files};
pub use program::{Fwd, fwd};
pub use rig::{Rig, pool};
pub use traffic::{frame, number, padded};
