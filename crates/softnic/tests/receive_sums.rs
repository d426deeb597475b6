//! Receive checksums, packet types and fragments, against packets whose sums were worked out the slow way (7.1.6, 7.1.11).
#![expect(clippy::cast_possible_truncation, clippy::unwrap_used, reason = "tests")]

mod common;
mod oracle;

use common::{Driver, Plan, rx};
use oracle::{Packet, SCTP, TCP, UDP, naive_sum};
use proptest::prelude::*;
use softnic::{SoftDevice, StrictNic};

const UDPCS: u64 = 1 << 4;
const L4CS: u64 = 1 << 5;
const IPCS: u64 = 1 << 6;
const UDPV: u64 = 1 << 10;
const L4E: u64 = 1 << 30;
const IPE: u64 = 1 << 31;
const SUMS: u64 = UDPCS | L4CS | IPCS | UDPV | L4E | IPE;

fn start() -> Driver<StrictNic> {
    Driver::start(StrictNic::builder().build(), Plan { buffer_kib: 10, jumbo: Some(9100), ..Plan::default() })
}

/// Status and errors about sums, and dwords 0 and 1.
fn deliver(driver: &mut Driver<StrictNic>, frame: &[u8]) -> (u64, u64, u64) {
    let mut padded = frame.to_vec();
    padded.resize(frame.len().max(60), 0xA5);
    driver.device.inject(&padded);
    driver.device.step();
    let received = driver.receive(0).unwrap();
    assert_eq!(received.bytes, padded);
    (received.high & SUMS, received.low & 0xFFFF_FFFF, received.low >> 32)
}

fn expected(packet: &Packet) -> (u64, u64) {
    let ip =
        if packet.v6 { 0x40 } else { 0x10 } | if packet.options > 0 { if packet.v6 { 0x80 } else { 0x20 } } else { 0 };
    let sums = L4CS | if packet.v6 { 0 } else { IPCS } | if packet.protocol == UDP { UDPCS } else { 0 };
    let kind = match packet.protocol {
        TCP => 0x100,
        UDP => 0x200,
        _ => 0x400,
    };
    (sums, ip | kind)
}

fn every_kind() -> Vec<Packet> {
    let mut packets = Vec::new();
    for (v6, protocol) in [(false, TCP), (false, UDP), (false, SCTP), (true, TCP), (true, UDP), (true, SCTP)] {
        for (options, payload) in [(0, 0), (0, 1), (8, 3), (24, 1311), (0, 8000)] {
            packets.push(Packet { options, ..Packet::new(v6, protocol, payload) });
        }
    }
    packets
}

#[test]
fn right_sums_are_reported_with_the_packet_type() {
    let mut driver = start();
    for packet in every_kind() {
        // Padding is not part of the packet, whatever it holds.
        let (sums, kind, _) = deliver(&mut driver, &packet.frame());
        assert_eq!((sums, kind), expected(&packet), "{packet:?}");
    }
}

#[test]
fn a_flipped_bit_anywhere_is_found() {
    let mut driver = start();
    for packet in every_kind().into_iter().filter(|packet| packet.payload.len() < 1000) {
        let frame = packet.frame();
        let at = 14 + packet.iplen();
        let (sums, _) = expected(&packet);
        for byte in at + 4..frame.len() {
            let mut spoiled = frame.clone();
            spoiled[byte] ^= 0x10;
            if spoiled[at + 6..at + 8] == [0, 0] && packet.protocol == UDP {
                continue;
            }
            assert_eq!(deliver(&mut driver, &spoiled).0, sums | L4E, "byte {byte} of {packet:?}");
        }
        if !packet.v6 {
            let mut spoiled = frame.clone();
            spoiled[22] ^= 1;
            assert_eq!(deliver(&mut driver, &spoiled).0, sums | IPE, "TTL");
        }
    }
}

#[test]
fn what_cannot_be_checked_is_not() {
    let mut driver = start();
    // UDP without a checksum.
    let mut frame = Packet::new(false, UDP, 100).frame();
    frame[40..42].fill(0);
    assert_eq!(deliver(&mut driver, &frame).0, IPCS);
    // A length beyond the frame; a length too short for the header.
    let packet = Packet::new(true, TCP, 100);
    for length in [121u16, 19] {
        let mut frame = packet.frame();
        frame[18..20].copy_from_slice(&length.to_be_bytes());
        assert_eq!(deliver(&mut driver, &frame).0, 0);
    }
    // A routing header with a place left to visit.
    let mut frame = Packet { options: 24, ..Packet::new(true, UDP, 100) }.frame();
    frame[20] = 43;
    frame[57] = 1;
    assert_eq!(deliver(&mut driver, &frame).0, 0);
    // No IP, and no transport.
    assert_eq!(deliver(&mut driver, &common::frame(common::BROADCAST, 200, 1)), (0, 0, 0));
    let mut frame = Packet::new(false, TCP, 100).frame();
    frame[23] = 89;
    frame[24..26].fill(0);
    let sum = !naive_sum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(deliver(&mut driver, &frame), (IPCS, 0x10, 0));
}

#[test]
fn fragments_report_their_sum_and_identification() {
    let mut driver = start();
    let whole = Packet::new(false, UDP, 1001).frame();
    let fragment = |offset: usize, more: bool, payload: &[u8]| {
        let mut frame = whole[..34].to_vec();
        frame[16..18].copy_from_slice(&(20 + payload.len() as u16).to_be_bytes());
        let field = (offset / 8) as u16 | u16::from(more) << 13;
        frame[20..22].copy_from_slice(&field.to_be_bytes());
        frame[24..26].fill(0);
        let sum = !naive_sum(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame.extend(payload);
        frame
    };
    let (first, second) = (fragment(0, true, &whole[34..34 + 600]), fragment(600, false, &whole[634..]));
    for (rxcsum, reported) in [(0u32, false), (1 << 12, true), (1 << 13 | 1 << 12, false)] {
        driver.write(0x5000, rxcsum);
        let a = deliver(&mut driver, &first);
        let b = deliver(&mut driver, &second);
        assert_eq!((a.0, b.0), (IPCS | UDPCS | UDPV, IPCS | UDPCS));
        assert_eq!((a.1, b.1), (0x10, 0x10));
        if reported {
            assert_eq!((a.2 & 0xFFFF, b.2 & 0xFFFF), (0xFFFE, 0xFFFE), "IP identification");
            // The sums of the fragments and the pseudo-header are that of a right datagram.
            let mut all = (a.2 >> 16).to_be_bytes()[6..].to_vec();
            all.extend(&(b.2 >> 16).to_be_bytes()[6..]);
            all.extend(&whole[26..34]);
            all.extend([0, 17]);
            all.extend(1009u16.to_be_bytes());
            assert_eq!(naive_sum(&all), 0xFFFF);
        } else {
            assert_eq!((a.2, b.2), (0, 0));
        }
        assert_eq!(deliver(&mut driver, &whole).2, 0, "whole datagrams have none");
    }
}

#[test]
fn a_stripped_tag_does_not_disturb_the_sums() {
    let mut driver = start();
    driver.write(rx(0, 0x28), common::ENABLE | 1 << 30);
    for packet in every_kind() {
        let frame = packet.frame();
        let tagged = [&frame[..12], &[0x81, 0, 0x20, 7], &frame[12..]].concat();
        driver.device.inject(&tagged);
        driver.device.step();
        if tagged.len() < 60 {
            continue;
        }
        let received = driver.receive(0).unwrap();
        assert_eq!((received.high & SUMS, received.high & 8, received.high >> 48), (expected(&packet).0, 8, 0x2007));
    }
}

#[test]
fn legacy_descriptors_have_the_errors_too() {
    let mut driver = Driver::start(StrictNic::builder().build(), Plan { legacy: true, ..Plan::default() });
    let frame = Packet::new(false, TCP, 100).frame();
    let mut spoiled = frame.clone();
    spoiled[22] ^= 1;
    spoiled[100] ^= 1;
    for (frame, errors) in [(&frame, 0), (&spoiled, 0xC0)] {
        driver.device.inject(frame);
        driver.device.step();
        let received = driver.receive(0).unwrap();
        assert_eq!((received.high >> 32 & 0xFF, received.high >> 40 & 0xFF), (3 | IPCS | L4CS, errors));
    }
}

/// The generator's frames are not summed again by the device: that they are right is shown here.
#[test]
fn generated_frames_are_right() {
    let device = SoftDevice::open("sums?wire=gen&size=60-200&flows=70000&count=400").unwrap();
    let mut driver = Driver::start(device, Plan { fctrl: 1 << 9, ..Plan::default() });
    let packet = Packet::new(false, UDP, 0);
    for _ in 0..400 {
        let received = common::wait("a frame", || driver.receive(0));
        assert_eq!((received.high & SUMS, received.low & 0xFFFF_FFFF), (IPCS | L4CS | UDPCS, 0x210));
        oracle::assert_sums(&packet, &received.bytes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever arrives is delivered, byte for byte.
    #[test]
    fn garbage_is_survived(
        (kind, cut) in (0..4u8, 14..200usize), bytes in prop::collection::vec(any::<u8>(), 200)
    ) {
        let mut driver = start();
        let mut frame = bytes;
        frame[..6].fill(0xFF);
        frame[12..14].copy_from_slice(&[[8, 0], [0x86, 0xDD], [0x81, 0], [0, 0]][usize::from(kind)]);
        if kind < 2 {
            frame[14] = [0x45, 0x60][usize::from(kind)] | frame[14] & 0xF;
        }
        frame.truncate(cut);
        deliver(&mut driver, &frame);
    }
}
