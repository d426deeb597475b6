//! The third face of the model: a device for other processes, on a Unix socket (QEMU `docs/interop/vfio-user.rst`).

mod accept;
mod closer;
mod config_space;
#[expect(unsafe_code, reason = "the handler of a signal")]
mod fault;
mod function;
#[expect(unsafe_code, reason = "memory that a client may change")]
mod memory;
mod seldom;
mod session;
mod trigger;
mod vectors;

use crate::Error;
use crate::engine::{self, Station};
use crate::soft::{self, SoftControl};
use crate::spec::Spec;
use accept::Door;
use device::SocketFile;
use function::Function;
use memory::{ClientMemory, Share};
use rustix::io::Errno;
use std::convert::Infallible;
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use vectors::Vectors;

/// A software 82599 that serves clients on a Unix socket, one at a time: Ringway's driver through
/// [`device::VfioUserDevice`], or QEMU with `-device '{"driver":"vfio-user-pci","socket":{"type":"unix","path":"…"}}'`.
///
/// When a client disconnects, properly or not, the device is reset and has released the client's memory before the next
/// client is served. A client that connects while another is served is refused at once (`EBUSY`). Dropping the value
/// ends the service and removes the socket.
///
/// A client can harm only its own device. It may have 16,384 mappings (with more than three devices in the process, an
/// equal share of 49,152) of 64 GiB in total, in memfds that it has sealed against shrinking; it must finish each
/// message it has begun, and take each reply, within 5 s; its eventfds are signalled without waiting. A client that
/// breaks these rules loses its connection, with one line in the log, at most one a second. Descriptors that were not
/// asked for are closed by threads of their own, 16 at a time; a client that sends more than 16 that are slow to close
/// (sockets that linger, files of a file system of its own) delays its own device until they are closed, and the end of
/// the service for a second.
///
/// ```
/// use device::{Bar as _, Device as _, TimeLimit, TrustedPeer, VfioUserDevice};
/// use softnic::VfioUserServer;
///
/// let folder = tempfile::tempdir()?;
/// let server = VfioUserServer::start("served?wire=sink", &folder.path().join("a.sock"))?;
/// // SAFETY: the server is the software NIC above.
/// let peer = unsafe { TrustedPeer::vouched_for() };
/// let nic = VfioUserDevice::open(server.socket(), peer, &TimeLimit::default().begin())?;
/// assert_eq!(nic.ids().to_string(), "8086:10f9");
/// assert_eq!(nic.bar().read32(0x8) >> 19 & 1, 1, "STATUS.GIO");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct VfioUserServer {
    socket: SocketFile,
    door: Arc<Door>,
    station: Arc<Station>,
    vectors: Arc<Vectors>,
    threads: Vec<JoinHandle<()>>,
    /// A thread that ends drops its sender.
    ended: Receiver<Infallible>,
    _share: Share,
}

impl VfioUserServer {
    /// Opens the soft NIC `spec` (like [`crate::SoftDevice::open`]) and serves it at `socket`. A socket that a server
    /// has left behind is replaced.
    ///
    /// # Errors
    ///
    /// Those of [`crate::SoftDevice::open`]; and if something else is at `socket`, or the socket cannot be made.
    pub fn start(spec: &str, socket: &Path) -> Result<Self, Error> {
        let spec: Spec = spec.parse()?;
        let (listener, socket) = listen(socket)?;
        let memory = Arc::new(ClientMemory::default());
        let (station, _) = soft::start(&spec, Box::new(Arc::clone(&memory)))?;
        let door = Arc::new(Door::new(listener));
        let (share, threads, vectors) = (Share::take(), Vec::new(), Arc::<Vectors>::default());
        let (ends, ended) = channel();
        let mut server = Self { socket, door, station, vectors, threads, ended, _share: share };
        let (station, door) = (Arc::clone(&server.station), Arc::clone(&server.door));
        let (id, mac, name) = (spec.id, spec.mac, spec.name);
        let (admit, admitted) = sync_channel(1);
        let vectors = Arc::clone(&server.vectors);
        server.spawn("vfio-user-irq", ends.clone(), move || vectors.attend())?;
        let vectors = Arc::clone(&server.vectors);
        server.spawn("vfio-user", ends.clone(), move || {
            let mut function = Function::new(station, (memory, vectors), id, mac);
            door.serve(&admitted, &mut function, &name);
        })?;
        let door = Arc::clone(&server.door);
        server.spawn("vfio-user-door", ends, move || door.keep(&admit))?;
        Ok(server)
    }

    /// Starts a thread, which holds `ends` until it ends.
    fn spawn(
        &mut self,
        name: &str,
        ends: Sender<Infallible>,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<(), Error> {
        let work = move || {
            work();
            drop(ends);
        };
        let spawned = thread::Builder::new().name(name.to_owned()).spawn(work);
        let failed = |source| {
            system(
                "start a thread for",
                self.socket.path(),
                source,
                "allow more threads (`ulimit -u`) or memory (`ulimit -v`)",
            )
        };
        self.threads.push(spawned.map_err(failed)?);
        Ok(())
    }

    /// Returns the path of the socket.
    #[must_use]
    pub fn socket(&self) -> &Path {
        self.socket.path()
    }

    /// Returns a handle that watches the device and its wire, and injects faults.
    #[must_use]
    pub fn control(&self) -> SoftControl {
        SoftControl::new(Arc::clone(&self.station))
    }
}

/// How long the end of the service waits for its threads. (Miri, which is a thousand times slower, wants all to have ended.)
const PATIENCE: Duration = Duration::from_secs(if cfg!(miri) { 1000 } else { 1 });

impl Drop for VfioUserServer {
    fn drop(&mut self) {
        self.door.close();
        self.vectors.close();
        if self.ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Disconnected) {
            for thread in self.threads.drain(..) {
                // A panic in it was printed when it happened.
                let _ = thread.join();
            }
        } else {
            let socket = self.socket.path().display();
            tracing::warn!(
                "{socket}: what a client has sent is still being closed or signalled; the thread that waits for it is left"
            );
        }
        engine::close(&self.station);
    }
}

/// Makes the socket, in place of one that nobody listens on.
fn listen(path: &Path) -> Result<(UnixListener, SocketFile), Error> {
    SocketFile::listen(path, BACKLOG, None).map_err(|source| {
        let is_socket = || path.symlink_metadata().is_ok_and(|found| found.file_type().is_socket());
        let hint = match source.kind() {
            _ if source.raw_os_error() == Some(Errno::MFILE.raw_os_error()) => {
                "raise the limit of open files (`ulimit -n`)"
            }
            io::ErrorKind::AddrInUse if is_socket() => "another process serves there; end it, or choose another path",
            io::ErrorKind::AddrInUse => "that is a file and no socket; choose another path",
            io::ErrorKind::ResourceBusy => "end that process (`lslocks` names it), or choose another folder",
            _ => "choose another path, at most 107 bytes long, in a folder that you may write to",
        };
        system("listen on", path, source, hint)
    })
}

/// Clients that may wait to be let in, or refused.
const BACKLOG: u16 = 128;

fn system(operation: &'static str, path: &Path, source: io::Error, hint: &'static str) -> Error {
    Error::System { operation, object: path.display().to_string(), source, hint }
}
