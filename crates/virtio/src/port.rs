//! A port: opening and closing a device, control of it while its queues are at work elsewhere, and the thread that brings
//! it back when it has gone away.

use crate::negotiate::{self, Agreed};
use crate::session::{Shared, Tally};
use crate::transport::{Attention, Transport};
use crate::{Config, Error, Fault, Features, Result, RxQueue, TxQueue, net};
use mempool::Pool;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// An open device: the port to control it, and its queues to be sent to threads.
#[derive(Debug)]
pub struct Opened<T: Transport> {
    /// Control of the port. Dropping it stops the device, after which the queues receive and send nothing.
    pub port: Port<T>,
    /// Receive queues, by number.
    pub rx: Vec<RxQueue<T>>,
    /// Transmit queues, by number.
    pub tx: Vec<TxQueue<T>>,
}

/// The link's state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStatus {
    /// Frames can pass.
    pub up: bool,
}

/// Frames and bytes that the queues of a port have handed on: a virtio device does not count itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Frames received.
    pub rx_packets: u64,
    /// Their bytes, without frame check sequence.
    pub rx_bytes: u64,
    /// Frames handed to the device.
    pub tx_packets: u64,
    /// Their bytes, without frame check sequence.
    pub tx_bytes: u64,
}

/// Opens a device: resets it, agrees on features, and starts its queues with buffers from `pool`.
///
/// From then on a thread watches the device. When it asks for a reset, breaks the rules of a ring, or goes away (with
/// vhost-user: its process ends), the thread resets it and brings it up again as soon as it is there; the queues go on by
/// themselves.
///
/// # Errors
///
/// When a setting is out of range, the device lacks what is needed or does not do its part in time, or the pool has fewer
/// slots than the receive rings have descriptors. That nobody has connected to a listening vhost-user socket yet is no
/// error: the link is down until somebody does.
pub fn open<T: Transport>(transport: T, config: &Config, pool: &Pool) -> Result<Opened<T>> {
    config.validate()?;
    let transport = Arc::new(transport);
    // A device that an earlier process left running must not reach memory that is about to be mapped.
    transport.reset()?;
    let vectors = transport.vectors(config.interrupts, config.rx_queues)?;
    let shared = Arc::new(Shared::new(transport, vectors));
    let rx: Vec<_> = (0..config.rx_queues).map(|n| RxQueue::new(&shared, n, config, pool)).collect::<Result<_>>()?;
    let tx: Vec<_> = (0..config.tx_queues).map(|n| TxQueue::new(&shared, n, pool)).collect::<Result<_>>()?;
    let control = Arc::new(ControlSide {
        config: config.clone(),
        pool: pool.clone(),
        live: Mutex::new(Live { agreed: None, mac: None, trouble: None }),
        changed: Condvar::new(),
        stop: AtomicBool::new(false),
    });
    match control.bring_up(&shared) {
        Ok(()) => {}
        Err(error @ Error::NoPeer { .. }) => {
            tracing::info!("{error}");
            let mut live = control.live();
            live.mac = net::mac(&*shared.transport)?;
            live.trouble = Some(error);
        }
        Err(error) => return Err(error),
    }
    let port = Port {
        rx: rx.iter().map(|queue| Arc::clone(queue.tally())).collect(),
        tx: tx.iter().map(|queue| (Arc::clone(queue.tally()), Arc::clone(queue.in_flight_gauge()))).collect(),
        keeper: Some(control.keep(&shared)?),
        control,
        shared,
    };
    Ok(Opened { port, rx, tx })
}

/// Control of an open device: link, receive mode, totals, and the end of it.
///
/// Dropping it closes it; errors are logged then.
pub struct Port<T: Transport> {
    rx: Vec<Arc<Tally>>,
    tx: Vec<(Arc<Tally>, Arc<AtomicUsize>)>,
    keeper: Option<JoinHandle<()>>,
    control: Arc<ControlSide<T>>,
    shared: Arc<Shared<T>>,
}

/// What the port and its keeper share.
struct ControlSide<T: Transport> {
    config: Config,
    pool: Pool,
    live: Mutex<Live<T>>,
    /// A session has begun.
    changed: Condvar,
    stop: AtomicBool,
}

struct Live<T: Transport> {
    /// Of the present session.
    agreed: Option<Agreed<T>>,
    mac: Option<[u8; 6]>,
    /// Why there is no session.
    trouble: Option<Error>,
}

/// How often the keeper looks at the device, and tries again to bring it up.
const TICK: Duration = Duration::from_millis(50);

impl<T: Transport> Port<T> {
    /// The address by which the device was opened.
    #[must_use]
    pub fn name(&self) -> &str {
        self.shared.transport.name()
    }

    /// The NUMA node it is attached to, if known.
    #[must_use]
    pub fn numa_node(&self) -> Option<u32> {
        self.shared.transport.numa_node()
    }

    /// The station address; zeros for a device that has none.
    #[must_use]
    pub fn mac(&self) -> [u8; 6] {
        self.control.live().mac.unwrap_or_default()
    }

    /// The features in use; none while the device is away.
    #[must_use]
    pub fn features(&self) -> Features {
        self.control.live().agreed.as_ref().map_or_else(Features::default, |agreed| agreed.features)
    }

    /// The link's state now; down while the device is away.
    ///
    /// # Errors
    ///
    /// [`Error::Gone`].
    pub fn link(&self) -> Result<LinkStatus> {
        let live = self.control.live();
        let Some(agreed) = &live.agreed else { return Ok(LinkStatus { up: false }) };
        Ok(LinkStatus { up: net::link_up(&*self.shared.transport, agreed.features)? })
    }

    /// Waits until the link is up, at most for `limit`, and returns its state then.
    ///
    /// # Errors
    ///
    /// Why there is still no session with the device, unless nobody has connected yet.
    pub fn wait_link(&self, limit: Duration) -> Result<LinkStatus> {
        let deadline = Instant::now() + limit;
        loop {
            let link = self.link()?;
            let left = deadline.saturating_duration_since(Instant::now());
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

    /// Whether to receive frames for any address. A device that has no such mode passes on all that it is given.
    ///
    /// # Errors
    ///
    /// When the device is away, cannot be told so, or refuses.
    pub fn set_promiscuous(&mut self, on: bool) -> Result<()> {
        if on && !self.features().contains(Features::CTRL_RX) {
            return Ok(());
        }
        self.command(Features::CTRL_RX, |control| control.set_promiscuous(on))
    }

    /// Changes the station address.
    ///
    /// # Errors
    ///
    /// When the device is away, cannot be told so, or refuses.
    pub fn set_mac(&mut self, mac: [u8; 6]) -> Result<()> {
        self.command(Features::CTRL_MAC_ADDR, |control| control.set_mac(mac))?;
        self.control.live().mac = Some(mac);
        Ok(())
    }

    /// Whether to receive frames with the tag `vlan`, 0 to 4095. A device that is promiscuous receives them anyhow.
    ///
    /// # Errors
    ///
    /// When the device is away, cannot be told so, or refuses.
    pub fn set_vlan(&mut self, vlan: u16, receive: bool) -> Result<()> {
        self.command(Features::CTRL_VLAN, |control| control.set_vlan(vlan, receive))
    }

    fn command(
        &self,
        needs: Features,
        command: impl FnOnce(&mut crate::control::Control<T>) -> Result<()>,
    ) -> Result<()> {
        let mut live = self.control.live();
        match &mut live.agreed {
            None => Err(self.shared.transport.gone("no session with it; wait until its link is up")),
            Some(Agreed { features, control: Some(control), .. }) if features.contains(needs) => {
                let result = command(control);
                if matches!(result, Err(Error::Timeout { .. })) {
                    // The answer may still come, into memory that the next command would use.
                    self.shared.report(self.shared.epoch(), Fault::ControlQueue);
                }
                result
            }
            Some(_) => {
                let problem = format!("the device does not offer {needs}; do without");
                Err(Error::Negotiation { device: self.name().to_owned(), problem })
            }
        }
    }

    /// What the queues have counted together.
    #[must_use]
    pub fn totals(&self) -> Statistics {
        let sum = |tallies: &mut dyn Iterator<Item = &Arc<Tally>>| {
            tallies.map(|tally| tally.get()).fold((0, 0), |sum, next| (sum.0 + next.0, sum.1 + next.1))
        };
        let (rx_packets, rx_bytes) = sum(&mut self.rx.iter());
        let (tx_packets, tx_bytes) = sum(&mut self.tx.iter().map(|(tally, _)| tally));
        Statistics { rx_packets, rx_bytes, tx_packets, tx_bytes }
    }

    /// Whether the device has reported everything done that transmit queues were seen to hand it.
    #[must_use]
    pub fn transmit_idle(&self) -> bool {
        self.tx.iter().all(|(_, in_flight)| in_flight.load(Ordering::Relaxed) == 0)
    }

    /// Stops the device: it is reset. Returns the final totals. Buffers in the rings go back to their pools as the queues
    /// are dropped.
    ///
    /// # Errors
    ///
    /// When the device does not confirm that; memory that it may still reach is kept.
    pub fn close(mut self) -> Result<Statistics> {
        self.stop()?;
        Ok(self.totals())
    }

    fn stop(&mut self) -> Result<()> {
        self.control.stop.store(true, Ordering::Relaxed);
        let Some(keeper) = self.keeper.take() else { return Ok(()) };
        self.shared.close();
        // A keeper that panicked has nothing to say.
        let _ = keeper.join();
        self.control.live().agreed = None;
        self.shared.end()
    }
}

impl<T: Transport> ControlSide<T> {
    fn live(&self) -> MutexGuard<'_, Live<T>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bring_up(&self, shared: &Shared<T>) -> Result<()> {
        let agreed = negotiate::start(shared, &self.config, &self.pool)?;
        tracing::info!("{}: in use: {}", shared.transport.name(), agreed.features);
        let mut live = self.live();
        live.mac = agreed.net.mac.or(live.mac);
        (live.agreed, live.trouble) = (Some(agreed), None);
        drop(live);
        self.changed.notify_all();
        Ok(())
    }

    /// Starts the thread that watches the device.
    fn keep(self: &Arc<Self>, shared: &Arc<Shared<T>>) -> Result<JoinHandle<()>> {
        let (control, shared) = (Arc::clone(self), Arc::clone(shared));
        let name = shared.transport.name().to_owned();
        let thread = std::thread::Builder::new().name("virtio-keeper".to_owned());
        thread.spawn(move || control.watch(&shared)).map_err(|source| {
            device::Error::system("start a thread to watch", name, source, "raise the limit of processes").into()
        })
    }

    fn watch(&self, shared: &Shared<T>) {
        let name = shared.transport.name();
        while !self.stop.load(Ordering::Relaxed) {
            if shared.is_on() {
                let lost = match (shared.transport.watch(TICK), shared.fault()) {
                    (Attention::Lost(reason), _) => reason.to_owned(),
                    (Attention::None, Some(fault)) => fault.to_string(),
                    (Attention::None, None) => continue,
                };
                tracing::warn!("{name}: {lost}; starting again");
                self.live().agreed = None;
            }
            if let Err(error) = shared.end().and_then(|()| self.bring_up(shared)) {
                self.note(error);
                std::thread::sleep(TICK);
            }
        }
    }

    /// Logs what is in the way, once.
    fn note(&self, error: Error) {
        let mut live = self.live();
        let text = error.to_string();
        if live.trouble.as_ref().map(ToString::to_string) != Some(text) {
            tracing::warn!("{error}");
        }
        live.trouble = Some(error);
    }
}

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
