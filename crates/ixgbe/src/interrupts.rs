//! MSI-X: a vector for each receive queue, and one more for all other causes (82599 datasheet 7.3, 8.2.3.5).
//!
//! The vector of a queue fires once and is then masked by the device, so a queue that is polled under load is not
//! interrupted; [`arm`] lets it fire again. Causes of queues are never cleared by software: a write to EICR could arrive
//! after a frame that the driver has not seen yet, and take its interrupt away.

use crate::regs::{
    EIAC, EIAM_EX, EICR, EIMS, EIMS_EX, GPIE, IVAR, IVAR_MISC, Registers, eicr, eims, eitr, eitr_fields, gpie, ivar,
    ivar_misc,
};
use crate::wait::read;
use crate::{Config, Result};
use device::Device;
use ethdev::Events;

/// Routes receive queue `n` to vector `n` and other causes to the vector after the last queue's. Queues stay masked.
pub(crate) fn set_up<D: Device>(regs: &Registers<D>, config: &Config) -> Result<()> {
    let queues = u32::from(config.port.rx_queues);
    // OCD: reading EICR leaves the causes of queues alone.
    regs.write(GPIE, gpie::MSIX.mask() | gpie::OCD.mask() | gpie::EIAME.mask() | gpie::PBA.mask());
    for pair in 0..queues.div_ceil(2) {
        let even = ivar::RX_EVEN.set(0, VALID | (2 * pair));
        let odd = if 2 * pair + 1 < queues { ivar::RX_ODD.set(0, VALID | (2 * pair + 1)) } else { 0 };
        regs.write(IVAR.at(pair), even | odd);
    }
    regs.write(IVAR_MISC, ivar_misc::OTHER.set(0, VALID | queues));
    let steps = u32::from(config.interrupt_interval_us) * 1000 / INTERVAL_STEP_NS;
    for vector in 0..queues {
        regs.write(eitr(vector), eitr_fields::INTERVAL.set(eitr_fields::CNT_WDIS.mask(), steps));
    }
    regs.write(eitr(queues), eitr_fields::INTERVAL.set(eitr_fields::CNT_WDIS.mask(), MOST_STEPS));
    // The message of a queue clears its cause (of the 16 that EICR has bits for) and masks its vector.
    let [low, high] = [queues.min(32), queues.saturating_sub(32)].map(|n| u32::MAX.checked_shr(32 - n).unwrap_or(0));
    regs.write(EIAC, low & eicr::QUEUES.mask());
    regs.write(EIAM_EX.at(0), low);
    regs.write(EIAM_EX.at(1), high);
    read(regs, EICR).map(drop)
}

/// Lets the vector of a receive queue fire once: at once if anything came since it last fired.
pub(crate) fn arm<D: Device>(regs: &Registers<D>, queue: u32) {
    regs.write(EIMS_EX.at(queue / 32), 1 << (queue % 32));
}

/// Lets the other vector fire whenever there is something for [`take`] to report.
pub(crate) fn watch<D: Device>(regs: &Registers<D>) {
    regs.write(EIMS, eims::LSC.mask() | eims::ECC.mask());
}

/// Returns the other causes since the last call, and clears them.
pub(crate) fn take<D: Device>(regs: &Registers<D>) -> Result<Events> {
    let causes = read(regs, EICR)?;
    Ok(Events { link_changed: eicr::LSC.is_set(causes), memory_error: eicr::ECC.is_set(causes) })
}

/// In a vector's byte of IVAR.
const VALID: u32 = 0x80;
/// A step of EITR at 10 Gbit/s.
const INTERVAL_STEP_NS: u32 = 2048;
/// The longest interval, about a millisecond: enough for a link that flaps.
const MOST_STEPS: u32 = 511;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use crate::fake::Fake;
    use ethdev::PortConfig;

    fn config(rx_queues: u16, interrupt_interval_us: u16) -> Config {
        let port = PortConfig { rx_queues, ..PortConfig::default() };
        Config { interrupt_interval_us, ..port.into() }
    }

    #[test]
    fn each_queue_has_a_vector_and_the_rest_has_one() {
        let fake = Fake::new(0x10FB);
        set_up(&fake.regs(), &config(3, 100)).unwrap();
        assert_eq!((fake.get(IVAR.at(0)), fake.get(IVAR.at(1))), (0x0081_0080, 0x0000_0082));
        assert_eq!((fake.get(IVAR_MISC), fake.get(EIAC), fake.get(GPIE)), (0x8300, 7, 0xC000_0030));
        assert_eq!((fake.get(EIAM_EX.at(0)), fake.get(EIAM_EX.at(1))), (7, 0));
        // 48 steps of 2.048 us; 511 of the other vector.
        assert_eq!((fake.get(eitr(0)), fake.get(eitr(2)), fake.get(eitr(3))), (0x8000_0180, 0x8000_0180, 0x8000_0FF8));
        assert_eq!(fake.get(eitr(4)), 0);
        let masks = [EIMS.offset(), EIMS_EX.at(0).offset(), EIMS_EX.at(1).offset()];
        assert!(fake.writes().iter().all(|(offset, _)| !masks.contains(offset)), "all stay masked");
        assert_eq!(fake.reads(), [EICR.offset()], "what was before is forgotten");
    }

    #[test]
    fn vectors_beyond_those_of_eicr() {
        let fake = Fake::new(0x10FB);
        set_up(&fake.regs(), &config(63, 0)).unwrap();
        assert_eq!((fake.get(IVAR.at(31)), fake.get(IVAR_MISC)), (0x0000_00BE, 0xBF00));
        assert_eq!((fake.get(EIAC), fake.get(EIAM_EX.at(0)), fake.get(EIAM_EX.at(1))), (0xFFFF, u32::MAX, 0x7FFF_FFFF));
        assert_eq!((fake.get(eitr(62)), fake.get(eitr(63))), (0x8000_0000, 0x8000_0FF8));
        let before = fake.writes().len();
        arm(&fake.regs(), 5);
        arm(&fake.regs(), 62);
        watch(&fake.regs());
        assert_eq!(fake.writes().split_off(before), [(0xAA0, 0x20), (0xAA4, 0x4000_0000), (0x880, 0x1010_0000)]);
    }

    #[test]
    fn intervals_are_steps_rounded_down() {
        let steps = |microseconds| {
            let fake = Fake::new(0x1528);
            set_up(&fake.regs(), &config(1, microseconds)).unwrap();
            fake.get(eitr(0)) >> 3 & 0x1FF
        };
        assert_eq!([0, 2, 3, 20, 1046].map(steps), [0, 0, 1, 9, 510]);
    }

    #[test]
    fn other_causes_are_told_apart_and_removal_is_told() {
        let fake = Fake::new(0x10FB);
        for (causes, link_changed, memory_error) in
            [(0, false, false), (0x0010_0000, true, false), (0x1000_0000, false, true), (0xFFFF, false, false)]
        {
            fake.set(EICR, causes);
            assert_eq!(take(&fake.regs()).unwrap(), Events { link_changed, memory_error });
        }
        fake.vanish_at_read(0);
        assert!(matches!(take(&fake.regs()), Err(Error::Gone { .. })));
    }
}
