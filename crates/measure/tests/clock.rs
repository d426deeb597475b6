//! The clock against counters of a known rate, read through brackets of any width.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::cast_precision_loss, reason = "figures to compare")]

use measure::{Bracket, Clock, Error};
use proptest::prelude::*;

/// A reading of the kernel's clock at a time, where that comes a share of the bracket after its begin.
fn bracket(hz: u64, ns: u64, width: u64, share: f64) -> Bracket {
    let ticks = u64::try_from(u128::from(hz) * u128::from(ns) / 1_000_000_000).unwrap() + 1_000_000_000;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of the width")]
    let into = (width as f64 * share) as u64;
    Bracket { before: ticks - into, kernel_ns: ns, after: ticks - into + width }
}

proptest! {
    #[test]
    fn the_error_is_within_what_it_says(
        hz in 500_000_000..5_000_000_000_u64, readings in prop::collection::vec((0..100_000_u64, 0.0..1.0_f64), 3..20),
        apart in 20_000_000..2_000_000_000_u64,
    ) {
        let mut at = readings.iter().zip(1_u64..).map(|((width, share), n)| bracket(hz, n * apart, *width, *share));
        let mut clock = Clock::new(at.next().unwrap(), at.next().unwrap()).unwrap();
        loop {
            let ppm = (clock.hz() as f64 / hz as f64 - 1.0).abs() * 1e6;
            prop_assert!(ppm <= clock.error_ppm() + 0.01, "{} ppm, said {}", ppm, clock.error_ppm());
            let Some(reading) = at.next() else { break };
            clock.refine(reading).unwrap();
        }
    }
}

#[test]
fn the_narrowest_reading_is_taken() {
    let of = |before, after| Bracket { before, kernel_ns: before, after };
    assert_eq!(Bracket::narrowest([of(0, 90), of(100, 150), of(200, 180), of(300, 380)]), Some(of(100, 150)));
    assert_eq!(Bracket::narrowest([]), None);
}

#[test]
fn jumps_and_clocks_that_stand_still_are_errors() {
    let hz = 2_000_000_000;
    let at = |ms: u64| bracket(hz, ms * 1_000_000, 100, 0.5);
    assert_eq!(Clock::new(at(20), at(20)).unwrap_err(), Error::Backwards);
    assert_eq!(Clock::new(at(20), at(10)).unwrap_err(), Error::Backwards);
    let mut clock = Clock::new(at(0), at(20)).unwrap();
    let before = clock.error_ppm();
    clock.refine(at(1020)).unwrap();
    assert!(clock.error_ppm() < before / 40.0);
    let jumped = Bracket { before: at(2020).before + 3_000_000, after: at(2020).after + 3_000_000, ..at(2020) };
    assert!(matches!(clock.refine(jumped), Err(Error::Jumped { ppm: 1400..1600 })));
    assert_eq!(clock.hz(), hz);
    clock.refine(at(2020)).unwrap();
}
