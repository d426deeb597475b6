//! How far a run is: a line for the trial at hand, redrawn on a terminal, one for each test elsewhere, and how long it may still take.

use crate::args::{Rfc2544Args, Test};
use cli::human::{counted, grouped};
use cli::output::offer;
use std::io::{self, IsTerminal as _};
use std::time::{Duration, Instant};
use trial::{Outcome, Profile, Setup, Trial, Verdict};

/// Columns of a line that is redrawn.
const COLUMNS: usize = 79;
/// What begin and end of a trial take beside the phases of a trial, until it is known.
const OPENING: f64 = 0.05;
/// Trials of a search, until it is known.
const SEARCH: f64 = 60.0;
const BURSTS: f64 = 30.0;
const LOSSES: f64 = 6.0;

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
    line: String,
}

#[derive(Debug)]
struct Kind {
    name: &'static str,
    /// Sizes that it is still to be done with.
    left: usize,
    expected: f64,
    /// How often and how long it was done.
    done: (u32, f64),
}

impl Progress {
    pub(super) fn new(profile: &Profile, args: &Rfc2544Args, sizes: usize) -> Self {
        let wants = |test| args.tests.contains(&test);
        let phases = profile.phases;
        let around = phases.routing_wait + phases.learning_wait + phases.drain + phases.settle + OPENING;
        let repeated =
            |one: trial::Repeated, rates: f64| f64::from(one.repetitions) * rates * (f64::from(one.seconds) + around);
        let trial: f64 = profile.throughput.goals.iter().map(|goal| goal.initial_seconds).fold(1.0, f64::min);
        let searches =
            wants(Test::Throughput) || wants(Test::Latency) || wants(Test::BackToBack) || wants(Test::Recovery);
        let bursts = f64::from(profile.bursts.repetitions) * BURSTS * around;
        let decides: f64 = profile.throughput.goals.iter().map(|goal| goal.final_seconds).fold(0.0, f64::max);
        let search = SEARCH * (trial + around) + if args.is_strict() { 3.0 * decides } else { 0.0 };
        let of_recovery = profile.recovery.overload_seconds + profile.recovery.recovery_seconds;
        let recovery = f64::from(profile.recovery.repetitions) * (of_recovery + around);
        let kinds = [
            ("highest load", true, repeated(profile.frmol, 1.0)),
            ("throughput", searches, search),
            ("latency", wants(Test::Latency), repeated(profile.latency, if args.is_strict() { 1.0 } else { 2.0 })),
            ("back-to-back", wants(Test::BackToBack), bursts),
            ("loss", wants(Test::Loss), LOSSES * (profile.loss.seconds + around)),
            ("recovery", wants(Test::Recovery), recovery),
        ];
        let one =
            |(name, wanted, expected)| Kind { name, left: if wanted { sizes } else { 0 }, expected, done: (0, 0.0) };
        Self {
            terminal: io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|name| name != "dumb"),
            quiet: args.quiet,
            kinds: kinds.map(one).into(),
            what: String::new(),
            at: 0,
            begun: Instant::now(),
            trials: 0,
            void: 0,
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

    /// A trial begins.
    pub(super) fn trial(&mut self, next: &Trial) {
        self.trials += 1;
        let rate = next.traffic.rate();
        let rate = if rate >= super::UNLIMITED { "any rate".to_owned() } else { format!("{} pps", whole(rate)) };
        let left = words(self.left());
        self.line = format!("{left} left: {}: trial {} at {rate}", self.what, self.trials);
        self.draw(&self.line);
    }

    /// A trial has ended.
    pub(super) fn told(&mut self, outcome: &Outcome, verdict: Verdict) {
        self.void += u64::from(verdict != Verdict::Counted);
        let result = match verdict {
            Verdict::Counted => format!("lost {}", grouped(outcome.sent.saturating_sub(outcome.received))),
            Verdict::Void(reason) | Verdict::Limit(reason) => format!("void, {reason}"),
        };
        self.draw(&format!("{}: {result}", self.line));
    }

    /// A test has ended.
    pub(super) fn end(&mut self) {
        let seconds = self.begun.elapsed();
        let kind = &mut self.kinds[self.at];
        kind.left = kind.left.saturating_sub(1);
        kind.done = (kind.done.0 + 1, kind.done.1 + seconds.as_secs_f64());
        let void = if self.void > 0 { format!(", {} void", self.void) } else { String::new() };
        let left = words(self.left());
        let trials = counted(self.trials, "trial");
        let text = format!("{}: {trials}{void} in {}; about {left} left", self.what, words(seconds.as_secs_f64()));
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
            let text: String = text.chars().take(COLUMNS).collect();
            self.write(&format!("\r\x1b[K{text}"));
        }
    }

    fn write(&self, text: &str) {
        if !self.quiet {
            // Who does not read on, or has gone, does not stop the run.
            let _ = offer(io::stderr(), text, Duration::ZERO);
        }
    }

    /// Seconds that the tests still to be done may take: as long as those of their kind so far.
    fn left(&self) -> f64 {
        let each = |kind: &Kind| if kind.done.0 > 0 { kind.done.1 / f64::from(kind.done.0) } else { kind.expected };
        let all: f64 = self.kinds.iter().map(|kind| each(kind) * real(kind.left)).sum();
        let spent = self.begun.elapsed().as_secs_f64();
        all - spent.min(self.kinds.get(self.at).filter(|kind| kind.left > 0).map_or(0.0, each))
    }
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

    #[test]
    fn what_is_left_is_as_long_as_what_was_done() {
        let words = ["pktgen", "rfc2544", "--ports", "soft:a,soft:b", "--tests", "loss", "--out", "unused", "--quiet"];
        let Command::Rfc2544(args) = Args::parse_from(words).command else { panic!("{words:?}") };
        let profile = args.profile();
        let mut progress = Progress::new(&profile, &args, 7);
        // Seven sizes, each with the highest load and losses.
        let all = progress.left();
        assert!((60.0..120.0).contains(&all), "{all}");
        let setup = Setup::Frmol { rate: 1e6 };
        progress.known(&setup);
        let known = progress.left();
        assert!(known < all);
        progress.begin(64, &setup);
        progress.begun = progress.begun.checked_sub(Duration::from_secs(60)).unwrap_or(progress.begun);
        progress.end();
        // Once one took a minute, so will the five others.
        let left = progress.left();
        assert!(left > known + 200.0, "{left} after {known}");
        for setup in [Setup::Frmol { rate: 1e6 }, Setup::FrameLoss { highest: 1e6 }] {
            (0..7).for_each(|_| progress.known(&setup));
        }
        assert!(progress.left() <= 0.0, "{}", progress.left());
    }

    #[test]
    fn times_are_for_people() {
        for (seconds, text) in [(0.0, "0 s"), (59.2, "1:00 min"), (3599.0, "59:59 min"), (7_800.0, "2:10 h")] {
            assert_eq!(words(seconds), text);
        }
    }
}
