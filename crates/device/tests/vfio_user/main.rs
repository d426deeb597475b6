//! The vfio-user client against servers that misbehave: an error that names the device, in bounded time.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod deadlines;
mod processes;
mod refusals;
mod server;
mod sharing;
