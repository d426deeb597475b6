//! What Ringway's drivers for Intel NICs share: bounded waits on registers, and errors.

mod error;
mod family;
mod wait;

pub use error::{Error, Result};
pub use family::Family;
pub use wait::{Command, Timed, is_cancelled, modify, read, wait, wait_retrying};
