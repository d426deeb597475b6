//! The third face: a device for other processes, on a Unix socket (QEMU `docs/interop/vfio-user.rst`).

mod config_space;
mod function;
mod memory;
mod session;
mod vectors;

use crate::Error;
use crate::engine::{self, Station};
use crate::soft::{self, SoftControl};
use crate::spec::Spec;
use function::Function;
use memory::ClientMemory;
use rustix::net::Shutdown;
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A software 82599 that serves clients on a Unix socket, one after the other: our own driver through
/// [`device::VfioUserDevice`], or QEMU with `-device '{"driver":"vfio-user-pci","socket":{"type":"unix","path":"…"}}'`.
///
/// When a client goes, properly or not, the device is reset and has let go of the client's memory before the next one is
/// heard. Dropping the value ends the service and removes the socket.
///
/// ```
/// use device::{Bar as _, Device as _, VfioUserDevice};
/// use softnic::VfioUserServer;
///
/// let folder = tempfile::tempdir()?;
/// let server = VfioUserServer::start("served?wire=sink", &folder.path().join("a.sock"))?;
/// let nic = VfioUserDevice::open(server.socket())?;
/// assert_eq!(nic.ids().to_string(), "8086:10f9");
/// assert_eq!(nic.bar().read32(0x8) >> 19 & 1, 1, "STATUS.GIO");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct VfioUserServer {
    socket: PathBuf,
    listener: Arc<UnixListener>,
    service: Arc<Service>,
    station: Arc<Station>,
    thread: Option<JoinHandle<()>>,
}

/// What the server and its thread share.
#[derive(Debug, Default)]
struct Service {
    stopping: AtomicBool,
    client: Mutex<Option<UnixStream>>,
}

impl VfioUserServer {
    /// Opens the soft NIC `spec` (as [`crate::SoftDevice::open`] does) and serves it at `socket`. A socket that a server
    /// has left behind is replaced.
    ///
    /// # Errors
    ///
    /// As [`crate::SoftDevice::open`]; and when something else is at `socket`, or the socket cannot be made.
    pub fn start(spec: &str, socket: &Path) -> Result<Self, Error> {
        let spec: Spec = spec.parse()?;
        let listener = Arc::new(listen(socket)?);
        let memory = Arc::new(ClientMemory::default());
        let (station, _) = soft::start(&spec, Box::new(Arc::clone(&memory))).inspect_err(|_| remove(socket))?;
        let service = Arc::<Service>::default();
        let mut server =
            Self { socket: socket.to_owned(), listener, service, station: Arc::clone(&station), thread: None };
        let (service, listener) = (Arc::clone(&server.service), Arc::clone(&server.listener));
        let (device, mac, name) = (spec.id.pci(), spec.mac, spec.name);
        let work = move || {
            let mut function = Function::new(station, memory, device, mac);
            service.run(&listener, &mut function, &name);
        };
        let spawned = thread::Builder::new().name("vfio-user".to_owned()).spawn(work);
        server.thread =
            Some(spawned.map_err(|source| system("start a thread for", socket, source, "end other programs"))?);
        Ok(server)
    }

    /// Where it serves.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Watches the device and its wire, and injects faults.
    #[must_use]
    pub fn control(&self) -> SoftControl {
        SoftControl::new(Arc::clone(&self.station))
    }
}

impl Drop for VfioUserServer {
    fn drop(&mut self) {
        self.service.stopping.store(true, Ordering::SeqCst);
        // Wakes the thread from accept, and from receive. What is closed already needs no waking.
        let _ = rustix::net::shutdown(&*self.listener, Shutdown::Both);
        if let Some(client) = &*self.service.client.lock().unwrap_or_else(PoisonError::into_inner) {
            let _ = client.shutdown(std::net::Shutdown::Both);
        }
        if let Some(thread) = self.thread.take() {
            // A panic in it was printed when it happened.
            let _ = thread.join();
        }
        engine::close(&self.station);
        remove(&self.socket);
    }
}

impl Service {
    /// Serves one client after the other.
    fn run(&self, listener: &UnixListener, function: &mut Function, name: &str) {
        while !self.stopping.load(Ordering::SeqCst) {
            let client = listener.accept().and_then(|(client, _)| {
                *self.client.lock().unwrap_or_else(PoisonError::into_inner) = Some(client.try_clone()?);
                Ok(client)
            });
            let Ok(client) = client else {
                // Out of descriptors, or the end: the loop knows which.
                thread::sleep(Duration::from_millis(1));
                continue;
            };
            // Whoever set `stopping` before the client was there to be seen could not end its connection.
            if !self.stopping.load(Ordering::SeqCst) {
                match session::serve(&client, function) {
                    Ok(()) => tracing::info!("{name}: the client has left"),
                    Err(error) => tracing::warn!("{name}: the connection to the client has ended: {error}"),
                }
            }
            function.leave();
            *self.client.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }
}

/// Makes the socket, in place of one that nobody listens on.
fn listen(path: &Path) -> Result<UnixListener, Error> {
    let hint = "choose another path, at most 107 bytes long, in a folder that you may write to";
    match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            let is_socket = path.symlink_metadata().is_ok_and(|found| found.file_type().is_socket());
            let abandoned =
                UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
            if !is_socket || !abandoned {
                return Err(system("listen on", path, error, hint));
            }
            remove(path);
            UnixListener::bind(path).map_err(|source| system("listen on", path, source, hint))
        }
        other => other.map_err(|source| system("listen on", path, source, hint)),
    }
}

fn remove(path: &Path) {
    if let Err(error) = std::fs::remove_file(path) {
        tracing::debug!("{} stays: {error}", path.display());
    }
}

fn system(operation: &'static str, path: &Path, source: io::Error, hint: &'static str) -> Error {
    Error::System { operation, object: path.display().to_string(), source, hint }
}
