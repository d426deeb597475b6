//! What the queues of this family have of their own (82576 datasheet 4.5, 7.1, 7.2, 8.10, 8.12).

use crate::regs::{
    Igb, RDBAH, RDBAL, RDH, RDLEN, RDT, RXCTL, RXDCTL, SRRCTL, STATUS, TDBAH, TDBAL, TDH, TDLEN, TDT, TDWBAH, TDWBAL,
    TXCTL, TXDCTL, rxctl, rxdctl, srrctl, txctl, txdctl,
};
use crate::{Config, interrupts};
use device::{Device, ReadOnly, Reg, Regs};
use ethdev::PortConfig;
use intel::{Family, QueueRegisters, Step};

/// SRRCTL.DESCTYPE: advanced descriptors, one buffer.
const ONE_BUFFER: u32 = 1;
/// RXDCTL's thresholds: descriptors that the device fetches ahead, of which so many at once, and writes back together (8.10).
const RX_PREFETCH: u32 = 8;
const RX_HOST: u32 = 8;
const RX_WRITE_BACK: u32 = 1;
/// TXDCTL's thresholds in descriptors (8.12): fetch when fewer than so many are held, and so many wait; write back each.
const TX_PREFETCH: u32 = 16;
const TX_HOST: u32 = 8;

/// A receive queue: belongs to one thread at a time, and can be moved to another. See [`intel::RxQueue`].
pub type RxQueue<D> = intel::RxQueue<Igb, D>;

/// A transmit queue: belongs to one thread at a time, and can be moved to another. See [`intel::TxQueue`]. Frames can have 17 to 9,724 bytes in up to 32 segments.
pub type TxQueue<D> = intel::TxQueue<Igb, D>;

// SAFETY: these are the registers and bits of the datasheet; buffers are as large as they are said to be, and no other register
// of a queue than its ring's has an address in it but TDWBAL and TDWBAH, which are off.
unsafe impl Family for Igb {
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

    /// RXE (7.1.5).
    const FRAME_ERRORS: u64 = 1 << 31;
    /// L4E and IPE, a bit lower than on an 82599 (7.1.5).
    const CHECKSUM_ERRORS: u64 = 1 << 29 | 1 << 30;
    /// 9.5 KiB, less the frame check sequence (7.2.1).
    const LONGEST: u16 = 9724;
    /// The smallest ring has room for them beside an unfinished chunk.
    const MOST_SEGMENTS: usize = 32;

    /// 8.10.10 has RXDCTL.ENABLE read 0 until RCTL.RXEN is set, 4.5.9 wants the latter last. An enabled ring without descriptors suits both.
    const RECEIVER_FIRST: bool = true;

    fn port(config: &Config) -> &PortConfig {
        &config.port
    }

    fn enable_rx<D: Device>(regs: &Regs<Self, D>, index: u32, kib: u32, _: &Config) -> Vec<Step<Self>> {
        // Drop frames for a queue without free descriptors instead of holding up all queues.
        let mut buffers = srrctl::BSIZEPACKET.set(srrctl::DROP_EN.mask(), kib);
        buffers = srrctl::BSIZEHEADER.set(buffers, 4);
        buffers = srrctl::DESCTYPE.set(buffers, ONE_BUFFER);
        let dca = rxctl::WB_RO.set(regs.read(RXCTL.at(index)), 0);
        let mut enable = rxdctl::PTHRESH.set(rxdctl::EN.mask(), RX_PREFETCH);
        enable = rxdctl::HTHRESH.set(enable, RX_HOST);
        enable = rxdctl::WTHRESH.set(enable, RX_WRITE_BACK);
        vec![(SRRCTL.at(index), buffers), (RXCTL.at(index), dca), (RXDCTL.at(index), enable)]
    }

    fn enable_tx<D: Device>(regs: &Regs<Self, D>, index: u32, _: &Config) -> Vec<Step<Self>> {
        let enable = txdctl::HTHRESH.set(txdctl::PTHRESH.set(txdctl::EN.mask(), TX_PREFETCH), TX_HOST);
        let dca = txctl::WB_RO.set(regs.read(TXCTL.at(index)), 0);
        vec![(TDWBAL.at(index), 0), (TDWBAH.at(index), 0), (TXCTL.at(index), dca), (TXDCTL.at(index), enable)]
    }

    fn arm<D: Device>(regs: &Regs<Self, D>, index: u32) {
        interrupts::arm(regs, index);
    }
}

#[cfg(test)]
mod tests {
    use crate::fake::Fake;
    use crate::regs::Registers;
    use crate::{Config, Opened, RxQueue, TxQueue};
    use ethdev::ChecksumVerdict::{Bad, Good, Unknown};
    use ethdev::{PacketType, PortConfig, RxInfo, RxInfos, RxQueue as _, TimeLimit};
    use intel::Shared;
    use mempool::{Batch, Pool, PoolConfig};
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    /// Frames that come alone, and as many as the loops take at a time, one after the other and four.
    #[test]
    fn checksum_errors_are_not_the_frames_and_are_reported_as_such() {
        let pool = Pool::new(&PoolConfig { slots: 512, ..PoolConfig::default() }).unwrap();
        let port = PortConfig { rx_ring: 64, ..PortConfig::default() };
        let fake = Fake::new(0x10C9);
        let Opened { port, mut rx, tx } = crate::open(fake.clone(), &Config::from(port), &pool).unwrap();
        let (ring, mut cache, mut batch) = (fake.rx(), pool.cache(), Batch::with_capacity(32));
        // Done, in one buffer, with a tag that was left in its place, both checksums looked at; 60 bytes.
        let word = |errors: u64| 0x6B | errors | 60 << 32;
        let mut at = 0;
        for (errors, verdicts) in
            [(0, (Good, Good)), (1 << 29, (Good, Bad)), (1 << 30, (Bad, Good)), (3 << 29, (Bad, Bad))]
        {
            for count in [1, 3, 4, 7] {
                let mut infos = RxInfos::with_capacity(32);
                (at..at + count).for_each(|index| ring.report(index, word(errors)));
                assert_eq!(rx[0].recv_with(&mut cache, &mut batch, &mut infos).len(), count, "{errors:#x}");
                let said = infos.iter().map(|info| ((info.ip_checksum(), info.transport_checksum()), info.vlan_tag()));
                assert!(
                    said.clone().count() == count && said.clone().all(|said| said == (verdicts, None)),
                    "{errors:#x}"
                );
                cache.free_batch(&mut batch);
                at += count;
            }
        }
        // An error of the frame itself, in the middle of four.
        (at..at + 4).for_each(|index| ring.report(index, word(u64::from(index == at + 2) << 31)));
        assert_eq!(rx[0].recv(&mut cache, &mut batch).len(), 3);
        assert_eq!(rx[0].counters().frame_errors, 1);
        drop((rx, tx, batch, cache));
        ethdev::Port::close(port).unwrap();
        assert_eq!(pool.away(), 0);
    }

    /// The words of a write-back of a frame of `len` bytes, and what they say: not the same of any two in a row.
    fn words(len: u16) -> ([u64; 2], RxInfo) {
        let (hash, ipv4) = (u32::from(len).wrapping_mul(0x9e37_79b9), len.is_multiple_of(2));
        let (ip, transport) =
            ([Good, Bad, Unknown][usize::from(len % 3)], [Bad, Good, Unknown][usize::from(len % 7 % 3)]);
        let kind = PacketType { ipv4, ipv6: !ipv4, udp: true, ..PacketType::default() };
        let mut high = u64::from(len) << 32 | 3;
        for (verdict, checked, wrong) in [(ip, 1 << 6, 1 << 30), (transport, 1 << 5, 1 << 29)] {
            high |= if verdict == Unknown { 0 } else { checked } | if verdict == Bad { wrong } else { 0 };
        }
        let info = RxInfo::default().with_hash(hash).with_packet_type(kind);
        let low = u64::from(hash) << 32 | 1 << 9 | if ipv4 { 1 << 4 } else { 1 << 6 } | 1;
        ([low, high], info.with_ip_checksum(ip).with_transport_checksum(transport))
    }

    /// Bursts of which one frame is bad, with all errors that there are, or none is; with room for infos from the start and without;
    /// with a cache of the queue's pool, and of another.
    #[test]
    fn packets_have_infos_of_their_own_beside_bad_frames() {
        let pool = |slots| Pool::new(&PoolConfig { slots, ..PoolConfig::default() }).unwrap();
        for foreign in [false, true] {
            let (pool, other) = (pool(512), pool(64));
            let port = PortConfig { rx_ring: 64, ..PortConfig::default() };
            let fake = Fake::new(0x10C9);
            let Opened { port, mut rx, tx } = crate::open(fake.clone(), &Config::from(port), &pool).unwrap();
            let mut cache = if foreign { other.cache() } else { pool.cache() };
            let (ring, mut batch) = (fake.rx(), Batch::with_capacity(64));
            let (mut at, mut errors) = (0_u16, 0);
            for (count, bad) in [(1, None), (4, Some(2)), (4, None), (40, None), (2, Some(0)), (13, Some(6)), (3, None)]
            {
                for capacity in [0, 64] {
                    let mut infos = RxInfos::with_capacity(capacity);
                    let mut wanted = Vec::new();
                    for place in 0..count {
                        let ([low, high], info) = words(60 + at);
                        let is_bad = bad == Some(place);
                        ring.word(at.into(), 0).store(low.to_le(), Ordering::Relaxed);
                        ring.report(at.into(), high | if is_bad { 7 << 29 } else { 0 });
                        if is_bad {
                            errors += 1
                        } else {
                            wanted.push((60 + usize::from(at), info))
                        }
                        at += 1;
                    }
                    let packets = rx[0].recv_with(&mut cache, &mut batch, &mut infos);
                    assert_eq!((packets.len(), infos.len()), (wanted.len(), wanted.len()), "{count}, {bad:?}");
                    for ((packet, info), wanted) in packets.iter().zip(infos.iter()).zip(&wanted) {
                        let said = |info: &RxInfo| {
                            (
                                info.hash(),
                                info.vlan_tag(),
                                info.packet_type(),
                                info.ip_checksum(),
                                info.transport_checksum(),
                            )
                        };
                        assert_eq!((packet.len(), said(info)), (wanted.0, said(&wanted.1)), "{count}, {bad:?}");
                    }
                    cache.free_batch(&mut batch);
                    assert!(rx[0].recv_with(&mut cache, &mut batch, &mut infos).is_empty() && infos.is_empty());
                }
            }
            assert_eq!((rx[0].counters().frame_errors, other.away() == 0), (errors, true));
            drop((rx, tx, batch, cache));
            ethdev::Port::close(port).unwrap();
            assert_eq!(pool.away(), 0);
        }
    }

    #[test]
    fn a_queue_is_started_once() {
        let fake = Fake::new(0x10C9);
        // SAFETY: it accesses memory only if a test tells it to, which this does not.
        let shared = Arc::new(unsafe { Shared::new(Registers::clone(&fake.regs()), Vec::new()) });
        let pool = Pool::new(&PoolConfig { slots: 8192, ..PoolConfig::default() }).unwrap();
        let config = Config::default();
        for turn in 0..2 {
            let mut memory = shared.begin_dma(&config, &pool).unwrap();
            let deadline = TimeLimit::default().begin();
            let rx = RxQueue::start(&mut memory, 0, &config, &pool, &deadline).map(drop);
            let tx = TxQueue::start(&mut memory, 0, &config, &pool, &deadline).map(drop);
            for (outcome, what) in [(rx, "receive"), (tx, "transmit")] {
                match outcome {
                    Ok(()) => assert_eq!(turn, 0, "{what}"),
                    Err(error) => {
                        assert!(error.to_string().contains(&format!("{what} queue 0 was started before")), "{error}");
                        assert_eq!(turn, 1);
                    }
                }
            }
        }
        shared.end_dma().unwrap();
        assert_eq!(pool.away(), 0);
    }

    #[test]
    fn a_device_that_was_stopped_is_given_no_memory() {
        let fake = Fake::new(0x10C9);
        // SAFETY: it accesses memory only if a test tells it to, which this does not.
        let shared = Arc::new(unsafe { Shared::new(Registers::clone(&fake.regs()), Vec::new()) });
        let pool = Pool::new(&PoolConfig { slots: 64, ..PoolConfig::default() }).unwrap();
        shared.begin_dma(&Config::default(), &pool).unwrap();
        shared.end_dma().unwrap();
        assert!(shared.begin_dma(&Config::default(), &pool).unwrap_err().to_string().contains("it was stopped"));
        assert!(!fake.since_bus_master().0);
    }
}
