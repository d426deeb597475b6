//! A vfio-user client that knows nothing: it sends the bytes it is told to and shows the bytes that come back.

#![allow(dead_code, reason = "not every test file uses all of it")]

use rustix::fs::{MemfdFlags, SealFlags};
use std::io::{IoSlice, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// The first message: VERSION 0.0 with empty capabilities, id 1; 40 bytes.
pub(crate) const VERSION: &[u8] =
    b"\x01\x00\x01\x00\x28\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00{\"capabilities\":{}}\x00";

pub(crate) struct WireClient(pub(crate) UnixStream);

impl WireClient {
    /// Connects and does not say anything.
    pub(crate) fn silent(path: &Path) -> Self {
        let socket = UnixStream::connect(path).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Self(socket)
    }

    /// Connects and agrees on the version.
    pub(crate) fn connect(path: &Path) -> Self {
        let client = Self::silent(path);
        let reply = client.exchange(VERSION, &[]);
        assert_eq!(reply[..16], [1, 0, 1, 0, reply[4], reply[5], 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(reply[16..20], [0; 4], "version 0.0");
        client
    }

    /// Sends bytes, and descriptors with the first.
    pub(crate) fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> std::io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
        let mut control = rustix::net::SendAncillaryBuffer::new(&mut space);
        assert!(fds.is_empty() || control.push(rustix::net::SendAncillaryMessage::ScmRights(fds)));
        let sent =
            rustix::net::sendmsg(&self.0, &[IoSlice::new(bytes)], &mut control, rustix::net::SendFlags::NOSIGNAL)?;
        std::io::Write::write_all(&mut &self.0, &bytes[sent..])
    }

    /// Receives one message.
    pub(crate) fn receive(&self) -> Vec<u8> {
        let mut header = [0; 16];
        (&self.0).read_exact(&mut header).unwrap();
        let size = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
        let mut message = header.to_vec();
        message.resize(size, 0);
        (&self.0).read_exact(&mut message[16..]).unwrap();
        message
    }

    pub(crate) fn exchange(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Vec<u8> {
        self.send(bytes, fds).unwrap();
        self.receive()
    }

    /// Sends a command (id 0) and returns the errno of its reply, 0 if it succeeded.
    pub(crate) fn errno(&self, command: u8, body: &[u8], fds: &[BorrowedFd<'_>]) -> u8 {
        let reply = self.exchange(&message(command, 0, body), fds);
        assert_eq!((reply[2], reply[8] & 0xF), (command, 1));
        assert_eq!(reply[8] & 0x20 != 0, reply[12] != 0, "the error bit and the errno go together");
        reply[12]
    }
}

/// Memory as a server takes it: that cannot shrink.
pub(crate) fn sealed_memfd(name: &str, len: u64) -> OwnedFd {
    let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&fd, len).unwrap();
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK).unwrap();
    fd
}

/// A message with id 0.
pub(crate) fn message(command: u8, flags: u8, body: &[u8]) -> Vec<u8> {
    let size = u32::try_from(16 + body.len()).unwrap().to_le_bytes();
    let header = [0, 0, command, 0, size[0], size[1], size[2], size[3], flags, 0, 0, 0, 0, 0, 0, 0];
    [&header[..], body].concat()
}

pub(crate) fn dwords(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

pub(crate) fn qwords(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}
