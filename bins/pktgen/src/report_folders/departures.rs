//! Where a run departs from the RFCs: the numbers of its profile, and how `pktgen` does what they ask for.

use crate::rfc2544::UNLIMITED;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use trial::printable;
use trial::{Part, Report, Setup};

/// Bytes of frames on Ethernet, with check sequence (RFC 2544, 9.1; RFC 5180, 5.1.1), and of the smallest in IPv6 that has room for a tag.
const SIZES: [u32; 7] = [64, 128, 256, 512, 1024, 1280, 1518];
const SMALLEST_IPV6: u32 = 80;

/// Where it departs from one.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Departs {
    /// The section.
    pub(super) section: &'static str,
    pub(super) what: String,
    /// What a number is, and what the RFC wants, if it is one.
    pub(super) used: Option<f64>,
    pub(super) wanted: Option<f64>,
}

impl fmt::Display for Departs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { section, what, .. } = self;
        write!(f, "{section}: {what}")?;
        match self.used.zip(self.wanted) {
            Some((used, wanted)) => write!(f, ": {used} instead of {wanted}"),
            None => Ok(()),
        }
    }
}

/// All of a run, which each form of its report has.
pub(super) fn of(report: &Report) -> Vec<Departs> {
    let words = |section, what: &str| Departs { section, what: what.to_owned(), used: None, wanted: None };
    let about = |name: &str| report.about().get(name).map(|value| printable(value));
    let mut all = Vec::new();
    if about("ways").is_some_and(|ways| ways == "one way") {
        all.push(words("RFC 2544, 14", "one way instead of both at once"));
    }
    all.extend(about("catch-up").map(|most| {
        let what = format!("where the load is constant, what was late by up to {most} was sent in bursts");
        words("RFC 2544, 21", &what)
    }));
    // Lines alone do not say that `pktgen` made them.
    if !report.about().is_empty() {
        all.push(words(
            "RFC 2544, 23 d",
            "the wait for frames under way ends 50 ms after the last of them if none is missing",
        ));
        if report.parts().iter().any(|part| matches!(part.setup, Setup::Latency { .. })) {
            all.push(words("RFC 2544, 26.2", "latency is that of all frames of a trial, not of one tagged after 60 s"));
        }
    }
    all.extend(sizes(report));
    all.extend(about("flows").map(|flows| {
        let what = if flows == "1" { "one flow only" } else { "flows to one destination address" };
        words("RFC 2544, 12", &format!("{what}, and not again to addresses at random in 256 networks"))
    }));
    if !report.about().is_empty() {
        all.push(words(
            "RFC 2544, 11",
            "no broadcasts, management frames, routing updates or filters beside the traffic",
        ));
        all.push(words("RFC 2544, 26.6", "recovery from a reset is not measured"));
    }
    all.extend(below_line(report));
    all.extend(report.departures().into_iter().map(|one| Departs {
        section: one.section,
        what: one.what.to_owned(),
        used: Some(one.used),
        wanted: Some(one.wanted),
    }));
    all
}

/// Sizes of RFC 2544, 9.1, or of RFC 5180, 5.1.1, that were not measured, and what took the place of the smallest.
fn sizes(report: &Report) -> Vec<Departs> {
    let is_ipv6 = report.about().get("protocol").is_some_and(|protocol| protocol == "IPv6");
    let section = if is_ipv6 { "RFC 5180, 5.1.1" } else { "RFC 2544, 9.1" };
    let measured: BTreeSet<u32> = report.parts().iter().map(|part| part.size).collect();
    let (mut missing, mut all) = (SIZES.to_vec(), Vec::new());
    missing.retain(|size| !measured.contains(size));
    if is_ipv6 && missing.contains(&SIZES[0]) && measured.contains(&SMALLEST_IPV6) {
        missing.retain(|size| *size != SIZES[0]);
        let what = "bytes of the smallest frame, as a tag in IPv6 needs them".to_owned();
        let [used, wanted] = [SMALLEST_IPV6, SIZES[0]].map(|size| Some(size.into()));
        all.push(Departs { section, what, used, wanted });
    }
    if !missing.is_empty() {
        let list: Vec<_> = missing.iter().map(u32::to_string).collect();
        let what = format!("no frames of {} bytes", list.join(", "));
        all.push(Departs { section, what, used: None, wanted: None });
    }
    all
}

/// Tests whose highest rate is below that of the line, with the least share of it of all sizes.
fn below_line(report: &Report) -> Vec<Departs> {
    let lines: BTreeMap<u32, f64> = report.parts().iter().rev().filter_map(line).collect();
    let mut shares: BTreeMap<&'static str, f64> = BTreeMap::new();
    for part in report.parts() {
        let (section, highest) = match part.setup {
            Setup::Throughput { high, .. } | Setup::BinarySearch { high, .. } => ("RFC 2544, 26.1", high),
            Setup::FrameLoss { highest } => ("RFC 2544, 26.3", highest),
            Setup::BackToBack { rate, .. } => ("RFC 2544, 26.4", rate),
            Setup::Frmol { max: Some(max), .. } => ("RFC 2285, 3.5.3", max),
            _ => continue,
        };
        let Some(line) = lines.get(&part.size) else { continue };
        let least = shares.entry(section).or_insert(f64::INFINITY);
        *least = least.min(highest / line);
    }
    // A rate that is the line's but for what is rounded is no other.
    shares.retain(|_, share| *share < 1.0 - 1e-9);
    let departs = |(section, share): (&'static str, f64)| {
        let (what, used) = ("highest rate, % of the line".to_owned(), Some((share * 1e6).round() / 1e4));
        Departs { section, what, used, wanted: Some(100.0) }
    };
    shares.into_iter().map(departs).collect()
}

/// The size of a part, and frames a second of its line, if it says them.
fn line(part: &Part) -> Option<(u32, f64)> {
    match part.setup {
        Setup::Frmol { rate, .. } if rate < UNLIMITED => Some((part.size, rate)),
        _ => None,
    }
}
