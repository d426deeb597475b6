//! One time limit for a whole operation, however many steps it takes, and a way to end it earlier.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long one operation with a device or a peer (open, close, a command, a reconnect) may take as a whole, and a flag
/// that ends it earlier.
///
/// ```
/// use device::TimeLimit;
/// use std::time::Duration;
///
/// let limit = TimeLimit { total: Duration::from_secs(2), ..TimeLimit::default() };
/// let deadline = limit.begin();
/// assert!(deadline.check().is_ok());
/// ```
#[derive(Clone, Debug)]
pub struct TimeLimit {
    /// Time for the whole operation; default 5 s.
    pub total: Duration,
    /// Ends every operation within 20 ms of becoming true, for instance because of SIGINT; default `None`.
    pub cancel: Option<Arc<AtomicBool>>,
}

impl TimeLimit {
    /// Starts the clock of one operation, and returns its deadline.
    #[must_use]
    pub fn begin(&self) -> Deadline {
        let now = Instant::now();
        // An end that the clock cannot express is a day away.
        let end = now.checked_add(self.total).unwrap_or(now + Duration::from_secs(86_400));
        Deadline { end, total: self.total, cancel: self.cancel.clone() }
    }
}

impl Default for TimeLimit {
    fn default() -> Self {
        // Miri, which is a thousand times slower, is no peer that stalls.
        Self { total: Duration::from_secs(if cfg!(miri) { 5000 } else { 5 }), cancel: None }
    }
}

impl PartialEq for TimeLimit {
    /// Equal times, and the same flag or none.
    fn eq(&self, other: &Self) -> bool {
        let same_flag = match (&self.cancel, &other.cancel) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        self.total == other.total && same_flag
    }
}

impl Eq for TimeLimit {}

/// The time at which an operation under way has to end: made by [`TimeLimit::begin`], and passed to each of its steps.
#[derive(Clone, Debug)]
pub struct Deadline {
    end: Instant,
    total: Duration,
    cancel: Option<Arc<AtomicBool>>,
}

/// The reason why a [`Deadline`] ended an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expired {
    /// The time for the whole operation is used up.
    TimedOut {
        /// The time for the whole operation.
        total: Duration,
    },
    /// The cancel flag was set.
    Cancelled,
}

impl fmt::Display for Expired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut { total } => write!(f, "not done within {} s", total.as_secs_f64()),
            Self::Cancelled => f.write_str("interrupted"),
        }
    }
}

impl std::error::Error for Expired {}

impl From<Expired> for io::Error {
    fn from(expired: Expired) -> Self {
        let kind = match expired {
            Expired::TimedOut { .. } => io::ErrorKind::TimedOut,
            Expired::Cancelled => io::ErrorKind::Interrupted,
        };
        Self::new(kind, expired)
    }
}

/// The cancel flag is looked at this often while waiting.
const SLICE: Duration = Duration::from_millis(20);

impl Deadline {
    /// Returns the time that is left.
    ///
    /// # Errors
    ///
    /// If none is left, or the operation was cancelled.
    pub fn remaining(&self) -> Result<Duration, Expired> {
        if self.cancel.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed)) {
            return Err(Expired::Cancelled);
        }
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(Expired::TimedOut { total: self.total }) } else { Ok(left) }
    }

    /// Returns `Ok` while the operation may go on.
    ///
    /// # Errors
    ///
    /// Those of [`Self::remaining`].
    pub fn check(&self) -> Result<(), Expired> {
        self.remaining().map(drop)
    }

    /// Returns this deadline, or one `limit` from now if that is earlier; for a step that has a limit of its own.
    #[must_use]
    pub fn at_most(&self, limit: Duration) -> Self {
        let end = Instant::now().checked_add(limit).map_or(self.end, |end| end.min(self.end));
        Self { end, total: if end < self.end { limit } else { self.total }, cancel: self.cancel.clone() }
    }

    /// Returns this deadline moved later by `pause`, for a pause that was not part of the operation.
    #[must_use]
    pub fn after(&self, pause: Duration) -> Self {
        Self { end: self.end.checked_add(pause).unwrap_or(self.end), ..self.clone() }
    }

    /// Sleeps for `time`.
    ///
    /// # Errors
    ///
    /// Those of [`Self::remaining`], as soon as the time is used up or the operation is cancelled.
    pub fn sleep(&self, time: Duration) -> Result<(), Expired> {
        let begun = Instant::now();
        loop {
            let left = self.remaining()?;
            let wait = time.saturating_sub(begun.elapsed());
            if wait.is_zero() {
                return Ok(());
            }
            std::thread::sleep(wait.min(left).min(SLICE));
        }
    }

    /// Connects to the Unix stream socket at `path`, and returns a socket in blocking mode. If the listener's backlog
    /// is full, it tries again every 5 ms.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::TimedOut`] or [`io::ErrorKind::Interrupted`] if [`Self::remaining`] fails, and errors of
    /// `connect`.
    pub fn connect(&self, path: &Path) -> io::Result<UnixStream> {
        let address = SocketAddrUnix::new(path)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        loop {
            self.check()?;
            match connect(&socket, &address) {
                Ok(()) => break,
                // Linux unix(7) says so of a full backlog, for which there is nothing to poll.
                Err(Errno::AGAIN) => self.sleep(Duration::from_millis(5))?,
                Err(Errno::INTR) => {}
                // What the kernel says of any other file too.
                Err(Errno::CONNREFUSED) if !is_socket(path) => return Err(Errno::NOTSOCK.into()),
                Err(errno) => return Err(errno.into()),
            }
        }
        let socket = UnixStream::from(socket);
        socket.set_nonblocking(false)?;
        Ok(socket)
    }

    /// Waits until `fd` is ready for one of `events`, hung up, or in error.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::TimedOut`] or [`io::ErrorKind::Interrupted`] if [`Self::remaining`] fails, and errors of
    /// `poll`.
    pub fn wait_for(&self, fd: BorrowedFd<'_>, events: PollFlags) -> io::Result<()> {
        loop {
            let slice = self.remaining()?.min(SLICE);
            let mut fds = [PollFd::from_borrowed_fd(fd, events)];
            match poll(&mut fds, Timespec::try_from(slice).ok().as_ref()) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

fn is_socket(path: &Path) -> bool {
    path.metadata().is_ok_and(|file| file.file_type().is_socket())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixStream;

    #[test]
    fn time_runs_out_for_the_whole() {
        let deadline = TimeLimit { total: Duration::from_millis(30), cancel: None }.begin();
        let expired = (0..).find_map(|_| deadline.sleep(Duration::from_millis(10)).err()).unwrap();
        assert_eq!(expired, Expired::TimedOut { total: Duration::from_millis(30) });
        assert_eq!(io::Error::from(expired).kind(), io::ErrorKind::TimedOut);
        assert_eq!(expired.to_string(), "not done within 0.03 s");
    }

    #[test]
    fn a_flag_ends_a_wait() {
        let flag = Arc::new(AtomicBool::new(false));
        let deadline = TimeLimit { total: Duration::from_secs(3600), cancel: Some(Arc::clone(&flag)) }.begin();
        let (one, _other) = UnixStream::pair().unwrap();
        let waiting = std::thread::spawn(move || deadline.wait_for(one.as_fd(), PollFlags::IN).unwrap_err().kind());
        flag.store(true, Ordering::Relaxed);
        assert_eq!(waiting.join().unwrap(), io::ErrorKind::Interrupted);
    }

    #[test]
    fn a_ready_descriptor_and_a_closed_one_end_a_wait() {
        let deadline = TimeLimit::default().begin();
        let (one, other) = UnixStream::pair().unwrap();
        deadline.wait_for(one.as_fd(), PollFlags::OUT).unwrap();
        drop(other);
        deadline.wait_for(one.as_fd(), PollFlags::IN).unwrap();
    }

    /// Fills the backlog of a listener that never accepts; `connect(2)` would block then for ever.
    #[test]
    fn a_full_backlog_ends_a_connect_at_the_deadline_or_the_flag() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("full.sock");
        let listener = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        rustix::net::bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let flag = Arc::new(AtomicBool::new(false));
        let limit = TimeLimit { total: Duration::from_millis(50), cancel: Some(Arc::clone(&flag)) };
        let first = limit.begin().connect(&path).unwrap();
        assert_eq!(limit.begin().connect(&path).unwrap_err().kind(), io::ErrorKind::TimedOut);
        let deadline = TimeLimit { total: Duration::from_secs(3600), ..limit.clone() }.begin();
        let connecting = std::thread::spawn(move || deadline.connect(&path).unwrap_err().kind());
        flag.store(true, Ordering::Relaxed);
        assert_eq!(connecting.join().unwrap(), io::ErrorKind::Interrupted);
        drop(first);
    }

    #[test]
    fn a_socket_that_is_not_there_is_an_error_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let error = TimeLimit::default().begin().connect(&folder.path().join("none")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn what_is_no_socket_is_told_from_one_that_nobody_serves() {
        let folder = tempfile::tempdir().unwrap();
        let connect = |path: &Path| TimeLimit::default().begin().connect(path).unwrap_err();
        assert_eq!(connect(folder.path()).raw_os_error(), Some(Errno::NOTSOCK.raw_os_error()));
        let path = folder.path().join("left.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert_eq!(connect(&path).kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn a_step_ends_with_the_whole_at_the_latest() {
        let deadline = TimeLimit { total: Duration::from_secs(3600), cancel: None }.begin();
        assert!(deadline.at_most(Duration::from_secs(1)).remaining().unwrap() <= Duration::from_secs(1));
        assert!(deadline.at_most(Duration::MAX).remaining().unwrap() <= Duration::from_secs(3600));
        assert!(deadline.at_most(Duration::ZERO).check().is_err());
    }

    #[test]
    fn a_pause_in_the_middle_takes_nothing_from_the_time_of_the_whole() {
        let hour = Duration::from_secs(3600);
        let deadline = TimeLimit { total: hour, cancel: None }.begin();
        let left = deadline.after(hour).remaining().unwrap();
        assert!(hour < left && left <= 2 * hour);
        assert!(deadline.after(Duration::MAX).remaining().unwrap() <= hour);
    }
}
