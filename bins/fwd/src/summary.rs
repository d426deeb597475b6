//! What is printed at the end.

use crate::json::{Report, RoutesReport, forwarded};
use crate::l3::KernelReport;
use crate::run::Outcome;
use crate::workers::{self, WorkerReport};
use cli::args::RunOptions;
use cli::exit::Failure;
use cli::human::grouped;
use cli::output;
use cli::report::Totals;
use cli::screen;

/// The tables of a router.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    /// Of routes from a file.
    pub(crate) routes: Option<RoutesReport>,
    /// Of the kernel.
    pub(crate) kernel: Option<KernelReport>,
}

/// Prints the summary, or with `--json` the object.
pub(crate) fn print(mode: &str, outcome: &Outcome, options: &RunOptions, tables: &Tables) -> Result<(), Failure> {
    if options.json {
        output::print_json(&Report::new(mode, outcome, tables))
    } else {
        output::print(&words(mode, &outcome.totals, &outcome.workers))
    }
}

fn words(mode: &str, totals: &Totals, workers: &[WorkerReport]) -> String {
    let (verb, handled) = match mode {
        "rxonly" => ("counted", totals.counters.rx_packets),
        _ => ("forwarded", forwarded(&totals.counters)),
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
    let to_host = totals.counters.to_host;
    let given = if to_host > 0 { format!(" + to the host {}", grouped(to_host)) } else { String::new() };
    let rest = received.saturating_sub(handled + to_host + dropped);
    let verdict = if rest == 0 { String::new() } else { format!(", UNACCOUNTED FOR {}", grouped(rest)) };
    format!(
        "received {} = {verb} {}{given} + dropped {}{reasons}{verdict}",
        grouped(received),
        grouped(handled),
        grouped(dropped)
    )
}
