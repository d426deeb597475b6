//! What is printed at the end.

use crate::json::{Report, RoutesReport};
use crate::run::Outcome;
use crate::workers::{self, WorkerReport};
use cli::args::RunOptions;
use cli::exit::Failure;
use cli::human::grouped;
use cli::output;
use cli::report::Totals;
use cli::screen;

/// Prints the summary, or with `--json` the object. A router has `routes` too.
pub(crate) fn print(
    mode: &str,
    outcome: &Outcome,
    options: &RunOptions,
    routes: Option<RoutesReport>,
) -> Result<(), Failure> {
    if options.json {
        output::print_json(&Report::new(mode, outcome, routes))
    } else {
        output::print(&words(mode, &outcome.totals, &outcome.workers))
    }
}

fn words(mode: &str, totals: &Totals, workers: &[WorkerReport]) -> String {
    let (verb, handled) = match mode {
        "rxonly" => ("counted", totals.counters.rx_packets),
        _ => ("forwarded", totals.counters.tx_packets),
    };
    let rows = totals.ports.iter().flat_map(|port| {
        let received = vec![port.rx_packets, port.rx_missed + port.rx_errors];
        let sent = vec![port.tx_packets, port.tx_dropped];
        [([port.name.clone(), "rx".to_owned()], received), ([String::new(), "tx".to_owned()], sent)]
    });
    let slept = workers::sleep_words(workers, totals.seconds);
    let slept = if slept.is_empty() { slept } else { format!("{slept}\n") };
    format!(
        "\n{mode}: {verb} {}\n{slept}{}\n{}",
        totals.pace(handled),
        screen::totals_table(&["total packets", "total lost"], rows),
        account(verb, handled, totals),
    )
}

/// Returns the line that shows that all frames received are accounted for.
fn account(verb: &str, handled: u64, totals: &Totals) -> String {
    let (received, dropped) = (totals.received(), totals.drops().values().sum::<u64>());
    let reasons = if dropped > 0 { format!(" ({})", screen::drop_words(totals)) } else { String::new() };
    let rest = received.saturating_sub(handled + dropped);
    let verdict = if rest == 0 { String::new() } else { format!(", UNACCOUNTED FOR {}", grouped(rest)) };
    format!(
        "received {} = {verb} {} + dropped {}{reasons}{verdict}",
        grouped(received),
        grouped(handled),
        grouped(dropped)
    )
}
