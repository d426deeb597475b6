//! The table of `pktgen ping`, or with `--json` one object.

use super::account::Account;
use crate::args::PingArgs;
use crate::clock::ClockReport;
use crate::trial::figures::percent;
use crate::trial::report::LatencyReport;
use anyhow::anyhow;
use cli::exit::Failure;
use cli::human::{counted, grouped};
use cli::output;
use cli::screen;
use measure::{Clock, Summary};
use serde::Serialize;
use std::net::IpAddr;

/// What there is to print.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page<'a> {
    pub(crate) args: &'a PingArgs,
    pub(crate) clock: &'a Clock,
    /// That of the port first.
    pub(crate) paths: &'a [Path],
    /// A signal ended it.
    pub(crate) is_cut: bool,
}

/// How pings by a path went.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    kind: &'static str,
    /// The port, the interface or the kind of socket.
    by: String,
    from: Option<IpAddr>,
    to: IpAddr,
    sent: u64,
    received: u64,
    duplicate: u64,
    late: u64,
    damaged: u64,
    refused: u64,
    first_refusal: Option<String>,
    /// In ticks.
    latency: Option<Summary>,
}

impl Path {
    pub(crate) fn of(kind: &'static str, by: &str, from: Option<IpAddr>, to: IpAddr, account: &Account) -> Self {
        Self {
            kind,
            by: by.to_owned(),
            from,
            to,
            sent: account.sent,
            received: account.received,
            duplicate: account.duplicate,
            late: account.late,
            damaged: account.damaged,
            refused: account.refused,
            first_refusal: account.first_refusal.clone(),
            latency: account.latency.summary(),
        }
    }

    fn lost(&self) -> u64 {
        self.sent - self.received
    }

    fn loss_percent(&self) -> f64 {
        percent(self.lost(), self.sent)
    }

    /// Why not all is well.
    fn trouble(&self) -> Option<Failure> {
        let Self { kind, by, to, .. } = self;
        if self.sent == 0 {
            return Some(anyhow!("{by}: nothing was sent to {to} by the {kind} path; give it more time").into());
        }
        if self.lost() == 0 {
            return None;
        }
        let why = match (&self.first_refusal, self.received, self.late, self.damaged) {
            (Some(refusal), ..) => refusal.clone(),
            (None, 0, 0, 0) => "none came back; see that the host answers pings, and has a way back".to_owned(),
            _ => "see what drops or holds them on the way".to_owned(),
        };
        let lost = counted(self.lost(), "ping");
        Some(anyhow!("{by}: {lost} of {} to {to} by the {kind} path lost; {why}", grouped(self.sent)).into())
    }
}

/// Prints the table, and returns how the run ended: with `result`, or with what was lost.
pub(crate) fn print(page: &Page<'_>, result: Result<(), Failure>) -> Result<(), Failure> {
    let result = result.and(page.paths.iter().find_map(Path::trouble).map_or(Ok(()), Err));
    if page.args.json {
        output::print_json(&Report::of(page, &result))?;
    } else {
        output::print(&text(page))?;
    }
    result
}

fn text(page: &Page<'_>) -> String {
    let Page { args, clock, paths, .. } = page;
    let mut text = String::from("\n");
    for Path { kind, by, from, to, .. } in *paths {
        let from = from.map_or(String::new(), |from| format!(" from {from}"));
        text += &format!("{kind}: {to}{from}, by {by}\n");
    }
    text += &format!(
        "{} of {} bytes each, {:?} apart, {:?} to come back\n{}\n\n{}",
        counted(args.count, "ping"),
        args.size,
        args.interval,
        args.timeout,
        ClockReport::of(clock).words(),
        table(page)
    );
    for path in page.paths {
        if let Some(refusal) = &path.first_refusal {
            text += &format!("\nWARNING: {} times: {refusal}", grouped(path.refused));
        }
    }
    if let Some(warning) = ClockReport::of(clock).warning() {
        text += &format!("\nWARNING: {warning}");
    }
    if page.is_cut {
        text += "\nWARNING: a signal ended it early";
    }
    text
}

/// A figure's name, and where it is found.
type Row = (&'static str, fn(&Summary) -> f64);
const FIGURES: [Row; 7] = [
    ("min", |summary| summary.min),
    ("mean", |summary| summary.mean),
    ("p50", |summary| summary.p50),
    ("p90", |summary| summary.p90),
    ("p99", |summary| summary.p99),
    ("max", |summary| summary.max),
    ("deviation", |summary| summary.deviation),
];

/// The kernel's path first, as what the other is compared with.
fn table(page: &Page<'_>) -> String {
    let columns: Vec<&Path> = page.paths.iter().rev().collect();
    let is_pair = columns.len() == 2;
    let header = std::iter::once("").chain(columns.iter().map(|path| path.kind));
    let header: Vec<&str> = header.chain(is_pair.then_some("saved")).collect();
    let mut table = screen::plain_table(&header);
    let mut row = |name: &str, cells: Vec<String>, saved: String| {
        let saved = is_pair.then_some(saved);
        table.add_row(std::iter::once(name.to_owned()).chain(cells).chain(saved));
    };
    let mut counts = |name: &str, of: &dyn Fn(&Path) -> String| {
        row(name, columns.iter().map(|path| of(path)).collect(), String::new());
    };
    counts("sent", &|path| grouped(path.sent));
    counts("received", &|path| grouped(path.received));
    counts("LOST", &|path| match path.lost() {
        0 => "0".to_owned(),
        lost => format!("{} ({:.2} %)", grouped(lost), path.loss_percent()),
    });
    counts("duplicate", &|path| grouped(path.duplicate));
    counts("late", &|path| grouped(path.late));
    counts("damaged", &|path| grouped(path.damaged));
    let microsecond = page.clock.nanoseconds(1) / 1000.0;
    for (name, figure) in FIGURES {
        let values: Vec<Option<f64>> =
            columns.iter().map(|path| path.latency.as_ref().map(|latency| figure(latency) * microsecond)).collect();
        let cells = values.iter().map(|value| value.map_or("-".to_owned(), |value| format!("{value:.2}")));
        let percent = saved(&values).map_or("-".to_owned(), |saved| format!("{saved:.1} %"));
        row(&format!("{name}, us"), cells.collect(), percent);
    }
    screen::align_right(&mut table, 1);
    screen::trimmed(&table)
}

/// What the second of two takes less than the first, in percent of that.
fn saved(values: &[Option<f64>]) -> Option<f64> {
    match values {
        [Some(kernel), Some(bypass)] if *kernel > 0.0 => Some((kernel - bypass) / kernel * 100.0),
        _ => None,
    }
}

#[derive(Serialize)]
struct Report {
    mode: &'static str,
    /// Bytes of data in each ping.
    size: u16,
    count: u64,
    interval_s: f64,
    timeout_s: f64,
    clock: ClockReport,
    paths: Vec<PathReport>,
    warnings: Vec<String>,
    /// Why the exit code is not 0; else `null`.
    error: Option<String>,
}

#[derive(Serialize)]
struct PathReport {
    /// `bypass` or `kernel`.
    path: &'static str,
    by: String,
    from: Option<IpAddr>,
    to: IpAddr,
    /// `received` and `lost`.
    sent: u64,
    received: u64,
    lost: u64,
    loss_percent: f64,
    duplicate: u64,
    late: u64,
    damaged: u64,
    /// Times that somebody on the way said why there is no reply.
    refused: u64,
    latency_ns: Option<LatencyReport>,
}

impl Report {
    fn of(page: &Page<'_>, result: &Result<(), Failure>) -> Self {
        let Page { args, clock, paths, is_cut } = page;
        let path = |path: &Path| PathReport {
            path: path.kind,
            by: path.by.clone(),
            from: path.from,
            to: path.to,
            sent: path.sent,
            received: path.received,
            lost: path.lost(),
            loss_percent: path.loss_percent(),
            duplicate: path.duplicate,
            late: path.late,
            damaged: path.damaged,
            refused: path.refused,
            latency_ns: path.latency.map(|latency| LatencyReport::of(&latency.scaled(clock.nanoseconds(1)))),
        };
        let refusals = paths.iter().filter_map(|path| path.first_refusal.clone());
        let cut = is_cut.then(|| "a signal ended it early".to_owned());
        Self {
            mode: "ping",
            size: args.size,
            count: args.count,
            interval_s: args.interval.as_secs_f64(),
            timeout_s: args.timeout.as_secs_f64(),
            clock: ClockReport::of(clock),
            paths: paths.iter().map(path).collect(),
            warnings: refusals.chain(cut).chain(ClockReport::of(clock).warning()).collect(),
            error: result.as_ref().err().map(Failure::message),
        }
    }
}
