//! The link as a virtual function sees it (VFLINKS; X550 datasheet 8.3.2.1.3).

use crate::regs::{Registers, VFLINKS, vflinks};
use crate::{Error, MacType, Result};
use device::Device;
use ethdev::LinkStatus;
use intel::{Timed, read, wait};
use std::time::Duration;

type Wait<D> = Timed<crate::Ixgbevf, D>;

/// Returns the state of the link.
pub(crate) fn status<D: Device>(regs: &Registers<D>, mac: MacType) -> Result<LinkStatus> {
    let mut value = read(regs, VFLINKS)?;
    // An SFP+ module's link may show a moment before it is there to stay.
    let looks = if mac == MacType::Mac82599 { SETTLING_LOOKS } else { 0 };
    for _ in 0..looks {
        if !vflinks::UP.is_set(value) {
            break;
        }
        std::thread::sleep(SETTLING);
        value = read(regs, VFLINKS)?;
    }
    Ok(decode(value))
}

/// Waits for the link to come up, and returns its state when it has, `limit` is over, or the operation is cancelled.
pub(crate) fn wait_link<D: Device>(regs: &Wait<D>, mac: MacType, limit: Duration) -> Result<LinkStatus> {
    match wait(regs, VFLINKS, |value| vflinks::UP.is_set(value), limit, "the link (VFLINKS.UP)") {
        Ok(_) | Err(Error::Timeout { .. } | Error::Expired { .. }) => status(regs, mac),
        Err(error) => Err(error),
    }
}

fn decode(value: u32) -> LinkStatus {
    if !vflinks::UP.is_set(value) {
        return LinkStatus::default();
    }
    let speed_mbps = match (vflinks::SPEED.get(value), vflinks::NON_STD.is_set(value)) {
        (3, false) => 10_000,
        (3, true) => 2_500,
        (2, _) => 1_000,
        (1, true) => 5_000,
        (1, false) => 100,
        _ => 10,
    };
    LinkStatus { up: true, speed_mbps }
}

/// How often, and how long between: as Linux's and DPDK's drivers do, which say that an 82599's link with SFP+ modules and cables takes up
/// to 500 us to be told rightly.
const SETTLING_LOOKS: u32 = 5;
const SETTLING: Duration = Duration::from_micros(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds() {
        let speed = |bits: u32| decode(1 << 30 | bits << 27);
        let speeds = [6, 7, 4, 2, 3, 0].map(|bits| speed(bits).speed_mbps);
        assert_eq!(speeds, [10_000, 2_500, 1_000, 100, 5_000, 10]);
        assert_eq!(decode(3 << 28), LinkStatus::default());
    }
}
