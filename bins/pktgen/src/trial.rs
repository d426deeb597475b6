//! `pktgen run`: sends and receives in one process, from the opening of the ports to the report.

mod direction;
pub(crate) mod figures;
mod held;
mod hosts;
mod loose;
mod narrow;
mod obey;
mod pair;
pub(crate) mod report;
mod spread;
mod teach;

use crate::args::{RunArgs, SteeredArgs};
use crate::calibrate::Floors;
use crate::clock::{Calibrated, ClockReport, ticks};
use crate::control::{Controls, Facts, Orders};
use crate::frames::{Asked, Frames, Limits};
use crate::host::Hosts;
use crate::lane::{Lane, Source};
use crate::run::{FLUSH, share_out, wait_for_links};
use ::lcore::Team;
use anyhow::anyhow;
use cli::args::RunOptions;
use cli::exit::Failure;
use cli::human::grouped;
use cli::idle::{self, IdleMode};
use cli::lane::{Ended, PublishedLane};
use cli::ports::{self, Ports};
use cli::report::Totals;
use cli::run::{Kept, Run};
use cli::screen::Screen;
use cli::stop::Stop;
use direction::{Direction, How, Progress};
use figures::{Figures, Setting};
pub(crate) use held::Held;
use measure::Clock;
use mempool::Pool;
use nic::{Address, Opened, Port as _};
pub(crate) use pair::Phase;
use pair::{COUNTED, LEARNING, Pair, Pairs, Plan};
use spread::{Group, Spread};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use teach::Teacher;

/// How often a probe is sent, and how long until one has to come back.
const PROBE_INTERVAL: Duration = Duration::from_millis(10);
const PROBE_LIMIT: Duration = Duration::from_secs(5);
/// How often a port that only receives sends a frame: most bridges forget an address after 300 s without one.
const FORGETS: Duration = Duration::from_secs(60);
/// The drain ends when all has come and nothing follows for so long, and at the latest after the second, or what the tests ask for.
const SETTLE: Duration = Duration::from_millis(50);
pub(crate) const DRAIN: Duration = Duration::from_secs(2);
/// Frames that are late by more come in a burst that is none of the rate asked for.
const LATE: Duration = Duration::from_micros(100);
/// Why the loss of frames without tags is not sure.
pub(crate) const UNTAGGED: &str =
    "without tags frames are only counted, so one that comes twice, or another's, makes good one that is lost";
/// Ticks of a part that somebody ends: centuries.
const WITHOUT_END: u64 = u64::MAX >> 2;
/// Bytes by which headers may become longer on the way.
const HEADERS: usize = 128;

/// A run that is over.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) frames: Frames,
    pub(crate) limits: Limits,
    /// The two ports of each direction.
    pub(crate) names: Vec<[String; 2]>,
    /// The rates of each port.
    pub(crate) asked: Vec<Asked>,
    pub(crate) clock: Clock,
    /// A signal ended it.
    pub(crate) cut: bool,
    /// In the order of the ports that send.
    pub(crate) figures: Vec<Figures>,
    /// Frames of earlier runs on the same ports that came after the drains of these.
    pub(crate) late: u64,
    pub(crate) totals: Totals,
    /// Why no figure holds: the clock jumped.
    pub(crate) void: Option<String>,
    /// Why probes may not arrive: which port is at an interface that is too narrow for the frames, or which two no cable connects.
    narrow: Option<String>,
    /// What made it fail, that among it.
    pub(crate) trouble: Result<(), Failure>,
}

impl Outcome {
    /// Whether all frames were sent that were to be and those under way were waited for, even if a signal came meanwhile.
    pub(crate) fn is_whole(&self) -> bool {
        self.trouble.is_ok() && self.figures.iter().all(|figures| figures.is_whole)
    }

    /// What its figures are to be read with.
    pub(crate) fn setting<'a>(&'a self, args: &'a RunArgs) -> Setting<'a> {
        let Self { frames, limits, names, asked, clock, cut, void, .. } = self;
        let (limits, cut, void) = (*limits, *cut, void.as_deref());
        Setting { args, frames, limits, names, asked, clock, cut, void, floors: None }
    }
}

/// `pktgen run`: measures, and reports.
pub(crate) fn run(args: &SteeredArgs) -> Result<(), Failure> {
    let SteeredArgs { run: args, control } = args;
    let frames = prepare(args)?;
    let floors = args.floor.as_ref().map(|path| Floors::read(path)).transpose()?;
    let controls = Controls::open(control)?;
    if !controls.are_any() {
        frames.check_patterns(&args.traffic.pace)?;
    }
    let mut stop = Stop::on_signals()?;
    if controls.are_any() {
        stop.clean_up_with(controls.clean_up())?;
    }
    let mut screen = Screen::new(args.json, args.quiet || controls.are_live());
    if let Some(address) = controls.address() {
        screen.say(&format!("control: listens at {address}"));
    }
    let outcome = perform_steered((&mut Held::default(), false), args, frames, &mut stop, &mut screen, controls)?;
    report::print(args, floors.as_ref(), outcome)
}

/// Checks the arguments of a trial, and reads what they name.
pub(crate) fn prepare(args: &RunArgs) -> Result<Frames, Failure> {
    check(args)?;
    let frames = Frames::of(&args.traffic, &args.port_options)?;
    frames.check_expected(args.expect.expect_rate)?;
    // Tags tell 65,536 numbers apart, of all directions.
    let numbers = args.ports.len() * usize::from(args.queues) * (frames.names().len() + usize::from(COUNTED));
    if args.queues > 1 && numbers > usize::from(u16::MAX) {
        let problem = format!("{} queue pairs a port are too many for so many streams and ports", args.queues);
        return Err(Failure::usage(format!("--queues: {problem}, as tags have 65,536 numbers; ask for fewer")));
    }
    Ok(frames)
}

/// Runs one trial: opens the ports, measures all directions, and closes them. Prints nothing but what `screen` shows meanwhile.
/// `frames` is what [`prepare`] has returned.
pub(crate) fn perform(
    args: &RunArgs,
    frames: Frames,
    stop: &mut Stop,
    screen: &mut Screen,
) -> Result<Outcome, Failure> {
    perform_on(&mut Held::default(), false, args, frames, stop, screen)
}

/// The same, on ports that may stay open for the next.
pub(crate) fn perform_on(
    held: &mut Held,
    stay_open: bool,
    args: &RunArgs,
    frames: Frames,
    stop: &mut Stop,
    screen: &mut Screen,
) -> Result<Outcome, Failure> {
    perform_steered((held, stay_open), args, frames, stop, screen, Controls::default())
}

/// The same, steered while it runs.
fn perform_steered(
    (held, stay_open): (&mut Held, bool),
    args: &RunArgs,
    frames: Frames,
    stop: &mut Stop,
    screen: &mut Screen,
    controls: Controls,
) -> Result<Outcome, Failure> {
    stop.renew()?;
    let stop = &*stop;
    let calibrated = Calibrated::begin();
    let Ports { mut opened, pools } = held.take(args, &frames, stop, screen)?;
    wait_for_links(&opened, stop)?;
    let narrow = narrow::of_taps(&args.ports, frames.largest());
    let lines = args.traffic.pace.lines(&args.ports, &opened)?;
    let asked = lines.iter().enumerate().map(|(port, line)| frames.asked(sender(args, port), *line));
    let asked = asked.collect::<Result<Vec<_>, _>>()?;
    let hosts = Hosts::ready(&args.hosting, &mut opened, &pools, stop)?;
    let mut clock = calibrated.clock()?;
    // The first call measures, which takes its time.
    let _ = device::tsc::frequency_hz();

    let (limits, plan) = plan(args, &frames, &clock, &controls);
    let (cut, orders) = (Arc::clone(&plan.cut), Arc::clone(&plan.orders));
    let facts = facts(args, &frames, &opened, lines, &clock, limits);
    let directions = directions(args, &frames, (&mut opened, &pools, held), &asked, &clock, hosts)?;
    let names = names(&directions, &opened);
    let (published, progress) = watched(&directions);
    let members = members(args, directions, &opened, &plan, stop)?;

    let options = RunOptions { json: args.json, quiet: args.quiet, ..RunOptions::default() };
    let wind_down = Some(Arc::clone(&cut));
    let run = Run { options: &options, stop, screen, published, opened, pools: &pools, wind_down, on_link: None };
    let steering = controls.begin(orders, facts, stop.cancel())?;
    let mut trouble = Ok(());
    let notes = |totals: &Totals| {
        // A clock that jumps makes times void, and the report says so.
        trouble = std::mem::replace(&mut trouble, Ok(())).and(calibrated.refine(&mut clock));
        steering.note(totals, ClockReport::of(&clock));
        notes(&names, &progress)
    };
    let mut figures: Vec<Figures> = Vec::new();
    let mut others = Vec::new();
    let end = |mut direction: Direction| {
        let lane = direction.end();
        // Ports that are closed now do not want them back.
        others.extend(stay_open.then(|| direction.take_others()));
        let (of_direction, rx, tx) = Figures::of(direction);
        figures.push(of_direction);
        Ended { rx: Some(rx), tx: Some(tx), ..lane }
    };
    let supervised = if stay_open {
        run.supervise_open(members, Team::all_finished, notes, end).map(|Kept { totals, mut opened, trouble }| {
            for (rx, tx) in others {
                rx.into_iter().for_each(|(port, rx)| opened[port].rx.push(rx));
                tx.into_iter().for_each(|(port, tx)| opened[port].tx.push(tx));
            }
            // Those of a device that is gone are opened anew.
            if trouble.is_ok() {
                held.put(Ports { pools, opened });
            }
            (totals, trouble)
        })
    } else {
        run.supervise(members, Team::all_finished, notes, end)
    };
    let steered = steering.end();
    let (totals, closed) = supervised?;
    // Lcores end in another order than that of the ports, which is that of the names.
    let figures = figures::of_ports(figures);
    let narrow = narrow.or_else(|| loose::of_deaf(&args.ports, &figures));
    let jumped = trouble.and(calibrated.refine(&mut clock));
    let void = jumped.as_ref().err().map(ToString::to_string);
    let late = held.take_late() + figures.iter().map(|figures| figures.late).sum::<u64>();
    let (cut, trouble) = (cut.load(Ordering::Relaxed), closed.and(jumped.map_err(Failure::from)).and(steered));
    Ok(Outcome { frames, limits, names, asked, clock, cut, figures, late, totals, void, narrow, trouble })
}

/// Refuses what no run can begin with.
fn check(args: &RunArgs) -> Result<(), Failure> {
    if args.ports.len() > 1 && args.ports.len() % 2 == 1 {
        let last = args.ports.last().map(Address::name).unwrap_or_default();
        return Err(Failure::usage(format!("{last}: has no partner; name ports in pairs, such as A B or A B C D")));
    }
    if args.expect.expect_latency_p99.is_some() && args.traffic.kind() != Some(measure::Kind::Full) {
        return Err(Failure::usage(
            "--expect-latency-p99: it is from the due time, which only a full tag has; use --tag full",
        ));
    }
    if args.expect.expect_loss.is_some() && args.traffic.kind().is_none() {
        return Err(Failure::usage(format!("--expect-loss: {UNTAGGED}; use --tag short or full")));
    }
    args.traffic.pace.check(sender(args, args.ports.len()))?;
    args.traffic.check(args.ports.len())?;
    args.hosting.check(args.ports.len())?;
    if args.queues > 1 && args.traffic.pcap.is_some() {
        return Err(Failure::usage(
            "--queues: the frames of a capture follow each other in one queue; leave out --queues or --pcap",
        ));
    }
    ports::check(&args.ports)
}

/// The port at which a port's frames arrive: a single one's at itself, over a loop.
fn partner(args: &RunArgs, port: usize) -> usize {
    if args.ports.len() == 1 { port } else { port ^ 1 }
}

/// Whether a port sends.
fn sends(args: &RunArgs, port: usize) -> bool {
    !args.one_way || port.is_multiple_of(2)
}

/// How many ports before this one send, or before its partner if it sends nothing.
fn sender(args: &RunArgs, port: usize) -> usize {
    if args.one_way { port / 2 } else { port }
}

/// What those who steer have to know.
fn facts(
    args: &RunArgs,
    frames: &Frames,
    opened: &[Opened],
    lines: Vec<Option<u64>>,
    clock: &Clock,
    limits: Limits,
) -> Facts {
    let (pace, steerable) = (&args.traffic.pace, frames.steerable());
    Facts {
        ports: opened.iter().map(|opened| opened.port.name().to_owned()).collect(),
        senders: (0..opened.len()).map(|port| sends(args, port)).collect(),
        queues: args.queues.into(),
        streams: frames.names(),
        patterns: (0..opened.len()).map(|port| frames.patterns(port, sender(args, port))).collect(),
        loads: (0..opened.len()).map(|port| frames.loads(sender(args, port))).collect(),
        steerable,
        lines,
        clock: ClockReport::of(clock),
        hz: clock.hz(),
        catch_up: ticks(clock, pace.catch_up),
        tagged: !frames.are_untagged(),
        has_end: limits.duration.is_some() || limits.count.is_some(),
    }
}

/// When the run ends, and what its lcores have to know. One that somebody ends has no end of its own.
fn plan(args: &RunArgs, frames: &Frames, clock: &Clock, controls: &Controls) -> (Limits, Plan) {
    let ticks = |time: Duration| ticks(clock, time);
    let mut limits = frames.limits(args.duration, args.count);
    if controls.are_any() && args.duration.is_none() {
        limits.duration = None;
    }
    let without_end = limits.count.is_none().then_some(WITHOUT_END);
    let plan = Plan {
        // Nobody could tell it from what counts.
        warm_up: if frames.are_untagged() { 0 } else { ticks(args.warm_up) },
        duration: limits.duration.map(ticks).or(without_end),
        count: limits.count,
        probe_interval: ticks(PROBE_INTERVAL),
        probe_limit: ticks(PROBE_LIMIT),
        settle: ticks(SETTLE),
        silence: ticks(args.around.silence.unwrap_or(DRAIN)),
        drain: ticks(args.around.silence.unwrap_or(DRAIN).max(DRAIN)),
        echo: args.around.silence.map_or(0, |_| ticks(PROBE_LIMIT)),
        learning: ticks(args.around.learning),
        learning_frames: args.around.learning_frames,
        forgets: ticks(FORGETS),
        flush: ticks(FLUSH),
        cut: Arc::default(),
        patience: ticks(DRAIN),
        orders: Arc::new(Orders::new(
            args.ports.len().div_ceil(2) * usize::from(args.queues),
            !controls.begin_stopped(),
        )),
    };
    (limits, plan)
}

/// The directions of all pairs, in the order of the ports that send.
fn directions(
    args: &RunArgs,
    frames: &Frames,
    (opened, pools, held): (&mut [Opened], &[Pool], &mut Held),
    asked: &[Asked],
    clock: &Clock,
    mut hosts: Hosts,
) -> Result<Vec<Direction>, Failure> {
    let earlier = held.earlier();
    let mut base = earlier.next();
    let mut directions = Vec::new();
    for from in (0..opened.len()).filter(|from| sends(args, *from)) {
        let to = partner(args, from);
        let mac = hosts.gateway(from).or(args.traffic.dst_mac(from)).unwrap_or(opened[to].port.mac().0);
        let macs = [opened[from].port.mac().0, mac];
        let how = how(frames, &pools[to]);
        let mut group = None;
        for queue in 0..args.queues {
            let place = (from, [queue, args.queues]);
            let sources = frames.sources_of_queue(&args.traffic, place, macs, &asked[from], clock)?;
            let (Some(tx), Some(rx)) = (first(&mut opened[from].tx), first(&mut opened[to].rx)) else { continue };
            let probe = frames.probe(&args.traffic, from, macs)?;
            let pool = held.buffers((from, queue), args, frames.largest(), opened[from].port.numa_node())?;
            let others = paces_of_overload(args, from, macs, clock)?;
            let mut lane = Lane::new(from, tx, &pool, args.port_options.batch.into(), sources).probe_with(probe);
            lane = lane.late_after(ticks(clock, LATE));
            lane.set_other_paces(others);
            let streams = lane.streams();
            let mut direction =
                Direction::new(lane, to, rx, &pools[to], base, how).verify(!args.no_verify).after(earlier);
            if args.queues > 1 {
                let group = group.get_or_insert_with(|| Group::new(base, args.queues, streams));
                direction = direction.spread(Spread::new(group, queue.into()));
            }
            directions.push(direction);
            base = base.wrapping_add(COUNTED + u16::try_from(streams).unwrap_or(u16::MAX - COUNTED));
        }
    }
    held.begun_to(base);
    hosts::attach(&mut directions, &mut hosts, opened);
    teachers(args, (opened, pools), &hosts, &mut directions)?;
    Ok(directions)
}

/// Gives ports that only receive what they send all the same: learning frames, to where they would send what counts.
fn teachers(
    args: &RunArgs,
    (opened, pools): (&mut [Opened], &[Pool]),
    hosts: &Hosts,
    directions: &mut [Direction],
) -> Result<(), Failure> {
    for direction in directions.iter_mut().filter(|one| !sends(args, one.to) && one.queue()[0] == 0) {
        let (from, to) = (direction.lane.port, direction.to);
        let mac = hosts.gateway(to).or(args.traffic.dst_mac(to)).unwrap_or(opened[from].port.mac().0);
        let lesson = Frames::small(&args.traffic, to, [opened[to].port.mac().0, mac])?;
        let teacher =
            Teacher::new(lesson, direction.base.wrapping_add(LEARNING), &pools[to], first(&mut opened[to].tx));
        direction.teacher = Some(Box::new(teacher));
    }
    Ok(())
}

/// How frames are known at a port. What is between the ports may add a header.
fn how(frames: &Frames, pool: &Pool) -> How {
    match frames.largest() + HEADERS > pool.data_room().into() {
        _ if frames.are_untagged() => How::Number,
        true => How::SplitTags,
        false => How::Tags,
    }
}

/// Takes the first of what is left.
fn first<T>(queues: &mut Vec<T>) -> Option<T> {
    (!queues.is_empty()).then(|| queues.remove(0))
}

/// Sources at the rate of an overload, if there is to be one.
fn paces_of_overload(args: &RunArgs, from: usize, macs: [[u8; 6]; 2], clock: &Clock) -> Result<Vec<Source>, Failure> {
    let Some(load) = args.around.overload else { return Ok(Vec::new()) };
    let mut traffic = args.traffic.clone();
    traffic.pace.rate = vec![load];
    let frames = Frames::of(&traffic, &args.port_options)?;
    frames.sources(&traffic, from, macs, &frames.asked(0, None)?, clock)
}

/// The two ports of each direction, as `A > B`.
fn names(directions: &[Direction], opened: &[Opened]) -> Vec<[String; 2]> {
    let name = |port: usize| opened[port].port.name().to_owned();
    let directions = directions.iter().filter(|direction| direction.queue()[0] == 0);
    directions.map(|direction| [name(direction.lane.port), name(direction.to)]).collect()
}

/// What the main thread reads of directions, with their queue pairs together.
fn watched(directions: &[Direction]) -> (Vec<PublishedLane>, Vec<Vec<Arc<Progress>>>) {
    let lane = |direction: &Direction| direction.tally.lane();
    let progress = |direction: &Direction| Arc::clone(&direction.progress);
    let together = directions.chunk_by(|one, other| one.lane.port == other.lane.port);
    (directions.iter().map(lane).collect(), together.map(|all| all.iter().map(progress).collect()).collect())
}

/// An lcore for each pair, and each queue pair of it, as long as there are enough.
#[expect(clippy::type_complexity, reason = "as a team takes them")]
fn members(
    args: &RunArgs,
    directions: Vec<Direction>,
    opened: &[Opened],
    plan: &Plan,
    stop: &Stop,
) -> Result<Vec<(Option<usize>, impl FnOnce() -> Vec<Direction> + Send + 'static)>, Failure> {
    let soft = args.ports.iter().any(Address::is_soft);
    let mut pairs: Vec<Vec<Direction>> = Vec::new();
    for direction in directions {
        let place = |of: &Direction| (of.lane.port / 2, of.queue());
        match pairs.iter_mut().find(|pair| place(&pair[0]) == place(&direction)) {
            Some(pair) => pair.push(direction),
            None => pairs.push(vec![direction]),
        }
    }
    let batch = usize::from(args.port_options.batch);
    let shares = share_out(pairs, |pair| &opened[pair[0].lane.port], soft)?;
    let member = |(lcore, pairs): (Option<usize>, Vec<Vec<Direction>>)| {
        let pairs = pairs.into_iter().map(|pair| Pair::new(pair, plan.clone())).collect();
        let pairs = Pairs::new(pairs, batch);
        let poll_loop = idle::poll_loop(Some(IdleMode::Poll), soft, false, stop);
        (lcore, move || pairs.run(poll_loop))
    };
    Ok(shares.into_iter().map(member).collect())
}

/// A line for each direction, under the live table.
fn notes(names: &[[String; 2]], progress: &[Vec<Arc<Progress>>]) -> Vec<String> {
    let line = |([from, to], progress): (&[String; 2], &Vec<Arc<Progress>>)| {
        let all = progress.iter().map(|progress| progress.read());
        let together = |[phase, counts @ ..]: [u64; 4], [other, more @ ..]: [u64; 4]| {
            let [sent, received, missed] = [0, 1, 2].map(|at: usize| counts[at] + more[at]);
            [phase.min(other), sent, received, missed]
        };
        let [phase, sent, received, missed] = all.reduce(together).unwrap_or_default();
        let what = match phase {
            phase if phase == Phase::Probe as u64 => "waiting for a probe".to_owned(),
            phase if phase == Phase::WarmUp as u64 => "warming up".to_owned(),
            _ => format!(
                "sent {}, received {}, under way or lost {}, missed {}",
                grouped(sent),
                grouped(received),
                grouped(sent.saturating_sub(received)),
                grouped(missed)
            ),
        };
        format!("{from} > {to}: {what}")
    };
    names.iter().zip(progress).map(line).collect()
}

/// Why a direction has not been measured, and so many others.
fn no_probe([from, to]: &[String; 2], figures: &Figures, others: usize, narrow: Option<&str>) -> Failure {
    let others = match others {
        0 => String::new(),
        1 => " (and 1 more way is deaf)".to_owned(),
        others => format!(" (and {others} more ways are deaf)"),
    };
    let limit = PROBE_LIMIT.as_secs();
    let why = narrow.unwrap_or(match from == to {
        true => "a single port hears itself over a loop; name a second port if there is another",
        false => "see to cables and to what is between them, and whether that lets these addresses pass (--dst-mac, --dst-ip)",
    });
    // Of some queue pairs there were probes that came.
    let mut deaf = figures.deaf.clone();
    deaf.sort_unstable();
    let deaf: Vec<String> = deaf.iter().map(ToString::to_string).collect();
    let by = match deaf.len() {
        all if all == figures.queues => String::new(),
        1 => format!(" by queue pair {}", deaf.concat()),
        _ => format!(" by queue pairs {}", deaf.join(", ")),
    };
    anyhow!("{from} > {to}: of the probes that {from} sends{by} none arrives at {to} within {limit} s{others}; {why}")
        .into()
}

#[cfg(test)]
mod tests;
