//! Statistics (82599 datasheet 8.2.3.23). The device's counters are narrow, saturate, and are cleared by whoever reads
//! them; [`Counters`] owns them and keeps totals of 64 bits.

use crate::Result;
use crate::regs::{
    BPRC, BPTC, CRCERRS, ERRBC, GORCH, GORCL, GOTCH, GOTCL, GPRC, GPTC, ILLERRC, Ixgbe, LXOFFRXCNT, LXOFFTXC,
    LXONRXCNT, LXONTXC, MLFC, MPC, MPRC, MPTC, MRFC, MSPDC, PRC, PTC, QBRC_H, QBRC_L, QBTC_H, QBTC_L, QPRC, QPRDC,
    QPTC, RFC, RJC, RLEC, ROC, RQSMR, RUC, Registers, TORH, TORL, TPR, TPT, TQSM, XEC,
};
use device::{Deadline, Device, ReadClears, Reg};
use intel::counters::{self, add};

/// All counters of the device, since the port was opened. None of them ever decreases.
///
/// ```
/// let statistics = ixgbe::HardwareStatistics::default();
/// let errors = statistics.rx_errors;
/// println!("{} good, {} missed, {} with CRC errors", statistics.rx_packets, statistics.rx_missed, errors.crc);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HardwareStatistics {
    /// Good packets received and not missed, including those for which there was no free descriptor.
    pub rx_packets: u64,
    /// Bytes of good packets received, missed ones included, from destination address to CRC.
    pub rx_bytes: u64,
    /// Packets lost because the packet buffer was full.
    pub rx_missed: u64,
    /// Packets dropped because their queue had no free descriptor, in all queues.
    pub rx_no_descriptor: u64,
    /// Multicast packets received.
    pub rx_multicast: u64,
    /// Broadcast packets received.
    pub rx_broadcast: u64,
    /// Packets received, good or bad.
    pub rx_total_packets: u64,
    /// Bytes received, good or bad.
    pub rx_total_bytes: u64,
    /// Good packets received of 64, 65 to 127, 128 to 255, 256 to 511, 512 to 1023, and 1024 or more bytes.
    pub rx_sizes: [u64; SIZES],
    /// Errors of received packets.
    pub rx_errors: ReceiveErrors,
    /// Good packets sent, pause frames not counted.
    pub tx_packets: u64,
    /// Bytes of good packets sent, from destination address to CRC, pause frames not counted.
    pub tx_bytes: u64,
    /// Multicast packets sent, pause frames not counted.
    pub tx_multicast: u64,
    /// Broadcast packets sent.
    pub tx_broadcast: u64,
    /// Packets sent, pause frames included.
    pub tx_total_packets: u64,
    /// Good packets sent, by the same sizes as `rx_sizes`, pause frames not counted.
    pub tx_sizes: [u64; SIZES],
    /// Link pause frames.
    pub pause: PauseFrames,
    /// Faults detected by this side of the link.
    pub local_faults: u64,
    /// Faults that the other side of the link reported.
    pub remote_faults: u64,
    /// Counters of queues, in slots: queue `n` is counted in slot `n % 16`.
    pub queues: [QueueStatistics; 16],
    /// How many times a counter was full when it was read, so that its total is too low. If this grows, read more
    /// often.
    pub saturated: u64,
    /// Number of counters that there was no time to read in the last call, whose totals are older. A counter of 36
    /// bits, in two registers, counts as one.
    pub unread: usize,
}

/// Packets received in error, by kind of error; a packet may be counted in several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceiveErrors {
    /// Wrong CRC.
    pub crc: u64,
    /// Illegal bytes on the wire.
    pub illegal_bytes: u64,
    /// Error bytes on the wire.
    pub error_bytes: u64,
    /// Too short for the MAC.
    pub short: u64,
    /// The length field does not match the length of the packet.
    pub length: u64,
    /// Below 64 bytes, CRC correct.
    pub undersize: u64,
    /// Below 64 bytes, CRC wrong.
    pub fragments: u64,
    /// Above the largest frame, CRC correct.
    pub oversize: u64,
    /// Above the largest frame, CRC wrong.
    pub jabber: u64,
    /// IP, TCP, UDP or SCTP checksum wrong. The 82599 also counts UDP packets without checksum.
    pub checksum: u64,
}

/// Link pause frames (IEEE 802.3 annex 31B).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PauseFrames {
    /// Sent to stop the other side.
    pub tx_off: u64,
    /// Sent to let the other side continue.
    pub tx_on: u64,
    /// Received, to stop sending.
    pub rx_off: u64,
    /// Received, to continue sending.
    pub rx_on: u64,
}

/// Counters of the queues that share a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueStatistics {
    /// Packets received.
    pub rx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Packets dropped because there was no free descriptor.
    pub rx_no_descriptor: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
}

/// The reader of a device's counters. There must be one only: reading clears.
pub(crate) struct Counters<D: Device>(counters::Counters<Ixgbe, D, Totals>);

#[derive(Debug, Default)]
struct Totals {
    all: HardwareStatistics,
    differences: Differences,
}

/// The totals that are less than what the device counts: it counts missed packets as received, pause frames as sent.
#[derive(Debug, Default)]
struct Differences {
    received: Difference,
    sent: Difference,
    sent_bytes: Difference,
    sent_multicast: Difference,
    sent_64: Difference,
}

impl<D: Device> Counters<D> {
    /// Maps queues to slots and clears the device's counters.
    pub(crate) fn new(regs: &Registers<D>) -> Result<Self> {
        for i in 0..RQSMR.count() {
            let slots = [0, 1, 2, 3].map(|queue| (i * 4 + queue) % SLOTS);
            let slots = slots.iter().rev().fold(0, |dword, slot| dword << 8 | slot);
            regs.write(RQSMR.at(i), slots);
            regs.write(TQSM.at(i), slots);
        }
        let mut list = List(Vec::new());
        list.errors();
        list.pause();
        list.received();
        list.sent();
        (0..SLOTS).for_each(|slot| list.slot(slot));
        counters::Counters::new(regs, list.0).map(Self)
    }

    /// Returns the totals as of the last poll.
    pub(crate) fn totals(&self) -> &HardwareStatistics {
        &self.0.totals().all
    }

    /// Reads every counter once, adds it up, and returns the totals. Call it every second: at 10 Gbit/s byte counters
    /// are full after 54 s, and drops show late. Takes about 170 register reads; the `deadline` is looked at before each. The
    /// next poll begins where this one ends.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Gone`]; what was read before counts.
    pub(crate) fn poll(&mut self, deadline: Option<Deadline>) -> Result<&HardwareStatistics> {
        self.0.totals_mut().all.unread = self.0.poll(deadline.as_ref())?;
        Ok(self.totals())
    }
}

/// The counters, in the order in which they are read.
struct List<D: Device>(Vec<counters::Counter<Ixgbe, D, Totals>>);

impl<D: Device> List<D> {
    fn errors(&mut self) {
        self.add(CRCERRS, |totals| &mut totals.rx_errors.crc);
        self.add(ILLERRC, |totals| &mut totals.rx_errors.illegal_bytes);
        self.add(ERRBC, |totals| &mut totals.rx_errors.error_bytes);
        self.add(MSPDC, |totals| &mut totals.rx_errors.short);
        self.add(RLEC, |totals| &mut totals.rx_errors.length);
        self.add(RUC, |totals| &mut totals.rx_errors.undersize);
        self.add(RFC, |totals| &mut totals.rx_errors.fragments);
        self.add(ROC, |totals| &mut totals.rx_errors.oversize);
        self.add(RJC, |totals| &mut totals.rx_errors.jabber);
        self.add(XEC, |totals| &mut totals.rx_errors.checksum);
        self.add(MLFC, |totals| &mut totals.local_faults);
        self.add(MRFC, |totals| &mut totals.remote_faults);
    }

    /// The counters of pause frames. The device also counts these among the frames that it sends: as packets of 64 bytes, to a multicast
    /// address.
    fn pause(&mut self) {
        for (register, total) in [
            (LXONTXC, (|pause| &mut pause.tx_on) as fn(&mut PauseFrames) -> &mut u64),
            (LXOFFTXC, |pause| &mut pause.tx_off),
        ] {
            self.count(register, move |Totals { all, differences }, sent| {
                add(total(&mut all.pause), sent);
                differences.sent.add(0, sent);
                differences.sent_bytes.add(0, sent * 64);
                differences.sent_multicast.add(0, sent);
                differences.sent_64.add(0, sent);
            });
        }
        self.add(LXONRXCNT, |totals| &mut totals.pause.rx_on);
        self.add(LXOFFRXCNT, |totals| &mut totals.pause.rx_off);
    }

    fn received(&mut self) {
        // GPRC counts missed packets too, and may do so in an earlier poll than MPC.
        for class in 0..MPC.count() {
            self.count(MPC.at(class), |Totals { all, differences }, missed| {
                add(&mut all.rx_missed, missed);
                differences.received.add(0, missed);
            });
        }
        self.count(GPRC, |totals, good| totals.all.rx_packets = totals.differences.received.add(good, 0));
        self.add_pair(GORCL, GORCH, |totals| &mut totals.rx_bytes);
        self.add_pair(TORL, TORH, |totals| &mut totals.rx_total_bytes);
        self.add(TPR, |totals| &mut totals.rx_total_packets);
        self.add(MPRC, |totals| &mut totals.rx_multicast);
        self.add(BPRC, |totals| &mut totals.rx_broadcast);
        for (register, size) in (0..).zip(0..SIZES) {
            self.add(PRC.at(register), move |totals| &mut totals.rx_sizes[size]);
        }
    }

    fn sent(&mut self) {
        self.count(GPTC, |totals, sent| totals.all.tx_packets = totals.differences.sent.add(sent, 0));
        self.pair(GOTCL, GOTCH, |totals, bytes| totals.all.tx_bytes = totals.differences.sent_bytes.add(bytes, 0));
        self.count(MPTC, |totals, sent| totals.all.tx_multicast = totals.differences.sent_multicast.add(sent, 0));
        self.add(BPTC, |totals| &mut totals.tx_broadcast);
        self.add(TPT, |totals| &mut totals.tx_total_packets);
        self.count(PTC.at(0), |totals, sent| totals.all.tx_sizes[0] = totals.differences.sent_64.add(sent, 0));
        for (register, size) in (1..).zip(1..SIZES) {
            self.add(PTC.at(register), move |totals| &mut totals.tx_sizes[size]);
        }
    }

    fn slot(&mut self, slot: u32) {
        let at = slot as usize;
        self.add(QPRC.at(slot), move |totals| &mut totals.queues[at].rx_packets);
        self.add_pair(QBRC_L.at(slot), QBRC_H.at(slot), move |totals| &mut totals.queues[at].rx_bytes);
        self.count(QPRDC.at(slot), move |totals, dropped| {
            add(&mut totals.all.queues[at].rx_no_descriptor, dropped);
            add(&mut totals.all.rx_no_descriptor, dropped);
        });
        self.add(QPTC.at(slot), move |totals| &mut totals.queues[at].tx_packets);
        self.add_pair(QBTC_L.at(slot), QBTC_H.at(slot), move |totals| &mut totals.queues[at].tx_bytes);
    }

    /// A counter that is added to a total.
    fn add(&mut self, register: Reg<Ixgbe, ReadClears>, total: impl Field) {
        self.count(register, move |totals, count| add(total(&mut totals.all), count));
    }

    fn add_pair(&mut self, low: Reg<Ixgbe, ReadClears>, high: Reg<Ixgbe, ReadClears>, total: impl Field) {
        self.pair(low, high, move |totals, count| add(total(&mut totals.all), count));
    }

    /// A counter of 32 bits.
    fn count(&mut self, register: Reg<Ixgbe, ReadClears>, take: impl Fn(&mut Totals, u64) + Send + Sync + 'static) {
        self.0.push(counters::counter(register, move |totals: &mut Totals, count| {
            totals.all.saturated += u64::from(count == u64::from(u32::MAX));
            take(totals, count);
        }));
    }

    /// A counter of 36 bits.
    fn pair(
        &mut self,
        low: Reg<Ixgbe, ReadClears>,
        high: Reg<Ixgbe, ReadClears>,
        take: impl Fn(&mut Totals, u64) + Send + Sync + 'static,
    ) {
        const FULL: u64 = (1 << 36) - 1;
        self.0.push(counters::counter_pair(low, high, move |totals: &mut Totals, count| {
            totals.all.saturated += u64::from(count & FULL == FULL);
            take(totals, count & FULL);
        }));
    }
}

/// A total.
trait Field: Fn(&mut HardwareStatistics) -> &mut u64 + Send + Sync + 'static {}

impl<T: Fn(&mut HardwareStatistics) -> &mut u64 + Send + Sync + 'static> Field for T {}

/// A total that is the difference of two counters. It never goes back, even when what is to be taken away
/// shows up later than what it is taken from.
#[derive(Debug, Default)]
struct Difference {
    plus: u64,
    minus: u64,
    shown: u64,
}

impl Difference {
    fn add(&mut self, plus: u64, minus: u64) -> u64 {
        add(&mut self.plus, plus);
        add(&mut self.minus, minus);
        self.shown = self.shown.max(self.plus.saturating_sub(self.minus));
        self.shown
    }
}

/// Counters for queues, and for sizes of packets.
const SLOTS: u32 = 16;
const SIZES: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;
    use device::TimeLimit;
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::Duration;

    /// All counters of 8.2.3.23 that this driver reads, and where they are.
    fn offsets() -> Vec<u32> {
        let single = [
            0x4000, 0x4004, 0x4008, 0x4010, 0x4034, 0x4038, 0x4040, 0x3F60, 0x3F68, 0x41A4, 0x41A8, 0x4074, 0x4078,
            0x407C, 0x4080, 0x4088, 0x408C, 0x4090, 0x4094, 0x40A4, 0x40A8, 0x40AC, 0x40B0, 0x40C0, 0x40C4, 0x40D0,
            0x40D4, 0x40F0, 0x40F4, 0x4120,
        ];
        let mut offsets = Vec::from(single);
        offsets.extend((0..8).map(|i| 0x3FA0 + 4 * i));
        offsets.extend((0..6).flat_map(|i| [0x405C + 4 * i, 0x40D8 + 4 * i]));
        let slot = |q: u32| [0x1030, 0x1034, 0x1038, 0x1430, 0x6030].map(|base| base + 0x40 * q);
        offsets.extend((0..16).flat_map(slot));
        offsets.extend((0..16).flat_map(|q| [0x8700 + 8 * q, 0x8704 + 8 * q]));
        offsets
    }

    fn counters(fake: &Fake) -> Counters<Fake> {
        let counters = Counters::new(&fake.regs()).unwrap();
        assert_eq!(*counters.totals(), HardwareStatistics::default());
        counters
    }

    /// The next read of `register` gives `value`, further ones 0.
    fn once(fake: &Fake, register: Reg<Ixgbe, ReadClears>, value: u32) {
        let mut value = Some(value);
        fake.on_read(register, move |_| value.take().unwrap_or(0));
    }

    #[test]
    fn each_counter_is_read_exactly_once_a_poll() {
        let fake = Fake::new(0x10FB);
        let mut counters = counters(&fake);
        let before = fake.reads().len();
        counters.poll(None).unwrap();
        let mut times = BTreeMap::new();
        for offset in fake.reads().split_off(before) {
            *times.entry(offset).or_insert(0) += 1;
        }
        let expected: BTreeMap<_, _> = offsets().into_iter().map(|offset| (offset, 1)).collect();
        assert_eq!(times, expected);
    }

    #[test]
    fn queue_n_counts_in_slot_n_modulo_16() {
        let fake = Fake::new(0x10FB);
        counters(&fake);
        for map in [RQSMR, TQSM] {
            assert_eq!(
                [0, 1, 3, 4, 31].map(|i| fake.get(map.at(i))),
                [0x0302_0100, 0x0706_0504, 0x0F0E_0D0C, 0x0302_0100, 0x0F0E_0D0C]
            );
        }
    }

    #[test]
    fn byte_counters_are_36_bits() {
        let fake = Fake::new(0x10FB);
        let mut counters = counters(&fake);
        let before = fake.reads().len();
        for (low, high) in
            [(GORCL, GORCH), (GOTCL, GOTCH), (QBRC_L.at(3), QBRC_H.at(3)), (QBTC_L.at(15), QBTC_H.at(15))]
        {
            once(&fake, low, 0x8000_0001);
            once(&fake, high, 0xFFFF_FFF5);
        }
        let expected = 0x5_8000_0001;
        let totals = counters.poll(None).unwrap();
        assert_eq!((totals.rx_bytes, totals.tx_bytes), (expected, expected));
        assert_eq!((totals.queues[3].rx_bytes, totals.queues[15].tx_bytes), (expected, expected));
        let reads = fake.reads().split_off(before);
        let position = |offset| reads.iter().position(|&read| read == offset).unwrap();
        assert!(position(GORCL.offset()) < position(GORCH.offset()), "the high half clears both");
    }

    #[test]
    fn totals_add_up_over_polls() {
        let fake = Fake::new(0x10FB);
        let mut counters = counters(&fake);
        for _ in 0..3 {
            once(&fake, CRCERRS, 2);
            once(&fake, QPRDC.at(1), 5);
            once(&fake, PRC.at(5), 7);
            counters.poll(None).unwrap();
        }
        let totals = counters.totals();
        assert_eq!((totals.rx_errors.crc, totals.rx_no_descriptor, totals.queues[1].rx_no_descriptor), (6, 15, 15));
        assert_eq!((totals.rx_sizes[5], totals.saturated), (21, 0));
    }

    #[test]
    fn missed_packets_are_not_good_ones_whenever_they_show() {
        let fake = Fake::new(0x10FB);
        let mut counters = counters(&fake);
        once(&fake, GPRC, 100);
        assert_eq!(counters.poll(None).unwrap().rx_packets, 100);
        once(&fake, MPC.at(0), 10);
        let totals = counters.poll(None).unwrap();
        assert_eq!((totals.rx_packets, totals.rx_missed), (100, 10), "does not go back");
        once(&fake, GPRC, 30);
        assert_eq!(counters.poll(None).unwrap().rx_packets, 120);
    }

    #[test]
    fn pause_frames_are_not_traffic() {
        let fake = Fake::new(0x10FB);
        let mut counters = counters(&fake);
        let sent = [(LXONTXC, 2), (LXOFFTXC, 3), (GPTC, 105), (GOTCL, 105 * 64), (MPTC, 6), (PTC.at(0), 105)];
        sent.iter().for_each(|&(register, value)| once(&fake, register, value));
        let totals = counters.poll(None).unwrap();
        assert_eq!((totals.tx_packets, totals.tx_bytes, totals.tx_multicast, totals.tx_sizes[0]), (100, 6400, 1, 100));
        assert_eq!((totals.pause.tx_on, totals.pause.tx_off), (2, 3));
    }

    #[test]
    fn full_counters_are_told_and_never_go_back() {
        let fake = Fake::new(0x10FB);
        let mut counters = counters(&fake);
        for offset in offsets() {
            fake.on_read_at(offset, |_| u32::MAX);
        }
        let mut last = counters.poll(None).unwrap().clone();
        assert!(last.saturated > 100);
        assert_eq!((last.rx_bytes, last.rx_multicast), ((1 << 36) - 1, u32::MAX.into()));
        for _ in 0..4 {
            let now = counters.poll(None).unwrap().clone();
            let pairs = [
                (last.rx_packets, now.rx_packets),
                (last.tx_packets, now.tx_packets),
                (last.tx_bytes, now.tx_bytes),
                (last.tx_sizes[0], now.tx_sizes[0]),
                (last.rx_missed, now.rx_missed),
                (last.queues[9].tx_bytes, now.queues[9].tx_bytes),
            ];
            assert!(pairs.iter().all(|(before, after)| before <= after), "{pairs:?}");
            last = now;
        }
    }

    #[test]
    fn a_poll_that_ends_early_loses_nothing() {
        let whole = totals_after_a_break(usize::MAX).0;
        assert!(whole.rx_packets > 0 && whole.tx_bytes > 0 && whole.queues[15].tx_bytes > 0);
        for reads in 1..offsets().len() {
            let (totals, read) = totals_after_a_break(reads);
            assert_eq!(totals, whole, "a break after {reads} reads");
            assert!((reads..=reads + 1).contains(&read), "{read} reads before a break after {reads}");
        }
    }

    #[test]
    fn polls_that_end_early_read_all_in_turn() {
        let fake = Fake::new(0x10FB);
        let mut counters = counters(&fake);
        let whole = counters.0.count();
        let (cancel, count) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        for offset in offsets() {
            let (cancel, count) = (Arc::clone(&cancel), Arc::clone(&count));
            fake.on_read_at(offset, move |_| {
                cancel.store(count.fetch_add(1, Ordering::Relaxed) + 1 >= 50, Ordering::Relaxed);
                1
            });
        }
        let limit = TimeLimit { total: Duration::from_secs(3600), cancel: Some(Arc::clone(&cancel)) };
        let before = fake.reads().len();
        let mut read = 0;
        for _ in 0..10 {
            cancel.store(false, Ordering::Relaxed);
            count.store(0, Ordering::Relaxed);
            read += whole - counters.poll(Some(limit.begin())).unwrap().unread;
        }
        let mut times = BTreeMap::new();
        for offset in fake.reads().split_off(before) {
            *times.entry(offset).or_insert(0) += 1;
        }
        assert!(offsets().iter().all(|offset| matches!(times.get(offset), Some(3 | 4))), "{times:?}");
        let high = |offset: &u32| {
            [GORCH, GOTCH, TORH].iter().any(|register| register.offset() == *offset)
                || (0..16).any(|slot| [QBRC_H.at(slot), QBTC_H.at(slot)].iter().any(|high| high.offset() == *offset))
        };
        let counted: usize = times.iter().filter(|(offset, _)| !high(offset)).map(|(_, times)| times).sum();
        assert_eq!(read, counted, "two registers are one counter");
        // One with time begins there too, and reads each counter once.
        let before = fake.reads().len();
        assert_eq!(counters.poll(None).unwrap().unread, 0);
        let mut last = fake.reads().split_off(before);
        last.sort_unstable();
        let mut all = offsets();
        all.sort_unstable();
        assert_eq!(last, all);
    }

    /// The totals of a poll that is cancelled after so many reads and of one that is not, and how many reads the first one did.
    fn totals_after_a_break(reads: usize) -> (HardwareStatistics, usize) {
        let fake = Fake::new(0x10FB);
        let mut counters = counters(&fake);
        let (cancel, count) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        // Much where something is taken away.
        let large = [GPRC, GPTC, MPTC, PTC.at(0)].map(Reg::offset);
        for (value, offset) in (1000..).zip(offsets()) {
            let value = if large.contains(&offset) { value << 8 } else { value };
            let (mut value, cancel, count) = (value, Arc::clone(&cancel), Arc::clone(&count));
            fake.on_read_at(offset, move |_| {
                cancel.store(count.fetch_add(1, Ordering::Relaxed) + 1 >= reads, Ordering::Relaxed);
                std::mem::take(&mut value)
            });
        }
        let limit = TimeLimit { total: Duration::from_secs(3600), cancel: Some(cancel) };
        counters.poll(Some(limit.begin())).unwrap();
        let first = count.load(Ordering::Relaxed);
        (counters.poll(None).unwrap().clone(), first)
    }

    #[test]
    fn a_removed_device_adds_nothing() {
        let fake = Fake::new(0x10FB);
        let mut counters = counters(&fake);
        fake.vanish_at_read(0);
        assert!(matches!(counters.poll(None), Err(crate::Error::Gone { .. })));
        assert_eq!(*counters.totals(), HardwareStatistics::default());
    }
}
