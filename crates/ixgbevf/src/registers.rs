//! The registers of a function, as they are.

use crate::regs::{Ixgbevf, VFMAILBOX, VFMRQC, VFRETA, VFRSSRK, VFSTATUS};
use crate::{MacType, Model, Result};
use device::{Device, Listing, Reg, RegisterValue, Regs};
use intel::read;
use std::sync::Arc;

/// Reads all registers of a function that this driver knows, and writes none. Those that reading would change have no value.
///
/// # Errors
///
/// [`crate::Error::UnknownDevice`], [`crate::Error::Gone`].
pub fn registers<D: Device>(device: D) -> Result<Vec<RegisterValue>> {
    let mac = Model::identify(device.ids())?.mac;
    let regs: Regs<Ixgbevf, D> = Regs::new(Arc::new(device))?;
    // Only an X550's function hashes by itself.
    let own = [VFMRQC, VFRSSRK.at(0), VFRETA.at(0)].map(Reg::offset);
    let values = regs.dump(|offset| {
        if own.contains(&offset) && mac != MacType::X550 {
            Listing::Absent
        } else if offset == VFMAILBOX.offset() {
            // Reading it clears bits.
            Listing::NoValue
        } else {
            Listing::Value
        }
    });
    // What was read of a device that went away meanwhile is not its content.
    read(&regs, VFSTATUS)?;
    Ok(values)
}
