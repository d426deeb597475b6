//! Packet buffers in memory that network devices can reach.
//!
//! A [`Pool`] is one DMA region divided into equal slots. A [`Packet`] owns one slot; it takes 16 bytes and has no
//! reference count. It is moved from the pool to the application or a receive ring, from there to a transmit ring, and
//! back to its pool. There are three ways back, cheapest first: through a [`PoolCache`] (a thread's own stack of slots,
//! no atomics), dropping a [`Batch`] (one push for up to 32 packets), and dropping a single [`Packet`] (always correct,
//! slow). Any thread may free what another allocated. A pool's memory is kept until its last slot is back.
//!
//! ```
//! use mempool::{Batch, Pool, PoolConfig};
//!
//! let pool = Pool::new(&PoolConfig { slots: 1024, ..PoolConfig::default() })?;
//! let mut cache = pool.cache();
//! let mut packet = cache.alloc().ok_or("the pool is empty")?;
//! packet.append(60).ok_or("no room")?[..6].copy_from_slice(&[0xff; 6]);
//! assert_eq!(packet.data().len(), 60);
//!
//! let mut batch = Batch::with_capacity(32);
//! batch.push(packet).map_err(|_| "the batch is full")?;
//! cache.free_batch(&mut batch);
//! drop(cache);
//! assert_eq!(pool.away(), 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![expect(unsafe_code, reason = "buffers that hardware writes to, and one owner for each")]

mod batch;
mod cache;
mod checksum;
mod frame;
mod known;
mod packet;
mod pool;
mod sending;
mod uses;

pub use batch::Batch;
pub use cache::{Lent, LentOne, PoolCache};
pub use checksum::{Checksum, complete_checksum};
pub use frame::{frame_len, frames, frames_mut};
pub use known::KnownPools;
pub use packet::{Meta, Packet, Slot};
pub use pool::{Error, MAX_POOLS, Pool, PoolConfig};
pub use sending::Sending;

/// The number of slots that threads exchange at a time.
pub const CHUNK: usize = 32;

/// The program of the README is tested with the examples.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
