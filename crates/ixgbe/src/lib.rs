//! Driver for the Intel 82599 family: 82599 (X520), X540 and X550.
#![cfg_attr(not(test), allow(dead_code, reason = "the rings and the port that use the control side come next"))]

mod config;
mod eeprom;
mod error;
#[cfg(test)]
mod fake;
mod filter;
mod ids;
mod init;
mod interrupt;
mod link;
pub mod regs;
mod rss;
mod semaphore;
mod stats;
mod wait;

pub use config::{Config, Thresholds};
pub use error::{Error, Result};
pub use filter::Filters;
pub use ids::{MacType, Media, Model};
pub use link::LinkStatus;
pub use rss::{HashTypes, Reta, Rss, hash_ipv4, hash_ipv6, toeplitz};
pub use stats::{Counters, PauseFrames, QueueStatistics, ReceiveErrors, Statistics};
