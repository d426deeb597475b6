//! A port: opening and closing a device, and controlling it while other threads use its queues.

use crate::regs::{Ixgbe, Registers};
use crate::stats::Counters;
use crate::wait::{Command, Timed, is_cancelled};
use crate::{
    Cage, Config, Error, Filters, HardwareStatistics, Model, Result, RxQueue, TxQueue, eeprom, init, interrupts, link,
    phy, rss,
};
use device::{Device, Regs, TimeLimit};
use ethdev::{
    Capabilities, ConfigError, Events, HashTypes, LinkStatus, MacAddress, Port as _, PortConfig, Reta, RssCapabilities,
    RxErrors, Statistics,
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
    let linked = init::reset(&regs, model.mac)?;
    let vectors = config.port.interrupts.enable(&**regs.device(), config.port.rx_queues + 1)?;
    match eeprom::check(&regs, model.mac) {
        Err(error @ Error::Gone { .. }) => return Err(error),
        Err(error) => {
            regs.check("the EEPROM to be read")?;
            tracing::warn!("the EEPROM's checksum cannot be verified: {error}");
        }
        Ok(_) => {}
    }
    let address = init::station_address(&regs)?;
    let cage = link::set_up(&regs, model, linked)?;
    #[expect(unsafe_code, reason = "a word for the device")]
    // SAFETY: bus mastering was turned off before the reset, and nothing else in this crate turns it on.
    let shared = Arc::new(unsafe { Shared::new(Registers::clone(&regs), vectors) });
    let mut port = Port {
        filters: Filters::new(&regs, address, &config.port)?,
        counters: Counters::new(&regs)?,
        shared,
        config: config.port.clone(),
        model,
        cage,
        address,
        rx_queues: 0,
        tx_queues: 0,
        closed: false,
    };
    let (mut rx, mut tx) = (Vec::new(), Vec::new());
    port.start(&regs, config, pool, &mut rx, &mut tx)?;
    regs.device().set_deadline(None);
    Ok(Opened { port, rx, tx })
}

/// The port of an open device: link, filters, statistics and closing.
///
/// Dropping it closes it; errors are then logged.
pub struct Port<D: Device> {
    shared: Arc<Shared<Ixgbe, D>>,
    model: Model,
    cage: Option<Cage>,
    address: [u8; 6],
    filters: Filters<D>,
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

    /// Starts the queues, transmit first, and lets frames in (4.6.7, 4.6.8).
    fn start(
        &mut self,
        regs: &Timed<D>,
        config: &Config,
        pool: &Pool,
        rx: &mut Vec<RxQueue<D>>,
        tx: &mut Vec<TxQueue<D>>,
    ) -> Result<()> {
        let mut memory = self.shared.begin_dma(config, pool)?;
        init::receive_path(self.regs(), config, self.model.mac)?;
        init::flow_control(self.regs(), config)?;
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
            interrupts::set_up(self.regs(), config)?;
        }
        init::announce(self.regs())?;
        init::start_receiving(regs)?;
        if interrupts {
            interrupts::watch(self.regs());
        }
        Ok(())
    }

    /// Returns the model of the device.
    #[must_use]
    pub fn model(&self) -> Model {
        self.model
    }

    /// Returns what was in the cage when the port was opened; `None` if it has no cage for SFP+ modules.
    #[must_use]
    pub fn cage(&self) -> Option<&Cage> {
        self.cage.as_ref()
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

    /// Returns the receive filters.
    pub fn filters(&mut self) -> &mut Filters<D> {
        &mut self.filters
    }

    /// Returns all counters of the device, as last read by [`ethdev::Port::statistics`].
    #[must_use]
    pub fn hardware_statistics(&self) -> &HardwareStatistics {
        self.counters.totals()
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
        result = result.and(phy::set_power(&regs, self.model.mac, false));
        result = result.and(init::stop(&regs, self.model.mac));
        // Without this step all memory would have to be kept.
        regs.device().set_deadline(Some(regs.afterwards(END_LIMIT).deadline().clone()));
        result = result.and(self.shared.end_dma());
        regs.device().set_deadline(None);
        self.shared.close();
        result
    }

    /// Waits, for a limited time, until the device has sent the frames that it was given.
    fn drain(&self, regs: &Timed<D>) -> Result<()> {
        let link = link::status(regs, self.model.mac)?;
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
        let mac = self.model.mac;
        let mut capabilities = Capabilities::new();
        (capabilities.rx_queues, capabilities.tx_queues, capabilities.mtu) = (64, 64, 9216);
        capabilities.rss = Some(RssCapabilities::new(mac.rss_queues(), mac.reta_entries(), HashTypes::ALL));
        (capabilities.set_mac, capabilities.set_promiscuous, capabilities.stop_receiving) = (true, true, true);
        capabilities.interrupts = self.shared.other_vector().is_some();
        (capabilities.strip_vlan, capabilities.report_hash, capabilities.loopback) = (true, true, true);
        capabilities
    }

    fn link(&self) -> Result<LinkStatus> {
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
        self.filters.set_promiscuous(on)
    }

    fn set_all_multicast(&mut self, on: bool) -> Result<()> {
        self.filters.set_all_multicast(on)
    }

    fn set_mac(&mut self, mac: MacAddress) -> Result<()> {
        if !mac.is_unicast() {
            return Err(ConfigError::new("mac", format!("{mac}: not the address of one station")).into());
        }
        self.filters.set_station(mac.0);
        self.address = mac.0;
        Ok(())
    }

    fn set_mtu(&mut self, mtu: u16) -> Result<()> {
        ConfigError::unless_in("mtu", mtu, 68..=self.config.mtu, "bytes")?;
        let _command = Command::begin(self.regs(), &self.config.time_limit);
        init::set_max_frame(self.regs(), Config::from(PortConfig { mtu, ..PortConfig::default() }).max_frame())
    }

    fn set_rss_table(&mut self, table: &Reta) -> Result<()> {
        let mac = self.model.mac;
        self.config.rss.with_table(table).validate(self.config.rx_queues, mac.rss_queues(), mac.reta_entries())?;
        let _command = Command::begin(self.regs(), &self.config.time_limit);
        rss::program_table(self.regs(), table, self.config.rx_queues, mac);
        // Whether the device is still there.
        link::status(self.regs(), mac).map(drop)
    }

    /// The loop is inside the MAC (HLREG0.LPBK), with the link forced up.
    fn set_loopback(&mut self, on: bool) -> Result<()> {
        let _command = Command::begin(self.regs(), &self.config.time_limit);
        let regs = Timed::new(self.regs(), self.config.time_limit.begin());
        link::set_loopback(&regs, self.model.mac, on)
    }

    /// Module or PHY, firmware, and what is done with PAUSE frames.
    fn parts(&self) -> Vec<(&'static str, String)> {
        let _command = Command::begin(self.regs(), &self.config.time_limit);
        let regs = Timed::new(self.regs(), self.config.time_limit.begin());
        crate::parts::describe(&regs, self.model, self.cage())
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
    /// disables the queues, drains DMA, resets, and turns bus mastering off (4.6.7.1.2, 4.6.8.2, 5.2.5.3.2).
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
