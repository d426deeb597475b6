//! What is at the other end of the MAC: every module in the cage of an SFP+ port, and the PHY of a copper card. The driver
//! finds out what it is, sets the link up for it, and is neither held up nor fooled by one that does not work.

use ethdev::{LinkStatus, Port as _};
use ixgbe::{Cage, Config, Error, SfpKind};
use softnic::{DeviceId, Fault, ModuleKind, OnViolation, SharedPart, StrictBuilder, StrictNic};
use std::time::{Duration, Instant};
use tests::{Rig, pool};

const TEN: LinkStatus = LinkStatus { up: true, speed_mbps: 10_000 };
const ONE: LinkStatus = LinkStatus { up: true, speed_mbps: 1_000 };
const DOWN: LinkStatus = LinkStatus { up: false, speed_mbps: 0 };

fn sfp(kind: ModuleKind) -> StrictBuilder {
    StrictNic::builder().id(DeviceId::SfpPlus).module(kind)
}

fn open(builder: StrictBuilder) -> ixgbe::Result<Rig> {
    Rig::open(builder, &Config::default(), &pool(1024, 2048))
}

/// The link, given every chance: time in the model passes with each read.
fn link(rig: &Rig) -> LinkStatus {
    (0..100).for_each(|_| drop(rig.port.link()));
    rig.port.link().expect("the device is there")
}

#[test]
fn every_module_has_its_link() {
    let kinds = [
        (ModuleKind::Cable, SfpKind::PassiveCable, TEN, "passive cable of 1 m, RINGWAY SOFT-DAC-1M"),
        (ModuleKind::LongCable, SfpKind::PassiveCable, TEN, "passive cable of 7 m, RINGWAY SOFT-DAC-7M"),
        (ModuleKind::ActiveCable, SfpKind::ActiveCable, TEN, "active cable of 10 m, RINGWAY SOFT-AOC-10M"),
        (ModuleKind::ShortRange, SfpKind::ShortRange, TEN, "10GBASE-SR, RINGWAY SOFT-10G-SR"),
        (ModuleKind::LongRange, SfpKind::LongRange, TEN, "10GBASE-LR, RINGWAY SOFT-10G-LR"),
        (ModuleKind::DualRate, SfpKind::ShortRange, TEN, "10GBASE-SR, two rates, RINGWAY SOFT-DUAL-SR"),
        (ModuleKind::ShortRange1G, SfpKind::ShortRange1G, ONE, "1000BASE-SX, RINGWAY SOFT-1G-SX"),
        (ModuleKind::LongRange1G, SfpKind::LongRange1G, ONE, "1000BASE-LX, RINGWAY SOFT-1G-LX"),
        (ModuleKind::Copper1G, SfpKind::Copper1G, ONE, "1000BASE-T, RINGWAY SOFT-1G-T"),
    ];
    for (inside, kind, expected, text) in kinds {
        let rig = open(sfp(inside)).expect("a healthy device opens");
        let Some(Cage::Module(module)) = rig.port.cage() else { panic!("{inside:?}: {:?}", rig.port.cage()) };
        assert_eq!((module.kind, module.to_string().as_str()), (kind, text));
        assert_eq!(link(&rig), expected, "{inside:?}");
        rig.port.close().expect("the device closes");
    }
}

#[test]
fn an_empty_cage_has_no_link_and_is_no_error() {
    let rig = open(sfp(ModuleKind::Empty)).expect("a module may come later");
    assert_eq!(rig.port.cage(), Some(&Cage::Empty));
    assert_eq!(link(&rig), DOWN);
    let rig = open(StrictNic::builder()).expect("a healthy device opens");
    assert_eq!(rig.port.cage(), None, "CX4 has no cage");
    assert_eq!(link(&rig), TEN);
}

/// A partner of 1 Gbit/s, found by whoever waits for the link, at once or in slices, and by who asks for events from time to time.
#[test]
fn a_module_of_two_rates_finds_the_rate_of_its_partner() {
    let opened = || open(sfp(ModuleKind::DualRateSlow)).expect("a healthy device opens");
    let rig = opened();
    assert_eq!(link(&rig), DOWN, "10 Gbit/s first");
    let waited = |limit| rig.port.wait_link(limit).expect("the device is there");
    assert_eq!(waited(Duration::from_secs(60)), ONE);
    assert_eq!(waited(Duration::from_secs(60)), ONE, "and stays");
    rig.port.close().expect("the device closes");
    let rig = opened();
    // As a program waits that looks for a signal as well.
    let mut slices = (0..6000).map(|_| rig.port.wait_link(Duration::from_millis(10)).expect("the device is there"));
    assert_eq!(slices.find(|link| link.up), Some(ONE));
    let mut rig = opened();
    tended(&mut rig, |rig| link(rig) == ONE);
}

/// Each is read when it comes, and the port set up for it.
#[test]
fn modules_come_and_go_while_the_port_is_open() {
    let mut rig = open(sfp(ModuleKind::Empty)).expect("a module may come later");
    for (inside, expected) in [
        (ModuleKind::ShortRange1G, ONE),
        (ModuleKind::Empty, DOWN),
        (ModuleKind::LongCable, TEN),
        (ModuleKind::ShortRange1G, ONE),
    ] {
        rig.nic.set_module(inside);
        tended(&mut rig, |rig| {
            (inside == ModuleKind::Empty) == (rig.port.cage() == Some(&Cage::Empty)) && link(rig) == expected
        });
    }
    rig.port.close().expect("the device closes");
}

/// One that is another each time it is asked is not followed.
#[test]
fn a_module_that_answers_differently_each_time_is_not_believed() {
    let mut rig = open(sfp(ModuleKind::Empty)).expect("a module may come later");
    for inside in [ModuleKind::ShortRange1G, ModuleKind::Copper1G, ModuleKind::LongRange1G] {
        rig.nic.set_module(inside);
        // Longer than between two looks.
        std::thread::sleep(Duration::from_millis(550));
        rig.port.events().expect("the device is there");
        assert_eq!(rig.port.cage(), Some(&Cage::Empty), "{inside:?}");
    }
    tended(&mut rig, |rig| link(rig) == ONE);
    rig.port.close().expect("the device closes");
}

/// Asks for events until it is so, as a program does, for a minute at most.
fn tended(rig: &mut Rig, is_so: impl Fn(&Rig) -> bool) {
    let begun = Instant::now();
    while !is_so(rig) {
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", rig.port.cage());
        rig.port.events().expect("the device is there");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// One whose checksum is wrong, and one that holds the bus: the port opens, in bounded time, and says in one line what is wrong. The first is
/// set up for what it says, as by Linux's and DPDK's drivers.
#[test]
fn a_module_that_is_broken_is_told_and_does_not_hold_up() {
    for (inside, cause) in [
        (ModuleKind::Liar, "checksum"),
        (ModuleKind::Stuck, "the clock wire"),
        (ModuleKind::StuckData, "the data wire"),
    ] {
        let start = Instant::now();
        let rig = open(sfp(inside)).expect("the link may work nevertheless");
        assert!(start.elapsed() < Duration::from_secs(10), "bounded");
        let problem = match (inside, rig.port.cage()) {
            (ModuleKind::Liar, Some(Cage::Module(module))) if module.kind == SfpKind::ShortRange => module.to_string(),
            (ModuleKind::Stuck | ModuleKind::StuckData, Some(Cage::Unreadable(problem))) => problem.clone(),
            (_, other) => panic!("{other:?}"),
        };
        assert!(problem.contains(cause) && !problem.contains('\n'), "{problem}");
        assert_eq!(link(&rig), TEN, "{inside:?}: as for any module of 10 Gbit/s");
    }
}

/// The card is opened and set as it should be, in bounded time: a link may come up nevertheless.
#[test]
fn auto_negotiation_that_never_begins_does_not_hold_up() {
    let start = Instant::now();
    // Not set as it should be: the mode has to change.
    let rig = open(sfp(ModuleKind::ShortRange1G).fault(Fault::AnStuck)).expect("it opens");
    assert!(start.elapsed() < Duration::from_secs(10), "bounded");
    rig.port.close().expect("the device closes");
}

#[test]
fn copper_is_powered() {
    for id in [DeviceId::X540, DeviceId::X550] {
        for fault in [None, Some(Fault::PhyAsleep)] {
            let builder = StrictNic::builder().id(id);
            let rig = open(fault.into_iter().fold(builder, StrictBuilder::fault)).expect("a healthy device opens");
            assert_eq!(link(&rig), TEN, "{id:?} {fault:?}");
            rig.port.close().expect("the device closes");
        }
    }
}

/// The firmware of an X550 reads its EEPROM, and turns its receiver off. Without it the port opens and closes nevertheless, in bounded time;
/// so it does beside firmware that keeps a semaphore.
#[test]
fn firmware_that_does_not_do_its_part_does_not_hold_up() {
    let version = |rig: &Rig| rig.port.parts().into_iter().find(|part| part.0 == "firmware").expect("there is some").1;
    let rig = open(StrictNic::builder().id(DeviceId::X550)).expect("a healthy device opens");
    assert_eq!(version(&rig), "not told", "its words are read");
    for (id, fault, said) in [
        (DeviceId::X550, Fault::FirmwareSilent, "HICR"),
        (DeviceId::SfpPlus, Fault::FirmwareHolds { part: SharedPart::Mac }, "not told"),
    ] {
        let begun = Instant::now();
        let rig = open(StrictNic::builder().id(id).fault(fault)).expect("it opens");
        assert_eq!(link(&rig), TEN);
        assert!(version(&rig).contains(said), "{}", version(&rig));
        rig.port.close().expect("it closes");
        assert!(begun.elapsed() < Duration::from_secs(20), "bounded");
    }
}

/// Where firmware forbids changes of the link, the driver makes none: the strict card would panic.
#[test]
fn what_firmware_forbids_is_left_alone() {
    for id in [DeviceId::Cx4, DeviceId::SfpPlus, DeviceId::X540, DeviceId::X550] {
        let builder = StrictNic::builder().id(id).fault(Fault::FirmwareVeto);
        let mut rig = open(if id == DeviceId::SfpPlus { builder.module(ModuleKind::DualRate) } else { builder })
            .expect("it opens");
        assert!(rig.port.set_loopback(true).is_err(), "{id:?}");
        let _: LinkStatus = link(&rig);
        if id == DeviceId::SfpPlus {
            // A module of two rates is looked after twice a second.
            std::thread::sleep(Duration::from_millis(600));
        }
        rig.port.events().expect("the device is there");
        rig.port.close().expect("it closes");
        let builder = StrictNic::builder().id(id).fault(Fault::FirmwareVeto);
        let limit = ethdev::TimeLimit { total: Duration::from_secs(120), cancel: None };
        let checks = ixgbe::selftest(builder.build(), &limit).expect("it is tested");
        assert!(checks.iter().all(|check| check.verdict != ethdev::Verdict::Failed), "{checks:#?}");
    }
}

/// A program that died while it held the semaphores of an X540 or X550, which a reset leaves taken: the next one gives them back.
#[test]
fn semaphores_that_were_left_are_given_back() {
    for id in [DeviceId::X540, DeviceId::X550] {
        let begun = Instant::now();
        let rig = open(StrictNic::builder().id(id).fault(Fault::SemaphoreLeft)).expect("it opens");
        assert!(begun.elapsed() < Duration::from_secs(10), "bounded");
        assert_eq!(link(&rig), TEN, "{id:?}");
        rig.port.close().expect("it closes");
    }
}

#[test]
fn a_phy_that_does_not_answer_is_one_clear_error() {
    let broken = |fault| {
        let builder = StrictNic::builder().id(DeviceId::X540).on_violation(OnViolation::Record).fault(fault);
        let start = Instant::now();
        let error = open(builder).expect_err("no link is to be had");
        assert!(start.elapsed() < Duration::from_secs(10), "bounded");
        error
    };
    let silent = broken(Fault::PhySilent);
    assert!(matches!(silent, Error::Phy { .. }), "{silent}");
    assert!(silent.to_string().contains("none answers on MDIO"), "{silent}");
    let stuck = broken(Fault::PhyStuck);
    assert!(matches!(stuck, Error::Timeout { register: "MSCA", .. }), "{stuck}");
}
