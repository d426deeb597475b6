//! The arithmetic of a packet generator, without I/O.
//!
//! - [`Tag`], [`TagWriter`], [`End`]: what a frame carries at its end: stream, number and due time, or how many there were.
//! - [`Load`], [`Rate`], [`Pacer`]: how many frames a second, and when each of them is due.
//! - [`Window`], [`Stream`]: what was lost, doubled, late or reordered, and how long frames took.
//! - [`is_intact`]: whether a frame is as it was sent, by the checksums of IPv4 and of UDP, TCP or ICMP.
//! - [`Latency`]: a histogram, and what RFC 8219, RFC 5481 and RFC 3550 make of it.
//! - [`Clock`]: ticks of a counter in nanoseconds, with the error that this can have.
//!
//! Times are in ticks of a counter with a constant rate, such as the time-stamp counter.
//!
//! ```
//! use measure::{Load, Pacer, Pattern};
//!
//! let rate = "1000".parse::<Load>()?.rate(60, None)?;
//! let mut pacer = Pacer::new(rate, Pattern::Even, 1_000_000_000, 5_000_000);
//! pacer.start(0, None);
//! let mut due = [0; 8];
//! assert_eq!(pacer.take(2_500_000, &mut due), 3);
//! assert_eq!(due[..3], [0, 1_000_000, 2_000_000]);
//! # Ok::<(), measure::Error>(())
//! ```
#![forbid(unsafe_code)]

mod clock;
mod error;
mod gaps;
mod intact;
mod latency;
mod marks;
mod pacing;
mod rate;
mod share;
mod stream;
mod tag;
mod window;

pub use clock::{Bracket, Clock};
pub use error::Error;
pub use intact::{Checked, check, is_intact};
pub use latency::{Latency, Summary};
pub use pacing::{Pacer, Pattern};
pub use rate::{Load, Rate};
pub use share::{Share, Shared};
pub use stream::{HandOvers, Stream};
pub use tag::{Coverage, End, Kind, Tag, TagWriter};
pub use window::{Seen, Verdict, WINDOW, Window};

/// The program of the README is tested with the examples.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
