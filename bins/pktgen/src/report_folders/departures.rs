//! Where a run departs from the RFCs: the numbers of its profile, and how `pktgen` does what they ask for.

use crate::frames::printable;
use serde::Serialize;
use std::fmt;
use trial::{Report, Setup};

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
    all.extend(report.departures().into_iter().map(|one| Departs {
        section: one.section,
        what: one.what.to_owned(),
        used: Some(one.used),
        wanted: Some(one.wanted),
    }));
    all
}
