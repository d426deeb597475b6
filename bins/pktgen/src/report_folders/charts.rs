//! The drawings of a page: what a table says, over frame sizes or loads.

use super::html::Run;
use super::{base, highest};
use crate::page::chart::{Axis, Chart, Kind, Look, Point, Series};
use crate::page::markup::Markup;
use crate::page::scale::{number, real};
use trial::{AnyTest, Bound, Goal, LatencyResult, Part, Report, Summary};

/// Draws all that was measured.
pub(super) fn draw(page: &mut Markup, runs: &[Run<'_>]) {
    let sizes = Sizes::of(runs);
    page.within("div", &[("class", &"charts")], |page| {
        sizes.percent(runs).draw(page);
        sizes.rates(runs).draw(page);
        sizes.latency(runs).draw(page);
        runs.iter().for_each(|run| loss(run).draw(page));
        sizes.bursts(runs).draw(page);
        sizes.recovery(runs).draw(page);
    });
}

/// All frame sizes of all runs, in their order.
struct Sizes(Vec<u32>);

/// A rate that was measured.
pub(super) struct Found {
    pub(super) name: String,
    pub(super) size: u32,
    pub(super) rate: f64,
    bounds: [Option<f64>; 2],
    /// Whether it is a lower bound.
    pub(super) is_at_least: bool,
}

impl Found {
    /// A number for people, with what it is if it is a bound.
    pub(super) fn words(&self, number: &str) -> String {
        if self.is_at_least { format!("at least {number}") } else { number.to_owned() }
    }

    /// What stands at its mark.
    fn label(&self) -> &'static str {
        if self.is_at_least { AT_LEAST } else { "" }
    }
}

/// What stands at the mark of a lower bound.
const AT_LEAST: &str = "\u{2265}";
/// The same of an upper bound.
const AT_MOST: &str = "\u{2264}";

/// A point of a series.
struct Place {
    name: String,
    size: u32,
    y: f64,
    range: Option<[f64; 2]>,
    words: String,
    label: &'static str,
}

impl Sizes {
    fn of(runs: &[Run<'_>]) -> Self {
        let mut sizes: Vec<u32> = runs.iter().flat_map(|run| run.report.parts()).map(|part| part.size).collect();
        sizes.sort_unstable();
        sizes.dedup();
        Self(sizes)
    }

    fn axis(&self) -> Axis {
        let names = self.0.iter().map(ToString::to_string).collect();
        Axis::new("frame size with check sequence, bytes", Kind::Names(names))
    }

    fn place(&self, size: u32) -> f64 {
        real(self.0.partition_point(|one| *one < size))
    }

    fn percent(&self, runs: &[Run<'_>]) -> Chart {
        let series = self.series(runs, |run| {
            let of = |found: Found| {
                let percent = found.rate / highest(run.report, found.size)? * 100.0;
                let (words, label) = (found.words(&format!("{} %", number(percent, 2))), found.label());
                Some(Place { name: found.name, size: found.size, y: percent, range: None, words, label })
            };
            throughputs(run.report).into_iter().filter_map(of).collect()
        });
        Chart {
            title: "Throughput, share of the highest rate".to_owned(),
            note: format!("{} {AT_LEAST} stands at what is at least that.", bases(runs)),
            x: self.axis(),
            y: Axis::new("% of the highest rate", Kind::Percent),
            series,
        }
    }

    fn rates(&self, runs: &[Run<'_>]) -> Chart {
        let limits = |run: &Run<'_>| self.0.iter().filter_map(|&size| highest(run.report, size)).fold(0.0, f64::max);
        let (unit, scale) = unit(runs.iter().map(limits).fold(0.0, f64::max));
        let mut series: Vec<Series> = Vec::new();
        for run in runs {
            let point = |&size: &u32| {
                let rate = highest(run.report, size)?;
                let title = self.title(run, "highest rate", size, &format!("{} pps", number(rate, 0)));
                Some(Point { x: self.place(size), y: rate / scale, range: None, title, label: String::new() })
            };
            let points: Vec<Point> = self.0.iter().filter_map(point).collect();
            let ys = |points: &[Point]| points.iter().map(|point| (point.x, point.y)).collect::<Vec<_>>();
            // Runs on the same line have it once.
            if series.last().is_none_or(|last| ys(&last.points) != ys(&points)) {
                series.push(Series { name: run.name_of("highest rate"), look: Look::limit(), points });
            }
        }
        if let [one] = &mut series[..] {
            one.name = "highest rate".to_owned();
        }
        series.extend(self.series(runs, |run| {
            let of = |found: Found| {
                let between = match found.bounds {
                    [Some(low), Some(high)] => {
                        let load = if found.rate < low { "at a load " } else { "" };
                        format!(", {load}between {} and {}", number(low, 0), number(high, 0))
                    }
                    _ => String::new(),
                };
                let words = found.words(&format!("{} pps{between}", number(found.rate, 0)));
                let label = found.label();
                Place { name: found.name, size: found.size, y: found.rate / scale, range: None, words, label }
            };
            let forwarded = run.report.parts().iter().filter_map(|part| match &part.test {
                AnyTest::Frmol(test) => test.result().map(|result| Found {
                    name: "forwarded at the highest load".to_owned(),
                    size: part.size,
                    rate: result.forwarded,
                    bounds: [None, None],
                    is_at_least: result.is_at_least(),
                }),
                _ => None,
            });
            throughputs(run.report).into_iter().chain(forwarded).map(of).collect()
        }));
        Chart {
            title: "Frames a second".to_owned(),
            note: String::new(),
            x: self.axis(),
            y: Axis::new(unit, Kind::Linear),
            series,
        }
    }

    fn latency(&self, runs: &[Run<'_>]) -> Chart {
        let series = self.series(runs, |run| {
            run.report
                .parts()
                .iter()
                .flat_map(|part| latencies(part).into_iter().map(move |(name, result)| (part, name, result)))
                .filter_map(|(part, name, result)| {
                    let ([typical, worst], least) = (typical_and_worst(result)?, least(result)?);
                    let words = format!("typical {} us, worst case {} us", number(typical, 2), number(worst, 2));
                    Some(Place { name, size: part.size, y: typical, range: Some([least, worst]), words, label: "" })
                })
                .collect()
        });
        let note = "Marks are typical latencies (medians); lines reach from the shortest to the worst case, the 99.9th percentile \
                    (RFC 8219). From the hand-over to the sender's ring, or the due time of frames in a long buffer, to the sight of the receiver.";
        Chart {
            title: "Latency".to_owned(),
            note: note.to_owned(),
            x: self.axis(),
            y: Axis::new("us, logarithmic", Kind::Log),
            series,
        }
    }

    fn bursts(&self, runs: &[Run<'_>]) -> Chart {
        let series = self.series(runs, |run| {
            let of = |part: &Part| {
                let AnyTest::BackToBack(test) = &part.test else { return None };
                // Where the longest burst allowed lost nothing, there is no longest one.
                let bursts = test.result().filter(|bursts| bursts.endless == 0)?;
                let Summary { min, max, .. } = bursts.frames;
                let trial::Setup::BackToBack { throughput, range, .. } = part.setup else { return None };
                let (mean, bound) = bursts.longest(range.map_or(throughput, |range| range[1]));
                if mean <= 0.0 {
                    return None;
                }
                let label = if bound.is_some() { AT_LEAST } else { "" };
                let (name, words) = ("longest burst".to_owned(), format!("{label}{} frames", number(mean, 1)));
                Some(Place { name, size: part.size, y: mean, range: Some([min.min(mean), max]), words, label })
            };
            run.report.parts().iter().filter_map(of).collect()
        });
        Chart {
            title: "Back-to-back frames".to_owned(),
            note: "Marks are means of the longest bursts without loss, or what they are at least; lines reach from the least to the \
                   most. Sizes that are forwarded at the highest rate have none."
                .to_owned(),
            x: self.axis(),
            y: Axis::new("frames", Kind::Linear),
            series,
        }
    }

    fn recovery(&self, runs: &[Run<'_>]) -> Chart {
        let series = self.series(runs, |run| {
            let of = |part: &Part| {
                let AnyTest::Recovery(test) = &part.test else { return None };
                let result = test.result()?;
                let (mean, Summary { min, max, .. }) = (result.mean()?, result.seconds?);
                let label = match result.bound() {
                    Some(Bound::AtMost) => AT_MOST,
                    Some(_) => AT_LEAST,
                    None => "",
                };
                let (name, words) = ("recovery".to_owned(), format!("{label}{} s", number(mean, 4)));
                let range = Some([min * 1e3, max.max(mean) * 1e3]);
                Some(Place { name, size: part.size, y: mean * 1e3, range, words, label })
            };
            run.report.parts().iter().filter_map(of).collect()
        });
        Chart {
            title: "System recovery".to_owned(),
            note: "From the end of an overload to the last lost frame; lines reach from the least to the most."
                .to_owned(),
            x: self.axis(),
            y: Axis::new("ms", Kind::Linear),
            series,
        }
    }

    /// A series for each name of each run. One run has a colour for each name, several have one each.
    fn series<'r, F>(&self, runs: &[Run<'r>], points: F) -> Vec<Series>
    where
        F: Fn(&Run<'r>) -> Vec<Place>,
    {
        let mut all: Vec<Series> = Vec::new();
        for (nth, run) in runs.iter().enumerate() {
            let before = all.len();
            for Place { name, size, y, range, words, label } in points(run) {
                let title = self.title(run, &name, size, &words);
                let point = Point { x: self.place(size), y, range, title, label: label.to_owned() };
                let name = run.name_of(&name);
                match all[before..].iter_mut().find(|series| series.name == name) {
                    Some(series) => series.points.push(point),
                    None => {
                        let of_run = all.len() - before;
                        let look = if runs.len() == 1 { Look::nth(of_run) } else { Look::nth(nth).variant(of_run) };
                        all.push(Series { name, look, points: vec![point] });
                    }
                }
            }
            all[before..].iter_mut().for_each(|series| series.points.sort_by(|a, b| a.x.total_cmp(&b.x)));
        }
        all
    }

    fn title(&self, run: &Run<'_>, name: &str, size: u32, words: &str) -> String {
        format!("{}, {size} bytes: {words}", run.name_of(name))
    }
}

/// Loss over the load, a line for each size.
fn loss(run: &Run<'_>) -> Chart {
    let mut series = Vec::new();
    for part in run.report.parts() {
        let (AnyTest::FrameLoss(test), Some(most)) = (&part.test, highest(run.report, part.size)) else { continue };
        let point = |point: &trial::LossPoint| {
            let (x, y) = (point.rate / most * 100.0, point.loss_percent());
            let rate = number(point.rate, 0);
            let range = point.interval_percent();
            let [low, high] = range.map(|end| number(end, 4));
            let load = format!("{} bytes, {rate} pps ({} %)", part.size, number(x, 1));
            let (most, label) = if point.doubtful > 0 { ("at most ", AT_MOST) } else { ("", "") };
            let title = format!("{load}: {most}{} % lost, by chance {low} % to {high} %", number(y, 4));
            Point { x, y, range: Some(range), title, label: label.to_owned() }
        };
        let points = test.points().iter().map(point).collect();
        series.push(Series { name: format!("{} bytes", part.size), look: Look::nth(series.len()), points });
    }
    let name = if run.name.is_empty() { String::new() } else { format!(", run {}", run.name) };
    Chart {
        title: format!("Frame loss{name}"),
        note: "From the highest load down, until two in a row lose nothing. Lines reach over the interval in which the loss lies with 95 % \
               if frames, or several at a time, are lost by chance; where bursts of the generator may be why some are, they begin without these."
            .to_owned(),
        x: Axis::new("load, % of the highest rate", Kind::Percent),
        y: Axis::new("frames lost, %", Kind::Linear),
        series,
    }
}

/// What percentages of runs are of.
fn bases(runs: &[Run<'_>]) -> String {
    let mut all: Vec<String> = runs.iter().map(|run| format!("Percentages are {}.", base(run.report))).collect();
    if all.iter().all(|one| *one == all[0]) {
        all.truncate(1);
    }
    match &all[..] {
        [one] => one.clone(),
        _ => runs.iter().zip(&all).map(|(run, words)| run.name_of(words)).collect::<Vec<_>>().join(" "),
    }
}

/// What searches have found.
pub(super) fn throughputs(report: &Report) -> Vec<Found> {
    let mut all = Vec::new();
    for part in report.parts() {
        match &part.test {
            AnyTest::Throughput(test) => all.extend(test.results().into_iter().filter_map(|result| {
                Some(Found {
                    name: goal(&result.goal),
                    size: part.size,
                    rate: result.throughput?,
                    bounds: [result.lower, result.upper],
                    is_at_least: result.is_at_least(),
                })
            })),
            AnyTest::BinarySearch(test) => {
                let result = test.result();
                let found = |rate| Found {
                    name: "no loss (RFC 2544)".to_owned(),
                    size: part.size,
                    rate,
                    bounds: [Some(rate), result.upper],
                    is_at_least: result.is_at_least(),
                };
                all.extend(result.throughput.map(found));
            }
            _ => {}
        }
    }
    all
}

/// The name of a goal.
pub(super) fn goal(goal: &Goal) -> String {
    match goal.loss_ratio * 100.0 {
        0.0 => "NDR (no loss)".to_owned(),
        loss => format!("PDR (loss up to {} %)", (loss * 1e6).round() / 1e6),
    }
}

/// Latencies by name: at the highest of their rates, and at shares of it.
pub(super) fn latencies(part: &Part) -> Vec<(String, &LatencyResult)> {
    let AnyTest::Latency(test) = &part.test else { return Vec::new() };
    let first = test.results().first().map_or(1.0, |result| result.rate);
    let name = |result: &LatencyResult| match (result.rate / first * 100.0).round() {
        100.0 => "at the throughput".to_owned(),
        share => format!("at {share} % of it"),
    };
    test.results().iter().map(|result| (name(result), result)).collect()
}

/// Typical and worst-case latency in microseconds.
pub(super) fn typical_and_worst(result: &LatencyResult) -> Option<[f64; 2]> {
    Some([result.typical()?.median / 1e3, result.worst()?.median / 1e3])
}

/// The shortest latency in microseconds.
fn least(result: &LatencyResult) -> Option<f64> {
    result.repetitions.iter().map(|delays| delays.min / 1e3).reduce(f64::min)
}

/// A unit for rates up to this, and what it is in frames a second.
fn unit(most: f64) -> (&'static str, f64) {
    match most {
        most if most >= 1e6 => ("million frames a second", 1e6),
        most if most >= 1e4 => ("thousand frames a second", 1e3),
        _ => ("frames a second", 1.0),
    }
}
