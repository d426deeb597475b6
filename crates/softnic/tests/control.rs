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
        let sum = (0..0x40).fold(0u16, |sum, address| sum.wrapping_add(word(address)));
        assert_eq!(sum, 0xBABA, "checksum of {id:?}");
        // The serial bus: request, select, opcode 3, byte address, then bits out, low byte first.
        const EEC: u32 = 0x10010;
        let drive = |bits: u32| driver.write(EEC, 1 << 6 | bits);
        drive(2);
        driver.poll("EEC.GNT", EEC, 1 << 7, 1 << 7);
        for address in [0x3F, 0x2C] {
            drive(2);
            drive(0);
            let command = (3u32 << 16) | (address * 2);
            for bit in (0..24).rev() {
                let data = (command >> bit & 1) << 2;
                drive(data);
                drive(data | 1);
                drive(data);
            }
            let mut read = 0u16;
            for _ in 0..16 {
                drive(1);
                read = read << 1 | (driver.read(EEC) >> 3 & 1) as u16;
                drive(0);
            }
            assert_eq!(read.swap_bytes(), word(address), "word {address:#x} of {id:?}");
        }
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
