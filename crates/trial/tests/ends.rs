//! Searches end soon, whatever generator and device do.
#![allow(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;
use trial::simulate::{Device, Truth};
use trial::{
    AnyTest, BinarySearch, Delays, Ended, Goal, Line, Method, Outcome, Profile, Reason, Report, Setup, TRIES,
    Throughput, ThroughputPlan, Traffic, Trial, Verdict,
};

const LOW: f64 = 9_000.0;
const HIGH: f64 = 14_880_952.0;

/// With a warm-up, and time for ever.
fn profile(goals: &[Goal]) -> Profile {
    let plan = ThroughputPlan { goals: goals.to_vec(), warm_up_seconds: 1.0, most_seconds: 1e6 };
    Profile { throughput: plan, ..Profile::default() }
}

/// Searches with a device that is another one after so many trials.
fn search(goals: &[Goal], high: f64, devices: [&mut Device; 2], after: u64, most: u64) -> Throughput {
    let mut search = Throughput::new(goals.to_vec(), LOW..=high, &profile(goals)).unwrap();
    let [first, then] = devices;
    while let Some(trial) = search.next() {
        let device = if trial.number < after { &mut *first } else { &mut *then };
        search.tell(&device.run(&trial)).unwrap();
        assert!(search.spent().0 <= most, "{:?}: {:?}", search.spent(), search.results());
    }
    search
}

#[test]
fn a_generator_that_tires_is_sought_for_its_own_limit() {
    for (generator, high) in [(0.9e6, 2e6), (0.5e6, 2e6), (0.999e6, 2e6), (0.9e6, HIGH), (20_000.0, HIGH)] {
        for after in 1..8 {
            let truth = Truth { generator, ..Truth::default() };
            let [mut first, mut then] = [Truth::default(), truth].map(|truth| Device::new(truth, 1));
            let search = search(&[Goal::RFC2544], high, [&mut first, &mut then], after, 30);
            let result = search.results()[0];
            if !search.limits().is_empty() {
                assert_eq!(result.ended, Ended::AtGenerator, "{generator} after {after}: {result:?}");
                let lower = result.lower.unwrap();
                assert!(lower <= generator && lower >= 0.985 * generator, "{generator} after {after}: {result:?}");
            }
        }
    }
}

/// A rate over a time in which nothing was sent or forwarded is none of the device.
#[test]
fn a_highest_load_on_a_machine_that_stops_is_void() {
    let tell = |aways: &[Option<f64>]| {
        let setup = Setup::Frmol { rate: 1e9, max: Some(1_000.0) };
        let mut test = setup.start(&Profile::default()).unwrap();
        let told: Vec<Verdict> = aways
            .iter()
            .map(|away| {
                let mut outcome = Outcome::new(if away.is_some_and(|away| away > 0.1) { 48 } else { 1_000 }, 48);
                outcome.away = *away;
                test.tell(&outcome).unwrap()
            })
            .collect();
        let AnyTest::Frmol(frmol) = &test else { panic!("{test:?}") };
        (told, frmol.result(), test.limits().to_vec(), test.next().is_some())
    };
    // As long as the three trials of the profile allow, or not known.
    let (told, result, limits, goes_on) = tell(&[Some(0.1), None, Some(0.0)]);
    assert_eq!((told, limits, goes_on), (vec![Verdict::Counted; 3], vec![], false));
    assert_eq!(result.map(|result| (result.offered, result.forwarded)), Some((1_000.0, 48.0)));
    // Those that are void are done again.
    let void = Verdict::Void(Reason::Stopped);
    let (told, result, limits, goes_on) = tell(&[Some(0.2), Some(8.2), Some(0.05)]);
    assert_eq!((told, limits, goes_on), (vec![void, void, Verdict::Counted], vec![], true));
    assert_eq!(result.map(|result| (result.offered, result.repetitions)), Some((1_000.0, 1)));
    // Three times: a limit of the generator, and no rate of the device.
    let (told, result, limits, goes_on) = tell(&[Some(0.2); 3]);
    assert_eq!((told, goes_on), (vec![void, void, Verdict::Limit(Reason::Stopped)], false));
    assert!(result.is_none() && limits.len() == 1 && limits[0].reached == 48.0, "{result:?} {limits:?}");
}

#[test]
fn stalls_of_the_generator_leave_no_search_open() {
    for generator_stalls in [0.05, 0.1, 0.2, 0.3] {
        for seed in 0..200 {
            let truth = Truth { capacity: 3e6, generator_stalls, ..Truth::default() };
            let [mut first, mut then] = [(); 2].map(|()| Device::new(truth, seed));
            let search = search(&[Goal::RFC2544], HIGH, [&mut first, &mut then], 0, 40);
            let result = search.results()[0];
            assert!(matches!(result.ended, Ended::Found | Ended::AtGenerator), "{seed}: {result:?}");
            assert!((0.5 * 3e6..=3e6).contains(&result.lower.unwrap()), "{seed}: {result:?}");
        }
    }
}

#[test]
fn a_generator_that_misses_any_rate_ends_a_search() {
    let goals = [Goal { width: 1e-6, ..Goal::RFC2544 }];
    let profile = profile(&goals);
    let mut tests: [Box<dyn Method>; 2] = [
        Box::new(Throughput::new(goals.to_vec(), LOW..=HIGH, &profile).unwrap()),
        Box::new(BinarySearch::new(goals[0], LOW..=HIGH, &profile).unwrap()),
    ];
    for test in &mut tests {
        while let Some(trial) = test.next() {
            // It sends more than it is asked for.
            let sent = trial.traffic.frames() * 6 / 5;
            test.tell(&Outcome::new(sent, sent)).unwrap();
            assert!(test.spent().0 <= 61, "{:?}", test.limits().last());
        }
    }
}

/// An outcome with losses, of a trial that is void for this reason.
fn void(trial: &Trial, reason: Reason) -> Outcome {
    let sent = trial.traffic.frames();
    let mut outcome = Outcome::new(sent, sent - 9);
    outcome.delays = Some(Delays::new(1e4, 1e4, 1e4, 1e4, 1e4));
    outcome.last_lost = matches!(trial.traffic, Traffic::Overload { .. }).then_some(0.1);
    match reason {
        Reason::Rate => outcome.seconds = Some(trial.traffic.seconds() * 2.0),
        Reason::Link => outcome.link_fell = true,
        Reason::Clock => outcome.clock_jumped = true,
        Reason::Counts => outcome.received = sent + 1,
        Reason::Bursts => outcome.doubtful = 9,
        _ => panic!("{reason:?} is new"),
    }
    outcome
}

/// Of each test a trial that is void is asked for again, and after the third time a report has a limit of the generator, and no figure that
/// such a trial would have made.
#[test]
fn three_void_trials_of_any_test_are_a_limit_of_the_generator() {
    let mut profile = Profile::default();
    profile.throughput.warm_up_seconds = 0.0;
    let setups = [
        Setup::Throughput { goals: vec![Goal::NDR], low: LOW, high: HIGH },
        Setup::BinarySearch { goal: Goal::RFC2544, low: LOW, high: HIGH },
        Setup::Latency { rates: vec![1e5] },
        Setup::FrameLoss { highest: 2e6 },
        Setup::BackToBack { rate: 2e6, throughput: 1e6, range: None, filling: None },
        Setup::Recovery { throughput: 1e6, highest: 2e6 },
        Setup::Frmol { rate: 2e6, max: None },
    ];
    let all = [Reason::Rate, Reason::Link, Reason::Clock, Reason::Counts, Reason::Bursts];
    for (setup, reason) in setups.iter().flat_map(|setup| all.map(|reason| (setup, reason))) {
        let counts = match setup {
            // Whatever it sends is the highest load.
            Setup::Frmol { .. } => matches!(reason, Reason::Rate | Reason::Bursts),
            // What is lost decides about nothing.
            Setup::Latency { .. } => reason == Reason::Bursts,
            _ => false,
        };
        let mut test = setup.start(&profile).unwrap();
        let mut lines = format!("{}\n{}\n", Line::run(profile.clone()), Line::test(64, setup.clone()));
        let first = test.next().unwrap();
        for time in 1..=TRIES {
            let trial = test.next().unwrap();
            assert_eq!((trial.traffic, trial.number + 1), (first.traffic, u64::from(time)), "{setup:?}: {reason:?}");
            let outcome = void(&trial, reason);
            lines += &format!("{}\n", Line::trial(trial, outcome));
            let verdict = match (counts, time) {
                (true, _) => Verdict::Counted,
                (false, TRIES) => Verdict::Limit(reason),
                (false, _) => Verdict::Void(reason),
            };
            assert_eq!(test.tell(&outcome).unwrap(), verdict, "{setup:?}: {reason:?}");
        }
        let report = Report::read(&lines).unwrap();
        let reasons: Vec<Reason> = report.parts()[0].void.iter().map(|void| void.reason).collect();
        let limits: Vec<Reason> = test.limits().iter().map(|limit| limit.reason).collect();
        let times = if counts { 0 } else { TRIES as usize };
        assert_eq!((reasons, limits), (vec![reason; times], vec![reason; times.min(1)]), "{setup:?}");
        // The most that is lost is known, and that a recovery took.
        let is_bound = matches!(setup, Setup::FrameLoss { .. } | Setup::Recovery { .. }) && reason == Reason::Bursts;
        let bounds: Vec<_> = report.rows().iter().map(|row| row.bound).collect();
        assert_eq!(bounds == [Some(trial::Bound::AtMost)], is_bound, "{setup:?}: {bounds:?}");
        let has_figure = report.rows().iter().any(|row| row.value.is_some()) && !is_bound;
        let text = report.to_string();
        let words = format!("limit of the generator, 64 bytes: {reason} 3 times");
        assert_eq!((has_figure, text.contains(&words)), (counts, !counts), "{setup:?}: {text}");
    }
}

#[test]
fn a_buffer_costs_about_as_much_as_a_binary_search_at_most() {
    for buffer in [0u32, 10_000, 100_000, 300_000, 1_000_000, 3_000_000, 100_000_000] {
        let truth = Truth { capacity: 3e6, buffer: buffer.into(), ..Truth::default() };
        let [mut first, mut then, mut same] = [(); 3].map(|()| Device::new(truth, 1));
        let search = search(&[Goal::RFC2544], HIGH, [&mut first, &mut then], 0, 30);
        let mut strict = BinarySearch::new(Goal::RFC2544, LOW..=HIGH, &profile(&[])).unwrap();
        while let Some(trial) = strict.next() {
            strict.tell(&same.run(&trial)).unwrap();
        }
        let (result, ours, theirs) = (search.results()[0], search.spent().1, strict.spent().1);
        println!("a buffer of {buffer} frames: {ours:.0} s, binary search {theirs} s");
        assert!(ours <= 1.1 * theirs, "{buffer}: {ours} s and {theirs} s");
        // A trial of 60 s also forwards what the buffer holds.
        let most = 3e6 + f64::from(buffer) / 60.0;
        assert_eq!(result.ended, Ended::Found);
        assert!(result.lower.unwrap() <= most + 1.0 && result.upper.unwrap() >= most - 1.0, "{buffer}: {result:?}");
    }
}

#[test]
fn chance_does_not_make_a_search_creep() {
    for loss in [1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8] {
        for seed in 0..20 {
            let [mut first, mut then] = [(); 2].map(|()| Device::new(Truth { loss, ..Truth::default() }, seed));
            search(&[Goal::RFC2544], HIGH, [&mut first, &mut then], 0, 80);
        }
    }
}

/// Of a device that forwarded a rate and then loses frames by chance, at any rate worth a name, the search is not led down a step at a
/// time by what it once forwarded.
#[test]
fn a_device_that_was_better_is_soon_forgotten() {
    let strict = Goal {
        loss_ratio: 0.0,
        exceed_ratio: 0.7,
        duration_sum: 9.0,
        final_seconds: 1.0,
        initial_seconds: 1.0,
        width: 0.05,
    };
    let fine = Goal { loss_ratio: 0.005, exceed_ratio: 0.0, duration_sum: 1.0, width: 1e-4, ..strict };
    for seed in 0..50 {
        let varies = Truth { capacity_varies: 0.1, generator_stalls: 0.3, ..Truth::default() };
        let loses = Truth { loss: 0.000_46, ..Truth::default() };
        let [mut first, mut then] = [varies, loses].map(|truth| Device::new(truth, seed));
        let search = search(&[fine, strict], HIGH, [&mut first, &mut then], 10, 400);
        let ended: Vec<Ended> = search.results().iter().map(|result| result.ended).collect();
        assert!(!ended.contains(&Ended::Open), "{seed}: {:?}", search.results());
    }
}

#[test]
fn a_report_of_thousands_of_trials_says_what_the_search_did() {
    let goals = vec![Goal { duration_sum: 4_900.0, ..Goal::NDR }];
    let profile = profile(&goals);
    let setup = Setup::Throughput { goals: goals.clone(), low: LOW, high: HIGH };
    let mut lines = format!("{}\n{}\n", Line::run(profile.clone()), Line::test(64, setup));
    let mut test = Throughput::new(goals, LOW..=HIGH, &profile).unwrap();
    let mut device = Device::new(Truth { capacity_varies: 0.01, ..Truth::default() }, 3);
    while let Some(trial) = test.next() {
        let outcome = device.run(&trial);
        lines += &format!("{}\n", Line::trial(trial, outcome));
        test.tell(&outcome).unwrap();
    }
    assert!(test.spent().0 > 5_000, "{:?}", test.spent());
    let report = Report::read(&lines).unwrap();
    assert_eq!(report.rows()[0].value, test.results()[0].throughput);
}

fn goal() -> impl Strategy<Value = Goal> {
    let share = prop_oneof![Just(0.0), 0.0..0.9];
    let more = prop_oneof![Just(1.0), 1.0..9.0];
    (prop_oneof![Just(0.0), 0.0..0.1], share, more.clone(), more, 1e-4..0.1f64).prop_map(
        |(loss_ratio, exceed_ratio, longer, more, width)| Goal {
            loss_ratio,
            exceed_ratio,
            initial_seconds: 1.0,
            final_seconds: longer,
            duration_sum: longer * more,
            width,
        },
    )
}

fn truth() -> impl Strategy<Value = Truth> {
    let some = |most: f64| prop_oneof![Just(0.0), 0.0..most];
    let generator = prop_oneof![Just(f64::INFINITY), 1e3..3e6];
    let buffer = prop_oneof![Just(0), 0u64..3_000_000];
    (some(0.1), buffer, some(0.01), some(0.3), generator, some(0.3)).prop_map(
        |(capacity_varies, buffer, loss, stall, generator, generator_stalls)| Truth {
            capacity_varies,
            buffer,
            loss,
            stall,
            stall_frames: 200,
            generator,
            generator_stalls,
            ..Truth::default()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_search_ends_soon(
        goals in prop::collection::vec(goal(), 1..3),
        truths in [truth(), truth()],
        seed: u64,
        after in 0..30u64,
    ) {
        let [mut first, mut then] = truths.map(|truth| Device::new(truth, seed));
        // The longest of 300,000 takes 324.
        let search = search(&goals, HIGH, [&mut first, &mut then], after, 1_000);
        prop_assert!(search.results().iter().all(|result| result.ended != Ended::Open), "{:?}", search.results());
    }
}
