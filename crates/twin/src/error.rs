//! Errors of opening and starting twins.

use std::io;

/// An error of twins: the operation, the object, the cause and the next step.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An interface cannot be opened or set.
    #[error(transparent)]
    Tap(#[from] tap::Error),
    /// The process has no file descriptors left.
    #[error(transparent)]
    Descriptor(#[from] device::Error),
    /// The ports do not match the twins or the lanes.
    #[error("{ports} ports and {twins} twins, {lanes} lanes: give each port a twin, and one of the lanes")]
    Ports {
        /// The number of ports.
        ports: usize,
        /// The number of twins.
        twins: usize,
        /// The number of lanes.
        lanes: usize,
    },
    /// The thread cannot be started.
    #[error("cannot start the thread of the twins: {0}; allow more threads (`ulimit -u`) or memory (`ulimit -v`)")]
    Thread(io::Error),
}
