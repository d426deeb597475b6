//! The strict face, driven by hand in the datasheet's order: receive and transmit as a driver sees them.
#![allow(clippy::cast_possible_truncation, clippy::unwrap_used, reason = "tests")]

mod common;

use common::{BROADCAST, Driver, Plan, frame, rx, tx};
use softnic::{OnViolation, StrictNic};

fn start(plan: Plan) -> Driver<StrictNic> {
    Driver::start(StrictNic::builder().build(), plan)
}

#[test]
fn strict_one_frame_each_way() {
    let mut driver = start(Plan::default());
    let incoming = frame(BROADCAST, 100, 1);
    driver.device.inject(&incoming);
    assert_eq!(driver.device.step().received, 1);
    let received = driver.receive(0).unwrap();
    assert_eq!((received.bytes, received.high & 3), (incoming, 3));
    assert_eq!(driver.read(rx(0, 0x10)), 1, "RDH");
    assert!(driver.receive(0).is_none());

    let outgoing = frame([2, 0, 0, 0, 0, 9], 60, 2);
    let index = driver.send(0, &outgoing);
    assert!(!driver.tx_done(0, index));
    assert_eq!(driver.device.step().transmitted, 1);
    assert!(driver.tx_done(0, index));
    assert_eq!(driver.read(tx(0, 0x10)), 1, "TDH");
    assert_eq!(driver.device.transmitted(), [outgoing]);
    assert!(driver.device.transmit_idle());
}

#[test]
fn rings_wrap_many_times() {
    let mut driver = start(Plan { descriptors: 8, ..Plan::default() });
    for round in 0..100u8 {
        let frames: Vec<_> = (0..5).map(|n| frame(BROADCAST, 60 + 20 * n, round.wrapping_add(n as u8))).collect();
        for frame in &frames {
            driver.device.inject(frame);
            driver.send(0, frame);
        }
        driver.device.step_until_idle(10);
        for frame in &frames {
            assert_eq!(&driver.receive(0).unwrap().bytes, frame);
        }
        assert_eq!(driver.device.transmitted(), frames);
        // Descriptors are cleared before they are used again, as a driver that fills them does anyway.
    }
    assert_eq!(driver.device.wire_counters().delivered, 500);
}

#[test]
fn long_frames_take_several_buffers() {
    let mut driver = start(Plan { buffer_kib: 1, jumbo: Some(9018), ..Plan::default() });
    let long = frame(BROADCAST, 9000, 3);
    driver.device.inject(&long);
    driver.device.inject(&frame(BROADCAST, 1024, 4));
    driver.device.step();
    for index in 0..8 {
        assert_eq!(driver.rx_descriptor(0, index).1 & 3, 1, "DD without EOP on buffer {index}");
    }
    let received = driver.receive(0).unwrap();
    assert_eq!((received.descriptors, received.bytes), (9, long));
    let received = driver.receive(0).unwrap();
    assert_eq!((received.descriptors, received.bytes.len()), (1, 1024));

    let whole = frame(BROADCAST, 3000, 5);
    let last = driver.put(0, &[&whole[..14], &whole[14..1014], &whole[1014..2000], &whole[2000..3000]]);
    driver.ring_tx(0);
    driver.device.step();
    assert_eq!(driver.device.transmitted(), [whole]);
    assert!(driver.tx_done(0, last) && !driver.tx_done(0, last - 1), "DD only where RS was");
}

#[test]
fn a_frame_waits_until_all_its_descriptors_are_there() {
    let mut driver = start(Plan::default());
    let whole = frame(BROADCAST, 200, 1);
    driver.put(0, &[&whole[..100], &whole[100..]]);
    driver.write(tx(0, 0x18), 1);
    assert_eq!(driver.device.step().transmitted, 0);
    assert_eq!(driver.read(tx(0, 0x10)), 0);
    driver.ring_tx(0);
    driver.device.step();
    assert_eq!(driver.device.transmitted(), [whole]);
}

#[test]
fn legacy_descriptors_work_both_ways() {
    let mut driver = start(Plan { legacy: true, ..Plan::default() });
    let incoming = frame(BROADCAST, 77, 1);
    driver.device.inject(&incoming);
    driver.device.step();
    let received = driver.receive(0).unwrap();
    assert_eq!(received.bytes, incoming);
    let buffer = driver.tx_buffer(0, 0);
    driver.arena.write(buffer, &incoming);
    driver.set_tx(0, 0, driver.arena.iova(buffer), 77 | 0b1011 << 24);
    driver.write(tx(0, 0x18), 1);
    driver.device.step();
    assert!(driver.tx_done(0, 0));
    assert_eq!(driver.device.transmitted(), [incoming]);
}

#[test]
fn crc_is_appended_when_not_stripped() {
    let mut driver = start(Plan { strip_crc: false, ..Plan::default() });
    // The frame of all ones and its FCS, worked out bit by bit from the polynomial of IEEE 802.3 (3.2.9).
    let incoming = [0xFF; 60];
    let mut crc = u32::MAX;
    for byte in incoming {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = if crc & 1 != 0 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 };
        }
    }
    driver.device.inject(&incoming);
    driver.device.step();
    let received = driver.receive(0).unwrap();
    assert_eq!(received.bytes.len(), 64);
    assert_eq!(received.bytes[60..], (!crc).to_le_bytes());
}

#[test]
fn short_frames_are_padded_or_not() {
    let mut driver = start(Plan::default());
    driver.send(0, &frame(BROADCAST, 20, 1));
    driver.device.step();
    let sent = driver.device.transmitted();
    assert_eq!((sent[0].len(), &sent[0][20..]), (60, &[0; 40][..]));
    driver.write(common::HLREG0, driver.read(common::HLREG0) & !(1 << 10));
    driver.send(0, &frame(BROADCAST, 20, 1));
    driver.device.step();
    assert_eq!(driver.device.transmitted()[0].len(), 20);
}

#[test]
fn a_frame_may_bring_its_own_crc() {
    let nic = StrictNic::builder().on_violation(OnViolation::Record).build();
    let mut driver = Driver::start(nic, Plan::default());
    let good = [&[0xFF; 60][..], &[0x04, 0x7B, 0x3D, 0x0D]].concat();
    for bytes in [good, vec![0xFF; 64]] {
        let index = driver.put(0, &[&bytes]);
        let at = driver.tx_ring(0) + index as usize * 16;
        let high = driver.arena.word(at + 8).load(std::sync::atomic::Ordering::Relaxed);
        driver.set_tx(0, index, driver.arena.iova(driver.tx_buffer(0, index)), high & !(1 << 25));
        driver.ring_tx(0);
        driver.device.step();
    }
    let sent = driver.device.transmitted();
    let violations = driver.device.violations();
    assert_eq!((sent.len() + violations.len(), sent.first().map_or(60, Vec::len)), (2, 60), "{violations:?}");
}

#[test]
fn write_back_in_groups() {
    let mut driver = start(Plan { wthresh: 4, ..Plan::default() });
    for n in 0..3 {
        driver.send(0, &frame(BROADCAST, 60, n));
    }
    driver.device.step();
    assert_eq!(driver.read(tx(0, 0x10)), 3, "sent");
    assert!((0..3).all(|index| !driver.tx_done(0, index)), "not reported yet");
    driver.send(0, &frame(BROADCAST, 60, 3));
    driver.device.step();
    assert!((0..4).all(|index| driver.tx_done(0, index)));
    // With a vector and an interval, time passing is enough.
    driver.write(0x900, 0x8000 | 0x80);
    driver.write(0x820, 0x40);
    driver.send(0, &frame(BROADCAST, 60, 4));
    driver.device.step();
    assert!(driver.tx_done(0, 4));
}

#[test]
fn head_write_back_replaces_dd() {
    let mut driver = start(Plan::default());
    let word = driver.head_word(0);
    let iova = driver.arena.iova(word);
    driver.write(tx(0, 0x3C), (iova >> 32) as u32);
    driver.write(tx(0, 0x38), iova as u32 | 1);
    let index = driver.send(0, &frame(BROADCAST, 60, 1));
    driver.device.step();
    assert!(!driver.tx_done(0, index));
    assert_eq!(driver.arena.word(word).load(std::sync::atomic::Ordering::Relaxed) as u32, 1);
}

#[test]
fn queues_of_both_halves_work() {
    let plan = Plan { queues: 66, descriptors: 8, ..Plan::default() };
    let driver = Driver::stopped(StrictNic::builder().build(), plan);
    let mut driver = driver;
    driver.reset();
    driver.configure_rx();
    driver.start_rx_queue(0);
    driver.start_rx_queue(65);
    driver.enable_receiver();
    driver.write(common::DMATXCTL, 1);
    driver.start_tx_queue(65);
    driver.wait_link();
    driver.send(65, &frame(BROADCAST, 60, 1));
    driver.device.step();
    assert_eq!(driver.device.transmitted().len(), 1);
    assert_eq!(driver.read(rx(65, 0x18)), 7);
    driver.device.inject(&frame(BROADCAST, 60, 1));
    driver.device.step();
    assert!(driver.receive(0).is_some());
}

#[test]
fn disabling_quiesces_and_the_ring_can_start_again() {
    let mut driver = start(Plan::default());
    driver.device.inject(&frame(BROADCAST, 60, 1));
    driver.device.step();
    driver.write(rx(0, 0x28), 0);
    assert_ne!(driver.read(rx(0, 0x28)) & common::ENABLE, 0, "DMA may still be under way");
    driver.poll("RXDCTL.EN = 0", rx(0, 0x28), common::ENABLE, 0);
    driver.device.inject(&frame(BROADCAST, 60, 2));
    driver.device.step();
    assert_eq!(driver.rx_descriptor(0, 1).1, 0, "no DMA once disabled");
    driver.start_rx_queue(0);
    driver.rx_next[0] = 0;
    driver.device.inject(&frame(BROADCAST, 60, 3));
    driver.device.step();
    assert_eq!(driver.receive(0).unwrap().bytes, frame(BROADCAST, 60, 3));
}

#[test]
fn mac_loopback_returns_what_is_sent() {
    let mut driver = start(Plan::default());
    driver.write(common::HLREG0, driver.read(common::HLREG0) | 1 << 15);
    let looped = frame(BROADCAST, 64, 9);
    driver.send(0, &looped);
    driver.device.step_until_idle(5);
    assert_eq!(driver.receive(0).unwrap().bytes, looped);
    assert!(driver.device.transmitted().is_empty(), "nothing leaves the MAC");
}

/// In the order of Linux's loopback test: the link forced up, the cable out, 64 frames of ones at a time, several rounds.
#[test]
fn mac_loopback_needs_no_cable() {
    let nic = StrictNic::builder().link(false).build();
    let mut driver =
        Driver::stopped(nic, Plan { descriptors: 128, fctrl: 1 << 1 | 1 << 8 | 1 << 10, ..Plan::default() });
    driver.reset();
    driver.configure_rx();
    driver.start_rx_queue(0);
    driver.enable_receiver();
    driver.write(common::DMATXCTL, driver.read(common::DMATXCTL) | 1);
    driver.start_tx_queue(0);
    driver.write(common::HLREG0, driver.read(common::HLREG0) | 1 << 15);
    driver.write(common::AUTOC, driver.read(common::AUTOC) | 1);
    driver.wait_link();
    let ones = [0xFF; 1024];
    for _ in 0..5 {
        for _ in 0..64 {
            driver.send(0, &ones);
        }
        driver.device.step_until_idle(20);
        for _ in 0..64 {
            assert_eq!(driver.receive(0).unwrap().bytes, ones);
        }
    }
    assert_eq!((driver.read(0x4080), driver.read(0x4074)), (320, 320), "GPTC and GPRC");
    assert_eq!(driver.device.wire_counters(), softnic::WireCounters::default(), "nothing was on the wire");
}

#[test]
fn drop_en_may_change_while_the_queue_works() {
    let driver = start(Plan::default());
    driver.write(rx(0, 0x14), driver.read(rx(0, 0x14)) | 1 << 28);
    driver.write(rx(0, 0x14), driver.read(rx(0, 0x14)) & !(1 << 28));
}

#[test]
fn strict_dma_stops_with_master_disable_and_reset() {
    let mut driver = start(Plan::default());
    driver.write(common::CTRL, 1 << 2);
    driver.send(0, &frame(BROADCAST, 60, 1));
    driver.device.inject(&frame(BROADCAST, 60, 2));
    assert!(driver.device.step().is_idle());
    assert_eq!(driver.read(common::STATUS) & 1 << 19, 0);
    driver.reset();
    assert_eq!(driver.read(rx(0, 0x28)) & common::ENABLE, 0);
    assert_eq!(driver.read(tx(0, 0x18)), 0);
    assert!(driver.device.step().is_idle());
}
