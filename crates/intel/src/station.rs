//! The address that a card comes with.

use crate::wait::read;
use crate::{Error, Family, Result};
use device::{Bits, Device, ReadWrite, Reg, Regs};

/// Returns the station address, which the EEPROM has loaded into receive address 0: its registers are `ral` and `rah` (82599 datasheet
/// 4.6.3.2, 82576 datasheet 8.10).
///
/// # Errors
///
/// [`Error::Eeprom`] when there is none, or it is no station's; [`Error::Gone`].
pub fn station_address<F: Family, D: Device>(
    regs: &Regs<F, D>,
    ral: Reg<F, ReadWrite>,
    rah: Reg<F, ReadWrite>,
) -> Result<[u8; 6]> {
    let (low, high) = (read(regs, ral)?, read(regs, rah)?);
    let ([a, b, c, d], [e, f, ..]) = (low.to_le_bytes(), high.to_le_bytes());
    let address = [a, b, c, d, e, f];
    let problem = if !VALID.is_set(high) {
        "it loaded no station address (RAH0.AV is clear)"
    } else if address == [0; 6] {
        "the station address is zero"
    } else if a & 1 == 1 {
        "the station address is a multicast address"
    } else {
        return Ok(address);
    };
    // Shortened, as a report may be for everybody.
    let problem = format!("{problem}: {a:02x}:{b:02x}:{c:02x}:xx:xx:xx; the card wants its firmware image restored");
    Err(Error::Eeprom { device: regs.device().name().to_owned(), problem })
}

/// The address counts.
const VALID: Bits = Bits::new(31, 31);
