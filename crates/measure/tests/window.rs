//! The window against sets and lists of all that arrived.

use measure::{Seen, Verdict, WINDOW, Window};
use proptest::prelude::*;
use std::collections::HashSet;

/// What a window is to say, by looking at everything each time.
#[derive(Default)]
struct Oracle {
    arrived: Vec<u64>,
    seen: HashSet<u64>,
    verdict: Verdict,
}

impl Oracle {
    fn saw(&mut self, number: u64) -> Seen {
        let highest = self.arrived.iter().max().copied();
        if highest.is_some_and(|highest| number + WINDOW <= highest) {
            self.verdict.late += 1;
            return Seen::Late;
        }
        if !self.seen.insert(number) {
            self.verdict.duplicate += 1;
            return Seen::Duplicate;
        }
        // RFC 4737, 4.2.2: from the first frame with a higher number.
        if let Some(first) = self.arrived.iter().position(|other| *other > number) {
            let extent = (self.arrived.len() - first) as u64;
            self.verdict.reordered += 1;
            self.verdict.extents += extent;
            self.verdict.greatest_extent = self.verdict.greatest_extent.max(extent);
        }
        self.arrived.push(number);
        Seen::New
    }

    fn verdict(&self, sent: u64) -> Verdict {
        let highest = self.arrived.iter().max().map_or(0, |highest| highest + 1);
        let (sent, received) = (sent.max(highest), self.seen.len() as u64);
        // Each run ends before a number that came, or with the last.
        let begins = |number: &&u64| **number > 0 && !self.seen.contains(&(**number - 1));
        let runs_lost = self.seen.iter().filter(begins).count() as u64 + u64::from(sent > highest);
        Verdict { sent, received, lost: sent - received, runs_lost, ..self.verdict }
    }
}

/// One step of a program: from the highest number so far, ahead or back.
fn steps() -> impl Strategy<Value = Vec<i64>> {
    let window = i64::try_from(WINDOW).unwrap_or(i64::MAX);
    let step = prop_oneof![
        6 => Just(0_i64),
        3 => 0..5_i64,
        3 => -6..0_i64,
        1 => -3000..3000_i64,
        1 => (-window - 3)..(-window + 3),
        1 => (window - 3)..(window + 3),
        1 => -100_000..200_000_i64,
    ];
    prop::collection::vec(step, 1..400)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// However frames are exchanged and lost, the last that is lost is the highest of which none came in time.
    #[test]
    fn the_last_that_is_lost_is_the_highest_that_is_missing(steps in steps(), more in 0..3_u64, runs in prop::collection::vec(0..70_000_i64, 1..4)) {
        let (mut window, mut seen, mut next) = (Window::new(), HashSet::new(), 0_i64);
        let in_order = |run: &i64| vec![0; usize::try_from(*run).unwrap_or(0)];
        let (begin, end) = steps.split_at(steps.len() / 2);
        for step in begin.iter().copied().chain(runs.iter().flat_map(in_order)).chain(end.iter().copied()) {
            let number = (next + step).max(0);
            next = next.max(number + 1);
            let number = number.unsigned_abs();
            if window.saw(u32::try_from(number).unwrap_or(0)) == Seen::New {
                seen.insert(number);
            }
        }
        let sent = next.unsigned_abs() + more;
        prop_assert_eq!(window.last_lost(sent), (0..sent).rev().find(|number| !seen.contains(number)));
    }
}

proptest! {
    #[test]
    fn agrees_with_sets_also_where_numbers_wrap(steps in steps(), far: bool) {
        let (mut window, mut oracle, mut next) = (Window::new(), Oracle::default(), 0_u64);
        // Almost to the end of 32 bits, in steps that can be told from steps back.
        let far = if far { &[0, (1_u64 << 31) - 5, (1 << 32) - 50][..] } else { &[] };
        for number in far {
            window.saw(u32::try_from(*number).unwrap_or(0));
            oracle.saw(*number);
            next = number + 1;
        }
        for step in steps {
            let Some(number) = next.checked_add_signed(step) else { continue };
            prop_assert_eq!(window.saw(u32::try_from(number % (1 << 32)).unwrap_or(0)), oracle.saw(number), "number {}", number);
            next = next.max(number + 1);
        }
        for sent in [0, next, next + 17] {
            let verdict = window.verdict(sent);
            prop_assert_eq!(verdict, oracle.verdict(sent));
            prop_assert_eq!(verdict.sent, verdict.received + verdict.lost);
        }
    }

    #[test]
    fn any_numbers_keep_the_sum(numbers in prop::collection::vec(any::<u32>(), 0..200), sent in 0..1_u64 << 33) {
        let mut window = Window::new();
        window.set_sent(sent);
        let mut kinds = [0; 4];
        for number in &numbers {
            kinds[window.saw(*number) as usize] += 1;
        }
        let verdict = window.verdict(sent);
        prop_assert_eq!(verdict.sent, sent);
        prop_assert_eq!(verdict.received + verdict.lost, sent);
        prop_assert_eq!(kinds, [verdict.received, verdict.duplicate, verdict.late, verdict.impossible]);
        prop_assert_eq!(kinds.iter().sum::<u64>(), numbers.len() as u64);
    }
}

#[test]
fn head_and_tail_are_lost_and_nothing_is_everything() {
    assert_eq!(Window::new().verdict(1000).lost, 1000);
    let mut window = Window::new();
    (1000..4000).for_each(|number| assert_eq!(window.saw(number), Seen::New));
    let verdict = window.verdict(5000);
    assert_eq!((verdict.received, verdict.lost, verdict.reordered), (3000, 2000, 0));
}

#[test]
fn late_doubles_do_not_make_up_for_losses() {
    // 500 lost, and 500 others repeated beyond the window.
    let mut window = Window::new();
    (0..1000).chain(1500..100_000).for_each(|number| assert_eq!(window.saw(number), Seen::New));
    (0..500).for_each(|number| assert_eq!(window.saw(number), Seen::Late));
    let verdict = window.verdict(100_000);
    assert_eq!((verdict.lost, verdict.late, verdict.duplicate, verdict.reordered), (500, 500, 0, 0));
}

#[test]
fn many_gaps_at_a_time_keep_extents_close() {
    // Every second number, then the others: each of them after half of what came since, and more.
    let mut window = Window::new();
    (0..20_000).step_by(2).for_each(|number| assert_eq!(window.saw(number), Seen::New));
    (1..20_000).step_by(2).for_each(|number| assert_eq!(window.saw(number), Seen::New));
    let verdict = window.verdict(20_000);
    assert_eq!((verdict.received, verdict.lost, verdict.reordered), (20_000, 0, 9_999));
    assert!(verdict.greatest_extent >= 10_000 && verdict.extents <= verdict.reordered * 20_000, "{verdict:?}");
}

proptest! {
    /// What was sent before it is cleared counts for nothing, whenever it comes; all else as in a window of its own.
    #[test]
    fn a_window_that_was_cleared_is_a_new_one(before in prop::collection::vec(0..2_000_u32, 0..200), sent in 2_000..200_000_u64, after in steps()) {
        let (mut window, mut fresh) = (Window::new(), Window::new());
        before.iter().for_each(|number| { window.saw(*number); });
        window.clear(sent);
        let mut highest = 0;
        for step in after {
            let number = highest + step;
            if number < 0 {
                let old = u64::try_from(sent.cast_signed() + number).ok().and_then(|number| u32::try_from(number).ok());
                if let Some(old) = old {
                    prop_assert_eq!(window.saw(old), Seen::Before);
                }
                continue;
            }
            let number = u32::try_from(number).unwrap();
            prop_assert_eq!(window.saw(number + u32::try_from(sent).unwrap()), fresh.saw(number));
            highest = highest.max(i64::from(number) + 1);
        }
        prop_assert_eq!(window.verdict(sent), fresh.verdict(0));
        prop_assert_eq!(window.verdict(sent + 1_000_000), fresh.verdict(1_000_000));
    }
}
