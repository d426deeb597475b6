//! Rates over a clock that the test reads.

use proptest::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering};
use twin::{Bucket, Class, Police, Rate, Rates};

proptest! {
    /// In no window do more frames pass than the burst and what the rate allows; and one that came in time always passes.
    #[test]
    fn no_window_has_more_than_burst_and_rate(
        per_second in 1..2000_u32,
        burst in 1..50_u32,
        steps in proptest::collection::vec(0..3000_u64, 1..300),
    ) {
        const TICKS: u64 = 1_000_000;
        let bucket = Bucket::new(Rate { per_second, burst }, TICKS);
        let (mut now, mut passed) = (TICKS, Vec::new());
        // The same by tokens, in parts of a millionth.
        let frame = u128::from(TICKS.div_ceil(per_second.into()));
        let full = frame * u128::from(burst);
        let mut tokens = full;
        for step in steps {
            now += step;
            tokens = full.min(tokens + u128::from(step));
            let expected = tokens >= frame;
            if expected {
                tokens -= frame;
            }
            prop_assert_eq!(bucket.take(now), expected);
            if expected {
                passed.push(now);
            }
        }
        for (first, begin) in passed.iter().enumerate() {
            for (last, end) in passed.iter().enumerate().skip(first) {
                let allowed = u64::from(burst) + (end - begin) * u64::from(per_second) / TICKS;
                prop_assert!((last - first) as u64 <= allowed);
            }
        }
    }
}

#[test]
fn a_rate_or_burst_of_zero_lets_nothing_pass() {
    for rate in [Rate { per_second: 0, burst: 9 }, Rate { per_second: 9, burst: 0 }] {
        let bucket = Bucket::new(rate, 1000);
        assert!((0..10_000).all(|now| !bucket.take(now)), "{rate:?}");
    }
}

#[test]
fn a_clock_that_goes_back_or_ends_gives_nothing_twice() {
    let bucket = Bucket::new(Rate { per_second: 1, burst: 1 }, 1000);
    assert_eq!([5000, 100, 5999, 6000].map(|now| bucket.take(now)), [true, false, false, true]);
    let late = Bucket::new(Rate { per_second: u32::MAX, burst: u32::MAX }, 1);
    assert!(late.take(u64::MAX - 1));
}

#[test]
fn threads_share_a_bucket_and_none_gets_more() {
    let bucket = Bucket::new(Rate { per_second: 1, burst: 1000 }, 1_000_000);
    let passed = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..1000 {
                    passed.fetch_add(bucket.take(7).into(), Ordering::Relaxed);
                }
            });
        }
    });
    assert!((900..=1000).contains(&passed.into_inner()), "all tokens but those that threads gave up on");
}

#[test]
fn a_flood_of_one_class_does_not_touch_another() {
    let rates = Rates::default();
    for flooded in Class::ALL {
        let police = Police::new(&rates, 1_000_000_000);
        let flood = (0..1_000_000_u64).filter(|now| police.passes(flooded, *now)).count();
        assert_eq!(police.count(flooded), (flood as u64, 1_000_000 - flood as u64));
        for class in Class::ALL.into_iter().filter(|class| *class != flooded) {
            let burst = u64::from(rates.of(class).burst);
            let passed = (0..burst).filter(|_| police.passes(class, 1_000_000)).count();
            assert_eq!(u64::try_from(passed).unwrap(), burst, "{class:?} beside {flooded:?}");
            assert_eq!(police.count(class), (burst, 0));
        }
    }
}
