//! What `tx` and `rx` print at the end: a summary, or with `--json` one object.

use crate::clock::ClockReport;
use crate::frames::{Asked, Frames, Limits};
use crate::lane::Sent;
use crate::receive::Arrivals;
use crate::transmit::Port;
use crate::trial::figures::{Rates, overrun_percent, percent, span};
use crate::trial::report::{shortfall, whole};
use cli::args::RunOptions;
use cli::exit::Failure;
use cli::human::{counted, grouped, with_unit};
use cli::output;
use cli::report::{self, PortTotals, Totals};
use cli::screen;
use measure::{Clock, Verdict};
use serde::Serialize;
use std::collections::BTreeMap;
use trial::printable;

/// What a port has sent.
#[derive(Debug)]
pub(crate) struct SentBy {
    pub(crate) port: usize,
    /// Number of the first of its streams.
    base: u16,
    streams: Vec<Sent>,
    /// Ticks from the begin to the last hand-over of these.
    ticks: u64,
    /// It was over before its time, as the device was gone.
    is_cut: bool,
    /// Frames of the count that alone was to end it that were not handed over.
    pub(crate) unsent: u64,
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
    /// The rates of each port.
    pub(crate) asked: &'a [Asked],
    pub(crate) clock: &'a Clock,
    pub(crate) limits: Limits,
    /// A signal ended it.
    pub(crate) cut: bool,
}

/// What `rx` has to tell.
#[derive(Debug, Default)]
pub(crate) struct Received {
    /// Each with the number of the port that it arrived at.
    pub(crate) streams: Vec<(usize, Arrivals)>,
    pub(crate) foreign: u64,
    /// Frames that said how many there were.
    pub(crate) ends: u64,
    /// Frames with a wrong checksum, if that was verified.
    pub(crate) damaged: u64,
    /// Frames of streams that have no checksum that is read.
    pub(crate) unread: u64,
    pub(crate) verified: bool,
}

impl Received {
    /// Whether of each stream that came by a port, of one at least, the sender has said how many frames there were.
    pub(crate) fn is_told_all(&self, port: usize) -> bool {
        let mut streams = self.streams.iter().filter(|(by, _)| *by == port).peekable();
        streams.peek().is_some() && streams.all(|(_, stream)| stream.sent().is_some())
    }
}

impl Received {
    /// What became of all streams together.
    fn numbered(&self) -> Verdict {
        let mut all = Verdict::default();
        self.streams.iter().for_each(|(_, stream)| all += stream.verdict());
        all
    }

    /// The loss of all streams in percent, and how many of these have a sender that has not said how many frames there were: what is missing
    /// behind the last that came of those is not known.
    fn loss(&self) -> (f64, usize) {
        let all = self.numbered();
        let unknown = self.streams.iter().filter(|(_, stream)| stream.sent().is_none()).count();
        (percent(all.lost, all.sent), unknown)
    }

    fn loss_words(&self) -> String {
        match (self.streams.len(), self.loss()) {
            (0, _) => "not known, as no frame of any stream has come".to_owned(),
            (_, (loss, 0)) => format!("{loss:.4} %"),
            (_, (loss, unknown)) => {
                let streams = counted(unknown as u64, "stream");
                format!("{loss:.4} % or more, as the end of {streams} has not come")
            }
        }
    }

    /// Says why `--expect-loss` is not met with so many percent, if it is not: nor is it where the loss is not known.
    pub(crate) fn unmet(&self, most: f64) -> Option<String> {
        let (loss, unknown) = self.loss();
        if self.streams.is_empty() {
            return Some("no frame of any stream has come, so none shows what --expect-loss asks for".to_owned());
        }
        if loss > most {
            let Verdict { lost, sent, .. } = self.numbered();
            let lost = counted(lost, "frame");
            return Some(format!("{lost} of {} lost, {loss:.4} %; --expect-loss allows {most} %", grouped(sent)));
        }
        let streams = counted(unknown as u64, "stream");
        (unknown > 0).then(|| {
            format!("the end of {streams} has not come, so how many frames there were, which --expect-loss asks for, is not known")
        })
    }
}

impl SentBy {
    pub(crate) fn of(port: &Port) -> Self {
        let streams = port.sent.clone().unwrap_or_default();
        let &Port { base, end_frames, .. } = port;
        let (ticks, is_cut, host_frames) = (port.lane.ticks(), port.lane.is_cut(), port.host_frames());
        let unsent = port.lane.unsent();
        Self { port: port.lane.port, base, streams, ticks, is_cut, unsent, end_frames, host_frames }
    }

    fn missed(&self) -> u64 {
        self.streams.iter().map(|sent| sent.missed).sum()
    }

    /// Frames of all streams that were handed over.
    pub(crate) fn handed(&self) -> u64 {
        self.streams.iter().map(|sent| sent.handed).sum()
    }
}

impl Transmitted<'_> {
    /// Seconds over which the rates of a port hold.
    fn seconds(&self, by: &SentBy) -> f64 {
        let to_last = self.clock.nanoseconds(by.ticks) / 1e9;
        span(to_last, self.asked[by.port].all, (self.limits, self.cut || by.is_cut), [by.handed(), by.missed()])
    }

    fn rates(&self, by: &SentBy) -> Rates {
        Rates::of(self.asked[by.port].all, [by.handed(), by.missed()], self.seconds(by))
    }

    /// Percent by which a port offered less than asked for, where there is a rate: of the frames due, of the stream that was offered least of
    /// its own; or as the last were sent late.
    fn short_percent(&self, by: &SentBy) -> Option<f64> {
        let short = |[sent, missed]: [u64; 2]| percent(missed, sent + missed);
        let Asked { all, streams, .. } = &self.asked[by.port];
        let of_stream = |(sent, asked): (&Sent, &Option<f64>)| asked.map(|_| short([sent.handed, sent.missed]));
        let streams = by.streams.iter().zip(streams).filter_map(of_stream);
        let to_last = self.clock.nanoseconds(by.ticks) / 1e9;
        let late = all.and_then(|_| overrun_percent(to_last, (self.limits, self.cut || by.is_cut), by.handed()));
        streams.chain(all.map(|_| short([by.handed(), by.missed()]))).chain(late).reduce(f64::max)
    }

    /// Says which ports have offered less of their rates than all but so many percent, or nothing to tell by.
    pub(crate) fn short_of(&self, most: f64) -> Vec<String> {
        let unmet = |by: &SentBy| {
            let name = &self.totals.ports[by.port].name;
            if by.handed() + by.missed() == 0 {
                return Some(format!("{name}: no frame was due, so none shows what --expect-rate asks for"));
            }
            let percent = self.short_percent(by).filter(|short| *short > most)?;
            Some(format!("{name}: offered {percent:.3} % less than --rate; --expect-rate allows {most} %"))
        };
        self.sent.iter().filter_map(unmet).collect()
    }

    /// Seconds over which the rates of all ports hold.
    fn sent_seconds(&self) -> f64 {
        self.sent.iter().map(|by| self.seconds(by)).fold(0.0, f64::max)
    }

    /// What a reader has to know before believing the figures.
    fn warnings(&self) -> Vec<String> {
        let mut warnings = self.frames.remarks();
        warnings.extend(ClockReport::of(self.clock).warning());
        warnings.extend(self.totals.link_warnings());
        for by in self.sent {
            if let Some(short) = self.short_percent(by).filter(|short| *short > 0.1) {
                let port = &self.totals.ports[by.port];
                warnings.push(format!("{}: {}", port.name, shortfall(short, by.missed(), port)));
            }
        }
        warnings
    }
}

#[derive(Serialize)]
struct TxReport<'a> {
    mode: &'a str,
    /// Seconds over which rates hold: up to the last frame that counts, or as long as was asked for.
    duration_s: f64,
    /// Frames a second of all ports together that were asked for, `null` without a rate; and that were sent.
    intended_pps: Option<f64>,
    offered_pps: f64,
    /// Those that were due and not sent.
    missed_pps: f64,
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
    /// How its frames are spread, as `--pattern` says it; `null` without a rate.
    pattern: Option<String>,
    intended_pps: Option<f64>,
    offered_pps: f64,
    missed_pps: f64,
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
    /// Frames with a wrong checksum, and those of all streams with a number that was not sent.
    damaged: u64,
    /// Frames of streams that have no checksum that is read.
    unread: u64,
    /// The checksums of what arrived were read.
    verified: bool,
    /// Frames that said how many there were of a stream.
    ends: u64,
    /// All streams together.
    numbered: VerdictReport,
    streams: Vec<RxStreamReport>,
    ports: &'a [PortTotals],
    drops: BTreeMap<&'static str, u64>,
    warnings: Vec<String>,
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
    mean_extent: f64,
    /// Frames with a number that was not sent.
    damaged: u64,
}

impl From<Verdict> for VerdictReport {
    fn from(verdict: Verdict) -> Self {
        let Verdict { sent, received, lost, duplicate, late, reordered, greatest_extent, impossible, .. } = verdict;
        let (loss_percent, mean_extent, damaged) = (percent(lost, sent), mean_extent(&verdict), impossible);
        Self { sent, received, lost, loss_percent, duplicate, late, reordered, greatest_extent, mean_extent, damaged }
    }
}

/// The mean extent of frames that were reordered, to print; 0 if none was.
pub(crate) fn mean_extent(verdict: &Verdict) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    let [extents, reordered] = [verdict.extents as f64, verdict.reordered as f64];
    if reordered == 0.0 { 0.0 } else { report::rounded(extents / reordered) }
}

/// Prints the report of `pktgen tx`, which ended with `result`.
pub(crate) fn sent(of: &Transmitted<'_>, options: &RunOptions, result: &Result<(), Failure>) -> Result<(), Failure> {
    if options.json { output::print_json(&TxReport::of(of, result)) } else { output::print(&page_of_sent(of)) }
}

impl<'a> TxReport<'a> {
    fn of(of: &Transmitted<'a>, result: &Result<(), Failure>) -> Self {
        let Transmitted { totals, sent: by_port, frames, .. } = *of;
        let (sent, seconds) = (by_port.iter().map(SentBy::handed).sum(), of.sent_seconds());
        let rates = || by_port.iter().map(|by| of.rates(by));
        let stream = |by: &SentBy, (index, (sent, name)): (u16, (&Sent, String))| {
            let of_port = &of.asked[by.port];
            let asked = of_port.streams.get(usize::from(index)).copied().flatten();
            let pattern = of_port.patterns.get(usize::from(index)).copied().flatten();
            let rates = Rates::of(asked, [sent.handed, sent.missed], of.seconds(by));
            TxStreamReport {
                stream: format!("{:04x}", by.base.wrapping_add(index)),
                name,
                port: totals.ports[by.port].name.clone(),
                pattern: pattern.map(|pattern| pattern.to_string()),
                intended_pps: rates.intended.map(report::rounded),
                offered_pps: report::rounded(rates.offered),
                missed_pps: report::rounded(rates.missed),
                sent: sent.handed,
                missed: sent.missed,
            }
        };
        let streams = |by: &SentBy| {
            (0..).zip(by.streams.iter().zip(frames.names())).map(|one| stream(by, one)).collect::<Vec<_>>()
        };
        Self {
            mode: "tx",
            duration_s: report::rounded(seconds),
            intended_pps: rates().map(|rates| rates.intended).sum::<Option<f64>>().map(report::rounded),
            offered_pps: report::rounded(rates().map(|rates| rates.offered).sum()),
            missed_pps: report::rounded(rates().map(|rates| rates.missed).sum()),
            sent,
            missed: by_port.iter().map(SentBy::missed).sum(),
            ends: by_port.iter().map(|by| by.end_frames).sum(),
            mpps: report::rounded(report::mega(sent, seconds)),
            cycles_per_packet: report::cycles_per_packet(&totals.counters).map(report::rounded),
            clock: ClockReport::of(of.clock),
            streams: by_port.iter().flat_map(streams).collect(),
            ports: &totals.ports,
            drops: totals.drops(),
            warnings: of.warnings(),
            error: result.as_ref().err().map(Failure::message),
        }
    }
}

/// The page for people of `tx`.
fn page_of_sent(of: &Transmitted<'_>) -> String {
    let Transmitted { totals, sent: by_port, frames, .. } = of;
    let per_second = |value: f64| grouped(whole(value));
    let intended = |rates: &Rates| rates.intended.map_or("no limit".to_owned(), per_second);
    let columns = ["port", "intended", "offered", "missed pps", "missed", "total packets", "total bytes", "total lost"];
    let mut table = screen::plain_table(&columns);
    for by in *by_port {
        let (port, rates) = (&totals.ports[by.port], of.rates(by));
        let mut row = vec![screen::short_name(&port.name), intended(&rates)];
        row.extend([rates.offered, rates.missed.ceil()].map(per_second));
        row.extend([by.missed(), port.tx_packets, port.tx_bytes, port.tx_dropped].map(grouped));
        table.add_row(row);
    }
    screen::align_right(&mut table, 1);
    let (sent, seconds): (u64, _) = (by_port.iter().map(SentBy::handed).sum(), of.sent_seconds());
    let rate = with_unit(by_port.iter().map(|by| of.rates(by).offered).sum(), "pps");
    let cycles = report::cycles_per_packet(&totals.counters);
    let cycles = cycles.map_or(String::new(), |cycles| format!(", {cycles:.1} cycles per packet"));
    let sent = counted(sent, "packet");
    let mut text = format!("\ntx: sent {sent} in {seconds:.3} s: {rate}{cycles}\n{}", screen::trimmed(&table));
    if by_port.iter().any(|by| by.streams.len() > 1) {
        let mut table = screen::plain_table(&["stream", "port", "intended", "offered", "missed", "sent"]);
        for by in *by_port {
            let asked = &of.asked[by.port].streams;
            for ((sent, name), asked) in by.streams.iter().zip(frames.names()).zip(asked) {
                let rates = Rates::of(*asked, [sent.handed, sent.missed], of.seconds(by));
                let mut row = vec![printable(&name), screen::short_name(&totals.ports[by.port].name), intended(&rates)];
                row.push(per_second(rates.offered));
                row.extend([sent.missed, sent.handed].map(grouped));
                table.add_row(row);
            }
        }
        screen::align_right(&mut table, 2);
        text += &format!("\n{}", screen::trimmed(&table));
    }
    let ends: u64 = by_port.iter().map(|by| by.end_frames).sum();
    if ends > 0 {
        text += &format!("\nand {} frames that say so to a receiver", grouped(ends));
    }
    text += &format!("\n{}", ClockReport::of(of.clock).words());
    of.warnings().iter().for_each(|warning| text += &format!("\nWARNING: {warning}"));
    text
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
    let numbered = received.numbered();
    let damaged = received.damaged + numbered.impossible;
    let mut warnings: Vec<String> = clock.warning().into_iter().chain(totals.link_warnings()).collect();
    if received.unread > 0 {
        let unread = cli::human::counted(received.unread, "frame");
        warnings.push(format!("{unread} of streams came without a checksum that is read: damage in them is not seen"));
    }
    if streams.iter().any(|(_, stream)| stream.sent().is_none()) {
        let what = "so that what was lost behind its last frame is not known";
        warnings.push(format!("of a stream no frame came that says how many were sent, {what}"));
    }
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
            unread: received.unread,
            verified: *verified,
            ends: *ends,
            numbered: numbered.into(),
            streams: streams.iter().map(stream).collect(),
            ports: &totals.ports,
            drops: totals.drops(),
            warnings,
            error: result.as_ref().err().map(Failure::message),
        });
    }
    let mut text = format!("\nrx: counted {}", totals.pace(consumed));
    let columns = ["stream", "port", "sent", "received", "LOST", "twice", "late", "reordered", "extent", "damaged"];
    let mut table = screen::plain_table(&columns);
    for (port, stream) in streams {
        let Verdict { sent, received, lost, duplicate, late, reordered, greatest_extent, impossible, .. } =
            stream.verdict();
        let sent = if stream.sent().is_some() { grouped(sent) } else { format!("{} or more", grouped(sent)) };
        let numbers = [received, lost, duplicate, late, reordered, greatest_extent, impossible].map(grouped);
        let words = [format!("{:04x}", stream.stream), screen::short_name(&totals.ports[*port].name), sent];
        table.add_row(words.into_iter().chain(numbers));
    }
    screen::align_right(&mut table, 2);
    if !streams.is_empty() {
        text += &format!("\n{}", screen::trimmed(&table));
    }
    text += &format!("\nlost in all: {}", received.loss_words());
    let [foreign, damaged] = [*foreign, damaged].map(grouped);
    text += &format!("\nforeign frames: {foreign}, damaged: {damaged}, drops: {}", screen::drop_words(totals));
    text += &format!("\n{}", clock.words());
    warnings.iter().for_each(|warning| text += &format!("\nWARNING: {warning}"));
    output::print(&text)
}
