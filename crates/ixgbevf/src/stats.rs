//! Statistics (X550 datasheet 8.3.2.6). A function's counters never clear, and wrap; [`Counters`] keeps totals of 64 bits.

use crate::Result;
use crate::regs::{Ixgbevf, Registers, VFGORC_LSB, VFGORC_MSB, VFGOTC_LSB, VFGOTC_MSB, VFGPRC, VFGPTC, VFMPRC};
use device::{Deadline, Device, ReadOnly, Reg};
use ethdev::Statistics;
use intel::read;

/// All counters of a function, since the port was opened. None of them ever decreases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HardwareStatistics {
    /// Good packets received.
    pub rx_packets: u64,
    /// Bytes of good packets received, from destination address to CRC.
    pub rx_bytes: u64,
    /// Multicast packets received.
    pub rx_multicast: u64,
    /// Good packets sent.
    pub tx_packets: u64,
    /// Bytes of good packets sent, from destination address to CRC.
    pub tx_bytes: u64,
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
            unread: hardware.unread,
            ..Self::default()
        }
    }
}

/// A counter: its register, that of its high half if it has one, and its total.
struct Counter {
    low: Reg<Ixgbevf, ReadOnly>,
    high: Option<Reg<Ixgbevf, ReadOnly>>,
    total: fn(&mut HardwareStatistics) -> &mut u64,
}

const COUNTERS: [Counter; 5] = [
    Counter { low: VFGPRC, high: None, total: |to| &mut to.rx_packets },
    Counter { low: VFGORC_LSB, high: Some(VFGORC_MSB), total: |to| &mut to.rx_bytes },
    Counter { low: VFMPRC, high: None, total: |to| &mut to.rx_multicast },
    Counter { low: VFGPTC, high: None, total: |to| &mut to.tx_packets },
    Counter { low: VFGOTC_LSB, high: Some(VFGOTC_MSB), total: |to| &mut to.tx_bytes },
];

impl Counter {
    /// Reads it. Its halves are no snapshot, so a high half that has changed meanwhile belongs to another low one.
    fn read<D: Device>(&self, regs: &Registers<D>) -> Result<u64> {
        let Some(register) = self.high else { return Ok(read(regs, self.low)?.into()) };
        let before = read(regs, register)?;
        let mut low = read(regs, self.low)?;
        let high = read(regs, register)?;
        if before != high {
            low = read(regs, self.low)?;
        }
        Ok(u64::from(high & 0xF) << 32 | u64::from(low))
    }

    /// What was counted from `before` to `now`.
    fn since(&self, before: u64, now: u64) -> u64 {
        let mask = if self.high.is_some() { (1 << 36) - 1 } else { u64::from(u32::MAX) };
        now.wrapping_sub(before) & mask
    }
}

/// The reader of a function's counters.
pub(crate) struct Counters<D: Device> {
    regs: Registers<D>,
    totals: HardwareStatistics,
    last: [u64; COUNTERS.len()],
    /// The counter that the next poll begins with.
    next: usize,
}

impl<D: Device> Counters<D> {
    /// Begins to count from here.
    pub(crate) fn new(regs: &Registers<D>) -> Result<Self> {
        let mut last = [0; COUNTERS.len()];
        for (last, counter) in last.iter_mut().zip(&COUNTERS) {
            *last = counter.read(regs)?;
        }
        Ok(Self { regs: regs.clone(), totals: HardwareStatistics::default(), last, next: 0 })
    }

    /// Returns the totals as of the last poll.
    pub(crate) fn totals(&self) -> &HardwareStatistics {
        &self.totals
    }

    /// Reads every counter once and returns the totals. At 10 Gbit/s packets wrap after 288 s, bytes after 55 s. The
    /// `deadline` is looked at before each; the next poll begins where this one ends.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Gone`]; what was read before counts.
    pub(crate) fn poll(&mut self, deadline: Option<&Deadline>) -> Result<&HardwareStatistics> {
        let mut left = COUNTERS.len();
        while left > 0 && deadline.is_none_or(|deadline| deadline.check().is_ok()) {
            let counter = &COUNTERS[self.next];
            let now = counter.read(&self.regs)?;
            let counted = counter.since(std::mem::replace(&mut self.last[self.next], now), now);
            let total = (counter.total)(&mut self.totals);
            *total = total.saturating_add(counted);
            self.next = (self.next + 1) % COUNTERS.len();
            left -= 1;
        }
        self.totals.unread = left;
        Ok(&self.totals)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_wrap() {
        let [packets, bytes, ..] = &COUNTERS;
        assert_eq!(packets.since(0xFFFF_FFFE, 3), 5);
        assert_eq!(packets.since(7, 7), 0);
        assert_eq!(bytes.since(0xF_FFFF_FFFF, 0x1_0000_0000), 0x1_0000_0001);
        assert_eq!(bytes.since(0xFFFF_FFFF, 0x1_0000_0000), 1);
    }
}
