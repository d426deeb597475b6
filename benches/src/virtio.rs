//! A virtio-net device whose other side is a few loads and stores in the same thread, as [`crate::MemoryNic`] is for the
//! 82599.

use crate::rig::change_a_byte;
use crate::{FRAME, Identity, Work, frames};
use ::virtio::transport::{Notifier, QueueSetup, Transport};
use ::virtio::{Config, Features, Opened, Port, RxQueue, TxQueue};
use device::{DmaDomain, EventFd, Interrupts};
use ethdev::{RxInfos, RxQueue as _, TxQueue as _};
use mempool::{Batch, Packet, Pool, PoolCache};
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The transport: what the driver is told, and where it says its queues are.
#[derive(Debug)]
pub struct MemoryVirtio {
    features: Features,
    dma: DmaDomain,
    queues: Arc<Mutex<Vec<QueueSetup>>>,
    status: AtomicU16,
}

/// Nobody wants to be notified.
#[derive(Debug)]
pub struct Quiet;

impl Notifier for Quiet {
    fn notify(&self) {}
}

// SAFETY: the "device" acts only inside `Side`'s functions, which the rig stops calling before it closes the port.
unsafe impl Transport for MemoryVirtio {
    type Notifier = Quiet;

    fn name(&self) -> &str {
        "memory"
    }

    fn dma(&self) -> &DmaDomain {
        &self.dma
    }

    fn vectors(&self, _: Interrupts, _: u16) -> ::virtio::Result<Vec<Arc<EventFd>>> {
        // The rig polls.
        Ok(Vec::new())
    }

    fn reset(&self) -> ::virtio::Result<()> {
        self.status.store(0, Ordering::Relaxed);
        Ok(())
    }

    fn status(&self) -> ::virtio::Result<u8> {
        Ok(self.status.load(Ordering::Relaxed).to_le_bytes()[0])
    }

    fn set_status(&self, status: u8) -> ::virtio::Result<()> {
        self.status.store(status.into(), Ordering::Relaxed);
        Ok(())
    }

    fn device_features(&self) -> ::virtio::Result<u64> {
        Ok(self.features.0)
    }

    fn set_driver_features(&self, _: u64) -> ::virtio::Result<()> {
        Ok(())
    }

    fn read_config(&self, _: u16, bytes: &mut [u8]) -> ::virtio::Result<()> {
        bytes.fill(0);
        Ok(())
    }

    fn config_generation(&self) -> ::virtio::Result<Option<u8>> {
        Ok(Some(0))
    }

    fn queue_size(&self, _: u16) -> ::virtio::Result<u16> {
        Ok(4096)
    }

    unsafe fn set_up_queue(&self, _: u16, setup: &QueueSetup) -> ::virtio::Result<Quiet> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner).push(*setup);
        Ok(Quiet)
    }

    fn watch(&self, limit: Duration) -> Option<&'static str> {
        std::thread::sleep(limit);
        None
    }
}

/// Flags of a packed ring, in the second word of a descriptor.
const AVAIL: u64 = 1 << 55;
const USED: u64 = 1 << 63;

/// The device's side of one queue.
#[derive(Debug)]
struct Side {
    setup: QueueSetup,
    at: u16,
}

impl Side {
    /// Uses the next `count` buffers. With a header, says of each that a frame of `len` bytes lies in it.
    #[inline(never)]
    fn use_up(&mut self, count: usize, len: u32, header: bool) {
        if self.setup.packed { self.use_packed(count, len, header) } else { self.use_split(count, len, header) }
    }

    /// The address of the next buffer, if the driver has made one available.
    #[inline(always)]
    fn next(&self) -> Option<u64> {
        let place = u64::from(self.at & (self.setup.size - 1));
        if self.setup.packed {
            let descriptor = self.setup.descriptors + 16 * place;
            let state = long(descriptor + 8).load(Ordering::Acquire);
            let lap = self.at & self.setup.size == 0;
            let available = (state & AVAIL != 0) == lap && (state & USED != 0) != lap;
            return available.then(|| long(descriptor).load(Ordering::Relaxed));
        }
        if half(self.setup.driver + 2).load(Ordering::Acquire) == self.at {
            return None;
        }
        let id = half(self.setup.driver + 4 + 2 * place).load(Ordering::Relaxed) & (self.setup.size - 1);
        Some(long(self.setup.descriptors + 16 * u64::from(id)).load(Ordering::Relaxed))
    }

    fn use_split(&mut self, count: usize, len: u32, header: bool) {
        let mask = self.setup.size - 1;
        for _ in 0..count {
            let place = u64::from(self.at & mask);
            let id = half(self.setup.driver + 4 + 2 * place).load(Ordering::Relaxed) & mask;
            if header {
                write_header(long(self.setup.descriptors + 16 * u64::from(id)).load(Ordering::Relaxed));
            }
            let entry = self.setup.device + 4 + 8 * place;
            word(entry).store(id.into(), Ordering::Relaxed);
            word(entry + 4).store(len, Ordering::Relaxed);
            self.at = self.at.wrapping_add(1);
        }
        half(self.setup.device + 2).store(self.at, Ordering::Release);
    }

    fn use_packed(&mut self, count: usize, len: u32, header: bool) {
        let mask = self.setup.size - 1;
        for _ in 0..count {
            let place = self.setup.descriptors + 16 * u64::from(self.at & mask);
            if header {
                write_header(long(place).load(Ordering::Relaxed));
            }
            let id = long(place + 8).load(Ordering::Acquire) & 0xffff_0000_0000;
            let flags = if self.at & self.setup.size == 0 { AVAIL | USED } else { 0 };
            long(place + 8).store(u64::from(len) | id | flags, Ordering::Release);
            self.at = self.at.wrapping_add(1);
        }
    }
}

/// One buffer, no offload.
fn write_header(buffer: u64) {
    // 12 bytes in front of data that begins with a cache line: aligned to 4 bytes. The driver runs in the same thread.
    let first = buffer as *mut u64;
    // SAFETY: an address that the driver gave the device, in memory that the rig keeps.
    unsafe { first.write_unaligned(0) };
    word(buffer + 8).store(1 << 16, Ordering::Relaxed);
}

fn half(address: u64) -> &'static AtomicU16 {
    // SAFETY: an address that the driver gave the device, aligned, in memory that the rig keeps.
    unsafe { &*(address as *const AtomicU16) }
}

fn word(address: u64) -> &'static AtomicU32 {
    // SAFETY: as above.
    unsafe { &*(address as *const AtomicU32) }
}

fn long(address: u64) -> &'static AtomicU64 {
    // SAFETY: as above.
    unsafe { &*(address as *const AtomicU64) }
}

/// The driver's side of a device made of memory, and the device's.
#[derive(Debug)]
pub struct VirtioPort {
    port: Port<MemoryVirtio>,
    rx: RxQueue<MemoryVirtio>,
    tx: TxQueue<MemoryVirtio>,
    receive: Side,
    transmit: Side,
}

impl VirtioPort {
    /// Opens the driver with rings of `ring` descriptors; buffers for frames to receive are in the ring.
    ///
    /// # Panics
    ///
    /// When it cannot: then there is nothing to measure.
    #[must_use]
    #[expect(clippy::expect_used, reason = "a bench that cannot start has no better way to say so")]
    pub fn open(packed: bool, ring: u16, pool: &Pool) -> Self {
        let mut features = Features::VERSION_1 | Features::MRG_RXBUF;
        if packed {
            features = features | Features::RING_PACKED;
        }
        let queues = Arc::<Mutex<Vec<QueueSetup>>>::default();
        let dma = DmaDomain::new(Box::new(Identity));
        let transport = MemoryVirtio { features, dma, queues: Arc::clone(&queues), status: AtomicU16::new(0) };
        let mut config = Config::default();
        (config.port.rx_ring, config.port.tx_ring) = (ring, ring);
        let Opened { port, mut rx, mut tx } = ::virtio::open(transport, &config, pool).expect("the driver on memory");
        let (mut rx, tx) = (rx.pop().expect("a receive queue"), tx.pop().expect("a transmit queue"));
        // Makes buffers available.
        rx.recv(&mut pool.cache(), &mut Batch::with_capacity(1));
        let setups = queues.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let side = |index: usize| Side { setup: setups[index], at: 0 };
        Self { port, rx, tx, receive: side(0), transmit: side(1) }
    }

    /// The queues, and the device's side of them, which may be another thread's. The port stays open for as long as it is used.
    pub fn parts(&mut self) -> (&mut RxQueue<MemoryVirtio>, &mut TxQueue<MemoryVirtio>, BackEnd<'_>) {
        let Self { rx, tx, receive, transmit, .. } = self;
        (rx, tx, BackEnd { receive, transmit })
    }
}

/// The device's side of a port.
#[derive(Debug)]
pub struct BackEnd<'p> {
    receive: &'p mut Side,
    transmit: &'p mut Side,
}

/// Where a frame carries a stamp: behind its UDP header.
const STAMP: usize = 42;

impl BackEnd<'_> {
    /// Writes a frame of [`FRAME`] bytes with that stamp into the next buffer for frames to receive. Returns whether there was one.
    #[inline(always)]
    pub fn deliver(&mut self, stamp: u64) -> bool {
        let Some(buffer) = self.receive.next() else { return false };
        let mut frame = frames::TEMPLATE;
        frame[STAMP..STAMP + 8].copy_from_slice(&stamp.to_ne_bytes());
        write_header(buffer);
        // SAFETY: the driver gave this buffer, which is longer, to the device until that has used it.
        unsafe { std::ptr::copy_nonoverlapping(frame.as_ptr(), (buffer + HEADER) as *mut u8, frame.len()) }
        self.receive.use_up(1, RECEIVED, false);
        true
    }

    /// Takes the next frame that the driver sends. Returns its stamp.
    #[inline(always)]
    pub fn collect(&mut self) -> Option<u64> {
        let buffer = self.transmit.next()?;
        let stamp = (buffer + HEADER + STAMP as u64) as *const u64;
        // SAFETY: the driver gave this buffer to the device, with a frame of [`BackEnd::deliver`], until that has used it.
        let stamp = unsafe { stamp.read_unaligned() };
        self.transmit.use_up(1, 0, false);
        Some(stamp)
    }
}

/// The virtio driver on a device made of memory.
#[derive(Debug)]
pub struct VirtioRig {
    _port: Port<MemoryVirtio>,
    rx: RxQueue<MemoryVirtio>,
    tx: TxQueue<MemoryVirtio>,
    receive: Side,
    transmit: Side,
    cache: PoolCache,
    batch: Batch,
    infos: RxInfos,
    burst: usize,
}

impl VirtioRig {
    /// Opens the driver with rings of `ring` descriptors, for bursts of `burst` packets.
    ///
    /// # Panics
    ///
    /// When it cannot: then there is nothing to measure.
    #[must_use]
    #[expect(clippy::expect_used, reason = "a bench that cannot start has no better way to say so")]
    pub fn new(packed: bool, burst: usize, ring: u16) -> Self {
        let slots = usize::from(ring) * 2 + burst + 1024;
        let pool = frames::pool(slots).expect("a packet pool");
        let VirtioPort { port, rx, tx, receive, transmit } = VirtioPort::open(packed, ring, &pool);
        let (cache, batch, infos) = (pool.cache(), Batch::with_capacity(burst), RxInfos::with_capacity(burst));
        Self { _port: port, rx, tx, receive, transmit, cache, batch, infos, burst }
    }

    /// Does one burst of `work`, the device's part included. Returns the packets it handled.
    #[inline(always)]
    pub fn burst(&mut self, work: Work) -> usize {
        self.part(work, self.burst)
    }

    /// As [`crate::Rig::part`].
    #[inline(always)]
    pub fn part(&mut self, work: Work, count: usize) -> usize {
        self.work_with(work, count, change_a_byte)
    }

    /// Receives a burst, calls `function` with it and transmits it, the device's part included. Returns the packets sent. Frames are
    /// as [`crate::Rig::forward_with`] says.
    #[inline(always)]
    pub fn forward_with(&mut self, function: impl FnOnce(&mut [Packet])) -> usize {
        self.work_with(Work::Forward, self.burst, function)
    }

    #[inline(always)]
    fn work_with(&mut self, work: Work, count: usize, function: impl FnOnce(&mut [Packet])) -> usize {
        let Self { rx, tx, receive, transmit, cache, batch, infos, .. } = self;
        let mut handled = 0;
        if matches!(work, Work::Receive | Work::ReceiveWith | Work::Forward) {
            receive.use_up(count, RECEIVED, true);
            handled = if work == Work::ReceiveWith {
                rx.recv_with(cache, batch, infos).len()
            } else {
                rx.recv(cache, batch).len()
            };
        } else {
            handled += cache.alloc_batch(batch, count, FRAME.into());
        }
        if work == Work::Forward {
            function(batch);
        }
        if matches!(work, Work::Transmit | Work::Forward) {
            handled = tx.send(cache, batch);
            transmit.use_up(count, 0, false);
        } else {
            cache.free_batch(batch);
        }
        handled
    }

    /// Does only the device's part of [`Self::part`]. Returns `count`.
    #[inline(always)]
    pub fn hardware_part(&mut self, work: Work, count: usize) -> usize {
        if matches!(work, Work::Receive | Work::ReceiveWith | Work::Forward) {
            self.receive.use_up(count, RECEIVED, true);
        }
        if matches!(work, Work::Transmit | Work::Forward) {
            self.transmit.use_up(count, 0, false);
        }
        count
    }
}

/// Bytes of the header in front of a frame.
const HEADER: u64 = 12;
/// A frame and its header.
const RECEIVED: u32 = FRAME as u32 + 12;
