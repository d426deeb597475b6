//! Two queue pairs, each on a thread, on ports in process whose wire takes frames to one queue or another as the tests say.

use super::*;
use crate::control::Orders;
use crate::host::Host;
use crate::lane::Source;
use crate::traffic::{Part as Frames, Traffic};
use crate::trial::direction::How;
use crate::trial::figures::{self, Figures};
use crate::trial::hosts::Attached;
use crate::trial::pair::{Pair, Pairs, Plan};
use ethdev::in_process::{self, Wire};
use ethdev::{Port as _, PortConfig};
use measure::Kind;
use mempool::{Pool, PoolConfig};
use station::Station;
use std::sync::Mutex;
use stream::{Flows, Stream as Template};

const SECOND: u64 = 1_000_000_000;
const BASE: u16 = 0xfffd;

/// What becomes of a frame that counts, by who sent it and its number: the queues that it arrives at, in the order of the list, with
/// frames that were held back.
type Edit = Box<dyn FnMut(usize, u32, Vec<u8>) -> Vec<(usize, Vec<u8>)>>;

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
        drain: 60 * SECOND,
        echo: 0,
        flush: 60 * SECOND,
        cut: Arc::default(),
        patience: u64::MAX >> 8,
        orders: Arc::new(Orders::new(2, true)),
    }
}

/// Whether probes are lost, or those of one queue pair until one of the other has come, which ends the run; and how many were.
#[derive(Default)]
struct Deaf {
    is_so: AtomicBool,
    pair: Option<usize>,
    cut: Arc<AtomicBool>,
    probes: AtomicU64,
}

/// Moves what was sent until both have ended.
fn carry(wires: &mut [Wire; 2], group: &Group, mut edit: Edit, deaf: &Deaf, is_over: impl Fn() -> bool) {
    while !is_over() {
        if deaf.pair.is_some_and(|pair| group.members[1 - pair].answered.load(Ordering::Acquire)) {
            deaf.cut.store(true, Ordering::Relaxed);
        }
        let Some(frame) = wires[0].collect() else {
            std::thread::yield_now();
            continue;
        };
        let tag = Tag::parse(&frame).unwrap();
        let (sender, stream) = group.place(tag.stream).unwrap();
        let frames = match stream {
            COUNTED => edit(sender, tag.number, frame),
            _ if deaf.is_so.load(Ordering::Acquire) || deaf.pair == Some(sender) => {
                deaf.probes.fetch_add(1, Ordering::AcqRel);
                Vec::new()
            }
            // Probes come back elsewhere.
            _ => vec![(1 - sender, frame)],
        };
        for (queue, frame) in frames {
            while !wires[1].inject_into(queue, &frame) {
                // Who has ended takes no more.
                if is_over() {
                    return;
                }
                std::thread::yield_now();
            }
        }
    }
}

/// Runs two queue pairs that send `count` frames together.
fn run(plan: Plan, edit: Edit) -> Figures {
    run_at(plan, edit, &Deaf::default(), None).0
}

/// The same to a port that is a host if it has an address. Returns also what that has sent.
fn run_at(plan: Plan, edit: Edit, deaf: &Deaf, address: Option<&str>) -> (Figures, Vec<Vec<u8>>) {
    let config =
        PortConfig { rx_queues: 2, tx_queues: 2, rx_ring: 4096, tx_ring: 1024, mtu: 4000, ..PortConfig::default() };
    let pool = |slots| Pool::new(&PoolConfig { slots, ..PoolConfig::default() }).unwrap();
    let pools = [pool(16_384), pool(32_768)];
    let (mut a, wire_a) = in_process::open("a", &config, &pools[0]).unwrap();
    let (mut b, wire_b) = in_process::open("b", &config, &pools[1]).unwrap();
    let host = address.map(|address| {
        let station = Station::new(b.port.mac().0, &[address.parse().unwrap()], &[]).unwrap();
        Arc::new(Mutex::new(Host::new(station, &pools[1])))
    });
    let group = Group::new(BASE, 2, 1);
    let member = |queue: usize| {
        let flows = Flows { flows: 3, ..Flows::default() };
        let stream = Template::flows(&flows, Kind::Full.bytes(), 1).unwrap();
        let part = Frames::new(0, stream, 1, Kind::Full).unwrap();
        let source = Source::new(Traffic::new(vec![part], 60), None);
        let lane = Lane::new(0, a.tx.remove(0), &pool(4096), 32, vec![source]);
        let base = BASE.wrapping_add((COUNTED + 1) * u16::try_from(queue).unwrap());
        let mut direction = Direction::new(lane, 1, b.rx.remove(0), &pools[1], base, How::Tags).verify(true);
        let tx = b.tx.remove(0);
        direction.host = host.clone().map(|host| Box::new(Attached::new(host, Some(tx))));
        Pairs::new(vec![Pair::new(vec![direction.spread(Spread::new(&group, queue))], plan.clone())], 32)
    };
    let pairs: Vec<_> = (0..2).map(member).collect();
    let (stop, mut wires) = (lcore::Stop::new().unwrap(), [wire_a, wire_b]);
    let measured = std::thread::scope(|scope| {
        let threads: Vec<_> = pairs
            .into_iter()
            .map(|pairs| scope.spawn(|| pairs.run(lcore::Loop::new(&stop).yield_after(Some(1)))))
            .collect();
        carry(&mut wires, &group, edit, deaf, || threads.iter().all(|thread| thread.is_finished()));
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    let figures = figures::of_ports(measured.into_iter().map(|direction| Figures::of(direction).0).collect()).remove(0);
    (figures, std::iter::from_fn(|| wires[1].collect()).collect())
}

/// Sent, received, lost, duplicate, late and reordered, and the greatest extent.
fn counts(figures: &Figures) -> [u64; 7] {
    let verdict = figures.all.verdict;
    for times in [figures.all.from_due, figures.all.from_ring] {
        assert_eq!(times.map_or(0, |times| times.count), verdict.received, "each frame that counts has a latency");
    }
    assert_eq!((figures.foreign, figures.damaged()), (0, 0));
    let [sent, received, lost] = [verdict.sent, verdict.received, verdict.lost];
    [sent, received, lost, verdict.duplicate, verdict.late, verdict.reordered, verdict.greatest_extent]
}

#[test]
fn wherever_frames_arrive_none_is_lost_or_reordered() {
    let ways: [fn(usize, u32) -> usize; 4] = [
        |sender, _| sender,
        |sender, _| 1 - sender,
        |_, _| 0,
        |_, number| usize::from(number.wrapping_mul(0x9e37_79b9) >> 31 == 1),
    ];
    for way in ways {
        let figures = run(plan(6001), Box::new(move |sender, number, frame| vec![(way(sender, number), frame)]));
        assert_eq!(counts(&figures), [6001, 6001, 0, 0, 0, 0, 0]);
    }
}

/// Each sender sends 5,000. What is lost of one is not made good by what comes twice, at the same queue or another.
#[test]
fn lost_doubled_and_exchanged_frames_are_told_apart() {
    let mut held = Vec::new();
    let edit = move |sender: usize, number: u32, frame: Vec<u8>| {
        let queue = usize::from(number % 2 == 1);
        match (sender, number) {
            // A head, some in the middle and a tail.
            (0, 0..10 | 2000..2100 | 4990..5000) => Vec::new(),
            // Doubles at the same queue, and at the other.
            (1, 100) => vec![(queue, frame.clone()), (queue, frame)],
            (1, 200..205) => vec![(0, frame.clone()), (1, frame)],
            // 301 comes after 303 at the same queue; 400 after 401, which is at another.
            (1, 301 | 400) => {
                held.push((queue, frame));
                Vec::new()
            }
            (1, 303 | 401) => vec![(queue, frame), held.remove(0)],
            _ => vec![(queue, frame)],
        }
    };
    let figures = run(plan(10_000), Box::new(edit));
    assert_eq!(counts(&figures), [10_000, 9880, 120, 6, 0, 1, 1]);
}

#[test]
fn nothing_at_all_is_everything() {
    let figures = run(plan(1000), Box::new(|_, _, _| Vec::new()));
    assert_eq!(counts(&figures), [1000, 0, 1000, 0, 0, 0, 0]);
}

/// Counters begin anew twice while frames are held on the wire and others are under way at both queues.
#[test]
fn what_was_sent_before_a_clear_counts_for_nothing() {
    let plan = Plan { count: None, duration: Some(u64::MAX >> 8), ..plan(0) };
    let (orders, begun) = (Arc::clone(&plan.orders), Arc::new(AtomicU64::new(0)));
    let steering = {
        let begun = Arc::clone(&begun);
        std::thread::spawn(move || {
            let wait = |frames: u64| {
                while begun.load(Ordering::Acquire) < frames {
                    std::thread::yield_now();
                }
            };
            wait(2000);
            orders.order(|_, wanted| wanted.clears += 1).unwrap();
            wait(begun.load(Ordering::Acquire) + 2000);
            let states = orders.order(|_, wanted| wanted.clears += 1).unwrap();
            wait(begun.load(Ordering::Acquire) + 2000);
            orders.order(|_, wanted| wanted.ends = true).unwrap();
            states
        })
    };
    let mut held: std::collections::VecDeque<_> = std::collections::VecDeque::new();
    let edit = move |_: usize, number: u32, frame: Vec<u8>| {
        begun.fetch_add(1, Ordering::AcqRel);
        // The 300 before it come after it; of the last ones nothing is held back.
        held.push_back((usize::from(number.is_multiple_of(3)), frame));
        if held.len() > 300 || number.is_multiple_of(2) { held.drain(..).collect() } else { Vec::new() }
    };
    let figures = run(plan, Box::new(edit));
    let states = steering.join().unwrap();
    assert!(states.iter().all(|state| state.directions[0].streams.len() == 1), "{states:?}");
    let [sent, received, lost, duplicate, late, ..] = counts(&figures);
    // What is still held at the end is lost.
    assert!(sent > 0 && received + lost == sent && lost <= 300 && [duplicate, late] == [0; 2], "{figures:?}");
    assert!(figures.is_steered());
}

#[test]
fn a_clear_before_frames_count_takes_none_of_these() {
    let plan = plan(1000);
    let (orders, deaf) = (Arc::clone(&plan.orders), Deaf { is_so: AtomicBool::new(true), ..Deaf::default() });
    let figures = std::thread::scope(|scope| {
        scope.spawn(|| {
            while deaf.probes.load(Ordering::Acquire) < 10 {
                std::thread::yield_now();
            }
            let states = orders.order(|_, wanted| wanted.clears += 1).unwrap();
            assert_eq!(states.len(), 2);
            deaf.is_so.store(false, Ordering::Release);
        });
        run_at(plan, Box::new(|sender, _, frame| vec![(sender, frame)]), &deaf, None).0
    });
    assert_eq!(counts(&figures)[..3], [1000, 1000, 0]);
}

/// Of the probes of one of two none comes: the report names it, and not the port.
#[test]
fn a_queue_pair_that_is_deaf_is_named() {
    let plan = plan(10);
    let deaf = Deaf { pair: Some(1), cut: Arc::clone(&plan.cut), ..Deaf::default() };
    let (figures, _) = run_at(plan, Box::new(|_, _, _| Vec::new()), &deaf, None);
    assert_eq!((&figures.deaf[..], figures.queues), (&[1][..], 2));
    let names = ["soft:a", "soft:b"].map(str::to_owned);
    let said = format!("{:?}", crate::trial::no_probe(&names, &figures, 0, None));
    assert!(said.contains("of the probes that soft:a sends by queue pair 1 none arrives at soft:b within"), "{said}");
}

/// Each queue pair gets two questions, of which it hands on what the host says.
#[test]
fn a_host_is_asked_by_any_queue_pair() {
    const THEIRS: [u8; 6] = [2, 0, 0, 0, 0, 9];
    let edit = |sender: usize, number: u32, frame: Vec<u8>| {
        let mut question = [[0xff; 6], THEIRS].concat();
        question.extend([&[8, 6, 0, 1, 8, 0, 6, 4, 0, 1][..], &THEIRS, &[192, 0, 2, 9]].concat());
        question.extend([0, 0, 0, 0, 0, 0, 192, 0, 2, 1]);
        question.resize(60, 0);
        if [10, 20].contains(&number) { vec![(sender, question), (sender, frame)] } else { vec![(sender, frame)] }
    };
    let (figures, sent) = run_at(plan(1000), Box::new(edit), &Deaf::default(), Some("192.0.2.1/24"));
    let is_answer = |frame: &&Vec<u8>| frame[..6] == THEIRS && frame[12..14] == [8, 6] && frame[20..22] == [0, 2];
    assert_eq!(sent.iter().filter(is_answer).count(), 4, "{sent:02x?}");
    assert_eq!(counts(&figures), [1000, 1000, 0, 0, 0, 0, 0]);
}

#[test]
fn nobody_waits_for_one_that_panicked() {
    let group = Group::new(BASE, 2, 1);
    let [one, other] = [0, 1].map(|me| Spread::new(&group, me));
    one.note_drained();
    assert!(!one.all_drained());
    let panics = std::thread::spawn(move || {
        let _lost = other;
        // Without a message, which nobody would read.
        std::panic::resume_unwind(Box::new(()));
    });
    assert!(panics.join().is_err() && one.all_drained());
}
