//! The self-test of a device whose queues are off: what its registers tell by themselves. Frames are another matter, for an open
//! port and [`ethdev::Port::set_loopback`].

use crate::regs::{CTRL, Igb, MTA, RETA, RSSRK, STATUS, VFTA, ctrl, rah, status};
use crate::wait::{Timed, modify, read, wait};
use crate::{Error, Model, Result, init, phy, regs};
use device::{Device, ReadWrite, Reg, RegisterValue, Regs, TimeLimit};
use ethdev::{Check, Verdict};
use std::sync::Arc;
use std::time::Duration;

/// Tests the parts of a device that are not about frames: reset, requests to memory, registers, PHY. No queue is on meanwhile and
/// bus mastering is off, so the device reaches no memory. It is reset at the beginning and at the end. The whole takes `limit` at
/// most, and a second more for what is to be put in order.
///
/// A check that fails does not end the test, unless the device is gone or hangs in its reset.
///
/// # Errors
///
/// [`Error::UnknownDevice`], or if bus mastering cannot be cleared. What the tests find is in the checks.
pub fn selftest<D: Device>(device: D, limit: &TimeLimit) -> Result<Vec<Check>> {
    let model = Model::identify(device.ids())?;
    let deadline = device.deadline().unwrap_or_else(|| limit.begin());
    device.set_deadline(Some(deadline.clone()));
    device.set_bus_master(false)?;
    let regs = Timed::new(&Regs::new(Arc::new(device))?, deadline);
    let tests: [(&'static str, Test<D>); 5] = [
        (RESET, |regs, _| init::reset(regs).map(|()| Check::ok(RESET, "done"))),
        (REQUESTS, requests),
        (REGISTERS, patterns),
        (PHY, phy_answers),
        (RESET_AGAIN, |regs, _| init::reset(regs).map(|()| Check::ok(RESET_AGAIN, "done"))),
    ];
    let mut checks = Vec::new();
    for (name, test) in tests {
        let outcome = test(&regs, model);
        let is_end = outcome.as_ref().is_err_and(|error| {
            name == RESET || matches!(error, Error::Gone { .. } | Error::Expired { .. } | Error::Device(_))
        });
        checks.push(outcome.unwrap_or_else(|error| Check::failed(name, error)));
        if is_end {
            break;
        }
    }
    let after = regs.afterwards(END_LIMIT);
    regs.device().set_deadline(Some(after.deadline().clone()));
    if checks.last().is_none_or(|check| check.verdict != Verdict::Failed)
        && let Err(error) = init::stop(&after)
    {
        tracing::warn!("at the end of the self-test: {error}");
    }
    Ok(checks)
}

/// Reads all registers of a device that this driver knows, in the order of the datasheet's chapters, and writes none. Those that
/// reading would change have no value.
///
/// # Errors
///
/// [`Error::UnknownDevice`], [`Error::Gone`].
pub fn registers<D: Device>(device: D) -> Result<Vec<RegisterValue>> {
    Model::identify(device.ids())?;
    let regs: Regs<Igb, D> = Regs::new(Arc::new(device))?;
    // Reading that one takes the semaphore.
    let values = regs.dump(|line| line.name == "SWSM");
    // What was read of a device that went away meanwhile is not its content.
    read(&regs, STATUS)?;
    Ok(values)
}

type Test<D> = fn(&Timed<D>, Model) -> Result<Check>;

fn requests<D: Device>(regs: &Timed<D>, _: Model) -> Result<Check> {
    modify(regs, CTRL, |value| value | ctrl::GIO_DIS.mask())?;
    let quiet = |value| !status::GIO.is_set(value);
    let ended = wait(regs, STATUS, quiet, GIO_LIMIT, "requests to memory to end (STATUS.GIO)");
    modify(regs, CTRL, |value| ctrl::GIO_DIS.set(value, 0))?;
    ended.map(|_| Check::ok(REQUESTS, "end when forbidden (CTRL.GIO_DIS)"))
}

/// Writes patterns to registers that keep what is written, reads them back, and puts back what was in them: those of the offline
/// test of Linux's driver, without those that tell the device of memory, and VFTA, RSSRK and RETA.
fn patterns<D: Device>(regs: &Timed<D>, _: Model) -> Result<Check> {
    let registers = plain_registers();
    let mut wrong = Vec::new();
    for &(register, bits) in &registers {
        let before = read(regs, register)?;
        for pattern in PATTERNS {
            regs.write(register, pattern & bits);
            let kept = read(regs, register)? & bits;
            if kept != pattern & bits {
                wrong.push(format!("{register:?} keeps {kept:#010x} of {:#010x}", pattern & bits));
                break;
            }
        }
        regs.write(register, before);
    }
    let count = registers.len();
    Ok(match wrong.first() {
        None => Check::ok(REGISTERS, format!("{count} keep what is written")),
        Some(first) => {
            Check::failed(REGISTERS, format!("{} of {count} do not keep what is written: {first}", wrong.len()))
        }
    })
}

/// Registers that keep what is written, and the bits that do.
fn plain_registers() -> Vec<(Reg<Igb, ReadWrite>, u32)> {
    // Four entries of 4 bits in a word of RETA, 3 on the I350.
    let arrays = [(MTA, u32::MAX), (VFTA, u32::MAX), (RSSRK, u32::MAX), (RETA, 0x0707_0707)];
    let arrays = arrays.into_iter().flat_map(|(array, bits)| (0..array.count()).map(move |n| (array.at(n), bits)));
    let address = rah::ADDRESS.mask() | rah::AV.mask();
    let addresses = (0..regs::RAL.count()).flat_map(|n| [(regs::RAL.at(n), u32::MAX), (regs::RAH.at(n), address)]);
    arrays.chain(addresses).collect()
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
const PHY: &str = "PHY";
const RESET_AGAIN: &str = "reset again";

const PATTERNS: [u32; 4] = [0x5A5A_5A5A, 0xA5A5_A5A5, 0, u32::MAX];
const GIO_LIMIT: Duration = Duration::from_millis(100);
/// For the device to be left as it should be.
const END_LIMIT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    #[test]
    fn what_is_wrong_is_named() {
        let fake = Fake::new(0x10C9);
        fake.on_mdic(|_, value| value & !0xFFFF | 1 << 28 | 0x0141);
        let verdicts = |fake: &Fake| {
            let checks = selftest(fake.clone(), &TimeLimit::default()).unwrap();
            checks.into_iter().map(|check| (check.name, check.verdict)).collect::<Vec<_>>()
        };
        let good = |name| (name, Verdict::Ok);
        assert_eq!(verdicts(&fake), [RESET, REQUESTS, REGISTERS, PHY, RESET_AGAIN].map(good));
        fake.on_read(VFTA.at(5), |_| 0);
        fake.on_read(STATUS, |_| status::GIO.mask());
        fake.on_mdic(|_, value| value | 0xFFFF | 1 << 28);
        let bad = |name| (name, Verdict::Failed);
        assert_eq!(verdicts(&fake)[1..4], [REQUESTS, REGISTERS, PHY].map(bad));
        fake.vanish();
        assert_eq!(verdicts(&fake), [bad(RESET)]);
        assert!(matches!(registers(fake), Err(Error::Gone { .. })));
    }
}
