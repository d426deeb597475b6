//! `wire=gen`: UDP over IPv4 in Ethernet, so many flows, sizes in turn, as fast as descriptors appear or at a rate.

use super::{Sent, Wire};
use std::ops::RangeInclusive;

/// What to generate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GeneratorSetup {
    /// Frame sizes in bytes without CRC, taken in turn.
    pub(crate) size: RangeInclusive<u16>,
    /// Distinct 5-tuples, at least 1.
    pub(crate) flows: u32,
    /// Frames until it ends.
    pub(crate) count: Option<u64>,
    /// Frames a second, at most [`MOST_RATE`].
    pub(crate) rate: Option<u64>,
    /// Whether frames that find no room are missed, instead of waiting.
    pub(crate) drop: bool,
    /// Destination address.
    pub(crate) destination: [u8; 6],
}

/// Smallest and largest frame it makes: headers fit, and the MAC's jumbo limit.
pub(crate) const SIZES: RangeInclusive<u16> = 60..=9000;
/// Most frames a second it can be asked for.
pub(crate) const MOST_RATE: u64 = 1_000_000_000;
/// Addresses of the benchmarking range 198.18.0.0/15: sources in the lower half, destinations in the upper.
const SOURCE: [u8; 4] = [198, 18, 0, 0];
const DESTINATION: [u8; 4] = [198, 19, 0, 0];
const FIRST_PORT: u16 = 1024;
/// UDP port 9, discard.
const DISCARD: u16 = 9;
const ETHERNET: usize = 14;
const IP_CHECKSUM: usize = ETHERNET + 10;
const UDP_CHECKSUM: usize = ETHERNET + 26;

/// The source.
#[derive(Debug)]
pub(crate) struct Generator {
    setup: GeneratorSetup,
    frame: Vec<u8>,
    len: usize,
    prepared: bool,
    flow: u32,
    size: u16,
    made: u64,
    /// Frames that may be taken now (only with a rate).
    due: u64,
    pace: Option<Pace>,
    missed: u64,
}

/// A clock that says how many frames are due.
#[derive(Debug)]
struct Pace {
    start: u64,
    counted: u64,
    hz: u64,
    rate: u64,
}

impl Pace {
    fn new(rate: u64) -> Self {
        Self { start: device::tsc::now(), counted: 0, hz: device::tsc::frequency_hz(), rate }
    }

    /// Frames that have become due since the last call.
    fn due(&mut self) -> u64 {
        let elapsed = device::tsc::now().wrapping_sub(self.start);
        let total = u128::from(elapsed) * u128::from(self.rate) / u128::from(self.hz.max(1));
        let total = u64::try_from(total).unwrap_or(u64::MAX);
        let new = total.saturating_sub(self.counted);
        self.counted = total;
        new
    }
}

impl Generator {
    pub(crate) fn new(setup: GeneratorSetup) -> Self {
        let mut frame = vec![0; usize::from(*setup.size.end())];
        frame[..6].copy_from_slice(&setup.destination);
        frame[6..12].copy_from_slice(&[0x02, 0x52, 0x57, 0, 0, 1]);
        frame[12..14].copy_from_slice(&0x0800u16.to_be_bytes());
        frame[14] = 0x45;
        frame[22] = 64;
        frame[23] = 17;
        frame[26..30].copy_from_slice(&SOURCE);
        frame[30..34].copy_from_slice(&DESTINATION);
        frame[36..38].copy_from_slice(&DISCARD.to_be_bytes());
        let pace = setup.rate.map(Pace::new);
        let size = *setup.size.start();
        Self { setup, frame, len: 0, prepared: false, flow: 0, size, made: 0, due: 0, pace, missed: 0 }
    }

    /// Puts the next flow's addresses and ports, lengths and checksums into the frame.
    #[inline]
    fn prepare(&mut self) {
        let [high, low] = [self.flow >> 16, self.flow & 0xFFFF].map(|half| u16::try_from(half).unwrap_or(0));
        let port = FIRST_PORT.wrapping_add(high);
        let ip_length = self.size - 14;
        let udp_length = ip_length - 20;
        let frame = &mut self.frame;
        frame[16..18].copy_from_slice(&ip_length.to_be_bytes());
        // The same bits in the same places would cancel out in the Toeplitz hash under many keys, the standard one among them:
        // turned by 9 they spread each run of flows evenly over 2, 4, 8 and 16 queues.
        let turned = low.rotate_left(9);
        frame[28..30].copy_from_slice(&turned.to_be_bytes());
        frame[32..34].copy_from_slice(&low.to_be_bytes());
        frame[34..36].copy_from_slice(&port.to_be_bytes());
        frame[38..40].copy_from_slice(&udp_length.to_be_bytes());
        // Sums of the words that never change are constants; the addresses count in both checksums.
        let addresses = word(SOURCE, 0) + word(DESTINATION, 0) + u32::from(turned) + u32::from(low);
        let header = 0x4500 + u32::from(ip_length) + (64 << 8 | 17) + addresses;
        let datagram = addresses + 17 + 2 * u32::from(udp_length) + u32::from(port) + u32::from(DISCARD);
        frame[IP_CHECKSUM..IP_CHECKSUM + 2].copy_from_slice(&checksum(header).to_be_bytes());
        let udp = match checksum(datagram) {
            0 => 0xFFFF,
            sum => sum,
        };
        frame[UDP_CHECKSUM..UDP_CHECKSUM + 2].copy_from_slice(&udp.to_be_bytes());
        self.len = usize::from(self.size);
        self.prepared = true;
    }

    fn skip(&mut self) {
        self.prepared = false;
        self.made += 1;
        self.flow = if self.flow + 1 >= self.setup.flows { 0 } else { self.flow + 1 };
        self.size = if self.size >= *self.setup.size.end() { *self.setup.size.start() } else { self.size + 1 };
    }

    /// As `skip` so many times, in one step: a device that stood still for long has missed more than can be counted singly.
    fn skip_many(&mut self, frames: u64) {
        if frames == 0 {
            return;
        }
        self.prepared = false;
        self.made = self.made.saturating_add(frames);
        let turned = |at: u64, length: u64| (at + frames % length) % length;
        let flows = u64::from(self.setup.flows.max(1));
        self.flow = u32::try_from(turned(self.flow.into(), flows)).unwrap_or(0);
        let (least, most) = (*self.setup.size.start(), *self.setup.size.end());
        let step = turned((self.size - least).into(), u64::from(most - least) + 1);
        self.size = least + u16::try_from(step).unwrap_or(0);
    }

    fn exhausted(&self) -> bool {
        self.setup.count.is_some_and(|count| self.made >= count)
    }
}

impl Wire for Generator {
    fn poll(&mut self, receiving: bool, room: usize) {
        let Some(pace) = &mut self.pace else { return };
        let due = pace.due();
        // A receiver that is off neither receives nor misses; time passes for it all the same.
        if !receiving {
            if !self.setup.drop {
                self.due = 0;
            }
            return;
        }
        self.due = self.due.saturating_add(due);
        if self.setup.drop {
            let fits = room as u64 / u64::from(*self.setup.size.end());
            let left = self.setup.count.map_or(u64::MAX, |count| count.saturating_sub(self.made));
            let late = self.due.saturating_sub(fits).min(left);
            self.due -= late;
            self.missed = self.missed.saturating_add(late);
            self.skip_many(late);
        }
    }

    #[inline]
    fn front(&mut self) -> Option<&[u8]> {
        if self.exhausted() || (self.pace.is_some() && self.due == 0) {
            return None;
        }
        if !self.prepared {
            self.prepare();
        }
        Some(&self.frame[..self.len])
    }

    #[inline]
    fn pop(&mut self) {
        self.skip();
        self.due = self.due.saturating_sub(1);
    }

    fn held(&self) -> usize {
        if !self.setup.drop {
            return 0;
        }
        let left = self.setup.count.map_or(u64::MAX, |count| count.saturating_sub(self.made));
        usize::try_from(self.due.min(left) * u64::from(*self.setup.size.end())).unwrap_or(usize::MAX)
    }

    fn missed(&mut self) -> u64 {
        std::mem::take(&mut self.missed)
    }

    fn may_drop(&self) -> bool {
        self.setup.drop
    }

    fn sums_known(&self) -> bool {
        true
    }

    fn transmit(&mut self, _frame: &[u8]) -> Sent {
        Sent::Yes
    }

    fn needs_bytes(&self) -> bool {
        false
    }

    fn finished(&mut self) -> bool {
        self.exhausted()
    }
}

fn word(address: [u8; 4], at: usize) -> u32 {
    u32::from(u16::from_be_bytes([address[at], address[at + 1]]))
}

/// Folds a sum of 16-bit words and complements it (RFC 1071).
#[inline]
fn checksum(sum: u32) -> u16 {
    let sum = (sum & 0xFFFF) + (sum >> 16);
    let sum = (sum & 0xFFFF) + (sum >> 16);
    !u16::try_from(sum & 0xFFFF).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn setup(size: RangeInclusive<u16>, flows: u32, count: u64) -> GeneratorSetup {
        GeneratorSetup { size, flows, count: Some(count), rate: None, drop: false, destination: [2, 0, 0, 0, 0, 9] }
    }

    /// The ones' complement sum of whole words: 0xFFFF if the checksum in them is right.
    fn sum(bytes: &[u8]) -> u32 {
        let mut sum: u32 =
            bytes.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w.get(1).copied().unwrap_or(0))).sum();
        while sum > 0xFFFF {
            sum = (sum & 0xFFFF) + (sum >> 16);
        }
        sum
    }

    #[test]
    fn strict_frames_are_well_formed_and_flows_distinct() {
        let mut generator = Generator::new(setup(60..=200, 300, 600));
        let mut tuples = HashSet::new();
        let mut sizes = HashSet::new();
        let mut frames = 0;
        while let Some(frame) = generator.front() {
            let ip = &frame[14..];
            assert_eq!(sum(&ip[..20]), 0xFFFF, "IPv4 header checksum");
            let length = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
            assert_eq!(length, ip.len());
            let udp = &ip[20..length];
            assert_eq!(usize::from(u16::from_be_bytes([udp[4], udp[5]])), udp.len());
            let pseudo = [&ip[12..20], &[0, 17], &udp[4..6], udp].concat();
            assert_eq!(sum(&pseudo), 0xFFFF, "UDP checksum");
            tuples.insert(ip[12..24].to_vec());
            sizes.insert(frame.len());
            frames += 1;
            generator.pop();
        }
        assert_eq!((frames, tuples.len(), sizes.len()), (600, 300, 141));
        assert!(generator.finished());
    }

    #[test]
    fn frames_skipped_at_once_are_those_skipped_one_by_one() {
        let mut tried = 0;
        for (size, flows) in [(60..=60, 1), (60..=200, 300), (61..=64, 7), (9000..=9000, u32::MAX), (60..=9000, 65_537)]
        {
            for frames in [0, 1, 2, 3, 5, 7, 140, 141, 299, 301, 8941, 65_537, 100_003] {
                for before in [0, 1, 13] {
                    let [mut at_once, mut singly] =
                        [(); 2].map(|()| Generator::new(setup(size.clone(), flows, u64::MAX)));
                    for generator in [&mut at_once, &mut singly] {
                        (0..before).for_each(|_| generator.pop());
                        let _ = generator.front();
                    }
                    at_once.skip_many(frames);
                    (0..frames).for_each(|_| singly.skip());
                    assert_eq!(at_once.made, singly.made);
                    for _ in 0..3 {
                        assert_eq!(at_once.front(), singly.front(), "{frames} of {flows} flows, {size:?}");
                        at_once.pop();
                        singly.pop();
                    }
                    tried += 1;
                }
            }
        }
        assert_eq!(tried, 5 * 13 * 3);
    }

    /// A clock that started long ago: the process was stopped (SIGSTOP), or the rate is beyond any device.
    fn late(count: Option<u64>, rate: u64, seconds: u64) -> Generator {
        let setup = GeneratorSetup { count, rate: Some(rate), drop: true, ..setup(60..=64, 3, 0) };
        let mut generator = Generator::new(setup);
        let pace = generator.pace.as_mut().unwrap();
        pace.start = pace.start.wrapping_sub(seconds * pace.hz);
        generator
    }

    #[test]
    fn what_a_long_stop_missed_is_skipped_at_once() {
        // A decade at the highest rate: one by one it would take years.
        let decade = 10 * 365 * 86_400;
        let mut generator = late(None, MOST_RATE, decade);
        generator.poll(true, 64 * 10);
        let missed = generator.missed();
        assert!(missed >= decade * MOST_RATE - 10, "{missed}");
        assert_eq!((generator.due, generator.made), (10, missed));
        assert_eq!(generator.front().unwrap().len() as u64, 60 + missed % 5);
        // No more are missed than there are.
        let mut generator = late(Some(1_000_001), 1000, decade);
        generator.poll(true, 0);
        assert_eq!((generator.missed(), generator.finished()), (1_000_001, true));
        assert!(generator.front().is_none());
        generator.poll(true, 0);
        assert_eq!(generator.missed(), 0);
        // An ordinary rate, after a stop of a minute.
        let mut generator = late(None, 1000, 60);
        generator.poll(true, 64 * 100);
        assert!(generator.missed() >= 59_900);
        // And nonsense for a rate.
        let mut generator = late(None, u64::MAX, decade);
        generator.poll(true, 64);
        assert!(generator.missed() > u64::MAX / 2);
        generator.poll(true, 64);
    }

    /// The Toeplitz hash, bit by bit, under the key that the specification of receive side scaling publishes.
    fn toeplitz(input: &[u8]) -> u32 {
        const KEY: [u8; 40] = [
            0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca,
            0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b,
            0xbe, 0xac, 0x01, 0xfa,
        ];
        let bit = |bytes: &[u8], at: usize| u32::from(bytes[at / 8] >> (7 - at % 8) & 1);
        let window = |at: usize| (at..at + 32).fold(0, |word, at| word << 1 | bit(&KEY, at));
        (0..8 * input.len()).filter(|at| bit(input, *at) == 1).fold(0, |hash, at| hash ^ window(at))
    }

    #[test]
    fn s7_flows_spread_evenly_over_queues_under_the_default_key() {
        let published = [66, 9, 149, 187, 161, 142, 100, 80, 0x0A, 0xEA, 0x06, 0xE6];
        assert_eq!(toeplitz(&published), 0x51cc_c178);
        for queues in [2_u32, 4, 8, 16] {
            for flows in [queues, 2 * queues, 3 * queues, 100, 256, 1000] {
                let mut generator = Generator::new(setup(60..=60, flows, flows.into()));
                let mut shares = vec![0_u32; queues as usize];
                while let Some(frame) = generator.front() {
                    // Entry n of the table is queue n modulo their number; the table has 128.
                    shares[(toeplitz(&frame[26..38]) % 128 % queues) as usize] += 1;
                    generator.pop();
                }
                let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
                assert!(most - least <= 1 + flows / queues / 16, "{flows} flows over {queues} queues: {shares:?}");
            }
        }
    }
}
