//! Interrupts in user space: eventfds (Linux eventfd(2)).

use crate::{Device, Error, Result, Signaller};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, ReadWriteFlags};
use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::time::Duration;

/// Whether a driver sets up interrupts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interrupts {
    /// No interrupts: queues can only be polled.
    #[default]
    Off,
    /// Interrupts if the device and the access path have them, else none.
    IfAvailable,
    /// Interrupts; a device without them is not opened.
    Required,
}

impl Interrupts {
    /// Enables `vectors` MSI-X vectors of `device`, all of them or none, and returns an eventfd for each. Without
    /// interrupts the list is empty.
    ///
    /// # Errors
    ///
    /// With [`Interrupts::Required`], if the device has fewer vectors or the access path has no interrupts.
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

/// An eventfd: one side signals, the other waits. It is readable from a signal on, until it is cleared.
///
/// If another process shares the eventfd, that process can make its file blocking and fill the counter; neither
/// [`Self::signal`] nor [`Self::clear`] waits even then. (`signal` may wait only if the kernel has no asynchronous I/O
/// for this process, see [`Signaller::new`]; `clear` only before Linux 5.8.)
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
    /// Creates an eventfd that is not signalled.
    ///
    /// # Errors
    ///
    /// If the process has no file descriptors left.
    pub fn new() -> Result<Self> {
        let made = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let hint = "raise the limit of open files: ulimit -n";
        made.map(Self).map_err(|errno| Error::system("make", "an eventfd", errno, hint))
    }

    /// Signals the other side.
    pub fn signal(&self) {
        /// One for the process; `None` where there is none to be had.
        static SIGNALLER: OnceLock<Option<Signaller>> = OnceLock::new();
        let signaller = SIGNALLER.get_or_init(|| if cfg!(miri) { None } else { Signaller::new().ok() });
        if signaller.as_ref().is_some_and(|signaller| signaller.signal(&self.0)) {
            return;
        }
        // A counter that is full has told the other side.
        let mut fds = [PollFd::new(&self.0, PollFlags::OUT)];
        if cfg!(miri) || poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0) {
            let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
        }
    }

    /// Clears all signals so far. Returns whether there were any.
    #[expect(clippy::must_use_candidate, reason = "usually called to clear")]
    pub fn clear(&self) -> bool {
        let mut count = [0; 8];
        // The file's own flag is not asked: whoever shares the file can change it.
        #[cfg(not(miri))]
        match rustix::io::preadv2(&self.0, &mut [IoSliceMut::new(&mut count)], u64::MAX, ReadWriteFlags::NOWAIT) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
            taken => return taken.is_ok(),
        }
        rustix::io::read(&self.0, &mut count).is_ok()
    }

    /// Waits for a signal or until a signal handler has run, for `limit` at most. Returns whether there is a signal,
    /// and does not clear it.
    ///
    /// # Errors
    ///
    /// If the kernel has no memory for the wait.
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

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

    /// What a process that shares it can do.
    #[test]
    fn one_that_was_made_blocking_holds_nobody_up() {
        let event = EventFd::new().unwrap();
        let theirs = event.0.try_clone().unwrap();
        fcntl_setfl(&theirs, fcntl_getfl(&theirs).unwrap() - OFlags::NONBLOCK).unwrap();
        assert!(!event.clear());
        rustix::io::write(&theirs, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        // The counter is full.
        (0..1000).for_each(|_| event.signal());
        assert!(event.clear() && !event.clear());
        event.signal();
        assert!(event.wait(Duration::from_secs(60)).unwrap() && event.clear() && !event.clear());
    }
}
