//! `wire=peer:NAME` with knobs: a cable that loses, doubles, reorders, delays and holds back what one end sends.
//!
//! A frame meets the knobs in this order: loss, reordering, duplication, the rate and its buffer, delay and jitter. Which frames are
//! lost, doubled and reordered depends on nothing but the seed and how many frames have been sent before.

mod knobs;

use super::{FrameFifo, PeerWire, Sent, Wire};
pub(crate) use knobs::{KNOBS, Knobs, Written};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};
use std::collections::VecDeque;
use std::time::Instant;

/// What a cable with knobs has done to the frames that one end has sent (`wire=peer:NAME&loss=...`).
///
/// `frames + duplicated` is what was `passed` on, lost in one of the ways, or is `held` at present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Impairments {
    /// Frames that the end has sent while somebody received.
    pub frames: u64,
    /// Frames lost by chance (`loss`).
    pub lost: u64,
    /// Frames lost in bursts (`loss-burst`).
    pub lost_in_bursts: u64,
    /// Frames that were sent twice (`duplicate`).
    pub duplicated: u64,
    /// Frames that were sent after their successor (`reorder`).
    pub reordered: u64,
    /// Frames for which the buffer had no room (`rate`, `buffer`).
    pub overflowed: u64,
    /// Frames lost while it recovered from such a frame (`recovery`).
    pub recovering: u64,
    /// Frames that the other end did not receive any more when they came.
    pub unreceived: u64,
    /// Frames that have arrived at the other end.
    pub passed: u64,
    /// Frames that are under way.
    pub held: u64,
}

/// Frames and bytes that may be under way before the sender has to wait.
const MOST_HELD: usize = 131_072;
const MOST_BYTES: usize = 64 << 20;
/// Seconds for which a frame is held back for a successor, and looks at the wire: a thread that was stopped looks at nothing.
const PATIENCE: f64 = 0.01;
const LOOKS: u32 = 1000;
/// Fractions of a nanosecond in which departures are counted, so that a rate does not drift.
const FRACTION: f64 = 4_294_967_296.0;

/// An end of a cable with knobs.
#[derive(Debug)]
pub(crate) struct ImpairedWire {
    wire: PeerWire,
    knobs: Knobs,
    dice: [Dice; 4],
    jitter: Xoshiro256PlusPlus,
    started: Instant,
    /// Frames of a burst that are still to be lost.
    burst_left: u64,
    /// A frame that waits for its successor, since when, and whether it goes twice.
    behind: Option<(Vec<u8>, u64, bool)>,
    /// Looks at the wire since the last frame was sent.
    looks: u32,
    /// Frames under way, and when they arrive.
    queue: FrameFifo,
    arrivals: VecDeque<u64>,
    /// Whether they wait for the other end, and not for their time.
    blocked: bool,
    /// When frames in the buffer leave it, in nanoseconds, and when the rate is free again, in fractions of nanoseconds.
    departures: VecDeque<u64>,
    free_at: u128,
    /// When it has recovered from the last overflow, in nanoseconds.
    recovered_at: u64,
    counts: Impairments,
}

/// A chance, drawn once for each frame.
#[derive(Debug)]
struct Dice {
    random: Xoshiro256PlusPlus,
    /// Draws below it hit; `None`: all do.
    below: Option<u64>,
}

impl Dice {
    fn new(chance: f64, seed: u64, kind: u64) -> Self {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of 2^64; saturates")]
        let below = (chance < 1.0).then_some((chance * 2f64.powi(64)) as u64);
        Self { random: random(seed, kind), below }
    }

    fn hits(&mut self) -> bool {
        match self.below {
            Some(0) => false,
            Some(below) => self.random.next_u64() < below,
            None => true,
        }
    }
}

/// Seconds in nanoseconds.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most seconds; saturates")]
fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

/// A generator for each kind of draw, so that one knob changes nothing about another.
fn random(seed: u64, kind: u64) -> Xoshiro256PlusPlus {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    (0..kind).for_each(|_| random.jump());
    random
}

impl ImpairedWire {
    pub(crate) fn new(wire: PeerWire, knobs: Knobs) -> Self {
        let chances = [knobs.loss, knobs.burst, knobs.reorder, knobs.duplicate];
        let mut kind = 0;
        let dice = chances.map(|chance| {
            kind += 1;
            Dice::new(chance, knobs.seed, kind)
        });
        Self {
            wire,
            knobs,
            dice,
            jitter: random(knobs.seed, 0),
            started: Instant::now(),
            burst_left: 0,
            behind: None,
            looks: 0,
            queue: FrameFifo::default(),
            arrivals: VecDeque::new(),
            blocked: false,
            departures: VecDeque::new(),
            free_at: 0,
            recovered_at: 0,
            counts: Impairments::default(),
        }
    }

    /// Nanoseconds since it was laid.
    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// What becomes of a frame that the end has sent.
    fn take(&mut self, frame: &[u8], now: u64) {
        self.counts.frames += 1;
        self.looks = 0;
        if self.counts.frames <= self.knobs.after {
            self.enqueue(frame, now);
            return;
        }
        let [loss, burst, reorder, duplicate] = self.dice.each_mut().map(Dice::hits);
        if burst && self.burst_left == 0 {
            self.burst_left = self.knobs.burst_frames;
        }
        if self.burst_left > 0 {
            self.burst_left -= 1;
            self.counts.lost_in_bursts += 1;
        } else if loss {
            self.counts.lost += 1;
        } else if reorder && self.behind.is_none() {
            self.behind = Some((frame.to_vec(), now, duplicate));
        } else {
            let went = self.send(frame, duplicate, now);
            if let Some((frame, _, duplicate)) = self.behind.take_if(|_| went) {
                self.counts.reordered += u64::from(self.send(&frame, duplicate, now));
            }
        }
    }

    /// Sends a frame, once or twice, past the rate and the delay. Returns whether it was not dropped.
    fn send(&mut self, frame: &[u8], twice: bool, now: u64) -> bool {
        let first = self.through_rate(frame, now);
        if first && twice {
            self.counts.duplicated += 1;
            self.through_rate(frame, now);
        }
        first
    }

    fn through_rate(&mut self, frame: &[u8], now: u64) -> bool {
        let mut departure = now;
        if let Some(rate) = self.knobs.rate {
            while self.departures.front().is_some_and(|&at| at <= now) {
                self.departures.pop_front();
            }
            if self.departures.len() >= self.knobs.buffer {
                self.counts.overflowed += 1;
                self.recovered_at = now.saturating_add(nanoseconds(self.knobs.recovery));
                return false;
            }
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive; saturates")]
            let takes = (rate.seconds(frame.len()) * 1e9 * FRACTION) as u128;
            self.free_at = self.free_at.max(u128::from(now) << 32) + takes;
            departure = u64::try_from(self.free_at >> 32).unwrap_or(u64::MAX);
            self.departures.push_back(departure);
            // What is lost takes its place in the buffer all the same, so that only less load ends an overload.
            if now < self.recovered_at {
                self.counts.recovering += 1;
                return false;
            }
        }
        let most = nanoseconds(self.knobs.jitter);
        let jitter = if most == 0 { 0 } else { self.jitter.next_u64() % most };
        let delay = nanoseconds(self.knobs.delay);
        self.enqueue(frame, departure.saturating_add(delay).saturating_add(jitter));
        true
    }

    /// Puts a frame under way, in the order of the frames before it.
    fn enqueue(&mut self, frame: &[u8], arrival: u64) {
        let arrival = arrival.max(self.arrivals.back().copied().unwrap_or(0));
        self.queue.push(frame);
        self.arrivals.push_back(arrival);
    }

    /// Lets go of a frame that has no successor, and so is not out of order.
    fn release(&mut self, now: u64) {
        self.looks = self.looks.saturating_add(1);
        let patience = nanoseconds(PATIENCE);
        let over = self.looks > LOOKS;
        let alone = self.behind.take_if(|(_, since, _)| over && now.saturating_sub(*since) > patience);
        if let Some((frame, _, duplicate)) = alone {
            self.send(&frame, duplicate, now);
        }
    }

    /// Hands over what has arrived.
    fn deliver(&mut self, now: u64) {
        let patience = nanoseconds(PATIENCE);
        if let Some((frame, _, duplicate)) = self.behind.take_if(|(_, since, _)| now.saturating_sub(*since) > patience)
        {
            // There is no successor: it is not out of order.
            self.send(&frame, duplicate, now);
        }
        self.blocked = false;
        while self.arrivals.front().is_some_and(|&at| at <= now)
            && let Some(frame) = self.queue.front()
        {
            match self.wire.transmit(frame) {
                Sent::Full => {
                    self.blocked = true;
                    return;
                }
                Sent::Yes => self.counts.passed += 1,
                _ => self.counts.unreceived += 1,
            }
            self.queue.pop();
            self.arrivals.pop_front();
        }
    }

    fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.behind.is_none()
    }

    /// Whether frames are long overdue: the device does not look at its wire, as when it is gone.
    fn is_stuck(&self) -> bool {
        let due = self.arrivals.front().copied().or(self.behind.as_ref().map(|behind| behind.1));
        due.is_some_and(|due| self.now().saturating_sub(due) > nanoseconds(10.0 * PATIENCE))
    }

    fn counts(&self) -> Impairments {
        let held = u64::try_from(self.queue.len()).unwrap_or(u64::MAX);
        Impairments { held: held + u64::from(self.behind.is_some()), ..self.counts }
    }
}

impl Wire for ImpairedWire {
    fn poll(&mut self, receiving: bool, room: usize) {
        self.wire.poll(receiving, room);
        if !self.is_empty() {
            let now = self.now();
            self.release(now);
            self.deliver(now);
        }
    }

    fn front(&mut self) -> Option<&[u8]> {
        self.wire.front()
    }

    fn pop(&mut self) {
        self.wire.pop();
    }

    fn held(&self) -> usize {
        self.wire.held()
    }

    fn missed(&mut self) -> u64 {
        self.wire.missed()
    }

    fn may_drop(&self) -> bool {
        self.wire.may_drop()
    }

    fn transmit(&mut self, frame: &[u8]) -> Sent {
        if self.queue.len() >= MOST_HELD || self.queue.bytes() >= MOST_BYTES {
            return Sent::Full;
        }
        if !self.wire.reaches() {
            return Sent::Lost;
        }
        let now = self.now();
        self.take(frame, now);
        self.deliver(now);
        Sent::Yes
    }

    fn carrier(&self) -> bool {
        self.wire.carrier()
    }

    fn set_light(&mut self, on: bool) {
        self.wire.set_light(on);
    }

    fn no_carrier(&self) -> Option<String> {
        self.wire.no_carrier()
    }

    fn missing_peer(&self) -> Option<String> {
        self.wire.missing_peer()
    }

    fn flush(&mut self) -> bool {
        self.deliver(self.now());
        self.is_empty()
    }

    fn is_quiet(&self) -> bool {
        self.blocked || self.is_empty() || self.is_stuck()
    }

    fn impairments(&self) -> Option<Impairments> {
        Some(self.counts())
    }
}

impl Drop for ImpairedWire {
    fn drop(&mut self) {
        let Impairments {
            frames,
            lost,
            lost_in_bursts,
            duplicated,
            reordered,
            overflowed,
            recovering,
            unreceived,
            passed,
            held,
        } = self.counts();
        let [from, to] = self.wire.names();
        tracing::info!(
            "cable {from} > {to}: frames={frames} lost={lost} lost_in_bursts={lost_in_bursts} duplicated={duplicated} \
             reordered={reordered} overflowed={overflowed} recovering={recovering} unreceived={unreceived} passed={passed} held={held}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::peer::Cable;
    use super::*;

    /// Nanoseconds for which each of these frames is under way, which are sent at times that are given.
    fn times(words: &[(&str, &str)], rate: Option<&str>, sent: impl Iterator<Item = u64>) -> Vec<u64> {
        let mut written = Written::default();
        for (key, value) in words {
            *written.slot(key).unwrap() = Some(value);
        }
        let cable = Cable::new(["a".to_owned(), "b".to_owned()]);
        let mut wire = ImpairedWire::new(PeerWire::attach(cable, 0, false), written.knobs(rate).unwrap().unwrap());
        let mut take = |now| {
            wire.take(&[0; 60], now);
            wire.arrivals.back().unwrap() - now
        };
        sent.map(&mut take).collect()
    }

    #[test]
    fn a_jitter_is_even_between_nothing_and_its_size() {
        let (count, spread) = (20_000, 20_000.0);
        let knobs = [("delay", "1ms"), ("jitter", "20us"), ("seed", "5")];
        // Far enough from each other that none waits for the one before.
        let times = times(&knobs, None, (0..count).map(|number| number * 1_000_000));
        assert!(times.iter().all(|time| (1_000_000..1_020_000).contains(time)));
        let jitters: Vec<f64> = times.iter().map(|time| f64::from(u32::try_from(time - 1_000_000).unwrap())).collect();
        // Each tenth of it has a tenth of the frames, within five deviations.
        let (each, share) = (f64::from(u32::try_from(count).unwrap()) * 0.1, spread * 0.1);
        for tenth in 0..10 {
            let from = f64::from(tenth) * share;
            let frames = jitters.iter().filter(|jitter| (from..from + share).contains(*jitter)).count();
            let off = (f64::from(u32::try_from(frames).unwrap()) - each).abs();
            assert!(off < 5.0 * (each * 0.9).sqrt(), "{frames} frames in tenth {tenth}");
        }
        let mean = jitters.iter().sum::<f64>() / (each * 10.0);
        assert!((mean / spread - 0.5).abs() < 5.0 * (1.0 / 12.0_f64).sqrt() / (each * 10.0).sqrt(), "{mean}");
    }

    #[test]
    fn a_delay_and_a_rate_are_as_long_as_they_are() {
        let delay = times(&[("delay", "1.5ms")], None, (0..100).map(|number| number * 10));
        assert!(delay.iter().all(|time| *time == 1_500_000), "{delay:?}");
        // All at once: each leaves half a millisecond after the one before, and stays so long on the way.
        let rate = times(&[("delay", "1ms")], Some("2k"), std::iter::repeat_n(7, 100));
        let due = |number: u64| 1_000_000 + (number + 1) * 500_000;
        assert!((0..100).zip(&rate).all(|(number, time)| time.abs_diff(due(number)) <= 1), "{rate:?}");
    }
}
