//! Bounded waits, for this family's registers.

use crate::regs::Ixgbe;
pub(crate) use intel::{Command, modify, read, wait};

/// [`intel::Timed`] for this family.
pub(crate) type Timed<D> = intel::Timed<Ixgbe, D>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use crate::fake::Fake;
    use crate::regs::{EEC, EICR};
    use device::TimeLimit;
    use std::time::Duration;

    #[test]
    fn returns_the_value_that_did() {
        let fake = Fake::new(0x10FB);
        let mut reads = 0;
        fake.on_read(EEC, move |_| {
            reads += 1;
            reads / 100
        });
        assert_eq!(wait(&fake.regs(), EEC, |v| v == 3, Duration::from_secs(60), "three").unwrap(), 3);
    }

    #[test]
    fn the_end_of_the_operation_ends_a_wait() {
        let fake = Fake::new(0x10FB);
        let cancel = std::sync::Arc::default();
        let limit = TimeLimit { total: Duration::from_secs(3600), cancel: Some(std::sync::Arc::clone(&cancel)) };
        let regs = Timed::new(&fake.regs(), limit.begin());
        let mut reads = 0;
        fake.on_read(EEC, move |_| {
            reads += 1;
            cancel.store(reads == 200, std::sync::atomic::Ordering::Relaxed);
            0
        });
        let error = wait(&regs, EEC, |_| false, Duration::from_secs(3600), "pigs to fly").unwrap_err();
        assert!(matches!(error, Error::Expired { expired: device::Expired::Cancelled, .. }), "{error}");
        let over = regs.at_most(Duration::ZERO);
        fake.set(EICR, 7);
        assert_eq!(wait(&over, EICR, |v| v == 7, Duration::from_secs(1), "seven").unwrap(), 7, "it is there already");
        let error = wait(&over, EICR, |v| v == 8, Duration::from_secs(3600), "eight").unwrap_err();
        assert!(matches!(error, Error::Expired { waiting_for: "eight", .. }), "{error}");
    }

    #[test]
    fn a_timeout_names_register_value_and_purpose() {
        let fake = Fake::new(0x10FB);
        fake.set(EEC, 0x123);
        let error = wait(&fake.regs(), EEC, |_| false, Duration::from_millis(5), "pigs to fly").unwrap_err();
        let Error::Timeout { register: "EEC", waited, last: 0x123, waiting_for: "pigs to fly", .. } = error else {
            panic!("{error}")
        };
        assert!(waited >= Duration::from_millis(5));
    }

    #[test]
    fn all_ones_is_a_value_while_status_answers() {
        let fake = Fake::new(0x10FB);
        fake.set(EICR, u32::MAX);
        assert_eq!(read(&fake.regs(), EICR).unwrap(), u32::MAX);
        fake.vanish_at_read(0);
        assert!(matches!(read(&fake.regs(), EICR), Err(Error::Gone { register: "EICR", .. })));
    }
}
