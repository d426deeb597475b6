//! A port whose wire is the program itself: the program injects frames that the port receives, and collects those it
//! sends.
//!
//! It is for tests, examples and simulations. It is also a plain implementation of the port traits in safe code, which
//! can serve as a model for a port of your own. See the [crate documentation](crate) for a program that uses it.

use crate::rss::{hash_frame, hash_if_chosen};
use crate::{
    Capabilities, ConfigError, Events, HashTypes, LinkStatus, MacAddress, Opened, PacketType, Port, PortConfig,
    PortError, Reta, Rss, RssCapabilities, RxCounters, RxErrors, RxInfo, RxInfos, RxQueue, Statistics, TxCounters,
    TxQueue, Unsupported,
};
use crossbeam_queue::ArrayQueue;
use device::{EventFd, Interrupts};
use mempool::{Batch, Packet, Pool, PoolCache, complete_checksum};
use std::collections::{HashSet, VecDeque};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use wire::Flow;

/// Opens a port named `name`. Returns it with its wire, which may be moved to another thread. Injected frames take
/// their buffers from `pool`. The link is up as long as the wire exists.
///
/// # Errors
///
/// If a setting is out of range, or interrupts are required and no eventfd can be made.
pub fn open(name: &str, config: &PortConfig, pool: &Pool) -> Result<(Opened<InProcess>, Wire), Error> {
    config.validate_for(&capabilities(config.mtu, true))?;
    let rx = (0..config.rx_queues).map(|_| RxRing::new(config)).collect::<Result<_, _>>()?;
    let tx: Vec<_> = (0..config.tx_queues).map(|_| ArrayQueue::new(config.tx_ring.into())).collect();
    let shared = Arc::new(Shared {
        name: name.to_owned(),
        rx,
        tx_in_flight: tx.iter().map(|_| AtomicUsize::new(0)).collect(),
        tx,
        settings: Mutex::new(Settings {
            mac: MacAddress::of_name(name),
            promiscuous: config.promiscuous,
            all_multicast: config.all_multicast,
            groups: HashSet::new(),
            rss: config.rss.clone(),
            max_frame: config.max_frame(),
        }),
        config: config.clone(),
        link: AtomicBool::new(true),
        link_changed: AtomicBool::new(false),
        stopped: AtomicBool::new(false),
        closed: AtomicBool::new(false),
        totals: Totals::default(),
    });
    let of = |shared: &Arc<Shared>, index: u16| (Arc::clone(shared), usize::from(index));
    let rx = (0..config.rx_queues).map(|index| {
        let (shared, index) = of(&shared, index);
        InProcessRx { shared, index, held: None, counters: RxCounters::default() }
    });
    let tx = (0..config.tx_queues).map(|index| {
        let (shared, index) = of(&shared, index);
        InProcessTx { shared, index, counters: TxCounters::default() }
    });
    let (rx, tx) = (rx.collect(), tx.collect());
    let wire = Wire { shared: Arc::clone(&shared), cache: pool.cache(), next: 0 };
    Ok((Opened { port: InProcess { shared }, rx, tx }, wire))
}

/// As many queues as a port can have, and so many entries in the redirection table.
const QUEUES: u16 = 64;
const TABLE: u16 = 128;

fn capabilities(mtu: u16, interrupts: bool) -> Capabilities {
    Capabilities {
        rx_queues: QUEUES,
        tx_queues: QUEUES,
        mtu,
        rss: Some(RssCapabilities { queues: QUEUES, table: TABLE, hash: HashTypes::default() }),
        set_mac: true,
        set_promiscuous: true,
        stop_receiving: true,
        checksum_offload: false,
        strip_vlan: false,
        report_hash: true,
        interrupts,
        loopback: false,
    }
}

/// A frame in one buffer or several.
type Frame = VecDeque<Packet>;

#[derive(Debug)]
struct RxRing {
    frames: ArrayQueue<Frame>,
    event: Option<EventFd>,
    armed: AtomicBool,
}

impl RxRing {
    fn new(config: &PortConfig) -> Result<Self, Error> {
        let event = match config.interrupts {
            Interrupts::Off => None,
            Interrupts::IfAvailable => EventFd::new().ok(),
            Interrupts::Required => Some(EventFd::new()?),
        };
        Ok(Self { frames: ArrayQueue::new(config.rx_ring.into()), event, armed: AtomicBool::new(false) })
    }

    /// Wakes who has armed it.
    fn wake(&self) {
        if let Some(event) = self.event.as_ref().filter(|_| self.armed.swap(false, Ordering::SeqCst)) {
            event.signal();
        }
    }
}

#[derive(Debug)]
struct Settings {
    mac: MacAddress,
    promiscuous: bool,
    all_multicast: bool,
    groups: HashSet<MacAddress>,
    rss: Rss,
    max_frame: usize,
}

#[derive(Debug, Default)]
struct Totals {
    rx_packets: AtomicU64,
    rx_bytes: AtomicU64,
    rx_missed: AtomicU64,
    rx_oversize: AtomicU64,
    tx_packets: AtomicU64,
    tx_bytes: AtomicU64,
}

/// What a port, its queues and its wire share.
#[derive(Debug)]
struct Shared {
    name: String,
    config: PortConfig,
    rx: Vec<RxRing>,
    tx: Vec<ArrayQueue<Frame>>,
    /// Packets in each transmit ring.
    tx_in_flight: Vec<AtomicUsize>,
    settings: Mutex<Settings>,
    link: AtomicBool,
    link_changed: AtomicBool,
    /// No more frames are taken from the wire.
    stopped: AtomicBool,
    closed: AtomicBool,
    totals: Totals,
}

impl Shared {
    fn settings(&self) -> std::sync::MutexGuard<'_, Settings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_link(&self, up: bool) {
        if self.link.swap(up, Ordering::SeqCst) != up {
            self.link_changed.store(true, Ordering::SeqCst);
        }
    }

    fn close(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.closed.store(true, Ordering::SeqCst);
        for ring in &self.rx {
            ring.armed.store(true, Ordering::SeqCst);
            ring.wake();
        }
    }
}

/// The control side of a port in process.
#[derive(Debug)]
pub struct InProcess {
    shared: Arc<Shared>,
}

impl Port for InProcess {
    type Rx = InProcessRx;
    type Tx = InProcessTx;
    type Error = Error;

    fn name(&self) -> &str {
        &self.shared.name
    }

    fn mac(&self) -> MacAddress {
        self.shared.settings().mac
    }

    fn capabilities(&self) -> Capabilities {
        capabilities(self.shared.config.mtu, self.shared.rx.iter().all(|ring| ring.event.is_some()))
    }

    fn link(&self) -> Result<LinkStatus, Error> {
        let up = self.shared.link.load(Ordering::SeqCst);
        Ok(LinkStatus { up, speed_mbps: if up { 10_000 } else { 0 } })
    }

    fn set_promiscuous(&mut self, on: bool) -> Result<(), Error> {
        self.shared.settings().promiscuous = on;
        Ok(())
    }

    fn set_all_multicast(&mut self, on: bool) -> Result<(), Error> {
        self.shared.settings().all_multicast = on;
        Ok(())
    }

    /// Frames for other groups are not received.
    fn set_groups(&mut self, groups: &[MacAddress]) -> Result<(), Error> {
        ConfigError::unless_groups(groups)?;
        self.shared.settings().groups = groups.iter().copied().collect();
        Ok(())
    }

    fn set_mac(&mut self, mac: MacAddress) -> Result<(), Error> {
        if !mac.is_unicast() {
            return Err(ConfigError::new("mac", format!("{mac}: no station's address")).into());
        }
        self.shared.settings().mac = mac;
        Ok(())
    }

    fn set_mtu(&mut self, mtu: u16) -> Result<(), Error> {
        ConfigError::unless_in("mtu", mtu, 68..=self.shared.config.mtu, "bytes")?;
        self.shared.settings().max_frame = PortConfig { mtu, ..PortConfig::default() }.max_frame();
        Ok(())
    }

    fn set_rss_table(&mut self, table: &Reta) -> Result<(), Error> {
        let mut settings = self.shared.settings();
        let rss = settings.rss.with_table(table);
        rss.validate(self.shared.config.rx_queues, QUEUES, TABLE)?;
        settings.rss = rss;
        Ok(())
    }

    fn stop_receiving(&mut self) -> Result<(), Error> {
        self.shared.stopped.store(true, Ordering::SeqCst);
        Ok(())
    }

    fn totals(&self) -> Statistics {
        let totals = &self.shared.totals;
        let read = |total: &AtomicU64| total.load(Ordering::Relaxed);
        Statistics {
            rx_packets: read(&totals.rx_packets),
            rx_bytes: read(&totals.rx_bytes),
            tx_packets: read(&totals.tx_packets),
            tx_bytes: read(&totals.tx_bytes),
            rx_missed: read(&totals.rx_missed),
            rx_errors: RxErrors { oversize: read(&totals.rx_oversize), ..RxErrors::default() },
            unread: 0,
        }
    }

    fn transmit_idle(&self) -> bool {
        self.shared.tx.iter().all(ArrayQueue::is_empty)
    }

    fn events(&mut self) -> Result<Events, Error> {
        let link_changed = self.shared.link_changed.swap(false, Ordering::SeqCst);
        Ok(Events { link_changed, ..Events::default() })
    }

    fn close(self) -> Result<Statistics, Error> {
        self.shared.close();
        Ok(self.totals())
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        self.shared.close();
    }
}

/// A receive queue of a port in process.
#[derive(Debug)]
pub struct InProcessRx {
    shared: Arc<Shared>,
    index: usize,
    /// A frame that the last batch had no room for.
    held: Option<Frame>,
    counters: RxCounters,
}

impl RxQueue for InProcessRx {
    fn recv<'b>(&mut self, _: &mut PoolCache, batch: &'b mut Batch) -> &'b mut [Packet] {
        let before = batch.len();
        if batch.spare() == 0 {
            return &mut [];
        }
        // As many as the ring holds: whoever injects meanwhile keeps nobody here.
        for _ in 0..self.shared.config.rx_ring {
            let Some(frame) = self.held.take().or_else(|| self.shared.rx[self.index].frames.pop()) else { break };
            if frame.len() > batch.capacity() {
                self.counters.batch_too_small += 1;
                continue;
            }
            if frame.len() > batch.spare() {
                self.held = Some(frame);
                break;
            }
            self.counters.packets += 1;
            for packet in frame {
                self.counters.bytes += packet.len() as u64;
                // There is room for all of them.
                let _ = batch.push(packet);
            }
        }
        batch.get_mut(before..).unwrap_or_default()
    }

    /// The hash is that of [`crate::hash_frame`], over a frame's first buffer, of which the packet type is, too. Options and
    /// SCTP are not looked for.
    fn recv_with<'b>(&mut self, cache: &mut PoolCache, batch: &'b mut Batch, infos: &mut RxInfos) -> &'b mut [Packet] {
        let packets = self.recv(cache, batch);
        let rss = self.shared.settings().rss.clone();
        let mut room = infos.room(packets.len()).iter_mut();
        for frame in mempool::frames(packets) {
            let info = frame.first().map_or_else(RxInfo::default, |first| info(&rss, first));
            frame.iter().zip(&mut room).for_each(|(_, place)| *place = info);
        }
        infos.filled(packets.len());
        packets
    }

    fn counters(&self) -> RxCounters {
        self.counters
    }

    fn is_ready(&mut self) -> bool {
        self.held.is_some() || !self.shared.rx[self.index].frames.is_empty()
    }

    fn arm(&mut self) -> bool {
        let ring = &self.shared.rx[self.index];
        let Some(event) = &ring.event else { return false };
        event.clear();
        ring.armed.store(true, Ordering::SeqCst);
        // What comes from here on signals; what came before is seen here.
        !self.is_ready() && !self.shared.closed.load(Ordering::SeqCst)
    }

    fn eventfd(&self) -> Option<BorrowedFd<'_>> {
        self.shared.rx[self.index].event.as_ref().map(|event| event.as_fd())
    }
}

fn info(rss: &Rss, first: &Packet) -> RxInfo {
    let info = RxInfo::of(first).with_packet_type(Flow::of(first.data()).map(PacketType::of).unwrap_or_default());
    hash_if_chosen(rss, first.data()).map_or(info, |hash| info.with_hash(hash))
}

/// A transmit queue of a port in process.
#[derive(Debug)]
pub struct InProcessTx {
    shared: Arc<Shared>,
    index: usize,
    counters: TxCounters,
}

impl TxQueue for InProcessTx {
    fn send(&mut self, cache: &mut PoolCache, batch: &mut Batch) -> usize {
        let (ring, in_flight) = (&self.shared.tx[self.index], &self.shared.tx_in_flight[self.index]);
        let before = batch.len();
        while !batch.is_empty() && !ring.is_full() && !self.shared.closed.load(Ordering::SeqCst) {
            let packets = batch.iter().position(|packet| !packet.continues()).map_or(batch.len(), |last| last + 1);
            let mut frame: Frame = batch.drain_range(..packets).collect();
            let bytes: usize = frame.iter().map(Packet::len).sum();
            let refused = if bytes == 0 || frame.iter().any(Packet::is_empty) {
                Some(&mut self.counters.bad_length)
            } else if bytes > self.shared.config.max_frame() {
                Some(&mut self.counters.too_long)
            } else {
                None
            };
            if let Some(reason) = refused {
                *reason += 1;
                frame.into_iter().for_each(|packet| cache.free(packet));
                continue;
            }
            complete_checksum(frame.make_contiguous());
            in_flight.fetch_add(packets, Ordering::Relaxed);
            // Only this queue fills the ring, and it is not full.
            if ring.push(frame).is_ok() {
                self.counters.packets += 1;
                self.counters.bytes += bytes as u64;
            }
        }
        before - batch.len()
    }

    fn counters(&self) -> TxCounters {
        self.counters
    }

    fn in_flight(&self) -> usize {
        self.shared.tx_in_flight[self.index].load(Ordering::Relaxed)
    }
}

/// The other end of the cable of a port in process. Dropping it takes the link down.
#[derive(Debug)]
pub struct Wire {
    shared: Arc<Shared>,
    cache: PoolCache,
    /// The transmit queue that is looked at next.
    next: usize,
}

impl Wire {
    /// Puts a frame (without frame check sequence) into the receive queue that its hash selects. Returns whether it was
    /// put there. It is not if it is filtered out, is empty or longer than the MTU allows, or if the ring is full,
    /// the pool is empty, the link is down, or the port receives no more. [`Port::totals`] counts frames that are too
    /// long or find the ring full or the pool empty.
    pub fn inject(&mut self, frame: &[u8]) -> bool {
        let queue = {
            let settings = self.shared.settings();
            settings.rss.queue(hash_frame(&settings.rss, frame), self.shared.config.rx_queues)
        };
        self.inject_into(queue.into(), frame)
    }

    /// Puts a frame into receive queue `queue`, like [`Self::inject`]. Also returns false if there is no queue of that
    /// number.
    pub fn inject_into(&mut self, queue: usize, frame: &[u8]) -> bool {
        let Shared { rx, totals, link, stopped, .. } = &*self.shared;
        if queue >= rx.len() || !link.load(Ordering::SeqCst) || stopped.load(Ordering::SeqCst) || frame.is_empty() {
            return false;
        }
        let count = |total: &AtomicU64, more: u64| total.fetch_add(more, Ordering::Relaxed);
        {
            let settings = self.shared.settings();
            if frame.len() > settings.max_frame {
                count(&totals.rx_oversize, 1);
                return false;
            }
            let to = frame.first_chunk().map_or(MacAddress::ZERO, |octets| MacAddress(*octets));
            let wanted = if to.is_multicast() {
                settings.all_multicast || to == MacAddress::BROADCAST || settings.groups.contains(&to)
            } else {
                to == settings.mac
            };
            if !wanted && !settings.promiscuous {
                return false;
            }
        }
        let packets = self.packets(frame);
        let Shared { rx, totals, .. } = &*self.shared;
        let (Some(packets), Some(ring)) = (packets, rx.get(queue)) else {
            count(&totals.rx_missed, 1);
            return false;
        };
        if ring.frames.push(packets).is_err() {
            count(&totals.rx_missed, 1);
            return false;
        }
        count(&totals.rx_packets, 1);
        count(&totals.rx_bytes, frame.len() as u64 + Statistics::CRC);
        ring.wake();
        true
    }

    /// The frame in as many buffers as it takes.
    fn packets(&mut self, frame: &[u8]) -> Option<Frame> {
        let room = usize::from(self.cache.pool().data_room()).max(1);
        let mut packets = Frame::with_capacity(frame.len().div_ceil(room));
        for bytes in frame.chunks(room) {
            packets.push_back(self.cache.alloc_from(bytes)?);
        }
        let last = packets.len().saturating_sub(1);
        packets.iter_mut().take(last).for_each(|packet| packet.set_continues(true));
        Some(packets)
    }

    /// Returns the next frame that the port has sent, taking its transmit queues in turn; `None` if there is none.
    pub fn collect(&mut self) -> Option<Vec<u8>> {
        for _ in 0..self.shared.tx.len() {
            let queue = self.next;
            self.next = (queue + 1) % self.shared.tx.len();
            if let Some(frame) = self.collect_from(queue) {
                return Some(frame);
            }
        }
        None
    }

    /// Returns the next frame that transmit queue `queue` has sent; `None` if there is none.
    pub fn collect_from(&mut self, queue: usize) -> Option<Vec<u8>> {
        let frame = self.shared.tx.get(queue)?.pop()?;
        let bytes: Vec<u8> = frame.iter().flat_map(|packet| packet.data()).copied().collect();
        self.shared.totals.tx_packets.fetch_add(1, Ordering::Relaxed);
        self.shared.totals.tx_bytes.fetch_add(bytes.len() as u64 + Statistics::CRC, Ordering::Relaxed);
        self.shared.tx_in_flight[queue].fetch_sub(frame.len(), Ordering::Relaxed);
        frame.into_iter().for_each(|packet| self.cache.free(packet));
        Some(bytes)
    }

    /// Takes the link up or down. While it is down, nothing can be injected.
    pub fn set_link(&mut self, up: bool) {
        self.shared.set_link(up);
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.shared.set_link(false);
    }
}

/// An error of opening or controlling a port in process.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting is refused.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The port does not support the operation.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// An eventfd cannot be made.
    #[error(transparent)]
    Device(#[from] device::Error),
}

impl PortError for Error {
    fn is_usage(&self) -> bool {
        matches!(self, Self::Config(_))
    }
}
