//! How a run was measured: by what, with which numbers, and where these depart from the RFCs.

use super::charts::goal;
use super::departures::{self, Departs};
use crate::page::markup::Markup;
use crate::page::table;
use trial::{Profile, Report, Setup};

/// Writes machine, numbers and departures.
pub(super) fn describe(page: &mut Markup, report: &Report) {
    if report.about().is_empty() {
        page.leaf("p", &[("class", &"note")], "What it was measured with is not in its results.");
    }
    page.within("dl", &[], |page| {
        for (name, value) in report.about().iter().take(64) {
            page.leaf("dt", &[], name);
            page.leaf("dd", &[], value);
        }
    });
    let rows: Vec<Vec<String>> = numbers(report.profile()).into_iter().map(Vec::from).collect();
    table(page, &[("test", false), ("number", false), ("value", true)], &rows);
    let departures = departures::of(report);
    if departures.is_empty() {
        page.leaf("p", &[], "No number falls short of the RFCs.");
        return;
    }
    page.leaf("p", &[], "Where the run departs from the RFCs:");
    let number = |number: Option<f64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let row = |one: &Departs| vec![one.section.to_owned(), one.what.clone(), number(one.used), number(one.wanted)];
    let rows: Vec<_> = departures.iter().map(row).collect();
    table(page, &[("section", false), ("what", false), ("used", true), ("wanted", true)], &rows);
}

/// The name of a test.
pub(super) fn name(setup: &Setup) -> &'static str {
    match setup {
        Setup::Throughput { .. } | Setup::BinarySearch { .. } => "throughput",
        Setup::Latency { .. } => "latency",
        Setup::FrameLoss { .. } => "frame loss",
        Setup::BackToBack { .. } => "back-to-back",
        Setup::Recovery { .. } => "recovery",
        Setup::Frmol { .. } => "highest load",
        _ => "other",
    }
}

/// Test, name and value of each number.
fn numbers(profile: &Profile) -> Vec<[String; 3]> {
    let row = |test: &str, name: &str, value: String| [test.to_owned(), name.to_owned(), value];
    let Profile { phases, throughput, latency, loss, bursts, recovery, frmol, .. } = profile;
    let mut rows = vec![
        row("all", "wait after routing updates, s", phases.routing_wait.to_string()),
        row("all", "learning frames of each port", phases.learning_frames.to_string()),
        row("all", "wait after learning frames, s", phases.learning_wait.to_string()),
        row(
            "all",
            "frames that open the traffic and do not count, a thousandth of a trial at most",
            phases.warm_up_frames.to_string(),
        ),
        row("all", "wait for frames under way, s", phases.drain.to_string()),
        row("all", "wait for the device to settle, s", phases.settle.to_string()),
        row("all", "rate may be missed by, %", (profile.rate_tolerance * 100.0).to_string()),
    ];
    for one in &throughput.goals {
        let name = goal(one);
        rows.extend([
            row(&name, "trial that decides, s", one.final_seconds.to_string()),
            row(&name, "trials of a load, s at most", one.duration_sum.to_string()),
            row(&name, "share of them that may lose more, %", (one.exceed_ratio * 100.0).to_string()),
            row(&name, "width of the result, %", ((one.width * 1e8).round() / 1e6).to_string()),
        ]);
    }
    rows.extend([
        row("latency", "trial, s", latency.seconds.to_string()),
        row("latency", "repetitions", latency.repetitions.to_string()),
        row("frame loss", "trial, s", loss.seconds.to_string()),
        row("frame loss", "step, % of the highest rate", (loss.step * 100.0).to_string()),
        row("back-to-back", "searches", bursts.repetitions.to_string()),
        row("back-to-back", "longest burst, s", bursts.longest_seconds.to_string()),
        row("recovery", "overload, s", recovery.overload_seconds.to_string()),
        row("recovery", "half of it, s", recovery.recovery_seconds.to_string()),
        row("recovery", "repetitions", recovery.repetitions.to_string()),
        row("highest load", "trial, s", frmol.seconds.to_string()),
        row("highest load", "repetitions", frmol.repetitions.to_string()),
    ]);
    rows
}
