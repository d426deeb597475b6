//! The link: the internal PHY and what the MAC reports of it (82576 datasheet 3.5, 8.2; PHY registers IEEE 802.3
//! clause 22).

use crate::regs::{
    CTRL, CTRL_EXT, Igb, MANC, MDIC, Registers, STATUS, SW_FW_SYNC, SWSM, ctrl, ctrl_ext, manc, mdic, status,
    sw_fw_sync,
};
use crate::wait::{Timed, modify, read, wait};
use crate::{Error, MacType, Result};
use device::{Bits, Device};
use ethdev::LinkStatus;
use intel::Semaphores;
use std::time::Duration;

/// Powers the PHY up and has it negotiate anew; does not wait for the link. A link that is up and that manageability firmware needs stays as
/// it is, as by Linux's driver.
///
/// # Errors
///
/// [`Error::Timeout`] when another holder keeps the semaphores or the PHY is silent, [`Error::Phy`], [`Error::Gone`].
pub(crate) fn set_up<D: Device>(regs: &Timed<D>, mac: MacType) -> Result<()> {
    // Speed and duplex are the PHY's to tell. PAUSE frames are obeyed, and so end in the device: it would deliver them to a promiscuous
    // port otherwise. None is sent.
    let off = ctrl::FRCSPD.mask() | ctrl::FRCDPLX.mask() | ctrl::TFCE.mask() | ctrl::VME.mask();
    modify(regs, CTRL, |value| (value & !off) | ctrl::SLU.mask() | ctrl::FD.mask() | ctrl::RFCE.mask())?;
    if ctrl_ext::LINK_MODE.get(read(regs, CTRL_EXT)?) != INTERNAL_PHY {
        let name = regs.device().name();
        tracing::warn!("{name}: not connected by its internal PHY (CTRL_EXT.LINK_MODE); its link is left as it is");
        return Ok(());
    }
    if is_managed(regs)? && status::LU.is_set(read(regs, STATUS)?) {
        let name = regs.device().name();
        tracing::info!("{name}: manageability firmware uses the link (MANC.KEEP_PHY_LINK_UP), which is left as it is");
        return Ok(());
    }
    SEMAPHORES.holding(regs, semaphore(regs)?, || {
        let control = transfer(regs, mac, mdic::OP.set(0, READ), BMCR)?;
        let control = (control & !(BMCR_LOOPBACK | BMCR_POWER_DOWN | BMCR_ISOLATE)) | BMCR_AUTO | BMCR_RESTART;
        transfer(regs, mac, mdic::DATA.set(mdic::OP.set(0, WRITE), control), BMCR).map(drop)
    })
}

/// Whether frames can be looped back: the port is connected by its internal PHY, and no firmware has a session there; false for a device
/// that is gone.
pub(crate) fn can_loop<D: Device>(regs: &Registers<D>) -> bool {
    let is_internal = read(regs, CTRL_EXT).is_ok_and(|value| ctrl_ext::LINK_MODE.get(value) == INTERNAL_PHY);
    is_internal && is_managed(regs).is_ok_and(|managed| !managed)
}

/// Whether manageability firmware wants the link to stay as it is.
fn is_managed<D: Device>(regs: &Registers<D>) -> Result<bool> {
    read(regs, MANC).map(|value| manc::KEEP_PHY_LINK_UP.is_set(value))
}

/// Returns the identity of the internal PHY, registers 2 and 3; `None` if the port is not connected by it.
pub(crate) fn identity<D: Device>(regs: &Timed<D>, mac: MacType) -> Result<Option<u32>> {
    if ctrl_ext::LINK_MODE.get(read(regs, CTRL_EXT)?) != INTERNAL_PHY {
        return Ok(None);
    }
    SEMAPHORES.holding(regs, semaphore(regs)?, || {
        let [high, low] = [ID_1, ID_2].map(|register| transfer(regs, mac, mdic::OP.set(0, READ), register));
        Ok(Some(high? << 16 | low?))
    })
}

/// Returns what is done with PAUSE frames, as the MAC is set (CTRL.RFCE, CTRL.TFCE), and what both ends have told each other that they
/// can do (registers 4 and 5 of the PHY).
pub(crate) fn pause<D: Device>(regs: &Timed<D>, mac: MacType) -> Result<String> {
    let control = read(regs, CTRL)?;
    let received = if ctrl::RFCE.is_set(control) { "obeyed" } else { "not obeyed" };
    let sent = if ctrl::TFCE.is_set(control) { "sent" } else { "not sent" };
    let told = if ctrl_ext::LINK_MODE.get(read(regs, CTRL_EXT)?) == INTERNAL_PHY {
        let [status, own, partner] = SEMAPHORES.holding(regs, semaphore(regs)?, || {
            let get = |register| transfer(regs, mac, mdic::OP.set(0, READ), register);
            Ok([get(BMSR)?, get(ANAR)?, get(ANLPAR)?])
        })?;
        let partner = if status & BMSR_NEGOTIATED != 0 { abilities(partner) } else { "not heard" };
        format!("advertised: {}; the partner's: {partner}", abilities(own))
    } else {
        "what the partner can do is not known".to_owned()
    };
    Ok(format!("{received}, {sent}; {told}"))
}

/// PAUSE and ASM_DIR of an advertisement (IEEE 802.3, table 28B-2).
fn abilities(advertisement: u32) -> &'static str {
    match (advertisement & ADVERTISED_PAUSE != 0, advertisement & ADVERTISED_ASYMMETRIC != 0) {
        (false, false) => "none",
        (true, false) => "both ways",
        (false, true) => "sending",
        (true, true) => "both ways, or receiving",
    }
}

/// Loops the PHY back at 1 Gbit/s, with the MAC told so, or has it negotiate anew. Returns false if it is to loop and [`can_loop`] is false.
pub(crate) fn set_loopback<D: Device>(regs: &Timed<D>, mac: MacType, on: bool) -> Result<bool> {
    if on && !can_loop(regs) {
        return Ok(false);
    }
    let semaphore = semaphore(regs)?;
    let write = |register, value| transfer(regs, mac, mdic::DATA.set(mdic::OP.set(0, WRITE), value), register);
    if !on {
        SEMAPHORES.holding(regs, semaphore, || write(BMCR, BMCR_RESET | BMCR_AUTO | BMCR_RESTART).map(drop))?;
        regs.sleep(RESET_SETTLE, "the PHY's reset")?;
        return set_up(regs, mac).map(|()| true);
    }
    SEMAPHORES.holding(regs, semaphore, || {
        if mac == MacType::I350 {
            write(LOOPBACK_CONTROL, LOOPBACK_MII)?;
        }
        write(BMCR, BMCR_LOOPBACK | BMCR_1000 | BMCR_FULL_DUPLEX).map(drop)
    })?;
    let forced = ctrl::FRCSPD.mask() | ctrl::FRCDPLX.mask() | ctrl::FD.mask() | ctrl::SLU.mask();
    modify(regs, CTRL, |value| ctrl::SPEED.set(value | forced, SPEED_1000))?;
    regs.sleep(LOOPBACK_SETTLE, "the loop in the PHY")?;
    Ok(true)
}

/// Reads or writes `register` of the PHY, and returns its value.
fn transfer<D: Device>(regs: &Timed<D>, mac: MacType, operation: u32, register: u32) -> Result<u32> {
    // Each port of an 82576 has its own PHY at this address; the I350 knows it from the EEPROM (MDICNFG).
    let address = if mac == MacType::Mac82576 { 1 } else { 0 };
    regs.write(MDIC, mdic::PHYADD.set(mdic::REGADD.set(operation, register), address));
    let done = |value| mdic::READY.is_set(value);
    let value = wait(regs, MDIC, done, MDIC_LIMIT, "the PHY (MDIC.READY)")?;
    if mdic::ERROR.is_set(value) {
        let problem = format!("it did not answer for its register {register} (MDIC.ERROR); open the device again");
        return Err(Error::Phy { device: regs.device().name().to_owned(), problem });
    }
    Ok(mdic::DATA.get(value))
}

/// Returns the present state of the link.
pub(crate) fn status<D: Device>(regs: &Registers<D>) -> Result<LinkStatus> {
    read(regs, STATUS).map(decode)
}

/// Waits for the link to come up, and returns its state when it has, `limit` is over, or the operation is cancelled.
pub(crate) fn wait_link<D: Device>(regs: &Timed<D>, limit: Duration) -> Result<LinkStatus> {
    match wait(regs, STATUS, |value| status::LU.is_set(value), limit, "the link (STATUS.LU)") {
        Ok(value) => Ok(decode(value)),
        Err(Error::Timeout { .. } | Error::Expired { .. }) => status(regs),
        Err(error) => Err(error),
    }
}

fn decode(value: u32) -> LinkStatus {
    if !status::LU.is_set(value) {
        return LinkStatus::default();
    }
    let speed_mbps = match status::SPEED.get(value) {
        0 => 10,
        1 => 100,
        _ => 1000,
    };
    LinkStatus { up: true, speed_mbps }
}

/// CTRL_EXT.LINK_MODE.
const INTERNAL_PHY: u32 = 0;
/// They guard PHY and EEPROM against firmware and the other ports (8.7).
pub(crate) const SEMAPHORES: Semaphores<Igb> = Semaphores {
    swsm: SWSM,
    sw_fw_sync: SW_FW_SYNC,
    others: |software| software << 16,
    regsmp: None,
    holder_limit: Semaphores::<Igb>::HOLDER_LIMIT,
};
/// Returns the semaphore of this port's PHY.
pub(crate) fn semaphore<D: Device>(regs: &Registers<D>) -> Result<Bits> {
    Ok(PHYS[status::LAN_ID.get(read(regs, STATUS)?) as usize])
}

/// The semaphore of each port's PHY.
const PHYS: [Bits; 4] = [sw_fw_sync::PHY0, sw_fw_sync::PHY1, sw_fw_sync::PHY2, sw_fw_sync::PHY3];
/// MDIC.OP.
const WRITE: u32 = 1;
/// MDIC.OP.
const READ: u32 = 2;
/// MDIC (8.2) takes some 64 us a transfer.
const MDIC_LIMIT: Duration = Duration::from_millis(10);

/// Number of the PHY's control register, and bits in it.
const BMCR: u32 = 0;
/// Bits of the speed, of which this alone is 1000 Mbit/s.
const BMCR_1000: u32 = 1 << 6;
const BMCR_FULL_DUPLEX: u32 = 1 << 8;
const BMCR_RESTART: u32 = 1 << 9;
const BMCR_ISOLATE: u32 = 1 << 10;
const BMCR_POWER_DOWN: u32 = 1 << 11;
const BMCR_AUTO: u32 = 1 << 12;
const BMCR_LOOPBACK: u32 = 1 << 14;
const BMCR_RESET: u32 = 1 << 15;
/// Its status, and that negotiation is over.
const BMSR: u32 = 1;
const BMSR_NEGOTIATED: u32 = 1 << 5;
/// What it advertises, and what the partner does.
const ANAR: u32 = 4;
const ANLPAR: u32 = 5;
const ADVERTISED_PAUSE: u32 = 1 << 10;
const ADVERTISED_ASYMMETRIC: u32 = 1 << 11;
/// Its identity.
const ID_1: u32 = 2;
const ID_2: u32 = 3;
/// The I350's loopback control, and the loop at its MII side.
const LOOPBACK_CONTROL: u32 = 19;
const LOOPBACK_MII: u32 = 0x8041;
/// CTRL.SPEED.
const SPEED_1000: u32 = 2;
/// How long Linux's driver waits for the loop.
const LOOPBACK_SETTLE: Duration = Duration::from_millis(500);
/// IEEE 802.3, 22.2.4.1.1, grants a PHY half a second for its reset; Intel's drivers wait for a microsecond.
const RESET_SETTLE: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;
    use crate::regs::SW_FW_SYNC;

    #[test]
    fn the_phy_negotiates_anew_under_its_semaphore() {
        for (device, mac, lan, semaphore, address) in
            [(0x10C9, MacType::Mac82576, 1, 1 << 2, 1 << 21), (0x1521, MacType::I350, 3, 1 << 6, 0)]
        {
            let fake = Fake::new(device);
            fake.set(STATUS, lan << 2);
            // Powered down and isolated.
            fake.on_mdic(move |storage, value| {
                assert_eq!(storage.get(&SW_FW_SYNC.offset()), Some(&semaphore), "held");
                assert_eq!(value & 0x03FF_0000, address, "register 0 of the PHY");
                value & !0xFFFF | 1 << 28 | 0x0C00
            });
            set_up(&fake.regs(), mac).unwrap();
            let written: Vec<u32> = fake.written(MDIC);
            assert_eq!(written, [0x0800_0000 | address, 0x0400_1200 | address], "read, then up and AUTO, RESTART");
            assert_eq!((fake.get(SW_FW_SYNC), fake.get(crate::regs::SWSM)), (0, 0), "given back");
        }
    }

    /// As the session of a board's management would end with it.
    #[test]
    fn a_link_that_firmware_uses_is_left_alone() {
        let transfers = |link_up, managed| {
            let fake = Fake::new(0x1521);
            fake.set(STATUS, u32::from(link_up) << 1);
            fake.set(MANC, u32::from(managed) << 18);
            fake.on_mdic(|_, value| value & !0xFFFF | 1 << 28);
            set_up(&fake.regs(), MacType::I350).unwrap();
            let looped = can_loop(&fake.regs()) && set_loopback(&fake.regs(), MacType::I350, true).unwrap();
            (fake.written(MDIC).len(), looped)
        };
        assert_eq!([transfers(true, true), transfers(false, true)], [(0, false), (2, false)]);
        assert_eq!([transfers(true, false), transfers(false, false)], [(4, true), (4, true)]);
    }

    #[test]
    fn a_phy_that_does_not_answer_is_named() {
        let fake = Fake::new(0x10C9);
        fake.on_mdic(|_, value| value | 1 << 28 | 1 << 30);
        let error = set_up(&fake.regs(), MacType::Mac82576).unwrap_err();
        assert!(matches!(&error, Error::Phy { .. }) && error.to_string().contains("register 0"), "{error}");
        assert_eq!(fake.get(SW_FW_SYNC), 0, "given back");
    }

    #[test]
    fn pause_is_what_is_set_and_what_both_ends_told() {
        let told = |control: u32, link_mode: u32, status: u32, partner: u32| {
            let fake = Fake::new(0x10C9);
            fake.set(CTRL, control);
            fake.set(CTRL_EXT, link_mode << 22);
            fake.on_mdic(move |_, value| {
                let data = match value >> 16 & 0x1F {
                    1 => status,
                    4 => 0x0DE1,
                    5 => partner,
                    register => panic!("register {register}"),
                };
                value & !0xFFFF | 1 << 28 | data
            });
            pause(&fake.regs(), MacType::Mac82576).unwrap()
        };
        let obeyed = 1 << 27;
        assert_eq!(
            told(obeyed, 0, 0x20, 0x05E1),
            "obeyed, not sent; advertised: both ways, or receiving; the partner's: both ways"
        );
        assert!(told(obeyed | 1 << 28, 0, 0x20, 0x0800).starts_with("obeyed, sent; "));
        assert!(told(0, 0, 0x20, 0x0800).ends_with("the partner's: sending"));
        assert!(told(0, 0, 0x20, 0).ends_with("the partner's: none"));
        assert!(told(0, 0, 0, 0x0C00).ends_with("the partner's: not heard"), "from an earlier negotiation");
        assert_eq!(told(0, 3, 0x20, 0), "not obeyed, not sent; what the partner can do is not known");
    }

    #[test]
    fn speeds() {
        let speed = |value| decode(value).speed_mbps;
        assert_eq!([0x02, 0x42, 0x82, 0xC2, 0xC0].map(speed), [10, 100, 1000, 1000, 0]);
    }
}
