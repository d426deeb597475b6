//! Statistics (X550 datasheet 8.3.2.6). A function's counters never clear, and wrap; [`Counters`] keeps totals of 64 bits.

use crate::Result;
use crate::regs::{Ixgbevf, Registers, VFGORC_LSB, VFGORC_MSB, VFGOTC_LSB, VFGOTC_MSB, VFGPRC, VFGPTC, VFMPRC};
use device::{Deadline, Device, ReadOnly, Reg};
use ethdev::Statistics;
use intel::counters::{self, add};
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

/// The reader of a function's counters.
pub(crate) struct Counters<D: Device>(counters::Counters<Ixgbevf, D, HardwareStatistics>);

impl<D: Device> Counters<D> {
    /// Begins to count from here.
    pub(crate) fn new(regs: &Registers<D>) -> Result<Self> {
        let list = vec![
            counter(VFGPRC, |to| &mut to.rx_packets),
            pair(VFGORC_LSB, VFGORC_MSB, |to| &mut to.rx_bytes),
            counter(VFMPRC, |to| &mut to.rx_multicast),
            counter(VFGPTC, |to| &mut to.tx_packets),
            pair(VFGOTC_LSB, VFGOTC_MSB, |to| &mut to.tx_bytes),
        ];
        counters::Counters::new(regs, list).map(Self)
    }

    /// Returns the totals as of the last poll.
    pub(crate) fn totals(&self) -> &HardwareStatistics {
        self.0.totals()
    }

    /// Reads every counter once and returns the totals. At 10 Gbit/s packets wrap after 288 s, bytes after 55 s. The
    /// `deadline` is looked at before each; the next poll begins where this one ends.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Gone`]; what was read before counts.
    pub(crate) fn poll(&mut self, deadline: Option<&Deadline>) -> Result<&HardwareStatistics> {
        self.0.totals_mut().unread = self.0.poll(deadline)?;
        Ok(self.totals())
    }
}

type Counter<D> = counters::Counter<Ixgbevf, D, HardwareStatistics>;
type Total = fn(&mut HardwareStatistics) -> &mut u64;

fn counter<D: Device>(register: Reg<Ixgbevf, ReadOnly>, total: Total) -> Counter<D> {
    let mut last = 0;
    counters::counter(register, move |totals, now| add(total(totals), since(&mut last, now, 32)))
}

/// One of 36 bits. Its halves are no snapshot, so a high half that has changed meanwhile belongs to another low one.
fn pair<D: Device>(low: Reg<Ixgbevf, ReadOnly>, high: Reg<Ixgbevf, ReadOnly>, total: Total) -> Counter<D> {
    let mut last = 0;
    Box::new(move |regs, totals| {
        let before = read(regs, high)?;
        let mut lower = read(regs, low)?;
        let upper = read(regs, high)?;
        if before != upper {
            lower = read(regs, low)?;
        }
        add(total(totals), since(&mut last, u64::from(upper & 0xF) << 32 | u64::from(lower), 36));
        Ok(())
    })
}

/// What a counter of so many bits has counted since it was `last` read.
fn since(last: &mut u64, now: u64, bits: u32) -> u64 {
    now.wrapping_sub(std::mem::replace(last, now)) & ((1 << bits) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_wrap() {
        let counted = |mut before, now, bits| since(&mut before, now, bits);
        assert_eq!(counted(0xFFFF_FFFE, 3, 32), 5);
        assert_eq!(counted(7, 7, 32), 0);
        assert_eq!(counted(0xF_FFFF_FFFF, 0x1_0000_0000, 36), 0x1_0000_0001);
        assert_eq!(counted(0xFFFF_FFFF, 0x1_0000_0000, 36), 1);
    }
}
