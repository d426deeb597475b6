//! MSI-X: a vector for each receive queue, and one more for all other causes (82576 datasheet 7.3, 8.8).
//!
//! The vector of a queue fires once and is then masked by the device, so a queue that is polled under load is not
//! interrupted; [`arm`] lets it fire again. (QEMU's model does not mask it: there it fires again, which costs time and
//! nothing else.) Causes of queues are never cleared by software: a write to EICR could arrive after a frame that the driver
//! has not seen yet, and take its interrupt away.

use crate::regs::{
    EIAC, EIAM, EIMS, EITR, GPIE, ICR, IMS, IVAR, IVAR_MISC, Registers, eitr, gpie, icr, ims, ivar_misc,
};
use crate::wait::read;
use crate::{Config, MacType, Result};
use device::Device;
use ethdev::Events;

/// Routes receive queue `n` to vector `n` and other causes to the vector after the last queue's. Queues stay masked.
pub(crate) fn set_up<D: Device>(regs: &Registers<D>, config: &Config, mac: MacType) -> Result<()> {
    let queues = u32::from(config.port.rx_queues);
    // First of all: in another mode the registers below mean other things.
    regs.write(GPIE, gpie::NSICR.mask() | gpie::MSIX.mask() | gpie::EIAME.mask() | gpie::PBA.mask());
    let mut routes = [0; 8];
    for queue in 0..queues {
        let (register, shift) = place(queue, mac);
        routes[register] |= (VALID | queue) << shift;
    }
    for (n, route) in (0..IVAR.count()).zip(routes) {
        regs.write(IVAR.at(n), route);
    }
    regs.write(IVAR_MISC, ivar_misc::OTHER.set(0, VALID | queues));
    let interval = eitr::INTERVAL.set(eitr::CNT_INGR.mask(), config.interrupt_interval_us.into());
    for vector in 0..queues {
        regs.write(EITR.at(vector), interval);
    }
    regs.write(EITR.at(queues), eitr::INTERVAL.set(eitr::CNT_INGR.mask(), OTHER_INTERVAL_US));
    // A message clears its cause; that of a queue also masks its vector.
    regs.write(EIAC, (1 << (queues + 1)) - 1);
    regs.write(EIAM, (1 << queues) - 1);
    read(regs, ICR).map(drop)
}

/// Where the vector of a receive queue stands: which IVAR, and at which bit (8.8). The byte above is the transmit queue's.
fn place(queue: u32, mac: MacType) -> (usize, u32) {
    let (register, half) = match mac {
        MacType::Mac82576 => (queue % 8, queue / 8),
        MacType::I350 => (queue / 2, queue % 2),
    };
    (register as usize, half * 16)
}

/// Lets the vector of a receive queue fire once: at once if anything came since it last fired.
pub(crate) fn arm<D: Device>(regs: &Registers<D>, queue: u32) {
    regs.write(EIMS, 1 << queue);
}

/// Lets the other vector, that after the last of `queues`, fire whenever there is something for [`take`] to report.
pub(crate) fn watch<D: Device>(regs: &Registers<D>, queues: u32) {
    regs.write(IMS, ims::LSC.mask() | ims::FER.mask());
    regs.write(EIMS, 1 << queues);
}

/// Returns the other causes since the last call, and clears them.
pub(crate) fn take<D: Device>(regs: &Registers<D>) -> Result<Events> {
    let causes = read(regs, ICR)?;
    Ok(Events { link_changed: icr::LSC.is_set(causes), memory_error: icr::FER.is_set(causes) })
}

/// In a vector's byte of IVAR.
const VALID: u32 = 0x80;
/// Enough for a link that flaps.
const OTHER_INTERVAL_US: u32 = 1000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;
    use ethdev::PortConfig;

    fn routes(device: u16, mac: MacType, rx_queues: u16) -> (Vec<u32>, Fake) {
        let fake = Fake::new(device);
        let config = Config::from(PortConfig { rx_queues, ..PortConfig::default() });
        set_up(&fake.regs(), &config, mac).unwrap();
        ((0..8).map(|n| fake.get(IVAR.at(n))).collect(), fake)
    }

    #[test]
    fn each_queue_has_a_vector_and_the_rest_has_one() {
        let (routed, fake) = routes(0x10C9, MacType::Mac82576, 10);
        assert_eq!(routed[..3], [0x0088_0080, 0x0089_0081, 0x82]);
        assert_eq!(routed[7], 0x87);
        assert_eq!((fake.get(IVAR_MISC), fake.get(EIAC), fake.get(EIAM)), (0x8A00, 0x7FF, 0x3FF));
        assert_eq!((fake.get(EITR.at(0)), fake.get(EITR.at(10))), (0x8000_0050, 0x8000_0FA0));
        assert_eq!((fake.get(GPIE), fake.written(EIMS)), (0xC000_0011, Vec::new()));
    }

    #[test]
    fn the_i350_has_its_queues_in_pairs() {
        assert_eq!(routes(0x1521, MacType::I350, 3).0[..3], [0x0081_0080, 0x82, 0]);
    }

    #[test]
    fn other_causes_are_told_apart() {
        let fake = Fake::new(0x10C9);
        for (causes, link_changed, memory_error) in [(0x81, false, false), (4, true, false), (1 << 22, false, true)] {
            fake.set(ICR, causes);
            assert_eq!(take(&fake.regs()).unwrap(), Events { link_changed, memory_error });
        }
        watch(&fake.regs(), 3);
        arm(&fake.regs(), 2);
        assert_eq!((fake.get(IMS), fake.written(EIMS)), (0x40_0004, vec![8, 4]));
    }
}
