//! The report of a run: a page for people, or with `--json` one object; and what was expected of it.

mod json;
mod page;

use super::figures::{Counted, Figures, Setting};
use super::{DRAIN, Outcome, UNTAGGED, no_probe};
use crate::args::RunArgs;
use crate::calibrate::{Floor, Floors};
use crate::clock::ClockReport;
use anyhow::anyhow;
use cli::exit::Failure;
use cli::human::{counted, grouped};
use cli::output;
use cli::report::{PortTotals, Totals};
pub(crate) use json::LatencyReport;
use measure::Summary;
use std::time::Duration;
use trial::printable;

/// Returns how a run ended: with what troubled it, or with what is wrong with its figures.
pub(crate) fn end(args: &RunArgs, outcome: &mut Outcome) -> Result<(), Failure> {
    let trouble = std::mem::replace(&mut outcome.trouble, Ok(()));
    let Outcome { names, cut, figures: all, totals, .. } = &*outcome;
    let unanswered: Vec<_> = all.iter().zip(names).filter(|(figures, _)| !figures.is_answered()).collect();
    let measured = match unanswered.first() {
        Some((first, names)) if !cut => Err(no_probe(names, first, unanswered.len() - 1, outcome.narrow.as_deref())),
        _ if all.iter().all(|figures| figures.ticks.is_none()) => {
            Err(anyhow!("ended before any frame counted; give it more time").into())
        }
        _ => Ok(()),
    };
    trouble.and(measured).and(links(all, totals)).and(all_sent(args, outcome)).and_then(|()| {
        match unmet(&outcome.setting(args), all) {
            unmet if unmet.is_empty() => Ok(()),
            unmet => Err(Failure::Unmet(unmet.join("; "))),
        }
    })
}

/// Prints the report, and returns how the run ended.
pub(crate) fn print(args: &RunArgs, floors: Option<&Floors>, mut outcome: Outcome) -> Result<(), Failure> {
    let result = end(args, &mut outcome);
    let (setting, all, totals) = (&Setting { floors, ..outcome.setting(args) }, &outcome.figures, &outcome.totals);
    let warnings = warnings(setting, all, totals);
    if args.json {
        output::print_json(&json::Report::of(setting, all, totals, warnings, &result))?;
    } else if all.iter().any(|figures| figures.ticks.is_some()) {
        output::print(&page::page(setting, all, totals, &warnings))?;
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

/// An error if less was handed over than the count that alone was to end the run.
fn all_sent(args: &RunArgs, outcome: &Outcome) -> Result<(), Failure> {
    let mut all = outcome.figures.iter().zip(&outcome.names).filter(|_| !outcome.cut);
    match all.find(|(figures, _)| figures.unsent > 0) {
        Some((figures, [from, to])) => {
            let unsent = counted(figures.unsent, "frame");
            let option = if args.count.is_some() { "--count" } else { "--pcap-turns" };
            Err(anyhow!(
                "{from} > {to}: {unsent} of {option} not sent, as {from} took none for a second: see to its other end, or lower --rate"
            )
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
        let loss = figures.all.loss_percent();
        if let Some(most) = expect.expect_loss.filter(|most| loss > *most) {
            let lost = counted(figures.all.verdict.lost, "frame");
            unmet.push(format!(
                "{from} > {to}: {lost} of {} lost, {loss:.4} %; --expect-loss allows {most} %",
                grouped(figures.all.verdict.sent)
            ));
        }
        if expect.expect_loss.is_some() && figures.all.verdict.sent == 0 {
            unmet.push(format!("{from} > {to}: no frame was sent, so none shows what --expect-loss asks for"));
        }
        if expect.expect_rate.is_some() && figures.all.verdict.sent + figures.all.missed == 0 {
            unmet.push(format!("{from} > {to}: no frame was due, so none shows what --expect-rate asks for"));
        }
        let short = figures.short_percent(setting).unwrap_or(0.0);
        if let Some(most) = expect.expect_rate.filter(|most| short > *most) {
            unmet.push(format!("{from} > {to}: offered {short:.3} % less than --rate; --expect-rate allows {most} %"));
        }
        let p99 = figures.all.from_due.map(|latency| setting.clock.nanoseconds(1) * latency.p99);
        let too_long = |most: &Duration| p99.is_none_or(|p99| p99 > most.as_secs_f64() * 1e9);
        if let Some(most) = expect.expect_latency_p99.filter(too_long) {
            let p99 = p99.map_or("not known".to_owned(), |p99| format!("{} us", microseconds(p99)));
            unmet.push(format!("{from} > {to}: p99 latency {p99}; --expect-latency-p99 allows {most:?}"));
        }
    }
    unmet
}

/// The floor that is nearest to what a direction has sent.
fn floor<'a>(setting: &Setting<'a>, figures: &Figures) -> Option<&'a Floor> {
    setting.floors?.nearest(figures.mean_size(setting)?, figures.rates(setting).offered)
}

/// What keeps it from being the floor of a direction.
fn objection(setting: &Setting<'_>, figures: &Figures) -> Option<String> {
    setting.floors?;
    let Some(mean) = figures.mean_size(setting) else {
        let why = "as some streams have a rate and others none, the mean size of frames is not known";
        return Some(format!("--floor: {why}, and no floor is the nearest"));
    };
    floor(setting, figures)?.objection(mean, figures.rates(setting).offered)
}

/// What a reader has to know before believing the figures.
fn warnings(setting: &Setting<'_>, all: &[Figures], totals: &Totals) -> Vec<String> {
    let mut warnings = setting.frames.remarks();
    warnings.extend(ClockReport::of(setting.clock).warning());
    if setting.cut {
        warnings.push("a signal ended the run early".to_owned());
    }
    warnings.extend(totals.link_warnings());
    if setting.frames.are_untagged() {
        warnings.push(format!("{UNTAGGED}: with --tag all are told apart"));
    }
    warnings.extend(unread(setting, all));
    for (figures, [from, to]) in all.iter().zip(setting.names) {
        let waits = setting.args.traffic.kind().and_then(|_| unknown_waits(&figures.all));
        warnings.extend(waits.map(|waits| format!("{from} > {to}: {waits}")));
        let times = [figures.all.from_due, figures.all.from_ring].into_iter().flatten();
        let longest = times.map(|times| times.max).reduce(f64::max).unwrap_or(0.0) * setting.clock.nanoseconds(1);
        if figures.all.verdict.lost > 0 && longest >= DRAIN.as_secs_f64() * 1e9 {
            let took = format!("frames took longer than the {} s that the end is waited for", DRAIN.as_secs());
            warnings.push(format!("{from} > {to}: {took}, so some of what is lost may have been under way"));
        }
        if figures.unread > 0 {
            let unread = counted(figures.unread, "frame");
            let why = "a device has hidden it, or a length, type or protocol is damaged";
            warnings.push(format!("{from} > {to}: {unread} came without the checksum that they were sent with: {why}"));
        }
        warnings.extend(objection(setting, figures).map(|objection| format!("{from} > {to}: {objection}")));
        if let Some(short) = figures.short_percent(setting).filter(|short| *short > 0.1) {
            let words = shortfall(short, figures.all.missed, &totals.ports[figures.from]);
            warnings.push(format!("{from} > {to}: {words}"));
        }
        let errors = totals.ports[figures.to].rx_errors;
        if errors > 0 {
            let errors = counted(errors, "damaged frame");
            warnings.push(format!(
                "{from} > {to}: {to} has refused {errors} since it was opened; those of the run count as lost"
            ));
        }
        let unsent = totals.ports[figures.from].tx_dropped;
        if unsent > 0 {
            let unsent = counted(unsent, "frame");
            warnings.push(format!(
                "{from} > {to}: {from} had {unsent} when it was closed that it had not reported as sent"
            ));
        }
    }
    warnings
}

/// How many frames have no latency from the ring, if some have none that have one from their due times; or that were received, where short
/// tags say of no due time.
fn unknown_waits(all: &Counted) -> Option<String> {
    let count = |summary: &Option<Summary>| summary.as_ref().map(|summary| summary.count);
    let (frames, ring) =
        (count(&all.from_due).unwrap_or(all.verdict.received), count(&all.from_ring).unwrap_or_default());
    let unknown = frames.checked_sub(ring).filter(|unknown| *unknown > 0)?;
    let [frames, unknown] = [frames, unknown].map(grouped);
    let why = "as two million frames were sent behind each of them before it came: its figures are of shorter waits";
    Some(format!("the latency from the ring is not known of {unknown} of {frames} frames, {why}"))
}

/// Which streams have no checksum that is read, so that damage is not seen.
fn unread(setting: &Setting<'_>, all: &[Figures]) -> Option<String> {
    let measured = || all.iter().filter(|figures| figures.ticks.is_some());
    if setting.args.no_verify || setting.frames.are_captured() {
        return None;
    }
    let names = setting.frames.names();
    let is_unread = |index: &usize| measured().any(|figures| !figures.verifies(*index));
    let unread: Vec<_> = (0..names.len()).filter(is_unread).map(|index| printable(&names[index])).collect();
    let streams = match &unread[..] {
        [] => return None,
        all if all.len() == names.len() => "checksums are left unread: damage in a frame is not seen".to_owned(),
        [one] => format!("checksums are left unread of stream {one}: damage in its frames is not seen"),
        some if some.len() <= NAMES => {
            format!("checksums are left unread of streams {}: damage in their frames is not seen", some.join(", "))
        }
        some => {
            let (named, more) = (some[..NAMES].join(", "), some.len() - NAMES);
            format!("checksums are left unread of streams {named} and {more} more: damage in their frames is not seen")
        }
    };
    let read = "only those of UDP, TCP and ICMP over IP, behind up to two VLAN tags, are read, where they are right in each frame";
    Some(format!("{streams}; {read}"))
}

/// Streams that a warning names.
const NAMES: usize = 8;

/// How much less than its rate a port has offered, and why.
pub(crate) fn shortfall(percent: f64, missed: u64, port: &PortTotals) -> String {
    let why = match port.link_downs {
        0 => "which this machine or the port was too slow or too busy for",
        _ => "as its link went down",
    };
    let what = match missed {
        0 => "its last frames were sent after its time".to_owned(),
        missed => format!("{} missed", counted(missed, "frame")),
    };
    format!("offered {percent:.2} % less than its rate: {what}, {why}")
}

/// Nanoseconds as microseconds, to a hundredth.
fn microseconds(nanoseconds: f64) -> String {
    let hundredths = whole(nanoseconds / 10.0);
    format!("{}.{:02}", grouped(hundredths / 100), hundredths % 100)
}

pub(crate) fn whole(value: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a figure for people; saturates")]
    let whole = value.max(0.0).round() as u64;
    whole
}

#[cfg(test)]
mod tests {
    use super::*;
    use measure::{Latency, Verdict};

    fn counted(received: u64, due: u64, ring: u64) -> Counted {
        let times = |count| {
            let mut latency = Latency::new();
            latency.record_times(100, count);
            latency.summary()
        };
        let mut counted = Counted::default();
        counted.verdict = Verdict { received, ..Verdict::default() };
        (counted.from_due, counted.from_ring) = (times(due), times(ring));
        counted
    }

    #[test]
    fn frames_without_a_latency_from_the_ring_are_told_of() {
        // Full tags: one is damaged, and has neither. Short tags have no due time.
        assert_eq!(unknown_waits(&counted(1000, 999, 999)), None);
        assert_eq!(unknown_waits(&counted(1000, 0, 1000)), None);
        assert_eq!(unknown_waits(&counted(0, 0, 0)), None);
        for (all, words) in [(counted(1000, 999, 0), "999 of 999"), (counted(3000, 0, 1), "2,999 of 3,000")] {
            let told = unknown_waits(&all).unwrap();
            assert!(told.starts_with(&format!("the latency from the ring is not known of {words} frames, ")), "{told}");
        }
    }
}
