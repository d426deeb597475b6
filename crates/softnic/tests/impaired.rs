//! A cable with knobs: what it says it did against what arrives.
#![allow(clippy::cast_possible_truncation, clippy::unwrap_used, reason = "tests")]

mod common;

use common::{BROADCAST, Driver, Plan, frame};
use softnic::{Impairments, SoftDevice};
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// Frames that pass untouched: those that find out whether the receiver is ready.
const AFTER: usize = 50;

/// Waits for something the engine does; it must come, however slow the machine.
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what} never came");
        std::thread::yield_now();
    }
}

struct Cable {
    from: Driver<SoftDevice>,
    to: Driver<SoftDevice>,
}

/// What has arrived.
#[derive(Debug, Default, PartialEq, Eq)]
struct Arrived {
    numbers: Vec<u32>,
}

impl Arrived {
    fn distinct(&self) -> usize {
        self.numbers.iter().collect::<HashSet<_>>().len()
    }

    /// Frames whose number is below the next expected (RFC 4737, 3.3), each once.
    fn reordered(&self) -> usize {
        let (mut expected, mut seen, mut late) = (0, HashSet::new(), 0);
        for &number in &self.numbers {
            if seen.insert(number) {
                late += usize::from(number < expected);
                expected = expected.max(number + 1);
            }
        }
        late
    }
}

impl Cable {
    /// Lays one, with these knobs at the end that sends, and waits until frames arrive.
    fn lay(name: &str, knobs: &str) -> Self {
        let to = SoftDevice::open(&format!("{name}-to?wire=peer:{name}-from")).unwrap();
        let spec = format!("{name}-from?wire=peer:{name}-to&after={AFTER}&{knobs}");
        let from = SoftDevice::open(&spec).unwrap();
        let to = Driver::start(to, Plan { descriptors: 1024, ..Plan::default() });
        let from = Driver::start(from, Plan { descriptors: 1024, ..Plan::default() });
        let mut cable = Self { from, to };
        let mut received = 0;
        until("the first frame", || {
            if cable.impairments().frames < 10 {
                cable.from.send(0, &frame(BROADCAST, 60, 0));
            }
            until("room", || cable.from.device.transmit_idle());
            received += usize::from(cable.to.receive(0).is_some());
            received > 0
        });
        // The rest of those that pass untouched.
        for _ in cable.impairments().frames..AFTER as u64 {
            cable.from.send(0, &frame(BROADCAST, 60, 0));
        }
        until("all of them", || {
            received += usize::from(cable.to.receive(0).is_some());
            received == AFTER
        });
        let counts = cable.impairments();
        assert_eq!((counts.frames, counts.passed), (AFTER as u64, AFTER as u64), "{counts:?}");
        cable
    }

    fn impairments(&self) -> Impairments {
        self.from.device.impairments().unwrap()
    }

    /// Sends numbered frames, and receives until the cable is empty.
    fn send(&mut self, count: u32) -> (Impairments, Arrived) {
        let mut arrived = Arrived::default();
        for number in 0..count {
            let mut bytes = frame(BROADCAST, 60, 1);
            bytes[20..24].copy_from_slice(&number.to_be_bytes());
            let next = (self.from.tx_next[0] + 1) % 1024;
            until("room", || {
                self.take(&mut arrived);
                self.from.read(common::tx(0, 0x10)) != next
            });
            self.from.send(0, &bytes);
        }
        until("the end", || {
            self.take(&mut arrived);
            self.from.device.transmit_idle() && self.impairments().held == 0
        });
        // What has left the cable is at the receiver, or in its buffers.
        let passed = self.impairments().passed as usize - AFTER;
        until("the last frame", || {
            self.take(&mut arrived);
            arrived.numbers.len() == passed
        });
        (self.impairments(), arrived)
    }

    /// Sends numbered frames by one doorbell, so that nothing but the engine decides when each is taken.
    fn send_at_once(&mut self, count: u32) -> (Impairments, Arrived) {
        for number in 0..count {
            let mut bytes = frame(BROADCAST, 60, 1);
            bytes[20..24].copy_from_slice(&number.to_be_bytes());
            self.from.put(0, &[&bytes]);
        }
        self.from.ring_tx(0);
        self.send(0)
    }

    fn take(&mut self, arrived: &mut Arrived) {
        while let Some(frame) = self.to.receive(0) {
            arrived.numbers.push(u32::from_be_bytes(frame.bytes[20..24].try_into().unwrap()));
        }
    }
}

#[test]
fn what_the_cable_did_is_what_arrives() {
    let count = 4000;
    for (name, knobs) in [
        ("imp-loss", "loss=5%"),
        ("imp-burst", "loss-burst=0.5%:7"),
        ("imp-dup", "duplicate=3%"),
        ("imp-order", "reorder=10%"),
        ("imp-all", "loss=2%&loss-burst=0.1%:5&duplicate=0.02&reorder=5%&jitter=100us&delay=50us&seed=9"),
        ("imp-none", "loss=0"),
        ("imp-gone", "loss=100%"),
    ] {
        let (did, arrived) = Cable::lay(name, knobs).send(count);
        let lost = (did.lost + did.lost_in_bursts) as usize;
        assert_eq!(did.frames as usize, count as usize + AFTER, "{knobs}");
        assert_eq!(arrived.distinct(), count as usize - lost, "{knobs}: {did:?}");
        assert_eq!(arrived.numbers.len() - arrived.distinct(), did.duplicated as usize, "{knobs}: {did:?}");
        assert_eq!(arrived.reordered(), did.reordered as usize, "{knobs}: {did:?}");
        assert_eq!((did.overflowed, did.recovering, did.unreceived, did.held), (0, 0, 0, 0), "{knobs}: {did:?}");
    }
}

#[test]
fn chances_are_what_was_asked_for() {
    let count = 20_000;
    let knobs = "loss=5%&loss-burst=0.2%:4&duplicate=4%&reorder=3%&seed=3";
    let (did, _) = Cable::lay("imp-chance", knobs).send(count);
    // Of those that are left: after a burst of 4 a new one can begin, so 0.2 % of the frames outside of bursts begin one.
    let begins = 0.002 / (1.0 + 0.002 * 3.0);
    let outside = f64::from(count) * (1.0 - begins * 4.0);
    let near = |what: &str, found: u64, mean: f64, of_each: f64| {
        let deviation = mean.sqrt() * of_each;
        assert!((found as f64 - mean * of_each).abs() < 5.0 * deviation, "{what}: {found}, {}", mean * of_each);
    };
    near("lost", did.lost, outside * 0.05, 1.0);
    near("in bursts", did.lost_in_bursts, f64::from(count) * begins, 4.0);
    near("duplicated", did.duplicated, outside * 0.95 * 0.04, 1.0);
    // A frame right behind one that is held back is not held back too.
    near("reordered", did.reordered, outside * 0.95 * 0.03 / 1.03, 1.0);
}

#[test]
fn seeds_repeat_and_knobs_do_not_disturb_each_other() {
    let knobs = "loss=5%&duplicate=5%&reorder=5%";
    let run = |name: &str, knobs: &str| Cable::lay(name, knobs).send_at_once(900);
    let (one, first) = run("imp-seed-a", &format!("{knobs}&seed=5"));
    let (same, second) = run("imp-seed-b", &format!("{knobs}&seed=5"));
    let sorted = |arrived: &Arrived| {
        let mut numbers = arrived.numbers.clone();
        numbers.sort_unstable();
        numbers
    };
    assert_eq!((one.lost, one.duplicated, sorted(&first)), (same.lost, same.duplicated, sorted(&second)));
    // A frame whose successor does not come for 10 ms goes by itself, as may be on a machine that stands still.
    assert!(one.reordered != same.reordered || first == second, "{one:?}, {same:?}");
    assert!(one.reordered > 20 && one.reordered.abs_diff(same.reordered) < 5, "{one:?}, {same:?}");
    let (_, other) = run("imp-seed-c", &format!("{knobs}&seed=6"));
    assert_ne!(first, other);
    let (alone, third) = run("imp-seed-d", "loss=5%&seed=5");
    assert_eq!(alone.lost, one.lost);
    let set = |arrived: &Arrived| arrived.numbers.iter().copied().collect::<HashSet<_>>();
    assert_eq!(set(&first), set(&third), "the same frames are lost");
}

#[test]
fn a_delay_and_a_rate_take_their_time() {
    for (name, knobs, least) in [
        ("imp-delay", "delay=30ms", Duration::from_millis(30)),
        // The buffer holds all; the last of 200 leaves after 200 times 0.5 ms.
        ("imp-rate", "rate=2k", Duration::from_millis(100)),
        // 60 bytes are 84 with check sequence, preamble and gap: 672 bits.
        ("imp-bits", "rate=1344k:L1", Duration::from_millis(100)),
        ("imp-both", "rate=2k&delay=30ms&jitter=1us", Duration::from_millis(130)),
    ] {
        let mut cable = Cable::lay(name, knobs);
        let start = Instant::now();
        let (did, arrived) = cable.send(200);
        assert!(start.elapsed() >= least, "{knobs}: {:?}", start.elapsed());
        assert!(arrived.numbers.iter().copied().eq(0..200), "in order, whatever the jitter");
        assert_eq!(did.overflowed, 0);
    }
}

#[test]
fn a_buffer_takes_as_many_frames_as_it_has_room_for() {
    let mut cable = Cable::lay("imp-buffer", "rate=1&buffer=8");
    let start = Instant::now();
    for _ in 0..20 {
        cable.from.send(0, &frame(BROADCAST, 60, 1));
    }
    until("the burst", || cable.impairments().frames == AFTER as u64 + 20);
    let (did, left) = (cable.impairments(), start.elapsed().as_secs());
    // A frame leaves each second.
    assert!((12 - left..=12).contains(&did.overflowed) && did.held + did.passed == 20 - did.overflowed + 50, "{did:?}");
}

#[test]
fn after_an_overflow_frames_are_lost_for_a_time() {
    let mut cable = Cable::lay("imp-recovery", "rate=10&buffer=2&recovery=10s");
    // A machine that stops for 10 s between the two needs another turn.
    until("a frame that is lost though there is room", || {
        for _ in 0..5 {
            cable.from.put(0, &[&frame(BROADCAST, 60, 1)]);
        }
        cable.from.ring_tx(0);
        until("the burst", || cable.from.device.transmit_idle());
        let burst = cable.impairments();
        assert!(burst.overflowed > 0 && burst.passed + burst.held >= AFTER as u64, "{burst:?}");
        // Two frames have left after this.
        std::thread::sleep(Duration::from_millis(250));
        cable.from.send(0, &frame(BROADCAST, 60, 1));
        until("the last", || cable.from.device.transmit_idle());
        cable.impairments().recovering > burst.recovering
    });
    let did = cable.impairments();
    assert_eq!(did.frames, did.passed + did.held + did.overflowed + did.recovering, "{did:?}");
}

#[test]
fn each_direction_has_its_own_and_a_plain_cable_none() {
    let plain = SoftDevice::open("imp-plain?wire=peer:imp-other").unwrap();
    assert_eq!(plain.impairments(), None);
    let knobs = SoftDevice::open("imp-other?wire=peer:imp-plain&loss=100%").unwrap();
    assert_eq!(knobs.impairments(), Some(Impairments::default()));
    let mut knobs = Driver::start(knobs, Plan::default());
    let mut plain = Driver::start(plain, Plan::default());
    until("a frame the other way", || {
        plain.send(0, &frame(BROADCAST, 60, 1));
        until("room", || plain.device.transmit_idle());
        knobs.receive(0).is_some()
    });
    for _ in 0..5 {
        knobs.send(0, &frame(BROADCAST, 60, 1));
    }
    until("room", || knobs.device.transmit_idle());
    let did = knobs.device.impairments().unwrap();
    assert_eq!((did.frames, did.lost, did.passed), (5, 5, 0));
    assert!(plain.receive(0).is_none());
}
