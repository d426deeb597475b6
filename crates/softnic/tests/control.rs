//! Reset, identity, link, interrupts, and the read/write masks of the registers.
#![allow(clippy::cast_possible_truncation, clippy::unwrap_used, reason = "tests")]

mod common;

use common::{AUTOC, BROADCAST, CTRL, Driver, EICR, ENABLE, LINKS, Plan, STATUS, frame, rx, tx};
use device::{Bar as _, Device as _};
use softnic::{DeviceId, OnViolation, StrictNic};
use std::os::fd::OwnedFd;

fn start() -> Driver<StrictNic> {
    Driver::start(StrictNic::builder().build(), Plan::default())
}

/// Reads an eventfd's counter; 0 if it has not fired.
fn fired(fd: &OwnedFd) -> u64 {
    let mut count = [0; 8];
    match rustix::io::read(fd, &mut count) {
        Ok(_) => u64::from_ne_bytes(count),
        Err(_) => 0,
    }
}

#[test]
fn strict_reset_brings_everything_back() {
    let driver = start();
    let mac = driver.device.ids();
    assert_eq!((mac.vendor, mac.device, mac.class), (0x8086, 0x10F9, 0x02_0000));
    driver.write(0x5400, 0x1234_5678);
    driver.write(CTRL, 1 << 26);
    assert_ne!(driver.read(CTRL) & 1 << 26, 0, "not done at once");
    assert_eq!(driver.read(common::EEC) & 1 << 9, 0, "EEC.ARD");
    driver.poll("RST", CTRL, 1 << 26, 0);
    driver.poll("ARD", common::EEC, 1 << 9, 1 << 9);
    driver.poll("DMAIDONE", common::RDRXCTL, 1 << 3, 1 << 3);
    assert_eq!(driver.read(0x5400) & 0xFF, 2, "RAL0 is the EEPROM's address again");
    assert_ne!(driver.read(0x5404) & 1 << 31, 0, "RAH0.AV");
    assert_eq!(driver.read(rx(0, 0x28)) | driver.read(tx(0, 0x28)) | driver.read(common::RXCTRL), 0);
    assert_eq!((driver.read(0x3C00), driver.read(0xCC00), driver.read(0x5088)), (512 << 10, 160 << 10, 0x8100));
    assert_ne!(driver.read(rx(0, 0x0C)) & 1 << 12, 0, "DCA_RXCTRL bit 12");
}

#[test]
fn strict_eeprom_both_ways() {
    for id in [DeviceId::Cx4, DeviceId::SfpPlus] {
        let driver = Driver::stopped(StrictNic::builder().id(id).build(), Plan::default());
        driver.reset();
        let word = |address: u32| {
            driver.write(0x10014, address << 2 | 1);
            driver.poll("EERD.DONE", 0x10014, 2, 2);
            (driver.read(0x10014) >> 16) as u16
        };
        let total = |addresses: std::ops::Range<u32>| addresses.fold(0u16, |sum, at| sum.wrapping_add(word(at)));
        // Words 3 to 0xE point to sections that begin with their length (6.2).
        let starts: Vec<u32> = (3..0xF).map(|pointer| word(pointer).into()).filter(|start| *start != 0).collect();
        let sections = starts.iter().map(|start| total(start + 1..start + 1 + u32::from(word(*start))));
        assert_eq!(starts.len(), 4, "{id:?}");
        let sum = sections.fold(total(0..0x40), u16::wrapping_add);
        assert_eq!(sum, 0xBABA, "checksum of {id:?}");
        // The serial bus: request, select, opcode 3, byte address, then bits out, low byte first.
        const EEC: u32 = 0x10010;
        let drive = |bits: u32| driver.write(EEC, 1 << 6 | bits);
        drive(2);
        driver.poll("EEC.GNT", EEC, 1 << 7, 1 << 7);
        let begin = |address: u32| {
            drive(2);
            drive(0);
            let command = (3u32 << 16) | address;
            for bit in (0..24).rev() {
                let data = (command >> bit & 1) << 2;
                drive(data);
                drive(data | 1);
                drive(data);
            }
        };
        let next = || {
            let mut read = 0u16;
            for _ in 0..16 {
                drive(1);
                read = read << 1 | (driver.read(EEC) >> 3 & 1) as u16;
                drive(0);
            }
            read.swap_bytes()
        };
        for address in [0x3E, 0x2C] {
            begin(address * 2);
            // Without another command the next words follow.
            let read = [next(), next(), next()];
            assert_eq!(read, [address, address + 1, address + 2].map(word), "words from {address:#x} of {id:?}");
        }
        begin(0xFFFF);
        assert_eq!([next(), next(), next()], [0xFFFF, word(0), word(1)], "of {id:?}");
        assert_eq!((driver.read(0x10140) & 1, driver.read(0x10140) & 1), (0, 1), "SWSM.SMBI is taken by reading");
        driver.write(0x10140, 0);
        assert_eq!(driver.read(0x10140), 0);
    }
}

#[test]
fn strict_link() {
    let driver = start();
    driver.read(LINKS);
    assert_eq!(driver.read(LINKS), 0x7000_0080, "up, 10 Gb/s");
    driver.write(0x880, 1 << 20);
    driver.read(EICR);
    driver.device.set_link(false);
    assert_eq!(driver.read(LINKS) & 1 << 30, 0);
    assert_ne!(driver.read(EICR) & 1 << 20, 0, "LSC");
    driver.device.inject(&frame(BROADCAST, 60, 1));
    driver.device.step();
    assert_eq!(driver.rx_descriptor(0, 0).1, 0);
    driver.device.set_link(true);
    driver.wait_link();
    assert_ne!(driver.read(EICR) & 1 << 20, 0, "LSC again");
    driver.write(AUTOC, driver.read(AUTOC) | 1 << 12);
    assert_eq!((driver.read(AUTOC) & 1 << 12, driver.read(LINKS) & 1 << 30), (0, 0), "restarting");
    driver.wait_link();
    let unplugged = Driver::stopped(StrictNic::builder().link(false).build(), Plan::default());
    unplugged.reset();
    for _ in 0..100 {
        assert_eq!(unplugged.read(LINKS), 0);
    }
}

#[test]
fn frames_wait_for_the_link() {
    let mut driver = start();
    driver.device.set_link(false);
    driver.send(0, &frame(BROADCAST, 60, 1));
    driver.device.step_until_idle(5);
    assert_eq!((driver.read(tx(0, 0x10)), driver.device.transmit_idle()), (0, false));
    driver.device.set_link(true);
    driver.wait_link();
    driver.device.step();
    assert_eq!(driver.device.transmitted().len(), 1);
}

#[test]
fn vectors_fire_once_and_masks_hold() {
    let mut driver = start();
    let fds = driver.device.enable_msix(3).unwrap();
    assert!(driver.device.enable_msix(65).unwrap_err().to_string().contains("64"));
    driver.write(0x898, 1 << 4 | 1 << 30 | 1 << 31);
    driver.write(0x900, 0x80 | 0x81 << 8);
    driver.write(0xA00, 0x82 << 8);
    driver.write(0x810, 0xFFFF);
    driver.read(EICR);
    let mut receive = || {
        driver.device.inject(&frame(BROADCAST, 60, 1));
        driver.device.step();
        assert!(driver.receive(0).is_some());
        fired(&fds[0])
    };
    assert_eq!(receive(), 0, "masked");
    driver.write(0x880, 1 | 2 | 1 << 20);
    assert_eq!(fired(&fds[0]), 1, "unmasking fires what is pending");
    let receive = || {
        driver.device.inject(&frame(BROADCAST, 60, 1));
        driver.device.inject(&frame(BROADCAST, 60, 1));
        driver.device.step();
        fired(&fds[0])
    };
    assert_eq!((receive(), receive()), (1, 1), "once a step");
    assert_eq!(driver.read(0x808) & 3, 0, "EIAC cleared the cause");
    driver.write(0xAD0, 1);
    let receive = || {
        driver.device.inject(&frame(BROADCAST, 60, 1));
        driver.device.step();
        fired(&fds[0])
    };
    assert_eq!((receive(), receive()), (1, 0), "EIAM masked it");
    driver.write(0xAA0, 1);
    assert_eq!(fired(&fds[0]), 1, "and EIMS_EX lets it through");
    driver.send(0, &frame(BROADCAST, 60, 1));
    driver.device.step();
    assert_eq!((fired(&fds[1]), fired(&fds[2])), (1, 0));
    driver.device.set_link(false);
    driver.device.step();
    assert_eq!((fired(&fds[1]), fired(&fds[2])), (0, 1), "LSC is an other cause");
    driver.write(0x808, 1 << 1);
    assert_eq!(fired(&fds[1]), 1, "EICS");
}

/// The register test of a Linux driver: what is written within the write mask reads back within the read mask.
#[test]
fn read_and_write_masks() {
    let nic = StrictNic::builder().on_violation(OnViolation::Record).build();
    let driver = Driver::stopped(nic, Plan::default());
    driver.reset();
    let mut registers = vec![
        (0x3220, 0x8007_FFF0, 0x8007_FFF0),
        (0x3260, 0x8007_FFF0, 0x8007_FFF0),
        (0x3008, u32::MAX, u32::MAX),
        (0x3200, u32::MAX, u32::MAX),
        (common::RXCTRL, 1, 1),
    ];
    for queue in 0..4 {
        registers.push((rx(queue, 0x00), 0xFFFF_FF80, 0xFFFF_FF80));
        registers.push((rx(queue, 0x04), u32::MAX, u32::MAX));
        registers.push((rx(queue, 0x08), 0x000F_FF80, 0x000F_FFFF));
        registers.push((tx(queue, 0x00), 0xFFFF_FF80, u32::MAX));
        registers.push((tx(queue, 0x04), u32::MAX, u32::MAX));
        registers.push((tx(queue, 0x08), 0x000F_FF80, 0x000F_FF80));
    }
    registers.extend((0..16).flat_map(|n| [(0x5400 + 8 * n, !0, !0), (0x5404 + 8 * n, 0x8001_FFFF, 0x800C_FFFF)]));
    registers.extend((0..128).map(|n| (0x5200 + 4 * n, !0, !0)));
    for (register, read, write) in registers {
        for pattern in [0x5A5A_5A5A, 0xA5A5_A5A5, 0, u32::MAX] {
            driver.write(register, pattern & write);
            assert_eq!(driver.read(register), pattern & write & read, "{register:#x} after {pattern:#x}");
        }
        driver.write(register, 0);
    }
    for queue in 0..4 {
        driver.write(rx(queue, 0x28), ENABLE);
        for pattern in [0x5A5A_5A5A, 0xA5A5_A5A5, 0, u32::MAX] {
            driver.write(rx(queue, 0x18), pattern & 0xFFFF);
            assert_eq!(driver.read(rx(queue, 0x18)), pattern & 0xFFFF);
        }
        driver.write(rx(queue, 0x28), 0);
    }
    let before = driver.read(STATUS);
    driver.write(STATUS, !before);
    assert_eq!(driver.read(STATUS) & 0x7FFF_F30F, before & 0x7FFF_F30F);
    assert!(driver.device.step().is_idle());
    assert_eq!(driver.device.bar().size(), 512 * 1024);
}

/// A driver in the order in which Linux's tests the interrupt, without MSI-X: one vector, EICR clears on read.
#[test]
fn one_interrupt_for_all_causes() {
    let driver = Driver::stopped(StrictNic::builder().build(), Plan::default());
    driver.reset();
    let fds = driver.device.enable_msix(1).unwrap();
    driver.write(common::EIMC, u32::MAX);
    for cause in (0..10).map(|bit| 1u32 << bit) {
        driver.write(common::EIMC, !cause & 0x7FFF);
        driver.write(0x808, !cause & 0x7FFF);
        assert_eq!(fired(&fds[0]), 0, "others than {cause:#x} are masked");
        driver.write(0x880, cause);
        driver.write(0x808, cause);
        assert!(fired(&fds[0]) >= 1);
        assert_eq!(driver.read(0x808) & cause, cause, "reading EICS clears nothing");
        assert_eq!(driver.read(EICR) & 0xFFFF, 0x7FFF);
        assert_eq!(driver.read(EICR) & 0xFFFF, 0);
    }
}

#[test]
fn a_vector_fires_once_in_its_interval() {
    let mut driver = start();
    let fds = driver.device.enable_msix(64).unwrap();
    driver.write(0x898, 1 << 4 | 1 << 30 | 1 << 31);
    // Receive queue 0 on vector 40, transmit queue 0 on vector 17; both above what EICR shows.
    driver.write(0x900, 0x80 | 40 | (0x80 | 17) << 8);
    driver.write(0xAA0, 1 << 17);
    driver.write(0xAA4, 1 << 8);
    // 50 units of 2.048 microseconds; a tick of the strict face is one microsecond.
    driver.write(0x1_2300 + 4 * 16, 50 << 3 | 1 << 31);
    assert_eq!(driver.read(0x1_2300 + 4 * 16), 50 << 3);
    let round = |driver: &mut Driver<StrictNic>| {
        driver.device.inject(&frame(BROADCAST, 60, 1));
        driver.send(0, &frame(BROADCAST, 60, 1));
        driver.device.step();
        assert!(driver.receive(0).is_some());
        (fired(&fds[40]), fired(&fds[17]))
    };
    assert_eq!(round(&mut driver), (1, 1), "at once, if it has not fired for long");
    for _ in 0..10 {
        assert_eq!(round(&mut driver), (0, 1), "held back; the other has no interval");
    }
    let steps = (0..).find(|_| {
        driver.device.step();
        fired(&fds[40]) == 1
    });
    let steps = steps.unwrap();
    assert!((20..100).contains(&steps), "fired after the interval of 102 ticks: {steps} steps later");
    assert_eq!(round(&mut driver), (0, 1));
    driver.write(0x1_2300 + 4 * 16, 50 << 3 | 1 << 31);
    driver.device.step();
    assert_eq!(fired(&fds[40]), 0, "CNT_WDIS: the counter goes on");
    driver.write(0x1_2300 + 4 * 16, 50 << 3);
    driver.device.step();
    assert_eq!(fired(&fds[40]), 1, "the counter is 0 now");
    // What was held back by a mask fires when it comes off.
    for _ in 0..110 {
        driver.device.step();
    }
    driver.write(0xAB4, 1 << 8);
    assert_eq!(round(&mut driver), (0, 1));
    driver.write(0xAA4, 1 << 8);
    assert_eq!(fired(&fds[40]), 1);
}

/// Registers that Linux's driver and DPDK's touch while they start: offset, how many, stride.
#[test]
fn foreign_drivers_touch_nothing_unknown() {
    const TOUCHED: &[(u32, u32, u32)] = &[
        (0x0, 1, 4),
        (0x8, 1, 4),
        (0x18, 1, 4),
        (0x20, 1, 4),
        (0x28, 1, 4),
        (0x200, 1, 4),
        (0x800, 1, 4),
        (0x808, 1, 4),
        (0x810, 1, 4),
        (0x820, 24, 4),
        (0x880, 1, 4),
        (0x888, 1, 4),
        (0x890, 1, 4),
        (0x898, 1, 4),
        (0x900, 64, 4),
        (0xA00, 1, 4),
        (0xA90, 2, 4),
        (0xAA0, 2, 4),
        (0xAB0, 2, 4),
        (0xAD0, 2, 4),
        (0x1000, 64, 0x40),
        (0x1004, 64, 0x40),
        (0x1008, 64, 0x40),
        (0x100C, 64, 0x40),
        (0x1010, 64, 0x40),
        (0x1014, 64, 0x40),
        (0x1018, 64, 0x40),
        (0x1028, 64, 0x40),
        (0x102C, 64, 0x40),
        (0x1030, 16, 0x40),
        (0x1034, 16, 0x40),
        (0x1038, 16, 0x40),
        (0x1430, 16, 0x40),
        (0x2100, 16, 4),
        (0x2200, 16, 4),
        (0x2300, 32, 4),
        (0x2F00, 1, 4),
        (0x3000, 1, 4),
        (0x3008, 1, 4),
        (0x3020, 1, 4),
        (0x3028, 1, 4),
        (0x3200, 4, 4),
        (0x3220, 8, 4),
        (0x3240, 8, 4),
        (0x3260, 8, 4),
        (0x32A0, 1, 4),
        (0x3C00, 8, 4),
        (0x3D00, 1, 4),
        (0x3F00, 16, 4),
        (0x3F60, 1, 4),
        (0x3F68, 1, 4),
        (0x3FA0, 8, 4),
        (0x4000, 3, 4),
        (0x4010, 1, 4),
        (0x4034, 2, 4),
        (0x4040, 1, 4),
        (0x405C, 10, 4),
        (0x4088, 4, 4),
        (0x40A4, 6, 4),
        (0x40C0, 2, 4),
        (0x40D0, 10, 4),
        (0x4140, 16, 4),
        (0x41A4, 2, 4),
        (0x4208, 1, 4),
        (0x4218, 1, 4),
        (0x4240, 1, 4),
        (0x425C, 2, 4),
        (0x4268, 1, 4),
        (0x4294, 1, 4),
        (0x42A0, 3, 4),
        (0x42B0, 1, 4),
        (0x42D0, 1, 4),
        (0x4324, 1, 4),
        (0x4900, 2, 4),
        (0x4950, 8, 4),
        (0x4984, 1, 4),
        (0x4A80, 1, 4),
        (0x4A88, 2, 4),
        (0x5000, 1, 4),
        (0x5008, 1, 4),
        (0x5078, 1, 4),
        (0x5080, 1, 4),
        (0x5088, 1, 4),
        (0x5090, 1, 4),
        (0x5128, 8, 4),
        (0x5188, 1, 4),
        (0x51B0, 1, 4),
        (0x51E0, 2, 4),
        (0x5200, 128, 4),
        (0x5400, 32, 4),
        (0x5480, 16, 4),
        (0x5800, 1, 4),
        (0x5808, 1, 4),
        (0x5810, 1, 4),
        (0x5818, 1, 4),
        (0x5820, 1, 4),
        (0x5C00, 32, 4),
        (0x5C80, 10, 4),
        (0x6000, 128, 0x40),
        (0x6004, 128, 0x40),
        (0x6008, 128, 0x40),
        (0x600C, 128, 0x40),
        (0x6010, 128, 0x40),
        (0x6018, 128, 0x40),
        (0x6028, 128, 0x40),
        (0x6030, 16, 0x40),
        (0x6038, 128, 0x40),
        (0x603C, 128, 0x40),
        (0x8110, 2, 4),
        (0x8120, 1, 4),
        (0x8600, 32, 4),
        (0x8700, 32, 4),
        (0x8800, 2, 4),
        (0x8C00, 1, 4),
        (0x8C0C, 5, 4),
        (0x8D00, 2, 4),
        (0xA000, 128, 4),
        (0xA280, 224, 4),
        (0xA600, 256, 4),
        (0xC800, 1, 4),
        (0xCC00, 8, 4),
        (0xCF90, 1, 4),
        (0xD000, 64, 0x40),
        (0xD00C, 64, 0x40),
        (0xD028, 64, 0x40),
        (0xE600, 128, 4),
        (0xEA00, 64, 4),
        (0xEC00, 8, 4),
        (0xEE00, 1, 4),
        (0xEE18, 6, 4),
        (0xEE38, 5, 4),
        (0xEE50, 4, 4),
        (0xEE68, 5, 4),
        (0xF000, 64, 4),
        (0xF100, 192, 4),
        (0xF400, 128, 4),
        (0x1_0010, 2, 4),
        (0x1_0140, 1, 4),
        (0x1_0148, 1, 4),
        (0x1_0150, 1, 4),
        (0x1_0160, 1, 4),
        (0x1_1050, 1, 4),
        (0x1_2300, 40, 4),
        (0x1_4F00, 1, 4),
        (0x1_5F00, 1, 4),
        (0x1_5F0C, 1, 4),
    ];
    let driver = Driver::stopped(StrictNic::builder().build(), Plan::default());
    driver.reset();
    for (base, count, stride) in TOUCHED {
        for n in 0..*count {
            assert_ne!(driver.read(base + n * stride), u32::MAX);
        }
    }
}

/// Flow director as a driver starts it and adds to it (8.2.3.21): hash filters are taken, and lead nowhere; rules are not taken.
#[test]
fn flow_director_is_polite() {
    let driver = start();
    driver.write(0xEE68, 0x3DAD_14E2);
    driver.write(0xEE6C, 0x174D_3614);
    driver.write(0xEE00, 1 | 20 << 16 | 10 << 24);
    driver.poll("FDIRCTRL.INIT_DONE", 0xEE00, 1 << 3, 1 << 3);
    driver.write(0xEE28, 0x1234_5678);
    driver.write(0xEE2C, 1 | 1 << 3 | 2 << 5 | 1 << 15 | 5 << 16);
    driver.poll("FDIRCMD.CMD", 0xEE2C, 3, 0);
    driver.write(0xEE38, 0);
    for register in [0xEE50, 0xEE54, 0xEE58, 0xEE5C] {
        assert_eq!(driver.read(register), 0);
    }
    driver.write(0xEE00, 1 | 1 << 4 | 20 << 16 | 10 << 24);
    driver.write(0xEE2C, 1 | 1 << 3 | 2 << 5 | 1 << 15 | 5 << 16);
    assert_eq!(driver.read(0xEE2C) & 3, 1, "as long as anybody waits");
}
