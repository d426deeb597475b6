//! The PHY of copper cards, behind MDIO (clause 45 of IEEE 802.3; MSCA and MSRWD in 8.2.3.22): whether it is powered.

use crate::module::phy_semaphore;
use crate::regs::{FWSM, MMNGC, MSCA, MSRWD, Registers, fwsm, mmngc, msca, msrwd};
use crate::semaphore::holding;
use crate::wait::{Timed, read, wait};
use crate::{Error, MacType, Result};
use device::Device;
use std::fmt;
use std::time::Duration;

/// Takes the PHY on the chip of an X540 or X550 out of low power, in which an earlier driver may have left it, or puts it there.
/// It stays powered where manageability firmware uses it. An 82599's is another chip, and left alone.
///
/// # Errors
///
/// [`Error::Timeout`] when MDIO or its semaphore is stuck, [`Error::Phy`] when no PHY answers, [`Error::Expired`],
/// [`Error::Gone`].
pub(crate) fn set_power<D: Device>(regs: &Timed<D>, mac: MacType, on: bool) -> Result<()> {
    if mac == MacType::Mac82599 || (!on && is_managed(regs)?) {
        return Ok(());
    }
    holding(regs, mac, phy_semaphore(regs)?, || {
        let phy = find(regs)?;
        let before = read_register(regs, phy, VENDOR_1)?;
        let after = if on { before & !LOW_POWER } else { before | LOW_POWER };
        if after != before {
            write_register(regs, phy, VENDOR_1, after)?;
        }
        Ok(())
    })
}

/// A PHY on the chip.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Phy {
    /// Its MDIO address.
    pub(crate) address: u32,
    /// Its identity: registers 2 and 3 of device 1.
    pub(crate) id: u32,
    /// Whether it is in low power.
    pub(crate) is_asleep: bool,
}

impl fmt::Display for Phy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x} at MDIO address {}", self.id, self.address)
    }
}

/// Returns the PHY on the chip of an X540 or X550.
///
/// # Errors
///
/// As [`set_power`].
pub(crate) fn identify<D: Device>(regs: &Timed<D>, mac: MacType) -> Result<Phy> {
    holding(regs, mac, phy_semaphore(regs)?, || {
        let address = find(regs)?;
        let id = read_register(regs, address, PMA_ID)? << 16 | read_register(regs, address, PMA_ID_LOW)?;
        Ok(Phy { address, id, is_asleep: read_register(regs, address, VENDOR_1)? & LOW_POWER != 0 })
    })
}

/// Whether firmware passes traffic through the port (FWSM.MODE), or forbids that its link be touched (MMNGC).
pub(crate) fn is_managed<D: Device>(regs: &Registers<D>) -> Result<bool> {
    Ok(fwsm::MODE.get(read(regs, FWSM)?) & PASS_THROUGH != 0 || mmngc::VETO.is_set(read(regs, MMNGC)?))
}

/// The MDIO address of the PHY.
fn find<D: Device>(regs: &Timed<D>) -> Result<u32> {
    for phy in 0..ADDRESSES {
        let id = read_register(regs, phy, PMA_ID)?;
        if id != 0 && id != 0xFFFF {
            return Ok(phy);
        }
    }
    let problem = "none answers on MDIO, and without it there is no link: power-cycle the host, and if that does not help \
                   replace the card";
    Err(Error::Phy { device: regs.device().name().to_owned(), problem: problem.to_owned() })
}

/// A register of a PHY: device and number.
type Register = (u32, u32);

fn read_register<D: Device>(regs: &Timed<D>, phy: u32, (device, number): Register) -> Result<u32> {
    command(regs, phy, device, ADDRESS, number)?;
    command(regs, phy, device, READ, number)?;
    read(regs, MSRWD).map(|value| msrwd::READ.get(value))
}

fn write_register<D: Device>(regs: &Timed<D>, phy: u32, (device, number): Register, value: u32) -> Result<()> {
    regs.write(MSRWD, msrwd::WRITE.set(0, value));
    command(regs, phy, device, ADDRESS, number)?;
    command(regs, phy, device, WRITE, number)
}

fn command<D: Device>(regs: &Timed<D>, phy: u32, device: u32, op: u32, number: u32) -> Result<()> {
    let value = msca::DEVICE.set(msca::PHY.set(msca::OP.set(msca::ADDRESS.set(0, number), op), phy), device);
    regs.write(MSCA, value | msca::MDI_CMD.mask());
    let done = |value| !msca::MDI_CMD.is_set(value);
    wait(regs, MSCA, done, COMMAND_LIMIT, "a command to the PHY to complete (MSCA.MDICMD)").map(drop)
}

/// PHY addresses on the bus.
const ADDRESSES: u32 = 32;
/// The upper half of the PHY's identity: device 1 (PMA/PMD), register 2.
const PMA_ID: Register = (1, 2);
/// The lower half.
const PMA_ID_LOW: Register = (1, 3);
/// Device 30 (vendor-specific 1), register 0: control.
const VENDOR_1: Register = (0x1E, 0);
/// Of [`VENDOR_1`]: set low power mode.
const LOW_POWER: u32 = 1 << 11;
/// MSCA.OP.
const ADDRESS: u32 = 0;
const WRITE: u32 = 1;
const READ: u32 = 3;
/// FWSM.MODE: a bit of the modes that pass traffic through.
const PASS_THROUGH: u32 = 2;
/// How long putting it into low power may take at the end, as the reset that follows needs time too: whoever keeps the semaphore of an X540 is
/// overruled by then.
pub(crate) const LAST_LIMIT: Duration = Duration::from_millis(1500);
/// The same where all has to end soon, behind a self-test or an opening that failed: nobody is overruled then.
pub(crate) const QUICK_LAST_LIMIT: Duration = Duration::from_millis(400);
/// A command takes some 30 us at 2.4 MHz (8.2.3.22); Intel's drivers wait for 1 ms.
const COMMAND_LIMIT: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Fake, PHY_CONTROL};
    use MacType::{Mac82599, X540};

    #[test]
    fn power_follows_the_port_unless_firmware_uses_it() {
        let fake = Fake::new(0x1528);
        let power = |on| {
            set_power(&fake.regs(), X540, on).unwrap();
            fake.phy_register(PHY_CONTROL)
        };
        fake.set_phy_register(PHY_CONTROL, 0x1801);
        assert_eq!((power(true), power(true), power(false)), (0x1001, 0x1001, 0x1801), "one bit of the register");
        assert_eq!(power(true), 0x1001);
        fake.set(FWSM, 0x8004);
        assert_eq!(power(false), 0x1001, "pass-through firmware");
        fake.set(FWSM, 0x8000);
        fake.set(MMNGC, 1);
        assert_eq!(power(false), 0x1001, "its veto");
        assert_eq!((fake.get(crate::regs::SW_FW_SYNC), fake.get(crate::regs::SWSM)), (0, 0));
    }

    #[test]
    fn a_phy_of_another_chip_is_left_alone() {
        let fake = Fake::new(0x151C);
        set_power(&fake.regs(), Mac82599, true).unwrap();
        assert!(fake.writes().is_empty());
    }

    #[test]
    fn a_phy_that_does_not_answer_is_one_clear_error() {
        let fake = Fake::new(0x1528);
        fake.on_read(MSRWD, |_| 0xFFFF_0000);
        let error = set_power(&fake.regs(), X540, true).unwrap_err();
        assert!(error.to_string().contains("PHY: none answers on MDIO"), "{error}");

        let fake = Fake::new(0x1528);
        fake.on_read(MSCA, |_| 1 << 30);
        let error = set_power(&fake.regs(), X540, true).unwrap_err();
        assert!(matches!(error, Error::Timeout { register: "MSCA", .. }), "{error}");
    }
}
