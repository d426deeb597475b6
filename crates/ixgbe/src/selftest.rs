//! The self-test of a device whose queues are off: what its registers tell by themselves. Frames are another matter, for an open
//! port and [`ethdev::Port::set_loopback`].

use crate::port::leave;
use crate::regs::{
    CTRL, EEC, ERETA, FCRTH, FCRTL, FCTTV, FLEX_MNG, FWSTS, HICR, Ixgbe, MMNGC, MTA, RECEIVE_ADDRESSES, RETA, RSSRK,
    STATUS, SW_FW_SYNC, SWSM, VFTA, ctrl, eec, fcrth, fcrtl, mmngc, rah, rah_fields, ral, sw_fw_sync,
};
use crate::wait::{Timed, modify, read, wait};
use crate::{Cage, MacType, Media, Model, Result, eeprom, init, link, module, phy, semaphore};
use device::{Device, Listing, ReadWrite, Reg, RegisterValue, Regs, TimeLimit};
use ethdev::Check;
use intel::selftest::{self, PATTERNS, Test, patterns};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Tests the parts of a device that are not about frames: reset, requests to memory, registers, semaphores, EEPROM, PHY, module,
/// auto-negotiation. No queue is on meanwhile and bus mastering is off, so the device reaches no memory. It is reset at the
/// beginning and at the end; a link that it has may go down. The whole takes `limit` at most, and a second more for what is to be
/// put in order.
///
/// A check that fails does not end the test, unless the device is gone or hangs in its reset.
///
/// ```
/// use device::TimeLimit;
/// use ethdev::Verdict;
/// use softnic::{Fault, StrictNic};
///
/// let checks = ixgbe::selftest(StrictNic::builder().build(), &TimeLimit::default())?;
/// assert!(checks.iter().all(|check| check.verdict != Verdict::Failed));
///
/// let checks = ixgbe::selftest(StrictNic::builder().fault(Fault::StuckGio).build(), &TimeLimit::default())?;
/// let failed: Vec<_> = checks.iter().filter(|check| check.verdict == Verdict::Failed).collect();
/// assert_eq!((failed.len(), failed[0].name), (1, "requests to memory"));
/// # Ok::<(), ixgbe::Error>(())
/// ```
///
/// # Errors
///
/// [`crate::Error::UnknownDevice`], or if bus mastering cannot be cleared. What the tests find is in the checks.
pub fn selftest<D: Device>(device: D, limit: &TimeLimit) -> Result<Vec<Check>> {
    let model = Model::identify(device.ids())?;
    let regs = intel::take(device, limit)?;
    let tests: [(&'static str, Test<Ixgbe, D, Model>); 9] = [
        (RESET, reset),
        (REQUESTS, requests),
        (REGISTERS, |regs, _| patterns(regs, REGISTERS, &plain_registers(), &address_registers())),
        // Before what takes them, so that one that is kept is named.
        (SEMAPHORES, semaphores),
        (EEPROM, eeprom_sum),
        (PHY, phy_answers),
        (MODULE, module_answers),
        (NEGOTIATION, negotiation),
        (RESET_AGAIN, |regs, model| init::reset(regs, model.mac).map(|_| Check::ok(RESET_AGAIN, "done"))),
    ];
    Ok(selftest::run(&regs, model, &tests, |regs, model| leave(regs, model, phy::QUICK_LAST_LIMIT)))
}

/// Reads all registers of a device that this driver knows, in the order of the datasheet's chapters, and writes none. Those that
/// reading would change have no value.
///
/// # Errors
///
/// [`crate::Error::UnknownDevice`], [`crate::Error::Gone`].
pub fn registers<D: Device>(device: D) -> Result<Vec<RegisterValue>> {
    let mac = Model::identify(device.ids())?.mac;
    let regs: Regs<Ixgbe, D> = Regs::new(Arc::new(device))?;
    let newer = [ERETA.at(0), FLEX_MNG.at(0), HICR, FWSTS].map(Reg::offset);
    // Reading one that is a semaphore takes it.
    let taken = |offset| offset == SWSM.offset() || (offset == SW_FW_SYNC.offset() && mac != MacType::Mac82599);
    let values = regs.dump(|offset| {
        if newer.contains(&offset) && mac != MacType::X550 {
            Listing::Absent
        } else if taken(offset) {
            Listing::NoValue
        } else {
            Listing::Value
        }
    });
    // What was read of a device that went away meanwhile is not its content.
    read(&regs, STATUS)?;
    Ok(values)
}

/// Also measures how long after a reset the device takes no writes: 10 ms are allowed (4.6.3.2).
fn reset<D: Device>(regs: &Timed<D>, model: Model) -> Result<Check> {
    init::reset(regs, model.mac)?;
    // One that is slower than the driver waits would not take the next reset either.
    takes_write(regs, Instant::now())?;
    modify(regs, CTRL, |value| value | ctrl::RST.mask())?;
    let begun = Instant::now();
    sleep(Duration::from_millis(1));
    wait(regs, CTRL, |value| !ctrl::RST.is_set(value), RESET_LIMIT, "the reset to finish (CTRL.RST)")?;
    sleep(DATASHEET_SETTLE.saturating_sub(begun.elapsed()));
    let takes = takes_write(regs, begun)?;
    let (settled, driver) = (begun.elapsed().as_millis(), model.mac.settle().as_millis());
    if !takes {
        return Ok(Check::failed(RESET, format!("{settled} ms after it the device takes no writes (MTA[0])")));
    }
    sleep(model.mac.settle().saturating_sub(begun.elapsed()));
    let seen = format!("takes writes {settled} ms after it; the driver waits {driver}");
    // The time of this thread may be short, so what was slow is asked again by the driver's own wait.
    init::reset(regs, model.mac)?;
    regs.write(MTA.at(0), PATTERNS[1]);
    let in_time = read(regs, MTA.at(0))? == PATTERNS[1];
    Ok(if in_time { Check::ok(RESET, seen) } else { Check::failed(RESET, seen) })
}

/// Waits until the device takes a write, at most until it has had its time since `begun`; false if it does not.
fn takes_write<D: Device>(regs: &Timed<D>, begun: Instant) -> Result<bool> {
    while begun.elapsed() < SETTLE_LIMIT {
        regs.write(MTA.at(0), PATTERNS[0]);
        if read(regs, MTA.at(0))? == PATTERNS[0] {
            return Ok(true);
        }
        regs.sleep(Duration::from_millis(1), "the device to take a write after its reset")?;
    }
    Ok(false)
}

/// 5.2.5.3.2.
fn requests<D: Device>(regs: &Timed<D>, _: Model) -> Result<Check> {
    let ended = init::end_requests(regs)?;
    modify(regs, CTRL, |value| ctrl::GIO_DIS.set(value, 0))?;
    Ok(if ended {
        Check::ok(REQUESTS, "end when forbidden (CTRL.GIO_DIS)")
    } else {
        Check::failed(REQUESTS, "do not end when forbidden (CTRL.GIO_DIS, STATUS.GIO): each reset has to be done twice")
    })
}

/// Registers that keep what is written, and the bits that do: those of the offline
/// test of Linux's driver, without those that tell the device of memory, and VFTA, RSSRK, RETA and FCTTV.
fn plain_registers() -> Vec<(Reg<Ixgbe, ReadWrite>, u32)> {
    let level = fcrtl::RTL.mask() | fcrtl::XONE.mask();
    debug_assert_eq!(level, fcrth::RTH.mask() | fcrth::FCEN.mask(), "one layout");
    let arrays = [
        (FCTTV, u32::MAX),
        (FCRTL, level),
        (FCRTH, level),
        (MTA, u32::MAX),
        (VFTA, u32::MAX),
        (RSSRK, u32::MAX),
        // Four entries of 4 bits; the X550 has two bits more in each.
        (RETA, 0x0F0F_0F0F),
    ];
    arrays.into_iter().flat_map(|(array, bits)| (0..array.count()).map(move |n| (array.at(n), bits))).collect()
}

/// Those in which addresses are.
fn address_registers() -> Vec<(Reg<Ixgbe, ReadWrite>, u32)> {
    let high = rah_fields::ADDRESS.mask() | rah_fields::AV.mask();
    (0..RECEIVE_ADDRESSES).flat_map(|n| [(ral(n), u32::MAX), (rah(n), high)]).collect()
}

fn eeprom_sum<D: Device>(regs: &Timed<D>, model: Model) -> Result<Check> {
    if !eec::PRES.is_set(read(regs, EEC)?) {
        return Ok(Check::failed(EEPROM, "there is none (EEC.EE_PRES)"));
    }
    let (is_right, image) = eeprom::examine(regs, model.mac)?;
    if model.sfp_cage {
        match module::check_settings(regs, model.mac) {
            Err(crate::Error::Eeprom { problem, .. }) => return Ok(Check::failed(EEPROM, problem)),
            outcome => outcome?,
        }
    }
    let image = image.map_or("no image number".to_owned(), |number| format!("image {number:#010x}"));
    Ok(if is_right {
        Check::ok(EEPROM, format!("its checksum is right; {image}"))
    } else {
        Check::failed(EEPROM, format!("its checksum is wrong, so its settings may be; {image}"))
    })
}

/// Takes and gives back each semaphore that the driver uses. What a program that died has left is told, and is no failure: it is given back.
fn semaphores<D: Device>(regs: &Timed<D>, model: Model) -> Result<Check> {
    let phy = module::phy_semaphore(regs)?;
    let resources = [(sw_fw_sync::EEP, "the EEPROM"), (phy, "PHY or module"), (sw_fw_sync::MAC_CSR, "the MAC")];
    let left = semaphore::recover(regs, model.mac)?;
    let mut check = selftest::semaphores(regs, SEMAPHORES, &semaphore::of(model.mac), &resources)?;
    if left != 0 {
        check.seen += &format!("; some were left taken by a program, and given back (SW_FW_SYNC bits {left:#x})");
    }
    Ok(check)
}

fn phy_answers<D: Device>(regs: &Timed<D>, model: Model) -> Result<Check> {
    match (model.media, model.mac) {
        (Media::Copper, MacType::Mac82599) => Ok(Check::not_applicable(PHY, "a chip of its own, which is left alone")),
        (Media::Copper, mac) => {
            let regs = &regs.at_most(PHY_LIMIT);
            let phy = phy::identify(regs, mac)?;
            let slept = if phy.is_asleep { ", was in low power" } else { "" };
            phy::set_power(regs, mac, true)?;
            Ok(if phy::identify(regs, mac)?.is_asleep {
                Check::failed(PHY, format!("{phy}: stays in low power"))
            } else {
                Check::ok(PHY, format!("{phy}{slept}"))
            })
        }
        _ => Ok(Check::not_applicable(PHY, "not a port for twisted pair")),
    }
}

fn module_answers<D: Device>(regs: &Timed<D>, model: Model) -> Result<Check> {
    if !model.sfp_cage {
        let why = if model.media == Media::Fibre { "shares its bus with other functions" } else { "no cage for one" };
        return Ok(Check::not_applicable(MODULE, why));
    }
    Ok(match module::identify(regs, model.mac)? {
        Cage::Empty => Check::not_applicable(MODULE, "none answers: the cage is empty"),
        Cage::Module(module) if module.checksum_is_right => Check::ok(MODULE, module.to_string()),
        Cage::Module(module) => Check::failed(MODULE, module.to_string()),
        Cage::Unreadable(problem) => Check::failed(MODULE, problem),
    })
}

fn negotiation<D: Device>(regs: &Timed<D>, model: Model) -> Result<Check> {
    if model.media == Media::Copper {
        return Ok(Check::not_applicable(NEGOTIATION, "the PHY's business"));
    }
    if mmngc::VETO.is_set(read(regs, MMNGC)?) {
        return Ok(Check::not_applicable(NEGOTIATION, "firmware forbids changes of the link (MMNGC)"));
    }
    Ok(if link::negotiates(regs, model.mac)? {
        Check::ok(NEGOTIATION, "leaves its idle state when restarted")
    } else {
        Check::failed(NEGOTIATION, "stays idle when restarted (ANLP1): the link may not come up")
    })
}

const RESET: &str = "reset";
const REQUESTS: &str = "requests to memory";
const REGISTERS: &str = "registers";
const EEPROM: &str = "EEPROM";
const SEMAPHORES: &str = "semaphores";
const PHY: &str = "PHY";
const MODULE: &str = "module";
const NEGOTIATION: &str = "auto-negotiation";
const RESET_AGAIN: &str = "reset again";

/// As at opening: 4.6.3.2 has the bit clear by itself, in no time that it tells.
const RESET_LIMIT: Duration = Duration::from_millis(100);
/// How long looking for the PHY and waking it up may take, so that there is time for the checks that follow, whoever keeps
/// its semaphore: a choice of our own.
const PHY_LIMIT: Duration = Duration::from_secs(2);
/// 4.6.3.2.
const DATASHEET_SETTLE: Duration = Duration::from_millis(10);
/// How long a device that is slow is waited for: a choice of our own.
const SETTLE_LIMIT: Duration = Duration::from_secs(1);

#[cfg(test)]
#[path = "selftest_tests.rs"]
mod tests;
