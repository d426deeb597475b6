//! Searches end soon, whatever generator and device do.
#![allow(clippy::unwrap_used, reason = "tests")]

use trial::simulate::{Device, Truth};
use trial::{BinarySearch, Ended, Goal, Line, Method, Profile, Report, Setup, Throughput, ThroughputPlan};

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
            test.tell(&trial::Outcome::new(sent, sent)).unwrap();
            assert!(test.spent().0 <= 61, "{:?}", test.limits().last());
        }
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
