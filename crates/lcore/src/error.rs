//! Errors of lcores, threads and their work.

use std::io;

/// Why lcores cannot be put to work, or how their work ended.
///
/// ```
/// use lcore::{Error, Stop, Team};
///
/// let stop = Stop::new()?;
/// let error = Team::start(vec![(Some(1_000_000), || ())], &stop).unwrap_err();
/// assert!(matches!(error, Error::Pin { lcore: 1_000_000, .. }));
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An eventfd for a [`Stop`](crate::Stop) cannot be made.
    #[error(transparent)]
    Device(#[from] device::Error),
    /// A thread cannot be started.
    #[error("cannot start thread {name}: {error}; allow more threads (`ulimit -u`) or memory (`ulimit -v`)")]
    Spawn {
        /// The thread's name.
        name: String,
        /// The error that the kernel returned.
        error: io::Error,
    },
    /// A thread cannot be pinned.
    #[error("lcore {lcore}: cannot pin a thread to it: {error}; choose one of lcore::available()")]
    Pin {
        /// The lcore.
        lcore: usize,
        /// The error that the kernel returned.
        error: io::Error,
    },
    /// A thread panicked.
    #[error("thread {name}: panicked; its message stands on standard error")]
    Panicked {
        /// The thread's name.
        name: String,
    },
}
