//! What Ringway's drivers for Intel NICs share: queues of advanced descriptors, bounded waits on registers, and errors.
//!
//! A driver says by a [`Family`] what of its queues is not as in others. [`Shared::begin_dma`] makes memory for rings, from which
//! [`RxQueue::start`] and [`TxQueue::start`] make queues. A [`Port`] does that, and controls and closes the device; what is the driver's
//! own part in it is its [`Card`].

pub mod counters;
mod desc;
mod error;
#[expect(unsafe_code, reason = "registers through which a card learns of memory")]
mod family;
mod groups;
#[expect(unsafe_code, reason = "buffers and descriptors shared with the card")]
mod loops;
mod port;
#[expect(unsafe_code, reason = "memory shared with the card")]
mod ring;
#[expect(unsafe_code, reason = "buffers shared with the card")]
mod rx;
pub mod selftest;
mod semaphore;
mod station;
#[expect(unsafe_code, reason = "buffers shared with the card")]
mod tx;
mod wait;

pub use error::{Error, Result};
pub use family::{Family, QueueRegisters, Step};
pub use groups::{group_hash, multicast_table};
pub use port::{Card, During, Port, Registers, Settings, take};
pub use ring::{RingMemory, Shared};
pub use rx::RxQueue;
pub use semaphore::Semaphores;
pub use station::station_address;
pub use tx::TxQueue;
pub use wait::{Command, Timed, end_transactions, is_cancelled, modify, read, wait, wait_retrying};
