//! MSI-X: a vector for each receive queue, of two at most, and one more for the mailbox (82599 datasheet 7.3, X550 datasheet 8.3.2.2).
//!
//! The vector of a queue fires once and is then masked by the device, so a queue that is polled under load is not
//! interrupted; [`arm`] lets it fire again.

use crate::Config;
use crate::regs::{
    Registers, VTEIAC, VTEIAM, VTEIMC, VTEIMS, VTEITR, VTIVAR, VTIVAR_MISC, vteitr, vtivar, vtivar_misc,
};
use device::Device;

/// Routes receive queue `n` to vector `n` and the mailbox to the vector after the last queue's. Queues stay masked.
pub(crate) fn set_up<D: Device>(regs: &Registers<D>, config: &Config) {
    let queues = u32::from(config.port.rx_queues);
    let even = vtivar::RX_EVEN.set(0, VALID);
    let odd = if queues > 1 { vtivar::RX_ODD.set(0, VALID | 1) } else { 0 };
    regs.write(VTIVAR.at(0), even | odd);
    regs.write(VTIVAR_MISC, vtivar_misc::MAILBOX.set(0, VALID | queues));
    let steps = u32::from(config.interrupt_interval_us) * 1000 / INTERVAL_STEP_NS;
    for vector in 0..queues {
        regs.write(VTEITR.at(vector), vteitr::INTERVAL.set(vteitr::CNT_WDIS.mask(), steps));
    }
    regs.write(VTEITR.at(queues), vteitr::INTERVAL.set(vteitr::CNT_WDIS.mask(), MOST_STEPS));
    // A message clears its cause; that of a queue also masks its vector.
    regs.write(VTEIAC, (1 << (queues + 1)) - 1);
    regs.write(VTEIAM, (1 << queues) - 1);
}

/// Lets the vector of a receive queue fire once: at once if anything came since it last fired.
pub(crate) fn arm<D: Device>(regs: &Registers<D>, queue: u32) {
    regs.write(VTEIMS, 1 << queue);
}

/// Lets the vector after the last of `queues` fire whenever the physical function says something.
pub(crate) fn watch<D: Device>(regs: &Registers<D>, queues: u32) {
    regs.write(VTEIMS, 1 << queues);
}

/// Masks all vectors.
pub(crate) fn mask<D: Device>(regs: &Registers<D>) {
    regs.write(VTEIMC, u32::MAX);
}

/// In a vector's byte of VTIVAR.
const VALID: u32 = 0x80;
/// A step of VTEITR at 10 Gbit/s.
const INTERVAL_STEP_NS: u32 = 2048;
/// The longest interval, about a millisecond: enough for a physical function that never stops talking.
const MOST_STEPS: u32 = 511;
