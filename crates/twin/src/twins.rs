//! Twins, from their opening to their end.

use crate::bell::Bell;
use crate::counts::{Counts, Shared};
use crate::lane::Lane;
use crate::mover::{Ends, Mover, Twin};
use crate::{Error, Police, Rates};
use mempool::Pool;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use tap::{State, Tap};

/// A port that has a twin.
#[derive(Clone, Debug)]
pub struct Port {
    /// Its MAC address; all zeros if it has none, then the interface keeps its own.
    pub mac: [u8; 6],
    /// Size in bytes of the longest IP packet that it sends.
    pub mtu: u16,
    /// Where the buffers for the host's frames come from.
    pub pool: Pool,
    /// The lane of the worker that sends the host's frames.
    pub lane: usize,
}

/// How much the host is given.
///
/// ```
/// assert_eq!(twin::Settings::default().queue, 1024);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The rates of each port.
    pub rates: Rates,
    /// Packets that each queue holds; there is one each way for each port and lane. At least 64.
    pub queue: usize,
}

impl Default for Settings {
    /// The rates of [`Rates::default`], and 1,024 packets.
    fn default() -> Self {
        Self { rates: Rates::default(), queue: 1024 }
    }
}

/// Checks that an interface can have this name, as far as that shows before it is opened.
///
/// ```
/// assert!(twin::check_name("rw0").is_ok() && twin::check_name("rw%d").is_err());
/// ```
///
/// # Errors
///
/// [`Error::Tap`].
pub fn check_name(name: &str) -> Result<(), Error> {
    if tap::is_name(name) { Ok(()) } else { Err(tap::Error::Name { name: name.to_owned() }.into()) }
}

/// Interfaces that are open. They go when this is dropped, unless they were there before.
#[derive(Debug)]
pub struct Twins {
    taps: Vec<Arc<Tap>>,
    indices: Vec<u32>,
}

impl Twins {
    /// Opens an interface of each name, in this thread's network namespace, creating those that are not there. None has a carrier until
    /// [`Running::set_carrier`] gives it one.
    ///
    /// # Errors
    ///
    /// [`Error::Tap`].
    pub fn open(names: &[String]) -> Result<Self, Error> {
        let (mut taps, mut indices) = (Vec::new(), Vec::new());
        for name in names {
            let tap = Tap::open_without_carrier(name)?;
            indices.push(tap.index()?);
            taps.push(Arc::new(tap));
        }
        Ok(Self { taps, indices })
    }

    /// Returns the index that each had when it was opened.
    #[must_use]
    pub fn indices(&self) -> &[u32] {
        &self.indices
    }

    /// Gives each interface the MAC address of its port, in their order, and the MTU, unless it was there before and has a smaller one, which
    /// the log says, and starts the thread that moves frames. Returns a handle of it, and so many lanes.
    ///
    /// # Errors
    ///
    /// [`Error::Ports`] if the ports are not as many as the interfaces, or name a lane beyond; the others if the system refuses.
    pub fn start(self, ports: &[Port], lanes: usize, settings: &Settings) -> Result<(Running, Vec<Lane>), Error> {
        let taps = self.taps;
        if ports.len() != taps.len() || ports.iter().any(|port| port.lane >= lanes) {
            return Err(Error::Ports { ports: ports.len(), twins: taps.len(), lanes });
        }
        for (tap, port) in taps.iter().zip(ports) {
            if port.mac != [0; 6] {
                tap.set_mac(port.mac)?;
            }
            set_mtu(tap, port.mtu)?;
        }
        let ticks = device::tsc::frequency_hz();
        let shared: Vec<_> = taps.iter().map(|_| Arc::new(Shared::new(Police::new(&settings.rates, ticks)))).collect();
        let bell = Arc::new(Bell::new()?);
        let (mut of_workers, mut of_mover) = (Vec::new(), Vec::new());
        for _ in 0..lanes {
            let (lane, ends) = connect(&shared, &bell, settings.queue.max(64))?;
            of_workers.push(lane);
            of_mover.push(ends);
        }
        let stop = Arc::new(AtomicBool::new(false));
        let (mut caches, mut twins) = (Vec::new(), Vec::new());
        for ((tap, port), shared) in taps.iter().zip(ports).zip(&shared) {
            let cache = cache_of(&port.pool, &mut caches);
            let (tap, shared) = (Arc::clone(tap), Arc::clone(shared));
            twins.push(Twin { tap, shared, lane: port.lane, cache, mtu: port.mtu.into(), gone: false });
        }
        let mover = Mover { twins, lanes: of_mover, caches, bell: Arc::clone(&bell), stop: Arc::clone(&stop) };
        let thread = std::thread::Builder::new().name("twins".to_owned()).spawn(move || mover.run());
        let thread = Some(thread.map_err(Error::Thread)?);
        Ok((Running { taps, shared, bell, stop, thread }, of_workers))
    }
}

/// Gives an interface the MTU of its port. A smaller one of an interface that was there before may be meant, and stays.
fn set_mtu(tap: &Tap, mtu: u16) -> Result<(), Error> {
    let name = tap.name();
    let own = if tap.was_there() { tap::mtu(name)? } else { u32::MAX };
    if own < mtu.into() {
        tracing::warn!(
            "{name} keeps its MTU of {own} bytes, below the {mtu} of its port: longer packets are left to Linux; `ip link set {name} mtu {mtu}` lets the port send them"
        );
        return Ok(());
    }
    Ok(tap.set_mtu(mtu)?)
}

/// The queues of a worker: its ends, and those of the thread that moves frames.
fn connect(ports: &[Arc<Shared>], mover: &Arc<Bell>, queue: usize) -> Result<(Lane, Ends), Error> {
    let bell = Arc::new(Bell::new()?);
    let mut lane = Lane::new(&bell, mover);
    let mut ends = Ends { to_host: Vec::new(), from_host: Vec::new(), bell };
    for shared in ports {
        let (to_host, from_worker) = lcore::ring(queue);
        let (to_worker, from_host) = lcore::ring(queue);
        lane.add(to_host, from_host, shared);
        ends.to_host.push(from_worker);
        ends.from_host.push(to_worker);
    }
    Ok((lane, ends))
}

/// The index of the cache of `pool` in `caches`, to which one is added if there is none.
fn cache_of(pool: &Pool, caches: &mut Vec<mempool::PoolCache>) -> usize {
    caches.iter().position(|cache| cache.pool_id() == pool.id()).unwrap_or_else(|| {
        caches.push(pool.cache());
        caches.len() - 1
    })
}

/// Twins at work. Dropping it ends the thread.
#[derive(Debug)]
pub struct Running {
    taps: Vec<Arc<Tap>>,
    shared: Vec<Arc<Shared>>,
    bell: Arc<Bell>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// Has the twin of a port follow the port's link. Does nothing if there is no such port, or if the interface is gone.
    ///
    /// # Errors
    ///
    /// [`Error::Tap`].
    pub fn set_carrier(&self, port: usize, carrier: bool) -> Result<(), Error> {
        match self.taps.get(port).filter(|tap| tap.state() != Some(State::Gone)) {
            Some(tap) => Ok(tap.set_carrier(carrier)?),
            None => Ok(()),
        }
    }

    /// Lets nothing cross between a port and its twin, or lets it again: an interface that was moved to another network namespace is still
    /// open here, and speaks for somebody else. Does nothing if there is no such port.
    pub fn set_closed(&self, port: usize, closed: bool) {
        if let Some(shared) = self.shared.get(port) {
            shared.closed.store(closed, Ordering::Relaxed);
        }
    }

    /// Returns whether the thread that moves frames has ended, as it does by itself only if it panics.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Returns the name by which the twin of a port was opened, and whether it is still there.
    #[must_use]
    pub fn twin(&self, port: usize) -> Option<(&str, bool)> {
        self.taps.get(port).map(|tap| (tap.name(), tap.state() != Some(State::Gone)))
    }

    /// Returns what was counted of a port, all zeros if there is none.
    #[must_use]
    pub fn counts(&self, port: usize) -> Counts {
        self.shared.get(port).map_or_else(Counts::default, |shared| shared.read())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.bell.ring();
        // It has nothing to say; a panic of it was printed.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
