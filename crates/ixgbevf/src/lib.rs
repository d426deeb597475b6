//! What a driver of a virtual function of Intel's 82599, X540 and X550 says to the physical one, through the mailbox between
//! the two ([`Mailbox`]).
//!
//! The other side is another driver, of another system, that may be slow, gone, new, or hostile: each exchange is bounded in time and in
//! messages, and what comes back is read once and judged.

mod error;
mod mailbox;
#[expect(unsafe_code, reason = "the promise for the register map")]
mod regs;
mod requests;

pub use error::{Error, Result};
pub use mailbox::{Mailbox, News};
pub use regs::{Ixgbevf, Registers};
pub use requests::{Api, Mode, Queues};

/// The program of the README is tested with the examples.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
