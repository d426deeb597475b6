//! A device that breaks its word: each fault ends in a typed error or a counted drop. Nothing panics, hangs or is lost:
//! loops are bounded, every slot is home at the end and the memory is given back.

use ethdev::{LinkStatus, Port as _, RxCounters, RxQueue as _, TxQueue as _};
use ixgbe::{Config, Error};
use mempool::{Batch, Pool, PoolCache};
use softnic::{Fault, OnViolation, StrictBuilder, StrictNic};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tests::{Rig, frame, number, pool};

/// Frames that arrive in a test.
const FRAMES: u32 = if cfg!(miri) { 16 } else { 1000 };
/// Rounds after which everything that can move has moved, by far.
const ROUNDS: u32 = FRAMES;

/// A rig, and what it has seen.
struct Victim {
    rig: Rig,
    pool: Pool,
    cache: PoolCache,
    batch: Batch,
    /// Numbers of frames received and sent on, in order.
    received: Vec<u32>,
    /// Numbers of frames that the wire saw.
    sent: Vec<u32>,
    arrived: u32,
}

/// Receive rings of 64 and transmit rings of `tx_ring` descriptors.
fn config(tx_ring: u16) -> Config {
    let mut config = Config::default();
    (config.port.rx_ring, config.port.tx_ring) = (64, tx_ring);
    config
}

fn builder() -> StrictBuilder {
    StrictNic::builder().on_violation(OnViolation::Record)
}

impl Victim {
    fn open(builder: StrictBuilder) -> Result<Self, Error> {
        Self::with(builder, &config(64))
    }

    fn with(builder: StrictBuilder, config: &Config) -> Result<Self, Error> {
        let pool = pool(400, 2048);
        let rig = Rig::open(builder, config, &pool)?;
        let (cache, batch) = (pool.cache(), Batch::with_capacity(32));
        Ok(Self { rig, pool, cache, batch, received: Vec::new(), sent: Vec::new(), arrived: 0 })
    }

    /// Opens a healthy device and breaks it.
    fn broken(fault: Fault) -> Self {
        let victim = Self::open(builder()).expect("a healthy device opens");
        victim.rig.nic.inject_fault(fault);
        victim
    }

    /// One round: a frame arrives if any are left, the device works, what comes is sent on.
    fn round(&mut self) {
        if self.arrived < FRAMES {
            self.rig.nic.inject(&frame(self.arrived, 60));
            self.arrived += 1;
        }
        self.rig.nic.step();
        let held = self.batch.len();
        self.rig.rx[0].recv(&mut self.cache, &mut self.batch);
        self.received.extend(self.batch[held..].iter().map(|packet| number(packet.data())));
        self.rig.tx[0].send(&mut self.cache, &mut self.batch);
        self.sent.extend(self.rig.nic.transmitted().iter().map(|frame| number(frame)));
    }

    /// All frames arrive, and more rounds follow.
    fn run(&mut self) {
        for _ in 0..FRAMES + ROUNDS {
            self.round();
        }
    }

    fn counters(&self) -> RxCounters {
        self.rig.rx[0].counters()
    }

    /// Gives everything up: every slot is home, the memory is given back, and the driver did nothing that a device may
    /// not be told. Returns what closing said.
    fn end(self) -> Result<(), Error> {
        let Self { rig, pool, cache, batch, .. } = self;
        let Rig { nic, port, rx, tx } = rig;
        let memory = Arc::downgrade(pool.memory());
        drop((rx, batch));
        let closed = port.close();
        drop((tx, cache));
        assert_eq!(pool.away(), 0, "every slot is home");
        assert_eq!(nic.violations(), []);
        drop((pool, nic));
        assert_eq!(memory.strong_count(), 0, "the memory is given back");
        closed.map(drop)
    }
}

fn all() -> Vec<u32> {
    (0..FRAMES).collect()
}

#[test]
fn a_healthy_device_forwards_everything() {
    let mut victim = Victim::open(builder()).expect("a healthy device opens");
    victim.run();
    assert_eq!((&victim.received, &victim.sent), (&all(), &all()));
    assert_eq!(victim.counters().dropped(), 0);
    victim.end().expect("a healthy device closes");
}

#[test]
fn stuck_reset_is_a_timeout_that_names_the_register() {
    let pool = pool(400, 2048);
    let error = Rig::open(builder().fault(Fault::StuckReset), &config(64), &pool).expect_err("it never comes up");
    assert!(matches!(error, Error::Timeout { register: "CTRL", .. }), "{error}");
    assert_eq!(pool.away(), 0);

    let victim = Victim::broken(Fault::StuckReset);
    let error = victim.end().expect_err("it never stops");
    assert!(matches!(error, Error::Timeout { register: "CTRL", .. }), "{error}");
}

#[test]
fn stuck_master_disable_is_survived_by_a_second_reset() {
    let mut victim = Victim::open(builder().fault(Fault::StuckGio)).expect("the datasheet's double reset");
    victim.run();
    assert_eq!(victim.sent, all());
    // It may say that it could not be stopped in order; its memory is safe either way.
    if let Err(error) = victim.end() {
        assert!(matches!(error, Error::Timeout { .. }), "{error}");
    }
}

/// A device that takes no writes for 45 ms after a reset; one that is slower than any is given up with one error.
#[test]
fn a_reset_has_the_time_it_takes_to_settle() {
    let mut victim = Victim::open(StrictNic::builder().fault(Fault::SlowReset { settle_ms: 45 })).expect("it waits");
    victim.run();
    assert_eq!(victim.sent, all());
    victim.end().expect("it waits at the end, too");

    let pool = pool(400, 2048);
    let start = Instant::now();
    let error = Rig::open(builder().fault(Fault::SlowReset { settle_ms: 60_000 }), &config(64), &pool);
    let error = error.expect_err("it never takes a write");
    assert!(matches!(error, Error::Timeout { register: "SWSM", .. }), "{error}");
    assert!(start.elapsed() < Duration::from_secs(20), "bounded");
    assert_eq!(pool.away(), 0);
}

#[test]
fn removal_at_any_register_read_of_opening_is_gone() {
    // Resets sleep, so devices are opened side by side.
    const SIDE_BY_SIDE: u64 = 32;
    let step = if cfg!(miri) { 499 } else { 1 };
    let lives = |first| {
        let mut opened = 0;
        for after_reads in (first * step..2000).step_by(usize::try_from(SIDE_BY_SIDE * step).expect("small")) {
            let pool = pool(100, 2048);
            match Rig::open(builder().fault(Fault::Removal { after_reads }), &config(64), &pool) {
                Err(Error::Gone { .. }) => {}
                Err(error) => panic!("after {after_reads} reads: {error}"),
                Ok(rig) => {
                    opened += 1;
                    drop(rig);
                }
            }
            assert_eq!(pool.away(), 0, "after {after_reads} reads");
            if opened > 1 {
                break;
            }
        }
        opened
    };
    let opened: i32 = std::thread::scope(|scope| {
        let lives: Vec<_> = (0..SIDE_BY_SIDE).map(|first| scope.spawn(move || lives(first))).collect();
        lives.into_iter().map(|life| life.join().expect("no panic")).sum()
    });
    assert!(opened > 0, "opening takes fewer than 2000 register reads");
}

#[test]
fn removal_while_running_is_gone_and_loses_no_buffer() {
    for &rounds in if cfg!(miri) { &[0, 10][..] } else { &[0, 1, 10, 33] } {
        let mut victim = Victim::open(builder()).expect("a healthy device opens");
        for _ in 0..rounds {
            victim.round();
        }
        victim.rig.nic.inject_fault(Fault::Removal { after_reads: 0 });
        assert!(matches!(victim.rig.port.link(), Err(Error::Gone { .. })));
        let before = victim.received.len();
        victim.run();
        assert_eq!(victim.received.len(), before, "a device that is gone delivers nothing");
        assert!(matches!(victim.rig.port.statistics(), Err(Error::Gone { .. })));
        let error = victim.end().expect_err("there is nothing to close");
        assert!(matches!(error, Error::Gone { .. }), "{error}");
    }
}

#[test]
fn length_zero_is_a_counted_drop() {
    let mut victim = Victim::broken(Fault::RxLengthZero { every: 3 });
    victim.run();
    let bad = FRAMES / 3;
    assert_eq!(victim.counters().bad_length, u64::from(bad));
    assert_eq!(victim.received.len(), usize::try_from(FRAMES - bad).expect("few"));
    assert_eq!(victim.sent, victim.received);
    victim.end().expect("the device closes");
}

#[test]
fn lengths_beyond_the_buffer_are_counted_drops() {
    for &length in if cfg!(miri) { &[2049, 65535][..] } else { &[2049, 4096, 32768, 65535] } {
        let mut victim = Victim::broken(Fault::RxLengthOver { length });
        victim.run();
        assert_eq!(victim.counters().bad_length, u64::from(FRAMES));
        assert!(victim.received.is_empty());
        victim.end().expect("the device closes");
    }
}

#[test]
fn a_length_within_the_buffer_is_believed() {
    // What the device says it wrote is what the application sees: bytes of the slot, never beyond it.
    let mut victim = Victim::broken(Fault::RxLengthOver { length: 2048 });
    victim.run();
    assert_eq!(victim.counters().bytes, u64::from(FRAMES) * 2048);
    victim.end().expect("the device closes");
}

#[test]
fn frames_that_never_end_are_counted_drops() {
    let mut victim = Victim::broken(Fault::RxNoEop);
    victim.run();
    assert!(victim.received.is_empty());
    assert_eq!(victim.counters().too_long, 1, "descriptors of a frame without end are one frame");
    // Once frames end again, at most the one under way is lost with it.
    victim.rig.nic.clear_faults();
    victim.arrived = 0;
    victim.run();
    assert!(victim.received.len() >= all().len() - 1);
    assert_eq!(victim.sent, victim.received);
    victim.end().expect("the device closes");
}

#[test]
fn descriptors_completed_out_of_order_are_received_in_order() {
    let mut victim = Victim::broken(Fault::RxOutOfOrder);
    victim.run();
    assert_eq!(victim.received, all());
    assert_eq!(victim.sent, all());
    victim.end().expect("the device closes");
}

#[test]
fn frames_marked_bad_are_counted_drops() {
    let mut victim = Victim::broken(Fault::RxErrorBits { every: 2 });
    victim.run();
    assert_eq!(victim.counters().frame_errors, u64::from(FRAMES / 2));
    assert_eq!(victim.received.len(), all().len() / 2);
    assert_eq!(victim.sent, victim.received);
    victim.end().expect("the device closes");
}

#[test]
fn a_frozen_transmit_ring_fills_and_refuses_and_loses_no_buffer() {
    let mut victim = Victim::broken(Fault::TxFrozen);
    victim.run();
    assert!(victim.sent.is_empty());
    let taken = victim.rig.tx[0].counters().packets;
    assert!(taken < 64, "a ring of 64 descriptors takes 63 at most");
    assert_eq!(victim.received.len() as u64, taken + victim.batch.len() as u64, "what was not taken is still here");

    victim.rig.nic.clear_faults();
    victim.run();
    assert_eq!(victim.sent, victim.received, "all goes out once the ring moves again");
    victim.end().expect("the device closes");
}

#[test]
fn closing_a_frozen_transmit_ring_brings_its_buffers_home() {
    let mut victim = Victim::broken(Fault::TxFrozen);
    victim.run();
    if let Err(error) = victim.end() {
        assert!(matches!(error, Error::Timeout { .. }), "{error}");
    }
}

/// However a device is stuck, closing keeps to its time limit, and its buffers are home as soon as bus mastering is off.
#[test]
fn closing_a_stuck_device_keeps_to_its_time_limit() {
    for fault in [Fault::StuckReset, Fault::StuckGio, Fault::TxFrozen, Fault::Removal { after_reads: 3 }] {
        let mut config = config(64);
        config.port.time_limit.total = Duration::from_millis(20);
        // Opening on a loaded machine may take longer than that.
        let Ok(mut victim) = Victim::with(builder(), &config) else { continue };
        victim.run();
        victim.rig.nic.inject_fault(fault);
        let begun = Instant::now();
        if let Err(error) = victim.end() {
            let expected = matches!(error, Error::Timeout { .. } | Error::Expired { .. } | Error::Gone { .. });
            assert!(expected, "{fault:?}: {error}");
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "{fault:?}: {:?}", begun.elapsed());
    }
}

#[test]
fn transmit_descriptors_reported_out_of_order_are_reclaimed() {
    // The report of each pair's first is held back until its second is done, so there must be room for three.
    let mut victim = Victim::with(builder().fault(Fault::TxOutOfOrder), &config(128)).expect("a device opens");
    victim.run();
    assert_eq!(victim.sent, all());
    victim.end().expect("the device closes");
}

#[test]
fn transmit_descriptors_never_reported_fill_the_ring_and_lose_no_buffer() {
    let mut victim = Victim::broken(Fault::TxNoDd);
    victim.run();
    assert!(victim.sent.len() < 64, "nothing is reused that was not reported done");
    assert_eq!(victim.received.len(), victim.sent.len() + victim.batch.len());
    victim.end().expect("the device closes");
}

#[test]
fn a_flapping_link_loses_no_buffer_and_settles() {
    let mut victim = Victim::broken(Fault::LinkFlap { period: 7 });
    let (mut up, mut down) = (0, 0);
    for _ in 0..FRAMES + ROUNDS {
        victim.round();
        match victim.rig.port.link().expect("the device answers") {
            LinkStatus { up: true, .. } => up += 1,
            LinkStatus { .. } => down += 1,
        }
    }
    assert!(up > 0 && down > 0, "the link was seen up {up} and down {down} times");
    victim.rig.nic.clear_faults();
    victim.rig.nic.set_link(true);
    victim.arrived = FRAMES;
    for _ in 0..ROUNDS {
        victim.round();
    }
    assert!(victim.rig.port.link().expect("the device answers").up);
    assert_eq!(victim.sent, victim.received, "what came while it was up went out when it was up again");
    victim.arrived = 0;
    let before = victim.sent.len();
    victim.run();
    assert!(victim.sent[before..].ends_with(&all()), "all is well once the link stays");
    assert_eq!(victim.sent, victim.received);
    victim.end().expect("the device closes");
}

/// F8: an empty pool holds frames up, and is counted; they come when packets are given back.
#[test]
fn an_empty_pool_holds_frames_up_and_loses_none() {
    let mut victim = Victim::open(builder()).expect("a healthy device opens");
    let hoard: Vec<_> = std::iter::from_fn(|| victim.cache.alloc()).collect();
    for _ in 0..FRAMES {
        victim.round();
    }
    assert!(victim.received.is_empty());
    assert!(victim.counters().no_buffers > 0);
    hoard.into_iter().for_each(|packet| victim.cache.free(packet));
    victim.run();
    let missed = victim.rig.port.statistics().expect("the device answers").rx_missed;
    assert_eq!(victim.received.len() as u64 + missed, u64::from(FRAMES));
    assert_eq!(victim.sent, victim.received);
    victim.end().expect("the device closes");
}
