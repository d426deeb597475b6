//! The thread that watches a device, and brings it up again when it has gone away; and what it shares with the port.

use crate::negotiate::{self, Agreed};
use crate::pools::Mapping;
use crate::session::Shared;
use crate::transport::{Attention, Transport};
use crate::{Config, Error, Result};
use device::{Deadline, Expired, TimeLimit};
use mempool::Pool;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What the port and its keeper share.
pub(crate) struct ControlSide<T: Transport> {
    pub(crate) config: Config,
    pool: Pool,
    live: Mutex<Live<T>>,
    /// A session has begun, or there will be none.
    pub(crate) changed: Condvar,
    /// Ends the keeper, and what it is doing.
    stop: Arc<AtomicBool>,
    lines: Mutex<LineLimit>,
}

pub(crate) struct Live<T: Transport> {
    /// Of the present session.
    pub(crate) agreed: Option<Agreed<T>>,
    pub(crate) mac: Option<[u8; 6]>,
    /// Why there is no session.
    pub(crate) trouble: Option<Error>,
    /// The keeper has panicked: nobody watches the device any more.
    pub(crate) unwatched: bool,
}

/// How often the keeper looks at the device, and for one that is not there.
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

/// The end of taking memory back from a device that could not be brought up.
pub(crate) fn giving_up(limit: &TimeLimit) -> Deadline {
    TimeLimit { total: limit.total.min(GRACE), cancel: None }.begin()
}

impl<T: Transport> ControlSide<T> {
    pub(crate) fn new(config: &Config, pool: &Pool) -> Self {
        let live = Live { agreed: None, mac: None, trouble: None, unwatched: false };
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

    /// Has the keeper end, within 20 ms or the time that its device takes for what it is asked.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Ends on what [`Self::stop`] says, but not on the user's flag: a session that has begun goes on until it is closed.
    fn begin(&self) -> Deadline {
        TimeLimit { total: self.config.time_limit.total, cancel: Some(Arc::clone(&self.stop)) }.begin()
    }

    pub(crate) fn bring_up(&self, shared: &Shared<T>) -> Result<()> {
        let agreed = negotiate::start(shared, &self.config, &self.pool)?;
        let features = agreed.features;
        let mut live = self.live();
        live.mac = agreed.net.mac.or(live.mac);
        (live.agreed, live.trouble) = (Some(agreed), None);
        drop(live);
        self.changed.notify_all();
        if let Some(left_out) = self.may_log() {
            tracing::info!("{}: in use: {features}{left_out}", shared.transport.name());
        }
        Ok(())
    }

    /// Starts the thread that watches the device. It has no deadline set.
    pub(crate) fn keep(self: &Arc<Self>, shared: &Arc<Shared<T>>) -> Result<JoinHandle<()>> {
        let (control, shared) = (Arc::clone(self), Arc::clone(shared));
        let name = shared.transport.name().to_owned();
        let thread = std::thread::Builder::new().name("virtio-keeper".to_owned());
        let keeper = move || {
            if catch_unwind(AssertUnwindSafe(|| control.watch(&shared))).is_err() {
                // Written down before anything is said: the log may be what panics.
                control.live().unwatched = true;
                control.changed.notify_all();
                let say = || tracing::error!("{}", unwatched(shared.transport.name()));
                let _ = catch_unwind(AssertUnwindSafe(say));
            }
        };
        thread.spawn(keeper).map_err(|source| {
            device::Error::system("start a thread to watch", name, source, "raise the limit of processes").into()
        })
    }

    fn watch(&self, shared: &Shared<T>) {
        let name = shared.transport.name();
        let (mut back_off, mut begun) = (BackOff::default(), Instant::now());
        while !self.stop.load(Ordering::Relaxed) {
            let mut pause = Duration::ZERO;
            if shared.is_on() {
                let lost = match (shared.transport.watch(TICK), shared.fault()) {
                    (Attention::Lost(reason), _) => reason.to_owned(),
                    (Attention::None, Some(fault)) => fault.to_string(),
                    (Attention::None, None) => {
                        self.map_pools(shared);
                        continue;
                    }
                };
                self.live().agreed = None;
                pause = back_off.after(begun.elapsed());
                if let Some(left_out) = self.may_log() {
                    tracing::warn!("{name}: {lost}; starting again in {} ms{left_out}", pause.as_millis());
                }
            }
            match self.start_again(shared, pause) {
                Ok(()) => begun = Instant::now(),
                Err(error) => {
                    // Looking for a device that is not there costs it nothing.
                    let absent = matches!(error, Error::NoPeer { .. } | Error::Device(_));
                    let pause = if absent { TICK } else { back_off.after(Duration::ZERO).max(TICK) };
                    self.note(error);
                    // An error says that the port is being closed.
                    let _ = self.begin_for(pause).sleep(pause);
                }
            }
        }
    }

    /// Ends the session, which nobody need wait for, and begins the next one after a pause.
    fn start_again(&self, shared: &Shared<T>, pause: Duration) -> Result<()> {
        shared.transport.set_deadline(Some(self.begin()));
        let ended = shared.end();
        if ended.is_ok() && self.begin_for(pause).sleep(pause).is_ok() {
            shared.transport.set_deadline(Some(self.begin()));
            let result = self.bring_up(shared);
            shared.transport.set_deadline(None);
            return result;
        }
        shared.transport.set_deadline(None);
        ended
    }

    /// A deadline that outlasts a pause.
    fn begin_for(&self, pause: Duration) -> Deadline {
        TimeLimit { total: pause + TICK, cancel: Some(Arc::clone(&self.stop)) }.begin()
    }

    /// Maps the pools that queues have met packets of. One that the device does not take is not offered again.
    fn map_pools(&self, shared: &Shared<T>) {
        while let Some(pool) = shared.pools.wanted() {
            shared.transport.set_deadline(Some(self.begin()));
            let mapped = shared.transport.dma().map(pool.memory());
            shared.transport.set_deadline(None);
            match mapped {
                Ok(translation) => shared.pools.answer(&pool, Mapping::Known(translation)),
                // It was not refused: the device is gone, and the next one is asked again.
                Err(_) if shared.transport.watch(Duration::ZERO) != Attention::None => return,
                Err(error) => {
                    shared.pools.answer(&pool, Mapping::Refused);
                    if let Some(left_out) = self.may_log() {
                        let name = shared.transport.name();
                        tracing::error!("{name}: a packet pool cannot be mapped: {error}{left_out}");
                    }
                }
            }
        }
    }

    /// Logs what is in the way, once.
    fn note(&self, error: Error) {
        let text = error.to_string();
        let known = self.live().trouble.replace(error).is_some_and(|known| known.to_string() == text);
        if !known && let Some(left_out) = self.may_log() {
            tracing::warn!("{text}{left_out}");
        }
    }

    /// What to put behind a line of the log, if there may be one now.
    fn may_log(&self) -> Option<String> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let left_out = lines.next(Instant::now())?;
        Some(if left_out == 0 { String::new() } else { format!(" ({left_out} lines were left out before this)") })
    }
}

/// What is wrong when nobody watches a device.
pub(crate) fn unwatched(device: &str) -> Error {
    Error::Unwatched { device: device.to_owned() }
}

/// Keeps restarts apart: none, then 50 ms, doubling to 5 s, until a session has held for four times as long (200 ms at
/// least, 5 s at most).
#[derive(Debug, Default)]
struct BackOff {
    next: Duration,
}

impl BackOff {
    const FIRST: Duration = Duration::from_millis(50);
    const LONGEST: Duration = Duration::from_secs(5);

    /// The pause after a session that held for so long.
    fn after(&mut self, held: Duration) -> Duration {
        if held >= (4 * self.next.max(Self::FIRST)).min(Self::LONGEST) {
            self.next = Duration::ZERO;
        }
        let pause = self.next;
        self.next = (2 * pause).clamp(Self::FIRST, Self::LONGEST);
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
    /// The number of lines that were left out before this one; `None` leaves this one out.
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

    #[test]
    fn short_sessions_back_off_and_a_long_one_ends_that() {
        let mut back_off = BackOff::default();
        let ms = Duration::from_millis;
        let pauses: Vec<u128> = (0..10).map(|_| back_off.after(ms(7)).as_millis()).collect();
        assert_eq!(pauses, [0, 50, 100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(back_off.after(ms(4999)), ms(5000));
        assert_eq!(back_off.after(ms(5000)), ms(0));
        assert_eq!(back_off.after(ms(199)), ms(50));
        assert_eq!(back_off.after(ms(400)), ms(0));
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
