//! The one thread that all soft NICs of a process work on, and the registry of their names.

use crate::model::Model;
use crate::wire::{Cable, Knobs, PeerWire, SinkWire};
use crate::{Error, Fault};
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// A device as the engine sees it.
#[derive(Debug)]
pub(crate) struct Station {
    name: String,
    model: Mutex<Model>,
    /// Threads that want the model: the engine lets them in first.
    waiting: AtomicU32,
    closed: AtomicBool,
}

impl Station {
    /// Does something with the model, between two steps.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut Model) -> R) -> R {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut model = self.model.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        work(&mut model)
    }

    /// One step; whether anything moved, or will by itself.
    fn step(&self) -> bool {
        if self.waiting.load(Ordering::Relaxed) != 0 || self.closed.load(Ordering::Relaxed) {
            return false;
        }
        let Ok(mut model) = self.model.try_lock() else { return false };
        !self.closed.load(Ordering::Relaxed) && (!model.step().is_idle() || !model.wire().is_quiet())
    }
}

/// All soft NICs of the process.
#[derive(Debug, Default)]
struct Registry {
    stations: Vec<Entry>,
    cables: Vec<Weak<Cable>>,
    engine: Option<Thread>,
}

#[derive(Debug)]
struct Entry {
    name: String,
    /// `None` while it is being opened.
    station: Option<Arc<Station>>,
    /// Whether its specification names no wire, so that a peer may lay a cable to it.
    open_port: bool,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry { stations: Vec::new(), cables: Vec::new(), engine: None });
/// Changes whenever the stations do.
static GENERATION: AtomicU64 = AtomicU64::new(0);
/// Whether the engine sleeps.
static ASLEEP: AtomicBool = AtomicBool::new(false);

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a device's port is plugged into by its own specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plug {
    /// Nothing: a peer may lay a cable to it.
    Open,
    /// A cable to a peer, which [`connect`] lays.
    Cable,
    /// A wire of its own.
    Own,
}

/// A name that is taken, for a device that is being opened.
#[derive(Debug)]
pub(crate) struct Place {
    name: String,
    used: bool,
}

/// Takes a name.
pub(crate) fn reserve(name: &str) -> Result<Place, Error> {
    let mut registry = registry();
    if registry.stations.iter().any(|entry| entry.name == name) {
        return Err(Error::Busy { name: name.to_owned() });
    }
    registry.stations.push(Entry { name: name.to_owned(), station: None, open_port: false });
    Ok(Place { name: name.to_owned(), used: false })
}

impl Place {
    /// Puts a device to work. If a cable with its name is waiting, it is plugged into an open port.
    pub(crate) fn start(mut self, mut model: Model, plug: Plug) -> Result<Arc<Station>, Error> {
        let mut registry = registry();
        let loose = if plug == Plug::Cable { None } else { registry.loose_end(&self.name) };
        if let Some((cable, end, other)) = loose {
            if plug == Plug::Own {
                // This device goes again: its name must be free before the registry is.
                registry.stations.retain(|entry| entry.name != self.name);
                self.used = true;
                let cause = "that one has laid a cable to this one, which has a wire of its own".to_owned();
                return Err(Error::Peer { name: self.name.clone(), peer: other, cause });
            }
            model.set_wire(Box::new(PeerWire::attach(cable, end, false)));
        }
        let station = Arc::new(Station {
            name: self.name.clone(),
            model: Mutex::new(model),
            waiting: AtomicU32::new(0),
            closed: AtomicBool::new(false),
        });
        if let Some(entry) = registry.stations.iter_mut().find(|entry| entry.name == self.name) {
            entry.station = Some(Arc::clone(&station));
            entry.open_port = plug == Plug::Open;
        }
        GENERATION.fetch_add(1, Ordering::Release);
        self.used = true;
        if registry.engine.is_none() {
            let spawned = thread::Builder::new().name("softnic".to_owned()).spawn(run);
            let handle = spawned.map_err(|source| Error::System {
                operation: "start",
                object: "the engine thread".to_owned(),
                source,
                hint: "allow more threads (`ulimit -u`) or memory (`ulimit -v`)",
            });
            match handle {
                Ok(handle) => registry.engine = Some(handle.thread().clone()),
                Err(error) => {
                    registry.stations.retain(|entry| entry.name != self.name);
                    return Err(error);
                }
            }
        }
        Ok(station)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.used {
            registry().stations.retain(|entry| entry.name != self.name);
        }
    }
}

impl Registry {
    /// A cable with a free end for a device, the end, and the name at the other end.
    fn loose_end(&mut self, name: &str) -> Option<(Arc<Cable>, usize, String)> {
        self.cables.retain(|cable| cable.strong_count() > 0);
        self.cables.iter().filter_map(Weak::upgrade).find_map(|cable| {
            let (end, other) = cable.end_of(name)?;
            let other = other.to_owned();
            Some((cable, end, other))
        })
    }
}

/// Lays a cable from a device to the one named `peer`, or plugs in the one that the peer has laid.
pub(crate) fn connect(station: &Arc<Station>, peer: &str, drop: bool, knobs: Option<Knobs>) -> Result<(), Error> {
    let outcome = connect_inner(station, peer, drop, knobs);
    if outcome.is_err() {
        close(station);
    }
    outcome
}

fn connect_inner(station: &Arc<Station>, peer: &str, drop: bool, knobs: Option<Knobs>) -> Result<(), Error> {
    let fail = |cause: &str| Error::Peer { name: station.name.clone(), peer: peer.to_owned(), cause: cause.to_owned() };
    let mut registry = registry();
    if let Some((cable, end, other)) = registry.loose_end(&station.name) {
        if other != peer {
            return Err(fail(&format!("{other} has laid a cable to this device")));
        }
        let wire = PeerWire::plug(cable, end, drop, knobs);
        station.with(|model| model.set_wire(wire));
        return Ok(());
    }
    if registry.loose_end(peer).is_some() {
        return Err(fail("it is connected to another device"));
    }
    let other = registry.stations.iter().find(|entry| entry.name == peer);
    let cable = Cable::new([station.name.clone(), peer.to_owned()]);
    if let Some(other) = other {
        if !other.open_port {
            return Err(fail("it has a wire of its own"));
        }
        if let Some(other) = &other.station {
            let wire = Box::new(PeerWire::attach(Arc::clone(&cable), 1, drop));
            other.with(|model| model.set_wire(wire));
        }
    }
    registry.cables.push(Arc::downgrade(&cable));
    let wire = PeerWire::plug(cable, 0, drop, knobs);
    station.with(|model| model.set_wire(wire));
    Ok(())
}

/// Takes a device out of work: when this returns the engine does not touch it any more, and its wire and its trace are closed, whoever
/// still holds the station.
pub(crate) fn close(station: &Arc<Station>) {
    let mut registry = registry();
    registry.stations.retain(|entry| !entry.station.as_ref().is_some_and(|known| Arc::ptr_eq(known, station)));
    GENERATION.fetch_add(1, Ordering::Release);
    station.with(|model| {
        station.closed.store(true, Ordering::Relaxed);
        model.set_bus_master(false);
        model.set_wire(Box::new(SinkWire));
        model.end_trace();
    });
    drop(registry);
    wake();
}

/// Wakes the engine if it sleeps: called after a doorbell.
#[inline(always)]
pub(crate) fn wake() {
    if ASLEEP.load(Ordering::Relaxed) {
        wake_now();
    }
}

#[cold]
fn wake_now() {
    if let Some(engine) = &registry().engine {
        engine.unpark();
    }
}

/// How long the engine goes on polling when nothing moves, and how long it then takes only short naps.
const POLL: Duration = Duration::from_micros(20);
const ALERT: Duration = Duration::from_millis(2);
/// A nap. Yielding would not do: where driver and engine share a core, a polling driver would keep it for a whole time
/// slice, while a thread that wakes up gets it soon.
const NAP: Duration = Duration::from_micros(10);
/// How long it sleeps at most before it looks again: frames from outside do not wake it.
const SLEEP: Duration = Duration::from_micros(100);
/// Fruitless rounds between two looks at the clock.
const ROUNDS: u32 = 16;
/// Between two rounds of a thread that has its core this much never passes.
const PAUSE: Duration = Duration::from_millis(1);
/// All longer times between two rounds, in nanoseconds.
static PAUSED: AtomicU64 = AtomicU64::new(0);

/// Returns for how long in all the thread that the soft NICs of this process work on had no core, of times longer than a millisecond: what
/// came meanwhile was transmitted, lost by a cable's buffer and delivered in a burst.
#[must_use]
pub fn paused() -> Duration {
    Duration::from_nanos(PAUSED.load(Ordering::Relaxed))
}

fn run() {
    // Naps of microseconds; with the default slack they would take sixty. What cannot be set stays as it is.
    #[cfg(not(miri))]
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1000));
    let mut generation = u64::MAX;
    let mut stations: Vec<Arc<Station>> = Vec::new();
    let mut fruitless = 0;
    let mut idle_since = Instant::now();
    let mut looked = idle_since;
    loop {
        let before = std::mem::replace(&mut looked, Instant::now());
        let pause = looked.duration_since(before);
        if pause > PAUSE {
            PAUSED.fetch_add(u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
        let now = GENERATION.load(Ordering::Acquire);
        if now != generation {
            generation = now;
            let mut registry = registry();
            stations.clear();
            stations.extend(registry.stations.iter().filter_map(|entry| entry.station.clone()));
            if registry.stations.is_empty() {
                registry.engine = None;
                return;
            }
        }
        let mut moved = false;
        for station in &stations {
            // A logger of the program's own may panic. That costs the device, not the others.
            let step = panic::catch_unwind(AssertUnwindSafe(|| station.step()));
            moved |= step.unwrap_or_else(|_| {
                station.with(|model| {
                    model.inject_fault(Fault::Removal { after_reads: 0 });
                    true
                })
            });
        }
        if moved {
            fruitless = 0;
            continue;
        }
        fruitless += 1;
        if fruitless == 1 {
            idle_since = Instant::now();
        }
        std::hint::spin_loop();
        if fruitless % ROUNDS == 0 {
            rest(idle_since.elapsed());
        }
    }
}

/// What to do after being idle so long: poll on, nap, or sleep.
fn rest(idle: Duration) {
    if idle > POLL {
        ASLEEP.store(true, Ordering::Relaxed);
        thread::park_timeout(if idle > ALERT { SLEEP } else { NAP });
        ASLEEP.store(false, Ordering::Relaxed);
    }
}
