//! A vfio-user client that says whatever the input says, descriptors included. The software NIC's server neither panics nor
//! hangs, and serves the next client.

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use softnic::VfioUserServer;
use std::io::{ErrorKind, IoSlice, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

/// Most messages of an input: what is behind them says nothing new.
const MESSAGES: usize = 64;
/// A server that takes longer than this hangs, however slow the machine is.
const LIMIT: Duration = Duration::from_secs(60);

/// A server, and what is sent to it as descriptors: memory, an eventfd, a pipe's end, a directory.
struct Stage {
    server: VfioUserServer,
    gifts: [OwnedFd; 4],
    _folder: TempDir,
}

impl Stage {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let name = format!("fuzz-{:?}?wire=loop", std::thread::current().id());
        let server = VfioUserServer::start(&name, &folder.path().join("a")).expect("a server");
        let memory = memfd_create("fuzz", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("memory");
        ftruncate(&memory, 1 << 20).expect("memory");
        fcntl_add_seals(&memory, SealFlags::SHRINK).expect("a seal");
        let gifts = [
            memory,
            eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd"),
            rustix::pipe::pipe().expect("a pipe").1,
            std::fs::File::open(folder.path()).expect("the folder").into(),
        ];
        Self { server, gifts, _folder: folder }
    }
}

/// Runs one input: a byte that chooses how the client begins, then messages.
pub fn run(input: &[u8]) {
    thread_local! {
        static STAGE: Stage = Stage::new();
    }
    STAGE.with(|stage| {
        let Some((first, mut rest)) = input.split_first() else { return };
        let client = connect(stage.server.socket());
        let mut speech = Speech { client: &client, gifts: &stage.gifts, open: true };
        if first & 1 == 0 {
            let doorbells = first & 2 != 0;
            speech.say(&version(doorbells), &[]);
            // Memory decoding and bus mastering on.
            speech.say(&message(10, 0, &access(4, 7, 2, &[6, 0])), &[]);
        }
        for _ in 0..MESSAGES {
            let Some((kind, more)) = rest.split_first() else { break };
            rest = speech.part(*kind, more);
        }
        let _ = client.shutdown(Shutdown::Write);
        let mut replies = Vec::new();
        if let Err(error) = (&client).read_to_end(&mut replies) {
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "the server hangs: {error}");
        }
        drop(client);
        // The next client is a good one: it is greeted, and resets the device.
        let next = connect(stage.server.socket());
        (&next).write_all(&[version(false), message(13, 0, &[])].concat()).expect("the server takes another client");
        let _ = next.shutdown(Shutdown::Write);
        let mut replies = Vec::new();
        (&next).read_to_end(&mut replies).expect("the server answers");
        assert_eq!(replies[replies.len() - 16..], [0, 0, 13, 0, 16, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(replies[8], 1, "VERSION is agreed on");
    });
}

fn connect(path: &Path) -> UnixStream {
    let client = UnixStream::connect(path).expect("the server listens");
    client.set_read_timeout(Some(LIMIT)).expect("a socket");
    client.set_write_timeout(Some(LIMIT)).expect("a socket");
    client
}

/// A message with id 0.
fn message(command: u8, flags: u8, body: &[u8]) -> Vec<u8> {
    let size = u32::try_from(16 + body.len()).unwrap_or(0).to_le_bytes();
    [&[0, 0, command, 0][..], &size, &[flags, 0, 0, 0, 0, 0, 0, 0], body].concat()
}

fn version(doorbells: bool) -> Vec<u8> {
    let text = format!("{{\"capabilities\":{{\"doorbells\":{doorbells}}}}}\0");
    message(1, 0, &[&[0; 4], text.as_bytes()].concat())
}

/// The body of a region read or write.
fn access(offset: u64, region: u32, count: u32, data: &[u8]) -> Vec<u8> {
    [&offset.to_le_bytes()[..], &region.to_le_bytes(), &count.to_le_bytes(), data].concat()
}

struct Speech<'s> {
    client: &'s UnixStream,
    gifts: &'s [OwnedFd; 4],
    open: bool,
}

impl Speech<'_> {
    /// Says one message that `kind` and the first bytes of `input` make; returns the bytes after them.
    fn part<'i>(&mut self, kind: u8, input: &'i [u8]) -> &'i [u8] {
        let flags = kind & 0x10;
        let byte = |at: usize| input.get(at).copied().unwrap_or(0);
        let word = |at: usize| u32::from_le_bytes([byte(at), byte(at + 1), byte(at + 2), byte(at + 3)]);
        let (used, bytes, gifts) = match kind & 7 {
            // Bytes as they are.
            0 => {
                let len = usize::from(byte(0)).min(input.len().saturating_sub(1));
                (1 + len, input.get(1..1 + len).unwrap_or_default().to_vec(), 0)
            }
            // A message of any command with any body, and descriptors.
            1 => {
                let len = usize::from(byte(1) & 0x3F).min(input.len().saturating_sub(3));
                (3 + len, message(byte(0) % 20, flags, input.get(3..3 + len).unwrap_or_default()), byte(2))
            }
            // A register.
            2 | 3 => {
                let offset = u64::from(word(0) & 0x7FFF) * 4;
                (6, message(10, flags, &access(offset, 0, 4, &word(2).to_le_bytes())), 0)
            }
            // A read, sometimes beyond the end.
            4 => {
                let region = [0, 0, 4, 7, 7, 9, 1, 255][usize::from(byte(2) & 7)];
                (4, message(9, flags, &access((word(0) & 0xFFFF).into(), region, byte(3).into(), &[])), 0)
            }
            // Memory: offset, address and size in pages.
            5 => {
                let page = |at: usize| u64::from(byte(at)) << 12;
                let (offset, iova, size) = (page(1), page(2), page(3));
                let body = [32_u64 | u64::from(byte(0) & 3) << 32, offset, iova, size].map(u64::to_le_bytes).concat();
                (4, message(2, flags, &body), 1)
            }
            6 => {
                let (iova, size) = (u64::from(byte(1)) << 12, u64::from(byte(2)) << 12);
                let body = [24_u64 | u64::from(byte(0) & 2) << 32, iova, size].map(u64::to_le_bytes).concat();
                (3, message(3, flags, &body), 0)
            }
            // Interrupts: flags, index, start, count.
            _ => {
                let words = [20, u32::from(byte(0) & 0x3F), u32::from(byte(1) % 6), byte(2).into(), byte(3).into()];
                (5, message(8, flags, &words.map(u32::to_le_bytes).concat()), 0x10 | byte(4))
            }
        };
        let which = usize::from(gifts >> 4);
        let fds: Vec<_> =
            self.gifts.iter().cycle().skip(which).take((gifts & 0xF).into()).map(OwnedFd::as_fd).collect();
        self.say(&bytes, &fds);
        &input[used.min(input.len())..]
    }

    /// Sends bytes, and descriptors with the first. A server that has heard enough closes, and then nothing is sent any more.
    fn say(&mut self, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
        if !self.open || bytes.is_empty() {
            return;
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(fds.is_empty() || control.push(SendAncillaryMessage::ScmRights(fds)));
        let sent = sendmsg(self.client, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL);
        self.open = sent.is_ok_and(|sent| sent == bytes.len());
    }
}
