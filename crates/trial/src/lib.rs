//! What a network benchmark does next, as state machines without I/O and without a clock.
//!
//! A test is a [`Method`]: asked for the next [`Trial`] it says what to send, and told the [`Outcome`] it goes on.
//!
//! - [`Throughput`]: several goals in one search, by RFC 9971 (MLRsearch); [`BinarySearch`]: RFC 2544, 26.1.
//! - [`Latency`]: RFC 2544, 26.2, and RFC 8219, 7.2.
//! - [`FrameLoss`]: RFC 2544, 26.3.
//! - [`BackToBack`]: RFC 2544, 26.4, as RFC 9004 changes it.
//! - [`Recovery`]: RFC 2544, 26.5.
//! - [`Frmol`]: the forwarding rate at maximum offered load of RFC 2285, 3.6.2.
//!
//! [`Profile`] holds their numbers: those of the RFCs, or short ones, and says where these depart from the RFCs. A trial that the
//! generator spoiled is void, and asked for again; after three times it is a [`Limit`] of the generator, never of the device.
//! [`simulate::Device`] is a device under test whose truth is known. A run is written as [`Line`]s of JSON, from which alone
//! [`Report`] makes its table, and from which a test goes on that was interrupted.
#![forbid(unsafe_code)]

mod burst;
mod chance;
mod error;
mod estimate;
mod frmol;
mod goal;
mod grid;
mod latency;
mod line;
mod loss;
mod method;
mod profile;
mod recovery;
mod report;
mod setup;
pub mod simulate;
mod strict;
mod summary;
mod throughput;
mod trial;

pub use burst::{BackToBack, BufferTime, Bursts};
pub use error::Error;
pub use frmol::{Frmol, Offered};
pub use goal::Goal;
pub use latency::{Latency, LatencyResult};
pub use line::{Line, NoLine};
pub use loss::{FrameLoss, LossPoint};
pub use method::{Limit, Method, Reason, TRIES, Verdict};
pub use profile::{BurstPlan, Departure, LossPlan, Phases, Profile, RecoveryPlan, Repeated, ThroughputPlan};
pub use recovery::{Recovered, Recovery};
pub use report::{Bound, LeftOut, Part, Report, Row, VoidTrial, printable};
pub use setup::{AnyTest, Setup};
pub use strict::{BinarySearch, Strict};
pub use summary::Summary;
pub use throughput::{Ended, GoalResult, Throughput};
pub use trial::{Delays, Outcome, Traffic, Trial};

/// The program of the README is tested with the examples.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
