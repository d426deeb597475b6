//! Totals of ports, as shown in tables and JSON.

use crate::counters::{Counters, Reason};
use crate::human::{counted, grouped, with_unit};
use nic::{AnyPort, LinkStatus, Port as _};
use serde::Serialize;
use std::collections::BTreeMap;

/// Bytes of each frame on the wire beside its data: check sequence 4, preamble 8, gap 12 (IEEE 802.3, 3.1.1 and 4.4.2).
const WIRE_OVERHEAD: u64 = 24;

/// Totals of one port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PortTotals {
    /// Name of the port.
    pub name: String,
    /// NUMA node of its device; `null` if it has none.
    pub numa_node: Option<u32>,
    /// Frames that arrived in its receive rings.
    pub rx_packets: u64,
    /// Bytes of the frames that were received from the rings, without frame check sequence.
    pub rx_bytes: u64,
    /// Frames handed to its device for sending.
    pub tx_packets: u64,
    /// Bytes of these frames, without frame check sequence.
    pub tx_bytes: u64,
    /// Frames lost because no descriptor was free.
    pub rx_missed: u64,
    /// Frames that the device dropped: damaged, too short or too long.
    pub rx_errors: u64,
    /// Frames to be sent by it that were dropped.
    pub tx_dropped: u64,
    /// Counters of its device that could not be read in time; their values here are older.
    pub counters_unread: usize,
    /// How often its link went down during the run, as far as that was seen; known at the end of it.
    pub link_downs: u64,
    /// Receive queues that were polled, in the order of their numbers; their packets, bytes and drops are included in
    /// the port's.
    pub rx_queues: Vec<QueueTotals>,
    /// Transmit queues that were used, in the order of their numbers; their packets, bytes and drops add up to the
    /// port's.
    pub tx_queues: Vec<QueueTotals>,
    /// The frames of `rx_errors`, by what was wrong.
    #[serde(skip)]
    pub errors: nic::RxErrors,
    /// The state of the link in words.
    #[serde(skip)]
    pub link: String,
}

/// Totals of one queue of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct QueueTotals {
    /// Number of the queue.
    pub queue: usize,
    /// Frames that arrived in its ring, or that were handed to its device for sending.
    pub packets: u64,
    /// Bytes of the frames that were received or sent, without frame check sequence.
    pub bytes: u64,
    /// Frames dropped by the receive queue (included in `packets`), or frames to be sent by the transmit queue that
    /// were dropped.
    pub dropped: u64,
}

impl PortTotals {
    /// Adds the counters of a receive queue of the port.
    pub fn add_rx(&mut self, queue: usize, counters: &Counters) {
        let dropped = counters.dropped_in();
        let packets = counters.rx_packets + dropped;
        self.rx_packets += packets;
        self.rx_bytes += counters.rx_bytes;
        insert(&mut self.rx_queues, QueueTotals { queue, packets, bytes: counters.rx_bytes, dropped });
    }

    /// Adds the counters of a transmit queue of the port.
    pub fn add_tx(&mut self, queue: usize, counters: &Counters) {
        let (packets, bytes, dropped) = (counters.tx_packets, counters.tx_bytes, counters.dropped_out());
        self.tx_packets += packets;
        self.tx_bytes += bytes;
        self.tx_dropped += dropped;
        insert(&mut self.tx_queues, QueueTotals { queue, packets, bytes, dropped });
    }

    /// Takes what its device had counted at an earlier time out of what it counted.
    pub(crate) fn subtract(&mut self, before: &Self) {
        self.rx_missed = self.rx_missed.saturating_sub(before.rx_missed);
        self.rx_errors = self.rx_errors.saturating_sub(before.rx_errors);
    }

    /// What a port's device has counted, and its link. An error when the device is gone; the figures are those of before.
    fn read(port: &mut AnyPort) -> (Self, Result<(), nic::Error>) {
        let result = port.statistics().and_then(|_| port.link());
        let device = port.totals();
        let totals = Self {
            name: port.name().to_owned(),
            numa_node: port.numa_node(),
            rx_missed: device.rx_missed,
            rx_errors: device.rx_errors.total(),
            errors: device.rx_errors,
            counters_unread: device.unread,
            link: result.as_ref().map_or("gone".to_owned(), |link| link_words(*link)),
            ..Self::default()
        };
        (totals, result.map(drop))
    }
}

/// Reads the counters of the ports' devices, and their links. Returns an error beside them if a device is gone; its
/// totals are then those of the last reading.
pub(crate) fn read_devices<'a>(
    ports: impl Iterator<Item = &'a mut AnyPort>,
) -> (Vec<PortTotals>, Result<(), nic::Error>) {
    let mut result = Ok(());
    let totals = ports.map(|port| {
        let (totals, read) = PortTotals::read(port);
        if result.is_ok() {
            result = read;
        }
        totals
    });
    (totals.collect(), result)
}

/// Reads like [`read_devices`], for the last time. It is called before [`crate::stop::Stop::closing`], so that a slow
/// device has a second to answer if a signal has ended the run. Logs a warning if counters could not be read in time.
pub(crate) fn read_devices_last<'a>(
    ports: impl Iterator<Item = &'a mut AnyPort>,
) -> (Vec<PortTotals>, Result<(), nic::Error>) {
    let (totals, result) = read_devices(ports);
    for port in totals.iter().filter(|port| port.counters_unread > 0 && result.is_ok()) {
        tracing::warn!(
            "{}: {} of its counters could not be read in time: frames that it lost or refused since the last reading may be \
             missing from the summary",
            port.name,
            port.counters_unread
        );
    }
    (totals, result)
}

/// Keeps the queues in the order of their numbers.
fn insert(queues: &mut Vec<QueueTotals>, totals: QueueTotals) {
    queues.insert(queues.partition_point(|known| known.queue <= totals.queue), totals);
}

/// Returns the state of a link in words: `10 Gbit/s`, `down`.
pub(crate) fn link_words(link: LinkStatus) -> String {
    match link.speed_mbps {
        _ if !link.up => "down".to_owned(),
        speed if speed >= 1000 => format!("{} Gbit/s", f64::from(speed) / 1000.0),
        speed => format!("{speed} Mbit/s"),
    }
}

/// The state of a run at one moment.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Time since the start in seconds.
    pub seconds: f64,
    /// Counters of all workers together.
    pub counters: Counters,
    /// Totals of each port.
    pub ports: Vec<PortTotals>,
    /// Further lines under the table.
    pub notes: Vec<String>,
}

impl Totals {
    /// Returns the numbers of frames dropped, by reason; reasons with no frames are left out.
    #[must_use]
    pub fn drops(&self) -> BTreeMap<&'static str, u64> {
        let sum = |field: fn(&PortTotals) -> u64| self.ports.iter().map(field).sum();
        let by_devices = [
            ("rx_missed", sum(|port| port.rx_missed)),
            ("rx_crc", sum(|port| port.errors.crc)),
            ("rx_length", sum(|port| port.errors.length)),
            ("rx_undersize", sum(|port| port.errors.undersize)),
            ("rx_oversize", sum(|port| port.errors.oversize)),
        ];
        let by_workers = Reason::ALL.iter().map(|reason| (reason.name(), self.counters.dropped(*reason)));
        by_workers.chain(by_devices).filter(|(_, count)| *count > 0).collect()
    }

    /// Returns a line for each port whose link went down during the run.
    #[must_use]
    pub fn link_warnings(&self) -> Vec<String> {
        let line = |PortTotals { name, link_downs, .. }: &PortTotals| {
            let times = if *link_downs == 1 { "once".to_owned() } else { format!("{} times", grouped(*link_downs)) };
            format!("{name}: its link went down {times}, and nothing was sent or received meanwhile")
        };
        self.ports.iter().filter(|port| port.link_downs > 0).map(line).collect()
    }

    /// Returns in words how many packets were handled, in what time, and at what rate.
    #[must_use]
    pub fn pace(&self, handled: u64) -> String {
        let cycles = cycles_per_packet(&self.counters);
        let cycles = cycles.map_or(String::new(), |cycles| format!(", {cycles:.1} cycles per packet"));
        let rate = with_unit(per_second(handled, self.seconds), "pps");
        format!("{} in {:.2} s: {rate}{cycles}", counted(handled, "packet"), self.seconds)
    }

    /// Returns the number of frames that arrived at the ports: into rings, missed or damaged.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.ports.iter().map(|port| port.rx_packets + port.rx_missed + port.rx_errors).sum()
    }

    /// Returns the rates since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Rates {
        let seconds = (self.seconds - before.seconds).max(1e-9);
        let nothing = PortTotals::default();
        let ports = self.ports.iter().enumerate().map(|(index, now)| {
            let old = before.ports.get(index).unwrap_or(&nothing);
            let difference = |field: fn(&PortTotals) -> u64| field(now).saturating_sub(field(old));
            let (rx_packets, tx_packets) = (difference(|p| p.rx_packets), difference(|p| p.tx_packets));
            PortRates {
                rx_pps: per_second(rx_packets, seconds),
                rx_bps: wire_bits(difference(|p| p.rx_bytes), rx_packets, seconds),
                tx_pps: per_second(tx_packets, seconds),
                tx_bps: wire_bits(difference(|p| p.tx_bytes), tx_packets, seconds),
            }
        });
        let counters = self.counters - before.counters;
        Rates { ports: ports.collect(), cycles_per_packet: cycles_per_packet(&counters) }
    }
}

/// Rates between two moments.
#[derive(Clone, Debug)]
pub struct Rates {
    /// Rates of each port.
    pub ports: Vec<PortRates>,
    /// Cycles per packet of the polls that moved packets; `None` if none moved.
    pub cycles_per_packet: Option<f64>,
}

/// Rates of one port, in frames a second, and in bit/s on the wire.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PortRates {
    /// Frames received per second.
    pub rx_pps: f64,
    /// Received bit/s, with check sequence, preamble and gap.
    pub rx_bps: f64,
    /// Frames sent per second.
    pub tx_pps: f64,
    /// Sent bit/s, with check sequence, preamble and gap.
    pub tx_bps: f64,
}

/// Returns the cycles of the polls that moved packets, per packet received (or sent, if more were sent); `None` if none
/// moved.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
pub fn cycles_per_packet(counters: &Counters) -> Option<f64> {
    let packets = counters.rx_packets.max(counters.tx_packets);
    (packets > 0).then(|| counters.cycles as f64 / packets as f64)
}

/// Returns `count` per second. Times below a nanosecond count as a nanosecond.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
pub fn per_second(count: u64, seconds: f64) -> f64 {
    count as f64 / seconds.max(1e-9)
}

/// Returns `count` per second, in millions.
#[must_use]
pub fn mega(count: u64, seconds: f64) -> f64 {
    per_second(count, seconds) / 1e6
}

fn wire_bits(bytes: u64, packets: u64, seconds: f64) -> f64 {
    per_second((bytes + packets * WIRE_OVERHEAD) * 8, seconds)
}

/// Rounds to three decimals, for JSON output.
#[must_use]
pub fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_rate_of_ten_gigabit_ethernet() {
        let mut before = Totals { ports: vec![PortTotals::default()], ..Totals::default() };
        before.seconds = 1.0;
        let mut now = before.clone();
        now.seconds = 3.0;
        let frames = 2 * 14_880_952;
        let counters =
            Counters { rx_packets: frames, rx_bytes: frames * 60, cycles: frames * 25, ..Counters::default() };
        now.counters = counters;
        now.ports[0].add_rx(0, &counters);
        let rates = now.since(&before);
        assert!((rates.ports[0].rx_pps - 14_880_952.0).abs() < 1.0);
        assert!((rates.ports[0].rx_bps / 1e9 - 10.0).abs() < 1e-5, "{}", rates.ports[0].rx_bps);
        assert_eq!(rates.ports[0].tx_bps, 0.0);
        assert_eq!(rates.cycles_per_packet, Some(25.0));
    }

    #[test]
    fn every_drop_is_in_received() {
        let mut counters = Counters { rx_packets: 90, tx_packets: 80, ..Counters::default() };
        counters.drop_frames(Reason::RxBadLength, 5);
        counters.drop_frames(Reason::TxFull, 10);
        let mut totals = Totals { counters, ports: vec![PortTotals::default(); 2], ..Totals::default() };
        totals.ports[0].add_rx(1, &counters);
        totals.ports[0].add_rx(0, &Counters::default());
        totals.ports[1].add_tx(3, &counters);
        assert_eq!(totals.ports[0].rx_queues[1], QueueTotals { queue: 1, packets: 95, bytes: 0, dropped: 5 });
        assert_eq!(totals.ports[1].tx_queues, [QueueTotals { queue: 3, packets: 80, bytes: 0, dropped: 10 }]);
        totals.ports[0].rx_missed = 7;
        assert_eq!(totals.received(), 90 + 5 + 7);
        assert_eq!(totals.drops().values().sum::<u64>() + counters.tx_packets, totals.received());
    }
}
