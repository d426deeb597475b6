//! Reset, bring-up and shutdown (82599 datasheet 4.6). Rings are set up between [`receive_path`], [`transmit_path`] and
//! [`start_receiving`]; the order of one opening is
//! [`reset`], [`station_address`], link, statistics, filters, [`receive_path`], [`transmit_path`], rings, [`announce`],
//! [`start_receiving`].

use crate::regs::{
    CTRL, CTRL_EXT, DMATXCTL, DTXMXSZRQ, EEC, EICR, EIMC, EIMC_EX, FCCFG, FCRTH, FCRTL, FCRTV, FCTRL, FCTTV, GCR_EXT,
    HLREG0, MAXFRS, MFLCN, MTQC, RDRXCTL, RFCTL, RTTBCNRC, RTTDCS, RTTDQSEL, RXCSUM, RXCTRL, RXPBSIZE, Registers,
    SECRXCTRL, SECRXSTAT, STATUS, TXPBSIZE, TXPBTHRESH, VLNCTRL, ctrl, ctrl_ext, dmatxctl, dtxmxszrq, eec, eimc, fcrth,
    fctrl, gcr_ext, hlreg0, maxfrs, mflcn, rah, ral, rdrxctl, rfctl, rttdcs, rxcsum, rxctrl, rxpbsize, secrxctrl,
    secrxstat, status, txpbsize, txpbthresh, vlnctrl,
};
use crate::wait::{Timed, modify, read, wait};
use crate::{Config, Error, MacType, Result, firmware, link, rss};
use device::Device;
use std::thread::sleep;
use std::time::Duration;

/// Brings the device to its state after power-up: no interrupts, no DMA, queues disabled, station address loaded
/// (4.6.3, 5.2.5.3.2). A link that is up stays up; returns whether it does.
///
/// # Errors
///
/// [`Error::Timeout`] names the step that did not finish; [`Error::Expired`], [`Error::Gone`].
pub(crate) fn reset<D: Device>(regs: &Timed<D>, mac: MacType) -> Result<bool> {
    mask_interrupts(regs)?;
    let linked = quiet_reset(regs, mac)?;
    mask_interrupts(regs)?;
    wait(regs, EEC, |value| eec::ARD.is_set(value), ARD_LIMIT, "the EEPROM to load (EEC.ARD)")?;
    let done = |value| rdrxctl::DMAIDONE.is_set(value);
    wait(regs, RDRXCTL, done, DMA_LIMIT, "the receive DMA to initialise (RDRXCTL.DMAIDONE)")?;
    Ok(linked)
}

/// Returns the station address, which the EEPROM has loaded into receive address 0 (4.6.3.2).
///
/// # Errors
///
/// [`Error::Eeprom`] when there is none, or it is no station's; [`Error::Gone`].
pub(crate) fn station_address<D: Device>(regs: &Registers<D>) -> Result<[u8; 6]> {
    intel::station_address(regs, ral(0), rah(0))
}

/// Sets up all of receiving that is not part of a queue (4.6.7), with the receiver off. The configuration must be valid for
/// `mac`.
pub(crate) fn receive_path<D: Device>(regs: &Registers<D>, config: &Config, mac: MacType) -> Result<()> {
    modify(regs, RXCTRL, |value| rxctrl::RXEN.set(value, 0))?;
    for class in 0..RXPBSIZE.count() {
        let kib = if class == 0 { mac.receive_buffer_kib() } else { 0 };
        regs.write(RXPBSIZE.at(class), rxpbsize::SIZE.set(0, kib));
    }
    // MAXFRS counts only with JUMBOEN; CRC stripping is set here and in RDRXCTL, and the two must agree.
    modify(regs, HLREG0, |value| value | hlreg0::RXCRCSTRP.mask() | hlreg0::JUMBOEN.mask())?;
    modify(regs, RDRXCTL, |value| {
        let on = rdrxctl::CRCSTRIP.mask() | rdrxctl::RSCACKC.mask() | rdrxctl::FCOE_WRFIX.mask();
        rdrxctl::RSCFRSTSIZE.set(value | on, 0)
    })?;
    modify(regs, FCTRL, |value| {
        let value = fctrl::SBP.set(value, 0) | fctrl::BAM.mask();
        let value = fctrl::UPE.set(value, config.port.promiscuous.into());
        fctrl::MPE.set(value, (config.port.promiscuous || config.port.all_multicast).into())
    })?;
    set_max_frame(regs, config.max_frame())?;
    modify(regs, RXCSUM, |value| value | rxcsum::PCSD.mask())?;
    modify(regs, RFCTL, |value| value | rfctl::RSC_DIS.mask() | rfctl::NFSW_DIS.mask() | rfctl::NFSR_DIS.mask())?;
    rss::program(regs, &config.port.rss, config.port.rx_queues, mac);
    modify(regs, VLNCTRL, |value| {
        let value = vlnctrl::VET.set(value, VLAN_ETHERTYPE);
        value & !(vlnctrl::VFE.mask() | vlnctrl::CFIEN.mask())
    })
}

/// Sets up flow control (3.7.7, 4.6.3.2): no PAUSE frames are sent, and received ones are obeyed if the configuration says so. The level
/// from which one would be asked for is set all the same.
pub(crate) fn flow_control<D: Device>(regs: &Registers<D>, config: &Config, mac: MacType) -> Result<()> {
    modify(regs, MFLCN, |value| {
        let value = value & !(mflcn::PMCF.mask() | mflcn::RPFCE.mask());
        // DPF has an effect together with RFCE only; without, a PAUSE frame is a frame like any other (3.7.7.3.2).
        mflcn::RFCE.set(value | mflcn::DPF.mask(), config.receive_pause.into())
    })?;
    (0..FCTTV.count()).for_each(|pair| regs.write(FCTTV.at(pair), 0));
    for class in 0..FCRTH.count() {
        let bytes = if class == 0 { (mac.receive_buffer_kib() - PAUSE_HEADROOM_KIB) * 1024 } else { 0 };
        regs.write(FCRTL.at(class), 0);
        regs.write(FCRTH.at(class), fcrth::RTH.set(0, bytes / 32));
    }
    regs.write(FCRTV, 0);
    regs.write(FCCFG, 0);
    Ok(())
}

/// Sets the size of the longest frame that is received, in bytes, with CRC (8.2.3.22.13).
pub(crate) fn set_max_frame<D: Device>(regs: &Registers<D>, bytes: usize) -> Result<()> {
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    modify(regs, MAXFRS, |value| maxfrs::MFS.set(value, bytes))
}

/// Sets up all of sending that is not part of a queue (4.6.8): one buffer, one traffic class, no rate limits, DMA on.
pub(crate) fn transmit_path<D: Device>(regs: &Registers<D>) -> Result<()> {
    modify(regs, HLREG0, |value| value | hlreg0::TXCRCEN.mask() | hlreg0::TXPADEN.mask())?;
    for class in 0..TXPBSIZE.count() {
        let kib = if class == 0 { TRANSMIT_BUFFER_KIB } else { 0 };
        regs.write(TXPBSIZE.at(class), txpbsize::SIZE.set(0, kib));
        regs.write(TXPBTHRESH.at(class), txpbthresh::THRESH.set(0, kib.saturating_sub(TRANSMIT_HEADROOM_KIB)));
    }
    modify(regs, RTTDCS, |value| value | rttdcs::ARBDIS.mask())?;
    regs.write(MTQC, 0);
    regs.write(DTXMXSZRQ, dtxmxszrq::MAX.mask());
    for queue in 0..TRANSMIT_QUEUES {
        regs.write(RTTDQSEL, queue);
        regs.write(RTTBCNRC, 0);
    }
    modify(regs, RTTDCS, |value| rttdcs::ARBDIS.set(value, 0))?;
    modify(regs, DMATXCTL, |value| value | dmatxctl::TE.mask())
}

/// Tells the firmware that a driver is in charge, and stops it from snooping (4.6.7, CTRL_EXT in 8.2.3.1).
pub(crate) fn announce<D: Device>(regs: &Registers<D>) -> Result<()> {
    modify(regs, CTRL_EXT, |value| value | ctrl_ext::NS_DIS.mask() | ctrl_ext::DRV_LOAD.mask())
}

/// Lets frames in, once receive queues are enabled and filled: the security block, through which all pass, is
/// drained around the enable (4.6.7). One that does not drain is told in the log and holds up nothing, as in Intel's drivers.
///
/// # Errors
///
/// [`Error::Expired`], [`Error::Gone`].
pub(crate) fn start_receiving<D: Device>(regs: &Timed<D>) -> Result<()> {
    modify(regs, SECRXCTRL, |value| value | secrxctrl::RX_DIS.mask())?;
    let ready = |value| secrxstat::SECRX_RDY.is_set(value);
    let drained = wait(regs, SECRXSTAT, ready, SECRX_LIMIT, "the receive path to drain (SECRXSTAT.SECRX_RDY)");
    let drained = match drained {
        Err(error @ Error::Gone { .. }) => return Err(error),
        Err(error @ Error::Timeout { .. }) => {
            tracing::warn!("{error}; the receiver is turned on nevertheless");
            Ok(())
        }
        other => other.map(drop),
    };
    if drained.is_ok() {
        modify(regs, RXCTRL, |value| value | rxctrl::RXEN.mask())?;
    }
    modify(regs, SECRXCTRL, |value| secrxctrl::RX_DIS.set(value, 0))?;
    drained
}

/// Stops frames from coming in: the first step of a shutdown, before queues are disabled (4.6.7.1.2). An X550's firmware does it (X550
/// datasheet 11.8.3.2), if it is willing.
pub(crate) fn stop_receiving<D: Device>(regs: &Timed<D>, mac: MacType) -> Result<()> {
    if mac == MacType::X550 && rxctrl::RXEN.is_set(read(regs, RXCTRL)?) {
        match firmware::disable_receiver(&regs.at_most(FIRMWARE_LIMIT)) {
            Err(error @ Error::Gone { .. }) => return Err(error),
            Err(error) => tracing::debug!("the receiver is turned off without firmware: {error}"),
            Ok(()) => {}
        }
    }
    modify(regs, RXCTRL, |value| rxctrl::RXEN.set(value, 0))
}

/// The last step of a shutdown, after queues were disabled: no interrupts, no requests to memory, reset. When this
/// returns `Ok` the device makes no more memory accesses.
///
/// # Errors
///
/// [`Error::Timeout`] when the reset does not finish: the device's memory must then stay as it is.
/// [`Error::Gone`].
pub(crate) fn stop<D: Device>(regs: &Timed<D>, mac: MacType) -> Result<()> {
    mask_interrupts(regs)?;
    modify(regs, CTRL_EXT, |value| ctrl_ext::DRV_LOAD.set(value, 0))?;
    quiet_reset(regs, mac)?;
    mask_interrupts(regs)
}

/// Masks all interrupts and clears their causes (4.6.3.1).
fn mask_interrupts<D: Device>(regs: &Registers<D>) -> Result<()> {
    regs.write(EIMC, eimc::ALL.mask());
    for half in 0..EIMC_EX.count() {
        regs.write(EIMC_EX.at(half), u32::MAX);
    }
    read(regs, EICR).map(drop)
}

/// Stops requests to memory, then resets; twice when requests did not end (5.2.5.3.2). Returns whether the link was up, and so
/// stays up.
fn quiet_reset<D: Device>(regs: &Timed<D>, mac: MacType) -> Result<bool> {
    let linked = link::status(regs, mac)?.up;
    // The MAC of a copper card has no link of its own to reset.
    let bits = if linked || mac != MacType::Mac82599 { ctrl::RST.mask() } else { ctrl::RST.mask() | ctrl::LRST.mask() };
    let ended = end_requests(regs).and_then(|ended| if ended { Ok(true) } else { flush_pending(regs).map(|()| false) });
    if matches!(ended, Err(Error::Expired { .. })) {
        // There is no time to wait for the reset, but it is requested.
        modify(regs, CTRL, |value| value | bits)?;
    }
    if ended? {
        software_reset(regs, mac, bits)?;
    } else {
        software_reset(regs, mac, bits)?;
        software_reset(regs, mac, bits)?;
    }
    if ctrl::GIO_DIS.is_set(read(regs, CTRL)?) {
        modify(regs, CTRL, |value| ctrl::GIO_DIS.set(value, 0))?;
    }
    Ok(linked)
}

/// Forbids requests to memory. Returns whether those under way have ended (5.2.5.3.2).
pub(crate) fn end_requests<D: Device>(regs: &Timed<D>) -> Result<bool> {
    modify(regs, CTRL, |value| value | ctrl::GIO_DIS.mask())?;
    let forbidden = |value| ctrl::GIO_DIS.is_set(value);
    let quiet = |value| !status::GIO.is_set(value);
    let ended = wait(regs, CTRL, forbidden, GIO_LIMIT, "requests to memory to be forbidden (CTRL.GIO_DIS)")
        .and_then(|_| wait(regs, STATUS, quiet, GIO_LIMIT, "requests to memory to end (STATUS.GIO)"));
    match ended {
        Ok(_) => Ok(true),
        Err(Error::Timeout { register, last, .. }) => {
            let name = regs.device().name();
            tracing::warn!("{name}: requests to memory did not end ({register} {last:#010x}), resetting twice");
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Gets rid of requests that hold up a reset: with the receiver off and the MAC looped back, so that nothing more is sent, and after the
/// last completions have arrived, the buffers between host and device are cleared (5.2.5.3.2).
///
/// # Errors
///
/// [`Error::Expired`], with the MAC looped back until a reset; [`Error::Gone`].
fn flush_pending<D: Device>(regs: &Timed<D>) -> Result<()> {
    modify(regs, RXCTRL, |value| rxctrl::RXEN.set(value, 0))?;
    let loopback = read(regs, HLREG0)?;
    regs.write(HLREG0, loopback | hlreg0::LPBK.mask());
    read(regs, STATUS)?;
    sleep(LAST_COMPLETION);
    intel::end_transactions(regs)?;
    let pcie = read(regs, GCR_EXT)?;
    regs.write(GCR_EXT, pcie | gcr_ext::BUFFERS_CLEAR.mask());
    read(regs, STATUS)?;
    sleep(BUFFERS_CLEAR_PULSE);
    regs.write(GCR_EXT, gcr_ext::BUFFERS_CLEAR.set(pcie, 0));
    regs.write(HLREG0, loopback);
    Ok(())
}

/// The reset that `bits` of CTRL ask for, and the wait after it (4.6.3.2): LRST resets the link as well, which manageability
/// firmware may have a session on.
fn software_reset<D: Device>(regs: &Timed<D>, mac: MacType, bits: u32) -> Result<()> {
    modify(regs, CTRL, |value| value | bits)?;
    sleep(RESET_PAUSE);
    wait(regs, CTRL, |value| value & bits == 0, RESET_LIMIT, "the reset to finish (CTRL.RST, CTRL.LRST)")?;
    sleep(mac.settle());
    Ok(())
}

/// 4.6.3 wants the EEPROM to have been read and says of no time: 16 Ki words of 20 us take a third of a second.
const ARD_LIMIT: Duration = Duration::from_millis(500);
/// 4.6.3 wants the receive DMA to be ready, in no time that it tells.
const DMA_LIMIT: Duration = Duration::from_millis(100);
/// 5.2.5.3.2; Intel's drivers wait for 80 ms.
const GIO_LIMIT: Duration = Duration::from_millis(100);
/// 4.6.3.2 has the bit clear by itself; Intel's drivers look for 10 us, then wait as long as [`MacType::settle`], and look no more.
const RESET_LIMIT: Duration = Duration::from_millis(100);
/// 4.6.7; Intel's drivers wait as long.
const SECRX_LIMIT: Duration = Duration::from_millis(40);
/// A device in reset does not answer for a moment.
const RESET_PAUSE: Duration = Duration::from_millis(1);
/// 5.2.5.3.2: what Intel's drivers wait for the last completion, and how long they clear the buffers.
const LAST_COMPLETION: Duration = Duration::from_millis(3);
const BUFFERS_CLEAR_PULSE: Duration = Duration::from_micros(20);
/// How long an X550's firmware may take to turn the receiver off (X550 datasheet 11.8.3.2), with the semaphore that goes before:
/// twice what Intel's drivers give to a command. They then turn it off themselves, as is done here.
const FIRMWARE_LIMIT: Duration = Duration::from_secs(1);

const VLAN_ETHERTYPE: u32 = 0x8100;
pub(crate) const TRANSMIT_BUFFER_KIB: u32 = 160;
/// What must stay free in the transmit buffer for one largest packet, KiB.
const TRANSMIT_HEADROOM_KIB: u32 = 10;
/// 4.6.3.2: what the receive buffer holds beyond FCRTH's level.
const PAUSE_HEADROOM_KIB: u32 = 24;
/// Queues with a rate limiter.
const TRANSMIT_QUEUES: u32 = 128;

#[cfg(test)]
#[path = "init_tests.rs"]
mod tests;
