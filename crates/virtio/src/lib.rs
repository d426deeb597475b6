//! Driver for virtio-net devices (Virtio 1.2, sections 2 and 5.1).

#![deny(unsafe_code)]

mod error;
mod ids;
#[expect(unsafe_code, reason = "the trait that memory safety is built on")]
pub mod transport;

pub use error::{Error, Result};
pub use ids::{Kind, identify};
pub use transport::Transport;
