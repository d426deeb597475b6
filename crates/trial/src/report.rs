//! What a run has found, from its lines and nothing else.

mod rows;

use crate::line::VERSION;
use crate::{AnyTest, Departure, Error, Limit, Line, Method, Outcome, Profile, Reason, Setup, Traffic, Trial, Verdict};
pub use rows::{Bound, Row};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;

/// A run, done again with the outcomes of its lines.
///
/// ```
/// use trial::simulate::{Device, Truth};
/// use trial::{Line, Method, Profile, Report, Setup};
///
/// let profile = Profile::default();
/// let setup = Setup::FrameLoss { highest: 1.2e6 };
/// let mut device = Device::new(Truth::default(), 1);
/// let mut test = setup.start(&profile)?;
/// let mut lines = format!("{}\n{}\n", Line::run(profile), Line::test(64, setup));
/// while let Some(trial) = test.next() {
///     let outcome = device.run(&trial);
///     lines += &format!("{}\n", Line::trial(trial, outcome));
///     test.tell(&outcome)?;
/// }
/// // The last line was being written when the power went.
/// let report = Report::read(&format!("{lines}{{\"trial\":{{"))?;
/// assert!(report.is_cut() && report.to_string().contains("loss at 1,200,000 pps"));
/// # Ok::<(), trial::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Report {
    profile: Profile,
    about: BTreeMap<String, String>,
    parts: Vec<Part>,
    left_out: Vec<LeftOut>,
    cut: bool,
}

/// A test that was asked for and could not be done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeftOut {
    /// The frame size, in bytes with check sequence.
    pub size: u32,
    /// The name of the test.
    pub test: String,
    /// Why.
    pub reason: String,
    /// Tests before it.
    after: usize,
}

/// A test with frames of one size.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Part {
    /// The frame size, in bytes with check sequence.
    pub size: u32,
    /// Its parameters.
    pub setup: Setup,
    /// The test, as far as it was done: to go on with, ask it for its next trial.
    pub test: AnyTest,
    /// Trials that were void, in their order.
    pub void: Vec<VoidTrial>,
    /// Frames that came after the waits for them, and so count as lost.
    pub late: u64,
    /// Frames of the trials that figures are of that came twice.
    pub duplicate: u64,
    /// Frames that came out of order.
    pub reordered: u64,
    /// Frames that came damaged.
    pub damaged: u64,
}

/// A trial that says nothing about the device.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct VoidTrial {
    /// What was to be sent.
    pub trial: Trial,
    /// What came of it.
    pub outcome: Outcome,
    /// Why it is void.
    pub reason: Reason,
}

impl Report {
    /// Reads the lines of a run. A last line that was not written to its end is left out, and so are empty ones.
    ///
    /// # Errors
    ///
    /// If the lines are of another version, a line is damaged, a size has a test twice, or a trial is not the one that its test would have
    /// asked for.
    pub fn read(text: &str) -> Result<Self, Error> {
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        let (complete, rest) = text.split_at(whole);
        let mut report: Option<Self> = None;
        // Frames that the trial before lost, and the test that it was of.
        let mut before: Option<(usize, u64)> = None;
        let (mut tests, mut is_left_out) = (HashSet::new(), BTreeSet::new());
        for (number, line) in (1..).zip(complete.lines()).filter(|(_, line)| !line.trim().is_empty()) {
            let line = line.parse().map_err(|_| match version(line).filter(|version| *version != VERSION) {
                Some(version) if report.is_none() => Error::Version { version, program: program(line), known: VERSION },
                _ => Error::Damaged { number },
            })?;
            match (&mut report, line) {
                (None, Line::Run { version: VERSION, profile, about }) => {
                    profile.check()?;
                    report = Some(Self { profile, about, parts: Vec::new(), left_out: Vec::new(), cut: false });
                }
                (None, Line::Run { version, about, .. }) => {
                    let program = about.get("program").map(|program| printable(program));
                    return Err(Error::Version { version, program, known: VERSION });
                }
                (Some(report), Line::Test { size, setup }) => {
                    if !tests.insert((size, std::mem::discriminant(&setup))) {
                        return Err(Error::Unexpected { number });
                    }
                    let test = setup.start(&report.profile)?;
                    let (void, [late, duplicate, reordered, damaged]) = (Vec::new(), [0; 4]);
                    report.parts.push(Part { size, setup, test, void, late, duplicate, reordered, damaged });
                }
                (Some(report), Line::LeftOut { size, test, reason }) => {
                    let (test, reason, after) = (printable(&test), printable(&reason), report.parts.len());
                    if is_left_out.insert((size, test.clone())) {
                        report.left_out.push(LeftOut { size, test, reason, after });
                    }
                }
                (Some(report), Line::Trial { trial, outcome }) => {
                    let part = report.parts.last_mut().ok_or(Error::Unexpected { number })?;
                    let counted = part.add(&trial, &outcome).ok_or(Error::Unexpected { number })?;
                    let size = part.size;
                    let at = report.parts.len() - 1;
                    let lost = if counted { outcome.sent.saturating_sub(outcome.received) } else { 0 };
                    if let Some((of, lost)) = before.replace((at, lost)) {
                        let of = &mut report.parts[of];
                        of.late =
                            of.late.saturating_add(if of.size == size { outcome.from_earlier.min(lost) } else { 0 });
                    }
                }
                _ => return Err(Error::Unexpected { number }),
            }
        }
        let mut report = report.ok_or(Error::NoRun)?;
        report.cut = !rest.trim().is_empty();
        Ok(report)
    }

    /// Returns the numbers of the run.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Returns what it was measured with, by name.
    #[must_use]
    pub fn about(&self) -> &BTreeMap<String, String> {
        &self.about
    }

    /// Returns its tests, in the order in which they were begun.
    #[must_use]
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Returns the tests that were asked for and could not be done, in their order.
    #[must_use]
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// Returns whether the last line was not written to its end.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// Returns where the numbers of its tests fall short of an RFC.
    #[must_use]
    pub fn departures(&self) -> Vec<Departure> {
        self.profile.departures_of(|kind| self.parts.iter().any(|part| kind.is_of(&part.setup)))
    }

    /// Returns the figures, a row for each, and a row with the reason for each that is missing. Those of a size stand together.
    #[must_use]
    pub fn rows(&self) -> Vec<Row> {
        let (mut rows, mut left_out) = (Vec::new(), self.left_out.iter().peekable());
        for (nth, part) in self.parts.iter().enumerate() {
            rows.extend(std::iter::from_fn(|| left_out.next_if(|one| one.after <= nth)).map(rows::left_out));
            rows.extend(rows::of(part));
        }
        rows.extend(left_out.map(rows::left_out));
        // A run that went on with more tests has these behind those of other sizes.
        let mut sizes: BTreeMap<u32, usize> = BTreeMap::new();
        for row in &rows {
            let next = sizes.len();
            sizes.entry(row.size).or_insert(next);
        }
        rows.sort_by_key(|row| sizes.get(&row.size).copied());
        rows
    }

    /// Returns the report as one object of JSON.
    #[must_use]
    pub fn json(&self) -> String {
        let document = Document {
            profile: &self.profile,
            about: &self.about,
            departures: self.departures(),
            cut: self.cut,
            rows: self.rows(),
            limits: self.limits(),
        };
        // Its floats are finite, and its keys are text.
        serde_json::to_string(&document).unwrap_or_default()
    }

    fn limits(&self) -> Vec<SizedLimit> {
        let of = |part: &Part| part.test.limits().iter().map(|limit| (part.size, *limit)).collect::<Vec<_>>();
        self.parts.iter().flat_map(of).map(|(size, limit)| SizedLimit { size, limit }).collect()
    }
}

/// A limit, and the frame size at which it was met.
#[derive(Debug, Serialize)]
struct SizedLimit {
    size: u32,
    #[serde(flatten)]
    limit: Limit,
}

#[derive(Debug, Serialize)]
struct Document<'r> {
    profile: &'r Profile,
    about: &'r BTreeMap<String, String>,
    departures: Vec<Departure>,
    cut: bool,
    rows: Vec<Row>,
    limits: Vec<SizedLimit>,
}

impl Part {
    /// Takes the outcome of a trial; `None` if that is not the one that the test asks for.
    /// Returns whether the figures have it.
    fn add(&mut self, trial: &Trial, outcome: &Outcome) -> Option<bool> {
        self.test.next().filter(|next| is_same(next, trial))?;
        let verdict = self.test.tell(outcome).ok()?;
        if let Verdict::Void(reason) | Verdict::Limit(reason) = verdict {
            self.void.push(VoidTrial { trial: *trial, outcome: *outcome, reason });
        }
        // What bursts leave open bounds figures.
        let is_open = matches!(verdict, Verdict::Void(Reason::Bursts) | Verdict::Limit(Reason::Bursts))
            && matches!(self.test, AnyTest::Throughput(_) | AnyTest::FrameLoss(_) | AnyTest::Recovery(_));
        let is_in_figures = (verdict == Verdict::Counted || is_open) && !trial.warm_up;
        if is_in_figures {
            self.duplicate = self.duplicate.saturating_add(outcome.duplicate);
            self.reordered = self.reordered.saturating_add(outcome.reordered);
            self.damaged = self.damaged.saturating_add(outcome.damaged);
        }
        Some(is_in_figures)
    }
}

/// Returns a text of a file that someone may have changed with a `?` in place of what would steer a terminal or turn a line about.
#[must_use]
pub fn printable(text: &str) -> String {
    let turns = |character| matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let shown = |character: char| if character.is_control() || turns(character) { '?' } else { character };
    text.chars().map(shown).collect()
}

/// The version that the first line of a run has, whatever else is in it.
fn version(line: &str) -> Option<u32> {
    let line: serde_json::Value = serde_json::from_str(line).ok()?;
    line["run"]["version"].as_u64()?.try_into().ok()
}

/// The program that the first line of a run names, whatever else is in it.
fn program(line: &str) -> Option<String> {
    let line: serde_json::Value = serde_json::from_str(line).ok()?;
    line["run"]["about"]["program"].as_str().map(printable)
}

/// Whether two trials ask for the same, give or take the last bit of a number.
fn is_same(one: &Trial, other: &Trial) -> bool {
    let near = |a: f64, b: f64| (a - b).abs() <= a.abs() * 1e-9;
    let kind = |traffic: &Traffic| std::mem::discriminant(traffic);
    let (a, b) = (&one.traffic, &other.traffic);
    one.number == other.number
        && one.warm_up == other.warm_up
        && kind(a) == kind(b)
        && near(a.rate(), b.rate())
        && near(a.seconds(), b.seconds())
        && a.frames().abs_diff(b.frames()) <= 1
}

impl fmt::Display for Report {
    /// Writes the table for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = comfy_table::Table::new();
        table.load_style(comfy_table::presets::NOTHING).set_header(["size", "test", "figure", "note"]);
        for Row { size, test, figure, note, .. } in self.rows() {
            table.add_row([size.to_string(), test.to_owned(), figure, note]);
        }
        writeln!(f, "profile {}\n{}", printable(&self.profile.name), table.trim_fmt())?;
        for SizedLimit { size, limit } in self.limits() {
            writeln!(f, "limit of the generator, {size} bytes: {limit}")?;
        }
        for departure in self.departures() {
            writeln!(f, "departs from {departure}")?;
        }
        if self.cut {
            writeln!(f, "the last line was not written to its end; its trial is left out")?;
        }
        Ok(())
    }
}
