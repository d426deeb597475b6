//! Folders of runs that a simulated device has had.

use trial::simulate::{Device, Truth};
use trial::{Line, Profile, Setup};

/// Numbers as `pktgen rfc2544 --one-way` has them for trials of so many seconds, done so often.
pub(crate) fn profile(seconds: f64, repetitions: u32) -> Profile {
    let mut profile =
        Profile { name: "short: soft:a and soft:b, one way, IPv4, 1 flow".to_owned(), ..Profile::default() };
    for goal in &mut profile.throughput.goals {
        (goal.final_seconds, goal.initial_seconds) = (seconds, seconds.min(1.0));
        goal.duration_sum = seconds * f64::from(repetitions);
    }
    profile.throughput.warm_up_seconds = seconds.min(1.0);
    (profile.latency.seconds, profile.frmol.seconds, profile.loss.seconds) = (1, 1, seconds);
    (profile.recovery.overload_seconds, profile.recovery.recovery_seconds) = (seconds, seconds);
    (profile.latency.repetitions, profile.frmol.repetitions) = (repetitions, repetitions);
    (profile.bursts.repetitions, profile.recovery.repetitions) = (repetitions, repetitions);
    profile
}

/// Lines of tests of frames of 64 bytes on a simulated device.
pub(crate) fn simulated(profile: &Profile, truth: Truth, setups: Vec<Setup>) -> String {
    let (mut device, mut lines) = (Device::new(truth, 1), format!("{}\n", Line::run(profile.clone())));
    for setup in setups {
        device.test((profile, 64), setup, &mut lines).unwrap();
    }
    lines
}

/// A folder with these lines.
pub(crate) fn folder_of(lines: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("trials.jsonl"), lines).unwrap();
    folder
}
