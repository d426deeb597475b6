//! The self-test finds each fault of the software NIC by the check that is about it, on every model, and says nothing of a NIC that is
//! in order. Each test ends within a time of its own, and all buffers come home.

use nic::{Cause, Check, PortConfig, SelfTest, TimeLimit, Verdict};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

/// What a NIC of this specification (without name) is expected to show: checks that fail, each with a word of what it has seen, the
/// check that an error ends, with its cause, or checks that are in order and say so in this word.
struct Case {
    spec: &'static str,
    failed: &'static [(&'static str, &'static str)],
    ended: Option<(&'static str, Cause)>,
    says: &'static [(&'static str, &'static str)],
}

const fn good(spec: &'static str, says: &'static [(&'static str, &'static str)]) -> Case {
    Case { spec, failed: &[], ended: None, says }
}

const fn bad(spec: &'static str, failed: &'static [(&'static str, &'static str)]) -> Case {
    Case { spec, failed, ended: None, says: &[] }
}

const fn ended(spec: &'static str, check: &'static str, cause: Cause) -> Case {
    Case { spec, failed: &[], ended: Some((check, cause)), says: &[] }
}

const MODELS: &[Case] = &[
    good(
        "id=10f9",
        &[("registers", "574"), ("frame sizes", "and 9018"), ("frame counts", "1 to 127"), ("all again", "6 checks")],
    ),
    good("id=10fb", &[("module", "passive cable of 1 m"), ("RSS", "256 flows on 8 queues")]),
    good("id=x540", &[("PHY", "at MDIO address 0"), ("interrupts", "each of 8 queues"), ("DMA above 4 GiB", "all")]),
    good("id=x550", &[("EEPROM", "its checksum is right"), ("PHY", "0x01540221 at MDIO address 0"), ("RSS", "")]),
    good("id=10fb&module=long-dac", &[("module", "passive cable")]),
    good("id=10fb&module=active-dac", &[("module", "active cable")]),
    good("id=10fb&module=sr", &[("module", "10GBASE-SR")]),
    good("id=10fb&module=lr", &[("module", "10GBASE-LR")]),
    good("id=10fb&module=dual-sr", &[("module", "two rates")]),
    good("id=10fb&module=dual-sr-1g", &[("module", "two rates"), ("link", "up, 1000 Mbit/s")]),
    good("id=10fb&module=1g-sx", &[("module", "1000BASE-SX"), ("link", "1000 Mbit/s")]),
    good("id=10fb&module=1g-lx", &[("module", "1000BASE-LX")]),
    good("id=10fb&module=1g-t", &[("module", "1000BASE-T")]),
    good("id=10fb&module=none", &[("module", "empty"), ("link", "down")]),
    bad("id=10fb&module=liar", &[("module", "checksum")]),
    bad("id=10fb&module=stuck", &[("module", "the clock wire of its two-wire bus is held down")]),
    bad("id=10fb&module=stuck-data", &[("module", "the data wire of its two-wire bus is held down")]),
    good("link=down", &[("link", "down: none in 9 s; no cable")]),
    good("wire=gen", &[("statistics", "as were sent")]),
    good("wire=loop", &[("link", "up, 10000 Mbit/s")]),
    good("id=10ed", &[("loop inside", "cannot loop frames back"), ("link", "up, 10000 Mbit/s"), ("close", "in order")]),
    good("id=1515", &[("link", "up, 10000 Mbit/s"), ("all again", "another reset")]),
    good("id=1565&queues=2", &[("link", "up, 10000 Mbit/s"), ("all again", "on 2 receive queues")]),
];

const FAULTS: &[Case] = &[
    bad("fault=stuck-reset", &[("reset", "CTRL.RST")]),
    bad("fault=stuck-gio", &[("requests to memory", "STATUS.GIO")]),
    // As much as drivers wait for: it is told, and is no failure.
    good("fault=slow-reset:30", &[("reset", "takes writes")]),
    // Opening needs the semaphore only for a link that is down, which comes up meanwhile or not.
    bad(
        "fault=slow-reset:60000",
        &[("reset", "takes no writes"), ("registers", "574 of 574"), ("open", "gave up waiting")],
    ),
    bad("fault=an-stuck", &[("auto-negotiation", "ANLP1")]),
    bad("id=10fb&fault=an-stuck", &[("auto-negotiation", "ANLP1")]),
    bad("fault=firmware-holds", &[("semaphores", "that of the MAC was held for a second")]),
    bad("id=x550&fault=firmware-silent", &[("EEPROM", "HICR")]),
    // What an earlier driver may do: it is told, and mended.
    good("id=x540&fault=phy-asleep", &[("PHY", "was in low power"), ("link", "up")]),
    bad("id=x540&fault=phy-silent", &[("PHY", "none answers"), ("open", "none answers")]),
    bad("id=x540&fault=phy-stuck", &[("PHY", "MSCA"), ("open", "MSCA")]),
    ended("fault=removal", "reset", Cause::Gone),
    // Of the physical function behind a virtual one.
    ended("id=10ed&fault=pf-silent", "open", Cause::PfSilent),
    ended("id=1515&fault=pf-refuses", "open", Cause::PfRefused),
    ended("id=10ed&fault=pf-reset:3", "open", Cause::PfReset),
    ended("id=10ed&fault=pf-gone", "open", Cause::PfAway),
    bad("id=1565&fault=pf-flood", &[("link", "changes by itself")]),
    ended("id=10ed&fault=pf-garbage", "open", Cause::PfNonsense),
    ended("fault=removal:500", "registers", Cause::Gone),
    bad("fault=rx-length-zero", &[("loop inside", "1 arrived with a length of 0")]),
    bad("fault=rx-length-zero:50", &[("frame sizes", "with a length of 0")]),
    bad("fault=rx-length-over", &[("loop inside", "beyond its buffer")]),
    bad("fault=rx-length-over:1000", &[("loop inside", "of 60 bytes came back with 1000")]),
    bad("fault=rx-no-eop", &[("loop inside", "EOP")]),
    bad("fault=rx-out-of-order", &[("loop inside", "only when another follows")]),
    bad("fault=rx-error-bits", &[("loop inside", "1 arrived marked as bad")]),
    bad("fault=tx-frozen", &[("loop inside", "counts 0 sent and 0 received")]),
    bad("fault=tx-out-of-order", &[("write-back", "only when more follow")]),
    bad("fault=no-dd", &[("write-back", "never reported")]),
    bad("fault=reta-stuck", &[("RSS", "arrives by queue 0, not")]),
    bad("id=x550&fault=reta-stuck", &[("RSS", "arrives by queue 0, not")]),
    // There is one queue at first.
    bad("id=10fb&fault=reta-stuck:5", &[("loop inside", "0 of 1 frames came back")]),
    bad("fault=interrupt-lost", &[("interrupts", "a frame on queue 0 brings none")]),
    bad("id=x540&fault=interrupt-lost:7", &[("interrupts", "a frame on queue 7 brings none")]),
    bad("fault=counter-stuck", &[("statistics", "0 frames received, and not")]),
    bad("id=10fb&fault=counter-stuck:gptc", &[("statistics", "0 frames sent, and not")]),
    bad("id=x540&fault=counter-stuck:gorc", &[("statistics", "0 bytes received, and not")]),
    bad("id=x550&fault=counter-stuck:gotc", &[("statistics", "0 bytes sent, and not")]),
    bad("id=10fb&fault=analog-endless", &[("EEPROM", "the settings for SFP+ modules at word 0x220 have no end")]),
    bad("fault=eeprom-flip", &[("EEPROM", "its checksum is wrong")]),
    bad("id=x540&fault=eeprom-flip:770", &[("EEPROM", "its checksum is wrong")]),
    bad("id=x550&fault=eeprom-flip:65", &[("EEPROM", "its checksum is wrong")]),
];

/// Tested alone, as it is looked for within three milliseconds.
const STORM: Case = bad("id=10fb&fault=interrupt-storm:3", &[("interrupts", "that of queue 3 fires again and again")]);

/// Tested apart from the others, as many at a time take each other's time: what firmware keeps, and what programs have left.
const SHARED: &[Case] = &[
    // Of a NIC that has no time to take steps a link does not change; the second is up for a moment at a time.
    bad("fault=link-flap:30", &[("link", "changes by itself")]),
    bad("fault=link-flap:20", &[("link", "changes by itself")]),
    // Each costs the checks that need it, and no other. The EEPROM's is taken after a second, as a dead program's is.
    Case {
        spec: "fault=firmware-holds:eep",
        failed: &[("semaphores", "that of the EEPROM was held")],
        ended: None,
        says: &[("EEPROM", "its checksum is right"), ("link", "up"), ("close", "in order")],
    },
    bad("id=10fb&fault=firmware-holds:phy", &[("semaphores", "that of PHY or module was held for a second")]),
    // Its PHY is to be put into low power at the end, too.
    bad(
        "id=x550&fault=firmware-holds:phy",
        &[("semaphores", "that of PHY or module was held"), ("PHY", "SW_FW_SYNC"), ("close", "SW_FW_SYNC")],
    ),
    // What a program that died may leave: it is told, and mended.
    good("id=x540&fault=semaphore-left", &[("semaphores", "left taken by a program"), ("link", "up")]),
    good(
        "id=x550&fault=semaphore-left",
        &[("semaphores", "(SW_FW_SYNC bits 0x1c0f)"), ("EEPROM", "is right"), ("PHY", "at MDIO")],
    ),
    good(
        "fault=firmware-veto",
        &[("auto-negotiation", "firmware forbids changes of the link"), ("loop inside", "cannot loop")],
    ),
    good(
        "id=x550&fault=firmware-veto",
        &[("PHY", "at MDIO address 0"), ("loop inside", "cannot loop"), ("link", "up")],
    ),
];

fn test(spec: &str) -> SelfTest {
    // Many are tested at a time, so that one may take longer than on a card of its own.
    let total = Duration::from_secs(60);
    static NAMES: AtomicUsize = AtomicUsize::new(0);
    let name = NAMES.fetch_add(1, Ordering::Relaxed);
    let address = format!("soft:tested-{name}?{spec}").parse().expect("an address");
    let config = PortConfig { time_limit: TimeLimit { total, cancel: None }, ..PortConfig::default() };
    let begun = Instant::now();
    let found = nic::selftest(&address, &config).unwrap_or_else(|error| panic!("{spec}: {error}"));
    assert!(begun.elapsed() < total + Duration::from_secs(10), "{spec}: bounded");
    found
}

/// Who holds it to write is alone: the devices of a process share one thread, and many take each other's time.
static ALONE: RwLock<()> = RwLock::new(());

/// Cases that are tested at a time by one test: most of the time is spent waiting, but all devices of a process share one thread, and
/// on two busy processors one of ninety may get no turn in as long as a check waits.
const AT_A_TIME: usize = 6;

fn all(cases: &[Case]) {
    each(cases, |case| drop(judge(case)));
}

fn each(cases: &[Case], judge: impl Fn(&Case) + Sync) {
    let _with_others = ALONE.read().unwrap_or_else(PoisonError::into_inner);
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let work = || {
            while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                judge(case);
            }
        };
        let running: Vec<_> = (0..AT_A_TIME).map(|_| scope.spawn(work)).collect();
        running.into_iter().for_each(|run| run.join().expect("as expected"));
    });
}

fn judge(case: &Case) -> SelfTest {
    let found = test(case.spec);
    let named = |(name, word): &(&'static str, &str), verdict| {
        let seen = |check: &&Check| check.name == *name && (check.verdict == Verdict::Failed) == verdict;
        let check = found.checks.iter().find(seen);
        assert!(
            check.is_some_and(|check| check.seen.contains(word)),
            "{}: {name}, {word}: {:#?}",
            case.spec,
            found.checks
        );
    };
    case.failed.iter().for_each(|expected| named(expected, true));
    case.says.iter().for_each(|expected| named(expected, false));
    let first = found.failed().next().map(|check| (check.name, check.cause));
    if let Some((name, cause)) = case.ended {
        assert_eq!(first, Some((name, Some(cause))), "{}: {:#?}", case.spec, found.checks);
    } else {
        assert_eq!(first.is_none(), case.failed.is_empty(), "{}: {:#?}", case.spec, found.checks);
    }
    if case.failed.len() == 1 {
        // What else fails is a consequence, and comes later.
        assert_eq!(first.map(|first| first.0), Some(case.failed[0].0), "{}: {:#?}", case.spec, found.checks);
    }
    assert!(found.checks.iter().all(|check| check.name != "buffers" && !check.seen.contains('\n')), "{}", case.spec);
    found
}

#[test]
fn models_in_order_pass_and_say_what_they_are() {
    all(MODELS);
}

#[test]
fn each_fault_is_found_by_its_check() {
    all(FAULTS);
}

#[test]
fn what_is_shared_with_others_is_tested() {
    each(SHARED, |case| {
        let found = judge(case);
        let failed: Vec<_> = found.failed().map(|check| check.name).collect();
        let expected: Vec<_> = case.failed.iter().map(|expected| expected.0).collect();
        assert_eq!(failed, expected, "{}: no other", case.spec);
    });
}

#[test]
fn a_storm_of_interrupts_is_found() {
    let _alone = ALONE.write().unwrap_or_else(PoisonError::into_inner);
    // Again where the software NIC stood still meanwhile.
    let mut tries = (0..5).map(|_| test(STORM.spec));
    let found = tries.find(|found| found.failed().next().is_some()).expect("a check fails");
    let failed: Vec<_> = found.failed().map(|check| (check.name, &*check.seen)).collect();
    assert!(
        matches!(failed[..], [(name, seen)] if name == STORM.failed[0].0 && seen.contains(STORM.failed[0].1)),
        "{failed:?}"
    );
}

/// A reset within the time that drivers wait is no failure (50 ms, of an X550 100), but its time is measured, and so is a longer one.
#[test]
fn a_slow_reset_is_told_with_its_time() {
    let _with_others = ALONE.read().unwrap_or_else(PoisonError::into_inner);
    for (id, slow, failed) in [("10f9", 30, false), ("10fb", 75, true), ("10f9", 300, true), ("x550", 150, true)] {
        let found = test(&format!("id={id}&fault=slow-reset:{slow}"));
        let reset = found.checks.iter().find(|check| check.name == "reset").expect("it is reset");
        let rest = reset.seen.strip_prefix("takes writes ");
        let time = rest.and_then(|rest| rest.split(' ').next()?.parse::<u64>().ok());
        assert!(time.is_some_and(|time| time >= slow), "{id}, {slow}: {reset:?}");
        // A busy machine finds a quick one slow, too.
        assert!(!failed || reset.verdict == Verdict::Failed, "{id}, {slow}: {reset:?}");
    }
}

/// The walk over the sections of the EEPROM waits for a holder of its semaphore once, and so does each opening for a module's settings:
/// in the trace, the times at which the driver takes it.
#[test]
fn a_semaphore_that_is_kept_leaves_time_for_the_rest() {
    let _with_others = ALONE.read().unwrap_or_else(PoisonError::into_inner);
    for (id, most) in [("10f9", 2), ("10fb", 3), ("x540", 2)] {
        let trace = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("kept-{id}.txt"));
        let found = test(&format!("id={id}&fault=firmware-holds:eep&trace={}", trace.display()));
        let failed: Vec<_> = found.failed().map(|check| check.name).collect();
        assert_eq!(failed, ["semaphores"], "{id}: {:#?}", found.checks);
        for name in ["EEPROM", "reset again", "loop inside", "close"] {
            assert!(found.checks.iter().any(|check| check.name == name), "{id}, {name}: {:#?}", found.checks);
        }
        let text = std::fs::read_to_string(&trace).expect("a trace");
        let taken = text.lines().filter(|line| line.ends_with(" SW_FW_SYNC")).filter_map(|line| {
            let value = line.split_whitespace().nth(3)?.strip_prefix("0x")?;
            Some(u32::from_str_radix(value, 16).expect("a value") & 0x8000_0001 == 1)
        });
        let taken = taken.filter(|taken| *taken).count();
        assert!((1..=most).contains(&taken), "{id}: taken {taken} times");
    }
}

/// The table is complete: the software NIC itself lists its faults.
#[test]
fn no_fault_is_forgotten() {
    let error = "?".parse::<softnic::Fault>().expect_err("no fault has that name").to_string();
    let listed = error.rsplit(": ").next().or(Some(&error)).expect("a list");
    let known: BTreeSet<&str> = FAULTS
        .iter()
        .chain(SHARED)
        .chain([&STORM])
        .filter_map(|case| case.spec.split_once("fault=")?.1.split(':').next())
        .collect();
    let names: Vec<&str> = listed.split([',', ' ', ';']).map(|name| name.split('[').next().unwrap_or(name)).collect();
    for name in &known {
        assert!(names.contains(name), "{name} in: {listed}");
    }
    let faults = names.iter().filter(|name| name.parse::<softnic::Fault>().is_ok());
    let forgotten: Vec<_> = faults.filter(|name| !known.contains(**name)).collect();
    assert!(forgotten.is_empty(), "{forgotten:?}");
    assert!(names.iter().filter(|name| name.parse::<softnic::Fault>().is_ok()).count() >= 23, "{names:?}");
}

/// A NIC that is pulled out ends the test wherever it is, with one failed check that says so.
#[test]
fn removal_in_the_middle_ends_the_test() {
    let _with_others = ALONE.read().unwrap_or_else(PoisonError::into_inner);
    let reads = [0, 7, 100, 700, 2000, 3000, 3400, 3500, 3600, 3800];
    std::thread::scope(|scope| {
        for reads in reads {
            scope.spawn(move || {
                let found = test(&format!("fault=removal:{reads}"));
                let failed: Vec<_> = found.failed().collect();
                assert!(failed.iter().all(|check| check.cause == Some(Cause::Gone)), "{reads}: {failed:#?}");
                assert!(found.checks.iter().all(|check| check.name != "buffers"), "{reads}");
            });
        }
    });
}
