//! virtio-user: the driver as the front end of vhost-user. The device is played by another process (the back end: Open
//! vSwitch, DPDK's `net_vhost`), which shares the memory of rings and packets through a Unix socket (QEMU
//! `docs/interop/vhost-user.rst`).
//!
//! The back end can write to all packets of the pools that it was given, at any time, as they share memory, and so can any
//! process that it passes a descriptor to, or forks. It takes a [`TrustedPeer`] to connect, by which somebody vouches that
//! it does so only while a buffer is lent to it. It can reach nothing else: rings lie in memory of their own, new for each
//! connection, and nothing the driver goes by is in either.
//!
//! When the back end goes away the queues wait, the front end connects again, or waits to be connected to, and what was
//! in flight is lost and counted ([`crate::TxCounters::lost`]).
//!
//! The protocol is spoken by this module itself. The `vhost` crate's front end waits for ever for a back end that hangs,
//! since it takes a timeout of its socket for a reason to try again.

mod connection;
mod listener;
mod message;

use crate::transport::{CONNECT, Notifier, QueueSetup, Transport, status};
use crate::{Error, Features, Result};
use connection::{Connection, Failure, Region, is_ready};
use device::{
    Deadline, DmaDomain, DmaMapper, DmaMemory, EventFd, Interrupts, IovaAllocator, TimeLimit, Translation, TrustedPeer,
};
use listener::Listener;
use message::MOST_REGIONS;
use rustix::io::Errno;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A virtio-net device behind a vhost-user socket.
///
/// ```no_run
/// use device::TrustedPeer;
/// use ethdev::Port as _;
/// use mempool::{Pool, PoolConfig};
/// use virtio::{Config, VhostUser};
/// use std::path::Path;
///
/// let pool = Pool::new(&PoolConfig::default())?;
/// // SAFETY: the switch at this socket is of this host's administrator, and writes to buffers that are lent to it only.
/// let peer = unsafe { TrustedPeer::vouched_for() };
/// let device = VhostUser::connect(Path::new("/run/vhost.sock"), peer)?;
/// let opened = virtio::open(device, &Config::default(), &pool)?;
/// println!("{:?}", opened.port.link()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct VhostUser {
    name: String,
    endpoint: Endpoint,
    dma: DmaDomain,
    shared: Arc<Shared>,
    mac: [u8; 6],
    vectors: Mutex<Vec<Arc<EventFd>>>,
}

#[derive(Debug)]
enum Endpoint {
    Client(PathBuf),
    Server(Listener),
    #[cfg(feature = "fake")]
    Given(Mutex<Option<UnixStream>>),
}

/// What the transport and its DMA mapper share.
#[derive(Debug, Default)]
struct Shared {
    /// Locked after `back_end`, where both are.
    regions: Mutex<Vec<Region>>,
    /// Held by one operation at a time, for as long as the back end takes to answer.
    back_end: Mutex<BackEnd>,
    /// Pairs of queues of the back end; 0 while there is none. A fact for those who must not wait for the connection;
    /// Relaxed, since no other memory is read on the strength of it.
    pairs: AtomicU16,
    deadline: Mutex<Option<Deadline>>,
    #[cfg(feature = "fake")]
    dials: std::sync::atomic::AtomicUsize,
}

#[derive(Debug, Default)]
struct BackEnd {
    connection: Option<Connection>,
    status: u8,
    features: u64,
}

impl Shared {
    fn regions(&self) -> MutexGuard<'_, Vec<Region>> {
        self.regions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the deadline of the present operation.
    fn deadline(&self) -> Deadline {
        let deadline = self.deadline.lock().unwrap_or_else(PoisonError::into_inner).clone();
        deadline.unwrap_or_else(|| TimeLimit::default().begin())
    }

    fn back_end(&self) -> MutexGuard<'_, BackEnd> {
        self.back_end.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl VhostUser {
    /// Creates a device whose back end listens at `path`, and for which `peer` vouches. Nothing is sent yet.
    ///
    /// # Errors
    ///
    /// If the system has no random numbers for a MAC address.
    pub fn connect(path: &Path, peer: TrustedPeer) -> Result<Self> {
        let _ = peer;
        Self::new(format!("vhost-user:{}", path.display()), Endpoint::Client(path.to_owned()))
    }

    /// Creates a device whose back end will connect to the socket `path`, which is made now, for this user only. `peer`
    /// vouches for any process that connects.
    ///
    /// # Errors
    ///
    /// If the socket cannot be made, or a process listens there.
    pub fn listen(path: &Path, peer: TrustedPeer) -> Result<Self> {
        let _ = peer;
        let name = format!("vhost-user:{}", path.display());
        let listener = Listener::bind(path).map_err(|source| {
            let hint = match source.kind() {
                io::ErrorKind::AddrInUse => "another process listens there, or it is no socket; name another path",
                io::ErrorKind::NotFound => "make the folder first",
                io::ErrorKind::ResourceBusy => "end that process (lslocks names it), or name another folder",
                io::ErrorKind::PermissionDenied => "name a folder that this user may write to",
                _ => "name a path in a folder where sockets can be made",
            };
            device::Error::system("listen at", &name, source, hint)
        })?;
        Self::new(name, Endpoint::Server(listener))
    }

    /// Creates a device whose back end is at the other end of `socket`, for one connection, and for which `peer`
    /// vouches.
    ///
    /// # Errors
    ///
    /// Those of [`Self::connect`].
    #[cfg(feature = "fake")]
    pub fn over(socket: UnixStream, peer: TrustedPeer) -> Result<Self> {
        let _ = peer;
        Self::new("vhost-user:given".to_owned(), Endpoint::Given(Mutex::new(Some(socket))))
    }

    /// Returns a function that returns the number of attempts so far to connect to the back end's socket.
    #[cfg(feature = "fake")]
    pub fn dials(&self) -> impl Fn() -> usize + use<> {
        let shared = Arc::clone(&self.shared);
        move || shared.dials.load(Ordering::Relaxed)
    }

    fn new(name: String, endpoint: Endpoint) -> Result<Self> {
        let shared = Arc::<Shared>::default();
        let mapper = Mapper { shared: Arc::clone(&shared), iovas: Mutex::new(IovaAllocator::new([FIRST..=LAST])) };
        let mut mac = [0; 6];
        rustix::rand::getrandom(&mut mac, rustix::rand::GetRandomFlags::empty())
            .map_err(|source| device::Error::system("make a MAC address for", &name, source, ""))?;
        // Locally administered, and of one station.
        mac[0] = mac[0] & !1 | 2;
        Ok(Self { name, endpoint, dma: DmaDomain::new(Box::new(mapper)), shared, mac, vectors: Mutex::default() })
    }

    fn next_socket(&self) -> Result<UnixStream> {
        match &self.endpoint {
            Endpoint::Client(path) => self.dial(path).map_err(|source| {
                let hint = match source.kind() {
                    io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                        "start the back end first, or add ?server to be the one that listens"
                    }
                    io::ErrorKind::PermissionDenied => "give this user the socket",
                    io::ErrorKind::TimedOut => {
                        "somebody listens there and accepts nobody; end that process, or its clients"
                    }
                    io::ErrorKind::Interrupted => "",
                    _ => "it must be the Unix socket of a vhost-user back end",
                };
                device::Error::system(CONNECT, &self.name, source, hint).into()
            }),
            Endpoint::Server(listener) => match listener.accept() {
                Ok(Some(stream)) => Ok(stream),
                Ok(None) => Err(Error::NoPeer { device: self.name.clone() }),
                Err(source) => Err(device::Error::system("accept a back end at", &self.name, source, "").into()),
            },
            #[cfg(feature = "fake")]
            Endpoint::Given(socket) => {
                let socket = socket.lock().unwrap_or_else(PoisonError::into_inner).take();
                socket.ok_or_else(|| self.gone("its socket was given once"))
            }
        }
    }

    /// Connects, as soon as the listener has room for one more.
    fn dial(&self, path: &Path) -> io::Result<UnixStream> {
        let deadline = self.shared.deadline();
        loop {
            #[cfg(feature = "fake")]
            self.shared.dials.fetch_add(1, Ordering::Relaxed);
            match listener::dial(path) {
                Ok(socket) => return Ok(socket),
                Err(Errno::AGAIN) => deadline.sleep(Duration::from_millis(10))?,
                Err(Errno::INTR) => deadline.check()?,
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    fn failed(&self, Failure { step, source }: Failure) -> Error {
        let cause = match source.kind() {
            io::ErrorKind::InvalidData | io::ErrorKind::TimedOut => format!("{source}; is it a vhost-user back end?"),
            _ => source.to_string(),
        };
        Error::Peer { device: self.name.clone(), step, cause }
    }

    fn with_connection<R>(&self, act: impl FnOnce(&mut Connection) -> R) -> Result<R> {
        let mut back_end = self.shared.back_end();
        back_end.connection.as_mut().map(act).ok_or_else(|| self.gone("there is no connection to its back end"))
    }
}

/// Notifies the back end of a ring by a kick.
#[derive(Debug)]
pub struct Kick(Arc<EventFd>);

impl Notifier for Kick {
    fn notify(&self) {
        self.0.signal();
    }
}

// SAFETY: nothing that this process can see proves that another one leaves shared memory alone: the answer to GET_VRING_BASE
// is the back end's word, and a connection that is closed says nothing of those that it has passed descriptors of memory to.
// What the trait asks for is promised by whoever made the `TrustedPeer`: memory is written only where a descriptor of a ring
// says so, until it was handed back; the answer and the end of the connection are taken for handing all back, and without one
// of them `reset` fails. The rings of a session are in memory of its
// own, which is not used again, so what is written late there is written for nobody. The back end reaches the memory that its
// descriptors are of, and no other.
unsafe impl Transport for VhostUser {
    type Notifier = Kick;

    fn name(&self) -> &str {
        &self.name
    }

    fn dma(&self) -> &DmaDomain {
        &self.dma
    }

    fn vectors(&self, wish: Interrupts, count: u16) -> Result<Vec<Arc<EventFd>>> {
        let count = if wish == Interrupts::Off { 0 } else { count };
        let made = (0..count).map(|_| EventFd::new().map(Arc::new)).collect::<device::Result<Vec<_>>>()?;
        self.vectors.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&made);
        Ok(made)
    }

    fn starts_all_pairs(&self) -> bool {
        true
    }

    fn set_deadline(&self, deadline: Option<Deadline>) {
        *self.shared.deadline.lock().unwrap_or_else(PoisonError::into_inner) = deadline;
    }

    fn deadline(&self) -> Option<Deadline> {
        self.shared.deadline.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn reset(&self) -> Result<()> {
        let begun = Instant::now();
        let mut back_end = self.shared.back_end();
        back_end.status = 0;
        back_end.features = 0;
        self.shared.pairs.store(0, Ordering::Relaxed);
        let deadline = self.shared.deadline();
        if back_end.connection.as_mut().is_none_or(|connection| connection.stop(&deadline)) {
            back_end.connection = None;
            return Ok(());
        }
        let waiting_for = "the back end to stop its rings; end its process";
        Err(Error::Timeout { device: self.name.clone(), waiting_for, waited: begun.elapsed() })
    }

    fn attach(&self) -> Result<()> {
        let socket = self.next_socket()?;
        let connection = Connection::open(socket, &self.shared.deadline()).map_err(|failure| self.failed(failure))?;
        let mut back_end = self.shared.back_end();
        self.shared.pairs.store(connection.pairs, Ordering::Relaxed);
        back_end.connection = Some(connection);
        Ok(())
    }

    fn status(&self) -> Result<u8> {
        Ok(self.shared.back_end().status)
    }

    fn set_status(&self, value: u8) -> Result<()> {
        let mut back_end = self.shared.back_end();
        let back_end = &mut *back_end;
        let new = value & !back_end.status;
        back_end.status = value;
        let Some(connection) = &mut back_end.connection else { return Ok(()) };
        let deadline = self.shared.deadline();
        let mut result = Ok(());
        if new & status::FEATURES_OK != 0 {
            result = connection.set_features(back_end.features, &deadline);
        }
        if new & status::DRIVER_OK != 0 {
            result = result.and_then(|()| connection.start(&self.shared.regions(), &deadline));
        }
        result.map_err(|failure| self.failed(failure))
    }

    fn device_features(&self) -> Result<u64> {
        let (features, pairs) = self.with_connection(|connection| (connection.features(), connection.pairs))?;
        let mut features = Features(features & OF_RINGS.0);
        if pairs > 1 {
            features = features | Features::MQ;
        }
        // The address and the link are this side's.
        Ok((features | Features::MAC | Features::STATUS).0)
    }

    fn set_driver_features(&self, features: u64) -> Result<()> {
        self.shared.back_end().features = features & !(Features::MAC | Features::STATUS).0;
        Ok(())
    }

    fn read_config(&self, offset: u16, bytes: &mut [u8]) -> Result<()> {
        let pairs = self.shared.pairs.load(Ordering::Relaxed);
        let (pairs, up) = (pairs.max(1), pairs > 0);
        let mut config = [0; 10];
        config[..6].copy_from_slice(&self.mac);
        config[6..8].copy_from_slice(&u16::from(up).to_le_bytes());
        config[8..].copy_from_slice(&pairs.to_le_bytes());
        let start = usize::from(offset);
        let field = config.get(start..start + bytes.len());
        bytes.copy_from_slice(field.ok_or_else(|| self.gone("no such configuration field"))?);
        Ok(())
    }

    fn config_generation(&self) -> Result<Option<u8>> {
        // It does not change while a back end is there.
        Ok(Some(0))
    }

    fn queue_size(&self, queue: u16) -> Result<u16> {
        let pairs = self.with_connection(|connection| connection.pairs)?;
        Ok(if queue / 2 < pairs { LARGEST_QUEUE } else { 0 })
    }

    unsafe fn set_up_queue(&self, queue: u16, setup: &QueueSetup) -> Result<Kick> {
        let kick = Arc::new(EventFd::new()?);
        let vectors = self.vectors.lock().unwrap_or_else(PoisonError::into_inner);
        let call = match setup.vector.and_then(|vector| vectors.get(usize::from(vector))) {
            Some(vector) => Arc::clone(vector),
            // Nobody looks at it.
            None => Arc::new(EventFd::new()?),
        };
        self.with_connection(|connection| connection.add_queue(queue, setup, &kick, call))?;
        Ok(Kick(kick))
    }

    fn watch(&self, limit: Duration) -> Option<&'static str> {
        let Ok(socket) = self.with_connection(|connection| Arc::clone(&connection.socket)) else {
            return Some("there is no connection to its back end");
        };
        if !is_ready(socket.as_fd(), limit) {
            let broken = self.with_connection(|connection| connection.broken.get()).unwrap_or(false);
            return broken.then_some("its back end does not answer");
        }
        // Under the lock, so that it is not the reply to a question of another thread.
        self.with_connection(|connection| match (connection.is_closed(), connection.has_unexpected_data()) {
            (true, _) => Some("its back end has closed the connection"),
            (false, true) => Some("its back end says what nobody asked for"),
            (false, false) => None,
        })
        .unwrap_or(None)
    }
}

/// Features that are the back end's to offer: those of rings, buffers and their headers.
const OF_RINGS: Features = Features(
    Features::MRG_RXBUF.0
        | Features::EVENT_IDX.0
        | Features::VERSION_1.0
        | Features::RING_PACKED.0
        | Features::IN_ORDER.0
        | Features::ORDER_PLATFORM.0
        | Features::CSUM.0
        | Features::GUEST_CSUM.0,
);
/// The protocol has no limit of its own but that of virtio.
const LARGEST_QUEUE: u16 = 32_768;
/// The back end's addresses.
const FIRST: u64 = 1 << 32;
const LAST: u64 = (1 << 46) - 1;
/// Regions begin at multiples of this, so that huge pages stay huge in the back end.
const ALIGN: u64 = 2 << 20;

/// Keeps the table of memory that a back end is given.
#[derive(Debug)]
struct Mapper {
    shared: Arc<Shared>,
    iovas: Mutex<IovaAllocator>,
}

impl Mapper {
    fn iovas(&self) -> MutexGuard<'_, IovaAllocator> {
        self.iovas.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// SAFETY: a back end resolves addresses by the table, and by the descriptors that came with it; it has a mapping of its own.
// What was unmapped is not in the table of the next connection. A back end that keeps its descriptor reaches the file, not
// this process.
unsafe impl DmaMapper for Mapper {
    fn map(&self, memory: &Arc<DmaMemory>) -> device::Result<Translation> {
        let object = || format!("{} bytes of DMA memory", memory.len());
        let mut back_end = self.shared.back_end();
        let mut regions = self.shared.regions();
        if regions.len() == MOST_REGIONS {
            let cause = format!("a vhost-user back end takes {MOST_REGIONS} memory regions, and has as many");
            return Err(device::Error::unusable(object(), cause, "use fewer packet pools with one port"));
        }
        let iova = self.iovas().allocate(memory.len() as u64, ALIGN.max(memory.page_size() as u64));
        let iova = iova.ok_or_else(|| device::Error::unusable(object(), "addresses are used up", "map less"))?;
        regions.push(Region { iova, memory: Arc::clone(memory) });
        if let Some(connection) = back_end.connection.as_mut().filter(|connection| connection.running)
            && let Err(Failure { source, .. }) = connection.share(&regions, &self.shared.deadline())
        {
            regions.pop();
            return Err(device::Error::system("share", object(), source, "look at the back end's log"));
        }
        Ok(Translation::Linear { delta: iova.wrapping_sub(memory.base().as_ptr() as u64) })
    }

    fn unmap(&self, memory: &Arc<DmaMemory>, translation: &Translation) -> device::Result<()> {
        self.shared.regions().retain(|region| !Arc::ptr_eq(&region.memory, memory));
        self.iovas().free(translation.iova(memory.base().as_ptr()));
        Ok(())
    }
}
