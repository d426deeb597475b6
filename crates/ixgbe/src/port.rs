//! A port: opening and closing a device, and control of it while its queues are at work elsewhere.

use crate::regs::Registers;
use crate::ring::{RingMemory, Shared};
use crate::stats::Counters;
use crate::wait::{Command, Timed, is_cancelled};
use crate::{
    Config, Error, Events, Filters, LinkStatus, Model, Result, RxQueue, Statistics, TxQueue, eeprom, init, interrupts,
    link, rx, tx,
};
use device::{Device, Regs, TimeLimit};
use mempool::Pool;
use std::fmt;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

/// An open device: the port to control it, and its queues to be sent to threads.
#[derive(Debug)]
pub struct Opened<D: Device> {
    /// Control of the port. Dropping it stops the device, after which the queues receive and send nothing.
    pub port: Port<D>,
    /// Receive queues, by number.
    pub rx: Vec<RxQueue<D>>,
    /// Transmit queues, by number.
    pub tx: Vec<TxQueue<D>>,
}

/// Opens a device of this family: resets it, sets up the link, and starts its queues with buffers from `pool`. The
/// link may take seconds to come up; see [`Port::wait_link`].
///
/// The device is moved in, so that nobody else can drive it.
///
/// # Errors
///
/// When the driver does not know the device, a setting is out of range, the device does not do its part in time, or
/// the pool has fewer slots than the receive rings have descriptors. [`Error::Expired`] when all of it together takes longer
/// than it may, or is cancelled ([`Config::time_limit`]); stopping the device then takes a time limit of its own.
pub fn open<D: Device>(device: D, config: &Config, pool: &Pool) -> Result<Opened<D>> {
    let model = Model::identify(device.ids())?;
    config.validate(model.mac)?;
    let deadline = device.deadline().unwrap_or_else(|| config.time_limit.begin());
    device.set_deadline(Some(deadline.clone()));
    // A device that an earlier process left running must not reach memory that is about to be mapped.
    device.set_bus_master(false)?;
    let regs: Registers<D> = Regs::new(Arc::new(device))?;
    let regs = Timed::new(&regs, deadline);
    regs.check("its turn to be opened")?;
    init::reset(&regs)?;
    let vectors = config.interrupts.enable(&**regs.device(), config.rx_queues + 1)?;
    match eeprom::check(&regs, model.mac) {
        Err(error @ Error::Gone { .. }) => return Err(error),
        Err(error) => {
            regs.check("the EEPROM to be read")?;
            tracing::warn!("the EEPROM's checksum cannot be verified: {error}");
        }
        Ok(_) => {}
    }
    let address = init::station_address(&regs)?;
    link::set_up(&regs, model)?;
    let mut port = Port {
        filters: Filters::new(&regs, address, config)?,
        counters: Counters::new(&regs)?,
        shared: Arc::new(Shared::new(Registers::clone(&regs), vectors)),
        time_limit: config.time_limit.clone(),
        model,
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

/// Control of an open device: link, filters, statistics, and the end of it.
///
/// Dropping it closes it; errors are logged then.
pub struct Port<D: Device> {
    shared: Arc<Shared<D>>,
    model: Model,
    address: [u8; 6],
    filters: Filters<D>,
    counters: Counters<D>,
    time_limit: TimeLimit,
    rx_queues: u32,
    tx_queues: u32,
    closed: bool,
}

impl<D: Device> Port<D> {
    fn regs(&self) -> &Registers<D> {
        &self.shared.regs
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
        let device = Arc::clone(self.regs().device());
        let rings: Vec<usize> = std::iter::repeat_n(usize::from(config.rx_ring), config.rx_queues.into())
            .chain(std::iter::repeat_n(usize::from(config.tx_ring), config.tx_queues.into()))
            .collect();
        let mut memory = RingMemory::allocate(device.dma(), &rings, device.numa_node())?;
        device.dma().map(pool.memory())?;
        self.shared.begin_dma()?;
        init::receive_path(self.regs(), config, self.model.mac)?;
        init::transmit_path(self.regs())?;
        for index in 0..config.tx_queues.into() {
            self.tx_queues += 1;
            tx.push(TxQueue::start(&self.shared, &mut memory, index, config, pool, regs)?);
        }
        for index in 0..config.rx_queues.into() {
            self.rx_queues += 1;
            rx.push(RxQueue::start(&self.shared, &mut memory, index, config, pool, regs)?);
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

    /// The address by which the device was opened.
    #[must_use]
    pub fn name(&self) -> &str {
        self.regs().device().name()
    }

    /// What device it is.
    #[must_use]
    pub fn model(&self) -> Model {
        self.model
    }

    /// The NUMA node it is attached to, if known.
    #[must_use]
    pub fn numa_node(&self) -> Option<u32> {
        self.regs().device().numa_node()
    }

    /// The station address.
    #[must_use]
    pub fn mac(&self) -> [u8; 6] {
        self.address
    }

    /// The link's state now.
    ///
    /// # Errors
    ///
    /// [`Error::Gone`], also when the device does not answer within [`Config::time_limit`].
    pub fn link(&self) -> Result<LinkStatus> {
        let _command = Command::begin(self.regs(), &self.time_limit);
        link::status(self.regs(), self.model.mac)
    }

    /// Waits until the link is up, for `limit` at most or until the cancel flag of [`Config::time_limit`] is set, and returns
    /// its state then.
    ///
    /// # Errors
    ///
    /// [`Error::Gone`], also when the device does not answer within `limit` and [`Config::time_limit`] together.
    pub fn wait_link(&self, limit: Duration) -> Result<LinkStatus> {
        let both = TimeLimit { total: self.time_limit.total.saturating_add(limit), ..self.time_limit.clone() };
        let _command = Command::begin(self.regs(), &both);
        let operation = TimeLimit { total: limit, cancel: self.time_limit.cancel.clone() };
        link::wait_link(&Timed::new(self.regs(), operation.begin()), self.model.mac, limit)
    }

    /// What becomes readable when [`Self::events`] has something to tell; `None` without interrupts.
    #[must_use]
    pub fn eventfd(&self) -> Option<BorrowedFd<'_>> {
        self.shared.other_vector().map(|vector| vector.as_fd())
    }

    /// What has happened since the last call. Without interrupts it tells all the same, but nothing wakes anybody.
    ///
    /// # Errors
    ///
    /// [`Error::Gone`], also when the device does not answer within [`Config::time_limit`].
    pub fn events(&mut self) -> Result<Events> {
        let _command = Command::begin(self.regs(), &self.time_limit);
        // What happens between the two is told now, and once more wakes for nothing.
        if let Some(vector) = self.shared.other_vector() {
            vector.clear();
        }
        interrupts::take(self.regs())
    }

    /// Whether the device is known to have sent all frames that its transmit queues took. Reading ends before the next
    /// register, with `false`, as [`Self::statistics`] does.
    ///
    /// # Errors
    ///
    /// [`Error::Gone`].
    pub fn transmit_idle(&self) -> Result<bool> {
        let (_hurried, limit) = self.reading();
        let regs = Timed::new(self.regs(), limit.begin());
        for index in 0..self.tx_queues {
            match tx::is_empty(&regs, index) {
                Ok(true) => {}
                Ok(false) | Err(Error::Expired { .. }) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// The limit of reading many registers, to be looked at between any two. If the cancel flag is set already it is a second,
    /// and until the other value is dropped the device has two seconds for its answers.
    fn reading(&self) -> (Option<Command<D>>, TimeLimit) {
        if !is_cancelled(&self.time_limit) {
            return (None, self.time_limit.clone());
        }
        let limit = TimeLimit { total: self.time_limit.total.min(END_LIMIT), cancel: None };
        (Some(Command::begin(self.regs(), &self.time_limit)), limit)
    }

    /// Which frames the device receives.
    pub fn filters(&mut self) -> &mut Filters<D> {
        &mut self.filters
    }

    /// Reads the device's counters and returns the totals since opening. The device's own counters are 32 bits wide:
    /// call this at least once a second.
    ///
    /// Reading ends before the next counter when [`Config::time_limit`] is over, or when its cancel flag is set meanwhile; if
    /// the flag was set before, after a second. [`Statistics::unread`] says how many counters are left; the next call, or
    /// [`Self::close`], begins with them.
    ///
    /// # Errors
    ///
    /// [`Error::Gone`]; the totals stay readable through [`Self::totals`].
    pub fn statistics(&mut self) -> Result<&Statistics> {
        let (_hurried, limit) = self.reading();
        self.counters.poll(Some(limit.begin()))
    }

    /// The totals as last read.
    #[must_use]
    pub fn totals(&self) -> &Statistics {
        self.counters.totals()
    }

    /// Takes no more frames from the wire until the device is opened anew. What has arrived can still be received.
    ///
    /// # Errors
    ///
    /// [`Error::Gone`], also when the device does not answer within [`Config::time_limit`].
    pub fn stop_receiving(&mut self) -> Result<()> {
        let _command = Command::begin(self.regs(), &self.time_limit);
        init::stop_receiving(self.regs())
    }

    /// Stops the device: receiver off, frames of the transmit queues sent as long as the link is up, queues disabled, DMA
    /// drained, reset, bus mastering off (4.6.7.1.2, 4.6.8.2, 5.2.5.3.2). Returns the final totals. Buffers in the rings go
    /// back to their pools as the queues are dropped.
    ///
    /// All of it takes [`Config::time_limit`] and a second at most, as far as registers are memory and not messages to
    /// another process: when time is up, each step that is left is still asked of the device, and not waited for, and taking
    /// memory access from it has the second. Reading the counters has a second of the first. The cancel flag is not looked at:
    /// it is usually why a port is closed.
    ///
    /// # Errors
    ///
    /// The first step that failed; all others were done all the same. Memory that the device may still reach is kept.
    pub fn close(mut self) -> Result<Statistics> {
        self.stop()?;
        Ok(self.counters.totals().clone())
    }

    fn stop(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.closed, true) {
            return Ok(());
        }
        let operation = TimeLimit { total: self.time_limit.total, cancel: None };
        let regs = Timed::new(self.regs(), operation.begin());
        regs.device().set_deadline(Some(regs.deadline().clone()));
        let mut result = init::stop_receiving(&regs);
        for index in 0..self.rx_queues {
            result = result.and(rx::disable(&regs, index));
        }
        result = result.and(self.drain(&regs));
        for index in 0..self.tx_queues {
            result = result.and(tx::disable(&regs, index));
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

    /// Lets frames that the device was given leave by the wire, within limits.
    fn drain(&self, regs: &Timed<D>) -> Result<()> {
        let link = link::status(regs, self.model.mac)?;
        if !link.up {
            return Ok(());
        }
        (0..self.tx_queues).try_for_each(|index| tx::drain(regs, index))?;
        // What has left the rings may still be in the device's buffer.
        let bits = u64::from(init::TRANSMIT_BUFFER_KIB) * 1024 * 8;
        regs.sleep(Duration::from_micros(bits / u64::from(link.speed.max(1))), "the last frames to leave")
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
