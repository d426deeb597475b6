//! The client's end of a connection: one command at a time, each with its reply, in bounded time.

use super::message::{self, Fields, Header, MAX_FDS, MAX_TRANSFER, Message, command, words};
use crate::{Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::PidfdFlags;
use serde_json::{Value, json};
use std::fmt;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a server may take over a reply. Servers answer in microseconds; one that is busy with another client lets
/// the first message wait.
const PATIENCE: Duration = Duration::from_secs(5);

/// A connection to a vfio-user server. After the first failure of the transport it stays broken.
pub(super) struct Connection {
    name: String,
    line: Mutex<Line>,
    broken: AtomicBool,
    /// The server's process, where the kernel says which it is.
    process: Option<OwnedFd>,
}

struct Line {
    socket: UnixStream,
    next: u16,
}

impl Connection {
    /// Connects, agrees on the version, and returns what the server says it can do.
    pub(super) fn open(path: &Path, name: &str) -> Result<(Self, Value)> {
        let socket = UnixStream::connect(path).map_err(|source| {
            let hint = match source.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                    format!("start the device first, for example: softnic {} 'a?wire=gen'", path.display())
                }
                io::ErrorKind::PermissionDenied => "give this user the socket".to_owned(),
                _ => "it must be the Unix socket of a vfio-user device".to_owned(),
            };
            Error::system("connect to", name, source, hint)
        })?;
        let failed = |source: io::Error| Error::system("set up the connection to", name, source, "");
        socket.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        socket.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
        let process = rustix::net::sockopt::socket_peercred(&socket)
            .and_then(|peer| rustix::process::pidfd_open(peer.pid, PidfdFlags::empty()))
            .ok();
        let line = Mutex::new(Line { socket, next: 0 });
        let connection = Self { name: name.to_owned(), line, broken: AtomicBool::new(false), process };
        let capabilities = connection.agree()?;
        Ok((connection, capabilities))
    }

    /// The VERSION exchange.
    fn agree(&self) -> Result<Value> {
        let ours = json!({ "capabilities": {
            "max_msg_fds": MAX_FDS, "max_data_xfer_size": MAX_TRANSFER, "pgsizes": 4096, "doorbells": true,
        }});
        let mut body = vec![0; 4];
        body.extend_from_slice(ours.to_string().as_bytes());
        body.push(0);
        let reply = self.call(command::VERSION, &[&body], &[]).map_err(|source| {
            let hint = "it may serve another client, or be no vfio-user device; end the other client";
            Error::system("agree on the protocol version with", &self.name, source, hint)
        })?;
        let mut fields = Fields::new(&reply.body);
        let refuse = |cause: &str| Error::unusable(&self.name, cause, "it must serve vfio-user version 0");
        let (Some(major), Some(_minor)) = (fields.u16(), fields.u16()) else {
            return Err(refuse("its answer about the protocol version is cut short"));
        };
        if major != 0 {
            return Err(refuse(&format!("it speaks version {major} of the protocol")));
        }
        let text = fields.rest();
        let text = text.strip_suffix(&[0]).unwrap_or(text);
        if text.is_empty() {
            return Ok(Value::Null);
        }
        let mut value: Value =
            serde_json::from_slice(text).map_err(|_| refuse("what it says of its capabilities is no JSON"))?;
        Ok(value["capabilities"].take())
    }

    /// Sends a command and waits for its reply.
    ///
    /// # Errors
    ///
    /// What the server says of this command; or that the connection is broken, and then for every later command too.
    pub(super) fn call(&self, command: u16, body: &[&[u8]], fds: &[BorrowedFd<'_>]) -> io::Result<Message> {
        if self.is_broken() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        let reply = line.exchange(command, body, fds).map_err(|source| self.fail(source))?;
        drop(line);
        match reply.header.failure() {
            Some(failure) => Err(failure),
            None => Ok(reply),
        }
    }

    /// Reads `N` bytes of a region.
    pub(super) fn read<const N: usize>(&self, region: u32, offset: u64) -> io::Result<[u8; N]> {
        let tail = words([region, u32::try_from(N).unwrap_or(u32::MAX)]);
        let reply = self.call(command::REGION_READ, &[&offset.to_le_bytes(), &tail], &[])?;
        let bytes = reply.body.get(16..).and_then(|data| data.first_chunk::<N>());
        bytes.copied().ok_or_else(|| self.fail(cut_short()))
    }

    /// Writes bytes of a region. Returns when the server has done it.
    pub(super) fn write(&self, region: u32, offset: u64, data: &[u8]) -> io::Result<()> {
        let tail = words([region, u32::try_from(data.len()).unwrap_or(u32::MAX)]);
        self.call(command::REGION_WRITE, &[&offset.to_le_bytes(), &tail, data], &[]).map(drop)
    }

    /// Whether nothing can be asked any more.
    pub(super) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }

    /// Whether the server's process has ended, so that its mappings are gone. False if that is not known. A process that
    /// ends closes its connections a little before it is gone, so this waits for it, a moment at most.
    pub(super) fn server_ended(&self) -> bool {
        let Some(process) = &self.process else { return false };
        let moment = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
        poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&moment)).is_ok_and(|ready| ready == 1)
    }

    fn fail(&self, source: io::Error) -> io::Error {
        if !self.broken.swap(true, Ordering::Relaxed) {
            tracing::warn!("{}: the connection to the device has ended: {source}", self.name);
        }
        source
    }
}

impl Line {
    fn exchange(&mut self, command: u16, body: &[&[u8]], fds: &[BorrowedFd<'_>]) -> io::Result<Message> {
        let deadline = Instant::now() + PATIENCE;
        let id = self.next;
        self.next = id.wrapping_add(1);
        let len = body.iter().map(|part| part.len()).sum();
        let sent = message::send(&self.socket, Header::command(id, command, len), body, fds);
        sent.map_err(timed_out)?;
        loop {
            let received = message::receive(&self.socket, Some(deadline)).map_err(timed_out)?;
            let Some(reply) = received else {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server has closed it"));
            };
            if reply.header.is_reply() {
                if (reply.header.id, reply.header.command) == (id, command) {
                    return Ok(reply);
                }
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a reply to something else"));
            }
            // A server without mapped memory would ask for DMA by message; ours always has descriptors.
            if reply.header.wants_reply() {
                let errno = rustix::io::Errno::OPNOTSUPP.raw_os_error();
                message::send(&self.socket, reply.header.error(errno), &[], &[]).map_err(timed_out)?;
            }
        }
    }
}

/// A socket timeout in words that a user understands.
fn timed_out(source: io::Error) -> io::Error {
    match source.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {} s", PATIENCE.as_secs()))
        }
        _ => source,
    }
}

/// A reply that lacks what it must have.
pub(super) fn cut_short() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "an answer that is cut short")
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("name", &self.name).field("broken", &self.broken).finish_non_exhaustive()
    }
}
