//! `--json`: one object at the end.

use crate::l3::KernelReport;
use crate::run::Outcome;
use crate::summary::Tables;
use crate::workers::WorkerReport;
use cli::counters::Counters;
use cli::exit::Failure;
use cli::pools::Placement;
use cli::report::{self, PortTotals};
use serde::Serialize;
use std::collections::BTreeMap;

/// What a run did. `received` = `forwarded` + `consumed` + `to_host` + all `drops`, always; and `received` is the sum of `rx_packets`,
/// `rx_missed` and `rx_errors` over all ports.
#[derive(Debug, Serialize)]
pub(crate) struct Report<'a> {
    mode: &'a str,
    duration_s: f64,
    /// Frames that came to the ports.
    received: u64,
    /// Frames sent on.
    forwarded: u64,
    /// Frames counted and let go, by `rxonly`.
    #[serde(skip_serializing_if = "Option::is_none")]
    consumed: Option<u64>,
    /// Frames given to the host, by `l3 --kernel`.
    #[serde(skip_serializing_if = "Option::is_none")]
    to_host: Option<u64>,
    /// Frames of the host that were sent: in `tx_packets` of ports, not in `forwarded`.
    #[serde(skip_serializing_if = "Option::is_none")]
    from_host: Option<u64>,
    /// Millions of frames a second forwarded (consumed).
    mpps: f64,
    /// `null` if no packet moved.
    cycles_per_packet: Option<f64>,
    ports: &'a [PortTotals],
    workers: &'a [WorkerReport],
    packet_memory: &'a Placement,
    drops: BTreeMap<&'static str, u64>,
    /// Why the exit code is 1, such as output that was lost; else `null`.
    error: Option<String>,
    /// The table of `l3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    routes: Option<RoutesReport>,
    /// The kernel's tables in `l3 --kernel`, and the twins.
    #[serde(skip_serializing_if = "Option::is_none")]
    kernel: Option<&'a KernelReport>,
}

/// The routes of `l3`, and how often they were replaced.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct RoutesReport {
    /// IPv4 routes in force.
    pub(crate) ipv4: usize,
    /// IPv6 routes in force.
    pub(crate) ipv6: usize,
    /// Times that SIGHUP has put other routes in force.
    pub(crate) reloads: u64,
    /// Times that it has not: something was wrong with the file, or the run ended first.
    pub(crate) failed_reloads: u64,
}

impl<'a> Report<'a> {
    pub(crate) fn new(mode: &'a str, outcome: &'a Outcome, tables: &'a Tables) -> Self {
        let Outcome { totals, workers, memory, result } = outcome;
        let consumed = (mode == "rxonly").then_some(totals.counters.rx_packets);
        let handled = consumed.unwrap_or(forwarded(&totals.counters));
        let of_host = |frames: u64| tables.kernel.as_ref().map(|_| frames);
        Self {
            mode,
            duration_s: report::rounded(totals.seconds),
            received: totals.received(),
            forwarded: forwarded(&totals.counters),
            consumed,
            to_host: of_host(totals.counters.to_host),
            from_host: of_host(totals.counters.from_host),
            mpps: report::rounded(report::mega(handled, totals.seconds)),
            cycles_per_packet: report::cycles_per_packet(&totals.counters).map(report::rounded),
            ports: &totals.ports,
            workers,
            packet_memory: memory,
            drops: totals.drops(),
            error: result.as_ref().err().map(Failure::message),
            routes: tables.routes,
            kernel: tables.kernel.as_ref(),
        }
    }
}

/// Frames that were received and sent on.
pub(crate) fn forwarded(counters: &Counters) -> u64 {
    counters.tx_packets.saturating_sub(counters.from_host)
}
