//! The link: what the MAC is told about its medium, and what it reports (82599 datasheet 3.7, 4.6.4, AUTOC and LINKS in
//! 8.2.3.22).

use crate::regs::{
    ANLP1, AUTOC, AUTOC2, ESDP, HLREG0, LINKS, MACC, MMNGC, Registers, STATUS, anlp1, autoc, autoc2, esdp, hlreg0,
    links, macc, mmngc, sw_fw_sync,
};
use crate::semaphore::holding;
use crate::wait::{Timed, modify, read, wait};
use crate::{Cage, Error, MacType, Media, Model, Result, SfpModule, module, phy, regs};
use device::Device;
use ethdev::LinkStatus;
use intel::Semaphores;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The cage of an SFP+ port.
#[derive(Debug)]
pub(crate) struct Socket {
    /// What is in it.
    pub(crate) cage: Cage,
    /// Whether the port is set up for that.
    is_set_up: bool,
    /// What was in it at the last look, if that is something else.
    seen: Option<Cage>,
    /// Whether a module of two rates was in it since the port was opened, so that the pin for the rate (SDP5) is the module's.
    has_rate_pin: bool,
}

/// Tells the MAC what it is connected to and starts the link; does not wait for it. A link that is up (`linked`) and set as it
/// should be stays as it is. Returns the cage of an SFP+ port. Copper is left to the PHY, once that is powered.
///
/// # Errors
///
/// [`Error::Timeout`] when another holder keeps the semaphores, or PHY or auto-negotiation do not answer; [`Error::Phy`],
/// [`Error::Expired`], [`Error::Gone`].
pub(crate) fn set_up<D: Device>(regs: &Timed<D>, model: Model, linked: bool) -> Result<Option<Socket>> {
    if model.media == Media::Copper {
        phy::set_power(regs, model.mac, true)?;
        return Ok(None);
    }
    let cage = if model.sfp_cage { Some(module::identify(regs, model.mac)?) } else { None };
    if model.media == Media::Fibre && cage.is_none() {
        tracing::info!(
            "{}: its module is not read: the bus to it is shared with other functions",
            regs.device().name()
        );
    }
    let has_rate_pin = cage.as_ref().is_some_and(Cage::is_dual_rate);
    let is_set_up = set_up_for(regs, model, cage.as_ref().map(|cage| (cage, has_rate_pin)), linked)?;
    if !is_set_up {
        tell_veto(regs);
    }
    Ok(cage.map(|cage| Socket { cage, is_set_up, seen: None, has_rate_pin }))
}

fn tell_veto<D: Device>(regs: &Timed<D>) {
    tracing::info!("{}: manageability firmware forbids changes of the link (MMNGC)", regs.device().name());
}

/// The same for what is known to be in the cage, and whether the pin for the rate is the module's. Returns whether firmware let it, which
/// may have a session on the link: then the pins that go to the module stay as they are, too.
fn set_up_for<D: Device>(regs: &Timed<D>, model: Model, cage: Option<(&Cage, bool)>, linked: bool) -> Result<bool> {
    let before = (read(regs, AUTOC)?, read(regs, AUTOC2)?);
    let after = wanted(model.media, cage.is_some_and(|(cage, _)| cage.is_gigabit()), before);
    let is_right = linked && after == before;
    if is_vetoed(regs)? {
        return Ok(is_right);
    }
    if let Some((cage, has_rate_pin)) = cage {
        set_pins(regs, cage, has_rate_pin)?;
    }
    if is_right {
        return Ok(true);
    }
    if let Some((Cage::Module(module), _)) = cage {
        set_analog(regs, model.mac, module)?;
    }
    holding(regs, model.mac, sw_fw_sync::MAC_CSR, || {
        regs.write(AUTOC2, after.1);
        if model.media == Media::Cx4 && after.0 == before.0 {
            regs.write(AUTOC, after.0 | autoc::AN_RESTART.mask());
            return Ok(());
        }
        match reset_pipeline(regs, after.0) {
            Err(error @ Error::Timeout { .. }) => {
                tracing::warn!("{error}; the link may not come up");
                Ok(())
            }
            other => other,
        }
    })
    .map(|()| true)
}

/// Looks after an SFP+ port that has no link: sets it up anew if something else is in its cage than before, or as soon as what forbade or
/// prevented that is over, and has a module of two rates try the other. What is in the cage counts once two looks have found the same, so
/// that one which answers differently each time is not followed.
///
/// # Errors
///
/// As [`set_up`].
pub(crate) fn look_after<D: Device>(regs: &Timed<D>, model: Model, socket: &mut Socket) -> Result<()> {
    if status(regs, model.mac)?.up {
        return Ok(());
    }
    let now = module::look(regs, model.mac)?;
    let (is_new, is_confirmed) = (now != socket.cage, socket.seen.take().as_ref() == Some(&now));
    if is_new && !is_confirmed {
        socket.seen = Some(now);
        return Ok(());
    }
    if is_new {
        module::tell(regs, &now);
        let has_rate_pin = socket.has_rate_pin || now.is_dual_rate();
        *socket = Socket { cage: now, is_set_up: false, seen: None, has_rate_pin };
    }
    if !socket.is_set_up {
        socket.is_set_up = set_up_for(regs, model, Some((&socket.cage, socket.has_rate_pin)), false)?;
        if is_new && !socket.is_set_up {
            tell_veto(regs);
        }
        return Ok(());
    }
    if socket.cage.is_dual_rate() { change_rate(regs, model.mac) } else { Ok(()) }
}

/// When an SFP+ port without a link is looked after, and how long that may take.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    /// Until when it is not, and how long that is in all, since the last look failed or had to overrule somebody.
    pause: Option<(Instant, Duration)>,
}

impl Looks {
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.pause.is_none_or(|(until, _)| now >= until)
    }

    pub(crate) fn limit(&self) -> Duration {
        if self.have_failed() { PATIENT_LOOK_LIMIT } else { LOOK_LIMIT }
    }

    pub(crate) fn have_failed(&self) -> bool {
        self.pause.is_some()
    }

    /// Notes a look that ended at `now`, and how long it took if it did not fail.
    pub(crate) fn note(&mut self, now: Instant, took: Option<Duration>) {
        // One that took longer than usual ones may would fail again as a usual one.
        let is_over = took.is_some_and(|took| took < LOOK_LIMIT);
        self.pause = (!is_over).then(|| {
            let pause = self.pause.map_or(LOOK_PAUSE, |(_, pause)| LONGEST_LOOK_PAUSE.min(2 * pause));
            (now + pause, pause)
        });
    }
}

/// Has a module of two rates, and the MAC, try the rate that they are not at.
fn change_rate<D: Device>(regs: &Timed<D>, mac: MacType) -> Result<()> {
    if is_vetoed(regs)? {
        return Ok(());
    }
    let before = (read(regs, AUTOC)?, read(regs, AUTOC2)?);
    let gigabit = autoc::LMS.get(before.0) != LMS_1G;
    holding(regs, mac, sw_fw_sync::MAC_CSR, || {
        // A change that is broken off in its middle would leave the module at another rate than the MAC.
        let regs = &regs.afterwards(RATE_LIMIT);
        modify(regs, ESDP, |value| esdp::SDP5.set(value | esdp::SDP5_DIR.mask(), (!gigabit).into()))?;
        regs.sleep(RATE_SETTLE, "the SFP+ module to change its rate")?;
        tracing::debug!("{}: no link, trying {} Gbit/s", regs.device().name(), if gigabit { 1 } else { 10 });
        reset_pipeline(regs, wanted(Media::Fibre, gigabit, before).0)
    })
}

/// The pins that go to the module: an earlier driver may have turned the laser off, and an earlier module of two rates may have had the
/// other selected. Where there was none, the pin for the rate may be an output for something else.
fn set_pins<D: Device>(regs: &Registers<D>, cage: &Cage, has_rate_pin: bool) -> Result<()> {
    modify(regs, ESDP, |value| {
        let value = esdp::SDP3.set(value, 0);
        if has_rate_pin { esdp::SDP5.set(value | esdp::SDP5_DIR.mask(), (!cage.is_gigabit()).into()) } else { value }
    })
}

/// Turns the laser of the module off, as Intel's drivers do when a port is closed, so that the partner sees that it is; it stays on where
/// manageability firmware uses the link.
pub(crate) fn turn_laser_off<D: Device>(regs: &Registers<D>, model: Model) -> Result<()> {
    if !model.sfp_cage || phy::is_managed(regs)? {
        return Ok(());
    }
    modify(regs, ESDP, |value| value | esdp::SDP3.mask())
}

/// Sets up the analog part, as far as the EEPROM knows how: short cables do without.
fn set_analog<D: Device>(regs: &Timed<D>, mac: MacType, module: &SfpModule) -> Result<()> {
    match module::initialise(regs, mac, module) {
        Err(error @ (Error::Gone { .. } | Error::Expired { .. })) => Err(error),
        Err(error) => {
            tracing::warn!("the settings for the SFP+ module cannot be read: {error}");
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// AUTOC and AUTOC2 for a medium, without a restart.
fn wanted(media: Media, gigabit: bool, (autoc, autoc2): (u32, u32)) -> (u32, u32) {
    let (autoc, autoc2) = (autoc::FLU.set(autoc, 0), autoc2::LINK_DISABLE.set(autoc2, 0));
    match media {
        Media::Fibre => {
            let autoc = if gigabit {
                autoc::PMA_1G.set(autoc::LMS.set(autoc, LMS_1G), 0)
            } else {
                autoc::LMS.set(autoc, LMS_10G_SERIAL)
            };
            (autoc, autoc2::PMA_SERIAL.set(autoc2, SERIAL_SFI))
        }
        Media::Cx4 => (autoc::PMA_10G.set(autoc::LMS.set(autoc, LMS_10G), PARALLEL_CX4), autoc2),
        // Which backplane, and what to advertise on it, is the EEPROM's to know.
        Media::Backplane | Media::Copper => (autoc, autoc2),
    }
}

/// Writes AUTOC and has the whole pipeline take it over: restarted with bit 2 of LMS toggled, and again as wanted once
/// auto-negotiation has left its idle state. A mere restart may leave parts of it in the earlier mode. Where it stays idle the link is
/// restarted all the same, as by Intel's drivers.
///
/// # Errors
///
/// [`Error::Timeout`] where it stays idle; [`Error::Expired`], [`Error::Gone`].
fn reset_pipeline<D: Device>(regs: &Timed<D>, autoc: u32) -> Result<()> {
    let restart = autoc | autoc::AN_RESTART.mask();
    regs.write(AUTOC, autoc::LMS.set(restart, autoc::LMS.get(restart) ^ 4));
    let begun = |value| anlp1::STATE.get(value) != 0;
    let begun = wait(regs, ANLP1, begun, NEGOTIATION_LIMIT, "auto-negotiation to begin (ANLP1)");
    if !matches!(begun, Err(Error::Gone { .. })) {
        regs.write(AUTOC, restart);
    }
    begun.map(drop)
}

/// Has the pipeline restarted in its present mode, by way of another, and returns whether auto-negotiation left its idle state
/// meanwhile.
pub(crate) fn negotiates<D: Device>(regs: &Timed<D>, mac: MacType) -> Result<bool> {
    holding(regs, mac, sw_fw_sync::MAC_CSR, || {
        let autoc = read(regs, AUTOC)?;
        match reset_pipeline(regs, autoc::FLU.set(autoc, 0)) {
            Err(Error::Timeout { .. }) => Ok(false),
            other => other.map(|()| true),
        }
    })
}

/// Whether manageability firmware forbids changes of the link.
pub(crate) fn is_vetoed<D: Device>(regs: &Registers<D>) -> Result<bool> {
    read(regs, MMNGC).map(|value| mmngc::VETO.is_set(value))
}

/// Loops the MAC back, with the link forced up, or ends that. Frames then go from the transmit side to the receive side of the MAC
/// (HLREG0.LPBK) while the receiver is on.
pub(crate) fn set_loopback<D: Device>(regs: &Timed<D>, mac: MacType, on: bool) -> Result<()> {
    let loops = |value| hlreg0::LPBK.set(value, on.into());
    if mac == MacType::Mac82599 {
        modify(regs, HLREG0, loops)?;
        holding(regs, mac, sw_fw_sync::MAC_CSR, || {
            modify(regs, AUTOC, |value| {
                let value = autoc::FLU.set(value, on.into());
                if on { value } else { value | autoc::AN_RESTART.mask() }
            })
        })?;
    } else {
        modify(regs, HLREG0, loops)?;
        modify(regs, MACC, |value| macc::FLU.set(value, on.into()))?;
    }
    read(regs, STATUS)?;
    regs.sleep(LOOPBACK_SETTLE, "the loop inside the MAC")
}

/// Returns the present state of the link.
pub(crate) fn status<D: Device>(regs: &Registers<D>, mac: MacType) -> Result<LinkStatus> {
    // Link-down sticks until it is read: the first read tells of the past.
    read(regs, LINKS)?;
    read(regs, LINKS).map(|value| decode(value, mac))
}

/// Waits for the link to come up, and returns its state when it has, `limit` is over, or the operation is cancelled. With a module of two
/// rates it tries either in turn, a change of which may take longer than `limit`; `since` is when the present one began.
pub(crate) fn wait_link<D: Device>(
    regs: &Timed<D>,
    mac: MacType,
    cage: Option<&Cage>,
    since: &Mutex<Instant>,
    limit: Duration,
) -> Result<LinkStatus> {
    let begun = Instant::now();
    let dual_rate = cage.is_some_and(Cage::is_dual_rate);
    let since = || since.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let left = limit.saturating_sub(begun.elapsed());
        let slice = if dual_rate { left.min(RATE_LIMIT.saturating_sub(since().elapsed())) } else { left };
        let link = wait_at_rate(regs, mac, slice)?;
        if link.up || begun.elapsed() >= limit || regs.check("the link (LINKS.UP)").is_err() {
            return Ok(link);
        }
        if dual_rate && since().elapsed() >= RATE_LIMIT {
            *since() = Instant::now();
            match change_rate(regs, mac) {
                Err(error @ Error::Gone { .. }) => return Err(error),
                Err(error) => tracing::debug!("the other rate cannot be tried: {error}"),
                Ok(()) => {}
            }
        }
    }
}

fn wait_at_rate<D: Device>(regs: &Timed<D>, mac: MacType, limit: Duration) -> Result<LinkStatus> {
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
/// AUTOC.LMS: 1 Gbit/s with auto-negotiation (clause 37).
const LMS_1G: u32 = 2;
/// AUTOC.LMS: 10 Gbit/s serial.
const LMS_10G_SERIAL: u32 = 3;
/// AUTOC.PMA_10G: CX4.
const PARALLEL_CX4: u32 = 2;
/// AUTOC2.PMA_SERIAL: SFI.
const SERIAL_SFI: u32 = 2;
/// How long the link may take at one rate of a module that has two: what Intel's drivers wait, who go by the timer of backplanes (IEEE
/// 802.3 73.10.2, link_fail_inhibit_timer).
pub(crate) const RATE_LIMIT: Duration = Duration::from_millis(500);
/// How long a look at a port without a link may take: somebody may keep a semaphore (10.5.4). A choice of our own, so that a program that
/// asks for the link does not stop for longer.
pub(crate) const LOOK_LIMIT: Duration = Duration::from_millis(500);
/// How long the look after one that failed may take: a holder of a semaphore counts as dead meanwhile (10.5.4).
pub(crate) const PATIENT_LOOK_LIMIT: Duration = LOOK_LIMIT.saturating_add(Semaphores::<regs::Ixgbe>::HOLDER_LIMIT);
/// How long no look follows one that failed: our own choice too.
pub(crate) const LOOK_PAUSE: Duration = Duration::from_secs(5);
/// How long none follows where all of them fail or have to overrule somebody, each of which the log tells.
pub(crate) const LONGEST_LOOK_PAUSE: Duration = Duration::from_secs(60);
/// How long a module takes to change its rate: what Intel's drivers wait after they have set SDP5.
const RATE_SETTLE: Duration = Duration::from_millis(40);
/// How long Linux's driver waits for the loop, 10 to 20 ms.
const LOOPBACK_SETTLE: Duration = Duration::from_millis(10);
/// How long Intel's drivers give auto-negotiation to leave its idle state (AUTOC, ANLP1) after a restart: ten looks, 4 to 8 ms apart.
const NEGOTIATION_LIMIT: Duration = Duration::from_millis(80);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;
    use MacType::{Mac82599, X540, X550};
    use ethdev::Port as _;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

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
    fn the_laser_is_on_while_the_port_is_open_and_firmware_keeps_it() {
        let laser = |prepare: fn(&Fake)| {
            let fake = Fake::new(0x10FB);
            fake.set(ESDP, esdp::SDP3.mask());
            prepare(&fake);
            let pool = mempool::Pool::new(&mempool::PoolConfig::default()).unwrap();
            let opened = crate::open(fake.clone(), &crate::Config::default(), &pool).unwrap();
            let open = esdp::SDP3.is_set(fake.get(ESDP));
            opened.port.close().unwrap();
            [open, esdp::SDP3.is_set(fake.get(ESDP))].map(|is_off| if is_off { "off" } else { "on" })
        };
        assert_eq!(laser(|_| {}), ["on", "off"]);
        assert_eq!(laser(|fake| fake.set(regs::FWSM, 4)), ["on", "on"], "pass-through");
        assert_eq!(laser(|fake| fake.set(MMNGC, mmngc::VETO.mask())), ["off", "off"], "left as it is");
        let fake = Fake::new(0x10F9);
        turn_laser_off(&fake.regs(), Model::identify(device::Device::ids(&fake)).unwrap()).unwrap();
        assert!(fake.writes().is_empty(), "no cage");
    }

    #[test]
    fn sfp_is_serial_10g_with_the_laser_on() {
        let fake = set_up_with(0x10FB, |fake| {
            fake.set(ESDP, 0xFF);
            fake.set(AUTOC, 0xC09C_8004);
            fake.set(AUTOC2, 0x7000_0000);
        });
        assert_eq!(autoc_written(&fake), [0xC09C_F004, 0xC09C_7004], "LMS 7, then 3, AN_RESTART, advertisement kept");
        assert_eq!((fake.get(AUTOC2), fake.get(ESDP)), (0x0002_0000, 0xF7));
    }

    #[test]
    fn cx4_is_parallel_10g() {
        let fake = set_up_with(0x10F9, |fake| fake.set(AUTOC, 0xE001));
        assert_eq!(autoc_written(&fake), [0xB100, 0x3100], "LMS 5, then 1, CX4, AN_RESTART, not forced up");
        let fake = set_up_with(0x10F9, |fake| fake.set(AUTOC, 0x2100));
        assert_eq!(autoc_written(&fake), [0x3100], "no change of mode");
    }

    #[test]
    fn auto_negotiation_that_does_not_begin_ends_in_the_mode_wanted() {
        let fake = Fake::new(0x10FB);
        fake.on_read(ANLP1, |_| 0);
        let model = Model::identify(device::Device::ids(&fake)).unwrap();
        set_up(&fake.regs(), model, false).unwrap();
        assert_eq!(autoc_written(&fake).last(), Some(&0x7000));
        assert_eq!(fake.get(crate::regs::SW_FW_SYNC), 0, "given back");
    }

    /// A change of rate that does not take is an error of the look, so that the log does not tell of each, twice a second.
    #[test]
    fn a_module_of_two_rates_whose_link_does_not_begin_is_tried_more_rarely() {
        let fake = Fake::new(0x10FB);
        let model = Model::identify(device::Device::ids(&fake)).unwrap();
        let (vendor, part) = Default::default();
        let kind = crate::SfpKind::ShortRange;
        let module = SfpModule { kind, dual_rate: true, checksum_is_right: true, vendor, part, cable_metres: None };
        let (regs, cage) = (fake.regs(), Cage::Module(module));
        fake.on_read(ANLP1, |_| 0);
        assert!(matches!(change_rate(&regs, model.mac), Err(Error::Timeout { register: "ANLP1", .. })));
        assert!(set_up_for(&regs, model, Some((&cage, true)), false).unwrap(), "told, and set up all the same");
        assert_eq!(fake.get(crate::regs::SW_FW_SYNC), 0, "given back");
    }

    #[test]
    fn firmware_may_forbid_changes() {
        let fake = set_up_with(0x10FB, |fake| fake.set(MMNGC, 1));
        assert!(autoc_written(&fake).is_empty());
        // Its session may be at the other rate of a module that has two.
        assert!(!fake.writes().iter().any(|write| write.0 == ESDP.offset()));
    }

    #[test]
    fn the_pin_for_the_rate_is_driven_for_whoever_comes_after_a_module_of_two() {
        let [driven, high] = [esdp::SDP5_DIR.mask(), esdp::SDP5.mask()];
        for before in [driven, driven | high, high, 0] {
            let fake = Fake::new(0x10FB);
            fake.set(ESDP, before);
            let model = Model::identify(device::Device::ids(&fake)).unwrap();
            let regs = fake.regs();
            let mut socket = set_up(&regs, model, false).unwrap().unwrap();
            assert_eq!(fake.get(ESDP), before, "there was none: it may be an output for something else");
            // As if one of two rates, that runs at 1 Gbit/s, had been there at earlier looks.
            socket.cage = Cage::Unreadable("by the test".to_owned());
            socket.has_rate_pin = true;
            fake.set(ESDP, driven);
            (0..2).for_each(|_| look_after(&regs, model, &mut socket).unwrap());
            assert_eq!((&socket.cage, fake.get(ESDP)), (&Cage::Empty, driven | high), "10 Gbit/s");
        }
    }

    /// Somebody keeps the semaphore of the module's bus: only a patient look gets through, by force, and the log tells of each.
    #[test]
    fn looks_that_fail_or_overrule_come_ever_more_rarely() {
        let (begun, mut looks) = (Instant::now(), Looks::default());
        let mut at = 0;
        let mut next = |took| {
            let limit = looks.limit();
            looks.note(begun + Duration::from_secs(at), took);
            let pause = (0..).find(|pause| looks.is_due(begun + Duration::from_secs(at + pause))).unwrap();
            at += pause;
            (limit, pause)
        };
        let patient = Some(Duration::from_millis(1200));
        assert_eq!(next(Some(Duration::from_millis(3))), (LOOK_LIMIT, 0));
        assert_eq!(next(None), (LOOK_LIMIT, 5));
        let pauses = [patient, None, patient, patient, patient].map(&mut next);
        assert_eq!(pauses, [10, 20, 40, 60, 60].map(|pause| (PATIENT_LOOK_LIMIT, pause)));
        assert_eq!(next(Some(Duration::from_millis(3))), (PATIENT_LOOK_LIMIT, 0));
        assert_eq!(next(None), (LOOK_LIMIT, 5), "as at first");
    }

    /// As when a port is closed: the partner sees no link while nobody drives the device.
    #[test]
    fn an_opening_that_fails_leaves_the_laser_off() {
        let fake = Fake::new(0x10FB);
        // Once the laser is on, firmware keeps the MAC's registers, and somebody gives up waiting.
        let cancelled = Arc::new(AtomicBool::new(false));
        let (told, is_on) = (Arc::clone(&cancelled), Arc::new(AtomicBool::new(false)));
        let seen = Arc::clone(&is_on);
        fake.on_write(ESDP, move |_, _| is_on.store(true, Ordering::Relaxed));
        fake.on_read(crate::regs::SW_FW_SYNC, move |storage| {
            told.store(seen.load(Ordering::Relaxed), Ordering::Relaxed);
            storage.get(&crate::regs::SW_FW_SYNC.offset()).copied().unwrap_or_default() | 1 << 8
        });
        let mut config = crate::Config::default();
        config.port.time_limit = device::TimeLimit { total: Duration::from_secs(3600), cancel: Some(cancelled) };
        let pool = mempool::Pool::new(&mempool::PoolConfig::default()).unwrap();
        let error = crate::open(fake.clone(), &config, &pool).unwrap_err();
        assert!(matches!(error, Error::Expired { .. }), "{error}");
        let pins = fake.writes().into_iter().filter(|write| write.0 == ESDP.offset());
        let laser: Vec<_> = pins.map(|write| esdp::SDP3.is_set(write.1)).collect();
        assert_eq!(laser, [false, true], "on, then off");
    }

    /// Four functions share one bus to it.
    #[test]
    fn a_qsfp_module_is_not_read() {
        let fake = Fake::new(0x1558);
        let model = Model::identify(device::Device::ids(&fake)).unwrap();
        assert!(set_up(&fake.regs(), model, false).unwrap().is_none());
        let touched = [crate::regs::I2CCTL.offset(), ESDP.offset()];
        assert!(!fake.writes().iter().any(|(offset, _)| touched.contains(offset)));
        assert_eq!(autoc_written(&fake).last(), Some(&0x7000), "10 Gbit/s serial");
    }

    /// What was found in the cage is set up for as soon as firmware lets it, once; what is found only once is not followed.
    #[test]
    fn a_module_that_firmware_kept_from_being_set_up_is_set_up_later() {
        let fake = Fake::new(0x10FB);
        let model = Model::identify(device::Device::ids(&fake)).unwrap();
        let regs = fake.regs();
        let mut socket = set_up(&regs, model, false).unwrap().unwrap();
        assert_eq!((&socket.cage, autoc_written(&fake).len()), (&Cage::Empty, 2));
        let mut looks = |cage: Option<Cage>, count| {
            if let Some(cage) = cage {
                socket.cage = cage;
            }
            (0..count).for_each(|_| look_after(&regs, model, &mut socket).unwrap());
            (socket.cage == Cage::Empty, autoc_written(&fake).len())
        };
        let other = || Some(Cage::Unreadable("by the test".to_owned()));
        assert_eq!(looks(None, 3), (true, 2), "nothing new");
        assert_eq!(looks(other(), 1), (false, 2), "once");
        assert_eq!(looks(None, 1), (true, 4), "twice");
        fake.set(MMNGC, 1);
        assert_eq!(looks(other(), 4), (true, 4));
        fake.set(MMNGC, 0);
        assert_eq!(looks(None, 3), (true, 6));
        // As when the port is opened.
        fake.set(MMNGC, 1);
        let mut socket = set_up(&regs, model, false).unwrap().unwrap();
        fake.set(MMNGC, 0);
        look_after(&regs, model, &mut socket).unwrap();
        assert_eq!(autoc_written(&fake).len(), 8);
    }

    #[test]
    fn a_backplane_is_as_the_eeprom_says() {
        for loaded in [0x8000_8000, 0xC001_C000, 0x2000] {
            let fake = set_up_with(0x1517, |fake| fake.set(AUTOC, loaded));
            assert_eq!(autoc_written(&fake), [(loaded | 0x1000) ^ 0x8000, loaded | 0x1000]);
        }
    }

    #[test]
    fn a_link_that_is_up_and_right_is_left_alone() {
        for (autoc, autoc2, written) in
            [(0xC09C_6004, 0x2_0000, 0), (0xC09C_6005, 0x2_0000, 2), (0xC09C_2004, 0x2_0000, 2), (0xC09C_6004, 0, 2)]
        {
            let fake = Fake::new(0x10FB);
            fake.set(AUTOC, autoc);
            fake.set(AUTOC2, autoc2);
            set_up(&fake.regs(), Model::identify(device::Device::ids(&fake)).unwrap(), true).unwrap();
            assert_eq!(autoc_written(&fake).len(), written, "{autoc:#x} {autoc2:#x}");
            assert_eq!(fake.get(AUTOC), 0xC09C_6004);
        }
    }

    #[test]
    fn copper_is_left_to_its_phy() {
        for device in [0x1528, 0x1563, 0x151C] {
            let fake = set_up_with(device, |_| {});
            let links = [AUTOC.offset(), AUTOC2.offset(), ESDP.offset()];
            assert!(!fake.writes().iter().any(|(offset, _)| links.contains(offset)));
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
        let down =
            wait_link(&fake.regs(), Mac82599, None, &Mutex::new(Instant::now()), Duration::from_millis(2)).unwrap();
        assert_eq!(down, LinkStatus { up: false, speed_mbps: 0 });
        let mut reads = 0;
        fake.on_read(LINKS, move |_| {
            reads += 1;
            if reads > 70 { 0x7000_0080 } else { 0 }
        });
        assert!(
            wait_link(&fake.regs(), Mac82599, None, &Mutex::new(Instant::now()), Duration::from_secs(60)).unwrap().up
        );
    }
}
