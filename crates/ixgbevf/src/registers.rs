//! The registers of a function, as they are.

use crate::regs::{Ixgbevf, VFSTATUS};
use crate::{Model, Result};
use device::{Device, RegisterValue, Regs};
use intel::read;
use std::sync::Arc;

/// Reads all registers of a function that this driver knows, and writes none. Those that reading would change have no value.
///
/// # Errors
///
/// [`crate::Error::UnknownDevice`], [`crate::Error::Gone`].
pub fn registers<D: Device>(device: D) -> Result<Vec<RegisterValue>> {
    Model::identify(device.ids())?;
    let regs: Regs<Ixgbevf, D> = Regs::new(Arc::new(device))?;
    // Reading that one clears bits. Only an X550's function hashes by itself.
    let own = |name: &str| matches!(name, "VFMRQC" | "VFRSSRK" | "VFRETA");
    let shared = Model::identify(regs.device().ids())?.mac != crate::MacType::X550;
    let values = regs.dump(|line| line.name == "VFMAILBOX" || (shared && own(line.name)));
    // What was read of a device that went away meanwhile is not its content.
    read(&regs, VFSTATUS)?;
    Ok(values)
}
