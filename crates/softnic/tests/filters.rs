//! Filters, steering and statistics of the receive path.
#![allow(clippy::cast_possible_truncation, clippy::unwrap_used, reason = "tests")]

mod common;

use common::{BROADCAST, Driver, FCTRL, Plan, frame, rx};
use softnic::StrictNic;

const STATION: [u8; 6] = [0x02, 0x11, 0x22, 0x33, 0x44, 0x55];

fn start(plan: Plan) -> Driver<StrictNic> {
    Driver::start(StrictNic::builder().mac(STATION).build(), plan)
}

fn passes(driver: &mut Driver<StrictNic>, frame: &[u8]) -> bool {
    driver.device.inject(frame);
    driver.device.step();
    driver.receive(0).is_some()
}

/// A UDP/IPv4 frame.
fn udp(source: [u8; 4], sport: u16, destination: [u8; 4], dport: u16, fragment: bool) -> Vec<u8> {
    let mut frame = frame(BROADCAST, 60, 0);
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14..16].copy_from_slice(&[0x45, 0]);
    frame[20..22].copy_from_slice(&[if fragment { 0x20 } else { 0x40 }, 0]);
    frame[23] = 17;
    frame[26..30].copy_from_slice(&source);
    frame[30..34].copy_from_slice(&destination);
    frame[34..36].copy_from_slice(&sport.to_be_bytes());
    frame[36..38].copy_from_slice(&dport.to_be_bytes());
    frame
}

#[test]
fn strict_address_filters() {
    let mut driver = start(Plan { fctrl: 0, ..Plan::default() });
    let other = frame([0x02, 0x11, 0x22, 0x33, 0x44, 0x56], 60, 0);
    let group = frame([0x01, 0x00, 0x5E, 0x01, 0x02, 0x03], 60, 0);
    assert!(passes(&mut driver, &frame(STATION, 60, 0)), "its own address, from the EEPROM");
    for frame in [&other, &group, &frame(BROADCAST, 60, 0)] {
        assert!(!passes(&mut driver, frame));
    }
    driver.write(FCTRL, 1 << 10);
    assert!(passes(&mut driver, &frame(BROADCAST, 60, 0)), "BAM");
    assert!(!passes(&mut driver, &group));
    driver.write(FCTRL, 1 << 9);
    assert!(passes(&mut driver, &other), "UPE");
    assert!(!passes(&mut driver, &group));
    driver.write(FCTRL, 1 << 8);
    assert!(passes(&mut driver, &group), "MPE");
    assert!(!passes(&mut driver, &other));
    driver.write(FCTRL, 0);
    driver.write(0xA208, 0x3322_1102);
    driver.write(0xA20C, 0x8000_5644);
    assert!(passes(&mut driver, &other), "RAR 1, by its other name");
    driver.write(0x540C, 0x0000_5644);
    assert!(!passes(&mut driver, &other), "AV clear");
}

/// The 82599's table of what DPF and RFCE do to PAUSE frames (3.7.7.3.2), and their counters (8.2.3.23).
#[test]
fn pause_frames() {
    const MFLCN: u32 = 0x4294;
    const LXONRXCNT: u32 = 0x41A4;
    const LXOFFRXCNT: u32 = 0x41A8;
    let control = |destination, opcode: u8, quanta: u8| {
        let mut frame = frame(destination, 60, 0);
        frame[12..18].copy_from_slice(&[0x88, 0x08, 0, opcode, 0, quanta]);
        frame
    };
    let group = [0x01, 0x80, 0xC2, 0x00, 0x00, 0x01];
    let mut driver = start(Plan::default());
    for (mflcn, delivered) in [(0, true), (0x2, true), (0x8, true), (0xA, false)] {
        driver.write(MFLCN, mflcn);
        assert_eq!(passes(&mut driver, &control(group, 1, 7)), delivered, "XOFF, MFLCN {mflcn:#x}");
        assert_eq!(passes(&mut driver, &control(STATION, 1, 0)), delivered, "XON, MFLCN {mflcn:#x}");
        assert!(passes(&mut driver, &control(group, 2, 7)), "not a PAUSE frame");
        assert!(passes(&mut driver, &control([2, 0, 0, 0, 0, 9], 1, 7)), "for another station");
        assert_eq!([LXONRXCNT, LXOFFRXCNT].map(|counter| driver.read(counter)), [1, 1]);
    }
    driver.write(MFLCN, 0);
    driver.write(FCTRL, 0);
    assert!(!passes(&mut driver, &control(group, 1, 7)), "the filters of other frames hold");
}

#[test]
fn multicast_table_by_offset() {
    // The last two bytes of 01:00:5E:01:A2:B3 as bits 47:32 of the address are 0xB3A2.
    for (offset, hash) in [(0u32, 0xB3Au32), (1, 0x674), (2, 0xCE8), (3, 0x3A2)] {
        let mut driver = start(Plan { fctrl: 0, ..Plan::default() });
        let group = frame([0x01, 0x00, 0x5E, 0x01, 0xA2, 0xB3], 60, 0);
        driver.write(0x5200 + 4 * (hash >> 5), 1 << (hash & 31));
        driver.write(0x5090, offset);
        assert!(!passes(&mut driver, &group), "MFE clear");
        driver.write(0x5090, 1 << 2 | offset);
        assert!(passes(&mut driver, &group), "offset {offset}");
        driver.write(0x5200 + 4 * (hash >> 5), 0);
        assert!(!passes(&mut driver, &group));
    }
}

#[test]
fn vlan_filter_and_strip() {
    let mut driver = start(Plan::default());
    let plain = frame(BROADCAST, 64, 1);
    let tagged = [&plain[..12], &[0x81, 0x00, 0x30, 0x2A], &plain[12..]].concat();
    driver.write(0x5088, 1 << 30 | 0x8100);
    assert!(passes(&mut driver, &plain), "untagged");
    assert!(!passes(&mut driver, &tagged));
    driver.write(0xA004, 1 << 10);
    assert!(passes(&mut driver, &tagged), "VLAN 42");
    driver.write(rx(0, 0x28), common::ENABLE | 1 << 30);
    driver.device.inject(&tagged);
    driver.device.step();
    let received = driver.receive(0).unwrap();
    assert_eq!((received.bytes, received.high >> 48, received.high & 8), (plain, 0x302A, 8));
}

#[test]
fn strict_sizes() {
    let mut driver = start(Plan::default());
    let read = |driver: &Driver<StrictNic>, register| driver.read(register);
    assert!(passes(&mut driver, &frame(BROADCAST, 1514, 0)));
    assert!(!passes(&mut driver, &frame(BROADCAST, 1515, 0)));
    assert_eq!((read(&driver, 0x40AC), read(&driver, 0x40AC)), (1, 0), "ROC clears on read");
    assert!(!passes(&mut driver, &frame(BROADCAST, 59, 0)));
    assert_eq!(read(&driver, 0x40A4), 1, "RUC");
    let mut driver = start(Plan { jumbo: Some(2000), ..Plan::default() });
    assert!(passes(&mut driver, &frame(BROADCAST, 1996, 0)));
    assert!(!passes(&mut driver, &frame(BROADCAST, 1997, 0)));
}

#[test]
fn rss_steers_by_the_table() {
    let mut driver = start(Plan { queues: 4, ..Plan::default() });
    // The verification key and its published results: queue by the low 7 bits.
    let key = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca,
        0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b,
        0xbe, 0xac, 0x01, 0xfau8,
    ];
    for (register, bytes) in (0x5C80..).step_by(4).zip(key.chunks_exact(4)) {
        driver.write(register, u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
    }
    for entry in 0..32 {
        driver.write(0x5C00 + 4 * entry, 0x0302_0100);
    }
    driver.write(0x5000, 1 << 13);
    driver.write(0x5818, 1 | 1 << 17);
    let (source, destination) = ([66, 9, 149, 187], [161, 142, 100, 80]);
    let whole = udp(source, 2794, destination, 1766, false);
    let fragment = udp(source, 2794, destination, 1766, true);
    let expect = |driver: &mut Driver<StrictNic>, frame: &[u8], hash: u32, kind: u64, what: &str| {
        driver.device.inject(frame);
        driver.device.step();
        let received = driver.receive(hash & 3).unwrap_or_else(|| panic!("{what}: not in queue {}", hash & 3));
        assert_eq!((received.low >> 32, received.low & 0xF), (hash.into(), kind), "{what}");
        received.low
    };
    expect(&mut driver, &whole, 0x323e_8fc2, 2, "UDP is not selected: addresses only");
    driver.write(0x5818, 1 | 1 << 17 | 1 << 22);
    let low = expect(&mut driver, &whole, 0x51cc_c178, 7, "with ports");
    assert_eq!(low & 0x1_FFF0, 0x210, "packet type IPv4, UDP");
    expect(&mut driver, &fragment, 0x323e_8fc2, 2, "a fragment has no ports");
    driver.write(0x5818, 0);
    driver.device.inject(&whole);
    driver.device.step();
    assert_eq!(driver.receive(0).unwrap().low >> 32, 0, "RSS off");
}

/// EtherTypes (ETQF, ETQS; 7.1.2.3) and five-tuples (7.1.2.5) lead to a queue before RSS does.
#[test]
fn filters_lead_to_queues() {
    const ON: u32 = 1 << 31;
    let mut driver = start(Plan { queues: 4, ..Plan::default() });
    let queue_of = |driver: &mut Driver<StrictNic>, frame: &[u8]| {
        driver.device.inject(frame);
        driver.device.step();
        (0..4).find(|queue| driver.receive(*queue).is_some())
    };
    let mut typed = frame(BROADCAST, 60, 0);
    typed[12..14].copy_from_slice(&[0x88, 0xB5]);
    let [to, other, fragment] = [(9, false), (10, false), (9, true)]
        .map(|(port, fragment)| udp([10, 0, 0, 1], 5, [10, 0, 0, 2], port, fragment));
    for frame in [&typed, &to] {
        assert_eq!(queue_of(&mut driver, frame), Some(0), "no filter");
    }
    driver.write(0x5128 + 8, ON | 0x88B5);
    assert_eq!(queue_of(&mut driver, &typed), Some(0), "ETQS.Queue_Enable is off");
    driver.write(0xEC00 + 8, ON | 1 << 16);
    assert_eq!(queue_of(&mut driver, &typed), Some(1));
    // Filter 7: all five, and another of a lower priority: UDP.
    let at = 4 * 7;
    driver.write(0xE000 + at, u32::from_le_bytes([10, 0, 0, 1]));
    driver.write(0xE200 + at, u32::from_le_bytes([10, 0, 0, 2]));
    driver.write(0xE400 + at, u32::from_le_bytes([0, 5, 0, 9]));
    driver.write(0xE800 + at, 2 << 21);
    driver.write(0xE600 + at, ON | 1 << 30 | 2 << 2 | 1);
    driver.write(0xE800, 3 << 21);
    driver.write(0xE600, ON | 1 << 30 | 0xF << 25 | 1 << 2 | 1);
    assert_eq!([&to, &other, &fragment].map(|frame| queue_of(&mut driver, frame)), [Some(2), Some(3), Some(0)]);
    // Without the destination port, and then of another protocol.
    driver.write(0xE600 + at, ON | 1 << 30 | 1 << 28 | 2 << 2 | 1);
    assert_eq!(queue_of(&mut driver, &other), Some(2));
    driver.write(0xE600 + at, ON | 1 << 30 | 2 << 2);
    assert_eq!(queue_of(&mut driver, &to), Some(3), "TCP");
    driver.write(0xE600, 0);
    assert_eq!(queue_of(&mut driver, &to), Some(0), "off again");
}

#[test]
fn strict_statistics() {
    let mut driver = start(Plan { queues: 2, ..Plan::default() });
    driver.write(0x2300, 3);
    driver.write(0x8600, 5);
    for (to, len) in [(STATION, 60), (BROADCAST, 61), ([1, 0, 0x5E, 0, 0, 1], 1514)] {
        driver.device.inject(&frame(to, len, 0));
        driver.send(0, &frame(to, len, 0));
    }
    driver.device.step();
    let expect = |what: &str, register, value| {
        assert_eq!(driver.read(register), value, "{what}");
        assert_eq!(driver.read(register), 0, "{what} clears on read");
    };
    for (what, register, value) in [
        ("GPRC", 0x4074, 3),
        ("BPRC", 0x4078, 1),
        ("MPRC", 0x407C, 1),
        ("TPR", 0x40D0, 3),
        ("PRC64", 0x405C, 1),
        ("PRC127", 0x4060, 1),
        ("PRC1522", 0x4070, 1),
        ("GPTC", 0x4080, 3),
        ("TPT", 0x40D4, 3),
        ("PTC64", 0x40D8, 1),
        ("MPTC", 0x40F0, 1),
        ("BPTC", 0x40F4, 1),
        ("QPRC 3", 0x10F0, 3),
        ("QPTC 5", 0x6170, 3),
    ] {
        expect(what, register, value);
    }
    let octets = 64 + 65 + 1518;
    for (low, what) in [(0x4088, "GORC"), (0x4090, "GOTC"), (0x40C0, "TOR")] {
        assert_eq!((driver.read(low), driver.read(low), driver.read(low + 4)), (octets, octets, 0), "{what}");
        assert_eq!(driver.read(low), 0, "the high half clears both");
    }
    assert_eq!((driver.read(0x10F4), driver.read(0x8728)), (60 + 61 + 1514, 60 + 61 + 1514), "QBRC, QBTC");
}

#[test]
fn missed_and_no_descriptor_are_different_counters() {
    // Without DROP_EN frames wait in the packet buffer, and are missed when that is full.
    let driver = start(Plan::default());
    driver.write(0x3C00, 0);
    driver.write(0x3C00, 16 << 10);
    for _ in 0..30 {
        driver.device.inject(&frame(BROADCAST, 1024, 0));
    }
    driver.device.step_until_idle(10);
    assert_eq!(driver.read(rx(0, 0x10)), 15, "all descriptors used");
    assert_eq!((driver.read(0x3FA0), driver.read(0x1430)), (14, 0), "MPC: 16 fit in 16 KiB, 14 do not");
    assert_eq!(driver.read(0x4074), 15 + 14, "GPRC counts missed frames too");
    assert_ne!(driver.read(common::EICR) & 1 << 17, 0, "EICR.RX_MISS");
    // With DROP_EN they are dropped at the queue.
    let driver = start(Plan { drop_en: true, ..Plan::default() });
    for _ in 0..30 {
        driver.device.inject(&frame(BROADCAST, 1024, 0));
    }
    driver.device.step_until_idle(10);
    assert_eq!((driver.read(0x3FA0), driver.read(0x1430)), (0, 15), "QPRDC");
    let counters = driver.device.wire_counters();
    assert_eq!((counters.delivered, counters.dropped, counters.missed), (15, 15, 0));
}
