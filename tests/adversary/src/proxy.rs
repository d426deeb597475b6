//! A hostile vfio-user server: a real software NIC's, with a liar between it and its client.

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use softnic::VfioUserServer;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const DMA_MAP: u16 = 2;
const DMA_UNMAP: u16 = 3;
const GET_REGION_INFO: u16 = 5;
const REGION_WRITE: u16 = 10;
const DEVICE_RESET: u16 = 13;

/// What the server does from now on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lie {
    /// It is honest.
    #[default]
    None,
    /// It maps no more memory.
    RefusesMap,
    /// It does not let go of memory.
    RefusesUnmap,
    /// It neither stops nor lets go.
    RefusesReset,
    /// Its registers lie at an odd place of a file.
    Misaligned,
    /// It does what it is asked, and takes this long for each answer.
    Slow(Duration),
}

/// Memory that the client gave to the server.
#[derive(Debug)]
pub struct Mapping {
    file: File,
    offset: u64,
    iova: u64,
    size: u64,
}

#[derive(Debug, Default)]
struct State {
    lie: Lie,
    memory: Vec<Arc<Mapping>>,
    ring: [u32; 2],
    /// Messages of the client so far.
    asked: usize,
}

/// The server. It ends with this value.
#[derive(Debug)]
pub struct Proxy {
    state: Arc<Mutex<State>>,
    socket: PathBuf,
    _server: VfioUserServer,
    _folder: tempfile::TempDir,
}

impl Proxy {
    /// A software NIC of this specification, for one client.
    ///
    /// # Panics
    ///
    /// When sockets cannot be made.
    #[must_use]
    pub fn start(spec: &str, lie: Lie) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let honest = folder.path().join("honest");
        let socket = folder.path().join("socket");
        let server = VfioUserServer::start(spec, &honest).expect("a server");
        let listener = UnixListener::bind(&socket).expect("a socket");
        let state = Arc::new(Mutex::new(State { lie, ..State::default() }));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            let Ok((client, _)) = listener.accept() else { return };
            let Ok(server) = UnixStream::connect(honest) else { return };
            // Ends when either side hangs up.
            let _ = serve(&client, &server, &shared);
        });
        Self { state, socket, _server: server, _folder: folder }
    }

    /// What it is opened by.
    #[must_use]
    pub fn address(&self) -> nic::Address {
        format!("vfio-user:{}", self.socket.display()).parse().expect("an address")
    }

    /// Changes what it lies about.
    pub fn lie(&self, lie: Lie) {
        self.state.lock().expect("the proxy lives").lie = lie;
    }

    /// How many messages it has been sent.
    #[must_use]
    pub fn asked(&self) -> usize {
        self.state.lock().expect("the proxy lives").asked
    }

    /// The memory that the first receive ring lies in, and the ring's offset in it.
    #[must_use]
    pub fn receive_ring(&self) -> Option<(Arc<Mapping>, u64)> {
        let state = self.state.lock().expect("the proxy lives");
        let iova = u64::from(state.ring[0]) | u64::from(state.ring[1]) << 32;
        let inside = |memory: &&Arc<Mapping>| (memory.iova..memory.iova + memory.size).contains(&iova);
        let memory = state.memory.iter().find(inside)?;
        Some((Arc::clone(memory), iova - memory.iova))
    }
}

impl Mapping {
    /// Writes a word as the device would.
    pub fn write(&self, at: u64, word: u64) {
        self.file.write_all_at(&word.to_le_bytes(), self.offset + at).expect("shared memory");
    }

    /// Reads a word.
    #[must_use]
    pub fn read(&self, at: u64) -> u64 {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, self.offset + at).expect("shared memory");
        u64::from_le_bytes(bytes)
    }
}

/// A message: the 16 bytes of its header, what follows, and the descriptors that came along.
struct Message {
    header: [u8; 16],
    body: Vec<u8>,
    fds: Vec<OwnedFd>,
}

impl Message {
    fn command(&self) -> u16 {
        u16::from_le_bytes([self.header[2], self.header[3]])
    }

    fn u32(&self, at: usize) -> u32 {
        self.body.get(at..at + 4).map_or(0, |bytes| u32::from_le_bytes(bytes.try_into().expect("four")))
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from(self.u32(at)) | u64::from(self.u32(at + 4)) << 32
    }

    fn receive(mut socket: &UnixStream) -> io::Result<Self> {
        let mut header = [0; 16];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let first =
            rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut header)], &mut control, RecvFlags::CMSG_CLOEXEC)?
                .bytes;
        if first == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let fds = control
            .drain()
            .filter_map(|message| if let RecvAncillaryMessage::ScmRights(fds) = message { Some(fds) } else { None })
            .flatten()
            .collect();
        socket.read_exact(&mut header[first..])?;
        let size = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
        let mut body = vec![0; (size as usize).saturating_sub(16)];
        socket.read_exact(&mut body)?;
        Ok(Self { header, body, fds })
    }

    fn send(&self, mut socket: &UnixStream) -> io::Result<()> {
        let fds: Vec<_> = self.fds.iter().map(OwnedFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(&fds)), "there is room");
        }
        let sent = rustix::net::sendmsg(socket, &[IoSlice::new(&self.header)], &mut control, SendFlags::NOSIGNAL)?;
        socket.write_all(&self.header[sent..])?;
        socket.write_all(&self.body)
    }

    /// An error reply: EIO.
    fn refuse(&self, client: &UnixStream) -> io::Result<()> {
        let mut header = self.header;
        header[4..].copy_from_slice(&[16, 0, 0, 0, 0x21, 0, 0, 0, 5, 0, 0, 0]);
        Self { header, body: Vec::new(), fds: Vec::new() }.send(client)
    }
}

fn serve(client: &UnixStream, server: &UnixStream, state: &Mutex<State>) -> io::Result<()> {
    loop {
        let message = Message::receive(client)?;
        let lie = {
            let mut state = state.lock().expect("nothing panics with it");
            note(&mut state, &message)?;
            state.lie
        };
        let command = message.command();
        // The command register of configuration space, by which a device is stopped.
        let stops = command == DEVICE_RESET || command == REGION_WRITE && message.u32(8) == 7;
        let refused = match lie {
            Lie::RefusesMap => command == DMA_MAP,
            Lie::RefusesUnmap => command == DMA_UNMAP,
            Lie::RefusesReset => command == DMA_UNMAP || stops,
            Lie::None | Lie::Misaligned | Lie::Slow(_) => false,
        };
        if refused {
            message.refuse(client)?;
            continue;
        }
        let wants_reply = message.header[8] & 1 << 4 == 0;
        let asks_for_registers = command == GET_REGION_INFO && message.u32(8) == 0;
        message.send(server)?;
        if wants_reply {
            let mut reply = Message::receive(server)?;
            if lie == Lie::Misaligned && asks_for_registers {
                misalign(&mut reply)?;
            }
            if let Lie::Slow(time) = lie {
                std::thread::sleep(time);
            }
            reply.send(client)?;
        }
    }
}

/// Remembers memory and where the first receive ring is.
fn note(state: &mut State, message: &Message) -> io::Result<()> {
    state.asked += 1;
    match message.command() {
        DMA_MAP => {
            if let Some(fd) = message.fds.first() {
                let file = File::from(fd.try_clone()?);
                let (offset, iova, size) = (message.u64(8), message.u64(16), message.u64(24));
                state.memory.push(Arc::new(Mapping { file, offset, iova, size }));
            }
        }
        // RDBAL and RDBAH of queue 0.
        REGION_WRITE if message.u32(8) == 0 => match message.u64(0) {
            0x1000 => state.ring[0] = message.u32(16),
            0x1004 => state.ring[1] = message.u32(16),
            _ => {}
        },
        _ => {}
    }
    Ok(())
}

/// `struct vfio_region_info` with all of the region in a file, at offset 2.
fn misalign(reply: &mut Message) -> io::Result<()> {
    let size = reply.u64(16);
    let file = File::from(rustix::fs::memfd_create("registers", rustix::fs::MemfdFlags::CLOEXEC)?);
    file.set_len(size + 4096)?;
    let words = [32, 7, 0, 0].map(u32::to_le_bytes);
    reply.body = words.concat();
    reply.body.extend(size.to_le_bytes());
    reply.body.extend(2u64.to_le_bytes());
    reply.header[4..8].copy_from_slice(&48u32.to_le_bytes());
    reply.fds = vec![file.into()];
    Ok(())
}
