//! Totals of ports: what tables and JSON show.

use crate::counters::{Counters, Reason};
use nic::{LinkStatus, Port};
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
    /// Bytes of those that were handed over, without frame check sequence.
    pub rx_bytes: u64,
    /// Frames its device was given to send.
    pub tx_packets: u64,
    /// Their bytes, without frame check sequence.
    pub tx_bytes: u64,
    /// Frames lost because no descriptor was free.
    pub rx_missed: u64,
    /// Frames that the device dropped: damaged, too short or too long.
    pub rx_errors: u64,
    /// Frames that were to leave by it and were dropped.
    pub tx_dropped: u64,
    /// Those by what was wrong.
    #[serde(skip)]
    pub errors: nic::RxErrors,
    /// The link in words.
    #[serde(skip)]
    pub link: String,
}

impl PortTotals {
    /// Adds what a receive queue of the port has counted.
    pub fn add_rx(&mut self, counters: &Counters) {
        self.rx_packets += counters.rx_packets + counters.dropped_in();
        self.rx_bytes += counters.rx_bytes;
    }

    /// Adds what a transmit queue of the port has counted.
    pub fn add_tx(&mut self, counters: &Counters) {
        self.tx_packets += counters.tx_packets;
        self.tx_bytes += counters.tx_bytes;
        self.tx_dropped += counters.dropped_out();
    }

    /// Takes over what a port's device has counted, and its link.
    ///
    /// # Errors
    ///
    /// When the device is gone; the figures are those of before.
    pub fn read_device(&mut self, port: &mut Port) -> Result<(), nic::Error> {
        self.numa_node = port.numa_node();
        let result = port.statistics().and_then(|_| port.link());
        let totals = port.totals();
        self.rx_missed = totals.rx_missed;
        self.rx_errors = totals.rx_errors.total();
        self.errors = totals.rx_errors;
        self.link = result.as_ref().map_or("gone".to_owned(), |link| link_words(*link));
        result.map(drop)
    }
}

/// A link in words: `10 Gbit/s`, `down`.
#[must_use]
pub fn link_words(link: LinkStatus) -> String {
    match link.speed {
        _ if !link.up => "down".to_owned(),
        speed if speed >= 1000 => format!("{} Gbit/s", f64::from(speed) / 1000.0),
        speed => format!("{speed} Mbit/s"),
    }
}

/// The state of a run at one moment.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Seconds since the start.
    pub seconds: f64,
    /// All workers together.
    pub counters: Counters,
    /// Each port.
    pub ports: Vec<PortTotals>,
    /// More lines under the table.
    pub notes: Vec<String>,
}

impl Totals {
    /// Frames dropped, by reason; those that did not happen are left out.
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

    /// Frames that came to the ports: into rings, missed or damaged.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.ports.iter().map(|port| port.rx_packets + port.rx_missed + port.rx_errors).sum()
    }

    /// What happened since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Rates {
        let seconds = (self.seconds - before.seconds).max(1e-9);
        let nothing = PortTotals::default();
        let ports = self.ports.iter().enumerate().map(|(index, now)| {
            let old = before.ports.get(index).unwrap_or(&nothing);
            let difference = |field: fn(&PortTotals) -> u64| field(now).saturating_sub(field(old));
            let (rx_packets, tx_packets) = (difference(|p| p.rx_packets), difference(|p| p.tx_packets));
            PortRates {
                rx_mpps: mega(rx_packets, seconds),
                rx_gbps: gigabits(difference(|p| p.rx_bytes), rx_packets, seconds),
                tx_mpps: mega(tx_packets, seconds),
                tx_gbps: gigabits(difference(|p| p.tx_bytes), tx_packets, seconds),
            }
        });
        let counters = self.counters - before.counters;
        Rates { ports: ports.collect(), cycles_per_packet: cycles_per_packet(&counters) }
    }
}

/// Rates between two moments.
#[derive(Clone, Debug)]
pub struct Rates {
    /// Each port.
    pub ports: Vec<PortRates>,
    /// Cycles of the polls that moved packets, per packet; `None` if none moved.
    pub cycles_per_packet: Option<f64>,
}

/// Rates of one port: millions of frames a second, and Gbit/s on the wire.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PortRates {
    /// Received.
    pub rx_mpps: f64,
    /// Received, with check sequence, preamble and gap.
    pub rx_gbps: f64,
    /// Sent.
    pub tx_mpps: f64,
    /// Sent, with check sequence, preamble and gap.
    pub tx_gbps: f64,
}

/// Cycles of the polls that moved packets, per packet received (or sent, where nothing is received).
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
pub fn cycles_per_packet(counters: &Counters) -> Option<f64> {
    let packets = counters.rx_packets.max(counters.tx_packets);
    (packets > 0).then(|| counters.cycles as f64 / packets as f64)
}

/// Millions a second.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
pub fn mega(count: u64, seconds: f64) -> f64 {
    count as f64 / seconds / 1e6
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn gigabits(bytes: u64, packets: u64, seconds: f64) -> f64 {
    (bytes + packets * WIRE_OVERHEAD) as f64 * 8.0 / seconds / 1e9
}

/// Rounds to three decimals, for JSON.
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
        now.ports[0].add_rx(&counters);
        let rates = now.since(&before);
        assert!((rates.ports[0].rx_mpps - 14.880_952).abs() < 1e-6);
        assert!((rates.ports[0].rx_gbps - 10.0).abs() < 1e-5, "{}", rates.ports[0].rx_gbps);
        assert_eq!(rates.ports[0].tx_gbps, 0.0);
        assert_eq!(rates.cycles_per_packet, Some(25.0));
    }

    #[test]
    fn every_drop_is_in_received() {
        let mut counters = Counters { rx_packets: 90, tx_packets: 80, ..Counters::default() };
        counters.drop_frames(Reason::RxBadLength, 5);
        counters.drop_frames(Reason::TxFull, 10);
        let mut totals = Totals { counters, ports: vec![PortTotals::default(); 2], ..Totals::default() };
        totals.ports[0].add_rx(&counters);
        totals.ports[1].add_tx(&counters);
        totals.ports[0].rx_missed = 7;
        assert_eq!(totals.received(), 90 + 5 + 7);
        assert_eq!(totals.drops().values().sum::<u64>() + counters.tx_packets, totals.received());
    }
}
