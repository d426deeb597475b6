//! What a router by the kernel's tables tells of them, and of its twins.

use cli::human::{counted, grouped};
use plane::Handle;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use twin::{Counts, Running};

/// The tables of `l3 --kernel`, and what went to the host and came from it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct KernelReport {
    /// Whether the kernel's tables have been read.
    pub(super) ready: bool,
    /// IPv4 routes in force.
    pub(super) ipv4: usize,
    /// IPv6 routes in force.
    pub(super) ipv6: usize,
    /// Neighbours that the kernel knows.
    pub(super) neighbours: usize,
    /// Next hops by number.
    pub(super) next_hops: usize,
    /// Changes that wait for room in the tables.
    pub(super) waiting: usize,
    /// Times that the kernel's messages were lost, as its buffer was full, and all tables were read again.
    pub(super) overflows: u64,
    /// Reads of all tables that a change or a loss interrupted.
    pub(super) interrupted: u64,
    /// Messages of the kernel that are not what they should be.
    pub(super) malformed: u64,
    /// What is left to the kernel, and why, and what else a person should know.
    pub(super) remarks: Vec<String>,
    /// One for each port.
    pub(super) twins: Vec<TwinReport>,
}

/// Remarks that were logged, so that a service's journal has each when it is new.
#[derive(Debug, Default)]
pub(super) struct Told(BTreeSet<String>);

impl Told {
    /// The remarks that are new, each once. Those that differ in numbers alone are the same.
    pub(super) fn news<'a>(&mut self, remarks: &'a [String]) -> Vec<&'a str> {
        let is_number = |word: &&str| word.chars().all(|char| char.is_ascii_digit() || char.is_ascii_punctuation());
        let key = |remark: &str| remark.split(' ').filter(|word| !is_number(word)).collect::<Vec<_>>().join(" ");
        let is_new = |remark: &&String| self.0.len() < MOST_TOLD && self.0.insert(key(remark));
        remarks.iter().filter(is_new).map(String::as_str).collect()
    }
}

/// Remarks that are kept: they name interfaces, of which others may make many.
const MOST_TOLD: usize = 1000;

/// The TAP interface that stands for a port.
#[derive(Clone, Debug, Serialize)]
pub(super) struct TwinReport {
    /// The name by which it was opened.
    name: String,
    /// Whether it is still there, in the network namespace of the router.
    present: bool,
    #[serde(skip)]
    was_deleted: bool,
    /// Frames of the port for the host, by class.
    classes: BTreeMap<&'static str, ClassReport>,
    /// Of those that passed: dropped, as the queue to the host had no room.
    to_host_queue_full: u64,
    /// Frames that the host has received.
    to_host: u64,
    /// Frames that it has not, as the twin was down, gone or in another network namespace.
    to_host_lost: u64,
    /// Frames that the host has sent.
    from_host: u64,
    /// Frames of the host that were dropped, by reason.
    from_host_drops: BTreeMap<&'static str, u64>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct ClassReport {
    passed: u64,
    /// Beyond the rate.
    dropped: u64,
}

impl KernelReport {
    /// What the tables hold, and what twins have counted; `remarks` are those that do not change.
    pub(super) fn of(tables: &Handle, twins: &Running, ports: usize, remarks: &[String]) -> Self {
        let plane::Report { routes: [ipv4, ipv6], neighbours, next_hops, waiting, closed, follower, lines, .. } =
            tables.report();
        let is_closed = |port| tables.is_ready() && closed.contains(&port);
        let twins = (0..ports).filter_map(|port| TwinReport::of(twins, port, is_closed(port))).collect();
        Self {
            ready: tables.is_ready(),
            ipv4,
            ipv6,
            neighbours,
            next_hops,
            waiting,
            overflows: follower.overflows,
            interrupted: follower.interrupted,
            malformed: follower.malformed,
            remarks: [remarks, &lines].concat(),
            twins,
        }
    }

    /// The same in words, a line or more.
    pub(super) fn lines(&self) -> Vec<String> {
        let tables = if self.ready {
            let [v4, v6] = [self.ipv4, self.ipv6].map(|routes| grouped(routes as u64));
            format!("kernel: {v4} IPv4 routes, {v6} IPv6, {}", counted(self.neighbours as u64, "neighbour"))
        } else {
            "kernel: tables are being read, all packets go to the host".to_owned()
        };
        let sum = |count: fn(&TwinReport) -> u64| grouped(self.twins.iter().map(count).sum());
        let twins = format!(
            "host: {} frames to it, {} from it, {} beyond their rate",
            sum(|twin| twin.to_host),
            sum(|twin| twin.from_host),
            sum(TwinReport::beyond),
        );
        let gone = self.twins.iter().filter(|twin| twin.was_deleted);
        let gone = gone.map(|twin| format!("host: the interface {} was deleted; start again", twin.name));
        let remarks = self.remarks.iter().map(|remark| format!("kernel: {remark}"));
        let met = [
            (self.overflows, "overflow"),
            (self.interrupted, "interrupted read"),
            (self.malformed, "malformed message"),
        ];
        let met = met.into_iter().filter(|(count, _)| *count > 0);
        let met = met.map(|(count, what)| format!("kernel: {} while its tables were followed", counted(count, what)));
        [tables, twins].into_iter().chain(met).chain(gone).chain(remarks).collect()
    }
}

impl TwinReport {
    fn of(twins: &Running, port: usize, is_closed: bool) -> Option<Self> {
        let (name, is_there) = twins.twin(port)?;
        let counts = twins.counts(port);
        let classes = counts
            .classes
            .iter()
            .map(|count| (count.class.name(), ClassReport { passed: count.passed, dropped: count.dropped }));
        Some(Self {
            name: name.to_owned(),
            present: is_there && !is_closed,
            was_deleted: !is_there,
            classes: classes.collect(),
            to_host_queue_full: counts.queue_full,
            to_host: counts.to_host,
            to_host_lost: counts.to_host_lost,
            from_host: counts.from_host,
            from_host_drops: drops_of_host(&counts),
        })
    }

    fn beyond(&self) -> u64 {
        self.classes.values().map(|class| class.dropped).sum()
    }
}

fn drops_of_host(counts: &Counts) -> BTreeMap<&'static str, u64> {
    let drops = [
        ("too_long", counts.from_host_too_long),
        ("no_buffer", counts.from_host_no_buffer),
        ("queue_full", counts.from_host_queue_full),
        ("unsent", counts.from_host_unsent),
        ("closed", counts.from_host_closed),
    ];
    drops.into_iter().filter(|(_, frames)| *frames > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remark_is_news_once() {
        let mut told = Told::default();
        let mut news = |remarks: &[&str]| {
            let remarks: Vec<String> = remarks.iter().map(|remark| (*remark).to_owned()).collect();
            told.news(&remarks).into_iter().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(news(&["rw0 has an MTU of 9000 bytes", "rules"]), ["rw0 has an MTU of 9000 bytes", "rules"]);
        assert_eq!(news(&["rules", "rw0 has an MTU of 2000 bytes"]), [""; 0]);
        assert_eq!(news(&["rw1 has an MTU of 2000 bytes", "rules"]), ["rw1 has an MTU of 2000 bytes"]);
        for number in 0..10_000 {
            news(&[&format!("rw{number}")]);
        }
        assert_eq!(news(&["others"]), [""; 0], "no more than {MOST_TOLD} are kept");
    }
}
