//! A port: opening a device, and what controlling and closing it means for this family.

use crate::filter::{self, Modes};
use crate::ids::RETA_ENTRIES;
use crate::regs::{Igb, Registers};
use crate::stats::Counters;
use crate::wait::Timed;
use crate::{Config, HardwareStatistics, Model, Result, init, interrupts, phy, rss};
use device::{Deadline, Device};
use ethdev::{
    Capabilities, Events, HashTypes, LinkStatus, MacAddress, PortConfig, Rss, RssCapabilities, Statistics, Unsupported,
};
use intel::Shared;
use mempool::Pool;
use std::fmt;
use std::time::Duration;

/// The port of an open device: link, receive modes, statistics and closing. What it has beyond an [`ethdev::Port`] is in [`Card`].
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
/// pool has fewer slots than the receive rings have descriptors. [`crate::Error::Expired`] if the whole call takes longer than
/// [`PortConfig::time_limit`], or is cancelled; stopping the device then has a time limit of its own.
pub fn open<D: Device>(device: D, config: &Config, pool: &Pool) -> Result<Opened<D>> {
    let model = Model::identify(device.ids())?;
    config.validate(model.mac)?;
    let regs = intel::take(device, &config.port.time_limit)?;
    regs.check("its turn to be opened")?;
    init::reset(&regs)?;
    let vectors = config.port.interrupts.enable(&**regs.device(), config.port.rx_queues + 1)?;
    let waits = if vectors.is_empty() { "without" } else { "with" };
    let address = filter::station(&regs)?;
    filter::clear(&regs, model.mac);
    phy::set_up(&regs, model.mac)?;
    let counters = Counters::new(&regs, model.mac, config.port.rx_queues.into())?;
    let card = Card { modes: Modes::from(&config.port), counters, model, address, rx_queues: config.port.rx_queues };
    #[expect(unsafe_code, reason = "a word for the device")]
    // SAFETY: bus mastering was turned off before the reset, and nothing else in this crate turns it on.
    let shared = unsafe { Shared::new(Registers::clone(&regs), vectors) };
    let opened = Port::start(card, shared, &regs, config, pool)?;
    let (name, rx, tx) = (regs.device().name(), opened.rx.len(), opened.tx.len());
    tracing::info!("{name}: in use: {}, {rx} + {tx} queues, {waits} interrupts", model.name);
    Ok(opened)
}

/// What a port of this family has of its own; a [`Port`] dereferences to it.
pub struct Card<D: Device> {
    model: Model,
    address: [u8; 6],
    modes: Modes,
    counters: Counters<D>,
    rx_queues: u16,
}

impl<D: Device> Card<D> {
    /// Returns the model of the device.
    #[must_use]
    pub fn model(&self) -> Model {
        self.model
    }

    /// Returns all counters of the device, as last read by [`ethdev::Port::statistics`].
    #[must_use]
    pub fn hardware_statistics(&self) -> &HardwareStatistics {
        self.counters.totals()
    }
}

impl<D: Device> intel::Card for Card<D> {
    type Family = Igb;
    type Device = D;

    const TRANSMIT_BUFFER_KIB: u32 = init::TRANSMIT_BUFFER_KIB;

    fn mac(&self) -> [u8; 6] {
        self.address
    }

    fn capabilities(&self, regs: &Registers<D>) -> Capabilities {
        let queues = self.model.mac.queues();
        let mut capabilities = Capabilities::new();
        (capabilities.rx_queues, capabilities.tx_queues, capabilities.mtu) = (queues, queues, 9216);
        capabilities.rss = Some(RssCapabilities::new(queues, RETA_ENTRIES, HashTypes::ALL));
        (capabilities.set_mac, capabilities.set_promiscuous, capabilities.stop_receiving) = (true, true, true);
        (capabilities.report_hash, capabilities.loopback) = (true, phy::can_loop(regs));
        capabilities
    }

    fn totals(&self) -> Statistics {
        self.counters.totals().into()
    }

    fn count(&mut self, deadline: Deadline) -> Result<()> {
        self.counters.poll(Some(deadline)).map(drop)
    }

    fn set_up(&mut self, regs: &Timed<D>, config: &Config) -> Result<()> {
        init::receive_path(regs, config)?;
        init::transmit_path(regs)
    }

    fn begin(&mut self, regs: &Timed<D>, config: &Config, interrupts: bool) -> Result<()> {
        if interrupts {
            interrupts::set_up(regs, config, self.model.mac)?;
        }
        init::announce(regs)?;
        init::start_receiving(regs)?;
        if interrupts {
            interrupts::watch(regs, self.rx_queues.into());
        }
        Ok(())
    }

    fn end(&mut self, regs: &Timed<D>) -> Result<()> {
        init::stop(regs)
    }

    fn status(&self, regs: &Registers<D>) -> Result<LinkStatus> {
        phy::status(regs)
    }

    fn wait_link(&self, regs: &Timed<D>, limit: Duration) -> Result<LinkStatus> {
        phy::wait_link(regs, limit)
    }

    fn events(&mut self, regs: &Timed<D>) -> Result<Events> {
        interrupts::take(regs)
    }

    /// Its PHY, and what is done with PAUSE frames.
    fn parts(&self, regs: &Timed<D>) -> Vec<(&'static str, String)> {
        let phy = match phy::identity(regs, self.model.mac) {
            Ok(Some(id)) => format!("{id:#010x}"),
            Ok(None) => "not the internal one".to_owned(),
            Err(error) => error.to_string(),
        };
        let pause = phy::pause(regs, self.model.mac).unwrap_or_else(|error| error.to_string());
        vec![("PHY", phy), ("PAUSE", pause)]
    }

    fn set_promiscuous(&mut self, regs: &Timed<D>, on: bool) -> Result<()> {
        self.modes.promiscuous = on;
        self.modes.write(regs)
    }

    fn set_all_multicast(&mut self, regs: &Timed<D>, on: bool) -> Result<()> {
        self.modes.all_multicast = on;
        self.modes.write(regs)
    }

    fn set_groups(&mut self, regs: &Timed<D>, groups: &[MacAddress]) -> Result<()> {
        filter::set_groups(regs, groups);
        // Whether the device is still there.
        phy::status(regs).map(drop)
    }

    fn set_mac(&mut self, regs: &Timed<D>, mac: [u8; 6]) -> Result<()> {
        filter::set_station(regs, mac);
        self.address = mac;
        // Whether the device is still there.
        phy::status(regs).map(drop)
    }

    fn set_mtu(&mut self, regs: &Timed<D>, mtu: u16) -> Result<()> {
        init::set_max_frame(regs, Config::from(PortConfig { mtu, ..PortConfig::default() }).max_frame());
        // Whether the device is still there.
        phy::status(regs).map(drop)
    }

    fn set_rss_table(&mut self, regs: &Timed<D>, rss: &Rss, queues: u16) -> Result<()> {
        rss::program_table(regs, &rss.reta, queues);
        // Whether the device is still there.
        phy::status(regs).map(drop)
    }

    /// The loop is in the PHY, which takes half a second.
    fn set_loopback(&mut self, regs: &Timed<D>, on: bool) -> Result<()> {
        if phy::set_loopback(regs, self.model.mac, on)? {
            return Ok(());
        }
        Err(Unsupported::new(
            regs.device().name(),
            "loop frames back without its internal PHY, or while manageability firmware uses that (MANC)",
        )
        .into())
    }

    fn stop_receiving(&mut self, regs: &Timed<D>) -> Result<()> {
        init::stop_receiving(regs)
    }
}

impl<D: Device> fmt::Debug for Card<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Card").field("model", &self.model).finish_non_exhaustive()
    }
}
