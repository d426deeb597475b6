//! `pktgen rfc2544` and `pktgen report` as programs, over cables of software NICs whose truth is known.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../common/mod.rs"]
mod common;
#[cfg(test)]
mod figures;
#[cfg(test)]
mod folders;
mod known;
#[cfg(test)]
mod options;
#[cfg(test)]
mod progress;
#[cfg(test)]
mod reports;
mod runs;
