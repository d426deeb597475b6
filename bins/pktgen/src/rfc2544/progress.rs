//! How far a run is: a line for the trial at hand, redrawn on a terminal, one for each test elsewhere, and how long it may still take.

use crate::args::{Rfc2544Args, Test};
use cli::human::{counted, grouped};
use cli::output::offer;
use std::io::{self, IsTerminal as _};
use std::time::{Duration, Instant};
use trial::{Goal, Outcome, Profile, Setup, TRIES, Trial, Verdict};

/// Columns of a terminal that does not say how many it has.
const COLUMNS: usize = 80;
/// What begin and end of a trial take beside the phases of a trial, until it is known.
const OPENING: f64 = 0.05;
/// How long a test takes is up to the device, so until one of its kind is done this is what slow ones need: an upper bound for devices that lose
/// nothing by chance, and at most twice what those take that lose frames at the highest load (`simulated_devices_take_no_longer_than_said`).
/// Where frames are lost by chance, a search takes up to three times as long, which shows in the midst of the first
/// (`a_search_that_takes_long_is_not_the_only_one`).
///
/// Trials of a search that seek the region, and loads at which trials then decide, for each goal.
const SEEKING: f64 = 8.0;
const DECIDED: f64 = 1.25;
/// Halvings of a binary search down to a hundredth of the highest rate, beside those for its width, and its trials of full length: with a
/// large buffer it goes down in these.
const HALVINGS: f64 = 8.0;
const CONFIRMING: f64 = 5.0;
/// Trials of a search for the longest burst, up to 65,536 frames: these are doubled to, and halved, with those that lose frames sent again.
const BURSTS: f64 = 36.0;

#[derive(Debug)]
pub(super) struct Progress {
    terminal: bool,
    quiet: bool,
    /// Each test of all sizes, and the seconds that it is expected to take.
    kinds: Vec<Kind>,
    /// The test at hand.
    what: String,
    at: usize,
    begun: Instant,
    trials: u64,
    void: u64,
    /// Trials of all tests, and those of them that were void.
    all: (u32, u32),
    line: String,
}

#[derive(Debug)]
struct Kind {
    name: &'static str,
    /// Sizes that it is still to be done with.
    left: usize,
    /// Seconds that it takes until one is known, and that it takes at most, with each trial void as often as it may be.
    expected: f64,
    most: f64,
    /// How often and how long it was done.
    done: (u32, f64),
}

impl Progress {
    pub(super) fn new(profile: &Profile, args: &Rfc2544Args, sizes: usize) -> Self {
        Self {
            terminal: io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|name| name != "dumb"),
            quiet: args.quiet,
            kinds: kinds(profile, args, sizes),
            what: String::new(),
            at: 0,
            begun: Instant::now(),
            trials: 0,
            void: 0,
            all: (0, 0),
            line: String::new(),
        }
    }

    /// A test begins.
    pub(super) fn begin(&mut self, size: u32, setup: &Setup) {
        self.at = kind(setup);
        self.what = format!("{size} bytes, {}", self.kinds[self.at].name);
        (self.begun, self.trials, self.void) = (Instant::now(), 0, 0);
    }

    /// A test was done by an earlier run.
    pub(super) fn known(&mut self, setup: &Setup) {
        let kind = &mut self.kinds[kind(setup)];
        kind.left = kind.left.saturating_sub(1);
    }

    /// All tests with frames of a size have ended or were left out, and so many sizes are still to be done.
    pub(super) fn sizes_left(&mut self, sizes: usize) {
        self.kinds.iter_mut().for_each(|kind| kind.left = kind.left.min(sizes));
    }

    /// A trial begins.
    pub(super) fn trial(&mut self, next: &Trial) {
        self.trials += 1;
        let rate = next.traffic.rate();
        let rate = if rate >= super::UNLIMITED { "any rate".to_owned() } else { format!("{} pps", whole(rate)) };
        let left = words(self.left(self.begun.elapsed()));
        self.line = format!("{left} left: {}: trial {} at {rate}", self.what, self.trials);
        self.draw(&self.line);
    }

    /// A trial has ended.
    pub(super) fn told(&mut self, outcome: &Outcome, verdict: Verdict) {
        let is_void = verdict != Verdict::Counted;
        self.void += u64::from(is_void);
        self.all = (self.all.0 + 1, self.all.1 + u32::from(is_void));
        let result = match verdict {
            Verdict::Counted => format!("lost {}", grouped(outcome.sent.saturating_sub(outcome.received))),
            Verdict::Void(reason) | Verdict::Limit(reason) => format!("void, {reason}"),
        };
        self.draw(&format!("{}: {result}", self.line));
    }

    /// A test has ended.
    pub(super) fn end(&mut self) {
        self.ended(self.begun.elapsed());
    }

    fn ended(&mut self, took: Duration) {
        let kind = &mut self.kinds[self.at];
        kind.left = kind.left.saturating_sub(1);
        kind.done = (kind.done.0 + 1, kind.done.1 + took.as_secs_f64());
        let void = if self.void > 0 { format!(", {} void", self.void) } else { String::new() };
        let left = words(self.left(Duration::ZERO));
        let trials = counted(self.trials, "trial");
        let text = format!("{}: {trials}{void} in {}; about {left} left", self.what, words(took.as_secs_f64()));
        self.begun = Instant::now();
        self.say(&text);
    }

    /// Shows a line that stays.
    pub(super) fn say(&mut self, text: &str) {
        let clear = if self.terminal { "\r\x1b[K" } else { "" };
        self.write(&format!("{clear}{text}\n"));
    }

    /// Takes the line of the trial at hand away.
    pub(super) fn clear(&mut self) {
        if self.terminal {
            self.write("\r\x1b[K");
        }
    }

    fn draw(&self, text: &str) {
        if self.terminal {
            let columns = rustix::termios::tcgetwinsize(io::stderr()).map_or(0, |size| usize::from(size.ws_col));
            let columns = if columns == 0 { COLUMNS } else { columns };
            // What fills the last column as well goes on in the next line, on some terminals.
            let text: String = text.chars().take(columns - 1).collect();
            self.write(&format!("\r\x1b[K{text}"));
        }
    }

    fn write(&self, text: &str) {
        if !self.quiet {
            // Who does not read on, or has gone, does not stop the run.
            let _ = offer(io::stderr(), text, Duration::ZERO);
        }
    }

    /// Seconds that the tests still to be done may take when the one at hand has taken so long: as long as those of their kind so far.
    fn left(&self, elapsed: Duration) -> f64 {
        let all: f64 = self.kinds.iter().map(|kind| self.each(kind) * real(kind.left)).sum();
        let Some(kind) = self.kinds.get(self.at).filter(|kind| kind.left > 0) else { return all };
        let (each, elapsed) = (self.each(kind), elapsed.as_secs_f64());
        if elapsed <= each {
            return all - elapsed;
        }
        // How much longer it takes is not known: half as much as it already has, if it may; and so those after it.
        let takes = (elapsed + (elapsed - each) / 2.0).min(kind.most).max(elapsed);
        let (times, seconds) = kind.done;
        let others = (seconds + takes) / f64::from(times + 1);
        all - each * real(kind.left) + takes - elapsed + others * real(kind.left - 1)
    }

    /// Seconds that a test of this kind takes: as long as before, or else as expected, with trials as often void as all so far.
    fn each(&self, kind: &Kind) -> f64 {
        if kind.done.0 > 0 {
            return kind.done.1 / f64::from(kind.done.0);
        }
        let (trials, void) = self.all;
        let again = if void == 0 { 1.0 } else { (f64::from(trials) / f64::from(trials - void)).min(f64::from(TRIES)) };
        kind.expected * again
    }
}

/// All tests in the order of [`kind`].
fn kinds(profile: &Profile, args: &Rfc2544Args, sizes: usize) -> Vec<Kind> {
    let wants = |test| args.tests.contains(&test);
    let phases = profile.phases;
    let around = phases.routing_wait + phases.learning_wait + phases.drain + phases.settle + OPENING;
    let repeated =
        |one: trial::Repeated, rates: f64| f64::from(one.repetitions) * rates * (f64::from(one.seconds) + around);
    let searches = [Test::Throughput, Test::Latency, Test::BackToBack, Test::Recovery].into_iter().any(wants);
    let bursts = f64::from(profile.bursts.repetitions) * BURSTS * around;
    let [sent, trials] = search(profile, args.is_strict());
    let search = sent + trials * around;
    let of_recovery = profile.recovery.overload_seconds + profile.recovery.recovery_seconds;
    let recovery = f64::from(profile.recovery.repetitions) * (of_recovery + around);
    let rates = if args.is_strict() { 1.0 } else { 2.0 };
    // Each step, as it does them if the device loses frames at all rates.
    let losses = (1.0 / profile.loss.step).ceil();
    let kinds = [
        ("highest load", true, repeated(profile.frmol, 1.0)),
        ("throughput", searches, search),
        ("latency", wants(Test::Latency), repeated(profile.latency, rates)),
        ("back-to-back", wants(Test::BackToBack), bursts),
        ("loss", wants(Test::Loss), losses * (profile.loss.seconds + around)),
        ("recovery", wants(Test::Recovery), recovery),
    ];
    let one = |(name, wanted, expected)| {
        let left = if wanted { sizes } else { 0 };
        Kind { name, left, expected, most: f64::from(TRIES) * expected, done: (0, 0.0) }
    };
    let mut kinds = kinds.map(one);
    // Where frames are lost by chance it may go on for as long as it is allowed to send.
    kinds[1].most = (profile.throughput.most_seconds * search / sent).max(search);
    kinds.into()
}

/// Seconds for which a search for the throughput sends, and its trials.
fn search(profile: &Profile, is_strict: bool) -> [f64; 2] {
    let of_goal = |goal: &Goal| {
        let decides = goal.duration_sum / goal.final_seconds;
        let [seeking, deciding] =
            if is_strict { [HALVINGS - goal.width.log2(), CONFIRMING] } else { [SEEKING, DECIDED * decides] };
        [seeking * goal.initial_seconds + deciding * goal.final_seconds, seeking + deciding]
    };
    let warm_up = profile.throughput.warm_up_seconds;
    let none = [warm_up, f64::from(u8::from(warm_up > 0.0))];
    let sum = |[sent, trials]: [f64; 2], [more, count]: [f64; 2]| [sent + more, trials + count];
    profile.throughput.goals.iter().map(of_goal).fold(none, sum)
}

/// Which of the kinds of tests it is.
fn kind(setup: &Setup) -> usize {
    match setup {
        Setup::Frmol { .. } => 0,
        Setup::Throughput { .. } | Setup::BinarySearch { .. } => 1,
        Setup::Latency { .. } => 2,
        Setup::BackToBack { .. } => 3,
        Setup::Recovery { .. } => 5,
        _ => 4,
    }
}

#[expect(clippy::cast_precision_loss, reason = "a few sizes")]
fn real(count: usize) -> f64 {
    count as f64
}

fn whole(rate: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a figure for people; saturates")]
    grouped(rate.round() as u64)
}

/// A time for people: `45 s`, `3:05 min`, `2:10 h`.
fn words(seconds: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a figure for people; saturates")]
    let seconds = seconds.ceil() as u64;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{}:{:02} min", seconds / 60, seconds % 60),
        _ => format!("{}:{:02} h", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use clap::Parser as _;
    use trial::Method as _;
    use trial::simulate::{Device, Truth};

    /// Of a run over seven sizes.
    fn progress(options: &[&str]) -> (Profile, Progress) {
        let words = ["pktgen", "rfc2544", "--ports", "soft:a,soft:b", "--out", "unused", "--quiet"];
        let words = [&words[..], options].concat();
        let Command::Rfc2544(args) = Args::parse_from(&words).command else { panic!("{words:?}") };
        let profile = args.profile();
        let progress = Progress::new(&profile, &args, 7);
        (profile, progress)
    }

    fn left(progress: &Progress) -> f64 {
        progress.left(Duration::ZERO)
    }

    /// Seconds that the tests with frames of one size take of a device on a line of 10 Gbit/s.
    fn takes(profile: &Profile, is_strict: bool, truth: Truth) -> f64 {
        let (highest, goals) = (14.88e6, profile.throughput.goals.clone());
        let (mut device, mut seconds) = (Device::new(truth, 1), 0.0);
        let mut done = |setup: Setup| {
            let mut test = setup.start(profile).unwrap();
            while let Some(next) = test.next() {
                let phases = next.phases;
                let around = phases.routing_wait + phases.learning_wait + phases.drain + phases.settle + OPENING;
                seconds += around + next.traffic.seconds();
                test.tell(&device.run(&next)).unwrap();
            }
            test
        };
        done(Setup::Frmol { rate: highest, max: None });
        let low = highest * super::super::LOWEST;
        let found = done(match goals[..] {
            [goal] if is_strict => Setup::BinarySearch { goal, low, high: highest },
            _ => Setup::Throughput { goals, low, high: highest },
        });
        let found = super::super::found::found_by(&found, profile).unwrap();
        let rates = if is_strict { vec![found.rate] } else { vec![found.rate, found.rate / 2.0] };
        done(Setup::Latency { rates });
        if found.above == super::super::found::Above::Loses {
            done(found.bursts(highest, 0.0).unwrap());
        }
        done(Setup::FrameLoss { highest });
        seconds
    }

    #[test]
    fn simulated_devices_take_no_longer_than_said() {
        let usual = Truth { capacity: 2.2e6, buffer: 512, jitter: 20e-6, ..Truth::default() };
        let devices = [
            ("a device of 2.2 Mpps", usual),
            ("one of 0.2 Mpps", Truth { capacity: 2e5, ..usual }),
            ("one of 12 Mpps", Truth { capacity: 1.2e7, ..usual }),
            ("one with room for 65,000 frames", Truth { buffer: 65_000, ..usual }),
            ("a capacity that varies by 2 %", Truth { capacity_varies: 0.02, ..usual }),
            ("one that forwards all", Truth { capacity: 1e9, ..usual }),
        ];
        let runs = [&[][..], &["--trial-time", "5s"], &["--trial-time", "200ms", "--repetitions", "1"]];
        for options in runs.into_iter().chain([&["--profile", "rfc2544"][..]]) {
            let (profile, progress) = progress(options);
            let said = left(&progress);
            for (name, truth) in devices {
                let takes = 7.0 * takes(&profile, options.contains(&"rfc2544"), truth);
                println!("{options:?}, {name}: {said:.0} s were said, and {takes:.0} s are true");
                assert!(takes <= said, "{options:?}, {name}: {said} of {takes}");
                // What forwards all has no longest burst, so that test is left out.
                assert!(said <= 2.0 * takes || truth.capacity > 1e8, "{options:?}, {name}: {said} of {takes}");
            }
        }
    }

    #[test]
    fn a_test_that_was_left_out_is_not_waited_for() {
        let (_, mut progress) = progress(&["--tests", "back-to-back"]);
        let all = left(&progress);
        progress.sizes_left(6);
        assert!((left(&progress) / all - 6.0 / 7.0).abs() < 1e-9, "{} of {all}", left(&progress));
        progress.sizes_left(0);
        assert!(left(&progress) <= 0.0, "{}", left(&progress));
    }

    #[test]
    fn what_is_left_is_as_long_as_what_was_done() {
        let (_, mut progress) = progress(&["--tests", "loss"]);
        // Seven sizes, each with the highest load and losses.
        let all = left(&progress);
        assert!((90.0..150.0).contains(&all), "{all}");
        let setup = Setup::Frmol { rate: 1e6, max: None };
        progress.known(&setup);
        let known = left(&progress);
        assert!(known < all);
        progress.begin(64, &setup);
        progress.ended(Duration::from_secs(60));
        // Once one took a minute, so will the five others.
        let after = left(&progress);
        assert!(after > known + 200.0, "{after} after {known}");
        for setup in [Setup::Frmol { rate: 1e6, max: None }, Setup::FrameLoss { highest: 1e6 }] {
            (0..7).for_each(|_| progress.known(&setup));
        }
        assert!(left(&progress) <= 0.0, "{}", left(&progress));
    }

    #[test]
    fn void_trials_are_done_again_in_what_is_left() {
        let (_, mut progress) = progress(&["--tests", "loss"]);
        let all = left(&progress);
        progress.begin(64, &Setup::Frmol { rate: 1e12, max: None });
        let mut told = |verdict| {
            progress.told(&Outcome::default(), verdict);
            left(&progress)
        };
        assert!((told(Verdict::Counted) - all).abs() < 1e-6);
        // Half of them; and never more than the tries that a trial has.
        assert!((told(Verdict::Void(trial::Reason::Rate)) - 2.0 * all).abs() < 1e-6);
        let last = (0..20).map(|_| told(Verdict::Limit(trial::Reason::Rate))).last().unwrap_or(0.0);
        assert!((last - f64::from(TRIES) * all).abs() < 1e-6, "{last}");
    }

    /// Where frames are lost by chance a search takes two or three times as long as elsewhere: what is left says so in the midst of the first.
    #[test]
    fn a_search_that_takes_long_is_not_the_only_one() {
        let (profile, mut progress) = progress(&["--tests", "throughput"]);
        (0..7).for_each(|_| progress.known(&Setup::Frmol { rate: 1e12, max: None }));
        let setup = Setup::Throughput { goals: profile.throughput.goals.clone(), low: 1_488.0, high: 14.88e6 };
        let mut test = setup.start(&profile).unwrap();
        let mut device = Device::new(Truth { capacity: 2.2e6, loss: 1e-6, ..Truth::default() }, 1);
        progress.begin(64, &setup);
        let (mut elapsed, mut said) = (0.0, Vec::new());
        while let Some(next) = test.next() {
            let phases = next.phases;
            elapsed += phases.learning_wait + next.traffic.seconds() + phases.drain + phases.settle + OPENING;
            let outcome = device.run(&next);
            progress.told(&outcome, test.tell(&outcome).unwrap());
            said.push((elapsed, progress.left(Duration::from_secs_f64(elapsed))));
        }
        assert!(elapsed > 2.0 * progress.kinds[1].expected, "it takes long: {elapsed}");
        for (at, left) in said.iter().filter(|(at, _)| *at > 0.6 * elapsed) {
            let truth = 7.0 * elapsed - at;
            assert!((0.6..1.5).contains(&(left / truth)), "{left} after {at}, and {truth} is true");
        }
        // The time for which a search may send bounds it.
        let most = progress.kinds[1].most;
        let at_end = progress.left(Duration::from_secs_f64(most));
        assert!((at_end - 6.0 * most).abs() < 1e-6, "{at_end}");
    }

    #[test]
    fn times_are_for_people() {
        for (seconds, text) in [(0.0, "0 s"), (59.2, "1:00 min"), (3599.0, "59:59 min"), (7_800.0, "2:10 h")] {
            assert_eq!(words(seconds), text);
        }
    }
}
