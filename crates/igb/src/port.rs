//! A port: opening and closing a device, and controlling it while other threads use its queues.

use crate::filter::{self, Modes};
use crate::ids::RETA_ENTRIES;
use crate::regs::{Igb, Registers};
use crate::stats::Counters;
use crate::wait::{Command, Timed, is_cancelled};
use crate::{Config, Error, HardwareStatistics, Model, Result, RxQueue, TxQueue, init, interrupts, phy, rss};
use device::{Device, Regs, TimeLimit};
use ethdev::{
    Capabilities, ConfigError, Events, HashTypes, LinkStatus, MacAddress, Port as _, PortConfig, Reta, RssCapabilities,
    Statistics,
};
use intel::Shared;
use mempool::Pool;
use std::fmt;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

/// An open device of this family.
pub type Opened<D> = ethdev::Opened<Port<D>>;

/// Opens a device of this family: resets it, sets up the link, and starts its queues with buffers from `pool`. The link
/// may take seconds to come up; see [`Port::wait_link`].
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
    let deadline = device.deadline().unwrap_or_else(|| config.port.time_limit.begin());
    device.set_deadline(Some(deadline.clone()));
    // A device that an earlier process left running must not reach memory that is about to be mapped.
    device.set_bus_master(false)?;
    let regs: Registers<D> = Regs::new(Arc::new(device))?;
    let regs = Timed::new(&regs, deadline);
    regs.check("its turn to be opened")?;
    init::reset(&regs)?;
    let vectors = config.port.interrupts.enable(&**regs.device(), config.port.rx_queues + 1)?;
    let address = filter::station(&regs)?;
    filter::clear(&regs, model.mac);
    phy::set_up(&regs, model.mac)?;
    #[expect(unsafe_code, reason = "a word for the device")]
    // SAFETY: bus mastering was turned off before the reset, and nothing else in this crate turns it on.
    let shared = Arc::new(unsafe { Shared::new(Registers::clone(&regs), vectors) });
    let mut port = Port {
        modes: Modes::from(&config.port),
        counters: Counters::new(&regs, config.port.rx_queues.into())?,
        shared,
        config: config.port.clone(),
        model,
        address,
        rx_queues: 0,
        tx_queues: 0,
        closed: false,
    };
    let (mut rx, mut tx) = (Vec::new(), Vec::new());
    port.start(&regs, config, pool, &mut rx, &mut tx)?;
    regs.device().set_deadline(None);
    let (name, waits) = (port.name(), if port.shared.other_vector().is_some() { "with" } else { "without" });
    tracing::info!("{name}: in use: {}, {} + {} queues, {waits} interrupts", model.name, rx.len(), tx.len());
    Ok(Opened { port, rx, tx })
}

/// The port of an open device: link, receive modes, statistics and closing.
///
/// Dropping it closes it; errors are then logged.
pub struct Port<D: Device> {
    shared: Arc<Shared<Igb, D>>,
    model: Model,
    address: [u8; 6],
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

    /// Starts the queues, transmit first, and lets frames in (4.5).
    fn start(
        &mut self,
        regs: &Timed<D>,
        config: &Config,
        pool: &Pool,
        rx: &mut Vec<RxQueue<D>>,
        tx: &mut Vec<TxQueue<D>>,
    ) -> Result<()> {
        let mut memory = self.shared.begin_dma(config, pool)?;
        init::receive_path(self.regs(), config)?;
        init::transmit_path(self.regs())?;
        for index in 0..config.port.tx_queues.into() {
            self.tx_queues += 1;
            tx.push(TxQueue::start(&mut memory, index, config, pool, regs.deadline())?);
        }
        for index in 0..config.port.rx_queues.into() {
            self.rx_queues += 1;
            rx.push(RxQueue::start(&mut memory, index, config, pool, regs.deadline())?);
        }
        let interrupts = self.shared.other_vector().is_some();
        if interrupts {
            interrupts::set_up(self.regs(), config, self.model.mac)?;
        }
        init::announce(self.regs())?;
        init::start_receiving(regs)?;
        if interrupts {
            interrupts::watch(self.regs(), self.rx_queues);
        }
        Ok(())
    }

    /// Returns the model of the device.
    #[must_use]
    pub fn model(&self) -> Model {
        self.model
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

    /// Returns all counters of the device, as last read by [`ethdev::Port::statistics`].
    #[must_use]
    pub fn hardware_statistics(&self) -> &HardwareStatistics {
        self.counters.totals()
    }

    fn set_modes(&mut self, modes: Modes) -> Result<()> {
        let _command = Command::begin(self.regs(), &self.config.time_limit);
        self.modes = modes;
        modes.write(self.regs())
    }

    fn stop(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.closed, true) {
            return Ok(());
        }
        let operation = TimeLimit { total: self.config.time_limit.total, cancel: None };
        let regs = Timed::new(self.regs(), operation.begin());
        regs.device().set_deadline(Some(regs.deadline().clone()));
        let mut result = init::stop_receiving(&regs);
        for index in 0..self.rx_queues {
            result = result.and(RxQueue::disable(&regs, index));
        }
        result = result.and(self.drain(&regs));
        for index in 0..self.tx_queues {
            result = result.and(TxQueue::disable(&regs, index));
        }
        result = result.and(self.counters.poll(Some(regs.deadline().at_most(END_LIMIT))).map(drop));
        result = result.and(init::stop(&regs));
        // Without this step all memory would have to be kept.
        regs.device().set_deadline(Some(regs.afterwards(END_LIMIT).deadline().clone()));
        result = result.and(self.shared.end_dma());
        regs.device().set_deadline(None);
        self.shared.close();
        result
    }

    /// Waits, for a limited time, until the device has sent the frames that it was given.
    fn drain(&self, regs: &Timed<D>) -> Result<()> {
        let link = phy::status(regs)?;
        if !link.up {
            return Ok(());
        }
        (0..self.tx_queues).try_for_each(|index| TxQueue::drain(regs, index))?;
        // What has left the rings may still be in the device's buffer.
        let bits = u64::from(init::TRANSMIT_BUFFER_KIB) * 1024 * 8;
        regs.sleep(Duration::from_micros(bits / u64::from(link.speed_mbps.max(1))), "the last frames to leave")
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
        MacAddress(self.address)
    }

    fn numa_node(&self) -> Option<u32> {
        self.regs().device().numa_node()
    }

    fn capabilities(&self) -> Capabilities {
        let queues = self.model.mac.queues();
        let mut capabilities = Capabilities::new();
        (capabilities.rx_queues, capabilities.tx_queues, capabilities.mtu) = (queues, queues, 9216);
        capabilities.rss = Some(RssCapabilities::new(queues, RETA_ENTRIES, HashTypes::ALL));
        (capabilities.set_mac, capabilities.set_promiscuous, capabilities.stop_receiving) = (true, true, true);
        capabilities.interrupts = self.shared.other_vector().is_some();
        (capabilities.report_hash, capabilities.loopback) = (true, phy::is_internal(self.regs()));
        capabilities
    }

    fn link(&self) -> Result<LinkStatus> {
        let _command = Command::begin(self.regs(), &self.config.time_limit);
        phy::status(self.regs())
    }

    /// The device has the sum of `limit` and [`PortConfig::time_limit`] for its answers.
    fn wait_link(&self, limit: Duration) -> Result<LinkStatus> {
        let own = &self.config.time_limit;
        let both = TimeLimit { total: own.total.saturating_add(limit), ..own.clone() };
        let _command = Command::begin(self.regs(), &both);
        let operation = TimeLimit { total: limit, cancel: own.cancel.clone() };
        phy::wait_link(&Timed::new(self.regs(), operation.begin()), limit)
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
        let _command = Command::begin(self.regs(), &self.config.time_limit);
        filter::set_station(self.regs(), mac.0);
        self.address = mac.0;
        // Whether the device is still there.
        phy::status(self.regs()).map(drop)
    }

    fn set_mtu(&mut self, mtu: u16) -> Result<()> {
        ConfigError::unless_in("mtu", mtu, 68..=self.config.mtu, "bytes")?;
        let _command = Command::begin(self.regs(), &self.config.time_limit);
        init::set_max_frame(self.regs(), Config::from(PortConfig { mtu, ..PortConfig::default() }).max_frame());
        // Whether the device is still there.
        phy::status(self.regs()).map(drop)
    }

    fn set_rss_table(&mut self, table: &Reta) -> Result<()> {
        let queues = self.config.rx_queues;
        self.config.rss.with_table(table).validate(queues, self.model.mac.queues(), RETA_ENTRIES)?;
        let _command = Command::begin(self.regs(), &self.config.time_limit);
        rss::program_table(self.regs(), table, queues);
        // Whether the device is still there.
        phy::status(self.regs()).map(drop)
    }

    /// The loop is in the PHY, which takes half a second.
    fn set_loopback(&mut self, on: bool) -> Result<()> {
        let _command = Command::begin(self.regs(), &self.config.time_limit);
        let regs = Timed::new(self.regs(), self.config.time_limit.begin());
        if phy::set_loopback(&regs, self.model.mac, on)? {
            Ok(())
        } else {
            Err(self.unsupported("loop frames back without its internal PHY"))
        }
    }

    /// Its PHY.
    fn parts(&self) -> Vec<(&'static str, String)> {
        let _command = Command::begin(self.regs(), &self.config.time_limit);
        let regs = Timed::new(self.regs(), self.config.time_limit.begin());
        let phy = match phy::identity(&regs, self.model.mac) {
            Ok(Some(id)) => format!("{id:#010x}"),
            Ok(None) => "not the internal one".to_owned(),
            Err(error) => error.to_string(),
        };
        vec![("PHY", phy), ("PAUSE", "obeyed, not sent".to_owned())]
    }

    fn stop_receiving(&mut self) -> Result<()> {
        let _command = Command::begin(self.regs(), &self.config.time_limit);
        init::stop_receiving(self.regs())
    }

    /// The device's own counters are 32 bits wide, so call this at least once a second.
    ///
    /// Reading stops before the next counter when [`PortConfig::time_limit`] is over, or when its cancel flag is set
    /// during the call; if the flag was set before, it stops after a second. [`Statistics::unread`] is the number of
    /// counters not read; the next call, or closing, begins with them.
    fn statistics(&mut self) -> Result<Statistics> {
        let (_hurried, limit) = self.reading();
        Ok(self.counters.poll(Some(limit.begin()))?.into())
    }

    fn totals(&self) -> Statistics {
        self.counters.totals().into()
    }

    /// Reading stops before the next register, and returns `false`, under the same limits as in [`Self::statistics`].
    fn transmit_idle(&self) -> bool {
        let (_hurried, limit) = self.reading();
        let regs = Timed::new(self.regs(), limit.begin());
        (0..self.tx_queues).all(|index| match TxQueue::is_empty(&regs, index) {
            Ok(is_empty) => is_empty,
            Err(error) => matches!(error, Error::Gone { .. }),
        })
    }

    fn event_fds(&self) -> Vec<BorrowedFd<'_>> {
        self.shared.other_vector().map(|vector| vector.as_fd()).into_iter().collect()
    }

    fn events(&mut self) -> Result<Events> {
        let _command = Command::begin(self.regs(), &self.config.time_limit);
        // What happens between the two is told now, and once more wakes for nothing.
        if let Some(vector) = self.shared.other_vector() {
            vector.clear();
        }
        interrupts::take(self.regs())
    }

    /// Stops the device: turns the receiver off, sends the frames of the transmit queues as long as the link is up,
    /// disables the queues, drains DMA, resets, and turns bus mastering off (4.5, 5.2).
    ///
    /// All of it takes [`PortConfig::time_limit`] plus a second at most, provided that registers are memory and not
    /// messages to another process. When the time limit is over, the remaining steps are still requested of the device,
    /// but not waited for; the extra second is for taking memory access from it. Reading the counters takes up to a
    /// second of the time limit. The cancel flag is ignored, as it is usually the reason for closing a port.
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
        f.debug_struct("Port").field("name", &self.name()).field("model", &self.model).finish_non_exhaustive()
    }
}
