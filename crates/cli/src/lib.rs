//! What the programs `fwd` and `pktgen` share: lcores, signals, opening ports, counters between threads, the live
//! screen, and errors of one line.

#![deny(unsafe_code)]

pub mod args;
pub mod counters;
pub mod exit;
pub mod human;
pub mod idle;
pub mod lcore;
pub mod output;
pub mod pools;
pub mod ports;
pub mod report;
pub mod screen;
pub mod stop;
pub mod team;
mod trust;
