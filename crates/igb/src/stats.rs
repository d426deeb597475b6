//! Statistics (82576 datasheet 8.19). The device's counters saturate, and are cleared by whoever reads them; [`Counters`]
//! owns them and keeps totals of 64 bits.

use crate::Result;
use crate::regs::{
    BPRC, BPTC, CRCERRS, GORCH, GORCL, GOTCH, GOTCL, GPRC, GPTC, Igb, MPC, MPRC, MPTC, RFC, RJC, RLEC, ROC, RQDPC, RUC,
    Registers,
};
use crate::wait::read;
use device::{Deadline, Device, ReadClears, Reg};
use ethdev::{RxErrors, Statistics};

/// All counters of the device, since the port was opened. None of them ever decreases.
///
/// ```
/// let statistics = igb::HardwareStatistics::default();
/// println!("{} good, {} missed", statistics.rx_packets, statistics.rx_missed);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HardwareStatistics {
    /// Good packets received.
    pub rx_packets: u64,
    /// Bytes of good packets received, from destination address to CRC.
    pub rx_bytes: u64,
    /// Packets lost because the packet buffer was full.
    pub rx_missed: u64,
    /// Packets dropped because their queue had no free descriptor, in all queues.
    pub rx_no_descriptor: u64,
    /// Multicast packets received.
    pub rx_multicast: u64,
    /// Broadcast packets received.
    pub rx_broadcast: u64,
    /// Packets received with a wrong CRC.
    pub rx_crc_errors: u64,
    /// Packets received whose length field does not match their length.
    pub rx_length_errors: u64,
    /// Packets received of less than 64 bytes, CRC correct.
    pub rx_undersize: u64,
    /// Packets received of less than 64 bytes, CRC wrong.
    pub rx_fragments: u64,
    /// Packets received above the largest frame, CRC correct.
    pub rx_oversize: u64,
    /// Packets received above the largest frame, CRC wrong.
    pub rx_jabber: u64,
    /// Good packets sent.
    pub tx_packets: u64,
    /// Bytes of good packets sent, from destination address to CRC.
    pub tx_bytes: u64,
    /// Multicast packets sent.
    pub tx_multicast: u64,
    /// Broadcast packets sent.
    pub tx_broadcast: u64,
    /// Number of counters that there was no time to read in the last call, whose totals are older.
    pub unread: usize,
}

impl From<&HardwareStatistics> for Statistics {
    fn from(hardware: &HardwareStatistics) -> Self {
        Self {
            rx_packets: hardware.rx_packets,
            rx_bytes: hardware.rx_bytes,
            tx_packets: hardware.tx_packets,
            tx_bytes: hardware.tx_bytes,
            rx_missed: hardware.rx_missed + hardware.rx_no_descriptor,
            rx_errors: RxErrors {
                crc: hardware.rx_crc_errors,
                length: hardware.rx_length_errors,
                undersize: hardware.rx_undersize + hardware.rx_fragments,
                oversize: hardware.rx_oversize + hardware.rx_jabber,
            },
            unread: hardware.unread,
        }
    }
}

/// A counter of the device: its register, that of its high half if it has one, and its total.
struct Counter {
    low: Reg<Igb, ReadClears>,
    high: Option<Reg<Igb, ReadClears>>,
    total: fn(&mut HardwareStatistics) -> &mut u64,
}

/// The reader of a device's counters. There must be one only: reading clears.
pub(crate) struct Counters<D: Device> {
    regs: Registers<D>,
    totals: HardwareStatistics,
    counters: Vec<Counter>,
    /// The counter that the next poll begins with.
    next: usize,
}

impl<D: Device> Counters<D> {
    /// Clears the device's counters.
    pub(crate) fn new(regs: &Registers<D>, queues: u32) -> Result<Self> {
        let mut counters = counters();
        let dropped = |queue| Counter { low: RQDPC.at(queue), high: None, total: |to| &mut to.rx_no_descriptor };
        counters.extend((0..queues).map(dropped));
        let mut counters = Self { regs: regs.clone(), totals: HardwareStatistics::default(), counters, next: 0 };
        counters.poll(None)?;
        // What was counted before belongs to nobody.
        counters.totals = HardwareStatistics::default();
        Ok(counters)
    }

    /// Returns the totals as of the last poll.
    pub(crate) fn totals(&self) -> &HardwareStatistics {
        &self.totals
    }

    /// Reads every counter once, adds it up, and returns the totals. At 1 Gbit/s the fastest is full after 48 minutes. The
    /// `deadline` is looked at before each; the next poll begins where this one ends.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Gone`]; what was read before counts.
    pub(crate) fn poll(&mut self, deadline: Option<Deadline>) -> Result<&HardwareStatistics> {
        let mut left = self.counters.len();
        while left > 0 && deadline.as_ref().is_none_or(|deadline| deadline.check().is_ok()) {
            let counter = &self.counters[self.next];
            let low = read(&self.regs, counter.low)?;
            // Reading the high half clears both.
            let high = counter.high.map_or(Ok(0), |high| read(&self.regs, high))?;
            let total = (counter.total)(&mut self.totals);
            *total = total.saturating_add(u64::from(high) << 32 | u64::from(low));
            self.next = (self.next + 1) % self.counters.len();
            left -= 1;
        }
        self.totals.unread = left;
        Ok(&self.totals)
    }
}

/// All that are not of a queue.
fn counters() -> Vec<Counter> {
    let counter = |low, total| Counter { low, high: None, total };
    vec![
        counter(CRCERRS, |to| &mut to.rx_crc_errors),
        counter(RLEC, |to| &mut to.rx_length_errors),
        counter(RUC, |to| &mut to.rx_undersize),
        counter(RFC, |to| &mut to.rx_fragments),
        counter(ROC, |to| &mut to.rx_oversize),
        counter(RJC, |to| &mut to.rx_jabber),
        counter(MPC, |to| &mut to.rx_missed),
        counter(GPRC, |to| &mut to.rx_packets),
        Counter { low: GORCL, high: Some(GORCH), total: |to| &mut to.rx_bytes },
        counter(MPRC, |to| &mut to.rx_multicast),
        counter(BPRC, |to| &mut to.rx_broadcast),
        counter(GPTC, |to| &mut to.tx_packets),
        Counter { low: GOTCL, high: Some(GOTCH), total: |to| &mut to.tx_bytes },
        counter(MPTC, |to| &mut to.tx_multicast),
        counter(BPTC, |to| &mut to.tx_broadcast),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;
    use device::TimeLimit;
    use std::time::Duration;

    #[test]
    fn counters_add_up_and_a_poll_goes_on_where_one_ended() {
        let fake = Fake::new(0x10C9);
        fake.set(GPRC, 7);
        let mut counters = Counters::new(&fake.regs(), 2).unwrap();
        fake.set(GPRC, 0);
        fake.set(GORCL, 5);
        fake.set(GORCH, 1);
        fake.set(RQDPC.at(1), 3);
        counters.poll(None).unwrap();
        let totals = counters.poll(None).unwrap();
        assert_eq!((totals.rx_packets, totals.rx_bytes, totals.rx_no_descriptor), (0, 2 << 32 | 10, 6));
        let over = TimeLimit { total: Duration::ZERO, cancel: None };
        assert_eq!(counters.poll(Some(over.begin())).unwrap().unread, 17);
        assert_eq!(counters.poll(None).unwrap().unread, 0);
    }
}
