//! A port: opening and closing a device, and controlling it while other threads use its queues.

use crate::control::{MOST_GROUPS, SET_MAC};
use crate::negotiate::Agreed;
use crate::session::{PublishedCounters, Shared};
use crate::transport::Transport;
use crate::watcher::{ControlSide, GiveUp, Live, TICK, closing, unwatched};
use crate::{Config, Error, Fault, Features, Result, RxQueue, TxQueue, net};
use device::Deadline;
use ethdev::{Capabilities, ConfigError, LinkStatus, MacAddress, Port as _, Reta, Statistics};
use mempool::Pool;
use std::fmt;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// An open virtio device.
pub type Opened<T> = ethdev::Opened<Port<T>>;

/// Opens a device: resets it, negotiates features, and starts its queues with buffers from `pool`.
///
/// From then on a thread watches the device. If the device requests a reset, violates the rules of a ring, or goes away
/// (with vhost-user: its process ends), the thread resets it and brings it up again as soon as it is there; the queues
/// then continue by themselves. Before each new start there is a pause: 50 ms, then twice the previous one, up to 5 s,
/// until a session has lasted longer than that. A device that is absent is looked for again after 50 ms, doubling to
/// 500 ms.
///
/// [`ethdev::PortConfig::time_limit`] applies to the whole call. A device that was started already has 1 s more to give
/// memory back.
///
/// # Errors
///
/// If a setting is out of range, the device lacks what is needed or does not respond in time, or the pool has fewer
/// slots than the receive rings have descriptors. It is not an error if no back end has connected to a listening
/// vhost-user socket yet: the link is down until one does.
pub fn open<T: Transport>(transport: T, config: &Config, pool: &Pool) -> Result<Opened<T>> {
    config.validate()?;
    let deadline = transport.deadline().unwrap_or_else(|| config.port.time_limit.begin());
    transport.set_deadline(Some(deadline));
    let transport = Arc::new(transport);
    // A device that an earlier process left running must not reach memory that is about to be mapped.
    transport.reset()?;
    let vectors = transport.vectors(config.port.interrupts, config.port.rx_queues)?;
    let shared = Arc::new(Shared::new(transport, vectors));
    let rx: Vec<_> =
        (0..config.port.rx_queues).map(|n| RxQueue::new(&shared, n, config, pool)).collect::<Result<_>>()?;
    let tx: Vec<_> = (0..config.port.tx_queues).map(|n| TxQueue::new(&shared, n, pool)).collect::<Result<_>>()?;
    let control = Arc::new(ControlSide::new(config, pool));
    match control.bring_up(&shared, GiveUp::ForGood) {
        Ok(()) => {}
        Err(error @ Error::NoPeer { .. }) => {
            tracing::info!("{error}");
            let mut live = control.live();
            live.mac = net::mac(&*shared.transport)?;
            live.trouble = Some(error);
        }
        Err(error) => return Err(error),
    }
    let mut port = Port {
        rx: rx.iter().map(|queue| Arc::clone(queue.published_counters())).collect(),
        tx: tx.iter().map(|queue| Arc::clone(queue.published_counters())).collect(),
        open: true,
        watcher: None,
        control,
        shared,
    };
    port.shared.transport.set_deadline(None);
    port.watcher = Some(port.control.start_watcher(&port.shared)?);
    Ok(Opened { port, rx, tx })
}

/// The port of an open device: link, receive mode, totals and closing.
///
/// Dropping it closes it; errors are then logged.
pub struct Port<T: Transport> {
    rx: Vec<Arc<PublishedCounters>>,
    tx: Vec<Arc<PublishedCounters>>,
    /// The device has not been stopped yet.
    open: bool,
    watcher: Option<JoinHandle<()>>,
    control: Arc<ControlSide<T>>,
    shared: Arc<Shared<T>>,
}

impl<T: Transport> Port<T> {
    /// Returns the features in use; none while the device is away.
    #[must_use]
    pub fn features(&self) -> Features {
        self.control.live().agreed.as_ref().map_or_else(Features::default, |agreed| agreed.features)
    }

    /// Sends a command to a device that has the feature it needs. What `remember` changes in the settings holds when the
    /// device starts again.
    fn command(
        &self,
        needs: Features,
        command: impl FnOnce(&mut crate::control::Control<T>, &Deadline) -> Result<()>,
        remember: impl FnOnce(&mut Config),
    ) -> Result<()> {
        let deadline = self.control.config.port.time_limit.begin();
        let mut live = self.control.live();
        let Live { agreed, wanted, .. } = &mut *live;
        match agreed {
            None => Err(self.shared.transport.gone("no session with it; wait until its link is up")),
            Some(Agreed { features, control: Some(control), .. }) if features.contains(needs) => {
                let result = command(control, &deadline);
                if matches!(result, Err(Error::Timeout { .. } | Error::Interrupted { .. })) {
                    // The answer may still come, into memory that the next command would use.
                    self.shared.report_fault(self.shared.epoch(), Fault::ControlQueue);
                }
                if result.is_ok() {
                    remember(wanted);
                }
                result
            }
            Some(_) => Err(Error::negotiation(self.name(), format!("the device does not offer {needs}; do without"))),
        }
    }

    fn stop(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.open) {
            return Ok(());
        }
        self.control.stop();
        self.shared.close();
        if let Some(watcher) = self.watcher.take() {
            // It catches its own panics.
            let _ = watcher.join();
        }
        let agreed = self.control.live().agreed.take();
        drop(agreed);
        self.shared.transport.set_deadline(Some(closing(&self.control.config.port.time_limit)));
        let ended = self.shared.end();
        self.shared.transport.set_deadline(None);
        ended?;
        if self.control.live().unwatched { Err(unwatched(self.name())) } else { Ok(()) }
    }
}

/// A virtio device has no counters: [`Statistics`] are the frames that its queues have handed on.
impl<T: Transport> ethdev::Port for Port<T> {
    type Rx = RxQueue<T>;
    type Tx = TxQueue<T>;
    type Error = Error;

    fn name(&self) -> &str {
        self.shared.transport.name()
    }

    fn mac(&self) -> MacAddress {
        MacAddress(self.control.live().mac.unwrap_or_default())
    }

    fn numa_node(&self) -> Option<u32> {
        self.shared.transport.numa_node()
    }

    fn capabilities(&self) -> Capabilities {
        let live = self.control.live();
        let (features, net) =
            live.agreed.as_ref().map_or_else(Default::default, |agreed| (agreed.features, Some(agreed.net)));
        let mut capabilities = Capabilities::new();
        let pairs = net.map_or(self.control.config.pairs(), |net| net.pairs);
        (capabilities.rx_queues, capabilities.tx_queues) = (pairs, pairs);
        capabilities.mtu = net.and_then(|net| net.mtu).unwrap_or(9216);
        capabilities.set_mac = features.contains(SET_MAC);
        if let Some(hashable) = net.and_then(|net| net.hashable).filter(|_| features.contains(Features::RSS)) {
            capabilities.rss = Some(hashable.capabilities(self.control.config.pairs()));
        }
        capabilities.report_hash = features.contains(Features::HASH_REPORT);
        capabilities.set_promiscuous = features.contains(Features::CTRL_RX);
        capabilities.checksum_offload = features.contains(Features::CSUM);
        capabilities.interrupts = self.shared.vector(0).is_some();
        capabilities
    }

    /// The link is down while the device is away. Returns [`Error::Unwatched`] after a panic of the thread that watches
    /// the device.
    fn link(&self) -> Result<LinkStatus> {
        let live = self.control.live();
        if live.unwatched {
            return Err(unwatched(self.name()));
        }
        let Some(agreed) = &live.agreed else { return Ok(LinkStatus::default()) };
        let up = net::link_up(&*self.shared.transport, agreed.features)?;
        Ok(LinkStatus { up, speed_mbps: if up { SPEED_MBPS } else { 0 } })
    }

    /// If the link is still down at the end, it returns the error that prevents a session with the device, if there is
    /// one. That no back end has connected yet is not an error: then the link is reported as down.
    fn wait_link(&self, limit: Duration) -> Result<LinkStatus> {
        let begun = Instant::now();
        loop {
            let link = self.link()?;
            let left = limit.saturating_sub(begun.elapsed());
            if link.up || left.is_zero() {
                let trouble = self.control.live().trouble.take();
                return match trouble {
                    Some(error) if !link.up && !matches!(error, Error::NoPeer { .. }) => Err(error),
                    _ => Ok(link),
                };
            }
            let live = self.control.live();
            drop(self.control.changed.wait_timeout(live, left.min(TICK)).unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// A device without this mode passes on every frame that it is given.
    fn set_promiscuous(&mut self, on: bool) -> Result<()> {
        if on && !self.features().contains(Features::CTRL_RX) {
            return Ok(());
        }
        let remember = |wanted: &mut Config| wanted.port.promiscuous = on;
        self.command(Features::CTRL_RX, |control, deadline| control.set_promiscuous(on, deadline), remember)
    }

    /// A device without this mode passes on every frame that it is given.
    fn set_all_multicast(&mut self, on: bool) -> Result<()> {
        if on && !self.features().contains(Features::CTRL_RX) {
            return Ok(());
        }
        let remember = |wanted: &mut Config| wanted.port.all_multicast = on;
        self.command(Features::CTRL_RX, |control, deadline| control.set_all_multicast(on, deadline), remember)
    }

    /// A device without receive modes passes on every frame that it is given.
    fn set_groups(&mut self, groups: &[MacAddress]) -> Result<()> {
        ConfigError::unless_groups(groups)?;
        let groups: Vec<_> = groups.iter().map(|group| group.0).collect();
        let count = groups.len();
        if !self.features().contains(Features::CTRL_RX) {
            self.control.live().wanted.groups = groups;
            return Ok(());
        }
        let (told, remember) = (groups.clone(), |wanted: &mut Config| wanted.groups = groups);
        self.command(Features::CTRL_RX, |control, deadline| control.set_groups(&told, deadline), remember)?;
        if count <= MOST_GROUPS {
            return Ok(());
        }
        let problem = format!("{count} of them: a command has room for {MOST_GROUPS}, and the first are received");
        Err(ConfigError::new("groups", problem).into())
    }

    /// A device without `VIRTIO_NET_F_CTRL_VLAN` passes on frames with any tag.
    fn set_vlan(&mut self, id: u16, on: bool) -> Result<()> {
        ConfigError::unless_in("vlan", id, 0..=4094, "")?;
        let remember = |wanted: &mut Config| {
            let _ = if on { wanted.vlans.insert(id) } else { wanted.vlans.remove(&id) };
        };
        if !self.features().contains(Features::CTRL_VLAN) {
            remember(&mut self.control.live().wanted);
            return Ok(());
        }
        self.command(Features::CTRL_VLAN, |control, deadline| control.set_vlan(id, on, deadline), remember)
    }

    fn set_mac(&mut self, mac: MacAddress) -> Result<()> {
        if !mac.is_unicast() {
            return Err(ConfigError::new("mac", format!("{mac}: not the address of one station")).into());
        }
        let remember = |wanted: &mut Config| wanted.mac = Some(mac.0);
        self.command(SET_MAC, |control, deadline| control.set_mac(mac.0, deadline), remember)?;
        self.control.live().mac = Some(mac.0);
        Ok(())
    }

    fn set_rss_table(&mut self, table: &Reta) -> Result<()> {
        let (rss, hashable) = {
            let live = self.control.live();
            (live.wanted.port.rss.with_table(table), live.agreed.as_ref().and_then(|agreed| agreed.net.hashable))
        };
        let queues = self.control.config.pairs();
        let mut data = Vec::new();
        if let Some(hashable) = hashable {
            hashable.check(&rss, queues)?;
            data = hashable.rss_command(&rss, queues);
        }
        self.command(
            Features::RSS,
            |control, deadline| control.set_rss(&data, deadline),
            |wanted| wanted.port.rss = rss,
        )
    }

    fn totals(&self) -> Statistics {
        Statistics::of_queues(self.rx.iter().map(|queue| queue.get()), self.tx.iter().map(|queue| queue.get()))
    }

    /// Returns whether the device has reported everything done that transmit queues were seen to hand to it.
    fn transmit_idle(&self) -> bool {
        !self.tx.iter().any(|queue| queue.is_busy())
    }

    /// Resets the device.
    ///
    /// It takes [`ethdev::PortConfig::time_limit`] at most, or 1 s if its cancel flag is set; that flag does not
    /// prevent closing a port. Returns [`Error::Unwatched`] if the device confirmed that it is quiet, but the thread
    /// that watched it had panicked.
    fn close(mut self) -> Result<Statistics> {
        self.stop()?;
        Ok(self.totals())
    }
}

/// A virtio device has no speed of its own; Linux and DPDK call it 10 Gbit/s.
const SPEED_MBPS: u32 = 10_000;

impl<T: Transport> Drop for Port<T> {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            tracing::warn!("closing: {error}");
        }
    }
}

impl<T: Transport> fmt::Debug for Port<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port").field("name", &self.name()).finish_non_exhaustive()
    }
}
