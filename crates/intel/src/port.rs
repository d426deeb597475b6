//! A port: what opening, controlling and closing a device have in common, whatever its family.

use crate::wait::{Command, Timed, is_cancelled};
use crate::{Error, Family, Result, RxQueue, Shared, TxQueue};
use device::{Deadline, Device, Regs, TimeLimit};
use ethdev::{
    Capabilities, ConfigError, Events, LinkStatus, MacAddress, Opened, Port as _, PortConfig, Reta, Rss, Statistics,
    Unsupported,
};
use mempool::Pool;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

/// What a driver has of its own behind a [`Port`].
///
/// Registers come with the time of the operation that they are used for. Whatever reads one may return [`Error::Gone`].
pub trait Card: fmt::Debug {
    /// The family of the device.
    type Family: Family;
    /// How the device is reached.
    type Device: Device;

    /// KiB that may still be on their way to the wire when the transmit rings are empty.
    const TRANSMIT_BUFFER_KIB: u32;

    /// Returns the station address.
    fn mac(&self) -> [u8; 6];

    /// Returns what the device can do, interrupts apart.
    fn capabilities(&self, regs: &Registers<Self>) -> Capabilities;

    /// Returns the totals of all counters as last read.
    fn totals(&self) -> Statistics;

    /// Reads all counters, as many as there is time for.
    fn count(&mut self, deadline: Deadline) -> Result<()>;

    /// Sets up all of receiving and sending that is not part of a queue.
    fn set_up(&mut self, regs: &During<Self>, config: &Settings<Self>) -> Result<()>;

    /// Lets frames in, and interrupts if there are any: the queues are enabled, and filled unless [`Family::RECEIVER_FIRST`].
    fn begin(&mut self, regs: &During<Self>, config: &Settings<Self>, interrupts: bool) -> Result<()>;

    /// The first step of closing: no more frames come in.
    fn begin_end(&mut self, regs: &During<Self>) -> Result<()> {
        self.stop_receiving(regs)
    }

    /// The last step of closing, before the device loses its access to memory: its queues are disabled.
    fn end(&mut self, regs: &During<Self>) -> Result<()>;

    /// Returns the present state of the link.
    fn status(&self, regs: &Registers<Self>) -> Result<LinkStatus>;

    /// As [`ethdev::Port::wait_link`].
    fn wait_link(&self, regs: &During<Self>, limit: Duration) -> Result<LinkStatus>;

    /// Whether nothing that was handed to the device will ever be sent.
    fn is_lost(&self) -> bool {
        false
    }

    /// As [`ethdev::Port::events`].
    fn events(&mut self, regs: &During<Self>) -> Result<Events>;

    /// As [`ethdev::Port::parts`].
    fn parts(&self, regs: &During<Self>) -> Vec<(&'static str, String)>;

    /// As [`ethdev::Port::set_promiscuous`].
    fn set_promiscuous(&mut self, regs: &During<Self>, on: bool) -> Result<()>;

    /// As [`ethdev::Port::set_all_multicast`].
    fn set_all_multicast(&mut self, regs: &During<Self>, on: bool) -> Result<()>;

    /// As [`ethdev::Port::set_groups`], of multicast addresses.
    fn set_groups(&mut self, regs: &During<Self>, groups: &[MacAddress]) -> Result<()>;

    /// As [`ethdev::Port::set_vlan`], of an id that there is.
    fn set_vlan(&mut self, regs: &During<Self>, id: u16, on: bool) -> Result<()> {
        let _ = (regs, id, on);
        Ok(())
    }

    /// As [`ethdev::Port::set_mac`], of an address of one station.
    fn set_mac(&mut self, regs: &During<Self>, mac: [u8; 6]) -> Result<()>;

    /// As [`ethdev::Port::set_mtu`], of an MTU that the rings were made for.
    fn set_mtu(&mut self, regs: &During<Self>, mtu: u16) -> Result<()>;

    /// As [`ethdev::Port::set_rss_table`]; the table is valid.
    fn set_rss_table(&mut self, regs: &During<Self>, rss: &Rss, queues: u16) -> Result<()>;

    /// As [`ethdev::Port::set_loopback`].
    fn set_loopback(&mut self, regs: &During<Self>, on: bool) -> Result<()> {
        let _ = on;
        Err(Unsupported::new(regs.device().name(), "loop frames back inside itself").into())
    }

    /// As [`ethdev::Port::stop_receiving`].
    fn stop_receiving(&mut self, regs: &During<Self>) -> Result<()> {
        let _ = regs;
        Ok(())
    }
}

/// Registers of a card.
pub type Registers<C> = Regs<<C as Card>::Family, <C as Card>::Device>;
/// The same during an operation.
pub type During<C> = Timed<<C as Card>::Family, <C as Card>::Device>;
/// Settings of its ports.
pub type Settings<C> = <<C as Card>::Family as Family>::Config;

/// Takes charge of a device for as long as opening it may take: from here on it reaches no memory, whatever an earlier process has
/// left running.
///
/// # Errors
///
/// If the device is none of the family, or bus mastering cannot be turned off.
pub fn take<F: Family, D: Device>(device: D, limit: &TimeLimit) -> Result<Timed<F, D>> {
    let deadline = device.deadline().unwrap_or_else(|| limit.begin());
    device.set_deadline(Some(deadline.clone()));
    device.set_bus_master(false)?;
    Ok(Timed::new(&Regs::new(Arc::new(device))?, deadline))
}

/// The port of an open device: link, filters, statistics and closing. It dereferences to what its driver has of its own.
///
/// Dropping it closes it; errors are then logged.
pub struct Port<C: Card> {
    card: C,
    shared: Arc<Shared<C::Family, C::Device>>,
    config: PortConfig,
    rx_queues: u32,
    tx_queues: u32,
    closed: bool,
}

impl<C: Card> Port<C> {
    /// Starts the queues of a device that has been reset, transmit first, and lets frames in (82599 datasheet 4.6.7, 4.6.8; 82576
    /// datasheet 4.5). The time limit that [`take`] has set for the device's answers ends.
    ///
    /// # Errors
    ///
    /// Those of each step. The device is stopped then.
    pub fn start(
        card: C,
        shared: Shared<C::Family, C::Device>,
        regs: &During<C>,
        config: &Settings<C>,
        pool: &Pool,
    ) -> Result<Opened<Self>> {
        let general = C::Family::port(config).clone();
        let shared = Arc::new(shared);
        let mut port = Self { card, shared, config: general, rx_queues: 0, tx_queues: 0, closed: false };
        let (mut rx, mut tx) = (Vec::new(), Vec::new());
        let mut memory = port.shared.begin_dma(config, pool)?;
        port.card.set_up(regs, config)?;
        for index in 0..port.config.tx_queues.into() {
            port.tx_queues += 1;
            tx.push(TxQueue::start(&mut memory, index, config, pool, regs.deadline())?);
        }
        for index in 0..port.config.rx_queues.into() {
            port.rx_queues += 1;
            rx.push(RxQueue::start(&mut memory, index, config, pool, regs.deadline())?);
        }
        let interrupts = port.shared.other_vector().is_some();
        if C::Family::RECEIVER_FIRST {
            port.card.begin(regs, config, interrupts)?;
        }
        rx.iter().try_for_each(|queue| queue.fill(regs.deadline()))?;
        if !C::Family::RECEIVER_FIRST {
            port.card.begin(regs, config, interrupts)?;
        }
        regs.device().set_deadline(None);
        Ok(Opened { port, rx, tx })
    }

    fn regs(&self) -> &Registers<C> {
        self.shared.regs()
    }

    /// Does something with the card that takes the port's time limit at most.
    fn command<T>(&mut self, work: impl FnOnce(&mut C, &During<C>) -> Result<T>) -> Result<T> {
        let (regs, limit) = (self.shared.regs(), &self.config.time_limit);
        let _command = Command::begin(regs, limit);
        work(&mut self.card, &Timed::new(regs, limit.begin()))
    }

    /// Returns the time limit of an operation that reads many registers, to be checked before each of them. If the cancel
    /// flag is set already, the limit is a second, and the device has two seconds for its answers until the command is dropped.
    fn reading(&self) -> (Option<Command<C::Device>>, TimeLimit) {
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
        let mut result = self.card.begin_end(&regs);
        for index in 0..self.rx_queues {
            result = result.and(RxQueue::disable(&regs, index));
        }
        result = result.and(self.drain(&regs));
        for index in 0..self.tx_queues {
            result = result.and(TxQueue::disable(&regs, index));
        }
        result = result.and(self.card.count(regs.deadline().at_most(END_LIMIT)));
        result = result.and(self.card.end(&regs));
        // Without this step all memory would have to be kept.
        regs.device().set_deadline(Some(regs.afterwards(END_LIMIT).deadline().clone()));
        result = result.and(self.shared.end_dma());
        regs.device().set_deadline(None);
        self.shared.close();
        result
    }

    /// Waits, for a limited time, until the device has sent the frames that it was given.
    fn drain(&self, regs: &During<C>) -> Result<()> {
        let link = self.card.status(regs)?;
        if !link.up {
            return Ok(());
        }
        (0..self.tx_queues).try_for_each(|index| TxQueue::drain(regs, index))?;
        // What has left the rings may still be in the device's buffer.
        let bits = u64::from(C::TRANSMIT_BUFFER_KIB) * 1024 * 8;
        regs.sleep(Duration::from_micros(bits / u64::from(link.speed_mbps.max(1))), "the last frames to leave")
    }
}

/// Each call takes [`PortConfig::time_limit`] at most, and longer only where a method says so. A device that does not
/// answer within that time is treated as gone.
impl<C: Card> ethdev::Port for Port<C> {
    type Rx = RxQueue<C::Family, C::Device>;
    type Tx = TxQueue<C::Family, C::Device>;
    type Error = Error;

    fn name(&self) -> &str {
        self.regs().device().name()
    }

    fn mac(&self) -> MacAddress {
        MacAddress(self.card.mac())
    }

    fn numa_node(&self) -> Option<u32> {
        self.regs().device().numa_node()
    }

    fn capabilities(&self) -> Capabilities {
        let mut capabilities = self.card.capabilities(self.regs());
        capabilities.interrupts = self.shared.other_vector().is_some();
        capabilities
    }

    fn link(&self) -> Result<LinkStatus> {
        let _command = Command::begin(self.regs(), &self.config.time_limit);
        self.card.status(self.regs())
    }

    /// The device has the sum of `limit` and [`PortConfig::time_limit`] for its answers.
    fn wait_link(&self, limit: Duration) -> Result<LinkStatus> {
        let own = &self.config.time_limit;
        let both = TimeLimit { total: own.total.saturating_add(limit), ..own.clone() };
        let _command = Command::begin(self.regs(), &both);
        let operation = TimeLimit { total: limit, cancel: own.cancel.clone() };
        self.card.wait_link(&Timed::new(self.regs(), operation.begin()), limit)
    }

    fn set_promiscuous(&mut self, on: bool) -> Result<()> {
        self.command(|card, regs| card.set_promiscuous(regs, on))
    }

    fn set_all_multicast(&mut self, on: bool) -> Result<()> {
        self.command(|card, regs| card.set_all_multicast(regs, on))
    }

    fn set_groups(&mut self, groups: &[MacAddress]) -> Result<()> {
        ConfigError::unless_groups(groups)?;
        self.command(|card, regs| card.set_groups(regs, groups))
    }

    fn set_vlan(&mut self, id: u16, on: bool) -> Result<()> {
        ConfigError::unless_in("vlan", id, 0..=4094, "")?;
        self.command(|card, regs| card.set_vlan(regs, id, on))
    }

    fn set_mac(&mut self, mac: MacAddress) -> Result<()> {
        if !mac.is_unicast() {
            return Err(ConfigError::new("mac", format!("{mac}: not the address of one station")).into());
        }
        self.command(|card, regs| card.set_mac(regs, mac.0))
    }

    /// A limit below an earlier one need not count, where other functions of the device may have asked for more.
    fn set_mtu(&mut self, mtu: u16) -> Result<()> {
        ConfigError::unless_in("mtu", mtu, 68..=self.config.mtu, "bytes")?;
        self.command(|card, regs| card.set_mtu(regs, mtu))
    }

    fn set_rss_table(&mut self, table: &Reta) -> Result<()> {
        let Some(reach) = self.capabilities().rss else {
            return Err(self.unsupported("change its RSS table"));
        };
        let (rss, queues) = (self.config.rss.with_table(table), self.config.rx_queues);
        rss.validate(queues, reach.queues, reach.table)?;
        self.command(|card, regs| card.set_rss_table(regs, &rss, queues))
    }

    fn set_loopback(&mut self, on: bool) -> Result<()> {
        self.command(|card, regs| card.set_loopback(regs, on))
    }

    fn parts(&self) -> Vec<(&'static str, String)> {
        let _command = Command::begin(self.regs(), &self.config.time_limit);
        self.card.parts(&Timed::new(self.regs(), self.config.time_limit.begin()))
    }

    fn stop_receiving(&mut self) -> Result<()> {
        self.command(|card, regs| card.stop_receiving(regs))
    }

    /// The device's own counters are narrow, so call this at least once a second.
    ///
    /// Reading stops before the next counter when [`PortConfig::time_limit`] is over, or when its cancel flag is set
    /// during the call; if the flag was set before, it stops after a second. [`Statistics::unread`] is the number of
    /// counters not read; the next call, or closing, begins with them.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] when the physical function behind a virtual one was reset, after which the counters mean nothing;
    /// [`Error::Gone`].
    fn statistics(&mut self) -> Result<Statistics> {
        let (_hurried, limit) = self.reading();
        self.card.count(limit.begin())?;
        Ok(self.card.totals())
    }

    fn totals(&self) -> Statistics {
        self.card.totals()
    }

    /// Reading stops before the next register, and returns `false`, under the same limits as in [`Self::statistics`]. After a reset
    /// of the physical function nothing is sent any more, and there is nothing to wait for.
    fn transmit_idle(&self) -> bool {
        let (_hurried, limit) = self.reading();
        let regs = Timed::new(self.regs(), limit.begin());
        self.card.is_lost()
            || (0..self.tx_queues).all(|index| match TxQueue::is_empty(&regs, index) {
                Ok(is_empty) => is_empty,
                Err(error) => matches!(error, Error::Gone { .. }),
            })
    }

    fn event_fds(&self) -> Vec<BorrowedFd<'_>> {
        self.shared.other_vector().map(|vector| vector.as_fd()).into_iter().collect()
    }

    fn events(&mut self) -> Result<Events> {
        // What happens between the two is told now, and once more wakes for nothing.
        if let Some(vector) = self.shared.other_vector() {
            vector.clear();
        }
        self.command(|card, regs| card.events(regs))
    }

    /// Stops the device: no more frames come in, those of the transmit queues are sent as long as the link is up, the queues are
    /// disabled, the device is reset, and bus mastering is turned off, by which memory accesses end (82599 datasheet 4.6.7.1.2, 4.6.8.2,
    /// 5.2.5.3.2; 82576 datasheet 4.5, 5.2).
    ///
    /// All of it takes [`PortConfig::time_limit`] plus a second at most, provided that registers are memory and not
    /// messages to another process. When the time limit is over, the remaining steps are still requested of the device,
    /// but not waited for; the extra second is for taking memory access from it. Reading the counters takes up to a
    /// second of the time limit. The cancel flag is ignored, as it is usually the reason for closing a port.
    fn close(mut self) -> Result<Statistics> {
        self.stop()?;
        Ok(self.card.totals())
    }
}

/// Time to take memory access from a device that is closed, and for reading many registers when all is to end.
const END_LIMIT: Duration = Duration::from_secs(1);

impl<C: Card> Drop for Port<C> {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            tracing::warn!("closing: {error}");
        }
    }
}

impl<C: Card> Deref for Port<C> {
    type Target = C;

    fn deref(&self) -> &C {
        &self.card
    }
}

impl<C: Card> DerefMut for Port<C> {
    fn deref_mut(&mut self) -> &mut C {
        &mut self.card
    }
}

impl<C: Card> fmt::Debug for Port<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port").field("name", &self.name()).field("card", &self.card).finish_non_exhaustive()
    }
}
