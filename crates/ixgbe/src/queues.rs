//! What the queues of this family have of their own (82599 datasheet 4.6.7, 4.6.8, 7.1, 7.2, 8.2.3.8, 8.2.3.9).

use crate::regs::{
    DCA_RXCTRL, DCA_TXCTRL, Ixgbe, PSRTYPE, RDBAH, RDBAL, RDH, RDLEN, RDT, RSCCTL, RXDCTL, SRRCTL, STATUS, TDBAH,
    TDBAL, TDH, TDLEN, TDT, TDWBAH, TDWBAL, TXDCTL, dca_rxctrl, dca_txctrl, rxdctl, srrctl, txdctl,
};
use crate::{Config, interrupts};
use device::{Device, ReadOnly, Reg, Regs};
use ethdev::PortConfig;
use intel::{Family, QueueRegisters, Step};

/// A receive queue: belongs to one thread at a time, and can be moved to another. See [`intel::RxQueue`].
pub type RxQueue<D> = intel::RxQueue<Ixgbe, D>;

/// A transmit queue: belongs to one thread at a time, and can be moved to another. See [`intel::TxQueue`]. Frames can have 17 to 15,872 bytes in up to 40 segments (32 on a ring of 64
/// descriptors).
pub type TxQueue<D> = intel::TxQueue<Ixgbe, D>;

// SAFETY: these are the registers and bits of the datasheet; buffers are as large as they are said to be, and no other register
// of a queue than its ring's has an address in it but TDWBAL and TDWBAH, which are off.
unsafe impl Family for Ixgbe {
    type Config = Config;

    const STATUS: Reg<Self, ReadOnly> = STATUS;
    const RX: QueueRegisters<Self> = QueueRegisters {
        base_low: RDBAL,
        base_high: RDBAH,
        length: RDLEN,
        head: RDH,
        tail: RDT,
        control: RXDCTL,
        enable: rxdctl::EN,
    };
    const TX: QueueRegisters<Self> = QueueRegisters {
        base_low: TDBAL,
        base_high: TDBAH,
        length: TDLEN,
        head: TDH,
        tail: TDT,
        control: TXDCTL,
        enable: txdctl::EN,
    };

    /// CE, LE, PE, OSE, USE; the 82599 reports them all as RXE, bit 29 (7.1.6.2).
    const FRAME_ERRORS: u64 = 1 << 24 | 1 << 25 | 1 << 27 | 1 << 28 | 1 << 29;
    /// TCPE and IPE (7.1.6.2).
    const CHECKSUM_ERRORS: u64 = 1 << 30 | 1 << 31;
    /// 15.5 KiB (7.2.1.1).
    const LONGEST: u16 = 15_872;
    /// 7.2.3.2.4.
    const MOST_SEGMENTS: usize = 40;

    fn port(config: &Config) -> &PortConfig {
        &config.port
    }

    fn enable_rx<D: Device>(regs: &Regs<Self, D>, index: u32, kib: u32, config: &Config) -> Vec<Step<Self>> {
        let mut buffers = srrctl::BSIZEPACKET.set(0, kib);
        buffers = srrctl::BSIZEHEADER.set(buffers, 4);
        buffers = srrctl::DESCTYPE.set(buffers, 1);
        buffers = srrctl::DROP_EN.set(buffers, config.drop_en.into());
        let dca = dca_rxctrl::RESERVED_12.set(regs.read(DCA_RXCTRL.at(index)), 0);
        let enable = rxdctl::EN.set(rxdctl::SWFLSH.set(regs.read(RXDCTL.at(index)), 0), 1);
        let enable = rxdctl::VME.set(enable, config.port.strip_vlan.into());
        vec![
            (SRRCTL.at(index), buffers),
            (RSCCTL.at(index), 0),
            (PSRTYPE.at(index), 0),
            (DCA_RXCTRL.at(index), dca),
            (RXDCTL.at(index), enable),
        ]
    }

    fn enable_tx<D: Device>(regs: &Regs<Self, D>, index: u32, config: &Config) -> Vec<Step<Self>> {
        let mut enable = txdctl::PTHRESH.set(0, config.thresholds.prefetch.into());
        enable = txdctl::HTHRESH.set(enable, config.thresholds.host.into());
        enable = txdctl::WTHRESH.set(enable, config.thresholds.write_back.into());
        enable = txdctl::EN.set(enable, 1);
        let dca = dca_txctrl::WRO_EN.set(regs.read(DCA_TXCTRL.at(index)), 0);
        vec![(TDWBAL.at(index), 0), (TDWBAH.at(index), 0), (DCA_TXCTRL.at(index), dca), (TXDCTL.at(index), enable)]
    }

    /// With a write-back threshold the device reports in groups, and wants to be asked for each (7.2.3.4.2).
    fn reports_each(config: &Config) -> bool {
        config.thresholds.write_back > 0
    }

    fn arm<D: Device>(regs: &Regs<Self, D>, index: u32) {
        interrupts::arm(regs, index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use crate::fake::Fake;

    #[test]
    fn a_queue_is_drained_as_long_as_it_gets_on() {
        let fake = Fake::new(0x10FB);
        fake.set(TDT.at(3), 5);
        let mut reads = 0;
        // Two reads for each descriptor, around the end of the ring.
        fake.on_read(TDH.at(3), move |_| {
            reads += 1;
            (60 + reads / 2) % 64
        });
        TxQueue::drain(&fake.regs(), 3).unwrap();
        assert_eq!(fake.reads().iter().filter(|offset| **offset == TDH.at(3).offset()).count(), 18);
    }

    #[test]
    fn a_queue_that_stands_still_or_never_ends_is_given_up() {
        let fake = Fake::new(0x10FB);
        fake.set(TDT.at(0), 5);
        TxQueue::drain(&fake.regs(), 0).unwrap();
        assert!(!TxQueue::is_empty(&fake.regs(), 0).unwrap());
        let mut head = 0;
        fake.on_read(TDH.at(0), move |_| {
            head = (head + 1) % 4;
            head
        });
        TxQueue::drain(&fake.regs(), 0).unwrap();
        fake.vanish_at_read(7);
        assert!(matches!(TxQueue::drain(&fake.regs(), 0), Err(Error::Gone { .. })));
    }
}
