//! A thread that follows the kernel.

use crate::{Error, Plane, Port, Report};
use kernel::{Follower, Ipsec, Ports, Progress};
use router::LiveFib;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use std::os::fd::{AsFd as _, OwnedFd};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A plane that follows the kernel's tables, for a thread of its own: [`Runner::run`].
///
/// ```
/// use plane::{Port, Runner};
/// use router::{Interface, LiveConfig, LiveFib};
/// use std::time::Duration;
///
/// let fib = LiveFib::new(&LiveConfig::default(), &[Interface { mac: [2, 0, 0, 0, 1, 0], promiscuous: false, mtu: 1500 }])?;
/// let forwarder = fib.forwarder();
/// let runner = Runner::open(fib, &[Port { name: "rw0".to_owned(), index: None, mtu: 1500 }])?;
/// let handle = runner.handle();
/// let thread = std::thread::spawn(move || runner.run());
/// assert!(handle.wait_ready(Duration::from_secs(60)));
/// println!("{:?}", handle.report());
/// handle.stop();
/// thread.join().unwrap()?;
/// # drop(forwarder);
/// # Ok::<(), plane::Error>(())
/// ```
#[derive(Debug)]
pub struct Runner {
    follower: Follower,
    plane: Plane,
    ipsec: Option<Ipsec>,
    /// The kernel does not say whether there are IPsec policies.
    hides_ipsec: bool,
    shared: Arc<Shared>,
    /// Why the kernel could not be followed lately.
    trouble: Option<kernel::Error>,
    /// When the last dump began, after the start, and before what time none begins that compares.
    dump: Duration,
    next_dump: Duration,
    silence: Silence,
}

/// Asks and stops a [`Runner`], from any thread. See there for an example.
#[derive(Clone, Debug)]
pub struct Handle(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    wake: OwnedFd,
    stop: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    ready: bool,
    ended: bool,
    report: Report,
}

impl Runner {
    /// Subscribes to the changes of this thread's network namespace, for a table without routes whose ports are these.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] if there is no socket for it, [`Error::Wake`] if there is no eventfd, and those of [`Plane::new`].
    pub fn open(fib: LiveFib, ports: &[Port]) -> Result<Self, Error> {
        Self::new(Follower::open(Ports::All)?, Plane::new(fib, ports)?)
    }

    /// Of a follower that has read nothing yet, and a plane that has been told nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Wake`]; [`Error::Kernel`] if there is no socket to ask for IPsec policies by.
    pub fn new(follower: Follower, plane: Plane) -> Result<Self, Error> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake = eventfd(0, flags).map_err(|source| Error::Wake { operation: "make", source })?;
        let (stop, state) = (AtomicBool::new(false), Mutex::default());
        let shared = Arc::new(Shared { wake, stop, state, changed: Condvar::new() });
        let ipsec = Ipsec::open()?;
        Ok(Self {
            follower,
            plane,
            ipsec,
            hides_ipsec: false,
            shared,
            trouble: None,
            dump: Duration::ZERO,
            next_dump: Duration::ZERO,
            silence: Silence::default(),
        })
    }

    /// Returns what other threads ask and stop it by.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle(Arc::clone(&self.shared))
    }

    /// Follows the kernel until [`Handle::stop`]; afterwards, and when a runner is dropped, forwarders leave all packets to the kernel. While the kernel's tables cannot be read, the last ones stay in force, and it tries again
    /// every second.
    ///
    /// # Errors
    ///
    /// [`Error::Wake`] if the kernel cannot be waited for.
    pub fn run(mut self) -> Result<(), Error> {
        self.follow()
    }

    fn follow(&mut self) -> Result<(), Error> {
        let mut messages = 0;
        self.look();
        let (start, mut next_tick, mut next_report) = (Instant::now(), Duration::ZERO, Duration::ZERO);
        let mut rebound = self.plane.ports.rebound;
        while !self.shared.stop.load(Ordering::Acquire) {
            let next = self.read(start.elapsed());
            let now = start.elapsed();
            if now >= next_tick {
                self.plane.tick(now);
                next_tick = now + self.plane.next_tick();
            }
            if std::mem::replace(&mut rebound, self.plane.ports.rebound) != rebound {
                self.publish();
            }
            if now >= next_report {
                next_report = now + Duration::from_secs(1);
                self.look();
                self.publish();
            }
            if next != Next::Read {
                // What cannot be asked for now is named again in a second.
                let _ = self.follower.use_neighbours(&self.plane.take_asked());
                if std::mem::replace(&mut messages, self.follower.counts().messages) != self.follower.counts().messages
                {
                    self.wait(false, BETWEEN_READS)?;
                    continue;
                }
                let mut until = next_tick.min(next_report);
                if self.follower.is_in_doubt() {
                    until = until.min(self.next_dump);
                }
                self.wait(next == Next::Wait, until.saturating_sub(now))?;
            }
        }
        self.publish();
        Ok(())
    }

    /// Looks at what the kernel does not tell of by itself.
    fn look(&mut self) {
        self.plane.set_asking(self.follower.may_use_neighbours());
        self.plane.set_neighbour_limits(numbers("neigh/default/gc_thresh3"));
        self.plane.set_hash_policies(numbers("fib_multipath_hash_policy"));
        for (index, name) in self.plane.some_interfaces() {
            self.plane.set_ipv6_mtu(index, number("ipv6", &format!("conf/{name}/mtu")));
        }
        self.look_at_ipsec();
    }

    fn look_at_ipsec(&mut self) {
        let Some(ipsec) = &mut self.ipsec else { return };
        let policies = ipsec.policies();
        self.hides_ipsec = policies.is_none();
        if let Some(policies) = policies {
            self.plane.set_ipsec(policies > 0);
        }
    }

    /// Reads what there is to read, or some of much.
    fn read(&mut self, now: Duration) -> Next {
        let Self { follower, plane, .. } = self;
        let was_dumping = follower.is_dumping();
        let read = follower.read(DATAGRAMS, &mut |event| plane.apply(event));
        if read == Ok(Progress::Loaded) {
            plane.load(follower.mirror());
            // Who sees that it is ready sees the report of what was read.
            self.publish();
            self.shared.update(|state| state.ready = true);
        }
        let Self { follower, silence, .. } = self;
        let answered = if silence.has_lasted(follower.progress(), now) { follower.give_up() } else { Ok(()) };
        if was_dumping && !follower.is_dumping() {
            // Half of the time at most is spent on dumps.
            self.next_dump = now + now.saturating_sub(self.dump).max(BETWEEN_DUMPS);
        }
        let mut asked = Ok(());
        if follower.is_in_doubt() && now >= self.next_dump {
            (self.dump, self.next_dump) = (now, now + RETRY);
            asked = follower.resync();
        }
        match read.and_then(|progress| answered.and(asked).map(|()| progress)) {
            Ok(progress) => {
                if was_dumping && !self.follower.is_dumping() && !self.follower.is_in_doubt() {
                    self.trouble = None;
                }
                if progress == Progress::Idle { Next::Wait } else { Next::Read }
            }
            Err(error) => {
                self.trouble = Some(error);
                Next::Pause
            }
        }
    }

    /// Waits for a time, or to be woken, or for IPsec policies to change, which are then looked at; and if so for the kernel's tables: a
    /// socket in trouble may be readable for ever.
    fn wait(&mut self, for_kernel: bool, time: Duration) -> Result<(), Error> {
        let policies = self.ipsec.as_ref().and_then(Ipsec::changes).unwrap_or(self.shared.wake.as_fd());
        let wake = PollFd::new(&self.shared.wake, PollFlags::IN);
        let mut fds = [wake, PollFd::new(&policies, PollFlags::IN), PollFd::new(&self.follower, PollFlags::IN)];
        let waits = if for_kernel { &mut fds[..] } else { &mut fds[..2] };
        let time = Timespec::try_from(time.min(Duration::from_secs(1))).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        match poll(waits, Some(&time)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(source) => return Err(Error::Wake { operation: "wait for", source }),
        }
        let may_have_changed = !fds[1].revents().is_empty();
        if may_have_changed && self.ipsec.as_mut().is_some_and(Ipsec::has_changed) {
            let before = self.plane.ipsec;
            self.look_at_ipsec();
            if self.plane.ipsec != before {
                self.publish();
            }
        }
        Ok(())
    }

    fn publish(&self) {
        let mut report = self.plane.report();
        report.follower = self.follower.counts();
        if self.hides_ipsec {
            report.lines.push(
                "the kernel does not say whether there are IPsec policies, and packets are held to none; allow this process CAP_NET_ADMIN"
                    .to_owned(),
            );
        }
        report.lines.extend(self.follower.cut_buffer().map(|bytes| {
            format!(
                "{bytes} bytes of the kernel's changes may wait, and of more the tables are read again; allow this process CAP_NET_ADMIN, or \
                 set net.core.rmem_max to {}",
                kernel::RECEIVE_BUFFER
            )
        }));
        report.lines.extend(self.trouble.map(|error| format!("the tables are as they were: {error}")));
        self.shared.update(|state| state.report = report);
    }
}

/// Who follows the kernel no longer, whatever the reason, leaves all packets to it.
impl Drop for Runner {
    fn drop(&mut self) {
        self.plane.leave_all();
        self.shared.update(|state| state.ended = true);
    }
}

/// For how long a dump has come no further.
#[derive(Clone, Copy, Debug, Default)]
struct Silence {
    progress: Option<(u32, u64)>,
    since: Duration,
}

impl Silence {
    /// Returns whether a dump that has come so far at this time has come no further for [`PATIENCE`].
    fn has_lasted(&mut self, progress: Option<(u32, u64)>, now: Duration) -> bool {
        if progress.is_none() || progress != self.progress {
            *self = Self { progress, since: now };
        }
        progress.is_some() && now.saturating_sub(self.since) >= PATIENCE
    }
}

/// What to do after a look at the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// There may be more to read.
    Read,
    /// There is nothing more until the socket is readable.
    Wait,
    /// The socket is in trouble.
    Pause,
}

impl Handle {
    /// Has [`Runner::run`] return soon.
    pub fn stop(&self) {
        self.0.stop.store(true, Ordering::Release);
        // A full counter wakes too.
        let _ = rustix::io::write(&self.0.wake, &1_u64.to_ne_bytes());
    }

    /// Returns whether the kernel's tables have been read once: from then on forwarders do as the kernel would.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner).ready
    }

    /// Waits until the tables have been read, or the runner has ended. Returns whether they have.
    #[must_use]
    pub fn wait_ready(&self, most: Duration) -> bool {
        let state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waits = |state: &mut State| !state.ready && !state.ended;
        let waited = self.0.changed.wait_timeout_while(state, most, waits);
        waited.unwrap_or_else(PoisonError::into_inner).0.ready
    }

    /// Returns what the table held a second ago at most, or when the runner ended.
    #[must_use]
    pub fn report(&self) -> Report {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner).report.clone()
    }
}

impl Shared {
    fn update(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }
}

/// A setting of IPv4 and IPv6, where this namespace shows it.
fn numbers<N: FromStr>(setting: &str) -> [Option<N>; 2] {
    ["ipv4", "ipv6"].map(|family| number(family, setting))
}

fn number<N: FromStr>(family: &str, setting: &str) -> Option<N> {
    let text = std::fs::read_to_string(format!("/proc/sys/net/{family}/{setting}")).ok()?;
    text.trim().parse().ok()
}

/// From when all that there was has been read to the next look: who changes many routes tells of each by itself, and to be woken for each
/// would cost more than to read it.
pub const BETWEEN_READS: Duration = Duration::from_micros(500);
/// Datagrams that are read before time and stop are looked at.
const DATAGRAMS: usize = 64;
/// From the end of one dump to the begin of the next, at least.
const BETWEEN_DUMPS: Duration = Duration::from_millis(50);
/// From when a dump that could not begin was asked for to the next time.
const RETRY: Duration = Duration::from_secs(1);
/// How long a dump of which nothing comes is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_of_which_nothing_comes_is_given_up() {
        let mut silence = Silence::default();
        let mut at = |seconds, progress| silence.has_lasted(progress, Duration::from_secs(seconds));
        let shown = [
            (0, Some((1, 0)), false),
            (9, Some((1, 0)), false),
            (9, Some((1, 1)), false),
            (18, Some((1, 1)), false),
            // Another dump is another one, however far it has come.
            (20, Some((2, 1)), false),
            (29, Some((2, 1)), false),
            (30, Some((2, 1)), true),
            (31, None, false),
            (90, None, false),
            (91, Some((3, 0)), false),
            (100, Some((3, 0)), false),
            (101, Some((3, 0)), true),
        ];
        for (seconds, progress, expected) in shown {
            assert_eq!(at(seconds, progress), expected, "{seconds} s");
        }
    }
}
