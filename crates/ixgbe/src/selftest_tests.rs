use super::*;
use crate::Error;
use crate::fake::Fake;
use crate::regs::{ANLP1, MSCA, status};
use ethdev::Verdict::{Failed, NotApplicable, Ok as Good};
use ethdev::{Cause, Verdict};

fn run(fake: &Fake) -> Vec<Check> {
    // No check depends on what is left of it, however slow this machine is.
    selftest(fake.clone(), &TimeLimit { total: Duration::from_secs(600), cancel: None }).unwrap()
}

/// The check of this name, its verdict and what it has seen.
#[track_caller]
fn seen<'c>(checks: &'c [Check], name: &str) -> (Verdict, &'c str) {
    let check = checks.iter().find(|check| check.name == name).expect("there is such a check");
    (check.verdict, &check.seen)
}

#[test]
fn a_bit_that_is_stuck_is_named_and_registers_are_put_back() {
    let fake = Fake::new(0x10FB);
    fake.set(RETA.at(3), 0x0102_0304);
    fake.on_read(VFTA.at(7), |storage| storage.get(&VFTA.at(7).offset()).copied().unwrap_or(0) | 1 << 30);
    let checks = run(&fake);
    let (verdict, text) = seen(&checks, REGISTERS);
    assert_eq!(verdict, Failed);
    assert!(text.contains("1 of") && text.contains("VFTA@0x0a01c keeps 0xe5a5a5a5 of 0xa5a5a5a5"), "{text}");
    assert_eq!(fake.get(RETA.at(3)), 0x0102_0304);
}

/// The text may go into a report, where the card's own address is nobody's business.
#[test]
fn an_address_that_cannot_be_overwritten_is_not_told() {
    for (register, name) in [(ral(0), "RAL@0x05400"), (rah(0), "RAH@0x05404")] {
        let fake = Fake::new(0x10FB);
        let own = fake.get(register);
        fake.on_read(register, move |_| own);
        let checks = run(&fake);
        let (verdict, text) = seen(&checks, REGISTERS);
        assert!(verdict == Failed && text.contains(name), "{text}");
        assert!(!text.contains(&format!("{own:#010x}")), "{text}");
    }
}

#[test]
fn a_checksum_that_is_wrong_and_an_eeprom_that_is_missing() {
    let fake = Fake::new(0x10FB);
    fake.set_eeprom(vec![1; 0x40]);
    let checks = run(&fake);
    assert_eq!(seen(&checks, EEPROM).0, Failed, "{checks:?}");
    let fake = Fake::new(0x10FB);
    fake.on_read(EEC, |_| eec::ARD.mask());
    assert_eq!(seen(&run(&fake), EEPROM), (Failed, "there is none (EEC.EE_PRES)"));
    assert_eq!(seen(&run(&Fake::new(0x1563)), EEPROM).0, Failed, "an X550's, which firmware reads");
}

#[test]
fn a_semaphore_that_firmware_keeps_is_named() {
    let fake = Fake::new(0x10FB);
    fake.set(SW_FW_SYNC, 1 << 8);
    let checks = run(&fake);
    let (verdict, text) = seen(&checks, SEMAPHORES);
    assert!(verdict == Failed && text.starts_with("that of the MAC was held for a second"), "{text}");
}

/// Whoever keeps the EEPROM's is named, and costs the EEPROM's check only; all others follow.
#[test]
fn a_semaphore_that_is_kept_does_not_end_the_test() {
    for (device, register) in [(0x10FB, SW_FW_SYNC), (0x1563, SW_FW_SYNC)] {
        let fake = Fake::new(device);
        fake.on_read(register, move |storage| storage.get(&register.offset()).copied().unwrap_or(0) | 1 << 5);
        let checks = run(&fake);
        let (verdict, text) = seen(&checks, SEMAPHORES);
        assert!(verdict == Failed && text.starts_with("that of the EEPROM was held for a second"), "{text}");
        assert_eq!((seen(&checks, EEPROM).0, seen(&checks, RESET_AGAIN).0), (Failed, Good), "{checks:?}");
    }
}

#[test]
fn a_device_that_goes_away_ends_the_test() {
    for read in [0, 100, 2000] {
        let fake = Fake::new(0x10FB);
        fake.vanish_at_read(read);
        let checks = run(&fake);
        let last = checks.last().expect("one at least");
        assert_eq!((last.verdict, last.cause), (Failed, Some(Cause::Gone)), "{checks:?}");
        assert!(checks[..checks.len() - 1].iter().all(|check| check.verdict != Failed || check.name != last.name));
    }
}

/// Wherever the end of its time finds it, on a device of which nothing ever gets ready: what is held is given back, and that is all.
#[test]
fn a_test_that_is_out_of_time_ends_at_once() {
    let stalled = |device| {
        let fake = Fake::new(device);
        fake.on_read(STATUS, |_| status::GIO.mask());
        fake.on_read(SW_FW_SYNC, |storage| {
            let ours = storage.get(&SW_FW_SYNC.offset()).copied().unwrap_or(0);
            // Firmware keeps the EEPROM's and the MAC's; the others can be taken, and nobody answers.
            ours | 0x120
        });
        for silent in [MSCA.offset(), ANLP1.offset(), HICR.offset()] {
            fake.on_read_at(silent, |_| u32::MAX >> 1);
        }
        fake
    };
    let ends_at = |device, position| {
        let (fake, flag) = (stalled(device), Arc::default());
        fake.flag_at_read(position, &flag);
        // The flag is the clock: by the other one there is an hour.
        let limit = TimeLimit { total: Duration::from_secs(3600), cancel: Some(Arc::clone(&flag)) };
        let checks = selftest(fake.clone(), &limit).expect("a device of this family");
        let reads = fake.reads().len();
        // How many reads there are in all depends on how often waits look, and so on the machine.
        assert!(reads > position || position > 300, "{device:#x}: {reads} reads");
        assert!(reads < position + 400, "{device:#x}: {reads} reads, {position} in time");
        assert!(
            reads <= position || checks.iter().any(|check| check.seen.contains("interrupted")),
            "{device:#x}, {position}: {checks:?}"
        );
    };
    std::thread::scope(|scope| {
        for device in [0x10FB, 0x1528, 0x1563] {
            for position in [0, 9, 300, 1500, 2700, 2950, 3000, 3040] {
                scope.spawn(move || ends_at(device, position));
            }
        }
    });
}

#[test]
fn the_parts_of_an_x540() {
    let fake = Fake::new(0x1528);
    let checks = run(&fake);
    assert_eq!(seen(&checks, PHY).0, Good, "{checks:?}");
    assert_eq!((seen(&checks, MODULE).0, seen(&checks, NEGOTIATION).0), (NotApplicable, NotApplicable));
}

#[test]
fn a_dump_writes_nothing_and_takes_no_semaphore() {
    for device in [0x10FB, 0x1528, 0x1563] {
        let fake = Fake::new(device);
        fake.set(RETA.at(1), 7);
        let values = registers(fake.clone()).unwrap();
        assert!(fake.writes().is_empty());
        let value = |name: &str| values.iter().find(|value| value.name == name).map(|value| value.value);
        assert_eq!(value("RETA[1]"), Some(Some(7)));
        assert_eq!(
            (value("GPRC"), value("EICR"), value("SWSM"), value("EIMC")),
            (Some(None), Some(None), Some(None), Some(None))
        );
        assert_eq!(value("SW_FW_SYNC").unwrap().is_some(), device == 0x10FB);
        assert_eq!(value("ERETA[0]").is_some(), device == 0x1563);
        // Nor is anything read that the device has not.
        let others = if device == 0x1563 { vec![] } else { vec![ERETA.at(0), FLEX_MNG.at(0), HICR, FWSTS] };
        for register in others.into_iter().chain([SWSM]) {
            assert!(!fake.reads().contains(&register.offset()), "{device:#x}: {register:?}");
        }
    }
    let fake = Fake::new(0x10FB);
    fake.vanish_at_read(50);
    assert!(matches!(registers(fake), Err(Error::Gone { .. })));
}
