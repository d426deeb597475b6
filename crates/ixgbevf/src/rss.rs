//! Which receive queue a frame goes to (82599 datasheet 7.1.2.8; VFMRQC, VFRSSRK and VFRETA in the X550 datasheet,
//! 8.3.2.3.10 to 8.3.2.3.12).

use crate::config::RETA_ENTRIES;
use crate::regs::{Registers, VFMRQC, VFPSRTYPE, VFRETA, VFRSSRK, vfmrqc, vfpsrtype};
use crate::{Config, MacType};
use device::Device;
use ethdev::Reta;

/// Has the card spread flows over the port's receive queues. On an X550 the function has key, table and types of its own.
pub(crate) fn program<D: Device>(regs: &Registers<D>, config: &Config, mac: MacType) {
    let (queues, rss) = (config.port.rx_queues, &config.port.rss);
    // How many bits of the table's entries count.
    regs.write(VFPSRTYPE, vfpsrtype::RQPL.set(0, queues.next_power_of_two().trailing_zeros()));
    if mac != MacType::X550 {
        return;
    }
    for (i, bytes) in (0..).zip(rss.key.as_chunks::<4>().0) {
        regs.write(VFRSSRK.at(i), u32::from_le_bytes(*bytes));
    }
    program_table(regs, &rss.reta, queues);
    regs.write(VFMRQC, vfmrqc::TYPES.set(vfmrqc::RSSEN.mask(), rss.hash.bits().into()));
}

/// Programs the table of an X550's function.
pub(crate) fn program_table<D: Device>(regs: &Registers<D>, reta: &Reta, queues: u16) {
    for dword in 0..u32::from(RETA_ENTRIES) / 4 {
        let entries = [0, 1, 2, 3].map(|i| reta.queue(dword * 4 + i, queues));
        regs.write(VFRETA.at(dword), u32::from_le_bytes(entries));
    }
}
