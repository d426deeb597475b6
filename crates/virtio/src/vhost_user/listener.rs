//! The socket that back ends connect to.

use device::SocketFile;
use rustix::fs::{FileType, RawMode};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

/// A listening socket of which only its owner may connect; its file goes with it.
#[derive(Debug)]
pub(super) struct Listener {
    // The file goes first: see there.
    _file: SocketFile,
    socket: UnixListener,
}

impl Listener {
    /// Listens at `path`. A socket that nobody listens at any more is replaced; anything else there is an error.
    pub(super) fn bind(path: &Path) -> io::Result<Self> {
        let (socket, file) = SocketFile::listen(path, 1, Some(0o600))?;
        socket.set_nonblocking(true)?;
        Ok(Self { _file: file, socket })
    }

    /// Accepts a back end that has connected; `None` if there is none.
    pub(super) fn accept(&self) -> io::Result<Option<UnixStream>> {
        match self.socket.accept() {
            Ok((stream, _)) => Ok(Some(stream)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Connects without waiting. Returns [`Errno::AGAIN`] when the backlog of the listener is full.
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
