//! Statistics (82576 datasheet 8.19). The device's counters saturate, and are cleared by whoever reads them; [`Counters`]
//! owns them and keeps totals of 64 bits.

use crate::regs::{
    BPRC, BPTC, CRCERRS, GORCH, GORCL, GOTCH, GOTCL, GPRC, GPTC, Igb, MPC, MPRC, MPTC, RFC, RJC, RLEC, ROC, RQDPC, RUC,
    Registers,
};
use crate::{MacType, Result};
use device::{Deadline, Device, ReadClears, Reg};
use ethdev::{RxErrors, Statistics};
use intel::counters::{self, add};

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
    /// Packets dropped because their queue had no free descriptor, in all queues. Of an 82576 these are at least as many: see
    /// [`Self::rx_no_descriptor_full`].
    pub rx_no_descriptor: u64,
    /// Whether more were dropped for want of descriptors than were counted: an 82576 counts up to 4,095 in each queue between two readings,
    /// and has reached that.
    pub rx_no_descriptor_full: bool,
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

/// The reader of a device's counters. There must be one only: reading clears.
pub(crate) struct Counters<D: Device>(counters::Counters<Igb, D, HardwareStatistics>);

impl<D: Device> Counters<D> {
    /// Clears the device's counters.
    pub(crate) fn new(regs: &Registers<D>, mac: MacType, queues: u32) -> Result<Self> {
        let mut list = list();
        list.extend((0..queues).map(|queue| dropped(RQDPC.at(queue), mac == MacType::Mac82576)));
        counters::Counters::new(regs, list).map(Self)
    }

    /// Returns the totals as of the last poll.
    pub(crate) fn totals(&self) -> &HardwareStatistics {
        self.0.totals()
    }

    /// Reads every counter once, adds it up, and returns the totals. At 1 Gbit/s the fastest is full after 48 minutes, but an 82576's
    /// RQDPC after 2.8 ms in which nothing has descriptors. The `deadline` is looked at before each; the next poll begins where this one
    /// ends.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Gone`]; what was read before counts.
    pub(crate) fn poll(&mut self, deadline: Option<Deadline>) -> Result<&HardwareStatistics> {
        let was_full = self.totals().rx_no_descriptor_full;
        let outcome = self.0.poll(deadline.as_ref());
        if self.totals().rx_no_descriptor_full && !was_full {
            let name = self.0.registers().device().name();
            tracing::warn!(
                "{name}: missed frames are more than are counted from here on: a queue's counter was full (RQDPC)"
            );
        }
        self.0.totals_mut().unread = outcome?;
        Ok(self.totals())
    }
}

type Counter<D> = counters::Counter<Igb, D, HardwareStatistics>;
type Total = fn(&mut HardwareStatistics) -> &mut u64;

fn counter<D: Device>(register: Reg<Igb, ReadClears>, total: Total) -> Counter<D> {
    counters::counter(register, move |totals, count| add(total(totals), count))
}

fn pair<D: Device>(low: Reg<Igb, ReadClears>, high: Reg<Igb, ReadClears>, total: Total) -> Counter<D> {
    counters::counter_pair(low, high, move |totals, count| add(total(totals), count))
}

/// The packets that a queue has dropped; it may be full.
fn dropped<D: Device>(register: Reg<Igb, ReadClears>, is_narrow: bool) -> Counter<D> {
    counters::counter(register, move |totals: &mut HardwareStatistics, count| {
        add(&mut totals.rx_no_descriptor, count);
        totals.rx_no_descriptor_full |= is_narrow && count == RQDPC_FULL;
    })
}

/// RQDPC of an 82576 has 12 bits. (QEMU's has 32, and the others are read, too: as by Linux today, which once cut them off.)
const RQDPC_FULL: u64 = 0xFFF;

/// All that are not of a queue.
fn list<D: Device>() -> Vec<Counter<D>> {
    vec![
        counter(CRCERRS, |to| &mut to.rx_crc_errors),
        counter(RLEC, |to| &mut to.rx_length_errors),
        counter(RUC, |to| &mut to.rx_undersize),
        counter(RFC, |to| &mut to.rx_fragments),
        counter(ROC, |to| &mut to.rx_oversize),
        counter(RJC, |to| &mut to.rx_jabber),
        counter(MPC, |to| &mut to.rx_missed),
        counter(GPRC, |to| &mut to.rx_packets),
        pair(GORCL, GORCH, |to| &mut to.rx_bytes),
        counter(MPRC, |to| &mut to.rx_multicast),
        counter(BPRC, |to| &mut to.rx_broadcast),
        counter(GPTC, |to| &mut to.tx_packets),
        pair(GOTCL, GOTCH, |to| &mut to.tx_bytes),
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
        let mut counters = Counters::new(&fake.regs(), MacType::Mac82576, 2).unwrap();
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
    /// 12 bits of an 82576, which are full before the next reading; what was full before the port was opened is nobody's loss.
    #[test]
    fn a_full_counter_of_drops_is_told_apart() {
        for (mac, dropped, is_full) in [
            (MacType::Mac82576, 0xFFF, true),
            (MacType::Mac82576, 0xFFE, false),
            (MacType::Mac82576, 0x1_0000, false),
            (MacType::I350, 0xFFF, false),
        ] {
            let fake = Fake::new(if mac == MacType::I350 { 0x1521 } else { 0x10C9 });
            fake.set(RQDPC.at(0), 0xFFF);
            let mut counters = Counters::new(&fake.regs(), mac, 2).unwrap();
            assert!(!counters.totals().rx_no_descriptor_full);
            fake.set(RQDPC.at(0), 0);
            fake.set(RQDPC.at(1), dropped);
            fake.set(GPRC, 0xFFF);
            let totals = counters.poll(None).unwrap();
            assert_eq!((totals.rx_no_descriptor, totals.rx_no_descriptor_full), (dropped.into(), is_full), "{mac:?}");
        }
    }
}
