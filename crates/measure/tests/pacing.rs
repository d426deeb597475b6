//! Due times against fractions and lists of all of them; clocks with holes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use measure::{HandOvers, Kind, Load, Pacer, Pattern, Rate, Stream, TagWriter};
use proptest::prelude::*;

const HZ: u64 = 2_445_424_000;

fn rate(text: &str) -> Rate {
    text.parse::<Load>().unwrap().rate(60, None).unwrap()
}

/// A pacer that keeps all its due times in a list.
struct Oracle {
    due: Vec<u64>,
    at: usize,
    missed: u64,
    catch_up: u64,
}

impl Oracle {
    fn take(&mut self, now: u64, room: usize) -> Vec<u64> {
        while self.due.get(self.at).is_some_and(|due| now.saturating_sub(*due) > self.catch_up) {
            self.at += 1;
            self.missed += 1;
        }
        let taken: Vec<u64> = self.due[self.at..].iter().copied().take_while(|due| *due <= now).take(room).collect();
        self.at += taken.len();
        taken
    }
}

proptest! {
    #[test]
    fn no_rate_drifts(pps in 1..20_000_000_u64, frames in 0..1_000_000_000_000_u64, hz in 1_000_000..5_000_000_000_u64) {
        let interval = rate(&pps.to_string()).interval(hz);
        let exact = u128::from(frames) * u128::from(hz) / u128::from(pps);
        // frames * interval has more bits than there are: by halves.
        let (high, low) = (interval >> 64, interval & u128::from(u64::MAX));
        let paced = u128::from(frames) * high + ((u128::from(frames) * low) >> 64);
        prop_assert!(exact <= paced && paced - exact <= 1, "{} for {}", paced, exact);
    }

    /// Of whole seconds there are as many as the rate says, whatever the counter's.
    #[test]
    fn as_many_are_due_as_the_rate_says(pps in 1..5_000_u64, seconds in 1..4_u64, hz in 1_000_000..5_000_000_000_u64) {
        let mut pacer = Pacer::new(rate(&pps.to_string()), Pattern::Even, hz, u64::MAX);
        pacer.start(7, Some(seconds * hz));
        let mut due = vec![0; 20_000];
        prop_assert_eq!(pacer.take(u64::MAX, &mut due), usize::try_from(pps * seconds).unwrap());
        prop_assert!(pacer.is_over());
    }

    #[test]
    fn those_that_take_turns_are_due_as_one(pps in 1..200_000_u64, burst in 0..5_u32, of in 1..17_u16, end in 1..20_000_000_u64) {
        let pattern = if burst == 0 { Pattern::Even } else { Pattern::Bursts(burst) };
        let rate = rate(&pps.to_string());
        let due = |mut pacer: Pacer| {
            pacer.start(3, Some(end));
            let mut due = vec![0; 4096];
            let count = pacer.take(u64::MAX, &mut due);
            due.truncate(count);
            due
        };
        let whole = due(Pacer::new(rate, pattern, HZ, u64::MAX));
        let part = |turn| due(Pacer::new(rate.part(of), pattern, HZ, u64::MAX).in_turn(turn, of));
        let mut parts: Vec<u64> = (0..of).flat_map(part).collect();
        parts.sort_unstable();
        prop_assert_eq!(parts.len(), whole.len());
        prop_assert!(parts.iter().zip(&whole).all(|(part, whole)| part.abs_diff(*whole) <= 1), "{:?} {:?}", parts, whole);
    }

    #[test]
    fn agrees_with_a_list(
        pps in 1_000..3_000_000_u64, burst in 0..40_u32, catch_up in 0..400_000_u64, end in prop::option::of(0..9_000_000_u64),
        steps in prop::collection::vec((prop_oneof![9 => 0..20_000_u64, 1 => 0..2_000_000_u64], 1..40_usize), 1..150), start in 0..u64::MAX / 2,
    ) {
        let pattern = if burst == 0 { Pattern::Even } else { Pattern::Bursts(burst) };
        let rate = rate(&pps.to_string());
        let mut pacer = Pacer::new(rate, pattern, HZ, catch_up);
        pacer.start(start, end);
        let interval = rate.interval(HZ);
        let all = u128::from(burst.max(1));
        let last = u128::from(end.unwrap_or(u64::MAX)).min(u128::from(steps.iter().map(|(step, _)| step).sum::<u64>()) + 1);
        let due = (0_u128..).map(|n| (n / all * all * interval) >> 64).take_while(|due| *due < last);
        let mut oracle = Oracle { due: due.map(|due| u64::try_from(due).unwrap()).collect(), at: 0, missed: 0, catch_up };
        let (mut now, mut taken) = (0, 0);
        for (step, room) in steps {
            now += step;
            let mut due = vec![0; room];
            let count = pacer.take(start + now, &mut due);
            let due: Vec<u64> = due[..count].iter().map(|due| due - start).collect();
            taken += count as u64;
            prop_assert_eq!(due, oracle.take(now, room));
            prop_assert_eq!((pacer.missed(), pacer.taken(), pacer.intended()), (oracle.missed, taken, oracle.at as u64));
        }
    }

    #[test]
    fn a_random_process_goes_on_after_a_hole_as_if_there_were_none(seed: u64, hole in 0..60_000_000_u64) {
        let times = |hole: u64| {
            let mut pacer = Pacer::new(rate("100000"), Pattern::Poisson(seed), 1_000_000_000, 1_000_000);
            pacer.start(0, Some(100_000_000));
            let (mut now, mut all, mut due) = (0, Vec::new(), [0; 1000]);
            while !pacer.is_over() || now < 100_000_000 {
                now += if now == 20_000_000 { hole + 100_000 } else { 100_000 };
                let count = pacer.take(now, &mut due);
                all.extend_from_slice(&due[..count]);
            }
            (all, pacer.missed())
        };
        let (whole, none) = times(0);
        let (holed, missed) = times(hole);
        prop_assert_eq!(none, 0);
        prop_assert_eq!(holed.len() as u64 + missed, whole.len() as u64);
        prop_assert!(holed.iter().all(|due| whole.binary_search(due).is_ok()));
    }
}

/// However much was due in a stall, and however fast random times can be drawn.
#[test]
fn no_random_time_is_later_than_what_is_caught_up() {
    const CATCH_UP: u64 = 1_000_000;
    for (pps, stall) in [("10000000", 100_000_000), ("1000000000", 10_000_000), ("100000", 50_000_000)] {
        let mut pacer = Pacer::new(rate(pps), Pattern::Poisson(1), 1_000_000_000, CATCH_UP);
        pacer.start(0, None);
        let (mut now, mut due) = (stall, [0; 32]);
        for _ in 0..100 {
            let count = pacer.take(now, &mut due);
            assert!(due[..count].iter().all(|due| (now - CATCH_UP..=now).contains(due)), "{pps}: {due:?} at {now}");
            now += 1_000;
        }
        assert!(pacer.taken() > 50, "{pps}");
        // As many are due as the rate makes, but for chance: five deviations, and what is not missed yet.
        pacer.miss(now);
        #[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
        let (made, due) = (pps.parse::<f64>().unwrap() * now as f64 / 1e9, pacer.intended() as f64);
        assert!((made - due).abs() < 5.0 * made.sqrt(), "{pps}: {due} for {made}");
    }
}

#[test]
fn random_intervals_are_exponential() {
    let mut pacer = Pacer::new(rate("1000000"), Pattern::Poisson(7), 1_000_000_000, u64::MAX);
    pacer.start(0, None);
    let mut due = vec![0; 200_000];
    assert_eq!(pacer.take(u64::MAX, &mut due), due.len());
    let gaps: Vec<u64> = due.windows(2).map(|two| two[1] - two[0]).collect();
    #[expect(clippy::cast_precision_loss, reason = "shares")]
    let share = |least: u64| gaps.iter().filter(|gap| **gap >= least).count() as f64 / gaps.len() as f64;
    // Mean 1,000 ticks; exp(-x) of all gaps are longer than x means, here within four deviations or so.
    assert!((due[due.len() - 1] as f64 / due.len() as f64 / 1000.0 - 1.0).abs() < 0.01);
    for (least, expected) in [(500, 0.6065), (1000, 0.3679), (2000, 0.1353), (4000, 0.0183)] {
        assert!((share(least) - expected).abs() < 0.005, "{} of {expected} above {least}", share(least));
    }
}

/// A stall of 50 ms, and an instrument that says so: frames that are missed, and due-time latency where the frames
/// themselves took 5 us each.
#[test]
fn a_stalled_sender_shows_as_missed_and_in_latency_from_the_due_time() {
    let (begun, ms) = (77_000_u64, 1_000_000_u64);
    let mut pacer = Pacer::new(rate("10000"), Pattern::Even, 1_000_000_000, ms);
    pacer.start(begun, Some(1000 * ms));
    let (mut hand_overs, mut stream, mut number) = (HandOvers::new(), Stream::new(1, begun), 0_u32);
    let (mut now, mut due) = (begun, [0; 32]);
    let writer = TagWriter::new(Kind::Full, 1, 60, 42, None).unwrap();
    while now < begun + 1001 * ms {
        now += if now == begun + 500 * ms { 50 * ms } else { ms / 100 };
        let count = pacer.take(now, &mut due);
        for due in &due[..count] {
            let mut frame = [0; 60];
            writer.write(&mut frame, number, *due);
            hand_overs.note(number, 1, now);
            number += 1;
            assert_eq!(stream.saw([&frame[..]].into_iter(), now + 5_000, number.into(), Some(&hand_overs)), 0);
        }
    }
    // Of the 500 due after 500.0 ms, those from 549.0 to 550.0 ms are made good.
    assert_eq!((pacer.intended(), pacer.missed()), (10_000, 489));
    let verdict = stream.verdict(number.into());
    assert_eq!((verdict.sent, verdict.lost), (9_511, 0));
    let (from_due, from_ring) = (stream.from_due().unwrap(), stream.from_hand_over().unwrap());
    assert_eq!((from_ring.min, from_ring.max), (5_000.0, 5_000.0));
    assert!(from_due.max > 900_000.0 && from_due.max <= 1_005_000.0, "{from_due:?}");
}

#[test]
fn what_is_given_up_is_missed_up_to_then() {
    for pattern in [Pattern::Even, Pattern::Bursts(10)] {
        let rate = "1000".parse::<Load>().unwrap().rate(60, None).unwrap();
        let mut pacer = Pacer::new(rate, pattern, 1_000_000, 500_000);
        pacer.start(50, Some(1_000_000));
        let mut due = [0; 10];
        assert_eq!(pacer.take(50 + 9_000, &mut due), 10);
        pacer.miss(49);
        assert_eq!(pacer.missed(), 0, "before it began");
        pacer.miss(50 + 99_999);
        assert_eq!(pacer.missed(), 90, "{pattern:?}");
        pacer.miss(u64::MAX);
        assert_eq!((pacer.intended(), pacer.is_over()), (1000, true), "{pattern:?}");
    }
}

proptest! {
    /// Rates that change, and pauses: as many are due as the times at each rate make, and no change is followed by a burst.
    #[test]
    fn rates_that_change_add_up(
        parts in prop::collection::vec((1_000..3_000_000_u64, 0..4_000_000_u64, prop::option::of(0..50_000_000_u64)), 1..12),
        burst in 1..5_u32, start in 0..u64::MAX / 2,
    ) {
        let pattern = if burst == 1 { Pattern::Even } else { Pattern::Bursts(burst) };
        let mut pacer = Pacer::new(rate("1000000"), pattern, HZ, u64::MAX);
        let (mut now, mut asked, mut due) = (start, 0.0, vec![0; 20_000]);
        pacer.start(start, None);
        for (pps, ticks, pause) in parts {
            pacer.take(now, &mut due);
            pacer.set_rate(now, rate(&pps.to_string()), HZ);
            now += ticks;
            let count = pacer.take(now, &mut due);
            prop_assert!(due[..count].iter().all(|due| *due <= now && *due + ticks >= now));
            let pps = u32::try_from(pps).map(f64::from).unwrap();
            prop_assert!((pacer.frames_per_tick() * 2_445_424_000.0 / pps - 1.0).abs() < 1e-9);
            asked += pps * u32::try_from(ticks).map(f64::from).unwrap() / 2_445_424_000.0;
            if let Some(pause) = pause {
                pacer.miss(now);
                now += pause;
                pacer.put_off(pause);
                prop_assert_eq!(pacer.take(now, &mut due), 0);
            }
        }
        let intended = u32::try_from(pacer.intended()).map(f64::from).unwrap();
        prop_assert!((intended - asked).abs() <= f64::from(burst) + 0.01, "{} for {}", intended, asked);
        prop_assert_eq!(pacer.missed(), 0);
    }
}

#[test]
fn what_was_late_at_a_change_is_missed_and_a_pause_moves_no_end() {
    let mut pacer = Pacer::new(rate("1000"), Pattern::Even, 1_000_000, 100_000);
    pacer.start(0, Some(1_000_000));
    let mut due = [0; 64];
    assert_eq!(pacer.take(0, &mut due), 1);
    // Ten were due, and none taken: they do not follow at the new rate.
    pacer.set_rate(10_500, rate("10000"), 1_000_000);
    assert_eq!((pacer.missed(), pacer.take(10_500, &mut due)), (10, 0));
    assert_eq!((pacer.take(10_650, &mut due), due[..2].to_vec()), (2, vec![10_550, 10_650]));
    // From 20,650 on nothing is due for half a second, and then what is left of the time.
    assert_eq!(pacer.take(20_650, &mut [0; 200]), 100);
    pacer.miss(20_650);
    pacer.put_off(500_000);
    assert_eq!((pacer.take(520_650, &mut due), pacer.missed()), (0, 10));
    assert_eq!(pacer.take(520_850, &mut due), 2);
    pacer.miss(u64::MAX);
    assert!(pacer.is_over());
    // The end was not put off: 479,350 ticks of 100 are left, the last of them is due before it.
    assert_eq!(pacer.missed(), 10 + 4793 - 2);
}
