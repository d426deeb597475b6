//! The socket that back ends connect to.

use rustix::fs::{FileType, Mode, RawMode};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// A listening socket of which only its owner may connect; its file goes with it.
#[derive(Debug)]
pub(super) struct Listener {
    socket: UnixListener,
    path: PathBuf,
    /// Device and inode of the file.
    identity: (u64, u64),
}

impl Listener {
    /// Listens at `path`. A socket that nobody listens at any more is replaced; anything else there is an error.
    pub(super) fn bind(path: &Path) -> io::Result<Self> {
        let address = SocketAddrUnix::new(path)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        // The file is made with the mode of the socket.
        rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
        match rustix::net::bind(&socket, &address) {
            Err(Errno::ADDRINUSE) if is_abandoned(path) => {
                std::fs::remove_file(path)?;
                rustix::net::bind(&socket, &address)?;
            }
            other => other?,
        }
        let file = rustix::fs::lstat(path)?;
        rustix::net::listen(&socket, 1)?;
        Ok(Self { socket: socket.into(), path: path.to_owned(), identity: (file.st_dev, file.st_ino) })
    }

    /// A back end that has connected, if there is one.
    pub(super) fn accept(&self) -> io::Result<Option<UnixStream>> {
        match self.socket.accept() {
            Ok((stream, _)) => Ok(Some(stream)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Connects without waiting for a place: [`Errno::AGAIN`] when as many wait already as the listener lets.
pub(super) fn dial(path: &Path) -> rustix::io::Result<UnixStream> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, &address) {
        // What the kernel says of any other file too.
        Err(Errno::CONNREFUSED) if !is_socket(rustix::fs::stat(path)?.st_mode) => Err(Errno::NOTSOCK),
        connected => connected.map(|()| socket.into()),
    }
}

fn is_socket(mode: RawMode) -> bool {
    FileType::from_raw_mode(mode) == FileType::Socket
}

/// Whether there is a socket at which nobody listens.
fn is_abandoned(path: &Path) -> bool {
    let is_socket = rustix::fs::lstat(path).is_ok_and(|file| is_socket(file.st_mode));
    is_socket && dial(path).is_err_and(|errno| errno == Errno::CONNREFUSED)
}

impl Drop for Listener {
    fn drop(&mut self) {
        if rustix::fs::lstat(&self.path).is_ok_and(|file| (file.st_dev, file.st_ino) == self.identity) {
            // Nothing is lost if it stays.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
