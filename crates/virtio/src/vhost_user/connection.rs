//! The conversation with one back end, from the first message to the last.

use super::message::{self, Request};
use crate::transport::QueueSetup;
use device::{BackgroundClose, Deadline, DmaMemory, EventFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::RecvFlags;
use std::cell::Cell;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

/// Bit 30 of the feature bits: there are protocol features, and rings are enabled one by one.
const PROTOCOL_FEATURES: u64 = 1 << 30;
/// Protocol features: several queues; a reply to any request that asks for one.
const MQ: u64 = 1 << 0;
const REPLY_ACK: u64 = 1 << 3;
/// `VHOST_VRING_IDX` may be one of as many: the field is a byte.
const MOST_PAIRS: u64 = 128;
/// First place of a packed ring: index 0 and wrap counter 1, for available and for used.
const PACKED_BASE: u32 = 0x8000_8000;
/// A back end that does not stop its rings may still notice that nobody is here any more, and go.
const FAREWELL: Duration = Duration::from_secs(1);

/// A memory region as a back end sees it.
#[derive(Clone, Debug)]
pub(super) struct Region {
    pub(super) iova: u64,
    pub(super) memory: Arc<DmaMemory>,
}

/// A step of the conversation that failed.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) step: &'static str,
    pub(super) source: io::Error,
}

type Result<T> = std::result::Result<T, Failure>;

/// A connection to a back end.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) socket: Arc<BackgroundClose<UnixStream>>,
    offered: u64,
    reply_ack: bool,
    /// Pairs of queues that the back end has.
    pub(super) pairs: u16,
    queues: Vec<Queue>,
    pub(super) running: bool,
    /// A conversation was broken off: what comes next may be an answer to what was asked before.
    pub(super) broken: Cell<bool>,
}

/// A ring as the back end is told of it.
#[derive(Debug)]
struct Queue {
    index: u16,
    setup: QueueSetup,
    kick: Arc<EventFd>,
    call: Arc<EventFd>,
}

impl Connection {
    /// Takes ownership of the back end and asks what it can do.
    pub(super) fn open(socket: UnixStream, deadline: &Deadline) -> Result<Self> {
        let mut connection = Self {
            socket: Arc::new(socket.into()),
            offered: 0,
            reply_ack: false,
            pairs: 1,
            queues: Vec::new(),
            running: false,
            broken: Cell::new(false),
        };
        connection.command(message::SET_OWNER, &[], &[], deadline)?;
        connection.offered = connection.query(message::GET_FEATURES, &[], deadline)?;
        if connection.offered & PROTOCOL_FEATURES != 0 {
            let chosen = connection.query(message::GET_PROTOCOL_FEATURES, &[], deadline)? & (MQ | REPLY_ACK);
            connection.command(message::SET_PROTOCOL_FEATURES, &message::longs([chosen]), &[], deadline)?;
            connection.reply_ack = chosen & REPLY_ACK != 0;
            if chosen & MQ != 0 {
                let pairs = connection.query(message::GET_QUEUE_NUM, &[], deadline)?.clamp(1, MOST_PAIRS);
                connection.pairs = u16::try_from(pairs).unwrap_or(1);
            }
        }
        Ok(connection)
    }

    /// The features that the back end offers.
    pub(super) fn features(&self) -> u64 {
        self.offered & !PROTOCOL_FEATURES
    }

    pub(super) fn set_features(&mut self, features: u64, deadline: &Deadline) -> Result<()> {
        let features = features | self.offered & PROTOCOL_FEATURES;
        self.command(message::SET_FEATURES, &message::longs([features]), &[], deadline)
    }

    /// Records where a ring is, and what its interrupts signal.
    pub(super) fn add_queue(&mut self, index: u16, setup: &QueueSetup, kick: &Arc<EventFd>, call: Arc<EventFd>) {
        self.queues.push(Queue { index, setup: *setup, kick: Arc::clone(kick), call });
    }

    /// Shares memory and starts all rings.
    pub(super) fn start(&mut self, regions: &[Region], deadline: &Deadline) -> Result<()> {
        self.share(regions, deadline)?;
        // From here on the back end may reach memory, even if a later step fails.
        self.running = true;
        for queue in &self.queues {
            let (index, setup) = (u32::from(queue.index), &queue.setup);
            let base = if setup.packed { PACKED_BASE } else { 0 };
            self.command(message::SET_VRING_NUM, &message::words([index, setup.size.into()]), &[], deadline)?;
            self.command(message::SET_VRING_BASE, &message::words([index, base]), &[], deadline)?;
            let mut addresses = message::words([index, 0]);
            addresses.extend(message::longs([setup.descriptors, setup.device, setup.driver, 0]));
            self.command(message::SET_VRING_ADDR, &addresses, &[], deadline)?;
            let index = message::longs([queue.index.into()]);
            self.command(message::SET_VRING_CALL, &index, &[queue.call.as_fd()], deadline)?;
            self.command(message::SET_VRING_KICK, &index, &[queue.kick.as_fd()], deadline)?;
        }
        if self.offered & PROTOCOL_FEATURES != 0 {
            for queue in &self.queues {
                self.command(message::SET_VRING_ENABLE, &message::words([queue.index.into(), 1]), &[], deadline)?;
            }
        }
        // A back end that does not acknowledge closes the connection when it is not content: this would show it.
        self.query(message::GET_FEATURES, &[], deadline).map(drop)
    }

    /// Sends the table of all memory.
    pub(super) fn share(&self, regions: &[Region], deadline: &Deadline) -> Result<()> {
        let mut body = message::words([u32::try_from(regions.len()).unwrap_or(u32::MAX), 0]);
        let mut fds = Vec::with_capacity(regions.len());
        for Region { iova, memory } in regions {
            // SAFETY: it goes to the back end alone, which somebody has vouched for.
            let Some(fd) = (unsafe { memory.fd() }) else {
                let source = io::Error::new(io::ErrorKind::Unsupported, "memory without a descriptor");
                return Err(Failure { step: message::SET_MEM_TABLE.1, source });
            };
            // The back end's addresses are neither ours nor physical: they say nothing about this process.
            body.extend(message::longs([*iova, memory.len() as u64, *iova, 0]));
            fds.push(fd);
        }
        self.command(message::SET_MEM_TABLE, &body, &fds, deadline)
    }

    /// Stops all rings: the back end answers when it has done with them. Returns whether there is a sign that it reaches
    /// memory no more: it said so, or nobody holds the other end of the connection any more. That a process has ended would
    /// be none: it may have handed the connection to another one. (A process that ends gives up its memory first, and then
    /// its connections.)
    pub(super) fn stop(&mut self, deadline: &Deadline) -> bool {
        if !self.running {
            return true;
        }
        let half = deadline.remaining().unwrap_or_default() / 2;
        if self.is_closed() || self.stop_rings(&deadline.at_most(half)).is_ok() {
            self.running = false;
        } else {
            let _ = self.socket.shutdown(Shutdown::Write);
            self.running = !self.closes_within(&deadline.at_most(FAREWELL));
        }
        !self.running
    }

    fn stop_rings(&self, deadline: &Deadline) -> Result<()> {
        for queue in &self.queues {
            let index = u32::from(queue.index);
            if self.offered & PROTOCOL_FEATURES != 0 {
                self.command(message::SET_VRING_ENABLE, &message::words([index, 0]), &[], deadline)?;
            }
            let answer = self.query(message::GET_VRING_BASE, &message::words([index, 0]), deadline)?.to_ne_bytes();
            if answer[..4] != index.to_ne_bytes() {
                let source = io::Error::new(io::ErrorKind::InvalidData, "it answers for another ring");
                return Err(Failure { step: message::GET_VRING_BASE.1, source });
            }
        }
        Ok(())
    }

    /// Returns whether the back end has closed the connection.
    pub(super) fn is_closed(&self) -> bool {
        let mut byte = [0; 1];
        let ended = match rustix::net::recv(&*self.socket, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Ok((_, received)) => received == 0,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => false,
            Err(_) => true,
        };
        // What it said last may lie unread in front of the end.
        let mut fds = [PollFd::new(&*self.socket, PollFlags::empty())];
        let hung_up = poll(&mut fds, Some(&Timespec::default())).is_ok() && fds[0].revents().contains(PollFlags::HUP);
        ended || hung_up
    }

    /// Returns whether data has come that nobody asked for. (Out-of-band bytes are seen by poll only.)
    pub(super) fn has_unexpected_data(&self) -> bool {
        let readable = PollFlags::IN | PollFlags::PRI;
        let mut fds = [PollFd::new(&*self.socket, readable)];
        poll(&mut fds, Some(&Timespec::default())).is_ok() && fds[0].revents().intersects(readable)
    }

    fn closes_within(&self, deadline: &Deadline) -> bool {
        while !self.is_closed() {
            if deadline.sleep(Duration::from_millis(5)).is_err() {
                return false;
            }
        }
        true
    }

    /// Sends a request, and waits for the acknowledgement if the back end gives one.
    fn command(&self, request: Request, body: &[u8], fds: &[BorrowedFd<'_>], deadline: &Deadline) -> Result<()> {
        let sent = message::send(&self.socket, request, self.reply_ack, body, fds, deadline);
        let answer =
            sent.and_then(|()| if self.reply_ack { message::receive(&self.socket, request, deadline) } else { Ok(0) });
        match self.checked(request, answer)? {
            0 => Ok(()),
            _ => Err(Failure { step: request.1, source: io::Error::other("it refuses; its log says why") }),
        }
    }

    /// Sends a request and returns its answer.
    fn query(&self, request: Request, body: &[u8], deadline: &Deadline) -> Result<u64> {
        let sent = message::send(&self.socket, request, false, body, &[], deadline);
        self.checked(request, sent.and_then(|()| message::receive(&self.socket, request, deadline)))
    }

    /// Returns the answer. Without one, nothing more can be asked on this connection.
    fn checked(&self, request: Request, answer: io::Result<u64>) -> Result<u64> {
        answer.map_err(|source| {
            self.broken.set(true);
            Failure { step: request.1, source }
        })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // The back end sees the end now, whenever the socket is closed.
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

/// Waits at most for `limit` until a descriptor is readable or hung up.
pub(super) fn is_ready(fd: BorrowedFd<'_>, limit: Duration) -> bool {
    let limit = Timespec { tv_sec: limit.as_secs().cast_signed(), tv_nsec: limit.subsec_nanos().into() };
    poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&limit)).is_ok_and(|ready| ready == 1)
}
