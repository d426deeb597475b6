//! The report of a run: a page for people, or with `--json` one object; and what was expected of it.

use super::figures::{Figures, Rates, Setting, percent};
use super::no_probe;
use anyhow::anyhow;
use cli::exit::Failure;
use cli::human::{counted, grouped, with_unit};
use cli::output;
use cli::report::{PortTotals, Totals, rounded};
use cli::screen;
use measure::{Kind, Summary};
use serde::Serialize;
use std::time::Duration;

/// Prints the report, and returns how the run ended: with `result`, or with what is wrong with its figures.
pub(crate) fn print(
    setting: &Setting<'_>,
    all: &[Figures],
    totals: &Totals,
    result: Result<(), Failure>,
) -> Result<(), Failure> {
    let name = |figures: &Figures| {
        setting.names.iter().zip(all).find(|(_, other)| other.from == figures.from).map(|(names, _)| names.clone())
    };
    let unanswered = all.iter().find(|figures| !figures.answered).and_then(name);
    let measured = match unanswered {
        Some(names) if !setting.cut => Err(no_probe(&names)),
        _ if all.iter().all(|figures| figures.sent.is_none()) => {
            Err(anyhow!("interrupted by a signal before any frame counted; give it more time").into())
        }
        _ => Ok(()),
    };
    let result = result.and(measured).and(links(all, totals)).and_then(|()| match unmet(setting, all) {
        unmet if unmet.is_empty() => Ok(()),
        unmet => Err(Failure::Unmet(unmet.join("; "))),
    });
    let warnings = warnings(setting, all, totals);
    if setting.args.json {
        output::print_json(&Report::of(setting, all, totals, warnings, &result))?;
    } else if all.iter().any(|figures| figures.sent.is_some()) {
        output::print(&page(setting, all, totals, &warnings))?;
    }
    result
}

/// An error if a link was down at the end.
fn links(all: &[Figures], totals: &Totals) -> Result<(), Failure> {
    let ports = all.iter().flat_map(|figures| [figures.from, figures.to]).map(|port| &totals.ports[port]);
    match ports.into_iter().find(|port| port.link == "down") {
        Some(port) => {
            let name = &port.name;
            Err(anyhow!("{name}: its link went down; what did not arrive for that counts as lost: see to the cable")
                .into())
        }
        None => Ok(()),
    }
}

/// The expectations that do not hold, in words.
fn unmet(setting: &Setting<'_>, all: &[Figures]) -> Vec<String> {
    let expect = setting.args.expect;
    let mut unmet = Vec::new();
    for (figures, [from, to]) in all.iter().zip(setting.names) {
        let loss = figures.loss_percent();
        if let Some(most) = expect.expect_loss.filter(|most| loss > *most) {
            let lost = counted(figures.verdict.lost, "frame");
            unmet.push(format!(
                "{from} > {to}: {lost} of {} lost, {loss:.4} %; --expect-loss allows {most} %",
                grouped(figures.verdict.sent)
            ));
        }
        let short = figures.short_percent(setting).unwrap_or(0.0);
        if let Some(most) = expect.expect_rate.filter(|most| short > *most) {
            unmet.push(format!("{from} > {to}: offered {short:.3} % less than --rate; --expect-rate allows {most} %"));
        }
        let p99 = figures.from_due.map(|latency| setting.clock.nanoseconds(1) * latency.p99);
        let too_long = |most: &Duration| p99.is_none_or(|p99| p99 > most.as_secs_f64() * 1e9);
        if let Some(most) = expect.expect_latency_p99.filter(too_long) {
            let p99 = p99.map_or("not known".to_owned(), |p99| format!("{} us", microseconds(p99)));
            unmet.push(format!("{from} > {to}: p99 latency {p99}; --expect-latency-p99 allows {most:?}"));
        }
    }
    unmet
}

/// What a reader has to know before believing the figures.
fn warnings(setting: &Setting<'_>, all: &[Figures], totals: &Totals) -> Vec<String> {
    let mut warnings = Vec::new();
    if setting.cut {
        warnings.push("a signal ended the run early".to_owned());
    }
    for (figures, [from, to]) in all.iter().zip(setting.names) {
        if let Some(short) = figures.short_percent(setting).filter(|short| *short > 0.1) {
            warnings.push(format!(
                "{from} > {to}: offered {short:.2} % less than --rate: {} missed, which this machine or the port was too slow or too \
                 busy for",
                counted(figures.missed, "frame")
            ));
        }
        let unsent = totals.ports[figures.from].tx_dropped;
        if unsent > 0 {
            warnings.push(format!("{from} > {to}: {} counted as sent never left {from}", counted(unsent, "frame")));
        }
    }
    warnings
}

/// The page for people.
fn page(setting: &Setting<'_>, all: &[Figures], totals: &Totals, warnings: &[String]) -> String {
    let mut text = head(setting, all);
    // A pair to a table, so that it fits 60 columns or so.
    for pair in all.chunk_by(|one, other| one.from / 2 == other.from / 2) {
        text += &format!("\n\n{}", table(setting, pair, totals));
    }
    if setting.args.tag == Kind::Full {
        text += "\n\ndue: from when a frame was due; ring: from its hand-over to the transmit ring, not the wire";
    }
    for warning in warnings {
        text += &format!("\nWARNING: {warning}");
    }
    text
}

/// What was asked for, and how exact times are.
fn head(setting: &Setting<'_>, all: &[Figures]) -> String {
    let args = setting.args;
    let rate = args.pace.rate.map_or("as fast as the ports take them".to_owned(), |load| match all.first() {
        Some(figures) => {
            let pps = setting.rates[figures.from].map_or(0.0, measure::Rate::per_second);
            format!("--rate {load}: {} each way", with_unit(pps, "pps"))
        }
        None => String::new(),
    });
    let tag = if args.tag == Kind::Full { "full" } else { "short" };
    let spread = match args.pace.pattern.0 {
        _ if args.pace.rate.is_none() => String::new(),
        measure::Pattern::Even => ", even".to_owned(),
        measure::Pattern::Bursts(frames) => format!(", bursts of {frames}"),
        measure::Pattern::Poisson(seed) => format!(", Poisson (seed {seed})"),
    };
    let seconds = all.iter().map(|figures| figures.rates(setting).seconds).fold(0.0, f64::max);
    format!(
        "\nrun: {seconds:.3} s, frames of {}, {tag} tag\n{rate}{spread}\nclock: {:.3} MHz, wrong by at most {:.3} ppm \
         and {:.0} ns against CLOCK_MONOTONIC",
        setting.frames.sizes(),
        f64::from(u32::try_from(setting.clock.hz() / 1000).unwrap_or(u32::MAX)) / 1000.0,
        setting.clock.error_ppm(),
        setting.clock.error_ns()
    )
}

/// The figures of a pair, a column or two for each direction.
fn table(setting: &Setting<'_>, pair: &[Figures], totals: &Totals) -> String {
    let title = |figures: &Figures| {
        let name = |port: usize| screen::short_name(&totals.ports[port].name);
        format!("{} > {}", name(figures.from), name(figures.to))
    };
    let header: Vec<String> = std::iter::once(String::new()).chain(pair.iter().map(title)).collect();
    let mut counts = screen::plain_table(&header.iter().map(String::as_str).collect::<Vec<_>>());
    let mut row = |name: &str, cell: &dyn Fn(&Figures) -> String| {
        counts.add_row(std::iter::once(name.to_owned()).chain(pair.iter().map(cell)));
    };
    let rates = |figures: &Figures| figures.rates(setting);
    let per_second = |value: f64| format!("{} pps", grouped(whole(value)));
    row("intended", &|figures| rates(figures).intended.map_or("no limit".to_owned(), per_second));
    row("offered", &|figures| per_second(rates(figures).offered));
    row("missed", &|figures| format!("{} pps", grouped(whole(rates(figures).missed.ceil()))));
    row("frames missed", &|figures| grouped(figures.missed));
    row("sent", &|figures| grouped(figures.verdict.sent));
    row("received", &|figures| grouped(figures.verdict.received));
    row("LOST", &|figures| with_share(figures.verdict.lost, figures.loss_percent()));
    row("duplicate", &|figures| grouped(figures.verdict.duplicate));
    row("late", &|figures| grouped(figures.verdict.late));
    row("reordered", &|figures| {
        let verdict = figures.verdict;
        with_share(verdict.reordered, percent(verdict.reordered, verdict.received))
    });
    row("greatest extent", &|figures| grouped(figures.verdict.greatest_extent));
    row("foreign", &|figures| grouped(figures.foreign));
    row("damaged", &|figures| grouped(damaged(figures, &totals.ports[figures.to])));
    screen::align_right(&mut counts, 1);
    let mut text = screen::trimmed(&counts);
    if setting.args.tag == Kind::Full {
        text += &format!("\n\n{}", latencies(setting, pair, &header));
    }
    text
}

/// Latency in microseconds, from both times.
fn latencies(setting: &Setting<'_>, pair: &[Figures], header: &[String]) -> String {
    let mut columns = vec!["latency, us".to_owned()];
    for title in &header[1..] {
        columns.extend([String::new(), title.clone()]);
    }
    let mut table = screen::plain_table(&columns.iter().map(String::as_str).collect::<Vec<_>>());
    let tick = setting.clock.nanoseconds(1);
    let all: Vec<Option<Summary>> = pair
        .iter()
        .flat_map(|figures| [figures.from_due, figures.from_ring])
        .map(|summary| summary.map(|summary| summary.scaled(tick)))
        .collect();
    table.add_row(std::iter::once("from").chain(pair.iter().flat_map(|_| ["due", "ring"])));
    let figures: [Row; 10] = [
        ("min", |summary| summary.min),
        ("mean", |summary| summary.mean),
        ("p50 (typical)", |summary| summary.p50),
        ("p90", |summary| summary.p90),
        ("p99", |summary| summary.p99),
        ("p99.9 (worst)", |summary| summary.p999),
        ("max", |summary| summary.max),
        ("deviation", |summary| summary.deviation),
        ("PDV", |summary| summary.pdv),
        ("jitter", |summary| summary.jitter),
    ];
    for (name, figure) in figures {
        let cell = |summary: &Option<Summary>| {
            summary.as_ref().map_or("-".to_owned(), |summary| microseconds(figure(summary)))
        };
        table.add_row(std::iter::once(name.to_owned()).chain(all.iter().map(cell)));
    }
    screen::align_right(&mut table, 1);
    screen::trimmed(&table)
}

/// A figure's name, and where it is found.
type Row = (&'static str, fn(&Summary) -> f64);

/// Frames that a device or their tag shows to be damaged.
fn damaged(figures: &Figures, port: &PortTotals) -> u64 {
    figures.impossible + port.rx_errors + port.rx_queues.iter().map(|queue| queue.dropped).sum::<u64>()
}

fn with_share(count: u64, percent: f64) -> String {
    if count == 0 { "0".to_owned() } else { format!("{} ({percent:.4} %)", grouped(count)) }
}

/// Nanoseconds as microseconds, to a hundredth.
fn microseconds(nanoseconds: f64) -> String {
    let hundredths = whole(nanoseconds / 10.0);
    format!("{}.{:02}", grouped(hundredths / 100), hundredths % 100)
}

fn whole(value: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a figure for people; saturates")]
    let whole = value.max(0.0).round() as u64;
    whole
}

#[derive(Serialize)]
struct Report<'a> {
    mode: &'static str,
    /// Bytes of a frame on average, without check sequence.
    mean_size: f64,
    clock: ClockReport,
    directions: Vec<DirectionReport>,
    ports: &'a [PortTotals],
    warnings: Vec<String>,
    /// Why the exit code is not 0; else `null`.
    error: Option<String>,
}

#[derive(Serialize)]
struct ClockReport {
    hz: u64,
    error_ppm: f64,
    error_ns: f64,
}

#[derive(Serialize)]
struct DirectionReport {
    from: String,
    to: String,
    duration_s: f64,
    /// Frames a second; `null` without `--rate`.
    intended_pps: Option<f64>,
    offered_pps: f64,
    /// Frames that were due and not sent.
    missed: u64,
    /// `received` and `lost`.
    sent: u64,
    received: u64,
    lost: u64,
    loss_percent: f64,
    duplicate: u64,
    late: u64,
    reordered: u64,
    greatest_extent: u64,
    mean_extent: f64,
    foreign: u64,
    damaged: u64,
    latency_from_due_ns: Option<LatencyReport>,
    latency_from_ring_ns: Option<LatencyReport>,
}

#[derive(Serialize)]
struct LatencyReport {
    count: u64,
    min: f64,
    mean: f64,
    p50: f64,
    p90: f64,
    p99: f64,
    p999: f64,
    max: f64,
    deviation: f64,
    pdv: f64,
    jitter: f64,
}

impl<'a> Report<'a> {
    fn of(
        setting: &Setting<'_>,
        all: &[Figures],
        totals: &'a Totals,
        warnings: Vec<String>,
        result: &Result<(), Failure>,
    ) -> Self {
        let clock = ClockReport {
            hz: setting.clock.hz(),
            error_ppm: rounded(setting.clock.error_ppm()),
            error_ns: rounded(setting.clock.error_ns()),
        };
        Self {
            mode: "run",
            mean_size: rounded(setting.frames.mean()),
            clock,
            directions: all.iter().map(|figures| DirectionReport::of(setting, figures, totals)).collect(),
            ports: &totals.ports,
            warnings,
            error: result.as_ref().err().map(Failure::message),
        }
    }
}

impl DirectionReport {
    fn of(setting: &Setting<'_>, figures: &Figures, totals: &Totals) -> Self {
        let Rates { intended, offered, seconds, .. } = figures.rates(setting);
        let verdict = figures.verdict;
        let tick = setting.clock.nanoseconds(1);
        #[expect(clippy::cast_precision_loss, reason = "figures for people")]
        let mean_extent = if verdict.reordered == 0 { 0.0 } else { verdict.extents as f64 / verdict.reordered as f64 };
        Self {
            from: totals.ports[figures.from].name.clone(),
            to: totals.ports[figures.to].name.clone(),
            duration_s: rounded(seconds),
            intended_pps: intended.map(rounded),
            offered_pps: rounded(offered),
            missed: figures.missed,
            sent: verdict.sent,
            received: verdict.received,
            lost: verdict.lost,
            loss_percent: figures.loss_percent(),
            duplicate: verdict.duplicate,
            late: verdict.late,
            reordered: verdict.reordered,
            greatest_extent: verdict.greatest_extent,
            mean_extent: rounded(mean_extent),
            foreign: figures.foreign,
            damaged: damaged(figures, &totals.ports[figures.to]),
            latency_from_due_ns: figures.from_due.map(|summary| LatencyReport::of(&summary.scaled(tick))),
            latency_from_ring_ns: figures.from_ring.map(|summary| LatencyReport::of(&summary.scaled(tick))),
        }
    }
}

impl LatencyReport {
    fn of(summary: &Summary) -> Self {
        let Summary { count, min, mean, p50, p90, p99, p999, max, deviation, pdv, jitter } = *summary;
        let [min, mean, p50, p90, p99, p999, max, deviation, pdv, jitter] =
            [min, mean, p50, p90, p99, p999, max, deviation, pdv, jitter].map(rounded);
        Self { count, min, mean, p50, p90, p99, p999, max, deviation, pdv, jitter }
    }
}
