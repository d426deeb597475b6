//! Reset, bring-up and shutdown (82576 datasheet 4.2, 4.5, 5.2). The order of one opening is [`reset`], station address,
//! link, statistics, filters, [`receive_path`], [`transmit_path`], rings, [`announce`], [`start_receiving`], and
//! the buffers of the receive rings.

use crate::filter::Modes;
use crate::regs::{
    CTRL, CTRL_EXT, EEC, EEMNGCTL, EIAC, EIAM, EICR, EIMC, GPIE, ICR, IMC, RCTL, RLPML, RXCSUM, Registers, STATUS,
    TCTL, ctrl, ctrl_ext, eec, eemngctl, rctl, rlpml, rxcsum, status, tctl,
};
use crate::wait::{Timed, modify, read, wait};
use crate::{Config, Error, Result, rss};
use device::Device;
use std::time::Duration;

/// Brings the device to its state after power-up: no interrupts, no DMA, station address loaded (4.5).
///
/// # Errors
///
/// [`Error::Timeout`] names the step that did not finish; [`Error::Expired`], [`Error::Gone`].
pub(crate) fn reset<D: Device>(regs: &Timed<D>) -> Result<()> {
    quiet_reset(regs)?;
    // Not all firmware reports that it has read what there is to read: a station address will tell.
    let lan = status::LAN_ID.get(read(regs, STATUS)?);
    may_wait(wait(regs, EEC, |value| eec::ARD.is_set(value), ARD_LIMIT, "the EEPROM to load (EEC.ARD)"))?;
    let done = |value| eemngctl::CFG_DONE.get(value) >> lan & 1 != 0;
    may_wait(wait(regs, EEMNGCTL, done, CONFIG_LIMIT, "the PHY's configuration (EEMNGCTL.CFG_DONE)"))?;
    mask_interrupts(regs)
}

/// What becomes of a wait whose limit may pass.
fn may_wait(outcome: Result<u32>) -> Result<()> {
    match outcome {
        Err(error @ Error::Timeout { .. }) => tracing::debug!("goes on without: {error}"),
        other => drop(other?),
    }
    Ok(())
}

/// Sets up all of receiving that is not part of a queue (4.5), with the receiver off.
pub(crate) fn receive_path<D: Device>(regs: &Registers<D>, config: &Config) -> Result<()> {
    regs.write(RCTL, rctl::LPE.mask() | rctl::BAM.mask() | rctl::SECRC.mask() | rctl::DPF.mask());
    Modes::from(&config.port).write(regs)?;
    set_max_frame(regs, config.max_frame());
    modify(regs, RXCSUM, |value| value | rxcsum::IPOFLD.mask() | rxcsum::TUOFLD.mask() | rxcsum::PCSD.mask())?;
    rss::program(regs, &config.port.rss, config.port.rx_queues);
    Ok(())
}

/// Sets the size of the longest frame that is received, in bytes, with CRC (8.10).
pub(crate) fn set_max_frame<D: Device>(regs: &Registers<D>, bytes: usize) {
    regs.write(RLPML, rlpml::BYTES.set(0, u32::try_from(bytes).unwrap_or(u32::MAX)));
}

/// Sets up all of sending that is not part of a queue, and switches it on (4.5).
pub(crate) fn transmit_path<D: Device>(regs: &Registers<D>) -> Result<()> {
    let padding = tctl::PSP.mask() | tctl::RTLC.mask();
    modify(regs, TCTL, |value| {
        let value = tctl::BST.set(tctl::CT.set(value | padding, COLLISION_THRESHOLD), COLLISION_DISTANCE);
        value | tctl::EN.mask()
    })
}

/// Tells the firmware that a driver is in charge (8.2).
pub(crate) fn announce<D: Device>(regs: &Registers<D>) -> Result<()> {
    modify(regs, CTRL_EXT, |value| value | ctrl_ext::DRV_LOAD.mask())
}

/// Lets frames in, once all receive queues have been told to be enabled; they show that afterwards, and are filled then (4.5.9, 8.10.10).
pub(crate) fn start_receiving<D: Device>(regs: &Registers<D>) -> Result<()> {
    modify(regs, RCTL, |value| value | rctl::RXEN.mask())
}

/// Stops frames from coming in: the first step of a shutdown, before queues are disabled (4.5).
pub(crate) fn stop_receiving<D: Device>(regs: &Registers<D>) -> Result<()> {
    modify(regs, RCTL, |value| rctl::RXEN.set(value, 0))
}

/// The last step of a shutdown, after queues were disabled: no interrupts, no requests to memory, reset.
///
/// # Errors
///
/// [`Error::Timeout`] when the reset does not finish, [`Error::Gone`].
pub(crate) fn stop<D: Device>(regs: &Timed<D>) -> Result<()> {
    modify(regs, CTRL_EXT, |value| ctrl_ext::DRV_LOAD.set(value, 0))?;
    quiet_reset(regs)?;
    mask_interrupts(regs)
}

/// Masks all interrupts and clears their causes (4.5). EICR is not to be read while EIAC has a bit (8.8.5), so those of an earlier driver go first.
fn mask_interrupts<D: Device>(regs: &Registers<D>) -> Result<()> {
    regs.write(EIMC, u32::MAX);
    regs.write(IMC, u32::MAX);
    regs.write(EIAC, 0);
    regs.write(EIAM, 0);
    read(regs, ICR)?;
    read(regs, EICR)?;
    regs.write(GPIE, 0);
    Ok(())
}

/// Masks interrupts, switches both ways off, stops requests to memory, and resets (4.2, 5.2).
fn quiet_reset<D: Device>(regs: &Timed<D>) -> Result<()> {
    mask_interrupts(regs)?;
    regs.write(RCTL, 0);
    regs.write(TCTL, tctl::PSP.mask());
    modify(regs, CTRL, |value| value | ctrl::GIO_DIS.mask())?;
    let quiet = |value| !status::GIO.is_set(value);
    match wait(regs, STATUS, quiet, GIO_LIMIT, "requests to memory to end (STATUS.GIO)") {
        Ok(_) => {}
        Err(Error::Timeout { last, .. }) => {
            let name = regs.device().name();
            tracing::warn!("{name}: requests to memory did not end (STATUS {last:#010x}), resetting nevertheless");
            intel::end_transactions(regs).or_else(|error| requested(regs, error))?;
        }
        Err(error @ Error::Expired { .. }) => return requested(regs, error),
        Err(error) => return Err(error),
    }
    modify(regs, CTRL, |value| value | ctrl::RST.mask())?;
    // A device in reset does not answer for a moment.
    std::thread::sleep(RESET_PAUSE);
    wait(regs, CTRL, |value| !ctrl::RST.is_set(value), RESET_LIMIT, "the reset to finish (CTRL.RST)")?;
    std::thread::sleep(SETTLE);
    if ctrl::GIO_DIS.is_set(read(regs, CTRL)?) {
        modify(regs, CTRL, |value| ctrl::GIO_DIS.set(value, 0))?;
    }
    Ok(())
}

/// There is no time to wait for the reset, but it is requested.
fn requested<D: Device>(regs: &Registers<D>, error: Error) -> Result<()> {
    modify(regs, CTRL, |value| value | ctrl::RST.mask())?;
    Err(error)
}

/// 4.5 wants the EEPROM to have been read (EEC.AUTO_RD, 8.4), in no time that it tells; Intel's drivers wait for 10 ms.
const ARD_LIMIT: Duration = Duration::from_millis(20);
/// 4.5 wants the PHY to have been configured (EEMNGCTL.CFG_DONE, 8.4); Intel's drivers wait for 100 ms.
const CONFIG_LIMIT: Duration = Duration::from_millis(100);
/// 5.2, which says of no time; Intel's drivers wait for 80 ms.
const GIO_LIMIT: Duration = Duration::from_millis(100);
/// 4.2 has the bit clear by itself (CTRL.RST, 8.2), in no time that it tells.
const RESET_LIMIT: Duration = Duration::from_millis(100);
/// 4.2: a device in reset is not looked at for a millisecond.
const RESET_PAUSE: Duration = Duration::from_millis(1);
/// For registers to be loaded from the EEPROM after a reset (4.2); what is not, ARD_LIMIT gives time.
const SETTLE: Duration = Duration::from_millis(10);

/// Retries, at half duplex.
const COLLISION_THRESHOLD: u32 = 15;
/// Byte times, at half duplex.
const COLLISION_DISTANCE: u32 = 64;

/// KiB of the transmit buffer, at most.
pub(crate) const TRANSMIT_BUFFER_KIB: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    #[test]
    fn resets_when_both_ways_are_off_and_memory_is_quiet() {
        let fake = Fake::new(0x10C9);
        fake.set(RCTL, 0xFFFF);
        reset(&fake.regs()).unwrap();
        assert_eq!((fake.get(RCTL), fake.get(TCTL)), (0, 8));
        let written = fake.written(CTRL);
        assert_eq!(written, [4, 0x0400_0004, 0], "GIO_DIS, then RST, then requests to memory again");
    }

    /// With EIAC set, reading EICR is forbidden (8.8.5).
    #[test]
    fn causes_are_read_when_no_vector_clears_them() {
        let fake = Fake::new(0x10C9);
        fake.set(EIAC, 0x1FF);
        fake.on_read(EICR, |storage| {
            assert_eq!(storage.get(&EIAC.offset()).copied(), Some(0), "EICR is read with EIAC set");
            0
        });
        reset(&fake.regs()).unwrap();
        fake.set(EIAC, 3);
        stop(&fake.regs()).unwrap();
        assert_eq!((fake.get(EIAC), fake.get(EIAM)), (0, 0));
    }

    /// Requests under way get their answers before the reset; one that never gets its own holds up nothing.
    #[test]
    fn transactions_on_the_bus_are_waited_for() {
        for (looks, left) in [(7, 0), (1000, 900)] {
            let fake = Fake::new(0x10C9);
            fake.on_read(STATUS, |_| status::GIO.mask());
            fake.set_pending(looks);
            reset(&fake.regs()).unwrap();
            assert_eq!(fake.pending(), left);
        }
        let fake = Fake::new(0x10C9);
        fake.set_pending(5);
        reset(&fake.regs()).unwrap();
        assert_eq!(fake.pending(), 5, "where requests end, nobody looks");
    }

    #[test]
    fn a_reset_is_requested_although_time_is_up() {
        let fake = Fake::new(0x10C9);
        fake.on_read(STATUS, |_| status::GIO.mask());
        let limit = device::TimeLimit { total: Duration::ZERO, cancel: None };
        let outcome = stop(&Timed::new(&fake.regs(), limit.begin()));
        assert!(matches!(outcome, Err(Error::Expired { .. })), "{outcome:?}");
        assert!(fake.written(CTRL).iter().any(|value| ctrl::RST.is_set(*value)));
    }

    #[test]
    fn a_reset_that_does_not_end_is_told() {
        let fake = Fake::new(0x10C9);
        fake.on_read(CTRL, |_| 1 << 26);
        assert!(matches!(reset(&fake.regs()), Err(Error::Timeout { register: "CTRL", .. })));
        fake.vanish();
        assert!(matches!(reset(&fake.regs()), Err(Error::Gone { .. })));
    }
}
