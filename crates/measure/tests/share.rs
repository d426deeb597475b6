//! What several receivers know of a stream together, against sets and lists of all that arrived.

use measure::{Kind, Share, Shared, Tag, TagWriter, Verdict, WINDOW};
use proptest::prelude::*;
use std::collections::HashSet;

const SENDERS: usize = 2;
const RECEIVERS: usize = 3;

/// The tag of a frame that was due at 1.
fn tag(number: u64) -> Tag {
    #[expect(clippy::cast_possible_truncation, reason = "numbers wrap")]
    let number = number as u32;
    Tag { stream: 7, number, due: Some(1) }
}

/// What is to be said of a sender's frames, by looking at everything each time.
#[derive(Default)]
struct Oracle {
    seen: HashSet<u64>,
    /// New numbers at each receiver, in their order.
    arrived: [Vec<u64>; RECEIVERS],
    first: u64,
    verdict: Verdict,
}

impl Oracle {
    fn saw(&mut self, receiver: usize, number: u64) {
        if number < self.first {
            return;
        }
        if !self.seen.insert(number) {
            self.verdict.duplicate += 1;
            return;
        }
        let arrived = &mut self.arrived[receiver];
        if let Some(first) = arrived.iter().position(|other| *other > number) {
            let extent = (arrived.len() - first) as u64;
            self.verdict.reordered += 1;
            self.verdict.extents += extent;
            self.verdict.greatest_extent = self.verdict.greatest_extent.max(extent);
        }
        arrived.push(number);
    }

    fn clear(&mut self, sent: u64) {
        *self = Self { first: sent, ..Self::default() };
    }
}

#[derive(Clone, Debug)]
enum Event {
    /// A sender hands over so many frames.
    Send(usize, u64),
    /// A frame arrives, so many numbers below the last that its sender has sent.
    Arrive { sender: usize, receiver: usize, back: u64 },
    /// The first sender begins anew; or the second, if only the first has.
    Clear,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let arrive = |back: std::ops::Range<u64>| {
        (0..SENDERS, 0..RECEIVERS, back).prop_map(|(sender, receiver, back)| Event::Arrive { sender, receiver, back })
    };
    let event = prop_oneof![
        4 => (0..SENDERS, 1..40_u64).prop_map(|(sender, frames)| Event::Send(sender, frames)),
        12 => arrive(0..30),
        4 => arrive(0..3000),
        1 => Just(Event::Clear),
    ];
    prop::collection::vec(event, 1..300)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Whoever receives which frame, in which order and how often.
    #[test]
    fn all_receivers_together_agree_with_sets_and_lists(events in events(), begin in prop_oneof![Just(0), Just((1_u64 << 32) - 100)]) {
        let shared: Vec<_> = (0..SENDERS).map(|_| Shared::new(RECEIVERS)).collect();
        let mut shares: Vec<_> = (0..RECEIVERS).map(|me| Share::new(me, SENDERS)).collect();
        let mut oracles: Vec<_> = (0..SENDERS).map(|_| Oracle::default()).collect();
        let (mut sent, mut clears, mut is_half) = ([begin; SENDERS], 0, false);
        for ((shared, oracle), sent) in shared.iter().zip(&mut oracles).zip(&sent) {
            shared.begin(0);
            shared.note(*sent, 0, 0);
            // What was before counts for nothing.
            shared.clear(*sent, clears);
            oracle.clear(*sent);
        }
        for event in events {
            match event {
                Event::Send(sender, frames) => {
                    shared[sender].note(sent[sender], usize::try_from(frames).unwrap_or(0), 2);
                    sent[sender] += frames;
                }
                Event::Arrive { sender, receiver, back } => {
                    let Some(number) = sent[sender].checked_sub(back + 1).filter(|number| *number >= begin) else { continue };
                    shares[receiver].saw(sender, &shared[sender], tag(number), 10);
                    oracles[sender].saw(receiver, number);
                }
                Event::Clear => {
                    let sender = if is_half { 1 } else { 0 };
                    clears += u64::from(!is_half);
                    is_half = !is_half;
                    shared[sender].clear(sent[sender], clears);
                    oracles[sender].clear(sent[sender]);
                }
            }
        }
        if is_half {
            shared[1].clear(sent[1], clears);
            oracles[1].clear(sent[1]);
        }
        for share in &mut shares {
            shared.iter().enumerate().for_each(|(sender, shared)| share.look(sender, shared));
        }
        let (mut all, mut expected) = (Verdict::default(), Verdict::default());
        for ((shared, oracle), sent) in shared.iter().zip(&oracles).zip(&sent) {
            all += shared.verdict(*sent);
            let (sent, received) = (*sent - oracle.first, oracle.seen.len() as u64);
            expected += Verdict { sent, received, lost: sent - received, ..oracle.verdict };
        }
        shares.iter().for_each(|share| all += share.unusual());
        prop_assert_eq!(all, expected);
        prop_assert_eq!(shares.iter().map(Share::received).sum::<u64>(), expected.received);
        let times = |which: usize| shares.iter().filter_map(move |share| share.latencies()[which].summary()).map(|all| all.count).sum::<u64>();
        prop_assert_eq!((times(0), times(1)), (expected.received, expected.received));
    }
}

#[test]
fn what_cannot_be_or_is_too_late_is_neither_received_nor_new() {
    let (shared, mut share) = (Shared::new(1), Share::new(0, 1));
    shared.begin(100);
    shared.note(0, 10, 100);
    let tag = |number: u32, due: u64| Tag { stream: 7, number, due: Some(due) };
    // Not sent yet; due before the begin.
    share.saw(0, &shared, tag(10, 110), 120);
    share.saw(0, &shared, tag(u32::MAX, 110), 120);
    share.saw(0, &shared, tag(3, 50), 120);
    assert_eq!((share.received(), share.impossible()), (0, 3));
    // As many later as the map has places.
    for from in (10..=WINDOW + 10).step_by(1 << 15) {
        shared.note(from, 1 << 15, 100);
    }
    let window = u32::try_from(WINDOW).unwrap_or(0);
    // Within the window, as far back as there is.
    for number in [window + 20, 20, 20] {
        share.saw(0, &shared, tag(number, 110), 120);
    }
    let Verdict { reordered, duplicate, late, .. } = share.unusual();
    assert_eq!((share.received(), reordered, duplicate, late), (2, 1, 1, 0));
    share.saw(0, &shared, tag(window + 40, 110), 120);
    share.saw(0, &shared, tag(3, 110), 120);
    assert_eq!((share.received(), share.unusual().late), (3, 1));
    // Those around it are not known to be late, and are new.
    share.saw(0, &shared, tag(40, 110), 120);
    share.saw(0, &shared, tag(40, 110), 120);
    let Verdict { reordered, duplicate, .. } = share.unusual();
    assert_eq!((share.received(), reordered, duplicate), (4, 2, 2));
}

#[test]
fn what_is_missing_is_lost_once_it_was_handed_over_long_ago() {
    let (shared, mut share) = (Shared::new(2), Share::new(0, 1));
    shared.begin(0);
    shared.note(0, 10, 1000);
    shared.note(10, 10, 2000);
    // Two of each ten are missing, and those above the highest.
    [0, 1, 2, 4, 5, 6, 7, 8, 10, 11, 13, 15].into_iter().for_each(|number| share.saw(0, &shared, tag(number), 2500));
    let so_far = |now, patience| {
        let Verdict { sent, received, lost, .. } = shared.verdict_so_far(now, patience);
        [sent, received, lost]
    };
    assert_eq!(so_far(2500, 100), [16, 12, 4]);
    assert_eq!(so_far(2500, 501), [14, 12, 2]);
    assert_eq!(so_far(2500, 2000), [12, 12, 0]);
    shared.clear(12, 1);
    share.look(0, &shared);
    assert_eq!(so_far(2500, 2000), [0, 0, 0]);
}

/// The numbers of a whole window, in words and beside them, against those that are known to be missing.
#[test]
fn what_is_missing_of_a_window_is_counted_word_by_word() {
    let (shared, mut share) = (Shared::new(1), Share::new(0, 1));
    shared.begin(0);
    let (sent, is_missing) = (WINDOW + 12_345, |number: u64| number % 37 == 5 || (40_000..40_100).contains(&number));
    for number in 0..sent {
        // Handed over one by one, a tick apart.
        shared.note(number, 1, 10 + number);
    }
    (0..sent).filter(|number| !is_missing(*number)).for_each(|number| share.saw(0, &shared, tag(number), sent + 10));
    for patience in [0, 1, 2, 31, 32, 33, 64, 1000, 30_011, WINDOW - 1, WINDOW, WINDOW + 1] {
        // Of what is handed over in so many ticks up to the last one, and of one window at most.
        let recent = sent.saturating_sub(patience.min(WINDOW));
        let lost = (0..recent).filter(|number| is_missing(*number)).count() as u64;
        assert_eq!(shared.verdict_so_far(sent + 9, patience).lost, lost, "{patience}");
    }
}

/// Two threads receive the same frames, and others of their own: each number is new at one of them.
#[test]
fn a_number_is_new_once_whoever_is_faster() {
    const SENT: u64 = 200_000;
    let shared = Shared::new(2);
    shared.begin(0);
    shared.note(0, 0, 0);
    // All of it is sent; times of hand-overs are of no matter here.
    for from in (0..SENT).step_by(1 << 15) {
        shared.note(from, 1 << 15, 1);
    }
    let receive = |me: usize| {
        let mut share = Share::new(me, 1);
        // Every third is lost; of the others one receiver has the even and the other the odd, and of each tenth both a copy.
        let mine = |number: &u64| !number.is_multiple_of(3) && (number % 2 == me as u64 || number % 10 == 5);
        (0..SENT).filter(mine).for_each(|number| share.saw(0, &shared, tag(number), 5));
        share
    };
    let (one, two) = std::thread::scope(|scope| {
        let other = scope.spawn(|| receive(1));
        (receive(0), other.join())
    });
    let Ok(two) = two else { panic!("it ended by a panic") };
    let received = (0..SENT).filter(|number| !number.is_multiple_of(3)).count() as u64;
    let doubled = (0..SENT).filter(|number| !number.is_multiple_of(3) && number % 10 == 5).count() as u64;
    let verdict = shared.verdict(SENT);
    let late = one.unusual().late + two.unusual().late;
    // A thread that the other has left behind by a window is late.
    assert_eq!(verdict.received + verdict.lost, verdict.sent);
    assert_eq!(verdict.received + one.unusual().duplicate + two.unusual().duplicate + late, received + doubled);
    assert!(verdict.received <= received && verdict.received + late >= received, "{verdict:?} {late}");
    assert_eq!((one.unusual().reordered, two.unusual().reordered), (0, 0));
}

/// A frame of each kind, as it is written.
#[test]
fn short_tags_count_and_have_times_from_the_hand_over() -> Result<(), measure::Error> {
    let (shared, mut share) = (Shared::new(1), Share::new(0, 1));
    shared.begin(0);
    shared.note(0, 2, 1);
    let mut frame = [0; 60];
    for (number, kind) in [(0, Kind::Short), (1, Kind::Full)] {
        TagWriter::new(kind, 7, 60, 42, None)?.write(&mut frame, number, 1);
        let tag = Tag::parse(&frame).unwrap_or(Tag { stream: 0, number: 9, due: None });
        share.saw(0, &shared, tag, 5);
    }
    assert_eq!(share.received(), 2);
    assert_eq!(
        share.latencies().map(|times| times.summary().map(|all| (all.count, all.max))),
        [Some((1, 4.0)), Some((2, 4.0))]
    );
    Ok(())
}

/// A device that holds a million frames of both kinds, which were sent at one rate; and one that holds a few for long.
#[test]
fn frames_that_wait_long_have_times_from_the_hand_over() {
    for (due, gap, held) in [(Some(()), 100, 1_000_000), (None, 100, 1_000_000), (None, 300_000_000, 40)] {
        let (shared, mut share) = (Shared::new(1), Share::new(0, 1));
        shared.begin(0);
        let time = |number: u64| 1_000 + number / 32 * 32 * gap;
        (0..held + 32).step_by(32).for_each(|number| shared.note(number, 32, time(number)));
        let wait = held * gap;
        for number in 0..held.min(50_000) {
            let tag = Tag { due: due.map(|()| time(number)), ..tag(number) };
            share.saw(0, &shared, tag, time(number) + wait);
        }
        let ring = share.latencies()[1].summary().map(|all| (all.count, all.min, all.max));
        #[expect(clippy::cast_precision_loss, reason = "a time")]
        let wait = wait as f64;
        let is_right = |(count, min, max)| count == held.min(50_000) && min > wait * 0.9999 && max < wait * 1.0001;
        assert!(ring.is_some_and(is_right), "{due:?} {gap} {held} {ring:?}");
    }
}
