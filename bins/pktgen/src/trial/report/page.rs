//! The page for people.

use super::{floor, microseconds, whole};
use crate::args::Spread;
use crate::clock::ClockReport;
use crate::frames::Speed;
use crate::trial::figures::{Figures, Setting, percent};
use cli::human::{grouped, with_unit};
use cli::report::Totals;
use cli::screen;
use measure::{Kind, Pattern, Summary, Verdict};
use trial::printable;

/// The page for people.
pub(super) fn page(setting: &Setting<'_>, all: &[Figures], totals: &Totals, warnings: &[String]) -> String {
    let mut text = head(setting, all);
    // A pair to a table, so that it fits 60 columns or so.
    for pair in all.chunk_by(|one, other| one.from / 2 == other.from / 2) {
        text += &format!("\n\n{}", table(setting, pair, totals));
    }
    if setting.args.traffic.kind().is_some() {
        for (figures, [from, to]) in all.iter().zip(setting.names) {
            if let Some(floor) = floor(setting, figures) {
                text += &format!("\n\n{from} > {to}: {}", floor.words());
            }
        }
        text += "\n\ndue: from when a frame was due; ring: from its hand-over to the transmit ring, not the wire";
    }
    if let Some(why) = setting.void {
        text += &format!("\nVOID: {why}");
    }
    for warning in warnings {
        text += &format!("\nWARNING: {warning}");
    }
    text
}

/// What was asked for, and how exact times are.
fn head(setting: &Setting<'_>, all: &[Figures]) -> String {
    let args = setting.args;
    let asked: Option<Vec<String>> =
        all.iter().map(|figures| setting.asked[figures.from].all.map(|pps| with_unit(pps, "pps"))).collect();
    let each_way = || match asked.as_deref() {
        Some([first, others @ ..]) if others.iter().all(|other| other == first) => format!("{first} each way"),
        Some(rates) if !rates.is_empty() => format!("{} by the ports that send", rates.join(", ")),
        _ => "and what else the ports take".to_owned(),
    };
    let rates = args.traffic.pace.rates();
    let rate = match &rates[..] {
        _ if setting.frames.are_paced_apart() => format!("streams at rates of their own: {}", each_way()),
        rates if !rates.is_empty() => format!("--rate {rates}: {}", each_way()),
        _ if args.traffic.pcap.is_some() && setting.frames.are_paced() => {
            format!("as captured, {} times as fast: {}", args.traffic.pcap_speed.map_or(1.0, Speed::factor), each_way())
        }
        _ if setting.frames.are_paced() => format!("at the rate of its stream: {}", each_way()),
        _ => "as fast as the ports take them".to_owned(),
    };
    let tag = match args.traffic.kind() {
        Some(Kind::Full) => "full tag",
        Some(Kind::Short) => "short tag",
        None => "no tag: counted by number",
    };
    let spread = match &args.traffic.pace.pattern[..] {
        _ if !setting.frames.have_rates() => String::new(),
        [] | [Spread(Pattern::Even)] => ", even".to_owned(),
        [Spread(Pattern::Bursts(frames))] => format!(", bursts of {frames}"),
        [Spread(Pattern::Poisson(seed))] => format!(", Poisson (seed {seed})"),
        _ => format!(", --pattern {}", args.traffic.pace.patterns()),
    };
    let mut own: Vec<_> =
        setting.frames.own_patterns().map(|(name, pattern)| format!("of stream {name} {pattern}")).collect();
    if own.len() > PATTERNS {
        let more = own.split_off(PATTERNS).len();
        own.push(format!("of {more} more in their own ways"));
    }
    let spread = if own.is_empty() { spread } else { format!("{spread}, but {}", own.join(", ")) };
    let spread = if all.iter().any(Figures::is_steered) { format!("{spread}; steered while it ran") } else { spread };
    let seconds = all.iter().map(|figures| figures.seconds(setting)).fold(0.0, f64::max);
    let clock = ClockReport::of(setting.clock).words();
    let queues = if args.queues > 1 { format!(", {} queue pairs a port", args.queues) } else { String::new() };
    format!("\nrun: {seconds:.3} s, frames of {}, {tag}{queues}\n{rate}{spread}\n{clock}", setting.frames.sizes())
}

/// Streams with a pattern of their own that the head names.
const PATTERNS: usize = 4;

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
    row("frames missed", &|figures| grouped(figures.all.missed));
    row("sent", &|figures| grouped(figures.all.verdict.sent));
    row("received", &|figures| grouped(figures.all.verdict.received));
    row("LOST", &|figures| with_share(figures.all.verdict.lost, figures.all.loss_percent()));
    // Without a tag nobody knows.
    let is_tagged = !setting.frames.are_untagged();
    let known = |words: String| if is_tagged { words } else { "-".to_owned() };
    row("duplicate", &|figures| known(grouped(figures.all.verdict.duplicate)));
    row("late", &|figures| known(grouped(figures.all.verdict.late)));
    row("reordered", &|figures| {
        let verdict = figures.all.verdict;
        known(with_share(verdict.reordered, percent(verdict.reordered, verdict.received)))
    });
    row("greatest extent", &|figures| known(grouped(figures.all.verdict.greatest_extent)));
    row("foreign", &|figures| grouped(figures.foreign));
    row("damaged", &|figures| grouped(figures.damaged()));
    screen::align_right(&mut counts, 1);
    let mut text = screen::trimmed(&counts);
    if setting.args.traffic.kind().is_some() {
        text += &format!("\n\n{}", latencies(setting, pair, &header));
    }
    for (figures, title) in pair.iter().zip(&header[1..]).filter(|(figures, _)| figures.streams.len() > 1) {
        text += &format!("\n\n{}", streams(setting, figures, title));
        if setting.args.traffic.kind().is_some() {
            text += &format!("\n\n{}", latencies_of_streams(setting, figures));
        }
    }
    text
}

/// A row for each stream of a direction.
fn streams(setting: &Setting<'_>, figures: &Figures, title: &str) -> String {
    let columns = [title, "intended", "offered", "missed", "sent", "received", "LOST", "twice", "late", "reordered"];
    let mut table = screen::plain_table(&[&columns[..], &["extent"]].concat());
    let (seconds, (_, asked)) = (figures.seconds(setting), figures.asked(setting));
    for ((name, counted), asked) in setting.frames.names().iter().zip(&figures.streams).zip(&asked) {
        let rates = counted.rates(*asked, seconds);
        let Verdict { sent, received, lost, duplicate, late, reordered, greatest_extent, .. } = counted.verdict;
        let intended = rates.intended.map_or("no limit".to_owned(), |pps| grouped(whole(pps)));
        let mut row = vec![printable(name), intended, grouped(whole(rates.offered))];
        row.extend([counted.missed, sent, received, lost, duplicate, late, reordered, greatest_extent].map(grouped));
        table.add_row(row);
    }
    screen::align_right(&mut table, 1);
    screen::trimmed(&table)
}

/// Latency of each stream of a direction in microseconds, from both times.
fn latencies_of_streams(setting: &Setting<'_>, figures: &Figures) -> String {
    let mut columns = vec!["latency, us", "from"];
    columns.extend(LATENCIES.iter().map(|(name, _)| name.split(' ').next().unwrap_or_default()));
    let mut table = screen::plain_table(&columns);
    let tick = setting.clock.nanoseconds(1);
    for (name, counted) in setting.frames.names().iter().zip(&figures.streams) {
        for (name, from, summary) in
            [(printable(name), "due", counted.from_due), (String::new(), "ring", counted.from_ring)]
        {
            let summary = summary.map(|summary| summary.scaled(tick));
            let times = LATENCIES.iter().map(|(_, figure)| time(summary.as_ref(), *figure));
            table.add_row([name, from.to_owned()].into_iter().chain(times));
        }
    }
    screen::align_right(&mut table, 2);
    screen::trimmed(&table)
}

/// One of the times of a summary in microseconds.
fn time(of: Option<&Summary>, figure: fn(&Summary) -> f64) -> String {
    of.map_or("-".to_owned(), |summary| microseconds(figure(summary)))
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
        .flat_map(|figures| [figures.all.from_due, figures.all.from_ring])
        .map(|summary| summary.map(|summary| summary.scaled(tick)))
        .collect();
    table.add_row(std::iter::once("from").chain(pair.iter().flat_map(|_| ["due", "ring"])));
    for (name, figure) in LATENCIES {
        let cell = |summary: &Option<Summary>| time(summary.as_ref(), figure);
        table.add_row(std::iter::once(name.to_owned()).chain(all.iter().map(cell)));
    }
    screen::align_right(&mut table, 1);
    screen::trimmed(&table)
}

/// A figure's name, and where it is found.
type Row = (&'static str, fn(&Summary) -> f64);

const LATENCIES: [Row; 10] = [
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

fn with_share(count: u64, percent: f64) -> String {
    if count == 0 { "0".to_owned() } else { format!("{} ({percent:.4} %)", grouped(count)) }
}
