//! Experiments for people: ours beside the documents', as text and as a page.

use super::catalogue::{Experiment, Published};
use super::results::{Measured, Results};
use crate::page::chart::{Axis, Chart, Kind, Look, Point, Series};
use crate::page::markup::Markup;
use crate::page::scale::{number, real};
use crate::page::{self, table};
use cli::screen;
use trial::printable;

/// An experiment, with what was measured of it, or why nothing was.
pub(super) type Entry<'a> = (&'a Experiment, Result<Results, String>);
/// Several.
pub(super) type Shown<'a> = [Entry<'a>];

const HEADER: [&str; 5] = ["pps, median", "least", "most", "latency, us", "note"];

/// Ours as rows: point, median, least and most, latency, note.
fn rows(experiment: &Experiment, results: &Results) -> Vec<Vec<String>> {
    let row = |one: &Measured| {
        let rate = one.forwarded();
        let of = |pick: fn(&trial::Summary) -> f64| rate.as_ref().map_or("-".to_owned(), |rate| number(pick(rate), 0));
        let latency = one.latency().map_or("-".to_owned(), |latency| number(latency.median, 1));
        let note = one.failed.as_deref().map_or_else(String::new, |why| match one.times() {
            0 => printable(why),
            1 => format!("measured once only: {}", printable(why)),
            times => format!("measured {times} times only: {}", printable(why)),
        });
        let point = experiment.name_of(one.point);
        vec![point, of(|rate| rate.median), of(|rate| rate.min), of(|rate| rate.max), latency, note]
    };
    results.points.iter().map(row).collect()
}

/// A figure of a document, with the digits that it has there.
fn value(one: &Published) -> String {
    let digits = if one.value >= 1_000.0 { 0 } else { 3 };
    let text = number(one.value, digits);
    let text = if digits > 0 { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    text.to_owned()
}

/// The same with its unit.
fn words(one: &Published) -> String {
    format!("{} {}", value(one), one.unit)
}

/// By how much the same point may differ from one time to the next before that limits what one can say.
const STEADY: f64 = 1.1;

/// What ours lets one conclude: nothing if it was cut.
fn conclusion(experiment: &Experiment, results: &Results) -> Option<String> {
    if results.missing().is_some() {
        return None;
    }
    let most = results.points.iter().filter_map(spread).fold(1.0, f64::max);
    let is_single = results.points.iter().any(|one| one.times() == 1);
    let mut sentences = Vec::new();
    if most > STEADY && experiment.pairs.is_empty() {
        sentences.push(format!(
            "The same point was measured up to {most:.1}x apart, so that smaller differences say nothing."
        ));
    } else if is_single {
        let each = if results.points.iter().all(Measured::is_single) { "Each" } else { "One or more" };
        sentences
            .push(format!("{each} of the points was measured once, so that nobody knows how far apart two times are."));
    }
    if experiment.pairs.is_empty() {
        sentences.extend(reach(experiment, results, (!is_single).then_some(most)));
    } else {
        sentences.extend(experiment.pairs.iter().filter_map(|pair| compared(experiment, results, *pair)));
    }
    // A device between the ports, and cards, are another matter.
    sentences.extend(Some(experiment.conclusion.to_owned()).filter(|_| !results.has_others()));
    Some(sentences.join(" "))
}

/// How far apart a point was measured.
fn spread(one: &Measured) -> Option<f64> {
    one.forwarded().or(one.latency()).filter(|figure| figure.min > 0.0).map(|figure| figure.max / figure.min)
}

/// What two points have for medians, and whether these differ by more than the points do from themselves.
fn compared(experiment: &Experiment, results: &Results, pair: [u32; 2]) -> Option<String> {
    let mut of_pair = pair.map(|point| results.points.iter().find(|one| one.point == point)).into_iter();
    let (one, other) = (of_pair.next()??, of_pair.next()??);
    let figure = |one: &Measured| one.forwarded().map(|rate| (true, rate)).or(one.latency().map(|time| (false, time)));
    let ((is_rate, first), (_, second)) = (figure(one)?, figure(other)?);
    let most = [one, other].into_iter().filter_map(spread).fold(1.0, f64::max);
    let factor = second.median / first.median;
    let beyond = if factor.max(1.0 / factor) > most.max(STEADY) { "more" } else { "no more" };
    let beyond = match one.is_single() || other.is_single() {
        true => String::new(),
        false => format!(": {beyond} than these points differ from themselves ({most:.2}x)"),
    };
    let words =
        |value: f64| if is_rate { format!("{} pps", number(value, 0)) } else { format!("{} us", number(value, 1)) };
    let [from, to] = pair.map(|point| experiment.name_of(point));
    Some(format!("{from}: {}; {to}: {}, {factor:.2}x{beyond}.", words(first.median), words(second.median)))
}

/// From which median to which the points reach, and whether that is more than the `most` by which a point differs from itself, if that is known.
fn reach(experiment: &Experiment, results: &Results, most: Option<f64>) -> Option<String> {
    let is_rate = results.points.iter().any(|one| one.forwarded().is_some());
    let median = |one: &Measured| Some((if is_rate { one.forwarded() } else { one.latency() }?.median, one.point));
    let mut medians: Vec<(f64, u32)> = results.points.iter().filter_map(median).collect();
    medians.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    let [(least, at_least), .., (highest, at_most)] = medians[..] else { return None };
    let factor = if least > 0.0 { highest / least } else { f64::INFINITY };
    let words =
        |value: f64| if is_rate { format!("{} pps", number(value, 0)) } else { format!("{} us", number(value, 1)) };
    let (least, highest) = (words(least), words(highest));
    let [at_least, at_most] = [at_least, at_most].map(|point| experiment.name_of(point));
    let beyond = most.map_or(String::new(), |most| {
        let beyond = if factor > most.max(STEADY) { "more" } else { "no more" };
        format!(": {beyond} than a point differs from itself")
    });
    Some(format!("Medians reach from {least} ({at_least}) to {highest} ({at_most}), {factor:.1}x{beyond}."))
}

/// That it was cut, if it was.
fn cut(results: &Results) -> Option<String> {
    let missing = results.missing()?;
    Some(format!("It was cut: of its measurements {missing} were not made."))
}

/// Tables for people.
pub(super) fn text(shown: &Shown<'_>) -> String {
    let one = |(experiment, results): &Entry<'_>| {
        let mut lines = vec![format!("{}: {}", experiment.name, experiment.title)];
        match results {
            Ok(results) => {
                lines.extend(cut(results));
                let mut table = screen::plain_table(&[&[experiment.what][..], &HEADER].concat());
                rows(experiment, results).into_iter().for_each(|row| {
                    table.add_row(row);
                });
                lines.push(screen::trimmed(&table));
            }
            Err(why) => lines.push(why.clone()),
        }
        lines.extend(Some(experiment.words.to_owned()).filter(|words| !words.is_empty()));
        let published = experiment.published.iter();
        lines.extend(published.map(|one| format!("document: {}: {} ({})", one.what, words(one), one.place)));
        lines.extend(results.as_ref().ok().and_then(|results| conclusion(experiment, results)));
        lines.join("\n")
    };
    shown.iter().map(one).collect::<Vec<_>>().join("\n\n")
}

/// A page with drawings.
pub(super) fn page(shown: &Shown<'_>) -> String {
    page::page("Experiments", |page| {
        for (experiment, results) in shown {
            page.leaf("h2", &[], format!("{} ({})", experiment.title, experiment.name));
            if let Some(why) = results.as_ref().map_or_else(|why| Some(why.clone()), cut) {
                page.leaf("p", &[], why);
            }
            page.leaf("p", &[], experiment.words);
            page.within("div", &[("class", &"charts")], |page| {
                if let Ok(results) = results {
                    rates(experiment, results).draw(page);
                    latencies(experiment, results).draw(page);
                }
                units(experiment).into_iter().for_each(|unit| published(experiment, unit).draw(page));
            });
            tables(page, experiment, results.as_ref().ok());
        }
    })
}

fn tables(page: &mut Markup, experiment: &Experiment, results: Option<&Results>) {
    if let Some(results) = results {
        let mut columns = vec![(experiment.what, true)];
        columns.extend(HEADER.map(|title| (title, title != "note")));
        table(page, &columns, &rows(experiment, results));
        page.leaf("p", &[("class", &"note")], conclusion(experiment, results).unwrap_or_default());
    }
    if !experiment.published.is_empty() {
        let row = |one: &Published| vec![one.what.to_owned(), words(one), one.place.to_owned()];
        let rows: Vec<_> = experiment.published.iter().map(row).collect();
        table(page, &[("the document's", false), ("figure", true), ("place", false)], &rows);
    }
    let about = results.iter().flat_map(|results| &results.about).take(64);
    let about: Vec<_> = about.map(|(name, value)| format!("{name}: {value}")).collect();
    page.leaf("p", &[("class", &"note")], about.join("; "));
}

/// Points of ours, by the index of their names.
fn ours(
    (experiment, results): (&Experiment, &Results),
    pick: impl Fn(&Measured) -> Option<trial::Summary>,
    unit: &str,
    scale: f64,
) -> Vec<Point> {
    let point = |(nth, one): (usize, &Measured)| {
        let trial::Summary { median, min, max, .. } = pick(one)?;
        let title = format!("{}: {} {unit}", experiment.name_of(one.point), number(median, 1));
        let range = Some([min / scale, max / scale]);
        Some(Point { x: real(nth), y: median / scale, range, title, label: String::new() })
    };
    results.points.iter().enumerate().filter_map(point).collect()
}

fn axis(experiment: &Experiment, results: &Results) -> Axis {
    let names = results.points.iter().map(|one| experiment.name_of(one.point)).collect();
    Axis::new(experiment.what, Kind::Names(names))
}

fn chart(experiment: &Experiment, results: &Results, [title, unit]: [&str; 2], points: Vec<Point>) -> Chart {
    Chart {
        title: title.to_owned(),
        note: "Medians; lines reach from the least to the most.".to_owned(),
        x: axis(experiment, results),
        y: Axis::new(unit, Kind::Linear),
        series: vec![Series {
            name: String::new(),
            look: Look { apart: !experiment.names.is_empty(), ..Look::nth(0) },
            points,
        }],
    }
}

fn rates(experiment: &Experiment, results: &Results) -> Chart {
    let points = ours((experiment, results), Measured::forwarded, "pps", 1e6);
    chart(experiment, results, ["Ours: frames a second", "million frames a second"], points)
}

fn latencies(experiment: &Experiment, results: &Results) -> Chart {
    let points = ours((experiment, results), Measured::latency, "us", 1.0);
    let title = if results.points.iter().all(|one| one.forwarded().is_none()) {
        "Ours: latency"
    } else {
        "Ours: latency at full load"
    };
    chart(experiment, results, [title, "us"], points)
}

/// Units in which a document has figures.
fn units(experiment: &Experiment) -> Vec<&'static str> {
    let mut units: Vec<&str> = experiment.published.iter().map(|one| one.unit).collect();
    units.sort_unstable();
    units.dedup();
    units
}

/// The figures of a document in a unit.
fn published(experiment: &Experiment, unit: &str) -> Chart {
    let of_unit: Vec<&Published> = experiment.published.iter().filter(|one| one.unit == unit).collect();
    let point = |(nth, one): (usize, &&Published)| {
        let title = format!("{}: {}", one.what, words(one));
        Point { x: real(nth), y: one.value, range: None, title, label: value(one) }
    };
    let points = of_unit.iter().enumerate().map(point).collect();
    let names = of_unit.iter().map(|one| one.what.to_owned()).collect();
    Chart {
        title: "The document's".to_owned(),
        note: String::new(),
        x: Axis::new("", Kind::Names(names)),
        y: Axis::new(unit, if unit.starts_with('%') { Kind::Percent } else { Kind::Linear }),
        series: vec![Series { name: String::new(), look: Look { apart: true, ..Look::nth(1) }, points }],
    }
}
