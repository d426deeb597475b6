//! `pktgen report`: tables, JSON, CSV or a page of what `pktgen rfc2544` has measured, from its lines alone.

mod charts;
mod departures;
mod html;
mod method;
mod unbegun;

use crate::args::ReportArgs;
use crate::page;
use crate::rfc2544::{UNLIMITED, read};
use cli::exit::Failure;
use cli::output;
use cli::screen;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use trial::printable;
use trial::{AnyTest, Bound, Limit, Method as _, Part, Report, Row, Setup};

/// What is said of lines that were cut.
const CUT: &str = "the last line was not written to its end; its trial is left out";
/// Limits of the generator that a page names.
const LIMITS: usize = 4;

/// `pktgen report`.
pub(crate) fn run(args: &ReportArgs) -> Result<(), Failure> {
    match &args.html {
        Some(file) => write(&args.folders, file),
        None => show(&args.folders, args.json, args.csv),
    }
}

/// Writes the page of what is in folders.
fn write(folders: &[PathBuf], file: &Path) -> Result<(), Failure> {
    page::write(file, &html::page(&runs(folders)?))
}

fn runs(folders: &[PathBuf]) -> Result<Vec<(String, Report)>, Failure> {
    let read = |folder: &PathBuf| Ok((folder.display().to_string(), read(folder)?));
    folders.iter().map(read).collect()
}

/// Prints what is in folders.
pub(crate) fn show(folders: &[PathBuf], json: bool, csv: bool) -> Result<(), Failure> {
    let runs = runs(folders)?;
    if json {
        let runs = runs.iter().map(|(folder, report)| object(folder, report)).collect::<Result<Vec<_>, Failure>>()?;
        return output::print_json(&json!({ "runs": runs }));
    }
    if csv {
        return output::print(&values(&runs));
    }
    let pages: Vec<String> = runs.iter().map(|(folder, report)| page(folder, report)).collect();
    output::print(&pages.join("\n\n"))
}

/// What `trial` says of a run, with the folder and percentages.
fn object(folder: &str, report: &Report) -> Result<Value, Failure> {
    let mut object: Value = serde_json::from_str(&report.json())?;
    object["folder"] = folder.into();
    object["not_begun"] = unbegun::of(report).into();
    object["departures"] = serde_json::to_value(departures::of(report))?;
    let bases = bases(report);
    for (row, of) in object["rows"].as_array_mut().into_iter().flatten().zip(report.rows()) {
        row["percent"] = percent(&bases, &of).into();
    }
    Ok(object)
}

fn values(runs: &[(String, Report)]) -> String {
    let mut lines = vec!["folder,size,test,value,bound,low,high,unit,percent,note".to_owned()];
    for (folder, report) in runs {
        let folder = &trial::printable(folder);
        let bases = bases(report);
        for row in report.rows() {
            let number = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
            let percent = number(percent(&bases, &row));
            let bound = match row.bound {
                Some(Bound::AtLeast) => "at_least",
                Some(Bound::AtMost) => "at_most",
                _ => "",
            };
            let [low, high] = [0, 1].map(|end| number(row.interval.map(|ends| ends[end])));
            let (size, value) = (row.size.to_string(), number(row.value));
            let words = [quoted(folder), size, quoted(&row.test), value, bound.to_owned(), low, high];
            lines.push([words.join(","), row.unit.to_owned(), percent, quoted(&row.note)].join(","));
        }
        let departs =
            |one: &departures::Departs| [&*quoted(folder), "", "departure,,,,,,", &quoted(&one.to_string())].join(",");
        lines.extend(departures::of(report).iter().map(departs));
        let limit = |(size, limit): (u32, &Limit)| {
            [&*quoted(folder), &size.to_string(), "limit of the generator,,,,,,", &quoted(&limit.to_string())].join(",")
        };
        lines.extend(limits(report).map(limit));
        let cut = || [&*quoted(folder), "", "cut,,,,,,", &quoted(CUT)].join(",");
        lines.extend(report.is_cut().then(cut));
        let open = |open: String| [&*quoted(folder), "", "cut,,,,,,", &quoted(&open)].join(",");
        lines.extend(unbegun::of(report).map(open));
    }
    lines.join("\n")
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

/// The page of a run for people.
fn page(folder: &str, report: &Report) -> String {
    let mut table = screen::plain_table(&["bytes", "test", "figure", "of max", "note"]);
    let bases = bases(report);
    for row in report.rows() {
        let percent = percent(&bases, &row).map_or(String::new(), |percent| format!("{percent:.2} %"));
        table.add_row([row.size.to_string(), row.test, row.figure, percent, row.note]);
    }
    let foot = format!("of max: {}", base(report));
    let mut lines = vec![printable(&format!("{folder}: {}", report.profile().name)), screen::trimmed(&table), foot];
    let limits: Vec<_> =
        limits(report).map(|(size, limit)| format!("limit of the generator, {size} bytes: {limit}")).collect();
    lines.extend(limits.iter().take(LIMITS).cloned());
    lines.extend(limits.len().checked_sub(LIMITS + 1).map(|more| format!("and {} more limits (--json)", more + 1)));
    let exact = report.about().iter().filter(|(name, _)| *name == "clock" || name.starts_with("floor, "));
    lines.extend(exact.map(|(_, value)| printable(value)));
    lines.extend(departures::of(report).iter().map(|departure| format!("departs from {departure}")));
    lines.extend(report.is_cut().then(|| CUT.to_owned()));
    lines.extend(unbegun::of(report));
    lines.join("\n")
}

/// The limits of the generator, with the sizes at which it met them.
fn limits(report: &Report) -> impl Iterator<Item = (u32, &Limit)> {
    report.parts().iter().flat_map(|part| part.test.limits().iter().map(move |limit| (part.size, limit)))
}

/// The percentage that a rate is of the highest of its size.
fn percent(bases: &BTreeMap<u32, f64>, row: &Row) -> Option<f64> {
    let rate = row.value.filter(|_| row.unit == "pps")?;
    Some(rate / bases.get(&row.size)? * 100.0)
}

/// What percentages are of.
fn base(report: &Report) -> &'static str {
    let loads = report.parts().iter().filter_map(|part| match part.setup {
        Setup::Frmol { rate, max } => Some((rate < UNLIMITED, max.is_some())),
        _ => None,
    });
    let loads: Vec<_> = loads.collect();
    if loads.is_empty() {
        return "nothing was measured";
    }
    let is_any = |one: fn(&(bool, bool)) -> bool| loads.iter().any(one);
    match (is_any(|(line, _)| *line), is_any(|(line, _)| !line), is_any(|(_, max)| *max)) {
        (true, false, _) => "of the rate of the line",
        (false, _, false) => "of what the ports sent at most, as measured: they have no line",
        (false, _, true) => "of the highest rate that was allowed: the ports have no line",
        (true, true, false) => {
            "of the rate of the line, or of what the ports sent at most, as measured, where they have none"
        }
        (true, true, true) => "of the rate of the line, or of the highest rate that was allowed where they have none",
    }
}

/// The highest rate of a size, in frames a second: that of the line, or without one that which was allowed, or what the ports sent at most.
fn highest(report: &Report, size: u32) -> Option<f64> {
    report.parts().iter().filter(|part| part.size == size).find_map(base_of)
}

/// The same of all sizes.
fn bases(report: &Report) -> BTreeMap<u32, f64> {
    // The first of a size counts.
    report.parts().iter().rev().filter_map(|part| Some((part.size, base_of(part)?))).collect()
}

fn base_of(part: &Part) -> Option<f64> {
    match (&part.setup, &part.test) {
        (Setup::Frmol { rate, .. }, _) if *rate < UNLIMITED => Some(*rate),
        (Setup::Frmol { max: Some(max), .. }, _) => Some(*max),
        (_, AnyTest::Frmol(test)) => test.result().map(|result| result.offered),
        _ => None,
    }
}
