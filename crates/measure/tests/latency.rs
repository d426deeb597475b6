//! The histogram against a sorted list, and streams against what is known of them.

#![expect(clippy::cast_precision_loss, reason = "figures to compare")]

use measure::{HandOvers, Kind, Latency, Seen, Stream, Summary, TagWriter, WINDOW, Window};
use proptest::prelude::*;

fn near(one: f64, other: f64, share: f64) -> bool {
    (one - other).abs() <= other.abs() * share + 1e-9
}

proptest! {
    #[test]
    fn agrees_with_a_sorted_list(ticks in prop::collection::vec(prop_oneof![1..300_u64, 1..100_000_u64, 1..1_u64 << 48], 1..2000)) {
        let mut latency = Latency::new();
        ticks.iter().for_each(|ticks| latency.record(*ticks));
        let summary = latency.summary().unwrap();
        let mut sorted = ticks.clone();
        sorted.sort_unstable();
        let rank = |thousandths: usize| sorted[(sorted.len() * thousandths).div_ceil(1000).max(1) - 1] as f64;
        prop_assert_eq!(summary.count, ticks.len() as u64);
        prop_assert_eq!((summary.min, summary.max), (sorted[0] as f64, sorted[sorted.len() - 1] as f64));
        for (figure, thousandths) in [(summary.p50, 500), (summary.p90, 900), (summary.p99, 990), (summary.p999, 999)] {
            prop_assert!(near(figure, rank(thousandths), 0.004), "{} for {}", figure, rank(thousandths));
        }
        let mean = ticks.iter().map(|ticks| *ticks as f64).sum::<f64>() / ticks.len() as f64;
        prop_assert!(near(summary.mean, mean, 1e-9));
        let variance = ticks.iter().map(|ticks| (*ticks as f64 - mean).powi(2)).sum::<f64>() / ticks.len() as f64;
        let reach = variance.sqrt() * 1e-5 + summary.max * 1e-7;
        prop_assert!((summary.deviation - variance.sqrt()).abs() <= reach, "{} for {}", summary.deviation, variance.sqrt());
        prop_assert_eq!(summary.pdv, summary.p999 - summary.min);
        // RFC 3550, 6.4.1.
        let jitter = ticks.windows(2).fold(0.0, |jitter: f64, two| jitter + (two[0].abs_diff(two[1]) as f64 - jitter) / 16.0);
        prop_assert!((summary.jitter - jitter).abs() <= 1e-6 + jitter * 1e-9, "{} for {}", summary.jitter, jitter);
    }

    #[test]
    fn the_deviation_of_two_together_is_that_of_all(ticks in prop::collection::vec((any::<bool>(), 1..1_u64 << 40), 2..500)) {
        let (mut all, mut parts) = (Latency::new(), [Latency::new(), Latency::new()]);
        for (part, ticks) in ticks {
            parts[usize::from(part)].record(ticks);
            all.record(ticks);
        }
        let [mut one, other] = parts;
        one.add(&other);
        let (one, all) = (one.summary().unwrap(), all.summary().unwrap());
        prop_assert!((one.deviation - all.deviation).abs() <= all.deviation * 1e-6 + all.max * 1e-7, "{} for {}", one.deviation, all.deviation);
    }

    #[test]
    fn the_same_time_for_many_is_that_of_each(ticks in prop::collection::vec((0..5_u64, 0..50_u64), 1..60)) {
        let (mut one, mut other) = (Latency::new(), Latency::new());
        for (ticks, times) in ticks {
            (0..times).for_each(|_| one.record(ticks * 1000));
            other.record_times(ticks * 1000, times);
        }
        let (one, other) = (one.summary(), other.summary());
        let jitter = |summary: Option<Summary>| summary.map_or(0.0, |summary| summary.jitter);
        prop_assert!((jitter(one) - jitter(other)).abs() < 1e-6);
        let rest = |summary: Option<Summary>| summary.map(|summary| Summary { jitter: 0.0, ..summary });
        prop_assert_eq!(rest(one), rest(other));
    }

    #[test]
    fn times_are_those_of_the_last_frames(bursts in prop::collection::vec(1..3000_usize, 1..100), first: u32) {
        let (mut sent, mut now, mut next) = (HandOvers::new(), 1_u64 << 31, first);
        let mut all = Vec::new();
        for frames in bursts {
            now += 1_000_003;
            sent.note(next, frames, now);
            all.extend((0..frames).map(|_| now));
            next = next.wrapping_add(u32::try_from(frames).unwrap());
        }
        for (number, time) in (0_u32..).zip(&all).step_by(97) {
            let known = (all.len() as u64 - u64::from(number)) <= WINDOW;
            let whole = sent.whole_time(first.wrapping_add(number));
            prop_assert_eq!(sent.time(first.wrapping_add(number)), known.then_some(u32::try_from(time % (1 << 32)).unwrap()));
            // Of a frame long ago, the time of one that is fewer than 1,024 away, or than a burst.
            let near = |number: usize| all[number.min(all.len() - 1)];
            let number = number as usize;
            let whole = whole.unwrap();
            let about = near(number.saturating_sub(4_024))..=near(number + 4_024);
            prop_assert!(whole == *time || !known && about.contains(&whole), "{} {}", whole, time);
        }
        prop_assert_eq!((sent.time(next), sent.whole_time(next)), (None, None), "not sent yet");
    }

    /// Frames in bursts against one window for their numbers and one histogram for their times.
    #[test]
    fn bursts_agree_with_frames_one_by_one(
        steps in prop::collection::vec((prop_oneof![5 => Just(0_i64), 2 => -9..9_i64, 1 => -70_000..70_000_i64], 0..5000_u64), 1..300),
        bursts in prop::collection::vec(1..40_usize, 300), short: bool,
    ) {
        let kind = if short { Kind::Short } else { Kind::Full };
        let writer = TagWriter::new(kind, 9, 60, 42, None).unwrap();
        let (mut stream, mut window, mut due, mut ring) = (Stream::new(9, 0), Window::new(), Latency::new(), Latency::new());
        let mut hand_overs = HandOvers::new();
        let (mut next, mut now, mut steps) = (0_u64, 1_u64 << 40, steps.into_iter());
        hand_overs.note(0, 60_000, now - 2000);
        window.set_sent(60_000);
        for room in bursts {
            now += 10_000;
            let mut frames = Vec::new();
            let mut others = 0;
            for (step, ago) in steps.by_ref().take(room) {
                let number = next.saturating_add_signed(step);
                let mut frame = [0; 60];
                writer.write(&mut frame, u32::try_from(number).unwrap(), now - ago - 20_000_000);
                frames.push(frame);
                if ago % 7 == 0 {
                    frames.push([0; 60]);
                    others += 1;
                }
                if window.saw(u32::try_from(number).unwrap()) == Seen::New {
                    due.record(ago + 20_000_000);
                    ring.record(now - ((1 << 40) - 2000));
                    next = next.max(number + 1);
                }
            }
            prop_assert_eq!(stream.saw(frames.iter().map(|frame| &frame[..]), now, 60_000, Some(&hand_overs)), others);
        }
        prop_assert_eq!(stream.verdict(60_000), window.verdict(60_000));
        prop_assert_eq!(stream.from_due(), due.summary().filter(|_| !short));
        let without_jitter = |summary: Option<Summary>| summary.map(|summary| Summary { jitter: 0.0, ..summary });
        prop_assert_eq!(without_jitter(stream.from_hand_over()), without_jitter(ring.summary()));
    }
}

#[test]
fn nothing_has_no_figures_and_too_long_is_longest() {
    assert_eq!(Latency::new().summary(), None);
    let mut latency = Latency::new();
    latency.record(u64::MAX);
    assert_eq!(latency.summary().unwrap().max, ((1_u64 << 48) - 1) as f64);
}

#[test]
fn doubles_have_no_latency_and_damaged_times_do_not_count() {
    let (begun, mut sent) = (1_000_000_u64, HandOvers::new());
    let mut stream = Stream::new(1, begun);
    let writer = TagWriter::new(Kind::Full, 1, 60, 42, None).unwrap();
    sent.note(0, 3, begun + 10);
    let mut saw = |number, due, now| {
        let mut frame = [0; 60];
        writer.write(&mut frame, number, due);
        assert_eq!(stream.saw([&frame[..]].into_iter(), now, 3, Some(&sent)), 0);
    };
    saw(0, begun, begun + 100);
    saw(0, begun, begun + 900);
    // Due before the start, due later than now, and never sent.
    for (number, due) in [(1, begun - 1), (1, begun + 2_000), (9, begun + 50)] {
        saw(number, due, begun + 1_000);
    }
    assert_eq!((stream.impossible(), stream.verdict(3).duplicate, stream.received()), (3, 1, 1));
    let (due, ring) = (stream.from_due().unwrap(), stream.from_hand_over().unwrap());
    assert_eq!((due.count, due.max, ring.count, ring.max), (1, 100.0, 1, 90.0));
}

#[test]
fn a_stream_begins_with_nothing_whatever_came_before() {
    let writer = TagWriter::new(Kind::Full, 1, 60, 42, None).unwrap();
    let saw = |stream: &mut Stream, number, due, now| {
        let mut frame = [0; 60];
        writer.write(&mut frame, number, due);
        assert_eq!(stream.saw([&frame[..]].into_iter(), now, 10, None), 0);
    };
    let new = Stream::new(1, 0);
    let [mut with_frames, mut with_a_time, mut with_a_number, mut cleared] = [(); 4].map(|()| new.clone());
    saw(&mut with_frames, 0, 10, 20);
    saw(&mut with_frames, 5, 10, 20);
    saw(&mut with_a_time, 0, 30, 20);
    saw(&mut with_a_number, 10, 10, 20);
    cleared.clear(5);
    for mut stream in [new, with_frames, with_a_time, with_a_number, cleared] {
        stream.begin(1_000);
        let verdict = stream.verdict(0);
        assert_eq!((stream.impossible(), verdict, stream.from_due()), (0, Window::new().verdict(0), None));
        // Its numbers count from 0, and its times from the begin.
        saw(&mut stream, 0, 999, 1_100);
        saw(&mut stream, 0, 1_000, 1_100);
        assert_eq!((stream.impossible(), stream.received()), (1, 1));
        assert_eq!(stream.from_due().map(|latency| (latency.count, latency.max)), Some((1, 100.0)));
    }
}

/// 2^32 ticks are 1.4 s at 3 GHz.
#[test]
fn times_from_the_hand_over_are_right_beyond_32_bits() {
    for (kind, ticks) in [Kind::Short, Kind::Full]
        .into_iter()
        .flat_map(|kind| [1_u64 << 20, (1 << 32) - 1, 1 << 32, 5_000_000_000, 1 << 40].map(|ticks| (kind, ticks)))
    {
        let frames: Vec<_> = (0..64).map(|number| frame(kind, number, 1_000)).collect();
        let (mut sent, mut stream) = (HandOvers::new(), Stream::new(7, 0));
        sent.note(0, 64, 1_000);
        for burst in frames.chunks(32) {
            stream.saw(burst.iter().map(|frame| &frame[..]), 1_000 + ticks, 64, Some(&sent));
        }
        let of = |summary: Option<Summary>| summary.map(|summary| (summary.count, summary.mean, summary.max));
        let expected = Some((64, ticks as f64, ticks as f64));
        assert_eq!(of(stream.from_due()), expected.filter(|_| kind == Kind::Full));
        assert_eq!(of(stream.from_hand_over()), expected);
    }
}

/// A frame of stream 7.
fn frame(kind: Kind, number: u32, due: u64) -> [u8; 60] {
    let mut frame = [0; 60];
    TagWriter::new(kind, 7, 60, 42, None).expect("it has room").write(&mut frame, number, due);
    frame
}

/// A device that holds a million frames, which were sent at one rate; 32 are handed over at a time.
#[test]
fn frames_behind_which_many_were_sent_have_times_from_the_hand_over() {
    const SENT: u32 = 1_500_000;
    for (kind, gap) in [(Kind::Short, 100), (Kind::Full, 100), (Kind::Short, 30_000), (Kind::Full, 30_000)] {
        let (mut sent, mut stream) = (HandOvers::new(), Stream::new(7, 0));
        let time = |number: u32| 1_000 + u64::from(number / 32 * 32) * gap;
        (0..SENT).step_by(32).for_each(|number| sent.note(number, 32, time(number)));
        let wait = u64::from(SENT) * gap;
        for number in 0..200_000 {
            let frame = frame(kind, number, time(number));
            stream.saw([&frame[..]].into_iter(), time(number) + wait, u64::from(SENT), Some(&sent));
        }
        let ring = stream.from_hand_over().unwrap();
        assert_eq!(ring.count, 200_000, "{kind:?} {gap}");
        assert!(near(ring.min, wait as f64, 1e-4) && near(ring.max, wait as f64, 1e-4), "{kind:?} {gap} {ring:?}");
    }
}

/// The sender is stopped now and then, for longer than all frames between take.
#[test]
fn pauses_are_known_of_frames_behind_which_many_were_sent() {
    let (mut sent, mut times, mut now) = (HandOvers::new(), Vec::new(), 1_000);
    for number in (0..1_200_000).step_by(32) {
        now += match number {
            // Within a mark's frames, twice within one's, and where one begins.
            320_000 | 500_000..500_700 | 614_400 => 1_000_000_000,
            _ => 3_000,
        };
        sent.note(number, 32, now);
        times.extend([now; 32]);
    }
    for (number, time) in (0..).zip(times) {
        assert!(sent.whole_time(number).unwrap().abs_diff(time) <= 100_000, "{number}");
    }
}

#[test]
fn frames_behind_which_too_many_were_sent_have_no_time() {
    let mut sent = HandOvers::new();
    (0..4_000_000).step_by(64).for_each(|number| sent.note(number, 64, 1_000 + u64::from(number)));
    assert_eq!(sent.whole_time(100), None);
    assert_eq!(sent.whole_time(3_999_999), Some(1_000 + 3_999_936));
    assert!((2_500_000..2_600_000).all(|number| sent.whole_time(number).unwrap().abs_diff(u64::from(number)) < 1_100));
}

#[test]
fn counts_beyond_all_bounds_do_not_wrap() {
    let mut latency = Latency::new();
    latency.record_times(1, u64::MAX);
    latency.record_times(1000, u64::MAX);
    latency.record_times(1000, u64::MAX);
    assert!(latency.summary().unwrap().count >= u64::MAX - 1);
}
