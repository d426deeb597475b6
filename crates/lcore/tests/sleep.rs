//! An lcore asleep wakes for a frame, and for the stop.

use ethdev::{Interrupts, Opened, PortConfig, RxQueue, in_process};
use lcore::{Clock, Function, Loop, Stop, Team};
use mempool::{Batch, Pool, PoolCache, PoolConfig};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Counts what comes in.
struct Count<Q> {
    queues: Vec<Q>,
    cache: PoolCache,
    batch: Batch,
    published: Arc<AtomicU64>,
}

impl<Q: RxQueue> Function for Count<Q> {
    fn poll(&mut self, clock: &mut Clock) -> bool {
        let mut moved = false;
        for queue in &mut self.queues {
            moved |= !queue.recv(&mut self.cache, &mut self.batch).is_empty();
            self.cache.free_batch(&mut self.batch);
            clock.lap();
        }
        moved
    }

    fn publish(&mut self) {
        let packets = self.queues.iter().map(|queue| queue.counters().packets).sum();
        self.published.store(packets, Ordering::Relaxed);
    }

    fn queues(&mut self) -> Vec<&mut dyn RxQueue> {
        self.queues.iter_mut().map(|queue| queue as _).collect()
    }
}

#[test]
fn an_lcore_asleep_wakes_for_a_frame_and_for_the_stop() {
    const LONG: Duration = Duration::from_secs(600);
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    let config = PortConfig { rx_queues: 2, interrupts: Interrupts::Required, ..PortConfig::default() };
    let (Opened { port: _port, rx: queues, .. }, mut wire) = in_process::open("a", &config, &pool).unwrap();
    let (begun, published, stop) = (Instant::now(), Arc::<AtomicU64>::default(), Stop::new().unwrap());
    let count =
        Count { queues, cache: pool.cache(), batch: Batch::with_capacity(32), published: Arc::clone(&published) };
    let sleeper = Loop::new(&stop).grace(Some(Duration::ZERO)).longest_sleep(LONG);
    let sleeps = sleeper.sleeps();
    let team = Team::start(vec![(None, move || sleeper.run(count))], &stop).unwrap();
    for frames in 1..=10 {
        // Most frames find it asleep.
        std::thread::sleep(Duration::from_millis(5));
        assert!(wire.inject_into(frames % 2, &[0; 60]));
        while published.load(Ordering::Relaxed) < frames as u64 {
            assert!(begun.elapsed() < LONG / 2, "frame {frames} woke nobody");
            std::thread::yield_now();
        }
    }
    stop.request();
    assert_eq!(team.join().unwrap().len(), 1);
    assert!(begun.elapsed() < LONG / 2, "the stop woke nobody");
    assert!(sleeps.wakeups() > 0 && !sleeps.asleep().is_zero());
}
