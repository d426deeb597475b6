//! The self-test of a device whose queues are off: what its registers tell by themselves. Frames are another matter, for an open
//! port and [`ethdev::Port::set_loopback`].

use crate::regs::{CTRL, EEC, Igb, MTA, RETA, RSSRK, STATUS, SWSM, VFTA, ctrl, eec, rah, status, sw_fw_sync};
use crate::wait::{Timed, modify, read, wait};
use crate::{Model, Result, eeprom, init, phy, regs};
use device::{Device, Listing, ReadWrite, Reg, RegisterValue, Regs, TimeLimit};
use ethdev::Check;
use intel::selftest::{self, Test, patterns};
use std::sync::Arc;
use std::time::Duration;

/// Tests the parts of a device that are not about frames: reset, requests to memory, registers, semaphores, EEPROM, PHY. No queue is on meanwhile and
/// bus mastering is off, so the device reaches no memory. It is reset at the beginning and at the end. The whole takes `limit` at
/// most, and a second more for what is to be put in order.
///
/// A check that fails does not end the test, unless the device is gone or hangs in its reset.
///
/// # Errors
///
/// [`crate::Error::UnknownDevice`], or if bus mastering cannot be cleared. What the tests find is in the checks.
pub fn selftest<D: Device>(device: D, limit: &TimeLimit) -> Result<Vec<Check>> {
    let model = Model::identify(device.ids())?;
    let regs = intel::take(device, limit)?;
    let tests: [(&'static str, Test<Igb, D, Model>); 7] = [
        (RESET, |regs, _| init::reset(regs).map(|()| Check::ok(RESET, "done"))),
        (REQUESTS, requests),
        (REGISTERS, |regs, _| patterns(regs, REGISTERS, &plain_registers(), &address_registers())),
        // Before what takes them, so that one that is kept is named.
        (SEMAPHORES, semaphores),
        (EEPROM, eeprom_sum),
        (PHY, phy_answers),
        (RESET_AGAIN, |regs, _| init::reset(regs).map(|()| Check::ok(RESET_AGAIN, "done"))),
    ];
    Ok(selftest::run(&regs, model, &tests, |regs, _| init::stop(regs)))
}

/// Reads all registers of a device that this driver knows, in the order of the datasheet's chapters, and writes none. Those that
/// reading would change have no value.
///
/// # Errors
///
/// [`crate::Error::UnknownDevice`], [`crate::Error::Gone`].
pub fn registers<D: Device>(device: D) -> Result<Vec<RegisterValue>> {
    Model::identify(device.ids())?;
    let regs: Regs<Igb, D> = Regs::new(Arc::new(device))?;
    // Reading that one takes the semaphore.
    let values = regs.dump(|offset| if offset == SWSM.offset() { Listing::NoValue } else { Listing::Value });
    // What was read of a device that went away meanwhile is not its content.
    read(&regs, STATUS)?;
    Ok(values)
}

fn requests<D: Device>(regs: &Timed<D>, _: Model) -> Result<Check> {
    modify(regs, CTRL, |value| value | ctrl::GIO_DIS.mask())?;
    let quiet = |value| !status::GIO.is_set(value);
    let ended = wait(regs, STATUS, quiet, GIO_LIMIT, "requests to memory to end (STATUS.GIO)");
    modify(regs, CTRL, |value| ctrl::GIO_DIS.set(value, 0))?;
    ended.map(|_| Check::ok(REQUESTS, "end when forbidden (CTRL.GIO_DIS)"))
}

/// Registers that keep what is written, and the bits that do: those of the offline
/// test of Linux's driver, without those that tell the device of memory, and VFTA, RSSRK and RETA.
fn plain_registers() -> Vec<(Reg<Igb, ReadWrite>, u32)> {
    // Four entries of 4 bits in a word of RETA, 3 on the I350.
    let arrays = [(MTA, u32::MAX), (VFTA, u32::MAX), (RSSRK, u32::MAX), (RETA, 0x0707_0707)];
    arrays.into_iter().flat_map(|(array, bits)| (0..array.count()).map(move |n| (array.at(n), bits))).collect()
}

/// Those in which addresses are.
fn address_registers() -> Vec<(Reg<Igb, ReadWrite>, u32)> {
    let high = rah::ADDRESS.mask() | rah::AV.mask();
    (0..regs::RAL.count()).flat_map(|n| [(regs::RAL.at(n), u32::MAX), (regs::RAH.at(n), high)]).collect()
}

/// Takes and gives back each semaphore that the driver uses.
fn semaphores<D: Device>(regs: &Timed<D>, _: Model) -> Result<Check> {
    let resources = [(sw_fw_sync::EEP, "the EEPROM"), (phy::semaphore(regs)?, "the PHY")];
    selftest::semaphores(regs, SEMAPHORES, &phy::SEMAPHORES, &resources)
}

fn eeprom_sum<D: Device>(regs: &Timed<D>, model: Model) -> Result<Check> {
    if !eec::PRES.is_set(read(regs, EEC)?) {
        return Ok(Check::failed(EEPROM, "there is none (EEC.EE_PRES)"));
    }
    Ok(if eeprom::check(regs, model.mac)? {
        Check::ok(EEPROM, "its checksum is right")
    } else {
        Check::failed(EEPROM, "its checksum is wrong, so its settings may be")
    })
}

fn phy_answers<D: Device>(regs: &Timed<D>, model: Model) -> Result<Check> {
    Ok(match phy::identity(regs, model.mac)? {
        Some(id) if id != 0 && id != u32::MAX => Check::ok(PHY, format!("{id:#010x}, under its semaphore")),
        Some(id) => Check::failed(PHY, format!("reads {id:#010x}: none answers on MDIO")),
        None => Check::not_applicable(PHY, "not connected by its internal PHY (CTRL_EXT.LINK_MODE)"),
    })
}

const RESET: &str = "reset";
const REQUESTS: &str = "requests to memory";
const REGISTERS: &str = "registers";
const SEMAPHORES: &str = "semaphores";
const EEPROM: &str = "EEPROM";
const PHY: &str = "PHY";
const RESET_AGAIN: &str = "reset again";

/// 5.2, which says of no time; Intel's drivers wait for 80 ms.
const GIO_LIMIT: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use crate::fake::Fake;
    use crate::regs::SW_FW_SYNC;
    use ethdev::Verdict;

    #[test]
    fn what_is_wrong_is_named() {
        let fake = Fake::new(0x10C9);
        fake.on_mdic(|_, value| value & !0xFFFF | 1 << 28 | 0x0141);
        let verdicts = |fake: &Fake| {
            let checks = selftest(fake.clone(), &TimeLimit::default()).unwrap();
            checks.into_iter().map(|check| (check.name, check.verdict)).collect::<Vec<_>>()
        };
        let good = |name| (name, Verdict::Ok);
        let all = [RESET, REQUESTS, REGISTERS, SEMAPHORES, EEPROM, PHY, RESET_AGAIN];
        assert_eq!(verdicts(&fake), all.map(good));
        fake.on_read(VFTA.at(5), |_| 0);
        fake.on_read(STATUS, |_| status::GIO.mask());
        fake.set(SW_FW_SYNC, 1 << 16);
        fake.set_eeprom(vec![1; 0x40]);
        fake.on_mdic(|_, value| value | 0xFFFF | 1 << 28);
        let bad = |name| (name, Verdict::Failed);
        assert_eq!(verdicts(&fake)[1..6], [REQUESTS, REGISTERS, SEMAPHORES, EEPROM, PHY].map(bad));
        fake.set(EEC, 0);
        assert_eq!(verdicts(&fake)[4], bad(EEPROM));
        fake.vanish();
        assert_eq!(verdicts(&fake), [bad(RESET)]);
        assert!(matches!(registers(fake), Err(Error::Gone { .. })));
    }
}
