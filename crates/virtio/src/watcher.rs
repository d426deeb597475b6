//! The thread that watches a device, and brings it up again when it has gone away; and what it shares with the port.

use crate::control::SET_MAC;
use crate::negotiate::{self, Agreed};
use crate::pools::Mapping;
use crate::session::Shared;
use crate::transport::{CONNECT, Transport, status};
use crate::{Config, Error, Result};
use device::{Deadline, Expired, TimeLimit};
use mempool::Pool;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What the port and its watcher share.
pub(crate) struct ControlSide<T: Transport> {
    pub(crate) config: Config,
    pool: Pool,
    live: Mutex<Live<T>>,
    /// A session has begun, or there will be none.
    pub(crate) changed: Condvar,
    /// Ends the watcher, and what it is doing.
    stop: Arc<AtomicBool>,
    lines: Mutex<LineLimit>,
}

pub(crate) struct Live<T: Transport> {
    /// The settings, with what was changed since the port was opened: a device that starts again is told all of it.
    pub(crate) wanted: Config,
    /// Of the present session.
    pub(crate) agreed: Option<Agreed<T>>,
    pub(crate) mac: Option<[u8; 6]>,
    /// Why there is no session.
    pub(crate) trouble: Option<Error>,
    /// The watcher has panicked: nobody watches the device any more.
    pub(crate) unwatched: bool,
}

/// How often the watcher looks at the device.
pub(crate) const TICK: Duration = Duration::from_millis(50);
/// What taking memory back from a device may take where nobody waits for the rest of the operation.
const GRACE: Duration = Duration::from_secs(1);

/// The end of an operation that takes memory back from a device. The cancel flag does not end it, since it is set in order
/// to get here; it makes it shorter.
pub(crate) fn closing(limit: &TimeLimit) -> Deadline {
    let cancelled = limit.begin().check() == Err(Expired::Cancelled);
    let total = if cancelled { limit.total.min(GRACE) } else { limit.total };
    TimeLimit { total, cancel: None }.begin()
}

/// What becomes of a device that was started and cannot be brought up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GiveUp {
    /// It is stopped within what is left of the operation's time. What that is too short for, the next attempt begins with.
    Now,
    /// There will be no next attempt: it has [`GRACE`] more.
    ForGood,
}

impl<T: Transport> ControlSide<T> {
    pub(crate) fn new(config: &Config, pool: &Pool) -> Self {
        let live = Live { wanted: config.clone(), agreed: None, mac: None, trouble: None, unwatched: false };
        Self {
            config: config.clone(),
            pool: pool.clone(),
            live: Mutex::new(live),
            changed: Condvar::new(),
            stop: Arc::default(),
            lines: Mutex::default(),
        }
    }

    pub(crate) fn live(&self) -> MutexGuard<'_, Live<T>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the watcher end, within 20 ms or the time that its device takes for what it is asked.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Ends on what [`Self::stop`] says, but not on the user's flag: a session that has begun goes on until it is closed.
    fn begin(&self) -> Deadline {
        TimeLimit { total: self.config.port.time_limit.total, cancel: Some(Arc::clone(&self.stop)) }.begin()
    }

    /// Brings the device up, before the deadline that is set.
    pub(crate) fn bring_up(&self, shared: &Shared<T>, otherwise: GiveUp) -> Result<()> {
        let wanted = self.live().wanted.clone();
        let agreed = negotiate::start(shared, &wanted, &self.pool, || self.give_up(shared, otherwise))?;
        let features = agreed.features;
        let mut live = self.live();
        let own = wanted.mac.filter(|_| features.contains(SET_MAC));
        live.mac = own.or(agreed.net.mac).or(live.mac);
        (live.agreed, live.trouble) = (Some(agreed), None);
        drop(live);
        self.changed.notify_all();
        if let Some(left_out) = self.log_permit() {
            tracing::info!("{}: in use: {features}{left_out}", shared.transport.name());
        }
        Ok(())
    }

    /// Stops a device that could not be brought up, and takes its memory back.
    fn give_up(&self, shared: &Shared<T>, how: GiveUp) {
        let transport = &*shared.transport;
        if how == GiveUp::ForGood {
            let limit = TimeLimit { total: self.config.port.time_limit.total.min(GRACE), cancel: None };
            transport.set_deadline(Some(limit.begin()));
        }
        let told = transport.status().and_then(|now| transport.set_status(now | status::FAILED));
        if let Err(error) = told.and_then(|()| shared.end())
            && let Some(left_out) = self.log_permit()
        {
            tracing::warn!("{}: while giving up: {error}{left_out}", transport.name());
        }
    }

    /// Starts the thread that watches the device. It has no deadline set.
    pub(crate) fn start_watcher(self: &Arc<Self>, shared: &Arc<Shared<T>>) -> Result<JoinHandle<()>> {
        let (control, shared) = (Arc::clone(self), Arc::clone(shared));
        let name = shared.transport.name().to_owned();
        let thread = std::thread::Builder::new().name("virtio-watcher".to_owned());
        let watcher = move || {
            if catch_unwind(AssertUnwindSafe(|| control.watch(&shared))).is_err() {
                // Written down before anything is said: the log may be what panics.
                control.live().unwatched = true;
                control.changed.notify_all();
                let say = || tracing::error!("{}", unwatched(shared.transport.name()));
                let _ = catch_unwind(AssertUnwindSafe(say));
            }
        };
        thread.spawn(watcher).map_err(|source| {
            device::Error::system("start a thread to watch", name, source, "raise the limit of processes").into()
        })
    }

    fn watch(&self, shared: &Shared<T>) {
        let (mut restarts, mut absence) = (BackOff::new(LONGEST), BackOff::new(LONGEST_ABSENT));
        let mut begun = shared.is_on().then(Instant::now);
        let mut pause = Duration::ZERO;
        while !self.stop.load(Ordering::Relaxed) {
            if let Some(since) = begun {
                let Some(reason) = self.lost(shared) else {
                    self.map_pools(shared);
                    continue;
                };
                (begun, self.live().agreed) = (None, None);
                pause = restarts.after(since.elapsed());
                if let Some(left_out) = self.log_permit() {
                    let name = shared.transport.name();
                    tracing::warn!("{name}: {reason}; starting again in {} ms{left_out}", pause.as_millis());
                }
            }
            match self.start_again(shared, pause) {
                Ok(()) => (begun, absence) = (Some(Instant::now()), BackOff::new(LONGEST_ABSENT)),
                Err(error) => {
                    let absent = is_absent(&error);
                    pause = if absent { &mut absence } else { &mut restarts }.after(Duration::ZERO);
                    self.record_trouble(error);
                }
            }
        }
    }

    /// Returns why the session has to end; `None` if it does not. Waits up to [`TICK`] for a reason.
    fn lost(&self, shared: &Shared<T>) -> Option<String> {
        let reason = shared.transport.watch(TICK).map(str::to_owned);
        reason.or_else(|| shared.fault().map(|fault| fault.to_string()))
    }

    /// Ends the session, which nobody need wait for, and begins the next one after a pause: one operation with one deadline,
    /// of which the pause is no part. When the port is closed meanwhile, nothing begins.
    fn start_again(&self, shared: &Shared<T>, pause: Duration) -> Result<()> {
        let deadline = self.begin();
        let ended = self.within(&deadline, shared, || shared.end());
        let begun = Instant::now();
        // A pause that lasts too long, on a host that stands still, is over like any other.
        if self.begin_for(pause).sleep(pause) == Err(Expired::Cancelled) {
            return ended;
        }
        ended?;
        self.within(&deadline.after(begun.elapsed()), shared, || self.bring_up(shared, GiveUp::Now))
    }

    /// Asks something of the device that has to be done before `deadline`.
    fn within<R>(&self, deadline: &Deadline, shared: &Shared<T>, act: impl FnOnce() -> R) -> R {
        shared.transport.set_deadline(Some(deadline.clone()));
        let result = act();
        shared.transport.set_deadline(None);
        result
    }

    /// Returns a deadline that outlasts a pause.
    fn begin_for(&self, pause: Duration) -> Deadline {
        TimeLimit { total: pause + TICK, cancel: Some(Arc::clone(&self.stop)) }.begin()
    }

    /// Maps the pools that queues have met packets of. One that the device does not take is not offered again.
    fn map_pools(&self, shared: &Shared<T>) {
        while let Some(pool) = shared.pools.next_unmapped() {
            let mapped = self.within(&self.begin(), shared, || shared.transport.dma().map(pool.memory()));
            match mapped {
                Ok(translation) => shared.pools.set_mapping(&pool, Mapping::Known(translation)),
                // It was not refused: the device is gone, and the next one is asked again.
                Err(_) if shared.transport.watch(Duration::ZERO).is_some() => return,
                Err(error) => {
                    shared.pools.set_mapping(&pool, Mapping::Refused);
                    if let Some(left_out) = self.log_permit() {
                        let name = shared.transport.name();
                        tracing::error!("{name}: a packet pool cannot be mapped: {error}{left_out}");
                    }
                }
            }
        }
    }

    /// Records why there is no session, and logs it unless it is the same as before.
    fn record_trouble(&self, error: Error) {
        let text = error.to_string();
        let known = self.live().trouble.replace(error).is_some_and(|known| known.to_string() == text);
        if !known && let Some(left_out) = self.log_permit() {
            tracing::warn!("{text}{left_out}");
        }
    }

    /// Returns what to append to a line of the log; `None` if no line may be logged now.
    fn log_permit(&self) -> Option<String> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let left_out = lines.next(Instant::now())?;
        Some(if left_out == 0 { String::new() } else { format!(" ({left_out} lines were left out before this)") })
    }
}

/// Returns the error for a device whose watcher has panicked.
pub(crate) fn unwatched(device: &str) -> Error {
    Error::Unwatched { device: device.to_owned() }
}

/// Returns whether the error says that nobody is there to talk to. Looking for somebody costs neither side anything.
fn is_absent(error: &Error) -> bool {
    match error {
        Error::NoPeer { .. } => true,
        Error::Device(device::Error::System { operation: CONNECT, source, .. }) => {
            matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
        }
        _ => false,
    }
}

/// The first pause before a device is tried again.
const SHORTEST: Duration = Duration::from_millis(50);
/// The longest pause before a device whose sessions do not hold, or do not come about; one that has held for longer is
/// tried again after the shortest.
const LONGEST: Duration = Duration::from_secs(5);
/// The longest pause before a device that is not there.
const LONGEST_ABSENT: Duration = Duration::from_millis(500);

/// Pauses between attempts: 50 ms at first, then twice the one before, up to the longest.
#[derive(Debug)]
struct BackOff {
    next: Duration,
    longest: Duration,
}

impl BackOff {
    fn new(longest: Duration) -> Self {
        Self { next: SHORTEST, longest }
    }

    /// Returns the pause after a session that lasted as long as `held`.
    fn after(&mut self, held: Duration) -> Duration {
        if held > self.longest {
            self.next = SHORTEST;
        }
        let pause = self.next;
        self.next = (2 * pause).min(self.longest);
        pause
    }
}

/// Lines of the log in 10 s.
const LINES: u32 = 10;
const WINDOW: Duration = Duration::from_secs(10);

/// Keeps a log from growing without bound: so many lines, and a count of those that were left out.
#[derive(Debug, Default)]
struct LineLimit {
    begun: Option<Instant>,
    lines: u32,
    left_out: u64,
}

impl LineLimit {
    /// Returns the number of lines that were left out before this one; `None` if this one is to be left out.
    fn next(&mut self, now: Instant) -> Option<u64> {
        if self.begun.is_none_or(|begun| now.duration_since(begun) >= WINDOW) {
            (self.begun, self.lines) = (Some(now), 0);
        }
        if self.lines == LINES {
            self.left_out += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pauses(back_off: &mut BackOff, held: u64, count: usize) -> Vec<u128> {
        (0..count).map(|_| back_off.after(Duration::from_millis(held)).as_millis()).collect()
    }

    #[test]
    fn short_sessions_back_off_and_a_long_one_ends_that() {
        let mut back_off = BackOff::new(LONGEST);
        assert_eq!(pauses(&mut back_off, 0, 4), [50, 100, 200, 400]);
        assert_eq!(pauses(&mut back_off, 5000, 6), [800, 1600, 3200, 5000, 5000, 5000]);
        assert_eq!(pauses(&mut back_off, 5001, 2), [50, 50]);
        assert_eq!(pauses(&mut back_off, 250, 3), [100, 200, 400]);
    }

    #[test]
    fn what_is_not_there_is_looked_for_twice_a_second_at_least() {
        assert_eq!(pauses(&mut BackOff::new(LONGEST_ABSENT), 0, 6), [50, 100, 200, 400, 500, 500]);
    }

    #[test]
    fn only_what_is_not_there_is_absent() {
        let connect = |kind: io::ErrorKind| device::Error::system(CONNECT, "a.sock", kind, "").into();
        assert!(is_absent(&Error::NoPeer { device: "a".to_owned() }));
        assert!(is_absent(&connect(io::ErrorKind::NotFound)) && is_absent(&connect(io::ErrorKind::ConnectionRefused)));
        assert!(!is_absent(&connect(io::ErrorKind::TimedOut)));
        assert!(!is_absent(&device::Error::system("map", "memory", io::ErrorKind::NotFound, "").into()));
        assert!(!is_absent(&Error::Gone { device: "a".to_owned(), symptom: "b" }));
    }

    #[test]
    fn lines_beyond_the_limit_are_counted() {
        let mut limit = LineLimit::default();
        let begun = Instant::now();
        assert!((0..LINES).all(|_| limit.next(begun) == Some(0)));
        assert!((0..1000).all(|_| limit.next(begun + WINDOW / 2).is_none()));
        assert_eq!(limit.next(begun + WINDOW), Some(1000));
        assert_eq!(limit.next(begun + WINDOW), Some(0));
    }
}
