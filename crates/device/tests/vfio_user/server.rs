//! A server that answers as it should, with one thing about it that can be otherwise.
#![expect(unsafe_code, reason = "the word for a server of its own")]

use device::vfio_user::message::{self, Header, Message, command, words};
use device::{TimeLimit, TrustedPeer, VfioUserDevice};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use std::io::{IoSlice, Write as _};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::time::Duration;

/// Bytes of registers.
pub(crate) const SIZE: u64 = 0x2000;

/// The registers' value by messages.
pub(crate) const BY_MESSAGE: u32 = 0x0060_D0CA;

/// What it says.
pub(crate) struct Server {
    pub(crate) version: &'static [u8],
    /// Size, offset in the file, and an area of the register region, which can be mapped if there is a file.
    pub(crate) region: (u64, u64, Option<(u64, u64)>),
    pub(crate) file: Option<OwnedFd>,
    /// The command register of configuration space.
    pub(crate) command: [u8; 2],
}

impl Default for Server {
    fn default() -> Self {
        Self { version: b"{\"capabilities\":{}}", region: (SIZE, 0, None), file: None, command: [0; 2] }
    }
}

impl Server {
    /// Answers until the client goes.
    pub(crate) fn serve_all(self, socket: &UnixStream) {
        self.serve(socket, |_| true);
    }

    /// Answers until the client goes, or `before` says no to a message; how many messages were answered.
    pub(crate) fn serve(mut self, socket: &UnixStream, mut before: impl FnMut(&Message) -> bool) -> usize {
        let mut answered = 0;
        while let Ok(Some(asked)) = message::receive(socket, None) {
            if !before(&asked) {
                break;
            }
            let body = self.answer(&asked);
            let shares = asked.header.command == command::DEVICE_GET_REGION_INFO;
            let fds: Vec<_> = self.file.iter().filter(|_| shares).map(|file| file.as_fd()).collect();
            if message::send(socket, asked.header.reply(body.len()), &[&body], &fds).is_err() {
                break;
            }
            answered += 1;
        }
        answered
    }

    fn answer(&mut self, asked: &Message) -> Vec<u8> {
        let field =
            |at: usize| asked.body.get(at..at + 4).map_or(0, |bytes| u32::from_le_bytes(bytes.try_into().unwrap()));
        match asked.header.command {
            command::VERSION => [&[0; 4], self.version, &[0]].concat(),
            command::DEVICE_GET_INFO => words([16, 3, 9, 5]),
            command::DEVICE_GET_REGION_INFO => {
                let (size, offset, area) = self.region;
                let flags = 3 | u32::from(self.file.is_some()) << 2 | u32::from(area.is_some()) << 3;
                let mut body = words([32, flags, 0, 32 * u32::from(area.is_some())]);
                [size, offset].iter().for_each(|number| body.extend(number.to_le_bytes()));
                if let Some((start, len)) = area {
                    body.extend(words([1 | 1 << 16, 0, 1, 0]));
                    [start, len].iter().for_each(|number| body.extend(number.to_le_bytes()));
                }
                body
            }
            command::REGION_READ => {
                let value = match (field(8), field(0)) {
                    (7, 0) => vec![0x86, 0x80, 0xfb, 0x10],
                    (7, 4) => self.command.to_vec(),
                    (7, 8) => vec![1, 0, 0, 2],
                    _ => BY_MESSAGE.to_le_bytes().to_vec(),
                };
                [&asked.body[..16], &value].concat()
            }
            command::REGION_WRITE => {
                if (field(8), field(0)) == (7, 4) {
                    self.command.copy_from_slice(&asked.body[16..18]);
                }
                asked.body[..16].to_vec()
            }
            command::DEVICE_GET_IRQ_INFO => words([16, 1, 2, 64]),
            _ => Vec::new(),
        }
    }
}

pub(crate) fn peer() -> TrustedPeer {
    // SAFETY: no server of these tests writes to memory that it is given.
    unsafe { TrustedPeer::vouched_for() }
}

pub(crate) fn limit(total: Duration) -> TimeLimit {
    TimeLimit { total, cancel: None }
}

/// More than any test takes, on any machine.
pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// Opens a device over a pair of sockets, whose other end `serve` gets.
pub(crate) fn open(
    limit: &TimeLimit,
    serve: impl FnOnce(UnixStream) + Send + 'static,
) -> (device::Result<VfioUserDevice>, std::thread::JoinHandle<()>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let server = std::thread::spawn(move || serve(theirs));
    (VfioUserDevice::over(ours, peer(), &limit.begin()), server)
}

/// A socket whose close takes an hour, as what was sent on it is never read; the other end goes with the second value.
pub(crate) fn lingering() -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    socket.set_nonblocking(true).unwrap();
    while (&socket).write(&[0; 1 << 16]).is_ok() {}
    rustix::net::sockopt::set_socket_linger(&socket, Some(HOUR)).unwrap();
    (socket.into(), listener.accept().unwrap().0)
}

/// Sends a header with more descriptors than a message may have.
pub(crate) fn send_many(socket: &UnixStream, header: Header, fds: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
    let bytes = header.to_bytes();
    rustix::net::sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL).unwrap();
}

/// What `work` returns, which must not take an hour.
pub(crate) fn soon<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, wait) = mpsc::channel();
    std::thread::spawn(move || done.send(work()));
    wait.recv_timeout(Duration::from_secs(60)).unwrap()
}
