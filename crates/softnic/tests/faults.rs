//! Each fault, seen as a driver sees it.
#![allow(clippy::cast_possible_truncation, clippy::unwrap_used, reason = "tests")]

mod common;

use common::{BROADCAST, CTRL, Driver, EOP, LINKS, MAXFRS, Plan, STATUS, frame, rx, tx};
use device::{Bar as _, Device as _};
use softnic::{Fault, OnViolation, SoftDevice, StrictNic, Violation};

fn start() -> Driver<StrictNic> {
    Driver::start(StrictNic::builder().build(), Plan::default())
}

/// Length and status of the first descriptors after `frames` frames of 100 bytes.
fn received(driver: &Driver<StrictNic>, frames: u32) -> Vec<(u64, u64)> {
    for _ in 0..frames {
        driver.device.inject(&frame(BROADCAST, 100, 1));
    }
    driver.device.step();
    let high = |index| driver.rx_descriptor(0, index).1;
    (0..frames).map(|index| (high(index) >> 32 & 0xFFFF, high(index) & 0xFFFF_FFFF)).collect()
}

#[test]
fn stuck_reset_and_stuck_gio() {
    let nic = StrictNic::builder().fault(Fault::StuckReset).fault(Fault::StuckGio).build();
    let driver = Driver::stopped(nic, Plan::default());
    driver.write(CTRL, 1 << 2);
    for _ in 0..100 {
        assert_ne!(driver.read(STATUS) & 1 << 19, 0);
    }
    driver.write(CTRL, 1 << 26);
    for _ in 0..100 {
        assert_ne!(driver.read(CTRL) & 1 << 26, 0);
    }
    driver.device.clear_faults();
    driver.reset();
}

#[test]
fn removal_at_any_read() {
    for after_reads in [0, 1, 10, 40] {
        let driver = start();
        driver.device.inject_fault(Fault::Removal { after_reads });
        for _ in 0..after_reads {
            assert_ne!(driver.read(STATUS), u32::MAX);
        }
        assert_eq!(driver.read(STATUS), u32::MAX);
        driver.write(rx(0, 0x18), 99);
        driver.device.inject(&frame(BROADCAST, 60, 1));
        assert!(driver.device.step().is_idle());
        assert_eq!(driver.rx_descriptor(0, 0).1, 0, "no DMA from a device that is gone");
        driver.device.clear_faults();
        assert_eq!(driver.read(STATUS), u32::MAX, "gone is gone");
    }
}

#[test]
fn receive_write_back() {
    let driver = start();
    driver.device.inject_fault(Fault::RxLengthZero { every: 2 });
    assert_eq!(received(&driver, 4), [(100, 3), (0, 3), (100, 3), (0, 3)]);

    let driver = start();
    driver.device.inject_fault(Fault::RxLengthOver { length: 65535 });
    assert_eq!(received(&driver, 2), [(65535, 3), (65535, 3)]);

    let driver = start();
    driver.device.inject_fault(Fault::RxNoEop);
    assert!(received(&driver, 3).iter().all(|(_, status)| status & EOP == 0));

    let driver = start();
    driver.device.inject_fault(Fault::RxErrorBits { every: 1 });
    assert!(received(&driver, 3).iter().all(|(_, status)| status & 1 << 29 != 0));
}

#[test]
fn receive_out_of_order() {
    let driver = start();
    driver.device.inject_fault(Fault::RxOutOfOrder);
    let done = |index| driver.rx_descriptor(0, index).1 & 1;
    driver.device.inject(&frame(BROADCAST, 60, 1));
    driver.device.step();
    assert_eq!((done(0), done(1)), (0, 0), "the first waits for the second");
    for _ in 0..2 {
        driver.device.inject(&frame(BROADCAST, 61, 1));
    }
    driver.device.step();
    assert_eq!((done(0), done(1), done(2)), (1, 1, 0));
    assert_eq!(driver.rx_descriptor(0, 0).1 >> 32 & 0xFFFF, 60, "each with its own contents");
}

#[test]
fn transmit_stops_or_keeps_quiet() {
    let mut driver = start();
    driver.device.inject_fault(Fault::TxFrozen);
    driver.send(0, &frame(BROADCAST, 60, 1));
    driver.device.step_until_idle(5);
    assert_eq!((driver.read(tx(0, 0x10)), driver.device.transmitted().len()), (0, 0));
    assert!(!driver.device.transmit_idle());
    driver.device.clear_faults();
    driver.device.step();
    assert_eq!((driver.read(tx(0, 0x10)), driver.device.transmitted().len()), (1, 1));

    let mut driver = start();
    driver.device.inject_fault(Fault::TxNoDd);
    let index = driver.send(0, &frame(BROADCAST, 60, 1));
    driver.device.step();
    assert_eq!((driver.read(tx(0, 0x10)), driver.device.transmitted().len()), (1, 1));
    assert!(!driver.tx_done(0, index));

    let mut driver = start();
    driver.device.inject_fault(Fault::TxOutOfOrder);
    driver.send(0, &frame(BROADCAST, 60, 1));
    driver.device.step();
    assert!(!driver.tx_done(0, 0));
    driver.send(0, &frame(BROADCAST, 60, 1));
    driver.device.step();
    assert!(driver.tx_done(0, 0) && driver.tx_done(0, 1));
}

#[test]
fn the_link_flaps() {
    let driver = start();
    driver.write(0x880, 1 << 20);
    driver.read(common::EICR);
    driver.device.inject_fault(Fault::LinkFlap { period: 50 });
    let (mut downs, mut causes) = (0, 0);
    for _ in 0..400 {
        driver.device.step();
        downs += u32::from(driver.read(LINKS) & 1 << 30 == 0);
        causes += u32::from(driver.read(common::EICR) & 1 << 20 != 0);
    }
    assert!(downs > 50 && downs < 350, "{downs}");
    assert!(causes >= 8, "{causes} link status changes");
}

#[test]
fn faults_from_a_specification_reach_the_threaded_face() {
    let nic = SoftDevice::open("faults-removed?fault=removal:2").unwrap();
    assert_ne!(nic.bar().read32(STATUS), u32::MAX);
    assert_ne!(nic.bar().read32(STATUS), u32::MAX);
    assert_eq!(nic.bar().read32(STATUS), u32::MAX);
    let control = nic.control();
    nic.reset().unwrap();
    drop(nic);
    assert_eq!(control.wire_counters().sent, 0, "the handle outlives the device");
}

#[test]
fn a_stopped_device_reaches_no_memory_nor_does_a_removed_one() {
    let plan = Plan { fctrl: 1 << 9, ..Plan::default() };
    for removed in [false, true] {
        let device = SoftDevice::open(&format!("quiet-{removed}?wire=gen")).unwrap();
        let control = device.control();
        let mut driver = Driver::start(device, plan);
        common::wait("a frame", || driver.receive(0));
        assert!(control.dma_accesses() > 0);
        let last = if removed {
            control.inject_fault(Fault::Removal { after_reads: 0 });
            control.dma_accesses()
        } else {
            driver.write(CTRL, 1 << 2);
            driver.poll("STATUS.GIO = 0", STATUS, 1 << 19, 0);
            0
        };
        // Descriptors are free, and the generator never ends: all that holds the device back is that it was stopped.
        for _ in 0..1000 {
            assert_eq!(driver.read(STATUS), if removed { u32::MAX } else { 0 });
            assert_eq!(control.dma_accesses(), last);
        }
        assert_eq!(control.mappings(), 1);
    }
}

/// What the datasheet lets a device do after a reset (4.6.3.2), and what a driver loses that does not wait.
#[test]
fn a_slow_reset_takes_no_writes() {
    let fault = Fault::SlowReset { settle_ms: 600_000 };
    let nic = StrictNic::builder().on_violation(OnViolation::Record).fault(fault).build();
    let driver = Driver::stopped(nic, Plan::default());
    driver.write(MAXFRS, 0x2400_0000);
    assert_eq!(driver.read(MAXFRS), 0x2400_0000, "no reset, no wait");
    driver.write(CTRL, 1 << 26);
    driver.write(MAXFRS, 0x2400_0000);
    assert_eq!(driver.read(MAXFRS), 0x05EE_0000, "lost");
    let said = driver.device.violations();
    assert!(matches!(said[..], [Violation::Order(what)] if what.contains("settled")), "{said:?}");
    driver.device.clear_faults();
    driver.write(MAXFRS, 0x2400_0000);
    assert_eq!(driver.read(MAXFRS), 0x2400_0000);
}
