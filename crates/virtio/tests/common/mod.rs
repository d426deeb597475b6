//! What the tests share: a driver on a device made of memory.
#![allow(dead_code, reason = "no test file uses all of it")]
#![expect(unsafe_code, reason = "the word for a back end of its own")]

use device::TrustedPeer;
use ethdev::{Port as _, RxQueue as _, TxQueue as _};
use mempool::{Batch, Pool, PoolCache, PoolConfig};
use std::time::{Duration, Instant};
use virtio::fake::{FakeConfig, FakeDevice, FakeTransport};
use virtio::{Config, Features, Opened, Port, RxQueue, Transport, TxQueue};

/// Long enough for any thread on a busy machine to get its turn.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const BASE: Features = Features(Features::VERSION_1.0 | Features::MAC.0 | Features::STATUS.0);

/// What makes the driver use buffers of which several may hold a frame: the fake device's MTU is larger than any buffer.
pub(crate) const MERGING: Features = Features(Features::MRG_RXBUF.0 | Features::MTU.0);

/// Every combination of the features that change how rings work; of both layouts one under Miri, which is slow.
pub(crate) fn layouts() -> Vec<Features> {
    if cfg!(miri) {
        return vec![BASE | MERGING, BASE | Features::RING_PACKED | Features::EVENT_IDX];
    }
    let bits = [Features::RING_PACKED, MERGING, Features::EVENT_IDX, Features::IN_ORDER];
    (0..1 << bits.len())
        .map(|set: u32| {
            let chosen = bits.iter().enumerate().filter(|(n, _)| set >> n & 1 == 1);
            chosen.fold(BASE, |all, (_, bit)| all | *bit)
        })
        .collect()
}

pub(crate) struct Rig<T: Transport = FakeTransport> {
    pub(crate) device: FakeDevice,
    pub(crate) port: Port<T>,
    pub(crate) rx: RxQueue<T>,
    pub(crate) tx: TxQueue<T>,
    pub(crate) pool: Pool,
    pub(crate) cache: PoolCache,
    pub(crate) batch: Batch,
}

impl Rig<FakeTransport> {
    pub(crate) fn new(features: Features) -> Self {
        Self::with(FakeConfig { features, ..FakeConfig::default() }, &config())
    }

    pub(crate) fn with(fake: FakeConfig, config: &Config) -> Self {
        let device = FakeDevice::new(fake);
        Self::over(device.transport(), device, config)
    }
}

impl<T: Transport> Rig<T> {
    /// With `device` behind `transport`.
    pub(crate) fn over(transport: T, device: FakeDevice, config: &Config) -> Self {
        Self::from_pool(transport, device, config, 1024)
    }

    /// With a pool of so many slots.
    pub(crate) fn from_pool(transport: T, device: FakeDevice, config: &Config, slots: usize) -> Self {
        let pool = Pool::new(&PoolConfig { slots, ..PoolConfig::default() }).unwrap();
        let Opened { port, mut rx, mut tx } = virtio::open(transport, config, &pool).unwrap();
        let (cache, batch) = (pool.cache(), Batch::with_capacity(32));
        let mut rig = Self { device, port, rx: rx.remove(0), tx: tx.remove(0), pool, cache, batch };
        rig.settle();
        rig
    }

    /// Lets the queues take their places and make buffers available.
    pub(crate) fn settle(&mut self) {
        self.recv();
        let mut none = Batch::with_capacity(1);
        self.tx.send(&mut self.cache, &mut none);
    }

    pub(crate) fn recv(&mut self) -> usize {
        self.rx.recv(&mut self.cache, &mut self.batch).len()
    }

    /// What is in the batch, as bytes of frames; runs of packets are put together.
    pub(crate) fn take(&mut self) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        let mut frame = Vec::new();
        for packet in self.batch.drain() {
            frame.extend_from_slice(packet.data());
            if !packet.continues() {
                frames.push(std::mem::take(&mut frame));
            }
        }
        assert!(frame.is_empty(), "a frame without an end");
        frames
    }

    /// Puts a frame of these segments into the batch.
    pub(crate) fn put(&mut self, segments: &[&[u8]]) {
        for (n, bytes) in segments.iter().enumerate() {
            let mut packet = self.cache.alloc().expect("the pool has slots");
            packet.append(bytes.len()).expect("fits").copy_from_slice(bytes);
            packet.set_continues(n + 1 < segments.len());
            self.batch.push(packet).expect("room");
        }
    }

    pub(crate) fn send(&mut self) -> usize {
        self.tx.send(&mut self.cache, &mut self.batch)
    }

    /// Takes the device away from the queues and checks that every slot comes home.
    pub(crate) fn close(self) {
        let Self { device, port, rx, tx, pool, cache, batch } = self;
        assert_eq!(device.complaints(), Vec::<String>::new());
        port.close().unwrap();
        drop((rx, tx, cache, batch));
        assert_eq!(pool.away(), 0, "every slot is home");
    }
}

/// The word for back ends that are played by the tests themselves.
pub(crate) fn trusted() -> TrustedPeer {
    // SAFETY: they write to buffers only while these are lent to them, if at all.
    unsafe { TrustedPeer::vouched_for() }
}

pub(crate) fn config() -> Config {
    let mut config = Config::default();
    (config.port.rx_ring, config.port.tx_ring) = (64, 64);
    config
}

/// A frame of `len` bytes that differs from others.
pub(crate) fn frame(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|n| u8::try_from((seed * 31 + n) % 251).unwrap_or(0)).collect()
}

/// Waits until `done`; a panic if it takes too long.
pub(crate) fn wait(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
