//! From a socket into a mirror: the kernel's tables are read, then followed.

use crate::message::{Body, Dump, Family, Messages, flags, use_neighbour};
use crate::mirror::{Event, Mirror, Ports};
use crate::socket::{Received, Socket};
use crate::{Error, RECEIVE_BUFFER};
use rustix::io::Errno;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

/// How far a call to [`Follower::read`] came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All tables have been read for the first time: build from [`Follower::mirror`], then follow events. There may be more to read.
    Loaded,
    /// There may be more to read.
    More,
    /// There is nothing more to read until the socket is readable.
    Idle,
}

/// Numbers of what a follower has met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages, of dumps and of changes.
    pub messages: u64,
    /// Messages that are not what they should be.
    pub malformed: u64,
    /// Times that messages were lost.
    pub overflows: u64,
    /// Dumps of all tables that are complete. Those of IPv6 routes alone are not among them.
    pub dumps: u64,
    /// Dumps that the kernel or a loss interrupted.
    pub interrupted: u64,
}

/// The dump that goes on.
#[derive(Clone, Copy, Debug)]
struct Step {
    /// Its place in [`Dump::ALL`].
    at: usize,
    sequence: u32,
    /// Messages of it that were read.
    messages: u64,
    /// Parts of it may be missing.
    torn: bool,
    /// Earlier ones of this round are missing, or parts of them may be.
    partial: bool,
    /// It may have passed over what is there, as other entries went away.
    shrunk: bool,
}

impl Step {
    /// The kernel has removed something, or may have.
    fn shrink(&mut self) {
        self.shrunk |= self.at == V6_ROUTES;
    }
}

/// A mirror that follows the kernel of this network namespace. It has no thread and no clock: who holds it waits for its descriptor,
/// calls [`Follower::read`], and now and then [`Follower::resync`] while [`Follower::is_in_doubt`].
///
/// ```
/// use kernel::{Follower, Ports, Progress};
///
/// let mut follower = Follower::open(Ports::All)?;
/// while follower.read(64, &mut |_| {})? != Progress::Loaded {}
/// for (prefix, target) in follower.mirror().routes() {
///     println!("{prefix} {target:?}");
/// }
/// // From here on, events say what changes.
/// while follower.read(64, &mut |event| println!("{event:?}"))? != Progress::Idle {}
/// # Ok::<(), kernel::Error>(())
/// ```
#[derive(Debug)]
pub struct Follower {
    socket: Socket,
    mirror: Mirror,
    step: Option<Step>,
    sequence: u32,
    /// Dumps of IPv6 routes in a row that may have passed over some. What any of them has shown counts as shown.
    shrunk: u32,
    /// There was a doubt since the first of them: what they have shown may be gone.
    stale: bool,
    counts: Counts,
    /// The kernel does not let this process use neighbours.
    refuses: bool,
}

impl Follower {
    /// Subscribes to changes, and asks for the first table.
    ///
    /// # Errors
    ///
    /// [`Error::Socket`].
    pub fn open(ports: Ports) -> Result<Self, Error> {
        Self::with_buffer(ports, RECEIVE_BUFFER)
    }

    /// As [`Follower::open`], with a receive buffer of so many bytes instead of [`RECEIVE_BUFFER`].
    ///
    /// # Errors
    ///
    /// [`Error::Socket`].
    pub fn with_buffer(ports: Ports, receive_buffer: usize) -> Result<Self, Error> {
        let socket = Socket::open(receive_buffer)?;
        let (mirror, counts) = (Mirror::new(ports), Counts::default());
        let mut follower =
            Self { socket, mirror, step: None, sequence: 0, shrunk: 0, stale: false, counts, refuses: false };
        follower.ask(0, false)?;
        Ok(follower)
    }

    /// The tables.
    #[must_use]
    pub fn mirror(&self) -> &Mirror {
        &self.mirror
    }

    /// The tables, to name ports anew ([`Mirror::set_ports`]).
    pub fn mirror_mut(&mut self) -> &mut Mirror {
        &mut self.mirror
    }

    /// Returns the numbers of what it has met.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns the bytes of the receive buffer, if the kernel has given fewer than were asked for: without CAP_NET_ADMIN no more than
    /// `net.core.rmem_max`.
    #[must_use]
    pub fn cut_buffer(&self) -> Option<usize> {
        self.socket.cut_buffer()
    }

    /// Returns whether the tables may differ from the kernel's, and no dump goes on: time for [`Follower::resync`].
    #[must_use]
    pub fn is_in_doubt(&self) -> bool {
        self.step.is_none() && (self.mirror.is_in_doubt() || !self.mirror.is_loaded() || self.shrunk > 0)
    }

    /// Returns whether a dump goes on.
    #[must_use]
    pub fn is_dumping(&self) -> bool {
        self.step.is_some()
    }

    /// Returns how far the dump that goes on has come: its number, and the messages of it that were read. `None` if none goes on. One whose
    /// answer was lost, or for which the kernel has found no memory, comes no further: [`Follower::give_up`].
    #[must_use]
    pub fn progress(&self) -> Option<(u32, u64)> {
        self.step.map(|step| (step.sequence, step.messages))
    }

    /// Waits for the dump that goes on no longer; what still comes of it is passed over. Does nothing if none goes on.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] if one went on. The tables are in doubt then.
    pub fn give_up(&mut self) -> Result<(), Error> {
        let silence = Errno::TIMEDOUT.raw_os_error().saturating_neg();
        self.step.map_or(Ok(()), |step| Err(self.refuse(step, silence)))
    }

    /// Has all tables dumped and compared, while the old ones stay in force; differences are told as any change. If there is no doubt
    /// but that the last dump of IPv6 routes may have passed over some, these alone are dumped again. Does nothing while a dump goes
    /// on. A dump costs the kernel about 0.7 us a route, so with a full table leave a second between two.
    ///
    /// # Errors
    ///
    /// [`Error::Socket`].
    pub fn resync(&mut self) -> Result<(), Error> {
        if self.step.is_some() {
            return Ok(());
        }
        let in_doubt = self.mirror.take_doubt() || !self.mirror.is_loaded();
        if self.shrunk > 0 && !in_doubt {
            return self.ask(V6_ROUTES, true);
        }
        self.stale |= self.shrunk > 0;
        self.ask(0, false)
    }

    /// Has the kernel do with these neighbours, by interface and address, as if a packet went to each: whether one that is STALE is still
    /// there it asks, and where one is that has failed or is not known. Others stay as they are. It does not wait for answers, of which
    /// there are none but errors. Give some hundreds at once at most.
    ///
    /// # Errors
    ///
    /// [`Error::Socket`].
    pub fn use_neighbours(&self, neighbours: &[(u32, IpAddr)]) -> Result<(), Error> {
        let mut requests = Vec::new();
        for (interface, address) in neighbours.iter().copied() {
            match self.mirror.neighbour(interface, address) {
                None => requests.extend(use_neighbour(interface, address, true)),
                Some(known) if known.state & (STALE | FAILED) != 0 => {
                    requests.extend(use_neighbour(interface, address, false));
                }
                // Of one that is permanent the kernel would forget that.
                Some(_) => {}
            }
        }
        if requests.is_empty() { Ok(()) } else { self.socket.send(&requests) }
    }

    /// Returns whether the kernel obeys [`Follower::use_neighbours`]: not once it has refused that for want of CAP_NET_ADMIN.
    #[must_use]
    pub fn may_use_neighbours(&self) -> bool {
        !self.refuses
    }

    /// Reads at most `budget` datagrams, without waiting, and tells what changes.
    ///
    /// # Errors
    ///
    /// [`Error::Socket`]; or [`Error::Refused`], after which the tables are in doubt.
    pub fn read(&mut self, budget: usize, sink: &mut dyn FnMut(Event<'_>)) -> Result<Progress, Error> {
        let port = self.socket.port();
        for _ in 0..budget {
            let datagram = match self.socket.receive()? {
                Received::Nothing => return Ok(Progress::Idle),
                Received::Overflow => {
                    self.counts.overflows += 1;
                    self.step.iter_mut().for_each(Step::shrink);
                    self.mirror.cast_doubt();
                    continue;
                }
                Received::Datagram(datagram) => datagram,
            };
            let (mut ended, mut refused) = (None, None);
            for message in Messages::new(datagram) {
                self.counts.messages += 1;
                let Ok(message) = message else {
                    self.counts.malformed += 1;
                    self.mirror.cast_doubt();
                    continue;
                };
                let ours = |step: &&mut Step| message.port == port && message.sequence == step.sequence;
                let step = self.step.as_mut().filter(ours);
                let dumped = step.is_some();
                if let Some(step) = step {
                    step.messages += 1;
                    step.torn |= message.flags & flags::DUMP_INTR != 0;
                    match message.body {
                        Body::Error(code) if is_waiting(code) => {}
                        Body::Done(code) | Body::Error(code) if code == 0 || is_absent(code) => ended = Some(*step),
                        Body::Done(code) | Body::Error(code) => refused = Some((*step, code)),
                        _ => {}
                    }
                } else if let Body::Error(code) = message.body {
                    let is_refused = Errno::PERM.raw_os_error() == code.saturating_neg();
                    // Dumps have other numbers, those of events are no errors.
                    self.refuses |= message.port == port && message.sequence == 0 && is_refused;
                } else if may_remove_routes(&message.body) {
                    self.step.iter_mut().for_each(Step::shrink);
                }
                self.mirror.apply(&message, dumped, sink);
            }
            if let Some((step, code)) = refused {
                return Err(self.refuse(step, code));
            }
            if let Some(step) = ended
                && self.advance(step, sink)?
            {
                return Ok(Progress::Loaded);
            }
        }
        Ok(Progress::More)
    }

    fn ask(&mut self, at: usize, partial: bool) -> Result<(), Error> {
        self.sequence = self.sequence.wrapping_add(1).max(1);
        let Some(dump) = Dump::ALL.get(at) else { return Ok(()) };
        // What cannot be asked for now is still in doubt.
        self.socket.ask(*dump, self.sequence).inspect_err(|_| self.mirror.cast_doubt())?;
        // To the mirror, dumps that may have passed over routes and the one that follows them are one.
        if at != V6_ROUTES || self.shrunk == 0 {
            self.mirror.begin(*dump);
        }
        self.step = Some(Step { at, sequence: self.sequence, messages: 0, torn: false, partial, shrunk: false });
        Ok(())
    }

    /// A dump has come to its end; returns whether all tables are read for the first time.
    fn advance(&mut self, step: Step, sink: &mut dyn FnMut(Event<'_>)) -> Result<bool, Error> {
        self.step = None;
        if step.torn {
            self.counts.interrupted += 1;
            self.mirror.cast_doubt();
            if !self.mirror.is_loaded() && self.counts.interrupted <= AT_ONCE {
                self.ask(step.at, step.partial)?;
                return Ok(false);
            }
        } else if step.shrunk && self.shrunk < UNSWEPT {
            self.shrunk += 1;
        } else {
            self.mirror.finish(Dump::ALL[step.at], sink);
            if step.at == V6_ROUTES {
                self.shrunk = 0;
                if std::mem::take(&mut self.stale) {
                    self.mirror.cast_doubt();
                }
            }
        }
        let torn = step.torn || step.partial;
        if step.at + 1 < Dump::ALL.len() {
            self.ask(step.at + 1, torn)?;
            return Ok(false);
        }
        self.counts.dumps += u64::from(!torn);
        if torn || self.mirror.is_loaded() {
            return Ok(false);
        }
        let lost = self.mirror.is_in_doubt();
        self.mirror.load(sink);
        if lost {
            self.mirror.cast_doubt();
        }
        Ok(true)
    }

    fn refuse(&mut self, step: Step, code: i32) -> Error {
        self.step = None;
        self.counts.interrupted += 1;
        self.mirror.cast_doubt();
        Error::Refused { table: Dump::ALL[step.at].name(), source: Errno::from_raw_os_error(code.saturating_neg()) }
    }
}

impl AsFd for Follower {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Interrupted dumps that are repeated at once, before the tables are loaded. After that, the caller says when.
const AT_ONCE: u64 = 16;

/// The place of IPv6 routes in [`Dump::ALL`]: the last.
const V6_ROUTES: usize = Dump::ALL.len() - 1;
const _: () = assert!(matches!(Dump::ALL[V6_ROUTES], Dump::Routes(Family::V6)));

/// Dumps of IPv6 routes in a row that may have passed over some, and take nothing away. The next one does: what none of them all has shown.
/// Each passes over others, as many as went away meanwhile.
const UNSWEPT: u32 = 8;

/// NUD_STALE and NUD_FAILED.
const STALE: u16 = 0x04;
const FAILED: u16 = 0x20;

/// Whether there may be fewer IPv6 routes than before. When some are added, too, the kernel goes on with a dump by their number
/// (`fib6_dump_table`): of those behind as many are passed over as went away in front, and nothing says so.
fn may_remove_routes(body: &Body<'_>) -> bool {
    match body {
        Body::DelRoute(route) => route.family == Family::V6,
        Body::DelNextHop(_) | Body::NewLink(_) | Body::DelLink(_) | Body::DelAddress(_) => true,
        _ => false,
    }
}

/// Whether a dump has begun, but found the receive buffer full of changes: it goes on as these are read (`netlink_dump`). Where there is no
/// room for that answer either, nothing says so.
fn is_waiting(code: i32) -> bool {
    Errno::NOBUFS.raw_os_error() == code.saturating_neg()
}

/// Whether a kernel says so that has no such table: without IPv6, or before Linux 5.3.
fn is_absent(code: i32) -> bool {
    [Errno::OPNOTSUPP, Errno::AFNOSUPPORT, Errno::PROTONOSUPPORT]
        .iter()
        .any(|errno| errno.raw_os_error() == code.saturating_neg())
}
