//! Messages of the vfio-user protocol: the header, the commands, sending and receiving with file descriptors
//! (`vfio-user.rst`, sections "Header" and "VFIO-user Commands"). Both sides use them: the client in this crate, and
//! the server of the software NIC. All numbers are little endian.

use crate::{BackgroundClose, Deadline};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// Size of a header in bytes.
pub const HEADER: usize = 16;
/// The longest body that is received, in bytes. Headers that announce more are refused before memory is allocated.
pub const MAX_BODY: usize = 1 << 20;
/// The largest number of file descriptors that a message may carry.
pub const MAX_FDS: usize = 16;
/// As many descriptors as the kernel passes at once (unix(7), `SCM_MAX_FD`). Those that find no room it closes itself, however
/// long that takes, while who receives waits.
const MOST_AT_ONCE: usize = 253;
/// The largest number of data bytes in a region read or write that the software NIC's server and the client here
/// accept.
pub const MAX_TRANSFER: u32 = 64 << 10;

/// Command numbers.
pub mod command {
    /// Version and capabilities; the first message of a connection.
    pub const VERSION: u16 = 1;
    /// Gives the device access to memory.
    pub const DMA_MAP: u16 = 2;
    /// Takes access to memory away from the device.
    pub const DMA_UNMAP: u16 = 3;
    /// Numbers of regions and interrupts.
    pub const DEVICE_GET_INFO: u16 = 4;
    /// Size and mappable parts of a region.
    pub const DEVICE_GET_REGION_INFO: u16 = 5;
    /// Number of interrupts of an index.
    pub const DEVICE_GET_IRQ_INFO: u16 = 7;
    /// Connects interrupts to eventfds.
    pub const DEVICE_SET_IRQS: u16 = 8;
    /// Reads a region.
    pub const REGION_READ: u16 = 9;
    /// Writes a region.
    pub const REGION_WRITE: u16 = 10;
    /// Resets the device.
    pub const DEVICE_RESET: u16 = 13;
}

/// Region numbers, which are those of PCI devices in VFIO.
pub mod region {
    /// Base address region 0.
    pub const BAR0: u32 = 0;
    /// Base address region 4.
    pub const BAR4: u32 = 4;
    /// PCI configuration space.
    pub const CONFIG: u32 = 7;
}

/// Flags of `SET_IRQS` (`struct vfio_irq_set`).
pub mod irq {
    /// The command carries no data: the action is on all interrupts of the range.
    pub const DATA_NONE: u32 = 1;
    /// The command carries a byte for each interrupt.
    pub const DATA_BOOL: u32 = 1 << 1;
    /// The command carries an eventfd for each interrupt; without any, it disconnects the range.
    pub const DATA_EVENTFD: u32 = 1 << 2;
    /// The action: fire the interrupts, or connect the eventfds that they fire.
    pub const ACTION_TRIGGER: u32 = 1 << 5;
    /// The index of MSI.
    pub const MSI: u32 = 1;
    /// The index of MSI-X.
    pub const MSIX: u32 = 2;
}

const TYPE: u32 = 0xF;
const REPLY: u32 = 1;
const NO_REPLY: u32 = 1 << 4;
const ERROR: u32 = 1 << 5;

/// The 16-byte header with which every message begins.
///
/// ```
/// use device::vfio_user::message::{Header, command};
///
/// let header = Header::command(7, command::DMA_MAP, 32);
/// assert_eq!(header.to_bytes(), [7, 0, 2, 0, 48, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
/// assert_eq!(header.error(22).to_bytes(), [7, 0, 2, 0, 16, 0, 0, 0, 0x21, 0, 0, 0, 22, 0, 0, 0]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Chosen by the sender of a command, and repeated in the reply.
    pub id: u16,
    /// Number of the command that is sent or replied to ([`command`]).
    pub command: u16,
    /// Size of the message in bytes, header included.
    pub size: u32,
    /// Bits 3:0: type (0 command, 1 reply); bit 4: no reply is wanted; bit 5: error.
    pub flags: u32,
    /// The error number (errno), in error replies.
    pub errno: u32,
}

impl Header {
    /// Creates the header of a command with a body of `body` bytes.
    #[must_use]
    pub fn command(id: u16, command: u16, body: usize) -> Self {
        Self { id, command, size: size(body), flags: 0, errno: 0 }
    }

    /// Returns the header of the same command, with the flag that no reply is wanted.
    #[must_use]
    pub fn posted(self) -> Self {
        Self { flags: self.flags | NO_REPLY, ..self }
    }

    /// Returns the header of the reply to this command, with a body of `body` bytes.
    #[must_use]
    pub fn reply(self, body: usize) -> Self {
        Self { size: size(body), flags: REPLY, errno: 0, ..self }
    }

    /// Returns the header of the reply that this command failed with `errno`.
    #[must_use]
    pub fn error(self, errno: i32) -> Self {
        let errno = u32::try_from(errno).unwrap_or(0).max(1);
        Self { size: size(0), flags: REPLY | ERROR, errno, ..self }
    }

    /// Returns whether it is a reply; every other type counts as a command.
    #[must_use]
    pub fn is_reply(self) -> bool {
        self.flags & TYPE == REPLY
    }

    /// Returns whether it is a command that wants a reply.
    #[must_use]
    pub fn wants_reply(self) -> bool {
        self.flags & (TYPE | NO_REPLY) == 0
    }

    /// Returns the error that an error reply carries; `None` for any other message.
    #[must_use]
    pub fn failure(self) -> Option<io::Error> {
        let errno =
            i32::try_from(self.errno).ok().filter(|errno| *errno > 0).unwrap_or(rustix::io::Errno::IO.raw_os_error());
        (self.flags & ERROR != 0).then(|| io::Error::from_raw_os_error(errno))
    }

    /// Returns the header's bytes, as sent.
    #[must_use]
    pub fn to_bytes(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[0..2].copy_from_slice(&self.id.to_le_bytes());
        bytes[2..4].copy_from_slice(&self.command.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.size.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.flags.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.errno.to_le_bytes());
        bytes
    }

    /// Creates a header from its bytes, as received.
    #[must_use]
    pub fn from_bytes(bytes: [u8; HEADER]) -> Self {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        Self { id: half(0), command: half(2), size: word(4), flags: word(8), errno: word(12) }
    }

    /// Returns the size of the body in bytes; `None` if the size is impossible or more than [`MAX_BODY`].
    #[must_use]
    pub fn body_len(self) -> Option<usize> {
        let len = usize::try_from(self.size).ok()?.checked_sub(HEADER)?;
        (len <= MAX_BODY).then_some(len)
    }
}

fn size(body: usize) -> u32 {
    u32::try_from(HEADER + body).unwrap_or(u32::MAX)
}

/// A message that has been received.
#[derive(Debug)]
pub struct Message {
    /// Its header.
    pub header: Header,
    /// The bytes after the header.
    pub body: Vec<u8>,
    /// The descriptors that came with it.
    pub fds: BackgroundClose<Vec<OwnedFd>>,
}

/// Sends a header, the parts of the body, and descriptors.
///
/// # Errors
///
/// If the connection is broken, or its timeout has passed; then the message is sent only in part.
pub fn send(socket: &UnixStream, header: Header, body: &[&[u8]], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    send_by(socket, None, header, body, fds)
}

/// Sends like [`send`], to a peer that may stop reading: either the peer has taken all of it by the `deadline`, or this
/// is an error.
///
/// # Errors
///
/// If the connection is broken, or the deadline has passed; then the message is sent only in part.
pub fn send_by(
    socket: &UnixStream,
    deadline: Option<&Deadline>,
    header: Header,
    body: &[&[u8]],
    fds: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(HEADER + body.iter().map(|part| part.len()).sum::<usize>());
    bytes.extend_from_slice(&header.to_bytes());
    body.iter().for_each(|part| bytes.extend_from_slice(part));
    let flags = if deadline.is_some() { SendFlags::DONTWAIT } else { SendFlags::empty() };
    let mut rest = bytes.as_slice();
    let mut fds = fds;
    while !rest.is_empty() {
        deadline.map_or(Ok(()), Deadline::check)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many descriptors for one message"));
        }
        match rustix::net::sendmsg(socket, &[IoSlice::new(rest)], &mut control, flags | SendFlags::NOSIGNAL) {
            // Descriptors travel with the first byte.
            Ok(sent) => (rest, fds) = (&rest[sent..], &[]),
            Err(Errno::INTR) => {}
            Err(errno) => wait(socket, deadline, PollFlags::OUT, errno)?,
        }
    }
    Ok(())
}

/// Receives a message; `None` if the other side has ended the connection between two messages. With a `deadline`,
/// either all of the message has arrived by then, or this is an error.
///
/// # Errors
///
/// If the connection breaks or stalls, a header gives an impossible size, or more than [`MAX_FDS`] descriptors arrive.
/// Nothing more can be received after an error.
pub fn receive(socket: &UnixStream, deadline: Option<&Deadline>) -> io::Result<Option<Message>> {
    let mut fds = BackgroundClose::from(Vec::new());
    let received = receive_with(socket, deadline, &mut fds, MOST_AT_ONCE)?;
    Ok(received.map(|(header, body)| Message { header, body, fds }))
}

/// Receives like [`receive`], but adds the descriptors to `fds`, including those that arrived before an error; for
/// callers that close them in their own way. If there are too many, at most [`MAX_FDS`] at a time are accepted by this
/// process; the kernel closes the others, and this function waits for that.
///
/// # Errors
///
/// Those of [`receive`].
pub fn receive_into(
    socket: &UnixStream,
    deadline: Option<&Deadline>,
    fds: &mut Vec<OwnedFd>,
) -> io::Result<Option<(Header, Vec<u8>)>> {
    receive_with(socket, deadline, fds, MAX_FDS)
}

/// As [`receive_into`], with room for `room` descriptors.
fn receive_with(
    socket: &UnixStream,
    deadline: Option<&Deadline>,
    fds: &mut Vec<OwnedFd>,
    room: usize,
) -> io::Result<Option<(Header, Vec<u8>)>> {
    let mut bytes = [0; HEADER];
    if !fill(socket, &mut bytes, (&mut *fds, room), deadline)? {
        return Ok(None);
    }
    let header = Header::from_bytes(bytes);
    let Some(len) = header.body_len() else {
        let text = format!("a message of {} bytes", header.size);
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    };
    let mut body = vec![0; len];
    if len > 0 && !fill(socket, &mut body, (fds, room), deadline)? {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some((header, body)))
}

/// Fills `buffer`; false when the stream ends before its first byte. Each time something comes there is room for so many
/// descriptors.
fn fill(
    socket: &UnixStream,
    buffer: &mut [u8],
    (fds, room): (&mut Vec<OwnedFd>, usize),
    deadline: Option<&Deadline>,
) -> io::Result<bool> {
    let flags = if deadline.is_some() { RecvFlags::DONTWAIT } else { RecvFlags::empty() };
    let mut done = 0;
    while done < buffer.len() {
        deadline.map_or(Ok(()), Deadline::check)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_AT_ONCE))];
        let mut control = RecvAncillaryBuffer::new(&mut space[..rustix::cmsg_space!(ScmRights(room))]);
        let mut parts = [IoSliceMut::new(&mut buffer[done..])];
        let got = match rustix::net::recvmsg(socket, &mut parts, &mut control, flags | RecvFlags::CMSG_CLOEXEC) {
            Ok(got) => got,
            Err(Errno::INTR) => continue,
            Err(errno) => {
                wait(socket, deadline, PollFlags::IN, errno)?;
                continue;
            }
        };
        for part in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = part {
                fds.extend(rights);
            }
        }
        if fds.len() > MAX_FDS || got.flags.contains(ReturnFlags::CTRUNC) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "more descriptors than a message has, or than there is room for",
            ));
        }
        match got.bytes {
            0 if done == 0 => return Ok(false),
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => done += n,
        }
    }
    Ok(true)
}

/// Waits until the socket is ready, if that is all that `errno` says.
fn wait(socket: &UnixStream, deadline: Option<&Deadline>, events: PollFlags, errno: Errno) -> io::Result<()> {
    match (errno, deadline) {
        (Errno::AGAIN, Some(deadline)) => deadline.wait_for(socket.as_fd(), events),
        _ => Err(errno.into()),
    }
}

/// Reads numbers from the front of a body.
///
/// ```
/// use device::vfio_user::message::Fields;
///
/// let mut fields = Fields::new(&[1, 0, 0, 0, 2, 0]);
/// assert_eq!((fields.u32(), fields.u32()), (Some(1), None));
/// ```
#[derive(Clone, Debug)]
pub struct Fields<'b>(&'b [u8]);

impl<'b> Fields<'b> {
    /// Starts at the beginning of `bytes`.
    #[must_use]
    pub fn new(bytes: &'b [u8]) -> Self {
        Self(bytes)
    }

    /// Reads the next 16 bits; `None` if there are not so many left.
    pub fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    /// Reads the next 32 bits; `None` if there are not so many left.
    pub fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    /// Reads the next 64 bits; `None` if there are not so many left.
    pub fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    /// Returns the bytes that have not been read.
    #[must_use]
    pub fn rest(self) -> &'b [u8] {
        self.0
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }
}

/// Returns the little-endian bytes of 32-bit numbers.
#[must_use]
pub fn words<const N: usize>(numbers: [u32; N]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TimeLimit;
    use std::io::Write as _;
    use std::time::Duration;

    #[test]
    fn a_message_and_its_descriptors_arrive_whole_though_sent_in_pieces() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let header = Header::command(1, command::REGION_WRITE, 4);
        let bytes = [&header.to_bytes()[..], &[1, 2, 3, 4]].concat();
        for byte in &bytes[..19] {
            ours.write_all(&[*byte]).unwrap();
        }
        ours.write_all(&bytes[19..]).unwrap();
        let file = tempfile::tempfile().unwrap();
        send(&ours, header.posted(), &[&[5, 6], &[7, 8]], &[file.as_fd(); 3]).unwrap();
        drop(ours);

        let first = receive(&theirs, None).unwrap().unwrap();
        assert_eq!((first.header, first.body, first.fds.len()), (header, vec![1, 2, 3, 4], 0));
        let second = receive(&theirs, None).unwrap().unwrap();
        assert!(!second.header.wants_reply() && !second.header.is_reply());
        assert_eq!((second.body, second.fds.len()), (vec![5, 6, 7, 8], 3));
        assert!(receive(&theirs, None).unwrap().is_none());
    }

    #[test]
    fn impossible_sizes_and_half_messages_are_errors() {
        for size in [0, 15, u32::MAX, 17 + u32::try_from(MAX_BODY).unwrap()] {
            let (mut ours, theirs) = UnixStream::pair().unwrap();
            ours.write_all(&Header { size, ..Header::command(1, 1, 0) }.to_bytes()).unwrap();
            assert_eq!(receive(&theirs, None).unwrap_err().kind(), io::ErrorKind::InvalidData, "{size}");
        }
        for len in [1, 15, 16, 17] {
            let (mut ours, theirs) = UnixStream::pair().unwrap();
            let bytes = [&Header::command(1, 1, 2).to_bytes()[..], &[0]].concat();
            ours.write_all(&bytes[..len]).unwrap();
            drop(ours);
            assert_eq!(receive(&theirs, None).unwrap_err().kind(), io::ErrorKind::UnexpectedEof, "{len}");
        }
    }

    #[test]
    fn a_trickle_and_a_full_socket_end_at_the_deadline() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let deadline = || TimeLimit { total: Duration::from_millis(20), cancel: None }.begin();
        ours.write_all(&[0]).unwrap();
        assert_eq!(receive(&theirs, Some(&deadline())).unwrap_err().kind(), io::ErrorKind::TimedOut);
        let body = vec![0; MAX_BODY];
        let header = Header::command(1, command::REGION_WRITE, body.len());
        let error = send_by(&theirs, Some(&deadline()), header, &[&body], &[]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "nobody reads");
    }
}
