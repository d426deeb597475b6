//! The link: what the MAC is told about its medium, and what it reports (82599 datasheet 3.7, 4.6.4, AUTOC and LINKS in
//! 8.2.3.22).

use crate::regs::{AUTOC, AUTOC2, ESDP, LINKS, Registers, autoc, autoc2, esdp, links, sw_fw_sync};
use crate::semaphore::holding;
use crate::wait::{Timed, modify, read, wait};
use crate::{Error, MacType, Media, Model, Result};
use device::Device;
use ethdev::LinkStatus;
use std::time::Duration;

/// Tells the MAC what it is connected to and starts the link; does not wait for it. A link that is up (`linked`) and set as it
/// should be stays as it is. Copper is left to the PHY.
///
/// # Errors
///
/// [`Error::Timeout`] when another holder keeps the semaphores, [`Error::Gone`].
pub(crate) fn set_up<D: Device>(regs: &Timed<D>, model: Model, linked: bool) -> Result<()> {
    if model.media == Media::Copper {
        return Ok(());
    }
    if model.media == Media::Fibre {
        // Drivers that stop may leave the laser off.
        modify(regs, ESDP, |value| esdp::SDP3.set(value, 0))?;
    }
    holding(regs, model.mac, sw_fw_sync::MAC_CSR, || {
        let before = (read(regs, AUTOC)?, read(regs, AUTOC2)?);
        let (autoc, autoc2) = wanted(model.media, before);
        if linked && (autoc, autoc2) == before {
            return Ok(());
        }
        regs.write(AUTOC2, autoc2);
        regs.write(AUTOC, autoc | autoc::AN_RESTART.mask());
        Ok(())
    })
}

/// AUTOC and AUTOC2 for a medium, without a restart.
fn wanted(media: Media, (autoc, autoc2): (u32, u32)) -> (u32, u32) {
    let (autoc, autoc2) = (autoc::FLU.set(autoc, 0), autoc2::LINK_DISABLE.set(autoc2, 0));
    match media {
        Media::Fibre => (autoc::LMS.set(autoc, LMS_10G_SERIAL), autoc2::PMA_SERIAL.set(autoc2, SERIAL_SFI)),
        Media::Cx4 => (autoc::PMA_10G.set(autoc::LMS.set(autoc, LMS_10G), PARALLEL_CX4), autoc2),
        // Which backplane, and what to advertise on it, is the EEPROM's to know.
        Media::Backplane | Media::Copper => (autoc, autoc2),
    }
}

/// Returns the present state of the link.
pub(crate) fn status<D: Device>(regs: &Registers<D>, mac: MacType) -> Result<LinkStatus> {
    // Link-down sticks until it is read: the first read tells of the past.
    read(regs, LINKS)?;
    read(regs, LINKS).map(|value| decode(value, mac))
}

/// Waits for the link to come up, and returns its state when it has, `limit` is over, or the operation is cancelled.
pub(crate) fn wait_link<D: Device>(regs: &Timed<D>, mac: MacType, limit: Duration) -> Result<LinkStatus> {
    match wait(regs, LINKS, |value| links::UP.is_set(value), limit, "the link (LINKS.UP)") {
        Ok(value) => Ok(decode(value, mac)),
        Err(Error::Timeout { last, .. }) => Ok(decode(last, mac)),
        Err(Error::Expired { .. }) => status(regs, mac),
        Err(error) => Err(error),
    }
}

fn decode(value: u32, mac: MacType) -> LinkStatus {
    if !links::UP.is_set(value) {
        return LinkStatus::default();
    }
    // The X550 marks 2.5 and 5 Gbit/s by a bit of their own.
    let in_between = mac == MacType::X550 && links::SPEED_NON_STD.is_set(value);
    let speed_mbps = match (links::SPEED.get(value), in_between) {
        (3, false) => 10_000,
        (3, true) => 2_500,
        (2, _) => 1_000,
        (1, false) => 100,
        (1, true) => 5_000,
        _ => 10,
    };
    LinkStatus { up: true, speed_mbps }
}

/// AUTOC.LMS: 10 Gbit/s parallel, no auto-negotiation.
const LMS_10G: u32 = 1;
/// AUTOC.LMS: 10 Gbit/s serial.
const LMS_10G_SERIAL: u32 = 3;
/// AUTOC.PMA_10G: CX4.
const PARALLEL_CX4: u32 = 2;
/// AUTOC2.PMA_SERIAL: SFI.
const SERIAL_SFI: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;
    use MacType::{Mac82599, X540, X550};

    fn set_up_with(device: u16, prepare: impl FnOnce(&Fake)) -> Fake {
        let fake = Fake::new(device);
        prepare(&fake);
        set_up(&fake.regs(), Model::identify(device::Device::ids(&fake)).unwrap(), false).unwrap();
        fake
    }

    fn autoc_written(fake: &Fake) -> Vec<u32> {
        fake.writes().iter().filter(|write| write.0 == AUTOC.offset()).map(|write| write.1).collect()
    }

    #[test]
    fn sfp_is_serial_10g_with_the_laser_on() {
        let fake = set_up_with(0x10FB, |fake| {
            fake.set(ESDP, 0xFF);
            fake.set(AUTOC, 0xC09C_8004);
            fake.set(AUTOC2, 0x7000_0000);
        });
        assert_eq!(autoc_written(&fake), [0xC09C_7004], "LMS 3, AN_RESTART, advertisement kept");
        assert_eq!((fake.get(AUTOC2), fake.get(ESDP)), (0x0002_0000, 0xF7));
    }

    #[test]
    fn cx4_is_parallel_10g() {
        let fake = set_up_with(0x10F9, |fake| fake.set(AUTOC, 0xE001));
        assert_eq!(autoc_written(&fake), [0x3100], "LMS 1, CX4, AN_RESTART, not forced up");
    }

    #[test]
    fn a_backplane_is_as_the_eeprom_says() {
        for loaded in [0x8000_8000, 0xC001_C000, 0x2000] {
            let fake = set_up_with(0x1517, |fake| fake.set(AUTOC, loaded));
            assert_eq!(autoc_written(&fake), [loaded | 0x1000]);
        }
    }

    #[test]
    fn a_link_that_is_up_and_right_is_left_alone() {
        for (autoc, autoc2, written) in
            [(0xC09C_6004, 0x2_0000, 0), (0xC09C_6005, 0x2_0000, 1), (0xC09C_2004, 0x2_0000, 1), (0xC09C_6004, 0, 1)]
        {
            let fake = Fake::new(0x10FB);
            fake.set(AUTOC, autoc);
            fake.set(AUTOC2, autoc2);
            set_up(&fake.regs(), Model::identify(device::Device::ids(&fake)).unwrap(), true).unwrap();
            assert_eq!(autoc_written(&fake), vec![0xC09C_7004; written], "{autoc:#x} {autoc2:#x}");
        }
    }

    #[test]
    fn copper_is_left_to_its_phy() {
        for device in [0x1528, 0x1563, 0x151C] {
            assert!(set_up_with(device, |_| {}).writes().is_empty());
        }
    }

    #[test]
    fn the_mac_is_changed_under_its_semaphore() {
        let fake = set_up_with(0x10FB, |fake| {
            fake.on_write(AUTOC, |storage, _| assert_eq!(storage.get(&0x10160), Some(&8), "MAC_CSR held"));
        });
        assert_eq!(fake.get(crate::regs::SW_FW_SYNC), 0);
    }

    #[test]
    fn speeds() {
        let status_of = |mac, value| {
            let fake = Fake::new(0x10FB);
            fake.set(LINKS, value);
            status(&fake.regs(), mac).unwrap().speed_mbps
        };
        let speeds = [0x7000_0080, 0x6000_0000, 0x5000_0000, 0x3000_0000].map(|value| status_of(Mac82599, value));
        assert_eq!(speeds, [10_000, 1_000, 100, 0]);
        assert_eq!([0x7800_0000, 0x5800_0000].map(|value| status_of(X550, value)), [2_500, 5_000]);
        assert_eq!(status_of(X540, 0x7800_0000), 10_000);
    }

    #[test]
    fn link_down_sticks_for_one_read() {
        let fake = Fake::new(0x10FB);
        let mut down = true;
        fake.on_read(LINKS, move |_| if std::mem::take(&mut down) { 0 } else { 0x7000_0080 });
        assert_eq!(status(&fake.regs(), Mac82599).unwrap(), LinkStatus { up: true, speed_mbps: 10_000 });
    }

    #[test]
    fn waiting_ends_with_the_link_or_the_limit() {
        let fake = Fake::new(0x10FB);
        let down = wait_link(&fake.regs(), Mac82599, Duration::from_millis(2)).unwrap();
        assert_eq!(down, LinkStatus { up: false, speed_mbps: 0 });
        let mut reads = 0;
        fake.on_read(LINKS, move |_| {
            reads += 1;
            if reads > 70 { 0x7000_0080 } else { 0 }
        });
        assert!(wait_link(&fake.regs(), Mac82599, Duration::from_secs(60)).unwrap().up);
    }
}
