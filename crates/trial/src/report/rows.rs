//! The figures of a test, a row for each.

use super::{LeftOut, Part, VoidTrial};
use crate::frmol::AWAY;
use crate::{
    AnyTest, Ended, FrameLoss, Goal, GoalResult, LatencyResult, Limit, LossPoint, Method, Reason, Setup, Strict,
    Summary,
};
use serde::Serialize;

/// A figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Row {
    /// The frame size, in bytes with check sequence.
    pub size: u32,
    /// What was measured.
    pub test: String,
    /// The figure in the unit of `unit`; `None` if there is none, or if the interval is the figure.
    pub value: Option<f64>,
    /// The unit.
    pub unit: &'static str,
    /// The interval in which the figure lies, in the same unit: of a loss with 95 % if it came by chance, of a recovery up to the next frame, if its trials differ by no more, of
    /// a buffer time by the least and the most that the device forwards. `None` of others, and of
    /// bounds but those of losses.
    pub interval: Option<[f64; 2]>,
    /// What the figure is instead of the one that was sought; `None` if it is that one.
    pub bound: Option<Bound>,
    /// The figure for people, with its unit.
    pub figure: String,
    /// What one has to know about it.
    pub note: String,
}

/// What a figure bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Bound {
    /// It is that or more: a rate or a buffer of a device that does better, the recovery of one that takes longer.
    AtLeast,
    /// It is that or less: a loss, or a recovery, of which the generator may be the reason.
    AtMost,
}

/// Offered loads that differ by more than this factor are named.
const WIDE: f64 = 1.1;

/// Frames lost together, in the mean, of which a row says how many.
const TOGETHER: f64 = 1.5;

/// The row of a test that could not be done.
pub(super) fn left_out(left_out: &LeftOut) -> Row {
    let row = row(left_out.test.clone(), None, "", left_out.reason.clone());
    Row { size: left_out.size, ..row }
}

/// The rows of a test.
pub(super) fn of(part: &Part) -> Vec<Row> {
    let open = part.test.next().is_some();
    // What stopped the test is why a figure is missing.
    let limit = part.test.limits().last().filter(|_| !open).map(Limit::why);
    let limit = limit.as_deref();
    let mut rows = match (&part.test, &part.setup) {
        (AnyTest::Throughput(test), _) => {
            test.results().iter().map(|result| goal(result, test.limits(), limit)).collect()
        }
        (AnyTest::BinarySearch(test), setup) => vec![strict(&test.result(), setup, test.limits(), limit)],
        (AnyTest::Latency(test), _) => {
            test.results().iter().flat_map(|result| latency(result, test.limits())).collect()
        }
        (AnyTest::FrameLoss(test), _) => losses(test),
        (AnyTest::BackToBack(test), setup) => {
            test.result().map_or_else(|| none("back-to-back"), |bursts| bursts_of(&bursts, setup))
        }
        (AnyTest::Recovery(test), _) => {
            test.result().map_or_else(|| none("recovery"), |result| vec![recovery(&result)])
        }
        (AnyTest::Frmol(test), setup) => {
            test.result().map_or_else(|| none("forwarded at maximum load"), |result| vec![offered(&result, setup)])
        }
    };
    for row in &mut rows {
        row.size = part.size;
        let mut notes = vec![std::mem::take(&mut row.note)];
        // A row that has a reason of its own needs no other, which may be that of another load.
        notes.extend(limit.filter(|_| row.value.is_none() && notes[0].is_empty()).map(str::to_owned));
        // Of a figure by fewer repetitions than were asked for the reason says why.
        let is_mean = matches!(part.test, AnyTest::BackToBack(_) | AnyTest::Recovery(_) | AnyTest::Frmol(_));
        let is_early = is_mean && (row.value.is_some() || row.interval.is_some()) && part.test.is_given_up();
        notes.extend(limit.filter(|_| is_early).map(|limit| format!("it ended early: {limit}")));
        notes.extend(open.then(|| "not finished".to_owned()));
        let is_per_rate = matches!(part.test, AnyTest::Latency(_) | AnyTest::FrameLoss(_));
        // A row of a test that has no rate yet is that of all.
        let is_per_rate = is_per_rate && row.test != "loss";
        let is_of = |void: &&VoidTrial| !is_per_rate || row.test.ends_with(&at(void.trial.traffic.rate()));
        notes.extend(match part.void.iter().filter(is_of).count() {
            0 => None,
            1 => Some("1 void trial".to_owned()),
            many => Some(format!("{many} void trials")),
        });
        notes.extend((part.late > 0).then(|| {
            let late = frames(part.late);
            format!("{late} came after the drain of a trial: losses are too high by up to as many")
        }));
        // RFC 2544, 10. They are of all trials that figures are of, of a test with several rates, too.
        let counts =
            [(part.duplicate, "came twice"), (part.reordered, "came out of order"), (part.damaged, "came damaged")];
        notes.extend(
            counts
                .iter()
                .filter(|(count, _)| *count > 0)
                .map(|(count, what)| format!("{} {what} in all", frames(*count))),
        );
        notes.retain(|note| !note.is_empty());
        row.note = notes.join("; ");
    }
    rows
}

/// The row of a test without a figure, to which the reason is added.
fn none(test: &str) -> Vec<Row> {
    vec![row(test.to_owned(), None, "", String::new())]
}

fn row(test: String, value: Option<f64>, unit: &'static str, note: String) -> Row {
    let figure = value.map_or_else(|| "-".to_owned(), |value| shown(value, unit));
    Row { size: 0, test, value, unit, interval: None, bound: None, figure, note }
}

/// A number for people: whole from 1,000 on, else with up to four digits.
fn shown(value: f64, unit: &str) -> String {
    if value.abs() >= 1e15 {
        return format!("{value:.3e} {unit}");
    }
    let digits = match value.abs() {
        big if big >= 1_000.0 => 0,
        big if big >= 10.0 => 2,
        big if big >= 0.01 || big == 0.0 => 4,
        big if big >= 0.000_01 => 7,
        _ => 9,
    };
    format!("{} {unit}", grouped(&format!("{value:.digits$}")))
}

/// Digits in groups of three.
fn grouped(number: &str) -> String {
    let (whole, fraction) = number.split_once('.').map_or((number, None), |(whole, fraction)| (whole, Some(fraction)));
    let mut out = String::new();
    for (at, digit) in whole.char_indices() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) && !out.ends_with('-') {
            out.push(',');
        }
        out.push(digit);
    }
    match fraction.map(|fraction| fraction.trim_end_matches('0')) {
        Some(fraction) if !fraction.is_empty() => format!("{out}.{fraction}"),
        _ => out,
    }
}

/// A count of frames.
fn frames(count: u64) -> String {
    format!("{} {}", grouped(&count.to_string()), if count == 1 { "frame" } else { "frames" })
}

fn pps(rate: f64) -> String {
    shown(rate, "pps")
}

/// How the name of a row ends that is of one rate.
fn at(rate: f64) -> String {
    format!(" at {}", pps(rate))
}

/// Adds what stopped a test to what came of it.
fn because(note: &str, limit: Option<&str>) -> String {
    limit.map_or_else(|| note.to_owned(), |limit| format!("{note}; {limit}"))
}

/// Why a search has not gone further up.
fn at_generator(limits: &[Limit]) -> &'static str {
    let is_bursts = |limit: &Limit| limit.reason == Reason::Bursts;
    match (limits.iter().any(is_bursts), limits.iter().all(is_bursts)) {
        (true, true) => "at least: above it bursts of the generator may be why frames were lost",
        (true, false) => "at least: above it trials of the generator were void",
        (false, _) => "at least: the most that the generator kept to",
    }
}

fn goal(result: &GoalResult, limits: &[Limit], limit: Option<&str>) -> Row {
    let goal = &result.goal;
    // What is forwarded of a load that lost some may be less than both bounds.
    let load = if result.throughput < result.lower { "at a load " } else { "" };
    let note = match (result.ended, result.lower, result.upper) {
        (Ended::Found, Some(lower), Some(upper)) => format!("{load}between {} and {}", pps(lower), pps(upper)),
        (Ended::AtHighest, ..) => "at least: the highest load".to_owned(),
        (Ended::AtGenerator, Some(lower), Some(upper)) => {
            format!("at least: between {} and {} no load could be decided about", pps(lower), pps(upper))
        }
        (Ended::AtGenerator, ..) => at_generator(limits).to_owned(),
        (Ended::BelowLowest, _, Some(upper)) => format!("below {}: the lowest load loses more", pps(upper)),
        (Ended::Void, Some(_), _) if result.is_at_least() => because("at least: trials above it were void", limit),
        (Ended::Void, ..) => because("trials were void", limit),
        (_, Some(lower), Some(upper)) => format!("no result: between {} and {} so far", pps(lower), pps(upper)),
        (_, Some(lower), None) => format!("no result: at least {} so far", pps(lower)),
        (_, None, Some(upper)) => format!("no result: below {} so far", pps(upper)),
        (_, None, None) => "no result: no load is decided about".to_owned(),
    };
    let is_single = goal.duration_sum <= goal.final_seconds && result.throughput.is_some();
    let note = if is_single { format!("{note}; a single trial decided about each load") } else { note };
    let name = format!("throughput, loss <= {}", shown(goal.loss_ratio * 100.0, "%"));
    let rates = [result.throughput, result.sustained, result.sustained_least];
    let row = row(name, result.throughput, "pps", with_filling(note, goal, rates));
    Row { bound: result.is_at_least().then_some(Bound::AtLeast), ..row }
}

fn strict(result: &Strict, setup: &Setup, limits: &[Limit], limit: Option<&str>) -> Row {
    let (goal, lowest) = match setup {
        Setup::BinarySearch { goal, low, .. } => (goal, *low),
        _ => (&Goal::RFC2544, 0.0),
    };
    let fails = if result.throughput.is_some() { "at least;" } else { "no result:" };
    let note = match (result.found, result.at_generator, result.upper) {
        (true, true, _) => at_generator(limits).to_owned(),
        (true, false, None) => "at least: the highest rate".to_owned(),
        (true, false, Some(upper)) => format!("{} loses frames", pps(upper)),
        (false, _, Some(upper)) if upper <= lowest => format!("no result: {} loses frames", pps(upper)),
        (false, _, Some(upper)) => because(&format!("{fails} {} loses frames", pps(upper)), limit),
        (false, _, None) => because(fails.trim_end_matches([';', ':']), limit),
    };
    let single = if result.throughput.is_some() { "; a single trial decided about each rate" } else { "" };
    let note = format!("{note}{single}");
    let rates = [result.throughput, result.sustained, result.sustained_least];
    let row = row("throughput, RFC 2544".to_owned(), result.throughput, "pps", with_filling(note, goal, rates));
    Row { bound: result.is_at_least().then_some(Bound::AtLeast), ..row }
}

/// A note, and what is forwarded for longer than a trial if the device was filling a buffer: of the throughput, the rate and the least.
fn with_filling(note: String, goal: &Goal, [throughput, rate, least]: [Option<f64>; 3]) -> String {
    let seconds = goal.final_seconds;
    let Some((throughput, least)) = throughput.zip(least) else { return note };
    let grown = shown((throughput / least - 1.0) * seconds * 1e3, "ms");
    // Without what the machine may be the reason of.
    let (stopped, rates) = match rate {
        Some(rate) if rate <= least * (1.0 + goal.width) => ("", format!("about {}", pps(rate))),
        Some(rate) => (STOPPED, format!("{} to {}", pps(least), pps(rate))),
        None => (STOPPED, format!("{} or more", pps(least))),
    };
    format!(
        "{note}; delays varied by {grown} in trials of {seconds} s{stopped}: if a buffer was filling, for longer {rates}"
    )
}

/// What may be the reason of delays, too.
const STOPPED: &str = ", and the machine stopped generator or device";

fn latency(result: &LatencyResult, limits: &[Limit]) -> Vec<Row> {
    let limit = limits.iter().rev().find(|limit| limit.asked.total_cmp(&result.rate).is_eq());
    let why = limit.map_or_else(|| "the generator does not reach this rate".to_owned(), Limit::why);
    let note = match (result.reached, result.lost) {
        (false, _) if !result.repetitions.is_empty() => format!("in other trials: {why}"),
        (false, _) => why,
        (true, 0) => String::new(),
        (true, lost) if result.repetitions.is_empty() => format!("none of {} came back", frames(lost)),
        (true, lost) => format!("{} lost", frames(lost)),
    };
    let count = result.repetitions.len();
    let away = result.away.filter(|away| *away > 0.0);
    let away = away.map(|away| {
        format!("too long by at most {}, for which the machine stopped receiver or device", shown(away * 1e3, "ms"))
    });
    let figure = |name: &str, summary: Option<Summary>, pick: fn(&Summary) -> f64| {
        let name = format!("{name} latency{}", at(result.rate));
        let notes = summary.as_ref().map_or_else(Vec::new, |summary| {
            let range = [summary.min, summary.max].map(|ns| shown(ns / 1e3, "us"));
            let spread =
                if count > 1 { format!("{count} trials, {} to {}", range[0], range[1]) } else { "1 trial".into() };
            vec![spread, away.clone().unwrap_or_default()]
        });
        let notes: Vec<String> = notes.into_iter().chain([note.clone()]).filter(|note| !note.is_empty()).collect();
        row(name, summary.as_ref().map(|summary| pick(summary) / 1e3), "us", notes.join("; "))
    };
    vec![
        figure("mean", result.mean(), |summary| summary.mean),
        figure("typical", result.typical(), |summary| summary.median),
        figure("worst-case", result.worst(), |summary| summary.median),
    ]
}

/// The points, and the rates that have none, from the highest downwards.
fn losses(test: &FrameLoss) -> Vec<Row> {
    let missing = |limit: &Limit| (limit.asked, row(format!("loss{}", at(limit.asked)), None, "%", limit.why()));
    let is_of = |limit: &Limit, point: &LossPoint| point.rate.total_cmp(&limit.asked).is_eq();
    // A device that loses none of a load and some of a lower one loses them by chance.
    let mut from_highest = test.points().iter().skip_while(|point| point.received < point.sent);
    let is_by_chance = from_highest.any(|point| point.received < point.sent);
    let together = test.points().iter().map(LossPoint::together).fold(1.0, f64::max);
    let unseen = (is_by_chance && together >= TOGETHER)
        .then(|| format!("at other loads up to {together:.1} were lost at a time, which a short trial may not see"));
    let points = test.points().iter().map(|point| {
        // Of void trials alone.
        let limit = test.limits().iter().find(|limit| is_of(limit, point)).map(Limit::why);
        let unseen = unseen.as_deref().filter(|_| point.received >= point.sent);
        let row = loss(point);
        (point.rate, Row { note: because(&because(&row.note, limit.as_deref()), unseen), ..row })
    });
    let has_none = |limit: &&Limit| !test.points().iter().any(|point| is_of(limit, point));
    let mut rows: Vec<(f64, Row)> = points.chain(test.limits().iter().filter(has_none).map(missing)).collect();
    rows.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    if rows.is_empty() { none("loss") } else { rows.into_iter().map(|(_, row)| row).collect() }
}

fn loss(point: &LossPoint) -> Row {
    let interval = point.interval_percent();
    let [low, high] = interval.map(|end| shown(end, "%"));
    let together = point.together();
    let runs = if together >= TOGETHER { format!("lost {together:.1} at a time: ") } else { String::new() };
    let void = if point.void[1] > 0 { ", with what void trials lost" } else { "" };
    let mut note = format!("{runs}by chance {low} to {high} (95 %){void}");
    if point.doubtful > 0 {
        let (least, frames) = (shown(point.least_percent(), "%"), frames(point.doubtful));
        note = format!("at least {least}: {frames} may be lost for bursts of the generator; {note}");
    }
    if let Some(share) = point.filling {
        let stopped = if point.stopped { STOPPED } else { "" };
        let share = shown(share * 100.0, "%");
        note += &format!("; delays grew by {share} of its time{stopped}: if a buffer was filling, more for longer");
    }
    let row = row(format!("loss{}", at(point.rate)), Some(point.loss_percent()), "%", note);
    Row { interval: Some(interval), bound: (point.doubtful > 0).then_some(Bound::AtMost), ..row }
}

fn bursts_of(bursts: &crate::Bursts, setup: &Setup) -> Vec<Row> {
    let Summary { count, deviation, min, max, .. } = bursts.frames;
    let endless = match bursts.endless {
        0 => String::new(),
        endless => format!("; {endless} times the longest burst allowed lost nothing"),
    };
    let Setup::BackToBack { throughput, range, filling, .. } = *setup else { return Vec::new() };
    let range = range.unwrap_or([throughput; 2]);
    let late = bursts.too_long_by(range[1]);
    let late = if late >= 1.0 {
        let (many, pause) = (shown(late.ceil(), "frames"), shown(bursts.late * 1e6, "us"));
        let stopped = (bursts.late > 0.0).then(|| format!("the machine stopped generator or device for {pause}"));
        let lost = (bursts.short > 0).then(|| format!("the generator's ports lost {}", frames(bursts.short)));
        let why = stopped.into_iter().chain(lost).collect::<Vec<_>>().join(", and ");
        // What is certain is without them.
        match bursts.longest(range[1]).1 {
            None => format!("; too long by at most {many}: {why} in a burst"),
            Some(_) => format!("; less {many}, by which a burst may be too long: {why} in a burst"),
        }
    } else {
        String::new()
    };
    let (longest, bound) = bursts.longest(range[1]);
    let least = if bound.is_some() { "at least: " } else { "" };
    let open = match bursts.open {
        0 => String::new(),
        open if open == count => format!("; {least}longer ones were void"),
        open => format!("; {least}longer ones were void {open} times"),
    };
    let note = match count {
        1 => format!("a single search{endless}{open}{late}"),
        _ => format!("{count} searches: {min} to {max}, deviation {deviation:.1}{endless}{open}{late}"),
    };
    let is_known = |value: &f64| bound.is_none() || *value > 0.0;
    let frames = row("back-to-back".to_owned(), Some(longest).filter(is_known), "frames", note);
    if let Some(filling) = filling.filter(|filling| bursts.are_fewer_than(*filling)) {
        let waiting = shown(filling, "frames");
        let note = format!(
            "delays in trials vary as if {waiting} were waiting, more than the longest burst: they wait elsewhere, or delays vary by \
             themselves, and longer trials tell what is forwarded"
        );
        let time = row("corrected buffer time".to_owned(), None, "ms", note);
        return vec![Row { bound: frames.value.and(bound), ..frames }, time];
    }
    let time = bursts.buffer_time(throughput, range);
    let interval = time.interval.map(|interval| interval.map(|seconds| seconds * 1e3));
    let least = if bound.is_some() { "at least: longer ones may lose nothing either; " } else { "" };
    let forwarded = range.map(pps);
    let forwarded = if forwarded[0] == forwarded[1] { pps(throughput) } else { forwarded.join(" to ") };
    let between =
        time.open().map(|[low, high]| format!("{} to {}", shown(low * 1e3, "").trim_end(), shown(high * 1e3, "ms")));
    let by = between.as_ref().map_or_else(String::new, |between| format!(": {between}"));
    let supposed = if filling.is_some() { " if a buffer was filling in trials" } else { "" };
    let note = format!("{least}of bursts at {}, {forwarded} forwarded{supposed}{by}{late}", pps(bursts.rate));
    let buffer = row("corrected buffer time".to_owned(), Some(time.seconds * 1e3).filter(is_known), "ms", note);
    let figure = between.clone().unwrap_or_else(|| buffer.figure.clone());
    // Of an interval no number is the figure.
    let buffer = Row { value: buffer.value.filter(|_| between.is_none()), ..buffer };
    // It goes on behind the longest burst that was sent, or that is known.
    let bound_of = |row: &Row| row.value.and(bound);
    vec![Row { bound: bound_of(&frames), ..frames }, Row { bound: bound_of(&buffer), interval, figure, ..buffer }]
}

fn recovery(result: &crate::Recovered) -> Row {
    let mut note = format!("after {}", pps(result.overload));
    if result.lost > 0 {
        note += &format!(" (>= {} lost)", grouped(&result.lost.to_string()));
    }
    let gap = result.gap();
    if let Some(Summary { count, min, max, .. }) = result.seconds {
        if result.is_exact() {
            note += &format!(", or up to {} more", shown(gap * 1e3, "ms"));
        }
        if max > min {
            note += &format!("; {} to {} in {count} trials", shown(min, "s"), shown(max, "s"));
        }
        if count == 1 && max > 0.0 {
            note += "; by a single trial: frames that are lost otherwise count, too";
        } else if result.varies() {
            note += ": frames that are lost otherwise count, too";
        }
    }
    if result.unrecovered > 0 {
        note += &format!("; not in time {} times", result.unrecovered);
    }
    if result.lossless > 0 {
        let many = if result.seconds.is_some() || result.unrecovered > 0 {
            format!(" {} times", result.lossless)
        } else {
            String::new()
        };
        note += &format!("; no frame was lost{many}: no overload, or a buffer had room for it");
    }
    if result.at_most > 0 && result.seconds.is_some() {
        let most = if result.unrecovered > 0 { format!("less {} times", result.at_most) } else { "at most".to_owned() };
        note += &format!("; {most}: bursts of the generator may be why the last frame was lost");
    }
    let row = row("recovery".to_owned(), result.mean(), "s", note);
    let interval = row.value.filter(|_| result.is_exact() && !result.varies());
    Row { interval: interval.map(|value| [value, value + gap]), bound: result.bound(), ..row }
}

fn offered(result: &crate::Offered, setup: &Setup) -> Row {
    let [least, most] = result.range;
    let mut note = format!("{} were offered", pps(result.offered));
    if let Setup::Frmol { rate, max: Some(max) } = setup
        && max < rate
    {
        note += &format!(", as {} are allowed at most", pps(*max));
    }
    if most > least * WIDE {
        note += &format!(", {} to {}", pps(least), pps(most));
    }
    if result.own > 0 {
        note += &format!("; the generator's ports lost {} more", frames(result.own));
    }
    if let Some(share) = result.filling {
        note += &format!(
            "; delays grew by {} of its time: if a buffer was filling, less for longer",
            shown(share * 100.0, "%")
        );
    }
    if result.away > AWAY {
        let away = shown(result.away * 1e3, "ms");
        // A device that was stopped at the end forwarded for longer than the trial, and one that nothing came to for less.
        note += &format!("; more or less: the machine stopped generator or device for up to {away}");
    } else if result.doubtful > 0 {
        let frames = frames(result.doubtful);
        note += &format!("; at least: up to {frames} may be lost for the generator");
    }
    let row = row("forwarded at maximum load".to_owned(), Some(result.forwarded), "pps", note);
    Row { bound: result.is_at_least().then_some(Bound::AtLeast), ..row }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_for_people() {
        for (value, text) in [
            (0.0, "0 x"),
            (1_234_567.8, "1,234,568 x"),
            (-1_234.0, "-1,234 x"),
            (999.9, "999.9 x"),
            (0.000_000_5, "0.0000005 x"),
        ] {
            assert_eq!(shown(value, "x"), text);
        }
    }
}
