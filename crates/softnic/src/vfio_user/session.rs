//! One client's connection: commands and replies (`vfio-user.rst`, "VFIO-user Commands"). Whatever a client sends costs it
//! its own connection at most.

use super::closer::Closer;
use super::function::{DOORBELL_REGION, Function};
use super::memory::{PAGE, most_mappings};
use super::vectors;
use crate::model::{Doorbells, Model};
use device::vfio_user::message::{self, Fields, Header, MAX_FDS, MAX_TRANSFER, command, words};
use device::{Deadline, TimeLimit};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use serde_json::{Value, json};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;

/// How long a client may take over its first message, over each message that it has begun, and over taking a reply: 5 s each.
fn patience() -> Deadline {
    TimeLimit::default().begin()
}

/// Regions of a PCI function in VFIO, and the indices of its interrupts.
const REGIONS: u32 = 9;
const IRQS: u32 = 5;

const RESET: u32 = 1;
const PCI: u32 = 2;
const READ_WRITE: u32 = 3;
const MMAP: u32 = 4;

/// Serves a client until it goes; `Ok` if it ended the connection properly. What it sends and nobody wants goes to the `closer`.
pub(super) fn serve<'f>(socket: &'f UnixStream, function: &'f mut Function, closer: &Closer) -> io::Result<()> {
    let mut session = Session { function, socket };
    let mut fds = Vec::new();
    let mut outcome = session.begin(&mut fds);
    loop {
        fds.drain(..).for_each(|fd| closer.close(fd));
        if !matches!(outcome, Ok(true)) {
            return outcome.map(drop);
        }
        outcome = session.turn(&mut fds);
    }
}

/// Waits for the next message as long as it takes, and then for its end within bounds.
fn next(socket: &UnixStream, fds: &mut Vec<OwnedFd>) -> io::Result<Option<(Header, Vec<u8>)>> {
    while let Err(errno) = poll(&mut [PollFd::new(socket, PollFlags::IN)], None) {
        if errno != Errno::INTR {
            return Err(errno.into());
        }
    }
    message::receive_into(socket, Some(&patience()), fds)
}

/// Sends a reply, if one is wanted.
fn answer(socket: &UnixStream, header: Header, body: &Result<&[u8], Errno>, fd: Option<OwnedFd>) -> io::Result<()> {
    if !header.wants_reply() {
        return Ok(());
    }
    let fds: Vec<_> = fd.iter().map(OwnedFd::as_fd).collect();
    match body {
        Ok(body) => message::send_by(socket, Some(&patience()), header.reply(body.len()), &[body], &fds),
        Err(errno) => message::send_by(socket, Some(&patience()), header.error(errno.raw_os_error()), &[], &[]),
    }
}

struct Session<'f> {
    function: &'f mut Function,
    socket: &'f UnixStream,
}

/// What a reply carries.
#[derive(Default)]
struct Reply {
    body: Vec<u8>,
    fd: Option<OwnedFd>,
}

impl From<Vec<u8>> for Reply {
    fn from(body: Vec<u8>) -> Self {
        Self { body, fd: None }
    }
}

impl Session<'_> {
    /// The first message and its answer; false when the client has gone. Adds the descriptors to `fds`, and so do others.
    fn begin(&mut self, fds: &mut Vec<OwnedFd>) -> io::Result<bool> {
        let Some((header, body)) = message::receive_into(self.socket, Some(&patience()), fds)? else {
            return Ok(false);
        };
        let reply = self.version(header, &body).map_err(io::Error::from);
        answer(self.socket, header, &reply.as_ref().map(Vec::as_slice).map_err(|_| Errno::INVAL), None)?;
        reply.map(|_| true)
    }

    /// A command and its answer; false when the client has gone. Leaves in `fds` what the command had no use for.
    fn turn(&mut self, fds: &mut Vec<OwnedFd>) -> io::Result<bool> {
        let Some((header, body)) = next(self.socket, fds)? else { return Ok(false) };
        if header.is_reply() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a reply, where nothing was asked"));
        }
        let outcome = self.command(header, &body, fds);
        // What the command made fire comes before its reply.
        self.function.vectors.deliver();
        if let Err(errno) = outcome {
            tracing::debug!("command {} is refused: {errno}", header.command);
        }
        let (body, fd) = match outcome {
            Ok(Reply { body, fd }) => (Ok(body), fd),
            Err(errno) => (Err(errno), None),
        };
        answer(self.socket, header, &body.as_deref().map_err(|errno| *errno), fd)?;
        Ok(true)
    }

    /// VERSION: major, minor (16 bits each), and capabilities as JSON that ends with a zero byte.
    fn version(&mut self, header: Header, body: &[u8]) -> Result<Vec<u8>, Errno> {
        if header.command != command::VERSION || !header.wants_reply() {
            return Err(Errno::INVAL);
        }
        let mut fields = Fields::new(body);
        let (Some(0), Some(_minor)) = (fields.u16(), fields.u16()) else { return Err(Errno::INVAL) };
        let theirs = match fields.rest() {
            [] => Value::Null,
            [text @ .., 0] => serde_json::from_slice(text).map_err(|_| Errno::INVAL)?,
            _ => return Err(Errno::INVAL),
        };
        let mut ours = json!({
            "max_msg_fds": MAX_FDS, "max_data_xfer_size": MAX_TRANSFER, "pgsizes": PAGE, "max_dma_maps": most_mappings(),
        });
        // An extension of ours, which other clients never see.
        if theirs["capabilities"]["doorbells"] == true && self.function.share_doorbells() {
            let areas = Doorbells::layout(self.function.id)
                .into_iter()
                .map(|(first, count, at)| json!({ "first": first, "stride": 64, "count": count, "at": at }))
                .collect::<Vec<_>>();
            ours["doorbells"] = json!({ "region": DOORBELL_REGION, "areas": areas });
        }
        let mut body = vec![0; 4];
        body.extend_from_slice(json!({ "capabilities": ours }).to_string().as_bytes());
        body.push(0);
        Ok(body)
    }

    fn command(&mut self, header: Header, body: &[u8], fds: &mut Vec<OwnedFd>) -> Result<Reply, Errno> {
        match header.command {
            command::DMA_MAP => {
                self.function.memory.map(body, fds, self.socket.as_fd())?;
                self.function.station.with(Model::refresh_memory);
                Ok(Reply::default())
            }
            command::DMA_UNMAP => {
                let unmapped = self.function.memory.unmap(body)?;
                // Returns when a step in progress has ended and the device has let go.
                self.function.station.with(Model::refresh_memory);
                drop(unmapped);
                Ok(body.get(..24).unwrap_or_default().to_vec().into())
            }
            command::DEVICE_GET_INFO => {
                large_enough(body, 16)?;
                Ok(words([16, RESET | PCI, self.regions(), IRQS]).into())
            }
            command::DEVICE_GET_REGION_INFO => self.region_info(body),
            command::DEVICE_GET_IRQ_INFO => {
                let index = large_enough(body, 16)?;
                if index >= IRQS {
                    return Err(Errno::INVAL);
                }
                Ok(words([16, vectors::flags(index), index, vectors::count(self.function.id, index)]).into())
            }
            command::DEVICE_SET_IRQS => self.function.set_irqs(body, fds).map(|()| Reply::default()),
            command::REGION_READ => self.region_read(body),
            command::REGION_WRITE => self.region_write(body),
            command::DEVICE_RESET => {
                self.function.reset();
                Ok(Reply::default())
            }
            command::VERSION => Err(Errno::INVAL),
            _ => Err(Errno::OPNOTSUPP),
        }
    }

    fn regions(&self) -> u32 {
        if self.function.doorbells.is_some() { DOORBELL_REGION + 1 } else { REGIONS }
    }

    /// argsz, flags, index, offset of capabilities (32 bits each), size, offset in the file (64 bits each).
    fn region_info(&self, body: &[u8]) -> Result<Reply, Errno> {
        let index = large_enough(body, 32)?;
        if index >= self.regions() {
            return Err(Errno::INVAL);
        }
        let doorbells = self.function.doorbells.as_ref().and_then(|doorbells| doorbells.fd());
        let (flags, size, fd) = match doorbells {
            Some(fd) if index == DOORBELL_REGION => (
                READ_WRITE | MMAP,
                crate::doorbells::DOORBELLS * crate::doorbells::STRIDE,
                Some(fd.try_clone_to_owned()),
            ),
            _ => {
                let size = self.function.region_size(index);
                (if size > 0 { READ_WRITE } else { 0 }, size, None)
            }
        };
        let fd = fd.transpose().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::MFILE))?;
        let mut body = words([32, flags, index, 0]);
        body.extend_from_slice(&(size as u64).to_le_bytes());
        body.extend_from_slice(&[0; 8]);
        Ok(Reply { body, fd })
    }

    /// Offset (64 bits), region, count (32 bits each); the reply has the data behind them.
    fn region_read(&mut self, body: &[u8]) -> Result<Reply, Errno> {
        let (offset, region, count, _) = transfer(body)?;
        let head = body.get(..16).ok_or(Errno::INVAL)?;
        let mut reply = head.to_vec();
        reply.resize(head.len() + count, 0);
        self.function.read(region, offset, &mut reply[head.len()..])?;
        Ok(reply.into())
    }

    /// As [`Self::region_read`], with the data in the command.
    fn region_write(&mut self, body: &[u8]) -> Result<Reply, Errno> {
        let (offset, region, count, data) = transfer(body)?;
        if data.len() != count {
            return Err(Errno::INVAL);
        }
        self.function.write(region, offset, data)?;
        Ok(body.get(..16).unwrap_or_default().to_vec().into())
    }
}

/// Checks that a query and its argsz have `len` bytes at least, and returns the index in it.
fn large_enough(body: &[u8], len: u32) -> Result<u32, Errno> {
    let mut fields = Fields::new(body);
    let (argsz, _flags, index) = (fields.u32(), fields.u32(), fields.u32());
    if body.len() < len as usize || argsz.is_none_or(|argsz| argsz < len) {
        return Err(Errno::INVAL);
    }
    index.ok_or(Errno::INVAL)
}

/// Offset, region, count and data of a region read or write.
fn transfer(body: &[u8]) -> Result<(u64, u32, usize, &[u8]), Errno> {
    let mut fields = Fields::new(body);
    let (Some(offset), Some(region), Some(count)) = (fields.u64(), fields.u32(), fields.u32()) else {
        return Err(Errno::INVAL);
    };
    if count > MAX_TRANSFER {
        return Err(Errno::INVAL);
    }
    Ok((offset, region, count as usize, fields.rest()))
}
