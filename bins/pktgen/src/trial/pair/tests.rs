//! Whole runs on ports in process, whose wires cut, double and exchange frames as the tests say.

use super::*;
use crate::control::{Orders, Pace};
use crate::host::Host;
use crate::lane::{Lane, Sent, Source};
use crate::pacing::Pacing;
use crate::rfc2544::measured;
use crate::traffic::{Part as Frames, Traffic};
use crate::trial::direction::How;
use crate::trial::figures::{Counted, Figures};
use crate::trial::hosts::Attached;
use ::trial::Traffic::Steady;
use cli::report::PortTotals;
use ethdev::in_process::{self, InProcessRx, InProcessTx, Wire};
use ethdev::{Opened, Port as _, PortConfig};
use measure::{Bracket, Kind, Pacer, Pattern, Tag};
use mempool::{Pool, PoolConfig};
use station::Station;
use std::sync::Mutex;
use std::time::Duration;
use stream::{Flows, Stream as Template};

const SECOND: u64 = 1_000_000_000;
/// Ticks that never pass.
const NEVER: u64 = u64::MAX >> 8;

/// What a wire does with a counted frame, by its number: the frames that come out.
type Edit = Box<dyn FnMut(usize, Vec<u8>) -> Vec<Vec<u8>>>;

/// A pair, and the wire from the first port to the second.
struct Bench {
    pairs: Pairs<InProcessRx, InProcessTx>,
    wires: [Wire; 2],
    edit: Edit,
    /// Frames of the counted stream so far.
    counted: usize,
    /// Probes that are lost first.
    deaf: usize,
    /// Frames that are held back until so many echoes are among them.
    held: Vec<Vec<u8>>,
    holds: usize,
    /// The first frame of the overload is lost, and the second comes twice.
    spoils_opening: bool,
    _opened: [Opened<in_process::InProcess>; 2],
}

impl Function for Bench {
    fn poll(&mut self, clock: &mut Clock) -> bool {
        let moved = self.pairs.poll(clock);
        while let Some(frame) = self.wires[0].collect() {
            let tag = Tag::parse(&frame).unwrap();
            let frames = match tag.stream.wrapping_sub(BASE) {
                COUNTED.. => {
                    self.counted += 1;
                    (self.edit)(self.counted - 1, frame)
                }
                WARM_UP if self.spoils_opening => match tag.number {
                    0 => Vec::new(),
                    1 => vec![frame.clone(), frame],
                    _ => vec![frame],
                },
                PROBE if self.deaf > 0 => {
                    self.deaf -= 1;
                    Vec::new()
                }
                ECHO if self.holds > 0 => {
                    self.holds -= 1;
                    self.held.push(frame);
                    if self.holds == 0 { std::mem::take(&mut self.held) } else { Vec::new() }
                }
                _ => vec![frame],
            };
            let frames = match self.holds {
                0 => frames,
                // A device that does not run holds what has come to it.
                _ if self.counted > 1 => {
                    self.held.extend(frames);
                    Vec::new()
                }
                _ => frames,
            };
            frames.iter().for_each(|frame| assert!(self.wires[1].inject(frame), "there is room"));
        }
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

const BASE: u16 = 0xfffe;
/// Of a host that asks.
const THEIRS: [u8; 6] = [2, 0, 0, 0, 0, 9];

fn plan(count: u64) -> Plan {
    Plan {
        warm_up: 0,
        duration: None,
        count: Some(count),
        probe_interval: SECOND / 50,
        probe_limit: 60 * SECOND,
        learning: 0,
        learning_frames: 0,
        forgets: u64::MAX >> 1,
        settle: SECOND,
        silence: 3 * SECOND,
        drain: 3 * SECOND,
        echo: 0,
        flush: 60 * SECOND,
        cut: Arc::default(),
        patience: NEVER,
        orders: Arc::default(),
    }
}

/// Runs it, and returns what it measured and how many frames it sent.
fn run(plan: Plan, deaf: usize, pacer: Option<Pacer>, edit: Edit) -> Figures {
    run_until(&lcore::Stop::new().unwrap(), plan, deaf, vec![pacer], edit)
}

/// The same with a stream for each pacer, until the stop is requested.
fn run_until(stop: &lcore::Stop, plan: Plan, deaf: usize, pacers: Vec<Option<Pacer>>, edit: Edit) -> Figures {
    Figures::of(bench(plan, deaf, pacers, edit, How::Tags, None).run(stop).0).0
}

/// A stream for each pacer. The second port is a host if it has an address.
fn bench(plan: Plan, deaf: usize, pacers: Vec<Option<Pacer>>, edit: Edit, how: How, address: Option<&str>) -> Bench {
    let source = |(index, pacer): (usize, Option<Pacer>)| {
        let flows = Flows { flows: 3, ..Flows::default() };
        let stream = Template::flows(&flows, Kind::Full.bytes(), 1).unwrap();
        let part = Frames::new(index.try_into().unwrap(), stream, 1, Kind::Full).unwrap();
        Source::new(Traffic::new(vec![part], 60), pacer.map(Pacing::Rate))
    };
    bench_of(plan, deaf, pacers.into_iter().enumerate().map(source).collect(), edit, how, address)
}

fn bench_of(plan: Plan, deaf: usize, sources: Vec<Source>, edit: Edit, how: How, address: Option<&str>) -> Bench {
    let config = PortConfig { rx_ring: 4096, tx_ring: 64, mtu: 4000, ..PortConfig::default() };
    let pool = || Pool::new(&PoolConfig { slots: 16_384, ..PoolConfig::default() }).unwrap();
    let (pools, frames) = ([pool(), pool()], Pool::new(&PoolConfig { slots: 2048, ..PoolConfig::default() }).unwrap());
    let (mut a, wire_a) = in_process::open("a", &config, &pools[0]).unwrap();
    let (mut b, wire_b) = in_process::open("b", &config, &pools[1]).unwrap();
    let lane = Lane::new(0, a.tx.remove(0), &frames, 32, sources).late_after(SECOND / 10_000);
    let mut direction = Direction::new(lane, 1, b.rx.remove(0), &pools[1], BASE, how).verify(true);
    direction.host = address.map(|address| {
        let station = Station::new(b.port.mac().0, &[address.parse().unwrap()], &[]).unwrap();
        let host = Arc::new(Mutex::new(Host::new(station, &pools[1])));
        Box::new(Attached::new(host, Some(b.tx.remove(0))))
    });
    let pairs = Pairs::new(vec![Pair::new(vec![direction], plan)], 32);
    Bench {
        pairs,
        wires: [wire_a, wire_b],
        edit,
        counted: 0,
        deaf,
        held: Vec::new(),
        holds: 0,
        spoils_opening: false,
        _opened: [a, b],
    }
}

impl Bench {
    /// Returns the direction at the end, and what the second port has sent.
    fn run(self, stop: &lcore::Stop) -> (Direction<InProcessRx, InProcessTx>, Vec<Vec<u8>>) {
        let Self { mut pairs, wires: [_, mut wire], .. } = Loop::new(stop).run(self);
        let sent = std::iter::from_fn(|| wire.collect()).collect();
        (pairs.pairs.remove(0).directions.remove(0), sent)
    }
}

/// Sent, received, lost, duplicate, late and reordered, and the greatest extent.
fn counts(figures: &Figures) -> [u64; 7] {
    let verdict = figures.all.verdict;
    assert_eq!(verdict.sent, verdict.received + verdict.lost);
    assert_eq!(
        figures.all.from_due.map_or(0, |latency| latency.count),
        verdict.received,
        "each frame that counts has a latency"
    );
    let [sent, received, lost] = [verdict.sent, verdict.received, verdict.lost];
    [sent, received, lost, verdict.duplicate, verdict.late, verdict.reordered, verdict.greatest_extent]
}

/// A wire that keeps the frames whose number `keep` wants.
fn keeping(keep: impl Fn(usize) -> bool + 'static) -> Edit {
    Box::new(move |number, frame| if keep(number) { vec![frame] } else { Vec::new() })
}

#[test]
fn head_middle_and_tail_count_as_lost_and_nothing_is_everything() {
    for (keep, lost) in [
        (keeping(|_| true), 0),
        (keeping(|number| number >= 1000), 1000),
        (keeping(|number| number < 4000), 1000),
        (keeping(|number| number % 100 != 50), 50),
        (keeping(|_| false), 5000),
    ] {
        let figures = run(plan(5000), 0, None, keep);
        assert_eq!(counts(&figures), [5000, 5000 - lost, lost, 0, 0, 0, 0]);
        assert_eq!((figures.foreign, figures.damaged()), (0, 0));
    }
}

/// As a device pads what is too short for it once it has taken off a tag.
#[test]
fn frames_that_were_padded_count_in_their_order() {
    for how in [How::Tags, How::SplitTags] {
        // Four bytes less of payload, as a tag had their place; and no checksum of UDP.
        let pad = |number: usize, mut frame: Vec<u8>| {
            if !number.is_multiple_of(3) {
                assert_eq!((frame.len(), frame[17], frame[39]), (60, 46, 26));
                (frame[17], frame[39]) = (42, 22);
                let sum = u16::from_be_bytes([frame[24], frame[25]]);
                frame[24..26].copy_from_slice(&wire::checksum::update_u16(sum, 46, 42).to_be_bytes());
                frame[40..42].fill(0);
                frame.drain(42..46);
                frame.resize(60, 0x55);
            }
            vec![frame]
        };
        let bench = bench(plan(3000), 0, vec![None], Box::new(pad), how, None);
        let figures = Figures::of(bench.run(&lcore::Stop::new().unwrap()).0).0;
        assert_eq!(counts(&figures), [3000, 3000, 0, 0, 0, 0, 0], "{how:?}");
        assert_eq!((figures.foreign, figures.damaged()), (0, 0), "{how:?}");
    }
}

#[test]
fn frames_that_are_lost_before_a_probe_comes_back_do_not_count() {
    let figures = run(plan(100), 5, None, keeping(|_| true));
    assert_eq!(counts(&figures), [100, 100, 0, 0, 0, 0, 0]);
}

#[test]
fn no_probe_that_comes_back_is_an_end() {
    let plan = Plan { probe_limit: SECOND / 10, ..plan(100) };
    let figures = run(plan, usize::MAX, None, keeping(|_| true));
    assert!(!figures.is_answered() && figures.ticks.is_none());
    assert_eq!(figures.all.verdict.sent, 0);
}

#[test]
fn doubles_near_and_far_and_exchanges_are_told_apart() {
    let mut held = Vec::new();
    let edit = move |number: usize, frame: Vec<u8>| match number {
        // Doubled at once; doubled 70,000 numbers later, which is beyond the window.
        100 => vec![frame.clone(), frame],
        200 => {
            held.push(frame.clone());
            vec![frame]
        }
        70_200 => vec![frame, held.remove(0)],
        // 300 comes after 301, 302 and 303.
        300 => {
            held.push(frame);
            Vec::new()
        }
        303 => vec![frame, held.remove(1)],
        // Lost, and no double makes up for it.
        400..410 => Vec::new(),
        // One bit of each is not as it was: in an address, in a checksum, in a tag.
        600..603 => {
            let mut damaged = frame;
            damaged[[29, 41, 55][number - 600]] ^= 4;
            vec![damaged]
        }
        // Not sent by anybody here: another stream, a number to come, no tag at all.
        500 => {
            let mut foreign = [frame.clone(), frame.clone(), frame.clone()];
            // Without checksum, as what is changed is no damage on the way.
            foreign.iter_mut().for_each(|frame| frame[40..42].fill(0));
            foreign[0][58] ^= 0x55;
            foreign[1][52] = 0x10;
            foreign[2].truncate(50);
            [foreign.to_vec(), vec![frame]].concat()
        }
        _ => vec![frame],
    };
    let figures = run(plan(80_000), 0, None, Box::new(edit));
    assert_eq!(counts(&figures), [80_000, 79_987, 13, 1, 1, 1, 3]);
    assert_eq!((figures.foreign, figures.all.impossible, figures.damaged()), (2, 1, 4));
}

/// A stream whose length of UDP is not that of each frame, one of TCP and one of UDP take turns. What is not as it was sent is told from
/// what was not right when it was sent, also where that is the first stream, of which the probes are.
#[test]
fn damage_is_seen_in_streams_whose_checksums_are_right_beside_others() {
    let part = |index: u16, transport: &str, weight: u64| {
        let text = format!("[[stream]]\nsize = 80\nframe = ['ethernet', 'ipv4', {transport}]");
        let definition = stream::Definition::parse("test", &text).unwrap().remove(0);
        let stream = Template::new(&definition, Kind::Full.bytes(), 1).unwrap();
        Frames::new(index, stream, weight, Kind::Full).unwrap()
    };
    // No probe is of the other, whose turn does not come.
    let parts = vec![part(0, "{ udp = { length = 40 } }", 1 << 32), part(1, "'udp'", 1)];
    let source = Source::new(Traffic::new(parts, 80), None);
    let bench = bench_of(plan(100), 0, vec![source], keeping(|_| true), How::Tags, None);
    let figures = Figures::of(bench.run(&lcore::Stop::new().unwrap()).0).0;
    assert_eq!((counts(&figures), figures.damaged()), ([100, 100, 0, 0, 0, 0, 0], 0));

    let transports = ["{ udp = { length = { list = [46, 40] } } }", "'tcp'", "'udp'"];
    for how in [How::Tags, How::SplitTags] {
        let parts = (0..).zip(transports).map(|(index, transport)| part(index, transport, 1));
        let source = Source::new(Traffic::new(parts.collect(), 80), None);
        // A bit of the payload, in ten frames of each.
        let edit = |number: usize, mut frame: Vec<u8>| {
            if number < 30 {
                frame[58] ^= 4;
            } else if number < 33 {
                // Another EtherType, in one of each.
                frame[12] ^= 0x10;
            }
            vec![frame]
        };
        let bench = bench_of(plan(3000), 0, vec![source], Box::new(edit), how, None);
        let figures = Figures::of(bench.run(&lcore::Stop::new().unwrap()).0).0;
        assert_eq!(counts(&figures)[..4], [3000, 2980, 20, 0], "{how:?}");
        assert_eq!((figures.foreign, figures.damaged(), figures.unread), (0, 20, 2));
        let lost = figures.streams.iter().map(|stream| stream.verdict.lost);
        assert!(lost.eq([0, 10, 10]) && !figures.is_verified());
        assert_eq!([0, 1, 2].map(|stream| figures.verifies(stream)), [false, true, true]);
    }
}

/// At 1,000 frames a second, in ticks that pass much faster than a second's worth: whatever this machine does meanwhile, each
/// frame is sent or missed.
#[test]
fn every_frame_due_is_sent_or_missed() {
    let rate = "1000".parse::<measure::Load>().unwrap().rate(60, None).unwrap();
    let pacer = Pacer::new(rate, Pattern::Bursts(4), SECOND, SECOND / 1000);
    let plan = Plan { count: None, duration: Some(SECOND), ..plan(0) };
    let figures = run(plan, 0, Some(pacer), keeping(|_| true));
    let sent = figures.all.verdict.sent;
    assert_eq!(sent + figures.all.missed, 1000);
    assert_eq!(counts(&figures), [sent, sent, 0, 0, 0, 0, 0]);
    let (due, ring) = (figures.all.from_due.unwrap(), figures.all.from_ring.unwrap());
    assert!(due.max >= ring.max && due.mean >= ring.mean, "{due:?} {ring:?}");
}

/// An lcore that was away for some time, in the middle or at the end, sends what was due in a burst, and says so.
#[test]
fn an_lcore_that_was_away_says_for_how_long_and_what_it_sent_in_bursts() {
    let rate = "10000".parse::<measure::Load>().unwrap().rate(60, None).unwrap();
    for (at, away) in [(100, SECOND / 50), (990, SECOND / 200)] {
        let pacer = Pacer::new(rate, Pattern::Even, SECOND, SECOND / 100);
        let plan = Plan { count: None, duration: Some(SECOND / 10), ..plan(0) };
        let edit = move |number: usize, frame: Vec<u8>| {
            let begun = device::tsc::now();
            while number == at && device::tsc::now() - begun < away {
                std::hint::spin_loop();
            }
            vec![frame]
        };
        let figures = run(plan, 0, Some(pacer), Box::new(edit));
        assert!(figures.away >= away, "{} of {away}", figures.away);
        // Half of the first time is made good, by 100 frames in bursts of 32 at most; and of the second what was left to send. A machine
        // that was slow may have missed them: some of the second only if this was away for longer than is made good.
        let least = if at == 100 { 60 } else { 5 };
        let missed = figures.all.missed;
        let is_excused = missed > 100 || at == 990 && missed > 0 && figures.away > SECOND / 100;
        assert!(figures.in_bursts >= least || is_excused, "{} in bursts, {missed} missed", figures.in_bursts);
        assert!(figures.in_bursts < figures.all.verdict.sent);
        assert!(figures.ticks.unwrap() - figures.lateness <= SECOND / 10, "{figures:?}");
    }
}

/// A frame that was late alone is as good as a burst: the one behind it comes sooner after it than at the rate.
#[test]
fn the_frame_behind_one_that_was_late_counts_as_one_of_a_burst() {
    let rate = "1000".parse::<measure::Load>().unwrap().rate(60, None).unwrap();
    let pacer = Pacer::new(rate, Pattern::Even, SECOND, SECOND / 2);
    let plan = Plan { count: None, duration: Some(SECOND / 10), ..plan(0) };
    let edit = |number: usize, frame: Vec<u8>| {
        let begun = device::tsc::now();
        while number == 50 && device::tsc::now() - begun < SECOND / 667 {
            std::hint::spin_loop();
        }
        vec![frame]
    };
    let figures = run(plan, 0, Some(pacer), Box::new(edit));
    assert!(figures.in_bursts >= 1, "{figures:?}");
}

/// Two streams at rates of their own, and one that takes what room is left: each is due as often as its rate says, and what the wire does
/// to one is no matter of the others.
#[test]
fn streams_are_paced_and_counted_apart() {
    let pacer = |rate: &str| {
        let rate = rate.parse::<measure::Load>().unwrap().rate(60, None).unwrap();
        Some(Pacer::new(rate, Pattern::Even, SECOND, SECOND / 100))
    };
    let plan = Plan { count: None, duration: Some(SECOND), ..plan(0) };
    let edit = |_: usize, frame: Vec<u8>| {
        let Tag { stream, number, .. } = Tag::parse(&frame).unwrap();
        match stream.wrapping_sub(BASE).wrapping_sub(COUNTED) {
            // Every tenth of the first is lost; every hundredth of the third comes twice.
            0 if number % 10 == 5 => Vec::new(),
            2 if number % 100 == 7 => vec![frame.clone(), frame],
            _ => vec![frame],
        }
    };
    let pacers = vec![pacer("300"), None, pacer("2000")];
    let figures = run_until(&lcore::Stop::new().unwrap(), plan, 0, pacers, Box::new(edit));
    let [slow, rest, fast] = &figures.streams[..] else { panic!("{figures:?}") };
    assert_eq!([slow.verdict.sent + slow.missed, fast.verdict.sent + fast.missed], [300, 2000]);
    assert_eq!(slow.verdict.lost, (slow.verdict.sent + 4) / 10);
    assert_eq!([rest.verdict.lost, fast.verdict.lost], [0, 0]);
    assert_eq!([slow, rest, fast].map(|one| one.verdict.duplicate), [0, 0, (fast.verdict.sent + 92) / 100]);
    assert!(rest.verdict.sent > 0 && rest.missed == 0, "{rest:?}");
    let sum = |of: fn(&Counted) -> u64| figures.streams.iter().map(of).sum::<u64>();
    let all = &figures.all;
    assert_eq!(
        [all.missed, all.verdict.sent, all.verdict.lost],
        [sum(|one| one.missed), sum(|one| one.verdict.sent), slow.verdict.lost]
    );
    assert_eq!(counts(&figures)[1], sum(|one| one.from_ring.map_or(0, |latency| latency.count)));
}

/// A stop from outside, as when a device is gone, in the middle of the frames that count.
#[test]
fn an_end_that_nobody_planned_keeps_what_was_counted() {
    let stop = lcore::Stop::new().unwrap();
    let request = stop.clone();
    let edit = move |number: usize, frame: Vec<u8>| {
        if number == 500 {
            request.request();
        }
        if number < 100 { Vec::new() } else { vec![frame] }
    };
    let plan = Plan { count: None, duration: Some(u64::MAX >> 8), ..plan(0) };
    let figures = run_until(&stop, plan, 0, vec![None], Box::new(edit));
    assert!(figures.ticks.is_some());
    let (sent, verdict) = (figures.all.verdict.sent, figures.all.verdict);
    assert!(sent > 500 && verdict.sent == sent && verdict.lost >= 100, "{figures:?}");
    assert_eq!(verdict.received + verdict.lost, sent);
}

/// Between frames that count; one that takes two buffers is nobody's.
#[test]
fn questions_to_a_host_are_answered_and_do_not_count() {
    for how in [How::Tags, How::SplitTags, How::Number] {
        let edit = move |number: usize, frame: Vec<u8>| {
            let mut question = [[0xff; 6], THEIRS].concat();
            question.extend([&[8, 6, 0, 1, 8, 0, 6, 4, 0, 1][..], &THEIRS, &[192, 0, 2, 9]].concat());
            question.extend([0, 0, 0, 0, 0, 0, 192, 0, 2, 1]);
            question.resize(if number == 30 { 3000 } else { 60 }, 0);
            if [10, 20, 30].contains(&number) { vec![question, frame] } else { vec![frame] }
        };
        let bench = bench(plan(100), 0, vec![None], Box::new(edit), how, Some("192.0.2.1/24"));
        let (direction, sent) = bench.run(&lcore::Stop::new().unwrap());
        let is_answer = |frame: &&Vec<u8>| frame[..6] == THEIRS && frame[12..14] == [8, 6] && frame[20..22] == [0, 2];
        assert_eq!(sent.iter().filter(is_answer).count(), 2, "{how:?}: {sent:02x?}");
        let Figures { all, foreign, .. } = Figures::of(direction).0;
        assert_eq!([all.verdict.sent, all.verdict.received, all.verdict.lost, foreign], [100, 100, 0, 1], "{how:?}");
    }
}

/// Frames are held on the wire while counters begin anew, and come after that: they count for nothing, and no other is lost.
#[test]
fn what_is_under_way_when_counters_begin_anew_counts_for_nothing() {
    let orders = Arc::new(Orders::new(1, true));
    let [begun, cleared, released] = [(); 3].map(|()| Arc::new(AtomicBool::new(false)));
    let wait = |flag: &AtomicBool| {
        while !flag.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    };
    let steering = {
        let (orders, begun, cleared, released) = (orders.clone(), begun.clone(), cleared.clone(), released.clone());
        std::thread::spawn(move || {
            wait(&begun);
            let states = orders.order(|_, wanted| wanted.clears += 1).unwrap();
            cleared.store(true, Ordering::Release);
            wait(&released);
            orders.order(|_, wanted| wanted.ends = true).unwrap();
            states
        })
    };
    let mut held = Vec::new();
    let edit = move |number: usize, frame: Vec<u8>| {
        begun.store(number >= 1000, Ordering::Release);
        if number >= 1000 && held.len() < 10 && !released.load(Ordering::Acquire) {
            held.push(frame);
            return Vec::new();
        }
        if !cleared.load(Ordering::Acquire) || released.swap(true, Ordering::AcqRel) {
            return vec![frame];
        }
        [vec![frame], std::mem::take(&mut held)].concat()
    };
    let plan = Plan { count: None, duration: Some(u64::MAX >> 8), orders, ..plan(0) };
    let figures = run_until(&lcore::Stop::new().unwrap(), plan, 0, vec![None], Box::new(edit));
    let states = steering.join().unwrap();
    assert_eq!(states[0].directions[0].streams[0].sent, 0, "{states:?}");
    let [sent, received, lost, duplicate, late, ..] = counts(&figures);
    assert!(sent > 0 && received == sent && [lost, duplicate, late] == [0; 3], "{figures:?}");
    assert_eq!((figures.foreign, figures.damaged()), (0, 0));
}

/// A rate that changes, and a pause: each frame due is sent or missed, and as many are due as the times at each rate make.
#[test]
fn what_is_due_at_rates_that_change_is_sent_or_missed() {
    let rate = |text: &str| text.parse::<measure::Load>().unwrap().rate(60, None).unwrap();
    let pacer = Pacer::new(rate("1000"), Pattern::Even, SECOND, SECOND / 1000);
    let orders = Arc::new(Orders::new(1, true));
    let begun = Arc::new(AtomicBool::new(false));
    let steering = {
        let (orders, begun) = (orders.clone(), begun.clone());
        std::thread::spawn(move || {
            while !begun.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            for text in ["50k", "300", "2M", "7"] {
                let (rate, pattern, catch_up) = (rate(text), Pattern::Even, SECOND / 1000);
                let pace = Pace { rate, pattern, hz: SECOND, catch_up, turn: [0, 1] };
                orders.order(|number, wanted| wanted.rates = vec![vec![Some((number, pace))]]).unwrap();
                orders.order(|_, wanted| wanted.runs = false).unwrap();
                orders.order(|_, wanted| wanted.runs = true).unwrap();
            }
            orders.order(|_, wanted| wanted.ends = true).unwrap();
        })
    };
    let edit = move |number: usize, frame: Vec<u8>| {
        begun.store(number >= 10, Ordering::Release);
        vec![frame]
    };
    let plan = Plan { count: None, duration: Some(u64::MAX >> 8), orders, ..plan(0) };
    let figures = run_until(&lcore::Stop::new().unwrap(), plan, 0, vec![Some(pacer)], Box::new(edit));
    steering.join().unwrap();
    let due = figures.all.verdict.sent + figures.all.missed;
    let asked = figures.asked_frames().unwrap();
    #[expect(clippy::cast_precision_loss, reason = "a count, to compare")]
    let off = (due as f64 - asked).abs();
    assert!(off < 2.0, "{due} for {asked}");
}

#[test]
fn the_last_that_is_lost_is_known_by_its_number() {
    let keep = |number: usize| !(100..200).contains(&number) && number != 3456;
    assert_eq!(run(plan(5000), 0, None, keeping(keep)).last_lost, Some(3456));
    assert_eq!(run(plan(5000), 0, None, keeping(|number| number < 4990)).last_lost, Some(4999));
    assert_eq!(run(plan(100), 0, None, keeping(|_| true)).last_lost, None);
}

/// Four times the rate, and then the rate: frames of the overload are told apart, and each that is due is sent or missed.
#[test]
fn an_overload_comes_first_and_does_not_count() {
    let pacer = |rate: &str| {
        let rate = rate.parse::<measure::Load>().unwrap().rate(60, None).unwrap();
        Pacer::new(rate, Pattern::Even, SECOND, SECOND / 1000)
    };
    // One that comes twice does not make good for one that was lost.
    for (spoils_opening, lost) in [(false, 0), (true, 1)] {
        let plan = Plan { warm_up: SECOND, count: None, duration: Some(SECOND), ..plan(0) };
        let mut bench = bench(plan, 0, vec![Some(pacer("500"))], keeping(|_| true), How::Tags, None);
        bench.spoils_opening = spoils_opening;
        let stream = Template::flows(&Flows::default(), Kind::Full.bytes(), 1).unwrap();
        let part = Frames::new(0, stream, 1, Kind::Full).unwrap();
        let other = Source::new(Traffic::new(vec![part], 60), Some(Pacing::Rate(pacer("2000"))));
        bench.pairs.pairs[0].directions[0].lane.set_other_paces(vec![other]);
        let figures = Figures::of(bench.run(&lcore::Stop::new().unwrap()).0).0;
        let (opening, arrived) = figures.opening.unwrap();
        assert_eq!((opening.handed + opening.missed, arrived), (2000, opening.handed - lost));
        assert_eq!(figures.all.verdict.sent + figures.all.missed, 500);
        assert_eq!((figures.all.verdict.lost, figures.foreign), (0, 0));
    }
}

/// What a ring had no room for was a frame of the trial, unless others arrived, too: then it may be the device that lost it.
#[test]
fn what_a_ring_missed_is_no_loss_of_the_device_unless_others_came() {
    let mut figures = run(plan(1000), 0, None, keeping(|number| number >= 3));
    let ports =
        [PortTotals { tx_dropped: 1, ..PortTotals::default() }, PortTotals { rx_missed: 1, ..PortTotals::default() }];
    let bracket = |before, kernel_ns| Bracket { before, kernel_ns, after: before };
    let clock = measure::Clock::new(bracket(0, 0), bracket(SECOND, SECOND)).unwrap();
    let traffic = Steady { rate: 1000.0, seconds: 1.0 };
    let mut of = |foreign| {
        figures.foreign = foreign;
        let outcome = measured::of(&figures, [&ports[0], &ports[1]], &clock, (&traffic, Duration::ZERO));
        (outcome.sent - outcome.received, outcome.own, outcome.doubtful - figures.in_bursts)
    };
    assert_eq!([of(0), of(1)], [(1, 2, 0), (2, 1, 1)]);

    // Behind a frame more were under way than hand-overs are known of.
    let outcome = |figures: &Figures| measured::of(figures, [&ports[0], &ports[1]], &clock, (&traffic, Duration::ZERO));
    let delays = |figures: &Figures| outcome(figures).delays.unwrap();
    let (due, ring) = (figures.all.from_due.as_mut().unwrap(), figures.all.from_ring.as_mut().unwrap());
    assert_eq!((due.count, ring.count), (997, 997));
    (due.max, ring.max) = (5e9, 4e9);
    assert!((delays(&figures).max - 4e9).abs() < 1.0);
    figures.all.from_ring.as_mut().unwrap().count = 500;
    assert!((delays(&figures).max - 5e9).abs() < 1.0);
}

/// Nothing waits for a machine here: what ends the wait is an echo, or that none comes.
fn impatient(count: u64, echo: u64) -> Plan {
    Plan { settle: 1, silence: 1000, probe_interval: 1000, echo, ..plan(count) }
}

#[test]
fn what_is_held_up_for_longer_than_the_silence_is_no_loss() {
    let mut bench = bench(impatient(16, NEVER), 0, vec![None], keeping(|_| true), How::Tags, None);
    bench.holds = 20;
    let figures = Figures::of(bench.run(&lcore::Stop::new().unwrap()).0).0;
    assert_eq!(counts(&figures), [16, 16, 0, 0, 0, 0, 0]);
    assert_eq!(figures.foreign, 0);
}

#[test]
fn what_an_echo_has_overtaken_is_lost() {
    // Without the echo there is no end.
    for how in [How::Tags, How::SplitTags] {
        let bench = bench(impatient(16, NEVER), 3, vec![None], keeping(|number| number < 3), how, None);
        let (direction, _) = bench.run(&lcore::Stop::new().unwrap());
        assert!(direction.echoes.came > 0, "{how:?}");
        let figures = Figures::of(direction).0;
        assert_eq!(counts(&figures)[..3], [16, 3, 13], "{how:?}");
    }
}

#[test]
fn a_device_that_is_gone_ends_the_wait_for_an_echo() {
    let mut bench = bench(impatient(16, SECOND / 100), 0, vec![None], keeping(|_| true), How::Tags, None);
    bench.holds = usize::MAX;
    let figures = Figures::of(bench.run(&lcore::Stop::new().unwrap()).0).0;
    assert_eq!(counts(&figures)[..3], [16, 1, 15]);
}

/// A signal after the last frame that counts was sent, and before any has arrived.
#[test]
fn an_end_in_the_drain_is_none_of_what_was_measured() {
    for (at, holds, patience, counted) in [
        // All of them come, and echoes behind them.
        (15, 20, NEVER, Some(16)),
        // None comes.
        (15, usize::MAX, SECOND / 100, None),
        // More was to be sent.
        (0, 0, NEVER, None),
    ] {
        let plan = Plan { patience, ..impatient(if holds > 0 { 16 } else { NEVER }, NEVER) };
        let cut = Arc::clone(&plan.cut);
        let edit = move |number, frame| {
            if number == at {
                cut.store(true, Ordering::Relaxed);
            }
            vec![frame]
        };
        let mut bench = bench(plan, 0, vec![None], Box::new(edit), How::Tags, None);
        bench.holds = holds;
        let figures = Figures::of(bench.run(&lcore::Stop::new().unwrap()).0).0;
        assert_eq!(figures.is_whole, counted.is_some(), "{figures:?}");
        if let Some(counted) = counted {
            assert_eq!(counts(&figures), [counted, counted, 0, 0, 0, 0, 0]);
        }
    }
    let whole = run(plan(16), 0, None, keeping(|number| number > 0));
    assert!(whole.is_whole, "{whole:?}");
}

/// Frames may have come while the lcore did not run.
#[test]
fn a_drain_does_not_end_because_nobody_looked() {
    let mut pairs = bench(plan(16), 0, vec![None], keeping(|_| true), How::Tags, None).pairs;
    let pair = &mut pairs.pairs[0];
    pair.enter(Phase::Drain, SECOND);
    pair.directions[0].sent = Some(vec![Sent { handed: 1, missed: 0 }]);
    let Plan { probe_interval, drain, .. } = pair.plan;
    let mut now = 1000 * SECOND;
    pair.steer(now);
    assert_eq!(pair.phase, Phase::Drain);
    // It is looked at all the time.
    for _ in 0..drain / probe_interval - 1 {
        assert_eq!(pair.phase, Phase::Drain);
        now += probe_interval;
        pair.steer(now);
    }
    now += probe_interval;
    pair.steer(now);
    assert_eq!(pair.phase, Phase::Done);
}

/// Of several queue pairs one that is told to end in its warm-up still receives, and sends no more.
#[test]
fn an_end_in_the_warm_up_is_one_of_what_is_sent() {
    let bench = bench(Plan { warm_up: 60 * SECOND, ..plan(1000) }, 0, vec![None], keeping(|_| true), How::Tags, None);
    let Bench { mut pairs, wires: [mut wire, _], .. } = bench;
    let mut pair = pairs.pairs.remove(0);
    let group = crate::trial::spread::Group::new(BASE, 1, 1);
    pair.directions = vec![pair.directions.remove(0).spread(Spread::new(&group, 0))];
    let now = device::tsc::now();
    pair.enter(Phase::WarmUp, now);
    let mut send = |pair: &mut Pair<_, _>| {
        let sent = pair.directions[0].send(now, pair.phase);
        while wire.collect().is_some() {}
        sent
    };
    assert!(send(&mut pair) > 0);
    pair.cut();
    let after: usize = (0..10).map(|_| send(&mut pair)).sum();
    assert_eq!((pair.phase, after), (Phase::Drain, 0));
}
