//! The client's end of a connection: one command at a time, each with its reply, in bounded time.

use super::message::{self, Fields, Header, MAX_FDS, MAX_TRANSFER, Message, command, words};
use super::peer_process::PeerProcess;
use crate::{BackgroundClose, Deadline, Error, Result, TimeLimit};
use rustix::event::PollFlags;
use serde_json::{Value, json};
use std::fmt;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a server may take over a reply, if the operation's deadline leaves it as much. Servers answer in microseconds;
/// one that is busy with another client lets the first message wait.
const PATIENCE: Duration = Duration::from_secs(5);

/// A thread that waits for another one's reply looks at its own deadline this often.
const SLICE: Duration = Duration::from_millis(20);

/// A connection to a vfio-user server. After the first failure of the transport it stays broken.
pub(super) struct Connection {
    name: String,
    /// The end of the operation that is under way.
    deadline: Mutex<Option<Deadline>>,
    /// `None` while a thread waits for a reply.
    line: Mutex<Option<Line>>,
    line_is_back: Condvar,
    broken: AtomicBool,
}

struct Line {
    socket: BackgroundClose<UnixStream>,
    next: u16,
    peer: PeerProcess,
}

impl Connection {
    /// Connects, agrees on the version, and returns what the server says it can do. The deadline stays set.
    pub(super) fn open(path: &Path, name: &str, deadline: &Deadline) -> Result<(Self, Value)> {
        let socket = deadline.connect(path).map_err(|source| {
            let hint = match source.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                    format!("start the device first, for example: softnic {} 'a?wire=gen'", path.display())
                }
                io::ErrorKind::PermissionDenied => "give this user the socket".to_owned(),
                io::ErrorKind::TimedOut => "its server takes no connections; restart it".to_owned(),
                _ => "it must be the Unix socket of a vfio-user device".to_owned(),
            };
            Error::system("connect to", name, source, hint)
        })?;
        Self::over(socket, name, deadline)
    }

    /// As [`Self::open`], over a socket that is connected.
    pub(super) fn over(socket: UnixStream, name: &str, deadline: &Deadline) -> Result<(Self, Value)> {
        let peer = PeerProcess::listen(&socket);
        let connection = Self {
            name: name.to_owned(),
            deadline: Mutex::new(Some(deadline.clone())),
            line: Mutex::new(Some(Line { socket: socket.into(), next: 0, peer })),
            line_is_back: Condvar::new(),
            broken: AtomicBool::new(false),
        };
        let capabilities = connection.agree()?;
        Ok((connection, capabilities))
    }

    /// Sets the end of everything that is asked from now on.
    pub(super) fn set_deadline(&self, deadline: Option<Deadline>) {
        *self.deadline.lock().unwrap_or_else(PoisonError::into_inner) = deadline;
    }

    pub(super) fn deadline(&self) -> Option<Deadline> {
        self.deadline.lock().unwrap_or_else(PoisonError::into_inner).clone()
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
        let value: Value =
            serde_json::from_slice(text).map_err(|_| refuse("what it says of its capabilities is no JSON"))?;
        // Anything else than an object has none. (Indexing by `[]` would panic.)
        Ok(value.get("capabilities").cloned().unwrap_or_default())
    }

    /// Sends a command and waits for its reply, [`PATIENCE`] at most and not beyond the deadline.
    ///
    /// # Errors
    ///
    /// What the server says of this command; that the deadline had passed before it was sent; or that the connection is
    /// broken, and then for every later command too.
    pub(super) fn call(&self, command: u16, body: &[&[u8]], fds: &[BorrowedFd<'_>]) -> io::Result<Message> {
        if self.is_broken() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let deadline = match self.deadline() {
            Some(deadline) => deadline.at_most(PATIENCE),
            None => TimeLimit { total: PATIENCE, cancel: None }.begin(),
        };
        let mut line = self.take_line(&deadline)?;
        // Another thread may have found out while this one waited.
        let reply = match self.is_broken() {
            true => Err(io::ErrorKind::NotConnected.into()),
            false => line.exchange(&deadline, command, body, fds),
        };
        let news = reply.is_err() && !self.broken.swap(true, Ordering::Relaxed);
        *self.line() = Some(line);
        self.line_is_back.notify_one();
        let reply = match reply {
            Ok(reply) => reply,
            Err(source) if news => return Err(self.tell(source)),
            Err(source) => return Err(source),
        };
        match reply.header.failure() {
            Some(failure) => Err(failure),
            None => Ok(reply),
        }
    }

    fn line(&self) -> MutexGuard<'_, Option<Line>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The line, when nobody else waits for a reply on it any more.
    fn take_line(&self, deadline: &Deadline) -> io::Result<Line> {
        let mut line = self.line();
        loop {
            let left = deadline.remaining()?;
            if let Some(line) = line.take() {
                return Ok(line);
            }
            line = self.line_is_back.wait_timeout(line, left.min(SLICE)).unwrap_or_else(PoisonError::into_inner).0;
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

    /// Whether the process that answered has ended, so that its mappings are gone, and nobody else holds the connection.
    /// False if that is not known. Takes 200 ms at most.
    pub(super) fn server_ended(&self) -> bool {
        const MOMENT: Duration = Duration::from_millis(200);
        let moment = match self.deadline() {
            Some(deadline) => deadline.at_most(MOMENT),
            None => TimeLimit { total: MOMENT, cancel: None }.begin(),
        };
        self.line().as_ref().is_some_and(|line| line.peer.has_ended(&line.socket, &moment))
    }

    fn fail(&self, source: io::Error) -> io::Error {
        if self.broken.swap(true, Ordering::Relaxed) { source } else { self.tell(source) }
    }

    fn tell(&self, source: io::Error) -> io::Error {
        tracing::warn!("{}: the connection to the device has ended: {source}", self.name);
        source
    }
}

impl Line {
    fn exchange(
        &mut self,
        deadline: &Deadline,
        command: u16,
        body: &[&[u8]],
        fds: &[BorrowedFd<'_>],
    ) -> io::Result<Message> {
        let id = self.next;
        self.next = id.wrapping_add(1);
        let len = body.iter().map(|part| part.len()).sum();
        message::send_by(&self.socket, Some(deadline), Header::command(id, command, len), body, fds)?;
        if self.peer.is_open() {
            deadline.wait_for(self.socket.as_fd(), PollFlags::IN)?;
            self.peer.hear(&self.socket);
        }
        loop {
            let received = message::receive(&self.socket, Some(deadline))?;
            let Some(reply) = received else {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server has closed it"));
            };
            let due = reply.header.is_reply() && command == command::DEVICE_GET_REGION_INFO;
            if !reply.fds.is_empty() && !due {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "descriptors that nobody asked for"));
            }
            if reply.header.is_reply() {
                if (reply.header.id, reply.header.command) == (id, command) {
                    return Ok(reply);
                }
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a reply to something else"));
            }
            // A server without mapped memory would ask for DMA by message; ours always has descriptors.
            if reply.header.wants_reply() {
                let errno = rustix::io::Errno::OPNOTSUPP.raw_os_error();
                message::send_by(&self.socket, Some(deadline), reply.header.error(errno), &[], &[])?;
            }
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // The server sees the end now, whenever the socket is closed.
        let _ = self.socket.shutdown(Shutdown::Both);
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
