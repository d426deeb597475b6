#![expect(clippy::unwrap_used, reason = "a test that cannot start fails")]
//! Devices, mappers and loggers that do what they should not, at any moment: packets keep to their slots, every slot is in
//! one place, and a call does a bounded amount of work.
#![expect(unsafe_code, reason = "plays the card")]

mod common;

use common::{PanickingLog, check_disjoint, fill};
use device::{Device as _, Expired, TimeLimit};
use ethdev::{Port as _, RxQueue as _, TxQueue as _};
use ixgbe::fake::{Fake, Mapping, Queue};
use ixgbe::regs::{CRCERRS, CTRL, EEC, EERD, GPTC, LINKS, RDRXCTL, RXDCTL, SW_FW_SYNC, SWSM, TDH, TXDCTL};
use ixgbe::{Config, Error, Opened};
use mempool::{Batch, Pool, PoolConfig};
use softnic::{DeviceId, Fault, ModuleKind, StrictBuilder, StrictNic};
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tracing::field::Field;
use tracing::{Level, Metadata, Subscriber, span};

const DD: u64 = 1;
const EOP: u64 = 2;
const RX_ERROR: u64 = 1 << 29;
const TX_DD: u64 = 1 << 32;

fn config() -> Config {
    let mut config = Config::default();
    (config.port.rx_ring, config.port.tx_ring, config.port.mtu) = (64, 64, 9000);
    config
}

fn pool(slots: usize) -> Pool {
    Pool::new(&PoolConfig { slots, ..PoolConfig::default() }).unwrap()
}

fn open(pool: &Pool) -> (Fake, Opened<Fake>) {
    let fake = Fake::new(0x1563);
    let opened = ixgbe::open(fake.clone(), &config(), pool).unwrap();
    (fake, opened)
}

/// Closes the port, and sees every slot home.
fn close<D: device::Device>(opened: Opened<D>, pools: &[&Pool]) {
    let Opened { port, rx, tx } = opened;
    port.close().unwrap();
    drop((rx, tx));
    for pool in pools {
        assert_eq!(pool.away(), 0, "every slot is home");
    }
}

/// P1: a device that changes the lengths of all descriptors all the time, in frames of several buffers: what was checked is
/// what is used.
#[test]
fn p1_a_length_that_changes_between_reads_never_leaves_the_slot() {
    let pool = pool(512);
    let (fake, mut opened) = open(&pool);
    let wanted = if cfg!(miri) { 10 } else { 5000 };
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let ring = fake.descriptors(Queue::Rx(0)).unwrap();
            while !done.load(Ordering::Relaxed) {
                for len in [2048_u64, 65_535] {
                    for index in 0..ring.count() {
                        let end = if index % 2 == 1 { EOP } else { 0 };
                        ring.set(index, 1, len << 32 | DD | end);
                    }
                }
            }
        });
        let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(32));
        let (mut frames, mut fault) = (0, None);
        while frames < wanted && fault.is_none() {
            opened.rx[0].recv(&mut cache, &mut batch);
            frames += batch.iter().filter(|packet| packet.continues()).count();
            fault = batch.iter().map(mempool::Packet::len).find(|len| !(1..=2048).contains(len));
            cache.free_batch(&mut batch);
        }
        done.store(true, Ordering::Relaxed);
        assert_eq!(fault, None, "bytes in a slot of 2048");
    });
    close(opened, &[&pool]);
}

/// Whoever keeps the semaphore of module or MAC holds up who asks for events for a moment only, and is not overruled in it, but when the
/// next look comes.
#[test]
fn a_look_at_a_port_without_a_link_is_short_and_the_next_overrules() {
    const PHY0: u32 = 1 << 1;
    let pool = pool(512);
    let fake = Fake::new(0x10FB);
    let mut opened = ixgbe::open(fake.clone(), &config(), &pool).unwrap();
    let looks = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&looks);
    // Firmware keeps it for ever.
    fake.on_read(SW_FW_SYNC, move |storage| {
        count.fetch_add(1, Ordering::Relaxed);
        storage.get(&SW_FW_SYNC.offset()).copied().unwrap_or(0) | PHY0 << 5
    });
    let before = fake.writes().len();
    while looks.load(Ordering::Relaxed) == 0 {
        opened.port.events().unwrap();
        std::thread::sleep(Duration::from_millis(10));
    }
    let taken = |(offset, value): &(u32, u32)| *offset == SW_FW_SYNC.offset() && value & PHY0 != 0;
    assert!(!fake.writes()[before..].iter().any(taken), "the look ended before the holder counts as dead");
    // The next look is seconds away.
    let after = looks.load(Ordering::Relaxed);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(1) {
        opened.port.events().unwrap();
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(begun.elapsed() > Duration::from_secs(5) || looks.load(Ordering::Relaxed) == after);
    while !fake.writes()[before..].iter().any(taken) {
        assert!(begun.elapsed() < Duration::from_secs(60), "who keeps it for ever is taken for dead");
        opened.port.events().unwrap();
        std::thread::sleep(Duration::from_millis(10));
    }
    fake.on_read(SW_FW_SYNC, |storage| storage.get(&SW_FW_SYNC.offset()).copied().unwrap_or(0));
    close(opened, &[&pool]);
}

/// Firmware that keeps the semaphore of the MAC leaves the module at the rate of the MAC, and is overruled in the end.
#[test]
fn a_change_of_rate_is_whole_or_none() {
    const SDP5: u32 = 1 << 5;
    const LMS_1G: u32 = 2;
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    let spec = format!("two-rates?id=10fb&module=dual-sr&link=down&trace={}", trace.display());
    let device = softnic::SoftDevice::open(&spec).unwrap();
    let (control, pool) = (device.control(), pool(512));
    let mut opened = ixgbe::open(device, &config(), &pool).unwrap();
    // Whether module and MAC are at 10 Gbit/s.
    let rates = || {
        let text = std::fs::read_to_string(&trace).unwrap();
        let last = |name| {
            let line = text.lines().rfind(|line| line.ends_with(name)).unwrap();
            u32::from_str_radix(line.split_whitespace().nth(3).unwrap().trim_start_matches("0x"), 16).unwrap()
        };
        (last(" ESDP") & SDP5 != 0, last(" AUTOC") >> 13 & 7 != LMS_1G)
    };
    assert_eq!(rates(), (true, true));
    control.inject_fault(softnic::Fault::FirmwareHolds { part: softnic::SharedPart::Mac });
    let begun = Instant::now();
    while rates() == (true, true) {
        assert!(begun.elapsed() < Duration::from_secs(60), "the other rate is tried in the end");
        opened.port.events().unwrap();
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(rates(), (false, false));
    close(opened, &[&pool]);
}

/// A device that never stops handing over bad frames: a call drops those of one turn of the ring and returns.
#[test]
fn a_stream_of_bad_frames_ends_a_call() {
    let wanted = if cfg!(miri) { 100 } else { 2000 };
    for bad in [DD | EOP | RX_ERROR | 60 << 32, DD | EOP, DD | EOP | 9999 << 32, DD | 60 << 32] {
        let pool = pool(512);
        let (fake, mut opened) = open(&pool);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let ring = fake.descriptors(Queue::Rx(0)).unwrap();
                while !done.load(Ordering::Relaxed) {
                    (0..ring.count()).for_each(|index| ring.set(index, 1, bad));
                }
            });
            let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(32));
            let (mut calls, mut most) = (0, 0);
            // A frame that never ends is counted once only, and each call has to end.
            while calls < if cfg!(miri) { 10 } else { 1000 }
                || (bad & EOP != 0 && opened.rx[0].counters().dropped() < wanted)
            {
                let before = opened.rx[0].counters().dropped();
                assert_eq!(opened.rx[0].recv(&mut cache, &mut batch).len(), 0);
                let dropped = opened.rx[0].counters().dropped() - before;
                most = most.max(dropped);
                if dropped == 0 {
                    std::thread::yield_now();
                }
                calls += 1;
            }
            done.store(true, Ordering::Relaxed);
            assert!(most <= 64, "{most} frames in one call, on a ring of 64");
        });
        close(opened, &[&pool]);
    }
}

#[test]
fn p3_a_logger_that_panics_leaves_no_packet_in_ring_and_batch() {
    let (pool, other) = (pool(512), pool(64));
    let (fake, mut opened) = open(&pool);
    fake.set_mapping(Mapping::Fails);
    let mut batch = Batch::with_capacity(8);
    let mut cache = pool.cache();
    fill(&mut batch, &pool, 2);
    fill(&mut batch, &other, 1);
    fill(&mut batch, &pool, 3);
    let outcome = tracing::subscriber::with_default(PanickingLog, || {
        catch_unwind(AssertUnwindSafe(|| opened.tx[0].send(&mut cache, &mut batch)))
    });
    assert!(outcome.is_err(), "the failure is logged");
    assert_eq!((opened.tx[0].in_flight(), batch.len(), other.away()), (2, 3, 0));
    assert_eq!(fake.tail(Queue::Tx(0)), 2, "what came before has been announced");
    check_disjoint(&batch);
    // The same again: it is not tried, so nothing is logged, and the rest goes out.
    fill(&mut batch, &other, 1);
    let sent = tracing::subscriber::with_default(PanickingLog, || opened.tx[0].send(&mut cache, &mut batch));
    assert_eq!((sent, opened.tx[0].in_flight(), batch.len()), (4, 5, 0));
    assert_eq!(opened.tx[0].counters().unmapped_pool, 2);
    drop(cache);
    close(opened, &[&pool, &other]);
}

#[test]
fn p3_a_mapper_that_panics_leaves_no_packet_in_ring_and_batch() {
    let (pool, other) = (pool(512), pool(64));
    let (fake, mut opened) = open(&pool);
    fake.set_mapping(Mapping::Panics);
    let mut batch = Batch::with_capacity(8);
    let mut cache = pool.cache();
    fill(&mut batch, &pool, 2);
    fill(&mut batch, &other, 1);
    let outcome = catch_unwind(AssertUnwindSafe(|| opened.tx[0].send(&mut cache, &mut batch)));
    assert!(outcome.is_err());
    assert_eq!((opened.tx[0].in_flight(), batch.len()), (2, 1));
    check_disjoint(&batch);
    // The next call announces what that one could not, and once the mapper has come to its senses all goes out.
    fake.set_mapping(Mapping::Paged);
    assert_eq!(opened.tx[0].send(&mut cache, &mut batch), 1);
    assert_eq!(fake.tail(Queue::Tx(0)), 3);
    assert_eq!(fake.map_tries(), 4, "rings, pool, the other pool twice");
    drop(cache);
    close(opened, &[&pool, &other]);
}

/// A pool that cannot be mapped is not tried again for each packet.
#[test]
fn a_pool_that_cannot_be_mapped_is_remembered() {
    let (pool, others) = (pool(512), [pool(64), pool(64)]);
    let (fake, mut opened) = open(&pool);
    fake.set_mapping(Mapping::Fails);
    let tries = fake.map_tries();
    let mut cache = pool.cache();
    let begun = std::time::Instant::now();
    let mut batch = Batch::with_capacity(8);
    for _ in 0..50 {
        for other in &others {
            fill(&mut batch, other, 2);
        }
        assert_eq!(opened.tx[0].send(&mut cache, &mut batch), 4);
    }
    // Once, and once more for each second that this has taken, however slow the machine.
    let most = 2 * (1 + usize::try_from(begun.elapsed().as_secs()).unwrap());
    assert!((2..=most).contains(&(fake.map_tries() - tries)), "{}", fake.map_tries() - tries);
    assert_eq!(opened.tx[0].counters().unmapped_pool, 200);
    drop(cache);
    close(opened, &[&pool, &others[0], &others[1]]);
}

/// A device that reports transmit descriptors done that it never had: slots come back once each.
#[test]
fn reports_at_any_time_bring_each_slot_home_once() {
    let (pool, other) = (pool(512), pool(256));
    let (fake, mut opened) = open(&pool);
    let mut cache = pool.cache();
    let mut batch = Batch::with_capacity(40);
    for round in 0..if cfg!(miri) { 6 } else { 200 } {
        fill(&mut batch, if round % 3 == 0 { &other } else { &pool }, 20);
        opened.tx[0].send(&mut cache, &mut batch);
        batch.clear();
        for index in (round..64).step_by(1 + round % 5) {
            let word = fake.descriptor(Queue::Tx(0), index, 1).unwrap();
            fake.set_descriptor(Queue::Tx(0), index, 1, word | TX_DD);
        }
    }
    drop(cache);
    close(opened, &[&pool, &other]);
}

/// P6: what Shared says in the log when it is dropped comes after what it does.
#[test]
fn p6_a_device_that_cannot_be_stopped_keeps_its_memory_whatever_the_log_does() {
    for rings_first in [true, false] {
        let pool = pool(256);
        let memory = Arc::downgrade(pool.memory());
        let (fake, opened) = open(&pool);
        fake.set_stuck(true);
        let Opened { port, rx, tx } = opened;
        let outcome = tracing::subscriber::with_default(PanickingLog, || {
            catch_unwind(AssertUnwindSafe(|| {
                if rings_first {
                    drop((rx, tx));
                    assert!(port.close().is_err());
                } else {
                    assert!(port.close().is_err());
                    drop((rx, tx));
                }
            }))
        });
        assert!(outcome.is_err(), "it is logged");
        assert_eq!(pool.away(), 64, "the buffers of the receive ring stay away");
        // The device may write into them, and into its rings.
        assert!(fake.set_descriptor(Queue::Rx(0), 5, 1, DD));
        let buffer = fake.descriptor(Queue::Rx(0), 0, 0).unwrap();
        // SAFETY: a buffer of the receive ring, of which no packet was made.
        assert!(unsafe { fake.write_memory(buffer, &[0xEE; 2048]) });
        drop(pool);
        // SAFETY: as above.
        let written = unsafe { fake.write_memory(buffer, &[0xEE; 2048]) };
        assert!(written, "packet memory stays when the pool's last handle is gone");
        drop(fake);
        assert_eq!(memory.strong_count(), 3, "kept: by its pool, its domain and the mapper");
    }
}

/// Opens a port with this limit on a fake that `prepare` has changed.
fn open_within(limit: TimeLimit, pool: &Pool, prepare: impl FnOnce(&Fake)) -> Result<Opened<Fake>, Error> {
    let fake = Fake::new(0x10FB);
    prepare(&fake);
    let mut config = config();
    config.port.time_limit = limit;
    ixgbe::open(fake, &config, pool)
}

fn limit(milliseconds: u64) -> TimeLimit {
    TimeLimit { total: Duration::from_millis(milliseconds), cancel: None }
}

/// A device that does each step just before that is given up: the open as a whole ends in time.
#[test]
fn an_open_of_many_slow_steps_ends_with_its_time_limit() {
    let pool = pool(256);
    let begun = Instant::now();
    let outcome = open_within(limit(300), &pool, |fake| {
        // Each word of the EEPROM takes 40 of its 50 ms: 2.5 s for the first 64.
        fake.set_eeprom(vec![0; 0x4000]);
        let mut asked: Option<Instant> = None;
        fake.on_read(EERD, move |storage| {
            let since = asked.get_or_insert_with(Instant::now).elapsed();
            let done = since >= Duration::from_millis(40);
            if done {
                asked = None;
            }
            storage.get(&EERD.offset()).copied().unwrap_or(0) & !2 | u32::from(done) << 1
        });
    });
    let error = outcome.expect_err("it takes too long");
    assert!(matches!(error, Error::Expired { expired: Expired::TimedOut { .. }, .. }), "{error}");
    assert!(begun.elapsed() >= Duration::from_millis(300));
    assert_eq!(pool.away(), 0);
}

/// A slow EEPROM alone does not keep a port from opening.
#[test]
fn an_eeprom_that_is_too_slow_to_check_is_not_waited_for() {
    let pool = pool(256);
    let reads = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&reads);
    let opened = open_within(limit(600_000), &pool, |fake| {
        fake.on_read(EERD, move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            0
        });
    });
    close(opened.expect("it opens, and the log says what is wrong"), &[&pool]);
    assert!(reads.load(Ordering::Relaxed) > 0);
}

/// A log that keeps warnings, each a line.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _span: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _span: &span::Id, _values: &span::Record<'_>) {}

    fn record_follows_from(&self, _span: &span::Id, _follows: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = String::new();
        event.record(&mut |_: &Field, value: &dyn Debug| line += &format!("{value:?}"));
        self.0.lock().unwrap().push(line);
    }

    fn enter(&self, _span: &span::Id) {}

    fn exit(&self, _span: &span::Id) {}
}

/// A module that holds a wire of its bus down for ever, or an EEPROM whose settings for the module do not end: the port opens in bounded
/// time, the log says in one line what is wrong, and the buffers come home.
#[test]
fn a_bus_that_is_held_and_settings_without_end_are_one_line_and_hold_up_nothing() {
    for (module, fault, problem) in [
        (ModuleKind::StuckData, None, "the data wire of its two-wire bus is held down: take it out"),
        (ModuleKind::Stuck, None, "the clock wire of its two-wire bus is held down: take it out"),
        (ModuleKind::Cable, Some(Fault::AnalogEndless), "the settings for SFP+ modules at word 0x220 have no end"),
        (ModuleKind::ShortRange, Some(Fault::AnalogEndless), "the settings for SFP+ modules at word 0x230 have no end"),
    ] {
        let pool = pool(256);
        let builder = StrictNic::builder().id(DeviceId::SfpPlus).module(module);
        let nic = fault.into_iter().fold(builder, StrictBuilder::fault).build();
        let (log, begun) = (Warnings::default(), Instant::now());
        let opened = tracing::subscriber::with_default(log.clone(), || ixgbe::open(nic, &config(), &pool)).unwrap();
        assert!(begun.elapsed() < Duration::from_secs(10), "{module:?}: bounded");
        let lines = log.0.lock().unwrap().clone();
        assert!(lines.len() == 1 && lines[0].contains(problem) && !lines[0].contains('\n'), "{module:?}: {lines:#?}");
        assert_ne!(pool.away(), 0);
        close(opened, &[&pool]);
    }
}

/// The cancel flag ends an open at whatever step it is.
#[test]
fn an_open_is_cancelled_while_it_waits() {
    for register in [EEC.offset(), RDRXCTL.offset(), SWSM.offset(), EERD.offset()] {
        let pool = pool(256);
        let cancel = Arc::new(AtomicBool::new(false));
        let limit = TimeLimit { total: Duration::from_secs(3600), cancel: Some(Arc::clone(&cancel)) };
        let outcome = open_within(limit, &pool, |fake| {
            let mut reads = 0;
            fake.on_read_at(register, move |_| {
                reads += 1;
                cancel.store(reads >= 3, Ordering::Relaxed);
                // Not loaded, not initialised, held, not read.
                u32::from(register == SWSM.offset())
            });
        });
        let error = outcome.expect_err("it is cancelled");
        assert!(matches!(error, Error::Expired { expired: Expired::Cancelled, .. }), "{error}");
        assert_eq!(pool.away(), 0);
    }
}

/// A device of which no queue stops and no reset ends: 127 queues and 0.1 s for each would be 13 s. Bus mastering goes off all
/// the same, and the buffers come home; if it cannot be taken, they are kept.
#[test]
fn a_close_of_many_stuck_steps_ends_with_its_time_limit() {
    for stuck in [false, true] {
        let pool = pool(8192);
        let fake = Fake::new(0x1563);
        let mut config = config();
        (config.port.rx_queues, config.port.tx_queues, config.port.time_limit) = (63, 64, limit(200));
        let Opened { port, rx, tx } = ixgbe::open(fake.clone(), &config, &pool).unwrap();
        let slots = 63 * 64;
        drop((rx, tx));
        assert_eq!(pool.away(), slots, "what is in the rings waits for the device");
        for queue in 0..64 {
            fake.on_write(RXDCTL.at(queue), |_, _| {});
            fake.on_write(TXDCTL.at(queue), |_, _| {});
        }
        fake.on_write(CTRL, |storage, value| {
            storage.insert(CTRL.offset(), value);
        });
        fake.set_stuck(stuck);
        let begun = Instant::now();
        let error = port.close().expect_err("it does not stop");
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        // Its own limit, or that of the whole where the machine is slow.
        let is_first = matches!(
            error,
            Error::Timeout { register: "RXDCTL", .. } | Error::Expired { waiting_for: "the receive queue to stop", .. }
        );
        assert!(is_first, "the first step that failed: {error}");
        assert_eq!(pool.away(), if stuck { slots } else { 0 });
    }
}

/// A port with an hour for each operation, and the flag that ends them.
fn open_with_flag(pool: &Pool) -> (Fake, Opened<Fake>, Arc<AtomicBool>) {
    let cancel = Arc::new(AtomicBool::new(false));
    let limit = TimeLimit { total: Duration::from_secs(3600), cancel: Some(Arc::clone(&cancel)) };
    let mut device = None;
    let opened = open_within(limit, pool, |fake| device = Some(fake.clone())).unwrap();
    (device.unwrap(), opened, cancel)
}

/// Reading the counters ends when the flag is set, and what was left is read by the next call, which has time of its own.
#[test]
fn reading_counters_ends_early_and_goes_on_later() {
    let pool = pool(256);
    let (fake, opened, cancel) = open_with_flag(&pool);
    let mut port = opened.port;
    let flag = Arc::clone(&cancel);
    fake.on_read(CRCERRS, move |_| {
        flag.store(true, Ordering::Relaxed);
        1
    });
    let mut sent = 7;
    fake.on_read(GPTC, move |_| std::mem::take(&mut sent));
    let totals = port.statistics().unwrap();
    assert_eq!((totals.rx_errors.crc, totals.tx_packets), (1, 0));
    assert_eq!(port.statistics().unwrap().tx_packets, 7);
    close(Opened { port, rx: opened.rx, tx: opened.tx }, &[&pool]);
}

#[test]
fn reading_counters_ends_with_its_time_limit() {
    let pool = pool(256);
    let fake = Fake::new(0x10FB);
    // The limit of the open is another one than that of what follows.
    let hour = TimeLimit { total: Duration::from_secs(3600), cancel: None };
    fake.set_deadline(Some(hour.begin()));
    let mut config = config();
    config.port.time_limit = limit(0);
    let Opened { mut port, rx, tx } = ixgbe::open(fake.clone(), &config, &pool).unwrap();
    let before = fake.reads().len();
    assert_eq!(port.statistics().unwrap().tx_packets, 0);
    assert_eq!(fake.reads().len(), before, "it was over before it began");
    close(Opened { port, rx, tx }, &[&pool]);
}

/// When the flag is set already all is to end: each question has two seconds, and what comes after is as before.
#[test]
fn a_slow_device_has_little_time_for_questions_once_the_flag_is_set() {
    let pool = pool(256);
    let (fake, opened, cancel) = open_with_flag(&pool);
    let mut port = opened.port;
    for cancelled in [false, true] {
        cancel.store(cancelled, Ordering::Relaxed);
        let seen = Arc::new(AtomicUsize::new(0));
        for register in [LINKS.offset(), CRCERRS.offset(), TDH.at(0).offset()] {
            let (asked, seen) = (fake.clone(), Arc::clone(&seen));
            fake.on_read_at(register, move |_| {
                let left = asked.deadline().and_then(|deadline| deadline.remaining().ok());
                seen.fetch_add(usize::from(left.is_some_and(|left| left <= Duration::from_secs(2))), Ordering::Relaxed);
                0
            });
        }
        port.link().unwrap();
        port.statistics().unwrap();
        port.transmit_idle();
        assert_eq!(seen.load(Ordering::Relaxed) >= 3, cancelled);
        assert!(fake.deadline().is_none());
    }
    close(Opened { port, rx: opened.rx, tx: opened.tx }, &[&pool]);
}

/// Frames of more buffers than the MTU allows are dropped whole, and the frames behind them come whole, whatever their number of
/// buffers.
#[test]
fn the_rest_of_a_frame_that_is_too_long_is_not_taken_for_a_frame() {
    for burst in [1, 2, 4, 32] {
        let pool = pool(512);
        let (fake, mut opened) = open(&pool);
        let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(burst));
        // 9000 bytes are 5 buffers of 2 KiB.
        let sizes = [1, 9, 2, 1, 8, 1, 5, 7, 13, 2, 2];
        let (mut next, mut seen) = (0, Vec::new());
        for (frame, buffers) in sizes.into_iter().enumerate() {
            for buffer in 0..buffers {
                let end = if buffer + 1 == buffers { EOP } else { 0 };
                let len = 100 + frame as u64;
                fake.set_descriptor(Queue::Rx(0), next, 1, len << 32 | DD | end);
                next += 1;
            }
            // A frame in as many calls as its buffers at most; of those that do not fit into the batch, none.
            for _ in 0..20 {
                opened.rx[0].recv(&mut cache, &mut batch);
                seen.extend(batch.iter().map(|packet| (packet.len(), packet.continues())));
                cache.free_batch(&mut batch);
            }
        }
        let good = sizes.into_iter().enumerate().filter(|(_, buffers)| *buffers <= 5.min(burst));
        let expected: Vec<_> = good
            .flat_map(|(frame, buffers)| (0..buffers).map(move |buffer| (100 + frame, buffer + 1 < buffers)))
            .collect();
        assert_eq!(seen, expected, "bursts of {burst}");
        let counters = opened.rx[0].counters();
        assert_eq!(counters.too_long, 4, "bursts of {burst}");
        let small = sizes.iter().filter(|buffers| **buffers <= 5 && **buffers > burst).count();
        assert_eq!(counters.batch_too_small, small as u64, "bursts of {burst}");
        drop((cache, batch));
        close(opened, &[&pool]);
    }
}

/// Slots that a call with another pool's cache has put aside are there for the next call.
#[test]
fn slots_of_the_own_cache_are_not_kept_from_a_ring_that_lacks_them() {
    let (pool, foreign) = (pool(64 + 36), self::pool(64));
    let (fake, mut opened) = open(&pool);
    let mut batch = Batch::with_capacity(32);
    fake.set_descriptor(Queue::Rx(0), 0, 1, 60 << 32 | DD | EOP);
    assert_eq!(opened.rx[0].recv(&mut foreign.cache(), &mut batch).len(), 1);
    fake.set_descriptor(Queue::Rx(0), 1, 1, 60 << 32 | DD | EOP);
    let mut cache = pool.cache();
    assert_eq!(opened.rx[0].recv(&mut cache, &mut batch).len(), 1);
    assert_eq!(opened.rx[0].counters().no_buffers, 0);
    drop((cache, batch));
    close(opened, &[&pool, &foreign]);
}

/// A queue with a large batch takes as many fresh buffers as it may need, but leaves the pool's to the others.
#[test]
fn a_large_batch_starves_no_other_queue() {
    let pool = Pool::new(&PoolConfig { slots: 1024, ..PoolConfig::default() }).unwrap();
    let mut config = config();
    config.port.rx_queues = 2;
    let fake = Fake::new(0x10fb);
    let Opened { port: _port, mut rx, tx: _tx } = ixgbe::open(fake.clone(), &config, &pool).unwrap();
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(1024));
    for at in 0..2 {
        fake.descriptors(Queue::Rx(0)).unwrap().set(at, 1, 60 << 32 | EOP | DD);
    }
    assert_eq!(rx[0].recv(&mut cache, &mut batch).len(), 2);
    assert!(cache.len() <= 1024 / 8, "{}", cache.len());
    // The other queue receives 600 frames, of which somebody keeps all.
    let (mut kept, mut cache) = (Batch::with_capacity(640), pool.cache());
    for _ in 0..10 {
        for at in 0..60 {
            fake.descriptors(Queue::Rx(1)).unwrap().set((kept.len() + at) % 64, 1, 60 << 32 | EOP | DD);
        }
        assert_eq!(rx[1].recv(&mut cache, &mut kept).len(), 60);
    }
}
