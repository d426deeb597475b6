//! A queue that rests is left alone meanwhile, holds up no other, and loses nothing.
#![expect(clippy::unwrap_used, reason = "tests")]

use ethdev::in_process::{self, InProcess, InProcessRx, Wire};
use ethdev::{Interrupts, Opened, PortConfig, RxCounters, RxInfos, RxQueue};
use lcore::{Clock, Function, Loop, PacedRx, Stop, Switch};
use mempool::{Batch, Packet, Pool, PoolCache, PoolConfig};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// For ever, as far as a test goes.
const LONG: u64 = u64::MAX / 2;

/// A queue that wants to rest, and counts the calls to receive.
#[derive(Debug)]
struct Resting {
    queue: InProcessRx,
    rest: u64,
    calls: u64,
}

impl RxQueue for Resting {
    fn recv<'b>(&mut self, cache: &mut PoolCache, batch: &'b mut Batch) -> &'b mut [Packet] {
        self.calls += 1;
        self.queue.recv(cache, batch)
    }

    fn rest_cycles(&self) -> u64 {
        self.rest
    }

    fn counters(&self) -> RxCounters {
        self.queue.counters()
    }

    fn is_ready(&mut self) -> bool {
        self.queue.is_ready()
    }

    fn arm(&mut self) -> bool {
        self.queue.arm()
    }

    fn eventfd(&self) -> Option<BorrowedFd<'_>> {
        self.queue.eventfd()
    }
}

fn open(pool: &Pool, rest: u64) -> (InProcess, PacedRx<Resting>, Wire) {
    let config = PortConfig { interrupts: Interrupts::Required, ..PortConfig::default() };
    let (Opened { port, mut rx, .. }, wire) = in_process::open("a", &config, pool).unwrap();
    (port, PacedRx::new(Resting { queue: rx.remove(0), rest, calls: 0 }), wire)
}

#[test]
fn an_empty_queue_holds_up_no_other() {
    const FRAMES: u64 = 200;
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    let ((_a, mut empty, _), (_b, mut busy, mut wire)) = (open(&pool, LONG), open(&pool, 0));
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(1));
    let stop = Stop::new().unwrap();
    (0..FRAMES).for_each(|_| assert!(wire.inject(&[0; 60])));
    let mut rounds = 0;
    let _ = Loop::new(&stop).run(|clock: &mut Clock| {
        rounds += 1;
        assert!(empty.recv(clock, &mut cache, &mut batch).is_empty());
        if rounds <= FRAMES {
            assert_eq!(busy.recv(clock, &mut cache, &mut batch).len(), 1, "in every round, as if it were alone");
            assert_eq!((empty.queue.calls, busy.queue.calls), (1, rounds));
            cache.free_batch(&mut batch);
        } else {
            stop.request();
        }
        rounds <= FRAMES
    });
    assert!(empty.queue.calls > 1, "the last rounds look once more");
}

#[test]
fn a_queue_that_had_something_does_not_rest() {
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    let (_port, mut rx, mut wire) = open(&pool, LONG);
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(4));
    (0..10).for_each(|_| assert!(wire.inject(&[0; 60])));
    let stop = Stop::new().unwrap();
    let mut counts = Vec::new();
    let _ = Loop::new(&stop).run(|clock: &mut Clock| {
        counts.push(rx.recv(clock, &mut cache, &mut batch).len());
        cache.free_batch(&mut batch);
        if counts.len() == 5 {
            assert_eq!(rx.queue.calls, 4);
            stop.request();
        }
        false
    });
    assert_eq!(counts[..5], [4, 4, 2, 0, 0]);
}

/// It is asked each time that nothing has come.
#[test]
fn how_long_a_queue_rests_may_change() {
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    let (_port, mut rx, _wire) = open(&pool, 0);
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(4));
    let stop = Stop::new().unwrap();
    let mut rounds = 0;
    let _ = Loop::new(&stop).run(|clock: &mut Clock| {
        rounds += 1;
        if rounds == 3 {
            rx.queue.rest = LONG;
        }
        rx.recv(clock, &mut cache, &mut batch);
        if rounds == 6 {
            assert_eq!(rx.queue.calls, 3, "not after the third");
            stop.request();
        }
        false
    });
    assert!(rounds >= 6);
}

#[test]
fn a_queue_that_rests_reports_on_no_packets() {
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    let (_port, mut rx, mut wire) = open(&pool, LONG);
    let (mut cache, mut batch, mut infos) = (pool.cache(), Batch::with_capacity(4), RxInfos::with_capacity(4));
    assert!(wire.inject(&[0; 60]));
    let stop = Stop::new().unwrap();
    let mut counts = Vec::new();
    let _ = Loop::new(&stop).run(|clock: &mut Clock| {
        let received = rx.recv_with(clock, &mut cache, &mut batch, &mut infos).len();
        counts.push((received, infos.len()));
        cache.free_batch(&mut batch);
        if counts.len() == 4 {
            assert_eq!(rx.queue.calls, 2);
            stop.request();
        }
        false
    });
    assert_eq!(counts[..4], [(1, 1), (0, 0), (0, 0), (0, 0)]);
}

#[test]
fn frames_that_come_while_a_queue_rests_are_received_before_the_end() {
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    let (_port, rx, mut wire) = open(&pool, LONG);
    let (Opened { port: _other, rx: _, mut tx }, _wire) = in_process::open("b", &PortConfig::default(), &pool).unwrap();
    let stop = Stop::new().unwrap();
    let mut switch = Switch::new(vec![(rx.queue, tx.remove(0))], &pool, |_: usize, _: &mut Packet| None);
    let mut rounds = 0;
    let _ = Loop::new(&stop).run(|clock: &mut Clock| {
        rounds += 1;
        let moved = switch.poll(clock);
        if rounds == 1 {
            // The queue was empty.
            assert!(wire.inject(&[0; 60]));
            stop.request();
        }
        moved
    });
    assert_eq!(switch.dropped(), 1, "steered nowhere, so it was received");
}

/// Injects a frame before each of some sleeps.
struct Sleeper {
    rx: PacedRx<Resting>,
    wire: Wire,
    cache: PoolCache,
    batch: Batch,
    injected: u64,
    rounds: u64,
}

const FRAMES: u64 = 10;

impl Function for Sleeper {
    fn poll(&mut self, clock: &mut Clock) -> bool {
        self.rounds += 1;
        assert!(self.rounds < 10 * FRAMES, "a frame waits for a rest that never ends");
        let moved = !self.rx.recv(clock, &mut self.cache, &mut self.batch).is_empty();
        clock.publish_soon();
        self.cache.free_batch(&mut self.batch);
        moved
    }

    fn publish(&mut self) {
        if self.injected < FRAMES && self.injected == self.rx.queue.counters().packets {
            self.injected += 1;
            assert!(self.wire.inject(&[0; 60]));
        }
    }

    fn queues(&mut self) -> Vec<&mut dyn RxQueue> {
        vec![&mut self.rx.queue]
    }

    fn is_done(&self) -> bool {
        self.rx.queue.counters().packets == FRAMES
    }
}

#[test]
fn after_a_sleep_a_queue_is_polled_at_once() {
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    let (_port, rx, wire) = open(&pool, LONG);
    let (cache, batch) = (pool.cache(), Batch::with_capacity(4));
    let stop = Stop::new().unwrap();
    let sleeper = Sleeper { rx, wire, cache, batch, injected: 0, rounds: 0 };
    let sleeper = Loop::new(&stop).grace(Some(Duration::ZERO)).run(sleeper);
    assert_eq!(sleeper.injected, FRAMES);
}
