//! What the queues of virtual functions have of their own (82599 datasheet 4.6.7, 4.6.8, 7.1, 7.2, 8.3).

use crate::regs::{
    Ixgbevf, VFDCA_RXCTRL, VFDCA_TXCTRL, VFRDBAH, VFRDBAL, VFRDH, VFRDLEN, VFRDT, VFRSCCTL, VFRXDCTL, VFSRRCTL,
    VFSTATUS, VFTDBAH, VFTDBAL, VFTDH, VFTDLEN, VFTDT, VFTDWBAH, VFTDWBAL, VFTXDCTL, vfdca_rxctrl, vfdca_txctrl,
    vfrxdctl, vfsrrctl, vftxdctl,
};
use crate::{Config, interrupts};
use device::{Device, ReadOnly, Reg, Regs};
use ethdev::PortConfig;
use intel::{Family, QueueRegisters, Step};

/// SRRCTL.DESCTYPE: advanced descriptors, one buffer.
const ONE_BUFFER: u32 = 1;
/// VFTXDCTL's thresholds in descriptors (X550 datasheet 8.3.2.4.6): fetch when fewer than so many are held, and so many wait; write back each.
const TX_PREFETCH: u32 = 32;
const TX_HOST: u32 = 1;

/// A receive queue: belongs to one thread at a time, and can be moved to another. See [`intel::RxQueue`].
pub type RxQueue<D> = intel::RxQueue<Ixgbevf, D>;

/// A transmit queue: belongs to one thread at a time, and can be moved to another. See [`intel::TxQueue`]. Frames can have 17 to
/// 15,872 bytes in up to 40 segments (32 on a ring of 64 descriptors); the physical function may allow fewer bytes.
pub type TxQueue<D> = intel::TxQueue<Ixgbevf, D>;

// SAFETY: these are the registers and bits of the datasheet; buffers are as large as they are said to be, and no other register
// of a queue than its ring's has an address in it but VFTDWBAL and VFTDWBAH, which are off.
unsafe impl Family for Ixgbevf {
    type Config = Config;

    const STATUS: Reg<Self, ReadOnly> = VFSTATUS;
    const RX: QueueRegisters<Self> = QueueRegisters {
        base_low: VFRDBAL,
        base_high: VFRDBAH,
        length: VFRDLEN,
        head: VFRDH,
        tail: VFRDT,
        control: VFRXDCTL,
        enable: vfrxdctl::EN,
    };
    const TX: QueueRegisters<Self> = QueueRegisters {
        base_low: VFTDBAL,
        base_high: VFTDBAH,
        length: VFTDLEN,
        head: VFTDH,
        tail: VFTDT,
        control: VFTXDCTL,
        enable: vftxdctl::EN,
    };

    /// As of the physical function (7.1.6.2).
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
        // Drop frames for a queue without free descriptors instead of holding up other functions.
        let mut buffers = vfsrrctl::BSIZEPACKET.set(vfsrrctl::DROP_EN.mask(), kib);
        buffers = vfsrrctl::BSIZEHEADER.set(buffers, 4);
        buffers = vfsrrctl::DESCTYPE.set(buffers, ONE_BUFFER);
        let dca = vfdca_rxctrl::RESERVED_12.set(regs.read(VFDCA_RXCTRL.at(index)), 0);
        let enable = vfrxdctl::EN.set(vfrxdctl::SWFLSH.set(regs.read(VFRXDCTL.at(index)), 0), 1);
        let enable = vfrxdctl::VME.set(enable, config.port.strip_vlan.into());
        vec![
            (VFSRRCTL.at(index), buffers),
            (VFRSCCTL.at(index), 0),
            (VFDCA_RXCTRL.at(index), dca),
            (VFRXDCTL.at(index), enable),
        ]
    }

    fn enable_tx<D: Device>(regs: &Regs<Self, D>, index: u32, _: &Config) -> Vec<Step<Self>> {
        let enable = vftxdctl::HTHRESH.set(vftxdctl::PTHRESH.set(vftxdctl::EN.mask(), TX_PREFETCH), TX_HOST);
        let dca = vfdca_txctrl::WRO_EN.set(regs.read(VFDCA_TXCTRL.at(index)), 0);
        vec![
            (VFTDWBAL.at(index), 0),
            (VFTDWBAH.at(index), 0),
            (VFDCA_TXCTRL.at(index), dca),
            (VFTXDCTL.at(index), enable),
        ]
    }

    fn arm<D: Device>(regs: &Regs<Self, D>, index: u32) {
        interrupts::arm(regs, index);
    }
}
