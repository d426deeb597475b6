//! Each mistake a driver can make, and that the strict face names it.
#![allow(clippy::cast_possible_truncation, clippy::unwrap_used, reason = "tests")]

mod common;

use common::{BROADCAST, Driver, ENABLE, Plan, frame, rx, tx};
use device::Device as _;
use softnic::{DeviceId, Fault, OnViolation, Ring, StrictNic, TransmitFault, Violation};

fn recording() -> StrictNic {
    StrictNic::builder().on_violation(OnViolation::Record).build()
}

fn start() -> Driver<StrictNic> {
    let driver = Driver::start(recording(), Plan::default());
    assert_eq!(driver.device.violations(), [], "the bring-up itself is clean");
    driver
}

/// A data descriptor for a 60-byte frame with `bits` flipped.
fn spoiled(driver: &mut Driver<StrictNic>, bits: u64) -> Vec<Violation> {
    let index = driver.put(0, &[&frame(BROADCAST, 60, 1)]);
    let high = (60u64 << 46 | 1 << 29 | 3 << 20 | 1 << 25 | 1 << 27 | 1 << 24 | 60) ^ bits;
    driver.set_tx(0, index, driver.arena.iova(driver.tx_buffer(0, index)), high);
    driver.ring_tx(0);
    driver.device.step();
    driver.device.violations()
}

fn transmit(cause: TransmitFault) -> Violation {
    Violation::TransmitDescriptor { queue: 0, index: 0, cause }
}

#[test]
#[should_panic(expected = "read of unknown register 0x1fffc")]
fn by_default_a_violation_panics() {
    Driver::start(StrictNic::builder().build(), Plan::default()).read(0x1FFFC);
}

/// Firmware that forbids changes of the link: AUTOC, the forced link of X540 and X550, and the pins of a module.
#[test]
fn strict_veto() {
    const WRITES: [(u32, u32, bool); 6] = [
        (0x42A0, 0x1000, true),
        (0x4330, 1, true),
        (0x20, 0x2020, true),
        (0x20, 8, true),
        (0x20, 0x100, false),
        (0x4240, 3, false),
    ];
    for (register, bits, forbidden) in WRITES {
        for veto in [false, true] {
            let builder = StrictNic::builder().id(DeviceId::SfpPlus).on_violation(OnViolation::Record);
            let builder = if veto { builder.fault(Fault::FirmwareVeto) } else { builder };
            let driver = Driver::stopped(builder.build(), Plan::default());
            driver.write(register, driver.read(register) | bits);
            driver.write(register, driver.read(register));
            let told = driver.device.violations().iter().filter(|told| told.to_string().contains("MNG_VETO")).count();
            assert_eq!(told, usize::from(veto && forbidden), "{register:#x} {bits:#x}");
        }
    }
}

#[test]
fn strict_register_misuse() {
    let driver = start();
    assert_eq!(driver.read(0x1FFFC), 0);
    driver.write(0x7F000, 1);
    driver.write(common::STATUS, 5);
    driver.write(0x4074, 0);
    driver.write(rx(3, 0x00), 0x1040);
    assert_eq!(
        driver.device.violations(),
        [
            Violation::UnknownRegister { offset: 0x1FFFC, write: false },
            Violation::UnknownRegister { offset: 0x7F000, write: true },
            Violation::ReadOnlyRegister { name: "STATUS", offset: 8, value: 5 },
            Violation::ReadOnlyRegister { name: "GPRC", offset: 0x4074, value: 0 },
            Violation::ReservedBits { name: "RDBAL", offset: 0x10C0, value: 0x1040, bits: 0x40 },
        ]
    );
    assert_eq!(driver.read(rx(3, 0x00)), 0x1000, "reserved bits do not stick");
}

#[test]
fn ring_length_must_be_whole_cache_lines() {
    let driver = start();
    driver.write(tx(1, 0x08), 100);
    assert!(matches!(driver.device.violations()[..], [Violation::ReservedBits { name: "TDLEN", bits: 100, .. }]));
}

#[test]
fn rings_are_fixed_while_enabled() {
    let driver = start();
    driver.write(rx(0, 0x00), driver.read(rx(0, 0x00)));
    driver.write(rx(0, 0x10), 0);
    assert_eq!(driver.device.violations(), [], "writing the same again is harmless");
    for (register, name, value) in [
        (rx(0, 0x00), "RDBAL", 0x1_0080),
        (rx(0, 0x08), "RDLEN", 512),
        (rx(0, 0x14), "SRRCTL", 4 | 1 << 25),
        (rx(0, 0x10), "RDH", 3),
    ] {
        driver.write(register, value);
        assert_eq!(driver.device.violations(), [Violation::RingChangedWhileEnabled { ring: Ring::Rx(0), name }]);
    }
    driver.write(tx(0, 0x28), 1 << 8 | 32 | ENABLE);
    let (ring, name) = (Ring::Tx(0), "TXDCTL thresholds");
    assert_eq!(driver.device.violations(), [Violation::RingChangedWhileEnabled { ring, name }]);
}

#[test]
fn rings_that_cannot_work_are_refused() {
    for (register, value, cause) in [
        (rx(1, 0x08), 0, "length 0"),
        (rx(1, 0x0C), 0x1000, "DCA_RXCTRL bit 12 still set"),
        (rx(1, 0x14), 1 << 25, "SRRCTL.BSIZEPACKET 0"),
        (rx(1, 0x14), 2 | 5 << 25, "a SRRCTL.DESCTYPE that is not modelled (only 0 and 1 are)"),
    ] {
        let driver = start();
        driver.write(rx(1, 0x00), 0x8000);
        driver.write(rx(1, 0x08), 256);
        driver.write(rx(1, 0x0C), 0);
        driver.write(rx(1, 0x14), 2 | 1 << 25);
        driver.write(register, value);
        driver.write(rx(1, 0x28), ENABLE);
        assert_eq!(driver.device.violations(), [Violation::BadRing { ring: Ring::Rx(1), cause }]);
    }
    let driver = start();
    driver.write(tx(1, 0x28), 36 | 8 << 16);
    let cause = "TXDCTL.PTHRESH + WTHRESH above 40";
    assert_eq!(driver.device.violations(), [Violation::BadRing { ring: Ring::Tx(1), cause }]);
}

#[test]
fn strict_tails() {
    let driver = start();
    driver.write(rx(0, 0x18), 16);
    let ring = Ring::Rx(0);
    assert!(driver.device.violations().contains(&Violation::TailBeyondRing { ring, tail: 16, descriptors: 16 }));
    driver.device.inject(&frame(BROADCAST, 60, 1));
    driver.device.step();
    assert_eq!(driver.rx_descriptor(0, 0).1, 0, "no descriptor is used while the tail is wrong");
    driver.write(tx(1, 0x18), 3);
    let (ring, tail) = (Ring::Tx(1), 3);
    assert!(driver.device.violations().contains(&Violation::TailWhileDisabled { ring, tail }));
}

#[test]
fn transmit_enable_comes_first() {
    let driver = Driver::stopped(recording(), Plan::default());
    driver.reset();
    driver.write(tx(0, 0x00), 0x8000);
    driver.write(tx(0, 0x08), 256);
    driver.write(tx(0, 0x28), ENABLE);
    assert_eq!(driver.device.violations(), [Violation::Order("TXDCTL.EN set before DMATXCTL.TE")]);
    for _ in 0..20 {
        assert_eq!(driver.read(tx(0, 0x28)) & ENABLE, 0, "it never takes effect");
    }
}

#[test]
fn the_receiver_is_enabled_in_order() {
    let driver = Driver::stopped(recording(), Plan::default());
    driver.reset();
    driver.write(common::RXCTRL, 1);
    let violations = driver.device.violations();
    for words in ["SECRXCTRL.RX_DIS", "RXCRCSTRP", "RSCFRSTSIZE", "RSCACKC"] {
        assert!(violations.iter().any(|v| v.to_string().contains(words)), "{words}: {violations:?}");
    }
    driver.write(0x8120, 1);
    assert_eq!(driver.device.violations(), [Violation::Order("MTQC changed without RTTDCS.ARBDIS set")]);
}

#[test]
fn strict_unmapped_memory() {
    let driver = start();
    driver.set_tx(0, 0, 0xDEAD_0000, 60u64 << 46 | 1 << 29 | 3 << 20 | 1 << 25 | 1 << 24 | 60);
    driver.write(tx(0, 0x18), 1);
    driver.device.step();
    let (ring, what, iova) = (Ring::Tx(0), "transmit buffer", 0xDEAD_0000);
    assert_eq!(driver.device.violations(), [Violation::UnmappedDma { ring, what, iova }]);
    assert!(driver.device.transmitted().is_empty());

    let driver = start();
    // The end of the arena is inside, what comes after is not: the frame must not be written half.
    driver.arena.word(driver.rx_ring(0)).store(0xBEEF_0000, std::sync::atomic::Ordering::Relaxed);
    driver.device.inject(&frame(BROADCAST, 60, 1));
    driver.device.step();
    let (ring, what, iova) = (Ring::Rx(0), "receive buffer", 0xBEEF_0000);
    assert_eq!(driver.device.violations(), [Violation::UnmappedDma { ring, what, iova }]);

    let driver = Driver::stopped(recording(), Plan::default());
    driver.reset();
    driver.write(common::DMATXCTL, 1);
    driver.write(tx(0, 0x00), 0x10_0000);
    driver.write(tx(0, 0x08), 256);
    driver.write(tx(0, 0x28), ENABLE);
    driver.poll("TXDCTL.EN", tx(0, 0x28), ENABLE, ENABLE);
    driver.wait_link();
    driver.write(tx(0, 0x18), 1);
    let (ring, what, iova) = (Ring::Tx(0), "descriptor", 0x10_0000);
    assert_eq!(driver.device.violations(), [Violation::UnmappedDma { ring, what, iova }]);
}

#[test]
fn memory_that_left_the_domain_is_not_reached() {
    let nic = recording();
    let mut driver = Driver::start(nic, Plan::default());
    driver.send(0, &frame(BROADCAST, 60, 1));
    // Another device's addresses mean nothing to this one.
    let other = recording();
    let foreign = common::Arena::new(&other, 4096).iova(0);
    driver.set_tx(0, 1, foreign, 60u64 << 46 | 1 << 29 | 3 << 20 | 1 << 25 | 1 << 24 | 60);
    driver.write(tx(0, 0x18), 2);
    driver.device.step();
    assert_eq!(driver.device.transmitted().len(), 1);
    assert!(matches!(driver.device.violations()[..], [Violation::UnmappedDma { iova, .. }] if iova == foreign));
}

#[test]
fn descriptors_must_be_armed_anew() {
    let driver = start();
    for _ in 0..4 {
        driver.device.inject(&frame(BROADCAST, 60, 1));
    }
    driver.device.step();
    driver.write(rx(0, 0x18), 1);
    assert_eq!(
        driver.device.violations(),
        [
            Violation::ReceiveDescriptorDone { queue: 0, index: 0 },
            // Its first quadword is no address any more, and now the device has been given that.
        ]
    );
}

#[test]
fn a_buffer_belongs_to_one_descriptor() {
    let driver = start();
    // Two receive descriptors with one buffer: frame 0 is done, its descriptor takes the buffer of descriptor 5.
    driver.device.inject(&frame(BROADCAST, 60, 1));
    driver.device.step();
    let taken = driver.arena.iova(driver.rx_buffer(0, 5));
    driver.arena.word(driver.rx_ring(0)).store(taken, std::sync::atomic::Ordering::Relaxed);
    driver.arena.word(driver.rx_ring(0) + 8).store(0, std::sync::atomic::Ordering::Relaxed);
    // Descriptor 15 is handed over as well.
    driver.write(rx(0, 0x18), 1);
    let (ring, other) = (Ring::Rx(0), Ring::Rx(0));
    assert_eq!(driver.device.violations(), [Violation::BufferPostedTwice { ring, other, iova: taken }]);

    // Transmitting from the middle of a buffer that is being received into.
    let driver = start();
    let inside = driver.arena.iova(driver.rx_buffer(0, 7)) + 100;
    driver.set_tx(0, 0, inside, 60u64 << 46 | 1 << 29 | 3 << 20 | 1 << 25 | 1 << 24 | 60);
    driver.write(tx(0, 0x18), 1);
    let (ring, other) = (Ring::Tx(0), Ring::Rx(0));
    assert_eq!(driver.device.violations(), [Violation::BufferPostedTwice { ring, other, iova: inside }]);

    // Receiving into what is still being sent.
    let mut driver = start();
    driver.device.inject(&frame(BROADCAST, 60, 1));
    driver.device.step();
    driver.device.set_link(false);
    driver.send(0, &frame(BROADCAST, 60, 1));
    let sending = driver.arena.iova(driver.tx_buffer(0, 0));
    driver.arena.word(driver.rx_ring(0)).store(sending, std::sync::atomic::Ordering::Relaxed);
    driver.arena.word(driver.rx_ring(0) + 8).store(0, std::sync::atomic::Ordering::Relaxed);
    driver.write(rx(0, 0x18), 1);
    let (ring, other) = (Ring::Rx(0), Ring::Tx(0));
    assert_eq!(driver.device.violations(), [Violation::BufferPostedTwice { ring, other, iova: sending }]);
}

#[test]
fn transmit_descriptors() {
    assert_eq!(spoiled(&mut start(), 0), []);
    assert_eq!(spoiled(&mut start(), 1 << 32), [transmit(TransmitFault::Done)]);
    assert_eq!(spoiled(&mut start(), 60), [transmit(TransmitFault::ZeroLength)]);
    let cause = TransmitFault::PayloadLength { dtalen: 61, paylen: 60 };
    assert_eq!(spoiled(&mut start(), 1), [transmit(cause)]);
    assert_eq!(spoiled(&mut start(), 4 << 20), [transmit(TransmitFault::UnknownType(7))]);
    for refers in [1 << 30, 1 << 31, 1 << 39, 1 << 40, 1 << 41] {
        assert_eq!(spoiled(&mut start(), refers), [transmit(TransmitFault::MissingContext(0))]);
    }
    assert_eq!(spoiled(&mut start(), 1 << 39 | 2 << 36), [transmit(TransmitFault::ContextIndex(2))]);
    assert_eq!(spoiled(&mut start(), 1 << 25), [transmit(TransmitFault::BadFcs)]);
    let mut driver = start();
    spoiled(&mut driver, 1);
    assert!(driver.tx_done(0, 0), "a frame that is dropped is completed all the same");
    assert_eq!(driver.device.wire_counters().discarded, 1);
}

#[test]
fn context_descriptors_are_accepted() {
    let mut driver = start();
    driver.set_tx(0, 0, 0, 1 << 29 | 2 << 20);
    driver.tx_next[0] = 1;
    let index = driver.put(0, &[&frame(BROADCAST, 60, 1)]);
    let at = driver.tx_ring(0) + index as usize * 16 + 8;
    driver.arena.word(at).fetch_or(1 << 39, std::sync::atomic::Ordering::Relaxed);
    driver.ring_tx(0);
    driver.device.step();
    assert_eq!((driver.device.violations(), driver.device.transmitted().len()), (vec![], 1));
}

#[test]
fn mixed_and_overlong_frames() {
    let mut driver = start();
    driver.put(0, &[&[1; 100], &[2; 100]]);
    let at = driver.tx_ring(0) + 16 + 8;
    driver.arena.word(at).fetch_and(!(1 << 29), std::sync::atomic::Ordering::Relaxed);
    driver.ring_tx(0);
    driver.device.step();
    let cause = TransmitFault::Mixed;
    assert_eq!(driver.device.violations(), [Violation::TransmitDescriptor { queue: 0, index: 1, cause }]);
    let part = [3u8; 2048];
    driver.put(0, &[&part[..]; 8]);
    driver.ring_tx(0);
    driver.device.step();
    let cause = TransmitFault::TooLong;
    assert_eq!(driver.device.violations(), [Violation::TransmitDescriptor { queue: 0, index: 2, cause }]);
}

#[test]
fn no_dma_without_bus_mastering() {
    let mut driver = start();
    driver.device.set_bus_master(false).unwrap();
    driver.send(0, &frame(BROADCAST, 60, 1));
    driver.device.inject(&frame(BROADCAST, 60, 1));
    assert!(driver.device.step().is_idle());
    driver.device.step();
    assert_eq!(
        driver.device.violations(),
        [Violation::NotBusMaster { ring: Ring::Rx(0) }, Violation::NotBusMaster { ring: Ring::Tx(0) }]
    );
    assert_eq!(driver.rx_descriptor(0, 0).1, 0);
}
