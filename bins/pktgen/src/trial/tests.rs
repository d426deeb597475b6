//! Tests of `pktgen rfc2544` through a device that lives by the times at which frames are due, not by a clock: what it loses is the same
//! however fast this machine is, and they have to find it.

use super::direction::Direction;
use super::*;
use crate::args::{Args, Command, Rfc2544Args};
use crate::rfc2544::{measured, run_args};
use ::trial::{AnyTest, Goal, Method as _, Outcome, Profile, Setup, Trial};
use clap::Parser as _;
use cli::report::PortTotals;
use ethdev::PortConfig;
use ethdev::in_process::{self, InProcess, InProcessRx, InProcessTx, Wire};
use lcore::{Function, Loop};
use measure::{Bracket, Tag};
use mempool::PoolConfig;
use pair::{COUNTED, ECHO, LEARNING, PROBE};
use std::collections::VecDeque;

/// Ticks of a second, so few that frames are late from the beginning, and are sent as fast as they can be.
const SECOND: u64 = 10_000_000;
/// Ticks that never pass.
const NEVER: u64 = u64::MAX >> 8;
/// Tags have so much of a due time.
const DUE: u64 = (1 << 48) - 1;
const BASE: u16 = 0xfff0;
/// Frames that are received in a round.
const BURST: usize = 32;

/// A device with a rate and a buffer, or that loses frames by chance.
#[derive(Clone, Debug, Default)]
struct Device {
    /// Ticks that a frame takes.
    interval: u64,
    /// Frames that wait, with the one on its way.
    buffer: usize,
    /// Ticks for which all is lost after a frame for which there was no room.
    recovery: u64,
    /// Frames of 1,000 that are lost by chance.
    per_mille: u64,
    random: u64,
    /// When the first frame of the trial was due.
    first: Option<u64>,
    departures: VecDeque<u64>,
    free_at: u64,
    recovered_at: u64,
    /// Frames lost, of all trials.
    lost: u64,
    /// Ticks of the machine's clock for which it holds each frame; and how long each that counts took at least and at most, by that clock.
    delay: u64,
    took: Vec<[u64; 2]>,
}

impl Device {
    /// Before a trial: nothing waits.
    fn rest(&mut self) {
        self.first = None;
        self.departures.clear();
        self.took.clear();
        (self.free_at, self.recovered_at) = (0, 0);
    }

    /// Whether a frame comes out that was due then.
    fn passes(&mut self, due: u64) -> bool {
        let now = due.wrapping_sub(*self.first.get_or_insert(due)) & DUE;
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mut passes = (self.random >> 33) % 1000 >= self.per_mille;
        if self.interval > 0 {
            while self.departures.front().is_some_and(|at| *at <= now) {
                self.departures.pop_front();
            }
            if self.departures.len() < self.buffer {
                self.free_at = self.free_at.max(now) + self.interval;
                self.departures.push_back(self.free_at);
            } else {
                self.recovered_at = now + self.recovery;
                passes = false;
            }
            passes &= now >= self.recovered_at;
        }
        self.lost += u64::from(!passes);
        passes
    }
}

/// A frame in the device, and the times between which it was handed over.
struct Held {
    frame: Vec<u8>,
    handed: [u64; 2],
}

/// A pair of ports with a device between them.
struct Bench {
    pairs: Pairs<InProcessRx, InProcessTx>,
    wires: [Wire; 2],
    device: Device,
    /// When the last round began.
    begun: u64,
    held: VecDeque<Held>,
    /// Frames that count and come in the next round, and since when.
    coming: Vec<(Held, u64)>,
    _opened: [ethdev::Opened<InProcess>; 2],
}

impl Bench {
    /// Lets out what was held for long enough, no more than comes in a round.
    fn let_out(&mut self) {
        for _ in 0..BURST {
            let now = device::tsc::now();
            let is_due = |held: &Held| now.saturating_sub(held.handed[1]) >= self.device.delay;
            if !self.held.front().is_some_and(is_due) {
                break;
            }
            let held = self.held.pop_front().expect("one is due");
            let tag = Tag::parse(&held.frame).unwrap();
            assert!(self.wires[1].inject(&held.frame), "there is room");
            if tag.stream.wrapping_sub(BASE) >= COUNTED {
                self.coming.push((held, now));
            }
        }
    }
}

impl Function for Bench {
    fn poll(&mut self, clock: &mut ::lcore::Clock) -> bool {
        // A round may have its time from the end of the one before.
        let earliest = std::mem::replace(&mut self.begun, device::tsc::now());
        let moved = self.pairs.poll(clock);
        let now = device::tsc::now();
        let took = |(held, out): (Held, u64)| [out - held.handed[1], now - held.handed[0]];
        self.device.took.extend(self.coming.drain(..).map(took));
        while let Some(frame) = self.wires[0].collect() {
            let tag = Tag::parse(&frame).unwrap();
            // Probes do not reach it.
            let number = tag.stream.wrapping_sub(BASE);
            let passes = matches!(number, PROBE | ECHO | LEARNING) || self.device.passes(tag.due.unwrap());
            if passes && self.device.delay > 0 {
                self.held.push_back(Held { frame, handed: [earliest, now] });
            } else if passes {
                assert!(self.wires[1].inject(&frame), "there is room");
            }
        }
        self.let_out();
        clock.publish_soon();
        moved
    }

    fn publish(&mut self) {
        self.pairs.publish();
    }

    fn finish(&mut self) {
        self.pairs.finish();
    }

    fn is_done(&self) -> bool {
        self.pairs.is_done()
    }
}

fn options() -> Box<Rfc2544Args> {
    let words = ["pktgen", "rfc2544", "--ports", "soft:a,soft:b", "--one-way", "--sizes", "64", "--out", "unused"];
    let Command::Rfc2544(args) = Args::parse_from(words).command else { panic!("{words:?}") };
    args
}

/// Does a trial, on a clock of so many ticks a second. Frames that were due and not sent are no matter of the device: then there is none.
fn attempt(device: &mut Device, setup: &Setup, next: &Trial, second: u64) -> Option<Outcome> {
    let options = options();
    let size = &options.sizes().unwrap()[0];
    let mut args = run_args(&options, size, setup, next);
    args.traffic.pace.catch_up = Duration::from_secs(1 << 20);
    let bracket = |before, kernel_ns| Bracket { before, kernel_ns, after: before };
    let clock = Clock::new(bracket(0, 0), bracket(second, 1_000_000_000)).unwrap();
    let frames = prepare(&args).unwrap();
    let (_, mut plan) = plan(&args, &frames, &clock, &Controls::default());
    (plan.flush, plan.probe_limit, plan.echo) = (NEVER, NEVER, NEVER);

    let pool = || Pool::new(&PoolConfig { slots: 2048, ..PoolConfig::default() }).unwrap();
    let [pool_a, pool_b, sent_from] = [pool(), pool(), pool()];
    let config = PortConfig::default();
    let (mut a, wire_a) = in_process::open("a", &config, &pool_a).unwrap();
    let (mut b, wire_b) = in_process::open("b", &config, &pool_b).unwrap();
    let (asked, macs) = (frames.asked(0, None).unwrap(), [a.port.mac().0, b.port.mac().0]);
    let sources = frames.sources(&args.traffic, 0, macs, &asked, &clock).unwrap();
    let mut lane = Lane::new(0, a.tx.remove(0), &sent_from, BURST, sources);
    lane.set_other_paces(paces_of_overload(&args, 0, macs, &clock).unwrap());
    let direction = Direction::new(lane, 1, b.rx.remove(0), &pool_b, BASE, How::Tags).verify(true);
    let pairs = Pairs::new(vec![Pair::new(vec![direction], plan)], BURST);
    device.rest();
    let (held, coming) = (VecDeque::new(), Vec::new());
    let device_of_trial = device.clone();
    let begun = device::tsc::now();
    let bench = Bench { pairs, wires: [wire_a, wire_b], device: device_of_trial, begun, held, coming, _opened: [a, b] };
    let mut bench = Loop::new(&::lcore::Stop::new().unwrap()).run(bench);

    let figures = Figures::of(bench.pairs.pairs.remove(0).directions.remove(0)).0;
    if figures.all.missed + figures.opening.map_or(0, |(opening, _)| opening.missed) > 0 {
        return None;
    }
    *device = bench.device;
    let ports = PortTotals::default();
    let mut outcome = measured::of(&figures, [&ports; 2], &clock, (&next.traffic, Duration::ZERO));
    // Late is what this machine makes them; the device knows only when they were due.
    (outcome.seconds, outcome.doubtful) = (None, 0);
    Some(outcome)
}

/// Does a test.
fn done(device: &mut Device, setup: &Setup, profile: &Profile, second: u64) -> AnyTest {
    let mut test = setup.start(profile).unwrap();
    for _ in 0..2000 {
        let Some(next) = test.next() else { return test };
        let outcome = (0..200).find_map(|_| attempt(device, setup, &next, second));
        test.tell(&outcome.expect("frames are missed each time")).unwrap();
    }
    panic!("no end of trials");
}

/// Short, and without frames that open the traffic, which would lie in the buffer.
fn profile() -> Profile {
    let mut profile = Profile::default();
    profile.phases.warm_up_frames = 0;
    profile.throughput.goals = vec![Goal { duration_sum: 1.0, ..Goal::NDR }];
    profile
}

/// Lets 5,000 frames a second pass.
const CAPACITY: f64 = 5_000.0;
fn device(buffer: usize) -> Device {
    Device { interval: SECOND / 5_000, buffer, ..Device::default() }
}

fn throughput(device: &mut Device, high: f64) -> f64 {
    let setup = Setup::Throughput { goals: profile().throughput.goals, low: 100.0, high };
    let AnyTest::Throughput(test) = done(device, &setup, &profile(), SECOND) else { panic!("{setup:?}") };
    test.results()[0].throughput.unwrap()
}

#[test]
fn a_capacity_is_found_within_one_percent() {
    // In a second the buffer takes so many more, and not one beyond that.
    for (buffer, most) in [(16, CAPACITY + 16.0), (512, CAPACITY + 512.0)] {
        let found = throughput(&mut device(buffer), 20_000.0);
        assert!(found <= most && found >= most * 0.995, "{found}");
    }
}

#[test]
fn a_buffer_is_found_within_two_percent() {
    let (mut device, rate) = (device(128), 4.0 * CAPACITY);
    let throughput = throughput(&mut device, rate);
    let setup = Setup::BackToBack { rate, throughput, range: None, filling: None };
    let AnyTest::BackToBack(test) = done(&mut device, &setup, &profile(), SECOND) else { panic!("{setup:?}") };
    let bursts = test.result().unwrap();
    // Of 170 frames 42 have gone when the last comes, and the 127 before it leave one place; the next one finds none.
    assert_eq!([bursts.frames.min, bursts.frames.max], [170.0; 2], "{bursts:?}");
    let frames = bursts.corrected_seconds(throughput) * rate;
    assert!((frames / 128.0 - 1.0).abs() <= 0.02, "{frames}: {bursts:?}");
}

#[test]
fn a_recovery_is_found_within_ten_percent() {
    // In the overload frames are due in time, or part of it would be missed.
    let second = 1_000_000_000;
    let mut device = Device { interval: second / 5_000, buffer: 16, recovery: second / 5, ..Device::default() };
    let mut profile = profile();
    (profile.recovery.overload_seconds, profile.recovery.recovery_seconds) = (0.3, 0.3);
    profile.recovery.repetitions = 2;
    let setup = Setup::Recovery { throughput: CAPACITY, highest: 4.0 * CAPACITY };
    let AnyTest::Recovery(test) = done(&mut device, &setup, &profile, second) else { panic!("{setup:?}") };
    let result = test.result().unwrap();
    let seconds = result.seconds.unwrap();
    assert_eq!(result.unrecovered, 0);
    assert!([seconds.min, seconds.max].iter().all(|found| (found / 0.2 - 1.0).abs() <= 0.1), "{result:?}");
}

#[test]
fn loss_is_counted_exactly_and_within_its_interval() {
    let mut device = Device { per_mille: 100, ..Device::default() };
    let mut profile = profile();
    profile.loss.seconds = 0.2;
    let setup = Setup::FrameLoss { highest: 20_000.0 };
    let AnyTest::FrameLoss(test) = done(&mut device, &setup, &profile, SECOND) else { panic!("{setup:?}") };
    let points = test.points();
    assert_eq!(points.len(), 10, "it loses at every load");
    assert_eq!(points.iter().map(|point| point.sent - point.received).sum::<u64>(), device.lost);
    for point in points {
        #[expect(clippy::cast_precision_loss, reason = "a few thousand frames")]
        let deviation = (0.1 * 0.9 / point.sent as f64).sqrt() * 100.0;
        assert!((point.loss_percent() - 10.0).abs() <= 4.0 * deviation, "{point:?}");
    }
    let holds = |point: &&::trial::LossPoint| {
        let [low, high] = point.interval_percent();
        (low..=high).contains(&10.0)
    };
    // It is one of 95 %, and the device draws the same in each run.
    let held = points.iter().filter(holds).count();
    assert!(held >= 8, "{held} of {points:?}");
}

/// By a clock of the test's own, each frame takes at least what the device holds it, and at most until the round in which it is received is
/// over: what is found is between the two, but for the 0.8 % of a histogram.
#[test]
fn a_delay_is_found_within_what_frames_took() {
    let second = 1_000_000_000;
    let mut device = Device { delay: second / 500, ..Device::default() };
    let mut profile = profile();
    (profile.latency.seconds, profile.latency.repetitions) = (1, 1);
    let setup = Setup::Latency { rates: vec![1_000.0] };
    let AnyTest::Latency(test) = done(&mut device, &setup, &profile, second) else { panic!("{setup:?}") };
    let [found] = test.results()[0].repetitions[..] else { panic!("{test:?}") };
    assert_eq!(device.took.len(), 1_000);
    #[expect(clippy::cast_precision_loss, reason = "times far below 2^53")]
    let [least, most] = [0, 1].map(|side| {
        let mut times: Vec<f64> = device.took.iter().map(|took| took[side] as f64).collect();
        times.sort_by(f64::total_cmp);
        times
    });
    let mean = |times: &[f64]| times.iter().sum::<f64>() / 1_000.0;
    println!("{found:?}, of {} to {}", mean(&least), mean(&most));
    assert!(least[0] >= 2e6, "{}", least[0]);
    for (found, least, most) in [
        (found.min, least[0], most[0]),
        (found.mean, mean(&least), mean(&most)),
        (found.median, least[498], most[501]),
        (found.max, least[999], most[999]),
    ] {
        assert!(found >= least * 0.992 && found <= most * 1.008, "{found} of {least} to {most}");
    }
}

/// A clock that jumped makes a trial void, and is no failure of the run; any other trouble is.
#[test]
fn a_clock_that_jumped_makes_a_trial_void() {
    let setup = Setup::Frmol { rate: 1e6, max: None };
    let mut test = setup.start(&Profile::default()).unwrap();
    let (options, next) = (options(), test.next().unwrap());
    let args = run_args(&options, &options.sizes().unwrap()[0], &setup, &next);
    let run = |void: Option<&str>| super::Outcome {
        frames: prepare(&args).unwrap(),
        limits: Limits { duration: None, count: None },
        names: Vec::new(),
        asked: Vec::new(),
        clock: Clock::new(
            Bracket { before: 0, kernel_ns: 0, after: 0 },
            Bracket { before: SECOND, kernel_ns: 1_000_000_000, after: SECOND },
        )
        .unwrap(),
        cut: false,
        figures: Vec::new(),
        late: 0,
        totals: Totals::default(),
        void: void.map(str::to_owned),
        narrow: None,
        trouble: Err(Failure::usage("something is wrong")),
    };
    let judge = measured::Judge::Forwarded;
    let outcome = measured::outcome(&args, run(Some("the clock jumped")), &next, judge).unwrap();
    assert!(outcome.clock_jumped);
    assert_eq!(test.tell(&outcome), Ok(::trial::Verdict::Void(::trial::Reason::Clock)));
    assert!(measured::outcome(&args, run(None), &next, judge).is_err());
}
