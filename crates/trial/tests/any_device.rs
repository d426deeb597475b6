//! Searches end, whatever a device does, and constructors refuse what is no search.
#![allow(clippy::cast_possible_truncation, clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;
use trial::simulate::{Device, Truth};
use trial::{
    BackToBack, BinarySearch, BurstPlan, Delays, Ended, FrameLoss, Frmol, Goal, Latency, Method, Outcome, Phases,
    Profile, Recovery, Throughput,
};

fn goal() -> impl Strategy<Value = Goal> {
    let share = prop_oneof![Just(0.0), 0.0..0.9];
    (share.clone(), share, 0.001..30.0, 1.0..9.0, 1.0..9.0, prop_oneof![1e-5..0.01, 0.01..0.9]).prop_map(
        |(loss_ratio, exceed_ratio, initial_seconds, longer, more, width)| {
            let final_seconds = initial_seconds * longer;
            Goal { loss_ratio, exceed_ratio, initial_seconds, final_seconds, duration_sum: final_seconds * more, width }
        },
    )
}

/// Any outcome, of a sane device and generator or not: shares of the frames asked for that were sent, and of these that were received and
/// that the generator may have lost; seconds for which it was away; and incidents.
type Told = (f64, f64, f64, f64, u8);

fn outcome() -> impl Strategy<Value = Told> {
    let doubtful = prop_oneof![2 => Just(0.0), 1 => 0.0..0.01f64, 1 => 0.0..1.2f64];
    let away = prop_oneof![2 => Just(0.0), 1 => 0.0..0.01f64, 1 => 0.0..9.0f64];
    (0.5..1.5f64, prop_oneof![2 => Just(1.0), 1 => 0.99..1.0f64, 2 => 0.0..1.2f64], doubtful, away, any::<u8>())
}

/// Tells such outcomes until the test ends.
fn drive(test: &mut impl Method, outcomes: &[Told]) {
    for number in 0..60_000 {
        let Some(trial) = test.next() else { return };
        prop_assert_trial(&trial);
        let (sent, received, doubtful, away, flags) = outcomes[number % outcomes.len()];
        let asked = trial.traffic.frames() as f64;
        let sent = if flags < 230 { asked } else { asked * sent };
        let mut outcome = Outcome::new(sent as u64, (sent * received) as u64);
        outcome.doubtful = (sent * doubtful) as u64;
        outcome.away = (flags % 7 != 0).then_some(away);
        outcome.delays =
            (flags % 5 != 0).then(|| Delays::new(1e3, 1e4, away * 1e8 + 2e3, away * 1e9 + 1e4, away * 1e9 + 2e4));
        outcome.link_fell = flags == 255;
        outcome.clock_jumped = flags == 254;
        outcome.seconds = match flags {
            250 => Some(f64::NAN),
            251 => Some(-1.0),
            252 => Some(f64::INFINITY),
            _ => None,
        };
        outcome.last_lost = (flags % 3 == 0).then_some(f64::from(flags) - 50.0);
        test.tell(&outcome).unwrap();
    }
    panic!("no end of trials");
}

fn prop_assert_trial(trial: &trial::Trial) {
    let (rate, seconds) = (trial.traffic.rate(), trial.traffic.seconds());
    assert!(rate > 0.0 && rate <= 1e12 && seconds >= 0.0 && seconds.is_finite(), "{trial:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_search_ends_and_its_bounds_do_not_cross(
        goals in prop::collection::vec(goal(), 1..4),
        low in 0.5..1e4f64,
        span in 1.0001..1e6f64,
        outcomes in prop::collection::vec(outcome(), 1..40),
    ) {
        let mut search = Throughput::new(goals, low..=low * span, &Profile::default()).unwrap();
        drive(&mut search, &outcomes);
        prop_assert!(search.spent().0 < 3_000, "{:?}", search.spent());
        for result in search.results() {
            if let (Some(lower), Some(upper)) = (result.lower, result.upper) {
                prop_assert!(lower < upper);
                let narrow = upper - lower <= upper * result.goal.width * 1.000_001;
                prop_assert!(narrow || result.ended != Ended::Found, "{result:?}");
            }
            if let (Some(lower), Some(throughput)) = (result.lower, result.throughput) {
                prop_assert!((0.0..=lower).contains(&throughput));
                prop_assert!(throughput >= lower * (1.0 - result.goal.loss_ratio) * 0.999_999, "{result:?}");
            }
        }
    }

    #[test]
    fn other_tests_end_too(
        rate in 0.5..1e8f64,
        share in 0.0001..1.0f64,
        width in 1e-6..0.9f64,
        outcomes in prop::collection::vec(outcome(), 1..40),
    ) {
        let profile = Profile::default();
        let goal = Goal { width, ..Goal::RFC2544 };
        let mut strict = BinarySearch::new(goal, rate * share..=rate * 1.001, &profile).unwrap();
        drive(&mut strict, &outcomes);
        let result = strict.result();
        if let (Some(lower), Some(upper)) = (result.throughput, result.upper) {
            prop_assert!(lower < upper);
        }
        drive(&mut Latency::new(vec![rate, rate * share], &profile).unwrap(), &outcomes);
        drive(&mut FrameLoss::new(rate, &profile).unwrap(), &outcomes);
        drive(&mut Frmol::new(rate, &profile).unwrap(), &outcomes);
        drive(&mut BackToBack::new(rate, rate * share, &profile).unwrap(), &outcomes);
        drive(&mut Recovery::new(rate * share, rate, &profile).unwrap(), &outcomes);
    }

    #[test]
    fn no_numbers_panic(
        numbers in prop::collection::vec(
            prop_oneof![any::<f64>(), prop::sample::select(vec![0.0, -1.0, 1.0, f64::NAN, f64::INFINITY, 1e-9, 1e300])],
            10,
        ),
        counts in any::<(u32, u64)>(),
    ) {
        let [a, b, c, d, e, f, g, h, i, j] = numbers[..] else { unreachable!() };
        let plain = Profile::default();
        let profile = Profile {
            rate_tolerance: i,
            phases: Phases { drain: j, ..plain.phases },
            bursts: BurstPlan { repetitions: counts.0, step_frames: counts.1, ..plain.bursts },
            ..plain
        };
        for profile in [Profile::default(), profile] {
            let goal =
                Goal { loss_ratio: a, exceed_ratio: b, duration_sum: c, final_seconds: d, initial_seconds: e, width: f };
            for goal in [goal, Goal::NDR] {
                let _ = Throughput::new(vec![goal], g..=h, &profile).map(|test| prop_assert_trial(&test.next().unwrap()));
            }
            let _ = BinarySearch::new(goal, g..=h, &profile).map(|test| test.next());
            let _ = Latency::new(vec![g, h], &profile).map(|test| test.next());
            let _ = FrameLoss::new(g, &profile).map(|test| test.next());
            let _ = Frmol::new(g, &profile).map(|test| test.next());
            let _ = BackToBack::new(g, h, &profile).map(|test| test.next());
            let _ = Recovery::new(g, h, &profile).map(|test| test.next());
        }
    }

    #[test]
    fn the_same_seed_repeats(seed: u64, loss in 0.0..0.01f64, varies in 0.0..0.1f64) {
        let truth = Truth { loss, capacity_varies: varies, stall: 0.1, stall_frames: 9, ..Truth::default() };
        let mut twins = [(); 2].map(|()| Device::new(truth, seed));
        let search = Throughput::new(vec![Goal::PDR], 1e3..=1e7, &Profile::default()).unwrap();
        let trial = search.next().unwrap();
        for _ in 0..5 {
            let [one, other] = &mut twins;
            prop_assert_eq!(one.run(&trial), other.run(&trial));
        }
    }
}

#[test]
fn mistakes_are_errors_that_say_what_may_be() {
    let new = |goal, low, high| {
        Throughput::new(vec![goal], low..=high, &Profile::default()).map(|_| ()).unwrap_err().to_string()
    };
    assert_eq!(new(Goal { width: 0.0, ..Goal::NDR }, 1.0, 2.0), "the width is 0; it must be 0.000001 to below 1");
    assert!(
        new(Goal { loss_ratio: 1.0, ..Goal::NDR }, 1.0, 2.0).contains("the loss ratio is 1; it must be 0 to below 1")
    );
    assert!(new(Goal { exceed_ratio: f64::NAN, ..Goal::NDR }, 1.0, 2.0).contains("the exceed ratio is NaN"));
    assert!(new(Goal { initial_seconds: 2.0, ..Goal::NDR }, 1.0, 2.0).contains("at most the final one"));
    assert!(new(Goal { duration_sum: 0.5, ..Goal::NDR }, 1.0, 2.0).contains("at least the final trial duration"));
    for (low, high) in [(2.0, 1.0), (1.0, 1.0), (0.0, 1.0), (f64::NAN, 1.0), (1.0, f64::INFINITY)] {
        assert!(new(Goal::NDR, low, high).contains("the lower end must be positive and below the upper one"));
    }
    assert!(Throughput::new(vec![], 1.0..=2.0, &Profile::default()).unwrap_err().to_string().contains("no goals"));
    let error = BinarySearch::new(Goal::NDR, 1.0..=2.0, &Profile::default()).unwrap_err();
    assert_eq!(error.to_string(), "the exceed ratio is 0.5; it must be 0 in a binary search");
    assert!(Frmol::new(-1.0, &Profile::default()).is_err());
}
