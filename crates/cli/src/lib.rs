//! Common parts of the programs `fwd` and `pktgen`: lcores, signals, opening ports, counters between threads, the live
//! screen, and errors of one line.
//!
//! ```no_run
//! use cli::{args::RunOptions, exit, human, output};
//! use clap::Parser;
//!
//! /// Says how long it would run.
//! #[derive(Parser)]
//! struct Args {
//!     #[command(flatten)]
//!     run: RunOptions,
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     exit::run("example", || {
//!         let args: Args = exit::parse("example")?;
//!         let seconds = args.run.duration.map_or(0, |duration| duration.as_secs());
//!         output::print(&human::counted(seconds, "second"))
//!     })
//! }
//! ```

#![deny(unsafe_code)]

pub mod args;
pub mod counters;
pub mod exit;
pub mod human;
pub mod idle;
pub mod lane;
pub mod lcore;
mod links;
pub mod output;
pub mod pools;
pub mod ports;
pub mod report;
pub mod run;
pub mod screen;
pub mod stop;
mod trust;

/// The program of the README is tested with the examples.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
