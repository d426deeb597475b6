//! MSI-X: one vector for each queue pair, one more for everything else (82599 datasheet 7.3, 8.2.3.5).

use crate::regs::{
    EIAC, EICR, EIMC, EIMC_EX, EIMS, EIMS_EX, GPIE, IVAR, IVAR_MISC, Registers, eims, eitr, eitr_fields, gpie,
    ivar_misc,
};
use crate::wait::read;
use crate::{Error, Result};
use device::Device;
use std::time::Duration;

/// Routes receive and transmit queue `n` to vector `n`, and other causes (link changes) to vector `pairs`. All stay
/// masked. A vector fires at most once in `throttle`: 0 (no limit) to 1046 us at 10 Gbit/s, rounded down to steps of
/// 2.048 us; ten times as long at 1 Gbit/s.
///
/// # Errors
///
/// [`Error::Config`] when `pairs` is not 1 to 63 or `throttle` too long, [`Error::Gone`].
pub(crate) fn set_up<D: Device>(regs: &Registers<D>, pairs: u16, throttle: Duration) -> Result<()> {
    if !(1..=63).contains(&pairs) {
        return Err(Error::config("interrupts", format!("{pairs} queue pairs: 1 to 63 have vectors")));
    }
    let steps = throttle.as_nanos() / THROTTLE_STEP_NS;
    let Some(steps) = u32::try_from(steps).ok().filter(|&steps| steps <= THROTTLE_STEPS) else {
        return Err(Error::config("interrupts", format!("throttle of {throttle:?}: at most 1046 us")));
    };
    let pairs = u32::from(pairs);
    regs.write(GPIE, gpie::MSIX.mask() | gpie::PBA.mask());
    for register in 0..pairs.div_ceil(2) {
        let even = VALID | (register * 2);
        let odd = if register * 2 + 1 < pairs { VALID | (register * 2 + 1) } else { 0 };
        regs.write(IVAR.at(register), odd << 24 | odd << 16 | even << 8 | even);
    }
    regs.write(IVAR_MISC, ivar_misc::OTHER.set(0, VALID | pairs));
    for vector in 0..=pairs {
        regs.write(eitr(vector), eitr_fields::INTERVAL.set(eitr_fields::CNT_WDIS.mask(), steps));
    }
    // Causes of queue vectors clear themselves when their message is sent.
    regs.write(EIAC, if pairs < 16 { (1 << pairs) - 1 } else { 0xFFFF });
    read(regs, EICR).map(drop)
}

/// Lets the vector of a queue pair fire, `pair` below 64.
pub(crate) fn unmask<D: Device>(regs: &Registers<D>, pair: u16) {
    let pair = u32::from(pair) % 64;
    regs.write(EIMS_EX.at(pair / 32), 1 << (pair % 32));
}

/// Keeps the vector of a queue pair from firing, `pair` below 64.
pub(crate) fn mask<D: Device>(regs: &Registers<D>, pair: u16) {
    let pair = u32::from(pair) % 64;
    regs.write(EIMC_EX.at(pair / 32), 1 << (pair % 32));
}

/// Lets the other vector fire when the link changes, or keeps it from doing so.
pub(crate) fn watch_link<D: Device>(regs: &Registers<D>, on: bool) {
    let link = eims::LSC.mask() | eims::OTHER.mask();
    if on { regs.write(EIMS, link) } else { regs.write(EIMC, link) }
}

/// In a vector's byte of IVAR.
const VALID: u32 = 0x80;
const THROTTLE_STEP_NS: u128 = 2048;
const THROTTLE_STEPS: u32 = 511;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    #[test]
    fn pairs_share_a_vector() {
        let fake = Fake::new(0x10FB);
        set_up(&fake.regs(), 3, Duration::from_micros(100)).unwrap();
        assert_eq!((fake.get(IVAR.at(0)), fake.get(IVAR.at(1))), (0x8181_8080, 0x0000_8282));
        assert_eq!((fake.get(IVAR_MISC), fake.get(EIAC), fake.get(GPIE)), (0x8300, 7, 0x8000_0010));
        assert_eq!((fake.get(eitr(0)), fake.get(eitr(3)), fake.get(eitr(4))), (0x8000_0180, 0x8000_0180, 0));
        assert!(fake.writes().iter().all(|(offset, _)| *offset != EIMS.offset()), "all stay masked");
    }

    #[test]
    fn every_pair_has_a_bit() {
        let fake = Fake::new(0x10FB);
        set_up(&fake.regs(), 63, Duration::ZERO).unwrap();
        let before = fake.writes().len();
        unmask(&fake.regs(), 5);
        mask(&fake.regs(), 62);
        watch_link(&fake.regs(), true);
        watch_link(&fake.regs(), false);
        let expected = [(0xAA0, 0x20), (0xAB4, 0x4000_0000), (0x880, 0x8010_0000), (0x888, 0x8010_0000)];
        assert_eq!(fake.writes().split_off(before), expected);
    }

    #[test]
    fn ranges() {
        let fake = Fake::new(0x10FB);
        let regs = fake.regs();
        assert!(set_up(&regs, 0, Duration::ZERO).is_err() && set_up(&regs, 64, Duration::ZERO).is_err());
        assert!(set_up(&regs, 1, Duration::from_micros(1047)).is_ok());
        assert!(set_up(&regs, 1, Duration::from_micros(1049)).is_err());
    }
}
