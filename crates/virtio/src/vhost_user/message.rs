//! Messages of the vhost-user protocol, as the front end sends and receives them (QEMU `docs/interop/vhost-user.rst`,
//! sections "Header" and "Front-end message types"). Numbers are in the byte order of the host.

use device::{BackgroundClose, Deadline};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// Memory regions in a table: what every back end takes.
pub(super) const MOST_REGIONS: usize = 8;

/// A request: its number, and its name for messages to people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request(u32, pub(super) &'static str);

pub(super) const GET_FEATURES: Request = Request(1, "ask for its features (GET_FEATURES)");
pub(super) const SET_FEATURES: Request = Request(2, "agree on features (SET_FEATURES)");
pub(super) const SET_OWNER: Request = Request(3, "take ownership (SET_OWNER)");
pub(super) const SET_MEM_TABLE: Request = Request(5, "share memory (SET_MEM_TABLE)");
pub(super) const SET_VRING_NUM: Request = Request(8, "set a ring's size (SET_VRING_NUM)");
pub(super) const SET_VRING_ADDR: Request = Request(9, "set a ring's addresses (SET_VRING_ADDR)");
pub(super) const SET_VRING_BASE: Request = Request(10, "set a ring's start (SET_VRING_BASE)");
pub(super) const GET_VRING_BASE: Request = Request(11, "stop a ring (GET_VRING_BASE)");
pub(super) const SET_VRING_KICK: Request = Request(12, "start a ring (SET_VRING_KICK)");
pub(super) const SET_VRING_CALL: Request = Request(13, "set a ring's call (SET_VRING_CALL)");
pub(super) const GET_PROTOCOL_FEATURES: Request = Request(15, "ask for protocol features (GET_PROTOCOL_FEATURES)");
pub(super) const SET_PROTOCOL_FEATURES: Request = Request(16, "agree on protocol features (SET_PROTOCOL_FEATURES)");
pub(super) const GET_QUEUE_NUM: Request = Request(17, "ask for its queues (GET_QUEUE_NUM)");
pub(super) const SET_VRING_ENABLE: Request = Request(18, "enable a ring (SET_VRING_ENABLE)");

/// Header flags: version 1, this is a reply, a reply is wanted.
const VERSION: u32 = 1;
const VERSION_MASK: u32 = 3;
const REPLY: u32 = 1 << 2;
const NEED_REPLY: u32 = 1 << 3;
const HEADER: usize = 12;
/// Replies to what this front end asks are numbers of 8 bytes.
const REPLY_BODY: usize = 8;

/// Sends a request with descriptors.
pub(super) fn send(
    socket: &UnixStream,
    request: Request,
    need_reply: bool,
    body: &[u8],
    fds: &[BorrowedFd<'_>],
    deadline: &Deadline,
) -> io::Result<()> {
    let flags = VERSION | if need_reply { NEED_REPLY } else { 0 };
    let size = u32::try_from(body.len()).unwrap_or(u32::MAX);
    let mut bytes: Vec<u8> = [request.0, flags, size].iter().flat_map(|number| number.to_ne_bytes()).collect();
    bytes.extend_from_slice(body);
    let (mut rest, mut fds) = (bytes.as_slice(), fds);
    while !rest.is_empty() {
        deadline.check().map_err(|expired| in_words(expired.into()))?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_REGIONS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many descriptors for one message"));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match rustix::net::sendmsg(socket, &[IoSlice::new(rest)], &mut control, flags) {
            // Descriptors travel with the first byte.
            Ok(sent) => (rest, fds) = (&rest[sent..], &[]),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => deadline.wait_for(socket.as_fd(), PollFlags::OUT).map_err(in_words)?,
            Err(errno) => return Err(in_words(errno.into())),
        }
    }
    Ok(())
}

/// Receives the reply to `request`: a number. Descriptors that come with it end the conversation.
pub(super) fn receive(socket: &UnixStream, request: Request, deadline: &Deadline) -> io::Result<u64> {
    let receive = |buffer: &mut [u8]| fill(socket, buffer, deadline).map_err(in_words);
    let mut header = [0; HEADER];
    receive(&mut header)?;
    let number = |at: usize| u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    if number(4) & VERSION_MASK != VERSION || number(4) & REPLY == 0 {
        return Err(nonsense("its answer is no vhost-user reply"));
    }
    if number(0) != request.0 {
        return Err(nonsense("it answers something else"));
    }
    if number(8) as usize != REPLY_BODY {
        return Err(nonsense("its answer has a length that it cannot have"));
    }
    let mut body = [0; REPLY_BODY];
    receive(&mut body)?;
    Ok(u64::from_ne_bytes(body))
}

fn nonsense(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// Returns the error in the words of a user of the back end.
fn in_words(source: io::Error) -> io::Error {
    let text = match source.kind() {
        io::ErrorKind::TimedOut => format!("no answer: {source}"),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            "it has closed the connection; its log says why".to_owned()
        }
        _ => return source,
    };
    io::Error::new(source.kind(), text)
}

fn fill(socket: &UnixStream, buffer: &mut [u8], deadline: &Deadline) -> io::Result<()> {
    let mut done = 0;
    while done < buffer.len() {
        deadline.check()?;
        // Room for as many descriptors as the kernel passes at once (unix(7), `SCM_MAX_FD`). It would close the others itself,
        // however long that takes.
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut buffer[done..])];
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let got = match rustix::net::recvmsg(socket, &mut parts, &mut control, flags) {
            Ok(got) => got,
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => {
                deadline.wait_for(socket.as_fd(), PollFlags::IN)?;
                continue;
            }
            Err(errno) => return Err(errno.into()),
        };
        let mut fds = BackgroundClose::from(Vec::<OwnedFd>::new());
        for part in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = part {
                fds.extend(rights);
            }
        }
        if !fds.is_empty() {
            return Err(nonsense("it sends descriptors that nobody asked for"));
        }
        match got.bytes {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => done += n,
        }
    }
    Ok(())
}

/// Returns numbers of 32 bits as the body of a message.
pub(super) fn words<const N: usize>(numbers: [u32; N]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

/// Returns numbers of 64 bits as the body of a message.
pub(super) fn longs<const N: usize>(numbers: [u64; N]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}
