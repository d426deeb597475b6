//! What is printed at the end: a summary, or with `--json` one object.

use crate::sequence::{Stream, Verdict};
use cli::args::RunOptions;
use cli::exit::Failure;
use cli::human::grouped;
use cli::output;
use cli::report::{self, PortTotals, Totals};
use cli::screen;
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Serialize)]
struct TxReport<'a> {
    mode: &'a str,
    duration_s: f64,
    /// Frames sent.
    sent: u64,
    /// Frames that were due by `--rate` and not sent, as they were too late.
    missed: u64,
    mpps: f64,
    cycles_per_packet: Option<f64>,
    ports: &'a [PortTotals],
    drops: BTreeMap<&'static str, u64>,
    /// Why the exit code is 1, such as frames that were not sent; else `null`.
    error: Option<String>,
}

#[derive(Serialize)]
struct RxReport<'a> {
    mode: &'a str,
    duration_s: f64,
    /// Frames that came to the ports: `consumed` and all `drops`.
    received: u64,
    /// Frames looked at: `numbered` and `foreign`, and duplicates.
    consumed: u64,
    mpps: f64,
    cycles_per_packet: Option<f64>,
    /// Frames that are not of a pktgen.
    foreign: u64,
    /// All streams together.
    numbered: Verdict,
    streams: Vec<StreamReport>,
    ports: &'a [PortTotals],
    drops: BTreeMap<&'static str, u64>,
    /// Why the exit code is 1, such as frames that were not sent; else `null`.
    error: Option<String>,
}

#[derive(Serialize)]
struct StreamReport {
    stream: String,
    port: String,
    #[serde(flatten)]
    verdict: Verdict,
}

/// Prints the report of `pktgen tx`, which ended with `result`.
pub(crate) fn sent(
    totals: &Totals,
    missed: u64,
    options: &RunOptions,
    result: &Result<(), Failure>,
) -> Result<(), Failure> {
    let sent = totals.counters.tx_packets;
    if options.json {
        return output::print_json(&TxReport {
            mode: "tx",
            duration_s: report::rounded(totals.seconds),
            sent,
            missed,
            mpps: report::rounded(report::mega(sent, totals.seconds)),
            cycles_per_packet: report::cycles_per_packet(&totals.counters).map(report::rounded),
            ports: &totals.ports,
            drops: totals.drops(),
            error: result.as_ref().err().map(Failure::message),
        });
    }
    let mut table = screen::plain_table(&["port", "total packets", "total bytes", "total lost"]);
    for port in &totals.ports {
        let numbers = [port.tx_packets, port.tx_bytes, port.tx_dropped];
        table.add_row(std::iter::once(screen::short_name(&port.name)).chain(numbers.map(grouped)));
    }
    screen::align_right(&mut table, 1);
    let missed =
        if missed > 0 { format!("\nmissed, as they were too late: {}", grouped(missed)) } else { String::new() };
    output::print(&format!("\ntx: sent {}\n{}{missed}", totals.pace(sent), screen::trimmed(&table)))
}

/// Prints the report of `pktgen rx`, which ended with `result`. Each stream has the number of the port it arrived at.
pub(crate) fn received(
    totals: &Totals,
    streams: &[(usize, Stream)],
    foreign: u64,
    options: &RunOptions,
    result: &Result<(), Failure>,
) -> Result<(), Failure> {
    let consumed = totals.counters.rx_packets;
    let mut numbered = Verdict::default();
    streams.iter().for_each(|(_, stream)| numbered += stream.verdict());
    if options.json {
        let streams = streams.iter().map(|(port, stream)| StreamReport {
            stream: format!("{:08x}", stream.id()),
            port: totals.ports[*port].name.clone(),
            verdict: stream.verdict(),
        });
        return output::print_json(&RxReport {
            mode: "rx",
            duration_s: report::rounded(totals.seconds),
            received: totals.received(),
            consumed,
            mpps: report::rounded(report::mega(consumed, totals.seconds)),
            cycles_per_packet: report::cycles_per_packet(&totals.counters).map(report::rounded),
            foreign,
            numbered,
            streams: streams.collect(),
            ports: &totals.ports,
            drops: totals.drops(),
            error: result.as_ref().err().map(Failure::message),
        });
    }
    let mut text = format!("\nrx: counted {}", totals.pace(consumed));
    let mut table = screen::plain_table(&["stream", "port", "received", "lost", "reordered", "duplicates"]);
    for (port, stream) in streams {
        let verdict = stream.verdict();
        let numbers = [verdict.received, verdict.lost, verdict.reordered, verdict.duplicates];
        let words = [format!("{:08x}", stream.id()), screen::short_name(&totals.ports[*port].name)];
        table.add_row(words.into_iter().chain(numbers.map(grouped)));
    }
    screen::align_right(&mut table, 2);
    if !streams.is_empty() {
        text += &format!("\n{}", screen::trimmed(&table));
    }
    text += &format!("\nforeign frames: {}, drops: {}", grouped(foreign), screen::drop_words(totals));
    output::print(&text)
}
