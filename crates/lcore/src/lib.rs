//! The loop of an lcore: poll, idle, publish, stop; threads pinned to lcores, and rings between them.
//!
//! A [`Function`] is what an lcore does each round: a closure, or a type with queues to sleep on and counters to
//! publish. A [`Loop`] runs it until a [`Stop`] is requested, and a [`Team`] runs loops on threads, each pinned to its
//! lcore. A [`ring()`] passes packets from one lcore to another, for pipelines. A complete program, which sends every
//! frame back to the port it came from:
//!
//! ```
//! use ethdev::{Opened, PortConfig, RxQueue as _, TxQueue as _, in_process};
//! use lcore::{Clock, Loop, Stop, Team};
//! use mempool::{Batch, Pool, PoolConfig};
//!
//! let pool = Pool::new(&PoolConfig::default())?;
//! let (opened, mut wire) = in_process::open("echo", &PortConfig::default(), &pool)?;
//! let Opened { port: _port, mut rx, mut tx } = opened;
//! let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(32));
//! let echo = move |_: &mut Clock| {
//!     let moved = !rx[0].recv(&mut cache, &mut batch).is_empty();
//!     tx[0].send(&mut cache, &mut batch);
//!     moved
//! };
//! let stop = Stop::new()?;
//! let poll_loop = Loop::new(&stop);
//! let lcore = lcore::available()?.last().map(|lcore| lcore.number);
//! let team = Team::start(vec![(lcore, move || poll_loop.run(echo))], &stop)?;
//! assert!(wire.inject(&[7; 60]));
//! let sent = std::iter::from_fn(|| Some(wire.collect())).flatten().next();
//! assert_eq!(sent, Some(vec![7; 60]));
//! stop.request();
//! team.join()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod clock;
mod cores;
mod error;
mod function;
mod idle;
mod paced;
mod ring;
mod run;
mod stop;
mod switch;
mod team;

pub use clock::Clock;
pub use cores::{Lcore, available, pin};
pub use error::Error;
pub use function::Function;
pub use idle::Sleeps;
pub use paced::PacedRx;
pub use ring::{PacketReceiver, PacketSender, ring};
pub use run::Loop;
pub use stop::Stop;
pub use switch::{Steer, Switch};
pub use team::Team;

/// The program of the README is tested with the examples.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
