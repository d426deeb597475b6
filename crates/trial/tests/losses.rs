//! Rows of a loss test: what trials that lost none, void ones, and frames that came late or twice do to them.
#![allow(clippy::unwrap_used, reason = "tests")]

use trial::simulate::{Device, Truth};
use trial::{Line, Method as _, Profile, Report, Row, Setup};

/// The rows of a test of a device.
fn rows(truth: Truth, setup: &Setup, profile: &Profile) -> Vec<Row> {
    let mut text = format!("{}\n", Line::run(profile.clone()));
    Device::new(truth, 1).test((profile, 64), setup.clone(), &mut text).unwrap();
    Report::read(&text).unwrap().rows()
}

/// A device that loses frames 20 at a time now and then loses none of many trials, which say that they may not have seen it; of one that is
/// overloaded they say nothing.
#[test]
fn a_trial_without_a_loss_says_what_others_saw() {
    let setup = Setup::FrameLoss { highest: 1e4 };
    let words = "may not see";
    let (mut lossless, mut told) = (0, 0);
    for seed in 1..=10 {
        let mut profile = Profile::default();
        profile.loss.seconds = 0.1;
        let truth = Truth { loss_burst: 0.001, loss_burst_frames: 20, capacity: 1e9, ..Truth::default() };
        let mut text = format!("{}\n", Line::run(profile.clone()));
        Device::new(truth, seed).test((&profile, 64), setup.clone(), &mut text).unwrap();
        for row in Report::read(&text).unwrap().rows().iter().filter(|row| row.value == Some(0.0)) {
            (lossless, told) = (lossless + 1, told + u32::from(row.note.contains(words)));
        }
    }
    assert!(lossless > 10 && told > lossless / 5, "{told} of {lossless}");
    let overloaded = rows(Truth { capacity: 5e3, buffer: 64, ..Truth::default() }, &setup, &Profile::default());
    assert!(overloaded.len() > 5 && !overloaded.iter().any(|row| row.note.contains(words)), "{overloaded:?}");
}

/// Of trials that figures are of the rows have the frames that came twice, of those that are void for bursts of the generator, too.
#[test]
fn what_came_twice_in_trials_of_the_figures_is_told() {
    for (fell, told) in [(false, true), (true, false)] {
        let setup = Setup::FrameLoss { highest: 1e6 };
        let mut test = setup.start(&Profile::default()).unwrap();
        let mut text = format!("{}\n{}\n", Line::run(Profile::default()), Line::test(64, setup));
        for _ in 0..3 {
            let trial = test.next().unwrap();
            let sent = trial.traffic.frames();
            let mut outcome = trial::Outcome::new(sent, sent - 10);
            (outcome.doubtful, outcome.duplicate, outcome.link_fell) = (10, 5, fell);
            text += &format!("{}\n", Line::trial(trial, outcome));
            test.tell(&outcome).unwrap();
        }
        let rows = Report::read(&text).unwrap().rows();
        assert_eq!(rows[0].note.contains("15 frames came twice in all"), told, "{rows:?}");
    }
}

/// What comes after the drain of a void trial is no loss of a figure; after one that counts it is.
#[test]
fn frames_after_the_drain_are_told_of_trials_that_count() {
    // What is void for bursts of the generator is in the figure.
    for (is_void, doubtful, told) in [(true, 0, false), (false, 0, true), (false, 10, true)] {
        let setup = Setup::FrameLoss { highest: 1e6 };
        let mut test = setup.start(&Profile::default()).unwrap();
        let mut text = format!("{}\n{}\n", Line::run(Profile::default()), Line::test(64, setup));
        for from_earlier in [0, 7] {
            let trial = test.next().unwrap();
            let sent = trial.traffic.frames();
            let mut outcome = trial::Outcome::new(sent, sent - 10);
            (outcome.link_fell, outcome.doubtful, outcome.from_earlier) = (is_void, doubtful, from_earlier);
            text += &format!("{}\n", Line::trial(trial, outcome));
            test.tell(&outcome).unwrap();
        }
        let rows = Report::read(&text).unwrap().rows();
        assert_eq!(rows[0].note.contains("7 frames came after the drain"), told, "{rows:?}");
    }
}
