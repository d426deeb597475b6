//! The flag that ends a run.

use crate::Error;
use device::EventFd;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A flag that ends loops, with an eventfd that wakes sleeping lcores. Clones share the flag.
///
/// ```
/// use lcore::Stop;
/// use std::time::Duration;
///
/// let stop = Stop::new()?;
/// let other = stop.clone();
/// std::thread::spawn(move || other.request());
/// assert!(stop.wait(Duration::from_secs(60)) && stop.is_requested());
/// # Ok::<(), lcore::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Stop(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    requested: AtomicBool,
    event: EventFd,
}

impl Stop {
    /// Creates a flag that is not set.
    ///
    /// # Errors
    ///
    /// If the process has no file descriptors left.
    pub fn new() -> Result<Self, Error> {
        Ok(Self(Arc::new(Shared { requested: AtomicBool::new(false), event: EventFd::new()? })))
    }

    /// Requests a stop, and wakes sleeping lcores.
    pub fn request(&self) {
        // Who sees it sees what came before, such as the last frames of a device that takes no more.
        self.0.requested.store(true, Ordering::Release);
        self.0.event.signal();
    }

    /// Returns whether a stop was requested.
    #[inline(always)]
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.0.requested.load(Ordering::Acquire)
    }

    /// Waits until a stop is requested or a signal handler has run, for `limit` at most. Returns whether a stop was
    /// requested.
    #[must_use]
    pub fn wait(&self, limit: Duration) -> bool {
        // A wait that fails for want of memory is a short one.
        self.0.event.wait(limit).unwrap_or(false) || self.is_requested()
    }
}

impl AsFd for Stop {
    /// Returns the eventfd, which is readable from [`Self::request`] on.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.event.as_fd()
    }
}
