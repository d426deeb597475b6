//! A port: opening a virtual function, and what controlling and closing it means.

use crate::config::RETA_ENTRIES;
use crate::grant::{Grant, longest};
use crate::modes::Modes;
use crate::regs::{Ixgbevf, Registers, VFCTRL, vfctrl};
use crate::requests::MOST_GROUPS;
use crate::stats::Counters;
use crate::{
    Api, Config, HardwareStatistics, Hashing, MacType, Mailbox, Mode, Model, News, Queues, Result, interrupts, link,
    rss,
};
use device::{Deadline, Device};
use ethdev::{
    Capabilities, ConfigError, Events, HashTypes, LinkStatus, MacAddress, PortConfig, Rss, RssCapabilities, Statistics,
};
use intel::{Command, Shared};
use mempool::Pool;
use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

/// An open virtual function.
pub type Opened<D> = ethdev::Opened<Port<D>>;

/// Opens a virtual function: resets it, agrees with the physical function on what it may do, and starts its queues with buffers
/// from `pool`. It has the address that the physical function gives to it, or a random one if that leaves it the choice.
///
/// The device is passed by value, so that nothing else can drive it.
///
/// # Errors
///
/// If the driver does not support the device, a setting is out of range or more than is granted, the device does not respond in
/// time, or the pool has fewer slots than the receive rings have descriptors. [`crate::Error::Silent`] if the physical function
/// has no driver. [`crate::Error::Expired`] if the whole call takes longer than [`PortConfig::time_limit`], or is cancelled;
/// stopping the device then has a time limit of its own.
pub fn open<D: Device>(device: D, config: &Config, pool: &Pool) -> Result<Opened<D>> {
    let model = Model::identify(device.ids())?;
    config.port.validate()?;
    let regs = intel::take(device, &config.port.time_limit)?;
    regs.check("its turn to be opened")?;
    let mut mailbox = Mailbox::new(Registers::clone(&regs));
    let grant = Grant::ask(&mut mailbox, config, model.mac, regs.deadline())?;
    interrupts::mask(&regs);
    let vectors = config.port.interrupts.enable(&**regs.device(), config.port.rx_queues + 1)?;
    let waits = if vectors.is_empty() { "without" } else { "with" };
    let (counters, config_of_port) = (Counters::new(&regs)?, config.port.clone());
    let card = Card {
        modes: grant.modes(&config.port),
        counters,
        mailbox,
        model,
        grant,
        config: config_of_port,
        regs: Registers::clone(&regs),
    };
    let granted = card.granted();
    #[expect(unsafe_code, reason = "a word for the device")]
    // SAFETY: bus mastering was turned off before the reset, and nothing else in this crate turns it on.
    let shared = unsafe { Shared::new(Registers::clone(&regs), vectors) };
    let opened = Port::start(card, shared, &regs, config, pool)?;
    let (name, rx, tx) = (regs.device().name(), opened.rx.len(), opened.tx.len());
    tracing::info!("{name}: in use: {}, {granted}; {rx} + {tx} queues, {waits} interrupts", model.name);
    Ok(opened)
}

/// The port of an open virtual function: link, receive modes, statistics and closing. All that is more than reading counters and
/// link is asked of the physical function, which may refuse ([`crate::Error::Refused`]).
///
/// When the physical function has been reset, [`ethdev::Port::events`], [`ethdev::Port::statistics`] and each request return
/// [`crate::Error::Lost`], as [`ethdev::Port::link`] does from then on: nothing is received or sent until the function is opened
/// again. A physical function that falls silent is noticed at the next request.
///
/// What it has beyond an [`ethdev::Port`] is in [`Card`]. Dropping it closes it; errors are then logged.
pub type Port<D> = intel::Port<Card<D>>;

/// What the port of a virtual function has of its own; a [`Port`] dereferences to it.
pub struct Card<D: Device> {
    regs: Registers<D>,
    mailbox: Mailbox<D>,
    model: Model,
    grant: Grant,
    modes: Modes,
    counters: Counters<D>,
    config: PortConfig,
}

/// The registers during an operation.
type Timed<D> = intel::Timed<Ixgbevf, D>;

impl<D: Device> Card<D> {
    /// Returns the model of the device.
    #[must_use]
    pub fn model(&self) -> Model {
        self.model
    }

    /// Returns the version of what is said in the mailbox.
    #[must_use]
    pub fn api(&self) -> Api {
        self.grant.api
    }

    /// Returns all counters of the function, as last read by [`ethdev::Port::statistics`].
    #[must_use]
    pub fn hardware_statistics(&self) -> &HardwareStatistics {
        self.counters.totals()
    }

    /// Returns by which key and table flows are spread over queues: an X550 function's own, else the physical function's.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Refused`] if the function is not trusted or the API older than 1.2; [`crate::Error::Lost`],
    /// [`crate::Error::Silent`], [`crate::Error::Nonsense`], [`crate::Error::Expired`], [`crate::Error::Gone`].
    pub fn hashing(&mut self) -> Result<Hashing> {
        if self.model.mac != MacType::X550 {
            let mut hashing = self.ask(Mailbox::hashing)?;
            let bits = self.config.rx_queues.next_power_of_two().to_le_bytes()[0].saturating_sub(1);
            hashing.table.iter_mut().for_each(|entry| *entry &= bits);
            return Ok(hashing);
        }
        let (rss, queues) = (&self.config.rss, self.config.rx_queues);
        let mut index = 0..;
        let table = [0; 128].map(|_: u8| rss.reta.queue(index.next().unwrap_or(0) % u32::from(RETA_ENTRIES), queues));
        Ok(Hashing { key: rss.key, table })
    }

    /// What the physical function grants, for people.
    fn granted(&self) -> String {
        let Grant { api, queues, mode, .. } = self.grant;
        let queues = format!("{} + {} queues", queues.receive, queues.transmit);
        format!("API {}, {queues}, lets in {mode} if asked to", api.name())
    }

    /// Asks the physical function for something.
    fn ask<T>(&mut self, request: impl FnOnce(&mut Mailbox<D>, &Deadline) -> Result<T>) -> Result<T> {
        let _command = Command::begin(&self.regs, &self.config.time_limit);
        request(&mut self.mailbox, &self.config.time_limit.begin())
    }

    fn set_modes(&mut self, regs: &Timed<D>, modes: Modes) -> Result<()> {
        modes.change(&mut self.mailbox, self.grant.api, self.modes, regs.deadline())?;
        self.modes = modes;
        Ok(())
    }
}

impl<D: Device> intel::Card for Card<D> {
    type Family = Ixgbevf;
    type Device = D;

    /// What is in the card's buffer is sent whatever becomes of the function.
    const TRANSMIT_BUFFER_KIB: u32 = 0;

    fn mac(&self) -> [u8; 6] {
        self.grant.address
    }

    fn capabilities(&self, _: &Registers<D>) -> Capabilities {
        let Queues { transmit, receive } = self.grant.queues;
        // Who speaks 1.0 has no long frames on an 82599.
        let is_short = self.model.mac == MacType::Mac82599 && self.grant.api < Api::V1_1;
        let mut capabilities = Capabilities::new();
        (capabilities.rx_queues, capabilities.tx_queues) = (receive, transmit);
        capabilities.mtu = if is_short { 1500 } else { 9216 };
        capabilities.rss =
            (self.model.mac == MacType::X550).then(|| RssCapabilities::new(receive, RETA_ENTRIES, HashTypes::ALL));
        (capabilities.set_mac, capabilities.set_promiscuous) = (true, self.grant.mode == Mode::Everything);
        (capabilities.strip_vlan, capabilities.report_hash) = (true, true);
        capabilities
    }

    fn totals(&self) -> Statistics {
        self.counters.totals().into()
    }

    fn count(&mut self, deadline: Deadline) -> Result<()> {
        self.mailbox.check()?;
        self.counters.poll(Some(&deadline)).map(drop)
    }

    fn set_up(&mut self, regs: &Timed<D>, config: &Config) -> Result<()> {
        rss::program(regs, config, self.model.mac);
        Ok(())
    }

    fn begin(&mut self, regs: &Timed<D>, config: &Config, interrupts: bool) -> Result<()> {
        if interrupts {
            interrupts::set_up(regs, config);
            interrupts::watch(regs, config.port.rx_queues.into());
        }
        self.mailbox.check()
    }

    fn begin_end(&mut self, regs: &Timed<D>) -> Result<()> {
        interrupts::mask(regs);
        self.mailbox.check()
    }

    fn end(&mut self, regs: &Timed<D>) -> Result<()> {
        regs.write(VFCTRL, vfctrl::RST.mask());
        Ok(())
    }

    fn status(&self, regs: &Registers<D>) -> Result<LinkStatus> {
        if self.mailbox.is_lost() {
            return Err(self.mailbox.lost());
        }
        link::status(regs, self.model.mac)
    }

    fn wait_link(&self, regs: &Timed<D>, limit: Duration) -> Result<LinkStatus> {
        link::wait_link(regs, self.model.mac, limit)
    }

    fn is_lost(&self) -> bool {
        self.mailbox.is_lost()
    }

    /// Whatever the physical function says of its own accord may be about the link.
    fn events(&mut self, _: &Timed<D>) -> Result<Events> {
        match self.mailbox.news()? {
            News::Lost => Err(self.mailbox.lost()),
            news => Ok(Events { link_changed: news == News::Changed, memory_error: false }),
        }
    }

    /// What the physical function grants.
    fn parts(&self, _: &Timed<D>) -> Vec<(&'static str, String)> {
        vec![("physical function", self.granted())]
    }

    fn set_promiscuous(&mut self, regs: &Timed<D>, on: bool) -> Result<()> {
        self.set_modes(regs, Modes { promiscuous: on, ..self.modes })
    }

    fn set_all_multicast(&mut self, regs: &Timed<D>, on: bool) -> Result<()> {
        self.set_modes(regs, Modes { all_multicast: on, ..self.modes })
    }

    /// A function may have 30 groups with hashes of their own. Of more, the first 30 are received, as a router that hears those it joined
    /// first does more than one that hears none. The card's table is that of all functions, so those of before may go on for as long as the
    /// physical function leaves their bits in it.
    fn set_groups(&mut self, regs: &Timed<D>, groups: &[MacAddress]) -> Result<()> {
        let mut seen = HashSet::new();
        let hashes = groups.iter().copied().map(intel::group_hash).filter(|hash| seen.insert(*hash));
        let hashes: Vec<u16> = hashes.collect();
        self.mailbox.set_groups(regs.deadline(), &hashes)?;
        if hashes.len() <= MOST_GROUPS {
            return Ok(());
        }
        let problem = format!(
            "{} of them, by their hashes: the physical function takes {MOST_GROUPS}, and the first are received; leave some, or \
             have it trust this function",
            hashes.len()
        );
        Err(ConfigError::new("groups", problem).into())
    }

    /// At first only frames without a tag, and with VLAN 0, are received.
    fn set_vlan(&mut self, regs: &Timed<D>, id: u16, on: bool) -> Result<()> {
        self.mailbox.set_vlan(regs.deadline(), id, on)
    }

    fn set_mac(&mut self, regs: &Timed<D>, mac: [u8; 6]) -> Result<()> {
        self.mailbox.set_address(regs.deadline(), mac)?;
        self.grant.address = mac;
        Ok(())
    }

    fn set_mtu(&mut self, regs: &Timed<D>, mtu: u16) -> Result<()> {
        self.mailbox.set_longest(regs.deadline(), longest(mtu))
    }

    fn set_rss_table(&mut self, regs: &Timed<D>, rss: &Rss, queues: u16) -> Result<()> {
        rss::program_table(regs, &rss.reta, queues);
        self.config.rss = rss.clone();
        // Whether the device is still there.
        link::status(regs, self.model.mac).map(drop)
    }
}

impl<D: Device> fmt::Debug for Card<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Card").field("grant", &self.grant).field("model", &self.model).finish_non_exhaustive()
    }
}
