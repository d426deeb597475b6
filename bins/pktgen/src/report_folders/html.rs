//! The page of runs: what was found, drawn and in numbers, what was void, and how it was measured.

use super::charts::{self, latencies, throughputs, typical_and_worst};
use super::{bases, highest, limits, method, percent, unbegun};
use crate::page::markup::{Markup, short};
use crate::page::scale::number;
use crate::page::{self, Column, table};
use cli::human::grouped;
use trial::{AnyTest, Bound, Method as _, Part, Recovered, Report, Setup, Traffic};

/// Characters of a name.
const LONGEST: usize = 200;
/// Void trials, and missing figures, of a run that are listed.
const VOID: usize = 60;

/// A run of a page.
pub(super) struct Run<'r> {
    /// Its number, if there are several.
    pub(super) name: String,
    folder: String,
    pub(super) report: &'r Report,
}

impl Run<'_> {
    /// What this is called beside that of others.
    pub(super) fn name_of(&self, what: &str) -> String {
        if self.name.is_empty() { what.to_owned() } else { format!("run {}: {what}", self.name) }
    }
}

/// Makes the page of runs, each with the name of its folder.
pub(super) fn page(runs: &[(String, Report)]) -> String {
    let is_one = runs.len() == 1;
    let run = |(nth, (folder, report)): (usize, &'_ (String, Report))| {
        let name = if is_one { String::new() } else { (nth + 1).to_string() };
        (name, short(folder, LONGEST), nth, report.is_cut())
    };
    let named: Vec<_> = runs.iter().enumerate().map(run).collect();
    let runs: Vec<Run<'_>> =
        named.into_iter().map(|(name, folder, nth, _)| Run { name, folder, report: &runs[nth].1 }).collect();
    let title = match &runs[..] {
        [run] => format!("RFC 2544: {}", run.folder),
        runs => format!("RFC 2544: {} runs", runs.len()),
    };
    page::page(&title, |page| {
        for run in &runs {
            page.leaf("p", &[], run.name_of(&short(&run.report.profile().name, LONGEST)));
            if !run.name.is_empty() {
                page.leaf("p", &[("class", &"note")], run.name_of(&run.folder));
            }
            if run.report.is_cut() {
                let words = "the last line of its results was not written to its end; its trial is left out.";
                page.leaf("p", &[("class", &"note")], run.name_of(words));
            }
            if let Some(open) = unbegun::of(run.report) {
                page.leaf("p", &[("class", &"note")], run.name_of(&open));
            }
        }
        page.leaf("h2", &[], "By frame size");
        by_size(page, &runs);
        missing(page, &runs);
        charts::draw(page, &runs);
        for run in &runs {
            page.leaf("h2", &[], run.name_of("All figures"));
            figures(page, run.report);
            page.leaf("h2", &[], run.name_of("Void trials and limits of the generator"));
            void(page, run.report);
            page.leaf("h2", &[], run.name_of("How it was measured"));
            method::describe(page, run.report);
        }
    })
}

/// The figures that are looked for first, a row for each size of each run.
fn by_size(page: &mut Markup, runs: &[Run<'_>]) {
    let mut sizes: Vec<(u32, usize)> = Vec::new();
    for (nth, run) in runs.iter().enumerate() {
        sizes.extend(run.report.parts().iter().map(|part| (part.size, nth)));
    }
    sizes.sort_unstable();
    sizes.dedup();
    let (mut columns, mut rows) = (vec!["bytes".to_owned()], Vec::new());
    for (size, nth) in sizes {
        let mut row: Vec<(String, String)> = vec![("bytes".to_owned(), size.to_string())];
        if runs.len() > 1 {
            row.push(("run".to_owned(), runs[nth].name.clone()));
        }
        row.extend(figures_of(runs[nth].report, size));
        for (name, _) in &row {
            if !columns.contains(name) {
                columns.push(name.clone());
            }
        }
        rows.push(row);
    }
    let cell = |row: &Vec<(String, String)>, column: &String| {
        row.iter().find(|(name, _)| name == column).map_or_else(|| "-".to_owned(), |(_, value)| value.clone())
    };
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| columns.iter().map(|column| cell(row, column)).collect()).collect();
    let columns: Vec<Column<'_>> = columns.iter().map(|name| (&name[..], true)).collect();
    table(page, &columns, &rows);
}

/// Why figures are missing.
fn missing(page: &mut Markup, runs: &[Run<'_>]) {
    let has_none = |row: &trial::Row| row.value.is_none() && row.interval.is_none();
    for run in runs {
        let rows: Vec<trial::Row> = run.report.rows().into_iter().filter(has_none).collect();
        for row in rows.iter().take(VOID) {
            let words = format!("no figure of {}, {} bytes: {}.", row.test, row.size, row.note);
            page.leaf("p", &[("class", &"note")], run.name_of(&words));
        }
        if rows.len() > VOID {
            page.leaf("p", &[("class", &"note")], run.name_of(&format!("and {} more.", rows.len() - VOID)));
        }
    }
}

/// Figures of a size, by the titles of their columns.
fn figures_of(report: &Report, size: u32) -> Vec<(String, String)> {
    let mut row = Vec::new();
    let most = highest(report, size);
    for found in throughputs(report).into_iter().filter(|found| found.size == size) {
        let name = &found.name;
        row.push((format!("{name}, pps"), found.words(&number(found.rate, 0))));
        let percent = |most: f64| found.words(&number(found.rate / most * 100.0, 2));
        row.extend(most.map(|most| (format!("{name}, % of highest"), percent(most))));
    }
    for part in report.parts().iter().filter(|part| part.size == size) {
        for (name, result) in latencies(part) {
            if let Some([typical, worst]) = typical_and_worst(result) {
                row.push((format!("typical latency {name}, us"), number(typical, 2)));
                row.push((format!("worst case {name}, us"), number(worst, 2)));
            }
        }
        row.extend(last_figures(part));
    }
    row
}

/// Figures of tests that have one or two.
fn last_figures(part: &Part) -> Vec<(String, String)> {
    match (&part.test, &part.setup) {
        (AnyTest::BackToBack(test), Setup::BackToBack { throughput, range, filling, .. }) => {
            test.result().filter(|bursts| bursts.endless == 0).map_or_else(Vec::new, |bursts| {
                let range = range.unwrap_or([*throughput; 2]);
                let frames = match bursts.longest(range[1]) {
                    (0.0, Some(_)) => "not known".to_owned(),
                    (frames, bound) => {
                        format!("{}{}", if bound.is_some() { "at least " } else { "" }, number(frames, 1))
                    }
                };
                let time = bursts.buffer_time(*throughput, range);
                let milliseconds = |seconds: f64| number(seconds * 1e3, 4);
                let is_unlike = filling.is_some_and(|filling| bursts.are_fewer_than(filling));
                let time = match (time.open(), time.interval) {
                    _ if is_unlike => "-".to_owned(),
                    (Some(ends), _) => ends.map(milliseconds).join(" to "),
                    (None, Some(_)) => milliseconds(time.seconds),
                    (None, None) if time.seconds <= 0.0 => "not known".to_owned(),
                    (None, None) => format!("at least {}", milliseconds(time.seconds)),
                };
                vec![("back-to-back, frames".to_owned(), frames), ("corrected buffer, ms".to_owned(), time)]
            })
        }
        (AnyTest::Recovery(test), _) => {
            let words = |result: Recovered| {
                let bound = match result.bound() {
                    Some(Bound::AtMost) => "at most ",
                    Some(_) => "at least ",
                    None => "",
                };
                Some(format!("{bound}{}", number(result.mean()? * 1e3, 2)))
            };
            test.result().and_then(words).map(|words| ("recovery, ms".to_owned(), words)).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

/// All figures, as the other forms have them.
fn figures(page: &mut Markup, report: &Report) {
    let bases = bases(report);
    let row = |row: trial::Row| {
        let percent = percent(&bases, &row).map_or_else(String::new, |percent| format!("{percent:.2} %"));
        vec![row.size.to_string(), row.test, row.figure, percent, row.note]
    };
    let rows: Vec<_> = report.rows().into_iter().map(row).collect();
    let columns = [("bytes", true), ("test", false), ("figure", true), ("of highest", true), ("note", false)];
    table(page, &columns, &rows);
}

fn void(page: &mut Markup, report: &Report) {
    let parts = report.parts();
    let trials: u64 = parts.iter().map(|part| part.test.spent().0).sum();
    let seconds: f64 = parts.iter().map(|part| part.test.spent().1).sum();
    let void: usize = parts.iter().map(|part| part.void.len()).sum();
    let words = "says nothing about the device and was done again; what was void three times, or too often, is a limit of the generator.";
    let what = format!(
        "{void} of {trials} trials, which sent for {} s in all, were void: a void trial {words}",
        number(seconds, 1)
    );
    page.leaf("p", &[], what);
    let all = parts.iter().flat_map(|part| part.void.iter().map(move |void| (part, void)));
    let row = |(part, void): (&Part, &trial::VoidTrial)| {
        let asked = void.trial.traffic;
        let rate = if asked.rate() >= crate::rfc2544::UNLIMITED { "any".to_owned() } else { number(asked.rate(), 0) };
        let sent = grouped(void.outcome.sent);
        let frames = match asked {
            Traffic::Steady { .. } if rate == "any" => "-".to_owned(),
            asked => grouped(asked.frames()),
        };
        let test = method::name(&part.setup).to_owned();
        vec![part.size.to_string(), test, void.trial.number.to_string(), rate, frames, sent, void.reason.to_string()]
    };
    let rows: Vec<_> = all.take(VOID).map(row).collect();
    if !rows.is_empty() {
        let columns = [
            ("bytes", true),
            ("test", false),
            ("trial", true),
            ("pps asked", true),
            ("frames asked", true),
            ("frames sent", true),
            ("why it is void", false),
        ];
        table(page, &columns, &rows);
    }
    if void > VOID {
        page.leaf("p", &[("class", &"note")], format!("and {} more", void - VOID));
    }
    for (size, limit) in limits(report).take(VOID) {
        page.leaf("p", &[], format!("Limit of the generator, {size} bytes: {limit}"));
    }
}
