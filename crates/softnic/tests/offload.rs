//! Transmit offloads: what the device makes of a frame, against sums worked out the slow way (datasheet 7.2.3 to 7.2.5).
#![expect(clippy::cast_possible_truncation, reason = "tests")]

mod common;
mod oracle;

use common::{BROADCAST, Driver, Plan, frame, tx};
use oracle::{Packet, SCTP, TCP, UDP, assert_sums, naive_crc32c, naive_sum};
use proptest::prelude::*;
use softnic::{OnViolation, StrictNic, TransmitFault, Violation};

const IXSM: u64 = 1 << 40;
const TXSM: u64 = 1 << 41;
const VLE: u64 = 1 << 30;
const TSE: u64 = 1 << 31;
const CC: u64 = 1 << 39;
const IFCS: u64 = 1 << 25;
const LAST: u64 = 1 << 24 | 1 << 27;

fn start() -> Driver<StrictNic> {
    let nic = StrictNic::builder().on_violation(OnViolation::Record).build();
    let driver = Driver::start(nic, Plan { buffer_kib: 16, descriptors: 64, ..Plan::default() });
    driver.write(common::DMATXCTL, 0x8100_0001);
    driver
}

/// A context descriptor: VLAN, MACLEN, IPLEN, L4LEN, MSS, IPV4, L4T.
#[derive(Clone, Copy, Debug, Default)]
struct Context {
    index: u64,
    vlan: u16,
    maclen: usize,
    iplen: usize,
    l4len: usize,
    mss: usize,
    ipv4: bool,
    l4t: u64,
}

impl Context {
    fn of(packet: &Packet) -> Self {
        let l4t = match packet.protocol {
            UDP => 0,
            TCP => 1,
            _ => 2,
        };
        let (iplen, l4len) = (packet.iplen(), packet.l4len());
        Self { maclen: 14, iplen, l4len, ipv4: !packet.v6, l4t, ..Self::default() }
    }

    fn words(&self) -> (u64, u64) {
        let low = u64::from(self.vlan) << 16 | (self.maclen as u64) << 9 | self.iplen as u64;
        let high = (self.mss as u64) << 48 | (self.l4len as u64) << 40 | self.index << 36;
        (low, high | 1 << 29 | 2 << 20 | self.l4t << 11 | u64::from(self.ipv4) << 10)
    }
}

fn put_context(driver: &mut Driver<StrictNic>, context: Context) {
    let (low, high) = context.words();
    let index = driver.tx_next[0];
    driver.set_tx(0, index, low, high);
    driver.tx_next[0] = (index + 1) % driver.plan.descriptors;
}

/// Sends `bytes` in two descriptors with `bits` set, and PAYLEN as given; returns what left the device.
fn send(driver: &mut Driver<StrictNic>, bytes: &[u8], bits: u64, paylen: usize) -> Vec<Vec<u8>> {
    let (head, rest) = bytes.split_at(bytes.len().min(100) - 1);
    let parts: Vec<&[u8]> = std::iter::once(head).chain(rest.chunks(16_000)).collect();
    let first = driver.tx_next[0];
    let last = driver.put(0, &parts);
    for n in 0..parts.len() as u32 {
        let index = (first + n) % driver.plan.descriptors;
        let at = driver.tx_ring(0) + index as usize * 16;
        let end = if index == last { LAST } else { 0 };
        let high = (paylen as u64) << 46 | 1 << 29 | 3 << 20 | IFCS | bits | end | parts[n as usize].len() as u64;
        driver.set_tx(0, index, driver.arena.word(at).load(std::sync::atomic::Ordering::Relaxed), high);
    }
    driver.ring_tx(0);
    driver.device.step_until_idle(1000);
    assert!(driver.tx_done(0, last), "done, whether sent or not");
    driver.device.transmitted()
}

/// A frame as software hands it over: the IPv4 checksum 0, the transport's that of the pseudo-header.
fn unfinished(packet: &Packet, segmented: bool) -> Vec<u8> {
    let mut frame = packet.frame();
    let at = 14 + packet.iplen();
    if !packet.v6 {
        frame[24..26].fill(0);
        if segmented {
            frame[16..18].fill(0);
        }
    } else if segmented {
        frame[18..20].fill(0);
    }
    let seed = packet.seed(!segmented).to_be_bytes();
    match packet.protocol {
        TCP => frame[at + 16..at + 18].copy_from_slice(&seed),
        UDP => frame[at + 6..at + 8].copy_from_slice(&seed),
        _ => frame[at + 8..at + 12].fill(0),
    }
    frame
}

#[test]
fn checksums_are_those_of_the_rfcs() {
    let mut driver = start();
    for (v6, protocol) in [(false, TCP), (false, UDP), (false, SCTP), (true, TCP), (true, UDP), (true, SCTP)] {
        for (options, payload) in [(0, 0), (0, 1), (8, 33), (16, 1400), (0, 9000)] {
            let packet = Packet { options, ..Packet::new(v6, protocol, payload) };
            let whole = unfinished(&packet, false);
            let bits = TXSM | if v6 { 0 } else { IXSM };
            put_context(&mut driver, Context::of(&packet));
            let mut expected = packet.frame();
            expected.resize(expected.len().max(60), 0);
            assert_eq!(send(&mut driver, &whole, bits | CC, whole.len()), [expected], "{packet:?}");
        }
    }
    assert_eq!(driver.device.violations(), []);
}

#[test]
fn only_what_is_asked_for_changes() {
    let mut driver = start();
    let packet = Packet::new(false, TCP, 500);
    let whole = unfinished(&packet, false);
    put_context(&mut driver, Context::of(&packet));
    let [plain] = &send(&mut driver, &whole, CC, whole.len())[..] else { panic!("not one frame") };
    assert_eq!(plain, &whole, "CC alone changes nothing");
    let [header] = &send(&mut driver, &whole, IXSM, whole.len())[..] else { panic!("not one frame") };
    assert_eq!((naive_sum(&header[14..34]), &header[34..]), (0xFFFF, &whole[34..]));
    let [transport] = &send(&mut driver, &whole, TXSM, whole.len())[..] else { panic!("not one frame") };
    assert_eq!((&transport[..34], &transport[34..]), (&whole[..34], &packet.frame()[34..]));
}

#[test]
fn a_udp_checksum_of_zero_is_sent_as_ones() {
    let mut driver = start();
    // The payload makes the sum 0xFFFF: the complement of what it was without.
    let mut packet = Packet::new(false, UDP, 2);
    packet.payload = vec![0, 0];
    let without = packet.frame();
    packet.payload = without[40..42].to_vec();
    let whole = unfinished(&packet, false);
    put_context(&mut driver, Context::of(&packet));
    let sent = send(&mut driver, &whole, TXSM | IXSM, whole.len());
    assert_eq!(sent[0][40..42], [0xFF, 0xFF]);
    assert_sums(&packet, &sent[0]);
}

#[test]
fn two_contexts_are_kept_apart() {
    let mut driver = start();
    let (four, six) = (Packet::new(false, TCP, 100), Packet::new(true, UDP, 200));
    put_context(&mut driver, Context { vlan: 5, ..Context::of(&four) });
    put_context(&mut driver, Context { index: 1, vlan: 6, ..Context::of(&six) });
    for round in 0..3 {
        for (packet, index, bits) in [(&four, 0u64, IXSM | TXSM), (&six, 1, TXSM)] {
            let whole = unfinished(packet, false);
            let sent = send(&mut driver, &whole, bits | index << 36, whole.len());
            assert_eq!(sent, [packet.frame()], "round {round}, context {index}");
        }
    }
    // A context that is set anew holds for what comes after it.
    put_context(&mut driver, Context { index: 1, vlan: 0x6123, ..Context::of(&six) });
    let tagged = send(&mut driver, &six.frame(), VLE | 1 << 36, six.frame().len());
    assert_eq!(tagged[0][12..18], [0x81, 0, 0x61, 0x23, 0x86, 0xDD]);
    assert_eq!(driver.device.violations(), []);
}

#[test]
fn tags_are_inserted_and_short_frames_padded_after_that() {
    let mut driver = start();
    let plain = frame(BROADCAST, 50, 1);
    let expected = [&plain[..12], &[0x81, 0x00, 0xE0, 0x2A], &plain[12..], &[0; 6]].concat();
    put_context(&mut driver, Context { vlan: 0xE02A, ..Context::default() });
    assert_eq!(send(&mut driver, &plain, VLE, 50), std::slice::from_ref(&expected));
    // Legacy: the tag is in the descriptor.
    let index = driver.put(0, &[&plain]);
    let at = driver.tx_ring(0) + index as usize * 16;
    let address = driver.arena.word(at).load(std::sync::atomic::Ordering::Relaxed);
    driver.set_tx(0, index, address, 0xE02A << 48 | VLE | LAST | IFCS | 50);
    driver.ring_tx(0);
    driver.device.step();
    assert_eq!(driver.device.transmitted(), [expected]);
    // Octets on the wire count the tag, the padding and the CRC.
    assert_eq!((driver.read(0x4080), driver.read(0x4090), driver.read(0x4094)), (2, 128, 0));
}

#[test]
fn legacy_checksums_cover_what_css_says() {
    let mut driver = start();
    let bytes = frame(BROADCAST, 301, 7);
    for (cso, css, inserted) in [(50u64, 34u64, true), (0, 14, true), (50, 0, true), (255, 254, true)] {
        let index = driver.put(0, &[&bytes]);
        let at = driver.tx_ring(0) + index as usize * 16;
        let address = driver.arena.word(at).load(std::sync::atomic::Ordering::Relaxed);
        driver.set_tx(0, index, address, css << 40 | cso << 16 | 1 << 26 | LAST | IFCS | 301);
        driver.ring_tx(0);
        driver.device.step();
        let mut expected = bytes.clone();
        let sum = !naive_sum(&bytes[css as usize..]);
        expected[cso as usize..cso as usize + 2].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(driver.device.transmitted() == [expected], inserted, "CSO {cso}, CSS {css}");
    }
    // Offsets beyond a short frame: no checksum, and nothing else either.
    let short = frame(BROADCAST, 60, 7);
    let index = driver.put(0, &[&short]);
    let at = driver.tx_ring(0) + index as usize * 16;
    let address = driver.arena.word(at).load(std::sync::atomic::Ordering::Relaxed);
    driver.set_tx(0, index, address, 34 << 40 | 59 << 16 | 1 << 26 | LAST | IFCS | 60);
    driver.ring_tx(0);
    driver.device.step();
    assert_eq!(driver.device.transmitted(), [short]);
}

/// Checks the segments of `packet`, cut at `mss`, against what the datasheet says of each header field (7.2.4.7).
fn check_segments(packet: &Packet, mss: usize, segments: &[Vec<u8>]) {
    let headers = 14 + packet.iplen() + packet.l4len();
    let whole = packet.frame();
    assert_eq!(segments.len(), packet.payload.len().div_ceil(mss).max(1));
    let mut payload: Vec<u8> = Vec::new();
    for (n, segment) in segments.iter().enumerate() {
        assert_sums(packet, segment);
        let (first, last) = (n == 0, n + 1 == segments.len());
        let length = if last { packet.payload.len() - n * mss } else { mss };
        payload.extend(&segment[headers..headers + length]);
        if !packet.v6 {
            let identification = u16::from_be_bytes([segment[18], segment[19]]);
            assert_eq!(identification, 0xFFFEu16.wrapping_add(n as u16), "IP identification of segment {n}");
        }
        let at = 14 + packet.iplen();
        if packet.protocol == TCP {
            let sequence = u32::from_be_bytes([segment[at + 4], segment[at + 5], segment[at + 6], segment[at + 7]]);
            assert_eq!(sequence, 0xFFFF_FF00u32.wrapping_add((n * mss) as u32), "sequence of segment {n}");
            // FIN and PSH only on the last, CWR only on the first: the reset values of DTXTCPFLGL and DTXTCPFLGH.
            let kept = match (first, last) {
                (true, true) => 0xFF,
                (true, false) => 0xF6,
                (false, true) => 0x7F,
                (false, false) => 0x76,
            };
            assert_eq!(segment[at + 13], packet.flags & kept, "flags of segment {n}");
        }
        assert_eq!(segment[..12], whole[..12]);
    }
    assert_eq!(payload, packet.payload, "the payload is cut, and nothing else");
}

fn segment(driver: &mut Driver<StrictNic>, packet: &Packet, mss: usize) -> Vec<Vec<u8>> {
    put_context(driver, Context { mss, ..Context::of(packet) });
    let bits = TSE | TXSM | if packet.v6 { 0 } else { IXSM };
    send(driver, &unfinished(packet, true), bits, packet.payload.len())
}

#[test]
fn segmentation_of_64_kib() {
    let mut driver = start();
    for v6 in [false, true] {
        for protocol in [TCP, UDP] {
            let packet = Packet { flags: 0xFF, ..Packet::new(v6, protocol, 64_000) };
            // Lengths in the whole packet's headers do not matter; they would not fit.
            let segments = segment(&mut driver, &packet, 1448);
            assert_eq!(segments.len(), 45);
            check_segments(&packet, 1448, &segments);
            assert_eq!(driver.read(0x4080), 45, "GPTC counts segments");
            let octets: usize = segments.iter().map(|segment| segment.len() + 4).sum();
            assert_eq!(driver.read(0x4090) as usize, octets, "GOTCL");
            driver.read(0x4094);
        }
    }
    assert_eq!((driver.device.wire_counters().sent, driver.device.violations()), (4 * 45, vec![]));
}

#[test]
fn a_tag_goes_into_every_segment() {
    let mut driver = start();
    let packet = Packet::new(false, TCP, 3000);
    put_context(&mut driver, Context { mss: 1000, vlan: 77, ..Context::of(&packet) });
    let sent = send(&mut driver, &unfinished(&packet, true), TSE | TXSM | IXSM | VLE, 3000);
    let stripped: Vec<Vec<u8>> = sent.iter().map(|frame| [&frame[..12], &frame[16..]].concat()).collect();
    assert!(sent.iter().all(|frame| frame[12..16] == [0x81, 0, 0, 77]));
    check_segments(&packet, 1000, &stripped);
}

#[test]
fn the_tcp_flag_masks_are_registers() {
    let mut driver = start();
    driver.write(0x4A88, 0x0002_0001);
    driver.write(0x4A8C, 0x0004);
    let packet = Packet { flags: 0xFF, ..Packet::new(false, TCP, 30) };
    let sent = segment(&mut driver, &packet, 10);
    assert_eq!(sent.iter().map(|frame| frame[14 + 20 + 13]).collect::<Vec<_>>(), [1, 2, 4]);
}

#[test]
fn more_segments_than_a_step_sends() {
    let mut driver = start();
    let packet = Packet::new(true, TCP, 5000);
    let sent = segment(&mut driver, &packet, 7);
    check_segments(&packet, 7, &sent);
    assert_eq!(driver.read(tx(0, 0x10)), driver.tx_next[0], "TDH");
}

#[test]
fn what_cannot_be_done_is_a_counted_drop() {
    let packet = Packet::new(false, TCP, 1000);
    let good = Context { mss: 500, ..Context::of(&packet) };
    let whole = unfinished(&packet, true);
    let context = TransmitFault::Context;
    let cases: &[(Context, u64, TransmitFault)] = &[
        (Context { mss: 0, ..good }, TSE | TXSM, context("MSS is 0")),
        (Context { l4t: 3, ..good }, TXSM, context("L4T is 3")),
        (Context { l4t: 2, ..good }, TSE, context("SCTP cannot be segmented")),
        (Context { maclen: 13, ..good }, IXSM, context("MACLEN is below 14")),
        (Context { ipv4: false, ..good }, IXSM, context("IXSM without an IPv4 header (IPV4, IPLEN)")),
        (Context { iplen: 19, ..good }, IXSM, context("IXSM without an IPv4 header (IPV4, IPLEN)")),
        (Context { l4len: 19, ..good }, TSE, context("L4LEN does not fit the transport header and the frame")),
        (Context { iplen: 12, ..good }, TSE, context("IPLEN is shorter than an IP header")),
        (Context { mss: 15_900, ..good }, TSE, TransmitFault::TooLong),
        (good, 1 << 42, TransmitFault::Ipsec),
        (good, TXSM | 1 << 36, TransmitFault::MissingContext(1)),
        (good, TXSM | 2 << 36, TransmitFault::ContextIndex(2)),
    ];
    for (context, bits, cause) in cases {
        let mut driver = start();
        put_context(&mut driver, *context);
        let big = Packet::new(false, TCP, 16_000);
        let (bytes, headers) = match cause {
            TransmitFault::TooLong => (unfinished(&big, true), 54),
            _ => (whole.clone(), if bits & TSE != 0 { 34 + context.l4len } else { 0 }),
        };
        let headers = if context.iplen == 12 { headers - 8 } else { headers };
        let sent = send(&mut driver, &bytes, *bits, bytes.len() - headers);
        let violation = Violation::TransmitDescriptor { queue: 0, index: 1, cause: *cause };
        assert_eq!((sent, driver.device.violations()), (vec![], vec![violation]));
        assert_eq!(driver.device.wire_counters().discarded, 1);
        // The queue works on.
        put_context(&mut driver, good);
        assert_eq!(send(&mut driver, &whole, TSE | TXSM | IXSM, 1000).len(), 2);
    }
}

#[test]
fn payload_length_of_a_segmented_frame_counts_no_headers() {
    let mut driver = start();
    let packet = Packet::new(false, TCP, 1000);
    put_context(&mut driver, Context { mss: 500, ..Context::of(&packet) });
    let sent = send(&mut driver, &unfinished(&packet, true), TSE | TXSM | IXSM, 1054);
    let cause = TransmitFault::PayloadLength { dtalen: 1054, paylen: 1054 };
    let violation = Violation::TransmitDescriptor { queue: 0, index: 1, cause };
    assert_eq!((sent, driver.device.violations()), (vec![], vec![violation]));
}

#[test]
fn a_context_index_beyond_two_is_no_context() {
    let mut driver = start();
    put_context(&mut driver, Context { index: 2, ..Context::default() });
    driver.ring_tx(0);
    driver.device.step();
    let cause = TransmitFault::ContextIndex(2);
    assert_eq!(driver.device.violations(), [Violation::TransmitDescriptor { queue: 0, index: 0, cause }]);
}

#[test]
fn the_oracle_knows_published_sums() {
    assert_eq!(naive_crc32c(b"123456789"), 0xE306_9283);
    assert_eq!(naive_sum(&[0x00, 0x01, 0xF2, 0x03, 0xF4, 0xF5, 0xF6, 0xF7]), 0xDDF2);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_segmentation_puts_the_stream_back_together(
        (v6, udp, options, payload, mss) in (any::<bool>(), any::<bool>(), 0..4usize, 1..20_000usize, 1..9000usize)
    ) {
        let mss = mss.max(payload / 400 + 1);
        let mut driver = start();
        let packet = Packet { options: options * 8, flags: 0x99, ..Packet::new(v6, if udp { UDP } else { TCP }, payload) };
        let sent = segment(&mut driver, &packet, mss);
        check_segments(&packet, mss, &sent);
        prop_assert_eq!(driver.device.violations(), []);
    }

    /// Whatever descriptors say, they are done or the ring waits, and nothing panics.
    #[test]
    fn any_descriptors_are_survived(words in prop::collection::vec((any::<u64>(), any::<u64>()), 1..30)) {
        let mut driver = start();
        for (n, (low, high)) in words.iter().enumerate() {
            let index = n as u32;
            let buffer = driver.arena.iova(driver.tx_buffer(0, index));
            // Half of them contexts, most of the others frames in memory that is there, with offloads.
            let kind = if high & 1 << 60 != 0 { 2 } else { 3 };
            let high = high & !(0xF << 20 | 1 << 32 | 0x3 << 37 | 0x30 << 8) | kind << 20 | 1 << 29 | IFCS;
            let low = if kind == 2 { *low } else { buffer };
            let high = if kind == 2 { high } else { high & !(0xFFFF | !0 << 46) | (low % 9000 + 1) | (low % 9000 + 1) << 46 };
            driver.set_tx(0, index, low, high);
        }
        driver.tx_next[0] = words.len() as u32;
        driver.ring_tx(0);
        driver.device.step_until_idle(100);
        prop_assert!(driver.read(tx(0, 0x10)) <= driver.tx_next[0]);
    }
}
