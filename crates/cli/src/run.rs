//! A run: workers that receive or send, watched from their start until the ports are closed.

use crate::args::RunOptions;
use crate::counters::{Counters, Published};
use crate::exit::Failure;
use crate::lane::{Ended, Place, PublishedLane};
use crate::links::Links;
use crate::ports;
use crate::report::{PortTotals, Totals, read_devices, read_devices_last};
use crate::screen::Screen;
use crate::stop::Stop;
use ::lcore::Team;
use anyhow::anyhow;
use mempool::Pool;
use nic::{AnyPort, LinkStatus, Opened, Port as _, TxQueue as _};
use std::fmt;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A run that is ready to start.
#[derive(Debug)]
pub struct Run<'a> {
    /// How long it runs, and what it shows.
    pub options: &'a RunOptions,
    /// Ends it.
    pub stop: &'a Stop,
    /// Shows its totals.
    pub screen: &'a mut Screen,
    /// The queues that workers have.
    pub published: Vec<PublishedLane>,
    /// The ports, with the queues that no worker has.
    pub opened: Vec<Opened>,
    /// The pool that each port receives into.
    pub pools: &'a [Pool],
    /// Set by a signal, which then does not end the run: the workers see it, and return when they have finished. A second
    /// signal ends the process.
    pub wind_down: Option<Arc<AtomicBool>>,
    /// Is told the state of each port's link, at the start and after each look at it, once a second at least, and may give the port
    /// commands. A failure ends the run.
    pub on_link: Option<OnLink<'a>>,
}

/// Is told the state of the link of a port, by its number, and given the port.
pub struct OnLink<'a>(pub Box<Tell<'a>>);

/// What [`OnLink`] calls.
pub type Tell<'a> = dyn FnMut(usize, LinkStatus, &mut AnyPort) -> Result<(), Failure> + 'a;

impl fmt::Debug for OnLink<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnLink")
    }
}

/// A run that is over, whose ports are open.
#[derive(Debug)]
pub struct Kept {
    /// What was counted in the run.
    pub totals: Totals,
    /// The ports, with their queues.
    pub opened: Vec<Opened>,
    /// An error if a device was gone; the totals are right all the same.
    pub trouble: Result<(), Failure>,
}

/// What workers have done.
struct Worked {
    ran: Duration,
    ended: Vec<Ended>,
    trouble: Result<(), Failure>,
    /// How often the link of each port went down.
    downs: Vec<u64>,
}

impl Run<'_> {
    /// Starts the workers, each with its lcore, and watches them until a signal (see [`Self::wind_down`]), until
    /// `--duration` is over, until `finished` returns true or (with `--exit-when-idle`) nothing is left to do. Shows the totals once a second, with
    /// the lines of `notes`, which is given the totals. Then stops the workers, lets the devices send
    /// what they hold, and closes the ports. `end` takes the queues out of what a worker returns.
    ///
    /// Returns the totals, and beside them an error if a device was gone or did not close; the totals are right all the
    /// same.
    ///
    /// # Errors
    ///
    /// If workers cannot be started, or one panicked.
    pub fn supervise<F, E: Send + 'static>(
        mut self,
        members: Vec<(Option<usize>, F)>,
        finished: impl Fn(&Team<Vec<E>>) -> bool,
        notes: impl FnMut(&Totals) -> Vec<String>,
        end: impl FnMut(E) -> Ended,
    ) -> Result<(Totals, Result<(), Failure>), Failure>
    where
        F: FnOnce() -> Vec<E> + Send + 'static,
    {
        let quiesce = |opened: &mut [Opened], stop: &Stop| {
            // A port whose receive queues nobody polls has nothing to finish.
            ports::stop_receiving(opened.iter_mut().filter(|opened| opened.rx.is_empty()), stop);
        };
        let Worked { ran, ended, trouble, downs } = self.work(members, finished, notes, end, quiesce, false)?;
        let (mut totals, closed) = finish(ran, ended, self.opened, self.pools, self.stop);
        totals.ports.iter_mut().zip(downs).for_each(|(port, downs)| port.link_downs = downs);
        Ok((totals, trouble.and(closed)))
    }

    /// Runs like [`Self::supervise`], and leaves the ports open for another run, with the queues of the workers back. What devices have
    /// counted before is not in the totals; of what workers return, the counters are those of this run. Links are up by now: one that is
    /// down at its beginning has gone down.
    ///
    /// # Errors
    ///
    /// If workers cannot be started, one panicked, or devices are gone when the run begins. The ports are then closed.
    pub fn supervise_open<F, E: Send + 'static>(
        mut self,
        members: Vec<(Option<usize>, F)>,
        finished: impl Fn(&Team<Vec<E>>) -> bool,
        notes: impl FnMut(&Totals) -> Vec<String>,
        end: impl FnMut(E) -> Ended,
    ) -> Result<Kept, Failure>
    where
        F: FnOnce() -> Vec<E> + Send + 'static,
    {
        let (before, read) = read_devices(self.opened.iter_mut().map(|opened| &mut opened.port));
        read?;
        let Worked { ran, mut ended, trouble, downs } =
            self.work(members, finished, notes, end, |_, stop| stop.request(), true)?;
        let Self { mut opened, pools, stop, .. } = self;
        for lane in &mut ended {
            if let Some(((port, _), rx)) = lane.input.zip(lane.rx.take()) {
                opened[port].rx.push(rx);
            }
            if let Some(((port, _), tx)) = lane.output.zip(lane.tx.take()) {
                opened[port].tx.push(tx);
            }
        }
        let idle = ports::drain(&mut opened, pools, stop);
        for lane in &mut ended {
            if let Some((port, _)) = lane.output.filter(|(port, _)| !idle[*port]) {
                lane.counters.unsend(opened[port].tx.last().map_or(0, |queue| queue.in_flight() as u64));
            }
        }
        let (mut devices, read) = read_devices_last(opened.iter_mut().map(|opened| &mut opened.port));
        devices.iter_mut().zip(&before).for_each(|(device, before)| device.subtract(before));
        let mut totals = totals(ran, ended.iter().map(|lane| (lane.input, lane.output, lane.counters)), devices);
        totals.ports.iter_mut().zip(downs).for_each(|(port, downs)| port.link_downs = downs);
        Ok(Kept { totals, opened, trouble: trouble.and(read.map_err(Failure::from)) })
    }

    /// Starts the workers, and watches them to their end, which `quiesce` begins. Links that `were_up` and are down have gone down.
    fn work<F, E: Send + 'static>(
        &mut self,
        members: Vec<(Option<usize>, F)>,
        finished: impl Fn(&Team<Vec<E>>) -> bool,
        notes: impl FnMut(&Totals) -> Vec<String>,
        end: impl FnMut(E) -> Ended,
        quiesce: impl FnOnce(&mut [Opened], &Stop),
        were_up: bool,
    ) -> Result<Worked, Failure>
    where
        F: FnOnce() -> Vec<E> + Send + 'static,
    {
        let mut links = Links::of(&mut self.opened, were_up)?;
        let waker = self.stop.waker()?;
        let team = Team::start_with(members, &self.stop.flag(), move || waker.wake()).map_err(team_failure)?;
        let begun = team.begun();
        let watched = self.watch(&team, finished, notes, &mut links);
        // A device that is gone has nothing to tell; who closes it says so.
        let _ = links.look(&mut self.opened);
        quiesce(&mut self.opened, self.stop);
        let ended = team.join().map_err(team_failure)?.into_iter().flatten().map(end).collect();
        let (ran, trouble) = match watched {
            Ok(ran) => (ran, Ok(())),
            Err(failure) => (begun.elapsed(), Err(failure)),
        };
        Ok(Worked { ran, ended, trouble, downs: links.downs().collect() })
    }

    /// Watches the run until it ends, and returns how long it took. The workers continue. No descriptor of a port stays open,
    /// as the kernel may want its device back.
    fn watch<T: Send + 'static>(
        &mut self,
        team: &Team<T>,
        finished: impl Fn(&Team<T>) -> bool,
        mut notes: impl FnMut(&Totals) -> Vec<String>,
        links: &mut Links,
    ) -> Result<Duration, Failure> {
        let Self { options, stop, screen, published, opened, wind_down, on_link, .. } = self;
        let (stop, wind_down): (&Stop, _) = (stop, wind_down.as_deref());
        let mut tell = |links: &Links, opened: &mut [Opened]| match on_link {
            Some(OnLink(tell)) => {
                let mut ports = links.states().zip(opened).enumerate();
                ports.try_for_each(|(number, (state, opened))| tell(number, state, &mut opened.port))
            }
            None => Ok(()),
        };
        tell(links, opened)?;
        let is_stopped = || match wind_down {
            None => stop.is_requested(),
            Some(wind_down) => {
                wind_down.store(stop.is_signalled(), Ordering::Relaxed);
                stop.flag().is_requested()
            }
        };
        let event_fds = ports::event_fds(opened.iter())?;
        let looks = opened.iter().any(|opened| opened.port.event_fds().is_empty());
        let mut idle = IdleWatch::new(published.iter().map(|lane| Arc::clone(&lane.counters)).collect());
        let end = options.duration.and_then(|duration| team.begun().checked_add(duration));
        let mut tick = team.begun() + TICK;
        while !is_stopped() && !finished(team) {
            let now = Instant::now();
            let is_over = end.is_some_and(|end| now >= end);
            if is_over || (options.exit_when_idle && idle.is_idle(opened.iter().map(|opened| &opened.port))) {
                break;
            }
            if now >= tick {
                let lanes = published.iter().map(|lane| (lane.input, lane.output, lane.counters.read()));
                let (devices, read) = read_devices(opened.iter_mut().map(|opened| &mut opened.port));
                let mut totals = totals(team.begun().elapsed(), lanes, devices);
                totals.notes = notes(&totals);
                read?;
                screen.update(totals);
                // Of seconds that this process was stopped for, or its output stalled, one is shown.
                while tick <= now {
                    tick += TICK;
                }
            }
            let mut until = end.map_or(tick, |end| end.min(tick));
            if looks {
                until = until.min(now + LINK_CHECK);
            }
            if options.exit_when_idle {
                until = until.min(now + IDLE_CHECK);
            }
            stop.wait(until.saturating_duration_since(Instant::now()), event_fds.iter().map(OwnedFd::as_fd));
            links.look(opened)?;
            tell(links, opened)?;
        }
        Ok(team.begun().elapsed())
    }
}

/// How often the live table is renewed.
const TICK: Duration = Duration::from_secs(1);
/// How often to look at links of which no descriptor tells.
const LINK_CHECK: Duration = Duration::from_millis(100);
/// How often to look whether all is idle.
const IDLE_CHECK: Duration = Duration::from_millis(5);

/// Port and number of a receive queue, of a transmit queue, and what was counted between them.
type Counted = (Option<Place>, Option<Place>, Counters);

/// Adds up what queues have counted, beside what devices have.
fn totals(elapsed: Duration, lanes: impl Iterator<Item = Counted>, ports: Vec<PortTotals>) -> Totals {
    let mut totals = Totals { seconds: elapsed.as_secs_f64(), ports, ..Totals::default() };
    for (input, output, counters) in lanes {
        totals.counters += counters;
        if let Some((port, queue)) = input {
            totals.ports[port].add_rx(queue, &counters);
        }
        if let Some((port, queue)) = output {
            totals.ports[port].add_tx(queue, &counters);
        }
    }
    totals
}

/// Reads the devices' counters, lets the devices send what they hold, counts what they did not and what nobody has
/// looked at, and closes them. `pools` has the pool of each port. Returns the totals of a run that took as long as
/// `ran`, and beside them an error if a device is gone or does not close.
pub fn finish(
    ran: Duration,
    mut ended: Vec<Ended>,
    mut opened: Vec<Opened>,
    pools: &[Pool],
    stop: &Stop,
) -> (Totals, Result<(), Failure>) {
    // Where each transmit queue is among those of its port.
    let give_back = |lane: &mut Ended| {
        let (port, _) = lane.output?;
        opened[port].tx.push(lane.tx.take()?);
        Some((port, opened[port].tx.len() - 1))
    };
    let outputs: Vec<_> = ended.iter_mut().map(give_back).collect();
    let (devices, read) = read_devices_last(opened.iter_mut().map(|opened| &mut opened.port));
    let idle = ports::drain(&mut opened, pools, stop);
    stop.closing();
    for (lane, output) in ended.iter_mut().zip(outputs) {
        if let Some((port, at)) = output {
            ports::count_unsent(&opened[port].tx[at], idle[port], &mut lane.counters);
        }
        if let Some((rx, (port, _))) = lane.rx.as_mut().zip(lane.input) {
            ports::count_unread(rx, &pools[port], &mut lane.counters);
        }
    }
    let totals = totals(ran, ended.iter().map(|lane| (lane.input, lane.output, lane.counters)), devices);
    drop(ended);
    let mut result = read.map_err(Failure::from);
    for opened in opened {
        result = result.and(opened.close().map(drop).map_err(Failure::from));
    }
    (totals, result)
}

/// Returns the error of a team in the words of the command line.
fn team_failure(error: ::lcore::Error) -> Failure {
    match error {
        ::lcore::Error::Pin { lcore, error } => {
            anyhow!("lcore {lcore}: cannot pin a thread to it: {error}; choose another with --lcores").into()
        }
        ::lcore::Error::Panicked { .. } => {
            anyhow!("worker: stopped by a fault in this program; please report the message above").into()
        }
        other => anyhow::Error::from(other).into(),
    }
}

/// Determines when nothing is left to do: every source has played, every frame has been sent (or never will be, as the
/// wire is gone), and all workers have polled all their queues since then and found nothing.
struct IdleWatch {
    published: Vec<Arc<Published>>,
    /// Publications when sources and transmit rings were first found done.
    since: Option<Vec<u64>>,
}

impl IdleWatch {
    /// Creates it for workers that publish to `published`.
    fn new(published: Vec<Arc<Published>>) -> Self {
        Self { published, since: None }
    }

    /// Returns whether all is idle; to be called repeatedly.
    fn is_idle<'a>(&mut self, mut ports: impl Iterator<Item = &'a AnyPort>) -> bool {
        if !ports.all(|port| port.source_finished() && (port.transmit_idle() || port.wire_gone())) {
            self.since = None;
            return false;
        }
        let Some(since) = &self.since else {
            self.since = Some(self.published.iter().map(|published| published.publications()).collect());
            return false;
        };
        // The first publication may cover a time before; the second covers a time after, all of it.
        let mut all = true;
        for (published, since) in self.published.iter().zip(since) {
            let passed = published.publications() - since;
            if published.idle() < passed {
                // Something moved: once more.
                self.since = None;
                return false;
            }
            all &= passed >= 2;
        }
        all
    }
}
