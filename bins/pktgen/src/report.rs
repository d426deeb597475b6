//! What `tx` and `rx` print at the end: a summary, or with `--json` one object.

use crate::clock::ClockReport;
use crate::frames::{Frames, printable};
use crate::lane::Sent;
use crate::receive::Arrivals;
use crate::transmit::Port;
use crate::trial::figures::percent;
use cli::args::RunOptions;
use cli::exit::Failure;
use cli::human::grouped;
use cli::output;
use cli::report::{self, PortTotals, Totals};
use cli::screen;
use measure::Verdict;
use serde::Serialize;
use std::collections::BTreeMap;

/// What a port has sent.
#[derive(Debug)]
pub(crate) struct SentBy {
    pub(crate) port: usize,
    /// Number of the first of its streams.
    base: u16,
    streams: Vec<Sent>,
    /// Frames that said how many there were.
    pub(crate) end_frames: u64,
    /// Frames that a host sent by the port.
    pub(crate) host_frames: u64,
}

/// What `tx` has to tell.
#[derive(Debug)]
pub(crate) struct Transmitted<'a> {
    pub(crate) totals: &'a Totals,
    pub(crate) sent: &'a [SentBy],
    pub(crate) frames: &'a Frames,
    pub(crate) clock: ClockReport,
}

/// What `rx` has to tell.
#[derive(Debug, Default)]
pub(crate) struct Received {
    /// Each with the number of the port that it arrived at.
    pub(crate) streams: Vec<(usize, Arrivals)>,
    pub(crate) foreign: u64,
    /// Frames that said how many there were.
    pub(crate) ends: u64,
    /// Frames with a wrong checksum of UDP, if that was verified.
    pub(crate) damaged: u64,
    pub(crate) verified: bool,
}

impl SentBy {
    pub(crate) fn of(port: &Port) -> Self {
        let streams = port.sent.clone().unwrap_or_default();
        let &Port { base, end_frames, .. } = port;
        Self { port: port.lane.port, base, streams, end_frames, host_frames: port.host_frames() }
    }

    /// Frames of all streams that were handed over.
    pub(crate) fn handed(&self) -> u64 {
        self.streams.iter().map(|sent| sent.handed).sum()
    }
}

#[derive(Serialize)]
struct TxReport<'a> {
    mode: &'a str,
    duration_s: f64,
    /// Frames sent, of all streams.
    sent: u64,
    /// Frames that were due by their rate and not sent, as they were too late.
    missed: u64,
    /// Frames that said how many there were of a stream.
    ends: u64,
    mpps: f64,
    cycles_per_packet: Option<f64>,
    clock: ClockReport,
    streams: Vec<TxStreamReport>,
    ports: &'a [PortTotals],
    drops: BTreeMap<&'static str, u64>,
    warnings: Vec<String>,
    /// Why the exit code is 1, such as frames that were not sent; else `null`.
    error: Option<String>,
}

#[derive(Serialize)]
struct TxStreamReport {
    /// What its tags have, in hexadecimal.
    stream: String,
    name: String,
    port: String,
    sent: u64,
    missed: u64,
}

#[derive(Serialize)]
struct RxReport<'a> {
    mode: &'a str,
    duration_s: f64,
    /// Frames that came to the ports: `consumed` and all `drops`.
    received: u64,
    /// Frames looked at: those of streams, of any kind, `ends`, `foreign`, `damaged`, and what hosts answer (`--answer`).
    consumed: u64,
    mpps: f64,
    cycles_per_packet: Option<f64>,
    clock: ClockReport,
    /// Frames that are not of a pktgen.
    foreign: u64,
    /// Frames with a wrong checksum of UDP, and those of all streams with a number that was not sent.
    damaged: u64,
    /// The checksums of UDP of what arrived were read.
    verified: bool,
    /// Frames that said how many there were of a stream.
    ends: u64,
    /// All streams together.
    numbered: VerdictReport,
    streams: Vec<RxStreamReport>,
    ports: &'a [PortTotals],
    drops: BTreeMap<&'static str, u64>,
    /// Why the exit code is 1; else `null`.
    error: Option<String>,
}

#[derive(Serialize)]
struct RxStreamReport {
    stream: String,
    port: String,
    /// Its sender has said how many frames there were; else those behind the last that came are not known.
    ended: bool,
    #[serde(flatten)]
    verdict: VerdictReport,
}

#[derive(Serialize)]
struct VerdictReport {
    /// `received` and `lost`.
    sent: u64,
    received: u64,
    lost: u64,
    loss_percent: f64,
    duplicate: u64,
    late: u64,
    reordered: u64,
    greatest_extent: u64,
    /// Frames with a number that was not sent.
    damaged: u64,
}

impl From<Verdict> for VerdictReport {
    fn from(verdict: Verdict) -> Self {
        let Verdict { sent, received, lost, duplicate, late, reordered, greatest_extent, impossible, .. } = verdict;
        let loss_percent = percent(lost, sent);
        Self { sent, received, lost, loss_percent, duplicate, late, reordered, greatest_extent, damaged: impossible }
    }
}

/// Prints the report of `pktgen tx`, which ended with `result`.
pub(crate) fn sent(of: &Transmitted<'_>, options: &RunOptions, result: &Result<(), Failure>) -> Result<(), Failure> {
    let Transmitted { totals, sent: by_port, frames, clock } = of;
    let streams =
        || by_port.iter().flat_map(|by| by.streams.iter().zip(frames.names()).zip(0_u16..).map(move |one| (by, one)));
    let sum = |field: fn(&Sent) -> u64| by_port.iter().flat_map(|by| &by.streams).map(field).sum::<u64>();
    let (sent, missed) = (sum(|sent| sent.handed), sum(|sent| sent.missed));
    let ends = by_port.iter().map(|by| by.end_frames).sum();
    let warnings: Vec<String> =
        frames.remarks().into_iter().chain(clock.warning()).chain(totals.link_warnings()).collect();
    if options.json {
        let stream = |(by, ((sent, name), index)): (&SentBy, ((&Sent, String), u16))| TxStreamReport {
            stream: format!("{:04x}", by.base.wrapping_add(index)),
            name,
            port: totals.ports[by.port].name.clone(),
            sent: sent.handed,
            missed: sent.missed,
        };
        return output::print_json(&TxReport {
            mode: "tx",
            duration_s: report::rounded(totals.seconds),
            sent,
            missed,
            ends,
            mpps: report::rounded(report::mega(sent, totals.seconds)),
            cycles_per_packet: report::cycles_per_packet(&totals.counters).map(report::rounded),
            clock: *clock,
            streams: streams().map(stream).collect(),
            ports: &totals.ports,
            drops: totals.drops(),
            warnings,
            error: result.as_ref().err().map(Failure::message),
        });
    }
    let mut table = screen::plain_table(&["port", "total packets", "total bytes", "total lost"]);
    for port in &totals.ports {
        let numbers = [port.tx_packets, port.tx_bytes, port.tx_dropped];
        table.add_row(std::iter::once(screen::short_name(&port.name)).chain(numbers.map(grouped)));
    }
    screen::align_right(&mut table, 1);
    let mut text = format!("\ntx: sent {}\n{}", totals.pace(sent), screen::trimmed(&table));
    if by_port.iter().any(|by| by.streams.len() > 1) {
        let mut table = screen::plain_table(&["stream", "port", "sent", "missed"]);
        for (by, ((sent, name), _)) in streams() {
            let words = [printable(&name), screen::short_name(&totals.ports[by.port].name)];
            table.add_row(words.into_iter().chain([sent.handed, sent.missed].map(grouped)));
        }
        screen::align_right(&mut table, 2);
        text += &format!("\n{}", screen::trimmed(&table));
    }
    if ends > 0 {
        text += &format!("\nand {} frames that say so to a receiver", grouped(ends));
    }
    if missed > 0 {
        text += &format!("\nmissed, as they were too late: {}", grouped(missed));
    }
    text += &format!("\n{}", clock.words());
    warnings.iter().for_each(|warning| text += &format!("\nWARNING: {warning}"));
    output::print(&text)
}

/// Prints the report of `pktgen rx`, which ended with `result`.
pub(crate) fn received(
    totals: &Totals,
    received: &Received,
    clock: ClockReport,
    options: &RunOptions,
    result: &Result<(), Failure>,
) -> Result<(), Failure> {
    let Received { streams, foreign, ends, verified, .. } = received;
    let consumed = totals.counters.rx_packets;
    let mut numbered = Verdict::default();
    streams.iter().for_each(|(_, stream)| numbered += stream.verdict());
    let damaged = received.damaged + numbered.impossible;
    if options.json {
        let stream = |(port, stream): &(usize, Arrivals)| RxStreamReport {
            stream: format!("{:04x}", stream.stream),
            port: totals.ports[*port].name.clone(),
            ended: stream.sent().is_some(),
            verdict: stream.verdict().into(),
        };
        return output::print_json(&RxReport {
            mode: "rx",
            duration_s: report::rounded(totals.seconds),
            received: totals.received(),
            consumed,
            mpps: report::rounded(report::mega(consumed, totals.seconds)),
            cycles_per_packet: report::cycles_per_packet(&totals.counters).map(report::rounded),
            clock,
            foreign: *foreign,
            damaged,
            verified: *verified,
            ends: *ends,
            numbered: numbered.into(),
            streams: streams.iter().map(stream).collect(),
            ports: &totals.ports,
            drops: totals.drops(),
            error: result.as_ref().err().map(Failure::message),
        });
    }
    let mut text = format!("\nrx: counted {}", totals.pace(consumed));
    let columns = ["stream", "port", "sent", "received", "LOST", "twice", "late", "reordered", "damaged"];
    let mut table = screen::plain_table(&columns);
    for (port, stream) in streams {
        let Verdict { sent, received, lost, duplicate, late, reordered, impossible, .. } = stream.verdict();
        let sent = if stream.sent().is_some() { grouped(sent) } else { format!("{} or more", grouped(sent)) };
        let numbers = [received, lost, duplicate, late, reordered, impossible].map(grouped);
        let words = [format!("{:04x}", stream.stream), screen::short_name(&totals.ports[*port].name), sent];
        table.add_row(words.into_iter().chain(numbers));
    }
    screen::align_right(&mut table, 2);
    if !streams.is_empty() {
        text += &format!("\n{}\nlost in all: {:.4} %", screen::trimmed(&table), percent(numbered.lost, numbered.sent));
    }
    let [foreign, damaged] = [*foreign, damaged].map(grouped);
    text += &format!("\nforeign frames: {foreign}, damaged: {damaged}, drops: {}", screen::drop_words(totals));
    text += &format!("\n{}", clock.words());
    output::print(&text)
}
