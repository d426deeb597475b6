//! A port: opening a device, and what controlling and closing it means for this family.

use crate::regs::{Ixgbe, Registers};
use crate::stats::Counters;
use crate::wait::Timed;
use crate::{
    Cage, Config, Error, Filters, HardwareStatistics, Model, Result, eeprom, init, interrupts, link, parts, phy, rss,
    semaphore,
};
use device::{Deadline, Device};
use ethdev::{
    Capabilities, Events, HashTypes, LinkStatus, MacAddress, PortConfig, Rss, RssCapabilities, RxErrors, Statistics,
    Unsupported,
};
use intel::Shared;
use mempool::Pool;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The port of an open device: link, filters, statistics and closing. What it has beyond an [`ethdev::Port`] is in [`Card`].
///
/// Dropping it closes it; errors are then logged.
pub type Port<D> = intel::Port<Card<D>>;

/// An open device of this family.
pub type Opened<D> = ethdev::Opened<Port<D>>;

/// Opens a device of this family: resets it, sets up the link, and starts its queues with buffers from `pool`. The link
/// may take seconds to come up; see [`ethdev::Port::wait_link`].
///
/// The device is passed by value, so that nothing else can drive it.
///
/// # Errors
///
/// If the driver does not support the device, a setting is out of range, the device does not respond in time, or the
/// pool has fewer slots than the receive rings have descriptors. [`Error::Expired`] if the whole call takes longer than
/// [`PortConfig::time_limit`], or is cancelled; stopping the device then has a time limit of its own.
pub fn open<D: Device>(device: D, config: &Config, pool: &Pool) -> Result<Opened<D>> {
    let model = Model::identify(device.ids())?;
    config.validate(model.mac)?;
    let regs = intel::take(device, &config.port.time_limit)?;
    regs.check("its turn to be opened")?;
    let linked = init::reset(&regs, model.mac)?;
    semaphore::recover(&regs, model.mac)?;
    let vectors = config.interrupts().enable(&**regs.device(), config.port.rx_queues + 1)?;
    match eeprom::check(&regs, model.mac) {
        Err(error @ Error::Gone { .. }) => return Err(error),
        Err(error) => {
            regs.check("the EEPROM to be read")?;
            tracing::warn!("the EEPROM's checksum cannot be verified: {error}");
        }
        Ok(_) => {}
    }
    let address = init::station_address(&regs)?;
    let card = Card::set_up_link(&regs, model, linked, address, config).inspect_err(|error| {
        if !matches!(error, Error::Gone { .. }) {
            // What went wrong is told; the partner must not see a link meanwhile.
            let after = regs.afterwards(LEAVE_LIMIT);
            regs.device().set_deadline(Some(after.deadline().clone()));
            drop(leave(&after, model, phy::QUICK_LAST_LIMIT));
        }
    })?;
    #[expect(unsafe_code, reason = "a word for the device")]
    // SAFETY: bus mastering was turned off before the reset, and nothing else in this crate turns it on.
    let shared = unsafe { Shared::new(Registers::clone(&regs), vectors) };
    Port::start(card, shared, &regs, config, pool)
}

/// What a port of this family has of its own; a [`Port`] dereferences to it.
pub struct Card<D: Device> {
    model: Model,
    socket: Option<link::Socket>,
    /// When the cage was last looked at, or the rate of its module changed.
    looked: Mutex<Instant>,
    looks: link::Looks,
    address: [u8; 6],
    filters: Filters<D>,
    counters: Counters<D>,
}

impl<D: Device> Card<D> {
    fn set_up_link(regs: &Timed<D>, model: Model, linked: bool, address: [u8; 6], config: &Config) -> Result<Self> {
        Ok(Self {
            socket: link::set_up(regs, model, linked)?,
            filters: Filters::new(regs, address, &config.port)?,
            counters: Counters::new(regs)?,
            model,
            looked: Mutex::new(Instant::now()),
            looks: link::Looks::default(),
            address,
        })
    }

    /// Returns the model of the device.
    #[must_use]
    pub fn model(&self) -> Model {
        self.model
    }

    /// Returns what was in the cage when it was last looked at: when the port was opened, and by [`ethdev::Port::events`] while there is no
    /// link. `None` if it has no cage for SFP+ modules.
    #[must_use]
    pub fn cage(&self) -> Option<&Cage> {
        self.socket.as_ref().map(|socket| &socket.cage)
    }

    /// Returns the receive filters.
    pub fn filters(&mut self) -> &mut Filters<D> {
        &mut self.filters
    }

    /// Returns all counters of the device, as last read by [`ethdev::Port::statistics`].
    #[must_use]
    pub fn hardware_statistics(&self) -> &HardwareStatistics {
        self.counters.totals()
    }
}

impl<D: Device> intel::Card for Card<D> {
    type Family = Ixgbe;
    type Device = D;

    const TRANSMIT_BUFFER_KIB: u32 = init::TRANSMIT_BUFFER_KIB;

    fn mac(&self) -> [u8; 6] {
        self.address
    }

    fn capabilities(&self, regs: &Registers<D>) -> Capabilities {
        let mac = self.model.mac;
        let mut capabilities = Capabilities::new();
        (capabilities.rx_queues, capabilities.tx_queues, capabilities.mtu) = (64, 64, 9216);
        capabilities.rss = Some(RssCapabilities::new(mac.rss_queues(), mac.reta_entries(), HashTypes::ALL));
        (capabilities.set_mac, capabilities.set_promiscuous, capabilities.stop_receiving) = (true, true, true);
        (capabilities.strip_vlan, capabilities.report_hash) = (true, true);
        // What is gone says so when it is asked to.
        capabilities.loopback = !link::is_vetoed(regs).unwrap_or(false);
        capabilities
    }

    fn totals(&self) -> Statistics {
        self.counters.totals().into()
    }

    fn count(&mut self, deadline: Deadline) -> Result<()> {
        self.counters.poll(Some(deadline)).map(drop)
    }

    fn set_up(&mut self, regs: &Timed<D>, config: &Config) -> Result<()> {
        init::receive_path(regs, config, self.model.mac)?;
        init::flow_control(regs, config, self.model.mac)?;
        init::transmit_path(regs)
    }

    fn begin(&mut self, regs: &Timed<D>, config: &Config, interrupts: bool) -> Result<()> {
        if interrupts {
            interrupts::set_up(regs, config)?;
        }
        init::announce(regs)?;
        init::start_receiving(regs)?;
        if interrupts {
            interrupts::watch(regs);
        }
        Ok(())
    }

    fn end(&mut self, regs: &Timed<D>) -> Result<()> {
        leave(regs, self.model, phy::LAST_LIMIT)
    }

    fn status(&self, regs: &Registers<D>) -> Result<LinkStatus> {
        link::status(regs, self.model.mac)
    }

    fn wait_link(&self, regs: &Timed<D>, limit: Duration) -> Result<LinkStatus> {
        link::wait_link(regs, self.model.mac, self.cage(), &self.looked, limit)
    }

    /// Also looks after an SFP+ port without a link, twice a second at most: a module may have been plugged in, and one of two rates tries
    /// the other. A look gives up what it waits for after half a second, since whoever asks may watch other ports too; a byte on the bus to the
    /// module is ended first, and what is held is given back. After one that failed the next comes 5 s later, and waits long enough to overrule a
    /// holder of a semaphore that is dead; where that fails, too, or takes its time, twice as much later each time, up to a minute.
    fn events(&mut self, regs: &Timed<D>) -> Result<Events> {
        let events = interrupts::take(regs)?;
        let looked = self.looked.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(socket) = &mut self.socket
            && looked.elapsed() >= link::RATE_LIMIT
            && self.looks.is_due(Instant::now())
        {
            let limit = self.looks.limit();
            let begun = Instant::now();
            let outcome = link::look_after(&regs.at_most(limit), self.model, socket);
            *looked = Instant::now();
            match &outcome {
                Err(Error::Gone { .. }) => return outcome.map(|()| events),
                Err(error) if !self.looks.have_failed() => {
                    tracing::warn!("the SFP+ port without a link cannot be looked after, and is tried again: {error}");
                }
                _ => {}
            }
            let took = looked.duration_since(begun);
            self.looks.note(*looked, outcome.is_ok().then_some(took));
        }
        Ok(events)
    }

    /// Module or PHY, firmware, and what is done with PAUSE frames.
    fn parts(&self, regs: &Timed<D>) -> Vec<(&'static str, String)> {
        parts::describe(regs, self.model, self.cage())
    }

    fn set_promiscuous(&mut self, _: &Timed<D>, on: bool) -> Result<()> {
        self.filters.set_promiscuous(on)
    }

    fn set_all_multicast(&mut self, _: &Timed<D>, on: bool) -> Result<()> {
        self.filters.set_all_multicast(on)
    }

    /// Instead of groups that were added by [`Card::filters`], too.
    fn set_groups(&mut self, regs: &Timed<D>, groups: &[MacAddress]) -> Result<()> {
        self.filters.set_groups(groups);
        // Whether the device is still there.
        self.status(regs).map(drop)
    }

    fn set_mac(&mut self, _: &Timed<D>, mac: [u8; 6]) -> Result<()> {
        self.filters.set_station(mac);
        self.address = mac;
        Ok(())
    }

    fn set_mtu(&mut self, regs: &Timed<D>, mtu: u16) -> Result<()> {
        init::set_max_frame(regs, Config::from(PortConfig { mtu, ..PortConfig::default() }).max_frame())
    }

    fn set_rss_table(&mut self, regs: &Timed<D>, rss: &Rss, queues: u16) -> Result<()> {
        rss::program_table(regs, &rss.reta, queues, self.model.mac);
        // Whether the device is still there.
        self.status(regs).map(drop)
    }

    /// The loop is inside the MAC (HLREG0.LPBK), with the link forced up.
    fn set_loopback(&mut self, regs: &Timed<D>, on: bool) -> Result<()> {
        if on && link::is_vetoed(regs)? {
            let what = "loop frames back, as manageability firmware forbids changes of the link (MMNGC)";
            return Err(Unsupported::new(regs.device().name(), what).into());
        }
        link::set_loopback(regs, self.model.mac, on)
    }

    fn stop_receiving(&mut self, regs: &Timed<D>) -> Result<()> {
        init::stop_receiving(regs, self.model.mac)
    }
}

impl From<&HardwareStatistics> for Statistics {
    fn from(hardware: &HardwareStatistics) -> Self {
        let errors = &hardware.rx_errors;
        Self {
            rx_packets: hardware.rx_packets,
            rx_bytes: hardware.rx_bytes,
            tx_packets: hardware.tx_packets,
            tx_bytes: hardware.tx_bytes,
            rx_missed: hardware.rx_missed + hardware.rx_no_descriptor,
            rx_errors: RxErrors {
                crc: errors.crc,
                length: errors.length,
                undersize: errors.undersize + errors.fragments + errors.short,
                oversize: errors.oversize + errors.jabber,
            },
            unread: hardware.unread,
        }
    }
}

/// Leaves a device to whoever comes next: its PHY in low power, for which `limit` is spent at most, all stopped, and the laser off.
pub(crate) fn leave<D: Device>(regs: &Timed<D>, model: Model, limit: Duration) -> Result<()> {
    let asleep = phy::set_power(&regs.at_most(limit), model.mac, false);
    // After the reset, as a link that is up keeps it from resetting the pins.
    asleep.and(init::stop(regs, model.mac)).and(link::turn_laser_off(regs, model))
}

/// How long a device may take to be left when it could not be opened: a choice of our own, with room for a reset.
const LEAVE_LIMIT: Duration = Duration::from_secs(2);

impl<D: Device> fmt::Debug for Card<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Card").field("model", &self.model).finish_non_exhaustive()
    }
}
