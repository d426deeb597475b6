//! Interrupts as user space sees them: eventfds that count (Linux eventfd(2)).

use crate::{Device, Error, Result};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Whether a driver is to set up interrupts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interrupts {
    /// None: queues can only be polled.
    #[default]
    Off,
    /// Where the device and the way to it have them; else none.
    IfAvailable,
    /// Yes, or the device is not opened.
    Required,
}

impl Interrupts {
    /// Enables `vectors` MSI-X vectors of `device`, as wished: all of them or none.
    ///
    /// # Errors
    ///
    /// With [`Interrupts::Required`], when the device has fewer or cannot be reached by interrupts.
    pub fn enable(self, device: &impl Device, vectors: u16) -> Result<Vec<EventFd>> {
        if self == Self::Off {
            return Ok(Vec::new());
        }
        let enabled = device.enable_msix(vectors).and_then(|fds| {
            if fds.len() == usize::from(vectors) {
                return Ok(fds.into_iter().map(EventFd::from).collect());
            }
            let cause = format!("{vectors} interrupts were asked for, and it gave {}", fds.len());
            Err(Error::unusable(device.name(), cause, "poll instead"))
        });
        match enabled {
            Err(error) if self == Self::IfAvailable => {
                tracing::info!("no interrupts: {error}");
                Ok(Vec::new())
            }
            other => other,
        }
    }
}

/// A non-blocking eventfd: one side signals, the other waits. Readable while a signal has not been cleared.
///
/// ```
/// use device::EventFd;
/// use std::time::Duration;
///
/// let event = EventFd::new()?;
/// assert!(!event.wait(Duration::ZERO)?);
/// event.signal();
/// assert!(event.wait(Duration::from_secs(60))?);
/// assert!(event.clear() && !event.clear());
/// # Ok::<(), device::Error>(())
/// ```
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// A new one, not signalled.
    ///
    /// # Errors
    ///
    /// When the process has no file descriptors left.
    pub fn new() -> Result<Self> {
        let made = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let hint = "raise the limit of open files: ulimit -n";
        made.map(Self).map_err(|errno| Error::system("make", "an eventfd", errno, hint))
    }

    /// Signals it.
    pub fn signal(&self) {
        // It fails only when the count is full, and then the other side has been told.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Takes all signals so far off it; whether there were any.
    #[expect(clippy::must_use_candidate, reason = "usually called to clear")]
    pub fn clear(&self) -> bool {
        rustix::io::read(&self.0, &mut [0_u8; 8]).is_ok()
    }

    /// Waits for a signal, `limit` at most, or until a signal handler has run; whether there is one. Does not clear it.
    ///
    /// # Errors
    ///
    /// When the kernel has no memory for it.
    pub fn wait(&self, limit: Duration) -> Result<bool> {
        // A limit beyond what the kernel can count is none.
        let limit = Timespec::try_from(limit).ok();
        match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], limit.as_ref()) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(false),
            Err(errno) => Err(Error::system("wait for", "an eventfd", errno, "poll instead")),
        }
    }
}

impl From<OwnedFd> for EventFd {
    /// An eventfd that somebody else made, which must be non-blocking.
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
