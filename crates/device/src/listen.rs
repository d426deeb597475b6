//! A Unix socket that listens at a path, in place of an abandoned one.

use rustix::fs::{FileType, FlockOperation, Mode, OFlags, RawMode, Stat, fchmod, flock, lstat, open};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, socket_with};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long the lock of a folder is tried for, and how often.
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(5);

/// The file of a listening socket ([`SocketFile::listen`]). Dropping it removes the file, unless another socket has
/// replaced it. Drop it before the listener.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
}

impl SocketFile {
    /// Listens at `path`, with a queue of `backlog` connections that are not accepted yet. Returns the listener and its
    /// file. A socket at which nobody listens any more is replaced. `mode` is the mode of the file; `None` leaves that
    /// to the umask.
    ///
    /// For all processes that use this function, checking what is at the path, removing it, binding and listening are
    /// one step: meanwhile the folder is locked (flock(2)). A folder that this user may not read, or one on a file
    /// system without such locks, is not locked; if two processes start there at the same moment, both may take the
    /// path for theirs.
    ///
    /// ```
    /// use device::SocketFile;
    ///
    /// let folder = tempfile::tempdir()?;
    /// let path = folder.path().join("a.sock");
    /// let (_listener, file) = SocketFile::listen(&path, 1, Some(0o600))?;
    /// assert!(SocketFile::listen(&path, 1, None).is_err_and(|error| error.kind() == std::io::ErrorKind::AddrInUse));
    /// drop(file);
    /// assert!(!path.exists());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::AddrInUse`] if a socket listens there, or the path is something other than a socket;
    /// [`io::ErrorKind::ResourceBusy`] if another process keeps the folder locked for a second; and errors of the
    /// system calls.
    pub fn listen(path: &Path, backlog: u16, mode: Option<u32>) -> io::Result<(UnixListener, Self)> {
        let address = SocketAddrUnix::new(path)?;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        if let Some(mode) = mode {
            // The file is made with the mode of the socket.
            fchmod(&socket, Mode::from_raw_mode(mode))?;
        }
        let locked = lock_folder(path)?;
        match bind(&socket, &address) {
            Err(Errno::ADDRINUSE) if is_abandoned(path) => {
                std::fs::remove_file(path)?;
                bind(&socket, &address)?;
            }
            other => other?,
        }
        let file = Self { path: path.to_owned(), identity: identity(&lstat(path)?) };
        let listens = rustix::net::listen(&socket, backlog.into());
        // Before the file may have to go, which takes the lock too.
        drop(locked);
        listens?;
        Ok((socket.into(), file))
    }

    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Whoever replaces it does so between no two of these steps. One that stays is replaced by the next to listen there.
        let removed = lock_folder(&self.path).and_then(|_locked| match lstat(&self.path) {
            Ok(found) if identity(&found) == self.identity => std::fs::remove_file(&self.path),
            _ => Ok(()),
        });
        if let Err(error) = removed {
            tracing::debug!("{} stays: {error}", self.path.display());
        }
    }
}

/// Locks the folder of `path`, until the descriptor is closed; `None` if it cannot have a lock.
fn lock_folder(path: &Path) -> io::Result<Option<OwnedFd>> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder_fd = match open(folder, flags, Mode::empty()) {
        Err(Errno::ACCESS) => return Ok(None),
        opened => opened?,
    };
    let begun = Instant::now();
    loop {
        match flock(&folder_fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Some(folder_fd)),
            Err(Errno::WOULDBLOCK) if begun.elapsed() < PATIENCE => sleep(PAUSE),
            Err(Errno::WOULDBLOCK) => {
                let cause = format!(
                    "another process has kept the folder {} locked for {} s",
                    folder.display(),
                    PATIENCE.as_secs()
                );
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, cause));
            }
            Err(Errno::INTR) => {}
            Err(_) => return Ok(None),
        }
    }
}

/// Whether there is a socket at which nobody listens. It is not waited for: a listener whose backlog is full ([`Errno::AGAIN`]) is
/// one, and may never accept.
fn is_abandoned(path: &Path) -> bool {
    let dial = || {
        let address = SocketAddrUnix::new(path)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        connect(&socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?, &address)
    };
    lstat(path).is_ok_and(|found| is_socket(found.st_mode)) && dial() == Err(Errno::CONNREFUSED)
}

fn is_socket(mode: RawMode) -> bool {
    FileType::from_raw_mode(mode) == FileType::Socket
}

fn identity(file: &Stat) -> (u64, u64) {
    (file.st_dev, file.st_ino)
}
