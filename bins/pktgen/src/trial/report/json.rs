//! The object of `--json`.

use super::floor;
use crate::args::Spread;
use crate::calibrate::Floor;
use crate::clock::ClockReport;
use crate::report::mean_extent;
use crate::trial::figures::{Counted, Figures, Rates, Setting};
use cli::exit::Failure;
use cli::report::{PortTotals, Totals, rounded};
use measure::Summary;
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct Report<'a> {
    mode: &'static str,
    /// Queue pairs of each port.
    queues: u16,
    /// Bytes of a frame on average, without check sequence: of streams with rates of their own by these; `null` if others beside them have
    /// none.
    mean_size: Option<f64>,
    clock: ClockReport,
    /// Why no figure holds, as the clock jumped; else `null`.
    void: Option<&'a str>,
    directions: Vec<DirectionReport<'a>>,
    ports: &'a [PortTotals],
    warnings: Vec<String>,
    /// Why the exit code is not 0; else `null`.
    error: Option<String>,
}

#[derive(Serialize)]
struct DirectionReport<'a> {
    from: String,
    to: String,
    duration_s: f64,
    /// All streams together.
    #[serde(flatten)]
    all: CountedReport,
    foreign: u64,
    damaged: u64,
    /// Frames of verified streams that arrived without a checksum that is read: what they were sent with is hidden, or damaged itself.
    unread: u64,
    /// The checksums of all streams were read.
    verified: bool,
    /// What the instrument measures of itself, at the nearest rate and size; `null` without `--floor`.
    floor: Option<&'a Floor>,
    streams: Vec<StreamReport>,
}

#[derive(Serialize)]
struct StreamReport {
    name: String,
    /// The checksums of its frames were read.
    verified: bool,
    /// How its frames are spread, as `--pattern` says it; `null` without a rate.
    pattern: Option<String>,
    #[serde(flatten)]
    counted: CountedReport,
}

/// A stream, or several.
#[derive(Serialize)]
struct CountedReport {
    /// Frames a second; `null` without a rate.
    intended_pps: Option<f64>,
    offered_pps: f64,
    missed_pps: f64,
    /// Frames that were due and not sent.
    missed: u64,
    /// `received` and `lost`.
    sent: u64,
    received: u64,
    lost: u64,
    loss_percent: f64,
    /// `null` of frames without tags, as are the next.
    duplicate: Option<u64>,
    late: Option<u64>,
    reordered: Option<u64>,
    greatest_extent: Option<u64>,
    mean_extent: Option<f64>,
    latency_from_due_ns: Option<LatencyReport>,
    latency_from_ring_ns: Option<LatencyReport>,
}

/// How long frames took, in nanoseconds.
#[derive(Serialize)]
pub(crate) struct LatencyReport {
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
    pub(super) fn of(
        setting: &Setting<'a>,
        all: &[Figures],
        totals: &'a Totals,
        warnings: Vec<String>,
        result: &Result<(), Failure>,
    ) -> Self {
        let asked: Vec<_> = all.iter().map(|figures| figures.asked(setting).1).collect();
        Self {
            mode: "run",
            queues: setting.args.queues,
            mean_size: setting.frames.mean(asked.iter().map(Vec::as_slice)).map(rounded),
            clock: ClockReport::of(setting.clock),
            void: setting.void,
            directions: all.iter().map(|figures| DirectionReport::of(setting, figures, totals)).collect(),
            ports: &totals.ports,
            warnings,
            error: result.as_ref().err().map(Failure::message),
        }
    }
}

impl<'a> DirectionReport<'a> {
    fn of(setting: &Setting<'a>, figures: &Figures, totals: &Totals) -> Self {
        let (seconds, (_, asked)) = (figures.seconds(setting), figures.asked(setting));
        let patterns = &setting.asked[figures.from].patterns;
        let stream = |(index, (name, counted)): (usize, (String, &Counted))| {
            let asked = asked.get(index).copied().flatten();
            let counted = CountedReport::of(setting, counted, counted.rates(asked, seconds));
            let pattern = patterns.get(index).and_then(Option::as_ref).map(Spread::to_string);
            StreamReport { name, verified: figures.verifies(index), pattern, counted }
        };
        let streams = setting.frames.names().into_iter().zip(&figures.streams).enumerate();
        Self {
            from: totals.ports[figures.from].name.clone(),
            to: totals.ports[figures.to].name.clone(),
            duration_s: rounded(seconds),
            all: CountedReport::of(setting, &figures.all, figures.rates(setting)),
            foreign: figures.foreign,
            damaged: figures.damaged(),
            unread: figures.unread,
            verified: figures.is_verified(),
            floor: floor(setting, figures),
            streams: streams.map(stream).collect(),
        }
    }
}

impl CountedReport {
    fn of(setting: &Setting<'_>, counted: &Counted, rates: Rates) -> Self {
        let Rates { intended, offered, missed } = rates;
        let (verdict, tick) = (counted.verdict, setting.clock.nanoseconds(1));
        let known = |count: u64| (!setting.frames.are_untagged()).then_some(count);
        let latency = |summary: Option<Summary>| summary.map(|summary| LatencyReport::of(&summary.scaled(tick)));
        Self {
            intended_pps: intended.map(rounded),
            offered_pps: rounded(offered),
            missed_pps: rounded(missed),
            missed: counted.missed,
            sent: verdict.sent,
            received: verdict.received,
            lost: verdict.lost,
            loss_percent: counted.loss_percent(),
            duplicate: known(verdict.duplicate),
            late: known(verdict.late),
            reordered: known(verdict.reordered),
            greatest_extent: known(verdict.greatest_extent),
            mean_extent: known(0).map(|_| mean_extent(&verdict)),
            latency_from_due_ns: latency(counted.from_due),
            latency_from_ring_ns: latency(counted.from_ring),
        }
    }
}

impl LatencyReport {
    pub(crate) fn of(summary: &Summary) -> Self {
        let Summary { count, min, mean, p50, p90, p99, p999, max, deviation, pdv, jitter } = *summary;
        let [min, mean, p50, p90, p99, p999, max, deviation, pdv, jitter] =
            [min, mean, p50, p90, p99, p999, max, deviation, pdv, jitter].map(rounded);
        Self { count, min, mean, p50, p90, p99, p999, max, deviation, pdv, jitter }
    }
}
