//! A port: opening and closing a virtual function, and controlling it while other threads use its queues.

use crate::config::RETA_ENTRIES;
use crate::grant::{Grant, longest};
use crate::modes::Modes;
use crate::regs::{Ixgbevf, Registers, VFCTRL, vfctrl};
use crate::stats::Counters;
use crate::{
    Api, Config, Error, HardwareStatistics, Hashing, MacType, Mailbox, Mode, Model, News, Queues, Result, RxQueue,
    TxQueue, interrupts, link, rss,
};
use device::{Deadline, Device, Regs, TimeLimit};
use ethdev::{
    Capabilities, ConfigError, Events, HashTypes, LinkStatus, MacAddress, PortConfig, Reta, RssCapabilities, Statistics,
};
use intel::{Command, Shared, Timed, is_cancelled};
use mempool::Pool;
use std::fmt;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

/// An open virtual function.
pub type Opened<D> = ethdev::Opened<Port<D>>;

/// Opens a virtual function: resets it, agrees with the physical function on what it may do, and starts its queues with buffers from
/// `pool`. It has the address that the physical function gives to it, or a random one if that leaves it the choice.
///
/// The device is passed by value, so that nothing else can drive it.
///
/// # Errors
///
/// If the driver does not support the device, a setting is out of range or more than is granted, the device does not respond in time,
/// or the pool has fewer slots than the receive rings have descriptors. [`Error::Silent`] if the physical function has no driver.
/// [`Error::Expired`] if the whole call takes longer than [`PortConfig::time_limit`], or is cancelled; stopping the device then has a
/// time limit of its own.
pub fn open<D: Device>(device: D, config: &Config, pool: &Pool) -> Result<Opened<D>> {
    let model = Model::identify(device.ids())?;
    config.port.validate()?;
    let deadline = device.deadline().unwrap_or_else(|| config.port.time_limit.begin());
    device.set_deadline(Some(deadline.clone()));
    // A device that an earlier process left running must not reach memory that is about to be mapped.
    device.set_bus_master(false)?;
    let regs: Registers<D> = Regs::new(Arc::new(device))?;
    let regs = Timed::new(&regs, deadline);
    regs.check("its turn to be opened")?;
    let mut mailbox = Mailbox::new(Registers::clone(&regs));
    let grant = Grant::ask(&mut mailbox, config, model.mac, regs.deadline())?;
    interrupts::mask(&regs);
    let vectors = config.port.interrupts.enable(&**regs.device(), config.port.rx_queues + 1)?;
    #[expect(unsafe_code, reason = "a word for the device")]
    // SAFETY: bus mastering was turned off before the reset, and nothing else in this crate turns it on.
    let shared = Arc::new(unsafe { Shared::new(Registers::clone(&regs), vectors) });
    let mut port = Port {
        modes: Modes::from(&config.port),
        counters: Counters::new(&regs)?,
        mailbox,
        shared,
        config: config.port.clone(),
        model,
        grant,
        rx_queues: 0,
        tx_queues: 0,
        closed: false,
    };
    let (mut rx, mut tx) = (Vec::new(), Vec::new());
    port.start(&regs, config, pool, &mut rx, &mut tx)?;
    regs.device().set_deadline(None);
    let (name, waits) = (regs.device().name(), if port.shared.other_vector().is_some() { "with" } else { "without" });
    let granted = port.granted();
    tracing::info!("{name}: in use: {}, {granted}; {} + {} queues, {waits} interrupts", model.name, rx.len(), tx.len());
    Ok(Opened { port, rx, tx })
}

/// The port of an open virtual function: link, receive modes, statistics and closing. All that is more than reading counters and link is
/// asked of the physical function, which may refuse ([`Error::Refused`]).
///
/// When the physical function has been reset, [`ethdev::Port::events`], [`ethdev::Port::statistics`] and each request return
/// [`Error::Lost`], as [`ethdev::Port::link`] does from then on: nothing is received or sent until the function is opened again. A physical
/// function that falls silent is noticed at the next request.
///
/// Dropping it closes it; errors are then logged.
pub struct Port<D: Device> {
    shared: Arc<Shared<Ixgbevf, D>>,
    mailbox: Mailbox<D>,
    model: Model,
    grant: Grant,
    modes: Modes,
    counters: Counters<D>,
    config: PortConfig,
    rx_queues: u32,
    tx_queues: u32,
    closed: bool,
}

impl<D: Device> Port<D> {
    fn regs(&self) -> &Registers<D> {
        self.shared.regs()
    }

    /// Starts the queues, transmit first (4.6.7, 4.6.8).
    fn start(
        &mut self,
        regs: &Timed<Ixgbevf, D>,
        config: &Config,
        pool: &Pool,
        rx: &mut Vec<RxQueue<D>>,
        tx: &mut Vec<TxQueue<D>>,
    ) -> Result<()> {
        // What there is instead of what was wanted, so that changes go from there.
        self.modes.promiscuous &= self.grant.mode == Mode::Everything;
        self.modes.all_multicast &= self.grant.mode >= Mode::AllGroups;
        let mut memory = self.shared.begin_dma(config, pool)?;
        rss::program(self.regs(), config, self.model.mac);
        for index in 0..config.port.tx_queues.into() {
            self.tx_queues += 1;
            tx.push(TxQueue::start(&mut memory, index, config, pool, regs.deadline())?);
        }
        for index in 0..config.port.rx_queues.into() {
            self.rx_queues += 1;
            rx.push(RxQueue::start(&mut memory, index, config, pool, regs.deadline())?);
        }
        if self.shared.other_vector().is_some() {
            interrupts::set_up(self.regs(), config);
            interrupts::watch(self.regs(), self.rx_queues);
        }
        self.mailbox.check()
    }

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
    /// [`Error::Refused`] if the function is not trusted or the API older than 1.2; [`Error::Lost`], [`Error::Silent`],
    /// [`Error::Nonsense`], [`Error::Expired`], [`Error::Gone`].
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

    /// Adds a VLAN to those whose frames are received, or removes it. At first only frames without a tag, and with VLAN 0, are.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if the id is above 4094; [`Error::Refused`]; [`Error::Lost`], [`Error::Silent`], [`Error::Nonsense`],
    /// [`Error::Expired`], [`Error::Gone`].
    pub fn set_vlan(&mut self, id: u16, on: bool) -> Result<()> {
        ConfigError::unless_in("vlan", id, 0..=4094, "")?;
        self.ask(|mailbox, deadline| mailbox.set_vlan(deadline, id, on))
    }

    /// What the physical function grants, for people.
    fn granted(&self) -> String {
        let Grant { api, queues, mode, .. } = self.grant;
        format!("API {}, {} + {} queues, at most {mode:?}", api.name(), queues.receive, queues.transmit)
    }

    /// Asks the physical function for something.
    fn ask<T>(&mut self, request: impl FnOnce(&mut Mailbox<D>, &Deadline) -> Result<T>) -> Result<T> {
        let _command = Command::begin(self.regs(), &self.config.time_limit);
        request(&mut self.mailbox, &self.config.time_limit.begin())
    }

    fn set_modes(&mut self, modes: Modes) -> Result<()> {
        let (api, before) = (self.grant.api, self.modes);
        self.ask(|mailbox, deadline| modes.change(mailbox, api, before, deadline))?;
        self.modes = modes;
        Ok(())
    }

    /// Returns the time limit of an operation that reads many registers, to be checked before each of them. If the cancel
    /// flag is set already, the limit is a second, and the device has two seconds for its answers until the command is dropped.
    fn reading(&self) -> (Option<Command<D>>, TimeLimit) {
        if !is_cancelled(&self.config.time_limit) {
            return (None, self.config.time_limit.clone());
        }
        let limit = TimeLimit { total: self.config.time_limit.total.min(END_LIMIT), cancel: None };
        (Some(Command::begin(self.regs(), &self.config.time_limit)), limit)
    }

    fn stop(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.closed, true) {
            return Ok(());
        }
        let operation = TimeLimit { total: self.config.time_limit.total, cancel: None };
        let regs = Timed::new(self.regs(), operation.begin());
        regs.device().set_deadline(Some(regs.deadline().clone()));
        interrupts::mask(&regs);
        let mut result = self.mailbox.check();
        let alive = result.is_ok();
        for index in 0..self.rx_queues {
            result = result.and(RxQueue::disable(&regs, index));
        }
        if alive {
            result = result.and(self.drain(&regs));
        }
        for index in 0..self.tx_queues {
            result = result.and(TxQueue::disable(&regs, index));
        }
        if alive {
            result = result.and(self.counters.poll(Some(&regs.deadline().at_most(END_LIMIT))).map(drop));
        }
        regs.write(VFCTRL, vfctrl::RST.mask());
        // Without this step all memory would have to be kept.
        regs.device().set_deadline(Some(regs.afterwards(END_LIMIT).deadline().clone()));
        result = result.and(self.shared.end_dma());
        regs.device().set_deadline(None);
        self.shared.close();
        result
    }

    /// Waits, for a limited time, until the device has sent the frames that it was given.
    fn drain(&self, regs: &Timed<Ixgbevf, D>) -> Result<()> {
        if !link::status(regs, self.model.mac)?.up {
            return Ok(());
        }
        (0..self.tx_queues).try_for_each(|index| TxQueue::drain(regs, index))
    }
}

/// Each call takes [`PortConfig::time_limit`] at most, and longer only where a method says so. A device that does not
/// answer within that time is treated as gone.
impl<D: Device> ethdev::Port for Port<D> {
    type Rx = RxQueue<D>;
    type Tx = TxQueue<D>;
    type Error = Error;

    fn name(&self) -> &str {
        self.regs().device().name()
    }

    fn mac(&self) -> MacAddress {
        MacAddress(self.grant.address)
    }

    fn numa_node(&self) -> Option<u32> {
        self.regs().device().numa_node()
    }

    fn capabilities(&self) -> Capabilities {
        let Queues { transmit, receive } = self.grant.queues;
        let mut capabilities = Capabilities::new();
        (capabilities.rx_queues, capabilities.tx_queues, capabilities.mtu) = (receive, transmit, 9216);
        capabilities.rss =
            (self.model.mac == MacType::X550).then(|| RssCapabilities::new(receive, RETA_ENTRIES, HashTypes::ALL));
        (capabilities.set_mac, capabilities.set_promiscuous) = (true, self.grant.mode == Mode::Everything);
        capabilities.interrupts = self.shared.other_vector().is_some();
        (capabilities.strip_vlan, capabilities.report_hash) = (true, true);
        capabilities
    }

    fn link(&self) -> Result<LinkStatus> {
        if self.mailbox.is_lost() {
            return Err(self.mailbox.lost());
        }
        let _command = Command::begin(self.regs(), &self.config.time_limit);
        link::status(self.regs(), self.model.mac)
    }

    /// The device has the sum of `limit` and [`PortConfig::time_limit`] for its answers.
    fn wait_link(&self, limit: Duration) -> Result<LinkStatus> {
        let own = &self.config.time_limit;
        let both = TimeLimit { total: own.total.saturating_add(limit), ..own.clone() };
        let _command = Command::begin(self.regs(), &both);
        let operation = TimeLimit { total: limit, cancel: own.cancel.clone() };
        link::wait_link(&Timed::new(self.regs(), operation.begin()), self.model.mac, limit)
    }

    fn set_promiscuous(&mut self, on: bool) -> Result<()> {
        self.set_modes(Modes { promiscuous: on, ..self.modes })
    }

    fn set_all_multicast(&mut self, on: bool) -> Result<()> {
        self.set_modes(Modes { all_multicast: on, ..self.modes })
    }

    fn set_mac(&mut self, mac: MacAddress) -> Result<()> {
        if !mac.is_unicast() {
            return Err(ConfigError::new("mac", format!("{mac}: not the address of one station")).into());
        }
        self.ask(|mailbox, deadline| mailbox.set_address(deadline, mac.0))?;
        self.grant.address = mac.0;
        Ok(())
    }

    /// A limit below an earlier one need not count, as other functions may have asked for more.
    fn set_mtu(&mut self, mtu: u16) -> Result<()> {
        ConfigError::unless_in("mtu", mtu, 68..=self.config.mtu, "bytes")?;
        self.ask(|mailbox, deadline| mailbox.set_longest(deadline, longest(mtu)))
    }

    fn set_rss_table(&mut self, table: &Reta) -> Result<()> {
        if self.model.mac != MacType::X550 {
            return Err(self.unsupported("change its RSS table"));
        }
        let rss = self.config.rss.with_table(table);
        rss.validate(self.config.rx_queues, self.grant.queues.receive, RETA_ENTRIES)?;
        let _command = Command::begin(self.regs(), &self.config.time_limit);
        rss::program_table(self.regs(), table, self.config.rx_queues);
        self.config.rss = rss;
        // Whether the device is still there.
        link::status(self.regs(), self.model.mac).map(drop)
    }

    /// What the physical function grants.
    fn parts(&self) -> Vec<(&'static str, String)> {
        vec![("physical function", self.granted())]
    }

    /// The device's own counters wrap after 55 s at the least, so call this at least once in that time.
    ///
    /// Reading stops before the next counter when [`PortConfig::time_limit`] is over, or when its cancel flag is set
    /// during the call; if the flag was set before, it stops after a second. [`Statistics::unread`] is the number of
    /// counters not read; the next call, or closing, begins with them.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] when the physical function was reset, after which the counters mean nothing; [`Error::Gone`].
    fn statistics(&mut self) -> Result<Statistics> {
        let (_hurried, limit) = self.reading();
        self.mailbox.check()?;
        Ok(self.counters.poll(Some(&limit.begin()))?.into())
    }

    fn totals(&self) -> Statistics {
        self.counters.totals().into()
    }

    /// Reading stops before the next register, and returns `false`, under the same limits as in [`ethdev::Port::statistics`]. After a reset of
    /// the physical function nothing is sent any more, and there is nothing to wait for.
    fn transmit_idle(&self) -> bool {
        let (_hurried, limit) = self.reading();
        let regs = Timed::new(self.regs(), limit.begin());
        self.mailbox.is_lost()
            || (0..self.tx_queues).all(|index| match TxQueue::is_empty(&regs, index) {
                Ok(is_empty) => is_empty,
                Err(error) => matches!(error, Error::Gone { .. }),
            })
    }

    fn event_fds(&self) -> Vec<BorrowedFd<'_>> {
        self.shared.other_vector().map(|vector| vector.as_fd()).into_iter().collect()
    }

    /// Whatever the physical function says of its own accord may be about the link.
    fn events(&mut self) -> Result<Events> {
        let _command = Command::begin(self.regs(), &self.config.time_limit);
        // What happens between the two is told now, and once more wakes for nothing.
        if let Some(vector) = self.shared.other_vector() {
            vector.clear();
        }
        match self.mailbox.news()? {
            News::Lost => Err(self.mailbox.lost()),
            news => Ok(Events { link_changed: news == News::Changed, memory_error: false }),
        }
    }

    /// Stops the device: disables the receive queues, sends the frames of the transmit queues as long as the link is up, disables
    /// those, resets, and turns bus mastering off, by which memory accesses end whatever the physical function does.
    ///
    /// All of it takes [`PortConfig::time_limit`] plus a second at most, provided that registers are memory and not
    /// messages to another process. When the time limit is over, the remaining steps are still requested of the device,
    /// but not waited for; the extra second is for taking memory access from it. The cancel flag is ignored, as it is usually the
    /// reason for closing a port.
    fn close(mut self) -> Result<Statistics> {
        self.stop()?;
        Ok(self.counters.totals().into())
    }
}

/// Time to take memory access from a device that is closed, and for reading many registers when all is to end.
const END_LIMIT: Duration = Duration::from_secs(1);

impl<D: Device> Drop for Port<D> {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            tracing::warn!("closing: {error}");
        }
    }
}

impl<D: Device> fmt::Debug for Port<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port").field("grant", &self.grant).field("model", &self.model).finish_non_exhaustive()
    }
}
