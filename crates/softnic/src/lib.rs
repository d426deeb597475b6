//! A software 82599: a NIC for developing and testing drivers on machines without one.
//!
//! It is one register-level model, divided into files like the datasheet into chapters, with three faces that a driver
//! cannot tell from a device:
//!
//! * [`StrictNic`]: single-threaded, for tests. The test calls [`StrictControl::step`], puts frames in and takes frames
//!   out. A mistake to which a real 82599 would react with silence or a stray DMA is a [`Violation`], and panics at the
//!   offending access.
//! * [`SoftDevice`]: works by itself on one engine thread per process, at millions of packets a second, with a wire of
//!   your choice: a generator, a sink, a loop, another soft NIC, a TAP interface, capture files.
//! * [`VfioUserServer`]: works like [`SoftDevice`], for drivers in other processes and for QEMU, on a Unix socket.
//!
//! ```
//! use device::{Bar as _, Device as _};
//!
//! let nic = softnic::SoftDevice::open("example?wire=gen&size=60-1514&flows=16")?;
//! assert_eq!(nic.ids().to_string(), "8086:10f9");
//! let status = nic.bar().read32(0x8);
//! assert_eq!(status >> 19 & 1, 1, "STATUS.GIO: not stopped");
//! # Ok::<(), softnic::Error>(())
//! ```
//!
//! [`Fault`] lists the faults that all of them can be made to show.

#[expect(unsafe_code, reason = "DMA memory, as a card reaches it")]
mod dma;
#[expect(unsafe_code, reason = "DMA memory, as a card reaches it")]
mod doorbells;
mod engine;
mod error;
mod fault;
mod model;
#[expect(unsafe_code, reason = "the promise of a device")]
mod soft;
mod spec;
#[expect(unsafe_code, reason = "the promise of a device")]
mod strict;
mod trace;
mod vfio_user;
mod violation;
mod wire;

pub use engine::paused;
pub use error::{Error, WireError};
pub use fault::{Counter, Fault, MailboxPhase, SharedPart};
pub use model::{DeviceId, MailboxApi, ModuleKind, Step};
pub use soft::{SoftBar, SoftControl, SoftDevice};
pub use spec::check;
pub use strict::{StrictBar, StrictBuilder, StrictControl, StrictNic};
pub use vfio_user::VfioUserServer;
pub use violation::{OnViolation, Ring, TransmitFault, Violation};
#[doc(hidden)]
pub use wire::replay;
pub use wire::{Impairments, WireCounters};

/// The program of the README is tested with the examples.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
