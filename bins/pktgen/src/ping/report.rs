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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Command;
    use clap::{FromArgMatches as _, Subcommand as _};
    use measure::Bracket;

    fn args(options: &[&str]) -> PingArgs {
        let command = Command::augment_subcommands(clap::Command::new("pktgen"));
        let line = [&["pktgen", "ping", "soft:a", "192.0.2.1", "--count", "1000"], options].concat();
        match Command::from_arg_matches(&command.get_matches_from(line)).unwrap() {
            Command::Ping(args) => *args,
            other => panic!("{other:?}"),
        }
    }

    /// A tick of it is a nanosecond.
    fn clock() -> Clock {
        let at = |ns| Bracket { before: ns, kernel_ns: ns, after: ns };
        Clock::new(at(0), at(1_000_000_000)).unwrap()
    }

    /// A path whose figures are so many microseconds, each one more than that before it.
    fn path(kind: &'static str, by: &str, sent: u64, first: Option<f64>) -> Path {
        let [from, to] = ["192.0.2.2", "192.0.2.1"].map(|address| address.parse().unwrap());
        let latency = first.map(|first| {
            let us = |more: f64| (first + more) * 1e3;
            Summary {
                count: 998,
                min: us(0.0),
                mean: us(1.0),
                p50: us(2.0),
                p90: us(3.0),
                p99: us(4.0),
                p999: us(5.0),
                max: us(6.0),
                deviation: us(7.0),
                pdv: us(8.0),
                jitter: us(9.0),
            }
        });
        Path {
            kind,
            by: by.to_owned(),
            from: (kind == "bypass").then_some(from),
            to,
            sent,
            received: if latency.is_some() { 998 } else { 0 },
            duplicate: 3,
            late: 2,
            damaged: 1,
            refused: 0,
            first_refusal: None,
            latency,
        }
    }

    /// Without what is said of this machine's CPU.
    #[track_caller]
    fn shows(page: &Page<'_>, expected: &str) {
        let shown = text(page);
        let shown: Vec<_> = shown.lines().filter(|line| !line.contains("time-stamp counter")).collect();
        assert_eq!(shown, expected.lines().collect::<Vec<_>>(), "{}", shown.join("\n"));
    }

    #[test]
    fn two_paths_stand_side_by_side_with_what_the_port_saves() {
        let (args, clock) = (args(&["--kernel", "--interval", "1ms"]), clock());
        let mut kernel = path("kernel", "raw socket", 1000, Some(20.0));
        (kernel.refused, kernel.first_refusal) = (1234, Some("no route".to_owned()));
        let paths = [path("bypass", "soft:a", 998, Some(5.0)), kernel];
        let expected = "
bypass: 192.0.2.1 from 192.0.2.2, by soft:a
kernel: 192.0.2.1, by raw socket
1,000 pings of 56 bytes each, 1ms apart, 1s to come back
clock: 1000.000 MHz, wrong by at most 0.000 ppm and 0 ns against CLOCK_MONOTONIC

                    kernel  bypass   saved
 sent                1,000     998
 received              998     998
 LOST           2 (0.20 %)       0
 duplicate               3       3
 late                    2       2
 damaged                 1       1
 min, us             20.00    5.00  75.0 %
 mean, us            21.00    6.00  71.4 %
 p50, us             22.00    7.00  68.2 %
 p90, us             23.00    8.00  65.2 %
 p99, us             24.00    9.00  62.5 %
 max, us             26.00   11.00  57.7 %
 deviation, us       27.00   12.00  55.6 %
WARNING: 1,234 times: no route
WARNING: a signal ended it early";
        shows(&Page { args: &args, clock: &clock, paths: &paths, is_cut: true }, expected);
        // A port that takes longer saves less than nothing.
        let paths = [path("bypass", "soft:a", 998, Some(30.0)), path("kernel", "raw socket", 998, Some(20.0))];
        let shown = text(&Page { args: &args, clock: &clock, paths: &paths, is_cut: false });
        assert!(shown.contains("\n min, us         20.00   30.00  -50.0 %\n"), "{shown}");
    }

    #[test]
    fn a_path_without_replies_has_no_times_and_saves_nothing() {
        let (args, clock) = (args(&["--size", "100"]), clock());
        let deaf = path("bypass", "soft:a", 1000, None);
        let expected = "
bypass: 192.0.2.1 from 192.0.2.2, by soft:a
1,000 pings of 100 bytes each, 10ms apart, 1s to come back
clock: 1000.000 MHz, wrong by at most 0.000 ppm and 0 ns against CLOCK_MONOTONIC

                          bypass
 sent                      1,000
 received                      0
 LOST           1,000 (100.00 %)
 duplicate                     3
 late                          2
 damaged                       1
 min, us                       -
 mean, us                      -
 p50, us                       -
 p90, us                       -
 p99, us                       -
 max, us                       -
 deviation, us                 -";
        let paths = [deaf.clone(), path("kernel", "raw socket", 998, Some(20.0))];
        shows(&Page { args: &args, clock: &clock, paths: &paths[..1], is_cut: false }, expected);
        let shown = text(&Page { args: &args, clock: &clock, paths: &paths, is_cut: false });
        assert!(shown.contains("\n mean, us        21.00                 -      -\n"), "{shown}");
    }
}
